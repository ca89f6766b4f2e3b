//! Writing: typed operations, in batches that happen completely or not at all.

use std::time::Duration;

use serde_json::Value;
use writ_types::entry::{Entry, Fact};
use writ_types::frame::ServerFrame;
use writ_types::id::{AskId, AttemptId, EntrySeq, Fence, KeyId, MemoryId, MessageId, SessionId, TurnId};
use writ_types::interaction::{InteractionMode, InteractionRegister};
use writ_types::unit::Timestamp;

pub use receipt::{AskOpened, FrameNumber, Receipt, WriteResults};
pub use writ_policy::permit::{ApprovalUse, Durability, Redemption};

use crate::approvals::{ApproverKey, AskState, NewPlan};
use crate::compaction::Compaction;
use crate::files::MessageFile;
use crate::fleet::FleetOp;
use crate::jobs::JobOp;
use crate::kept::WithheldResult;
use crate::keys::KeyOp;
use crate::memory::MemoryOp;
use crate::operations::OperationOp;
use crate::outbox::OutboxOp;
use crate::tools::ToolOp;
use crate::units::UnitOp;
use crate::usage::PendingUsage;
use crate::work::WorkOp;

pub use crate::approvals::{NewApproval, NewAsk, NewPart};
pub use crate::memory::NewMemory;
pub use crate::queue::NewMessageRow;
pub use crate::sessions::{NewChronicle, NewSessionRow, SessionOp};
pub use crate::turns::NewTurn;
pub use crate::undo::NewUndo;
pub use crate::usage::{UsageDelta, UsageShare};

mod receipt;

/// Operations that are written together, in order, or not at all.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// The durability that it must have when the receipt comes.
    pub durability: Durability,
    /// The operations, in order.
    pub ops: Vec<Op>,
}

impl Batch {
    /// A batch that is on disk when its receipt comes.
    pub const fn synced(ops: Vec<Op>) -> Self {
        Self { durability: Durability::Synced, ops }
    }

    /// A batch that survives the end of the process when its receipt comes, not a loss of power.
    pub const fn relaxed(ops: Vec<Op>) -> Self {
        Self { durability: Durability::Relaxed, ops }
    }
}

/// One operation.
///
/// Where a row names the ledger entry that it rests on, it is the entry appended last before it in
/// the same batch.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Appends an entry to the ledger. Intents are indexed until an `Outcome` or a `ModelCalled` of the same
    /// attempt closes them; a second one is a conflict, one without an intent (`dry-run`) is not.
    Append(Box<Entry>),
    /// Opens a session. Conflict if it exists.
    OpenSession(NewSessionRow),
    /// Copies or erases a session.
    Sessions(SessionOp),
    /// Sets or removes one key of a session's metadata.
    SetSessionMetadata {
        /// The session.
        session: SessionId,
        /// The key.
        key: String,
        /// The value; `None` removes the key.
        value: Option<Value>,
    },
    /// Puts a message into its session's queue. Needs an `Append` before it in the batch. Conflict for a
    /// known `client_id`; an error when the queue is full.
    EnqueueMessage(Box<NewMessageRow>),
    /// Leases the oldest message of the executor that is due, at most one per session. See [`Receipt::leased`].
    LeaseMessage {
        /// Now.
        now: Timestamp,
        /// The holder of the lease.
        owner: String,
        /// The time that the lease holds without a heartbeat, in milliseconds.
        ttl_ms: u64,
    },
    /// As [`Self::EnqueueMessage`], for a consumer other than the executor.
    EnqueueFor {
        /// The consumer that takes it.
        consumer: String,
        /// The message.
        message: Box<NewMessageRow>,
    },
    /// Leases the oldest message of a consumer that is due, at most one per session. See [`Receipt::leased`].
    LeaseFor {
        /// The consumer.
        consumer: String,
        /// Now.
        now: Timestamp,
        /// The holder of the lease.
        owner: String,
        /// The time that the lease holds without a heartbeat, in milliseconds.
        ttl_ms: u64,
    },
    /// Prolongs a lease. Conflict if it is no longer held.
    Heartbeat {
        /// The message.
        message: MessageId,
        /// The lease's fence.
        fence: Fence,
        /// Now.
        now: Timestamp,
        /// The time that it holds from now, in milliseconds.
        ttl_ms: u64,
    },
    /// Marks a leased message as done. Conflict if the lease is no longer held.
    AckMessage {
        /// The message.
        message: MessageId,
        /// The lease's fence.
        fence: Fence,
    },
    /// Marks a message that came in during a turn as done with it. Conflict if the turn's lease is no longer held.
    AbsorbMessage {
        /// The message that came in.
        message: MessageId,
        /// The turn that answered it too.
        turn: TurnId,
        /// The message that the turn leased.
        lease: MessageId,
        /// That lease's fence.
        fence: Fence,
    },
    /// Gives a leased message back, to be tried again later or, after the last attempt, not at all.
    NackMessage {
        /// The message.
        message: MessageId,
        /// The lease's fence.
        fence: Fence,
        /// Now.
        now: Timestamp,
        /// The reason of the failure, for people.
        error: String,
    },
    /// Sets a message aside without another attempt: one that waits, or the caller's where a fence is shown.
    /// Conflict if it is neither.
    EndMessage {
        /// The message.
        message: MessageId,
        /// The fence of the caller's lease; `None`: it waits.
        fence: Option<Fence>,
        /// The reason, for people.
        error: String,
    },
    /// Makes every leased message ready again: for the start of an engine, which holds the home alone.
    RequeueLeased,
    /// Opens a turn. Conflict if its number is not the session's next.
    OpenTurn(NewTurn),
    /// Replaces the labels of a turn. Conflict if it is not open.
    LabelTurn {
        /// The turn.
        turn: TurnId,
        /// What it is about.
        register: InteractionRegister,
        /// How it deals with its person.
        mode: InteractionMode,
    },
    /// Stores an event of an open turn. Conflict if `n` is not the next number (counted from zero).
    TurnEvent {
        /// The turn.
        turn: TurnId,
        /// The event's number.
        n: u64,
        /// The event, as JSON.
        event: String,
    },
    /// Closes a turn. Conflict if it is not open.
    CloseTurn {
        /// The turn.
        turn: TurnId,
        /// When.
        at: Timestamp,
        /// The way it ended: `finished`, `failed`, `cancelled`.
        state: String,
    },
    /// Stores a frame under the session's next number. See [`Receipt::frames`].
    Frame {
        /// The session.
        session: SessionId,
        /// The frame.
        frame: Box<ServerFrame>,
    },
    /// Appends [`Fact::Replied`] and stores the turn's last frame: both name the entries
    /// up to the one before it, which is known only here.
    Reply {
        /// The entry.
        entry: Box<Entry>,
        /// The session.
        session: SessionId,
        /// The frame.
        frame: Box<ServerFrame>,
    },
    /// Adds a message to the history of a session.
    Chronicle(Box<NewChronicle>),
    /// Adds to the totals of the session, of the day and of the month.
    AddUsage(UsageDelta),
    /// Adds the same usage to the totals by role, by model and by item; stands beside [`Self::AddUsage`].
    AddUsageShare(Box<UsageShare>),
    /// Stores a compaction of a session's history. Conflict unless its number is the next, and it covers no less than the
    /// one before.
    Compact(Box<Compaction>),
    /// Opens an ask, or finds the open one for the same prepared hash. See [`Receipt::asks`].
    OpenAsk(Box<NewAsk>),
    /// Closes an open ask. Conflict if it is not open; `Open` and `Used` are not answers. `Expired` also
    /// closes an approved one that has ended, or that has a revoked approval.
    ResolveAsk {
        /// The ask.
        ask: AskId,
        /// The new state.
        state: AskState,
        /// When.
        at: Timestamp,
        /// The answering key's id, or the principal.
        by: String,
        /// The reason, in the person's words.
        reason: String,
    },
    /// Marks every ask that has ended, open or approved and not performed, as expired.
    ExpireAsks {
        /// Now.
        now: Timestamp,
    },
    /// Stores the signed approval of an approved ask. Conflict if there is one.
    StoreApproval(NewApproval),
    /// Stores what one of several people has signed, beside what others have. Conflict unless the ask is open, and if
    /// the same key has signed it before.
    StorePart(NewPart),
    /// Uses an approval up. Conflict unless it is there, unused, unexpired, unrevoked and for this hash and nonce.
    ConsumeApproval {
        /// The approval, the action that it is used for, and the nonce.
        approval: ApprovalUse,
        /// Now.
        now: Timestamp,
    },
    /// Voids everything that waits, for a database that was put back: messages become dead letters, asks expire,
    /// unused approvals are taken back, and every session's metadata gets this key.
    VoidWaiting {
        /// When.
        at: Timestamp,
        /// The key of the sessions' metadata; its value is `true`.
        mark: String,
    },
    /// Keeps the way back from something that was done. Conflict if there is one.
    KeepUndo(Box<NewUndo>),
    /// Notes that something was undone. Conflict unless it was there and was not.
    Undone {
        /// The attempt that was undone.
        attempt: AttemptId,
        /// When.
        at: Timestamp,
    },
    /// Forgets a way back.
    ForgetUndo {
        /// The attempt that can no longer be undone.
        attempt: AttemptId,
    },
    /// Keeps a result back from the model; the oldest of its session go where there are too many. Conflict if its number
    /// is taken.
    KeepResult(Box<WithheldResult>),
    /// Deletes every withheld result of a session.
    DropResults(SessionId),
    /// Stores a file of a message; the oldest of its session go where there are too many. One that is there stays.
    StoreFile(Box<MessageFile>),
    /// Keeps the task key of an approved plan, and how often its steps may be done. Conflict if there is one.
    KeepPlan(Box<NewPlan>),
    /// Takes an approval back. Missing ones are a conflict.
    RevokeApproval {
        /// The ask that was approved.
        ask: AskId,
    },
    /// Takes back every approval of a session that was not used.
    RevokeUnused(SessionId),
    /// Records a nonce. Conflict if it was seen.
    RecordNonce {
        /// The purpose of the nonce.
        namespace: String,
        /// The nonce.
        nonce: String,
        /// The end of the thing that it guards; the nonce is stored at least that long.
        expires_at: Timestamp,
    },
    /// Deletes the nonces that have expired.
    PruneNonces {
        /// Now.
        now: Timestamp,
    },
    /// Writes a redemption for [`writ_policy::permit::Journal::redeem`].
    Redeem(Box<Redemption>),
    /// Adds to a named counter; saturates. See [`Receipt::counters`].
    AddCounter {
        /// The counter.
        name: String,
        /// The amount.
        by: u64,
    },
    /// Adds to a named counter in advance of a use that is not known yet. Conflict if it would exceed `most`.
    ReserveCounter {
        /// The counter.
        name: String,
        /// The amount.
        by: u64,
        /// The most that the counter may hold then.
        most: u64,
    },
    /// Replaces what was reserved of a named counter by what was used; saturates. See [`Receipt::counters`].
    SettleCounter {
        /// The counter.
        name: String,
        /// The amount that was reserved.
        reserved: u64,
        /// The amount that was used.
        used: u64,
    },
    /// Revokes a key, token or standing order by its revocation id. Revoking twice is the same as once.
    Revoke {
        /// The revocation id.
        id: String,
        /// When.
        at: Timestamp,
        /// When what it revokes would have ended anyway; `None`: never.
        expires_at: Option<Timestamp>,
    },
    /// Notes something of keys that are given out, or of standing orders.
    Keys(KeyOp),
    /// Enrols an approver key. Conflict if its id or its public key is there.
    EnrollKey(ApproverKey),
    /// Revokes an approver key. Conflict if there is none that is in force.
    RevokeKey {
        /// The key.
        key: KeyId,
        /// When.
        at: Timestamp,
    },
    /// Moves a passkey's counter of signatures on. Conflict unless it grows or does not count, see
    /// [`writ_inspect::webauthn::counts_on`].
    CountPasskey {
        /// The key.
        key: KeyId,
        /// The counter, as the passkey says it.
        sign_count: u32,
    },
    /// Remembers something. External content is refused as verified or constitutional.
    Remember(Box<NewMemory>),
    /// Forgets something: the row and its words are deleted. Conflict if there is none.
    Forget {
        /// The memory.
        memory: MemoryId,
    },
    /// Changes memories, their vectors, or the questions about them.
    Memory(MemoryOp),
    /// Changes the jobs.
    Jobs(JobOp),
    /// Changes the counters of tools.
    Tools(ToolOp),
    /// Changes the outbox. A message names the entry appended last before it.
    Outbox(OutboxOp),
    /// Changes the state of the security proxy.
    Operations(OperationOp),
    /// Changes the cases of the fleet's router.
    Fleet(FleetOp),
    /// Changes work items.
    Work(WorkOp),
    /// Changes the autopilot's units.
    Units(UnitOp),
    /// Sets a setting of the store.
    Set {
        /// The key.
        key: String,
        /// The value.
        value: Value,
    },
    /// Erases the payload of an entry; proofs stay valid. Conflict if there is no payload, or something rests on it.
    ErasePayload {
        /// The entry.
        entry: EntrySeq,
        /// When.
        at: Timestamp,
    },
}

/// Collects what operations will change of the usage once they are written.
pub(crate) fn pending_usage(ops: &[Op]) -> PendingUsage {
    let mut pending = PendingUsage::default();
    for op in ops {
        if let Op::AddUsage(delta) = op {
            pending.used.push(*delta);
        } else if let Op::Append(entry) = op
            && let Fact::ModelCalled { attempt, .. } | Fact::Outcome { attempt, .. } = &entry.fact
        {
            pending.ended.push(attempt.to_string());
        }
    }
    pending
}

// === impl Op ===

impl Op {
    /// Leases a message: [`Self::LeaseMessage`].
    pub fn lease(now: Timestamp, owner: &str, ttl: Duration) -> Self {
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        Self::LeaseMessage { now, owner: owner.to_owned(), ttl_ms }
    }
}
