//! Vectors of texts, from the model of the role `embedding`.
//!
//! As with [`Models::call`], the door judges in between: [`Models::plan_embedding`] says what the call would be,
//! [`Models::embed`] consumes the permit for exactly that. Two wire formats are spoken: that of OpenAI, which most servers have
//! (`embeddings`), and Ollama's own (`api/embed`).

use std::sync::Arc;
use std::time::SystemTime;

use base64::Engine as _;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use writ_egress::LentClient;
use writ_policy::permit::Permit;
use writ_types::action::{Action, ModelCall};
use writ_types::chat::{Usage, estimate_tokens};
use writ_types::digest::Digest;
use writ_types::taint::Clearance;
use writ_types::unit::{ByteCount, MicroUsd, Timestamp, Tokens};

use crate::call::Models;
use crate::config::{ModelRole, ProviderKind};
use crate::error::{EndlessLimit, Failure, ModelError};
use crate::plan::PlanError;
use crate::provider::{Provider, Route};
use crate::rate::{RateBoard, RateHeaders};
use crate::refusal::{error_in, provider_error};
use crate::retry::{stated_wait, time_of};

/// The largest answer: 64 vectors of 4,096 numbers of 22 characters have a third of it.
const MAX_ANSWER: ByteCount = ByteCount::new(16 * 1024 * 1024);

/// A request for vectors that is ready to be made.
#[derive(Clone, Debug)]
pub struct PlannedEmbedding {
    call: ModelCall,
    provider: Arc<Provider>,
    texts: Vec<String>,
}

/// The answer to it.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddingReply {
    /// The vectors, in the order of the texts. They are not checked.
    pub vectors: Vec<Vec<f32>>,
    /// The model's name, by the server.
    pub model: String,
    /// The tokens that were read.
    pub usage: Usage,
}

impl PlannedEmbedding {
    /// The action that the door judges.
    pub fn action(&self) -> Action {
        Action::ModelCall(self.call.clone())
    }

    /// The model, as `provider/name`.
    pub fn requested_model(&self) -> String {
        format!("{}/{}", self.call.provider, self.call.model)
    }

    /// Returns the most sensitive content that the provider may be sent.
    pub fn clearance(&self) -> Clearance {
        self.provider.clearance
    }
}

/// The parts of a request that its digest covers.
#[derive(Serialize)]
struct DigestedTexts<'a> {
    provider: &'a str,
    model: &'a str,
    texts: &'a [String],
}

impl Models {
    /// Returns the route of the role `embedding`; `None`: the owner has named no model for it, and one that answers people
    /// turns no text into vectors.
    pub fn embedding_route(&self) -> Option<&Route> {
        self.routes().all().find(|(role, _)| *role == Some(ModelRole::Embedding)).map(|(_, route)| route)
    }

    /// Says what a request for vectors over a route would be, for the door to judge.
    ///
    /// # Errors
    ///
    /// If the texts have no digest.
    pub fn plan_embedding(
        &self,
        route: &Route,
        texts: Vec<String>,
        now: Timestamp,
    ) -> Result<PlannedEmbedding, PlanError> {
        let Route { provider, model } = route;
        let input_tokens =
            texts.iter().map(|text| estimate_tokens(text)).fold(Tokens::ZERO, Tokens::saturating_add);
        let digested = DigestedTexts { provider: &provider.name, model, texts: &texts };
        let usage = Usage { input: input_tokens, ..Usage::default() };
        let call = ModelCall {
            provider: provider.name.clone(),
            model: model.clone(),
            host: provider.host.clone(),
            request: Digest::of_json(&digested)?,
            input_tokens,
            max_output_tokens: Tokens::ZERO,
            // Twice, as text may split badly.
            ceiling: self.cost_over(route, &usage, now).map(|cost| cost.saturating_add(cost)),
            clearance: provider.clearance,
            why: "memories are found by their meaning".to_owned(),
        };
        Ok(PlannedEmbedding { call, provider: Arc::clone(provider), texts })
    }

    /// Returns the cost of this usage; `None`: the price is not known.
    pub fn embedding_cost(
        &self,
        planned: &PlannedEmbedding,
        usage: &Usage,
        now: Timestamp,
    ) -> Option<MicroUsd> {
        let route = Route { provider: Arc::clone(&planned.provider), model: planned.call.model.clone() };
        self.cost_over(&route, usage, now)
    }

    /// Makes a planned request, once.
    ///
    /// # Errors
    ///
    /// If the permit is for another action or has expired, or there is no whole answer.
    pub async fn embed(
        &self,
        permit: Permit,
        planned: &PlannedEmbedding,
        cancel: &CancellationToken,
        now: Timestamp,
    ) -> Result<EmbeddingReply, ModelError> {
        let failed = |failure| ModelError {
            provider: planned.call.provider.clone(),
            model: planned.call.model.clone(),
            failure,
            usage: Usage::default(),
            begun: false,
        };
        // A permit for one request must not carry another one.
        if *permit.action() != planned.action() {
            return Err(failed(Failure::OtherPermit));
        }
        let key = match &planned.provider.key {
            None => None,
            Some(reference) => {
                let resolved = self.resolve_credential(reference).await;
                let missing = |cause| failed(Failure::NoCredential { key: reference.clone(), cause });
                Some(resolved.map_err(missing)?)
            }
        };
        let limit = self.request_limit();
        let asking = self
            .egress()
            .perform_permit(permit, now, |lent| ask(lent, planned, (key.as_ref(), self.rates())));
        // Biased: a cancelled request must not use its answer.
        let asked = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(failed(Failure::Cancelled)),
            asked = tokio::time::timeout(limit, asking) => asked,
        };
        let answer = match asked {
            Err(_) => Err(Failure::Timeout { limit }),
            Ok(Err(error)) => Err(Failure::Egress(error)),
            Ok(Ok(answer)) => answer,
        };
        answer.map_err(|mut failure| {
            failure.clean_words(key.as_ref());
            failed(failure)
        })
    }
}

async fn ask(
    lent: LentClient,
    planned: &PlannedEmbedding,
    (key, rates): (Option<&SecretString>, &RateBoard),
) -> Result<EmbeddingReply, Failure> {
    let (provider, model) = (&planned.provider, &planned.call.model);
    let (path, body) = match provider.kind {
        ProviderKind::OpenAi | ProviderKind::OpenRouter | ProviderKind::OpenAiResponses => {
            ("embeddings", json!({ "model": model, "input": planned.texts, "encoding_format": "float" }))
        }
        ProviderKind::Ollama => {
            ("api/embed", json!({ "model": model, "input": planned.texts, "truncate": true }))
        }
        ProviderKind::Anthropic | ProviderKind::Gemini => {
            let why = "this provider's format has no embeddings here; use its OpenAI-compatible address";
            return Err(Failure::Unsent(why.to_owned()));
        }
    };
    let mut request = lent.client.post(format!("{}{path}", provider.base_url)).json(&body);
    if let Some(key) = key {
        request = request.bearer_auth(key.expose_secret());
    }
    let mut answer = request.send().await.map_err(|_| Failure::Dropped)?;
    let status = answer.status().as_u16();
    let arrived = SystemTime::now();
    let wait = stated_wait(answer.headers(), arrived);
    if let Some(stated) = RateHeaders::read_headers(answer.headers(), time_of(arrived)) {
        rates.note_answer(&provider.name, stated);
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(|_| Failure::Cut)? {
        // Bounded while it is read: a server could send without end.
        if u64::try_from(bytes.len().saturating_add(chunk.len())).unwrap_or(u64::MAX) > MAX_ANSWER.get() {
            return Err(Failure::Endless { limit: EndlessLimit::Size(MAX_ANSWER) });
        }
        bytes.extend_from_slice(&chunk);
    }
    let text = String::from_utf8_lossy(&bytes);
    let value: Option<Value> = serde_json::from_str(&text).ok();
    // Some servers answer 200 with an error in the body.
    let says_error =
        value.as_ref().is_some_and(|value| value.get("error").is_some_and(|error| !error.is_null()));
    if status >= 400 || says_error {
        return Err(provider_error(&error_in(&text), status.max(400), wait));
    }
    read_answer(&value.ok_or(Failure::Invalid { what: "it is no JSON" })?)
}

/// Reads an answer of either format.
fn read_answer(answer: &Value) -> Result<EmbeddingReply, Failure> {
    let invalid = |what| Failure::Invalid { what };
    let vectors = if let Some(vectors) = answer.get("embeddings").and_then(Value::as_array) {
        vectors.iter().map(read_vector).collect::<Option<Vec<_>>>()
    } else {
        let data = answer.get("data").and_then(Value::as_array).ok_or(invalid("it has no vectors"))?;
        // Servers that work on several texts at once may answer out of order.
        let mut placed: Vec<(u64, Option<Vec<f32>>)> = Vec::with_capacity(data.len());
        for (place, item) in data.iter().enumerate() {
            let place = u64::try_from(place).unwrap_or(u64::MAX);
            let index = item.get("index").and_then(Value::as_u64).unwrap_or(place);
            placed.push((index, item.get("embedding").and_then(read_vector)));
        }
        placed.sort_by_key(|(index, _)| *index);
        if placed.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(invalid("two vectors have one index"));
        }
        placed.into_iter().map(|(_, vector)| vector).collect()
    };
    let counted = answer.pointer("/usage/prompt_tokens").or_else(|| answer.get("prompt_eval_count"));
    let input = Tokens::new(counted.and_then(Value::as_u64).unwrap_or(0));
    Ok(EmbeddingReply {
        vectors: vectors.ok_or(invalid("a vector is no list of numbers"))?,
        model: answer.get("model").and_then(Value::as_str).unwrap_or_default().chars().take(256).collect(),
        usage: Usage { input, ..Usage::default() },
    })
}

/// Reads the numbers of a vector; `null`, which some servers write for NaN, reads as NaN. Some send base64 of the bytes,
/// though they are asked for numbers.
fn read_vector(value: &Value) -> Option<Vec<f32>> {
    match value {
        Value::Array(numbers) => numbers
            .iter()
            .map(|number| match number {
                Value::Null => Some(f32::NAN),
                // Numbers of a vector lie within one or so: no bit that matters goes.
                #[expect(clippy::cast_possible_truncation, reason = "vectors are of single precision")]
                Value::Number(number) => number.as_f64().map(|number| number as f32),
                Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => None,
            })
            .collect(),
        Value::String(text) => {
            let bytes = base64::engine::general_purpose::STANDARD.decode(text).ok()?;
            let (chunks, rest) = bytes.as_chunks::<4>();
            rest.is_empty().then(|| chunks.iter().map(|four| f32::from_le_bytes(*four)).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_are_read_and_what_is_neither_is_refused() {
        let open_ai = json!({ "object": "list", "model": "m", "usage": { "prompt_tokens": 7, "total_tokens": 7 },
            "data": [{ "index": 1, "embedding": [3.0, 4.0] }, { "index": 0, "embedding": [1, -2.5] }] });
        let read = read_answer(&open_ai).expect("is read");
        assert_eq!(read.vectors, [[1.0, -2.5], [3.0, 4.0]], "by their index");
        assert_eq!((read.model.as_str(), read.usage.input), ("m", Tokens::new(7)));
        let ollama = json!({ "model": "n", "embeddings": [[0.5, 0.25]], "prompt_eval_count": 3 });
        let read = read_answer(&ollama).expect("is read");
        assert_eq!((read.vectors, read.usage.input), (vec![vec![0.5, 0.25]], Tokens::new(3)));
        let bytes: Vec<u8> = [1.5_f32, -2.0].iter().flat_map(|number| number.to_le_bytes()).collect();
        let base64 = base64::engine::general_purpose::STANDARD.encode(bytes);
        let read = read_answer(&json!({ "data": [{ "embedding": base64 }] })).expect("is read");
        assert_eq!(read.vectors, [[1.5, -2.0]]);
        let nan = read_answer(&json!({ "embeddings": [[null, 1.0]] })).expect("is read");
        assert!(nan.vectors[0][0].is_nan(), "which the caller refuses");
        for wrong in [
            json!({}),
            json!({ "data": [{}] }),
            json!({ "data": [{ "embedding": "?" }] }),
            json!({ "embeddings": [["1"]] }),
            json!({ "embeddings": [1] }),
            json!({ "data": [{ "index": 0, "embedding": [1] }, { "index": 0, "embedding": [2] }] }),
        ] {
            assert!(matches!(read_answer(&wrong), Err(Failure::Invalid { .. })), "{wrong}");
        }
    }
}
