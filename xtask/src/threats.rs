//! The hostile cases: runs exactly the tests that `docs/security-model.md` names, and says for each case whether
//! they hold.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};

use crate::named::{self, quoted};
use crate::workspace;

const SECURITY_MODEL: &str = "docs/security-model.md";
/// The heading above the table of cases.
const CASES: &str = "\n## Hostile cases\n";

/// Which cases.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only the case with this number.
    #[arg(long, value_name = "N")]
    case: Option<u32>,
}

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    /// Number and name.
    case: String,
    /// What is shown.
    shown: String,
    /// `crate::path::of::test`.
    tests: Vec<String>,
}

/// Runs the tests of the cases; whether every one of them was run and holds.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let root = workspace::root()?;
    let text = std::fs::read_to_string(root.join(SECURITY_MODEL)).context(SECURITY_MODEL)?;
    let mut rows = rows(&text)?;
    if let Some(case) = options.case {
        rows.retain(|row| row.case.split(' ').next() == Some(&case.to_string()));
        ensure!(!rows.is_empty(), "{SECURITY_MODEL} has no case {case}");
    }
    let held = named::held(&root, rows.iter().flat_map(|row| &row.tests))?;
    let mut good = true;
    for row in &rows {
        let failed: Vec<&String> = row.tests.iter().filter(|test| !held.contains(*test)).collect();
        let verdict = if failed.is_empty() { "pass" } else { "FAIL" };
        println!("{verdict}  {}: {} ({} tests)", row.case, row.shown, row.tests.len());
        for test in &failed {
            println!("      {test} failed or was not run");
        }
        good &= failed.is_empty();
    }
    let cases: BTreeSet<&String> = rows.iter().map(|row| &row.case).collect();
    println!("{} cases, {} rows, {} tests held", cases.len(), rows.len(), held.len());
    Ok(good)
}

/// The rows of the table of cases.
fn rows(text: &str) -> Result<Vec<Row>> {
    let (_, table) = text.split_once(CASES).with_context(|| format!("{SECURITY_MODEL} has no cases"))?;
    let mut rows = Vec::new();
    for line in table.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [case, shown, tests] = cells.as_slice() else { continue };
        if !case.starts_with(|letter: char| letter.is_ascii_digit()) {
            continue;
        }
        rows.push(Row { case: (*case).to_owned(), shown: (*shown).to_owned(), tests: quoted(tests) });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_name_their_tests() {
        let text = "# T\n\n| 9 | not here | `a::b` |\n\n## Hostile cases\n\n| case | what is shown | shown by |\n| --- | --- | --- |\n\
                    | 1 Replay | Once; twins. | `writ-cli::suite::races::one`, `writ-a::b::tests::two`; `cargo x` |\n\
                    | 2 Swap | Refused. | `writ-a::b::tests::two` |\n";
        let rows = rows(text).unwrap();
        assert_eq!(rows.iter().map(|row| row.case.as_str()).collect::<Vec<_>>(), ["1 Replay", "2 Swap"]);
        assert_eq!(rows[0].tests, ["writ-cli::suite::races::one", "writ-a::b::tests::two"]);
        assert!(super::rows("# no table").is_err());
    }

    /// Every case that is promised is in the table.
    #[test]
    fn the_committed_table_is_read() {
        let root = workspace::root().unwrap();
        let rows = rows(&std::fs::read_to_string(root.join(SECURITY_MODEL)).unwrap()).unwrap();
        let cases: BTreeSet<u32> =
            rows.iter().filter_map(|row| row.case.split(' ').next()?.parse().ok()).collect();
        assert!(cases.is_superset(&BTreeSet::from([1, 2, 3, 4, 6, 19, 20, 21, 22, 25])), "{cases:?}");
        assert!(rows.iter().all(|row| !row.tests.is_empty()));
    }
}
