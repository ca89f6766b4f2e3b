//! `writ jobs`: what the engine does again and again.

use writ_inspect::show::escape_line;
use writ_runtime::methods::JobsList;
use writ_types::api::NoParams;
use writ_types::api::job::{JobList, JobSummary};

use crate::args::JobsCommand;
use crate::client::EngineClient;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::block_on;

/// Runs `writ jobs …`.
pub(crate) fn run_jobs(context: &Context, command: JobsCommand) -> Result<(), Failure> {
    context.load_ready_config()?;
    match command {
        JobsCommand::List => block_on(async {
            let listed = EngineClient::ensure(context).await?.ask::<JobsList>(&NoParams {}).await?;
            context.out.print_either(&listed, describe_jobs)
        }),
    }
}

fn describe_jobs(listed: &JobList) -> Vec<String> {
    listed.jobs.iter().map(describe_job).collect()
}

fn describe_job(job: &JobSummary) -> String {
    let next = job.next_run.as_ref().map_or_else(|| "does not run".to_owned(), |at| format!("next {at}"));
    let last = match &job.last_run {
        Some(at) => format!("last {at}: {}", escape_line(&job.last_result)),
        None => "has not run yet".to_owned(),
    };
    format!("{:<20} {:<12} {next}; {last}", escape_line(&job.name), escape_line(&job.schedule))
}
