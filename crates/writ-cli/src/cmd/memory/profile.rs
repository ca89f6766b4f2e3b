//! The curated profile and the last digest, as lines of a terminal.

use writ_inspect::show::escape_line;
use writ_runtime::methods as m;
use writ_types::api::NoParams;
use writ_types::api::memory::{DigestOutcome, DigestReport, ProfileView};

use crate::client::EngineClient;
use crate::context::Context;
use crate::failure::Failure;

/// Prints the profile, or deletes it and prints that.
pub(super) async fn show_profile(
    context: &Context,
    client: &mut EngineClient,
    clear: bool,
) -> Result<(), Failure> {
    let none = &NoParams {};
    let view = match clear {
        true => client.ask::<m::MemoryClearProfile>(none).await?,
        false => client.ask::<m::MemoryProfile>(none).await?,
    };
    context.out.print_either(&view, describe_profile)
}

/// Makes a digest now and prints its result.
pub(super) async fn run_digest(context: &Context, client: &mut EngineClient) -> Result<(), Failure> {
    let view = client.ask::<m::MemoryDigest>(&NoParams {}).await?;
    context.out.print_either(&view, describe_digest)
}

/// Describes the profile, with what the last digest suggests.
fn describe_profile(view: &ProfileView) -> Vec<String> {
    let Some(profile) = &view.profile else {
        return vec!["there is no profile yet; `writ memory digest` writes one from the memories".to_owned()];
    };
    let mut lines: Vec<String> = profile.text.lines().map(escape_line).collect();
    lines.push(String::new());
    lines.push(format!("written {}, trust: {}", profile.at, profile.taint));
    lines.extend(view.report.iter().flat_map(describe_suggestions));
    lines
}

/// Describes the result of a digest.
fn describe_digest(view: &ProfileView) -> Vec<String> {
    let Some(report) = &view.report else { return vec!["there was no digest yet".to_owned()] };
    let said = match report.outcome {
        DigestOutcome::NothingRemembered => "there is no memory that a profile could rest on".to_owned(),
        DigestOutcome::NothingNew => {
            "the memories are those of the last digest: nothing was asked".to_owned()
        }
        DigestOutcome::Unchanged => format!("{} memories read; the profile stays as it is", report.memories),
        DigestOutcome::Written => format!("{} memories read; the profile is new", report.memories),
    };
    let mut lines = vec![said];
    if report.left_out > 0 {
        lines.push(format!("there was no room for {} more memories", report.left_out));
    }
    if report.contradictions > 0 {
        lines.push(format!(
            "contradictions: {}; `writ memory pending` lists what is asked",
            report.contradictions
        ));
    }
    lines.extend(report.note.iter().map(|note| escape_line(note)));
    lines.extend(describe_suggestions(report));
    lines
}

fn describe_suggestions(report: &DigestReport) -> Vec<String> {
    let suggestion = report
        .suggestions
        .iter()
        .map(|made| format!("could become a {}: {}", escape_line(&made.becomes), escape_line(&made.text)));
    suggestion.collect()
}
