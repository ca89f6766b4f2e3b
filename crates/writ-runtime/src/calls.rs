//! Performs the calls of the table in [`methods`], which are not conversations.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use writ_inspect::prepared::Prepared;
use writ_policy::budget::Spent;
use writ_policy::principal::Authenticated;
use writ_sandbox::changes::LeftOut;
use writ_store::approvals::AskState;
use writ_store::ledger::row::LedgerQuery;
use writ_store::reads::{
    AskReads as _, LedgerReads as _, QueueReads as _, SessionReads as _, UsageReads as _,
};
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
use crate::door::{Passage, RequestContext};
use crate::engine::Surface;
use crate::error::EngineError;
use crate::methods::{self as m, CallAccess, EngineMethod, Method, MethodCall};
use crate::outcome::outcome_entry;
use crate::perform::{self, Performed};
use crate::project::{self, Proposed};
use crate::services::Services;
use crate::session::Session;
use crate::{budget, closing, opening, passage, place, secrets};
use agents::{bless_agent, deploy_agent, retire_agent};

mod agents;

mod approvals;

mod fleet;

mod gates;

mod issued;

mod jobs;

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
    services: &Arc<Services>,
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
    dispatch_call(services, calling, MethodCall::read(method, params)?).await
}

/// Performs a call.
// tidy: table
async fn dispatch_call(
    services: &Arc<Services>,
    Calling { who, session, .. }: Calling<'_>,
    call: MethodCall,
) -> Result<Value, EngineError> {
    match call {
        MethodCall::Ping(NoParams {}) => as_json::<m::Ping>(Ok(Acknowledgement {})),
        MethodCall::Status(NoParams {}) => as_json::<m::Status>(engine_status(services).await),
        MethodCall::SessionsList(NoParams {}) => {
            as_json::<m::SessionsList>(sessions::list_sessions(services).await)
        }
        MethodCall::SessionsShow(name) => {
            as_json::<m::SessionsShow>(sessions::show_session(services, name).await)
        }
        MethodCall::SessionsClose(name) => {
            as_json::<m::SessionsClose>(sessions::close_session(services, name).await)
        }
        MethodCall::Diff(which) => as_json::<m::Diff>(show_diff(services, session, &which).await),
        MethodCall::Apply(which) => as_json::<m::Apply>(apply_changes(services, session, &which).await),
        MethodCall::UndoList(NoParams {}) => as_json::<m::UndoList>(approvals::list_undos(services).await),
        MethodCall::UndoLast(which) => {
            as_json::<m::UndoLast>(approvals::latest_undo(services, session, &which).await)
        }
        MethodCall::Undo(name) => as_json::<m::Undo>(approvals::undo_attempt(services, who, name).await),
        MethodCall::SandboxExec(command) => as_json::<m::SandboxExec>(sandbox_exec(services, command).await),
        MethodCall::ApprovalsList(filter) => {
            as_json::<m::ApprovalsList>(approvals::list_asks(services, filter).await)
        }
        MethodCall::ApprovalsShow(name) => {
            as_json::<m::ApprovalsShow>(approvals::show_ask(services, name).await)
        }
        MethodCall::ApprovalsReview(NoParams {}) => {
            as_json::<m::ApprovalsReview>(approvals::review_asks(services).await)
        }
        MethodCall::ApprovalsRestsOn(name) => {
            as_json::<m::ApprovalsRestsOn>(ledger::ask_rests_on(services, name.ask).await)
        }
        MethodCall::ApprovalsInForce(NoParams {}) => {
            as_json::<m::ApprovalsInForce>(in_force::approvals_in_force(services).await)
        }
        MethodCall::ApprovalsHosts(NoParams {}) => as_json::<m::ApprovalsHosts>(services.reach.hosts().await),
        MethodCall::ApprovalsRevoke(name) => {
            let revoked = in_force::revoke_approval(services, who, &name.ask).await;
            as_json::<m::ApprovalsRevoke>(revoked)
        }
        MethodCall::GatesShow(name) => as_json::<m::GatesShow>(Ok(gates::show_gate(services, &name))),
        MethodCall::GatesAnswer(decision) => {
            as_json::<m::GatesAnswer>(gates::answer_gate(services, decision))
        }
        MethodCall::GatesJudge(case) => as_json::<m::GatesJudge>(gates::judge_case(services, case).await),
        MethodCall::ApproversList(NoParams {}) => {
            as_json::<m::ApproversList>(services.passkeys.list_passkeys().await)
        }
        MethodCall::ApproversPermit(request) => {
            let permitted = services.passkeys.permit_enrolment(&request.grant);
            as_json::<m::ApproversPermit>(permitted.await)
        }
        MethodCall::ApproversRemove(name) => {
            let removed = services.passkeys.remove_approver(name.key).await;
            as_json::<m::ApproversRemove>(removed)
        }
        MethodCall::LedgerList(filter) => {
            as_json::<m::LedgerList>(ledger::list_entries(services, filter).await)
        }
        MethodCall::LedgerProof(name) => as_json::<m::LedgerProof>(ledger::prove_entry(services, name).await),
        MethodCall::LedgerRestsOn(name) => {
            as_json::<m::LedgerRestsOn>(ledger::rests_on(services, name).await)
        }
        MethodCall::LedgerErase(request) => {
            as_json::<m::LedgerErase>(ledger::erase_payloads(services, request).await)
        }
        MethodCall::KeysList(NoParams {}) => as_json::<m::KeysList>(keys::list_keys(services).await),
        MethodCall::KeysRevoke(request) => {
            as_json::<m::KeysRevoke>(keys::revoke_key(services, who, request).await)
        }
        MethodCall::KeysIssued(note) => as_json::<m::KeysIssued>(issued::note_base_key(services, note).await),
        MethodCall::KeysMint(request) => as_json::<m::KeysMint>(issued::mint_key(services, request).await),
        MethodCall::KeysNarrow(request) => {
            as_json::<m::KeysNarrow>(issued::narrow_key(services, request).await)
        }
        MethodCall::KeysRenew(pair) => as_json::<m::KeysRenew>(issued::renew_key(services, pair).await),
        MethodCall::AgentsBless(key) => as_json::<m::AgentsBless>(bless_agent(services, who, key).await),
        MethodCall::AgentsDeploy(key) => as_json::<m::AgentsDeploy>(deploy_agent(services, who, key).await),
        MethodCall::AgentsRetire(end) => as_json::<m::AgentsRetire>(retire_agent(services, who, end).await),
        MethodCall::OrdersIssue(request) => {
            as_json::<m::OrdersIssue>(orders::store_order(services, request).await)
        }
        MethodCall::OrdersOpen(name) => as_json::<m::OrdersOpen>(orders::open_order(services, name).await),
        MethodCall::OrdersList(NoParams {}) => as_json::<m::OrdersList>(orders::list_orders(services).await),
        MethodCall::MemorySearch(query) => {
            as_json::<m::MemorySearch>(memory::search_memories(services, &query).await)
        }
        MethodCall::MemoryAdd(fact) => as_json::<m::MemoryAdd>(memory::add_memory(services, fact).await),
        MethodCall::MemoryForget(name) => {
            as_json::<m::MemoryForget>(memory::forget_memory(services, name).await)
        }
        MethodCall::MemoryDrop(names) => {
            as_json::<m::MemoryDrop>(memory::drop_memories(services, names).await)
        }
        MethodCall::MemoryShow(name) => as_json::<m::MemoryShow>(memory::show_memory(services, name).await),
        MethodCall::MemoryEdit(edit) => as_json::<m::MemoryEdit>(memory::edit_memory(services, edit).await),
        MethodCall::MemoryPending(NoParams {}) => {
            as_json::<m::MemoryPending>(memory::pending_memories(services).await)
        }
        MethodCall::MemoryConfirm(answer) => {
            as_json::<m::MemoryConfirm>(memory::answer_memory(services, answer).await)
        }
        MethodCall::MemoryUndo(none) => as_json::<m::MemoryUndo>(memory::undo_memories(services, none).await),
        MethodCall::MemoryExport(page) => {
            as_json::<m::MemoryExport>(memory::export_memories(services, page).await)
        }
        MethodCall::MemoryImport(import) => {
            as_json::<m::MemoryImport>(memory::import_memories(services, import).await)
        }
        MethodCall::MemoryStats(NoParams {}) => {
            as_json::<m::MemoryStats>(memory::memory_figures(services).await)
        }
        MethodCall::JobsList(NoParams {}) => as_json::<m::JobsList>(jobs::list_jobs(services).await),
        MethodCall::FleetStatus(NoParams {}) => as_json::<m::FleetStatus>(fleet::show_fleet(services).await),
        MethodCall::FleetMessages(query) => {
            as_json::<m::FleetMessages>(fleet::list_said(services, query).await)
        }
        MethodCall::FleetAccess(case) => as_json::<m::FleetAccess>(fleet::list_holders(services, case).await),
        MethodCall::FleetTake(case) => as_json::<m::FleetTake>(fleet::take_case(services, who, case).await),
        MethodCall::FleetAnswer(said) => {
            as_json::<m::FleetAnswer>(fleet::answer_guest(services, who, said).await)
        }
        MethodCall::FleetBack(back) => as_json::<m::FleetBack>(fleet::return_case(services, who, back).await),
        MethodCall::FleetClose(end) => as_json::<m::FleetClose>(fleet::close_case(services, who, end).await),
        MethodCall::ModelsList(NoParams {}) => as_json::<m::ModelsList>(models::list_models(services)),
        MethodCall::ModelsTest(name) => as_json::<m::ModelsTest>(models::test_model(services, name).await),
        MethodCall::McpProbe(request) => as_json::<m::McpProbe>(mcp::probe_server(services, request).await),
        MethodCall::McpReload(request) => {
            as_json::<m::McpReload>(mcp::reload_servers(services, &request).await)
        }
        MethodCall::SecretsChanged(NoParams {}) => {
            let learned = secrets::learn_secrets(services).await;
            as_json::<m::SecretsChanged>(learned.map(|()| Acknowledgement {}))
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

async fn engine_status(services: &Services) -> Result<EngineStatus, EngineError> {
    let now = services.journal.clock.now();
    let day = services.journal.store.day_usage(services.journal.budget_day(now)).await?;
    let queue = services.journal.store.queue_depth().await?;
    let open_intents = services.journal.store.open_intents().await?;
    let running: Vec<RunningTurn> = services
        .sessions
        .loaded()
        .values()
        .flat_map(|session| {
            let turns = session.state().turns.clone().into_iter();
            let session = session.id;
            turns.map(move |running| RunningTurn { session, turn: running.turn, number: running.number })
        })
        .collect();
    let limit = services.config.budget.max_tokens_per_day;
    Ok(EngineStatus {
        installation: services.config.installation,
        epoch: services.config.epoch,
        agent: services.config.agent.clone(),
        posture: services.config.posture.clone(),
        started_at: services.life.started_at.to_string(),
        clock_behind_secs: services.journal.valid_now().time_since(now).as_secs(),
        model: services.outside.models.is_some(),
        model_found: services
            .outside
            .models
            .as_ref()
            .and_then(writ_models::Models::detected_model)
            .map(str::to_owned),
        policy: services.rules.in_force.digest(),
        running,
        turns_finished: services.life.turns_finished.load(Ordering::Relaxed),
        queue: QueueCounts { ready: queue.ready, leased: queue.leased, dead: queue.dead },
        open_asks: services.journal.store.asks(Some(AskState::Open), MAX_LISTED).await?.len(),
        sandboxes_ready: services.outside.sandbox.ready_count(),
        servers_running: services.servers.running(),
        case_router: services.life.fleet.get().is_some(),
        open_intents: open_intents
            .iter()
            .map(|open| OpenAttempt { attempt: open.attempt, entry: open.seq })
            .collect(),
        ledger: services.journal.store.ledger_size().await?,
        session: latest_session(services).await?,
        today: DaySpending {
            tokens: day.usage.total_tokens(),
            limit,
            paused: day.usage.total_tokens() >= limit,
            cost_micro_usd: all_priced(services, now).await?.then_some(day.cost),
        },
    })
}

/// Returns the spending of the session that was used last.
async fn latest_session(services: &Services) -> Result<Option<SessionSpending>, EngineError> {
    let Some(row) = services.journal.store.sessions(1).await?.pop() else { return Ok(None) };
    let session = services.sessions.get(row.id).await?;
    let used = budget::read_spent(services, &session, MicroUsd::ZERO, &[]).await?.session_tokens;
    let limit = services.config.budget.max_tokens_per_session;
    Ok(Some(SessionSpending { session: row.id, tokens: used, limit, paused: used >= limit }))
}

/// Returns true if the price of every model call of this day is known: a sum without some of them would be too low.
async fn all_priced(services: &Services, now: Timestamp) -> Result<bool, EngineError> {
    let query = LedgerQuery {
        event: Some("model_called".to_owned()),
        text: Some("\"cost\":null".to_owned()),
        since: Some(services.config.budget.day_begins(now)),
        limit: 1,
        ..LedgerQuery::default()
    };
    Ok(services.journal.store.ledger_search(&query).await?.is_empty())
}

/// Finds the session named; else the one that is joined; else the latest of the project; else the latest of all.
async fn find_session(
    which: &SessionOrProject,
    services: &Services,
    joined: Option<SessionId>,
) -> Result<Arc<Session>, EngineError> {
    if let Some(id) = which.session.or(joined) {
        return services.sessions.get(id).await;
    }
    let project = match &which.project {
        None => None,
        Some(path) => {
            let path = Path::new(path).canonicalize();
            let path = path.map_err(|error| EngineError::Project(error.to_string()))?;
            Some(path.to_string_lossy().into_owned())
        }
    };
    let rows = services.journal.store.sessions(MAX_LISTED).await?;
    let found = rows.into_iter().find(|row| match &project {
        None => row.project.is_some(),
        Some(project) => row.project.as_ref() == Some(project),
    });
    services.sessions.get(found.ok_or(EngineError::NoWork)?.id).await
}

async fn show_diff(
    services: &Services,
    joined: Option<SessionId>,
    which: &SessionOrProject,
) -> Result<ProjectDiff, EngineError> {
    let session = find_session(which, services, joined).await?;
    let diff = project::diff(services, &session, &services.life.stop_now).await?;
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
    services: &Arc<Services>,
    joined: Option<SessionId>,
    which: &SessionOrProject,
) -> Result<ApplyOutcome, EngineError> {
    let session = services.sessions.get(find_session(which, services, joined).await?.id).await?;
    let over = closing::stopping(services, &session, true);
    let place = place::outside_turn(services, session).await?;
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
async fn sandbox_exec(services: &Arc<Services>, wanted: SandboxRun) -> Result<SandboxOutcome, EngineError> {
    let session = match (&wanted.session, &wanted.project) {
        (Some(id), _) => services.sessions.open_one(*id).await?,
        (None, project) => {
            opening::open_session(services, project.as_deref(), false, false, Surface::Local).await?
        }
    };
    let over = session.state().over.child_token();
    let place = place::outside_turn(services, session).await?;
    // A stopping engine waits for it as for a turn.
    let _running = services.life.turns.token();
    let profile = if wanted.verification { ExecProfile::Verification } else { ExecProfile::Task };
    let prepared = Prepared {
        action: Action::Exec(Exec {
            argv: wanted.argv,
            cwd: writ_inspect::scope::WORK.to_owned(),
            env: Default::default(),
            stdin: None,
            timeout_ms: EXEC_TIMEOUT_MS,
            profile,
            hosts: Vec::new(),
        }),
        agent: services.config.agent.clone(),
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
    let standing = RequestContext {
        mode: place.session.mode(),
        ..RequestContext::of(&place.authority, Spent::default())
    };
    let permit = match passage::pass(services, prepared, standing).await? {
        Passage::Permit(permit) => permit,
        Passage::Denied(denial) => return Err(EngineError::Denied(denial.text)),
        Passage::Ask(ask) => return Err(EngineError::Denied(ask.reason)),
        Passage::Simulated(_) => return Ok(SandboxOutcome::Simulated { simulated: true }),
    };
    let attempt = permit.attempt();
    let Performed { prepared, mut outcome, mut ops, .. } = perform::perform(&place, *permit, &over).await?;
    let rendered = render_result(&prepared, &mut outcome, &services.journal.redactor);
    ops.push(services.journal.entry(place.session.id, None, outcome_entry(attempt, &rendered)));
    services.journal.store.commit(ops.into_relaxed()).await?;
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
