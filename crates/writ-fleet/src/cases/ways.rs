//! The ways out that agents try past their two servers: their launchers count them, and the ledger has them.

use writ_runtime::case_keys::CaseKeys;
use writ_types::action::ActionKind;
use writ_types::entry::{DenyReason, Fact, Requester};

use super::error::CaseError;
use super::live::LiveCase;

/// The rule that such an entry names, and the operation that its agent is recorded to have asked for.
const WAY_OUT: &str = "way_out";

/// Records what a holder's process has tried since the last look. Returns how often it has.
///
/// # Errors
///
/// If the ledger cannot be written.
pub(crate) async fn note_ways_out(keys: &CaseKeys, live: &mut LiveCase) -> Result<u64, CaseError> {
    let (Some(agent), Some(holder)) = (&mut live.agent, &live.holder) else { return Ok(0) };
    let tried = agent.process.take_ways_out();
    let count = tried.count();
    if count == 0 {
        return Ok(0);
    }
    let fact = Fact::Denied {
        prepared: None,
        kind: ActionKind::Fetch,
        reason: DenyReason::Scope,
        rule: WAY_OUT.to_owned(),
        text: format!("agent {} of case {} tried ways out: {tried}", holder.name, live.row.case_token),
        outside: "nothing but the two servers can be reached".to_owned(),
        requester: Some(Box::new(Requester {
            agent: holder.name.clone(),
            base: holder.base,
            task: holder.task,
            operation: WAY_OUT.to_owned(),
            data: vec![live.row.customer_token.clone(), live.row.case_token.clone()],
            sealed_prompt: None,
        })),
    };
    keys.commit(vec![keys.entry(live.row.id, fact)]).await?;
    Ok(count)
}

/// The same right before a process is ended, which has to end also where this cannot be written.
pub(crate) async fn note_last_ways(keys: &CaseKeys, live: &mut LiveCase) {
    if let Err(error) = note_ways_out(keys, live).await {
        tracing::error!(%error, case = %live.row.id, "the last ways out that an agent tried could not be recorded");
    }
}
