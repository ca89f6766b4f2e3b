//! The usage of attempts that have no whole answer.

use writ_models::PlannedCall;
use writ_models::error::{Failure, ModelError};
use writ_types::chat::Usage;
use writ_types::unit::Tokens;

/// Returns the usage of a failed attempt of a program after these tokens of its answer had come. It is never less than the attempt may
/// have cost: the program could have broken it off on purpose.
pub(crate) fn failed_usage(planned: &PlannedCall, error: &ModelError, read: Tokens) -> Usage {
    let said = error.usage;
    if !is_broken_off(error) {
        return said;
    }
    if said.total_tokens() > Tokens::ZERO {
        // Some providers count the prompt at first and the answer at the end: what was read costs, also of those that hang up.
        return Usage { output: said.output.max(read), ..said };
    }
    // The provider has worked, and reports no amount.
    let call = planned.model_call();
    Usage { input: call.input_tokens, output: call.max_output_tokens, ..said }
}

/// Returns the usage of a failed attempt. A program that hangs up could make as many calls as it likes, if they counted for less than
/// they may have cost.
pub(super) fn counted_usage(
    planned: &PlannedCall,
    error: &ModelError,
    (read, is_program): (Tokens, bool),
) -> Usage {
    if is_program { failed_usage(planned, error, read) } else { broken_off_usage(planned, error, read) }
}

/// Returns the usage of a failed attempt after these tokens of its answer had come, as it most likely is: where the provider has named no
/// amount, the prompt and that part of the answer.
fn broken_off_usage(planned: &PlannedCall, error: &ModelError, read: Tokens) -> Usage {
    let said = error.usage;
    if !is_broken_off(error) {
        return said;
    }
    let is_silent = said.total_tokens() == Tokens::ZERO;
    let input = if is_silent { planned.model_call().input_tokens } else { said.input };
    Usage { input, output: said.output.max(read), ..said }
}

/// Returns true for an attempt that ended while the provider worked at it, and that costs.
fn is_broken_off(error: &ModelError) -> bool {
    error.begun || matches!(error.failure, Failure::Cancelled | Failure::Cut)
}
