//! The acceptance items: runs exactly the tests that `docs/verification.md` names, against the built binary, and writes
//! there what came of each. The list of `docs/compatibility.md` is written with them.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};

use crate::named::{self, quoted};
use crate::{compatibility, test, workspace};

const DOCUMENT: &str = "docs/verification.md";
/// The head of the table; everything below it is written anew.
const TABLE: &str = "| rows | what must work | shown by | result |\n| --- | --- | --- | --- |\n";

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Item {
    rows: String,
    what: String,
    shown_by: String,
}

/// Runs the tests of all items; whether every one was run and held.
pub(crate) fn run() -> Result<bool> {
    let root = workspace::root()?;
    let path = root.join(DOCUMENT);
    let text = std::fs::read_to_string(&path).context(DOCUMENT)?;
    let (before, items) = items(&text)?;
    let tests: Vec<Vec<String>> = items.iter().map(|item| quoted(&item.shown_by)).collect();
    test::set_up(&root)?;
    let played = compatibility::test();
    let mut list = Vec::new();
    let all = tests.iter().flatten().chain([&played]);
    let held = named::heard(&root, all, |line| list.extend(compatibility::listed(line)))?;
    let mut written = format!("{before}{TABLE}");
    let mut good = true;
    for (item, tests) in items.iter().zip(&tests) {
        let missing: Vec<&String> = tests.iter().filter(|test| !held.contains(*test)).collect();
        let result = if missing.is_empty() { "pass" } else { "FAIL" };
        println!("{result}  {}: {}", item.rows, item.what);
        for test in missing {
            println!("      {test} failed or was not run");
            good = false;
        }
        writeln!(written, "| {} | {} | {} | {result} |", item.rows, item.what, item.shown_by)?;
    }
    std::fs::write(&path, written).context(DOCUMENT)?;
    if held.contains(&played) {
        compatibility::write(&list)?;
    } else {
        println!("FAIL  {played} failed or was not run");
        good = false;
    }
    println!("{} items, {} tests held", items.len(), held.len());
    Ok(good)
}

/// The text above the table, and its rows.
fn items(text: &str) -> Result<(&str, Vec<Item>)> {
    let (before, table) = text.split_once(TABLE).with_context(|| format!("{DOCUMENT} has no table"))?;
    let mut items = Vec::new();
    for line in table.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [rows, what, shown_by, _result] = cells.as_slice() else {
            anyhow::bail!("{DOCUMENT}: not a row of four cells: {line}");
        };
        ensure!(!quoted(shown_by).is_empty(), "{DOCUMENT}: '{what}' names no test");
        let [rows, what, shown_by] = [rows, what, shown_by].map(|cell| (*cell).to_owned());
        items.push(Item { rows, what, shown_by });
    }
    ensure!(!items.is_empty(), "{DOCUMENT} has no items");
    Ok((before, items))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_names_a_test() {
        let text = format!("# V\n\n{TABLE}| SIL-1 | It works. | `writ-a::b` | pass |\n");
        let (before, found) = items(&text).unwrap();
        assert_eq!(before, "# V\n\n");
        assert_eq!((found[0].rows.as_str(), found[0].what.as_str()), ("SIL-1", "It works."));
        for bad in ["# none".to_owned(), TABLE.to_owned(), format!("{TABLE}| a | b | c | pass |\n")] {
            assert!(items(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_committed_document_is_read() {
        let text = std::fs::read_to_string(workspace::root().unwrap().join(DOCUMENT)).unwrap();
        assert!(items(&text).unwrap().1.len() >= 12);
    }
}
