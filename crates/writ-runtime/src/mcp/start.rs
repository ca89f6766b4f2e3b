//! Starting a server: through the door, into its sandbox, up to the list of its tools.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use writ_inspect::prepared::Prepared;
use writ_mcp::client::Client;
use writ_mcp::config::ServerSpec;
use writ_mcp::error::McpError;
use writ_mcp::listing::Listing;
use writ_policy::permit::Permit;
use writ_sandbox::config::{ShownFolder, ShownKind, WorkspaceConfig};
use writ_sandbox::exec::{Ending, ExecResult, Listener};
use writ_sandbox::serve::{RunningServer, ServeOptions, ServerHandle};
use writ_tools::outcome::{ExecEnd, PerformedOutcome};
use writ_tools::render::render_result;
use writ_types::action::{Action, Exec, ExecProfile};
use writ_types::digest::Digest;
use writ_types::error::{Exit, Report, ToReport as _};
use writ_types::frame::ServerFrame;
use writ_types::taint::{Label, Taint};

use crate::door::{Passage, RequestContext};
use crate::error::EngineError;
use crate::gatekeeper::WorkGatekeeper;
use crate::mcp::{self, remote};
use crate::outcome::outcome_entry;
use crate::place::CallPlace;
use crate::servers::{LiveServer, SERVER_IDLE, STARTER, Server, hold};
use crate::services::Services;
use crate::{asks, passage};

/// The longest excerpt from the output of a server that could not be started, in characters.
const MAX_LAST_WORDS: usize = 600;
/// Time for a failed server to exit on its own, so that it can print the cause.
const LAST_WORDS_TIME: Duration = Duration::from_secs(1);
/// Interval between notices to watching clients that a server is still starting.
const TELL_EVERY: Duration = Duration::from_secs(5);
/// Replacement for a secret in a server's output.
const REDACTED: &str = "[secret]";

/// A server that was started, and its end.
type Started = (Arc<LiveServer>, ServerHandle);

/// Builds the start command of a server from its owner's configuration.
fn command(spec: &ServerSpec) -> Exec {
    Exec {
        argv: [&spec.command].into_iter().chain(&spec.args).cloned().collect(),
        cwd: writ_inspect::scope::WORK.to_owned(),
        // References stay references: values are put in where it is started, and written nowhere.
        env: spec.env.clone(),
        stdin: None,
        timeout_ms: u64::try_from(SERVER_IDLE.as_millis()).unwrap_or(u64::MAX),
        profile: ExecProfile::Server,
        hosts: spec.hosts.clone(),
    }
}

/// Starts a server for a session, if the door permits it.
///
/// # Errors
///
/// If the ledger cannot be written, or the sandbox cannot be used at all. The inner error says why the server did not start.
pub(super) async fn start_server(
    services: &Arc<Services>,
    place: &CallPlace,
    server: &Server,
    cancel: &CancellationToken,
) -> Result<Result<Started, Report>, EngineError> {
    let prepared = prepare_start(services, place, server)?;
    let standing = RequestContext {
        task: true,
        mode: place.session.mode(),
        ..RequestContext::of(&place.authority, place.spent)
    };
    let hint = "approve the request, or see `writ policy` for the rule that decided";
    let refused =
        |text: String| Ok(Err(Report::new(Exit::Denied, "mcp.start_refused", text).with_hint(hint)));
    match passage::pass(services, prepared, standing).await? {
        Passage::Denied(denial) => {
            refused(format!("the server may not be started. {}", denial.outside_text()))
        }
        Passage::Simulated(_) => refused("the server is not started: this session only simulates".into()),
        Passage::Ask(ask) => match asks::open_ask(services, &place.session, *ask, "").await? {
            Ok(ask) => refused(format!("a person must approve first that the server is started (ask {ask})")),
            Err(why) => refused(format!("the server may not be started: {why}")),
        },
        Passage::Permit(permit) => {
            let (attempt, prepared) = (permit.attempt(), permit.prepared().clone());
            let started = launch(services, place, server, *permit, cancel).await?;
            let mut outcome = outcome_of(server, started.as_ref().map(|_| ()));
            let entry =
                outcome_entry(attempt, &render_result(&prepared, &mut outcome, &services.journal.redactor));
            services.journal.append(place.session.id, place.at(), entry).await?;
            Ok(started)
        }
    }
}

/// Starts a server after a person has approved it; later calls find it running.
///
/// # Errors
///
/// As [`start_server`].
pub(crate) async fn start_approved(
    services: &Arc<Services>,
    place: &CallPlace,
    permit: Permit,
    exec: &Exec,
    cancel: &CancellationToken,
) -> Result<PerformedOutcome, EngineError> {
    let name = permit.prepared().tool.strip_prefix(STARTER).map(str::to_owned).unwrap_or_default();
    let server = services.servers.known(&name).filter(|server| command(&server.spec) == *exec);
    let Some(server) = server else {
        let text = "the file of this server says something else now".to_owned();
        let report =
            Report::new(Exit::Denied, "mcp.changed", text).with_hint("look at the file, then call it again");
        return Ok(PerformedOutcome::Failed { report });
    };
    let key = (place.session.id, server.name.clone());
    let Some(slot) = services.servers.slot(&key) else {
        let text = "too many servers work at once".to_owned();
        let report = Report::new(Exit::Budget, "mcp.too_many", text).with_hint("try again in a moment");
        return Ok(PerformedOutcome::Failed { report });
    };
    let mut held = slot.lock().await;
    if let Some(other) = held.take() {
        other.stop.cancel();
    }
    let started = launch(services, place, &server, permit, cancel).await?;
    let outcome = outcome_of(&server, started.as_ref().map(|_| ()));
    match started {
        Ok((running, ended)) => {
            *held = Some(Arc::clone(&running));
            mcp::keep_server(services, key, Arc::clone(&slot), running, ended);
        }
        Err(_) => services.servers.vacate(&key, &slot),
    }
    Ok(outcome)
}

/// Starts a server, lists its tools as it describes them, and ends it.
///
/// # Errors
///
/// As [`start_server`].
pub(crate) async fn try_server(
    services: &Arc<Services>,
    place: &CallPlace,
    server: &Server,
) -> Result<Result<Listing, Report>, EngineError> {
    if server.spec.url.is_some() {
        return remote::look_at(services, place, server).await;
    }
    let (running, ended) =
        match start_server(services, place, server, &services.life.stop_now.child_token()).await? {
            Ok(started) => started,
            Err(report) => return Ok(Err(report)),
        };
    let tools = std::mem::take(&mut *hold(&running.live));
    // How it ends does not matter any more.
    let _ended = ended.kill().await;
    Ok(Ok(Listing { tools, left_out: running.left_out.clone() }))
}

/// Builds the prepared action for starting a server.
fn prepare_start(services: &Services, place: &CallPlace, server: &Server) -> Result<Prepared, EngineError> {
    let file = Digest::of_canonical(&server.spec)?;
    Ok(Prepared {
        agent: services.config.agent.clone(),
        session: Some(place.session.id),
        turn: place.turn,
        turn_number: place.number,
        call: None,
        tool: format!("{STARTER}{}", server.name),
        sinks: Vec::new(),
        // All of it is the owner's word.
        label: Label::new(Taint::Owner),
        bindings: [("file".to_owned(), file)].into(),
        idempotent: true,
        intent: format!("start the server {}", server.name),
        action: Action::Exec(command(&server.spec)),
    })
}

/// Starts what a permit allows, greets it, and lists its tools.
async fn launch(
    services: &Arc<Services>,
    place: &CallPlace,
    server: &Server,
    permit: Permit,
    cancel: &CancellationToken,
) -> Result<Result<Started, Report>, EngineError> {
    let secrets = match secrets_of(services, &server.spec) {
        Ok(secrets) => secrets,
        Err(report) => return Ok(Err(report)),
    };
    let words = secrets.values().cloned().collect::<Vec<_>>();
    let data_dir = services.config.servers.join(place.session.id.to_string()).join(server.name.as_str());
    let path = services.config.plugins.join(server.name.as_str());
    let shown = server.spec.plugin.then_some(ShownFolder { path, kind: ShownKind::Plugin });
    let folder = services.outside.sandbox.open(WorkspaceConfig { data_dir, project: None, shown }).await?;
    // The start ends when its session closes, even before the server is registered, and when the approval it
    // was started on is revoked.
    let stop = place.session.state().over.child_token();
    let approval = permit.approval().cloned();
    let begun = match approval {
        Some(ask) => Some(services.life.approved.begin_on(&ask, &stop).await?),
        None => None,
    };
    let network = if server.spec.hosts.is_empty() { None } else { Some(way_out(services, place, server)) };
    let certificate =
        Some(place.services.outside.egress.extra_roots().to_pem()).filter(|roots| !roots.is_empty());
    let served = folder
        .serve(permit, services.journal.clock.now(), ServeOptions { network, secrets, certificate })
        .await;
    let RunningServer { input, output, ended } = match served {
        Ok(served) => served,
        Err(error) => return Ok(Err(error.report())),
    };
    let greeting = async {
        let client = Client::connect(output, input, server.spec.start_time()).await?;
        let listing = client.list_tools().await?;
        Ok::<_, McpError>((client, listing))
    };
    let (client, listing) = match told_of_start(place, server, greeting, cancel).await {
        Ok(greeted) => greeted,
        Err(error) => return Ok(Err(last_words(error.report(), ended, &words).await)),
    };
    let running = LiveServer {
        client,
        spec: server.spec.clone(),
        live: Mutex::new(listing.tools),
        left_out: listing.left_out,
        busy: AtomicUsize::new(0),
        last: Mutex::new(Instant::now()),
        moved: Notify::new(),
        stop: begun.as_ref().map_or(stop, |begun| begun.stop().clone()),
        _begun: begun,
    };
    Ok(Ok((Arc::new(running), ended)))
}

/// The values of the variables that name secrets.
fn secrets_of(services: &Services, spec: &ServerSpec) -> Result<BTreeMap<String, SecretString>, Report> {
    let value = |name: &str, secret| Ok((name.to_owned(), services.servers.source.secret(&secret)?));
    spec.secret_names().map(|(name, secret)| value(name, secret)).collect()
}

/// Serves the network proxy of a server until the server ends.
fn way_out(services: &Arc<Services>, place: &CallPlace, server: &Server) -> mpsc::Sender<Listener> {
    let (sender, mut listeners) = mpsc::channel::<Listener>(1);
    let gate = Arc::new(WorkGatekeeper::for_server(place.clone(), &server.spec.hosts));
    let (proxy, tool) = (services.outside.proxy.clone(), format!("{STARTER}{}", server.name));
    let stop = services.life.stop_now.child_token();
    tokio::spawn(async move {
        let Some(listener) = listeners.recv().await else { return };
        // The channel closes when the server ends, because the server holds its sender.
        let gone = async {
            while listeners.recv().await.is_some() {}
            stop.cancel();
        };
        let serving = proxy.serve(listener.into(), gate, &tool, stop.clone());
        let (served, ()) = tokio::join!(serving, gone);
        if let Err(error) = served {
            tracing::warn!(%error, "the way out of a server has failed");
        }
    });
    sender
}

/// Adds the server's last output to the report of a failed start, with secrets removed.
async fn last_words(report: Report, mut ended: ServerHandle, secrets: &[SecretString]) -> Report {
    let waited = tokio::time::timeout(LAST_WORDS_TIME, ended.wait()).await;
    let result = match waited {
        Ok(result) => result,
        Err(_elapsed) => ended.kill().await,
    };
    match result {
        Ok(result) => {
            let how = hint(&result, secrets);
            let hint = if report.hint.is_empty() { how } else { format!("{}; {how}", report.hint) };
            Report { hint, ..report }
        }
        Err(error) => error.report(),
    }
}

/// Waits for a server to answer its greeting, and tells those who watch the session how long that takes.
async fn told_of_start<T>(
    place: &CallPlace,
    server: &Server,
    greeting: impl Future<Output = Result<T, McpError>>,
    cancel: &CancellationToken,
) -> Result<T, McpError> {
    let (began, name, limit) = (tokio::time::Instant::now(), &server.name, server.spec.start_timeout_secs);
    let mut ticks = tokio::time::interval_at(began + TELL_EVERY, TELL_EVERY);
    tokio::pin!(greeting);
    loop {
        tokio::select! {
            biased;
            greeted = &mut greeting => return greeted,
            () = cancel.cancelled() => return Err(McpError::Cancelled),
            _ = ticks.tick() => {
                let secs = began.elapsed().as_secs();
                let text = format!(
                    "the server '{name}' is starting: {secs} of at most {limit} seconds (start_timeout_secs in mcp/{name}.toml)"
                );
                place.session.hub.pass(ServerFrame::Status { text });
            }
        }
    }
}

/// Describes the server's exit and the end of its standard error, with secrets removed.
fn hint(result: &ExecResult, secrets: &[SecretString]) -> String {
    let how = match result.ending {
        Ending::NotFound => {
            "there is no such program in the sandbox; what lies in your home is seen there only if \
                             sandbox.read_only names its folder"
                .to_owned()
        }
        Ending::NotExecutable => "the file cannot be executed".to_owned(),
        Ending::Exited { code } => format!("it ended with code {code}"),
        Ending::Signalled { signal } => format!("it ended by signal {signal}"),
        Ending::Killed { limit } => format!("it was ended ({})", limit.as_str()),
    };
    let mut words = result.stderr.text.clone();
    for secret in secrets.iter().filter(|secret| !secret.expose_secret().is_empty()) {
        words = words.replace(secret.expose_secret(), REDACTED);
    }
    let words = words.trim();
    let skipped = words.chars().count().saturating_sub(MAX_LAST_WORDS);
    let last: String = words.chars().skip(skipped).collect();
    if last.is_empty() {
        return how;
    }
    format!("{how}; its last words: {}", writ_types::visible::escape_line(&last))
}

/// Builds the ledger outcome of a start, without the server's own output.
fn outcome_of(server: &Server, started: Result<(), &Report>) -> PerformedOutcome {
    match started {
        Ok(()) => PerformedOutcome::Exec {
            end: ExecEnd::Code(0),
            stdout: format!("the server {} runs", server.name),
            stderr: String::new(),
            dropped_bytes: 0,
        },
        // The server's own words are not for the ledger.
        Err(report) => PerformedOutcome::Failed { report: Report { hint: String::new(), ..report.clone() } },
    }
}
