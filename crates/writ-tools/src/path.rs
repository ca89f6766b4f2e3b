//! Paths inside the session's work folder.

use std::fmt;

use writ_inspect::scope::resolve_path;

/// The path of the work folder, as programs in the sandbox see it.
pub const WORK_ROOT: &str = writ_inspect::scope::WORK;

/// The longest path, in bytes (`PATH_MAX` of Linux, less its end).
pub const MAX_PATH_BYTES: usize = 4095;

/// The longest name in a path, in bytes (`NAME_MAX` of Linux).
pub const MAX_NAME_BYTES: usize = 255;

/// A path relative to the work folder: `/` between names, no `.` or `..`; empty for the folder itself. A path
/// that leads out is absolute: the door decides if it may be used.
///
/// This is only a name: the code that opens it must check the links on the way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkPath(String);

/// The reason that a text is no path of the work folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPath {
    /// It begins with `~`, which nothing here expands.
    #[error("begins with '~'; paths are relative to the work folder")]
    Tilde,
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
    /// If it begins with `~`, is too long, or has control characters.
    pub fn parse_path(text: &str) -> Result<Self, InvalidPath> {
        if text.len() > MAX_PATH_BYTES {
            return Err(InvalidPath::TooLong);
        }
        // A control character could hide part of the path on a screen.
        if text.chars().any(char::is_control) {
            return Err(InvalidPath::Control);
        }
        // No shell expands it here, so it would be a file with an odd name.
        if text.starts_with('~') {
            return Err(InvalidPath::Tilde);
        }
        if text.split('/').any(|name| name.len() > MAX_NAME_BYTES) {
            return Err(InvalidPath::TooLong);
        }
        // Resolved against the work folder: an absolute path below it is the same as a relative one.
        let resolved = resolve_path(WORK_ROOT, text);
        let inside = resolved.strip_prefix(WORK_ROOT).filter(|rest| rest.is_empty() || rest.starts_with('/'));
        Ok(Self(inside.map_or(resolved.as_str(), |rest| rest.trim_start_matches('/')).to_owned()))
    }

    /// The path relative to the work folder, or absolute where it leads out.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if it leads out of the work folder.
    pub fn is_outside(&self) -> bool {
        self.0.starts_with('/')
    }

    /// Returns true for the work folder itself.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The path as programs in the sandbox see it.
    pub fn absolute_path(&self) -> String {
        resolve_path(WORK_ROOT, &self.0)
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
        WorkPath::parse_path(text).map(|path| path.0)
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
        assert_eq!(WorkPath::parse_path("src").expect("parses").absolute_path(), "/work/src");
    }

    #[test]
    fn paths_that_lead_out_are_absolute_and_those_that_cannot_be_are_refused() {
        for (text, absolute) in [
            ("..", "/"),
            ("../x", "/x"),
            ("a/../../x", "/x"),
            ("/etc/passwd", "/etc/passwd"),
            ("/workx", "/workx"),
            ("/work/../etc", "/etc"),
        ] {
            let path = WorkPath::parse_path(text).expect("is a path");
            assert!(path.is_outside(), "{text}");
            assert_eq!(path.absolute_path(), absolute, "{text}");
        }
        assert_eq!(parse("a/.."), Ok(String::new()));
        assert_eq!(parse("~/.ssh"), Err(InvalidPath::Tilde));
        for text in ["a\0b", "a\nb", "\u{1b}[2J", "a\u{7f}", "a\u{85}"] {
            assert_eq!(parse(text), Err(InvalidPath::Control), "{text:?}");
        }
        assert_eq!(parse(&"a/".repeat(3000)), Err(InvalidPath::TooLong));
        assert_eq!(parse(&"a".repeat(256)), Err(InvalidPath::TooLong));
    }
}
