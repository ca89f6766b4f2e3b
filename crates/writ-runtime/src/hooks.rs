//! Hooks: the input that they read beside the judged data, the state that they store, and the events that
//! they are notified of.

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use writ_inspect::gate::{Hook, Judgement, Permission, ScriptDue};
use writ_store::batch::{Batch, Op};
use writ_types::entry::{Fact, GatePoint, GateVerdict, HookEvent};
use writ_types::id::SessionId;

use crate::error::EngineError;
use crate::gates::{For, Gates};
use crate::pending::Pending;
use crate::session::{HOOK_STATE, Session};

impl Gates {
    /// Builds the ledger's record of a hook's verdict.
    pub(crate) fn hooked(&self, hook: &Hook, verdict: GateVerdict, reason: String) -> Fact {
        Fact::Hooked {
            on: hook.config.on,
            hook: hook.config.name.clone(),
            digest: hook.digest(),
            verdict,
            reason,
        }
    }

    /// Stores the state that hooks want to find again in this session: in memory now, and in the database
    /// with the returned operations.
    pub(crate) async fn kept_by_hooks(&self, session: SessionId, judged: &Judgement) -> Pending {
        let Ok(held) = self.sessions.get(session).await else { return Pending::new() };
        let keep = |(hook, state): &(String, Value)| {
            held.state().gates.hooks.insert(hook.clone(), state.clone());
            let (key, value) =
                (format!("{HOOK_STATE}{hook}"), Some(state.clone()).filter(|state| !state.is_null()));
            Op::SetSessionMetadata { session, key, value }
        };
        judged.states.iter().map(keep).collect()
    }

    /// Returns the JSON that a hook reads: the facts that it may know of the judged event and of the
    /// conversation. `None` for a gate's script.
    ///
    /// # Errors
    ///
    /// If the session does not exist.
    pub(crate) async fn told_to_hook(
        &self,
        wanted: For<'_>,
        due: &ScriptDue,
    ) -> Result<Option<String>, EngineError> {
        let (Some(input), Some(hook)) = (&due.input, self.set.hook(&due.gate)) else { return Ok(None) };
        let mut input = input.clone();
        input.insert("session".to_owned(), wanted.session.to_string().into());
        let (turn, number) = wanted.at.unzip();
        input.insert("turn".to_owned(), turn.map(|turn| turn.to_string()).into());
        input.insert("turn_number".to_owned(), number.into());
        input.insert("at".to_owned(), self.journal.clock.now().to_string().into());
        if hook.config.permissions.contains(&Permission::Write) {
            let state = self.sessions.get(wanted.session).await?.state().gates.hooks.get(&due.gate).cloned();
            input.insert("state".to_owned(), state.unwrap_or_default());
        }
        Ok(Some(Value::Object(input).to_string()))
    }

    /// Notifies hooks of an event that has happened to a session.
    ///
    /// # Errors
    ///
    /// If the ledger cannot be written.
    pub(crate) async fn tell_of_session(
        &self,
        session: &Session,
        event: HookEvent,
    ) -> Result<(), EngineError> {
        self.tell_of(session, event, None).await
    }

    /// Notifies hooks of an event that has happened to a session, or to what `about` says. Hooks cannot stop it, and the ledger
    /// records that they were notified.
    ///
    /// # Errors
    ///
    /// If the ledger cannot be written.
    pub(crate) async fn tell_of(
        &self,
        session: &Session,
        event: HookEvent,
        about: Option<Map<String, Value>>,
    ) -> Result<(), EngineError> {
        if !self.set.hooks().any(|hook| hook.config.on == event) {
            return Ok(());
        }
        let (authority, keyed) = self.keys.authorise(session, None).await?;
        self.journal.store.commit(Batch::relaxed(keyed.into_iter().collect())).await?;
        let about = about.unwrap_or_else(|| {
            Map::from_iter([
                ("project".to_owned(), session.project().into()),
                ("write".to_owned(), session.terms.write.into()),
                ("dry_run".to_owned(), session.terms.dry_run.into()),
            ])
        });
        let wanted = For { session: session.id, at: None, authority: &authority };
        let (_, ops) = self.tell_hooks(wanted, (event, None), (session, about), &self.stop_now).await?;
        self.journal.store.commit(ops.into_relaxed()).await?;
        Ok(())
    }

    pub(crate) async fn tell_hooks(
        &self,
        wanted: For<'_>,
        (event, tool): (HookEvent, Option<&str>),
        (session, about): (&Session, Map<String, Value>),
        cancel: &CancellationToken,
    ) -> Result<(Judgement, Pending), EngineError> {
        let judging = self.set.notify_hooks(event, tool, about).of_project(session.project());
        let judged = Box::pin(self.heard_out(wanted, GatePoint::Execution, judging, cancel)).await?;
        let ops = self.gated(Some(session.id), wanted.at, GatePoint::Execution, &judged).await;
        Ok((judged, ops))
    }
}
