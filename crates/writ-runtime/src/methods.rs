//! The methods of the engine: one row for each, from which everything else about it comes.
//!
//! A row gives the name on the wire, the types of parameters and answer, who may call it, and the route over HTTP if it
//! has one. Clients name a row's type ([`EngineMethod`]), the dispatcher in `calls` matches on `MethodCall`, which has a variant for
//! each row, and the HTTP server makes routes and their documentation from [`Method::route`].

use schemars::SchemaGenerator;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use writ_types::api::approval::{
    ApprovalList, ApprovalRevocation, ApproverName, ApproverRemoval, AskCadence, AskFilter, AskList, AskName,
    AskReview, EnrolmentPermission, HostList, PasskeyList,
};
use writ_types::api::budget::{self as money, BudgetQuery, SessionBudgetState};
use writ_types::api::cassette::{CassettePage, CassetteQuery, ReplayPage};
use writ_types::api::context::{self as shown, CompactionOutcome, ContextPins, ContextView};
use writ_types::api::file::{NewFile, StoredFile};
use writ_types::api::fleet::{CaseEnding, CaseName, CaseReturn, GuestAnswer, MessagePage, MessageQuery};
use writ_types::api::gate::{CaseVerdict, GateCase, GateDecision, GateReceipt};
use writ_types::api::job::JobList;
use writ_types::api::key::{
    KeyList, NotedKey, OrderList, OrderName, OrderSession, Revocation, RevocationRequest, StoredOrder,
};
use writ_types::api::ledger::{
    EntryName, EntryProof, Erasure, ErasureRequest, LedgerFilter, LedgerPage, Provenance,
};
use writ_types::api::memory::{
    AnsweredMemory, MemoryAmendment, MemoryAnswer, MemoryChanges, MemoryFigures, MemoryFilter, MemoryHits,
    MemoryImported, MemoryLines, MemoryName, MemoryNames, MemoryPage, MemoryPageQuery, MemoryQuery,
    MemoryUndoing, NewFact, PendingMemories, ProfileView, ShownMemory,
};
use writ_types::api::model::{LocalModels, ModelChoice, ModelList, ModelName, ModelSetup, PriceList};
use writ_types::api::pilot;
use writ_types::api::plan::{PlanRun as PlanOfCalls, PlanRunResults};
use writ_types::api::project::{
    ApplyOutcome, AttemptName, LatestUndo, ProjectDiff, SandboxOutcome, SandboxRun, SessionOrProject,
    UndoOffers, UndoOutcome,
};
use writ_types::api::session::{
    HistoryPage, HistoryQuery, NamedAgentList, SessionAgent, SessionClosing, SessionDeletion, SessionDetails,
    SessionErasure, SessionFilter, SessionFork, SessionHits, SessionList, SessionName, SessionQuery,
    SessionSummary, SessionTitle, TurnUsageList,
};
use writ_types::api::status::EngineStatus;
use writ_types::api::tool::ToolReview;
use writ_types::api::work::{
    self, DomainChange, ItemName, PlanProposal, WorkDetails, WorkQuery, WorkSummary,
};
use writ_types::api::{Acknowledgement, NoParams, fleet};
use writ_types::frame::{Card, ServerFrame};

use crate::error::EngineError;

use params::{
    AgentDeployment, AgentNote, AgentRetirement, BaseKeyNote, EnrolmentRequest, IssuedTaskKey, KeyPair,
    MintRequest, NarrowRequest, NotedAgent, OrderRequest, ProbeRequest, ProbedServer, ReloadRequest,
    ReloadedServers, RetiredAgent,
};

pub mod params;

mod route;
#[macro_use]
mod table;

pub use route::{MethodRoute, PathSubject, Verb};

/// The callers that a method accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallAccess {
    /// The owner's terminal alone. The method makes keys, decides who may approve, starts what runs outside a session, spends
    /// money outside a conversation, or erases something: a stolen cookie or token must not be enough for it.
    Terminal,
    /// Every surface. The method reads, and changes nothing but the record of that.
    Read,
    /// Every surface, although the method changes something; the text is the reason. A new method begins at the terminal.
    Change(&'static str),
}

/// A method as a type, so that a caller's parameters and the answer are checked by the compiler.
pub trait EngineMethod {
    /// The row of the table.
    const METHOD: Method;
    /// The parameters.
    type Params: Serialize + DeserializeOwned;
    /// The answer.
    type Answer: Serialize + DeserializeOwned;
}

use CallAccess::{Change, Read, Terminal};

methods! {
    /// Answers at once, as a sign of life.
    Ping = "ping", NoParams => Acknowledgement, Read;
    /// Shows the state of the engine.
    Status = "status", NoParams => EngineStatus, Read, Get ["/api/v1/state"];

    /// Lists the sessions, or with `deleted` those that were deleted.
    SessionsList = "sessions.list", SessionFilter => SessionList, Read, Get ["/api/v1/sessions", "/sessions"];
    /// Shows a session and the messages that wait in it.
    SessionsShow = "sessions.show", SessionName => SessionDetails, Read;
    /// Stores an image or a PDF file for a message of a session: a message whose text has its line brings it along.
    FilesAdd = "files.add", NewFile => StoredFile,
        Change("the file is only stored; a message that names it is trusted no more than external content"),
        Post ["/api/v1/files"], or [404, 422];
    /// Closes a session: stops its turn, ends what waits in it, and revokes its keys.
    SessionsClose = "sessions.close", SessionName => SessionClosing,
        Change("its history stays, and its changes can still be applied and undone"),
        Delete ["/api/v1/sessions/{id}", "/sessions/{id}"], of Session, or [404];

    /// Finds messages of all sessions by their words.
    SessionsSearch = "sessions.search", SessionQuery => SessionHits, Read, Get ["/api/v1/sessions/search"];
    /// Shows a part of a session's history, oldest first.
    SessionsHistory = "sessions.history", HistoryQuery => HistoryPage, Read,
        Get ["/api/v1/sessions/history"], or [404];
    /// Shows what the latest turns of a session have used.
    SessionsUsage = "sessions.usage", SessionName => TurnUsageList, Read;
    /// Gives a session another title.
    SessionsRename = "sessions.rename", SessionTitle => SessionSummary, Change("a name grants nothing"),
        Post ["/api/v1/sessions/rename"], or [404];
    /// Copies a session up to a turn, without what was granted to it.
    SessionsFork = "sessions.fork", SessionFork => SessionSummary, Change("a copy begins without grants"),
        Post ["/api/v1/sessions/fork"], or [404];
    /// Lets a named agent, or the usual one, answer in a session from its next turn on.
    SessionsAgent = "sessions.agent", SessionAgent => SessionSummary,
        Change("the owner has described each of them, and none may do more than the usual one"),
        Post ["/api/v1/sessions/agent"], or [404];
    /// Deletes a session: closes it and lists it no longer. Its content is erased after 30 days.
    SessionsDelete = "sessions.delete", SessionName => SessionDeletion,
        Change("it can be brought back for 30 days"), Post ["/api/v1/sessions/delete"], or [404];
    /// Brings a deleted session back.
    SessionsRestore = "sessions.restore", SessionName => SessionDeletion,
        Change("it stays closed"), Post ["/api/v1/sessions/restore"], or [404];
    /// Erases the content of a deleted session now.
    SessionsErase = "sessions.erase", SessionName => SessionErasure, Terminal;
    /// Reads a part of a session's cassette: what models and tools were asked and answered.
    SessionsCassette = "sessions.cassette", CassetteQuery => CassettePage, Read;
    /// Decides a part of a session's tool calls again, under today's rules; nothing is performed.
    SessionsReplay = "sessions.replay", CassetteQuery => ReplayPage, Read;
    /// Lists the agents that the owner has described.
    AgentsNamed = "agents.named", NoParams => NamedAgentList, Read, Get ["/api/v1/agents"];

    /// Shows what a session changed in its project.
    Diff = "diff", SessionOrProject => ProjectDiff, Change("it looks into the work folder"),
        Get ["/api/v1/sessions/{id}/diff"], of Session, or [404];
    /// Applies what a session changed to its project, or asks a person first.
    Apply = "apply", SessionOrProject => ApplyOutcome, Change("the door judges it as in a turn"),
        Post ["/api/v1/sessions/{id}/apply"], of Session, or [404, 409, 422];
    /// Lists what one tap undoes now.
    UndoList = "undo.list", NoParams => UndoOffers, Read, Get ["/api/v1/undo"];
    /// Finds the latest attempt of a session that can be undone.
    UndoLast = "undo.last", SessionOrProject => LatestUndo, Read;
    /// Undoes what an attempt did, or asks a person first.
    Undo = "undo", AttemptName => UndoOutcome, Change("the door judges it as in a turn"),
        Post ["/api/v1/undo/{attempt}"], of Attempt, or [404, 409, 422];
    /// Runs a plan of tool calls in a session of its own, step by step, without a model.
    PlanRun = "plan.run", PlanOfCalls => PlanRunResults, Terminal;
    /// Runs a command of the owner in the sandbox of a session.
    SandboxExec = "sandbox.exec", SandboxRun => SandboxOutcome, Change("the door judges it as in a turn");

    /// Lists asks, and gates that ask.
    ApprovalsList = "approvals.list", AskFilter => AskList, Read, Get ["/api/v1/approvals"];
    /// Shows an ask completely.
    ApprovalsShow = "approvals.show", AskName => Card, Read, Get ["/api/v1/approvals/{id}"], of Ask, or [404];
    /// Groups open asks by likeness, and marks what is unusual.
    ApprovalsReview = "approvals.review", NoParams => AskReview, Read, Get ["/api/v1/approvals/review"];
    /// Measures how questions were answered in the last 30 days, and what that speaks for.
    ApprovalsCadence = "approvals.cadence", NoParams => AskCadence, Read, Get ["/api/v1/approvals/cadence"];
    /// Shows what an ask rests on, entry by entry.
    ApprovalsRestsOn = "approvals.rests_on", AskName => Provenance, Read,
        Get ["/api/v1/approvals/{id}/rests-on"], of Ask, or [404];
    /// Lists the approvals that later actions may rest on.
    ApprovalsInForce = "approvals.in_force", NoParams => ApprovalList, Read, Get ["/api/v1/approvals/in-force"];
    /// Lists the hosts of the configuration and those that a person has approved.
    ApprovalsHosts = "approvals.hosts", NoParams => HostList, Read;
    /// Takes back an approval that later actions may rest on.
    ApprovalsRevoke = "approvals.revoke", AskName => ApprovalRevocation, Change("less is granted than before"),
        Delete ["/api/v1/approvals/{id}"], of Ask, or [404];

    /// Shows the frame of a gate that asks; `null` if none asks under this id.
    GatesShow = "gates.show", AskName => Option<ServerFrame>, Read;
    /// Answers a gate that asks.
    GatesAnswer = "gates.answer", GateDecision => GateReceipt,
        Change("the turn waits for any person who watches the session");
    /// Lets the gates judge a case; nothing is performed.
    GatesJudge = "gates.judge", GateCase => CaseVerdict, Terminal;

    /// Lists the passkeys that may approve.
    ApproversList = "approvers.list", NoParams => PasskeyList, Read, Get ["/api/v1/passkeys"];
    /// Permits the enrolment of a passkey.
    ApproversPermit = "approvers.permit", EnrolmentRequest => EnrolmentPermission, Terminal;
    /// Removes an approver key.
    ApproversRemove = "approvers.remove", ApproverName => ApproverRemoval, Terminal;

    /// Lists entries of the ledger, newest first.
    LedgerList = "ledger.list", LedgerFilter => LedgerPage, Read, Get ["/api/v1/ledger"];
    /// Proves that an entry is in the ledger.
    LedgerProof = "ledger.proof", EntryName => EntryProof, Read;
    /// Shows what an entry rests on, entry by entry; nothing if it has no label.
    LedgerRestsOn = "ledger.rests_on", EntryName => Provenance, Read,
        Get ["/api/v1/ledger/{seq}/rests-on"], of Entry, or [404];
    /// Erases payloads of entries.
    LedgerErase = "ledger.erase", ErasureRequest => Erasure, Terminal;

    /// Lists the keys in force.
    KeysList = "keys.list", NoParams => KeyList, Read;
    /// Revokes a key and stops what runs under it.
    KeysRevoke = "keys.revoke", RevocationRequest => Revocation, Terminal;
    /// Notes a base key that the root key has signed, so that it can be listed and revoked.
    KeysIssued = "keys.issued", BaseKeyNote => NotedKey, Terminal;
    /// Mints a task key over a base key, for one case.
    KeysMint = "keys.mint", MintRequest => IssuedTaskKey, Terminal;
    /// Makes a narrower copy of a task key.
    KeysNarrow = "keys.narrow", NarrowRequest => IssuedTaskKey, Terminal;
    /// Mints a task key that says the same as one in force, for as long again.
    KeysRenew = "keys.renew", KeyPair => IssuedTaskKey, Terminal;

    /// Records that a person has approved an agent's folder, with the base key that was signed for it.
    AgentsBless = "agents.bless", AgentNote => NotedAgent, Terminal;
    /// Records that an approved agent is put in its place.
    AgentsDeploy = "agents.deploy", AgentDeployment => NotedAgent, Terminal;
    /// Revokes every key of an agent, and records that it is retired.
    AgentsRetire = "agents.retire", AgentRetirement => RetiredAgent, Terminal;

    /// Stores a standing order that its owner has signed.
    OrdersIssue = "orders.issue", OrderRequest => StoredOrder, Terminal;
    /// Opens the session of a standing order.
    OrdersOpen = "orders.open", OrderName => OrderSession, Change("the order was signed in the terminal");
    /// Lists the standing orders.
    OrdersList = "orders.list", NoParams => OrderList, Read;

    /// Searches the memories.
    MemorySearch = "memory.search", MemoryQuery => MemoryHits, Read, Get ["/api/v1/memory/search"];
    /// Lists the memories that are found, newest first.
    MemoryList = "memory.list", MemoryFilter => MemoryHits, Read, Get ["/api/v1/memory"];
    /// Puts a memory aside: it is not found any more.
    MemorySetAside = "memory.set_aside", MemoryName => MemoryChanges,
        Change("nothing is erased, and `writ memory undo` takes it back"), Post ["/api/v1/memory/set-aside"];
    /// Adds a memory of the owner.
    MemoryAdd = "memory.add", NewFact => MemoryName,
        Change("it is the owner's own text, like a message sent into a session");
    /// Forgets a memory.
    MemoryForget = "memory.forget", MemoryName => MemoryName, Terminal;
    /// Forgets several memories.
    MemoryDrop = "memory.drop", MemoryNames => MemoryNames, Terminal;
    /// Shows a memory with all that is so of it.
    MemoryShow = "memory.show", MemoryName => ShownMemory, Read;
    /// Changes a memory.
    MemoryEdit = "memory.edit", MemoryAmendment => MemoryChanges,
        Change("it is the owner's own text, like a memory that is added, and `writ memory undo` takes it back"),
        Post ["/api/v1/memory/edit"];
    /// Lists the memories and questions that wait for the owner.
    MemoryPending = "memory.pending", NoParams => PendingMemories, Read, Get ["/api/v1/memory/pending"];
    /// Takes the owner's word about a memory.
    MemoryConfirm = "memory.confirm", MemoryAnswer => AnsweredMemory,
        Change("what is external or secret is never verified, and `writ memory undo` takes it back"),
        Post ["/api/v1/memory/confirm"];
    /// Undoes changes of memories: those of a name, or the last.
    MemoryUndo = "memory.undo", MemoryUndoing => MemoryChanges, Terminal;
    /// Returns a part of all memories, for an export.
    MemoryExport = "memory.export", MemoryPageQuery => MemoryPage, Terminal;
    /// Stores memories of a bundle.
    MemoryImport = "memory.import", MemoryLines => MemoryImported, Terminal;
    /// Shows the curated profile of the owner, and the last digest.
    MemoryProfile = "memory.profile", NoParams => ProfileView, Read, Get ["/api/v1/memory/profile"];
    /// Distils the memories into the profile now.
    MemoryDigest = "memory.digest", NoParams => ProfileView, Terminal;
    /// Forgets the profile; the memories stay.
    MemoryClearProfile = "memory.clear_profile", NoParams => ProfileView, Terminal;
    /// Counts memories, vectors and questions.
    MemoryStats = "memory.stats", NoParams => MemoryFigures, Read;

    /// Shows what the model of a session sees, and what each part costs.
    ContextShow = "context.show", SessionName => ContextView, Read,
        Get ["/api/v1/sessions/{id}/context"], of Session, or [404];
    /// Shows what of a session's history is not in its context as it was said.
    ContextDiff = "context.diff", SessionName => shown::ContextDiff, Read,
        Get ["/api/v1/sessions/{id}/context/diff"], of Session, or [404];
    /// Keeps a message of a session's history in its context.
    ContextPin = "context.pin", shown::ContextPin => ContextPins,
        Change("it chooses what of a session's own history its model reads"), Post ["/api/v1/context/pin"], or [404];
    /// Lets a pinned message leave the context with the others.
    ContextUnpin = "context.unpin", shown::ContextPin => ContextPins,
        Change("it chooses what of a session's own history its model reads"), Post ["/api/v1/context/unpin"], or [404];
    /// Shows the topics of a session, or changes to one.
    ContextTopic = "context.topic", shown::TopicChoice => shown::SessionTopicList, Terminal;
    /// Summarises everything but the newest turn of a session; its history stays.
    ContextCompact = "context.compact", SessionName => CompactionOutcome,
        Change("it is one model call of the session, within its budget, and nothing is deleted"),
        Post ["/api/v1/sessions/{id}/compact"], of Session, or [404];

    /// Reports what was spent, by what it was spent on, and how much is left of each limit.
    BudgetReport = "budget.report", BudgetQuery => money::BudgetReport, Read, Get ["/api/v1/budget"];
    /// Pauses a session: its models are not called until it is renewed.
    BudgetPause = "budget.pause", SessionName => SessionBudgetState, Change("less is spent than before"),
        Post ["/api/v1/sessions/{id}/pause"], of Session, or [404];
    /// Gives a session a fresh allocation and lets it go on; limits of the day and of the month stay.
    BudgetRenew = "budget.renew", SessionName => SessionBudgetState,
        Change("it grants one session once more what the owner's configuration grants it, like the owner's next message"),
        Post ["/api/v1/sessions/{id}/renew"], of Session, or [404];

    /// Lists the jobs, with the next run and the last result of each.
    JobsList = "jobs.list", NoParams => JobList, Read, Get ["/api/v1/jobs"];

    /// Lists the work items, newest first, all or those with a domain.
    WorkList = "work.list", WorkQuery => work::WorkList, Read, Get ["/api/v1/work"];
    /// Adds a domain to a work item.
    WorkTag = "work.tag", DomainChange => WorkSummary, Change("a domain grants nothing"),
        Post ["/api/v1/work/{id}/tag"], of Item, or [404, 422];
    /// Removes a domain from a work item.
    WorkUntag = "work.untag", DomainChange => WorkSummary, Change("a domain grants nothing"),
        Post ["/api/v1/work/{id}/untag"], of Item, or [404, 422];
    /// Shows a work item with its steps, its attempts and their evidence.
    WorkShow = "work.show", ItemName => WorkDetails, Read, Get ["/api/v1/work/{id}"], of Item, or [404];
    /// Proposes a plan: its approval is asked for, nothing runs before.
    WorkPropose = "work.propose", PlanProposal => WorkSummary, Terminal;
    /// Stops a work item for a while.
    WorkPause = "work.pause", ItemName => WorkSummary, Change("less is done than before"),
        Post ["/api/v1/work/{id}/pause"], of Item, or [404];
    /// Lets a paused work item go on.
    WorkResume = "work.resume", ItemName => WorkSummary, Change("it goes on with what was approved"),
        Post ["/api/v1/work/{id}/resume"], of Item, or [404];
    /// Ends a work item.
    WorkCancel = "work.cancel", ItemName => WorkSummary, Change("less is done than before"),
        Post ["/api/v1/work/{id}/cancel"], of Item, or [404];
    /// Proposes a work item again; its finished steps stay finished.
    WorkRetry = "work.retry", ItemName => WorkSummary, Change("its plan is asked about again"),
        Post ["/api/v1/work/{id}/retry"], of Item, or [404];

    /// Shows the agents, open cases and anomalies of the fleet.
    FleetStatus = "fleet.status", NoParams => fleet::FleetStatus, Read, Get ["/api/v1/fleet"], or [404];
    /// Lists messages of a case; the first reading of a person since it changed hands, or for a day, is an entry of the ledger.
    FleetMessages = "fleet.messages", MessageQuery => MessagePage, Read,
        Get ["/api/v1/fleet/messages"], or [404];
    /// Lists who had access to a case when, and which people read its conversation, from the ledger.
    FleetAccess = "fleet.access", CaseName => fleet::HolderList, Read,
        Get ["/api/v1/fleet/access"], or [404];
    /// Takes a case over for a person; from an agent, if one holds it.
    FleetTake = "fleet.take", CaseName => Acknowledgement, Change("an agent loses its key"),
        Post ["/api/v1/fleet/take"], or [404, 409];
    /// Answers the guest of a case that no agent holds.
    FleetAnswer = "fleet.answer", GuestAnswer => Acknowledgement,
        Change("it is the person's own text, like a message sent into a session"), Post ["/api/v1/fleet/answer"], or [404, 409];
    /// Gives a case back to agents: to the agent or role that is named, which approves an escalation, else to any.
    FleetBack = "fleet.back", CaseReturn => Acknowledgement,
        Change("the agent acts under its own base key, which the owner has signed"), Post ["/api/v1/fleet/back"], or [404, 409];
    /// Closes a case, and revokes the key of its agent.
    FleetClose = "fleet.close", CaseEnding => Acknowledgement, Change("less is granted than before"),
        Post ["/api/v1/fleet/close"], or [404, 409];

    /// Plans a goal in a project, and asks a person about the plan.
    PilotPlan = "pilot.plan", pilot::PilotGoal => pilot::PilotPlanned, Terminal;
    /// Shows the autopilot of a project: plans, units, and what holds them up.
    PilotShow = "pilot.status", pilot::PilotProject => pilot::PilotStatus, Read, Get ["/api/v1/pilot"], or [404];
    /// Shows a unit with its runs, moves and gates.
    PilotUnit = "pilot.unit", pilot::PilotUnitName => pilot::PilotUnitDetails, Read, Get ["/api/v1/pilot/unit"], or [404];
    /// Lets the autopilot of a project work on what was approved, until it is paused or nothing is left.
    PilotRun = "pilot.run", pilot::PilotProject => pilot::PilotStatus, Change("it goes on with what was approved"),
        Post ["/api/v1/pilot/run"], or [404];
    /// Stops the autopilot of a project after the attempts that run.
    PilotPause = "pilot.pause", pilot::PilotProject => pilot::PilotStatus, Change("less is done than before"),
        Post ["/api/v1/pilot/pause"], or [404];
    /// Hands out one unit: the next one, or on a person's word one past those before it.
    PilotDispatch = "pilot.dispatch", pilot::PilotDispatchOrder => pilot::PilotDispatched, Terminal;
    /// Carries out a person's order about a unit.
    PilotOrder = "pilot.order", pilot::PilotUnitOrder => pilot::PilotUnitDetails,
        Change("a unit ends, waits, or goes on within what was approved"), Post ["/api/v1/pilot/order"], or [404, 409];

    /// Reports on the autopilot of a project, or on one of its units with its parts.
    PilotReportOf = "pilot.report", pilot::PilotScope => pilot::PilotReport, Read, Get ["/api/v1/pilot/report"], or [404];
    /// Lists everything that happened to a unit: attempts with their turns, tools and money, moves, gates.
    PilotLogOf = "pilot.log", pilot::PilotLogQuery => pilot::PilotLog, Read, Get ["/api/v1/pilot/log"], or [404];
    /// Shows what a unit changes that is not in the target.
    PilotChangesOf = "pilot.changes", pilot::PilotUnitName => pilot::PilotChanges, Read,
        Get ["/api/v1/pilot/changes"], or [404];
    /// Finds the commits that undoing a unit would undo.
    PilotRevertShow = "pilot.revert_plan", pilot::PilotUnitName => pilot::PilotRevertPlan, Terminal;
    /// Undoes a unit in the target branch.
    PilotRevertUnit = "pilot.revert", pilot::PilotRevert => pilot::PilotReverted, Terminal;
    /// Brings both sides of a conflict into a unit's workspace, or commits what a person has made of them.
    PilotResolve = "pilot.resolve", pilot::PilotUnitName => pilot::PilotResolved, Terminal;
    /// Reads the plan that a person has edited, and carries the edits out.
    PilotReloadPlan = "pilot.reload", pilot::PilotReload => pilot::PilotReloaded, Terminal;
    /// Looks for what is wrong with the autopilot of a project.
    PilotDoctor = "pilot.doctor", pilot::PilotCheckup => pilot::PilotFindings, Terminal;
    /// Tries the gates that a project could have, in the sandbox.
    PilotTry = "pilot.try", pilot::PilotProject => pilot::PilotTrials, Terminal;
    /// Shows a session of an autopilot at this moment, or all sessions that are not over.
    PilotStateOf = "pilot.state", pilot::PilotSessionQuery => pilot::PilotState, Read, Get ["/api/v1/pilot/state"], or [404];
    /// Shows a unit at this moment, in one session or in all that are not over.
    PilotUnitStateOf = "pilot.unit_state", pilot::PilotUnitQuery => pilot::PilotUnitState, Read;
    /// Lets the loop of an autopilot, or of all, look at its units now.
    PilotRefresh = "pilot.refresh", pilot::PilotSessionQuery => pilot::PilotRefreshed,
        Change("it goes on with what was approved");
    /// Shows the spans of a unit, a run or a session, by the index of the trace files.
    PilotForensics = "pilot.forensics", pilot::PilotTraceQuery => pilot::PilotTrace, Read, Get ["/api/v1/pilot/trace"], or [404];
    /// Lists the units of a project that are over.
    PilotHistoryOf = "pilot.history", pilot::PilotHistoryQuery => pilot::PilotHistory, Read, Get ["/api/v1/pilot/history"], or [404];
    /// Moves old trace files of a project to its archive.
    PilotClean = "pilot.clean", pilot::PilotCleaning => pilot::PilotCleaned, Terminal;
    /// Rates a run of the autopilot, for later choices of a model.
    PilotRateRun = "pilot.rate", pilot::PilotRate => pilot::PilotRated, Terminal;
    /// Measures the models of all tiers by tasks of a project that are done.
    PilotMeasure = "pilot.benchmark", pilot::PilotBenchmarkOrder => pilot::PilotBenchmark, Terminal;
    /// Ends the session of a project in which nothing is open: later work is done in another one.
    PilotEndSession = "pilot.end_session", pilot::PilotProject => pilot::PilotSessionEnded, Terminal;
    /// Closes the circuits of models that have failed in a row: they are asked again.
    PilotResetCircuits = "pilot.reset_circuits", pilot::PilotProject => pilot::PilotCircuitsReset, Terminal;

    /// Lists the configured models.
    ModelsList = "models.list", NoParams => ModelList, Terminal;
    /// Lists the prices of models that count now.
    ModelsPrices = "models.prices", NoParams => PriceList, Terminal;
    /// Tries a model with one small request of each kind.
    ModelsTest = "models.test", ModelName => Value, Terminal;
    /// Lists the models of model servers on the usual ports of this machine.
    ModelsLocal = "models.local", NoParams => LocalModels, Read, Get ["/api/v1/models/local"];
    /// Tries a first model, where none is configured, and puts it into the configuration if it answers.
    ModelsSetup = "models.setup", ModelChoice => ModelSetup,
        Change("it is refused once there is a model, so it leads no conversation to another server; its key is a secret of its own name"),
        Post ["/api/v1/models/setup"];
    /// Reviews the tools of other programs: unused, failing, slow, alike.
    ToolsReview = "tools.review", NoParams => ToolReview, Read, Get ["/api/v1/tools/review"];
    /// Starts an MCP server, lists its tools and ends it.
    McpProbe = "mcp.probe", ProbeRequest => ProbedServer, Terminal;
    /// Reads the files about MCP servers again.
    McpReload = "mcp.reload", ReloadRequest => ReloadedServers, Terminal;
    /// Reads the secrets again, so that they are masked from now on.
    SecretsChanged = "secrets.changed", NoParams => Acknowledgement, Terminal;
}

/// Reads parameters from JSON. `null` stands for an empty object.
fn read_params<T: DeserializeOwned>(method: Method, params: Value) -> Result<T, EngineError> {
    let params = if params.is_null() { Value::Object(Map::new()) } else { params };
    serde_json::from_value(params)
        .map_err(|error| EngineError::Params { method: method.name().to_owned(), why: error.to_string() })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The methods that change something and are called from every surface. The list may only shrink.
    const CHANGES: [&str; 38] = [
        "apply",
        "approvals.revoke",
        "budget.pause",
        "budget.renew",
        "context.compact",
        "context.pin",
        "context.unpin",
        "diff",
        "files.add",
        "fleet.answer",
        "fleet.back",
        "fleet.close",
        "fleet.take",
        "gates.answer",
        "memory.add",
        "memory.confirm",
        "memory.edit",
        "memory.set_aside",
        "models.setup",
        "orders.open",
        "pilot.order",
        "pilot.pause",
        "pilot.refresh",
        "pilot.run",
        "sandbox.exec",
        "sessions.agent",
        "sessions.close",
        "sessions.delete",
        "sessions.fork",
        "sessions.rename",
        "sessions.restore",
        "undo",
        "work.cancel",
        "work.pause",
        "work.resume",
        "work.retry",
        "work.tag",
        "work.untag",
    ];

    /// The methods that only read and are called from every surface.
    const READS: [&str; 52] = [
        "agents.named",
        "approvals.cadence",
        "approvals.hosts",
        "approvals.in_force",
        "approvals.list",
        "approvals.rests_on",
        "approvals.review",
        "approvals.show",
        "approvers.list",
        "budget.report",
        "context.diff",
        "context.show",
        "fleet.access",
        "fleet.messages",
        "fleet.status",
        "gates.show",
        "jobs.list",
        "keys.list",
        "ledger.list",
        "ledger.proof",
        "ledger.rests_on",
        "memory.list",
        "memory.pending",
        "memory.profile",
        "memory.search",
        "memory.show",
        "memory.stats",
        "models.local",
        "orders.list",
        "pilot.changes",
        "pilot.forensics",
        "pilot.history",
        "pilot.log",
        "pilot.report",
        "pilot.state",
        "pilot.status",
        "pilot.unit",
        "pilot.unit_state",
        "ping",
        "sessions.cassette",
        "sessions.history",
        "sessions.list",
        "sessions.replay",
        "sessions.search",
        "sessions.show",
        "sessions.usage",
        "status",
        "tools.review",
        "undo.last",
        "undo.list",
        "work.list",
        "work.show",
    ];

    fn named(is_wanted: impl Fn(CallAccess) -> bool) -> Vec<&'static str> {
        let methods = Method::ALL.iter().filter(|method| is_wanted(method.access()));
        let mut names: Vec<&str> = methods.map(|method| method.name()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn pages_and_programs_may_call_these_alone() {
        assert_eq!(named(|access| access == Read), READS);
        assert_eq!(named(|access| matches!(access, Change(reason) if !reason.is_empty())), CHANGES);
        let terminal = Method::ALL.len() - READS.len() - CHANGES.len();
        assert_eq!(named(|access| access == Terminal).len(), terminal);
    }

    #[test]
    fn names_are_unique_and_lead_back_to_their_method() {
        let names: BTreeSet<&str> = Method::ALL.iter().map(|method| method.name()).collect();
        assert_eq!(names.len(), Method::ALL.len());
        for method in Method::ALL {
            assert_eq!(Method::find(method.name()), Some(*method));
            assert!(method.summary().ends_with('.'), "{}", method.summary());
        }
        assert_eq!(Method::find("ledger.burn"), None);
    }

    /// What the terminal alone may call has no route, since every route is open to programs with the token.
    #[test]
    fn routes_are_of_methods_that_every_surface_may_call() {
        let mut seen = BTreeSet::new();
        for method in Method::ALL {
            let Some(route) = method.route() else { continue };
            assert_ne!(method.access(), Terminal, "{}", method.name());
            assert!(!route.paths.is_empty());
            let mut generator = SchemaGenerator::default();
            let schema = (route.params)(&mut generator);
            let fields =
                generator.definitions().values().next().unwrap_or(schema.as_value())["properties"].clone();
            for path in route.paths {
                assert!(seen.insert((format!("{:?}", route.verb), *path)), "twice: {path}");
                assert_eq!(path.contains('{'), route.subject.is_some(), "{path}");
            }
            if let Some(subject) = route.subject {
                assert!(fields.get(subject.field()).is_some(), "{}: {fields}", method.name());
            }
        }
        assert!(seen.len() >= 17, "{seen:?}");
    }

    #[test]
    fn parameters_that_do_not_fit_are_an_error_that_names_the_method() {
        let params = serde_json::json!({ "ask": "Ab3dEf9Z", "more": 1 });
        let Err(EngineError::Params { method, why }) = MethodCall::read(Method::ApprovalsShow, params) else {
            panic!("read")
        };
        assert_eq!(
            (method.as_str(), why.as_str()),
            ("approvals.show", "unknown field `more`, expected `ask`")
        );
        assert!(matches!(
            MethodCall::read(Method::ApprovalsList, Value::Null),
            Ok(MethodCall::ApprovalsList(_))
        ));
        assert!(matches!(MethodCall::read(Method::Ping, Value::from(3)), Ok(MethodCall::Ping(_))));
    }
}
