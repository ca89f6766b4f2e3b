//! The evaluation of rules, with room for it on the stack.

use cedar_policy::{Authorizer, Entities, PolicySet, Request, Response};

/// The least stack that is left, in bytes, without which a new one is made: Cedar gives a rule up with less than 100 KiB, and its frames are
/// larger in a build without optimisation.
const LEAST_STACK: usize = 384 * 1024;
/// The size of that stack, in bytes.
const NEW_STACK: usize = 1024 * 1024;

/// Judges a request by rules. How deep the caller is in its own stack does not change the answer: a rule that is given up refuses the action.
pub(super) fn evaluate(authorizer: &Authorizer, request: &Request, rules: &PolicySet) -> Response {
    stacker::maybe_grow(LEAST_STACK, NEW_STACK, || {
        authorizer.is_authorized(request, rules, &Entities::empty())
    })
}

#[cfg(test)]
mod tests {
    use std::str::FromStr as _;

    use cedar_policy::{Context, Decision, EntityUid};

    use super::*;

    /// A thread with less stack than a rule needs gets the answer that one with more gets.
    #[test]
    fn a_small_stack_changes_no_answer() {
        let id = |text: &str| EntityUid::from_str(text).expect("an id");
        let (agent, action, target) = (id("Agent::\"main\""), id("Action::\"say\""), id("Target::\"owner\""));
        let request = Request::new(agent, action, target, Context::empty(), None).expect("a request");
        let rules =
            PolicySet::from_str("permit (principal, action, resource) when { 1 < 2 };").expect("rules");
        let judge = move |is_bare: bool| {
            let authorizer = Authorizer::new();
            let answer = if is_bare {
                authorizer.is_authorized(&request, &rules, &Entities::empty())
            } else {
                evaluate(&authorizer, &request, &rules)
            };
            (answer.decision(), answer.diagnostics().errors().count())
        };
        let on_small = |is_bare: bool| {
            let judge = judge.clone();
            let thread = std::thread::Builder::new().stack_size(96 * 1024).spawn(move || judge(is_bare));
            thread.expect("starts").join().expect("ends")
        };
        assert_eq!(on_small(true), (Decision::Deny, 1), "Cedar alone gives the rule up");
        assert_eq!(on_small(false), (Decision::Allow, 0));
    }
}
