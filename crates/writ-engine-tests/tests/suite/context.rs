//! Long conversations on small windows: what the model is sent, what the log holds, what it costs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use writ_agent::config::Summaries;
use writ_agent::event::{SystemSource, SystemText};
use writ_models::catalogue::Catalogue;
use writ_runtime::engine::Join;
use writ_runtime::services::EngineParts;
use writ_store::ledger::row::LedgerQuery;
use writ_store::usage::{UsageKind, UsageTotals};
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault};
use writ_types::entry::Fact;
use writ_types::error::Exit;
use writ_types::frame::ServerFrame;
use writ_types::id::SessionId;
use writ_types::taint::{Label, Taint};
use writ_types::unit::{MicroUsd, Tokens};

use crate::harness::{OWNER, PRICED, TestEngine};

/// The rule that must stand in every request.
const RULE: &str = "Never call the neighbours before nine.";

/// The window of the scripted server, in tokens of its own counting.
const WINDOW: u64 = 9_000;

/// The most rows of a page of the ledger.
const PAGE: usize = 1_000;

/// The tokens that the scripted server counts: more of them than are estimated.
fn counted(request: &ParsedRequest) -> u64 {
    u64::try_from(request.raw.to_string().chars().count()).expect("fits").div_ceil(4)
}

/// Reports whether a request asks for a summary.
fn is_summary(request: &ParsedRequest) -> bool {
    request.system.contains("You summarise the older part of a conversation")
}

/// What a scripted server has seen.
#[derive(Debug, Default)]
struct Seen {
    /// Requests of turns.
    turns: u64,
    /// Requests for summaries.
    summaries: u64,
    /// Requests that were larger than the window.
    over: u64,
    /// Requests of turns without the rule.
    without_rule: u64,
    /// The largest request, in tokens.
    largest: u64,
    /// Tokens sent and answered.
    usage: (u64, u64),
    /// The texts of requests for summaries.
    asked: Vec<String>,
}

fn note(seen: &Mutex<Seen>, request: &ParsedRequest, answer: u64) -> Option<Reply> {
    let mut seen = seen.lock().expect("no panic");
    let sent = counted(request);
    seen.largest = seen.largest.max(sent);
    if sent > WINDOW {
        seen.over += 1;
        return Some(Reply::default().with_fault(ReplyFault::ContextOver { window: WINDOW, sent }));
    }
    seen.usage.0 += sent;
    seen.usage.1 += answer;
    if is_summary(request) {
        seen.summaries += 1;
        seen.asked.push(request.messages.iter().map(|message| message.text.clone()).collect());
    } else {
        seen.turns += 1;
        seen.without_rule += u64::from(!request.system.contains(RULE));
    }
    None
}

/// Parts with a rule, a small window, and no limit on tokens.
fn small(parts: &mut EngineParts) {
    let text = RULE.to_owned();
    parts.config.system =
        vec![SystemText { source: SystemSource::Rules, text, label: Label::new(Taint::Owner) }];
    let context = &mut parts.config.begun.agent_config.context;
    context.total_tokens = Tokens::new(WINDOW);
    context.system_max = Tokens::new(6_000);
    parts.config.budget.max_tokens_per_session = Tokens::MAX;
    parts.config.budget.max_tokens_per_day = Tokens::MAX;
}

/// The same, where only tokens lead to a compaction.
fn roomy(parts: &mut EngineParts) {
    small(parts);
    parts.config.max_chronicle_entries = 1_000;
}

/// All facts of a kind, oldest first.
fn all_facts(handed: &TestEngine, event: &str) -> Vec<Fact> {
    let (mut facts, mut before) = (Vec::new(), None);
    loop {
        let query =
            LedgerQuery { event: Some(event.to_owned()), before, limit: PAGE, ..LedgerQuery::default() };
        let rows = handed.store.blocking().ledger_search(&query).expect("reads");
        let Some(last) = rows.last() else { break };
        before = Some(last.seq);
        facts.extend(rows.iter().map(|row| row.entry().expect("kept").fact));
    }
    facts.reverse();
    facts
}

fn totals(handed: &TestEngine, kind: UsageKind) -> UsageTotals {
    let rows = handed.store.blocking().usage_totals(kind, "", "\u{10ffff}").expect("reads");
    rows.iter().fold(UsageTotals::default(), |mut sum, (_, row)| {
        sum.add_totals(row);
        sum
    })
}

/// A thousand turns would do; two thousand pass every bound several times.
const TURNS: u64 = 2_000;

/// 2,000 turns on a window of 9,000 tokens, of which the tools take half: no request is ever larger than the window, the rule
/// stands in each of them as the server received it, every message is in the log, and the costs add up.
///
/// Rows: WIN-353 (in part: a summary replaces the old messages) WIN-354
/// Rows: SF-176 (in part: input, output and cost add up, without a cache)
#[test]
fn two_thousand_turns_on_a_small_window_lose_nothing_and_add_up() {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let noted = Arc::clone(&seen);
    let script = |_| {
        move |request: &ParsedRequest| {
            let answer = 60;
            if let Some(refused) = note(&noted, request, answer) {
                return refused;
            }
            let reply = if is_summary(request) {
                Reply::text(
                    &json!({ "summary": "They count together.", "keep_groups": [], "evict_groups": [] })
                        .to_string(),
                )
            } else {
                // In few pieces: each frame costs as much as a commit, and streams have tests of their own.
                let heard = format!("Heard: {}. ", request.last_user_text());
                Reply { texts: vec![heard, "word ".repeat(20), "word ".repeat(20)], ..Reply::default() }
            };
            reply.with_usage(counted(request), answer)
        }
    };
    let handed = TestEngine::priced(
        |parts| {
            small(parts);
            parts.config.begun.agent_config.context.summaries = Summaries::Always;
        },
        script,
    );
    handed.runtime.block_on(async {
        let mut joined = handed.engine.join(OWNER, Join::default()).await.expect("joined");
        for n in 0..TURNS {
            let (exit, text) = handed.send_in(&mut joined, &format!("m{n}"), &format!("number {n}")).await;
            assert_eq!(exit, Exit::Done, "{text}");
            handed.clock.go_on(Duration::from_secs(1));
        }
        let seen = std::mem::take(&mut *seen.lock().expect("no panic"));
        assert_eq!((seen.over, seen.without_rule), (0, 0), "{seen:?}");
        assert_eq!(seen.turns, TURNS);
        assert!(seen.summaries > 20, "{seen:?}");
        assert!(seen.largest <= WINDOW && seen.largest > WINDOW / 3, "{}", seen.largest);

        let reads = handed.store.blocking();
        let rows =
            reads.recent_after(joined.session, 0, 3 * usize::try_from(TURNS).expect("fits")).expect("reads");
        assert_eq!(rows.len(), 2 * usize::try_from(TURNS).expect("fits"), "nothing is missing in the log");
        for (n, row) in rows.iter().step_by(2).enumerate() {
            let text = serde_json::to_string(&row.message.parts).expect("JSON");
            assert!(text.contains(&format!("number {n}\"")), "{n}: {text}");
            let answer = serde_json::to_string(&rows[2 * n + 1].message.parts).expect("JSON");
            assert!(answer.contains(&format!("Heard: number {n}. ")), "{n}: {answer}");
        }
        let compacted = all_facts(&handed, "compacted");
        assert_eq!(u64::try_from(compacted.len()).expect("fits"), seen.summaries);

        let called: Vec<(MicroUsd, u64, u64)> = all_facts(&handed, "model_called")
            .into_iter()
            .map(|fact| {
                let Fact::ModelCalled { cost, usage, .. } = fact else { panic!("another fact") };
                (cost.expect("priced"), usage.input.get(), usage.output.get())
            })
            .collect();
        let sum = called.iter().fold((0, 0, 0), |sum, (cost, input, output)| {
            (sum.0 + cost.get(), sum.1 + input, sum.2 + output)
        });
        assert_eq!((sum.1, sum.2), seen.usage, "as the server has counted them");
        let (at, provider, model) = PRICED;
        let price = Catalogue::load_shipped().price_at(provider, model, at).expect("a price");
        for (cost, input, output) in &called {
            // Prices are for a million tokens; a call that began costs a whole micro-USD.
            let exact = input * price.input + output * price.output;
            assert_eq!(cost.get(), exact.div_ceil(1_000_000), "{input} and {output} tokens");
        }
        for kind in [UsageKind::Day, UsageKind::Month, UsageKind::Session, UsageKind::Role, UsageKind::Model]
        {
            let totals = totals(&handed, kind);
            let found = (totals.cost.get(), totals.usage.input.get(), totals.usage.output.get());
            assert_eq!(found, sum, "{kind:?}");
        }
        let report = handed.call("budget.report", json!({ "by": "role" })).await.expect("answered");
        assert_eq!(report["total"]["cost_micro_usd"], json!(sum.0));
        let roles: BTreeMap<&str, u64> = report["rows"]
            .as_array()
            .expect("rows")
            .iter()
            .map(|row| {
                (row["name"].as_str().expect("a name"), row["model_calls"].as_u64().expect("a number"))
            })
            .collect();
        assert_eq!(roles, BTreeMap::from([("executor", TURNS), ("scorer", seen.summaries)]));
    });
    handed.end();
}

/// Says so many long things; returns the session.
async fn talk(handed: &TestEngine, session: Option<SessionId>, (first, count): (u64, u64)) -> SessionId {
    let join = Join { session, ..Join::default() };
    let mut joined = handed.engine.join(OWNER, join).await.expect("joined");
    for n in first..first + count {
        let text = format!("number {n}: {}", "some words that fill the window ".repeat(12));
        let (exit, text) = handed.send_in(&mut joined, &format!("m{n}"), &text).await;
        assert_eq!(exit, Exit::Done, "{text}");
        handed.clock.go_on(Duration::from_secs(1));
    }
    joined.session
}

/// A scorer keeps a group word for word, what is pinned stays whatever it says, what left is remembered, and the owner is
/// notified and can look. The prompt asks for what a summary is for.
///
/// Rows: SIL-079 (in part: it is called once where the history is too large)
/// Rows: SIL-080 (in part: what it keeps stays, and what is pinned stays whatever it says)
/// Rows: SIL-344 (in part: items of all zones are listed in one form, with their pins)
/// Rows: WIN-352 (in part: the prompt names the bound)
/// Rows: SF-172 (in part: what leaves is remembered first, and the next request has what stands for it)
#[test]
fn a_scorer_chooses_what_stays_and_what_left_is_remembered_and_shown() {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let noted = Arc::clone(&seen);
    let prompt = Arc::new(Mutex::new(String::new()));
    let prompted = Arc::clone(&prompt);
    let script = |_| {
        move |request: &ParsedRequest| {
            if let Some(refused) = note(&noted, request, 10) {
                return refused;
            }
            if is_summary(request) {
                *prompted.lock().expect("no panic") = request.system.clone();
                let output =
                    json!({ "summary": "Ann likes tea.", "keep_groups": [3], "evict_groups": [1, 2] });
                return Reply::text(&output.to_string());
            }
            Reply::text("Heard.")
        }
    };
    let handed = TestEngine::with(roomy, script);
    handed.runtime.block_on(async {
        let session = talk(&handed, None, (0, 1)).await;
        let view = handed.call("context.show", json!({ "session": session })).await.expect("answered");
        let row_of = |view: &Value, text: &str| {
            let items = view["items"].as_array().expect("items");
            items.iter().find(|item| item["begins"].as_str().expect("a text").contains(text)).cloned()
        };
        let first = row_of(&view, "number 0").expect("it is there")["row"].as_u64().expect("a row");
        handed.call("context.pin", json!({ "session": session, "row": first })).await.expect("pinned");
        let mut watching = handed
            .engine
            .join(OWNER, Join { session: Some(session), ..Join::default() })
            .await
            .expect("joined");
        let mut n = 1;
        while seen.lock().expect("no panic").summaries == 0 {
            assert!(n < 60, "it is never compacted");
            talk(&handed, Some(session), (n, 1)).await;
            n += 1;
        }
        assert_eq!(seen.lock().expect("no panic").summaries, 1);
        let asked = seen.lock().expect("no panic").asked[0].clone();
        for wanted in ["decisions", "action items", "the state of", "key facts"] {
            assert!(prompt.lock().expect("no panic").contains(wanted), "{wanted}");
        }
        assert!(asked.contains("in at most") && asked.contains("[group 1]\nperson: number 0"), "{asked}");
        let mut told = false;
        while let Ok(frame) = watching.live.try_recv() {
            told |= matches!(&frame.frame, ServerFrame::Status { text } if text.contains("left the context"));
        }
        assert!(told, "the owner is notified");

        let view = handed.call("context.show", json!({ "session": session })).await.expect("answered");
        assert_eq!(view["compactions"][0]["by"], json!("scripted"), "{view}");
        let items = view["items"].as_array().expect("items");
        let carried: Vec<&str> = items
            .iter()
            .filter(|item| item["zone"] == "chronicle" && item["row"].is_null())
            .map(|item| item["begins"].as_str().expect("a text"))
            .collect();
        assert!(carried[0].contains("Ann likes tea."), "{carried:?}");
        assert!(carried[1].contains("number 0"), "what is pinned stays: {carried:?}");
        assert!(carried[2].contains("number 1"), "the group that was kept: {carried:?}");
        assert_eq!(carried.len(), 3);
        let diff = handed.call("context.diff", json!({ "session": session })).await.expect("answered");
        let states: Vec<&str> = diff["changed"]
            .as_array()
            .expect("rows")
            .iter()
            .map(|row| row["state"].as_str().expect("a state"))
            .collect();
        assert_eq!(states[..3], ["carried", "summarised", "carried"], "{diff}");
        assert_eq!(diff["messages"], json!(2 * n));

        let hits = handed
            .store
            .blocking()
            .search_memory("number 2", Some(session), writ_store::memory::Secrets::Kept, 5)
            .expect("reads");
        assert!(hits.iter().any(|hit| hit.memory.item.text.starts_with("The person: number 2:")), "{hits:?}");
        let again = handed
            .call("context.unpin", json!({ "session": session, "row": first }))
            .await
            .expect("unpinned");
        assert_eq!(again["pins"], json!([]));
        assert!(handed.call("context.unpin", json!({ "session": session, "row": first })).await.is_err());
    });
    handed.end();
}

/// What leaves is remembered before it leaves: while no memory can be written, all of it stays, word for word. A scorer that names what is
/// no group of the history is refused, and the system's text is the same in every request, whatever leaves.
///
/// Rows: SIL-067 SIL-082
/// Rows: SF-172 (in part: while nothing can be remembered nothing leaves, and the conversation goes on)
#[test]
fn what_cannot_be_remembered_stays_and_no_scorer_moves_the_system_zone() {
    let seen = Arc::new(Mutex::new((Vec::<ParsedRequest>::new(), Vec::<String>::new())));
    let noted = Arc::clone(&seen);
    let script = |_| {
        move |request: &ParsedRequest| {
            let mut seen = noted.lock().expect("no panic");
            if !is_summary(request) {
                seen.0.push(request.clone());
                return Reply::text("Heard.");
            }
            seen.1.push(request.messages.iter().map(|message| message.text.clone()).collect());
            // The system's text and the tools have no number.
            let evicted = if seen.1.len() == 1 { vec![0] } else { Vec::new() };
            let output = json!({ "summary": "They count.", "keep_groups": [], "evict_groups": evicted });
            Reply::text(&output.to_string())
        }
    };
    let handed = TestEngine::with(roomy, script);
    let database = rusqlite::Connection::open(handed.folder().join("writ.db")).expect("opens");
    let change = |sql: &str| database.execute_batch(sql).expect("changed");
    handed.runtime.block_on(async {
        let session = talk(&handed, None, (0, 3)).await;
        let compact = async || handed.call("context.compact", json!({ "session": session })).await;
        let compactions = || handed.store.blocking().compactions(session, 10).expect("reads").len();
        let last = || seen.lock().expect("no panic").0.last().expect("a request").raw.to_string();
        // As a message of the conversation: what left may come back as a memory.
        let stands = |n: u64| last().contains(&format!(r#""content":"number {n}: some words"#));

        change("CREATE TRIGGER full BEFORE INSERT ON memory BEGIN SELECT RAISE(ABORT, 'no room'); END");
        compact().await.expect_err("nothing is remembered");
        change("DROP TRIGGER full");
        assert_eq!(compactions(), 0);
        let asked = seen.lock().expect("no panic").1.clone();
        assert_eq!(asked.len(), 2, "an answer that names what is no group is refused");
        assert!(asked[1].contains("there is no group 0"), "{}", asked[1]);
        talk(&handed, Some(session), (3, 1)).await;
        assert_eq!(compactions(), 0);
        assert!((0..4).all(stands), "all of it is there: {}", last());

        compact().await.expect("remembered");
        assert_eq!(compactions(), 1);
        talk(&handed, Some(session), (4, 1)).await;
        assert!(!stands(0) && stands(4), "{}", last());
        let told = writ_store::memory::Secrets::Kept;
        let hits = handed.store.blocking().search_memory("number 0", Some(session), told, 5).expect("reads");
        assert!(hits.iter().any(|hit| hit.memory.item.text.starts_with("The person: number 0:")), "{hits:?}");

        // More than the window holds leaves by itself.
        let mut n = 5;
        while compactions() < 3 {
            assert!(n < 100, "it is never compacted");
            talk(&handed, Some(session), (n, 1)).await;
            n += 1;
        }
        let requests = seen.lock().expect("no panic").0.clone();
        let first = &requests[0];
        let system = &first.raw["messages"][0];
        assert!(system["role"] == "system" && system.to_string().contains(RULE) && !first.tools.is_empty());
        for request in &requests {
            assert_eq!(request.raw["messages"][0], first.raw["messages"][0]);
            assert_eq!(request.raw["tools"], first.raw["tools"]);
        }
        let view = handed.call("context.show", json!({ "session": session })).await.expect("answered");
        let items = view["items"].as_array().expect("items");
        let system: Vec<&Value> = items.iter().filter(|item| item["zone"] == "system").collect();
        // What is pinned without a row cannot be named, and so not be unpinned.
        assert!(
            system.len() > 2 && system.iter().all(|item| item["pinned"] == true && item["row"].is_null())
        );
    });
    handed.end();
}

/// Old results of tools are masked first, which no model is asked for; the scorer is called, once, when that is not enough.
///
/// Rows: SIL-074 SIL-079
#[test]
fn needs_userns_the_scorer_is_called_only_where_masking_old_results_is_not_enough() {
    let seen = Arc::new(Mutex::new((0_u64, 0_usize, 0_usize)));
    let noted = Arc::clone(&seen);
    let script = |_| {
        move |request: &ParsedRequest| {
            let mut seen = noted.lock().expect("no panic");
            if is_summary(request) {
                seen.0 += 1;
                let output = json!({ "summary": "They count.", "keep_groups": [], "evict_groups": [] });
                return Reply::text(&output.to_string());
            }
            let is_new = request.messages.last().is_some_and(|last| last.results.is_empty());
            if is_new && request.last_user_text().starts_with("count") {
                return Reply::call("shell_exec", json!({ "command": "seq 1 2500" }));
            }
            let whole = request.results().filter(|result| result.text.contains("\n1200\n")).count();
            (seen.1, seen.2) = (whole, request.results().count());
            Reply::text("Counted.")
        }
    };
    let handed = TestEngine::with(
        |parts| {
            roomy(parts);
            parts.config.begun.agent_config.context.total_tokens = Tokens::new(60_000);
        },
        script,
    );
    handed.runtime.block_on(async {
        let mut joined = handed.engine.join(OWNER, Join::default()).await.expect("joined");
        for n in 0..16 {
            handed.send_in(&mut joined, &format!("m{n}"), &format!("count {n}")).await;
            handed.clock.go_on(Duration::from_secs(1));
        }
        let (summaries, whole, results) = *seen.lock().expect("no panic");
        assert_eq!(summaries, 0, "no model is asked: {whole} of {results} results are whole");
        assert!(whole >= 1 && whole < results, "old results are masked: {whole} of {results}");
        let mut n = 0;
        while seen.lock().expect("no panic").0 == 0 {
            assert!(n < 200, "masking is enough for ever");
            let text = format!("number {n}: {}", "some words that fill the window ".repeat(30));
            handed.send_in(&mut joined, &format!("t{n}"), &text).await;
            handed.clock.go_on(Duration::from_secs(1));
            n += 1;
        }
        assert_eq!(seen.lock().expect("no panic").0, 1);
    });
    handed.end();
}

/// The scorer is asked to keep what a summary is for, within a bound; one that writes more has its summary cut there.
///
/// Rows: WIN-352
#[test]
fn the_prompt_of_a_summary_names_its_contents_and_its_bound_and_a_longer_one_is_cut() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let script = |_| {
        move |request: &ParsedRequest| {
            if !is_summary(request) {
                return Reply::text("Heard.");
            }
            noted.lock().expect("no panic").push(request.clone());
            let summary = format!("They count. {}", "And so on. ".repeat(2_000));
            let output = json!({ "summary": summary, "keep_groups": [], "evict_groups": [] });
            Reply::text(&output.to_string())
        }
    };
    let handed = TestEngine::with(roomy, script);
    handed.runtime.block_on(async {
        let session = talk(&handed, None, (0, 1)).await;
        let mut n = 1;
        while seen.lock().expect("no panic").is_empty() {
            assert!(n < 80, "it is never compacted");
            talk(&handed, Some(session), (n, 1)).await;
            n += 1;
        }
        let request = seen.lock().expect("no panic")[0].clone();
        let prompt = format!("{} {}", request.system, request.raw);
        for wanted in ["decisions", "action items", "the state of", "key facts"] {
            assert!(prompt.contains(wanted), "{wanted}: {prompt}");
        }
        let bound = prompt.split("in at most ").nth(1).and_then(|rest| rest.split(' ').next());
        let bound: usize = bound.expect("a bound").parse().unwrap_or_else(|_| panic!("{prompt}"));
        assert!(prompt.contains(&format!("in at most {bound} tokens")), "{prompt}");
        let all = handed.store.blocking().compactions(session, 10).expect("reads");
        assert_eq!((all.len(), all[0].written_by.as_str()), (1, "scripted"), "{all:?}");
        let summary = &all[0].summary;
        // Four characters are counted as a token.
        assert!(summary.starts_with("They count.") && summary.chars().count() <= 4 * bound, "{summary}");
        talk(&handed, Some(session), (n, 1)).await;
        let sent = handed.server.recorded_requests().pop().expect("a request").body.to_string();
        assert!(
            sent.contains("They count.") && sent.matches("And so on.").count() <= bound,
            "{}",
            sent.len()
        );
    });
    handed.end();
}

/// A summary that fails leaves the history as it was; one that is written stands in place of the old messages, so that a later
/// question is answered from it.
///
/// Rows: WIN-353
#[test]
fn a_summary_replaces_the_old_messages_and_one_that_fails_leaves_them() {
    #[derive(Default)]
    struct Said {
        summaries: u64,
        /// The texts of the last request of a turn.
        last: String,
    }
    let said = Arc::new(Mutex::new(Said::default()));
    let noted = Arc::clone(&said);
    let script = |_| {
        move |request: &ParsedRequest| {
            let mut said = noted.lock().expect("no panic");
            if is_summary(request) {
                said.summaries += 1;
                // The first try and its repetition fail.
                let output = json!({ "summary": "Ann likes tea.", "keep_groups": [], "evict_groups": [] });
                let text =
                    if said.summaries <= 2 { "I would rather not.".to_owned() } else { output.to_string() };
                return Reply::text(&text);
            }
            said.last = request.raw.to_string();
            let knows = said.last.contains("Ann likes tea.");
            Reply::text(if knows { "Tea, it is said." } else { "Heard." })
        }
    };
    let handed = TestEngine::with(roomy, script);
    handed.runtime.block_on(async {
        let session = talk(&handed, None, (0, 1)).await;
        let mut n = 1;
        let mut until_asked = async |summaries: u64| {
            while said.lock().expect("no panic").summaries < summaries {
                assert!(n < 80, "it is never compacted");
                talk(&handed, Some(session), (n, 1)).await;
                n += 1;
            }
            n
        };
        let n = until_asked(2).await;
        let last = said.lock().expect("no panic").last.clone();
        for number in 0..n {
            assert!(last.contains(&format!("number {number}:")), "{number} is there after the failure");
        }
        let n = until_asked(3).await;
        talk(&handed, Some(session), (n, 1)).await;
        let (exit, text) = handed.say(Some(session), "What does Ann like?").await;
        let all = handed.store.blocking().compactions(session, 10).expect("reads");
        assert_eq!((exit, text.as_str()), (Exit::Done, "Tea, it is said."), "{n} {all:?}");
        let last = said.lock().expect("no panic").last.clone();
        assert!(!last.contains("number 1:") && last.contains(&format!("number {n}:")), "{last}");
    });
    handed.end();
}

/// A scorer that talks in prose is asked once more; then the history stays as it is while there is room, and after that the
/// harness notes what left. After three failures it is not asked for five minutes.
///
/// Rows: SIL-081
/// Rows: WIN-353 (in part: a summary that fails leaves the history as it was)
#[test]
fn a_scorer_that_fails_costs_nothing_but_its_calls() {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let noted = Arc::clone(&seen);
    let script = |_| {
        move |request: &ParsedRequest| {
            if let Some(refused) = note(&noted, request, 10) {
                return refused;
            }
            Reply::text(if is_summary(request) { "I would rather not." } else { "Heard." })
        }
    };
    let handed = TestEngine::with(roomy, script);
    handed.runtime.block_on(async {
        let session = talk(&handed, None, (0, 40)).await;
        let asked = seen.lock().expect("no panic").summaries;
        assert_eq!(asked, 6, "three times two requests, then none");
        let all = handed.store.blocking().compactions(session, 10).expect("reads");
        assert!(!all.is_empty() && all.iter().all(|one| one.written_by == "harness"), "{all:?}");
        assert!(
            all[0].summary.contains("earlier messages of this conversation were left out"),
            "{}",
            all[0].summary
        );
        handed.clock.go_on(Duration::from_secs(5 * 60));
        talk(&handed, Some(session), (40, 30)).await;
        let seen = seen.lock().expect("no panic");
        assert!(seen.summaries > asked, "it is asked again");
        assert_eq!((seen.over, seen.without_rule), (0, 0));
    });
    handed.end();
}

/// A summary that fails is paid for: what it cost counts for the money of its turn.
#[test]
fn the_cost_of_a_failed_summary_counts_for_its_turn() {
    let summaries = Arc::new(Mutex::new(0_u32));
    let asked = Arc::clone(&summaries);
    let change = |parts: &mut EngineParts| {
        roomy(parts);
        parts.config.begun.agent_config.limits.max_output_tokens = Tokens::new(1_000);
        parts.config.budget.max_cost_per_turn = Some(MicroUsd::new(1_000_000));
    };
    let script = |_| {
        move |request: &ParsedRequest| {
            if is_summary(request) {
                *asked.lock().expect("no panic") += 1;
                // A million tokens cost more than the turn may.
                return Reply::text("I would rather not.").with_usage(1_000_000, 10);
            }
            Reply::text("Heard.").with_usage(1_000, 10)
        }
    };
    let handed = TestEngine::priced(change, script);
    handed.runtime.block_on(async {
        let mut joined = handed.engine.join(OWNER, Join::default()).await.expect("joined");
        for n in 0..60 {
            let text = format!("number {n}: {}", "some words that fill the window ".repeat(12));
            let (exit, text) = handed.send_in(&mut joined, &format!("m{n}"), &text).await;
            if *summaries.lock().expect("no panic") == 0 {
                assert_eq!(exit, Exit::Done, "{text}");
                continue;
            }
            assert_eq!(exit, Exit::Budget, "{text}");
            assert!(text.contains("budget.max_cost_per_turn"), "{text}");
            return;
        }
        panic!("it is never compacted");
    });
    handed.end();
}

/// A request that was too long is followed by a shorter one in the same turn: a cassette names the one that was answered.
#[test]
fn a_cassette_names_the_request_that_was_answered() {
    let refused = Arc::new(Mutex::new(false));
    let script = |_| {
        move |request: &ParsedRequest| {
            let mut refused = refused.lock().expect("no panic");
            if !*refused && request.last_user_text().starts_with("number 8") {
                *refused = true;
                let fault = ReplyFault::ContextOver { window: 7_000, sent: 10_000 };
                return Reply::default().with_fault(fault);
            }
            Reply::text("Heard.")
        }
    };
    let change = |parts: &mut EngineParts| {
        roomy(parts);
        parts.config.begun.agent_config.context.total_tokens = Tokens::new(40_000);
    };
    let handed = TestEngine::with(change, script);
    handed.runtime.block_on(async {
        let mut joined = handed.engine.join(OWNER, Join::default()).await.expect("joined");
        for n in 0..9 {
            let text = format!("number {n}: {}", "a word ".repeat(450));
            let (exit, text) = handed.send_in(&mut joined, &format!("m{n}"), &text).await;
            assert_eq!(exit, Exit::Done, "{text}");
        }
        let page =
            handed.call("sessions.cassette", json!({ "session": joined.session })).await.expect("read");
        let of_last = |track: &&Value| track["turn"] == json!(9);
        let tracks: Vec<&Value> = page["tracks"].as_array().expect("tracks").iter().filter(of_last).collect();
        let lengths: Vec<u64> = tracks.iter().filter_map(|track| track["length"].as_u64()).collect();
        assert_eq!(lengths.len(), 1, "{tracks:?}");
        assert!(
            lengths[0] < 5_000,
            "the request that was answered had less than the seven thousand: {lengths:?}"
        );
    });
    handed.end();
}

/// A result that is too long is stored whole, shown in part, and read on by its handle, through the door.
#[test]
fn needs_userns_a_result_that_is_too_long_is_read_on_by_its_handle() {
    let script = |_| {
        |request: &ParsedRequest| {
            let results: Vec<&str> = request.results().map(|result| result.text.as_str()).collect();
            match results.len() {
                0 => {
                    let program = "for n in range(3000): print('line', n, 'of the output')";
                    Reply::call("python_exec", json!({ "script": program }))
                }
                1 => Reply::call(
                    "result_read",
                    json!({ "handle": "$r1", "find": "line 1500 of", "chars": 400 }),
                ),
                2 => Reply::call("result_read", json!({ "handle": "$r9" })),
                _ => Reply::text(&results.join("\n=====\n")),
            }
        }
    };
    let handed = TestEngine::with(|_| {}, script);
    handed.runtime.block_on(async {
        let (exit, text) = handed.say(None, "Run it.").await;
        assert_eq!(exit, Exit::Done, "{text}");
        let parts: Vec<&str> = text.split("\n=====\n").collect();
        assert!(
            parts[0].contains("line 0 of the output") && !parts[0].contains("line 1500 of"),
            "shown in part: {}",
            parts[0]
        );
        assert!(
            parts[0].contains(r#"result_read reads more of it: {"handle": "$r1"}"#),
            "{}",
            &parts[0][23_000..]
        );
        assert!(
            parts[1].contains("line 1500 of the output") && parts[1].contains("[it goes on: from "),
            "{}",
            parts[1]
        );
        assert!(parts[2].contains("there is no such handle here"), "{}", parts[2]);
    });
    let reads = handed.facts("intent").into_iter().filter(
        |fact| matches!(fact, Fact::Intent { action, .. } if action.kind().as_str() == "read_result"),
    );
    assert_eq!(reads.count(), 2, "each passes the door");
    handed.end();
}

/// Money: a session stops at its limit with everything stored, is renewed at its owner's word and goes on; a day does not.
#[test]
fn a_session_that_has_spent_its_money_stops_and_is_renewed_where_its_owner_is() {
    let handed = TestEngine::priced(
        |parts| {
            // A call of 10 tokens of answer costs at most a few cents.
            parts.config.begun.agent_config.limits.max_output_tokens = Tokens::new(1_000);
            parts.config.budget.max_cost_per_session = Some(MicroUsd::new(200_000));
            parts.config.budget.max_cost_per_month = Some(MicroUsd::new(10_000_000));
        },
        |_| |_: &ParsedRequest| Reply::text("Heard.").with_usage(10_000, 1_000),
    );
    handed.runtime.block_on(async {
        let mut joined = handed.engine.join(OWNER, Join::default()).await.expect("joined");
        let session = joined.session;
        let mut warned = Vec::new();
        let mut n = 0;
        let stopped = loop {
            n += 1;
            assert!(n < 10, "it never stops");
            let client_id = format!("m{n}");
            handed
                .engine
                .receive(OWNER, session, client_id, "go on".to_owned(), Taint::Owner)
                .await
                .expect("stored");
            let (exit, text) = loop {
                let frame = joined.live.recv().await.expect("a frame").frame.clone();
                if let ServerFrame::Status { text } = &frame
                    && text.contains(" % of ")
                {
                    warned.push(text.clone());
                }
                if let ServerFrame::Message { text, exit, last: true, .. } = frame {
                    break (exit, text);
                }
            };
            if exit == Exit::Budget {
                break text;
            }
        };
        assert!(
            stopped.contains("budget.max_cost_per_session") && stopped.contains("writ budget renew"),
            "{stopped}"
        );
        assert!(
            warned.iter().any(|text| text.starts_with("70 % of budget.max_cost_per_session")),
            "{warned:?}"
        );
        let state = handed.call("budget.renew", json!({ "session": session })).await.expect("renewed");
        assert_eq!((&state["paused"], &state["limits"][1]["used"]), (&json!(false), &json!(0)), "{state}");
        assert_eq!(handed.send_in(&mut joined, "again", "go on").await.0, Exit::Done);

        handed.call("budget.pause", json!({ "session": session })).await.expect("paused");
        let (exit, text) = handed.send_in(&mut joined, "paused", "go on").await;
        assert_eq!(exit, Exit::Budget);
        assert!(text.contains("This session is paused"), "{text}");
        handed.call("budget.renew", json!({ "session": session })).await.expect("renewed");
        assert_eq!(handed.send_in(&mut joined, "renewed", "go on").await.0, Exit::Done);
        let spent = totals(&handed, UsageKind::Month).cost;
        let report = handed.call("budget.report", json!({ "by": "model" })).await.expect("answered");
        assert_eq!(report["rows"][0]["name"], json!("anthropic/claude-opus-5"));
        assert_eq!(report["total"]["cost_micro_usd"], json!(spent));
        let month = report["limits"]
            .as_array()
            .expect("limits")
            .iter()
            .find(|limit| limit["setting"] == "budget.max_cost_per_month");
        assert_eq!(month.expect("the month's limit")["used"], json!(spent));
    });
    handed.end();
}

/// Messages and memories of one topic are neither in the requests nor among the memories of another, and come back with it; those of
/// no topic are always there. The topic outlives a restart.
///
/// Rows: SIL-346
#[test]
fn a_topic_holds_its_messages_and_memories() {
    let script = |request: &ParsedRequest| {
        let text = request.last_user_text();
        if let Some(fact) = text.strip_prefix("store: ")
            && request.results().next().is_none()
        {
            return Reply::call("memory_store", json!({ "text": fact }));
        }
        let words = ["heron", "roses", "invoices", "twice a week", "in triplicate"];
        let raw = request.raw.to_string();
        Reply::text(&words.into_iter().filter(|word| raw.contains(word)).collect::<Vec<_>>().join(", "))
    };
    let mut handed = TestEngine::new("", |_| script);
    let topic = async |handed: &TestEngine, params: Value| {
        handed.call("context.topic", params).await.expect("a list")
    };
    let session = handed.runtime.block_on(async {
        let (session, ..) = handed.send(None, "one", "The code name is heron").await;
        let changed = topic(&handed, json!({ "session": session, "topic": " Garden " })).await;
        assert_eq!(changed, json!({ "session": session, "topic": "garden", "topics": ["garden"] }));
        handed.send(Some(session), "two", "We speak of roses").await;
        let (other, ..) = handed.send(None, "x", "a conversation of its own, without topics").await;
        topic(&handed, json!({ "session": other, "topic": "garden" })).await;
        handed.send(Some(other), "y", "store: The watering is due twice a week").await;
        topic(&handed, json!({ "session": other, "topic": "office" })).await;
        handed.send(Some(other), "z", "store: The watering of plants there is billed in triplicate").await;
        topic(&handed, json!({ "session": session, "topic": "office" })).await;
        let (_, _, seen) = handed.send(Some(session), "three", "invoices arrive").await;
        assert_eq!(seen, "heron, invoices");
        let (_, _, seen) = handed.send(Some(session), "four", "When is the watering due?").await;
        assert_eq!(seen, "heron, invoices, in triplicate", "the memory of the garden is not brought");
        session
    });
    handed = handed.restarted();
    handed.runtime.block_on(async {
        let shown = handed.call("context.show", json!({ "session": session })).await.expect("shown");
        assert_eq!(shown["topic"], "office");
        topic(&handed, json!({ "session": session, "topic": "garden" })).await;
        let (_, _, seen) = handed.send(Some(session), "five", "When is the watering due?").await;
        assert_eq!(seen, "heron, roses, twice a week");
        let left = topic(&handed, json!({ "session": session, "leave": true })).await;
        assert_eq!(left, json!({ "session": session, "topic": null, "topics": ["garden", "office"] }));
        let (_, _, seen) = handed.send(Some(session), "six", "And now?").await;
        assert_eq!(seen, "heron");
        for wrong in [
            json!({ "session": session, "topic": "#x" }),
            json!({ "session": session, "topic": "x", "leave": true }),
        ] {
            assert!(handed.call("context.topic", wrong).await.is_err());
        }
    });
    handed.end();
}
