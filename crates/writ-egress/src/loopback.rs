//! Asking a port of this machine for a list, to find out what runs there.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use crate::line::{HostRoute, LineLimits, MAX_CONNECTIONS, Way};
use crate::perform::Egress;

/// The longest answer. A list of models has a few kilobytes.
const MAX_ANSWER_BYTES: u64 = 256 * 1024;

/// The longest question: a `GET` with a handful of headers.
const MAX_QUESTION_BYTES: u64 = 4 * 1024;

/// Gets a body, as [`Egress::ask_loopback`] says.
pub(crate) async fn get_body(egress: &Egress, port: u16, path: &str, limit: Duration) -> Option<Vec<u8>> {
    let addresses = [SocketAddr::from((Ipv4Addr::LOCALHOST, port)), (Ipv6Addr::LOCALHOST, port).into()];
    let host = format!("localhost:{port}").parse().ok()?;
    let way = Way { host, place: HostRoute::Judged(addresses.to_vec()) };
    let (sent, received) = (MAX_QUESTION_BYTES, MAX_ANSWER_BYTES);
    let limits = LineLimits { connect: limit, sent, received, connections: MAX_CONNECTIONS };
    let url = format!("http://localhost:{port}{path}");
    let asked = egress.lend_client(way, limits, async |lent| {
        let response = lent.client.get(url).send().await?.error_for_status()?;
        let answered = response.status() == reqwest::StatusCode::OK;
        Ok::<_, reqwest::Error>(answered.then_some(response.bytes().await?))
    });
    let body = tokio::time::timeout(limit, asked).await.ok()?.ok()?.ok()??;
    Some(body.to_vec())
}
