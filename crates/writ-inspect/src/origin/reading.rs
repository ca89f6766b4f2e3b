//! The reading of a conversation, message by message.

use std::collections::BTreeMap;

use serde_json::Value;
use writ_types::chat::{ChatMessage, Part, Role, ToolCall, ToolOutcome};
use writ_types::quarantine::Handle;
use writ_types::taint::{Label, Taint};

use super::designated::DesignationSources;
use super::given::ids_made;
use super::made::CallHistory;
use super::mention::SourceAnswer;
use super::{MAX_THEN, Origins, THEN, giver_of};

/// The calls of a conversation, by their ids.
#[derive(Default)]
struct Calls<'a> {
    made: BTreeMap<&'a str, CallFacts>,
    arguments: BTreeMap<&'a str, &'a Value>,
}

impl Origins {
    /// Takes in a conversation, oldest message first: its structured results, and the tools that were used or named
    /// before anything was read from outside.
    pub fn read_messages<'a>(&mut self, messages: impl IntoIterator<Item = &'a ChatMessage>) {
        let mut calls = Calls::default();
        for message in messages {
            // A request begins.
            // Sources and earlier calls belong to one request: a new one designates anew.
            if message.role == Role::User && message.label.taint == Taint::Owner {
                (self.sources, self.done) = (DesignationSources::nothing(), CallHistory::nothing());
            }
            for part in &message.parts {
                match part {
                    Part::Text { text } => {
                        // The model's own text is skipped: it may repeat references from external content.
                        if message.role != Role::Assistant && message.label.taint == Taint::External {
                            self.told.add_text(text, None);
                            self.sources.has_others = true;
                        }
                    }
                    Part::Reasoning(_) | Part::File(_) => {}
                    Part::Call(call) => {
                        let made = self.read_call(call, &message.label);
                        calls.made.insert(&call.id, made);
                        calls.arguments.insert(&call.id, &call.arguments);
                    }
                    Part::Result(_) => self.read_result(part, &calls),
                }
            }
        }
    }

    fn read_call(&mut self, call: &ToolCall, label: &Label) -> CallFacts {
        // A tool that is named now was chosen before the model read anything from outside.
        let before = !label.outside;
        if before {
            self.tools.extend(named_tools(call));
        }
        let asked = label.taint != Taint::External || self.is_taken_over(call);
        let passed_on = passed_on(&call.arguments);
        let is_composed = !asked;
        // A server that was given composed text may return it, so its results are no answers to the owner any
        // longer.
        let asked = asked && !self.spoiled.contains(giver_of(&call.name));
        // The content behind a handle was not examined, so the result is not one that the owner asked for.
        let spoils = (is_composed && self.owner.is_narrow) || passed_on == Some(PassedOn::Text);
        let asked = asked && passed_on.is_none();
        if spoils {
            self.spoiled.insert(giver_of(&call.name).to_owned());
        }
        CallFacts { before, asked, is_composed }
    }

    fn read_result(&mut self, part: &Part, calls: &Calls<'_>) {
        let Part::Result(result) = part else { return };
        // It may be a memory: its readers are unknown, though no label says so.
        self.confided |= result.label.taint != Taint::External && !result.label.private;
        let arguments = calls.arguments.get(result.call_id.as_str()).copied();
        let from = giver_of(&result.name);
        if result.label.taint == Taint::External {
            let answer = SourceAnswer { asked: arguments, giver: from, fields: &result.fields };
            // A structured result is read as records, also where a text stands before it.
            result.all_texts().for_each(|text| self.told.add_text(text, Some(answer)));
        }
        self.secrets.add_fields(&result.fields, |value| self.owner.has_value(value));
        // A result without its call cannot be traced to a request.
        let (Some(made), Some(arguments)) = (calls.made.get(result.call_id.as_str()), arguments) else {
            self.sources.has_others = true;
            return;
        };
        let performed = was_performed(result.outcome);
        // A server that was given composed text may return it, so no slot takes a value from there.
        if performed && !self.spoiled.contains(from) {
            self.results.add_result(result, arguments);
        }
        // A refused call fixes no tool: the owner has not let it happen.
        if made.before && performed {
            self.tools.insert(result.name.clone());
        }
        if performed {
            self.done.add_call(&result.name, arguments);
        }
        // Composed text may come back, unchanged or in an unrecognisable form.
        if performed && made.is_composed && !self.owner.is_narrow {
            let is_known = |text: &str| self.owner.has_value(text) || self.fields.has_value(text);
            self.given.add_call(from, arguments, is_known);
        }
        if made.asked {
            self.note_fields(from, result.field_label().private, &result.fields);
        }
        let is_done = result.outcome == ToolOutcome::Done;
        let is_effect = self.effects.contains(&result.name);
        // A server that was given composed text could return it as an id.
        if is_effect && is_done && !self.owner.is_narrow && !self.spoiled.contains(from) {
            let made = ids_made(from, arguments, &result.fields);
            self.fields.add_fields(from, true, &made, &self.given);
        } else if !is_effect && performed {
            let said: Vec<&str> = result.all_texts().collect();
            self.read_source(made.asked, arguments, &said);
        }
    }

    /// Takes in what a reading has brought: a source of values, or something else.
    fn read_source(&mut self, asked: bool, arguments: &Value, said: &[&str]) {
        if asked {
            self.sources.note_answer(&self.owner, arguments, said);
        } else {
            self.sources.has_others = true;
        }
    }
}

/// The facts about a call when its result comes.
#[derive(Clone, Copy)]
struct CallFacts {
    before: bool,
    asked: bool,
    is_composed: bool,
}

/// The parts of withheld results that a call passes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PassedOn {
    /// Single fields.
    Field,
    /// A whole text.
    Text,
}

fn passed_on(value: &Value) -> Option<PassedOn> {
    // A handle stands for a text that was withheld, and so was examined by none of these checks.
    match value {
        Value::String(text) => {
            let handle: Handle = text.parse().ok()?;
            Some(if handle.field.is_some() { PassedOn::Field } else { PassedOn::Text })
        }
        Value::Array(items) => items.iter().filter_map(passed_on).max(),
        Value::Object(fields) => fields.values().filter_map(passed_on).max(),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// Returns true if a tool was used: a refused or pending call was not.
const fn was_performed(outcome: ToolOutcome) -> bool {
    match outcome {
        ToolOutcome::Done
        | ToolOutcome::Failed
        | ToolOutcome::Unknown
        | ToolOutcome::Simulated
        | ToolOutcome::Cancelled => true,
        ToolOutcome::Denied | ToolOutcome::Waiting => false,
    }
}

/// The tools that a call names for afterwards.
fn named_tools(call: &ToolCall) -> impl Iterator<Item = String> + '_ {
    let names = call.arguments.get(THEN).and_then(Value::as_array).into_iter().flatten();
    names.filter_map(Value::as_str).take(MAX_THEN).map(str::to_owned)
}
