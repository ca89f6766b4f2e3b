//! Errors of the engine.

use writ_policy::approval::{ApprovalError, ScopeError};
use writ_policy::inbound::MessageError;
use writ_policy::order::OrderError;
use writ_policy::principal::AuthError;
use writ_sandbox::error::SandboxError;
use writ_store::error::StoreError;
use writ_types::entry::Fact;
use writ_types::error::{Exit, Report, ToReport};
use writ_types::form::FormError;
use writ_types::id::{AskId, AttemptId, EntrySeq, SessionId, TurnId};
use writ_types::recipient::Recipient;

mod pilot;
mod work;

pub use pilot::PilotError;
pub use work::WorkError;

/// Reason for which the engine could not do a requested operation.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The sandbox cannot be used.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The ledger cannot be written: nothing is performed.
    #[error("the ledger cannot be written: {0}")]
    Unwritable(String),
    /// A key could not be made or verified.
    #[error(transparent)]
    Key(#[from] writ_policy::keys::KeyError),
    /// A value has no canonical form.
    #[error(transparent)]
    NotCanonical(#[from] writ_types::digest::NotCanonical),
    /// The turn machine refused an event: a bug, the turn is given up.
    #[error("the turn machine refused: {0}")]
    Machine(String),
    /// The embedder does not give vectors, so memories are found by their words.
    #[error("{0}")]
    Embedder(String),
    /// No model has given a profile; the old one stays.
    #[error("the memories were not distilled, and the profile stays as it is: {0}")]
    Digest(String),
    /// A generated file of the home cannot be written.
    #[error("{}", .0.inside)]
    HomeFile(Box<Report>),
    /// A bundle of memories cannot be imported.
    #[error("the bundle cannot be imported: {0}")]
    Bundle(String),
    /// A stored event cannot be read.
    #[error("turn event {n} cannot be read: {why}")]
    StoredEvent {
        /// Its number.
        n: u64,
        /// The reason it cannot be read.
        why: String,
    },
    /// Not the owner.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// No such session.
    #[error("there is no session {0}")]
    NoSession(SessionId),
    /// The session was closed.
    #[error("session {0} was closed")]
    SessionClosed(SessionId),
    /// No such turn.
    #[error("there is no turn {0}")]
    NoTurn(TurnId),
    /// No such entry.
    #[error("the ledger has no entry {0}")]
    NoEntry(EntrySeq),
    /// A head of the ledger was not copied to its places.
    #[error(transparent)]
    Heads(#[from] HeadsError),
    /// An agent, a channel or a recipient cannot be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// A channel cannot be reached.
    #[error("{}", .0.inside)]
    Channel(Box<Report>),
    /// No such kind of entries.
    #[error("there are no entries of the kind '{0}'")]
    NoEvent(String),
    /// No session works on a project.
    #[error("no session has worked on it: there is nothing to show and nothing to apply")]
    NoWork,
    /// No such ask.
    #[error("ask {0} is not known here")]
    NoAsk(AskId),
    /// The ask was answered or has ended.
    #[error("ask {ask} {state}")]
    AskClosed {
        /// The ask.
        ask: AskId,
        /// The ask's outcome, in words.
        state: String,
    },
    /// The person was shown another text.
    #[error("ask {0} is about another text than the one that was shown")]
    AskChanged(AskId),
    /// Nothing can be signed for a scope.
    #[error(transparent)]
    Scope(#[from] ScopeError),
    /// The values filled in do not fit the form.
    #[error(transparent)]
    Form(#[from] FormError),
    /// There is no approval that lasts in force: for the task, standing, or of a host.
    #[error("no approval that lasts, and no trust in a host, is in force that ask {0} was answered with")]
    NotInForce(AskId),
    /// Something is wrong with a work item.
    #[error(transparent)]
    Work(#[from] WorkError),
    /// The autopilot asks for something that its plan does not give.
    #[error(transparent)]
    Pilot(#[from] PilotError),
    /// A key, order or signature does not count.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// There is no way back.
    #[error("{0} cannot be undone: its copies are not stored (any more)")]
    NoUndo(AttemptId),
    /// It was undone.
    #[error("{0} was undone before")]
    UndoneBefore(AttemptId),
    /// The answer does not count.
    #[error(transparent)]
    Approval(#[from] writ_policy::approval::ApprovalError),
    /// A passkey does not count.
    #[error(transparent)]
    Passkey(#[from] writ_inspect::webauthn::PasskeyError),
    /// A passkey is not enrolled.
    #[error("{0}")]
    Enrolment(&'static str),
    /// Passkeys cannot be used in a page under this name.
    #[error("passkeys cannot be used in a page at '{0}'")]
    NoSite(String),
    /// No passkey is enrolled for the name under which the page is open.
    #[error("no passkey is enrolled for '{0}'")]
    NoPasskey(String),
    /// There is no such approver key in force.
    #[error("there is no approver key {0} in force")]
    NoApprover(writ_types::id::KeyId),
    /// The last approver key of the command line is not removed.
    #[error("this is the last approver key of the command line")]
    LastApprover,
    /// Something that only a process of the owner on this machine may ask for.
    #[error("'{0}' is asked for in a terminal on this machine, and nowhere else")]
    TerminalOnly(String),
    /// The project's folder cannot be used.
    #[error("the project folder cannot be used: {0}")]
    Project(String),
    /// The project's rules cannot be read, or cannot stand.
    #[error("the project's rules cannot be used: {}", .0.outside)]
    ProjectRules(Box<Report>),
    /// The door refused what the owner wanted done.
    #[error("refused: {0}")]
    Denied(String),
    /// A session's changes were not brought into its project.
    #[error("{text}")]
    NotApplied {
        /// The exit with which a command ends.
        exit: Exit,
        /// The reason the changes were not applied.
        text: String,
    },
    /// The secrets that must stand in no text cannot be read.
    #[error("{0}")]
    Secrets(Report),
    /// A server of tools cannot be used.
    #[error("{}", .0.inside)]
    Server(Box<Report>),
    /// The context of a session cannot be assembled.
    #[error("{}", .0.inside)]
    Context(Box<Report>),
    /// No model is configured.
    #[error("no model is configured")]
    NoModel,
    /// There is no model of this name.
    #[error(transparent)]
    Model(Box<Report>),
    /// No case router runs in this engine.
    #[error("no case router runs here")]
    NoFleet,
    /// The case router refused.
    #[error("{}", .0.inside)]
    Fleet(Box<Report>),
    /// There is no autopilot in this engine.
    #[error("this engine has no autopilot")]
    NoAutopilot,
    /// The autopilot refuses, or has failed.
    #[error("{}", .0.inside)]
    Autopilot(Box<Report>),
    /// The engine is stopping.
    #[error("the engine is stopping")]
    Stopping,
    /// There is no such method.
    #[error("there is no method '{0}'")]
    NoMethod(String),
    /// Parameters of a method are wrong.
    #[error("{method}: {why}")]
    Params {
        /// The method.
        method: String,
        /// The problem with the parameters.
        why: String,
    },
}

impl ToReport for EngineError {
    // tidy: table
    fn report(&self) -> Report {
        let plain = |exit, code: &str| Report::new(exit, code, self.to_string());
        let told = |exit, code: &str, hint: &str| plain(exit, code).with_hint(hint);
        match self {
            Self::Store(error) => error.report(),
            Self::Sandbox(error) => error.report(),
            Self::Secrets(report) => report.clone(),
            Self::Unwritable(why) => unwritable(why),
            Self::Key(_) => told(Exit::Denied, "key.invalid", "see `writ keys inspect FILE`"),
            Self::NotCanonical(_) => told(Exit::Bug, "value.not_canonical", Exit::Bug.advice()),
            Self::Machine(_) => told(Exit::Bug, "turn.illegal", Exit::Bug.advice()),
            Self::Embedder(why) => no_vectors(why),
            Self::Digest(_) => told(
                Exit::Model,
                "memory.digest",
                "try again with `writ memory digest`, or name another model",
            ),
            Self::HomeFile(report) => report.as_ref().clone(),
            Self::Bundle(_) => told(Exit::Usage, "memory.bundle", "nothing of this part was imported"),
            Self::StoredEvent { .. } => plain(Exit::Bug, "turn.stored_event")
                .with_hint("`writ audit verify` shows whether the store was changed"),
            Self::Auth(error) => auth(error),
            Self::NoSession(_) => told(Exit::Usage, "session.unknown", "see 'writ status' for sessions"),
            Self::SessionClosed(_) => told(Exit::Usage, "session.closed", "open a new one"),
            Self::NoTurn(_) => told(Exit::Usage, "turn.unknown", "`writ status --json` names those that run"),
            Self::NoEntry(_) => told(Exit::Usage, "ledger.no_entry", "entries are counted from 0"),
            Self::Heads(error) => error.report(),
            Self::Directory(error) => error.report(),
            Self::NoEvent(_) => plain(Exit::Usage, "ledger.no_event")
                .with_hint(format!("the kinds are: {}", Fact::EVENTS.join(", "))),
            Self::NoWork => plain(Exit::Usage, "project.no_session")
                .with_hint("`writ chat` begins one; --project DIR and --session ID name others"),
            Self::NoAsk(_) => told(Exit::Usage, "ask.unknown", "see 'writ approvals list' for what is open"),
            Self::AskClosed { .. } => told(Exit::Denied, "ask.closed", "see 'writ approvals list'"),
            Self::AskChanged(_) => plain(Exit::Denied, "ask.changed")
                .with_hint("look at what is asked now with `writ approvals show ASK`, and answer that"),
            Self::Scope(error) => scope(error, told),
            Self::Form(_) => told(Exit::Usage, "ask.form", "fill in what the question shows"),
            Self::NotInForce(_) => told(Exit::Usage, "approval.not_in_force", "see `writ approvals list`"),
            Self::Keys(error) => error.report(),
            Self::Work(error) => error.report(),
            Self::Pilot(error) => error.report(),
            Self::NoUndo(_) => told(Exit::Usage, "undo.unknown", "copies older than a day are not stored"),
            Self::UndoneBefore(_) => told(Exit::Denied, "undo.done", "see `writ audit tail`"),
            Self::Approval(error) => approval(error),
            Self::Passkey(_) => told(Exit::Denied, "passkey.invalid", "try again, or use another one"),
            Self::Enrolment(_) => plain(Exit::Denied, "passkey.not_enrolled")
                .with_hint("`writ keys approver enrol` in a terminal gives a new code"),
            Self::NoSite(_) => plain(Exit::Denied, "passkey.no_site")
                .with_hint("open the page as http://localhost or through https under a name"),
            Self::NoPasskey(_) => plain(Exit::Denied, "passkey.none")
                .with_hint("`writ keys approver enrol` in a terminal begins to enrol one"),
            Self::NoApprover(_) => told(Exit::Usage, "approver.unknown", "see `writ keys approver list`"),
            Self::LastApprover => plain(Exit::Denied, "approver.last")
                .with_hint("without it, no passkey could be enrolled, and nothing approved in a terminal"),
            Self::TerminalOnly(_) => plain(Exit::Denied, "auth.terminal_only")
                .with_hint("run the command in a terminal, as the user who owns the home"),
            Self::Project(_) => plain(Exit::Usage, "project.unusable")
                .with_hint("name a project's own folder, below your home and not the home of Writ"),
            Self::ProjectRules(report) => plain(report.exit, "project.rules").with_hint(
                "correct what is named, or remove the project's .writ/policies; \
                 `writ policy check --project DIR` repeats this",
            ),
            Self::Denied(_) => told(Exit::Denied, "door.denied", Exit::Denied.advice()),
            Self::NotApplied { exit, .. } => told(*exit, "apply.refused", "`writ diff` shows what is left"),
            Self::Server(report) | Self::Context(report) | Self::Model(report) => report.as_ref().clone(),
            Self::Channel(report) | Self::Fleet(report) | Self::Autopilot(report) => report.as_ref().clone(),
            Self::NoAutopilot => told(Exit::Usage, "pilot.none", "start the engine with `writ start`"),
            Self::NoFleet => told(Exit::Usage, "fleet.none", "set `[fleet] cases = true` in config.toml"),
            Self::NoModel => no_model(self.to_string()),
            Self::Stopping => told(Exit::Blocked, "engine.stopping", "try again in a moment"),
            Self::NoMethod(_) => plain(Exit::Usage, "call.unknown")
                .with_hint("`writ --help` names what there is; engine and client should be of one version"),
            Self::Params { .. } => plain(Exit::Usage, "call.params")
                .with_hint("correct what is named; /openapi.json and the schemas of the frames say the form"),
        }
    }
}

fn approval(error: &ApprovalError) -> Report {
    if matches!(error, ApprovalError::Passkey(_) | ApprovalError::Challenge | ApprovalError::Copied) {
        return error.report();
    }
    Report::new(Exit::Denied, "approval.invalid", error.to_string())
        .with_hint("look at what is asked now with 'writ approvals show', and approve that")
}

fn scope(error: &ScopeError, told: impl Fn(Exit, &str, &str) -> Report) -> Report {
    match error {
        ScopeError::NotCanonical(_) => told(Exit::Bug, "value.not_canonical", Exit::Bug.advice()),
        ScopeError::OnceOnly(_) => told(Exit::Usage, "ask.once_only", "approve it once"),
        ScopeError::NoValues(_) => told(Exit::Usage, "ask.no_values", "approve it without its values"),
        ScopeError::NoHost(_) => told(Exit::Usage, "ask.no_host", "approve it without trusting its host"),
        ScopeError::NoTotal(_) | ScopeError::Limits(_) => {
            told(Exit::Usage, "ask.limits", "`writ approvals show ASK` says what is offered")
        }
    }
}

/// Reason for which a key, an order or a signature does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    /// There is no such key in force.
    #[error("there is no key {0} in force")]
    Unknown(writ_types::id::KeyId),
    /// A key is not made of what was handed in.
    #[error("no {what}: {why}")]
    Refused {
        /// The kind of thing that was to be made.
        what: String,
        /// The reason it was refused.
        why: String,
    },
    /// No plan of a work item's session is in force.
    #[error("no approved plan is in force for the work in session {0}")]
    NoPlan(SessionId),
    /// A standing order is not in force.
    #[error(transparent)]
    Order(#[from] OrderError),
    /// A message's signature does not count.
    #[error(transparent)]
    Message(#[from] MessageError),
}

/// Reason for which a head of the ledger was not copied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadsError {
    /// A place refused it; the text, with its path, is for the log.
    #[error("a head of the ledger could not be copied: {0}")]
    Refused(String),
    /// An earlier copy is still under way.
    #[error("an earlier copy of a head of the ledger is still under way")]
    UnderWay,
}

impl ToReport for HeadsError {
    fn report(&self) -> Report {
        match self {
            Self::Refused(_) => {
                Report::new(Exit::Blocked, "ledger.heads", "a head of the ledger could not be copied")
                    .with_inside(self.to_string())
                    .with_hint("see ledger.heads_file and ledger.heads_repository; the log names the reason")
            }
            Self::UnderWay => Report::new(Exit::Blocked, "ledger.heads_slow", self.to_string())
                .with_hint("see whether the places of ledger.heads_file and ledger.heads_repository answer"),
        }
    }
}

/// Reason for which an agent, a channel or a recipient cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DirectoryError {
    /// The agents of the engine cannot stand beside one another.
    #[error("the agents of this engine cannot be used: {0}")]
    Agents(String),
    /// There is no agent of this consumer.
    #[error("there is no agent '{0}'")]
    NoAgent(String),
    /// The channels of the engine cannot stand beside one another.
    #[error("the channels of this engine cannot be used: {0}")]
    Channels(String),
    /// The directory does not have this recipient.
    #[error("there is no recipient '{0}' here")]
    NoRecipient(Recipient),
}

impl ToReport for DirectoryError {
    fn report(&self) -> Report {
        let (exit, code, hint) = match self {
            Self::Agents(_) => (Exit::Config, "agent.profiles", "give each agent a consumer of its own"),
            Self::NoAgent(_) => (Exit::Usage, "agent.unknown", "name an agent of this engine"),
            Self::Channels(_) => (Exit::Config, "channel.names", "give each channel a name of its own"),
            Self::NoRecipient(_) => {
                (Exit::Denied, "recipient.unknown", "send it to 'owner', who is the only recipient")
            }
        };
        Report::new(exit, code, self.to_string()).with_hint(hint)
    }
}

impl From<OrderError> for EngineError {
    fn from(error: OrderError) -> Self {
        Self::Keys(error.into())
    }
}

impl ToReport for KeysError {
    fn report(&self) -> Report {
        let (exit, code, hint) = match self {
            Self::Unknown(_) => (Exit::Usage, "key.not_in_force", "see `writ keys list`"),
            Self::Refused { .. } => {
                (Exit::Denied, "key.refused", "`writ keys inspect FILE` says what a key holds")
            }
            Self::NoPlan(_) => (Exit::Waiting, "work.no_plan", "`writ work retry ITEM` asks for it again"),
            Self::Order(OrderError::Content(_)) => {
                (Exit::Usage, "order.content", "see `docs/guides/keys.md` for what an order may say")
            }
            Self::Order(_) => (Exit::Denied, "order.not_in_force", "see `writ keys order list`"),
            Self::Message(_) => (
                Exit::Denied,
                "message.signature",
                "sign it again with `writ keys sign`, and send it within five minutes, once",
            ),
        };
        Report::new(exit, code, self.to_string()).with_hint(hint)
    }
}

fn no_vectors(why: &str) -> Report {
    Report::new(Exit::Model, "memory.embedder", why)
        .with_hint("memories are found by their words meanwhile; see [memory] in config.toml")
}

fn no_model(text: String) -> Report {
    Report::new(Exit::Model, "model.none", text).with_hint(
        "set models.default in config.toml, for example \"anthropic/claude-sonnet-4-6\", \
         and store its key with 'writ secrets set'; an engine that runs takes it up within seconds",
    )
}

fn unwritable(why: &str) -> Report {
    let text = "the ledger cannot be written; nothing was performed";
    Report::new(Exit::Blocked, "ledger.unwritable", text)
        .with_inside(why)
        .with_hint("free some space or repair the disk, then try again: all work is saved")
}

fn auth(error: &AuthError) -> Report {
    let plain = |exit, code: &str| Report::new(exit, code, error.to_string());
    let hint = error.report().hint;
    match error {
        AuthError::Unknown | AuthError::NotAllowed(_) => plain(Exit::Denied, "auth.denied").with_hint(hint),
        AuthError::Credential(_) => error.report(),
        AuthError::Empty | AuthError::TooLong { .. } | AuthError::ClientId => {
            plain(Exit::Usage, "message.invalid").with_hint(hint)
        }
    }
}
