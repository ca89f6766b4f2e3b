use writ_types::action::{Connect, SendFile, WriteFile};
use writ_types::entry::Risk;
use writ_types::taint::Taint;

use super::*;
use crate::approval::TaskTerms;
use crate::fixture::{exec, fetch, prepared, project_write, search, session, tainted};

fn policy() -> Digest {
    Digest::of_bytes(b"the rules")
}

fn asking() -> BTreeSet<String> {
    ["ask-it".to_owned()].into()
}

fn of_prepared(prepared: &Prepared) -> Option<Pattern> {
    pattern_of(prepared, policy(), &asking(), &EgressScope::default())
}

fn pattern(action: Action) -> Option<Pattern> {
    of_prepared(&prepared(action))
}

fn alike(one: Action, other: Action) -> bool {
    let (one, other) = (pattern(one).expect("a pattern"), pattern(other).expect("a pattern"));
    assert_eq!(one == other, pattern_digest(&one).ok() == pattern_digest(&other).ok());
    one == other
}

#[test]
fn what_is_alike_is_what_the_words_say() {
    let write = |paths: &[&str]| Action::WriteFile(project_write(paths));
    assert!(alike(write(&["a"]), write(&["b", "c"])));
    let elsewhere = WriteFile { root: "/home/me/other".into(), ..project_write(&["a"]) };
    assert!(!alike(write(&["a"]), Action::WriteFile(elsewhere)));

    let run = |timeout_ms| Action::Exec(Exec { timeout_ms, ..exec() });
    assert!(alike(run(1), run(2)));
    for other in [
        Exec { argv: vec!["sh".into()], ..exec() },
        Exec { cwd: "/work/below".into(), ..exec() },
        Exec { env: [("A".to_owned(), "b".to_owned())].into(), ..exec() },
        Exec { stdin: Some("y".into()), ..exec() },
        Exec { hosts: vec!["docs.rs".into()], ..exec() },
    ] {
        assert!(!alike(run(1), Action::Exec(other.clone())), "{other:?}");
    }
}

#[test]
fn agent_session_tool_trust_and_rules_are_part_of_it() {
    let action = || Action::WriteFile(project_write(&["a"]));
    let one = of_prepared(&prepared(action()));
    let changed = [
        Prepared { agent: "other".into(), ..prepared(action()) },
        Prepared { session: Some(session(2)), ..prepared(action()) },
        Prepared { tool: "other".into(), ..prepared(action()) },
        tainted(action(), Taint::External),
    ];
    for other in changed {
        assert_ne!(of_prepared(&other), one, "{other:?}");
    }
    // The very same command may follow what was read, and is asked about for that, too.
    let run = |taint| tainted(Action::Exec(exec()), taint);
    let also_taint = asking().into_iter().chain([TAINT_RULE.to_owned()]).collect();
    let later = pattern_of(&run(Taint::External), policy(), &also_taint, &EgressScope::default());
    assert!(later.is_some() && later == of_prepared(&run(Taint::Owner)));
    let (request, none) = (prepared(action()), EgressScope::default());
    assert_ne!(pattern_of(&request, Digest::of_bytes(b"other rules"), &asking(), &none), one);
    let more = asking().into_iter().chain(["ask-more".to_owned()]).collect();
    assert_ne!(
        pattern_of(&request, policy(), &more, &none),
        one,
        "what another rule asks about was not approved"
    );
    assert_eq!(of_prepared(&Prepared { session: None, ..prepared(action()) }), None);
}

/// What sends something, cannot be taken back or is granted for the session anyway is asked about each time.
#[test]
fn what_must_be_read_each_time_has_no_pattern() {
    for action in [
        Action::Fetch(fetch("https://docs.rs/a")),
        Action::Search(search()),
        Action::Connect(Connect { host: "docs.rs".into(), port: 443 }),
        Action::SendFile(SendFile {
            to: "somebody".parse().expect("a name"),
            path: "a".into(),
            digest: policy(),
        }),
    ] {
        assert_eq!(pattern(action.clone()), None, "{action:?}");
    }
    let inside = WriteFile { place: Place::Overlay, ..project_write(&["a"]) };
    let with_content = WriteFile { content: Some("x".into()), ..project_write(&["a"]) };
    for write in [inside, with_content] {
        assert_eq!(pattern(Action::WriteFile(write.clone())), None, "{write:?}");
    }
    let run = prepared(Action::Exec(Exec { hosts: vec!["docs.rs".into()], ..exec() }));
    assert!(of_prepared(&run).is_some());
    let always_ask = vec!["docs.rs".parse().expect("a host")];
    let egress = EgressScope { always_ask, ..EgressScope::default() };
    assert_eq!(pattern_of(&run, policy(), &asking(), &egress), None, "its owner wants to be asked each time");
}

#[test]
fn the_words_hide_nothing() {
    let path = "/home/me/\u{202e}txt.sh\n  deny: no";
    let hostile = WriteFile { root: path.into(), ..project_write(&["a"]) };
    let hostile = pattern(Action::WriteFile(hostile)).expect("a pattern");
    let offer = TaskOffer { pattern: hostile, uses: MAX_TASK_USES, secs: 3_600_000 };
    let words = describe_consequence(&offer);
    assert!(words.contains("\\u{202e}txt.sh\\n  deny: no"), "{words}");
    assert!(!words.contains(['\u{202e}', '\n']), "{words}");
    assert!(words.contains("20 times in all, for 60 minutes"), "never longer than it can be: {words}");
    let run = Exec { stdin: Some("print(1)".into()), hosts: vec!["docs.rs".into()], ..exec() };
    let said = super::describe_pattern(&pattern(Action::Exec(run)).expect("a pattern"));
    let input = Digest::of_bytes(b"print(1)").to_string();
    assert!(said.contains("docs.rs") && said.contains(&input), "what it is given and reaches: {said}");
    let terms = TaskTerms::offered_terms(&offer, Risk::Medium).expect("canonical");
    assert_eq!(terms.pattern, pattern_digest(&offer.pattern).expect("canonical"));
}
