//! The way through the door for the actions of agents and their owner: gates judge first, then the door decides.

use writ_inspect::prepared::Prepared;
use writ_policy::door::{Ask, Denial};
use writ_store::batch::Batch;
use writ_types::chat::ToolOutcome;
use writ_types::digest::Digest;
use writ_types::entry::{Fact, GateVerdict};
use writ_types::error::{Report, ToReport as _};
use writ_types::taint::{Label, Taint};

use crate::door::{Passage, RequestContext};
use crate::error::EngineError;
use crate::gates::{ActionVerdicts, Wording};
use crate::pending::Pending;
use crate::services::Services;

/// The result of putting a model's tool call before the door.
#[derive(Debug)]
pub(crate) enum PassageResult {
    /// The door decided.
    Passed(Passage),
    /// The door did not decide: a gate replaced the arguments of the call by these. The operations that were to be
    /// written first are returned.
    Rewritten(serde_json::Value, Pending),
}

/// The result of putting an action before the door that only a person may decide.
#[derive(Debug)]
pub(crate) enum QuestionResult {
    /// A person is to be asked.
    Ask(Box<Ask>),
    /// The door refused it.
    Denied(Box<Denial>),
    /// A rule permits it without a question, or the session only simulates: no person would decide.
    Unasked,
}

/// Puts an action before the door that only a person may decide. A permit without a question is not used, and the ledger says so.
///
/// # Errors
///
/// As [`pass`].
pub(crate) async fn pass_to_person(
    services: &Services,
    prepared: Prepared,
    standing: RequestContext<'_>,
) -> Result<QuestionResult, EngineError> {
    Ok(match pass(services, prepared, standing).await? {
        Passage::Ask(ask) => QuestionResult::Ask(ask),
        Passage::Denied(denial) => QuestionResult::Denied(denial),
        Passage::Simulated(_) => QuestionResult::Unasked,
        Passage::Permit(permit) => {
            let prepared = permit.prepared();
            // Without an outcome the next start would say that it may have happened.
            let summary = "not performed: no person was asked".to_owned();
            let fact = Fact::Outcome {
                attempt: permit.attempt(),
                outcome: ToolOutcome::Cancelled,
                result: Digest::of_bytes(summary.as_bytes()),
                summary,
                label: Label::new(Taint::Owner),
            };
            let at = prepared.turn.map(|turn| (turn, prepared.turn_number));
            let entry = services.journal.noted(prepared.session, at, fact);
            services.journal.store.commit(Batch::relaxed(vec![entry])).await?;
            QuestionResult::Unasked
        }
    })
}

/// Puts a prepared action before the door.
///
/// # Errors
///
/// If the ledger cannot be written; nothing may be performed then.
pub(crate) async fn pass(
    services: &Services,
    prepared: Prepared,
    standing: RequestContext<'_>,
) -> Result<Passage, EngineError> {
    pass_after(services, Pending::new(), prepared, standing).await
}

/// Writes `first` and puts a prepared action before the door: in one transaction, if it is permitted. `first`
/// is written whatever the door decides; frames in it belong to the action's session, and go to its clients.
///
/// # Errors
///
/// As [`pass`].
pub(crate) async fn pass_after(
    services: &Services,
    first: Pending,
    prepared: Prepared,
    standing: RequestContext<'_>,
) -> Result<Passage, EngineError> {
    match Box::pin(pass_call(services, first, prepared, standing, None)).await? {
        PassageResult::Passed(passage) => Ok(passage),
        PassageResult::Rewritten(..) => {
            Err(EngineError::Machine("a gate rewrote an action that no model requested".to_owned()))
        }
    }
}

/// Works as [`pass_after`], for a model's tool call; gates judge its arguments as given in `wording`.
///
/// # Errors
///
/// As [`pass`].
pub(crate) async fn pass_call(
    services: &Services,
    mut first: Pending,
    prepared: Prepared,
    standing: RequestContext<'_>,
    wording: Option<Wording<'_>>,
) -> Result<PassageResult, EngineError> {
    // Boxed to save stack: a gate's own model call passes here while the gate judges, and evaluating rules needs much stack.
    let verdicts = match Box::pin(gather_verdicts(services, &prepared, standing, wording)).await? {
        ActionVerdicts { ops, arguments: Some(arguments), .. } => {
            first.extend(ops);
            return Ok(PassageResult::Rewritten(arguments, first));
        }
        ActionVerdicts { verdicts, ops, arguments: None } => {
            first.extend(ops);
            verdicts
        }
    };
    Box::pin(services.door.decide(first, prepared, standing, &verdicts)).await.map(PassageResult::Passed)
}

/// Returns the verdicts of the gates on an action that its keys permit. An action that they do not permit gets a
/// block, and no gate judges it.
async fn gather_verdicts(
    services: &Services,
    prepared: &Prepared,
    standing: RequestContext<'_>,
    wording: Option<Wording<'_>>,
) -> Result<ActionVerdicts, EngineError> {
    // Before any gate: a gate may cost a model call, and an action to an unknown recipient cannot be performed.
    if let Err(unknown) = services.outside.directory.check_recipients(&prepared.action) {
        let Report { code, outside, hint, .. } = unknown.report();
        let mut gathered = ActionVerdicts::default();
        gathered.verdicts.gates.push((code, GateVerdict::Block, format!("{outside}: {hint}")));
        return Ok(gathered);
    }
    if !services.gates.judges_actions() {
        return Ok(ActionVerdicts::default());
    }
    let circumstances = services.door.circumstances(prepared, standing.origins).await?;
    if let Err(denial) = services.door.door.precheck(prepared, standing, &circumstances).await? {
        // Blocks an action that no gate has judged, even if its keys become valid a moment later.
        let mut gathered = ActionVerdicts::default();
        gathered.verdicts.gates.push((denial.rule, GateVerdict::Block, denial.text));
        return Ok(gathered);
    }
    drop(circumstances);
    services.gates.gather(prepared, standing.authority, wording).await
}
