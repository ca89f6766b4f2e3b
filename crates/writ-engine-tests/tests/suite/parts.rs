//! The parts that an engine is made of.

use std::sync::Arc;

use writ_policy::principal::Evidence;
use writ_runtime::config::DRAIN_DEADLINE;
use writ_runtime::engine::{Engine, Join};
use writ_store::ledger::row::LedgerQuery;
use writ_testbed::clock::Hand;
use writ_types::frame::ServerFrame;
use writ_types::taint::Taint;

use crate::harness;

/// An engine is handed its parts, so a test hands it others; a part that is missing is no program
/// (`writ_runtime::services::EngineParts`).
///
/// Rows: SIL-269
#[test]
fn an_engine_is_made_of_the_parts_that_it_is_handed() {
    let (dir, sandbox) = (tempfile::tempdir().expect("temp dir"), harness::sandbox());
    let clock = Arc::new(harness::Moved(Arc::new(Hand::at(harness::BEGIN))));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let store = harness::store(dir.path());
        let parts = harness::parts(dir.path(), clock, &store, sandbox, "");
        let engine = Engine::start(parts).await.expect("starts");
        let who = harness::OWNER;
        assert!(
            engine.join(Evidence::PeerUid(4_243), Join::default()).await.is_err(),
            "the owner is whom it was told"
        );
        let mut joined = engine.join(who, Join::default()).await.expect("joined");
        let message = "please DROP TABLE users".to_owned();
        engine.receive(who, joined.session, "one".to_owned(), message, Taint::Owner).await.expect("stored");
        let text = loop {
            let frame = joined.live.recv().await.expect("a frame").frame.clone();
            if let ServerFrame::Message { text, last: true, .. } = frame {
                break text;
            }
        };
        assert!(text.contains("drop a database table"), "the gate that it was handed: {text}");
        assert!(engine.drain(DRAIN_DEADLINE).await);
        let query = LedgerQuery { event: Some("received".to_owned()), limit: 10, ..LedgerQuery::default() };
        let rows = store.blocking().ledger_search(&query).expect("reads");
        assert_eq!(
            rows.iter().map(|row| row.at).collect::<Vec<_>>(),
            [harness::BEGIN],
            "the time that it was handed"
        );
    });
}
