//! Gates: what judges outside of them is run here, and what follows a block is done.
//!
//! A script is an action of the harness like any other: it passes the door, and its sandbox has nothing but what it
//! judges. What cannot be run, or says something else than it should, is for the gate to judge.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::Value;
use tokio_util::sync::CancellationToken;
use writ_inspect::gate::{
    Due, Escalation, GateSet, Judgement, Judging, MAX_SAID_BYTES, ScriptDue, ScriptEnd, Subject,
};
use writ_inspect::prepared::Prepared;
use writ_policy::access::Access;
use writ_policy::budget::Spent;
use writ_policy::door::{Mode, Verdicts};
use writ_policy::keys::Authority;
use writ_sandbox::Sandbox;
use writ_sandbox::config::WorkspaceConfig;
use writ_sandbox::exec::{Ending, ExecOptions, ExecResult};
use writ_store::batch::{Batch, NewMessageRow, Op};
use writ_store::queue::PROXY;
use writ_types::action::{Action, Exec, ExecProfile};
use writ_types::chat::ToolOutcome;
use writ_types::digest::Digest;
use writ_types::entry::{Fact, GatePoint, GateVerdict, InboundRecord};
use writ_types::frame::ServerFrame;
use writ_types::id::{SessionId, TurnId};
use writ_types::recipient::Recipient;
use writ_types::taint::{Label, Taint};

use crate::door::{Passage, RequestContext};
use crate::error::EngineError;
use crate::journal::Journal;
use crate::keys::Keys;
use crate::metrics::{Metrics, point_name};
use crate::pending::Pending;
use crate::plan_results::task_id;
use crate::session::Session;
use crate::session_door::SessionDoor;
use crate::sessions::Sessions;
use crate::trace;

/// Scripts of so many conversations run at once; each waits for others of its folder.
const FOLDERS: u8 = 8;

/// The gates' combined result for an action.
#[derive(Debug, Default)]
pub(crate) struct ActionVerdicts {
    pub(crate) verdicts: Verdicts,
    /// Operations that record the verdicts in the ledger.
    pub(crate) ops: Pending,
    /// Replacement arguments for the tool call, if a gate rewrote it.
    pub(crate) arguments: Option<Value>,
}

/// A model's call, as gates see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wording<'a> {
    /// The arguments that gates get to see and judge.
    pub(crate) arguments: &'a serde_json::Value,
    /// Set while gates may still rewrite the call.
    pub(crate) rewritable: bool,
}

/// The session, turn and authority for which a script runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct For<'a> {
    pub(crate) session: SessionId,
    pub(crate) at: Option<(TurnId, u64)>,
    pub(crate) authority: &'a Authority,
}

type Scripted<'a> = Pin<Box<dyn Future<Output = Result<(ScriptEnd, String), EngineError>> + Send + 'a>>;

/// Settings of the gates.
#[derive(Debug)]
pub(crate) struct GatesConfig {
    /// The levels of access; `None`: they decide nothing.
    pub(crate) access: Option<Access>,
    /// The folder in which scripts run; nothing stays there.
    pub(crate) folder: PathBuf,
    /// The agent's name.
    pub(crate) agent: String,
}

/// The gates of an engine, with what their scripts need.
#[derive(Debug)]
pub(crate) struct Gates {
    pub(crate) set: GateSet,
    pub(crate) config: GatesConfig,
    pub(crate) journal: Arc<Journal>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) door: Arc<SessionDoor>,
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) stop_now: CancellationToken,
}

impl Gates {
    /// Returns true if access levels are configured, or a gate stands at the execution or access point.
    pub(crate) fn judges_actions(&self) -> bool {
        let at = |point| self.set.stands_at(point);
        self.config.access.is_some() || at(GatePoint::Execution) || at(GatePoint::Access)
    }

    /// Gathers the gates' verdicts on an action that has passed its keys.
    ///
    /// # Errors
    ///
    /// If the ledger cannot be written.
    pub(crate) async fn gather(
        &self,
        prepared: &Prepared,
        authority: &Authority,
        wording: Option<Wording<'_>>,
    ) -> Result<ActionVerdicts, EngineError> {
        let mut gathered = ActionVerdicts::default();
        let Some(session) = prepared.session.filter(|_| is_judged(&prepared.action)) else {
            return Ok(gathered);
        };
        let (at, cancel) = (turn_of(prepared), self.stop_now.child_token());
        let wanted = For { session, at, authority };
        let loaded = self.sessions.get(session).await?;
        let (beyond, ops) = self.beyond_level(&loaded, at, prepared);
        gathered.ops.extend(ops);
        if let Some(beyond) = beyond {
            gathered.verdicts.gates.push(beyond);
            return Ok(gathered);
        }
        let said = wording.map(|wording| wording.arguments);
        for point in [GatePoint::Access, GatePoint::Execution] {
            if !self.set.stands_at(point) {
                continue;
            }
            let mut judged = self.judged(wanted, (point, prepared), said, &cancel).await?;
            match judged.arguments.take().filter(|arguments| said != Some(arguments)) {
                None => {}
                Some(arguments) if wording.is_some_and(|wording| wording.rewritable) => {
                    gathered.arguments = Some(arguments);
                }
                Some(_) => {
                    let why = "it would change what was decided about already".to_owned();
                    judged.verdicts.push(("tool_args".to_owned(), GateVerdict::Block, why));
                }
            }
            gathered.ops.extend(self.gated(Some(session), at, point, &judged).await);
            gathered.ops.extend(self.follow(Some(session), at, point, &judged));
            gathered.ops.extend(self.verified(&loaded, at, &judged));
            let blocked = judged.blocked_reason().is_some();
            gathered.verdicts.gates.extend(judged.verdicts);
            if blocked {
                // A refused call is not rewritten.
                gathered.arguments = None;
                break;
            }
        }
        Ok(gathered)
    }

    /// Returns what the gates that run nothing say of an action, and the names of those that were not asked, since they run a
    /// program. Nothing is recorded, and nothing follows from it.
    pub(crate) fn foresee(
        &self,
        prepared: &Prepared,
        session: &Session,
        said: &Value,
    ) -> (Verdicts, Vec<String>) {
        let (mut verdicts, mut unasked) = (Verdicts::default(), Vec::new());
        if !is_judged(&prepared.action) {
            return (verdicts, unasked);
        }
        for point in [GatePoint::Access, GatePoint::Execution] {
            let judging = self.set.begin_judging(point, Subject::action(point, prepared), Some(said.clone()));
            let mut judging = judging.of_project(session.project());
            while let Some(due) = judging.next_due() {
                unasked.push(match due {
                    Due::Script(due) => due.gate,
                    Due::Model(due) => due.gate,
                });
                judging.leave_out();
            }
            verdicts.gates.extend(judging.end_judging().verdicts);
        }
        (verdicts, unasked)
    }

    /// Runs the gates of a point on an action and returns their judgement.
    pub(crate) async fn judged(
        &self,
        wanted: For<'_>,
        (point, prepared): (GatePoint, &Prepared),
        said: Option<&Value>,
        cancel: &CancellationToken,
    ) -> Result<Judgement, EngineError> {
        let session = self.sessions.get(wanted.session).await?;
        let judging = self.set.begin_judging(point, Subject::action(point, prepared), said.cloned());
        self.heard_out(wanted, point, judging.of_project(session.project()), cancel).await
    }

    /// Runs what is due of a judgement that no model has a part in.
    pub(crate) async fn heard_out(
        &self,
        wanted: For<'_>,
        point: GatePoint,
        mut judging: Judging<'_>,
        cancel: &CancellationToken,
    ) -> Result<Judgement, EngineError> {
        let span = trace::gate(point);
        while let Some(due) = judging.next_due() {
            match due {
                Due::Script(due) => {
                    let (end, said) = self.run_script(wanted, &due, cancel).await?;
                    judging.script_said(&end, &said);
                }
                Due::Model(_) => judging.note_unavailable("a model judges no actions"),
            }
        }
        let judged = judging.end_judging();
        trace::gate_ended(&span, &judged);
        Ok(judged)
    }

    /// The ledger's record of a judgement.
    pub(crate) async fn gated(
        &self,
        session: Option<SessionId>,
        at: Option<(TurnId, u64)>,
        point: GatePoint,
        judged: &Judgement,
    ) -> Pending {
        let mut ops = Pending::new();
        for (gate, verdict, reason) in &judged.verdicts {
            self.metrics.gate(point, *verdict);
            let (gate, verdict, reason) = (gate.clone(), *verdict, reason.clone());
            let fact = match self.set.hook(&gate) {
                Some(hook) => self.hooked(hook, verdict, reason),
                None => Fact::Gated { point, gate, verdict, reason },
            };
            ops.push(self.journal.noted(session, at, fact));
        }
        if let Some(session) = session {
            ops.extend(self.kept_by_hooks(session, judged).await);
        }
        ops
    }

    /// Returns the operations that report a block to others than the person who was stopped: the owner, a
    /// queue or a task.
    pub(crate) fn follow(
        &self,
        session: Option<SessionId>,
        at: Option<(TurnId, u64)>,
        point: GatePoint,
        judged: &Judgement,
    ) -> Pending {
        let (Some((gate, reason)), Some(after)) = (judged.first_block(), &judged.after) else {
            return Pending::new();
        };
        let to = match after {
            Escalation::Report => Recipient::Owner.to_string(),
            Escalation::TransferToQueue { queue } => format!("queue {queue}"),
            Escalation::SpawnTask => "task".to_owned(),
            Escalation::Respond { .. }
            | Escalation::EscalateHuman
            | Escalation::SuppressAndRephrase { .. }
            | Escalation::Retry { .. } => return Pending::new(),
        };
        let reason = format!("gate '{gate}' at {} has blocked: {reason}", point_name(point));
        let text = match after {
            Escalation::TransferToQueue { queue } => format!("{reason}. The case is in the queue '{queue}'."),
            Escalation::SpawnTask => format!("{reason}. A task is proposed; nothing begins it without you."),
            Escalation::Report
            | Escalation::Respond { .. }
            | Escalation::EscalateHuman
            | Escalation::SuppressAndRephrase { .. }
            | Escalation::Retry { .. } => format!("{reason}."),
        };
        let task = session.filter(|_| *after == Escalation::SpawnTask);
        let task = task.map(|session| self.task_op(session, at, &reason));
        let mut ops = Pending::from([self.journal.noted(session, at, Fact::Escalated { to, reason })]);
        // Behind the entry that it rests on, in the same commit.
        ops.extend(task);
        let frame = Box::new(ServerFrame::Status { text });
        ops.extend(session.map(|session| Op::Frame { session, frame }));
        ops
    }

    /// The message that has a task proposed, for the loop that asks people. It names the block and quotes nothing of what was
    /// blocked: that may be anyone's words.
    fn task_op(&self, session: SessionId, at: Option<(TurnId, u64)>, reason: &str) -> Op {
        let now = self.journal.clock.now();
        let turn_number = at.map_or(0, |(_, number)| number);
        let text = format!("Follow up on turn {turn_number} of conversation {session}: {reason}.");
        let record = InboundRecord {
            message: self.journal.ids.message(now),
            session,
            turn_number,
            principal: "harness:gates".to_owned(),
            // A script or a model may have worded the reason.
            taint: Taint::External,
            text: Digest::of_bytes(text.as_bytes()),
            at: now,
        };
        let client_id = task_id(record.message);
        let message = Box::new(NewMessageRow { record, client_id, text });
        Op::EnqueueFor { consumer: PROXY.to_owned(), message }
    }

    /// Runs the script of a gate. Boxed, since it passes the door that it judges for.
    pub(crate) fn run_script<'a>(
        &'a self,
        wanted: For<'a>,
        due: &'a ScriptDue,
        cancel: &'a CancellationToken,
    ) -> Scripted<'a> {
        Box::pin(self.script_now(wanted, due, cancel))
    }

    async fn script_now(
        &self,
        wanted: For<'_>,
        due: &ScriptDue,
        cancel: &CancellationToken,
    ) -> Result<(ScriptEnd, String), EngineError> {
        let broken = |why: &str| Ok((ScriptEnd::Broken(why.to_owned()), String::new()));
        let standing = RequestContext {
            authority: wanted.authority,
            spent: Spent::default(),
            approval: None,
            task: false,
            // Judging runs the script even in a session that only simulates.
            mode: Mode::Execute,
            origins: None,
            request: None,
        };
        let prepared = self.prepare_script(wanted, due).await?;
        let permit = match self.door.pass_ungated(Pending::new(), prepared, standing).await? {
            Passage::Permit(permit) => permit,
            Passage::Denied(_) => return broken("may not be run: the rules or keys forbid it"),
            Passage::Ask(_) | Passage::Simulated(_) => {
                return broken("may not run without a question, and no person can be asked");
            }
        };
        let attempt = permit.attempt();
        let folder = self.config.folder.join(slot(wanted.session).to_string());
        let ran = async {
            let folder =
                self.sandbox.open(WorkspaceConfig { data_dir: folder, project: None, shown: None }).await?;
            let options = ExecOptions { cancel: cancel.clone(), ..ExecOptions::default() };
            folder.exec(*permit, self.journal.clock.now(), options).await
        };
        let (end, said) = match ran.await {
            Ok(result) => ended(result),
            Err(error) => {
                tracing::warn!(gate = due.gate, %error, "the script of a gate could not be run");
                (ScriptEnd::Broken("could not be run".to_owned()), String::new())
            }
        };
        let (outcome, summary) = match &end {
            ScriptEnd::Code(0) => (ToolOutcome::Done, "exit code 0".to_owned()),
            ScriptEnd::Code(code) => (ToolOutcome::Failed, format!("exit code {code}")),
            ScriptEnd::Broken(why) => (ToolOutcome::Failed, why.clone()),
        };
        let (result, label) = (Digest::of_bytes(said.as_bytes()), Label::new(Taint::External));
        let fact = Fact::Outcome { attempt, outcome, summary, result, label };
        let entry = self.journal.noted(Some(wanted.session), wanted.at, fact);
        self.journal.store.commit(Batch::relaxed(vec![entry])).await?;
        Ok((end, said))
    }

    /// Prepares the sandboxed action that runs a gate's or a hook's script.
    async fn prepare_script(&self, wanted: For<'_>, due: &ScriptDue) -> Result<Prepared, EngineError> {
        let exec = Exec {
            argv: due.argv.clone(),
            cwd: writ_inspect::scope::WORK.to_owned(),
            env: due.env.clone(),
            stdin: self.told_to_hook(wanted, due).await?,
            timeout_ms: due.timeout_ms,
            profile: ExecProfile::Gate,
            hosts: Vec::new(),
        };
        let (what, named) = match &due.input {
            Some(_) => ("", due.gate.as_str()),
            None => ("gate ", due.gate.as_str()),
        };
        Ok(Prepared {
            action: Action::Exec(exec),
            agent: self.config.agent.clone(),
            session: Some(wanted.session),
            turn: wanted.at.map(|(turn, _)| turn),
            turn_number: wanted.at.map_or(0, |(_, number)| number),
            call: None,
            tool: format!("{what}{named}"),
            sinks: Vec::new(),
            // It may judge what anybody wrote.
            label: Label::new(Taint::External),
            bindings: Default::default(),
            idempotent: true,
            intent: format!("let the program of '{what}{named}' judge"),
        })
    }
}

/// Returns true if execution and access gates judge an action. A model call is judged by the texts and
/// actions that follow from it, and a gate's own script is not judged.
fn is_judged(action: &Action) -> bool {
    let of_gate = matches!(action, Action::Exec(exec) if exec.profile == ExecProfile::Gate);
    !of_gate && !matches!(action, Action::ModelCall(_))
}

fn turn_of(prepared: &Prepared) -> Option<(TurnId, u64)> {
    prepared.turn.map(|turn| (turn, prepared.turn_number))
}

/// Returns the number of the folder that a session's scripts use, below `FOLDERS`; sessions may share one.
fn slot(session: SessionId) -> u8 {
    let digest = Digest::of_bytes(session.to_string().as_bytes());
    digest.as_bytes().first().map_or(0, |byte| byte % FOLDERS)
}

/// Returns the way a script ended, and its output; too much output counts as broken.
fn ended(result: ExecResult) -> (ScriptEnd, String) {
    let end = match result.ending {
        Ending::Exited { .. } if result.stdout.truncated || result.stdout.text.len() > MAX_SAID_BYTES => {
            ScriptEnd::Broken("said too much".to_owned())
        }
        Ending::Exited { code } => ScriptEnd::Code(code),
        Ending::Signalled { signal } => ScriptEnd::Broken(format!("ended by signal {signal}")),
        Ending::Killed { limit } => ScriptEnd::Broken(format!("was ended by a limit: {}", limit.as_str())),
        Ending::NotFound | Ending::NotExecutable => {
            ScriptEnd::Broken("found no shell in its sandbox".to_owned())
        }
    };
    (end, result.stdout.text)
}
