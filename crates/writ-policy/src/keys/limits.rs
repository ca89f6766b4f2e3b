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
/// The parameter under which the name of a request stands in its intent. No operation declares one of this name.
pub const REQUEST_NAME: &str = "idempotency_key";

/// Amounts that were used, by operation and parameter.
pub type UsedLimits = BTreeMap<(String, String), i64>;

/// Amounts that were used, by each of the two keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsedToday {
    /// Today in all tasks of the base key.
    pub base: UsedLimits,
    /// Today in the task alone, by all copies and renewals of its key.
    pub task: UsedLimits,
    /// On all days in all tasks of the base key.
    pub base_total: UsedLimits,
    /// On all days in the task alone.
    pub task_total: UsedLimits,
}

/// The time over which uses of a limit add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitSpan {
    /// A UTC day.
    Day,
    /// The life of the key: no midnight gives anything back.
    Key,
}

/// An amount that counts against the limit of a day or of a key.
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
    /// The most of its span.
    pub most: i64,
    /// The time over which it adds up.
    pub span: LimitSpan,
}

/// The reason why the limits of a key refuse an operation, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitRefusal {
    /// It is none that the key grants, on any day.
    Outside(String),
    /// The limit of the day or of the key has not enough left.
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
    /// The most of all uses of the key together, by parameter. Each has bounds of one use as well.
    pub totals: BTreeMap<String, i64>,
}

impl AmountLimit {
    /// Returns true if `wider` allows everything that this does.
    fn is_within(self, wider: Self) -> bool {
        let daily = wider.daily.is_none_or(|most| self.daily.is_some_and(|own| own <= most));
        self.min >= wider.min && self.max <= wider.max && daily
    }
}

impl OperationLimits {
    /// Checks an operation. `used` holds the amounts of today and of all days; without them such a limit refuses.
    ///
    /// # Errors
    ///
    /// The limit that it exceeds.
    pub fn check_operation(
        &self,
        operate: &Operate,
        used: Option<(&UsedLimits, &UsedLimits)>,
    ) -> Result<(), LimitRefusal> {
        let outside = |text: String| Err(LimitRefusal::Outside(text));
        let given = |name: &str| {
            let value = operate.parameters.get(name);
            value
                .ok_or_else(|| LimitRefusal::Outside(format!("the key limits '{name}', and it is not given")))
        };
        // A limited parameter that is missing is a refusal, since the operation might have a default for it.
        for (name, amount) in &self.amounts {
            let text = given(name)?;
            // As a machine writes it: ` 5`, `+5`, `5.0` and `05` can be read in more than one way.
            let Ok(value) = text.parse::<i64>() else {
                return outside(format!("'{name}' is no whole number"));
            };
            if value.to_string() != *text {
                return outside(format!("'{name}' is not written plainly"));
            }
            if value < amount.min || value > amount.max {
                return outside(format!(
                    "'{name}' is {value}; the key grants {} to {}",
                    amount.min, amount.max
                ));
            }
            let spans = [
                (amount.daily, used.map(|used| used.0), "today"),
                (self.totals.get(name).copied(), used.map(|used| used.1), "in all"),
            ];
            for (most, used, span) in spans {
                let Some(most) = most else { continue };
                // An unknown use is not taken for zero.
                let Some(used) = used else {
                    return outside(format!("the use of '{name}' {span} is unknown"));
                };
                let used = used.get(&(operate.operation.clone(), name.clone())).copied().unwrap_or(0);
                // Sums saturate: what is too large to count is too much.
                if used < 0 || value.saturating_add(used) > most {
                    let sum = value.saturating_add(used);
                    return Err(LimitRefusal::UsedUp(format!(
                        "'{name}' would be {sum} {span}; the key grants {most}"
                    )));
                }
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
        let total = |(name, wide): (&String, &i64)| self.totals.get(name).is_some_and(|own| own <= wide);
        // Only what the wider key limits has to be limited in the narrower one.
        wider.amounts.iter().all(amount) && wider.values.iter().all(values) && wider.totals.iter().all(total)
    }

    /// Returns true if nothing is limited.
    pub fn is_empty(&self) -> bool {
        self.amounts.is_empty() && self.values.is_empty() && self.totals.is_empty()
    }
}

/// Returns what an operation counts against the limits of its keys for a day and in all. Amounts that are no plain numbers
/// are left out: they are refused anyway.
pub fn counted_uses(operate: &Operate, authority: &Authority) -> Vec<LimitUse> {
    let (base, task) = (authority.base(), authority.task());
    let counters: [(String, &Grants); 2] =
        [(base_counter(authority), &base.grants), (format!("task {}", task.session), &task.grants)];
    let uses = counters.iter().flat_map(|(counter, grants)| {
        let limits = grants.limits.get(&operate.operation).into_iter();
        let bounds = limits.flat_map(|limits| {
            let daily = limits
                .amounts
                .iter()
                .filter_map(|(name, amount)| Some((name, amount.daily?, LimitSpan::Day)));
            daily.chain(limits.totals.iter().map(|(name, most)| (name, *most, LimitSpan::Key)))
        });
        bounds.filter_map(|(name, most, span)| {
            let given = operate.parameters.get(name)?.parse::<i64>().ok()?;
            Some(LimitUse {
                counter: counter.clone(),
                operation: operate.operation.clone(),
                parameter: name.clone(),
                // A negative amount (a refund) counts as zero; otherwise it would let the next use exceed the limit.
                amount: given.max(0),
                most,
                span,
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
    /// Returns the amounts of today and of all days, by the base key and by the task.
    pub const fn by_key(&self) -> [(&UsedLimits, &UsedLimits); 2] {
        [(&self.base, &self.base_total), (&self.task, &self.task_total)]
    }

    /// Arranges what was used of each of these uses' limits so far, in their order.
    pub fn from_counts(authority: &Authority, uses: &[LimitUse], used: &[i64]) -> Self {
        let mut today = Self::default();
        let base = base_counter(authority);
        for (limit, used) in uses.iter().zip(used) {
            let of = match (limit.counter == base, limit.span) {
                (true, LimitSpan::Day) => &mut today.base,
                (true, LimitSpan::Key) => &mut today.base_total,
                (false, LimitSpan::Day) => &mut today.task,
                (false, LimitSpan::Key) => &mut today.task_total,
            };
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
    fn totals_are_within_others_that_are_as_large() {
        let total = |most: Option<i64>| OperationLimits {
            totals: most.map(|most| ("amount".to_owned(), most)).into_iter().collect(),
            ..OperationLimits::default()
        };
        for (own, wide, expected) in [
            (Some(5), Some(5), true),
            (Some(4), Some(5), true),
            (Some(6), Some(5), false),
            (None, Some(5), false),
            (Some(5), None, true),
        ] {
            assert_eq!(total(own).is_within(&total(wide)), expected, "{own:?} {wide:?}");
        }
        assert!(!total(Some(1)).is_empty());
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
