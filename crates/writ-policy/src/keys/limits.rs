//! Limits of an operation of the security proxy: amounts and named values of its parameters.
//!
//! A parameter that a key names is required: an operation without it is refused. Parameters that no key names
//! are not limited.

use std::collections::{BTreeMap, BTreeSet};

use writ_types::action::Operate;

use super::Authority;
use super::grants::Grants;

/// The parameter that names the customer of a case.
pub const CUSTOMER: &str = "customer_token";
/// The parameter that names a case.
pub const CASE: &str = "case_token";

/// Amounts used today, by operation and parameter.
pub type UsedLimits = BTreeMap<(String, String), i64>;

/// Amounts used today, by each of the two keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsedToday {
    /// In all tasks of the base key.
    pub base: UsedLimits,
    /// In the task alone, by all copies and renewals of its key.
    pub task: UsedLimits,
}

/// An amount that counts against the limit of a day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitUse {
    /// The counter: that of a base key or of a task.
    pub counter: String,
    /// The operation.
    pub operation: String,
    /// Its parameter.
    pub parameter: String,
    /// The amount.
    pub amount: i64,
    /// The most of a day.
    pub most: i64,
}

/// The reason why the limits of a key refuse an operation, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitRefusal {
    /// It is none that the key grants, on any day.
    Outside(String),
    /// The day's limit has not enough left.
    UsedUp(String),
}

/// The bounds of one amount, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AmountLimit {
    /// The least of one use.
    pub min: i64,
    /// The most of one use.
    pub max: i64,
    /// The most of a day, all uses together.
    pub daily: Option<i64>,
}

/// The limits of one operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationLimits {
    /// Amounts, by parameter.
    pub amounts: BTreeMap<String, AmountLimit>,
    /// The only values that are allowed, by parameter.
    pub values: BTreeMap<String, BTreeSet<String>>,
}

impl AmountLimit {
    /// Returns true if `wider` allows everything that this does.
    fn is_within(self, wider: Self) -> bool {
        let daily = wider.daily.is_none_or(|most| self.daily.is_some_and(|own| own <= most));
        self.min >= wider.min && self.max <= wider.max && daily
    }
}

impl OperationLimits {
    /// Checks an operation. `used` holds today's amounts; without them a limit for the day refuses.
    ///
    /// # Errors
    ///
    /// The limit that it exceeds.
    pub fn check_operation(
        &self,
        operate: &Operate,
        used: Option<&UsedLimits>,
    ) -> Result<(), LimitRefusal> {
        let outside = |text: String| Err(LimitRefusal::Outside(text));
        let given = |name: &str| {
            let value = operate.parameters.get(name);
            value.ok_or_else(|| {
                LimitRefusal::Outside(format!("the key limits '{name}', and it is not given"))
            })
        };
        // A limited parameter that is missing is a refusal, since the operation might have a default for it.
        for (name, amount) in &self.amounts {
            let text = given(name)?;
            // As a machine writes it: ` 5`, `+5`, `5.0` and `05` can be read in more than one way.
            let Ok(value) = text.parse::<i64>() else { return outside(format!("'{name}' is no whole number")) };
            if value.to_string() != *text {
                return outside(format!("'{name}' is not written plainly"));
            }
            if value < amount.min || value > amount.max {
                return outside(format!("'{name}' is {value}; the key grants {} to {}", amount.min, amount.max));
            }
            let Some(most) = amount.daily else { continue };
            // An unknown use is not taken for zero.
            let Some(used) = used else { return outside(format!("the use of '{name}' today is unknown")) };
            let used = used.get(&(operate.operation.clone(), name.clone())).copied().unwrap_or(0);
            // Sums saturate: what is too large to count is too much.
            if used < 0 || value.saturating_add(used) > most {
                let sum = value.saturating_add(used);
                return Err(LimitRefusal::UsedUp(format!("'{name}' would be {sum} today; the key grants {most}")));
            }
        }
        for (name, allowed) in &self.values {
            if !allowed.contains(given(name)?) {
                return outside(format!("this value of '{name}' is none that the key grants"));
            }
        }
        Ok(())
    }

    /// Returns true if `wider` allows everything that these limits do.
    pub fn is_within(&self, wider: &Self) -> bool {
        let amount = |(name, wide): (&String, &AmountLimit)| {
            self.amounts.get(name).is_some_and(|own| own.is_within(*wide))
        };
        let values = |(name, wide): (&String, &BTreeSet<String>)| {
            self.values.get(name).is_some_and(|own| own.is_subset(wide))
        };
        // Where the wider limits nothing, nothing has to be narrower.
        wider.amounts.iter().all(amount) && wider.values.iter().all(values)
    }

    /// Returns true if nothing is limited.
    pub fn is_empty(&self) -> bool {
        self.amounts.is_empty() && self.values.is_empty()
    }
}

/// Returns what an operation counts against the limits of its keys for a day. Amounts that are no plain numbers are left
/// out: they are refused anyway.
pub fn daily_uses(operate: &Operate, authority: &Authority) -> Vec<LimitUse> {
    let (base, task) = (authority.base(), authority.task());
    let counters: [(String, &Grants); 2] =
        [(base_counter(authority), &base.grants), (format!("task {}", task.session), &task.grants)];
    let uses = counters.iter().flat_map(|(counter, grants)| {
        let amounts = grants.limits.get(&operate.operation).map(|limits| &limits.amounts);
        amounts.into_iter().flatten().filter_map(|(name, amount)| {
            let given = operate.parameters.get(name)?.parse::<i64>().ok()?;
            Some(LimitUse {
                counter: counter.clone(),
                operation: operate.operation.clone(),
                parameter: name.clone(),
                // What is given back is not counted: it would let the next use be larger than the limit.
                amount: given.max(0),
                most: amount.daily?,
            })
        })
    });
    uses.collect()
}

/// The counter of a base key. A task's is that of its session, which copies and renewals of its key keep.
fn base_counter(authority: &Authority) -> String {
    format!("base {}", authority.base().key)
}

impl UsedToday {
    /// Arranges what was used of each of these uses' limits so far, in their order.
    pub fn from_counts(authority: &Authority, uses: &[LimitUse], used: &[i64]) -> Self {
        let mut today = Self::default();
        let base = base_counter(authority);
        for (limit, used) in uses.iter().zip(used) {
            let of = if limit.counter == base { &mut today.base } else { &mut today.task };
            of.insert((limit.operation.clone(), limit.parameter.clone()), *used);
        }
        today
    }
}

/// Returns true if an operation belongs to this case: it names both tokens, exactly as the key does.
pub fn is_of_case(operate: &Operate, customer: &str, case: &str) -> bool {
    // Byte for byte: another case or a space could be another customer for the operation.
    let is = |name: &str, value: &str| operate.parameters.get(name).is_some_and(|given| given == value);
    is(CUSTOMER, customer) && is(CASE, case)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_within_others_that_allow_all_of_it() {
        let amount = |min, max, daily| AmountLimit { min, max, daily };
        let wide = amount(1, 100, Some(500));
        for (own, expected) in [
            (wide, true),
            (amount(2, 99, Some(499)), true),
            (amount(0, 99, Some(499)), false),
            (amount(2, 101, Some(499)), false),
            (amount(2, 99, Some(501)), false),
            (amount(2, 99, None), false),
        ] {
            assert_eq!(own.is_within(wide), expected, "{own:?}");
        }
        assert!(amount(1, 100, None).is_within(amount(1, 100, None)), "without a day's");
    }

    #[test]
    fn limits_are_none_without_amounts_and_values() {
        let amounts = BTreeMap::from([("amount".to_owned(), AmountLimit { min: 1, max: 2, daily: None })]);
        let values = BTreeMap::from([("template".to_owned(), BTreeSet::new())]);
        assert!(OperationLimits::default().is_empty());
        assert!(!OperationLimits { amounts, ..OperationLimits::default() }.is_empty());
        assert!(!OperationLimits { values, ..OperationLimits::default() }.is_empty());
    }
}
