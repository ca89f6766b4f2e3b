//! The tokens of calls: the quota of a key, and reports of what was used and refused.

use tokio::sync::mpsc;
use writ_models::PlannedCall;
use writ_policy::keys::Authority;
use writ_store::batch::Op;
use writ_types::chat::{ModelReply, estimate_tokens_of_chars};
use writ_types::unit::{Timestamp, Tokens};

use super::OPERATION;
use crate::services::Services;

/// The limit of a base key on the tokens of one task: `"model_call": {"max_tokens": 100000}`.
pub(super) const QUOTA: &str = "tokens";
/// The beginning of the counters of tokens, one for each task.
const COUNTER: &str = "routed.tokens ";

/// A thing that an agent did at the model router, after it is in the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallReport {
    /// When it ended.
    pub at: Timestamp,
    /// The agent.
    pub agent: String,
    /// The token of its case; `None`: its task key is for no case.
    pub case: Option<String>,
    /// What is counted.
    pub count: CallCount,
}

/// A countable thing at the model router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallCount {
    /// The tokens of prompt and answer of one attempt at a call.
    Tokens(Tokens),
    /// A request that was refused.
    Refused,
}

/// Reports to an observer, if there is one.
pub(super) async fn send_report(
    services: &Services,
    observer: Option<&mpsc::Sender<CallReport>>,
    authority: &Authority,
    count: CallCount,
) {
    let Some(observer) = observer else { return };
    let case = authority.task().case.as_ref().map(|case| case.case.clone());
    let at = services.journal.clock.now();
    let report = CallReport { at, agent: authority.agent().to_owned(), case, count };
    // A slow observer slows calls down: what it does not count, no rule stops.
    tokio::select! {
        () = services.life.stop_now.cancelled() => {}
        _ = observer.send(report) => {}
    }
}

/// Tokens of a quota that an attempt has taken in advance: as many as it may use, so that attempts at the same time cannot
/// pass the quota together.
#[derive(Debug)]
pub(super) struct SetAside {
    counter: String,
    /// Zero without a quota.
    tokens: Tokens,
}

impl SetAside {
    /// Nothing is set aside for a task without a quota; its tokens are counted, too.
    pub(super) fn nothing(authority: &Authority) -> Self {
        Self { counter: counter_name(authority), tokens: Tokens::ZERO }
    }

    /// Returns what a call may use of `left` tokens, and the most of them that its answer may have; `None`: the prompt alone
    /// has as many.
    pub(super) fn measure(
        authority: &Authority,
        planned: &PlannedCall,
        left: Tokens,
    ) -> Option<(Self, Tokens)> {
        let call = planned.model_call();
        let output = call.max_output_tokens.min(left.saturating_sub(call.input_tokens));
        let tokens = call.input_tokens.saturating_add(output);
        (output > Tokens::ZERO).then(|| (Self { counter: counter_name(authority), tokens }, output))
    }

    /// Returns the operation that takes the tokens, or fails where fewer are left of `most`.
    pub(super) fn take(&self, most: Tokens) -> Op {
        Op::ReserveCounter { name: self.counter.clone(), by: self.tokens.get(), most: most.get() }
    }

    /// Returns the operation that counts what was used instead.
    pub(super) fn settle(&self, used: Tokens) -> Op {
        Op::SettleCounter { name: self.counter.clone(), reserved: self.tokens.get(), used: used.get() }
    }
}

/// Returns the tokens of an answered attempt that count: those that the provider says, or an estimate where it says nothing.
pub(super) fn answered_tokens(planned: &PlannedCall, reply: &ModelReply) -> Tokens {
    let said = reply.usage.total_tokens();
    if said > Tokens::ZERO {
        return said;
    }
    let called: usize = reply.calls.iter().map(|call| call.arguments.to_string().chars().count()).sum();
    let answer = estimate_tokens_of_chars(reply.text.chars().count().saturating_add(called));
    planned.model_call().input_tokens.saturating_add(answer)
}

/// Returns the name of the counter of a task's tokens.
pub(super) fn counter_name(authority: &Authority) -> String {
    format!("{COUNTER}{}", authority.task().session)
}

/// Returns the most tokens of one task; `None`: neither key sets a quota.
pub(super) fn quota_of(authority: &Authority) -> Option<Tokens> {
    let grants = [&authority.base().grants, &authority.task().grants];
    let limits = grants.into_iter().filter_map(|grants| grants.limits.get(OPERATION)?.amounts.get(QUOTA));
    limits.map(|limit| Tokens::new(u64::try_from(limit.max).unwrap_or(0))).min()
}
