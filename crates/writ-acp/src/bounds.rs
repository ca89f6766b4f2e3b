//! The bounds on what is read of an agent. An honest turn of an hour has some thousand updates of a few kilobytes.

use std::time::Duration;

/// The longest line that is read, in bytes. A longer one is passed over: agents repeat whole files in their updates.
pub const MAX_LINE_BYTES: usize = 4 * 1024 * 1024;
/// The most bytes of one turn, with what is passed over.
pub const MAX_TURN_BYTES: u64 = 256 * 1024 * 1024;
/// The most messages of one turn.
pub const MAX_MESSAGES: u64 = 200_000;
/// The most lines of one turn that are no message: agents print logs between their messages.
pub const MAX_STRAY_LINES: u64 = 10_000;
/// The most bytes of an agent's last words that are remembered; of longer ones, their end.
pub const MAX_WORDS_BYTES: usize = 64 * 1024;
/// The most tool calls that are remembered; further ones are counted.
pub const MAX_TOOL_CALLS: usize = 2_000;
/// The most paths of one tool call that are looked at; one with more is refused.
pub const MAX_PATHS: usize = 256;
/// The longest path, in bytes.
pub const MAX_PATH_BYTES: usize = 4_096;
/// The longest title of a tool call, in characters.
pub const MAX_TITLE_CHARS: usize = 200;
/// The longest id that an agent gives anything, in bytes: ids are sent back.
pub const MAX_ID_BYTES: usize = 512;
/// The most choices of one question.
pub const MAX_OPTIONS: usize = 32;
/// The longest text of an error, in characters.
pub const MAX_ERROR_CHARS: usize = 1_000;
/// The most messages that wait to be written: an agent that reads nothing gets no further ones.
pub const MAX_UNREAD: usize = 64;
/// The time that an agent has until its session is open, by default: some download a part of themselves first.
pub const START_TIME: Duration = Duration::from_secs(60);
/// The silence after which an agent's turn is over that has named its end: some send the rest of their words after it.
pub const LATE_SILENCE: Duration = Duration::from_millis(500);
/// The longest time that words are read after the end of a turn.
pub const LATE_TIME: Duration = Duration::from_secs(2);
/// The bytes at the beginning of a line that was too long in which a question is looked for: its id and method stand there.
pub const MAX_HEAD_BYTES: usize = 4_096;
/// The time that an agent has to end its turn once it was asked to, by default.
pub const CANCEL_TIME: Duration = Duration::from_secs(5);
