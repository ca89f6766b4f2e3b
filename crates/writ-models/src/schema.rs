//! Schemas of tools in the dialects of JSON Schema that providers take.
//!
//! A provider that does not take one keyword of one schema refuses the whole request. So a schema is read
//! into a plain tree (`read`) and written anew from it (`write`): a keyword that is not known here is never
//! sent. A part that a dialect has no keyword for is left out or put into the description; arguments are
//! checked against the original.

use serde_json::Value;
use writ_types::schema::{ExpandError, expand_references};

use crate::config::ProviderKind;

mod read;

mod write;

/// A dialect of JSON Schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// OpenAI Chat and Responses without `strict`, and the many servers that take that format, each with rules of its own:
    /// every part has a type, none stands beside `anyOf`, no references, no expressions.
    OpenAi,
    /// OpenAI with `strict`: every argument is required, and what may be left out may be `null`. It is not sent for tools
    /// today, since models then write out every argument that they would leave out.
    OpenAiStrict,
    /// Gemini's subset: enums of texts alone, no unions beside other words, no empty objects.
    Gemini,
    /// Anthropic: no unions at the top, and names of arguments in a small alphabet.
    Anthropic,
}

/// The reason why a tool's schema cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// Its references cannot be put in their places.
    #[error(transparent)]
    Expand(#[from] ExpandError),
    /// It is of something else than an object.
    #[error("it is not the schema of an object")]
    NotObject,
    /// An argument that must be given has a name that the provider does not take.
    #[error("the provider does not take the name of the argument '{0}'")]
    Name(String),
}

impl Dialect {
    /// Every dialect.
    pub const ALL: [Self; 4] = [Self::OpenAi, Self::OpenAiStrict, Self::Gemini, Self::Anthropic];

    /// The dialect in which tools are sent to providers of a kind.
    pub const fn of(kind: ProviderKind) -> Self {
        match kind {
            ProviderKind::Anthropic => Self::Anthropic,
            ProviderKind::Gemini => Self::Gemini,
            ProviderKind::OpenAi
            | ProviderKind::OpenAiResponses
            | ProviderKind::OpenRouter
            | ProviderKind::Ollama => Self::OpenAi,
        }
    }

    /// Writes the schema of a tool's arguments in this dialect. `None`: there are no arguments, and the dialect has no
    /// schema for that.
    ///
    /// # Errors
    ///
    /// If it is no schema of an object, its references lead nowhere, or it needs a name that cannot be sent.
    pub fn adapt_schema(self, schema: &Value) -> Result<Option<Value>, SchemaError> {
        let object = read::read_arguments(&expand_references(schema)?).ok_or(SchemaError::NotObject)?;
        write::write_arguments(self, &object)
    }
}

#[cfg(test)]
mod tests;
