//! Performs the calls of the table in [`methods`], which are not conversations.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use writ_inspect::prepared::Prepared;
use writ_policy::budget::Spent;
use writ_policy::principal::Authenticated;
use writ_sandbox::changes::LeftOut;
use writ_store::reads::SessionReads as _;
use writ_tools::outcome::{ExecEnd, PerformedOutcome};
use writ_tools::render::render_result;
use writ_types::action::{Action, Exec, ExecProfile};
use writ_types::api::project::{
    ApplyOutcome, ExcludedFile, ProjectDiff, SandboxOutcome, SandboxRun, SessionOrProject,
};
use writ_types::api::{Acknowledgement, NoParams};
use writ_types::error::Exit;
use writ_types::id::SessionId;
use writ_types::taint::{Label, Taint};

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
use crate::work::people;
use crate::{closing, opening, passage, place, secrets};
use agents::{bless_agent, deploy_agent, retire_agent};

mod agents;

mod approvals;

pub(crate) mod archive;

mod budget;

mod cadence;

mod cassette;

mod context;

mod files;

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

mod replay;

mod sessions;

mod status;

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

/// Waits for the answer of a method, and writes it as JSON.
macro_rules! answer {
    ($method:ident, $work:expr) => {
        as_json::<m::$method>($work.await)
    };
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
        MethodCall::Status(NoParams {}) => as_json::<m::Status>(status::engine_status(services).await),
        MethodCall::SessionsList(filter) => {
            as_json::<m::SessionsList>(sessions::list_sessions(services, filter).await)
        }
        MethodCall::SessionsShow(name) => {
            as_json::<m::SessionsShow>(sessions::show_session(services, name).await)
        }
        MethodCall::SessionsClose(name) => {
            as_json::<m::SessionsClose>(sessions::close_session(services, name).await)
        }
        MethodCall::SessionsSearch(query) => {
            as_json::<m::SessionsSearch>(archive::search_sessions(services, query).await)
        }
        MethodCall::SessionsHistory(query) => {
            as_json::<m::SessionsHistory>(archive::show_history(services, query).await)
        }
        MethodCall::SessionsUsage(name) => {
            as_json::<m::SessionsUsage>(archive::show_usage(services, name).await)
        }
        MethodCall::SessionsRename(title) => {
            as_json::<m::SessionsRename>(archive::rename_session(services, title).await)
        }
        MethodCall::SessionsFork(fork) => {
            as_json::<m::SessionsFork>(archive::fork_session(services, fork).await)
        }
        MethodCall::SessionsAgent(agent) => {
            as_json::<m::SessionsAgent>(archive::choose_agent(services, agent).await)
        }
        MethodCall::SessionsDelete(name) => {
            as_json::<m::SessionsDelete>(archive::delete_session(services, name).await)
        }
        MethodCall::SessionsRestore(name) => {
            as_json::<m::SessionsRestore>(archive::restore_session(services, name).await)
        }
        MethodCall::SessionsErase(name) => {
            as_json::<m::SessionsErase>(archive::erase_session(services, name).await)
        }
        MethodCall::SessionsCassette(query) => {
            as_json::<m::SessionsCassette>(cassette::read_cassette(services, query).await)
        }
        MethodCall::SessionsReplay(query) => {
            as_json::<m::SessionsReplay>(replay::replay_session(services, query).await)
        }
        MethodCall::AgentsNamed(NoParams {}) => as_json::<m::AgentsNamed>(Ok(archive::list_named(services))),
        MethodCall::Diff(which) => as_json::<m::Diff>(show_diff(services, session, &which).await),
        MethodCall::Apply(which) => as_json::<m::Apply>(apply_changes(services, session, &which).await),
        MethodCall::UndoList(NoParams {}) => as_json::<m::UndoList>(approvals::list_undos(services).await),
        MethodCall::UndoLast(which) => {
            as_json::<m::UndoLast>(approvals::latest_undo(services, session, &which).await)
        }
        MethodCall::Undo(name) => as_json::<m::Undo>(approvals::undo_attempt(services, who, name).await),
        MethodCall::SandboxExec(command) => as_json::<m::SandboxExec>(sandbox_exec(services, command).await),
        MethodCall::ApprovalsList(filter) => answer!(ApprovalsList, approvals::list_asks(services, filter)),
        MethodCall::ApprovalsShow(name) => answer!(ApprovalsShow, approvals::show_ask(services, name)),
        MethodCall::ApprovalsReview(NoParams {}) => {
            answer!(ApprovalsReview, approvals::review_asks(services))
        }
        MethodCall::ApprovalsCadence(NoParams {}) => {
            as_json::<m::ApprovalsCadence>(cadence::measure_cadence(services).await)
        }
        MethodCall::ApprovalsRestsOn(name) => {
            answer!(ApprovalsRestsOn, ledger::ask_rests_on(services, name.ask))
        }
        MethodCall::ApprovalsInForce(NoParams {}) => {
            answer!(ApprovalsInForce, in_force::approvals_in_force(services))
        }
        MethodCall::ApprovalsHosts(NoParams {}) => as_json::<m::ApprovalsHosts>(services.reach.hosts().await),
        MethodCall::ApprovalsRevoke(name) => {
            as_json::<m::ApprovalsRevoke>(in_force::revoke_approval(services, who, &name.ask).await)
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
            as_json::<m::ApproversPermit>(services.passkeys.permit_enrolment(&request.grant).await)
        }
        MethodCall::ApproversRemove(name) => {
            as_json::<m::ApproversRemove>(services.passkeys.remove_approver(name.key).await)
        }
        MethodCall::LedgerList(filter) => answer!(LedgerList, ledger::list_entries(services, filter)),
        MethodCall::LedgerProof(name) => as_json::<m::LedgerProof>(ledger::prove_entry(services, name).await),
        MethodCall::LedgerRestsOn(name) => answer!(LedgerRestsOn, ledger::rests_on(services, name)),
        MethodCall::LedgerErase(request) => answer!(LedgerErase, ledger::erase_payloads(services, request)),
        MethodCall::KeysList(NoParams {}) => as_json::<m::KeysList>(keys::list_keys(services).await),
        MethodCall::KeysRevoke(request) => answer!(KeysRevoke, keys::revoke_key(services, who, request)),
        MethodCall::KeysIssued(note) => as_json::<m::KeysIssued>(issued::note_base_key(services, note).await),
        MethodCall::KeysMint(request) => as_json::<m::KeysMint>(issued::mint_key(services, request).await),
        MethodCall::KeysNarrow(request) => answer!(KeysNarrow, issued::narrow_key(services, request)),
        MethodCall::KeysRenew(pair) => as_json::<m::KeysRenew>(issued::renew_key(services, pair).await),
        MethodCall::AgentsBless(key) => as_json::<m::AgentsBless>(bless_agent(services, who, key).await),
        MethodCall::AgentsDeploy(key) => as_json::<m::AgentsDeploy>(deploy_agent(services, who, key).await),
        MethodCall::AgentsRetire(end) => as_json::<m::AgentsRetire>(retire_agent(services, who, end).await),
        MethodCall::OrdersIssue(request) => answer!(OrdersIssue, orders::store_order(services, request)),
        MethodCall::OrdersOpen(name) => as_json::<m::OrdersOpen>(orders::open_order(services, name).await),
        MethodCall::OrdersList(NoParams {}) => as_json::<m::OrdersList>(orders::list_orders(services).await),
        MethodCall::MemorySearch(query) => {
            as_json::<m::MemorySearch>(memory::search_memories(services, &query).await)
        }
        MethodCall::MemoryAdd(fact) => as_json::<m::MemoryAdd>(memory::add_memory(services, fact).await),
        MethodCall::MemoryForget(name) => {
            as_json::<m::MemoryForget>(memory::forget_memory(services, name).await)
        }
        MethodCall::ContextShow(name) => answer!(ContextShow, context::show_context(services, name)),
        MethodCall::ContextDiff(name) => answer!(ContextDiff, context::diff_context(services, name)),
        MethodCall::ContextPin(pin) => answer!(ContextPin, context::pin_message(services, pin)),
        MethodCall::ContextUnpin(pin) => answer!(ContextUnpin, context::unpin_message(services, pin)),
        MethodCall::ContextCompact(name) => answer!(ContextCompact, context::compact_context(services, name)),
        MethodCall::BudgetReport(query) => answer!(BudgetReport, budget::report_budget(services, query)),
        MethodCall::BudgetPause(name) => answer!(BudgetPause, budget::pause_session(services, name)),
        MethodCall::BudgetRenew(name) => answer!(BudgetRenew, budget::renew_session(services, name)),
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
        MethodCall::WorkList(NoParams {}) => as_json::<m::WorkList>(people::list_work(services).await),
        MethodCall::WorkShow(name) => as_json::<m::WorkShow>(people::show_work(services, &name).await),
        MethodCall::WorkPropose(plan) => {
            as_json::<m::WorkPropose>(people::propose_work(services, plan).await)
        }
        MethodCall::WorkPause(name) => as_json::<m::WorkPause>(people::pause_work(services, &name).await),
        MethodCall::WorkResume(name) => as_json::<m::WorkResume>(people::resume_work(services, &name).await),
        MethodCall::WorkCancel(name) => as_json::<m::WorkCancel>(people::cancel_work(services, &name).await),
        MethodCall::WorkRetry(name) => as_json::<m::WorkRetry>(people::retry_work(services, &name).await),
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
        MethodCall::FilesAdd(file) => as_json::<m::FilesAdd>(files::add_file(services, file).await),
        MethodCall::ModelsPrices(NoParams {}) => as_json::<m::ModelsPrices>(models::list_prices(services)),
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
