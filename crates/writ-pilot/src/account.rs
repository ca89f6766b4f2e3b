//! The account of a project: its report, the log of a unit, and what a unit changes, read from the store, the ledger and git.

use std::collections::BTreeMap;

use writ_autopilot::failure::FailureCode;
use writ_autopilot::unit_id::{UnitId, UnitType};
use writ_sandbox::git::commits::{CommitLine, diff_text, list_commits};
use writ_sandbox::git::refs::read_ref;
use writ_store::reads::{UnitReads as _, WorkReads as _};
use writ_store::units::{GateRow, MAX_UNITS, RunRow};
use writ_types::api::pilot::{
    PilotChanges, PilotReport, ReportCommit, ReportGate, ReportMove, ReportReview, ReportRun, ReportUnit,
};
use writ_types::unit::{MicroUsd, Timestamp, Tokens};

use crate::drive::{describe_ship, plan_of};
use crate::error::{AutopilotError, PilotGitError};
use crate::project::OpenProject;
use crate::report::MAX_ROWS;
use crate::show;
use crate::standing::read_facts;
use crate::unit_files::UnitFile;

/// The longest diff that is shown, in bytes.
const MAX_DIFF_BYTES: usize = 128 * 1024;
/// The longest reason in a report, in characters.
const MAX_SUMMARY_CHARS: usize = 500;

/// Makes the report of a project, or of a unit with its parts.
///
/// # Errors
///
/// If there is no such unit, or store or git cannot be read.
pub(crate) async fn make_report(
    project: &OpenProject,
    scope: Option<UnitId>,
) -> Result<PilotReport, AutopilotError> {
    let status = show::show_status(project).await?;
    let is_meant = |id: UnitId| scope.is_none_or(|scope| id.is_within(scope));
    let blockers: BTreeMap<&str, String> = status
        .blockers
        .iter()
        .map(|one| (one.unit.as_str(), format!("{}: {}", one.event, one.detail)))
        .collect();
    let mut report = PilotReport {
        project: status.project.clone(),
        made_at: project.hands.now(),
        ..PilotReport::default()
    };
    for line in &status.units {
        let Ok(id) = line.id.parse::<UnitId>() else { continue };
        if !is_meant(id) {
            continue;
        }
        add_unit(project, &mut report, id).await?;
        let blocker = blockers.get(line.id.as_str()).cloned().unwrap_or_default();
        report.units.push(ReportUnit {
            id: line.id.clone(),
            depth: depth_of(id),
            title: line.title.clone(),
            phase: line.phase.clone(),
            status: if blocker.is_empty() { line.status.clone() } else { "blocked".to_owned() },
            blocker,
            request: request_of(project, id).await?,
            cost: line.cost,
        });
    }
    if let Some(scope) = scope.filter(|_| report.units.is_empty()) {
        return Err(AutopilotError::NoUnit { unit: scope.to_string() });
    }
    // Each unit has its own in order; together they are not.
    report.runs.sort_by_key(|run| run.started_at);
    report.gates.sort_by_key(|gate| gate.at);
    report.moves.sort_by_key(|one| one.at);
    report.cost = report.runs.iter().fold(MicroUsd::ZERO, |sum, run| sum.saturating_add(run.cost));
    report.tokens = report.runs.iter().fold(Tokens::ZERO, |sum, run| sum.saturating_add(run.tokens));
    report.commits = commits_of(project, &is_meant, scope).await?;
    // The newest tell most; a report of a hundred thousand attempts is read by no one.
    for rows in [report.runs.len(), report.gates.len(), report.moves.len()] {
        if rows > MAX_ROWS {
            tracing::info!(rows, "a report leaves rows out");
        }
    }
    keep_newest(&mut report.runs);
    keep_newest(&mut report.gates);
    keep_newest(&mut report.moves);
    Ok(report)
}

/// Returns the address of a unit's request at a forge, or how it stands.
async fn request_of(project: &OpenProject, id: UnitId) -> Result<String, AutopilotError> {
    let row = project.hands.store().unit(project.key_of(id)).await?;
    let facts = row.as_ref().map(read_facts).transpose()?;
    let ship = describe_ship(project, facts.and_then(|facts| facts.ship).as_ref()).await?;
    Ok(ship.map(|ship| if ship.url.is_empty() { ship.text } else { ship.url }).unwrap_or_default())
}

fn keep_newest<T>(rows: &mut Vec<T>) {
    rows.drain(..rows.len().saturating_sub(MAX_ROWS));
}

fn depth_of(id: UnitId) -> u32 {
    match id.unit_type() {
        UnitType::Milestone => 0,
        UnitType::Slice => 1,
        UnitType::Task => 2,
    }
}

/// Adds what the store has of one unit.
async fn add_unit(project: &OpenProject, report: &mut PilotReport, id: UnitId) -> Result<(), AutopilotError> {
    let (store, key, unit) = (project.hands.store(), project.key_of(id), id.to_string());
    let now = project.hands.now();
    report.runs.extend(store.unit_runs(key.clone()).await?.into_iter().map(|run| run_of(run, now)));
    report.gates.extend(store.unit_gates(key.clone()).await?.into_iter().map(gate_of));
    let moves = store.unit_transitions(key).await?.into_iter();
    report.moves.extend(moves.map(|one| ReportMove {
        at: one.at,
        unit: unit.clone(),
        from: one.from,
        to: one.to,
        cause: one.reason,
    }));
    let findings = project.files.read_newest(id, UnitFile::Review)?;
    if !findings.trim().is_empty() {
        report.reviews.push(ReportReview { unit, findings });
    }
    Ok(())
}

fn run_of(run: RunRow, now: Timestamp) -> ReportRun {
    let end = run.end;
    let error = end.as_ref().map(|end| end.error_code.clone()).unwrap_or_default();
    let until = end.as_ref().map_or(now, |end| end.at);
    ReportRun {
        millis: millis_between(run.started_at, until),
        unit: run.unit,
        phase: run.phase,
        attempt: run.attempt,
        started_at: run.started_at,
        tokens: end.as_ref().map_or(Tokens::ZERO, |end| end.input.saturating_add(end.output)),
        cost: end.as_ref().map_or(MicroUsd::ZERO, |end| end.cost),
        class: FailureCode::of_row(&error).map(FailureCode::class),
        error,
        end: end.map(|end| end.outcome).unwrap_or_default(),
    }
}

/// Returns the milliseconds from one time to another; zero if the clock was set back.
pub(crate) fn millis_between(from: Timestamp, until: Timestamp) -> u64 {
    u64::try_from(until.time_since(from).as_millis()).unwrap_or(u64::MAX)
}

fn gate_of(row: GateRow) -> ReportGate {
    ReportGate {
        summary: first_line(&row.output),
        unit: row.key.id,
        name: row.gate,
        attempt: row.attempt,
        verdict: if row.passed { "pass" } else { "fail" }.to_owned(),
        millis: row.duration_ms,
        at: row.at,
    }
}

/// Returns the first line of a text, cut.
pub(crate) fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(MAX_SUMMARY_CHARS).collect()
}

/// Lists the commits of units that the target has.
async fn commits_of(
    project: &OpenProject,
    is_meant: &impl Fn(UnitId) -> bool,
    scope: Option<UnitId>,
) -> Result<Vec<ReportCommit>, AutopilotError> {
    let git = project.git.project();
    let tip = read_ref(git, &project.target.to_ref()).await.map_err(PilotGitError::from)?;
    let Some(tip) = tip else { return Ok(Vec::new()) };
    let all = list_commits(git, None, &tip).await.map_err(PilotGitError::from)?;
    // A task has no commits of its own: they are on the branch of its slice.
    let is_of = |unit: &str| {
        unit.parse::<UnitId>().is_ok_and(|id| is_meant(id) || scope.is_some_and(|scope| scope.is_within(id)))
    };
    let of_units = all.into_iter().filter(|commit| commit.unit.as_deref().is_some_and(is_of));
    Ok(of_units.take(MAX_ROWS).map(show_commit).collect())
}

/// Shows a commit to people.
pub(crate) fn show_commit(commit: CommitLine) -> ReportCommit {
    ReportCommit {
        id: commit.id.to_string(),
        unit: commit.unit.unwrap_or_default(),
        subject: commit.subject,
        at: Timestamp::from_millis(commit.seconds.saturating_mul(1_000)),
        is_merge: commit.parents.len() > 1,
    }
}

/// Shows what a unit's slice changes that is not in the target, and what its running attempt has changed until now.
///
/// # Errors
///
/// If there is no such unit, or git or the store cannot be read.
pub(crate) async fn show_changes(project: &OpenProject, id: UnitId) -> Result<PilotChanges, AutopilotError> {
    let lines = project.hands.store().unit_lines(&project.name, MAX_UNITS).await?;
    if !lines.iter().any(|line| line.id == id.to_string()) {
        return Err(AutopilotError::NoUnit { unit: id.to_string() });
    }
    let mut shown =
        PilotChanges { unit: id.to_string(), target: project.target.to_string(), ..PilotChanges::default() };
    // A milestone has no branch.
    if id.unit_type() == UnitType::Milestone {
        return Ok(shown);
    }
    let work = project.work_of(id).await?;
    let Some((base, tip)) = project.git.read_branch(&work.branch).await? else { return Ok(shown) };
    let diff = diff_text(project.git.project(), base.as_str(), tip.as_str()).await;
    let diff = diff.map_err(PilotGitError::from)?;
    (shown.diff, shown.is_cut) = cut_lines(&diff);
    shown.branch = work.branch.to_string();
    shown.pending = pending_of(project, id).await?;
    Ok(shown)
}

/// Cuts a diff at the end of a line.
fn cut_lines(diff: &str) -> (String, bool) {
    if diff.len() <= MAX_DIFF_BYTES {
        return (diff.to_owned(), false);
    }
    let head = diff.get(..diff.floor_char_boundary(MAX_DIFF_BYTES)).unwrap_or_default();
    let end = head.rfind('\n').map_or(head.len(), |at| at + 1);
    (head.get(..end).unwrap_or(head).to_owned(), true)
}

/// Lists the files that the running attempts of a unit have changed.
async fn pending_of(project: &OpenProject, id: UnitId) -> Result<Vec<String>, AutopilotError> {
    let store = project.hands.store();
    let mut files = Vec::new();
    for child in store.children_of(plan_of(project, id).await?).await? {
        if store.work_item(child).await?.is_some_and(|item| item.name == id.to_string()) {
            // An attempt that ends meanwhile has none.
            files.extend(project.hands.pending_files(child).await.unwrap_or_default());
        }
    }
    files.sort();
    files.dedup();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_is_cut_at_the_end_of_a_line() {
        let line = format!("+{}\n", "é".repeat(49));
        let (cut, is_cut) = cut_lines(&line.repeat(3_000));
        assert!(is_cut && cut.len() <= MAX_DIFF_BYTES && cut.ends_with("é\n"));
        assert_eq!(cut_lines("+a\n"), ("+a\n".to_owned(), false));
    }
}
