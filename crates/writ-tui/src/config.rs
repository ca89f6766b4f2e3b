//! Settings of the terminal.

use serde::{Deserialize, Serialize};

/// Settings of this crate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TerminalConfig {
    /// When to use colour. Default `auto`.
    pub color: Color,
    /// The number of lines in the history; 0: none. Default 1,000, at most 10,000.
    pub history_lines: usize,
}

impl Default for TerminalConfig {
    fn default() -> Self {
        Self { color: Color::Auto, history_lines: 1_000 }
    }
}

/// When to use colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Color {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The terminal's properties, as the binary detected them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// True if the output is a terminal.
    pub terminal: bool,
    /// True if `NO_COLOR` is set and not empty, or `TERM` is `dumb`.
    pub no_color: bool,
}

impl Color {
    /// Returns true if colour is to be used.
    pub const fn applies_to(self, surroundings: Surroundings) -> bool {
        match self {
            Self::Auto => surroundings.terminal && !surroundings.no_color,
            Self::Always => true,
            Self::Never => false,
        }
    }
}
