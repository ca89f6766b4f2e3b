//! The text that a person reads before signing: complete, escaped, hashed.

use std::fmt::Write as _;

use writ_types::action::{Action, ChangeKind, Exec, ExecProfile, Place, WriteFile};
use writ_types::digest::Digest;
use writ_types::entry::Risk;
use writ_types::recipient::Recipient;
use writ_types::visible::acts_unseen;

use crate::prepared::Prepared;
use crate::scope::Dimension;

/// The longest text that can be shown, in bytes: more cannot be read in earnest, so it cannot be approved.
pub const MAX_SHOWN_BYTES: usize = 256 * 1024;

/// An action that is too long to be shown completely, and so cannot be approved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it needs {bytes} bytes to be shown completely; the limit is {MAX_SHOWN_BYTES}, so it cannot be approved"
)]
pub struct Unshowable {
    /// The size that it would have.
    pub bytes: usize,
}

/// The complete, escaped text of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownText {
    text: String,
    hash: Digest,
}

impl ShownText {
    /// Writes an action out, followed by a detail such as the diff of the files that it names.
    ///
    /// # Errors
    ///
    /// If it is too long to be shown completely.
    pub fn new(prepared: &Prepared, detail: &str) -> Result<Self, Unshowable> {
        let mut text = describe_prepared(prepared);
        if !detail.is_empty() {
            text.push('\n');
            text.push_str(&escape_text(detail));
        }
        // A cut text would hide what is approved, so there is none.
        if text.len() > MAX_SHOWN_BYTES {
            return Err(Unshowable { bytes: text.len() });
        }
        // The hash is of what was shown, so that a signature covers exactly that text.
        let hash = Digest::of_bytes(text.as_bytes());
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

/// Returns true if a character could hide, move or blur the text around it: invisible and control characters,
/// those without a visible mark of their own, and private or unassigned ones.
fn can_deceive(c: char) -> bool {
    if matches!(c, '\n' | '\t') {
        return false;
    }
    // Invisible characters of all kinds come from one list, which other checks use, too.
    acts_unseen(c)
        || (c.is_whitespace() && !c.is_ascii())
        // The last two code points of each plane are no characters.
        || u32::from(c) & 0xfffe == 0xfffe
        || matches!(c,
            // Arabic, Syriac and Kaithi marks, blank Braille, the selector of emoji, hieroglyph controls.
            '\u{600}'..='\u{605}' | '\u{6dd}' | '\u{70f}' | '\u{890}' | '\u{891}' | '\u{8e2}' | '\u{110bd}'
            | '\u{110cd}' | '\u{2800}' | '\u{fe0f}' | '\u{13430}'..='\u{1345f}'
            // No characters, a place for an object, private use.
            | '\u{fdd0}'..='\u{fdef}' | '\u{fffc}' | '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{10ffff}')
}

/// Returns true if a text holds no character that could deceive, as the result of [`escape_text`] does.
pub fn is_plain(text: &str) -> bool {
    !text.contains(can_deceive)
}

/// Escapes every character that could deceive, visibly: `\u{202e}`. Newlines and tabs stay.
///
/// Two texts never look alike: a backslash that stands before an escape, or before text that reads like
/// one, is doubled.
pub fn escape_text(text: &str) -> String {
    escape_where(text, can_deceive)
}

/// Escapes a text for one line: newlines and tabs too.
pub fn escape_line(text: &str) -> String {
    escape_where(text, |c| can_deceive(c) || matches!(c, '\n' | '\t'))
}

fn escape_where(text: &str, hides: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut backslashes = 0;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let hidden = hides(c);
        // A text that already reads like an escape is escaped as well, or it could imitate one.
        if hidden || (c == 'u' && chars.peek() == Some(&'{')) {
            out.extend(std::iter::repeat_n('\\', backslashes));
        }
        backslashes = if c == '\\' { backslashes.saturating_add(1) } else { 0 };
        if hidden {
            let _ = write!(out, "{}", c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// An argument as a person reads it, quoted as a shell would: bare where it is plain, `'…'` where spaces or
/// nothing would hide its borders, `$'…'` with escapes where something in it cannot be seen.
pub fn quote_argument(text: &str) -> String {
    // Latin letters beside others may spell a familiar word; a text in one foreign alphabet alone resembles
    // none.
    let resembles = text.chars().any(|c| c.is_ascii_alphanumeric()) && text.chars().any(is_foreign);
    with_letters_named(text, resembles)
}

/// A host as a person reads it: anything but ASCII is named, since whole alphabets look like Latin.
fn quote_host(text: &str) -> String {
    with_letters_named(text, !text.is_ascii())
}

fn with_letters_named(text: &str, name_them: bool) -> String {
    let shown = shell_quoted(text);
    if !name_them {
        return shown;
    }
    format!("{shown} (letters of several alphabets: {})", ansi_quoted(text, |c| !c.is_ascii()))
}

fn shell_quoted(text: &str) -> String {
    let plain =
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./=:,+@%".contains(&b));
    if plain {
        text.to_owned()
    // An unseen character in plain quotes would stay unseen.
    } else if text.chars().any(|c| can_deceive(c) || matches!(c, '\n' | '\t')) {
        ansi_quoted(text, can_deceive)
    } else {
        // A quote inside is closed, escaped and opened again, as a shell needs it.
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

fn ansi_quoted(text: &str, hides: impl Fn(char) -> bool) -> String {
    let mut out = String::from("$'");
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\\' | '\'' => out.extend(['\\', c]),
            c if hides(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out.push('\'');
    out
}

/// Returns true if a character may pass for an ASCII one. Accented Latin, kana, Han and Hangul do not.
fn is_foreign(c: char) -> bool {
    !c.is_ascii()
        && !matches!(c,
            '\u{c0}'..='\u{24f}' | '\u{3041}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}'
            | '\u{ac00}'..='\u{d7a3}' | '\u{20000}'..='\u{323af}')
}

/// The text as it grows: named lines, and blocks with lines that cannot be taken for named ones.
struct Page(String);

impl Page {
    fn add_line(&mut self, name: &str, value: &str) {
        let _ = writeln!(self.0, "{name:<10} {value}");
    }

    fn add_block(&mut self, name: &str, text: &str) {
        self.add_line(name, "");
        // Each line begins with a mark, so that no line of a text looks like a named one of the page.
        for line in escape_text(text).split('\n') {
            let _ = writeln!(self.0, "  | {line}");
        }
    }
}

fn describe_prepared(prepared: &Prepared) -> String {
    let mut page = Page(String::new());
    page.add_line("action", prepared.action.kind().as_str());
    page.add_line("agent", &escape_line(&prepared.agent));
    page.add_line("tool", &escape_line(&prepared.tool));
    page.add_line("for", &escape_line(&prepared.intent));
    // The taint is shown, since it says if an outsider can have chosen the arguments.
    page.add_line("rests on", prepared.label.taint.as_str());
    describe_action(&prepared.action, &mut page);
    for (name, digest) in &prepared.bindings {
        page.add_line("bound to", &format!("{} {digest}", quote_argument(name)));
    }
    page.0
}

fn describe_action(action: &Action, page: &mut Page) {
    if let Action::Exec(exec) = action {
        // Programs, files and plans have layouts of their own, since people read these most.
        return describe_exec(exec, page);
    }
    if let Action::WriteFile(write) = action {
        return describe_write(write, page);
    }
    if let Action::Plan(plan) = action {
        return planned::describe_plan(plan, page);
    }
    for (dimension, value) in crate::scope::attributes_of(action) {
        let value = if dimension == Dimension::Host { quote_host(&value) } else { quote_argument(&value) };
        page.add_line(dimension.as_str(), &value);
    }
    // The whole action follows, so that nothing of it stays unseen.
    page.add_block("in full", &serde_json::to_string_pretty(action).unwrap_or_default());
}

fn describe_exec(exec: &Exec, page: &mut Page) {
    let argv: Vec<String> = exec.argv.iter().map(|a| quote_argument(a)).collect();
    page.add_line("run", &argv.join(" "));
    page.add_line("in", &quote_argument(&exec.cwd));
    for (name, value) in &exec.env {
        page.add_line("with", &format!("{}={}", quote_argument(name), quote_argument(value)));
    }
    let profile = match exec.profile {
        ExecProfile::Task => "the session's sandbox",
        ExecProfile::Verification => "a verification sandbox",
        ExecProfile::Server => "the sandbox of a server of tools",
        ExecProfile::Gate => "the sandbox of a gate",
    };
    page.add_line("where", profile);
    let hosts: Vec<String> = exec.hosts.iter().map(|name| quote_host(name)).collect();
    // «none» is written out: an absent line could be overlooked.
    page.add_line("hosts", &if hosts.is_empty() { "none".to_owned() } else { hosts.join(" ") });
    page.add_line("at most", &format!("{} ms", exec.timeout_ms));
    if let Some(stdin) = &exec.stdin {
        page.add_block("input", stdin);
    }
}

fn describe_write(write: &WriteFile, page: &mut Page) {
    let place = match write.place {
        Place::Overlay => "the session's overlay",
        Place::Project => "your project",
    };
    page.add_line("where", &format!("{place} {}", quote_argument(&write.root)));
    for change in &write.changes {
        let verb = match change.kind {
            ChangeKind::Create => "create",
            ChangeKind::Modify => "change",
            ChangeKind::Delete => "delete",
        };
        let mode = if change.executable { ", executable" } else { "" };
        page.add_line(verb, &format!("{} ({} bytes{mode})", quote_argument(&change.path), change.bytes));
    }
    if let Some(content) = &write.content {
        if !write.encoding.is_utf8() {
            page.add_line("encoding", write.encoding.as_str());
        }
        page.add_block("content", content);
    }
}

/// Returns the harm that a wrong approval of this action can do (design 3.2, the risk ladder).
pub fn risk_of(action: &Action) -> Risk {
    let of_kind = action.kind().row().risk;
    // Network access decides, since a program that reaches no host can at most harm its own overlay.
    if let Action::Exec(exec) = action {
        // A program that reaches hosts can send out the files it works on.
        return if exec.hosts.is_empty() { of_kind } else { Risk::Medium };
    }
    if let Action::WriteFile(write) = action {
        return match write.place {
            Place::Overlay => of_kind,
            Place::Project => Risk::Medium,
        };
    }
    // The owner's file says it of each tool; a tool about which it says nothing counts as medium.
    if let Action::CallTool(call) = action {
        return call.risk;
    }
    // A file for the owner stays on this machine until the owner fetches it; a file for others cannot be recalled.
    if let Action::SendFile(send) = action {
        return if send.to == Recipient::Owner { Risk::Low } else { of_kind };
    }
    if let Action::Plan(plan) = action {
        // A plan is as risky as its worst step.
        let steps = plan.steps.iter().map(|step| risk_of(&step.action)).max().unwrap_or(of_kind);
        // Changes of a work item are applied to its project without another ask.
        let is_applied = plan.work.as_ref().is_some_and(|work| work.project.is_some());
        return if is_applied { steps.max(Risk::Medium) } else { steps };
    }
    of_kind
}

mod planned;
mod work;

#[cfg(test)]
mod tests;
