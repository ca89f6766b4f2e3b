//! The operations on units, each handed to the module that writes it.

use rusqlite::Connection;

use super::{UnitOp, changes, circuits, claims, hook_runs, results, spans};
use crate::error::StoreError;

pub(crate) fn apply_unit_op(conn: &Connection, op: &UnitOp) -> Result<(), StoreError> {
    match op {
        UnitOp::OpenSession(session) => changes::open_session(conn, session),
        UnitOp::MoveSession { session, status, at } => changes::move_session(conn, *session, status, *at),
        UnitOp::Add { session, units, at } => changes::add_units(conn, *session, units, *at),
        UnitOp::Pin { name, content, at } => changes::store_pin(conn, (name, content), *at),
        UnitOp::Choose { key, workflow, hash, phase } => {
            changes::choose_workflow(conn, key, (workflow, *hash), phase)
        }
        UnitOp::Revise(texts) => changes::revise(conn, texts),
        UnitOp::Claim(claim) => claims::claim(conn, claim),
        UnitOp::Renew { key, fence, until } => claims::renew(conn, (key, *fence), *until),
        UnitOp::Sweep(sweep) => claims::sweep(conn, sweep),
        UnitOp::Require { key, fence, phase } => claims::require_free(conn, (key, *fence), phase),
        UnitOp::Transition(change) => claims::make_transition(conn, change),
        UnitOp::Decide(decision) => claims::decide(conn, decision),
        UnitOp::Abandon { project, at } => claims::abandon(conn, project, *at),
        UnitOp::Release { key, fence, status, not_before, at } => {
            claims::release(conn, (key, *fence), (status, *not_before), *at)
        }
        UnitOp::Cancel { key, at } => claims::cancel(conn, key, *at),
        UnitOp::NoteCancel { key, reason } => claims::note_cancel(conn, key, reason),
        UnitOp::NoteRevert { key } => claims::note_revert(conn, key),
        UnitOp::NoteShip { key, ship } => claims::note_ship(conn, key, ship),
        UnitOp::NoteChoice(row) => results::note_choice(conn, row),
        UnitOp::AddResult(row) => results::add_result(conn, row),
        UnitOp::SetCircuit(row) => circuits::set_circuit(conn, row),
        UnitOp::ClearCircuits { project, model } => circuits::clear_circuits(conn, project, model.as_deref()),
        UnitOp::AddHookRun(row) => hook_runs::add_hook_run(conn, row),
        UnitOp::EndRun(end) => claims::end_run(conn, end),
        UnitOp::PayRun(end) => claims::pay_run(conn, end),
        UnitOp::RecordGate(result) => changes::record_gate(conn, result),
        UnitOp::SetCounter { key, fence, counter, value } => {
            claims::set_counter(conn, (key, *fence), (counter, *value))
        }
        UnitOp::Raise(blocker) => changes::raise(conn, blocker),
        UnitOp::Resolve { session, event, unit, by, at } => {
            changes::resolve(conn, *session, (event, unit), (by, *at))
        }
        UnitOp::IndexSpans(rows) => spans::index_spans(conn, rows),
        UnitOp::ReindexSpans(rows) => spans::reindex_spans(conn, rows),
        UnitOp::MoveTrace(moved) => spans::move_trace(conn, moved),
        UnitOp::Archive { key, at } => claims::archive(conn, key, *at),
    }
}
