//! Agents as folders: approved, deployed, changed, retired, with real homes and their engines.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Output;

use ed25519_dalek::SigningKey;
use serde_json::{Value, json};
use writ_policy::keys::document::read_base;
use writ_policy::keys::{BaseClaims, mint_base};
use writ_store::store::Store;
use writ_types::id::KeyId;
use writ_types::unit::Timestamp;

use super::keys::soon;
use super::{Home, code, mode, text};

const REFUND: &str = r#"name = "refund-agent"
version = "1"
program = ["python3", "agent.py"]
policies = ["policy.md"]
max_cases = 4

[capabilities]
refund = { max_amount = 500 }
send_email = { templates = ["confirmation", "apology"] }
escalate_to = ["manager", "human"]

[limits]
time = 60
memory = 256
"#;
const POLICY: &str =
    "# Refunds\n\nLook first whether this order was refunded before. If so, do not refund it again.\n";

/// The folder with the program of a deployed agent, of which there is one version.
pub(super) fn program_of(home: &Path) -> PathBuf {
    let entries = fs::read_dir(home).expect("reads").map(|entry| entry.expect("an entry").path());
    let [program] =
        entries.filter(|path| !path.ends_with(".keys")).collect::<Vec<_>>().try_into().expect("one");
    program
}

/// A home, and a folder beside it for sources of agents.
struct Fleet {
    home: Home,
}

impl Fleet {
    fn new() -> Self {
        Self { home: Home::ready() }
    }

    fn source(&self, name: &str) -> PathBuf {
        self.home.dir.path().join(name)
    }

    /// Writes the sources of an agent.
    fn write(&self, name: &str, manifest: &str) -> String {
        let folder = self.source(name);
        fs::create_dir_all(&folder).expect("made");
        fs::write(folder.join("agent.toml"), manifest).expect("written");
        fs::write(folder.join("agent.py"), "print('ready')\n").expect("written");
        fs::write(folder.join("policy.md"), POLICY).expect("written");
        folder.to_str().expect("text").to_owned()
    }

    fn bless(&self, dir: &str) -> Output {
        self.home.run(&["agent", "bless", dir, "--yes", "--json"])
    }

    /// An approved and deployed refund agent.
    fn with_refunds(self) -> Self {
        let dir = self.write("refunds", REFUND);
        done(&self.bless(&dir));
        done(&self.home.run(&["agent", "deploy", &dir, "--json"]));
        self
    }

    fn deployed(&self, name: &str) -> PathBuf {
        self.home.root().join("agents").join(name)
    }

    fn base(&self, name: &str) -> String {
        self.deployed(name).join(".keys/base.jwt").to_str().expect("text").to_owned()
    }

    fn state(&self, name: &str) -> String {
        let listed = self.home.json(&["agent", "list"]);
        let row = listed["agents"].as_array().into_iter().flatten().find(|row| row["name"] == name);
        row.and_then(|row| row["state"].as_str()).unwrap_or("absent").to_owned()
    }

    /// Mints a task key over an agent's base key, and returns its answer and its file.
    fn task(&self, base: &str, name: &str) -> (Value, String) {
        let document = json!({ "task_id": name, "customer_token": "cust_tk_1", "case_token": "case_tk_1",
            "granted_by": "router", "expires": soon(1_700) });
        let (file, out) = (self.source(&format!("{name}.json")), self.source(name));
        fs::write(&file, document.to_string()).expect("written");
        let (file, out) = (file.to_str().expect("text"), out.to_str().expect("text"));
        let minted = self.home.run(&["keys", "task", "mint", file, "--base", base, "--out", out, "--json"]);
        (done(&minted), out.to_owned())
    }

    fn check(&self, keys: (&str, &str), operation: &str, parameter: &str) -> Output {
        let case = ["--set", "customer_token=cust_tk_1", "--set", "case_token=case_tk_1"];
        let named = ["keys", "check", operation, "--base", keys.0, "--task", keys.1];
        let case = if operation == "escalate_to" { &case[..0] } else { &case[..] };
        self.home.run(&[&named[..], case, &["--set", parameter]].concat())
    }

    /// The entries of a kind, as text.
    fn entries(&self, event: &str) -> String {
        text(&self.home.run(&["audit", "search", "--event", event, "-n", "1000", "--json"]))
    }
}

fn done(output: &Output) -> Value {
    assert_eq!(code(output), 0, "{}", text(output));
    serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
}

/// Asserts that a command failed with a code, and returns what it printed.
fn failed(output: &Output, name: &str) -> String {
    let said = text(output);
    assert_ne!(code(output), 0, "{said}");
    assert!(said.contains(&format!("\"{name}\"")), "{said}");
    said
}

fn token_of(path: &str) -> String {
    fs::read_to_string(path).expect("reads").trim().to_owned()
}

/// Rows: SLO-005 SLO-009 SLO-010
/// Rows: SLO-033 (in part: mode and owner)
#[test]
fn an_agent_is_approved_in_plain_words_and_deployed_with_its_key() {
    let fleet = Fleet::new();
    let dir = fleet.write("refunds", REFUND);
    // A second amount, which the key does not name.
    let operations = fleet.home.root().join("operations");
    fs::create_dir_all(&operations).expect("made");
    let refund = "name = \"refund\"\n[parameters]\namount = { role = \"amount\" }\nfee = { role = \"amount\" }\n\
                  [target.http]\napi = \"desk\"\nmethod = \"POST\"\npath = \"/refund\"\n\
                  body = { amount = \"{amount}\", fee = \"{fee}\", customer = \"{customer}\" }\n";
    fs::write(operations.join("refund.toml"), refund).expect("written");
    let shown = fleet.home.run(&["agent", "bless", &dir, "--json"]);
    assert_eq!(code(&shown), 10, "no person can be asked: {}", text(&shown));
    let words = failed(&shown, "agent.no_terminal");
    for line in [
        "agent refund-agent version 1",
        "runs: python3 agent.py",
        "may refund: amount 1 to 500 each time",
        "refund: 'fee' is not bounded, so the proxy refuses it",
        "may send_email: template only apology or confirmation",
        "may give a case to: human, manager",
        "may ask the models of this home: without a limit",
        "policies, which it can read and not change: policy.md",
        "60 s to run, 256 MiB of memory",
    ] {
        assert!(words.contains(line), "{line} in {words}");
    }
    assert!(!PathBuf::from(&dir).join(".keys").exists(), "nothing was signed");

    failed(&fleet.home.run(&["agent", "deploy", &dir, "--json"]), "agent.no_key");
    let blessed = done(&fleet.bless(&dir));
    let key_file = PathBuf::from(&dir).join(".keys/base.jwt");
    assert_eq!((mode(&key_file), &blessed["new"]), (0o600, &json!(true)));
    let claims = fleet.home.json(&["keys", "inspect", key_file.to_str().expect("text")]);
    assert_eq!((&claims["agent"], &claims["role"]), (&json!("refund-agent"), &json!("base")));
    assert_eq!(claims["policy"], blessed["folder"], "the key is bound to the folder's digest");
    assert_eq!(claims["grants"]["limits"]["refund"]["amount"]["max"], 500);

    done(&fleet.home.run(&["agent", "deploy", &dir, "--json"]));
    let home = fleet.deployed("refund-agent");
    let deployed = home.join(".keys/base.jwt");
    assert_eq!(mode(&deployed), 0o600);
    assert_eq!(deployed.metadata().expect("there").uid(), fleet.home.root().metadata().expect("there").uid());
    assert_eq!(token_of(deployed.to_str().expect("text")), token_of(key_file.to_str().expect("text")));
    let program = program_of(&home);
    assert_eq!(program, home.join(blessed["folder"].as_str().expect("a digest")));
    assert_eq!(fs::read_to_string(program.join("policy.md")).expect("reads"), POLICY);
    assert!(!program.join(".keys").exists(), "the agent sees its folder, and no key in it");
    assert_eq!(fleet.state("refund-agent"), "ok");

    let inspected = fleet.home.json(&["agent", "inspect", "refund-agent"]);
    assert_eq!((&inspected["folder"], &inspected["key"]), (&blessed["folder"], &blessed["key"]));
    assert_eq!(inspected["approved"]["by"], "owner");
    let history = fleet.home.json(&["agent", "history", "refund-agent"]);
    let changes: Vec<&Value> =
        history["history"].as_array().into_iter().flatten().map(|entry| &entry["change"]).collect();
    assert_eq!(changes, ["blessed", "deployed"]);
    let recorded = fleet.entries("agent_moved");
    for said in [&blessed["folder"], &blessed["hash"], &blessed["key"]] {
        assert!(recorded.contains(said.as_str().expect("text")), "{said} in {recorded}");
    }
    let exported = text(&fleet.home.run(&["audit", "export"]));
    assert!(!exported.contains(&token_of(deployed.to_str().expect("text"))), "no key is in the ledger");
    assert_eq!(code(&fleet.home.run(&["audit", "verify"])), 0);
}

/// Rows: SLO-010
/// Rows: SLO-011 (in part: a changed folder)
#[test]
fn a_version_keeps_its_key_and_a_changed_folder_needs_another_version() {
    let fleet = Fleet::new().with_refunds();
    let dir = fleet.source("refunds").to_str().expect("text").to_owned();
    let first = done(&fleet.bless(&dir));
    assert_eq!(first["new"], false);
    fs::remove_dir_all(fleet.source("refunds").join(".keys")).expect("removed");
    let again = done(&fleet.bless(&dir));
    assert_eq!((&again["key"], &again["new"]), (&first["key"], &json!(false)), "from where it is deployed");
    let tasks =
        ["monday", "next-monday"].map(|name| fleet.task(&fleet.base("refund-agent"), name).0["base"].clone());
    assert_eq!(tasks, [first["key"].clone(), first["key"].clone()], "both tasks rest on one base key");

    fs::write(fleet.source("refunds").join("policy.md"), "Refund whatever is asked for.\n").expect("written");
    failed(&fleet.home.run(&["agent", "deploy", &dir, "--json"]), "agent.changed");
    let said = failed(&fleet.bless(&dir), "agent.version");
    assert!(said.contains("raise `version`"), "{said}");
    fs::write(fleet.source("refunds").join("agent.toml"), REFUND.replace("\"1\"", "\"2\"")).expect("written");
    let second = done(&fleet.bless(&dir));
    assert_ne!(second["key"], first["key"]);
    let monday = fleet.source("monday").to_str().expect("text").to_owned();
    let earlier = fleet.source("earlier.key").to_str().expect("text").to_owned();
    fs::copy(fleet.base("refund-agent"), &earlier).expect("copied");
    done(&fleet.home.run(&["agent", "deploy", &dir, "--json"]));
    assert_eq!(code(&fleet.check((&earlier, &monday), "refund", "amount=1")), 0, "its cases go on");
    let last = fleet.home.run(&["agent", "deploy", &dir, "--revoke-earlier", "--json"]);
    let last = done(&last);
    assert_eq!((&last["revoked"], &last["tasks"]), (&json!([first["key"]]), &json!(2)));
    assert_eq!(code(&fleet.check((&earlier, &monday), "refund", "amount=1")), 4);
    assert_eq!(fleet.home.json(&["agent", "list"])["agents"][0]["version"], "2");
}

/// Rows: SLO-010
#[test]
fn a_key_that_no_person_has_approved_deploys_nothing() {
    let fleet = Fleet::new();
    let dir = fleet.write("refunds", REFUND);
    let blessed = done(&fleet.bless(&dir));
    let document = json!({ "agent": "refund-agent", "expires": soon(86_400),
        "capabilities": { "refund": { "max_amount": 1_000_000 } } });
    let said = read_base(document.clone()).expect("a document");
    let keys: Value =
        serde_json::from_slice(&fs::read(fleet.home.root().join("keys/secrets.json")).expect("reads"))
            .expect("JSON");
    let seed = hex::decode(keys["keys"]["root"].as_str().expect("a key")).expect("hexadecimal");
    let root = SigningKey::from_bytes(&seed.try_into().expect("32 bytes"));
    let store = Store::open_read_only(&fleet.home.database(), [0; 32]).expect("opens");
    let claims = BaseClaims {
        key: KeyId::from_parts(Timestamp::from_millis(1), 1),
        installation: store.installation(),
        epoch: store.blocking().epoch().expect("reads"),
        agent: "refund-agent".into(),
        policy: blessed["folder"].as_str().expect("text").parse().expect("a digest"),
        expires_at: said.expires,
        grants: said.grants,
    };
    drop(store);
    let forged = String::from(mint_base(&claims, &root).expect("signed"));
    let key_file = PathBuf::from(&dir).join(".keys/base.jwt");
    fs::write(&key_file, format!("{forged}\n")).expect("written");
    let said = failed(&fleet.home.run(&["agent", "deploy", &dir, "--json"]), "key.refused");
    assert!(said.contains("no person has approved this key"), "{said}");
    assert!(fleet.entries("denied").contains("no person has approved this key"));

    // One that its owner has issued by hand is for no folder.
    let (file, out) = (fleet.source("base.json"), fleet.source("issued.key"));
    fs::write(&file, document.to_string()).expect("written");
    let (file, out) = (file.to_str().expect("text"), out.to_str().expect("text"));
    done(&fleet.home.run(&["keys", "base", "issue", file, "--out", out]));
    fs::copy(out, &key_file).expect("copied");
    failed(&fleet.home.run(&["agent", "deploy", &dir, "--json"]), "agent.changed");
    assert_eq!(fleet.state("refund-agent"), "absent");
}

/// Rows: SLO-006 SLO-007 SLO-012
/// Rows: SLO-008 (in part: the key)
#[test]
fn what_a_person_approved_is_what_the_keys_grant() {
    let fleet = Fleet::new().with_refunds();
    let support = fleet.write(
        "support",
        "name = \"support-agent\"\nversion = \"1\"\nprogram = [\"sh\", \"agent.sh\"]\n[capabilities]\n\
         send_email = { templates = [\"confirmation\"] }\n",
    );
    done(&fleet.bless(&support));
    done(&fleet.home.run(&["agent", "deploy", &support, "--json"]));
    let [refunds, support] = ["refund-agent", "support-agent"].map(|name| {
        let base = fleet.base(name);
        let task = fleet.task(&base, &format!("{name}-task")).1;
        (base, task)
    });
    for (keys, operation, parameter, granted) in [
        (&refunds, "refund", "amount=499", true),
        (&refunds, "refund", "amount=500", true),
        (&refunds, "refund", "amount=501", false),
        (&refunds, "send_email", "template=apology", true),
        (&refunds, "send_email", "template=promo", false),
        (&refunds, "send_email", "text=anything", false),
        (&refunds, "escalate_to", "to=manager", true),
        (&refunds, "escalate_to", "to=admin", false),
        (&support, "send_email", "template=confirmation", true),
        (&support, "send_email", "template=apology", false),
        (&support, "refund", "amount=1", false),
        (&support, "escalate_to", "to=manager", false),
    ] {
        let output = fleet.check((&keys.0, &keys.1), operation, parameter);
        assert_eq!(code(&output), if granted { 0 } else { 4 }, "{operation} {parameter}: {}", text(&output));
    }
}

/// Rows: SLO-033 (a wider mode makes the start fail; a changed folder does not start)
/// Rows: SIL-006 (in part: of the folders of agents, which are bound to the digest that a person has approved)
#[test]
fn a_deployed_agent_that_was_changed_or_whose_key_is_open_to_others_is_not_started() {
    let fleet = Fleet::new().with_refunds();
    let key = PathBuf::from(fleet.base("refund-agent"));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).expect("opened");
    assert_eq!(fleet.state("refund-agent"), "unusable");
    let said = text(&fleet.home.run(&["agent", "inspect", "refund-agent"]));
    assert!(said.contains("mode 640") && said.contains("chmod 600"), "{said}");
    let task = key.to_str().expect("text");
    let run = fleet.home.run(&["run", "--base", task, "--task", task, "--json", "--", "true"]);
    assert_ne!(code(&run), 0, "{}", text(&run));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("closed");
    assert_eq!(fleet.state("refund-agent"), "ok");

    let program = program_of(&fleet.deployed("refund-agent")).join("agent.py");
    let before = fs::read(&program).expect("reads");
    fs::write(&program, "import os\n").expect("written");
    assert_eq!(fleet.state("refund-agent"), "changed");
    fs::write(&program, before).expect("written");
    assert_eq!(fleet.state("refund-agent"), "ok");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a program");
    assert_eq!(fleet.state("refund-agent"), "changed", "what can be executed is part of the digest");
    fs::remove_file(&key).expect("removed");
    assert_eq!(fleet.state("refund-agent"), "unusable");
}

#[test]
fn a_retired_agent_is_gone_and_its_keys_are_dead() {
    let fleet = Fleet::new().with_refunds();
    let key = fleet.source("saved.key").to_str().expect("text").to_owned();
    fs::copy(fleet.base("refund-agent"), &key).expect("copied");
    let (_, task) = fleet.task(&key, "task");
    assert_eq!(code(&fleet.check((&key, &task), "refund", "amount=1")), 0);
    for name in ["../keys", "", ".lock", "no-such-agent"] {
        failed(&fleet.home.run(&["agent", "retire", name, "--json"]), "agent.not_deployed");
        failed(&fleet.home.run(&["agent", "inspect", name, "--json"]), "agent.not_deployed");
    }
    let retired =
        done(&fleet.home.run(&["agent", "retire", "refund-agent", "--reason", "replaced", "--json"]));
    assert_eq!((retired["revoked"].as_array().map(Vec::len), &retired["removed"]), (Some(1), &json!(true)));
    assert_eq!(retired["tasks"], 1);
    assert_eq!(code(&fleet.check((&key, &task), "refund", "amount=1")), 4);
    assert_eq!(
        (fleet.state("refund-agent").as_str(), fleet.deployed("refund-agent").exists()),
        ("absent", false)
    );
    let history = text(&fleet.home.run(&["agent", "history"]));
    assert!(history.contains("retired by owner: replaced"), "{history}");
    let dir = fleet.source("refunds").to_str().expect("text").to_owned();
    failed(&fleet.bless(&dir), "agent.revoked");
    failed(&fleet.home.run(&["agent", "deploy", &dir, "--json"]), "key.refused");
}

/// The key of a deployed agent is its owner's alone: another agent that runs finds it nowhere, and one that others may read
/// starts no agent.
///
/// Rows: SLO-033
#[test]
fn needs_userns_the_key_of_an_agent_is_closed_to_every_other_one() {
    let mut fleet = Fleet::new().with_refunds();
    let other = fleet.write("support", &REFUND.replace("refund-agent", "support-agent"));
    done(&fleet.bless(&other));
    done(&fleet.home.run(&["agent", "deploy", &other, "--json"]));
    let (_, task) = fleet.task(&fleet.base("support-agent"), "task");
    super::engine::stop_engine_of(&fleet.home);
    fleet.home = fleet.home.in_processes();
    let owner = fleet.home.root().metadata().expect("there").uid();
    for name in ["refund-agent", "support-agent"] {
        let key = PathBuf::from(fleet.base(name));
        assert_eq!((mode(&key), key.metadata().expect("there").uid()), (0o600, owner), "{name}");
    }
    let socket = fleet.source("proxy.sock");
    let _listener = UnixListener::bind(&socket).expect("bound");
    let work = program_of(&fleet.deployed("support-agent"));
    let (key, base) = (fleet.base("refund-agent"), fleet.base("support-agent"));
    let folder = fleet.deployed("refund-agent").to_str().expect("text").to_owned();
    // Its twin: what it does see, so that a shell that fails at everything shows nothing.
    let script =
        format!("cat policy.md; cat '{key}' '/work/../{key}' '{base}'; ls -a '{folder}'; echo reached");
    let path = |path: &PathBuf| path.to_str().expect("text").to_owned();
    let run = |base: &str| {
        let (socket, work) = (path(&socket), path(&work));
        let keys = ["run", "--base", base, "--task", &task];
        let places = ["--proxy-socket", &socket, "--folder", &work, "--", "sh", "-c", &script];
        fleet.home.run(&[&keys[..], &places].concat())
    };
    let said = text(&run(&base));
    assert!(said.contains("Look first whether") && said.contains("reached"), "{said}");
    assert_eq!(said.matches(".keys/base.jwt").count(), 3, "each of the three is refused: {said}");
    for name in ["refund-agent", "support-agent"] {
        assert!(!said.contains(&token_of(&fleet.base(name))), "no key is shown");
    }
    assert!(!said.contains("agent.py"), "nor what lies in the other's folder: {said}");
    fs::set_permissions(&base, fs::Permissions::from_mode(0o640)).expect("opened");
    let refused = run(&base);
    assert_eq!(code(&refused), 3, "{}", text(&refused));
    assert!(text(&refused).contains("mode 640") && !text(&refused).contains("reached"), "{}", text(&refused));
}

/// Rows: SLO-029 (the policy is in the folder, and reaches the agent, which cannot change it)
#[test]
fn needs_userns_a_locked_agent_reads_its_policies_and_finds_no_key() {
    let mut fleet = Fleet::new().with_refunds();
    let (_, task) = fleet.task(&fleet.base("refund-agent"), "task");
    super::engine::stop_engine_of(&fleet.home);
    fleet.home = fleet.home.in_processes();
    let socket = fleet.source("proxy.sock");
    let _listener = UnixListener::bind(&socket).expect("bound");
    let work = program_of(&fleet.deployed("refund-agent"));
    let script = "cat policy.md; echo more >> policy.md; ls -a /work /work/.. | tr '\\n' ' '; cat /work/.keys/base.jwt";
    let (base, path) = (fleet.base("refund-agent"), |path: &PathBuf| path.to_str().expect("text").to_owned());
    let output = fleet.home.run(&[
        "run",
        "--base",
        &base,
        "--task",
        &task,
        "--proxy-socket",
        &path(&socket),
        "--folder",
        &path(&work),
        "--",
        "sh",
        "-c",
        script,
    ]);
    let said = text(&output);
    assert!(said.contains("Look first whether this order was refunded before"), "{said}");
    assert!(said.contains("agent.py") && !said.contains(".keys "), "{said}");
    assert!(!said.contains(&token_of(&base)), "no key is shown");
    // The folder that was approved holds the key, also where a copy of it is the one that is named.
    let source = fleet.source("refunds");
    let (source, socket) = (source.to_str().expect("text"), path(&socket));
    let keys = ["run", "--base", &base, "--task", &task, "--proxy-socket", &socket];
    let refused = fleet
        .home
        .run(&[&keys[..], &["--folder", source, "--", "sh", "-c", "cat /work/.keys/base.jwt"]].concat());
    assert_eq!(code(&refused), 2, "{}", text(&refused));
    assert!(
        text(&refused).contains("would show the agent") && text(&refused).contains(".keys"),
        "{}",
        text(&refused)
    );
    // Neither is it shown with the folders of all agents, nor as a copy under another name.
    let (agents, copies) = (fleet.home.dir.path().join("several"), fleet.home.dir.path().join("copies"));
    fs::create_dir_all(agents.join("other/.keys")).expect("folders");
    fs::create_dir_all(copies.join("data")).expect("folders");
    fs::copy(&base, copies.join("data/notes.txt")).expect("copied");
    for (folder, inside) in [(&agents, "other/.keys"), (&copies, "data/notes.txt")] {
        let refused = fleet.home.run(&[&keys[..], &["--folder", &path(folder), "--", "true"]].concat());
        let said = text(&refused);
        assert!(said.contains("would show the agent") && said.contains(inside), "{said}");
        assert_eq!(code(&refused), 2, "{said}");
    }
    assert_eq!(fs::read_to_string(work.join("policy.md")).expect("reads"), POLICY);
}
