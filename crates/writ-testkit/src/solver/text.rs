//! Small readings of texts.

use std::collections::BTreeMap;

/// Lines of a file with their numbers, as `file_read` shows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NumberedLines(pub(crate) BTreeMap<usize, String>);

impl NumberedLines {
    /// Reads what `file_read` shows. `None` where it shows no lines.
    pub(crate) fn parse(shown: &str) -> Option<Self> {
        let line = |line: &str| {
            let (number, rest) = line.trim_start().split_once("  ")?;
            Some((number.parse().ok()?, rest.to_owned()))
        };
        let lines: BTreeMap<usize, String> =
            shown.lines().map_while(|text| line(text).or_else(|| blank(text))).collect();
        (!lines.is_empty()).then_some(Self(lines))
    }

    pub(crate) fn line(&self, number: usize) -> Option<&str> {
        self.0.get(&number).map(String::as_str)
    }

    pub(crate) fn text(&self) -> String {
        self.0.values().fold(String::new(), |text, line| text + line + "\n")
    }
}

/// An empty line, possibly without its white space.
fn blank(line: &str) -> Option<(usize, String)> {
    Some((line.trim().parse().ok()?, String::new()))
}

/// Returns the rest of a text after the first place of another.
pub(crate) fn after<'a>(text: &'a str, found: &str) -> Option<&'a str> {
    text.split_once(found).map(|(_, rest)| rest)
}

/// Returns the first line with content, in at most 160 characters.
pub(crate) fn first_line(text: &str) -> String {
    text.lines()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .unwrap_or("(nothing)")
        .chars()
        .take(160)
        .collect()
}

/// Returns the indentation of a line.
pub(crate) fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// A piece of source code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Name,
    Number,
    /// A string, with its quotes.
    Text,
    Sign,
    Space,
}

/// A piece of source code with its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) text: String,
}

impl Token {
    pub(crate) fn is(&self, text: &str) -> bool {
        self.text == text
    }

    /// A string without its quotes.
    pub(crate) fn quoted(&self) -> Option<&str> {
        (self.kind == TokenKind::Text).then(|| self.text.trim_matches(|c| c == '"' || c == '\''))
    }
}

/// Signs of more than one character, the longest first.
const SIGNS: [&str; 17] =
    ["..=", "===", "!==", "..", "==", "!=", "<=", ">=", "&&", "||", "+=", "-=", "->", "=>", "//", "??", "::"];

/// Splits a line of any of the three languages; joined again, it is the same.
pub(crate) fn tokens(line: &str) -> Vec<Token> {
    let mut out = Vec::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let run = |of: fn(char) -> bool| rest.find(|c| !of(c)).unwrap_or(rest.len());
        let (kind, length) = if first.is_whitespace() {
            (TokenKind::Space, run(char::is_whitespace))
        } else if first.is_ascii_digit() {
            (TokenKind::Number, run(|c| c.is_ascii_alphanumeric() || c == '_'))
        } else if first.is_alphabetic() || first == '_' {
            (TokenKind::Name, run(|c| c.is_alphanumeric() || c == '_'))
        } else if first == '"' {
            let end = rest.char_indices().skip(1).find(|(_, c)| *c == '"');
            (TokenKind::Text, end.map_or(rest.len(), |(at, _)| at + 1))
        } else {
            let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
            (TokenKind::Sign, sign.map_or(first.len_utf8(), |sign| sign.len()))
        };
        let (token, tail) = rest.split_at_checked(length).unwrap_or((rest, ""));
        out.push(Token { kind, text: token.to_owned() });
        rest = tail;
    }
    out
}

/// Tokens as source code again.
pub(crate) fn joined(tokens: &[Token]) -> String {
    tokens.iter().map(|token| token.text.as_str()).collect()
}
