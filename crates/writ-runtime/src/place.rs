//! The place of a call: its session, its turn, and the keys that it is made under.

use std::sync::Arc;

use writ_inspect::origin::Origins;
use writ_inspect::prepared::Prepared;
use writ_policy::budget::Spent;
use writ_policy::keys::Authority;
use writ_policy::permit::Permit;
use writ_sandbox::error::SandboxError;
use writ_store::batch::Batch;
use writ_tools::text::cut_middle;
use writ_types::chat::ToolCall;
use writ_types::frame::ServerFrame;
use writ_types::id::TurnId;
use writ_types::visible::escape_text;

use crate::error::EngineError;
use crate::outcome::MAX_SUMMARY;
use crate::pending::Pending;
use crate::profile::AgentProfile;
use crate::services::Services;
use crate::session::Session;

/// The most characters of a step's arguments that are shown (and below, of its output): enough to see its
/// effect; the agent has the full text.
const MAX_STEP_ARGUMENTS: usize = 2_000;

const MAX_STEP_OUTPUT: usize = 4_000;

/// The session, turn and agent that a call belongs to, with its authority.
#[derive(Clone, Debug)]
pub(crate) struct CallPlace {
    pub(crate) services: Arc<Services>,
    pub(crate) session: Arc<Session>,
    /// The agent that it is made for.
    pub(crate) profile: Arc<AgentProfile>,
    /// `None` for what the owner does outside turns.
    pub(crate) turn: Option<TurnId>,
    pub(crate) number: u64,
    pub(crate) authority: Arc<Authority>,
    pub(crate) spent: Spent,
    /// The possible origins of a call's arguments; `None` if the conversation was not searched for them.
    pub(crate) origins: Option<Arc<Origins>>,
    /// The most characters of one result that its context shows; more is stored, and read by a handle.
    pub(crate) result_chars: usize,
}

impl CallPlace {
    /// Commits operations of its session; the frames that they store go to those who watch.
    ///
    /// # Errors
    ///
    /// If the database cannot be written.
    pub(crate) async fn commit(&self, ops: Pending) -> Result<(), EngineError> {
        self.services.journal.commit_for(&self.session.hub, ops.into_relaxed()).await.map(drop)
    }

    pub(crate) fn at(&self) -> Option<(TurnId, u64)> {
        self.turn.map(|turn| (turn, self.number))
    }

    /// The frame of a tool step; there is none outside turns.
    pub(crate) fn step(
        &self,
        call: &ToolCall,
        state: &str,
        summary: &str,
        output: &str,
    ) -> Option<ServerFrame> {
        let turn = self.turn?;
        let mut arguments = call.arguments.clone();
        self.services.journal.redactor.mask_json(&mut arguments);
        let arguments = serde_json::to_string_pretty(&arguments).unwrap_or_default();
        let arguments = self.services.journal.redactor.mask_text(&arguments);
        Some(ServerFrame::Tool {
            turn,
            tool: call.name.clone(),
            state: state.to_owned(),
            summary: summary.chars().take(MAX_SUMMARY).collect(),
            call: call.id.chars().take(MAX_SUMMARY).collect(),
            arguments: escape_text(&cut_middle(&arguments, MAX_STEP_ARGUMENTS)).into_owned(),
            output: escape_text(&cut_middle(output, MAX_STEP_OUTPUT)).into_owned(),
        })
    }
}

/// A place for what the owner does in a session outside its turns.
pub(crate) async fn outside_turn(
    services: &Arc<Services>,
    session: Arc<Session>,
) -> Result<CallPlace, EngineError> {
    let (authority, keyed) = services.keys.authorise(&session, None).await?;
    if let Some(keyed) = keyed {
        services.journal.store.commit(Batch::relaxed(vec![keyed])).await?;
        session.state().keys.task = Some(Arc::clone(&authority));
    }
    // Another key may take the session's place while this one still acts.
    session.state().keys.note_outside(&authority);
    Ok(place_of(services, session, authority))
}

/// The place of the owner's own command in a session. In that of a work item it is not under the key of the plan: what the
/// plan permits in advance is for what was verified.
///
/// # Errors
///
/// If the store cannot be read or written, or the key cannot be made.
pub(crate) async fn of_owner(
    services: &Arc<Services>,
    session: Arc<Session>,
) -> Result<CallPlace, EngineError> {
    if session.terms.work.is_none() {
        return outside_turn(services, session).await;
    }
    let authority = Arc::new(services.keys.grant(&session, None).await?);
    session.state().keys.note_outside(&authority);
    Ok(place_of(services, session, authority))
}

fn place_of(services: &Arc<Services>, session: Arc<Session>, authority: Arc<Authority>) -> CallPlace {
    CallPlace {
        services: Arc::clone(services),
        profile: Arc::clone(services.profiles.executor()),
        session,
        turn: None,
        number: 0,
        authority,
        origins: None,
        result_chars: usize::MAX,
        spent: Spent::default(),
    }
}

/// Consumes a permit for an action that the engine itself performs, and returns the action.
pub(crate) fn opened(place: &CallPlace, permit: Permit) -> Result<Prepared, EngineError> {
    let opened = permit.open(place.services.journal.clock.now());
    opened.map(|opened| opened.prepared).map_err(|expired| SandboxError::Expired(expired).into())
}
