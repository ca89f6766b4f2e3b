//! Reports the outcomes of the mutants.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use super::listed::Mutant;

const DOCUMENT: &str = "docs/mutants.md";
/// The reasons for survivors that no test could notice.
const EXPLAINED: &str = "tools/mutants/survivors.toml";

/// The outcome of one mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// A test fails.
    Noticed,
    /// Tests take far longer than they do, or more memory than they may.
    Endless,
    /// It does not compile.
    Unviable,
    /// Every test that reaches it holds.
    Survived,
    /// No test reaches it.
    Unreached,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Noticed => "noticed",
            Self::Endless => "endless",
            Self::Unviable => "unviable",
            Self::Survived => "SURVIVED",
            Self::Unreached => "UNREACHED",
        })
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Survivors {
    survivor: Vec<Survivor>,
}

/// A mutant that changes nothing that anybody could notice.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Survivor {
    mutant: String,
    reason: String,
}

/// Of a file: noticed, endless, unviable, survived.
type Counts = [usize; 4];

/// A file's name below the sources of its crate.
fn short(mutant: &Mutant) -> &str {
    mutant.file.split_once("/src/").map_or(&mutant.file, |(_, file)| file)
}

/// The rows of a table, but for the last one.
fn known(table: &str) -> BTreeMap<String, Counts> {
    let row = |line: &str| {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        let file = cells.next().filter(|file| file.ends_with(".rs"))?;
        let counts: Option<Vec<usize>> = cells.skip(1).map(|cell| cell.parse().ok()).collect();
        Some((file.to_owned(), Counts::try_from(counts?).ok()?))
    };
    table.lines().filter_map(row).collect()
}

/// The survivors that are explained, by their keys.
pub(crate) fn explained(root: &Path) -> Result<BTreeSet<String>> {
    let text = std::fs::read_to_string(root.join(EXPLAINED)).context(EXPLAINED)?;
    let listed: Survivors = toml::from_str(&text).context(EXPLAINED)?;
    for one in &listed.survivor {
        ensure!(!one.reason.is_empty(), "{EXPLAINED}: '{}' has no reason", one.mutant);
    }
    Ok(listed.survivor.into_iter().map(|one| one.mutant).collect())
}

/// All mutants with their outcomes.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    outcomes: Vec<(&'a Mutant, Outcome)>,
    explained: &'a BTreeSet<String>,
}

impl<'a> Report<'a> {
    /// `None` if a mutant has no outcome.
    pub(crate) fn new(
        mutants: &'a [Mutant],
        outcomes: &BTreeMap<u32, Outcome>,
        explained: &'a BTreeSet<String>,
    ) -> Option<Self> {
        let known = mutants.iter().map(|mutant| Some((mutant, *outcomes.get(&mutant.id)?)));
        Some(Self { outcomes: known.collect::<Option<_>>()?, explained })
    }

    fn survivors(&self) -> impl Iterator<Item = (&Mutant, Outcome)> {
        let of = |outcome: &Outcome| matches!(outcome, Outcome::Survived | Outcome::Unreached);
        self.outcomes
            .iter()
            .filter(move |(_, outcome)| of(outcome))
            .map(|(mutant, outcome)| (*mutant, *outcome))
    }

    fn is_explained(&self, mutant: &Mutant) -> bool {
        self.explained.contains(&mutant.key)
    }

    pub(crate) fn all_explained(&self) -> bool {
        self.survivors().all(|(mutant, _)| self.is_explained(mutant)) && self.idle().next().is_none()
    }

    /// Explanations of mutants that were tried and do not survive.
    fn idle(&self) -> impl Iterator<Item = &String> {
        let tried: BTreeSet<&str> = self.outcomes.iter().map(|(mutant, _)| mutant.key.as_str()).collect();
        let survive: BTreeSet<&str> = self.survivors().map(|(mutant, _)| mutant.key.as_str()).collect();
        let known = self.explained.iter();
        known.filter(move |key| tried.contains(key.as_str()) && !survive.contains(key.as_str()))
    }

    /// A line each.
    pub(crate) fn whole(&self) -> String {
        self.outcomes.iter().map(|(mutant, outcome)| format!("{outcome:9}  {}\n", mutant.name)).collect()
    }

    /// Counts the outcomes of every file, beside those of other files that are known.
    fn table(&self, mut files: BTreeMap<String, Counts>) -> String {
        for (mutant, _) in &self.outcomes {
            files.remove(short(mutant));
        }
        for (mutant, outcome) in &self.outcomes {
            let counts = files.entry(short(mutant).to_owned()).or_default();
            match outcome {
                Outcome::Noticed => counts[0] += 1,
                Outcome::Endless => counts[1] += 1,
                Outcome::Unviable => counts[2] += 1,
                Outcome::Survived | Outcome::Unreached => counts[3] += 1,
            }
        }
        let whole = std::array::from_fn(|column| files.values().map(|counts| counts[column]).sum());
        let rows = files.into_iter().chain([("all".to_owned(), whole)]).map(|(file, counts)| {
            let cells = counts.map(|count: usize| count.to_string()).join(" | ");
            format!("| {file} | {} | {cells} |\n", counts.iter().sum::<usize>())
        });
        let header = "| file | mutants | noticed | endless | do not compile | survived |\n| --- | --- | --- | --- | --- | --- |\n";
        format!("{header}{}", rows.collect::<String>())
    }

    /// Writes the table where the document keeps it.
    pub(crate) fn write(&self, root: &Path, package: &str) -> Result<()> {
        let path = root.join(DOCUMENT);
        let before = std::fs::read_to_string(&path).context(DOCUMENT)?;
        let (start, end) = (format!("<!-- mutants of {package} -->\n"), "<!-- end of mutants -->\n");
        let place = || format!("{DOCUMENT} has no place for the mutants of {package}");
        let (head, rest) = before.split_once(&start).with_context(place)?;
        let (table, tail) = rest.split_once(end).with_context(place)?;
        std::fs::write(&path, format!("{head}{start}{}{end}{tail}", self.table(known(table))))
            .context(DOCUMENT)
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.table(BTreeMap::new()))?;
        for (mutant, outcome) in self.survivors() {
            let why = if self.is_explained(mutant) { "explained" } else { "UNEXPLAINED" };
            writeln!(f, "{outcome}  {why}  {}  [{}]", mutant.name, mutant.key)?;
        }
        for key in self.idle() {
            writeln!(f, "explained, and does not survive: {key}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::listed::{Genre, Place};

    #[test]
    fn the_rows_of_files_that_were_not_tried_stay() {
        let place = Place { line: 1, column: 1 };
        let (name, replacement) = (String::new(), String::new());
        let of = |id, file: &str| Mutant {
            id,
            name: name.clone(),
            key: id.to_string(),
            file: format!("crates/c/src/{file}"),
            genre: Genre::FnValue,
            start: place,
            end: place,
            replacement: replacement.clone(),
        };
        let mutants = [of(1, "b.rs"), of(2, "b.rs"), of(3, "c/d.rs")];
        let outcomes =
            BTreeMap::from([(1, Outcome::Noticed), (2, Outcome::Unreached), (3, Outcome::Endless)]);
        let explained = BTreeSet::new();
        let report = Report::new(&mutants, &outcomes, &explained).unwrap();
        let before = "| file | mutants | noticed | endless | do not compile | survived |\n| --- | --- | --- | --- | --- | --- |\n\
                      | a.rs | 9 | 4 | 3 | 2 | 0 |\n| b.rs | 7 | 7 | 0 | 0 | 0 |\n| all | 16 | 11 | 3 | 2 | 0 |\n";
        let after = report.table(known(before));
        let (_, rows) = after.split_once("| --- |\n").unwrap();
        assert_eq!(
            rows,
            "| a.rs | 9 | 4 | 3 | 2 | 0 |\n| b.rs | 2 | 1 | 0 | 0 | 1 |\n| c/d.rs | 1 | 0 | 1 | 0 | 0 |\n| all | 12 | 5 | 4 | 2 | 1 |\n"
        );
    }
}
