//! What the model does in the soak of the server: `presence KIND FILE WORD` says what a turn is made of.

use std::time::Duration;

use serde_json::{Value, json};
use writ_testkit::model_server::{ParsedMessage, ParsedRequest, Reply};
use writ_types::chat::Role;

/// The wait before each frame of a slow answer.
const PACE: Duration = Duration::from_millis(15);
/// Sentences of a slow answer.
const SLOW: usize = 24;
/// Sentences of a long answer: some twenty thousand characters.
const LONG: usize = 300;

/// The answer to a request of the soak; `None`: it is another's.
pub(crate) fn answer(request: &ParsedRequest) -> Option<Reply> {
    let asked = |message: &ParsedMessage| message.role == Role::User && message.text.contains("presence ");
    let from = request.messages.iter().rposition(asked)?;
    let (message, after) = request.messages.get(from..)?.split_first()?;
    // Messages that came together stand in one; the last of them is done.
    let (_, wanted) = message.text.rsplit_once("presence ")?;
    let mut words = wanted.split_whitespace();
    let (kind, file, word) = (words.next()?, words.next()?, words.next()?);
    let fresh = after.iter().all(|message| message.results.is_empty());
    let call = call(kind, file, word).filter(|_| fresh);
    let reply = match (call, kind) {
        (Some((tool, arguments)), _) => Reply::call(tool, arguments),
        (None, "slow" | "cancel") => Reply::text(&sentences(word, SLOW)).with_pace(PACE),
        (None, "long") => Reply::text(&sentences(word, LONG)),
        (None, _) => Reply::text(&format!("Done: {word}.")),
    };
    Some(reply)
}

fn call(kind: &str, file: &str, word: &str) -> Option<(&'static str, Value)> {
    let append = json!(["sh", "-c", format!("echo {word} >> {file}")]);
    Some(match kind {
        "command" => ("shell_exec", json!({ "argv": append })),
        // A host that nobody has listed: the owner is asked.
        "ask" => ("shell_exec", json!({ "argv": append, "hosts": [format!("{word}.example")] })),
        "memory" => {
            let name = file.trim_end_matches(".txt");
            ("memory_store", json!({ "text": format!("note {name} {word}") }))
        }
        "write" => ("file_write", json!({ "path": format!("{word}.txt"), "content": format!("{word}\n") })),
        _ => return None,
    })
}

fn sentences(word: &str, count: usize) -> String {
    (0..count).map(|n| format!("This is sentence {n} of the answer to the message {word}. ")).collect()
}
