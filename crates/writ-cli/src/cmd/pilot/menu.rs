//! The list of `writ pilot revert` without a slice.

use writ_inspect::show::escape_line;
use writ_runtime::methods::{PilotHistoryOf, PilotShow};
use writ_types::api::pilot::{PilotHistory, PilotHistoryQuery, PilotProject, PilotStatus, PilotUnitName};
use writ_types::error::Exit;

use super::changes;
use crate::client::EngineClient;
use crate::context::Context;
use crate::failure::Failure;
use crate::terminal;

/// The most slices at work, and the most that are done.
const MOST: usize = 3;
/// The units that are over among which the newest slices are looked for.
const LOOKED_AT: usize = 200;
/// The verdict of a unit that was delivered.
const SUCCEEDED: &str = "succeeded";

/// A slice of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MenuEntry {
    unit: String,
    title: String,
    is_done: bool,
}

/// Undoes a slice, which the person chooses where none is named.
pub(super) async fn revert_slice(
    context: &Context,
    client: &mut EngineClient,
    (project, unit, yes): (String, Option<String>, bool),
) -> Result<(), Failure> {
    let unit = match unit {
        Some(unit) => unit,
        None => choose_slice(context, client, &project).await?,
    };
    changes::revert(context, client, (&PilotUnitName { project, unit }, yes)).await
}

/// Has the person choose a slice: of those at work, or of the newest that are done.
async fn choose_slice(
    context: &Context,
    client: &mut EngineClient,
    project: &str,
) -> Result<String, Failure> {
    let status = client.ask::<PilotShow>(&PilotProject { project: project.to_owned() }).await?;
    let (verdict, limit) = (SUCCEEDED.to_owned(), LOOKED_AT);
    let query =
        PilotHistoryQuery { project: project.to_owned(), verdict, limit, ..PilotHistoryQuery::default() };
    let entries = list_slices(&status, &client.ask::<PilotHistoryOf>(&query).await?);
    if entries.is_empty() {
        let text = "no slice of this project is at work or done";
        let hint = "`writ pilot status` lists the units";
        return Err(Failure::new(Exit::Usage, "pilot.no_slice", text, hint));
    }
    // Also where no one can be asked: the list says what a command can name.
    for (number, entry) in (1..).zip(&entries) {
        context.out.print_remark(describe_entry(number, entry));
    }
    if !context.host.streams.is_interactive() {
        let hint = "`writ pilot revert SLICE` names one of them";
        return Err(Failure::new(Exit::Blocked, "pilot.no_terminal", "no person can be asked here", hint));
    }
    let chosen = terminal::ask_number("which one?", entries.len())?;
    let entry = chosen.and_then(|number| entries.into_iter().nth(number.saturating_sub(1)));
    entry.map(|entry| entry.unit).ok_or_else(|| {
        let hint = "answer with a number of the list";
        Failure::new(Exit::Denied, "pilot.not_confirmed", "nothing was changed", hint)
    })
}

/// Lists the first slices at work, in the order of their plan, and the newest that are done.
fn list_slices(status: &PilotStatus, history: &PilotHistory) -> Vec<MenuEntry> {
    // Work on a slice is that on its tasks.
    let has_begun = |slice: &str| {
        let tasks = slice.replacen("slice/", "task/", 1) + "/";
        status.units.iter().any(|unit| unit.attempt > 0 && (unit.id == slice || unit.id.starts_with(&tasks)))
    };
    let entry = |unit: &str, title: &str, is_done| MenuEntry {
        unit: unit.to_owned(),
        title: title.to_owned(),
        is_done,
    };
    let is_slice = |unit: &str| unit.starts_with("slice/");
    let at_work =
        status.units.iter().filter(|unit| is_slice(&unit.id) && !unit.is_over && has_begun(&unit.id));
    let mut entries: Vec<MenuEntry> =
        at_work.take(MOST).map(|unit| entry(&unit.id, &unit.title, false)).collect();
    let done = history.units.iter().filter(|unit| is_slice(&unit.unit));
    entries.extend(done.take(MOST).map(|unit| entry(&unit.unit, &unit.title, true)));
    entries
}

fn describe_entry(number: usize, entry: &MenuEntry) -> String {
    let state = if entry.is_done { "done" } else { "at work" };
    format!("{number}: {} ({state})  {}", escape_line(&entry.unit), escape_line(&entry.title))
}

#[cfg(test)]
mod tests {
    use writ_types::api::pilot::{PilotHistoryLine, PilotUnitLine};
    use writ_types::id::PilotId;
    use writ_types::unit::{MicroUsd, Timestamp};

    use super::*;

    fn unit(id: &str, attempt: u32, is_over: bool) -> PilotUnitLine {
        PilotUnitLine {
            id: id.to_owned(),
            title: format!("title of {id}"),
            phase: "execute".to_owned(),
            status: "pending".to_owned(),
            attempt,
            is_over,
            is_running: false,
            cost: MicroUsd::ZERO,
        }
    }

    fn done(id: &str) -> PilotHistoryLine {
        PilotHistoryLine {
            unit: id.to_owned(),
            title: format!("title of {id}"),
            workflow: "own".to_owned(),
            phase: "complete".to_owned(),
            verdict: SUCCEEDED.to_owned(),
            models: Vec::new(),
            runs: 1,
            cost: MicroUsd::ZERO,
            ended_at: Timestamp::from_millis(0),
        }
    }

    /// Rows: SF-541 (in part: at most six entries, those at work first, then the newest that are done)
    #[test]
    fn the_first_slices_at_work_come_before_the_newest_that_are_done() {
        let units = [
            unit("milestone/m1", 0, false),
            unit("slice/m1/s1", 0, false),
            unit("task/m1/s1/t1", 2, false),
            unit("slice/m1/s2", 0, false),
            unit("task/m1/s2/t1", 0, false),
            unit("slice/m1/s3", 1, false),
            unit("slice/m1/s4", 1, true),
            unit("slice/m1/s10", 1, false),
            unit("slice/m1/s11", 1, false),
        ];
        let at = Timestamp::from_millis(0);
        let status = PilotStatus {
            project: "/p".to_owned(),
            session: PilotId::from_parts(at, 1),
            state: "paused".to_owned(),
            plans: Vec::new(),
            units: units.to_vec(),
            blockers: Vec::new(),
            cost: MicroUsd::ZERO,
            circuits: Vec::new(),
            rate_limits: Vec::new(),
            settings: Vec::new(),
            warnings: Vec::new(),
            next: None,
            since: None,
            model: String::new(),
        };
        let ids =
            ["milestone/m0", "slice/m0/s9", "task/m0/s9/t1", "slice/m0/s8", "slice/m0/s7", "slice/m0/s6"];
        let history = PilotHistory { units: ids.map(done).to_vec() };
        let lines: Vec<String> =
            (1..).zip(&list_slices(&status, &history)).map(|(n, one)| describe_entry(n, one)).collect();
        let expected = [
            "1: slice/m1/s1 (at work)  title of slice/m1/s1",
            "2: slice/m1/s3 (at work)  title of slice/m1/s3",
            "3: slice/m1/s10 (at work)  title of slice/m1/s10",
            "4: slice/m0/s9 (done)  title of slice/m0/s9",
            "5: slice/m0/s8 (done)  title of slice/m0/s8",
            "6: slice/m0/s7 (done)  title of slice/m0/s7",
        ];
        assert_eq!(lines, expected);
        let empty = PilotHistory { units: Vec::new() };
        assert_eq!(list_slices(&PilotStatus { units: Vec::new(), ..status }, &empty), []);
    }
}
