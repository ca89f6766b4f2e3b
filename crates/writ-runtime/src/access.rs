//! Access level of a conversation. It is stored with the conversation, rises as gates pass, and decides which
//! tools are available.

use writ_inspect::gate::Judgement;
use writ_inspect::prepared::Prepared;
use writ_policy::access::{AccessState, Transition};
use writ_policy::principal::Principal;
use writ_store::batch::Op;
use writ_store::queue::Leased;
use writ_tools::registry::AllowList;
use writ_types::entry::{Fact, GatePoint, GateVerdict};
use writ_types::id::TurnId;
use writ_types::taint::Taint;

use crate::gates::Gates;
use crate::pending::Pending;
use crate::session::{ACCESS, Session};

/// The name of levels in entries of the ledger.
const LEVEL: &str = "access level";

impl Gates {
    /// Raises the access level where the gates that just passed allow it. Returns the operations that record
    /// the change in the ledger and the store.
    pub(crate) fn verified(
        &self,
        session: &Session,
        at: Option<(TurnId, u64)>,
        judged: &Judgement,
    ) -> Pending {
        let Some(access) = &self.config.access else { return Pending::new() };
        let mut state = session.state();
        let before = state.gates.access.clone();
        let transitions =
            access.raise_level(&mut state.gates.access, judged.passed_gates(), self.journal.valid_now());
        let after = state.gates.access.clone();
        drop(state);
        self.moved(session, at, (&before, &after), transitions)
    }

    /// Returns a refusal if the conversation's level does not include the action's tool, together with the
    /// operations that record a level that has expired.
    pub(crate) fn beyond_level(
        &self,
        session: &Session,
        at: Option<(TurnId, u64)>,
        prepared: &Prepared,
    ) -> (Option<(String, GateVerdict, String)>, Pending) {
        // An action that no model requested is the harness's own.
        let Some(access) = self.config.access.as_ref().filter(|_| prepared.call.is_some()) else {
            return (None, Pending::new());
        };
        let mut state = session.state();
        let before = state.gates.access.clone();
        let transitions = access.expire_level(&mut state.gates.access, self.journal.valid_now());
        let after = state.gates.access.clone();
        let who = state.speaker_of(at.map(|(turn, _)| turn)).cloned().unwrap_or(Principal::Owner);
        drop(state);
        let mut ops = self.moved(session, at, (&before, &after), transitions);
        // Anything that another person contributed to the owner's turn is external, too.
        let external = prepared.label.taint == Taint::External;
        if access.allows_tool(&after, &who, external, &prepared.tool) {
            return (None, ops);
        }
        let reason = format!("level '{}' does not have the tool '{}'", after.level_name(), prepared.tool);
        let (point, gate, verdict) = (GatePoint::Access, LEVEL.to_owned(), GateVerdict::Block);
        let said = (gate.clone(), verdict, reason.clone());
        ops.push(self.journal.entry(session.id, at, Fact::Gated { point, gate, verdict, reason }));
        (Some(said), ops)
    }

    /// Returns the tools that a model is offered: anyone but the owner gets only those of the current level.
    /// An expired level offers nothing; its end is recorded when the message is judged.
    pub(crate) fn offered(&self, session: &Session, turn: TurnId, allow: AllowList) -> AllowList {
        let (Some(access), state) = (&self.config.access, session.state()) else { return allow };
        if state.speaker_of(Some(turn)).is_none_or(|who| *who == Principal::Owner) {
            return allow;
        }
        let mut level = state.gates.access.clone();
        drop(state);
        let _fallen = access.expire_level(&mut level, self.journal.valid_now());
        let tools = access.tools_at(&level).into_iter().map(str::to_owned);
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
    ) -> Pending {
        if before == after {
            return Pending::new();
        }
        let entries = transitions.into_iter().map(|Transition { from, to, why }| {
            let reason = format!("from '{from}' to '{to}': {why}");
            let (point, gate, verdict) = (GatePoint::Access, LEVEL.to_owned(), GateVerdict::Pass);
            self.journal.entry(session.id, at, Fact::Gated { point, gate, verdict, reason })
        });
        let mut ops: Pending = entries.collect();
        let value = serde_json::to_value(after).ok();
        ops.push(Op::SetSessionMetadata { session: session.id, key: ACCESS.to_owned(), value });
        ops
    }
}

/// Returns the sender of a message, read from its record. A name other than the owner's becomes a guest with
/// that name as its case.
pub(crate) fn speaker(lease: &Leased) -> Principal {
    let record = lease.message.record.principal.as_str();
    if record == Principal::Owner.to_string() {
        Principal::Owner
    } else {
        Principal::Guest { case: record.to_owned() }
    }
}
