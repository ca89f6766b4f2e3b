//! `writ pilot init`: the gates of a project are found, tried in the sandbox, and written into its settings.

use std::path::Path;

use writ_inspect::show::escape_line;
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
    untried: bool,
) -> Result<(), Failure> {
    let project = project_of(context, place)?;
    let (trials, note) = if untried { (Vec::new(), None) } else { try_all(context, &project).await };
    let begun = begin(Path::new(&project.project), &trials).await;
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
        lines.push("look at it, then: `writ pilot plan \"GOAL\"`".to_owned());
        lines
    })
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
        Err(Failure::Report(report)) => (Vec::new(), Some(report.outside)),
        Err(_) => (Vec::new(), Some("the engine could not be asked".to_owned())),
    }
}
