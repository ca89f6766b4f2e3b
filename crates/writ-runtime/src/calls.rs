//! Performs the calls of the table in [`methods`], which are not conversations.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use writ_inspect::prepared::Prepared;
use writ_policy::budget::Spent;
use writ_policy::enrolment::EnrolmentGrant;
use writ_policy::principal::Authenticated;
use writ_sandbox::changes::LeftOut;
use writ_store::reads::SessionReads as _;
use writ_tools::outcome::{ExecEnd, PerformedOutcome};
use writ_tools::render::render_result;
use writ_types::action::{Action, Exec, ExecProfile};
use writ_types::api::approval::EnrolmentPermission;
use writ_types::api::project::{
    ApplyOutcome, ExcludedFile, ProjectDiff, SandboxOutcome, SandboxRun, SessionOrProject,
};
use writ_types::api::{Acknowledgement, NoParams};
use writ_types::error::Exit;
use writ_types::id::SessionId;
use writ_types::taint::{Label, Taint};

use crate::answers::in_force;
use crate::digest::{clear_profile, digest_memories};
use crate::door::{Passage, RequestContext};
use crate::engine::Surface;
use crate::error::EngineError;
use crate::methods::{self as m, CallAccess, EngineMethod, Method, MethodCall as Call};
use crate::outcome::outcome_entry;
use crate::perform::{self, Performed};
use crate::project::{self, Proposed};
use crate::services::Services;
use crate::session::Session;
use crate::tool_review::review_now;
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

mod pilot;

mod gates;

mod issued;

mod jobs;

mod keys;

mod ledger;

mod mcp;

mod memory;

mod memory_list;

mod models;

mod orders;

mod plan_run;

mod replay;

mod sessions;

mod setup;

mod status;

mod topics;

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
    dispatch_call(services, (calling.who, calling.session), Call::read(method, params)?).await
}

/// Waits for the answer of a method, and writes it as JSON.
macro_rules! answer {
    ($method:ident, $work:expr) => {
        as_json::<m::$method>($work.await)
    };
}

/// The answer of a call, as JSON.
type CallAnswer = Result<Value, EngineError>;

/// The caller, and the session that it has joined.
type CallOrigin<'a> = (&'a Authenticated<()>, Option<SessionId>);

/// Performs a call.
// The variants are one line each, so that the table stays one `match` without `_`: a new method is an error of the
// compiler until it stands here.
// tidy: table
async fn dispatch_call(services: &Arc<Services>, (who, session): CallOrigin<'_>, call: Call) -> CallAnswer {
    match call {
        Call::Ping(NoParams {}) => as_json::<m::Ping>(Ok(Acknowledgement {})),
        Call::Status(NoParams {}) => answer!(Status, status::engine_status(services)),
        Call::SessionsList(filter) => answer!(SessionsList, sessions::list_sessions(services, filter)),
        Call::SessionsShow(name) => answer!(SessionsShow, sessions::show_session(services, name)),
        Call::SessionsClose(name) => answer!(SessionsClose, sessions::close_session(services, name)),
        Call::SessionsSearch(query) => answer!(SessionsSearch, archive::search_sessions(services, query)),
        Call::SessionsHistory(query) => answer!(SessionsHistory, archive::show_history(services, query)),
        Call::SessionsUsage(name) => answer!(SessionsUsage, archive::show_usage(services, name)),
        Call::SessionsRename(title) => answer!(SessionsRename, archive::rename_session(services, title)),
        Call::SessionsFork(fork) => answer!(SessionsFork, archive::fork_session(services, fork)),
        Call::SessionsAgent(agent) => answer!(SessionsAgent, archive::choose_agent(services, agent)),
        Call::SessionsDelete(name) => answer!(SessionsDelete, archive::delete_session(services, name)),
        Call::SessionsRestore(name) => answer!(SessionsRestore, archive::restore_session(services, name)),
        Call::SessionsErase(name) => answer!(SessionsErase, archive::erase_session(services, name)),
        Call::SessionsCassette(query) => answer!(SessionsCassette, cassette::read_cassette(services, query)),
        Call::SessionsReplay(query) => answer!(SessionsReplay, replay::replay_session(services, query)),
        Call::AgentsNamed(NoParams {}) => as_json::<m::AgentsNamed>(Ok(archive::list_named(services))),
        Call::Diff(which) => answer!(Diff, show_diff(services, session, &which)),
        Call::Apply(which) => answer!(Apply, apply_changes(services, session, &which)),
        Call::UndoList(NoParams {}) => answer!(UndoList, approvals::list_undos(services)),
        Call::UndoLast(which) => answer!(UndoLast, approvals::latest_undo(services, session, &which)),
        Call::Undo(name) => answer!(Undo, approvals::undo_attempt(services, who, name)),
        Call::PlanRun(plan) => answer!(PlanRun, plan_run::run_plan(services, plan)),
        Call::SandboxExec(command) => answer!(SandboxExec, sandbox_exec(services, command)),
        Call::ApprovalsList(filter) => answer!(ApprovalsList, approvals::list_asks(services, filter)),
        Call::ApprovalsShow(name) => answer!(ApprovalsShow, approvals::show_ask(services, name)),
        Call::ApprovalsReview(NoParams {}) => answer!(ApprovalsReview, approvals::review_asks(services)),
        Call::ApprovalsCadence(NoParams {}) => answer!(ApprovalsCadence, cadence::measure_cadence(services)),
        Call::ApprovalsRestsOn(name) => answer!(ApprovalsRestsOn, ledger::ask_rests_on(services, name.ask)),
        Call::ApprovalsInForce(NoParams {}) => answer!(ApprovalsInForce, in_force::list_in_force(services)),
        Call::ApprovalsHosts(NoParams {}) => answer!(ApprovalsHosts, services.reach.hosts()),
        Call::ApprovalsRevoke(name) => answer!(ApprovalsRevoke, in_force::revoke(services, who, &name.ask)),
        Call::GatesShow(name) => as_json::<m::GatesShow>(Ok(gates::show_gate(services, &name))),
        Call::GatesAnswer(decision) => as_json::<m::GatesAnswer>(gates::answer_gate(services, decision)),
        Call::GatesJudge(case) => answer!(GatesJudge, gates::judge_case(services, case)),
        Call::ApproversList(NoParams {}) => answer!(ApproversList, services.passkeys.list_passkeys()),
        Call::ApproversPermit(ask) => answer!(ApproversPermit, permit_enrolment(services, &ask.grant)),
        Call::ApproversRemove(name) => answer!(ApproversRemove, services.passkeys.remove_approver(name.key)),
        Call::LedgerList(filter) => answer!(LedgerList, ledger::list_entries(services, filter)),
        Call::LedgerProof(name) => answer!(LedgerProof, ledger::prove_entry(services, name)),
        Call::LedgerRestsOn(name) => answer!(LedgerRestsOn, ledger::rests_on(services, name)),
        Call::LedgerErase(request) => answer!(LedgerErase, ledger::erase_payloads(services, request)),
        Call::KeysList(NoParams {}) => answer!(KeysList, keys::list_keys(services)),
        Call::KeysRevoke(request) => answer!(KeysRevoke, keys::revoke_key(services, who, request)),
        Call::KeysIssued(note) => answer!(KeysIssued, issued::note_base_key(services, note)),
        Call::KeysMint(request) => answer!(KeysMint, issued::mint_key(services, request)),
        Call::KeysNarrow(request) => answer!(KeysNarrow, issued::narrow_key(services, request)),
        Call::KeysRenew(pair) => answer!(KeysRenew, issued::renew_key(services, pair)),
        Call::AgentsBless(key) => answer!(AgentsBless, bless_agent(services, who, key)),
        Call::AgentsDeploy(key) => answer!(AgentsDeploy, deploy_agent(services, who, key)),
        Call::AgentsRetire(end) => answer!(AgentsRetire, retire_agent(services, who, end)),
        Call::OrdersIssue(request) => answer!(OrdersIssue, orders::store_order(services, request)),
        Call::OrdersOpen(name) => answer!(OrdersOpen, orders::open_order(services, name)),
        Call::OrdersList(NoParams {}) => answer!(OrdersList, orders::list_orders(services)),
        Call::MemorySearch(query) => answer!(MemorySearch, memory::search_memories(services, &query)),
        Call::MemoryList(filter) => answer!(MemoryList, memory_list::list_memories(services, filter)),
        Call::MemorySetAside(name) => answer!(MemorySetAside, memory_list::set_memory_aside(services, name)),
        Call::MemoryAdd(fact) => answer!(MemoryAdd, memory::add_memory(services, fact)),
        Call::MemoryForget(name) => answer!(MemoryForget, memory::forget_memory(services, name)),
        Call::ContextShow(name) => answer!(ContextShow, context::show_context(services, name)),
        Call::ContextDiff(name) => answer!(ContextDiff, context::diff_context(services, name)),
        Call::ContextPin(pin) => answer!(ContextPin, context::pin_message(services, pin)),
        Call::ContextUnpin(pin) => answer!(ContextUnpin, context::unpin_message(services, pin)),
        Call::ContextTopic(choice) => answer!(ContextTopic, topics::choose_topic(services, choice)),
        Call::ContextCompact(name) => answer!(ContextCompact, context::compact_context(services, name)),
        Call::BudgetReport(query) => answer!(BudgetReport, budget::report_budget(services, query)),
        Call::BudgetPause(name) => answer!(BudgetPause, budget::pause_session(services, name)),
        Call::BudgetRenew(name) => answer!(BudgetRenew, budget::renew_session(services, name)),
        Call::MemoryDrop(names) => answer!(MemoryDrop, memory::drop_memories(services, names)),
        Call::MemoryShow(name) => answer!(MemoryShow, memory::show_memory(services, name)),
        Call::MemoryEdit(edit) => answer!(MemoryEdit, memory::edit_memory(services, edit)),
        Call::MemoryPending(NoParams {}) => answer!(MemoryPending, memory::pending_memories(services)),
        Call::MemoryConfirm(answer) => answer!(MemoryConfirm, memory::answer_memory(services, answer)),
        Call::MemoryUndo(undo) => answer!(MemoryUndo, memory::undo_memories(services, undo)),
        Call::MemoryExport(page) => answer!(MemoryExport, memory::export_memories(services, page)),
        Call::MemoryImport(import) => answer!(MemoryImport, memory::import_memories(services, import)),
        Call::MemoryProfile(NoParams {}) => answer!(MemoryProfile, memory::show_profile(services)),
        Call::MemoryDigest(NoParams {}) => answer!(MemoryDigest, digest_memories(services)),
        Call::MemoryClearProfile(NoParams {}) => answer!(MemoryClearProfile, clear_profile(services)),
        Call::MemoryStats(NoParams {}) => answer!(MemoryStats, memory::memory_figures(services)),
        Call::ToolsReview(NoParams {}) => answer!(ToolsReview, review_now(services)),
        Call::JobsList(NoParams {}) => answer!(JobsList, jobs::list_jobs(services)),
        Call::WorkList(query) => answer!(WorkList, people::list_work(services, query)),
        Call::WorkTag(change) => answer!(WorkTag, people::set_domain(services, change, true)),
        Call::WorkUntag(change) => answer!(WorkUntag, people::set_domain(services, change, false)),
        Call::WorkShow(name) => answer!(WorkShow, people::show_work(services, &name)),
        Call::WorkPropose(plan) => answer!(WorkPropose, people::propose_work(services, plan)),
        Call::WorkPause(name) => answer!(WorkPause, people::pause_work(services, &name)),
        Call::WorkResume(name) => answer!(WorkResume, people::resume_work(services, &name)),
        Call::WorkCancel(name) => answer!(WorkCancel, people::cancel_work(services, &name)),
        Call::WorkRetry(name) => answer!(WorkRetry, people::retry_work(services, &name)),
        Call::FleetStatus(NoParams {}) => answer!(FleetStatus, fleet::show_fleet(services)),
        Call::FleetMessages(query) => answer!(FleetMessages, fleet::list_said(services, who, query)),
        Call::FleetAccess(case) => answer!(FleetAccess, fleet::list_holders(services, case)),
        Call::FleetTake(case) => answer!(FleetTake, fleet::take_case(services, who, case)),
        Call::FleetAnswer(said) => answer!(FleetAnswer, fleet::answer_guest(services, who, said)),
        Call::FleetBack(back) => answer!(FleetBack, fleet::return_case(services, who, back)),
        call @ pilot::any_call!() => pilot::answer_call(services, who, call).await,
        Call::FleetClose(end) => answer!(FleetClose, fleet::close_case(services, who, end)),
        Call::ModelsList(NoParams {}) => as_json::<m::ModelsList>(models::list_models(services)),
        Call::FilesAdd(file) => answer!(FilesAdd, files::add_file(services, file)),
        Call::ModelsPrices(NoParams {}) => as_json::<m::ModelsPrices>(models::list_prices(services)),
        Call::ModelsTest(name) => answer!(ModelsTest, models::test_model(services, name)),
        Call::ModelsLocal(NoParams {}) => answer!(ModelsLocal, setup::list_local(services)),
        Call::ModelsSetup(choice) => answer!(ModelsSetup, setup::set_up_model(services, choice)),
        Call::McpProbe(request) => answer!(McpProbe, mcp::probe_server(services, request)),
        Call::McpReload(request) => answer!(McpReload, mcp::reload_servers(services, &request)),
        Call::SecretsChanged(NoParams {}) => answer!(SecretsChanged, learn_secrets(services)),
    }
}

async fn permit_enrolment(
    services: &Arc<Services>,
    grant: &EnrolmentGrant,
) -> Result<EnrolmentPermission, EngineError> {
    services.passkeys.permit_enrolment(grant).await
}

async fn learn_secrets(services: &Arc<Services>) -> Result<Acknowledgement, EngineError> {
    secrets::learn_secrets(services).await.map(|()| Acknowledgement {})
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
    let place = place::of_owner(services, session).await?;
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
