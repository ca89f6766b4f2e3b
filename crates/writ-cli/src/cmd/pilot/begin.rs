//! `writ pilot init`: the gates of a project are found, tried in the sandbox, and written into its settings.

use std::path::Path;

use writ_inspect::show::escape_line;
use writ_pilot::findings::{NamedCount, ProjectFindings};
use writ_pilot::trial::begin_project as begin;
use writ_runtime::methods::PilotTry;
use writ_types::api::pilot::{PilotProject, PilotTrial};
use writ_types::error::ToReport as _;

use super::project_of;
use crate::args::PilotPlace;
use crate::client::EngineClient;
use crate::context::Context;
use crate::failure::Failure;

/// Finds and tries the gates of a project, and writes its settings if it has none.
pub(super) async fn begin_project(
    context: &Context,
    place: &PilotPlace,
    (untried, quick): (bool, bool),
) -> Result<(), Failure> {
    let project = project_of(context, place)?;
    let (trials, note) = if untried { (Vec::new(), None) } else { try_all(context, &project).await };
    let begun = begin(Path::new(&project.project), &trials, quick).await;
    let begun = begun.map_err(|error| Failure::Report(Box::new(error.report())))?;
    context.out.print_either(&begun, |begun| {
        let head = if begun.created { "written" } else { "is there already, and stays as it is" };
        let mut lines = vec![format!("{} {head}", escape_line(&begun.file))];
        for gate in &begun.gates {
            let end = match (&gate.problem, untried || note.is_some()) {
                (Some(problem), _) => format!("switched off: {}", escape_line(problem)),
                (None, true) => "not tried".to_owned(),
                (None, false) => "passes".to_owned(),
            };
            let command = escape_line(&gate.run.join(" "));
            lines.push(format!("  gate {}: {command}  ({end})", escape_line(&gate.name)));
        }
        if begun.gates.iter().any(|gate| gate.problem.is_some()) {
            lines
                .push("a gate that proves nothing today is written switched off, with the reason".to_owned());
        }
        lines.extend(note.iter().map(|why| format!("the gates were not tried: {}", escape_line(why))));
        lines.extend(begun.findings.iter().flat_map(describe_findings));
        lines.push("look at it, then: `writ pilot plan \"GOAL\"`".to_owned());
        lines
    })
}

/// The most entries of a list that one line shows; JSON has all of them.
const MAX_SHOWN: usize = 8;

/// Describes the findings; their names are escaped where they are found.
fn describe_findings(found: &ProjectFindings) -> Vec<String> {
    let mut lines = vec![
        format!("languages: {}", list_counted(&found.languages)),
        format!("folders: {}", list_counted(&found.folders)),
        format!("begins in: {}", join_names(found.entry_points.iter().cloned())),
    ];
    for (manifest, names) in &found.dependencies {
        lines.push(format!("{manifest} depends on: {}", join_names(names.iter().cloned())));
    }
    lines.extend(found.unreadable.iter().map(|line| format!("cannot be parsed: {line}")));
    match &found.history {
        Some(history) => {
            let commits = match history.commits {
                1 => "the only commit changes".to_owned(),
                many => format!("the last {many} commits change most"),
            };
            lines.push(format!("{commits}: {}", list_counted(&history.active)));
            lines.push(format!("by: {}", list_counted(&history.contributors)));
            let recent = history.recent.iter().take(MAX_SHOWN);
            lines.extend(recent.map(|one| format!("  {}  {}: {}", one.at, one.author, one.subject)));
        }
        None => lines.push(format!("without a history: {}", found.history_note)),
    }
    lines
}

fn list_counted(all: &[NamedCount]) -> String {
    join_names(all.iter().map(|one| format!("{} {}", one.name, one.count)))
}

fn join_names(all: impl Iterator<Item = String>) -> String {
    // One more than is shown says that there are others.
    let mut shown: Vec<String> = all.take(MAX_SHOWN.saturating_add(1)).collect();
    if shown.len() > MAX_SHOWN {
        shown.truncate(MAX_SHOWN);
        shown.push("…".to_owned());
    }
    if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
}

/// Has the engine try the gates. A home that is not ready yet is no reason to write no settings: it says why nothing was tried.
async fn try_all(context: &Context, project: &PilotProject) -> (Vec<PilotTrial>, Option<String>) {
    let asked = async {
        context.load_ready_config()?;
        let mut client = EngineClient::ensure(context).await?;
        client.ask::<PilotTry>(project).await
    };
    match asked.await {
        Ok(tried) => (tried.gates, None),
        Err(Failure::Report(report)) => (Vec::new(), Some(format!("{} ({})", report.outside, report.hint))),
        Err(_) => (Vec::new(), Some("the engine could not be asked".to_owned())),
    }
}
