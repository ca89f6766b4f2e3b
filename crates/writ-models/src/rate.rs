//! Rate limits, as providers state them in the headers of their responses.
//!
//! OpenAI and those that follow it write `x-ratelimit-limit-requests`, `-remaining-requests` and `-reset-requests` (a duration
//! such as `1m2.5s`), and the same for tokens (<https://platform.openai.com/docs/guides/rate-limits>). Anthropic writes
//! `anthropic-ratelimit-requests-limit`, `-remaining` and `-reset` (a time of RFC 3339), and the same for tokens, input tokens
//! and output tokens (<https://docs.anthropic.com/en/api/rate-limits>). OpenRouter writes `x-ratelimit-limit`, `-remaining`
//! and `-reset` (milliseconds since 1970). Mistral writes `x-ratelimit-limit-tokens-minute`, `-remaining-tokens-minute`, and the
//! same for `req-minute`, without a reset. Azure may write -1 for what it does not count, with a reset of 0: that states nothing.
//!
//! The client library hands headers out with errors alone, so the state is that of the last refused request.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use writ_egress::http::HeaderMap;
use writ_types::unit::Timestamp;

/// The farthest reset that is believed: providers count by minute, hour and day.
const MAX_RESET: Duration = Duration::from_secs(8 * 24 * 60 * 60);

/// One limit: of requests or of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateLimit {
    /// The most in a period, if stated.
    pub limit: Option<u64>,
    /// What is left of it, if stated.
    pub remaining: Option<u64>,
    /// The time at which it is whole again, if stated.
    pub reset: Option<Timestamp>,
}

/// The limits that a provider stated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateLimits {
    /// Of requests.
    pub requests: RateLimit,
    /// Of tokens; where a provider counts input and output apart, the one of which less is left.
    pub tokens: RateLimit,
    /// The time of the response that stated them.
    pub at: Timestamp,
}

impl RateLimits {
    /// Reads the headers of a response that came at `now`; `None`: they state no limit.
    pub fn read_headers(headers: &HeaderMap, now: Timestamp) -> Option<Self> {
        let read = |limit: &str, remaining: &str, reset: &str| RateLimit {
            limit: read_count(headers, limit),
            remaining: read_count(headers, remaining),
            reset: read_reset(headers, reset, now),
        };
        let openai = |of: &str| {
            let name = |part: &str| format!("x-ratelimit-{part}{of}");
            read(&name("limit"), &name("remaining"), &name("reset"))
        };
        let anthropic = |of: &str| {
            let name = |part: &str| format!("anthropic-ratelimit-{of}-{part}");
            read(&name("limit"), &name("remaining"), &name("reset"))
        };
        let stated = |limits: &[RateLimit]| {
            // A reset alone says nothing of what is left.
            let stated = limits.iter().copied().filter(RateLimit::has_count);
            stated.min_by_key(|limit| limit.remaining.unwrap_or(u64::MAX)).unwrap_or_default()
        };
        let requests =
            stated(&[openai("-requests"), openai("-req-minute"), anthropic("requests"), openai("")]);
        let tokens = stated(&[
            openai("-tokens"),
            openai("-tokens-minute"),
            anthropic("tokens"),
            anthropic("input-tokens"),
            anthropic("output-tokens"),
        ]);
        let limits = Self { requests, tokens, at: now };
        (limits != Self { at: now, ..Self::default() }).then_some(limits)
    }

    /// Returns the time at which a limit of which nothing is left is whole again, the latest of them; `None`: none is used up, or
    /// it is not stated.
    pub fn exhausted_until(&self) -> Option<Timestamp> {
        let used_up = [self.requests, self.tokens].into_iter().filter(|limit| limit.remaining == Some(0));
        used_up.filter_map(|limit| limit.reset).max()
    }
}

impl RateLimit {
    const fn has_count(&self) -> bool {
        self.limit.is_some() || self.remaining.is_some()
    }
}

fn read_header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

fn read_count(headers: &HeaderMap, name: &str) -> Option<u64> {
    read_header(headers, name)?.parse().ok()
}

/// Reads a time of RFC 3339, a duration such as `1m2.5s`, seconds, or milliseconds since 1970.
fn read_reset(headers: &HeaderMap, name: &str, now: Timestamp) -> Option<Timestamp> {
    let text = read_header(headers, name)?;
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
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_793_000_000_000);

    fn read(headers: &[(&'static str, &str)]) -> Option<RateLimits> {
        let headers = headers.iter().map(|(name, value)| {
            (writ_egress::http::HeaderName::from_static(name), value.parse().expect("a header"))
        });
        RateLimits::read_headers(&headers.collect(), NOW)
    }

    #[test]
    fn openais_headers_are_read() {
        let limits = read(&[
            ("x-ratelimit-limit-requests", "60"),
            ("x-ratelimit-remaining-requests", "59"),
            ("x-ratelimit-reset-requests", "1s"),
            ("x-ratelimit-limit-tokens", "150000"),
            ("x-ratelimit-remaining-tokens", "149984"),
            ("x-ratelimit-reset-tokens", "6m0.5s"),
        ]);
        let at = |millis| Some(NOW.plus_duration(Duration::from_millis(millis)));
        let requests = RateLimit { limit: Some(60), remaining: Some(59), reset: at(1_000) };
        let tokens = RateLimit { limit: Some(150_000), remaining: Some(149_984), reset: at(360_500) };
        assert_eq!(limits, Some(RateLimits { requests, tokens, at: NOW }));
    }

    #[test]
    fn anthropics_headers_are_read_and_the_scarcer_kind_of_token_counts() {
        let limits = read(&[
            ("anthropic-ratelimit-requests-limit", "50"),
            ("anthropic-ratelimit-requests-remaining", "0"),
            ("anthropic-ratelimit-requests-reset", "2026-10-26T00:00:00Z"),
            ("anthropic-ratelimit-input-tokens-remaining", "12000"),
            ("anthropic-ratelimit-output-tokens-remaining", "400"),
        ])
        .expect("limits");
        assert_eq!((limits.requests.limit, limits.requests.remaining), (Some(50), Some(0)));
        assert_eq!(limits.requests.reset, Some(Timestamp::from_millis(1_792_972_800_000)));
        assert_eq!(limits.tokens.remaining, Some(400));
    }

    #[test]
    fn openrouters_headers_are_read() {
        let limits = read(&[
            ("x-ratelimit-limit", "20"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "1793000060000"),
        ])
        .expect("limits");
        let reset = Some(NOW.plus_duration(Duration::from_secs(60)));
        assert_eq!(limits.requests, RateLimit { limit: Some(20), remaining: Some(0), reset });
    }

    /// [mistralai/client-ts#169](https://github.com/mistralai/client-ts/issues/169),
    /// [openai/openai-dotnet#838](https://github.com/openai/openai-dotnet/issues/838)
    #[test]
    fn mistrals_headers_are_read_and_azures_minus_one_states_nothing() {
        let limits = read(&[
            ("x-ratelimit-limit-tokens-minute", "5000000"),
            ("x-ratelimit-remaining-tokens-minute", "4999911"),
            ("x-ratelimit-tokens-query-cost", "52"),
            ("x-ratelimit-limit-req-minute", "720"),
            ("x-ratelimit-remaining-req-minute", "717"),
        ]);
        let limit =
            |limit, remaining| RateLimit { limit: Some(limit), remaining: Some(remaining), reset: None };
        let (requests, tokens) = (limit(720, 717), limit(5_000_000, 4_999_911));
        assert_eq!(limits, Some(RateLimits { requests, tokens, at: NOW }));
        let azure = [
            ("x-ratelimit-limit-tokens", "-1"),
            ("x-ratelimit-remaining-tokens", "-1"),
            ("x-ratelimit-reset-tokens", "0"),
        ];
        assert_eq!(read(&azure), None);
        let epoch =
            read(&[("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "1793000060")]);
        assert_eq!(
            epoch.and_then(|limits| limits.exhausted_until()),
            Some(NOW.plus_duration(Duration::from_secs(60)))
        );
    }

    #[test]
    fn nonsense_states_nothing() {
        for (name, value) in [
            ("x-ratelimit-limit-requests", "many"),
            ("x-ratelimit-reset-requests", "soon"),
            ("x-ratelimit-reset-requests", "1s-"),
            ("x-ratelimit-reset-requests", ""),
            ("x-ratelimit-reset-tokens", "99999999999999999999h"),
            ("anthropic-ratelimit-tokens-reset", "2999-01-01T00:00:00Z"),
        ] {
            assert_eq!(read(&[(name, value)]), None, "{value}");
        }
        assert_eq!(read(&[]), None);
    }
}
