//! Performs the calls of the table in [`methods`], which are not conversations.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use writ_policy::budget::Spent;
use writ_policy::prepared::Prepared;
use writ_policy::principal::Authenticated;
use writ_sandbox::changes::LeftOut;
use writ_store::approvals::AskState;
use writ_store::batch::Batch;
use writ_store::ledger::row::LedgerQuery;
use writ_tools::outcome::{ExecEnd, PerformedOutcome};
use writ_tools::render::render_result;
use writ_types::action::{Action, Exec, ExecProfile};
use writ_types::api::project::{
    ApplyOutcome, ExcludedFile, ProjectDiff, SandboxOutcome, SandboxRun, SessionOrProject,
};
use writ_types::api::status::{
    DaySpending, EngineStatus, OpenAttempt, QueueCounts, RunningTurn, SessionSpending,
};
use writ_types::api::{Acknowledgement, NoParams};
use writ_types::error::Exit;
use writ_types::id::SessionId;
use writ_types::taint::{Label, Taint};
use writ_types::unit::{MicroUsd, Timestamp};

use crate::answers::in_force;
use crate::door::{Passage, Standing};
use crate::engine::Surface;
use crate::error::EngineError;
use crate::methods::{self, CallAccess, EngineMethod, Method, MethodCall};
use crate::outcome::outcome_entry;
use crate::perform::{self, Performed};
use crate::project::{self, Proposed};
use crate::services::Services;
use crate::session::Session;
use crate::{budget, closing, opening, passage, place, secrets};

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
/// The longest time that `sandbox.exec` may run, in milliseconds.
const EXEC_TIMEOUT_MS: u64 = 30 * 60 * 1000;

/// Origin of a call, which limits what it may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A process of the home's owner on this machine.
    Terminal,
    /// A page or a program that has presented a secret. The secret may be stolen, so such a caller must not
    /// change who may approve.
    Elsewhere,
}

/// The identity and origin of a caller.
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
pub(crate) async fn call_method(
    core: &Arc<Services>,
    calling: Calling<'_>,
    method: &str,
    params: Value,
) -> Result<Value, EngineError> {
    let Some(method) = Method::find(method) else {
        return Err(EngineError::NoMethod(method.chars().take(64).collect()));
    };
    match (calling.caller, method.access()) {
        (Caller::Elsewhere, CallAccess::Terminal) => {
            return Err(EngineError::TerminalOnly(method.name().to_owned()));
        }
        (Caller::Elsewhere, CallAccess::Read | CallAccess::Change(_)) | (Caller::Terminal, _) => {}
    }
    dispatch_call(core, calling, MethodCall::read(method, params)?).await
}

/// Performs a call.
// tidy: table
async fn dispatch_call(
    core: &Arc<Services>,
    Calling { who, session, .. }: Calling<'_>,
    call: MethodCall,
) -> Result<Value, EngineError> {
    match call {
        MethodCall::Ping(NoParams {}) => as_json::<methods::Ping>(Ok(Acknowledgement {})),
        MethodCall::Status(NoParams {}) => as_json::<methods::Status>(engine_status(core)),
        MethodCall::SessionsList(NoParams {}) => {
            as_json::<methods::SessionsList>(sessions::list_sessions(core))
        }
        MethodCall::SessionsShow(name) => {
            as_json::<methods::SessionsShow>(sessions::show_session(core, name))
        }
        MethodCall::SessionsClose(name) => {
            as_json::<methods::SessionsClose>(sessions::close_session(core, name).await)
        }
        MethodCall::Diff(which) => as_json::<methods::Diff>(show_diff(core, session, &which).await),
        MethodCall::Apply(which) => as_json::<methods::Apply>(apply_changes(core, session, &which).await),
        MethodCall::UndoList(NoParams {}) => as_json::<methods::UndoList>(approvals::list_undos(core)),
        MethodCall::UndoLast(which) => {
            as_json::<methods::UndoLast>(approvals::latest_undo(core, session, &which))
        }
        MethodCall::Undo(name) => as_json::<methods::Undo>(approvals::undo_attempt(core, who, name).await),
        MethodCall::SandboxExec(command) => {
            as_json::<methods::SandboxExec>(sandbox_exec(core, command).await)
        }
        MethodCall::ApprovalsList(filter) => {
            as_json::<methods::ApprovalsList>(approvals::list_asks(core, filter))
        }
        MethodCall::ApprovalsShow(name) => as_json::<methods::ApprovalsShow>(approvals::show_ask(core, name)),
        MethodCall::ApprovalsReview(NoParams {}) => {
            as_json::<methods::ApprovalsReview>(approvals::review_asks(core))
        }
        MethodCall::ApprovalsRestsOn(name) => {
            as_json::<methods::ApprovalsRestsOn>(ledger::ask_rests_on(core, name.ask))
        }
        MethodCall::ApprovalsInForce(NoParams {}) => {
            as_json::<methods::ApprovalsInForce>(in_force::approvals_in_force(core).and_then(from_json))
        }
        MethodCall::ApprovalsHosts(NoParams {}) => {
            as_json::<methods::ApprovalsHosts>(core.reach.hosts().and_then(from_json))
        }
        MethodCall::ApprovalsRevoke(name) => {
            let revoked = in_force::revoke_approval(core, who, &name.ask).await;
            as_json::<methods::ApprovalsRevoke>(revoked.and_then(from_json))
        }
        MethodCall::GatesShow(name) => as_json::<methods::GatesShow>(Ok(gates::show_gate(core, &name))),
        MethodCall::GatesAnswer(decision) => {
            as_json::<methods::GatesAnswer>(gates::answer_gate(core, decision))
        }
        MethodCall::GatesJudge(case) => as_json::<methods::GatesJudge>(gates::judge_case(core, case).await),
        MethodCall::ApproversList(NoParams {}) => {
            as_json::<methods::ApproversList>(core.passkeys.list_passkeys().and_then(from_json))
        }
        MethodCall::ApproversPermit(request) => {
            let permitted = core.passkeys.permit_enrolment(&request.grant);
            as_json::<methods::ApproversPermit>(permitted.and_then(from_json))
        }
        MethodCall::ApproversRemove(name) => {
            let removed = core.passkeys.remove_approver(name.key).await;
            as_json::<methods::ApproversRemove>(removed.and_then(from_json))
        }
        MethodCall::LedgerList(filter) => as_json::<methods::LedgerList>(ledger::list_entries(core, filter)),
        MethodCall::LedgerProof(name) => as_json::<methods::LedgerProof>(ledger::prove_entry(core, name)),
        MethodCall::LedgerRestsOn(name) => as_json::<methods::LedgerRestsOn>(ledger::rests_on(core, name)),
        MethodCall::LedgerErase(request) => {
            as_json::<methods::LedgerErase>(ledger::erase_payloads(core, request).await)
        }
        MethodCall::KeysList(NoParams {}) => as_json::<methods::KeysList>(keys::list_keys(core)),
        MethodCall::KeysRevoke(request) => {
            as_json::<methods::KeysRevoke>(keys::revoke_key(core, who, request).await)
        }
        MethodCall::KeysIssued(request) => {
            as_json::<methods::KeysIssued>(issued::note_base_key(core, request).await)
        }
        MethodCall::KeysMint(request) => as_json::<methods::KeysMint>(issued::mint_key(core, request).await),
        MethodCall::KeysNarrow(request) => {
            as_json::<methods::KeysNarrow>(issued::narrow_key(core, request).await)
        }
        MethodCall::KeysRenew(pair) => as_json::<methods::KeysRenew>(issued::renew_key(core, pair).await),
        MethodCall::OrdersIssue(request) => {
            as_json::<methods::OrdersIssue>(orders::store_order(core, request).await)
        }
        MethodCall::OrdersOpen(name) => as_json::<methods::OrdersOpen>(orders::open_order(core, name).await),
        MethodCall::OrdersList(NoParams {}) => as_json::<methods::OrdersList>(orders::list_orders(core)),
        MethodCall::MemorySearch(query) => {
            as_json::<methods::MemorySearch>(memory::search_memories(core, &query))
        }
        MethodCall::MemoryAdd(fact) => as_json::<methods::MemoryAdd>(memory::add_memory(core, fact).await),
        MethodCall::MemoryForget(name) => {
            as_json::<methods::MemoryForget>(memory::forget_memory(core, name).await)
        }
        MethodCall::ModelsList(NoParams {}) => as_json::<methods::ModelsList>(models::list_models(core)),
        MethodCall::ModelsTest(name) => as_json::<methods::ModelsTest>(models::test_model(core, name).await),
        MethodCall::McpProbe(request) => as_json::<methods::McpProbe>(mcp::probe_server(core, request).await),
        MethodCall::McpReload(request) => {
            as_json::<methods::McpReload>(mcp::reload_servers(core, &request).await)
        }
        MethodCall::SecretsChanged(NoParams {}) => {
            let learned = secrets::learn_secrets(core).await;
            as_json::<methods::SecretsChanged>(learned.map(|()| Acknowledgement {}))
        }
    }
}

/// Writes the answer of a method as JSON.
fn as_json<M: EngineMethod>(answer: Result<M::Answer, EngineError>) -> Result<Value, EngineError> {
    to_json(&answer?)
}

fn to_json<T: Serialize>(result: &T) -> Result<Value, EngineError> {
    serde_json::to_value(result)
        .map_err(|error| EngineError::Params { method: "result".to_owned(), why: error.to_string() })
}

/// Reads an answer that was made as JSON.
fn from_json<T: DeserializeOwned>(value: Value) -> Result<T, EngineError> {
    serde_json::from_value(value)
        .map_err(|error| EngineError::Params { method: "result".to_owned(), why: error.to_string() })
}

fn engine_status(core: &Services) -> Result<EngineStatus, EngineError> {
    let now = core.journal.clock.now();
    let day = core.journal.store.day_usage(core.journal.budget_day(now))?;
    let queue = core.journal.store.queue_depth()?;
    let open_intents = core.journal.store.open_intents()?;
    let running: Vec<RunningTurn> = core
        .sessions
        .loaded()
        .values()
        .filter_map(|session| {
            let running = session.state().running.clone()?;
            Some(RunningTurn { session: session.id, turn: running.turn, number: running.number })
        })
        .collect();
    let limit = core.config.budget.max_tokens_per_day;
    Ok(EngineStatus {
        installation: core.config.installation,
        epoch: core.config.epoch,
        agent: core.config.agent.clone(),
        posture: core.config.posture.clone(),
        started_at: core.life.started_at.to_string(),
        clock_behind_secs: core.journal.valid_now().time_since(now).as_secs(),
        model: core.outside.models.is_some(),
        model_found: core
            .outside
            .models
            .as_ref()
            .and_then(writ_models::Models::detected_model)
            .map(str::to_owned),
        policy: core.rules.in_force.digest(),
        running,
        turns_finished: core.life.turns_finished.load(Ordering::Relaxed),
        queue: QueueCounts { ready: queue.ready, leased: queue.leased, dead: queue.dead },
        open_asks: core.journal.store.asks(Some(AskState::Open), MAX_LISTED)?.len(),
        sandboxes_ready: core.outside.sandbox.ready_count(),
        servers_running: core.servers.running(),
        open_intents: open_intents
            .iter()
            .map(|open| OpenAttempt { attempt: open.attempt, entry: open.seq })
            .collect(),
        ledger: core.journal.store.ledger_size()?,
        session: latest_session(core)?,
        today: DaySpending {
            tokens: day.usage.total_tokens(),
            limit,
            paused: day.usage.total_tokens() >= limit,
            cost_micro_usd: all_priced(core, now)?.then_some(day.cost),
        },
    })
}

/// Returns the spending of the session that was used last.
fn latest_session(core: &Services) -> Result<Option<SessionSpending>, EngineError> {
    let Some(row) = core.journal.store.sessions(1)?.pop() else { return Ok(None) };
    let session = core.sessions.get(row.id)?;
    let used = budget::read_spent(core, &session, MicroUsd::ZERO, &[])?.session_tokens;
    let limit = core.config.budget.max_tokens_per_session;
    Ok(Some(SessionSpending { session: row.id, tokens: used, limit, paused: used >= limit }))
}

/// Returns true if the price of every model call of this day is known: a sum without some of them would be too low.
fn all_priced(core: &Services, now: Timestamp) -> Result<bool, EngineError> {
    let query = LedgerQuery {
        event: Some("model_called".to_owned()),
        text: Some("\"cost\":null".to_owned()),
        since: Some(core.config.budget.day_begins(now)),
        limit: 1,
        ..LedgerQuery::default()
    };
    Ok(core.journal.store.ledger_search(&query)?.is_empty())
}

/// Finds the session named; else the one that is joined; else the latest of the project; else the latest of all.
fn find_session(
    which: &SessionOrProject,
    core: &Services,
    joined: Option<SessionId>,
) -> Result<Arc<Session>, EngineError> {
    if let Some(id) = which.session.or(joined) {
        return core.sessions.get(id);
    }
    let project = match &which.project {
        None => None,
        Some(path) => {
            let path = Path::new(path).canonicalize();
            let path = path.map_err(|error| EngineError::Project(error.to_string()))?;
            Some(path.to_string_lossy().into_owned())
        }
    };
    let rows = core.journal.store.sessions(MAX_LISTED)?;
    let found = rows.into_iter().find(|row| match &project {
        None => row.project.is_some(),
        Some(project) => row.project.as_ref() == Some(project),
    });
    core.sessions.get(found.ok_or(EngineError::NoWork)?.id)
}

async fn show_diff(
    core: &Services,
    joined: Option<SessionId>,
    which: &SessionOrProject,
) -> Result<ProjectDiff, EngineError> {
    let session = find_session(which, core, joined)?;
    let diff = project::diff(core, &session, &core.life.stop_now).await?;
    Ok(ProjectDiff {
        session: session.id,
        project: session.terms.project.clone(),
        text: diff.text,
        changes: diff.changes.changes,
        left_out: diff.changes.left_out.into_iter().map(excluded_file).collect::<Result<_, _>>()?,
    })
}

fn excluded_file(left_out: LeftOut) -> Result<ExcludedFile, EngineError> {
    Ok(ExcludedFile { shown: left_out.shown, reason: from_json(to_json(&left_out.reason)?)? })
}

async fn apply_changes(
    core: &Arc<Services>,
    joined: Option<SessionId>,
    which: &SessionOrProject,
) -> Result<ApplyOutcome, EngineError> {
    let session = core.sessions.get(find_session(which, core, joined)?.id)?;
    let over = closing::stopping(core, &session, true);
    let place = place::outside_turn(core, session).await?;
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
    Ok(ApplyOutcome { session: place.session.id, ask_id: ask, applied })
}

/// Runs a command of the owner in the sandbox of a session, through the door like any other.
async fn sandbox_exec(core: &Arc<Services>, wanted: SandboxRun) -> Result<SandboxOutcome, EngineError> {
    let session = match (&wanted.session, &wanted.project) {
        (Some(id), _) => core.sessions.open_one(*id)?,
        (None, project) => {
            opening::open_session(core, project.as_deref(), false, false, Surface::Local).await?
        }
    };
    let over = session.state().over.child_token();
    let place = place::outside_turn(core, session).await?;
    // A stopping engine waits for it as for a turn.
    let _running = core.life.turns.token();
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
    let standing =
        Standing { mode: place.session.mode(), ..Standing::of(&place.authority, Spent::default()) };
    let permit = match passage::pass(core, prepared, standing).await? {
        Passage::Permit(permit) => permit,
        Passage::Denied(denial) => return Err(EngineError::Denied(denial.text)),
        Passage::Ask(ask) => return Err(EngineError::Denied(ask.reason)),
        Passage::Simulated(_) => return Ok(SandboxOutcome::Simulated { simulated: true }),
    };
    let attempt = permit.attempt();
    let Performed { prepared, mut outcome, mut ops, .. } = perform::perform(&place, *permit, &over).await?;
    let rendered = render_result(&prepared, &mut outcome, &core.journal.redactor);
    ops.push(core.journal.entry(place.session.id, None, outcome_entry(attempt, &rendered)));
    core.journal.store.commit(Batch::relaxed(ops)).await?;
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
    Ok(SandboxOutcome::Ran {
        session: place.session.id,
        exit_code: code,
        ended: ended.to_owned(),
        stdout,
        stderr,
        dropped_bytes,
    })
}
