//! The kinds of actions, and the table of what depends on the kind alone.

use serde::{Deserialize, Serialize};

use crate::entry::Risk;

/// The variants of [`Action`](super::Action) without their data: what keys grant and rules name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each names the variant of `Action`, which is documented there")]
pub enum ActionKind {
    Exec,
    ReadFile,
    WriteFile,
    Fetch,
    Browse,
    Recall,
    Remember,
    Forget,
    Say,
    SendFile,
    CallTool,
    CreateTool,
    InstallSkill,
    Docker,
    Subscribe,
    Message,
    Handoff,
    Spawn,
    Escalate,
    ModelCall,
    Vcs,
    ModifySelf,
    Operate,
    Connect,
    Search,
    Plan,
    ReadResult,
}

/// Says if a home that runs only what is planned wants a plan for a kind of action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanNeed {
    /// It does not.
    Never,
    /// The data of the action decide.
    Sometimes,
    /// It does.
    Always,
}

/// The properties of an action that depend on its kind alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindRow {
    /// The kind.
    pub kind: ActionKind,
    /// The name used in keys, rules, records and on screens.
    pub name: &'static str,
    /// The harm that a wrong approval can do, as far as the data of the action do not say otherwise.
    pub risk: Risk,
    /// The need of a plan, where only what is planned is run.
    pub plan: PlanNeed,
    /// Its intent is on disk before it is performed: everything but reads, model calls, and what happens in the store itself.
    pub is_synced: bool,
    /// It leaves nothing behind that a second run would leave twice.
    pub is_repeatable: bool,
    /// It can tell others something, or reach past the sandbox and the store. A program's reach is judged by the hosts that it names.
    pub leaves_machine: bool,
    /// Its arguments go on as they are, and stand nowhere that the model reads or the sandbox runs.
    pub passes_on: bool,
    /// Its result comes from outside, and is external also where the owner asked for it.
    pub returns_external: bool,
}

const NO: bool = false;
const YES: bool = true;

/// A row of [`ROWS`]; the flags are in the order of the fields.
const fn row(
    kind: ActionKind,
    name: &'static str,
    risk: Risk,
    plan: PlanNeed,
    [is_synced, is_repeatable, leaves_machine, passes_on, returns_external]: [bool; 5],
) -> KindRow {
    KindRow { kind, name, risk, plan, is_synced, is_repeatable, leaves_machine, passes_on, returns_external }
}

use ActionKind as Kind;

/// One row for each kind, in the order of [`Action`](super::Action). Flags: synced, repeatable, leaves the machine, passes on,
/// returns what is external.
#[rustfmt::skip]
static ROWS: [KindRow; 27] = [
    row(Kind::Exec, "exec", Risk::Low, PlanNeed::Sometimes, [YES, NO, NO, NO, YES]),
    row(Kind::ReadFile, "read_file", Risk::Low, PlanNeed::Never, [NO, YES, NO, NO, YES]),
    row(Kind::WriteFile, "write_file", Risk::Low, PlanNeed::Sometimes, [YES, NO, NO, NO, NO]),
    row(Kind::Fetch, "fetch", Risk::Medium, PlanNeed::Sometimes, [YES, NO, YES, YES, YES]),
    row(Kind::Browse, "browse", Risk::Medium, PlanNeed::Always, [YES, NO, YES, NO, YES]),
    row(Kind::Recall, "recall", Risk::Low, PlanNeed::Never, [NO, YES, NO, NO, NO]),
    row(Kind::Remember, "remember", Risk::Low, PlanNeed::Never, [NO, YES, NO, NO, NO]),
    row(Kind::Forget, "forget", Risk::Medium, PlanNeed::Never, [NO, NO, NO, NO, NO]),
    row(Kind::Say, "say", Risk::Low, PlanNeed::Never, [NO, YES, NO, YES, NO]),
    row(Kind::SendFile, "send_file", Risk::Irreversible, PlanNeed::Never, [YES, NO, YES, NO, NO]),
    row(Kind::CallTool, "call_tool", Risk::Medium, PlanNeed::Never, [YES, NO, YES, NO, YES]),
    row(Kind::CreateTool, "create_tool", Risk::High, PlanNeed::Never, [YES, NO, YES, NO, YES]),
    row(Kind::InstallSkill, "install_skill", Risk::High, PlanNeed::Never, [YES, NO, YES, NO, YES]),
    row(Kind::Docker, "docker", Risk::High, PlanNeed::Never, [YES, NO, YES, NO, YES]),
    row(Kind::Subscribe, "subscribe", Risk::Medium, PlanNeed::Never, [YES, NO, YES, NO, NO]),
    row(Kind::Message, "message", Risk::Medium, PlanNeed::Never, [YES, NO, YES, NO, YES]),
    row(Kind::Handoff, "handoff", Risk::Medium, PlanNeed::Never, [YES, NO, YES, NO, YES]),
    row(Kind::Spawn, "spawn", Risk::Medium, PlanNeed::Never, [YES, NO, YES, NO, YES]),
    row(Kind::Escalate, "escalate", Risk::Medium, PlanNeed::Never, [YES, NO, YES, NO, YES]),
    row(Kind::ModelCall, "model_call", Risk::Low, PlanNeed::Never, [NO, YES, NO, NO, NO]),
    row(Kind::Vcs, "vcs", Risk::High, PlanNeed::Never, [YES, NO, YES, NO, YES]),
    row(Kind::ModifySelf, "modify_self", Risk::High, PlanNeed::Never, [YES, NO, YES, NO, NO]),
    row(Kind::Operate, "operate", Risk::High, PlanNeed::Never, [YES, NO, YES, NO, YES]),
    row(Kind::Connect, "connect", Risk::Medium, PlanNeed::Never, [YES, YES, YES, NO, NO]),
    row(Kind::Search, "search", Risk::Medium, PlanNeed::Never, [YES, YES, YES, YES, YES]),
    row(Kind::Plan, "plan", Risk::Low, PlanNeed::Never, [YES, YES, YES, NO, NO]),
    row(Kind::ReadResult, "read_result", Risk::Low, PlanNeed::Never, [NO, YES, NO, NO, YES]),
];

// The compiler checks that each kind has its row.
const _: () = {
    let mut place = 0;
    while place < ROWS.len() {
        assert!(ROWS[place].kind as usize == place);
        place += 1;
    }
};

impl ActionKind {
    /// Every kind, in the order of [`Action`](super::Action).
    pub const ALL: [Self; ROWS.len()] = {
        let mut all = [Self::Exec; ROWS.len()];
        let mut place = 0;
        while place < all.len() {
            all[place] = ROWS[place].kind;
            place += 1;
        }
        all
    };

    /// Returns the properties of this kind.
    pub const fn row(self) -> &'static KindRow {
        &ROWS[self as usize]
    }

    /// The name used in keys, rules, records and on screens.
    pub const fn as_str(self) -> &'static str {
        self.row().name
    }

    /// Finds the kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The last variant of the enum has the last row, so that none is without one, and no two share a name.
    #[test]
    fn every_kind_has_its_row_under_the_name_that_is_stored() {
        assert_eq!(ActionKind::ReadResult as usize + 1, ROWS.len());
        for kind in ActionKind::ALL {
            assert_eq!(kind.row().kind, kind);
            assert_eq!(serde_json::to_value(kind).unwrap(), serde_json::json!(kind.as_str()));
            assert_eq!(ActionKind::from_name(kind.as_str()), Some(kind));
        }
        assert_eq!(
            ActionKind::ALL.map(ActionKind::as_str).into_iter().collect::<BTreeSet<_>>().len(),
            ROWS.len()
        );
    }

    #[test]
    fn what_can_be_repeated_without_a_trace_is_not_hard_to_undo() {
        for row in &ROWS {
            assert!(!row.is_repeatable || row.risk < Risk::High, "{row:?}");
            assert!(row.is_synced || !row.leaves_machine, "{row:?}: what leaves is on disk first");
        }
    }
}
