//! Units: time, money, tokens and bytes, so that no number travels without one.

use std::fmt;
use std::ops::AddAssign;
use std::str::FromStr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A point in time: milliseconds since the Unix epoch, UTC.
///
/// Shown as RFC 3339 with milliseconds. Pure code receives it as an argument.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Makes a timestamp from milliseconds since the Unix epoch.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Reads RFC 3339 with an offset, such as `2024-12-31T00:00:00Z`; `None` for anything else.
    pub fn from_rfc_3339(text: &str) -> Option<Self> {
        // Milliseconds are the precision of all stored times.
        text.parse::<jiff::Timestamp>().ok().map(|time| Self(time.as_millisecond()))
    }

    /// This time plus a duration; saturates at the end of time.
    #[must_use]
    pub fn plus_duration(self, duration: Duration) -> Self {
        // Saturates: the end of time is later than any limit.
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    /// The time this long before.
    #[must_use]
    pub fn minus_duration(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    /// Returns the time from `earlier` to this; zero if it is not after it.
    pub fn time_since(self, earlier: Self) -> Duration {
        // Negative differences are zero: clocks can be set back.
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(time) => write!(f, "{time:.3}"),
            // Beyond the calendar's range.
            Err(_) => write!(f, "{}ms", self.0),
        }
    }
}

/// Declares an unsigned quantity with saturating arithmetic.
macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident, $unit:literal) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
        )]
        #[serde(transparent)]
        #[schemars(inline)]
        pub struct $name(u64);

        impl $name {
            /// Zero of this quantity.
            pub const ZERO: Self = Self(0);
            /// The largest value: used as «no limit».
            pub const MAX: Self = Self(u64::MAX);

            /// Wraps a plain number.
            pub const fn new(value: u64) -> Self {
                Self(value)
            }

            /// The plain number.
            pub const fn get(self) -> u64 {
                self.0
            }

            /// Adds, saturating at [`Self::MAX`].
            #[must_use]
            pub const fn saturating_add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }

            /// Subtracts, saturating at zero.
            #[must_use]
            pub const fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                // A sum that wrapped would pass under every limit.
                *self = self.saturating_add(other);
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!("{}", $unit), self.0)
            }
        }
    };
}

quantity!(
    /// Model tokens.
    Tokens,
    " tokens"
);
quantity!(
    /// A number of bytes.
    ByteCount,
    " B"
);

/// Money in millionths of a US dollar.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
#[schemars(inline)]
pub struct MicroUsd(u64);

impl MicroUsd {
    /// No money.
    pub const ZERO: Self = Self(0);

    /// Wraps millionths of a dollar.
    pub const fn new(micros: u64) -> Self {
        Self(micros)
    }

    /// Millionths of a dollar.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Adds, saturating at the largest amount.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference; saturates at zero.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl AddAssign for MicroUsd {
    fn add_assign(&mut self, other: Self) {
        *self = self.saturating_add(other);
    }
}

impl fmt::Display for MicroUsd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

/// An amount in an argument's own unit (money, pieces, litres), in millionths: positive, and small enough to
/// have a canonical form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "u64", into = "u64")]
pub struct Amount(u64);

/// No amount: not positive, too large, or finer than millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not an amount: a positive decimal number with six digits after the point at most, up to {}",
    Amount::MAX
)]
pub struct NoAmount;

impl Amount {
    /// The largest one: the largest integer that every JSON implementation keeps (RFC 8785, section 3.2.2.3).
    pub const MAX: Self = Self((1 << 53) - 1);

    /// Millionths.
    ///
    /// # Errors
    ///
    /// If it is none or too many.
    pub const fn from_millionths(millionths: u64) -> Result<Self, NoAmount> {
        if millionths == 0 || millionths > Self::MAX.0 { Err(NoAmount) } else { Ok(Self(millionths)) }
    }

    /// Returns the amount in millionths.
    pub const fn millionths(self) -> u64 {
        self.0
    }
}

impl TryFrom<u64> for Amount {
    type Error = NoAmount;

    fn try_from(millionths: u64) -> Result<Self, NoAmount> {
        Self::from_millionths(millionths)
    }
}

impl From<Amount> for u64 {
    fn from(amount: Amount) -> Self {
        amount.0
    }
}

impl FromStr for Amount {
    type Err = NoAmount;

    fn from_str(text: &str) -> Result<Self, NoAmount> {
        // Read without floating point, so that no amount is rounded.
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        // Checked here, since the parser of numbers takes a sign.
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(fraction) || fraction.len() > 6 {
            return Err(NoAmount);
        }
        let number = |part: &str| part.parse::<u64>().map_err(|_| NoAmount);
        let whole = number(whole)?.checked_mul(1_000_000).ok_or(NoAmount)?;
        // Zeros fill it to millionths: `.5` is 500,000 of them.
        let fraction = number(&format!("{fraction:0<6}"))?;
        Self::from_millionths(whole.checked_add(fraction).ok_or(NoAmount)?)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, fraction) = (self.0 / 1_000_000, self.0 % 1_000_000);
        if fraction == 0 {
            return write!(f, "{whole}");
        }
        write!(f, "{whole}.{}", format!("{fraction:06}").trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The edges of threat 8 as far as they are of writing: nothing that is not positive is an amount.
    #[test]
    fn an_amount_is_positive_exact_and_bounded() {
        for (text, shown) in [("500", "500"), ("0.000001", "0.000001"), ("12.50", "12.5"), ("007", "7")] {
            assert_eq!(text.parse::<Amount>().map(|amount| amount.to_string()), Ok(shown.to_owned()));
        }
        let refused =
            ["", "0", "-1", "+1", "1e3", "1.", ".5", "0.0000001", "9223372036854775807", "1,5", " 1", "NaN"];
        for text in refused {
            assert_eq!(text.parse::<Amount>(), Err(NoAmount), "{text}");
        }
        assert!(serde_json::from_str::<Amount>("0").is_err());
        let most = Amount::MAX.millionths();
        assert!(Amount::from_millionths(most).is_ok() && Amount::from_millionths(most + 1).is_err());
    }

    #[test]
    fn time_is_shown_as_rfc_3339_and_saturates() {
        assert_eq!(Timestamp::from_millis(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(
            Timestamp::from_rfc_3339("1970-01-01T00:00:01+01:00"),
            Some(Timestamp::from_millis(-3_599_000))
        );
        for bad in ["", "1970-01-01", "1970-01-01T00:00:00", "1970-13-01T00:00:00Z", "soon"] {
            assert_eq!(Timestamp::from_rfc_3339(bad), None, "{bad}");
        }
        assert_eq!(Timestamp::from_millis(i64::MAX).plus_duration(Duration::MAX).as_millis(), i64::MAX);
        assert_eq!(Timestamp::from_millis(5).time_since(Timestamp::from_millis(9)), Duration::ZERO);
    }

    #[test]
    fn quantities_saturate() {
        let mut tokens = Tokens::MAX;
        tokens += Tokens::new(1);
        assert_eq!(tokens, Tokens::MAX);
        assert_eq!(MicroUsd::new(1_500_000).to_string(), "$1.500000");
    }
}
