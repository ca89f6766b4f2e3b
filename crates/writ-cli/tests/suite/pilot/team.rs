//! A repository, and a scripted team that works on it. It remembers nothing: what it answers is said by the request alone, so that
//! whoever asks again after a crash has the same answer.

use std::path::Path;

use serde_json::json;
use writ_testkit::model_server::{ParsedRequest, Reply};

/// The tokens that each reply says it has read and written.
pub(super) const USED: (u64, u64) = (100, 10);
/// The slices, by the names of their branches.
pub(super) const SLICES: [&str; 2] = ["slice/m1/s1", "slice/m1/s2"];
/// The goal of the person.
pub(super) const GOAL: &str = "Sums and products.";

/// Small programs in the language of the shell, each with its test; the gates run all tests.
const SETTINGS: &str = r#"
[pilot]
target_branch = "main"

[[gate]]
name = "unit"
run = ["sh", ".writ/tests.sh"]
at = "task"
runs_tests = true
report = "tap"

[[gate]]
name = "slice"
run = ["sh", ".writ/tests.sh"]
at = "slice"
runs_tests = true
report = "tap"

[[gate]]
name = "merged"
run = ["sh", ".writ/tests.sh"]
at = "merge"
runs_tests = true
report = "tap"
"#;

/// Runs every test, and reports them as TAP.
const RUNNER: &str = r#"count=0
failed=0
for test in *.test.sh; do
  count=$((count + 1))
  if sh "$test"; then echo "ok $count - $test"; else echo "not ok $count - $test"; failed=1; fi
done
echo "1..$count"
exit "$failed"
"#;

const OUTLINE: &str = "\
- [ ] Arithmetic <!-- milestone/m1 -->
  - [ ] Sums <!-- slice/m1/s1 -->
    Acceptance:
    * the tests pass
    - [ ] add <!-- task/m1/s1/t1 -->
      Write add.
    - [ ] sub <!-- task/m1/s1/t2 blocked_by=task/m1/s1/t1 -->
      Write sub.
  - [ ] Products <!-- slice/m1/s2 -->
    Acceptance:
    * the tests pass
    - [ ] mul <!-- task/m1/s2/t1 -->
      Write mul.
    - [ ] div <!-- task/m1/s2/t2 -->
      Write div.
";

/// The beginnings of the headings of prompts.
const HEADINGS: [&str; 7] = [
    "# Plan a goal",
    "# Research for ",
    "# Plan for ",
    "# Work on ",
    "# Tests for ",
    "# Review of ",
    "# Decision about ",
];
const DONE: &str = "<turn_status>complete</turn_status>";
/// What the reviewer asks for, and what it is content with.
const REMARK: &str = "# Whole numbers alone.";

/// The functions: name, operator, and its result for 6 and 3.
const FUNCTIONS: [(&str, &str, &str); 4] =
    [("add", "+", "9"), ("sub", "-", "3"), ("mul", "*", "18"), ("div", "/", "2")];

/// Makes the repository, with one commit.
pub(super) fn make_repository(folder: &Path) {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        std::fs::write(path, text).expect("written");
    };
    write("base.test.sh", "true\n");
    write(".writ/pilot.toml", SETTINGS);
    write(".writ/tests.sh", RUNNER);
    for arguments in [
        &["init", "-q", "-b", "main"][..],
        &["config", "user.name", "t"],
        &["config", "user.email", "t@example.org"],
        &["add", "."],
        &["commit", "-q", "-m", "first"],
    ] {
        git(folder, arguments);
    }
}

/// Runs git, and returns what it prints.
pub(super) fn git(folder: &Path, arguments: &[&str]) -> String {
    #[expect(clippy::disallowed_types, reason = "a real repository is looked at with the real program")]
    let done =
        std::process::Command::new("git").args(arguments).current_dir(folder).output().expect("git runs");
    assert!(done.status.success(), "{arguments:?}: {done:?}");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// Answers a request.
pub(super) fn answer(request: &ParsedRequest) -> Reply {
    let (input, output) = USED;
    answer_freely(request).with_usage(input, output)
}

/// The heading of the prompt of a request, and the whole prompt.
pub(super) fn prompt_of(request: &ParsedRequest) -> (String, String) {
    // Prompts quote plans and goals, which have headings of their own, and others stand before them.
    let is_heading = |line: &&str| HEADINGS.iter().any(|heading| line.starts_with(heading));
    let mut prompts = request.messages.iter().filter_map(|message| {
        Some((message.text.lines().find(is_heading)?.to_owned(), message.text.clone()))
    });
    prompts.next().unwrap_or_default()
}

fn answer_freely(request: &ParsedRequest) -> Reply {
    let (heading, text) = prompt_of(request);
    if heading.starts_with("# Plan a goal") {
        return Reply::text(OUTLINE);
    }
    let unit = heading.split(' ').find(|word| word.contains("/m")).unwrap_or_default();
    let unit = unit.trim_end_matches([',', '.']);
    let has_written = request.results().next().is_some();
    match heading.split(' ').nth(1).unwrap_or_default() {
        "Research" => Reply::text(&format!("Nothing is there yet.\n{DONE}")),
        "Plan" => Reply::text(&format!("{}\n{DONE}", plan_of(unit))),
        "Work" | "Tests" if has_written => Reply::text(&format!("Written.\n{DONE}")),
        "Work" => write_code(unit, &text),
        "Tests" => write_test(unit),
        // The second slice is sent back once: its product has no remark then.
        "Review" if unit == SLICES[1] && !text.contains(REMARK) => {
            let finding =
                json!({ "path": "mul.sh", "line": 1, "severity": "high", "text": "say which numbers" });
            Reply::text(&json!({ "verdict": "request_changes", "findings": [finding] }).to_string())
        }
        "Review" => Reply::text(&json!({ "verdict": "pass", "findings": [] }).to_string()),
        _ => Reply::text(r#"{"decision":"abandon","reason":"the script knows no other way"}"#),
    }
}

fn function_of(unit: &str) -> (&'static str, &'static str, &'static str) {
    let place = ["task/m1/s1/t1", "task/m1/s1/t2", "task/m1/s2/t1", "task/m1/s2/t2"]
        .iter()
        .position(|task| *task == unit);
    // The work of the slice itself is the remark on its product.
    FUNCTIONS[place.unwrap_or(2)]
}

fn write_code(unit: &str, text: &str) -> Reply {
    let (name, operator, _) = function_of(unit);
    // Wrong at first; right once the gate's words are there.
    let operator = if name == "sub" && !text.contains("has not passed") { "+" } else { operator };
    let remark = if unit == SLICES[1] { format!("{REMARK}\n") } else { String::new() };
    write_file(&format!("{name}.sh"), &format!("{remark}echo $(($1 {operator} $2))\n"))
}

fn write_test(unit: &str) -> Reply {
    let (name, _, right) = function_of(unit);
    write_file(&format!("{name}.test.sh"), &format!("test \"$(sh {name}.sh 6 3)\" = {right}\n"))
}

fn write_file(path: &str, content: &str) -> Reply {
    Reply::call("file_write", json!({ "path": path, "content": content }))
}

fn plan_of(unit: &str) -> String {
    format!(
        "---\nunit_id: {unit}\ncreated_at: 2026-01-01T00:00:00Z\nwritten_by: \"m\"\nplan_version: 1\n---\n\n# Goal\nIt works.\n\n# Approach\nWrite it.\n\n# Deliverables\n- [ ] the function\n\n# Verification\n\n# Notes\n"
    )
}
