//! The view of an autopilot on a terminal: its units with phases and costs, what holds them up, and the last lines of one of them.
//!
//! [`WatchView`] draws what the engine has answered as rows of text; it has neither a clock nor a terminal. [`terminal::WatchTerminal`]
//! shows the rows and reads the keys. Every text of a project or an agent is escaped before it becomes part of a row.

use unicode_width::UnicodeWidthChar as _;
use writ_types::api::pilot::{PilotLogLine, PilotSnapshot, PilotStatus, PilotUnitLine};
use writ_types::visible::escape_line;

use crate::renderer::Paint;

pub mod keys;

pub mod terminal;

pub use keys::WatchKey;

/// The fewest rows and columns that are drawn; a smaller terminal shows a part of them.
const MIN_SIZE: (usize, usize) = (8, 20);
/// The most plans, warnings, limits of providers and blockers that are shown, each.
const MAX_NOTES: usize = 5;
/// The rows for the last lines of the selected unit.
const LOG_ROWS: usize = 8;
/// The number of last lines that a view asks for: those it has rows for.
pub const LOG_LINES: usize = LOG_ROWS - 1;
/// The rows that a page of units moves by.
const PAGE: usize = 10;

/// An answer of the engine that a view shows.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchLook {
    /// The project with its units and blockers.
    pub status: PilotStatus,
    /// The same moment of its session; none: the session is not shown.
    pub snapshot: Option<PilotSnapshot>,
    /// The unit of these last lines; none: there is no unit.
    pub logged: Option<String>,
    /// Its last lines, the oldest first.
    pub log: Vec<PilotLogLine>,
}

/// The effect of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEffect {
    /// Nothing is different.
    None,
    /// Another unit is selected.
    Selected,
    /// The person leaves.
    Leave,
}

/// The view of one project.
#[derive(Clone, Debug, Default)]
pub struct WatchView {
    look: Option<WatchLook>,
    /// The id of the selected unit; empty: the first one.
    selected: String,
    /// The reason why the engine could not be asked last.
    fault: Option<String>,
}

impl WatchView {
    /// Takes the newest answer of the engine.
    pub fn take_look(&mut self, look: WatchLook) {
        self.look = Some(look);
        self.fault = None;
        let selected = self.selected_unit().map(str::to_owned);
        // The selection may have moved while the engine was asked.
        for look in self.look.iter_mut().filter(|look| look.logged != selected) {
            look.log.clear();
        }
    }

    /// Notes that the engine could not be asked: the last answer stays, and the reason stands above it.
    pub fn note_fault(&mut self, why: &str) {
        self.fault = Some(why.to_owned());
    }

    /// Returns the id of the selected unit; none while there is no unit.
    pub fn selected_unit(&self) -> Option<&str> {
        self.units().get(self.selected_index()).map(|unit| unit.id.as_str())
    }

    /// Carries out a key.
    pub fn press_key(&mut self, key: WatchKey) -> WatchEffect {
        let (now, last) = (self.selected_index(), self.units().len().saturating_sub(1));
        let next = match key {
            WatchKey::Leave => return WatchEffect::Leave,
            WatchKey::Up => now.saturating_sub(1),
            WatchKey::Down => now.saturating_add(1).min(last),
            WatchKey::PageUp => now.saturating_sub(PAGE),
            WatchKey::PageDown => now.saturating_add(PAGE).min(last),
            WatchKey::First => 0,
            WatchKey::Last => last,
        };
        let Some(id) = self.units().get(next).map(|unit| unit.id.clone()).filter(|_| next != now) else {
            return WatchEffect::None;
        };
        self.selected = id;
        // Those of the unit before would stand below the name of this one.
        self.look.iter_mut().for_each(|look| look.log.clear());
        WatchEffect::Selected
    }

    /// Draws the view as rows of a terminal of so many rows and columns: as many rows at most, and none wider.
    pub fn draw_rows(&self, (rows, columns): (usize, usize), paint: Paint) -> Vec<String> {
        let (rows, columns) = (rows.max(MIN_SIZE.0), columns.max(MIN_SIZE.1));
        let fit = |text: &str| fit_row(text, columns);
        let mut drawn: Vec<String> = Vec::new();
        drawn.extend(
            self.fault.iter().map(|why| paint.red(&fit(&format!("not up to date: {}", escape_line(why))))),
        );
        let Some(look) = &self.look else {
            drawn.push(fit("the engine is asked …"));
            return drawn;
        };
        drawn.push(paint.bold(&fit(&describe_head(look))));
        drawn.extend(describe_notes(&look.status).iter().map(|note| fit(note)));
        let blockers = describe_blockers(&look.status);
        let keys = 1;
        let taken = drawn.len() + blockers.len() + LOG_ROWS + keys;
        let list = self.draw_units(look, rows.saturating_sub(taken).max(1), columns);
        drawn.extend(
            list.into_iter().map(|(row, is_selected)| if is_selected { paint.cyan(&row) } else { row }),
        );
        drawn.extend(blockers.iter().map(|blocker| paint.yellow(&fit(blocker))));
        let unit = self.selected_unit().unwrap_or("no unit");
        let mut below = vec![paint.bold(&fit(&format!("last lines of {}", escape_line(unit))))];
        let first = look.log.len().saturating_sub(LOG_LINES);
        below.extend(look.log.iter().skip(first).map(|line| fit(&describe_line(line))));
        below.push(paint.dim(&fit("q: leave   arrows, j, k: select a unit   PgUp, PgDn: a page")));
        // In a low terminal the keys matter more than what is above them.
        let room = rows.saturating_sub(below.len().min(rows));
        drawn.truncate(room);
        drawn.extend(below);
        let over = drawn.len().saturating_sub(rows);
        drawn.drain(..over);
        drawn
    }

    fn units(&self) -> &[PilotUnitLine] {
        self.look.as_ref().map_or(&[], |look| look.status.units.as_slice())
    }

    /// Returns the place of the selected unit. One that is not there any more leaves the selection to the first.
    fn selected_index(&self) -> usize {
        self.units().iter().position(|unit| unit.id == self.selected).unwrap_or(0)
    }

    /// Draws the units around the selected one, in at most `room` rows; `true` marks its own row.
    fn draw_units(&self, look: &WatchLook, room: usize, columns: usize) -> Vec<(String, bool)> {
        let (units, selected) = (&look.status.units, self.selected_index());
        // The selected one stands in the middle, as far as both ends of the list allow it.
        let first = selected.saturating_sub(room / 2).min(units.len().saturating_sub(room));
        let shown = units.iter().enumerate().skip(first).take(room);
        shown
            .map(|(place, unit)| {
                let mark = if place == selected { ">" } else { " " };
                (fit_row(&format!("{mark} {}", describe_unit(look, unit)), columns), place == selected)
            })
            .collect()
    }
}

fn describe_head(look: &WatchLook) -> String {
    let status = &look.status;
    let over = status.units.iter().filter(|unit| unit.is_over).count();
    let (state, units) = (escape_line(&status.state), status.units.len());
    let mut head = format!("{state}, {}, {over} of {units} units are over", status.cost);
    if let Some(snapshot) = &look.snapshot {
        let counts = snapshot.counts;
        head.push_str(&format!(
            "; {} run, {} wait for another try, {} are ready",
            counts.running, counts.retrying, counts.queued
        ));
    }
    // Last, since a path may be longer than a row.
    head.push_str(&format!("  {}", escape_line(&status.project)));
    head
}

fn describe_notes(status: &PilotStatus) -> Vec<String> {
    let plan = |plan: &writ_types::api::pilot::PilotPlanLine| {
        let reason =
            if plan.reason.is_empty() { String::new() } else { format!(" ({})", escape_line(&plan.reason)) };
        format!("plan of {}: {}{reason}", escape_line(&plan.milestone), plan.state.name())
    };
    // The newest plans matter most.
    let older = status.plans.len().saturating_sub(MAX_NOTES);
    let mut notes: Vec<String> = status.plans.iter().skip(older).map(plan).collect();
    notes.extend(status.warnings.iter().take(MAX_NOTES).map(|warning| escape_line(warning).into_owned()));
    let limits = status.rate_limits.iter().take(MAX_NOTES);
    notes.extend(limits.map(|one| format!("limits: {}", escape_line(&one.describe_line()))));
    notes
}

fn describe_blockers(status: &PilotStatus) -> Vec<String> {
    let mut lines: Vec<String> = status
        .blockers
        .iter()
        .take(MAX_NOTES)
        .map(|one| {
            let detail = one.need().lines().next().unwrap_or_default();
            format!("{} {}: {}", escape_line(&one.event), escape_line(&one.unit), escape_line(detail))
        })
        .collect();
    let more = status.blockers.len().saturating_sub(MAX_NOTES);
    if more > 0 {
        lines.push(format!("{more} more blockers"));
    }
    lines
}

fn describe_unit(look: &WatchLook, unit: &PilotUnitLine) -> String {
    let indent = "  ".repeat(unit.id.matches('/').count().saturating_sub(1));
    let state = match (unit.is_over, unit.phase.as_str()) {
        (true, _) => unit.status.as_str(),
        // A milestone that waits for its parts has no other phase than its end.
        (false, "complete") => "open",
        (false, phase) => phase,
    };
    let mut text = format!("{indent}{} {}", escape_line(&unit.id), escape_line(state));
    let running = look.snapshot.iter().flat_map(|shown| &shown.running).find(|run| run.unit_id == unit.id);
    match running {
        Some(run) => text.push_str(&format!(
            " [runs: {} calls, {}, {}]",
            run.turn_count,
            run.tokens.total,
            if run.last_event.is_empty() { "no entry yet".into() } else { escape_line(&run.last_event) }
        )),
        None if unit.is_running => text.push_str(" [runs]"),
        None => {}
    }
    let retry = look.snapshot.iter().flat_map(|shown| &shown.retrying).find(|retry| retry.unit_id == unit.id);
    if let Some(retry) = retry {
        text.push_str(&format!(" [tried again at {}: {}]", retry.due_at, escape_line(&retry.error)));
    }
    format!("{text} {}  {}", unit.cost, escape_line(&unit.title))
}

fn describe_line(line: &PilotLogLine) -> String {
    format!("{} {} {}", line.at, escape_line(&line.kind), escape_line(&line.text))
}

/// Cuts a text to so many columns. It has no characters that act unseen.
fn fit_row(text: &str, columns: usize) -> String {
    let (mut row, mut width) = (String::new(), 0_usize);
    for c in text.chars() {
        let own = c.width().unwrap_or(0);
        // The last column is for the mark of a cut.
        if width.saturating_add(own) >= columns {
            row.push('…');
            return row;
        }
        width = width.saturating_add(own);
        row.push(c);
    }
    row
}

#[cfg(test)]
mod tests;
