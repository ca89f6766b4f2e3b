//! The record of one span.

use std::str::FromStr;

use writ_types::digest::Digest;
use writ_types::id::TurnId;

/// The longest text that an attribute holds, in characters: names and codes are shorter.
pub const MAX_TEXT_CHARS: usize = 128;

/// Every attribute that leaves: names, codes, counts. It holds no words of a person, a model or a tool.
///
/// `gen_ai.*`, `error.type`: the semantic conventions for generative AI of OpenTelemetry; `writ.*`: ours.
pub const ATTRIBUTES: &[&str] = &[
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.agent.name",
    "gen_ai.conversation.id",
    "gen_ai.request.model",
    "gen_ai.response.model",
    "gen_ai.response.finish_reasons",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
    "gen_ai.tool.name",
    "gen_ai.tool.type",
    "error.type",
    "writ.turn.id",
    "writ.turn.number",
    "writ.run.id",
    "writ.role",
    "writ.outcome",
    "writ.gate.point",
    "writ.gate.result",
    "writ.memory.hits",
    "writ.ask.id",
];

/// The id of a trace: the 16 bytes of the turn's ULID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TraceId(pub [u8; 16]);

/// The id of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpanId(pub [u8; 8]);

impl TraceId {
    /// The trace of a turn; `None`: this is not the id of a turn.
    pub fn of_turn(turn: &str) -> Option<Self> {
        let turn = TurnId::from_str(turn).ok()?;
        Some(Self(turn.to_bytes()))
    }

    /// The span of the whole turn.
    pub fn root_span(self) -> SpanId {
        // Derived, so that a turn interrupted by a crash finds the same root again.
        let digest = Digest::of_bytes(&self.0);
        let [a, b, c, d, e, f, g, h, ..] = *digest.as_bytes();
        SpanId([a, b, c, d, e, f, g, h])
    }
}

impl SpanId {
    /// A new id. All zeros would be no id.
    pub fn random_id() -> Self {
        // Zero is no valid id in OpenTelemetry.
        Self(rand::random::<u64>().max(1).to_be_bytes())
    }
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum AttributeValue {
    /// A name or a code.
    Text(String),
    /// A count.
    Int(i64),
    /// Several names.
    Texts(Vec<String>),
}

/// The role of a span towards others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpanKind {
    /// Work of the engine itself.
    #[default]
    Internal,
    /// A question to another service.
    Client,
}

/// A span that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSpan {
    /// Its trace.
    pub trace: TraceId,
    /// Its id.
    pub id: SpanId,
    /// The span that it is part of.
    pub parent: Option<SpanId>,
    /// The operation.
    pub name: String,
    /// Its role towards others.
    pub kind: SpanKind,
    /// When it began, in nanoseconds since 1970.
    pub start_nanos: u64,
    /// When it ended, in nanoseconds since 1970.
    pub end_nanos: u64,
    /// Its attributes.
    pub attributes: Vec<(&'static str, AttributeValue)>,
}

impl TraceSpan {
    /// Returns true if it failed: the code is then in `error.type`.
    pub fn has_failed(&self) -> bool {
        self.attributes.iter().any(|(name, _)| *name == "error.type")
    }
}
