//! Shipping: what is merged is pushed to a forge, and a request for review is opened for it.
//!
//! First the unit has the note that it is to be shipped, in a commit of its own; so what a crash cuts off is made up for at the next start.
//! The rest is one action of the engine, which a person approves. It pushes, looks for a request of the branch, and opens one only if there is
//! none. Whatever fails, the work stays merged.

use std::sync::Arc;

use writ_autopilot::names::branch_name;
use writ_autopilot::phase::PilotPhase;
use writ_autopilot::unit_id::{UnitId, UnitType};
use writ_runtime::forge::{MAX_TEXT_CHARS, MAX_TITLE_CHARS, is_project};
use writ_runtime::pilot::NewShip;
use writ_runtime::pilot_desk::BranchPush;
use writ_sandbox::git::push::{RemotePlace, push_commit, read_remote};
use writ_sandbox::git::refs::read_ref;
use writ_sandbox::git::{BranchName, CommitId, GitFault};
use writ_store::approvals::AskState;
use writ_store::batch::Op;
use writ_store::reads::{AskReads as _, UnitReads as _};
use writ_store::units::{MAX_UNITS, UnitOp};
use writ_types::action::ForgeRequest;
use writ_types::api::pilot::{PilotShip, PilotShipState};
use writ_types::error::{Report, ToReport as _};

use super::plan_of;
use crate::config::{ShipConfig, ShipMoment};
use crate::error::{AutopilotError, PilotGitError};
use crate::project::OpenProject;
use crate::standing::{UnitRecord, read_facts};

/// The most parts of a unit that the text of its request lists.
const MAX_LISTED: usize = 100;
/// The longest description in the text of a request, in characters.
const MAX_DESCRIPTION_CHARS: usize = 4_000;

/// Notes that a unit which has ended is to be shipped, if the settings say so, and has it done.
///
/// # Errors
///
/// If the store cannot be read or written.
pub(super) async fn begin_ship(project: &Arc<OpenProject>, unit: &UnitRecord) -> Result<(), AutopilotError> {
    let config = project.config();
    let is_due = config.ship.as_ref().is_some_and(|ship| is_due(ship.at, unit.id));
    if !is_due || unit.facts.ship.is_some() || has_lapsed(project, unit.id).await? {
        return Ok(());
    }
    if merged_parts(project, unit.id).await?.is_empty() {
        return Ok(());
    }
    note(project, unit.id, &PilotShip::in_state(PilotShipState::Pending, project.hands.now())).await?;
    spawn_ship(project, unit.id);
    Ok(())
}

const fn is_due(at: ShipMoment, id: UnitId) -> bool {
    match (at, id.unit_type()) {
        (ShipMoment::Never, _) => false,
        (ShipMoment::Milestone, UnitType::Milestone) | (ShipMoment::Slice, UnitType::Slice) => true,
        (ShipMoment::Milestone | ShipMoment::Slice, UnitType::Task) => id.is_ad_hoc(),
        (ShipMoment::Milestone, UnitType::Slice) | (ShipMoment::Slice, UnitType::Milestone) => false,
    }
}

/// Returns true if the plan of a unit has ended already: the unit ended earlier, and its end is only looked at again.
async fn has_lapsed(project: &OpenProject, id: UnitId) -> Result<bool, AutopilotError> {
    let plan = plan_of(project, id).await?;
    Ok(project.hands.plan_state(plan).await?.is_none_or(|plan| plan.state.is_over()))
}

/// Goes on with what a crash has cut off. A failure is in the log: it must keep no one from looking at the project.
pub(crate) async fn resume_ships(project: &Arc<OpenProject>) {
    let rows = match project.hands.store().whole_units(&project.name, MAX_UNITS).await {
        Ok(rows) => rows,
        Err(error) => return tracing::error!(%error, "units that are to be shipped cannot be read"),
    };
    for row in &rows {
        let ship = read_facts(row).ok().and_then(|facts| facts.ship);
        if let (Some(ship), Ok(id)) = (ship, row.key.id.parse())
            && was_cut_off(project, &ship).await
        {
            spawn_ship(project, id);
        }
    }
}

/// Returns true if a request was to be asked about or opened when an engine ended. One that was begun is asked about again: the forge then
/// shows if it is there.
async fn was_cut_off(project: &OpenProject, ship: &PilotShip) -> bool {
    match (ship.state, &ship.ask) {
        (PilotShipState::Pending, _) => true,
        (PilotShipState::Asked, Some(ask)) => {
            let row = project.hands.store().ask(ask).await.ok().flatten();
            row.is_some_and(|row| row.state == AskState::Used) && !project.hands.is_performing(ask)
        }
        (PilotShipState::Asked | PilotShipState::Opened | PilotShipState::Failed, _) => false,
    }
}

/// Ships a unit by a person's word, if it has not been.
///
/// # Errors
///
/// If the settings name no forge, nothing of the unit is merged, or a question about it waits.
pub(crate) async fn ship_again(project: &Arc<OpenProject>, unit: &UnitRecord) -> Result<(), AutopilotError> {
    let refuse =
        |why: &str, hint| AutopilotError::Ship { unit: unit.id.to_string(), why: why.to_owned(), hint };
    if project.config().ship.is_none() {
        let hint = "write `[pilot.ship]` with a token into `pilot.toml` in the home";
        return Err(refuse("no forge is configured", hint));
    }
    if merged_parts(project, unit.id).await?.is_empty() {
        return Err(refuse("nothing of it is merged", "`writ pilot show UNIT` says how it stands"));
    }
    if let Some(ship) = &unit.facts.ship
        && waits_for_person(project, ship).await?
    {
        return Err(refuse("a question about it waits for your answer", "`writ approvals` shows it"));
    }
    run_ship(project, unit.id).await
}

fn spawn_ship(project: &Arc<OpenProject>, id: UnitId) {
    let shipping = Arc::clone(project);
    project.hands.spawn(project.tasks.track_future(async move {
        if let Err(error) = run_ship(&shipping, id).await {
            tracing::error!(unit = %id, %error, "a unit is not shipped; the next start tries again");
        }
    }));
}

/// Ships a unit. How that went is noted with it.
async fn run_ship(project: &Arc<OpenProject>, id: UnitId) -> Result<(), AutopilotError> {
    // Two pushes of one target at once would race for its branch at the forge.
    let _one = project.git.shipping.lock().await;
    let unit = project.read_unit(id).await?;
    if let Some(ship) = &unit.facts.ship
        && (ship.state == PilotShipState::Opened || waits_for_person(project, ship).await?)
    {
        return Ok(());
    }
    let shipped = match prepare(project, &unit).await {
        Ok(new) => project.hands.ship(new).await,
        Err(error) => Err(error.report()),
    };
    match shipped {
        Ok(()) => {}
        // An engine that ends leaves the note that it is to be shipped.
        Err(_) if project.hands.draining().is_cancelled() => return Ok(()),
        Err(report) => note(project, id, &failed(&report, project)).await?,
    }
    project.looping.wake.notify_one();
    Ok(())
}

fn failed(report: &Report, project: &OpenProject) -> PilotShip {
    PilotShip {
        code: report.code.clone(),
        text: report.outside.clone(),
        hint: report.hint.clone(),
        ..PilotShip::in_state(PilotShipState::Failed, project.hands.now())
    }
}

/// Returns true if a question about a request is open, or what was approved is being done.
async fn waits_for_person(project: &OpenProject, ship: &PilotShip) -> Result<bool, AutopilotError> {
    let (PilotShipState::Asked, Some(ask)) = (ship.state, &ship.ask) else { return Ok(false) };
    let row = project.hands.store().ask(ask).await?;
    Ok(row.is_some_and(|row| matches!(row.state, AskState::Open | AskState::Approved))
        || project.hands.is_performing(ask))
}

/// Describes how the request of a unit stands.
///
/// # Errors
///
/// If the store cannot be read.
pub(crate) async fn describe_ship(
    project: &OpenProject,
    ship: Option<&PilotShip>,
) -> Result<Option<PilotShip>, AutopilotError> {
    let Some(ship) = ship else { return Ok(None) };
    let mut shown = ship.clone();
    match shown.state {
        PilotShipState::Asked if waits_for_person(project, ship).await? => {
            let is_begun = ship.ask.as_ref().is_some_and(|ask| project.hands.is_performing(ask));
            let (text, hint) = if is_begun {
                ("it is being opened", "`writ pilot show UNIT` shows its address in a moment")
            } else {
                ("a question about it waits for your answer", "`writ approvals` shows it")
            };
            text.clone_into(&mut shown.text);
            hint.clone_into(&mut shown.hint);
        }
        PilotShipState::Asked => {
            "it was asked about, and is not open".clone_into(&mut shown.text);
            "`writ pilot ship UNIT` asks again".clone_into(&mut shown.hint);
        }
        PilotShipState::Pending => "it is being opened".clone_into(&mut shown.text),
        PilotShipState::Opened | PilotShipState::Failed => {}
    }
    Ok(Some(shown))
}

async fn note(project: &OpenProject, id: UnitId, ship: &PilotShip) -> Result<(), AutopilotError> {
    let unreadable = |why: String| AutopilotError::Unreadable { unit: id.to_string(), why };
    let ship = serde_json::to_string(ship).map_err(|error| unreadable(error.to_string()))?;
    project.hands.commit(vec![Op::Units(UnitOp::NoteShip { key: project.key_of(id), ship })]).await?;
    Ok(())
}

/// Returns the units within one whose work is in the target by a merge of the autopilot, with their titles.
async fn merged_parts(project: &OpenProject, id: UnitId) -> Result<Vec<(UnitId, String)>, AutopilotError> {
    let store = project.hands.store();
    let mut merged = Vec::new();
    for row in store.whole_units(&project.name, MAX_UNITS).await? {
        let Ok(part) = row.key.id.parse::<UnitId>() else { continue };
        let is_merged_whole = part.unit_type() == UnitType::Slice || part.is_ad_hoc();
        if !is_merged_whole || !part.is_within(id) || !row.is_over || read_facts(&row)?.is_reverted {
            continue;
        }
        let moves = store.unit_transitions(row.key.clone()).await?;
        let (merge, complete) = (PilotPhase::Merge.name(), PilotPhase::Complete.name());
        if moves.iter().any(|one| one.from == merge && one.to == complete) {
            merged.push((part, row.title));
        }
    }
    Ok(merged)
}

/// Prepares the request of a unit: the target as it is now is pushed to a branch with the name of the unit.
async fn prepare(project: &OpenProject, unit: &UnitRecord) -> Result<NewShip, AutopilotError> {
    let refuse = |why: String, hint| AutopilotError::Ship { unit: unit.id.to_string(), why, hint };
    let config = project.config();
    let Some(ship) = &config.ship else {
        return Err(refuse("no forge is configured".to_owned(), "write `[pilot.ship]` into `pilot.toml`"));
    };
    let git = project.git.project();
    let remote = read_remote(git, &ship.remote).await.map_err(PilotGitError::from)?;
    let repository = match (&ship.repository, &remote) {
        (Some(name), _) => name.clone(),
        (None, RemotePlace::Web { path, .. }) => path.clone(),
        (None, RemotePlace::Folder { .. }) => {
            let why = "its remote names no repository of a forge".to_owned();
            return Err(refuse(why, "write `pilot.ship.repository`"));
        }
    };
    if !is_project(ship.forge, &repository) {
        let why = format!("'{repository}' is no repository of a forge of the kind {}", ship.forge.name());
        return Err(refuse(why, "write `pilot.ship.repository` as \"owner/name\""));
    }
    if !is_same_forge(ship, &remote) {
        let why = format!("the remote '{}' is not at the forge whose token is configured", ship.remote);
        return Err(refuse(why, "name another remote, or write at = \"never\" for this project"));
    }
    let target = &project.target;
    let tip = read_ref(git, &target.to_ref()).await.map_err(PilotGitError::from)?;
    let no_commit = || GitFault::NoCommit { branch: target.to_string() };
    let commit = tip.ok_or_else(|| PilotGitError::from(no_commit()))?;
    let branch = unit.facts.branch.clone().unwrap_or_else(|| branch_name(unit.id, &unit.row.title));
    Ok(NewShip {
        project: project.name.clone(),
        remote: remote.address().to_owned(),
        request: ForgeRequest {
            forge: ship.forge,
            api: ship.api.clone(),
            project: repository,
            token: ship.token.clone(),
            unit: unit.id.to_string(),
            commit: commit.to_string(),
            branch,
            base: ship.base.clone().unwrap_or_else(|| target.to_string()),
            title: title_of(unit),
            text: text_of(unit, &merged_parts(project, unit.id).await?),
        },
    })
}

/// Returns true if a token of the forge may go to a remote: to its own host, or to none at all.
fn is_same_forge(ship: &ShipConfig, remote: &RemotePlace) -> bool {
    let Some(host) = remote.host() else { return true };
    let api = RemotePlace::parse_address(&ship.api).ok();
    let api = api.as_ref().and_then(RemotePlace::host).unwrap_or_default();
    // GitHub has its API at a host of its own.
    api == host || (api == "api.github.com" && host == "github.com")
}

fn title_of(unit: &UnitRecord) -> String {
    // A planner has written it: forges cut a longer one, or refuse it.
    let line = unit.row.title.lines().next().unwrap_or_default().trim();
    let title: String = line.chars().filter(|c| !c.is_control()).take(MAX_TITLE_CHARS).collect();
    if title.is_empty() { unit.id.to_string() } else { title }
}

/// Writes the text of a request: what was to be done, and what was merged.
fn text_of(unit: &UnitRecord, parts: &[(UnitId, String)]) -> String {
    let mut text: String = unit.row.description.trim().chars().take(MAX_DESCRIPTION_CHARS).collect();
    if !text.is_empty() {
        text.push_str("\n\n");
    }
    text.push_str("Merged and checked by Writ:\n\n");
    for (id, title) in parts.iter().take(MAX_LISTED) {
        let line: String = title.chars().filter(|c| !c.is_control()).take(MAX_TITLE_CHARS).collect();
        text.push_str(&format!("* {id}: {line}\n"));
    }
    if parts.len() > MAX_LISTED {
        text.push_str(&format!("* and {} more\n", parts.len() - MAX_LISTED));
    }
    if let Some(issue) = unit.facts.gh_issue {
        text.push_str(&format!("\nRefs #{issue}\n"));
    }
    text.chars().take(MAX_TEXT_CHARS).collect()
}

/// Pushes a branch, as the engine's performer asks once the door has permitted it.
///
/// # Errors
///
/// If the names are none, the other side refuses, or it cannot be reached.
pub(crate) async fn push_branch(project: &OpenProject, push: &BranchPush) -> Result<(), AutopilotError> {
    let pushed = async {
        let to = RemotePlace::parse_address(&push.remote)?;
        let branch = BranchName::parse_name(&push.branch)?;
        let commit = CommitId::parse_id(&push.commit)?;
        let git = project.git.project();
        push_commit(git, (&to, &branch), &commit, push.authorization.as_ref()).await
    };
    Ok(pushed.await.map_err(PilotGitError::from)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(api: &str) -> ShipConfig {
        ShipConfig {
            at: ShipMoment::Milestone,
            forge: writ_types::action::ForgeKind::Github,
            api: api.to_owned(),
            token: "secret:forge".parse().expect("a reference"),
            repository: None,
            remote: "origin".to_owned(),
            base: None,
        }
    }

    /// A token goes to the host of its forge alone; a folder of this machine gets none.
    ///
    /// Rows: SF-518 (in part: the token goes to the forge alone)
    #[test]
    fn a_token_goes_to_the_host_of_its_forge_alone() {
        let fits = |api: &str, remote: &str| {
            is_same_forge(&config(api), &RemotePlace::parse_address(remote).expect("an address"))
        };
        assert!(fits("https://api.github.com", "https://github.com/o/r.git"));
        assert!(fits("https://git.example.org/api/v1", "https://git.example.org:8443/o/r"));
        assert!(fits("https://api.github.com", "/srv/r.git"));
        for (api, remote) in [
            ("https://api.github.com", "https://github.com.example.org/o/r"),
            ("https://api.github.com", "https://gitlab.com/o/r"),
            ("https://git.example.org/api/v1", "https://example.org/o/r"),
        ] {
            assert!(!fits(api, remote), "{api} {remote}");
        }
    }

    /// Requests are opened for milestones or for slices, and for tasks that were asked for directly.
    ///
    /// Rows: SF-071 (in part: the moment of a request)
    #[test]
    fn requests_are_opened_at_the_moment_that_the_settings_name() {
        let id = |text: &str| text.parse::<UnitId>().expect("an id");
        for (at, due) in [
            (ShipMoment::Milestone, ["milestone/m1", "task/m0/s0/t1"].as_slice()),
            (ShipMoment::Slice, &["slice/m1/s1", "task/m0/s0/t1"]),
            (ShipMoment::Never, &[]),
        ] {
            for unit in ["milestone/m1", "slice/m1/s1", "task/m1/s1/t1", "task/m0/s0/t1"] {
                assert_eq!(is_due(at, id(unit)), due.contains(&unit), "{at:?} {unit}");
            }
        }
    }
}
