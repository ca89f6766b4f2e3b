//! Rate limits, as providers state them in the headers of their answers. They are shown to people; no decision reads them, so that what is
//! done never depends on a number that a provider may get wrong. When to ask again is stated by `Retry-After` alone ([`crate::retry`]).
//!
//! OpenAI and those that follow it write `x-ratelimit-limit-requests`, `-remaining-requests` and `-reset-requests` (a duration
//! such as `1m2.5s`), and the same for tokens (<https://platform.openai.com/docs/guides/rate-limits>). Anthropic writes
//! `anthropic-ratelimit-requests-limit`, `-remaining` and `-reset` (a time of RFC 3339), and the same for tokens, input tokens
//! and output tokens (<https://docs.anthropic.com/en/api/rate-limits>). OpenRouter writes `x-ratelimit-limit`, `-remaining`
//! and `-reset` (milliseconds since 1970). Mistral writes `x-ratelimit-limit-tokens-minute`, `-remaining-tokens-minute`, and the
//! same for `req-minute`, without a reset. Azure may write -1 for what it does not count, with a reset of 0: that states nothing. Gateways
//! write the fields of the drafts `draft-ietf-httpapi-ratelimit-headers`: `ratelimit-limit`, `-remaining` and `-reset` (seconds), later
//! `ratelimit` and `ratelimit-policy` (lists with parameters).
//!
//! The client library of conversations hands headers out with errors alone, so what is known is from refusals, and from every answer of a
//! model for vectors.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use writ_egress::http::HeaderMap;
use writ_types::api::model::{ProviderLimits, StatedLimit, StatedLimits};
use writ_types::unit::Timestamp;

/// The most characters of a value: a date of HTTP has 29, and a list of policies is rarely longer.
const MAX_VALUE_CHARS: usize = 64;

/// The largest number of providers with limits; the configuration names a handful.
const MAX_PROVIDERS: usize = 256;

/// The farthest reset that is believed: providers count by minute, hour and day.
const MAX_RESET: Duration = Duration::from_secs(8 * 24 * 60 * 60);

/// The form of a header's value. A value of another form is passed over: what a server writes there is shown to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueForm {
    /// A number.
    Count,
    /// A time or a duration.
    Reset,
    /// Seconds, with a fraction or not, or a date of HTTP.
    Wait,
    /// Items with parameters.
    List,
}

/// The headers that are read, and no others.
const HEADERS: [(&str, ValueForm); 35] = [
    ("anthropic-ratelimit-input-tokens-limit", ValueForm::Count),
    ("anthropic-ratelimit-input-tokens-remaining", ValueForm::Count),
    ("anthropic-ratelimit-input-tokens-reset", ValueForm::Reset),
    ("anthropic-ratelimit-output-tokens-limit", ValueForm::Count),
    ("anthropic-ratelimit-output-tokens-remaining", ValueForm::Count),
    ("anthropic-ratelimit-output-tokens-reset", ValueForm::Reset),
    ("anthropic-ratelimit-requests-limit", ValueForm::Count),
    ("anthropic-ratelimit-requests-remaining", ValueForm::Count),
    ("anthropic-ratelimit-requests-reset", ValueForm::Reset),
    ("anthropic-ratelimit-tokens-limit", ValueForm::Count),
    ("anthropic-ratelimit-tokens-remaining", ValueForm::Count),
    ("anthropic-ratelimit-tokens-reset", ValueForm::Reset),
    ("anthropic-ratelimit-unified-reset", ValueForm::Reset),
    ("ratelimit", ValueForm::List),
    ("ratelimit-limit", ValueForm::List),
    ("ratelimit-policy", ValueForm::List),
    ("ratelimit-remaining", ValueForm::Count),
    ("ratelimit-reset", ValueForm::Reset),
    ("retry-after", ValueForm::Wait),
    ("retry-after-ms", ValueForm::Wait),
    ("x-ratelimit-limit", ValueForm::Count),
    ("x-ratelimit-limit-req-minute", ValueForm::Count),
    ("x-ratelimit-limit-requests", ValueForm::Count),
    ("x-ratelimit-limit-tokens", ValueForm::Count),
    ("x-ratelimit-limit-tokens-minute", ValueForm::Count),
    ("x-ratelimit-remaining", ValueForm::Count),
    ("x-ratelimit-remaining-req-minute", ValueForm::Count),
    ("x-ratelimit-remaining-requests", ValueForm::Count),
    ("x-ratelimit-remaining-tokens", ValueForm::Count),
    ("x-ratelimit-remaining-tokens-minute", ValueForm::Count),
    ("x-ratelimit-reset", ValueForm::Reset),
    ("x-ratelimit-reset-requests", ValueForm::Reset),
    ("x-ratelimit-reset-tokens", ValueForm::Reset),
    ("x-rate-limit-reset-requests", ValueForm::Reset),
    ("x-rate-limit-reset-tokens", ValueForm::Reset),
];

/// The rate-limit headers of one answer. They come out as [`StatedLimits`] alone, which hands no number out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RateHeaders {
    at: Timestamp,
    stated: BTreeMap<&'static str, String>,
}

/// The newest rate-limit headers of each provider, in memory alone.
#[derive(Debug, Default)]
pub(crate) struct RateBoard {
    newest: Mutex<BTreeMap<String, RateHeaders>>,
}

impl RateBoard {
    /// Keeps the limits that an answer of a provider states, in place of older ones. An answer that states none changes nothing.
    pub(crate) fn note_answer(&self, provider: &str, headers: RateHeaders) {
        let mut newest = self.lock();
        // The map is bounded, since the names of providers come from the configuration of each home.
        if newest.len() < MAX_PROVIDERS || newest.contains_key(provider) {
            newest.insert(provider.to_owned(), headers);
        }
    }

    /// Shows what a provider has stated last.
    pub(crate) fn show_provider(&self, provider: &str) -> Option<StatedLimits> {
        self.lock().get(provider).map(RateHeaders::show_limits)
    }

    /// Shows what each provider has stated last, by the names of the providers.
    pub(crate) fn show_all(&self) -> Vec<ProviderLimits> {
        let shown = |(provider, headers): (&String, &RateHeaders)| ProviderLimits {
            provider: provider.clone(),
            stated: headers.show_limits(),
        };
        self.lock().iter().map(shown).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, RateHeaders>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RateHeaders {
    /// Reads the headers of an answer that came at `now`; `None`: they state no limit.
    pub(crate) fn read_headers(headers: &HeaderMap, now: Timestamp) -> Option<Self> {
        let read = |(name, form): (&'static str, ValueForm)| {
            let value = headers.get(name)?.to_str().ok()?.trim();
            is_of_form(value, form, now).then(|| (name, value.to_owned()))
        };
        let stated: BTreeMap<&'static str, String> = HEADERS.into_iter().filter_map(read).collect();
        // A reset alone says nothing of what is left.
        let has_statement = stated.keys().any(|name| !name.contains("reset"));
        has_statement.then_some(Self { at: now, stated })
    }

    /// Shows them.
    fn show_limits(&self) -> StatedLimits {
        let openai = |of: &str| {
            let name = |part: &str| format!("x-ratelimit-{part}{of}");
            self.read_limit(&name("limit"), &name("remaining"), &name("reset"))
        };
        let anthropic = |of: &str| {
            let name = |part: &str| format!("anthropic-ratelimit-{of}-{part}");
            self.read_limit(&name("limit"), &name("remaining"), &name("reset"))
        };
        let draft = self.read_limit("ratelimit-limit", "ratelimit-remaining", "ratelimit-reset");
        let requests = [openai("-requests"), openai("-req-minute"), anthropic("requests"), openai(""), draft];
        let tokens = [
            openai("-tokens"),
            openai("-tokens-minute"),
            anthropic("tokens"),
            anthropic("input-tokens"),
            anthropic("output-tokens"),
        ];
        let headers = self.stated.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        StatedLimits::new(self.at, scarcest_of(&requests), scarcest_of(&tokens), headers.collect())
    }

    fn read_limit(&self, limit: &str, remaining: &str, reset: &str) -> ReadLimit {
        let read = |name: &str| self.stated.get(name).map(String::as_str);
        ReadLimit {
            limit: read(limit).and_then(read_count),
            remaining: read(remaining).and_then(read_count),
            reset: read(reset).and_then(|text| read_reset(text, self.at)),
        }
    }
}

/// One limit, as read.
#[derive(Clone, Copy)]
struct ReadLimit {
    limit: Option<u64>,
    remaining: Option<u64>,
    reset: Option<Timestamp>,
}

/// Returns the limit of which least is left, of those that state a count.
fn scarcest_of(limits: &[ReadLimit]) -> StatedLimit {
    let stated = limits.iter().filter(|limit| limit.limit.is_some() || limit.remaining.is_some());
    stated
        .min_by_key(|limit| limit.remaining.unwrap_or(u64::MAX))
        .map(|limit| StatedLimit::new(limit.limit, limit.remaining, limit.reset))
        .unwrap_or_default()
}

/// Returns true if a value is short and of the form of its header.
fn is_of_form(value: &str, form: ValueForm, now: Timestamp) -> bool {
    if value.is_empty() || value.len() > MAX_VALUE_CHARS {
        return false;
    }
    match form {
        ValueForm::Count => read_count(value).is_some(),
        ValueForm::Reset => read_reset(value, now).is_some(),
        ValueForm::Wait => {
            let is_number = value.chars().all(|c| c.is_ascii_digit() || c == '.');
            is_number || httpdate::parse_http_date(value).is_ok()
        }
        ValueForm::List => {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || " ,;=\"-_.".contains(c);
            value.chars().all(is_plain) && value.chars().any(|c| c.is_ascii_digit())
        }
    }
}

fn read_count(text: &str) -> Option<u64> {
    text.parse().ok()
}

/// Reads a time of RFC 3339, a duration such as `1m2.5s`, seconds, or milliseconds since 1970.
fn read_reset(text: &str, now: Timestamp) -> Option<Timestamp> {
    let latest = now.plus_duration(MAX_RESET);
    let reset = if let Ok(time) = text.parse::<jiff::Timestamp>() {
        Timestamp::from_millis(time.as_millisecond())
    } else if let Ok(number) = text.parse::<u64>().map(|number| i64::try_from(number).unwrap_or(i64::MAX)) {
        // A number of seconds is small; one of milliseconds since 1970 has passed a trillion in 2001, and one of seconds since 1970
        // a billion.
        if number > 1_000_000_000_000 {
            Timestamp::from_millis(number)
        } else if number > 1_000_000_000 {
            Timestamp::from_millis(number.saturating_mul(1_000))
        } else {
            now.plus_duration(Duration::from_secs(number.unsigned_abs()))
        }
    } else {
        now.plus_duration(read_duration(text)?)
    };
    (reset <= latest).then_some(reset)
}

/// Reads a duration as Go prints it: `1h2m3.5s`, `20ms`.
fn read_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, more) = rest.split_at(digits);
        let (unit, more) = more.split_at(more.find(|c: char| c.is_ascii_digit()).unwrap_or(more.len()));
        let seconds = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        let part = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
        total = total.checked_add(part)?;
        rest = more;
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests;
