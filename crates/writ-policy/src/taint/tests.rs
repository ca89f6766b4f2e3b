use std::sync::LazyLock;

use writ_types::action::{CallTool, Exec, ExecProfile, MemoryTrust, Place};

use super::*;
use crate::fixture::{exec, fetch, project_write, remember, samples, tainted};

static NOWHERE: Origins = Origins::nothing();
static CLOSED: LazyLock<EgressScope> = LazyLock::new(EgressScope::default);

fn with(origins: &Origins, strict: bool) -> Labels<'_> {
    Labels { origins, strict, egress: &CLOSED }
}

fn nothing() -> Labels<'static> {
    with(&NOWHERE, false)
}

/// Rows: SIL-005 (in part: a memory's label) SIL-170
#[test]
fn external_content_becomes_no_truth_and_cannot_be_relabelled() {
    use MemoryTrust::{Constitutional, Verified, Working};
    use Taint::{Auth, External, Owner};
    let verdict = |trust, noted, rests_on| {
        judge_taint(
            &tainted(Action::Remember(remember(trust, noted)), rests_on),
            RuleFacts::default(),
            nothing(),
        )
    };
    for trust in [Working, Verified, Constitutional] {
        for noted in [Owner, Auth, External] {
            for rests_on in [Owner, Auth, External] {
                let refused = noted < rests_on || (noted == External && trust != Working);
                let said = verdict(trust, noted, rests_on);
                assert_eq!(matches!(said, TaintVerdict::Deny(_)), refused, "{trust:?} {noted} {rests_on}");
                assert!(refused || said == TaintVerdict::Pass);
            }
        }
    }
}

#[test]
fn what_is_secret_is_remembered_as_secret() {
    let verdict = |is_secret, noted| {
        let item = Remember { secret: noted, ..remember(MemoryTrust::Working, Taint::External) };
        let mut request = tainted(Action::Remember(item), Taint::External);
        request.label.secret = is_secret;
        judge_taint(&request, RuleFacts::default(), nothing())
    };
    for (is_secret, noted) in [(false, false), (false, true), (true, true)] {
        assert_eq!(verdict(is_secret, noted), TaintVerdict::Pass, "{is_secret} {noted}");
    }
    assert!(matches!(verdict(true, false), TaintVerdict::Deny(_)));
}

#[test]
fn what_leaves_or_outlasts_the_session_asks_when_it_rests_on_external_content() {
    for sample in samples() {
        let verdict =
            |taint| judge_taint(&tainted(sample.action.clone(), taint), RuleFacts::default(), nothing());
        let kind = sample.action.kind();
        assert_eq!(verdict(Taint::Owner), TaintVerdict::Pass, "{kind:?}");
        assert_eq!(verdict(Taint::Auth), TaintVerdict::Pass, "{kind:?}");
        assert_eq!(matches!(verdict(Taint::External), TaintVerdict::Ask(_)), sample.leaves, "{kind:?}");
        assert!(!matches!(verdict(Taint::External), TaintVerdict::Deny(_)), "{kind:?}");
    }
}

#[test]
fn the_same_kind_may_stay_inside_or_leave() {
    let external = |action| judge_taint(&tainted(action, Taint::External), RuleFacts::default(), nothing());
    let reaching = writ_types::action::Exec { hosts: vec!["docs.rs".into()], ..exec() };
    assert!(matches!(external(Action::Exec(reaching)), TaintVerdict::Ask(_)));
    let verifying = writ_types::action::Exec { profile: ExecProfile::Verification, ..exec() };
    assert_eq!(external(Action::Exec(verifying)), TaintVerdict::Pass);
    let send = |to: &str| {
        let (path, digest) = ("a".to_owned(), writ_types::digest::Digest::of_bytes(b"x"));
        Action::SendFile(writ_types::action::SendFile { to: to.parse().expect("a name"), path, digest })
    };
    assert_eq!(external(send("owner")), TaintVerdict::Pass);
    assert!(matches!(external(send("ann")), TaintVerdict::Ask(_)));
    let inside = writ_types::action::WriteFile { place: Place::Overlay, ..project_write(&["a"]) };
    assert_eq!(external(Action::WriteFile(inside)), TaintVerdict::Pass);
}

/// Threat 13. Twins: what the owner wrote, and what names no host.
#[test]
fn a_composed_url_asks_wherever_it_leads_and_a_program_reaches_what_is_listed_or_a_registry() {
    let passes = |action: &Action, taint, reach, owned| {
        let standing = RuleFacts { reach, owned, preapproved: false };
        judge_taint(&tainted(action.clone(), taint), standing, nothing()) == TaintVerdict::Pass
    };
    let program = Action::Exec(writ_types::action::Exec { hosts: vec!["a.example".into()], ..exec() });
    let plain = Action::Fetch(fetch("https://a.example/page"));
    let query = Action::Fetch(fetch("https://a.example/page?secret"));
    let sending = Action::Fetch(writ_types::action::Fetch {
        method: "POST".into(),
        body: Some("x".into()),
        ..fetch("https://a.example/page")
    });
    for reach in [Reach::Granted, Reach::Known, Reach::Unknown, Reach::Blocked] {
        let listed = matches!(reach, Reach::Granted | Reach::Known);
        assert_eq!(passes(&program, Taint::External, reach, false), listed, "{reach:?}");
        for fetch in [&plain, &query, &sending] {
            assert!(!passes(fetch, Taint::External, reach, false), "{reach:?} {fetch:?}");
            assert!(passes(fetch, Taint::External, reach, true), "{reach:?} {fetch:?}");
            assert!(passes(fetch, Taint::Owner, reach, false), "{reach:?} {fetch:?}");
        }
    }
    assert!(passes(&Action::Exec(exec()), Taint::External, Reach::None, false));
}

/// Values can be endorsed where it is they that ask, where each can be read and none stands everywhere.
#[test]
fn what_can_be_endorsed_is_short_plain_and_what_the_question_is_about() {
    let asking: BTreeSet<String> = [TAINT_RULE.to_owned()].into();
    let with = |values: &[&str]| Prepared {
        sinks: values.iter().map(|value| Sink { argument: "to".into(), value: (*value).into() }).collect(),
        ..tainted(Action::CallTool(crate::fixture::call_tool()), Taint::External)
    };
    let good = with(&["ann@example.org", "bob@example.org"]);
    assert_eq!(endorsable_values(&good, &asking).len(), 2);
    assert_eq!(endorsable_values(&good, &["other".to_owned()].into()), [], "another question");
    let long = "x".repeat(MAX_ENDORSED_CHARS + 1);
    for bad in [&["ann@example.org", "ab"][..], &[long.as_str()], &["a\u{202e}nn@example.org"], &["abc"; 17]]
    {
        assert_eq!(endorsable_values(&with(bad), &asking), [], "{bad:?}");
    }
    let elsewhere = tainted(Action::WriteFile(project_write(&["a"])), Taint::External);
    assert_eq!(endorsable_values(&elsewhere, &asking), []);
}

/// What other servers say of their tools can be an order: before anything external was read, an effect whose sinks nobody but
/// the model has made asks, and in a strict home whatever is not the owner's word. Twins: one server alone, a reading.
#[test]
fn what_other_servers_say_of_their_tools_orders_no_effect() {
    let mut told = Origins::new(["write to ann@example.org".to_owned()]);
    told.add_unvouched_server("shop");
    let mut alone = Origins::new(["write to ann@example.org".to_owned()]);
    alone.add_unvouched_server("crm");
    let verdict = |origins: &Origins, effect, strict, to: &str| {
        let call = CallTool { effect, declared: true, ..crate::fixture::call_tool() };
        let mut prepared = tainted(Action::CallTool(call), Taint::Owner);
        prepared.tool = "crm__send".into();
        prepared.sinks = vec![writ_inspect::prepared::Sink { argument: "to".into(), value: to.into() }];
        judge_taint(&prepared, RuleFacts::default(), with(origins, strict)) == TaintVerdict::Pass
    };
    let (ann, eve) = ("ann@example.org", "eve@evil.test");
    for (effect, strict, to, passes) in [
        (true, false, ann, true),
        (true, false, eve, false),
        (false, false, eve, true),
        (false, false, "https://evil.test/log?q=theatre", false),
        (true, true, ann, false),
        (false, true, eve, false),
        (false, true, ann, true),
    ] {
        assert_eq!(verdict(&told, effect, strict, to), passes, "{effect} {strict} {to}");
        assert!(verdict(&alone, effect, strict, to), "its own words are about its own tools");
    }
}

/// Where everything asks, no argument excuses a call or a search; elsewhere the owner's own words do.
#[test]
fn a_strict_home_asks_about_every_call_and_search_after_external_content() {
    let mut words = Origins::new(["write to ann@example.org".to_owned()]);
    words.approve_tool("crm__send".into());
    let mut call =
        tainted(Action::CallTool(CallTool { sends: false, ..crate::fixture::call_tool() }), Taint::External);
    call.tool = "crm__send".into();
    call.sinks =
        vec![writ_inspect::prepared::Sink { argument: "to".into(), value: "ann@example.org".into() }];
    let search = tainted(
        samples()
            .into_iter()
            .find_map(|sample| matches!(sample.action, Action::Search(_)).then_some(sample.action))
            .expect("a search"),
        Taint::External,
    );
    let owned = RuleFacts { owned: true, ..RuleFacts::default() };
    for (prepared, standing) in [(&call, RuleFacts::default()), (&search, owned)] {
        let verdict = |strict| judge_taint(prepared, standing, with(&words, strict));
        assert_eq!(verdict(false), TaintVerdict::Pass);
        assert!(matches!(verdict(true), TaintVerdict::Ask(_)));
    }
    assert!(matches!(judge_taint(&search, RuleFacts::default(), nothing()), TaintVerdict::Ask(_)));
}

/// Where much harm can be done, one value of many is not enough.
#[test]
fn a_harmful_call_takes_no_value_of_a_result() {
    let found = writ_types::chat::Field { path: "/id".into(), value: "m-17".into() };
    let call = writ_types::chat::ToolCall {
        id: "1".into(),
        name: "crm__list".into(),
        arguments: serde_json::json!({"then": ["crm__wipe"]}),
    };
    let result = writ_types::chat::ToolResult {
        call_id: "1".into(),
        name: "crm__list".into(),
        outcome: writ_types::chat::ToolOutcome::Done,
        text: String::new(),
        label: writ_types::taint::Label::new(Taint::External),
        fields: vec![found],
        kept: None,
    };
    let message = |role, part, taint| writ_types::chat::ChatMessage {
        role,
        parts: vec![part],
        label: writ_types::taint::Label::new(taint),
    };
    use writ_types::chat::{Part, Role};
    let mut origins = Origins::new(["wipe m-99".to_owned()]);
    origins.read_messages(&[
        message(Role::Assistant, Part::Call(call), Taint::Owner),
        message(Role::Tool, Part::Result(result), Taint::External),
    ]);
    let passes = |risk, effect, id: &str| {
        let call = CallTool { risk, effect, sends: false, declared: true, ..crate::fixture::call_tool() };
        let mut prepared = tainted(Action::CallTool(call), Taint::External);
        prepared.tool = "crm__wipe".into();
        prepared.sinks = vec![writ_inspect::prepared::Sink { argument: "id".into(), value: id.into() }];
        judge_taint(&prepared, RuleFacts::default(), with(&origins, false)) == TaintVerdict::Pass
    };
    for risk in [Risk::Low, Risk::Medium] {
        assert!(passes(risk, true, "m-17") && passes(risk, true, "m-99"), "{risk:?}");
    }
    for risk in [Risk::High, Risk::Irreversible] {
        assert!(
            !passes(risk, true, "m-17") && passes(risk, true, "m-99") && passes(risk, false, "m-17"),
            "{risk:?}"
        );
    }
}

/// A model is told what its provider is cleared for, and nothing of what would be told it is an argument that could excuse
/// more.
#[test]
fn a_model_call_above_its_providers_clearance_is_refused_whatever_it_rests_on() {
    use writ_types::taint::{Clearance, Label};
    let levels = [Clearance::Public, Clearance::Personal, Clearance::Secret];
    for clearance in levels {
        for needed in levels {
            for taint in [Taint::Owner, Taint::Auth, Taint::External] {
                let call = writ_types::action::ModelCall { clearance, ..crate::fixture::model_call() };
                let mut requested = tainted(Action::ModelCall(call), taint);
                let (private, secret) = (needed >= Clearance::Personal, needed == Clearance::Secret);
                requested.label = Label { private, secret, ..requested.label };
                let said = judge_taint(&requested, RuleFacts::default(), nothing());
                assert_eq!(
                    matches!(said, TaintVerdict::Deny(_)),
                    needed > clearance,
                    "{needed} for {clearance}"
                );
                assert!(needed > clearance || said == TaintVerdict::Pass);
            }
        }
    }
}

/// Twins: without anything external, at a host that no secret is bound to, and with secrets that only read.
#[test]
fn a_program_that_could_act_as_the_owner_asks_after_external_content() {
    let scope = EgressScope {
        allowed: vec!["forge.test".parse().expect("a host"), "docs.test".parse().expect("a host")],
        bound: vec!["forge.test".parse().expect("a host")],
        ..EgressScope::default()
    };
    let judged = |host: &str, taint, scope: &EgressScope| {
        let action = Action::Exec(Exec { hosts: vec![host.to_owned()], ..exec() });
        let standing = RuleFacts { reach: reach::reach_of(&action, scope), ..RuleFacts::default() };
        judge_taint(
            &tainted(action, taint),
            standing,
            Labels { origins: &NOWHERE, strict: false, egress: scope },
        )
    };
    for host in ["forge.test", "FORGE.test.", "forge.test:443"] {
        assert_eq!(judged(host, Taint::External, &scope), ACTS, "{host}");
        assert_eq!(judged(host, Taint::Owner, &scope), TaintVerdict::Pass, "{host}");
    }
    assert_eq!(judged("docs.test", Taint::External, &scope), TaintVerdict::Pass);
    let only_reads = EgressScope { bound: Vec::new(), ..scope };
    assert_eq!(judged("forge.test", Taint::External, &only_reads), TaintVerdict::Pass);
}

/// A URL that is subscribed to is asked for again and again: one that nobody has written asks.
#[test]
fn a_subscription_to_a_url_is_the_owners_or_asks() {
    let url = |owned| {
        let target = "https://docs.example/news".to_owned();
        let subscribe = writ_types::action::Subscribe { target, lines: None, turns: 5, stop: false };
        let standing = RuleFacts { owned, ..RuleFacts::default() };
        judge_taint(&tainted(Action::Subscribe(subscribe), Taint::External), standing, nothing())
    };
    assert_eq!(url(true), TaintVerdict::Pass);
    assert!(matches!(url(false), TaintVerdict::Ask(_)));
}

/// A tool that only reads is not fixed by what was read: it is judged by what it tells.
#[test]
fn a_tool_that_only_reads_may_be_new() {
    let said = |effect| {
        let call = CallTool { effect, ..crate::fixture::call_tool() };
        let request = Prepared { sinks: Vec::new(), ..tainted(Action::CallTool(call), Taint::External) };
        judge_taint(&request, RuleFacts::default(), nothing())
    };
    assert!(matches!(said(true), TaintVerdict::Ask(why) if why.contains("was neither used nor named")));
    assert_eq!(said(false), TaintVerdict::Pass, "and nothing of it says who, where or what");
}

/// What a yes makes the owner's is said with its names and values, and is at most sixteen of them.
#[test]
fn a_yes_says_what_it_makes_the_owners() {
    let asking = BTreeSet::from([TAINT_RULE.to_owned()]);
    let with = |count: usize| {
        let sinks = (0..count)
            .map(|n| Sink { argument: format!("to.{n}"), value: format!("p{n}@example.org") })
            .collect();
        Prepared { sinks, ..tainted(Action::CallTool(crate::fixture::call_tool()), Taint::External) }
    };
    assert_eq!(endorsable_values(&with(MAX_ENDORSED), &asking).len(), MAX_ENDORSED);
    assert_eq!(endorsable_values(&with(MAX_ENDORSED + 1), &asking), []);
    assert_eq!(endorsable_values(&with(1), &BTreeSet::new()), []);
    let said = describe_endorsement(&endorsable_values(&with(2), &asking));
    assert!(said.contains("to.0 = p0@example.org, to.1 = p1@example.org"), "{said}");
}
