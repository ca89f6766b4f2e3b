//! Reads of sessions, turns, the queue, jobs, the outbox and withheld results.

use std::future::Future;

use writ_types::digest::Digest;
use writ_types::frame::Numbered;
use writ_types::id::{MessageId, SessionId, TurnId};
use writ_types::unit::Timestamp;

use crate::compaction::{self, Compaction};
use crate::error::StoreError;
use crate::files::{self, MessageFile};
use crate::jobs::{self, Job};
use crate::kept::{self, WithheldResult};
use crate::ledger::erase::SessionRemains;
use crate::memory::{self, Memory, Secrets};
use crate::outbox::{self, OutboxPage};
use crate::queue::{self, MessageState, QueueDepth, QueuedMessage};
use crate::readers::BlockingReads;
use crate::sessions::{self, ChronicleHits, ChronicleRow, SessionRow, erasure};
use crate::store::Store;
use crate::turns::{self, TurnRow};

reads! {
    /// Reads of sessions, their frames and their history.
    SessionReads {
        /// Returns a session.
        fn session(session: SessionId) -> Option<SessionRow> = brief |db| sessions::read_session(&db.conn, session);

        /// Returns the open session of the engine itself, if there is one.
        fn internal_session() -> Option<SessionRow> = |db| sessions::internal_session(&db.conn);

        /// Returns the sessions in the order of their last change, newest first, without those of the engine itself.
        fn sessions(limit: usize) -> Vec<SessionRow> = |db| sessions::read_sessions(&db.conn, limit);

        /// Returns what is left of a session's content, for its erasure.
        fn session_remains(session: SessionId, now: Timestamp) -> SessionRemains =
            |db| erasure::session_remains(&db.conn, session, now);

        /// Returns the sessions whose content is to be erased, those deleted until `before` and those whose erasure has
        /// begun; those tried last come last.
        fn sessions_to_erase(before: Timestamp, limit: usize) -> Vec<SessionId> =
            |db| erasure::sessions_to_erase(&db.conn, before, limit);

        /// Returns the stored frames of a session after number `after`, in order.
        fn frames_after(session: SessionId, after: u64, limit: usize) -> Vec<Numbered> =
            |db| sessions::frames_after(&db.conn, session, after, limit);

        /// Returns the newest `limit` messages of a session's history up to row `last`, oldest first. History is never
        /// changed, so the answer is always the same.
        fn recent_until(session: SessionId, last: u64, limit: usize) -> Vec<ChronicleRow> =
            |db| sessions::recent_until(&db.conn, session, last, limit);

        /// Returns the newest `limit` messages of a session's history after row `after`, oldest first.
        fn recent_after(session: SessionId, after: u64, limit: usize) -> Vec<ChronicleRow> =
            |db| sessions::recent_after(&db.conn, session, after, limit);

        /// Returns messages of a session's history after row `after`, oldest first.
        fn chronicle_page(session: SessionId, after: u64, limit: usize) -> Vec<ChronicleRow> =
            |db| sessions::chronicle_page(&db.conn, session, after, limit);

        /// Returns messages that contain all of these lower-case words, newest first, of sessions that are not deleted.
        fn search_chronicle(words: &[String], limit: usize) -> ChronicleHits =
            |db| sessions::search_chronicle(&db.conn, &words, limit);

        /// Returns the messages of users since a time in conversations of these surfaces, newest first; nothing of deleted ones,
        /// and of those in which others speak.
        fn said_since(since: Timestamp, surfaces: &[String], limit: usize) -> Vec<ChronicleRow> =
            |db| sessions::said_since(&db.conn, since, &surfaces, limit);

        /// Returns these rows of a session's history, in their order; those of other sessions are left out.
        fn chronicle_rows(session: SessionId, rows: &[u64]) -> Vec<ChronicleRow> =
            |db| sessions::chronicle_rows(&db.conn, session, &rows);

        /// Returns the number of rows of a session's history up to row `last`.
        fn count_chronicle(session: SessionId, last: u64) -> u64 =
            |db| sessions::count_chronicle(&db.conn, session, last);

        /// Returns the newest compaction of a session.
        fn newest_compaction(session: SessionId) -> Option<Compaction> =
            brief |db| compaction::read_newest(&db.conn, session);

        /// Returns the compactions of a session, newest first.
        fn compactions(session: SessionId, limit: usize) -> Vec<Compaction> =
            |db| compaction::read_all(&db.conn, session, limit);

        /// Returns what a turn begins with: the newest compaction, the messages of [`SessionReads::recent_after`] that it
        /// does not stand for, and what [`MemoryReads::pinned_memories`](super::MemoryReads::pinned_memories) names; `None`: nothing of
        /// that.
        fn turn_opening(session: SessionId, after: u64, limit: usize, pinned: Option<(Secrets, usize)>)
            -> (Option<Compaction>, Vec<ChronicleRow>, Vec<Memory>) =
            |db| {
                let compaction = compaction::read_newest(&db.conn, session)?;
                let after = compaction.as_ref().map_or(0, |newest| newest.upto).max(after);
                let messages = sessions::recent_after(&db.conn, session, after, limit)?;
                let memories = match pinned {
                    Some((secrets, limit)) => memory::pinned_memories(&db.conn, secrets, limit)?,
                    None => Vec::new(),
                };
                Ok((compaction, messages, memories))
            };
    }
}

reads! {
    /// Reads of turns and their events.
    TurnReads {
        /// Returns the number of the session's next turn, which goes on after a restart. A missing session is an error.
        fn next_turn_number(session: SessionId) -> u64 = brief |db| turns::next_turn_number(&db.conn, session);

        /// Returns the number of the turn that the next message of a session opens: after the turns of the messages that
        /// wait, and of one that was leased for a turn not yet open. A missing session is an error.
        fn next_message_turn(session: SessionId) -> u64 = brief |db| turns::next_message_turn(&db.conn, session);

        /// Returns a turn.
        fn turn(turn: TurnId) -> Option<TurnRow> = brief |db| turns::read_turn(&db.conn, turn);

        /// Returns the turn that began last, of one session or of all.
        fn newest_turn(session: Option<SessionId>) -> Option<TurnRow> = brief |db| turns::newest_turn(&db.conn, session);

        /// Returns the turns that have not ended, oldest first.
        fn unfinished_turns() -> Vec<TurnRow> = |db| turns::unfinished_turns(&db.conn);

        /// Returns the turns of a session that have not ended, in their order: more than one where several consumers work.
        fn open_turns(session: SessionId) -> Vec<TurnRow> = |db| turns::open_turns(&db.conn, session);

        /// Returns the unfinished turn that a message has opened.
        fn unfinished_turn_of(message: MessageId) -> Option<TurnRow> =
            brief |db| turns::unfinished_turn_of(&db.conn, message);

        /// Returns the turn that a message of a session has opened, also after its end.
        fn turn_opened_by(session: SessionId, message: MessageId) -> Option<TurnRow> =
            |db| turns::turn_opened_by(&db.conn, session, message);

        /// Returns the unfinished turn that a message has opened, and the number of the session's next turn, which the
        /// message opens if it has none. A missing session is an error.
        fn turn_of_message(session: SessionId, message: MessageId) -> (Option<TurnRow>, u64) =
            brief |db| turns::turn_of_message(&db.conn, session, message);

        /// Returns turns of a session after number `after`, in their order.
        fn session_turns(session: SessionId, after: u64, limit: usize) -> Vec<TurnRow> =
            |db| turns::session_turns(&db.conn, session, after, limit);

        /// Returns the events of a turn, in order, as JSON.
        fn turn_events(turn: TurnId) -> Vec<String> = |db| turns::turn_events(&db.conn, turn);
    }
}

reads! {
    /// Reads of the queue of messages.
    QueueReads {
        /// Returns the messages of a session that wait, oldest first.
        fn pending_for_session(session: SessionId) -> Vec<QueuedMessage> =
            brief |db| queue::pending_for_session(&db.conn, session);

        /// Returns the messages of a session that wait for one consumer, oldest first.
        fn pending_for(consumer: &str, session: SessionId) -> Vec<QueuedMessage> =
            brief |db| queue::pending_for(&db.conn, &consumer, session);

        /// Returns the message that a client has sent under this id.
        fn message_by_client_id(session: SessionId, client_id: &str) -> Option<QueuedMessage> =
            brief |db| queue::message_by_client_id(&db.conn, session, &client_id);

        /// Returns the state of the message that a client has sent under this id.
        fn message_state(session: SessionId, client_id: &str) -> Option<MessageState> =
            brief |db| queue::message_state(&db.conn, session, &client_id);

        /// Returns the ids that clients have given to these messages, in this order, without those of missing messages.
        fn client_ids(messages: &[MessageId]) -> Vec<String> = |db| queue::client_ids(&db.conn, &messages);

        /// Returns the messages that were set aside, newest first.
        fn dead_letters(limit: usize) -> Vec<QueuedMessage> = |db| queue::dead_letters(&db.conn, limit);

        /// Returns the time at which the executor's next message can be leased.
        fn next_due() -> Option<Timestamp> = brief |db| queue::next_due(&db.conn, queue::EXECUTOR);

        /// Returns the time at which a consumer's next message can be leased.
        fn next_due_for(consumer: &str) -> Option<Timestamp> = brief |db| queue::next_due(&db.conn, &consumer);

        /// Returns the number of messages in each state.
        fn queue_depth() -> QueueDepth = |db| queue::queue_depth(&db.conn);
    }
}

reads! {
    /// Reads of results that are withheld from models.
    ResultReads {
        /// Returns a withheld result of a session.
        fn withheld_result(session: SessionId, number: u64) -> Option<WithheldResult> =
            |db| kept::kept_result(&db.conn, session, number);

        /// Returns a file of a session's messages.
        fn message_file(session: SessionId, digest: Digest) -> Option<MessageFile> =
            |db| files::message_file(&db.conn, session, digest);

        /// Returns the number of the session's newest withheld result; zero before the first.
        fn last_withheld(session: SessionId) -> u64 = brief |db| kept::last_kept(&db.conn, session);
    }
}

reads! {
    /// Reads of jobs.
    JobReads {
        /// Returns a job.
        fn job(name: &str) -> Option<Job> = brief |db| jobs::read_job(&db.conn, &name);

        /// Returns the jobs, by name.
        fn jobs(limit: usize) -> Vec<Job> = |db| jobs::read_jobs(&db.conn, limit);

        /// Returns the jobs that are due at `now`, the earliest first.
        fn due_jobs(now: Timestamp, limit: usize) -> Vec<Job> = |db| jobs::due_jobs(&db.conn, now, limit);

        /// Returns the time at which the next job is due.
        fn next_job_due() -> Option<Timestamp> = brief |db| jobs::next_job_due(&db.conn);
    }
}

reads! {
    /// Reads of the outbox.
    OutboxReads {
        /// Returns the messages after a channel's cursor, in their order.
        fn outbox_after_cursor(channel: &str, limit: usize) -> OutboxPage =
            |db| outbox::outbox_after_cursor(&db.conn, &channel, limit);

        /// Returns the number of the last message that a channel has delivered; zero before the first.
        fn outbox_cursor(channel: &str) -> u64 = brief |db| outbox::outbox_cursor(&db.conn, &channel);
    }
}
