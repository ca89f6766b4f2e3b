//! Sessions, frames, history, usage, settings.

use serde_json::json;
use writ_policy::budget::BudgetConfig;
use writ_types::action::{MemoryKind, Remember};
use writ_types::chat::{FileRef, Part, Role, Usage};
use writ_types::digest::Digest;
use writ_types::entry::Fact;
use writ_types::error::Exit;
use writ_types::taint::{Label, Taint};
use writ_types::unit::{MicroUsd, Timestamp, Tokens};

use super::*;
use crate::approvals::AskState;
use crate::batch::{NewMemory, Op, UsageDelta};
use crate::compaction::Compaction;
use crate::files::MessageFile;
use crate::testing::*;

fn said(session_number: u128, n: i64) -> Op {
    let parts = vec![Part::Text { text: format!("message {n}") }];
    Op::Chronicle(Box::new(NewChronicle {
        session: session(session_number),
        turn: Some(turn(1)),
        turn_number: 1,
        at: at(n),
        message: ChatMessage { role: Role::User, parts, label: Label::new(Taint::Owner) },
    }))
}

fn texts(rows: &[ChronicleRow]) -> Vec<String> {
    rows.iter()
        .flat_map(|row| &row.message.parts)
        .map(|part| match part {
            Part::Text { text } => text.clone(),
            Part::Call(_) | Part::Result(_) | Part::Reasoning(_) | Part::File(_) => String::new(),
        })
        .collect()
}

/// Rows: SCL-037
#[test]
fn the_newest_messages_of_one_session_come_back_in_order() {
    let home = TestHome::new().with_session(1).with_session(2);
    home.commit((0..80).map(|n| said(1, n)).collect());
    home.commit(vec![said(2, 1_000)]);
    let home = home.reopened();
    let newest = |limit| texts(&home.store.blocking().recent_after(session(1), 0, limit).expect("reads"));
    let expected: Vec<String> = (30..80).map(|n| format!("message {n}")).collect();
    assert_eq!(newest(50), expected);
    assert_eq!(newest(10), expected[40..]);
    let before = home.store.blocking().recent_after(session(1), 0, 80).expect("reads");
    home.commit(vec![said(1, 81)]);
    assert_eq!(
        home.store.blocking().recent_after(session(1), 0, 81).expect("reads")[..80],
        before[..],
        "the prefix stays"
    );
    let conn = Connection::open(home.path()).expect("opens");
    assert!(conn.execute("UPDATE chronicle SET message = '{}'", []).is_err(), "append-only");
    assert!(conn.execute("DELETE FROM chronicle", []).is_err(), "append-only");
}

/// Rows: SCL-038
#[test]
fn a_session_is_made_once_and_knows_when_something_happened() {
    let home = TestHome::new().with_session(1);
    assert!(matches!(
        home.try_commit(vec![new_session(1)]),
        Err(StoreError::Conflict(Conflict::Exists { what: "session", .. }))
    ));
    home.commit(vec![said(1, 7)]);
    home.commit(vec![said(1, 3)]);
    let found = home.store.blocking().session(session(1)).expect("reads").expect("there");
    assert_eq!((found.created_at, found.updated_at), (at(0), at(7)), "time does not go back");
    assert_eq!(home.store.blocking().session(session(9)), Ok(None));
    assert_eq!(home.store.blocking().sessions(10).expect("reads").len(), 1);
    assert!(home.try_commit(vec![said(9, 1)]).is_err());
}

/// Rows: SCL-039 (that it is kept)
#[test]
fn metadata_is_kept_key_by_key() {
    let home = TestHome::new().with_session(1);
    let set = |key: &str, value| Op::SetSessionMetadata { session: session(1), key: key.to_owned(), value };
    home.commit(vec![set("a", Some(json!(1))), set("b", Some(json!([true])))]);
    home.commit(vec![set("a", None)]);
    let found = home.reopened().store.blocking().session(session(1)).expect("reads").expect("there");
    assert_eq!(found.metadata, BTreeMap::from([("b".to_owned(), json!([true]))]));
}

#[test]
fn frames_are_numbered_per_session_for_resuming() {
    let home = TestHome::new().with_session(1).with_session(2);
    let frame = |n: u128, text: &str| Op::Frame {
        session: session(n),
        frame: Box::new(ServerFrame::Status { text: text.to_owned() }),
    };
    let receipt = home.commit(vec![frame(1, "a"), frame(2, "b"), frame(1, "c")]);
    assert_eq!(receipt.frames.iter().map(|frame| frame.seq).collect::<Vec<_>>(), [1, 1, 2]);
    let home = home.reopened();
    assert_eq!(home.commit(vec![frame(1, "d")]).frames[0].seq, 3);
    let missed = home.store.blocking().frames_after(session(1), 1, 10).expect("reads");
    assert_eq!(missed.iter().map(|frame| frame.seq).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(missed[0].frame, ServerFrame::Status { text: "c".to_owned() });
}

fn used(session_number: u128, tokens: u64, millis: i64) -> Op {
    Op::AddUsage(UsageDelta {
        session: Some(session(session_number)),
        at: at(millis),
        usage: Usage { input: Tokens::new(tokens), output: Tokens::new(1), ..Usage::default() },
        cost: MicroUsd::new(10),
        tool_calls: 2,
        model_calls: 1,
    })
}

/// Rows: SCL-041
#[test]
fn usage_adds_up_per_session_and_day_and_goes_on_after_a_restart() {
    const DAY: i64 = 86_400_000;
    let home = TestHome::new().with_session(1).with_session(2);
    home.commit(vec![used(1, 100, 0), used(2, 50, 0)]);
    let home = home.reopened();
    home.commit(vec![used(1, 1, 0), used(1, 1_000, DAY)]);
    let own = home.store.blocking().session_usage(session(1)).expect("reads");
    assert_eq!(
        (own.usage.input, own.usage.output, own.cost),
        (Tokens::new(1_101), Tokens::new(3), MicroUsd::new(30))
    );
    assert_eq!((own.tool_calls, own.model_calls), (6, 3));
    assert_eq!(home.store.blocking().day_usage(at(0)).expect("reads").usage.input, Tokens::new(151));
    assert_eq!(home.store.blocking().day_usage(at(DAY)).expect("reads").usage.input, Tokens::new(1_000));
    home.commit(vec![used(1, u64::MAX, 0), used(1, u64::MAX, 0)]);
    let full = home.store.blocking().session_usage(session(1)).expect("reads").usage.input;
    assert_eq!(full, Tokens::new(i64::MAX.unsigned_abs()), "saturates");
}

/// What was used is counted to the date that the budget gives it.
///
/// Rows: WIN-051
#[test]
fn the_days_counter_begins_anew_at_the_time_that_is_set_and_not_at_midnight() {
    let home = TestHome::new();
    let five = BudgetConfig { day_starts_at_minute: 5 * 60, ..BudgetConfig::default() };
    let time =
        |day: i64, hour: i64, minute: i64| Timestamp::from_millis(((day * 24 + hour) * 60 + minute) * 60_000);
    let usage = Usage { input: Tokens::new(100), ..Usage::default() };
    home.commit(vec![Op::AddUsage(UsageDelta {
        session: None,
        at: five.start_of_day(time(1, 23, 0)),
        usage,
        cost: MicroUsd::ZERO,
        tool_calls: 0,
        model_calls: 1,
    })]);
    let tokens = |now| {
        home.store.blocking().day_usage(five.start_of_day(now)).expect("reads").usage.total_tokens().get()
    };
    let evening_and_night = [time(1, 23, 59), time(2, 0, 0), time(2, 4, 59)];
    assert_eq!(evening_and_night.map(tokens), [100; 3], "midnight changes nothing");
    assert_eq!(tokens(time(2, 5, 0)), 0);
    assert_eq!(five.day_begins(time(2, 4, 59)), time(1, 5, 0));
    assert_eq!(five.day_begins(time(2, 5, 0)), time(2, 5, 0));
}

#[test]
fn counters_saturate_and_are_found_by_prefix() {
    let home = TestHome::new();
    let add = |name: &str, by| Op::AddCounter { name: name.to_owned(), by };
    assert_eq!(home.commit(vec![add("limit:a", 2), add("limit:a", 3), add("other", 1)]).counters, [2, 5, 1]);
    assert_eq!(home.commit(vec![add("limit:b", u64::MAX)]).counters, [i64::MAX.unsigned_abs()]);
    assert_eq!(home.store.blocking().counter("limit:a"), Ok(5));
    assert_eq!(home.store.blocking().counter("none"), Ok(0));
    let names: Vec<String> =
        home.store.blocking().counters("limit:").expect("reads").into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["limit:a", "limit:b"]);
}

/// What is reserved counts at once, so that two uses together cannot pass the limit; what was used takes its place.
#[test]
fn a_reserved_amount_counts_until_it_is_settled() {
    let home = TestHome::new();
    let reserve = |by| Op::ReserveCounter { name: "quota".to_owned(), by, most: 10 };
    let settle = |reserved, used| Op::SettleCounter { name: "quota".to_owned(), reserved, used };
    let counted = || home.store.blocking().counter("quota").expect("reads");
    home.commit(vec![reserve(6)]);
    assert!(home.try_commit(vec![reserve(5)]).is_err(), "eleven of ten");
    assert_eq!(counted(), 6, "a refused one takes nothing");
    home.commit(vec![reserve(4)]);
    assert_eq!(home.commit(vec![settle(6, 1)]).counters, [5]);
    assert_eq!(
        home.commit(vec![settle(4, 30), settle(100, 2)]).counters,
        [31, 2],
        "a use may be larger; less than none is none"
    );
    assert!(home.try_commit(vec![reserve(u64::MAX)]).is_err(), "no sum begins again at zero");
}

#[test]
fn settings_and_the_epoch_are_kept() {
    let home = TestHome::new();
    assert_eq!(home.store.blocking().epoch(), Ok(crate::settings::FIRST_EPOCH));
    home.commit(vec![Op::Set { key: crate::settings::EPOCH.to_owned(), value: json!(4) }]);
    let home = home.reopened();
    assert_eq!(home.store.blocking().epoch(), Ok(4));
    assert_eq!(home.store.blocking().setting("none"), Ok(None));
}

/// What is written beside a reply, by other turns too, stands before it or after it; the reply names the one before.
#[test]
fn a_reply_rests_on_what_stands_before_it() {
    let home = TestHome::new().with_session(1);
    home.append(3);
    let label = Label::new(Taint::External);
    let (turn, from, text) = (turn(1), EntrySeq(1), Digest::of_bytes(b"done"));
    let reply = Op::Reply {
        entry: Box::new(entry(Fact::Replied { from, to: from, text, label: label.clone() })),
        session: session(1),
        frame: Box::new(ServerFrame::Message {
            turn,
            text: "done".to_owned(),
            taint: label.taint,
            entries: (from, from),
            last: true,
            exit: Exit::Done,
            answers: Vec::new(),
        }),
    };
    let receipt = home.commit(vec![phase("a"), phase("b"), reply, phase("c")]);
    assert_eq!(receipt.rests_on, Some(EntrySeq(4)));
    assert_eq!(receipt.entries, [3, 4, 5, 6].map(EntrySeq));
    let row =
        home.store.blocking().ledger_tail(2).expect("reads").into_iter().find(|row| row.seq == EntrySeq(5));
    let replied = row.and_then(|row| row.entry()).map(|entry| entry.fact);
    assert_eq!(replied, Some(Fact::Replied { from, to: EntrySeq(4), text, label }));
    let frames = home.store.blocking().frames_after(session(1), 0, 10).expect("reads");
    let ServerFrame::Message { entries, .. } = &frames[0].frame else { panic!("a message") };
    assert_eq!(*entries, (from, EntrySeq(4)));
}

/// A copy has the history up to a turn, with its labels and entries, and goes on with the next number.
#[test]
fn a_fork_copies_the_history_up_to_a_turn() {
    let home = TestHome::new().with_session(1);
    let in_turn = |number: u64, text: &str| {
        let parts = vec![Part::Text { text: text.to_owned() }];
        Op::Chronicle(Box::new(NewChronicle {
            session: session(1),
            turn: None,
            turn_number: number,
            at: at(5),
            message: ChatMessage { role: Role::User, parts, label: Label::new(Taint::External) },
        }))
    };
    home.commit(vec![in_turn(1, "first"), in_turn(2, "second"), in_turn(3, "third")]);
    let fork = |until: u64, to: u128| {
        let to = NewSessionRow {
            id: session(to),
            created_at: at(9),
            project: Some("/p".to_owned()),
            metadata: BTreeMap::new(),
        };
        Op::Sessions(SessionOp::Fork { from: session(1), until, to })
    };
    home.commit(vec![fork(2, 2)]);
    let copied = home.store.blocking().chronicle_page(session(2), 0, 10).expect("reads");
    assert_eq!(texts(&copied), ["first", "second"]);
    assert!(copied.iter().all(|row| row.message.label.taint == Taint::External && row.turn.is_none()));
    let row = home.store.blocking().session(session(2)).expect("reads").expect("is there");
    // The session that was copied had opened no turn: numbers are never ahead of it.
    assert_eq!((row.turn_number, row.project.as_deref()), (0, Some("/p")));
    let untouched = home.store.blocking().chronicle_page(session(1), 0, 10).expect("reads");
    assert_eq!(texts(&untouched), ["first", "second", "third"]);
    assert!(
        home.try_commit(vec![fork(1, 2)]).expect_err("refused").to_string().contains("is there already"),
        "twice"
    );
}

fn note(session_number: u128, key: &str, value: Value) -> Op {
    Op::SetSessionMetadata { session: session(session_number), key: key.to_owned(), value: Some(value) }
}

fn summary(session_number: u128, upto: u64, kept: Vec<u64>) -> Compaction {
    Compaction {
        session: session(session_number),
        number: 1,
        at: at(3),
        upto,
        summary: "They spoke of the quagga.".to_owned(),
        label: Label::new(Taint::Owner),
        written_by: "harness".to_owned(),
        kept,
        messages: 2,
        tokens_before: Tokens::new(9),
        tokens_after: Tokens::new(4),
        remembered: 0,
        reason: "asked".to_owned(),
        entry: None,
    }
}

fn picture(session_number: u128) -> MessageFile {
    picture_of(session_number, b'.')
}

fn picture_of(session_number: u128, byte: u8) -> MessageFile {
    let content = [b"GIF89a...".as_slice(), &[byte], b";"].concat();
    let file = FileRef::describe_file("quagga.gif", &content).expect("an image");
    MessageFile { session: session(session_number), at: at(1), file, content }
}

/// A copy begins with the summary that stands for its messages, has their files, and its pins name its own rows.
#[test]
fn a_copy_has_the_summary_the_files_and_the_pins_of_its_messages() {
    let home = TestHome::new().with_session(1).with_session(2);
    let said_in = |turn_number: u64, n: i64| {
        let Op::Chronicle(row) = said(1, n) else { panic!("a message") };
        Op::Chronicle(Box::new(NewChronicle { turn_number, ..*row }))
    };
    let shows = |turn_number: u64, n: i64, file: &MessageFile| {
        let Op::Chronicle(mut row) = said_in(turn_number, n) else { panic!("a message") };
        row.message.parts = vec![Part::Text { text: format!("Look:\n{}", file.file.to_line()) }];
        Op::Chronicle(row)
    };
    let (second, third) = (picture_of(1, b'2'), picture_of(1, b'3'));
    home.commit(vec![
        said(2, 0),
        shows(1, 1, &picture(1)),
        said_in(1, 2),
        said_in(2, 3),
        said(2, 4),
        shows(3, 5, &second),
    ]);
    let rows: Vec<u64> = home
        .store
        .blocking()
        .chronicle_page(session(1), 0, 9)
        .expect("reads")
        .iter()
        .map(|row| row.n)
        .collect();
    home.commit(vec![
        Op::Compact(Box::new(summary(1, rows[1], vec![rows[0]]))),
        Op::Compact(Box::new(Compaction {
            number: 2,
            summary: "later".into(),
            ..summary(1, rows[3], vec![])
        })),
        Op::StoreFile(Box::new(picture(1))),
        Op::StoreFile(Box::new(second.clone())),
        Op::StoreFile(Box::new(third.clone())),
    ]);
    let pins = BTreeMap::from([(CONTEXT_PINS.to_owned(), json!([rows[1], rows[2], rows[3]]))]);
    let to = NewSessionRow { id: session(3), created_at: at(9), project: None, metadata: pins };
    home.commit(vec![Op::Sessions(SessionOp::Fork { from: session(1), until: 2, to })]);
    let read = home.store.blocking();
    let copied: Vec<u64> =
        read.chronicle_page(session(3), 0, 9).expect("reads").iter().map(|row| row.n).collect();
    assert_eq!(copied.len(), 3);
    let expected = Compaction { session: session(3), ..summary(1, copied[1], vec![copied[0]]) };
    assert_eq!(read.newest_compaction(session(3)), Ok(Some(expected)), "the later one covers a later turn");
    let has = |file: &MessageFile| read.message_file(session(3), file.file.digest).expect("reads").is_some();
    assert_eq!(
        [has(&picture(3)), has(&second), has(&third)],
        [true, false, false],
        "of a later turn, and of none"
    );
    let row = read.session(session(3)).expect("reads").expect("is there");
    assert_eq!(row.metadata[CONTEXT_PINS], json!([copied[1], copied[2]]), "the third was not copied");
}

/// A session of the engine is in no list, and is found as what it is until it is closed.
#[test]
fn a_session_of_the_engine_is_in_no_list() {
    let home = TestHome::new().with_session(1).with_session(2);
    home.commit(vec![note(2, SURFACE, INTERNAL.into()), said(2, 9)]);
    let read = home.store.blocking();
    let listed: Vec<SessionId> = read.sessions(10).expect("reads").iter().map(|row| row.id).collect();
    assert_eq!(listed, [session(1)]);
    assert_eq!(read.internal_session().expect("reads").map(|row| row.id), Some(session(2)));
    home.commit(vec![note(2, CLOSED_AT, "2026-01-01T00:00:00Z".into())]);
    assert_eq!(home.store.blocking().internal_session(), Ok(None));
}

const LONG_AGO: &str = "2001-01-01T00:00:00.000Z";

/// What was deleted is erased as a whole, and nothing else: the history stays append-only.
#[test]
fn only_a_deleted_session_is_erased() {
    let home = TestHome::new().with_session(1).with_session(2);
    home.commit(vec![said(1, 1), said(1, 2), said(2, 3)]);
    let frame = Box::new(ServerFrame::Status { text: "message 9".to_owned() });
    home.commit(vec![Op::Frame { session: session(1), frame }]);
    let erase = || vec![Op::Sessions(SessionOp::Erase { session: session(1), at: at(50) })];
    assert!(home.try_commit(erase()).expect_err("refused").to_string().contains("is not deleted"));
    home.commit(vec![note(1, DELETED_AT, LONG_AGO.into())]);
    assert!(
        home.try_commit(erase()).expect_err("refused").to_string().contains("is not deleted"),
        "not closed"
    );
    home.commit(vec![note(1, CLOSED_AT, LONG_AGO.into()), note(1, "title", "x".into())]);
    home.commit([receive(1, 1, "a"), vec![open_turn(1, 1, 1)]].concat());
    assert!(home.try_commit(erase()).expect_err("refused").to_string().contains("is not over"));
    home.commit(vec![Op::CloseTurn { turn: turn(1), at: at(5), state: "finished".to_owned() }]);
    home.commit(erase());
    let keys = |home: &TestHome| {
        let row = home.store.blocking().session(session(1)).expect("reads").expect("stays");
        row.metadata.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(keys(&home), [CLOSED_AT, DELETED_AT, ERASING_AT]);
    let read = home.store.blocking();
    assert!(read.chronicle_page(session(1), 0, 10).expect("reads").is_empty());
    assert!(read.frames_after(session(1), 0, 10).expect("reads").is_empty());
    assert_eq!(texts(&read.chronicle_page(session(2), 0, 10).expect("reads")), ["message 3"]);
    let conn = Connection::open(home.path()).expect("opens");
    assert!(conn.execute("DELETE FROM chronicle WHERE session = ?1", [session(2).to_string()]).is_err());
    let renamed = home.try_commit(vec![note(1, "title", "written back".into())]);
    assert!(renamed.expect_err("refused").to_string().contains("was erased"));
}

/// A conversation leaves its text in many tables: none of them has it after an erasure.
#[test]
fn an_erased_session_leaves_no_text_in_any_table() {
    let home = TestHome::new().with_session(1);
    let episode = NewMemory {
        item: Remember {
            memory_kind: MemoryKind::Episode,
            ..memory(1, "the quagga is striped", Some(session(1))).item
        },
        ..memory(1, "", None)
    };
    let mut asked = ask(1, "the quagga");
    asked.card.shown = "look for the quagga".to_owned();
    home.commit(vec![
        Op::Compact(Box::new(summary(1, 0, vec![]))),
        Op::StoreFile(Box::new(picture(1))),
        Op::Remember(Box::new(episode)),
        Op::OpenAsk(Box::new(asked)),
        note(1, DELETED_AT, LONG_AGO.into()),
        note(1, CLOSED_AT, LONG_AGO.into()),
    ]);
    let conn = Connection::open(home.path()).expect("opens");
    conn.execute_batch(&format!(
        "INSERT INTO work_item VALUES ('i', 'n', 'task', 'quagga', 's', '{id}', NULL, NULL, 'done', 0, 1, 'quagga', 'quagga',
             NULL, 0, 0, 'quagga', NULL, NULL, 0, 0, 'external', '[]');
         INSERT INTO work_step VALUES ('i', 0, 'a', 'quagga', '[]', 1, 1, 'quagga', 'done');
         INSERT INTO work_attempt (item, step, n, state, began_at, ended_at, exit, said, verdict, trace, evidence)
             VALUES ('i', 0, 1, 'judged', 0, 1, 0, 'quagga', '', '', 'quagga');",
        id = session(1)
    ))
    .expect("a finished item");
    let end = || vec![Op::Sessions(SessionOp::EndErasure { session: session(1), at: at(60) })];
    home.commit(vec![Op::Sessions(SessionOp::Erase { session: session(1), at: at(50) })]);
    assert!(home.try_commit(end()).is_err(), "its ask is open");
    assert_eq!(home.store.blocking().sessions_to_erase(at(0), 9), Ok(vec![session(1)]), "it is tried again");
    home.commit(vec![Op::ResolveAsk {
        ask: ask_id(1),
        state: AskState::Expired,
        at: at(5),
        by: "engine".to_owned(),
        reason: "the quagga is gone".to_owned(),
    }]);
    home.commit(vec![Op::Sessions(SessionOp::Erase { session: session(1), at: at(51) })]);
    let remains = home.store.blocking().session_remains(session(1), at(51)).expect("reads");
    assert_eq!((remains.waiting, remains.lasting), (0, 0));
    home.commit(
        remains.erasable.iter().map(|entry| Op::ErasePayload { entry: *entry, at: at(52) }).collect(),
    );
    home.commit(end());
    assert_eq!(home.store.blocking().sessions_to_erase(at(0), 9), Ok(vec![]));
    let tables: Vec<String> = {
        let mut names = conn.prepare("SELECT name FROM sqlite_master WHERE type = 'table'").expect("reads");
        let rows = names.query_map([], |row| row.get(0)).expect("reads");
        rows.collect::<Result<_, _>>().expect("names")
    };
    for table in tables {
        let mut all = conn.prepare(&format!("SELECT * FROM \"{table}\"")).expect("reads");
        let columns = all.column_count();
        let mut rows = all.query([]).expect("reads");
        while let Some(row) = rows.next().expect("reads") {
            for n in 0..columns {
                let bytes = match row.get_ref(n).expect("reads") {
                    rusqlite::types::ValueRef::Text(bytes) | rusqlite::types::ValueRef::Blob(bytes) => bytes,
                    rusqlite::types::ValueRef::Null
                    | rusqlite::types::ValueRef::Integer(_)
                    | rusqlite::types::ValueRef::Real(_) => continue,
                };
                assert!(!String::from_utf8_lossy(bytes).contains("quagga"), "column {n} of {table}");
            }
        }
    }
}

/// All words must be in one message; deleted sessions are not looked through.
///
/// Rows: WIN-199 (in part: a past message is found, and none of a deleted session; without an index)
#[test]
fn a_search_finds_messages_by_all_their_words() {
    let home = TestHome::new().with_session(1).with_session(2);
    let words = |home: &TestHome, words: &[&str], limit: usize| {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let found = home.store.blocking().search_chronicle(&words, limit).expect("reads");
        let rows: Vec<ChronicleRow> = found.rows.into_iter().map(|(_, row)| row).collect();
        (texts(&rows), found.more)
    };
    home.commit(vec![said(1, 1), said(1, 12), said(2, 13)]);
    assert_eq!(
        words(&home, &["message", "1"], 10),
        (vec!["message 13".into(), "message 12".into(), "message 1".into()], false)
    );
    assert_eq!(words(&home, &["12", "13"], 10), (Vec::new(), false));
    assert_eq!(words(&home, &["message"], 1), (vec!["message 13".into()], true));
    let value = Some(json!("2026-01-01T00:00:00Z"));
    home.commit(vec![Op::SetSessionMetadata { session: session(2), key: DELETED_AT.to_owned(), value }]);
    assert_eq!(words(&home, &["13"], 10), (Vec::new(), false));
}
