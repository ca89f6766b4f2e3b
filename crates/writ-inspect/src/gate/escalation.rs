//! Escalations: sequels of a block, looked up by name, the configuration's first, then the built-in ones.

use super::config::{
    ATTEMPTS, EscalationAction, EscalationConfig, EscalationConfigs, GateConfig, GateError, MAX_ATTEMPTS,
};

/// The text of the built-in `respond`.
const RESPONSE: &str = "I cannot help with that here.";

/// A checked sequel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Escalation {
    /// The turn ends with this text.
    Respond {
        /// The text.
        text: String,
    },
    /// The block is recorded and shown.
    Report,
    /// A person decides.
    EscalateHuman,
    /// The case is put into a queue.
    TransferToQueue {
        /// Its name.
        queue: String,
    },
    /// The answer is withheld and worded anew, so often at most; then it is blocked.
    SuppressAndRephrase {
        /// The number of repetitions.
        attempts: u32,
    },
    /// The step is done again, so often at most; then it is blocked.
    Retry {
        /// The number of repetitions.
        attempts: u32,
    },
    /// A follow-up task is noted; nothing begins it.
    SpawnTask,
}

impl Escalation {
    /// Its action.
    pub const fn action(&self) -> EscalationAction {
        match self {
            Self::Respond { .. } => EscalationAction::Respond,
            Self::Report => EscalationAction::Report,
            Self::EscalateHuman => EscalationAction::EscalateHuman,
            Self::TransferToQueue { .. } => EscalationAction::TransferToQueue,
            Self::SuppressAndRephrase { .. } => EscalationAction::SuppressAndRephrase,
            Self::Retry { .. } => EscalationAction::Retry,
            Self::SpawnTask => EscalationAction::SpawnTask,
        }
    }
}

/// Looks up the sequel that a gate names.
///
/// # Errors
///
/// If the name is unknown, or its entry is invalid.
pub(super) fn look_up(
    gate: &GateConfig,
    escalations: &EscalationConfigs,
) -> Result<Option<Escalation>, GateError> {
    let Some(key) = &gate.on_block else { return Ok(None) };
    // The configuration comes first, so that an owner can give a built-in name other settings.
    if let Some(config) = escalations.get(key) {
        return check_escalation(key, config).map(Some);
    }
    let built_in = EscalationAction::ALL.into_iter().find(|action| action.as_str() == key);
    let unknown = || GateError::Escalation { name: gate.name.clone(), key: key.clone() };
    let action = built_in.ok_or_else(unknown)?;
    check_escalation(key, &EscalationConfig { action, text: None, queue: None, attempts: None }).map(Some)
}

/// Checks one.
///
/// # Errors
///
/// If it lacks what it needs, or has what it cannot use.
pub(super) fn check_escalation(key: &str, config: &EscalationConfig) -> Result<Escalation, GateError> {
    let bad = |why| Err(GateError::BadEscalation { key: key.to_owned(), why });
    let again = matches!(config.action, EscalationAction::SuppressAndRephrase | EscalationAction::Retry);
    if config.text.is_some() && config.action != EscalationAction::Respond {
        return bad("'text' belongs to 'respond'");
    }
    if config.queue.is_some() && config.action != EscalationAction::TransferToQueue {
        return bad("'queue' belongs to 'transfer_to_queue'");
    }
    if config.attempts.is_some() && !again {
        return bad("'attempts' belongs to 'retry' and 'suppress_and_rephrase'");
    }
    let attempts = config.attempts.unwrap_or(ATTEMPTS);
    // Without a bound a gate that always blocks would repeat a step for ever.
    if again && !(1..=MAX_ATTEMPTS).contains(&attempts) {
        return bad("'attempts' must be from 1 to 3");
    }
    Ok(match config.action {
        EscalationAction::Respond => {
            let text = config.text.clone().unwrap_or_else(|| RESPONSE.to_owned());
            // An empty answer looks like a failure to the person who reads it.
            if text.trim().is_empty() {
                return bad("'text' is empty");
            }
            Escalation::Respond { text }
        }
        EscalationAction::Report => Escalation::Report,
        EscalationAction::EscalateHuman => Escalation::EscalateHuman,
        EscalationAction::TransferToQueue => match config.queue.as_deref().map(str::trim) {
            None | Some("") => return bad("it needs the name of a queue: 'queue'"),
            Some(queue) => Escalation::TransferToQueue { queue: queue.to_owned() },
        },
        EscalationAction::SuppressAndRephrase => Escalation::SuppressAndRephrase { attempts },
        EscalationAction::Retry => Escalation::Retry { attempts },
        EscalationAction::SpawnTask => Escalation::SpawnTask,
    })
}
