//! Proofs, erasure, search, export.

use super::*;
use crate::batch::Op;
use crate::ledger::export::read_heads;
use crate::ledger::row::LedgerQuery;
use crate::testing::*;

#[test]
fn a_stranger_can_check_every_entry() {
    let home = TestHome::new().with_session(1);
    home.append(11);
    for seq in 0..11 {
        let proof = home.store.blocking().ledger_proof(EntrySeq(seq)).expect("proves");
        let text = serde_json::to_string(&proof).expect("JSON");
        let proof: EntryProof = serde_json::from_str(&text).expect("JSON");
        let proven = check_proof(&proof, &keys()).expect("holds");
        assert_eq!((proven.head.size, proven.payload), (11, true));
        assert_eq!(check_proof(&proof, &[[3; 32]]), Err(ProofError::Checkpoint(NoteError::Unsigned)));
    }
    assert!(home.store.blocking().ledger_proof(EntrySeq(11)).is_err());
}

#[test]
fn every_changed_field_breaks_a_proof() {
    let home = TestHome::new().with_session(1);
    home.append(6);
    let good = home.store.blocking().ledger_proof(EntrySeq(3)).expect("proves");
    let changes: [fn(&mut EntryProof); 11] = [
        |proof| proof.seq = 2,
        |proof| proof.at += 1,
        |proof| proof.session.push('x'),
        |proof| proof.turn.push('x'),
        |proof| proof.turn_number = 9,
        |proof| proof.event = "outcome".to_owned(),
        |proof| proof.commitment.replace_range(0..2, "zz"),
        |proof| proof.salt = Some("00".to_owned()),
        |proof| proof.payload = Some("{}".to_owned()),
        |proof| proof.signature = "00".repeat(64),
        |proof| drop(proof.path.pop()),
    ];
    for (number, change) in changes.iter().enumerate() {
        let mut proof = good.clone();
        change(&mut proof);
        assert!(check_proof(&proof, &keys()).is_err(), "change {number}");
    }
}

#[test]
fn erasing_a_payload_keeps_the_proof_and_removes_the_text() {
    let home = TestHome::new().with_session(1);
    home.append(3);
    home.commit(vec![phase("quince marmalade")]);
    home.append(3);
    home.commit(vec![Op::ErasePayload { entry: EntrySeq(3), at: at(9) }]);
    let proven = check_proof(&home.store.blocking().ledger_proof(EntrySeq(3)).expect("proves"), &keys());
    assert!(!proven.expect("holds").payload);
    let report = home.store.blocking().verify_ledger(&Default::default()).expect("reads");
    assert_eq!((report.problem, report.erased, report.rows), (None, 1, 7));
    let row = home.store.blocking().ledger_row(EntrySeq(3)).expect("reads").expect("there");
    assert_eq!((row.payload, row.intact), (None, true));
    let again = home.try_commit(vec![Op::ErasePayload { entry: EntrySeq(3), at: at(9) }]);
    assert!(matches!(again, Err(StoreError::Conflict(Conflict::Missing { .. }))));
    assert!(home.try_commit(vec![Op::ErasePayload { entry: EntrySeq(99), at: at(9) }]).is_err());
    for suffix in ["", "-wal"] {
        let bytes = std::fs::read(home.path().with_file_name(format!("writ.db{suffix}"))).unwrap_or_default();
        assert!(!bytes.windows(6).any(|window| window == b"quince"), "writ.db{suffix}");
    }
}

/// That payloads hold no secret is shown by the suite's `threats::secrets`.
///
/// Rows: SIL-172
#[test]
fn every_row_has_its_five_fields_and_a_signature_that_verifies() {
    let home = TestHome::new().with_session(1);
    home.commit(vec![phase("a"), Op::Append(Box::new(intent(1)))]);
    for row in home.store.blocking().ledger_tail(10).expect("reads") {
        assert!(row.intact);
        assert_eq!(row.signature.len(), 2 * 64);
        assert!(!row.event.is_empty() && row.payload.is_some());
        assert_eq!((row.turn_number, row.at), (0, at(0)));
        let entry = row.entry().expect("parses");
        assert_eq!(entry.fact.event_name(), row.event);
    }
    let conn = rusqlite::Connection::open(home.path()).expect("opens");
    conn.execute_batch("DROP TRIGGER ledger_no_update; DROP TRIGGER ledger_payload_no_update")
        .expect("drops");
    for change in [
        "UPDATE ledger SET event = 'outcome' WHERE seq = 0",
        "UPDATE ledger SET event = 'phase', turn_number = 7 WHERE seq = 0",
        "UPDATE ledger SET turn_number = 0, at = at + 1 WHERE seq = 0",
        "UPDATE ledger SET at = at - 1 WHERE seq = 0;
         UPDATE ledger_payload SET payload = replace(payload, 'a', 'b') WHERE seq = 0",
    ] {
        conn.execute_batch(change).expect("changes");
        let row = home.store.blocking().ledger_row(EntrySeq(0)).expect("reads").expect("there");
        assert!(!row.intact, "{change}");
        assert!(home.store.blocking().ledger_row(EntrySeq(1)).expect("reads").expect("there").intact);
    }
}

/// Rows: SIL-301
#[test]
fn every_turn_leaves_entries_that_verify_when_they_are_asked_for() {
    let home = TestHome::new().with_session(1);
    for number in 1..=3_u64 {
        let mut begun = entry(intent(u128::from(number)).fact);
        begun.turn = Some(turn(u128::from(number)));
        begun.turn_number = number;
        home.commit(vec![open_turn(1, u128::from(number), number), Op::Append(Box::new(begun))]);
    }
    let of_turn = |number| {
        let query = LedgerQuery { turn_number: Some(number), limit: 10, ..LedgerQuery::default() };
        home.store.blocking().ledger_search(&query).expect("reads")
    };
    assert!((1..=3).all(|number| of_turn(number).len() == 1 && of_turn(number)[0].intact));
    let conn = rusqlite::Connection::open(home.path()).expect("opens");
    conn.execute_batch(
        "DROP TRIGGER ledger_payload_no_update;
         UPDATE ledger_payload SET payload = replace(payload, 'false', 'true') WHERE seq = 1",
    )
    .expect("tampers");
    assert_eq!([1, 2, 3].map(|number| of_turn(number)[0].intact), [true, false, true]);
}

#[test]
fn the_ledger_is_searched_by_everything_it_knows() {
    let home = TestHome::new().with_session(1);
    let mut other = entry(intent(5).fact);
    other.session = Some(session(2));
    other.turn = Some(turn(3));
    other.turn_number = 4;
    other.at = at(100);
    home.commit(vec![phase("Needle one"), phase("hay"), Op::Append(Box::new(other))]);
    let seqs = |query: LedgerQuery| -> Vec<u64> {
        let query = LedgerQuery { limit: 10, ..query };
        home.store.blocking().ledger_search(&query).expect("reads").iter().map(|row| row.seq.0).collect()
    };
    let all = LedgerQuery::default();
    assert_eq!(seqs(all.clone()), [2, 1, 0]);
    assert_eq!(seqs(LedgerQuery { event: Some("intent".into()), ..all.clone() }), [2]);
    assert_eq!(seqs(LedgerQuery { session: Some(session(1)), ..all.clone() }), [1, 0]);
    assert_eq!(seqs(LedgerQuery { turn: Some(turn(3)), ..all.clone() }), [2]);
    assert_eq!(seqs(LedgerQuery { turn_number: Some(4), ..all.clone() }), [2]);
    assert_eq!(seqs(LedgerQuery { text: Some("needle".into()), ..all.clone() }), [0]);
    assert_eq!(seqs(LedgerQuery { text: Some("%".into()), ..all.clone() }), Vec::<u64>::new());
    assert_eq!(seqs(LedgerQuery { since: Some(at(1)), ..all.clone() }), [2]);
    assert_eq!(seqs(LedgerQuery { until: Some(at(1)), ..all.clone() }), [1, 0]);
    assert_eq!(seqs(LedgerQuery { before: Some(EntrySeq(1)), ..all.clone() }), [0]);
    let tail = home.store.blocking().ledger_tail(2).expect("reads");
    assert_eq!(tail.iter().map(|row| row.seq.0).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn exports_are_json_lines_and_heads_can_be_read_back() {
    let home = TestHome::new().with_session(1);
    let ops = (0..300).map(|n| phase(&n.to_string())).collect();
    home.commit(ops);
    home.append(2);
    let mut heads = Vec::new();
    assert_eq!(home.store.blocking().export_heads(&mut heads).expect("exports"), 2);
    let text = String::from_utf8(heads).expect("text");
    let held = read_heads(&text, &keys()).expect("reads");
    assert_eq!(held.iter().map(|head| head.size).collect::<Vec<_>>(), [256, 302]);
    assert_eq!(read_heads(&text, &[[1; 32]]).expect_err("another key").line, 1);
    assert!(read_heads("{}", &keys()).is_err());
    let mut entries = Vec::new();
    assert_eq!(home.store.blocking().export_entries(&mut entries).expect("exports"), 302);
    let lines: Vec<serde_json::Value> = String::from_utf8(entries)
        .expect("text")
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(lines.len(), 302);
    assert_eq!(lines[301]["payload"]["reason"], "entry 1");
}

fn exported(home: &TestHome) -> Vec<String> {
    let mut entries = Vec::new();
    home.store.blocking().export_entries(&mut entries).expect("exports");
    String::from_utf8(entries).expect("text").lines().map(str::to_owned).collect()
}

/// A payload leaves as the bytes that were committed to, the longest one too; an erased one as the statement.
#[test]
fn an_export_has_payloads_to_the_byte_and_statements_for_those_that_were_erased() {
    let home = TestHome::new().with_session(1);
    let long = "x".repeat(crate::config::MAX_TEXT_BYTES - 100);
    home.commit(vec![phase("é \u{1}\"\n"), phase(&long), phase("quince marmalade")]);
    home.commit(vec![Op::ErasePayload { entry: EntrySeq(2), at: at(9) }]);
    let lines = exported(&home);
    let conn = rusqlite::Connection::open(home.path()).expect("opens");
    for (seq, line) in (0_i64..2).zip(&lines) {
        let payload: String = conn
            .query_row("SELECT payload FROM ledger_payload WHERE seq = ?1", [seq], |row| row.get(0))
            .expect("reads");
        assert!(line.ends_with(&format!(r#""erased":null,"payload":{payload}}}"#)), "{seq}");
    }
    let erased: serde_json::Value = serde_json::from_str(&lines[2]).expect("JSON");
    assert_eq!((&erased["salt"], &erased["payload"]), (&serde_json::Value::Null, &serde_json::Value::Null));
    let when = at(9).as_millis();
    assert_eq!((erased["erased"]["at"].as_i64(), lines[2].contains("quince")), (Some(when), false));
    let leaf = hex::decode(erased["leaf"].as_str().expect("a leaf")).expect("hex");
    let text = row::erasure_text(2, &leaf, when);
    let signature = hex::decode(erased["erased"]["signature"].as_str().expect("one")).expect("hex");
    assert!(verify_signature(&keys()[0], text.as_bytes(), &signature));
}

/// Whatever a damaged database holds, a line stays one line, and its other fields stay its own.
#[test]
fn a_damaged_payload_breaks_no_line_of_an_export() {
    let home = TestHome::new().with_session(1);
    home.append(2);
    let conn = rusqlite::Connection::open(home.path()).expect("opens");
    conn.execute_batch("DROP TRIGGER ledger_payload_no_update").expect("drops");
    for damage in ["{\n}", "null,\"erased\":{}", "", "}", "not JSON", "{\"a\":1}\r\n{}"] {
        conn.execute("UPDATE ledger_payload SET payload = ?1 WHERE seq = 0", [damage]).expect("changes");
        let lines = exported(&home);
        assert_eq!(lines.len(), 2, "{damage:?}");
        let row: serde_json::Value = serde_json::from_str(&lines[0]).expect("JSON");
        assert_eq!((row["payload"].as_str(), &row["erased"]), (Some(damage), &serde_json::Value::Null));
        assert!(
            !home.store.blocking().ledger_row(EntrySeq(0)).is_ok_and(|row| row.is_some_and(|row| row.intact))
        );
    }
}
