//! The outbox: messages to the owner from sessions that no client watches, and the channels that deliver them.
//!
//! A message is appended in the commit that stores its cause. Each channel has a job (`deliveries`) and a cursor: a
//! message is delivered at least once, in order, also after a crash. Without a channel nothing is appended.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use writ_store::batch::Op;
use writ_store::jobs::JobOp;
use writ_store::outbox::{NewOutboxMessage, OutboxOp};
use writ_types::error::{Exit, Report};
use writ_types::frame::ServerFrame;
use writ_types::id::{AskId, EntrySeq, SessionId, TurnId};
use writ_types::recipient::Recipient;
use writ_types::taint::Taint;
use writ_types::unit::Timestamp;

use crate::clock::format_schedule;
use crate::error::DirectoryError;

/// The most channels of one engine.
pub const MAX_CHANNELS: usize = 16;
/// The longest name of a channel, in bytes.
pub const MAX_CHANNEL_NAME_BYTES: usize = 64;
/// The longest text of a message, in characters: even with all of them escaped in JSON it fits into the outbox. The whole
/// text is in the session.
pub const MAX_MESSAGE_CHARS: usize = 8_000;

/// The interval of deliveries to a channel. A new message brings the next one forward; a channel that is down is tried again
/// after it.
pub(crate) const DELIVER_EVERY: Duration = Duration::from_secs(30);

/// A way to the owner outside sessions.
pub trait Channel: Send + Sync + std::fmt::Debug {
    /// The name under which the store holds its cursor: lower-case letters, digits and `-`. Another name is another
    /// channel, to which everything in the outbox is delivered again.
    fn name(&self) -> &str;

    /// Delivers a message. It may have been delivered before, with the same number.
    fn deliver<'a>(&'a self, delivery: &'a Delivery) -> ChannelFuture<'a>;

    /// Reports that so many messages were deleted before this channel could deliver them.
    fn report_missed(&self, count: u64) -> ChannelFuture<'_>;
}

/// The future of a delivery.
pub type ChannelFuture<'a> = Pin<Box<dyn Future<Output = Result<(), DeliveryError>> + Send + 'a>>;

/// The reason that a message was not delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryError {
    /// The channel cannot be reached: this message and those after it are tried again later.
    NotNow(Report),
    /// The channel never takes this message: it is skipped, so that it does not hold up the others.
    Refused(Report),
}

/// A message on its way to the owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Its number, the same each time that it is delivered.
    pub number: u64,
    /// The session that it comes from.
    pub session: Option<SessionId>,
    /// The time at which it was written.
    pub at: Timestamp,
    /// Its content.
    pub message: OwnerMessage,
}

/// A message to the owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum OwnerMessage {
    /// A question waits for an answer.
    ApprovalRequest {
        /// The question.
        ask: AskId,
        /// The purpose of the action, in one line.
        intent: String,
        /// The end of the question.
        expires_at: Timestamp,
    },
    /// The agent wrote to its person in the middle of its work.
    Said {
        /// The turn.
        turn: TurnId,
        /// The text, cut to [`MAX_MESSAGE_CHARS`].
        text: String,
        /// The trust in the text.
        taint: Taint,
    },
    /// A turn has ended.
    TurnEnded {
        /// The turn.
        turn: TurnId,
        /// The exit code of the turn.
        exit: Exit,
        /// The answer, cut to [`MAX_MESSAGE_CHARS`].
        text: String,
        /// The trust in the text.
        taint: Taint,
    },
    /// The agent has sent a file, which waits in the session.
    File {
        /// The turn.
        turn: TurnId,
        /// The number under which the file is fetched.
        file: EntrySeq,
        /// The name of the file.
        name: String,
    },
    /// A job of the engine reports.
    Report {
        /// The subject.
        title: String,
        /// The report, cut to [`MAX_MESSAGE_CHARS`].
        text: String,
        /// The trust in the text.
        taint: Taint,
    },
}

impl OwnerMessage {
    /// The kind, as the store holds it.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::ApprovalRequest { .. } => "approval_request",
            Self::Said { .. } => "said",
            Self::TurnEnded { .. } => "turn_ended",
            Self::File { .. } => "file",
            Self::Report { .. } => "report",
        }
    }
}

/// The channels of an engine, and what makes the messages for them.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    channels: Vec<Arc<dyn Channel>>,
    /// Wakes the task that runs jobs: a message was appended.
    pub(crate) wake_jobs: Arc<Notify>,
    /// Counts the commits that appended messages.
    pub(crate) appended: Arc<AtomicU64>,
}

impl Outbox {
    /// Makes the outbox of these channels.
    ///
    /// # Errors
    ///
    /// If there are too many, or one needs another name.
    pub(crate) fn new(channels: Vec<Arc<dyn Channel>>) -> Result<Self, DirectoryError> {
        if channels.len() > MAX_CHANNELS {
            return Err(DirectoryError::Channels(format!("{MAX_CHANNELS} channels at most")));
        }
        let mut taken = BTreeSet::new();
        for channel in &channels {
            let name = channel.name();
            let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            let fits = (1..=MAX_CHANNEL_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_plain);
            if !fits || !taken.insert(name.to_owned()) {
                return Err(DirectoryError::Channels(format!(
                    "the channel '{}' needs another name",
                    name.escape_debug()
                )));
            }
        }
        Ok(Self { channels, wake_jobs: Arc::default(), appended: Arc::default() })
    }

    /// Returns the channels.
    pub(crate) fn channels(&self) -> &[Arc<dyn Channel>] {
        &self.channels
    }

    /// Has the new messages delivered, once they are committed.
    pub(crate) fn call_for_delivery(&self) {
        self.appended.fetch_add(1, Ordering::AcqRel);
        self.wake_jobs.notify_one();
    }

    /// Returns the operations that append what others, which are to be committed with them, tell the owner, and that bring
    /// its delivery forward.
    pub(crate) fn appends_for(&self, ops: &[Op], now: Timestamp) -> Vec<Op> {
        if self.channels.is_empty() {
            return Vec::new();
        }
        self.append_messages(ops.iter().filter_map(message_of), now)
    }

    /// Returns the operations that append a report of the engine, of no session; none where there is no channel.
    pub(crate) fn append_report(&self, (title, text, taint): (&str, &str, Taint), now: Timestamp) -> Vec<Op> {
        if self.channels.is_empty() {
            return Vec::new();
        }
        let report = OwnerMessage::Report { title: title.to_owned(), text: cut_text(text), taint };
        self.append_messages([(None, report)], now)
    }

    fn append_messages(
        &self,
        messages: impl IntoIterator<Item = (Option<SessionId>, OwnerMessage)>,
        now: Timestamp,
    ) -> Vec<Op> {
        let append = |(session, message): (Option<SessionId>, OwnerMessage)| {
            let (recipient, kind) = (Recipient::Owner.to_string(), message.kind().to_owned());
            let body = serde_json::to_value(&message).ok()?;
            let message = NewOutboxMessage { recipient, session, at: now, kind, body };
            Some(Op::Outbox(OutboxOp::Append(Box::new(message))))
        };
        let mut appends: Vec<Op> = messages.into_iter().filter_map(append).collect();
        if !appends.is_empty() {
            let jobs = self.channels.iter().map(|channel| JobOp::Schedule {
                name: delivery_job(channel.name()),
                // The same text as that of the chore: a message changes no schedule.
                schedule: format_schedule(DELIVER_EVERY),
                next_run: Some(now),
            });
            appends.extend(jobs.map(Op::Jobs));
        }
        appends
    }
}

/// Returns the name of the job that delivers to a channel.
pub(crate) fn delivery_job(channel: &str) -> String {
    format!("outbox.deliver.{channel}")
}

/// Returns the message to the owner that an operation stores, if it stores one.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "of the many operations and frames, a few are for the owner"
)]
fn message_of(op: &Op) -> Option<(Option<SessionId>, OwnerMessage)> {
    let (session, frame) = match op {
        Op::OpenAsk(ask) => {
            let card = &ask.card;
            let (intent, expires_at) = (cut_text(&card.intent), card.expires_at);
            let message = OwnerMessage::ApprovalRequest { ask: card.ask_id.clone(), intent, expires_at };
            return Some((card.session, message));
        }
        Op::Frame { session, frame } | Op::Reply { session, frame, .. } => (*session, frame.as_ref()),
        _ => return None,
    };
    let message = match frame {
        ServerFrame::Message { turn, text, taint, exit, last: true, .. } => {
            OwnerMessage::TurnEnded { turn: *turn, exit: *exit, text: cut_text(text), taint: *taint }
        }
        ServerFrame::Message { turn, text, taint, .. } => {
            OwnerMessage::Said { turn: *turn, text: cut_text(text), taint: *taint }
        }
        ServerFrame::File { turn, file, name, .. } => {
            OwnerMessage::File { turn: *turn, file: *file, name: cut_text(name) }
        }
        _ => return None,
    };
    Some((Some(session), message))
}

fn cut_text(text: &str) -> String {
    text.chars().take(MAX_MESSAGE_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use writ_types::id::SessionId;

    use super::*;

    #[derive(Debug)]
    struct Named(&'static str);

    impl Channel for Named {
        fn name(&self) -> &str {
            self.0
        }

        fn deliver<'a>(&'a self, _: &'a Delivery) -> ChannelFuture<'a> {
            Box::pin(std::future::ready(Ok(())))
        }

        fn report_missed(&self, _: u64) -> ChannelFuture<'_> {
            Box::pin(std::future::ready(Ok(())))
        }
    }

    fn outbox(names: &[&'static str]) -> Result<Outbox, DirectoryError> {
        Outbox::new(names.iter().map(|name| Arc::new(Named(name)) as Arc<dyn Channel>).collect())
    }

    #[test]
    fn channels_have_plain_names_of_their_own() {
        assert!(outbox(&[]).is_ok() && outbox(&["mail", "chat-2"]).is_ok());
        for wrong in [&["mail", "mail"][..], &[""], &["Mail"], &["a b"], &["a.b"], &["a"; MAX_CHANNELS + 1]] {
            assert!(matches!(outbox(wrong), Err(DirectoryError::Channels(_))), "{wrong:?}");
        }
    }

    #[test]
    fn frames_for_the_owner_are_appended_where_there_is_a_channel_and_all_others_are_not() {
        let at = Timestamp::from_millis(1_000);
        let (session, turn) = (SessionId::from_parts(at, 1), TurnId::from_parts(at, 2));
        let frame = |frame| Op::Frame { session, frame: Box::new(frame) };
        let text = "\u{1}".repeat(MAX_MESSAGE_CHARS + 1);
        let ops = [
            frame(ServerFrame::Delta { turn, text: "a".to_owned() }),
            frame(ServerFrame::Message {
                turn,
                text,
                taint: Taint::External,
                entries: (EntrySeq(1), EntrySeq(2)),
                last: true,
                exit: Exit::Done,
                answers: Vec::new(),
            }),
        ];
        assert_eq!(outbox(&[]).expect("none").appends_for(&ops, at), []);
        let outbox = outbox(&["mail", "chat"]).expect("two");
        assert_eq!(outbox.appends_for(&ops[..1], at), []);
        let appends = outbox.appends_for(&ops, at);
        let [Op::Outbox(OutboxOp::Append(message)), Op::Jobs(mail), Op::Jobs(_)] = &appends[..] else {
            panic!("{appends:?}")
        };
        assert_eq!((message.recipient.as_str(), message.kind.as_str()), ("owner", "turn_ended"));
        let body = message.body.to_string();
        assert!(body.len() <= writ_store::outbox::MAX_BODY_BYTES, "{}", body.len());
        let read: OwnerMessage = serde_json::from_str(&body).expect("reads");
        let OwnerMessage::TurnEnded { text, taint: Taint::External, .. } = read else { panic!("{read:?}") };
        assert_eq!(text.chars().count(), MAX_MESSAGE_CHARS);
        let job = JobOp::Schedule {
            name: "outbox.deliver.mail".to_owned(),
            schedule: "every 30 s".to_owned(),
            next_run: Some(at),
        };
        assert_eq!(*mail, job);
    }
}
