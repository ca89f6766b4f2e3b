//! The topics of a session, for its owner.

use writ_store::batch::{Batch, Op};
use writ_store::reads::SessionReads as _;
use writ_types::api::context::{SessionTopicList, TopicChoice};

use crate::error::EngineError;
use crate::services::Services;
use crate::session::Session;
use crate::session::topics::{SessionTopics, TOPICS};

/// The most topics of a session: more are no order.
const MAX_TOPICS: usize = 32;

/// The longest name of a topic, in characters.
const MAX_NAME: usize = 64;

/// Shows the topics of a session, or changes to one.
///
/// # Errors
///
/// If there is no such session, or the name is none.
pub(super) async fn choose_topic(
    services: &Services,
    choice: TopicChoice,
) -> Result<SessionTopicList, EngineError> {
    let session = services.sessions.get(choice.session).await?;
    let wanted = choice.topic.map(|name| read_name(&name)).transpose()?;
    let mut topics = session.state().context.topics.clone();
    let changes = (wanted.is_some() || choice.leave) && topics.active() != wanted.as_deref();
    if wanted.is_some() && choice.leave {
        return Err(wrong("a topic is named and left at once"));
    }
    if changes {
        let names = topics.names();
        if wanted.as_ref().is_some_and(|name| names.len() >= MAX_TOPICS && !names.contains(name)) {
            return Err(wrong("a session has at most 32 topics"));
        }
        if topics.is_full() {
            return Err(wrong("the topic of this session was changed too often; begin a new one"));
        }
        let last = services.journal.store.recent_after(session.id, 0, 1).await?.last().map_or(0, |row| row.n);
        topics.change_to(wanted, last);
        set_topics(services, &session, topics.clone()).await?;
    }
    let topic = topics.active().map(str::to_owned);
    Ok(SessionTopicList { session: session.id, topics: topics.names(), topic })
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
    fn names_are_plain() {
        assert_eq!(read_name("  My  Garden ").expect("a name"), "my garden");
        for name in ["", "  ", "#roses", "a\u{200b}b", "a\"b", &"x".repeat(65)] {
            assert!(read_name(name).is_err(), "{name:?}");
        }
    }
}
