//! Gates: programs that judge a work tree, each in the verification sandbox.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;
use writ_types::api::work::WorkState;
use writ_types::id::{ItemId, SessionId};
use writ_types::work::CheckEnd;

use super::{attempt, plan};
use crate::error::{EngineError, PilotError};
use crate::place::CallPlace;
use crate::services::Services;
use crate::session::{AttemptTerms, Session, Surface, UnderPlan, WorkTerms};
use crate::work::out_of_order;
use crate::work::verify::{self, ProgramRun};
use crate::{opening, place};

/// The most variables of a gate.
pub const MAX_GATE_VARIABLES: usize = 64;
/// The most sessions of gates that are known at a time; after that others are opened.
const MAX_GATE_SESSIONS: usize = 256;
/// The longest text that a gate reads, in bytes.
const MAX_STDIN_BYTES: usize = 4 * 1024 * 1024;
/// The program that sets variables: a verification itself has none but `PATH` and `HOME`.
const ENV: &str = "/usr/bin/env";

/// A program to be run as a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateProgram {
    /// The plan that it is run under.
    pub plan: ItemId,
    /// The work tree that it judges.
    pub folder: PathBuf,
    /// Its name, for people.
    pub name: String,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Its variables.
    pub env: BTreeMap<String, String>,
    /// The text that it reads.
    pub stdin: Option<String>,
    /// The time limit, in seconds.
    pub secs: u32,
}

/// The end of a gate's program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateEnd {
    /// The way in which it has ended.
    pub end: CheckEnd,
    /// Its output.
    pub stdout: String,
    /// Its errors.
    pub stderr: String,
    /// Set if a part of either is missing.
    pub is_cut: bool,
    /// Milliseconds from its start to its end.
    pub took_ms: u64,
}

/// A program that is run on a person's word, without a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriedProgram {
    /// The folder that it judges.
    pub folder: PathBuf,
    /// Its name, for people.
    pub name: String,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Its variables.
    pub env: BTreeMap<String, String>,
    /// The text that it reads.
    pub stdin: Option<String>,
    /// The time limit, in seconds.
    pub secs: u32,
}

/// The sessions in which gates of work trees run, so that the many gates of one tree share one.
#[derive(Debug, Default)]
pub(super) struct GateSessions(Mutex<BTreeMap<(ItemId, PathBuf), SessionId>>);

impl GateSessions {
    /// Finds the session for a work tree, or opens one.
    async fn find_or_open(
        &self,
        services: &Arc<Services>,
        gate: &GateProgram,
        plan: SessionId,
    ) -> Result<Arc<Session>, EngineError> {
        let of = (gate.plan, gate.folder.clone());
        let known = self.lock().get(&of).copied();
        if let Some(known) = known
            && let Ok(session) = services.sessions.open_one(known).await
        {
            return Ok(session);
        }
        let terms = WorkTerms {
            item: gate.plan,
            max_tokens: None,
            max_cost: None,
            under: Some(UnderPlan { item: gate.plan, session: plan, reads_only: true }),
            attempt: AttemptTerms::default(),
        };
        let session = opening::open_for_work(services, gate.folder.to_str(), terms).await?;
        let mut open = self.lock();
        if open.len() >= MAX_GATE_SESSIONS {
            open.clear();
        }
        open.insert(of, session.id);
        Ok(session)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(ItemId, PathBuf), SessionId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a gate.
pub(super) async fn run(
    services: &Arc<Services>,
    sessions: &GateSessions,
    gate: GateProgram,
    stop: &CancellationToken,
) -> Result<Result<GateEnd, String>, EngineError> {
    let above = plan::find(services, gate.plan).await?;
    // After a pause, a judgement that has begun may still be finished.
    if !matches!(above.item.state, WorkState::Running | WorkState::Paused) {
        let why = format!("it is {} ({})", above.item.state.name(), above.item.reason);
        return Err(PilotError::NotInForce(why).into());
    }
    if let Some(why) = out_of_order(services, &above).await? {
        return Err(PilotError::NotInForce(why).into());
    }
    attempt::check_folder(&above, &gate.folder, true)?;
    let bytes = gate.stdin.as_ref().map_or(0, String::len);
    if bytes > MAX_STDIN_BYTES {
        let (what, most) = ("text for a gate", MAX_STDIN_BYTES);
        return Err(PilotError::TooLarge { what, bytes, most }.into());
    }
    let argv = argv_of(&gate.argv, &gate.env)?;
    let session = sessions.find_or_open(services, &gate, above.session.id).await?;
    // Where the sandbox works on a copy of the folder, it is copied anew: the tree has changed since the last gate.
    services.workspace(&session).await?.discard_changes().await?;
    let place = place::outside_turn(services, session).await?;
    let program =
        ProgramRun { name: &gate.name, argv, dir: None, stdin: gate.stdin.clone(), secs: gate.secs };
    run_in(&place, (program, !gate.env.is_empty()), stop).await
}

/// Runs a program on a person's word, in a session of its own.
pub(super) async fn try_program(
    services: &Arc<Services>,
    tried: TriedProgram,
) -> Result<Result<GateEnd, String>, EngineError> {
    if services.life.draining.is_cancelled() {
        return Err(EngineError::Stopping);
    }
    let argv = argv_of(&tried.argv, &tried.env)?;
    let session = opening::open_session(services, tried.folder.to_str(), false, false, Surface::Work).await?;
    let place = place::outside_turn(services, session).await?;
    let program = ProgramRun { name: &tried.name, argv, dir: None, stdin: tried.stdin, secs: tried.secs };
    run_in(&place, (program, !tried.env.is_empty()), &services.life.draining).await
}

/// Runs a program in a place until it ends or is stopped.
async fn run_in(
    place: &CallPlace,
    (program, has_variables): (ProgramRun<'_>, bool),
    stop: &CancellationToken,
) -> Result<Result<GateEnd, String>, EngineError> {
    let services = &place.services;
    let began = services.journal.clock.elapsed();
    let both = services.life.stop_now.child_token();
    let seen = {
        let running = verify::run(place, program, &both);
        tokio::pin!(running);
        tokio::select! {
            seen = &mut running => seen,
            () = stop.cancelled() => {
                both.cancel();
                running.await
            }
        }
    }?;
    let took = services.journal.clock.elapsed().saturating_sub(began);
    Ok(seen.map(|seen| GateEnd {
        end: end_of(seen.end, &seen.stderr.text, has_variables),
        is_cut: seen.stdout.is_cut || seen.stderr.is_cut,
        stdout: seen.stdout.text,
        stderr: seen.stderr.text,
        took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
    }))
}

/// The program with its variables.
fn argv_of(argv: &[String], env: &BTreeMap<String, String>) -> Result<Vec<String>, EngineError> {
    if env.is_empty() {
        return Ok(argv.to_vec());
    }
    let bytes = env.len();
    if bytes > MAX_GATE_VARIABLES {
        let (what, most) = ("number of variables of a gate", MAX_GATE_VARIABLES);
        return Err(PilotError::TooLarge { what, bytes, most }.into());
    }
    let is_name = |name: &str| {
        let mut chars = name.chars();
        chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
            && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    if let Some(name) = env.keys().find(|name| !is_name(name)) {
        return Err(PilotError::Variable(name.chars().take(64).collect()).into());
    }
    // `env` would take such a program for another variable, or for one of its own options.
    if let Some(program) = argv.first().filter(|program| program.contains('=') || program.starts_with('-')) {
        return Err(PilotError::Variable(program.chars().take(64).collect()).into());
    }
    let set = env.iter().map(|(name, value)| format!("{name}={value}"));
    Ok(std::iter::once(ENV.to_owned()).chain(set).chain(argv.iter().cloned()).collect())
}

/// The end of the program itself, where another one has set its variables.
fn end_of(end: CheckEnd, stderr: &str, has_variables: bool) -> CheckEnd {
    let is_of_env = stderr.starts_with("env: ") || stderr.starts_with(&format!("{ENV}: "));
    if has_variables && is_of_env && end == (CheckEnd::Exited { code: 127 }) {
        return CheckEnd::NotRun { reason: "there is no such program in the sandbox".to_owned() };
    }
    end
}
