//! The choice of a model inside its tier: how far a unit reaches, and how models have done with units like it.
//!
//! All numbers come from the harness: the plan's words, the runs that have ended, and ratings. No agent names its model.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::phase::PilotPhase;

/// The number of files from which a unit counts as large.
const MANY_FILES: u32 = 8;
/// The number of folders from which a unit counts as broad.
const MANY_AREAS: u32 = 4;
/// The number of folders from which a change cuts across the parts of a project.
const CROSS_AREAS: u32 = 3;
/// The shares of files, folders and of cutting across in the score: together the whole.
const SHARES: [f64; 3] = [0.4, 0.3, 0.3];
/// The longest path that is counted, in bytes.
const MAX_PATH_BYTES: usize = 200;
/// The most paths that are counted.
const MAX_PATHS: usize = 1_000;

/// The reach of a unit: what its texts name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitReach {
    /// Files.
    pub files: u32,
    /// Folders of the first level that they lie in; files of the project's own folder lie in one of them.
    pub areas: u32,
}

impl UnitReach {
    /// Counts the files that the texts of a unit name: words with a folder or an ending.
    pub fn of_texts(texts: &[&str]) -> Self {
        let words = texts
            .iter()
            .flat_map(|text| text.split(|c: char| c.is_whitespace() || "`'\"(),;<>[]".contains(c)));
        let paths: BTreeSet<&str> = words
            .map(|word| word.trim_end_matches(['.', ':', '!', '?']).trim_start_matches("./"))
            .filter(|word| is_path(word))
            .take(MAX_PATHS)
            .collect();
        let areas: BTreeSet<&str> =
            paths.iter().map(|path| path.split_once('/').map_or("", |(area, _)| area)).collect();
        let count = |of: usize| u32::try_from(of).unwrap_or(u32::MAX);
        Self { files: count(paths.len()), areas: count(areas.len()) }
    }

    /// Returns how complex a unit is: from 0 to 1.
    pub fn score(self) -> f64 {
        let part = |count: u32, many: u32| f64::from(count.min(many)) / f64::from(many);
        let crosses = if self.areas >= CROSS_AREAS { 1.0 } else { 0.0 };
        let parts = [part(self.files, MANY_FILES), part(self.areas, MANY_AREAS), crosses];
        parts.iter().zip(SHARES).map(|(part, share)| part * share).sum()
    }

    /// Returns the name of the class of units that results are collected for: its phase, its size and its breadth.
    pub fn fingerprint(self, phase: PilotPhase) -> String {
        let size = match self.files {
            0 | 1 => "one",
            2..MANY_FILES => "few",
            _ => "many",
        };
        let breadth = if self.areas >= CROSS_AREAS { "across" } else { "within" };
        format!("{}/{size}/{breadth}", phase.name())
    }
}

/// A name of a file: no address, no number of a version, and no short word with a point.
fn is_path(word: &str) -> bool {
    let has_letter = |part: &str| part.chars().any(|c| c.is_ascii_alphabetic());
    let has_ending = word.rsplit_once('.').is_some_and(|(name, ending)| {
        let is_named = has_letter(name) && (name.len() > 1 || name.contains('/'));
        is_named
            && has_letter(ending)
            && ending.len() <= 6
            && ending.chars().all(|c| c.is_ascii_alphanumeric())
    });
    let is_plain = word.chars().all(|c| c.is_alphanumeric() || "./_-".contains(c));
    word.len() <= MAX_PATH_BYTES && is_plain && !word.starts_with(['/', '.']) && has_ending
}

/// The rating of a run, against what its phase was to bring (SF 15.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunRating {
    /// More was done than needed: a weaker model would have done.
    Over,
    /// Right for it.
    Ok,
    /// Not good enough: the model is not asked for units like it any more.
    Under,
}

impl RunRating {
    /// Every rating.
    pub const ALL: [Self; 3] = [Self::Over, Self::Ok, Self::Under];

    /// Returns its name in rows and commands.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Over => "over",
            Self::Ok => "ok",
            Self::Under => "under",
        }
    }

    /// Finds the rating that a run has given itself in its reply; the last one, if there are several.
    pub fn find_in(reply: &str) -> Option<Self> {
        let (_, rest) = reply.rsplit_once("<self_rating>")?;
        let (word, _) = rest.split_once("</self_rating>")?;
        Self::ALL.into_iter().find(|rating| rating.name() == word.trim())
    }

    /// Returns its quality, from 0 to 1 (SF 15.5).
    pub const fn quality(self) -> f64 {
        match self {
            Self::Over => 0.3,
            Self::Ok => 0.8,
            Self::Under => 0.0,
        }
    }
}

/// One result of a model with a class of units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelResult {
    /// The model.
    pub model: String,
    /// Its rating.
    pub rating: RunRating,
    /// Set if a person has given it.
    pub is_human: bool,
    /// The time that the run took, in milliseconds.
    pub took_ms: u64,
    /// The cost of the run, in micro-USD.
    pub cost: u64,
}

/// The weights of the choice (SF 15.4).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreWeights {
    /// That of quality.
    pub quality: f64,
    /// That of a short time.
    pub latency: f64,
    /// That of a low cost.
    pub cost: f64,
    /// The weight of a person's rating beside that of a run's own.
    pub human: f64,
}

impl Default for ScoreWeights {
    fn default() -> Self {
        Self { quality: 0.6, latency: 0.2, cost: 0.2, human: 3.0 }
    }
}

/// The means of a model's results.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelMeans {
    /// Its quality, weighted.
    pub quality: f64,
    /// Its time, in milliseconds.
    pub took_ms: f64,
    /// Its cost, in micro-USD.
    pub cost: f64,
}

/// Returns the means of the results of one model; `None` without any.
pub fn mean_results(results: &[&ModelResult], weights: &ScoreWeights) -> Option<ModelMeans> {
    let weight = |one: &ModelResult| if one.is_human { weights.human } else { 1.0 };
    let mean = |of: &dyn Fn(&ModelResult) -> f64, by: &dyn Fn(&ModelResult) -> f64| {
        let whole: f64 = results.iter().map(|one| by(one)).sum();
        (whole > 0.0).then(|| results.iter().map(|one| of(one) * by(one)).sum::<f64>() / whole)
    };
    let even = |_: &ModelResult| 1.0;
    Some(ModelMeans {
        quality: mean(&|one| one.rating.quality(), &weight)?,
        took_ms: mean(&|one| to_number(one.took_ms), &even)?,
        cost: mean(&|one| to_number(one.cost), &even)?,
    })
}

/// A time or a cost as a number: exact to 2^52, and they are capped far below.
fn to_number(of: u64) -> f64 {
    u32::try_from(of).map_or(f64::from(u32::MAX), f64::from)
}

/// Orders the models of a tier for a class of units, the first one to be asked first (SF 15.4): those with results by their score,
/// then the others as the tier lists them. One that was not good enough is left out, until a person has called it good since.
/// `results` are those of the class, oldest first. Without any the list stays as it is.
pub fn order_models<'a>(
    tier: &'a [String],
    results: &[ModelResult],
    weights: &ScoreWeights,
) -> Vec<&'a String> {
    let mut by_model: BTreeMap<&str, Vec<&ModelResult>> = BTreeMap::new();
    for one in results.iter().filter(|one| tier.contains(&one.model)) {
        by_model.entry(&one.model).or_default().push(one);
    }
    let means: BTreeMap<&str, ModelMeans> = by_model
        .iter()
        .filter_map(|(model, results)| Some((*model, mean_results(results, weights)?)))
        .collect();
    let most = |of: fn(&ModelMeans) -> f64| means.values().map(of).fold(0.0_f64, f64::max);
    let (slowest, dearest) = (most(|one| one.took_ms), most(|one| one.cost));
    let part = |of: f64, most: f64| if most > 0.0 { of / most } else { 0.0 };
    let score = |one: &ModelMeans| {
        one.quality * weights.quality
            + (1.0 - part(one.took_ms, slowest)) * weights.latency
            + (1.0 - part(one.cost, dearest)) * weights.cost
    };
    let is_barred = |model: &str| by_model.get(model).is_some_and(|results| is_barred(results));
    let open: Vec<&String> = tier.iter().filter(|model| !is_barred(model)).collect();
    let (mut rated, others): (Vec<&String>, Vec<&String>) =
        open.into_iter().partition(|model| means.contains_key(model.as_str()));
    // Stable, so that of equals the one that is listed first is asked first.
    rated.sort_by(|one, other| {
        let of = |model: &String| means.get(model.as_str()).map_or(0.0, score);
        of(other).total_cmp(&of(one))
    });
    rated.extend(others);
    rated
}

/// Returns true if the newest word about a model is that it was not good enough: only a person's later one lifts that.
fn is_barred(results: &[&ModelResult]) -> bool {
    results.iter().fold(false, |is_barred, one| match one.rating {
        RunRating::Under => true,
        RunRating::Ok => is_barred && !one.is_human,
        RunRating::Over => is_barred,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(model: &str, rating: RunRating, is_human: bool, took_ms: u64, cost: u64) -> ModelResult {
        ModelResult { model: model.to_owned(), rating, is_human, took_ms, cost }
    }

    fn tier() -> Vec<String> {
        ["one", "two", "three"].map(str::to_owned).to_vec()
    }

    fn first(results: &[ModelResult], weights: &ScoreWeights) -> Option<String> {
        order_models(&tier(), results, weights).first().map(|model| (*model).clone())
    }

    /// Many files in many folders are complex, one file is not, and words that are no files count nothing.
    #[test]
    fn the_reach_of_a_unit_is_what_its_texts_name() {
        let one = UnitReach::of_texts(&[
            "Write add in `add.mjs`. See e.g. https://example.org/a.html, v1.2, 3.5 and add.mjs.",
        ]);
        assert_eq!(one, UnitReach { files: 1, areas: 1 });
        assert!(one.score() < 0.2 && one.fingerprint(PilotPhase::Execute) == "execute/one/within");
        let text =
            "src/a.rs, src/b.rs, web/js/c.js (web/d.css), docs/e.md; tests/f.rs `./tests/g.rs` Cargo.toml";
        let many = UnitReach::of_texts(&[text, "src/a.rs again"]);
        assert_eq!(many, UnitReach { files: 8, areas: 5 });
        assert!((many.score() - 1.0).abs() < 1e-9);
        assert_eq!(many.fingerprint(PilotPhase::Plan), "plan/many/across");
        let some = UnitReach { files: 4, areas: 2 };
        assert!((some.score() - 0.35).abs() < 1e-9);
        assert_eq!(some.fingerprint(PilotPhase::Tdd), "tdd/few/within");
        assert_eq!(UnitReach::default().score().to_string(), "0");
    }

    /// The best score is asked first; other weights choose the cheapest; without results it is the first of the list, whatever is known
    /// of models of other tiers.
    ///
    /// Rows: SF-343 SF-348
    #[test]
    fn the_model_with_the_highest_score_is_asked_first() {
        let weights = ScoreWeights::default();
        let results = [
            result("one", RunRating::Over, false, 1_000, 100),
            result("two", RunRating::Ok, false, 2_000, 400),
            result("three", RunRating::Ok, false, 4_000, 900),
            result("of another tier", RunRating::Ok, true, 1, 1),
        ];
        // 0.3·0.6 + 0.75·0.2 + 0.889·0.2 = 0.508; 0.8·0.6 + 0.5·0.2 + 0.556·0.2 = 0.691; 0.8·0.6 = 0.48.
        let all: Vec<String> = order_models(&tier(), &results, &weights).into_iter().cloned().collect();
        assert_eq!(all, ["two", "one", "three"]);
        let thrifty = ScoreWeights { quality: 0.0, latency: 0.0, cost: 1.0, ..weights };
        assert_eq!(first(&results, &thrifty).as_deref(), Some("one"));
        assert_eq!(first(&results[3..], &weights).as_deref(), Some("one"), "nothing of this tier is known");
        assert_eq!(first(&results[2..], &weights).as_deref(), Some("three"), "what is known comes first");
        assert_eq!(order_models(&[], &results, &weights), Vec::<&String>::new());
    }

    /// A person's rating counts three times one of a run's own, or as the settings say.
    ///
    /// Rows: SF-352 (in part: the weights)
    #[test]
    fn a_person_s_rating_weighs_more() {
        let results = [result("one", RunRating::Ok, true, 0, 0), result("one", RunRating::Over, false, 0, 0)];
        let all: Vec<&ModelResult> = results.iter().collect();
        let quality = |human| {
            let weights = ScoreWeights { human, ..ScoreWeights::default() };
            mean_results(&all, &weights).map(|means| means.quality)
        };
        let is = |found: Option<f64>, wanted: f64| found.is_some_and(|found| (found - wanted).abs() < 1e-9);
        assert!(is(quality(3.0), (3.0 * 0.8 + 0.3) / 4.0) && is(quality(1.0), (0.8 + 0.3) / 2.0));
        assert_eq!(mean_results(&[], &ScoreWeights::default()), None);
    }

    /// The three ratings have their qualities, and a model that was not good enough is not asked for units of this class: of another
    /// class it is, and a person's later word lifts the bar.
    ///
    /// Rows: SF-353
    #[test]
    fn a_model_that_was_not_good_enough_is_left_out() {
        assert_eq!(
            RunRating::ALL.map(|rating| (rating.name(), rating.quality())),
            [("over", 0.3), ("ok", 0.8), ("under", 0.0)]
        );
        let found = |text: &str| RunRating::find_in(text).map(RunRating::name);
        assert_eq!(
            found("Done. <self_rating>under</self_rating> <self_rating>ok</self_rating>\nx"),
            Some("ok")
        );
        for odd in ["", "<self_rating>great</self_rating>", "<self_rating>ok", "ok</self_rating>"] {
            assert_eq!(found(odd), None, "{odd}");
        }
        let weights = ScoreWeights::default();
        let mut results = vec![
            result("one", RunRating::Ok, false, 1, 1),
            result("one", RunRating::Under, false, 1, 1),
            result("one", RunRating::Ok, false, 1, 1),
        ];
        assert_eq!(first(&results, &weights).as_deref(), Some("two"), "its own later word lifts nothing");
        // The results of another class do not have it.
        assert_eq!(first(&[], &weights).as_deref(), Some("one"));
        results.push(result("one", RunRating::Ok, true, 1, 1));
        assert_eq!(first(&results, &weights).as_deref(), Some("one"));
        let none: Vec<ModelResult> =
            tier().iter().map(|model| result(model, RunRating::Under, true, 1, 1)).collect();
        assert_eq!(first(&none, &weights), None);
    }
}
