use writ_types::action::{ExecProfile, MemoryTrust, Place};

use super::*;
use crate::fixture::{exec, fetch, project_write, remember, samples, tainted};

/// Rows: SIL-170 SIL-005
#[test]
fn external_content_becomes_no_truth_and_cannot_be_relabelled() {
    use MemoryTrust::{Constitutional, Verified, Working};
    use Taint::{Auth, External, Owner};
    let verdict = |trust, noted, rests_on| {
        judge(&tainted(Action::Remember(remember(trust, noted)), rests_on), Standing::default())
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
fn what_leaves_or_outlasts_the_session_asks_when_it_rests_on_external_content() {
    for sample in samples() {
        let verdict = |taint| judge(&tainted(sample.action.clone(), taint), Standing::default());
        let kind = sample.action.kind();
        assert_eq!(verdict(Taint::Owner), TaintVerdict::Pass, "{kind:?}");
        assert_eq!(verdict(Taint::Auth), TaintVerdict::Pass, "{kind:?}");
        assert_eq!(matches!(verdict(Taint::External), TaintVerdict::Ask(_)), sample.leaves, "{kind:?}");
        assert!(!matches!(verdict(Taint::External), TaintVerdict::Deny(_)), "{kind:?}");
    }
}

#[test]
fn the_same_kind_may_stay_inside_or_leave() {
    let external = |action| judge(&tainted(action, Taint::External), Standing::default());
    let reaching = writ_types::action::Exec { hosts: vec!["docs.rs".into()], ..exec() };
    assert!(matches!(external(Action::Exec(reaching)), TaintVerdict::Ask(_)));
    let verifying = writ_types::action::Exec { profile: ExecProfile::Verification, ..exec() };
    assert_eq!(external(Action::Exec(verifying)), TaintVerdict::Pass);
    let inside = writ_types::action::WriteFile { place: Place::Overlay, ..project_write(&["a"]) };
    assert_eq!(external(Action::WriteFile(inside)), TaintVerdict::Pass);
}

/// Threat 13.
#[test]
fn external_content_reaches_what_the_owner_lists_and_composes_no_query() {
    let judge = |action: &Action, reach, owned| {
        let standing = Standing { reach, owned, preapproved: false };
        judge(&tainted(action.clone(), Taint::External), standing) == TaintVerdict::Pass
    };
    let reaching = Action::Exec(writ_types::action::Exec { hosts: vec!["a.example".into()], ..exec() });
    let plain = Action::Fetch(fetch("https://a.example/page"));
    let query = Action::Fetch(fetch("https://a.example/page?secret"));
    let sending = writ_types::action::Fetch { body: Some("x".into()), ..fetch("https://a.example/page") };
    let posting = writ_types::action::Fetch { method: "POST".into(), ..fetch("https://a.example/page") };
    for reach in [Reach::Granted, Reach::Known, Reach::Unknown] {
        let granted = reach == Reach::Granted;
        assert_eq!(judge(&reaching, reach, false), granted, "{reach:?}");
        assert_eq!(judge(&plain, reach, false), granted, "{reach:?}");
        assert!(judge(&query, reach, true) && !judge(&query, reach, false), "{reach:?}");
        assert!(!judge(&Action::Fetch(sending.clone()), reach, false), "{reach:?}");
        assert!(!judge(&Action::Fetch(posting.clone()), reach, false), "{reach:?}");
    }
}
