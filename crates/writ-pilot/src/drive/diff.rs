//! What a change does to the checks that judge it: protected paths, and tests that it takes away or weakens. Nothing of it is run.

use std::collections::BTreeMap;

use writ_autopilot::check::protected::{
    PathRules, Protection, changed_part, is_manifest, program_files, recipe_files,
};
use writ_autopilot::check::scripts::called_files;
use writ_autopilot::check::weakened::{find_weakened_tests, is_test_path};
use writ_autopilot::check::{GateJudgement, ScriptExit, ScriptRun, judge_script};
use writ_autopilot::schedule::workspace_of;
use writ_autopilot::unit_id::{UnitId, UnitType};
use writ_sandbox::git::commits::{changed_paths, diff_text};
use writ_sandbox::git::files::{CommitFile, list_files, read_files};
use writ_sandbox::git::{CommitId, GitProject};
use writ_store::reads::UnitReads as _;
use writ_store::units::MAX_UNITS;

use crate::config::{GateCommand, PilotConfig};
use crate::error::{AutopilotError, PilotGitError};
use crate::planning::{read_allowed_paths, read_kept_paths};
use crate::project::OpenProject;

/// The gate of the harness itself: tests that a change deletes, skips or weakens.
pub(super) const TESTS_KEPT: &str = "tests-kept";
/// The gate of the harness itself: paths that no agent changes.
pub(super) const PROTECTED: &str = "protected-paths";
/// Programs that read the files they name and run none of them: those files can be the work itself.
const READERS: [&str; 9] = ["[", "cat", "cmp", "diff", "egrep", "fgrep", "grep", "test", "wc"];
/// The most scripts of gates that are followed, the most steps from one to the next, and the most characters of one.
const MAX_SCRIPTS: usize = 64;
const MAX_STEPS: usize = 8;
const MAX_SCRIPT_CHARS: usize = 64 * 1024;
/// The most findings that a message lists.
const MAX_LISTED: usize = 20;

/// Returns the paths that settings, gates and the approved plan name for the slice of a unit.
///
/// # Errors
///
/// If the store cannot be read.
pub(super) async fn rules_of(project: &OpenProject, id: UnitId) -> Result<PathRules, AutopilotError> {
    let slice = workspace_of(id);
    let mut rules = PathRules {
        kept: project.config().protected_paths.clone(),
        of_gates: files_of_gates(&project.config()),
        commands: commands_of_gates(&project.config()),
        allowed: Vec::new(),
    };
    for row in project.hands.store().whole_units(&project.name, MAX_UNITS).await? {
        let Ok(unit) = row.key.id.parse::<UnitId>() else { continue };
        if unit.is_within(slice) {
            rules.kept.extend(read_kept_paths(&row.description));
            // The card shows the descriptions of tasks alone, so a person has approved no others.
            if unit.unit_type() == UnitType::Task {
                rules.allowed.extend(read_allowed_paths(&row.description));
            }
        }
    }
    Ok(rules)
}

/// Returns the files that the commands of gates run. Tests that a gate names may be added to.
fn files_of_gates(config: &PilotConfig) -> Vec<String> {
    let mut files = Vec::new();
    for gate in &config.gates {
        match &gate.command {
            GateCommand::Script(path) => files.push(path.clone()),
            GateCommand::Run(argv) => {
                let program = argv.first().map_or("", String::as_str);
                // Behind any other program a file can be what runs.
                if READERS.contains(&program.rsplit('/').next().unwrap_or_default()) {
                    continue;
                }
                // A file of tests that is run itself may be added to where its tests are counted.
                let runs = program_files(argv);
                files.extend(runs.into_iter().filter(|file| !(gate.runs_tests && is_test_path(file))));
                files.extend(recipe_files(program).iter().map(|name| (*name).to_owned()));
                // A word that is no path of the project is none that a change could touch.
                files.extend(argv.iter().filter(|word| !is_test_path(word) && is_file_like(word)).cloned());
            }
        }
    }
    files
}

/// Returns the commands of gates as texts.
fn commands_of_gates(config: &PilotConfig) -> Vec<String> {
    let commands = config.gates.iter().filter_map(|gate| match &gate.command {
        GateCommand::Run(argv) => Some(argv.join(" ")),
        // Its text is read with the files of gates.
        GateCommand::Script(_) => None,
    });
    commands.collect()
}

/// Adds the scripts that the files of gates run, as they are before the change, and the texts of all of them.
async fn follow_scripts(
    git: &GitProject,
    rules: &PathRules,
    base: &CommitId,
) -> Result<PathRules, AutopilotError> {
    let mut rules = rules.clone();
    // Most gates run programs that are no files of the project.
    if rules.of_gates.is_empty() {
        return Ok(rules);
    }
    let files = list_files(git, base).await.map_err(PilotGitError::from)?;
    let there: BTreeMap<&[u8], &CommitFile> = files.iter().map(|file| (file.path.as_slice(), file)).collect();
    let mut known: BTreeMap<String, &CommitFile> = BTreeMap::new();
    let mut open: Vec<String> =
        rules.of_gates.iter().map(|path| path.trim_start_matches("./").to_owned()).collect();
    for _ in 0..MAX_STEPS {
        let fresh: Vec<(String, &CommitFile)> = std::mem::take(&mut open)
            .into_iter()
            .filter(|path| !known.contains_key(path))
            .filter_map(|path| Some((path.clone(), *there.get(path.as_bytes())?)))
            .collect();
        let fresh: BTreeMap<String, &CommitFile> =
            fresh.into_iter().take(MAX_SCRIPTS.saturating_sub(known.len())).collect();
        if fresh.is_empty() {
            break;
        }
        let scripts: Vec<&CommitFile> = fresh.values().copied().collect();
        let texts = read_files(git, &scripts).await.map_err(PilotGitError::from)?;
        for (path, text) in fresh.keys().zip(texts) {
            // A program that is no text calls none that could be seen.
            let Some(text) = text.and_then(|text| String::from_utf8(text).ok()) else { continue };
            let text: String = text.chars().take(MAX_SCRIPT_CHARS).collect();
            let own = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            for file in called_files(&text) {
                open.push(format!("{own}/{file}").trim_start_matches('/').to_owned());
                open.push(file);
            }
            rules.commands.push(text);
        }
        known.extend(fresh);
    }
    // A file of tests that a script runs may be added to: its tests are counted.
    rules.of_gates.extend(known.into_keys().filter(|path| !is_test_path(path)));
    Ok(rules)
}

/// Returns true for a word that can be a file: a folder would protect all of the project.
fn is_file_like(word: &str) -> bool {
    let name = word.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    name.contains('.') && name.chars().any(char::is_alphanumeric) && !word.starts_with('-')
}

/// Judges a change between two commits. What is wrong is a failure of a gate of the harness; nothing: the change is well.
///
/// # Errors
///
/// If git or the store fail.
pub(super) async fn judge_diff(
    project: &OpenProject,
    rules: &PathRules,
    (base, tip): (&CommitId, &CommitId),
) -> Result<Vec<(String, GateJudgement)>, AutopilotError> {
    let git = project.git.project();
    let rules = &follow_scripts(git, rules, base).await?;
    let changes = changed_paths(git, base.as_str(), tip.as_str()).await.map_err(PilotGitError::from)?;
    let mut touched = Vec::new();
    let mut manifests = Vec::new();
    for change in &changes {
        let path = change.path.to_string_lossy().into_owned();
        if let Some(protection) = rules.protection_of(&path) {
            touched.push(format!("{path} ({})", Protection::reason(protection)));
        } else if is_manifest(&path) && !rules.is_allowed(&path) {
            manifests.push(path);
        }
    }
    touched.extend(judge_manifests(git, (manifests, &rules.commands), (base, tip)).await?);
    let mut judged = Vec::new();
    if !touched.is_empty() {
        let listed = touched.iter().take(MAX_LISTED).cloned().collect::<Vec<_>>().join(", ");
        judged.push((PROTECTED.to_owned(), own_failure(format!("these must stay as they are: {listed}"))));
    }
    let diff = diff_text(git, base.as_str(), tip.as_str()).await.map_err(PilotGitError::from)?;
    match find_weakened_tests(&diff, |path| rules.is_allowed(path)) {
        Ok(found) => {
            let lines: Vec<String> = found
                .iter()
                .take(MAX_LISTED)
                .map(|one| format!("{}:{} {:?}: {}", one.path, one.line, one.kind, one.text))
                .collect();
            if !lines.is_empty() {
                let why = format!("tests were weakened:\n{}", lines.join("\n"));
                judged.push((TESTS_KEPT.to_owned(), own_failure(why)));
            }
        }
        Err(error) => judged.push((TESTS_KEPT.to_owned(), own_failure(error.to_string()))),
    }
    Ok(judged)
}

/// Compares manifests in what they say about tests, and in the scripts that gates run.
async fn judge_manifests(
    git: &GitProject,
    (paths, commands): (Vec<String>, &[String]),
    (base, tip): (&CommitId, &CommitId),
) -> Result<Vec<String>, AutopilotError> {
    if paths.is_empty() {
        return Ok(Vec::new());
    }
    let (before, after) = (list_files(git, base).await, list_files(git, tip).await);
    let before = before.map_err(PilotGitError::from)?;
    let after = after.map_err(PilotGitError::from)?;
    let mut touched = Vec::new();
    for path in paths {
        let (old, new) = (read_text(git, &before, &path).await?, read_text(git, &after, &path).await?);
        let part = match (&old, &new) {
            (Ok(old), Ok(new)) => changed_part(&path, (old.as_deref(), new.as_deref()), commands),
            (Err(()), _) | (_, Err(())) => Some("it cannot be read".to_owned()),
        };
        touched.extend(part.map(|part| format!("{path} ({part}: what decides about a check)")));
    }
    Ok(touched)
}

/// Reads a file of a commit; `None`: it is not there. The inner error: it is no text that can be read.
async fn read_text(
    git: &GitProject,
    files: &[CommitFile],
    path: &str,
) -> Result<Result<Option<String>, ()>, AutopilotError> {
    let Some(file) = files.iter().find(|file| file.path == path.as_bytes()) else { return Ok(Ok(None)) };
    let read = read_files(git, &[file]).await.map_err(PilotGitError::from)?;
    let text = read.into_iter().next().flatten().and_then(|bytes| String::from_utf8(bytes).ok());
    Ok(text.map(Some).ok_or(()))
}

fn own_failure(why: String) -> GateJudgement {
    let run =
        ScriptRun { end: ScriptExit::Exited(1), output: why.as_bytes(), reports: &[], runs_tests: false };
    let summary: String = why.lines().next().unwrap_or_default().to_owned();
    GateJudgement { summary, ..judge_script(&run) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_that_gates_run_are_found_in_their_commands() {
        for word in ["./check.sh", "tools/run.py", "a.b"] {
            assert!(is_file_like(word), "{word}");
        }
        for word in ["test", "./...", ".", "src/", "-v", "--config=a.toml"] {
            assert!(!is_file_like(word), "{word}");
        }
    }
}
