//! Searches for permits of the real door, at a scripted provider that speaks the real formats.

use std::future::ready;

use writ_testbed::search_server::{SearchAnswer, SearchServer};
use writ_testdoor as door;
use writ_types::error::{Exit, ToReport as _};

use super::*;
use crate::config::SearchProvider;

const KEY: &str = "BSA-planted-key-7f3a";

/// Knows one key under every name.
struct OneKey(&'static str);

impl SearchKeys for OneKey {
    fn key<'a>(&'a self, _: &'a CredentialRef) -> BoxFuture<'a, Result<SecretString, SearchKeyError>> {
        let known = (!self.0.is_empty()).then(|| SecretString::from(self.0));
        Box::pin(ready(known.ok_or(SearchKeyError::Missing)))
    }
}

struct Bench {
    server: SearchServer,
    _runtime: tempfile::TempDir,
    egress: Arc<Egress>,
}

impl Bench {
    async fn new(answer: SearchAnswer) -> Self {
        let runtime = tempfile::tempdir().expect("a folder");
        let egress = Egress::new(&writ_egress::EgressConfig::default(), runtime.path()).expect("a way out");
        let server = SearchServer::start(KEY, answer).await.expect("a server");
        Self { server, _runtime: runtime, egress: Arc::new(egress) }
    }

    fn search(&self, provider: SearchProvider, key: &'static str) -> SearchClient {
        let config = SearchConfig {
            provider: Some(provider),
            api_key: Some("secret:search".parse().expect("a reference")),
            base_url: Some(self.server.base_url(provider.as_str())),
            max_results: 3,
        };
        let made = SearchClient::new(&config, Arc::new(OneKey(key)), Arc::clone(&self.egress));
        made.expect("stands").expect("is configured")
    }
}

fn search_for(search: &SearchClient, query: &str) -> Action {
    Action::Search(writ_types::action::Search {
        provider: search.provider().into(),
        host: search.host().into(),
        query: query.into(),
        max_results: 20,
    })
}

async fn run(search: &SearchClient, action: Action) -> Result<SearchResults, SearchError> {
    let permit = door::permit_action(door::prepare_action(action)).await;
    search.run_search(permit, door::NOW, &CancellationToken::new()).await
}

fn hits(n: usize) -> SearchAnswer {
    let hit = |n| (format!("Page {n}"), format!("https://p{n}.example/"), format!("Text {n}"));
    SearchAnswer::Hits((0..n).map(hit).collect())
}

/// Rows: SIL-105 (provider-backed, by the real formats of two)
#[tokio::test]
async fn both_formats_are_spoken_with_the_key_in_its_header() {
    for provider in SearchProvider::ALL {
        let bench = Bench::new(hits(5)).await;
        let search = bench.search(provider, KEY);
        let found = run(&search, search_for(&search, "rust & \"borrow\" checker?")).await.expect("found");
        let titles: Vec<&str> = found.hits.iter().map(|hit| hit.title.as_str()).collect();
        assert_eq!(titles, ["Page 0", "Page 1", "Page 2"], "no more than the owner has set");
        assert_eq!(found.hits[0].url, "https://p0.example/");
        assert_eq!(found.hits[0].text, "Text 0");
        assert!(found.received > 0);
        let seen = bench.server.seen_searches();
        assert_eq!(seen.len(), 1);
        assert_eq!((seen[0].query.as_str(), seen[0].max_results), ("rust & \"borrow\" checker?", 3));
        assert_eq!(seen[0].format, provider.as_str());
        assert_eq!(bench.server.complaints(), [""; 0]);
        bench.server.set_answer(hits(0));
        assert_eq!(run(&search, search_for(&search, "nothing")).await.expect("found").hits, []);
        assert!(!format!("{search:?}").contains(KEY));
    }
}

#[tokio::test]
async fn what_a_provider_does_wrong_is_named_without_its_words_and_without_the_key() {
    for provider in SearchProvider::ALL {
        let bench = Bench::new(SearchAnswer::Silence).await;
        let search = bench.search(provider, KEY);
        for (answer, code, exit) in [
            (SearchAnswer::Status(429), "search.limited", Exit::Budget),
            (SearchAnswer::Status(401), "search.refused", Exit::Config),
            (SearchAnswer::Status(500), "search.answer", Exit::Blocked),
            (SearchAnswer::Body("<html>".into()), "search.answer", Exit::Blocked),
            (SearchAnswer::Body(format!("[\"{KEY}\"]")), "search.answer", Exit::Blocked),
            (SearchAnswer::Body("x".repeat(MAX_ANSWER_BYTES + 1)), "search.answer", Exit::Blocked),
            (SearchAnswer::Redirect("http://127.0.0.1:1/".into()), "search.answer", Exit::Blocked),
        ] {
            let shown = format!("{answer:?}").chars().take(40).collect::<String>();
            bench.server.set_answer(answer);
            let error = run(&search, search_for(&search, "rust")).await.expect_err("nothing is found");
            let report = error.report();
            assert_eq!((report.code.as_str(), report.exit), (code, exit), "{shown}");
            assert!(!format!("{error:?} {report:?}").contains(KEY), "{shown}");
        }
        let wrong = bench.search(provider, "another-key");
        let error = run(&wrong, search_for(&wrong, "rust")).await.expect_err("refused");
        assert_eq!(error.report().code, "search.refused");
        let none = bench.search(provider, "");
        let error = run(&none, search_for(&none, "rust")).await.expect_err("no key");
        assert!(matches!(error, SearchError::Key(SearchKeyError::Missing)), "{error:?}");
        assert_eq!(none.check_key().await, Err(SearchKeyError::Missing));
    }
}

/// What comes back is bounded, leads to web pages, and does not repeat the key.
#[tokio::test]
async fn hits_are_bounded_and_hold_no_key_and_no_foreign_address() {
    let hit = |title: &str, url: &str, text: &str| (title.to_owned(), url.to_owned(), text.to_owned());
    let answer = SearchAnswer::Hits(vec![
        hit("script", "javascript:alert(1)", ""),
        hit("file", "file:///etc/passwd", ""),
        hit("long", &format!("https://p.example/{}", "a".repeat(MAX_URL_BYTES)), ""),
        hit("echo", &format!("https://p.example/?k={KEY}"), ""),
        hit(&"\u{e9}".repeat(5_000), "https://p.example/", &format!("{KEY}{}", "\u{e9}".repeat(5_000))),
    ]);
    let bench = Bench::new(answer).await;
    let search = bench.search(SearchProvider::Tavily, KEY);
    let found = run(&search, search_for(&search, "rust")).await.expect("found").hits;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].title.chars().count(), MAX_TITLE_CHARS);
    assert_eq!(found[0].text.chars().count(), MAX_TEXT_CHARS);
    assert!(found[0].text.starts_with(REDACTED) && !found[0].text.contains(KEY));
}

/// A permit for another provider or host carries no key anywhere; one for something else searches nothing.
#[tokio::test]
async fn the_key_goes_to_its_own_provider_only() {
    let (bench, other) = (Bench::new(hits(1)).await, Bench::new(hits(1)).await);
    let (search, elsewhere) =
        (bench.search(SearchProvider::Brave, KEY), other.search(SearchProvider::Brave, KEY));
    let error = run(&search, search_for(&elsewhere, "rust")).await.expect_err("another host");
    assert!(matches!(error, SearchError::NotConfigured), "{error:?}");
    let Action::Search(mut named) = search_for(&search, "rust") else { panic!("a search") };
    named.provider = "tavily".into();
    let error = run(&search, Action::Search(named)).await.expect_err("another provider");
    assert!(matches!(error, SearchError::NotConfigured), "{error:?}");
    let say = writ_types::action::Say { to: writ_types::recipient::Recipient::Owner, text: "hi".into() };
    let error = run(&search, Action::Say(say)).await.expect_err("no search");
    assert!(matches!(error, SearchError::NotConfigured), "{error:?}");
    assert!(bench.server.seen_searches().is_empty() && other.server.seen_searches().is_empty());
    assert!(run(&search, search_for(&search, "rust")).await.is_ok(), "twin");
}

#[tokio::test]
async fn a_search_that_is_stopped_ends() {
    let bench = Bench::new(SearchAnswer::Silence).await;
    let search = bench.search(SearchProvider::Brave, KEY);
    let (permit, cancel) = (
        door::permit_action(door::prepare_action(search_for(&search, "rust"))).await,
        CancellationToken::new(),
    );
    cancel.cancel();
    let error = search.run_search(permit, door::NOW, &cancel).await.expect_err("stopped");
    assert!(matches!(error, SearchError::Cancelled), "{error:?}");
}
