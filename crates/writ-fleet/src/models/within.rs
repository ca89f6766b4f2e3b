//! The models of an engine, for one program in a sandbox: it reaches them on its own loopback address, without a key.

use std::convert::Infallible;
use std::os::fd::OwnedFd;
use std::pin::Pin;

use hyper::service::service_fn;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use writ_runtime::coding::SandboxModels;
use writ_runtime::routed::ModelRouter;
use writ_sandbox::exec::Listener;

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
        router: ModelRouter,
        listener: Listener,
        stop: CancellationToken,
    ) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            match listener_of(listener) {
                Ok(listener) => serve_listener(router, listener, stop).await,
                // The program finds no model, and says so in its own words.
                Err(error) => {
                    tracing::warn!(%error, "the way of a sandbox to its models could not be served")
                }
            }
        })
    }
}

fn listener_of(listener: Listener) -> std::io::Result<TcpListener> {
    let listener = std::net::TcpListener::from(OwnedFd::from(listener));
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

async fn serve_listener(router: ModelRouter, listener: TcpListener, stop: CancellationToken) {
    let service = service_fn(move |request| {
        let router = router.clone();
        async move { Ok::<_, Infallible>(answer_request(&router, request).await) }
    });
    let acceptor = Acceptor::with_room(MAX_PROGRAM_CONNECTIONS, stop.clone());
    let accept = || async { listener.accept().await.map(|(stream, _)| stream) };
    acceptor.accept_connections(accept, service).await;
    // The program has ended, and no one reads what is still on its way.
}
