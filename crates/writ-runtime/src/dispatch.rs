//! Takes messages from the queue and runs their turns: one at a time per session, many at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tracing::Instrument as _;
use writ_agent::context::compact::CompactionReason;
use writ_agent::effect::Effect;
use writ_agent::event::{ContextSeed, Event, OpenedTurn, StoredEvent, TurnMessage};
use writ_agent::turn::Turn;
use writ_store::batch::{Batch, NewTurn, Op};
use writ_store::error::StoreError;
use writ_store::queue::Leased;
use writ_store::reads::{QueueReads as _, TurnReads as _};
use writ_store::work::WorkOp;
use writ_types::chat::ChatMessage;
use writ_types::entry::{Fact, TurnPhase};
use writ_types::error::Exit;
use writ_types::frame::ServerFrame;
use writ_types::id::TurnId;
use writ_types::interaction::Interaction;
use writ_types::taint::{Label, Source};
use writ_types::unit::{MicroUsd, Timestamp};

use crate::access::speaker;
use crate::config::LEASE_TTL;
use crate::drive::route::has_proxy;
use crate::drive::{Drive, TurnTally, stored_event};
use crate::error::EngineError;
use crate::pending::Pending;
use crate::place::CallPlace;
use crate::profile::AgentProfile;
use crate::services::Services;
use crate::session::{Interrupt, Session};
use crate::settle;
use crate::{budget, closing, titles, trace};

mod resume;

pub(crate) mod seed;

mod step;

pub(crate) use self::step::refuse_over;

/// The holder named in every lease: there is one engine per home.
const OWNER: &str = "engine";
/// The longest wait before the queue is looked at again without being woken.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Runs until the engine drains.
pub(crate) async fn run(services: Arc<Services>) {
    loop {
        let woken = services.life.wake.notified();
        // A place comes before a lease: the time of a lease runs from when it is taken, not from the beginning of its turn.
        let place = tokio::select! {
            () = services.life.draining.cancelled() => return,
            place = Arc::clone(&services.life.intake.room).acquire_owned() => place,
        };
        let Ok(place) = place else { return };
        let wait = match take_up(&services).await {
            // It came with the last look: the next start frees it.
            Ok(Next::Leased(_)) if services.life.draining.is_cancelled() => return,
            Ok(Next::Leased(lease)) => {
                start(&services, *lease, place);
                continue;
            }
            Ok(Next::Wait(wait)) => wait,
            Err(error) => {
                tracing::error!(%error, "no message can be taken up");
                tell_waiting(&services, &error.into()).await;
                LONGEST_WAIT
            }
        };
        drop(place);
        tokio::select! {
            () = services.life.draining.cancelled() => return,
            () = woken => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Result of a look at the queue.
enum Next {
    /// A leased message; its turn is to begin now.
    Leased(Box<Leased>),
    /// None that is due for so long.
    Wait(Duration),
}

/// Leases the next message that is due.
async fn take_up(services: &Services) -> Result<Next, StoreError> {
    let now = services.journal.clock.now();
    let mut due = Vec::new();
    for profile in services.profiles.iter(services.life.work.is_begun()) {
        let next = services.journal.store.next_due_for(&profile.consumer).await?;
        due.extend(next.map(|at| (at, profile)));
    }
    // No agent waits behind another that has more messages.
    due.sort_by_key(|(at, _)| *at);
    for (at, profile) in due {
        // Most looks find nothing: they do not wait for the writer.
        if at > now {
            return Ok(Next::Wait(at.time_since(now).min(LONGEST_WAIT)));
        }
        let leased = services.journal.store.lease_for(&profile.consumer, now, OWNER, LEASE_TTL).await?;
        if let Some(leased) = leased {
            return Ok(Next::Leased(Box::new(leased)));
        }
    }
    Ok(Next::Wait(LONGEST_WAIT))
}

/// A place for the turn of a message that is about to be stored, and what leases it in the same commit. `None` if its
/// session has a turn for this consumer already, or too many run: it waits for its turn then.
pub(crate) fn at_once(
    services: &Services,
    session: &Session,
    consumer: &str,
) -> Option<(OwnedSemaphorePermit, Op)> {
    if session.state().turn_for(consumer).is_some() {
        return None;
    }
    let place = Arc::clone(&services.life.intake.room).try_acquire_owned().ok()?;
    let (now, owner) = (services.journal.clock.now(), OWNER.to_owned());
    let ttl_ms = u64::try_from(LEASE_TTL.as_millis()).unwrap_or(u64::MAX);
    Some((place, Op::LeaseFor { consumer: consumer.to_owned(), now, owner, ttl_ms }))
}

/// Starts the turn of a leased message.
pub(crate) fn start(services: &Arc<Services>, lease: Leased, place: OwnedSemaphorePermit) {
    let services = Arc::clone(services);
    services.life.turns.clone().spawn(async move {
        turn(&services, lease).await;
        drop(place);
        services.life.turns_finished.fetch_add(1, Ordering::Relaxed);
        services.life.wake.notify_one();
        if services.gates.set.spawns_tasks() {
            services.life.results.wake.notify_one();
        }
    });
}

/// Informs every session with waiting messages that none can be worked on now; the messages stay in the
/// queue.
async fn tell_waiting(services: &Services, error: &EngineError) {
    let report = services.journal.report(error);
    let sessions: Vec<Arc<Session>> = services.sessions.loaded().values().cloned().collect();
    for session in sessions {
        let waiting = closing::waiting_messages(services, &session).await;
        if waiting.as_ref().is_ok_and(Vec::is_empty) {
            continue;
        }
        // If the waiting messages cannot be read, every loaded session is informed.
        let answers = waiting.unwrap_or_default().into_iter().map(|message| message.client_id).collect();
        session.hub.pass(ServerFrame::Error {
            id: None,
            exit: report.exit,
            code: report.code.clone(),
            text: format!("The message is stored and not answered yet: {}", report.outside),
            hint: report.advice().to_owned(),
            answers,
        });
    }
}

/// Runs one turn. If it fails, the error is reported and the message goes back to the queue.
async fn turn(services: &Arc<Services>, lease: Leased) {
    let session = match services.sessions.get(lease.message.record.session).await {
        Ok(session) => session,
        Err(error) => return give_back(services, None, &lease, &error).await,
    };
    match step::refuse_over(services, &lease.message).await {
        Ok(None) => {}
        Ok(Some(over)) => return closing::end_leased(services, &session, &lease, &over).await,
        Err(error) => return give_back(services, Some(&session), &lease, &error).await,
    }
    let mut is_first = false;
    let outcome = match prepare(services, &session, lease.clone()).await {
        Ok(mut drive) => {
            is_first = drive.number == 1;
            let span = trace::turn(&drive.profile.agent, session.id, drive.turn, drive.number);
            let running = async {
                let began = services.journal.clock.now();
                tracing::info!(number = drive.number, "turn started");
                let done = drive.run().await;
                let took = services.journal.clock.now().time_since(began);
                services.life.metrics.turn_ended(took);
                trace::turn_ended(drive.ending.state.unwrap_or("left open"), drive.number, took);
                // The turn takes no interruptions from here on; those that arrived earlier are still handled.
                session.end(drive.turn);
                drive.leave_behind().await;
                done
            };
            running.instrument(span).await
        }
        Err(error) => Err(error),
    };
    match outcome {
        Ok(()) if is_first => titles::name_soon(services, &session),
        // Nothing has failed: its lease stays, and the next start takes it up.
        Ok(()) | Err(EngineError::Stopping) => {}
        Err(error) => give_back(services, Some(&session), &lease, &error).await,
    }
    if session.state().closed {
        closing::end_after_turn(services, &session).await;
    }
}

async fn give_back(services: &Services, session: Option<&Session>, lease: &Leased, error: &EngineError) {
    if let (Some(session), EngineError::SessionClosed(_)) = (session, error) {
        // It is never worked on again.
        return closing::end_leased(services, session, lease, error).await;
    }
    let report = services.journal.report(error);
    tracing::error!(code = report.code, inside = report.inside, "a turn could not be finished");
    let mut ops = vec![Op::NackMessage {
        message: lease.message.record.message,
        fence: lease.fence,
        now: services.journal.clock.now(),
        error: report.outside.clone(),
    }];
    let last = lease.message.attempts >= writ_store::queue::MAX_ATTEMPTS;
    let mut ended = None;
    if let Some(session) = session {
        let mut text = format!("The turn could not be finished: {}", report.outside);
        if last {
            text.push_str(" It is not tried again.");
        }
        session.hub.pass(ServerFrame::Error {
            id: None,
            exit: if report.exit == Exit::Done { Exit::Bug } else { report.exit },
            code: report.code.clone(),
            text,
            hint: report.advice().to_owned(),
            answers: vec![lease.message.client_id.clone()],
        });
        let open =
            services.journal.store.unfinished_turn_of(lease.message.record.message).await.ok().flatten();
        if let Some(open) = open.filter(|_| last) {
            let at = Some((open.id, open.number));
            let reason = report.outside.clone();
            ops.push(services.journal.entry(
                session.id,
                at,
                Fact::Phase { phase: TurnPhase::Failed, reason },
            ));
            ops.push(Op::CloseTurn {
                turn: open.id,
                at: services.journal.clock.now(),
                state: "failed".to_owned(),
            });
            ended = Some(open.id);
        }
        if last {
            let (message, exit, said) =
                (lease.message.record.message, report.exit.code(), report.outside.clone());
            ops.push(Op::Work(WorkOp::EndTurn { message, exit, said, at: services.journal.clock.now() }));
        }
    }
    if let Err(error) = services.journal.store.commit(Batch::synced(ops)).await {
        tracing::error!(%error, "a message could not be given back; it is taken up again at the next start");
        return;
    }
    if let Some(session) = session {
        services.life.work.call(session);
    }
    // Only after the commit: a turn that is tried again must find its open intents, and show their outcome to the model.
    if let Some(turn) = ended
        && let Err(error) = settle::settle_turn(services, turn).await
    {
        tracing::error!(%error, "what the turn has left open is settled at the next start");
    }
}

/// Makes the turn of a message ready: a new one, or one that a crash has left open.
async fn prepare(
    services: &Arc<Services>,
    session: &Arc<Session>,
    lease: Leased,
) -> Result<Drive, EngineError> {
    services.sessions.open_one(session.id).await?;
    // A message that is leased for the first time cannot have an open turn.
    if lease.message.attempts > 1
        && let Some(open) = services.journal.store.unfinished_turn_of(lease.message.record.message).await?
    {
        return resume::resume(services, session, lease, open.id, open.number).await;
    }
    let profile = agent_for(services, session, &lease)?;
    let profile = step::profile_of(services, &lease, profile).await?;
    let journal = &services.journal;
    let turn = journal.ids.turn(journal.clock.now());
    // Turns of several consumers open side by side, and the store counts only those that are stored.
    let number = {
        let mut numbers = session.numbering.lock().await;
        numbers.take(journal.store.next_turn_number(session.id).await?)
    };
    let interrupts = session.begin((turn, number), &profile.consumer, speaker(&lease));
    let opening = open_turn(services, session, lease, profile, (turn, number), interrupts);
    let opened = async {
        let mut drive = opening.await?;
        drive.write_held().await?;
        Ok(drive)
    };
    // A turn that is not to begin does not run.
    let opened = opened.await.inspect_err(|_| session.end(turn));
    session.numbering.lock().await.release();
    opened
}

/// Returns the agent that answers a message of a session.
fn agent_for(
    services: &Services,
    session: &Session,
    lease: &Leased,
) -> Result<Arc<AgentProfile>, EngineError> {
    let answering = session.state().answering.clone();
    Ok(services.profiles.find_for(&lease.message.consumer, &answering)?)
}

/// Opens a new turn, which is noted as running.
async fn open_turn(
    services: &Arc<Services>,
    session: &Arc<Session>,
    lease: Leased,
    profile: Arc<AgentProfile>,
    (turn, number): (TurnId, u64),
    mut interrupts: mpsc::Receiver<Interrupt>,
) -> Result<Drive, EngineError> {
    let now = services.journal.clock.now();
    // Watchers learn which turn runs before anything is read for it, so that it can be stopped.
    session.hub.pass(ServerFrame::Delta { turn, text: String::new() });
    services.rules.refresh_rules(session).await?;
    let mut spent = seed::renew_budget(services, session).await?;
    let (authority, keyed) = services.keys.authorise(session, Some((turn, number))).await?;
    let mut held = Pending::from_iter(keyed);
    let seeding =
        seed::kept((services, session, &profile), (turn, number), &authority, &mut held, &mut interrupts);
    let (workspace, mut unheard) = seeding.await?;
    if !workspace.is_empty() {
        // Reading it may have taken long, and something.
        spent = budget::read_spent(services, session, MicroUsd::ZERO, &[]).await?;
    }
    let (mut seed, mut history) = seed::seed((services, session, &profile), Some(turn), &spent).await?;
    let config = seed::settings(services, (session, &profile), &seed);
    let is_due = seed::begin_budget(services, (session, &profile), &config)?;
    let place = CallPlace {
        services: Arc::clone(services),
        profile: Arc::clone(&profile),
        session: Arc::clone(session),
        turn: Some(turn),
        number,
        authority: Arc::clone(&authority),
        origins: None,
        result_chars: usize::MAX,
        spent,
    };
    let compacting = seed::compact_history(
        &place,
        (&config, &mut seed, &mut history),
        is_due.then_some(CompactionReason::Tokens),
        &mut held,
        (&mut interrupts, &mut unheard),
    );
    let cost = compacting.await?.saturating_add(step::cost_before(services, &profile, &lease).await?);
    let history = history.messages;
    let interaction = step::begin_interaction(&profile, session, lease.message.record.taint);
    let opening = new_turn(&lease, (turn, number), interaction, now);
    let opened = OpenedTurn {
        session: session.id,
        turn,
        number,
        messages: vec![message_of(&lease)],
        seed: ContextSeed { workspace, proxy: has_proxy(services, session, &profile), interaction, ..seed },
        config,
    };
    let (machine, due, event) = begun(opened, history, now)?;
    held.extend([opening, services.journal.entry(session.id, Some((turn, number)), started()), event]);
    session.state().recovery.rehydrated = false;
    let places = (Arc::clone(services), Arc::clone(session), interrupts);
    let drive = Drive::new(profile, places, lease, (turn, number), (machine, due), authority);
    Ok(Drive { events: 1, unheard, held, tally: TurnTally { cost, ..TurnTally::default() }, ..drive })
}

/// Returns the operation that stores a new turn of a message.
fn new_turn(lease: &Leased, (id, number): (TurnId, u64), interaction: Interaction, at: Timestamp) -> Op {
    let record = &lease.message.record;
    let (session, message) = (record.session, record.message);
    let (register, mode) = (interaction.register, interaction.mode());
    Op::OpenTurn(NewTurn { id, session, number, message, at, register, mode })
}

/// Returns a machine that has received the opening event, the first effects it asks for, and the event as it
/// is stored: without the history, which is in the store already.
fn begun(
    opened: OpenedTurn,
    history: Vec<Arc<ChatMessage>>,
    now: Timestamp,
) -> Result<(Turn, Vec<Effect>, Op), EngineError> {
    let turn = opened.turn;
    let mut stored = StoredEvent::new(Event::Opened(Box::new(opened)), now);
    let event = stored_event(turn, 0, &stored)?;
    if let Event::Opened(opened) = &mut stored.event {
        opened.seed.history = history;
    }
    let (mut machine, mut due) = (Turn::new(), Vec::new());
    machine
        .handle_event(stored.event, now, &mut due)
        .map_err(|illegal| EngineError::Machine(illegal.to_string()))?;
    Ok((machine, due, event))
}

const fn started() -> Fact {
    Fact::Phase { phase: TurnPhase::Started, reason: String::new() }
}

fn message_of(lease: &Leased) -> TurnMessage {
    let record = &lease.message.record;
    let source = Source {
        origin: "message".to_owned(),
        detail: record.principal.clone(),
        entry: Some(lease.message.entry),
    };
    TurnMessage {
        id: record.message,
        text: lease.message.text.clone(),
        label: Label::from_source(record.taint, source),
    }
}
