//! Gates of Python projects.

use writ_autopilot::check::counts::ReportFormat;

use super::{ProposedGate, has_text};
use crate::files::{ProjectFiles, name_of};

/// Files at the top that make a project one of Python.
const MARKS: [&str; 7] = [
    "pyproject.toml",
    "setup.py",
    "setup.cfg",
    "requirements.txt",
    "requirements-dev.txt",
    "tox.ini",
    "pytest.ini",
];

pub(super) fn propose_python(files: &ProjectFiles) -> Vec<ProposedGate> {
    let is_test = |path: &&Vec<u8>| {
        let name = name_of(path);
        (name.starts_with(b"test_") || name.ends_with(b"_test.py")) && name.ends_with(b".py")
    };
    let has_tests = files.paths.iter().any(|path| is_test(&path));
    if !has_tests && !MARKS.iter().any(|mark| files.has_path(mark)) {
        return Vec::new();
    }
    let mut gates = Vec::new();
    let names_pytest = MARKS
        .iter()
        .any(|mark| *mark == "pytest.ini" && files.has_path(mark) || has_text(files, mark, "pytest"));
    let has_fixtures = files.paths.iter().any(|path| name_of(path) == b"conftest.py");
    if names_pytest || has_fixtures {
        let run = ["python3", "-m", "pytest"];
        gates.push(ProposedGate::new("python-test", &run, Some(ReportFormat::Pytest), "pytest is named"));
    } else if has_tests {
        // Pytest runs the same tests, and is not installed everywhere.
        let run = ["python3", "-m", "pytest"];
        gates.push(ProposedGate::new(
            "python-test",
            &run,
            Some(ReportFormat::Pytest),
            "tests of unittest, which pytest runs and counts",
        ));
        let run = ["python3", "-m", "unittest", "discover"];
        gates.push(ProposedGate::new(
            "python-unittest",
            &run,
            Some(ReportFormat::Unittest),
            "tests of unittest",
        ));
    }
    if has_text(files, "pyproject.toml", "[tool.ruff") || files.has_path("ruff.toml") {
        gates.push(ProposedGate::new(
            "python-lint",
            &["ruff", "check", "."],
            None,
            "ruff has a configuration",
        ));
    }
    if has_text(files, "pyproject.toml", "[tool.mypy") || files.has_path("mypy.ini") {
        gates.push(ProposedGate::new("python-types", &["mypy", "."], None, "mypy has a configuration"));
    }
    gates
}
