//! The case router at work: its server, and what it does from time to time.

use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex, mpsc};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use writ_runtime::engine::Engine;
use writ_runtime::routed::{CallCount, CallReport};

use super::config::CasesConfig;
use super::deployed::DeployedFolder;
use super::desk::CaseDesk;
use super::error::CaseError;
use super::ports::{AgentHost, CaseTokenSource};
use super::proxy::ProxyLink;
use super::router::CaseRouter;
use super::server::{CasePlaces, CaseServer};
use crate::accept::SocketError;
use crate::anomalies::{FleetEvent, Measure};

/// The most reports of calls that wait; answers of models wait for more.
const MAX_CALL_REPORTS: usize = 1_024;
/// The pause between two looks at the open cases.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The pause between two looks at the deployed agents.
const READ_EVERY: Duration = Duration::from_secs(2);
/// The pause between two attempts to close at the proxy what has ended while it was away.
const CLOSE_EVERY: Duration = Duration::from_secs(10);
/// The pause between two deletions of what has ended long ago.
const PRUNE_EVERY: Duration = Duration::from_secs(60 * 60);

/// The parts of the case router.
#[derive(Debug)]
pub struct CaseParts {
    /// The agents, rules and deadlines.
    pub config: CasesConfig,
    /// The folder of the deployed agents, read again when they change.
    pub agents: PathBuf,
    /// The folder of the security proxy.
    pub proxy: PathBuf,
    /// The launcher of agents.
    pub host: Arc<dyn AgentHost>,
    /// The places for the front end.
    pub places: CasePlaces,
}

/// The reason why the case router does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// Its cases cannot be taken up.
    #[error(transparent)]
    Cases(#[from] CaseError),
    /// A socket cannot be opened.
    #[error(transparent)]
    Socket(#[from] SocketError),
}

impl writ_types::error::ToReport for ServiceError {
    fn report(&self) -> writ_types::error::Report {
        match self {
            Self::Cases(error) => error.report(),
            Self::Socket(error) => error.report(),
        }
    }
}

/// The case router, ready to serve.
#[derive(Debug)]
pub struct CaseService {
    router: CaseRouter,
    link: Arc<ProxyLink>,
    server: CaseServer,
    folder: DeployedFolder,
    /// What agents do at the model router.
    calls: (mpsc::Sender<CallReport>, mpsc::Receiver<CallReport>),
}

impl CaseService {
    /// Takes up the open cases, opens the sockets, and lets people reach the router through the engine.
    ///
    /// # Errors
    ///
    /// If the store cannot be used, the configuration is beyond its bounds, or a socket cannot be opened.
    pub async fn start(engine: &Engine, parts: CaseParts) -> Result<Self, ServiceError> {
        let CaseParts { mut config, agents, proxy, host, places } = parts;
        // First, so that a place that cannot be had starts no agent.
        let server = CaseServer::bind(places).await?;
        let link = Arc::new(ProxyLink::at(&proxy));
        let tokens: Arc<dyn CaseTokenSource> = Arc::<ProxyLink>::clone(&link);
        let keys = engine.case_keys();
        let mut folder = DeployedFolder::at(agents, keys.verifier().clone());
        // Before the cases are taken up: without agents they would all wait for people.
        config.deployed.extend(folder.read_changed().await.unwrap_or_default());
        let router = CaseRouter::start(keys, config, tokens, host).await?;
        engine.open_fleet(Arc::new(CaseDesk(router.clone())));
        Ok(Self { router, link, server, folder, calls: mpsc::channel(MAX_CALL_REPORTS) })
    }

    /// Returns the end for the model router's reports.
    pub fn call_observer(&self) -> mpsc::Sender<CallReport> {
        self.calls.0.clone()
    }

    /// Returns the server for the front end.
    pub const fn server(&self) -> &CaseServer {
        &self.server
    }

    /// Serves until `stop` is cancelled; then waits for the requests that are under way, and ends the agents' processes.
    pub async fn serve_cases(self, engine: Engine, stop: CancellationToken) {
        // Guests may write to an open case at any time: the engine does not end for want of clients. Without one, an engine
        // that a command has started ends as any other.
        let guest = StdMutex::new(Some(engine.guest()));
        let Self { router, link, server, folder, calls: (sender, calls) } = self;
        // The model router has its own; with the last of them the reports end.
        drop(sender);
        let looking = repeat_until(&stop, LOOK_EVERY, || async {
            router.look_after_cases().await;
            let is_open = !router.open_ids().is_empty();
            let mut guest = guest.lock().unwrap_or_else(PoisonError::into_inner);
            match (is_open, guest.is_some()) {
                (true, false) => *guest = Some(engine.guest()),
                (false, true) => *guest = None,
                (true, true) | (false, false) => {}
            }
        });
        let closing = repeat_until(&stop, CLOSE_EVERY, || async {
            if let Err(error) = router.close_ended().await {
                tracing::debug!(%error, "the security proxy still has cases that have ended");
            }
        });
        let pruning = repeat_until(&stop, PRUNE_EVERY, || async {
            if let Err(error) = router.prune_ended().await {
                tracing::error!(%error, "cases that ended long ago could not be deleted");
            }
        });
        let folder = Mutex::new(folder);
        let reading =
            repeat_until(&stop, READ_EVERY, || async { folder.lock().await.refresh_agents(&router).await });
        tokio::join!(
            server.serve_front_end(router.clone(), stop.clone()),
            link.pass_on_revocations(&router, stop.clone()),
            link.watch_events(&router, stop.clone()),
            watch_calls(&router, calls, &stop),
            looking,
            reading,
            closing,
            pruning,
        );
        // Nothing gives a case to the next agent any more.
        router.end_agents().await;
        drop(guest);
    }
}

/// Counts what agents do at the model router, until `stop`.
async fn watch_calls(router: &CaseRouter, mut calls: mpsc::Receiver<CallReport>, stop: &CancellationToken) {
    loop {
        let report = tokio::select! {
            report = calls.recv() => report,
            () = stop.cancelled() => return,
        };
        let Some(CallReport { at, agent, case, count }) = report else { return };
        // Keys that commands have minted are for no case of this router.
        let Some(case) = case else { continue };
        let (measure, amount) = match count {
            CallCount::Tokens(tokens) => (Measure::Tokens, tokens.get()),
            CallCount::Refused => (Measure::Refused, 1),
        };
        let event = FleetEvent { at, agent, case, customer: String::new(), measure, amount };
        if let Err(error) = router.observe_event(&event).await {
            tracing::error!(%error, "a rule about anomalies could not be applied");
        }
    }
}

/// Does something again and again, each time to its end, until `stop`.
async fn repeat_until<F: Future<Output = ()>>(
    stop: &CancellationToken,
    pause: Duration,
    work: impl Fn() -> F,
) {
    let mut ticks = tokio::time::interval(pause);
    // A long round is followed by a pause, not by those that it has missed.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = stop.cancelled() => return,
        }
        work().await;
    }
}
