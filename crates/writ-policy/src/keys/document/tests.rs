use std::collections::BTreeMap;

use ed25519_dalek::SigningKey;
use serde_json::json;
use writ_types::action::{Action, Escalate};
use writ_types::digest::Digest;
use writ_types::entry::{DenyReason, Fact};
use writ_types::id::KeyId;

use super::*;
use crate::door::{Denial, precheck};
use crate::fixture::{World, case, key, later, permit_all, prepared, refund, root, router, verifier};
use crate::keys::limits::{CASE, CUSTOMER, UsedLimits, UsedToday};
use crate::keys::{
    BaseClaims, KeyError, KeyToken, TASK_KEY_TTL, TaskClaims, mint_base, mint_task, seal_token,
};

/// The base key of the requirements, word for word.
fn sample() -> Value {
    json!({
        "agent": "refund-agent",
        "capabilities": {
            "refund": { "max_amount": 500 },
            "send_email": { "templates": ["confirmation", "apology"] },
            "escalate_to": ["manager", "human"],
        },
        "expires": "2024-12-31T00:00:00Z",
    })
}

/// The task key of the requirements, word for word.
fn sample_task() -> Value {
    json!({
        "task_id": "chat-session-abc123",
        "customer_token": "cust_tk_789xyz",
        "case_token": "case_tk_456def",
        "granted_by": "router",
        "expires": "2024-03-15T14:30:00Z",
    })
}

fn without(mut document: Value, name: &str) -> Value {
    document.as_object_mut().expect("an object").remove(name);
    document
}

fn with(mut document: Value, name: &str, value: Value) -> Value {
    document[name] = value;
    document
}

/// A world whose keys say what the document says, as the router mints them: the task key grants what its base key does.
fn world(document: Value) -> World {
    let grants = read_base(document).expect("reads").grants;
    let world = World::new(permit_all());
    World {
        base: BaseClaims { grants: grants.clone(), ..world.base },
        task: TaskClaims { grants, ..world.task },
        ..world
    }
}

fn says(world: &World, action: Action) -> Result<(), Box<Denial>> {
    let authority = world.authority();
    precheck(prepared(action), &world.facts(&authority), world.now).map(drop)
}

fn denied(world: &World, action: Action) -> Box<Denial> {
    says(world, action).expect_err("must be refused")
}

fn refused(world: &World, action: Action) -> DenyReason {
    denied(world, action).reason
}

fn operate(operation: &str, more: &[(&str, &str)]) -> Action {
    let mut operate = refund(1);
    operate.operation = operation.to_owned();
    operate.parameters.remove("amount");
    operate.parameters.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    Action::Operate(operate)
}

/// Rows: SLO-005 SLO-014
#[test]
fn the_samples_are_read_and_lack_nothing_that_may_be_missing() {
    let read = read_base(sample()).expect("reads");
    assert_eq!(
        (read.agent.as_str(), read.expires.to_string().as_str()),
        ("refund-agent", "2024-12-31T00:00:00.000Z")
    );
    for name in ["agent", "capabilities", "expires"] {
        assert!(read_base(without(sample(), name)).expect_err(name).0.contains(name));
    }
    let read = read_task(sample_task()).expect("reads");
    assert_eq!((read.case, read.expires.to_string().as_str()), (case(), "2024-03-15T14:30:00.000Z"));
    for name in ["task_id", "customer_token", "case_token", "granted_by", "expires"] {
        assert!(read_task(without(sample_task(), name)).expect_err(name).0.contains(name));
    }
    assert!(read_task(with(sample_task(), "granted_by", json!("refund-agent"))).is_err());
}

#[test]
fn documents_that_can_be_misread_are_refused() {
    let limits = |limits: Value| read_base(with(sample(), "capabilities", json!({ "refund": limits })));
    for bad in [
        json!(500),
        json!({ "maximum": 500 }),
        json!({ "max_amount": 500.5 }),
        json!({ "max_amount": "500" }),
        json!({ "max_amount": 0 }),
        json!({ "min_amount": 3 }),
        json!({ "min_amount": 3, "max_amount": 2 }),
        json!({ "templates": [] }),
        json!({ "templates": "apology" }),
        json!({ "max_": 1 }),
    ] {
        assert!(limits(bad.clone()).is_err(), "{bad}");
    }
    let read = limits(json!({ "daily_amount": 900, "min_amount": -5 })).expect("reads").grants;
    assert_eq!(read.limits["refund"].amounts["amount"], AmountLimit { min: -5, max: 900, daily: Some(900) });
    for (name, value) in [
        ("agent", json!("")),
        ("agent", json!("a b")),
        ("agent", json!("x".repeat(MAX_NAME_BYTES + 1))),
        ("expires", json!("soon")),
        ("expires", json!(1_735_603_200)),
        ("capabilities", json!({ "refund)": {} })),
        ("capabilities", json!({ "escalate_to": "admin" })),
        ("also", json!(1)),
    ] {
        assert!(read_base(with(sample(), name, value.clone())).is_err(), "{name} {value}");
    }
    // A raw address is no token of a customer.
    assert!(read_task(with(sample_task(), "customer_token", json!("ann@example.com"))).is_err());
}

/// Threat 8: limit edges. Both bounds count, what is written oddly is no amount, and the day's uses add up.
///
/// Rows: SLO-019 (in part: amounts) SLO-006
#[test]
fn amounts_have_two_bounds_and_a_day() {
    let world = world(sample());
    let (mut attempts, mut twins) = (0, 0);
    let mut refused = |world: &World, action: Action| {
        attempts += 1;
        refused(world, action)
    };
    let mut passes = |world: &World, action: Action| {
        twins += 1;
        says(world, action).is_ok()
    };
    for good in [1, 499, 500] {
        assert!(passes(&world, Action::Operate(refund(good))), "{good}");
    }
    for bad in [501, -1, 0, i64::MAX, i64::MIN] {
        assert_eq!(refused(&world, Action::Operate(refund(bad))), DenyReason::Limit, "{bad}");
    }
    for odd in ["", "5e2", "+5", "05", " 5", "5.0", "9223372036854775808", "five", "٥"] {
        let action = operate("refund", &[("amount", odd)]);
        assert_eq!(refused(&world, action), DenyReason::Limit, "{odd:?}");
    }
    assert_eq!(refused(&world, operate("refund", &[])), DenyReason::Limit, "no amount at all");
    let without = self::world(with(sample(), "capabilities", json!({ "look_up": {} })));
    assert_eq!(refused(&without, Action::Operate(refund(1))), DenyReason::Scope, "no refunds at all");

    let daily = |used: Option<i64>| {
        let capabilities = json!({ "refund": { "max_amount": 500, "daily_amount": 500 } });
        let used = used.map(|used| UsedLimits::from([(("refund".to_owned(), "amount".to_owned()), used)]));
        let used = used.map(|base| UsedToday { task: base.clone(), base, ..UsedToday::default() });
        World { used, ..self::world(with(sample(), "capabilities", capabilities)) }
    };
    for (used, amount) in [(0, 499), (499, 1)] {
        assert!(passes(&daily(Some(used)), Action::Operate(refund(amount))), "{used} and {amount}");
    }
    for (used, amount) in [(499, 499), (500, 1), (i64::MAX, 1), (-1_000, 499)] {
        let said = refused(&daily(Some(used)), Action::Operate(refund(amount)));
        assert_eq!(said, DenyReason::UsedUp, "{used} and {amount}");
    }
    assert_eq!(refused(&daily(None), Action::Operate(refund(1))), DenyReason::Limit, "nobody has counted");
    // The total of a key adds up over its days, and counts apart from them.
    let total = |used: Option<i64>| {
        let capabilities =
            json!({ "refund": { "max_amount": 500, "daily_amount": 500, "total_amount": 800 } });
        let used = used.map(|used| UsedLimits::from([(("refund".to_owned(), "amount".to_owned()), used)]));
        let used =
            used.map(|all| UsedToday { task_total: all.clone(), base_total: all, ..UsedToday::default() });
        World { used, ..self::world(with(sample(), "capabilities", capabilities)) }
    };
    assert!(passes(&total(Some(300)), Action::Operate(refund(500))), "exactly the rest");
    for (used, reason) in
        [(Some(301), DenyReason::UsedUp), (Some(-1), DenyReason::UsedUp), (None, DenyReason::Limit)]
    {
        assert_eq!(refused(&total(used), Action::Operate(refund(500))), reason, "{used:?}");
    }
    println!("THREAT 8 attempts={attempts} refused={attempts} entries=0 entry=- twins={twins}");
}

/// What is logged of a refusal is its fact: no tool escalates yet, so it is taken here from the door itself.
///
/// Rows: SLO-012 (at the door) SLO-006 SLO-007 SLO-008
#[test]
fn an_agent_does_what_its_base_key_names_and_nothing_else() {
    let world = world(sample());
    assert!(says(&world, operate("send_email", &[("template", "apology")])).is_ok());
    for email in [&[("template", "promo")][..], &[("template", "Apology")], &[("text", "free")], &[]] {
        assert_eq!(refused(&world, operate("send_email", email)), DenyReason::Limit, "{email:?}");
    }
    let escalate = |to: &str| Action::Escalate(Escalate { to: to.to_owned(), question: "may I?".to_owned() });
    assert!(says(&world, escalate("manager")).is_ok() && says(&world, escalate("human")).is_ok());
    let admin = prepared(escalate("admin")).hash(world.rules.digest()).expect("has one");
    let denial = denied(&world, escalate("admin"));
    let expected = Fact::Denied {
        prepared: Some(admin),
        kind: ActionKind::Escalate,
        reason: DenyReason::Scope,
        rule: format!("base key {}: recipient", world.base.key),
        text: "recipient 'admin' is outside what the base key grants for 'escalate'".to_owned(),
        outside: "Refused: this is outside what the key of this session grants for 'escalate'. \
                  Do not try another way; say so, or go on with what is allowed."
            .to_owned(),
        requester: None,
    };
    assert_eq!(denial.denial_fact(), expected);
    assert_eq!(refused(&world, operate("close_account", &[])), DenyReason::Scope);
    // A support agent's base key: no refund, whatever the task key is for.
    let support = self::world(with(sample(), "capabilities", json!({ "look_up": {} })));
    assert_eq!(refused(&support, Action::Operate(refund(1))), DenyReason::Scope);
    assert!(says(&support, operate("look_up", &[])).is_ok(), "twin: what it is for");
}

/// Rows: SLO-013 SLO-017 (of operations) SLO-019 (in part: the case) SLO-004
#[test]
fn an_operation_is_of_the_case_that_the_task_key_is_for() {
    let world = world(sample());
    let moved = |name: &str, value: &str| {
        let mut refund = refund(100);
        refund.parameters.insert(name.to_owned(), value.to_owned());
        Action::Operate(refund)
    };
    assert!(says(&world, moved("note", "thanks")).is_ok());
    for (name, value) in [
        (CUSTOMER, "cust_tk_other"),
        (CUSTOMER, "CUST_TK_789XYZ"),
        (CUSTOMER, "cust_tk_789xyz "),
        (CASE, "case_tk_other"),
        (CASE, ""),
    ] {
        assert_eq!(refused(&world, moved(name, value)), DenyReason::Scope, "{name}={value}");
    }
    for name in [CUSTOMER, CASE] {
        let mut lacking = refund(100);
        lacking.parameters.remove(name);
        assert_eq!(refused(&world, Action::Operate(lacking)), DenyReason::Scope, "without {name}");
    }
    let of_no_case = World { task: TaskClaims { case: None, ..world.task.clone() }, ..self::world(sample()) };
    assert_eq!(refused(&of_no_case, Action::Operate(refund(100))), DenyReason::Scope);
    // The same base key works for another customer, with a task key for that one.
    let other = Case { customer: "cust_tk_other".into(), ..case() };
    let other =
        World { task: TaskClaims { case: Some(other), ..world.task.clone() }, ..self::world(sample()) };
    assert!(says(&other, moved(CUSTOMER, "cust_tk_other")).is_ok());
    assert_eq!(refused(&other, Action::Operate(refund(100))), DenyReason::Scope);
    for world in [&world, &other] {
        assert_eq!(refused(world, operate("close_account", &[])), DenyReason::Scope, "for either customer");
    }
}

/// Why a pair of keys does not serve: a key is none, or the door refuses and says by which part of a key.
#[derive(Debug, PartialEq)]
enum Refused {
    Key(KeyError),
    Door(DenyReason, String),
}

/// The authority that a base key and a task key give to a request.
fn tried(world: &World, [base, task]: [&KeyToken; 2], action: Action) -> Result<(), Refused> {
    let authority = verifier().verify_pair(base, task).map_err(Refused::Key)?;
    let checked = precheck(prepared(action), &world.facts(&authority), world.now);
    checked.map(drop).map_err(|denial| Refused::Door(denial.reason, denial.rule))
}

/// The task key is good each time: it lasts longer than this base key, and grants an operation more.
///
/// Rows: SLO-043
#[test]
fn a_base_key_is_refused_for_its_signature_its_time_and_what_it_lacks() {
    let wider = read_base(with(sample(), "capabilities", json!({ "refund": {}, "close_account": {} })));
    let wider = wider.expect("reads").grants;
    let at = |now| {
        let world = world(sample());
        World {
            base: BaseClaims { expires_at: later(60_000), ..world.base },
            task: TaskClaims { grants: wider.clone(), ..world.task },
            now,
            ..world
        }
    };
    let (early, late) = (at(later(59_999)), at(later(60_000)));
    assert!(late.now < late.task.expires_at);
    let minted = |root: &SigningKey| {
        let base = mint_base(&early.base, root).expect("mints");
        let task = mint_task(&base, &early.task, &root.verifying_key(), &router()).expect("mints");
        [base, task]
    };
    let ([base, task], [foreign, over_it]) = (minted(&root()), minted(&key(9)));
    let pays = || Action::Operate(refund(100));
    assert_eq!(tried(&early, [&base, &task], pays()), Ok(()), "twin: the same a moment before its end");
    let refused = [
        tried(&early, [&foreign, &over_it], pays()),
        tried(&late, [&base, &task], pays()),
        tried(&early, [&base, &task], operate("close_account", &[])),
    ];
    let expected = [
        Refused::Key(KeyError::Signature),
        Refused::Door(DenyReason::Expired, format!("task key {}", early.task.key)),
        Refused::Door(DenyReason::Scope, format!("base key {}: name", early.base.key)),
    ];
    assert_eq!(refused.map(|tried| tried.expect_err("must be refused")), expected);
}

/// The base key is good each time: it lasts longer than this task key.
///
/// Rows: SLO-044
#[test]
fn a_task_key_is_refused_for_its_signature_its_time_and_whom_it_is_for() {
    let at = |now| World { now, ..world(sample()) };
    let (early, late) = (at(later(1_799_999)), at(later(1_800_000)));
    assert!(late.now == late.task.expires_at && late.now < late.base.expires_at);
    let other = Case { customer: "cust_tk_other".into(), ..case() };
    let other = TaskClaims { case: Some(other), ..early.task.clone() };
    let base = mint_base(&early.base, &root()).expect("mints");
    let minted = |task: &TaskClaims, router: &SigningKey| {
        mint_task(&base, task, &root().verifying_key(), router).expect("mints")
    };
    let good = minted(&early.task, &router());
    let (foreign, of_another) = (minted(&early.task, &key(9)), minted(&other, &router()));
    let pays = || Action::Operate(refund(100));
    assert_eq!(tried(&early, [&base, &good], pays()), Ok(()), "twin: the same a moment before its end");
    let refused = [
        tried(&early, [&base, &foreign], pays()),
        tried(&late, [&base, &good], pays()),
        tried(&early, [&base, &of_another], pays()),
    ];
    let expected = [
        Refused::Key(KeyError::Blocks),
        Refused::Door(DenyReason::Expired, format!("task key {}", early.task.key)),
        Refused::Door(DenyReason::Scope, format!("task key {}: case", early.task.key)),
    ];
    assert_eq!(refused.map(|tried| tried.expect_err("must be refused")), expected);
}

/// Threat 7: base A with the task of B, a task alone, a base alone.
///
/// Rows: SLO-020 (in part: the ledger is told by what makes something of keys) SLO-003
/// Rows: SLO-021 (in part: a task key alone is refused)
#[test]
fn two_keys_that_do_not_belong_together_prove_nothing() {
    let world = world(sample());
    let keys = |n: u128| {
        let base = BaseClaims { key: KeyId::from_parts(later(0), n), ..world.base.clone() };
        let task = TaskClaims { base: base.key, ..world.task.clone() };
        let base = mint_base(&base, &root()).expect("mints");
        let task = mint_task(&base, &task, &root().verifying_key(), &router()).expect("mints");
        (base, task)
    };
    let ((base_a, task_a), (base_b, task_b)) = (keys(41), keys(42));
    let good = [(&base_a, &task_a), (&base_b, &task_b)];
    for (base, task) in good {
        assert!(verifier().verify_pair(base, task).is_ok());
    }
    let mixed = [
        ("another's task key", &base_a, &task_b, KeyError::Mixed),
        ("another's base key", &base_b, &task_a, KeyError::Mixed),
        ("a base key twice", &base_a, &base_a, KeyError::Blocks),
        ("a task key twice", &task_a, &task_a, KeyError::Blocks),
    ];
    let mut attempts = 0;
    for (what, base, task, why) in mixed {
        assert_eq!(verifier().verify_pair(base, task), Err(why), "{what}");
        attempts += 1;
    }
    for alone in [&base_a, &base_b] {
        assert_eq!(verifier().verify_task(alone), Err(KeyError::Blocks));
        attempts += 1;
    }
    println!("THREAT 7 attempts={attempts} refused={attempts} entries=0 entry=- twins={}", good.len());
    let (claims, ids) = verifier().verify_base(&base_a).expect("verifies by itself");
    assert_eq!(claims.grants, world.base.grants);
    assert!(ids.contains(&claims.key.to_string()));
}

/// Sub-agents get narrower copies: never more, never longer, and gone with what they are copies of.
///
/// Rows: SLO-018
#[test]
fn a_copy_is_narrower_and_dies_with_what_it_is_a_copy_of() {
    let world = world(sample());
    let narrow = read_narrow(json!({ "capabilities": { "refund": { "max_amount": 50 } } })).expect("reads");
    let grants = narrow.grants.expect("some");
    let copy =
        |grants: Grants, expires| world.task.narrow_to(KeyId::from_parts(later(0), 77), grants, expires);
    let ends = world.task.expires_at;
    let copied = copy(grants.clone(), ends).expect("narrower");
    let narrower = World { task: copied.clone(), ..self::world(sample()) };
    assert!(says(&narrower, Action::Operate(refund(50))).is_ok());
    assert_eq!(refused(&narrower, Action::Operate(refund(51))), DenyReason::Limit);
    let email = operate("send_email", &[("template", "apology")]);
    assert_eq!(refused(&narrower, email), DenyReason::Scope);
    // Whatever of the chain is revoked ends it.
    for id in [world.task.key, world.base.key, copied.key] {
        let revoked = [id.to_string()].into();
        let ended = World { revoked, task: copied.clone(), ..self::world(sample()) };
        assert_eq!(refused(&ended, Action::Operate(refund(50))), DenyReason::Revoked, "{id}");
    }
    for (wider, what) in [
        (json!({ "refund": { "max_amount": 501 } }), "a higher bound"),
        (json!({ "refund": { "max_amount": 500, "min_amount": 0 } }), "a lower one"),
        (json!({ "refund": {} }), "no bound"),
        (json!({ "close_account": {} }), "another operation"),
        (json!({ "send_email": { "templates": ["apology", "promo"] } }), "another value"),
        (json!({ "escalate_to": ["admin"] }), "somebody else"),
    ] {
        let wider = self::read_narrow(json!({ "capabilities": wider })).expect("reads").grants.expect("some");
        assert_eq!(copy(wider, ends), Err(KeyError::Wider("what it grants")), "{what}");
    }
    assert_eq!(copy(grants.clone(), ends.plus_duration(TASK_KEY_TTL)), Err(KeyError::Wider("its time")));
    // A chain of copies ends.
    let mut last = copied;
    let chain = (0..20).find_map(|n| {
        let next = last.narrow_to(KeyId::from_parts(later(0), 100 + n), grants.clone(), ends);
        last = next.clone().unwrap_or_else(|_| last.clone());
        next.err()
    });
    assert_eq!(chain, Some(KeyError::Wider("how many keys it rests on")));
}

/// What a token says of limits, case and copies comes back as it was, also from a sealed one.
#[test]
fn limits_and_cases_survive_the_token() {
    let mut world = world(sample());
    world.task.under = (100..108).map(|n| KeyId::from_parts(later(0), n)).collect();
    let authority = world.authority();
    assert_eq!((authority.base(), authority.task()), (&world.base, &world.task));
    assert_eq!(authority.revocation_ids().len(), 4 + 8);
    let base = mint_base(&world.base, &root()).expect("mints");
    let token = mint_task(&base, &world.task, &root().verifying_key(), &router()).expect("mints");
    let sealed = seal_token(&token, &root().verifying_key()).expect("seals");
    assert_ne!(Digest::of_bytes(sealed.as_bytes()), Digest::of_bytes(token.as_bytes()));
    assert_eq!(verifier().verify_pair(&base, &sealed).expect("verifies").task(), &world.task);
    assert_eq!(seal_token(&sealed, &root().verifying_key()), Err(KeyError::Sealed));
    assert_eq!(seal_token(&token, &router().verifying_key()), Err(KeyError::Signature));
    let again = mint_task(&sealed, &world.task, &root().verifying_key(), &router());
    assert!(matches!(again, Err(KeyError::Build(_))), "nothing is added to a sealed one");
}

/// Names that mean something to Datalog, JSON or a shell are refused before they reach a token.
#[test]
fn names_are_plain() {
    let names: BTreeMap<&str, bool> =
        [("a-b_c.d", true), ("\"); capability(\"exec", false), ("a\nb", false), ("ü", false), ("$x", false)]
            .into();
    for (bytes, good) in [(MAX_NAME_BYTES, true), (MAX_NAME_BYTES + 1, false)] {
        assert_eq!(
            read_base(with(sample(), "agent", json!("a".repeat(bytes)))).is_ok(),
            good,
            "{bytes} bytes"
        );
    }
    let bounds =
        |limits: Value| read_base(with(sample(), "capabilities", json!({ "refund": limits }))).is_ok();
    assert!(bounds(json!({ "min_amount": 5, "max_amount": 5 })), "one value");
    assert!(bounds(json!({ "min_amount": 5, "max_amount": 9, "daily_amount": 5 })));
    assert!(bounds(json!({ "total_amount": 5 })) && !bounds(json!({ "min_amount": 5, "total_amount": 4 })));
    assert!(
        !bounds(json!({ "min_amount": 5, "max_amount": 4 }))
            && !bounds(json!({ "min_amount": 5, "max_amount": 9, "daily_amount": 4 }))
    );
    for (name, good) in names {
        assert_eq!(read_base(with(sample(), "agent", json!(name))).is_ok(), good, "{name:?}");
        assert_eq!(read_task(with(sample_task(), "case_token", json!(name))).is_ok(), good, "{name:?}");
    }
}

/// Rows: SLO-064
#[test]
fn an_agent_may_ask_models_unless_its_key_sets_a_quota() {
    let any = |document| {
        let grants = read_base(document).expect("reads").grants;
        (
            grants.covers_value(ActionKind::ModelCall, Dimension::Provider, "local"),
            grants.limits.get("model_call").cloned(),
        )
    };
    assert_eq!(any(sample()), (true, None));
    let quota = json!({ "model_call": { "max_tokens": 1_000 } });
    let (granted, limits) = any(with(sample(), "capabilities", quota.clone()));
    let tokens = AmountLimit { min: 1, max: 1_000, daily: None };
    assert_eq!((granted, limits.expect("limits").amounts), (true, [("tokens".to_owned(), tokens)].into()));
    let total = json!({ "model_call": { "total_tokens": 1_000 } });
    assert!(read_base(with(sample(), "capabilities", total)).is_err(), "nothing counts it");
    // A copy asks models only where that is named.
    let copy = |capabilities: Value| {
        read_narrow(json!({ "capabilities": capabilities })).expect("reads").grants.expect("some")
    };
    let asks = |grants: Grants| grants.kinds.contains_key(&ActionKind::ModelCall);
    assert_eq!((asks(copy(json!({ "refund": {} }))), asks(copy(quota))), (false, true));
}
