use writ_types::action::{ActionKind, CallTool, Exec, Fetch, Place, Say, SendFile, WriteFile};
use writ_types::taint::Taint;

use super::*;
use crate::fixture::{
    PERMIT_ALL, World, exec, fetch, home_rules, prepared, project_write, remember, rules, samples, shipped,
    tainted,
};
use writ_inspect::show;

const NOTHING: RuleFacts = RuleFacts { preapproved: false, reach: Reach::None, owned: false };

fn project_rules(text: &str) -> RuleSource {
    RuleSource { origin: "project".into(), authorship: Authorship::Project, text: text.into() }
}

fn forbidden(rule: &str) -> RuleVerdict {
    RuleVerdict::Forbid { rule: rule.into() }
}

fn asked_by(verdict: &RuleVerdict) -> Vec<&str> {
    match verdict {
        RuleVerdict::Ask { rules, reasons, .. } => {
            assert!(reasons.iter().all(|reason| !reason.is_empty()));
            rules.iter().map(String::as_str).collect()
        }
        RuleVerdict::Permit | RuleVerdict::Forbid { .. } => panic!("expected an ask, found {verdict:?}"),
    }
}

#[test]
fn rules_are_listed_by_name_and_shown_as_they_stand() {
    let rules = shipped();
    let ids = rules.rule_ids();
    assert!(ids.len() > 10 && ids.is_sorted() && ids.contains(&"inside-the-sandbox".to_owned()), "{ids:?}");
    let text = rules.rule_text("inside-the-sandbox").expect("a rule");
    assert!(text.contains("permit") && text.contains("inside-the-sandbox"), "{text}");
    assert!(ids.iter().all(|id| rules.rule_text(id).is_some()) && rules.rule_text("no such rule").is_none());
}

#[test]
fn the_shipped_rules_decide_about_every_kind() {
    assert_eq!(samples().iter().map(|s| s.action.kind()).collect::<Vec<_>>(), ActionKind::ALL);
    for sample in samples() {
        for taint in [Taint::Owner, Taint::Auth, Taint::External] {
            let verdict = shipped().judge_rules(&tainted(sample.action.clone(), taint), NOTHING);
            match verdict {
                RuleVerdict::Permit => assert!(!sample.asked, "{:?}", sample.action.kind()),
                RuleVerdict::Ask { .. } => assert!(sample.asked, "{:?}", sample.action.kind()),
                RuleVerdict::Forbid { rule } => panic!("{:?}: {rule}", sample.action.kind()),
            }
        }
    }
}

#[test]
fn the_shipped_rules_tell_cases_of_one_kind_apart() {
    let judge =
        |action, preapproved| shipped().judge_rules(&prepared(action), RuleFacts { preapproved, ..NOTHING });
    let write = |place| Action::WriteFile(WriteFile { place, ..project_write(&["a"]) });
    assert_eq!(judge(write(Place::Overlay), false), RuleVerdict::Permit);
    assert_eq!(asked_by(&judge(write(Place::Project), false)), ["ask-project-writes"]);
    assert_eq!(judge(write(Place::Project), true), RuleVerdict::Permit);
    let reaching = Exec { hosts: vec!["docs.rs".into()], ..exec() };
    assert_eq!(asked_by(&judge(Action::Exec(reaching.clone()), false)), ["ask-network"]);
    assert_eq!(asked_by(&judge(Action::Exec(reaching), true)), ["ask-network"]);
    let save = |large| Action::Fetch(Fetch { save_to: Some("a".into()), large, ..fetch("https://docs.rs/") });
    let known = RuleFacts { reach: Reach::Granted, ..NOTHING };
    assert_eq!(shipped().judge_rules(&prepared(save(false)), known), RuleVerdict::Permit);
    assert_eq!(asked_by(&shipped().judge_rules(&prepared(save(true)), known)), ["ask-large"]);
    let send = |to: &str| {
        let (path, digest) = ("a".to_owned(), Digest::of_bytes(b"x"));
        Action::SendFile(SendFile { to: to.parse().expect("a name"), path, digest })
    };
    assert_eq!(judge(send("owner"), false), RuleVerdict::Permit);
    assert_eq!(asked_by(&judge(send("ann"), false)), ["ask-irreversible", "ask-send-file"]);
    let say = Action::Say(Say { to: "somebody".parse().expect("a name"), text: "hi".into() });
    assert_eq!(judge(say, false), forbidden("no rule permits it"));
}

/// A call of a foreign tool is a question, unless the owner has said that it changes nothing, or what its sinks are.
#[test]
fn the_shipped_rules_go_by_the_owners_word_about_a_foreign_tool() {
    let judge = |effect, declared, rules: &RuleSet| {
        let (server, tool, arguments) = ("crm".to_owned(), "look".to_owned(), serde_json::json!({}));
        let call =
            CallTool { server, tool, arguments, host: None, effect, declared, ..crate::fixture::call_tool() };
        rules.judge_rules(&prepared(Action::CallTool(call)), NOTHING)
    };
    assert_eq!(asked_by(&judge(true, false, shipped())), ["ask-call-tool"]);
    for (effect, declared) in [(true, true), (false, false), (false, true)] {
        assert_eq!(judge(effect, declared, shipped()), RuleVerdict::Permit, "{effect} {declared}");
    }
    let one = r#"@id("crm") forbid (principal, action == Action::"call_tool", resource == Target::"crm/look") when { context.effect };"#;
    let rules = rules(&format!("{PERMIT_ALL}\n{one}"));
    assert_eq!(judge(true, true, &rules), forbidden("crm"));
    assert_eq!(judge(false, true, &rules), RuleVerdict::Permit);
}

/// Rows: SIL-170
#[test]
fn the_shipped_rules_let_external_content_become_no_truth() {
    for trust in [MemoryTrust::Verified, MemoryTrust::Constitutional] {
        let action = Action::Remember(remember(trust, Taint::External));
        assert_eq!(
            shipped().judge_rules(
                &tainted(action.clone(), Taint::External),
                RuleFacts { preapproved: true, ..NOTHING }
            ),
            forbidden("no-external-truth")
        );
        assert_eq!(shipped().judge_rules(&tainted(action, Taint::Owner), NOTHING), RuleVerdict::Permit);
    }
}

/// Rows: WIN-169 WIN-171
#[test]
fn the_shipped_rules_ask_about_hosts_that_nobody_has_listed_and_refuse_blocked_ones() {
    use Reach::{Blocked, Granted, Known, Unknown};
    let exec = Action::Exec(Exec { hosts: vec!["a.example".into()], ..exec() });
    let fetch = Action::Fetch(fetch("https://a.example/"));
    let connect = Action::Connect(writ_types::action::Connect { host: "a.example".into(), port: 443 });
    let judge = |action: &Action, reach, owned| {
        shipped().judge_rules(&prepared(action.clone()), RuleFacts { reach, owned, ..NOTHING })
    };
    for reach in [Granted, Known] {
        assert_eq!(judge(&exec, reach, false), RuleVerdict::Permit);
        assert_eq!(judge(&fetch, reach, false), RuleVerdict::Permit);
    }
    assert_eq!(asked_by(&judge(&exec, Unknown, true)), ["ask-network"]);
    assert_eq!(asked_by(&judge(&fetch, Unknown, false)), ["ask-fetch"]);
    assert_eq!(judge(&fetch, Unknown, true), RuleVerdict::Permit);
    assert_eq!(asked_by(&judge(&connect, Unknown, true)), ["ask-reach-out"]);
    for action in [exec, fetch, connect] {
        assert_eq!(judge(&action, Blocked, true), forbidden("no-blocked-hosts"));
    }
}

#[test]
fn rules_see_what_the_schema_promises() {
    let conditions = [
        (r#"principal == Agent::"assistant""#, true),
        (r#"principal == Agent::"somebody""#, false),
        (r#"resource == Target::"docs.rs""#, true),
        (r#"resource == Target::"task""#, false),
        (r#"context.taint == "auth""#, true),
        (r#"context.place == """#, true),
        (r#"context.profile == "task""#, true),
        (r#"context.trust == """#, true),
        (r#"context.tool == "tool""#, true),
        ("context.network", true),
        ("context.preapproved", false),
        (r#"context.reach == "known""#, true),
        (r#"context.reach == "none""#, false),
        ("context.owned", true),
        ("context.large", false),
        ("context.effect", false),
        ("context.declared", false),
        (r#"context.risk == "medium""#, true),
        (r#"context.risk == "irreversible""#, false),
    ];
    let reaching = Exec { hosts: vec!["docs.rs".into()], ..exec() };
    let standing = RuleFacts { reach: Reach::Known, owned: true, ..NOTHING };
    for (condition, holds) in conditions {
        let rules = rules(&format!(
            "{PERMIT_ALL} @id(\"x\") forbid (principal, action, resource) when {{ {condition} }};"
        ));
        let verdict = rules.judge_rules(&tainted(Action::Exec(reaching.clone()), Taint::Auth), standing);
        let expected = if holds { forbidden("x") } else { RuleVerdict::Permit };
        assert_eq!(verdict, expected, "{condition}");
    }
    let verified = Action::Remember(remember(MemoryTrust::Verified, Taint::Owner));
    let truth = rules(&format!(
        "{PERMIT_ALL} @id(\"x\") forbid (principal, action, resource) when {{ context.trust == \"verified\" }};"
    ));
    assert_eq!(truth.judge_rules(&prepared(verified), NOTHING), forbidden("x"));
}

#[test]
fn a_refusal_of_the_second_file_decides() {
    let secret = rules(&format!(
        "{PERMIT_ALL} @id(\"secret\") forbid (principal, action, resource == Target::\"/home/me/p/secret\");
         @id(\"a\") @ask(\"a?\") forbid (principal, action, resource == Target::\"/home/me/p/a\");
         @id(\"b\") @ask(\"b?\") forbid (principal, action, resource == Target::\"/home/me/p/b\");"
    ));
    let judge =
        |paths: &[&str]| secret.judge_rules(&prepared(Action::WriteFile(project_write(paths))), NOTHING);
    assert_eq!(judge(&["c"]), RuleVerdict::Permit);
    assert_eq!(judge(&["c", "secret"]), forbidden("secret"));
    assert_eq!(judge(&["a", "x/../secret", "z"]), forbidden("secret"));
    assert_eq!(asked_by(&judge(&["b", "c", "a"])), ["a", "b"]);
    assert_eq!(judge(&["/home/me/p/secret"]), forbidden("secret"));
}

#[test]
fn a_forbid_beats_an_ask_and_an_ask_beats_a_permit() {
    let ask = "@id(\"ask\") @ask(\"Sure?\") forbid (principal, action, resource);";
    let judge = |text: &str| rules(text).judge_rules(&prepared(Action::Exec(exec())), NOTHING);
    assert_eq!(judge(PERMIT_ALL), RuleVerdict::Permit);
    assert_eq!(asked_by(&judge(&format!("{PERMIT_ALL} {ask}"))), ["ask"]);
    assert_eq!(
        judge(&format!("{PERMIT_ALL} {ask} @id(\"no\") forbid (principal, action, resource);")),
        forbidden("no")
    );
    // A question needs something behind it that a yes would open.
    assert_eq!(judge(ask), forbidden("no rule permits it, even if approved"));
    assert_eq!(judge(""), forbidden("no rule permits it"));
}

#[test]
fn a_rule_that_cannot_be_evaluated_refuses() {
    let overflow = "forbid (principal, action, resource) when { 9223372036854775807 + 1 > 0 };";
    let judge = |rule: &str| {
        rules(&format!("{PERMIT_ALL} @id(\"sum\") {rule}"))
            .judge_rules(&prepared(Action::Exec(exec())), NOTHING)
    };
    assert_eq!(judge(overflow), forbidden("a rule could not be evaluated"));
    assert_eq!(judge(&format!("@ask(\"Sure?\") {overflow}")), forbidden("a rule could not be evaluated"));
    assert_eq!(judge(&overflow.replace("+ 1", "- 1")), forbidden("sum"));
}

/// Rows: SIL-004 (in part: rules)
#[test]
fn the_same_request_gets_the_same_verdict() {
    let many: String =
        (10..40).map(|n| format!("@id(\"no-{n}\") forbid (principal, action, resource);")).collect();
    for _ in 0..5 {
        let rules = rules(&format!("{PERMIT_ALL} {many}"));
        for _ in 0..20 {
            assert_eq!(rules.judge_rules(&prepared(Action::Exec(exec())), NOTHING), forbidden("no-10"));
        }
    }
}

#[test]
fn a_project_can_only_narrow() {
    let narrowing = project_rules("@id(\"p\") forbid (principal, action == Action::\"exec\", resource);");
    let both = RuleSet::load_rules(&[RuleSource::shipped_rules(), narrowing]).expect("valid");
    assert_eq!(both.judge_rules(&prepared(Action::Exec(exec())), NOTHING), forbidden("p"));
    let asking =
        project_rules("@id(\"p\") @ask(\"Sure?\") forbid (principal, action == Action::\"say\", resource);");
    let both = RuleSet::load_rules(&[RuleSource::shipped_rules(), asking]).expect("valid");
    let say = |to: &str| {
        both.judge_rules(
            &prepared(Action::Say(Say { to: to.parse().expect("a name"), text: "x".into() })),
            NOTHING,
        )
    };
    assert_eq!(asked_by(&say("owner")), ["p"]);
    assert_eq!(say("somebody"), forbidden("no rule permits it, even if approved"));
    let widening = project_rules(PERMIT_ALL);
    let refused = RuleSet::load_rules(&[RuleSource::shipped_rules(), widening]).map(|rules| rules.digest());
    assert_eq!(refused, Err(RuleError::Widens { origin: "project".into(), id: "all".into() }));
}

#[test]
fn rules_that_cannot_stand_are_refused() {
    let load =
        |text: &str| RuleSet::load_rules(&[home_rules(text)]).map(|rules| rules.digest()).expect_err(text);
    let id = |id: &str| RuleError::Id { origin: "home".into(), id: id.into() };
    assert_eq!(load("permit (principal, action, resource);"), id(""));
    assert_eq!(load("@id(\"\") permit (principal, action, resource);"), id(""));
    assert_eq!(load(&format!("{PERMIT_ALL} {PERMIT_ALL}")), id("all"));
    let twice =
        RuleSet::load_rules(&[home_rules(PERMIT_ALL), home_rules(PERMIT_ALL)]).map(|rules| rules.digest());
    assert_eq!(twice, Err(id("all")));
    assert_eq!(
        load("@id(\"x\") @ask(\"?\") permit (principal, action, resource);"),
        RuleError::AskingPermit { origin: "home".into(), id: "x".into() }
    );
    for wrong in [
        "@id(\"x\") permit (principal, action, resource) when { context.taint > 3 };",
        "@id(\"x\") permit (principal, action, resource) when { context.colour == \"red\" };",
        "@id(\"x\") permit (principal, action == Action::\"fly\", resource);",
        "@id(\"x\") permit (principal == User::\"me\", action, resource);",
    ] {
        assert!(matches!(load(wrong), RuleError::Schema { origin, .. } if origin == "home"), "{wrong}");
    }
    for wrong in ["permit", "@id(\"x\") permit (principal == ?principal, action, resource);", "\u{0}"] {
        assert!(matches!(load(wrong), RuleError::Syntax { .. }), "{wrong}");
    }
    let padded = |bytes: usize| format!("{PERMIT_ALL}{}", " ".repeat(bytes - PERMIT_ALL.len()));
    assert!(RuleSet::load_rules(&[home_rules(&padded(MAX_RULES_BYTES))]).is_ok(), "exactly at the bound");
    let long = padded(MAX_RULES_BYTES + 1);
    assert_eq!(load(&long), RuleError::TooLong { origin: "home".into(), bytes: MAX_RULES_BYTES + 1 });
}

#[test]
fn the_digest_is_that_of_all_texts() {
    let one = rules(PERMIT_ALL).digest();
    assert_eq!(rules(PERMIT_ALL).digest(), one);
    assert_ne!(rules(&format!("{PERMIT_ALL} ")).digest(), one);
    let more = RuleSet::load_rules(&[home_rules(PERMIT_ALL), project_rules("")]).expect("valid").digest();
    assert_ne!(more, one);
}

#[test]
fn a_rule_can_raise_the_risk_and_never_lowers_it() {
    let sure = |risk: &str| {
        format!("@id(\"sure\") @ask(\"Sure?\") @risk(\"{risk}\") forbid (principal, action, resource);")
    };
    for (name, named) in [
        ("low", Risk::Low),
        ("medium", Risk::Medium),
        ("high", Risk::High),
        ("irreversible", Risk::Irreversible),
    ] {
        let rules =
            RuleSet::load_rules(&[RuleSource::shipped_rules(), home_rules(&sure(name))]).expect("valid");
        for sample in samples() {
            let verdict = rules.judge_rules(&prepared(sample.action.clone()), NOTHING);
            assert!(
                matches!(verdict, RuleVerdict::Ask { risk: Some(risk), .. } if risk == named),
                "{:?}: {verdict:?}",
                sample.action.kind()
            );
        }
    }
    // A project narrows with it; where nothing is asked, or the word is unknown, it cannot stand.
    assert!(RuleSet::load_rules(&[RuleSource::shipped_rules(), project_rules(&sure("high"))]).is_ok());
    let refused = RuleError::Risk { origin: "project".into(), id: "sure".into() };
    assert_eq!(RuleSet::load_rules(&[project_rules(&sure("none"))]).err(), Some(refused.clone()));
    let silent = sure("high").replace("@ask(\"Sure?\")", "");
    assert_eq!(RuleSet::load_rules(&[project_rules(&silent)]).err(), Some(refused));
}

/// An action in every form that the shipped rules look at.
fn forms(action: Action) -> Vec<Action> {
    const FLAGS: [bool; 2] = [false, true];
    if let Action::CallTool(call) = &action {
        let mut all = Vec::new();
        for risk in [Risk::Low, Risk::Medium, Risk::High, Risk::Irreversible] {
            for (effect, declared) in FLAGS.into_iter().flat_map(|e| FLAGS.map(|d| (e, d))) {
                for sends in FLAGS {
                    all.push(Action::CallTool(CallTool { risk, effect, declared, sends, ..call.clone() }));
                }
            }
        }
        return all;
    }
    if let Action::Fetch(fetch) = &action {
        let forms =
            ["GET", "POST", "DELETE"].into_iter().flat_map(|method| FLAGS.map(|large| (method, large)));
        let form =
            |(method, large): (&str, bool)| Fetch { method: method.to_owned(), large, ..fetch.clone() };
        return forms.map(|one| Action::Fetch(form(one))).collect();
    }
    if let Action::WriteFile(write) = &action {
        let placed = |place| Action::WriteFile(WriteFile { place, ..write.clone() });
        return [Place::Overlay, Place::Project].map(placed).into();
    }
    if let Action::SendFile(send) = &action {
        return ["owner", "ann"]
            .map(|to| Action::SendFile(SendFile { to: to.parse().expect("a name"), ..send.clone() }))
            .into();
    }
    vec![action]
}

/// Every kind in every form and circumstance that rules may look at: what cannot be undone, or changes what the agent
/// is, is never permitted by the shipped rules without a person; nor by the door, whatever the keys approve beforehand.
#[test]
fn no_shipped_rule_permits_what_cannot_be_undone() {
    let rules = shipped();
    let reaches = [Reach::None, Reach::Granted, Reach::Known, Reach::Unknown, Reach::Blocked];
    let changes_the_agent =
        |action: &Action| show::risk_of(action) >= Risk::High && !matches!(action, Action::CallTool(_));
    let harmful = |action: &Action| show::risk_of(action) == Risk::Irreversible || changes_the_agent(action);
    let all = samples().into_iter().flat_map(|sample| forms(sample.action));
    let (harmful, harmless): (Vec<Action>, Vec<Action>) = all.partition(harmful);
    let mut judged = 0;
    for action in &harmful {
        for taint in [Taint::Owner, Taint::Auth, Taint::External] {
            for reach in reaches {
                for (preapproved, owned) in [(false, false), (false, true), (true, false), (true, true)] {
                    let standing = RuleFacts { preapproved, reach, owned };
                    let said = rules.judge_rules(&tainted(action.clone(), taint), standing);
                    assert_ne!(said, RuleVerdict::Permit, "{:?} {taint} {standing:?}", action.kind());
                    judged += 1;
                }
            }
        }
    }
    let irreversible = harmful.iter().filter(|action| show::risk_of(action) == Risk::Irreversible).count();
    assert_eq!((irreversible, judged), (1 + 8, harmful.len() * 60));
    // The twin: what does less harm is permitted in some circumstance.
    let call = |risk| {
        harmless.iter().any(|action| {
            matches!(action, Action::CallTool(call) if call.risk == risk
        && rules.judge_rules(&prepared(action.clone()), NOTHING) == RuleVerdict::Permit)
        })
    };
    assert!(call(Risk::High) && call(Risk::Low));
    let mut world = World::new(shipped());
    for grants in [&mut world.base.grants, &mut world.task.grants] {
        grants.preapproved = ActionKind::ALL.into_iter().collect();
    }
    let authority = world.authority();
    for action in harmful {
        for taint in [Taint::Owner, Taint::External] {
            let said = world.decide_under(tainted(action.clone(), taint), &authority);
            assert!(said.is_err(), "{:?} {taint}", action.kind());
        }
    }
}

#[test]
fn a_rule_can_want_several_people_to_say_yes() {
    let two = |annotation: &str, effect: &str| {
        format!("{PERMIT_ALL} @id(\"two\") {annotation} {effect} (principal, action, resource);")
    };
    let load = |text: String| RuleSet::load_rules(&[home_rules(&text)]);
    let sure = load(two("@ask(\"Sure?\") @approvers(\"3\")", "forbid")).expect("valid");
    let request = prepared(Action::WriteFile(project_write(&["a"])));
    let verdict = sure.judge_rules(&request, RuleFacts::default());
    assert!(matches!(verdict, RuleVerdict::Ask { approvers: 3, .. }), "{verdict:?}");
    for wrong in [
        two("@ask(\"Sure?\") @approvers(\"0\")", "forbid"),
        two("@ask(\"Sure?\") @approvers(\"6\")", "forbid"),
        two("@ask(\"Sure?\") @approvers(\"two\")", "forbid"),
        two("@approvers(\"2\")", "forbid"),
        two("@approvers(\"2\")", "permit"),
    ] {
        assert!(matches!(load(wrong.clone()), Err(RuleError::Approvers { .. })), "{wrong}");
    }
}
