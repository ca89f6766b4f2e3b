//! Jobs: due ones by time, runs and their results, and the bounds.

use super::*;
use crate::batch::Op;
use crate::testing::{TestHome, at};

fn schedule(name: &str, schedule: &str, next_run: Option<i64>) -> Op {
    let (name, schedule) = (name.to_owned(), schedule.to_owned());
    Op::Jobs(JobOp::Schedule { name, schedule, next_run: next_run.map(at) })
}

fn finish(name: &str, run: i64, result: &str, next_run: Option<i64>) -> Op {
    let (name, result) = (name.to_owned(), result.to_owned());
    Op::Jobs(JobOp::Finish { name, at: at(run), result, next_run: next_run.map(at) })
}

fn names(jobs: &[Job]) -> Vec<&str> {
    jobs.iter().map(|job| job.name.as_str()).collect()
}

#[test]
fn jobs_are_due_by_their_time_and_their_runs_are_recorded_over_a_restart() {
    let home = TestHome::new();
    let reads = home.store.blocking();
    assert_eq!(reads.next_job_due(), Ok(None));
    home.commit(vec![
        schedule("prune", "daily", Some(20)),
        schedule("expire", "every 10", Some(10)),
        schedule("paused", "never", None),
    ]);
    assert_eq!(reads.next_job_due(), Ok(Some(at(10))));
    assert_eq!(names(&reads.due_jobs(at(9), 10).expect("reads")), [""; 0]);
    assert_eq!(names(&reads.due_jobs(at(20), 10).expect("reads")), ["expire", "prune"], "the earliest first");
    assert_eq!(names(&reads.due_jobs(at(20), 1).expect("reads")), ["expire"]);
    home.commit(vec![finish("expire", 11, "3 asks expired", Some(21))]);
    let home = home.reopened();
    let reads = home.store.blocking();
    assert_eq!(names(&reads.due_jobs(at(20), 10).expect("reads")), ["prune"]);
    let expire = Job {
        name: "expire".to_owned(),
        schedule: "every 10".to_owned(),
        next_run: Some(at(21)),
        last_run: Some(at(11)),
        last_result: "3 asks expired".to_owned(),
    };
    assert_eq!(reads.job("expire"), Ok(Some(expire.clone())));
    // Another schedule keeps the last run.
    home.commit(vec![schedule("expire", "every 5", Some(16))]);
    let changed = Job { schedule: "every 5".to_owned(), next_run: Some(at(16)), ..expire };
    assert_eq!(reads.job("expire"), Ok(Some(changed)));
    assert_eq!(names(&reads.jobs(10).expect("reads")), ["expire", "paused", "prune"]);
    home.commit(vec![Op::Jobs(JobOp::Remove { name: "expire".to_owned() })]);
    assert_eq!(reads.job("expire"), Ok(None));
}

#[test]
fn a_run_of_a_missing_job_is_refused_with_its_whole_batch() {
    let home = TestHome::new();
    let error = home.try_commit(vec![schedule("a", "daily", None), finish("b", 1, "", None)]);
    let missing = Conflict::Missing { what: "job", id: "b".to_owned() };
    assert_eq!(error, Err(missing.into()));
    assert_eq!(home.store.blocking().job("a"), Ok(None));
}

#[test]
fn jobs_are_bounded_in_number_and_size() {
    let home = TestHome::new();
    home.commit((0..MAX_JOBS).map(|n| schedule(&format!("job {n}"), "daily", None)).collect());
    let error = home.try_commit(vec![schedule("one too many", "daily", None)]);
    assert_eq!(error, Err(StoreError::TooLarge { what: "number of jobs", limit: MAX_JOBS }));
    home.commit(vec![schedule("job 1", "hourly", None), finish("job 1", 1, &"é".repeat(5_000), None)]);
    let job = home.store.blocking().job("job 1").expect("reads").expect("there");
    assert_eq!((job.schedule.as_str(), job.last_result.chars().count()), ("hourly", MAX_RESULT_CHARS));
    for long in [
        schedule(&"n".repeat(MAX_NAME_BYTES + 1), "daily", None),
        schedule("job 1", &"s".repeat(2_000), None),
    ] {
        assert!(matches!(home.try_commit(vec![long]), Err(StoreError::TooLarge { .. })));
    }
}
