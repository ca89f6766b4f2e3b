//! Questions to the engine that are not conversations, by name.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use writ_policy::budget::Spent;
use writ_policy::enrolment::EnrolmentGrant;
use writ_policy::prepared::Prepared;
use writ_policy::principal::Authenticated;
use writ_store::approvals::AskState;
use writ_store::batch::{Batch, Op};
use writ_store::ledger::row::LedgerQuery;
use writ_tools::outcome::{ExecEnd, PerformedOutcome};
use writ_tools::render::render;
use writ_types::action::{Action, Exec, ExecProfile};
use writ_types::entry::Fact;
use writ_types::error::Exit;
use writ_types::id::{KeyId, SessionId};
use writ_types::taint::{Label, Taint};
use writ_types::unit::{MicroUsd, Timestamp};

use crate::act::{Place, outcome_entry};
use crate::core::Core;
use crate::engine::Surface;
use crate::error::EngineError;
use crate::methods;
use crate::passage::{Passage, Standing};
use crate::perform::{self, Performed};
use crate::project;
use crate::project::Proposed;
use crate::session::Session;

mod approvals;

mod gates;

mod issued;

mod keys;

mod ledger;

mod mcp;

mod memory;

mod models;

mod orders;

mod sessions;

/// The most rows that one answer lists.
const MAX_LISTED: usize = 500;
/// The most bytes of rows that one answer lists: half of what a frame takes.
const MAX_LISTED_BYTES: usize = writ_types::frame::MAX_FRAME_BYTES / 2;
/// How long `sandbox.exec` may run, in milliseconds.
const EXEC_TIMEOUT_MS: u64 = 30 * 60 * 1000;

/// Where a call comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A process of the home's owner on this machine.
    Terminal,
    /// A page or a program that has shown a secret: whoever has stolen that must not change who may approve.
    Elsewhere,
}

/// Who calls, from where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calling<'a> {
    pub(crate) who: &'a Authenticated<()>,
    pub(crate) caller: Caller,
    /// The session that the client has joined.
    pub(crate) session: Option<SessionId>,
}

/// Answers one call.
///
/// # Errors
///
/// If there is no such method, it may not be called from there, its parameters are wrong, or it cannot be done.
pub(crate) async fn call(
    core: &Arc<Core>,
    Calling { who, caller, session }: Calling<'_>,
    method: &str,
    params: Value,
) -> Result<Value, EngineError> {
    let no_method = || EngineError::NoMethod(method.chars().take(64).collect());
    match caller {
        Caller::Elsewhere if methods::TERMINAL_ONLY.contains(&method) => {
            return Err(EngineError::TerminalOnly(method.to_owned()));
        }
        Caller::Elsewhere if !methods::ANYWHERE.contains(&method) => return Err(no_method()),
        Caller::Elsewhere | Caller::Terminal => {}
    }
    match method {
        "ping" => Ok(json!({})),
        "status" => status(core),
        "sessions.list" => sessions::list(core),
        "sessions.show" => sessions::show(core, &read(method, params)?),
        "sessions.close" => sessions::close(core, read(method, params)?).await,
        "ledger.list" => ledger::list(core, read(method, params)?),
        "ledger.erase" => ledger::erase(core, read(method, params)?).await,
        "ledger.proof" => ledger::proof(core, &read(method, params)?),
        "ledger.rests_on" => ledger::rests_on(core, &read(method, params)?),
        "approvals.list" => approvals::list(core, &read(method, params)?),
        "approvals.show" => approvals::show(core, read(method, params)?),
        "approvals.review" => approvals::review(core),
        "approvals.rests_on" => ledger::ask_rests_on(core, read::<approvals::ShowAsk>(method, params)?.ask),
        "approvals.in_force" => core.approvals_in_force(),
        "approvals.hosts" => core.hosts(),
        "approvals.revoke" => {
            core.revoke_approval(who, &read::<approvals::ShowAsk>(method, params)?.ask).await
        }
        "undo" => approvals::undo(core, who, &read(method, params)?).await,
        "undo.list" => approvals::undos(core),
        "undo.last" => approvals::last(core, session, &read(method, params)?),
        "secrets.changed" => core.learn_secrets().await.map(|()| json!({})),
        "gates.show" => Ok(gates::show(core, &read(method, params)?)),
        "gates.answer" => gates::answer(core, read(method, params)?),
        "approvers.list" => core.list_passkeys(),
        "keys.list" => keys::list(core),
        "keys.revoke" => keys::revoke(core, who, read(method, params)?).await,
        "gates.judge" => gates::judge(core, read(method, params)?).await,
        "keys.issued" => issued::issued(core, read(method, params)?).await,
        "keys.mint" => issued::mint(core, read(method, params)?).await,
        "keys.narrow" => issued::narrow(core, read(method, params)?).await,
        "keys.renew" => issued::renew(core, read(method, params)?).await,
        "orders.issue" => orders::issue(core, read(method, params)?).await,
        "orders.open" => orders::open(core, &read(method, params)?).await,
        "orders.list" => orders::list(core),
        "approvers.permit" => core.permit_enrolment(&read::<PermitEnrolment>(method, params)?.grant),
        "approvers.remove" => core.remove_approver(read::<RemoveApprover>(method, params)?.key).await,
        "memory.search" => memory::search(core, &read(method, params)?),
        "memory.add" => memory::add(core, read(method, params)?).await,
        "memory.forget" => memory::forget(core, read(method, params)?).await,
        "diff" => diff(core, session, &read(method, params)?).await,
        "apply" => apply(core, session, &read(method, params)?).await,
        "mcp.probe" => mcp::probe(core, read(method, params)?).await,
        "mcp.reload" => mcp::reload(core, &read(method, params)?).await,
        "models.list" => models::list(core),
        "models.test" => models::test(core, read(method, params)?).await,
        "sandbox.exec" => sandbox_exec(core, read(method, params)?).await,
        _ => Err(no_method()),
    }
}

fn read<T: DeserializeOwned>(method: &str, params: Value) -> Result<T, EngineError> {
    let params = if params.is_null() { json!({}) } else { params };
    serde_json::from_value(params)
        .map_err(|error| EngineError::Params { method: method.to_owned(), why: error.to_string() })
}

fn value<T: serde::Serialize>(result: &T) -> Result<Value, EngineError> {
    serde_json::to_value(result)
        .map_err(|error| EngineError::Params { method: "result".to_owned(), why: error.to_string() })
}

fn status(core: &Core) -> Result<Value, EngineError> {
    let now = core.clock.now();
    let day = core.store.day_usage(core.budget_day(now))?;
    let queue = core.store.queue_depth()?;
    let open_intents = core.store.open_intents()?;
    let running: Vec<Value> = core
        .sessions()
        .values()
        .filter_map(|session| {
            let running = session.state().running.clone()?;
            Some(json!({ "session": session.id, "turn": running.turn, "number": running.number }))
        })
        .collect();
    Ok(json!({
        "installation": core.config.installation,
        "epoch": core.config.epoch,
        "agent": core.config.agent,
        "posture": core.config.posture,
        "started_at": core.started_at.to_string(),
        "clock_behind_secs": core.valid_now().since(now).as_secs(),
        "model": core.models.is_some(),
        "model_found": core.models.as_ref().and_then(writ_models::Models::found),
        "policy": core.rules.digest(),
        "running": running,
        "turns_finished": core.turns_finished.load(Ordering::Relaxed),
        "queue": { "ready": queue.ready, "leased": queue.leased, "dead": queue.dead },
        "open_asks": core.store.asks(Some(AskState::Open), MAX_LISTED)?.len(),
        "sandboxes_ready": core.sandbox.ready(),
        "servers_running": core.servers.running(),
        "open_intents": open_intents.iter().map(|open| json!({
            "attempt": open.attempt, "entry": open.seq,
        })).collect::<Vec<_>>(),
        "ledger": core.store.ledger_size()?,
        "session": latest_session(core)?,
        "today": {
            "tokens": day.usage.total(),
            "limit": core.config.budget.max_tokens_per_day,
            "paused": day.usage.total() >= core.config.budget.max_tokens_per_day,
            "cost_micro_usd": if all_priced(core, now)? { json!(day.cost) } else { Value::Null },
        },
    }))
}

/// What the session that was used last has taken of its tokens; `null`: there is none.
fn latest_session(core: &Core) -> Result<Value, EngineError> {
    let Some(row) = core.store.sessions(1)?.pop() else { return Ok(Value::Null) };
    let session = core.session(row.id)?;
    let used = core.spent(&session, MicroUsd::ZERO, &[])?.session_tokens;
    let limit = core.config.budget.max_tokens_per_session;
    Ok(json!({ "session": row.id, "tokens": used, "limit": limit, "paused": used >= limit }))
}

/// Whether the price of every model call of this day is known: a sum without some of them would be too low.
fn all_priced(core: &Core, now: Timestamp) -> Result<bool, EngineError> {
    let query = LedgerQuery {
        event: Some("model_called".to_owned()),
        text: Some("\"cost\":null".to_owned()),
        since: Some(core.config.budget.day_begins(now)),
        limit: 1,
        ..LedgerQuery::default()
    };
    Ok(core.store.ledger_search(&query)?.is_empty())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PermitEnrolment {
    grant: EnrolmentGrant,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RemoveApprover {
    key: KeyId,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WhichSession {
    #[serde(default)]
    session: Option<SessionId>,
    #[serde(default)]
    project: Option<String>,
}

impl WhichSession {
    /// The session named; else the one that is joined; else the latest of the project; else the latest of all.
    fn find(&self, core: &Core, joined: Option<SessionId>) -> Result<Arc<Session>, EngineError> {
        if let Some(id) = self.session.or(joined) {
            return core.session(id);
        }
        let project = match &self.project {
            None => None,
            Some(path) => {
                let path = Path::new(path).canonicalize();
                let path = path.map_err(|error| EngineError::Project(error.to_string()))?;
                Some(path.to_string_lossy().into_owned())
            }
        };
        let rows = core.store.sessions(MAX_LISTED)?;
        let found = rows.into_iter().find(|row| match &project {
            None => row.project.is_some(),
            Some(project) => row.project.as_ref() == Some(project),
        });
        core.session(found.ok_or(EngineError::NoWork)?.id)
    }
}

async fn diff(core: &Core, joined: Option<SessionId>, which: &WhichSession) -> Result<Value, EngineError> {
    let session = which.find(core, joined)?;
    let diff = core.diff(&session, &core.stop_now).await?;
    Ok(json!({
        "session": session.id,
        "project": session.terms.project,
        "text": diff.text,
        "changes": diff.changes.changes,
        "left_out": diff.changes.left_out,
    }))
}

async fn apply(
    core: &Arc<Core>,
    joined: Option<SessionId>,
    which: &WhichSession,
) -> Result<Value, EngineError> {
    let session = core.session(which.find(core, joined)?.id)?;
    let over = core.stopping(&session, true);
    let place = core.outside_turn(session).await?;
    let (ask, applied) = match project::propose(&place, &over).await? {
        Proposed::Asked(ask) => (Some(ask), None),
        Proposed::Settled(settled) if settled.exit == Exit::Done => (None, settled.text()),
        Proposed::Settled(settled) => {
            let text = settled.text().unwrap_or_default();
            return Err(EngineError::NotApplied { exit: settled.exit, text });
        }
        Proposed::Simulated => {
            let text = "Not applied: this session only simulates.".to_owned();
            return Err(EngineError::NotApplied { exit: Exit::Denied, text });
        }
        Proposed::Refused { exit, text } => return Err(EngineError::NotApplied { exit, text }),
    };
    Ok(json!({ "session": place.session.id, "ask_id": ask, "applied": applied }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SandboxExec {
    argv: Vec<String>,
    #[serde(default)]
    session: Option<SessionId>,
    #[serde(default)]
    project: Option<String>,
    /// On a read-only snapshot, with `PATH` and `HOME` only.
    #[serde(default)]
    verification: bool,
}

/// Runs a command of the owner in the sandbox of a session, through the door like any other.
async fn sandbox_exec(core: &Arc<Core>, wanted: SandboxExec) -> Result<Value, EngineError> {
    let session = match (&wanted.session, &wanted.project) {
        (Some(id), _) => core.open_one(*id)?,
        (None, project) => core.open_session(project.as_deref(), false, false, Surface::Local).await?,
    };
    let over = session.state().over.child_token();
    let place = core.outside_turn(session).await?;
    // A stopping engine waits for it as for a turn.
    let _running = core.turns.token();
    let profile = if wanted.verification { ExecProfile::Verification } else { ExecProfile::Task };
    let prepared = Prepared {
        action: Action::Exec(Exec {
            argv: wanted.argv,
            cwd: writ_policy::scope::WORK.to_owned(),
            env: Default::default(),
            stdin: None,
            timeout_ms: EXEC_TIMEOUT_MS,
            profile,
            hosts: Vec::new(),
        }),
        agent: core.config.agent.clone(),
        session: Some(place.session.id),
        turn: None,
        turn_number: 0,
        call: None,
        tool: "sandbox exec".to_owned(),
        sinks: Vec::new(),
        label: Label::new(Taint::Owner),
        bindings: Default::default(),
        idempotent: false,
        intent: "run a command of the owner".to_owned(),
    };
    let standing = Standing {
        authority: &place.authority,
        spent: Spent::default(),
        approval: None,
        task: false,
        mode: place.session.mode(),
        origins: None,
    };
    let permit = match core.pass(prepared, standing).await? {
        Passage::Permit(permit) => permit,
        Passage::Denied(denial) => return Err(EngineError::Denied(denial.text)),
        Passage::Ask(ask) => return Err(EngineError::Denied(ask.reason)),
        Passage::Simulated(_) => return Ok(json!({ "simulated": true })),
    };
    let attempt = permit.attempt();
    let Performed { prepared, mut outcome, mut ops, .. } = perform::perform(&place, *permit, &over).await?;
    let rendered = render(&prepared, &mut outcome, &core.redactor);
    ops.push(core.entry(place.session.id, None, outcome_entry(attempt, &rendered)));
    core.store.commit(Batch::relaxed(ops)).await?;
    let PerformedOutcome::Exec { end, stdout, stderr, dropped_bytes } = outcome else {
        return Err(EngineError::Denied(rendered.text.into_string()));
    };
    let (code, ended) = match end {
        ExecEnd::Code(code) => (code, "exited"),
        ExecEnd::Signal(signal) => (128_i32.saturating_add(signal), "signal"),
        ExecEnd::TimedOut(_) => (124, "time"),
        ExecEnd::Limit(limit) => (137, limit),
        ExecEnd::Cancelled => (130, "cancelled"),
    };
    Ok(json!({
        "session": place.session.id,
        "exit_code": code,
        "ended": ended,
        "stdout": stdout,
        "stderr": stderr,
        "dropped_bytes": dropped_bytes,
    }))
}

impl Core {
    /// An entry of the owner's own doing, outside every session.
    pub(crate) fn own_entry(&self, fact: Fact) -> Op {
        Op::Append(Box::new(writ_types::entry::Entry {
            at: self.clock.now(),
            session: None,
            turn: None,
            turn_number: 0,
            fact: self.scrubbed(fact),
        }))
    }

    /// A place for what the owner does in a session outside its turns.
    pub(crate) async fn outside_turn(self: &Arc<Self>, session: Arc<Session>) -> Result<Place, EngineError> {
        let (authority, keyed) = self.authorise(&session, None)?;
        if let Some(keyed) = keyed {
            self.store.commit(Batch::relaxed(vec![keyed])).await?;
            session.state().authority = Some(Arc::clone(&authority));
        }
        Ok(Place {
            core: Arc::clone(self),
            session,
            turn: None,
            number: 0,
            authority,
            origins: None,
            spent: Spent::default(),
        })
    }
}
