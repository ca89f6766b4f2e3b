//! `plan_propose`: steps that a person approves together.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use writ_inspect::prepared::Prepared;
use writ_policy::plan::slots::{MAX_SLOTS, check_path};
use writ_policy::plan::{MAX_STEPS, MINUTES};
use writ_types::action::{Action, ActionKind, Free, Place, Plan, PlanStep, Slot, SlotKind, SlotSource};
use writ_types::chat::ToolCall;
use writ_types::unit::{MicroUsd, NoAmount};

use super::describe_intent;
use crate::arguments::{invalid_arguments, parse_arguments};
use crate::def::{ActionDraft, AgentRole, OutputKind, PathState, ToolContext, ToolDef, needs_nothing};
use crate::error::ToolError;
use crate::schema::schema_of;

/// Millionths of a dollar in a cent.
const CENT: u64 = 10_000;

pub(crate) static PLAN_PROPOSE: ToolDef = ToolDef {
    name: "plan_propose",
    description: "Proposes a plan. Once a person approves it, its steps are done without asking; make each call then \
                  as the step says.",
    usage: r#"{"title": "publish", "steps": [{"tool": "shell_exec", "arguments": {"command": "make"}}]}"#,
    sinks: &[],
    idempotent: false,
    output: OutputKind::Confirmation,
    actions: &[ActionKind::Plan],
    roles: &[AgentRole::Executor],
    schema: schema_of::<PlanArgs>,
    needs: needs_nothing,
    prepare: prepare_head,
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PlanArgs {
    /// Purpose of the plan.
    title: String,
    /// Each: tool, arguments as in the call, times (1), free ("content" of a message or "page" of a host stays open), slots for
    /// values found later: {argument: {kind: account|address|link|amount|text, max, tool, and named (in its call), field with of,
    /// sum: FIELD (its total) or all: FIELD (a list of at most max)}}.
    #[schemars(with = "Vec<Map<String, Value>>")]
    steps: Vec<StepArgs>,
    /// How long it is valid, 30 if not given.
    minutes: Option<u64>,
    /// The most that models may cost meanwhile.
    max_cost_cents: Option<u64>,
    /// Target branch.
    branch: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepArgs {
    tool: String,
    /// Of files that are written, the path counts.
    arguments: Map<String, Value>,
    times: Option<u32>,
    free: Option<FreeArg>,
    /// Arguments that are not known yet, by dotted path.
    slots: Option<BTreeMap<String, SlotArg>>,
}

/// An argument that is found later.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SlotArg {
    kind: KindArg,
    tool: String,
    named: Option<String>,
    field: Option<String>,
    of: Option<String>,
    /// A field of which the sum is taken.
    sum: Option<String>,
    /// A field of which all values are taken, as a list.
    all: Option<String>,
    /// The largest amount, or the most values of a list.
    max: Option<serde_json::Number>,
}

/// The kind of a slot.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum KindArg {
    Account,
    Address,
    Link,
    Amount,
    Text,
}

impl SlotArg {
    /// Returns the slot, and the placeholder that stands for its value: it has the form of the kind, so that schemas take it,
    /// and names nothing that exists (RFC 2606).
    fn read_slot(self) -> Result<(Slot, Value), String> {
        let is_list = self.all.is_some();
        let (kind, placeholder) = match (self.kind, &self.max) {
            (KindArg::Amount, _) if is_list => return Err("a list has no amounts".to_owned()),
            (_, None) if is_list => return Err("a list needs 'max'".to_owned()),
            (KindArg::Amount, Some(max)) => {
                let limit = max.to_string().parse().map_err(|error: NoAmount| format!("max: {error}"))?;
                (SlotKind::Amount { max: limit }, Value::Number(max.clone()))
            }
            (KindArg::Amount, None) => return Err("an amount needs 'max'".to_owned()),
            (_, Some(_)) if !is_list => return Err("'max' is for amounts and lists".to_owned()),
            (KindArg::Account, _) => (SlotKind::Account, "SLOT000000".into()),
            (KindArg::Address, _) => (SlotKind::Address, "slot@slot.invalid".into()),
            (KindArg::Link, _) => (SlotKind::Link, "https://slot.invalid/".into()),
            (KindArg::Text, _) => (SlotKind::Text, "(found later)".into()),
        };
        let most = self.max.as_ref().and_then(serde_json::Number::as_u64);
        let source = match (self.named, self.field, self.of, self.sum, self.all) {
            (Some(named), None, None, None, None) => SlotSource::Result { named },
            (None, Some(name), of, None, None) => SlotSource::Field { name, of },
            (named, None, None, Some(name), None) => SlotSource::Sum { name, named },
            (named, None, None, None, Some(name)) => {
                let most = most.and_then(|most| u32::try_from(most).ok());
                let most = most.ok_or("'max' is the most values of the list")?;
                SlotSource::All { name, named, most }
            }
            (_, _, _, _, _) => {
                let sources = "'named', 'field' with 'of' if need be, 'sum' or 'all'";
                return Err(format!("its source is one of {sources}"));
            }
        };
        let placeholder = if is_list { Value::Array(vec![placeholder]) } else { placeholder };
        Ok((Slot { kind, tool: self.tool, source }, placeholder))
    }
}

/// Puts a placeholder at a dotted path of the arguments; records on the way are made. It calls itself for each name, so the
/// path was checked by [`check_path`].
fn put_placeholder(arguments: &mut Map<String, Value>, path: &str, placeholder: Value) -> Result<(), String> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let Some(rest) = rest else {
        arguments.insert(first.to_owned(), placeholder);
        return Ok(());
    };
    match arguments.entry(first.to_owned()).or_insert_with(|| Value::Object(Map::new())) {
        Value::Object(inner) => put_placeholder(inner, rest, placeholder),
        Value::Array(items) => {
            let place = rest.parse::<usize>().ok().and_then(|n| items.get_mut(n));
            *place.ok_or_else(|| format!("'{path}' is no place in a list"))? = placeholder;
            Ok(())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            Err(format!("'{path}' leads through a value"))
        }
    }
}

/// The part of a step that stays open.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FreeArg {
    Content,
    Page,
}

/// The plan without its steps: who knows the tools adds those.
fn prepare_head(
    arguments: &Value,
    _: Option<&PathState>,
    _: &ToolContext<'_>,
) -> Result<ActionDraft, ToolError> {
    let args: PlanArgs = parse_arguments(&PLAN_PROPOSE, arguments)?;
    if !(1..=MAX_STEPS).contains(&args.steps.len()) {
        return Err(invalid_arguments(&PLAN_PROPOSE, &format!("a plan has 1 to {MAX_STEPS} steps")));
    }
    let plan = Plan {
        title: args.title,
        steps: Vec::new(),
        minutes: args.minutes.unwrap_or(MINUTES),
        max_cost: args.max_cost_cents.map(|cents| MicroUsd::new(cents.saturating_mul(CENT))),
        branch: args.branch,
        work: None,
    };
    let purpose = describe_intent("have a plan approved:", &plan.title);
    Ok(ActionDraft::new_draft(Action::Plan(plan), purpose))
}

/// The steps of a plan, each prepared as its call would be by `prepare`.
///
/// # Errors
///
/// If one cannot be prepared.
pub(crate) fn prepare_steps(
    call: &ToolCall,
    arguments: &Value,
    prepare: impl Fn(&ToolCall) -> Result<Prepared, ToolError>,
) -> Result<Vec<PlanStep>, ToolError> {
    let args: PlanArgs = parse_arguments(&PLAN_PROPOSE, arguments)?;
    let step = |(n, mut step): (u64, StepArgs)| {
        let wrong = |problem: &str| invalid_arguments(&PLAN_PROPOSE, &format!("step {n}: {problem}"));
        let mut slots = BTreeMap::new();
        let given = step.slots.take().unwrap_or_default();
        if given.len() > MAX_SLOTS {
            return Err(wrong(&format!("{} slots; a step has at most {MAX_SLOTS}", given.len())));
        }
        for (path, slot) in given {
            // Not followed, and not quoted whole, before it was checked.
            check_path(&path).map_err(|problem| wrong(&format!("a slot: {problem}")))?;
            let about = |problem: String| wrong(&format!("slot '{path}': {problem}"));
            let (slot, placeholder) = slot.read_slot().map_err(about)?;
            put_placeholder(&mut step.arguments, &path, placeholder).map_err(about)?;
            slots.insert(path, slot);
        }
        // Nested plans would make the steps hard to read for the person who approves.
        if step.tool == PLAN_PROPOSE.name {
            return Err(wrong("a plan cannot be a step of one"));
        }
        let (id, name) = (call.id.clone(), step.tool);
        let call = ToolCall { id, name, arguments: Value::Object(step.arguments) };
        let prepared = prepare(&call).map_err(|error| wrong(&error.model_message()))?;
        let free = match (&prepared.action, step.free) {
            // The content of a file is not known when a plan is proposed.
            (Action::WriteFile(write), None | Some(FreeArg::Content)) if write.place == Place::Overlay => {
                Free::Content
            }
            // By default a step is done exactly as proposed.
            (_, None) => Free::Nothing,
            (_, Some(FreeArg::Content)) => Free::Content,
            (_, Some(FreeArg::Page)) => Free::Page,
        };
        Ok(PlanStep {
            tool: prepared.tool,
            action: prepared.action,
            sinks: prepared.sinks.into_iter().map(|sink| (sink.argument, sink.value)).collect(),
            bindings: prepared.bindings,
            times: step.times.unwrap_or(1),
            free,
            external: Default::default(),
            slots,
        })
    };
    (1_u64..).zip(args.steps).map(step).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn slots_are_read_with_their_placeholders() {
        let read = |slot: Value| {
            serde_json::from_value::<SlotArg>(slot)
                .map_err(|error| error.to_string())
                .and_then(SlotArg::read_slot)
        };
        let (slot, placeholder) =
            read(json!({"kind": "amount", "tool": "files__open", "named": "bill.txt", "max": 100}))
                .expect("is read");
        assert_eq!((slot.kind.name(), placeholder), ("amount", json!(100)));
        assert_eq!(slot.source, SlotSource::Result { named: "bill.txt".into() });
        let (slot, _) =
            read(json!({"kind": "address", "tool": "people__list", "field": "email", "of": "Ann"}))
                .expect("is read");
        assert_eq!(slot.source, SlotSource::Field { name: "email".into(), of: Some("Ann".into()) });
        let (slot, placeholder) = read(
            json!({"kind": "amount", "tool": "bank__bills", "sum": "amount", "named": "may", "max": 9.5}),
        )
        .expect("is read");
        assert_eq!(placeholder, json!(9.5));
        assert_eq!(slot.source, SlotSource::Sum { name: "amount".into(), named: Some("may".into()) });
        let (slot, placeholder) =
            read(json!({"kind": "address", "tool": "people__list", "all": "email", "max": 5}))
                .expect("is read");
        assert_eq!(placeholder, json!(["slot@slot.invalid"]));
        assert_eq!(slot.source, SlotSource::All { name: "email".into(), named: None, most: 5 });
        for wrong in [
            json!({"kind": "address", "tool": "a", "all": "b"}),
            json!({"kind": "address", "tool": "a", "all": "b", "max": 1.5}),
            json!({"kind": "address", "tool": "a", "all": "b", "of": "c", "max": 2}),
            json!({"kind": "amount", "tool": "a", "all": "b", "max": 2}),
            json!({"kind": "amount", "tool": "a", "sum": "b"}),
            json!({"kind": "amount", "tool": "a", "sum": "b", "field": "c", "max": 2}),
            json!({"kind": "amount", "tool": "a", "named": "b"}),
            json!({"kind": "amount", "tool": "a", "named": "b", "max": -1}),
            json!({"kind": "account", "tool": "a", "named": "b", "max": 1}),
            json!({"kind": "account", "tool": "a"}),
            json!({"kind": "account", "tool": "a", "named": "b", "field": "c"}),
            json!({"kind": "order", "tool": "a", "named": "b"}),
            json!({"kind": "account", "named": "b"}),
        ] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }

    /// A model chooses the paths, so a long one ends in an error and not in a stack without room.
    #[test]
    fn long_deep_and_empty_paths_and_many_slots_are_refused() {
        let slot = json!({"kind": "text", "tool": "files__open", "named": "bill.txt"});
        let prepare = |slots: Value| {
            let step = json!({"tool": "x", "arguments": {}, "slots": slots});
            let arguments = json!({"title": "pay", "steps": [step]});
            let call = ToolCall { id: "1".into(), name: "plan_propose".into(), arguments: Value::Null };
            let refuse = |_: &ToolCall| -> Result<Prepared, ToolError> {
                panic!("it is refused before its call is prepared")
            };
            prepare_steps(&call, &arguments, refuse).expect_err("is refused").model_message()
        };
        for path in [".".repeat(500_000), "a.".repeat(9) + "a", "a..b".into(), String::new(), "a".repeat(201)]
        {
            let text = prepare(json!({ (path.clone()): slot.clone() }));
            assert!(text.contains("a path has") && text.len() < 500, "{text}");
        }
        let many: Map<String, Value> = (0..=MAX_SLOTS).map(|n| (format!("a{n}"), slot.clone())).collect();
        assert!(prepare(many.into()).contains("9 slots"));
    }

    #[test]
    fn a_placeholder_is_put_where_its_path_leads() {
        let mut arguments = json!({"to": ["a", "b"], "flat": 1}).as_object().cloned().expect("an object");
        for path in ["to.1", "new", "deep.er"] {
            put_placeholder(&mut arguments, path, json!("x")).expect("has a place");
        }
        assert_eq!(
            Value::Object(arguments.clone()),
            json!({"to": ["a", "x"], "flat": 1, "new": "x", "deep": {"er": "x"}})
        );
        for path in ["to.7", "to.x", "flat.a"] {
            assert!(put_placeholder(&mut arguments, path, json!("x")).is_err(), "{path}");
        }
    }
}
