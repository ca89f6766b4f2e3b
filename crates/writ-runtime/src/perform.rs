//! Performs permitted actions: each kind has one performer, and each consumes the permit.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use writ_inspect::prepared::Prepared;
use writ_memory::search::BeyondWindow;
use writ_policy::permit::Permit;
use writ_sandbox::Workspace;
use writ_sandbox::error::SandboxError;
use writ_sandbox::exec::{EndTimes, Ending, ExecOptions, ExecResult, Limit};
use writ_sandbox::file::{EntryKind, FileFault, ReadResult};
use writ_store::batch::Op;
use writ_store::memory::{MemoryTraits, Secrets};
use writ_store::reads::UndoReads as _;
use writ_tools::def::PathState;
use writ_tools::outcome::{
    ExecEnd, LineWindow, Listed, ListedKind, Matched, PerformedOutcome, RecalledMemory,
};
use writ_types::action::{Action, Exec, ExecProfile, Place as WritePlace, Recall, WriteFile};
use writ_types::encoding::{TextForm, decode_text};
use writ_types::entry::Fact;
use writ_types::error::{Exit, Report, ToReport};
use writ_types::frame::{ServerFrame, Undo};

use crate::error::EngineError;
use crate::judging::{self, JudgementRecord};
use crate::mcp::start;
use crate::pending::Pending;
use crate::place::{self, CallPlace};
use crate::recall::{MemoryQuestionText, find_memories};
use crate::remembering::{remember_ops, remembered};
use crate::session::UNDO;
use crate::trace::{self, SandboxWork};
use crate::{plans, way_back};

/// A performed action and its outcome.
#[derive(Debug)]
pub(crate) struct Performed {
    pub(crate) prepared: Prepared,
    pub(crate) outcome: PerformedOutcome,
    /// The part of the action that happens in the store: written in one transaction with the outcome, so that
    /// the outcome is never in doubt.
    pub(crate) ops: Pending,
    /// The data for undoing it; `None` if it cannot be undone.
    pub(crate) undo: Option<Undo>,
}

mod document;

mod result;

pub(crate) mod send;

pub(crate) mod ship;

pub(crate) mod subscribe;

mod tool;
pub(crate) mod tool_list;

mod web;

/// Performs what a permit allows. What the tool itself cannot do is an outcome, not an error.
///
/// # Errors
///
/// If store or sandbox cannot be used at all.
pub(crate) async fn perform(
    place: &CallPlace,
    permit: Permit,
    cancel: &CancellationToken,
) -> Result<Performed, EngineError> {
    let begun = match permit.approval() {
        Some(ask) => Some(place.services.life.approved.begin_on(ask, cancel).await?),
        None => None,
    };
    // Stops the action also when its approval is withdrawn; it is then cancelled as when the turn is stopped.
    by_kind(place, permit, begun.as_ref().map_or(cancel, |begun| begun.stop())).await
}

async fn by_kind(
    place: &CallPlace,
    permit: Permit,
    cancel: &CancellationToken,
) -> Result<Performed, EngineError> {
    let prepared = permit.prepared().clone();
    let (mut ops, mut undo) = (Pending::new(), None);
    let outcome = match &prepared.action {
        Action::Exec(exec) if exec.profile == ExecProfile::Server => {
            start::start_approved(&place.services, place, permit, exec, cancel).await?
        }
        Action::CallTool(call) => tool::call_counted(place, permit, (call, cancel), &mut ops).await?,
        Action::Exec(exec) => run(place, permit, exec, cancel).await?,
        Action::ReadFile(_) => {
            let workspace = place.services.workspace(&place.session).await?;
            let reading = workspace.read_file(permit, place.services.journal.clock.now());
            settle(reading.instrument(trace::sandbox(SandboxWork::Read)).await.map(read_outcome))?
        }
        Action::WriteFile(write) => match write.place {
            WritePlace::Overlay => {
                let workspace = place.services.workspace(&place.session).await?;
                let files = written(&prepared);
                let workspace = workspace.until(cancel);
                let writing = workspace.write_file(permit, place.services.journal.clock.now());
                let written = writing.instrument(trace::sandbox(SandboxWork::Write)).await;
                settle(written.map(|_| files))?
            }
            WritePlace::Project if prepared.tool == UNDO => revert(place, permit, cancel, &mut ops).await?,
            WritePlace::Project => apply(place, permit, cancel, (&mut ops, &mut undo)).await?,
        },
        Action::Recall(recall) => {
            place::opened(place, permit)?;
            search_memory(place, recall).await?
        }
        Action::ReadResult(read) => result::read_result(place, permit, read).await?,
        Action::ModifySelf(modify) if modify.is_tool_list() => tool_list::write_list(place, permit).await?,
        Action::ModifySelf(_) => document::write_document(place, permit).await?,
        Action::Remember(_) => remember(place, permit, &mut ops).instrument(trace::memory_store()).await?,
        Action::Say(_) => say(place, permit, cancel).await?,
        Action::Fetch(fetch) => web::fetch(place, permit, fetch, cancel).await?,
        Action::SendFile(_) => send::send(place, permit, cancel, &mut ops).await?,
        Action::Vcs(vcs) if vcs.request.is_some() && prepared.tool == ship::SHIP => {
            Box::pin(ship::ship(place, permit, cancel, &mut ops)).await?
        }
        Action::Search(search) => web::search(place, permit, search, cancel).await?,
        Action::Connect(connect) => web::connect(place, permit, connect).await?,
        Action::Plan(_) => plans::mint(place, permit, &mut ops).await?,
        Action::Subscribe(subscribe) => {
            let prepared = place::opened(place, permit)?;
            subscribe::subscribe(&place.services, place, &prepared, subscribe).await?
        }
        Action::Forget(_)
        | Action::Browse(_)
        | Action::CreateTool(_)
        | Action::InstallSkill(_)
        | Action::Docker(_)
        | Action::Message(_)
        | Action::Handoff(_)
        | Action::Spawn(_)
        | Action::Escalate(_)
        | Action::ModelCall(_)
        | Action::Vcs(_)
        | Action::Operate(_) => {
            place::opened(place, permit)?;
            let text = format!("'{}' cannot be performed here", prepared.action.kind().as_str());
            PerformedOutcome::Failed { report: Report::new(Exit::Usage, "perform.unavailable", text) }
        }
    };
    Ok(Performed { prepared, outcome, ops, undo })
}

/// A sandbox that cannot be made at all ends the turn; everything else is for the model to read.
fn settle(result: Result<PerformedOutcome, SandboxError>) -> Result<PerformedOutcome, EngineError> {
    match result {
        Ok(outcome) => Ok(outcome),
        Err(error @ (SandboxError::Refused { .. } | SandboxError::Helper { .. })) => Err(error.into()),
        Err(
            error @ (SandboxError::Expired(_)
            | SandboxError::WrongAction { .. }
            | SandboxError::BadCommand { .. }
            | SandboxError::Setup { .. }
            | SandboxError::File(_)
            | SandboxError::Stopped { .. }
            | SandboxError::Cancelled
            | SandboxError::Project { .. }
            | SandboxError::Workspace { .. }),
        ) => Ok(PerformedOutcome::Failed { report: error.report() }),
    }
}

async fn run(
    place: &CallPlace,
    permit: Permit,
    exec: &Exec,
    cancel: &CancellationToken,
) -> Result<PerformedOutcome, EngineError> {
    let workspace = place.services.workspace(&place.session).await?;
    let now = place.services.journal.clock.now();
    let ms = Duration::from_millis;
    let tool_end = place.session.terms.work.and_then(|work| work.attempt.tool_end);
    let end = tool_end.map(|times| EndTimes { grace: ms(times.grace_ms), kill: ms(times.kill_ms) });
    let options = ExecOptions {
        cancel: cancel.clone(),
        end: end.unwrap_or_default(),
        // An engine that ends waits for no program.
        kill: place.services.life.stop_now.clone(),
        ..ExecOptions::default()
    };
    let done = if exec.hosts.is_empty() {
        workspace.exec(permit, now, options).instrument(trace::sandbox(SandboxWork::Exec)).await
    } else {
        let tool = permit.prepared().tool.clone();
        let running = |options| workspace.exec(permit, now, options);
        let beside = web::beside_proxy(place, &exec.hosts, &tool, options, running);
        beside.instrument(trace::sandbox(SandboxWork::Exec)).await?
    };
    settle(done.map(|result| exec_outcome(result, exec.timeout_ms)))
}

/// Converts the result of a program into the outcome that the tools read.
pub(crate) fn exec_outcome(result: ExecResult, timeout_ms: u64) -> PerformedOutcome {
    let dropped = |stream: &writ_sandbox::exec::Output| {
        stream.bytes.saturating_sub(u64::try_from(stream.text.len()).unwrap_or(u64::MAX))
    };
    let end = match result.ending {
        Ending::Exited { code } => ExecEnd::Code(code),
        Ending::Signalled { signal } => ExecEnd::Signal(signal),
        Ending::Killed { limit: Limit::Time } => ExecEnd::TimedOut(timeout_ms),
        Ending::Killed { limit: Limit::Cancelled } => ExecEnd::Cancelled,
        Ending::Killed {
            limit: limit @ (Limit::Memory | Limit::Processes | Limit::Disk | Limit::Output),
        } => ExecEnd::Limit(limit.as_str()),
        Ending::NotFound | Ending::NotExecutable => ExecEnd::Code(result.exit_code()),
    };
    let truncated = result.stdout.truncated || result.stderr.truncated;
    let dropped_bytes =
        if truncated { dropped(&result.stdout).saturating_add(dropped(&result.stderr)) } else { 0 };
    let note = match result.ending {
        Ending::NotFound => "there is no such program in the sandbox\n",
        Ending::NotExecutable => "the file cannot be executed\n",
        Ending::Exited { .. } | Ending::Signalled { .. } | Ending::Killed { .. } => "",
    };
    let stderr = format!("{note}{}", result.stderr.text);
    PerformedOutcome::Exec { end, stdout: result.stdout.text, stderr, dropped_bytes }
}

fn read_outcome(result: ReadResult) -> PerformedOutcome {
    match result {
        ReadResult::Text { text, first_line, total_lines, form, .. } => {
            PerformedOutcome::Text { first_line, text, total_lines, form }
        }
        ReadResult::Binary { bytes, digest, content } => {
            let text = format!(
                "the file is no UTF-8 text but {} ({bytes} bytes, SHA-256 {digest})",
                content.as_str()
            );
            let report = Report::new(Exit::Usage, "file.binary", text);
            let report = match content.charset() {
                Some(charset) => report.with_hint(format!(
                    "that is guessed; `iconv -f {charset} -t UTF-8 FILE` shows its text, and a program must change it"
                )),
                None => report,
            };
            PerformedOutcome::Failed { report }
        }
        ReadResult::List { entries, truncated } => PerformedOutcome::Listing {
            more: u64::from(truncated),
            entries: entries
                .into_iter()
                .map(|entry| Listed {
                    name: entry.name,
                    kind: match entry.kind {
                        EntryKind::File => ListedKind::File(entry.bytes),
                        EntryKind::Folder => ListedKind::Folder,
                        EntryKind::Link => ListedKind::Link,
                        EntryKind::Special => ListedKind::Other,
                    },
                })
                .collect(),
        },
        ReadResult::Search { matches, truncated, .. } => PerformedOutcome::Matches {
            more: truncated,
            matches: matches
                .into_iter()
                .map(|found| Matched {
                    path: found.path,
                    line: found.line,
                    text: found.text,
                    window: found.window.map(|part| LineWindow {
                        column: part.column,
                        cut_before: part.cut_before,
                        cut_after: part.cut_after,
                    }),
                })
                .collect(),
        },
    }
}

fn written(prepared: &Prepared) -> PerformedOutcome {
    let Action::WriteFile(write) = &prepared.action else {
        return PerformedOutcome::Written { files: Vec::new() };
    };
    let files = write.changes.iter().map(|change| (change.path.clone(), change.kind, change.bytes));
    PerformedOutcome::Written { files: files.collect() }
}

/// Brings approved changes into the project.
async fn apply(
    place: &CallPlace,
    permit: Permit,
    cancel: &CancellationToken,
    (ops, undo): (&mut Pending, &mut Option<Undo>),
) -> Result<PerformedOutcome, EngineError> {
    let workspace = place.services.workspace(&place.session).await?;
    let (prepared, attempt) = (permit.prepared().clone(), permit.attempt());
    let within = workspace.until(cancel);
    let applying = within.apply_changes(permit, place.services.journal.clock.now());
    match applying.instrument(trace::sandbox(SandboxWork::Apply)).await {
        Ok(applied) => {
            if let Action::WriteFile(write) = &prepared.action {
                *undo = way_back::keep(place, attempt, write, applied, ops);
                ops.extend(applied_ops(place, write, "applied", undo.clone()));
            }
            let left_behind = place.session.state().recovery.left_behind;
            if left_behind && workspace.read_changes().await?.changes.is_empty() {
                place.services.sessions.set_left_behind(&place.session, false).await?;
            }
            Ok(written(&prepared))
        }
        Err(error) => Ok(PerformedOutcome::Failed { report: error.report() }),
    }
}

/// Brings a project back to what it was.
async fn revert(
    place: &CallPlace,
    permit: Permit,
    cancel: &CancellationToken,
    ops: &mut Pending,
) -> Result<PerformedOutcome, EngineError> {
    let prepared = permit.prepared().clone();
    let lost = || EngineError::Machine("an undo names nothing that it undoes".to_owned());
    let of = way_back::undone_by(&prepared).ok_or_else(lost)?;
    // An earlier undo of the same attempt holds the session's lock until this is written down.
    if place.services.journal.store.undo(of).await?.is_none_or(|way| way.undone_at.is_some()) {
        return Ok(PerformedOutcome::Failed { report: EngineError::UndoneBefore(of).report() });
    }
    let workspace = place.services.workspace(&place.session).await?.until(cancel);
    let reverting = workspace.revert_changes(permit, place.services.journal.clock.now(), of);
    match reverting.instrument(trace::sandbox(SandboxWork::Apply)).await {
        Ok(_) => {
            // In a copied project, an undone change is pending again, and must not be applied unseen. If the
            // folder cannot be read now, a change is assumed; the undo is recorded in any case.
            let left = workspace.read_changes().await.map_or(true, |left| !left.changes.is_empty());
            place.services.sessions.set_left_behind(&place.session, left).await?;
            ops.push(Op::Undone { attempt: of, at: place.services.journal.clock.now() });
            if let Action::WriteFile(write) = &prepared.action {
                ops.extend(applied_ops(place, write, "undone", None));
            }
            Ok(written(&prepared))
        }
        Err(error) => Ok(PerformedOutcome::Failed { report: error.report() }),
    }
}

/// Returns the ledger entry and the frame for watchers about changes that are in the project now.
fn applied_ops(place: &CallPlace, write: &WriteFile, name: &str, undo: Option<Undo>) -> [Op; 2] {
    let files = write.changes.iter().map(|change| (change.kind, change.path.clone())).collect();
    let fact = Fact::Applied { project: write.root.clone(), files };
    let (name, turn, at) = (name.to_owned(), place.number, place.services.journal.clock.now());
    let frame = ServerFrame::Checkpoint { name, turn, at, undo };
    let session = place.session.id;
    [place.services.journal.entry(session, place.at(), fact), Op::Frame { session, frame: Box::new(frame) }]
}

async fn search_memory(place: &CallPlace, recall: &Recall) -> Result<PerformedOutcome, EngineError> {
    let question = MemoryQuestionText {
        text: &recall.query,
        secret: place.session.state().secrecy.secret,
        session: Some(place.session.id),
        secrets: Secrets::Told,
        beyond: BeyondWindow::LeftOut,
        limit: usize::try_from(recall.limit).unwrap_or(usize::MAX),
    };
    let mut note = None;
    let search = async {
        let found = find_memories(&place.services, question).await?;
        note = found.note;
        Ok::<_, EngineError>(found.hits)
    };
    let hits = trace::memory_search(search).await?;
    let hits = hits.into_iter().map(|hit| memory_hit(hit.memory)).collect();
    Ok(PerformedOutcome::Memories { hits, note })
}

fn memory_hit(memory: writ_store::memory::Memory) -> RecalledMemory {
    RecalledMemory {
        id: memory.id,
        text: memory.item.text,
        kind: memory.item.memory_kind,
        trust: memory.item.trust,
        taint: memory.item.taint,
        secret: memory.item.secret,
    }
}

async fn remember(
    place: &CallPlace,
    permit: Permit,
    ops: &mut Pending,
) -> Result<PerformedOutcome, EngineError> {
    let prepared = place::opened(place, permit)?;
    let now = place.services.journal.clock.now();
    let id = place.services.journal.ids.memory(now);
    place.services.life.metrics.memory("store");
    let Action::Remember(item) = prepared.action else {
        return Err(EngineError::Machine("a permit for something else".to_owned()));
    };
    let fact = remembered(id, &item, false);
    ops.push(place.services.journal.entry(place.session.id, place.at(), fact));
    let entities = place.session.state().context.topics.reference().into_iter().collect();
    let traits = MemoryTraits { entities, ..MemoryTraits::default() };
    let (stored, _) = remember_ops(&place.services, (id, item), traits, now).await?;
    ops.extend(stored);
    // The job finds it after the commit, or at its next run.
    place.services.memories.added.fetch_add(1, Ordering::Release);
    Ok(PerformedOutcome::Remembered { id })
}

/// Says something in the middle of a turn, if the output gates let it pass.
async fn say(
    place: &CallPlace,
    permit: Permit,
    cancel: &CancellationToken,
) -> Result<PerformedOutcome, EngineError> {
    let entry = permit.entry();
    let prepared = place::opened(place, permit)?;
    let Action::Say(say) = prepared.action else {
        return Err(EngineError::Machine("a permit for something else".to_owned()));
    };
    let JudgementRecord { judged, mut ops, cost: _ } = judging::judge_said(place, &say.text, cancel).await?;
    let blocked = judged.stop_reason().map(str::to_owned);
    if let (Some(text), Some(turn)) = (judged.text, place.turn) {
        let frame = ServerFrame::Message {
            turn,
            text,
            taint: prepared.label.taint,
            entries: (entry, entry),
            last: false,
            exit: Exit::Done,
            answers: Vec::new(),
        };
        ops.push(Op::Frame { session: place.session.id, frame: Box::new(frame) });
    }
    place.services.journal.commit_for(&place.session.hub, ops.into_relaxed()).await?;
    Ok(match blocked {
        None => PerformedOutcome::Said,
        Some(reason) => PerformedOutcome::Failed {
            report: Report::new(Exit::Denied, "gate.output", format!("not sent: {reason}")),
        },
    })
}

/// Looks at a file of the work folder, so that a change to it can be prepared.
///
/// # Errors
///
/// If the sandbox cannot be used at all.
pub(crate) async fn peek(workspace: &Workspace, path: &str) -> Result<PathState, EngineError> {
    match workspace.peek_file(path).await {
        Ok(None) => Ok(PathState::Missing),
        Ok(Some(found)) => {
            let size = u64::try_from(found.bytes.len()).unwrap_or(u64::MAX);
            if size > writ_tools::def::MAX_PEEK_BYTES {
                let (digest, executable) = (found.digest, found.executable);
                let form =
                    decode_text(&found.bytes).map(|(text, encoding)| TextForm::of_text(&text, encoding));
                return Ok(PathState::Large { digest, bytes: size, executable, form });
            }
            Ok(PathState::File { bytes: found.bytes, executable: found.executable })
        }
        Err(SandboxError::File(FileFault::NotFound { .. })) => Ok(PathState::Missing),
        Err(SandboxError::File(FileFault::Kind { .. })) => Ok(PathState::Folder),
        Err(SandboxError::File(_)) => Ok(PathState::Other),
        Err(error) => Err(error.into()),
    }
}
