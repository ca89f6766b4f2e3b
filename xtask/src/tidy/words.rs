//! Measures how comments and names are worded, crate by crate.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use regex::Regex;

use super::ratchet::{Figure, Measure};

/// Folders with sources that are no part of the product.
const SKIPPED: [&str; 5] = ["tests", "target", "fuzz", "examples", "benches"];
/// The line at which the tests of a file begin.
const TESTS: &str = "#[cfg(test)]\nmod";
/// The folder of the crates among which names of types are compared.
const PRODUCT: &str = "crates/";
/// The section of `ratchet.toml` for what no crate has alone.
const WORKSPACE: &str = "workspace";
/// So many examples are shown with a figure.
const EXAMPLES: usize = 12;

/// The patterns, compiled once.
struct Patterns {
    question: Regex,
    private: Regex,
    participle: Regex,
    function: Regex,
    type_name: Regex,
}

impl Patterns {
    fn new() -> Result<Self, regex::Error> {
        let private = [
            "nobody|somebody|whoever|whom|whose|whatever|all the same|for good|told|heard|kept|lost|gone|said|wish",
            "wishes|beforehand|by itself|no more|nothing any more",
        ];
        let participle = [
            "Told|Heard|Kept|Gone|Said|Asked|Known|Meant|Went|Lost|Given|Taken|Held|Seen|Done|Left|Made|Sent|Read",
            "Used|Found|Put|Shown|Judged|Ruled|Gathered|Granted|Standing|Acting|Waiting|Following",
        ];
        let visible = r"^\s*(?:pub(?:\([^)]*\))?\s+)?";
        Ok(Self {
            question: Regex::new(r"^(?:What|Whether|How|Who|Whom|Whose|Where|Why|Which)\b")?,
            private: Regex::new(&format!(r"(?i)\b(?:{})\b", private.join("|")))?,
            participle: Regex::new(&format!(r"\b(?:struct|enum|trait|type)\s+({})\b", participle.join("|")))?,
            function: Regex::new(&format!(
                r"{visible}(?:const\s+)?(?:async\s+)?(?:unsafe\s+)?fn\s+([a-z_0-9]+)"
            ))?,
            type_name: Regex::new(&format!(r"{visible}(?:struct|enum)\s+([A-Z]\w*)"))?,
        })
    }
}

/// The counts of one crate.
#[derive(Debug, Default)]
struct Counts {
    docs: usize,
    questions: usize,
    comments: usize,
    private: usize,
    functions: usize,
    one_word: usize,
    code: usize,
    inline: usize,
    participles: Vec<String>,
}

/// The figures of every crate, and of the workspace.
///
/// # Errors
///
/// If a pattern does not compile.
pub(super) fn measure(folders: &[(String, String)], texts: &[(String, String)]) -> Result<Vec<Figure>> {
    let patterns = Patterns::new()?;
    let mut figures = Vec::new();
    let mut types: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (name, folder) in folders {
        let mut counts = Counts::default();
        for (path, text) in texts.iter().filter(|(path, _)| path.starts_with(folder) && is_product(path)) {
            let end = text.find(TESTS).unwrap_or(text.len());
            let found = counts.read(path, text.get(..end).unwrap_or(text), &patterns);
            if path.starts_with(PRODUCT) {
                for name in found {
                    types.entry(name).or_default().insert(path);
                }
            }
        }
        figures.extend(counts.figures(name));
    }
    let mut doubled: Vec<(usize, String)> =
        types.into_iter().map(|(name, files)| (files.len(), name)).filter(|(files, _)| *files > 1).collect();
    doubled.sort_by(|a, b| b.cmp(a));
    let examples = doubled.iter().map(|(files, name)| format!("{name} x{files}")).take(EXAMPLES).collect();
    figures.push(Figure::count(WORKSPACE, Measure::DoubledTypes, doubled.len(), examples));
    Ok(figures)
}

/// Returns true for the sources that ship: no tests, examples or fuzz targets.
fn is_product(path: &str) -> bool {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    name != "tests.rs" && !folder.split('/').any(|part| SKIPPED.contains(&part))
}

impl Counts {
    /// Counts the lines of one file, and returns the types that it defines.
    fn read(&mut self, path: &str, text: &str, patterns: &Patterns) -> Vec<String> {
        let mut types = Vec::new();
        let mut before = "";
        for line in text.lines() {
            let bare = line.trim();
            if let Some(marker) = ["///", "//!"].into_iter().find(|marker| bare.starts_with(marker)) {
                let body = bare.trim_start_matches(marker).trim();
                self.comments += 1;
                self.private += patterns.private.find_iter(body).count();
                // Only the first line of a comment opens it.
                if !before.starts_with(marker) {
                    self.docs += 1;
                    self.questions += usize::from(patterns.question.is_match(body));
                }
            } else if bare.starts_with("//") {
                self.comments += 1;
                self.inline += 1;
                self.private += patterns.private.find_iter(bare).count();
            } else if !bare.is_empty() {
                self.code += 1;
                if let Some(found) = patterns.function.captures(line) {
                    self.functions += 1;
                    self.one_word += usize::from(!found[1].trim_matches('_').contains('_'));
                }
                types.extend(patterns.type_name.captures(line).map(|found| found[1].to_owned()));
                for found in patterns.participle.captures_iter(line) {
                    self.participles.push(format!("{} in {path}", &found[1]));
                }
            }
            before = bare;
        }
        types
    }

    fn figures(self, name: &str) -> Vec<Figure> {
        vec![
            Figure::share(name, Measure::QuestionOpenings, (self.questions, self.docs), 100.0),
            Figure::share(name, Measure::PrivateWords, (self.private, self.comments), 1_000.0),
            Figure::share(name, Measure::OneWordFunctions, (self.one_word, self.functions), 100.0),
            Figure::share(name, Measure::InlineComments, (self.inline, self.code), 100.0),
            Figure::count(name, Measure::ParticipleTypes, self.participles.len(), self.participles),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(files: &[(&str, &str)]) -> Vec<(String, f64)> {
        let texts: Vec<(String, String)> =
            files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        let folders = [("writ-a".to_owned(), "crates/writ-a/".to_owned())];
        let figures = measure(&folders, &texts).unwrap();
        figures
            .into_iter()
            .map(|figure| (format!("{}.{}", figure.owner, figure.measure), figure.value))
            .collect()
    }

    fn figure(files: &[(&str, &str)], name: &str) -> f64 {
        figures(files).into_iter().find(|(found, _)| found == name).unwrap().1
    }

    const FILE: &str = "\
//! Whether it is a module.
//! What goes on is no opening.

/// Returns the number, whatever it says.
pub(crate) const fn number() {}

// A reason, told once.
async fn read_number() {
    let a = 1;
}

struct Kept;
struct Number;

#[cfg(test)]
mod tests {
    /// What is in tests does not count.
    fn told() {}
    struct Told;
}
";

    #[test]
    fn the_words_of_a_file_are_counted() {
        let files = [("crates/writ-a/src/a.rs", FILE)];
        let found = figures(&files);
        let expected = [
            ("writ-a.question-openings", 50.0),
            ("writ-a.private-words", 500.0),
            ("writ-a.one-word-functions", 50.0),
            ("writ-a.inline-comments", 100.0 / 6.0),
            ("writ-a.participle-types", 1.0),
            ("workspace.doubled-types", 0.0),
        ];
        assert_eq!(found.len(), expected.len());
        for ((name, value), (expected_name, expected_value)) in found.iter().zip(expected) {
            assert_eq!(name, expected_name);
            assert!((value - expected_value).abs() < 0.001, "{name}: {value}");
        }
    }

    #[test]
    fn a_name_in_two_files_is_doubled_but_not_in_tests() {
        let one = ("crates/writ-a/src/a.rs", "struct A;\n");
        let doubled = |path| figure(&[one, (path, "pub struct A;\n")], "workspace.doubled-types");
        assert!((doubled("crates/writ-a/src/b.rs") - 1.0).abs() < 0.001);
        for path in
            ["crates/writ-a/src/b/tests.rs", "crates/writ-a/tests/b.rs", "crates/writ-a/examples/b.rs"]
        {
            assert!(doubled(path) < 0.001, "{path}");
        }
    }

    /// A word counts as a whole, in any case, and a function's name without its outer underscores.
    #[test]
    fn words_and_names_are_whole() {
        let words = |text: &str| figure(&[("crates/writ-a/src/a.rs", text)], "writ-a.private-words");
        assert!((words("// Nobody\n") - 1_000.0).abs() < 0.001);
        assert!(words("// keptness, untold\n") < 0.001);
        let names = |text: &str| figure(&[("crates/writ-a/src/a.rs", text)], "writ-a.one-word-functions");
        assert!((names("fn _a() {}\nfn b_c() {}\n") - 50.0).abs() < 0.001);
    }
}
