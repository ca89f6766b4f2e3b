//! `writ taint explain`: what an entry of the ledger rests on, from its label and those of the entries that this names.

use std::collections::{BTreeSet, VecDeque};

use serde_json::{Value, json};
use writ_policy::show::escape_line;
use writ_store::store::Store;
use writ_types::entry::Fact;
use writ_types::error::Exit;
use writ_types::id::EntrySeq;
use writ_types::taint::Label;

use crate::args::TaintCommand;
use crate::context::Context;
use crate::failure::Failure;
use crate::ledger::open_to_read;

/// The most entries that one explanation follows.
const MAX_FOLLOWED: usize = 200;

/// Runs `writ taint …`.
pub(crate) fn run(context: &Context, command: &TaintCommand) -> Result<(), Failure> {
    let TaintCommand::Explain { entry } = command;
    let store = open_to_read(context, &context.ready()?)?;
    if store.ledger_row(*entry)?.is_none() {
        let text = format!("the ledger has no entry {entry}");
        return Err(Failure::new(Exit::Usage, "ledger.no_entry", text, "see `writ audit tail`"));
    }
    let (steps, more) = follow(&store, *entry)?;
    if steps.is_empty() {
        let text = format!("entry {entry} has no label");
        let hint = "name one that was received, intended, an outcome or a reply";
        return Err(Failure::new(Exit::Usage, "taint.no_label", text, hint));
    }
    let result = json!({ "entry": entry, "rests_on": steps, "more": more });
    context.out.either(&result, |_| {
        let mut lines: Vec<String> = steps.iter().flat_map(lines).collect();
        if more {
            lines.push(format!("[more than {MAX_FOLLOWED} entries: the rest is not followed]"));
        }
        lines
    })
}

/// The entry, and what it rests on, breadth first; whether there was more.
fn follow(store: &Store, first: EntrySeq) -> Result<(Vec<Value>, bool), Failure> {
    let (mut steps, mut known, mut due) = (Vec::new(), BTreeSet::from([first]), VecDeque::from([first]));
    while let Some(seq) = due.pop_front() {
        if steps.len() >= MAX_FOLLOWED {
            return Ok((steps, true));
        }
        let Some(fact) = store.ledger_row(seq)?.and_then(|row| row.entry()).map(|entry| entry.fact) else {
            continue;
        };
        let Some(label) = label_of(&fact) else { continue };
        let sources: Vec<Value> = label
            .sources
            .iter()
            .map(|source| json!({ "origin": source.origin, "detail": source.detail, "entry": source.entry }))
            .collect();
        due.extend(label.sources.iter().filter_map(|source| source.entry).filter(|seq| known.insert(*seq)));
        steps.push(json!({
            "entry": seq, "event": fact.event(), "taint": label.taint, "outside": label.outside,
            "private": label.private, "sources": sources, "truncated": label.truncated,
        }));
    }
    Ok((steps, false))
}

/// The label of an entry that has one.
fn label_of(fact: &Fact) -> Option<Label> {
    if let Fact::Received { record, .. } = fact {
        return Some(Label::new(record.taint));
    }
    if let Fact::Intent { label, .. } | Fact::Outcome { label, .. } | Fact::Replied { label, .. } = fact {
        return Some(label.clone());
    }
    None
}

fn lines(step: &Value) -> Vec<String> {
    let text = |value: &Value, name: &str| {
        value.get(name).and_then(Value::as_str).map(escape_line).unwrap_or_default()
    };
    let is = |name: &str| step.get(name) == Some(&json!(true));
    let mut what = vec![text(step, "taint")];
    what.extend(is("outside").then(|| "from outside the sandbox".to_owned()));
    what.extend(is("private").then(|| "private".to_owned()));
    let entry = step.get("entry").and_then(Value::as_u64).unwrap_or_default();
    let mut lines = vec![format!("entry {entry} ({}): {}", text(step, "event"), what.join(", "))];
    for source in step.get("sources").and_then(Value::as_array).into_iter().flatten() {
        let at =
            source.get("entry").and_then(Value::as_u64).map(|at| format!(", entry {at}")).unwrap_or_default();
        lines.push(format!("  {} {}{at}", text(source, "origin"), text(source, "detail")));
    }
    if is("truncated") {
        lines.push("  [more sources than are kept]".to_owned());
    }
    lines
}
