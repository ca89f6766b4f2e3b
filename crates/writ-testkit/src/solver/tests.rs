//! The solver against generated repositories, with the real tools' arguments and renderings.

use std::path::Path;

pub(crate) mod executor;

use executor::{Ended, Falsify, turn};

use super::*;
use crate::repo::{Generated, Language, generate_repository};

/// How many repositories of each language.
const SEEDS: u64 = 20;

async fn repository(seed: u64, language: Language, dir: &Path) -> Generated {
    generate_repository(seed, language, dir).await.expect("generated")
}

fn honest(_: usize, _: &str, text: String) -> String {
    text
}

/// Solves one repository and checks that only the wrong file is another.
async fn solves(seed: u64, language: Language) -> usize {
    let dir = tempfile::tempdir().expect("a folder");
    let generated = repository(seed, language, dir.path()).await;
    let Ended { closing, steps } = turn(dir.path(), solve_next_step, honest);
    let fix = &generated.expected_fix;
    let about = format!("{language:?} {seed} {:?}\n{closing}\n{steps:#?}\n{}", fix.family, fix.wrong);
    assert!(closing.starts_with(FIXED) && closing.contains(&fix.path), "{about}");
    assert!(steps.len() <= CALLS_NEEDED, "{} calls: {about}", steps.len());
    let status = host_git(dir.path(), &["status", "--porcelain"]).await;
    assert_eq!(status, format!(" M {}\n", fix.path), "{about}");
    steps.len()
}

async fn host_git(dir: &Path, arguments: &[&str]) -> String {
    let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
    let output = writ_sandbox::host::host_git(dir, &arguments).await.expect("git runs");
    assert_eq!(output.code, 0, "{}", output.stderr);
    String::from_utf8(output.stdout).expect("UTF-8")
}

async fn solves_all(language: Language) {
    let mut calls = Vec::new();
    for seed in 0..SEEDS {
        calls.push(solves(seed, language).await);
    }
    assert_eq!(calls.len(), usize::try_from(SEEDS).expect("few"));
    assert!(calls.iter().any(|calls| *calls > 6), "some need more than one try: {calls:?}");
    println!("{language:?}: {calls:?}");
}

#[tokio::test]
async fn rust_is_solved() {
    solves_all(Language::Rust).await;
}

#[tokio::test]
async fn python_is_solved() {
    solves_all(Language::Python).await;
}

#[tokio::test]
async fn javascript_is_solved() {
    solves_all(Language::JavaScript).await;
}

/// The executor of these tests has no sandbox around it: what it is asked must not matter.
#[test]
fn the_executor_stays_in_its_folder() {
    let above = tempfile::tempdir().expect("a folder");
    let dir = above.path().join("project");
    std::fs::create_dir(&dir).expect("a folder");
    for path in ["/etc/writ-test", "../out", "a/../../out"] {
        assert!(executor::outside(path), "{path}");
    }
    let script = |request: &crate::model_server::ParsedRequest| match request.results().count() {
        0 => Reply::call("file_write", json!({"path": above_path(), "content": "x"})),
        1 => Reply::call("file_write", json!({"path": "../out", "content": "x"})),
        2 => Reply::call("file_read", json!({"path": above_path()})),
        _ => Reply::text("done"),
    };
    let ended = turn(&dir, script, honest);
    assert_eq!(ended.steps.len(), 3);
    assert!(!Path::new(&above_path()).exists() && !above.path().join("out").exists());
    assert!(ended.steps.iter().all(|(_, _, text)| !text.starts_with("created")), "{ended:#?}");
}

/// A path outside every test's folder, at which nothing is.
fn above_path() -> String {
    std::env::temp_dir().join("writ-testkit-outside").display().to_string()
}

/// Lets the solver work on false results, and expects it to notice.
async fn notices(language: Language, falsify: Falsify, why: &str) {
    let dir = tempfile::tempdir().expect("a folder");
    repository(3, language, dir.path()).await;
    let Ended { closing, steps } = turn(dir.path(), solve_next_step, falsify);
    assert!(closing.starts_with(NOT_FIXED) && closing.contains(why), "{closing}\n{steps:#?}");
}

#[tokio::test]
async fn tests_that_pass_at_first_leave_nothing_to_do() {
    notices(
        Language::Python,
        |n, name, text| {
            if n == 1 && name == "shell_exec" { "Ran 20 tests in 0.1s\n\nOK".to_owned() } else { text }
        },
        "shows no failing assertion",
    )
    .await;
}

#[tokio::test]
async fn another_expected_value_is_noticed() {
    notices(
        Language::Python,
        |_, name, text| if name == "shell_exec" { text.replace(" != ", " != 7") } else { text },
        "disagree",
    )
    .await;
}

#[tokio::test]
async fn a_falsified_file_is_noticed() {
    // The source only, below the line that the search found.
    notices(
        Language::JavaScript,
        |_, name, text| {
            let source = name == "file_read" && text.contains("export function");
            if source { text.replace(";\n", "; // checked\n") } else { text }
        },
        "could not be changed: file_patch: the old text is not in",
    )
    .await;
}

#[tokio::test]
async fn a_falsified_search_is_noticed() {
    notices(
        Language::Python,
        |_, name, text| if name == "search" { text.replace("def ", "async def ") } else { text },
        "disagree",
    )
    .await;
}

#[tokio::test]
async fn a_run_of_fewer_tests_is_no_success() {
    notices(
        Language::Python,
        |n, name, text| {
            if n > 4 && name == "shell_exec" { "Ran 3 tests in 0.1s\n\nOK".to_owned() } else { text }
        },
        "there are 3 of them",
    )
    .await;
}

#[tokio::test]
async fn a_refused_edit_ends_the_work() {
    notices(
        Language::Python,
        |_, name, text| if name == "file_patch" { "denied: a rule forbids it".to_owned() } else { text },
        "denied: a rule forbids it",
    )
    .await;
}

#[test]
fn a_missing_tool_is_named() {
    let request = crate::model_server::ParsedRequest {
        format: crate::model_server::ServedFormat::OpenAi,
        model: "scripted".into(),
        stream: false,
        include_usage: false,
        system: String::new(),
        messages: Vec::new(),
        tools: Vec::new(),
        max_output_tokens: None,
        raw: serde_json::Value::Null,
    };
    assert_eq!(solve_next_step(&request).texts.concat(), "Not fixed: the tool shell_exec is not offered.");
}
