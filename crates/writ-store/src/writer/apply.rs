//! From operations to rows: one arm per operation.

use rusqlite::Connection;
use writ_types::entry::{Entry, Fact};
use writ_types::frame::ServerFrame;
use writ_types::id::{EntrySeq, SessionId, TurnId};
use writ_types::unit::Timestamp;

use crate::batch::{AskOpened, FrameNumber, NewAsk, Op, Receipt, Redemption};
use crate::error::StoreError;
use crate::ledger::append::Tail;
use crate::outbox::OutboxOp;
use crate::{
    approvals, compaction, files, fleet, jobs, kept, keys, memory, operations, outbox, queue, restore,
    sessions, settings, tools, turns, undo, units, usage, work,
};

/// A batch on its way: what it has got so far.
struct BatchProgress<'a> {
    conn: &'a Connection,
    tail: &'a mut Tail,
    receipt: Receipt,
    /// The turn with counted events, the number of its next event, and the end of the counted ones: those of
    /// one batch are counted at once.
    counted: Option<(TurnId, u64, u64)>,
}

/// Writes operations, in order.
///
/// # Errors
///
/// The first one's that fails; the caller rolls back.
pub(super) fn apply(conn: &Connection, tail: &mut Tail, ops: &[Op]) -> Result<Receipt, StoreError> {
    let mut progress = BatchProgress { conn, tail, receipt: Receipt::default(), counted: None };
    let mut rest = ops;
    while let [op, after @ ..] = rest {
        progress.op(op, after)?;
        rest = after;
    }
    Ok(progress.receipt)
}

impl BatchProgress<'_> {
    // tidy: table
    fn op(&mut self, op: &Op, after: &[Op]) -> Result<(), StoreError> {
        let conn = self.conn;
        match op {
            Op::Append(entry) => self.append(entry),
            Op::OpenSession(session) => sessions::create_session(conn, session),
            Op::Sessions(op) => sessions::apply_session_op(conn, op),
            Op::SetSessionMetadata { session, key, value } => {
                sessions::set_metadata(conn, *session, key, value.as_ref())
            }
            Op::EnqueueMessage(message) => {
                queue::enqueue_message(conn, queue::EXECUTOR, message, self.last_entry())
            }
            Op::EnqueueFor { consumer, message } => {
                queue::enqueue_message(conn, consumer, message, self.last_entry())
            }
            Op::LeaseMessage { now, owner, ttl_ms } => self.lease(queue::EXECUTOR, *now, owner, *ttl_ms),
            Op::LeaseFor { consumer, now, owner, ttl_ms } => self.lease(consumer, *now, owner, *ttl_ms),
            Op::Heartbeat { message, fence, now, ttl_ms } => {
                queue::extend_lease(conn, *message, *fence, *now, *ttl_ms)
            }
            Op::AckMessage { message, fence } => queue::ack_message(conn, *message, *fence),
            Op::AbsorbMessage { message, turn, lease, fence } => {
                queue::absorb_message(conn, *message, *turn, *lease, *fence)
            }
            Op::NackMessage { message, fence, now, error } => {
                queue::return_message(conn, *message, *fence, *now, error)
            }
            Op::EndMessage { message, fence, error } => queue::end_message(conn, *message, *fence, error),
            Op::RequeueLeased => self.count(queue::requeue_leased(conn)),
            Op::OpenTurn(turn) => turns::begin_turn(conn, turn),
            Op::LabelTurn { turn, register, mode } => turns::label_turn(conn, *turn, *register, *mode),
            Op::TurnEvent { turn, n, event } => {
                self.count_events(*turn, *n, after)?;
                turns::add_event(conn, *turn, *n, event)
            }
            Op::CloseTurn { turn, at, state } => turns::close_turn(conn, *turn, *at, state),
            Op::Frame { session, frame } => self.frame(*session, frame),
            Op::Reply { entry, session, frame } => {
                self.reply(entry.as_ref().clone(), *session, frame.as_ref().clone())
            }
            Op::Chronicle(row) => sessions::add_chronicle(conn, row, self.last_entry()),
            Op::AddUsage(delta) => usage::add_usage(conn, delta),
            Op::AddUsageShare(share) => usage::add_share(conn, share),
            Op::Compact(new) => compaction::store_compaction(conn, new, self.last_entry()),
            Op::OpenAsk(ask) => self.open_ask(ask),
            Op::ResolveAsk { ask, state, at, by, reason } => {
                approvals::resolve_ask(conn, ask, *state, *at, by, reason)
            }
            Op::ExpireAsks { now } => self.count(approvals::expire_asks(conn, *now)),
            Op::StoreApproval(approval) => approvals::store_approval(conn, approval),
            Op::ConsumeApproval { approval, now } => approvals::consume_approval(conn, approval, *now),
            Op::VoidWaiting { at, mark } => restore::void_waiting(conn, *at, mark),
            Op::KeepUndo(undo) => undo::store_undo(conn, undo),
            Op::Undone { attempt, at } => undo::mark_undone(conn, *attempt, *at),
            Op::ForgetUndo { attempt } => undo::delete_undo(conn, *attempt),
            Op::KeepResult(kept) => kept::store_result(conn, kept),
            Op::DropResults(session) => kept::drop_all(conn, *session),
            Op::StoreFile(file) => files::store_file(conn, file),
            Op::KeepPlan(plan) => approvals::store_plan(conn, plan),
            Op::StorePart(part) => approvals::store_part(conn, part),
            Op::RevokeApproval { ask } => approvals::revoke_approval(conn, ask),
            Op::RevokeUnused(session) => approvals::revoke_unused(conn, *session),
            Op::RecordNonce { namespace, nonce, expires_at } => {
                approvals::record_nonce(conn, namespace, nonce, *expires_at)
            }
            Op::PruneNonces { now } => self.count(approvals::prune_nonces(conn, *now)),
            Op::Redeem(redemption) => self.redeem(redemption),
            Op::AddCounter { name, by } => self.add_counter(name, *by),
            Op::ReserveCounter { name, by, most } => usage::reserve_counter(conn, name, *by, *most),
            Op::SettleCounter { name, reserved, used } => self.settle_counter(name, *reserved, *used),
            Op::Revoke { id, at, expires_at } => approvals::record_revocation(conn, id, *at, *expires_at),
            Op::Keys(op) => keys::apply_key_op(conn, op),
            Op::EnrollKey(key) => approvals::enroll_key(conn, key),
            Op::RevokeKey { key, at } => approvals::revoke_key(conn, *key, *at),
            Op::CountPasskey { key, sign_count } => approvals::count_passkey(conn, *key, *sign_count),
            Op::Remember(memory) => memory::store_memory(conn, memory, self.last_entry()),
            Op::Forget { memory } => memory::delete_memory(conn, *memory),
            Op::Memory(op) => memory::apply_memory_op(conn, op),
            Op::Jobs(op) => jobs::apply_job(conn, op),
            Op::Tools(op) => tools::apply_tool_op(conn, op),
            Op::Outbox(op) => self.outbox(op),
            Op::Operations(op) => operations::apply_operation(conn, op),
            Op::Fleet(op) => fleet::apply_fleet_op(conn, op),
            Op::Work(op) => work::apply_work_op(conn, op),
            Op::Units(op) => units::apply_unit_op(conn, op),
            Op::Set { key, value } => settings::write_setting(conn, key, value),
            Op::ErasePayload { entry, at } => self.tail.erase(conn, *entry, *at),
        }
    }

    fn lease(&mut self, consumer: &str, now: Timestamp, owner: &str, ttl_ms: u64) -> Result<(), StoreError> {
        self.receipt.leased.push(queue::lease_message(self.conn, consumer, now, owner, ttl_ms)?);
        Ok(())
    }

    /// Counts an event of a turn, and at once those that follow it in the batch.
    fn count_events(&mut self, turn: TurnId, n: u64, after: &[Op]) -> Result<(), StoreError> {
        if let Some((of, next, end)) = &mut self.counted
            && *of == turn
            && *next == n
            && n < *end
        {
            *next = next.saturating_add(1);
            return Ok(());
        }
        let mut end = n.saturating_add(1);
        for op in after {
            if let Op::TurnEvent { turn: of, n, .. } = op
                && (*of, *n) == (turn, end)
            {
                end = end.saturating_add(1);
            } else if matches!(op, Op::CloseTurn { turn: of, .. } if *of == turn) {
                // Operations of the turn after its end are refused.
                break;
            }
        }
        turns::count_events(self.conn, turn, n, end.saturating_sub(n))?;
        self.counted = Some((turn, n.saturating_add(1), end));
        Ok(())
    }

    fn outbox(&mut self, op: &OutboxOp) -> Result<(), StoreError> {
        match op {
            OutboxOp::Append(message) => {
                let number = outbox::append_message(self.conn, message, self.last_entry())?;
                self.receipt.outbox.push(number);
                Ok(())
            }
            OutboxOp::Advance { channel, number, at } => {
                outbox::advance_cursor(self.conn, channel, *number, *at)
            }
            OutboxOp::RemoveChannel { channel } => outbox::remove_channel(self.conn, channel),
            OutboxOp::Prune { before } => self.count(outbox::prune_outbox(self.conn, *before)),
        }
    }

    fn last_entry(&self) -> Option<EntrySeq> {
        self.receipt.entries.last().copied()
    }

    fn append(&mut self, entry: &Entry) -> Result<(), StoreError> {
        let seq = self.tail.append(self.conn, entry)?;
        self.receipt.entries.push(seq);
        Ok(())
    }

    fn count(&mut self, changed: Result<u64, StoreError>) -> Result<(), StoreError> {
        self.receipt.changed += changed?;
        Ok(())
    }

    fn add_counter(&mut self, name: &str, by: u64) -> Result<(), StoreError> {
        let value = usage::add_counter(self.conn, name, by)?;
        self.receipt.counters.push(value);
        Ok(())
    }

    fn settle_counter(&mut self, name: &str, reserved: u64, used: u64) -> Result<(), StoreError> {
        let value = usage::settle_counter(self.conn, name, reserved, used)?;
        self.receipt.counters.push(value);
        Ok(())
    }

    fn frame(&mut self, session: SessionId, frame: &ServerFrame) -> Result<(), StoreError> {
        let seq = sessions::add_frame(self.conn, session, frame)?;
        self.receipt.frames.push(FrameNumber { session, seq });
        Ok(())
    }

    fn reply(
        &mut self,
        mut entry: Entry,
        session: SessionId,
        mut frame: ServerFrame,
    ) -> Result<(), StoreError> {
        let last = EntrySeq(self.tail.size().saturating_sub(1));
        // Known only now: entries of the same batch come before it.
        if let Fact::Replied { to, .. } = &mut entry.fact {
            *to = last;
        }
        if let ServerFrame::Message { entries, .. } = &mut frame {
            entries.1 = last;
        }
        self.receipt.rests_on = Some(last);
        self.append(&entry)?;
        self.frame(session, &frame)
    }

    fn open_ask(&mut self, ask: &NewAsk) -> Result<(), StoreError> {
        // The same question is asked once, even by two turns.
        if let Some(open) = approvals::find_open(self.conn, ask.card.prepared, ask.card.asked_at)? {
            self.receipt.asks.push(AskOpened { ask: open, merged: true });
            return Ok(());
        }
        self.append(&ask.entry)?;
        approvals::open_ask(self.conn, ask)?;
        if let Some(session) = ask.card.session {
            self.frame(session, &ServerFrame::ApprovalRequest(Box::new(ask.card.clone())))?;
        }
        self.receipt.asks.push(AskOpened { ask: ask.card.ask_id.clone(), merged: false });
        Ok(())
    }

    fn redeem(&mut self, redemption: &Redemption) -> Result<(), StoreError> {
        // A key that was revoked since the decision is refused here.
        approvals::check_keys(self.conn, &redemption.keys)?;
        if let Some(approval) = &redemption.approval {
            approvals::consume_approval(self.conn, approval, redemption.intent.at)?;
        }
        // Before the intent is appended, which would count as the same operation under way.
        operations::count_operation(self.conn, redemption)?;
        self.append(&redemption.intent)?;
        usage::reserve_budget(self.conn, redemption)
    }
}
