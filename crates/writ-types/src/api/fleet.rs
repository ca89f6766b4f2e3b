//! The cases of a fleet and its agents, as people watch and answer them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::entry::{CaseChange, HolderRecord};
use crate::id::{EntrySeq, SessionId};
use crate::unit::Timestamp;

/// A fleet at work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FleetStatus {
    /// The agents, in the order of preference.
    pub agents: Vec<AgentStatus>,
    /// The open cases, oldest first, at most 500.
    pub cases: Vec<CaseStatus>,
    /// The number of all open cases in each state that there is.
    pub open: Vec<StateCount>,
    /// The anomalies since the router's start, newest first, at most 100.
    pub anomalies: Vec<SeenAnomaly>,
}

/// An agent that can be given cases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentStatus {
    /// Its name.
    pub name: String,
    /// Further names under which it is a target of escalations.
    pub roles: Vec<String>,
    /// Its version, if it was deployed as a folder.
    pub version: Option<String>,
    /// The number of cases that it holds.
    pub cases: u64,
    /// The most that it holds at once.
    pub max_cases: u64,
    /// Its requests to the security proxy in the last minute, in all of its cases.
    pub requests_per_minute: u64,
    /// Its refusals in the cases that it holds.
    pub refused: u64,
    /// The tokens of models that it has used in the cases that it holds.
    pub tokens: u64,
    /// Its sums since the start of the router.
    pub since_start: AgentTotals,
}

/// The sums of an agent since the start of its router, over all of its cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentTotals {
    /// Requests to the security proxy.
    pub requests: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Records that were read.
    pub records_read: u64,
    /// Tokens of models.
    pub tokens: u64,
    /// Escalations.
    pub escalations: u64,
    /// Anomalies after which a person was notified.
    pub alerts: u64,
    /// Anomalies after which its key was revoked.
    pub revocations: u64,
}

/// The number of cases in a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StateCount {
    /// The state, as cases name it.
    pub state: String,
    /// The number.
    pub count: u64,
}

/// An open case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CaseStatus {
    /// The case.
    pub case: SessionId,
    /// Its token.
    pub case_token: String,
    /// The capability that it needs.
    pub capability: String,
    /// Its state: `open`, `held`, `held by a person`, `escalating`, `queued` or `damaged`.
    pub state: String,
    /// The agent or person that holds it.
    pub holder: Option<String>,
    /// Since when.
    pub since: Option<Timestamp>,
    /// The reason of its last change.
    pub reason: String,
    /// Requests to the proxy in the last minute; none: only the running router knows.
    pub requests_per_minute: Option<u64>,
    /// Refusals of this holder in this case.
    pub refused: Option<u64>,
    /// Tokens of models that this holder has used in this case.
    pub tokens: Option<u64>,
}

/// A rule about anomalies that was met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SeenAnomaly {
    /// When.
    pub at: Timestamp,
    /// The agent.
    pub agent: String,
    /// The token of its case.
    pub case: String,
    /// The rule, as it is declared.
    pub rule: String,
    /// `revoke` or `alert`.
    pub reaction: String,
    /// The numbers that met it.
    pub evidence: String,
}

/// Names a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CaseName {
    /// The case.
    pub case: SessionId,
}

/// Asks for the conversation of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MessageQuery {
    /// The case.
    pub case: SessionId,
    /// The number of the last message that is known; those after it are listed.
    #[serde(default)]
    pub after: u64,
}

/// A part of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MessagePage {
    /// False after the end of the case.
    pub is_open: bool,
    /// At most 200, oldest first.
    pub messages: Vec<SentMessage>,
}

/// A message of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SentMessage {
    /// Its number in the case, from one.
    pub n: u64,
    /// `guest`, `agent NAME`, `person NAME` or `router`.
    pub from: String,
    /// Its text.
    pub text: String,
    /// When.
    pub at: Timestamp,
}

/// An answer of a person to the guest of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GuestAnswer {
    /// The case.
    pub case: SessionId,
    /// The answer.
    pub text: String,
}

/// A case that a person gives back to agents. With a target this is also how an escalation is approved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CaseReturn {
    /// The case.
    pub case: SessionId,
    /// The agent or role that is to be next; none: any agent with the capability.
    #[serde(default)]
    pub target: Option<String>,
    /// A note for the next agent.
    pub note: String,
}

/// The end of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CaseEnding {
    /// The case.
    pub case: SessionId,
    /// The reason; it is written to the ledger.
    #[serde(default)]
    pub reason: String,
}

/// The holders of a case and the people who read its conversation, from the ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HolderList {
    /// The times of its holders, in their order.
    pub holders: Vec<AccessInterval>,
    /// The people who read its conversation, in their order: one entry for each person, holder and day.
    #[serde(default)]
    pub readings: Vec<CaseReading>,
    /// Entries that contradict those before them: none, unless the ledger was made elsewhere.
    pub contradictions: Vec<EntrySeq>,
}

/// A time in which one holder had access.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AccessInterval {
    /// The holder.
    pub holder: HolderRecord,
    /// The entry with which it began.
    pub began: EntrySeq,
    /// From when.
    pub since: Timestamp,
    /// Until when; none: it has access now.
    pub until: Option<Timestamp>,
    /// The change that ended it.
    pub ended_by: Option<CaseChange>,
    /// The reason of that change.
    pub reason: String,
}

/// A person's reading of a conversation: the first one since the case changed hands, or for a day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CaseReading {
    /// The person.
    pub person: String,
    /// The entry that says so.
    pub entry: EntrySeq,
    /// When.
    pub at: Timestamp,
}
