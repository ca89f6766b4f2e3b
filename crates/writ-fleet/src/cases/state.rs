//! The state of a case as the store has it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use writ_types::entry::HolderRecord;
use writ_types::id::KeyId;

use super::machine::{CaseHolder, CaseMachine, CaseState};

/// The name of a state in rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StateName {
    Open,
    Agent,
    Person,
    Escalating,
    Queued,
    Closed,
}

/// A state with what the machine remembers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoredState {
    name: StateName,
    holder: Option<String>,
    key: Option<KeyId>,
    target: Option<String>,
    lost: BTreeSet<String>,
    holders: u32,
    /// The holder before.
    pub(crate) earlier: Option<HolderRecord>,
    /// The reason of the last change, which the next holder gets.
    pub(crate) reason: String,
}

impl StoredState {
    pub(crate) fn new(machine: &CaseMachine, earlier: Option<HolderRecord>, reason: String) -> Self {
        let (name, holder, key, target) = match machine.state() {
            CaseState::Open => (StateName::Open, None, None, None),
            CaseState::Held(CaseHolder::Agent { agent, key }) => {
                (StateName::Agent, Some(agent.clone()), Some(*key), None)
            }
            CaseState::Held(CaseHolder::Person { name }) => {
                (StateName::Person, Some(name.clone()), None, None)
            }
            CaseState::Escalating { target } => (StateName::Escalating, None, None, target.clone()),
            CaseState::Queued => (StateName::Queued, None, None, None),
            CaseState::Closed => (StateName::Closed, None, None, None),
        };
        let (lost, holders) = (machine.lost().clone(), machine.holders());
        Self { name, holder, key, target, lost, holders, earlier, reason }
    }

    /// Returns the machine; `None`: the row is damaged.
    pub(crate) fn restore_machine(&self) -> Option<CaseMachine> {
        let state = match (self.name, &self.holder, self.key) {
            (StateName::Open, None, None) => CaseState::Open,
            (StateName::Agent, Some(agent), Some(key)) => {
                CaseState::Held(CaseHolder::Agent { agent: agent.clone(), key })
            }
            (StateName::Person, Some(name), None) => {
                CaseState::Held(CaseHolder::Person { name: name.clone() })
            }
            (StateName::Escalating, None, None) => CaseState::Escalating { target: self.target.clone() },
            (StateName::Queued, None, None) => CaseState::Queued,
            (StateName::Closed, None, None) => CaseState::Closed,
            (
                StateName::Open
                | StateName::Agent
                | StateName::Person
                | StateName::Escalating
                | StateName::Queued
                | StateName::Closed,
                _,
                _,
            ) => return None,
        };
        // Only combinations that the machine can be in get here.
        Some(CaseMachine::resume(state, self.lost.clone(), self.holders))
    }
}
