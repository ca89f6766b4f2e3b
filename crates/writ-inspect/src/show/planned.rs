//! A plan as a person reads it: every step in full, and its limits in plain words.

use writ_types::action::{Action, Free, Plan, PlanStep, Slot, SlotKind, SlotSource};
use writ_types::entry::Risk;
use writ_types::work::WorkKind;

use super::{Page, describe_action, escape_line, quote_argument, risk_of, work};

pub(super) fn describe_plan(plan: &Plan, page: &mut Page) {
    let count = plan.steps.len();
    page.add_line("plan", &escape_line(&plan.title));
    page.add_line(
        "how long",
        // Both limits are named: the plan ends with whichever comes first.
        &format!("{} minutes from your yes; not beyond the end of this question", plan.minutes),
    );
    let is_target = plan.work.as_ref().is_some_and(|work| work.document.kind == WorkKind::Pilot);
    let money = match plan.max_cost {
        Some(most) if is_target => format!("models may cost {most} in all attempts together, then it ends"),
        Some(most) => format!("models may cost {most} more in this conversation, then it ends"),
        None if is_target => "each attempt as much as a conversation; all together have no limit".to_owned(),
        None => "as much as a conversation may cost anyway".to_owned(),
    };
    page.add_line("money", &money);
    if let Some(branch) = &plan.branch {
        let use_of_it = if is_target {
            "what has passed its checks is merged into it without another question"
        } else {
            "a name for now: nothing is put there automatically"
        };
        page.add_line("branch", &format!("{} ({use_of_it})", quote_argument(branch)));
    }
    if let Some(order) = &plan.work {
        work::describe_order(order, page);
        if count == 0 {
            return;
        }
    }
    page.add_line("steps", &format!("{count}; in any order, each as often as it says, nothing else"));
    for (n, step) in (1_u64..).zip(&plan.steps) {
        page.0.push('\n');
        describe_step((n, count), step, page);
    }
}

fn describe_step((n, count): (u64, usize), step: &PlanStep, page: &mut Page) {
    let times = if step.times == 1 { "once".to_owned() } else { format!("up to {} times", step.times) };
    page.add_line("step", &format!("{n} of {count}, {times}: {}", step.action.kind().as_str()));
    page.add_line("tool", &quote_argument(&step.tool));
    for (path, slot) in &step.slots {
        page.add_line("slot", &describe_slot(path, slot));
    }
    for (name, value) in step.sinks.iter().filter(|(name, _)| !step.slots.contains_key(name)) {
        page.add_line("fixed", &format!("{} = {}", quote_argument(name), quote_argument(value)));
    }
    // Shown is what is fixed, and what is free is named as free: nothing else may be approved with it.
    match (step.free, &step.action) {
        (Free::Content, Action::WriteFile(write)) => {
            for change in &write.changes {
                page.add_line("file", &format!("{} in the session's overlay", quote_argument(&change.path)));
            }
            page.add_line("text", "any text that the agent writes then");
        }
        (Free::Content, _) => {
            page.add_line("free", "any further arguments; as proposed:");
            describe_action(&step.action, page);
            if let Action::CallTool(call) = &step.action
                && call.sends
            {
                page.add_line("asks again", "where it would pass on what came from outside");
            }
        }
        (Free::Page, _) => {
            page.add_line("free", "any page of the same host is read; as proposed:");
            describe_action(&step.action, page);
            page.add_line(
                "asks again",
                "with an address that was made up after something was read from outside",
            );
        }
        (Free::Nothing, _) => describe_action(&step.action, page),
    }
    // An approval of a plan does not cover what cannot be undone and was not shown word for word.
    if step.free != Free::Nothing && risk_of(&step.action) >= Risk::Irreversible {
        page.add_line("asks again", "each time: it cannot be undone, and is not shown exactly");
    }
    for (name, digest) in &step.bindings {
        page.add_line("bound to", &format!("{} {digest}", quote_argument(name)));
    }
    // The owner sees which values an outsider can have chosen.
    for name in &step.external {
        page.add_line(
            "external",
            &format!(
                "{} comes from outside: neither your words nor taken from what you asked for",
                quote_argument(name)
            ),
        );
    }
}

/// Describes a slot in words: kind, bound and source, so that a person knows which values pass without another question.
fn describe_slot(path: &str, slot: &Slot) -> String {
    let most = match slot.source {
        SlotSource::All { most, .. } => Some(most),
        SlotSource::Field { .. } | SlotSource::Result { .. } | SlotSource::Sum { .. } => None,
    };
    let kind = match (most, slot.kind) {
        (Some(most), kind) => format!("a list of at most {most}, each {}", kind_words(kind)),
        (None, kind) => kind_words(kind),
    };
    let tool = quote_argument(&slot.tool);
    let source = match (&slot.source, slot.kind) {
        (SlotSource::Field { name, of: None }, _) => {
            format!("the only value of the field {} in what {tool} returns", quote_argument(name))
        }
        (SlotSource::Field { name, of: Some(of) }, _) => format!(
            "the only value of the field {} beside {} in what {tool} returns",
            quote_argument(name),
            quote_argument(of)
        ),
        (SlotSource::Result { named }, SlotKind::Text) => {
            format!("quoted as it is from what {tool} returns about {}", quote_argument(named))
        }
        (SlotSource::Result { named }, _) => {
            format!("the only one in what {tool} returns about {}", quote_argument(named))
        }
        (SlotSource::Sum { name, named }, _) => {
            let about = about(named.as_deref());
            format!(
                "the sum of all values of the field {} in what {tool} returns{about}",
                quote_argument(name)
            )
        }
        (SlotSource::All { name, named, .. }, _) => {
            let about = about(named.as_deref());
            format!("all values of the field {} in what {tool} returns{about}", quote_argument(name))
        }
    };
    format!("{} = {kind}: {source}; any other value asks", quote_argument(path))
}

fn kind_words(kind: SlotKind) -> String {
    match kind {
        SlotKind::Account => "an account number".to_owned(),
        SlotKind::Address => "a mail address".to_owned(),
        SlotKind::Link => "a link".to_owned(),
        SlotKind::Amount { max } => format!("an amount of at most {max}"),
        SlotKind::Text => "a text without links and addresses".to_owned(),
    }
}

fn about(named: Option<&str>) -> String {
    named.map_or_else(String::new, |named| format!(" about {}", quote_argument(named)))
}
