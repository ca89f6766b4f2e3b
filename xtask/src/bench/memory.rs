//! What the engine and a client keep in memory.

use anyhow::{Context as _, Result, ensure};

use super::Bench;
use super::engine::Engine;
use super::row::Row;

/// What an idle engine may take (design 5).
const IDLE: u64 = 25_000_000;
/// What it may grow by over a hundred turns (design 5).
const GROWTH: u64 = 2_000_000;
/// Turns between two looks.
const TURNS: u32 = 100;
/// Each turn writes one file in the sandbox.
const TURN: &str = "file_write 1";

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug)]
struct Memory {
    /// Resident: shared pages count in full.
    resident: u64,
    /// Proportional: shared pages count in parts.
    proportional: u64,
}

/// Measures the engine before any turn, after one, after a hundred and after two hundred, and `writ chat -m`
/// while it waits for its answer.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let mut engine = Engine::start(bench, "memory")?;
    let mut link = engine.connect()?;
    link.open_session()?;
    let mut rows = Vec::new();
    let idle = of(engine.pid())?;
    show(&mut rows, "engine, no turn yet", idle, Some(IDLE));
    let mut turns = |from: u32, to: u32| -> Result<Memory> {
        for n in from..to {
            link.turn(&format!("{TURN} {n}"))?;
        }
        of(engine.pid())
    };
    let first = turns(0, 1)?;
    let hundredth = turns(1, TURNS)?;
    let last = turns(TURNS, 2 * TURNS)?;
    show(&mut rows, "engine, 1 turn", first, None);
    show(&mut rows, "engine, 100 turns", hundredth, None);
    let grown = |after: Memory, before: Memory| after.proportional.saturating_sub(before.proportional);
    rows.push(Row::size("engine PSS growth, turns 1 to 100", grown(hundredth, first), Some(GROWTH)));
    rows.push(Row::size("engine PSS growth, turns 100 to 200", grown(last, hundredth), Some(GROWTH)));
    show(&mut rows, "writ chat -m", client(&mut engine)?, None);
    Ok(rows)
}

/// A client that has said something and waits for the answer.
fn client(engine: &mut Engine) -> Result<Memory> {
    let mut chat = engine.writ(&["chat", "--json", "--new", "-m", "hold"]).spawn()?;
    // It has connected and joined once it prints a frame.
    chat.line()?;
    let memory = of(chat.pid())?;
    engine.release()?;
    ensure!(chat.wait()?, "writ chat failed");
    Ok(memory)
}

fn show(rows: &mut Vec<Row>, what: &str, memory: Memory, target: Option<u64>) {
    rows.push(Row::size(&format!("{what}: RSS"), memory.resident, None));
    rows.push(Row::size(&format!("{what}: PSS"), memory.proportional, target));
}

fn of(pid: u32) -> Result<Memory> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    let kilobytes = |name: &str| -> Result<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|rest| rest.split_whitespace().next()).context("no such line")?;
        Ok(number.parse::<u64>()? * 1024)
    };
    Ok(Memory { resident: kilobytes("Rss:")?, proportional: kilobytes("Pss:")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory() {
        let memory = of(std::process::id()).unwrap();
        assert!(memory.resident >= memory.proportional && memory.proportional > 0, "{memory:?}");
    }
}
