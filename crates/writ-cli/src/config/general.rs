//! Keys that stand above all sections.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use writ_runtime::config::{Execution, MAX_RUNNING_TURNS};
use writ_types::calendar::{DayTime, Recurrence};
use writ_types::interaction::Initiative;
use writ_types::zone::TimeZone;

use super::{Config, Finding};

/// The time of the review of tools, unless another is set.
const TOOL_REVIEW: Recurrence = match DayTime::new(4, 0) {
    Some(four) => Recurrence::Monthly(1, four),
    None => Recurrence::Off,
};

/// Settings of the binary itself: keys without a section.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
// tidy: plain state
pub(crate) struct General {
    /// The owner of the home. Default `owner`.
    pub(crate) owner_id: String,
    /// The agent's name. Default `main`.
    pub(crate) agent: String,
    /// The folder of the database and the overlays; relative to the home. Default `data`.
    pub(crate) data_dir: PathBuf,
    /// The folder that is reserved for verification; relative to the home. Runs in the sandbox have copies of their own. Default
    /// `data/verify`.
    pub(crate) verify_dir: PathBuf,
    /// The folder of customers' context; relative to the home. Default `data/customers`.
    pub(crate) customer_context_dir: PathBuf,
    /// The most turns that run at once, over all sessions. Default 64.
    pub(crate) max_parallel: usize,
    /// The lifetime of an ask, in seconds. Default one day.
    pub(crate) approval_ttl_secs: u64,
    /// Goes on with a turn once what it has asked is answered. Default `true`.
    pub(crate) continue_after_answer: bool,
    /// The owner's time zone, as a name of the IANA database. Default: the machine's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) time_zone: Option<String>,
    /// True if the shipped gates are in force. Default `true`.
    pub(crate) gates_shipped: bool,
    /// Names of the tools that the agent is offered; empty is all of them. Default empty.
    pub(crate) tools: Vec<String>,
    /// True if the agent introduces itself while it knows nothing of its owner. Default `true`.
    pub(crate) first_run: bool,
    /// The time at which the tools of other programs are reviewed. Default: the first of each month at four.
    pub(crate) tool_review: Recurrence,
    /// True if everything asks that would leave the sandbox after external content was read. Default `false`.
    pub(crate) strict: bool,
    /// The execution mode: with `planned`, programs run and files are written in an approved plan alone.
    /// Default `free`.
    pub(crate) execution: Execution,
    /// The agent's initiative where neither a plan nor the proxy decides: `low` waits for consent, `medium` takes the usual choice
    /// and offers the others, `high` acts and reports. Default `medium`.
    pub(crate) initiative: Initiative,
    /// The context of a session after a restart.
    pub(crate) rehydration: Rehydration,
}

/// The context of a session after a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Rehydration {
    /// The number of entries of its history that a turn begins with. Default 50.
    pub(crate) max_chronicle_entries: usize,
}

impl Default for Rehydration {
    fn default() -> Self {
        Self { max_chronicle_entries: 50 }
    }
}

impl Default for General {
    fn default() -> Self {
        Self {
            owner_id: "owner".into(),
            agent: "main".into(),
            data_dir: "data".into(),
            verify_dir: "data/verify".into(),
            customer_context_dir: "data/customers".into(),
            max_parallel: MAX_RUNNING_TURNS,
            approval_ttl_secs: 24 * 60 * 60,
            continue_after_answer: true,
            time_zone: None,
            gates_shipped: true,
            tools: Vec::new(),
            first_run: true,
            tool_review: TOOL_REVIEW,
            strict: false,
            execution: Execution::Free,
            initiative: Initiative::Medium,
            rehydration: Rehydration::default(),
        }
    }
}

impl Config {
    /// The same in the time zone that is set, else in that of the machine.
    pub(super) fn in_zone(mut self, variable: Option<&str>, findings: &mut Vec<Finding>) -> Self {
        self.time_zone = match self.general.time_zone.as_deref() {
            None => TimeZone::of_machine(variable),
            Some(name) => TimeZone::parse_name(name).inspect_err(|unknown| {
                let mut finding = self.finding_of(format!("'time_zone': {unknown}"), "time_zone");
                finding.hint = "write a name of the IANA database, such as Europe/Berlin or UTC".into();
                findings.push(finding);
            }),
        };
        let name = self.time_zone.as_ref().ok().and_then(TimeZone::name);
        self.sandbox.time_zone = name.map(str::to_owned);
        self
    }
}
