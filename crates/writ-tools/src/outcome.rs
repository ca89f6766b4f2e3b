//! Outcomes of permitted actions, as plain data. The runtime fills them from sandbox and store.

use std::collections::BTreeSet;

use serde_json::Value;
use writ_inspect::redact::Redactor;
use writ_types::action::{ChangeKind, MemoryKind, MemoryTrust};
use writ_types::encoding::TextForm;
use writ_types::error::Report;
use writ_types::id::MemoryId;
use writ_types::taint::{Label, Taint};
use writ_types::unit::Timestamp;

/// The outcome of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PerformedOutcome {
    /// A program ended.
    Exec {
        /// The end of the program.
        end: ExecEnd,
        /// Its standard output; invalid UTF-8 replaced.
        stdout: String,
        /// Its standard error; invalid UTF-8 replaced.
        stderr: String,
        /// Bytes of both streams that the sandbox did not keep.
        dropped_bytes: u64,
    },
    /// Lines of a file.
    Text {
        /// The number of the first line, counted from one.
        first_line: u64,
        /// The lines; invalid UTF-8 replaced.
        text: String,
        /// The number of lines of the file.
        total_lines: u64,
        /// The file's conventions.
        form: TextForm,
    },
    /// Entries of a folder, sorted.
    Listing {
        /// The entries.
        entries: Vec<Listed>,
        /// Entries that were left out.
        more: u64,
    },
    /// Lines that match a search, sorted by file and line.
    Matches {
        /// The lines.
        matches: Vec<Matched>,
        /// True if the search stopped at its limit.
        more: bool,
    },
    /// Files were written.
    Written {
        /// The change of each file: path, kind, size afterwards in bytes.
        files: Vec<(String, ChangeKind, u64)>,
    },
    /// Memories, best hits first.
    Memories {
        /// The hits.
        hits: Vec<RecalledMemory>,
        /// The reason that the search found nothing, or not everything.
        note: Option<String>,
    },
    /// Something was remembered.
    Remembered {
        /// Its id.
        id: MemoryId,
    },
    /// A URL was answered.
    Fetched {
        /// The HTTP status of the last hop.
        status: u16,
        /// The URL of the last hop.
        url: String,
        /// The media type that the server gave; empty if it gave none.
        media: String,
        /// The body, or its beginning.
        body: Vec<u8>,
        /// True if there was more.
        truncated: bool,
    },
    /// The answer of a URL was saved.
    Saved {
        /// The HTTP status of the last hop.
        status: u16,
        /// The URL of the last hop.
        url: String,
        /// The media type that the server gave; empty if it gave none.
        media: String,
        /// The file, relative to the work folder.
        path: String,
        /// Its size, in bytes.
        bytes: u64,
    },
    /// The web was searched.
    Searched {
        /// The hits, the best first.
        hits: Vec<WebHit>,
    },
    /// A subscription was added to the context.
    Subscribed {
        /// The subscription's id.
        id: String,
        /// For how many turns.
        turns: u64,
    },
    /// A subscription has ended.
    Unsubscribed {
        /// Its id.
        id: String,
    },
    /// A host may be reached from now on.
    Reachable {
        /// The host.
        host: String,
        /// The port.
        port: u16,
    },
    /// A foreign tool answered. Everything but the names is its server's words.
    Called {
        /// The server.
        server: String,
        /// The tool.
        tool: String,
        /// The text of its answer.
        text: String,
        /// Its structured answer, for who asks after single values.
        structured: Option<Value>,
        /// True if the server reports a failure.
        is_error: bool,
        /// The trust level of the server's words.
        taint: Taint,
        /// True if everybody may read them.
        public: bool,
        /// The people besides the owner who can read all of them.
        readers: BTreeSet<String>,
        /// True if only models that are cleared for secrets may receive them.
        secret: bool,
    },
    /// A part of an earlier result, which was masked when it came.
    Part {
        /// The tool that had returned it.
        tool: String,
        /// The text.
        text: String,
        /// Its first character in the result, counted from one.
        from: u64,
        /// The characters of the whole result.
        total: u64,
        /// The label of the whole result.
        label: Box<Label>,
    },
    /// A plan was approved.
    Planned {
        /// The number of its steps.
        steps: usize,
        /// When it ends.
        until: Timestamp,
    },
    /// A message was sent.
    Said,
    /// A file was sent.
    Sent {
        /// Its name with the person.
        name: String,
        /// Its size, in bytes.
        bytes: u64,
    },
    /// It could not be done.
    Failed {
        /// The reason. The model reads the outside text and the hint.
        report: Report,
    },
    /// It was begun elsewhere, and its outcome is unknown.
    Doubtful {
        /// The reason. The model reads the outside text and the hint.
        report: Report,
    },
}

impl PerformedOutcome {
    /// Masks every text in it, before anything is cut to a bound; returns the references of the secrets that were masked.
    pub fn scrub_secrets(&mut self, redactor: &Redactor) -> BTreeSet<String> {
        let mut masked = BTreeSet::new();
        let mut scrub = |texts: Vec<&mut String>| {
            texts.into_iter().for_each(|text| masked.extend(redactor.scrub_text(text)));
        };
        match self {
            Self::Exec { stdout, stderr, dropped_bytes: 0, .. } => scrub(vec![stdout, stderr]),
            Self::Exec { stdout, stderr, .. } => {
                // Output was dropped in the middle, so a secret may be cut in two.
                masked.extend(redactor.scrub_cut(stdout));
                masked.extend(redactor.scrub_cut(stderr));
            }
            // A large file, or a long line, was cut at its end; a part of a result was masked when it came.
            Self::Text { text, .. } | Self::Part { text, .. } => masked.extend(redactor.scrub_cut(text)),
            Self::Listing { entries, .. } => scrub(entries.iter_mut().map(|entry| &mut entry.name).collect()),
            Self::Matches { matches, .. } => {
                for found in matches {
                    masked.extend(redactor.scrub_text(&mut found.path));
                    // The window begins in the middle of a line, perhaps within a secret.
                    if found.window.is_some_and(|window| window.cut_before) {
                        masked.extend(redactor.scrub_begun(&mut found.text));
                    }
                    masked.extend(redactor.scrub_cut(&mut found.text));
                }
            }
            Self::Written { files } => scrub(files.iter_mut().map(|(path, _, _)| path).collect()),
            Self::Memories { hits, note: _ } => scrub(hits.iter_mut().map(|hit| &mut hit.text).collect()),
            Self::Fetched { url, media, body, truncated, .. } => {
                scrub(vec![url, media]);
                let text = String::from_utf8_lossy(body).into_owned();
                // Bytes that are no text are compared in their lossy form.
                let mut clean = text.clone();
                masked.extend(match truncated {
                    true => redactor.scrub_cut(&mut clean),
                    false => redactor.scrub_text(&mut clean),
                });
                // A body that is not text stays byte for byte as it is if no secret was found in it.
                if clean != text {
                    *body = clean.into_bytes();
                }
            }
            Self::Saved { url, media, path, .. } => scrub(vec![url, media, path]),
            Self::Searched { hits } => {
                scrub(
                    hits.iter_mut().flat_map(|hit| [&mut hit.title, &mut hit.url, &mut hit.text]).collect(),
                );
            }
            Self::Called { text, structured, readers, .. } => {
                scrub(vec![text]);
                let mut named: Vec<String> = std::mem::take(readers).into_iter().collect();
                // A set cannot be changed in place, so its values are taken out and put back.
                scrub(named.iter_mut().collect());
                readers.extend(named);
                if let Some(structured) = structured {
                    redactor.mask_json(structured);
                }
            }
            Self::Sent { name, .. } => scrub(vec![name]),
            Self::Failed { report } | Self::Doubtful { report } => {
                scrub(vec![&mut report.outside, &mut report.inside, &mut report.hint]);
            }
            Self::Remembered { .. }
            | Self::Subscribed { .. }
            | Self::Unsubscribed { .. }
            | Self::Reachable { .. }
            | Self::Planned { .. }
            | Self::Said => {}
        }
        masked
    }
}

/// The end of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecEnd {
    /// It exited with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// It was killed at its time limit, in milliseconds.
    TimedOut(u64),
    /// It was killed at another limit of the sandbox.
    Limit(&'static str),
    /// It was stopped by a person or by the end of the turn.
    Cancelled,
}

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name; invalid UTF-8 replaced.
    pub name: String,
    /// Its kind.
    pub kind: ListedKind,
}

/// The kind of an entry of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListedKind {
    /// A regular file of this size, in bytes.
    File(u64),
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// Anything else.
    Other,
}

/// A line that matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matched {
    /// The file, relative to the work folder; invalid UTF-8 replaced.
    pub path: String,
    /// The line's number, counted from one.
    pub line: u64,
    /// The line, without its end; invalid UTF-8 replaced. A part of it where there is a window.
    pub text: String,
    /// The place of the part in a long line; `None`: the line is whole.
    pub window: Option<LineWindow>,
}

/// The part of a long line around a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineWindow {
    /// The character at which the match begins, counted from one.
    pub column: u64,
    /// True if something of the line stands before the part.
    pub cut_before: bool,
    /// True if something of the line stands after it.
    pub cut_after: bool,
}

/// Something remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecalledMemory {
    /// Its id.
    pub id: MemoryId,
    /// Its text.
    pub text: String,
    /// Its kind.
    pub kind: MemoryKind,
    /// The confidence in it.
    pub trust: MemoryTrust,
    /// Its trust level.
    pub taint: Taint,
    /// True if it depends on text that the owner has marked secret.
    pub secret: bool,
}

/// Something that was found in the web. All of it is external.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebHit {
    /// The page's title, in its own words.
    pub title: String,
    /// Its URL.
    pub url: String,
    /// Some of what it says.
    pub text: String,
}
