//! Jobs: work that is done again and again, each a row of the store with its next run and its last result.
//!
//! One task ([`Jobs::start`]) sleeps until the next job is due and starts each as a task of its own, at most
//! [`MAX_RUNNING_JOBS`] at once and each job once at a time. The result of a run and the time of the next are
//! written in one commit. The next run is counted from the end of the last, or is the next of the owner's calendar: a run
//! that was missed, while the machine slept, the engine was down or the clock was moved, is made up for once.
//!
//! Of a job with a short interval a result is written when it is another one, and when the engine ends: one without work
//! writes nothing. Between two writes `RecentRuns` has what its row would say; a crash loses that, and the job is due at the
//! next start.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use writ_store::batch::{Batch, Op};
use writ_store::error::{Conflict, StoreError};
use writ_store::jobs::{Job, JobOp, MAX_JOBS};
use writ_store::reads::JobReads as _;
use writ_types::calendar::Recurrence;
use writ_types::error::{Exit, Report, ToReport};
use writ_types::unit::Timestamp;
use writ_types::zone::TimeZone;

use crate::clock::{Clock, format_schedule};
use crate::error::EngineError;
use crate::journal::Journal;
use crate::outbox::MAX_CHANNELS;

use recent::{RecentRun, RecentRuns};

mod due;
mod recent;

#[cfg(test)]
mod tests;

/// The most jobs that run at once: more than the engine has chores, so that one that hangs holds up no other, and few
/// enough that those which are due together after a long sleep do not crowd out the turns.
const MAX_RUNNING_JOBS: usize = 12 + MAX_CHANNELS;
/// The longest time that one run may take.
const MAX_RUN_TIME: Duration = Duration::from_secs(10 * 60);
/// The longest wait before the table is looked at again, in case the clock is set while the engine sleeps.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// The wait before a job goes on that had more to do than one run does.
const CONTINUE_AFTER: Duration = Duration::from_secs(30);

/// The amount of work that a successful run has left over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// None: the next run comes after the interval.
    Complete,
    /// Some: the next run comes soon.
    Partial,
}

/// The future of one run.
pub(crate) type JobRun = Pin<Box<dyn Future<Output = Result<Progress, EngineError>> + Send>>;

/// The times at which a job runs.
#[derive(Clone, Debug)]
pub(crate) enum JobTimes {
    /// So long after the end of the run before.
    Every(Duration),
    /// At times of the owner's calendar.
    Calendar(Recurrence, TimeZone),
}

impl JobTimes {
    /// Returns the longest time between two runs.
    fn interval(&self) -> Duration {
        match self {
            Self::Every(interval) => *interval,
            Self::Calendar(recurrence, _) => recurrence.longest_gap(),
        }
    }

    /// Returns the time of the run after one that ends now; `None`: there is none.
    fn next_after(&self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Every(interval) => Some(now.plus_duration(*interval)),
            Self::Calendar(recurrence, zone) => recurrence.next_after(now, zone),
        }
    }

    /// Describes it as the row of a job does.
    fn describe(&self) -> String {
        match self {
            Self::Every(interval) => format_schedule(*interval),
            Self::Calendar(recurrence, zone) => format!("{recurrence} ({zone})"),
        }
    }
}

/// A job that the engine brings along: its name, its times, and the function that does it.
pub(crate) struct Chore {
    /// The name of its row.
    pub(crate) name: String,
    /// The times at which it runs.
    pub(crate) pace: JobTimes,
    /// Counts the calls for a run at once, such as one for each new message; `None`: it runs by its schedule alone.
    pub(crate) calls: Option<Arc<AtomicU64>>,
    /// Begins a run.
    pub(crate) run: Box<dyn Fn() -> JobRun + Send + Sync>,
}

impl Chore {
    fn call_count(&self) -> u64 {
        self.calls.as_ref().map_or(0, |calls| calls.load(Ordering::Acquire))
    }
}

/// The reason that a run has failed.
#[derive(Debug, thiserror::Error)]
enum JobError {
    #[error(transparent)]
    Work(#[from] EngineError),
    #[error("the job was stopped: it took longer than {} minutes", MAX_RUN_TIME.as_secs() / 60)]
    TimedOut,
    #[error("the job has failed by a bug")]
    Panicked,
}

impl ToReport for JobError {
    fn report(&self) -> Report {
        match self {
            Self::Work(error) => error.report(),
            Self::TimedOut => Report::new(Exit::Blocked, "job.timed_out", self.to_string())
                .with_hint("it runs again after its interval; the log may name the reason"),
            Self::Panicked => {
                Report::new(Exit::Bug, "job.panicked", self.to_string()).with_hint(Exit::Bug.advice())
            }
        }
    }
}

/// The jobs of an engine.
#[derive(Debug)]
pub(crate) struct Jobs {
    journal: Arc<Journal>,
    /// Wakes the task: a job was scheduled.
    wake: Arc<Notify>,
    tasks: TaskTracker,
    recent: RecentRuns,
}

impl Jobs {
    pub(crate) fn new(journal: Arc<Journal>) -> Self {
        let wake = Arc::clone(&journal.outbox.wake_jobs);
        Self { journal, wake, tasks: TaskTracker::new(), recent: RecentRuns::default() }
    }

    /// Returns the rows of all jobs, by name.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub(crate) async fn list_jobs(&self) -> Result<Vec<Job>, EngineError> {
        let mut rows = self.journal.store.jobs(MAX_JOBS).await?;
        self.recent.complete_rows(&mut rows);
        Ok(rows)
    }

    /// Adds the rows of chores that have none, and changes those with another schedule. The next run of all others stays:
    /// one that fell due while no engine ran is due now.
    ///
    /// # Errors
    ///
    /// If the store cannot be read or written.
    pub(crate) async fn schedule_chores(&self, chores: &[Chore]) -> Result<(), EngineError> {
        let rows = self.list_jobs().await?;
        let ops = due::schedule_changes(&rows, chores, self.journal.clock.now());
        if !ops.is_empty() {
            let ops = ops.into_iter().map(Op::Jobs).collect();
            self.journal.store.commit(Batch::relaxed(ops)).await?;
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Brings the next run of a job forward, because more is to be done than was. A job that does not run stays so.
    ///
    /// # Errors
    ///
    /// If the store cannot be read or written.
    pub(crate) async fn continue_soon(&self, name: &str) -> Result<(), EngineError> {
        let soon = self.journal.clock.now().plus_duration(CONTINUE_AFTER);
        let Some(row) = self.journal.store.job(name).await? else { return Ok(()) };
        let Some(next) = self.recent.next_run(&row) else { return Ok(()) };
        let Job { name, schedule, .. } = row;
        let change = JobOp::Schedule { name, schedule, next_run: Some(next.min(soon)) };
        self.journal.store.commit(Batch::relaxed(vec![Op::Jobs(change)])).await?;
        self.wake.notify_one();
        Ok(())
    }

    /// Starts the task that runs the chores until `draining`. Runs that are under way then may end until `stop_now`.
    pub(crate) fn start(
        self: &Arc<Self>,
        chores: Vec<Chore>,
        (draining, stop_now): (CancellationToken, CancellationToken),
    ) {
        let jobs = Arc::clone(self);
        self.tasks.spawn(async move {
            let mut runner = Runner::new(&jobs, chores);
            runner.run_until(&draining).await;
            runner.finish_runs(&stop_now).await;
        });
        self.tasks.close();
    }

    /// Returns when the task has ended.
    pub(crate) async fn ended(&self) {
        self.tasks.wait().await;
    }
}

/// A run that is under way.
#[derive(Clone, Debug)]
struct RunningJob {
    name: String,
    pace: JobTimes,
    /// The next run that its row names, as far as it is known here.
    row_next: Option<Timestamp>,
    /// The row was seen to name another one: another task has scheduled the job while it ran, and the row stands.
    scheduled: bool,
}

/// State of the task that runs jobs.
struct Runner<'a> {
    journal: &'a Arc<Journal>,
    wake: &'a Notify,
    recent: &'a RecentRuns,
    chores: Vec<Chore>,
    runs: JoinSet<Result<Progress, JobError>>,
    running: BTreeMap<Id, RunningJob>,
    /// The calls that there were when each job was started last. A call that comes while it runs is answered by another run,
    /// though the end of this one writes a later time into the row.
    answered: BTreeMap<String, u64>,
    /// Results that are not written yet, the last of each job. Their jobs go on meanwhile: a full disk must not stop the
    /// copies of the ledger's heads, which lie elsewhere.
    unwritten: Vec<JobOp>,
    /// Names of rows that no chore has, and that were reported.
    reported: BTreeSet<String>,
}

impl<'a> Runner<'a> {
    fn new(jobs: &'a Jobs, chores: Vec<Chore>) -> Self {
        Self {
            journal: &jobs.journal,
            wake: &jobs.wake,
            recent: &jobs.recent,
            chores,
            runs: JoinSet::new(),
            running: BTreeMap::new(),
            answered: BTreeMap::new(),
            unwritten: Vec::new(),
            reported: BTreeSet::new(),
        }
    }

    async fn run_until(&mut self, draining: &CancellationToken) {
        loop {
            // A job that is scheduled from here on wakes the wait below.
            let wake = self.wake;
            let mut woken = pin!(wake.notified());
            woken.as_mut().enable();
            let now = self.journal.clock.now();
            let wait = self.start_due(now).await;
            tokio::select! {
                () = draining.cancelled() => return,
                () = woken => {}
                () = self.journal.clock.wait(now, wait) => {}
                Some(ended) = self.runs.join_next_with_id() => self.end_run(ended),
            }
            self.write_results().await;
        }
    }

    /// Starts the jobs that are due, as far as there is room. Returns the time until the next look.
    async fn start_due(&mut self, now: Timestamp) -> Duration {
        let rows = match self.journal.store.jobs(MAX_JOBS).await {
            Ok(rows) => rows,
            Err(error) => {
                tracing::error!(%error, "the jobs cannot be read");
                return LONGEST_WAIT;
            }
        };
        let next_of = |row: &Job| self.recent.next_run(row);
        let busy: BTreeSet<&str> = self.running.values().map(|run| run.name.as_str()).collect();
        let is_called = |chore: &&Chore| {
            chore.call_count() != self.answered.get(&chore.name).copied().unwrap_or_default()
        };
        let called = self.chores.iter().filter(is_called).map(|chore| chore.name.as_str()).collect();
        let look = due::look_at((&rows, next_of), &self.chores, (&busy, &called), now);
        for name in look.unknown {
            if self.reported.insert(name.to_owned()) {
                tracing::warn!(
                    job = name,
                    "this version of Writ does not know a job of the store; it is left alone"
                );
            }
        }
        let room = MAX_RUNNING_JOBS.saturating_sub(self.running.len());
        // A run that ends makes room for the rest, which is looked at then.
        for (chore, row) in look.due.into_iter().take(room) {
            // Counted before the run reads anything: what is called for from here on is not in it for certain.
            self.answered.insert(chore.name.clone(), chore.call_count());
            let (run, clock) = ((chore.run)(), Arc::clone(&self.journal.clock));
            let task = self.runs.spawn(run_in_time(run, clock));
            let (name, pace) = (chore.name.clone(), chore.pace.clone());
            let run = RunningJob { name, pace, row_next: row.next_run, scheduled: false };
            self.running.insert(task.id(), run);
        }
        look.wait
    }

    /// Takes the results of all runs that have ended, so that one commit writes them.
    fn end_run(&mut self, ended: Result<(Id, Result<Progress, JobError>), JoinError>) {
        self.note_result(ended);
        while let Some(ended) = self.runs.try_join_next_with_id() {
            self.note_result(ended);
        }
    }

    fn note_result(&mut self, ended: Result<(Id, Result<Progress, JobError>), JoinError>) {
        let (id, result) = match ended {
            Ok(ended) => ended,
            // Its row stays due, for the next start.
            Err(error) if error.is_cancelled() => {
                self.running.remove(&error.id());
                return;
            }
            Err(error) => (error.id(), Err(JobError::Panicked)),
        };
        let Some(RunningJob { name, pace, row_next, .. }) = self.running.remove(&id) else { return };
        let goes_on = matches!(result, Ok(Progress::Partial));
        let result = match result {
            Ok(Progress::Complete) => "ok".to_owned(),
            Ok(Progress::Partial) => "ok; there is more to do".to_owned(),
            Err(error) => {
                let report = self.journal.report(&error);
                tracing::error!(job = name, code = report.code, inside = report.inside, "a job has failed");
                format!("{}: {}", report.code, report.outside)
            }
        };
        let at = self.journal.clock.now();
        let next_run = pace
            .next_after(at)
            .map(|next| if goes_on { next.min(at.plus_duration(CONTINUE_AFTER)) } else { next });
        let run = RecentRun { row_next, at, result: result.clone(), next_run };
        // A result that waits for its commit is replaced in any case: written later, it would be taken for the last one.
        let is_waiting = self.unwritten.iter().any(|op| job_of(op) == name);
        if self.recent.note_run(&name, pace.interval(), run) || is_waiting {
            self.unwritten.retain(|op| job_of(op) != name);
            self.unwritten.push(JobOp::Finish { name, at, result, next_run });
        }
    }

    /// Writes the results of ended runs. What cannot be written is tried again with the next look.
    async fn write_results(&mut self) {
        while !self.unwritten.is_empty() {
            let ops = self.unwritten.iter().cloned().map(Op::Jobs).collect();
            match self.journal.store.commit(Batch::relaxed(ops)).await {
                Ok(_) => {
                    for op in std::mem::take(&mut self.unwritten) {
                        self.recent.forget_run(job_of(&op));
                        self.follow_row(&op);
                    }
                }
                // A job that was removed while it ran has no place for its result.
                Err(StoreError::Conflict(Conflict::Missing { id, .. }))
                    if self.unwritten.iter().any(|op| job_of(op) == id) =>
                {
                    self.unwritten.retain(|op| job_of(op) != id);
                }
                Err(error) => {
                    tracing::error!(%error, "the results of jobs could not be written");
                    return;
                }
            }
        }
    }

    /// Notes the next run that a row names by the result of the run before the one under way.
    fn follow_row(&mut self, written: &JobOp) {
        let JobOp::Finish { name, next_run, .. } = written else { return };
        for run in self.running.values_mut().filter(|run| run.name == *name && !run.scheduled) {
            run.row_next = *next_run;
        }
    }

    /// Takes the runs that are in no row among those that are to be written.
    async fn take_recent(&mut self) {
        let mut rows = match self.journal.store.jobs(MAX_JOBS).await {
            Ok(rows) => rows,
            Err(error) => {
                tracing::warn!(%error, "the last runs of jobs are not written");
                return;
            }
        };
        for run in self.running.values_mut() {
            let is_other = |row: &Job| row.name == run.name && row.next_run != run.row_next;
            run.scheduled |= rows.iter().any(is_other);
        }
        for row in self.recent.complete_rows(&mut rows) {
            let Job { name, next_run, last_run: Some(at), last_result, .. } = row.clone() else { continue };
            self.unwritten.retain(|op| job_of(op) != name);
            self.unwritten.push(JobOp::Finish { name, at, result: last_result, next_run });
        }
    }

    /// Waits for the runs that are under way, until `stop_now`, and brings all rows up to date.
    async fn finish_runs(&mut self, stop_now: &CancellationToken) {
        loop {
            self.take_recent().await;
            self.write_results().await;
            tokio::select! {
                biased;
                ended = self.runs.join_next_with_id() => match ended {
                    Some(ended) => self.end_run(ended),
                    None => return,
                },
                () = stop_now.cancelled() => {
                    self.runs.shutdown().await;
                    return;
                }
            }
        }
    }
}

fn job_of(op: &JobOp) -> &str {
    match op {
        JobOp::Schedule { name, .. } | JobOp::Finish { name, .. } | JobOp::Remove { name } => name,
    }
}

/// Awaits a run, at most [`MAX_RUN_TIME`] by this clock.
async fn run_in_time(run: JobRun, clock: Arc<dyn Clock>) -> Result<Progress, JobError> {
    let limit = async {
        let began = clock.elapsed();
        loop {
            let now = clock.now();
            let took = clock.elapsed().saturating_sub(began);
            if took >= MAX_RUN_TIME {
                return;
            }
            clock.wait(now, MAX_RUN_TIME.saturating_sub(took)).await;
        }
    };
    tokio::select! {
        biased;
        done = run => Ok(done?),
        () = limit => Err(JobError::TimedOut),
    }
}
