//! Shape and bounds of actions: what is malformed goes no further.

use serde_json::Value;
use writ_types::action::{
    Action, ChangeKind, Exec, MAX_DOCUMENT_BYTES, ModifySelf, Place, Plan, ReadResult, Search, Subscribe,
    WriteFile,
};
use writ_types::digest::Digest;
use writ_types::taint::Taint;

use super::{
    MAX_ACTION_BYTES, MAX_ARGV, MAX_CHANGES, MAX_HOSTS, MAX_QUERY_BYTES, MAX_RESULT_PART, MAX_SEARCH_RESULTS,
    MAX_SUBSCRIBED_TURNS,
};
use crate::plan;
use writ_inspect::prepared::Prepared;

/// The largest whole number that has a canonical form of its own (RFC 8785): past it, two numbers have the
/// same hash, and an approval for one would be good for the other.
const MAX_NUMBER: u64 = (1 << 53) - 1;

/// Says what is wrong with an action, if anything is.
pub(super) fn check_shape(action: &Action) -> Result<(), String> {
    // The bound is on the written form, which is what is hashed, shown and stored.
    let bytes = serde_json::to_vec(action).map_or(usize::MAX, |json| json.len());
    if bytes > MAX_ACTION_BYTES {
        return Err(format!("the action has {bytes} bytes; the limit is {MAX_ACTION_BYTES}"));
    }
    if serde_json::to_value(action).map_or(true, |value| holds_large_number(&value)) {
        return Err(format!("a number is larger than {MAX_NUMBER}"));
    }
    // A NUL ends a path for the operating system, and not for the door.
    if paths_of(action).into_iter().any(|path| path.contains('\0')) {
        return Err("a path holds a NUL character".into());
    }
    match action {
        Action::Exec(exec) => check_exec(exec),
        Action::WriteFile(write) => check_write(write),
        Action::Fetch(fetch) => match &fetch.save_to {
            Some(path) if path.is_empty() => Err("the file to save to has no proper name".into()),
            // The answer to another method belongs to an effect, and saving it would join two effects.
            Some(_) if fetch.method != "GET" => Err("only what GET brings is saved".into()),
            None if fetch.large => Err("only what is saved can be large".into()),
            Some(_) | None => Ok(()),
        },
        Action::Subscribe(subscribe) => check_subscribe(subscribe),
        Action::ReadFile(_)
        | Action::Browse(_)
        | Action::Recall(_)
        | Action::Remember(_)
        | Action::Forget(_)
        | Action::Say(_)
        | Action::SendFile(_)
        | Action::CallTool(_)
        | Action::CreateTool(_)
        | Action::InstallSkill(_)
        | Action::Docker(_)
        | Action::Message(_)
        | Action::Handoff(_)
        | Action::Spawn(_)
        | Action::Escalate(_)
        | Action::ModelCall(_)
        | Action::Vcs(_)
        | Action::Operate(_)
        | Action::Connect(_) => Ok(()),
        Action::ModifySelf(modify) => check_modify(modify),
        Action::Search(search) => check_search(search),
        Action::ReadResult(read) => check_read_result(read),
        Action::Plan(plan) => check_plan(plan),
    }
}

/// Refuses a plan with slots that rests on external content: slots excuse values that are found later, so nothing from outside
/// may have chosen what they are and where they are found.
pub(super) fn check_slots_first(prepared: &Prepared) -> Result<(), String> {
    let Action::Plan(plan) = &prepared.action else { return Ok(()) };
    let has_slots = plan.steps.iter().any(|step| !step.slots.is_empty());
    if has_slots && prepared.label.taint == Taint::External {
        return Err(
            "a plan with slots is proposed before anything external was read; name the values now".into()
        );
    }
    Ok(())
}

/// Refuses content in an action for another file than a document or the list of tools: only these are written with it.
fn check_modify(modify: &ModifySelf) -> Result<(), String> {
    let Some(content) = &modify.content else { return Ok(()) };
    if modify.document().is_none() && !modify.is_tool_list() {
        return Err("a document is a file docs/NAME.md with a plain name in lower case".into());
    }
    if content.len() > MAX_DOCUMENT_BYTES {
        return Err(format!("{} bytes; the limit of a document is {MAX_DOCUMENT_BYTES}", content.len()));
    }
    if modify.digest != Digest::of_bytes(content.as_bytes()) {
        return Err("the digest is not that of the document".into());
    }
    Ok(())
}

fn check_read_result(read: &ReadResult) -> Result<(), String> {
    if read.from == 0 || !(1..=MAX_RESULT_PART).contains(&read.chars) {
        return Err(format!("a part of a result begins at 1 and has 1 to {MAX_RESULT_PART} characters"));
    }
    Ok(())
}

fn check_plan(plan: &Plan) -> Result<(), String> {
    plan::check_plan(plan)?;
    (1_u64..)
        .zip(&plan.steps)
        .try_for_each(|(n, step)| check_shape(&step.action).map_err(|problem| format!("step {n}: {problem}")))
}

fn check_exec(exec: &Exec) -> Result<(), String> {
    // An empty program would be resolved by the shell or the search path.
    if exec.argv.first().is_none_or(String::is_empty) {
        return Err("there is no program to run".into());
    }
    if exec.argv.len() > MAX_ARGV {
        return Err(format!("{} arguments; the limit is {MAX_ARGV}", exec.argv.len()));
    }
    let texts = exec.argv.iter().chain(exec.env.keys()).chain(exec.env.values());
    if texts.chain(&exec.hosts).any(|text| text.contains('\0')) {
        return Err("an argument holds a NUL character".into());
    }
    if exec.hosts.len() > MAX_HOSTS {
        return Err(format!("{} hosts; the limit is {MAX_HOSTS}", exec.hosts.len()));
    }
    // A relative folder would mean a different place in each sandbox.
    if !exec.cwd.starts_with('/') {
        return Err("the working directory is not absolute".into());
    }
    // `A=B` as a name would set another variable than the one that is shown.
    if exec.env.keys().any(|name| name.is_empty() || name.contains('=')) {
        return Err("an environment variable has no proper name".into());
    }
    if exec.timeout_ms == 0 {
        return Err("the time limit is zero".into());
    }
    Ok(())
}

fn check_subscribe(subscribe: &Subscribe) -> Result<(), String> {
    if subscribe.target.is_empty() {
        return Err("there is nothing to subscribe to".into());
    }
    // The end of a subscription names an id, and has no lines and turns.
    if subscribe.stop {
        return Ok(());
    }
    if !(1..=MAX_SUBSCRIBED_TURNS).contains(&subscribe.turns) {
        return Err(format!("{} turns; the limit is {MAX_SUBSCRIBED_TURNS}", subscribe.turns));
    }
    match subscribe.lines {
        Some((first, last)) if first == 0 || last < first => Err("the lines are no range".into()),
        Some(_) if subscribe.url().is_some() => Err("a URL has no lines".into()),
        Some(_) | None => Ok(()),
    }
}

fn check_search(search: &Search) -> Result<(), String> {
    if search.query.trim().is_empty() || search.query.contains('\0') {
        return Err("there is nothing to search for".into());
    }
    // The bound is in bytes, since a query in any script is sent to the provider as bytes.
    if search.query.len() > MAX_QUERY_BYTES {
        return Err(format!("{} bytes to search for; the limit is {MAX_QUERY_BYTES}", search.query.len()));
    }
    if !(1..=MAX_SEARCH_RESULTS).contains(&search.max_results) {
        return Err(format!("{} results; the limit is {MAX_SEARCH_RESULTS}", search.max_results));
    }
    Ok(())
}

fn check_write(write: &WriteFile) -> Result<(), String> {
    if write.changes.is_empty() {
        return Err("there is nothing to write".into());
    }
    // More files cannot be shown completely, and so not be approved.
    if write.changes.len() > MAX_CHANGES {
        return Err(format!("{} files; the limit is {MAX_CHANGES}", write.changes.len()));
    }
    if write.changes.iter().any(|change| change.path.is_empty()) {
        return Err("a file has no proper name".into());
    }
    let Some(content) = &write.content else { return Ok(()) };
    // The content to be written must be that which the intent names by its digest.
    match (write.place, write.changes.as_slice()) {
        (Place::Overlay, [one])
            if one.kind != ChangeKind::Delete
                && one.after == Some(Digest::of_bytes(&write.encoding.encode_text(content))) =>
        {
            Ok(())
        }
        (Place::Overlay | Place::Project, _) => {
            Err("the new text does not belong to exactly one change in the overlay, with its digest".into())
        }
    }
}

fn holds_large_number(value: &Value) -> bool {
    match value {
        Value::Number(number) => {
            let whole = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs));
            whole.is_some_and(|whole| whole > MAX_NUMBER)
        }
        Value::Array(values) => values.iter().any(holds_large_number),
        Value::Object(fields) => fields.values().any(holds_large_number),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

/// Everything in an action that is handed to the operating system as a path.
fn paths_of(action: &Action) -> Vec<&str> {
    match action {
        Action::Exec(exec) => vec![&exec.cwd],
        Action::ReadFile(read) => vec![&read.path],
        Action::WriteFile(write) => {
            write.changes.iter().map(|change| change.path.as_str()).chain([write.root.as_str()]).collect()
        }
        Action::Fetch(fetch) => fetch.save_to.as_deref().into_iter().collect(),
        Action::SendFile(send) => vec![&send.path],
        Action::Subscribe(subscribe) => vec![&subscribe.target],
        Action::Vcs(vcs) => vec![&vcs.repository],
        Action::ModifySelf(modify) => vec![&modify.path],
        Action::Browse(_)
        | Action::Recall(_)
        | Action::Remember(_)
        | Action::Forget(_)
        | Action::Say(_)
        | Action::CallTool(_)
        | Action::CreateTool(_)
        | Action::InstallSkill(_)
        | Action::Docker(_)
        | Action::Message(_)
        | Action::Handoff(_)
        | Action::Spawn(_)
        | Action::Escalate(_)
        | Action::ModelCall(_)
        | Action::Operate(_)
        | Action::Connect(_)
        | Action::Search(_)
        | Action::ReadResult(_) => Vec::new(),
        Action::Plan(plan) => plan.steps.iter().flat_map(|step| paths_of(&step.action)).collect(),
    }
}
