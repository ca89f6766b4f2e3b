//! Rules about anomalies, as their owner writes them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The longest rule, in bytes.
const MAX_RULE_BYTES: usize = 200;
/// The longest window: what is older is no pattern, but history.
const MAX_WINDOW: Duration = Duration::from_secs(24 * 60 * 60);

/// A countable thing that agents do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// Requests to the security proxy.
    Requests,
    /// Requests that were refused.
    Refused,
    /// Requests that found no row of their case where one was named, or a key that another row has.
    Missed,
    /// Values of its case that an agent has named without their tokens, each of them once.
    Masked,
    /// Records that were read.
    RecordsRead,
    /// Tokens of models.
    Tokens,
    /// Escalations.
    Escalations,
    /// Attempts at ways out past the two servers.
    WaysOut,
}

impl Measure {
    const ALL: [Self; 8] = [
        Self::Requests,
        Self::Refused,
        Self::Missed,
        Self::Masked,
        Self::RecordsRead,
        Self::Tokens,
        Self::Escalations,
        Self::WaysOut,
    ];

    /// Finds a measure by its name in rules and events.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|measure| measure.as_str() == name)
    }

    /// Returns its name in rules.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Refused => "refused",
            Self::Missed => "missed",
            Self::Masked => "masked",
            Self::RecordsRead => "records_read",
            Self::Tokens => "tokens",
            Self::Escalations => "escalations",
            Self::WaysOut => "ways_out",
        }
    }
}

/// A reaction to a rule that is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// The key is revoked and the case goes to another agent or a person.
    Revoke,
    /// A person is notified.
    Alert,
}

impl Reaction {
    /// Returns its name in rules.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Revoke => "revoke",
            Self::Alert => "alert",
        }
    }
}

/// The events that a bound counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountSpan {
    /// Those of the last so much time.
    Window(Duration),
    /// All since the holder began with the case.
    Case,
}

/// A declared rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum AnomalyRule {
    /// More of something than a bound.
    Amount {
        /// The counted thing.
        measure: Measure,
        /// The most that is no anomaly.
        most: u64,
        /// The counted time.
        span: CountSpan,
        /// What is done.
        reaction: Reaction,
    },
    /// One customer is worked on in two cases at once.
    SameCustomer {
        /// What is done.
        reaction: Reaction,
    },
}

/// A defect of a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("anomaly rule '{rule}': {what}; write it as `refused > 5 in 1 min then revoke`")]
pub struct AnomalyRuleFault {
    /// The rule as it is written, shortened.
    pub rule: String,
    /// The defect.
    pub what: String,
}

impl AnomalyRule {
    /// Returns what is done when it is met.
    pub const fn reaction(&self) -> Reaction {
        match self {
            Self::Amount { reaction, .. } | Self::SameCustomer { reaction } => *reaction,
        }
    }

    pub(super) const fn window(&self) -> Option<Duration> {
        match self {
            Self::Amount { span: CountSpan::Window(window), .. } => Some(*window),
            Self::Amount { span: CountSpan::Case, .. } | Self::SameCustomer { .. } => None,
        }
    }
}

/// Adds the rule about values that an agent guesses, unless one about them is configured: the key of one that has named more than 8 of
/// a case is dead at the security proxy already, and the case goes to another.
pub(crate) fn add_guess_rule(rules: &mut Vec<AnomalyRule>) {
    let measure = Measure::Masked;
    if !rules.iter().any(|rule| matches!(rule, AnomalyRule::Amount { measure: Measure::Masked, .. })) {
        rules.push(AnomalyRule::Amount {
            measure,
            most: 8,
            span: CountSpan::Case,
            reaction: Reaction::Revoke,
        });
    }
}

impl fmt::Display for AnomalyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Amount { measure, most, span, .. } => {
                write!(f, "{} > {most}", measure.as_str())?;
                match span {
                    CountSpan::Window(window) => write!(f, " in {} s", window.as_secs())?,
                    CountSpan::Case => f.write_str(" per case")?,
                }
            }
            Self::SameCustomer { .. } => f.write_str("same customer from two cases")?,
        }
        write!(f, " then {}", self.reaction().as_str())
    }
}

impl TryFrom<String> for AnomalyRule {
    type Error = AnomalyRuleFault;

    fn try_from(text: String) -> Result<Self, AnomalyRuleFault> {
        text.parse()
    }
}

impl From<AnomalyRule> for String {
    fn from(rule: AnomalyRule) -> Self {
        rule.to_string()
    }
}

impl FromStr for AnomalyRule {
    type Err = AnomalyRuleFault;

    fn from_str(text: &str) -> Result<Self, AnomalyRuleFault> {
        let fault =
            |what: String| AnomalyRuleFault { rule: text.chars().take(MAX_RULE_BYTES).collect(), what };
        // Bounded before it is taken apart, and repeated in an error.
        if text.len() > MAX_RULE_BYTES {
            return Err(fault(format!("it is longer than {MAX_RULE_BYTES} bytes")));
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        // Without a reaction a person is notified: a rule alone takes nothing away.
        let (words, reaction) = match words.as_slice() {
            [rule @ .., "then", "revoke"] => (rule, Reaction::Revoke),
            [rule @ .., "then", "alert"] => (rule, Reaction::Alert),
            [.., "then", other] => return Err(fault(format!("'{other}' is neither revoke nor alert"))),
            rule => (rule, Reaction::Alert),
        };
        if let ["same", "customer", "from", "two", "cases"] = words {
            return Ok(Self::SameCustomer { reaction });
        }
        let [name, ">", most, span @ ..] = words else {
            return Err(fault("it is no comparison with '>'".to_owned()));
        };
        let measure = Measure::find(name).ok_or_else(|| {
            let known = Measure::ALL.map(Measure::as_str).join(", ");
            fault(format!("'{name}' is not counted; these are: {known}"))
        })?;
        let most = most.parse().map_err(|_| fault(format!("'{most}' is no whole number")))?;
        let span = match span {
            // A bound without a window is one for the whole case.
            [] | ["per", "case"] => CountSpan::Case,
            ["in", number, unit] => CountSpan::Window(parse_time(number, unit).map_err(fault)?),
            other => {
                return Err(fault(format!("'{}' is neither `per case` nor `in 1 min`", other.join(" "))));
            }
        };
        Ok(Self::Amount { measure, most, span, reaction })
    }
}

/// Reads a time: a whole number, and `s`, `min` or `hour`.
///
/// # Errors
///
/// If it is none, or out of bounds.
pub(crate) fn parse_time(number: &str, unit: &str) -> Result<Duration, String> {
    let number: u64 = number.parse().map_err(|_| format!("'{number}' is no whole number"))?;
    let seconds = match unit {
        "s" | "sec" => 1,
        "min" => 60,
        "h" | "hour" | "hours" => 60 * 60,
        other => return Err(format!("'{other}' is no unit of time; use s, min or hour")),
    };
    let window = Duration::from_secs(number.saturating_mul(seconds));
    // A time of nothing would never count anything.
    if window.is_zero() || window > MAX_WINDOW {
        return Err("it has 1 s to 24 hours".to_owned());
    }
    Ok(window)
}
