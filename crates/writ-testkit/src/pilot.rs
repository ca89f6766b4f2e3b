//! The demo of the autopilot: a small crate, and a scripted team that plans, writes, tests and reviews.
//!
//! One coder is wrong at its first try, and the reviewer finds something once, so that both ways back are seen. The script
//! knows its prompts by their headings and nothing else; whatever it claims is checked by the harness.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;

use crate::model_server::{ParsedRequest, Reply, Script};
use crate::repo::{GenerateError, commit, write};

/// The goal of the person.
pub const GOAL: &str = "Convert lengths between metres and feet, and read them from text.";
/// The task with a wrong first try.
pub const WRONG_TASK: &str = "task/m1/s1/t2";
/// The slice that is merged.
pub const SLICE: &str = "slice/m1/s1";
/// A file of the merged work.
pub const MERGED_FILE: &str = "src/text.rs";

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
/// The end of a reply of an agent that says that it is done.
const DONE: &str = "<turn_status>complete</turn_status>";

/// The plan of the goal.
const OUTLINE: &str = "\
- [ ] Lengths <!-- milestone/m1 -->
  - [ ] Lengths in two units <!-- slice/m1/s1 -->
    Acceptance:
    * `cargo test` passes, with a test for each function
    - [ ] feet <!-- task/m1/s1/t1 -->
      Convert metres to feet, in src/feet.rs.
    - [ ] metres <!-- task/m1/s1/t2 blocked_by=task/m1/s1/t1 -->
      Convert feet to metres, in src/metres.rs.
    - [ ] text <!-- task/m1/s1/t3 blocked_by=task/m1/s1/t2 -->
      Read a length such as `3 ft` or `2 m` as metres, in src/text.rs.
";

/// The files of the repository. The settings lie in `.writ/`, which no agent changes.
const FILES: [(&str, &str); 5] = [
    (".gitignore", "/target/\n"),
    ("Cargo.toml", include_str!("pilot/Cargo.toml.txt")),
    ("Cargo.lock", include_str!("pilot/Cargo.lock.txt")),
    ("src/lib.rs", "//! Lengths.\n"),
    (".writ/pilot.toml", include_str!("pilot/pilot.toml.txt")),
];

/// The modules in the order of their tasks: name, the coder's tries, and the test.
const MODULES: [(&str, &[&str], &str); 3] = [
    (
        "feet",
        &[
            "//! Metres to feet.\n\n/// Returns a length in feet.\npub fn feet(metres: f64) -> f64 {\n    metres / 0.3048\n}\n",
        ],
        "use lengths::feet::feet;\n\n#[test]\nfn a_metre_has_more_than_three_feet() {\n    assert!((feet(0.3048) - 1.0).abs() < 1e-9);\n}\n",
    ),
    (
        "metres",
        &[
            "//! Feet to metres.\n\n/// Returns a length in metres.\npub fn metres(feet: f64) -> f64 {\n    feet / 0.3048\n}\n",
            "//! Feet to metres.\n\n/// Returns a length in metres.\npub fn metres(feet: f64) -> f64 {\n    feet * 0.3048\n}\n",
        ],
        "use lengths::metres::metres;\n\n#[test]\nfn ten_feet_are_about_three_metres() {\n    assert!((metres(10.0) - 3.048).abs() < 1e-9);\n}\n",
    ),
    (
        "text",
        &[
            "//! Lengths from text.\n\nuse crate::metres::metres;\n\n/// Reads a length such as `3 ft` or `2 m` as metres.\npub fn read_length(text: &str) -> f64 {\n    let (number, unit) = text.split_once(' ').unwrap_or((text, \"m\"));\n    let number: f64 = number.parse().unwrap_or(0.0);\n    if unit == \"ft\" { metres(number) } else { number }\n}\n",
        ],
        "use lengths::text::read_length;\n\n#[test]\nfn both_units_are_read() {\n    assert_eq!(read_length(\"2 m\"), 2.0);\n    assert!((read_length(\"10 ft\") - 3.048).abs() < 1e-9);\n}\n",
    ),
];

/// What the reviewer finds once.
const FINDING: &str = "text that is no length is read as 0 metres without a word: return None";
/// The mended module, and its test.
const MENDED: (&str, &str) = (
    "//! Lengths from text.\n\nuse crate::metres::metres;\n\n/// Reads a length such as `3 ft` or `2 m` as metres; other text is none.\npub fn read_length(text: &str) -> Option<f64> {\n    let (number, unit) = text.split_once(' ')?;\n    let number: f64 = number.parse().ok()?;\n    match unit {\n        \"ft\" => Some(metres(number)),\n        \"m\" => Some(number),\n        _ => None,\n    }\n}\n",
    "use lengths::text::read_length;\n\n#[test]\nfn both_units_are_read() {\n    assert_eq!(read_length(\"2 m\"), Some(2.0));\n    assert!((read_length(\"10 ft\").unwrap() - 3.048).abs() < 1e-9);\n}\n\n#[test]\nfn other_text_is_no_length() {\n    for text in [\"\", \"ft\", \"3 miles\", \"x m\"] {\n        assert_eq!(read_length(text), None, \"{text}\");\n    }\n}\n",
);

/// Makes the repository, with one commit, in a folder, which is made if needed.
///
/// # Errors
///
/// If a file cannot be written, or git cannot be run.
pub async fn pilot_repository(dir: &Path) -> Result<(), GenerateError> {
    for (path, content) in FILES {
        write(dir, path, content)?;
    }
    commit(dir, "Begin a crate for lengths").await
}

/// The scripted team.
pub fn pilot_script() -> impl Script {
    let mut team = Team::default();
    move |request: &ParsedRequest| team.answer(request)
}

/// The team, with what it has done.
#[derive(Debug, Default)]
struct Team {
    /// The tries of each coder.
    tries: BTreeMap<String, usize>,
    /// Set once the reviewer has found something.
    has_found: bool,
}

impl Team {
    fn answer(&mut self, request: &ParsedRequest) -> Reply {
        let mut lines = request.messages.iter().flat_map(|message| message.text.lines());
        // Prompts quote plans and goals, which have headings of their own.
        let is_heading = |line: &&str| HEADINGS.iter().any(|heading| line.starts_with(heading));
        let heading = lines.find(is_heading).unwrap_or_default();
        if heading.starts_with("# Plan a goal") {
            return Reply::text(OUTLINE);
        }
        let unit = heading.split([' ', ',']).find(|word| word.contains("/m")).unwrap_or_default();
        match heading.split(' ').nth(1).unwrap_or_default() {
            "Research" => {
                Reply::text(&format!("The crate has no code yet; its tests are run by cargo.\n{DONE}"))
            }
            "Plan" => Reply::text(&plan_of(unit)),
            "Work" => self.write_code(unit, request.results().count()),
            "Tests" => Self::write_test(unit, request.results().count()),
            "Review" => self.review(),
            _ => Reply::text("{\"decision\":\"abandon\",\"reason\":\"the script knows no other way\"}"),
        }
    }

    /// The module of a task; that of the slice is the mended one.
    fn module_of(unit: &str) -> Option<usize> {
        let number = unit.strip_prefix("task/m1/s1/t")?.parse::<usize>().ok()?;
        number.checked_sub(1).filter(|number| *number < MODULES.len())
    }

    fn write_code(&mut self, unit: &str, written: usize) -> Reply {
        let Some(number) = Self::module_of(unit) else {
            return match written {
                0 => write_file("src/text.rs", MENDED.0),
                _ => Reply::text(&format!("Mended as the review says.\n{DONE}")),
            };
        };
        let (name, tries, _) = MODULES[number];
        match written {
            0 => {
                let count = self.tries.entry(unit.to_owned()).or_default();
                let text = tries.get(*count).or(tries.last()).copied().unwrap_or_default();
                *count += 1;
                write_file(&format!("src/{name}.rs"), text)
            }
            1 => {
                let modules =
                    MODULES.iter().take(number + 1).map(|(name, _, _)| format!("pub mod {name};\n"));
                write_file("src/lib.rs", &format!("//! Lengths.\n\n{}", modules.collect::<String>()))
            }
            _ => Reply::text(&format!("The function is written.\n{DONE}")),
        }
    }

    fn write_test(unit: &str, written: usize) -> Reply {
        if written > 0 {
            return Reply::text(&format!("The test is written.\n{DONE}"));
        }
        match Self::module_of(unit) {
            Some(number) => write_file(&format!("tests/{}.rs", MODULES[number].0), MODULES[number].2),
            None => write_file("tests/text.rs", MENDED.1),
        }
    }

    fn review(&mut self) -> Reply {
        if self.has_found {
            return Reply::text(&json!({ "verdict": "pass", "findings": [] }).to_string());
        }
        self.has_found = true;
        let finding = json!({ "path": MERGED_FILE, "line": 8, "severity": "high", "text": FINDING });
        Reply::text(&json!({ "verdict": "request_changes", "findings": [finding] }).to_string())
    }
}

fn write_file(path: &str, content: &str) -> Reply {
    Reply::call("file_write", json!({ "path": path, "content": content }))
}

fn plan_of(unit: &str) -> String {
    format!(
        "---\nunit_id: {unit}\ncreated_at: 2026-01-01T00:00:00Z\nwritten_by: \"script\"\nplan_version: 1\n---\n\n# Goal\nThe function is there, and a test shows it.\n\n# Approach\nA module of its own.\n\n# Deliverables\n- [ ] the function\n- [ ] its test\n\n# Verification\n`cargo test`\n\n# Notes\n\n{DONE}"
    )
}
