//! Searches the memory: by words always, by meaning where there are vectors and their model answers in time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use writ_memory::config::EmbedderKind;
use writ_memory::embedder::{EmbedError, Embedding, bounded_text, check_answer};
use writ_memory::search::{BeyondWindow, MemorySearch, RankedMemory, search_memories};
use writ_memory::window::find_window;
use writ_models::provider::Route;
use writ_store::memory::Secrets;
use writ_store::store::Store;
use writ_types::id::SessionId;
use writ_types::taint::{Clearance, Label, Taint};

use crate::error::EngineError;
use crate::model;
use crate::services::Services;

/// The longest time that a search waits for the meaning of its text: then it is made by words alone.
const QUERY_WAIT: Duration = Duration::from_secs(2);

/// A text to search memories for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryQuestionText<'a> {
    /// The text.
    pub(crate) text: &'a str,
    /// True if it rests on what is secret.
    pub(crate) secret: bool,
    /// The session of which the own memories are found too.
    pub(crate) session: Option<SessionId>,
    /// The treatment of secret memories.
    pub(crate) secrets: Secrets,
    /// The treatment of memories of another time than the text names.
    pub(crate) beyond: BeyondWindow,
    /// The most hits.
    pub(crate) limit: usize,
}

/// The result of a search.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecallResult {
    /// The hits, best first.
    pub(crate) hits: Vec<RankedMemory>,
    /// Limits of the search, for people.
    pub(crate) note: Option<String>,
}

/// Searches the memories.
///
/// # Errors
///
/// If the store cannot be used. An embedder that does not answer is none: the note says so.
pub(crate) async fn find_memories(
    services: &Arc<Services>,
    question: MemoryQuestionText<'_>,
) -> Result<RecallResult, EngineError> {
    let now = services.journal.clock.now();
    let found = find_window(question.text, &services.config.time_zone, now);
    let (window, rest) = found.map_or((None, None), |(window, rest)| (Some(window), Some(rest)));
    let text = rest.as_deref().unwrap_or(question.text);
    let mut notes = Vec::new();
    let mut meaning = None;
    if let Some((space, index)) = services.memories.serving().await?
        && !index.read().is_empty()
        && !text.trim().is_empty()
    {
        match embed_query(services, &space.model, text, question.secret).await? {
            Ok(embedding) if u32::try_from(embedding.dimension()) != Ok(space.dimension) => {
                // The job that gives vectors to memories makes new ones.
                let dimension = u32::try_from(embedding.dimension()).unwrap_or(u32::MAX);
                services.memories.note_dimension(&space.model, dimension);
                services.memories.added.fetch_add(1, Ordering::Release);
                notes.push(
                    "searched by words alone: the model's vectors have another dimension now".to_owned(),
                );
            }
            Ok(embedding) => meaning = Some((index, embedding)),
            Err(error) => {
                tracing::debug!(%error, "memories are searched by words alone");
                notes.push(format!("searched by words alone: {error}"));
            }
        }
    }
    let search = MemorySearch {
        text,
        meaning: meaning.as_ref().map(|(index, embedding)| (index, embedding)),
        window: window.as_ref(),
        beyond: question.beyond,
        session: question.session,
        secrets: question.secrets,
        limit: question.limit,
        now,
    };
    let hits = search_memories(&services.journal.store, &search).await?;
    if let Some(window) = window.filter(|_| question.beyond == BeyondWindow::LeftOut) {
        notes.push(format!(
            "only memories of {} were looked for ({} to {})",
            window.words, window.start, window.end
        ));
    } else if let Some(reason) = Store::explain_search(text)
        && meaning.is_none()
    {
        notes.push(reason.to_string());
    }
    services.life.metrics.memory("search");
    Ok(RecallResult { hits, note: (!notes.is_empty()).then(|| notes.join("; ")) })
}

/// Returns the vector of a query by the model of a space, if that model answers in time.
async fn embed_query(
    services: &Arc<Services>,
    model: &str,
    text: &str,
    secret: bool,
) -> Result<Result<Embedding, EmbedError>, EngineError> {
    let now = services.journal.clock.now();
    if let Some(why) = services.memories.why_away(now) {
        return Ok(Err(EmbedError::Away(why)));
    }
    let texts = vec![bounded_text(text).to_owned()];
    let label = Label { secret, ..Label::new(Taint::Owner) };
    // A task of its own: the wait ends, and the call goes on to its end, so that it is counted and its reservation is
    // released.
    let (asking, name) = (Arc::clone(services), model.to_owned());
    let call = services.life.turns.spawn(async move { embed_with(&asking, &name, texts, label).await });
    let answer = match tokio::time::timeout(QUERY_WAIT, call).await {
        Ok(Ok(answer)) => answer?,
        Ok(Err(_)) => Err(EmbedError::Refused("the call has ended by a bug".to_owned())),
        Err(_) => Err(EmbedError::Away(format!("nothing came for {QUERY_WAIT:?}"))),
    };
    let checked = answer.and_then(|vectors| check_answer(1, vectors));
    // A text that is not accepted says nothing about the next one, nor does a vector that is none.
    match &checked {
        Ok(_) => services.memories.note_embedder(None, services.journal.clock.now()),
        Err(error @ EmbedError::Away(_)) => {
            services.memories.note_embedder(Some(&error.to_string()), services.journal.clock.now());
        }
        Err(
            EmbedError::Refused(_)
            | EmbedError::Count { .. }
            | EmbedError::Dimension(_)
            | EmbedError::NotFinite,
        ) => {}
    }
    Ok(checked.and_then(|mut vectors| vectors.pop().ok_or(EmbedError::Count { sent: 1, found: 0 })))
}

/// Asks the model of this name for vectors.
///
/// # Errors
///
/// If the store cannot be used. The inner error says why there are none.
pub(crate) async fn embed_with(
    services: &Arc<Services>,
    name: &str,
    texts: Vec<String>,
    label: Label,
) -> Result<Result<Vec<Vec<f32>>, EmbedError>, EngineError> {
    if let Some(local) = services.memories.settings.local.as_ref().filter(|local| local.model() == name) {
        return Ok(local.embed(texts).await);
    }
    let route = services.outside.models.get().and_then(|models| models.routes().find(name).ok());
    let Some(route) = route.filter(|_| !name.starts_with("local/")) else {
        return Ok(Err(EmbedError::Away(format!("the model {name} is no longer here"))));
    };
    let cancel = services.life.stop_now.child_token();
    model::embed_texts(services, &route, (texts, label), &cancel).await
}

/// The configured embedder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfiguredEmbedder {
    /// The name of its model.
    pub(crate) name: String,
    /// The most sensitive content that it may be sent.
    pub(crate) clearance: Clearance,
}

/// Returns the embedder of the configuration; `None`: there is none.
pub(crate) fn configured_embedder(services: &Services) -> Option<ConfiguredEmbedder> {
    let settings = &services.memories.settings;
    match settings.config.embedder {
        EmbedderKind::None => None,
        EmbedderKind::Local => settings
            .local
            .as_ref()
            .map(|local| ConfiguredEmbedder { name: local.model(), clearance: local.clearance() }),
        EmbedderKind::Model => {
            let Route { provider, model } = services.outside.models.get()?.embedding_route()?;
            let name = format!("{}/{model}", provider.name);
            Some(ConfiguredEmbedder { name, clearance: provider.clearance })
        }
    }
}
