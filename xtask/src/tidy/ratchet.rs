//! Figures that have an aim, and the ceilings of those that do not meet it yet: they may only shrink.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::Finding;

/// The committed ceilings, relative to the root.
const FILE: &str = "xtask/ratchet.toml";
const HEAD: &str = "\
# Ceilings of the figures that do not meet their aim yet; for `inline-comments` it is a floor. `cargo xtask tidy` fails where
# a figure is worse, and `cargo xtask tidy --tighten` lowers every ceiling to what is measured. None is raised, but by hand,
# where code has moved from one crate to another.
";
/// A figure may be worse than its ceiling by so little: one comment more or less in a large crate.
const SLACK: f64 = 0.2;

/// The ceilings of each crate.
type Ceilings = BTreeMap<String, BTreeMap<String, f64>>;

/// A kind of figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    /// The most modules of a crate that import one another in a circle.
    Circle,
    /// Files with `impl` blocks of a type beyond the third, over all types of a crate.
    ImplFiles,
    /// Fields of a struct beyond the fifteenth, over all structs of a crate.
    Fields,
    /// Percent of the doc comments.
    QuestionOpenings,
    /// Words in a thousand lines of comments.
    PrivateWords,
    /// Percent of the functions.
    OneWordFunctions,
    /// Percent of the lines of code.
    InlineComments,
    /// Types that are named by a bare participle.
    ParticipleTypes,
    /// Names of types that stand in more than one file.
    DoubledTypes,
}

impl Measure {
    /// Name in `ratchet.toml`, and the aim, which a figure may reach but not pass.
    // tidy: table
    const fn row(self) -> (&'static str, f64, &'static str) {
        match self {
            Self::Circle => ("circle", 6.0, "modules import one another in the largest circle"),
            Self::ImplFiles => ("impl-files", 0.0, "files with `impl` blocks of one type beyond the third"),
            Self::Fields => {
                ("fields", 0.0, "fields of one struct beyond the fifteenth (plain state is marked)")
            }
            Self::QuestionOpenings => {
                ("question-openings", 5.0, "% of doc comments open with a question word")
            }
            Self::PrivateWords => ("private-words", 5.0, "private words in 1,000 lines of comments"),
            Self::OneWordFunctions => ("one-word-functions", 35.0, "% of functions are named by one word"),
            Self::InlineComments => ("inline-comments", 3.0, "% of inline comments to lines of code"),
            Self::ParticipleTypes => ("participle-types", 0.0, "types are named by a bare participle"),
            Self::DoubledTypes => ("doubled-types", 30.0, "names of types stand in more than one file"),
        }
    }

    /// Returns true if `value` is worse than `limit` by more than `slack`.
    fn is_worse(self, value: f64, limit: f64, slack: f64) -> bool {
        if self == Self::InlineComments { value < limit - slack } else { value > limit + slack }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().0)
    }
}

/// One figure of one crate.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    /// The crate, or `workspace`.
    pub(super) owner: String,
    pub(super) measure: Measure,
    pub(super) value: f64,
    /// The worst of what was counted, for the finding.
    examples: Vec<String>,
}

impl Figure {
    /// Makes the figure of a count.
    #[expect(clippy::cast_precision_loss, reason = "counts of source lines are far below 2^52")]
    pub(super) fn count(owner: &str, measure: Measure, count: usize, examples: Vec<String>) -> Self {
        Self { owner: owner.to_owned(), measure, value: count as f64, examples }
    }

    /// Makes the figure of `part` out of `whole`, in so many parts.
    #[expect(clippy::cast_precision_loss, reason = "counts of source lines are far below 2^52")]
    pub(super) fn share(owner: &str, measure: Measure, (part, whole): (usize, usize), of: f64) -> Self {
        let value = of * part as f64 / whole.max(1) as f64;
        Self { owner: owner.to_owned(), measure, value, examples: Vec::new() }
    }

    fn item(&self) -> String {
        format!("{} {}", self.owner, self.measure)
    }
}

/// Compares figures with their aims and with the committed ceilings.
///
/// # Errors
///
/// If the ceilings cannot be read.
pub(super) fn check(root: &Path, figures: &[Figure]) -> Result<Vec<Finding>> {
    Ok(compare(&read(root)?, figures))
}

/// Lowers every committed ceiling to what is measured, and returns the number of those that changed.
///
/// # Errors
///
/// If the ceilings cannot be read or written.
pub(super) fn tighten(root: &Path, figures: &[Figure]) -> Result<usize> {
    let before = read(root)?;
    let (after, changed) = tightened(before, figures);
    if changed > 0 {
        std::fs::write(root.join(FILE), format!("{HEAD}{}", text_of(&after))).context(FILE)?;
    }
    Ok(changed)
}

fn read(root: &Path) -> Result<Ceilings> {
    let text = std::fs::read_to_string(root.join(FILE)).context(FILE)?;
    toml::from_str(&text).context(FILE)
}

fn text_of(ceilings: &Ceilings) -> String {
    let mut text = String::new();
    for (owner, rows) in ceilings.iter().filter(|(_, rows)| !rows.is_empty()) {
        text.push_str(&format!("\n[{owner}]\n"));
        text.extend(rows.iter().map(|(measure, ceiling)| format!("{measure} = {ceiling:.1}\n")));
    }
    text
}

fn ceiling_of(ceilings: &Ceilings, figure: &Figure) -> Option<f64> {
    ceilings.get(&figure.owner)?.get(figure.measure.row().0).copied()
}

fn compare(ceilings: &Ceilings, figures: &[Figure]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for figure in figures {
        let (_, aim, text) = figure.measure.row();
        // A ceiling within the aim excuses nothing: the aim counts.
        let limit = match ceiling_of(ceilings, figure) {
            Some(ceiling) if figure.measure.is_worse(ceiling, aim, 0.0) => ceiling + 0.0,
            Some(_) | None => aim,
        };
        if figure.measure.is_worse(figure.value, limit, if limit == aim { 0.0 } else { SLACK }) {
            let mut text = format!("{:.1} {text}; the aim is {aim}, the ceiling {limit}", figure.value);
            if !figure.examples.is_empty() {
                text.push_str(&format!(": {}", figure.examples.join(", ")));
            }
            findings.push(Finding::new("ratchet", figure.item(), text));
        }
    }
    for (owner, rows) in ceilings {
        let stale = rows.keys().filter(|measure| {
            !figures.iter().any(|figure| figure.owner == *owner && figure.measure.row().0 == measure.as_str())
        });
        findings.extend(stale.map(|measure| {
            Finding::new(
                "ratchet",
                format!("{owner} {measure}"),
                format!("nothing is measured: take it out of {FILE}"),
            )
        }));
    }
    findings
}

/// Lowers each ceiling to its figure, and drops those that meet their aim.
fn tightened(mut ceilings: Ceilings, figures: &[Figure]) -> (Ceilings, usize) {
    let mut changed = 0;
    for figure in figures {
        let (name, aim, _) = figure.measure.row();
        let Some(rows) = ceilings.get_mut(&figure.owner) else { continue };
        let Some(ceiling) = rows.get_mut(name) else { continue };
        // In tenths, as it is written.
        let value = (figure.value * 10.0).round() / 10.0;
        if !figure.measure.is_worse(figure.value, aim, 0.0) {
            rows.remove(name);
            changed += 1;
        // A ceiling that meets the aim by rounding alone would excuse nothing, and the next check would fail.
        } else if figure.measure.is_worse(value, aim, 0.0) && figure.measure.is_worse(*ceiling, value, 0.01) {
            *ceiling = value;
            changed += 1;
        }
    }
    (ceilings, changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ceilings(text: &str) -> Ceilings {
        toml::from_str(text).unwrap()
    }

    fn one(measure: Measure, value: f64) -> Figure {
        Figure { owner: "writ-a".to_owned(), measure, value, examples: vec!["x".to_owned()] }
    }

    #[test]
    fn a_figure_beyond_its_aim_is_found_and_a_ceiling_excuses_it_until_it_grows() {
        let none = Ceilings::new();
        assert_eq!(compare(&none, &[one(Measure::Circle, 6.0)]), []);
        let found = compare(&none, &[one(Measure::Circle, 7.0)]);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].check, found[0].item.as_str()), ("ratchet", "writ-a circle"));
        let some = ceilings("[writ-a]\ncircle = 9.0\n");
        assert_eq!(compare(&some, &[one(Measure::Circle, 9.0)]), []);
        assert_eq!(compare(&some, &[one(Measure::Circle, 10.0)]).len(), 1);
    }

    #[test]
    fn a_figure_that_meets_its_aim_by_rounding_alone_keeps_its_ceiling() {
        let before = ceilings("[writ-a]\ninline-comments = 2.9\n");
        let (after, changed) = tightened(before.clone(), &[one(Measure::InlineComments, 2.97)]);
        assert_eq!((&after, changed), (&before, 0));
        assert_eq!(compare(&after, &[one(Measure::InlineComments, 2.97)]), []);
    }

    #[test]
    fn inline_comments_have_a_floor() {
        let floor = ceilings("[writ-a]\ninline-comments = 1.0\n");
        assert_eq!(compare(&floor, &[one(Measure::InlineComments, 1.0)]), []);
        assert_eq!(compare(&floor, &[one(Measure::InlineComments, 0.7)]).len(), 1);
        assert_eq!(compare(&Ceilings::new(), &[one(Measure::InlineComments, 2.9)]).len(), 1);
        assert_eq!(compare(&Ceilings::new(), &[one(Measure::InlineComments, 3.0)]), []);
    }

    #[test]
    fn a_ceiling_within_its_aim_excuses_nothing_and_one_of_nothing_is_stale() {
        let low = ceilings("[writ-a]\ncircle = 2.0\n");
        assert_eq!(compare(&low, &[one(Measure::Circle, 6.0)]), []);
        assert_eq!(compare(&low, &[]).len(), 1, "of a crate that is not there");
    }

    #[test]
    fn tightening_lowers_drops_and_never_raises() {
        let before = ceilings("[writ-a]\ncircle = 9.0\nquestion-openings = 20.0\nprivate-words = 10.0\n");
        let figures = [
            one(Measure::Circle, 6.0),
            one(Measure::QuestionOpenings, 12.34),
            one(Measure::PrivateWords, 11.0),
            one(Measure::ParticipleTypes, 4.0),
        ];
        let (after, changed) = tightened(before, &figures);
        assert_eq!(text_of(&after), "\n[writ-a]\nprivate-words = 10.0\nquestion-openings = 12.3\n");
        assert_eq!(changed, 2);
        assert_eq!(tightened(after, &figures).1, 0, "again, and nothing changes");
    }

    /// The committed list is what `--tighten` writes.
    #[test]
    fn the_committed_ceilings_are_in_order() {
        let root = crate::workspace::root().unwrap();
        let text = std::fs::read_to_string(root.join(FILE)).unwrap();
        assert_eq!(text, format!("{HEAD}{}", text_of(&read(&root).unwrap())));
    }
}
