//! The first step of a call: what it would be.

use std::sync::Arc;

use serde::Serialize;
use writ_types::action::{Action, ModelCall};
use writ_types::chat::{
    AnswerForm, ChatMessage, Effort, ModelRequest, Part, Usage, estimate_tokens, estimate_tokens_of_chars,
};
use writ_types::digest::{Digest, NotCanonical};
use writ_types::error::{Exit, Report, ToReport};
use writ_types::unit::{Timestamp, Tokens};

use crate::catalogue::{Catalogue, ModelInfo};
use crate::config::ProviderKind;
use crate::provider::{Provider, Route};

/// Bytes per token in cost ceilings. Estimates of size use four characters; a ceiling must hold for text that
/// splits badly (code, digits, other scripts) as well, and half a token per byte is rarely exceeded.
const CEILING_BYTES_PER_TOKEN: u64 = 2;

/// The smallest request that is looked at for a cut, in estimated tokens: less fits into every window.
const MIN_CUT: u64 = 2_048;

/// By how much a request must be longer than what was read of it. An estimate alone is rarely wrong by as much.
const CUT_FACTOR: u64 = 2;

/// The most by which a file may cost more than its estimate.
const FILE_CEILING_FACTOR: u64 = 4;

/// Tokens that every message and tool costs besides its text: role marks and separators.
const TOKENS_PER_ITEM: u64 = 8;

/// A call that is ready to be made: the action that the door judges, and everything that is needed to perform it.
#[derive(Clone, Debug)]
pub struct PlannedCall {
    call: ModelCall,
    provider: Arc<Provider>,
    request: Arc<ModelRequest>,
    info: ModelInfo,
}

/// The reason why no call can be planned for a request.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The request has no canonical JSON, so no digest can name it in a permit.
    #[error("the request cannot be digested: {0}")]
    NoDigest(#[from] NotCanonical),
    /// The model cannot call tools, and the request offers some.
    #[error("{0} cannot call tools")]
    NoTools(String),
    /// The model or its format takes no file of this type, and the request has one.
    #[error("{model} takes no {what}: \"{name}\" cannot be sent to it")]
    NoFile {
        /// The model, as `provider/name`.
        model: String,
        /// The kind of files that it does not take.
        what: &'static str,
        /// The name of the first such file.
        name: String,
    },
}

impl ToReport for PlanError {
    fn report(&self) -> Report {
        match self {
            Self::NoDigest(error) => {
                Report::new(Exit::Bug, "model.no_digest", "the request cannot be digested")
                    .with_inside(error.to_string())
            }
            Self::NoTools(_) => Report::new(Exit::Config, "model.no_tools", self.to_string())
                .with_hint("Choose a model that can call tools."),
            Self::NoFile { .. } => Report::new(Exit::Config, "model.no_file", self.to_string())
                .with_hint("Name a model that reads such files in models.default or models.fallback."),
        }
    }
}

/// The parts of a request that its digest covers.
#[derive(Serialize)]
struct Digested<'a> {
    provider: &'a str,
    model: &'a str,
    system: &'a str,
    messages: &'a [Arc<ChatMessage>],
    /// The digest of the tools instead of the tools: they rarely change, and their digest is cached.
    tools: Digest,
    max_output_tokens: Tokens,
    #[serde(skip_serializing_if = "Option::is_none")]
    form: Option<&'a AnswerForm>,
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<Effort>,
}

impl PlannedCall {
    /// Plans a call over a route.
    ///
    /// # Errors
    ///
    /// If the request has no digest, or offers tools to a model that has none.
    pub(crate) fn new(
        route: &Route,
        request: Arc<ModelRequest>,
        catalogue: &Catalogue,
        now: Timestamp,
    ) -> Result<Self, PlanError> {
        let (provider, model) = (&route.provider, &route.model);
        let info = catalogue.model_info(&provider.name, model);
        // Found out before the door is asked, since the provider would refuse it.
        if !info.tools && !request.tools.is_empty() {
            return Err(PlanError::NoTools(format!("{}/{model}", provider.name)));
        }
        if let Some((what, name)) = unfit_file(provider.kind, info, &request) {
            return Err(PlanError::NoFile { model: format!("{}/{model}", provider.name), what, name });
        }
        // For an unknown model the catalogue only guesses, so the caller's limit counts.
        let max_output_tokens = if info.known {
            request.max_output_tokens.min(info.max_output)
        } else {
            request.max_output_tokens
        };
        let size = Size::measure_request(&request);
        let price = catalogue.price_at(&provider.name, model, now);
        // The digest covers everything that the provider reads, so a permit fits this request alone.
        let digested = Digested {
            provider: &provider.name,
            model,
            system: &request.system,
            messages: &request.messages,
            tools: request.tools.digest()?,
            max_output_tokens: request.max_output_tokens,
            form: request.form.as_ref(),
            effort: request.effort,
        };
        let call = ModelCall {
            provider: provider.name.clone(),
            model: model.clone(),
            host: provider.host.clone(),
            request: Digest::of_json(&digested)?,
            input_tokens: size.estimate,
            max_output_tokens,
            // The ceiling uses the larger size: the reservation must hold for text that splits badly.
            ceiling: price.map(|price| price.cost_ceiling(size.at_most, max_output_tokens)),
            clearance: provider.clearance,
            why: String::new(),
        };
        Ok(Self { call, provider: Arc::clone(provider), request, info })
    }

    /// Returns the call with the reason why this model was chosen, for the ledger.
    #[must_use]
    pub fn reason_for_route(mut self, why: &str) -> Self {
        why.clone_into(&mut self.call.why);
        self
    }

    /// The action that the door judges.
    pub fn action(&self) -> Action {
        Action::ModelCall(self.call.clone())
    }

    /// The call's data.
    pub const fn model_call(&self) -> &ModelCall {
        &self.call
    }

    /// Returns the properties of the model.
    pub const fn model_info(&self) -> ModelInfo {
        self.info
    }

    /// The provider.
    pub fn provider(&self) -> &Provider {
        &self.provider
    }

    /// The request.
    pub fn request(&self) -> &ModelRequest {
        &self.request
    }

    /// Returns the tokens of the request that the model has read, if they are so much fewer than were sent
    /// that a part must have been cut off. Ollama does so without an error
    /// ([ollama/ollama#4967](https://github.com/ollama/ollama/issues/4967)); the other formats answer with
    /// one.
    pub fn cut_to(&self, usage: &Usage) -> Option<Tokens> {
        let (sent, read) = (self.call.input_tokens.get(), usage.input.get());
        let is_cut = self.provider.kind == ProviderKind::Ollama
            // A server that counts nothing reports zero, which is no cut.
            && read > 0
            && sent >= MIN_CUT
            && read.saturating_mul(CUT_FACTOR) < sent;
        is_cut.then_some(usage.input)
    }

    /// The model that was asked for, as `provider/model`.
    pub fn requested_model(&self) -> String {
        format!("{}/{}", self.call.provider, self.call.model)
    }
}

/// Returns the first file of a request that the model cannot take, by its kind and name. Of an unknown model only the format
/// is known; its server refuses what it cannot read.
fn unfit_file(kind: ProviderKind, info: ModelInfo, request: &ModelRequest) -> Option<(&'static str, String)> {
    let files = request.messages.iter().flat_map(|message| &message.parts).filter_map(|part| match part {
        Part::File(attached) => Some(&attached.file),
        Part::Text { .. } | Part::Call(_) | Part::Result(_) | Part::Reasoning(_) => None,
    });
    let sees = info.vision || !info.known;
    // This format has a field for images alone; the library would leave other files out.
    let reads_pdf = kind != ProviderKind::Ollama && sees;
    files
        .filter(|file| if file.media.is_image() { !sees } else { !reads_pdf })
        .map(|file| (if file.media.is_image() { "images" } else { "PDF files" }, file.name.clone()))
        .next()
}

/// The size of a request, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size {
    estimate: Tokens,
    at_most: Tokens,
}

impl Size {
    fn measure_request(request: &ModelRequest) -> Self {
        let mut size = Self::default();
        size.add_text(&request.system);
        for part in request.messages.iter().flat_map(|message| &message.parts) {
            size.add_item();
            match part {
                Part::Text { text } => size.add_text(text),
                Part::Call(call) => {
                    size.add_text(&call.name);
                    size.add_text(&call.arguments.to_string());
                }
                Part::Result(result) => size.add_text(&result.text),
                Part::Reasoning(piece) => {
                    size.add(estimate_tokens_of_chars(piece.byte_count()), piece.byte_count())
                }
                Part::File(attached) => {
                    let tokens = Tokens::new(attached.file.estimated_tokens());
                    size.estimate += tokens;
                    // A large image in full detail costs a few times as much with some providers.
                    size.at_most += Tokens::new(tokens.get().saturating_mul(FILE_CEILING_FACTOR));
                }
            }
        }
        for (tool, schema) in request.tools.iter().zip(request.tools.schema_sizes()) {
            size.add_item();
            size.add_text(&tool.name);
            size.add_text(&tool.description);
            // The sizes of schemas are computed once for each set of tools.
            size.add(estimate_tokens_of_chars(schema.chars), schema.bytes);
        }
        size
    }

    fn add_item(&mut self) {
        self.estimate += Tokens::new(TOKENS_PER_ITEM);
        self.at_most += Tokens::new(TOKENS_PER_ITEM);
    }

    fn add_text(&mut self, text: &str) {
        self.add(estimate_tokens(text), text.len());
    }

    fn add(&mut self, estimate: Tokens, bytes: usize) {
        self.estimate += estimate;
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.at_most += Tokens::new(bytes.div_ceil(CEILING_BYTES_PER_TOKEN));
    }
}

#[cfg(test)]
mod tests {
    use writ_types::chat::{AttachedFile, FileRef, Role, ToolSpecs};
    use writ_types::taint::{Label, Taint};

    use super::*;

    #[test]
    fn a_known_model_that_sees_nothing_takes_no_file() {
        let info = |vision, known| ModelInfo {
            context_window: Tokens::new(1_000),
            max_output: Tokens::new(100),
            tools: true,
            vision,
            known,
        };
        let file = FileRef::describe_file("a.gif", b"GIF89a;").expect("an image");
        let parts = vec![Part::File(AttachedFile { file, content: None })];
        let message = ChatMessage { role: Role::User, parts, label: Label::new(Taint::Owner) };
        let request = ModelRequest {
            system: String::new(),
            messages: vec![Arc::new(message)],
            tools: ToolSpecs::default(),
            max_output_tokens: Tokens::new(10),
            form: None,
            effort: None,
        };
        let unfit = |info| unfit_file(ProviderKind::OpenAi, info, &request);
        assert_eq!(unfit(info(false, true)), Some(("images", "a.gif".to_owned())));
        assert_eq!(unfit(info(true, true)), None);
        assert_eq!(unfit(info(false, false)), None, "its server knows");
    }
}
