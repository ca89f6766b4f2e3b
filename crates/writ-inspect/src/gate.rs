//! Gates: on texts of people (input) and of the agent (output), on actions (execution) and on the things that
//! these touch (access).
//!
//! The configuration ([`GateConfig`]) is checked once and compiled. Most gates judge alone, and the same
//! subject and gates always give the same verdicts. Scripts and models run elsewhere: a [`Judging`] names the
//! one that is due, takes its output, and puts the verdicts in order. The output of a script or a model
//! counts only as a verdict of few words; anything else blocks.

mod check;

mod config;

mod escalation;

mod guard;

mod hook;

mod judging;

mod place;

mod said;

mod subject;

use std::ops::Range;

use serde_json::{Map, Value};
use writ_types::entry::{GatePoint, GateVerdict, HookEvent};

pub use config::{
    ATTEMPTS, EscalationAction, EscalationConfig, EscalationConfigs, GateAction, GateConfig, GateError,
    GateProvider, Lane, MAX_ATTEMPTS, MAX_ESCALATIONS, MAX_GATES, MAX_SCRIPT_BYTES, MAX_SCRIPT_MS, Point,
    SCRIPT_MS,
};
pub use escalation::Escalation;
pub use hook::{HOOK, Hook, HookConfig, MAX_HOOKS, MAX_STATE_BYTES, Permission, Program, check_program};
pub use judging::{Due, Judging, MAX_VALUE_BYTES, ModelDue, ScriptDue};
pub use said::{MAX_SAID_BYTES, ModelSaid, ScriptEnd};
pub use subject::Subject;

use check::GateCheck;

/// The verdicts of all gates of one point on a subject.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The verdict of each hook and gate, in order; ends at the first gate that blocks, and after the hooks if one of
    /// them does.
    pub verdicts: Vec<(String, GateVerdict, String)>,
    /// The text that goes on; `None` if it was blocked or waits for a person.
    pub text: Option<String>,
    /// The text that goes on if a person says so, where a gate asks and none blocks.
    pub held: Option<String>,
    /// The escalation that the blocking gate names.
    pub after: Option<Escalation>,
    /// The arguments that a tool is to be called with instead.
    pub arguments: Option<Value>,
    /// The states that hooks store for their next call, by their names among the gates.
    pub states: Vec<(String, Value)>,
}

/// Returns the strictest verdict: a halt of the turn before a block.
pub fn strictest_block(verdicts: &[(String, GateVerdict, String)]) -> Option<(&str, GateVerdict, &str)> {
    // The order of the gates does not matter for this: a halt anywhere counts most.
    let find = |wanted| verdicts.iter().find(|(_, verdict, _)| *verdict == wanted);
    let block = find(GateVerdict::Halt).or_else(|| find(GateVerdict::Block));
    block.map(|(gate, verdict, reason)| (gate.as_str(), *verdict, reason.as_str()))
}

impl Judgement {
    /// The hook or gate that blocked and why, if one did.
    pub fn first_block(&self) -> Option<(&str, &str)> {
        strictest_block(&self.verdicts).map(|(gate, _, reason)| (gate, reason))
    }

    /// Returns the combined verdict.
    pub fn worst_verdict(&self) -> GateVerdict {
        let order = [
            GateVerdict::Halt,
            GateVerdict::Block,
            GateVerdict::RequireApproval,
            GateVerdict::Transform,
            GateVerdict::Advise,
        ];
        // The first of the order that occurs is the strictest, so a pass is what is left.
        let said = |wanted: &GateVerdict| self.verdicts.iter().any(|(_, verdict, _)| verdict == wanted);
        order.into_iter().find(said).unwrap_or(GateVerdict::Pass)
    }

    /// The reason of the gate that blocked, if one did.
    pub fn blocked_reason(&self) -> Option<&str> {
        self.first_block().map(|(_, reason)| reason)
    }

    /// The first gate that asks and why, where none blocks.
    pub fn first_question(&self) -> Option<(&str, &str)> {
        // Without a text that waits there is nothing that an answer could let go on.
        self.held.as_ref()?;
        let asks = self.verdicts.iter().find(|(_, verdict, _)| *verdict == GateVerdict::RequireApproval);
        asks.map(|(gate, _, reason)| (gate.as_str(), reason.as_str()))
    }

    /// Returns the reason for which the text does not go on as it is.
    pub fn stop_reason(&self) -> Option<&str> {
        self.blocked_reason().or_else(|| self.first_question().map(|(_, reason)| reason))
    }

    /// The gates that had nothing to object.
    pub fn passed_gates(&self) -> impl Iterator<Item = &str> {
        let passed = self.verdicts.iter().filter(|(_, verdict, _)| *verdict == GateVerdict::Pass);
        passed.map(|(gate, _, _)| gate.as_str())
    }
}

/// One gate, made ready.
#[derive(Clone, Debug)]
struct Gate {
    config: GateConfig,
    checks: Vec<GateCheck>,
    after: Option<Escalation>,
    /// The hook that it is for.
    hook: Option<Hook>,
}

impl Gate {
    /// Returns true if it may only advise.
    fn only_advises(&self) -> bool {
        match self.config.provider {
            GateProvider::Llm => !self.config.promote_to_policy,
            GateProvider::Predicate | GateProvider::Regex | GateProvider::Guard | GateProvider::Script => {
                self.config.lane == Some(Lane::Quality)
            }
        }
    }

    /// Returns true if it decides at a point.
    fn is_at(&self, point: GatePoint) -> bool {
        match &self.hook {
            Some(hook) => hook.config.on.gate_point() == Some(point),
            None => GatePoint::from(self.config.on) == point,
        }
    }

    /// Returns true if a script or a model judges.
    const fn is_outside(&self) -> bool {
        match self.config.provider {
            GateProvider::Script | GateProvider::Llm => true,
            GateProvider::Predicate | GateProvider::Regex | GateProvider::Guard => false,
        }
    }
}

/// The gates in force.
#[derive(Clone, Debug, Default)]
pub struct GateSet {
    gates: Vec<Gate>,
}

impl GateSet {
    /// The gate that is there from the start: it stops messages that would drop a database table.
    pub fn shipped_gate() -> GateConfig {
        GateConfig {
            name: "drop-table".into(),
            on: Point::Input,
            provider: GateProvider::Predicate,
            contains: vec!["DROP TABLE".into()],
            ignore_case: true,
            reason: "The message asks to drop a database table (gate 'drop-table').".into(),
            ..GateConfig::default()
        }
    }

    /// Checks gates with the built-in escalations alone.
    ///
    /// # Errors
    ///
    /// As [`Self::with_escalations`].
    pub fn new(gates: Vec<GateConfig>) -> Result<Self, GateError> {
        Self::with_escalations(gates, &EscalationConfigs::new())
    }

    /// Checks a configuration: gates, and what may follow when one blocks. A name that both know is the
    /// configuration's.
    ///
    /// # Errors
    ///
    /// The first gate or escalation that cannot stand.
    pub fn with_escalations(
        gates: Vec<GateConfig>,
        escalations: &EscalationConfigs,
    ) -> Result<Self, GateError> {
        for count in [gates.len(), escalations.len()] {
            if count > MAX_GATES {
                return Err(GateError::TooMany(count));
            }
        }
        // All of them, also those that no gate names: a mistake shows when the file is read and not when a
        // gate blocks.
        for (key, config) in escalations {
            escalation::check_escalation(key, config)?;
        }
        let mut ready: Vec<Gate> = Vec::new();
        for config in gates {
            // A name stands in verdicts, questions and records, so it must mean one gate.
            if config.name.is_empty() || ready.iter().any(|other| other.config.name == config.name) {
                return Err(GateError::Name(config.name));
            }
            let checks = check::compile_checks(&config)?;
            let after = escalation::look_up(&config, escalations)?;
            let gate = Gate { config, checks, after, hook: None };
            place::check_gate(&gate)?;
            ready.push(gate);
        }
        Ok(Self { gates: ready })
    }

    /// Returns true if there is a gate at a point.
    pub fn stands_at(&self, point: GatePoint) -> bool {
        self.gates.iter().any(|gate| gate.is_at(point))
    }

    /// Returns true if there is a gate of this name.
    pub fn has_gate(&self, name: &str) -> bool {
        self.gates.iter().any(|gate| gate.config.name == name && gate.hook.is_none())
    }

    /// Returns true if a gate judges texts of people without a model.
    pub fn hears_people(&self, name: &str) -> bool {
        // A hook and a model may be wrong about a person's text, so only the owner's own checks count here.
        let by_model = |gate: &Gate| gate.config.provider == GateProvider::Llm || gate.hook.is_some();
        let at_input = |gate: &Gate| GatePoint::from(gate.config.on) == GatePoint::Input;
        self.gates.iter().any(|gate| gate.config.name == name && at_input(gate) && !by_model(gate))
    }

    /// Returns true if a script or a model judges at a point.
    pub fn has_outside(&self, point: GatePoint) -> bool {
        self.gates.iter().any(|gate| gate.is_outside() && gate.is_at(point))
    }

    /// Returns the escalation after a block by this gate.
    pub fn escalation_after(&self, name: &str) -> Option<&Escalation> {
        self.gates.iter().find(|gate| gate.config.name == name)?.after.as_ref()
    }

    /// Returns true if a block by one of the gates has a task proposed.
    pub fn spawns_tasks(&self) -> bool {
        self.gates.iter().any(|gate| gate.after == Some(Escalation::SpawnTask))
    }

    /// Returns true if an answer may be shown only when all of it was judged: a script or a model may stop
    /// it, or it may be reworded.
    pub fn holds_output(&self) -> bool {
        self.gates.iter().any(|gate| {
            let again =
                matches!(gate.after, Some(Escalation::SuppressAndRephrase { .. } | Escalation::Retry { .. }));
            gate.config.on == Point::Output && (again || (gate.is_outside() && !gate.only_advises()))
        })
    }

    /// Begins to judge at a point. `arguments`: what a tool was called with, for an action.
    pub fn begin_judging(&self, point: GatePoint, subject: Subject, arguments: Option<Value>) -> Judging<'_> {
        let here = |gate: &&Gate| {
            // Texts have no tool, so a list of tools does not exclude them.
            let named = |tool: &String| gate.config.tools.is_empty() || gate.config.tools.contains(tool);
            gate.is_at(point) && subject.tool.as_ref().is_none_or(named)
        };
        Judging::new(self.gates.iter().filter(here).collect(), point, subject, arguments)
    }

    /// Begins to tell hooks of what has happened: they stop nothing, but may say that the turn is to end.
    pub fn notify_hooks(
        &self,
        event: HookEvent,
        tool: Option<&str>,
        about: Map<String, Value>,
    ) -> Judging<'_> {
        let here = |gate: &&Gate| {
            let named =
                |tool| gate.config.tools.is_empty() || gate.config.tools.iter().any(|own| own == tool);
            gate.hook.as_ref().is_some_and(|hook| hook.config.on == event) && tool.is_none_or(named)
        };
        Judging::new(self.gates.iter().filter(here).collect(), GatePoint::Execution, Subject::text(""), None)
            .with_facts(about)
    }

    /// Judges a text at one point by what needs nothing outside; where something outside might stop it, it is stopped.
    /// The same text and gates always give the same verdicts.
    pub fn judge_text(&self, point: GatePoint, text: &str) -> Judgement {
        let mut judging = self.begin_judging(point, Subject::text(text), None);
        // The loop ends, since each judge that is noted as unavailable moves on to the next gate.
        while judging.next_due().is_some() {
            judging.note_unavailable("it is not asked here");
        }
        judging.end_judging()
    }
}

/// Finds personal data in a text, by the list of `detect_pii`, in order; the ranges may overlap.
pub fn personal_in(text: &str) -> Vec<Range<usize>> {
    guard::GuardCheck::Pii.find_spans(text)
}

#[cfg(test)]
mod tests;
