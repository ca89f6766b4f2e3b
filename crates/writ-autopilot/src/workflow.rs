//! Workflows: the phases that a unit passes, from TOML.
//!
//! A unit is bound to the text of its workflow by the SHA-256 of its bytes ([`Digest::of_bytes`]); a change of the file
//! concerns later units alone.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;
use writ_types::digest::Digest;
use writ_types::error::{Exit, Report, ToReport};
use writ_types::similar::nearest_name;

use crate::phase::PilotPhase;

mod built_in;

pub use built_in::built_in_workflows;

/// The largest file of a workflow, in bytes.
pub const MAX_WORKFLOW_BYTES: usize = 16 * 1024;
/// The most tries that a workflow may ask for.
const MAX_TRIES: u32 = 20;
/// Further runs of a gate after its first failure (SF 13.2).
pub const DEFAULT_RETRIES: u32 = 3;
/// The most times that a unit is planned anew, before a person looks at it.
pub const DEFAULT_REASSESS: u32 = 2;

/// The phases of a workflow, in their order, and its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseFlow {
    /// Its name: that of its file.
    pub name: String,
    /// The phases, the first one first; the last one is always [`PilotPhase::Complete`].
    pub phases: Vec<PilotPhase>,
    /// Set if tests are written in a phase of their own.
    pub require_tdd: bool,
    /// Set if the work is reviewed.
    pub require_review: bool,
    /// Set if a person accepts the result.
    pub require_uat: bool,
    /// Further runs of a gate after its first failure, and further rounds of the review.
    pub max_retries: u32,
    /// The most times that the unit is planned anew.
    pub max_reassess: u32,
    /// Further runs of single gates, where the settings of the project say so: the text of a workflow names none.
    pub gate_retries: BTreeMap<String, u32>,
    /// The SHA-256 of the text.
    pub digest: Digest,
}

impl PhaseFlow {
    /// Returns the further runs of a gate after its first failure.
    pub fn retries_of(&self, gate: &str) -> u32 {
        self.gate_retries.get(gate).copied().unwrap_or(self.max_retries)
    }
}

/// A file that is no workflow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("workflow '{name}', line {line}: {problem}")]
pub struct WorkflowError {
    /// The workflow that the file was to be.
    pub name: String,
    /// The line, counted from one.
    pub line: usize,
    /// The mistake.
    pub problem: String,
    /// The next thing to do.
    pub hint: String,
}

impl ToReport for WorkflowError {
    fn report(&self) -> Report {
        Report::new(Exit::Config, "pilot.workflow", self.to_string()).with_hint(self.hint.clone())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFlow {
    name: Option<Spanned<String>>,
    phases: Spanned<Vec<Spanned<String>>>,
    require_tdd: Option<Spanned<bool>>,
    require_review: Option<Spanned<bool>>,
    require_uat: Option<Spanned<bool>>,
    max_retries: Option<Spanned<u32>>,
    max_reassess: Option<Spanned<u32>>,
}

/// The keys of a workflow, for suggestions.
const KEYS: [&str; 7] =
    ["name", "phases", "require_tdd", "require_review", "require_uat", "max_retries", "max_reassess"];

/// Reads the text of a workflow; `name` is that of its file, without the ending.
///
/// # Errors
///
/// The first mistake, with its line and a hint.
pub fn parse_workflow(name: &str, text: &str) -> Result<PhaseFlow, WorkflowError> {
    let place = FlowText { name, text };
    if text.len() > MAX_WORKFLOW_BYTES {
        return place.fail(0, format!("it has more than {MAX_WORKFLOW_BYTES} bytes"), "shorten it");
    }
    let raw: RawFlow = toml::from_str(text).map_err(|error| place.syntax_error(&error))?;
    if let Some(other) = raw.name.as_ref().filter(|other| other.get_ref() != name) {
        let problem = format!("its name is '{}', but its file is '{name}.toml'", place.cut(other.get_ref()));
        return place.fail(other.span().start, problem, "give both the same name");
    }
    let listed = place.read_phases(&raw.phases)?;
    place.check_switch(&listed, "require_tdd", raw.require_tdd.as_ref(), PilotPhase::Tdd)?;
    place.check_switch(&listed, "require_review", raw.require_review.as_ref(), PilotPhase::Review)?;
    let require_uat = is_set(raw.require_uat.as_ref());
    if let Some((_, at)) = listed.iter().find(|(phase, _)| *phase == PilotPhase::Uat && !require_uat) {
        return place.fail(*at, "uat without `require_uat = true`", "add `require_uat = true`");
    }
    let max_retries = place.check_tries("max_retries", raw.max_retries.as_ref(), DEFAULT_RETRIES)?;
    let phases: Vec<PilotPhase> = listed.iter().map(|(phase, _)| *phase).collect();
    let has_plan = phases.contains(&PilotPhase::Plan);
    // Without a plan there is none to make anew.
    let default = if has_plan { DEFAULT_REASSESS } else { 0 };
    let max_reassess = place.check_tries("max_reassess", raw.max_reassess.as_ref(), default)?;
    if max_reassess > 0 && !has_plan {
        let at = raw.max_reassess.map_or(0, |value| value.span().start);
        return place.fail(at, "a new plan needs the phase plan", "add `plan`, or set `max_reassess = 0`");
    }
    Ok(PhaseFlow {
        name: name.to_owned(),
        phases: if require_uat { with_uat(phases) } else { phases },
        require_tdd: is_set(raw.require_tdd.as_ref()),
        require_review: is_set(raw.require_review.as_ref()),
        require_uat,
        max_retries,
        max_reassess,
        gate_retries: BTreeMap::new(),
        digest: Digest::of_bytes(text.as_bytes()),
    })
}

fn is_set(value: Option<&Spanned<bool>>) -> bool {
    value.is_some_and(|value| *value.get_ref())
}

/// Adds the phase of acceptance where none is listed: before the merge, else before the end.
fn with_uat(mut phases: Vec<PilotPhase>) -> Vec<PilotPhase> {
    if !phases.contains(&PilotPhase::Uat) {
        let before = |phase: PilotPhase| phases.iter().position(|other| *other == phase);
        let at = before(PilotPhase::Merge).or_else(|| before(PilotPhase::Complete));
        phases.insert(at.unwrap_or(phases.len()), PilotPhase::Uat);
    }
    phases
}

/// The text of a workflow, for mistakes with their lines.
struct FlowText<'a> {
    name: &'a str,
    text: &'a str,
}

impl FlowText<'_> {
    fn fault(&self, at: usize, problem: impl Into<String>, hint: impl Into<String>) -> WorkflowError {
        let before = self.text.as_bytes().iter().take(at);
        WorkflowError {
            name: self.cut(self.name),
            line: 1 + before.filter(|byte| **byte == b'\n').count(),
            problem: problem.into(),
            hint: hint.into(),
        }
    }

    fn fail<T>(
        &self,
        at: usize,
        problem: impl Into<String>,
        hint: impl Into<String>,
    ) -> Result<T, WorkflowError> {
        Err(self.fault(at, problem, hint))
    }

    /// Cuts a word of the file to what a message may show.
    fn cut(&self, word: &str) -> String {
        word.chars().take(60).map(|c| if c.is_control() { ' ' } else { c }).collect()
    }

    fn syntax_error(&self, error: &toml::de::Error) -> WorkflowError {
        let span = error.span().unwrap_or_default();
        let word = self.text.get(span.clone()).unwrap_or_default();
        // The mistake is at the key, which the parser marks.
        let near = nearest_name(word, &KEYS).filter(|near| *near != word);
        let hint = match near {
            Some(near) if error.message().contains("unknown field") => format!("'{near}' is probably meant"),
            Some(_) | None => format!("a workflow has the keys {}", KEYS.join(", ")),
        };
        let message = self.cut(error.message().trim());
        // The parser names a key that it does not know, but no key when it refuses a value.
        let problem = match self.key_before(span.start) {
            Some(key) if !message.contains(key) => format!("`{key}`: {message}"),
            Some(_) | None => message,
        };
        self.fault(span.start, problem, hint)
    }

    /// Returns the key of a value: what stands before the equals sign of its line.
    fn key_before(&self, at: usize) -> Option<&str> {
        let (key, _) = self.text.get(..at)?.lines().next_back()?.split_once('=')?;
        KEYS.contains(&key.trim()).then_some(key.trim())
    }

    /// Reads the list of phases with their places, and checks their order.
    fn read_phases(
        &self,
        raw: &Spanned<Vec<Spanned<String>>>,
    ) -> Result<Vec<(PilotPhase, usize)>, WorkflowError> {
        let mut listed: Vec<(PilotPhase, usize)> = Vec::new();
        for word in raw.get_ref() {
            let at = word.span().start;
            let phase = PilotPhase::parse_name(word.get_ref()).map_err(|unknown| {
                let names = PilotPhase::ALL.map(PilotPhase::name);
                let near = nearest_name(&unknown.0, &names);
                let hint = near.map_or_else(
                    || format!("one of {}", names.join(", ")),
                    |near| format!("'{near}' is probably meant"),
                );
                self.fault(at, unknown.to_string(), hint)
            })?;
            if phase == PilotPhase::Reassess {
                return self.fail(
                    at,
                    "reassess is no step of a workflow",
                    "leave it out: it is entered for a cause",
                );
            }
            if listed.iter().any(|(other, _)| *other == phase) {
                return self.fail(at, format!("{phase} is there twice"), "list each phase once");
            }
            // The table of moves knows which phase can come after which.
            if let Some((last, _)) = listed.last()
                && crate::phase::causes_between(*last, phase).is_empty()
            {
                return self.fail(
                    at,
                    format!("{phase} cannot follow {last}"),
                    "use the order of the built-in workflows",
                );
            }
            listed.push((phase, at));
        }
        let at = raw.span().start;
        if listed.last().map(|(phase, _)| *phase) != Some(PilotPhase::Complete) {
            return self.fail(at, "the last phase is not complete", "end the list with \"complete\"");
        }
        if !listed.iter().any(|(phase, _)| *phase == PilotPhase::Execute) {
            // Failed gates, reviews and new plans lead back to it.
            return self.fail(at, "no phase does the work", "add \"execute\"");
        }
        Ok(listed)
    }

    /// Checks that a required phase is listed.
    fn check_switch(
        &self,
        listed: &[(PilotPhase, usize)],
        key: &str,
        value: Option<&Spanned<bool>>,
        phase: PilotPhase,
    ) -> Result<(), WorkflowError> {
        let Some(value) = value.filter(|value| *value.get_ref()) else { return Ok(()) };
        if listed.iter().any(|(other, _)| *other == phase) {
            return Ok(());
        }
        self.fail(
            value.span().start,
            format!("`{key}` without the phase {phase}"),
            format!("add \"{phase}\" to `phases`"),
        )
    }

    fn check_tries(
        &self,
        key: &str,
        value: Option<&Spanned<u32>>,
        default: u32,
    ) -> Result<u32, WorkflowError> {
        let Some(value) = value else { return Ok(default) };
        // Each try is paid: a slip of a digit would cost tenfold.
        if *value.get_ref() > MAX_TRIES {
            let problem = format!("`{key}` is above {MAX_TRIES}");
            return self.fail(value.span().start, problem, "choose fewer: each costs as much as the first");
        }
        Ok(*value.get_ref())
    }
}

/// Returns the name of the workflow for a new unit: its own, else the project's, else `feature`, else the first by name
/// (SF 4.5). `Err` holds a name that is asked for and not there.
///
/// # Errors
///
/// If a workflow is named that does not exist, or none exists.
pub fn choose_workflow<'a>(
    own: Option<&'a str>,
    default: Option<&'a str>,
    existing: &[&'a str],
) -> Result<&'a str, MissingWorkflow> {
    // A name that was asked for is never replaced by another one.
    if let Some(name) = own.or(default) {
        let is_there = existing.contains(&name);
        return if is_there { Ok(name) } else { Err(MissingWorkflow(name.to_owned())) };
    }
    let first = existing.iter().min().copied();
    let feature = existing.contains(&"feature").then_some("feature");
    feature.or(first).ok_or_else(|| MissingWorkflow("feature".to_owned()))
}

/// A workflow without a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no workflow '{0}'")]
pub struct MissingWorkflow(pub String);

impl ToReport for MissingWorkflow {
    fn report(&self) -> Report {
        Report::new(Exit::Config, "pilot.missing_workflow_file", self.to_string())
            .with_hint("add the file below `.writ/workflows`, or name another workflow")
    }
}

#[cfg(test)]
mod tests;
