//! One judgement: the gates of a point, one after the other, each on what those before it have left.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use writ_types::entry::{GatePoint, GateVerdict};

use super::config::{GateAction, GateProvider, SCRIPT_MS};
use super::escalation::Escalation;
use super::hook::Call;
use super::said::{GateOpinion, ModelSaid, ScriptEnd};
use super::subject::Subject;
use super::{Gate, Judgement};

/// The longest value that a script is given, in bytes: Linux takes 128 KiB for one variable.
pub const MAX_VALUE_BYTES: usize = 96 * 1024;

/// Something outside that is to judge now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Due {
    /// A script.
    Script(ScriptDue),
    /// A model.
    Model(ModelDue),
}

/// A script that is to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptDue {
    /// Its gate.
    pub gate: String,
    /// The command.
    pub argv: Vec<String>,
    /// The time limit, in milliseconds.
    pub timeout_ms: u64,
    /// The subject, in its environment.
    pub env: BTreeMap<String, String>,
    /// The input of a hook in its place, without the facts of the conversation.
    pub input: Option<Map<String, Value>>,
}

/// A model that is to be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelDue {
    /// Its gate.
    pub gate: String,
    /// The subject for the model.
    pub prompt: String,
    /// The text.
    pub text: String,
}

/// A judgement under way.
#[derive(Debug)]
pub struct Judging<'a> {
    gates: Vec<&'a Gate>,
    /// The gate that is next.
    at: usize,
    again: u32,
    point: GatePoint,
    subject: Subject,
    arguments: Option<Value>,
    about: Map<String, Value>,
    asks: bool,
    judged: Judgement,
}

impl<'a> Judging<'a> {
    pub(super) fn new(
        gates: Vec<&'a Gate>,
        point: GatePoint,
        subject: Subject,
        arguments: Option<Value>,
    ) -> Self {
        let judged = Judgement {
            verdicts: Vec::new(),
            text: None,
            held: None,
            after: None,
            arguments: None,
            states: Vec::new(),
        };
        Self { gates, at: 0, again: 0, point, subject, arguments, about: Map::new(), asks: false, judged }
    }

    /// Without the hooks of other projects.
    #[must_use]
    pub fn of_project(mut self, project: Option<&str>) -> Self {
        self.gates.retain(|gate| gate.hook.as_ref().is_none_or(|hook| hook.is_of(project)));
        self
    }

    pub(super) fn with_facts(mut self, about: Map<String, Value>) -> Self {
        self.about = about;
        self
    }

    /// Judges on, until something outside is due or all is judged. What is due is answered by one of
    /// [`Self::script_said`], [`Self::model_said`] and [`Self::note_unavailable`].
    pub fn next_due(&mut self) -> Option<Due> {
        // The gate is copied out, since the verdict changes the state that it was taken from.
        while let Some(gate) = self.gates.get(self.at).copied() {
            match gate.config.provider {
                GateProvider::Predicate | GateProvider::Regex | GateProvider::Guard => {
                    let said = self.judge_inside(gate);
                    self.take_opinion(gate, said);
                }
                GateProvider::Script => match (self.script_due(gate), &gate.hook) {
                    (Ok(due), _) => return Some(Due::Script(due)),
                    (Err(why), Some(hook)) => self.take_opinion(gate, hook.judge_failure(&why)),
                    // A script that cannot be given its subject has not judged, so its gate blocks.
                    (Err(why), None) => {
                        self.take_opinion(gate, GateOpinion::bare_opinion(GateVerdict::Block, why))
                    }
                },
                GateProvider::Llm => {
                    return Some(Due::Model(ModelDue {
                        gate: gate.config.name.clone(),
                        prompt: gate.config.prompt.clone().unwrap_or_default(),
                        text: self.subject.text.clone(),
                    }));
                }
            }
        }
        None
    }

    /// The script that was due has ended.
    pub fn script_said(&mut self, end: &ScriptEnd, said: &str) {
        if let Some(gate) = self.gates.get(self.at).copied() {
            let said = match &gate.hook {
                Some(hook) => hook.judge_output(end, said),
                None => GateOpinion::of_script(self.point, end, said),
            };
            self.take_opinion(gate, said);
        }
    }

    /// The model that was due has answered.
    pub fn model_said(&mut self, said: &ModelSaid) {
        let Some(gate) = self.gates.get(self.at).copied() else { return };
        // A model alone only advises: its answer differs from call to call.
        let verdict = match (gate.config.promote_to_policy, said.pass) {
            (true, true) => GateVerdict::Pass,
            (true, false) => GateVerdict::Block,
            (false, _) => GateVerdict::Advise,
        };
        self.take_opinion(gate, GateOpinion::bare_opinion(verdict, said.in_words()));
    }

    /// Notes that the due judge is not available: a gate that may stop blocks, one that only advises says so.
    pub fn note_unavailable(&mut self, why: &str) {
        let Some(gate) = self.gates.get(self.at).copied() else { return };
        let said = match (&gate.hook, gate.only_advises()) {
            (Some(hook), _) => hook.judge_failure(why),
            (None, true) => {
                GateOpinion::bare_opinion(GateVerdict::Advise, format!("it could not judge: {why}"))
            }
            (None, false) => {
                GateOpinion::bare_opinion(GateVerdict::Block, format!("it could not judge: {why}"))
            }
        };
        self.take_opinion(gate, said);
    }

    /// Goes on without the due judge, which gives no verdict: for looking at what the others say.
    pub const fn leave_out(&mut self) {
        self.at = self.at.saturating_add(1);
    }

    /// Ends the judgement and returns the verdicts.
    pub fn end_judging(mut self) -> Judgement {
        // After a block no text goes on, also where later gates have changed it.
        if self.judged.first_block().is_none() {
            let text = Some(self.subject.text);
            if self.asks { self.judged.held = text } else { self.judged.text = text }
        }
        self.judged
    }

    /// Judges by a gate that needs no script or model.
    fn judge_inside(&self, gate: &Gate) -> GateOpinion {
        let (config, subject) = (&gate.config, &self.subject);
        let field = config.field.as_deref();
        let find = |check: &super::check::GateCheck| check.find_hit(subject, field, config.promote_to_policy);
        let hits: Vec<_> = gate.checks.iter().filter_map(find).collect();
        let whys = |advice: bool| {
            let whys = hits.iter().filter(|hit| hit.advises == advice).map(|hit| hit.why.as_str());
            whys.collect::<Vec<_>>().join("; ")
        };
        // Advice alone stops nothing, but it is recorded.
        if hits.iter().all(|hit| hit.advises) {
            let verdict = if hits.is_empty() { GateVerdict::Pass } else { GateVerdict::Advise };
            return GateOpinion::bare_opinion(verdict, whys(true));
        }
        // The requester of an action reads that it was stopped, without a hint at a way around.
        let found = if subject.tool.is_some() { String::new() } else { whys(false) };
        match config.action {
            GateAction::Block => GateOpinion::bare_opinion(GateVerdict::Block, own_reason(gate, &found)),
            GateAction::Ask => {
                GateOpinion::bare_opinion(GateVerdict::RequireApproval, own_reason(gate, &found))
            }
            GateAction::Replace => {
                let replaced = gate
                    .checks
                    .iter()
                    .fold(subject.text.clone(), |text, check| check.replace_hits(&text, &config.replacement));
                // A text is blocked if a check still triggers after the replacement, for instance because of another spelling.
                if gate
                    .checks
                    .iter()
                    .any(|check| check.find_hit(&Subject::text(&replaced), None, true).is_some())
                {
                    return GateOpinion::bare_opinion(GateVerdict::Block, own_reason(gate, &found));
                }
                GateOpinion {
                    text: Some(replaced),
                    ..GateOpinion::bare_opinion(GateVerdict::Transform, own_reason(gate, ""))
                }
            }
        }
    }

    /// A script with what it judges.
    fn script_due(&self, gate: &Gate) -> Result<ScriptDue, String> {
        if let Some(hook) = &gate.hook {
            let Call { argv, input, timeout_ms } = hook.build_call(self.hook_input())?;
            let (gate, env, input) = (gate.config.name.clone(), BTreeMap::new(), Some(input));
            return Ok(ScriptDue { gate, argv, timeout_ms, env, input });
        }
        let point = match self.point {
            GatePoint::Input => "input",
            GatePoint::Output => "output",
            GatePoint::Execution => "execution",
            GatePoint::Access => "access",
        };
        // Variables and not arguments: other programs can read the arguments of a process.
        let mut env = BTreeMap::from([
            ("WRIT_GATE".to_owned(), gate.config.name.clone()),
            ("WRIT_POINT".to_owned(), point.to_owned()),
        ]);
        match &self.subject.tool {
            None => drop(env.insert("WRIT_TEXT".to_owned(), self.subject.text.clone())),
            Some(tool) => {
                let arguments = self.arguments.as_ref().map_or_else(|| "null".to_owned(), Value::to_string);
                env.extend([
                    ("WRIT_TOOL".to_owned(), tool.clone()),
                    ("WRIT_ACTION".to_owned(), self.subject.to_json()),
                    ("WRIT_ARGS".to_owned(), arguments),
                ]);
            }
        }
        // A variable ends at a zero byte, so a script would judge a shorter text.
        if env.values().any(|value| value.len() > MAX_VALUE_BYTES || value.contains('\0')) {
            return Err("it is too long for a script, or holds a zero byte".to_owned());
        }
        let script = gate.config.script.as_deref().unwrap_or_default();
        Ok(ScriptDue {
            gate: gate.config.name.clone(),
            // The judged text is in the script's environment, never a part of the shell's input.
            argv: ["/bin/sh", "-c", script].map(str::to_owned).into(),
            timeout_ms: gate.config.timeout_ms.unwrap_or(SCRIPT_MS),
            env,
            input: None,
        })
    }

    /// Builds the input of a hook about the subject.
    fn hook_input(&self) -> Map<String, Value> {
        let mut told = self.about.clone();
        match &self.subject.tool {
            None if told.is_empty() => drop(told.insert("text".to_owned(), self.subject.text.clone().into())),
            // What an earlier hook has made of the arguments is what the next one reads.
            None => {
                if let (Some(place), Some(changed)) = (told.get_mut("arguments"), &self.arguments) {
                    place.clone_from(changed);
                }
            }
            Some(tool) => {
                told.insert("tool".to_owned(), tool.clone().into());
                told.insert("action".to_owned(), self.subject.value.clone());
                told.insert("arguments".to_owned(), self.arguments.clone().unwrap_or_default());
            }
        }
        told
    }

    /// Puts what a gate says in order.
    fn take_opinion(&mut self, gate: &'a Gate, said: GateOpinion) {
        let name = &gate.config.name;
        let GateOpinion { mut verdict, mut reason, mut text, mut arguments, state, stripped } = said;
        self.judged.states.extend(state.map(|state| (name.clone(), state)));
        // Only gates of the policy lane may change what goes on.
        if gate.only_advises() && (text.is_some() || arguments.is_some()) {
            (text, arguments, verdict) = (None, None, GateVerdict::Advise);
            reason = "it wanted to change what it only advises about: left out".to_owned();
        }
        // A change that was left out is recorded as advice, so that the owner sees why it had no effect.
        for key in stripped {
            let why = format!("it wanted to change '{key}', which it may not change here: left out");
            self.judged.verdicts.push((name.clone(), GateVerdict::Advise, why));
        }
        // The advice stays in the record with its reason.
        if gate.only_advises() && matches!(verdict, GateVerdict::Block | GateVerdict::RequireApproval) {
            verdict = GateVerdict::Advise;
        }
        if verdict == GateVerdict::Block {
            match &gate.after {
                // The output point repeats the answer of the model, not the gate; that is done by the turn.
                Some(Escalation::Retry { attempts })
                    if gate.is_outside() && self.point != GatePoint::Output && self.again < *attempts =>
                {
                    self.again += 1;
                    let why = format!("it blocks and is asked again: {reason}");
                    self.judged.verdicts.push((name.clone(), GateVerdict::Advise, why));
                    return;
                }
                Some(Escalation::EscalateHuman) => verdict = GateVerdict::RequireApproval,
                Some(_) | None => {}
            }
        }
        let changes = text.is_some() || arguments.is_some();
        // A changed text is never a plain pass: the record must show that something was changed.
        if verdict == GateVerdict::Pass && changes {
            verdict = GateVerdict::Transform;
        }
        // The next gate judges what this one has made of it.
        if matches!(verdict, GateVerdict::Transform | GateVerdict::Pass | GateVerdict::RequireApproval) {
            self.subject.text = text.unwrap_or_else(|| std::mem::take(&mut self.subject.text));
            if let Some(arguments) = arguments {
                self.arguments = Some(arguments.clone());
                self.judged.arguments = Some(arguments);
            }
        }
        // An empty reason would leave a person without an explanation.
        if reason.is_empty() && verdict != GateVerdict::Pass {
            reason = own_reason(gate, "");
        }
        self.asks |= verdict == GateVerdict::RequireApproval;
        // All gates are recorded, also those that pass, so that a verdict can be reconstructed.
        self.judged.verdicts.push((name.clone(), verdict, reason));
        (self.at, self.again) = (self.at + 1, 0);
        if matches!(verdict, GateVerdict::Block | GateVerdict::Halt) {
            self.judged.after.clone_from(&gate.after);
            // A question counts less than a block. All hooks are called, since a later one may be stricter.
            let heard = |gate: &&Gate| gate.hook.is_some() && verdict == GateVerdict::Block;
            let rest = self.gates.get(self.at..).unwrap_or_default();
            self.gates = rest.iter().copied().filter(heard).collect();
            self.at = 0;
        }
    }
}

/// The reason that the owner has written, or one that says what was found.
fn own_reason(gate: &Gate, found: &str) -> String {
    let (name, asks) = (&gate.config.name, gate.config.action == GateAction::Ask);
    if gate.hook.is_some() {
        return format!("{name} says so");
    }
    match (gate.config.reason.is_empty(), asks, found) {
        (false, _, _) => gate.config.reason.clone(),
        (true, true, "") => format!("gate '{name}' asks about this"),
        (true, true, found) => format!("gate '{name}' asks about this ({found})"),
        (true, false, "") => format!("stopped by gate '{name}'"),
        (true, false, found) => format!("stopped by gate '{name}' ({found})"),
    }
}
