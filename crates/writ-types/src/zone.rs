//! Time zones: the beginning of the owner's days, and their local time.

use std::fmt;

use crate::unit::Timestamp;

/// A time zone of the IANA database, or a rule in the form of POSIX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeZone(jiff::tz::TimeZone);

/// A text that names no time zone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no time zone")]
pub struct UnknownTimeZone(pub String);

impl TimeZone {
    /// Coordinated universal time.
    pub const UTC: Self = Self(jiff::tz::TimeZone::UTC);

    /// Reads the name of a time zone, such as `Europe/Berlin`.
    ///
    /// # Errors
    ///
    /// If the database has none of this name.
    pub fn parse_name(name: &str) -> Result<Self, UnknownTimeZone> {
        // Cut, since the name may be foreign and long.
        let unknown = || UnknownTimeZone(name.chars().take(MAX_NAME).collect());
        if name.len() > MAX_NAME {
            return Err(unknown());
        }
        jiff::tz::TimeZone::get(name).map(Self).map_err(|_| unknown())
    }

    /// The time zone of this machine: what the variable `TZ` names, else what the system is set to, else UTC.
    ///
    /// # Errors
    ///
    /// If the variable names none.
    pub fn of_machine(variable: Option<&str>) -> Result<Self, UnknownTimeZone> {
        let Some(text) = variable.filter(|text| !text.is_empty()) else {
            return Ok(jiff::tz::TimeZone::try_system().map_or(Self::UTC, Self));
        };
        // A colon says that a name follows and no rule.
        let name = text.strip_prefix(':').unwrap_or(text);
        // A path of a file of the database ends in the name.
        let name = name.rsplit_once("/zoneinfo/").map_or(name, |(_, name)| name);
        Self::parse_name(name)
            // Names come first: some of them, such as `EST5EDT`, are rules of POSIX, too.
            .or_else(|unknown| jiff::tz::TimeZone::posix(text).map(Self).map_err(|_| unknown))
    }

    /// Its name in the database; `None`: it is a rule, or the system names none.
    pub fn name(&self) -> Option<&str> {
        self.0.iana_name()
    }

    /// Returns the date that the calendar shows there; `None` for a time beyond the years of the calendar.
    pub fn date_at(&self, at: Timestamp) -> Option<jiff::civil::Date> {
        let at = jiff::Timestamp::from_millisecond(at.as_millis()).ok()?;
        Some(at.to_zoned(self.0.clone()).date())
    }

    /// Returns the first moment there of a day that is written as `2026-01-31`; `None`: it is no day.
    pub fn parse_day(&self, text: &str) -> Option<Timestamp> {
        text.parse().ok().and_then(|date| self.start_of_day(date))
    }

    /// Returns the first moment of a day there; where the clock leaves out midnight, the first after it.
    pub fn start_of_day(&self, date: jiff::civil::Date) -> Option<Timestamp> {
        let start = date.to_zoned(self.0.clone()).ok()?.start_of_day().ok()?;
        Some(Timestamp::from_millis(start.timestamp().as_millisecond()))
    }

    /// Returns the moment at which the clock there shows a date and time; one that it leaves out comes as much later as it is
    /// moved.
    pub fn moment_of(&self, there: jiff::civil::DateTime) -> Option<Timestamp> {
        let moment = there.to_zoned(self.0.clone()).ok()?;
        Some(Timestamp::from_millis(moment.timestamp().as_millisecond()))
    }

    /// The day, date, time and offset from UTC there, to the minute: `Wednesday, 2026-11-25, 18:40 (+01:00, Europe/Berlin)`.
    pub fn format_moment(&self, at: Timestamp) -> String {
        let Ok(at) = jiff::Timestamp::from_millisecond(at.as_millis()) else { return at.to_string() };
        let there = at.to_zoned(self.0.clone());
        let day = match there.weekday() {
            jiff::civil::Weekday::Monday => "Monday",
            jiff::civil::Weekday::Tuesday => "Tuesday",
            jiff::civil::Weekday::Wednesday => "Wednesday",
            jiff::civil::Weekday::Thursday => "Thursday",
            jiff::civil::Weekday::Friday => "Friday",
            jiff::civil::Weekday::Saturday => "Saturday",
            jiff::civil::Weekday::Sunday => "Sunday",
        };
        let offset = there.offset().seconds();
        // The sign is separate, since the hours of an offset of less than an hour are zero.
        let sign = if offset < 0 { '-' } else { '+' };
        let minutes = offset.unsigned_abs() / 60;
        let (hours, minutes) = (minutes / 60, minutes % 60);
        let name = self.name().map(|name| format!(", {name}")).unwrap_or_default();
        format!(
            "{day}, {}, {:02}:{:02} ({sign}{hours:02}:{minutes:02}{name})",
            there.date(),
            there.hour(),
            there.minute()
        )
    }
}

impl fmt::Display for TimeZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name().unwrap_or("a rule without a name"))
    }
}

/// The longest name, in bytes: those of the database have at most 32.
const MAX_NAME: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_on_the_wall_follows_the_zone_and_its_summer_time() {
        let at = |text| Timestamp::from_rfc_3339(text).expect("a time");
        for (zone, time, said) in [
            ("Europe/Berlin", "2026-11-25T17:40:59Z", "Wednesday, 2026-11-25, 18:40 (+01:00, Europe/Berlin)"),
            ("Europe/Berlin", "2026-07-01T22:00:00Z", "Thursday, 2026-07-02, 00:00 (+02:00, Europe/Berlin)"),
            ("Asia/Kolkata", "2026-12-31T20:00:00Z", "Friday, 2027-01-01, 01:30 (+05:30, Asia/Kolkata)"),
            (
                "America/St_Johns",
                "2026-01-01T03:00:00Z",
                "Wednesday, 2025-12-31, 23:30 (-03:30, America/St_Johns)",
            ),
            ("UTC", "1970-01-01T00:00:00Z", "Thursday, 1970-01-01, 00:00 (+00:00, UTC)"),
        ] {
            assert_eq!(TimeZone::parse_name(zone).expect("is known").format_moment(at(time)), said);
        }
    }

    #[test]
    fn the_machine_names_its_zone_in_several_ways() {
        let name = |text| TimeZone::of_machine(Some(text)).map(|zone| zone.name().map(str::to_owned));
        let berlin = Ok(Some("Europe/Berlin".to_owned()));
        for text in ["Europe/Berlin", ":Europe/Berlin", "/usr/share/zoneinfo/Europe/Berlin", "europe/berlin"]
        {
            assert_eq!(name(text), berlin, "{text}");
        }
        assert_eq!(name("CET-1CEST,M3.5.0,M10.5.0/3"), Ok(None), "a rule has no name");
        for text in ["Europe/Berlim", "../../etc/passwd", &"x".repeat(5_000)] {
            assert!(name(text).is_err(), "{text}");
        }
        assert!(TimeZone::of_machine(None).is_ok() && TimeZone::of_machine(Some("")).is_ok());
    }
}
