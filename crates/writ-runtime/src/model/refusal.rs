//! The note that a turn gets about a model call that the door has refused.

use writ_agent::event::{Event, ModelFailure};
use writ_policy::budget::Exhausted;
use writ_policy::door::Denial;
use writ_types::entry::DenyReason;
use writ_types::error::Exit;

/// Returns the event of a call that the door has refused.
pub(super) fn refused(denial: &Denial) -> Event {
    let failure = match (denial.reason, denial.rule.as_str()) {
        (DenyReason::Budget, rule) if rule == Exhausted::SessionTokens.setting_name() => {
            ModelFailure::SessionExhausted
        }
        (DenyReason::Budget, rule) if rule == Exhausted::DayTokens.setting_name() => {
            ModelFailure::DailyExhausted
        }
        (DenyReason::Budget, rule) if rule == Exhausted::Paused.setting_name() => ModelFailure::Failed {
            exit: Exit::Budget,
            text: "This session is paused. All work is saved.".to_owned(),
            hint: "`writ budget renew` (in a conversation: /renew) lets it go on".to_owned(),
            noted: None,
        },
        (DenyReason::Budget, rule) if rule == Exhausted::SessionCost.setting_name() => ModelFailure::Failed {
            exit: Exit::Budget,
            text: format!("{}, so the session is paused. All work is saved.", denial.text),
            hint: format!(
                "`writ budget renew` (in a conversation: /renew) gives it a fresh allocation; or raise {rule} in config.toml"
            ),
            noted: None,
        },
        (DenyReason::Budget, rule)
            if [Exhausted::DayCost, Exhausted::MonthCost].map(Exhausted::setting_name).contains(&rule) =>
        {
            ModelFailure::Failed {
                exit: Exit::Budget,
                text: format!("{}, so all sessions are paused. All work is saved.", denial.text),
                hint: format!("go on when the next one begins, or raise {rule} in config.toml"),
                noted: None,
            }
        }
        (DenyReason::Budget, rule) => ModelFailure::Failed {
            exit: Exit::Budget,
            text: denial.text.clone(),
            hint: format!("raise {rule} in config.toml if that is what you want"),
            noted: None,
        },
        (_, rule) => ModelFailure::Failed {
            exit: Exit::Denied,
            text: format!("The model call was refused: {}.", denial.text),
            hint: format!("decided by: {rule}"),
            noted: None,
        },
    };
    Event::ModelFailed { failure }
}

/// Returns true if a limit refused a call that a cheaper model might have passed.
pub(super) fn is_of_price(denial: &Denial) -> bool {
    denial.reason == DenyReason::Budget
        && Exhausted::OF_PRICE.iter().any(|limit| limit.setting_name() == denial.rule)
}
