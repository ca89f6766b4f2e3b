//! The topics of a session: containers of its messages and memories, of which one is in force.
//!
//! Messages of the time while another topic was in force are not in the context, nor are the memories that were stored then; what
//! belongs to no topic always is. The history itself is as it was.

use serde::{Deserialize, Serialize};
use writ_store::memory::Memory;

/// The key of a session's metadata with its topics.
pub(crate) const TOPICS: &str = "topics";

/// The most changes of a session's topic.
const MAX_SPANS: usize = 1_000;

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
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.spans.iter().map(|span| span.topic.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Returns true if the topic was changed as often as is noted.
    pub(crate) const fn is_full(&self) -> bool {
        self.spans.len() >= MAX_SPANS
    }

    /// Changes to another topic, or to none, behind a row of the history.
    pub(crate) fn change_to(&mut self, topic: Option<String>, last: u64) {
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
            "what is of no topic is always there"
        );
        assert_eq!(topics.names(), ["roses", "taxes"]);
    }
}
