//! The remembered part of a turn, for the ledger and for people.

use std::collections::BTreeMap;

use crate::bounds::{MAX_TOOL_CALLS, MAX_WORDS_BYTES};
use crate::permission::{NamedPaths, ToolKind};

/// The reason that an agent gives for the end of its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcpStop {
    /// It is done.
    EndTurn,
    /// Its model has written as much as it may.
    MaxTokens,
    /// It has asked its model as often as it may.
    MaxTurnRequests,
    /// Its model refuses.
    Refusal,
    /// It was asked to end.
    Cancelled,
}

impl AcpStop {
    /// Every reason, with its name in the protocol.
    pub const NAMES: [(Self, &'static str); 5] = [
        (Self::EndTurn, "end_turn"),
        (Self::MaxTokens, "max_tokens"),
        (Self::MaxTurnRequests, "max_turn_requests"),
        (Self::Refusal, "refusal"),
        (Self::Cancelled, "cancelled"),
    ];

    /// Returns the reason with a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, known)| *known == name).map(|(reason, _)| *reason)
    }
}

/// A tool call, as its agent reports it. Nothing of it was seen by us.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportedCall {
    /// Its kind.
    pub kind: ToolKind,
    /// Its title, cut.
    pub title: String,
    /// Its state, in the agent's words: `pending`, `in_progress`, `completed` or `failed`.
    pub status: String,
    /// The paths that it has named.
    pub(crate) paths: NamedPaths,
    /// The answer to its question, where it asked: the reason of a no.
    pub asked: Option<Result<(), &'static str>>,
}

/// The remembered part of a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transcript {
    /// The agent's name and version, in its own words.
    pub agent: String,
    /// Its last words: those after its last tool call if there are any, else those before it.
    pub last_words: String,
    /// Its tool calls, in their order.
    pub calls: Vec<ReportedCall>,
    /// Tool calls that were only counted.
    pub more_calls: u64,
    /// Questions for permission that were refused.
    pub refused: u64,
    /// Requests for what is not offered.
    pub unoffered: u64,
    /// Lines that were no message.
    pub stray_lines: u64,
    /// Lines that were too long to be read.
    pub long_lines: u64,
    /// Everything that was read or passed over, in bytes.
    pub bytes: u64,
    /// The places of the calls, by the agent's ids.
    pub(crate) places: BTreeMap<String, usize>,
    /// Set after a call: words that follow are new ones.
    is_passage_over: bool,
}

impl Transcript {
    /// Adds to the last words. Of what is too long the end stays: there the agent says what came of its work.
    pub(crate) fn add_words(&mut self, text: &str) {
        // Words before a call are about the way, and those after the last one about the result.
        if !text.is_empty() && std::mem::take(&mut self.is_passage_over) {
            self.last_words.clear();
        }
        self.last_words.push_str(text);
        let over = self.last_words.len().saturating_sub(MAX_WORDS_BYTES);
        // Cut in large pieces, so that many small words do not move the whole each time.
        if over > MAX_WORDS_BYTES {
            self.cut_words();
        }
    }

    /// Cuts the words to their bound.
    pub(crate) fn cut_words(&mut self) {
        let mut over = self.last_words.len().saturating_sub(MAX_WORDS_BYTES);
        while !self.last_words.is_char_boundary(over) {
            over = over.saturating_add(1);
        }
        self.last_words.drain(..over);
    }

    /// Returns the call with an id, which is begun if there is none; `None`: there are too many.
    pub(crate) fn find_call(&mut self, id: &str) -> Option<&mut ReportedCall> {
        let at = match self.places.get(id) {
            Some(at) => *at,
            None if self.calls.len() >= MAX_TOOL_CALLS => {
                self.more_calls = self.more_calls.saturating_add(1);
                return None;
            }
            None => {
                self.is_passage_over = true;
                self.calls.push(ReportedCall::default());
                let at = self.calls.len() - 1;
                self.places.insert(id.to_owned(), at);
                at
            }
        };
        self.calls.get_mut(at)
    }
}
