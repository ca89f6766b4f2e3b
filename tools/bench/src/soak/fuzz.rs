//! The targets of `fuzz/`, each for a while, two at once.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::VIOLATED;
use task_process::Program;
use task_process::workspace_root;

/// The number of targets at the same time.
const AT_ONCE: usize = 2;
/// The longest input, in bytes: most readers have bounds far below, and long inputs are slow.
const MAX_INPUT: &str = "-max_len=16384";
/// The limit of a hang, in seconds.
const HANG: &str = "-timeout=10";
/// The limit of memory, in MiB.
const MEMORY: &str = "-rss_limit_mb=2048";
/// Coverage of our own code and of what it is built from; the fuzzer reads it.
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
                        -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";
/// Build scripts and macros run here and are not covered: a target of its own keeps them apart.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The document with the figures.
const DOCUMENT: &str = "docs/fuzzing.md";
/// Between these lines stands the table of targets.
const MARKS: [&str; 2] = ["<!-- figures -->\n", "<!-- end of figures -->\n"];

/// The result of one target.
#[derive(Debug)]
struct Ran {
    name: String,
    /// The number of inputs.
    executions: String,
    /// The number of inputs that found something new; after a failure, the end of the fuzzer's output.
    line: String,
    took: Duration,
    held: bool,
}

/// Fuzzes each target for so many seconds, and writes the figures if that is asked for; exit code 8 if one of them breaks.
pub(super) fn run(seconds: u32, only: Option<&str>, write: bool) -> Result<ExitCode> {
    let root = workspace_root()?;
    let names: Vec<String> =
        targets(&root)?.into_iter().filter(|name| only.is_none_or(|one| one == name)).collect();
    ensure!(!names.is_empty(), "there is no such target in fuzz/corpus");
    let folder = task_process::target_directory(&root).join("fuzz");
    let binary = build(&root, &folder)?;
    // Before any of them runs: a program that is being written cannot be started, and every child started
    // meanwhile holds it open.
    std::fs::create_dir_all(folder.join("programs"))?;
    for name in &names {
        std::fs::copy(&binary, folder.join("programs").join(name))?;
    }
    let due = Mutex::new(names.clone());
    let (broken, ran) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(name) = take(&due) {
                    let told = fuzz(&root, &folder, &name, seconds);
                    let held = told.as_ref().is_ok_and(|ran| ran.held);
                    let line =
                        told.as_ref().map_or_else(|error| format!("{error:#}"), |ran| ran.line.clone());
                    println!("{}  {name}: {line}", if held { "held" } else { "BROKE" });
                    ran.lock().unwrap_or_else(PoisonError::into_inner).extend(told);
                    if !held {
                        broken.lock().unwrap_or_else(PoisonError::into_inner).push(name);
                    }
                }
            });
        }
    });
    let broken = broken.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{} targets, {seconds} s each, {} broke", names.len(), broken.len());
    if write {
        let path = root.join(DOCUMENT);
        let before = std::fs::read_to_string(&path).context(DOCUMENT)?;
        let ran = ran.into_inner().unwrap_or_else(PoisonError::into_inner);
        std::fs::write(&path, with(&before, &ran)?).context(DOCUMENT)?;
    }
    Ok(if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(VIOLATED) })
}

fn take(due: &Mutex<Vec<String>>) -> Option<String> {
    due.lock().unwrap_or_else(PoisonError::into_inner).pop()
}

/// The targets: each has a folder of inputs, as a test makes sure.
fn targets(root: &Path) -> Result<BTreeSet<String>> {
    let folders = std::fs::read_dir(root.join("fuzz/corpus")).context("fuzz/corpus")?;
    folders.map(|folder| Ok(folder?.file_name().to_string_lossy().into_owned())).collect()
}

fn build(root: &Path, folder: &Path) -> Result<PathBuf> {
    let arguments = ["build", "--release", "--manifest-path", "fuzz/Cargo.toml", "--target", TARGET];
    let built = Program::cargo(&arguments)
        .directory(root)
        .env("CARGO_TARGET_DIR", folder)
        .env("RUSTFLAGS", COVERAGE)
        .status()?;
    ensure!(built, "the targets do not build");
    Ok(folder.join(TARGET).join("release/writ-fuzz"))
}

/// One target: what came of it.
fn fuzz(root: &Path, folder: &Path, name: &str, seconds: u32) -> Result<Ran> {
    let (found, kept) = (folder.join("found").join(name), folder.join("artifacts").join(name));
    for one in [&found, &kept] {
        std::fs::create_dir_all(one)?;
    }
    let time = format!("-max_total_time={seconds}");
    let prefix = format!("-artifact_prefix={}/", kept.display());
    let options = [time.as_str(), MAX_INPUT, HANG, MEMORY, &prefix, "-print_final_stats=1", "-verbosity=1"];
    let program = folder.join("programs").join(name);
    let began = Instant::now();
    let told = Program::new(&program, &options)
        .argument(&found)
        .argument(root.join("fuzz/corpus").join(name))
        .output()?;
    let (executions, new) = figures(&told.stderr);
    let line =
        if told.success { format!("{executions} inputs, {new} of them new") } else { tail(&told.stderr) };
    Ok(Ran { name: name.to_owned(), executions, line, took: began.elapsed(), held: told.success })
}

/// Returns the number of inputs, and of those that found something new.
fn figures(stderr: &str) -> (String, String) {
    let number = |name: &str| {
        let line = stderr.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_whitespace().last()).unwrap_or("0").to_owned()
    };
    (number("stat::number_of_executed_units"), number("stat::new_units_added"))
}

/// The document with these figures; those of targets that did not run stay.
fn with(before: &str, ran: &[Ran]) -> Result<String> {
    let [start, end] = MARKS;
    let (head, rest) =
        before.split_once(start).with_context(|| format!("{DOCUMENT} has no place for figures"))?;
    let (table, tail) = rest.split_once(end).with_context(|| format!("{DOCUMENT} has no end of figures"))?;
    let mut rows: Vec<String> = table.lines().map(str::to_owned).collect();
    for Ran { name, executions, took, held, .. } in ran {
        let own = format!("| `{name}` | ");
        let row = rows.iter_mut().find(|row| row.starts_with(&own));
        let row = row.with_context(|| format!("{DOCUMENT} has no row for '{name}'"))?;
        let reads = row.strip_prefix(&own).and_then(|cells| cells.split(" | ").next()).unwrap_or_default();
        let minutes = took.as_secs_f64() / 60.0;
        *row = format!("{own}{reads} | {executions} | {minutes:.1} | {} |", u8::from(!held));
    }
    let table: String = rows.iter().map(|row| format!("{row}\n")).collect();
    Ok(format!("{head}{start}{table}{end}{tail}"))
}

/// Returns the end of its output.
fn tail(stderr: &str) -> String {
    let lines: Vec<&str> = stderr.lines().collect();
    lines.get(lines.len().saturating_sub(40)..).unwrap_or_default().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_at_its_end() {
        let said = "INFO: x\nstat::number_of_executed_units: 1234\nstat::new_units_added:         5\n";
        assert_eq!(figures(said), ("1234".to_owned(), "5".to_owned()));
        assert_eq!(figures(""), ("0".to_owned(), "0".to_owned()));
        assert_eq!(tail("a\nb"), "a\nb");
    }

    #[test]
    fn figures_are_put_in_their_rows_and_others_stay() {
        let page = format!(
            "before\n{}| target | reads |\n| --- | --- |\n| `url` | a URL | – | – | – |\n| `host` | a host | 7 | 5.0 | 0 |\n{}after\n",
            MARKS[0], MARKS[1]
        );
        let ran = |name: &str, held| Ran {
            name: name.into(),
            executions: "1234".into(),
            line: String::new(),
            took: Duration::from_secs(90),
            held,
        };
        let done = with(&page, &[ran("url", true)]).unwrap();
        assert_eq!(done, page.replace("a URL | – | – | – |", "a URL | 1234 | 1.5 | 0 |"));
        assert_eq!(with(&done, &[ran("url", true)]).unwrap(), done, "again, and nothing changes");
        let broke = with(&done, &[ran("host", false)]).unwrap();
        assert_eq!(broke, done.replace("a host | 7 | 5.0 | 0 |", "a host | 1234 | 1.5 | 1 |"));
        assert!(with("no place", &[]).is_err() && with(&page, &[ran("new", true)]).is_err());
    }

    #[test]
    fn the_page_has_one_row_for_each_target() {
        let root = workspace_root().unwrap();
        let page = std::fs::read_to_string(root.join(DOCUMENT)).unwrap();
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        let rows: Vec<String> = rows.map(str::to_owned).collect();
        assert_eq!(rows, Vec::from_iter(targets(&root).unwrap()), "in their order");
        assert!(with(&page, &[]).is_ok_and(|same| same == page));
    }

    #[test]
    fn each_target_of_the_table_has_a_corpus() {
        let root = workspace_root().unwrap();
        let table = std::fs::read_to_string(root.join("fuzz/targets.rs")).unwrap();
        let named = |name: &String| table.contains(&format!("    (\"{name}\", "));
        let targets = targets(&root).unwrap();
        assert!(targets.len() > 20 && targets.iter().all(named), "{targets:?}");
    }
}
