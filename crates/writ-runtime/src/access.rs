//! The access level of a conversation: what its gates have passed is kept with it, and decides which tools it has.

use writ_policy::access::{AccessState, Transition};
use writ_policy::gate::Judged;
use writ_policy::prepared::Prepared;
use writ_policy::principal::Principal;
use writ_store::batch::Op;
use writ_tools::registry::AllowList;
use writ_types::entry::{Fact, GatePoint, GateVerdict};
use writ_types::id::TurnId;
use writ_types::taint::Taint;

use crate::gates::Gates;
use crate::session::{ACCESS, Session};

/// The name of levels in entries of the ledger.
const LEVEL: &str = "access level";

impl Gates {
    /// Gates have judged: what passed may raise the level. What ledger and store must be told.
    pub(crate) fn verified(&self, session: &Session, at: Option<(TurnId, u64)>, judged: &Judged) -> Vec<Op> {
        let Some(access) = &self.config.access else { return Vec::new() };
        let mut state = session.state();
        let before = state.access.clone();
        let transitions = access.passed(&mut state.access, judged.passed(), self.journal.valid_now());
        let after = state.access.clone();
        drop(state);
        self.moved(session, at, (&before, &after), transitions)
    }

    /// Why the level of a conversation does not have the tool of an action, if it does not; and what ledger and store
    /// must be told of a level that is over.
    pub(crate) fn beyond_level(
        &self,
        session: &Session,
        at: Option<(TurnId, u64)>,
        prepared: &Prepared,
    ) -> (Option<(String, GateVerdict, String)>, Vec<Op>) {
        // What no model wished is the harness's own.
        let Some(access) = self.config.access.as_ref().filter(|_| prepared.call.is_some()) else {
            return (None, Vec::new());
        };
        let mut state = session.state();
        let before = state.access.clone();
        let transitions = access.settle(&mut state.access, self.journal.valid_now());
        let after = state.access.clone();
        let who = state.speaker.clone().unwrap_or(Principal::Owner);
        drop(state);
        let mut ops = self.moved(session, at, (&before, &after), transitions);
        // What anybody else has said in the owner's turn is external, too.
        let external = prepared.label.taint == Taint::External;
        if access.allows(&after, &who, external, &prepared.tool) {
            return (None, ops);
        }
        let reason = format!("level '{}' does not have the tool '{}'", after.level(), prepared.tool);
        let (point, gate, verdict) = (GatePoint::Access, LEVEL.to_owned(), GateVerdict::Block);
        let said = (gate.clone(), verdict, reason.clone());
        ops.push(self.journal.entry(session.id, at, Fact::Gated { point, gate, verdict, reason }));
        (Some(said), ops)
    }

    /// The tools that a model is offered: somebody else than the owner sees those of the level alone. Of a level whose
    /// time is over nothing is offered; what judges the message writes down that it is.
    pub(crate) fn offered(&self, session: &Session, allow: AllowList) -> AllowList {
        let (Some(access), state) = (&self.config.access, session.state()) else { return allow };
        if state.speaker.as_ref().is_none_or(|who| *who == Principal::Owner) {
            return allow;
        }
        let mut level = state.access.clone();
        drop(state);
        let _fallen = access.settle(&mut level, self.journal.valid_now());
        let tools = access.tools(&level).into_iter().map(str::to_owned);
        AllowList::Only(match allow {
            AllowList::All => tools.collect(),
            AllowList::Only(list) => tools.filter(|tool| list.contains(tool)).collect(),
        })
    }

    fn moved(
        &self,
        session: &Session,
        at: Option<(TurnId, u64)>,
        (before, after): (&AccessState, &AccessState),
        transitions: impl IntoIterator<Item = Transition>,
    ) -> Vec<Op> {
        if before == after {
            return Vec::new();
        }
        let entries = transitions.into_iter().map(|Transition { from, to, why }| {
            let reason = format!("from '{from}' to '{to}': {why}");
            let (point, gate, verdict) = (GatePoint::Access, LEVEL.to_owned(), GateVerdict::Pass);
            self.journal.entry(session.id, at, Fact::Gated { point, gate, verdict, reason })
        });
        let mut ops: Vec<Op> = entries.collect();
        let value = serde_json::to_value(after).ok();
        ops.push(Op::SetSessionMetadata { session: session.id, key: ACCESS.to_owned(), value });
        ops
    }
}

/// Who has sent a message, by its record. Somebody whose name says nothing here is nobody in particular.
pub(crate) fn speaker(record: &str) -> Principal {
    if record == Principal::Owner.to_string() {
        Principal::Owner
    } else {
        Principal::Guest { case: record.to_owned() }
    }
}
