//! What an approval opens, and what it does not.

use serde_json::json;
use writ_types::action::CallTool;

use super::*;
use crate::approval::{StandingTerms, TaskTerms};
use crate::fixture::call_tool;
use crate::pattern;
use crate::reasons::LOST_RULE;

/// An answered ask: what was approved runs, once, with its approval named in the intent.
///
/// Rows: SIL-001 SIL-002
#[test]
fn without_a_good_signature_there_is_no_permit_and_with_it_there_is_one() {
    let mut world = World::new(shipped());
    let request = || prepared(Action::WriteFile(project_write(&["b.txt"])));
    let ask = world.ask(request());
    assert_eq!(ask.reason, "It changes files of your project.");

    let mut token = signed(claims(ask.hash));
    let expected = expected(&claims(ask.hash));
    let first = if token.signature.starts_with('0') { "1" } else { "0" };
    token.signature.replace_range(0..1, first);
    world.approval = Some(verify_approval(&token, &expected, &approvers(), NOW));
    let denial = expected_denial(&world, request(), DenyReason::Approval);
    assert!(matches!(denial.denial_fact(), Fact::Denied { reason: DenyReason::Approval, .. }));

    world.approval = Some(verify_approval(&signed(claims(ask.hash)), &expected, &approvers(), NOW));
    let journal = NonceJournal::default();
    let redeem = |n| {
        let grant = world.decide(request()).expect("approved");
        now(grant.redeem(&journal, AttemptId::from_parts(NOW, n), NOW))
    };
    let permit = redeem(1).expect("the first use");
    assert_eq!(permit.action(), &request().action);
    // The same token again: the door passes the use on, and the journal refuses it.
    assert_eq!(redeem(2).expect_err("replay"), RedeemError::ApprovalSpent(ask_id()));
    let redeemed = journal.redeemed.lock().expect("not poisoned");
    assert_eq!(redeemed.len(), 1);
    let used = ApprovalUse {
        ask: ask_id(),
        prepared: ask.hash,
        nonce: claims(ask.hash).nonce,
        task: None,
        amount: None,
        plan: None,
    };
    assert_eq!(redeemed[0].approval.as_ref(), Some(&used));
}

/// Each check of an answer that is to be used has an error of its own, and the answer that passes all is used once.
///
/// Rows: SIL-160
#[test]
fn signature_content_time_and_reuse_are_checked_each_for_itself() {
    let mut world = World::new(shipped());
    let request = || prepared(Action::WriteFile(project_write(&["b.txt"])));
    let good = claims(world.ask(request()).hash);
    let expected = expected(&good);
    let mut forged = signed(good.clone());
    forged.signature = signed(claims(Digest::of_bytes(b"other"))).signature;
    let bad = [
        (forged, ApprovalError::Signature),
        (signed(claims(Digest::of_bytes(b"other"))), ApprovalError::Mismatch("the action has changed")),
        (signed(ApprovalClaims { expires_at: NOW, ..good.clone() }), ApprovalError::Expired),
    ];
    let mut texts = BTreeSet::new();
    for (token, error) in bad {
        let checked = verify_approval(&token, &expected, &approvers(), NOW);
        assert_eq!(checked, Err(error));
        world.approval = Some(checked);
        texts.insert(expected_denial(&world, request(), DenyReason::Approval).text);
    }
    assert_eq!(texts.len(), 3, "{texts:?}");
    world.approval = Some(verify_approval(&signed(good), &expected, &approvers(), NOW));
    let journal = NonceJournal::default();
    let redeem = |n| {
        let grant = world.decide(request()).expect("approved");
        now(grant.redeem(&journal, AttemptId::from_parts(NOW, n), NOW)).map(drop)
    };
    assert_eq!([redeem(1), redeem(2)], [Ok(()), Err(RedeemError::ApprovalSpent(ask_id()))]);
}

fn anywhere_below_home(rules: &'static RuleSet) -> World {
    let mut world = World::new(rules);
    for grants in [&mut world.base.grants, &mut world.task.grants] {
        let all = std::mem::take(grants);
        *grants = all.allow_kind(ActionKind::WriteFile, [(Dimension::Path, "/home/me")]);
    }
    world
}

/// One approval for the task covers what is alike, and nothing else.
#[test]
fn an_approval_for_the_task_covers_what_is_alike_and_nothing_riskier() {
    let mut world = anywhere_below_home(shipped());
    let write = |path: &str| prepared(Action::WriteFile(project_write(&[path])));
    let ask = world.ask(write("a"));
    let pattern = pattern::pattern_digest(ask.pattern.as_ref().expect("a pattern")).expect("canonical");
    let terms = TaskTerms { pattern, risk: ask.risk, uses: 3, standing: None };
    let approve = |task: TaskTerms, ends| {
        let claims = ApprovalClaims { task: Some(task), expires_at: later(ends), ..claims(ask.hash) };
        Some(Ok(approved(claims)))
    };
    world.approval = approve(terms, 1_000);
    for path in ["a", "b", "c/d"] {
        let grant = world.decide(write(path)).expect("covered");
        let used = grant.approval().expect("an approval");
        assert_eq!((used.prepared, used.task), (grant.hash(), Some(terms)), "{path}");
    }
    let elsewhere = WriteFile { root: "/home/me/q".into(), ..project_write(&["a"]) };
    let others = [
        prepared(Action::WriteFile(elsewhere)),
        tainted(Action::WriteFile(project_write(&["b"])), Taint::External),
        prepared(Action::Fetch(fetch("https://docs.rs/"))),
    ];
    for other in others {
        expected_denial(&world, other, DenyReason::Approval);
    }
    // Less was approved than it would risk.
    world.approval = approve(TaskTerms { risk: Risk::Low, ..terms }, 1_000);
    expected_denial(&world, write("b"), DenyReason::Approval);
    world.approval = approve(terms, 1_000);
    world.now = later(1_000);
    expected_denial(&world, write("b"), DenyReason::Approval);
    // An approval of one thing is never one of what is alike.
    world.now = NOW;
    world.approval = Some(Ok(approved(claims(ask.hash))));
    expected_denial(&world, write("b"), DenyReason::Approval);
}

/// What was begun before, and nobody knows whether it was done, asks, whatever lets it pass otherwise; a yes to just this opens
/// it, and none to what is alike. Twins: what may be repeated, and what leaves nothing to be done twice.
#[test]
fn what_may_have_been_done_already_asks_before_it_is_done_again() {
    let mut world = world();
    world.lost = true;
    let authority = world.authority();
    let (mut asked, mut free) = (0, Vec::new());
    for sample in free_samples() {
        let request = prepared(sample.action);
        let repeatable = Prepared { idempotent: true, ..request.clone() };
        assert!(world.decide_under(repeatable, &authority).is_ok(), "{:?}", request.action.kind());
        let own = Prepared { call: None, ..request.clone() };
        assert!(
            world.decide_under(own, &authority).is_ok(),
            "no model requests it: {:?}",
            request.action.kind()
        );
        match world.decide_under(request.clone(), &authority) {
            Ok(_) => {
                assert!(leaves_nothing(&request.action), "{:?}", request.action.kind());
                free.push(request.action.kind().as_str());
            }
            Err(DoorStop::Ask(ask)) => {
                assert!(!leaves_nothing(&request.action), "{:?}", request.action.kind());
                assert_eq!(ask.rules, [LOST_RULE.to_owned()].into(), "{:?}", request.action.kind());
                assert_eq!((ask.pattern, ask.recurring), (None, Vec::new()), "nothing is like it");
                asked += 1;
            }
            Err(DoorStop::Deny(denial)) => panic!("{denial:?}"),
        }
    }
    // By name, so that a new action asks unless it is named here.
    free.sort_unstable();
    let repeatable =
        ["connect", "model_call", "read_file", "read_result", "recall", "remember", "say", "search"];
    assert_eq!(free, repeatable);
    assert_eq!(asked, free_samples().count() - free.len());
    let mut world = anywhere_below_home(shipped());
    let write = |path: &str| prepared(Action::WriteFile(project_write(&[path])));
    let ask = world.ask(write("a"));
    let pattern = pattern::pattern_digest(ask.pattern.as_ref().expect("a pattern")).expect("canonical");
    let terms = TaskTerms { pattern, risk: ask.risk, uses: 3, standing: None };
    let claims = ApprovalClaims { task: Some(terms), expires_at: later(1_000), ..claims(ask.hash) };
    world.approval = Some(Ok(approved(claims)));
    assert!(world.decide(write("b")).is_ok(), "it is alike");
    world.lost = true;
    expected_denial(&world, write("b"), DenyReason::Approval);
    assert!(world.decide(write("a")).is_ok(), "it is what was shown");
}

/// A standing approval covers what is alike in another session, up to a risk, and counts what it leaves open.
///
/// Rows: SIL-152
#[test]
fn a_standing_approval_covers_what_is_alike_in_any_session_and_counts() {
    let mut world = World::new(ask_all());
    let pay = |to: &str, amount: u64| {
        let call = CallTool { arguments: json!({"to": to, "amount": amount}), sends: false, ..call_tool() };
        let sink = |name: &str, value: String| Sink { argument: name.into(), value };
        let sinks = vec![sink("to", to.into()), sink("amount", amount.to_string())];
        Prepared { sinks, ..prepared(Action::CallTool(call)) }
    };
    let ask = world.ask(pay("ann", 5));
    let [plain, counted] = ask.recurring.as_slice() else { panic!("two patterns: {:?}", ask.recurring) };
    let terms = |pattern: &Pattern, total: Option<&str>| TaskTerms {
        pattern: pattern::pattern_digest(pattern).expect("canonical"),
        risk: ask.risk,
        uses: 3,
        standing: Some(StandingTerms {
            secs: 60,
            total: total.map(|total| total.parse().expect("an amount")),
        }),
    };
    let approve = |hash, task| {
        Some(Ok(approved(ApprovalClaims { task: Some(task), expires_at: later(1_000), ..claims(hash) })))
    };
    let elsewhere = Digest::of_bytes(b"asked in another session");
    world.approval = approve(elsewhere, terms(&plain.pattern, None));
    let amount =
        |world: &World, request| world.decide(request).expect("covered").approval().expect("used").amount;
    assert_eq!(amount(&world, pay("ann", 5)), None);
    for other in [pay("bob", 5), pay("ann", 6)] {
        expected_denial(&world, other, DenyReason::Approval);
    }
    let total = terms(&counted.pattern, Some("12"));
    world.approval = approve(elsewhere, total);
    for counts in [5, 12] {
        assert_eq!(
            amount(&world, pay("ann", counts)).map(|amount| amount.to_string()),
            Some(counts.to_string())
        );
    }
    // The edges of threat 8: what is more than the total by itself, or no amount.
    for other in [pay("ann", 13), pay("bob", 5), pay("ann", 0), pay("ann", (1 << 53) - 1)] {
        expected_denial(&world, other, DenyReason::Approval);
    }
    // What was shown counts as well.
    world.approval = approve(ask.hash, total);
    assert_eq!(amount(&world, pay("ann", 5)).map(|amount| amount.to_string()), Some("5".to_owned()));
    world.approval = approve(ask.hash, terms(&plain.pattern, Some("12")));
    expected_denial(&world, pay("ann", 5), DenyReason::Approval);
    world.approval = approve(elsewhere, TaskTerms { risk: Risk::Low, ..terms(&plain.pattern, None) });
    expected_denial(&world, pay("ann", 5), DenyReason::Approval);
}

/// What a rule calls irreversible has no pattern, and what it calls so later is not covered.
#[test]
fn what_cannot_be_undone_is_approved_each_time() {
    let rule = format!(
        "{PERMIT_ALL} @id(\"hard\") @ask(\"Sure?\") @risk(\"irreversible\") forbid (principal, action, resource);"
    );
    let rules = Box::leak(Box::new(rules(&rule)));
    let mut world = anywhere_below_home(rules);
    let ask = world.ask(prepared(Action::WriteFile(project_write(&["a"]))));
    assert_eq!((ask.risk, ask.pattern, ask.recurring), (Risk::Irreversible, None, Vec::new()));
    let like = prepared(Action::WriteFile(project_write(&["b"])));
    let none = EgressScope::default();
    let pattern =
        pattern::pattern_of(&like, rules.digest(), &ask.rules, &none).expect("by its kind it would have one");
    let pattern = pattern::pattern_digest(&pattern).expect("canonical");
    let terms = TaskTerms { pattern, risk: Risk::Irreversible, uses: 3, standing: None };
    world.approval = Some(Ok(approved(ApprovalClaims {
        task: Some(terms),
        expires_at: later(1_000),
        ..claims(ask.hash)
    })));
    expected_denial(&world, like, DenyReason::Approval);
}

/// Threat 2: after the approval, anything that decides what would happen is changed.
///
/// Rows: SIL-002
#[test]
fn a_changed_action_is_not_the_one_that_was_approved() {
    type Change = fn(&mut Prepared);
    fn in_exec(prepared: &mut Prepared, change: impl FnOnce(&mut Exec)) {
        let Action::Exec(exec) = &mut prepared.action else { panic!("an exec") };
        change(exec);
    }
    let changes: [(&str, Change); 20] = [
        ("argv byte", |p| in_exec(p, |exec| exec.argv[1] = "tesu".into())),
        ("trailing space", |p| in_exec(p, |exec| exec.argv[1].push(' '))),
        ("one more argument", |p| in_exec(p, |exec| exec.argv.push(String::new()))),
        ("arguments joined", |p| in_exec(p, |exec| exec.argv = vec!["cargo test".into()])),
        ("environment value", |p| {
            in_exec(p, |exec| *exec.env.entry("LANG".into()).or_default() = "D".into())
        }),
        ("environment name", |p| in_exec(p, |exec| exec.env.extend([("PAGER".into(), "C".into())]))),
        ("working directory", |p| in_exec(p, |exec| exec.cwd = "/work/.".into())),
        ("input", |p| in_exec(p, |exec| exec.stdin = Some(String::new()))),
        ("time", |p| in_exec(p, |exec| exec.timeout_ms += 1)),
        ("profile", |p| in_exec(p, |exec| exec.profile = ExecProfile::Verification)),
        ("host", |p| in_exec(p, |exec| exec.hosts.push("docs.rs".into()))),
        ("script", |p| p.bindings.extend([("script".into(), Digest::of_bytes(b"other"))])),
        ("input file", |p| p.bindings.extend([("input".into(), Digest::of_bytes(b"x"))])),
        ("binding gone", |p| p.bindings.clear()),
        ("taint", |p| p.label = Label::new(Taint::External)),
        ("tool", |p| p.tool.push('x')),
        ("sink value", |p| p.sinks[0].value.push(' ')),
        ("sink", |p| p.sinks.push(Sink { argument: "b".into(), value: "c".into() })),
        ("whether it may be repeated", |p| p.idempotent = true),
        ("action", |p| {
            p.action = Action::Say(Say { to: writ_types::recipient::Recipient::Owner, text: "hi".into() })
        }),
    ];
    let request = || prepared(Action::Exec(exec()));
    let mut world = World::new(ask_all());
    let wide = |grants: Grants| {
        grants.allow_kind(ActionKind::Exec, [(Dimension::Host, "*"), (Dimension::Profile, "*")])
    };
    (world.base.grants, world.task.grants) = (wide(all_grants()), wide(all_grants()));
    let hash = world.ask(request()).hash;
    world.approval = Some(Ok(approved(claims(hash))));
    assert!(world.decide(request()).is_ok(), "unchanged");
    for (what, change) in changes {
        let mut changed = request();
        change(&mut changed);
        assert_eq!(world.denial(changed.clone()).reason, DenyReason::Approval, "{what}");
        // The same said by the check of the token itself.
        let now_expected = crate::approval::Expected {
            prepared: changed.hash(world.rules.digest()).expect("canonical"),
            ..expected(&claims(hash))
        };
        assert!(verify_approval(&signed(claims(hash)), &now_expected, &approvers(), NOW).is_err(), "{what}");
    }
    let count = changes.len();
    println!("THREAT 2 attempts={count} refused={count} entries=0 entry=- twins=1");
    // Fields that only say when and why it is requested again do not make it another request.
    let again = Prepared {
        turn_number: 9,
        turn: None,
        call: Some("call-2".into()),
        intent: "again".into(),
        ..request()
    };
    assert!(world.decide(again).is_ok());
}

#[test]
fn an_approval_does_not_outlive_the_rules_the_agent_or_the_session() {
    let request = || prepared(Action::Exec(exec()));
    let mut world = World::new(ask_all());
    let hash = world.ask(request()).hash;
    world.approval = Some(Ok(approved(claims(hash))));
    let commented = Box::leak(Box::new(rules(&format!(
        "{PERMIT_ALL} @id(\"ask\") @ask(\"Sure?\") forbid (principal, action, resource); // more"
    ))));
    let refused = World { rules: commented, approval: world.approval.clone(), ..World::new(ask_all()) };
    assert_eq!(refused.denial(request()).reason, DenyReason::Approval);

    let mut elsewhere = World { approval: world.approval.clone(), ..World::new(ask_all()) };
    elsewhere.task.session = session(2);
    let moved = Prepared { session: Some(session(2)), ..request() };
    assert_eq!(elsewhere.denial(moved).reason, DenyReason::Approval);

    let mut other = World { approval: world.approval.clone(), ..World::new(ask_all()) };
    other.base.agent = "somebody".into();
    assert_eq!(other.denial(Prepared { agent: "somebody".into(), ..request() }).reason, DenyReason::Approval);

    world.now = later(60_000);
    let short = ApprovalClaims { expires_at: later(60_000), ..claims(hash) };
    world.approval = Some(Ok(approved(short.clone())));
    let denial = world.denial(request());
    assert_eq!((denial.reason, denial.rule), (DenyReason::Approval, format!("ask {}", short.ask)));
    world.now = later(59_999);
    assert!(world.decide(request()).is_ok());
}

#[test]
fn an_approval_that_is_not_needed_is_not_used_up() {
    let mut world = world();
    let request = || prepared(Action::Exec(exec()));
    for decision in [Decision::Approve, Decision::Deny] {
        let hash = request().hash(world.rules.digest()).expect("canonical");
        world.approval = Some(Ok(approved(ApprovalClaims { decision, ..claims(hash) })));
        assert_eq!(world.decide(request()).expect("permitted").approval(), None);
    }
}

#[test]
fn a_person_may_say_no() {
    let mut world = World::new(ask_all());
    let request = || prepared(Action::Exec(exec()));
    let hash = world.ask(request()).hash;
    world.approval = Some(Ok(approved(ApprovalClaims { decision: Decision::Deny, ..claims(hash) })));
    let denial = world.denial(request());
    assert_eq!((denial.reason, denial.rule), (DenyReason::Person, format!("ask {}", ask_id())));
}

/// The key of another person is as good as none, even over the right content.
#[test]
fn a_stranger_cannot_approve() {
    let mut world = World::new(ask_all());
    let request = || prepared(Action::Exec(exec()));
    let hash = world.ask(request()).hash;
    let stranger = SigningKey::from_bytes(&[9; 32]);
    let token = ApprovalToken::sign_claims(claims(hash), &stranger).expect("signs");
    world.approval = Some(verify_approval(&token, &expected(&claims(hash)), &approvers(), NOW));
    assert_eq!(world.denial(request()).reason, DenyReason::Approval);
    let token = ApprovalToken::sign_claims(claims(hash), &approver()).expect("signs");
    world.approval = Some(verify_approval(&token, &expected(&claims(hash)), &approvers(), NOW));
    assert!(world.decide(request()).is_ok());
}

/// What two people must approve is not done on the word of one, whatever that word covers.
#[test]
fn one_persons_yes_is_not_enough_where_two_are_wanted() {
    let text = format!(
        "{PERMIT_ALL} @id(\"two\") @ask(\"Sure?\") @approvers(\"2\") forbid (principal, action, resource);"
    );
    let rules = Box::leak(Box::new(rules(&text)));
    let mut world = anywhere_below_home(rules);
    let request = || prepared(Action::WriteFile(project_write(&["a"])));
    let ask = world.ask(request());
    assert_eq!((ask.approvers, ask.pattern, ask.recurring), (2, None, Vec::new()));
    world.approval = Some(Ok(approved(claims(ask.hash))));
    expected_denial(&world, request(), DenyReason::Approval);
}
