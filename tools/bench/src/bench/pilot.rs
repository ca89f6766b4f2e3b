//! The autopilot: ticks among many units, claims, and work trees.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use task_process::Program;

use super::Bench;
use super::helper::{Measured, find, run};
use super::row::{Percentile, Row};
use super::stats::Sample;

/// The longest that a tick may take with any number of units (the autopilot's issue, «Speed»).
const TICK: Duration = Duration::from_millis(10);
/// The claims of units per second, with eight that want each.
const CLAIMS: f64 = 300.0;
/// The longest that eight work trees of ten thousand files may take together.
const TREES: Duration = Duration::from_secs(2);

/// The files of the repository, in folders of a hundred.
const FILES: u32 = 10_000;

/// Measures what the loop does before a worker starts.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let repository = bench.scratch.path().join("repository");
    make_repository(&repository)?;
    let folder = bench.scratch.path().join("pilot").display().to_string();
    let repository = repository.display().to_string();
    let rounds = bench.rounds.to_string();
    let all = run(bench, &["pilot", &folder, &repository, "--rounds", &rounds])?;
    let mut rows = Vec::new();
    for (what, named) in [("tick_1000", "1,000"), ("tick_10000", "10,000"), ("tick_100000", "100,000")] {
        let limit = (Percentile::P50, TICK);
        rows.push(Row::limit(
            &format!("tick, {named} units"),
            find(&all, what)?.sample()?,
            limit,
            String::new(),
        ));
    }
    let claims = find(&all, "claims")?;
    let rate = (claims.per_second(), CLAIMS);
    rows.push(Row::rate("claims, 8 for each unit", rate, claims.sample()?, "one winner".to_owned()));
    let whole = find(&all, "trees").and_then(Measured::whole)?;
    let limit = (Percentile::P50, TREES);
    rows.push(Row::limit("8 work trees of 10,000 files", Sample::new(vec![whole])?, limit, String::new()));
    Ok(rows)
}

/// Makes a repository of many files with one commit.
fn make_repository(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    for file in 0..FILES {
        let inner = folder.join(format!("part{}", file / 100));
        std::fs::create_dir_all(&inner)?;
        std::fs::write(inner.join(format!("file{file}.txt")), format!("File {file}.\n").repeat(40))?;
    }
    std::fs::write(folder.join("last.txt"), "The last one.\n")?;
    let commit = ["-c", "user.name=Bench", "-c", "user.email=bench@example.org", "commit", "-qm", "Begin"];
    for arguments in [&["init", "-q", "--initial-branch=main"][..], &["add", "--all"], &commit] {
        let done = Program::new(Path::new("git"), arguments).directory(folder).status()?;
        ensure!(done, "git {} failed", arguments.join(" "));
    }
    Ok(())
}
