//! The door against a slow, plain model of it: written from the design, sharing none of the door's helpers.

use std::cell::Cell;
use std::sync::OnceLock;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use writ_types::action::{CallTool, Free, ModelCall, Plan, PlanStep};
use writ_types::chat::{ChatMessage, Field, Part, Role, ToolCall, ToolOutcome, ToolResult};
use writ_types::recipient::Recipient;
use writ_types::taint::Label;

use super::*;
use crate::approval::{Approval, Approver, Approvers, Expected, StandingTerms, TaskTerms, verify_all};
use crate::fixture::{AGENT, call_tool, key};
use crate::keys::limits::{AmountLimit, OperationLimits};
use crate::pattern;
use crate::plan::ApprovedPlan;
use crate::rules::{RuleSet, RuleSource};
use writ_inspect::reach::Reach;

/// An action with what the model must know of it, written by hand.
#[derive(Clone, Debug)]
struct Request {
    action: Action,
    touches: Vec<(Dimension, &'static str)>,
    leaves: bool,
    network: bool,
    memory: Option<(MemoryTrust, Taint)>,
    /// Tokens are counted and money may cost: `Some(ceiling)` for model calls.
    model: Option<Option<u64>>,
    /// How much harm a wrong yes could do.
    risk: Risk,
    /// How far it would reach, where the owner has listed nothing, docs.rs, or docs.rs as blocked.
    reach: [Reach; 3],
}

/// How far what names docs.rs would reach.
const DOCS: [Reach; 3] = [Reach::Unknown, Reach::Granted, Reach::Blocked];

impl Request {
    fn new(action: Action, touches: &[(Dimension, &'static str)], leaves: bool, risk: Risk) -> Self {
        let touches = touches.to_vec();
        let (network, memory, model) = (false, None, None);
        Self { action, touches, leaves, network, memory, model, risk, reach: [Reach::None; 3] }
    }
}

/// What reaches docs.rs, crates.io, which is a registry of packages, or both.
fn reaching() -> Vec<Request> {
    let (docs, crates) = ((Dimension::Host, "docs.rs"), (Dimension::Host, "crates.io"));
    let profile = (Dimension::Profile, "task");
    let program = |hosts: &[&str], touches: &[(Dimension, &'static str)], reach| {
        let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        let request = Request::new(Action::Exec(Exec { hosts, ..exec() }), touches, true, Risk::Medium);
        Request { network: true, reach, ..request }
    };
    let page = |fetch: Fetch, touches: &[(Dimension, &'static str)], reach| Request {
        reach,
        ..Request::new(Action::Fetch(fetch), touches, true, Risk::Medium)
    };
    let (post, saved) = (String::from("POST"), Some(String::from("a.txt")));
    let both = [Reach::Unknown, Reach::Known, Reach::Blocked];
    vec![
        program(&["docs.rs", "crates.io"], &[profile, docs, crates], both),
        program(&["crates.io"], &[profile, crates], [Reach::Known; 3]),
        page(fetch("https://crates.io/x"), &[crates], [Reach::Known; 3]),
        // A registry is there to be read.
        page(Fetch { method: post.clone(), ..fetch("https://crates.io/x") }, &[crates], [Reach::Unknown; 3]),
        page(Fetch { method: post, ..fetch("https://docs.rs/x") }, &[docs], DOCS),
        page(
            Fetch { save_to: saved, ..fetch("https://docs.rs/x") },
            &[docs, (Dimension::Path, "/work/a.txt")],
            DOCS,
        ),
    ]
}

fn requests() -> &'static [Request] {
    static REQUESTS: OnceLock<Vec<Request>> = OnceLock::new();
    REQUESTS.get_or_init(|| {
        let plain = Request::new;
        // A plan is decided step by step, which its own tests look at.
        let mut requests: Vec<Request> = samples()
            .into_iter()
            .filter(|sample| sample.action.kind() != ActionKind::Plan)
            .map(|sample| plain(sample.action, &sample.touches, sample.leaves, sample.risk))
            .collect();
        for request in &mut requests {
            if request.action.kind() == ActionKind::Remember {
                request.memory = Some((MemoryTrust::Working, Taint::External));
            }
            if request.action.kind() == ActionKind::ModelCall {
                request.model = Some(Some(10));
            }
            if [ActionKind::Fetch, ActionKind::Browse, ActionKind::Connect].contains(&request.action.kind()) {
                request.reach = DOCS;
            }
            if request.action.kind() == ActionKind::Search {
                // Whoever searches is the owner's word.
                request.reach = [Reach::Granted; 3];
            }
        }
        requests.extend(reaching());
        let touches = [
            (Dimension::Place, "project"),
            (Dimension::Path, "/home/me/p/a"),
            (Dimension::Path, "/home/me/q"),
        ];
        requests.push(plain(Action::WriteFile(project_write(&["a", "../q"])), &touches, true, Risk::Medium));
        let inside = WriteFile { place: Place::Overlay, root: "/work".into(), ..project_write(&["x/y"]) };
        let touches = [(Dimension::Place, "overlay"), (Dimension::Path, "/work/x/y")];
        requests.push(plain(Action::WriteFile(inside), &touches, false, Risk::Low));
        for (trust, noted) in [
            (MemoryTrust::Verified, Taint::Owner),
            (MemoryTrust::Working, Taint::Owner),
            (MemoryTrust::Verified, Taint::External),
        ] {
            let touches = [(Dimension::Memory, "session")];
            let request = plain(Action::Remember(remember(trust, noted)), &touches, false, Risk::Low);
            requests.push(Request { memory: Some((trust, noted)), ..request });
        }
        let touches = [(Dimension::Name, "crm/look")];
        requests.push(plain(
            Action::CallTool(CallTool { effect: false, sends: false, ..call_tool() }),
            &touches,
            true,
            Risk::Medium,
        ));
        let harmful = CallTool { risk: Risk::Irreversible, declared: true, ..call_tool() };
        requests.push(plain(Action::CallTool(harmful), &touches, true, Risk::Irreversible));
        requests.push(plain(
            Action::CallTool(CallTool { sends: false, ..call_tool() }),
            &touches,
            true,
            Risk::Medium,
        ));
        let by_name = CallTool { sends: false, named: vec!["to".into()], ..call_tool() };
        requests.push(plain(Action::CallTool(by_name), &touches, true, Risk::Medium));
        let harmful = CallTool { sends: false, declared: true, risk: Risk::High, ..call_tool() };
        requests.push(plain(Action::CallTool(harmful), &touches, true, Risk::High));
        let touches = [(Dimension::Provider, "local")];
        let unpriced = Request::new(
            Action::ModelCall(ModelCall { ceiling: None, ..model_call() }),
            &touches,
            false,
            Risk::Low,
        );
        requests.push(Request { model: Some(None), ..unpriced });
        requests
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuleSays {
    Permit,
    Ask,
    Forbid,
}

/// What rules may look at, for the model.
struct Seen<'a> {
    request: &'a Request,
    external: bool,
    preapproved: bool,
    reach: Reach,
    /// Whether it reads only, from where the owner or a field says.
    owned: bool,
}

type Meaning = fn(&Seen<'_>) -> RuleSays;

/// Rules, and what they mean.
struct Rules {
    set: RuleSet,
    says: Meaning,
    /// How much harm they say that a wrong yes could do, and how many people must say it, where they ask.
    asks: (Risk, usize),
}

/// The number of the shipped rules among the sets.
const SHIPPED: usize = 11;

fn rule_sets() -> &'static [Rules] {
    static RULES: OnceLock<Vec<Rules>> = OnceLock::new();
    RULES.get_or_init(|| {
        let all = PERMIT_ALL;
        let ask_all = r#"@id("ask") @ask("Sure?") forbid (principal, action, resource);"#;
        let table: Vec<(String, Meaning)> = vec![
            (all.to_owned(), |_| RuleSays::Permit),
            (String::new(), |_| RuleSays::Forbid),
            (ask_all.to_owned(), |_| RuleSays::Forbid),
            (format!("{all} {ask_all}"), |_| RuleSays::Ask),
            (
                format!("{all} @id(\"e\") forbid (principal, action, resource) when {{ context.taint == \"external\" }};"),
                |seen| if seen.external { RuleSays::Forbid } else { RuleSays::Permit },
            ),
            (
                format!("{all} @id(\"a\") @ask(\"?\") forbid (principal, action, resource) unless {{ context.preapproved }};"),
                |seen| if seen.preapproved { RuleSays::Permit } else { RuleSays::Ask },
            ),
            (
                format!(
                    "{all} {ask_all} @id(\"q\") forbid (principal, action, resource == Target::\"/home/me/q\");
                     @id(\"n\") forbid (principal, action, resource) when {{ context.network }};"
                ),
                |seen| {
                    let secret = seen.request.touches.contains(&(Dimension::Path, "/home/me/q"));
                    if secret || seen.request.network { RuleSays::Forbid } else { RuleSays::Ask }
                },
            ),
            (
                r#"@id("some") permit (principal, action in [Action::"exec", Action::"write_file", Action::"remember"], resource);"#
                    .to_owned(),
                |seen| {
                    let some = [ActionKind::Exec, ActionKind::WriteFile, ActionKind::Remember];
                    if some.contains(&seen.request.action.kind()) { RuleSays::Permit } else { RuleSays::Forbid }
                },
            ),
        ];
        let plainly = |(text, says): (String, Meaning)| Rules { set: rules(&text), says, asks: (Risk::Low, 1) };
        let asking = |words: &str, asks| {
            let text = format!("{all} @id(\"w\") @ask(\"Sure?\") {words} forbid (principal, action, resource);");
            Rules { set: rules(&text), says: |_| RuleSays::Ask, asks }
        };
        let mut sets: Vec<Rules> = table.into_iter().map(plainly).collect();
        sets.extend([
            asking("@risk(\"high\")", (Risk::High, 1)),
            asking("@risk(\"irreversible\")", (Risk::Irreversible, 1)),
            asking("@approvers(\"2\")", (Risk::Low, 2)),
        ]);
        assert_eq!(sets.len(), SHIPPED);
        let set = RuleSet::load_rules(&[RuleSource::shipped_rules()]).expect("the shipped rules are valid");
        sets.push(Rules { set, says: shipped_rules, asks: (Risk::Low, 1) });
        sets
    })
}

/// What the shipped rules mean, kind by kind.
fn shipped_rules(seen: &Seen<'_>) -> RuleSays {
    let unless = |free: bool| if free { RuleSays::Permit } else { RuleSays::Ask };
    let is_listed = matches!(seen.reach, Reach::Granted | Reach::Known);
    if seen.reach == Reach::Blocked {
        return RuleSays::Forbid;
    }
    let action = &seen.request.action;
    let is_of = |kinds: &[ActionKind]| kinds.contains(&action.kind());
    if is_of(&[ActionKind::Exec]) {
        return unless(!seen.request.network || is_listed);
    }
    if is_of(&[ActionKind::Fetch, ActionKind::Search]) {
        return unless(seen.owned || is_listed);
    }
    if is_of(&[ActionKind::Subscribe]) {
        // Nobody can be asked about it turn by turn.
        let free = seen.owned || is_listed || seen.reach == Reach::None;
        return if free { RuleSays::Permit } else { RuleSays::Forbid };
    }
    if let Action::WriteFile(write) = action {
        return unless(write.place == Place::Overlay || seen.preapproved);
    }
    if let Action::CallTool(call) = action {
        return unless((!call.effect || call.declared) && call.risk != Risk::Irreversible);
    }
    if let Action::SendFile(send) = action {
        return unless(send.to == Recipient::Owner);
    }
    if let Action::Remember(remember) = action {
        let lasts = seen.external && remember.trust != MemoryTrust::Working;
        return if lasts { RuleSays::Forbid } else { RuleSays::Permit };
    }
    if let Action::Say(say) = action {
        return if say.to == Recipient::Owner { RuleSays::Permit } else { RuleSays::Forbid };
    }
    // Whatever else the rules do not name is asked about, a new kind too.
    unless(is_of(&[ActionKind::ReadFile, ActionKind::Recall, ActionKind::ReadResult, ActionKind::ModelCall]))
}

/// What is wrong with one key, if anything.
#[derive(Clone, Copy, Debug)]
enum Flaw {
    None,
    Kind,
    /// The n-th thing that is touched lies outside.
    Place(usize),
    /// Everything is inside, by wider scopes.
    Wide,
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    None,
    Bad,
    /// By one person or by two.
    Given {
        deny: bool,
        other: bool,
        two: bool,
        ends: i64,
    },
    /// For something else that was shown, and for the task: perhaps for what is alike, perhaps at too low a risk.
    Task {
        alike: bool,
        low: bool,
        ends: i64,
    },
    /// A standing one, for something else that was shown, perhaps with a total where nothing is counted.
    Standing {
        alike: bool,
        low: bool,
        total: bool,
        ends: i64,
    },
}

/// What the one sink of an action is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Owner,
    Field,
    /// A field that a text from outside points at.
    Chosen,
    /// A field of a record beside those that the owner has named.
    Beside,
    Nobody,
}

/// What is known of the values in an action.
#[derive(Clone, Copy, Debug)]
struct Values {
    sink: Of,
    /// Whether its tool was used before anything was read from outside.
    used: bool,
    outside: bool,
    private: bool,
    /// Whether whoever a sink names can read what is private, and whether the model was told more than that.
    readers: bool,
    confided: bool,
    /// Whether the model reads what another server says of its tools.
    told: bool,
    strict: bool,
}

/// A plan that a person has approved, of one step.
#[derive(Clone, Copy, Debug)]
struct InPlan {
    /// Whether its step is the action, and whether it may still be done.
    means: bool,
    left: bool,
    /// Whether the task key is that of the plan.
    own: bool,
    /// The risk that its card has shown.
    risk: Risk,
    ends: i64,
}

/// What the task key and its base key say of operations.
#[derive(Clone, Copy, Debug)]
struct Operations {
    another_case: bool,
    /// The most that a refund may be: of the base key, of the task key. That of the sample is 100.
    most: [Option<i64>; 2],
}

#[derive(Clone, Debug)]
struct Case {
    values: Values,
    /// What the owner has listed: nothing, docs.rs, or docs.rs as blocked.
    listed: usize,
    /// Whether it was begun before, and nobody knows whether it was done.
    lost: bool,
    /// Whether what runs and writes must be planned.
    planned: bool,
    plan: Option<InPlan>,
    operations: Operations,
    request: usize,
    taint: Taint,
    flaws: [Flaw; 2],
    binding: [bool; 3],
    revoked: u8,
    now: i64,
    ends: [i64; 2],
    preapproved: [bool; 2],
    gates: Vec<GateVerdict>,
    rules: usize,
    by_model: bool,
    calls: u64,
    tokens: [u64; 2],
    costs: [Option<u64>; 4],
    answer: Answer,
}

/// True once in about `n`.
fn seldom(n: u32) -> impl Strategy<Value = bool> {
    (0..n).prop_map(|drawn| drawn == 0)
}

fn flaw() -> impl Strategy<Value = Flaw> {
    prop_oneof![
        20 => Just(Flaw::None),
        6 => Just(Flaw::Wide),
        1 => Just(Flaw::Kind),
        2 => (0..3_usize).prop_map(Flaw::Place),
    ]
}

fn answer() -> impl Strategy<Value = Answer> {
    prop_oneof![
        5 => Just(Answer::None),
        1 => Just(Answer::Bad),
        3 => (seldom(4), seldom(4), prop_oneof![8 => Just(100_000_i64), 1 => 1..200_i64])
            .prop_map(|(unlike, low, ends)| Answer::Task { alike: !unlike, low, ends }),
        3 => (seldom(4), seldom(4), seldom(6), prop_oneof![8 => Just(100_000_i64), 1 => 1..200_i64])
            .prop_map(|(unlike, low, total, ends)| Answer::Standing { alike: !unlike, low, total, ends }),
        6 => (seldom(6), seldom(6), any::<bool>(), prop_oneof![8 => Just(100_000_i64), 1 => 1..200_i64])
            .prop_map(|(deny, other, two, ends)| Answer::Given { deny, other, two, ends }),
    ]
}

fn plan() -> impl Strategy<Value = Option<InPlan>> {
    let risk = prop_oneof![
        1 => Just(Risk::Low),
        3 => Just(Risk::Medium),
        1 => Just(Risk::High),
        1 => Just(Risk::Irreversible),
    ];
    let ends = prop_oneof![8 => Just(100_000_i64), 1 => 1..200_i64];
    let plan =
        (seldom(5), seldom(6), seldom(6), risk, ends).prop_map(|(another, used, foreign, risk, ends)| {
            InPlan { means: !another, left: !used, own: !foreign, risk, ends }
        });
    prop_oneof![3 => Just(None), 1 => plan.prop_map(Some)]
}

fn operations() -> impl Strategy<Value = Operations> {
    let most =
        || prop_oneof![2 => Just(None), 1 => Just(Some(99)), 2 => Just(Some(100)), 2 => Just(Some(500))];
    (seldom(6), [most(), most()]).prop_map(|(another_case, most)| Operations { another_case, most })
}

fn cases() -> impl Strategy<Value = Case> {
    let taint = prop_oneof![Just(Taint::Owner), Just(Taint::Auth), Just(Taint::External)];
    let gate = prop_oneof![8 => Just(GateVerdict::Pass), 2 => Just(GateVerdict::Transform), 1 => Just(GateVerdict::Block),
        1 => Just(GateVerdict::Advise), 1 => Just(GateVerdict::RequireApproval), 1 => Just(GateVerdict::Halt)];
    let ends = || prop_oneof![6 => Just(100_000_i64), 1 => 1..200_i64];
    let cost = || prop_oneof![4 => Just(None), 1 => (0..30_u64).prop_map(Some)];
    let keys = (
        [flaw(), flaw()],
        [seldom(25), seldom(25), seldom(25)],
        0..25_u8,
        prop_oneof![1 => -2..0_i64, 12 => 0..200_i64],
        [ends(), ends()],
        any::<[bool; 2]>(),
    );
    let rest = (
        proptest::collection::vec(gate, 0..3),
        prop_oneof![3 => Just(0), 3 => Just(3), 5 => 0..SHIPPED, 4 => Just(SHIPPED)],
        any::<bool>(),
        prop_oneof![6 => 0..20_u64, 1 => 19..22_u64],
        [prop_oneof![6 => Just(0_u64), 1 => 98..102_u64], prop_oneof![6 => Just(0_u64), 1 => 198..202_u64]],
        [cost(), cost(), cost(), cost()],
        answer(),
    );
    let sink = prop_oneof![2 => Just(Of::Owner), 2 => Just(Of::Field), 1 => Just(Of::Chosen), 1 => Just(Of::Beside), 2 => Just(Of::Nobody)];
    let values = (sink, any::<[bool; 6]>(), seldom(5)).prop_map(|(sink, drawn, strict)| {
        let [used, outside, private, readers, confided, told] = drawn;
        Values { sink, used, outside, private, readers, confided, told, strict }
    });
    let request = prop_oneof![3 => 0..requests().len(), 1 => of_values()];
    let beyond = (0..3_usize, seldom(3), seldom(6), plan(), operations());
    (request, taint, keys, rest, values, beyond).prop_map(|(request, taint, keys, rest, values, beyond)| {
        let (listed, planned, lost, plan, operations) = beyond;
        let (flaws, binding, revoked, now, ends, preapproved) = keys;
        let (gates, rules, by_model, calls, tokens, costs, answer) = rest;
        Case {
            values,
            listed,
            lost,
            planned,
            plan,
            operations,
            request,
            taint,
            flaws,
            binding,
            revoked,
            now,
            ends,
            preapproved,
            gates,
            rules,
            by_model,
            calls,
            tokens,
            costs,
            answer,
        }
    })
}

/// What was spent of each of the four money limits before: call, turn, session, day.
const SPENT: [u64; 4] = [0, 5, 10, 15];

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Grant { with_approval: bool },
    Ask,
    Deny,
}

/// Whether the keys grant it, here and now.
fn is_granted(case: &Case) -> bool {
    let request = &requests()[case.request];
    let covered = case.flaws.iter().all(|flaw| match flaw {
        Flaw::None | Flaw::Wide => true,
        Flaw::Kind => false,
        Flaw::Place(n) => *n >= request.touches.len(),
    });
    let own = case.binding == [false, false, false];
    let unrevoked = case.revoked > 1;
    let in_time = case.now >= 0 && case.now < case.ends[0] && case.now < case.ends[1];
    let Operations { another_case, most } = case.operations;
    let refunds = !another_case && most.iter().all(|most| most.is_none_or(|most| 100 <= most));
    let in_limits = request.action.kind() != ActionKind::Operate || refunds;
    covered && own && unrevoked && in_time && in_limits
}

/// Whether what was spent and what it may cost leave room for it.
fn is_affordable(case: &Case) -> bool {
    let Some(price) = requests()[case.request].model else { return !case.by_model || case.calls < 20 };
    let limits = case.costs.iter().zip(SPENT);
    let mut money = limits.map(|(limit, spent)| match (limit, price) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(limit), Some(price)) => spent + price <= *limit,
    });
    case.tokens[0] < 100 && case.tokens[1] < 200 && money.all(|one| one)
}

/// Whether a memory would be noted as better than what it rests on.
fn is_laundered(request: &Request, taint: Taint) -> bool {
    let Some((trust, noted)) = request.memory else { return false };
    let cleaner = match (noted, taint) {
        (Taint::Owner, Taint::Auth | Taint::External) | (Taint::Auth, Taint::External) => true,
        (Taint::Owner | Taint::Auth | Taint::External, _) => false,
    };
    cleaner || (trust != MemoryTrust::Working && noted == Taint::External)
}

/// The model: everything that must hold, in plain words.
fn model(case: &Case) -> Outcome {
    let request = &requests()[case.request];
    let (external, reach) = (case.taint == Taint::External, request.reach[case.listed]);
    let stopped = [GateVerdict::Block, GateVerdict::Halt].iter().any(|no| case.gates.contains(no));
    if !is_granted(case) || stopped {
        return Outcome::Deny;
    }
    let preapproved = case.preapproved[1];
    let owned = reads(&request.action) && case.values.sink != Of::Nobody;
    let rules = &rule_sets()[case.rules];
    let (by_rules, (raised, people)) =
        match (rules.says)(&Seen { request, external, preapproved, reach, owned }) {
            RuleSays::Forbid => return Outcome::Deny,
            RuleSays::Ask => (true, rules.asks),
            RuleSays::Permit => (false, (Risk::Low, 1)),
        };
    if is_laundered(request, case.taint) || !is_affordable(case) {
        return Outcome::Deny;
    }
    let foreign = external && request.leaves && !excused(request, case.values, reach);
    let by_labels = foreign || (!external && is_ordered(request, case.values));
    let by_labels = by_labels && request.memory.is_none() && !preapproved;
    let by_gate = case.gates.contains(&GateVerdict::RequireApproval);
    let by_doubt = case.lost && case.by_model && leaves_something(&request.action);
    let asked = Asked {
        asks: by_rules || by_labels || by_gate || by_doubt,
        this_once: by_gate || by_doubt,
        risk: request.risk.max(raised),
        people,
        unplanned: case.planned && case.by_model && is_to_be_planned(&request.action),
    };
    if !asked.asks && !asked.unplanned {
        return Outcome::Grant { with_approval: false };
    }
    if case.plan.is_some_and(|plan| is_in_plan(plan, case.now, &asked)) {
        return Outcome::Grant { with_approval: true };
    }
    answer_to(case, &asked)
}

/// What is asked about an action, and by whom.
struct Asked {
    asks: bool,
    /// Whether a gate has seen just this, or it may have been done already.
    this_once: bool,
    risk: Risk,
    people: usize,
    /// Whether there must be a plan that it belongs to.
    unplanned: bool,
}

/// Whether an approved plan covers it. What a gate has seen, what may be done already, and what more people must approve, it does not.
fn is_in_plan(plan: InPlan, now: i64, asked: &Asked) -> bool {
    let in_force = plan.own && now < plan.ends;
    plan.means && plan.left && in_force && asked.risk <= plan.risk && asked.people == 1 && !asked.this_once
}

/// What comes of a question, or of what no plan covers.
fn answer_to(case: &Case, asked: &Asked) -> Outcome {
    let (request, now) = (&requests()[case.request], case.now);
    let in_some_plan = case.plan.is_some_and(|plan| plan.means && plan.left);
    // What no plan means is not asked about either.
    let is_shown = asked.asks && (!asked.unplanned || in_some_plan);
    // What can be offered beside a plain yes.
    let has_more = is_shown && asked.people == 1 && asked.risk < Risk::Irreversible && !asked.this_once;
    let covers = |low: bool| has_more && asked.risk <= if low { Risk::Low } else { Risk::Medium };
    let granted = match case.answer {
        Answer::None if is_shown => return Outcome::Ask,
        Answer::None | Answer::Bad => false,
        Answer::Given { deny, other, two, ends } => {
            !deny && !other && (two || asked.people == 1) && now < ends
        }
        Answer::Task { alike, low, ends } => alike && covers(low) && has_likes(&request.action) && now < ends,
        Answer::Standing { alike, low, total, ends } => {
            alike && covers(low) && recurs(&request.action, case.taint) && !total && now < ends
        }
    };
    if granted { Outcome::Grant { with_approval: true } } else { Outcome::Deny }
}

/// What is done in an approved plan alone, where the owner wants plans: programs, files, pages that are saved or driven.
fn is_to_be_planned(action: &Action) -> bool {
    let saves = |fetch: &Fetch| fetch.save_to.is_some();
    matches!(action, Action::Exec(_) | Action::Browse(_))
        || matches!(action, Action::WriteFile(write) if write.place == Place::Overlay)
        || matches!(action, Action::Fetch(fetch) if saves(fetch))
}

/// Whether doing it twice may do more than doing it once: reading, talking, thinking and searching do not.
fn leaves_something(action: &Action) -> bool {
    let reads = [
        ActionKind::ReadFile,
        ActionKind::Recall,
        ActionKind::ReadResult,
        ActionKind::Say,
        ActionKind::ModelCall,
        ActionKind::Search,
        ActionKind::Connect,
        // Written down together with its end.
        ActionKind::Remember,
    ];
    !reads.contains(&action.kind()) && !matches!(action, Action::CallTool(call) if !call.effect)
}

/// Whether it asks for something, and sends nothing but where it is.
fn reads(action: &Action) -> bool {
    matches!(action, Action::Fetch(fetch) if fetch.method == "GET" && fetch.body.is_none())
        || matches!(action, Action::Search(_))
}

/// The actions whose values matter, drawn more often than others.
fn of_values() -> impl Strategy<Value = usize> {
    let matters = |request: &Request| {
        matches!(
            request.action,
            Action::CallTool(_) | Action::Fetch(_) | Action::Search(_) | Action::Exec(_) | Action::Operate(_)
        )
    };
    let chosen: Vec<usize> = (0..requests().len()).filter(|n| matters(&requests()[*n])).collect();
    proptest::sample::select(chosen)
}

/// Whether where its values come from excuses an action that rests on external content.
fn excused(request: &Request, values: Values, reach: Reach) -> bool {
    let known = values.sink != Of::Nobody;
    if matches!(request.action, Action::Exec(_)) {
        return matches!(reach, Reach::Granted | Reach::Known);
    }
    if values.strict {
        return false;
    }
    if let Action::CallTool(call) = &request.action {
        let another_tool = call.effect && values.outside && !values.used;
        let of_result = values.sink != Of::Owner;
        let knows = values.readers && !values.confided;
        let to_strangers = call.sends && values.private && of_result && !knows;
        let harmful = call.effect && call.risk >= Risk::High && of_result;
        let chosen = call.effect && values.sink == Of::Chosen;
        let unnamed = !call.named.is_empty() && values.sink == Of::Beside;
        return known && !another_tool && !to_strangers && !harmful && !chosen && !unnamed;
    }
    if let Action::Fetch(fetch) = &request.action {
        return fetch.method == "GET" && fetch.body.is_none() && known;
    }
    known && matches!(request.action, Action::Search(_))
}

/// Whether a call may do what another server's words about its tools order.
fn is_ordered(request: &Request, values: Values) -> bool {
    let Action::CallTool(call) = &request.action else { return false };
    let composed = call.effect && values.sink == Of::Nobody;
    let strictly = values.strict && (call.effect || values.sink != Of::Owner);
    values.told && (composed || strictly)
}

/// Whether there can be an approval for what is like it: changes of a project, commands.
fn has_likes(action: &Action) -> bool {
    let changes = |write: &WriteFile| write.place == Place::Project && write.content.is_none();
    action.kind() == ActionKind::Exec || matches!(action, Action::WriteFile(write) if changes(write))
}

/// Whether there can be a standing approval for it: the same command, the same page, the same call with other content,
/// which nobody outside may have written.
fn recurs(action: &Action, taint: Taint) -> bool {
    if let Action::Fetch(fetch) = action {
        return fetch.body.is_none() && fetch.method == "GET" && fetch.save_to.is_none();
    }
    if let Action::CallTool(call) = action {
        return !call.sends || taint != Taint::External;
    }
    matches!(action, Action::Exec(_))
}

fn granted(case: &Case, flaw: Flaw, most: Option<i64>) -> Grants {
    let request = &requests()[case.request];
    let kind = request.action.kind();
    let mut grants = Grants::default().allow_kind(ActionKind::Recall, [(Dimension::Memory, "session")]);
    if let Some(max) = most.filter(|_| kind == ActionKind::Operate) {
        let amounts = [("amount".to_owned(), AmountLimit { min: 1, max, daily: None })].into();
        grants.limits.insert("refund".to_owned(), OperationLimits { amounts, ..OperationLimits::default() });
    }
    if !matches!(flaw, Flaw::Kind) {
        let mut scopes: Vec<(Dimension, String)> =
            request.touches.iter().map(|(dimension, value)| (*dimension, (*value).to_owned())).collect();
        match flaw {
            Flaw::Place(n) if n < scopes.len() => {
                // Another scope of the same value in another dimension, or nearly the same, must not help.
                let (dimension, value) = scopes.remove(n);
                let elsewhere =
                    if dimension == Dimension::Name { Dimension::Recipient } else { Dimension::Name };
                scopes.push((elsewhere, value.clone()));
                scopes.push((dimension, format!("{value}/deeper")));
            }
            Flaw::Wide => {
                for (dimension, value) in &mut scopes {
                    *value = match (*dimension, value.as_str()) {
                        (Dimension::Path, path) if path.starts_with("/home/me") => "/home/me".to_owned(),
                        (_, _) => "*".to_owned(),
                    };
                }
            }
            Flaw::None | Flaw::Kind | Flaw::Place(_) => {}
        }
        let scopes: Vec<(Dimension, &str)> = scopes.iter().map(|(d, value)| (*d, value.as_str())).collect();
        grants = grants.allow_kind(kind, scopes);
        if kind == ActionKind::Recall && matches!(flaw, Flaw::Place(0)) {
            grants.kinds.entry(kind).or_default().remove(&(Dimension::Memory, "session".to_owned()));
        }
    } else {
        grants.kinds.remove(&kind);
    }
    grants
}

fn answered(world: &World, answer: Answer, prepared: &Prepared) -> Option<Result<Approval, ApprovalError>> {
    let hash = prepared.hash(world.rules.digest()).expect("canonical");
    match answer {
        Answer::Task { alike, low, ends } => {
            // What a card would have offered for one that is alike.
            let own = match world.decide(prepared.clone()) {
                Err(DoorStop::Ask(ask)) => ask.pattern.filter(|_| alike),
                Ok(_) | Err(DoorStop::Deny(_)) => None,
            };
            let own = own.map(|pattern| pattern::pattern_digest(&pattern).expect("canonical"));
            let pattern = own.unwrap_or_else(|| Digest::of_bytes(b"another pattern"));
            let risk = if low { Risk::Low } else { Risk::Medium };
            let task = Some(TaskTerms { pattern, risk, uses: 20, standing: None });
            let shown = Digest::of_bytes(b"something else");
            Some(Ok(approved(ApprovalClaims { task, expires_at: later(ends), ..claims(shown) })))
        }
        Answer::Standing { alike, low, total, ends } => {
            let own = match world.decide(prepared.clone()) {
                Err(DoorStop::Ask(ask)) => ask.recurring.into_iter().next().filter(|_| alike),
                Ok(_) | Err(DoorStop::Deny(_)) => None,
            };
            let own = own.map(|recurring| pattern::pattern_digest(&recurring.pattern).expect("canonical"));
            let pattern = own.unwrap_or_else(|| Digest::of_bytes(b"another pattern"));
            let risk = if low { Risk::Low } else { Risk::Medium };
            let total = total.then(|| "5".parse().expect("an amount"));
            let standing = Some(StandingTerms { secs: 600, total });
            let task = Some(TaskTerms { pattern, risk, uses: 20, standing });
            let shown = Digest::of_bytes(b"something else");
            Some(Ok(approved(ApprovalClaims { task, expires_at: later(ends), ..claims(shown) })))
        }
        Answer::None => None,
        Answer::Bad => Some(Err(ApprovalError::Signature)),
        Answer::Given { deny, other, two, ends } => {
            let hash = if other { Digest::of_bytes(b"something else") } else { hash };
            let decision = if deny { Decision::Deny } else { Decision::Approve };
            let claims = ApprovalClaims { decision, expires_at: later(ends), ..claims(hash) };
            Some(Ok(if two { approved_by_two(claims) } else { approved(claims) }))
        }
    }
}

/// A verified answer that two people have signed.
fn approved_by_two(claims: ApprovalClaims) -> Approval {
    let other = key(77);
    let public = hex::encode(other.verifying_key().as_bytes());
    let mut who: Approvers = approvers();
    who.keys.insert(public.clone(), other.verifying_key());
    let wanted = Expected { approvers: 2, ..expected(&claims) };
    let approver = Approver::Key { public };
    let second = ApprovalClaims { approver, nonce: "ab".repeat(16), ..claims.clone() };
    let tokens = [signed(claims), ApprovalToken::sign_claims(second, &other).expect("signs")];
    verify_all(&tokens, &wanted, &who, NOW).expect("verifies")
}

/// The hash of an approved plan, and the plan as it is in force.
fn in_force(world: &World, plan: InPlan, requested: &Prepared) -> (Digest, ApprovedPlan) {
    let sinks = requested.sinks.iter().map(|sink| (sink.argument.clone(), sink.value.clone())).collect();
    let step = PlanStep {
        tool: if plan.means { requested.tool.clone() } else { "another_tool".to_owned() },
        action: requested.action.clone(),
        sinks,
        bindings: requested.bindings.clone(),
        times: 2,
        free: Free::Nothing,
        external: BTreeSet::new(),
        slots: Default::default(),
    };
    let whole = Plan {
        title: "tidy up".into(),
        steps: vec![step],
        minutes: 30,
        max_cost: None,
        branch: None,
        work: None,
    };
    let (whole, policy) = (prepared(Action::Plan(whole)), world.rules.digest());
    let hash = whole.hash(policy).expect("canonical");
    let approval = approved(ApprovalClaims { expires_at: later(plan.ends), ..claims(hash) });
    let left = vec![u32::from(plan.left)];
    (hash, ApprovedPlan::new(&whole, &approval, (plan.risk, policy), left).expect("it was approved"))
}

fn door(case: &Case) -> Outcome {
    let request = &requests()[case.request];
    let rules = &rule_sets()[case.rules].set;
    let mut world = World::new(rules);
    let kind = request.action.kind();
    world.base.grants = granted(case, case.flaws[0], case.operations.most[0]);
    world.task.grants = granted(case, case.flaws[1], case.operations.most[1]);
    if case.operations.another_case {
        world.task.case =
            Some(crate::keys::Case { customer: "cust_tk_other".into(), ..crate::fixture::case() });
    }
    let docs = || vec!["docs.rs".parse().expect("a pattern")];
    match case.listed {
        0 => {}
        1 => world.egress.allowed = docs(),
        _ => world.egress.blocked = docs(),
    }
    (world.planned, world.lost) = (case.planned, case.lost);
    if case.preapproved[0] {
        world.base.grants = world.base.grants.preapprove_kind(kind);
    }
    if case.preapproved[1] {
        world.task.grants = world.task.grants.preapprove_kind(kind);
    }
    (world.base.expires_at, world.task.expires_at) = (later(case.ends[0]), later(case.ends[1]));
    world.now = later(case.now);
    world.revoked = match case.revoked {
        0 => [world.base.key.to_string()].into(),
        1 => [world.task.key.to_string()].into(),
        2 => ["somebody else's".to_owned()].into(),
        _ => BTreeSet::new(),
    };
    world.verdicts.gates = case.gates.iter().map(|verdict| gate(*verdict)).collect();
    let (limits, spent) = (&mut world.budget.limits, &mut world.budget.spent);
    (limits.max_tokens_per_session, limits.max_tokens_per_day) = (Tokens::new(100), Tokens::new(200));
    (spent.session_tokens, spent.day_tokens) = (Tokens::new(case.tokens[0]), Tokens::new(case.tokens[1]));
    spent.turn_tool_calls = case.calls;
    let money = case.costs.map(|limit| limit.map(MicroUsd::new));
    [
        limits.max_cost_per_call,
        limits.max_cost_per_turn,
        limits.max_cost_per_session,
        limits.max_cost_per_day,
    ] = money;
    [_, spent.turn_cost, spent.session_cost, spent.day_cost] = SPENT.map(MicroUsd::new);

    let mut prepared = tainted(request.action.clone(), case.taint);
    (world.origins, world.strict) = (origins(case.values), case.values.strict);
    let value = match case.values.sink {
        Of::Owner => "ann@example.org",
        Of::Field => "f-17",
        Of::Chosen => "f-18",
        Of::Beside => "f-19",
        Of::Nobody => "eve@evil.test",
    };
    if case.values.readers {
        prepared.label = prepared.label.read_by([value.to_owned()]);
    }
    prepared.sinks = vec![Sink { argument: "to".into(), value: value.into() }];
    prepared.tool = "crm__look".into();
    (prepared.label.outside, prepared.label.private) = (case.values.outside, case.values.private);
    let [another_agent, another_session, no_session] = case.binding;
    prepared.agent = if another_agent { "somebody".into() } else { AGENT.into() };
    if another_session {
        prepared.session = Some(session(2));
    }
    if no_session {
        prepared.session = None;
    }
    if !case.by_model {
        prepared.call = None;
    }
    if let Some(plan) = case.plan {
        let (hash, in_force) = in_force(&world, plan, &prepared);
        world.plan = Some(in_force);
        world.task.plan = plan.own.then_some(hash);
    }
    world.approval = answered(&world, case.answer, &prepared);
    match world.decide(prepared) {
        Ok(grant) => Outcome::Grant { with_approval: grant.approval().is_some() },
        Err(DoorStop::Ask(_)) => Outcome::Ask,
        Err(DoorStop::Deny(_)) => Outcome::Deny,
    }
}

/// What a conversation shows in which these values are known.
fn origins(values: Values) -> Origins {
    let name = if values.used { "crm__look" } else { "crm__list" };
    let call = ToolCall { id: "1".into(), name: name.into(), arguments: serde_json::json!({}) };
    let records = [("f-17", "garden"), ("f-18", "gardens"), ("f-19", "taxes")];
    let fields = Field::fields_of(&serde_json::json!(
        records.map(|(to, of)| serde_json::json!({ "to": to, "of": of }))
    ));
    let (outcome, label) = (ToolOutcome::Done, Label::new(Taint::External).mark_public());
    let result = ToolResult {
        call_id: "1".into(),
        name: name.into(),
        outcome,
        text: String::new(),
        label: label.clone(),
        fields,
        kept: None,
    };
    let chosen = vec![Part::Text { text: "Take f-18.".into() }];
    let chosen = ChatMessage { role: Role::User, parts: chosen, label: label.clone() };
    let asked =
        ChatMessage { role: Role::Assistant, parts: vec![Part::Call(call)], label: Label::new(Taint::Owner) };
    let told = ChatMessage { role: Role::Tool, parts: vec![Part::Result(result)], label };
    let mut origins = Origins::new(["tell ann@example.org of the garden".to_owned()]);
    origins.read_messages(&[asked, told, chosen]);
    if values.confided {
        origins.note_private_reading();
    }
    if values.told {
        origins.add_unvouched_server("shop");
    }
    origins.add_unvouched_server("crm");
    origins
}

/// A number of the environment, for whoever looks for longer or again; `otherwise` in every usual run.
#[expect(clippy::disallowed_methods, reason = "the task that soaks the door says so")]
fn number(name: &str, otherwise: u64) -> u64 {
    let Some(text) = std::env::var_os(name) else { return otherwise };
    text.to_str().and_then(|text| text.parse().ok()).expect("a number")
}

/// The door allows nothing that the model forbids, and forbids nothing that it allows.
///
/// `cargo xtask soak --model` runs it with a seed of chance and many more cases.
#[test]
fn the_door_agrees_with_the_model() {
    let seed = number("WRIT_MODEL_SEED", u64::from_le_bytes([7; 8]));
    let count = u32::try_from(number("WRIT_MODEL_CASES", 800)).expect("a small number");
    let seen = [const { Cell::new(0_u32) }; 4];
    let config = Config { cases: count, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed.to_le_bytes(); 4].concat());
    let result = TestRunner::new_with_rng(config, rng).run(&cases(), |case| {
        let expected = model(&case);
        let n = match expected {
            Outcome::Grant { with_approval: false } => 0,
            Outcome::Grant { with_approval: true } => 1,
            Outcome::Ask => 2,
            Outcome::Deny => 3,
        };
        seen[n].set(seen[n].get() + 1);
        prop_assert_eq!(door(&case), expected);
        Ok(())
    });
    if let Err(found) = result {
        panic!("seed {seed}, {count} cases: {found}");
    }
    let seen = seen.map(|count| count.get());
    // Fewer cases say little of how they lie.
    let enough = count < 400 || seen.iter().all(|seen| *seen >= count / 40);
    assert!(enough, "seed {seed}, {count} cases: they are lopsided: {seen:?}");
}
