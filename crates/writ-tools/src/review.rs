//! The review of tools: those that nothing calls, that fail, that are slow, and that are alike. Pure: counters, descriptions and
//! the time are arguments.

use std::collections::BTreeSet;
use std::time::Duration;

use writ_types::unit::Timestamp;

/// The time without a run from which a tool counts as unused.
pub const UNUSED_AFTER: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The rate of successful runs below which a tool counts as failing, in percent.
pub const SUCCESS_PERCENT: u64 = 70;

/// The average time of a run above which a tool counts as slow.
pub const SLOW_ABOVE: Duration = Duration::from_secs(10);

/// The share of common words from which two descriptions count as alike, in percent of the words of both.
pub const ALIKE_PERCENT: usize = 70;

/// The fewest words of a description that is compared: shorter ones say too little.
const MIN_WORDS: usize = 3;

/// The most words of a description that are compared.
const MAX_WORDS: usize = 200;

/// The most tools of one review.
pub const MAX_REVIEWED: usize = 2_000;

/// The most pairs that are named.
pub const MAX_PAIRS: usize = 50;

/// Words that say nothing about the purpose of a tool.
const EMPTY_WORDS: [&str; 14] =
    ["a", "an", "and", "by", "for", "from", "in", "is", "of", "on", "or", "the", "to", "with"];

/// A tool with its counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReviewedTool {
    /// Its name.
    pub name: String,
    /// Its description.
    pub description: String,
    /// When it was first seen.
    pub first_seen: Timestamp,
    /// The end of its last run.
    pub last_run: Option<Timestamp>,
    /// The number of runs.
    pub runs: u64,
    /// Those of them that have failed.
    pub failures: u64,
    /// The time that all of them took together.
    pub total: Duration,
}

/// The findings of a review, by the names of tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolFindings {
    /// Tools without a run for more than 30 days.
    pub unused: Vec<String>,
    /// Tools of whose runs fewer than 70 % succeed.
    pub failing: Vec<String>,
    /// Tools whose runs take more than ten seconds on average.
    pub slow: Vec<String>,
    /// Pairs with similar descriptions.
    pub alike: Vec<(String, String)>,
}

/// Reviews tools.
pub fn review_tools(tools: &[ReviewedTool], now: Timestamp) -> ToolFindings {
    let names = |is_found: &dyn Fn(&ReviewedTool) -> bool| {
        tools.iter().filter(|tool| is_found(tool)).map(|tool| tool.name.clone()).collect()
    };
    ToolFindings {
        unused: names(&|tool| now.time_since(tool.last_run.unwrap_or(tool.first_seen)) > UNUSED_AFTER),
        failing: names(&is_failing),
        slow: names(&is_slow),
        alike: find_alike(tools),
    }
}

/// Returns true if too many runs fail. A tool that never ran does not fail.
fn is_failing(tool: &ReviewedTool) -> bool {
    let succeeded = u128::from(tool.runs.saturating_sub(tool.failures));
    succeeded * 100 < u128::from(tool.runs) * u128::from(SUCCESS_PERCENT)
}

fn is_slow(tool: &ReviewedTool) -> bool {
    tool.total.as_millis() > u128::from(tool.runs) * SLOW_ABOVE.as_millis()
}

fn find_alike(tools: &[ReviewedTool]) -> Vec<(String, String)> {
    let words: Vec<BTreeSet<String>> = tools.iter().map(|tool| words_of(&tool.description)).collect();
    let mut pairs = Vec::new();
    for (n, (tool, own)) in tools.iter().zip(&words).enumerate() {
        for (other, others) in tools.iter().zip(&words).skip(n + 1) {
            if are_alike(own, others) {
                pairs.push((tool.name.clone(), other.name.clone()));
                if pairs.len() >= MAX_PAIRS {
                    return pairs;
                }
            }
        }
    }
    pairs
}

fn are_alike(one: &BTreeSet<String>, other: &BTreeSet<String>) -> bool {
    if one.len() < MIN_WORDS || other.len() < MIN_WORDS {
        return false;
    }
    let common = one.intersection(other).count();
    let all = one.len() + other.len() - common;
    common * 100 >= all * ALIKE_PERCENT
}

fn words_of(description: &str) -> BTreeSet<String> {
    let words = description.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let words = words.take(MAX_WORDS).map(str::to_lowercase);
    words.filter(|word| !EMPTY_WORDS.contains(&word.as_str())).collect()
}

// === impl ToolFindings ===

impl ToolFindings {
    /// Describes them for people, each group in one line, also those without a finding.
    pub fn describe_groups(&self) -> Vec<String> {
        let list = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let pairs: Vec<String> = self.alike.iter().map(|(one, other)| format!("{one} and {other}")).collect();
        vec![
            format!("Unused for 30 days: {}", list(&self.unused)),
            format!("Failing (fewer than {SUCCESS_PERCENT} % of the runs succeed): {}", list(&self.failing)),
            format!("Slow (more than {} s on average): {}", SLOW_ABOVE.as_secs(), list(&self.slow)),
            format!("Alike: {}", list(&pairs)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_795_694_400_000);
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn tool(name: &str) -> ReviewedTool {
        ReviewedTool {
            name: name.to_owned(),
            description: String::new(),
            first_seen: NOW.minus_duration(100 * DAY),
            last_run: Some(NOW),
            runs: 100,
            failures: 0,
            total: Duration::ZERO,
        }
    }

    /// Rows: WIN-337
    #[test]
    fn a_tool_without_a_run_for_more_than_thirty_days_is_unused() {
        let last = |days: u32| ReviewedTool { last_run: Some(NOW.minus_duration(days * DAY)), ..tool("a") };
        let new = |days: u32| ReviewedTool {
            first_seen: NOW.minus_duration(days * DAY),
            last_run: None,
            runs: 0,
            ..tool("a")
        };
        let is_unused = |tool: ReviewedTool| !review_tools(&[tool], NOW).unused.is_empty();
        assert_eq!([31, 30, 29].map(|days| is_unused(last(days))), [true, false, false]);
        assert_eq!([31, 29].map(|days| is_unused(new(days))), [true, false], "one that never ran");
    }

    /// Rows: WIN-338
    #[test]
    fn a_tool_of_whose_runs_fewer_than_seven_of_ten_succeed_is_failing() {
        let of = |runs, failures| ReviewedTool { runs, failures, ..tool("a") };
        let is_failing = |tool: ReviewedTool| !review_tools(&[tool], NOW).failing.is_empty();
        assert_eq!(
            [(100, 31), (100, 30), (1, 1), (0, 0)].map(|(runs, failures)| is_failing(of(runs, failures))),
            [true, false, true, false]
        );
    }

    /// Rows: WIN-339
    #[test]
    fn a_tool_that_takes_more_than_ten_seconds_on_average_is_slow() {
        let of = |runs, ms| ReviewedTool { runs, total: Duration::from_millis(ms), ..tool("a") };
        let is_slow = |tool: ReviewedTool| !review_tools(&[tool], NOW).slow.is_empty();
        assert_eq!(
            [(1, 10_001), (1, 10_000), (2, 20_001), (0, 0)].map(|(runs, ms)| is_slow(of(runs, ms))),
            [true, false, true, false]
        );
    }

    /// Rows: WIN-340
    #[test]
    fn tools_with_nearly_the_same_description_are_a_pair_and_others_are_none() {
        let of = |name: &str, description: &str| ReviewedTool {
            description: description.to_owned(),
            ..tool(name)
        };
        let tools = [
            of("a", "Fetch the weather forecast of a city."),
            of("b", "Fetches mail and sorts it by its sender."),
            of("c", "fetch the WEATHER forecast for a city"),
            of("d", "Weather"),
            of("e", "weather"),
            of("f", ""),
            of("g", ""),
        ];
        assert_eq!(review_tools(&tools, NOW).alike, [("a".to_owned(), "c".to_owned())]);
        let many: Vec<ReviewedTool> = (0..100).map(|n| of(&n.to_string(), "one two three four")).collect();
        assert_eq!(review_tools(&many, NOW).alike.len(), MAX_PAIRS);
    }

    #[test]
    fn each_group_has_its_line_also_without_a_finding() {
        let findings = ToolFindings {
            failing: vec!["a".to_owned(), "b".to_owned()],
            alike: vec![("a".to_owned(), "c".to_owned())],
            ..ToolFindings::default()
        };
        assert_eq!(
            findings.describe_groups(),
            [
                "Unused for 30 days: none",
                "Failing (fewer than 70 % of the runs succeed): a, b",
                "Slow (more than 10 s on average): none",
                "Alike: a and c",
            ]
        );
    }
}
