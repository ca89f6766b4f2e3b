//! The owner's coding agent: a program that speaks the Agent Client Protocol and takes the attempts of the autopilot that write code.
//!
//! The agent stands in the place of the model in a turn: the turn's message is its prompt, and its last words are the answer. Its
//! start passes the door as a program in the session's sandbox, on the session's work folder. It reaches one thing, the models of this
//! engine, and each of its calls is one of the turn's: before the door, under the turn's keys and budgets, in the ledger. What it has
//! changed lies in the work folder, and goes the way of all changes from there.

mod calls;
mod record;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use writ_acp::client::{AcpTurn, drive_agent};
use writ_acp::error::AcpError;
use writ_acp::talk::TurnOrder;
use writ_acp::transcript::{AcpStop, Transcript};
use writ_agent::event::{Event, SystemSource, SystemText};
use writ_inspect::prepared::Prepared;
use writ_policy::permit::Permit;
use writ_sandbox::error::SandboxError;
use writ_sandbox::exec::{Ending, ExecResult, Listener, PROXY_PORT};
use writ_sandbox::serve::ServerHandle;
use writ_tools::render::Rendered;
use writ_types::action::{Action, Exec, ExecProfile};
use writ_types::chat::{ModelReply, ModelRequest, Part, Role, StopReason, ToolOutcome, Usage};
use writ_types::digest::Digest;
use writ_types::entry::{DenyReason, Fact};
use writ_types::error::{Exit, Report, ToReport as _};
use writ_types::id::AttemptId;
use writ_types::taint::Label;
use writ_types::unit::MicroUsd;

use self::calls::{AgentCalls, AgentUse};
use self::record::{passed_over, recorded_reply, summary_of};
use crate::coding_agent::CodingAgent;
use crate::door::{Passage, RequestContext};
use crate::error::EngineError;
use crate::model::{self, ModelCallResult};
use crate::outcome::outcome_entry;
use crate::passage;
use crate::pending::Pending;
use crate::place::CallPlace;

/// The longest time of one turn of a coding agent, in milliseconds, where nothing ends it before: two hours.
const MAX_TURN_MS: u64 = 2 * 60 * 60 * 1_000;
/// The longest wait for the end of an agent that has closed its output.
const END_WAIT: Duration = Duration::from_secs(5);
/// The most characters of an agent's errors that a failure quotes.
const MAX_ERRORS_CHARS: usize = 600;
/// The most of its model calls that wait, while one is made.
const MAX_WAITING_CALLS: usize = 16;
/// The answer of an agent that has ended its turn without any words.
const NO_WORDS: &str = "The coding agent ended without words.";
/// The tool of its start, and the role of its words, in the ledger.
const CODING_AGENT: &str = "coding_agent";
/// The key that its client libraries want; nothing reads it.
const NO_KEY: &str = "none";

/// Has the message of a turn answered: by the owner's coding agent, where one takes the turns of its session, else by a model.
///
/// # Errors
///
/// If the store or the sandbox cannot be used at all; what agent and model cannot do is an event.
pub(crate) async fn answer_message(
    place: CallPlace,
    spent_in_turn: MicroUsd,
    first: Pending,
    asked: (ModelRequest, Label),
    cancel: CancellationToken,
) -> Result<ModelCallResult, EngineError> {
    // Both on the heap: rules need room on the stack.
    match agent_of(&place) {
        Some(agent) => Box::pin(take_turn(place, &agent, first, asked, cancel)).await,
        None => Box::pin(model::call(place, spent_in_turn, first, asked, cancel)).await,
    }
}

/// Returns the agent that takes the turns of a session: those of the autopilot that write.
fn agent_of(place: &CallPlace) -> Option<Arc<CodingAgent>> {
    let writes = place.session.plan_above().is_some_and(|under| !under.reads_only);
    place.services.life.desks.coding.get().filter(|_| writes).cloned()
}

/// Has a coding agent answer the turn's message. What is to be written `first` is written with the intent.
async fn take_turn(
    place: CallPlace,
    agent: &CodingAgent,
    first: Pending,
    (request, label): (ModelRequest, Label),
    cancel: CancellationToken,
) -> Result<ModelCallResult, EngineError> {
    let services = Arc::clone(&place.services);
    let prompt = prompt_of(&place.profile.system, &request);
    let prompt = services.journal.redactor.mask_text(&prompt).into_owned();
    let prepared = prepare(&place, agent, &prompt, &label);
    let standing = RequestContext {
        task: true,
        mode: place.session.mode(),
        origins: place.origins.as_deref(),
        ..RequestContext::of(&place.authority, place.spent)
    };
    // A rule decides alike the next time: its owner has to change something first.
    let refused = |exit: Exit, text: &str| {
        let report = Report::new(exit, "coding.refused", format!("the coding agent was not started: {text}"))
            .with_hint("see `writ policy` for the rule that decided");
        Ok(ModelCallResult { event: model::failure(&report), ops: Pending::new(), cost: MicroUsd::ZERO })
    };
    let permit = match Box::pin(passage::pass_after(&services, first, prepared, standing)).await? {
        Passage::Permit(permit) => *permit,
        Passage::Denied(denial) => {
            let is_spent = denial.reason == DenyReason::Budget;
            let exit = if is_spent { Exit::Budget } else { Exit::Config };
            return refused(exit, &denial.outside_text());
        }
        Passage::Ask(ask) => {
            return refused(Exit::Config, &format!("a person would have to be asked: {}", ask.reason));
        }
        Passage::Simulated(_) => return refused(Exit::Config, "its session only simulates"),
    };
    let attempt = permit.attempt();
    services.life.metrics.tool(CODING_AGENT);
    let worked = Box::pin(work(&place, agent, permit, (prompt, &label), &cancel)).await?;
    Ok(settle(&place, agent, attempt, worked, label))
}

/// The owner's rules, the message that the turn answers, and what was noted after it: a gate that wants another answer says why.
fn prompt_of(system: &[SystemText], request: &ModelRequest) -> String {
    let rules = system.iter().filter(|text| text.source == SystemSource::Rules);
    let rules = rules.map(|text| format!("# Rules of the owner\n\n{}", text.text.trim()));
    let asked = request.messages.iter().rposition(|message| message.role == Role::User).unwrap_or_default();
    let parts = request.messages.iter().skip(asked).flat_map(|message| &message.parts);
    let texts = parts.filter_map(|part| match part {
        Part::Text { text } => Some(text.clone()),
        Part::Result(_) | Part::Call(_) | Part::Reasoning(_) | Part::File(_) => None,
    });
    rules.chain(texts).collect::<Vec<_>>().join("\n\n")
}

fn prepare(place: &CallPlace, agent: &CodingAgent, prompt: &str, label: &Label) -> Prepared {
    let mut env = BTreeMap::from(
        [
            ("OPENAI_BASE_URL", format!("http://127.0.0.1:{PROXY_PORT}/v1")),
            ("OPENAI_API_BASE", format!("http://127.0.0.1:{PROXY_PORT}/v1")),
            ("OPENAI_API_KEY", NO_KEY.to_owned()),
            ("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{PROXY_PORT}")),
            ("ANTHROPIC_API_KEY", NO_KEY.to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    env.extend(agent.variables.clone());
    Prepared {
        action: Action::Exec(Exec {
            argv: agent.command.clone(),
            cwd: writ_inspect::scope::WORK.to_owned(),
            env,
            stdin: None,
            timeout_ms: MAX_TURN_MS,
            profile: ExecProfile::Task,
            // It reaches none: its way out ends at the models, and each call to them passes the door.
            hosts: Vec::new(),
        }),
        agent: place.profile.agent.clone(),
        session: Some(place.session.id),
        turn: place.turn,
        turn_number: place.number,
        call: None,
        tool: CODING_AGENT.to_owned(),
        sinks: Vec::new(),
        label: label.clone(),
        bindings: [("prompt".to_owned(), Digest::of_bytes(prompt.as_bytes()))].into(),
        // It works in the session's folder alone: a turn that a crash has cut off is begun again.
        idempotent: true,
        intent: "have the coding agent work".to_owned(),
    }
}

/// The end of a turn of an agent: of its talk, and of its process.
struct Worked {
    turn: Result<AcpTurn, SandboxError>,
    process: Option<ExecResult>,
    calls: AgentUse,
}

/// Runs the agent for one turn, and ends it.
async fn work(
    place: &CallPlace,
    agent: &CodingAgent,
    permit: Permit,
    (prompt, label): (String, &Label),
    cancel: &CancellationToken,
) -> Result<Worked, EngineError> {
    let services = &place.services;
    let workspace = services.workspace(&place.session).await?;
    let _working = place.session.begin_program();
    let (sender, mut listeners) = mpsc::channel::<Listener>(1);
    let stop = CancellationToken::new();
    // If this future is dropped, its connections end with it.
    let _stopped = stop.clone().drop_guard();
    let (sending, calls) = mpsc::channel(MAX_WAITING_CALLS);
    let serving = async {
        // Without a listener it was not started.
        if let Some(listener) = listeners.recv().await {
            agent.models.serve_models(sending, listener, stop.clone()).await;
        }
    };
    // Ended by the turn, or by a call that cannot be made.
    let over = cancel.child_token();
    let answering = AgentCalls::begin(place, label, &over).answer_calls(calls, &stop);
    let order = TurnOrder {
        folder: workspace.root_inside().await?.to_string_lossy().into_owned(),
        prompt,
        login: agent.login.clone(),
    };
    let working = async {
        match Box::pin(workspace.talk(permit, services.journal.clock.now(), Some(sender))).await {
            Ok(running) => {
                let talk = drive_agent((running.output, running.input), order, agent.times, &over);
                let turn = Box::pin(talk).await;
                let process = end_process(running.ended, &turn).await;
                Ok((Ok(turn), process))
            }
            Err(error @ (SandboxError::Refused { .. } | SandboxError::Helper { .. })) => {
                Err(EngineError::from(error))
            }
            Err(error) => Ok((Err(error), None)),
        }
    };
    let working = async {
        let done = working.await;
        // Its calls end with it.
        stop.cancel();
        done
    };
    let ((), calls, done) = tokio::join!(serving, answering, working);
    let (turn, process) = done?;
    Ok(Worked { turn, process, calls })
}

/// Ends the agent's process. It waits for the next prompt, which does not come; one that has closed its output is already ending, and
/// how it ends says why.
async fn end_process(mut process: ServerHandle, turn: &AcpTurn) -> Option<ExecResult> {
    if matches!(turn.end, Err(AcpError::Gone(_)))
        && let Ok(ended) = tokio::time::timeout(END_WAIT, process.wait()).await
    {
        return ended.ok();
    }
    process.kill().await.ok()
}

/// The event and the record of a turn.
fn settle(
    place: &CallPlace,
    agent: &CodingAgent,
    attempt: AttemptId,
    worked: Worked,
    label: Label,
) -> ModelCallResult {
    let journal = &place.services.journal;
    let redactor = &journal.redactor;
    let Worked { turn, process, calls: AgentUse { cost, refusal } } = worked;
    let (end, mut transcript) = match turn {
        Ok(AcpTurn { end: Ok(reason), transcript }) => (result_of(reason), transcript),
        Ok(AcpTurn { end: Err(error), transcript }) => (Err(report_of(&error, process.as_ref())), transcript),
        Err(error) => (Err(report_of_start(&error)), Transcript::default()),
    };
    // Independent of what the agent makes of it: it could not ask its model any more.
    let end = match &refusal {
        Some(_) => Err(stopped_by_refusal()),
        None => end.map_err(|report| redactor.mask_report(report)),
    };
    if end.is_ok() && transcript.last_words.trim().is_empty() {
        // The files decide; a turn without an answer would be a failure.
        transcript.last_words = NO_WORDS.to_owned();
    }
    let mut reply = recorded_reply(&transcript);
    redactor.mask_reply(&mut reply);
    let (outcome, summary) = match &end {
        Ok(()) => (ToolOutcome::Done, summary_of(&transcript)),
        Err(report) if report.exit == Exit::Interrupted => (ToolOutcome::Cancelled, summary_of(&transcript)),
        Err(report) => (ToolOutcome::Failed, format!("{}{}", report.inside, passed_over(&transcript))),
    };
    let rendered =
        Rendered { text: redactor.clean_text(format!("{summary}\n{}", reply.text)), label, outcome };
    let answered = Fact::ModelCalled {
        // The outcome below is that of the program; its words are an entry of their own, which begins and ends here.
        attempt: journal.ids.attempt(journal.clock.now()),
        requested: format!(
            "{CODING_AGENT}/{}",
            agent.command.first().map(String::as_str).unwrap_or_default()
        ),
        actual: reply.model.clone(),
        stop: end.is_ok().then_some(StopReason::EndTurn),
        // What its models took is in the entries of their calls.
        usage: Usage::default(),
        cost: None,
        error: end.as_ref().err().map(|report| report.inside.clone()).unwrap_or_default(),
        is_lasting: false,
        role: CODING_AGENT.to_owned(),
        sealed_reply: model::seal_reply(&place.services, &reply),
    };
    let entry = |fact| journal.entry(place.session.id, place.at(), fact);
    let ops = Pending::from([entry(answered), entry(outcome_entry(attempt, &rendered))]);
    match end {
        Ok(()) => {
            // Its calls are its own, and were made.
            let reply = ModelReply { calls: Vec::new(), ..reply };
            ModelCallResult { event: Event::ModelReplied { reply }, ops, cost }
        }
        Err(report) => {
            let refused = refusal.map(|failure| Event::ModelFailed { failure });
            ModelCallResult { event: refused.unwrap_or_else(|| model::failure(&report)), ops, cost }
        }
    }
}

/// Returns the end of an agent that cannot make its next call.
fn stopped_by_refusal() -> Report {
    let text = "the coding agent was stopped: it may ask its model no more";
    Report::new(Exit::Budget, "coding.no_calls", text).with_hint("its last model call has the reason")
}

/// The report of an agent that could not be started. A command that cannot be started as it is written needs its owner.
fn report_of_start(error: &SandboxError) -> Report {
    let report = error.report();
    let exit = if matches!(error, SandboxError::BadCommand { .. }) { Exit::Config } else { report.exit };
    Report { exit, ..report }
}

/// The meaning of an agent's own word about its end.
fn result_of(reason: AcpStop) -> Result<(), Report> {
    let ended = |why: &str| {
        Err(Report::new(Exit::Blocked, "coding.unfinished", format!("the coding agent has stopped: {why}"))
            .with_hint("give the task another try, or make it smaller"))
    };
    match reason {
        AcpStop::EndTurn => Ok(()),
        AcpStop::MaxTokens => ended("its model wrote as much as it may"),
        AcpStop::MaxTurnRequests => ended("it asked its model as often as it may"),
        AcpStop::Refusal => ended("its model refused"),
        AcpStop::Cancelled => {
            Err(Report::new(Exit::Interrupted, "coding.cancelled", "the coding agent was stopped")
                .with_hint("`writ pilot status` shows what becomes of its task"))
        }
    }
}

/// The failure of an agent, with the end of its process where that says more.
fn report_of(error: &AcpError, process: Option<&ExecResult>) -> Report {
    let report = error.report();
    let Some(process) = process else { return report };
    // The next attempt would end in the same way.
    let is_missing = matches!(process.ending, Ending::NotFound | Ending::NotExecutable);
    let exit = if is_missing { Exit::Config } else { report.exit };
    let how = match process.ending {
        Ending::NotFound => "there is no such program in the sandbox".to_owned(),
        Ending::NotExecutable => "the file cannot be executed".to_owned(),
        Ending::Exited { code } => format!("its exit code was {code}"),
        Ending::Signalled { signal } => format!("signal {signal} ended it"),
        Ending::Killed { limit: writ_sandbox::exec::Limit::Cancelled } => "it was ended from here".to_owned(),
        Ending::Killed { limit } => format!("it reached a limit: {}", limit.as_str()),
    };
    let errors = process.stderr.text.trim();
    let skipped = errors.chars().count().saturating_sub(MAX_ERRORS_CHARS);
    let errors: String = errors.chars().skip(skipped).collect();
    let said = if errors.is_empty() { String::new() } else { format!("; its errors ended with: {errors}") };
    Report::new(exit, &report.code, format!("{error} ({how}{said})")).with_hint(report.hint.clone())
}
