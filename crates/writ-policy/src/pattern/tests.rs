use writ_types::action::{Connect, Search, SendFile, WriteFile};
use writ_types::taint::Taint;

use super::*;
use crate::approval::TaskTerms;
use crate::fixture::{exec, fetch, prepared, project_write, search, session, tainted};

fn policy() -> Digest {
    Digest::of(b"the rules")
}

fn pattern(action: Action) -> Option<Pattern> {
    of(&prepared(action), policy())
}

fn alike(one: Action, other: Action) -> bool {
    let (one, other) = (pattern(one).expect("a pattern"), pattern(other).expect("a pattern"));
    assert_eq!(one == other, digest(&one).ok() == digest(&other).ok());
    one == other
}

#[test]
fn what_is_alike_is_what_the_words_say() {
    let write = |paths: &[&str]| Action::WriteFile(project_write(paths));
    assert!(alike(write(&["a"]), write(&["b", "c"])));
    let elsewhere = WriteFile { root: "/home/me/other".into(), ..project_write(&["a"]) };
    assert!(!alike(write(&["a"]), Action::WriteFile(elsewhere)));

    let get = |url: &str| Action::Fetch(fetch(url));
    assert!(alike(get("https://docs.rs/a"), get("https://DOCS.rs/b?c=d#e")));
    for other in ["http://docs.rs/a", "https://docs.rs:444/a", "https://evil.example/?https://docs.rs/a"] {
        assert!(!alike(get("https://docs.rs/a"), get(other)), "{other}");
    }
    let saved = Fetch { save_to: Some("a".into()), ..fetch("https://docs.rs/a") };
    assert!(!alike(get("https://docs.rs/a"), Action::Fetch(saved)));

    let ask = |query: &str| Action::Search(Search { query: query.into(), ..search() });
    assert!(alike(ask("one"), ask("two")));
    let elsewhere = Search { host: "other.example".into(), ..search() };
    assert!(!alike(ask("one"), Action::Search(elsewhere)));

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
    let one = of(&prepared(action()), policy());
    let changed = [
        Prepared { agent: "other".into(), ..prepared(action()) },
        Prepared { session: Some(session(2)), ..prepared(action()) },
        Prepared { tool: "other".into(), ..prepared(action()) },
        tainted(action(), Taint::External),
    ];
    for other in changed {
        assert_ne!(of(&other, policy()), one, "{other:?}");
    }
    assert_ne!(of(&prepared(action()), Digest::of(b"other rules")), one);
    assert_eq!(of(&Prepared { session: None, ..prepared(action()) }, policy()), None);
}

/// What sends something, cannot be taken back or is granted for the session anyway is asked about each time.
#[test]
fn what_must_be_read_each_time_has_no_pattern() {
    let url = "https://docs.rs/a";
    for action in [
        Action::Fetch(Fetch { method: "POST".into(), ..fetch(url) }),
        Action::Fetch(Fetch { body: Some("x".into()), ..fetch(url) }),
        Action::Fetch(Fetch { large: true, ..fetch(url) }),
        Action::Fetch(fetch("https:evil.example/?://docs.rs/")),
        Action::Connect(Connect { host: "docs.rs".into(), port: 443 }),
        Action::SendFile(SendFile { to: "somebody".into(), path: "a".into(), digest: policy() }),
    ] {
        assert_eq!(pattern(action.clone()), None, "{action:?}");
    }
}

#[test]
fn the_words_hide_nothing() {
    let path = "/home/me/\u{202e}txt.sh\n  deny: no";
    let hostile = WriteFile { root: path.into(), ..project_write(&["a"]) };
    let pattern = pattern(Action::WriteFile(hostile)).expect("a pattern");
    let offer = TaskOffer { pattern, uses: MAX_TASK_USES, secs: 3_600_000 };
    let words = consequence(&offer);
    assert!(words.contains("\\u{202e}txt.sh\\n  deny: no"), "{words}");
    assert!(!words.contains(['\u{202e}', '\n']), "{words}");
    assert!(words.contains("20 times in all, for 60 minutes"), "never longer than it can be: {words}");
    let terms = TaskTerms::offered(&offer, Risk::Medium).expect("canonical");
    assert_eq!(terms.pattern, digest(&offer.pattern).expect("canonical"));
}
