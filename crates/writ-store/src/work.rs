//! Work items: their plans, the states of their steps, and the attempts with their evidence.
//!
//! The store knows no states of items and steps: it compares versions, so that each change of an item rests on what was
//! read, and gives each attempt one message of the queue.

mod attempts;
mod domains;
mod replan;
mod stored;

use rusqlite::{Connection, params};
use writ_types::api::work::{StepState, WorkState};
use writ_types::id::{AskId, ItemId, MessageId, SessionId};
use writ_types::taint::Taint;
use writ_types::unit::{MicroUsd, Timestamp, Tokens};
use writ_types::work::DomainTag;

use crate::codec::{self, execute, get_uint, int, query_one};
use crate::error::{Conflict, StoreError};

use attempts::{begin, end_turn, go_on, hold, judge, next_turn, rest};
pub use replan::NewCourse;
pub use stored::{DeadAttempt, StartedItem, WholeItem, WorkLine};
pub(crate) use stored::{
    EvidenceRange, active_items, attempt_of, children_of, dead_attempts, item_named, item_of_session, lines,
    read_item, read_steps, started_by, whole_item,
};

/// The most items that are not over: far more than a person has in view.
pub const MAX_OPEN_ITEMS: usize = 1_000;
/// The most steps of an item: a plan of 200 steps is measured, and twice as many are still read.
pub const MAX_STEPS: usize = 512;
/// The longest plan, in bytes, as JSON.
pub const MAX_DOCUMENT_BYTES: usize = 1024 * 1024;
/// The most executors that work at a time, over all items (SIL-403).
pub const MAX_EXECUTORS: u64 = 16;
/// The longest evidence of one attempt, in bytes.
pub const MAX_EVIDENCE_BYTES: usize = 256 * 1024;
/// The longest report, reason, advice or word of an executor that is stored, in characters.
pub const MAX_WORDS_CHARS: usize = 16_000;
/// The longest last words of an attempt of the autopilot that are stored, in bytes: it reads marks and whole answers in them.
pub const MAX_SAID_BYTES: usize = 64 * 1024;
/// The longest name or title, in bytes.
const MAX_NAME_BYTES: usize = 1_024;

// tidy: plain state
/// A work item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkItem {
    /// Its id.
    pub id: ItemId,
    /// Its name, as its plan says.
    pub name: String,
    /// Its kind, in the words of plans.
    pub kind: String,
    /// Its purpose.
    pub title: String,
    /// The session that its steps run in.
    pub session: SessionId,
    /// The conversation that it comes from.
    pub origin: Option<SessionId>,
    /// The goal that has started it.
    pub goal: Option<ItemId>,
    /// The folder that it works on.
    pub project: Option<String>,
    /// Its state.
    pub state: WorkState,
    /// The number of its changes of state.
    pub version: u64,
    /// The reason of its state.
    pub reason: String,
    /// Its plan, as JSON.
    pub document: String,
    /// The trust of what its plan rests on.
    pub taint: Taint,
    /// The question about its plan, once it was asked.
    pub ask: Option<AskId>,
    /// Its domains, in the order of the alphabet.
    pub domains: Vec<DomainTag>,
    /// The number of times that its plan was proposed before.
    pub round: u32,
    /// The number of times that the planner was asked for advice.
    pub consultations: u32,
    /// The report about its end; empty before.
    pub report: String,
    /// The most tokens.
    pub max_tokens: Option<Tokens>,
    /// The most money.
    pub max_cost: Option<MicroUsd>,
    /// When it was proposed.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub changed_at: Timestamp,
}

/// A step of a work item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkStepRow {
    /// Its name within the plan.
    pub name: String,
    /// Its purpose.
    pub title: String,
    /// The numbers of the steps that must be done before.
    pub after: Vec<usize>,
    /// Set if an executor works on it.
    pub has_executor: bool,
    /// The most attempts.
    pub max_attempts: u32,
    /// The planner's advice; empty without any.
    pub advice: String,
    /// Its state.
    pub state: StepState,
}

/// An attempt at a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkAttempt {
    /// The item.
    pub item: ItemId,
    /// The number of the step, from zero.
    pub step: usize,
    /// The number of the attempt, from one.
    pub n: u32,
    /// The message that opens its turn; none for a step of checks alone.
    pub message: Option<MessageId>,
    /// How far it has come.
    pub state: AttemptState,
    /// When it began.
    pub began_at: Timestamp,
    /// When its turn, and then its checks, had ended.
    pub ended_at: Option<Timestamp>,
    /// The exit code of its turn.
    pub exit: Option<u8>,
    /// The last words of its executor.
    pub said: String,
    /// The verdict, in the engine's words; empty before.
    pub verdict: String,
    /// The digest of what was left and shown; empty before.
    pub trace: String,
    /// What the checks have shown, as JSON; empty before, and where it was not read.
    pub evidence: String,
    /// Set while it waits for something outside, and then goes on.
    pub is_held: bool,
    /// The number of times that it was held.
    pub holds: u32,
}

/// How far an attempt has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptState {
    /// Its turn waits or runs.
    Running,
    /// Its turn has ended; nothing was checked.
    Ended,
    /// Its checks were judged.
    Judged,
}

/// A change of an item's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemMove {
    /// The item.
    pub item: ItemId,
    /// The version that the caller has read.
    pub version: u64,
    /// The new state.
    pub state: WorkState,
    /// Set if the engine still has to look at it: it is not over.
    pub is_active: bool,
    /// The reason, for people.
    pub reason: String,
    /// When.
    pub at: Timestamp,
}

/// A change to work items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkOp {
    /// Stores a proposed item with its steps. Conflict if its id is there; too many open items are refused.
    Propose(Box<(WorkItem, Vec<WorkStepRow>)>),
    /// Notes the question about an item's plan.
    NoteAsk {
        /// The item.
        item: ItemId,
        /// The question.
        ask: AskId,
    },
    /// Changes the state of an item. Conflict unless it has this version.
    Move(ItemMove),
    /// Changes nothing. Conflict unless the item has this version.
    Require {
        /// The item.
        item: ItemId,
        /// The version that the caller has read.
        version: u64,
    },
    /// Proposes an item again: steps that are not done begin anew with all of their attempts, and count from where they are.
    Renew {
        /// The item.
        item: ItemId,
        /// More attempts for each step that is not done.
        attempts: u32,
    },
    /// Begins an attempt at a step that waits: its turn runs for this message. Conflict unless the step waits, or if
    /// [`MAX_EXECUTORS`] work already.
    Begin {
        /// The item.
        item: ItemId,
        /// The step.
        step: usize,
        /// The number of the attempt.
        n: u32,
        /// The message; none for a step of checks alone, which is to be checked at once.
        message: Option<MessageId>,
        /// When.
        at: Timestamp,
    },
    /// Notes the end of the turn of a message, if it is that of an attempt that runs.
    EndTurn {
        /// The message.
        message: MessageId,
        /// The exit code of the turn.
        exit: u8,
        /// The last words of the executor.
        said: String,
        /// When.
        at: Timestamp,
    },
    /// Holds an attempt of which the turn has ended: its step is worked on until it goes on. Conflict unless it has ended.
    Hold {
        /// The item.
        item: ItemId,
        /// The step.
        step: usize,
        /// The attempt.
        n: u32,
    },
    /// Lets an attempt that is held go on with a turn of this message. Conflict unless it is held, or if
    /// [`MAX_EXECUTORS`] work already.
    GoOn {
        /// The item.
        item: ItemId,
        /// The step.
        step: usize,
        /// The attempt.
        n: u32,
        /// The message.
        message: MessageId,
    },
    /// Begins another turn of an attempt of which the turn before has ended, with this message. Conflict unless it has ended and is not
    /// held, or if [`MAX_EXECUTORS`] work already.
    NextTurn {
        /// The item.
        item: ItemId,
        /// The step.
        step: usize,
        /// The attempt.
        n: u32,
        /// The message.
        message: MessageId,
    },
    /// Stores the evidence of an attempt after its turn has ended, and the step's state after it. Conflict if it was judged.
    Judge {
        /// The item.
        item: ItemId,
        /// The step.
        step: usize,
        /// The attempt.
        n: u32,
        /// The verdict.
        verdict: String,
        /// The digest of what was left and shown.
        trace: String,
        /// What the checks have shown, as JSON.
        evidence: String,
        /// The new state of the step.
        state: StepState,
        /// When.
        at: Timestamp,
    },
    /// Lets a step that was judged wait again, and deletes its oldest attempts beyond this number.
    Rest {
        /// The item.
        item: ItemId,
        /// The step.
        step: usize,
        /// The most attempts that stay.
        keep: u32,
    },
    /// Counts a question to the planner.
    Consult {
        /// The item.
        item: ItemId,
    },
    /// Gives an item another plan and proposes it again: another round, without a question. Conflict if its state was changed
    /// in between, which [`Self::Move`] in the same batch checks.
    Replan(Box<NewCourse>),
    /// Gives a failed step the planner's advice and one more attempt.
    Advise {
        /// The item.
        item: ItemId,
        /// The step.
        step: usize,
        /// The advice.
        advice: String,
    },
    /// Adds a domain to an item, or removes it.
    Domain {
        /// The item.
        item: ItemId,
        /// The domain.
        domain: DomainTag,
        /// True if the item has it afterwards.
        is_set: bool,
    },
    /// Stores the report about an item.
    Report {
        /// The item.
        item: ItemId,
        /// The report.
        report: String,
    },
}

pub(crate) fn apply_work_op(conn: &Connection, op: &WorkOp) -> Result<(), StoreError> {
    match op {
        WorkOp::Propose(proposed) => propose(conn, &proposed.0, &proposed.1),
        WorkOp::NoteAsk { item, ask } => {
            let sql = "UPDATE work_item SET ask = ?2 WHERE id = ?1";
            require_item(*item, execute(conn, sql, params![item.to_string(), ask.as_str()])?)
        }
        WorkOp::Move(change) => move_item(conn, change),
        WorkOp::Require { item, version } => require_version(conn, *item, *version),
        WorkOp::Renew { item, attempts } => renew(conn, *item, *attempts),
        WorkOp::Begin { item, step, n, message, at } => begin(conn, (*item, *step, *n), *message, *at),
        WorkOp::EndTurn { message, exit, said, at } => end_turn(conn, *message, (*exit, said), *at),
        WorkOp::Hold { item, step, n } => hold(conn, (*item, *step, *n)),
        WorkOp::GoOn { item, step, n, message } => go_on(conn, (*item, *step, *n), *message),
        WorkOp::NextTurn { item, step, n, message } => next_turn(conn, (*item, *step, *n), *message),
        WorkOp::Judge { item, step, n, verdict, trace, evidence, state, at } => {
            judge(conn, (*item, *step, *n), [verdict, trace, evidence], *state, *at)
        }
        WorkOp::Rest { item, step, keep } => rest(conn, (*item, *step), *keep),
        WorkOp::Consult { item } => {
            let sql = "UPDATE work_item SET consultations = consultations + 1 WHERE id = ?1";
            require_item(*item, execute(conn, sql, [item.to_string()])?)
        }
        WorkOp::Replan(course) => replan::apply(conn, course),
        WorkOp::Advise { item, step, advice } => replan::advise(conn, (*item, *step), advice),
        WorkOp::Domain { item, domain, is_set } => domains::set_domain(conn, *item, domain, *is_set),
        WorkOp::Report { item, report } => {
            let sql = "UPDATE work_item SET report = ?2 WHERE id = ?1";
            require_item(*item, execute(conn, sql, params![item.to_string(), cut(report)])?)
        }
    }
}

fn propose(conn: &Connection, item: &WorkItem, steps: &[WorkStepRow]) -> Result<(), StoreError> {
    let sql = "SELECT count(*) AS n FROM work_item WHERE is_active = 1";
    let open = query_one(conn, sql, [], |row| get_uint(row, "n"))?.unwrap_or_default();
    if usize::try_from(open).is_ok_and(|open| open >= MAX_OPEN_ITEMS) {
        return Err(StoreError::TooLarge { what: "number of open work items", limit: MAX_OPEN_ITEMS });
    }
    if steps.len() > MAX_STEPS {
        return Err(StoreError::TooLarge { what: "number of steps of a work item", limit: MAX_STEPS });
    }
    for text in [&item.name, &item.title, &item.kind] {
        codec::check_bytes("name of a work item", text, MAX_NAME_BYTES)?;
    }
    codec::check_bytes("plan of a work item", &item.document, MAX_DOCUMENT_BYTES)?;
    let added = execute(
        conn,
        "INSERT OR IGNORE INTO work_item (id, name, kind, title, session, origin, goal, project, state, is_active,
         version, reason, document, ask, round, consultations, report, max_tokens, max_cost, created_at, changed_at, taint,
         domains)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 1, 0, ?10, ?11, ?12, 0, 0, '', ?13, ?14, ?15, ?15, ?16, ?17)",
        params![
            item.id.to_string(),
            item.name,
            item.kind,
            item.title,
            item.session.to_string(),
            item.origin.map(|id| id.to_string()),
            item.goal.map(|id| id.to_string()),
            item.project,
            item.state.name(),
            cut(&item.reason),
            item.document,
            item.ask.as_ref().map(AskId::as_str),
            item.max_tokens.map(|most| int(most.get())),
            item.max_cost.map(|most| int(most.get())),
            item.created_at.as_millis(),
            item.taint.as_str(),
            codec::to_json("domains", &item.domains)?,
        ],
    )?;
    if added == 0 {
        return Err(Conflict::Exists { what: "work item", id: item.id.to_string() }.into());
    }
    insert_steps(conn, item.id, (0_i64..).zip(steps))
}

fn insert_steps<'a>(
    conn: &Connection,
    item: ItemId,
    steps: impl Iterator<Item = (i64, &'a WorkStepRow)>,
) -> Result<(), StoreError> {
    for (n, step) in steps {
        codec::check_bytes("name of a step", &step.name, MAX_NAME_BYTES)?;
        codec::check_bytes("title of a step", &step.title, MAX_NAME_BYTES)?;
        execute(
            conn,
            "INSERT INTO work_step (item, n, name, title, after, has_executor, max_attempts, advice, state)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            params![
                item.to_string(),
                n,
                step.name,
                step.title,
                codec::to_json("step", &step.after)?,
                step.has_executor,
                step.max_attempts.max(1),
                cut(&step.advice),
                step.state.name(),
            ],
        )?;
    }
    Ok(())
}

fn move_item(conn: &Connection, change: &ItemMove) -> Result<(), StoreError> {
    let changed = execute(
        conn,
        "UPDATE work_item SET state = ?3, is_active = ?4, reason = ?5, changed_at = ?6, version = version + 1
         WHERE id = ?1 AND version = ?2",
        params![
            change.item.to_string(),
            int(change.version),
            change.state.name(),
            change.is_active,
            cut(&change.reason),
            change.at.as_millis(),
        ],
    )?;
    require_item(change.item, changed)
}

fn require_version(conn: &Connection, item: ItemId, version: u64) -> Result<(), StoreError> {
    let sql = "SELECT 1 FROM work_item WHERE id = ?1 AND version = ?2";
    let found = query_one(conn, sql, params![item.to_string(), int(version)], |_| Ok(()))?;
    require_item(item, usize::from(found.is_some()))
}

fn renew(conn: &Connection, item: ItemId, attempts: u32) -> Result<(), StoreError> {
    let sql =
        "UPDATE work_item SET round = round + 1, consultations = 0, report = '', ask = NULL WHERE id = ?1";
    require_item(item, execute(conn, sql, [item.to_string()])?)?;
    // Attempts that ran when the round ended count as not run, so that they are not checked later as attempts of the next round.
    let sql = "UPDATE work_attempt SET state = 'judged', verdict = 'not_run', is_held = 0
               WHERE item = ?1 AND state <> 'judged'";
    execute(conn, sql, [item.to_string()])?;
    // Attempts are counted over all rounds, so that none has the number of another.
    execute(
        conn,
        "UPDATE work_step SET state = ?2, max_attempts = ?3 +
         (SELECT count(*) FROM work_attempt WHERE work_attempt.item = work_step.item AND step = work_step.n)
         WHERE item = ?1 AND state <> ?4",
        params![item.to_string(), StepState::Waiting.name(), attempts.max(1), StepState::Done.name()],
    )?;
    Ok(())
}

fn require_item(item: ItemId, changed: usize) -> Result<(), StoreError> {
    if changed == 0 {
        return Err(Conflict::Missing { what: "work item as it was read", id: item.to_string() }.into());
    }
    Ok(())
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_WORDS_CHARS).collect()
}

fn cut_said(said: &str) -> &str {
    &said[..said.floor_char_boundary(MAX_SAID_BYTES)]
}

fn number(step: usize) -> i64 {
    i64::try_from(step).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
