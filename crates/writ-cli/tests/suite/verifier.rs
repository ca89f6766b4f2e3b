//! The verifier in `examples/verify-ledger`: what a program in another language, which has the public key and the
//! format alone, says of exports of real homes, good ones and tampered ones.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;

use ed25519_dalek::{Signer as _, SigningKey};
use serde_json::{Value, json};
use writ_store::batch::{Batch, Op};
use writ_store::config::StoreConfig;
use writ_store::ledger::head::Checkpoint;
use writ_store::ledger::row::commitment;
use writ_store::ledger::tree::leaf_hash;
use writ_store::store::Store;
use writ_types::entry::{Entry, Fact, TurnPhase};
use writ_types::id::{EntrySeq, SessionId, TurnId};
use writ_types::unit::Timestamp;

use super::engine::stop_engine_of;
use super::turns::{Bench, calls};
use super::{Home, code, text};

#[path = "verifier/tampered.rs"]
mod tampered;

#[path = "verifier/erased.rs"]
mod erased;

#[path = "verifier/hostile.rs"]
mod hostile;

/// The verifier.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/verify-ledger/verify_ledger.py");
/// Entries of a sealed ledger: more than one head is kept.
const ENTRIES: usize = 300;
/// The entry whose payload was erased in it.
const ERASED: usize = 12;
/// When: another time than that of every entry.
const ERASED_AT: i64 = 1_800_000_000_000;

/// Runs Python, which sees nothing of this program's environment.
#[expect(clippy::disallowed_types, reason = "the verifier is a program of its own")]
fn python(args: &[&str]) -> Output {
    std::process::Command::new("python3")
        .arg("-B")
        .args(args)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .stdin(Stdio::null())
        .output()
        .expect("python3 starts")
}

/// What the verifier said.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    code: i32,
    leaf: Option<u64>,
    said: String,
}

impl Verdict {
    fn of(output: &Output) -> Self {
        let leaf = String::from_utf8_lossy(&output.stdout)
            .lines()
            .find_map(|line| line.strip_prefix("first bad leaf: ")?.parse().ok());
        let verdict = Self { code: code(output), leaf, said: text(output) };
        assert!(!verdict.said.contains("Traceback"), "{}", verdict.said);
        verdict
    }

    fn verify(args: &[&str]) -> Self {
        Self::of(&python(&[&[SCRIPT], args].concat()))
    }

    /// What the other program says of an export, under these keys.
    pub(super) fn of_export(export: &Path, keys: &[&str]) -> (i32, Option<u64>) {
        let keys = keys.iter().flat_map(|key| ["--key", key]);
        let args: Vec<&str> = std::iter::once(path(export)).chain(keys).collect();
        Self::verify(&args).told()
    }

    /// The verdict without its words.
    const fn told(&self) -> (i32, Option<u64>) {
        (self.code, self.leaf)
    }
}

fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// The file with the harness's public key.
fn key_file(home: &Home) -> PathBuf {
    home.root().join("keys/harness.pub")
}

/// The harness's private key, as its owner could read it.
pub(super) fn harness(home: &Home) -> SigningKey {
    let document = std::fs::read(home.root().join("keys/secrets.json")).expect("reads");
    let document: Value = serde_json::from_slice(&document).expect("JSON");
    let seed = hex::decode(document["keys"]["harness"].as_str().expect("a key")).expect("hexadecimal");
    SigningKey::from_bytes(&seed.try_into().expect("32 bytes"))
}

pub(super) fn exported(home: &Home) -> String {
    let output = home.run(&["audit", "export"]);
    assert_eq!(code(&output), 0, "{}", text(&output));
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn exported_heads(home: &Home, name: &str) -> PathBuf {
    let file = home.dir.path().join(name);
    let output = home.run(&["audit", "export", "--heads", path(&file)]);
    assert_eq!(code(&output), 0, "{}", text(&output));
    file
}

fn phase(number: usize) -> Op {
    let at = Timestamp::from_millis(1_700_000_000_000);
    Op::Append(Box::new(Entry {
        at,
        session: Some(SessionId::from_parts(at, 7)),
        turn: Some(TurnId::from_parts(at, 9)),
        turn_number: 3,
        fact: Fact::Phase { phase: TurnPhase::Started, reason: format!("entry {number}") },
    }))
}

/// A home whose ledger is at rest, with its export, and a place for changed ones.
struct Sealed {
    home: Home,
    key: SigningKey,
    /// The export, line by line.
    lines: Vec<String>,
    heads: PathBuf,
}

impl Sealed {
    /// A ledger with a payload that was erased, by the store itself.
    fn new() -> Self {
        let home = Home::ready();
        let key = harness(&home);
        let store = Store::open(&StoreConfig::new(home.database()), Arc::new(key.clone())).expect("opens");
        // The first entry is that of `writ init`.
        store.commit_blocking(Batch::synced((1..ENTRIES).map(phase).collect())).expect("commits");
        let entry = EntrySeq(u64::try_from(ERASED).expect("small"));
        let erase = Op::ErasePayload { entry, at: Timestamp::from_millis(ERASED_AT) };
        store.commit_blocking(Batch::synced(vec![erase])).expect("commits");
        drop(store);
        let lines: Vec<String> = exported(&home).lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), ENTRIES);
        let heads = exported_heads(&home, "heads.jsonl");
        Self { home, key, lines, heads }
    }

    fn key(&self) -> PathBuf {
        key_file(&self.home)
    }

    /// A file beside the home.
    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let file = self.home.dir.path().join(name);
        std::fs::write(&file, content).expect("written");
        file
    }

    /// What is said of an export, without heads and with those that were held.
    fn judged(&self, export: impl AsRef<[u8]>) -> [Verdict; 2] {
        let export = self.file("export.jsonl", export);
        let key = self.key();
        let args = [path(&export), "--key", path(&key)];
        [Verdict::verify(&args), Verdict::verify(&[&args[..], &["--heads", path(&self.heads)]].concat())]
    }

    /// The export after one of its lines was changed.
    fn with_line(&self, number: usize, change: impl FnOnce(&str) -> String) -> String {
        let mut lines = self.lines.clone();
        lines[number] = change(&lines[number]);
        joined(&lines)
    }
}

fn joined(lines: &[String]) -> String {
    lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect()
}

/// An entry's line with another payload, signed anew: commitment, header, signature and leaf fit each other.
pub(super) fn signed_anew(line: &str, payload: &str, key: &SigningKey) -> String {
    let row: Value = serde_json::from_str(line).expect("JSON");
    let word = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
    let salt = hex::decode(word("salt")).expect("hexadecimal");
    let committed = hex::encode(commitment(&salt, payload.as_bytes()));
    let header = format!(
        "writ-entry-v1\n{}\n{}\n{}\n{}\n{}\n{}\n{committed}\n",
        row["seq"],
        row["at"],
        word("session"),
        word("turn"),
        row["turn_number"],
        word("event"),
    );
    let signature = key.sign(header.as_bytes()).to_bytes();
    let leaf = hex::encode(leaf_hash(&[header.as_bytes(), &signature]));
    let before = line.split_once("\"payload\":").expect("a payload").0;
    before
        .replace(&word("commitment"), &committed)
        .replace(&word("signature"), &hex::encode(signature))
        .replace(&word("leaf"), &leaf)
        + &format!("\"payload\":{payload}}}")
}

/// A home that has worked: three turns, a question, its approval and what came of it.
fn worked() -> Bench {
    let script = calls(vec![("file_write", json!({"path": "b.txt", "content": "new\n"}))], "Done.");
    let bench = Bench::new("anthropic", script);
    assert_eq!(code(&bench.chat("please plant the quince", &[])), 5);
    assert_eq!(code(&bench.home.run(&["approvals", "approve", &bench.ask(), "--yes"])), 0);
    for message in ["go on", "and again"] {
        assert_eq!(code(&bench.chat(message, &[])), 0);
    }
    stop_engine_of(&bench.home);
    assert!(bench.count("received") >= 3 && bench.count("answered") == 1 && bench.count("applied") == 1);
    bench
}

/// Every turn left entries whose signatures verify, also after a payload was erased.
///
/// Rows: SIL-301
#[test]
fn needs_userns_needs_python_the_export_of_a_home_that_worked_is_verified_by_another_program() {
    let bench = worked();
    let home = &bench.home;
    let key = key_file(home);
    let rows = exported(home);
    let count = rows.lines().count();
    let export = home.dir.path().join("export.jsonl");
    std::fs::write(&export, &rows).expect("written");
    let heads = exported_heads(home, "heads.jsonl");
    let whole = [path(&export), "--key", path(&key), "--heads", path(&heads)];
    let good = Verdict::verify(&whole);
    assert_eq!(good.said, format!("ledger verified: entries {count}, heads 1, erased 0\n"));
    assert_eq!(home.json(&["audit", "verify", "--every-signature"])["signatures"], count);

    // The newest come first.
    let asked =
        bench.events("received").last().and_then(|row| row["seq"].as_u64()).expect("an entry").to_string();
    let proof = home.dir.path().join("proof.json");
    for entry in ["0", &asked, &(count - 1).to_string()] {
        std::fs::write(&proof, home.run(&["audit", "proof", entry]).stdout).expect("written");
        let proven = Verdict::verify(&["--proof", path(&proof), "--key", path(&key)]);
        assert!(proven.code == 0 && proven.said.contains("with its payload"), "{}", proven.said);
    }

    let store = Store::open(&StoreConfig::new(home.database()), Arc::new(harness(home))).expect("opens");
    let entry = EntrySeq(asked.parse().expect("a number"));
    let erase = Op::ErasePayload { entry, at: Timestamp::from_millis(ERASED_AT) };
    store.commit_blocking(Batch::synced(vec![erase])).expect("commits");
    drop(store);
    let rows = exported(home);
    assert!(!rows.contains("please plant the quince"));
    std::fs::write(&export, rows).expect("written");
    let good = Verdict::verify(&whole);
    assert_eq!(good.said, format!("ledger verified: entries {count}, heads 1, erased 1\n"));
    std::fs::write(&proof, home.run(&["audit", "proof", &asked]).stdout).expect("written");
    let proven = Verdict::verify(&["--proof", path(&proof), "--key", path(&key)]);
    assert!(proven.code == 0 && proven.said.contains("its payload was erased"), "{}", proven.said);
    assert_eq!(home.json(&["audit", "verify", "--every-signature"])["erased"], 1);

    // Of each of the three turns, an entry that was changed is named.
    for turn in 1..=3 {
        let mark = format!("\"turn_number\":{turn},");
        let rows = std::fs::read_to_string(&export).expect("reads");
        let seq = rows.lines().position(|line| line.contains(&mark)).expect("an entry of the turn");
        let changed = home.dir.path().join("changed.jsonl");
        std::fs::write(&changed, rows.replacen(&mark, "\"turn_number\":9,", 1)).expect("written");
        let verdict = Verdict::verify(&[path(&changed), "--key", path(&key)]);
        assert_eq!(verdict.told(), (9, u64::try_from(seq).ok()), "{}", verdict.said);
    }
}

/// What a restore gave up, the ledger tells itself: heads of that stretch are no damage, others are.
#[test]
fn needs_git_needs_python_heads_from_before_a_restore_are_explained_by_it() {
    let home = Home::ready();
    assert_eq!(code(&home.run(&["backup"])), 0);
    assert_eq!(code(&home.run(&["memory", "add", "the otter is lost"])), 0);
    stop_engine_of(&home);
    let heads = exported_heads(&home, "heads.jsonl");
    let restored = home.run(&["backup", "restore", "1"]);
    assert_eq!(code(&restored), 0, "{}", text(&restored));
    let export = home.dir.path().join("export.jsonl");
    std::fs::write(&export, exported(&home)).expect("written");
    let key = key_file(&home);
    let args = [path(&export), "--key", path(&key), "--heads", path(&heads)];
    let verdict = Verdict::verify(&args);
    assert!(verdict.code == 0 && verdict.said.contains("known restore at entry"), "{}", verdict.said);
    let rust = home.run(&["audit", "verify", "--heads", path(&heads)]);
    assert!(code(&rust) == 0 && text(&rust).contains("known restore at entry"), "{}", text(&rust));
    // Without the entry that tells of it, the same head says that the past was written again or cut.
    let rows = exported(&home);
    let told = rows.lines().position(|line| line.contains("\"event\":\"restored\"")).expect("an entry");
    let cut: Vec<String> = rows.lines().take(told).map(str::to_owned).collect();
    std::fs::write(&export, joined(&cut)).expect("written");
    assert_eq!(Verdict::verify(&args).told(), (9, u64::try_from(told).ok()));
}
