//! The outbox of an engine: what the owner is sent while no client watches reaches a channel.

use std::sync::Arc;

use serde_json::json;
use tokio::sync::mpsc;
use writ_runtime::engine::Join;
use writ_runtime::outbox::{Channel, ChannelFuture, Delivery, OwnerMessage};
use writ_testkit::model_server::{ParsedRequest, Reply};
use writ_types::entry::Fact;
use writ_types::error::Exit;
use writ_types::taint::Taint;

use crate::harness::{ASK_REMEMBER, OWNER, TestEngine, rules};

/// A channel that hands each delivery to the test.
#[derive(Debug)]
pub(crate) struct Forwards(pub(crate) mpsc::Sender<Delivery>);

impl Channel for Forwards {
    fn name(&self) -> &str {
        "test"
    }

    fn deliver<'a>(&'a self, delivery: &'a Delivery) -> ChannelFuture<'a> {
        Box::pin(async move {
            self.0.send(delivery.clone()).await.expect("the test listens");
            Ok(())
        })
    }

    fn report_missed(&self, count: u64) -> ChannelFuture<'_> {
        panic!("{count} were missed")
    }
}

/// Remembers something when it is asked to, tells the owner, and ends.
fn working(request: &ParsedRequest) -> Reply {
    match (request.last_user_text().contains("remember"), request.results().count()) {
        (true, 0) => Reply::call("memory_store", json!({ "text": "A fact." })),
        (_, 1) => Reply::call("tell_user", json!({ "text": "Halfway." })),
        _ => Reply::text("Done."),
    }
}

#[test]
fn what_the_owner_is_sent_while_no_client_watches_reaches_a_channel_and_nothing_else_does() {
    let (sender, mut deliveries) = mpsc::channel(16);
    let change = move |parts: &mut writ_runtime::services::EngineParts| {
        parts.channels.push(Arc::new(Forwards(sender)));
        parts.rules = rules(ASK_REMEMBER);
    };
    let engine = TestEngine::with(change, |_| working);
    engine.runtime.block_on(async {
        // Twin: a client watches.
        assert_eq!(engine.say(None, "hello").await.0, Exit::Done);
        let session = engine.engine.open(OWNER, Join::default()).await.expect("opened");
        let text = "remember it".to_owned();
        engine.engine.receive(OWNER, session, "one".to_owned(), text, Taint::Owner).await.expect("stored");
        let asked = deliveries.recv().await.expect("a delivery");
        let Some(Fact::Asked { ask: id, expires_at: until, .. }) = engine.facts("asked").pop() else {
            panic!("nothing was asked")
        };
        assert_eq!(
            (asked.number, asked.session),
            (1, Some(session)),
            "the watched turn has appended nothing"
        );
        let OwnerMessage::ApprovalRequest { ask, expires_at, .. } = asked.message else {
            panic!("{asked:?}")
        };
        assert_eq!((ask, expires_at), (id, until));
        let said = deliveries.recv().await.expect("a delivery");
        assert!(matches!(&said.message, OwnerMessage::Said { text, .. } if text == "Halfway."), "{said:?}");
        let ended = deliveries.recv().await.expect("a delivery");
        assert!(
            matches!(&ended.message, OwnerMessage::TurnEnded { text, .. } if text == "Done."),
            "{ended:?}"
        );
        assert_eq!((said.number, ended.number), (2, 3));
    });
    engine.end();
}
