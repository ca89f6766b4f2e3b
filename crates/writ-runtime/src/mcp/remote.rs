//! Servers at a URL: one visit for each permit.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use secrecy::SecretString;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use writ_egress::error::EgressError;
use writ_inspect::egress::host::{Scheme, Target};
use writ_inspect::prepared::Prepared;
use writ_mcp::definition::Definition;
use writ_mcp::error::McpError;
use writ_mcp::http::Visit;
use writ_mcp::http::asked::{self, Person, Question};
use writ_mcp::listing::Listing;
use writ_mcp::result::CallResult;
use writ_policy::permit::Permit;
use writ_tools::foreign::PIN;
use writ_tools::outcome::PerformedOutcome;
use writ_tools::render::render_result;
use writ_types::action::{Action, CallTool};
use writ_types::digest::Digest;
use writ_types::entry::{ConnectionRecord, Fact, Risk, Verdict};
use writ_types::error::{Exit, Report, ToReport as _};
use writ_types::taint::{Label, Taint};

use super::elicit::MAX_QUESTIONS;
use crate::door::{Passage, RequestContext};
use crate::error::EngineError;
use crate::mcp::elicit;
use crate::outcome::outcome_entry;
use crate::passage;
use crate::place::CallPlace;
use crate::servers::{STARTER, Server};
use crate::services::Services;

/// Placeholder for the tool name when a server is only inspected.
const LOOK: &str = "*";

/// Result of a visit, with the number of bytes received.
type VisitResult = Result<Result<(Visited, u64), McpError>, EgressError>;

/// Result of a visit to a server: its tools, and the answer to the call.
pub(crate) struct Visited {
    /// Tool definitions of the server, and the parts of its list that could not be used.
    pub(crate) live: Listing,
    /// The answer to the call; `None`: it was not made, since the tool is not what was pinned.
    pub(crate) answer: Option<Result<CallResult, McpError>>,
}

/// Reason that a visit had no result.
pub(crate) struct Unvisited {
    pub(crate) report: Report,
    /// The call was on its way already: it may have been made.
    pub(crate) called: bool,
}

impl From<Report> for Unvisited {
    fn from(report: Report) -> Self {
        Self { report, called: false }
    }
}

/// Visits a server: lists its tools, and makes the call if its tool is as it was pinned. The connection is on record.
///
/// # Errors
///
/// If the ledger cannot be written. The inner error says why it could not be visited.
pub(crate) async fn visit(
    services: &Services,
    place: &CallPlace,
    server: &Server,
    permit: Permit,
    cancel: &CancellationToken,
) -> Result<Result<Visited, Unvisited>, EngineError> {
    let token =
        match server.spec.token_reference().map(|name| services.servers.source.secret(&name)).transpose() {
            Ok(token) => token,
            Err(report) => return Ok(Err(report.into())),
        };
    let (began, prepared) = (Instant::now(), permit.prepared().clone());
    let (Action::CallTool(call), Some(url)) = (&prepared.action, &server.spec.url) else {
        return Err(EngineError::Machine("a visit for something else".to_owned()));
    };
    // The file may have changed since the call was decided: its token goes to no other host than that.
    if server.spec.url_host() != call.host {
        return Ok(Err(not_trusted().into()));
    }
    let pin = prepared.bindings.get(PIN).copied();
    // Outside a turn there is no conversation in which a server could ask the owner.
    let (person, questions) = asked::question_channel();
    let person = place.turn.is_some().then_some(&person);
    let called = AtomicBool::new(false);
    let input = VisitInput { url, token: token.as_ref(), call, pin, person, called: &called };
    let visiting =
        services.outside.egress.perform_permit(permit, services.journal.clock.now(), |lent| async move {
            let visited = input.visit(&lent).await;
            visited.map(|visited| (visited, lent.received_bytes()))
        });
    let visited = attend(place, server, visiting, questions, cancel).await?;
    let received = visited.as_ref().ok().and_then(|visited| visited.as_ref().ok()).map(|(_, bytes)| *bytes);
    note_visit(services, place, call, received, began).await?;
    let unvisited = |report| Err(Unvisited { report, called: called.load(Ordering::Acquire) });
    Ok(match visited {
        Ok(Ok((visited, _))) => Ok(visited),
        Ok(Err(error)) => unvisited(error.report()),
        Err(error) => unvisited(error.report()),
    })
}

/// Writes a connection to a server down. `received`: what came, if it went well.
async fn note_visit(
    services: &Services,
    place: &CallPlace,
    call: &CallTool,
    received: Option<u64>,
    began: Instant,
) -> Result<(), EngineError> {
    let host = call.host.as_deref().unwrap_or_default();
    let Ok(target) = Target::from_authority(Scheme::Https, host, None) else { return Ok(()) };
    let record = ConnectionRecord {
        host: target.host.to_string(),
        port: target.port,
        address: None,
        verdict: if received.is_some() { Verdict::Allowed } else { Verdict::Failed },
        rule: format!("{STARTER}{}", call.server),
        sent: u64::try_from(call.arguments.to_string().len()).unwrap_or(u64::MAX),
        received: received.unwrap_or_default(),
        ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        credential: None,
    };
    let fact = Fact::Connected { connections: vec![record] };
    services.journal.append(place.session.id, place.at(), fact).await
}

/// Looks at a server for its owner: what tools it describes.
///
/// # Errors
///
/// As [`visit`].
pub(super) async fn look_at(
    services: &Arc<Services>,
    place: &CallPlace,
    server: &Server,
) -> Result<Result<Listing, Report>, EngineError> {
    let standing =
        RequestContext { mode: place.session.mode(), ..RequestContext::of(&place.authority, place.spent) };
    let permit = match passage::pass(services, look(services, place, server)?, standing).await? {
        Passage::Permit(permit) => *permit,
        Passage::Denied(denial) => return Err(EngineError::Denied(denial.text)),
        Passage::Ask(ask) => return Err(EngineError::Denied(ask.reason)),
        Passage::Simulated(_) => return Ok(Ok(Listing::default())),
    };
    let (attempt, prepared) = (permit.attempt(), permit.prepared().clone());
    let visited = visit(services, place, server, permit, &services.life.stop_now.child_token()).await?;
    let mut outcome = match &visited {
        Ok(visited) => PerformedOutcome::Called {
            server: server.name.to_string(),
            tool: LOOK.to_owned(),
            text: format!("the server {} describes {} tools", server.name, visited.live.tools.len()),
            structured: None,
            is_error: false,
            taint: Taint::External,
            public: false,
            readers: BTreeSet::new(),
            secret: false,
        },
        Err(unvisited) => PerformedOutcome::Failed { report: unvisited.report.clone() },
    };
    let entry = outcome_entry(attempt, &render_result(&prepared, &mut outcome, &services.journal.redactor));
    services.journal.append(place.session.id, place.at(), entry).await?;
    Ok(visited.map(|visited| visited.live).map_err(|unvisited| unvisited.report))
}

/// Builds the prepared action for inspecting a server.
fn look(services: &Services, place: &CallPlace, server: &Server) -> Result<Prepared, EngineError> {
    let file = Digest::of_canonical(&server.spec)?;
    Ok(Prepared {
        action: Action::CallTool(CallTool {
            server: server.name.to_string(),
            tool: LOOK.to_owned(),
            arguments: serde_json::json!({}),
            host: server.spec.url_host(),
            effect: false,
            declared: true,
            sends: false,
            whom: Vec::new(),
            takes: std::collections::BTreeMap::new(),
            named: Vec::new(),
            risk: Risk::Low,
        }),
        agent: services.config.agent.clone(),
        session: Some(place.session.id),
        turn: place.turn,
        turn_number: place.number,
        call: None,
        tool: format!("{STARTER}{}", server.name),
        sinks: Vec::new(),
        label: Label::new(Taint::Owner),
        bindings: [("file".to_owned(), file)].into(),
        idempotent: true,
        intent: format!("list the tools of the server {}", server.name),
    })
}

/// Waits for the end of a visit, and asks a person meanwhile what the server asks them. That takes none of the visit's
/// time: the call has its own anew after each question that was put to them.
///
/// # Errors
///
/// If the store cannot be written.
async fn attend(
    place: &CallPlace,
    server: &Server,
    visiting: impl Future<Output = VisitResult> + Send,
    questions: mpsc::Receiver<Question>,
    cancel: &CancellationToken,
) -> Result<VisitResult, EngineError> {
    let ask = |question: Question, over: CancellationToken| async move {
        let reply = elicit::elicit(place, server, &question.form, over.cancelled(), cancel).await?;
        question.reply(reply);
        Ok(())
    };
    let (start, each) = (server.spec.start_time(), server.spec.call_time());
    attended((start, each), visiting, questions, cancel, ask).await
}

/// Implements `Place::attend`. `ask` puts a question to a person and replies to it, until its token is
/// cancelled; a question that is dropped gets a reply that there is no answer.
async fn attended<Q, F: Future<Output = Result<(), EngineError>>>(
    (start, each): (Duration, Duration),
    visiting: impl Future<Output = VisitResult>,
    mut questions: mpsc::Receiver<Q>,
    cancel: &CancellationToken,
    mut ask: impl FnMut(Q, CancellationToken) -> F,
) -> Result<VisitResult, EngineError> {
    tokio::pin!(visiting);
    let mut time = start.saturating_add(each);
    let mut deadline = tokio::time::Instant::now() + time;
    let mut asked = 0_usize;
    loop {
        let question = tokio::select! {
            biased;
            () = cancel.cancelled() => return Ok(Ok(Err(McpError::Cancelled))),
            went = tokio::time::timeout_at(deadline, &mut visiting) => {
                let late = McpError::Timeout { method: "tools/call", secs: time.as_secs() };
                return Ok(went.unwrap_or(Ok(Err(late))));
            }
            Some(question) = questions.recv() => question,
        };
        asked += 1;
        if asked > MAX_QUESTIONS {
            // Questions beyond the bound are dropped without more time; otherwise a server could ask for
            // ever.
            continue;
        }
        let over = CancellationToken::new();
        let mut asking = std::pin::pin!(ask(question, over.clone()));
        tokio::select! {
            biased;
            replied = &mut asking => replied?,
            // The visit goes on meanwhile: where the server hangs up, the question is moot.
            went = &mut visiting => {
                over.cancel();
                asking.await?;
                return Ok(went);
            }
        }
        time = each;
        deadline = tokio::time::Instant::now() + time;
    }
}

/// Input of a visit: the server's address, the call and its pin.
struct VisitInput<'a> {
    url: &'a str,
    token: Option<&'a SecretString>,
    call: &'a CallTool,
    pin: Option<Digest>,
    /// Person that the server may ask while the call waits.
    person: Option<&'a Person>,
    /// Set before the call is sent.
    called: &'a AtomicBool,
}

impl VisitInput<'_> {
    async fn visit(&self, lent: &writ_egress::LentClient) -> Result<Visited, McpError> {
        let mut visit = Visit::begin_visit(lent, self.url, self.token).await?;
        // Listed in the visit that calls, so that the pin is compared with what answers.
        let live = visit.list_tools().await?;
        let found = live.tools.iter().find(|live| live.name == self.call.tool).and_then(Definition::digest);
        let answer = if found.is_some() && found == self.pin {
            self.called.store(true, Ordering::Release);
            Some(visit.call_tool(&self.call.tool, &self.call.arguments, self.person).await)
        } else {
            None
        };
        visit.end_visit().await;
        Ok(Visited { live, answer })
    }
}

/// Returns the report for a tool that differs from its pin.
pub(crate) fn not_trusted() -> Report {
    let text = "the tool is not the one that was trusted: it was not called".to_owned();
    Report::new(Exit::Denied, "mcp.changed", text)
        .with_hint("tell the user; `writ mcp trust` shows what is different")
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    /// The time that a server has to begin.
    const START: Duration = Duration::from_secs(20);
    /// The time that a server has for each call.
    const EACH: Duration = Duration::from_secs(30);
    /// How long a person takes for an answer.
    const SLOW: Duration = Duration::from_secs(600);

    /// The clock of these tests moves on whenever all tasks wait.
    async fn passes(time: Duration) {
        let _late = tokio::time::timeout(time, std::future::pending::<()>()).await;
    }

    fn done(bytes: u64) -> VisitResult {
        Ok(Ok((Visited { live: Listing::default(), answer: None }, bytes)))
    }

    /// How it went, in a word or a number.
    fn word(went: Result<VisitResult, EngineError>) -> String {
        match went {
            Ok(Ok(Ok((_, bytes)))) => bytes.to_string(),
            Ok(Ok(Err(McpError::Timeout { secs, .. }))) => format!("late after {secs}"),
            Ok(Ok(Err(McpError::Cancelled))) => "cancelled".to_owned(),
            other => format!("{:?}", other.map(|went| went.map(|went| went.map(|(_, bytes)| bytes)))),
        }
    }

    /// A server that asks so many times, waiting for each answer, and takes so many seconds before each and at the end.
    async fn visited(times: usize, secs: u64) -> (String, usize) {
        let (questions, asked) = mpsc::channel::<oneshot::Sender<()>>(1);
        let visiting = async move {
            for _ in 0..times {
                passes(Duration::from_secs(secs)).await;
                let (reply, replied) = oneshot::channel();
                questions.send(reply).await.expect("heard");
                let _nobody_answers = replied.await;
            }
            passes(Duration::from_secs(secs)).await;
            done(7)
        };
        let mut answered = 0;
        let person = |reply: oneshot::Sender<()>, over: CancellationToken| {
            answered += 1;
            async move {
                passes(SLOW).await;
                assert!(!over.is_cancelled(), "it waits");
                reply.send(()).expect("waited for");
                Ok(())
            }
        };
        let went = attended((START, EACH), visiting, asked, &CancellationToken::new(), person).await;
        (word(went), answered)
    }

    #[tokio::test(start_paused = true)]
    async fn a_person_takes_none_of_a_calls_time() {
        assert_eq!(visited(0, 49).await, ("7".to_owned(), 0));
        assert_eq!(visited(0, 51).await, ("late after 50".to_owned(), 0));
        assert_eq!(visited(1, 29).await, ("7".to_owned(), 1), "it has its time anew");
        assert_eq!(visited(1, 31).await, ("late after 30".to_owned(), 1), "and no more than that");
        assert_eq!(visited(MAX_QUESTIONS, 29).await, ("7".to_owned(), MAX_QUESTIONS));
        let one_more = visited(MAX_QUESTIONS + 1, 29).await;
        assert_eq!(
            one_more,
            ("late after 30".to_owned(), MAX_QUESTIONS),
            "a question too many gains nothing"
        );
        assert_eq!(visited(MAX_QUESTIONS + 1, 14).await, ("7".to_owned(), MAX_QUESTIONS));
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_ends_with_its_visit_and_with_its_turn() {
        for cancelled in [false, true] {
            let (questions, asked) = mpsc::channel(1);
            questions.send(()).await.expect("heard");
            let visiting = async {
                passes(Duration::from_secs(1)).await;
                done(7)
            };
            let cancel = CancellationToken::new();
            let person = |(), over: CancellationToken| {
                let cancel = &cancel;
                async move {
                    if cancelled {
                        cancel.cancel();
                    } else {
                        over.cancelled().await;
                    }
                    Ok(())
                }
            };
            let went = attended((START, EACH), visiting, asked, &cancel, person).await;
            assert_eq!(word(went), if cancelled { "cancelled" } else { "7" });
        }
    }
}
