//! The record of a turn of a coding agent. It is cut here, so that the whole is small enough to be sealed.

use writ_acp::transcript::{ReportedCall, Transcript};
use writ_types::chat::{ModelReply, StopReason, ToolCall, Usage};

use super::CODING_AGENT;

/// The most bytes of an agent's last words that are recorded, as JSON; of longer ones, their end.
const MAX_WORDS_BYTES: usize = 16 * 1024;
/// The most bytes of its tool calls that are recorded one by one, as JSON; further ones are counted.
const MAX_CALLS_BYTES: usize = 32 * 1024;
/// The most characters of the title of a tool call.
const MAX_TITLE_CHARS: usize = 80;

/// An agent's words and tool calls, in the form in which the ledger seals those of models.
pub(super) fn recorded_reply(transcript: &Transcript) -> ModelReply {
    let (mut calls, mut bytes) = (Vec::new(), 0_usize);
    for call in transcript.calls.iter().enumerate().map(|(n, call)| recorded_call(n, call)) {
        bytes = bytes.saturating_add(serde_json::to_string(&call).map_or(usize::MAX, |json| json.len()));
        if bytes > MAX_CALLS_BYTES {
            break;
        }
        calls.push(call);
    }
    let more = count_calls(transcript).saturating_sub(count(calls.len()));
    if more > 0 {
        let arguments = serde_json::json!({ "calls_that_are_only_counted": more });
        calls.push(ToolCall { id: "more".to_owned(), name: "other".to_owned(), arguments });
    }
    let agent = if transcript.agent.is_empty() { CODING_AGENT } else { &transcript.agent };
    ModelReply {
        text: end_of(&transcript.last_words).to_owned(),
        calls,
        stop: StopReason::EndTurn,
        usage: Usage::default(),
        model: agent.to_owned(),
        reasoning: Vec::new(),
    }
}

fn recorded_call(n: usize, call: &ReportedCall) -> ToolCall {
    let title: String = call.title.chars().take(MAX_TITLE_CHARS).collect();
    ToolCall {
        id: n.to_string(),
        name: call.kind.name().to_owned(),
        arguments: serde_json::json!({
            "title": title,
            "status": call.status,
            "permission": call.asked.map(|asked| asked.map_or_else(|why| format!("no: {why}"), |()| "yes".to_owned())),
        }),
    }
}

/// The end of a text that has at most `MAX_WORDS_BYTES` as JSON.
fn end_of(text: &str) -> &str {
    let mut bytes = 0_usize;
    let from = text.char_indices().rev().find_map(|(at, char)| {
        let written = match char {
            '"' | '\\' => 2,
            // Written as `\u0000` where there is no shorter form.
            _ if char.is_control() => 6,
            _ => char.len_utf8(),
        };
        bytes = bytes.saturating_add(written);
        (bytes > MAX_WORDS_BYTES).then(|| at.saturating_add(char.len_utf8()))
    });
    text.get(from.unwrap_or_default()..).unwrap_or_default()
}

/// The outcome of a turn in one line.
pub(super) fn summary_of(transcript: &Transcript) -> String {
    let (calls, refused) = (count_calls(transcript), transcript.refused);
    let passed = passed_over(transcript);
    format!("the coding agent ended its turn: {calls} tool calls, {refused} refused{passed}")
}

/// The lines of a turn that were not read or not served, which can be the reason of its end; empty if there were none.
pub(super) fn passed_over(transcript: &Transcript) -> String {
    let counts = [
        (transcript.long_lines, "lines too long to be read"),
        (transcript.stray_lines, "lines that are no messages"),
        (transcript.unoffered, "requests for what is not offered"),
    ];
    let named = counts.iter().filter(|(count, _)| *count > 0);
    named.map(|(count, what)| format!("; {count} {what}")).collect()
}

fn count_calls(transcript: &Transcript) -> u64 {
    count(transcript.calls.len()).saturating_add(transcript.more_calls)
}

fn count(calls: usize) -> u64 {
    u64::try_from(calls).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest record that a hostile agent can bring about is sealed: its words end it, and its calls are counted.
    #[test]
    fn the_largest_record_is_small_enough_to_be_sealed() {
        for filler in ["é", "\u{1}", "\"", "\\", "x", "🦀"] {
            let mut call = ReportedCall::default();
            call.title = filler.repeat(200);
            call.status = "s".repeat(64);
            call.asked = Some(Err("it is not inside the work tree"));
            let mut transcript = Transcript::default();
            transcript.agent = "a".repeat(129);
            transcript.last_words = format!("{}END", filler.repeat(64 * 1024 / filler.len()));
            transcript.calls = vec![call; 2_000];
            transcript.more_calls = 5;
            let reply = recorded_reply(&transcript);
            assert!(serde_json::to_vec(&reply).expect("is JSON").len() <= crate::model::MAX_SEALED_REPLY);
            assert!(reply.text.ends_with("END") && reply.text.len() > 2_000, "{filler:?}");
            let last = reply.calls.last().expect("are named");
            let named = u64::try_from(reply.calls.len() - 1).expect("few");
            assert!(named >= 40, "{filler:?}: {named}");
            assert_eq!(last.arguments["calls_that_are_only_counted"], 2_005 - named);
        }
    }

    #[test]
    fn a_small_record_is_whole() {
        let mut call = ReportedCall::default();
        call.title = "Edit a".to_owned();
        call.asked = Some(Ok(()));
        let mut transcript = Transcript::default();
        transcript.last_words = "Done.".to_owned();
        transcript.calls = vec![call];
        transcript.long_lines = 2;
        let reply = recorded_reply(&transcript);
        assert_eq!((reply.text.as_str(), reply.calls.len()), ("Done.", 1));
        assert_eq!(reply.calls[0].arguments["permission"], "yes");
        assert_eq!(
            summary_of(&transcript),
            "the coding agent ended its turn: 1 tool calls, 0 refused; 2 lines too long to be read"
        );
    }
}
