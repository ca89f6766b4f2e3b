//! What a person is shown before signing: complete, escaped, hashed.

use std::fmt::Write as _;

use writ_types::action::{Action, ChangeKind, ExecProfile, Place};
use writ_types::digest::Digest;
use writ_types::entry::Risk;

use crate::prepared::Prepared;

/// The longest text that can be shown, in bytes: more cannot be read in earnest, so it cannot be approved.
pub const MAX_SHOWN_BYTES: usize = 256 * 1024;

/// What is too long to be shown completely, and so cannot be approved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it needs {bytes} bytes to be shown completely; the limit is {MAX_SHOWN_BYTES}, so it cannot be approved")]
pub struct Unshowable {
    /// The size that it would have.
    pub bytes: usize,
}

/// The complete, escaped text of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    text: String,
    hash: Digest,
}

impl Shown {
    /// Writes an action out, followed by a detail such as the diff of the files that it names.
    ///
    /// # Errors
    ///
    /// If it is too long to be shown completely.
    pub fn new(prepared: &Prepared, detail: &str) -> Result<Self, Unshowable> {
        let mut text = describe(prepared);
        if !detail.is_empty() {
            text.push('\n');
            text.push_str(&escape(detail));
        }
        if text.len() > MAX_SHOWN_BYTES {
            return Err(Unshowable { bytes: text.len() });
        }
        let hash = Digest::of(text.as_bytes());
        Ok(Self { text, hash })
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its hash.
    pub const fn hash(&self) -> Digest {
        self.hash
    }
}

/// Whether a character could make a text look like another one, or move what is shown.
fn deceives(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t')
        || matches!(c,
            // Soft hyphen, combining grapheme joiner, Arabic letter mark, Hangul fillers, Khmer and Mongolian invisibles.
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            // Zero-width and directional marks, line and paragraph separators, invisible operators.
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            // Variation selectors, musical controls, tags, private use.
            | '\u{fe00}'..='\u{fe0f}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
            | '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{10ffff}')
}

/// Escapes every character that could deceive, visibly: `\u{202e}`. Newlines and tabs stay.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if deceives(c) {
            let _ = write!(out, "{}", c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// Escapes a text for one line: newlines and tabs too.
pub fn escape_line(text: &str) -> String {
    escape(text).replace('\n', "\\n").replace('\t', "\\t")
}

/// An argument as a person reads it: quoted where spaces or nothing would hide its borders, and with a
/// mark where letters of several scripts could be mistaken for each other.
fn argument(text: &str) -> String {
    let escaped = escape_line(text);
    let plain = !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./=:,+@%".contains(&b));
    let mixed = text.chars().any(|c| c.is_ascii_alphabetic())
        && text.chars().any(|c| c.is_alphabetic() && matches!(c, '\u{370}'..='\u{5ff}' | '\u{ff00}'..='\u{ffef}'));
    let shown = if plain { escaped } else { format!("'{}'", escaped.replace('\'', "'\\''")) };
    if mixed { format!("{shown} (letters of several alphabets: {})", text.escape_unicode()) } else { shown }
}

fn describe(prepared: &Prepared) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(out, "{name:<10} {value}");
    };
    line("action", prepared.action.kind().as_str());
    line("agent", &escape_line(&prepared.agent));
    line("tool", &escape_line(&prepared.tool));
    line("for", &escape_line(&prepared.intent));
    line("rests on", prepared.label.taint.as_str());
    match &prepared.action {
        Action::Exec(exec) => {
            let argv: Vec<String> = exec.argv.iter().map(|a| argument(a)).collect();
            line("run", &argv.join(" "));
            line("in", &argument(&exec.cwd));
            for (name, value) in &exec.env {
                line("with", &format!("{}={}", escape_line(name), argument(value)));
            }
            let profile = match exec.profile {
                ExecProfile::Task => "the session's sandbox",
                ExecProfile::Verification => "a verification sandbox",
            };
            line("where", profile);
            line("hosts", &if exec.hosts.is_empty() { "none".to_owned() } else { exec.hosts.join(" ") });
            if let Some(stdin) = &exec.stdin {
                line("input", &format!("\n{}", escape(stdin)));
            }
        }
        Action::WriteFile(write) => {
            let place = match write.place {
                Place::Overlay => "the session's overlay",
                Place::Project => "your project",
            };
            line("where", &format!("{place} {}", argument(&write.root)));
            for change in &write.changes {
                let verb = match change.kind {
                    ChangeKind::Create => "create",
                    ChangeKind::Modify => "change",
                    ChangeKind::Delete => "delete",
                };
                let mode = if change.executable { ", executable" } else { "" };
                line(verb, &format!("{} ({} bytes{mode})", argument(&change.path), change.bytes));
            }
            if let Some(content) = &write.content {
                line("content", &format!("\n{}", escape(content)));
            }
        }
        Action::ReadFile(_)
        | Action::Fetch(_)
        | Action::Browse(_)
        | Action::Recall(_)
        | Action::Remember(_)
        | Action::Forget(_)
        | Action::Say(_)
        | Action::SendFile(_)
        | Action::CallTool(_)
        | Action::CreateTool(_)
        | Action::InstallSkill(_)
        | Action::Docker(_)
        | Action::Subscribe(_)
        | Action::Message(_)
        | Action::Handoff(_)
        | Action::Spawn(_)
        | Action::Escalate(_)
        | Action::ModelCall(_)
        | Action::Vcs(_)
        | Action::ModifySelf(_)
        | Action::Operate(_) => {
            for (dimension, value) in crate::scope::attributes(&prepared.action) {
                line(dimension.as_str(), &argument(&value));
            }
            // The whole action follows, so that nothing of it stays unseen.
            let whole = serde_json::to_string_pretty(&prepared.action).unwrap_or_default();
            line("in full", &format!("\n{}", escape(&whole)));
        }
    }
    for (name, digest) in &prepared.bindings {
        line("bound to", &format!("{} {digest}", argument(name)));
    }
    out
}

/// How much harm a wrong approval of this action can do (design 3.2, the risk ladder).
pub const fn risk(action: &Action) -> Risk {
    match action {
        Action::ReadFile(_) | Action::Recall(_) | Action::Remember(_) | Action::Say(_) | Action::ModelCall(_) => {
            Risk::Low
        }
        Action::Exec(exec) => {
            if exec.hosts.is_empty() {
                Risk::Low
            } else {
                Risk::Medium
            }
        }
        Action::WriteFile(write) => match write.place {
            Place::Overlay => Risk::Low,
            Place::Project => Risk::Medium,
        },
        Action::Fetch(_)
        | Action::Browse(_)
        | Action::Forget(_)
        | Action::CallTool(_)
        | Action::Subscribe(_)
        | Action::Spawn(_)
        | Action::Escalate(_)
        | Action::Message(_)
        | Action::Handoff(_) => Risk::Medium,
        Action::CreateTool(_)
        | Action::InstallSkill(_)
        | Action::Docker(_)
        | Action::Vcs(_)
        | Action::ModifySelf(_)
        | Action::Operate(_) => Risk::High,
        Action::SendFile(_) => Risk::Irreversible,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_deceive_is_escaped_visibly() {
        let text = "a\u{202e}b\u{1b}[2Jc\u{200b}d\u{e0041}e\r\nf\tg";
        assert_eq!(escape(text), "a\\u{202e}b\\u{1b}[2Jc\\u{200b}d\\u{e0041}e\\u{d}\nf\tg");
        assert_eq!(escape_line("a\nb"), "a\\nb");
    }

    #[test]
    fn arguments_keep_their_borders() {
        assert_eq!(argument("a b"), "'a b'");
        assert_eq!(argument(""), "''");
        assert_eq!(argument("it's"), "'it'\\''s'");
        assert_eq!(argument("x "), "'x '");
        assert!(argument("p\u{430}ypal.com").contains("several alphabets"));
        assert_eq!(argument("--flag=1"), "--flag=1");
    }
}
