use serde_json::json;
use writ_types::action::{CallTool, Exec, SendFile, WriteFile};
use writ_types::entry::{DenyReason, GateVerdict};

use writ_types::action::ActionKind;

use super::*;
use crate::door::Verdicts;
use crate::fixture::{
    PERMIT_ALL, World, approved, ask_all, call_tool, claims, exec, fetch, later, plan, prepared,
    project_write, rules, session, shipped, step, tainted,
};
use crate::rules::RuleSet;
use writ_inspect::scope::{ANY, Dimension};
use writ_inspect::show::ShownText;

/// A world whose keys name no places.
pub(super) fn wide(rules: &'static RuleSet) -> World {
    let any = |kind: ActionKind| {
        let dimensions =
            [Dimension::Host, Dimension::Path, Dimension::Place, Dimension::Profile, Dimension::Name]
                .into_iter()
                .chain([Dimension::Recipient, Dimension::Memory]);
        (kind, dimensions.map(|dimension| (dimension, ANY.to_owned())).collect())
    };
    let mut world = World::new(rules);
    world.base.grants = Grants { kinds: ActionKind::ALL.into_iter().map(any).collect(), ..Grants::default() };
    world.task.grants = world.base.grants.clone();
    world
}

/// A world in which a person has said yes to a plan, and its key is what the agent acts under.
pub(super) fn under(plan: &Plan, rules: &'static RuleSet, left: &[u32]) -> World {
    let mut world = wide(rules);
    let ask = world.ask(prepared(Action::Plan(plan.clone())));
    let approval = approved(claims(ask.hash));
    let in_force = ApprovedPlan::new(&ask.prepared, &approval, (ask.risk, rules.digest()), left.to_vec());
    world.task.plan = Some(ask.hash);
    world.task.grants = plan_grants(plan);
    world.plan = Some(in_force.expect("it was approved"));
    world
}

pub(super) fn of(steps: Vec<PlanStep>) -> Plan {
    Plan { steps, ..plan() }
}

fn reaching(host: &str) -> Action {
    Action::Exec(Exec { hosts: vec![host.to_owned()], ..exec() })
}

/// The step of a plan passes with the plan's ask as its approval, and names the step; what is another step, or none,
/// asks as before.
///
/// Rows: SIL-001
#[test]
fn a_step_passes_under_its_plan_and_another_byte_asks() {
    let plan =
        of(vec![step(reaching("a.example"), Free::Nothing), step(reaching("b.example"), Free::Nothing)]);
    let world = under(&plan, shipped(), &[2, 2]);
    let grant = world.decide(prepared(reaching("b.example"))).expect("it is the second step");
    let used = grant.approval().expect("a use").plan.expect("of a plan");
    assert_eq!((used.step, used.times, used.key), (1, 2, world.task.key));
    // How long a program may take changes nothing of what it does.
    let longer = Exec { timeout_ms: 7, hosts: vec!["a.example".into()], ..exec() };
    assert!(world.decide(prepared(Action::Exec(longer))).is_ok());
    let lost = World { lost: true, ..under(&plan, shipped(), &[2, 2]) };
    assert!(
        lost.ask(prepared(reaching("b.example"))).rules.contains("unknown outcome"),
        "it may be done already"
    );
    let other = Exec { argv: vec!["true".into(), "x".into()], hosts: vec!["a.example".into()], ..exec() };
    assert!(world.decide(prepared(Action::Exec(other))).is_err());
    assert!(world.decide(prepared(reaching("c.example"))).is_err(), "the plan's key names no such host");
    // One that was done as often as it may.
    let spent = under(&plan, shipped(), &[0, 2]);
    assert_eq!(spent.ask(prepared(reaching("a.example"))).rules, ["ask-network".to_owned()].into());
}

/// What a person has said yes to beside a plan is a yes of its own, after what the plan has left: it uses no step.
#[test]
fn what_is_approved_beside_a_plan_uses_no_step_of_it() {
    let plan = of(vec![step(reaching("a.example"), Free::Nothing)]);
    let request = prepared(reaching("a.example"));
    let hash = request.hash(shipped().digest()).expect("canonical");
    for (left, of_plan) in [(1, true), (0, false)] {
        let mut world = under(&plan, shipped(), &[left]);
        world.planned = true;
        world.approval = Some(Ok(approved(claims(hash))));
        let grant = world.decide(request.clone()).expect("approved");
        assert_eq!(grant.approval().expect("a use").plan.is_some(), of_plan, "{left} left");
    }
}

/// A step is judged as what it is: its own action, tool, values and bindings, requested by the requester of the plan.
#[test]
fn a_step_by_itself_is_what_it_does_and_no_plan() {
    let whole = Prepared { intent: "all of it".into(), ..tainted(Action::Plan(plan()), Taint::External) };
    let mut own = prepared(reaching("a.example"));
    own.bindings.insert("program".into(), Digest::of_bytes(b"program"));
    let step = PlanStep {
        tool: "shell_exec".into(),
        sinks: vec![("hosts".into(), "a.example".into())],
        bindings: own.bindings.clone(),
        ..step(own.action.clone(), Free::Nothing)
    };
    let sinks = vec![Sink { argument: "hosts".into(), value: "a.example".into() }];
    let expected = Prepared {
        action: own.action,
        tool: step.tool.clone(),
        sinks,
        bindings: own.bindings,
        ..whole.clone()
    };
    assert_eq!(step_alone(&whole, &step), expected);
}

/// Whatever of a plan is another byte is another plan: its hash is not what was signed.
///
/// Rows: SIL-002
#[test]
fn an_approval_is_good_for_one_plan_under_one_set_of_rules() {
    let world = wide(shipped());
    let ask = world.ask(prepared(Action::Plan(plan())));
    let approval = approved(claims(ask.hash));
    let with =
        |prepared: &Prepared, policy| ApprovedPlan::new(prepared, &approval, (ask.risk, policy), vec![1, 1]);
    let rules = shipped().digest();
    assert!(with(&ask.prepared, rules).is_some());
    assert_eq!(with(&ask.prepared, ask_all().digest()), None, "other rules");
    let changes: [fn(&mut Plan); 7] = [
        |plan| plan.title.push(' '),
        |plan| plan.minutes += 1,
        |plan| plan.max_cost = Some(writ_types::unit::MicroUsd::new(1)),
        |plan| plan.branch = Some("main".into()),
        |plan| plan.steps.swap(0, 1),
        |plan| plan.steps[0].times += 1,
        |plan| plan.steps[1].free = Free::Page,
    ];
    for (n, change) in changes.into_iter().enumerate() {
        let mut other = plan();
        change(&mut other);
        assert_eq!(with(&prepared(Action::Plan(other)), rules), None, "{n}");
    }
    let elsewhere = Prepared { session: Some(session(2)), ..ask.prepared.clone() };
    assert_eq!(with(&elsewhere, rules), None, "another session");
    let said_no = crate::approval::ApprovalClaims { decision: Decision::Deny, ..claims(ask.hash) };
    assert_eq!(ApprovedPlan::new(&ask.prepared, &approved(said_no), (ask.risk, rules), vec![1, 1]), None);
}

#[test]
fn the_key_of_a_plan_is_needed_and_ends_with_its_time() {
    let plan = of(vec![step(reaching("a.example"), Free::Nothing)]);
    let request = || prepared(reaching("a.example"));
    let mut world = under(&plan, shipped(), &[1]);
    world.task.plan = None;
    assert!(!world.ask(request()).rules.is_empty(), "the session's own key is no plan's");
    world.task.plan = Some(Digest::of_bytes(b"another"));
    assert!(!world.ask(request()).rules.is_empty());
    let mut world = under(&plan, shipped(), &[1]);
    world.revoked.insert(world.task.key.to_string());
    assert_eq!(world.denial(request()).reason, DenyReason::Revoked);
    let mut world = under(&plan, shipped(), &[1]);
    world.now = world.task.expires_at;
    assert_eq!(world.denial(request()).reason, DenyReason::Expired);
    let mut world = under(&plan, shipped(), &[1]);
    world.task.expires_at = later(172_800_000);
    world.base.expires_at = later(172_800_000);
    world.now = later(86_400_000);
    assert!(!world.ask(request()).rules.is_empty(), "the approval itself is over");
    // Time passes between the look at the keys and the decision, too.
    let world = under(&plan, shipped(), &[1]);
    let authority = world.authority();
    let rules = BTreeSet::new();
    let asked = StepQuestion { rules: &rules, risk: Risk::Low, approvers: 1 };
    let covers = |now| {
        let in_force = world.plan.as_ref().expect("approved");
        in_force
            .find_use((&request(), Digest::of_bytes(b"x")), &asked, (&authority, &Origins::nothing()), now)
            .is_some()
    };
    let ends = world.task.expires_at;
    assert!(covers(Timestamp::from_millis(ends.as_millis() - 1)) && !covers(ends));
}

#[test]
fn a_gate_that_asks_and_more_people_than_have_approved_are_asked_by_themselves() {
    let plan = of(vec![step(reaching("a.example"), Free::Nothing)]);
    let mut world = under(&plan, shipped(), &[1]);
    world.verdicts = Verdicts { gates: vec![("g".into(), GateVerdict::RequireApproval, "look".into())] };
    assert!(world.ask(prepared(reaching("a.example"))).rules.contains("gate g"));

    // One person has said yes to the plan; two must to this.
    let two = rules(&format!(
        "{PERMIT_ALL} @id(\"one\") @ask(\"Sure?\") forbid (principal, action == Action::\"plan\", resource); \
         @id(\"two\") @ask(\"Sure?\") @approvers(\"2\") forbid (principal, action == Action::\"exec\", resource);"
    ));
    let two: &'static RuleSet = Box::leak(Box::new(two));
    let request = prepared(reaching("a.example"));
    assert!(under(&plan, two, &[1]).ask(request).approvers == 2);
}

/// What may be otherwise is content and pages, never who and where.
#[test]
fn open_parts_of_a_step_are_content_and_pages_alone() {
    let write = |path: &str, bytes| {
        let mut write = WriteFile { place: Place::Overlay, ..project_write(&[path]) };
        write.changes[0].bytes = bytes;
        prepared(Action::WriteFile(write))
    };
    let planned = step(write("a.txt", 1).action, Free::Content);
    assert!(means_action(&planned, &write("a.txt", 9)) && !means_action(&planned, &write("b.txt", 1)));
    let call = |to: &str, body: &str, flag: bool| {
        let arguments = json!({ "to": to, "body": body, "all": flag });
        let call = CallTool { arguments, declared: true, ..call_tool() };
        let sinks = vec![Sink { argument: "to".into(), value: to.into() }];
        Prepared { sinks, ..prepared(Action::CallTool(call)) }
    };
    let requested = call("ann", "hello", false);
    let sinks = vec![("to".to_owned(), "ann".to_owned())];
    let planned = PlanStep { sinks: sinks.clone(), ..step(requested.action.clone(), Free::Content) };
    assert!(means_action(&planned, &call("ann", "other", false)));
    assert!(
        !means_action(&planned, &call("eve", "hello", false))
            && !means_action(&planned, &call("ann", "hello", true))
    );
    let other_tool = |prepared: Prepared| Prepared { tool: "crm__other".into(), ..prepared };
    let bound = |prepared: Prepared| Prepared {
        bindings: [("$r1".to_owned(), Digest::of_bytes(b"x"))].into(),
        ..prepared
    };
    assert!(!means_action(&planned, &other_tool(call("ann", "hello", false))), "another tool");
    assert!(!means_action(&planned, &bound(call("ann", "hello", false))), "with something put in");
    let exact = PlanStep { sinks, ..step(requested.action, Free::Nothing) };
    assert!(!means_action(&exact, &bound(call("ann", "hello", false))));
    let exactly = step(write("a.txt", 1).action, Free::Nothing);
    assert!(
        means_action(&exactly, &write("a.txt", 1)) && !means_action(&exactly, &other_tool(write("a.txt", 1)))
    );
    assert!(
        means_action(&step(write("a.txt", 1).action, Free::Content), &other_tool(write("a.txt", 1))),
        "the path decides"
    );
    assert!(
        means_action(&exact, &call("ann", "hello", false))
            && !means_action(&exact, &call("ann", "other", false))
    );
    let page = step(Action::Fetch(fetch("https://docs.example/a")), Free::Page);
    let read = |url: &str| prepared(Action::Fetch(fetch(url)));
    assert!(means_action(&page, &read("https://docs.example/b?q=1")));
    for url in
        ["https://evil.example/a", "http://docs.example/a", "https://docs.example:8443/a", "docs.example"]
    {
        assert!(!means_action(&page, &read(url)), "{url}");
    }
    let saved = writ_types::action::Fetch { save_to: Some("x".into()), ..fetch("https://docs.example/b") };
    let large = writ_types::action::Fetch { large: true, ..fetch("https://docs.example/b") };
    let posted = writ_types::action::Fetch { method: "POST".into(), ..fetch("https://docs.example/b") };
    let with_body = writ_types::action::Fetch { body: Some("x".into()), ..fetch("https://docs.example/b") };
    for other in [saved, large, posted, with_body] {
        assert!(!means_action(&page, &prepared(Action::Fetch(other.clone()))), "{other:?}");
        let open = of(vec![step(Action::Fetch(other), Free::Page)]);
        assert!(check_plan(&open).is_err_and(|why| why.contains("leave the page open")));
    }
    let in_project = of(vec![step(Action::WriteFile(project_write(&["a"])), Free::Content)]);
    assert!(check_plan(&in_project).is_err_and(|why| why.contains("no content that could be left open")));
}

/// After something was read from outside, an open page and an open message ask again; what was shown exactly does not.
#[test]
fn external_content_reaches_nobody_through_an_open_step() {
    let sends = CallTool { declared: true, ..call_tool() };
    let plan = of(vec![
        step(Action::CallTool(sends.clone()), Free::Content),
        step(Action::Fetch(fetch("https://docs.example/a")), Free::Page),
        step(Action::Fetch(fetch("https://docs.example/exact")), Free::Nothing),
    ]);
    let world = under(&plan, ask_all(), &[2, 2, 2]);
    assert!(world.decide(prepared(Action::CallTool(sends.clone()))).is_ok());
    assert!(world.decide(tainted(Action::CallTool(sends), Taint::External)).is_err());
    let read = |url: &str| tainted(Action::Fetch(fetch(url)), Taint::External);
    assert!(world.decide(read("https://docs.example/exact")).is_ok());
    assert!(world.decide(read("https://docs.example/?what=was-read")).is_err());
    assert!(world.decide(prepared(Action::Fetch(fetch("https://docs.example/other")))).is_ok());
}

/// Rows: SIL-001
#[test]
fn what_cannot_be_undone_is_in_a_plan_exactly_or_asks() {
    let send = || {
        Action::SendFile(SendFile {
            to: "ann".parse().expect("a name"),
            path: "a".into(),
            digest: Digest::of_bytes(b"x"),
        })
    };
    let world = wide(shipped());
    let ask = world.ask(prepared(Action::Plan(of(vec![step(send(), Free::Nothing)]))));
    assert_eq!(ask.risk, Risk::Irreversible, "the plan is as risky as its riskiest step");
    let irreversible = CallTool { risk: Risk::Irreversible, ..call_tool() };
    let open = of(vec![step(Action::CallTool(irreversible.clone()), Free::Content)]);
    let mut world = wide(shipped());
    let ask = world.ask(prepared(Action::Plan(open.clone())));
    let approval = approved(claims(ask.hash));
    world.plan = ApprovedPlan::new(&ask.prepared, &approval, (ask.risk, shipped().digest()), vec![9]);
    (world.task.plan, world.task.grants) = (Some(ask.hash), plan_grants(&open));
    assert_eq!(world.ask(prepared(Action::CallTool(irreversible))).risk, Risk::Irreversible);
}

/// Where only what is planned is done, a request without a plan is refused with a hint for the model; reading and
/// talking stay free.
///
/// Rows: SIL-001
#[test]
fn planned_execution_runs_and_writes_in_plans_alone() {
    let plan = of(vec![step(Action::Exec(exec()), Free::Nothing)]);
    let mut world = under(&plan, shipped(), &[1]);
    world.planned = true;
    let grant = world.decide(prepared(Action::Exec(exec()))).expect("planned");
    assert!(grant.approval().expect("it is used").plan.is_some(), "though no rule asks");
    let mut world = wide(shipped());
    world.planned = true;
    let overlay = WriteFile { place: Place::Overlay, ..project_write(&["a"]) };
    let saved = writ_types::action::Fetch { save_to: Some("x".into()), ..fetch("https://docs.example/b") };
    for action in [Action::Exec(exec()), Action::WriteFile(overlay), Action::Fetch(saved)] {
        let denial = world.denial(prepared(action));
        assert_eq!(denial.reason, DenyReason::Plan);
        assert!(denial.outside_text().contains("plan_propose"), "{}", denial.outside_text());
    }
    let own = Prepared { call: None, ..prepared(Action::Exec(exec())) };
    assert!(world.decide(own).is_ok(), "what no model requests needs no plan");
    let recall = writ_types::action::Recall { query: "x".into(), limit: 1 };
    assert!(world.decide(prepared(Action::Recall(recall))).is_ok());
}

/// What a gate wants a person to see is asked about in planned mode as well; what no step means is refused all the same.
#[test]
fn a_gate_that_asks_about_a_planned_step_is_answered_and_not_told_to_plan() {
    let plan = of(vec![step(Action::Exec(exec()), Free::Nothing)]);
    let mut world = under(&plan, shipped(), &[1]);
    world.planned = true;
    world.verdicts = Verdicts { gates: vec![("g".into(), GateVerdict::RequireApproval, "look".into())] };
    assert!(world.ask(prepared(Action::Exec(exec()))).rules.contains("gate g"));
    let other = Exec { argv: vec!["true".into(), "x".into()], ..exec() };
    assert_eq!(world.denial(prepared(Action::Exec(other))).reason, DenyReason::Plan);
}

/// A step that is open, and done very often or for very long, is no matter of a tap. Twins: as often as an approval for a task
/// covers, and as often as one likes where nothing is open.
#[test]
fn wide_open_steps_take_a_key() {
    let overlay = || Action::WriteFile(WriteFile { place: Place::Overlay, ..project_write(&["a"]) });
    let risk = |free, times, minutes| {
        let step = PlanStep { times, ..step(overlay(), free) };
        wide(shipped()).ask(prepared(Action::Plan(Plan { minutes, ..of(vec![step]) }))).risk
    };
    assert!(risk(Free::Content, 20, 60) < Risk::High && risk(Free::Nothing, 100, 480) < Risk::High);
    assert_eq!((risk(Free::Content, 21, 60), risk(Free::Content, 20, 61)), (Risk::High, Risk::High));
}

/// What is open and cannot be undone is asked about each time, and a plan says so beforehand.
#[test]
fn a_plan_says_which_step_asks_again() {
    let says = |risk, free| {
        let call = CallTool { risk, ..call_tool() };
        let plan = of(vec![step(Action::CallTool(call), free)]);
        let shown = ShownText::new(&prepared(Action::Plan(plan)), "").expect("short");
        shown.text().contains("each time: it cannot be undone")
    };
    assert!(says(Risk::Irreversible, Free::Content));
    assert!(!says(Risk::High, Free::Content) && !says(Risk::Irreversible, Free::Nothing));
}

/// What is left open is what stands in a file, not whether it is there, nor whether it may be run.
#[test]
fn open_content_deletes_nothing_and_makes_nothing_a_program() {
    let write = |kind, executable| {
        let mut write = WriteFile { place: Place::Overlay, ..project_write(&["a"]) };
        for change in &mut write.changes {
            (change.kind, change.executable) = (kind, executable);
        }
        Action::WriteFile(write)
    };
    let planned = step(write(ChangeKind::Modify, false), Free::Content);
    assert!(means_action(&planned, &prepared(write(ChangeKind::Create, false))));
    assert!(!means_action(&planned, &prepared(write(ChangeKind::Delete, false))));
    assert!(!means_action(&planned, &prepared(write(ChangeKind::Modify, true))));
    let program = step(write(ChangeKind::Modify, true), Free::Content);
    assert!(means_action(&program, &prepared(write(ChangeKind::Modify, true))));
}

#[test]
fn plans_that_nobody_could_read_or_keep_are_refused() {
    type Change = fn(&mut Plan);
    let bad: [(Change, &str); 9] = [
        (|plan| plan.title.clear(), "title"),
        (|plan| plan.title.push('\u{202e}'), "title"),
        (|plan| plan.title.push('\n'), "title"),
        (|plan| plan.steps.clear(), "steps"),
        (|plan| plan.minutes = MAX_MINUTES + 1, "minutes"),
        (|plan| plan.branch = Some("a\nb".into()), "branch"),
        (|plan| plan.steps[0].times = 0, "step 1"),
        (|plan| plan.steps[1].free = Free::Content, "step 2"),
        (|plan| plan.steps[0].action = Action::Plan(crate::fixture::plan()), "step 1"),
    ];
    let world = wide(shipped());
    for (change, says) in bad {
        let mut plan = plan();
        change(&mut plan);
        let denial = world.denial(prepared(Action::Plan(plan)));
        assert_eq!(denial.reason, DenyReason::Shape, "{says}");
        assert!(denial.text.contains(says), "{}", denial.text);
    }
    let titled = |chars: usize| check_plan(&Plan { title: "t".repeat(chars), ..plan() }).is_ok();
    assert!(titled(MAX_TITLE_CHARS) && !titled(MAX_TITLE_CHARS + 1));
    let branched = |name: &str| check_plan(&Plan { branch: Some(name.to_owned()), ..plan() }).is_ok();
    assert!(branched("b") && branched(&"b".repeat(MAX_BRANCH_CHARS)));
    assert!(!branched("") && !branched(&"b".repeat(MAX_BRANCH_CHARS + 1)));
    let naming = |hosts: Vec<String>| of(vec![step(Action::Exec(Exec { hosts, ..exec() }), Free::Nothing)]);
    let measured = |plan: &Plan| {
        let granted = plan_grants(plan);
        let values: Vec<usize> = granted.kinds.values().flatten().map(|(_, value)| value.len()).collect();
        (values.len(), values.iter().sum::<usize>())
    };
    let (others, other_bytes) = measured(&naming(Vec::new()));
    let hosts = |count: usize| naming((0..count).map(|n| format!("h{n:03}")).collect());
    assert_eq!(measured(&hosts(MAX_SCOPES - others)).0, MAX_SCOPES);
    assert!(
        check_plan(&hosts(MAX_SCOPES - others)).is_ok()
            && check_plan(&hosts(MAX_SCOPES - others + 1)).is_err()
    );
    let one = |bytes: usize| naming(vec!["h".repeat(bytes)]);
    assert_eq!(measured(&one(MAX_SCOPE_BYTES - other_bytes)).1, MAX_SCOPE_BYTES);
    assert!(
        check_plan(&one(MAX_SCOPE_BYTES - other_bytes)).is_ok()
            && check_plan(&one(MAX_SCOPE_BYTES - other_bytes + 1)).is_err()
    );
    let many = of(std::iter::repeat_n(plan().steps[0].clone(), MAX_STEPS + 1).collect());
    assert_eq!(world.denial(prepared(Action::Plan(many))).reason, DenyReason::Shape);
}

/// The card says every step in full, its limits, and what in it comes from outside.
#[test]
fn a_plan_is_shown_completely_with_what_comes_from_outside_marked() {
    let mut plan = of(vec![
        PlanStep {
            sinks: vec![("hosts".into(), "a.example".into())],
            ..step(reaching("a.example"), Free::Nothing)
        },
        step(Action::Fetch(fetch("https://docs.example/a")), Free::Page),
    ]);
    let label = tainted(Action::Exec(exec()), Taint::External).label;
    mark_external(&mut plan, &label, Some(&Origins::nothing()));
    assert_eq!(plan.steps[0].external, ["hosts".to_owned()].into());
    let words = Origins::new(["look at a.example please".to_owned()]);
    let mut known = plan.clone();
    mark_external(&mut known, &label, Some(&words));
    assert!(known.steps[0].external.is_empty());
    let shown = ShownText::new(&tainted(Action::Plan(plan), Taint::External), "").expect("short");
    for line in [
        "how long   30 minutes",
        "step       1 of 2, up to 2 times: exec",
        "hosts      a.example",
        "external   hosts comes from outside",
        "any page of the same host",
        "rests on   external",
    ] {
        assert!(shown.text().contains(line), "{line}\n{}", shown.text());
    }
}
