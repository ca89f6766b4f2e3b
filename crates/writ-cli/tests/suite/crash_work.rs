//! Work items over the command line, and with an engine that is killed at both sides of every commit of a plan.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::{Value, json};
use writ_testkit::model_server::{ParsedRequest, Reply};
use writ_types::entry::Decision;

use super::crash::copy;
use super::engine::{Engine, Link};
use super::turns::Bench;
use super::{Home, code, text};

/// How many homes are worked on at once.
const WORKERS: usize = 4;
/// More commits than the plan has.
const MOST_COMMITS: u64 = 200;

const PLAN: &str = "---\nid: three\ntype: task\ntitle: Three files\nbudget: {max_tokens: 400000, max_cost_usd: 5, max_attempts: 3}\nsteps:\n  - id: a\n    title: First\n    do: Write a.txt\n    verify:\n      - name: a\n        run: cat a.txt\n        expect: { contains: good }\n  - id: b\n    title: Second\n    do: Write b.txt\n    verify:\n      - name: b\n        run: cat b.txt\n        expect: { contains: good }\n  - id: c\n    title: Third\n    do: Write c.txt\nverify:\n  - name: c\n    run: cat c.txt\n    expect: { contains: good }\non_stuck: stop\n---\n\n# What to do\n\nWrite the files.\n";

/// Writes the file that the step names. The first attempt at `b.txt` is wrong.
fn script(request: &ParsedRequest) -> Reply {
    let said = request.last_user_text();
    let file = ["a.txt", "b.txt", "c.txt"].into_iter().find(|name| said.contains(&format!("Write {name}")));
    let file = file.unwrap_or("none.txt");
    let failed = said.matches(" has failed.").count();
    let content = if file == "b.txt" && failed == 0 { "bad".to_owned() } else { format!("good {failed}") };
    match request.results().next() {
        None => Reply::call("file_write", json!({ "path": file, "content": content })),
        Some(_) => Reply::text("Done."),
    }
}

/// Does whatever is left to do; `None`: the engine is gone.
fn go_on(home: &Home) -> Option<Value> {
    let mut link = Link::open(home)?;
    let listed = link.call("work.list", json!({}))?;
    let live = |item: &&Value| item["state"] != "cancelled";
    let known = listed["items"].as_array().expect("a list").iter().find(live).cloned();
    let item = match known {
        Some(item) => item,
        None => {
            let project = home.dir.path().join("project").display().to_string();
            link.call("work.propose", json!({ "plan": PLAN, "project": project }))?
        }
    };
    let name = json!({ "item": item["item"] });
    loop {
        let shown = link.call("work.show", name.clone())?;
        let state = shown["summary"]["state"].as_str().expect("a state").to_owned();
        if ["done", "failed", "stuck", "over_budget", "cancelled", "denied"].contains(&state.as_str()) {
            return Some(shown);
        }
        for card in link.call("approvals.list", json!({}))?["asks"].as_array().expect("a list").clone() {
            if state == "proposed" && card["ask_id"] == shown["summary"]["ask"] {
                let ask = card["ask_id"].as_str().expect("an id").parse().expect("an id");
                link.decide(&ask, Decision::Approve, None)?;
            }
        }
        std::thread::yield_now();
    }
}

fn killed_at(template: &Home, point: &str) -> bool {
    let home = Home { dir: tempfile::tempdir().expect("temp dir"), env: template.env.clone(), within: None };
    copy(&template.root(), &home.root());
    std::fs::create_dir(home.dir.path().join("project")).expect("made");
    let (mut shown, mut killed) = (None, true);
    match Engine::start(&home, &[("WRIT_KILL_POINT", point)]) {
        Err(ended) => assert_eq!(ended.signal, Some(6), "{point}: {}", ended.said),
        Ok(mut engine) => {
            shown = go_on(&home);
            let ended = if shown.is_none() { engine.wait() } else { engine.stop() };
            killed = ended.code != Some(0);
            assert_eq!(killed, ended.signal == Some(6), "{point}: {}", ended.said);
        }
    }
    if killed {
        let engine = Engine::start(&home, &[]).unwrap_or_else(|ended| panic!("{point}: {ended:?}"));
        shown = go_on(&home);
        assert_eq!(engine.stop().code, Some(0), "{point}");
    }
    check(&home, &shown.expect("the engine that recovers stays"), point);
    killed
}

/// No step was begun twice, no plan is missing, and what the item has used is what the ledger says.
fn check(home: &Home, shown: &Value, point: &str) {
    let verified = home.run(&["audit", "verify"]);
    assert_eq!(code(&verified), 0, "{point}: {}", text(&verified));
    assert_eq!(shown["summary"]["state"], "done", "{point}: {shown}");
    for name in ["a.txt", "b.txt", "c.txt"] {
        let file = home.dir.path().join("project").join(name);
        let written = std::fs::read_to_string(file).unwrap_or_default();
        assert!(written.starts_with("good"), "{point}: {name} {written:?}");
    }
    let output = home.run(&["audit", "export"]);
    let lines = String::from_utf8(output.stdout).expect("UTF-8");
    let entries: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("a row")).collect();
    let of = |event: &str| entries.iter().filter(move |entry| entry["event"] == event);
    let attempts: usize = shown["steps"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|step| step["attempts"].as_array().map_or(0, Vec::len))
        .sum();
    // One for each step, and one more for that whose check has failed; each is one message and one turn with one answer.
    assert_eq!(attempts, 4, "{point}: {shown}");
    assert_eq!((of("received").count(), of("replied").count()), (attempts, attempts), "{point}: {shown}");
    let sum = |path: &str| -> u64 {
        of("model_called").filter_map(|entry| entry.pointer(path).and_then(Value::as_u64)).sum()
    };
    let used = sum("/payload/usage/input") + sum("/payload/usage/output");
    let spending = &shown["summary"]["spending"];
    assert_eq!(spending["tokens"], used, "{point}: the budget is exact");
    assert_eq!(spending["cost_micro_usd"], sum("/payload/cost"), "{point}: to the millionth");
    assert!(sum("/payload/cost") > 0, "{point}: what the model costs is known");
}

/// Rows: SIL-041
#[test]
fn needs_userns_a_kill_at_either_side_of_any_commit_of_a_plan_repeats_no_step_and_loses_no_plan() {
    let bench = Bench::new("openai", script);
    let config = bench.home.root().join("config.toml");
    let written = std::fs::read_to_string(&config).unwrap_or_default();
    let prices = "\n[models.prices.\"test/scripted\"]\ninput = 3000000\noutput = 15000000\n";
    std::fs::write(&config, format!("{written}{prices}")).expect("written");
    for side in ["store.before_commit", "store.after_commit"] {
        let (next, over) = (AtomicU64::new(1), AtomicBool::new(false));
        let work = || {
            let mut kills = 0_usize;
            while !over.load(Ordering::SeqCst) {
                let point = format!("{side}:{}", next.fetch_add(1, Ordering::SeqCst));
                if killed_at(&bench.home, &point) {
                    kills += 1;
                } else {
                    over.store(true, Ordering::SeqCst);
                }
            }
            kills
        };
        let kills: usize = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
            workers.into_iter().map(|worker| worker.join().expect("a worker's checks hold")).sum()
        });
        assert!(kills >= 30, "{side}: a plan has more commits than {kills}");
        assert!(next.load(Ordering::SeqCst) <= MOST_COMMITS, "{side}: {kills} commits");
    }
}
