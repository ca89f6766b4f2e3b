//! Content of calls to others: an injected text may want a link or a secret in it, or one more message.

use std::borrow::Cow;

use writ_types::action::CallTool;

use super::TaintVerdict;
use writ_inspect::origin::Origins;
use writ_inspect::prepared::Prepared;
use writ_inspect::show;

const SECRET: TaintVerdict = TaintVerdict::Ask(Cow::Borrowed(
    "It would pass on what stood under the name of a secret in what was read, as a password or a number of a card.",
));

const KEPT: TaintVerdict = TaintVerdict::Ask(Cow::Borrowed(
    "It would pass something on after a result was read that you have called secret.",
));

const AGAIN: &str = "It depends on external content, and this was used for the same already, with other words: one call was asked for, \
                     and this is another one.";

const UNASKED: TaintVerdict = TaintVerdict::Ask(Cow::Borrowed(
    "It depends on external content, names nobody and nothing, and says something else than what you have asked for.",
));

/// Judges the content of a call with recipients and places that have passed.
pub(super) fn judge_content(prepared: &Prepared, call: &CallTool, origins: &Origins) -> TaintVerdict {
    // Content that goes nowhere, or changes nothing, carries nothing out.
    if !(call.effect && call.sends) {
        return TaintVerdict::Pass;
    }
    if prepared.label.secret {
        return KEPT;
    }
    if let Some(link) = origins.strange_link(&call.arguments, &prepared.sinks) {
        let why = format!(
            "It depends on external content, and would pass on a link that is neither in your own words nor taken as it is from \
             what you asked for: {}",
            show::quote_argument(&link)
        );
        return TaintVerdict::Ask(why.into());
    }
    if origins.tells_secret(&call.arguments) {
        return SECRET;
    }
    // Without a recipient the content itself decides: it may say only what was asked for.
    if prepared.sinks.is_empty() {
        return if origins.asks_for(&call.arguments) { TaintVerdict::Pass } else { UNASKED };
    }
    // The same recipient with other words: one call was asked for, and this is another one.
    if origins.repeats_call(&prepared.tool, &call.arguments, &prepared.sinks) {
        return TaintVerdict::Ask(AGAIN.into());
    }
    TaintVerdict::Pass
}
