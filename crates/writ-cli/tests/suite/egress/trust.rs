//! Hosts that the owner has approved for good.

use serde_json::{Value, json};
use writ_testkit::model_server::Reply;
use writ_types::frame::Card;

use super::super::engine::stop_engine_of;
use super::super::interrupted::until_runs;
use super::super::turns::{Bench, calls};
use super::super::{code, text};
use super::connections;
use super::mirror::Mirror;

/// What is asked about. Nothing need listen there: what is let through cannot be reached, which is no 403.
const HOST: &str = "plain.test:80";

/// A conversation's only program asks `url` for a page.
fn curl(mirror: &Mirror, url: String) -> Bench {
    let hosts = mirror.hosts();
    let mut turn = 0;
    let bench = Bench::new("openai", move |_: &writ_testkit::model_server::ParsedRequest| {
        turn += 1;
        let argv = ["curl", "-sS", "-i", "-m", "20", url.as_str()];
        if turn % 2 == 1 {
            Reply::call("shell_exec", json!({ "argv": argv, "hosts": hosts }))
        } else {
            Reply::text("Done.")
        }
    });
    mirror.list_in(&bench);
    bench
}

/// The open asks.
fn open(bench: &Bench) -> Vec<Card> {
    let listed = bench.home.run(&["approvals", "list", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    serde_json::from_value(listed["asks"].clone()).expect("cards")
}

fn open_one(bench: &Bench) -> Card {
    let mut cards = open(bench);
    assert_eq!(cards.len(), 1, "{cards:?}");
    cards.pop().expect("a card")
}

/// The hosts that are trusted: each with who has approved it, and the ask.
fn trusted(bench: &Bench) -> Vec<(String, String)> {
    let listed = bench.home.run(&["approvals", "hosts", "--json"]);
    assert_eq!(code(&listed), 0, "{}", text(&listed));
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    let hosts = listed["hosts"].as_array().expect("hosts").iter();
    let word = |host: &Value, name: &str| host[name].as_str().unwrap_or_default().to_owned();
    let by_hand = hosts.filter(|host| host["approved_by"] == "user" && host["approved_at"].is_i64());
    by_hand.map(|host| (word(host, "domain"), word(host, "ask_id"))).collect()
}

/// Whether the newest connection to the host was asked about instead of made.
fn is_asked(bench: &Bench) -> bool {
    let made = connections(bench);
    let newest = made.iter().find(|one| one["host"] == "plain.test").expect("a connection");
    newest["verdict"] == "asked"
}

fn run(bench: &Bench, args: &[&str], expected: i32) -> String {
    let done = bench.home.run(args);
    assert_eq!(code(&done), expected, "{args:?}: {}", text(&done));
    text(&done)
}

/// Rows: WIN-240
#[test]
fn needs_userns_needs_curl_a_trusted_host_is_open_to_every_conversation_until_it_is_taken_back() {
    let mirror = Mirror::start();
    let bench = curl(&mirror, "http://plain.test/".to_owned());
    bench.chat("try", &["--new"]);
    let card = open_one(&bench);
    assert_eq!(card.host.as_deref(), Some(HOST), "the card offers it");
    assert!(card.choices.iter().any(|choice| choice.consequence.contains("in every conversation")));
    assert!(is_asked(&bench));
    let first = card.session.expect("a session").to_string();
    assert_eq!(trusted(&bench), []);
    run(&bench, &["approvals", "approve", card.ask_id.as_str(), "--host", "--yes"], 0);
    let ask = card.ask_id.to_string();
    assert_eq!(trusted(&bench), [(HOST.to_owned(), ask.clone())]);
    let listed = run(&bench, &["approvals", "hosts"], 0);
    for line in [
        format!("depot.test:{}  (your configuration)", mirror.port),
        format!("asked.test:{}  (your configuration; asked about each time)", mirror.port),
        format!("blocked.test:{}  (your configuration; refused)", mirror.port),
    ] {
        assert!(listed.contains(&line), "{line}: {listed}");
    }
    assert!(run(&bench, &["approvals", "list"], 0).contains("trusted: "), "it is in force");

    // Another conversation, of another engine.
    stop_engine_of(&bench.home);
    bench.chat("another conversation", &["--new"]);
    assert!(!is_asked(&bench), "it was tried");
    assert!(open(&bench).is_empty(), "nobody is asked");

    run(&bench, &["approvals", "revoke", &ask], 0);
    assert_eq!(trusted(&bench), []);
    bench.chat("a third one", &["--new"]);
    assert!(is_asked(&bench), "it is asked about anew");
    // The conversation that had asked was granted it for itself: that is taken back as well, also after a restart.
    stop_engine_of(&bench.home);
    bench.home.run(&["chat", "-m", "the first one again", "--session", &first]);
    assert!(is_asked(&bench), "in the conversation that had asked, too");
    let again = run(&bench, &["approvals", "revoke", &ask], 2);
    assert!(again.contains("no trust in a host, is in force"), "{again}");
    let answered = bench.events("answered");
    let scopes: Vec<&str> = answered.iter().filter_map(|row| row["payload"]["scope"].as_str()).collect();
    assert!(scopes.contains(&"host"), "it is on record: {scopes:?}");
}

/// A program that runs while trust is taken back reaches the host no more.
#[test]
fn needs_userns_needs_curl_a_running_program_loses_a_host_with_its_trust() {
    // It asks again and again until it is refused; what is let through cannot be reached, and is no refusal.
    let lasting = "n=0; until curl -sS -i -m 5 http://plain.test/lasting | grep -q ' 403 '; \
                   do n=$((n+1)); [ $n -gt 3000 ] && exit 9; done; echo refused";
    let mirror = Mirror::start();
    let (hosts, mut turn) = (mirror.hosts(), 0);
    let bench = Bench::new("openai", move |_: &writ_testkit::model_server::ParsedRequest| {
        turn += 1;
        let argv = if turn == 1 {
            vec!["curl", "-sS", "-m", "5", "http://plain.test/"]
        } else {
            vec!["sh", "-c", lasting, "lasting-4417"]
        };
        match turn {
            1 => Reply::call("shell_exec", json!({ "argv": argv, "hosts": hosts })),
            3 => Reply::call("shell_exec", json!({ "argv": argv, "hosts": [HOST] })),
            _ => Reply::text("Done."),
        }
    });
    mirror.list_in(&bench);
    bench.chat("try", &["--new"]);
    let ask = open_one(&bench).ask_id.to_string();
    run(&bench, &["approvals", "approve", &ask, "--host", "--yes"], 0);
    std::thread::scope(|scope| {
        let lasts = scope.spawn(|| bench.chat("go on asking", &["--new"]));
        until_runs("lasting-4417");
        run(&bench, &["approvals", "revoke", &ask], 0);
        let done = lasts.join().expect("ended");
        assert!(text(&done).contains("Done."), "{}", text(&done));
    });
    assert!(bench.requests().pop().expect("a request").contains("refused"), "it was");
    assert!(is_asked(&bench));
}

/// Trust is as good as what signed it: it ends with a restore, as every approval does.
#[test]
fn needs_userns_needs_curl_trust_ends_with_the_epoch_in_which_it_was_given() {
    let mirror = Mirror::start();
    let bench = curl(&mirror, "http://plain.test/".to_owned());
    bench.chat("try", &["--new"]);
    let card = open_one(&bench);
    run(&bench, &["approvals", "approve", card.ask_id.as_str(), "--host", "--yes"], 0);
    assert_eq!(trusted(&bench).len(), 1);
    stop_engine_of(&bench.home);
    run(&bench, &["backup"], 0);
    run(&bench, &["backup", "restore", "1"], 0);
    assert_eq!(trusted(&bench), []);
    bench.chat("again", &["--new"]);
    assert!(is_asked(&bench));
}

/// A request in the owner's conversation: the second one to a host that was trusted with the first asks nobody.
///
/// Rows: WIN-239 (in part: `web_request` to a new domain) WIN-240
/// Rows: WIN-091 (in part: a POST to a new host asks, to an approved one passes)
#[test]
fn a_request_to_a_host_that_was_trusted_before_is_not_asked_about() {
    let mirror = Mirror::start();
    let mut turn = 0;
    let bench = Bench::new("openai", move |_: &writ_testkit::model_server::ParsedRequest| {
        turn += 1;
        let post = json!({ "method": "POST", "url": "http://plain.test/form", "body": "x" });
        if turn % 2 == 1 { Reply::call("web_request", post) } else { Reply::text("Done.") }
    });
    mirror.list_in(&bench);
    bench.chat("send it", &["--new"]);
    let card = open_one(&bench);
    assert_eq!(card.host.as_deref(), Some(HOST));
    bench.home.run(&["approvals", "approve", card.ask_id.as_str(), "--host", "--yes"]);
    assert_eq!(trusted(&bench).len(), 1);
    bench.chat("send it once more", &["--new"]);
    assert!(open(&bench).is_empty(), "{:?}", open(&bench));
    assert_eq!(connections(&bench).iter().filter(|one| one["host"] == "plain.test").count(), 2);
}

/// Of each host there is one row, with who has approved it and, for a person, when.
///
/// Rows: WIN-197
#[test]
fn a_host_that_is_trusted_twice_is_listed_once_and_taken_back_at_once() {
    let mirror = Mirror::start();
    let post = |path: &str| {
        let url = format!("http://plain.test{path}");
        ("web_request", json!({ "method": "POST", "url": url, "body": "x" }))
    };
    let bench = Bench::new("openai", calls(vec![post("/one"), post("/two")], "Done."));
    mirror.list_in(&bench);
    bench.chat("send both", &[]);
    let cards = open(&bench);
    assert_eq!(cards.len(), 2, "{cards:?}");
    for card in &cards {
        bench.home.run(&["approvals", "approve", card.ask_id.as_str(), "--host", "--yes"]);
        assert_eq!(trusted(&bench).len(), 1);
        let listed = bench.home.json(&["approvals", "hosts"]);
        let hosts = listed["hosts"].as_array().expect("hosts");
        let by = |host: &Value| (host["domain"].to_string(), host["approved_by"].to_string());
        let mut rows: Vec<(String, String)> = hosts.iter().map(by).collect();
        rows.sort();
        let named = |who: &str| rows.iter().filter(|(_, by)| by.contains(who)).count();
        assert_eq!((named("user"), named("config")), (1, hosts.len() - 1), "{listed}");
        assert!(hosts.len() > 2 && rows.windows(2).all(|pair| pair[0].0 != pair[1].0), "{listed}");
    }
    let [(_, ask)] = trusted(&bench).try_into().expect("one");
    run(&bench, &["approvals", "revoke", &ask], 0);
    assert_eq!(trusted(&bench), []);
}

/// Rows: WIN-044
#[test]
fn needs_userns_needs_curl_a_host_that_is_asked_about_each_time_cannot_be_trusted() {
    let mirror = Mirror::start();
    let bench = curl(&mirror, mirror.url("asked", "/page"));
    bench.chat("try", &["--new"]);
    let card = open_one(&bench);
    assert_eq!(card.host, None);
    let refused = run(&bench, &["approvals", "approve", card.ask_id.as_str(), "--host", "--yes"], 2);
    assert!(refused.contains("no host"), "{refused}");
    run(&bench, &["approvals", "approve", card.ask_id.as_str(), "--yes"], 0);
    assert_eq!(trusted(&bench), []);
    bench.chat("another conversation", &["--new"]);
    assert!(
        open_one(&bench).shown.contains("asked.test"),
        "asked again, though it is listed and was approved"
    );
}
