//! Structured answers: asks a model for JSON of a given form at most twice, and then uses a fallback value.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use writ_types::chat::{ChatMessage, ModelReply, ModelRequest, Part, Role};
use writ_types::taint::{Label, Taint};

/// The most requests for one answer: the first, and one more that names the error of the first answer (SIL-063).
pub const MAX_REQUESTS: u32 = 2;

/// The longest error that is sent to the model, in characters.
const MAX_ERROR_CHARS: usize = 500;

/// The origin of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The model, at this request, counted from one.
    Model(u32),
    /// The role's fallback, because no answer had the right form.
    Fallback,
}

/// Asks for JSON that deserialises as a `T` and passes `check`. `call` makes one request, with its permits and retries.
/// If the answer is malformed, the model is asked once more, with the error. If that answer is malformed too, the result is
/// that of `fallback`, which does not depend on the model's text.
///
/// # Errors
///
/// If `call` fails. An answer of the wrong form is no error.
pub async fn ask_structured<T, E>(
    request: ModelRequest,
    check: impl Fn(&T) -> Result<(), String>,
    fallback: impl FnOnce() -> T,
    mut call: impl AsyncFnMut(Arc<ModelRequest>) -> Result<ModelReply, E>,
) -> Result<(T, Origin), E>
where
    T: DeserializeOwned,
{
    let mut request = Arc::new(request);
    // Two requests at most: a model that fails twice mostly fails again.
    for number in 1..=MAX_REQUESTS {
        let reply = call(Arc::clone(&request)).await?;
        match read_structured(&reply.text, &check) {
            Ok(value) => return Ok((value, Origin::Model(number))),
            Err(error) => request = Arc::new(once_more(&request, reply.text, &error)),
        }
    }
    Ok((fallback(), Origin::Fallback))
}

/// Reads an answer: JSON alone, or alone in a fenced block, that passes `check`.
///
/// # Errors
///
/// The fault of the answer, as a text for the model.
pub fn read_structured<T: DeserializeOwned>(
    text: &str,
    check: impl Fn(&T) -> Result<(), String>,
) -> Result<T, String> {
    // Many models put a fence around JSON although they are asked not to.
    let text = text.trim();
    let inner = text
        .strip_prefix("```json")
        .or_else(|| text.strip_prefix("```"))
        .and_then(|rest| rest.strip_suffix("```"))
        .unwrap_or(text);
    let value = serde_json::from_str(inner).map_err(|error| error.to_string())?;
    check(&value)?;
    Ok(value)
}

/// Returns the request again, with the malformed answer and its error at the end.
pub fn once_more(request: &ModelRequest, answer: String, error: &str) -> ModelRequest {
    // The error may quote the model's answer, so it is bounded.
    let error: String = error.chars().take(MAX_ERROR_CHARS).collect();
    let asked = format!("That is not of the form that was asked for: {error}. Answer with the JSON alone.");
    // The model's answer is trusted as little as the conversation that it was made from.
    let mut labels = request.messages.iter().map(|message| &message.label);
    let mut label = labels.next().cloned().unwrap_or_else(|| Label::new(Taint::External));
    labels.for_each(|other| label.join(other));
    let mut request = request.clone();
    for (role, text) in [(Role::Assistant, answer), (Role::User, asked)] {
        let parts = vec![Part::Text { text }];
        request.messages.push(Arc::new(ChatMessage { role, parts, label: label.clone() }));
    }
    request
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use serde::Deserialize;
    use writ_types::chat::{StopReason, ToolSpecs, Usage};
    use writ_types::unit::Tokens;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Score {
        score: u32,
    }

    fn request() -> ModelRequest {
        let label = Label::new(Taint::External);
        let parts = vec![Part::Text { text: "rate this".into() }];
        ModelRequest {
            system: String::new(),
            messages: vec![Arc::new(ChatMessage { role: Role::User, parts, label })],
            tools: ToolSpecs::default(),
            max_output_tokens: Tokens::new(100),
            form: None,
            effort: None,
        }
    }

    /// Asks a model that gives these answers; returns the result and the requests that were made.
    async fn ask(answers: &[&str]) -> ((Score, Origin), Vec<Arc<ModelRequest>>) {
        let mut sent = Vec::new();
        let call = async |request: Arc<ModelRequest>| {
            let text = (*answers.get(sent.len()).expect("no more requests than that")).to_owned();
            sent.push(request);
            let (usage, model) = (Usage::default(), String::new());
            Ok::<_, Infallible>(ModelReply {
                text,
                calls: Vec::new(),
                stop: StopReason::EndTurn,
                usage,
                model,
                reasoning: Vec::new(),
            })
        };
        let check = |score: &Score| {
            if score.score <= 10 { Ok(()) } else { Err(format!("{} is more than 10", score.score)) }
        };
        let Ok(came) = ask_structured(request(), check, || Score { score: 0 }, call).await;
        (came, sent)
    }

    #[tokio::test]
    async fn a_good_answer_takes_one_request() {
        for text in
            ["{\"score\": 7}", " \n{\"score\":7}\n", "```json\n{\"score\": 7}\n```", "```\n{\"score\":7}```"]
        {
            let (came, sent) = ask(&[text]).await;
            assert_eq!((came, sent.len()), ((Score { score: 7 }, Origin::Model(1)), 1), "{text}");
        }
    }

    /// Rows: SIL-063
    #[tokio::test]
    async fn a_malformed_answer_is_asked_for_once_more_with_the_error() {
        let (came, sent) = ask(&["seven of ten", "{\"score\": 7}"]).await;
        assert_eq!(came, (Score { score: 7 }, Origin::Model(2)));
        let [first, second] = sent.as_slice() else { panic!("two requests") };
        assert_eq!(second.messages.len(), first.messages.len() + 2);
        assert_eq!(second.messages[1].parts, [Part::Text { text: "seven of ten".into() }]);
        let [Part::Text { text }] = second.messages[2].parts.as_slice() else { panic!("a text") };
        assert!(text.contains("expected"), "the parser's error: {text}");
        assert_eq!(second.messages[2].label.taint, Taint::External, "the label of the conversation stays");
    }

    /// Rows: SIL-064
    #[tokio::test]
    async fn malformed_answers_take_two_requests_and_always_give_the_same_fallback() {
        for answers in [["", ""], ["{\"score\": 99}", "{\"score\": 98}"], ["[]", "{\"score\": 7, \"x\": 1}"]]
        {
            let (came, sent) = ask(&answers).await;
            assert_eq!((came, sent.len()), ((Score { score: 0 }, Origin::Fallback), 2));
        }
    }
}
