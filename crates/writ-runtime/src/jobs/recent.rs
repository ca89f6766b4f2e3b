//! Runs of jobs that their rows do not name: those of short intervals, and those that ended without their result being written.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use writ_store::jobs::Job;
use writ_types::unit::Timestamp;

/// The longest interval that counts as short: an engine without work would write for such jobs alone, day and night.
const SHORT_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// The last run of a job.
#[derive(Clone, Debug)]
pub(super) struct RecentRun {
    /// The next run that the row named when this one began.
    pub(super) row_next: Option<Timestamp>,
    /// The time of its end.
    pub(super) at: Timestamp,
    /// Its result, for people.
    pub(super) result: String,
    /// The time of the next.
    pub(super) next_run: Option<Timestamp>,
}

/// Last runs by the names of jobs. There are as many as the engine has chores.
#[derive(Debug, Default)]
pub(super) struct RecentRuns(Mutex<BTreeMap<String, JobRuns>>);

/// What is remembered of one job.
#[derive(Debug, Default)]
struct JobRuns {
    /// Result and time that were written last by this engine.
    written: Option<(String, Timestamp)>,
    /// The run that the row does not name.
    unwritten: Option<RecentRun>,
}

impl RecentRuns {
    /// Notes a run. Returns true if it must be written into the row.
    pub(super) fn note_run(&self, name: &str, interval: Duration, run: RecentRun) -> bool {
        let mut jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let job = jobs.entry(name.to_owned()).or_default();
        let is_known = job.written.as_ref().is_some_and(|(result, at)| {
            // After the clock was set back, the row names a run in the future until it is written again.
            *result == run.result && *at <= run.at
        });
        job.unwritten = Some(run);
        interval > SHORT_INTERVAL || !is_known
    }

    /// Forgets the run of a job: its row names it now.
    pub(super) fn forget_run(&self, name: &str) {
        let mut jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(job) = jobs.get_mut(name) {
            job.written = job.unwritten.take().map(|run| (run.result, run.at));
        }
    }

    /// Returns the next run of a row's job. A row that was changed since the last run names it itself.
    pub(super) fn next_run(&self, row: &Job) -> Option<Timestamp> {
        let jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match jobs.get(&row.name).and_then(|job| job.unwritten.as_ref()) {
            Some(run) if run.row_next == row.next_run => run.next_run,
            Some(_) | None => row.next_run,
        }
    }

    /// Sets last and next run in rows that were not written since. Returns the rows that were changed so.
    pub(super) fn complete_rows<'a>(&self, rows: &'a mut [Job]) -> Vec<&'a Job> {
        let mut changed = Vec::new();
        for row in rows {
            let next_run = self.next_run(row);
            let jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(run) = jobs.get(&row.name).and_then(|job| job.unwritten.as_ref()) else { continue };
            row.last_run = Some(run.at);
            row.last_result.clone_from(&run.result);
            row.next_run = next_run;
            changed.push(&*row);
        }
        changed
    }
}
