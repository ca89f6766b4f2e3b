//! The count of an agent's refused requests, and its report.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use writ_sandbox::agent::FirstProcess;

/// The most lines of single refusals in a report; what follows is in the counts alone.
pub const LINES_MAX: u64 = 10_000;
/// The longest name that is repeated in a report, in characters.
const NAME_MAX: usize = 64;

/// The reason of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusalReason {
    /// It asked for another name.
    OtherName,
    /// It asked for the security proxy without TLS.
    Plain,
    /// It asked for a tunnel.
    Tunnel,
    /// The request cannot be understood, or its head is too long.
    Malformed,
    /// The request's head did not come in time.
    Slow,
    /// It does not speak TLS where TLS is spoken, or does not trust us.
    Handshake,
    /// The body is too large.
    TooLarge,
    /// The server's answer is too large.
    LongAnswer,
    /// The server behind the name was not reached, or did not answer.
    Unreachable,
    /// The agent's keys cannot be read any more.
    NoKey,
    /// A header named an agent; it was taken out, and the request passed on.
    ForgedHeader,
}

impl RefusalReason {
    /// Returns its name in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OtherName => "other_name",
            Self::Plain => "plain",
            Self::Tunnel => "tunnel",
            Self::Malformed => "malformed",
            Self::Slow => "slow",
            Self::Handshake => "handshake",
            Self::TooLarge => "too_large",
            Self::LongAnswer => "long_answer",
            Self::Unreachable => "unreachable",
            Self::NoKey => "no_key",
            Self::ForgedHeader => "forged_header",
        }
    }

    const fn describe_requests(self) -> &'static str {
        match self {
            Self::OtherName => "for other names",
            Self::Plain => "for the security proxy without TLS",
            Self::Tunnel => "for a tunnel",
            Self::Malformed => "malformed",
            Self::Slow => "too slow",
            Self::Handshake => "without a TLS greeting",
            Self::TooLarge => "too large",
            Self::LongAnswer => "with an answer that is too large",
            Self::Unreachable => "that no server answered",
            Self::NoKey => "when its keys were gone",
            Self::ForgedHeader => "with forged headers, which were taken out",
        }
    }
}

/// Counts refusals, and writes each into a report.
#[derive(Debug, Default)]
pub struct Refusals {
    state: Mutex<RefusalState>,
}

#[derive(Debug, Default)]
struct RefusalState {
    counts: BTreeMap<RefusalReason, u64>,
    report: Option<File>,
    lines: u64,
}

impl Refusals {
    /// Counts, and writes JSON lines into a file.
    pub fn with_report(report: Option<File>) -> Self {
        Self { state: Mutex::new(RefusalState { report, ..RefusalState::default() }) }
    }

    /// Counts one refusal at a port; `name`: the name in the request.
    pub fn count_refusal(&self, reason: RefusalReason, port: u16, name: Option<&str>) {
        let mut state = self.state();
        let count = state.counts.entry(reason).or_default();
        *count = count.saturating_add(1);
        // An agent that floods fills the counts, not the disk.
        if state.lines < LINES_MAX {
            state.lines += 1;
            // The agent's own words: cut, and JSON escapes the rest.
            let name = name.map(|name| name.chars().take(NAME_MAX).collect::<String>());
            state.write_line(
                &json!({ "event": "refused", "reason": reason.as_str(), "port": port, "name": name }),
            );
        }
    }

    /// Returns the counts by reason.
    pub fn counts(&self) -> BTreeMap<RefusalReason, u64> {
        self.state().counts.clone()
    }

    /// Writes the agent's first process, by which a reader of the report can look at its network: a launcher that is killed
    /// writes no last line.
    pub fn begin_report(&self, first: FirstProcess) {
        let FirstProcess { process, since } = first;
        self.state().write_line(&json!({ "event": "began", "process": process, "since": since }));
    }

    /// Writes the last line of the report.
    pub fn end_report(&self, mut end: Value) {
        let mut state = self.state();
        let counts: serde_json::Map<String, Value> = state
            .counts
            .iter()
            .map(|(reason, count)| (reason.as_str().to_owned(), (*count).into()))
            .collect();
        if let Value::Object(fields) = &mut end {
            fields.insert("event".into(), "ended".into());
            fields.insert("refused".into(), counts.into());
        }
        state.write_line(&end);
    }

    /// Returns the counts for people; `None`: nothing was refused.
    pub fn describe_counts(&self, unreached: u64) -> Option<String> {
        let counts = self.counts();
        let mut parts: Vec<String> =
            counts.iter().map(|(reason, count)| format!("{count} {}", reason.describe_requests())).collect();
        if unreached > 0 {
            parts.push(format!("{unreached} attempts at what its network does not have"));
        }
        (!parts.is_empty()).then(|| format!("the agent was refused: {}", parts.join("; ")))
    }

    fn state(&self) -> MutexGuard<'_, RefusalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RefusalState {
    fn write_line(&mut self, line: &Value) {
        // Without a report the counts are enough.
        let Some(report) = &mut self.report else { return };
        if let Err(why) = writeln!(report, "{line}") {
            tracing::warn!(%why, "the report of refusals cannot be written any more; they are counted still");
            self.report = None;
        }
    }
}
