//! Limits of keys on operations of the security proxy.

use writ_types::action::Action;
use writ_types::entry::DenyReason;

use super::{Facts, Refusal};
use crate::keys::limits;

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
    for (name, key, grants) in [("base key", base.key, &base.grants), ("task key", task.key, &task.grants)] {
        if let Some(limits) = grants.limits.get(&operate.operation) {
            let limit = |text| (DenyReason::Limit, format!("{name} {key}: {}", operate.operation), text);
            limits.check_operation(operate, facts.used).map_err(limit)?;
        }
    }
    Ok(())
}
