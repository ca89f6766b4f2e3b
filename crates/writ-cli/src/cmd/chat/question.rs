//! The questions of a conversation: approvals and gates, which are shown one after the other.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};

use writ_tui::renderer::Renderer;
use writ_types::entry::Decision;
use writ_types::form::filled_in;
use writ_types::frame::{Card, Numbered, ServerFrame};
use writ_types::id::AskId;

use crate::failure::Failure;

use super::answers::{card_answers, gate_answers};

/// A gate that asks, and the frame that says about what.
pub(super) struct OpenGate {
    pub(super) ask: AskId,
    pub(super) frame: Box<ServerFrame>,
}

impl OpenGate {
    /// Reads an answer: yes, with the values entered, or no; `None`: neither, or a required value is missing.
    pub(super) fn parse_answer(&self, line: &str) -> Option<(Decision, BTreeMap<String, String>)> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word.to_lowercase().as_str() {
            "n" | "no" => Some((Decision::Deny, BTreeMap::new())),
            "y" | "yes" => {
                let filled = |part: &str| {
                    let (name, value) = part.split_once('=')?;
                    Some((name.trim().to_owned(), value.trim().to_owned()))
                };
                let parts = rest.split(';').filter(|part| !part.trim().is_empty());
                let answers = parts.map(filled).collect::<Option<BTreeMap<_, _>>>()?;
                let ServerFrame::GateApproval { fields, .. } = self.frame.as_ref() else { return None };
                // Checked here, so that a wrong value is asked for again instead of ending the question.
                filled_in(fields, &answers).is_ok().then_some((Decision::Approve, answers))
            }
            _ => None,
        }
    }
}

/// A question to the person: one after the other, so that an answer is to the one shown last.
pub(super) enum ChatQuestion {
    Card(Box<Card>),
    Gate(OpenGate),
}

impl ChatQuestion {
    /// The ask that an answer names.
    pub(super) const fn ask_id(&self) -> &AskId {
        match self {
            Self::Card(card) => &card.ask_id,
            Self::Gate(gate) => &gate.ask,
        }
    }
}

/// Takes a question away that is no longer open, and asks the next one where it was the one that was asked.
pub(super) fn settle_question<W: Write>(
    ask: &AskId,
    asked: &mut VecDeque<ChatQuestion>,
    renderer: &mut Renderer<W>,
) -> Result<(), Failure> {
    // The next question is shown only if the one on the screen was settled.
    let was_asked = asked.front().is_some_and(|question| question.ask_id() == ask);
    asked.retain(|question| question.ask_id() != ask);
    if was_asked { show_question(asked, renderer) } else { Ok(()) }
}

/// Shows a line of this program's own.
pub(super) fn print_note<W: Write>(text: &str, renderer: &mut Renderer<W>) -> Result<(), Failure> {
    let frame = ServerFrame::Status { text: text.to_owned() };
    renderer.write_frame(&Numbered { seq: 0, frame }).map_err(|error| output_failure(&error))
}

/// Takes a question in, and asks it if it is the only one.
pub(super) fn add_question<W: Write>(
    new: ChatQuestion,
    asked: &mut VecDeque<ChatQuestion>,
    renderer: &mut Renderer<W>,
) -> Result<(), Failure> {
    // One that was open when the session was joined comes again with its history.
    if asked.iter().any(|question| question.ask_id() == new.ask_id()) {
        return Ok(());
    }
    asked.push_back(new);
    // A later one is shown once those before it have their answers.
    if asked.len() == 1 { show_question(asked, renderer) } else { Ok(()) }
}

/// Shows what is asked about, and asks.
pub(super) fn show_question<W: Write>(
    asked: &VecDeque<ChatQuestion>,
    renderer: &mut Renderer<W>,
) -> Result<(), Failure> {
    let (frame, text) = match asked.front() {
        Some(ChatQuestion::Card(card)) => (ServerFrame::ApprovalRequest(card.clone()), card_answers(card)),
        Some(ChatQuestion::Gate(gate)) => (gate.frame.as_ref().clone(), gate_answers(&gate.frame)),
        None => return Ok(()),
    };
    for frame in [frame, ServerFrame::Status { text }] {
        renderer.write_frame(&Numbered { seq: 0, frame }).map_err(|error| output_failure(&error))?;
    }
    Ok(())
}

pub(super) fn output_failure(error: &io::Error) -> Failure {
    Failure::output_error(error)
}
