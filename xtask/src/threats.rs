//! The hostile cases: runs exactly the tests that `docs/security-model.md` names, and says for each case whether
//! they hold, and what they have counted.
//!
//! A test tells its numbers in a line: `THREAT 14 attempts=20 refused=20 entries=16 entry=denied twins=1`. What it has to let
//! pass, and a document names, it tells as `known=1`; without that word there is none.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};

use crate::named::{self, quoted};
use crate::workspace;

const SECURITY_MODEL: &str = "docs/security-model.md";
/// The heading above the table of cases.
const CASES: &str = "\n## Hostile cases\n";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only the case with this number.
    #[arg(long, value_name = "N")]
    case: Option<u32>,
}

/// The counts of the tests of one case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counted {
    attempts: u64,
    /// Of these, refused, or without the effect that they were after.
    refused: u64,
    /// Of these, neither, as a document says.
    known: u64,
    /// The ledger's record of them: how often, and with which entries.
    entries: u64,
    kinds: BTreeSet<String>,
    /// Legitimate things beside them that passed.
    twins: u64,
}

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    /// Number and name.
    case: String,
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
    let mut counted = BTreeMap::new();
    let held = named::heard(&root, rows.iter().flat_map(|row| &row.tests), |line| count(line, &mut counted))?;
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
    print!("{}", table(&rows, &held, &counted));
    for lack in lacks(&rows, &counted) {
        println!("FAIL  {lack}");
        good = false;
    }
    let cases: BTreeSet<&String> = rows.iter().map(|row| &row.case).collect();
    println!("{} cases, {} rows, {} tests held", cases.len(), rows.len(), held.len());
    Ok(good)
}

/// Takes in what a line tells, if it does.
fn count(line: &str, counted: &mut BTreeMap<u32, Counted>) {
    let Some((_, told)) = line.split_once("THREAT ") else { return };
    let mut words = told.split_whitespace();
    let Some(case) = words.next().and_then(|case| case.parse().ok()) else { return };
    let case: &mut Counted = counted.entry(case).or_default();
    for (name, value) in words.filter_map(|word| word.split_once('=')) {
        let number = value.parse().unwrap_or(0);
        match name {
            "attempts" => case.attempts += number,
            "refused" => case.refused += number,
            "known" => case.known += number,
            "entries" => case.entries += number,
            "twins" => case.twins += number,
            "entry" => case.kinds.extend(value.split('|').filter(|kind| *kind != "-").map(str::to_owned)),
            _ => {}
        }
    }
}

/// The number and name of a case.
fn numbered(row: &Row) -> Option<(u32, &str)> {
    let (number, name) = row.case.split_once(' ')?;
    Some((number.parse().ok()?, name))
}

/// Lists the gaps in the numbers: each case must count something, refuse or name every attempt, and let
/// something legitimate pass.
fn lacks(rows: &[Row], counted: &BTreeMap<u32, Counted>) -> Vec<String> {
    let cases: BTreeSet<(u32, &str)> = rows.iter().filter_map(numbered).collect();
    let mut lacks = Vec::new();
    for (number, name) in cases {
        let Some(told) = counted.get(&number).filter(|told| told.attempts > 0) else {
            lacks.push(format!("{number} {name}: no test has counted an attempt"));
            continue;
        };
        if told.attempts != told.refused + told.known {
            lacks.push(format!(
                "{number} {name}: {} attempts, of which {} were refused and {} are known to pass",
                told.attempts, told.refused, told.known
            ));
        }
        if told.twins == 0 {
            lacks.push(format!("{number} {name}: nothing legitimate has passed"));
        }
    }
    lacks
}

/// Writes the table: each case with its tests and counts.
fn table(rows: &[Row], held: &BTreeSet<String>, counted: &BTreeMap<u32, Counted>) -> String {
    let mut cases: BTreeMap<u32, (&str, BTreeSet<&String>)> = BTreeMap::new();
    for row in rows {
        let Some((number, name)) = numbered(row) else { continue };
        cases.entry(number).or_insert((name, BTreeSet::new())).1.extend(&row.tests);
    }
    let mut out =
        "| case | tests held | attempts | refused or held | entries in the ledger | twins passed |\n\
                   | --- | --- | --- | --- | --- | --- |\n"
            .to_owned();
    for (number, (name, tests)) in cases {
        let good = tests.iter().filter(|test| held.contains(**test)).count();
        let told = counted.get(&number).map_or_else(
            || "- | - | - | -".to_owned(),
            |told| {
                let kinds: Vec<&str> = told.kinds.iter().map(String::as_str).collect();
                let kinds = if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
                let known =
                    if told.known == 0 { String::new() } else { format!(" and {} known", told.known) };
                let (refused, entries) = (told.refused, told.entries);
                format!("{} | {refused}{known} | {entries}{kinds} | {}", told.attempts, told.twins)
            },
        );
        out.push_str(&format!("| {number} {name} | {good} of {} | {told} |\n", tests.len()));
    }
    out
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

    #[test]
    fn what_tests_tell_is_summed_by_case() {
        let mut counted = BTreeMap::new();
        for line in [
            "THREAT 1 attempts=3 refused=2 entries=2 entry=denied|asked twins=1",
            "test a ... THREAT 1 attempts=1 refused=1 entries=0 entry=- twins=1",
            "THREAT x attempts=9",
            "attempts=9",
        ] {
            count(line, &mut counted);
        }
        let row = |case: &str, test: &str| Row {
            case: case.into(),
            shown: String::new(),
            tests: vec![test.into()],
        };
        let rows = [row("1 Replay", "a::b"), row("1 Replay", "a::c"), row("2 Swap", "a::b")];
        let told = table(&rows, &BTreeSet::from(["a::b".to_owned()]), &counted);
        assert!(told.contains("| 1 Replay | 1 of 2 | 4 | 3 | 2 (asked, denied) | 2 |\n"), "{told}");
        assert!(told.contains("| 2 Swap | 1 of 1 | - | - | - | - |\n"), "{told}");
    }

    #[test]
    fn a_case_without_numbers_twin_or_with_an_attempt_that_passed_is_an_error() {
        let rows: Vec<Row> = (1..=5)
            .map(|n| Row { case: format!("{n} Case"), shown: String::new(), tests: vec!["a::b".into()] })
            .collect();
        let mut counted = BTreeMap::new();
        for line in [
            "THREAT 1 attempts=3 refused=2 entries=2 entry=denied twins=1",
            "THREAT 1 attempts=1 refused=1 known=1 entries=0 entry=- twins=0",
            "THREAT 2 attempts=3 refused=2 entries=0 entry=- twins=1",
            "THREAT 3 attempts=3 refused=3 entries=0 entry=- twins=0",
            "THREAT 4 attempts=0 refused=0 entries=0 entry=- twins=9",
        ] {
            count(line, &mut counted);
        }
        assert_eq!(
            lacks(&rows, &counted),
            [
                "2 Case: 3 attempts, of which 2 were refused and 0 are known to pass",
                "3 Case: nothing legitimate has passed",
                "4 Case: no test has counted an attempt",
                "5 Case: no test has counted an attempt",
            ]
        );
        // More that were refused than were attempted are no better.
        count("THREAT 1 attempts=0 refused=1 entries=0 entry=- twins=0", &mut counted);
        assert_eq!(lacks(&rows[..1], &counted).len(), 1);
        assert!(
            table(&rows[..1], &BTreeSet::new(), &counted).contains("| 4 | 4 and 1 known | 2 (denied) | 1 |")
        );
    }

    /// Every case that is promised is in the table.
    #[test]
    fn the_committed_table_is_read() {
        let root = workspace::root().unwrap();
        let rows = rows(&std::fs::read_to_string(root.join(SECURITY_MODEL)).unwrap()).unwrap();
        let cases: BTreeSet<u32> =
            rows.iter().filter_map(|row| row.case.split(' ').next()?.parse().ok()).collect();
        let promised = [1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25];
        assert!(cases.is_superset(&BTreeSet::from(promised)), "{cases:?}");
        assert!(rows.iter().all(|row| !row.tests.is_empty()));
    }
}
