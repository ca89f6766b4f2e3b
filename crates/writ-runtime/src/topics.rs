//! The topics of a session: containers of its messages and memories, of which one is in force.
//!
//! What was said while another topic was in force is not in the context, nor are the memories that were stored then; what
//! belongs to no topic always is. The history itself is as it was.

use serde::{Deserialize, Serialize};
use writ_store::batch::{Batch, Op};
use writ_store::memory::Memory;
use writ_store::reads::SessionReads as _;
use writ_types::api::context::{SessionTopicList, TopicChoice};

use crate::error::EngineError;
use crate::services::Services;
use crate::session::{Session, TOPICS};

/// The most topics of a session: more are no order.
const MAX_TOPICS: usize = 32;

/// The most changes of a session's topic.
const MAX_SPANS: usize = 1_000;

/// The longest name of a topic, in characters.
const MAX_NAME: usize = 64;

/// The beginning of the name by which a memory refers to its topic; no name in a text begins so.
const MARK: char = '#';

/// The topics of a session, and the one in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionTopics {
    /// The topic in force.
    active: Option<String>,
    spans: Vec<TopicSpan>,
}

/// Rows of the history that belong to a topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct TopicSpan {
    topic: String,
    /// The last row before it.
    after: u64,
    /// Its last row; none while the topic is in force.
    upto: Option<u64>,
}

impl SessionTopics {
    /// Returns the topic in force.
    pub(crate) fn active(&self) -> Option<&str> {
        self.active.as_deref()
    }

    /// Returns the places in a history, by its rows, of what belongs to other topics.
    pub(crate) fn hidden_places(&self, rows: &[u64]) -> Vec<usize> {
        let hides = |row: u64| {
            let span = self.spans.iter().rev().find(|span| span.holds(row));
            span.is_some_and(|span| Some(span.topic.as_str()) != self.active())
        };
        rows.iter().enumerate().filter(|(_, row)| hides(**row)).map(|(place, _)| place).collect()
    }

    /// Returns true if a memory is of no topic, or of the one in force.
    pub(crate) fn shows_memory(&self, memory: &Memory) -> bool {
        let mut topics = memory.traits.entities.iter().filter_map(|name| name.strip_prefix(MARK)).peekable();
        topics.peek().is_none() || topics.any(|topic| Some(topic) == self.active())
    }

    /// Returns the name by which a new memory refers to the topic in force.
    pub(crate) fn reference(&self) -> Option<String> {
        self.active().map(|topic| format!("{MARK}{topic}"))
    }

    /// Returns the names of all topics.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.spans.iter().map(|span| span.topic.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Changes to another topic, or to none, behind a row of the history.
    fn change_to(&mut self, topic: Option<String>, last: u64) {
        if let Some(span) = self.spans.last_mut().filter(|span| span.upto.is_none()) {
            span.upto = Some(last);
        }
        if let Some(topic) = &topic {
            self.spans.push(TopicSpan { topic: topic.clone(), after: last, upto: None });
        }
        self.active = topic;
    }
}

impl TopicSpan {
    fn holds(&self, row: u64) -> bool {
        row > self.after && self.upto.is_none_or(|upto| row <= upto)
    }
}

/// Shows the topics of a session, or changes to one.
///
/// # Errors
///
/// If there is no such session, or the name is none.
pub(crate) async fn choose_topic(
    services: &Services,
    choice: TopicChoice,
) -> Result<SessionTopicList, EngineError> {
    let session = services.sessions.get(choice.session).await?;
    let wanted = choice.topic.map(|name| read_name(&name)).transpose()?;
    let mut topics = session.state().context.topics.clone();
    let changes = (wanted.is_some() || choice.leave) && topics.active != wanted;
    if wanted.is_some() && choice.leave {
        return Err(wrong("a topic is named and left at once"));
    }
    if changes {
        let names = topics.names();
        if wanted.as_ref().is_some_and(|name| names.len() >= MAX_TOPICS && !names.contains(name)) {
            return Err(wrong("a session has at most 32 topics"));
        }
        if topics.spans.len() >= MAX_SPANS {
            return Err(wrong("the topic of this session was changed too often; begin a new one"));
        }
        let last = services.journal.store.recent_after(session.id, 0, 1).await?.last().map_or(0, |row| row.n);
        topics.change_to(wanted, last);
        set_topics(services, &session, topics.clone()).await?;
    }
    Ok(SessionTopicList { session: session.id, topics: topics.names(), topic: topics.active })
}

async fn set_topics(
    services: &Services,
    session: &Session,
    topics: SessionTopics,
) -> Result<(), EngineError> {
    let value = serde_json::to_value(&topics).map_err(|error| EngineError::Machine(error.to_string()))?;
    let op = Op::SetSessionMetadata { session: session.id, key: TOPICS.to_owned(), value: Some(value) };
    services.journal.store.commit(Batch::synced(vec![op])).await?;
    session.state().context.topics = topics;
    Ok(())
}

/// Reads the name of a topic: letters and digits, `-`, `_` and spaces, in small letters.
fn read_name(name: &str) -> Result<String, EngineError> {
    let name = name.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    let is_plain = name.chars().all(|letter| letter.is_alphanumeric() || matches!(letter, '-' | '_' | ' '));
    if name.is_empty() || !is_plain || name.chars().count() > MAX_NAME {
        return Err(wrong("the name of a topic has 1 to 64 letters, digits, spaces, - or _"));
    }
    Ok(name)
}

fn wrong(why: &str) -> EngineError {
    EngineError::Params { method: "context.topic".to_owned(), why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_belong_to_the_topic_that_was_in_force() {
        let rows = [1, 2, 5, 8, 9, 12];
        let mut topics = SessionTopics::default();
        assert_eq!(topics.hidden_places(&rows), Vec::<usize>::new());
        topics.change_to(Some("roses".to_owned()), 2);
        topics.change_to(Some("taxes".to_owned()), 8);
        assert_eq!(topics.hidden_places(&rows), [2, 3]);
        topics.change_to(Some("roses".to_owned()), 9);
        assert_eq!(topics.hidden_places(&rows), [4]);
        topics.change_to(None, 12);
        assert_eq!(topics.hidden_places(&rows), [2, 3, 4, 5]);
        assert_eq!(
            topics.hidden_places(&[13, 20]),
            Vec::<usize>::new(),
            "what is said of no topic is always there"
        );
        assert_eq!(topics.names(), ["roses", "taxes"]);
    }

    #[test]
    fn names_are_plain() {
        assert_eq!(read_name("  My  Garden ").expect("a name"), "my garden");
        for name in ["", "  ", "#roses", "a\u{200b}b", "a\"b", &"x".repeat(65)] {
            assert!(read_name(name).is_err(), "{name:?}");
        }
    }
}
