//! Decides which jobs are due. Pure: rows, chores and the time are arguments.

use std::collections::BTreeSet;
use std::time::Duration;

use writ_store::jobs::{Job, JobOp};
use writ_types::unit::Timestamp;

use super::{Chore, JobTimes, LONGEST_WAIT};
use crate::work_calls::GOAL_PREFIX;

/// The result of a look at the table of jobs.
pub(super) struct DueJobs<'a> {
    /// The chores that are due and not busy, each with its row, the one that waits longest first.
    pub(super) due: Vec<(&'a Chore, &'a Job)>,
    /// The time until the next of the others is due, at most [`LONGEST_WAIT`].
    pub(super) wait: Duration,
    /// The names of rows that no chore has.
    pub(super) unknown: Vec<&'a str>,
}

/// Compares the rows with the time. `next_of` says when a row's job runs next; `busy` names the jobs that must not be
/// started, `called` those that are to run at once.
pub(super) fn look_at<'a>(
    (rows, next_of): (&'a [Job], impl Fn(&Job) -> Option<Timestamp>),
    chores: &'a [Chore],
    (busy, called): (&BTreeSet<&str>, &BTreeSet<&str>),
    now: Timestamp,
) -> DueJobs<'a> {
    let (mut due, mut unknown, mut wait) = (Vec::new(), Vec::new(), LONGEST_WAIT);
    for row in rows {
        let Some(chore) = chores.iter().find(|chore| chore.name == row.name) else {
            // Goals have rows of their own, and are driven as work items.
            if row.name.starts_with(GOAL_PREFIX) {
                continue;
            }
            unknown.push(row.name.as_str());
            continue;
        };
        if busy.contains(chore.name.as_str()) {
            continue;
        }
        let Some(next) = next_of(row) else { continue };
        if called.contains(chore.name.as_str()) || is_due(next, chore.pace.interval(), now) {
            due.push((next.min(now), (chore, row)));
        } else {
            wait = wait.min(next.time_since(now));
        }
    }
    due.sort_by_key(|(next, (chore, _))| (*next, chore.name.as_str()));
    DueJobs { due: due.into_iter().map(|(_, job)| job).collect(), wait, unknown }
}

/// Returns true if a run is due. One that is further away than the interval is, too: the clock was ahead when that time
/// was written, and the job would otherwise rest until the clock is there again.
fn is_due(next: Timestamp, interval: Duration, now: Timestamp) -> bool {
    next <= now || next > now.plus_duration(interval)
}

/// Returns the changes with which the rows of chores get their schedules. The first run of a new chore comes after its
/// interval: at its start, the engine has other work.
pub(super) fn schedule_changes(rows: &[Job], chores: &[Chore], now: Timestamp) -> Vec<JobOp> {
    let change = |chore: &Chore| {
        let schedule = chore.pace.describe();
        let first = chore.pace.next_after(now);
        let next_run = match rows.iter().find(|row| row.name == chore.name) {
            Some(row) if row.schedule == schedule => return None,
            // A row without a next run does not run, also under a new schedule.
            Some(row) => match (&chore.pace, row.next_run) {
                (JobTimes::Every(_), None) => None,
                (JobTimes::Every(_), Some(next)) => first.map(|first| next.min(first)),
                // The time of the old calendar is not one of the new; one that was off begins.
                (JobTimes::Calendar(..), _) => first,
            },
            None => first,
        };
        Some(JobOp::Schedule { name: chore.name.clone(), schedule, next_run })
    };
    chores.iter().filter_map(change).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::format_schedule;
    use crate::jobs::{JobRun, Progress};

    const MINUTE: Duration = Duration::from_secs(60);
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_millis(1_000_000_000_000 + minute * 60_000)
    }

    fn chore(name: &'static str, interval: Duration) -> Chore {
        let run = || -> JobRun { Box::pin(std::future::ready(Ok(Progress::Complete))) };
        Chore { name: name.to_owned(), pace: JobTimes::Every(interval), calls: None, run: Box::new(run) }
    }

    fn row(name: &str, schedule: &str, next_run: Option<Timestamp>) -> Job {
        let (name, schedule) = (name.to_owned(), schedule.to_owned());
        Job { name, schedule, next_run, last_run: None, last_result: String::new() }
    }

    fn names<'a>(look: &DueJobs<'a>) -> Vec<&'a str> {
        look.due.iter().map(|(chore, _)| chore.name.as_str()).collect()
    }

    fn written(row: &Job) -> Option<Timestamp> {
        row.next_run
    }

    #[test]
    fn due_jobs_come_in_the_order_of_their_wait_and_the_rest_says_how_long_to_sleep() {
        let chores = ["a", "b", "c", "d", "e"].map(|name| chore(name, 10 * MINUTE));
        let rows = [
            row("a", "", Some(at(0))),
            row("b", "", Some(at(-5))),
            row("c", "", Some(at(1))),
            row("d", "", None),
            row("e", "", Some(at(-9))),
            row("x", "", Some(at(-9))),
        ];
        let look = look_at((&rows, written), &chores, (&BTreeSet::from(["e"]), &BTreeSet::new()), at(0));
        assert_eq!((names(&look), look.wait, look.unknown), (vec!["b", "a"], LONGEST_WAIT, vec!["x"]));
        let look = look_at(
            (&rows[2..3], written),
            &chores,
            (&BTreeSet::new(), &BTreeSet::new()),
            at(1).minus_duration(Duration::from_secs(7)),
        );
        assert_eq!((names(&look), look.wait), (vec![], Duration::from_secs(7)));
    }

    /// The row was written by a clock that was ahead.
    #[test]
    fn a_run_further_away_than_its_interval_is_due() {
        let chores = [chore("daily", DAY)];
        for (days, is_due) in [(0, true), (1, false), (2, true), (4_000, true), (-4_000, true)] {
            let rows = [row("daily", "", Some(at(days * 24 * 60)))];
            let look = look_at((&rows, written), &chores, (&BTreeSet::new(), &BTreeSet::new()), at(0));
            assert_eq!(!names(&look).is_empty(), is_due, "{days}");
        }
    }

    #[test]
    fn new_chores_and_other_schedules_change_rows_and_nothing_else_does() {
        let chores = [
            chore("changed", MINUTE),
            chore("new", 2 * 60 * MINUTE),
            chore("paused", MINUTE),
            chore("same", Duration::from_secs(30)),
        ];
        let rows = [
            row("changed", "every 1 h", Some(at(59))),
            row("paused", "every 1 h", None),
            row("same", "every 30 s", Some(at(-700))),
            row("unknown", "every 30 s", Some(at(-700))),
        ];
        let schedule = |name: &str, schedule: &str, next_run| JobOp::Schedule {
            name: name.to_owned(),
            schedule: schedule.to_owned(),
            next_run,
        };
        assert_eq!(
            schedule_changes(&rows, &chores, at(0)),
            [
                schedule("changed", "every 1 min", Some(at(1))),
                schedule("new", "every 2 h", Some(at(120))),
                schedule("paused", "every 1 min", None),
            ]
        );
        assert_eq!(format_schedule(Duration::from_millis(5)), "every 5 ms");
    }
}
