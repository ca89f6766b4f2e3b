//! Labels on values over a real server: what is asked after its words were read, and what is not.

use std::process::Output;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use writ_testkit::model_server::{ParsedRequest, Reply};
use writ_types::chat::Role;

use super::super::{code, text};
use super::Desk;

/// What the owner says of the tools: one reads, one sends letters, one changes something and sends nothing.
const WORDS: &str = "[tools.look]\neffect = false\nsinks = []\n[tools.send]\nsinks = [\"to\"]\ncontent = [\"text\"]\n\
                     [tools.behave]\nsinks = [\"how\"]\n";

type Script = Arc<Mutex<Vec<(&'static str, Value)>>>;

/// A desk whose model makes the calls of a script, one after another, whatever it is told.
fn desk(words: &str) -> (Desk, Script) {
    let script = Script::default();
    let steps = Arc::clone(&script);
    let desk = Desk::obeying(move |request: &ParsedRequest| {
        let user = request
            .messages
            .iter()
            .rposition(|message| message.role == Role::User && message.results.is_empty());
        let done = request
            .messages
            .iter()
            .skip(user.unwrap_or(0))
            .map(|message| message.results.len())
            .sum::<usize>();
        let steps = steps.lock().unwrap_or_else(PoisonError::into_inner);
        steps
            .get(done)
            .map_or_else(|| Reply::text("Done."), |(tool, arguments)| Reply::call(tool, arguments.clone()))
    });
    let added = desk.add(&[]);
    assert_eq!(code(&added), 0, "{}", text(&added));
    desk.say(words);
    (desk, script)
}

fn set(script: &Script, steps: Vec<(&'static str, Value)>) {
    *script.lock().unwrap_or_else(PoisonError::into_inner) = steps;
}

fn look(then: &[&str]) -> (&'static str, Value) {
    ("crm__look", json!({ "id": 7, "then": then }))
}

fn send(to: &str) -> (&'static str, Value) {
    ("crm__send", json!({ "to": to, "text": "about customer 7" }))
}

const REQUEST: &str = "Look customer 7 up and write to bob@example.org about it";

/// The four rules: tools that were fixed, sinks that nobody composed, content that stays with its readers; and none of it in a
/// strict home. Twins are beside each.
///
/// Rows: SIL-168
#[test]
fn needs_userns_needs_python_values_decide_what_asks_after_a_server_has_spoken() {
    let (desk, script) = desk(WORDS);
    let public = WORDS.replace("effect = false", "effect = false\nreaders = \"public\"");
    let (open, open_script) = self::desk(&public);
    let all = ["crm__send", "crm__behave"];
    let ann = "ann@example.org";
    let table = [
        ("the owner's word, a tool that was named", false, look(&all), send("bob@example.org"), 0),
        ("a tool that nobody has named before", false, look(&[]), send("bob@example.org"), 5),
        ("an address that somebody has composed", false, look(&all), send("eve@evil.test"), 5),
        ("a part of the owner's word", false, look(&all), send("bob@example"), 5),
        ("private words to somebody whom the owner has not named", false, look(&all), send(ann), 5),
        ("what everybody may read, to an address of the result", true, look(&all), send(ann), 0),
        (
            "a value of the result, where nothing is sent",
            false,
            look(&all),
            ("crm__behave", json!({ "how": "as-always-7" })),
            0,
        ),
        ("one of another name there", false, look(&all), ("crm__behave", json!({ "how": ann })), 5),
    ];
    for (name, is_open, first, second, expected) in table {
        let (desk, script) = if is_open { (&open, &open_script) } else { (&desk, &script) };
        let before = desk.calls().len();
        set(script, vec![first, second]);
        let done = desk.chat(REQUEST);
        assert_eq!(code(&done), expected, "{name}: {}", text(&done));
        assert_eq!(desk.calls().len() - before, if expected == 0 { 2 } else { 1 }, "{name}");
        // The next case begins without a question that waits.
        for ask in desk.bench.home.json(&["approvals", "list"])["asks"].as_array().into_iter().flatten() {
            let ask = ask["ask_id"].as_str().expect("an id").to_owned();
            assert_eq!(code(&desk.bench.home.run(&["approvals", "deny", &ask])), 0);
        }
    }

    // The harness keeps `then` to itself.
    assert!(desk.calls().iter().all(|call| !call.contains("then")), "{:?}", desk.calls());
    let request = desk.bench.server.recorded_requests().pop().expect("a request").body.to_string();
    assert!(request.contains(r#""then""#), "{request}");

    let config = desk.bench.home.root().join("config.toml");
    let before = std::fs::read_to_string(&config).unwrap_or_default();
    std::fs::write(&config, format!("strict = true\n{before}")).expect("written");
    desk.say("");
    set(&script, vec![look(&all), send("bob@example.org")]);
    let strict = desk.chat(REQUEST);
    assert_eq!(code(&strict), 5, "{}", text(&strict));
    desk.verify();
}

/// Who can read what the model was told is written to without a question, until it has been told more: an earlier request,
/// rules. What names no readers, a text besides, has none.
///
/// Rows: SIL-168
#[test]
fn needs_userns_needs_python_those_who_can_read_it_are_told_it() {
    let words = WORDS.replace("effect = false", "effect = false\nreaders = [\"to\"]");
    let (desk, script) = desk(&words);
    let steps = || vec![look(&["crm__send"]), send("ann@example.org")];
    let asks = |name: &str, done: &Output, expected: i32| {
        assert_eq!(code(done), expected, "{name}: {}", text(done));
        for ask in desk.bench.home.json(&["approvals", "list"])["asks"].as_array().into_iter().flatten() {
            let ask = ask["ask_id"].as_str().expect("an id").to_owned();
            assert_eq!(code(&desk.bench.home.run(&["approvals", "deny", &ask])), 0);
        }
    };
    set(&script, steps());
    asks("its text says more than the record", &desk.chat("Write to whom it is about"), 5);
    desk.mode("record");
    asks("the record names her", &desk.chat("Write to whom it is about"), 0);

    let session = desk.session();
    set(&script, vec![send("ann@example.org")]);
    let more = desk.bench.home.run(&["chat", "-m", "And once more", "--session", &session]);
    asks("what was said earlier she has not read", &more, 5);

    set(&script, steps());
    std::fs::write(desk.bench.home.root().join("RULES.md"), "My door's code is 4711.\n").expect("written");
    desk.say("");
    asks("nor the owner's rules", &desk.chat("Write to whom it is about"), 5);
    desk.verify();
}

/// A tool that its owner has approved once in a session is one of those that may be used; its sinks are judged all the same.
#[test]
fn needs_userns_needs_python_an_approved_tool_asks_no_second_time() {
    let (desk, script) = desk(WORDS);
    set(&script, vec![look(&[]), send("bob@example.org")]);
    assert_eq!(code(&desk.chat(REQUEST)), 5);
    let approved = desk.bench.home.run(&["approvals", "approve", &desk.bench.ask(), "--yes"]);
    assert_eq!(code(&approved), 0, "{}", text(&approved));
    let session = desk.session();
    let again = |to: &str| {
        set(&script, vec![send(to)]);
        let message = format!("And once more to carol@example.org, {to}.").replace(", eve@evil.test", "");
        code(&desk.bench.home.run(&["chat", "-m", &message, "--session", &session]))
    };
    assert_eq!(again("carol@example.org"), 0);
    assert_eq!(again("eve@evil.test"), 5, "twin");
    assert_eq!(desk.calls().iter().filter(|call| call.starts_with("send")).count(), 2);
}

/// A value that its owner has called their own is no longer asked about in that conversation, a restart included; another
/// value is, another conversation is told nothing of it, and a plain yes endorses nothing.
#[test]
fn needs_userns_needs_python_an_endorsed_value_asks_no_second_time() {
    let (desk, script) = desk(WORDS);
    let all = ["crm__send", "crm__behave"];
    let more = |session: &str, to: &str| {
        set(&script, vec![send(to)]);
        code(&desk.bench.home.run(&["chat", "-m", "And once more.", "--session", session]))
    };
    let approve = |flags: &[&str]| {
        let ask = desk.bench.ask();
        let done = desk.bench.home.run(&[&["approvals", "approve", &ask, "--yes"], flags].concat());
        assert_eq!(code(&done), 0, "{}", text(&done));
        text(&done)
    };
    set(&script, vec![look(&all), send("carol@example.org")]);
    assert_eq!(code(&desk.chat("Look customer 7 up and write to whoever is in charge")), 5);
    let session = desk.session();
    approve(&[]);
    assert_eq!(more(&session, "carol@example.org"), 5, "it was approved once");
    let endorsed = desk.bench.ask();
    let said = approve(&["--values"]);
    assert!(
        said.contains("count as if you had written them") && said.contains("to = carol@example.org"),
        "{said}"
    );
    super::stop_engine_of(&desk.bench.home);
    assert_eq!(more(&session, "carol@example.org"), 0);
    assert_eq!(more(&session, "carol@example"), 5, "a part of it is not the value");
    assert_eq!(code(&desk.bench.home.run(&["approvals", "deny", &desk.bench.ask()])), 0);
    set(&script, vec![look(&all), send("carol@example.org")]);
    assert_eq!(code(&desk.chat("Look customer 7 up and write to whoever is in charge")), 5, "elsewhere");
    assert_eq!(desk.calls().iter().filter(|call| call.starts_with("send")).count(), 3);
    let exported = text(&desk.bench.home.run(&["audit", "export"]));
    assert!(exported.contains(r#""scope":"values""#), "it is on record");
    let in_force = desk.bench.home.json(&["approvals", "list"])["in_force"].clone();
    assert_eq!(
        (&in_force[0]["ask_id"], &in_force[0]["scope"]),
        (&json!(endorsed), &json!("values")),
        "{in_force}"
    );
    // Taken back, it is nobody's.
    assert_eq!(more(&session, "carol@example.org"), 0);
    assert_eq!(code(&desk.bench.home.run(&["approvals", "revoke", &endorsed])), 0);
    assert_eq!(more(&session, "carol@example.org"), 5);
    assert_eq!(code(&desk.bench.home.run(&["approvals", "revoke", &endorsed])), 2, "once");
    desk.verify();
}
