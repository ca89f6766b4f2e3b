//! Hooks: what they are told beside what is judged, what they keep, and events that have happened.

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use writ_policy::gate::{Hook, Judged, Permission, ScriptDue};
use writ_store::batch::{Batch, Op};
use writ_tools::render::Rendered;
use writ_types::entry::{Fact, GatePoint, GateVerdict, HookEvent};
use writ_types::id::SessionId;
use writ_types::unit::Timestamp;

use crate::act::{Place, outcome_name};
use crate::core::Core;
use crate::error::EngineError;
use crate::gates::For;
use crate::session::Session;

/// What the key of a session's metadata begins with under which a hook keeps its state.
pub(crate) const STATE: &str = "hook_state ";
/// The most of a result that hooks are told, in characters: more is named as cut.
const MAX_RESULT_CHARS: usize = 20_000;

impl Core {
    /// The ledger's record of what a hook has said.
    pub(crate) fn hooked(&self, hook: &Hook, verdict: GateVerdict, reason: String) -> Fact {
        Fact::Hooked {
            on: hook.config.on,
            hook: hook.config.name.clone(),
            digest: hook.digest(),
            verdict,
            reason,
        }
    }

    /// What hooks want to find again in this conversation.
    pub(crate) fn kept_by_hooks(&self, session: SessionId, judged: &Judged) -> Vec<Op> {
        let Ok(held) = self.session(session) else { return Vec::new() };
        let keep = |(hook, state): &(String, Value)| {
            held.state().hooks.insert(hook.clone(), state.clone());
            let (key, value) =
                (format!("{STATE}{hook}"), Some(state.clone()).filter(|state| !state.is_null()));
            Op::SetSessionMetadata { session, key, value }
        };
        judged.states.iter().map(keep).collect()
    }

    /// What a hook reads: what it may know of what is judged, and of the conversation. `None`: it is a gate's script.
    ///
    /// # Errors
    ///
    /// If the session is not there.
    pub(crate) fn told_to_hook(
        &self,
        wanted: For<'_>,
        due: &ScriptDue,
    ) -> Result<Option<String>, EngineError> {
        let (Some(input), Some(hook)) = (&due.input, self.gates.hook(&due.gate)) else { return Ok(None) };
        let mut input = input.clone();
        input.insert("session".to_owned(), wanted.session.to_string().into());
        let (turn, number) = wanted.at.unzip();
        input.insert("turn".to_owned(), turn.map(|turn| turn.to_string()).into());
        input.insert("turn_number".to_owned(), number.into());
        input.insert("at".to_owned(), self.clock.now().to_string().into());
        if hook.config.permissions.contains(&Permission::Write) {
            let state = self.session(wanted.session)?.state().hooks.get(&due.gate).cloned();
            input.insert("state".to_owned(), state.unwrap_or_default());
        }
        Ok(Some(Value::Object(input).to_string()))
    }

    /// Tells hooks of what became of a session. Nothing of it can be stopped any more; that they were told is in the ledger.
    ///
    /// # Errors
    ///
    /// If the ledger cannot be written.
    pub(crate) async fn tell_of_session(
        &self,
        session: &Session,
        event: HookEvent,
    ) -> Result<(), EngineError> {
        if !self.gates.hooks().any(|hook| hook.config.on == event) {
            return Ok(());
        }
        let (authority, keyed) = self.authorise(session, None)?;
        self.store.commit(Batch::relaxed(keyed.into_iter().collect())).await?;
        let about = Map::from_iter([
            ("project".to_owned(), session.project().into()),
            ("write".to_owned(), session.terms.write.into()),
            ("dry_run".to_owned(), session.terms.dry_run.into()),
        ]);
        let wanted = For { session: session.id, at: None, authority: &authority };
        let (_, ops) = self.tell_hooks(wanted, (event, None), (session, about), &self.stop_now).await?;
        self.store.commit(Batch::relaxed(ops)).await?;
        Ok(())
    }

    async fn tell_hooks(
        &self,
        wanted: For<'_>,
        (event, tool): (HookEvent, Option<&str>),
        (session, about): (&Session, Map<String, Value>),
        cancel: &CancellationToken,
    ) -> Result<(Judged, Vec<Op>), EngineError> {
        let judging = self.gates.tell(event, tool, about).of_project(session.project());
        let judged = Box::pin(self.heard_out(wanted, GatePoint::Execution, judging, cancel)).await?;
        let ops = self.gated(Some(session.id), wanted.at, GatePoint::Execution, &judged);
        Ok((judged, ops))
    }
}

impl Place {
    /// What hooks say of what a tool has done since `began`, for the ledger; and why the turn is to end if one of them wants
    /// that, or has failed and is critical.
    ///
    /// # Errors
    ///
    /// If the ledger cannot be written.
    pub(crate) async fn told_after(
        &self,
        (tool, rendered): (&str, &Rendered),
        began: Timestamp,
        cancel: &CancellationToken,
    ) -> Result<(Vec<Op>, Option<String>), EngineError> {
        let took = self.core.clock.now().since(began);
        if !self.core.gates.hooks().any(|hook| hook.config.on == HookEvent::AfterToolCall) {
            return Ok((Vec::new(), None));
        }
        let text: String = rendered.text.chars().take(MAX_RESULT_CHARS).collect();
        let about = Map::from_iter([
            ("tool".to_owned(), tool.into()),
            ("outcome".to_owned(), outcome_name(rendered.outcome).into()),
            ("cut".to_owned(), (text.len() < rendered.text.len()).into()),
            ("result".to_owned(), text.into()),
            ("duration_ms".to_owned(), u64::try_from(took.as_millis()).unwrap_or(u64::MAX).into()),
        ]);
        let wanted = For { session: self.session.id, at: self.at(), authority: &self.authority };
        let what = (HookEvent::AfterToolCall, Some(tool));
        let (judged, told) = self.core.tell_hooks(wanted, what, (&self.session, about), cancel).await?;
        let fatal = |(hook, verdict, why): &(String, GateVerdict, String)| {
            let critical = self.core.gates.hook(hook).is_some_and(|hook| hook.config.is_critical());
            let ends = *verdict == GateVerdict::Halt || (critical && *verdict == GateVerdict::Block);
            ends.then(|| halted(why))
        };
        Ok((told, judged.verdicts.iter().find_map(fatal)))
    }
}

/// What the person is told of a turn that a hook has ended.
pub(crate) fn halted(why: &str) -> String {
    format!("A hook has ended this turn: {why}")
}
