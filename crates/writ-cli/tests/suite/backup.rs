//! Backups of a home: made while it works, put back with everything before them void.

use serde_json::{Value, json};
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault, ReplyGate};
use writ_types::entry::Decision;
use writ_types::id::AskId;

use super::engine::{Engine, Link};
use super::turns::{Bench, calls};
use super::{Home, code, text};

fn search(home: &Home, word: &str) -> usize {
    home.json(&["memory", "search", word])["hits"].as_array().expect("a list").len()
}

fn backups(home: &Home) -> Vec<Value> {
    home.json(&["backup", "list"])["backups"].as_array().expect("a list").clone()
}

/// The only approval that was ever given.
fn token(home: &Home) -> Value {
    let conn = rusqlite::Connection::open(home.database()).expect("opens");
    let token: String = conn.query_row("SELECT token FROM approval", [], |row| row.get(0)).expect("a token");
    serde_json::from_str(&token).expect("JSON")
}

fn newest(home: &Home) -> std::path::PathBuf {
    home.root().join("backups").join(backups(home)[0]["name"].as_str().expect("a name"))
}

/// Rows: WIN-022 WIN-408 WIN-432
#[test]
fn needs_userns_needs_git_a_restore_brings_the_state_back_and_voids_what_came_before() {
    let script = calls(vec![("file_write", json!({"path": "b.txt", "content": "new\n"}))], "Done.");
    let bench = Bench::new("anthropic", script).in_processes();
    let home = &bench.home;
    let engine = Engine::start(home, &[]).expect("ready");
    assert_eq!(code(&bench.chat("please work", &[])), 5);
    let ask: AskId = bench.ask().parse().expect("an id");
    assert_eq!(code(&home.run(&["memory", "add", "the heron is kept"])), 0);
    let made = home.run(&["backup"]);
    assert_eq!(code(&made), 0, "while the engine runs: {}", text(&made));
    assert_eq!(backups(home).len(), 1);

    // What happens afterwards is lost, and an approval given afterwards must not come back to life.
    assert_eq!(code(&home.run(&["memory", "add", "the otter is lost"])), 0);
    assert_eq!(code(&home.run(&["approvals", "approve", ask.as_str(), "--yes"])), 0);
    let token = token(home);
    let heads = home.dir.path().join("heads").display().to_string();
    assert_eq!(code(&home.run(&["audit", "export", "--heads", &heads])), 0);
    let running = home.run(&["backup", "restore", "1"]);
    assert_eq!(code(&running), 10, "an engine runs: {}", text(&running));
    assert_eq!(engine.stop().code, Some(0));
    let unknown = home.run(&["backup", "restore", "2"]);
    assert_eq!(code(&unknown), 2, "{}", text(&unknown));
    assert_eq!((search(home, "heron"), search(home, "otter")), (1, 1), "nothing changed");
    super::engine::stop_engine_of(home);

    let restored = home.json(&["backup", "restore", "1"]);
    assert!(restored["lost"].as_u64().expect("known") > 0, "{restored}");
    assert_eq!(restored["epoch"], 2, "{restored}");
    assert_eq!((search(home, "heron"), search(home, "otter")), (1, 0));
    let verified = home.run(&["audit", "verify", "--heads", &heads]);
    assert_eq!(code(&verified), 0, "{}", text(&verified));
    assert!(text(&verified).contains("known restore at entry"), "{}", text(&verified));
    assert_eq!(bench.count("restored"), 1);
    assert_eq!(backups(home).len(), 2, "the state before the restore was kept");

    let mut link = Link::open(home).expect("connects");
    let replayed = link.decide(&ask, Decision::Approve, Some(token));
    assert_eq!(replayed, Some(Err("ask.closed".to_owned())), "questions from before are void");
}

/// Rows: WIN-408
#[test]
fn needs_git_a_damaged_or_newer_backup_changes_nothing() {
    let home = Home::ready().in_processes();
    assert_eq!(code(&home.run(&["backup"])), 0);
    let folder = newest(&home);
    let bundle = folder.join("agent.bundle");
    assert!(bundle.is_file(), "the agent's history is in it");
    let before = std::fs::read(home.database()).expect("reads");

    let mut bytes = std::fs::read(&bundle).expect("reads");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&bundle, &bytes).expect("writes");
    let damaged = home.run(&["backup", "restore", "1"]);
    assert_eq!(code(&damaged), 8, "{}", text(&damaged));
    assert!(text(&damaged).contains("agent.bundle"), "{}", text(&damaged));

    let manifest = folder.join("manifest.json");
    let newer =
        std::fs::read_to_string(&manifest).expect("reads").replace("\"version\": 1", "\"version\": 2");
    std::fs::write(&manifest, newer).expect("writes");
    let newer = home.run(&["backup", "restore", "1"]);
    assert_eq!(code(&newer), 3, "{}", text(&newer));
    assert_eq!(std::fs::read(home.database()).expect("reads"), before, "untouched");
}

/// Whoever reads the database meanwhile is no damage: nothing is exchanged, and nothing is lost.
#[test]
fn needs_git_a_restore_beside_a_reader_touches_nothing() {
    let home = Home::ready().in_processes();
    assert_eq!(code(&home.run(&["backup"])), 0);
    assert_eq!(code(&home.run(&["memory", "add", "the heron is kept"])), 0);
    let reader = rusqlite::Connection::open(home.database()).expect("opens");
    reader.execute_batch("BEGIN; SELECT count(*) FROM ledger;").expect("reads");
    assert_eq!(code(&home.run(&["memory", "add", "the otter is kept"])), 0);
    super::engine::stop_engine_of(&home);
    let busy = home.run(&["backup", "restore", "1"]);
    assert_eq!(code(&busy), 10, "{}", text(&busy));
    drop(reader);
    assert_eq!((search(&home, "heron"), search(&home, "otter")), (1, 1));
    super::engine::stop_engine_of(&home);
    assert_eq!(code(&home.run(&["backup", "restore", "1"])), 0, "now nobody reads");
    assert_eq!((search(&home, "heron"), search(&home, "otter")), (0, 0));
}

/// An epoch is never used twice, also when the present database can tell nothing; so nothing is replayed.
#[test]
fn needs_git_needs_userns_two_restores_over_damaged_databases_have_two_epochs() {
    let script = calls(vec![("file_write", json!({"path": "b.txt", "content": "new\n"}))], "Done.");
    let bench = Bench::new("anthropic", script).in_processes();
    let home = &bench.home;
    let damage = || {
        super::engine::stop_engine_of(home);
        std::fs::write(home.database(), vec![7_u8; 20_000]).expect("writes");
    };
    assert_eq!(code(&home.run(&["backup"])), 0);
    damage();
    let restored = home.run(&["backup", "restore", "1", "--json"]);
    let said: serde_json::Value = serde_json::from_slice(&restored.stdout).expect("JSON");
    assert_eq!((&said["epoch"], &said["removed_keys"]), (&json!(2), &json!([])));
    assert!(text(&restored).contains("which approver keys were removed since the backup is not known"));
    assert_eq!(code(&bench.chat("please work", &[])), 5);
    let ask: AskId = bench.ask().parse().expect("an id");
    assert_eq!(code(&home.run(&["backup"])), 0);
    assert_eq!(code(&home.run(&["approvals", "approve", ask.as_str(), "--yes"])), 0);
    let token = token(home);
    std::fs::remove_file(bench.project().join("b.txt")).expect("it was applied");
    damage();
    assert_eq!(home.json(&["backup", "restore", "1"])["epoch"], 3);
    let kept = std::fs::read_dir(home.root().join("data")).expect("reads");
    let kept = kept.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let kept =
        kept.filter(|name| name.contains("damaged") && !name.ends_with("-wal") && !name.ends_with("-shm"));
    assert_eq!(kept.count(), 2, "what was damaged is kept");
    let engine = Engine::start(home, &[]).expect("ready");
    let mut link = Link::open(home).expect("connects");
    assert_eq!(link.decide(&ask, Decision::Approve, Some(token)), Some(Err("ask.closed".to_owned())));
    assert!(!bench.project().join("b.txt").exists(), "nothing was done again");
    drop(engine);
}

/// A message that was being worked on when the backup was made is not worked on again: it may have been done since.
#[test]
fn needs_git_a_turn_that_was_under_way_is_given_up_by_a_restore() {
    let gate = ReplyGate::new();
    let held = gate.clone();
    let script =
        move |_: &ParsedRequest| Reply::text("Done.").with_fault(ReplyFault::SlowFirstByte(held.clone()));
    let bench = Bench::new("anthropic", script).in_processes();
    let home = &bench.home;
    let engine = Engine::start(home, &[]).expect("ready");
    let mut link = Link::open(home).expect("connects");
    link.join(None, None).expect("joined");
    link.say("work", "one").expect("sent");
    bench.held_back();
    assert_eq!(code(&home.run(&["backup"])), 0, "in the middle of the turn");
    gate.open();
    assert_eq!(link.answer().expect("an answer").text, "Done.");
    assert_eq!(engine.stop().code, Some(0));
    let asked = bench.server.recorded_requests().len();
    assert_eq!(code(&home.run(&["backup", "restore", "1"])), 0);
    let engine = Engine::start(home, &[]).expect("ready");
    let status = home.json(&["status"]);
    assert_eq!((&status["queue"]["ready"], &status["queue"]["leased"]), (&json!(0), &json!(0)), "{status}");
    assert_eq!(status["queue"]["dead"], 1, "{status}");
    let failed = bench.events("phase").iter().any(|row| row["payload"]["phase"] == "failed");
    assert!(failed, "whoever waits is told");
    assert_eq!(bench.server.recorded_requests().len(), asked, "the model was not asked again");
    assert_eq!(engine.stop().code, Some(0));
}

/// A home that has lost its database does not quietly begin a new one.
#[test]
fn a_home_without_its_database_says_so() {
    let home = Home::ready().in_processes();
    std::fs::remove_file(home.database()).expect("removes");
    let searched = home.run(&["memory", "search", "heron"]);
    assert_eq!(code(&searched), 3, "{}", text(&searched));
    assert!(!home.database().exists());
}

/// A broken repository of the agent, or a damaged backup, keeps nobody from saving and bringing back the rest.
#[test]
fn needs_git_what_is_broken_beside_the_database_is_told_and_in_nobodys_way() {
    let home = Home::ready().in_processes();
    assert_eq!(code(&home.run(&["backup"])), 0);
    assert_eq!(code(&home.run(&["memory", "add", "the heron is kept"])), 0);
    super::engine::stop_engine_of(&home);
    std::fs::write(home.root().join("agent.git/refs/heads/main"), "garbage\n").expect("writes");
    let without = home.run(&["backup"]);
    assert_eq!(code(&without), 8, "the database is saved, and what is missing is told: {}", text(&without));
    assert_eq!(backups(&home).len(), 2);
    let bad = home.root().join("backups/2020-01-01T00-00-00Z");
    std::fs::create_dir(&bad).expect("made");
    std::fs::write(bad.join("manifest.json"), "{").expect("written");
    std::fs::create_dir(home.root().join("backups/.x.unfinished")).expect("made");
    let listed = home.run(&["backup", "list"]);
    assert_eq!(code(&listed), 0, "{}", text(&listed));
    assert!(text(&listed).contains("2020-01-01T00-00-00Z"), "{}", text(&listed));
    let whole = home.run(&["backup", "restore", "2"]);
    assert_eq!(code(&whole), 0, "{}", text(&whole));
    assert_eq!(search(&home, "heron"), 0);
    assert_eq!(code(&home.run(&["backup"])), 0, "the agent's history is whole again");
    assert!(!home.root().join("backups/.x.unfinished").exists(), "swept");
}

/// The agent's own files come back with their history, also after the agent has broken both.
///
/// Rows: WIN-432
#[test]
fn needs_git_the_agents_files_come_back() {
    let home = Home::ready().in_processes();
    let notes = home.root().join("agent/AGENTS.md");
    let before = std::fs::read_to_string(&notes).expect("reads");
    assert_eq!(code(&home.run(&["backup"])), 0);
    std::fs::write(&notes, "ruined\n").expect("writes");
    std::fs::write(home.root().join("agent/extra.sh"), "echo planted\n").expect("writes");
    std::fs::remove_file(home.root().join("agent.git/refs/heads/main")).expect("removes");
    let restored = home.run(&["backup", "restore", "1"]);
    assert_eq!(code(&restored), 0, "{}", text(&restored));
    assert_eq!(std::fs::read_to_string(&notes).expect("reads"), before);
    assert!(!home.root().join("agent/extra.sh").exists());
}

/// Old backups go only when newer ones are whole.
#[test]
fn needs_git_only_the_newest_backups_are_kept() {
    let home = Home::ready().in_processes();
    for _ in 0..3 {
        assert_eq!(code(&home.run(&["backup", "--keep", "2"])), 0);
    }
    assert_eq!(backups(&home).len(), 2);
    assert_eq!(code(&home.run(&["backup", "restore", "1"])), 0);
}
