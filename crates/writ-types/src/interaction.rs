//! How a turn deals with its person: what it is about, and whether it decides, reports or confirms.
//!
//! Both are labels of a turn. They change what its model is asked to do; what needs a person's consent is the door's to decide,
//! in every mode.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The subject of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InteractionRegister {
    /// The person and the agent find out what is wanted or known.
    #[default]
    Exploration,
    /// Something is done.
    Execution,
    /// The person judges something that was made.
    Review,
    /// The person asks how things stand.
    Status,
}

/// How a turn treats what is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InteractionMode {
    /// It goes on with the usual choice, and offers the others.
    DefaultAndOffer,
    /// It does what was asked for and reports.
    ActAndReport,
    /// It asks for consent where that is needed, and nowhere else.
    ConfirmOnlyWhenRequired,
}

/// The owner's setting for turns about which nothing else decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Initiative {
    /// Little: the agent waits for consent.
    Low,
    /// The usual: the agent takes the default and offers the rest.
    #[default]
    Medium,
    /// Much: the agent acts and reports.
    High,
}

/// Everything that the mode of a turn follows from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModeInputs {
    /// True if the turn begins with words that are not its owner's: what follows from them needs the owner's consent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub risk_requires_confirmation: bool,
    /// The mode that the planner has given to one step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planner_override: Option<InteractionMode>,
    /// The mode of the work item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_item_mode: Option<InteractionMode>,
    /// The mode that the proxy has chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_mode: Option<InteractionMode>,
    /// The owner's setting.
    #[serde(default)]
    pub initiative: Initiative,
}

/// The labels of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interaction {
    /// The subject.
    #[serde(default)]
    pub register: InteractionRegister,
    /// What the mode follows from.
    #[serde(default)]
    pub inputs: ModeInputs,
}

impl Interaction {
    /// Returns true for the labels of a turn of which nothing is known: they need not be stored.
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

/// An error of reading a label.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{found}' is no {what}: it is one of {choices}")]
pub struct UnknownLabel {
    /// The kind of label.
    pub what: &'static str,
    /// The text that was found, cut.
    pub found: String,
    /// The labels that there are.
    pub choices: String,
}

/// Returns the mode of a turn: the first of risk, planner, work item and proxy that says something, else that of the owner's setting.
pub const fn resolve_interaction_mode(inputs: &ModeInputs) -> InteractionMode {
    if inputs.risk_requires_confirmation {
        return InteractionMode::ConfirmOnlyWhenRequired;
    }
    match (inputs.planner_override, inputs.work_item_mode, inputs.proxy_mode) {
        (Some(mode), _, _) | (None, Some(mode), _) | (None, None, Some(mode)) => mode,
        (None, None, None) => inputs.initiative.default_mode(),
    }
}

/// The most characters of a foreign text that an error repeats.
const MAX_FOUND_CHARS: usize = 40;

fn find_label<T: Copy>(
    what: &'static str,
    all: &[T],
    name: impl Fn(T) -> &'static str,
    text: &str,
) -> Result<T, UnknownLabel> {
    all.iter().copied().find(|label| name(*label) == text).ok_or_else(|| UnknownLabel {
        what,
        found: text.chars().take(MAX_FOUND_CHARS).collect(),
        choices: all.iter().map(|label| name(*label)).collect::<Vec<_>>().join(", "),
    })
}

// === impl InteractionRegister ===

impl InteractionRegister {
    /// Every register, in the order of documents.
    pub const ALL: [Self; 4] = [Self::Exploration, Self::Execution, Self::Review, Self::Status];

    /// Returns its name in records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exploration => "exploration",
            Self::Execution => "execution",
            Self::Review => "review",
            Self::Status => "status",
        }
    }
}

impl FromStr for InteractionRegister {
    type Err = UnknownLabel;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        find_label("interaction register", &Self::ALL, Self::name, text)
    }
}

// === impl InteractionMode ===

impl InteractionMode {
    /// Every mode, in the order of documents.
    pub const ALL: [Self; 3] = [Self::DefaultAndOffer, Self::ActAndReport, Self::ConfirmOnlyWhenRequired];

    /// Returns its name in records and plans.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DefaultAndOffer => "default_and_offer",
            Self::ActAndReport => "act_and_report",
            Self::ConfirmOnlyWhenRequired => "confirm_only_when_required",
        }
    }

    /// Returns the sentence that a model is given.
    pub const fn instruction(self) -> &'static str {
        match self {
            Self::DefaultAndOffer => {
                "Where something is open and can be undone, do not ask: take the usual choice, go on, and offer the others in your answer."
            }
            Self::ActAndReport => "Do not ask back: do what is asked for, and report what was done.",
            Self::ConfirmOnlyWhenRequired => {
                "Request what needs consent by the call itself, which waits for it; ask about nothing else."
            }
        }
    }
}

impl FromStr for InteractionMode {
    type Err = UnknownLabel;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        find_label("interaction mode", &Self::ALL, Self::name, text)
    }
}

impl fmt::Display for InteractionMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

// === impl Initiative ===

impl Initiative {
    /// Every setting, in the order of documents.
    pub const ALL: [Self; 3] = [Self::Low, Self::Medium, Self::High];

    /// Returns the mode of turns about which nothing else decides.
    pub const fn default_mode(self) -> InteractionMode {
        match self {
            Self::Low => InteractionMode::ConfirmOnlyWhenRequired,
            Self::Medium => InteractionMode::DefaultAndOffer,
            Self::High => InteractionMode::ActAndReport,
        }
    }
}

// === impl Interaction ===

impl Interaction {
    /// Returns the mode.
    pub const fn mode(&self) -> InteractionMode {
        resolve_interaction_mode(&self.inputs)
    }

    /// Adds what the proxy says about the turn.
    #[must_use]
    pub fn join_proxy(self, register: Option<InteractionRegister>, mode: Option<InteractionMode>) -> Self {
        Self {
            register: register.unwrap_or(self.register),
            inputs: ModeInputs { proxy_mode: mode.or(self.inputs.proxy_mode), ..self.inputs },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modes() -> Vec<Option<InteractionMode>> {
        std::iter::once(None).chain(InteractionMode::ALL.map(Some)).collect()
    }

    /// All 384 combinations: the highest input that is there wins, and the same inputs give the same mode.
    ///
    /// Rows: SIL-349
    #[test]
    fn the_highest_input_that_is_there_decides_the_mode() {
        let mut seen = 0;
        for risk_requires_confirmation in [false, true] {
            for planner_override in modes() {
                for work_item_mode in modes() {
                    for proxy_mode in modes() {
                        for (initiative, last) in [
                            (Initiative::Low, InteractionMode::ConfirmOnlyWhenRequired),
                            (Initiative::Medium, InteractionMode::DefaultAndOffer),
                            (Initiative::High, InteractionMode::ActAndReport),
                        ] {
                            let inputs = ModeInputs {
                                risk_requires_confirmation,
                                planner_override,
                                work_item_mode,
                                proxy_mode,
                                initiative,
                            };
                            let by_risk = risk_requires_confirmation
                                .then_some(InteractionMode::ConfirmOnlyWhenRequired);
                            let present = [by_risk, planner_override, work_item_mode, proxy_mode, Some(last)];
                            let highest = present.into_iter().flatten().next().expect("the setting");
                            assert_eq!(resolve_interaction_mode(&inputs), highest, "{inputs:?}");
                            assert_eq!(resolve_interaction_mode(&inputs), resolve_interaction_mode(&inputs));
                            seen += 1;
                        }
                    }
                }
            }
        }
        assert_eq!(seen, 2 * 4 * 4 * 4 * 3);
    }

    #[test]
    fn a_label_is_read_by_its_name_alone() {
        for register in InteractionRegister::ALL {
            assert_eq!(register.name().parse(), Ok(register));
            assert_eq!(serde_json::to_value(register).expect("writes"), register.name());
        }
        for mode in InteractionMode::ALL {
            assert_eq!(mode.name().parse(), Ok(mode));
            assert_eq!(serde_json::to_value(mode).expect("writes"), mode.name());
        }
        let error = "ask_always".parse::<InteractionMode>().expect_err("no mode");
        let choices = "default_and_offer, act_and_report, confirm_only_when_required";
        assert_eq!(error.to_string(), format!("'ask_always' is no interaction mode: it is one of {choices}"));
        let error = "Review".parse::<InteractionRegister>().expect_err("no register");
        assert!(error.choices.ends_with("review, status"), "{error}");
    }

    #[test]
    fn the_proxys_words_are_added_to_what_is_there() {
        let begun = Interaction { register: InteractionRegister::Execution, ..Interaction::default() };
        assert_eq!(begun.join_proxy(None, None), begun);
        let joined = begun.join_proxy(Some(InteractionRegister::Status), Some(InteractionMode::ActAndReport));
        assert_eq!(
            (joined.register, joined.mode()),
            (InteractionRegister::Status, InteractionMode::ActAndReport)
        );
        let bound = ModeInputs { work_item_mode: Some(InteractionMode::DefaultAndOffer), ..joined.inputs };
        assert_eq!(resolve_interaction_mode(&bound), InteractionMode::DefaultAndOffer);
    }
}
