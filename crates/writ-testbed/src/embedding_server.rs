//! A scripted embedding server with the wire formats of OpenAI and Ollama on a loopback port.
//!
//! Its vectors are of bags of words: texts with the same words, or with words that `ALIKE` names, lie close together.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// The most requests in the record.
const MAX_RECORDED: usize = 10_000;

/// The answer to a text.
#[derive(Clone, Debug, PartialEq)]
pub enum TextAnswer {
    /// Its vector of this dimension.
    Vector(usize),
    /// A vector of which one number is `null`, as servers write NaN.
    NotANumber(usize),
    /// A status for the whole request, with the provider's words.
    Status(u16, String),
    /// Too many requests, with the seconds of `Retry-After`.
    Wait(u64),
}

/// Decides the answer to a text.
pub type TextScript = Box<dyn FnMut(&str) -> TextAnswer + Send>;

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct EmbeddingServer {
    address: SocketAddr,
    shared: Arc<EmbeddingState>,
    running: JoinHandle<()>,
}

struct EmbeddingState {
    script: Mutex<TextScript>,
    requests: Mutex<Vec<Vec<String>>>,
    /// The body of the last request.
    last: Mutex<Value>,
    /// The most texts of one request.
    max_texts: AtomicUsize,
    /// Requests wait for a place while the server is held.
    gate: Semaphore,
}

impl std::fmt::Debug for EmbeddingState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddingState").field("requests", &self.requests).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl EmbeddingServer {
    /// Starts a server on a free loopback port.
    ///
    /// # Errors
    ///
    /// If no port can be bound.
    pub async fn start(script: impl FnMut(&str) -> TextAnswer + Send + 'static) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(EmbeddingState {
            script: Mutex::new(Box::new(script)),
            requests: Mutex::default(),
            last: Mutex::default(),
            max_texts: AtomicUsize::new(usize::MAX),
            gate: Semaphore::new(1),
        });
        let router = Router::new()
            .route("/v1/embeddings", post(embed))
            .route("/api/embed", post(embed_plain))
            .with_state(Arc::clone(&shared));
        let running = tokio::spawn(async move {
            if axum::serve(listener, router).await.is_err() {
                // The listener is closed; clients notice that themselves.
            }
        });
        Ok(Self { address, shared, running })
    }

    /// Returns the address for the configuration of a provider.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1/", self.address)
    }

    /// Returns the address for the configuration of a provider that speaks Ollama's own form.
    pub fn plain_url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Returns the body of the last request.
    pub fn last_body(&self) -> Value {
        lock(&self.shared.last).clone()
    }

    /// Sets the script from now on.
    pub fn set_script(&self, script: impl FnMut(&str) -> TextAnswer + Send + 'static) {
        *lock(&self.shared.script) = Box::new(script);
    }

    /// Refuses requests with more texts from now on, as many servers do.
    pub fn limit_texts(&self, most: usize) {
        self.shared.max_texts.store(most, Ordering::SeqCst);
    }

    /// Lists the texts of each request so far.
    pub fn requests(&self) -> Vec<Vec<String>> {
        lock(&self.shared.requests).clone()
    }

    /// Answers nothing from now on, until [`Self::go_on`].
    pub fn hold(&self) {
        self.shared.gate.forget_permits(1);
    }

    /// Answers again, also what has waited.
    pub fn go_on(&self) {
        self.shared.gate.add_permits(1);
    }
}

impl Drop for EmbeddingServer {
    fn drop(&mut self) {
        self.running.abort();
    }
}

async fn embed(State(shared): State<Arc<EmbeddingState>>, Json(request): Json<Value>) -> Response {
    let (vectors, tokens) = match answer_texts(&shared, &request).await {
        Ok(answered) => answered,
        Err(refusal) => return refusal,
    };
    let usage = json!({ "prompt_tokens": tokens, "total_tokens": tokens });
    let rows = vectors.into_iter().enumerate();
    let data: Vec<Value> = rows
        .map(|(index, embedding)| json!({ "object": "embedding", "index": index, "embedding": embedding }))
        .collect();
    let answer = json!({ "object": "list", "model": request.get("model"), "data": data, "usage": usage });
    Json(answer).into_response()
}

/// The same in Ollama's own form.
async fn embed_plain(State(shared): State<Arc<EmbeddingState>>, Json(request): Json<Value>) -> Response {
    match answer_texts(&shared, &request).await {
        Ok((vectors, tokens)) => {
            Json(json!({ "model": request.get("model"), "embeddings": vectors, "prompt_eval_count": tokens }))
                .into_response()
        }
        Err(refusal) => refusal,
    }
}

/// Returns the vectors of a request's texts and their tokens, or what is answered instead.
async fn answer_texts(shared: &EmbeddingState, request: &Value) -> Result<(Vec<Value>, usize), Response> {
    lock(&shared.last).clone_from(request);
    let input = request.get("input").and_then(Value::as_array).cloned().unwrap_or_default();
    let texts: Vec<String> = input.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    {
        let mut requests = lock(&shared.requests);
        if requests.len() < MAX_RECORDED {
            requests.push(texts.clone());
        }
    }
    let _place = shared.gate.acquire().await;
    if texts.len() > shared.max_texts.load(Ordering::SeqCst) {
        let error = json!({ "error": { "message": "batch size is invalid", "type": "InvalidParameter" } });
        return Err((StatusCode::BAD_REQUEST, Json(error)).into_response());
    }
    let mut data = Vec::new();
    for text in &texts {
        let answer = (lock(&shared.script))(text);
        let embedding = match answer {
            TextAnswer::Vector(dimension) => json!(vector_of(text, dimension)),
            TextAnswer::NotANumber(dimension) => {
                let mut numbers = json!(vector_of(text, dimension));
                if let Some(first) = numbers.get_mut(0) {
                    *first = Value::Null;
                }
                numbers
            }
            TextAnswer::Status(status, message) => {
                let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                return Err((status, Json(json!({ "error": { "message": message } }))).into_response());
            }
            TextAnswer::Wait(seconds) => {
                let error = json!({ "error": { "message": "slow down", "type": "requests" } });
                let wait = [(header::RETRY_AFTER, seconds.to_string())];
                return Err((StatusCode::TOO_MANY_REQUESTS, wait, Json(error)).into_response());
            }
        };
        data.push(embedding);
    }
    let tokens: usize = texts.iter().map(|text| text.split_whitespace().count()).sum();
    Ok((data, tokens))
}

/// Words that mean the same to this model.
const ALIKE: [(&str, &str); 3] = [("kitten", "cat"), ("feline", "cat"), ("automobile", "car")];

/// Returns the vector of a text: each word adds one in a place of its own.
fn vector_of(text: &str, dimension: usize) -> Vec<f32> {
    // A little everywhere, so that a text without words has a vector too.
    let mut numbers = vec![0.01; dimension.max(1)];
    for word in text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty()) {
        let word = word.to_lowercase();
        let word = ALIKE.iter().find(|(known, _)| *known == word).map_or(word.as_str(), |(_, plain)| plain);
        // The hash of Fowler, Noll and Vo, FNV-1a.
        let hash = word.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let place = usize::try_from(hash % u64::try_from(numbers.len()).unwrap_or(1)).unwrap_or(0);
        if let Some(number) = numbers.get_mut(place) {
            *number += 1.0;
        }
    }
    numbers
}
