//! A day: sixty requests in conversations, each played as an agent would, with an owner who answers what is asked.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;
use writ_types::frame::Card;
use writ_types::id::SessionId;

use super::super::{code, text};
use super::office::{Office, Rules, Step};

const DAY: &str = include_str!("../../../../../threats/day.toml");
/// The requests of a day.
const REQUESTS: usize = 60;
/// The most questions that they may raise.
const MOST_QUESTIONS: usize = 6;
/// The questions that somebody else has planted.
const PLANTED: usize = 10;
/// What the reason of a question says where something was made up that the owner has not named.
const TELLING: &str = "is neither in your own words nor taken as it is from what you asked for";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Day {
    session: Vec<Conversation>,
    planted: Vec<Planted>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Conversation {
    area: String,
    requests: Vec<Request>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    text: String,
    steps: Vec<Step>,
}

/// A call that nobody has asked for, after the conversation of a number.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Planted {
    session: usize,
    call: String,
    arguments: Value,
    /// The value that tells it apart.
    tells: String,
}

fn day() -> Day {
    toml::from_str(DAY).expect("the day")
}

/// What is wanted in most conversations sooner or later.
const COMMON: [&str; 5] = ["mail__send", "calendar__create", "chat__direct", "chat__post", "files__write"];

/// The tools that an agent names with the first call of a request: all of the servers that it is about, and what is common.
fn then(request: &Request, rules: &Rules) -> Option<Vec<String>> {
    let servers: BTreeSet<&str> =
        request.steps.iter().filter_map(|step| Some(step.call.split_once("__")?.0)).collect();
    let tools = rules.tools(&servers).into_iter().chain(COMMON.map(str::to_owned));
    (!servers.is_empty()).then(|| tools.collect::<BTreeSet<_>>().into_iter().collect())
}

/// What a call says who, where and what with, as a person would have to see it.
fn leaves(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => text.lines().map(str::to_owned).collect(),
        Value::Number(number) => vec![number.to_string()],
        Value::Array(items) => items.iter().flat_map(leaves).collect(),
        Value::Object(fields) => fields.values().flat_map(leaves).collect(),
        Value::Null | Value::Bool(_) => Vec::new(),
    }
}

/// A card can be answered from what it shows: why it is asked, what the call is, and everything in it.
fn check(card: &Card, step: &Step) {
    assert!(!card.rationale.is_empty() && !card.intent.is_empty() && card.choices.len() >= 2, "{card:?}");
    let named = step.call.split("__").last().unwrap_or_default();
    assert!(card.shown.contains(named), "{card:?}");
    for leaf in leaves(&step.arguments) {
        assert!(card.shown.contains(&leaf), "{leaf:?} is not shown: {}", card.shown);
    }
}

/// Has one request done; the questions that it raised.
fn ask(office: &mut Office, request: &Request, rules: &Rules) -> Vec<(Card, Step)> {
    let played = office.turn(&request.text, "", then(request, rules), &request.steps);
    let waiting = played.made.iter().filter(|(_, state)| state == "waiting").map(|(step, _)| step.clone());
    let waiting: Vec<Step> = waiting.collect();
    let failed: Vec<_> =
        played.made.iter().filter(|(_, state)| !matches!(state.as_str(), "done" | "waiting")).collect();
    assert!(
        failed.is_empty(),
        "{}: {:?}",
        request.text,
        failed.iter().map(|(step, state)| (&step.call, state)).collect::<Vec<_>>()
    );
    let cards = office.open_asks();
    assert_eq!(cards.len(), waiting.len(), "{}: {cards:#?}", request.text);
    let pairs = waiting.into_iter().map(|step| {
        let leaves = leaves(&step.arguments);
        let card = cards.iter().find(|card| leaves.iter().all(|leaf| card.shown.contains(leaf)));
        (card.unwrap_or_else(|| panic!("no card for {step:?}")).clone(), step)
    });
    pairs.collect()
}

/// A day of sixty requests raises six questions at most, none twice, each of which can be answered from its card; and ten that
/// somebody has planted are told apart by what the card says.
///
/// Rows: SIL-168
#[test]
fn needs_userns_needs_python_a_day_asks_little_and_what_was_planted_shows() {
    let (day, rules) = (day(), Rules::load());
    assert_eq!(day.session.iter().map(|one| one.requests.len()).sum::<usize>(), REQUESTS);
    assert_eq!(day.planted.len(), PLANTED);
    let areas: BTreeSet<&str> = day.session.iter().map(|one| one.area.as_str()).collect();
    assert_eq!(areas, BTreeSet::from(["code", "files", "mail", "web"]));
    let mut office = Office::open(false);
    let mut sessions: Vec<SessionId> = Vec::new();
    let mut asked: Vec<(Card, Step)> = Vec::new();
    let mut planted = 0;
    for (number, conversation) in day.session.iter().enumerate() {
        sessions.push(office.session_in(conversation.area == "code"));
        for request in &conversation.requests {
            for (card, step) in ask(&mut office, request, &rules) {
                check(&card, &step);
                let approved =
                    office.bench.home.run(&["approvals", "approve", card.ask_id.as_str(), "--yes"]);
                assert_eq!(code(&approved), 0, "{}", text(&approved));
                let telling = card.rationale.contains(TELLING);
                assert!(!telling, "{}: {}", request.text, card.rationale);
                asked.push((card, step));
            }
        }
        for bad in day.planted.iter().filter(|bad| bad.session == number) {
            planted += 1;
            let step = Step {
                call: bad.call.clone(),
                arguments: bad.arguments.clone(),
                returns: None,
                injected: false,
            };
            let played = office.turn("Go on.", "", None, std::slice::from_ref(&step));
            assert_eq!(played.made[0].1, "waiting", "{}", bad.call);
            let [card] = &office.open_asks()[..] else { panic!("one question") };
            check(card, &step);
            // The reason says that nobody of the owner's has named it, and the value stands in the text.
            assert!(card.rationale.contains(TELLING), "{}: {}", bad.call, card.rationale);
            assert!(card.shown.contains(&bad.tells), "{}", card.shown);
            let denied = office.bench.home.run(&["approvals", "deny", card.ask_id.as_str()]);
            assert_eq!(code(&denied), 0, "{}", text(&denied));
        }
        office.close(sessions[number]);
    }
    let told: Vec<String> = asked
        .iter()
        .map(|(card, step)| format!("{} {}: {}", step.call, step.arguments, card.rationale))
        .collect();
    println!("{told:#?}");
    assert!(asked.len() <= MOST_QUESTIONS, "{told:#?}");
    assert_eq!(told.iter().collect::<BTreeSet<_>>().len(), told.len(), "none twice: {told:#?}");
    assert_eq!(planted, PLANTED);
    office.end();
}
