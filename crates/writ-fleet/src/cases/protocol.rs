//! Lines of JSON between the router and an agent.
//!
//! To the agent: `{"case":{…},"conversation":[…],"reason":…}` once, then `{"message":…}` for each message of the guest or
//! a person, and `{"refused":…}`. From the agent: `{"reply":…}`, `{"escalate":TARGET,"reason":…}`, `{"done":true}`.

use serde::{Deserialize, Serialize};
use writ_store::fleet::{CaseMessage, FleetCase, MAX_CASE_MESSAGE_BYTES};

/// The longest line of an agent, in bytes: a message, with its quotes and escapes.
pub const MAX_LINE_BYTES: usize = 4 * MAX_CASE_MESSAGE_BYTES;
/// The most of a conversation that is handed over, in bytes; of a longer one the newest part.
pub const MAX_HANDOVER_BYTES: usize = 512 * 1024;

/// A thing that an agent says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentLine {
    /// An answer to the guest.
    Reply(String),
    /// It gives the case up.
    Escalate {
        /// The target.
        target: String,
        /// The reason; empty if it names none.
        reason: String,
    },
    /// The case is done.
    Done,
}

/// The reason why a line is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such line: {0}; say {{\"reply\":…}}, {{\"escalate\":TARGET,\"reason\":…}} or {{\"done\":true}}")]
pub struct LineFault(String);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLine {
    reply: Option<String>,
    escalate: Option<String>,
    reason: Option<String>,
    done: Option<bool>,
}

impl AgentLine {
    /// Reads a line.
    ///
    /// # Errors
    ///
    /// If it is none of the three.
    pub fn parse_line(line: &[u8]) -> Result<Self, LineFault> {
        let raw: RawLine = serde_json::from_slice(line).map_err(|error| LineFault(error.to_string()))?;
        match raw {
            RawLine { reply: Some(text), escalate: None, reason: None, done: None } => {
                if text.len() > MAX_CASE_MESSAGE_BYTES {
                    return Err(LineFault(format!("a reply has {MAX_CASE_MESSAGE_BYTES} bytes at most")));
                }
                Ok(Self::Reply(text))
            }
            // The state machine refuses an escalation without a reason, so that the refusal is in the ledger.
            RawLine { reply: None, escalate: Some(target), reason, done: None } => {
                Ok(Self::Escalate { target, reason: reason.unwrap_or_default() })
            }
            RawLine { reply: None, escalate: None, reason: None, done: Some(true) } => Ok(Self::Done),
            RawLine { .. } => Err(LineFault("it says nothing, or two things".to_owned())),
        }
    }
}

#[derive(Serialize)]
struct SaidMessage<'a> {
    from: &'a str,
    text: &'a str,
}

impl<'a> From<&'a CaseMessage> for SaidMessage<'a> {
    fn from(message: &'a CaseMessage) -> Self {
        Self { from: &message.sender, text: &message.text }
    }
}

/// The newest part of a conversation, as far as it is handed over.
#[derive(Debug)]
pub struct Handover {
    /// Newest first.
    messages: Vec<CaseMessage>,
    /// The bytes that are left.
    room: usize,
    /// The number of messages before these.
    left_out: u64,
}

impl Default for Handover {
    fn default() -> Self {
        Self { messages: Vec::new(), room: MAX_HANDOVER_BYTES, left_out: 0 }
    }
}

impl Handover {
    /// Adds the message before those that it has. Returns false if there is no room for it, nor for older ones.
    pub fn add_older(&mut self, message: CaseMessage) -> bool {
        match self.room.checked_sub(message.text.len()) {
            Some(left) => {
                self.room = left;
                // Numbers begin with one and have no gaps.
                self.left_out = message.n.saturating_sub(1);
                self.messages.push(message);
                true
            }
            None => {
                self.left_out = message.n;
                false
            }
        }
    }
}

/// Returns the first line for an agent: its case, the newest part of the conversation, and why it gets it.
pub fn handover_line(case: &FleetCase, conversation: &Handover, reason: &str) -> String {
    let said: Vec<SaidMessage<'_>> = conversation.messages.iter().rev().map(SaidMessage::from).collect();
    serde_json::json!({
        "case": {
            "id": case.id.to_string(),
            "case_token": case.case_token,
            "customer_token": case.customer_token,
            "capability": case.capability,
        },
        "conversation": said,
        // The agent is to know that there was more.
        "left_out": conversation.left_out,
        "reason": reason,
    })
    .to_string()
}

/// Returns the line for a message.
pub fn message_line(from: &str, text: &str) -> String {
    serde_json::json!({ "message": SaidMessage { from, text } }).to_string()
}

/// Returns the line for a refusal.
pub fn refusal_line(why: &str) -> String {
    serde_json::json!({ "refused": why }).to_string()
}

#[cfg(test)]
mod tests {
    use writ_types::id::SessionId;
    use writ_types::unit::Timestamp;

    use super::*;

    /// Rows: SLO-049 (in part: the sample)
    #[test]
    fn the_sample_of_an_escalation_is_read_and_half_lines_are_not() {
        let parse = |text: &str| AgentLine::parse_line(text.as_bytes());
        let sample = parse(r#"{"escalate": "manager", "reason": "over $500 limit"}"#);
        let expected = AgentLine::Escalate { target: "manager".into(), reason: "over $500 limit".into() };
        assert_eq!(sample, Ok(expected));
        assert_eq!(parse(r#"{"reply":"hello"}"#), Ok(AgentLine::Reply("hello".into())));
        assert_eq!(parse(r#"{"done":true}"#), Ok(AgentLine::Done));
        for wrong in [
            "",
            "{}",
            r#"{"done":false}"#,
            r#"{"reply":"a","done":true}"#,
            r#"{"pay":1}"#,
            r#"{"reason":"x"}"#,
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        let long = format!(r#"{{"reply":"{}"}}"#, "x".repeat(MAX_CASE_MESSAGE_BYTES + 1));
        assert!(parse(&long).is_err());
    }

    #[test]
    fn a_long_conversation_is_handed_over_in_its_newest_part() {
        let at = Timestamp::from_millis(0);
        let case = FleetCase {
            id: SessionId::from_parts(at, 1),
            case_token: "case_tk_1".into(),
            customer_token: "cust_tk_1".into(),
            fingerprint: String::new(),
            capability: "refund".into(),
            is_open: true,
            version: 0,
            state: String::new(),
            opened_at: at,
            changed_at: at,
        };
        let text = "x".repeat(MAX_CASE_MESSAGE_BYTES);
        let message = |n| CaseMessage { n, sender: "guest".into(), text: text.clone(), at };
        let mut handover = Handover::default();
        let added = (1..=20).rev().take_while(|n| handover.add_older(message(*n))).count();
        assert_eq!(added, 8);
        let line = handover_line(&case, &handover, "over the limit");
        let line: serde_json::Value = serde_json::from_str(&line).expect("one line of JSON");
        assert_eq!(line["left_out"], 12);
        assert_eq!(line["conversation"].as_array().map(Vec::len), Some(8));
        assert_eq!(
            (&line["case"]["case_token"], &line["reason"]),
            (&"case_tk_1".into(), &"over the limit".into())
        );
    }
}
