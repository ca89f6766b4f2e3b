//! A request that was longer than the model can read: sent again without old results, then compacted, then explained.

use writ_types::chat::{ChatMessage, Part, estimate_tokens};
use writ_types::error::Exit;
use writ_types::unit::Tokens;

use super::ContextParts;
use crate::config::AgentConfig;
use crate::context::{self, Assembled, ContextError, ItemUse, Results, Zone};
use crate::event::ModelFailure;
use crate::text;

/// The most times that one request is shortened and sent again: without old results, then compacted.
const MAX_TRIES: u32 = 2;

/// The most parts that an explanation names.
const MAX_NAMED: usize = 4;

/// Advice for the person.
const HINT: &str = "Send a shorter message, or put a long text into a file and name the file; offer fewer tools; or use a model \
that can read more. A local server can be started with a larger context: `--ctx-size` of llama.cpp, \
`OLLAMA_CONTEXT_LENGTH` of Ollama, `--max-model-len` of vLLM, the context length in LM Studio.";

/// Added where the texts that stand in every request leave some room.
const GOES_ON: &str = " Your next message in this session is answered without its older parts.";

/// The state of shortening this turn's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shortening {
    /// The results that are shown at most.
    pub(super) results: Results,
    /// The estimated tokens of the last request.
    pub(super) sent: Tokens,
    /// The number of times that this request was shortened.
    pub(super) tries: u32,
}

impl Default for Shortening {
    fn default() -> Self {
        Self { results: Results::All, sent: Tokens::ZERO, tries: 0 }
    }
}

/// The reason that no shorter request fits, with advice.
#[derive(Debug)]
pub(super) struct TooLarge {
    /// Names the largest parts.
    explained: String,
    hint: String,
}

impl TooLarge {
    /// Adds the explanation to the provider's own text, and to the form of it that is stored.
    pub(super) fn explain_failure(self, text: String, noted: Option<String>) -> ModelFailure {
        let Self { explained, hint } = self;
        ModelFailure::Failed {
            exit: Exit::Model,
            text: format!("{text}\n{explained}"),
            hint,
            noted: noted.map(|noted| format!("{noted}\n{explained}")),
        }
    }
}

impl Shortening {
    /// Narrows the limits until the next request is shorter than the last one.
    ///
    /// # Errors
    ///
    /// If no request is: the tries are used up, or the texts that stand in every request leave no room.
    pub(super) fn shorten_request(
        &mut self,
        parts: &ContextParts,
        config: &mut AgentConfig,
        room: Tokens,
    ) -> Result<(), TooLarge> {
        // The full context is assembled first, to name its largest parts if shortening fails.
        let whole = parts.assemble_request(self.results, config);
        let answer = config.limits.max_output_tokens;
        while self.tries < MAX_TRIES {
            self.tries += 1;
            self.results = Results::OfTheLastStep;
            let half = Tokens::new(self.sent.get() / 2);
            // The reported limit comes first; where that does not help, half of the last request.
            let room = if self.tries == 1 { room } else { room.min(half) };
            *config = config.narrow_to(room);
            let is_shorter = |next: &Assembled| {
                next.total_tokens() < self.sent || config.limits.max_output_tokens < answer
            };
            match parts.assemble_request(self.results, config) {
                // A request that is not smaller would be refused again.
                Ok(next) if is_shorter(&next) => return Ok(()),
                Ok(_) => {}
                Err(_) => break,
            }
        }
        // A conversation needs room beside the system texts and the descriptions of tools.
        let has_room = context::system_tokens(&parts.seed) <= config.context.system_max;
        let hint = if has_room { format!("{HINT}{GOES_ON}") } else { HINT.to_owned() };
        Err(TooLarge { explained: explain_size(parts, room, &whole), hint })
    }
}

/// The largest parts of the request, and the room that there is for them.
fn explain_size(parts: &ContextParts, room: Tokens, whole: &Result<Assembled, ContextError>) -> String {
    let mut named = match whole {
        Ok(assembled) => request_parts(&assembled.items),
        Err(_) => Vec::new(),
    };
    if named.is_empty() {
        let system = context::system_tokens(&parts.seed);
        let text = format!("the system text and the descriptions of {} tools", parts.seed.tools.len());
        named.push((text, system));
    }
    if let Some(result) = largest_result(&parts.conversation) {
        named.push(result);
    }
    named.sort_by_key(|(_, tokens)| std::cmp::Reverse(*tokens));
    let named: Vec<String> = named
        .iter()
        .filter(|(_, tokens)| *tokens > Tokens::ZERO)
        .take(MAX_NAMED)
        .map(|(part, tokens)| format!("{part} (about {tokens})"))
        .collect();
    let largest = named.join(", ");
    format!(
        "It still does not fit without old results and older messages. The model seems to take about {room} together \
         with its answer. The largest parts are {largest}."
    )
}

/// The parts of a request as a person knows them, with their estimated tokens.
fn request_parts(items: &[ItemUse]) -> Vec<(String, Tokens)> {
    let is_tool = |item: &&ItemUse| item.zone == Zone::System && item.source.starts_with("tool ");
    let tools = items.iter().filter(is_tool).count();
    let sum = |belongs: &dyn Fn(&ItemUse) -> bool| {
        items
            .iter()
            .filter(|item| belongs(item))
            .fold(Tokens::ZERO, |sum, item| sum.saturating_add(item.tokens))
    };
    vec![
        (format!("the descriptions of {tools} tools"), sum(&|item| is_tool(&item))),
        ("the system text".to_owned(), sum(&|item| item.zone == Zone::System && !is_tool(&item))),
        ("what is remembered".to_owned(), sum(&|item| item.zone == Zone::Memory)),
        ("the conversation before".to_owned(), sum(&|item| item.zone == Zone::Chronicle)),
        ("the subscriptions".to_owned(), sum(&|item| item.zone == Zone::Workspace)),
        ("your message".to_owned(), sum(&|item| item.zone == Zone::Current && item.source == "user")),
    ]
}

/// The largest result of this turn, by the name of its tool.
fn largest_result(conversation: &[ChatMessage]) -> Option<(String, Tokens)> {
    let results = conversation.iter().flat_map(|message| &message.parts).filter_map(|part| match part {
        Part::Result(result) => Some((
            format!("the result of '{}'", text::plain_name(&result.name)),
            estimate_tokens(&result.text),
        )),
        Part::Text { .. } | Part::Call(_) | Part::Reasoning(_) | Part::File(_) => None,
    });
    results.max_by_key(|(_, tokens)| *tokens)
}
