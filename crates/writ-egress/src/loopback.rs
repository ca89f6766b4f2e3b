//! Asking a port of this machine for a list, to find out what runs there.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use crate::line::{Limits, MAX_CONNECTIONS, Place, Way};
use crate::perform::Egress;

/// The longest answer. A list of models has a few kilobytes.
const MAX_ANSWER_BYTES: u64 = 256 * 1024;

/// The longest question: a `GET` with a handful of headers.
const MAX_QUESTION_BYTES: u64 = 4 * 1024;

impl Egress {
    /// The body of `GET http://127.0.0.1:PORT/PATH` (or `[::1]`) where that is answered with 200 within `limit`, and
    /// nothing otherwise. Nothing is sent but that: no body, no key, no redirect followed; and it goes to this machine
    /// alone, so that it needs no permit.
    pub async fn ask_loopback(&self, port: u16, path: &str, limit: Duration) -> Option<Vec<u8>> {
        let addresses = [SocketAddr::from((Ipv4Addr::LOCALHOST, port)), (Ipv6Addr::LOCALHOST, port).into()];
        let host = format!("localhost:{port}").parse().ok()?;
        let way = Way { host, place: Place::Judged(addresses.to_vec()) };
        let (sent, received) = (MAX_QUESTION_BYTES, MAX_ANSWER_BYTES);
        let limits = Limits { connect: limit, sent, received, connections: MAX_CONNECTIONS };
        let url = format!("http://localhost:{port}{path}");
        let asked = self.lend(way, limits, async |lent| {
            let response = lent.client.get(url).send().await?.error_for_status()?;
            let answered = response.status() == reqwest::StatusCode::OK;
            Ok::<_, reqwest::Error>(answered.then_some(response.bytes().await?))
        });
        let body = tokio::time::timeout(limit, asked).await.ok()?.ok()?.ok()??;
        Some(body.to_vec())
    }
}
