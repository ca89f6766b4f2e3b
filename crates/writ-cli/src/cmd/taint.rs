//! `writ taint explain`: what an entry of the ledger rests on, from its label and those of the entries that this names.

use serde_json::json;
use writ_inspect::show::escape_line;
use writ_store::ledger::rests_on::{MAX_FOLLOWED, RestsOn, Step};
use writ_types::error::Exit;

use crate::args::TaintCommand;
use crate::context::Context;
use crate::failure::Failure;
use crate::ledger::open_to_read;

/// Runs `writ taint …`.
pub(crate) fn run_taint(context: &Context, command: &TaintCommand) -> Result<(), Failure> {
    let TaintCommand::Explain { entry } = command;
    let store = open_to_read(context, &context.load_ready_config()?)?;
    if store.blocking().ledger_row(*entry)?.is_none() {
        let text = format!("the ledger has no entry {entry}");
        return Err(Failure::new(Exit::Usage, "ledger.no_entry", text, "see `writ audit tail`"));
    }
    let RestsOn { steps, more } = store.blocking().entry_rests_on(*entry)?;
    if steps.is_empty() {
        let text = format!("entry {entry} has no label");
        let hint = "name one that was received, asked, intended, an outcome or a reply";
        return Err(Failure::new(Exit::Usage, "taint.no_label", text, hint));
    }
    let result = json!({ "entry": entry, "rests_on": steps, "more": more });
    context.out.print_either(&result, |_| {
        let mut lines: Vec<String> = steps.iter().flat_map(describe_step).collect();
        if more {
            lines.push(format!("[more than {MAX_FOLLOWED} entries: the rest is not followed]"));
        }
        lines
    })
}

fn describe_step(step: &Step) -> Vec<String> {
    let Step { entry, event, taint, outside, private, sources, truncated } = step;
    // The level first, then the properties that weaken it.
    let mut what = vec![taint.as_str()];
    what.extend(outside.then_some("from outside the sandbox"));
    what.extend(private.then_some("private"));
    let entry = entry.map(|entry| format!("entry {entry} ")).unwrap_or_default();
    let mut lines = vec![format!("{entry}({event}): {}", what.join(", "))];
    for source in sources {
        let at = source.entry.map(|at| format!(", entry {at}")).unwrap_or_default();
        lines.push(format!("  {} {}{at}", escape_line(&source.origin), escape_line(&source.detail)));
    }
    if *truncated {
        lines.push("  [more sources than are stored]".to_owned());
    }
    lines
}
