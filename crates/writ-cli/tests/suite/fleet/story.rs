//! `writ demo --fleet`, and what its walls have left behind: looked at from outside, since a demo could say anything.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::Value;
use writ_store::store::Store;
use writ_testkit::fleet::shop::{ShopChange, customer_at, order_of, read_changes};
use writ_testkit::fleet::{ADDRESS_AGENT, REFUND_AGENT, RULE, SENIOR_AGENT};

use crate::agents::program_of;
use crate::engine::runs;
use crate::{Home, code, text};

use super::world::{BegunOperation, begun_operations};

/// The demo, run with its folder below the test's own.
struct PlayedDemo {
    home: Home,
    said: String,
}

impl PlayedDemo {
    fn run(more: &[&str]) -> Self {
        let home = Home::new().in_processes();
        let folders = home.dir.path().to_str().expect("text").to_owned();
        let home = home.with("TMPDIR", &folders);
        let done = home.run(&[&["demo", "--fleet"], more].concat());
        assert_eq!(code(&done), 0, "{}", text(&done));
        Self { said: String::from_utf8(done.stdout).expect("UTF-8"), home }
    }

    /// The folders that it has left.
    fn left(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.home.dir.path()).expect("reads");
        entries.map(|entry| entry.expect("an entry").path()).collect()
    }

    fn place(&self) -> PathBuf {
        let [place] = self.left().try_into().expect("one folder");
        place.join("home")
    }

    fn engine_entries(&self) -> Vec<Value> {
        let place = self.place();
        let export = self.home.run(&["--home", place.to_str().expect("text"), "audit", "export"]);
        assert_eq!(code(&export), 0, "{}", text(&export));
        rows(&export.stdout)
    }

    fn proxy_entries(&self) -> Vec<Value> {
        let store = Store::open_read_only(&self.place().join("proxy/proxy.db"), [0; 32]).expect("opens");
        let mut bytes = Vec::new();
        store.blocking().export_entries(&mut bytes).expect("exported");
        rows(&bytes)
    }
}

fn rows(bytes: &[u8]) -> Vec<Value> {
    let text = String::from_utf8(bytes.to_vec()).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("a row")).collect()
}

/// The entries of one kind.
fn of<'a>(entries: &'a [Value], event: &'a str) -> impl Iterator<Item = &'a Value> {
    entries.iter().filter(move |entry| entry["event"] == event)
}

fn text_of<'a>(entry: &'a Value, path: &str) -> &'a str {
    entry.pointer(&format!("/payload{path}")).and_then(Value::as_str).unwrap_or_default()
}

/// What the proxy refused an agent, and why.
fn refusals<'a>(entries: &'a [Value], agent: &str) -> Vec<(&'a str, &'a str)> {
    of(entries, "denied")
        .filter(|entry| text_of(entry, "/requester/agent") == agent)
        .map(|entry| (text_of(entry, "/requester/operation"), text_of(entry, "/reason")))
        .collect()
}

/// Nothing is left of it: no folder, and no process that knows its name.
#[test]
fn needs_userns_needs_python_the_demo_of_a_fleet_ends_well_and_leaves_nothing() {
    let demo = PlayedDemo::run(&[]);
    assert!(demo.left().is_empty(), "{}", demo.said);
    assert!(demo.said.contains("VERIFIED") && demo.said.contains("CAUGHT"), "{}", demo.said);
    let folder = demo.home.dir.path().to_str().expect("text");
    assert!(!runs(folder));
}

/// A user without rights gets the same: agents are then in user namespaces of that user, in place of users of their own.
#[test]
#[expect(clippy::disallowed_types, reason = "the test starts the binary that it tests")]
fn needs_userns_needs_python_the_demo_of_a_fleet_ends_well_for_a_user_without_rights() {
    /// The user that owns nothing.
    const WITHOUT_RIGHTS: u32 = 65_534;
    let home = Home::new().in_processes();
    let (folder, programs) = (home.dir.path(), tempfile::tempdir().expect("a folder"));
    // Where the binary was built, others may not look.
    let program = programs.path().join("writ");
    std::fs::copy(env!("CARGO_BIN_EXE_writ"), &program).expect("copied");
    std::fs::set_permissions(programs.path(), std::fs::Permissions::from_mode(0o755)).expect("opened");
    let mut demo = match nix::unistd::geteuid().is_root() {
        true => {
            std::os::unix::fs::chown(folder, Some(WITHOUT_RIGHTS), Some(WITHOUT_RIGHTS)).expect("given away");
            let mut demo = std::process::Command::new("setpriv");
            let user = WITHOUT_RIGHTS.to_string();
            demo.args(["--reuid", &user, "--regid", &user, "--clear-groups"]).arg(&program);
            demo
        }
        false => std::process::Command::new(&program),
    };
    let done = demo
        .args(["demo", "--fleet"])
        .env_clear()
        .envs(home.variables(&[("TMPDIR", folder.to_str().expect("text"))]))
        .current_dir("/")
        .stdin(Stdio::null())
        .output()
        .expect("it starts");
    assert_eq!(code(&done), 0, "{}", text(&done));
    let said = text(&done);
    assert!(said.contains("VERIFIED") && said.contains("CAUGHT"), "{said}");
    assert_eq!(std::fs::read_dir(folder).expect("reads").count(), 0, "{said}");
}

/// A demo that is killed leaves neither its proxy nor its engine running.
#[test]
#[expect(clippy::disallowed_types, reason = "the test kills the binary that it tests")]
fn needs_userns_needs_python_a_killed_demo_leaves_no_process() {
    let home = Home::new();
    let folder = home.dir.path().to_owned();
    let mut demo = std::process::Command::new(env!("CARGO_BIN_EXE_writ"))
        .args(["demo", "--fleet"])
        .env_clear()
        .envs(home.variables(&[("TMPDIR", folder.to_str().expect("text"))]))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts");
    let place = loop {
        let left =
            std::fs::read_dir(&folder).expect("reads").flatten().map(|entry| entry.path().join("home"));
        let serves = |place: &PathBuf| UnixStream::connect(place.join("runtime/cases.sock")).is_ok();
        if let Some(place) = left.into_iter().find(serves) {
            break place;
        }
        assert!(demo.try_wait().expect("waits").is_none(), "it has ended");
        std::thread::yield_now();
    };
    let started = ["proxy/lock", "runtime/lock"].map(|lock| {
        let pid = std::fs::read_to_string(place.join(lock)).expect(lock);
        format!("/proc/{}/cmdline", pid.trim())
    });
    // One that has ended and was not waited for yet has no command line.
    let runs = |path: &String| std::fs::read(path).is_ok_and(|line| !line.is_empty());
    assert!(started.iter().all(runs));
    demo.kill().expect("killed");
    demo.wait().expect("waits");
    while started.iter().any(runs) {
        std::thread::yield_now();
    }
}

/// Replaces the folders of programs by links to everything in them but Python, in a mount namespace of its own, and goes on with
/// its arguments.
const HIDE_PYTHON: &str = r#"
set -e
folder=$1
shift
for place in /usr/bin /usr/local/bin; do
  mkdir -p "$folder$place" "$folder/real$place"
  mount --bind "$place" "$folder/real$place"
  ln -s "$folder/real$place"/* "$folder$place/"
  rm -f "$folder$place"/python*
  mount --bind "$folder$place" "$place"
done
exec "$@"
"#;

/// It says what is missing and where it must be, before it makes anything.
#[test]
#[expect(clippy::disallowed_types, reason = "the test starts the binary that it tests")]
fn needs_userns_a_machine_without_python_is_told_what_the_demo_of_a_fleet_needs() {
    let hidden = tempfile::tempdir().expect("a folder");
    let home = Home::new().in_processes();
    let folders = home.dir.path().to_str().expect("text").to_owned();
    let run = |arguments: &[&str]| {
        std::process::Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", HIDE_PYTHON, "sh"])
            .arg(hidden.path())
            .args(arguments)
            .env_clear()
            .envs(home.variables(&[("TMPDIR", &folders)]))
            .output()
            .expect("unshare of util-linux starts")
    };
    // The rest of the system's programs is there.
    let others = run(&["sh", "-c", "command -v env && ! command -v python3"]);
    assert_eq!(code(&others), 0, "{}", text(&others));
    std::fs::remove_dir_all(hidden.path().join("usr")).expect("the links are removed");
    let refused = run(&[env!("CARGO_BIN_EXE_writ"), "demo", "--fleet"]);
    assert_eq!(code(&refused), 3, "{}", text(&refused));
    for part in ["no python3 was found", "install python3", "/usr/local/bin or /usr/bin or /bin"] {
        assert!(text(&refused).contains(part), "{}", text(&refused));
    }
    assert_eq!(std::fs::read_dir(home.dir.path()).expect("reads").count(), 0, "nothing was made");
}

/// Each wall, by what it has left in the ledgers, in the database and at the mail server's end.
///
/// Rows: SLO-002 SLO-019 SLO-022 SLO-046 SLO-048 SLO-050 SLO-051 SLO-052 SLO-053 SLO-066 SLO-067
/// Rows: SLO-001 (in part: a file that is not there for an agent leaves no entry)
#[test]
fn needs_userns_needs_python_every_wall_of_the_demo_stands() {
    let demo = PlayedDemo::run(&["--keep"]);
    let shown: Vec<&str> = demo.said.lines().filter_map(|line| line.trim().strip_prefix("less ")).collect();
    assert_eq!(shown.len(), 3, "{}", demo.said);
    assert!(shown.iter().all(|path| std::path::Path::new(path).is_file()), "{shown:?}");
    let (engine, proxy) = (demo.engine_entries(), demo.proxy_entries());
    // The database's own log: what was permitted, once, and nothing else.
    let refund =
        |guest, amount| ShopChange { subject: order_of(guest, 0), customer: customer_at(guest).id, amount };
    let changes = read_changes(&demo.place().join("proxy/shop.db")).expect("reads");
    assert_eq!(changes, [refund(0, 500), refund(1, 501)]);
    check_limits(&proxy);
    check_escalation(&engine);
    check_ways_out(&demo, &proxy);
    check_bypasses(&engine);
    check_catching(&engine, &proxy);
    check_records(&demo, &engine, &proxy);
}

/// 500 passes and 501 does not; another customer's order is not there.
fn check_limits(proxy: &[Value]) {
    let refused = refusals(proxy, REFUND_AGENT);
    assert_eq!(refused, [("refund", "limit")]);
    let refunds = |agent: &str| -> Vec<(String, String)> {
        let all =
            begun_operations(proxy).into_iter().filter(|one| one.agent == agent && one.operation == "refund");
        all.map(|BegunOperation { mut parameters, outcome, .. }| {
            assert_eq!(outcome.as_deref(), Some("done"));
            (parameters.remove("order").expect("an order"), parameters.remove("amount").expect("an amount"))
        })
        .collect()
    };
    // The last one is another customer's: it was performed, and changed no row.
    let pair = |order: String, amount: &str| (order, amount.to_owned());
    assert_eq!(refunds(REFUND_AGENT), [pair(order_of(0, 0), "500"), pair(order_of(0, 0), "50")]);
    assert_eq!(refunds(SENIOR_AGENT), [pair(order_of(1, 0), "501")]);
}

/// The key of the first holder is revoked before that of the second is minted; both stand in one entry.
fn check_escalation(engine: &[Value]) {
    let moves: Vec<&Value> = of(engine, "case_moved").collect();
    let escalated =
        moves.iter().find(|entry| text_of(entry, "/record/change") == "escalated").expect("escalated");
    assert_eq!(
        (text_of(escalated, "/record/ended/name"), text_of(escalated, "/record/target")),
        (REFUND_AGENT, "manager")
    );
    let case = text_of(escalated, "/record/case");
    let next = moves
        .iter()
        .find(|entry| {
            text_of(entry, "/record/case") == case && text_of(entry, "/record/began/name") == SENIOR_AGENT
        })
        .expect("handed over");
    assert!(escalated["seq"].as_u64() < next["seq"].as_u64());
    for field in ["/record/ended/task", "/record/ended/key", "/record/customer"] {
        assert_ne!(text_of(escalated, field), "", "{field}");
    }
    assert_eq!(text_of(next, "/record/earlier/task"), text_of(escalated, "/record/ended/task"));
    assert_eq!(text_of(next, "/record/customer"), text_of(escalated, "/record/customer"));
    let ended = text_of(escalated, "/record/ended/key");
    let revoked = of(engine, "keyed")
        .find(|entry| text_of(entry, "/key") == ended && text_of(entry, "/change") == "revoked")
        .expect("revoked");
    assert!(revoked["seq"].as_u64() < next["seq"].as_u64());
}

/// What the hostile agent tried through the proxy is recorded under its own name; the rest found no way there.
fn check_ways_out(demo: &PlayedDemo, proxy: &[Value]) {
    let refused = refusals(proxy, ADDRESS_AGENT);
    assert_eq!(refused[..2], [("read_orders", "scope"); 2]);
    // It named another agent and sent other keys: what arrived were its own. The last request is the copy of them.
    let (copy, probes) = refused[2..].split_last().expect("it was refused more");
    assert_eq!(*copy, ("read_orders", "revoked"));
    assert!(probes.len() >= 4, "{probes:?}");
    assert!(
        probes.iter().all(|one| [("refund", "capability"), ("refund", "revoked")].contains(one)),
        "{probes:?}"
    );
    for way in ["way out 1", "way out 2", "way out 3", "way out 4"] {
        let lines: Vec<&str> = demo.said.lines().collect();
        let stopped = lines.windows(2).filter(|pair| pair[0].contains(way)).collect::<Vec<_>>();
        assert!(!stopped.is_empty(), "{way}: {}", demo.said);
        for pair in stopped {
            assert!(pair[0].contains("Error") && pair[1].contains("STOPPED by its"), "{pair:?}");
        }
    }
    for place in ["/etc/cron.d/agent", "/usr/bin/agent", "/tmp/mine"] {
        // A file of another program may have such a name.
        assert_ne!(std::fs::read(place).ok().as_deref(), Some(&b"still here"[..]), "{place}");
    }
    let program = program_of(&demo.place().join("agents").join(ADDRESS_AGENT)).join("agent.py");
    assert!(
        std::fs::read_to_string(program).expect("reads").starts_with("\"\"\"A hostile agent"),
        "it has not changed its own program"
    );
}

/// What it tried past the proxy, and the headers with which it named another agent, are in the ledger that it found no way to;
/// the other agents have tried nothing.
fn check_bypasses(engine: &[Value]) {
    let tried: Vec<&Value> =
        of(engine, "denied").filter(|entry| text_of(entry, "/rule") == "way_out").collect();
    let words: Vec<&str> = tried.iter().map(|entry| text_of(entry, "/text")).collect();
    let words = words.join("\n");
    for way in ["1 forged header", "at what its network does not have"] {
        assert!(words.contains(way), "{way} in {words}");
    }
    for entry in tried {
        assert_eq!(text_of(entry, "/requester/agent"), ADDRESS_AGENT);
        for field in ["/requester/base", "/requester/task", "/requester/data/1"] {
            assert_ne!(text_of(entry, field), "", "{field}");
        }
    }
}

/// The rule took the case, the key died with it, and a person got the case.
fn check_catching(engine: &[Value], proxy: &[Value]) {
    let caught = of(engine, "case_moved")
        .find(|entry| text_of(entry, "/record/change") == "rerouted")
        .expect("it was caught");
    assert_eq!(text_of(caught, "/record/ended/name"), ADDRESS_AGENT);
    assert!(text_of(caught, "/record/reason").contains(RULE), "{caught}");
    let case = text_of(caught, "/record/case");
    let after: Vec<&str> = of(engine, "case_moved")
        .filter(|entry| {
            text_of(entry, "/record/case") == case && entry["seq"].as_u64() > caught["seq"].as_u64()
        })
        .map(|entry| text_of(entry, "/record/change"))
        .collect();
    assert_eq!(after, ["queued", "taken", "closed"]);
    // The copy of its keys, past every sandbox.
    let copied = of(proxy, "denied").find(|entry| text_of(entry, "/reason") == "revoked").expect("refused");
    assert_eq!(text_of(copied, "/outside"), "a key was revoked");
    let task = text_of(caught, "/record/ended/task");
    let served_later = of(proxy, "intent").any(|entry| {
        text_of(entry, "/requester/task") == task && entry["at"].as_str() > caught["at"].as_str()
    });
    assert!(!served_later);
}

/// Neither ledger holds a key or a real name; entries about an agent name the hashes of its keys.
fn check_records(demo: &PlayedDemo, engine: &[Value], proxy: &[Value]) {
    let key = std::fs::read_to_string(demo.place().join("agents").join(ADDRESS_AGENT).join(".keys/base.jwt"));
    let key = key.expect("reads").trim().to_owned();
    for (name, entries) in [("engine", engine), ("proxy", proxy)] {
        for entry in entries {
            let shown = entry.to_string();
            assert!(!shown.contains(&key), "a key in the ledger of the {name}: {shown}");
            for guest in 0..4 {
                let person = customer_at(guest);
                assert!(!shown.contains(&person.name) && !shown.contains(&person.email), "{name}: {shown}");
            }
        }
    }
    for entry in of(proxy, "intent") {
        assert!(
            !text_of(entry, "/requester/base").is_empty() && !text_of(entry, "/requester/task").is_empty()
        );
    }
}
