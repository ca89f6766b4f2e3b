//! The tables of requirements, and the list of rows that are waived.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

/// The profiles, by the prefix of their rows.
pub(super) const PROFILES: [(&str, &str); 5] = [
    ("SIL", "assistant"),
    ("WIN", "self-coding agent"),
    ("SF", "autopilot"),
    ("SCL", "platform"),
    ("SLO", "fleet"),
];
/// The list of waived rows, relative to the root.
const WAIVED: &str = "docs/waived.toml";

/// The mark behind a row's id: none, `(F)` or `(X)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// Part of what its design shipped.
    Plain,
    /// Planned for later by its design; wanted here too.
    Future,
    /// An extension; wanted here too.
    Extension,
}

/// The rows of a catalogue, by id.
pub(super) type Rows = BTreeMap<String, Mark>;

/// The reasons of waived rows, by id.
pub(super) type Waived = BTreeMap<String, String>;

/// Reads the rows of all tables.
pub(super) fn read(texts: &[(String, String)]) -> Result<Rows> {
    let mut rows = Rows::new();
    for (_, text) in texts {
        for (id, mark, _) in row_lines(text) {
            ensure!(rows.insert(id.to_owned(), mark).is_none(), "{id} is in the catalogue twice");
        }
    }
    Ok(rows)
}

/// Reads the texts of the tables in a folder, with their paths.
pub(super) fn read_texts(folder: &Path) -> Result<Vec<(String, String)>> {
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            texts.push((path.display().to_string(), text));
        }
    }
    ensure!(
        texts.iter().any(|(_, text)| row_lines(text).next().is_some()),
        "{} holds no requirements",
        folder.display()
    );
    Ok(texts)
}

/// The rows of one table with their lines: `| SIL-001 | …` or `| SIL-309 (F) | …`.
pub(super) fn row_lines(text: &str) -> impl Iterator<Item = (&str, Mark, &str)> {
    text.lines().filter_map(|line| {
        let cell = line.strip_prefix('|')?.split('|').next()?.trim();
        let (id, rest) = cell.split_once(' ').unwrap_or((cell, ""));
        let mark = match rest.trim() {
            "" => Mark::Plain,
            "(F)" => Mark::Future,
            "(X)" => Mark::Extension,
            _ => return None,
        };
        is_id(id).then_some((id, mark, line))
    })
}

/// Returns true if a word has the form of a row's id: a known prefix, `-`, three digits.
pub(super) fn is_id(word: &str) -> bool {
    word.split_once('-').is_some_and(|(prefix, number)| {
        PROFILES.iter().any(|(known, _)| *known == prefix)
            && number.len() == 3
            && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WaivedFile {
    #[serde(default)]
    waived: Vec<WaivedRows>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WaivedRows {
    rows: Vec<String>,
    reason: String,
}

/// Reads the list of waived rows.
pub(super) fn read_waived(root: &Path) -> Result<Waived> {
    parse_waived(&std::fs::read_to_string(root.join(WAIVED)).context(WAIVED)?)
}

fn parse_waived(text: &str) -> Result<Waived> {
    let file: WaivedFile = toml::from_str(text).context(WAIVED)?;
    let mut waived = Waived::new();
    for entry in file.waived {
        ensure!(!entry.reason.trim().is_empty(), "{:?} are waived without a reason", entry.rows);
        for row in entry.rows {
            ensure!(waived.insert(row.clone(), entry.reason.clone()).is_none(), "{row} is waived twice");
        }
    }
    Ok(waived)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_from_tables() {
        let text = "# Title\n| ID | § |\n|---|---|\n| SIL-001 | 0 | text |\n| SIL-309 (F) | F1 |\n| SF-002 (X) | 1 |\n\
                    | S5 | X | see SIL-007 |\n| SIL-1 | short |\ntext SIL-008\n";
        let rows: Vec<(&str, Mark)> = row_lines(text).map(|(id, mark, _)| (id, mark)).collect();
        assert_eq!(rows, [("SIL-001", Mark::Plain), ("SIL-309", Mark::Future), ("SF-002", Mark::Extension)]);
    }

    #[test]
    fn a_waiver_has_a_reason_and_is_unique() {
        let waived =
            parse_waived("[[waived]]\nrows = ['SF-001', 'SF-002']\nreason = 'one database'\n").unwrap();
        assert_eq!(waived.get("SF-002").unwrap(), "one database");
        assert!(parse_waived("[[waived]]\nrows = ['SF-001']\nreason = ' '\n").is_err());
        assert!(parse_waived("[[waived]]\nrows = ['SF-001', 'SF-001']\nreason = 'a'\n").is_err());
        assert!(parse_waived("[[waived]]\nrows = ['SF-001']\n").is_err());
        // The catalogue is not there for each run of the tests; the project's own list is.
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        assert!(!read_waived(&root).unwrap().is_empty());
    }
}
