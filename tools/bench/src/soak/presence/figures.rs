//! The figures of a run, as a document.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::client::Counts;
use super::group::{ENDS, Shared, TurnFigures};
use super::keeper::Lives;
use super::kind::Kind;
use super::verdict::Tools;
use crate::gauge::Gauge;

/// The engine at one moment, with everything at rest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) at: Duration,
    /// Messages sent by then.
    pub(super) turns: usize,
    /// The number of the engine, counted from one.
    pub(super) engine: usize,
    pub(super) gauge: Gauge,
}

/// All figures of a run.
#[derive(Debug)]
pub(super) struct Figures {
    pub(super) seed: u64,
    pub(super) took: Duration,
    pub(super) sockets: usize,
    pub(super) sessions: usize,
    pub(super) frames: usize,
    pub(super) asks: usize,
    pub(super) told: Vec<TurnFigures>,
    pub(super) counts: BTreeMap<&'static str, u64>,
    pub(super) lives: Lives,
    pub(super) tools: Tools,
    pub(super) looks: Vec<Look>,
    /// The look from which growth counts, and the last.
    pub(super) stretch: Option<(Look, Look)>,
}

impl Figures {
    /// Returns the counts of the clients.
    pub(super) fn counts(counts: &Counts) -> BTreeMap<&'static str, u64> {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        BTreeMap::from([
            ("joined", read(&counts.joined)),
            ("vanished", read(&counts.vanished)),
            ("kept", read(&counts.kept)),
            ("deltas", read(&counts.deltas)),
            ("approved", read(&counts.approved)),
            ("denied", read(&counts.denied)),
            ("cancelled", read(&counts.cancelled)),
        ])
    }

    /// Every message that came to its end.
    pub(super) fn told(groups: &[Shared]) -> Vec<TurnFigures> {
        groups.iter().flat_map(|group| group.lock().told()).collect()
    }

    fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or_default()
    }

    fn messages(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| what | messages | {} | answered p50 | p99 |", ENDS.join(" | "))?;
        writeln!(f, "| --- | --- | --- | --- | --- | --- | --- | --- |")?;
        for kind in Kind::ALL {
            let told: Vec<&TurnFigures> = self.told.iter().filter(|told| told.kind == kind).collect();
            let ended = |exit: &str| told.iter().filter(|told| told.exit == exit).count();
            let took: Vec<Duration> = told.iter().map(|told| told.ended).collect();
            let ends = ENDS.map(|exit| ended(exit).to_string()).join(" | ");
            let (name, count) = (kind.name(), told.len());
            writeln!(f, "| {name} | {count} | {ends} | {} | {} |", at(&took, 50), at(&took, 99))?;
        }
        Ok(())
    }

    fn engines(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| minute | messages | engine | PSS | RSS | anonymous | descriptors | threads | children |"
        )?;
        writeln!(f, "| --- | --- | --- | --- | --- | --- | --- | --- | --- |")?;
        for Look { at, turns, engine, gauge } in &self.looks {
            writeln!(
                f,
                "| {:.1} | {turns} | {engine} | {} | {} | {} | {} | {} | {} |",
                at.as_secs_f64() / 60.0,
                megabytes(gauge.proportional),
                megabytes(gauge.resident),
                megabytes(gauge.anonymous),
                gauge.descriptors,
                gauge.threads,
                gauge.children
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, took, sockets, sessions, frames, asks, told, lives, tools, .. } = self;
        writeln!(
            f,
            "{} messages in {:.1} minutes over {sockets} WebSockets in {sessions} sessions, seed {seed}.\n",
            told.len(),
            took.as_secs_f64() / 60.0
        )?;
        self.messages(f)?;
        let acknowledged: Vec<Duration> = told.iter().map(|told| told.acknowledged).collect();
        writeln!(f, "\n- Acknowledged after: p50 {}, p99 {}.", at(&acknowledged, 50), at(&acknowledged, 99))?;
        writeln!(
            f,
            "- Engines killed: {}, of these {} while turns ran and {} while they recovered; stopped in good order: {}; \
             ledger verified: {} times.",
            lives.kills, lives.in_turn, lives.recovering, lives.restarts, lives.verified
        )?;
        writeln!(
            f,
            "- Ready after a start: p50 {}, p99 {}; stopped after: p50 {}.",
            at(&lives.ready, 50),
            at(&lives.ready, 99),
            at(&lives.stopped, 50)
        )?;
        writeln!(
            f,
            "- Frames: {frames} kept, got {} times in all, and {} pieces of answers; clients came {} times and \
             vanished in the middle of an answer {} times.",
            self.count("kept"),
            self.count("deltas"),
            self.count("joined"),
            self.count("vanished")
        )?;
        writeln!(
            f,
            "- Commands: {}; memories: {}; files: {}; {asks} asks, approved {} times, denied {} times; cancelled {} \
             times.\n",
            tools.commands,
            tools.memories,
            tools.files,
            self.count("approved"),
            self.count("denied"),
            self.count("cancelled")
        )?;
        self.engines(f)?;
        if let Some((first, last)) = &self.stretch {
            writeln!(f, "\n{}", Growth::between(first, last))?;
        }
        Ok(())
    }
}

/// The growth of an engine that was left alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Growth {
    turns: usize,
    proportional: i64,
    anonymous: i64,
    descriptors: i64,
    threads: i64,
    children: i64,
}

/// The most that an engine may grow by over ten thousand turns, in bytes (design 5).
const MOST_BYTES: i64 = 10_000_000;
/// The number of turns that the limit is about.
const TURNS: i64 = 10_000;
/// Fewer turns than these are not scaled: what caches hold would count many times.
const LEAST_SCALED: usize = 2_500;
/// Descriptors and threads that may come and go: connections of the store and of model calls, and idle workers.
const MOST_HANDLES: i64 = 16;

impl Growth {
    /// Computes the change from one look to another.
    pub(super) fn between(first: &Look, last: &Look) -> Self {
        let bytes = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let count = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
        let (one, other) = (first.gauge, last.gauge);
        Self {
            turns: last.turns.saturating_sub(first.turns),
            proportional: bytes(other.proportional) - bytes(one.proportional),
            anonymous: bytes(other.anonymous) - bytes(one.anonymous),
            descriptors: count(other.descriptors) - count(one.descriptors),
            threads: count(other.threads) - count(one.threads),
            children: count(other.children) - count(one.children),
        }
    }

    /// Lists the limits that are exceeded, in words.
    pub(super) fn violations(self) -> Vec<String> {
        let turns = i64::try_from(self.turns).unwrap_or(i64::MAX).max(1);
        let allowed = if self.turns < LEAST_SCALED {
            MOST_BYTES
        } else {
            MOST_BYTES.saturating_mul(turns.min(TURNS)) / TURNS
        };
        let limits = [
            ("PSS", self.proportional, allowed),
            ("anonymous memory", self.anonymous, allowed),
            ("descriptors", self.descriptors, MOST_HANDLES),
            ("threads", self.threads, MOST_HANDLES),
            ("children", self.children, MOST_HANDLES),
        ];
        let over = limits.into_iter().filter(|(_, grown, most)| grown > most);
        over.map(|(what, grown, most)| {
            format!("{what} grew by {grown} over {} turns, {most} at most", self.turns)
        })
        .collect()
    }
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { turns, proportional, anonymous, descriptors, threads, children } = self;
        let signed = |bytes: i64| format!("{:+.1} MB", bytes as f64 / 1e6);
        let scaled = |bytes: i64| {
            let all = bytes.saturating_mul(TURNS) / i64::try_from(*turns).unwrap_or(1).max(1);
            if *turns < LEAST_SCALED {
                String::new()
            } else {
                format!(" ({} in ten thousand turns)", signed(all))
            }
        };
        write!(
            f,
            "Undisturbed for {turns} turns, the engine's PSS changed by {}{}, its anonymous memory by {}{}, descriptors by \
             {descriptors:+}, threads by {threads:+}, children by {children:+}.",
            signed(*proportional),
            scaled(*proportional),
            signed(*anonymous),
            scaled(*anonymous)
        )
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// A percentile, as nearest rank.
fn at(durations: &[Duration], percent: usize) -> String {
    let mut sorted = durations.to_vec();
    sorted.sort();
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).map_or_else(|| "none".to_owned(), |found| format!("{} ms", found.as_millis()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(turns: usize, anonymous: u64, threads: usize) -> Look {
        let gauge = Gauge { anonymous, threads, ..Gauge::default() };
        Look { at: Duration::ZERO, turns, engine: 1, gauge }
    }

    #[test]
    fn growth_is_judged_by_how_many_turns_it_took() {
        let grown = |turns, bytes: u64| {
            Growth::between(&look(0, 1_000, 4), &look(turns, 1_000 + bytes, 4)).violations()
        };
        assert_eq!(grown(10_000, 10_000_000), Vec::<String>::new());
        assert_eq!(grown(10_000, 10_000_001).len(), 1);
        assert_eq!(grown(5_000, 5_000_001).len(), 1, "half the turns, half the growth");
        assert_eq!(grown(100, 10_000_000), Vec::<String>::new(), "too few to be scaled");
        assert_eq!(grown(100, 10_000_001).len(), 1);
        let threads = Growth::between(&look(0, 0, 4), &look(1, 0, 21)).violations();
        assert_eq!(threads, ["threads grew by 17 over 1 turns, 16 at most"]);
    }

    #[test]
    fn percentiles_are_nearest_ranks() {
        let durations: Vec<Duration> = (1..=200).rev().map(Duration::from_millis).collect();
        assert_eq!((at(&durations, 50), at(&durations, 99)), ("100 ms".to_owned(), "198 ms".to_owned()));
        assert_eq!(at(&[], 50), "none");
    }
}
