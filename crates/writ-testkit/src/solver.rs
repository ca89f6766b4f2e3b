//! A scripted model that makes a failing test pass, knowing nothing but what tools tell it.
//!
//! [`solve_next_step`] is a pure function of the request: it goes through the conversation from the last request of the
//! user, takes the result of each call that it would have made, and answers with the first call that has none
//! yet. So it survives restarts and works over every wire format. It lists the folder, runs the tests, reads the
//! failing assertion, searches for the function, reads it and what it rests on, tries the likeliest edits one by
//! one, and runs the tests after each. What does not fit together ends the work: its closing text then begins
//! with [`NOT_FIXED`], else with [`FIXED`].
//!
//! With repositories of [`crate::repo`] it needs at most [`CALLS_NEEDED`] calls.

use serde_json::json;

use crate::model_server::{ParsedRequest, Reply};

pub(crate) mod replay;

pub(crate) mod report;

pub(crate) mod text;

mod evidence;

mod candidates;

use candidates::Edit;
use evidence::{EditPlace, FailureEvidence};
use replay::{Halt, Replay};
use report::TestRun;

/// The first word of the closing text when the tests pass.
pub const FIXED: &str = "Fixed:";

/// The first words of the closing text when they do not.
pub const NOT_FIXED: &str = "Not fixed:";

/// The most tool calls that a turn needs.
pub const CALLS_NEEDED: usize = 20;

/// The most edits that are tried.
const MAX_EDITS: usize = 8;

/// The tools that it uses.
const TOOLS: [&str; 4] = ["shell_exec", "search", "file_read", "file_patch"];

/// Answers a request. It fits [`Script`](crate::model_server::Script).
pub fn solve_next_step(request: &ParsedRequest) -> Reply {
    replay::reply(request, &TOOLS, |replay| {
        let project = look(replay)?;
        let (first, evidence) = investigate(replay, &project)?;
        let edit = repair(replay, &project, &first, &evidence)?;
        Ok(format!("{FIXED} {}", summary(&evidence, &first, &edit)))
    })
}

/// Describes the change, its reason and its proof.
pub(crate) fn summary(evidence: &FailureEvidence, first: &TestRun, edit: &Edit) -> String {
    let failure = &evidence.failure;
    let changed = edit.changed_lines();
    format!(
        "in `{}`, I changed {changed}. The test `{}` expected {} and got {}; now all {} tests pass.",
        edit.place.path, failure.test, failure.expected, failure.actual, first.total
    )
}

/// A project's language and how it is tested.
#[derive(Clone, Debug)]
pub(crate) struct Project {
    pub(crate) command: String,
}

/// Lists the folder and finds out how the tests run.
pub(crate) fn look(replay: &mut Replay<'_>) -> Result<Project, Halt> {
    let listing = replay.call("I look at the project first.", "file_read", &json!({"path": "."}))?;
    let has = |name: &str| listing.lines().any(|line| line.split("  ").next() == Some(name));
    let command = if has("Cargo.toml") {
        "cargo test --offline".to_owned()
    } else if has("package.json") {
        let manifest = replay.read("package.json")?;
        let script = text::after(&manifest.text(), "\"test\": \"")
            .and_then(|rest| rest.split('"').next().map(str::to_owned));
        match script {
            Some(script) if script.starts_with("node ") => script,
            Some(_) | None => return Err(Halt::stop("package.json names no test command that I know.")),
        }
    } else if has("pyproject.toml") {
        "python3 -m unittest".to_owned()
    } else {
        return Err(Halt::stop("the folder has no Cargo.toml, package.json or pyproject.toml."));
    };
    Ok(Project { command })
}

/// Runs the tests.
pub(crate) fn test(replay: &mut Replay<'_>, project: &Project, say: &str) -> Result<TestRun, Halt> {
    let output = replay.call(say, "shell_exec", &json!({"command": project.command}))?;
    Ok(TestRun::parse(&output))
}

/// Runs the tests and gathers what there is to know about the one that fails.
pub(crate) fn investigate(
    replay: &mut Replay<'_>,
    project: &Project,
) -> Result<(TestRun, FailureEvidence), Halt> {
    let run = test(replay, project, "I run the tests to see what fails.")?;
    if run.total == 0 {
        return Err(Halt::stop(format!(
            "`{}` ran no test: {}",
            project.command,
            text::first_line(&run.output)
        )));
    }
    let Some(failure) = run.failure.clone() else {
        return Err(Halt::stop(format!("`{}` shows no failing assertion.", project.command)));
    };
    let evidence = evidence::gather(replay, failure)?;
    Ok((run, evidence))
}

/// Tries the likeliest edits until the tests pass.
pub(crate) fn repair(
    replay: &mut Replay<'_>,
    project: &Project,
    first: &TestRun,
    evidence: &FailureEvidence,
) -> Result<Edit, Halt> {
    let mut standing: Option<Edit> = None;
    for edit in candidates::rank(evidence).into_iter().take(MAX_EDITS) {
        // An edit of the same place replaces the one before; else that one is taken back first.
        let current = match standing.take() {
            None => edit.place.old.clone(),
            Some(before) if before.place == edit.place => before.new,
            Some(before) => {
                patch(
                    replay,
                    "That was not it; I take it back.",
                    &before.place,
                    &before.new,
                    &before.place.old,
                )?;
                edit.place.old.clone()
            }
        };
        patch(replay, &format!("I change {}.", edit.changed_lines()), &edit.place, &current, &edit.new)?;
        let run = test(replay, project, "I run the tests again.")?;
        if run.passed() {
            if run.total == first.total {
                return Ok(edit);
            }
            let why = format!(
                "the tests pass, but there are {} of them and there were {}.",
                run.total, first.total
            );
            return Err(Halt::stop(why));
        }
        standing = Some(edit);
    }
    if let Some(before) = standing {
        patch(
            replay,
            "That was not it either; I take it back.",
            &before.place,
            &before.new,
            &before.place.old,
        )?;
    }
    Err(Halt::stop(format!(
        "no edit of `{}` that I know makes `{}` pass.",
        evidence.path(),
        evidence.failure.test
    )))
}

fn patch(replay: &mut Replay<'_>, say: &str, place: &EditPlace, old: &str, new: &str) -> Result<(), Halt> {
    let answer = replay.call(say, "file_patch", &json!({"path": place.path, "old": old, "new": new}))?;
    if answer.starts_with("changed ") {
        return Ok(());
    }
    Err(Halt::stop(format!("`{}` could not be changed: {}", place.path, text::first_line(&answer))))
}

#[cfg(test)]
pub(crate) mod tests;
