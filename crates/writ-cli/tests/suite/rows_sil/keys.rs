//! Who can sign, what a signature is good for, and where keys are not.

use std::path::PathBuf;
use std::sync::Arc;

use ed25519_dalek::{Signature, SigningKey};
use serde_json::{Value, json};
use writ_policy::approval::{ApprovalClaims, ApprovalToken, Approver};
use writ_testkit::model_server::{ParsedRequest, Reply};
use writ_types::digest::{Digest, canonical_json};
use writ_types::entry::Decision;
use writ_types::frame::Card;

use super::super::engine::{Engine, Link};
use super::super::turns::{Bench, calls};
use super::super::{Home, code, text};
use super::{ASK_REMEMBER, read, write};

/// The private keys of a home that keeps them in files, 32 bytes each.
fn seeds(home: &Home) -> Vec<[u8; 32]> {
    let mut seeds = Vec::new();
    for file in ["keys/secrets.json", "keys/approver.json"] {
        let document: Value = serde_json::from_str(&read(home.root().join(file))).expect("JSON");
        let keys = document["keys"].as_object().expect("keys").values();
        let keys = keys.map(|key| hex::decode(key.as_str().expect("text")).expect("hexadecimal"));
        seeds.extend(keys.map(|key| <[u8; 32]>::try_from(key).expect("32 bytes")));
    }
    assert_eq!(seeds.len(), 4, "root, harness, contents and approver");
    seeds
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: String = bytes.iter().map(|byte| format!("{byte:08b}")).collect();
    let sextets = (0..bits.len()).step_by(6).map(|at| format!("{:0<6}", &bits[at..bits.len().min(at + 6)]));
    sextets.map(|bits| char::from(LETTERS[usize::from_str_radix(&bits, 2).expect("binary")])).collect()
}

/// Whether bytes hold a private key: as it is, in hexadecimal, or in base64 of either alphabet.
fn has_key(seeds: &[[u8; 32]], bytes: &[u8]) -> bool {
    let found = |needle: &[u8]| {
        let begins = bytes.iter().enumerate().filter(|(_, byte)| **byte == needle[0]);
        begins.into_iter().any(|(at, _)| bytes[at..].starts_with(needle))
    };
    seeds.iter().any(|seed| {
        let base64 = base64(seed);
        let forms =
            [hex::encode(seed), hex::encode_upper(seed), base64.replace('+', "-").replace('/', "_"), base64];
        found(seed) || forms.iter().any(|form| found(form.as_bytes()))
    })
}

/// Every file below a folder.
fn files(folder: PathBuf) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("reads").flatten() {
            let kind = entry.file_type().expect("a kind");
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                found.push(entry.path());
            }
        }
    }
    found
}

#[test]
fn the_search_for_keys_finds_them_in_every_form() {
    let seed: [u8; 32] = std::array::from_fn(|n| u8::try_from(n * 7 + 1).expect("small"));
    let standard = "AQgPFh0kKzI5QEdOVVxjanF4f4aNlJuiqbC3vsXM09o";
    for form in [seed.to_vec(), hex::encode(seed).into_bytes(), standard.into()] {
        assert!(has_key(&[seed], &[b"before ", form.as_slice(), b" after"].concat()), "{form:?}");
    }
    assert!(!has_key(&[seed], &hex::encode([7; 32]).into_bytes()));
}

/// Rows: SIL-157 (with keys in files: they are nowhere else)
#[test]
fn private_keys_are_in_no_prompt_log_database_or_environment() {
    let mut bench = Bench::new("openai", calls(vec![("memory_store", json!({"text": "A fact."}))], "Kept."));
    bench.home.env.push(("WRIT_LOG__LEVEL".to_owned(), "trace".to_owned()));
    write(bench.home.root().join("policies/ask.cedar"), ASK_REMEMBER);
    let bench = bench.in_processes();
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let said = bench.chat("remember it", &["-v"]);
    assert_eq!(code(&said), 5, "{}", text(&said));
    let approved = bench.home.run(&["approvals", "approve", &bench.ask(), "--yes", "-v"]);
    assert_eq!(code(&approved), 0, "{}", text(&approved));
    let (seeds, root) = (seeds(&bench.home), bench.home.root());
    let environment = std::fs::read(format!("/proc/{}/environ", engine.pid())).expect("reads");
    assert!(!has_key(&seeds, &environment));
    let ended = engine.stop();
    let spoken = [text(&said), text(&approved), ended.said, bench.requests().concat()].concat();
    assert!(!has_key(&seeds, spoken.as_bytes()));
    let (mut searched, mut kept) = (0, Vec::new());
    for file in files(root.clone()) {
        searched += 1;
        if has_key(&seeds, &std::fs::read(&file).expect("reads")) {
            kept.push(file.strip_prefix(&root).expect("below").display().to_string());
        }
    }
    kept.sort();
    assert_eq!(kept, ["keys/approver.json", "keys/secrets.json"], "where the owner chose to keep them");
    assert!(searched > 10 && root.join("logs/writ.jsonl").exists(), "logs and database were searched");
}

/// What a hostile program gathers: everything that it can read of processes, and of the home if it can.
const LOOT: &str = r#"
import ctypes, glob, os, re, socket
loot = open("loot.bin", "wb")
def take(path, size=1 << 24):
    try:
        with open(path, "rb") as file:
            loot.write(file.read(size))
        return True
    except OSError:
        return False
loot.write(repr(dict(os.environ)).encode())
control = take("/proc/self/status")
for process in glob.glob("/proc/[0-9]*"):
    for name in ("environ", "cmdline", "auxv"):
        take(process + "/" + name)
    if process.endswith("/%d" % os.getpid()):
        continue
    try:
        maps = open(process + "/maps").read()
        memory = open(process + "/mem", "rb")
    except OSError:
        continue
    for start, end in re.findall(r"^([0-9a-f]+)-([0-9a-f]+) rw", maps, re.M):
        try:
            memory.seek(int(start, 16))
            loot.write(memory.read(min(int(end, 16) - int(start, 16), 1 << 22)))
        except (OSError, ValueError, OverflowError):
            pass
seen = 0
for folder in (HOME, "/run", "/tmp", "/var", "/home", "/root"):
    for place, folders, names in os.walk(folder):
        # Toolchains are large, and hold what everybody has.
        folders[:] = [name for name in folders if name not in (".rustup", ".cargo", "toolchains")]
        for name in names:
            path = os.path.join(place, name)
            seen += name in ("secrets.json", "approver.json", "control.sock")
            if loot.tell() < 1 << 24 and os.path.isfile(path) and os.path.getsize(path) < 1 << 14:
                take(path)
def reach(path):
    try:
        socket.socket(socket.AF_UNIX).connect(path)
        return "reached"
    except OSError:
        return "refused"
bus = os.environ.get("DBUS_SESSION_BUS_ADDRESS", "none")
ring = ctypes.CDLL(None).syscall(KEYCTL, 0, -3, 0)
print("control", control, "seen", seen, "engine", reach(HOME + "/runtime/control.sock"), "bus", bus, "ring", ring)
"#;

/// The number of `keyctl` (the kernel's tables of system calls).
const KEYCTL: u32 = if cfg!(target_arch = "aarch64") { 219 } else { 250 };

/// Rows: SIL-302
#[test]
fn needs_userns_a_hostile_program_cannot_get_at_a_key() {
    let looting =
        |home: &Home| format!("HOME = {:?}\nKEYCTL = {KEYCTL}\n{LOOT}", home.root().display().to_string());
    let script = Arc::new(std::sync::OnceLock::<String>::new());
    let asked = Arc::clone(&script);
    let bench = Bench::new("openai", move |request: &ParsedRequest| match request.results().last() {
        None => Reply::call("python_exec", json!({"script": asked.get().expect("set")})),
        Some(result) => Reply::text(&result.text),
    });
    script.set(looting(&bench.home)).expect("once");
    let done = bench.chat("have a look around", &[]);
    let found = text(&done);
    assert!(found.contains("control True seen 0 engine refused bus none ring -1"), "{found}");
    let seeds = seeds(&bench.home);
    let mut loot = files(bench.home.root().join("data/overlays"));
    loot.retain(|file| file.ends_with("loot.bin"));
    assert!(!loot.is_empty(), "the program has gathered something");
    for file in loot {
        let bytes = std::fs::read(file).expect("reads");
        assert!(String::from_utf8_lossy(&bytes).contains("NoNewPrivs"), "what may be read was read");
        assert!(!has_key(&seeds, &bytes));
    }
}

/// The approver's private key, as the command line would open it.
pub(crate) fn approver(home: &Home) -> SigningKey {
    let document: Value = serde_json::from_str(&read(home.root().join("keys/approver.json"))).expect("JSON");
    let seed = document["keys"].as_object().expect("keys").values().next().and_then(Value::as_str);
    let seed = hex::decode(seed.expect("a key")).expect("hexadecimal");
    SigningKey::from_bytes(&seed.try_into().expect("32 bytes"))
}

pub(crate) fn public(key: &SigningKey) -> Approver {
    Approver::Key { public: hex::encode(key.verifying_key().as_bytes()) }
}

pub(crate) fn claims(status: &Value, card: &Card, nonce: u8, approver: Approver) -> ApprovalClaims {
    ApprovalClaims {
        installation: serde_json::from_value(status["installation"].clone()).expect("an id"),
        epoch: status["epoch"].as_u64().expect("a number"),
        ask: card.ask_id.clone(),
        decision: Decision::Approve,
        prepared: card.prepared,
        shown: card.shown_hash,
        nonce: hex::encode([nonce; 16]),
        issued_at: card.asked_at,
        expires_at: card.expires_at,
        approver,
        task: None,
        values: false,
        host: None,
    }
}

/// A home where remembering is asked for, and an engine with some open asks.
fn asking(asks: usize) -> (Bench, Engine, Link, Vec<Card>) {
    let bench = Bench::new("openai", move |request: &ParsedRequest| {
        let again = request.messages.last().is_some_and(|message| !message.results.is_empty());
        if again {
            return Reply::text("It waits.");
        }
        let add_call =
            |reply: Reply, n| reply.and_call("memory_store", json!({ "text": format!("item {n}") }));
        (0..asks).fold(Reply::default(), add_call)
    });
    write(bench.home.root().join("policies/ask.cedar"), ASK_REMEMBER);
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    link.join(None, None).expect("joined");
    link.ask("remember", "one").expect("answered");
    let cards = link.asks().expect("cards");
    assert_eq!(cards.len(), asks);
    (bench, engine, link, cards)
}

fn tokens(home: &Home) -> Vec<ApprovalToken> {
    let conn = rusqlite::Connection::open(home.database()).expect("opens");
    let mut rows = conn.prepare("SELECT token FROM approval").expect("prepares");
    let rows = rows.query_map([], |row| row.get::<_, String>(0)).expect("reads");
    rows.map(|row| serde_json::from_str(&row.expect("a row")).expect("a token")).collect()
}

/// The files that ship and sign approvals.
fn signers() -> Vec<String> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let signs = |file: &PathBuf| {
        let code = read(file);
        let shipped = code.split("#[cfg(test)]").next().unwrap_or_default();
        shipped.contains("ApprovalToken::sign_claims(")
    };
    let mut found: Vec<String> = files(root.clone())
        .into_iter()
        .filter(|file| file.extension().is_some_and(|extension| extension == "rs") && signs(file))
        .map(|file| file.strip_prefix(&root).expect("below").display().to_string())
        .filter(|file| !file.contains("tests") && !file.contains("/fixture"))
        .collect();
    found.sort();
    found
}

/// Rows: SIL-156
#[test]
fn an_agent_cannot_sign_an_approval() {
    // A measurement of races, the client of a person, the engine for a person whom the socket proved, and the tests' own door.
    assert_eq!(
        signers(),
        [
            "writ-cli/examples/bench/approvals.rs",
            "writ-cli/src/approve.rs",
            "writ-runtime/src/answers.rs",
            "writ-testdoor/src/lib.rs"
        ],
        "nothing that a model's words reach signs"
    );
    let (bench, engine, mut link, cards) = asking(1);
    let status = link.call("status", json!({})).expect("answered");
    let (own, enrolled) = (SigningKey::from_bytes(&[9; 32]), approver(&bench.home));
    let session = Approver::Session { principal: "owner".to_owned() };
    for (n, claimed) in (1..).zip([public(&own), public(&enrolled), session]) {
        let token = ApprovalToken::sign_claims(claims(&status, &cards[0], n, claimed), &own).expect("signs");
        let token = serde_json::to_value(token).expect("JSON");
        let said = link.decide(&cards[0].ask_id, Decision::Approve, Some(token));
        assert_eq!(said, Some(Err("approval.invalid".to_owned())), "{n}");
    }
    assert_eq!((bench.count("answered"), bench.count("remembered")), (0, 0));
    // Its twin: the same claims with the key of the person.
    let token = ApprovalToken::sign_claims(claims(&status, &cards[0], 4, public(&enrolled)), &enrolled)
        .expect("signs");
    let token = serde_json::to_value(token).expect("JSON");
    let said = link.decide(&cards[0].ask_id, Decision::Approve, Some(token));
    assert_eq!(said, Some(Ok("applied".to_owned())));
    assert_eq!(bench.count("remembered"), 1);
    assert_eq!(engine.stop().code, Some(0));
}

/// Rows: SIL-159
#[test]
fn an_issued_approval_has_the_hash_a_nonce_of_its_own_and_a_signature() {
    let (bench, engine, mut link, cards) = asking(3);
    let status = link.call("status", json!({})).expect("answered");
    // Two are signed by the command line, one by the engine for the person at its socket.
    for card in &cards[..2] {
        let approved = bench.home.run(&["approvals", "approve", card.ask_id.as_str(), "--yes"]);
        assert_eq!(code(&approved), 0, "{}", text(&approved));
    }
    assert_eq!(link.decide(&cards[2].ask_id, Decision::Approve, None), Some(Ok("applied".to_owned())));
    let tokens = tokens(&bench.home);
    let nonces: std::collections::BTreeSet<&str> =
        tokens.iter().map(|token| token.claims.nonce.as_str()).collect();
    assert_eq!((tokens.len(), nonces.len()), (3, 3));
    let all = bench.home.json(&["keys", "inspect"]);
    let key_of = |role: &str| {
        let keys = all["keys"].as_array().expect("keys");
        let key = keys.iter().find(|key| key["role"] == role).expect("a key");
        let bytes = hex::decode(key["public_key"].as_str().expect("text")).expect("hexadecimal");
        ed25519_dalek::VerifyingKey::from_bytes(&bytes.try_into().expect("32 bytes")).expect("a key")
    };
    let asked = bench.events("asked");
    for token in &tokens {
        let card = cards.iter().find(|card| card.ask_id == token.claims.ask).expect("its card");
        let entry = asked.iter().find(|row| row["payload"]["ask"] == json!(card.ask_id)).expect("its entry");
        // The hash worked out again, from what the ledger says was asked.
        let canonical = json!({
            "v": 1,
            "action": entry["payload"]["action"],
            "agent": "main",
            "session": card.session,
            "tool": "memory_store",
            "sinks": [],
            // What a memory rests on is what the call rests on.
            "taint": entry["payload"]["action"]["taint"],
            "bindings": {},
            "idempotent": false,
            "policy": status["policy"],
        });
        let hash = Digest::of_bytes(&canonical_json(&canonical).expect("canonical"));
        assert_eq!((token.claims.prepared, card.prepared), (hash, hash));
        assert_eq!(hex::decode(&token.claims.nonce).map(|nonce| nonce.len()), Ok(16));
        let signed = [b"writ approval v1\n".as_slice(), &canonical_json(&token.claims).expect("canonical")];
        let signature = hex::decode(&token.signature).expect("hexadecimal");
        let signature = Signature::from_slice(&signature).expect("64 bytes");
        let role = if token.claims.ask == cards[2].ask_id { "harness" } else { "approver" };
        assert!(key_of(role).verify_strict(&signed.concat(), &signature).is_ok(), "{role}");
    }
    assert_eq!(engine.stop().code, Some(0));
}
