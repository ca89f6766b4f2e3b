//! Cases with agents that are real processes: a small Python program that speaks lines of JSON.

use std::time::Duration;

use writ_fleet::anomalies::{FleetEvent, Measure};
use writ_fleet::cases::config::{CASE_TIME, DEPLOY_WAIT, FleetAgent, SILENCE, UNKNOWN_WAIT};
use writ_fleet::cases::desk::CaseDesk;
use writ_fleet::cases::front_end::FrontEndToken;
use writ_fleet::cases::ports::WaysOut;
use writ_fleet::cases::protocol::MAX_HANDOVER_BYTES;
use writ_fleet::cases::routes::{CaseCaller, CaseRoutes};
use writ_fleet::cases::status::live_status;
use writ_policy::keys::ROUTER;
use writ_runtime::fleet::FleetDesk as _;
use writ_store::fleet::MAX_AGENT_MESSAGES;
use writ_store::reads::{FleetReads as _, RevocationReads as _};
use writ_types::action::ActionKind;
use writ_types::api::fleet::MessageQuery;
use writ_types::entry::{CaseChange, CaseRecord, DenyReason, Fact};
use writ_types::id::{KeyId, SessionId};

use writ_fleet::cases::router::NewCase;

use super::support::{Fleet, refund_case};

const AGENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/agent.py");

fn python(fleet: &Fleet, name: &str, most: u64) -> FleetAgent {
    fleet.agent(name, most, &["python3", AGENT, name])
}

/// A refund agent, and a manager that may refund more.
fn both(fleet: &Fleet) -> Vec<FleetAgent> {
    let manager = FleetAgent { roles: vec!["manager".into()], ..python(fleet, "chief", 5_000) };
    vec![python(fleet, "refund-agent", 500), manager]
}

async fn records(fleet: &Fleet) -> Vec<CaseRecord> {
    let facts = fleet.facts("case_moved").await.into_iter();
    facts
        .filter_map(|fact| if let Fact::CaseMoved { record } = fact { Some(*record) } else { None })
        .collect()
}

async fn changes(fleet: &Fleet) -> Vec<CaseChange> {
    records(fleet).await.iter().map(|record| record.change).collect()
}

/// Revokes keys as commands do, past the router.
async fn revoke(fleet: &Fleet, case: SessionId, keys: &[KeyId]) {
    let ends = fleet.keys.now().plus_duration(Duration::from_secs(60 * 60));
    let ops = keys.iter().flat_map(|key| fleet.keys.revocation_of(case, (*key, ends), "by the owner"));
    fleet.keys.commit(ops.collect()).await.expect("commits");
}

fn says(messages: &[writ_store::fleet::CaseMessage], text: &str) -> bool {
    messages.iter().any(|message| message.sender.starts_with("agent") && message.text.contains(text))
}

/// Rows: SLO-040 SLO-041 SLO-054
/// Rows: SLO-015 (in part: one key for each assignment)
#[tokio::test]
async fn a_case_is_assigned_with_a_fresh_key_that_names_no_one() {
    let fleet = Fleet::new().await;
    let router = fleet.start(vec![python(&fleet, "refund-agent", 500)], &[]).await;
    let id = router.open_case(refund_case("hello")).await.expect("opens");
    fleet.until(id, |all| says(all, "refund-agent says: hello")).await;
    let handed = fleet.handed();
    let [token] = handed["refund-agent"].as_slice() else { panic!("one key: {handed:?}") };
    let authority = fleet.verifier().verify_task(token).expect("the router has signed it");
    let task = authority.task();
    assert_eq!(task.expires_at.time_since(fleet.keys.now()), Duration::from_secs(30 * 60));
    let case = task.case.clone().expect("a case");
    assert_eq!((case.granted_by.as_str(), authority.agent()), (ROUTER, "refund-agent"));
    assert!(case.customer.starts_with("cust_tk_") && case.case.starts_with("case_tk_"));
    let records = records(&fleet).await;
    let [opened, assigned] = records.as_slice() else { panic!("two entries: {records:?}") };
    assert_eq!((opened.change, assigned.change), (CaseChange::Opened, CaseChange::Assigned));
    let began = assigned.began.as_ref().expect("a holder");
    assert_eq!((assigned.router.as_str(), began.name.as_str()), (ROUTER, "refund-agent"));
    assert_eq!(began.task, Some(writ_types::digest::Digest::of_bytes(token.as_bytes())));
    let ledger = format!("{:?}{:?}", fleet.facts("case_moved").await, fleet.facts("keyed").await);
    let text = String::from(token.clone());
    assert!(!ledger.contains(&text) && !ledger.contains("Ada Real"), "{ledger}");
}

/// Rows: SLO-008 SLO-049
/// Rows: SLO-057 (in part: refused)
#[tokio::test]
async fn an_escalation_outside_the_key_or_without_a_reason_is_refused_and_recorded() {
    let fleet = Fleet::new().await;
    let router = fleet.start(both(&fleet), &[]).await;
    let id = router.open_case(refund_case("escalate admin I want to")).await.expect("opens");
    fleet.until(id, |all| says(all, "refused: the key does not grant escalating to 'admin'")).await;
    router.add_message(id, "escalate manager").await.expect("takes it");
    fleet.until(id, |all| says(all, "refused: an escalation needs a reason")).await;
    let denied: Vec<(ActionKind, DenyReason)> = fleet
        .facts("denied")
        .await
        .iter()
        .filter_map(
            |fact| if let Fact::Denied { kind, reason, .. } = fact { Some((*kind, *reason)) } else { None },
        )
        .collect();
    let escalate = ActionKind::Escalate;
    assert_eq!(denied, [(escalate, DenyReason::Scope), (escalate, DenyReason::Shape)]);
    fleet.until_held(id, Some("refund-agent")).await;
    assert_eq!(changes(&fleet).await, [CaseChange::Opened, CaseChange::Assigned]);
    router.add_message(id, "escalate manager over the limit").await.expect("takes it");
    fleet.until_held(id, Some("chief")).await;
}

/// Rows: SLO-048 SLO-051 SLO-053 SLO-057
/// Rows: SLO-050 SLO-052 (in part: keys and revocations in the store, without a request to the proxy)
#[tokio::test]
async fn an_escalation_revokes_first_and_gives_the_next_holder_a_key_of_its_own() {
    let fleet = Fleet::new().await;
    let router = fleet.start(both(&fleet), &[]).await;
    let id = router.open_case(refund_case("escalate manager over $500 limit")).await.expect("opens");
    fleet.until(id, |all| says(all, "chief has 2 messages because over $500 limit")).await;
    let handed = fleet.handed();
    let claims = |agent: &str| {
        fleet.verifier().verify_task(&handed[agent][0]).expect("signed by the router").task().clone()
    };
    let (first, second) = (claims("refund-agent"), claims("chief"));
    assert_eq!(first.case, second.case, "the same tokens");
    assert_ne!((first.key, first.base), (second.key, second.base), "another key");
    let store = fleet.keys.store();
    assert!(store.is_revoked(&first.key.to_string()).await.expect("reads"));
    assert!(!store.is_revoked(&second.key.to_string()).await.expect("reads"));
    assert!(second.grants.limits["refund"].amounts["amount"].max > 500);
    // Revoked in the commit of the escalation, and minted after it.
    let keyed: Vec<(String, String)> = fleet
        .facts("keyed")
        .await
        .iter()
        .filter_map(|fact| {
            if let Fact::Keyed { key, change, .. } = fact {
                Some((key.to_string(), change.clone()))
            } else {
                None
            }
        })
        .collect();
    let (one, two) = (first.key.to_string(), second.key.to_string());
    let expected = [(one.clone(), "minted"), (one, "revoked"), (two, "minted")];
    assert_eq!(keyed, expected.map(|(key, change)| (key, change.to_owned())));
    let records = records(&fleet).await;
    let [_, assigned, escalated, next] = records.as_slice() else { panic!("four entries: {records:?}") };
    assert_eq!((escalated.change, escalated.target.as_str()), (CaseChange::Escalated, "manager"));
    assert_eq!((&escalated.ended, &escalated.began), (&assigned.began, &None));
    assert_eq!(next.earlier, assigned.began, "both keys' hashes stand in the entry");
    assert_eq!(next.reason, "over $500 limit");
    let access = fleet.access(id).await;
    assert_eq!(access.contradictions, []);
    let names: Vec<(&str, bool)> =
        access.intervals.iter().map(|one| (one.holder.name.as_str(), one.until.is_some())).collect();
    assert_eq!(names, [("refund-agent", true), ("chief", false)]);
}

/// Rows: SLO-048
#[tokio::test]
async fn a_crash_goes_to_another_agent_and_then_to_people() {
    let fleet = Fleet::new().await;
    let agents = vec![python(&fleet, "one", 500), python(&fleet, "two", 501)];
    let router = fleet.start(agents, &[]).await;
    let id = router.open_case(refund_case("hello")).await.expect("opens");
    fleet.until(id, |all| says(all, "one says: hello")).await;
    router.add_message(id, "crash").await.expect("takes it");
    fleet.until(id, |all| says(all, "two has")).await;
    router.add_message(id, "crash").await.expect("takes it");
    fleet.until_held(id, None).await;
    // The commit of the queue follows that of the loss.
    while changes(&fleet).await.last() != Some(&CaseChange::Queued) {
        tokio::task::yield_now().await;
    }
    let status = live_status(&router).await.expect("reads");
    assert_eq!((status[0].state.as_str(), status[0].holder.as_deref()), ("queued", None));
    assert!(status[0].reason.contains("no agent is free for refund"), "{}", status[0].reason);
    assert_eq!(fleet.access(id).await.contradictions, []);
}

/// Rows: SLO-048
#[tokio::test]
async fn an_agent_that_is_silent_past_its_deadline_loses_its_case() {
    let fleet = Fleet::new().await;
    let agents = vec![python(&fleet, "one", 500), python(&fleet, "two", 501)];
    let router = fleet.start(agents, &[]).await;
    let id = router.open_case(refund_case("hello")).await.expect("opens");
    fleet.until(id, |all| says(all, "one says: hello")).await;
    fleet.hand.go_on(SILENCE * 2);
    router.look_after_cases().await;
    fleet.until_held(id, Some("one")).await;
    router.add_message(id, "silence").await.expect("takes it");
    fleet.hand.go_on(SILENCE);
    router.look_after_cases().await;
    fleet.until_held(id, Some("one")).await;
    fleet.hand.go_on(Duration::from_secs(1));
    router.look_after_cases().await;
    fleet.until_held(id, Some("two")).await;
    let access = fleet.access(id).await;
    assert!(access.intervals[0].reason.starts_with("silence"), "{access:?}");
}

/// What an agent adds is bounded, so that the guest and people can go on; nor can it have the case again and fill the rest.
#[tokio::test]
async fn an_agent_that_fills_its_case_loses_it_to_people_who_can_go_on() {
    let fleet = Fleet::new().await;
    let router = fleet.start(vec![python(&fleet, "one", 500)], &[]).await;
    let id = router.open_case(refund_case("chatter")).await.expect("opens");
    let queued = async |times: usize| {
        while changes(&fleet).await.iter().filter(|change| **change == CaseChange::Queued).count() < times {
            tokio::task::yield_now().await;
        }
    };
    queued(1).await;
    fleet.until_held(id, None).await;
    let access = fleet.access(id).await;
    let key = access.intervals[0].holder.key.expect("an agent").to_string();
    assert!(fleet.keys.store().is_revoked(&key).await.expect("reads"));
    assert!(access.intervals[0].reason.starts_with("full: "), "{access:?}");
    router.add_message(id, "are you there?").await.expect("takes it");
    router.answer_case(id, "owner", "one moment").await.expect("answers");
    router.hand_back(id, ("owner", None), "go on").await.expect("hands back");
    queued(2).await;
    let last = fleet.keys.store().fleet_messages(id, MAX_AGENT_MESSAGES + 1, 10).await.expect("reads");
    let last: Vec<&str> = last.iter().map(|message| message.text.as_str()).collect();
    assert_eq!(last, ["are you there?", "one moment", "go on"]);
}

/// Of a long conversation the newest part is handed over, read page by page.
#[tokio::test]
async fn the_newest_part_of_a_long_conversation_is_handed_over() {
    let fleet = Fleet::new().await;
    let agents = vec![python(&fleet, "one", 500), python(&fleet, "two", 501)];
    let router = fleet.start(agents, &[]).await;
    let id = router.open_case(refund_case("silence")).await.expect("opens");
    fleet.until(id, |all| says(all, "one has 1 messages")).await;
    let long = format!("silence {}", "x".repeat(10_000 - "silence ".len()));
    for _ in 0..60 {
        router.add_message(id, &long).await.expect("takes it");
    }
    router.add_message(id, "crash").await.expect("takes it");
    // As many of them as fit beside the last one.
    let fit = 1 + (MAX_HANDOVER_BYTES - "crash".len()) / long.len();
    fleet.until(id, |all| says(all, &format!("two has {fit} messages because crash"))).await;
}

/// Neither a deployment that revokes the earlier keys nor one in the middle of a start costs an agent its cases.
#[tokio::test]
async fn a_deployment_bars_no_agent_from_its_cases() {
    let fleet = Fleet::new().await;
    let router = fleet.start(Vec::new(), &[]).await;
    let program = ["python3", AGENT, "refund-agent"];
    let first = fleet.deploy("refund-agent", 1, &program);
    router.replace_deployed(vec![first.clone()]).expect("replaced");
    let id = router.open_case(refund_case("hello")).await.expect("opens");
    fleet.until(id, |all| says(all, "refund-agent says: hello")).await;
    // Deployed, and not read by the router yet.
    let second = fleet.deploy("refund-agent", 2, &program);
    let mut other = refund_case("hello");
    other.names.case = "order 18".into();
    let started = router.open_case(other).await.expect("opens");
    let reason = fleet.access(started).await.intervals[0].reason.clone();
    assert!(reason.starts_with("deployed: it did not start"), "{reason}");
    let key = fleet.access(id).await.intervals[0].holder.key.expect("an agent");
    revoke(&fleet, id, &[key, first.claims.key]).await;
    router.look_after_cases().await;
    assert_eq!(fleet.access(id).await.intervals[0].reason, "ended: its base key is no longer in force");
    assert!(!changes(&fleet).await.contains(&CaseChange::Queued), "they wait for the next version");
    router.replace_deployed(vec![second]).expect("replaced");
    router.look_after_cases().await;
    for case in [id, started] {
        fleet.until_held(case, Some("refund-agent")).await;
    }
    fleet.until(started, |all| says(all, "refund-agent says: hello")).await;
}

/// Without another version a case does not wait without end.
#[tokio::test]
async fn a_case_whose_agent_has_no_base_key_any_more_goes_to_people_after_a_while() {
    let fleet = Fleet::new().await;
    let router = fleet.start(Vec::new(), &[]).await;
    let only = fleet.deploy("refund-agent", 1, &["python3", AGENT, "refund-agent"]);
    router.replace_deployed(vec![only.clone()]).expect("replaced");
    let id = router.open_case(refund_case("hello")).await.expect("opens");
    let key = fleet.access(id).await.intervals[0].holder.key.expect("an agent");
    revoke(&fleet, id, &[key, only.claims.key]).await;
    router.look_after_cases().await;
    fleet.hand.go_on(DEPLOY_WAIT - Duration::from_secs(1));
    router.look_after_cases().await;
    assert!(!changes(&fleet).await.contains(&CaseChange::Queued));
    fleet.hand.go_on(Duration::from_secs(1));
    router.look_after_cases().await;
    assert_eq!(changes(&fleet).await.last(), Some(&CaseChange::Queued));
}

/// The list of agents is read again every two seconds; twin: work that no agent does goes to people after a while.
#[tokio::test]
async fn a_case_that_opens_before_its_agent_is_read_is_given_to_it() {
    let fleet = Fleet::new().await;
    let router = fleet.start(Vec::new(), &[]).await;
    let id = router.open_case(refund_case("hello")).await.expect("opens");
    fleet.hand.go_on(Duration::from_secs(2));
    router
        .replace_deployed(vec![fleet.deploy("refund-agent", 1, &["python3", AGENT, "refund-agent"])])
        .expect("read");
    router.look_after_cases().await;
    fleet.until(id, |all| says(all, "refund-agent says: hello")).await;
    assert!(!changes(&fleet).await.contains(&CaseChange::Queued));
    router.replace_deployed(Vec::new()).expect("replaced");
    let mut other = refund_case("hello");
    other.names.case = "order 18".into();
    router.open_case(other).await.expect("opens");
    assert!(!changes(&fleet).await.contains(&CaseChange::Queued));
    fleet.hand.go_on(UNKNOWN_WAIT);
    router.look_after_cases().await;
    assert!(changes(&fleet).await.contains(&CaseChange::Queued));
}

/// A person's word counts more than an earlier failure; twin: without any agent nothing is handed back.
#[tokio::test]
async fn a_case_that_an_agent_crashed_with_is_handed_back_to_it_by_a_person() {
    let fleet = Fleet::new().await;
    let only = vec![python(&fleet, "one", 500)];
    let router = fleet.start(only, &[]).await;
    let id = router.open_case(refund_case("hello")).await.expect("opens");
    fleet.until(id, |all| says(all, "one says: hello")).await;
    router.add_message(id, "crash").await.expect("takes it");
    while changes(&fleet).await.last() != Some(&CaseChange::Queued) {
        tokio::task::yield_now().await;
    }
    let refused = router.hand_back(id, ("owner", Some("nobody")), "go on").await.expect_err("has no agent");
    assert_eq!(refused.to_string(), "no agent is free for nobody");
    assert_eq!(changes(&fleet).await.last(), Some(&CaseChange::Queued), "nothing was written");
    router.hand_back(id, ("owner", None), "go on").await.expect("hands back");
    fleet.until_held(id, Some("one")).await;
}

/// A new case waits for an agent that is full; one that a person holds is not handed to it.
#[tokio::test]
async fn a_case_waits_for_an_agent_that_is_full_and_gets_it_when_another_is_closed() {
    let fleet = Fleet::new().await;
    let mut one = python(&fleet, "one", 500);
    one.max_cases = 1;
    let router = fleet.start(vec![one], &[]).await;
    let first = router.open_case(refund_case("hello")).await.expect("opens");
    let mut other = refund_case("hello again");
    other.names.case = "order 18".into();
    let second = router.open_case(other).await.expect("opens");
    fleet.hand.go_on(UNKNOWN_WAIT + DEPLOY_WAIT);
    router.look_after_cases().await;
    let status = live_status(&router).await.expect("reads");
    let waiting = status.iter().find(|one| one.case == second).expect("is open");
    assert_eq!((waiting.state.as_str(), waiting.reason.as_str()), ("open", "it waits for an agent"));
    assert!(!changes(&fleet).await.contains(&CaseChange::Queued));
    router.take_case(second, "owner").await.expect("takes what waits");
    let before = changes(&fleet).await;
    let refused = router.hand_back(second, ("owner", None), "go on").await.expect_err("it is full");
    assert_eq!(
        (refused.to_string().as_str(), changes(&fleet).await),
        ("no agent is free for refund", before)
    );
    router.close_case(first, "done").await.expect("closes");
    router.hand_back(second, ("owner", None), "go on").await.expect("hands back");
    fleet.until_held(second, Some("one")).await;
    router.close_case(second, "done").await.expect("closes");
    let [held, waits] = ["order 19", "order 20"];
    let mut ids = Vec::new();
    for name in [held, waits] {
        let mut case = refund_case("hello again");
        case.names.case = name.into();
        ids.push(router.open_case(case).await.expect("opens"));
    }
    let [first, second] = [ids[0], ids[1]];
    router.close_case(first, "done").await.expect("closes");
    router.look_after_cases().await;
    fleet.until(second, |all| says(all, "one says: hello again")).await;
}

/// A process that its launcher ends after its time did nothing wrong; twin: one that ends early did.
#[tokio::test]
async fn an_agent_whose_process_ran_as_long_as_it_may_gets_its_case_again() {
    let fleet = Fleet::new().await;
    let router = fleet.start(vec![python(&fleet, "one", 500)], &[]).await;
    let id = router.open_case(refund_case("hello")).await.expect("opens");
    fleet.until(id, |all| says(all, "one says: hello")).await;
    fleet.hand.go_on(CASE_TIME);
    router.add_message(id, "crash").await.expect("takes it");
    fleet.until(id, |all| says(all, "one has 4 messages because ended")).await;
    router.add_message(id, "crash").await.expect("takes it");
    while changes(&fleet).await.last() != Some(&CaseChange::Queued) {
        tokio::task::yield_now().await;
    }
    let access = fleet.access(id).await;
    let reasons: Vec<&str> = access.intervals.iter().map(|one| one.reason.as_str()).collect();
    assert_eq!(reasons, ["ended: its process ran as long as it may", "crash: its process ended"]);
}

/// A rule may take the case in the middle of a line: the next holder is not moved by it.
#[tokio::test]
async fn a_line_of_a_revoked_agent_does_not_move_the_next_holder() {
    let fleet = Fleet::new().await;
    let manager = FleetAgent { roles: vec!["manager".into()], ..python(&fleet, "chief", 5_000) };
    let agents = vec![python(&fleet, "one", 500), python(&fleet, "two", 501), manager];
    let router = fleet.start(agents, &["escalations > 0 in 1 min then revoke"]).await;
    let id = router.open_case(refund_case("hello")).await.expect("opens");
    fleet.until(id, |all| says(all, "one says: hello")).await;
    router.add_message(id, "escalate manager too much").await.expect("takes it");
    fleet.until_held(id, Some("two")).await;
    router.add_message(id, "still you?").await.expect("takes it");
    fleet.until(id, |all| says(all, "two says: still you?")).await;
    assert!(!changes(&fleet).await.contains(&CaseChange::Escalated));
}

/// An agent that has guessed too many values of its case has no key at the proxy any more: without a rule of the owner's, too, the
/// case goes to another.
#[tokio::test]
async fn an_agent_that_guesses_loses_its_case_without_a_rule() {
    let fleet = Fleet::new().await;
    let agents = vec![python(&fleet, "one", 500), python(&fleet, "two", 501)];
    let router = fleet.start(agents, &[]).await;
    let id = router.open_case(refund_case("hello")).await.expect("opens");
    fleet.until(id, |all| says(all, "one says: hello")).await;
    let case = records(&fleet).await[0].case.clone();
    let guess = async |agent: &str, amount: u64| {
        let (agent, case) = (agent.to_owned(), case.clone());
        let (at, customer, measure) = (fleet.keys.now(), String::new(), Measure::Masked);
        let event = FleetEvent { at, agent, case, customer, measure, amount };
        router.observe_event(&event).await.expect("is judged");
    };
    guess("one", 8).await;
    fleet.until_held(id, Some("one")).await;
    guess("one", 1).await;
    fleet.until_held(id, Some("two")).await;
    let access = fleet.access(id).await;
    let why = "anomaly: rule 'masked > 8 per case then revoke': agent one has ";
    assert!(access.intervals[0].reason.starts_with(why), "{:?}", access.intervals);
}

/// Rows: SLO-046 (in part: the key) SLO-048 (in part: by a rule) SLO-060
#[tokio::test]
async fn a_burst_of_refusals_costs_the_key_and_the_entry_has_rule_and_evidence() {
    let fleet = Fleet::new().await;
    let agents = vec![python(&fleet, "one", 500), python(&fleet, "two", 501)];
    let router = fleet.start(agents, &["refused > 5 in 1 min then revoke"]).await;
    let id = router.open_case(refund_case("hello")).await.expect("opens");
    fleet.until(id, |all| says(all, "one says: hello")).await;
    let row = fleet.keys.store().fleet_case(id).await.expect("reads").expect("open");
    let event = |measure| FleetEvent {
        at: fleet.keys.now(),
        agent: "one".into(),
        case: row.case_token.clone(),
        customer: row.customer_token.clone(),
        measure,
        amount: 1,
    };
    for _ in 0..5 {
        router.observe_event(&event(Measure::Refused)).await.expect("takes it");
        router.observe_event(&event(Measure::Requests)).await.expect("takes it");
    }
    let status = live_status(&router).await.expect("reads");
    assert_eq!((status[0].refused, status[0].requests_per_minute), (Some(5), Some(5)));
    fleet.until_held(id, Some("one")).await;
    router.observe_event(&event(Measure::Refused)).await.expect("takes it");
    fleet.until_held(id, Some("two")).await;
    let access = fleet.access(id).await;
    let key = access.intervals[0].holder.key.expect("an agent").to_string();
    assert!(fleet.keys.store().is_revoked(&key).await.expect("reads"));
    let reason = &access.intervals[0].reason;
    assert_eq!(reason, "anomaly: rule 'refused > 5 in 60 s then revoke': agent one has 6 refused");
    // What an agent did comes in after it has left the case: it meets no rule.
    for _ in 0..6 {
        router.observe_event(&event(Measure::Refused)).await.expect("takes it");
    }
    fleet.until_held(id, Some("two")).await;
    assert!(!changes(&fleet).await.contains(&CaseChange::Alerted));
}

/// A base key that is revoked alone takes its agent's cases with the next look: the next holder need not wait for a renewal.
#[tokio::test]
async fn a_revoked_base_key_takes_its_cases_at_once() {
    let fleet = Fleet::new().await;
    let (one, two) = (python(&fleet, "one", 500), python(&fleet, "two", 501));
    let base = fleet.keys.check_base(&one.base).await.expect("in force").key();
    let router = fleet.start(vec![one, two], &[]).await;
    let id = router.open_case(refund_case("hello")).await.expect("opens");
    fleet.until(id, |all| says(all, "one says: hello")).await;
    router.look_after_cases().await;
    fleet.until_held(id, Some("one")).await;
    revoke(&fleet, id, &[base]).await;
    router.look_after_cases().await;
    fleet.until_held(id, Some("two")).await;
    assert_eq!(fleet.access(id).await.intervals[0].reason, "ended: its base key is no longer in force");
}

/// A case reaches only agents whose keys cover its work; one that no key covers stays in the queue, with the reason.
///
/// Rows: SF-489 (in part: of the cases of a fleet)
#[tokio::test]
async fn a_case_beyond_every_key_is_given_to_no_agent() {
    let fleet = Fleet::new().await;
    let router = fleet.start(both(&fleet), &[]).await;
    let beyond = NewCase { capability: "change_address".into(), ..refund_case("hello") };
    let id = router.open_case(beyond).await.expect("opens");
    fleet.hand.go_on(UNKNOWN_WAIT * 2);
    router.look_after_cases().await;
    let status = live_status(&router).await.expect("reads");
    let reason = "no agent is free for change_address";
    assert_eq!((status[0].case, status[0].state.as_str(), status[0].reason.as_str()), (id, "queued", reason));
    assert!(fleet.handed().is_empty(), "no agent was started");
    let mut within = refund_case("hello");
    within.names.case = "order 18".into();
    let within = router.open_case(within).await.expect("opens");
    fleet.until_held(within, Some("refund-agent")).await;
}

/// What an agent tries past its two servers is in the ledger, under its keys and its case, and meets rules; what it has tried
/// last is there as well when it has left its case.
#[tokio::test]
async fn ways_out_that_an_agent_tries_are_recorded_and_counted() {
    let fleet = Fleet::new().await;
    let agents = vec![python(&fleet, "one", 500), python(&fleet, "two", 501)];
    let router = fleet.start(agents, &["ways_out > 5 in 1 min then revoke"]).await;
    let id = router.open_case(refund_case("hello")).await.expect("opens");
    fleet.until(id, |all| says(all, "one says: hello")).await;
    let row = fleet.keys.store().fleet_case(id).await.expect("reads").expect("open");
    let tries = |unreached| {
        *fleet.processes.tried.lock().expect("no panic") = WaysOut {
            refused: [("other_name".to_owned(), 1)].into(),
            names: ["example.com".to_owned()].into(),
            unreached,
        };
    };
    router.look_after_cases().await;
    assert!(fleet.facts("denied").await.is_empty(), "twin: an agent that tries nothing");
    tries(4);
    router.look_after_cases().await;
    router.look_after_cases().await;
    fleet.until_held(id, Some("one")).await;
    let [Fact::Denied { reason, rule, text, requester: Some(by), .. }] = &fleet.facts("denied").await[..]
    else {
        panic!("one entry")
    };
    assert_eq!((*reason, rule.as_str(), by.operation.as_str()), (DenyReason::Scope, "way_out", "way_out"));
    assert!(
        text.ends_with("1 other name, 4 at what its network does not have; names: example.com"),
        "{text}"
    );
    let held = fleet.access(id).await.intervals[0].holder.clone();
    assert_eq!((by.agent.as_str(), by.base, by.task), ("one", held.base, held.task));
    assert_eq!(by.data, [row.customer_token.clone(), row.case_token.clone()]);
    tries(0);
    router.look_after_cases().await;
    fleet.until_held(id, Some("two")).await;
    let reason = fleet.access(id).await.intervals[0].reason.clone();
    assert_eq!(reason, "anomaly: rule 'ways_out > 5 in 60 s then revoke': agent one has 6 ways_out");
    tries(1);
    router.close_case(id, "done").await.expect("closes");
    assert_eq!(fleet.facts("denied").await.len(), 3);
}

/// A process may escalate where its own key says, also after other agents were deployed.
#[tokio::test]
async fn an_escalation_is_judged_by_the_key_with_which_its_process_began() {
    let fleet = Fleet::new().await;
    let router = fleet.start(both(&fleet), &[]).await;
    let id = router.open_case(refund_case("hello")).await.expect("opens");
    fleet.until(id, |all| says(all, "refund-agent says: hello")).await;
    router.replace_deployed(Vec::new()).expect("replaced");
    router.add_message(id, "escalate admin I want to").await.expect("takes it");
    fleet.until(id, |all| says(all, "refused: the key does not grant escalating to 'admin'")).await;
    router.add_message(id, "escalate manager over the limit").await.expect("takes it");
    fleet.until_held(id, None).await;
    let expected = [CaseChange::Opened, CaseChange::Assigned, CaseChange::Escalated];
    assert_eq!(changes(&fleet).await[..3], expected);
}

/// Rows: SLO-016 (in part: its end and its renewal)
#[tokio::test]
async fn a_key_is_renewed_before_its_end_and_a_revoked_one_is_noticed() {
    let fleet = Fleet::new().await;
    let agents = vec![python(&fleet, "one", 500), python(&fleet, "two", 501)];
    let router = fleet.start(agents, &[]).await;
    let id = router.open_case(refund_case("hello")).await.expect("opens");
    fleet.until(id, |all| says(all, "one says: hello")).await;
    fleet.hand.go_on(Duration::from_secs(26 * 60));
    router.look_after_cases().await;
    let replaced = fleet.processes.replaced.lock().expect("no panic").clone();
    let [token] = replaced.as_slice() else { panic!("one fresh key") };
    // The process has the fresh key before the other is refused, and the other is refused then.
    assert_eq!(*fleet.processes.revoked_before.lock().expect("no panic"), []);
    let first = fleet.access(id).await.intervals[0].holder.key.expect("an agent");
    assert_eq!(*fleet.tokens.revoked.lock().expect("no panic"), [first]);
    assert!(fleet.keys.store().is_revoked(&first.to_string()).await.expect("reads"));
    let task = fleet.verifier().verify_task(token).expect("signed").task().clone();
    assert_eq!(task.expires_at.time_since(fleet.keys.now()), Duration::from_secs(30 * 60));
    let access = fleet.access(id).await;
    assert_eq!(access.intervals.last().and_then(|one| one.holder.key), Some(task.key));
    router.add_message(id, "still there").await.expect("takes it");
    fleet.until(id, |all| says(all, "one says: still there")).await;
    // Someone else revokes it, as `writ keys revoke` does.
    let ops = fleet.keys.revocation_of(id, (task.key, task.expires_at), "by the owner");
    fleet.keys.commit(ops.into()).await.expect("commits");
    router.look_after_cases().await;
    fleet.until_held(id, Some("two")).await;
    assert_eq!(fleet.access(id).await.contradictions, []);
}

/// Rows: SLO-016 (in part: closing early) SLO-059 (in part: a task that ended is not shown)
#[tokio::test]
async fn closing_a_case_revokes_its_key_at_once_and_tells_the_proxy() {
    let fleet = Fleet::new().await;
    let router = fleet.start(both(&fleet), &[]).await;
    let id = router.open_case(refund_case("hello")).await.expect("opens");
    fleet.until(id, |all| says(all, "says: hello")).await;
    router.close_case(id, "the guest has left").await.expect("closes");
    let access = fleet.access(id).await;
    let key = access.intervals[0].holder.key.expect("an agent").to_string();
    assert!(fleet.keys.store().is_revoked(&key).await.expect("reads"));
    assert_eq!(fleet.tokens.closed.lock().expect("no panic").len(), 1);
    assert!(live_status(&router).await.expect("reads").is_empty());
    assert!(router.add_message(id, "hello?").await.is_err());
    // An agent that is done ends its case itself.
    let id = router.open_case(refund_case("done")).await.expect("opens");
    fleet.until_held(id, None).await;
    assert!(!fleet.keys.store().fleet_case(id).await.expect("reads").expect("known").is_open);
}

/// Rows: SLO-048 (in part: people) SLO-053 (in part: people)
#[tokio::test]
async fn people_answer_take_over_approve_and_hand_back() {
    let fleet = Fleet::new().await;
    let router = fleet.start(both(&fleet), &[]).await;
    let id = router.open_case(refund_case("escalate human wants a person")).await.expect("opens");
    fleet.until_held(id, None).await;
    while changes(&fleet).await.last() != Some(&CaseChange::Escalated) {
        tokio::task::yield_now().await;
    }
    router.answer_case(id, "owner", "one moment").await.expect("answers");
    router.take_case(id, "owner").await.expect("takes it");
    fleet.until_held(id, Some("owner")).await;
    assert!(router.take_case(id, "member").await.is_err(), "one holder");
    router.hand_back(id, ("owner", Some("manager")), "approved up to 600").await.expect("hands back");
    fleet.until(id, |all| says(all, "chief has 4 messages because by owner")).await;
    assert!(router.answer_case(id, "owner", "no").await.is_err(), "an agent holds it");
    router.take_case(id, "owner").await.expect("takes it from the agent");
    let access = fleet.access(id).await;
    let names: Vec<&str> = access.intervals.iter().map(|one| one.holder.name.as_str()).collect();
    assert_eq!((names, access.contradictions.len()), (vec!["refund-agent", "owner", "chief", "owner"], 0));
}

/// Rows: SLO-053 (in part: people who read)
#[tokio::test]
async fn a_person_who_reads_a_conversation_is_recorded_once_for_each_holder_and_day_or_reads_nothing() {
    let fleet = Fleet::new().await;
    let router = fleet.start(both(&fleet), &[]).await;
    let id = router.open_case(refund_case("hello from Ada Real")).await.expect("opens");
    fleet.until(id, |all| says(all, "refund-agent says")).await;
    let (routes, desk) = (CaseRoutes(router.clone()), CaseDesk(router.clone()));
    let read = async |who: &CaseCaller| {
        let path = format!("/cases/{id}/messages");
        routes.answer_request(who, ("GET", &path), None, b"").await
    };
    let person = |name: &str| CaseCaller::Person(name.to_owned());
    let readers = async || {
        let access = fleet.access(id).await;
        assert_eq!(access.contradictions.len(), 0);
        access.readings.iter().map(|one| one.person.clone()).collect::<Vec<_>>()
    };
    // The guest's own words are no reading of a person.
    assert_eq!(read(&CaseCaller::FrontEnd).await.status, 200);
    assert_eq!(readers().await, Vec::<String>::new());
    // No entry, no text.
    let holder = rusqlite::Connection::open(fleet.folder.path().join("writ.db")).expect("opens");
    let breaks = "CREATE TRIGGER no_entry BEFORE INSERT ON ledger BEGIN SELECT RAISE(ABORT, 'full'); END;";
    holder.execute_batch(breaks).expect("breaks it");
    let refused = read(&person("owner")).await;
    assert_eq!((refused.status, refused.body.to_string().contains("Ada")), (503, false), "{refused:?}");
    let query = MessageQuery { case: id, after: 0 };
    assert!(desk.list_messages("owner".to_owned(), query).await.is_err(), "by the page neither");
    holder.execute_batch("DROP TRIGGER no_entry").expect("mends it");
    // Many at once, by both ways, are one entry.
    let owner = person("owner");
    let (first, second, third) = tokio::join!(
        read(&owner),
        desk.list_messages("owner".to_owned(), query),
        desk.list_messages("owner".to_owned(), query)
    );
    assert!(first.body.to_string().contains("Ada Real"), "{first:?}");
    assert_eq!(second.expect("reads"), third.expect("reads"));
    assert_eq!(readers().await, ["owner"]);
    read(&person("member")).await;
    read(&owner).await;
    assert_eq!(readers().await, ["owner", "member"]);
    // It changes hands, and each of them is named anew.
    router.add_message(id, "escalate manager over the limit").await.expect("takes it");
    fleet.until_held(id, Some("chief")).await;
    read(&owner).await;
    read(&owner).await;
    assert_eq!(readers().await, ["owner", "member", "owner"]);
    router.close_case(id, "done").await.expect("closes");
    read(&owner).await;
    fleet.hand.go_on(Duration::from_secs(60 * 60 * 23));
    read(&owner).await;
    assert_eq!(readers().await.len(), 4, "the end has changed its holder, the hours have not");
    fleet.hand.go_on(Duration::from_secs(60 * 60 + 1));
    read(&owner).await;
    assert_eq!(readers().await.len(), 5, "a day has passed");
    let entry = records(&fleet).await.into_iter().next_back().expect("an entry");
    assert_eq!((entry.change, entry.reader.as_deref()), (CaseChange::Read, Some("owner")));
    let unknown = SessionId::from_parts(fleet.keys.now(), 7);
    assert!(desk.list_messages("owner".to_owned(), MessageQuery { case: unknown, after: 0 }).await.is_err());
}

/// Rows: SLO-015 (in part: who may open) SLO-041 (in part: the routes)
#[tokio::test]
async fn requests_are_answered_by_who_asks_and_malformed_ones_by_what_is_wrong() {
    let fleet = Fleet::new().await;
    let router = fleet.start(both(&fleet), &[]).await;
    let routes = CaseRoutes(router);
    let (front, owner) = (CaseCaller::FrontEnd, CaseCaller::Person("owner".into()));
    let body = br#"{"customer":"Ada Real","case":"order 17","capability":"refund","message":"hello"}"#;
    let opened = routes.answer_request(&front, ("POST", "/cases"), None, body).await;
    assert_eq!(opened.status, 201, "{opened:?}");
    let id: SessionId = opened.body["id"].as_str().expect("an id").parse().expect("an id");
    let messages = fleet.until(id, |all| says(all, "says: hello")).await;
    let path = |rest: &str| format!("/cases/{id}/{rest}");
    let ask = async |who: &CaseCaller, method: &str, path: &str, body: &[u8]| {
        routes.answer_request(who, (method, path), None, body).await.status
    };
    assert_eq!(ask(&owner, "POST", "/cases", body).await, 403, "only the front end");
    // A front end that has missed the answer asks again, and finds the case: the message is not said twice.
    let again = routes.answer_request(&front, ("POST", "/cases"), None, body).await;
    assert_eq!((again.status, &again.body["id"]), (409, &opened.body["id"]), "{again:?}");
    assert_eq!(again.body["code"], "case.is_open");
    assert_eq!(fleet.until(id, |_| true).await.len(), messages.len());
    assert_eq!(ask(&front, "POST", "/cases", b"{}").await, 422);
    assert_eq!(ask(&front, "POST", "/cases", &vec![b' '; 1024 * 1024]).await, 413);
    assert_eq!(ask(&front, "POST", &path("take"), b"{}").await, 403);
    assert_eq!(ask(&front, "GET", &path("access"), b"").await, 403);
    assert_eq!(ask(&owner, "GET", &path("access"), b"").await, 200);
    assert_eq!(ask(&front, "GET", "/cases", b"").await, 403);
    assert_eq!(ask(&owner, "GET", "/cases", b"").await, 200);
    assert_eq!(ask(&front, "POST", &path("messages"), br#"{"text":""}"#).await, 422);
    assert_eq!(ask(&front, "POST", &path("messages"), br#"{"text":"more"}"#).await, 202);
    assert_eq!(ask(&owner, "POST", &path("messages"), br#"{"text":"more"}"#).await, 409, "an agent holds it");
    assert_eq!(ask(&front, "GET", "/cases/none/messages", b"").await, 404);
    let listed = routes.answer_request(&front, ("GET", &path("messages")), Some("after=1"), b"").await;
    assert!(listed.body["messages"].as_array().map(Vec::len) >= Some(messages.len() - 1), "{listed:?}");
    assert_eq!(ask(&front, "POST", &path("close"), b"").await, 200);
    assert_eq!(ask(&front, "POST", &path("close"), b"").await, 404, "it has ended");
    let token = FrontEndToken::of_text("secret");
    assert!(token.is_shown_in(Some("Bearer secret")));
    assert!(
        !token.is_shown_in(Some("Bearer other"))
            && !token.is_shown_in(Some("secret"))
            && !token.is_shown_in(None)
    );
}

#[tokio::test]
async fn an_agent_that_talks_nonsense_or_cannot_start_loses_its_case() {
    let fleet = Fleet::new().await;
    let missing = fleet.agent("missing", 499, &["/nonexistent/agent"]);
    let router = fleet.start(vec![missing, python(&fleet, "one", 500)], &[]).await;
    let id = router.open_case(refund_case("hello")).await.expect("opens");
    fleet.until(id, |all| says(all, "one says: hello")).await;
    for _ in 0..9 {
        router.add_message(id, "nonsense").await.expect("takes it");
    }
    fleet.until_held(id, None).await;
    let access = fleet.access(id).await;
    let reasons: Vec<&str> = access.intervals.iter().map(|one| one.reason.as_str()).collect();
    assert!(reasons[0].starts_with("crash: it did not start"), "{reasons:?}");
    assert_eq!(reasons[1], "crash: too much of what it says is refused");
}
