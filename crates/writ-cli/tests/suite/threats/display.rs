//! Case 3, display and execution: what a person is shown is complete and cannot deceive, and what is performed is
//! exactly what was shown.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use writ_inspect::show::is_plain;
use writ_types::digest::Digest;
use writ_types::frame::Card;

use crate::engine::{Engine, Link};
use crate::turns::{Bench, calls};
use crate::{code, text};

/// Every command is asked for.
const ASK_EXEC: &str = r#"@id("ask-exec") @ask("Every command is asked for.")
forbid (principal, action == Action::"exec", resource);"#;
/// The length of the long commands.
const LONG: usize = 64 * 1024;
/// The plain command beside them.
const TWIN: &str = "twin";
/// How many characters the command has that is too long to be shown.
const FLOOD: usize = 40 * 1024;

fn print(text: &str) -> Vec<String> {
    ["printf", "%s", text].map(str::to_owned).to_vec()
}

/// What could deceive, and what of it must be seen.
fn hostile() -> Vec<(&'static str, Vec<String>, String)> {
    let long = format!("{}; touch /tmp/end", "x ".repeat(LONG / 2));
    let seen = |text: &str| text.to_owned();
    vec![
        ("64 KiB", print(&long), format!("'{long}'")),
        ("right to left", print("invoice\u{202e}fdp.sh"), seen("$'invoice\\u{202e}fdp.sh'")),
        ("terminal", print("\u{1b}[2J\u{1b}[Hharmless"), seen("$'\\u{1b}[2J\\u{1b}[Hharmless'")),
        ("zero width", print("pass\u{200b}word"), seen("$'pass\\u{200b}word'")),
        ("tags", print("fine\u{e0072}\u{e006d}"), seen("$'fine\\u{e0072}\\u{e006d}'")),
        ("lookalike", print("p\u{430}ypal.com"), seen("several alphabets: $'p\\u{430}ypal.com'")),
        ("further lines", print("x\nhosts      none\nfor        tea"), seen("$'x\\nhosts      none\\nfor")),
        (TWIN, print("caf\u{e9} au lait"), seen("'caf\u{e9} au lait'")),
    ]
}

/// The asks, by the argument that their commands print.
fn by_argument(bench: &Bench, cards: &[Card]) -> BTreeMap<String, (Card, Value)> {
    let asked = bench.events("asked");
    let found = cards.iter().map(|card| {
        let entry = asked.iter().find(|row| row["payload"]["ask"] == card.ask_id.as_str());
        let entry = entry.expect("every ask is in the ledger")["payload"].clone();
        let argument = entry["action"]["argv"][2].as_str().expect("an argument").to_owned();
        (argument, (card.clone(), entry))
    });
    found.collect()
}

#[test]
fn needs_userns_what_is_shown_is_complete_and_is_what_is_performed() {
    let cases = hostile();
    // Short enough for arguments, but nearly three times as long when it is escaped: more than anybody can read.
    let flood = print(&"\u{202e}".repeat(FLOOD));
    let mut list: Vec<_> = cases.iter().map(|(_, argv, _)| ("shell_exec", json!({ "argv": argv }))).collect();
    list.push(("shell_exec", json!({ "argv": flood })));
    let bench = Bench::new("anthropic", calls(list, "They wait."));
    std::fs::write(bench.home.root().join("policies/ask.cedar"), ASK_EXEC).expect("written");
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let waiting = bench.chat("try", &["--new"]);
    assert_eq!(code(&waiting), 5, "{}", text(&waiting));
    let cards = Link::open(&bench.home).expect("connects").asks().expect("asks");
    assert_eq!(cards.len(), cases.len(), "what cannot be shown completely is not asked");
    let requests = bench.requests();
    assert!(requests.last().expect("a request").contains("so it cannot be approved"), "the model is told");
    let denied = bench.events("denied");
    let [denied] = denied.as_slice() else { panic!("one refusal: {denied:?}") };
    assert_eq!(denied["payload"]["rule"], "complete text");
    let asks = by_argument(&bench, &cards);
    for (name, argv, seen) in &cases {
        let (card, asked) = &asks[&argv[2]];
        assert!(is_plain(&card.shown), "{name}: {:?}", card.shown);
        assert!(card.shown.contains(seen.as_str()), "{name}: {:?}", card.shown);
        assert_eq!(card.shown.matches("\nhosts ").count(), 1, "{name}: no line is faked");
        assert_eq!(Digest::of_bytes(card.shown.as_bytes()), card.shown_hash, "{name}");
        assert_eq!(asked["shown"], json!(card.shown_hash), "{name}");
        assert_eq!(asked["prepared"], json!(card.prepared), "{name}");
        assert_eq!(asked["action"]["argv"], json!(argv), "{name}");
        let ask = card.ask_id.as_str();
        let approved = bench.home.run(&["approvals", "approve", ask, "--yes"]);
        assert_eq!(code(&approved), 0, "{name}: {}", text(&approved));
        let printed = String::from_utf8_lossy(&approved.stdout).into_owned();
        assert!(printed.contains(&card.shown), "{name}: all of it is printed before it is signed");
        // What came of the command follows, for a person to read: it cannot deceive either.
        assert!(is_plain(&printed), "{name}: {printed:?}");
        let intents = bench.events("intent");
        let performed: Vec<&Value> =
            intents.iter().map(|row| &row["payload"]).filter(|fact| fact["approval"] == ask).collect();
        let [performed] = performed.as_slice() else { panic!("{name}: performed {} times", performed.len()) };
        assert_eq!(performed["prepared"], json!(card.prepared), "{name}: what was shown is what was run");
        assert_eq!(performed["action"], asked["action"], "{name}");
    }
    let run = bench.events("intent").iter().filter(|row| row["payload"]["action"]["kind"] == "exec").count();
    assert_eq!(run, cases.len(), "what was not asked was not run");
    let twins = cases.iter().filter(|(name, ..)| *name == TWIN).count();
    // With the one that is not asked.
    let count = cases.len() - twins + 1;
    let entries = bench.count("asked") - twins + bench.count("denied");
    println!("THREAT 3 attempts={count} refused={count} entries={entries} entry=asked|denied twins={twins}");
    assert_eq!(engine.stop().code, Some(0));
}

/// A card that was changed on its way is not signed; its twin is the card as it was.
#[test]
fn needs_userns_a_changed_text_is_not_signed() {
    let list = vec![("shell_exec", json!({ "argv": print("one") }))];
    let bench = Bench::new("openai", calls(list, "It waits."));
    std::fs::write(bench.home.root().join("policies/ask.cedar"), ASK_EXEC).expect("written");
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    assert_eq!(code(&bench.chat("try", &["--new"])), 5);
    let ask = bench.ask();
    let change = |from: &str, to: &str| {
        let conn = rusqlite::Connection::open(bench.home.database()).expect("opens");
        let changed = conn.execute("UPDATE ask SET card = replace(card, ?1, ?2)", [from, to]);
        assert_eq!(changed, Ok(1));
    };
    let runs =
        || bench.events("intent").iter().filter(|row| row["payload"]["action"]["kind"] == "exec").count();
    change("printf %s one", "printf %s two");
    let refused = bench.home.run(&["approvals", "approve", &ask, "--yes"]);
    assert_eq!(code(&refused), 4, "{}", text(&refused));
    assert!(text(&refused).contains("does not fit its hash"), "{}", text(&refused));
    assert_eq!(runs(), 0);
    change("printf %s two", "printf %s one");
    let approved = bench.home.run(&["approvals", "approve", &ask, "--yes"]);
    assert_eq!(code(&approved), 0, "{}", text(&approved));
    assert_eq!(runs(), 1);
    assert_eq!(engine.stop().code, Some(0));
}
