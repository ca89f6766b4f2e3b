use std::collections::BTreeSet;

use ed25519_dalek::SigningKey;
use writ_types::action::{
    ChangeKind, Exec, ExecProfile, Fetch, FileChange, MemoryTrust, Place, Say, Search, Subscribe, WriteFile,
};
use writ_types::entry::{Decision, Entry, Leaning};
use writ_types::frame::Pattern;
use writ_types::id::{AskId, AttemptId, EntrySeq, KeyId};
use writ_types::taint::{Label, Taint};
use writ_types::unit::{MicroUsd, Tokens};

use super::*;
use crate::approval::{ApprovalClaims, ApprovalError, ApprovalToken, verify_approval};
use crate::fixture::{
    DoorStop, NOW, NonceJournal, PERMIT_ALL, Sample, World, all_grants, approved, approver, approvers,
    ask_all, claims, exec, expected, fetch, forbid_all, home_rules, later, model_call, now, permit_all,
    prepared, project_write, remember, rules, samples, search, session, shipped, signed, tainted,
};
use crate::keys::grants::Grants;
use crate::keys::{TASK_KEY_TTL, TaskClaims};
use crate::permit::{Durability, RedeemError, Redemption};
use crate::rules::Shadow;
use writ_inspect::prepared::{Sink, leaves_nothing};
use writ_inspect::scope::Dimension;

mod approvals;

mod hooks;

mod model;

fn world() -> World {
    World::new(permit_all())
}

fn gate(verdict: GateVerdict) -> (String, GateVerdict, String) {
    ("guard".into(), verdict, "looks bad".into())
}

/// Grants for the samples without one kind.
fn without(kind: ActionKind) -> Grants {
    let mut grants = all_grants();
    grants.kinds.remove(&kind);
    grants
}

/// The samples that pass where rules permit them: a plan is asked about all the same.
fn free_samples() -> impl Iterator<Item = Sample> {
    samples().into_iter().filter(|sample| sample.action.kind() != ActionKind::Plan)
}

/// Grants for the samples with one scope of one kind exchanged.
fn moved(kind: ActionKind, dimension: Dimension, value: &str) -> Grants {
    let mut grants = all_grants();
    let scopes = grants.kinds.get_mut(&kind).expect("granted");
    assert!(scopes.remove(&(dimension, value.to_owned())));
    scopes.insert((dimension, format!("{value}-other")));
    grants
}

/// Rows: SLO-012 SLO-019 SLO-024 SLO-025 (in part: at the door)
#[test]
fn every_kind_needs_both_keys_for_what_it_is_and_where() {
    for sample in free_samples() {
        let (kind, request) = (sample.action.kind(), prepared(sample.action));
        assert!(world().decide(request.clone()).is_ok(), "{kind:?}");

        let denied = |change: &dyn Fn(&mut World)| {
            let mut world = world();
            change(&mut world);
            let denial = world.denial(request.clone());
            assert_eq!((denial.kind, denial.prepared), (kind, request.hash(world.rules.digest()).ok()));
            (denial.reason, denial.rule)
        };
        let base_key = format!("base key {}", world().base.key);
        let task_key = format!("task key {}", world().task.key);
        assert_eq!(
            denied(&|world| world.base.grants = without(kind)),
            (DenyReason::Capability, base_key.clone())
        );
        assert_eq!(
            denied(&|world| world.task.grants = without(kind)),
            (DenyReason::Capability, task_key.clone())
        );
        for (dimension, value) in &sample.touches {
            let place = dimension.as_str();
            assert_eq!(
                denied(&|world| world.base.grants = moved(kind, *dimension, value)),
                (DenyReason::Scope, format!("{base_key}: {place}")),
            );
            assert_eq!(
                denied(&|world| world.task.grants = moved(kind, *dimension, value)),
                (DenyReason::Scope, format!("{task_key}: {place}")),
            );
        }
    }
}

/// Rows: SLO-016 (in part: its time) SLO-023 (in part: at the door) SLO-018
#[test]
fn every_kind_needs_keys_that_are_good_now_and_here() {
    for sample in free_samples() {
        let (kind, request) = (sample.action.kind(), prepared(sample.action));
        let reason = |change: &dyn Fn(&mut World)| {
            let mut world = world();
            change(&mut world);
            match world.decide(request.clone()) {
                Ok(_) => None,
                Err(DoorStop::Deny(denial)) => Some(denial.reason),
                Err(DoorStop::Ask(ask)) => panic!("{kind:?}: {ask:?}"),
            }
        };
        let minutes_30 = NOW.plus_duration(TASK_KEY_TTL);
        assert_eq!(reason(&|world| world.now = later(-1)), Some(DenyReason::Expired));
        assert_eq!(reason(&|world| world.now = later(30 * 60_000 - 1)), None);
        assert_eq!(reason(&|world| world.now = minutes_30), Some(DenyReason::Expired));
        assert_eq!(reason(&|world| world.base.expires_at = NOW), Some(DenyReason::Expired));
        assert_eq!(reason(&|world| world.base.expires_at = later(1)), None);
        assert_eq!(
            reason(&|world| world.revoked.extend([world.task.key.to_string()])),
            Some(DenyReason::Revoked)
        );
        assert_eq!(
            reason(&|world| world.revoked.extend([world.base.key.to_string()])),
            Some(DenyReason::Revoked)
        );
        let other = KeyId::from_parts(NOW, 77).to_string();
        assert_eq!(reason(&|world| world.revoked.extend([other.clone()])), None);
        assert_eq!(reason(&|world| world.task.session = session(2)), Some(DenyReason::Binding));
        assert_eq!(reason(&|world| world.base.agent = "somebody".into()), Some(DenyReason::Binding));
    }
}

#[test]
fn biscuits_own_revocation_ids_count_too() {
    let world = world();
    let authority = world.authority();
    for id in authority.revocation_ids() {
        let revoked = World { revoked: [id.clone()].into(), ..World::new(permit_all()) };
        let facts = Facts { authority: &authority, ..revoked.facts(&authority) };
        let refused = precheck(prepared(Action::Exec(exec())), &facts, NOW).map_err(|denial| denial.reason);
        assert_eq!(refused.err(), Some(DenyReason::Revoked));
    }
}

#[test]
fn a_request_without_a_session_belongs_to_no_key() {
    let request = Prepared { session: None, ..prepared(Action::Exec(exec())) };
    assert_eq!(world().denial(request).reason, DenyReason::Binding);
}

/// Rows: WIN-099 (in part: every kind of action, at each stage)
#[test]
fn every_kind_is_stopped_by_each_later_stage() {
    for sample in free_samples() {
        let kind = sample.action.kind();
        let owner = || prepared(sample.action.clone());
        let external = || tainted(sample.action.clone(), Taint::External);

        let mut blocked = World::new(ask_all());
        blocked.verdicts.gates = vec![gate(GateVerdict::Pass), gate(GateVerdict::Block)];
        let denial = blocked.denial(owner());
        assert_eq!((denial.reason, denial.rule.as_str()), (DenyReason::Gate, "guard"), "{kind:?}");
        assert_eq!(denial.text, "looks bad");
        let mut passed = world();
        passed.verdicts.gates = vec![gate(GateVerdict::Pass), gate(GateVerdict::Transform)];
        assert!(passed.decide(owner()).is_ok(), "{kind:?}");

        let denial = World::new(forbid_all()).denial(owner());
        assert_eq!((denial.reason, denial.rule.as_str()), (DenyReason::Rule, "no"), "{kind:?}");

        let ask = World::new(ask_all()).ask(owner());
        assert_eq!((ask.reason.as_str(), ask.risk), ("Sure?", sample.risk), "{kind:?}");
        assert_eq!(ask.rules, BTreeSet::from(["ask".to_owned()]));
        assert_eq!(Some(ask.hash), owner().hash(ask_all().digest()).ok());
        assert_eq!(ask.prepared, owner());

        match world().decide(external()) {
            Ok(_) => assert!(!sample.leaves, "{kind:?}"),
            Err(DoorStop::Ask(ask)) => {
                assert!(sample.leaves, "{kind:?}");
                assert_eq!(ask.rules, BTreeSet::from(["taint".to_owned()]));
            }
            Err(DoorStop::Deny(denial)) => panic!("{denial:?}"),
        }

        let mut spent = world();
        spent.budget.spent.turn_tool_calls = spent.budget.limits.max_tool_calls_per_turn;
        spent.budget.spent.session_tokens = spent.budget.limits.max_tokens_per_session;
        let denial = spent.denial(owner());
        let limit = if kind == ActionKind::ModelCall {
            "budget.max_tokens_per_session"
        } else {
            "budget.max_tool_calls_per_turn"
        };
        assert_eq!((denial.reason, denial.rule.as_str()), (DenyReason::Budget, limit), "{kind:?}");
    }
}

/// Everything is wrong at once; taking away what refused, one by one, shows the order of the stages.
#[test]
fn the_first_stage_that_refuses_names_the_reason() {
    let mut world = World::new(forbid_all());
    let grants = Grants::default().allow_kind(ActionKind::Remember, [(Dimension::Memory, "session")]);
    (world.base.grants, world.task.grants) = (grants.clone(), Grants::default());
    world.task.session = session(2);
    world.now = later(-1);
    world.revoked = [world.task.key.to_string()].into();
    world.verdicts.gates = vec![gate(GateVerdict::Block)];
    world.budget.spent.turn_tool_calls = 20;
    let mut action = remember(MemoryTrust::Verified, Taint::External);
    action.text = "x".repeat(MAX_ACTION_BYTES);
    let mut request = prepared(Action::Remember(action));

    let next = |world: &World, request: &Prepared, reason: DenyReason| {
        assert_eq!(world.denial(request.clone()).reason, reason);
    };
    next(&world, &request, DenyReason::Shape);
    request.action = Action::Remember(remember(MemoryTrust::Verified, Taint::External));
    next(&world, &request, DenyReason::Binding);
    world.task.session = session(1);
    next(&world, &request, DenyReason::Revoked);
    world.revoked.clear();
    next(&world, &request, DenyReason::Expired);
    world.now = NOW;
    next(&world, &request, DenyReason::Capability);
    world.task.grants = Grants::default().allow_kind(ActionKind::Remember, [(Dimension::Memory, "global")]);
    next(&world, &request, DenyReason::Scope);
    world.task.grants = grants;
    next(&world, &request, DenyReason::Gate);
    world.verdicts.gates.clear();
    next(&world, &request, DenyReason::Rule);
    world.rules = ask_all();
    next(&world, &request, DenyReason::Taint);
    request.action = Action::Remember(remember(MemoryTrust::Verified, Taint::Owner));
    let hash = request.hash(world.rules.digest()).expect("canonical");
    world.approval = Some(Ok(approved(ApprovalClaims { decision: Decision::Deny, ..claims(hash) })));
    next(&world, &request, DenyReason::Budget);
    world.budget.spent.turn_tool_calls = 0;
    next(&world, &request, DenyReason::Person);
    world.approval = Some(Ok(approved(claims(hash))));
    assert!(world.decide(request).is_ok());
}

/// Rows: SIL-004 (in part: the door's decisions)
#[test]
fn the_same_facts_give_the_same_decision() {
    let mut world = World::new(shipped());
    world.verdicts.gates = vec![gate(GateVerdict::Block)];
    let (blocked, open) = (world.authority(), World::new(shipped()).authority());
    for sample in samples() {
        let request = || tainted(sample.action.clone(), Taint::External);
        let first = format!("{:?}", World::new(shipped()).decide_under(request(), &open));
        for _ in 0..5 {
            assert_eq!(format!("{:?}", World::new(shipped()).decide_under(request(), &open)), first);
        }
    }
    for _ in 0..100 {
        let said = world.decide_under(prepared(Action::Exec(exec())), &blocked);
        assert!(matches!(said, Err(DoorStop::Deny(denial)) if denial.reason == DenyReason::Gate));
    }
}

#[test]
fn what_changed_while_verdicts_were_gathered_counts() {
    let (first, authority) = (world(), world().authority());
    let checked = || precheck(prepared(Action::Exec(exec())), &first.facts(&authority), NOW).expect("passes");
    let reason = |second: &World, at| {
        let authority = second.authority();
        match decide(checked(), &Verdicts::default(), &second.facts(&authority), at) {
            Decided::Deny(denial) => denial.reason,
            other @ (Decided::Grant(_) | Decided::Ask(_)) => panic!("expected a denial, found {other:?}"),
        }
    };
    assert_eq!(reason(&world(), NOW.plus_duration(TASK_KEY_TTL)), DenyReason::Expired);
    let mut revoked = world();
    revoked.revoked.insert(revoked.task.key.to_string());
    assert_eq!(reason(&revoked, NOW), DenyReason::Revoked);
    let elsewhere = World { task: TaskClaims { session: session(2), ..world().task }, ..world() };
    assert_eq!(reason(&elsewhere, NOW), DenyReason::Binding);
    assert_eq!(reason(&World::new(ask_all()), NOW), DenyReason::Rule);
}

#[test]
fn malformed_actions_go_no_further() {
    let run = |change: &dyn Fn(&mut Exec)| {
        let mut exec = exec();
        change(&mut exec);
        shape::check_shape(&Action::Exec(exec))
    };
    assert_eq!(run(&|_| {}), Ok(()));
    assert_eq!(run(&|exec| exec.argv.resize(MAX_ARGV, "x".into())), Ok(()));
    let bad: [&dyn Fn(&mut Exec); 12] = [
        &|exec| exec.argv.clear(),
        &|exec| exec.argv[0].clear(),
        &|exec| exec.argv.resize(MAX_ARGV + 1, "x".into()),
        &|exec| exec.argv[1].push('\0'),
        &|exec| exec.cwd.push('\0'),
        &|exec| exec.cwd = "work".into(),
        &|exec| exec.hosts.push("a\0b".into()),
        &|exec| exec.env.extend([("A\0".to_owned(), "1".to_owned())]),
        &|exec| exec.env.extend([("A".to_owned(), "\0".to_owned())]),
        &|exec| exec.env.extend([("A=B".to_owned(), "1".to_owned())]),
        &|exec| exec.env.extend([(String::new(), "1".to_owned())]),
        &|exec| exec.timeout_ms = 0,
    ];
    for (n, change) in bad.into_iter().enumerate() {
        assert!(run(change).is_err(), "case {n}");
    }
    assert_eq!(run(&|exec| exec.hosts.resize(MAX_HOSTS, "docs.rs".into())), Ok(()));
    assert!(run(&|exec| exec.hosts.resize(MAX_HOSTS + 1, "docs.rs".into())).is_err());
    assert!(run(&|exec| exec.hosts.resize(MAX_HOSTS + 2, "docs.rs".into())).is_err());
    assert!(run(&|exec| exec.stdin = Some("\0".into())).is_ok(), "input may be anything");
    assert!(run(&|exec| exec.timeout_ms = (1 << 53) - 1).is_ok());
    assert!(run(&|exec| exec.timeout_ms = 1 << 53).is_err());
    assert_eq!(MAX_ACTION_BYTES, 4_194_304, "4 MiB");
    let bare =
        serde_json::to_vec(&Action::Exec(Exec { stdin: Some(String::new()), ..exec() })).expect("JSON");
    let fits = MAX_ACTION_BYTES - bare.len();
    assert_eq!(run(&|exec| exec.stdin = Some("x".repeat(fits))), Ok(()), "exactly the bound");
    assert!(run(&|exec| exec.stdin = Some("x".repeat(fits + 1))).is_err());
    let tool = |arguments| {
        shape::check_shape(&Action::CallTool(writ_types::action::CallTool {
            arguments,
            ..crate::fixture::call_tool()
        }))
    };
    assert!(tool(serde_json::json!({"a": [{"b": -9_007_199_254_740_991_i64}], "c": 1.5e300})).is_ok());
    assert!(tool(serde_json::json!({"a": [{"b": -9_007_199_254_740_992_i64}]})).is_err());
    assert!(tool(serde_json::json!({"a": u64::MAX})).is_err());

    assert_eq!(
        world().denial(prepared(Action::Exec(Exec { argv: vec![], ..exec() }))).reason,
        DenyReason::Shape
    );
}

#[test]
fn malformed_writes_go_no_further() {
    let write = |change: &dyn Fn(&mut WriteFile)| {
        let mut write = WriteFile { place: Place::Overlay, ..project_write(&["a"]) };
        change(&mut write);
        shape::check_shape(&Action::WriteFile(write))
    };
    assert_eq!(write(&|_| {}), Ok(()));
    assert_eq!(write(&|write| write.content = Some("new".into())), Ok(()));
    let bad: [&dyn Fn(&mut WriteFile); 9] = [
        &|write| write.changes.clear(),
        &|write| write.changes[0].path.clear(),
        &|write| write.changes[0].path.push('\0'),
        &|write| write.root.push('\0'),
        &|write| write.content = Some("newer".into()),
        &|write| {
            write.content = Some("new".into());
            write.changes.push(write.changes[0].clone());
        },
        &|write| {
            write.content = Some("new".into());
            write.place = Place::Project;
        },
        &|write| {
            write.content = Some("new".into());
            write.changes[0].kind = ChangeKind::Delete;
        },
        &|write| {
            write.content = Some("new".into());
            write.changes[0].after = None;
        },
    ];
    for (n, change) in bad.into_iter().enumerate() {
        assert!(write(change).is_err(), "case {n}");
    }
    let many = |count: usize| {
        let change = FileChange { before: None, after: None, ..write_change() };
        write(&|write| write.changes = vec![change.clone(); count])
    };
    assert!(many(MAX_CHANGES).is_ok());
    assert!(many(MAX_CHANGES + 1).is_err());
}

fn write_change() -> FileChange {
    crate::fixture::change("a")
}

#[test]
fn no_path_of_any_kind_holds_a_nul() {
    for sample in samples() {
        let mut value = serde_json::to_value(&sample.action).expect("json");
        let mut found = false;
        for field in ["path", "repository", "save_to", "cwd"] {
            if value.get(field).is_some() {
                value[field] = "/a\0b".into();
                found = true;
            }
        }
        let action = serde_json::from_value::<Action>(value).expect("still an action");
        assert_eq!(shape::check_shape(&action).is_err(), found, "{:?}", sample.action.kind());
    }
}

fn ask_id() -> AskId {
    AskId::from_random(7)
}

fn expected_denial(world: &World, request: Prepared, reason: DenyReason) -> Denial {
    let denial = world.denial(request);
    assert_eq!(denial.reason, reason, "{denial:?}");
    denial
}

#[test]
fn what_was_approved_beforehand_is_not_asked_within_its_kind() {
    let write = || tainted(Action::WriteFile(project_write(&["b.txt"])), Taint::External);
    let mut world = World::new(shipped());
    let ask = world.ask(write());
    assert_eq!(ask.rules, ["ask-project-writes", "taint"].map(str::to_owned).into());
    world.task.grants = all_grants().preapprove_kind(ActionKind::WriteFile);
    assert!(world.decide(write()).is_ok());
    let fetch = samples().remove(3).action;
    assert!(
        matches!(world.decide(tainted(fetch, Taint::Owner)), Err(DoorStop::Ask(_))),
        "another kind still asks"
    );
    // Only the task key, made when the owner spoke, says what was approved beforehand.
    world.task.grants = all_grants();
    world.base.grants = all_grants().preapprove_kind(ActionKind::WriteFile);
    assert!(matches!(world.decide(write()), Err(DoorStop::Ask(_))));
    // It opens nothing that is refused.
    world.task.grants = all_grants().preapprove_kind(ActionKind::Remember);
    let truth = tainted(Action::Remember(remember(MemoryTrust::Verified, Taint::External)), Taint::External);
    assert_eq!(world.denial(truth).reason, DenyReason::Rule);
}

/// Rows: SIL-005 (in part: a memory's label) SIL-170
#[test]
fn a_memory_is_not_relabelled_on_its_way() {
    let request = |noted, trust| tainted(Action::Remember(remember(trust, noted)), Taint::External);
    let denial = world().denial(request(Taint::Owner, MemoryTrust::Working));
    assert_eq!(denial.reason, DenyReason::Taint);
    let denial = world().denial(request(Taint::External, MemoryTrust::Constitutional));
    assert_eq!(denial.reason, DenyReason::Taint);
    assert!(matches!(denial.denial_fact(), Fact::Denied { reason: DenyReason::Taint, .. }));
    assert!(world().decide(request(Taint::External, MemoryTrust::Working)).is_ok());
}

/// A program cannot give itself a network, a place or a profile that its keys do not name.
///
/// Rows: SIL-005 (in part: a program's network and place)
#[test]
fn an_action_cannot_widen_itself() {
    let reaching = Exec { hosts: vec!["evil.example".into()], ..exec() };
    let denial = world().denial(prepared(Action::Exec(reaching)));
    assert_eq!((denial.reason, denial.rule.ends_with(": host")), (DenyReason::Scope, true));
    let verifying = Exec { profile: ExecProfile::Verification, ..exec() };
    assert_eq!(world().denial(prepared(Action::Exec(verifying))).reason, DenyReason::Scope);
    for path in ["../x", "/etc/passwd", "b.txt/../../q", "b.txt2"] {
        let denial = world().denial(prepared(Action::WriteFile(project_write(&["b.txt", path]))));
        assert_eq!(denial.reason, DenyReason::Scope, "{path}");
        assert!(!denial.outside_text().contains("/home/me"), "{}", denial.outside_text());
    }
}

#[test]
fn what_reaches_out_is_well_formed_up_to_its_bounds() {
    let fetched = |method: &str, save_to: Option<&str>, large| {
        let (method, save_to) = (method.to_owned(), save_to.map(str::to_owned));
        shape::check_shape(&Action::Fetch(Fetch { method, save_to, large, ..fetch("https://docs.rs/") }))
            .is_ok()
    };
    assert!(
        fetched("GET", Some("a"), false) && fetched("GET", Some("a"), true) && fetched("POST", None, false)
    );
    assert!(!fetched("GET", Some(""), false), "no name");
    assert!(!fetched("POST", Some("a"), false) && !fetched("HEAD", Some("a"), false), "only GET is saved");
    assert!(!fetched("GET", None, true), "only what is saved is large");

    let searched = |query: &str, max_results| {
        let search = Search { query: query.to_owned(), max_results, ..search() };
        shape::check_shape(&Action::Search(search)).is_ok()
    };
    assert!(searched(&"x".repeat(MAX_QUERY_BYTES), 1) && searched("rust", MAX_SEARCH_RESULTS));
    assert!(!searched(&"x".repeat(MAX_QUERY_BYTES + 1), 1));
    assert!(!searched("", 1) && !searched(" \n", 1) && !searched("a\0", 1));
    assert!(!searched("rust", 0) && !searched("rust", MAX_SEARCH_RESULTS + 1));

    let subscribed = |target: &str, lines, turns, stop| {
        let target = target.to_owned();
        shape::check_shape(&Action::Subscribe(Subscribe { target, lines, turns, stop })).is_ok()
    };
    assert!(subscribed("a", None, 1, false) && subscribed("a", Some((1, 1)), MAX_SUBSCRIBED_TURNS, false));
    assert!(subscribed("a", Some((3, 9)), 5, false) && subscribed("https://docs.rs/", None, 5, false));
    assert!(!subscribed("", None, 1, false) && !subscribed("", None, 1, true));
    assert!(!subscribed("a", None, 0, false) && !subscribed("a", None, MAX_SUBSCRIBED_TURNS + 1, false));
    assert!(subscribed("a", None, 0, true), "an end has no turns");
    assert!(!subscribed("a", Some((0, 4)), 1, false) && !subscribed("a", Some((4, 3)), 1, false));
    assert!(!subscribed("https://docs.rs/", Some((1, 2)), 1, false), "a URL has no lines");
}

/// Words of the owner open what only reads: what is sent with them is not theirs.
#[test]
fn an_owned_url_is_no_leave_to_send() {
    let mut world = World::new(shipped());
    world.egress.allowed.push("docs.rs".parse().expect("a pattern"));
    let request = |method: &str, body: Option<&str>| {
        let fetch = Fetch { method: method.into(), body: body.map(Into::into), ..fetch("https://docs.rs/") };
        let sinks = vec![Sink { argument: "url".into(), value: "https://docs.rs/".into() }];
        Prepared { sinks, ..tainted(Action::Fetch(fetch), Taint::External) }
    };
    world.origins = Origins::new(["see https://docs.rs/".to_owned()]);
    assert!(world.decide(request("GET", None)).is_ok() && world.decide(request("HEAD", None)).is_ok());
    for sending in [request("POST", Some("x")), request("GET", Some("x")), request("DELETE", None)] {
        assert!(world.ask(sending).rules.contains("taint"));
    }
    let taint = BTreeSet::from(["taint".to_owned()]);
    world.strict = true;
    assert_eq!(world.ask(request("GET", None)).rules, taint, "nothing excuses it");
    (world.strict, world.origins) = (false, Origins::default());
    assert_eq!(world.ask(request("GET", None)).rules, taint, "twin");
}

/// An agent whose changes were approved beforehand does not take away what narrows it.
#[test]
fn rules_of_a_project_are_changed_by_no_approval_beforehand() {
    let mut world = World::new(shipped());
    for grants in [&mut world.base.grants, &mut world.task.grants] {
        *grants = grants.clone().preapprove_kind(ActionKind::WriteFile).allow_kind(
            ActionKind::WriteFile,
            [(Dimension::Place, "project"), (Dimension::Path, "/home/me/p")],
        );
    }
    let change = |path: &str| tainted(Action::WriteFile(project_write(&["a", path])), Taint::Owner);
    for path in [".writ/policies/a.cedar", "./.writ/config.toml", ".writ"] {
        assert!(world.ask(change(path)).rules.contains("ask-project-writes"), "{path}");
    }
    for path in ["b", "x/.writ/a", ".writer"] {
        assert!(world.decide(change(path)).is_ok(), "twin: {path}");
    }
}

#[test]
fn an_ask_names_every_reason_once() {
    let mut world = World::new(shipped());
    let reaching = Exec { hosts: vec!["docs.rs".into()], ..exec() };
    let grants = || all_grants().allow_kind(ActionKind::Exec, [(Dimension::Host, "docs.rs")]);
    (world.base.grants, world.task.grants) = (grants(), grants());
    let ask = world.ask(tainted(Action::Exec(reaching), Taint::External));
    assert_eq!(ask.rules, ["ask-network", "taint"].map(str::to_owned).into());
    assert_eq!(
        ask.reason,
        "It depends on external content and would leave or outlast this session. The program could reach hosts that you have not listed."
    );
    assert_eq!(ask.risk, Risk::Medium);
}

#[test]
fn redeeming_writes_the_intent_with_all_that_it_needs() {
    let label = Label::new(Taint::External);
    for sample in samples() {
        let request =
            || Prepared { label: label.clone(), idempotent: true, ..prepared(sample.action.clone()) };
        let mut world = World::new(ask_all());
        let hash = request().hash(world.rules.digest()).expect("canonical");
        world.approval = Some(Ok(approved(claims(hash))));
        let grant = world.decide(request()).expect("approved");
        assert_eq!((grant.prepared(), grant.hash()), (&request(), hash));
        assert_eq!(grant.approval().map(|used| &used.ask), Some(&ask_id()));

        let journal = NonceJournal::default();
        let attempt = AttemptId::from_parts(NOW, 5);
        let permit = now(grant.redeem(&journal, attempt, later(5))).expect("written");
        assert_eq!((permit.attempt(), permit.entry()), (attempt, EntrySeq(1)));
        assert_eq!(permit.action(), &sample.action);

        let model = sample.action.kind() == ActionKind::ModelCall;
        let reservation = if model {
            Reservation { tokens: Tokens::new(150), cost: MicroUsd::new(10), tool_calls: 0 }
        } else {
            Reservation { tool_calls: 1, ..Reservation::default() }
        };
        let intent = Entry {
            at: later(5),
            session: request().session,
            turn: request().turn,
            turn_number: 1,
            fact: Fact::Intent {
                attempt,
                prepared: hash,
                action: sample.action.clone(),
                call: Some("call-1".into()),
                approval: Some(ask_id()),
                idempotent: true,
                label: label.clone(),
                requester: None,
            },
        };
        let durability = if sample.synced { Durability::Synced } else { Durability::Relaxed };
        let approval = Some(ApprovalUse {
            ask: ask_id(),
            prepared: hash,
            nonce: claims(hash).nonce,
            task: None,
            amount: None,
            plan: None,
        });
        let ceilings = Ceilings::ceilings_of(&sample.action, &BudgetFacts::default());
        let keys = journal.redeemed.lock().expect("not poisoned")[0].keys.clone();
        assert!([world.task.key, world.base.key].iter().all(|key| keys.contains(&key.to_string())));
        let operation = Default::default();
        let written =
            Redemption { attempt, intent, approval, reservation, keys, ceilings, operation, durability };
        assert_eq!(*journal.redeemed.lock().expect("not poisoned"), [written]);
    }
}

#[test]
fn if_the_ledger_cannot_be_written_there_is_no_permit() {
    let journal = NonceJournal { broken: true, ..NonceJournal::default() };
    let grant = world().decide(prepared(Action::Exec(exec()))).expect("permitted");
    let refused =
        now(grant.redeem(&journal, AttemptId::from_parts(NOW, 1), NOW)).map(|permit| permit.entry());
    assert_eq!(refused, Err(RedeemError::Unwritable("disk full".into())));
    assert!(journal.redeemed.lock().expect("not poisoned").is_empty());
}

#[test]
fn a_permit_ends_with_the_decision_and_with_its_keys() {
    let opened = |world: &World, redeemed, at| {
        let grant = world.decide(prepared(Action::Exec(exec()))).expect("permitted");
        let journal = NonceJournal::default();
        let permit = now(grant.redeem(&journal, AttemptId::from_parts(NOW, 1), redeemed)).expect("written");
        permit.open(at).map(|opened| (opened.prepared, opened.attempt)).map_err(|expired| expired.0)
    };
    let whole = Ok((prepared(Action::Exec(exec())), AttemptId::from_parts(NOW, 1)));
    assert_eq!(opened(&world(), NOW, NOW), whole);
    assert_eq!(opened(&world(), NOW, later(59_999)), whole);
    assert_eq!(opened(&world(), NOW, later(60_000)), Err(later(60_000)));
    // Redeeming late does not make it younger.
    assert_eq!(opened(&world(), later(50_000), later(60_000)), Err(later(60_000)));
    let mut brief = world();
    brief.task.expires_at = later(10_000);
    assert_eq!(opened(&brief, NOW, later(9_999)), whole);
    assert_eq!(opened(&brief, NOW, later(10_000)), Err(later(10_000)));
    let mut brief = world();
    brief.base.expires_at = later(5_000);
    assert_eq!(opened(&brief, NOW, later(5_000)), Err(later(5_000)));
}

#[test]
fn the_harness_does_not_count_its_own_calls_as_the_models() {
    let mut world = world();
    world.budget.spent.turn_tool_calls = 20;
    let own = Prepared { call: None, ..prepared(Action::Exec(exec())) };
    assert!(world.decide(own).is_ok());
}

#[test]
fn an_unknown_price_says_so() {
    let mut world = world();
    world.budget.limits.max_cost_per_turn = Some(MicroUsd::new(1_000));
    let call = writ_types::action::ModelCall { ceiling: None, ..model_call() };
    let denial = world.denial(prepared(Action::ModelCall(call)));
    assert_eq!((denial.reason, denial.rule.as_str()), (DenyReason::Budget, "the price table"));
    assert!(denial.outside_text().contains("the price of this model is not known"));
}

/// Rows: SLO-001 (in part: what a refusal leaves)
#[test]
fn every_denial_leaves_a_fact_and_says_nothing_of_the_host() {
    let mut world = World::new(shipped());
    world.approval = Some(Err(ApprovalError::Signature));
    for sample in samples().into_iter().filter(|sample| sample.asked) {
        let denial = world.denial(prepared(sample.action));
        let Fact::Denied { prepared, kind, reason, rule, text, outside, requester: None } =
            denial.denial_fact()
        else {
            panic!("a denial is a fact of its own");
        };
        assert_eq!((prepared, kind, reason), (denial.prepared, denial.kind, DenyReason::Approval));
        assert_eq!((rule.as_str(), text), ("approval", ApprovalError::Signature.to_string()));
        assert_eq!(outside, denial.outside_text());
    }
}

/// What is tried beside the rules in force is told what they are told, and is noted where it differs.
#[test]
fn rules_that_are_tried_are_noted_where_they_differ_and_decide_nothing() {
    let text =
        r#"@id("sure") @ask("Sure?") forbid (principal, action, resource) unless { context.preapproved };"#;
    let shadow = Shadow::load_shadow("careful".into(), &[home_rules(PERMIT_ALL)], home_rules(text)).unwrap();
    let home = rules(PERMIT_ALL).with_shadows(vec![shadow]);
    let mut world = world();
    let differing = |world: &World| {
        let authority = world.authority();
        let facts = world.facts(&authority);
        let checked = precheck(prepared(Action::Exec(exec())), &facts, world.now).unwrap();
        shadow_verdicts(&checked, &home, &facts)
    };
    let found = differing(&world);
    let [Fact::Shadowed { set, prepared: hash, kind, does, would, rules: named, .. }] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!((set.as_str(), *kind), ("careful", ActionKind::Exec));
    assert_eq!((*does, *would), (Leaning::Permit, Leaning::Ask));
    assert_eq!(named, &["sure"]);
    assert_eq!(*hash, prepared(Action::Exec(exec())).hash(world.rules.digest()).unwrap());
    assert!(world.decide(prepared(Action::Exec(exec()))).is_ok());
    world.task.grants.preapproved.insert(ActionKind::Exec);
    assert_eq!(differing(&world), []);
}
