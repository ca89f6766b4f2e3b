//! Documents that a change makes out of date: before its merge an agent is asked about them once, and what it proposes is committed to the
//! branch when a person has accepted it, so that the gates of the merge judge it with everything else.
//!
//! It is advice: an agent that does not answer, or answers with something else than a diff of these documents, holds no merge up.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use writ_autopilot::attempt::RunEnd;
use writ_autopilot::blocker::{Blocker, PauseCause};
use writ_autopilot::check::protected::PathRules;
use writ_autopilot::doc_diff::{DocDiff, read_doc_diff};
use writ_autopilot::machine::UnitEvent;
use writ_autopilot::phase::PilotPhase;
use writ_sandbox::git::CommitId;
use writ_sandbox::git::commits::diff_text;
use writ_sandbox::git::files::{find_file, read_files};
use writ_types::digest::Digest;
use writ_types::unit::{MicroUsd, Tokens};

use super::diff::rules_of;
use super::turns::{AgentTask, WorkEnd, ended_badly, run_agent};
use super::{PhaseResult, WorkClaim, outcome_name};
use crate::config::DocSync;
use crate::error::{AutopilotError, PilotGitError};
use crate::project::OpenProject;
use crate::prompts::DocumentsPrompt;
use crate::standing::UnitRecord;
use crate::unit_files::UnitFile;

/// The documents of a project that a change may make out of date.
const DOCUMENTS: [&str; 3] = ["ARCHITECTURE.md", "CONVENTIONS.md", "STACK.md"];

type UsedUp = (Tokens, Tokens, MicroUsd);

/// The state of the documents of one commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum DocState {
    /// A diff waits for a person.
    Proposed,
    /// The person has accepted it.
    Accepted,
    /// Nothing is left to do.
    Settled,
}

/// What is known of the documents of a unit's branch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DocStand {
    /// The commit of the branch.
    tip: String,
    state: DocState,
    /// The digest of the diff that was proposed: another one was seen by no person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    proposed: Option<Digest>,
}

/// What the documents mean for the merge.
pub(super) enum DocStep {
    /// The merge goes on.
    Merge {
        /// A sentence about the documents for the record; empty if there is nothing to say.
        note: String,
        /// What was used.
        used: UsedUp,
    },
    /// The run ends with this.
    End(Box<PhaseResult>),
}

impl DocStep {
    fn merge(note: impl Into<String>, used: UsedUp) -> Self {
        Self::Merge { note: note.into(), used }
    }
}

const NOTHING: UsedUp = (Tokens::ZERO, Tokens::ZERO, MicroUsd::ZERO);

/// Returns true if the worker that merges a unit is going to ask an agent about documents, which costs money.
///
/// # Errors
///
/// If git or the files cannot be read.
pub(super) async fn asks_agent(project: &OpenProject, unit: &UnitRecord) -> Result<bool, AutopilotError> {
    if unit.stand.phase != PilotPhase::Merge || project.config().doc_sync == DocSync::Off {
        return Ok(false);
    }
    let Some((base, tip)) = branch_of(project, unit).await? else { return Ok(false) };
    if base == tip || read_stand(project, unit, &tip)?.is_some() {
        return Ok(false);
    }
    Ok(!read_documents(project, &tip, &rules_of(project, unit.id).await?).await?.is_empty())
}

/// Brings the documents of a unit's branch up to date before its merge, as far as a person and the settings let it.
///
/// # Errors
///
/// If git, the files, the engine or the store fail.
pub(super) async fn sync_documents(
    project: &Arc<OpenProject>,
    work: &WorkClaim,
    stop: &CancellationToken,
) -> Result<DocStep, AutopilotError> {
    let unit = &work.unit;
    let sync = project.config().doc_sync;
    let none = || Ok(DocStep::merge("", NOTHING));
    if sync == DocSync::Off {
        return none();
    }
    // What is wrong with the branch is the merge's to say.
    let Some((base, tip)) = branch_of(project, unit).await?.filter(|(base, tip)| base != tip) else {
        return none();
    };
    let stand = read_stand(project, unit, &tip)?;
    if stand.as_ref().is_some_and(|stand| stand.state == DocState::Settled) {
        return none();
    }
    // Without any of them there is nothing to ask about.
    let documents = read_documents(project, &tip, &rules_of(project, unit.id).await?).await?;
    if documents.is_empty() {
        return none();
    }
    let names: Vec<&str> = documents.keys().map(String::as_str).collect();
    if let Some(stand) = stand {
        return go_on(project, unit, (&tip, &documents), &stand).await;
    }
    let ended = ask(project, work, (&base, &tip, &names), stop).await?;
    let used = ended.used;
    match ended.end {
        RunEnd::Success => {}
        RunEnd::Interrupted | RunEnd::Canceled => return Ok(DocStep::End(Box::new(ended_badly(ended)))),
        RunEnd::Failure | RunEnd::Abandoned | RunEnd::Stalled | RunEnd::UnitTimeout | RunEnd::TurnTimeout => {
            let why = format!("no agent has looked at the documents: {}", ended_badly(ended).reason);
            return settle(project, unit, &tip, (&why, used));
        }
    }
    let read = read_doc_diff(&ended.said, &names).and_then(|diff| {
        diff.map(|diff| diff.apply_to(&documents).map(|changed| (diff, changed))).transpose()
    });
    match read {
        Ok(Some((diff, changed))) if !changed.is_empty() => {
            // Before its state, so that what is proposed can be shown.
            project.files.write_file(unit.id, UnitFile::DocDiff, diff.text())?;
            if sync == DocSync::Unasked {
                return commit(project, unit, (&tip, &documents), (&diff, used)).await;
            }
            let proposed = Some(Digest::of_bytes(diff.text().as_bytes()));
            write_stand(
                project,
                unit,
                &DocStand { tip: tip.as_str().to_owned(), state: DocState::Proposed, proposed },
            )?;
            Ok(wait_for_person(&diff, used))
        }
        Ok(_) => settle(project, unit, &tip, ("", used)),
        Err(error) => {
            let why = format!("the documents stay as they are, since the proposed change is none: {error}");
            settle(project, unit, &tip, (&why, used))
        }
    }
}

/// Goes on where a change was proposed before: it is committed once a person has accepted it.
async fn go_on(
    project: &OpenProject,
    unit: &UnitRecord,
    (tip, documents): (&CommitId, &BTreeMap<String, String>),
    stand: &DocStand,
) -> Result<DocStep, AutopilotError> {
    let names: Vec<&str> = documents.keys().map(String::as_str).collect();
    let text = project.files.read_file(unit.id, UnitFile::DocDiff)?;
    let is_same = stand.proposed == Some(Digest::of_bytes(text.as_bytes()));
    match read_doc_diff(&text, &names) {
        Ok(Some(diff)) if is_same && stand.state == DocState::Accepted => {
            commit(project, unit, (tip, documents), (&diff, NOTHING)).await
        }
        Ok(Some(diff)) if is_same => Ok(wait_for_person(&diff, NOTHING)),
        // The file was removed or changed by hand: what a person has not seen is not committed.
        Ok(_) | Err(_) => settle(project, unit, tip, ("the proposed change is not there", NOTHING)),
    }
}

/// Writes a person's answer to a proposed change of documents down. Returns false if the unit waits for none.
///
/// # Errors
///
/// If the files cannot be read or written.
pub(crate) fn answer_documents(
    project: &OpenProject,
    unit: &UnitRecord,
    is_accepted: bool,
) -> Result<bool, AutopilotError> {
    if !waits_for_documents(unit) {
        return Ok(false);
    }
    // Of another commit than that of the branch it counts for nothing later.
    let stand = read_file(project, unit)?;
    let state = if is_accepted { DocState::Accepted } else { DocState::Settled };
    let (tip, proposed) = stand.map(|stand| (stand.tip, stand.proposed)).unwrap_or_default();
    write_stand(project, unit, &DocStand { tip, state, proposed })?;
    Ok(true)
}

/// Returns true if a unit waits for a person's answer to a change of documents.
pub(crate) fn waits_for_documents(unit: &UnitRecord) -> bool {
    unit.stand.blockers.contains(&Blocker::of_pause(PauseCause::Documents))
}

/// Returns the change of documents that waits for a person; empty if there is none.
///
/// # Errors
///
/// If the file cannot be read.
pub(crate) fn proposed_documents(project: &OpenProject, unit: &UnitRecord) -> Result<String, AutopilotError> {
    if !waits_for_documents(unit) {
        return Ok(String::new());
    }
    project.files.read_file(unit.id, UnitFile::DocDiff)
}

async fn branch_of(
    project: &OpenProject,
    unit: &UnitRecord,
) -> Result<Option<(CommitId, CommitId)>, AutopilotError> {
    let own = project.work_of(unit.id).await?;
    Ok(project.git.read_branch(&own.branch).await?)
}

/// Reads the documents of a commit that an agent may change, by their names. A link, a huge file or one that is no text is none.
async fn read_documents(
    project: &OpenProject,
    tip: &CommitId,
    rules: &PathRules,
) -> Result<BTreeMap<String, String>, AutopilotError> {
    let (git, mut documents) = (project.git.project(), BTreeMap::new());
    for name in DOCUMENTS.into_iter().filter(|name| rules.protection_of(name).is_none()) {
        let Some(file) = find_file(git, tip, name).await.map_err(PilotGitError::from)? else { continue };
        let read = read_files(git, &[&file]).await.map_err(PilotGitError::from)?.pop().flatten();
        // A link, a huge file or one that is no text is no document.
        if let Some(text) = read.and_then(|bytes| String::from_utf8(bytes).ok()) {
            documents.insert(name.to_owned(), text);
        }
    }
    Ok(documents)
}

/// Asks an agent about the documents; its first reply is the answer.
async fn ask(
    project: &Arc<OpenProject>,
    work: &WorkClaim,
    (base, tip, names): (&CommitId, &CommitId, &[&str]),
    stop: &CancellationToken,
) -> Result<WorkEnd, AutopilotError> {
    let own = project.work_of(work.unit.id).await?;
    let workspace = project.git.ensure_workspace(&own, &project.target).await?;
    let diff = diff_text(project.git.project(), base.as_str(), tip.as_str());
    let diff = diff.await.map_err(PilotGitError::from)?;
    let (session, documents) = (project.session().to_string(), names.iter().map(|name| (*name).to_owned()));
    let input = DocumentsPrompt {
        unit_id: work.unit.id,
        session_id: &session,
        title: &work.unit.row.title,
        documents: &documents.collect::<Vec<String>>(),
        diff: &diff,
    };
    let prompt = project.prompts.render_documents(&input)?;
    let task = AgentTask {
        folder: workspace.folder,
        prompt,
        reads_only: true,
        is_result: None,
        together: NonZeroU32::MIN,
    };
    run_agent(project, work, task, stop).await
}

/// Commits a change of documents, unless the branch has moved since it was proposed.
async fn commit(
    project: &OpenProject,
    unit: &UnitRecord,
    (tip, documents): (&CommitId, &BTreeMap<String, String>),
    (diff, used): (&DocDiff, UsedUp),
) -> Result<DocStep, AutopilotError> {
    // Once more: the file may have been changed since it was written.
    let texts = match diff.apply_to(documents) {
        Ok(texts) => texts,
        Err(error) => return settle(project, unit, tip, (&error.to_string(), used)),
    };
    let own = project.work_of(unit.id).await?;
    // A person may have removed the folder while the change has waited.
    project.git.ensure_workspace(&own, &project.target).await?;
    let is_done = project.git.commit_documents(&own, tip, &texts).await?;
    // Never asked about its own commit.
    let now = branch_of(project, unit).await?.map_or_else(|| tip.clone(), |(_, now)| now);
    let why = if is_done { "" } else { "the documents stay as they are: the work tree has other changes" };
    settle(project, unit, &now, (why, used))
}

/// Writes down that nothing is left to do about the documents at a commit.
fn settle(
    project: &OpenProject,
    unit: &UnitRecord,
    tip: &CommitId,
    (note, used): (&str, UsedUp),
) -> Result<DocStep, AutopilotError> {
    if !note.is_empty() {
        tracing::warn!(unit = %unit.id, note, "documents are not brought up to date");
    }
    write_stand(
        project,
        unit,
        &DocStand { tip: tip.as_str().to_owned(), state: DocState::Settled, proposed: None },
    )?;
    Ok(DocStep::merge(note, used))
}

fn wait_for_person(diff: &DocDiff, used: UsedUp) -> DocStep {
    let names: Vec<&str> = diff.paths().collect();
    let reason = format!(
        "a change of {} is proposed: `writ pilot show` shows it, `writ pilot accept` commits it, `writ pilot reject` leaves it out",
        names.join(", ")
    );
    DocStep::End(Box::new(PhaseResult {
        event: UnitEvent::Pause(PauseCause::Documents),
        outcome: outcome_name(RunEnd::Success),
        code: None,
        reason,
        last_error: None,
        used,
    }))
}

/// Reads what is known of the documents at a commit; `None`: nothing.
fn read_stand(
    project: &OpenProject,
    unit: &UnitRecord,
    tip: &CommitId,
) -> Result<Option<DocStand>, AutopilotError> {
    Ok(read_file(project, unit)?.filter(|stand| stand.tip == tip.as_str()))
}

/// Reads the state of a unit's documents. One that cannot be read says nothing, so that they are looked at anew.
fn read_file(project: &OpenProject, unit: &UnitRecord) -> Result<Option<DocStand>, AutopilotError> {
    Ok(serde_json::from_str(&project.files.read_file(unit.id, UnitFile::DocSync)?).ok())
}

fn write_stand(project: &OpenProject, unit: &UnitRecord, stand: &DocStand) -> Result<(), AutopilotError> {
    let text = serde_json::to_string(stand).unwrap_or_default();
    project.files.write_file(unit.id, UnitFile::DocSync, &text)
}
