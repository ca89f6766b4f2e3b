//! The items of the autopilot's design, `C-01` to `C-96`, as the page of conformance: rows of the catalogue name items, and tests name
//! rows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::catalogue::row_lines;
use super::shown::{Claim, Claims};
use crate::source::Source;
use crate::tidy::docs::module_of;
use crate::workspace::Crate;

/// The page, relative to the root.
pub(super) const PAGE: &str = "docs/conformance.md";
/// The number of the last item.
const LAST_ITEM: u8 = 96;
/// Stands for no row, no test and an item without either.
const NONE: &str = "none";

const HEAD: &str = "# Conformance of the autopilot

The design of the autopilot has 96 items. Each row of the requirements names the items that it belongs to; each test names, in its doc comment,
the rows that it shows. This page joins both: it says which tests stand behind an item, and which items have none.

- *whole*: the test would fail if any part of the row did not hold. *in part*: it shows a part of the row, which its doc comment names.
- An item is *shown* when every row of it is shown whole, *in part* when a test shows something of it, and *none* otherwise.
- A row may be shown while nothing of it runs in a product yet: a pure part has its tests before there is a shell around it.

Written by `cargo xtask conformance --catalogue DIR --items --write`; without `--write` the command compares.
";

/// The rows that belong to each item.
pub(super) type Items = BTreeMap<u8, BTreeSet<String>>;

/// Adds the items that the rows of one table name, as `[C-09, K-01]` anywhere in a row.
pub(super) fn collect(text: &str, items: &mut Items) {
    for (id, _, line) in row_lines(text) {
        let brackets = line.split('[').skip(1).filter_map(|rest| rest.split_once(']'));
        let words = brackets.flat_map(|(inside, _)| inside.split([',', ' ']));
        for number in words.filter_map(item_number) {
            items.entry(number).or_default().insert(id.to_owned());
        }
    }
}

/// Reads `C-09`.
fn item_number(word: &str) -> Option<u8> {
    let digits = word.strip_prefix("C-").filter(|digits| digits.len() == 2)?;
    digits.parse().ok().filter(|number| (1..=LAST_ITEM).contains(number))
}

/// The evidence for one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RowEvidence {
    None,
    InPart,
    Whole,
}

fn evidence_for(row: &str, claims: &Claims) -> RowEvidence {
    match claims.rows.get(row) {
        Some(all) if all.iter().any(|claim| claim.part.is_none()) => RowEvidence::Whole,
        Some(all) if !all.is_empty() => RowEvidence::InPart,
        Some(_) | None => RowEvidence::None,
    }
}

/// Writes the page.
pub(super) fn page(items: &Items, claims: &Claims, names: &TestNames) -> String {
    let mut lines = String::new();
    let mut counts = [0_usize; 3];
    for number in 1..=LAST_ITEM {
        let none = BTreeSet::new();
        let rows = items.get(&number).unwrap_or(&none);
        let (state, at) = state_of(rows, claims);
        if let Some(count) = counts.get_mut(at) {
            *count += 1;
        }
        let named = if rows.is_empty() {
            NONE.to_owned()
        } else {
            rows.iter().cloned().collect::<Vec<_>>().join(", ")
        };
        let _ =
            writeln!(lines, "| C-{number:02} | {state} | {named} | {} |", list_tests(rows, claims, names));
    }
    let [shown, in_part, none] = counts;
    format!(
        "{HEAD}\nShown: {shown}. In part: {in_part}. None: {none}.\n\n| item | state | rows | tests |\n| --- | --- | --- | --- |\n{lines}"
    )
}

/// Returns the state of an item as a word, and the place of its count.
fn state_of(rows: &BTreeSet<String>, claims: &Claims) -> (&'static str, usize) {
    let all: Vec<RowEvidence> = rows.iter().map(|row| evidence_for(row, claims)).collect();
    match all.iter().max() {
        Some(_) if all.iter().all(|evidence| *evidence == RowEvidence::Whole) => ("shown", 0),
        Some(RowEvidence::Whole | RowEvidence::InPart) => ("in part", 1),
        Some(RowEvidence::None) | None => (NONE, 2),
    }
}

/// Lists the tests behind the rows of an item, each once: those of whole rows before those of parts.
fn list_tests(rows: &BTreeSet<String>, claims: &Claims, names: &TestNames) -> String {
    let mut by_test: BTreeMap<&str, (BTreeSet<&str>, BTreeSet<&str>)> = BTreeMap::new();
    for row in rows {
        for Claim { test, part } in claims.rows.get(row).into_iter().flatten() {
            let (whole, in_part) = by_test.entry(names.name_of(test)).or_default();
            if part.is_none() {
                whole.insert(row)
            } else {
                in_part.insert(row)
            };
        }
    }
    if by_test.is_empty() {
        return NONE.to_owned();
    }
    let join = |rows: &BTreeSet<&str>| rows.iter().copied().collect::<Vec<_>>().join(", ");
    let mut tests: Vec<(bool, String)> = Vec::new();
    for (test, (whole, mut in_part)) in by_test {
        in_part.retain(|row| !whole.contains(row));
        let shown = [(&whole, "whole"), (&in_part, "in part")];
        let shown = shown.into_iter().filter(|(rows, _)| !rows.is_empty());
        let words: Vec<String> = shown.map(|(rows, how)| format!("{} {how}", join(rows))).collect();
        tests.push((whole.is_empty(), format!("`{test}` ({})", words.join("; "))));
    }
    tests.sort();
    tests.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(", ")
}

/// The names of tests as documents write them.
pub(super) struct TestNames(BTreeMap<String, String>);

impl TestNames {
    /// Takes them from the sources: `one` of `crates/a/src/b.rs` is `a::b::tests::one`.
    pub(super) fn new(crates: &[Crate], sources: &[Source]) -> Self {
        let mut names = BTreeMap::new();
        for source in sources {
            let Some(owner) = crates.iter().find(|one| source.path.starts_with(&one.folder)) else {
                continue;
            };
            let module = module_of(source.path.strip_prefix(&owner.folder).unwrap_or(&source.path));
            for test in source.functions.iter().filter(|function| function.is_test) {
                let bare = test.name.rsplit("::").next().unwrap_or(&test.name);
                let parts = [owner.name.as_str(), module.as_str(), test.name.as_str()];
                let whole: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
                names.insert(format!("{}::{bare}", source.path), whole.join("::"));
            }
        }
        Self(names)
    }

    /// Returns the name of the test of a claim; those of the page and of macros are as the claim has them.
    fn name_of<'a>(&'a self, claim: &'a str) -> &'a str {
        self.0.get(claim).map_or(claim, String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "| ID | § |\n| SF-001 | 1 | Text. [C-08, K-01] [C-20] |\n| SF-002 (X) | 1 | Other [C-08]. |\n\
                         | C-09 | part A; SF-001 |\n| SF-003 | 1 | [C-97] [C-1] [X C-21] |\n";

    fn claims(named: &[(&str, &str, Option<&str>)]) -> Claims {
        let mut claims = Claims::default();
        for (row, test, part) in named {
            let claim = Claim { test: (*test).to_owned(), part: part.map(str::to_owned) };
            claims.rows.entry((*row).to_owned()).or_default().push(claim);
        }
        claims
    }

    fn names() -> TestNames {
        let one = Crate {
            name: "writ-a".to_owned(),
            layer: Some(0),
            dependencies: Vec::new(),
            folder: "crates/writ-a/".to_owned(),
            manifest: String::new(),
            module_layers: Vec::new(),
        };
        let text = "mod tests { #[test] fn one() {} }";
        let suite = "#[test] fn two() {}";
        let sources = [
            Source::parse("crates/writ-a/src/b.rs", text).unwrap(),
            Source::parse("crates/writ-a/tests/suite/c.rs", suite).unwrap(),
        ];
        TestNames::new(&[one], &sources)
    }

    #[test]
    fn items_are_read_from_the_brackets_of_rows_alone() {
        let mut items = Items::new();
        collect(TABLE, &mut items);
        let both = BTreeSet::from(["SF-001".to_owned(), "SF-002".to_owned()]);
        assert_eq!(items.remove(&8), Some(both));
        assert_eq!(items.into_keys().collect::<Vec<_>>(), [20, 21]);
    }

    #[test]
    fn the_page_names_whole_rows_before_parts_and_says_where_there_is_none() {
        let mut items = Items::new();
        collect(TABLE, &mut items);
        let claims = claims(&[
            ("SF-001", "crates/writ-a/src/b.rs::one", None),
            ("SF-001", "crates/writ-a/tests/suite/c.rs::two", Some("half")),
            ("SF-002", "web-tests/d.test.mjs: three", Some("half")),
        ]);
        let page = page(&items, &claims, &names());
        for line in [
            "Shown: 1. In part: 1. None: 94.",
            "| C-08 | in part | SF-001, SF-002 | `writ-a::b::tests::one` (SF-001 whole), `web-tests/d.test.mjs: three` (SF-002 in part), `writ-a::suite::c::two` (SF-001 in part) |",
            "| C-09 | none | none | none |",
            "| C-20 | shown | SF-001 | `writ-a::b::tests::one` (SF-001 whole), `writ-a::suite::c::two` (SF-001 in part) |",
            "| C-21 | none | SF-003 | none |",
        ] {
            assert!(page.lines().any(|one| one == line), "{line}\n{page}");
        }
        assert_eq!(page.lines().filter(|line| line.starts_with("| C-")).count(), usize::from(LAST_ITEM));
    }
}
