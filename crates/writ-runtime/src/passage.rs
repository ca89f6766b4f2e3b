//! The way through the door for the actions of agents and their owner: gates judge first, then the door decides.

use writ_policy::prepared::Prepared;
use writ_store::batch::Op;
use writ_types::entry::GateVerdict;

use crate::door::{Passage, Standing};
use crate::error::EngineError;
use crate::gates::{Gathered, Wording};
use crate::services::Services;

/// The result of passing a model's call to the door.
#[derive(Debug)]
pub(crate) enum Called {
    /// It was decided.
    Passed(Passage),
    /// Nothing was decided: a gate wants the tool to be called with these arguments. What was to be written first is
    /// handed back.
    Rewritten(serde_json::Value, Vec<Op>),
}

/// Puts a prepared action before the door.
///
/// # Errors
///
/// If the ledger cannot be written; nothing may be performed then.
pub(crate) async fn pass(
    core: &Services,
    prepared: Prepared,
    standing: Standing<'_>,
) -> Result<Passage, EngineError> {
    pass_after(core, Vec::new(), prepared, standing).await
}

/// Writes `first` and puts a prepared action before the door: in one transaction, if it is permitted. `first`
/// is written after every decision; frames in it are of the action's session, and go to its watchers.
///
/// # Errors
///
/// As [`pass`].
pub(crate) async fn pass_after(
    core: &Services,
    first: Vec<Op>,
    prepared: Prepared,
    standing: Standing<'_>,
) -> Result<Passage, EngineError> {
    match Box::pin(pass_call(core, first, prepared, standing, None)).await? {
        Called::Passed(passage) => Ok(passage),
        Called::Rewritten(..) => {
            Err(EngineError::Machine("a text that is no model's was rewritten".to_owned()))
        }
    }
}

/// As [`pass_after`], for a call of a model where `wording` says what that is.
///
/// # Errors
///
/// As [`pass`].
pub(crate) async fn pass_call(
    core: &Services,
    mut first: Vec<Op>,
    prepared: Prepared,
    standing: Standing<'_>,
    wording: Option<Wording<'_>>,
) -> Result<Called, EngineError> {
    // Boxed: what passes here may itself be under way in something that has passed, and rules need room on the stack.
    let verdicts = match Box::pin(heard(core, &prepared, standing, wording)).await? {
        Gathered { ops, arguments: Some(arguments), .. } => {
            first.extend(ops);
            return Ok(Called::Rewritten(arguments, first));
        }
        Gathered { verdicts, ops, arguments: None } => {
            first.extend(ops);
            verdicts
        }
    };
    Box::pin(core.door.decide(first, prepared, standing, &verdicts)).await.map(Called::Passed)
}

/// Returns the verdicts of the gates on an action that its keys permit; an action that they do not permit is
/// left for the decision to refuse.
async fn heard(
    core: &Services,
    prepared: &Prepared,
    standing: Standing<'_>,
    wording: Option<Wording<'_>>,
) -> Result<Gathered, EngineError> {
    if !core.gates.judges_actions() {
        return Ok(Gathered::default());
    }
    let circumstances = core.door.circumstances(prepared, standing.origins)?;
    if let Err(denial) = core.door.door.precheck(prepared, standing, &circumstances)? {
        // Blocks an action that no gate has judged, even if its keys become good a moment later.
        let mut gathered = Gathered::default();
        gathered.verdicts.gates.push((denial.rule, GateVerdict::Block, denial.text));
        return Ok(gathered);
    }
    drop(circumstances);
    core.gates.gather(prepared, standing.authority, wording).await
}
