//! Limits of an operation of the security proxy: amounts and named values of its parameters.
//!
//! A parameter that a key names is required: an operation without it is refused. Parameters that no key names
//! are not limited.

use std::collections::{BTreeMap, BTreeSet};

use writ_types::action::Operate;

/// The parameter that names the customer of a case.
pub const CUSTOMER: &str = "customer_token";
/// The parameter that names a case.
pub const CASE: &str = "case_token";

/// Amounts used today, by operation and parameter.
pub type UsedLimits = BTreeMap<(String, String), i64>;

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
    /// The limit that it exceeds, in words.
    pub fn check_operation(&self, operate: &Operate, used: Option<&UsedLimits>) -> Result<(), String> {
        let given = |name: &str| {
            let value = operate.parameters.get(name);
            value.ok_or_else(|| format!("the key limits '{name}', and it is not given"))
        };
        // A limited parameter that is missing is a refusal, since the operation might have a default for it.
        for (name, amount) in &self.amounts {
            let text = given(name)?;
            // As a machine writes it: ` 5`, `+5`, `5.0` and `05` can be read in more than one way.
            let value: i64 = text.parse().map_err(|_| format!("'{name}' is no whole number"))?;
            if value.to_string() != *text {
                return Err(format!("'{name}' is not written plainly"));
            }
            if value < amount.min || value > amount.max {
                return Err(format!("'{name}' is {value}; the key grants {} to {}", amount.min, amount.max));
            }
            let Some(most) = amount.daily else { continue };
            // An unknown use is not taken for zero.
            let used = used.ok_or_else(|| format!("the use of '{name}' today is unknown"))?;
            let used = used.get(&(operate.operation.clone(), name.clone())).copied().unwrap_or(0);
            // Sums saturate: what is too large to count is too much.
            if used < 0 || value.saturating_add(used) > most {
                return Err(format!(
                    "'{name}' would be {} today; the key grants {most}",
                    value.saturating_add(used)
                ));
            }
        }
        for (name, allowed) in &self.values {
            if !allowed.contains(given(name)?) {
                return Err(format!("this value of '{name}' is none that the key grants"));
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
