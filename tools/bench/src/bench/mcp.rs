//! Measures a call of a foreign tool: a turn with one, against the same turn with a tool of our own.

use anyhow::{Result, ensure};

use super::Bench;
use super::engine::Engine;
use super::row::Row;
use super::stats::in_turn;

/// A server of one tool that answers at once, of a shell alone.
const SERVER: &str = r#"while IFS= read -r line; do
id=${line#*'"id":'}; id=${id%%[,\}]*}
case $line in
*'"initialize"'*) result='{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}}';;
*'"tools/list"'*) result='{"tools":[{"name":"look","description":"Looks.","inputSchema":{"type":"object","properties":{"text":{"type":"string"},"id":{"type":"string"}}}}]}';;
*'"tools/call"'*) result='{"content":[{"type":"text","text":"seen"}],"structuredContent":{"seen":"yes"}}';;
*) continue;;
esac
printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done"#;
/// The owner's declaration: it only reads, and its text may be anything.
const WORDS: &str = "\n[tools.look]\neffect = false\nsinks = [\"id\"]\nfree = [\"text\"]\n";

/// Measures turns with one call of the server's tool, in turn with turns of one `memory_store`.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let what = "turn, 1 call over MCP (stdio)";
    let engine = Engine::with_server(bench, "mcp", (SERVER, WORDS))?;
    let (mut foreign, mut own) = (engine.connect()?, engine.connect()?);
    foreign.open_session()?;
    own.open_session()?;
    // Starts the server, and opens what a session opens at its first use.
    let first = foreign.turn("bench__look 1 first")?;
    if first.tools_done != 1 {
        return Ok(vec![Row::not_run(what, "the call was not performed")]);
    }
    own.turn("memory_store 1 first")?;
    let mut round = 0_u32;
    let call = || {
        round += 1;
        let turn = foreign.turn(&format!("bench__look 1 {round}"))?;
        ensure!(turn.tools_done == 1, "the call was not performed");
        Ok(turn.took)
    };
    let mut stored = 0_u32;
    let store = || {
        stored += 1;
        Ok(own.turn(&format!("memory_store 1 {stored}"))?.took)
    };
    let (calls, stores) = in_turn(bench.rounds, call, store)?;
    Ok(vec![Row::beside(what, calls, ("turn, 1 memory_store", stores))])
}
