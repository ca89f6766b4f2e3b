//! Results that the model does not read: withheld under a handle, and put into a call that passes the handle
//! on.

pub(crate) mod ask;

use std::collections::BTreeMap;

use serde_json::Value;
use writ_inspect::origin::THEN;
use writ_inspect::prepared::Prepared;
use writ_inspect::redact::Clean;
use writ_store::batch::Op;
use writ_store::kept::WithheldResult;
use writ_store::reads::ResultReads as _;
use writ_tools::RESULT_READ_TOOL;
use writ_tools::outcome::PerformedOutcome;
use writ_tools::question::TOOL;
use writ_tools::render::Rendered;
use writ_types::action::Action;
use writ_types::chat::{Field, ToolCall, ToolOutcome};
use writ_types::digest::Digest;
use writ_types::entry::Fact;
use writ_types::id::AttemptId;
use writ_types::quarantine::{Handle, Quarantine};
use writ_types::taint::Label;

use crate::error::EngineError;
use crate::outcome::outcome_entry;
use crate::place::CallPlace;
use crate::services::Services;
use crate::session::Session;

/// The most handles of one call: what they name is put in, so few of them make a large call.
const MAX_HANDLES: usize = 16;

/// The text for a model after its handle's value did not fit the argument. It may not quote that value.
const UNFIT: &str = "Refused: what that handle names does not fit this argument. Do not guess what it is; ask about it, or say so.";

/// The text for a model after its call was refused with the value of a handle in it.
const REFUSED: &str =
    "Refused: a call with what that handle names is not allowed. Do not try another way; say so.";

/// The text for a model that would save a withheld result to a place where it could read it.
const SAVED: &str = "Refused: the results of this tool are withheld from you, so they are not saved where you could read it. \
                     Call it without 'save_to'.";

/// The withheld values that were put into a call: their digests by handle, and their label.
#[derive(Clone, Debug, Default)]
pub(crate) struct PutIn {
    /// Digests of it, by its handles: they are bound to the action.
    bindings: BTreeMap<String, Digest>,
    label: Option<Label>,
}

impl PutIn {
    pub(crate) fn is_empty(&self) -> bool {
        self.bindings.is_empty()
    }

    /// Returns the label of the arguments: the given label of the text that the model has read, joined with
    /// the label of the values put in. Tools are fixed by the text that the model reads, so the source of
    /// these values does not fix them.
    pub(crate) fn label(&self, read: &Label) -> Label {
        let mut label = read.clone();
        if let Some(put_in) = &self.label {
            label.join(&put_in.clone().mark_inside());
        }
        label
    }

    pub(crate) fn bind(&self, prepared: &mut Prepared) {
        prepared.bindings.extend(self.bindings.iter().map(|(handle, digest)| (handle.clone(), *digest)));
    }
}

/// Returns true if a withheld value was put into an action.
fn has_put_in(prepared: &Prepared) -> bool {
    prepared.bindings.keys().any(|name| name.parse::<Handle>().is_ok())
}

/// The forms of a result: for the model, for the ledger and for the store.
#[derive(Debug)]
pub(crate) struct ResultForms {
    /// The text that the model reads.
    pub(crate) rendered: Rendered,
    /// The ledger's record.
    pub(crate) fact: Fact,
    /// The label of the withheld result.
    pub(crate) kept: Option<Box<Label>>,
    /// The operation that stores the withheld result.
    pub(crate) op: Option<Op>,
}

/// Replaces handles in a call with the withheld values behind them. The inner error is the text that the
/// model reads if the call is refused.
pub(crate) async fn put_in(
    place: &CallPlace,
    call: &ToolCall,
    put_in: &mut PutIn,
) -> Result<Result<ToolCall, Clean>, EngineError> {
    let arguments = match &call.arguments {
        // Some providers send the object as text.
        Value::String(text) => serde_json::from_str(text).unwrap_or(Value::Null),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            other.clone()
        }
    };
    let mut handles = Vec::new();
    handles_in(&arguments, &mut handles);
    // These two tools take the handle itself.
    if handles.is_empty() || [TOOL, RESULT_READ_TOOL].contains(&call.name.as_str()) {
        return Ok(Ok(call.clone()));
    }
    if handles.len() > MAX_HANDLES {
        return Ok(Err(Clean::fixed_text("Refused: a call takes 16 handles at most.")));
    }
    let mut values = BTreeMap::new();
    for handle in handles {
        let Some(kept) =
            place.services.journal.store.withheld_result(place.session.id, handle.result).await?
        else {
            return Ok(Err(Clean::fixed_text("Refused: there is no such handle here, or not any more.")));
        };
        let value = match handle.field {
            None => Some(kept.text),
            Some(place) => kept.fields.into_iter().nth(place).map(|field| field.value),
        };
        let Some(value) = value else {
            return Ok(Err(Clean::fixed_text("Refused: that result has no such field.")));
        };
        put_in.bindings.insert(handle.to_string(), Digest::of_bytes(value.as_bytes()));
        put_in.label.get_or_insert_with(|| kept.label.clone()).join(&kept.label);
        values.insert(handle, value);
    }
    if !place.services.servers.registry().find_tool(&call.name).is_some_and(|tool| tool.passes_on()) {
        let text = "Refused: withheld results can be passed on to other people's tools, to the web and to \
                    the user; it is not put into files, memories and programs.";
        return Ok(Err(Clean::fixed_text(text)));
    }
    let arguments = with_values(arguments, &values);
    Ok(Ok(ToolCall { arguments, ..call.clone() }))
}

/// Returns the refusal for a fetch that would save its result to a file although results of its tool are
/// withheld.
pub(crate) fn escapes(place: &CallPlace, prepared: &Prepared) -> Option<Clean> {
    let keeps = place.services.servers.registry().quarantine_of(&prepared.tool) != Quarantine::Never;
    let saves = matches!(&prepared.action, Action::Fetch(fetch) if fetch.save_to.is_some());
    (keeps && saves).then(|| Clean::fixed_text(SAVED))
}

/// Returns the text that a model reads about a call with handles that could not be prepared (or was refused:
/// `is_denied`).
pub(crate) fn unfit(is_denied: bool) -> Clean {
    Clean::fixed_text(if is_denied { REFUSED } else { UNFIT })
}

/// Withholds a result if the rules for its tool require it, or if withheld values were put into the call,
/// since the result may quote them. `read` is the label of the call without those values.
pub(crate) async fn told(
    services: &Services,
    session: &Session,
    (prepared, attempt, read): (&Prepared, AttemptId, &Label),
    outcome: &PerformedOutcome,
    (mut rendered, whole, fields): (Rendered, Option<Clean>, &[Field]),
) -> Result<ResultForms, EngineError> {
    let put_in = has_put_in(prepared);
    let Some(kind) = kind_of(outcome) else {
        if put_in {
            // The harness's own words rest on nothing that was put in.
            rendered.label = read.clone();
        }
        return Ok(open(attempt, rendered));
    };
    let quarantine = services.servers.registry().quarantine_of(&prepared.tool);
    if !put_in && !quarantine.withholds_taint(rendered.label.taint) {
        return match whole {
            Some(whole) => {
                store_whole((services, session), (prepared, attempt), (rendered, whole, fields)).await
            }
            None => Ok(open(attempt, rendered)),
        };
    }
    let handle = Handle { result: next_kept(services, session).await?, field: None };
    let label = rendered.label;
    let kept = WithheldResult {
        session: session.id,
        number: handle.result,
        at: services.journal.clock.now(),
        tool: prepared.tool.clone(),
        text: rendered.text.into_string(),
        fields: fields.to_vec(),
        label: label.clone(),
        readable: false,
    };
    let failed = if rendered.outcome == ToolOutcome::Done { "" } else { " It failed." };
    let text = format!(
        "{handle} is what {} returned: {kind}, {} characters, {} fields, {}.{failed} It is withheld from you. Pass \
         \"{handle}\" on as a whole argument, or ask about it with {TOOL}.",
        prepared.tool,
        kept.text.chars().count(),
        kept.fields.len(),
        label.taint,
    );
    let fact = Fact::Outcome {
        attempt,
        outcome: rendered.outcome,
        summary: format!("withheld from the model as {handle}"),
        result: kept.digest(),
        label: label.clone(),
    };
    let told = Rendered {
        text: services.journal.redactor.clean_text(text),
        label: read.clone(),
        outcome: rendered.outcome,
    };
    let op = Op::KeepResult(Box::new(kept));
    Ok(ResultForms { rendered: told, fact, kept: Some(Box::new(label)), op: Some(op) })
}

/// The most bytes of one result that are stored; a program's output is bounded by the sandbox before.
const MAX_STORED_BYTES: usize = 4 * 1024 * 1024;

/// Stores a result that is too long to be shown whole, and says by which handle more of it can be read.
async fn store_whole(
    (services, session): (&Services, &Session),
    (prepared, attempt): (&Prepared, AttemptId),
    (mut rendered, whole, fields): (Rendered, Clean, &[Field]),
) -> Result<ResultForms, EngineError> {
    let handle = Handle { result: next_kept(services, session).await?, field: None };
    let mut text = whole.into_string();
    let end = text.floor_char_boundary(MAX_STORED_BYTES);
    text.truncate(end);
    let kept = WithheldResult {
        session: session.id,
        number: handle.result,
        at: services.journal.clock.now(),
        tool: prepared.tool.clone(),
        text,
        fields: fields.to_vec(),
        label: rendered.label.clone(),
        readable: true,
    };
    let chars = kept.text.chars().count();
    let note = format!(
        "{}\n[The result has {chars} characters and is shown in part. {RESULT_READ_TOOL} reads more of it: {{\"handle\": \"{handle}\"}}]",
        &*rendered.text
    );
    rendered.text = services.journal.redactor.clean_text(note);
    Ok(ResultForms { op: Some(Op::KeepResult(Box::new(kept))), ..open(attempt, rendered) })
}

/// Returns the next number for a withheld result of a session.
async fn next_kept(services: &Services, session: &Session) -> Result<u64, EngineError> {
    let known = session.state().secrecy.last_kept;
    let stored = match known {
        Some(_) => 0,
        None => services.journal.store.last_withheld(session.id).await?,
    };
    let mut state = session.state();
    // Two calls may have read the store at once: the later one counts on from the number of the first.
    let next = state.secrecy.last_kept.unwrap_or(stored).max(stored).saturating_add(1);
    state.secrecy.last_kept = Some(next);
    Ok(next)
}

fn open(attempt: AttemptId, rendered: Rendered) -> ResultForms {
    let fact = outcome_entry(attempt, &rendered);
    ResultForms { rendered, fact, kept: None, op: None }
}

/// Names the kind of words in a result, for the notice to the model; `None` if the harness wrote them.
fn kind_of(outcome: &PerformedOutcome) -> Option<&'static str> {
    match outcome {
        PerformedOutcome::Exec { .. } => Some("the output of a program"),
        PerformedOutcome::Text { .. } => Some("lines of a file"),
        PerformedOutcome::Listing { .. } => Some("names of files"),
        PerformedOutcome::Matches { .. } => Some("lines of files"),
        PerformedOutcome::Fetched { media, .. } if media.contains("html") => Some("a web page"),
        PerformedOutcome::Fetched { .. } => Some("what a URL answered"),
        PerformedOutcome::Searched { .. } => Some("what a search has found"),
        PerformedOutcome::Called { structured: Some(_), .. } => Some("a structured answer"),
        PerformedOutcome::Called { .. } => Some("a text"),
        // The text may quote the request or an answer from outside.
        PerformedOutcome::Failed { .. } | PerformedOutcome::Doubtful { .. } => {
            Some("why it could not be done")
        }
        PerformedOutcome::Written { .. }
        | PerformedOutcome::Memories { .. }
        | PerformedOutcome::Remembered { .. }
        | PerformedOutcome::Saved { .. }
        | PerformedOutcome::Subscribed { .. }
        | PerformedOutcome::Unsubscribed { .. }
        | PerformedOutcome::Reachable { .. }
        | PerformedOutcome::Planned { .. }
        // It was readable when it came.
        | PerformedOutcome::Part { .. }
        | PerformedOutcome::Said
        | PerformedOutcome::Sent { .. } => None,
    }
}

/// The arguments that are handles as a whole; what comes after it is named in [`THEN`] and is none.
fn handles_in(value: &Value, found: &mut Vec<Handle>) {
    match value {
        Value::String(text) => found.extend(text.parse::<Handle>()),
        Value::Array(items) => items.iter().for_each(|item| handles_in(item, found)),
        Value::Object(fields) => {
            fields.iter().filter(|(name, _)| *name != THEN).for_each(|(_, item)| handles_in(item, found));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn with_values(value: Value, values: &BTreeMap<Handle, String>) -> Value {
    match value {
        Value::String(text) => {
            let named = text.parse().ok().and_then(|handle: Handle| values.get(&handle).cloned());
            Value::String(named.unwrap_or(text))
        }
        Value::Array(items) => items.into_iter().map(|item| with_values(item, values)).collect(),
        Value::Object(fields) => {
            let put_in =
                |(name, item)| if name == THEN { (name, item) } else { (name, with_values(item, values)) };
            fields.into_iter().map(put_in).collect()
        }
        other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_whole_arguments_are_handles() {
        let arguments = json!({
            "to": ["$r1.0"], "text": "$r2", "note": "see $r3", "$r4": true, "then": ["$r2"], "in": {"deep": "$r6"},
        });
        let mut found = Vec::new();
        handles_in(&arguments, &mut found);
        let named: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(named, ["$r1.0", "$r2", "$r6"]);
        let values = found.iter().map(|handle| (*handle, format!("<{handle}>"))).collect();
        let expected = json!({
            "to": ["<$r1.0>"], "text": "<$r2>", "note": "see $r3", "$r4": true, "then": ["$r2"],
            "in": {"deep": "<$r6>"},
        });
        assert_eq!(with_values(arguments, &values), expected);
    }

    #[test]
    fn what_is_put_in_is_bound_and_labelled_and_fixes_no_tools() {
        use writ_types::taint::Taint;
        let external = Label::new(Taint::External);
        let put_in =
            PutIn { bindings: [("$r1".to_owned(), Digest::of_bytes(b"x"))].into(), label: Some(external) };
        let label = put_in.label(&Label::new(Taint::Owner));
        assert_eq!((label.taint, label.private, label.outside), (Taint::External, true, false));
        assert!(PutIn::default().label(&Label::new(Taint::Owner)) == Label::new(Taint::Owner));
    }
}
