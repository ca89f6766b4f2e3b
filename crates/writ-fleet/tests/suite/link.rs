//! What the router passes on to the security proxy, which may be away.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;
use writ_fleet::cases::ports::CaseTokenSource as _;
use writ_fleet::cases::proxy::ProxyLink;
use writ_types::id::KeyId;

use super::support::{Fleet, refund_case};

/// Answers one request at the proxy's place, and returns the ids that it revokes.
async fn answer_next(listener: &UnixListener, status: u16) -> BTreeSet<String> {
    let (mut stream, _) = listener.accept().await.expect("accepts");
    let mut read = Vec::new();
    let body = loop {
        stream.read_buf(&mut read).await.expect("reads");
        let text = String::from_utf8(read.clone()).expect("text");
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head
            .lines()
            .find_map(|line| line.to_lowercase().strip_prefix("content-length: ").map(str::to_owned));
        if body.len() >= length.expect("a length").parse().expect("a number") {
            assert!(head.starts_with("POST /v1/revocations "), "{head}");
            break body.to_owned();
        }
    };
    let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}");
    stream.write_all(answer.as_bytes()).await.expect("answers");
    let asked: Value = serde_json::from_str(&body).expect("JSON");
    assert!(asked["expires"].is_string(), "the proxy forgets them some day: {asked}");
    asked["ids"].as_array().expect("ids").iter().map(|id| id.as_str().expect("text").to_owned()).collect()
}

/// A proxy with keys of its own configuration has no other revocations than these.
#[tokio::test]
async fn revocations_that_the_proxy_did_not_take_are_passed_on_again() {
    let fleet = Fleet::new().await;
    let router = fleet.start(Vec::new(), &[]).await;
    let folder = fleet.folder.path().join("proxy");
    std::fs::create_dir(&folder).expect("made");
    std::fs::write(folder.join("router.token"), "secret").expect("written");
    let [before, later] = [1, 2].map(|n| KeyId::from_parts(fleet.keys.now(), n));
    let ends = fleet.keys.now().plus_duration(Duration::from_secs(60));
    let revoke = async |key| {
        let ops = fleet.keys.revocation_of(fleet.keys.fresh_case(), (key, ends), "by the owner");
        fleet.keys.commit(ops.into()).await.expect("commits");
    };
    // By a router that ended before it could pass it on.
    revoke(before).await;
    let (link, stop) = (Arc::new(ProxyLink::at(&folder)), CancellationToken::new());
    let passing = tokio::spawn({
        let (link, router, stop) = (Arc::clone(&link), router.clone(), stop.clone());
        async move { link.pass_on_revocations(&router, stop).await }
    });
    let listener = UnixListener::bind(folder.join("router.sock")).expect("binds");
    assert_eq!(answer_next(&listener, 200).await, [before.to_string()].into());
    revoke(later).await;
    link.revoke_keys(&[later]);
    assert_eq!(answer_next(&listener, 503).await, [later.to_string()].into());
    let both = BTreeSet::from([before, later].map(|key| key.to_string()));
    assert_eq!(answer_next(&listener, 503).await, both);
    assert_eq!(answer_next(&listener, 200).await, both);
    stop.cancel();
    drop(listener);
    passing.await.expect("ends");
}

/// A case that the store refuses is closed at the proxy again; twin: not one that is open.
#[tokio::test]
async fn a_case_that_cannot_be_written_does_not_stay_open_at_the_proxy() {
    let fleet = Fleet::new().await;
    let router = fleet.start(Vec::new(), &[]).await;
    let closed = || fleet.tokens.closed.lock().expect("no panic").len();
    router.open_case(refund_case("hello")).await.expect("opens");
    router.open_case(refund_case("hello")).await.expect_err("it is open");
    assert_eq!(closed(), 0);
    fleet.tokens.searches_nothing.store(true, Ordering::SeqCst);
    let mut other = refund_case("hello");
    other.names.case = "order 18".into();
    router.open_case(other).await.expect_err("not searched");
    assert_eq!(closed(), 1);
    fleet.tokens.searches_nothing.store(false, Ordering::SeqCst);
    fleet.tokens.too_long.store(true, Ordering::SeqCst);
    router.open_case(refund_case("hello")).await.expect_err("not written");
    assert_eq!(closed(), 2);
    fleet.tokens.away.store(true, Ordering::SeqCst);
    router.open_case(refund_case("hello")).await.expect_err("not written");
    router.close_ended().await.expect_err("still away");
    fleet.tokens.away.store(false, Ordering::SeqCst);
    router.close_ended().await.expect("closes");
    router.close_ended().await.expect("nothing is left");
    assert_eq!(closed(), 3);
}
