//! An engine that is killed at random moments, again and again, in one home.
//!
//! Each round opens a session in the same project and says one message after the other; each makes a turn with a
//! command, a memory and an approval. At a random moment the engine is killed with SIGKILL, sometimes again while
//! it recovers. What it leaves is taken up by the next engine, and then everything must fit together.

mod random;

mod killer;

mod talk;

mod entries;

mod seen;

mod presence;

mod fuzz;

mod model;

mod killed;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::home::{Home, until_ready};
use killer::Killer;
use random::Random;
use seen::SessionView;
use talk::Talk;
use task_process::workspace_root;
use task_process::{Ended, Program, Running};

/// The latest moment of a kill after what it is counted from: about as long as a turn takes.
const LATEST: Duration = Duration::from_millis(400);
/// One in so many kills is followed by another while the next engine recovers.
const AGAIN: u64 = 4;
/// The time that one engine may take to finish everything.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);
/// The time that a whole run may take.
const WHOLE: Duration = Duration::from_secs(30 * 60);
/// The idle seconds after which an engine ends if this task is no longer there.
const IDLE_EXIT: &str = "60";
/// The most entries that are read of one session: a round makes some hundred.
const MOST_ENTRIES: &str = "10000";
/// The exit code of a violation (design 3.18: a check failed).
const VIOLATED: u8 = 8;
/// The number of SIGKILL.
const SIGKILL: i32 = 9;

// tidy: plain state
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Soak the server with many clients, for a while.
    #[arg(long, group = "kind")]
    presence: bool,
    /// Fuzz every reader of what others have written, two targets at once.
    #[arg(long, group = "kind", conflicts_with = "presence")]
    fuzz: bool,
    /// Compare the door with the slow model of it.
    #[arg(long, conflicts_with_all = ["presence", "fuzz"])]
    model: bool,
    /// Kill the proxy, the engine and the agents of a fleet.
    #[arg(long, conflicts_with_all = ["presence", "fuzz", "model"])]
    fleet: bool,
    /// Kill the engine of an autopilot and everything that it has started.
    #[arg(long, group = "kind", conflicts_with_all = ["presence", "fuzz", "model", "fleet"])]
    pilot: bool,
    /// In how many cases they are compared.
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1..), requires = "model")]
    cases: u32,
    /// The time for each target.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=100_000), requires = "fuzz")]
    seconds: u32,
    /// Only this target.
    #[arg(long, value_name = "NAME", requires = "fuzz")]
    target: Option<String>,
    /// The number of kills: 200, 20 in the soak of the server, or 100 in that of a fleet and of the autopilot.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    kills: Option<u32>,
    /// The length of the soak of the server.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=10_000), requires = "presence")]
    minutes: u32,
    /// The number of messages of its clients.
    #[arg(long, default_value_t = 10_000, requires = "presence")]
    turns: usize,
    /// The number of its clients.
    #[arg(long, default_value_t = 200, requires = "presence")]
    sockets: usize,
    /// Write the figures of the server's or the autopilot's soak to `docs/soak.md`, or those of the fuzzer to `docs/fuzzing.md`.
    #[arg(long, requires = "kind")]
    write: bool,
    /// The seed of the random moments; the run prints it.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Kill this binary instead of building one as tests do.
    #[arg(long, value_name = "FILE", requires = "helper")]
    binary: Option<PathBuf>,
    /// Use this build of the example `bench` for its model.
    #[arg(long, value_name = "FILE", requires = "binary")]
    helper: Option<PathBuf>,
}

impl Options {
    fn kills(&self) -> u32 {
        self.kills.unwrap_or(match (self.presence, self.fleet || self.pilot) {
            (true, _) => 20,
            (false, true) => 100,
            (false, false) => 200,
        })
    }
}

#[derive(Debug, Default)]
struct Figures {
    rounds: u32,
    kills: u32,
    /// Kills while an engine recovered or started.
    recovering: u32,
    /// Kills while a message had no acknowledgement yet.
    unacknowledged: u32,
    /// Kills while a turn ran.
    in_turn: u32,
    /// Kills between a turn's answer and the end of its approval.
    in_approval: u32,
    /// Messages that were answered.
    answered: usize,
    tools: seen::Tally,
}

/// Runs until so many kills are done; exit code 8 if something does not fit together.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if options.fuzz {
        return fuzz::run(options.seconds, options.target.as_deref(), options.write);
    }
    if options.presence {
        return presence::run(options);
    }
    if options.model {
        return model::run(options.seed.unwrap_or_else(arbitrary), options.cases);
    }
    let kills = options.kills();
    if options.fleet {
        return killed::run(&killed::FLEET, (options.seed.unwrap_or_else(arbitrary), kills), options.write);
    }
    if options.pilot {
        return killed::run(&killed::PILOT, (options.seed.unwrap_or_else(arbitrary), kills), options.write);
    }
    let seed = options.seed.unwrap_or_else(arbitrary);
    let scratch = scratch()?;
    let (writ, helper) = copies(options, scratch.path())?;
    println!("seed {seed}, {kills} kills");
    let home = Home::set_up(&writ, &helper, &scratch.path().join("soak"))?
        // A call that a kill has taken counts as all that it could have used.
        .with("WRIT_BUDGET__MAX_TOKENS_PER_DAY", "1000000000000");
    let project = home.folder().join("project");
    std::fs::create_dir(&project)?;
    let mut soak = Soak { home, project, random: Random::new(seed), figures: Figures::default() };
    let start = Instant::now();
    while soak.figures.kills < kills {
        ensure!(start.elapsed() < WHOLE, "after {WHOLE:?} only {} kills are done", soak.figures.kills);
        // An engine that refuses, crashes or hangs is as wrong as one that loses something.
        let wrong = soak.round(kills).unwrap_or_else(|error| vec![format!("{error:#}")]);
        if !wrong.is_empty() {
            for violation in wrong {
                println!("violated: {violation}");
            }
            println!("seed {seed}, round {}, kill {}", soak.figures.rounds, soak.figures.kills);
            println!("its home is kept: {}", scratch.keep().display());
            return Ok(ExitCode::from(VIOLATED));
        }
        if soak.figures.rounds.is_multiple_of(20) {
            println!("{} kills, {} messages", soak.figures.kills, soak.figures.answered);
        }
    }
    soak.figures.print(start.elapsed());
    Ok(ExitCode::SUCCESS)
}

/// A random seed.
fn arbitrary() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::from(since.subsec_nanos()) ^ since.as_secs().rotate_left(32)
}

fn scratch() -> Result<TempDir> {
    let folder = task_process::target_directory(&workspace_root()?);
    std::fs::create_dir_all(&folder)?;
    Ok(TempDir::with_prefix_in("soak-", &folder)?)
}

/// Copies of the binary and its helper: what is built meanwhile is not what is soaked.
fn copies(options: &Options, scratch: &Path) -> Result<(PathBuf, PathBuf)> {
    let built = match (&options.binary, &options.helper) {
        (Some(binary), Some(helper)) => (binary.clone(), helper.clone()),
        (None | Some(_), _) => build()?,
    };
    let copied = (scratch.join("writ"), scratch.join("bench"));
    for (from, to) in [(built.0, &copied.0), (built.1, &copied.1)] {
        std::fs::copy(&from, to).with_context(|| from.display().to_string())?;
    }
    Ok(copied)
}

/// Builds both as tests do.
fn build() -> Result<(PathBuf, PathBuf)> {
    let root = workspace_root()?;
    let arguments = ["build", "--locked", "--workspace", "--bin", "writ", "--example", "bench"];
    ensure!(Program::cargo(&arguments).directory(&root).status()?, "the build failed");
    let folder = task_process::target_directory(&root).join("debug");
    Ok((folder.join("writ"), folder.join("examples/bench")))
}

struct Soak {
    home: Home,
    project: PathBuf,
    random: Random,
    figures: Figures,
}

impl Soak {
    /// One session: kills, an engine that brings it to its end, and what does not fit then.
    fn round(&mut self, most: u32) -> Result<Vec<String>> {
        self.figures.rounds += 1;
        let mut talk = Talk::new(self.figures.rounds, &self.project);
        let mut engine = self.home.launch(IDLE_EXIT)?;
        until_ready(&mut engine)?;
        let mut link = talk.join(&self.home)?;
        let killer = Killer::after(engine.pid(), self.random.below(LATEST));
        let ended = talk.go_on_for_ever(&mut link);
        self.killed(&talk, &mut engine, killer, ended)?;
        while self.figures.kills < most && self.random.one_in(AGAIN) {
            let mut engine = self.home.launch(IDLE_EXIT)?;
            let killer = Killer::after(engine.pid(), self.random.below(LATEST));
            talk.leave();
            let ended = until_ready(&mut engine)
                .and_then(|()| talk.join(&self.home))
                .and_then(|mut link| talk.go_on_for_ever(&mut link));
            self.killed(&talk, &mut engine, killer, ended)?;
        }
        self.settle(talk)
    }

    /// Counts a kill, if it was one.
    fn killed(&mut self, talk: &Talk, engine: &mut Running, killer: Killer, ended: Result<()>) -> Result<()> {
        match ended {
            Ok(()) => bail!("a client ended by itself"),
            Err(error) if error.is::<Ended>() => {}
            Err(error) => return Err(error),
        }
        ensure!(killer.wait()?, "the engine ended before it was killed");
        let signal = engine.ended_by()?;
        ensure!(signal == Some(SIGKILL), "the engine was to be killed, but ended with {signal:?}");
        self.figures.kills += 1;
        let place = match talk.place() {
            talk::Place::Joining => &mut self.figures.recovering,
            talk::Place::Saying => &mut self.figures.unacknowledged,
            talk::Place::Turn => &mut self.figures.in_turn,
            talk::Place::Approval => &mut self.figures.in_approval,
        };
        *place += 1;
        Ok(())
    }

    /// Lets an engine bring a session to its end, and looks.
    fn settle(&mut self, mut talk: Talk) -> Result<Vec<String>> {
        let mut engine = self.home.launch(IDLE_EXIT)?;
        let watch = Killer::after(engine.pid(), SETTLED_WITHIN);
        talk.leave();
        let seen = until_ready(&mut engine).and_then(|()| self.look(&mut talk));
        if watch.disarm()? {
            let seconds = SETTLED_WITHIN.as_secs();
            return Ok(vec![format!("the engine did not come to an end within {seconds} s: {seen:?}")]);
        }
        let seen = seen?;
        drop(engine);
        let verified = self.home.writ(&["audit", "verify"]).output()?;
        let mut wrong = seen.violations();
        if !verified.success {
            wrong.push(format!("audit verify: {} {}", verified.stdout.trim(), verified.stderr.trim()));
        }
        self.figures.answered += talk.said().len();
        self.figures.tools.add(&seen.tally());
        Ok(wrong)
    }

    /// Everything that there is to see of a session that has come to its end.
    fn look(&self, talk: &mut Talk) -> Result<SessionView> {
        let mut link = talk.join(&self.home)?;
        talk.settle(&mut link)?;
        let session = talk.session().context("no session was opened")?.to_owned();
        let status = link.call("status", &json!({}))?;
        let found = link.call("memory.search", &json!({ "query": talk.name(), "limit": 500 }))?;
        let memories = found.get("hits").and_then(Value::as_array).into_iter().flatten();
        let memories = memories.filter_map(|hit| Some(hit.get("text")?.as_str()?.to_owned())).collect();
        let show = json!({ "argv": ["cat", talk.file()], "session": session });
        let shown = link.call("sandbox.exec", &show)?;
        let inside = shown.get("stdout").and_then(Value::as_str).context("the file was not read")?.to_owned();
        let outside = std::fs::read_to_string(self.project.join(talk.file())).unwrap_or_default();
        let arguments = ["audit", "search", "--session", &session, "-n", MOST_ENTRIES, "--json"];
        let exported = self.home.writ(&arguments).output()?;
        ensure!(exported.success, "audit search: {}", exported.stderr.trim());
        let entries = exported.stdout.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
        Ok(SessionView { said: talk.said().to_vec(), entries, status, memories, inside, outside })
    }
}

impl Figures {
    fn print(&self, took: Duration) {
        let each = took.checked_div(self.kills.max(1)).unwrap_or_default();
        println!(
            "{} kills in {:.0} s ({} ms each), {} sessions, {} messages",
            self.kills,
            took.as_secs_f64(),
            each.as_millis(),
            self.rounds,
            self.answered
        );
        println!(
            "killed: {} starting or recovering, {} before a message was acknowledged, {} in a turn, {} in an approval",
            self.recovering, self.unacknowledged, self.in_turn, self.in_approval
        );
        println!("{}", self.tools);
        println!("nothing was lost, nothing was done twice, every ledger verified");
    }
}
