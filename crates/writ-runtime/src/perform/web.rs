//! Network access: programs that run behind the egress proxy, fetches, searches, and hosts that a session is granted.

use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use writ_egress::credential::Credentials;
use writ_egress::fetch::{FetchError, FetchedPage};
use writ_egress::gatekeeper::Gatekeeper;
use writ_egress::proxy::ProxyError;
use writ_inspect::egress::host::{Scheme, Target};
use writ_inspect::reach::{self, Reach};
use writ_policy::permit::{Permit, Saving};
use writ_sandbox::exec::{ExecOptions, Listener, WayOut};
use writ_sandbox::file::{LARGE_MAX, SAVE_MAX};
use writ_search::error::SearchError;
use writ_tools::outcome::{PerformedOutcome, WebHit};
use writ_tools::render::UNKNOWN;
use writ_types::action::{Action, Connect, Fetch, Search};
use writ_types::entry::{ConnectionRecord, Fact, Verdict};
use writ_types::error::{Exit, Report, ToReport as _};

use super::settle;
use crate::error::EngineError;
use crate::gatekeeper::WorkGatekeeper;
use crate::place::{CallPlace, opened};

/// The most bytes of a response that are stored: many times more than fits into a model's context.
const BODY_MAX: u64 = 1024 * 1024;

/// Runs a program that can connect to `hosts`, and to the hosts that its session may reach. When this returns, all of its
/// connections are closed and recorded in the ledger.
///
/// # Errors
///
/// If a connection or a grant could not be recorded; the proxy then let nothing more through.
pub(super) async fn beside_proxy<T, F: Future<Output = T>>(
    place: &CallPlace,
    hosts: &[String],
    tool: &str,
    options: ExecOptions,
    run: impl FnOnce(ExecOptions) -> F,
) -> Result<T, EngineError> {
    let (sender, mut listeners) = mpsc::channel::<Listener>(1);
    let stop = CancellationToken::new();
    let gate = Arc::new(WorkGatekeeper::for_program(place.clone(), hosts).await?);
    let way_out = way_out(place, &gate.credentials());
    let proxy = place.services.outside.proxy.clone();
    let serving = async {
        match listeners.recv().await {
            Some(listener) => proxy.serve(listener.into(), gate, tool, stop.clone()).await,
            // The program was not started.
            None => Ok(()),
        }
    };
    let running = async {
        let done = run(ExecOptions { network: Some(sender), way_out, ..options }).await;
        // The proxy closes and records what is open, for which the join below waits.
        stop.cancel();
        done
    };
    let (served, done) = tokio::join!(serving, running);
    match served {
        Ok(()) => Ok(done),
        Err(ProxyError::Listener(why)) => {
            // The program ran without a network and has reported that in its own output.
            tracing::warn!(%why, "a sandbox's way out could not be served");
            Ok(done)
        }
        Err(error @ ProxyError::NotRecorded(_)) => Err(EngineError::Unwritable(error.to_string())),
    }
}

/// Returns the network settings of a program: the certificate authorities to trust besides the system's (the
/// owner's, and the engine's own if there are credentials to insert), and the placeholder of each credential.
fn way_out(place: &CallPlace, credentials: &Credentials) -> WayOut {
    let variables: Vec<(String, String)> =
        credentials.program_variables().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let egress = &place.services.outside.egress;
    let own = (!variables.is_empty()).then(|| egress.authority_certificate()).flatten();
    let all = own.unwrap_or_default() + &egress.extra_roots().to_pem();
    WayOut { certificate: (!all.is_empty()).then_some(all), variables }
}

/// Fetches a URL, and saves the response if the permit names a file. Ends early if `cancel` is cancelled.
///
/// # Errors
///
/// If the connections could not be recorded, or the sandbox cannot be used at all.
pub(super) async fn fetch(
    place: &CallPlace,
    mut permit: Permit,
    fetch: &Fetch,
    cancel: &CancellationToken,
) -> Result<PerformedOutcome, EngineError> {
    // Before the request: a host counts once it is asked, also where it refuses.
    note_host(place, fetch).await?;
    let saving = permit.take_saving();
    let body_max = saving.as_ref().map_or(BODY_MAX, most);
    let gate = WorkGatekeeper::for_fetch(place.clone()).await;
    match place
        .services
        .outside
        .egress
        .fetch(permit, place.services.journal.clock.now(), body_max, &gate, cancel)
        .await
    {
        Ok(fetched) => match (saving, &fetch.save_to) {
            // The body of an error response is shown, never saved in place of the file.
            (Some(saving), Some(path)) if fetched.status < 400 => save(place, saving, path, fetched).await,
            (_, _) => Ok(shown(fetched)),
        },
        Err(FetchError::NotRecorded(why)) => Err(EngineError::Unwritable(why.to_string())),
        Err(error) => Ok(broken(&error, fetch)),
    }
}

/// Maps a failed fetch to its outcome. The outcome is unknown if the request can change something and may have reached its
/// host.
fn broken(error: &FetchError, fetch: &Fetch) -> PerformedOutcome {
    let reads = matches!(fetch.method.as_str(), "GET" | "HEAD") && fetch.body.is_none();
    let report = error.report();
    match error {
        FetchError::Answer { .. } | FetchError::Timeout(_) | FetchError::Cancelled if !reads => {
            PerformedOutcome::Doubtful { report: report.with_hint(UNKNOWN) }
        }
        FetchError::Answer { .. }
        | FetchError::Timeout(_)
        | FetchError::Cancelled
        | FetchError::Egress(_)
        | FetchError::Expired(_)
        | FetchError::WrongAction(_)
        | FetchError::BadRequest(_)
        | FetchError::Refused(_)
        | FetchError::Redirect(_)
        | FetchError::TooOften { .. }
        | FetchError::NotRecorded(_) => PerformedOutcome::Failed { report },
    }
}

/// Returns the outcome of a fetch with the response for the model.
fn shown(mut fetched: FetchedPage) -> PerformedOutcome {
    let max = usize::try_from(BODY_MAX).unwrap_or(usize::MAX);
    let truncated = fetched.truncated || fetched.body.len() > max;
    fetched.body.truncate(max);
    let media = media(&fetched);
    PerformedOutcome::Fetched {
        status: fetched.status,
        url: fetched.url,
        media,
        body: fetched.body,
        truncated,
    }
}

fn media(fetched: &FetchedPage) -> String {
    let media = fetched.headers.iter().find(|(name, _)| name == "content-type");
    media.map(|(_, value)| value.clone()).unwrap_or_default()
}

/// Returns the most bytes that may be saved.
const fn most(saving: &Saving) -> u64 {
    if saving.is_large() { LARGE_MAX } else { SAVE_MAX }
}

/// Saves a complete response to the file that the permit names; one that was cut off is not saved.
async fn save(
    place: &CallPlace,
    saving: Saving,
    path: &str,
    fetched: FetchedPage,
) -> Result<PerformedOutcome, EngineError> {
    if fetched.truncated {
        let text = format!("the answer has more than {} bytes; nothing was saved", most(&saving));
        let hint = if saving.is_large() {
            "Fetch a part of it with a program.".to_owned()
        } else {
            format!("Up to {LARGE_MAX} bytes are saved with \"large\": true, which a person must approve.")
        };
        let report = Report::new(Exit::Budget, "fetch.too_large", text).with_hint(hint);
        return Ok(PerformedOutcome::Failed { report });
    }
    let (status, url, media) = (fetched.status, fetched.url.clone(), media(&fetched));
    let workspace = place.services.workspace(&place.session).await?;
    settle(workspace.save_file(saving, fetched.body).await.map(|written| PerformedOutcome::Saved {
        status,
        url,
        media,
        path: path.to_owned(),
        bytes: written.bytes,
    }))
}

/// Records that the session has read from this host, if no list of hosts names it.
///
/// # Errors
///
/// If the store cannot be written.
async fn note_host(place: &CallPlace, fetch: &Fetch) -> Result<(), EngineError> {
    let scope = place.services.reach.scope_of(&place.session).await;
    let unlisted = reach::reach_of(&Action::Fetch(fetch.clone()), &scope) == Reach::Unknown;
    match Target::from_url(&fetch.url) {
        Ok(target) if unlisted => {
            place.services.reach.note_new_host(&place.session, target.host.to_string()).await
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Sends a query to the search provider, and records the connection like any other.
///
/// # Errors
///
/// If the connection could not be recorded.
pub(super) async fn search(
    place: &CallPlace,
    permit: Permit,
    query: &Search,
    cancel: &CancellationToken,
) -> Result<PerformedOutcome, EngineError> {
    let began = Instant::now();
    let now = place.services.journal.clock.now();
    let searched = match &place.services.outside.search {
        Some(search) => search.run_search(permit, now, cancel).await,
        None => Err(SearchError::NotConfigured),
    };
    let received = searched.as_ref().map_or(0, |found| found.received);
    if let Ok(target) = Target::from_authority(Scheme::Https, &query.host, None) {
        let record = ConnectionRecord {
            host: target.host.to_string(),
            port: target.port,
            address: None,
            verdict: if searched.is_ok() { Verdict::Allowed } else { Verdict::Failed },
            rule: "search".to_owned(),
            sent: u64::try_from(query.query.len()).unwrap_or(u64::MAX),
            received,
            ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            credential: None,
        };
        let fact = Fact::Connected { connections: vec![record] };
        place.services.journal.append(place.session.id, place.at(), fact).await?;
    }
    Ok(match searched {
        Ok(found) => {
            let hit = |hit: writ_search::SearchHit| WebHit { title: hit.title, url: hit.url, text: hit.text };
            PerformedOutcome::Searched { hits: found.hits.into_iter().map(hit).collect() }
        }
        Err(error) => PerformedOutcome::Failed { report: error.report() },
    })
}

/// Grants the session access to the host that a person has approved.
///
/// # Errors
///
/// If the store cannot be written.
pub(super) async fn connect(
    place: &CallPlace,
    permit: Permit,
    connect: &Connect,
) -> Result<PerformedOutcome, EngineError> {
    opened(place, permit)?;
    match place.services.reach.grant_host(&place.session, connect).await? {
        Ok(()) => Ok(PerformedOutcome::Reachable { host: connect.host.clone(), port: connect.port }),
        Err(why) => Ok(PerformedOutcome::Failed { report: Report::new(Exit::Usage, "connect.host", why) }),
    }
}
