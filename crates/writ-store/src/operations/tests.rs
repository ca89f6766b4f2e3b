use writ_policy::permit::{Journal as _, OperationUse, RedeemError};

use writ_types::entry::Entry;

use super::*;
use crate::batch::{Durability, Op};
use crate::testing::{TestHome, at, attempt, intent};

fn limit(parameter: &str, amount: i64) -> LimitUse {
    LimitUse {
        counter: "base 1".into(),
        operation: "refund".into(),
        parameter: parameter.into(),
        amount,
        most: 1_000,
        span: LimitSpan::Day,
    }
}

fn name(name: &str) -> OnceName {
    OnceName { scope: "case refund".into(), name: name.into(), request: Digest::of_bytes(name.as_bytes()) }
}

fn redemption(n: u128, uses: Vec<LimitUse>, once: Option<OnceName>) -> Redemption {
    Redemption {
        attempt: attempt(n),
        intent: intent(n),
        approval: None,
        reservation: Default::default(),
        keys: Default::default(),
        ceilings: Default::default(),
        operation: OperationUse { uses, once },
        durability: Durability::Relaxed,
    }
}

fn used(home: &TestHome, parameter: &str) -> i64 {
    home.store.blocking().used_amounts(&[limit(parameter, 0)], at(0)).expect("reads")[0]
}

fn case_row(n: u8) -> CaseRow {
    CaseRow {
        token: format!("case_tk_{n}"),
        customer_token: format!("cust_tk_{n}"),
        tenant: "shop".into(),
        sealed: vec![n; 40],
        opened_at: at(0),
    }
}

fn value(n: u8) -> SealedValue {
    SealedValue { token: format!("name_tk_{n}"), kind: "name".into(), sealed: vec![n; 40] }
}

/// Amounts add up to the limit and no further, all parameters or none of one operation, also over a restart.
///
/// Rows: SLO-026 (in part: the day's limit)
#[tokio::test]
async fn a_limit_of_the_day_is_counted_with_the_intent() {
    let home = TestHome::new();
    let redeem = |n, uses| home.store.redeem(redemption(n, uses, None));
    redeem(1, vec![limit("amount", 600), limit("fee", 999)]).await.expect("fits");
    let refused = redeem(2, vec![limit("amount", 400), limit("fee", 2)]).await.expect_err("too much");
    assert_eq!(refused, RedeemError::UsedUp("fee".into()));
    assert_eq!((used(&home, "amount"), used(&home, "fee")), (600, 999), "nothing of it was counted");
    assert_eq!(home.store.blocking().ledger_size().expect("reads"), 1, "and no intent was written");
    redeem(3, vec![limit("amount", 400)]).await.expect("exactly the limit");
    let refused = redeem(4, vec![limit("amount", 1)]).await.expect_err("one too much");
    assert_eq!(refused, RedeemError::UsedUp("amount".into()));
    let home = home.reopened();
    assert_eq!(used(&home, "amount"), 1_000);
    let tomorrow = home.store.blocking().used_amounts(&[limit("amount", 0)], at(DAY_MS)).expect("reads");
    assert_eq!(tomorrow, [0], "another day");
}

/// What adds up over the life of a key is not given back at midnight, however long ago it was used.
///
/// Rows: SLO-026 (in part: the limit of a key)
#[tokio::test]
async fn a_limit_of_a_key_adds_up_over_its_days() {
    let home = TestHome::new();
    let of_key = |amount| LimitUse { span: LimitSpan::Key, ..limit("amount", amount) };
    let redeem = async |n, at, uses| {
        let wanted = redemption(n, uses, None);
        let entry = Entry { at, ..wanted.intent.clone() };
        home.store.redeem(Redemption { intent: entry, ..wanted }).await
    };
    redeem(1, at(0), vec![of_key(600), limit("amount", 600)]).await.expect("fits");
    redeem(2, at(400 * DAY_MS), vec![of_key(400), limit("amount", 400)]).await.expect("exactly the limit");
    let refused = redeem(3, at(800 * DAY_MS), vec![of_key(1)]).await.expect_err("used up for good");
    assert_eq!(refused, RedeemError::UsedUp("amount".into()));
    redeem(4, at(800 * DAY_MS), vec![limit("amount", 1_000)]).await.expect("twin: the day's is there again");
    let back = OperationOp::Return { attempt: attempt(2), uses: vec![of_key(400)], at: at(900 * DAY_MS) };
    home.commit(vec![Op::Operations(back)]);
    let used = home.store.blocking().used_amounts(&[of_key(0)], at(900 * DAY_MS)).expect("reads");
    assert_eq!(used, [600], "given back on any day");
}

/// What was not performed counts nothing, and may be asked for again under its name.
#[tokio::test]
async fn what_was_not_performed_is_given_back() {
    let home = TestHome::new();
    let wanted = || redemption(1, vec![limit("amount", 600)], Some(name("a")));
    home.store.redeem(wanted()).await.expect("fits");
    let back = OperationOp::Return { attempt: attempt(1), uses: vec![limit("amount", 600)], at: at(0) };
    home.commit(vec![Op::Operations(back)]);
    assert_eq!(used(&home, "amount"), 0);
    let again = Redemption { attempt: attempt(2), intent: intent(2), ..wanted() };
    home.store.redeem(again).await.expect("the name is free");
}

/// A name is good for one performance, and later requests find its answer.
#[tokio::test]
async fn a_request_with_a_name_is_begun_once() {
    let home = TestHome::new();
    home.store.redeem(redemption(1, Vec::new(), Some(name("a")))).await.expect("the first");
    let refused = home.store.redeem(redemption(2, vec![limit("amount", 5)], Some(name("a")))).await;
    assert_eq!(refused, Err(RedeemError::Repeated("a".into())));
    assert_eq!(used(&home, "amount"), 0);
    let found =
        |home: &TestHome| home.store.blocking().once("case refund", "a").expect("reads").expect("known");
    let begun = OnceRow { request: name("a").request, attempt: attempt(1), answer: None, is_open: false };
    assert_eq!(found(&home), begun);
    home.commit(vec![keep_answer(1, vec![1, 2, 3])]);
    assert_eq!(found(&home.reopened()).answer, Some(vec![1, 2, 3]));
}

/// An open name is taken by the same request alone, once at a time, and is not given away with what is given back.
#[tokio::test]
async fn an_open_name_is_for_the_same_request_alone() {
    let home = TestHome::new();
    let redeem = |n, once| home.store.redeem(redemption(n, Vec::new(), Some(once)));
    let open = |n| home.commit(vec![Op::Operations(OperationOp::OpenName { attempt: attempt(n) })]);
    redeem(1, name("a")).await.expect("the first");
    open(1);
    let other = OnceName { request: name("b").request, ..name("a") };
    assert_eq!(redeem(2, other.clone()).await, Err(RedeemError::Repeated("a".into())));
    redeem(3, name("a")).await.expect("the same");
    assert_eq!(redeem(4, name("a")).await, Err(RedeemError::Repeated("a".into())), "it is under way");
    open(3);
    let back = OperationOp::Return { attempt: attempt(3), uses: Vec::new(), at: at(0) };
    home.commit(vec![Op::Operations(back)]);
    assert_eq!(redeem(5, other).await, Err(RedeemError::Repeated("a".into())), "it is still its own");
    redeem(6, name("a")).await.expect("the same again");
}

fn keep_answer(n: u128, answer: Vec<u8>) -> Op {
    Op::Operations(OperationOp::KeepAnswer {
        attempt: attempt(n),
        case: "case".into(),
        answer,
        short: vec![0],
    })
}

/// The answers of a case have an end: those over it are stored in short, and the case's end deletes all of them.
#[tokio::test]
async fn answers_of_a_case_are_bounded_and_go_with_it() {
    let home = TestHome::new();
    home.commit(vec![Op::Operations(OperationOp::OpenCase(CaseRow { token: "case".into(), ..case_row(1) }))]);
    let most = u128::try_from(MAX_CASE_ANSWER_BYTES / MAX_SEALED_BYTES).expect("fits");
    for n in 1..=most + 2 {
        // A case with a longer token is another one.
        let scope = if n == most + 2 { "case2 refund" } else { "case refund" };
        let once = OnceName { scope: scope.into(), ..name(&n.to_string()) };
        home.store.redeem(redemption(n, Vec::new(), Some(once))).await.expect("begins");
    }
    let other = Op::Operations(OperationOp::KeepAnswer {
        attempt: attempt(most + 2),
        case: "case2".into(),
        answer: vec![5; 9],
        short: vec![0],
    });
    home.commit(vec![other]);
    for n in 1..=most + 1 {
        home.commit(vec![keep_answer(n, vec![7; MAX_SEALED_BYTES])]);
    }
    let answer = |scope: &str, n: u128| {
        home.store.blocking().once(scope, &n.to_string()).expect("reads").expect("known").answer
    };
    assert_eq!(answer("case refund", most).expect("is stored").len(), MAX_SEALED_BYTES);
    assert_eq!(answer("case refund", most + 1), Some(vec![0]), "without its rows");
    home.commit(vec![Op::Operations(OperationOp::CloseCase { token: "case".into() })]);
    assert_eq!(answer("case refund", 1), None, "the name is taken and the answer gone");
    assert_eq!(answer("case2 refund", most + 2), Some(vec![5; 9]), "twin: another case");
}

/// Sealed values live as long as their case, over a restart, and are bounded.
#[test]
fn values_go_with_their_case() {
    let home = TestHome::new();
    let keep = |home: &TestHome, case: &str, values| {
        home.try_commit(vec![Op::Operations(OperationOp::KeepValues { case: case.into(), values })])
    };
    home.commit(vec![Op::Operations(OperationOp::OpenCase(case_row(1)))]);
    home.commit(vec![Op::Operations(OperationOp::OpenCase(case_row(1)))]);
    keep(&home, "case_tk_1", vec![value(1), value(2), value(1)]).expect("stores");
    keep(&home, "case_tk_9", vec![value(3)]).expect("no such case: nothing is stored");
    let home = home.reopened();
    let values = |home: &TestHome, case: &str| home.store.blocking().case_values(case).expect("reads");
    assert_eq!(values(&home, "case_tk_1"), [value(1), value(2)]);
    assert_eq!(values(&home, "case_tk_9"), []);
    let many = (0..MAX_CASE_VALUES).map(|n| SealedValue { token: n.to_string(), ..value(0) }).collect();
    assert!(matches!(keep(&home, "case_tk_1", many), Err(StoreError::TooLarge { .. })));
    let large =
        (0..2).map(|n| SealedValue { token: n.to_string(), sealed: vec![0; 600_000], ..value(0) }).collect();
    assert!(matches!(keep(&home, "case_tk_1", large), Err(StoreError::TooLarge { .. })));
    let close = || vec![Op::Operations(OperationOp::CloseCase { token: "case_tk_1".into() })];
    home.commit(close());
    assert_eq!(home.store.blocking().proxy_case("case_tk_1").expect("reads"), None);
    assert_eq!(values(&home, "case_tk_1"), []);
    assert!(home.try_commit(close()).is_err(), "once");
}
