//! `plan_unit`: an agent of the autopilot asks for a change of the plan that it works on. The autopilot itself judges it and carries it out; only
//! attempts that work are offered it.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use writ_types::chat::ToolSpec;

use crate::arguments::{check_arguments, invalid_arguments, parse_arguments};
use crate::def::{ActionDraft, AgentRole, OutputKind, PathState, ToolContext, ToolDef, needs_nothing};
use crate::error::ToolError;
use crate::schema::schema_of;
use crate::source::Tool as _;

/// The longest title of a task, in characters.
pub const MAX_TITLE_CHARS: usize = 200;
/// The longest text of a task, in characters.
pub const MAX_TEXT_CHARS: usize = 4_000;
/// The longest id of a unit, in bytes.
const MAX_ID_BYTES: usize = 64;
/// The most tasks of one change.
pub const MAX_TASKS: usize = 10;

static PLAN_UNIT: ToolDef = ToolDef {
    name: "plan_unit",
    description: "Changes the plan that you work on: `add` tasks to a slice, `split` a task that has not begun into several, or `reorder` \
        one after another. Only units of your own milestone can be changed. Do your own task all the same.",
    usage: r#"{"change": "add", "unit": "slice/m1/s1", "tasks": [{"title": "sum the lines"}]}"#,
    sinks: &[],
    idempotent: false,
    output: OutputKind::Confirmation,
    // No action follows from it.
    actions: &[],
    roles: &[AgentRole::Executor],
    schema: schema_of::<PlanUnitArgs>,
    needs: needs_nothing,
    prepare: refuse_action,
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PlanUnitArgs {
    /// What is changed.
    change: ChangeArg,
    /// add: the slice; split and reorder: the task.
    unit: String,
    /// add and split: the tasks, in the order of the work.
    tasks: Option<Vec<TaskArg>>,
    /// reorder: the task that comes before.
    after: Option<String>,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ChangeArg {
    Add,
    Split,
    Reorder,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TaskArg {
    /// One line.
    title: String,
    /// What is to be done.
    text: Option<String>,
}

/// A task that an agent adds to a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTask {
    /// Its purpose, in one line.
    pub title: String,
    /// More about it; may be empty.
    pub text: String,
}

/// A change of a plan. Units are named as the agent has written them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnitChange {
    /// Add tasks to a slice, each after the one before it.
    Add {
        /// The slice.
        slice: String,
        /// The tasks.
        tasks: Vec<NewTask>,
    },
    /// Put several tasks in the place of one.
    Split {
        /// The task.
        task: String,
        /// The tasks in its place, each after the one before it.
        tasks: Vec<NewTask>,
    },
    /// Let a task wait for another one.
    Reorder {
        /// The task that waits.
        task: String,
        /// The one that comes before it.
        after: String,
    },
}

/// Returns the description of the tool for models.
pub fn plan_unit_tool() -> ToolSpec {
    (&PLAN_UNIT).spec(PLAN_UNIT.name)
}

/// Reads the change that a call asks for; none if its tool is another one.
///
/// # Errors
///
/// Everything that is wrong with its arguments.
pub fn read_unit_change(tool: &str, arguments: &Value) -> Result<Option<UnitChange>, ToolError> {
    if tool != PLAN_UNIT.name {
        return Ok(None);
    }
    let args: PlanUnitArgs = parse_arguments(&PLAN_UNIT, &check_arguments(&PLAN_UNIT, arguments)?)?;
    let wrong = |problem: &str| invalid_arguments(&PLAN_UNIT, problem);
    let id = |text: &str, name: &str| {
        // The autopilot reads it; here it only has to be short and plain, so that an error can show it.
        let is_id = text.len() <= MAX_ID_BYTES && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '/');
        if is_id && !text.is_empty() {
            Ok(text.to_owned())
        } else {
            Err(wrong(&format!("'{name}' is an id such as task/m1/s1/t2")))
        }
    };
    let unit = id(&args.unit, "unit")?;
    match (args.change, args.tasks, args.after) {
        (ChangeArg::Add, Some(tasks), None) => {
            Ok(Some(UnitChange::Add { slice: unit, tasks: read_tasks(tasks, 1)? }))
        }
        (ChangeArg::Split, Some(tasks), None) => {
            Ok(Some(UnitChange::Split { task: unit, tasks: read_tasks(tasks, 2)? }))
        }
        (ChangeArg::Reorder, None, Some(after)) => {
            Ok(Some(UnitChange::Reorder { task: unit, after: id(&after, "after")? }))
        }
        (ChangeArg::Add | ChangeArg::Split, ..) => Err(wrong("this change has 'tasks', and no 'after'")),
        (ChangeArg::Reorder, ..) => Err(wrong("this change has 'after', and no 'tasks'")),
    }
}

fn read_tasks(tasks: Vec<TaskArg>, least: usize) -> Result<Vec<NewTask>, ToolError> {
    let wrong = |problem: &str| invalid_arguments(&PLAN_UNIT, problem);
    if !(least..=MAX_TASKS).contains(&tasks.len()) {
        return Err(wrong(&format!("'tasks' has {least} to {MAX_TASKS} entries")));
    }
    let read = |task: TaskArg| {
        let title = task.title.trim();
        if title.is_empty() || title.chars().count() > MAX_TITLE_CHARS || title.chars().any(char::is_control)
        {
            return Err(wrong(&format!("'title' is one line of 1 to {MAX_TITLE_CHARS} characters")));
        }
        // A tab would not come back from the plan's file as it was.
        let text = task.text.unwrap_or_default().trim().to_owned();
        let is_plain = |c: char| !c.is_control() || c == '\n';
        if text.chars().count() > MAX_TEXT_CHARS || !text.chars().all(is_plain) {
            return Err(wrong(&format!(
                "'text' has at most {MAX_TEXT_CHARS} characters, and no control characters"
            )));
        }
        // In the plan's file they stand around ids.
        if [title, text.as_str()].iter().any(|words| words.contains("<!--") || words.contains("-->")) {
            return Err(wrong("'title' and 'text' hold no marks of comments (<!-- -->)"));
        }
        Ok(NewTask { title: title.to_owned(), text })
    };
    tasks.into_iter().map(read).collect()
}

/// The autopilot carries it out itself: there is no action to prepare.
fn refuse_action(_: &Value, _: Option<&PathState>, _: &ToolContext<'_>) -> Result<ActionDraft, ToolError> {
    Err(invalid_arguments(&PLAN_UNIT, "it is answered within a turn only"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn changes_are_read_and_bounded() {
        let read = |arguments: Value| read_unit_change("plan_unit", &arguments);
        let task = |title: &str| NewTask { title: title.to_owned(), text: String::new() };
        assert_eq!(
            read(json!({ "change": "add", "unit": "slice/m1/s1", "tasks": [{ "title": " a " }] }))
                .expect("reads"),
            Some(UnitChange::Add { slice: "slice/m1/s1".to_owned(), tasks: vec![task("a")] })
        );
        assert_eq!(
            read(json!({ "change": "reorder", "unit": "task/m1/s1/t2", "after": "task/m1/s1/t1" }))
                .expect("reads"),
            Some(UnitChange::Reorder { task: "task/m1/s1/t2".to_owned(), after: "task/m1/s1/t1".to_owned() })
        );
        assert_eq!(read_unit_change("file_read", &json!({})).expect("another tool"), None);
        let many: Vec<Value> = (0..=MAX_TASKS).map(|n| json!({ "title": n.to_string() })).collect();
        for wrong in [
            json!({}),
            json!({ "change": "remove", "unit": "task/m1/s1/t1" }),
            json!({ "change": "add", "unit": "slice/m1/s1" }),
            json!({ "change": "add", "unit": "slice/m1/s1", "tasks": [] }),
            json!({ "change": "add", "unit": "slice/m1/s1", "tasks": many }),
            json!({ "change": "add", "unit": "slice/m1/s1 x=1", "tasks": [{ "title": "a" }] }),
            json!({ "change": "add", "unit": "slice/m1/s1", "tasks": [{ "title": "a\nb" }] }),
            json!({ "change": "add", "unit": "slice/m1/s1", "tasks": [{ "title": "a", "text": "x".repeat(MAX_TEXT_CHARS + 1) }] }),
            json!({ "change": "split", "unit": "task/m1/s1/t1", "tasks": [{ "title": "a" }] }),
            json!({ "change": "reorder", "unit": "task/m1/s1/t1" }),
            json!({ "change": "reorder", "unit": "task/m1/s1/t1", "after": "", "tasks": [] }),
        ] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
        let spec = plan_unit_tool();
        assert!(read_unit_change(&spec.name, &serde_json::from_str(PLAN_UNIT.usage).expect("JSON")).is_ok());
    }
}
