//! Frames: what clients and the engine say to each other, as JSON, over every surface.

mod offer;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::api::work::WorkState;
use crate::digest::Digest;
use crate::entry::{ApprovalScope, Decision, Risk};
use crate::error::Exit;
use crate::form::FormField;
use crate::id::{AskId, AttemptId, EntrySeq, ItemId, SessionId, TurnId};
use crate::taint::Taint;
use crate::unit::Timestamp;

pub use offer::{Pattern, StandingOffer, TaskOffer, TotalOffer};

/// The largest frame accepted, in bytes; a larger one ends the connection.
pub const MAX_FRAME_BYTES: usize = 4 * 1024 * 1024;

/// A client that names this number or a greater one as the last that it has seen wants the news alone. It is the first
/// number that not every reader of JSON can tell from its neighbours (RFC 8259, section 6); no session has as many frames.
pub const NEWS_ONLY: u64 = 1 << 53;

/// A frame from a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ClientFrame {
    /// Proves who speaks, as the first frame, where the connection does not. Refused where it does (`control.sock`).
    Auth {
        /// The token.
        token: String,
    },
    /// Joins a session, or opens a new one.
    Resume {
        /// The session; `None` opens a new one.
        session: Option<SessionId>,
        /// The last `seq` that the client has seen; events after it are sent again. 2^53 or more: the news alone. Any
        /// other number beyond the session's last: the client has seen another history ([`ServerFrame::Reset`]).
        #[serde(default)]
        after_seq: u64,
        /// The project folder to work in, for a new session on a local surface.
        #[serde(default)]
        project: Option<String>,
        /// True if changes of a new session go to the project as they are made.
        #[serde(default)]
        write: bool,
        /// True if actions of a new session are decided and logged but not performed.
        #[serde(default)]
        dry_run: bool,
    },
    /// Says something to the agent.
    Message {
        /// The text.
        #[serde(alias = "content")]
        text: String,
        /// Further text that the person did not write, such as a program's output from a pipe: it is quoted
        /// below the text, and the message is trusted no more than external content.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        quoted: String,
        /// Unique per session; a duplicate returns the entry of the first. Without one, the engine chooses it.
        #[serde(default)]
        client_id: String,
        /// The owner's signature over it, as `writ keys sign` makes it; a wrong one refuses the message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<serde_json::Value>,
        /// The author, as verified by the relay: the text counts as theirs, unless it is signed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sender: Option<String>,
    },
    /// Answers an ask.
    ApprovalResponse {
        /// The ask.
        ask_id: AskId,
        /// The answer.
        decision: Decision,
        /// The scope of an approval. A signed one names its own scope, which must be the same.
        #[serde(default)]
        scope: ApprovalScope,
        /// The signed approval; absent where the surface itself proves the person.
        #[serde(default)]
        signature: Option<serde_json::Value>,
        /// Hash of the text that the person was shown; the answer to another one is refused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shown_hash: Option<Digest>,
        /// The reason, in the person's words.
        #[serde(default)]
        reason: String,
    },
    /// Answers a gate that asks ([`ServerFrame::GateApproval`]).
    GateResponse {
        /// The ask of the gate.
        ask_id: AskId,
        /// The answer.
        decision: Decision,
        /// The reason, in the person's words.
        #[serde(default)]
        reason: String,
        /// The entered values, by the names of the fields.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        answers: BTreeMap<String, String>,
    },
    /// Names the current point of the session, for clients and for the ledger.
    Checkpoint {
        /// The name: 1 to 100 characters that can be seen.
        name: String,
    },
    /// Stops a turn.
    Cancel {
        /// The turn.
        turn: TurnId,
    },
    /// Asks the engine for something that is not a conversation.
    Call {
        /// The client's id of this call; the answer carries it back.
        id: u64,
        /// The requested method: `status`, `approvals.list`, `diff`, …
        method: String,
        /// Its parameters.
        #[serde(default)]
        params: serde_json::Value,
    },
}

/// A frame from the engine. Every frame of a session has a durable `seq` beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ServerFrame {
    /// The session is joined. The `seq` beside it is that of the session's last stored frame.
    Hello {
        /// The session.
        session: SessionId,
        /// The number of its last turn.
        turn: u64,
        /// Its open asks, oldest first. The card of each follows at once as a frame that is not stored
        /// ([`Self::ApprovalRequest`], [`Self::GateApproval`]), before the history.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        open: Vec<AskId>,
    },
    /// The message is stored.
    Accepted {
        /// The client's id of the message.
        client_id: String,
        /// The entry that recorded it.
        entry: EntrySeq,
    },
    /// More text of the answer, already gated.
    Delta {
        /// The turn.
        turn: TurnId,
        /// The text.
        text: String,
    },
    /// Text of the answer that was sent as [`Self::Delta`]s and is not part of a later message: the agent went on with a tool,
    /// or the answer broke off. A client that has shown the deltas has shown it; it is stored for those who come later.
    Text {
        /// The turn.
        turn: TurnId,
        /// The text.
        text: String,
    },
    /// The reasoning that came before text or calls of an answer, as far as the provider shows it: masked, gated and not
    /// stored. Clients show it folded.
    Reasoning {
        /// The turn.
        turn: TurnId,
        /// The text; what is long loses its end.
        text: String,
    },
    /// A tool step.
    Tool {
        /// The turn.
        turn: TurnId,
        /// The tool.
        tool: String,
        /// `started`, `done`, `failed`, `denied`, `waiting`, `unknown`, `simulated`, `cancelled`.
        state: String,
        /// In short.
        summary: String,
        /// The id of the call; empty in frames that were stored before it was sent.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        call: String,
        /// Its arguments, as JSON, masked; what is long loses its middle.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        arguments: String,
        /// The result that the agent received, masked; long ones are cut in the middle. Empty until it has
        /// ended.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        output: String,
    },
    /// A complete message of the agent.
    Message {
        /// The turn.
        turn: TurnId,
        /// The text.
        text: String,
        /// Its trust level.
        taint: Taint,
        /// The entries that it rests on, first and last.
        entries: (EntrySeq, EntrySeq),
        /// True if the turn ends with it.
        last: bool,
        /// The end of the turn as an exit code for scripts.
        exit: Exit,
        /// The `client_id`s of the messages that the turn has taken in, those that came during it included; empty
        /// unless the turn ends with it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        answers: Vec<String>,
    },
    /// The agent has sent a file. Its content is fetched: over HTTP at `/api/v1/sessions/SESSION/files/FILE`.
    File {
        /// The turn.
        turn: TurnId,
        /// The entry that allowed it, by which it is fetched.
        file: EntrySeq,
        /// Its name, which hides nothing.
        name: String,
        /// Its size, in bytes.
        bytes: u64,
        /// Digest of its content.
        digest: Digest,
        /// Its path on the machine of the engine.
        path: String,
        /// The trust level of its content.
        taint: Taint,
    },
    /// A gate asks a person about a text, and the turn waits for the answer ([`ClientFrame::GateResponse`]).
    /// The answer is announced to all clients by [`Self::ApprovalResolved`]. The question is sent again, with
    /// the same id, after a restart of the engine.
    GateApproval {
        /// The turn that waits.
        turn: TurnId,
        /// The ask.
        ask_id: AskId,
        /// The gate.
        gate: String,
        /// `input`: a person's message; `output`: an answer of the agent; `server`: a question of a server of
        /// tools, where the gate is `mcp:` and its name.
        point: String,
        /// The reason for asking.
        reason: String,
        /// The complete text, escaped.
        shown: String,
        /// The answers and what each leads to; at least one.
        #[serde(deserialize_with = "read_choices")]
        #[schemars(length(min = 1))]
        choices: Vec<Choice>,
        /// The fields to fill in with a yes, where a server of tools asks.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fields: Vec<FormField>,
    },
    /// A place in the session has a name: a client has given it one, or changes were brought into the project
    /// (`applied`) or out of it again (`undone`).
    Checkpoint {
        /// The name.
        name: String,
        /// The number of the session's last turn.
        turn: u64,
        /// When.
        at: Timestamp,
        /// The way to undo it, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        undo: Option<Undo>,
    },
    /// The client's copy is not the history of this session (its home was restored from a backup): the client
    /// discards it, and all frames are sent from the first. Follows [`Self::Hello`].
    Reset {
        /// The reason.
        text: String,
    },
    /// A person is asked.
    ApprovalRequest(Box<Card>),
    /// An ask was answered or has ended. A yes is announced twice: `approved` when it is given, and then the outcome of what
    /// was approved.
    ApprovalResolved {
        /// The ask.
        ask_id: AskId,
        /// `approved`, and then `applied`, `simulated`, `failed` or `unknown`; `denied` or `expired`. Frames that were stored
        /// before say `used` for `applied`.
        state: String,
        /// The reason that it was not done, in a few words, such as `changed since the approval: a.txt`;
        /// empty if it was.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
        /// The result.
        text: String,
        /// The result as the exit code that a command ends with.
        #[serde(default = "default_exit")]
        exit: Exit,
        /// The way to undo it, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        undo: Option<Undo>,
    },
    /// A work item has come further.
    Work(Box<WorkNews>),
    /// Something about the session changed.
    Status {
        /// The text.
        text: String,
    },
    /// The answer to a [`ClientFrame::Call`].
    Answer {
        /// The client's id of the call.
        id: u64,
        /// The result.
        result: serde_json::Value,
    },
    /// Something went wrong.
    Error {
        /// The client's id of the call that failed, if it was one.
        #[serde(default)]
        id: Option<u64>,
        /// The exit code that a command should end with.
        exit: Exit,
        /// A stable code.
        code: String,
        /// The failure.
        text: String,
        /// A hint for the reader.
        hint: String,
        /// The `client_id`s of the messages of the session that it is about; empty in errors for one client
        /// alone.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        answers: Vec<String>,
    },
}

/// The news about a work item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkNews {
    /// The item.
    pub item: ItemId,
    /// Its name, as its plan says.
    pub name: String,
    /// Its purpose, in one line.
    pub title: String,
    /// Its state.
    pub state: WorkState,
    /// The step that this is about; empty: the whole.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub step: String,
    /// The news, in words; at its end the report.
    pub text: String,
    /// The number of steps that are done.
    pub steps_done: usize,
    /// The number of steps.
    pub steps: usize,
}

const fn default_exit() -> Exit {
    Exit::Done
}

/// A server frame with its place in the session's stream: one flat object, `{"seq":7,"type":"status",…}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Numbered {
    /// Durable, per session, counted from one; zero for frames that are not stored (deltas, answers, errors).
    /// Beside [`ServerFrame::Hello`], which is not stored, the number of the session's last frame.
    pub seq: u64,
    /// The frame.
    #[serde(flatten)]
    pub frame: ServerFrame,
}

/// Reads the answers of a question. One without any could only be answered by typing, so it is refused.
fn read_choices<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Choice>, D::Error> {
    let choices = Vec::<Choice>::deserialize(from)?;
    if choices.is_empty() {
        Err(D::Error::custom("choices: a question offers at least one answer"))
    } else {
        Ok(choices)
    }
}

// tidy: plain state
/// Everything that a person must see to answer an ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Card {
    /// The ask.
    pub ask_id: AskId,
    /// The session that asks.
    pub session: Option<SessionId>,
    /// The kind of action.
    pub action: String,
    /// Its purpose, in one line.
    pub intent: String,
    /// The harm that a wrong answer can do.
    pub risk: Risk,
    /// The reason for asking.
    pub rationale: String,
    /// The answers and what each leads to; at least one.
    #[serde(deserialize_with = "read_choices")]
    #[schemars(length(min = 1))]
    pub choices: Vec<Choice>,
    /// The complete text, escaped.
    pub shown: String,
    /// Hash of the prepared action: what a signature covers.
    pub prepared: Digest,
    /// Hash of `shown`.
    pub shown_hash: Digest,
    /// When the ask was made.
    pub asked_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
    /// `open`, `approved`, `denied`, `expired` or `used`.
    pub state: String,
    /// The coverage of an approval for the task, where one can be given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Box<TaskOffer>>,
    /// The coverage of a standing approval, where one can be given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing: Option<Box<StandingOffer>>,
    /// The values that would count as the owner's from then on, where a yes can include them: argument and
    /// value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<(String, String)>,
    /// The host, with its port, that would be trusted from then on, where a yes can say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The number of people who must approve, each with a key of their own.
    #[serde(default = "one_approver", skip_serializing_if = "is_one")]
    pub approvers: u8,
    /// The people who have approved so far, where more than one must.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approved_by: Vec<String>,
    /// For how many seconds it can be undone with one tap when it is done; zero: it cannot.
    #[serde(default)]
    pub undo_secs: u64,
}

const fn one_approver() -> u8 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
const fn is_one(number: &u8) -> bool {
    *number == 1
}

/// A way back: the call `undo` with the attempt, or `POST /api/v1/undo/ATTEMPT`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Undo {
    /// The attempt that would be undone.
    pub attempt: AttemptId,
    /// Until when one tap is enough; later, it is asked about.
    pub until: Timestamp,
}

/// One answer to an ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Choice {
    /// The answer.
    pub decision: Decision,
    /// The scope of the approval.
    #[serde(default, skip_serializing_if = "ApprovalScope::is_once")]
    pub scope: ApprovalScope,
    /// A description of the consequence.
    pub consequence: String,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn content_is_an_alias_of_text() {
        let frame: ClientFrame =
            serde_json::from_str(r#"{"type":"message","content":"hi","client_id":"1"}"#).expect("parses");
        assert_eq!(
            frame,
            ClientFrame::Message {
                text: "hi".into(),
                quoted: String::new(),
                client_id: "1".into(),
                signature: None,
                sender: None
            }
        );
        assert!(serde_json::from_str::<ClientFrame>(r#"{"type":"sudo"}"#).is_err());
    }

    /// Every ask is shown by this one type of card. A card without one of the required fields, with a level of risk that does not
    /// exist, or with a choice without its consequence is refused by every reader: the store, the client and the page.
    ///
    /// Rows: SIL-320
    #[test]
    fn a_card_without_a_required_field_is_refused() {
        let card = json!({
            "ask_id": "Ab3dEf9Z", "session": null, "action": "write_file", "intent": "write a.txt", "risk": "medium",
            "rationale": "it changes your project", "shown": "a.txt", "prepared": "0".repeat(64),
            "shown_hash": "0".repeat(64), "asked_at": 0, "expires_at": 1, "state": "open",
            "choices": [{ "decision": "approve", "consequence": "a.txt is written" },
                        { "decision": "deny", "consequence": "nothing is written" }],
        });
        let read =
            |card: &Value| serde_json::from_value::<Card>(card.clone()).map_err(|error| error.to_string());
        let whole = read(&card).expect("complete");
        assert_eq!(serde_json::to_value(&whole.choices).expect("JSON"), card["choices"]);
        for field in ["intent", "risk", "rationale", "choices"] {
            let mut without = card.clone();
            without.as_object_mut().expect("an object").remove(field);
            assert!(read(&without).expect_err(field).contains(field));
            let mut empty = card.clone();
            empty[field] = Value::Null;
            assert!(read(&empty).is_err(), "{field}");
        }
        for risk in ["low", "medium", "high", "irreversible"] {
            let mut other = card.clone();
            other["risk"] = json!(risk);
            assert_eq!(serde_json::to_value(read(&other).expect(risk).risk).expect("JSON"), json!(risk));
        }
        for risk in ["critical", "", "Low"] {
            let mut other = card.clone();
            other["risk"] = json!(risk);
            assert!(read(&other).is_err(), "{risk}");
        }
        for n in [0, 1] {
            let mut other = card.clone();
            other["choices"][n].as_object_mut().expect("an object").remove("consequence");
            assert!(read(&other).expect_err("no label").contains("consequence"));
        }
        let schema = serde_json::to_value(schemars::schema_for!(Card)).expect("JSON");
        let required = schema["required"].as_array().expect("a list");
        assert!(
            ["intent", "risk", "rationale", "choices"].iter().all(|field| required.contains(&json!(field)))
        );
    }

    /// Every question to a person is one of two frames, and both offer at least one answer that is chosen and not typed. One without
    /// any is refused when it is read, and is none by the committed schema.
    ///
    /// Rows: SIL-334
    #[test]
    fn a_question_without_an_answer_to_choose_is_refused() {
        let choice = json!({ "decision": "deny", "consequence": "nothing is written" });
        let card = json!({
            "type": "approval_request", "ask_id": "Ab3dEf9Z", "session": null, "action": "write_file", "intent": "write a.txt",
            "risk": "medium", "rationale": "it changes your project", "shown": "a.txt", "prepared": "0".repeat(64),
            "shown_hash": "0".repeat(64), "asked_at": 0, "expires_at": 1, "state": "open", "choices": [choice],
        });
        let gate = json!({
            "type": "gate_approval", "turn": TurnId::from_parts(Timestamp::default(), 1), "ask_id": "Ab3dEf9Z", "gate": "words",
            "point": "input", "reason": "it speaks of money", "shown": "Pay.", "choices": [choice],
        });
        for frame in [card, gate] {
            let read = |frame: &Value| {
                serde_json::from_value::<ServerFrame>(frame.clone()).map_err(|error| error.to_string())
            };
            let whole = read(&frame).expect("it has an answer");
            assert_eq!(serde_json::to_value(&whole).expect("JSON")["choices"], frame["choices"]);
            let mut without = frame.clone();
            without["choices"] = json!([]);
            let refused = read(&without).expect_err("it has none");
            assert!(refused.contains("at least one answer"), "{refused}");
        }
        let schema = serde_json::to_string(&schemars::schema_for!(ServerFrame)).expect("JSON");
        assert_eq!(schema.matches(r#""minItems":1"#).count(), 2, "{schema}");
    }
}
