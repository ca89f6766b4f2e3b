//! A server with many clients for a while: they speak, cancel, approve, vanish and come back, while the
//! engine is killed and started again; then it is left alone, and must not grow.

mod kind;

mod group;

mod client;

mod crowd;

mod keeper;

mod verdict;

mod figures;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use tokio::time::{sleep, sleep_until};

use super::random::Random;
use super::{Options, VIOLATED, arbitrary, copies, scratch};
use crate::gauge::Gauge;
use crate::home::Home;
use crowd::Crowd;
use figures::{Figures, Growth, Look};
use keeper::Keeper;
use task_process::workspace_root;

/// Two fifths of the time the engine is disturbed; then it has to be flat.
const DISTURBED: (u32, u32) = (2, 5);
/// The most moments at which everything comes to rest and the engine is looked at.
const LOOKS: u32 = 20;
/// The least time between two looks.
const LEAST_BETWEEN: Duration = Duration::from_secs(15);
/// The pause between two looks for the end of all messages.
const AGAIN: Duration = Duration::from_secs(1);
/// One in so many turns runs before growth counts: caches and pools have filled by then.
const WARM_UP: usize = 10;
/// One restart in good order for so many kills.
const KILLS_PER_RESTART: u32 = 2;
/// The document with the figures.
const DOCUMENT: &str = "docs/soak.md";
/// The head of the document.
const HEAD: &str = "# Soak of the server

`cargo xtask soak --presence --write` writes this page. One engine serves WebSockets over loopback, with a scripted model that
speaks a provider's wire format; its clients are one process. Every message is a turn: talk, answers that take a while and
are cancelled or left in the middle, commands, files and memories, commands that an approval lets run. In the first two
fifths of the time the engine is killed with SIGKILL and stopped in good order at random moments; clients resume by
`seq`. The run fails if a message has not exactly one end, if a client misses or doubles a kept frame, if two clients
of a session see different ones, if a tool has had its effect twice, if a ledger does not verify, or if the undisturbed
engine grows by more than 10 MB in ten thousand turns.

";

/// An event in the life of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Look,
    Kill,
    Restart,
}

/// Runs the soak; exit code 8 if something does not fit together.
pub(super) fn run(options: &Options) -> Result<ExitCode> {
    let seed = options.seed.unwrap_or_else(arbitrary);
    let scratch = scratch()?;
    let (writ, helper) = copies(options, scratch.path())?;
    println!(
        "seed {seed}: {} minutes, {} turns, {} sockets, {} kills",
        options.minutes,
        options.turns,
        options.sockets,
        options.kills()
    );
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    match runtime.block_on(soak(options, seed, &writ, &helper, scratch.path())) {
        Ok(figures) => {
            println!("{figures}");
            println!("nothing was lost, nothing was done twice, every ledger verified, memory is flat");
            if options.write {
                let path = workspace_root()?.join(DOCUMENT);
                let rest = super::killed::part_of_pilot(&std::fs::read_to_string(&path).context(DOCUMENT)?);
                std::fs::write(&path, format!("{HEAD}{figures}{rest}")).context(DOCUMENT)?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            println!("violated: {error:#}");
            println!("seed {seed}; its home is kept: {}", scratch.keep().display());
            Ok(ExitCode::from(VIOLATED))
        }
    }
}

async fn soak(options: &Options, seed: u64, writ: &Path, helper: &Path, folder: &Path) -> Result<Figures> {
    let home = Home::set_up(writ, helper, &folder.join("presence"))?
        .with("WRIT_SERVER__ENABLED", "true")
        .with("WRIT_SERVER__PORT", "0")
        // All clients are one person's, behind one address.
        .with("WRIT_SERVER__REQUESTS_PER_SEC", "2000")
        .with("WRIT_SERVER__BURST", "4000")
        // A call that a kill has taken counts as all that it could have used.
        .with("WRIT_BUDGET__MAX_TOKENS_PER_DAY", "1000000000000")
        .with("WRIT_BUDGET__MAX_TOKENS_PER_SESSION", "1000000000000");
    let mut keeper = Keeper::start(home)?;
    let (start, time) = (Instant::now(), Duration::from_secs(60 * u64::from(options.minutes)));
    let crowd = Crowd::start(options.sockets, (options.turns, time), seed, &keeper.watch());
    let mut random = Random::new(seed);
    let mut looks = Vec::new();
    for (at, event) in plan(time, options.kills(), &mut random) {
        sleep_until((start + at).into()).await;
        crowd.check()?;
        match event {
            Event::Kill if keeper.lives().kills < options.kills() => {
                keeper.kill(&mut random, options.kills(), crowd.is_busy())?;
            }
            Event::Kill => {}
            Event::Restart => keeper.stop_and_start()?,
            Event::Look => {
                let look = look(&crowd, &keeper, start).await?;
                println!("{}", line(&look));
                looks.push(look);
                crowd.go_on();
            }
        }
    }
    while !crowd.is_done() {
        crowd.check()?;
        sleep(AGAIN).await;
    }
    let last = look(&crowd, &keeper, start).await?;
    println!("{}", line(&last));
    looks.push(last);
    end(options, seed, start, keeper, crowd, looks).await
}

/// Summarises the run when everything is at rest.
async fn end(
    options: &Options,
    seed: u64,
    start: Instant,
    mut keeper: Keeper,
    crowd: Crowd,
    looks: Vec<Look>,
) -> Result<Figures> {
    let took = start.elapsed();
    let tools = verdict::judge(keeper.home(), crowd.groups())?;
    keeper.verify()?;
    let stretch = stretch(&looks, options.turns);
    let mut figures = Figures {
        seed,
        took,
        sockets: crowd.sockets(),
        sessions: crowd.groups().len(),
        frames: crowd.groups().iter().map(|group| group.lock().frames()).sum(),
        asks: crowd.groups().iter().map(|group| group.lock().asks()).sum(),
        told: Figures::told(crowd.groups()),
        counts: Figures::counts(crowd.counts()),
        lives: keeper.lives().clone(),
        tools,
        looks,
        stretch,
    };
    crowd.leave().await?;
    keeper.stop()?;
    figures.lives = keeper.lives().clone();
    ensure!(figures.told.len() == options.turns, "not every message came to its end");
    let panics = panics(&keeper.home().folder().join("home/logs"))?;
    ensure!(panics.is_empty(), "the engine panicked: {}", panics.join("\n"));
    let (first, last) = stretch.context("the run is too short to say how memory grows")?;
    let wrong = Growth::between(&first, &last).violations();
    if !wrong.is_empty() {
        println!("{figures}");
        bail!("{}", wrong.join("\n"));
    }
    Ok(figures)
}

/// Plans the events: looks all the time, and kills and restarts at random moments of the first part.
fn plan(time: Duration, kills: u32, random: &mut Random) -> Vec<(Duration, Event)> {
    let every = (time / LOOKS).max(LEAST_BETWEEN);
    let looks = time.as_millis() / every.as_millis().max(1);
    let looks = (1..u32::try_from(looks).unwrap_or(LOOKS)).map(|n| (every * n, Event::Look));
    let disturbed = time * DISTURBED.0 / DISTURBED.1;
    let mut events: Vec<(Duration, Event)> = looks.collect();
    for (event, count) in [(Event::Kill, kills), (Event::Restart, kills.div_ceil(KILLS_PER_RESTART))] {
        events.extend((0..count).map(|_| (random.below(disturbed), event)));
    }
    events.sort_by_key(|(at, _)| *at);
    events
}

async fn look(crowd: &Crowd, keeper: &Keeper, start: Instant) -> Result<Look> {
    crowd.rest().await?;
    let engine = keeper.lives().ready.len();
    Ok(Look { at: start.elapsed(), turns: crowd.said(), engine, gauge: Gauge::of(keeper.pid())? })
}

/// The looks between which the last engine must not grow: from when it is warm.
fn stretch(looks: &[Look], turns: usize) -> Option<(Look, Look)> {
    let last = looks.last()?;
    let own: Vec<&Look> = looks.iter().filter(|look| look.engine == last.engine).collect();
    let first = own.first()?;
    let warm = own.iter().find(|look| look.turns >= first.turns + turns / WARM_UP)?;
    (warm.turns < last.turns).then_some((**warm, *last))
}

fn line(look: &Look) -> String {
    let Look { at, turns, engine, gauge } = look;
    format!(
        "{:>6.1} min, {turns:>6} turns, engine {engine}: PSS {:.1} MB, RSS {:.1} MB, anonymous {:.1} MB, {} \
         descriptors, {} threads, {} children",
        at.as_secs_f64() / 60.0,
        gauge.proportional as f64 / 1e6,
        gauge.resident as f64 / 1e6,
        gauge.anonymous as f64 / 1e6,
        gauge.descriptors,
        gauge.threads,
        gauge.children
    )
}

/// Lines of the engine's logs that tell of a panic.
fn panics(logs: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for file in std::fs::read_dir(logs).with_context(|| logs.display().to_string())? {
        let text = std::fs::read_to_string(file?.path()).unwrap_or_default();
        found.extend(text.lines().filter(|line| line.contains("panicked")).map(str::to_owned));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_is_left_alone_after_the_first_part() {
        let hour = Duration::from_secs(3_600);
        let events = plan(hour, 20, &mut Random::new(1));
        let count = |wanted| events.iter().filter(|(_, event)| *event == wanted).count();
        assert_eq!((count(Event::Kill), count(Event::Restart), count(Event::Look)), (20, 10, 19));
        assert!(events.is_sorted_by_key(|(at, _)| *at));
        let late = events.iter().filter(|(at, _)| *at > hour * 2 / 5);
        assert!(late.into_iter().all(|(_, event)| *event == Event::Look));
        let short = plan(Duration::from_secs(120), 3, &mut Random::new(1));
        assert_eq!(short.iter().filter(|(_, event)| *event == Event::Look).count(), 7);
    }

    #[test]
    fn growth_counts_from_the_first_warm_look_at_the_last_engine() {
        let look = |turns, engine| Look { at: Duration::ZERO, turns, engine, gauge: Gauge::default() };
        let looks = [look(100, 1), look(400, 2), look(450, 2), look(500, 2), look(900, 2), look(1_000, 2)];
        let (first, last) = stretch(&looks, 1_000).unwrap();
        assert_eq!((first.turns, last.turns), (500, 1_000));
        assert!(stretch(&looks[..2], 1_000).is_none(), "one look says nothing");
    }
}
