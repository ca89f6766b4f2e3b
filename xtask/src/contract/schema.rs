//! The columns of the store's tables and the phases that a unit may be in, read from the migrations.

use std::collections::{BTreeMap, BTreeSet};

/// Words that begin a line of a table which is no column.
const CONSTRAINTS: [&str; 5] = ["PRIMARY", "FOREIGN", "UNIQUE", "CHECK", "CONSTRAINT"];
/// What a unit's phase is checked against.
const PHASES: &str = "phase TEXT NOT NULL CHECK (phase IN (";

/// Returns a line for every column that is there after all migrations, and for every phase.
pub(super) fn lines_of(migrations: &str) -> BTreeSet<String> {
    let text = strip_comments(migrations);
    let mut tables: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for statement in statements_of(&text) {
        apply(&mut tables, statement);
    }
    let columns = tables
        .iter()
        .flat_map(|(table, columns)| columns.iter().map(move |column| format!("column {table}.{column}")));
    let (_, rest) = text.split_once(PHASES).unwrap_or_default();
    let phases = rest.split(')').next().unwrap_or_default().split(',');
    let phases = phases.map(|phase| phase.trim().trim_matches('\'')).filter(|phase| !phase.is_empty());
    columns.chain(phases.map(|phase| format!("phase {phase}"))).collect()
}

fn strip_comments(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("--").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// The statements about tables: what triggers do is within others and begins with none of these words.
fn statements_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(';').map(str::trim)
}

fn apply(tables: &mut BTreeMap<String, BTreeSet<String>>, statement: &str) {
    let words: Vec<&str> = statement.split_whitespace().collect();
    match words[..] {
        ["CREATE", "TABLE", ..] => {
            let Some((head, body)) = statement.split_once('(') else { return };
            let name = head.split_whitespace().last().unwrap_or_default();
            tables.insert(name.to_owned(), columns_of(body));
        }
        ["ALTER", "TABLE", table, "ADD", "COLUMN", column, ..] => {
            tables.entry(table.to_owned()).or_default().insert(column.to_owned());
        }
        ["ALTER", "TABLE", table, "DROP", "COLUMN", column, ..] => {
            if let Some(columns) = tables.get_mut(table) {
                columns.remove(column);
            }
        }
        ["ALTER", "TABLE", table, "RENAME", "COLUMN", from, "TO", to] => {
            if let Some(columns) = tables.get_mut(table) {
                columns.remove(from);
                columns.insert(to.to_owned());
            }
        }
        ["ALTER", "TABLE", table, "RENAME", "TO", name] => {
            if let Some(columns) = tables.remove(table) {
                tables.insert(name.to_owned(), columns);
            }
        }
        ["DROP", "TABLE", table] => {
            tables.remove(table);
        }
        _ => {}
    }
}

/// The first words of what stands between commas of the table itself.
fn columns_of(body: &str) -> BTreeSet<String> {
    let (mut depth, mut part, mut columns) = (0_usize, String::new(), BTreeSet::new());
    let mut end = |part: &mut String| {
        let first = part.split_whitespace().next().unwrap_or_default().to_owned();
        if !first.is_empty() && !CONSTRAINTS.contains(&first.as_str()) {
            columns.insert(first);
        }
        part.clear();
    };
    for c in body.chars() {
        match (c, depth) {
            (',', 0) => end(&mut part),
            (')', 0) => break,
            _ => {
                depth = match c {
                    '(' => depth + 1,
                    ')' => depth.saturating_sub(1),
                    _ => depth,
                };
                part.push(c);
            }
        }
    }
    end(&mut part);
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_those_that_are_left_after_all_migrations() {
        let text = "-- A table; with a comment.\nCREATE TABLE a (\n    id TEXT PRIMARY KEY, -- one\n    kind TEXT CHECK (kind IN ('x', 'y')),\n    phase TEXT NOT NULL CHECK (phase IN ('one', 'two')),\n    FOREIGN KEY (id) REFERENCES b (id)\n) STRICT;\nCREATE TABLE gone (x TEXT);\nALTER TABLE a ADD COLUMN more INTEGER NOT NULL DEFAULT 0;\nALTER TABLE a DROP COLUMN kind;\nDROP TABLE gone;\nCREATE TABLE old (x TEXT);\nALTER TABLE old RENAME TO b;\nALTER TABLE b RENAME COLUMN x TO id;\nCREATE TRIGGER t AFTER INSERT ON a\nBEGIN\n    UPDATE a SET id = 1;\nEND;\n";
        let expected =
            ["column a.id", "column a.more", "column a.phase", "column b.id", "phase one", "phase two"];
        assert_eq!(lines_of(text), expected.map(str::to_owned).into());
    }
}
