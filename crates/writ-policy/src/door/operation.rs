//! Limits of keys on operations of the security proxy.

use writ_types::action::Action;
use writ_types::entry::DenyReason;

use super::{Facts, Refusal};
use crate::keys::limits::{self, LimitRefusal};

/// Of which case it must be, and how much it may be.
pub(super) fn check_operation(action: &Action, facts: &Facts<'_>) -> Result<(), Refusal> {
    let Action::Operate(operate) = action else { return Ok(()) };
    let (base, task) = (facts.authority.base(), facts.authority.task());
    let scope = |text: &str| (DenyReason::Scope, format!("task key {}: case", task.key), text.to_owned());
    // A customer is named in a key, so an operation without a case could be one of any customer.
    let case = task.case.as_ref().ok_or_else(|| scope("the task key is for no case"))?;
    if !limits::is_of_case(operate, &case.customer, &case.case) {
        return Err(scope("the operation is not one of the case that the task key is for"));
    }
    // Both keys limit it: the task key may be narrower than the base key.
    let [of_base, of_task] = facts.used.map_or([None, None], |used| used.by_key().map(Some));
    let keys = [("base key", base.key, &base.grants, of_base), ("task key", task.key, &task.grants, of_task)];
    for (name, key, grants, used) in keys {
        if let Some(limits) = grants.limits.get(&operate.operation) {
            let rule = || format!("{name} {key}: {}", operate.operation);
            limits.check_operation(operate, used).map_err(|refusal| match refusal {
                LimitRefusal::Outside(text) => (DenyReason::Limit, rule(), text),
                LimitRefusal::UsedUp(text) => (DenyReason::UsedUp, rule(), text),
            })?;
        }
    }
    Ok(())
}
