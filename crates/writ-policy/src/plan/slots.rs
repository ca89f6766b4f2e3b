//! Slots of planned steps: arguments that were approved by kind and source, before their values were known.
//!
//! A call with other values is compared with the step as if the placeholders stood in it, so everything that is no slot must
//! be the same byte for byte. The values are judged apart, by where they come from.

use serde_json::Value;
use writ_types::action::{Action, CallTool, PlanStep, Slot, SlotKind, SlotSource};

use writ_inspect::origin::Origins;
use writ_inspect::prepared::{Prepared, Sink};

use super::is_one_line;

/// The most slots of one step.
pub const MAX_SLOTS: usize = 8;
/// The most names of a dotted path to an argument, as deep as the arguments of real tools are.
pub const MAX_PATH_SEGMENTS: usize = 8;
/// The longest dotted path, in bytes.
pub const MAX_PATH_BYTES: usize = 200;
/// The longest name of a source, in characters: a path, or a name as people write it.
pub const MAX_SOURCE_CHARS: usize = 200;
/// The most values of a list that is a slot: more than a person has in mind who approves one.
pub const MAX_LIST: u32 = 50;

/// Checks a dotted path to an argument, before anything follows it.
///
/// # Errors
///
/// What is wrong with it.
pub fn check_path(path: &str) -> Result<(), String> {
    if path.len() > MAX_PATH_BYTES || path.split('.').count() > MAX_PATH_SEGMENTS {
        return Err(format!("a path has at most {MAX_PATH_SEGMENTS} names and {MAX_PATH_BYTES} bytes"));
    }
    if path.split('.').any(str::is_empty) {
        return Err("a path has no empty names".to_owned());
    }
    Ok(())
}

/// Says what is wrong with the slots of a step, if anything is.
pub(super) fn check_slots(step: &PlanStep) -> Result<(), String> {
    if step.slots.is_empty() {
        return Ok(());
    }
    let Action::CallTool(call) = &step.action else {
        return Err("only calls of other programs' tools have slots".to_owned());
    };
    if step.slots.len() > MAX_SLOTS {
        return Err(format!("{} slots; a step has at most {MAX_SLOTS}", step.slots.len()));
    }
    for (path, slot) in &step.slots {
        check_path(path)?;
        if find_value(&call.arguments, path).is_none() {
            return Err(format!("slot '{path}': there is no such argument"));
        }
        let names: Vec<&String> = match &slot.source {
            SlotSource::Field { name, of } => [name].into_iter().chain(of).collect(),
            SlotSource::Result { named } => vec![named],
            SlotSource::Sum { name, named } | SlotSource::All { name, named, .. } => {
                [name].into_iter().chain(named).collect()
            }
        };
        check_kind(slot).map_err(|why| format!("slot '{path}': {why}"))?;
        let is_shown = |name: &String| {
            // It stands on one line of the card, and must not look like two.
            !name.trim().is_empty() && name.chars().count() <= MAX_SOURCE_CHARS && is_one_line(name)
        };
        if !names.into_iter().chain([&slot.tool]).all(is_shown) {
            return Err(format!(
                "slot '{path}': its source is not one plain line of 1 to {MAX_SOURCE_CHARS} characters"
            ));
        }
    }
    Ok(())
}

/// Checks that the kind of a slot is one that its source can have.
fn check_kind(slot: &Slot) -> Result<(), String> {
    let is_amount = matches!(slot.kind, SlotKind::Amount { .. });
    match &slot.source {
        SlotSource::Field { .. } | SlotSource::Result { .. } => Ok(()),
        SlotSource::Sum { .. } if is_amount => Ok(()),
        SlotSource::Sum { .. } => Err("a sum is an amount".to_owned()),
        SlotSource::All { .. } if is_amount => Err("a list has no amounts, but a sum has".to_owned()),
        SlotSource::All { most, .. } if (1..=MAX_LIST).contains(most) => Ok(()),
        SlotSource::All { .. } => Err(format!("a list has 1 to {MAX_LIST} values")),
    }
}

/// Returns the call with the placeholders of a step in place of its values; none if it has no such arguments.
pub(super) fn with_placeholders(step: &PlanStep, prepared: &Prepared) -> Option<Prepared> {
    let Action::CallTool(planned) = &step.action else { return None };
    let mut filled = prepared.clone();
    let Action::CallTool(call) = &mut filled.action else { return None };
    for (path, slot) in &step.slots {
        let placeholder = find_value(&planned.arguments, path)?.clone();
        let place = find_place(&mut call.arguments, path)?;
        // A list or record in place of a value would bring arguments that the step does not have.
        let is_fit = match (is_list(slot), &*place) {
            (true, Value::Array(items)) => items.iter().all(Value::is_string),
            (true, _) | (false, Value::Array(_) | Value::Object(_)) => false,
            (false, Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => true,
        };
        if !is_fit {
            return None;
        }
        *place = placeholder;
    }
    for path in step.slots.iter().filter(|(_, slot)| is_list(slot)).map(|(path, _)| path) {
        put_list_sinks(step, path, &mut filled.sinks)?;
    }
    for sink in &mut filled.sinks {
        if step.slots.contains_key(&sink.argument) {
            let (_, planned) = step.sinks.iter().find(|(argument, _)| *argument == sink.argument)?;
            sink.value.clone_from(planned);
        }
    }
    Some(filled)
}

const fn is_list(slot: &Slot) -> bool {
    matches!(slot.source, SlotSource::All { .. })
}

/// Puts the sinks of a list's placeholder in place of those of its values; none if a list that has sinks in one has none in the
/// other.
fn put_list_sinks(step: &PlanStep, path: &str, sinks: &mut Vec<Sink>) -> Option<()> {
    let is_item = |argument: &str| {
        let place = argument.strip_prefix(path).and_then(|rest| rest.strip_prefix('.'));
        place.is_some_and(|place| !place.is_empty() && place.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let planned = step.sinks.iter().filter(|(argument, _)| is_item(argument));
    let planned: Vec<Sink> =
        planned.map(|(argument, value)| Sink { argument: argument.clone(), value: value.clone() }).collect();
    let first = sinks.iter().position(|sink| is_item(&sink.argument));
    if first.is_some() == planned.is_empty() {
        return None;
    }
    if let Some(first) = first {
        // All removed sinks are at this index or after it.
        sinks.retain(|sink| !is_item(&sink.argument));
        sinks.splice(first..first, planned);
    }
    Some(())
}

/// Returns true if every value of a call that stands for a slot fits the slot's kind and source.
pub(super) fn values_fit(step: &PlanStep, prepared: &Prepared, origins: &Origins) -> bool {
    if step.slots.is_empty() {
        return true;
    }
    let Action::CallTool(call) = &prepared.action else { return false };
    step.slots.iter().all(|(path, slot)| value_fits(call, path, slot, origins))
}

fn value_fits(call: &CallTool, path: &str, slot: &Slot, origins: &Origins) -> bool {
    match find_value(&call.arguments, path) {
        Some(Value::Array(items)) if is_list(slot) => {
            let texts: Option<Vec<&str>> = items.iter().map(Value::as_str).collect();
            texts.is_some_and(|texts| origins.fits_list_slot(slot, &texts))
        }
        Some(Value::String(text)) => origins.fits_slot(slot, text),
        Some(Value::Number(number)) => origins.fits_slot(slot, &number.to_string()),
        Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => false,
    }
}

/// Returns the argument at a dotted path.
fn find_value<'a>(arguments: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(arguments, |value, name| match value {
        Value::Object(map) => map.get(name),
        Value::Array(items) => items.get(name.parse::<usize>().ok()?),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}

fn find_place<'a>(arguments: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    path.split('.').try_fold(arguments, |value, name| match value {
        Value::Object(map) => map.get_mut(name),
        Value::Array(items) => items.get_mut(name.parse::<usize>().ok()?),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}

#[cfg(test)]
mod tests;
