//! `writ pilot status`: the state of a project once, or for as long as a person watches it.
//!
//! On a terminal a watched project has a view with keys; any other output gets the lines again whenever they change.

use std::io::Write;
use std::time::Duration;

use terminal_size::terminal_size;
use tokio::time::{Instant, sleep_until};
use writ_runtime::methods::{PilotLogOf, PilotShow, PilotStateOf};
use writ_tui::renderer::Paint;
use writ_tui::screen::USUAL_COLUMNS;
use writ_tui::watch::terminal::WatchTerminal;
use writ_tui::watch::{LOG_LINES, WatchEffect, WatchLook, WatchView};
use writ_types::api::pilot::{PilotLogQuery, PilotProject, PilotSessionQuery, PilotState};
use writ_types::error::Exit;

use super::{LOOK_EVERY, describe_settings, describe_status, project_of};
use crate::args::PilotPlace;
use crate::client::EngineClient;
use crate::context::Context;
use crate::failure::Failure;

/// The time between two looks of a view in which no key is pressed.
const VIEW_EVERY: Duration = Duration::from_millis(500);
/// The rows of a terminal that does not say how many it has.
const USUAL_ROWS: usize = 24;

/// Shows the state of a project, or its settings.
pub(super) async fn show_status(
    context: &Context,
    mut client: EngineClient,
    (place, watch, settings): (&PilotPlace, bool, bool),
) -> Result<(), Failure> {
    let project = project_of(context, place)?;
    if settings {
        let status = client.ask::<PilotShow>(&project).await?;
        return context.out.print_either(&status.settings, |settings| describe_settings(settings));
    }
    if watch && has_screen(context) {
        return watch_on_screen(context, client, &project).await;
    }
    let mut shown = None;
    loop {
        let status = client.ask::<PilotShow>(&project).await?;
        // Only changes, so that a file of lines does not grow while nothing happens.
        if shown.as_ref() != Some(&status) {
            context.out.print_either(&status, describe_status)?;
        }
        if !watch {
            return Ok(());
        }
        shown = Some(status);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Returns true if a view can be drawn, and keys can be read.
fn has_screen(context: &Context) -> bool {
    let streams = &context.host.streams;
    // Without a name of its own, a terminal may understand none of the sequences.
    let can_draw = context.env.text_of("TERM").is_some_and(|term| term != "dumb");
    !context.out.json && can_draw && streams.input.is_terminal() && streams.output.is_terminal()
}

async fn watch_on_screen(
    context: &Context,
    client: EngineClient,
    project: &PilotProject,
) -> Result<(), Failure> {
    let mut view = WatchView::default();
    // Before the terminal is taken: where nothing is planned there is nothing to watch.
    let (mut client, first) = look_once(context, Some(client), (project, None)).await;
    view.take_look(first?);
    let no_color = context.env.text_of("NO_COLOR").is_some();
    let paint = if no_color { Paint::Plain } else { Paint::Color };
    let mut terminal = WatchTerminal::open_terminal(context.host.streams.output.clone())?;
    loop {
        let selected = view.selected_unit().map(str::to_owned);
        // While the engine is asked, keys work: one that does not answer can be left.
        let asked = look_once(context, client.take(), (project, selected.as_deref()));
        tokio::pin!(asked);
        let (again, looked) = loop {
            show_view(&mut terminal, &view, paint)?;
            tokio::select! {
                looked = &mut asked => break looked,
                key = terminal.next_key() => if view.press_key(key) == WatchEffect::Leave { return Ok(()) },
            }
        };
        client = again;
        match looked {
            Ok(look) => view.take_look(look),
            Err(failure) => view.note_fault(&describe_failure(&failure)),
        }
        let next = Instant::now() + VIEW_EVERY;
        // The last lines of another unit are asked for at once.
        while view.selected_unit() == selected.as_deref() {
            show_view(&mut terminal, &view, paint)?;
            tokio::select! {
                () = sleep_until(next) => break,
                key = terminal.next_key() => if view.press_key(key) == WatchEffect::Leave { return Ok(()) },
            }
        }
    }
}

fn show_view<W: Write>(
    terminal: &mut WatchTerminal<W>,
    view: &WatchView,
    paint: Paint,
) -> Result<(), Failure> {
    let size = terminal_size()
        .map_or((USUAL_ROWS, USUAL_COLUMNS), |(width, height)| (height.0.into(), width.0.into()));
    terminal.show_rows(view.draw_rows(size, paint), size).map_err(|error| Failure::output_error(&error))
}

/// Asks the engine for everything that a view shows, with the last lines of a unit. Returns the connection if it can be used again. An
/// engine that has ended is not started by a look.
async fn look_once(
    context: &Context,
    client: Option<EngineClient>,
    (project, unit): (&PilotProject, Option<&str>),
) -> (Option<EngineClient>, Result<WatchLook, Failure>) {
    let connected = match client {
        Some(client) => Ok(Some(client)),
        None => EngineClient::connect(context).await,
    };
    let mut client = match connected {
        Ok(Some(client)) => client,
        Ok(None) => return (None, Err(no_engine())),
        Err(failure) => return (None, Err(failure)),
    };
    match ask_all(&mut client, project, unit).await {
        Ok(look) => (Some(client), Ok(look)),
        // After a failure the answers of this connection may be behind its questions.
        Err(failure) => (None, Err(failure)),
    }
}

async fn ask_all(
    client: &mut EngineClient,
    project: &PilotProject,
    unit: Option<&str>,
) -> Result<WatchLook, Failure> {
    let status = client.ask::<PilotShow>(project).await?;
    let query = PilotSessionQuery { session: Some(status.session) };
    let snapshot = match client.ask::<PilotStateOf>(&query).await? {
        PilotState::One(one) => Some(*one),
        PilotState::All(_) => None,
    };
    let selected = unit.filter(|id| status.units.iter().any(|unit| unit.id == *id));
    let logged = selected.or_else(|| status.units.first().map(|unit| unit.id.as_str())).map(str::to_owned);
    // The log is read last: the unit whose lines are shown may be the first of a plan that has just come.
    let mut log = Vec::new();
    if let Some(unit) = logged.clone() {
        let query =
            PilotLogQuery { project: status.project.clone(), unit, attempt: 0, last: LOG_LINES, skip: 0 };
        log = client.ask::<PilotLogOf>(&query).await?.lines;
    }
    Ok(WatchLook { status, snapshot, logged, log })
}

fn no_engine() -> Failure {
    Failure::new(Exit::Blocked, "pilot.no_engine", "the engine has ended", "start it with `writ pilot auto`")
}

fn describe_failure(failure: &Failure) -> String {
    match failure {
        Failure::Report(report) => report.outside.clone(),
        Failure::Interrupted | Failure::ReaderGone | Failure::Code(_) => {
            "the engine could not be asked".to_owned()
        }
    }
}
