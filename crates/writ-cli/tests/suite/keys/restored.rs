//! What a restore ends: approvals and keys of the epoch before, by the epoch alone.

use writ_policy::approval::ApprovalToken;
use writ_testkit::model_server::{ParsedRequest, Reply};
use writ_types::entry::Decision;
use writ_types::frame::Card;

use super::*;
use crate::rows_sil::keys::{approver, claims, public};
use crate::turns::Bench;

/// Every memory is asked for: the cheapest action to ask about.
const ASK_REMEMBER: &str = r#"@id("ask-remember") @ask("Every memory is asked for.")
forbid (principal, action == Action::"remember", resource);"#;

/// A home whose model wants to remember two things.
fn asking() -> Bench {
    let bench = Bench::new("openai", |request: &ParsedRequest| {
        if request.messages.last().is_some_and(|message| !message.results.is_empty()) {
            return Reply::text("It waits.");
        }
        let add_call = |reply: Reply, word: &str| reply.and_call("memory_store", json!({ "text": word }));
        ["heron", "otter"].into_iter().fold(Reply::default(), add_call)
    });
    std::fs::write(bench.home.root().join("policies/ask.cedar"), ASK_REMEMBER).expect("written");
    bench
}

/// Signs a yes to an ask, as the command line would, without sending it.
fn unused(home: &Home, link: &mut Link, card: &Card, nonce: u8) -> Value {
    let status = link.call("status", json!({})).expect("a status");
    let key = approver(home);
    let token = ApprovalToken::sign_claims(claims(&status, card, nonce, public(&key)), &key).expect("signs");
    serde_json::to_value(token).expect("JSON")
}

fn memories(home: &Home) -> i64 {
    let conn = rusqlite::Connection::open(home.database()).expect("opens");
    conn.query_row("SELECT count(*) FROM memory", [], |row| row.get(0)).expect("counts")
}

/// Changes the database of a home whose engine does not run.
fn change(home: &Home, sql: &str) {
    let conn = rusqlite::Connection::open(home.database()).expect("opens");
    assert_eq!(conn.execute(sql, []).expect("changed"), 1, "{sql}");
}

/// What an engine says to an approval that is sent to it.
fn sent(home: &Home, card: &Card, token: &Value) -> Result<String, String> {
    let engine = Engine::start(home, &[]).expect("ready");
    let mut link = Link::open(home).expect("connects");
    let said = link.decide(&card.ask_id, Decision::Approve, Some(token.clone())).expect("an answer");
    drop(link);
    assert_eq!(engine.stop().code, Some(0));
    said
}

/// An approval that was signed and not used, and keys that were given out, are good until a restore and dead after it.
/// That the epoch is what ends them: everything else that a restore changes about them is taken back by hand, and they are
/// refused with the reason; the epoch taken back by hand as well, they are good again.
#[test]
fn an_approval_and_a_task_key_from_before_a_restore_are_dead_by_its_epoch() {
    let Bench { home, server: _server, runtime: _runtime } = asking();
    let keys = Keys { home }.with_both();
    let home = &keys.home;
    ended(home);
    let engine = Engine::start(home, &[]).expect("ready");
    let mut link = Link::open(home).expect("connects");
    link.join(None, None).expect("joined");
    assert_eq!(link.ask("remember both", "one").expect("answered").exit.code(), 5);
    let cards = link.asks().expect("asks");
    let [first, second] = cards.as_slice() else { panic!("two are asked: {cards:?}") };
    let (used, old) = (unused(home, &mut link, first, 1), unused(home, &mut link, second, 2));
    assert_eq!(code(&home.run(&["backup"])), 0);

    // The twins, without a restore.
    assert_eq!(link.decide(&first.ask_id, Decision::Approve, Some(used)), Some(Ok("applied".to_owned())));
    assert_eq!(memories(home), 1);
    done(&keys.refund("base", "task", 5));
    done(&keys.task("base", "twin", "case_tk_456def"));
    let heads = keys.path("heads");
    done(&home.run(&["audit", "export", "--heads", &heads]));
    drop(link);
    assert_eq!(engine.stop().code, Some(0));

    done(&home.run(&["backup", "restore", "1", "--json"]));
    let entry = entries(home, "restored");
    let [entry] = entry.as_slice() else { panic!("one entry says so: {entry:?}") };
    let entry: Value = serde_json::from_str(entry).expect("a row");
    assert_eq!(entry["payload"]["epoch"], 2, "{entry}");
    let verified = home.run(&["audit", "verify", "--heads", &heads]);
    assert_eq!(code(&verified), 0, "{}", text(&verified));
    let known = format!("known restore at entry {}", entry["seq"]);
    assert!(text(&verified).contains(&known), "{}", text(&verified));
    ended(home);

    // The ask is closed; opened by hand, the approval is refused for its epoch, and so are the keys.
    assert_eq!(sent(home, second, &old), Err("ask.closed".to_owned()));
    let ask = &second.ask_id;
    let open = format!("UPDATE ask SET state = 'open', resolved_at = NULL WHERE id = '{ask}'");
    change(home, &open);
    assert_eq!(sent(home, second, &old), Err("approval.invalid".to_owned()));
    let denied = entries(home, "denied");
    assert!(denied[0].contains("the time before a restore"), "the newest entry: {denied:?}");
    assert_eq!(memories(home), 0);
    for output in
        [keys.refund("base", "task", 5), keys.task("base", "late", "case_tk_456def"), renewed(&keys)]
    {
        assert!(refused(&output).contains("the time before a restore"), "{}", text(&output));
    }
    ended(home);

    // With the epoch of before, which no command brings back, nothing else keeps them from being good.
    change(home, "UPDATE setting SET value = '1' WHERE key = 'epoch'");
    assert_eq!(sent(home, second, &old), Ok("applied".to_owned()));
    assert_eq!(memories(home), 1);
    done(&keys.refund("base", "task", 5));
    done(&renewed(&keys));
}

/// Asks the engine for a longer life of the task key.
fn renewed(keys: &Keys) -> Output {
    let (base, task, out) = (keys.path("base"), keys.path("task"), keys.path("renewed"));
    let _gone = std::fs::remove_file(&out);
    keys.home.run(&["keys", "task", "renew", &task, "--base", &base, "--out", &out, "--json"])
}
