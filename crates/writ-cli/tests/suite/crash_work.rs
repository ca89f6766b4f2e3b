//! A plan with three steps, one of which fails its check at first: the engine is killed at both sides of every commit, and started
//! again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::{Value, json};
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault, ReplyGate};
use writ_types::api::work::WorkState;
use writ_types::entry::Decision;
use writ_types::frame::ServerFrame;

use super::crash::copy;
use super::engine::{Engine, Link};
use super::turns::Bench;
use super::{Home, code, text};

/// How many homes are worked on at once.
const WORKERS: usize = 4;
/// More commits than the plan has.
const MOST_COMMITS: u64 = 200;
/// Fewer commits than it has: with fewer kills than these something was not tried.
const FEWEST_COMMITS: usize = 40;
/// The attempts: one at each step, and another at the one whose check fails.
const ATTEMPTS: usize = 4;
/// The files that it writes: one at each attempt of its second step.
const WRITES: usize = 2;
/// The tokens that the model says each of its answers has used, in and out.
const USAGE: (u64, u64) = (1_009, 103);
/// The cost of each answer in micro-USD, by the prices of [`PRICES`].
const COST: u64 = 1_009 * 3 + 103 * 15;

const PRICES: &str = "\n[models.prices.\"test/scripted\"]\ninput = 3000000\noutput = 15000000\n";

const PLAN: &str = "---
id: three
type: task
title: Three steps
budget: {max_tokens: 400000, max_cost_usd: 5, max_attempts: 3}
steps:
  - id: a
    title: First
    do: Say that you are ready.
  - id: b
    title: Second
    do: Write b.txt.
    verify:
      - name: good
        run: cat b.txt
        expect: { contains: good }
  - id: c
    title: Third
    do: Say what was done.
on_stuck: stop
---

# What to do

Write the file.
";

/// Writes the file of the second step: what is wrong at the first attempt, and again where it is not known whether it was written.
fn script(request: &ParsedRequest) -> Reply {
    let said: String = request.messages.iter().map(|message| message.text.as_str()).collect();
    let write = |content: &str| Reply::call("file_write", json!({ "path": "b.txt", "content": content }));
    let content = if said.contains(" has failed.") { "good" } else { "bad" };
    let reply = match request.results().next_back() {
        None if said.contains("Write b.txt.") => write(content),
        Some(result) if result.text.contains("It is not known") => write(&format!("{content} again")),
        None | Some(_) => Reply::text("Done."),
    };
    reply.with_usage(USAGE.0, USAGE.1)
}

/// The item of the home, which is proposed if there is none; `None`: the engine is gone.
fn item_of(home: &Home, link: &mut Link) -> Option<Value> {
    let listed = link.call("work.list", json!({}))?;
    let known = listed["items"].as_array().expect("a list").first().cloned();
    if known.is_some() {
        return known;
    }
    let project = home.dir.path().join("project").display().to_string();
    link.call("work.propose", json!({ "plan": PLAN, "project": project }))
}

/// Does whatever a person has left to do, and waits until the item is over; `None`: the engine is gone.
fn go_on(home: &Home) -> Option<Value> {
    let mut link = Link::open(home)?;
    let item = item_of(home, &mut link)?;
    let (name, session) = (json!({ "item": item["item"] }), item["session"].clone());
    // A card that the engine has not shown before its end is shown after its start.
    loop {
        let shown = link.call("work.show", name.clone())?;
        if shown["summary"]["state"] != "proposed" {
            break;
        }
        for card in link.call("approvals.list", json!({}))?["asks"].as_array().expect("a list").clone() {
            if card["ask_id"] == shown["summary"]["ask"] {
                let ask = card["ask_id"].as_str().expect("an id").parse().expect("an ask");
                link.decide(&ask, Decision::Approve, None)?.expect("an answer that counts");
            }
        }
        std::thread::yield_now();
    }
    // All that has been said of the item comes first.
    link.join(Some(serde_json::from_value(session).expect("an id")), None)?;
    link.until(|numbered| {
        let ServerFrame::Work(news) = numbered.frame else { return None };
        (news.state.is_at_rest() && news.state != WorkState::Proposed).then_some(())
    })?;
    link.call("work.show", name)
}

/// One home whose engine is killed at `point`. Returns true if it was.
fn is_killed_at(template: &Home, point: &str) -> bool {
    let home = Home { dir: tempfile::tempdir().expect("temp dir"), env: template.env.clone(), within: None };
    copy(&template.root(), &home.root());
    std::fs::create_dir(home.dir.path().join("project")).expect("made");
    let (mut shown, mut is_killed) = (None, true);
    match Engine::start(&home, &[("WRIT_KILL_POINT", point)]) {
        Err(ended) => assert_eq!(ended.signal, Some(6), "{point}: {}", ended.said),
        Ok(mut engine) => {
            shown = go_on(&home);
            let ended = if shown.is_none() { engine.wait() } else { engine.stop() };
            is_killed = ended.code != Some(0);
            assert_eq!(is_killed, ended.signal == Some(6), "{point}: {}", ended.said);
        }
    }
    if is_killed {
        let engine = Engine::start(&home, &[]).unwrap_or_else(|ended| panic!("{point}: {ended:?}"));
        shown = go_on(&home);
        assert_eq!(engine.stop().code, Some(0), "{point}");
    }
    check(home, &shown.expect("the engine that recovers stays"), point);
    is_killed
}

/// No step was begun twice, the plan is there and done, and what the item has used is what the ledger has and the model has said.
fn check(mut home: Home, shown: &Value, point: &str) {
    // What is read here needs no process.
    home.within = Some(std::sync::Arc::default());
    let verified = home.run(&["audit", "verify"]);
    assert_eq!(code(&verified), 0, "{point}: {}", text(&verified));
    assert_eq!(shown["summary"]["state"], "done", "{point}: {shown}");
    let file = home.dir.path().join("project/b.txt");
    let written = std::fs::read_to_string(file).unwrap_or_default();
    assert!(written.starts_with("good"), "{point}: {written:?}");
    let output = home.run(&["audit", "export"]);
    let lines = String::from_utf8(output.stdout).expect("UTF-8");
    let entries: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("a row")).collect();
    let of = |event: &'static str| entries.iter().filter(move |entry| entry["event"] == event);
    let steps = shown["steps"].as_array().expect("a list");
    let verdicts: Vec<Vec<&str>> = steps
        .iter()
        .map(|step| step["attempts"].as_array().expect("a list"))
        .map(|tries| tries.iter().filter_map(|attempt| attempt["verdict"].as_str()).collect())
        .collect();
    assert_eq!(verdicts, [vec!["pass"], vec!["fail", "pass"], vec!["pass"]], "{point}: {shown}");
    // Each attempt is one message and one turn with one answer, and there is one plan.
    assert_eq!((of("received").count(), of("replied").count()), (ATTEMPTS, ATTEMPTS), "{point}: {shown}");
    let proposed = of("worked").filter(|entry| entry["payload"]["reason"] == "a plan was proposed");
    assert_eq!(proposed.count(), 1, "{point}: the plan was proposed once");
    let begun = of("worked").filter(|entry| entry["payload"]["reason"] == "its plan was approved");
    assert_eq!(begun.count(), 1, "{point}: and begun once");
    check_spending(&shown["summary"]["spending"], &entries, point);
}

/// The budget is exact: the sum of the answers and of what was reserved for the one call that may have been cut off, to the token
/// and to the micro-USD.
fn check_spending(spending: &Value, entries: &[Value], point: &str) {
    let called: Vec<&Value> = entries.iter().filter(|entry| entry["event"] == "model_called").collect();
    let number = |entry: &Value, path: &str| entry.pointer(path).and_then(Value::as_u64).expect(path);
    let tokens =
        |entry: &Value| number(entry, "/payload/usage/input") + number(entry, "/payload/usage/output");
    let cost = |entry: &Value| number(entry, "/payload/cost");
    let (answered, cut_off): (Vec<&Value>, Vec<&Value>) =
        called.iter().partition(|entry| entry["payload"]["error"] == "");
    let writes = entries.iter().filter(|entry| {
        entry["event"] == "intent" && entry.pointer("/payload/action/place") == Some(&json!("overlay"))
    });
    // Each attempt ends with an answer, and each write is one before it.
    assert_eq!(answered.len(), ATTEMPTS + writes.count(), "{point}: {called:?}");
    assert!((WRITES..=WRITES + 1).contains(&(answered.len() - ATTEMPTS)), "{point}: {called:?}");
    assert!(cut_off.len() <= 1, "{point}: {called:?}");
    for answer in answered {
        assert_eq!((tokens(answer), cost(answer)), (USAGE.0 + USAGE.1, COST), "{point}: {answer}");
    }
    let [used, spent] =
        [called.iter().map(|entry| tokens(entry)).sum::<u64>(), called.iter().map(|entry| cost(entry)).sum()];
    assert_eq!((&spending["tokens"], &spending["cost_micro_usd"]), (&json!(used), &json!(spent)), "{point}");
}

/// Kills an engine at one side of every commit, each in a home of its own, until `is_killed` says that there was none. Returns the
/// number of kills.
fn kill_at_every(template: &Home, side: &str, is_killed: fn(&Home, &str) -> bool) -> usize {
    let (next, is_over) = (AtomicU64::new(1), AtomicBool::new(false));
    let work = || {
        let mut kills = 0_usize;
        while !is_over.load(Ordering::SeqCst) {
            let point = format!("{side}:{}", next.fetch_add(1, Ordering::SeqCst));
            if is_killed(template, &point) {
                kills += 1;
            } else {
                is_over.store(true, Ordering::SeqCst);
            }
        }
        kills
    };
    let kills = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker's checks hold")).sum()
    });
    assert!(next.load(Ordering::SeqCst) <= MOST_COMMITS, "{side}: {kills} commits");
    kills
}

/// A home with the model and what it costs.
fn bench() -> Bench {
    let bench = Bench::new("openai", script);
    let config = bench.home.root().join("config.toml");
    let written = std::fs::read_to_string(&config).unwrap_or_default();
    std::fs::write(&config, format!("{written}{PRICES}")).expect("written");
    bench
}

/// Rows: SIL-041 (in part: a plan goes on after a kill before any of its commits; what is done is not run again)
#[test]
fn needs_userns_a_kill_before_any_commit_of_a_plan_repeats_no_step_and_costs_what_it_costs() {
    let kills = kill_at_every(&bench().home, "store.before_commit", is_killed_at);
    assert!(kills >= FEWEST_COMMITS, "a plan has more commits than {kills}");
}

/// Rows: SIL-041 (in part: a plan goes on after a kill behind any of its commits; what is done is not run again)
#[test]
fn needs_userns_a_kill_behind_any_commit_of_a_plan_repeats_no_step_and_costs_what_it_costs() {
    let kills = kill_at_every(&bench().home, "store.after_commit", is_killed_at);
    assert!(kills >= FEWEST_COMMITS, "a plan has more commits than {kills}");
}

/// Fewer commits than a request has whose plan waits for an approval.
const FEWEST_PLANNED: usize = 6;

/// An agent that has «Plan it.» planned, and a planner.
fn planned(request: &ParsedRequest) -> Reply {
    if request.system.contains("You are the planner") {
        return Reply::text(PLAN);
    }
    let is_new = request.messages.last().is_some_and(|last| last.results.is_empty());
    match request.last_user_text() {
        "Plan it." if is_new => {
            Reply::call("plan", json!({ "request": "Plan it.", "reason": "it is a task" }))
        }
        "Plan it." => Reply::text("A plan is being made."),
        _ => Reply::text("Hello."),
    }
}

/// Has a plan made in the one conversation of a home, and waits until its card is there and no message waits; `None`: the engine is
/// gone.
fn plan_on(home: &Home) -> Option<()> {
    let mut link = Link::open(home)?;
    let listed = link.call("sessions.list", json!({}))?;
    let sessions = listed["sessions"].as_array().expect("a list").iter();
    // Ids sort by time: the conversation is older than the session of the item that it leads to.
    let known = sessions.filter_map(|session| session["session"].as_str()).min();
    link.join(known.map(|id| id.parse().expect("an id")), None)?;
    // Sent again and again: the engine knows the message by its id.
    link.ask("Plan it.", "one")?;
    until_planned(&mut link)
}

/// Waits until a plan has its card and no message waits any more; `None`: the engine is gone.
fn until_planned(link: &mut Link) -> Option<()> {
    loop {
        let listed = link.call("work.list", json!({}))?;
        let queue = link.call("status", json!({}))?["queue"].clone();
        if !listed["items"][0]["ask"].is_null() && queue == json!({ "ready": 0, "leased": 0, "dead": 0 }) {
            return Some(());
        }
        std::thread::yield_now();
    }
}

/// One home whose engine is killed at `point` of a planned request. Returns true if it was.
fn is_planning_killed_at(template: &Home, point: &str) -> bool {
    let home = Home { dir: tempfile::tempdir().expect("temp dir"), env: template.env.clone(), within: None };
    copy(&template.root(), &home.root());
    let mut is_killed = true;
    match Engine::start(&home, &[("WRIT_KILL_POINT", point)]) {
        Err(ended) => assert_eq!(ended.signal, Some(6), "{point}: {}", ended.said),
        Ok(mut engine) => {
            let ended = if plan_on(&home).is_none() { engine.wait() } else { engine.stop() };
            is_killed = ended.code != Some(0);
            assert_eq!(is_killed, ended.signal == Some(6), "{point}: {}", ended.said);
        }
    }
    if is_killed {
        let engine = Engine::start(&home, &[]).unwrap_or_else(|ended| panic!("{point}: {ended:?}"));
        plan_on(&home).unwrap_or_else(|| panic!("{point}: the engine that recovers stays"));
        assert_eq!(engine.stop().code, Some(0), "{point}");
    }
    check_planned(home, point);
    is_killed
}

/// The message, the request and the plan are there once each, and the plan has one card.
fn check_planned(mut home: Home, point: &str) {
    home.within = Some(std::sync::Arc::default());
    let verified = home.run(&["audit", "verify"]);
    assert_eq!(code(&verified), 0, "{point}: {}", text(&verified));
    let output = home.run(&["audit", "export"]);
    let lines = String::from_utf8(output.stdout).expect("UTF-8");
    let entries: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("a row")).collect();
    let of = |event: &'static str| entries.iter().filter(move |entry| entry["event"] == event).count();
    assert_eq!((of("received"), of("replied"), of("asked")), (3, 2, 1), "{point}");
    let rows = rusqlite::Connection::open(home.database()).expect("opens");
    let mut rows = rows.prepare("SELECT consumer || ' ' || state FROM message ORDER BY n").expect("prepares");
    let rows = rows.query_map([], |row| row.get(0)).expect("reads");
    let rows: Vec<String> = rows.collect::<Result<_, _>>().expect("rows");
    assert_eq!(rows, ["executor acked", "planner acked", "proxy acked"], "{point}");
}

/// The agent answers while the planner works, and the plan reaches the person while neither does. Their messages are rows of the
/// database: the engine is killed at both sides of every commit, and each of them is there and done once.
///
/// Rows: SIL-204
#[test]
fn the_three_loops_work_side_by_side_and_a_kill_loses_none_of_their_messages() {
    let gate = ReplyGate::new();
    let held = gate.clone();
    let bench = Bench::new("openai", move |request| match planned(request) {
        reply if request.system.contains("You are the planner") => {
            reply.with_fault(ReplyFault::SlowFirstByte(held.clone()))
        }
        reply => reply,
    });
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    link.join(None, None).expect("joined");
    link.ask("Plan it.", "one").expect("an answer");
    bench.held_back();
    assert_eq!(link.ask("Hello?", "two").expect("an answer").text, "Hello.", "while the planner works");
    let listed = link.call("work.list", json!({})).expect("a list");
    assert_eq!(listed["items"], json!([]), "it has not answered");
    gate.open();
    until_planned(&mut link).expect("a card");
    assert_eq!(engine.stop().code, Some(0));

    for side in ["store.before_commit", "store.after_commit"] {
        let kills = kill_at_every(&Bench::new("openai", planned).home, side, is_planning_killed_at);
        assert!(kills >= FEWEST_PLANNED, "{side}: a planned request has more commits than {kills}");
    }
}
