//! Fetches from real servers, by names that a script resolves.

use std::sync::Arc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write as _;
use writ_inspect::egress::EgressScope;

use super::*;
use crate::EgressConfig;
use crate::testing::{Keeper, Script, TestServer, pattern, pinned};

struct Fixture {
    egress: Egress,
    keeper: Arc<Keeper>,
    script: Arc<Script>,
    cancel: CancellationToken,
    _runtime: tempfile::TempDir,
}

fn fixture(scope: EgressScope) -> Fixture {
    let runtime = tempfile::tempdir().expect("a folder");
    let script = Arc::new(Script::default());
    let egress = Egress::new(&EgressConfig::default(), runtime.path()).expect("egress");
    let egress = egress.with_resolver(Arc::clone(&script) as Arc<_>);
    Fixture {
        egress,
        keeper: Keeper::new(scope),
        script,
        cancel: CancellationToken::new(),
        _runtime: runtime,
    }
}

fn fetch_of(method: &str, url: impl Into<String>) -> Fetch {
    Fetch {
        method: method.to_owned(),
        url: url.into(),
        body: None,
        content_type: None,
        save_to: None,
        large: false,
    }
}

impl Fixture {
    async fn get(&self, url: impl Into<String>) -> Result<FetchedPage, FetchError> {
        self.send("GET", url, None).await
    }

    async fn send(
        &self,
        method: &str,
        url: impl Into<String>,
        body: Option<&str>,
    ) -> Result<FetchedPage, FetchError> {
        let content_type = body.map(|_| "text/plain".to_owned());
        let fetch = Fetch { body: body.map(str::to_owned), content_type, ..fetch_of(method, url) };
        self.egress.follow(&fetch, 100_000, &*self.keeper, &self.cancel).await
    }
}

/// A local server behind a pinned name.
async fn served(name: &str, answer: impl Into<Vec<u8>>) -> (TestServer, Fixture, String) {
    let server = TestServer::fixed("127.0.0.1:0", answer).await;
    let fixture = fixture(pinned(name, server.address));
    let url = format!("http://{name}:{}", server.address.port());
    (server, fixture, url)
}

fn answer(head: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn redirect(status: u16, to: &str) -> Vec<u8> {
    answer(&format!("{status} Moved\r\nlocation: {to}"), b"")
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("compresses");
    encoder.finish().expect("compresses")
}

/// Opens a second local server to the scope, under a name of its own.
fn open(fixture: &Fixture, name: &str, server: &TestServer) {
    let more = pinned(name, server.address);
    fixture.keeper.change(|scope| {
        scope.allowed.extend(more.allowed);
        scope.pins.extend(more.pins);
    });
}

#[tokio::test]
async fn a_page_is_fetched_and_recorded() {
    let page = answer("200 OK\r\ncontent-type: text/html\r\nset-cookie: a=b\r\nx-long: ok", b"hello");
    let (server, fixture, url) = served("page.test", page).await;
    let fetched = fixture.get(format!("{url}/a?b#c")).await.expect("a page");
    assert_eq!(
        (fetched.status, fetched.body.as_slice(), fetched.truncated),
        (200, b"hello".as_slice(), false)
    );
    assert_eq!((fetched.url, fetched.redirects), (format!("{url}/a?b"), 0));
    let header =
        |name: &str| fetched.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    assert_eq!((header("content-type"), header("set-cookie")), (Some("text/html"), None));
    let records = fixture.keeper.records();
    assert_eq!((records[0].host.as_str(), records[0].verdict), ("page.test", Verdict::Allowed));
    assert_eq!((records[0].rule.as_str(), records[0].address), ("allowed", Some(server.address.ip())));
    assert!(records[0].received > 5, "{records:?}");
}

/// Threats 14 and 15.
///
/// Rows: WIN-216 (in part: of a fetch)
#[tokio::test]
async fn the_permitted_host_itself_may_not_lead_inside() {
    let fixture = fixture(EgressScope::default());
    for (name, addresses, rule) in [
        ("a.test", vec!["127.0.0.1"], "loopback"),
        ("b.test", vec!["8.8.8.8", "10.0.0.1"], "private"),
        ("c.test", vec!["::ffff:169.254.169.254"], "metadata"),
        ("d.test", vec!["fe80::1"], "link_local"),
    ] {
        fixture.script.answer(name, &addresses);
        let error = fixture.get(format!("http://{name}/")).await.expect_err(name);
        assert!(matches!(&error, FetchError::Refused(refusal) if refusal.rule() == rule), "{name}: {error}");
        assert_eq!(error.report().exit, Exit::Denied);
    }
    let literal = fixture.get("http://169.254.169.254/latest").await.expect_err("metadata");
    assert!(matches!(&literal, FetchError::Refused(refusal) if refusal.rule() == "metadata"), "{literal}");
    fixture.keeper.change(|scope| scope.blocked.push(pattern("*.bad.test")));
    let blocked = fixture.get("http://x.bad.test/").await.expect_err("blocked");
    assert!(matches!(&blocked, FetchError::Refused(refusal) if refusal.rule() == "blocked"), "{blocked}");
    let port = fixture.get("http://a.test:22/").await.expect_err("a port that is not the web's");
    assert!(matches!(&port, FetchError::Refused(refusal) if refusal.rule() == "port"), "{port}");
    assert_eq!(fixture.keeper.records().len(), 7, "each try is recorded");
    assert_eq!(fixture.script.lookups(), 4, "a blocked name is not looked up");
}

/// Rows: WIN-217
#[tokio::test]
async fn each_redirect_is_judged() {
    let (_server, fixture, url) = served("start.test", redirect(302, "http://169.254.169.254/latest/")).await;
    let error = fixture.get(&url).await.expect_err("metadata");
    assert!(matches!(&error, FetchError::Refused(refusal) if refusal.rule() == "literal"), "{error}");
    let verdicts: Vec<_> = fixture.keeper.records().iter().map(|record| record.verdict).collect();
    assert_eq!(verdicts, [Verdict::Allowed, Verdict::Denied]);

    // A listed name that leads inside at the second hop, and an unknown one.
    let (_server, fixture, url) = served("start.test", redirect(301, "http://inside.test/")).await;
    let asked = fixture.get(&url).await.expect_err("unknown");
    assert!(
        matches!(&asked, FetchError::Refused(Refusal::Asked { host, .. }) if host == "inside.test"),
        "{asked}"
    );
    assert_eq!(fixture.script.lookups(), 0);
    fixture.keeper.change(|scope| scope.allowed.push(pattern("inside.test")));
    fixture.script.answer("inside.test", &["192.168.1.1"]);
    let error = fixture.get(&url).await.expect_err("inside");
    assert!(matches!(&error, FetchError::Refused(refusal) if refusal.rule() == "private"), "{error}");

    // A good one is followed, relative ones too.
    let second = TestServer::fixed("127.0.0.1:0", answer("200 OK", b"there")).await;
    let to = format!("http://there.test:{}/", second.address.port());
    let (_server, fixture, url) = served("start.test", redirect(303, &to)).await;
    open(&fixture, "there.test", &second);
    let fetched = fixture.get(&url).await.expect("followed");
    assert_eq!((fetched.body.as_slice(), fetched.url, fetched.redirects), (b"there".as_slice(), to, 1));
}

/// Rows: WIN-217
#[tokio::test]
async fn loops_and_odd_redirects_end() {
    let (server, fixture, url) = served("loop.test", redirect(302, "/again")).await;
    let error = fixture.get(&url).await.expect_err("a loop");
    assert!(matches!(error, FetchError::Redirect("there are too many")), "{error}");
    assert_eq!(server.connections(), MAX_REDIRECTS + 1);
    for to in [
        "ftp://a.test/",
        "javascript:alert(1)",
        "//user:pw@a.test/",
        "http://a.test%00.b.test/",
        "http://127.1\\@a/",
    ] {
        let (_server, fixture, url) = served("odd.test", redirect(302, to)).await;
        let error = fixture.get(&url).await.expect_err(to);
        let inside = matches!(&error, FetchError::Refused(refusal) if refusal.rule() == "literal");
        assert!(matches!(error, FetchError::Redirect(_)) || inside, "{to}: {error}");
    }
}

/// Rows: WIN-219
#[tokio::test]
async fn a_body_goes_to_the_permitted_host_only() {
    let second = TestServer::fixed("127.0.0.1:0", answer("200 OK", b"there")).await;
    let to = format!("http://there.test:{}/", second.address.port());
    for (status, followed) in [(307, false), (308, false), (303, true), (302, true)] {
        let (_server, fixture, url) = served("start.test", redirect(status, &to)).await;
        open(&fixture, "there.test", &second);
        let before = second.bytes();
        let sent = fixture.send("POST", &url, Some("private words")).await;
        assert_eq!(sent.is_ok(), followed, "{status}: {sent:?}");
        // What is followed is asked for with GET, and without the body.
        assert_eq!(second.bytes() > before, followed);
    }
    let (server, fixture, url) = served("start.test", answer("200 OK", b"")).await;
    assert!(fixture.send("GET", &url, Some("x")).await.is_err(), "a GET has no body");
    assert!(fixture.send("CONNECT", &url, None).await.is_err());
    assert_eq!((server.connections(), fixture.keeper.records().len()), (0, 0));
}

#[tokio::test]
async fn https_is_not_left_for_http() {
    let second = TestServer::fixed("127.0.0.1:0", answer("200 OK", b"there")).await;
    let to = format!("http://there.test:{}/", second.address.port());
    let (server, roots) = TestServer::tls_fixed("start.test", redirect(302, &to)).await;
    let mut fixture = fixture(pinned("start.test", server.address));
    fixture.egress = fixture.egress.trusting_config(roots);
    open(&fixture, "there.test", &second);
    let error =
        fixture.get(format!("https://start.test:{}/", server.address.port())).await.expect_err("downgrade");
    assert!(matches!(error, FetchError::Redirect("it leaves https for http")), "{error}");
    assert_eq!((server.connections(), second.connections()), (1, 0));
}

#[tokio::test]
async fn bodies_are_bounded_also_when_they_are_bombs() {
    let compressed = gzip(b"hello hello hello");
    let (_server, fixture, url) =
        served("zip.test", answer("200 OK\r\ncontent-encoding: gzip", &compressed)).await;
    assert_eq!(fixture.get(&url).await.expect("a page").body, b"hello hello hello");

    let bomb = gzip(&vec![0; 50_000_000]);
    assert!(bomb.len() < 1_000_000);
    for body in [bomb, vec![b'x'; 300_000]] {
        let encoding = if body[0] == b'x' { "identity" } else { "gzip" };
        let head = format!("200 OK\r\ncontent-encoding: {encoding}");
        let (_server, fixture, url) = served("bomb.test", answer(&head, &body)).await;
        let fetched = fixture.get(&url).await.expect("its beginning");
        assert_eq!((fetched.body.len(), fetched.truncated), (100_000, true));
    }
    // Cut, broken or unasked encodings are errors, not pages.
    let half = &compressed[..compressed.len() / 2];
    for (head, body) in
        [("gzip", half), ("gzip", b"no gzip at all".as_slice()), ("br", half), ("gzip, gzip", half)]
    {
        let head = format!("200 OK\r\ncontent-encoding: {head}");
        let (_server, fixture, url) = served("bad.test", answer(&head, body)).await;
        let error = fixture.get(&url).await.expect_err("no page");
        assert!(matches!(error, FetchError::Answer { .. }), "{error}");
        assert_eq!(fixture.keeper.records()[0].verdict, Verdict::Failed);
    }
}

#[tokio::test]
async fn a_server_that_lies_or_drips_is_an_error() {
    let (_server, fixture, url) =
        served("short.test", "HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nfar less").await;
    let error = fixture.get(&url).await.expect_err("cut");
    assert!(matches!(error, FetchError::Answer { .. }), "{error}");

    let silent = TestServer::echo().await;
    let mut fixture = fixture_of(&silent);
    fixture.egress.fetch_timeout = Duration::from_millis(100);
    // It echoes the request, which is no answer; or says nothing in time.
    let url = format!("http://silent.test:{}/", silent.address.port());
    assert!(fixture.get(url).await.is_err());
}

/// What was asked for and never answered is a record, too: the request may have carried something out.
#[tokio::test]
async fn a_fetch_that_takes_too_long_is_recorded() {
    let drips =
        TestServer::fixed("127.0.0.1:0", "HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nfar less").await;
    let mute = TestServer::mute().await;
    for server in [&drips, &mute] {
        let fixture = fixture_of(server);
        let url = format!("http://silent.test:{}/take?secret", server.address.port());
        // Its time is over once the server has the request, and not while the machine is busy before that.
        let overdue = async {
            while server.bytes() == 0 {
                tokio::task::yield_now().await;
            }
            tokio::time::pause();
            tokio::time::advance(fixture.egress.fetch_timeout).await;
            tokio::time::resume();
        };
        let error = tokio::join!(fixture.get(url), overdue).0.expect_err("no answer");
        let records = fixture.keeper.records();
        let [record] = records.as_slice() else { panic!("{error}: {records:?}") };
        assert_eq!((record.host.as_str(), record.verdict), ("silent.test", Verdict::Failed), "{error}");
    }
}

/// Whoever stops a fetch need not wait for its time to be over, and what it may have carried out is a record.
#[tokio::test]
async fn a_fetch_that_is_stopped_ends_at_once_and_is_recorded() {
    let mute = TestServer::mute().await;
    let fixture = fixture_of(&mute);
    let url = format!("http://silent.test:{}/take?secret", mute.address.port());
    let stop = async {
        while mute.bytes() == 0 {
            tokio::task::yield_now().await;
        }
        fixture.cancel.cancel();
    };
    let both = async { tokio::join!(fixture.get(url), stop).0 };
    let limit = fixture.egress.fetch_timeout / 2;
    let error = tokio::time::timeout(limit, both).await.expect("it ends").expect_err("it was stopped");
    assert!(matches!(error, FetchError::Cancelled), "{error}");
    assert_eq!(error.report().exit, Exit::Interrupted);
    let records = fixture.keeper.records();
    let [record] = records.as_slice() else { panic!("{records:?}") };
    assert_eq!((record.verdict, record.rule.as_str()), (Verdict::Failed, "egress.cancelled"));
}

/// A permit opens the port that it names, and what is more closed than that: https instead of http.
#[test]
fn a_permit_opens_its_own_port_and_no_other_that_is_to_be_asked_about() {
    let opened = |scope: &EgressScope, url: &str| {
        permitted(scope, &Target::from_url(url).expect("a target")).iter().map(ToString::to_string).collect()
    };
    let scope = EgressScope::default();
    let of = |url: &str| -> Vec<String> { opened(&scope, url) };
    assert_eq!(of("https://a.test/"), ["a.test:443"]);
    assert_eq!(of("http://a.test/"), ["a.test:80", "a.test:443"]);
    assert!(of("http://a.test:8080/").is_empty(), "it is not listed");
    let mut scope = scope.clone();
    scope.always_ask.push(pattern("a.test"));
    scope.allowed.push(pattern("a.test:8080"));
    let of = |url: &str| -> Vec<String> { opened(&scope, url) };
    assert_eq!(of("http://a.test/"), ["a.test:80"], "its other port is asked about by itself");
    assert_eq!(of("http://a.test:8080/"), ["a.test:8080"], "the permit is the answer");
}

fn fixture_of(server: &TestServer) -> Fixture {
    fixture(pinned("silent.test", server.address))
}

/// Threat 14: userinfo tricks and shorthand.
#[tokio::test]
async fn urls_that_can_be_read_in_two_ways_are_not_fetched() {
    let fixture = fixture(EgressScope::default());
    for url in [
        "http://127.1/",
        "http://0x7f000001/",
        "http://2130706433/",
        "http://0177.0.0.1/",
        "http://[::1",
        "http://user:pw@a.test/",
        "http://a.test\\@b.test/",
        "http://a.test\0.b.test/",
        "http:a.test",
        "file:///etc/passwd",
        "gopher://a.test/",
        "HTTP://a.test/",
        "",
    ] {
        let error = fixture.get(url).await.expect_err(url);
        assert!(matches!(error, FetchError::BadRequest(_)), "{url:?}: {error}");
    }
    assert_eq!((fixture.script.lookups(), fixture.keeper.records().len()), (0, 0));
}

/// Rows: WIN-042 (requests have a count of their own)
#[tokio::test(start_paused = true)]
async fn readings_and_requests_are_counted_apart_and_by_conversation() {
    let runtime = tempfile::tempdir().expect("a folder");
    let config = EgressConfig { fetches_per_minute: 3, requests_per_minute: 2, ..EgressConfig::default() };
    let egress = Egress::new(&config, runtime.path()).expect("egress");
    let (read, post) = (fetch_of("GET", "http://a.test/"), fetch_of("POST", "http://a.test/"));
    let told = Fetch { body: Some("x".to_owned()), ..fetch_of("GET", "http://a.test/") };
    let passes = |session: &str, fetch: &Fetch| egress.admit(session, fetch).is_ok();
    assert_eq!([(); 4].map(|()| passes("one", &read)), [true, true, true, false]);
    assert_eq!([&post, &told, &post, &told].map(|fetch| passes("one", fetch)), [true, true, false, false]);
    assert_eq!(egress.admit("one", &post).unwrap_err().to_string(), "2 requests a minute are the limit");
    assert!(passes("two", &read) && passes("two", &post), "another conversation has its own");
    tokio::time::advance(Duration::from_secs(60)).await;
    assert!(passes("one", &read) && passes("one", &post));
}
