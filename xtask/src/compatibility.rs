//! The page of foreign servers' behaviours: plays every case and writes the list of `docs/compatibility.md`.

use anyhow::{Context as _, Result, ensure};

use crate::workspace;
use task_process::Program;

const DOCUMENT: &str = "docs/compatibility.md";
/// The lines between which the list stands.
const MARKS: [&str; 2] = ["<!-- cases -->\n", "<!-- end of cases -->\n"];
/// The beginning of each line of the list that the test prints.
const PRINTED: &str = "compatibility: ";
/// The test that plays the cases, without its crate.
const PLAYED: &str = "tests::compat::every_server_is_understood_as_it_speaks";

/// The test that plays the cases, as [`crate::named`] knows it.
pub(crate) fn test() -> String {
    format!("writ-models::{PLAYED}")
}

/// Plays the cases and writes the list; returns false if one has another outcome.
///
/// # Errors
///
/// If cargo cannot be run, or the document has no place for the list.
pub(crate) fn run() -> Result<bool> {
    let arguments =
        ["test", "--locked", "-p", "writ-models", "--lib", "--", "--exact", PLAYED, "--nocapture"];
    let mut lines = Vec::new();
    let held =
        Program::cargo(&arguments).directory(&workspace::root()?).lines(|line| match listed(line) {
            Some(line) => lines.push(line),
            None => println!("{line}"),
        })?;
    if held {
        write(&lines)?;
    }
    Ok(held)
}

/// The line of the list that the test has printed.
pub(crate) fn listed(line: &str) -> Option<String> {
    // The harness prints the name of the test in front of the first one.
    line.split_once(PRINTED).map(|(_, listed)| listed.to_owned())
}

/// Writes these lines as the list.
///
/// # Errors
///
/// If there are none, or the document has no place for them.
pub(crate) fn write(lines: &[String]) -> Result<()> {
    let path = workspace::root()?.join(DOCUMENT);
    let before = std::fs::read_to_string(&path).context(DOCUMENT)?;
    std::fs::write(&path, replaced(&before, lines)?).context(DOCUMENT)
}

/// The document with this list.
fn replaced(before: &str, lines: &[String]) -> Result<String> {
    ensure!(!lines.is_empty(), "the test has printed no list");
    let [start, end] = MARKS;
    let (head, rest) =
        before.split_once(start).with_context(|| format!("{DOCUMENT} has no place for the list"))?;
    let (_, tail) = rest.split_once(end).with_context(|| format!("{DOCUMENT} has no end of the list"))?;
    let list: String = lines.iter().map(|line| format!("{line}\n")).collect();
    Ok(format!("{head}{start}{list}{end}{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_found_and_put_in_its_place() {
        assert_eq!(listed("test a ... compatibility: | a | b |").as_deref(), Some("| a | b |"));
        assert_eq!((listed("compatibility: ").as_deref(), listed("running 1 test")), (Some(""), None));
        let page = format!("before\n{}old\n{}after\n", MARKS[0], MARKS[1]);
        let done = replaced(&page, &["| a |".to_owned(), String::new()]).unwrap();
        assert_eq!(done, format!("before\n{}| a |\n\n{}after\n", MARKS[0], MARKS[1]));
        assert!(replaced("no place", &["| a |".to_owned()]).is_err() && replaced(&page, &[]).is_err());
    }
}
