//! `writ memory`: what is remembered.

use std::collections::BTreeSet;
use std::fs::{OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use serde_json::{Value, json};
use writ_inspect::show::escape_line;
use writ_memory::bundle::{BundledMemory, read_bundle};
use writ_runtime::methods::{self as m, Method};
use writ_types::api::NoParams;
use writ_types::api::memory::{
    AnsweredMemory, MemoryAmendment, MemoryAnswer, MemoryFigures, MemoryLines, MemoryName, MemoryNames,
    MemoryOutcome, MemoryPageQuery, MemoryUndoing, PendingMemories, ShownMemory,
};
use writ_types::error::Exit;
use writ_types::id::MemoryId;

use crate::args::{ImportMode, MemoryCommand};
use crate::client::EngineClient;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::block_on;

mod profile;

/// The largest file of memories that is read, in bytes.
const MAX_BUNDLE_BYTES: u64 = 512 * 1024 * 1024;

/// Memories that one request imports or deletes, and the bytes of their lines: far below the largest frame.
const IMPORTED_AT_ONCE: usize = 100;

const IMPORTED_BYTES: usize = 128 * 1024;

/// Runs `writ memory …`.
pub(crate) fn run_memory(context: &Context, command: &MemoryCommand) -> Result<(), Failure> {
    context.load_ready_config()?;
    if let MemoryCommand::Add { text, .. } = command
        && text.trim().is_empty()
    {
        let hint = "say what, such as: writ memory add \"the staging host is called heron\"";
        return Err(Failure::new(Exit::Usage, "cli.empty", "there is nothing to remember", hint));
    }
    // A file that is wrong changes nothing, and starts no engine.
    let bundle = if let MemoryCommand::Import { file, .. } = command {
        read_file(&context.locate_path(file))?
    } else {
        Vec::new()
    };
    block_on(async {
        let mut client = EngineClient::ensure(context).await?;
        run_command(context, &mut client, command, bundle).await
    })
}

/// Runs a command with the engine; `bundle` is the content of the file to import.
async fn run_command(
    context: &Context,
    client: &mut EngineClient,
    command: &MemoryCommand,
    bundle: Vec<BundledMemory>,
) -> Result<(), Failure> {
    match command {
        MemoryCommand::Search { query, limit } => {
            let found =
                client.call_method(Method::MemorySearch, json!({ "query": query, "limit": limit })).await?;
            context.out.print_either(&found, describe_memories)
        }
        MemoryCommand::Show { id } => {
            let shown = client.ask::<m::MemoryShow>(&MemoryName { id: *id }).await?;
            context.out.print_either(&shown, describe_memory)
        }
        MemoryCommand::Add { text, kind, importance, pinned, cause } => {
            let params = json!({
                "text": text, "kind": kind, "importance": importance, "pinned": pinned, "causes": cause,
            });
            let added = client.call_method(Method::MemoryAdd, params).await?;
            context.out.print_either(&added, |added| {
                vec![format!("remembered as {}", added.get("id").and_then(Value::as_str).unwrap_or_default())]
            })
        }
        MemoryCommand::Edit { id, text, importance, pinned, unpinned, cause } => {
            let edit = MemoryAmendment {
                id: *id,
                text: text.clone(),
                importance: *importance,
                pinned: (*pinned || *unpinned).then_some(*pinned),
                causes: (!cause.is_empty()).then(|| cause.clone()),
            };
            let changed = client.ask::<m::MemoryEdit>(&edit).await?;
            context.out.print_either(&changed, |_| vec![format!("changed: {id}")])
        }
        MemoryCommand::Forget { id } => {
            let forgotten = client.call_method(Method::MemoryForget, json!({ "id": id })).await?;
            context.out.print_either(&forgotten, |_| vec![format!("forgotten: {id}")])
        }
        MemoryCommand::Pending => {
            let pending = client.ask::<m::MemoryPending>(&NoParams {}).await?;
            context.out.print_either(&pending, describe_pending)
        }
        MemoryCommand::Confirm { id, no } => {
            let changed = client.ask::<m::MemoryConfirm>(&MemoryAnswer { id: *id, confirm: !no }).await?;
            context.out.print_either(&changed, describe_answer(*id))
        }
        MemoryCommand::Profile { clear } => profile::show_profile(context, client, *clear).await,
        MemoryCommand::Digest => profile::run_digest(context, client).await,
        MemoryCommand::Undo { changes } => {
            let undo = MemoryUndoing { batch: changes.clone() };
            let undone = client.ask::<m::MemoryUndo>(&undo).await?;
            context.out.print_either(&undone, |undone| {
                vec![format!("undone: {} ({} changes)", undone.batch, undone.changes)]
            })
        }
        MemoryCommand::Export { file } => export(context, client, file.as_deref()).await,
        MemoryCommand::Import { mode, .. } => import(context, client, bundle, *mode).await,
        MemoryCommand::Stats => {
            let figures = client.ask::<m::MemoryStats>(&NoParams {}).await?;
            context.out.print_either(&figures, describe_figures)
        }
    }
}

/// Reads and checks a whole bundle.
fn read_file(file: &Path) -> Result<Vec<BundledMemory>, Failure> {
    let unreadable = |why: String| {
        let text = format!("{}: {why}", file.display());
        Failure::new(Exit::Usage, "memory.bundle", text, "name a file that `writ memory export` has written")
    };
    // Looked at first, so that a huge file is refused before it is read into memory.
    let size = std::fs::metadata(file).map_err(|error| unreadable(error.to_string()))?.len();
    if size > MAX_BUNDLE_BYTES {
        return Err(unreadable(format!("it is larger than {MAX_BUNDLE_BYTES} bytes")));
    }
    let text = std::fs::read_to_string(file).map_err(|error| unreadable(error.to_string()))?;
    read_bundle(&text).map_err(|error| unreadable(error.to_string()))
}

async fn export(context: &Context, client: &mut EngineClient, file: Option<&Path>) -> Result<(), Failure> {
    let (mut lines, mut after) = (Vec::new(), 0);
    loop {
        let page = client.ask::<m::MemoryExport>(&MemoryPageQuery { after }).await?;
        lines.extend(page.lines);
        match page.next {
            Some(next) => after = next,
            None => break,
        }
    }
    let Some(file) = file else {
        return context.out.print_bytes(format!("{}\n", lines.join("\n")).as_bytes());
    };
    // The bundle's first line is its head, and no memory.
    let count = lines.len().saturating_sub(1);
    let (file, text) = (context.locate_path(file), format!("{}\n", lines.join("\n")));
    write_private(&file, text.as_bytes()).map_err(|error| {
        let text = format!("{}: {error}", file.display());
        Failure::new(Exit::Usage, "memory.export", text, "name a file that can be written")
    })?;
    let answer = json!({ "file": file, "memories": count });
    context.out.print_either(&answer, |_| vec![format!("{count} memories in {}", file.display())])
}

/// Writes a file that its owner alone may read, also where one was there that others may.
fn write_private(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file)?;
    // Devices and pipes have no rights that are ours to set.
    if file.metadata()?.is_file() {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    file.write_all(bytes)
}

async fn import(
    context: &Context,
    client: &mut EngineClient,
    bundle: Vec<BundledMemory>,
    mode: ImportMode,
) -> Result<(), Failure> {
    let replace = mode == ImportMode::Replace;
    let (mut added, mut replaced, mut unchanged, mut dropped) = (0, 0, 0, 0);
    let stays: BTreeSet<MemoryId> = bundle.iter().map(|memory| memory.id).collect();
    let (mut lines, mut bytes) = (Vec::new(), 0);
    let mut parts = Vec::new();
    for memory in &bundle {
        let line = serde_json::to_string(memory).unwrap_or_default();
        if lines.len() >= IMPORTED_AT_ONCE || bytes + line.len() > IMPORTED_BYTES {
            parts.push(std::mem::take(&mut lines));
            bytes = 0;
        }
        bytes += line.len();
        lines.push(line);
    }
    parts.push(lines);
    // First what comes in, then what goes: an import that is interrupted has only added.
    for lines in parts {
        let done = client.ask::<m::MemoryImport>(&MemoryLines { lines, replace }).await?;
        (added, replaced, unchanged) =
            (added + done.added, replaced + done.replaced, unchanged + done.unchanged);
    }
    if replace {
        let mut after = 0;
        while let page = client.ask::<m::MemoryExport>(&MemoryPageQuery { after }).await?
            && let Some(next) = page.next
        {
            let there = page.lines.iter().filter_map(|line| serde_json::from_str::<BundledMemory>(line).ok());
            let ids: Vec<MemoryId> = there.map(|memory| memory.id).filter(|id| !stays.contains(id)).collect();
            // In parts, since a page can name more than one request takes.
            for part in ids.chunks(IMPORTED_AT_ONCE) {
                let gone = client.ask::<m::MemoryDrop>(&MemoryNames { ids: part.to_vec() }).await?;
                dropped += gone.ids.len();
            }
            after = next;
        }
    }
    let answer =
        json!({ "added": added, "replaced": replaced, "unchanged": unchanged, "forgotten": dropped });
    context.out.print_either(&answer, |_| {
        vec![format!("{added} added, {replaced} replaced, {unchanged} unchanged, {dropped} forgotten")]
    })
}

pub(super) fn describe_memories(found: &Value) -> Vec<String> {
    let hits = found.get("hits").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let note = found.get("note").and_then(Value::as_str).map(str::to_owned);
    if hits.is_empty() {
        return vec![note.unwrap_or_else(|| "nothing found".into())];
    }
    let line = |hit: &Value| {
        let text = |name: &str| hit.get(name).and_then(Value::as_str).unwrap_or_default();
        let reasons = hit.get("reasons").and_then(Value::as_array).into_iter().flatten();
        let reasons: Vec<&str> = reasons.filter_map(Value::as_str).collect();
        let why = if reasons.is_empty() { String::new() } else { format!("; {}", reasons.join(", ")) };
        format!("{}  {} ({}, {}{why})", text("id"), escape_line(text("text")), text("kind"), text("trust"))
    };
    hits.iter().map(line).chain(note).collect()
}

fn describe_memory(memory: &ShownMemory) -> Vec<String> {
    let value = serde_json::to_value(memory).unwrap_or_default();
    let word = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut lines = vec![
        escape_line(&memory.text),
        format!(
            "{}, {}, {}, {}, from {}",
            word("kind"),
            word("trust"),
            word("status"),
            word("taint"),
            word("source")
        ),
        format!("stored {}; importance {}; used {} times", memory.at, memory.importance, memory.uses),
    ];
    lines.extend(memory.pinned.then(|| "pinned".to_owned()));
    lines.extend(memory.secret.then(|| "secret".to_owned()));
    lines.extend(memory.happened.as_ref().map(|at| format!("happened {at}")));
    let names = |names: &[String]| escape_line(&names.join(", "));
    lines.extend((!memory.entities.is_empty()).then(|| format!("about: {}", names(&memory.entities))));
    lines.extend((!memory.related.is_empty()).then(|| format!("related: {}", names(&memory.related))));
    lines.extend(
        memory.causes.iter().map(|cause| format!("because: {}  {}", cause.id, escape_line(&cause.text))),
    );
    lines.extend(
        memory.effects.iter().map(|effect| format!("led to: {}  {}", effect.id, escape_line(&effect.text))),
    );
    lines
}

fn describe_answer(id: MemoryId) -> impl Fn(&AnsweredMemory) -> Vec<String> {
    move |answered| {
        let first = match answered.outcome {
            MemoryOutcome::Confirmed => format!("confirmed: {id}"),
            MemoryOutcome::PutAside => format!("put aside: {id}"),
            MemoryOutcome::Stays => format!("answered: {id} stays as it was"),
        };
        let others = answered.others.iter().map(|other| format!("put aside, since it contradicts: {other}"));
        std::iter::once(first).chain(others).collect()
    }
}

fn describe_pending(pending: &PendingMemories) -> Vec<String> {
    if pending.pending.is_empty() && pending.questions.is_empty() {
        return vec!["nothing waits".to_owned()];
    }
    let mut lines: Vec<String> = pending
        .pending
        .iter()
        .map(|memory| format!("{}  {} (waits)", memory.id, escape_line(&memory.text)))
        .collect();
    for question in &pending.questions {
        lines.push(format!(
            "{}  {}: {}",
            question.id,
            escape_line(&question.text),
            escape_line(&question.reason)
        ));
        if let Some(other) = &question.other {
            lines.push(format!("    against {}  {}", other.id, escape_line(&other.text)));
        }
    }
    lines.push(
        "`writ memory confirm ID` says that it is so, `writ memory confirm ID --no` that it is not"
            .to_owned(),
    );
    lines
}

fn describe_figures(figures: &MemoryFigures) -> Vec<String> {
    let mut lines: Vec<String> =
        figures.counts.iter().map(|row| format!("{:>8}  {} {}", row.count, row.status, row.kind)).collect();
    lines.push(format!("{:>8}  bytes of text", figures.text_bytes));
    lines.push(format!("{:>8}  questions wait", figures.questions));
    for row in &figures.vectors {
        let serving = if row.serving { "in use" } else { "being made, or going" };
        lines.push(format!(
            "{:>8}  vectors of {} ({} numbers; {serving})",
            row.count, row.model, row.dimension
        ));
    }
    lines.push(format!("embedder: {}", figures.embedder_state));
    lines.extend(figures.changes.iter().map(|row| format!("{:>8}  changes of {}", row.changes, row.batch)));
    lines
}
