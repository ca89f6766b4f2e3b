//! Limits, records under pressure, and the end.

use std::sync::atomic::Ordering;

use super::*;

/// Opens a tunnel to a server that echoes.
async fn echoing(config: ProxyConfig) -> (TestServer, Running, String) {
    let server = TestServer::echo().await;
    let to = format!("echo.test:{}", server.address.port());
    let mut scope = pinned("echo.test", server.address);
    scope.opaque = vec![pattern(&to)];
    (server, Running::with(config, scope), to)
}

/// 200 connections of every kind leave 200 correct records.
#[tokio::test]
async fn two_hundred_connections_leave_correct_records() {
    let (server, running, to) = echoing(ProxyConfig::default()).await;
    let running = Arc::new(running);
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..200_usize {
        let (running, to) = (Arc::clone(&running), to.clone());
        clients.spawn(async move {
            match number % 4 {
                0 | 1 => {
                    let (_, mut stream) = running.tunnel(&to).await;
                    stream.write_all(&vec![b'x'; number]).await.expect("sends");
                    stream.shutdown().await.expect("half closes");
                    assert_eq!(stream.read_to_end(&mut Vec::new()).await.expect("reads"), number);
                }
                2 => assert_eq!(told(&running.get(&format!("http://n{number}.test/")).await).0, 403),
                _ => assert_eq!(running.tunnel("echo.test:22").await.0.split(' ').nth(1), Some("403")),
            }
        });
    }
    while let Some(client) = clients.join_next().await {
        client.expect("no client fails");
    }
    let running = Arc::into_inner(running).expect("all clients have ended");
    let keeper = Arc::clone(&running.keeper);
    let records = running.end().await.expect("served");
    assert_eq!(records.len(), 200);
    let count = |verdict| records.iter().filter(|record| record.verdict == verdict).count();
    assert_eq!((count(Verdict::Allowed), count(Verdict::Asked), count(Verdict::Denied)), (100, 50, 50));
    let mut sizes: Vec<u64> = records
        .iter()
        .filter(|record| record.verdict == Verdict::Allowed)
        .map(|record| record.sent)
        .collect();
    sizes.sort_unstable();
    let expected: Vec<u64> = (0..200).filter(|number| number % 4 < 2).collect();
    assert_eq!(sizes, expected);
    assert!(records.iter().all(|record| record.sent == record.received));
    assert_eq!(records.iter().filter(|record| record.rule == "port").count(), 50);
    assert!((1..=200).contains(&keeper.batches.load(Ordering::SeqCst)));
    assert_eq!(server.connections(), 100);
}

#[tokio::test]
async fn bytes_are_bounded_both_ways() {
    for (sent_max, received_max, rule) in
        [(1_000, u64::MAX, "limit.sent"), (u64::MAX, 1_000, "limit.received")]
    {
        let config = ProxyConfig { sent_max, received_max, ..ProxyConfig::default() };
        let (_server, running, to) = echoing(config).await;
        let (_, mut stream) = running.tunnel(&to).await;
        let mut got = Vec::new();
        let _ = stream.write_all(&[b'x'; 100_000]).await;
        let _ = stream.read_to_end(&mut got).await;
        assert!(got.len() <= 1_000, "{} bytes came back", got.len());
        let records = running.keeper.recorded(1).await;
        assert_eq!((records[0].verdict, records[0].rule.as_str()), (Verdict::Cut, rule));
        running.end().await.expect("served");
    }
}

#[tokio::test]
async fn silence_and_dripping_end() {
    let config = ProxyConfig { idle_ms: 100, ..ProxyConfig::default() };
    let (_server, running, to) = echoing(config).await;
    let (_, mut stream) = running.tunnel(&to).await;
    assert_eq!(stream.read_to_end(&mut Vec::new()).await.unwrap_or(0), 0);
    assert_eq!(running.keeper.recorded(1).await[0].rule, "limit.idle");

    // A byte now and then keeps a connection open, and not for ever.
    let config = ProxyConfig { idle_ms: 600_000, total_ms: 300, ..ProxyConfig::default() };
    let (_server, running, to) = echoing(config).await;
    let (_, mut stream) = running.tunnel(&to).await;
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    let dripping = async {
        while stream.write_all(b"x").await.is_ok() && stream.read_u8().await.is_ok() {
            ticks.tick().await;
        }
    };
    tokio::time::timeout(PATIENCE, dripping).await.expect("it is cut");
    let records = running.keeper.recorded(1).await;
    assert_eq!((records[0].verdict, records[0].rule.as_str()), (Verdict::Cut, "limit.time"));
}

/// Slowloris: a head that does not come, or is too long, costs a bounded time and memory.
#[tokio::test]
async fn slow_and_long_heads_are_refused() {
    let config = ProxyConfig { head_ms: 200, ..ProxyConfig::default() };
    let running = Running::with(config, EgressScope::default());
    let answer = running.talk("GET http://a.test/ HTTP/1.1\r\n").await;
    assert_eq!(told(&answer), (408, "proxy.slow_head".to_owned()), "{answer}");
    let mut stream = running.connect().await;
    // Just over the limit, so that nothing is left unread when the proxy closes.
    let long = format!("GET http://a.test/ HTTP/1.1\r\nx: {}", "x".repeat(32 * 1024 - 30));
    stream.write_all(long.as_bytes()).await.expect("sends");
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    assert_eq!(told(&answer), (431, "proxy.long_head".to_owned()), "{answer}");

    // The same within a tunnel: whoever says nothing holds no connection to a host.
    let (server, _) = TestServer::tls("pages.test").await;
    running.keeper.change(|scope| *scope = pinned("pages.test", server.address));
    let (_, mut stream) = running.tunnel(&format!("pages.test:{}", server.address.port())).await;
    assert_eq!(stream.read_to_end(&mut Vec::new()).await.unwrap_or(0), 0);
    let rules: Vec<_> = running.keeper.recorded(3).await.into_iter().map(|record| record.rule).collect();
    assert_eq!(rules, ["proxy.slow_head", "proxy.long_head", "tunnel.slow_hello"]);
}

#[tokio::test]
async fn more_connections_than_allowed_wait() {
    let config = ProxyConfig { connections: 1, ..ProxyConfig::default() };
    let (_server, running, to) = echoing(config).await;
    let (_, first) = running.tunnel(&to).await;
    let second = running.tunnel(&to);
    tokio::pin!(second);
    let early = tokio::time::timeout(Duration::from_millis(200), &mut second).await;
    assert!(early.is_err(), "the second was served beside the first");
    drop(first);
    let (head, _) = tokio::time::timeout(PATIENCE, second).await.expect("after the first");
    assert!(head.contains(" 200 "), "{head}");
}

#[tokio::test]
async fn hosts_and_tools_have_rates() {
    let config = ProxyConfig { host_per_minute: 2, tool_per_minute: 4, ..ProxyConfig::default() };
    let running = Running::with(config, EgressScope::default());
    for expected in [403, 403, 429] {
        let answer = running.get("http://a.test/").await;
        assert_eq!(told(&answer).0, expected, "{answer}");
        assert_eq!(answer.contains("retry-after: "), expected == 429, "{answer}");
    }
    // Three of this minute's four are used up.
    assert_eq!(told(&running.get("http://b.test/").await).0, 403);
    assert_eq!(told(&running.get("http://c.test/").await), (429, "egress.rate".to_owned()));
    assert_eq!(running.keeper.asks().len(), 2, "what is over a rate asks nobody");
}

/// Nothing passes unrecorded: while records wait, connections do.
#[tokio::test]
async fn a_full_sink_holds_new_connections_back() {
    let config = ProxyConfig { records: 2, ..ProxyConfig::default() };
    let running = Running::with(config, EgressScope::default());
    running.keeper.open.forget_permits(usize::MAX);
    // Two records wait, and one more is being written.
    for _ in 0..3 {
        running.get("http://a.test/").await;
    }
    let answered = async {
        for _ in 3..20 {
            running.get("http://a.test/").await;
        }
    };
    tokio::time::timeout(Duration::from_millis(500), answered).await.expect_err("they wait at last");
    assert_eq!(running.keeper.records(), []);
    running.keeper.open.add_permits(1);
    assert_eq!(told(&running.get("http://a.test/").await).0, 403, "they go on afterwards");
    let records = running.end().await.expect("served");
    assert!((4..20).contains(&records.len()), "{}", records.len());
}

/// When records cannot be kept, everything ends.
#[tokio::test]
async fn a_broken_sink_ends_the_proxy() {
    let (_server, running, to) = echoing(ProxyConfig::default()).await;
    let (_, mut open) = running.tunnel(&to).await;
    running.keeper.broken.store(true, Ordering::SeqCst);
    running.get("http://a.test/").await;
    let address = running.address;
    let served = tokio::time::timeout(PATIENCE, running.serving).await.expect("ends").expect("no panic");
    assert!(matches!(served, Err(ProxyError::NotRecorded(_))), "{served:?}");
    assert_eq!(open.read_to_end(&mut Vec::new()).await.unwrap_or(0), 0, "open tunnels are cut");
    TcpStream::connect(address).await.expect_err("nobody listens any more");
}

#[tokio::test]
async fn stopping_cuts_records_and_closes() {
    let (_server, running, to) = echoing(ProxyConfig::default()).await;
    let (_, mut open) = running.tunnel(&to).await;
    open.write_all(b"abc").await.expect("sends");
    assert_eq!(open.read_u8().await.expect("echoed"), b'a');
    let address = running.address;
    let records = running.end().await.expect("served");
    assert_eq!(records.len(), 1);
    assert_eq!((records[0].verdict, records[0].rule.as_str()), (Verdict::Cut, "limit.stopped"));
    assert_eq!(records[0].sent, 3);
    TcpStream::connect(address).await.expect_err("nobody listens any more");
}
