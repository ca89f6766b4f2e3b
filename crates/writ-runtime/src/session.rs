//! A session in memory: its work folder, its watchers, and the turn that runs.

mod grants;
mod parts;
mod terms;
pub(crate) mod topics;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OnceCell, mpsc};
use tokio_util::sync::CancellationToken;
use writ_agent::event::TurnMessage;
use writ_inspect::prepared::Prepared;
use writ_policy::door::Mode;
use writ_policy::keys::Authority;
use writ_policy::keys::grants::Grants;
use writ_policy::principal::Principal;
use writ_policy::rules::RuleSet;
use writ_sandbox::config::{ShownFolder, ShownKind, WorkspaceConfig};
use writ_sandbox::{Sandbox, Workspace};
use writ_store::queue::EXECUTOR;
use writ_types::action::ActionKind;
use writ_types::chat::ToolResult;
use writ_types::error::Exit;
use writ_types::frame::ServerFrame;
use writ_types::id::{AskId, SessionId, TurnId};
use writ_types::unit::Timestamp;

use crate::error::EngineError;
use crate::home_files::{HomeFiles, documents_of};
use crate::hub::Hub;
use crate::profile::Answering;

pub(crate) use grants::{base_grants, widest, work_kinds};
pub(crate) use parts::{
    GateAnswer, SessionBudget, SessionContext, SessionGates, SessionHosts, SessionKeys, SessionNotices,
    SessionRecovery, SessionSecrecy, SessionSubscriptions, TakenNumbers, TitleAuthor, TitleRecord,
    WaitingGate,
};

pub use terms::{AttemptTerms, ToolEndTimes};
pub(crate) use terms::{Ordered, QuestionTerms, SessionTerms, UnderPlan, WorkTerms};

use grants::QUESTION_KINDS;
use writ_store::sessions::INTERNAL;
/// The keys of a session's metadata that the store reads too.
pub(crate) use writ_store::sessions::{CLOSED_AT, CONTEXT_PINS, SURFACE};

/// Interruptions that may wait for a turn; a message beyond them waits in the queue instead.
pub(crate) const MAX_INTERRUPTS: usize = 64;

/// The key of a session's metadata with the hosts that it was granted.
pub(crate) const GRANTED_HOSTS: &str = "granted_hosts";
/// The key of a session's metadata with the hosts that no list names and that it has read from.
pub(crate) const NEW_HOSTS: &str = "new_hosts";
/// The key of a session's metadata with the tokens from which its budget is counted.
pub(crate) const BUDGET_BASE: &str = "budget_base";
/// The key of a session's metadata with the money from which its budget is counted, in micro-USD.
pub(crate) const BUDGET_COST_BASE: &str = "budget_cost_base";
/// The key of a session's metadata that says that a person has paused it.
pub(crate) const BUDGET_PAUSED: &str = "budget_paused";
/// The key of a session's metadata with what it keeps in the context.
pub(crate) const SUBSCRIPTIONS: &str = "subscriptions";
/// The key of a session's metadata with a program's name for it.
pub(crate) const CONVERSATION: &str = "conversation";
/// The key of a session's metadata that says that others speak in it.
pub(crate) const RELAYED: &str = "relayed";

/// The key of a session's metadata with the order that it works under.
pub(crate) const ORDER: &str = "order";

/// The key of a session's metadata with the work item that has its steps run in it.
pub(crate) const WORK_ITEM: &str = "work_item";
/// The key of a session's metadata with the limits of a question of the autopilot to the planner.
pub(crate) const QUESTION: &str = "pilot_question";
/// The key of a session's metadata with the branch that a plan of the autopilot is for.
pub(crate) const BRANCH: &str = "pilot_branch";
/// The key of a session's metadata with its title.
pub(crate) const TITLE: &str = "title";
/// The key of a session's metadata with the named agent that answers in it.
pub(crate) const AGENT: &str = "agent";
/// The key of a session's metadata with the model that was chosen for it.
pub(crate) const MODEL: &str = "model";
/// The key of a session's metadata with the session and the turn that it was copied from.
pub(crate) const FORKED_FROM: &str = "forked_from";

/// The key of a session's metadata with its level.
pub(crate) const ACCESS: &str = "access";

/// The prefix of the metadata keys under which hooks store their state.
pub(crate) const HOOK_STATE: &str = "hook_state ";

/// The harness's own word for what brings changes into a project.
pub(crate) const APPLY: &str = "apply";

/// The harness's own word for what leads back.
pub(crate) const UNDO: &str = "undo";

/// The place from which a session is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Surface {
    /// On this machine, by a command: each opens a session of its own.
    #[default]
    Local,
    /// In the page: without a session or a project of its own, it goes on with the newest of the page.
    Page,
    /// By a program, over HTTP.
    Api,
    /// By the engine, for the steps of a work item.
    Work,
    /// By the engine for itself: it is in no list.
    Engine,
}

impl Surface {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Page => "page",
            Self::Api => "api",
            Self::Work => "work",
            Self::Engine => INTERNAL,
        }
    }
}

/// Reports whether an action is refused because its session is closed. The owner may still apply or undo
/// changes made in it.
pub(crate) fn is_over(session: &Session, prepared: &Prepared) -> bool {
    session.state().closed && !outlives(prepared)
}

/// Reports whether the action applies or undoes changes outside a turn, which the owner may do in a closed
/// session.
pub(crate) fn outlives(prepared: &Prepared) -> bool {
    prepared.turn.is_none() && [APPLY, UNDO].contains(&prepared.tool.as_str())
}

/// Events from outside that reach a running turn.
#[derive(Debug)]
pub(crate) enum Interrupt {
    /// A person stops it.
    Cancel,
    /// Another message of its session came in.
    Arrived(TurnMessage),
    /// An ask of it was answered.
    Answered(AskId, Box<ToolResult>),
}

impl Interrupt {
    /// Returns the kind for the log, which must not contain the content.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Arrived(_) => "message",
            Self::Answered(..) => "answer",
        }
    }
}

/// Returns the frame that shows watching clients the end of a gate's ask.
pub(crate) fn resolved(ask_id: AskId, state: &str, text: String) -> ServerFrame {
    let (state, reason) = (state.to_owned(), String::new());
    ServerFrame::ApprovalResolved { ask_id, state, reason, text, exit: Exit::Done, undo: None }
}

/// A session in memory.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) terms: SessionTerms,
    pub(crate) hub: Hub,
    workspace: OnceCell<Arc<Workspace>>,
    state: Mutex<SessionState>,
    /// Held while the work folder is diffed or applied, so that nothing is approved that is being changed.
    pub(crate) applying: tokio::sync::Mutex<()>,
    /// Held while the granted hosts are changed.
    pub(crate) granting: tokio::sync::Mutex<()>,
    /// Held while a number is taken, never while its turn is made ready.
    pub(crate) numbering: tokio::sync::Mutex<TakenNumbers>,
    /// Held while the history is summarised: two turns do not pay for one summary.
    pub(crate) compacting: tokio::sync::Mutex<()>,
    /// The time at which a piece of an answer came last, in milliseconds; zero: none has come.
    heard: AtomicI64,
    /// Set while a program of the owner works in a turn: its tools are none of the ledger's.
    has_program: AtomicBool,
}

/// The part of a session that changes from turn to turn.
#[derive(Debug, Default)]
pub(crate) struct SessionState {
    /// The turns that run, at most one for each consumer.
    pub(crate) turns: Vec<ActiveTurn>,
    pub(crate) keys: SessionKeys,
    /// The rules in force, where its project has some of its own.
    pub(crate) rules: Option<Arc<RuleSet>>,
    pub(crate) budget: SessionBudget,
    pub(crate) context: SessionContext,
    pub(crate) notices: SessionNotices,
    pub(crate) recovery: SessionRecovery,
    pub(crate) hosts: SessionHosts,
    pub(crate) subscriptions: SessionSubscriptions,
    pub(crate) gates: SessionGates,
    pub(crate) secrecy: SessionSecrecy,
    /// The session's title, once it has one.
    pub(crate) title: Option<TitleRecord>,
    /// The agent that answers in it, and its model.
    pub(crate) answering: Answering,
    /// The session takes neither clients nor messages any longer.
    pub(crate) closed: bool,
    /// Ends with the session, and with the engine: what people have done in it outside turns stops then.
    pub(crate) over: CancellationToken,
}

/// A turn that runs.
#[derive(Clone, Debug)]
pub(crate) struct ActiveTurn {
    pub(crate) turn: TurnId,
    pub(crate) number: u64,
    /// The consumer of the message that it answers.
    pub(crate) consumer: String,
    /// The sender of the message that it answers.
    speaker: Principal,
    /// Its authority, once it has acted.
    acting: Option<Arc<Authority>>,
    interrupts: mpsc::Sender<Interrupt>,
}

impl SessionState {
    /// Returns the turn that runs for a consumer.
    pub(crate) fn turn_for(&self, consumer: &str) -> Option<&ActiveTurn> {
        self.turns.iter().find(|running| running.consumer == consumer)
    }

    /// Returns the sender of the message that a turn answers. For a turn that does not run it is the sender of one that
    /// does; `None` while none runs, when the owner acts.
    pub(crate) fn speaker_of(&self, turn: Option<TurnId>) -> Option<&Principal> {
        let named = self.turns.iter().find(|running| Some(running.turn) == turn);
        named.or_else(|| self.turns.first()).map(|running| &running.speaker)
    }

    /// Returns true if a turn runs that answers a guest.
    pub(crate) fn answers_guest(&self) -> bool {
        self.turns.iter().any(|running| matches!(running.speaker, Principal::Guest { .. }))
    }

    /// Notes the authority under which a turn acts, or with `None` what the owner does outside turns.
    pub(crate) fn set_acting(&mut self, turn: Option<TurnId>, authority: &Arc<Authority>) {
        let running = self.turns.iter_mut().find(|running| Some(running.turn) == turn);
        match running {
            Some(running) => running.acting = Some(Arc::clone(authority)),
            // An approved action of an ended turn can still run, and must be stopped if its key is revoked.
            None => self.keys.note_outside(authority),
        }
    }

    /// Returns the authorities under which anything acts that ends with the session.
    pub(crate) fn acting(&self) -> impl Iterator<Item = Arc<Authority>> {
        self.turns.iter().filter_map(|running| running.acting.clone()).chain(self.keys.outside())
    }

    /// Returns the authorities under which anything acts, also where it goes on in a closed session.
    pub(crate) fn all_acting(&self) -> impl Iterator<Item = Arc<Authority>> {
        self.acting().chain(self.keys.outliving())
    }
}

/// A program of the owner that works in a turn of a session.
#[derive(Debug)]
pub(crate) struct WorkingProgram(Arc<Session>);

impl Drop for WorkingProgram {
    fn drop(&mut self) {
        self.0.has_program.store(false, Ordering::Relaxed);
    }
}

impl Session {
    pub(crate) fn new(id: SessionId, terms: SessionTerms, state: SessionState) -> Self {
        Self {
            id,
            terms,
            hub: Hub::default(),
            workspace: OnceCell::new(),
            state: Mutex::new(state),
            applying: tokio::sync::Mutex::new(()),
            granting: tokio::sync::Mutex::new(()),
            numbering: tokio::sync::Mutex::default(),
            compacting: tokio::sync::Mutex::new(()),
            heard: AtomicI64::new(0),
            has_program: AtomicBool::new(false),
        }
    }

    /// Notes that a piece of an answer has come.
    pub(crate) fn note_heard(&self, now: Timestamp) {
        self.heard.store(now.as_millis(), Ordering::Relaxed);
    }

    /// Returns the time at which a piece of an answer came last.
    pub(crate) fn heard_at(&self) -> Timestamp {
        Timestamp::from_millis(self.heard.load(Ordering::Relaxed))
    }

    /// Notes that a program of the owner works in a turn, until what is returned is dropped.
    pub(crate) fn begin_program(self: &Arc<Self>) -> WorkingProgram {
        self.has_program.store(true, Ordering::Relaxed);
        WorkingProgram(Arc::clone(self))
    }

    /// Returns true while a program of the owner works in a turn.
    pub(crate) fn has_program(&self) -> bool {
        self.has_program.load(Ordering::Relaxed)
    }

    /// Locks the part that changes from turn to turn. Every holder leaves it whole, so poison is ignored.
    pub(crate) fn state(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a turn of a consumer runs that answers `speaker`. Returns its interruptions.
    pub(crate) fn begin(
        &self,
        (turn, number): (TurnId, u64),
        consumer: &str,
        speaker: Principal,
    ) -> mpsc::Receiver<Interrupt> {
        let (interrupts, waiting) = mpsc::channel(MAX_INTERRUPTS);
        let consumer = consumer.to_owned();
        let mut state = self.state();
        // A turn of the consumer that could not be ended is over: its lease was given to this one.
        state.turns.retain(|running| running.consumer != consumer);
        state.turns.push(ActiveTurn { turn, number, consumer, speaker, acting: None, interrupts });
        waiting
    }

    /// Notes that a turn does not run any more, or that it is not to begin; others stay.
    pub(crate) fn end(&self, turn: TurnId) {
        let mut state = self.state();
        state.turns.retain(|running| running.turn != turn);
    }

    /// Reports whether the given turn runs; with `None`, whether any turn runs.
    pub(crate) fn runs(&self, turn: Option<TurnId>) -> bool {
        self.state().turns.iter().any(|running| turn.is_none_or(|turn| turn == running.turn))
    }

    /// Interrupts a turn, if it runs; with `None`, the one that answers people. Says whether it will be handled.
    pub(crate) fn interrupt(&self, turn: Option<TurnId>, interrupt: Interrupt) -> bool {
        let state = self.state();
        let meant = match turn {
            Some(turn) => state.turns.iter().find(|running| running.turn == turn),
            None => state.turn_for(EXECUTOR),
        };
        meant.is_some_and(|running| running.interrupts.try_send(interrupt).is_ok())
    }

    /// Hands a message to the turn that runs for its consumer. Says whether it will be handled.
    pub(crate) fn hand_message(&self, consumer: &str, message: TurnMessage) -> bool {
        let state = self.state();
        let running = state.turn_for(consumer);
        running.is_some_and(|running| running.interrupts.try_send(Interrupt::Arrived(message)).is_ok())
    }

    /// Asks every turn that runs to stop. Returns true if at least one will.
    pub(crate) fn cancel_turns(&self) -> bool {
        let state = self.state();
        state.turns.iter().filter(|running| running.interrupts.try_send(Interrupt::Cancel).is_ok()).count()
            > 0
    }

    /// Stops the turns that run, however many interruptions wait for them: they handle this after those.
    pub(crate) async fn stop_turns(&self) {
        let running: Vec<_> = self.state().turns.iter().map(|running| running.interrupts.clone()).collect();
        for interrupts in running {
            // A turn that has ended meanwhile need not handle it.
            let _handled = interrupts.send(Interrupt::Cancel).await;
        }
    }

    /// Waits until the turns that run now have ended, but not for longer than `most`. Returns true if they have.
    pub(crate) async fn await_turns(&self, most: Duration) -> bool {
        let running: Vec<_> = self.state().turns.iter().map(|running| running.interrupts.clone()).collect();
        let ended = async {
            for interrupts in running {
                interrupts.closed().await;
            }
        };
        tokio::time::timeout(most, ended).await.is_ok()
    }

    /// Returns [`Mode::DryRun`] if actions are only decided and logged, else [`Mode::Execute`].
    pub(crate) const fn mode(&self) -> Mode {
        if self.terms.dry_run { Mode::DryRun } else { Mode::Execute }
    }

    /// The name under which its usage is counted for a work item. An attempt of the autopilot counts to its plan.
    pub(crate) fn item_name(&self) -> Option<String> {
        let work = self.terms.work?;
        Some(work.under.map_or(work.item, |under| under.item).to_string())
    }

    /// Returns true for an attempt of the autopilot that may have several turns.
    pub(crate) fn has_turns(&self) -> bool {
        self.terms.work.is_some_and(|work| work.attempt.max_turns.is_some())
    }

    /// The plan of the autopilot that it works under.
    pub(crate) fn plan_above(&self) -> Option<UnderPlan> {
        self.terms.work?.under
    }

    /// The project's folder, as text.
    pub(crate) fn project(&self) -> Option<&str> {
        self.terms.project.as_ref()?.to_str()
    }

    /// Returns the folders that the session's work folder is built from.
    pub(crate) fn workspace_config(&self, overlays: &Path) -> WorkspaceConfig {
        WorkspaceConfig {
            data_dir: overlays.join(self.id.to_string()),
            project: self.terms.project.clone(),
            shown: None,
        }
    }

    /// Returns true if programs of this session see the agent's documents. They are, as memories, not meant for everybody who writes to
    /// the agent, and a step knows what its plan says.
    pub(crate) fn sees_documents(&self) -> bool {
        !self.terms.relayed && self.terms.work.is_none()
    }

    /// The session's work folder, opened once.
    ///
    /// # Errors
    ///
    /// If the sandbox cannot be used here, or the project cannot be read.
    pub(crate) async fn workspace(
        &self,
        sandbox: &Sandbox,
        overlays: &Path,
        files: &dyn HomeFiles,
    ) -> Result<Arc<Workspace>, EngineError> {
        let open = async || {
            let documents = if self.sees_documents() { documents_of(files).await } else { None };
            let shown = documents.map(|path| ShownFolder { path, kind: ShownKind::Documents });
            let config = WorkspaceConfig { shown, ..self.workspace_config(overlays) };
            sandbox.open(config).await.map(Arc::new)
        };
        Ok(Arc::clone(self.workspace.get_or_try_init(open).await?))
    }

    /// Returns the owner's grants for this session, narrowed by its order, by relaying and by its end.
    pub(crate) fn grants(&self) -> Grants {
        let project = self.terms.project.as_ref().map(|path| path.to_string_lossy());
        let mut grants = widest(project.as_deref());
        if self.terms.relayed || self.terms.work.is_some() {
            // A step knows what its plan says.
            // The owner's memories are not meant for everybody who writes to the agent.
            grants.kinds.remove(&ActionKind::Recall);
            grants.kinds.remove(&ActionKind::ModifySelf);
        }
        if self.plan_above().is_some_and(|under| under.reads_only) {
            grants.kinds.remove(&ActionKind::WriteFile);
            grants.kinds.remove(&ActionKind::ModifySelf);
        }
        if self.terms.question.is_some() {
            grants.kinds.retain(|kind, _| QUESTION_KINDS.contains(kind));
        }
        let state = self.state();
        if let Some(ordered) = &self.terms.order {
            grants = ordered.grants(&grants);
        } else if self.terms.write && !state.recovery.left_behind {
            grants = grants.preapprove_kind(ActionKind::WriteFile);
        }
        if state.closed {
            // In a closed session a stopped turn may have left half-made changes, so nothing is approved in advance.
            grants.preapproved.clear();
        }
        grants
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ed25519_dalek::SigningKey;
    use writ_policy::keys::{BaseClaims, TASK_KEY_TTL, TaskClaims, Verifier, mint_base, mint_task};
    use writ_policy::rules::RuleSource;
    use writ_types::id::{InstallationId, KeyId};
    use writ_types::unit::Timestamp;

    use super::*;

    #[test]
    fn only_the_turn_that_runs_is_interrupted() {
        let at = Timestamp::from_millis(0);
        let (turn, other) = (TurnId::from_parts(at, 1), TurnId::from_parts(at, 2));
        let session =
            Session::new(SessionId::from_parts(at, 1), SessionTerms::default(), SessionState::default());
        assert!(!session.runs(None) && !session.interrupt(None, Interrupt::Cancel));
        let mut heard = session.begin((turn, 1), EXECUTOR, Principal::Owner);
        assert!(session.runs(None) && session.runs(Some(turn)) && !session.runs(Some(other)));
        assert!(!session.interrupt(Some(other), Interrupt::Cancel));
        assert!(session.interrupt(Some(turn), Interrupt::Cancel));
        session.end(other);
        assert!(session.runs(Some(turn)), "it is not the one that has ended");
        session.end(turn);
        assert!(!session.interrupt(Some(turn), Interrupt::Cancel));
        assert!(matches!(heard.try_recv(), Ok(Interrupt::Cancel)), "what came in time is not lost");
        assert!(heard.try_recv().is_err());
    }

    #[test]
    fn turns_of_two_consumers_run_side_by_side_and_are_reached_by_name() {
        let at = Timestamp::from_millis(0);
        let (first, second) = (TurnId::from_parts(at, 1), TurnId::from_parts(at, 2));
        let session =
            Session::new(SessionId::from_parts(at, 1), SessionTerms::default(), SessionState::default());
        let mut of_first = session.begin((first, 1), EXECUTOR, Principal::Owner);
        let guest = Principal::Guest { case: "case-7".to_owned() };
        let mut of_second = session.begin((second, 2), "reviewer", guest.clone());
        assert!(session.runs(Some(first)) && session.runs(Some(second)));
        assert_eq!(session.state().speaker_of(Some(first)), Some(&Principal::Owner));
        assert_eq!(session.state().speaker_of(Some(second)), Some(&guest));
        assert!(session.state().answers_guest());
        assert!(session.interrupt(Some(second), Interrupt::Cancel));
        assert!(of_first.try_recv().is_err() && matches!(of_second.try_recv(), Ok(Interrupt::Cancel)));
        let message = |n| TurnMessage {
            id: writ_types::id::MessageId::from_parts(at, n),
            text: String::new(),
            label: writ_types::taint::Label::new(writ_types::taint::Taint::Owner),
        };
        assert!(session.hand_message("reviewer", message(1)));
        assert!(of_first.try_recv().is_err() && matches!(of_second.try_recv(), Ok(Interrupt::Arrived(_))));
        assert!(!session.hand_message("planner", message(2)));
        assert!(session.cancel_turns());
        assert!(of_first.try_recv().is_ok() && of_second.try_recv().is_ok());
        session.end(first);
        assert!(!session.runs(Some(first)) && session.runs(Some(second)));
        assert!(!session.interrupt(None, Interrupt::Cancel), "none answers people");
        session.end(second);
        assert_eq!(session.state().speaker_of(Some(second)), None);
    }

    /// Leave that was given beforehand ends with the session, and where something half made was left.
    #[test]
    fn a_closed_session_grants_nothing_beforehand() {
        let at = Timestamp::from_millis(0);
        let terms = SessionTerms { write: true, ..SessionTerms::default() };
        let session = Session::new(SessionId::from_parts(at, 1), terms, SessionState::default());
        let is_granted = || session.grants().preapproved.contains(&ActionKind::WriteFile);
        assert!(is_granted(), "twin");
        session.state().recovery.left_behind = true;
        assert!(!is_granted());
        session.state().recovery.left_behind = false;
        session.state().closed = true;
        assert!(!is_granted());
    }

    #[tokio::test]
    async fn a_turn_is_stopped_however_much_waits_for_it() {
        let at = Timestamp::from_millis(0);
        let session =
            Session::new(SessionId::from_parts(at, 1), SessionTerms::default(), SessionState::default());
        session.stop_turns().await;
        let mut heard = session.begin((TurnId::from_parts(at, 1), 1), EXECUTOR, Principal::Owner);
        while session.interrupt(None, Interrupt::Cancel) {}
        let hearing = async {
            let mut times = 0;
            while times <= MAX_INTERRUPTS {
                assert!(matches!(heard.recv().await, Some(Interrupt::Cancel)));
                times += 1;
            }
        };
        tokio::join!(session.stop_turns(), hearing);
        drop(heard);
        session.stop_turns().await;
    }

    fn authority(session: SessionId, key: u128) -> Arc<Authority> {
        let at = Timestamp::from_millis(0);
        let (root, harness) = (SigningKey::from_bytes(&[1; 32]), SigningKey::from_bytes(&[2; 32]));
        let rules = RuleSet::load_rules(&[RuleSource::shipped_rules()]).expect("the shipped rules load");
        let base = BaseClaims {
            key: KeyId::from_parts(at, 1),
            installation: InstallationId::from_parts(at, 1),
            epoch: 1,
            agent: "worker".to_owned(),
            policy: rules.digest(),
            expires_at: at.plus_duration(TASK_KEY_TTL),
            grants: base_grants(),
        };
        let task = TaskClaims {
            key: KeyId::from_parts(at, key),
            base: base.key,
            session,
            not_before: at,
            expires_at: base.expires_at,
            grants: widest(None),
            case: None,
            under: BTreeSet::new(),
            plan: None,
        };
        let (public, router) = (root.verifying_key(), harness.verifying_key());
        let token = mint_task(&mint_base(&base, &root).expect("mints"), &task, &public, &harness);
        let verifier = Verifier { root: public, router, installation: base.installation, epoch: base.epoch };
        Arc::new(verifier.verify_task(&token.expect("mints")).expect("verifies"))
    }

    /// What was approved of an ended turn acts on while later turns begin and end, and its key can be revoked.
    #[test]
    fn the_end_of_another_turn_leaves_the_authority_of_what_acts_outside() {
        let at = Timestamp::from_millis(0);
        let id = SessionId::from_parts(at, 1);
        let session = Session::new(id, SessionTerms::default(), SessionState::default());
        let (ended, other) = (TurnId::from_parts(at, 1), TurnId::from_parts(at, 2));
        let _of_ended = session.begin((ended, 1), EXECUTOR, Principal::Owner);
        session.end(ended);
        let acting = authority(id, 2);
        session.state().set_acting(Some(ended), &acting);
        let _of_other = session.begin((other, 2), EXECUTOR, Principal::Owner);
        session.end(other);
        assert_eq!(session.state().acting().count(), 1);
    }

    /// Each can be listed and revoked for as long as something acts under it.
    #[test]
    fn authorities_outside_turns_stand_beside_one_another_until_what_acts_under_them_has_ended() {
        let at = Timestamp::from_millis(0);
        let id = SessionId::from_parts(at, 1);
        let session = Session::new(id, SessionTerms::default(), SessionState::default());
        let ended = Some(TurnId::from_parts(at, 1));
        let keys = || session.state().acting().map(|held| held.task().key).collect::<Vec<_>>();
        let [first, second, third] = [2, 3, 4].map(|key| authority(id, key));
        session.state().set_acting(ended, &first);
        session.state().set_acting(None, &second);
        session.state().set_acting(None, &second);
        assert_eq!(keys(), [first.task().key, second.task().key]);
        drop(first);
        session.state().set_acting(None, &third);
        assert_eq!(keys(), [second.task().key, third.task().key]);
        // An action that runs on in a closed session can be listed and revoked, and does not end with the session.
        let owners = authority(id, 5);
        session.state().keys.note_outliving(&owners);
        assert_eq!(keys(), [second.task().key, third.task().key]);
        let all = || session.state().all_acting().map(|held| held.task().key).collect::<Vec<_>>();
        assert_eq!(all(), [second.task().key, third.task().key, owners.task().key]);
        drop(owners);
        assert_eq!(all().len(), 2);
    }
}
