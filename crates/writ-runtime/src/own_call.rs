//! Calls that the harness answers itself, since no action follows from them. They do not reach the door, so the owner's hooks are asked here,
//! as the door asks them for an action.

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use writ_inspect::gate::{Judgement, strictest_block};
use writ_inspect::redact::Clean;
use writ_policy::door::Denial;
use writ_tools::arguments::read_object;
use writ_tools::error::ToolError;
use writ_tools::handoff::Handoff;
use writ_tools::plan_unit::UnitChange;
use writ_tools::question::ResultQuestion;
use writ_tools::render::Rendered;
use writ_types::chat::{ToolCall, ToolOutcome};
use writ_types::entry::{DenyReason, GateVerdict, HookEvent};
use writ_types::taint::Label;

use crate::error::EngineError;
use crate::gates::For;
use crate::outcome::Acted;
use crate::pending::Pending;
use crate::place::CallPlace;
use crate::quarantine::{self, PutIn};
use crate::session::UnderPlan;
use crate::{chapters, judging, plan_units, planner};

/// Why a call ends here when a hook wants a person to decide about it: there is no action that one could approve.
const NO_ASK: &str = "a hook wants a person to approve it, and of this tool nothing can be approved";

/// Why a call ends here that hooks have changed twice.
const CHANGED_TWICE: &str = "it would change what was decided about already";
/// The name under which such a refusal is recorded.
const TOOL_ARGS: &str = "tool_args";

/// What is answered where a turn has ended before its call was begun.
const TURN_ENDED: &str = "Not done: the turn had ended.";

/// The hook that refuses a call, the kind of its refusal, and why.
type Refusal<'a> = (&'a str, DenyReason, &'a str);

/// What a call asks of the harness.
enum OwnCall {
    Question(ResultQuestion),
    Chapter(String),
    Change(UnderPlan, UnitChange),
    Handoff(Handoff),
}

impl OwnCall {
    /// Reads a call; none if it is one for the door.
    fn read(place: &CallPlace, call: &ToolCall) -> Result<Option<Self>, ToolError> {
        let tools = place.services.servers.registry();
        let toolset = tools.toolset_of(&place.profile.roles, &place.profile.allow_list(&tools));
        if let Some(question) = toolset.read_question(call)? {
            return Ok(Some(Self::Question(question)));
        }
        if let Some(name) = chapters::read_call(place, call)? {
            return Ok(Some(Self::Chapter(name)));
        }
        if let Some((under, change)) = plan_units::read_call(place, call)? {
            return Ok(Some(Self::Change(under, change)));
        }
        Ok(toolset.read_handoff(call)?.map(Self::Handoff))
    }

    async fn carry_out(
        self,
        place: &CallPlace,
        first: &mut Pending,
        read: (&ToolCall, &Label),
        cancel: &CancellationToken,
    ) -> Result<Acted, EngineError> {
        match self {
            Self::Question(question) => {
                quarantine::ask::answer_question(place, first, read, (question, cancel)).await
            }
            Self::Chapter(name) => chapters::open_chapter(place, first, read, name).await,
            Self::Change(under, change) => plan_units::change_plan(place, first, read, (under, change)).await,
            Self::Handoff(handoff) => planner::hand_off(place, first, read, (handoff, cancel)).await,
        }
    }
}

/// Answers a call that the harness answers itself; none if it is another call.
///
/// # Errors
///
/// If the store cannot be used.
pub(crate) async fn answer(
    place: &CallPlace,
    first: &mut Pending,
    (call, label): (&ToolCall, &Label),
    cancel: &CancellationToken,
) -> Result<Option<Acted>, EngineError> {
    let mut own = match OwnCall::read(place, call) {
        Ok(None) => return Ok(None),
        Ok(Some(own)) => own,
        Err(error) => return Ok(Some(place.refuse_arguments(first, (call, label), &error))),
    };
    let (mut call, mut rewritable) = (call.clone(), true);
    while let Some(judged) = ask_before(place, first, &call).await? {
        let changed = judged.arguments.as_ref().filter(|changed| **changed != arguments_of(&call));
        if let Some(refusal) = find_refusal(&judged, changed.is_some() && !rewritable) {
            return Ok(Some(deny(place, first, (&call, label), refusal)));
        }
        let Some(changed) = changed else { break };
        // A changed call is read and judged like any other, but cannot be changed a second time.
        (call.arguments, rewritable) = (changed.clone(), false);
        own = match OwnCall::read(place, &call) {
            Ok(Some(own)) => own,
            Ok(None) => return Ok(None),
            Err(error) => return Ok(Some(place.refuse_arguments(first, (&call, label), &error))),
        };
    }
    // The turn may have been ended while the hooks were asked.
    if cancel.is_cancelled() {
        let (text, label) = (Clean::fixed_text(TURN_ENDED), label.clone());
        let ended = Rendered { text, label, outcome: ToolOutcome::Failed };
        return Ok(Some(place.result(&call, ended, "not begun", first.take())));
    }
    let began = place.services.journal.clock.now();
    let mut acted = own.carry_out(place, first, (&call, label), cancel).await?;
    let said = (call.name.as_str(), acted.result.outcome, acted.result.text.as_str());
    let (heard, ends) = judging::told_after(place, said, began, cancel).await?;
    acted.ops.extend(heard);
    acted.ends = acted.ends.or(ends);
    Ok(Some(acted))
}

/// Asks the hooks that are called before a call of this tool; none if there are none. They read the arguments as they were read here: a
/// provider that sends them as one text hides nothing from a hook.
async fn ask_before(
    place: &CallPlace,
    first: &mut Pending,
    call: &ToolCall,
) -> Result<Option<Judgement>, EngineError> {
    let gates = &place.services.gates;
    if !gates.set.hooks().any(|hook| hook.config.on == HookEvent::BeforeToolCall) {
        return Ok(None);
    }
    place.commit(std::mem::take(first)).await?;
    let about = Map::from_iter([
        ("tool".to_owned(), call.name.clone().into()),
        ("action".to_owned(), Value::Null),
        ("arguments".to_owned(), arguments_of(call)),
    ]);
    let wanted = For { session: place.session.id, at: place.at(), authority: &place.authority };
    let what = (HookEvent::BeforeToolCall, Some(call.name.as_str()));
    // As at the door, the end of a turn does not end a hook: a verdict that is cut off would be none.
    let (judged, asked) =
        gates.tell_hooks(wanted, what, (&place.session, about), &gates.stop_now.child_token()).await?;
    // Now, since what follows may write its own commit, or find that it is written already.
    place.commit(asked).await?;
    Ok(Some(judged))
}

/// Returns the arguments of a call as an object.
fn arguments_of(call: &ToolCall) -> Value {
    read_object(&call.arguments).map_or(Value::Null, Value::Object)
}

/// Refuses a call: the model reads why, and the ledger has it.
fn deny(
    place: &CallPlace,
    first: &mut Pending,
    (call, label): (&ToolCall, &Label),
    (rule, reason, text): Refusal<'_>,
) -> Acted {
    let (rule, text) = (rule.to_owned(), text.to_owned());
    let denial = Denial { prepared: None, kind: place.kind_of(&call.name), reason, rule, text };
    first.push(place.services.journal.entry(place.session.id, place.at(), denial.denial_fact()));
    let mut denied = place.denied(call, &denial, (label.clone(), &PutIn::default()));
    first.extend(std::mem::take(&mut denied.ops).into_ops());
    denied.ops = first.take();
    denied
}

/// Returns the refusal of the strictest hook, if one refuses; or that of a call that would be changed a second time.
fn find_refusal(judged: &Judgement, changes_again: bool) -> Option<Refusal<'_>> {
    let blocks = strictest_block(&judged.verdicts).map(|(hook, verdict, why)| {
        (hook, if verdict == GateVerdict::Halt { DenyReason::Halt } else { DenyReason::Gate }, why)
    });
    let asks = judged.verdicts.iter().find(|(_, verdict, _)| *verdict == GateVerdict::RequireApproval);
    blocks
        .or_else(|| asks.map(|(hook, _, _)| (hook.as_str(), DenyReason::Gate, NO_ASK)))
        .or_else(|| changes_again.then_some((TOOL_ARGS, DenyReason::Gate, CHANGED_TWICE)))
}
