//! The workflows that every project has.

use super::{PhaseFlow, WorkflowError, parse_workflow};

/// Names and texts of the built-in workflows, in the order in which they are offered.
const TEXTS: [(&str, &str); 5] = [
    ("feature", include_str!("feature.toml")),
    ("bugfix", include_str!("bugfix.toml")),
    ("release", include_str!("release.toml")),
    ("spike", include_str!("spike.toml")),
    ("docs", include_str!("docs.toml")),
];

/// Returns the built-in workflows with their texts.
///
/// # Errors
///
/// If one of the texts is broken, which the tests of this crate exclude.
pub fn built_in_workflows() -> Result<Vec<(PhaseFlow, &'static str)>, WorkflowError> {
    TEXTS.iter().map(|(name, text)| Ok((parse_workflow(name, text)?, *text))).collect()
}
