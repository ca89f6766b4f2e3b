//! A reply that ends with a question: no person answers it while the autopilot works.

use writ_autopilot::attempt::asks_person;
use writ_autopilot::failure::FailureCode;
use writ_autopilot::machine::{AttemptReport, UnitEvent};
use writ_autopilot::turns::NO_OPERATOR;

use super::{PhaseResult, fault};
use crate::config::InputRequired;

/// Decides about an attempt whose last reply ends with a question, by the settings: the next attempt reads that no one answers, or it
/// has failed.
pub(super) fn judge_question(mode: InputRequired, said: &str, result: PhaseResult) -> PhaseResult {
    // A phase that has brought what it was to bring may ask what it wants.
    let is_open = matches!(&result.event, UnitEvent::End(AttemptReport { is_met: false, .. }));
    if !is_open || !asks_person(said) {
        return result;
    }
    match mode {
        // A person reads the reply, and may say more in the texts of the unit.
        InputRequired::Ask => result,
        InputRequired::Soft => {
            let last_error = result.last_error.as_deref().unwrap_or_default();
            PhaseResult {
                last_error: Some(format!("{NO_OPERATOR}\n{last_error}").trim_end().to_owned()),
                ..result
            }
        }
        InputRequired::Hard => {
            let why = format!("the reply ends with a question. {NO_OPERATOR}");
            PhaseResult { used: result.used, ..fault(FailureCode::TurnInputRequired, why) }
        }
    }
}

#[cfg(test)]
mod tests {
    use writ_autopilot::attempt::RunEnd;
    use writ_types::unit::{MicroUsd, Tokens};

    use super::*;

    fn ended(is_met: bool) -> PhaseResult {
        let report = AttemptReport { end: RunEnd::Success, marker: None, has_progress: true, is_met };
        PhaseResult {
            event: UnitEvent::End(report),
            outcome: "success",
            code: None,
            reason: String::new(),
            last_error: Some("go on".to_owned()),
            used: (Tokens::new(7), Tokens::ZERO, MicroUsd::new(3)),
        }
    }

    #[test]
    fn a_question_is_a_note_or_a_failure() {
        let judge = |mode, said: &str, is_met| {
            let judged = judge_question(mode, said, ended(is_met));
            assert_eq!(judged.used, ended(is_met).used, "paid is paid");
            (judged.outcome, judged.code, judged.last_error.unwrap_or_default())
        };
        let asks = "Done so far.\nWhich sum is meant?\n";
        let soft = ("success", None, format!("{NO_OPERATOR}\ngo on"));
        assert_eq!(judge(InputRequired::Soft, asks, false), soft);
        let hard = judge(InputRequired::Hard, asks, false);
        assert_eq!((hard.0, hard.1), ("failure", Some(FailureCode::TurnInputRequired)));
        let as_it_was = ("success", None, "go on".to_owned());
        assert_eq!(judge(InputRequired::Ask, asks, false), as_it_was);
        for mode in [InputRequired::Soft, InputRequired::Hard, InputRequired::Ask] {
            assert_eq!(judge(mode, "Why? It was wrong.", false), as_it_was);
            assert_eq!(judge(mode, asks, true), as_it_was, "there is nothing to wait for");
        }
    }
}
