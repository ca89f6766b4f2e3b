//! Gates on text: what people say (input) and what the agent says (output).

use serde::{Deserialize, Serialize};
use writ_types::entry::{GatePoint, GateVerdict};

/// The most gates of one configuration.
pub const MAX_GATES: usize = 100;

/// One gate of the configuration: `[[gates]]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateConfig {
    /// Its name, shown when it acts.
    pub name: String,
    /// Where it stands: `input` or `output`.
    pub on: GatePoint,
    /// What judges: `predicate`.
    pub provider: Provider,
    /// Texts that trigger it. White space in them matches any white space.
    pub contains: Vec<String>,
    /// Whether upper and lower case count as the same.
    #[serde(default)]
    pub ignore_case: bool,
    /// What it does.
    #[serde(default)]
    pub action: GateAction,
    /// What stands in place of the text, for `replace`.
    #[serde(default)]
    pub replacement: String,
    /// What the user is told.
    #[serde(default)]
    pub reason: String,
}

/// What judges a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provider {
    /// Fixed texts: deterministic.
    Predicate,
}

/// What a gate does when it is triggered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateAction {
    /// Stops the text.
    #[default]
    Block,
    /// Replaces what triggered it.
    Replace,
    /// Asks a person whether the text may go on as it is.
    Ask,
}

/// A configuration that cannot stand.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// Too many gates.
    #[error("{0} gates; the limit is {MAX_GATES}")]
    TooMany(usize),
    /// The name is empty or taken.
    #[error("gate {0}: the name is empty or used twice")]
    Name(String),
    /// It triggers on nothing, or on everything.
    #[error("gate '{0}': 'contains' needs at least one text, and none may be blank")]
    Empty(String),
    /// It stands where it cannot act yet.
    #[error("gate '{name}': 'on = {on}' is not available; use 'input' or 'output'")]
    Point {
        /// The gate.
        name: String,
        /// Where it should stand.
        on: &'static str,
    },
}

/// What all gates of one point say of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// The verdict of each gate, in order; ends at the first that blocks.
    pub verdicts: Vec<(String, GateVerdict, String)>,
    /// The text that goes on; `None` if it was blocked or waits for a person.
    pub text: Option<String>,
    /// The text that goes on if a person says so, where a gate asks and none blocks.
    pub held: Option<String>,
}

impl Judged {
    /// The reason of the gate that blocked, if one did.
    pub fn blocked(&self) -> Option<&str> {
        self.verdicts
            .iter()
            .find(|(_, verdict, _)| *verdict == GateVerdict::Block)
            .map(|(_, _, reason)| reason.as_str())
    }

    /// The first gate that asks and why, where none blocks.
    pub fn asked(&self) -> Option<(&str, &str)> {
        self.held.as_ref()?;
        let asks = self.verdicts.iter().find(|(_, verdict, _)| *verdict == GateVerdict::RequireApproval);
        asks.map(|(gate, _, reason)| (gate.as_str(), reason.as_str()))
    }

    /// Why the text does not go on by itself, if it does not.
    pub fn stopped(&self) -> Option<&str> {
        self.blocked().or_else(|| self.asked().map(|(_, reason)| reason))
    }
}

/// The gates in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GateSet {
    gates: Vec<GateConfig>,
}

impl GateSet {
    /// The gate that is there from the start: it stops messages that would drop a database table.
    pub fn shipped() -> GateConfig {
        GateConfig {
            name: "drop-table".into(),
            on: GatePoint::Input,
            provider: Provider::Predicate,
            contains: vec!["DROP TABLE".into()],
            ignore_case: true,
            action: GateAction::Block,
            replacement: String::new(),
            reason: "The message asks to drop a database table (gate 'drop-table').".into(),
        }
    }

    /// Checks a configuration.
    ///
    /// # Errors
    ///
    /// The first gate that cannot stand.
    pub fn new(gates: Vec<GateConfig>) -> Result<Self, GateError> {
        if gates.len() > MAX_GATES {
            return Err(GateError::TooMany(gates.len()));
        }
        for (n, gate) in gates.iter().enumerate() {
            let taken = gates.iter().take(n).any(|other| other.name == gate.name);
            if gate.name.is_empty() || taken {
                return Err(GateError::Name(gate.name.clone()));
            }
            if gate.contains.is_empty() || gate.contains.iter().any(|text| text.trim().is_empty()) {
                return Err(GateError::Empty(gate.name.clone()));
            }
            match gate.on {
                GatePoint::Input | GatePoint::Output => {}
                GatePoint::Execution => {
                    return Err(GateError::Point { name: gate.name.clone(), on: "execution" });
                }
                GatePoint::Access => {
                    return Err(GateError::Point { name: gate.name.clone(), on: "access" });
                }
            }
        }
        Ok(Self { gates })
    }

    /// Judges a text at one point. The same text and gates always give the same verdicts.
    pub fn judge(&self, point: GatePoint, text: &str) -> Judged {
        let mut judged = Judged { verdicts: Vec::new(), text: Some(text.to_owned()), held: None };
        let mut asks = false;
        for gate in self.gates.iter().filter(|gate| gate.on == point) {
            let Some(current) = judged.text.take() else { break };
            let (verdict, next) = gate.apply(current);
            let reason = match verdict {
                GateVerdict::Pass => String::new(),
                GateVerdict::RequireApproval if gate.reason.is_empty() => {
                    format!("gate '{}' asks about this text", gate.name)
                }
                GateVerdict::Transform | GateVerdict::Block if gate.reason.is_empty() => {
                    format!("stopped by gate '{}'", gate.name)
                }
                GateVerdict::Transform | GateVerdict::Block | GateVerdict::RequireApproval => {
                    gate.reason.clone()
                }
            };
            asks |= verdict == GateVerdict::RequireApproval;
            judged.verdicts.push((gate.name.clone(), verdict, reason));
            judged.text = next;
        }
        if asks {
            // A gate that blocks counts more than one that asks.
            judged.held = judged.text.take();
        }
        judged
    }
}

impl GateConfig {
    fn apply(&self, text: String) -> (GateVerdict, Option<String>) {
        match self.action {
            GateAction::Block => {
                if self.is_triggered(&text) {
                    (GateVerdict::Block, None)
                } else {
                    (GateVerdict::Pass, Some(text))
                }
            }
            GateAction::Ask => {
                let verdict =
                    if self.is_triggered(&text) { GateVerdict::RequireApproval } else { GateVerdict::Pass };
                (verdict, Some(text))
            }
            GateAction::Replace => {
                let replaced =
                    self.contains.iter().fold(text.clone(), |text, needle| self.replace(&text, needle));
                let verdict = if replaced == text { GateVerdict::Pass } else { GateVerdict::Transform };
                (verdict, Some(replaced))
            }
        }
    }

    fn is_triggered(&self, text: &str) -> bool {
        let folded = self.fold(text);
        self.contains.iter().any(|needle| folded.contains(&self.fold(needle)))
    }

    /// One space for each run of white space, and one case where case is ignored.
    fn fold(&self, text: &str) -> String {
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if self.ignore_case { words.to_lowercase() } else { words }
    }

    fn replace(&self, text: &str, needle: &str) -> String {
        if !self.ignore_case {
            return text.replace(needle, &self.replacement);
        }
        // Lower-casing can change lengths outside ASCII, so case is ignored for ASCII letters only.
        let (lower, needle) = (text.to_ascii_lowercase(), needle.to_ascii_lowercase());
        let mut out = String::with_capacity(text.len());
        let mut from = 0;
        for (at, found) in lower.match_indices(&needle) {
            out.push_str(text.get(from..at).unwrap_or_default());
            out.push_str(&self.replacement);
            from = at.saturating_add(found.len());
        }
        out.push_str(text.get(from..).unwrap_or_default());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replace(on: GatePoint) -> GateConfig {
        GateConfig {
            name: "foo".into(),
            on,
            contains: vec!["foo".into()],
            action: GateAction::Replace,
            replacement: "bar".into(),
            ..GateSet::shipped()
        }
    }

    /// Rows: SIL-299 SIL-004
    #[test]
    fn the_shipped_gate_blocks_drop_table_every_time() {
        let gates = GateSet::new(vec![GateSet::shipped()]).expect("valid");
        let first = gates.judge(GatePoint::Input, "please Drop \n TABLE users");
        assert!(first.blocked().is_some_and(|reason| reason.contains("drop-table")));
        assert_eq!(first.text, None);
        for _ in 0..100 {
            assert_eq!(gates.judge(GatePoint::Input, "please Drop \n TABLE users"), first);
        }
        assert_eq!(gates.judge(GatePoint::Input, "please list users").blocked(), None);
        assert_eq!(
            gates.judge(GatePoint::Output, "DROP TABLE users").text.as_deref(),
            Some("DROP TABLE users")
        );
    }

    /// Rows: SIL-023 SIL-032
    #[test]
    fn a_gate_that_asks_holds_the_text_back_and_one_that_blocks_counts_more() {
        let gate = |name: &str, action, text: &str| GateConfig {
            name: name.into(),
            action,
            contains: vec![text.into()],
            replacement: "[it]".into(),
            reason: String::new(),
            ..GateSet::shipped()
        };
        let list = vec![
            gate("asks", GateAction::Ask, "falcon"),
            gate("replaces", GateAction::Replace, "secret"),
            gate("blocks", GateAction::Block, "bomb"),
        ];
        let gates = GateSet::new(list).expect("valid");
        let asked = gates.judge(GatePoint::Input, "the Falcon has a secret");
        assert_eq!((asked.text.as_deref(), asked.held.as_deref()), (None, Some("the Falcon has a [it]")));
        assert_eq!(asked.asked(), Some(("asks", "gate 'asks' asks about this text")));
        assert_eq!((asked.blocked(), asked.stopped()), (None, Some("gate 'asks' asks about this text")));
        let blocked = gates.judge(GatePoint::Input, "the falcon has a bomb");
        assert_eq!((blocked.text.as_deref(), blocked.held.as_deref(), blocked.asked()), (None, None, None));
        assert_eq!(blocked.stopped(), Some("stopped by gate 'blocks'"));
        let passed = gates.judge(GatePoint::Input, "a dove");
        assert_eq!((passed.text.as_deref(), passed.held, passed.verdicts.len()), (Some("a dove"), None, 3));
    }

    #[test]
    fn a_gate_may_rewrite() {
        for point in [GatePoint::Input, GatePoint::Output] {
            let gates = GateSet::new(vec![replace(point)]).expect("valid");
            let judged = gates.judge(point, "a FOO and a foo");
            assert_eq!(judged.text.as_deref(), Some("a bar and a bar"));
            assert_eq!(judged.verdicts.first().map(|v| v.1), Some(GateVerdict::Transform));
        }
    }

    #[test]
    fn later_gates_see_what_earlier_ones_made() {
        let second = GateConfig { name: "bar".into(), contains: vec!["a bar".into()], ..GateSet::shipped() };
        let gates = GateSet::new(vec![replace(GatePoint::Input), second]).expect("valid");
        assert!(gates.judge(GatePoint::Input, "a foo").blocked().is_some());
    }

    #[test]
    fn configurations_that_cannot_stand_are_refused() {
        let blank = GateConfig { contains: vec![" ".into()], ..GateSet::shipped() };
        assert!(matches!(GateSet::new(vec![blank]), Err(GateError::Empty(_))));
        assert!(matches!(
            GateSet::new(vec![GateSet::shipped(), GateSet::shipped()]),
            Err(GateError::Name(_))
        ));
        let late = GateConfig { on: GatePoint::Execution, ..GateSet::shipped() };
        assert!(matches!(GateSet::new(vec![late]), Err(GateError::Point { .. })));
    }
}
