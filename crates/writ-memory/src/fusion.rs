//! Joins rankings: reciprocal rank fusion, then age, importance and trust.

use std::collections::BTreeMap;

use writ_store::memory::{Memory, MemoryTraits};
use writ_types::action::{MemoryKind, MemoryTrust};
use writ_types::id::MemoryId;
use writ_types::unit::Timestamp;

/// The constant of reciprocal rank fusion (Cormack, Clarke and Büttcher, 2009).
const RANK_CONSTANT: f64 = 60.0;

/// The weight of a ranking by time beside those by words and by meaning: it breaks ties, it finds nothing.
const TIME_WEIGHT: f64 = 0.5;

/// The weight of a ranking by names and causes: most questions have a name that many memories have. `docs/memory.md`
/// has the recall.
const LINK_WEIGHT: f64 = 0.5;

/// The age at which half of the advantage of a new memory has faded, in days.
const HALF_LIFE_DAYS: f64 = 30.0;

/// The advantage of a memory of this moment over one of long ago. Small: it reorders neighbours, as a place or two.
const RECENCY_SHARE: f64 = 0.06;

/// The advantage of the most important memory over the least important one.
const IMPORTANCE_SHARE: f64 = 0.12;

/// The advantage of a memory that the owner has confirmed.
const TRUST_SHARE: f64 = 0.04;

/// Milliseconds of a day.
const DAY_MS: f64 = 24.0 * 60.0 * 60.0 * 1000.0;

/// A reason why a memory was found.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// Its place among the hits by words, counted from one.
    Words(usize),
    /// The cosine of the angle between its meaning and that of the query.
    Meaning(f32),
    /// It is of the time that the query names.
    Time(String),
    /// It names something that the query names too.
    Entity(String),
    /// Another hit follows from it.
    Cause(MemoryId),
    /// It follows from another hit.
    Effect(MemoryId),
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Words(place) => write!(f, "words ({place}.)"),
            Self::Meaning(cosine) => write!(f, "meaning ({cosine:.2})"),
            Self::Time(window) => write!(f, "of {window}"),
            Self::Entity(name) => write!(f, "about {name}"),
            Self::Cause(other) => write!(f, "cause of {other}"),
            Self::Effect(other) => write!(f, "follows from {other}"),
        }
    }
}

/// The rankings of one search, by the number of the row, best first.
#[derive(Clone, Debug, Default)]
pub struct Rankings {
    /// By words.
    pub words: Vec<i64>,
    /// The weight of each of these, from zero to one; of those without one it is one.
    pub word_weights: Vec<f64>,
    /// By meaning, with the cosine.
    pub meaning: Vec<(i64, f32)>,
    /// By time: rows of the window that the query names, newest first, and the words for it.
    pub time: Option<(String, Vec<i64>)>,
    /// By names and causes, with the place, counted from zero; rows that are linked alike share one.
    pub links: Vec<(i64, usize, Reason)>,
}

/// A row with its fused score and the reasons for it.
#[derive(Clone, Debug, PartialEq)]
pub struct FusedRow {
    /// The number of the row.
    pub row: i64,
    /// The sum of the reciprocal ranks.
    pub score: f64,
    /// The reasons, those of the rankings in their order.
    pub reasons: Vec<Reason>,
}

/// Adds up the reciprocal ranks of each row; best first, and of equal ones the newest.
pub fn fuse_rankings(rankings: &Rankings) -> Vec<FusedRow> {
    let mut rows: BTreeMap<i64, (f64, Vec<Reason>)> = BTreeMap::new();
    let mut add = |row: i64, place: usize, weight: f64, reason: Reason| {
        // A place is below some thousands.
        let share = weight / (RANK_CONSTANT + place as f64 + 1.0);
        let (score, reasons) = rows.entry(row).or_default();
        *score += share;
        reasons.push(reason);
    };
    for (place, row) in rankings.words.iter().enumerate() {
        let weight = rankings.word_weights.get(place).copied().unwrap_or(1.0);
        add(*row, place, weight, Reason::Words(place + 1));
    }
    for (place, (row, cosine)) in rankings.meaning.iter().enumerate() {
        add(*row, place, 1.0, Reason::Meaning(*cosine));
    }
    if let Some((window, newest)) = &rankings.time {
        for (place, row) in newest.iter().enumerate() {
            // The newest of the window stands first.
            add(*row, place, TIME_WEIGHT, Reason::Time(window.clone()));
        }
    }
    for (row, place, reason) in &rankings.links {
        add(*row, *place, LINK_WEIGHT, reason.clone());
    }
    let mut fused: Vec<FusedRow> =
        rows.into_iter().map(|(row, (score, reasons))| FusedRow { row, score, reasons }).collect();
    fused.sort_by(|left, right| right.score.total_cmp(&left.score).then(right.row.cmp(&left.row)));
    fused
}

/// Returns the factor for what is so of a memory besides its text, around one.
pub fn standing_factor(memory: &Memory, now: Timestamp) -> f64 {
    let MemoryTraits { importance, used_at, .. } = &memory.traits;
    // A clock that was set back makes nothing younger than this moment.
    let newest = used_at.map_or(memory.at, |used| used.max(memory.at));
    let days = now.time_since(newest).as_millis() as f64 / DAY_MS;
    // The profile and the procedures of the owner do not age.
    let decays = !matches!(memory.item.memory_kind, MemoryKind::Profile | MemoryKind::Procedure);
    let recency = if decays { 0.5_f64.powf(days / HALF_LIFE_DAYS) } else { 1.0 };
    let importance = f64::from(*importance) / 1000.0;
    let trust = if memory.item.trust == MemoryTrust::Working { 0.0 } else { 1.0 };
    1.0 + RECENCY_SHARE * recency + IMPORTANCE_SHARE * importance + TRUST_SHARE * trust
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: WIN-202 (in part: two rankings are fused by reciprocal rank)
    #[test]
    fn a_row_of_two_rankings_stands_before_the_best_of_one() {
        let rankings =
            Rankings { words: vec![10, 20, 30], meaning: vec![(40, 0.9), (20, 0.8)], ..Rankings::default() };
        let fused = fuse_rankings(&rankings);
        let rows: Vec<i64> = fused.iter().map(|row| row.row).collect();
        assert_eq!(rows, [20, 40, 10, 30], "of equal scores the newest is first");
        let why: Vec<String> = fused[0].reasons.iter().map(ToString::to_string).collect();
        assert_eq!(why, ["words (2.)", "meaning (0.80)"]);
        let expected = 1.0 / 62.0 + 1.0 / 62.0;
        assert!((fused[0].score - expected).abs() < 1e-12);
    }

    /// A link alone finds too, behind what words find, and decides between places that are close.
    #[test]
    fn links_raise_what_others_have_found() {
        let about = |row| (row, 0, Reason::Entity("anna".to_owned()));
        let links = vec![about(30), about(50)];
        let fused = fuse_rankings(&Rankings { words: vec![10, 20, 30], links, ..Rankings::default() });
        let rows: Vec<i64> = fused.iter().map(|row| row.row).collect();
        assert_eq!(rows, [30, 10, 20, 50]);
        let why: Vec<String> = fused[0].reasons.iter().map(ToString::to_string).collect();
        assert_eq!(why, ["words (3.)", "about anna"]);
    }
}
