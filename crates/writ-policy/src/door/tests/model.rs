//! The door against a slow, plain model of it: written from the design, sharing none of the door's helpers.

use std::cell::Cell;
use std::sync::OnceLock;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use writ_types::action::{CallTool, ModelCall};
use writ_types::chat::{ChatMessage, Field, Part, Role, ToolCall, ToolOutcome, ToolResult};
use writ_types::taint::Label;

use super::*;
use crate::approval::{Approval, StandingTerms, TaskTerms};
use crate::fixture::{AGENT, call_tool};
use crate::pattern;
use crate::rules::RuleSet;

/// An action with what the model must know of it, written by hand.
#[derive(Clone, Debug)]
struct Wish {
    action: Action,
    touches: Vec<(Dimension, &'static str)>,
    leaves: bool,
    network: bool,
    memory: Option<(MemoryTrust, Taint)>,
    /// Tokens are counted and money may cost: `Some(ceiling)` for model calls.
    model: Option<Option<u64>>,
}

fn wishes() -> &'static [Wish] {
    static WISHES: OnceLock<Vec<Wish>> = OnceLock::new();
    WISHES.get_or_init(|| {
        let plain = |action: Action, touches: &[(Dimension, &'static str)], leaves| Wish {
            action,
            touches: touches.to_vec(),
            leaves,
            network: false,
            memory: None,
            model: None,
        };
        // A plan is decided step by step, which its own tests look at.
        let mut wishes: Vec<Wish> = samples()
            .into_iter()
            .filter(|sample| sample.action.kind() != ActionKind::Plan)
            .map(|sample| plain(sample.action, &sample.touches, sample.leaves))
            .collect();
        for wish in &mut wishes {
            if wish.action.kind() == ActionKind::Remember {
                wish.memory = Some((MemoryTrust::Working, Taint::External));
            }
            if wish.action.kind() == ActionKind::ModelCall {
                wish.model = Some(Some(10));
            }
        }
        let hosts = vec!["docs.rs".to_owned(), "crates.io".to_owned()];
        let touches =
            [(Dimension::Profile, "task"), (Dimension::Host, "docs.rs"), (Dimension::Host, "crates.io")];
        wishes.push(Wish { network: true, ..plain(Action::Exec(Exec { hosts, ..exec() }), &touches, true) });
        let touches = [
            (Dimension::Place, "project"),
            (Dimension::Path, "/home/me/p/a"),
            (Dimension::Path, "/home/me/q"),
        ];
        wishes.push(plain(Action::WriteFile(project_write(&["a", "../q"])), &touches, true));
        let inside = WriteFile { place: Place::Overlay, root: "/work".into(), ..project_write(&["x/y"]) };
        let touches = [(Dimension::Place, "overlay"), (Dimension::Path, "/work/x/y")];
        wishes.push(plain(Action::WriteFile(inside), &touches, false));
        for (trust, noted) in [
            (MemoryTrust::Verified, Taint::Owner),
            (MemoryTrust::Working, Taint::Owner),
            (MemoryTrust::Verified, Taint::External),
        ] {
            let touches = [(Dimension::Memory, "session")];
            let wish = plain(Action::Remember(remember(trust, noted)), &touches, false);
            wishes.push(Wish { memory: Some((trust, noted)), ..wish });
        }
        let touches = [(Dimension::Name, "crm/look")];
        wishes.push(plain(
            Action::CallTool(CallTool { effect: false, sends: false, ..call_tool() }),
            &touches,
            true,
        ));
        wishes.push(plain(Action::CallTool(CallTool { sends: false, ..call_tool() }), &touches, true));
        let by_name = CallTool { sends: false, named: vec!["to".into()], ..call_tool() };
        wishes.push(plain(Action::CallTool(by_name), &touches, true));
        let harmful = CallTool { sends: false, declared: true, risk: Risk::High, ..call_tool() };
        wishes.push(plain(Action::CallTool(harmful), &touches, true));
        let touches = [(Dimension::Provider, "local")];
        let unpriced = plain(Action::ModelCall(ModelCall { ceiling: None, ..model_call() }), &touches, false);
        wishes.push(Wish { model: Some(None), ..unpriced });
        wishes
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
    wish: &'a Wish,
    external: bool,
    preapproved: bool,
}

type Meaning = fn(&Seen<'_>) -> RuleSays;

/// Rules, and what they mean.
fn rule_sets() -> &'static [(RuleSet, Meaning)] {
    static RULES: OnceLock<Vec<(RuleSet, Meaning)>> = OnceLock::new();
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
                    let secret = seen.wish.touches.contains(&(Dimension::Path, "/home/me/q"));
                    if secret || seen.wish.network { RuleSays::Forbid } else { RuleSays::Ask }
                },
            ),
            (
                r#"@id("some") permit (principal, action in [Action::"exec", Action::"write_file", Action::"remember"], resource);"#
                    .to_owned(),
                |seen| {
                    let some = [ActionKind::Exec, ActionKind::WriteFile, ActionKind::Remember];
                    if some.contains(&seen.wish.action.kind()) { RuleSays::Permit } else { RuleSays::Forbid }
                },
            ),
        ];
        table.into_iter().map(|(text, meaning)| (rules(&text), meaning)).collect()
    })
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
    Given {
        deny: bool,
        other: bool,
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

#[derive(Clone, Debug)]
struct Case {
    values: Values,
    wish: usize,
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
        3 => Just(Answer::None),
        1 => Just(Answer::Bad),
        3 => (seldom(4), seldom(4), prop_oneof![8 => Just(100_000_i64), 1 => 1..200_i64])
            .prop_map(|(unlike, low, ends)| Answer::Task { alike: !unlike, low, ends }),
        3 => (seldom(4), seldom(4), seldom(6), prop_oneof![8 => Just(100_000_i64), 1 => 1..200_i64])
            .prop_map(|(unlike, low, total, ends)| Answer::Standing { alike: !unlike, low, total, ends }),
        6 => (seldom(6), seldom(6), prop_oneof![8 => Just(100_000_i64), 1 => 1..200_i64])
            .prop_map(|(deny, other, ends)| Answer::Given { deny, other, ends }),
    ]
}

fn cases() -> impl Strategy<Value = Case> {
    let taint = prop_oneof![Just(Taint::Owner), Just(Taint::Auth), Just(Taint::External)];
    let gate = prop_oneof![8 => Just(GateVerdict::Pass), 2 => Just(GateVerdict::Transform), 1 => Just(GateVerdict::Block),
        1 => Just(GateVerdict::Advise), 1 => Just(GateVerdict::RequireApproval)];
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
        prop_oneof![3 => Just(0), 3 => Just(3), 4 => 0..8_usize],
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
    let wish = prop_oneof![3 => 0..wishes().len(), 1 => of_values()];
    (wish, taint, keys, rest, values).prop_map(|(wish, taint, keys, rest, values)| {
        let (flaws, binding, revoked, now, ends, preapproved) = keys;
        let (gates, rules, by_model, calls, tokens, costs, answer) = rest;
        Case {
            values,
            wish,
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

/// The model: everything that must hold, in plain words.
fn model(case: &Case) -> Outcome {
    let wish = &wishes()[case.wish];
    let external = case.taint == Taint::External;
    let covered = case.flaws.iter().all(|flaw| match flaw {
        Flaw::None | Flaw::Wide => true,
        Flaw::Kind => false,
        Flaw::Place(n) => *n >= wish.touches.len(),
    });
    let own = case.binding == [false, false, false];
    let unrevoked = case.revoked > 1;
    let in_time = case.now >= 0 && case.now < case.ends[0] && case.now < case.ends[1];
    if !(covered && own && unrevoked && in_time) || case.gates.contains(&GateVerdict::Block) {
        return Outcome::Deny;
    }
    let preapproved = case.preapproved[1];
    let mut ask = match rule_sets()[case.rules].1(&Seen { wish, external, preapproved }) {
        RuleSays::Forbid => return Outcome::Deny,
        RuleSays::Ask => true,
        RuleSays::Permit => false,
    };
    if let Some((trust, noted)) = wish.memory {
        let cleaner = match (noted, case.taint) {
            (Taint::Owner, Taint::Auth | Taint::External) | (Taint::Auth, Taint::External) => true,
            (Taint::Owner | Taint::Auth | Taint::External, _) => false,
        };
        if cleaner || (trust != MemoryTrust::Working && noted == Taint::External) {
            return Outcome::Deny;
        }
    } else if !preapproved {
        let foreign = external && wish.leaves && !excused(wish, case.values);
        ask = ask || foreign || (!external && is_ordered(wish, case.values));
    }
    let by_gate = case.gates.contains(&GateVerdict::RequireApproval);
    ask |= by_gate;
    let affordable = match wish.model {
        Some(price) => {
            let limits = case.costs.iter().zip(SPENT);
            let mut money = limits.map(|(limit, spent)| match (limit, price) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(limit), Some(price)) => spent + price <= *limit,
            });
            case.tokens[0] < 100 && case.tokens[1] < 200 && money.all(|one| one)
        }
        None => !case.by_model || case.calls < 20,
    };
    if !affordable {
        return Outcome::Deny;
    }
    match (ask, case.answer) {
        (false, _) => Outcome::Grant { with_approval: false },
        (true, Answer::None) => Outcome::Ask,
        (true, Answer::Bad) => Outcome::Deny,
        (true, Answer::Given { deny, other, ends }) => {
            if deny || other || case.now >= ends {
                Outcome::Deny
            } else {
                Outcome::Grant { with_approval: true }
            }
        }
        (true, Answer::Task { alike, low, ends }) => {
            if alike && !by_gate && has_likes(&wish.action) && (!low || is_low(wish)) && case.now < ends {
                Outcome::Grant { with_approval: true }
            } else {
                Outcome::Deny
            }
        }
        (true, Answer::Standing { alike, low, total, ends }) => {
            let in_risk = if low { is_low(wish) } else { !is_high(&wish.action) };
            let covered = alike && !by_gate && recurs(&wish.action, case.taint) && in_risk;
            if covered && !total && case.now < ends {
                Outcome::Grant { with_approval: true }
            } else {
                Outcome::Deny
            }
        }
    }
}

/// The wishes whose values matter, drawn more often than others.
fn of_values() -> impl Strategy<Value = usize> {
    let matters =
        |wish: &Wish| matches!(wish.action, Action::CallTool(_) | Action::Fetch(_) | Action::Search(_));
    let chosen: Vec<usize> = (0..wishes().len()).filter(|n| matters(&wishes()[*n])).collect();
    proptest::sample::select(chosen)
}

/// Whether where its values come from excuses an action that rests on external content.
fn excused(wish: &Wish, values: Values) -> bool {
    let known = values.sink != Of::Nobody;
    if values.strict {
        return false;
    }
    if let Action::CallTool(call) = &wish.action {
        let another_tool = call.effect && values.outside && !values.used;
        let of_result = values.sink != Of::Owner;
        let knows = values.readers && !values.confided;
        let to_strangers = call.sends && values.private && of_result && !knows;
        let harmful = call.effect && call.risk >= Risk::High && of_result;
        let chosen = call.effect && values.sink == Of::Chosen;
        let unnamed = !call.named.is_empty() && values.sink == Of::Beside;
        return known && !another_tool && !to_strangers && !harmful && !chosen && !unnamed;
    }
    if let Action::Fetch(fetch) = &wish.action {
        return fetch.method == "GET" && fetch.body.is_none() && known;
    }
    known && matches!(wish.action, Action::Search(_))
}

/// Whether a call may do what another server's words about its tools order.
fn is_ordered(wish: &Wish, values: Values) -> bool {
    let Action::CallTool(call) = &wish.action else { return false };
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

/// What is more than the medium risk for which these standing approvals are given.
fn is_high(action: &Action) -> bool {
    matches!(action, Action::CallTool(call) if call.risk >= Risk::High)
}

/// Of these, what stays inside is of low risk.
fn is_low(wish: &Wish) -> bool {
    matches!(wish.action, Action::Exec(_)) && !wish.network
}

fn granted(case: &Case, flaw: Flaw) -> Grants {
    let wish = &wishes()[case.wish];
    let kind = wish.action.kind();
    let mut grants = Grants::default().allow(ActionKind::Recall, [(Dimension::Memory, "session")]);
    if !matches!(flaw, Flaw::Kind) {
        let mut scopes: Vec<(Dimension, String)> =
            wish.touches.iter().map(|(dimension, value)| (*dimension, (*value).to_owned())).collect();
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
        grants = grants.allow(kind, scopes);
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
                Err(Stop::Ask(ask)) => ask.pattern.filter(|_| alike),
                Ok(_) | Err(Stop::Deny(_)) => None,
            };
            let own = own.map(|pattern| pattern::digest(&pattern).expect("canonical"));
            let pattern = own.unwrap_or_else(|| Digest::of(b"another pattern"));
            let risk = if low { Risk::Low } else { Risk::Medium };
            let task = Some(TaskTerms { pattern, risk, uses: 20, standing: None });
            let shown = Digest::of(b"something else");
            Some(Ok(approved(ApprovalClaims { task, expires_at: later(ends), ..claims(shown) })))
        }
        Answer::Standing { alike, low, total, ends } => {
            let own = match world.decide(prepared.clone()) {
                Err(Stop::Ask(ask)) => ask.recurring.into_iter().next().filter(|_| alike),
                Ok(_) | Err(Stop::Deny(_)) => None,
            };
            let own = own.map(|recurring| pattern::digest(&recurring.pattern).expect("canonical"));
            let pattern = own.unwrap_or_else(|| Digest::of(b"another pattern"));
            let risk = if low { Risk::Low } else { Risk::Medium };
            let total = total.then(|| "5".parse().expect("an amount"));
            let standing = Some(StandingTerms { secs: 600, total });
            let task = Some(TaskTerms { pattern, risk, uses: 20, standing });
            let shown = Digest::of(b"something else");
            Some(Ok(approved(ApprovalClaims { task, expires_at: later(ends), ..claims(shown) })))
        }
        Answer::None => None,
        Answer::Bad => Some(Err(ApprovalError::Signature)),
        Answer::Given { deny, other, ends } => {
            let hash = if other { Digest::of(b"something else") } else { hash };
            let decision = if deny { Decision::Deny } else { Decision::Approve };
            Some(Ok(approved(ApprovalClaims { decision, expires_at: later(ends), ..claims(hash) })))
        }
    }
}

fn door(case: &Case) -> Outcome {
    let wish = &wishes()[case.wish];
    let rules = &rule_sets()[case.rules].0;
    let mut world = World::new(rules);
    let kind = wish.action.kind();
    world.base.grants = granted(case, case.flaws[0]);
    world.task.grants = granted(case, case.flaws[1]);
    if case.preapproved[0] {
        world.base.grants = world.base.grants.preapprove(kind);
    }
    if case.preapproved[1] {
        world.task.grants = world.task.grants.preapprove(kind);
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

    let mut prepared = tainted(wish.action.clone(), case.taint);
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
    world.approval = answered(&world, case.answer, &prepared);
    match world.decide(prepared) {
        Ok(grant) => Outcome::Grant { with_approval: grant.approval().is_some() },
        Err(Stop::Ask(_)) => Outcome::Ask,
        Err(Stop::Deny(_)) => Outcome::Deny,
    }
}

/// What a conversation shows in which these values are known.
fn origins(values: Values) -> Origins {
    let name = if values.used { "crm__look" } else { "crm__list" };
    let call = ToolCall { id: "1".into(), name: name.into(), arguments: serde_json::json!({}) };
    let records = [("f-17", "garden"), ("f-18", "gardens"), ("f-19", "taxes")];
    let fields =
        Field::of(&serde_json::json!(records.map(|(to, of)| serde_json::json!({ "to": to, "of": of }))));
    let (outcome, label) = (ToolOutcome::Done, Label::new(Taint::External).public());
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
    origins.read(&[asked, told, chosen]);
    if values.confided {
        origins.confide();
    }
    if values.told {
        origins.tell("shop");
    }
    origins.tell("crm");
    origins
}

/// The door allows nothing that the model forbids, and forbids nothing that it allows.
#[test]
fn the_door_agrees_with_the_model() {
    const CASES: u32 = 800;
    let seen = [const { Cell::new(0_u32) }; 4];
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
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
        panic!("{found}");
    }
    let seen = seen.map(|count| count.get());
    assert!(seen.iter().all(|count| *count >= CASES / 40), "the cases are lopsided: {seen:?}");
}
