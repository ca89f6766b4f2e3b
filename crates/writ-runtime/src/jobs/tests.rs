//! The runner over a real store and a clock that the test moves.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use ed25519_dalek::SigningKey;
use tokio::sync::{Notify, mpsc, oneshot};
use writ_inspect::redact::Redactor;
use writ_policy::budget::BudgetConfig;
use writ_store::config::StoreConfig;
use writ_store::store::Store;

use super::*;
use crate::clock::ClockWait;

const BEGIN: i64 = 1_000_000_000_000;
const MINUTE: Duration = Duration::from_secs(60);
/// The longest wait for the end of a run: one that does not come fails the test.
const PATIENCE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A clock that stands still until it is moved, in milliseconds.
#[derive(Debug, Default)]
struct Hand {
    now: AtomicI64,
    gone: AtomicU64,
    moved: Notify,
}

impl Hand {
    fn advance(&self, by: Duration) {
        self.gone.fetch_add(u64::try_from(by.as_millis()).expect("short"), Ordering::SeqCst);
        self.shift(i64::try_from(by.as_millis()).expect("short"));
    }

    /// Sets the clock; no time goes by.
    fn shift(&self, millis: i64) {
        self.now.fetch_add(millis, Ordering::SeqCst);
        self.moved.notify_waiters();
    }
}

impl Clock for Hand {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(BEGIN + self.now.load(Ordering::SeqCst))
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.gone.load(Ordering::SeqCst))
    }

    fn wait(&self, now: Timestamp, _: Duration) -> ClockWait<'_> {
        Box::pin(async move {
            let mut moved = pin!(self.moved.notified());
            moved.as_mut().enable();
            if self.now() == now {
                moved.await;
            }
        })
    }
}

/// A run of a chore that waits for its result.
struct Begun {
    name: &'static str,
    at: Timestamp,
    result: oneshot::Sender<Result<Progress, EngineError>>,
}

impl Begun {
    fn end(self, result: Result<Progress, EngineError>) {
        assert!(self.result.send(result).is_ok(), "the run waits");
    }
}

struct Bench {
    clock: Arc<Hand>,
    store: Store,
    jobs: Arc<Jobs>,
    begun: mpsc::Receiver<Begun>,
    begins: mpsc::Sender<Begun>,
    draining: CancellationToken,
    stop_now: CancellationToken,
    _folder: tempfile::TempDir,
}

impl Bench {
    async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let signer = Arc::new(SigningKey::from_bytes(&[2; 32]));
        let store = Store::open(&StoreConfig::new(folder.path().join("writ.db")), signer).expect("opens");
        let clock = Arc::new(Hand::default());
        let redactor = Redactor::default();
        let source: Arc<dyn Clock> = Arc::<Hand>::clone(&clock);
        let journal =
            Journal::new(store.clone(), source, redactor, BudgetConfig::default()).await.expect("reads");
        let (begins, begun) = mpsc::channel(32);
        Self {
            clock,
            store,
            jobs: Arc::new(Jobs::new(Arc::new(journal))),
            begun,
            begins,
            draining: CancellationToken::new(),
            stop_now: CancellationToken::new(),
            _folder: folder,
        }
    }

    /// A chore whose runs are ended by the test.
    fn chore(&self, name: &'static str, interval: Duration) -> Chore {
        let (begins, clock) = (self.begins.clone(), Arc::clone(&self.clock));
        let run = move || -> JobRun {
            let (result, ended) = oneshot::channel();
            begins.try_send(Begun { name, at: clock.now(), result }).expect("the test listens");
            Box::pin(async move {
                match ended.await {
                    Ok(result) => result,
                    // The test has dropped it: it never ends.
                    Err(_) => std::future::pending().await,
                }
            })
        };
        Chore { name: name.to_owned(), pace: JobTimes::Every(interval), calls: None, run: Box::new(run) }
    }

    /// Starts the runner with these chores, each with its interval.
    async fn start(&self, chores: &[(&'static str, Duration)]) {
        let chores: Vec<Chore> = chores.iter().map(|(name, interval)| self.chore(name, *interval)).collect();
        self.jobs.schedule_chores(&chores).await.expect("scheduled");
        self.jobs.start(chores, (self.draining.clone(), self.stop_now.clone()));
    }

    async fn next(&mut self) -> Begun {
        self.begun.recv().await.expect("a run begins")
    }

    async fn row(&self, name: &str) -> Job {
        self.store.job(name).await.expect("reads").expect("is there")
    }

    /// Waits until a run of a job has ended now.
    async fn until_ended(&self, name: &str) -> Job {
        let ended = async {
            loop {
                let listed = self.jobs.list_jobs().await.expect("listed");
                let row = listed.into_iter().find(|job| job.name == name).expect("is there");
                if row.last_run == Some(self.clock.now()) {
                    return row;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, ended).await.unwrap_or_else(|_| panic!("'{name}' does not end"))
    }

    async fn end(self) {
        self.draining.cancel();
        self.stop_now.cancel();
        self.jobs.ended().await;
    }
}

#[tokio::test]
async fn a_job_runs_after_its_interval_and_its_row_names_result_and_next_run() {
    let mut bench = Bench::new().await;
    bench.start(&[("a", MINUTE)]).await;
    let new = bench.row("a").await;
    let begin = bench.clock.now();
    assert_eq!(
        (new.next_run, new.last_run, new.last_result.as_str()),
        (Some(begin.plus_duration(MINUTE)), None, "")
    );
    bench.clock.advance(MINUTE);
    let run = bench.next().await;
    assert_eq!(run.at, begin.plus_duration(MINUTE));
    // It takes a while: the next run is counted from its end.
    bench.clock.advance(3 * MINUTE);
    run.end(Ok(Progress::Complete));
    let row = bench.until_ended("a").await;
    assert_eq!(row.last_result, "ok");
    assert_eq!(row.next_run, Some(begin.plus_duration(5 * MINUTE)));
    bench.clock.advance(MINUTE);
    bench.next().await.end(Ok(Progress::Partial));
    let row = bench.until_ended("a").await;
    assert_eq!(row.last_result, "ok; there is more to do");
    assert_eq!(row.next_run, Some(begin.plus_duration(5 * MINUTE + CONTINUE_AFTER)));
    bench.end().await;
}

#[tokio::test]
async fn a_job_that_fails_panics_or_hangs_holds_up_no_other_and_runs_once_at_a_time() {
    let mut bench = Bench::new().await;
    let mut chores = vec![bench.chore("hangs", MINUTE), bench.chore("works", MINUTE)];
    let panics = || -> JobRun { Box::pin(async { panic!("a bug") }) };
    chores.push(Chore {
        name: "panics".to_owned(),
        pace: JobTimes::Every(MINUTE),
        calls: None,
        run: Box::new(panics),
    });
    bench.jobs.schedule_chores(&chores).await.expect("scheduled");
    bench.jobs.start(chores, (bench.draining.clone(), bench.stop_now.clone()));
    bench.clock.advance(MINUTE);
    let (hangs, works) = (bench.next().await, bench.next().await);
    assert_eq!((hangs.name, works.name), ("hangs", "works"));
    works.end(Err(EngineError::NoModel));
    let row = bench.until_ended("works").await;
    assert_eq!(row.last_result, "model.none: no model is configured");
    assert_eq!(row.next_run, row.last_run.map(|at| at.plus_duration(MINUTE)), "no sooner after a failure");
    assert_eq!(bench.until_ended("panics").await.last_result, "job.panicked: the job has failed by a bug");
    for _ in 0..3 {
        bench.clock.advance(MINUTE);
        let again = bench.next().await;
        assert_eq!(again.name, "works", "the other still runs");
        again.end(Ok(Progress::Complete));
        bench.until_ended("works").await;
    }
    bench.clock.advance(MAX_RUN_TIME);
    bench.next().await.end(Ok(Progress::Complete));
    let row = bench.until_ended("hangs").await;
    assert_eq!(row.last_result, "job.timed_out: the job was stopped: it took longer than 10 minutes");
    assert!(hangs.result.is_closed(), "its run was dropped");
    bench.end().await;
}

/// The machine slept, or the clock was set.
#[tokio::test]
async fn a_clock_that_jumps_by_days_runs_a_missed_job_once() {
    let mut bench = Bench::new().await;
    bench.start(&[("a", MINUTE)]).await;
    let days = i64::try_from(9 * DAY.as_millis()).expect("short");
    for by in [days, -days, -days, 2 * days] {
        bench.clock.shift(by);
        let run = bench.next().await;
        assert_eq!(run.at, bench.clock.now());
        run.end(Ok(Progress::Complete));
        let row = bench.until_ended("a").await;
        assert_eq!(row.next_run, Some(bench.clock.now().plus_duration(MINUTE)));
    }
    // Had anything been made up for more than once, it would have come before this one.
    bench.clock.advance(MINUTE);
    assert_eq!(bench.next().await.at, bench.clock.now());
    bench.end().await;
}

/// As with a message that comes while its channel is served: what the run has read before is without it.
#[tokio::test]
async fn a_call_while_a_job_runs_has_it_run_again_without_waiting() {
    let mut bench = Bench::new().await;
    let calls = Arc::new(AtomicU64::new(0));
    let chore = Chore { calls: Some(Arc::clone(&calls)), ..bench.chore("a", MINUTE) };
    bench.jobs.schedule_chores(std::slice::from_ref(&chore)).await.expect("scheduled");
    bench.jobs.start(vec![chore], (bench.draining.clone(), bench.stop_now.clone()));
    let call = || {
        calls.fetch_add(1, Ordering::SeqCst);
        bench.jobs.wake.notify_one();
    };
    call();
    let run = bench.begun.recv().await.expect("it was called");
    call();
    run.end(Ok(Progress::Complete));
    let run = bench.begun.recv().await.expect("it was called while it ran");
    run.end(Ok(Progress::Complete));
    let row = bench.until_ended("a").await;
    assert_eq!(row.next_run, Some(bench.clock.now().plus_duration(MINUTE)), "no call is left");
    bench.end().await;
}

#[tokio::test]
async fn rows_of_unknown_jobs_are_left_alone_and_reported_once() {
    let mut bench = Bench::new().await;
    let soon = bench.clock.now();
    let unknown = JobOp::Schedule { name: "later".into(), schedule: "daily".into(), next_run: Some(soon) };
    bench.store.commit(Batch::relaxed(vec![Op::Jobs(unknown)])).await.expect("written");
    let before = bench.store.job("later").await.expect("reads");
    bench.start(&[("a", MINUTE)]).await;
    for _ in 0..3 {
        bench.clock.advance(MINUTE);
        bench.next().await.end(Ok(Progress::Complete));
        bench.until_ended("a").await;
    }
    assert_eq!(bench.store.job("later").await.expect("reads"), before);
    // The same look again, of a runner of its own, says what it reports.
    let mut runner = Runner::new(&bench.jobs, vec![bench.chore("a", MINUTE)]);
    for _ in 0..2 {
        runner.start_due(soon).await;
        assert_eq!(runner.reported, BTreeSet::from(["later".to_owned()]));
    }
    bench.end().await;
}

#[tokio::test]
async fn draining_starts_no_run_and_waits_for_those_under_way() {
    let mut bench = Bench::new().await;
    bench.start(&[("a", MINUTE), ("b", MINUTE)]).await;
    bench.clock.advance(MINUTE);
    let (a, b) = (bench.next().await, bench.next().await);
    bench.draining.cancel();
    a.end(Ok(Progress::Complete));
    bench.until_ended("a").await;
    // The other is stopped: its row stays due for the next start.
    bench.stop_now.cancel();
    bench.jobs.ended().await;
    assert!(b.result.is_closed());
    let row = bench.row("b").await;
    assert_eq!((row.next_run, row.last_run), (Some(bench.clock.now()), None));
}

#[tokio::test]
async fn what_fell_due_while_no_engine_ran_is_made_up_for_once() {
    let mut bench = Bench::new().await;
    bench.start(&[("a", MINUTE)]).await;
    bench.draining.cancel();
    bench.jobs.ended().await;
    bench.clock.advance(9 * DAY);
    bench.draining = CancellationToken::new();
    bench.jobs = Arc::new(Jobs::new(Arc::clone(&bench.jobs.journal)));
    bench.start(&[("a", MINUTE)]).await;
    bench.next().await.end(Ok(Progress::Complete));
    bench.until_ended("a").await;
    bench.clock.advance(MINUTE);
    assert_eq!(bench.next().await.at, bench.clock.now());
    bench.end().await;
}

#[tokio::test]
async fn a_job_that_is_brought_forward_or_removed_is_noticed() {
    let mut bench = Bench::new().await;
    bench.start(&[("a", DAY)]).await;
    bench.clock.advance(DAY);
    bench.next().await.end(Ok(Progress::Complete));
    bench.until_ended("a").await;
    bench.jobs.continue_soon("a").await.expect("written");
    bench.jobs.continue_soon("missing").await.expect("nothing to do");
    bench.clock.advance(CONTINUE_AFTER);
    let run = bench.next().await;
    let gone = JobOp::Remove { name: "a".to_owned() };
    bench.store.commit(Batch::relaxed(vec![Op::Jobs(gone)])).await.expect("written");
    run.end(Ok(Progress::Complete));
    bench.draining.cancel();
    bench.jobs.ended().await;
    assert_eq!(bench.store.job("a").await.expect("reads"), None);
}

#[tokio::test]
async fn of_many_jobs_that_are_due_together_a_few_run_at_once_and_all_get_their_turn() {
    const NAMES: [&str; MAX_RUNNING_JOBS + 2] = [
        "00", "01", "02", "03", "04", "05", "06", "07", "08", "09", "10", "11", "12", "13", "14", "15", "16",
        "17", "18", "19", "20", "21", "22", "23", "24", "25", "26", "27", "28", "29",
    ];
    let mut bench = Bench::new().await;
    bench.start(&NAMES.map(|name| (name, MINUTE))).await;
    bench.clock.advance(9 * DAY);
    let mut begun = Vec::new();
    for name in &NAMES[..MAX_RUNNING_JOBS] {
        begun.push(bench.next().await);
        assert_eq!(begun.last().map(|run| run.name), Some(*name));
    }
    assert!(bench.begun.try_recv().is_err());
    for name in &NAMES[MAX_RUNNING_JOBS..] {
        begun.remove(0).end(Ok(Progress::Complete));
        begun.push(bench.next().await);
        assert_eq!(begun.last().map(|run| run.name), Some(*name));
    }
    bench.end().await;
}

/// A job that never ran again would stop the copies of the ledger's heads; one that ran without a pause would use up the machine.
#[tokio::test]
async fn a_job_whose_result_cannot_be_written_runs_again_after_its_interval() {
    let mut bench = Bench::new().await;
    let chores = vec![bench.chore("a", MINUTE)];
    bench.jobs.schedule_chores(&chores).await.expect("scheduled");
    let jobs = Arc::clone(&bench.jobs);
    let mut runner = Runner::new(&jobs, chores);
    for _ in 0..2 {
        bench.clock.advance(MINUTE);
        runner.start_due(bench.clock.now()).await;
        bench.next().await.end(Ok(Progress::Complete));
        let ended = runner.runs.join_next_with_id().await.expect("a run");
        // Its result is noted, and the commit that would write it does not come.
        runner.end_run(ended);
        assert_eq!(runner.start_due(bench.clock.now()).await, LONGEST_WAIT);
        assert!(runner.runs.is_empty(), "not at once");
    }
    assert_eq!(bench.row("a").await.last_run, None);
    let listed = bench.jobs.list_jobs().await.expect("listed");
    assert_eq!(listed.first().and_then(|job| job.last_run), Some(bench.clock.now()));
    assert_eq!(runner.unwritten.len(), 1, "the last one alone");
    runner.write_results().await;
    let row = bench.row("a").await;
    assert_eq!(
        (row.next_run, row.last_result.as_str()),
        (Some(bench.clock.now().plus_duration(MINUTE)), "ok")
    );
}

/// The engine's chores of 30 seconds would be 2,880 commits a day each.
#[tokio::test]
async fn the_same_result_of_a_short_job_is_written_at_the_end_and_another_at_once() {
    const SHORT: Duration = Duration::from_secs(30);
    let mut bench = Bench::new().await;
    let chores = vec![bench.chore("a", SHORT)];
    bench.jobs.schedule_chores(&chores).await.expect("scheduled");
    let jobs = Arc::clone(&bench.jobs);
    let mut runner = Runner::new(&jobs, chores);
    let mut writes = Vec::new();
    for number in 0..250 {
        bench.clock.advance(SHORT);
        runner.start_due(bench.clock.now()).await;
        let result = if number == 200 { Err(EngineError::NoModel) } else { Ok(Progress::Complete) };
        bench.next().await.end(result);
        let ended = runner.runs.join_next_with_id().await.expect("a run");
        runner.end_run(ended);
        if !runner.unwritten.is_empty() {
            writes.push(number);
        }
        runner.write_results().await;
        let listed = bench.jobs.list_jobs().await.expect("listed");
        let job = listed.first().expect("one");
        assert_eq!(
            (job.last_run, job.next_run),
            (Some(bench.clock.now()), Some(bench.clock.now().plus_duration(SHORT)))
        );
    }
    assert_eq!(writes, [0, 200, 201]);
    // What brings the next run forward in its row counts from then on, also at the end.
    let (name, schedule) = ("a".to_owned(), "every 30 s".to_owned());
    let now = bench.clock.now();
    let sooner = JobOp::Schedule { name, schedule, next_run: Some(now) };
    bench.store.commit(Batch::relaxed(vec![Op::Jobs(sooner)])).await.expect("written");
    runner.start_due(now).await;
    assert_eq!(runner.runs.len(), 1);
    runner.finish_runs(&cancelled()).await;
    let row = bench.row("a").await;
    assert_eq!(
        (row.last_run, row.last_result.as_str(), row.next_run),
        (Some(now), "ok", Some(now)),
        "the row is up to date, and what was stopped is due"
    );
}

/// The row names the run before, and then, at the latest with the engine's end, the one that was under way.
#[tokio::test]
async fn the_row_of_a_job_that_ends_while_the_engine_stops_names_the_run_after_it() {
    const SHORT: Duration = Duration::from_secs(30);
    let mut bench = Bench::new().await;
    bench.start(&[("a", SHORT)]).await;
    for _ in 0..2 {
        bench.clock.advance(SHORT);
        bench.next().await.end(Ok(Progress::Complete));
        bench.until_ended("a").await;
    }
    let second = bench.clock.now();
    bench.clock.advance(SHORT);
    let third = bench.next().await;
    assert_ne!(bench.row("a").await.last_run, Some(second), "the second run is not written by itself");
    bench.draining.cancel();
    let written = async {
        while bench.row("a").await.last_run != Some(second) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, written).await.expect("the second run is written");
    bench.clock.advance(MINUTE);
    let ended = bench.clock.now();
    third.end(Ok(Progress::Complete));
    bench.jobs.ended().await;
    let row = bench.row("a").await;
    assert_eq!((row.last_run, row.next_run), (Some(ended), Some(ended.plus_duration(SHORT))));
}

/// Of a run that is in no row, the row names a next run that is over.
#[tokio::test]
async fn a_job_is_brought_forward_from_the_next_run_that_its_last_one_named() {
    let mut bench = Bench::new().await;
    bench.start(&[("a", 60 * MINUTE)]).await;
    for _ in 0..2 {
        bench.clock.advance(60 * MINUTE);
        bench.next().await.end(Ok(Progress::Complete));
        bench.until_ended("a").await;
    }
    bench.jobs.continue_soon("a").await.expect("written");
    bench.clock.advance(CONTINUE_AFTER);
    bench.next().await.end(Ok(Progress::Complete));
    bench.end().await;
}

/// Returns a token that is cancelled.
fn cancelled() -> CancellationToken {
    let token = CancellationToken::new();
    token.cancel();
    token
}

/// The clock was wrong when the last result was written: the row would name a run in the future for as long.
#[tokio::test]
async fn after_the_clock_was_set_back_the_same_result_is_written_again() {
    const SHORT: Duration = Duration::from_secs(30);
    let mut bench = Bench::new().await;
    let chores = vec![bench.chore("a", SHORT)];
    bench.jobs.schedule_chores(&chores).await.expect("scheduled");
    let jobs = Arc::clone(&bench.jobs);
    let mut runner = Runner::new(&jobs, chores);
    let days = i64::try_from(DAY.as_millis()).expect("short");
    for by in [days, -days] {
        bench.clock.shift(by);
        runner.start_due(bench.clock.now()).await;
        bench.next().await.end(Ok(Progress::Complete));
        let ended = runner.runs.join_next_with_id().await.expect("a run");
        runner.end_run(ended);
        runner.write_results().await;
        assert_eq!(bench.row("a").await.last_run, Some(bench.clock.now()));
    }
}

/// The disk was full for a while: the row must not say of a run that it was the last when others came after it.
#[tokio::test]
async fn a_result_that_waits_for_its_commit_is_replaced_by_the_next() {
    const SHORT: Duration = Duration::from_secs(30);
    let mut bench = Bench::new().await;
    let jobs = Arc::clone(&bench.jobs);
    let chores = vec![bench.chore("a", SHORT)];
    jobs.schedule_chores(&chores).await.expect("scheduled");
    let mut runner = Runner::new(&jobs, chores);
    for (result, is_writable) in
        [(Ok(Progress::Complete), true), (Err(EngineError::NoModel), false), (Ok(Progress::Complete), true)]
    {
        bench.clock.advance(SHORT);
        runner.start_due(bench.clock.now()).await;
        bench.next().await.end(result);
        let ended = runner.runs.join_next_with_id().await.expect("a run");
        runner.end_run(ended);
        if is_writable {
            runner.write_results().await;
        }
    }
    let row = bench.row("a").await;
    assert_eq!((row.last_result.as_str(), row.last_run), ("ok", Some(bench.clock.now())));
    assert_eq!(row.next_run, Some(bench.clock.now().plus_duration(SHORT)));
}
