//! Paths inside the session's work folder.

use std::fmt;

/// Where the work folder is, as programs in the sandbox see it.
pub const WORK_ROOT: &str = "/work";

/// The longest path, in bytes (`PATH_MAX` of Linux, less its end).
pub const MAX_PATH_BYTES: usize = 4095;

/// The longest name in a path, in bytes (`NAME_MAX` of Linux).
pub const MAX_NAME_BYTES: usize = 255;

/// A path relative to the work folder: `/` between names, no `.` or `..`; empty for the folder itself.
///
/// Only a name: whether links on the way lead out is for whoever opens it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkPath(String);

/// Why a text is no path of the work folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPath {
    /// It leads out, or may.
    #[error("leads out of the work folder; paths are relative to it, without '..'")]
    Outside,
    /// It is too long.
    #[error("is longer than {MAX_PATH_BYTES} bytes, or one of its names than {MAX_NAME_BYTES}")]
    TooLong,
    /// It has a NUL, a line break or another control character.
    #[error("has control characters")]
    Control,
}

impl WorkPath {
    /// Reads a path as models write it: relative, or absolute below [`WORK_ROOT`].
    ///
    /// # Errors
    ///
    /// If it leads out of the work folder, is too long, or has control characters.
    pub fn parse(text: &str) -> Result<Self, InvalidPath> {
        if text.len() > MAX_PATH_BYTES {
            return Err(InvalidPath::TooLong);
        }
        if text.chars().any(char::is_control) {
            return Err(InvalidPath::Control);
        }
        let relative = match text.strip_prefix(WORK_ROOT) {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => rest,
            _ if text.starts_with('/') || text.starts_with('~') => return Err(InvalidPath::Outside),
            _ => text,
        };
        let mut names = Vec::new();
        for name in relative.split('/') {
            match name {
                "" | "." => {}
                ".." => return Err(InvalidPath::Outside),
                _ if name.len() > MAX_NAME_BYTES => return Err(InvalidPath::TooLong),
                _ => names.push(name),
            }
        }
        Ok(Self(names.join("/")))
    }

    /// The path relative to the work folder.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is the work folder itself.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The path as programs in the sandbox see it.
    pub fn absolute(&self) -> String {
        if self.is_root() { WORK_ROOT.to_owned() } else { format!("{WORK_ROOT}/{}", self.0) }
    }
}

impl fmt::Display for WorkPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_root() { "." } else { &self.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<String, InvalidPath> {
        WorkPath::parse(text).map(|path| path.0)
    }

    #[test]
    fn paths_are_normalised() {
        for (text, expected) in [
            ("src/lib.rs", "src/lib.rs"),
            ("./src//lib.rs/", "src/lib.rs"),
            ("/work/src", "src"),
            ("/work", ""),
            (".", ""),
            ("", ""),
            ("a/..b/...", "a/..b/..."),
            ("ä b/€", "ä b/€"),
        ] {
            assert_eq!(parse(text), Ok(expected.to_owned()), "{text}");
        }
        assert_eq!(WorkPath::parse("src").expect("parses").absolute(), "/work/src");
    }

    #[test]
    fn paths_that_lead_out_or_cannot_be_are_refused() {
        for text in
            ["..", "../x", "a/../../x", "a/..", "/etc/passwd", "/workx", "/", "~/.ssh", "/work/../etc"]
        {
            assert_eq!(parse(text), Err(InvalidPath::Outside), "{text}");
        }
        for text in ["a\0b", "a\nb", "\u{1b}[2J", "a\u{7f}", "a\u{85}"] {
            assert_eq!(parse(text), Err(InvalidPath::Control), "{text:?}");
        }
        assert_eq!(parse(&"a/".repeat(3000)), Err(InvalidPath::TooLong));
        assert_eq!(parse(&"a".repeat(256)), Err(InvalidPath::TooLong));
    }
}
