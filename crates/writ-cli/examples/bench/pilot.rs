//! The autopilot: what one tick costs among many units, claims by eight at once, and eight work trees of a large repository.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use ed25519_dalek::SigningKey;
use writ_autopilot::phase::PilotPhase;
use writ_autopilot::schedule::{AgentCaps, Candidate, choose_units};
use writ_autopilot::stand::PhaseStatus;
use writ_pilot::PilotGit;
use writ_pilot::events::NoEvents;
use writ_pilot::service::{PilotGitConfig, UnitWork};
use writ_sandbox::git::BranchName;
use writ_store::batch::{Batch, Op};
use writ_store::config::StoreConfig;
use writ_store::error::StoreError;
use writ_store::reads::UnitReads as _;
use writ_store::store::Store;
use writ_store::units::{ClaimSweep, NewUnit, PilotSession, RunStart, UnitKey, UnitLine, UnitOp};
use writ_types::digest::Digest;
use writ_types::id::{PilotId, UnitRunId};
use writ_types::unit::Timestamp;

use crate::measured::{Measured, since};

/// The time at which everything here happens.
const NOW: Timestamp = Timestamp::from_millis(1_750_000_000_000);
/// The name of the project in rows.
const PROJECT: &str = "/project";
/// The tasks of one slice; a milestone has one slice here.
const TASKS: u32 = 98;
/// The units that are planned in one commit.
const UNITS_AT_ONCE: usize = 1_000;
/// The workers that race for each unit.
const RACERS: u32 = 8;
/// The units that are raced for.
const RACES: usize = 200;
/// The work trees that are made of the repository.
const TREES: u32 = 8;

/// Measures ticks with 1,000, 10,000 and nearly 100,000 units, then races, then work trees.
pub(crate) fn run(folder: &Path, repository: &Path, rounds: u32) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    for (count, what) in [(1_000, "tick_1000"), (10_000, "tick_10000"), (99_900, "tick_100000")] {
        let store = open_store(&folder.join(what))?;
        runtime.block_on(plan_units(&store, count))?;
        runtime.block_on(measure_ticks(&store, what, rounds))?;
        if what == "tick_10000" {
            runtime.block_on(measure_races(&store))?;
        }
    }
    runtime.block_on(measure_trees(repository))
}

fn open_store(folder: &Path) -> Result<Store> {
    let signer = Arc::new(SigningKey::from_bytes(&[3; 32]));
    Ok(Store::open(&StoreConfig::new(folder.join("data/writ.db")), signer)?)
}

fn session() -> PilotId {
    PilotId::from_parts(NOW, 1)
}

/// Plans milestones of one slice each, and their tasks.
async fn plan_units(store: &Store, count: u32) -> Result<()> {
    let opened = PilotSession {
        id: session(),
        project: PROJECT.to_owned(),
        status: "running".to_owned(),
        created_at: NOW,
        updated_at: NOW,
    };
    store.commit(Batch::synced(vec![Op::Units(UnitOp::OpenSession(Box::new(opened)))])).await?;
    let mut units = Vec::new();
    for milestone in 1..=count.div_ceil(TASKS + 2) {
        let slice = format!("slice/m{milestone}/s1");
        let tasks: Vec<String> = (1..=TASKS).map(|task| format!("task/m{milestone}/s1/t{task}")).collect();
        units.push(new_unit(&format!("milestone/m{milestone}"), vec![slice.clone()]));
        units.push(new_unit(&slice, tasks.clone()));
        units.extend(tasks.iter().map(|task| new_unit(task, Vec::new())));
        if units.len() >= UNITS_AT_ONCE {
            add_units(store, std::mem::take(&mut units)).await?;
        }
    }
    add_units(store, units).await
}

async fn add_units(store: &Store, units: Vec<NewUnit>) -> Result<()> {
    if !units.is_empty() {
        let add = UnitOp::Add { session: session(), units, at: NOW };
        store.commit(Batch::synced(vec![Op::Units(add)])).await?;
    }
    Ok(())
}

fn new_unit(id: &str, blocked_by: Vec<String>) -> NewUnit {
    NewUnit {
        id: id.to_owned(),
        title: "Mend the clock".to_owned(),
        description: "The clock of the tower is late.".to_owned(),
        metadata: "{}".to_owned(),
        workflow: "feature".to_owned(),
        workflow_hash: Digest::of_bytes(b"phases"),
        phase: PilotPhase::Execute.name().to_owned(),
        priority: None,
        blocked_by,
    }
}

/// Times what each tick of the loop does before a worker is started: the end of claims that have run out, what is ready, what
/// holds it up, which milestones are open, and the choice.
async fn measure_ticks(store: &Store, what: &str, rounds: u32) -> Result<()> {
    let mut nanos = Vec::new();
    let mut chosen = 0;
    for _ in 0..rounds {
        let start = Instant::now();
        let sweep = ClaimSweep { project: PROJECT.to_owned(), live: Vec::new(), until: NOW, now: NOW };
        store.commit(Batch::synced(vec![Op::Units(UnitOp::Sweep(Box::new(sweep)))])).await?;
        let ready = store.ready_units(PROJECT, NOW).await?;
        let blockers = store.open_blockers(session()).await?;
        let milestones = store.top_units(PROJECT).await?;
        let candidates: Vec<Candidate> = ready.iter().filter_map(candidate).collect();
        let choice = choose_units(&candidates, &[], &AgentCaps::default(), !blockers.is_empty(), NOW);
        nanos.push(since(start));
        ensure!(milestones.iter().any(|milestone| !milestone.is_over), "no milestone is open");
        chosen += choice.dispatch.len() as u64;
    }
    ensure!(chosen > 0, "nothing was chosen");
    let took_nanos = nanos.iter().sum();
    Measured { what, nanos, rows: chosen, took_nanos }.print()
}

fn candidate(line: &UnitLine) -> Option<Candidate> {
    Some(Candidate {
        id: line.id.parse().ok()?,
        phase: PilotPhase::parse_name(&line.phase).ok()?,
        status: PhaseStatus::Pending,
        priority: line.priority,
        created_at: line.created_at,
        not_before: None,
        open_upstreams: 0,
        is_held: false,
        is_claimed: line.is_claimed,
    })
}

/// Lets eight claim the same unit at once, unit after unit: one of them has it each time.
async fn measure_races(store: &Store) -> Result<()> {
    let ready = store.ready_units(PROJECT, NOW).await?;
    ensure!(ready.len() >= RACES, "{} units are ready", ready.len());
    let mut nanos = Vec::new();
    for (race, line) in (0_u128..).zip(&ready[..RACES]) {
        let start = Instant::now();
        let racers = (0..RACERS).map(|racer| {
            let (store, claim) = (store.clone(), claim(line, racer, race));
            tokio::spawn(async move { store.commit(Batch::synced(vec![Op::Units(claim)])).await })
        });
        let mut winners = 0;
        for racer in racers.collect::<Vec<_>>() {
            match racer.await? {
                Ok(_) => winners += 1,
                Err(StoreError::Conflict(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        nanos.push(since(start));
        ensure!(winners == 1, "{winners} of {RACERS} have claimed {}", line.id);
    }
    let took_nanos = nanos.iter().sum();
    Measured { what: "claims", nanos, rows: RACES as u64, took_nanos }.print()
}

fn claim(line: &UnitLine, racer: u32, race: u128) -> UnitOp {
    UnitOp::Claim(Box::new(RunStart {
        key: UnitKey { project: PROJECT.to_owned(), id: line.id.clone() },
        fence: line.fence,
        holder: format!("here#{racer}"),
        until: Timestamp::from_millis(NOW.as_millis() + 60_000),
        run: UnitRunId::from_parts(NOW, race * u128::from(RACERS) + u128::from(racer)),
        host: "local".to_owned(),
        workspace: "/project/.writ/workspaces/x".to_owned(),
        is_forced: false,
        now: NOW,
    }))
}

/// Makes eight work trees one after the other, as the loop does for eight slices.
async fn measure_trees(repository: &Path) -> Result<()> {
    let (service, _) =
        PilotGit::open_service(repository, PilotGitConfig::default(), Arc::new(NoEvents)).await?;
    let from = BranchName::parse_name("main")?;
    let mut nanos = Vec::new();
    for tree in 1..=TREES {
        let branch = BranchName::parse_name(&format!("writ/m1/s{tree}"))?;
        let work = UnitWork { unit: format!("slice/m1/s{tree}"), branch };
        let start = Instant::now();
        let made = service.ensure_workspace(&work, &from).await?;
        nanos.push(since(start));
        ensure!(made.folder.join("last.txt").is_file(), "the work tree is not whole");
    }
    let took_nanos = nanos.iter().sum();
    Measured { what: "trees", nanos, rows: u64::from(TREES), took_nanos }.print()
}
