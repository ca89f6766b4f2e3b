//! Recurring times of the calendar: once a week or once a month, at a time of the owner's clock.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::civil::Weekday;
use serde::{Deserialize, Serialize};

use crate::unit::Timestamp;
use crate::zone::TimeZone;

/// A recurring time, as the configuration has it: `sunday 04:00`, `day 1 04:00` or `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Recurrence {
    /// Never.
    Off,
    /// Each week.
    Weekly(Weekday, DayTime),
    /// Each month, on a day from 1 to 28, which every month has.
    Monthly(i8, DayTime),
}

/// A time of day, to the minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DayTime {
    hour: i8,
    minute: i8,
}

/// A text that is no recurring time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"off\", a weekday and a time such as \"sunday 04:00\", or a day from 1 to 28 such as \"day 1 04:00\""
)]
pub struct NoRecurrence;

/// The last day that each month has.
const LAST_COMMON_DAY: i8 = 28;

/// The days among which each recurring time comes at least once.
const LONGEST_DAYS: i32 = 32;

/// The weekdays by their names.
const WEEKDAYS: [(&str, Weekday); 7] = [
    ("monday", Weekday::Monday),
    ("tuesday", Weekday::Tuesday),
    ("wednesday", Weekday::Wednesday),
    ("thursday", Weekday::Thursday),
    ("friday", Weekday::Friday),
    ("saturday", Weekday::Saturday),
    ("sunday", Weekday::Sunday),
];

// === impl DayTime ===

impl DayTime {
    /// Makes a time of day; `None`: a clock never shows it.
    pub const fn new(hour: i8, minute: i8) -> Option<Self> {
        if hour < 0 || hour > 23 || minute < 0 || minute > 59 { None } else { Some(Self { hour, minute }) }
    }
}

impl FromStr for DayTime {
    type Err = NoRecurrence;

    fn from_str(text: &str) -> Result<Self, NoRecurrence> {
        let (hour, minute) = text.split_once(':').ok_or(NoRecurrence)?;
        let number = |digits: &str| {
            let is_plain =
                (1..=2).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
            if is_plain { digits.parse().map_err(|_| NoRecurrence) } else { Err(NoRecurrence) }
        };
        Self::new(number(hour)?, number(minute)?).ok_or(NoRecurrence)
    }
}

impl fmt::Display for DayTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.hour, self.minute)
    }
}

// === impl Recurrence ===

impl Recurrence {
    /// Returns the first time after a moment, by the clock of a zone; `None` if it never comes.
    ///
    /// A time that the clock leaves out in spring comes as much later as the clock is moved.
    pub fn next_after(self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let today = zone.date_at(after)?;
        (0..=LONGEST_DAYS).find_map(|days| {
            let date = today.checked_add(jiff::Span::new().days(days)).ok()?;
            let time = match self {
                Self::Off => return None,
                Self::Weekly(day, time) => (date.weekday() == day).then_some(time)?,
                Self::Monthly(day, time) => (date.day() == day).then_some(time)?,
            };
            let moment = zone.moment_of(date.at(time.hour, time.minute, 0, 0))?;
            (moment > after).then_some(moment)
        })
    }

    /// Returns the longest time between two of its times.
    pub const fn longest_gap(self) -> Duration {
        let days = match self {
            Self::Weekly(..) => 8,
            Self::Off | Self::Monthly(..) => 32,
        };
        Duration::from_secs(days * 24 * 60 * 60)
    }
}

impl FromStr for Recurrence {
    type Err = NoRecurrence;

    fn from_str(text: &str) -> Result<Self, NoRecurrence> {
        let text = text.to_ascii_lowercase();
        let words: Vec<&str> = text.split_whitespace().collect();
        match words.as_slice() {
            ["off"] => Ok(Self::Off),
            ["day", day, time] => {
                let day = day.parse().map_err(|_| NoRecurrence)?;
                if !(1..=LAST_COMMON_DAY).contains(&day) {
                    return Err(NoRecurrence);
                }
                Ok(Self::Monthly(day, time.parse()?))
            }
            [day, time] => {
                let day = WEEKDAYS.iter().find(|(name, _)| name == day).ok_or(NoRecurrence)?.1;
                Ok(Self::Weekly(day, time.parse()?))
            }
            _ => Err(NoRecurrence),
        }
    }
}

impl fmt::Display for Recurrence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Weekly(day, time) => {
                let name = WEEKDAYS.iter().find(|(_, weekday)| weekday == day).map_or("", |(name, _)| *name);
                write!(f, "{name} {time}")
            }
            Self::Monthly(day, time) => write!(f, "day {day} {time}"),
        }
    }
}

impl TryFrom<String> for Recurrence {
    type Error = NoRecurrence;

    fn try_from(text: String) -> Result<Self, NoRecurrence> {
        text.parse()
    }
}

impl From<Recurrence> for String {
    fn from(recurrence: Recurrence) -> Self {
        recurrence.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(text: &str, after: &str, zone: &str) -> String {
        let zone = TimeZone::parse_name(zone).expect("is known");
        let after = Timestamp::from_rfc_3339(after).expect("a time");
        let next = text.parse::<Recurrence>().expect("is read").next_after(after, &zone);
        next.map(|next| next.to_string().replace(".000Z", "Z")).unwrap_or_default()
    }

    #[test]
    fn a_week_and_a_month_are_those_of_the_owners_calendar() {
        for (text, after, zone, expected) in [
            // 2026-11-27 is a Friday.
            ("sunday 04:00", "2026-11-27T12:00:00Z", "UTC", "2026-11-29T04:00:00Z"),
            ("sunday 04:00", "2026-11-29T03:59:59Z", "UTC", "2026-11-29T04:00:00Z"),
            ("sunday 04:00", "2026-11-29T04:00:00Z", "UTC", "2026-12-06T04:00:00Z"),
            ("Sunday 4:00", "2026-11-29T02:30:00Z", "Europe/Berlin", "2026-11-29T03:00:00Z"),
            ("sunday 04:00", "2026-11-29T03:00:00Z", "Europe/Berlin", "2026-12-06T03:00:00Z"),
            // The clock goes from 02:00 to 03:00 in that night.
            ("sunday 02:30", "2026-03-28T12:00:00Z", "Europe/Berlin", "2026-03-29T01:30:00Z"),
            ("day 1 04:00", "2026-11-27T12:00:00Z", "UTC", "2026-12-01T04:00:00Z"),
            ("day 1 04:00", "2026-12-01T04:00:00Z", "UTC", "2027-01-01T04:00:00Z"),
            ("day 28 23:59", "2027-02-01T00:00:00Z", "UTC", "2027-02-28T23:59:00Z"),
            ("off", "2026-11-27T12:00:00Z", "UTC", ""),
        ] {
            assert_eq!(next(text, after, zone), expected, "{text} after {after}");
        }
    }

    #[test]
    fn a_recurring_time_is_written_as_it_is_read_and_nothing_else_is_one() {
        for text in ["off", "sunday 04:00", "day 1 04:00", "day 28 23:59"] {
            assert_eq!(text.parse::<Recurrence>().map(|read| read.to_string()).as_deref(), Ok(text));
        }
        for text in [
            "",
            "sunday",
            "someday 04:00",
            "day 0 04:00",
            "day 29 04:00",
            "sunday 24:00",
            "sunday 4",
            "day 1 1:-1",
        ] {
            assert_eq!(text.parse::<Recurrence>(), Err(NoRecurrence), "{text}");
        }
    }
}
