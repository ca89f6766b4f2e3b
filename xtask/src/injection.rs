//! The injection corpus: plays all of it in both kinds of homes, and rewrites the table of `docs/injection.md`.

use anyhow::{Context as _, Result, ensure};

use crate::workspace;
use task_process::Program;

const DOCUMENT: &str = "docs/injection.md";
/// Between these lines stands what is written here.
const MARKS: [&str; 2] = ["<!-- figures -->\n", "<!-- end of figures -->\n"];
/// The homes and corpora of the printed rows.
const HOMES: [&str; 6] =
    ["default", "default, crossed", "strict", "harder", "harder, crossed", "strict, harder"];
/// The tests that play the corpus.
const TESTS: [&str; 4] = [
    "proofs::injection::needs_userns_needs_python_injected_actions_are_stopped_and_tasks_are_done",
    "proofs::injection::needs_userns_needs_python_orders_are_stopped_in_every_task",
    "proofs::harder::needs_userns_needs_python_injected_actions_are_stopped_where_honest_values_are_not_fields",
    "proofs::harder::needs_userns_needs_python_orders_are_stopped_in_every_harder_task",
];

/// Plays it; whether what must hold does.
///
/// # Errors
///
/// If cargo cannot be run, or the document has no place for the figures.
pub(crate) fn run() -> Result<bool> {
    let root = workspace::root()?;
    let path = root.join(DOCUMENT);
    let before = std::fs::read_to_string(&path).context(DOCUMENT)?;
    let mut lines = Vec::new();
    for test in TESTS {
        let arguments =
            ["test", "--locked", "--workspace", "--test", "suite", "--", "--exact", test, "--nocapture"];
        let mut held = false;
        Program::cargo(&arguments).directory(&root).env("WRIT_INJECTION", "whole").lines(|line| {
            println!("{line}");
            held |= line.starts_with("test result: ok. 1 passed");
            // What is printed first stands behind the name of the test.
            lines.extend(figure(line));
        })?;
        if !held {
            return Ok(false);
        }
    }
    std::fs::write(&path, with(&before, &lines)?).context(DOCUMENT)?;
    Ok(true)
}

/// The row of the table or the case that a line tells.
fn figure(line: &str) -> Option<String> {
    let row = HOMES.iter().find_map(|home| line.find(&format!("| {home} | ")));
    if let Some(at) = row {
        return line.get(at..).map(str::to_owned);
    }
    let known = line.starts_with("missed (")
        || line.starts_with("asked (default, ")
        || line.starts_with("asked (harder)");
    // Without a prior answer nearly everything asks.
    (known && !line.contains(", nothing)")).then(|| format!("* {line}"))
}

/// The document with these figures.
fn with(before: &str, lines: &[String]) -> Result<String> {
    let [start, end] = MARKS;
    let (head, rest) =
        before.split_once(start).with_context(|| format!("{DOCUMENT} has no place for figures"))?;
    let (_, tail) = rest.split_once(end).with_context(|| format!("{DOCUMENT} has no end of figures"))?;
    let (table, cases): (Vec<&String>, Vec<&String>) = lines.iter().partition(|line| line.starts_with('|'));
    ensure!(!table.is_empty(), "the test has told no figures");
    let header = "| home | `then` names | family | injected actions stopped | of these never read | \
                  legitimate effects asked about | tasks without a question |\n| --- | --- | --- | --- | --- | --- | --- |\n";
    let join = |lines: &[&String]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    Ok(format!("{head}{start}{header}{}\n{}{end}{tail}", join(&table), join(&cases)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_and_put_in_their_place() {
        let row = "| default | all | mail | 1 of 1 | 0 | 0 of 1 | 1 of 1 |";
        assert_eq!(figure(&format!("test a ... {row}")).as_deref(), Some(row));
        let missed = figure("missed (default, all): a case: mail__send {}").unwrap();
        assert!(missed.starts_with("* missed (default, all): a case"), "{missed}");
        assert_eq!(
            (figure("asked (default, nothing): a"), figure("asked (strict, all): a"), figure("x")),
            (None, None, None)
        );
        let page = format!("before\n{}old\n{}after\n", MARKS[0], MARKS[1]);
        let done = with(&page, &[row.to_owned(), missed.clone()]).unwrap();
        assert!(done.starts_with("before\n") && done.ends_with("after\n") && !done.contains("old"), "{done}");
        assert!(done.contains(row) && done.contains(&missed));
        assert_eq!(with(&done, &[row.to_owned(), missed]).unwrap(), done, "again, and nothing changes");
        assert!(with("no place", &[row.to_owned()]).is_err() && with(&page, &[]).is_err());
    }
}
