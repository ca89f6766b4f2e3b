//! Keys that are exchanged: what the old ones signed stays verifiable where it should, and dies where it should.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use ed25519_dalek::SigningKey;

use super::*;
use crate::verifier::{Verdict, exported, harness, signed_anew};

fn verify(home: &Home) -> (i32, String) {
    let output = home.run(&["audit", "verify", "--every-signature"]);
    (code(&output), text(&output))
}

fn public(home: &Home, role: &str) -> Vec<String> {
    let file = home.root().join(format!("keys/{role}.pub"));
    std::fs::read_to_string(file).expect("reads").lines().map(str::to_owned).collect()
}

/// A ledger of a few entries before and after, verified under both keys, also by the other program; keys that were given out die.
#[test]
fn needs_python_a_rotated_harness_key_leaves_the_past_verifiable_and_ends_its_task_keys() {
    let keys = Keys::new().with_both();
    let home = &keys.home;
    ended(home);
    let running = Engine::start(home, &[]).expect("ready");
    assert_eq!(code(&home.run(&["keys", "harness", "rotate"])), 10, "not while an engine runs");
    assert_eq!(running.stop().code, Some(0));
    let heads = keys.path("heads.jsonl");
    assert_eq!(code(&home.run(&["audit", "export", "--heads", &heads])), 0);
    let old = public(home, "harness");
    let rotated = home.run(&["keys", "harness", "rotate"]);
    assert_eq!(code(&rotated), 0, "{}", text(&rotated));
    let new = public(home, "harness");
    assert_eq!((new.len(), &new[1..], text(&rotated).trim()), (2, old.as_slice(), new[0].as_str()));
    assert!(
        refused(&keys.refund("base", "task", 5)).contains("does not belong there"),
        "the router is another one"
    );
    // The base key rests on the root key, which is the same.
    done(&keys.task("base", "task-new", "case_tk_456def"));
    done(&keys.refund("base", "task-new", 5));
    ended(home);
    let (exit, said) = verify(home);
    assert_eq!(exit, 0, "{said}");
    let held = home.run(&["audit", "verify", "--heads", &heads]);
    assert_eq!(code(&held), 0, "heads of the old key are good: {}", text(&held));

    let export = keys.write("export.jsonl", home.run(&["audit", "export"]).stdout);
    let judge = |keys: &[&str]| Verdict::of_export(Path::new(&export), keys);
    assert_eq!(judge(&[&new[0], &old[0]]), (0, None));
    assert_eq!(judge(&[&new[0]]).0, 9, "the old key is needed for the past");
}

/// Threat 25, for the other program: an entry that another listed key has signed, with nothing of the old key for that.
#[test]
fn needs_python_an_exchanged_key_is_noticed_by_another_program() {
    let Keys { home } = Keys::new().with_both();
    let export = exported(&home);
    let lines: Vec<&str> = export.lines().collect();
    let stranger = SigningKey::from_bytes(&[7; 32]);
    let listed = [hex::encode(stranger.verifying_key().as_bytes()), public(&home, "harness")[0].clone()];
    let listed = listed.each_ref().map(String::as_str);
    let file = home.dir.path().join("export.jsonl");
    let judge = |lines: &[String]| {
        std::fs::write(&file, lines.iter().map(|line| format!("{line}\n")).collect::<String>())
            .expect("written");
        Verdict::of_export(&file, &listed)
    };
    let mut all: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
    let own = SigningKey::from_bytes(&harness(&home).to_bytes());
    let last = all.pop().expect("an entry");
    let payload =
        last.split_once("\"payload\":").expect("a payload").1.trim_end_matches('}').to_owned() + "}";
    let seq = u64::try_from(all.len()).expect("few");
    for (key, verdict) in [(&own, (0, None)), (&stranger, (9, Some(seq)))] {
        let again = [all.clone(), vec![signed_anew(&last, &payload, key)]].concat();
        assert_eq!(judge(&again), verdict);
    }
}

/// With the root key, every base key ends.
#[test]
fn a_rotated_root_key_ends_every_base_key() {
    let keys = Keys::new().with_both();
    ended(&keys.home);
    done(&keys.home.run(&["keys", "root", "rotate", "--json"]));
    assert!(refused(&keys.refund("base", "task", 5)).contains("not signed by this installation"));
    assert!(refused(&keys.task("base", "late", "case_tk_1")).contains("not signed by this installation"));
    let listed = keys.home.json(&["keys", "list"]);
    let issued = listed["issued"].as_array().expect("a list");
    assert!(issued.len() == 2 && issued.iter().all(|key| key["revoked"] == true), "{listed}");
    done(&keys.base("base-new", json!({ "refund": { "max_amount": 500 } })));
    done(&keys.task("base-new", "task-new", "case_tk_456def"));
    done(&keys.refund("base-new", "task-new", 5));
    assert_eq!(verify(&keys.home).0, 0);
}

/// The new approver key answers, the old one does not.
#[test]
fn a_rotated_approver_key_is_the_only_one_of_the_terminal() {
    let home = Home::ready();
    let kept = std::fs::read(home.root().join("keys/approver.json")).expect("reads");
    done(&home.run(&["keys", "approver", "rotate", "--json"]));
    let listed = home.json(&["keys", "approver", "list"]);
    let states: Vec<bool> = listed["approvers"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|key| key["removed_at"].is_null())
        .collect();
    assert_eq!(states, [false, true]);
    assert_eq!(public(&home, "approver").len(), 2);
    let file = home.root().join("keys/approver.json");
    let (now, newest) = (std::fs::read(&file).expect("reads"), public(&home, "approver")[0].clone());
    assert_ne!(now, kept);
    // Interrupted before the old one went: the database knows of the new one, and the same command goes on.
    let [mut before, after] =
        [&kept, &now].map(|content| serde_json::from_slice::<Value>(content).expect("JSON"));
    before["keys"]["approver.next"] = after["keys"]["approver"].clone();
    std::fs::write(&file, before.to_string()).expect("written");
    let again = home.run(&["keys", "approver", "rotate"]);
    assert_eq!((code(&again), text(&again).trim()), (0, newest.as_str()));
    assert_eq!(home.json(&["keys", "approver", "list"])["approvers"].as_array().map(Vec::len), Some(2));
    let ended: Value = serde_json::from_slice(&std::fs::read(&file).expect("reads")).expect("JSON");
    assert_eq!(ended, after);
    assert_eq!(verify(&home).0, 0);
}

/// Whoever is interrupted after any step has a home that starts, and goes on with the same command.
#[test]
fn a_rotation_that_was_interrupted_is_taken_up_again() {
    let home = Home::ready();
    let (secrets, list) = (home.root().join("keys/secrets.json"), home.root().join("keys/harness.pub"));
    let starts = |what: &str| {
        let status = home.run(&["status"]);
        let listed = home.run(&["keys", "list"]);
        assert_eq!((code(&status), code(&listed)), (0, 0), "{what}: {}", text(&listed));
        ended(&home);
        assert_eq!(verify(&home).0, 0, "{what}: {}", verify(&home).1);
    };
    let put = |path: &Path, content: &[u8]| {
        std::fs::write(path, content).expect("written");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("closed");
    };
    starts("before");
    let (old_secrets, old_list) =
        (std::fs::read(&secrets).expect("reads"), std::fs::read(&list).expect("reads"));
    let database = std::fs::read(home.database()).expect("reads");
    done(&home.run(&["keys", "harness", "rotate", "--json"]));
    let new_secrets = std::fs::read(&secrets).expect("reads");
    let rotated = home.root().join("keys/harness.rotated");
    let new = public(&home, "harness")[0].clone();
    // The new key in the folder of keys, everything else as it was: what was kept beside the ledger says that it follows.
    put(&home.database(), &database);
    starts("an older database");
    // As it stood before the old key went: the new one is ready, and listed, and the ledger knows of it.
    let old: Value = serde_json::from_slice(&old_secrets).expect("JSON");
    let mut ready: Value = serde_json::from_slice(&new_secrets).expect("JSON");
    ready["keys"]["harness.next"] = ready["keys"]["harness"].clone();
    ready["keys"]["harness"] = old["keys"]["harness"].clone();
    put(&home.database(), &database);
    put(&secrets, ready.to_string().as_bytes());
    starts("the old key is still there");
    put(&list, &old_list);
    std::fs::remove_file(&rotated).expect("removed");
    starts("the new key is only made ready");
    let again = home.run(&["keys", "harness", "rotate"]);
    assert_eq!((code(&again), text(&again).trim().to_owned()), (0, new.clone()), "the one that was ready");
    starts("after it was taken up");
    assert_eq!(public(&home, "harness")[0], new);
}

/// Threat 25: somebody puts another key in the place of the harness's, and lists it. The engine does not start with it, and
/// a ledger that was signed again with it does not verify. The twin is a rotation.
#[test]
fn a_key_that_was_swapped_is_no_rotation() {
    let (home, other) = (Home::ready(), Home::ready());
    ended(&home);
    let secrets = home.root().join("keys/secrets.json");
    let mut swapped: Value = serde_json::from_slice(&std::fs::read(&secrets).expect("reads")).expect("JSON");
    let kept = swapped.clone();
    let strange: Value =
        serde_json::from_slice(&std::fs::read(other.root().join("keys/secrets.json")).expect("reads"))
            .expect("JSON");
    swapped["keys"]["harness"] = strange["keys"]["harness"].clone();
    let put = |content: &Value| {
        std::fs::write(&secrets, content.to_string()).expect("written");
        std::fs::set_permissions(&secrets, std::fs::Permissions::from_mode(0o600)).expect("closed");
    };
    put(&swapped);
    let list = home.root().join("keys/harness.pub");
    let listed = format!("{}\n{}\n", public(&other, "harness")[0], public(&home, "harness")[0]);
    std::fs::write(list, listed).expect("written");
    let refused = home.run(&["keys", "list"]);
    assert_ne!(code(&refused), 0);
    assert!(text(&refused).contains("another key"), "{}", text(&refused));
    put(&kept);
    assert_eq!(code(&home.run(&["keys", "list"])), 0);
}
