//! The time that a text names: «last week», «on Monday», «in March», «two days ago», «2026-03-04».
//!
//! Days begin and end by the clock on the owner's wall: a day of the change to summer time has 23 hours. The words are
//! those of English and German.

use jiff::ToSpan as _;
use jiff::civil::{Date, Weekday};
use writ_types::unit::Timestamp;
use writ_types::zone::TimeZone;

/// A span of time, without its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeWindow {
    /// The words that name it.
    pub words: String,
    /// Its start.
    pub start: Timestamp,
    /// Its end, which is not part of it.
    pub end: Timestamp,
}

/// The most bytes of a text that are looked at.
const MAX_BYTES: usize = 4 * 1024;

/// The most words of one name of a time.
const MAX_WORDS: usize = 4;

/// Returns the time that a text names, and the text without the words for it; `None`: it names none.
pub fn find_window(text: &str, zone: &TimeZone, now: Timestamp) -> Option<(TimeWindow, String)> {
    let mut end = text.len().min(MAX_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let today = zone.date_at(now)?;
    let words: Vec<&str> = text[..end].split_whitespace().collect();
    let plain: Vec<String> = words.iter().map(|word| plain_word(word)).collect();
    // The longest name counts: «last week» and not «week».
    for length in (1..=MAX_WORDS).rev() {
        for start in 0..plain.len().saturating_sub(length - 1) {
            let name: Vec<&str> = plain[start..start + length].iter().map(String::as_str).collect();
            let Some((first, after)) = days_named(&name, today) else { continue };
            let named = words[start..start + length].join(" ");
            let window = TimeWindow {
                words: named.trim_matches(|letter: char| !letter.is_alphanumeric()).to_owned(),
                start: zone.start_of_day(first)?,
                end: zone.start_of_day(after)?,
            };
            let rest = [&words[..start], &words[start + length..]].concat().join(" ");
            return Some((window, rest));
        }
    }
    None
}

fn plain_word(word: &str) -> String {
    let word = word.trim_matches(|letter: char| !letter.is_alphanumeric()).to_lowercase();
    word.strip_suffix("'s").or_else(|| word.strip_suffix("’s")).map_or_else(|| word.clone(), str::to_owned)
}

/// Returns the first day of a name, and the first day after it.
fn days_named(name: &[&str], today: Date) -> Option<(Date, Date)> {
    match name {
        ["today" | "heute"] => days_from(today, 1),
        ["yesterday" | "gestern"] => days_from(today.checked_sub(1.day()).ok()?, 1),
        ["day", "before", "yesterday"] | ["vorgestern"] => days_from(today.checked_sub(2.days()).ok()?, 1),
        ["this" | "diese" | "dieser", "week" | "woche"] => days_from(monday_of(today)?, 7),
        ["last" | "letzte" | "letzter" | "letzten" | "vorige" | "voriger", "week" | "woche"] => {
            days_from(monday_of(today)?.checked_sub(7.days()).ok()?, 7)
        }
        ["last" | "letztes" | "letzten", "weekend" | "wochenende"] => {
            days_from(monday_of(today)?.checked_sub(2.days()).ok()?, 2)
        }
        ["this" | "diesen" | "diesem", "month" | "monat"] => month_of(today),
        ["last" | "letzten" | "letztem" | "vorigen", "month" | "monat"] => {
            month_of(today.first_of_month().checked_sub(1.day()).ok()?)
        }
        ["this" | "dieses" | "diesem", "year" | "jahr"] => year_of(today.year()),
        ["last" | "letztes" | "letztem" | "voriges", "year" | "jahr"] => {
            year_of(today.year().checked_sub(1)?)
        }
        ["last" | "letzten" | "letzte", day] if weekday_named(day).is_some() => {
            let day = weekday_named(day)?;
            days_from(today.checked_sub(days_since(today, day).days()).ok()?, 1)
        }
        ["on" | "am", day] if weekday_named(day).is_some() => {
            let day = weekday_named(day)?;
            days_from(today.checked_sub(days_since(today, day).days()).ok()?, 1)
        }
        ["since" | "seit", name] => {
            let (first, _) = days_named(&[name], today)
                .or_else(|| days_named(&["in", name], today))
                .or_else(|| days_named(&["on", name], today))?;
            Some((first, today.checked_add(1.day()).ok()?))
        }
        ["in" | "im" | "during" | "last", month] if month_named(month).is_some() => {
            month_before(month_named(month)?, today)
        }
        ["in" | "im", month, year] => {
            let (month, year) = (month_named(month)?, year_named(year)?);
            month_of(Date::new(year, month, 1).ok()?)
        }
        [count, unit, "ago"] | ["vor", count, unit] => span_ago(count_named(count)?, unit, today),
        ["in", year] => year_of(year_named(year)?),
        // Ten characters: `2026-03-04` in full, and no other form that the library reads.
        [date] => days_from(date.parse::<Date>().ok().filter(|_| date.len() == 10)?, 1),
        [month, day, year] => {
            let day = day.trim_end_matches(|letter: char| letter.is_alphabetic()).parse().ok()?;
            days_from(Date::new(year_named(year)?, month_named(month)?, day).ok()?, 1)
        }
        [month, day] => {
            let (month, day) = (month_named(month)?, day_named(day)?);
            days_from(last_such_day(month, day, today)?, 1)
        }
        _ => None,
    }
}

fn days_from(first: Date, days: i32) -> Option<(Date, Date)> {
    Some((first, first.checked_add(days.days()).ok()?))
}

fn monday_of(day: Date) -> Option<Date> {
    day.checked_sub(i32::from(day.weekday().to_monday_zero_offset()).days()).ok()
}

fn month_of(day: Date) -> Option<(Date, Date)> {
    Some((day.first_of_month(), day.last_of_month().checked_add(1.day()).ok()?))
}

fn year_of(year: i16) -> Option<(Date, Date)> {
    Some((Date::new(year, 1, 1).ok()?, Date::new(year.checked_add(1)?, 1, 1).ok()?))
}

/// Returns the days since the last such weekday before today.
fn days_since(today: Date, day: Weekday) -> i32 {
    let (today, day) =
        (i32::from(today.weekday().to_monday_zero_offset()), i32::from(day.to_monday_zero_offset()));
    let days = (today - day).rem_euclid(7);
    // On a Monday «last Monday» is a week ago.
    if days == 0 { 7 } else { days }
}

/// Returns the last such month that has begun.
fn month_before(month: i8, today: Date) -> Option<(Date, Date)> {
    let year = if month > today.month() { today.year().checked_sub(1)? } else { today.year() };
    month_of(Date::new(year, month, 1).ok()?)
}

fn last_such_day(month: i8, day: i8, today: Date) -> Option<Date> {
    // A day that is still to come this year is meant as last year's: memories are of the past.
    let this_year = Date::new(today.year(), month, day).ok().filter(|date| *date <= today);
    this_year.or_else(|| Date::new(today.year().checked_sub(1)?, month, day).ok())
}

/// Days are exact; a week, month or year ago is one of seven days, a month or a year around that day.
fn span_ago(count: i32, unit: &str, today: Date) -> Option<(Date, Date)> {
    match unit {
        "day" | "days" | "tag" | "tagen" => days_from(today.checked_sub(count.days()).ok()?, 1),
        "week" | "weeks" | "woche" | "wochen" => {
            days_from(monday_of(today.checked_sub(count.weeks()).ok()?)?, 7)
        }
        "month" | "months" | "monat" | "monaten" => month_of(today.checked_sub(count.months()).ok()?),
        "year" | "years" | "jahr" | "jahren" => year_of(today.checked_sub(count.years()).ok()?.year()),
        _ => None,
    }
}

fn count_named(word: &str) -> Option<i32> {
    const ENGLISH: [&str; 12] =
        ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];
    const GERMAN: [&str; 12] =
        ["einem", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf"];
    if matches!(word, "a" | "an" | "einer" | "ein") {
        return Some(1);
    }
    let place = ENGLISH.iter().position(|name| *name == word);
    let place = place.or_else(|| GERMAN.iter().position(|name| *name == word));
    let count = place.and_then(|place| i32::try_from(place + 1).ok());
    count.or_else(|| word.parse().ok().filter(|count| (0..=1_000).contains(count)))
}

fn weekday_named(word: &str) -> Option<Weekday> {
    Some(match word {
        "monday" | "montag" => Weekday::Monday,
        "tuesday" | "dienstag" => Weekday::Tuesday,
        "wednesday" | "mittwoch" => Weekday::Wednesday,
        "thursday" | "donnerstag" => Weekday::Thursday,
        "friday" | "freitag" => Weekday::Friday,
        "saturday" | "samstag" | "sonnabend" => Weekday::Saturday,
        "sunday" | "sonntag" => Weekday::Sunday,
        _ => return None,
    })
}

fn month_named(word: &str) -> Option<i8> {
    Some(match word {
        "january" | "januar" => 1,
        "february" | "februar" => 2,
        "march" | "märz" => 3,
        "april" => 4,
        "may" | "mai" => 5,
        "june" | "juni" => 6,
        "july" | "juli" => 7,
        "august" => 8,
        "september" => 9,
        "october" | "oktober" => 10,
        "november" => 11,
        "december" | "dezember" => 12,
        _ => return None,
    })
}

fn day_named(word: &str) -> Option<i8> {
    word.trim_end_matches(|letter: char| letter.is_alphabetic()).parse().ok()
}

fn year_named(word: &str) -> Option<i16> {
    word.parse().ok().filter(|year| (1900..=2200).contains(year))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window_of(text: &str, zone: &str, now: &str) -> Option<(String, String, String, String)> {
        let zone = TimeZone::parse_name(zone).expect("a zone");
        let now = Timestamp::from_rfc_3339(now).expect("a time");
        let (window, rest) = find_window(text, &zone, now)?;
        Some((window.words, window.start.to_string(), window.end.to_string(), rest))
    }

    /// Rows: SIL-386 (in part: the window of a query)
    #[test]
    fn names_of_times_are_found_in_sentences() {
        for (text, words, start, end) in [
            ("What did I say last week?", "last week", "2026-11-16", "2026-11-23"),
            ("yesterday", "yesterday", "2026-11-25", "2026-11-26"),
            ("was habe ich letzte Woche gesagt", "letzte Woche", "2026-11-16", "2026-11-23"),
            ("the call on Monday", "on Monday", "2026-11-23", "2026-11-24"),
            ("last Thursday's news", "last Thursday's", "2026-11-19", "2026-11-20"),
            ("two days ago", "two days ago", "2026-11-24", "2026-11-25"),
            ("vor drei Wochen", "vor drei Wochen", "2026-11-02", "2026-11-09"),
            ("the trip in March", "in March", "2026-03-01", "2026-04-01"),
            ("the trip in December", "in December", "2025-12-01", "2026-01-01"),
            ("on 2026-03-04 we met", "2026-03-04", "2026-03-04", "2026-03-05"),
            ("it was March 4th, 2025", "March 4th, 2025", "2025-03-04", "2025-03-05"),
            ("since Monday", "since Monday", "2026-11-23", "2026-11-27"),
            ("last year", "last year", "2025-01-01", "2026-01-01"),
        ] {
            let found = window_of(text, "UTC", "2026-11-26T12:00:00Z").unwrap_or_else(|| panic!("{text}"));
            assert_eq!(found.0, words, "{text}");
            assert!(found.1.starts_with(start) && found.2.starts_with(end), "{text}: {found:?}");
        }
        for text in ["", "the last word", "in a moment", "may I ask", "on time", "ago", "2026-13-45", "week"]
        {
            assert_eq!(window_of(text, "UTC", "2026-11-26T12:00:00Z"), None, "{text}");
        }
    }

    #[test]
    fn the_words_of_the_time_are_no_words_of_the_question() {
        let found = window_of("What did Anna say last week about rent?", "UTC", "2026-11-26T12:00:00Z");
        assert_eq!(found.expect("a window").3, "What did Anna say about rent?");
    }

    #[test]
    fn days_begin_at_the_owners_midnight_also_when_summer_time_begins_and_ends() {
        let hours = |now: &str| {
            let (_, start, end, _) = window_of("yesterday", "Europe/Berlin", now).expect("a window");
            let at = |text: &str| Timestamp::from_rfc_3339(text).expect("a time");
            (at(&end).time_since(at(&start)).as_secs() / 3600, start, end)
        };
        assert_eq!(hours("2026-03-30T10:00:00Z").0, 23, "the clock went forward");
        assert_eq!(hours("2026-10-26T10:00:00Z").0, 25, "and back");
        let (_, start, end) = hours("2026-06-01T22:30:00Z");
        assert!(start.starts_with("2026-05-31T22:00:00") && end.starts_with("2026-06-01T22:00:00"));
        // Half an hour earlier the same words name the day before.
        let (_, start, _) = hours("2026-06-01T21:30:00Z");
        assert!(start.starts_with("2026-05-30T22:00:00"));
    }
}
