//! The state of a conversation: lines in, lines out. No I/O, and no clock.

use serde_json::{Value, json};

use crate::bounds::{MAX_ID_BYTES, MAX_MESSAGES, MAX_STRAY_LINES, MAX_TITLE_CHARS, MAX_TURN_BYTES};
use crate::error::{AcpError, Flood, Moment};
use crate::message::{self, AUTH_REQUIRED, AcpAnswerError, AcpMessage, INVALID_PARAMS, METHOD_NOT_FOUND};
use crate::permission::{NamedPaths, ToolKind, choose_option, judge_call};
use crate::transcript::{AcpStop, ReportedCall, Transcript};

/// The version of the protocol that is spoken.
const VERSION: u64 = 1;
/// The most ways of a login that an error names.
const MAX_SHOWN_LOGINS: usize = 8;
/// The most characters of an agent's name.
const MAX_NAME_CHARS: usize = 64;

/// The order of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnOrder {
    /// The work tree, as the agent sees it.
    pub folder: String,
    /// The whole text.
    pub prompt: String,
    /// The way of a login that the agent may use if it demands one, by the agent's own id for it.
    pub login: Option<String>,
}

/// The stage of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    Greeting,
    /// A session is opened; true: after a login.
    Opening(bool),
    Login,
    Work {
        session: String,
        is_cancelled: bool,
    },
    Over {
        session: String,
        reason: AcpStop,
    },
}

/// A conversation with one agent about one prompt.
#[derive(Clone, Debug)]
pub struct AcpTalk {
    order: TurnOrder,
    stage: Stage,
    /// The number of the newest request: its answer is waited for.
    request: u64,
    messages: u64,
    /// The ways of a login that the agent offers.
    logins: Vec<String>,
    transcript: Transcript,
}

impl AcpTalk {
    /// Begins a conversation. Returns it with its first line.
    pub fn begin_talk(order: TurnOrder) -> (Self, Vec<u8>) {
        let mut talk = Self {
            order,
            stage: Stage::Greeting,
            request: 0,
            messages: 0,
            logins: Vec::new(),
            transcript: Transcript::default(),
        };
        let line = talk.ask_agent(
            "initialize",
            &json!({
                "protocolVersion": VERSION,
                "clientCapabilities": { "fs": { "readTextFile": false, "writeTextFile": false }, "terminal": false },
                "clientInfo": { "name": "writ", "title": "Writ", "version": env!("CARGO_PKG_VERSION") },
            }),
        );
        (talk, line)
    }

    /// Returns the reason for the end of the turn, once it has ended.
    pub const fn stop_reason(&self) -> Option<AcpStop> {
        match self.stage {
            Stage::Over { reason, .. } => Some(reason),
            Stage::Greeting | Stage::Opening(_) | Stage::Login | Stage::Work { .. } => None,
        }
    }

    /// Returns the moment of the conversation.
    pub const fn moment(&self) -> Moment {
        match self.stage {
            Stage::Greeting => Moment::Greeting,
            Stage::Opening(_) => Moment::Opening,
            Stage::Login => Moment::Login,
            Stage::Work { .. } | Stage::Over { .. } => Moment::Work,
        }
    }

    /// Returns what is remembered of the turn.
    #[must_use]
    pub fn into_transcript(mut self) -> Transcript {
        self.transcript.cut_words();
        self.transcript
    }

    /// Asks for the end of the turn. Returns the line that does; `None`: it has not begun, or was asked to end before.
    pub fn cancel_turn(&mut self) -> Option<Vec<u8>> {
        match &mut self.stage {
            Stage::Work { session, is_cancelled } if !*is_cancelled => {
                *is_cancelled = true;
                Some(message::news_line("session/cancel", &json!({ "sessionId": session })))
            }
            Stage::Greeting | Stage::Opening(_) | Stage::Login | Stage::Work { .. } | Stage::Over { .. } => {
                None
            }
        }
    }

    /// Takes a line that was too long to be read, or a part of one; `head` is its beginning. Returns the line that refuses it, where it
    /// is a question: an agent that gets no answer waits until its time is over.
    ///
    /// # Errors
    ///
    /// If the agent has written more than it may in one turn.
    pub fn pass_over(&mut self, bytes: u64, head: &[u8]) -> Result<Option<Vec<u8>>, AcpError> {
        self.transcript.long_lines = self.transcript.long_lines.saturating_add(1);
        self.count_bytes(bytes)?;
        let asked = message::find_question(head);
        Ok(asked.map(|id| message::refusal_line(&id, INVALID_PARAMS, "the question is too long to be read")))
    }

    /// Takes a line. Returns the line that answers it.
    ///
    /// # Errors
    ///
    /// If the conversation cannot go on.
    pub fn take_line(&mut self, line: &[u8]) -> Result<Option<Vec<u8>>, AcpError> {
        self.count_bytes(u64::try_from(line.len()).unwrap_or(u64::MAX))?;
        if line.iter().all(u8::is_ascii_whitespace) {
            return self.count_stray();
        }
        let message = AcpMessage::parse_line(line);
        if message != AcpMessage::Stray {
            self.messages = self.messages.saturating_add(1);
            if self.messages > MAX_MESSAGES {
                return Err(AcpError::Flooded(Flood::Messages));
            }
        }
        match message {
            AcpMessage::Answer { id, result } if id == self.request => self.take_answer(result),
            // An answer to nothing: to a request that was answered before, or to one that was never made.
            AcpMessage::Answer { .. } | AcpMessage::Stray => self.count_stray(),
            AcpMessage::Request { id, method, params } => Ok(Some(self.take_request(&id, &method, &params))),
            AcpMessage::News { method, params } => {
                if method == "session/update" && self.is_ours(&params) {
                    self.take_update(params.get("update").unwrap_or(&Value::Null));
                }
                Ok(None)
            }
        }
    }

    fn count_bytes(&mut self, bytes: u64) -> Result<(), AcpError> {
        // Before anything of a line is looked at: what costs nothing to write may cost much to read.
        self.transcript.bytes = self.transcript.bytes.saturating_add(bytes);
        if self.transcript.bytes > MAX_TURN_BYTES { Err(AcpError::Flooded(Flood::Bytes)) } else { Ok(()) }
    }

    fn count_stray(&mut self) -> Result<Option<Vec<u8>>, AcpError> {
        self.transcript.stray_lines = self.transcript.stray_lines.saturating_add(1);
        if self.transcript.stray_lines > MAX_STRAY_LINES {
            return Err(AcpError::Flooded(Flood::Lines));
        }
        Ok(None)
    }

    fn ask_agent(&mut self, method: &str, params: &Value) -> Vec<u8> {
        self.request = self.request.saturating_add(1);
        message::request_line(self.request, method, params)
    }

    fn take_answer(&mut self, result: Result<Value, AcpAnswerError>) -> Result<Option<Vec<u8>>, AcpError> {
        let at = self.moment();
        let result = match (result, &self.stage) {
            (Ok(result), _) => result,
            (Err(error), Stage::Opening(false)) if error.code == AUTH_REQUIRED => {
                return self.log_in().map(Some);
            }
            // An agent may call it an error that its work is broken off; it has ended its turn.
            (Err(_), Stage::Work { is_cancelled: true, session }) => {
                let session = session.clone();
                self.stage = Stage::Over { session, reason: AcpStop::Cancelled };
                return Ok(None);
            }
            (Err(AcpAnswerError { code, message }), _) => {
                return Err(AcpError::Refused { at, code, message });
            }
        };
        match &self.stage {
            Stage::Greeting => {
                self.take_greeting(&result)?;
                self.stage = Stage::Opening(false);
                Ok(Some(self.open_session()))
            }
            Stage::Login => {
                self.stage = Stage::Opening(true);
                Ok(Some(self.open_session()))
            }
            Stage::Opening(_) => {
                let session = result.get("sessionId").and_then(Value::as_str);
                let session = session.filter(|id| !id.is_empty() && id.len() <= MAX_ID_BYTES);
                let session = session.ok_or(AcpError::Wrong { at, why: "it names no session" })?.to_owned();
                let prompt = json!({
                    "sessionId": session,
                    "prompt": [{ "type": "text", "text": self.order.prompt }],
                });
                self.stage = Stage::Work { session, is_cancelled: false };
                Ok(Some(self.ask_agent("session/prompt", &prompt)))
            }
            Stage::Work { session, .. } => {
                let session = session.clone();
                let reason = result.get("stopReason").and_then(Value::as_str).and_then(AcpStop::from_name);
                let reason = reason.ok_or(AcpError::Wrong { at, why: "it has no known stop reason" })?;
                self.stage = Stage::Over { session, reason };
                Ok(None)
            }
            // A second answer to the same request.
            Stage::Over { .. } => self.count_stray(),
        }
    }

    fn open_session(&mut self) -> Vec<u8> {
        // No servers: tools of the engine are for its own turns, where the door sees each call.
        let params = json!({ "cwd": self.order.folder, "mcpServers": [] });
        self.ask_agent("session/new", &params)
    }

    fn take_greeting(&mut self, result: &Value) -> Result<(), AcpError> {
        // An agent answers with the version that it wants; a newer one may mean other things by the same words.
        let version = result.get("protocolVersion").unwrap_or(&Value::Null);
        if version.as_u64() != Some(VERSION) {
            return Err(AcpError::Version(cut_text(&version.to_string(), MAX_NAME_CHARS)));
        }
        let logins =
            result.get("authMethods").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let ids = logins.iter().filter_map(|login| login.get("id").and_then(Value::as_str));
        self.logins =
            ids.filter(|id| id.len() <= MAX_ID_BYTES).take(MAX_SHOWN_LOGINS).map(str::to_owned).collect();
        let own = |name: &str| {
            let text = result.get("agentInfo").and_then(|info| info.get(name)).and_then(Value::as_str);
            cut_text(text.unwrap_or_default(), MAX_NAME_CHARS)
        };
        self.transcript.agent = format!("{} {}", own("name"), own("version")).trim().to_owned();
        Ok(())
    }

    /// Logs in once, by the way that its owner has named; agents demand that also where they hold all that they need.
    fn log_in(&mut self) -> Result<Vec<u8>, AcpError> {
        let login = self.order.login.clone().filter(|login| self.logins.contains(login));
        let Some(login) = login else {
            let offered: Vec<String> =
                self.logins.iter().map(|login| cut_text(login, MAX_NAME_CHARS)).collect();
            let offered = if offered.is_empty() { "nothing".to_owned() } else { offered.join(", ") };
            return Err(AcpError::Login(offered));
        };
        self.stage = Stage::Login;
        Ok(self.ask_agent("authenticate", &json!({ "methodId": login })))
    }

    /// Returns true if a message is about the session of this conversation.
    fn is_ours(&self, params: &Value) -> bool {
        let named = params.get("sessionId").and_then(Value::as_str);
        let own = match &self.stage {
            // The words of some agents come after the end of their turn.
            Stage::Work { session, .. } | Stage::Over { session, .. } => Some(session.as_str()),
            Stage::Greeting | Stage::Opening(_) | Stage::Login => None,
        };
        own.is_some() && named == own
    }

    fn take_request(&mut self, id: &Value, method: &str, params: &Value) -> Vec<u8> {
        if method == "session/request_permission" {
            return self.take_question(id, params);
        }
        // Files and terminals among them, which the greeting has not offered.
        self.transcript.unoffered = self.transcript.unoffered.saturating_add(1);
        message::refusal_line(id, METHOD_NOT_FOUND, "this client does not offer it: use your own sandbox")
    }

    fn take_question(&mut self, id: &Value, params: &Value) -> Vec<u8> {
        let Stage::Work { is_cancelled, .. } = self.stage else {
            return message::refusal_line(id, INVALID_PARAMS, "there is no such session");
        };
        if !self.is_ours(params) {
            return message::refusal_line(id, INVALID_PARAMS, "there is no such session");
        }
        // The protocol wants this answer to every question once a turn was cancelled.
        if is_cancelled {
            return message::answer_line(id, &json!({ "outcome": { "outcome": "cancelled" } }));
        }
        let call = params.get("toolCall").unwrap_or(&Value::Null);
        let folder = self.order.folder.clone();
        // The agent may have named kind and paths before, and nothing but the id now.
        let reported = self.note_call(call).map(|reported| (reported.kind, reported.paths.clone()));
        let (kind, paths) = reported.unwrap_or_else(|| (kind_of(call), NamedPaths::read_call(call)));
        let judged = judge_call(&folder, kind, &paths);
        let chosen = choose_option(params, judged.is_ok());
        // One who offers no yes for this time gets none.
        let judged =
            if chosen.is_none() { judged.and(Err("it offers no yes for this time alone")) } else { judged };
        let chosen = chosen.or_else(|| choose_option(params, false));
        if judged.is_err() {
            self.transcript.refused = self.transcript.refused.saturating_add(1);
        }
        if let Some(reported) = self.note_call(call) {
            reported.asked = Some(judged);
        }
        match chosen {
            Some(option) => {
                message::answer_line(id, &json!({ "outcome": { "outcome": "selected", "optionId": option } }))
            }
            None => message::refusal_line(id, INVALID_PARAMS, "the question has no answer that can be given"),
        }
    }

    fn take_update(&mut self, update: &Value) {
        match update.get("sessionUpdate").and_then(Value::as_str) {
            Some("agent_message_chunk") => {
                let text = update.get("content").and_then(|content| content.get("text"));
                self.transcript.add_words(text.and_then(Value::as_str).unwrap_or_default());
            }
            Some("tool_call" | "tool_call_update") => drop(self.note_call(update).map(|_| ())),
            // Thoughts, plans, modes, commands, and what later versions add.
            Some(_) | None => {}
        }
    }

    /// Takes over the report of an agent about a tool call.
    fn note_call(&mut self, call: &Value) -> Option<&mut ReportedCall> {
        let text = |name: &str| call.get(name).and_then(Value::as_str);
        let id = text("toolCallId").filter(|id| id.len() <= MAX_ID_BYTES)?;
        let reported = self.transcript.find_call(id)?;
        if text("kind").is_some() {
            reported.kind = kind_of(call);
        }
        reported.paths.add_paths(NamedPaths::read_call(call));
        if let Some(title) = text("title") {
            reported.title = cut_text(title, MAX_TITLE_CHARS);
        }
        if let Some(status) = text("status") {
            reported.status = cut_text(status, MAX_NAME_CHARS);
        }
        Some(reported)
    }
}

fn kind_of(call: &Value) -> ToolKind {
    ToolKind::from_name(call.get("kind").and_then(Value::as_str).unwrap_or_default())
}

fn cut_text(text: &str, most: usize) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).take(most).collect()
}
