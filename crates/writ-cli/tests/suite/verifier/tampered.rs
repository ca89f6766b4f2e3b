//! Exports, heads and proofs that somebody has changed, and damaged databases, of which both verifiers say the same.

use std::path::Path;

use rusqlite::Connection;
use writ_store::ledger::head::HeadSigner as _;

use super::{Checkpoint, ERASED, Sealed, SigningKey, Store, Value, Verdict, joined, json, path, signed_anew};

/// A key that is not the harness's.
fn stranger() -> SigningKey {
    SigningKey::from_bytes(&[9; 32])
}

/// Another character of the same kind, so that the form stays.
fn other(old: char) -> char {
    match old {
        '0' => '1',
        'a' => 'b',
        'A' => 'B',
        '1'..='9' => '0',
        'b'..='z' => 'a',
        _ => 'A',
    }
}

/// A line with one character changed, `offset` into the value that follows `mark`.
fn changed_at(line: &str, mark: &str, offset: usize) -> String {
    let start = line.rfind(mark).expect("the field is there") + mark.len();
    let quote = usize::from(line[start..].starts_with('"'));
    let at = start + quote + offset;
    let old = line[at..].chars().next().expect("a character");
    let mut changed = line.to_owned();
    changed.replace_range(at..=at, &other(old).to_string());
    changed
}

#[test]
fn needs_python_an_untouched_export_is_good_and_what_is_not_shown_is_told() {
    let sealed = Sealed::new();
    let [alone, held] = sealed.judged(joined(&sealed.lines));
    assert!(alone.code == 0 && alone.said.contains("no head covers the last 300 entries"), "{}", alone.said);
    assert_eq!(held.said, "ledger verified: entries 300, heads 2, erased 1\n");
    // Entries that came after the head are signed one by one, and that is said.
    let older = std::fs::read_to_string(&sealed.heads).expect("reads");
    let older = sealed.file("older.jsonl", format!("{}\n", older.lines().next().expect("a head")));
    let (export, key) = (sealed.file("export.jsonl", joined(&sealed.lines)), sealed.key());
    let verdict = Verdict::verify(&[path(&export), "--key", path(&key), "--heads", path(&older)]);
    assert!(verdict.code == 0 && verdict.said.contains("the last 44 entries"), "{}", verdict.said);
}

/// Rows: SIL-172 (in part: what was altered, as another program sees it)
#[test]
fn needs_python_one_changed_character_in_any_field_names_its_leaf() {
    let sealed = Sealed::new();
    let fields = [
        ("\"seq\":", 0),
        ("\"at\":", 5),
        ("\"session\":", 20),
        ("\"turn\":", 20),
        ("\"turn_number\":", 0),
        // The payload names the event again.
        (":3,\"event\":", 2),
        ("\"commitment\":", 0),
        ("\"commitment\":", 63),
        ("\"signature\":", 0),
        ("\"signature\":", 127),
        ("\"leaf\":", 30),
        ("\"salt\":", 31),
        ("\"reason\":", 2),
        ("\"phase\":", 0),
    ];
    for (mark, offset) in fields {
        let [alone, held] = sealed.judged(sealed.with_line(5, |line| changed_at(line, mark, offset)));
        assert_eq!(
            (alone.told(), held.told()),
            ((9, Some(5)), (9, Some(5))),
            "{mark} {offset}: {}",
            alone.said
        );
    }
    // The last of two is that of the erasure.
    for (mark, offset) in [("\"at\":", 4), ("\"signature\":", 0), ("\"signature\":", 127)] {
        let [alone, _] = sealed.judged(sealed.with_line(ERASED, |line| changed_at(line, mark, offset)));
        assert_eq!(alone.told(), (9, Some(12)), "erased {mark} {offset}: {}", alone.said);
        assert!(alone.said.contains("its erasure is not signed"), "{}", alone.said);
    }
}

#[test]
fn needs_python_rows_that_are_missing_moved_cut_or_forged_are_named() {
    let sealed = Sealed::new();
    let lines = &sealed.lines;
    let edited = |edit: &dyn Fn(&mut Vec<String>)| {
        let mut lines = lines.clone();
        edit(&mut lines);
        joined(&lines)
    };
    let payload = r#"{"event":"phase","phase":"started","reason":"forged"}"#;
    let forged = |seq: usize, key: &SigningKey| sealed.with_line(seq, |line| signed_anew(line, payload, key));
    let all = |leaf| [(9, Some(leaf)); 2];
    let unseen_alone = |leaf| [(0, None), (9, Some(leaf))];
    let cases = [
        ("deleted", edited(&|lines| drop(lines.remove(42))), all(42)),
        ("first deleted", edited(&|lines| drop(lines.remove(0))), all(0)),
        ("moved", edited(&|lines| lines.swap(10, 20)), all(10)),
        ("repeated", edited(&|lines| lines.insert(7, lines[6].clone())), all(7)),
        ("reversed", edited(&|lines| lines.reverse()), all(0)),
        ("empty", String::new(), all(0)),
        ("cut within a row", joined(lines)[..joined(lines).len() - 40].to_owned(), all(299)),
        ("without the last line's end", joined(lines).trim_end().to_owned(), all(299)),
        ("cut", edited(&|lines| lines.truncate(290)), unseen_alone(290)),
        ("cut at a head", edited(&|lines| lines.truncate(256)), unseen_alone(256)),
        ("signed by another key", forged(123, &stranger()), all(123)),
        // Whoever holds the key writes the past again: the held heads tell, from the last good one on.
        ("written again late", forged(280, &sealed.key), unseen_alone(256)),
        ("written again early", forged(100, &sealed.key), unseen_alone(0)),
        ("an older payload back", sealed.with_line(5, |line| line.replace("entry 5", "entry 6")), all(5)),
    ];
    for (name, export, expected) in cases {
        let verdicts = sealed.judged(export);
        assert_eq!(verdicts.each_ref().map(Verdict::told), expected, "{name}: {verdicts:?}");
    }
}

#[test]
fn needs_python_an_erasure_counts_with_its_own_signed_statement_alone() {
    let sealed = Sealed::new();
    let split =
        |line: &str| line.split_once("\"salt\":").map(|(a, b)| (a.to_owned(), b.to_owned())).expect("a salt");
    let statement = split(&sealed.lines[ERASED]).1;
    let unshown = |line: &str, rest: &str| format!("{}\"salt\":{rest}", split(line).0);
    let nothing = "null,\"erased\":null,\"payload\":null}";
    let shown = split(&sealed.lines[5]).1;
    let both = statement.replace("\"payload\":null", "\"payload\":{\"a\":1}");
    let salted = statement.replacen("null", "\"00112233445566778899aabbccddeeff\"", 1);
    let cases = [
        ("no statement", ERASED, nothing, "nobody has signed"),
        ("a payload left out", 5, nothing, "nobody has signed"),
        ("the statement of another entry", 5, statement.as_str(), "its erasure is not signed"),
        ("another payload", ERASED, shown.as_str(), "its payload was changed"),
        ("a payload beside the statement", ERASED, both.as_str(), "no row"),
        ("a salt beside the statement", ERASED, salted.as_str(), "no row"),
    ];
    for (name, seq, rest, reason) in cases {
        let [alone, held] = sealed.judged(sealed.with_line(seq, |line| unshown(line, rest)));
        let leaf = u64::try_from(seq).ok();
        assert_eq!((alone.told(), held.told()), ((9, leaf), (9, leaf)), "{name}: {}", alone.said);
        assert!(alone.said.contains(reason), "{name}: {}", alone.said);
    }
}

fn head_line(head: &Checkpoint) -> String {
    let note = serde_json::to_string(&head.note).expect("JSON");
    format!("{{\"size\":{},\"root\":\"{}\",\"note\":{note}}}\n", head.size, hex::encode(head.root))
}

#[test]
fn needs_python_heads_that_are_not_those_of_the_ledger_are_refused() {
    let sealed = Sealed::new();
    let text = std::fs::read_to_string(&sealed.heads).expect("reads");
    let (first, last) = text.split_once('\n').expect("two heads");
    let note = |line: &str| {
        let line: Value = serde_json::from_str(line).expect("JSON");
        Checkpoint::parse(line["note"].as_str().expect("a note")).expect("a head")
    };
    let (small, large) = (note(first), note(last));
    assert_eq!(head_line(&small) + &head_line(&large), text, "heads are written as the format says");
    let (key, origin) = (&sealed.key, large.origin.as_str());
    let signed =
        |origin: &str, size, root, key: &SigningKey| head_line(&Checkpoint::sign(origin, size, root, key));
    let elsewhere = "writ/01ARZ3NDEKTSV4RRFFQ69G5FAV";
    let empty = writ_store::ledger::tree::empty_root();
    let cases = [
        ("joined files", text.repeat(2), (0, None)),
        ("another order", format!("{last}{first}\n"), (0, None)),
        ("the head of nothing", signed(origin, 0, empty, key), (0, None)),
        ("another head of nothing", signed(origin, 0, [1; 32], key), (9, Some(0))),
        ("signed by another key", signed(origin, 300, large.root, &stranger()), (9, None)),
        ("of two ledgers", format!("{first}\n{}", signed(elsewhere, 300, large.root, key)), (9, Some(0))),
        ("another late root", format!("{first}\n{}", signed(origin, 300, [1; 32], key)), (9, Some(256))),
        ("another early root", signed(origin, 256, [1; 32], key) + last, (9, Some(0))),
        ("of a longer ledger", signed(origin, 301, large.root, key), (9, Some(300))),
        ("notes swapped", format!("{}{}", swapped(first, &large), swapped(last, &small)), (9, None)),
        ("another size", text.replace("\"size\":300", "\"size\":299"), (9, None)),
        ("another root", changed_at(first, "\"root\":", 3) + "\n", (9, None)),
        ("another signature", changed_at(first, &format!("\u{2014} {origin} "), 40) + "\n", (9, None)),
        ("another note", changed_at(first, "\\n256\\n", 3) + "\n", (9, None)),
        ("cut", text.trim_end().to_owned(), (9, None)),
        ("no head", "not JSON\n".to_owned(), (9, None)),
        ("nothing", "\n\n".to_owned(), (2, None)),
    ];
    let (export, key) = (sealed.file("export.jsonl", joined(&sealed.lines)), sealed.key());
    for (name, heads, expected) in cases {
        let heads = sealed.file("changed.jsonl", heads);
        let verdict = Verdict::verify(&[path(&export), "--key", path(&key), "--heads", path(&heads)]);
        assert_eq!(verdict.told(), expected, "{name}: {}", verdict.said);
    }
}

/// A line of a head with the note of another.
fn swapped(line: &str, other: &Checkpoint) -> String {
    let note = serde_json::to_string(&other.note).expect("JSON");
    format!("{}\"note\":{note}}}\n", line.split_once("\"note\":").expect("a note").0)
}

#[test]
fn needs_python_a_proof_proves_its_entry_and_nothing_else() {
    let sealed = Sealed::new();
    let proof = sealed.home.json(&["audit", "proof", "77"]);
    let key = sealed.key();
    let check = |content: &str| {
        let file = sealed.file("proof.json", content);
        Verdict::verify(&["--proof", path(&file), "--key", path(&key)])
    };
    let proven = check(&proof.to_string());
    assert!(proven.code == 0 && proven.said.contains("entry 77 is in the ledger"), "{}", proven.said);
    let changes: [(&str, Value); 14] = [
        ("seq", json!(76)),
        ("at", json!(proof["at"].as_i64().expect("a time") + 1)),
        ("session", json!("")),
        ("turn", json!("01ARZ3NDEKTSV4RRFFQ69G5FAV")),
        ("turn_number", json!(4)),
        ("event", json!("gated")),
        ("commitment", json!("00".repeat(32))),
        ("salt", json!("00".repeat(16))),
        ("salt", Value::Null),
        ("payload", json!("{}")),
        ("payload", Value::Null),
        ("signature", json!("00".repeat(64))),
        ("path", json!(proof["path"].as_array().expect("a path")[1..])),
        ("path", json!(vec!["00".repeat(32); 65])),
    ];
    for (field, value) in changes {
        let mut changed = proof.clone();
        changed[field] = value;
        assert_eq!(check(&changed.to_string()).code, 9, "{field}: {}", changed[field]);
    }
    // An erased payload takes nothing from the proof.
    let mut unshown = proof.clone();
    (unshown["salt"], unshown["payload"]) = (Value::Null, Value::Null);
    assert!(check(&unshown.to_string()).said.contains("its payload was erased"));
    // The head of a proof is compared with an export, too.
    let forged = sealed.with_line(100, |line| signed_anew(line, "{}", &sealed.key));
    let (export, file) = (sealed.file("export.jsonl", forged), sealed.file("proof.json", proof.to_string()));
    let verdict = Verdict::verify(&[path(&export), "--proof", path(&file), "--key", path(&key)]);
    assert_eq!(verdict.told(), (9, Some(0)), "{}", verdict.said);
}

/// An export of a copy of the database, and what Writ's own verifier says of the copy.
fn damaged(sealed: &Sealed, damage: &dyn Fn(&Connection)) -> (Vec<u8>, (i32, Option<u64>)) {
    let copy = sealed.home.dir.path().join("copy.db");
    std::fs::copy(sealed.home.database(), &copy).expect("copied");
    let conn = Connection::open(&copy).expect("opens");
    conn.execute_batch(
        "PRAGMA journal_mode = DELETE; PRAGMA ignore_check_constraints = ON; PRAGMA foreign_keys = OFF;
         DROP TRIGGER ledger_no_update; DROP TRIGGER ledger_no_delete; DROP TRIGGER ledger_payload_no_update",
    )
    .expect("opens up");
    damage(&conn);
    drop(conn);
    let mut export = Vec::new();
    let store = Store::open_read_only(&copy, sealed.key.public_key()).expect("opens");
    store.blocking().export_entries(&mut export).expect("exports");
    drop(store);
    (export, own(sealed, &copy))
}

/// What `writ audit verify` says of a database.
fn own(sealed: &Sealed, copy: &Path) -> (i32, Option<u64>) {
    let args = ["audit", "verify", "--json", "--db", path(copy), "--heads", path(&sealed.heads)];
    let output = sealed.home.run(&args);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    (super::code(&output), report.pointer("/problem/leaf").and_then(Value::as_u64))
}

/// Writes an entry again so that its columns fit each other, as someone with another key could.
fn forge(sealed: &Sealed, conn: &Connection, seq: usize) {
    let payload = r#"{"event":"phase","forged":true}"#;
    let line: Value =
        serde_json::from_str(&signed_anew(&sealed.lines[seq], payload, &stranger())).expect("JSON");
    let bytes = |name: &str| hex::decode(line[name].as_str().expect("hexadecimal")).expect("hexadecimal");
    let (columns, payloads) = (
        "UPDATE ledger SET commitment = ?2, signature = ?3, leaf = ?4 WHERE seq = ?1",
        "UPDATE ledger_payload SET payload = ?2 WHERE seq = ?1",
    );
    let seq = i64::try_from(seq).expect("small");
    let row = rusqlite::params![seq, bytes("commitment"), bytes("signature"), bytes("leaf")];
    conn.execute(columns, row).expect("writes");
    conn.execute(payloads, rusqlite::params![seq, payload]).expect("writes");
}

#[test]
fn needs_python_both_verifiers_name_the_same_leaf_of_a_damaged_database() {
    let sealed = Sealed::new();
    let agree = |name: &str, leaf: Option<u64>, damage: &dyn Fn(&Connection)| {
        let (export, own) = damaged(&sealed, damage);
        let [_, held] = sealed.judged(&export);
        let expected = (if leaf.is_some() { 9 } else { 0 }, leaf);
        assert_eq!((held.told(), own), (expected, expected), "{name}: {}", held.said);
    };
    agree("nothing", None, &|_| {});
    agree("forged", Some(123), &|conn| forge(&sealed, conn, 123));
    let columns = [
        "at = at + 1",
        "session = '01ARZ3NDEKTSV4RRFFQ69G5FAV'",
        "session = 'x\"y'",
        "session = NULL",
        "turn = '01ARZ3NDEKTSV4RRFFQ69G5FAV'",
        "turn_number = turn_number + 1",
        "turn_number = -1",
        "event = 'gated'",
        "event = 'a' || char(10) || 'b'",
        "commitment = zeroblob(32)",
        "signature = zeroblob(64)",
        "signature = zeroblob(3)",
        "leaf = zeroblob(32)",
        "leaf = x''",
    ];
    for set in columns {
        let sql = format!("UPDATE ledger SET {set} WHERE seq = 200");
        agree(set, Some(200), &|conn| conn.execute_batch(&sql).expect("tampers"));
    }
    let payloads = [
        "salt = zeroblob(16)",
        "salt = zeroblob(5)",
        "payload = '{}'",
        "payload = '{\"a\":1,\"a\":2}'",
        "payload = replace(payload, ':', ': ')",
        "payload = payload || char(10)",
        "payload = 'not JSON'",
        "payload = 'null,\"erased\":null'",
        "payload = ''",
    ];
    for set in payloads {
        let sql = format!("UPDATE ledger_payload SET {set} WHERE seq = 200");
        agree(set, Some(200), &|conn| conn.execute_batch(&sql).expect("tampers"));
    }
    let count = 1 + columns.len() + payloads.len();
    println!("THREAT 25 attempts={count} refused={count} entries=0 entry=- twins=1");
}

#[test]
fn needs_python_both_verifiers_say_the_same_of_missing_and_moved_rows() {
    let sealed = Sealed::new();
    let without = |condition: &str| {
        ["ledger", "ledger_payload", "ledger_erasure"]
            .map(|table| format!("DELETE FROM {table} WHERE {condition};"))
    };
    let moved = |from: u32, to: u32| {
        ["ledger", "ledger_payload"].map(|table| format!("UPDATE {table} SET seq = {to} WHERE seq = {from};"))
    };
    let closed_up = ["ledger", "ledger_payload"].map(|table| {
        format!(
            "UPDATE {table} SET seq = -seq WHERE seq > 42; UPDATE {table} SET seq = -seq - 1 WHERE seq < 0;"
        )
    });
    let older =
        "DELETE FROM ledger_head WHERE size > 256; DELETE FROM ledger_node WHERE ((idx + 1) << level) > 256";
    let cases = [
        ("deleted", without("seq = 42").concat(), 42),
        ("closed up", without("seq = 42").concat() + &closed_up.concat(), 42),
        ("swapped", [moved(10, 9_000), moved(20, 10), moved(9_000, 20)].concat().concat(), 10),
        ("cut", without("seq >= 290").concat(), 290),
        ("an older copy", without("seq >= 256").concat() + older, 256),
        ("all", without("1").concat(), 0),
        ("a payload", "DELETE FROM ledger_payload WHERE seq = 7".to_owned(), 7),
        ("a statement", "DELETE FROM ledger_erasure".to_owned(), 12),
        ("its time", "UPDATE ledger_erasure SET at = at + 1".to_owned(), 12),
        ("its signature", "UPDATE ledger_erasure SET signature = zeroblob(64)".to_owned(), 12),
        ("its place", "UPDATE ledger_erasure SET seq = 13; DELETE FROM ledger_payload WHERE seq = 13".to_owned(), 12),
        (
            "a statement that nobody signed",
            "DELETE FROM ledger_payload WHERE seq = 7; INSERT INTO ledger_erasure VALUES (7, 0, zeroblob(64))".to_owned(),
            7,
        ),
        (
            "a statement beside a payload",
            "INSERT INTO ledger_payload VALUES (12, zeroblob(16), '{}')".to_owned(),
            12,
        ),
    ];
    for (name, sql, leaf) in cases {
        let (export, own) = damaged(&sealed, &|conn| conn.execute_batch(&sql).expect("tampers"));
        let [_, held] = sealed.judged(&export);
        assert_eq!((held.told(), own), ((9, Some(leaf)), (9, Some(leaf))), "{name}: {}", held.said);
    }
}
