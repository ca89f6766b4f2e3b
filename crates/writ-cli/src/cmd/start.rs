//! `writ start`: the engine, until it is stopped or idle.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use writ_gateway::http::{Stops, TakenPort};
use writ_inspect::redact::Redactor;
use writ_runtime::clock::{Clock as _, Ids, SystemClock};
use writ_runtime::config::DRAIN_DEADLINE;
use writ_telemetry::collect::new_collector;
use writ_types::error::Exit;

use crate::advice;
use crate::args::{Global, StartArgs};
use crate::cmd::status;
use crate::context::Context;
use crate::failure::Failure;
use crate::host::EngineStops;
use crate::interrupt::threaded_runtime;
use crate::ledger::Locks;
use crate::log;
use crate::page;
use crate::parent::NamedParent;
use crate::wiring::{self, Wired};

/// Runs the engine in the foreground.
///
/// # Errors
///
/// If another engine runs, or any part of it cannot be made.
pub(crate) fn run_start(context: &Context, args: &StartArgs, global: &Global) -> Result<(), Failure> {
    let config = context.load_ready_config()?;
    let serves = config.server.enabled.unwrap_or(args.idle_exit.is_none());
    // Before anything else is looked at: also beside an engine that runs, this is what is wrong.
    if serves {
        config.server.check_exposure()?;
    }
    // A port of the command line is meant; one of the configuration must not keep the agent from its work.
    let taken_port = if args.port.is_some() { TakenPort::Refuse } else { TakenPort::Replace };
    let serves = serves.then_some(taken_port);
    let run = Ids.run(SystemClock.now());
    let redactor = Redactor::default();
    let (collector, telling) = match &config.telemetry.otlp_endpoint {
        Some(_) => {
            let (collector, collected) = new_collector(redactor.clone());
            (Some(collector), Some((collected, run)))
        }
        None => (None, None),
    };
    let logs = context.home.logs();
    let target = log::LogTarget { folder: &logs, config: &config.log, run: run.to_string() };
    let told = log::to_file(log::stderr_level(global), target, collector, (&redactor, &context.host));
    let told = told.map_err(|error| {
        Failure::new(
            Exit::Config,
            "log.unwritable",
            format!("the log cannot be written: {error}"),
            "check the owner and mode of the home's folder 'logs'",
        )
    })?;
    if let Some(advice) = advice::main_model(&config) {
        tracing::warn!("{advice}");
    }
    let sandbox = wiring::build_sandbox(&config)?;
    let runtime = threaded_runtime()?;
    let served = runtime.block_on(async {
        // Before anything runs that a signal could end half-way.
        let stops = (context.host.stops.listen_engine()?, NamedParent::open_watch(args.parent)?);
        let wired = wiring::build_engine(context, &config, sandbox, serves, telling, redactor).await?;
        if let Some(http) = &wired.http {
            let link = page::create_link(context, http.address().ip(), http.address().port())?;
            context.out.print_remark(format!("page: {link}"));
            context.out.print_remark("good once and for ten minutes; `writ status --link` prints another");
        }
        if let Some(address) = wired.cases.as_ref().and_then(|cases| cases.server().address()) {
            context.out.print_remark(format!("front end: http://{address}"));
        }
        if let Some(posture) = status::in_words(&config.describe_posture()) {
            context.out.print_remark(format!("posture: {posture}"));
        }
        context.out.print_remark("engine ready");
        // Clients of the server learn at once the time limit of the end; without it, turns get their own
        // time.
        let drain = match &wired.http {
            Some(_) => Duration::from_secs(config.server.graceful_shutdown_secs),
            None => DRAIN_DEADLINE,
        };
        Ok::<_, Failure>(serve_engine(wired, stops, (args.idle_exit.map(Duration::from_secs), drain)).await)
    });
    // Tasks that are dropped here may hold the store: no other process may take the home before it is closed.
    runtime.shutdown_timeout(Duration::from_secs(1));
    told.end_writer();
    let (served, locks) = served?;
    drop(locks);
    served
}

async fn serve_engine(
    wired: Wired,
    (mut stops, parent): (EngineStops, NamedParent),
    (idle_exit, drain): (Option<Duration>, Duration),
) -> (Result<(), Failure>, Locks) {
    let Wired { engine, control, http, models, cases, locks, traces } = wired;
    let stop = CancellationToken::new();
    let closing = CancellationToken::new();
    let serving = tokio::spawn(control.serve_clients(engine.clone(), stop.clone()));
    // Both ends of the server can stop the engine.
    let ends = Stops { closing: closing.clone(), stop: stop.clone() };
    let page = http.map(|http| tokio::spawn(http.serve(engine.clone(), ends)));
    let models = models.map(|socket| tokio::spawn(socket.serve_agents(engine.clone(), stop.clone())));
    let cases = cases.map(|cases| tokio::spawn(cases.serve_cases(engine.clone(), stop.clone())));
    let idle = async {
        match idle_exit {
            Some(quiet) => engine.idle(quiet).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = idle => tracing::info!("idle: ending"),
        () = stops.stopped() => tracing::info!("stopped by a signal"),
        () = parent.until_ended() => tracing::info!("the process that has started this one has ended"),
    }
    closing.cancel();
    // Turns end first, so that clients that wait for an answer still get it.
    if !engine.drain(drain).await {
        tracing::warn!("some turns did not end in time; they are taken up again at the next start");
    }
    stop.cancel();
    let mut served =
        serving.await.map_err(|error| Failure::internal_error("serving the control socket", error));
    if let Some(page) = page {
        let page = page.await.map_err(|error| Failure::internal_error("serving the page", error));
        served = served.and(page);
    }
    if let Some(models) = models {
        let models = models.await.map_err(|error| Failure::internal_error("serving the model router", error));
        served = served.and(models);
    }
    if let Some(cases) = cases {
        let cases = cases.await.map_err(|error| Failure::internal_error("serving the case router", error));
        served = served.and(cases);
    }
    drop(engine);
    if let Some(traces) = traces {
        traces.end_export().await;
    }
    (served, locks)
}

/// Serves an engine until it is stopped, for the demo.
pub(super) async fn serve_until(wired: Wired, stop: CancellationToken) {
    let Wired { engine, control, http: _, models: _, cases: _, locks, traces: _ } = wired;
    let serving = tokio::spawn(control.serve_clients(engine.clone(), stop.clone()));
    stop.cancelled().await;
    // Running turns get their time before the engine is dropped.
    engine.drain(DRAIN_DEADLINE).await;
    let _ended = serving.await;
    // The engine goes before the locks, so that no other one starts beside it.
    drop(engine);
    drop(locks);
}
