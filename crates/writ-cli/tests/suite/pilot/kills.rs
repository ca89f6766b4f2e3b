//! The engine of an autopilot and everything that it has started are killed at moments of chance, again and again: what comes out is
//! what comes out undisturbed.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Output;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use writ_testkit::model_server::{ParsedRequest, Reply};

use crate::chance::{Chance, number_of};
use crate::engine::{Link, PATIENCE};
use crate::turns::Bench;
use crate::{code, text};

use super::seen::{KillsResult, read_result};
use super::team::{GOAL, answer, git, make_repository};
use super::victim::PilotVictim;

/// The kills of a run of the suite; `cargo xtask soak --pilot` sets `WRIT_PILOT_KILLS`.
const KILLS: u64 = 6;
/// The most kills of one run of the autopilot: each takes away some of what a unit may be handed out.
const MOST_IN_ONE: u64 = 20;
/// The most requests to the model between two kills.
const MOST_REQUESTS: u64 = 4;
/// The latest moment of a kill after what it is counted from, in milliseconds.
const LATEST: u64 = 250;
/// The longest wait for another request before a kill.
const QUIET: Duration = Duration::from_secs(2);
/// The time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The figures of all runs.
#[derive(Debug, Default)]
struct Figures {
    runs: u64,
    kills: u64,
    /// Kills before an engine was ready.
    starting: u64,
    /// Kills of the engine and everything that it had started.
    whole: u64,
    commits: usize,
    interrupted: usize,
    calls: usize,
    unknown: usize,
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "figures: {} kills in {} runs, of these {} while an engine started and {} of the engine with all that it had started",
            self.kills, self.runs, self.starting, self.whole
        )?;
        write!(
            f,
            "figures: {} commits, {} runs of units interrupted, {} calls of tools, {} of them with an unknown outcome",
            self.commits, self.interrupted, self.calls, self.unknown
        )
    }
}

/// One run of the autopilot, from the goal to its end.
pub(super) struct KillScene {
    pub(super) bench: Bench,
    pub(super) project: PathBuf,
    requests: Receiver<()>,
    /// Every commit that a reference has shown.
    pub(super) commits: BTreeSet<String>,
}

impl KillScene {
    pub(super) fn new() -> Self {
        Self::of_team(answer)
    }

    /// The same with another team.
    pub(super) fn of_team(mut team: impl FnMut(&ParsedRequest) -> Reply + Send + 'static) -> Self {
        let (sender, requests) = sync_channel(10_000);
        let bench = Bench::new("anthropic", move |request: &ParsedRequest| {
            sender.send(()).expect("its reader is there");
            team(request)
        });
        let bench = bench.in_processes();
        let project = std::fs::canonicalize(bench.project()).expect("is there");
        make_repository(&project);
        Self { bench, project, requests, commits: BTreeSet::new() }
    }

    /// Plans the goal, has the plan approved, and starts the work.
    pub(super) fn begin(&self) -> PilotVictim {
        let engine = self.begin_plan();
        let started = self.run_pilot(&["auto", "--detach"]);
        assert_eq!(code(&started), 0, "{}", text(&started));
        engine
    }

    /// Plans the goal, and has the plan approved.
    pub(super) fn begin_plan(&self) -> PilotVictim {
        let engine = PilotVictim::start(&self.bench.home).until_ready();
        for (arguments, exit) in [(&["plan", GOAL][..], 5), (&["approve", "--yes"], 0)] {
            let done = self.run_pilot(arguments);
            assert_eq!(code(&done), exit, "{arguments:?}: {}", text(&done));
        }
        engine
    }

    /// Runs a command of the autopilot on the project.
    pub(super) fn run_pilot(&self, arguments: &[&str]) -> Output {
        let project = self.project.to_str().expect("UTF-8");
        self.bench.home.run(&[&["pilot"], arguments, &["--project", project]].concat())
    }

    pub(super) fn ask(&self, method: &str, more: Value) -> Value {
        let mut link = Link::open(&self.bench.home).expect("connects");
        let mut params = json!({ "project": self.project });
        params.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        link.call(method, params).expect("answers")
    }

    fn is_complete(&self) -> bool {
        let status = self.ask("pilot.status", json!({}));
        match status["state"].as_str() {
            Some("complete") => true,
            Some("running") => false,
            _ => panic!("it has stopped: {status:#}"),
        }
    }

    /// Waits for some requests. Returns false if none comes any more.
    pub(super) fn wait_for(&self, count: u64) -> bool {
        (0..count).all(|_| self.requests.recv_timeout(QUIET).is_ok())
    }

    /// Waits, while requests come.
    fn wait(&self, most: Duration) {
        let until = Instant::now() + most;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            match self.requests.recv_timeout(left) {
                Ok(()) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => panic!("the model server is gone"),
            }
        }
    }

    pub(super) fn until_complete(&self) {
        let until = Instant::now() + PATIENCE;
        while !self.is_complete() {
            assert!(Instant::now() < until, "no end: {:#}", self.ask("pilot.status", json!({})));
            self.wait(LOOK_EVERY);
        }
    }

    /// Notes every commit that a reference shows.
    fn note_commits(&mut self) {
        self.commits.extend(git(&self.project, &["rev-list", "--glob=refs/*"]).lines().map(str::to_owned));
    }

    /// Plays the whole run with so many kills at most, and reads what has come out.
    fn play(mut self, (most, chance): (u64, &mut Chance), figures: &mut Figures) -> KillsResult {
        let mut engine = Some(self.begin());
        figures.runs += 1;
        let mut kills = 0;
        while kills < most {
            let latest = Duration::from_millis(chance.below(LATEST));
            let (count, is_early) = (chance.below(MOST_REQUESTS + 1), chance.below(5) == 0);
            let victim = match engine.take() {
                Some(begun) => {
                    self.wait_for(count);
                    begun
                }
                None => {
                    let victim = PilotVictim::start(&self.bench.home);
                    if is_early && !victim.is_ready_within(latest) {
                        figures.starting += 1;
                    } else if !is_early {
                        let victim_ready = victim.is_ready_within(PATIENCE);
                        assert!(victim_ready, "the engine is not ready: {}", victim.said());
                        let goes_on = self.wait_for(count);
                        if !goes_on && self.is_complete() {
                            engine = Some(victim);
                            break;
                        }
                    }
                    victim
                }
            };
            self.wait(latest);
            self.note_commits();
            let whole = chance.below(2) == 0;
            figures.whole += u64::from(whole);
            victim.kill(whole);
            kills += 1;
        }
        figures.kills += kills;
        let engine = engine.unwrap_or_else(|| PilotVictim::start(&self.bench.home).until_ready());
        self.until_complete();
        self.note_commits();
        read_result(self, engine)
    }
}

/// Kills at moments of chance change nothing of what comes out: the tree of the target is the same, every commit is reachable, no tool
/// was called twice, each slice was merged once, and no work tree, lock or process is left.
#[test]
fn needs_userns_needs_git_kills_at_moments_of_chance_change_nothing_of_what_is_merged() {
    let (kills, seed) = (number_of("WRIT_PILOT_KILLS", KILLS), number_of("WRIT_PILOT_SEED", 25));
    eprintln!("seed {seed}, {kills} kills");
    let mut chance = Chance::of_seed(seed);
    let mut figures = Figures::default();
    let expected = KillScene::new().play((0, &mut chance), &mut figures);
    assert_eq!(expected.interrupted, 0);
    while figures.kills < kills {
        let most = (kills - figures.kills).min(MOST_IN_ONE);
        let seen = KillScene::new().play((most, &mut chance), &mut figures);
        assert_eq!(seen.tree, expected.tree, "after {} kills", figures.kills);
        figures.commits += seen.commits;
        figures.interrupted += seen.interrupted;
        figures.calls += seen.calls;
        figures.unknown += seen.unknown;
        // Between figures, so that a long run shows where it is.
        eprintln!("{} kills, {} runs", figures.kills, figures.runs);
    }
    println!("{figures}");
}
