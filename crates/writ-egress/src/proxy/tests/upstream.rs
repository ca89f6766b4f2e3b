//! The way out of a sandbox, where the owner's network has a proxy.

use super::*;
use crate::tests::network::{ScriptedProxy, corporate};

fn allowing(names: &[&str]) -> EgressScope {
    EgressScope { allowed: names.iter().map(pattern).collect(), ..EgressScope::default() }
}

fn routed(scope: EgressScope, routes: ProxyRoutes) -> Running {
    Running::routed(ProxyConfig::default(), scope, None, routes)
}

#[tokio::test]
async fn plain_requests_and_tunnels_of_a_sandbox_go_through_the_networks_proxy() {
    let inner = TestServer::fixed(
        "127.0.0.1:0",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi",
    )
    .await;
    let upstream = ScriptedProxy::serving(inner.address).await;
    let running = routed(allowing(&["docs.example", "*.corp.example"]), upstream.routes("ann:secret@", ""));
    running.script.answer("docs.example", &["93.184.216.34"]);
    let answer = running.get("http://docs.example/page?x=1").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("hi"), "{answer}");
    let head = upstream.heads().pop().expect("a request");
    assert!(head.starts_with("GET http://docs.example/page?x=1 HTTP/1.1\r\n"), "{head}");
    assert!(head.to_lowercase().contains("proxy-authorization: basic yw5uonnly3jlda=="), "{head}");

    let (inner, pem, serving) = corporate("git.corp.example").await;
    let upstream = ScriptedProxy::serving(inner).await;
    let tunnelled = routed(allowing(&["*.corp.example"]), upstream.routes("", ""));
    tunnelled.script.answer("git.corp.example", &["93.184.216.35"]);
    let (head, stream) = tunnelled.tunnel("git.corp.example:443").await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let mut roots = rustls::RootCertStore::empty();
    let certificate =
        rustls::pki_types::pem::PemObject::from_pem_slice(pem.as_bytes()).expect("a certificate");
    let certificate: rustls::pki_types::CertificateDer<'static> = certificate;
    roots.add(certificate).expect("a root");
    let said = tls(stream, roots, Some("git.corp.example")).await.expect("an answer");
    assert!(said.ends_with("inner"), "{said}");
    assert!(upstream.heads()[0].starts_with("CONNECT git.corp.example:443 "), "{:?}", upstream.heads());
    let records = tunnelled.end().await.expect("an orderly end");
    assert_eq!(
        (records[0].verdict, records[0].address),
        (Verdict::Allowed, None),
        "the proxy chose the address"
    );
    serving.abort();
}

#[tokio::test]
async fn behind_a_proxy_names_and_addresses_are_judged_as_without_one() {
    let upstream = ScriptedProxy::saying("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let running =
        routed(allowing(&["listed.example", "inside.example", "outside.example"]), upstream.routes("", ""));
    running.script.answer("inside.example", &["10.0.0.5"]);
    running.script.answer("unlisted.example", &["93.184.216.34"]);
    for (url, status, word) in [
        ("http://unlisted.example/", "403", "egress.ask"),
        ("http://inside.example/", "403", "egress.denied"),
        ("http://169.254.169.254/latest/meta-data", "403", "egress.denied"),
        // Its address is not known here, so nobody can judge it.
        ("http://outside.example/", "502", "egress.unresolved"),
    ] {
        let answer = running.get(url).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")) && answer.contains(word),
            "{url}: {answer}"
        );
    }
    for to in ["inside.example:443", "outside.example:443"] {
        let (head, _stream) = running.tunnel(to).await;
        assert!(!head.starts_with("HTTP/1.1 200"), "{to}: {head}");
    }
    assert_eq!(upstream.heads(), Vec::<String>::new(), "the proxy was asked for none of them");

    let routes = ProxyRoutes { unchecked_names: true, ..upstream.routes("", "") };
    let trusting = routed(allowing(&["inside.example", "outside.example"]), routes);
    trusting.script.answer("inside.example", &["10.0.0.5"]);
    assert!(trusting.get("http://outside.example/").await.starts_with("HTTP/1.1 200"));
    assert!(
        trusting.get("http://inside.example/").await.starts_with("HTTP/1.1 403"),
        "what is known is judged"
    );
    assert!(trusting.get("http://unlisted.example/").await.starts_with("HTTP/1.1 403"));
    assert_eq!(upstream.heads().len(), 1);
}

#[tokio::test]
async fn a_pinned_host_never_goes_through_the_proxy_and_a_refusal_names_it() {
    let inner = TestServer::fixed(
        "127.0.0.1:0",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi",
    )
    .await;
    let upstream =
        ScriptedProxy::saying("HTTP/1.1 407 No\r\nProxy-Authenticate: Basic\r\ncontent-length: 0\r\n\r\n")
            .await;
    let mut scope = pinned("own.example", inner.address);
    scope.allowed.push(pattern("docs.example"));
    let running = routed(scope, upstream.routes("", ""));
    running.script.answer("docs.example", &["93.184.216.34"]);
    let answer = running.get(&format!("http://own.example:{}/", inner.address.port())).await;
    assert!(answer.ends_with("hi"), "{answer}");
    assert_eq!(upstream.heads(), Vec::<String>::new());
    let answer = running.get("http://docs.example/").await;
    assert!(answer.starts_with("HTTP/1.1 502") && answer.contains("egress.proxy"), "{answer}");
    assert!(
        !answer.to_lowercase().contains("proxy-authenticate"),
        "the sandbox is not asked for a login: {answer}"
    );
    let (head, _stream) = running.tunnel("docs.example:443").await;
    assert!(head.starts_with("HTTP/1.1 502") && head.contains("network's proxy"), "{head}");
}
