//! Puts the actions of sessions before the door: gathers what is so in a session.

use std::sync::Arc;

use writ_inspect::origin::Origins;
use writ_inspect::prepared::Prepared;
use writ_policy::door::Verdicts;
use writ_types::action::{Action, ExecProfile};
use writ_types::frame::ServerFrame;

use crate::door::{Circumstances, Door, Passage, RequestContext, Work};
use crate::error::EngineError;
use crate::keys::Keys;
use crate::pending::Pending;
use crate::reach::Hosts;
use crate::rules::Rules;
use crate::session::{Session, is_over};
use crate::sessions::Sessions;

/// The door, as actions of sessions come to it.
#[derive(Debug)]
pub(crate) struct SessionDoor {
    pub(crate) door: Door,
    pub(crate) keys: Arc<Keys>,
    pub(crate) rules: Arc<Rules>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) reach: Arc<Hosts>,
}

impl Work for Session {
    fn refusal(&self, prepared: &Prepared) -> Option<String> {
        is_over(self, prepared).then(|| EngineError::SessionClosed(self.id).to_string())
    }

    fn show(&self, seq: u64, frame: ServerFrame) {
        self.hub.send(seq, frame);
    }
}

impl SessionDoor {
    /// Gathers what is so around an action now.
    ///
    /// # Errors
    ///
    /// If the store cannot be read, or its session is not there.
    pub(crate) async fn circumstances<'a>(
        &self,
        prepared: &Prepared,
        origins: Option<&'a Origins>,
    ) -> Result<Circumstances<'a>, EngineError> {
        let session = match prepared.session {
            Some(session) => Some(self.sessions.get(session).await?),
            None => None,
        };
        let of_session = session.as_deref();
        let mut egress = match of_session {
            Some(session) => self.reach.scope_of(session).await,
            None => self.reach.egress.clone(),
        };
        let listed = hosts_of_server(&prepared.action);
        egress.granted.extend(listed.iter().filter_map(|host| host.parse().ok()));
        Ok(Circumstances {
            rules: self.rules.rules_of(of_session),
            home_rules: Arc::clone(&self.rules.in_force),
            egress,
            origins: self.reach.origins_of(prepared, of_session, origins).await?,
            limits: self.keys.limits_of(of_session),
            work: session.map(|session| session as Arc<dyn Work>),
        })
    }

    /// Writes `first`, and puts an action before the door that no gate judges: model calls and the scripts of gates.
    ///
    /// # Errors
    ///
    /// If the ledger cannot be written; then nothing may be performed.
    pub(crate) async fn pass_ungated(
        &self,
        first: Pending,
        prepared: Prepared,
        standing: RequestContext<'_>,
    ) -> Result<Passage, EngineError> {
        self.decide(first, prepared, standing, &Verdicts::default()).await
    }

    /// Has the door decide about an action that gates have judged, with what is so now: gates may have taken long.
    ///
    /// # Errors
    ///
    /// As [`Self::pass_ungated`].
    pub(crate) async fn decide(
        &self,
        first: Pending,
        prepared: Prepared,
        standing: RequestContext<'_>,
        verdicts: &Verdicts,
    ) -> Result<Passage, EngineError> {
        let circumstances = self.circumstances(&prepared, standing.origins).await?;
        Box::pin(self.door.decide(first, prepared, standing, &circumstances, verdicts)).await
    }
}

/// Returns the hosts that the owner has given a server, where an action starts one: they are listed for it alone.
fn hosts_of_server(action: &Action) -> &[String] {
    if let Action::Exec(exec) = action
        && exec.profile == ExecProfile::Server
    {
        return &exec.hosts;
    }
    &[]
}
