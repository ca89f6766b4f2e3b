//! Plans that a person approves as a whole: what one may say, and which actions it covers.
//!
//! The plan is the writ: what was approved is the [`Plan`] inside a prepared action, so the hash that is signed names
//! every byte of it, its session, its agent and the rules in force. Approving it mints one task key; under that key an
//! action passes that one of its steps means, as often as the step says.

use std::collections::BTreeSet;

use writ_types::action::{
    Action, CallTool, ChangeKind, ExecProfile, Fetch, FileChange, Free, Place, Plan, PlanNeed, PlanStep,
    WriteFile,
};
use writ_types::digest::Digest;
use writ_types::entry::{Decision, Risk};
use writ_types::id::AskId;
use writ_types::taint::{Label, Taint};
use writ_types::unit::Timestamp;
use writ_types::work::WorkKind;

use crate::approval::Approval;
use crate::keys::Authority;
use crate::keys::grants::Grants;
use crate::pattern;
use crate::permit::{ApprovalUse, PlanUse};
use crate::reasons::{TAINT_RULE, asks_about_this_time};
use writ_inspect::egress::host::Target;
use writ_inspect::origin::Origins;
use writ_inspect::prepared::{Prepared, Sink};
use writ_inspect::scope;
use writ_inspect::show::is_plain;

pub mod slots;

/// The most steps of a plan: more are not read in earnest.
pub const MAX_STEPS: usize = 24;
/// The most repetitions of one step.
pub const MAX_TIMES: u32 = 100;
/// The most repetitions of a step that leaves something open, where a tap approves it: as many as an approval
/// for the task has uses.
const MAX_TAPPED_TIMES: u32 = 20;
/// For how many minutes, likewise.
const MAX_TAPPED_MINUTES: u64 = 60;
/// The longest lifetime of a plan, in minutes: a working day.
pub const MAX_MINUTES: u64 = 8 * 60;
/// The longest lifetime of the plan of a goal, in minutes: 30 days, as long as a standing approval.
pub const MAX_GOAL_MINUTES: u64 = 30 * 24 * 60;
/// The longest lifetime of a plan of the autopilot, in minutes: a week. A milestone takes days, and what is not done by then is
/// looked at again.
pub const MAX_PILOT_MINUTES: u64 = 7 * 24 * 60;
/// The lifetime of a plan that names none, in minutes: that of a task key.
pub const MINUTES: u64 = 30;
/// The longest title, in characters.
pub const MAX_TITLE_CHARS: usize = 120;
/// The longest name of a branch, in characters: what file systems allow.
pub const MAX_BRANCH_CHARS: usize = 255;
/// The most places, hosts and names of all steps together: a key holds a thousand facts.
const MAX_SCOPES: usize = 400;
/// The most bytes of them: a key has at most 32 KiB.
const MAX_SCOPE_BYTES: usize = 12 * 1024;

/// Says what is wrong with a plan, if anything is; its steps are looked at one by one besides.
pub(crate) fn check_plan(plan: &Plan) -> Result<(), String> {
    let title = &plan.title;
    // The title stands on one line of what a person approves, and must not look like two.
    if title.trim().is_empty() || title.chars().count() > MAX_TITLE_CHARS || !is_one_line(title) {
        return Err(format!("the title must be one plain line of 1 to {MAX_TITLE_CHARS} characters"));
    }
    // The plan of a work item has its steps in its document, and exact calls only where some would ask.
    let fewest = usize::from(plan.work.is_none());
    if !(fewest..=MAX_STEPS).contains(&plan.steps.len()) {
        return Err(format!("{} steps; a plan has {fewest} to {MAX_STEPS}", plan.steps.len()));
    }
    let longest = plan.work.as_ref().map_or(MAX_MINUTES, |work| most_minutes(work.document.kind));
    if !(1..=longest).contains(&plan.minutes) {
        return Err(format!("{} minutes; a plan lasts 1 to {longest}", plan.minutes));
    }
    let is_branch =
        |name: &String| !name.is_empty() && name.chars().count() <= MAX_BRANCH_CHARS && is_one_line(name);
    if plan.branch.as_ref().is_some_and(|name| !is_branch(name)) {
        return Err(format!("a branch is one plain line of at most {MAX_BRANCH_CHARS} characters"));
    }
    for (n, step) in (1_u64..).zip(&plan.steps) {
        check_step(step).map_err(|problem| format!("step {n}: {problem}"))?;
    }
    // The task key of the plan has to hold all of it, so its size is checked before anyone is asked.
    let granted = plan_grants(plan);
    let scopes = granted.kinds.values().flatten();
    let (count, bytes) = scopes.fold((0_usize, 0_usize), |(count, bytes), (_, value)| {
        (count.saturating_add(1), bytes.saturating_add(value.len()))
    });
    if count > MAX_SCOPES || bytes > MAX_SCOPE_BYTES {
        return Err(format!(
            "its steps name {count} places, hosts and things; {MAX_SCOPES} fit into one key"
        ));
    }
    Ok(())
}

/// Returns the longest lifetime of a plan of a work item, in minutes.
pub const fn most_minutes(kind: WorkKind) -> u64 {
    match kind {
        WorkKind::Task | WorkKind::Project => MAX_MINUTES,
        WorkKind::Goal => MAX_GOAL_MINUTES,
        WorkKind::Pilot => MAX_PILOT_MINUTES,
    }
}

fn is_one_line(text: &str) -> bool {
    is_plain(text) && !text.contains(['\n', '\t'])
}

fn check_step(step: &PlanStep) -> Result<(), String> {
    if !(1..=MAX_TIMES).contains(&step.times) {
        return Err(format!("{} times; a step is done 1 to {MAX_TIMES} times", step.times));
    }
    slots::check_slots(step)?;
    match (&step.action, step.free) {
        // A plan inside a plan would be approved without being shown.
        (Action::Plan(_), _) => Err("a plan cannot be a step of one".to_owned()),
        (_, Free::Nothing) => Ok(()),
        // Inside the overlay a text changes nothing outside, so it may be left open.
        (Action::WriteFile(write), Free::Content) if write.place == Place::Overlay => Ok(()),
        (Action::CallTool(_), Free::Content) => Ok(()),
        (Action::Fetch(fetch), Free::Page) if is_page(fetch) => Ok(()),
        (action, Free::Content) => {
            Err(format!("'{}' has no content that could be left open", action.kind().as_str()))
        }
        (_, Free::Page) => Err("only what reads a web page can leave the page open".to_owned()),
    }
}

/// Returns true if a fetch only reads, from a host on which all readers of its URL agree.
fn is_page(fetch: &Fetch) -> bool {
    let reads = matches!(fetch.method.as_str(), "GET" | "HEAD") && fetch.body.is_none();
    // A page that is saved or sent has effects beyond being read.
    reads && fetch.save_to.is_none() && !fetch.large && Target::from_url(&fetch.url).is_ok()
}

/// Makes a step an action of its own, with the requester of the plan.
pub fn step_alone(plan: &Prepared, step: &PlanStep) -> Prepared {
    let sink =
        |(argument, value): &(String, String)| Sink { argument: argument.clone(), value: value.clone() };
    Prepared {
        action: step.action.clone(),
        tool: step.tool.clone(),
        sinks: step.sinks.iter().map(sink).collect(),
        bindings: step.bindings.clone(),
        ..plan.clone()
    }
}

/// Collects the grants for the task key of a plan: exactly what its steps touch.
pub fn plan_grants(plan: &Plan) -> Grants {
    let mut grants = Grants::default();
    for step in &plan.steps {
        grants.kinds.entry(step.action.kind()).or_default().extend(scope::attributes_of(&step.action));
    }
    grants
}

/// Marks the arguments of each step that rest on external content alone.
pub fn mark_external(plan: &mut Plan, label: &Label, origins: Option<&Origins>) {
    for step in plan.steps.iter_mut().filter(|_| label.taint == Taint::External) {
        // Without external content every argument is the owner's, so nothing has to be marked.
        let takes =
            if let Action::CallTool(call) = &step.action { call.takes.clone() } else { Default::default() };
        let is_foreign = |argument: &str, value: &str| {
            let sink = [Sink { argument: argument.to_owned(), value: value.to_owned() }];
            // Without known origins nothing is excused, so everything is marked.
            origins.is_none_or(|origins| origins.composed_sink(&step.tool, &sink, &takes).is_some())
        };
        // The value of a slot is none yet: a placeholder stands there.
        let foreign = step
            .sinks
            .iter()
            .filter(|(argument, value)| !step.slots.contains_key(argument) && is_foreign(argument, value));
        step.external = foreign.map(|(argument, _)| argument.clone()).collect();
    }
}

/// Returns true if a home that only does what is planned performs such an action within an approved plan
/// alone: a model's request to run a program, to write a file, or to drive a browser.
pub fn is_needed(prepared: &Prepared) -> bool {
    let is_of_kind = match prepared.action.kind().row().plan {
        PlanNeed::Never => false,
        PlanNeed::Always => true,
        PlanNeed::Sometimes => runs_or_writes(&prepared.action),
    };
    // Actions of people and of the harness come from no call of a model, and need no plan.
    is_of_kind && prepared.call.is_some()
}

/// Returns true if an action runs a program for the model, or writes a file into the work folder.
fn runs_or_writes(action: &Action) -> bool {
    // Programs of servers and gates are started by the harness, not requested by a model.
    if let Action::Exec(exec) = action {
        return matches!(exec.profile, ExecProfile::Task | ExecProfile::Verification);
    }
    // Writing into the project applies a diff, which is approved as a whole.
    if let Action::WriteFile(write) = action {
        return write.place == Place::Overlay;
    }
    // Of the kinds that the table calls `Sometimes`, this is the last; one that is added there wants a plan until it is named here.
    if let Action::Fetch(fetch) = action { fetch.save_to.is_some() } else { true }
}

/// Returns true if a step leaves something open and may be repeated so often, or so long, that its approval
/// needs a key: a tap covers twenty repetitions and an hour, as with an approval for the task.
pub(crate) fn is_wide(plan: &Plan, step: &PlanStep) -> bool {
    let is_open = step.free != Free::Nothing || !step.slots.is_empty();
    is_open && (step.times > MAX_TAPPED_TIMES || plan.minutes > MAX_TAPPED_MINUTES)
}

/// Returns true if an action is this step, whatever the values of its slots are.
pub fn means_action(step: &PlanStep, prepared: &Prepared) -> bool {
    if step.slots.is_empty() {
        return is_step(step, prepared);
    }
    slots::with_placeholders(step, prepared).is_some_and(|filled| is_step(step, &filled))
}

/// Returns true if an action is exactly this step, but for what it leaves free.
fn is_step(step: &PlanStep, prepared: &Prepared) -> bool {
    // Two tools write files, and the path decides which one fits.
    let is_same_tool = step.tool == prepared.tool
        || matches!(step.action, Action::WriteFile(_)) && step.free == Free::Content;
    let sinks = prepared.sinks.iter().map(|sink| (&sink.argument, &sink.value));
    let is_bound = step.bindings == prepared.bindings;
    let is_exact = || {
        // Bindings are compared in each case: another script under the same name is another step.
        is_bound
            && step.sinks.iter().map(|(argument, value)| (argument, value)).eq(sinks)
            && is_same(&step.action, &prepared.action)
    };
    is_same_tool
        && match (step.free, &step.action, &prepared.action) {
            (Free::Nothing, _, _) => is_exact(),
            (Free::Content, Action::WriteFile(planned), Action::WriteFile(requested)) => {
                let paths = |write: &WriteFile| -> BTreeSet<String> {
                    write.changes.iter().map(|change| change.path.clone()).collect()
                };
                // Only the content of the files is left open, not if they are written or deleted, nor if they are executable.
                let writes = |change: &FileChange| change.kind != ChangeKind::Delete;
                let runs = |write: &WriteFile| write.changes.iter().any(|change| change.executable);
                (planned.place, &planned.root) == (requested.place, &requested.root)
                    && paths(planned) == paths(requested)
                    && requested.changes.iter().all(writes)
                    && (!runs(requested) || runs(planned))
            }
            (Free::Content, Action::CallTool(planned), Action::CallTool(requested)) => {
                let fixed = |call: &CallTool, sinks: &[Sink]| pattern::standing::of_call(call, sinks);
                // Two calls are alike if their standing pattern is: recipients and places are fixed, content
                // is not.
                let planned_sinks = step_alone(prepared, step).sinks;
                let (own, other) = (fixed(planned, &planned_sinks), fixed(requested, &prepared.sinks));
                let words = |call: &CallTool| CallTool { arguments: serde_json::Value::Null, ..call.clone() };
                // Everything about the call but its arguments must be the same, declarations of the owner
                // among them.
                is_bound && own.is_some() && own == other && words(planned) == words(requested)
            }
            (Free::Page, Action::Fetch(planned), Action::Fetch(requested)) => {
                let target = |fetch: &Fetch| Target::from_url(&fetch.url).ok();
                // Two URLs that cannot be read are not the same target.
                is_page(requested) && target(planned).is_some() && target(planned) == target(requested)
            }
            (Free::Content | Free::Page, _, _) => false,
        }
}

/// Returns true if two actions do the same. The time limit of a program is no part of it.
fn is_same(planned: &Action, requested: &Action) -> bool {
    match (planned, requested) {
        (Action::Exec(planned), Action::Exec(requested)) => {
            // A program may be given more time without doing anything else.
            let requested = writ_types::action::Exec { timeout_ms: planned.timeout_ms, ..requested.clone() };
            *planned == requested
        }
        (planned, requested) => planned == requested,
    }
}

/// The plan that may cover an action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planned<'a> {
    /// One that a person has approved. The authority is that of its key then.
    pub in_force: Option<&'a ApprovedPlan>,
    /// Actions that [need a plan](is_needed) are performed under one only.
    pub only: bool,
}

/// An action that a plan may cover, with the questions about it.
pub(crate) struct StepQuestion<'a> {
    pub(crate) rules: &'a BTreeSet<String>,
    pub(crate) risk: Risk,
    pub(crate) approvers: u8,
}

/// A plan that a person has approved. Made only from an approval that was verified, and only under the rules that it
/// was given under.
///
/// ```compile_fail,E0451
/// use writ_policy::plan::ApprovedPlan;
///
/// fn forge(plan: ApprovedPlan) -> ApprovedPlan {
///     ApprovedPlan { people: 9, ..plan }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovedPlan {
    plan: Plan,
    ask: AskId,
    hash: Digest,
    nonce: String,
    risk: Risk,
    people: usize,
    ends: Timestamp,
    left: Vec<u32>,
}

impl ApprovedPlan {
    /// The plan that an approval was given for under the rules with digest `policy`; `left` says how often each of its
    /// steps may still be done, and `risk` is that of its card. None: the approval is for something else, was no yes,
    /// or the rules are others now.
    pub fn new(
        prepared: &Prepared,
        approval: &Approval,
        (risk, policy): (Risk, Digest),
        left: Vec<u32>,
    ) -> Option<Self> {
        let Action::Plan(plan) = &prepared.action else { return None };
        let (claims, hash) = (approval.claims(), prepared.hash(policy).ok()?);
        // An approval for a task or a standing one was given for a pattern, not for this plan.
        let is_for_it =
            claims.decision == Decision::Approve && claims.prepared == hash && claims.task.is_none();
        is_for_it.then(|| Self {
            plan: plan.clone(),
            ask: claims.ask.clone(),
            hash,
            nonce: claims.nonce.clone(),
            risk,
            people: approval.count_people(),
            ends: claims.expires_at,
            left,
        })
    }

    /// The steps that mean an action and have not been done as often as they may.
    pub fn steps_for(&self, prepared: &Prepared) -> impl Iterator<Item = (u32, &PlanStep)> {
        let steps = (0_u32..).zip(&self.plan.steps).zip(&self.left);
        // A step that was done as often as it may is over, also while the plan lasts.
        let open = steps.filter(|(_, left)| **left > 0).map(|(step, _)| step);
        open.filter(|(_, step)| means_action(step, prepared))
    }

    /// Finds the use of the plan that covers an action; `None` if it must be asked about alone.
    pub(crate) fn find_use(
        &self,
        (prepared, hash): (&Prepared, Digest),
        asked: &StepQuestion<'_>,
        (authority, origins): (&Authority, &Origins),
        now: Timestamp,
    ) -> Option<ApprovalUse> {
        let task = authority.task();
        // The key of the plan and its approval end separately; both must be in force.
        let is_in_force = task.plan == Some(self.hash) && now < self.ends && now < task.expires_at;
        // A plan answers no question that is riskier, or needs more people, than the one that was answered.
        let is_meant = asked.risk <= self.risk
            && usize::from(asked.approvers) <= self.people
            && !asks_about_this_time(asked.rules);
        let (n, step) = self.steps_for(prepared).find(|(_, step)| {
            is_in_force
                && is_meant
                && is_covered(step, prepared, asked)
                && slots::values_fit(step, prepared, origins)
        })?;
        Some(ApprovalUse {
            ask: self.ask.clone(),
            prepared: hash,
            nonce: self.nonce.clone(),
            task: None,
            amount: None,
            plan: Some(PlanUse { step: n, times: step.times, key: task.key }),
        })
    }
}

/// Returns true if the part of a step that was left open answers all these questions.
fn is_covered(step: &PlanStep, prepared: &Prepared, asked: &StepQuestion<'_>) -> bool {
    match (step.free, &prepared.action) {
        // Nobody has seen the values of its slots.
        (_, _) if !step.slots.is_empty() && asked.risk >= Risk::Irreversible => false,
        (Free::Nothing, _) => true,
        // An action that cannot be undone needs an approval of exactly this action.
        (Free::Content | Free::Page, _) if asked.risk >= Risk::Irreversible => false,
        (Free::Content, Action::CallTool(call)) => !(call.sends && prepared.label.taint == Taint::External),
        (Free::Content, _) => true,
        // An address that was composed after something was read from outside can carry it out.
        (Free::Page, _) => !asked.rules.contains(TAINT_RULE),
    }
}

#[cfg(test)]
mod tests;
