//! Keys that are given out, exchanged and taken back, by their commands.

use std::path::PathBuf;
use std::process::Output;

use serde_json::{Value, json};

use crate::engine::{Engine, Link};
use crate::{Home, code, mode, text};

#[path = "keys/orders.rs"]
mod orders;

#[path = "keys/restored.rs"]
mod restored;

#[path = "keys/rotation.rs"]
mod rotation;

/// A time so many seconds from now, as documents have it.
pub(super) fn soon(seconds: u64) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let millis =
        i64::try_from(now.as_millis()).expect("small") + i64::try_from(seconds * 1_000).expect("small");
    writ_types::unit::Timestamp::from_millis(millis).to_string()
}

struct Keys {
    home: Home,
}

impl Keys {
    fn new() -> Self {
        Self { home: Home::ready() }
    }

    fn path(&self, name: &str) -> String {
        self.home.dir.path().join(name).to_str().expect("text").to_owned()
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        std::fs::write(self.path(name), content).expect("written");
        self.path(name)
    }

    fn base(&self, name: &str, capabilities: Value) -> Output {
        let document =
            json!({ "agent": "refund-agent", "capabilities": capabilities, "expires": soon(86_400) });
        let file = self.write(&format!("{name}.json"), document.to_string());
        self.home.run(&["keys", "base", "issue", &file, "--out", &self.path(name), "--json"])
    }

    fn task(&self, base: &str, name: &str, case: &str) -> Output {
        let document = json!({ "task_id": "chat-session-abc123", "customer_token": "cust_tk_789xyz",
            "case_token": case, "granted_by": "router", "expires": soon(1_700) });
        let file = self.write(&format!("{name}.json"), document.to_string());
        let (base, out) = (self.path(base), self.path(name));
        self.home.run(&["keys", "task", "mint", &file, "--base", &base, "--out", &out, "--json"])
    }

    /// A base key `base` of the refund agent, and a task key `task` over it.
    fn with_both(self) -> Self {
        let limits = json!({ "refund": { "max_amount": 500 }, "escalate_to": ["manager"] });
        done(&self.base("base", limits));
        done(&self.task("base", "task", "case_tk_456def"));
        self
    }

    fn refund(&self, base: &str, task: &str, amount: i64) -> Output {
        let amount = format!("amount={amount}");
        let (base, task) = (self.path(base), self.path(task));
        self.home.run(&[
            "keys",
            "check",
            "refund",
            "--base",
            &base,
            "--task",
            &task,
            "--set",
            &amount,
            "--set",
            "customer_token=cust_tk_789xyz",
            "--set",
            "case_token=case_tk_456def",
        ])
    }
}

/// Ends the engine that a command has started.
fn ended(home: &Home) {
    crate::engine::stop_engine_of(home);
}

fn done(output: &Output) -> Value {
    assert_eq!(code(output), 0, "{}", text(output));
    serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
}

fn refused(output: &Output) -> String {
    assert_eq!(code(output), 4, "{}", text(output));
    text(output)
}

/// The entries of a kind, as text.
fn entries(home: &Home, event: &str) -> Vec<String> {
    let found = home.run(&["audit", "search", "--event", event, "-n", "1000", "--json"]);
    String::from_utf8_lossy(&found.stdout).lines().map(str::to_owned).collect()
}

/// Threats 7 and 8 through the commands: a base key is issued, task keys are minted over it, and together they grant what they say.
///
/// Rows: SLO-040 (in part: its owner mints it, of tokens that are given)
/// Rows: SLO-003 SLO-019 SLO-054
#[test]
fn two_keys_grant_what_they_say_and_one_grants_nothing() {
    let keys = Keys::new().with_both();
    assert_eq!(mode(&PathBuf::from(keys.path("base"))), 0o600);
    let (good, bad) = ([500, 1], [501, 0, -1, i64::MAX]);
    for amount in good {
        done(&keys.refund("base", "task", amount));
    }
    for amount in bad {
        assert!(refused(&keys.refund("base", "task", amount)).contains("amount"), "{amount}");
    }
    println!("THREAT 8 attempts={0} refused={0} entries=0 entry=- twins={1}", bad.len(), good.len());
    let check = |operation: &str, more: &[&str]| {
        let (base, task) = (keys.path("base"), keys.path("task"));
        keys.home.run(&[&["keys", "check", operation, "--base", &base, "--task", &task], more].concat())
    };
    done(&check("escalate_to", &["--set", "to=manager"]));
    assert!(refused(&check("escalate_to", &["--set", "to=admin"])).contains("admin"));
    let other =
        ["--set", "amount=5", "--set", "customer_token=cust_tk_789xyz", "--set", "case_token=case_tk_other"];
    assert!(refused(&check("refund", &other)).contains("case"));

    // One alone, and two that do not belong together.
    done(&keys.base("base2", json!({ "refund": { "max_amount": 900 } })));
    done(&keys.task("base2", "task2", "case_tk_456def"));
    let mixed = [
        ("base", "task2", "another base key"),
        ("base2", "task", "another base key"),
        ("base", "base", "does not belong there"),
        ("task", "task", "does not belong there"),
    ];
    let narrow = keys.write("narrow.toml", "[capabilities]\nrefund = { max_amount = 50 }\n");
    let copied = |base: &str, task: &str| {
        let (base, task) = (keys.path(base), keys.path(task));
        keys.home.run(&["keys", "task", "attenuate", &task, &narrow, "--base", &base])
    };
    for (base, task, why) in mixed {
        assert!(refused(&keys.refund(base, task, 5)).contains(why), "{base} and {task}");
        // Where something would come of it, the try is on record.
        assert!(refused(&copied(base, task)).contains(why), "{base} and {task}");
    }
    done(&keys.refund("base2", "task2", 900));
    assert_eq!(code(&copied("base2", "task2")), 0);
    let denied = entries(&keys.home, "denied").len();
    println!("THREAT 7 attempts={0} refused={0} entries={denied} entry=denied twins=2", 2 * mixed.len());
    assert_eq!(denied, mixed.len(), "each is an entry");

    // The ledger knows of each, by hash; of none as it is.
    let keyed = entries(&keys.home, "keyed").concat();
    for (name, change) in [("base", "issued"), ("task", "minted")] {
        let token = std::fs::read_to_string(keys.path(name)).expect("reads");
        assert!(keyed.contains(change) && !keyed.contains(token.trim()), "{name}");
    }
    for part in ["refund-agent", "cust_tk_789xyz", "case_tk_456def", "by router", "sha256"] {
        assert!(keyed.contains(part), "{part}: {keyed}");
    }
}

/// Rows: SLO-018 SLO-047
#[test]
fn what_is_revoked_grants_nothing_and_neither_do_its_copies() {
    let keys = Keys::new().with_both();
    let (base, task) = (keys.path("base"), keys.path("task"));
    let narrow = keys.write("narrow.toml", "[capabilities]\nrefund = { max_amount = 50 }\n");
    let out = keys.path("copy");
    done(&keys.home.run(&[
        "keys",
        "task",
        "attenuate",
        &task,
        &narrow,
        "--base",
        &base,
        "--out",
        &out,
        "--json",
    ]));
    done(&keys.refund("base", "copy", 50));
    assert!(refused(&keys.refund("base", "copy", 51)).contains("amount"));
    let wider = keys.write("wider.toml", "[capabilities]\nrefund = { max_amount = 600 }\n");
    let wide = keys.home.run(&["keys", "task", "attenuate", &task, &wider, "--base", &base]);
    assert!(refused(&wide).contains("would exceed"), "{}", text(&wide));
    // A sealed copy proves the same.
    done(&keys.home.run(&["keys", "seal", &task, "--out", &keys.path("sealed"), "--json"]));
    done(&keys.refund("base", "sealed", 50));
    let again = keys.home.run(&[
        "keys",
        "task",
        "renew",
        &task,
        "--base",
        &base,
        "--out",
        &keys.path("renewed"),
        "--json",
    ]);
    let renewed = done(&again)["key"].as_str().expect("an id").to_owned();
    let shown = keys.home.json(&["keys", "inspect", &task]);
    let id = shown["key"].as_str().expect("an id").to_owned();
    assert_ne!(id, renewed);
    assert_eq!((&shown["case"]["case_token"], &shown["revoked"]), (&json!("case_tk_456def"), &json!(false)));

    done(&keys.home.run(&["keys", "revoke", &id, "--reason", "it misbehaves", "--json"]));
    for name in ["task", "copy", "sealed"] {
        assert!(refused(&keys.refund("base", name, 5)).contains("revoked"), "{name}");
    }
    let copied = |task: &str| {
        let task = keys.path(task);
        keys.home.run(&["keys", "task", "attenuate", &task, &narrow, "--base", &base, "--json"])
    };
    assert!(refused(&copied("task")).contains("revoked"), "nothing is made of it");
    assert!(entries(&keys.home, "denied").concat().contains("revoked"), "and the try is an entry");
    done(&copied("renewed"));
    done(&keys.refund("base", "renewed", 5));
    // Another engine has the same list.
    ended(&keys.home);
    for name in ["task", "copy", "sealed"] {
        assert!(refused(&copied(name)).contains("revoked"), "{name}");
        assert!(refused(&keys.refund("base", name, 5)).contains("revoked"), "{name}");
    }
    done(&copied("renewed"));
    done(&keys.refund("base", "renewed", 5));
    let listed = keys.home.json(&["keys", "list"])["issued"].clone();
    let of = |id: &str| listed.as_array().expect("a list").iter().find(|key| key["key"] == id).cloned();
    assert_eq!(of(&id).expect("listed")["revoked"], true);
    // The base key's end is everybody's.
    let base_id = keys.home.json(&["keys", "inspect", &base])["key"].as_str().expect("an id").to_owned();
    done(&keys.home.run(&["keys", "revoke", &base_id, "--json"]));
    assert!(refused(&keys.refund("base", "renewed", 5)).contains("revoked"));
    assert!(refused(&keys.task("base", "late", "case_tk_1")).contains("revoked"));
}

/// Threat 6: keys of another home, cut, damaged, oversized. Documents that no key may be made of.
#[test]
fn foreign_and_damaged_keys_are_refused_and_leave_entries() {
    let (keys, other) = (Keys::new().with_both(), Keys::new().with_both());
    let copy = |from: &str, name: &str| {
        let content = std::fs::read(other.path(from)).expect("reads");
        keys.write(name, content)
    };
    copy("base", "foreign-base");
    copy("task", "foreign-task");
    assert!(
        refused(&keys.refund("foreign-base", "foreign-task", 5)).contains("not signed by this installation")
    );
    assert!(
        refused(&keys.task("foreign-base", "never", "case_tk_1")).contains("not signed by this installation")
    );
    let denied = entries(&keys.home, "denied").concat();
    assert!(denied.contains("not signed by this installation") && denied.contains("task key"), "{denied}");
    let whole = std::fs::read_to_string(keys.path("task")).expect("reads");
    for (name, content) in [
        ("cut", whole[..whole.len() / 2].to_owned()),
        ("empty", String::new()),
        ("none", "this is no key".to_owned()),
        ("huge", "A".repeat(1 << 20)),
    ] {
        keys.write(name, content);
        refused(&keys.refund("base", name, 5));
    }
    let issue = |document: Value| {
        let file = keys.write("document.json", document.to_string());
        keys.home.run(&["keys", "base", "issue", &file])
    };
    let good = json!({ "agent": "a", "capabilities": {}, "expires": soon(60) });
    for (name, value) in [
        ("expires", json!("2024-12-31T00:00:00Z")),
        ("agent", json!("two words")),
        ("capabilities", json!({ "refund": { "maximum": 5 } })),
        ("also", json!(1)),
    ] {
        let mut bad = good.clone();
        bad[name] = value;
        assert_eq!(code(&issue(bad)), 2, "{name}");
    }
    assert_eq!(code(&issue(good)), 0);
    // Too long a life, and somebody else than the router.
    let mint = |expires: String, by: &str| {
        let document = json!({ "task_id": "t", "customer_token": "c", "case_token": "k", "granted_by": by, "expires": expires });
        let file = keys.write("document.json", document.to_string());
        keys.home.run(&["keys", "task", "mint", &file, "--base", &keys.path("base")])
    };
    assert_eq!(code(&mint(soon(60), "refund-agent")), 2);
    assert!(refused(&mint(soon(3_600), "router")).contains("30 minutes"));
    assert_eq!(code(&mint(soon(60), "router")), 0);
    // An existing file is not written over.
    assert_eq!(code(&keys.task("base", "task", "case_tk_1")), 2);
}

/// Each key that nothing is made of leaves one entry: what it was to be, why not, and whose it is where that can be read.
///
/// Rows: SLO-058 (of keys that others are made of)
#[test]
fn each_key_that_is_not_good_leaves_one_entry_that_says_whose_it_is_and_why() {
    let (keys, other) = (Keys::new().with_both(), Keys::new().with_both());
    keys.write("foreign", std::fs::read(other.path("base")).expect("reads"));
    let whole = std::fs::read_to_string(keys.path("task")).expect("reads");
    // Still base64, and no token any more.
    keys.write("cut", &whole[..whole.len() / 8 * 4]);
    done(&keys.base("base2", json!({})));
    done(&keys.task("base2", "task2", "case_tk_456def"));
    let mint = |base: &str, expires: String| {
        let document = json!({ "task_id": "t", "customer_token": "c", "case_token": "k", "granted_by": "router", "expires": expires });
        let file = keys.write("document.json", document.to_string());
        keys.home.run(&["keys", "task", "mint", &file, "--base", &keys.path(base)])
    };
    let copy = |task: &str, most: u64| {
        let document = json!({ "capabilities": { "refund": { "max_amount": most } } });
        let file = keys.write("narrow.json", document.to_string());
        let (base, task) = (keys.path("base"), keys.path(task));
        keys.home.run(&["keys", "task", "attenuate", &task, &file, "--base", &base])
    };
    // One that ends soon. Where the machine is slow, it has more time to be noted.
    let late = |seconds: u64| {
        let document = json!({ "agent": "late-agent", "capabilities": {}, "expires": soon(seconds) });
        let file = keys.write("late.json", document.to_string());
        let out = keys.path(&format!("late-{seconds}"));
        keys.home.run(&["keys", "base", "issue", &file, "--out", &out, "--json"])
    };
    let mut seconds = 2;
    while code(&late(seconds)) != 0 {
        seconds *= 2;
    }

    refused(&mint("foreign", soon(60)));
    for task in ["cut", "task2", "base"] {
        refused(&copy(task, 50));
    }
    refused(&copy("task", 501));
    refused(&mint("base", soon(3_600)));
    let late = loop {
        let tried = mint(&format!("late-{seconds}"), soon(60));
        if code(&tried) != 0 {
            break tried;
        }
    };
    refused(&late);
    let revoke = |name: &str| {
        let shown = keys.home.json(&["keys", "inspect", &keys.path(name)]);
        done(&keys.home.run(&["keys", "revoke", shown["key"].as_str().expect("an id"), "--json"]));
    };
    revoke("task");
    refused(&copy("task", 50));
    revoke("base");
    refused(&mint("base", soon(60)));
    let row = |line: &String| {
        let row: Value = serde_json::from_str(line).expect("a row");
        ["rule", "reason", "text"].map(|name| row["payload"][name].as_str().unwrap_or_default().to_owned())
    };
    let denied: Vec<[String; 3]> = entries(&keys.home, "denied").iter().rev().map(row).collect();
    // Base keys that had ended before they were noted are another matter.
    let denied: Vec<[&str; 3]> = denied
        .iter()
        .map(|row| row.each_ref().map(String::as_str))
        .filter(|[what, ..]| *what != "base key")
        .collect();
    let (task, copy) = ("task key", "narrower task key");
    assert_eq!(
        denied,
        [
            [task, "binding", "the key is not signed by this installation, or was changed"],
            [
                copy,
                "binding",
                "agent refund-agent: the key is not signed by this installation, or was changed"
            ],
            [copy, "binding", "agent refund-agent: the task key belongs to another base key"],
            [copy, "binding", "agent refund-agent: the key has a block that does not belong there"],
            [
                copy,
                "scope",
                "agent refund-agent: what it grants would exceed that of the key from which it is copied"
            ],
            [task, "shape", "agent refund-agent: a task key lives 30 minutes at most"],
            [task, "expired", "agent late-agent: the base key has expired"],
            [copy, "revoked", "agent refund-agent: the key was revoked"],
            [task, "revoked", "agent refund-agent: the base key was revoked"],
        ]
    );
}

/// The twin of what pages and programs are refused.
#[test]
fn the_socket_of_the_owner_makes_keys() {
    let keys = Keys::new().with_both();
    ended(&keys.home);
    let engine = Engine::start(&keys.home, &[]).expect("ready");
    let mut link = Link::open(&keys.home).expect("connects");
    let base = std::fs::read_to_string(keys.path("base")).expect("reads").trim().to_owned();
    let document = json!({ "task_id": "t", "customer_token": "c", "case_token": "k", "granted_by": "router", "expires": soon(60) });
    let params = json!({ "base": base, "document": document });
    let minted = link.call("keys.mint", params).expect("answered");
    assert!(minted["token"].as_str().is_some_and(|token| token.len() > 100), "{minted}");
    assert_eq!(engine.stop().code, Some(0));
}
