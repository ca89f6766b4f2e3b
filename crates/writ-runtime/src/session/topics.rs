//! The topics of a session: named groups of its messages and memories. At most one topic is active at a time.
//!
//! The context contains the messages and memories of the active topic and those that belong to no topic; those of other topics
//! are left out. The stored history does not change.

use serde::{Deserialize, Serialize};
use writ_store::memory::Memory;

/// The key in a session's metadata under which its topics are stored.
pub(crate) const TOPICS: &str = "topics";

/// The most times that a session's topic can be changed.
const MAX_SPANS: usize = 1_000;

/// The first character of the entity that links a memory to its topic; entities found in a text never begin with it.
const MARK: char = '#';

/// The topics of a session, and the active one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionTopics {
    /// The active topic; none if the session's messages belong to no topic.
    active: Option<String>,
    spans: Vec<TopicSpan>,
}

/// A range of rows of the history that belong to one topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct TopicSpan {
    topic: String,
    /// The last row before the range.
    after: u64,
    /// The last row of the range; none while the topic is active.
    upto: Option<u64>,
}

impl SessionTopics {
    /// Returns the active topic.
    pub(crate) fn active(&self) -> Option<&str> {
        self.active.as_deref()
    }

    /// Returns the indexes in `rows` of the rows that belong to other topics than the active one.
    pub(crate) fn hidden_places(&self, rows: &[u64]) -> Vec<usize> {
        let hides = |row: u64| {
            let span = self.spans.iter().rev().find(|span| span.holds(row));
            span.is_some_and(|span| Some(span.topic.as_str()) != self.active())
        };
        rows.iter().enumerate().filter(|(_, row)| hides(**row)).map(|(place, _)| place).collect()
    }

    /// Returns true if a memory belongs to no topic, or to the active one.
    pub(crate) fn shows_memory(&self, memory: &Memory) -> bool {
        let mut topics = memory.traits.entities.iter().filter_map(|name| name.strip_prefix(MARK)).peekable();
        topics.peek().is_none() || topics.any(|topic| Some(topic) == self.active())
    }

    /// Returns the entity that links a new memory to the active topic.
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

    /// Returns true if the topic cannot be changed any more, because there are too many ranges.
    pub(crate) const fn is_full(&self) -> bool {
        self.spans.len() >= MAX_SPANS
    }

    /// Makes another topic, or none, the active one for all rows after `last`.
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
    fn rows_belong_to_the_topic_that_was_active() {
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
        assert_eq!(topics.hidden_places(&[13, 20]), Vec::<usize>::new(), "rows of no topic are never hidden");
        assert_eq!(topics.names(), ["roses", "taxes"]);
    }
}
