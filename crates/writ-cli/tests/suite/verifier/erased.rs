//! What is erased on the way that people have: gone from what the ledger says, and proven all the same.

use std::path::Path;

use writ_sandbox::host::host_git;

use super::*;
use crate::engine::Engine;

/// Every export, proof and verification of a home, by its own program and by another.
fn verifies(home: &Home, erased: usize) {
    let (key, export) = (key_file(home), home.dir.path().join("export.jsonl"));
    let rows = exported(home);
    std::fs::write(&export, &rows).expect("written");
    let verified = Verdict::verify(&[path(&export), "--key", path(&key)]);
    assert!(verified.code == 0 && verified.said.contains(&format!("erased {erased}")), "{}", verified.said);
    let own = home.json(&["audit", "verify", "--every-signature"]);
    assert_eq!(
        (own["erased"].as_u64(), own["problem"].is_null()),
        (u64::try_from(erased).ok(), true),
        "{own}"
    );
}

#[test]
fn needs_userns_needs_python_what_the_owner_erases_is_gone_and_everything_still_verifies() {
    let bench = worked();
    let home = &bench.home;
    let asked = bench.events("received").last().and_then(|row| row["seq"].as_u64()).expect("an entry");
    assert!(exported(home).contains("plant the quince"));
    let erased = home.run(&["audit", "erase", &asked.to_string(), "--reason", "private"]);
    assert_eq!(code(&erased), 0, "{}", text(&erased));
    stop_engine_of(home);
    let rows = exported(home);
    assert!(!rows.contains("plant the quince"), "{rows}");
    verifies(home, 1);
    let proof = home.dir.path().join("proof.json");
    std::fs::write(&proof, home.run(&["audit", "proof", &asked.to_string()]).stdout).expect("written");
    let proven = Verdict::verify(&["--proof", path(&proof), "--key", path(&key_file(home))]);
    assert!(proven.code == 0 && proven.said.contains("its payload was erased"), "{}", proven.said);
    let told = bench.events("erased").remove(0);
    let expected =
        json!({ "event": "erased", "by": "owner", "reason": "private", "entries": [[asked, asked]] });
    assert_eq!(told["payload"], expected);
    // Once, with a reason, what is there, and not what says what was erased.
    let erase = |entry: &str, reason: &str| code(&home.run(&["audit", "erase", entry, "--reason", reason]));
    assert_eq!(erase(&asked.to_string(), "again"), 4);
    assert_eq!((erase("0", " "), erase("99999", "x")), (2, 2));
    assert_eq!(erase(&told["seq"].to_string(), "hide it"), 4);
    verifies(home, 1);
}

#[test]
fn needs_userns_what_a_card_needs_is_refused_with_what_to_do() {
    let script = calls(vec![("file_write", json!({"path": "b.txt", "content": "new\n"}))], "Done.");
    let bench = Bench::new("anthropic", script);
    assert_eq!(code(&bench.chat("work", &[])), 5);
    let asked = bench.events("asked").remove(0)["seq"].to_string();
    let erase = || bench.home.run(&["audit", "erase", &asked, "--reason", "tidy", "--json"]);
    let refused = erase();
    let told: Value = serde_json::from_slice(&refused.stderr).expect("JSON");
    assert_eq!((code(&refused), &told["error"]["code"]), (4, &json!("ledger.needed")), "{told}");
    assert!(told["error"]["hint"].as_str().is_some_and(|hint| hint.contains("answer it first")), "{told}");
    assert_eq!(code(&bench.home.run(&["approvals", "approve", &bench.ask(), "--yes"])), 0);
    assert_eq!(code(&erase()), 0, "twin: it was answered");
    assert_eq!(code(&bench.home.run(&["audit", "verify"])), 0);
}

#[test]
fn needs_python_old_payloads_go_by_themselves_and_what_is_left_verifies() {
    let Sealed { home, .. } = Sealed::new();
    assert!(exported(&home).contains("entry 299"));
    let home = home.with("WRIT_LEDGER__RETENTION_DAYS", "30");
    let engine = Engine::start(&home, &[]).expect("starts");
    assert_eq!(engine.stop().code, Some(0));
    let rows = exported(&home);
    assert!(!rows.contains("entry 298") && !rows.contains("entry 1\""), "all are years old");
    // All but the first, which is of today, and one that was erased before.
    verifies(&home, ENTRIES - 1);
    let kept = exported(&home).lines().filter(|line| line.contains("\"erased\":null")).count();
    assert!(kept >= 2, "what is young is kept, and what says what was erased");
}

/// The newest size in a file of heads.
fn copied(file: &Path) -> Vec<u64> {
    let text = std::fs::read_to_string(file).expect("reads");
    text.lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["size"].as_u64().expect("a size"))
        .collect()
}

#[test]
fn needs_git_copied_heads_name_an_older_copy_that_its_own_key_has_signed() {
    let home = Home::ready();
    let away = tempfile::tempdir().expect("temp dir");
    let (file, repository) = (away.path().join("heads.jsonl"), away.path().join("repository"));
    std::fs::create_dir(&repository).expect("made");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let git = |args: &[&str]| {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let done = runtime.block_on(host_git(&repository, &args)).expect("git runs");
        assert_eq!(done.code, 0, "{}", done.stderr);
        String::from_utf8(done.stdout).expect("UTF-8")
    };
    git(&["init", "--quiet"]);
    let home = home
        .with("WRIT_LEDGER__HEADS_FILE", path(&file))
        .with("WRIT_LEDGER__HEADS_REPOSITORY", path(&repository));
    let remember = |text: &str| {
        let done = home.run(&["memory", "add", text]);
        assert_eq!(code(&done), 0, "{}", self::text(&done));
        stop_engine_of(&home);
    };
    remember("one");
    let old = std::fs::read(home.database()).expect("reads");
    remember("two");
    remember("three");
    let (file_sizes, kept_sizes) = (copied(&file), copied(&repository.join("writ-heads.jsonl")));
    assert!(file_sizes.is_sorted() && file_sizes.len() >= 3, "{file_sizes:?}");
    assert_eq!(file_sizes, kept_sizes);
    assert_eq!(git(&["log", "--format=%s"]).lines().count(), kept_sizes.len());
    let good = home.json(&["audit", "verify"]);
    assert_eq!(
        good["held"].as_u64(),
        u64::try_from(file_sizes.len()).ok(),
        "compared without being asked: {good}"
    );
    // The database of some time ago, whole and signed, in the place of the present one.
    std::fs::write(home.database(), old).expect("written");
    let alone = home.run(&["audit", "verify", "--db", path(&home.database())]);
    assert_eq!(code(&alone), 0, "by itself it is good: {}", text(&alone));
    for heads in [&file, &repository.join("writ-heads.jsonl")] {
        let caught = home.run(&["audit", "verify", "--heads", path(heads)]);
        assert_eq!(code(&caught), 9, "{}", text(&caught));
    }
    // It works on, and what was copied still tells.
    remember("another history");
    let caught = home.run(&["audit", "verify", "--json"]);
    assert_eq!(code(&caught), 9, "{}", text(&caught));
    assert!(copied(&file).starts_with(&file_sizes), "nothing that was copied is lost");
    let said = std::fs::read_to_string(home.root().join("logs/writ.jsonl")).expect("reads");
    assert!(said.contains("is this an older copy of the database?"), "{said}");
}

#[test]
fn heads_that_cannot_be_copied_are_in_the_log_and_stop_nothing() {
    let home = Home::ready().with("WRIT_LEDGER__HEADS_FILE", "/proc/nowhere/heads");
    assert_eq!(code(&home.run(&["memory", "add", "one"])), 0);
    stop_engine_of(&home);
    let said = std::fs::read_to_string(home.root().join("logs/writ.jsonl")).expect("reads");
    assert!(said.contains("a head of the ledger could not be copied"), "{said}");
}
