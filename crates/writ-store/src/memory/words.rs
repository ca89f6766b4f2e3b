//! Candidates by words, at a bounded cost.
//!
//! A word that half of all memories have costs a pass over half a million rows and tells nothing. Words are therefore
//! counted first, up to a bound, and the rarest are looked for until enough rows are in sight.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Connection, params};
use writ_types::id::SessionId;

use super::scope::{IN_SCOPE, MemoryScope, readable_rows};
use super::terms::Query;
use super::{Memory, decode_memory};
use crate::codec;
use crate::error::StoreError;

/// The most rows of one word that are counted: reading so many entries of an index takes half a millisecond.
const MAX_COUNTED: usize = 3_000;

/// The rows that the words of a search may have together; each costs some microseconds to score.
const ENOUGH_ROWS: usize = 4_000;

/// The most common words that are looked for together, where all are common.
const COMMON_WORDS: usize = 3;

/// The rows of common words of which those in scope are taken: what others may not read costs no more than this.
const MAX_SCANNED: usize = 30_000;

/// The two indexes: words, and pieces of words.
const INDEXES: [&str; 2] = ["memory_fts", "memory_terms"];

/// The rows that fit a pattern of which the active ones of a session are taken.
const MAX_FITTING: usize = 1_000;

/// A word that is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WordTerm {
    word: String,
    /// Words that only begin so are found too.
    is_beginning: bool,
}

impl WordTerm {
    /// Returns the term of a word and its forms, as the index has them.
    pub fn exact(word: &str) -> Self {
        Self { word: word.to_owned(), is_beginning: false }
    }

    /// Returns the term of all words with this beginning.
    pub fn beginning(word: &str) -> Self {
        Self { word: word.to_owned(), is_beginning: true }
    }

    /// Writes it as FTS5 reads it: quoted, so that nothing in it is syntax.
    fn expression(&self) -> String {
        let quoted = format!("\"{}\"", self.word.replace('"', " "));
        if self.is_beginning { format!("{quoted} *") } else { quoted }
    }
}

/// The words that a memory has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WordPattern {
    /// Alternatives, of which one is met: each is a list of groups, and of each group one term is in the memory.
    pub alternatives: Vec<Vec<Vec<WordTerm>>>,
}

impl WordPattern {
    /// Writes it as FTS5 reads it; `None`: there is no word.
    fn expression(&self) -> Option<String> {
        let group = |terms: &Vec<WordTerm>| {
            let terms: Vec<String> = terms.iter().map(WordTerm::expression).collect();
            format!("({})", terms.join(" OR "))
        };
        let alternatives = self.alternatives.iter().filter(|groups| !groups.is_empty());
        let alternatives: Vec<String> = alternatives
            .map(|groups| format!("({})", groups.iter().map(group).collect::<Vec<_>>().join(" AND ")))
            .collect();
        (!alternatives.is_empty()).then(|| alternatives.join(" OR "))
    }
}

/// Returns active memories of a session, or of none, that fit a pattern, newest first.
pub(crate) fn memories_fitting(
    conn: &Connection,
    pattern: &WordPattern,
    session: Option<SessionId>,
    limit: usize,
) -> Result<Vec<Memory>, StoreError> {
    let Some(expression) = pattern.expression() else { return Ok(Vec::new()) };
    let session = session.map(|id| id.to_string());
    let mut found: BTreeMap<i64, Memory> = BTreeMap::new();
    for index in INDEXES {
        let sql = format!(
            "SELECT m.* FROM
                 (SELECT rowid AS n FROM {index} WHERE {index} MATCH ?1 ORDER BY rowid DESC LIMIT {MAX_FITTING}) f
                 CROSS JOIN memory m ON m.n = f.n
             WHERE m.status = 'active' AND m.session IS ?2 ORDER BY f.n DESC LIMIT ?3"
        );
        let values = params![expression, session, codec::limit(limit)];
        found.extend(
            codec::query(conn, &sql, values, decode_memory)?.into_iter().map(|memory| (memory.row, memory)),
        );
    }
    Ok(found.into_values().rev().take(limit).collect())
}

/// Returns rows of a scope with their score by BM25, larger is better; best first.
pub(crate) fn word_candidates(
    conn: &Connection,
    text: &str,
    scope: MemoryScope,
    limit: usize,
) -> Result<Vec<(i64, f64)>, StoreError> {
    let terms = Query::parse(text).terms;
    let mut found: BTreeMap<i64, f64> = BTreeMap::new();
    for index in INDEXES {
        let mut counted = Vec::new();
        for term in &terms {
            let count = count_rows(conn, index, term, MAX_COUNTED)?;
            if count > 0 {
                counted.push((count, term.as_str()));
            }
        }
        counted.sort_unstable();
        // Of what both indexes find the scores are added.
        for (row, score) in rows_of_terms(conn, index, &counted, scope)? {
            *found.entry(row).or_default() += score;
        }
    }
    let mut found: Vec<(i64, f64)> = found.into_iter().collect();
    found.sort_by(|left, right| right.1.total_cmp(&left.1).then(left.0.cmp(&right.0)));
    let rows: Vec<i64> = found.iter().map(|(row, _)| *row).collect();
    let readable: BTreeSet<i64> = readable_rows(conn, &rows, scope, limit)?.into_iter().collect();
    found.retain(|(row, _)| readable.contains(row));
    Ok(found)
}

fn count_rows(conn: &Connection, index: &str, term: &str, most: usize) -> Result<usize, StoreError> {
    let sql = format!("SELECT count(*) FROM (SELECT 1 FROM {index} WHERE {index} MATCH ?1 LIMIT ?2)");
    let limit = i64::try_from(most).unwrap_or(i64::MAX);
    let count: i64 = conn.prepare_cached(&sql)?.query_row((term, limit), |row| row.get(0))?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// `counted` is ascending.
fn rows_of_terms(
    conn: &Connection,
    index: &str,
    counted: &[(usize, &str)],
    scope: MemoryScope,
) -> Result<Vec<(i64, f64)>, StoreError> {
    let Some((fewest, _)) = counted.first() else { return Ok(Vec::new()) };
    if *fewest >= MAX_COUNTED {
        return newest_rows(conn, index, counted, scope);
    }
    let mut sum = 0_usize;
    let chosen = counted.iter().take_while(|(count, _)| {
        let is_first = sum == 0;
        sum = sum.saturating_add(*count);
        *count < MAX_COUNTED && (is_first || sum <= ENOUGH_ROWS)
    });
    let expression = chosen.map(|(_, term)| *term).collect::<Vec<_>>().join(" OR ");
    // SQLite's bm25 is negative, and smaller is better.
    let sql = format!("SELECT rowid, -bm25({index}) FROM {index} WHERE {index} MATCH ?1");
    codec::query(conn, &sql, [expression], |row| Ok((row.get(0)?, row.get(1)?)))
}

/// Where every word is common: the newest memories that have the rarest of them together, all alike. BM25 would read
/// the whole list of each word.
fn newest_rows(
    conn: &Connection,
    index: &str,
    counted: &[(usize, &str)],
    scope: MemoryScope,
) -> Result<Vec<(i64, f64)>, StoreError> {
    let terms: Vec<&str> = counted.iter().take(COMMON_WORDS).map(|(_, term)| *term).collect();
    let sql = format!(
        "SELECT m.n FROM
             (SELECT rowid AS n FROM {index} WHERE {index} MATCH ?5 ORDER BY rowid DESC LIMIT {MAX_SCANNED}) f
             CROSS JOIN memory m ON m.n = f.n
         WHERE {IN_SCOPE} ORDER BY f.n DESC LIMIT {MAX_COUNTED}"
    );
    let (session, secret, start, end) = scope.values();
    for words in (1..=terms.len()).rev() {
        let expression = terms[..words].join(" AND ");
        let values = params![session, secret, start, end, expression];
        let rows: Vec<i64> = codec::query(conn, &sql, values, |row| Ok(row.get(0)?))?;
        if !rows.is_empty() {
            // A hair less for each older one, so that the newest are first.
            return Ok(rows.into_iter().enumerate().map(|(n, row)| (row, 1.0 - n as f64 * 1e-6)).collect());
        }
    }
    Ok(Vec::new())
}
