//! What a change does to the checks that judge it: protected paths, and tests that it takes away or weakens. Nothing of it is run.

use std::collections::BTreeMap;

use writ_autopilot::check::calls::{CalledFile, files_of_command, is_script, normal_path};
use writ_autopilot::check::protected::{PathRules, Protection, changed_part, is_manifest};
use writ_autopilot::check::trail::{ScriptText, ScriptTrail};
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

/// Returns the files and folders that the commands of gates run. Tests that a gate names may be added to.
fn files_of_gates(config: &PilotConfig) -> Vec<String> {
    let mut files = Vec::new();
    // A hook is run as it is in the target, where an agent's own would come with the next merge.
    files.extend(config.hooks.all_scripts().filter_map(|path| normal_path(path)));
    for gate in &config.gates {
        match &gate.command {
            GateCommand::Script(path) => files.extend(normal_path(path)),
            GateCommand::Run(argv) => {
                let program = argv.first().map_or("", String::as_str);
                // Behind any other program a file can be what runs.
                if READERS.contains(&program.rsplit('/').next().unwrap_or_default()) {
                    continue;
                }
                for called in files_of_command(argv) {
                    match called {
                        // A file of tests that is run itself may be added to where its tests are counted.
                        CalledFile::At(path) if gate.runs_tests && is_test_source(&path) => {}
                        CalledFile::At(path) | CalledFile::In(path) => files.push(path),
                        // The trail reports commands that are not followed as a gap.
                        CalledFile::EndsWith(_) | CalledFile::Unfollowed => {}
                    }
                }
                // A word that is no path of the project is none that a change could touch.
                let named = argv.iter().filter(|word| !is_test_path(word) && is_file_like(word));
                files.extend(named.filter_map(|word| normal_path(word)));
            }
        }
    }
    files
}

/// Returns true for the manifest of a package of the project itself.
fn is_own_package(path: &str) -> bool {
    path.rsplit('/').next() == Some("package.json") && !path.split('/').any(|part| part == "node_modules")
}

/// Returns true for a file of tests, other than a script that runs them.
fn is_test_source(path: &str) -> bool {
    is_test_path(path) && !is_script(path)
}

/// Returns where the trail of what gates run begins.
fn starts_of_gates(config: &PilotConfig) -> Vec<CalledFile> {
    let of_command = |command: &GateCommand| match command {
        GateCommand::Script(path) => normal_path(path).map(CalledFile::At).into_iter().collect(),
        GateCommand::Run(argv) => files_of_command(argv),
    };
    config.gates.iter().flat_map(|gate| of_command(&gate.command)).collect()
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

/// Adds the scripts that the files of gates run, as they are before the change, and the texts of all of them. Returns the rules with what
/// could not be followed.
async fn follow_scripts(
    git: &GitProject,
    (rules, starts): (&PathRules, Vec<CalledFile>),
    base: &CommitId,
) -> Result<(PathRules, Vec<String>), AutopilotError> {
    let mut rules = rules.clone();
    // Most gates run programs that are no files of the project.
    if rules.of_gates.is_empty() && starts.is_empty() {
        return Ok((rules, Vec::new()));
    }
    let starts = starts.into_iter().chain(rules.of_gates.iter().cloned().map(CalledFile::At));
    let mut trail = ScriptTrail::new(&rules.commands, starts);
    let files = list_files(git, base).await.map_err(PilotGitError::from)?;
    // A name that is no text is none that a text could have.
    let named = files.iter().filter_map(|file| Some((std::str::from_utf8(&file.path).ok()?, file)));
    let there: BTreeMap<&str, &CommitFile> = named.collect();
    let packages: Vec<(&str, &CommitFile)> =
        there.iter().filter(|(path, _)| is_own_package(path)).map(|(path, file)| (*path, *file)).collect();
    let texts = read_files(git, &packages.iter().map(|(_, file)| *file).collect::<Vec<_>>()).await;
    for ((path, _), text) in packages.iter().zip(&texts.map_err(PilotGitError::from)?) {
        trail.add_package(path, text.as_deref().map_or(ScriptText::Unread, ScriptText::Read));
    }
    loop {
        let next: Vec<&str> = trail.take_next(there.keys().copied()).into_iter().collect();
        if next.is_empty() {
            break;
        }
        let scripts: Vec<&CommitFile> = next.iter().filter_map(|path| there.get(path).copied()).collect();
        let texts = read_files(git, &scripts).await.map_err(PilotGitError::from)?;
        for (path, text) in next.iter().zip(&texts) {
            let text = text.as_deref().map_or(ScriptText::Unread, ScriptText::Read);
            trail.add_text(path, text);
        }
    }
    let end = trail.finish();
    // A file of tests that a script runs may be added to: its tests are counted.
    rules.of_gates.extend(end.paths.into_iter().filter(|path| !is_test_source(path)));
    // A folder of tests, too; the scripts that are there now are among the paths.
    rules.of_gates.extend(end.folders.into_iter().filter(|folder| !is_test_path(&format!("{folder}/x"))));
    rules.commands = end.texts;
    Ok((rules, end.gaps))
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
    let starts = starts_of_gates(&project.config());
    let (rules, gaps) = &follow_scripts(git, (rules, starts), base).await?;
    let changes = changed_paths(git, base.as_str(), tip.as_str()).await.map_err(PilotGitError::from)?;
    // Where something is not looked at, nothing says that the checks are as they were.
    let gap = |gap: &String| format!("the scripts that gates run cannot be followed: {gap}");
    let mut touched: Vec<String> = gaps.iter().map(gap).collect();
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
