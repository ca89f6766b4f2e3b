//! Gates: the checks that the harness runs on an agent's work.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use writ_autopilot::check::counts::ReportFormat;
use writ_autopilot::check::scripts::names_tests;

use super::read::is_below_project;
use super::section::{FoundSetting, Section, cut_word};
use super::{MAX_GATES, PilotConfigError};

/// The most words of a command.
const MAX_WORDS: usize = 64;
/// The longest word of a command, in bytes.
const MAX_WORD_BYTES: usize = 4 * 1024;
/// The longest name, in bytes.
const MAX_NAME_BYTES: usize = 40;
/// Seconds after which a gate is ended, if the file does not say (SF 13.2.1).
const DEFAULT_TIMEOUT_SECS: u64 = 300;
/// The most seconds that a gate may take.
const MAX_TIMEOUT_SECS: u64 = 86_400;
/// The most tests that a gate may have to show.
const MAX_MIN_TESTS: u64 = 1_000_000;
/// The most further runs of a gate after its first failure.
const MAX_RETRIES: u32 = 20;

/// The names of formats in the file.
pub(super) const FORMATS: [(&str, ReportFormat); 9] = [
    ("cargo", ReportFormat::Cargo),
    ("nextest", ReportFormat::Nextest),
    ("pytest", ReportFormat::Pytest),
    ("jest", ReportFormat::Jest),
    ("vitest", ReportFormat::Vitest),
    ("go_test", ReportFormat::GoTest),
    ("junit_xml", ReportFormat::JunitXml),
    ("tap", ReportFormat::Tap),
    ("unittest", ReportFormat::Unittest),
];

/// Returns the name of a format in the file.
pub fn report_name(format: ReportFormat) -> &'static str {
    FORMATS.iter().find(|(_, other)| *other == format).map_or("tap", |(name, _)| *name)
}

/// The command of a gate. It runs in the verification sandbox, never on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GateCommand {
    /// A program with its arguments, without a shell.
    Run(Vec<String>),
    /// A script of the project, by its path in it.
    Script(String),
}

/// The moment at which a gate runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GateMoment {
    /// After the work of a task.
    Task,
    /// After the work of a slice.
    Slice,
    /// After the last slice of a milestone.
    Milestone,
    /// On the merged tree, before the target moves to it.
    Merge,
}

impl GateMoment {
    /// Every moment with its name in the file.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("task", Self::Task),
        ("slice", Self::Slice),
        ("milestone", Self::Milestone),
        ("merge", Self::Merge),
    ];
}

/// A gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PilotGate {
    /// Its name, which no other gate has.
    pub name: String,
    /// Its command.
    pub command: GateCommand,
    /// The moment at which it runs.
    pub at: GateMoment,
    /// Set if it runs tests, so that it must show some.
    pub runs_tests: bool,
    /// The format of its report.
    pub report: Option<ReportFormat>,
    /// The file of its report, by its path in the work; none: the output is the report.
    pub report_file: Option<String>,
    /// The least number of tests that have to run.
    pub min_tests: u64,
    /// The folder of tests that no agent sees, by its name among the owner's: its files are laid over the merged tree.
    pub hidden: Option<String>,
    /// The time after which it is ended.
    pub timeout: Duration,
    /// Set if work that does not pass it goes no further.
    pub required: bool,
    /// Further runs after its first failure; none: as many as the workflow says.
    pub max_retries: Option<u32>,
    /// The file and the line that it comes from.
    pub origin: (String, usize),
}

/// Reads the gates of a file.
pub(super) fn read_gates(
    list: Vec<(FoundSetting<'_>, Section<'_>)>,
) -> Result<Vec<PilotGate>, PilotConfigError> {
    let mut gates: Vec<PilotGate> = Vec::new();
    for (place, section) in list {
        if gates.len() >= MAX_GATES {
            return Err(
                place.fault(&format!("is there more than {MAX_GATES} times"), "join gates in one script")
            );
        }
        let gate = read_gate(&place, section)?;
        // Names become file names and keys, where case may make no difference.
        if gates.iter().any(|other| other.name.eq_ignore_ascii_case(&gate.name)) {
            return Err(
                place.fault(&format!("'{}' is there twice", gate.name), "give each gate its own name")
            );
        }
        gates.push(gate);
    }
    Ok(gates)
}

fn read_gate(place: &FoundSetting<'_>, mut section: Section<'_>) -> Result<PilotGate, PilotConfigError> {
    let name = section.read_text("name")?;
    let name = name
        .filter(|name| !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.chars().all(is_name_char));
    let Some(name) = name else {
        let hint = format!("add `name`: 1 to {MAX_NAME_BYTES} letters, digits, hyphens or underscores");
        return Err(place.fault("has no name that can be used", hint));
    };
    // Before what is about its result, so that the first mistake is the one to mend first.
    let command = read_command(place, &mut section)?;
    let report = section.read_choice("report", &FORMATS)?;
    let report_file = section.find_setting("report_file");
    if let Some(setting) = report_file.as_ref().filter(|_| report.is_none()) {
        return Err(setting.fault("without `report`", "add the format: `report = \"junit_xml\"`"));
    }
    if let Some(setting) = &report_file
        && !is_below_project(setting.read_text()?)
    {
        return Err(setting.fault("is no path in the project", "write a relative path without `..`"));
    }
    let runs_tests = section.read_switch("runs_tests")?;
    // Without a report it would never show a test, and so never pass.
    if runs_tests == Some(true) && report.is_none() {
        return Err(place.fault(
            &format!("'{name}' runs tests, but has no `report`"),
            "name the format of its report, such as `report = \"cargo\"`",
        ));
    }
    // Its exit status alone would be a pass also where not one test has run.
    let names = matches!(&command, GateCommand::Run(argv) if names_tests(argv));
    if runs_tests.is_none() && report.is_none() && names {
        return Err(place.fault(
            &format!("'{name}' names tests, but has no `report` to count them by"),
            "name the format of its report, or add `runs_tests = false`: then it shows nothing about tests",
        ));
    }
    let at = section.read_choice("at", &GateMoment::NAMES)?.unwrap_or(GateMoment::Slice);
    let runs_tests = runs_tests.unwrap_or(report.is_some());
    let min_tests = section.find_setting("min_tests");
    if let Some(setting) = min_tests.as_ref().filter(|_| !runs_tests) {
        return Err(setting.fault("at a gate that runs no tests", "add the format of its report"));
    }
    let gate = PilotGate {
        name: name.to_owned(),
        command,
        at,
        runs_tests,
        min_tests: section.read_whole("min_tests", 1..=MAX_MIN_TESTS)?.unwrap_or(0),
        hidden: read_hidden(&mut section, (at, runs_tests))?,
        report,
        report_file: report_file.map(|setting| setting.read_text().map(str::to_owned)).transpose()?,
        timeout: Duration::from_secs(
            section.read_whole("timeout_secs", 1..=MAX_TIMEOUT_SECS)?.unwrap_or(DEFAULT_TIMEOUT_SECS),
        ),
        required: section.read_switch("required")?.unwrap_or(true),
        max_retries: section.read_count("max_retries", 0..=MAX_RETRIES)?,
        origin: place.origin(),
    };
    section.end_section()?;
    Ok(gate)
}

/// Reads the name of a folder of hidden tests.
fn read_hidden(
    section: &mut Section<'_>,
    (at, runs_tests): (GateMoment, bool),
) -> Result<Option<String>, PilotConfigError> {
    let Some(setting) = section.find_setting("hidden") else { return Ok(None) };
    let name = setting.read_text()?;
    // A path would let a project have any file of the owner's put into a sandbox.
    if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.chars().all(is_name_char) {
        return Err(setting.fault(
            "names no folder of hidden tests",
            format!("write 1 to {MAX_NAME_BYTES} letters, digits, hyphens or underscores"),
        ));
    }
    // An earlier moment would show the agent what it must not know, attempt by attempt.
    if at != GateMoment::Merge || !runs_tests {
        return Err(setting.fault(
            "at a gate that is not one of tests at the merge",
            "add `at = \"merge\"` and the format of its report",
        ));
    }
    Ok(Some(name.to_owned()))
}

const fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_')
}

fn read_command(
    place: &FoundSetting<'_>,
    section: &mut Section<'_>,
) -> Result<GateCommand, PilotConfigError> {
    match (section.find_setting("run"), section.find_setting("script")) {
        (Some(run), None) => {
            let words = run.read_texts()?;
            let is_word = |word: &&str| word.len() <= MAX_WORD_BYTES && !word.contains('\0');
            let has_program = words.first().is_some_and(|program| !program.trim().is_empty());
            if !has_program || words.len() > MAX_WORDS || !words.iter().all(is_word) {
                let problem = format!("is no command of 1 to {MAX_WORDS} words");
                return Err(run.fault(&problem, "write program and arguments, such as [\"cargo\", \"test\"]"));
            }
            Ok(GateCommand::Run(words.into_iter().map(str::to_owned).collect()))
        }
        (None, Some(script)) => {
            let path = script.read_text()?;
            if !is_below_project(path) {
                return Err(script.fault("is no path in the project", "write a relative path without `..`"));
            }
            Ok(GateCommand::Script(path.to_owned()))
        }
        (None, None) => Err(place.fault("has neither `run` nor `script`", "add one of both")),
        (Some(_), Some(_)) => Err(place.fault("has both `run` and `script`", "leave one of both")),
    }
}

/// Checks that each script is a file that can be run, and that no two have one base name, since that names them for hooks.
pub(super) fn check_scripts(gates: &[PilotGate], project: &Path) -> Result<(), PilotConfigError> {
    // Without their case, as some file systems see them.
    let mut stems = BTreeSet::new();
    for gate in gates {
        let GateCommand::Script(script) = &gate.command else { continue };
        let fail = |problem: String, hint: &str| {
            Err(PilotConfigError {
                file: gate.origin.0.clone(),
                line: gate.origin.1,
                key: "gate.script".to_owned(),
                problem: format!("gate '{}': {problem}", gate.name),
                hint: hint.to_owned(),
            })
        };
        let shown = cut_word(script);
        // A link could lead out of the project, and would be another file in the sandbox.
        let found = std::fs::symlink_metadata(project.join(script)).ok().filter(std::fs::Metadata::is_file);
        let Some(found) = found else {
            return fail(
                format!("the script '{shown}' is no file of the project"),
                "add the script, or correct its path",
            );
        };
        if found.permissions().mode() & 0o111 == 0 {
            return fail(format!("the script '{shown}' cannot be run"), "`chmod +x` makes it executable");
        }
        let stem = Path::new(script).file_stem().map(std::ffi::OsStr::to_ascii_lowercase);
        if !stems.insert(stem) {
            return fail(format!("another script has the base name of '{shown}'"), "rename one of both");
        }
    }
    Ok(())
}
