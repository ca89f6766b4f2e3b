//! The rules for trying again. Each try needs a permit of its own, so this decides and does not wait.

use std::time::{Duration, SystemTime};

use writ_egress::http::HeaderMap;
use writ_types::unit::Timestamp;

use crate::config::ModelsTable;
use crate::error::ModelError;

/// The longest wait between two tries, even if a provider asks for a longer one (SCL-022).
pub const MAX_WAIT: Duration = Duration::from_secs(60);

/// By how much the wait grows from try to try (SCL-021).
const FACTOR: u32 = 2;

/// The waits between tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    base: Duration,
    max_tries: u32,
}

impl Backoff {
    /// The waits that the configuration asks for.
    pub const fn new(table: &ModelsTable) -> Self {
        Self { base: Duration::from_millis(table.backoff_base_ms), max_tries: table.max_tries }
    }

    /// Returns the wait before the next try, after `tries` of them failed, the last with `error`; `None`: it
    /// is final. A provider's `Retry-After` counts where it is longer than the wait that is due.
    pub fn wait_before(&self, error: &ModelError, tries: u32) -> Option<Duration> {
        // After the first text another try would show a second beginning.
        if error.begun || !error.failure.is_transient() || tries >= self.max_tries {
            return None;
        }
        let due = self.base.saturating_mul(FACTOR.saturating_pow(tries.saturating_sub(1)));
        // The provider's wait is honoured up to a bound, since a person waits as well.
        Some(due.max(error.failure.retry_after().unwrap_or_default()).min(MAX_WAIT))
    }
}

/// Reads a `Retry-After` header, seconds or an HTTP date (RFC 9110, section 10.2.3), capped at [`MAX_WAIT`].
pub fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    let wait = match value.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        // Some providers send fractions of a second.
        Err(_) => match value.parse::<f64>() {
            Ok(seconds) => Duration::try_from_secs_f64(seconds).ok()?,
            Err(_) => httpdate::parse_http_date(value).ok()?.duration_since(now).unwrap_or_default(),
        },
    };
    Some(wait.min(MAX_WAIT))
}

/// Returns the wait that the headers of a refusal ask for: `retry-after-ms` (OpenAI, Azure), `retry-after`, or Azure's
/// `x-rate-limit-reset-tokens` and `-requests` (seconds, in their place:
/// [openai-python#937](https://github.com/openai/openai-python/issues/937)). What a provider states of its limits beside it is not read here.
pub(crate) fn stated_wait(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let millis = header("retry-after-ms").and_then(|value| value.trim().parse::<u64>().ok());
    let seconds = ["retry-after", "x-rate-limit-reset-tokens", "x-rate-limit-reset-requests"];
    let stated = millis.map(Duration::from_millis);
    let stated =
        stated.or_else(|| seconds.into_iter().filter_map(header).find_map(|value| retry_after(value, now)));
    stated.map(|wait| wait.min(MAX_WAIT))
}

/// A time of the system's clock.
pub(crate) fn time_of(now: SystemTime) -> Timestamp {
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(0).plus_duration(since)
}

#[cfg(test)]
mod tests {
    use writ_types::chat::Usage;

    use super::*;
    use crate::error::Failure;

    fn error(failure: Failure) -> ModelError {
        ModelError { provider: "p".into(), model: "m".into(), failure, usage: Usage::default(), begun: false }
    }

    /// Rows: SCL-021
    #[test]
    fn waits_grow_with_a_cap_and_end() {
        let backoff = Backoff::new(&ModelsTable { max_tries: 9, ..ModelsTable::default() });
        let failed = error(Failure::Unavailable { status: 500, retry_after: None, said: Default::default() });
        let waits: Vec<Option<u64>> =
            (1..=9).map(|tries| backoff.wait_before(&failed, tries).map(|wait| wait.as_secs())).collect();
        assert_eq!(
            waits,
            [1, 2, 4, 8, 16, 32, 60, 60].map(Some).into_iter().chain([None]).collect::<Vec<_>>()
        );
        for failure in [
            Failure::Rejected { status: 400, code: "x".into(), said: Default::default() },
            Failure::Unauthorized { status: 401, said: Default::default() },
            Failure::ContextLength { sizes: Default::default(), said: Default::default() },
            Failure::Cut,
            Failure::Cancelled,
        ] {
            assert_eq!(backoff.wait_before(&error(failure), 1), None);
        }
        let begun = ModelError { begun: true, ..failed };
        assert_eq!(backoff.wait_before(&begun, 1), None, "text that was shown is not said again");
    }

    /// What providers state in place of `Retry-After`, as their users report it; the more exact header counts.
    #[test]
    fn a_wait_is_read_from_whatever_header_states_one() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_793_000_000);
        let wait = |headers: &[(&'static str, &str)]| {
            let headers = headers.iter().map(|(name, value)| {
                (writ_egress::http::HeaderName::from_static(name), value.parse().expect("a header"))
            });
            stated_wait(&headers.collect(), now)
        };
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(
            wait(&[("retry-after", "2"), ("retry-after-ms", "1250")]),
            Some(Duration::from_millis(1_250))
        );
        assert_eq!(wait(&[("retry-after", "2"), ("retry-after-ms", "soon")]), seconds(2));
        assert_eq!(wait(&[("x-rate-limit-reset-tokens", "55")]), seconds(55));
        assert_eq!(wait(&[("retry-after", "3600")]), Some(MAX_WAIT), "a person waits as well");
        assert_eq!(wait(&[]), None);
    }

    /// Rows: SCL-022
    #[test]
    fn retry_after_counts_in_both_forms_and_is_capped() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_770);
        assert_eq!(retry_after("7", now), Some(Duration::from_secs(7)));
        assert_eq!(retry_after(" 1.5 ", now), Some(Duration::from_millis(1500)));
        // RFC 9110, section 5.6.7: 784111777 seconds after the epoch.
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:49:37 GMT", now), Some(Duration::from_secs(7)));
        assert_eq!(retry_after("Sat, 05 Nov 1994 08:49:37 GMT", now), Some(Duration::ZERO));
        assert_eq!(retry_after("86400", now), Some(MAX_WAIT));
        assert_eq!(retry_after("Mon, 06 Nov 2034 08:49:37 GMT", now), Some(MAX_WAIT));
        for nonsense in ["", "soon", "-1", "NaN", "inf"] {
            assert_eq!(retry_after(nonsense, now), None, "{nonsense:?}");
        }
        let backoff = Backoff::new(&ModelsTable::default());
        let limited = |seconds| {
            error(Failure::RateLimited {
                retry_after: Some(Duration::from_secs(seconds)),
                said: Default::default(),
            })
        };
        assert_eq!(backoff.wait_before(&limited(7), 1), Some(Duration::from_secs(7)));
        assert_eq!(
            backoff.wait_before(&limited(1), 4),
            Some(Duration::from_secs(8)),
            "the longer wait counts"
        );
    }
}
