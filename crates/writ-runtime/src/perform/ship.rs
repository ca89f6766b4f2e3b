//! Opens the request for review of merged work at a forge: the branch is pushed, then a request that is there already is looked for, and only
//! without one a new one is opened.
//!
//! The whole of it is one action that a person has approved: address, branch, commit, title and text. The token is fetched here, and goes to
//! the host of the forge alone.

use std::time::Duration;

use crate::forge::{
    self, ForgeAnswer, ForgeCall, ForgeError, FoundRequest, MAX_PAGES, list_requests, open_request,
    read_opened, read_page,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret as _, SecretString};
use tokio_util::sync::CancellationToken;
use writ_egress::deliver::Endpoint;
use writ_egress::target::{ApiAnswer, ApiFailure, ApiRequest};
use writ_policy::permit::Permit;
use writ_store::batch::Op;
use writ_store::units::{UnitKey, UnitOp};
use writ_tools::outcome::PerformedOutcome;
use writ_types::action::{Action, ForgeRequest, Vcs};
use writ_types::api::pilot::{PilotShip, PilotShipState};
use writ_types::error::{Exit, Report, ToReport as _};

use crate::error::EngineError;
use crate::pending::Pending;
use crate::pilot_desk::BranchPush;
use crate::place::{self, CallPlace};
use crate::secrets::read_secret;

/// The name of a request at a forge in the ledger, where the name of a tool stands otherwise.
pub(crate) const SHIP: &str = "pilot_ship";
/// The most tries to open a request, each of which looks first if it is there.
const MAX_TRIES: u32 = 4;
/// The pause after the first failed try; it doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// The longest pause, also where the forge asks for more.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// The longest wait for one answer.
const CALL_LIMIT: Duration = Duration::from_secs(30);
/// The largest answer, in bytes: fifty requests with their texts.
const MAX_ANSWER_BYTES: usize = 8 * 1024 * 1024;
/// The longest text of an error that is stored with the unit, in characters.
const MAX_NOTE_CHARS: usize = 500;
/// The media type of the outcome.
const MEDIA: &str = "text/plain";

/// Pushes the branch and opens the request. How it went is written down with the unit, in the commit of the outcome. Its future is large:
/// a caller boxes it, or it would lie on the stack of each action.
///
/// # Errors
///
/// If the permit is too old.
pub(super) async fn ship(
    place: &CallPlace,
    permit: Permit,
    cancel: &CancellationToken,
    ops: &mut Pending,
) -> Result<PerformedOutcome, EngineError> {
    let prepared = place::opened(place, permit)?;
    let Action::Vcs(Vcs { repository, target, request: Some(request), .. }) = &prepared.action else {
        return Err(EngineError::Machine("a permit for something else".to_owned()));
    };
    let done = push_and_open(place, (repository, target), request, cancel).await;
    let at = place.services.journal.clock.now();
    let note = match &done {
        Ok(url) => PilotShip { url: url.clone(), ..PilotShip::in_state(PilotShipState::Opened, at) },
        Err(report) => failed_note(place, report),
    };
    ops.push(note_op(repository, &request.unit, &note));
    Ok(match done {
        Ok(url) => PerformedOutcome::Fetched {
            status: 201,
            body: format!("The request for {} is open: {url}", request.unit).into_bytes(),
            url,
            media: MEDIA.to_owned(),
            truncated: false,
        },
        Err(report) => PerformedOutcome::Failed { report },
    })
}

/// Returns the note of a unit for which no request was opened.
pub(crate) fn failed_note(place: &CallPlace, report: &Report) -> PilotShip {
    let journal = &place.services.journal;
    let cut =
        |text: &str| -> String { journal.redactor.mask_text(text).chars().take(MAX_NOTE_CHARS).collect() };
    PilotShip {
        code: report.code.clone(),
        text: cut(&report.outside),
        hint: cut(&report.hint),
        ..PilotShip::in_state(PilotShipState::Failed, journal.clock.now())
    }
}

/// Returns the operation that writes down how a unit's request stands.
pub(crate) fn note_op(project: &str, unit: &str, note: &PilotShip) -> Op {
    let key = UnitKey { project: project.to_owned(), id: unit.to_owned() };
    // Texts and an address are always JSON.
    let ship = serde_json::to_string(note).unwrap_or_else(|_| "null".to_owned());
    Op::Units(UnitOp::NoteShip { key, ship })
}

async fn push_and_open(
    place: &CallPlace,
    (repository, remote): (&str, &str),
    request: &ForgeRequest,
    cancel: &CancellationToken,
) -> Result<String, Report> {
    let services = &place.services;
    let token = read_secret(services, &request.token).await?;
    let token = token.filter(|token| !token.expose_secret().is_empty());
    let token = token.ok_or_else(|| ForgeError::NoToken(request.token.to_string()).report())?;
    let endpoint = Endpoint::path_below(&request.api, "").ok().filter(Endpoint::is_private);
    let endpoint = endpoint.ok_or_else(|| {
        Report::new(Exit::Config, "forge.address", "the address of the forge's API cannot be used")
            .with_hint("write an https address without a credential as `pilot.ship.api`")
    })?;
    let desk = services.life.autopilot().clone();
    let desk = desk.ok_or_else(|| {
        Report::new(Exit::Blocked, "forge.no_autopilot", "the autopilot does not run")
            .with_hint("`writ pilot ship UNIT` tries it again")
    })?;
    // For a folder of this machine git needs none.
    let is_web = !remote.starts_with('/');
    let push = BranchPush {
        project: repository.to_owned(),
        remote: remote.to_owned(),
        commit: request.commit.clone(),
        branch: request.branch.clone(),
        authorization: is_web.then(|| basic_value(request, &token)),
    };
    desk.push_branch(push).await.map_err(|report| without_token(report, &token))?;
    let client = ForgeClient { place, endpoint, request, token };
    let opened = client.open_patiently(cancel).await;
    opened.map_err(|error| without_token(error.report(), &client.token))
}

/// Takes the token out of the words of others.
fn without_token(mut report: Report, token: &SecretString) -> Report {
    for text in [&mut report.outside, &mut report.inside, &mut report.hint] {
        *text = text.replace(token.expose_secret(), "[redacted]");
    }
    report
}

/// Returns the value by which git sends a token.
fn basic_value(request: &ForgeRequest, token: &SecretString) -> SecretString {
    let pair = format!("{}:{}", request.forge.git_user(), token.expose_secret());
    SecretString::from(format!("Basic {}", STANDARD.encode(pair)))
}

/// What asks a forge.
struct ForgeClient<'a> {
    place: &'a CallPlace,
    endpoint: Endpoint,
    request: &'a ForgeRequest,
    token: SecretString,
}

impl ForgeClient<'_> {
    /// Tries several times, where another try may help.
    async fn open_patiently(&self, cancel: &CancellationToken) -> Result<String, ForgeError> {
        let mut pause = FIRST_PAUSE;
        let mut tries = 1;
        loop {
            let opened = tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(ForgeError::Stopped),
                opened = self.find_or_open() => opened,
            };
            let error = match opened {
                Err(error) if error.can_pass() && tries < MAX_TRIES => error,
                other => return other,
            };
            tracing::info!(%error, tries, "a forge is asked again after a pause");
            let wanted = error.wait_secs().map_or(pause, Duration::from_secs).max(pause).min(MAX_PAUSE);
            tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(ForgeError::Stopped),
                () = self.rest(wanted) => {}
            }
            pause = pause.saturating_mul(2);
            tries += 1;
        }
    }

    /// Waits for a time by the engine's clock.
    async fn rest(&self, time: Duration) {
        let clock = &self.place.services.journal.clock;
        let began = clock.elapsed();
        loop {
            let (now, passed) = (clock.now(), clock.elapsed().saturating_sub(began));
            let Some(left) = time.checked_sub(passed).filter(|left| !left.is_zero()) else { return };
            clock.wait(now, left).await;
        }
    }

    /// Returns the request of the branch: the one that is there, or a new one.
    async fn find_or_open(&self) -> Result<String, ForgeError> {
        if let Some(url) = self.find().await? {
            return Ok(url);
        }
        let answer = self.call(open_request(self.request)).await?;
        match read_opened(self.request, view(&answer)) {
            // Opened a moment ago, by a try that got no answer, or by a person.
            Err(error @ ForgeError::Exists { .. }) => self.find().await?.ok_or(error),
            other => other,
        }
    }

    async fn find(&self) -> Result<Option<String>, ForgeError> {
        for page in 1..=MAX_PAGES {
            let answer = self.call(list_requests(self.request, page)).await?;
            match read_page(self.request, view(&answer))? {
                FoundRequest::Found(url) => return Ok(Some(url)),
                FoundRequest::Missing => return Ok(None),
                FoundRequest::NextPage => {}
            }
        }
        Ok(None)
    }

    async fn call(&self, call: ForgeCall) -> Result<ApiAnswer, ForgeError> {
        let (name, value) = forge::token_header(self.request.forge, self.token.expose_secret());
        let headers = vec![
            (name.to_owned(), SecretString::from(value)),
            ("accept".to_owned(), SecretString::from("application/json")),
        ];
        let ForgeCall { method, segments, query, body } = call;
        let body = body.map(|body| body.to_string().into_bytes());
        let api = ApiRequest { method, segments, query, headers, body };
        let egress = &self.place.services.outside.egress;
        egress.call_api(&self.endpoint, api, MAX_ANSWER_BYTES, CALL_LIMIT).await.map_err(|failure| {
            match failure {
                ApiFailure::NotSent(why) => ForgeError::NotSent { why },
                ApiFailure::Unanswered(why) => ForgeError::Unanswered { why },
            }
        })
    }
}

fn view(answer: &ApiAnswer) -> ForgeAnswer<'_> {
    let wait_secs = answer.retry_after.map(|wait| wait.as_secs());
    ForgeAnswer { status: answer.status, body: &answer.body, wait_secs }
}
