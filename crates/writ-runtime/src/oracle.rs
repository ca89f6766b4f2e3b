//! Questions to the oracle: a stronger model, asked once, without tools and without the conversation.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use writ_models::ModelRole;
use writ_tools::render::Rendered;
use writ_types::chat::{ChatMessage, ModelRequest, Part, Role, ToolCall, ToolOutcome, ToolSpecs};
use writ_types::taint::Label;
use writ_types::unit::Tokens;

use crate::error::EngineError;
use crate::model;
use crate::outcome::Acted;
use crate::pending::Pending;
use crate::place::CallPlace;

/// The most tokens of an answer: two pages.
const MAX_ANSWER_TOKENS: u64 = 4_096;

const SYSTEM: &str = "Another agent is at a loss and asks you one question. You see nothing else of its work and have no tools. \
                      Answer shortly and concretely; say what you are unsure of.";

/// Answers a question of an agent. The answer is trusted as little as the question.
///
/// # Errors
///
/// If the store cannot be used.
pub(crate) async fn answer(
    place: &CallPlace,
    first: &mut Pending,
    (call, label): (&ToolCall, &Label),
    (question, cancel): (String, &CancellationToken),
) -> Result<Acted, EngineError> {
    place.commit(std::mem::take(first)).await?;
    let parts = vec![Part::Text { text: question }];
    let request = ModelRequest {
        system: SYSTEM.to_owned(),
        messages: vec![Arc::new(ChatMessage { role: Role::User, parts, label: label.clone() })],
        tools: ToolSpecs::default(),
        max_output_tokens: Tokens::new(MAX_ANSWER_TOKENS),
        form: None,
        effort: None,
    };
    let asked = model::ask(place, ModelRole::Oracle, (Arc::new(request), label), cancel).await?;
    let (text, outcome) = match asked.reply {
        Ok(reply) => (reply.text, ToolOutcome::Done),
        // Why is in the ledger; a provider's words are not for the agent.
        Err(_) => {
            ("No answer: the model could not be asked. Go on without it.".to_owned(), ToolOutcome::Failed)
        }
    };
    let text = place.services.journal.redactor.clean_text(text);
    let rendered = Rendered { text, label: label.clone(), outcome };
    let mut acted = place.result(call, rendered, "ask a stronger model", asked.ops);
    acted.cost = asked.cost;
    Ok(acted)
}
