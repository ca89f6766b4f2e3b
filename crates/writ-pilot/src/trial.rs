//! The gates that a project could have: found from its files, tried in the sandbox, written into its settings.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use writ_autopilot::check::ScriptVerdict;
use writ_runtime::pilot::{PilotHands, TriedProgram};
use writ_sandbox::git::history::read_history;
use writ_sandbox::git::refs::read_ref;
use writ_sandbox::git::{CommitId, GitFault, GitProject};
use writ_types::api::pilot::PilotTrial;

use crate::config::CONFIG_FILE;
use crate::drive::judge_end;
use crate::error::{AutopilotError, PilotGitError};
use crate::files::ProjectFiles;
use crate::findings::{ProjectFindings, find_all};
use crate::probe::{ProposedGate, TriedGate, propose_gates, save_config, write_config};

/// The time limit of a trial, in seconds: that of a gate with settings that name none (SF 13.2.1).
const TRIAL_SECS: u32 = 300;

/// The settings of a project, as they were written or found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BegunProject {
    /// The file.
    pub file: String,
    /// True if it was written now.
    pub created: bool,
    /// The gates that were found.
    pub gates: Vec<BegunGate>,
    /// The findings about the project; none: they were not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub findings: Option<ProjectFindings>,
}

/// A gate that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BegunGate {
    /// Its name.
    pub name: String,
    /// Its command.
    pub run: Vec<String>,
    /// The reason why it does not pass today; none: it passes, or was not tried.
    pub problem: Option<String>,
}

/// Finds the test, lint and build commands of a project, and writes its settings if it has none. A gate that did not pass in its trial
/// is written switched off, with the reason, as is one of tests that cannot be counted; without a trial every other gate is switched on.
/// Unless `quick` is set, the files and the history of the project are looked through as well.
///
/// # Errors
///
/// If the folder is no repository with a commit, or the file cannot be written.
pub async fn begin_project(
    folder: &Path,
    trials: &[PilotTrial],
    quick: bool,
) -> Result<BegunProject, AutopilotError> {
    let git = GitProject::open_project(folder).await.map_err(PilotGitError::from)?;
    let (branch, tip, files) = read_checkout(&git).await?;
    let gates = propose_gates(&files);
    let findings = match quick {
        true => None,
        // A history that cannot be read is a note, and no reason to write no settings.
        false => Some(find_all(&files, read_history(&git, &tip).await.map_err(|fault| fault.to_string()))),
    };
    let problem_of = |gate: &ProposedGate| {
        trials.iter().find(|tried| tried.name == gate.name).and_then(|tried| tried.problem.clone())
    };
    let tried: Vec<TriedGate> = gates
        .into_iter()
        .map(|gate| {
            let problem = problem_of(&gate);
            TriedGate::new(gate, problem)
        })
        .collect();
    let path = git.top_dir().join(CONFIG_FILE);
    let failed = |error: std::io::Error| AutopilotError::File { path: path.clone(), why: error.to_string() };
    let created = save_config(git.top_dir(), &write_config(Some(&branch), &tried)).map_err(failed)?;
    let gates = tried.into_iter().map(|tried| BegunGate {
        name: tried.gate.name,
        run: tried.gate.run,
        problem: tried.problem,
    });
    let file = path.to_string_lossy().into_owned();
    Ok(BegunProject { file, created, gates: gates.collect(), findings })
}

/// Returns the gates that the files of the branch that is checked out speak for. Nothing is run.
///
/// # Errors
///
/// If no branch with a commit is checked out, or git fails.
pub(crate) async fn find_gates(git: &GitProject) -> Result<Vec<ProposedGate>, AutopilotError> {
    let (_, _, files) = read_checkout(git).await?;
    Ok(propose_gates(&files))
}

/// Reads the branch that is checked out: its name, its newest commit, and the files of that.
async fn read_checkout(git: &GitProject) -> Result<(String, CommitId, ProjectFiles), AutopilotError> {
    let branch = git.current_branch().await.map_err(PilotGitError::from)?;
    let no_commit = |branch: &str| PilotGitError::from(GitFault::NoCommit { branch: branch.to_owned() });
    let name = branch.as_ref().map_or_else(|| "HEAD".to_owned(), ToString::to_string);
    let branch = branch.ok_or_else(|| no_commit(&name))?;
    let tip = read_ref(git, &branch.to_ref()).await.map_err(PilotGitError::from)?;
    let tip = tip.ok_or_else(|| no_commit(&name))?;
    let files = ProjectFiles::read_commit(git, &tip).await.map_err(PilotGitError::from)?;
    Ok((name, tip, files))
}

/// Tries gates one after another, on the folder as it is, with uncommitted changes.
pub(crate) async fn try_gates(
    hands: &PilotHands,
    folder: &Path,
    gates: Vec<ProposedGate>,
) -> Vec<PilotTrial> {
    let mut trials = Vec::new();
    for gate in gates {
        let tried = TriedProgram {
            folder: folder.to_owned(),
            name: gate.name.clone(),
            argv: gate.run,
            env: BTreeMap::from([("WRIT_GATE".to_owned(), gate.name.clone())]),
            stdin: None,
            secs: TRIAL_SECS,
        };
        let (problem, took_ms) = match hands.try_program(tried).await {
            Ok(Ok(ended)) => {
                let judged = judge_end(&ended, (gate.report, gate.report.is_some()));
                let is_good = judged.verdict == ScriptVerdict::Pass;
                ((!is_good).then_some(judged.summary), ended.took_ms)
            }
            Ok(Err(why)) => (Some(why), 0),
            Err(report) => (Some(report.outside), 0),
        };
        trials.push(PilotTrial { name: gate.name, problem, took_ms });
    }
    trials
}
