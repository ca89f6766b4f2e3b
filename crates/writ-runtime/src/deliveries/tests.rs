//! Deliveries over a real store, with a channel that the test answers for.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ed25519_dalek::SigningKey;
use tokio::sync::mpsc;
use writ_inspect::redact::Redactor;
use writ_policy::budget::BudgetConfig;
use writ_store::config::StoreConfig;
use writ_store::outbox::NewOutboxMessage;
use writ_store::store::Store;
use writ_types::error::Exit;
use writ_types::id::{AskId, TurnId};
use writ_types::taint::Taint;
use writ_types::unit::Timestamp;

use super::*;
use crate::clock::SystemClock;
use crate::outbox::ChannelFuture;

const AT: Timestamp = Timestamp::from_millis(1_000_000_000_000);

/// The answer of the channel to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Takes,
    IsDown,
    Refuses,
    /// It takes the message that begins so and never says so; all others as they come.
    HangsAt(&'static str),
}

/// A channel that notes what reaches it.
#[derive(Debug)]
struct TestChannel {
    manner: Mutex<Manner>,
    reached: mpsc::Sender<String>,
}

impl TestChannel {
    fn new() -> (Self, mpsc::Receiver<String>) {
        let (reached, deliveries) = mpsc::channel(4_096);
        (Self { manner: Mutex::new(Manner::Takes), reached }, deliveries)
    }

    fn set(&self, manner: Manner) {
        *self.manner.lock().unwrap_or_else(PoisonError::into_inner) = manner;
    }

    fn answer(&self, what: String) -> ChannelFuture<'_> {
        let manner = *self.manner.lock().unwrap_or_else(PoisonError::into_inner);
        let report = Report::new(Exit::Blocked, "test.channel", "the channel does not answer");
        Box::pin(async move {
            match manner {
                Manner::IsDown => return Err(DeliveryError::NotNow(report)),
                Manner::Refuses => return Err(DeliveryError::Refused(report)),
                Manner::Takes | Manner::HangsAt(_) => {}
            }
            let hangs = matches!(manner, Manner::HangsAt(start) if what.starts_with(start));
            self.reached.send(what).await.expect("the test listens");
            if hangs {
                std::future::pending::<()>().await;
            }
            Ok(())
        })
    }
}

impl Channel for TestChannel {
    fn name(&self) -> &str {
        "test"
    }

    fn deliver<'a>(&'a self, delivery: &'a Delivery) -> ChannelFuture<'a> {
        let OwnerMessage::Said { text: what, .. } = &delivery.message else { panic!("{delivery:?}") };
        self.answer(format!("{} {what}", delivery.number))
    }

    fn report_missed(&self, count: u64) -> ChannelFuture<'_> {
        self.answer(format!("missed {count}"))
    }
}

async fn journal(folder: &Path) -> Journal {
    let signer = Arc::new(SigningKey::from_bytes(&[2; 32]));
    let store = Store::open(&StoreConfig::new(folder.join("writ.db")), signer).expect("opens");
    Journal::new(store, Arc::new(SystemClock), Redactor::default(), BudgetConfig::default())
        .await
        .expect("reads")
}

fn said(text: &str) -> NewOutboxMessage {
    let turn = TurnId::from_parts(AT, 1);
    let message = OwnerMessage::Said { turn, text: text.to_owned(), taint: Taint::Owner };
    written(&message)
}

fn written(message: &OwnerMessage) -> NewOutboxMessage {
    NewOutboxMessage {
        recipient: Recipient::Owner.to_string(),
        session: None,
        at: AT,
        kind: message.kind().to_owned(),
        body: serde_json::to_value(message).expect("written"),
    }
}

async fn append(journal: &Journal, messages: impl IntoIterator<Item = NewOutboxMessage>) {
    let ops = messages.into_iter().map(|message| Op::Outbox(OutboxOp::Append(Box::new(message))));
    journal.store.commit(Batch::relaxed(ops.collect())).await.expect("written");
}

fn drain(deliveries: &mut mpsc::Receiver<String>) -> Vec<String> {
    std::iter::from_fn(|| deliveries.try_recv().ok()).collect()
}

#[tokio::test]
async fn messages_come_in_order_once_and_a_channel_that_was_down_gets_them_later() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = journal(folder.path()).await;
    let (channel, mut deliveries) = TestChannel::new();
    append(&journal, ["a", "b"].map(said)).await;
    channel.set(Manner::IsDown);
    let down = deliver_messages(&journal, &channel).await;
    assert!(matches!(down, Err(EngineError::Channel(report)) if report.code == "test.channel"));
    assert_eq!(journal.store.outbox_cursor("test").await.expect("reads"), 0, "nothing is skipped");
    channel.set(Manner::Takes);
    append(&journal, [said("c")]).await;
    for reached in [vec!["1 a", "2 b", "3 c"], vec![]] {
        assert_eq!(deliver_messages(&journal, &channel).await.expect("delivered"), Progress::Complete);
        assert_eq!(drain(&mut deliveries), reached);
    }
}

/// The process is killed after the message has left and before the cursor is advanced.
#[tokio::test]
async fn a_kill_between_delivery_and_advance_delivers_that_message_again_and_no_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let (channel, mut deliveries) = TestChannel::new();
    {
        let journal = journal(folder.path()).await;
        append(&journal, ["a", "b", "c"].map(said)).await;
        // The second leaves, and its delivery is never acknowledged.
        channel.set(Manner::HangsAt("2"));
        let delivering = deliver_messages(&journal, &channel);
        tokio::pin!(delivering);
        let mut reached = Vec::new();
        while reached.len() < 2 {
            tokio::select! {
                biased;
                Some(what) = deliveries.recv() => reached.push(what),
                done = &mut delivering => panic!("it hangs: {done:?}"),
            }
        }
        assert_eq!(reached, ["1 a", "2 b"]);
    }
    channel.set(Manner::Takes);
    let journal = journal(folder.path()).await;
    assert_eq!(journal.store.outbox_cursor("test").await.expect("reads"), 1);
    deliver_messages(&journal, &channel).await.expect("delivered");
    assert_eq!(drain(&mut deliveries), ["2 b", "3 c"], "under the same number");
}

#[tokio::test]
async fn a_message_that_is_refused_or_unknown_or_of_no_use_holds_up_no_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = journal(folder.path()).await;
    let (channel, mut deliveries) = TestChannel::new();
    append(&journal, [said("a")]).await;
    channel.set(Manner::Refuses);
    assert_eq!(deliver_messages(&journal, &channel).await.expect("skipped"), Progress::Complete);
    channel.set(Manner::Takes);
    let answered = OwnerMessage::ApprovalRequest {
        ask: AskId::from_random(7),
        intent: "no longer waits".to_owned(),
        expires_at: AT,
    };
    let later = NewOutboxMessage { body: serde_json::json!({ "kind": "later" }), ..said("") };
    let other = NewOutboxMessage { recipient: "ann".to_owned(), ..said("for ann") };
    append(&journal, [written(&answered), later, other, said("b")]).await;
    deliver_messages(&journal, &channel).await.expect("delivered");
    assert_eq!(drain(&mut deliveries), ["5 b"]);
}

#[tokio::test]
async fn a_channel_that_fell_behind_is_given_the_number_that_it_missed() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = journal(folder.path()).await;
    let (channel, mut deliveries) = TestChannel::new();
    append(&journal, ["a", "b", "c"].map(said)).await;
    let prune = |before| Batch::relaxed(vec![Op::Outbox(OutboxOp::Prune { before })]);
    let late = AT.plus_duration(std::time::Duration::from_millis(1));
    journal.store.commit(prune(late)).await.expect("pruned");
    deliver_messages(&journal, &channel).await.expect("reported");
    assert_eq!(drain(&mut deliveries), ["missed 3"]);
    append(&journal, [said("d")]).await;
    deliver_messages(&journal, &channel).await.expect("delivered");
    assert_eq!(drain(&mut deliveries), ["4 d"], "reported once");
}

#[tokio::test]
async fn one_run_delivers_a_bounded_number_of_messages() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = journal(folder.path()).await;
    let (channel, mut deliveries) = TestChannel::new();
    append(&journal, (0..=PAGE * MAX_PAGES).map(|n| said(&n.to_string()))).await;
    assert_eq!(deliver_messages(&journal, &channel).await.expect("delivered"), Progress::Partial);
    assert_eq!(drain(&mut deliveries).len(), PAGE * MAX_PAGES);
    assert_eq!(deliver_messages(&journal, &channel).await.expect("delivered"), Progress::Complete);
    assert_eq!(drain(&mut deliveries).len(), 1);
}
