//! Writes the list of the tools of servers that are not offered, which the owner has approved.

use std::collections::BTreeSet;

use writ_policy::permit::Permit;
use writ_tools::outcome::PerformedOutcome;
use writ_types::action::{Action, ChangeKind};
use writ_types::digest::Digest;
use writ_types::error::{Exit, Report};

use crate::error::EngineError;
use crate::home_files::ToolListText;
use crate::place::{self, CallPlace};

/// The begin of the line that says which list a change was made from.
const BASE: &str = "# made from: ";

/// Returns the line that names a list as it is before a change.
pub(crate) fn base_line(aside: &BTreeSet<String>) -> String {
    let names: String = aside.iter().map(|name| format!("{name}\n")).collect();
    format!("{BASE}{}\n", Digest::of_bytes(names.as_bytes()))
}

/// Writes the list that a permit has, and offers the tools by it. A home that cannot is an outcome.
pub(super) async fn write_list(place: &CallPlace, permit: Permit) -> Result<PerformedOutcome, EngineError> {
    let prepared = place::opened(place, permit)?;
    let Action::ModifySelf(modify) = &prepared.action else {
        return Err(EngineError::Machine("a permit for something else".to_owned()));
    };
    let services = &place.services;
    let failed =
        |report: Report| PerformedOutcome::Failed { report: services.journal.redactor.mask_report(report) };
    let Some(text) = modify.content.as_deref() else {
        let report = Report::new(Exit::Usage, "tools.no_list", "the list of tools has no content");
        return Ok(failed(report.with_hint("`writ mcp review` shows the tools")));
    };
    // As the file is now: a person may have changed it while the question was open.
    if let Err(report) = services.servers.reload() {
        return Ok(failed(report));
    }
    if !text.contains(&base_line(&services.servers.set_aside())) {
        let report = Report::new(
            Exit::Usage,
            "tools.list_changed",
            "the list of tools has changed since this was asked",
        );
        return Ok(failed(report.with_hint("the next review of tools asks about what is there then")));
    }
    let list = ToolListText { text, subject: &prepared.intent };
    match services.outside.home_files.write_tool_list(list).await {
        Ok(note) => {
            if let Some(why) = note {
                tracing::warn!(%why, "the change of the list of tools is not recorded");
            }
        }
        Err(report) => return Ok(failed(report)),
    }
    // Sessions that run keep the tools of the turn that they are in.
    if let Err(report) = services.servers.reload() {
        return Ok(failed(report));
    }
    let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
    Ok(PerformedOutcome::Written { files: vec![(modify.path.clone(), ChangeKind::Modify, bytes)] })
}
