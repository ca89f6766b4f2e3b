//! Tests that kill processes at moments of chance a few times, run with many kills.

use std::process::ExitCode;

use anyhow::{Context as _, Result};

use super::VIOLATED;
use task_process::Program;
use task_process::workspace_root;

/// The document with the figures.
const DOCUMENT: &str = "docs/soak.md";
/// The begin of a line of a test with figures.
const FIGURES: &str = "figures: ";
/// The line that the part about the autopilot begins with.
const PILOT_HEAD_LINE: &str = "# Soak of the autopilot\n";
/// The head of the part about the autopilot, which is the last of the document.
const PILOT_HEAD: &str = "# Soak of the autopilot

`cargo xtask soak --pilot --write` writes this part. A goal of two slices and four tasks, with a wrong try that a gate catches and a
remark of the review, is planned, approved and merged by real processes with a scripted model; at random moments the engine is killed
with SIGKILL, alone or with everything that it has started, also while it starts. The run fails if the merged tree differs from that of
an undisturbed run, if a commit that a reference has shown is no longer reachable, if a call of a tool was begun twice or has no
outcome, if a slice was not merged exactly once, if tokens of runs and ledger differ, if a work tree, branch, lock, folder or process is
left, or if the ledger does not verify.

";

/// Tests with kills.
#[derive(Debug)]
pub(super) struct KilledTests {
    /// Their names begin so.
    names: &'static str,
    /// The variables of the seed and of the number of kills.
    variables: (&'static str, &'static str),
    /// The sentence that is true if they pass.
    held: &'static str,
    /// The head of their part of the document; empty: they have none.
    head: &'static str,
}

/// A fleet whose proxy, engine and agents are killed.
pub(super) const FLEET: KilledTests = KilledTests {
    names: "fleet::kills::",
    variables: ("WRIT_FLEET_SEED", "WRIT_FLEET_KILLS"),
    held: "the money that moved is that of the ledger, and each case had one holder at every moment",
    head: "",
};

/// The engine of an autopilot, with what it has started.
pub(super) const PILOT: KilledTests = KilledTests {
    names: "pilot::kills::",
    variables: ("WRIT_PILOT_SEED", "WRIT_PILOT_KILLS"),
    held: "the merged tree is that of an undisturbed run, every commit is reachable, nothing was done twice, nothing is left",
    head: PILOT_HEAD,
};

/// Runs them with so many kills each; exit code 8 if something does not fit together.
pub(super) fn run(tests: &KilledTests, (seed, kills): (u64, u32), write: bool) -> Result<ExitCode> {
    println!("seed {seed}, {kills} kills");
    let arguments =
        ["test", "--locked", "--package", "writ-cli", "--test", "suite", "--", "--nocapture", tests.names];
    let program = Program::cargo(&arguments)
        .directory(&workspace_root()?)
        .env(tests.variables.0, seed.to_string())
        .env(tests.variables.1, kills.to_string());
    // Where no test has this name, none fails either.
    let (mut held, mut figures) = (false, String::new());
    program.lines(|line| {
        println!("{line}");
        held |= line.starts_with("test result: ok. ") && !line.starts_with("test result: ok. 0 passed");
        if let Some(line) = line.strip_prefix(FIGURES) {
            figures.extend(["- ", line, "\n"]);
        }
    })?;
    if !held {
        println!("seed {seed}, {kills} kills: `--seed` repeats them");
        return Ok(ExitCode::from(VIOLATED));
    }
    println!("{}", tests.held);
    if write && !tests.head.is_empty() {
        let path = workspace_root()?.join(DOCUMENT);
        let document = std::fs::read_to_string(&path).context(DOCUMENT)?;
        let before = document.split_once(PILOT_HEAD_LINE).map_or(document.as_str(), |(before, _)| before);
        let text = format!("{}\n\n{}{figures}", before.trim_end(), tests.head);
        std::fs::write(&path, text).context(DOCUMENT)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The part of the document that the soak of the server leaves as it is.
pub(super) fn part_of_pilot(document: &str) -> String {
    document
        .split_once(PILOT_HEAD_LINE)
        .map(|(_, rest)| format!("\n{PILOT_HEAD_LINE}{rest}"))
        .unwrap_or_default()
}
