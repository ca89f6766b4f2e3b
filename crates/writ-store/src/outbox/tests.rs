//! The outbox: written with its entries, read after a channel's cursor, bounded.

use serde_json::json;

use super::*;
use crate::batch::Op;
use crate::testing::{TestHome, at, phase, session};

fn message(text: &str, millis: i64) -> NewOutboxMessage {
    NewOutboxMessage {
        recipient: "owner".to_owned(),
        session: Some(session(1)),
        at: at(millis),
        kind: "notice".to_owned(),
        body: json!({ "text": text }),
    }
}

fn append(text: &str, millis: i64) -> Op {
    Op::Outbox(OutboxOp::Append(Box::new(message(text, millis))))
}

fn advance(channel: &str, number: u64) -> Op {
    Op::Outbox(OutboxOp::Advance { channel: channel.to_owned(), number, at: at(0) })
}

fn page(home: &TestHome, channel: &str, limit: usize) -> OutboxPage {
    home.store.blocking().outbox_after_cursor(channel, limit).expect("reads")
}

fn texts(page: &OutboxPage) -> Vec<&str> {
    page.messages.iter().filter_map(|one| one.message.body.pointer("/text")?.as_str()).collect()
}

#[test]
fn messages_are_written_with_their_entries_or_not_at_all() {
    let home = TestHome::new();
    let receipt = home.commit(vec![phase("a"), append("one", 1), phase("b"), append("two", 2)]);
    assert_eq!(receipt.outbox, [1, 2]);
    let refused = home.try_commit(vec![phase("c"), append("three", 3), advance("mail", 9)]);
    assert!(matches!(refused, Err(StoreError::Conflict(Conflict::Missing { .. }))), "{refused:?}");
    let both = OutboxPage {
        messages: vec![
            OutboxMessage { number: 1, entry: Some(EntrySeq(0)), message: message("one", 1) },
            OutboxMessage { number: 2, entry: Some(EntrySeq(1)), message: message("two", 2) },
        ],
        missed: 0,
    };
    assert_eq!(page(&home, "mail", 10), both);
    assert_eq!(page(&home, "mail", 1).messages, both.messages[..1]);
}

#[test]
fn each_channel_has_a_cursor_of_its_own_that_survives_and_does_not_go_back() {
    let home = TestHome::new();
    home.commit(vec![append("one", 1), append("two", 2), append("three", 3)]);
    home.commit(vec![advance("mail", 2), advance("page", 1)]);
    home.commit(vec![advance("mail", 1)]);
    let home = home.reopened();
    assert_eq!(texts(&page(&home, "mail", 10)), ["three"]);
    assert_eq!(texts(&page(&home, "page", 10)), ["two", "three"]);
    assert_eq!(texts(&page(&home, "new", 10)), ["one", "two", "three"]);
    assert_eq!(home.store.blocking().outbox_cursor("mail"), Ok(2));
    home.commit(vec![Op::Outbox(OutboxOp::RemoveChannel { channel: "mail".to_owned() })]);
    assert_eq!(home.store.blocking().outbox_cursor("mail"), Ok(0));
}

#[test]
fn the_outbox_is_bounded_and_a_channel_is_told_how_many_it_missed() {
    let home = TestHome::new();
    home.commit(vec![append("first", 1), advance("mail", 1)]);
    let many = |count: u64| (0..count).map(|n| append(&n.to_string(), 2)).collect::<Vec<_>>();
    for _ in 0..5 {
        home.commit(many(2_001));
    }
    let behind = page(&home, "mail", 1);
    assert_eq!((behind.missed, behind.messages[0].number), (5, 7), "of 10,006 the newest 10,000 are there");
    assert_eq!(page(&home, "new", 1).missed, 6);
    home.commit(vec![advance("mail", 10_006)]);
    assert_eq!(page(&home, "mail", 10), OutboxPage::default());
    let large = NewOutboxMessage { body: json!("x".repeat(MAX_BODY_BYTES)), ..message("", 1) };
    let refused = home.try_commit(vec![Op::Outbox(OutboxOp::Append(Box::new(large)))]);
    assert!(matches!(refused, Err(StoreError::TooLarge { .. })), "{refused:?}");
}

#[test]
fn old_messages_are_pruned_and_their_numbers_are_not_used_again() {
    let home = TestHome::new();
    home.commit(vec![append("one", 10), append("two", 20), append("three", 15), append("four", 30)]);
    let prune = |before| Op::Outbox(OutboxOp::Prune { before: at(before) });
    assert_eq!(home.commit(vec![prune(18)]).changed, 1, "no gap behind one that is young");
    assert_eq!(texts(&page(&home, "mail", 10)), ["two", "three", "four"]);
    assert_eq!(home.commit(vec![prune(100)]).changed, 3);
    assert_eq!(page(&home, "mail", 10), OutboxPage { messages: Vec::new(), missed: 4 });
    let home = home.reopened();
    assert_eq!(home.commit(vec![append("five", 40)]).outbox, [5]);
}

#[test]
fn channels_are_bounded() {
    let home = TestHome::new();
    home.commit(vec![append("one", 1)]);
    home.commit((0..MAX_CHANNELS).map(|n| advance(&format!("channel {n}"), 1)).collect());
    let refused = home.try_commit(vec![advance("one too many", 1)]);
    assert_eq!(refused, Err(StoreError::TooLarge { what: "number of channels", limit: MAX_CHANNELS }));
    home.commit(vec![advance("channel 1", 1)]);
}
