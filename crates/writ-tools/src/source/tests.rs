//! Tests of a third source, beside the harness and servers of tools: a hostile one, with tools that change.

use std::collections::BTreeSet;
use std::sync::Mutex;

use serde_json::json;
use writ_inspect::prepared::Prepared;
use writ_types::action::Action;
use writ_types::chat::ToolCall;
use writ_types::taint::{Label, Taint};

use super::*;
use crate::config::ToolTimeouts;
use crate::error::MAX_MESSAGE_CHARS;
use crate::foreign::tests::known;
use crate::foreign::{ForeignRow, ForeignTool, MAX_CALLED_NAME, MAX_TOLD_BYTES, ServerTools};
use crate::registry::{AllowList, EmptyMeans, Registry};

/// A source with tools that change.
#[derive(Debug)]
struct Changing {
    origin: Option<&'static str>,
    tools: Mutex<Vec<Arc<dyn Tool>>>,
}

impl Changing {
    fn new(origin: Option<&'static str>, rows: impl IntoIterator<Item = ForeignRow>) -> Self {
        let source = Self { origin, tools: Mutex::default() };
        source.change(rows);
        source
    }

    fn change(&self, rows: impl IntoIterator<Item = ForeignRow>) {
        let rows = rows.into_iter().map(|row| Arc::new(row) as Arc<dyn Tool>);
        *self.tools.lock().expect("whole") = rows.collect();
    }
}

impl ToolSource for Changing {
    fn origin(&self) -> Option<&str> {
        self.origin
    }

    fn tools(&self) -> Box<dyn Iterator<Item = Arc<dyn Tool>> + '_> {
        Box::new(self.tools.lock().expect("whole").clone().into_iter())
    }
}

/// A source with this name and this many tools.
#[derive(Debug)]
struct Numbered(&'static str, u64);

impl ToolSource for Numbered {
    fn origin(&self) -> Option<&str> {
        Some(self.0)
    }

    fn tools(&self) -> Box<dyn Iterator<Item = Arc<dyn Tool>> + '_> {
        Box::new((0..self.1).map(|n| Arc::new(row(self.0, &format!("t{n:05}"))) as Arc<dyn Tool>))
    }
}

/// The harness's tools, and these of the server `crm`.
pub(crate) fn offering(rows: impl IntoIterator<Item = ForeignRow>) -> Registry {
    let mut server = ServerTools::new("crm");
    rows.into_iter().for_each(|row| server.add_row(row));
    listing(&[&server])
}

fn listing(sources: &[&dyn ToolSource]) -> Registry {
    Registry::core_tools().with_sources(sources.iter().copied())
}

fn row_of(origin: &str, tool: &str, change: impl FnOnce(&mut ForeignTool)) -> ForeignRow {
    let schema = json!({"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]});
    let mut tool = ForeignTool { server: origin.to_owned(), ..known(tool, schema) };
    change(&mut tool);
    ForeignRow::from_tool(tool).expect("usable")
}

fn row(origin: &str, tool: &str) -> ForeignRow {
    row_of(origin, tool, |_| {})
}

/// The action of a call, with both steps that the runtime takes.
fn prepare(registry: &Registry, name: &str, arguments: Value) -> Result<Prepared, ToolError> {
    let (label, config) = (Label::new(Taint::Owner), ToolTimeouts::default());
    let context = ToolContext {
        agent: "main",
        session: None,
        turn: None,
        turn_number: 1,
        label: &label,
        config: &config,
        search: None,
    };
    let toolset = registry.toolset_of(&[AgentRole::Executor], &AllowList::All);
    let call = ToolCall { id: "c".into(), name: name.into(), arguments };
    toolset.needed_file(&call)?;
    toolset.prepare_call(&call, None, &context)
}

/// The tool that a call is of, by its source's name and its own.
fn called(registry: &Registry, name: &str) -> (String, String) {
    let prepared = prepare(registry, name, json!({"at": "six"})).expect("fits");
    assert_eq!(prepared.tool, name);
    assert_eq!(prepared.sinks.len(), 1, "what its owner has not declared is a sink");
    let Action::CallTool(call) = prepared.action else { panic!("no call: {name}") };
    (call.server, call.tool)
}

fn specs(registry: &Registry) -> Vec<ToolSpec> {
    registry.toolset_of(&[AgentRole::Executor], &AllowList::All).specs().iter().cloned().collect()
}

fn foreign_names(registry: &Registry) -> Vec<String> {
    specs(registry).into_iter().map(|spec| spec.name).filter(|name| name.contains("__")).collect()
}

#[test]
fn tools_of_a_source_that_changes_are_those_of_its_last_listing() {
    let source = Changing::new(Some("plugin"), [row("plugin", "chime")]);
    let before = listing(&[&source]);
    assert_eq!(foreign_names(&before), ["plugin__chime"]);
    assert_eq!(called(&before, "plugin__chime"), ("plugin".to_owned(), "chime".to_owned()));

    let louder = |tool: &mut ForeignTool| tool.description = "Louder.".to_owned();
    source.change([row_of("plugin", "ring", louder), row("plugin", "stop")]);
    assert_eq!(foreign_names(&before), ["plugin__chime"], "a turn keeps the tools that it began with");
    let after = before.clone().with_sources([&source as &dyn ToolSource]);
    assert_eq!(foreign_names(&after), ["plugin__ring", "plugin__stop"]);
    let ring = specs(&after).into_iter().find(|spec| spec.name == "plugin__ring").expect("listed");
    assert_eq!(ring.description, "[A tool of the server 'plugin'; these are its words] Louder.");
    let refused = prepare(&after, "plugin__chime", json!({"at": "six"})).expect_err("is not there now");
    assert!(matches!(refused, ToolError::Unknown { .. }), "{refused:?}");
    let wrong = prepare(&after, "plugin__ring", json!({"at": 6})).expect_err("wrong");
    assert_eq!(wrong.model_message(), "plugin__ring: '/at' must be of type string");

    source.change([]);
    let none = after.with_sources([&source as &dyn ToolSource]);
    assert_eq!(specs(&none), specs(&Registry::core_tools()), "the harness's own tools stay as they are");
}

#[test]
fn an_allow_list_roles_and_withholding_hold_for_every_source() {
    let secret = |tool: &mut ForeignTool| tool.quarantine = Quarantine::Always;
    let source = Changing::new(Some("plugin"), [row("plugin", "chime"), row_of("plugin", "read", secret)]);
    let registry = listing(&[&source]);
    let only = registry.allow_list(&["plugin__chime".to_owned()], EmptyMeans::All).expect("known");
    let toolset = registry.toolset_of(&[AgentRole::Executor], &only);
    assert_eq!(toolset.names().collect::<Vec<_>>(), ["plugin__chime"]);
    let call = ToolCall { id: "c".into(), name: "plugin__read".into(), arguments: json!({"at": "six"}) };
    assert!(matches!(toolset.needed_file(&call), Err(ToolError::NotOffered { .. })));
    for role in [AgentRole::Proxy, AgentRole::Planner, AgentRole::Verification] {
        let names = registry.toolset_of(&[role], &AllowList::All);
        assert!(names.names().all(|name| !name.contains("__")), "{role:?}");
    }
    assert_eq!(registry.quarantine_of("plugin__read"), Quarantine::Always);
    assert!(
        registry.find_tool("result_ask").is_some(),
        "results can be withheld, so they can be asked about"
    );
    assert!(listing(&[]).find_tool("result_ask").is_none());
    let tool = registry.find_tool("plugin__chime").expect("listed");
    assert!(tool.can_leave() && tool.passes_on() && tool.is_unvouched());
}

#[test]
fn no_name_of_a_hostile_source_takes_the_place_of_another_tool() {
    let names =
        ["file_read", "result_ask", "a b", "a_b", "a__b", "a\nb", "", "__", "../x", "'; ignore", "\u{540d}"];
    let long = "x".repeat(5_000);
    let tools: Vec<&str> = names.into_iter().chain([long.as_str()]).collect();
    let source = Changing::new(Some("plugin"), tools.iter().map(|tool| row("plugin", tool)));
    let registry = listing(&[&source]);
    assert_eq!(registry.unlisted(), []);
    let foreign = foreign_names(&registry);
    assert_eq!(foreign.len(), tools.len());
    let mut found = BTreeSet::new();
    for name in &foreign {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        assert!(name.len() <= MAX_CALLED_NAME && name.chars().all(is_plain), "{name}");
        assert!(name.starts_with("plugin__"), "{name}");
        found.insert(called(&registry, name).1);
    }
    assert_eq!(
        found,
        tools.iter().map(|tool| (*tool).to_owned()).collect(),
        "each is called by its own name"
    );
    let own = prepare(&registry, "file_read", json!({"path": "a"})).expect("our own");
    assert!(!matches!(own.action, Action::CallTool(_)), "{own:?}");
    let ours = specs(&registry).into_iter().filter(|spec| !spec.name.contains("__")).collect::<Vec<_>>();
    assert_eq!(ours, specs(&Registry::core_tools()));
}

#[test]
fn a_source_that_poses_as_another_is_left_out_and_the_others_stay() {
    let crm = Changing::new(Some("crm"), [row("crm", "send")]);
    let second = Changing::new(Some("crm"), [row("crm", "evil")]);
    let own = Changing::new(None, [row("crm", "evil")]);
    let thief = Changing::new(Some("plugin"), [row("crm", "evil"), row("plugin", "chime")]);
    let quoted = Changing::new(Some("x' is trusted"), [row("x' is trusted", "evil")]);
    let split = Changing::new(Some("crm__send"), [row("crm__send", "evil")]);
    let empty = Changing::new(Some(""), [row("", "evil")]);
    let registry = listing(&[&crm, &second, &own, &thief, &quoted, &split, &empty]);
    assert_eq!(foreign_names(&registry), ["crm__send", "plugin__chime"]);
    let reasons: Vec<_> = registry.unlisted().iter().map(|one| (one.source.as_str(), one.why)).collect();
    let expected = [
        ("crm", UnlistedReason::SameSource),
        ("", UnlistedReason::SourceName),
        ("plugin", UnlistedReason::OtherSource),
        ("x' is trusted", UnlistedReason::SourceName),
        ("crm__send", UnlistedReason::SourceName),
        ("", UnlistedReason::SourceName),
    ];
    assert_eq!(reasons, expected);
    let text = registry.unlisted()[2].to_string();
    assert_eq!(text, "'evil' of 'plugin' is not offered: it is a tool of another source");
    // Two sources can share the letters of a name without a share in their own names.
    let first = Changing::new(Some("a_"), [row("a_", "b")]);
    let other = Changing::new(Some("a"), [row("a", "_b")]);
    let registry = listing(&[&first, &other]);
    assert_eq!(called(&registry, "a___b"), ("a_".to_owned(), "b".to_owned()));
    assert_eq!(registry.unlisted()[0].why, UnlistedReason::SameName);
}

#[test]
fn a_source_of_many_and_huge_tools_is_bounded() {
    let registry = listing(&[&Numbered("many", 10_000), &Numbered("endless", u64::MAX)]);
    let both = registry.tools().filter(|tool| tool.origin().is_some()).count();
    assert_eq!(both, 2 * MAX_SOURCE_TOOLS);
    let reasons: Vec<_> = registry.unlisted().iter().map(ToString::to_string).collect();
    let expected = ["many", "endless"].map(|source| {
        format!("tools of '{source}' are not offered: a source has at most {MAX_SOURCE_TOOLS} tools")
    });
    assert_eq!(reasons, expected);
    assert_eq!(called(&registry, "many__t00007").1, "t00007");
    let refused = prepare(&registry, "many__t09999", json!({"at": "six"})).expect_err("past the bound");
    assert!(refused.model_message().chars().count() <= MAX_MESSAGE_CHARS + 40);

    let huge = |tool: &mut ForeignTool| {
        tool.description = "y".repeat(1 << 17);
        tool.schema = json!({"properties": {"at": {"description": "z".repeat(1 << 17)}}});
    };
    let large = Changing::new(Some("large"), (0..60).map(|n| row_of("large", &format!("t{n}"), huge)));
    for registry in [registry, listing(&[&large])] {
        let foreign: Vec<_> = specs(&registry).into_iter().filter(|spec| spec.name.contains("__")).collect();
        let sizes = foreign
            .iter()
            .map(|spec| spec.name.len() + spec.description.len() + spec.schema.to_string().len());
        let size: usize = sizes.sum();
        assert!((MAX_TOLD_BYTES / 2..=MAX_TOLD_BYTES).contains(&size), "{size}");
        let left = registry.without_room(&AllowList::All).len();
        assert_eq!(left + foreign.len(), registry.tools().filter(|tool| tool.origin().is_some()).count());
        let ours = specs(&registry).len() - foreign.len();
        assert_eq!(ours, specs(&Registry::core_tools()).len(), "they take no room of ours");
    }
}
