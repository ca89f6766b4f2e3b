//! Measures the memory of the engine and of a client.

use anyhow::{Result, ensure};

use super::Bench;
use super::engine::Engine;
use super::row::Row;
use crate::gauge::Gauge;

/// The most that an idle engine may take (design 5).
const IDLE: u64 = 25_000_000;
/// The most that it may grow by over a hundred turns (design 5).
const GROWTH: u64 = 2_000_000;
/// Turns between two looks.
const TURNS: u32 = 100;
/// Each turn writes one file in the sandbox.
const TURN: &str = "file_write 1";

/// Measures the engine before any turn, after one, after a hundred and after two hundred, and `writ chat -m`
/// while it waits for its answer.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let mut engine = Engine::start(bench, "memory")?;
    let mut link = engine.connect()?;
    link.open_session()?;
    let mut rows = Vec::new();
    let idle = Gauge::of(engine.pid())?;
    show(&mut rows, "engine, no turn yet", idle, Some(IDLE));
    let mut turns = |from: u32, to: u32| -> Result<Gauge> {
        for n in from..to {
            link.turn(&format!("{TURN} {n}"))?;
        }
        Gauge::of(engine.pid())
    };
    let first = turns(0, 1)?;
    let hundredth = turns(1, TURNS)?;
    let last = turns(TURNS, 2 * TURNS)?;
    show(&mut rows, "engine, 1 turn", first, None);
    show(&mut rows, "engine, 100 turns", hundredth, None);
    let grown = |after: Gauge, before: Gauge| after.proportional.saturating_sub(before.proportional);
    rows.push(Row::size("engine PSS growth, turns 1 to 100", grown(hundredth, first), Some(GROWTH)));
    rows.push(Row::size("engine PSS growth, turns 100 to 200", grown(last, hundredth), Some(GROWTH)));
    show(&mut rows, "writ chat -m", client(&mut engine)?, None);
    Ok(rows)
}

/// Measures a client that has sent a message and waits for the answer.
fn client(engine: &mut Engine) -> Result<Gauge> {
    let mut chat = engine.writ(&["chat", "--json", "--new", "-m", "hold"]).spawn()?;
    chat.close_input();
    // It has connected and joined once it prints a frame.
    chat.line()?;
    let memory = Gauge::of(chat.pid())?;
    engine.release()?;
    ensure!(chat.wait()?, "writ chat failed");
    Ok(memory)
}

fn show(rows: &mut Vec<Row>, what: &str, memory: Gauge, target: Option<u64>) {
    rows.push(Row::size(&format!("{what}: RSS"), memory.resident, None));
    rows.push(Row::size(&format!("{what}: PSS"), memory.proportional, target));
}
