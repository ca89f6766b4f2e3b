//! Groups messages that belong together.

use std::collections::BTreeSet;
use std::sync::Arc;

use writ_types::chat::{ChatMessage, Part, Role};

/// Messages that leave the context together.
pub(super) struct MessageGroup {
    /// The place of the first of them in the conversation.
    pub(super) place: usize,
    /// The place of the last of them.
    pub(super) last: usize,
    pub(super) messages: Vec<Arc<ChatMessage>>,
}

/// Splits a conversation into groups that leave the context together: an
/// assistant's message with its calls and the results that follow it, or any
/// other message alone.
///
/// A call without a result and a result without a call are left out, because
/// no provider accepts them; they appear where a conversation was cut by a
/// crash or by the limit on its length.
pub(super) fn group_messages(
    messages: impl IntoIterator<Item = (usize, Arc<ChatMessage>)>,
) -> Vec<MessageGroup> {
    let mut groups: Vec<MessageGroup> = Vec::new();
    for (place, message) in messages {
        match (message.role, groups.last_mut()) {
            (Role::Tool, Some(group)) if group.messages.iter().any(|message| has_calls(message)) => {
                group.messages.push(message);
                group.last = place;
            }
            (Role::System | Role::User | Role::Assistant | Role::Tool, _) => {
                groups.push(MessageGroup { place, last: place, messages: vec![message] });
            }
        }
    }
    for group in &mut groups {
        keep_pairs(&mut group.messages);
    }
    groups.retain(|group| !group.messages.is_empty());
    groups
}

impl MessageGroup {
    /// Returns true if one of these places of the conversation lies in the group.
    pub(super) fn has_place(&self, places: &[usize]) -> bool {
        places.iter().any(|place| (self.place..=self.last).contains(place))
    }
}

fn has_calls(message: &ChatMessage) -> bool {
    message.parts.iter().any(|part| matches!(part, Part::Call(_)))
}

fn keep_pairs(group: &mut Vec<Arc<ChatMessage>>) {
    let mut called = BTreeSet::new();
    let mut answered = BTreeSet::new();
    for part in group.iter().flat_map(|message| &message.parts) {
        match part {
            Part::Text { .. } | Part::Reasoning(_) | Part::File(_) => {}
            Part::Call(call) => {
                called.insert(call.id.clone());
            }
            Part::Result(result) => {
                answered.insert(result.call_id.clone());
            }
        }
    }
    if called != answered {
        for message in group.iter_mut() {
            Arc::make_mut(message).parts.retain(|part| match part {
                Part::Text { .. } | Part::File(_) => true,
                Part::Call(call) => answered.contains(&call.id),
                Part::Result(result) => called.contains(&result.call_id),
                // It belongs to calls, some of which were evicted.
                Part::Reasoning(_) => false,
            });
        }
    }
    group.retain(|message| !message.parts.is_empty());
}
