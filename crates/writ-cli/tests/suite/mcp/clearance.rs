//! What models are told: no more than their providers are cleared for, by a real server's answers and a person's own words.

use serde_json::json;
use writ_testkit::model_server::{ParsedRequest, Reply};

use super::super::engine::stop_engine_of;
use super::super::{code, text};
use super::Desk;

/// What the owner says of the tool whose result is told.
fn words(readers: &str) -> String {
    format!("[tools.look]\neffect = false\nsinks = []\nreaders = \"{readers}\"\n")
}

/// A desk whose model looks a customer up and repeats what it reads, under the settings of `env`.
fn desk(readers: &str, env: &[(&str, &str)]) -> Desk {
    let looks = |request: &ParsedRequest| {
        if request.system.starts_with("You judge a text") {
            return Reply::text(r#"{"score": 1, "pass": true, "flags": []}"#);
        }
        match request.messages.iter().rev().find_map(|message| message.results.first()) {
            None => Reply::call("crm__look", json!({ "id": 7 })),
            Some(result) => Reply::text(&format!("It said: {}", result.text)),
        }
    };
    desk_of(looks, readers, env)
}

/// The same with another model.
fn desk_of(
    script: impl FnMut(&ParsedRequest) -> Reply + Send + 'static,
    readers: &str,
    env: &[(&str, &str)],
) -> Desk {
    let mut desk = Desk::obeying(script);
    desk.bench.home.env.extend(env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let added = desk.add(&[]);
    assert_eq!(code(&added), 0, "{}", text(&added));
    desk.say(&words(readers));
    desk
}

const ANN: &str = "ann@mail.example.org";
const ANSWER: &str = "customer 7 is Ann";

fn message_text() -> String {
    format!("Look customer 7 up for {ANN}")
}

fn told(desk: &Desk, what: &str) -> bool {
    desk.bench.requests().iter().any(|body| body.contains(what))
}

/// Of whom only what is public may be told, nobody's address and no private answer is told; the owner reads both.
#[test]
fn needs_userns_needs_python_a_model_is_told_what_its_provider_is_cleared_for() {
    let clearance = |level| [("WRIT_PROVIDERS__TEST__CLEARANCE", level)];
    for (readers, level, address, answer) in [
        ("private", "public", false, false),
        ("public", "public", false, true),
        ("private", "personal", true, true),
        ("secret", "personal", true, false),
        ("secret", "secret", true, true),
    ] {
        let desk = desk(readers, &clearance(level));
        let done = desk.chat(&message_text());
        assert_eq!(code(&done), 0, "{}", text(&done));
        let name = format!("{readers} answers, a provider cleared for {level}");
        assert_eq!((told(&desk, ANN), told(&desk, ANSWER)), (address, answer), "{name}");
        assert_eq!(told(&desk, "[withheld:"), !(address && answer), "{name}");
        let said = text(&done);
        assert!(said.contains("It said: ") && said.contains(ANSWER), "{name}: {said}");
        let exported = text(&desk.bench.home.run(&["audit", "export"]));
        assert_eq!(exported.contains("the rest is withheld"), !(address && answer), "{name}");
        desk.verify();
    }
}

/// Looks a customer up and remembers the answer where it is told to note; elsewhere, says what it remembers. Of the weather it
/// remembers what it is told.
fn remembers(request: &ParsedRequest) -> Reply {
    let is_told = |part: &str| request.messages.iter().any(|message| message.text.contains(part));
    let is_noting = is_told("Note customer 7");
    let results: Vec<_> = request.results().collect();
    if is_told("Note the weather") && results.is_empty() {
        return Reply::call("memory_store", json!({ "text": "It is raining there." }));
    }
    match (is_noting, results.as_slice()) {
        (true, []) => Reply::call("crm__look", json!({ "id": 7 })),
        (true, [looked]) => {
            Reply::call("memory_store", json!({ "text": format!("Known of that customer: {}", looked.text) }))
        }
        (true, _) => Reply::text("Noted."),
        (false, [stored]) if stored.text.starts_with("remembered") => Reply::text("Noted."),
        (false, []) => Reply::call("memory_search", json!({ "query": "customer" })),
        (false, [.., found]) => Reply::text(&format!("I know: {}", found.text)),
    }
}

/// What was secret when it was remembered is secret in another conversation, after a restart, too: no model is told it that is not
/// cleared. It is found by the tool and withheld, and not recalled for a message: what is noted of that is not secret. Twins: a model
/// that is cleared, and what is only private.
#[test]
fn needs_userns_needs_python_what_was_secret_is_secret_when_it_is_remembered() {
    for (readers, level, is_told) in
        [("secret", "personal", false), ("secret", "secret", true), ("private", "personal", true)]
    {
        let desk = desk_of(remembers, readers, &[("WRIT_PROVIDERS__TEST__CLEARANCE", level)]);
        let noted = desk.chat("Note customer 7");
        assert_eq!(code(&noted), 0, "{}", text(&noted));
        let name = format!("{readers} answers, a provider cleared for {level}");
        let found = desk.bench.home.json(&["memory", "search", "customer"]);
        let hit = &found["hits"][0];
        assert!(hit["text"].as_str().is_some_and(|text| text.contains(ANSWER)), "{name}: {found}");
        assert_eq!(hit["secret"], readers == "secret", "{name}");
        stop_engine_of(&desk.bench.home);
        let before = desk.bench.requests().len();
        let done = desk.chat("What is known of that customer?");
        assert_eq!(code(&done), 0, "{}", text(&done));
        let later = desk.bench.requests().split_off(before);
        assert_eq!(later.len(), 2, "{name}");
        for (request, is_found) in later.iter().zip([false, true]) {
            assert_eq!(request.contains(ANSWER), is_told, "{name}: {request}");
            assert_eq!(request.contains("[withheld:"), is_found && !is_told, "{name}: {request}");
        }
        let said = text(&done);
        assert!(said.contains("I know: ") && said.contains(ANSWER), "{name}: {said}");
        let noted = desk.chat("Note the weather at that customer's");
        assert_eq!(code(&noted), 0, "{}", text(&noted));
        let found = desk.bench.home.json(&["memory", "search", "raining"]);
        let hits = found["hits"].as_array().expect("hits");
        let hit = hits.iter().find(|hit| hit["text"] == "It is raining there.").expect("noted");
        assert_eq!(hit["secret"], readers == "secret" && is_told, "{name}: {hit}");
        desk.verify();
    }
}

/// Where a model of the list is cleared, it is asked in place of the first, and the ledger says why.
#[test]
fn needs_userns_needs_python_a_cleared_model_is_asked_instead() {
    let desk = desk("private", &[("WRIT_PROVIDERS__TEST__CLEARANCE", "public")]);
    let config = desk.bench.home.root().join("config.toml");
    let before = std::fs::read_to_string(&config).unwrap_or_default();
    let env =
        |name: &str| desk.bench.home.env.iter().rev().find(|(key, _)| key == name).expect("set").1.clone();
    let (kind, url) = (env("WRIT_PROVIDERS__TEST__KIND"), env("WRIT_PROVIDERS__TEST__BASE_URL"));
    let other = format!(
        "[models]\nfallback = [\"own/cleared\"]\n[providers.own]\nkind = {kind:?}\nbase_url = {url:?}\n\
         api_key = \"env:SCRIPTED_KEY\"\nclearance = \"personal\"\n"
    );
    std::fs::write(&config, format!("{before}\n{other}")).expect("written");
    desk.say("");
    let done = desk.chat("Look customer 7 up");
    assert_eq!(code(&done), 0, "{}", text(&done));
    let asked: Vec<_> = desk.bench.server.recorded_requests().into_iter().map(|one| one.body).collect();
    let models: Vec<_> = asked.iter().map(|body| body["model"].as_str().expect("a name")).collect();
    assert_eq!(models, ["scripted", "cleared"], "the first gets only the message");
    assert!(!asked[0].to_string().contains(ANSWER) && asked[1].to_string().contains(ANSWER));
    let exported = text(&desk.bench.home.run(&["audit", "export"]));
    assert!(exported.contains("models of lower clearance are left out"), "{exported}");
    desk.verify();
}

/// A model that judges what the agent says is told no more than the agent's own: not what marks in the answer stood for.
#[test]
fn needs_userns_needs_python_a_model_that_judges_is_not_told_what_was_withheld() {
    let desk = desk("secret", &[("WRIT_PROVIDERS__TEST__CLEARANCE", "personal")]);
    let config = desk.bench.home.root().join("config.toml");
    let before = std::fs::read_to_string(&config).unwrap_or_default();
    let gate =
        "[[gates]]\nname = \"tone\"\non = \"output\"\nprovider = \"llm\"\nprompt = \"Is it polite?\"\n";
    std::fs::write(&config, format!("{before}\n{gate}")).expect("written");
    desk.say("");
    let done = desk.chat(&message_text());
    assert_eq!(code(&done), 0, "{}", text(&done));
    assert!(text(&done).contains(ANSWER), "the owner reads it: {}", text(&done));
    assert!(!told(&desk, ANSWER), "and no model does");
    let mut judged = desk.bench.requests().into_iter().filter(|body| body.contains("You judge a text"));
    assert!(judged.next_back().is_some_and(|body| body.contains("[withheld:")), "what was said was judged");
    desk.verify();
}
