//! The chores of the engine as jobs: rows with the next run and the last result.

use std::time::Duration;

use serde_json::{Value, json};
use writ_runtime::config::EXPIRY_EVERY;
use writ_runtime::services::EngineParts;
use writ_store::approvals::AskState;
use writ_store::batch::{Batch, Op};
use writ_store::jobs::JobOp;
use writ_store::reads::AskReads as _;
use writ_testkit::model_server::{ParsedRequest, Reply};
use writ_types::api::job::{JobList, JobSummary};
use writ_types::calendar::Recurrence;
use writ_types::error::Exit;
use writ_types::unit::Timestamp;

use crate::harness::{ASK_REMEMBER, BEGIN, TestEngine};

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn remembering(request: &ParsedRequest) -> Reply {
    match request.results().next() {
        None => Reply::call("memory_store", json!({ "text": "A fact." })),
        Some(_) => Reply::text("Done."),
    }
}

/// Returns a job as the engine lists it: rows of short jobs name their last run when the engine has ended.
pub(crate) async fn job(handed: &TestEngine, name: &str) -> JobSummary {
    list_jobs(handed).await.into_iter().find(|job| job.name == name).expect("is there")
}

async fn list_jobs(handed: &TestEngine) -> Vec<JobSummary> {
    let listed = handed.call("jobs.list", json!({})).await.expect("listed");
    serde_json::from_value::<JobList>(listed).expect("a list of jobs").jobs
}

/// The longest wait for a run: one that does not come fails the test.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until a job has run at this time.
pub(crate) async fn until_run(handed: &TestEngine, name: &str, at: Timestamp) -> JobSummary {
    let ran = async {
        loop {
            let row = job(handed, name).await;
            if row.last_run == Some(at.to_string()) {
                return row;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, ran).await.unwrap_or_else(|_| panic!("'{name}' does not run"))
}

#[test]
fn an_ask_ends_by_a_job_while_no_message_comes_and_a_clock_set_back_by_days_runs_it_once() {
    let handed = TestEngine::new(ASK_REMEMBER, |_| remembering);
    handed.runtime.block_on(async {
        assert_eq!(handed.say(None, "remember it").await.0, Exit::Waiting);
        let open = || async { handed.store.asks(Some(AskState::Open), 10).await.expect("reads").len() };
        assert_eq!((open().await, job(&handed, "asks.expire").await.last_run), (1, None));
        handed.clock.go_on(2 * DAY);
        let late = handed.clock.now();
        let row = until_run(&handed, "asks.expire", late).await;
        assert_eq!(
            (row.last_result.as_str(), row.next_run),
            ("ok", Some(late.plus_duration(EXPIRY_EVERY).to_string()))
        );
        assert_eq!(open().await, 0, "its time was over");
        handed.clock.set_back(2 * DAY);
        let row = until_run(&handed, "asks.expire", BEGIN).await;
        assert_eq!(row.next_run, Some(BEGIN.plus_duration(EXPIRY_EVERY).to_string()));
        // Nothing is made up for: the next run is the one of its interval.
        handed.clock.go_on(EXPIRY_EVERY);
        until_run(&handed, "asks.expire", BEGIN.plus_duration(EXPIRY_EVERY)).await;
        let listed = handed.call("jobs.list", json!({})).await.expect("listed");
        let jobs = listed["jobs"].as_array().expect("a list");
        let names: Vec<&Value> = jobs.iter().map(|job| &job["name"]).collect();
        assert_eq!(
            names,
            [
                "asks.expire",
                "ledger.copy_heads",
                "ledger.erase",
                "memory.consolidate",
                "memory.digest",
                "outbox.prune",
                "sessions.erase",
                "tools.review",
                "undo.end"
            ]
        );
        assert_eq!(
            jobs[0],
            json!({
                "name": "asks.expire",
                "schedule": "every 30 s",
                "next_run": BEGIN.plus_duration(2 * EXPIRY_EVERY).to_string(),
                "last_run": BEGIN.plus_duration(EXPIRY_EVERY).to_string(),
                "last_result": "ok",
            })
        );
    });
    handed.end();
}

/// Jobs that do not run each hour: one once a day, and those of the calendar, which are off here.
const RARE: [&str; 3] = ["memory.digest", "outbox.prune", "tools.review"];

/// For a day without a message or a question, but for the first run of each job.
#[test]
fn an_idle_engine_writes_nothing_and_its_rows_are_up_to_date_at_its_end() {
    let off = |parts: &mut EngineParts| {
        parts.config.memory.config.digest = Recurrence::Off;
        parts.config.tool_review = Recurrence::Off;
    };
    let handed = TestEngine::with(off, |_| remembering);
    let store = handed.store.clone();
    let mut written = Vec::new();
    handed.runtime.block_on(async {
        let first_runs = async {
            let waits = |job: &JobSummary| job.last_run.is_none() && !RARE.contains(&job.name.as_str());
            while list_jobs(&handed).await.iter().any(waits) {
                tokio::task::yield_now().await;
            }
        };
        handed.clock.go_on(HOUR);
        tokio::time::timeout(PATIENCE, first_runs).await.expect("each job runs");
        for _ in 0..20 {
            handed.clock.go_on(HOUR);
            // The results of the round before are written before the next runs begin.
            written.push(handed.store.activity().transactions);
            for job in list_jobs(&handed).await.iter().filter(|job| !RARE.contains(&job.name.as_str())) {
                until_run(&handed, &job.name, handed.clock.now()).await;
            }
        }
    });
    let end = handed.clock.now();
    handed.end();
    assert_eq!(written[2..], [written[2]; 18]);
    let rows = store.blocking().jobs(10).expect("reads");
    let late: Vec<_> = rows.iter().filter(|row| row.last_run != Some(end)).map(|row| &row.name).collect();
    assert_eq!(late, RARE);
}

/// A later version of Writ has written the row, and this one does not know it.
#[test]
fn a_job_that_nothing_knows_stays_as_it_is_and_the_others_go_on() {
    let handed = TestEngine::new("", |_| remembering);
    handed.runtime.block_on(async {
        let (name, schedule) = ("goals.review".to_owned(), "at dusk".to_owned());
        let unknown = JobOp::Schedule { name, schedule, next_run: Some(BEGIN) };
        handed.store.commit(Batch::relaxed(vec![Op::Jobs(unknown)])).await.expect("written");
        let before = job(&handed, "goals.review").await;
        handed.clock.go_on(HOUR);
        for name in ["asks.expire", "ledger.copy_heads", "ledger.erase", "undo.end"] {
            let row = until_run(&handed, name, BEGIN.plus_duration(HOUR)).await;
            assert_eq!(row.last_result, "ok", "{name}");
        }
        assert_eq!(job(&handed, "goals.review").await, before);
    });
    handed.end();
}

/// The folder of the copies is a file.
#[test]
fn a_chore_that_fails_says_so_in_its_row_without_a_path_and_messages_are_answered() {
    let place = tempfile::NamedTempFile::new().expect("a file");
    let heads = place.path().join("heads.jsonl");
    let handed =
        TestEngine::with(|parts| parts.config.ledger.heads_file = Some(heads.clone()), |_| remembering);
    handed.runtime.block_on(async {
        assert_eq!(handed.say(None, "remember it").await, (Exit::Done, "Done.".to_owned()));
        handed.clock.go_on(HOUR);
        let row = until_run(&handed, "ledger.copy_heads", BEGIN.plus_duration(HOUR)).await;
        assert_eq!(row.last_result, "ledger.heads: a head of the ledger could not be copied");
        assert_eq!(until_run(&handed, "asks.expire", BEGIN.plus_duration(HOUR)).await.last_result, "ok");
    });
    handed.end();
}
