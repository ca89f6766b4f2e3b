//! What the autopilot sends out: tasks for one model, requests for review of merged work, and notices of its own work.
//!
//! A request passes the door in a session of its own, and a person is asked about it unless a rule permits it. A notice is the engine's own
//! report of units to an address that its owner names.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use writ_inspect::prepared::{Prepared, Sink};
use writ_policy::budget::Spent;
use writ_store::batch::Batch;
use writ_tools::render::render_result;
use writ_types::action::{Action, ForgeRequest, Vcs};
use writ_types::api::pilot::{PilotShip, PilotShipState};
use writ_types::credential::CredentialRef;
use writ_types::error::{Exit, Report};
use writ_types::id::AskId;
use writ_types::taint::{Label, Source, Taint};

use super::sample::ask_model;
use super::{ModelTask, PilotHands, TaskAnswer};
use crate::door::{Passage, RequestContext};
use crate::error::EngineError;
use crate::outcome::outcome_entry;
use crate::perform::ship::{SHIP, failed_note, note_op};
use crate::perform::{self, Performed};
use crate::place::{self, CallPlace};
use crate::services::Services;
use crate::session::Surface;
use crate::{asks, opening, passage};

mod notice;

pub use notice::NoticeError;

/// Merged work for which a request is to be opened at a forge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewShip {
    /// The project's folder, by which the store's rows name the project.
    pub project: String,
    /// The address that the branch is pushed to.
    pub remote: String,
    /// The request.
    pub request: ForgeRequest,
}

impl PilotHands {
    /// Gives one model a task, without tools, in a session of its own on the project.
    ///
    /// # Errors
    ///
    /// If the model is not configured, the task is too large, or the store cannot be read or written. A model that fails is in the answer.
    pub async fn ask_model(&self, project: &Path, task: ModelTask) -> Result<TaskAnswer, Report> {
        self.reported(ask_model(&self.services, project, task).await)
    }

    /// Pushes a branch and opens a request for it at a forge, or asks a person about it: then that is done once they have approved it. How it
    /// stands is written down in the unit's metadata, as `ship`.
    ///
    /// # Errors
    ///
    /// If the project cannot be used, or the store cannot be written.
    pub async fn ship(&self, new: NewShip) -> Result<(), Report> {
        self.reported(ship(&self.services, new).await)
    }

    /// Returns true if what was approved with an answer is being performed.
    pub fn is_performing(&self, ask: &AskId) -> bool {
        self.services.life.approved.is_performing(ask)
    }

    /// Posts a notice of the autopilot's own work as JSON, once. The address is a secret, since all who know it may write there.
    ///
    /// # Errors
    ///
    /// If there is no such secret, it is no address, or the other side does not take the notice.
    pub async fn post_notice(&self, url: &CredentialRef, body: Vec<u8>) -> Result<(), NoticeError> {
        notice::post(&self.services, url, body).await
    }
}

/// Has a branch pushed and a request opened, or asks a person about it. How it stands is written down with the unit.
async fn ship(services: &Arc<Services>, new: NewShip) -> Result<(), EngineError> {
    if services.life.draining.is_cancelled() {
        return Err(EngineError::Stopping);
    }
    let session =
        opening::open_session(services, Some(new.project.as_str()), false, false, Surface::Work).await?;
    let place = place::outside_turn(services, session).await?;
    let (project, unit) = (new.project.clone(), new.request.unit.clone());
    let standing = RequestContext::of(&place.authority, Spent::default());
    let note = match passage::pass(services, prepare(&place, new), standing).await? {
        Passage::Permit(permit) => {
            let attempt = permit.attempt();
            let stop = services.life.stop_now.child_token();
            let Performed { prepared, mut outcome, mut ops, .. } =
                perform::perform(&place, *permit, &stop).await?;
            let rendered = render_result(&prepared, &mut outcome, &services.journal.redactor);
            ops.push(services.journal.entry(place.session.id, None, outcome_entry(attempt, &rendered)));
            // The performer has added how it stands.
            return place.commit(ops).await;
        }
        Passage::Ask(ask) => match asks::open_ask(services, &place.session, *ask, "").await? {
            Ok(ask) => {
                let at = services.journal.clock.now();
                PilotShip { ask: Some(ask), ..PilotShip::in_state(PilotShipState::Asked, at) }
            }
            Err(why) => failed_note(&place, &refusal(format!("it cannot be asked about: {why}"))),
        },
        Passage::Denied(denial) => failed_note(&place, &refusal(denial.text)),
        Passage::Simulated(_) => failed_note(&place, &refusal("its session only simulates".to_owned())),
    };
    services.journal.store.commit(Batch::synced(vec![note_op(&project, &unit, &note)])).await?;
    Ok(())
}

fn refusal(why: String) -> Report {
    Report::new(Exit::Denied, "forge.denied", why)
        .with_hint("`writ policy explain` says which rule it is; then `writ pilot ship UNIT`")
}

/// Prepares the action: the branch is pushed and the request is opened as one, so that a person is asked once.
fn prepare(place: &CallPlace, new: NewShip) -> Prepared {
    let NewShip { project, remote, mut request } = new;
    let redactor = &place.services.journal.redactor;
    request.title = redactor.mask_text(&request.title).into_owned();
    request.text = redactor.mask_text(&request.text).into_owned();
    let sink = |argument: &str, value: &str| Sink { argument: argument.to_owned(), value: value.to_owned() };
    let sinks =
        vec![sink("remote", &remote), sink("api", &request.api), sink("repository", &request.project)];
    let source = Source { origin: SHIP.to_owned(), detail: request.unit.clone(), entry: None };
    let intent = format!(
        "Push {} to {remote}, and open a request at {} to merge it into {} of {}",
        request.branch,
        request.forge.name(),
        request.base,
        request.project
    );
    Prepared {
        action: Action::Vcs(Vcs {
            operation: "push_and_request".to_owned(),
            repository: project,
            target: remote,
            request: Some(Box::new(request)),
        }),
        agent: place.services.config.agent.clone(),
        session: Some(place.session.id),
        turn: None,
        turn_number: 0,
        call: None,
        tool: SHIP.to_owned(),
        sinks,
        // Agents have written what is pushed, and a planner the title.
        label: Label::from_source(Taint::External, source),
        bindings: BTreeMap::new(),
        // A second try finds the branch and the request of the first.
        idempotent: true,
        intent,
    }
}
