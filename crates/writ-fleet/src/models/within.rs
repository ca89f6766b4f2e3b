//! The model of a turn, for the one program that works in it: it reaches that on its own loopback address, without a key.

use std::convert::Infallible;
use std::pin::Pin;

use hyper::service::service_fn;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use writ_egress::inside::SandboxListener;
use writ_runtime::coding_agent::{SandboxModels, TurnCall};
use writ_sandbox::exec::Listener;

use super::clients::ServedModels;
use super::server::answer_request;
use crate::accept::Acceptor;

/// The most connections of one program at once; one more waits until another ends.
pub const MAX_PROGRAM_CONNECTIONS: usize = 16;

/// Serves the formats of the model router on the listener of a sandbox.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListenerModels;

impl SandboxModels for ListenerModels {
    fn serve_models(
        &self,
        calls: mpsc::Sender<TurnCall>,
        listener: Listener,
        stop: CancellationToken,
    ) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            match SandboxListener::from_socket(listener.into()) {
                Ok(listener) => serve_listener(calls, listener, stop).await,
                // The program finds no model, and says so in its own words.
                Err(error) => {
                    tracing::warn!(%error, "the way of a sandbox to its models could not be served");
                }
            }
        })
    }
}

async fn serve_listener(calls: mpsc::Sender<TurnCall>, listener: SandboxListener, stop: CancellationToken) {
    let models = ServedModels::OfTurn(calls);
    let service = service_fn(move |request| {
        let models = models.clone();
        async move { Ok::<_, Infallible>(answer_request(&models, request).await) }
    });
    // The program has ended at the stop, and waits for no answer that is still on its way.
    let acceptor = Acceptor::with_room(MAX_PROGRAM_CONNECTIONS, stop);
    acceptor.accept_connections(|| listener.accept_stream(), service).await;
}
