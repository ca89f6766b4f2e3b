//! Measures the steps of a long plan beside turns of a conversation, with a model that answers at once.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;

use super::Bench;
use super::engine::{Engine, Link};
use super::row::{Percentile, Row};
use super::stats::{Sample, shown};
use crate::link::{is, text};

/// The number of steps: the most that a plan may have.
const STEPS: usize = 200;
/// The most that a step may take beside its turn.
const OVERHEAD: Duration = Duration::from_millis(5);
/// The limit of tokens for the plan: by its steps it never ends early.
const TOKENS: u64 = 400_000_000;

/// Measures the time from the beginning of a step to that of the next, against a turn without tools of the same engine. The turns
/// are before and behind the plan, so that both see the same machine.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let engine = Engine::start(bench, "plan")?;
    let mut talk = engine.connect()?;
    talk.open_session()?;
    talk.turn("talk 0 first")?;
    let mut turns = Vec::new();
    take_turns(&mut talk, bench.rounds.div_ceil(2), &mut turns)?;
    let begun = run_plan(&mut engine.connect()?)?;
    take_turns(&mut talk, bench.rounds.div_ceil(2), &mut turns)?;
    let steps = begun.windows(2).filter_map(|pair| Some(pair.last()?.duration_since(*pair.first()?)));
    let (steps, turn) = (Sample::new(steps.collect())?, Sample::new(turns)?);
    let against = format!("5 ms + a turn without a tool ({})", shown(turn.p50()));
    let limit = (Percentile::P50, OVERHEAD + turn.p50());
    Ok(vec![Row::limit("step of a plan of 200", steps, limit, against)])
}

fn take_turns(link: &mut Link, rounds: u32, took: &mut Vec<Duration>) -> Result<()> {
    for round in 0..rounds {
        took.push(link.turn(&format!("talk 0 {round}"))?.took);
    }
    Ok(())
}

/// Runs a plan to its end. Returns the moments at which its steps have begun.
fn run_plan(link: &mut Link) -> Result<Vec<Instant>> {
    let proposed = link.call("work.propose", &json!({ "plan": plan() }))?;
    link.join(Some(text(&proposed, "session")))?;
    link.approve(text(&proposed, "ask"))?;
    let mut begun = Vec::new();
    let last = link.until(|frame| {
        let is_begun = text(frame, "text").starts_with("attempt 1 of ");
        if is(frame, "type", "work") && is(frame, "state", "running") && is_begun {
            begun.push(Instant::now());
        }
        is(frame, "type", "work") && !is(frame, "state", "running") && !is(frame, "state", "proposed")
    })?;
    ensure!(is(&last, "state", "done"), "the plan ended with {last}");
    ensure!(begun.len() == STEPS, "{} of {STEPS} steps have begun once", begun.len());
    Ok(begun)
}

fn plan() -> String {
    let mut plan =
        format!("---\nid: long\ntype: task\ntitle: Many steps\nbudget: {{max_tokens: {TOKENS}}}\nsteps:\n");
    for n in 0..STEPS {
        let _ = writeln!(plan, "  - id: s{n}\n    title: Step {n}\n    do: Say done.");
    }
    plan + "---\n\n# What to do\n\nSay done.\n"
}
