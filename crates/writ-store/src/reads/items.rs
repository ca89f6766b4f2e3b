//! Reads of work items.

use std::future::Future;

use writ_types::id::{ItemId, MessageId, SessionId};
use writ_types::work::DomainTag;

use crate::error::StoreError;
use crate::readers::BlockingReads;
use crate::store::Store;
use crate::work::{
    self, DeadAttempt, EvidenceRange, StartedItem, WholeItem, WorkAttempt, WorkItem, WorkLine, WorkStepRow,
};

reads! {
    /// Reads of work items.
    WorkReads {
        /// Returns an item.
        fn work_item(id: ItemId) -> Option<WorkItem> = brief |db| work::read_item(&db.conn, id);

        /// Returns the newest item with this name.
        fn work_item_named(name: &str) -> Option<WorkItem> = |db| work::item_named(&db.conn, &name);

        /// Returns the newest item with steps that run in a session.
        fn work_item_of(session: SessionId) -> Option<WorkItem> =
            brief |db| work::item_of_session(&db.conn, session);

        /// Returns the newest items, all or those with a domain, as lists show them; attempts of the autopilot that are over are left out.
        fn work_lines(domain: Option<DomainTag>, limit: usize) -> Vec<WorkLine> =
            |db| work::lines(&db.conn, domain.as_ref(), limit);

        /// Returns the items that are not over, oldest first.
        fn active_work(limit: usize) -> Vec<ItemId> = |db| work::active_items(&db.conn, limit);

        /// Returns the items that a goal has started and that are not over, oldest first.
        fn children_of(goal: ItemId) -> Vec<ItemId> = brief |db| work::children_of(&db.conn, goal);

        /// Returns the items with a name that a goal has started, also those that are over, oldest first.
        fn started_by(goal: ItemId, name: &str, limit: usize) -> Vec<StartedItem> =
            |db| work::started_by(&db.conn, goal, &name, limit);

        /// Returns an item with its steps and attempts, of one moment; evidence is that of the last two attempts at each step.
        fn whole_work_item(id: ItemId) -> Option<WholeItem> = |db| work::whole_item(&db.conn, id, EvidenceRange::Newest);

        /// The same, with the evidence of as many attempts as people are shown.
        fn shown_work_item(id: ItemId) -> Option<WholeItem> = |db| work::whole_item(&db.conn, id, EvidenceRange::Shown);

        /// Returns the messages of an item's attempts that run and that were set aside without a turn, with the reasons.
        fn dead_attempts(item: ItemId) -> Vec<DeadAttempt> = brief |db| work::dead_attempts(&db.conn, item);

        /// Returns the steps of an item, in the order of its plan.
        fn work_steps(item: ItemId) -> Vec<WorkStepRow> = brief |db| work::read_steps(&db.conn, item);

        /// Returns the attempt that a message opens the turn of.
        fn work_attempt_of(message: MessageId) -> Option<WorkAttempt> =
            brief |db| work::attempt_of(&db.conn, message);
    }
}
