//! Lists the jobs of the engine.

use writ_types::api::job::{JobList, JobSummary};

use crate::error::EngineError;
use crate::services::Services;

/// Lists the jobs, by name.
///
/// # Errors
///
/// If the store cannot be read.
pub(super) async fn list_jobs(services: &Services) -> Result<JobList, EngineError> {
    let jobs = services.life.jobs.list_jobs().await?.into_iter();
    let jobs = jobs.map(|job| JobSummary {
        name: job.name,
        schedule: job.schedule,
        next_run: job.next_run.map(|at| at.to_string()),
        last_run: job.last_run.map(|at| at.to_string()),
        last_result: job.last_result,
    });
    Ok(JobList { jobs: jobs.collect() })
}
