//! Units: time, money, tokens and bytes, so that no number travels without one.

use std::fmt;
use std::ops::AddAssign;
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
        text.parse::<jiff::Timestamp>().ok().map(|time| Self(time.as_millisecond()))
    }

    /// This time plus a duration; saturates at the end of time.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    /// The time this long before.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    /// How long after `earlier` this is; zero if it is not after it.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(time) => write!(f, "{time:.3}"),
            Err(_) => write!(f, "{}ms", self.0),
        }
    }
}

/// Declares an unsigned quantity with saturating arithmetic.
macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident, $unit:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
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

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(Timestamp::from_millis(i64::MAX).plus(Duration::MAX).as_millis(), i64::MAX);
        assert_eq!(Timestamp::from_millis(5).since(Timestamp::from_millis(9)), Duration::ZERO);
    }

    #[test]
    fn quantities_saturate() {
        let mut tokens = Tokens::MAX;
        tokens += Tokens::new(1);
        assert_eq!(tokens, Tokens::MAX);
        assert_eq!(MicroUsd::new(1_500_000).to_string(), "$1.500000");
    }
}
