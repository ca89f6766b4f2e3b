//! The values of prompts, by name.

use std::collections::BTreeMap;

use minijinja::value::Value;
use serde::Serialize;
use writ_autopilot::check::text::cut_error;
use writ_autopilot::phase::PilotPhase;
use writ_autopilot::unit_id::UnitId;
use writ_autopilot::units::PilotUnit;

use super::PromptName;

/// The most findings that a prompt shows.
pub(super) const MAX_FINDINGS: usize = 100;
/// The longest text of one value, in bytes.
pub(super) const MAX_VALUE_BYTES: usize = 128 * 1024;

/// The values of one rendering.
pub(super) type Variables = BTreeMap<&'static str, Value>;

/// The values that every prompt about a unit has.
const UNIT: [&str; 15] = [
    "unit_id",
    "unit_type",
    "phase",
    "attempt",
    "session_id",
    "issue",
    "last_error",
    "plan",
    "plan_path",
    "plan_version",
    "notes",
    "gates",
    "findings",
    "now",
    "model",
];
const REVIEW: [&str; 16] = add_names(UNIT, ["review"]);
const REASSESS: [&str; 19] = add_names(UNIT, ["failures", "commits", "replans_left", "decision_tool"]);
const GOAL: [&str; 7] =
    ["session_id", "goal", "repo_map", "project_plan", "gates", "max_units", "previous_error"];
const DOCUMENTS: [&str; 6] = ["unit_id", "unit_type", "session_id", "title", "documents", "diff"];
const CONTINUE: [&str; 6] = ["unit_id", "unit_type", "phase", "session_id", "turn", "max_turns"];

/// Joins two lists of names.
const fn add_names<const A: usize, const B: usize, const C: usize>(
    first: [&'static str; A],
    more: [&'static str; B],
) -> [&'static str; C] {
    assert!(A + B == C, "the length is that of both lists");
    let (mut all, mut at) = ([""; C], 0);
    while at < C {
        all[at] = if at < A { first[at] } else { more[at - A] };
        at += 1;
    }
    all
}

/// Returns the names of the values that a prompt has.
pub(super) const fn variables_of(prompt: PromptName) -> &'static [&'static str] {
    match prompt {
        PromptName::Research | PromptName::Plan | PromptName::Execute | PromptName::Tdd => &UNIT,
        PromptName::Review => &REVIEW,
        PromptName::Reassess => &REASSESS,
        PromptName::Goal => &GOAL,
        PromptName::Continue => &CONTINUE,
        PromptName::Documents => &DOCUMENTS,
    }
}

/// A failure before this attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryNote<'a> {
    /// Failures in a row, from one on.
    pub failures: u32,
    /// The error of the last one, whole.
    pub error: &'a str,
    /// The place of the whole text, which the agent can read.
    pub path: &'a str,
}

/// A finding of a gate or a review.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PromptFinding {
    /// The file; empty if there is none.
    pub path: String,
    /// The line; 0 for the whole file.
    pub line: u32,
    /// The weight, such as `high`; the name of a gate.
    pub severity: String,
    /// The finding.
    pub text: String,
}

/// The values of the first prompt of an attempt.
#[derive(Clone, Debug)]
pub struct UnitPrompt<'a> {
    /// The unit.
    pub unit_id: UnitId,
    /// Its phase.
    pub phase: PilotPhase,
    /// The session.
    pub session_id: &'a str,
    /// The task, whole ([`describe_issue`]).
    pub issue: BTreeMap<String, String>,
    /// The failure before this attempt; none at the first one, which then has neither number nor error (SF 7.3).
    pub retry: Option<RetryNote<'a>>,
    /// The unit's `plan.md`.
    pub plan: Option<&'a str>,
    /// The place of that file in the workspace.
    pub plan_path: &'a str,
    /// The version that a new plan has.
    pub plan_version: u32,
    /// The result of the research.
    pub notes: Option<&'a str>,
    /// The names of the gates that judge the work.
    pub gates: &'a [String],
    /// The findings of the last gate or review.
    pub findings: &'a [PromptFinding],
    /// The time, as RFC 3339.
    pub now: &'a str,
    /// The name of the model.
    pub model: &'a str,
}

impl UnitPrompt<'_> {
    pub(super) fn variables(&self) -> Variables {
        let retry = self.retry.filter(|note| note.failures > 0);
        Variables::from([
            ("unit_id", Value::from(self.unit_id.to_string())),
            ("unit_type", Value::from(self.unit_id.unit_type().name())),
            ("phase", Value::from(self.phase.name())),
            ("attempt", option_of(retry.map(|note| note.failures))),
            ("session_id", Value::from(self.session_id)),
            ("issue", Value::from_serialize(&self.issue)),
            ("last_error", option_of(retry.map(|note| cut_error(note.error, note.path)))),
            ("plan", option_of(self.plan.map(cut_text))),
            ("plan_path", Value::from(self.plan_path)),
            ("plan_version", Value::from(self.plan_version)),
            ("notes", option_of(self.notes.map(cut_text))),
            ("gates", Value::from_serialize(self.gates)),
            ("findings", list_findings(self.findings)),
            ("now", Value::from(self.now)),
            ("model", Value::from(self.model)),
        ])
    }
}

/// The pass of a review (SF 13.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReviewPass {
    /// The first: a summary of the whole.
    Overview,
    /// The second: one part of the change.
    Chunk,
    /// The third: the verdict.
    Synthesis,
}

impl ReviewPass {
    /// Returns its name in the template.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Overview => "overview",
            Self::Chunk => "chunk",
            Self::Synthesis => "synthesis",
        }
    }
}

/// The values of one pass of a review, beside those of the unit.
#[derive(Clone, Debug)]
pub struct ReviewPrompt<'a> {
    /// The pass.
    pub pass: ReviewPass,
    /// The changed files.
    pub files: &'a [String],
    /// The beginnings and ends of the files, or the part of the diff.
    pub text: &'a str,
    /// The result of the first pass.
    pub summary: Option<&'a str>,
    /// The number of the part, from one on.
    pub part: u32,
    /// The number of parts.
    pub parts: u32,
}

impl ReviewPrompt<'_> {
    pub(super) fn variables(&self, unit: &UnitPrompt<'_>) -> Variables {
        let review = BTreeMap::from([
            ("pass", Value::from(self.pass.name())),
            ("files", Value::from_serialize(self.files)),
            ("text", Value::from(cut_text(self.text))),
            ("summary", option_of(self.summary.map(cut_text))),
            ("part", Value::from(self.part)),
            ("parts", Value::from(self.parts)),
        ]);
        let mut all = unit.variables();
        all.insert("review", Value::from_serialize(&review));
        all
    }
}

/// The values of a decision, beside those of the unit.
#[derive(Clone, Debug)]
pub struct ReassessPrompt<'a> {
    /// The errors of the last attempts and the output of gates, of this unit alone, the newest first.
    pub failures: &'a [String],
    /// Its last commits, one line each.
    pub commits: &'a [String],
    /// New plans that are left.
    pub replans_left: u32,
    /// The tool that takes the decision; none: the answer itself is the decision.
    pub decision_tool: Option<&'a str>,
}

impl ReassessPrompt<'_> {
    pub(super) fn variables(&self, unit: &UnitPrompt<'_>) -> Variables {
        // Each as short as an error of an attempt, so that many of them fit.
        let failures: Vec<String> =
            self.failures.iter().map(|text| cut_error(text, "the run's log")).collect();
        let mut all = unit.variables();
        all.insert("failures", Value::from_serialize(&failures));
        all.insert("commits", Value::from_serialize(self.commits));
        all.insert("replans_left", Value::from(self.replans_left));
        all.insert("decision_tool", option_of(self.decision_tool));
        all
    }
}

/// The values of planning.
#[derive(Clone, Debug)]
pub struct GoalPrompt<'a> {
    /// The session.
    pub session_id: &'a str,
    /// The goal in a person's words.
    pub goal: &'a str,
    /// The map of the repository.
    pub repo_map: &'a str,
    /// The plan of the project so far.
    pub project_plan: Option<&'a str>,
    /// The names of the gates.
    pub gates: &'a [String],
    /// The most units.
    pub max_units: usize,
    /// The question about the answer before this one.
    pub previous_error: Option<&'a str>,
}

impl GoalPrompt<'_> {
    pub(super) fn variables(&self) -> Variables {
        Variables::from([
            ("session_id", Value::from(self.session_id)),
            ("goal", Value::from(cut_text(self.goal))),
            ("repo_map", Value::from(cut_text(self.repo_map))),
            ("project_plan", option_of(self.project_plan.map(cut_text))),
            ("gates", Value::from_serialize(self.gates)),
            ("max_units", Value::from(self.max_units)),
            ("previous_error", option_of(self.previous_error.map(cut_text))),
        ])
    }
}

/// The values of a later turn. The task is none of them, so no template can repeat it.
#[derive(Clone, Copy, Debug)]
pub struct ContinuePrompt<'a> {
    /// The unit.
    pub unit_id: UnitId,
    /// Its phase.
    pub phase: PilotPhase,
    /// The session.
    pub session_id: &'a str,
    /// The number of the turn, from two on.
    pub turn: u32,
    /// The most turns of the attempt.
    pub max_turns: u32,
}

impl ContinuePrompt<'_> {
    pub(super) fn variables(&self) -> Variables {
        Variables::from([
            ("unit_id", Value::from(self.unit_id.to_string())),
            ("unit_type", Value::from(self.unit_id.unit_type().name())),
            ("phase", Value::from(self.phase.name())),
            ("session_id", Value::from(self.session_id)),
            ("turn", Value::from(self.turn)),
            ("max_turns", Value::from(self.max_turns)),
        ])
    }
}

/// The values of the question about documents.
#[derive(Clone, Copy, Debug)]
pub struct DocumentsPrompt<'a> {
    /// The unit.
    pub unit_id: UnitId,
    /// The session.
    pub session_id: &'a str,
    /// The title of the unit.
    pub title: &'a str,
    /// The names of the documents.
    pub documents: &'a [String],
    /// The whole change.
    pub diff: &'a str,
}

impl DocumentsPrompt<'_> {
    pub(super) fn variables(&self) -> Variables {
        Variables::from([
            ("unit_id", Value::from(self.unit_id.to_string())),
            ("unit_type", Value::from(self.unit_id.unit_type().name())),
            ("session_id", Value::from(self.session_id)),
            ("title", Value::from(self.title)),
            ("documents", Value::from_serialize(self.documents)),
            ("diff", Value::from(cut_text(self.diff))),
        ])
    }
}

/// Describes a unit as the flat map `issue` (SF 7.1). Fields without content are there and empty, so that every template can ask.
pub fn describe_issue(unit: &PilotUnit) -> BTreeMap<String, String> {
    let join = |units: &std::collections::BTreeSet<UnitId>| {
        units.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    };
    let fields = [
        ("id", unit.id.to_string()),
        ("title", unit.title.clone()),
        ("description", unit.description.clone()),
        ("priority", unit.priority.map_or_else(String::new, |priority| priority.to_string())),
        ("workflow", unit.workflow.clone().unwrap_or_default()),
        ("blocked_by", join(&unit.blocked_by)),
        ("code_depends_on", join(&unit.code_depends_on)),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn option_of<T: Into<Value>>(value: Option<T>) -> Value {
    value.map_or_else(|| Value::from(()), Into::into)
}

fn list_findings(findings: &[PromptFinding]) -> Value {
    let one_line =
        |text: &str| text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(1_000).collect();
    let shown: Vec<PromptFinding> = findings
        .iter()
        .take(MAX_FINDINGS)
        .map(|finding| PromptFinding {
            path: one_line(&finding.path),
            line: finding.line,
            severity: one_line(&finding.severity),
            text: one_line(&finding.text),
        })
        .collect();
    Value::from_serialize(&shown)
}

fn cut_text(text: &str) -> String {
    writ_autopilot::check::text::cut_output(text, MAX_VALUE_BYTES)
}
