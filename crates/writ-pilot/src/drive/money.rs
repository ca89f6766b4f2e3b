//! Ceilings of money, asked before a worker begins: it gets at most what is left of the narrowest one.

use writ_autopilot::ceiling::{CeilingScope, ScopeMoney, check_ceilings};
use writ_autopilot::phase::PilotPhase;
use writ_autopilot::unit_id::UnitId;
use writ_store::reads::UnitReads as _;
use writ_types::error::{Exit, Report};
use writ_types::unit::MicroUsd;

use crate::error::AutopilotError;
use crate::project::OpenProject;

/// The answer to a worker that wants to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MoneyAnswer {
    /// It may spend so much; `None`: no ceiling is set.
    Most(Option<MicroUsd>),
    /// Others may spend all that is left: it waits for their end.
    Wait,
    /// A ceiling is reached, in words.
    Reached(String),
}

/// The money of each scope: what was spent, and what workers that run may spend still.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ScopeSums {
    done: ScopeMoney,
    promised: ScopeMoney,
}

/// Returns true for a phase in which a model is paid.
const fn is_paid(phase: PilotPhase) -> bool {
    use PilotPhase::{Execute, Plan, Reassess, Research, Review, Tdd};
    matches!(phase, Research | Plan | Execute | Tdd | Review | Reassess)
}

/// Asks the ceilings about a worker for a unit in a phase. With `asks_agent` a merge asks an agent first: without money it goes on
/// without that.
///
/// # Errors
///
/// If the store cannot be read.
pub(super) async fn allow_work(
    project: &OpenProject,
    (id, phase): (UnitId, PilotPhase),
    asks_agent: bool,
) -> Result<MoneyAnswer, AutopilotError> {
    let limits = project.config().ceilings.clone();
    if !(is_paid(phase) || asks_agent) || limits.is_empty() {
        return Ok(MoneyAnswer::Most(None));
    }
    let spent = read_spent(project, Some(id)).await?;
    match judge(&limits, &spent) {
        MoneyAnswer::Reached(_) if asks_agent => Ok(MoneyAnswer::Most(Some(MicroUsd::ZERO))),
        answer @ (MoneyAnswer::Most(_) | MoneyAnswer::Wait | MoneyAnswer::Reached(_)) => Ok(answer),
    }
}

/// Returns the most money of a question to the planner, which belongs to no unit yet.
///
/// # Errors
///
/// If the ceiling of the day is reached, or the store cannot be read.
pub(crate) async fn allow_question(project: &OpenProject) -> Result<Option<MicroUsd>, AutopilotError> {
    let limits = project.config().ceilings.clone();
    if limits.is_empty() {
        return Ok(None);
    }
    let spent = read_spent(project, None).await?;
    match judge(&limits, &spent) {
        MoneyAnswer::Most(most) => Ok(most),
        MoneyAnswer::Wait => Err(reached("the attempts that run may spend what is left for today")),
        MoneyAnswer::Reached(why) => Err(reached(&why)),
    }
}

fn reached(why: &str) -> AutopilotError {
    let hint = "raise the ceiling in `.writ/pilot.toml` or in the home's `pilot.toml`, or try again tomorrow";
    Report::new(Exit::Budget, "pilot.ceiling", why.to_owned()).with_hint(hint).into()
}

async fn read_spent(project: &OpenProject, id: Option<UnitId>) -> Result<ScopeSums, AutopilotError> {
    let mut spent = ScopeSums::default();
    let scopes = |of: UnitId| {
        let mut scopes = vec![CeilingScope::Day];
        if let Some(id) = id {
            scopes.extend((of == id).then_some(CeilingScope::Unit));
            scopes.extend((of.root() == id.root()).then_some(CeilingScope::Milestone));
        }
        scopes
    };
    let add = |to: &mut ScopeMoney, scope, cost: MicroUsd| {
        let sum = to.entry(scope).or_default();
        *sum = sum.saturating_add(cost);
    };
    for one in project.hands.store().unit_costs(&project.name, project.hands.day_start()).await? {
        let Ok(of) = one.unit.parse::<UnitId>() else { continue };
        for scope in scopes(of) {
            add(&mut spent.done, scope, if scope == CeilingScope::Day { one.since } else { one.cost });
        }
    }
    // Also what it has not spent yet: together they would pass the ceiling.
    for (of, live) in project.live().iter() {
        let Some(promised) = live.course.promised else { continue };
        scopes(*of).into_iter().for_each(|scope| add(&mut spent.promised, scope, promised));
    }
    Ok(spent)
}

fn judge(limits: &ScopeMoney, spent: &ScopeSums) -> MoneyAnswer {
    let least = MicroUsd::new(1);
    // Only what is spent holds a person up: what is promised comes back or is spent soon.
    if let Err(hit) = check_ceilings(limits, &spent.done, least) {
        return MoneyAnswer::Reached(hit.to_string());
    }
    let of = |money: &ScopeMoney, scope| money.get(scope).copied().unwrap_or_default();
    let left = limits.iter().map(|(scope, limit)| {
        limit.saturating_sub(of(&spent.done, scope)).saturating_sub(of(&spent.promised, scope))
    });
    match left.min() {
        Some(MicroUsd::ZERO) => MoneyAnswer::Wait,
        left => MoneyAnswer::Most(left),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CeilingScope::{Day, Milestone, Run, Unit};

    fn money(pairs: &[(CeilingScope, u64)]) -> ScopeMoney {
        pairs.iter().map(|(scope, amount)| (*scope, MicroUsd::new(*amount))).collect()
    }

    #[test]
    fn a_worker_gets_what_the_narrowest_ceiling_leaves() {
        let limits = money(&[(Run, 100), (Unit, 250), (Milestone, 1_000), (Day, 500)]);
        let ask = |done: &[(CeilingScope, u64)], promised: &[(CeilingScope, u64)]| {
            judge(&limits, &ScopeSums { done: money(done), promised: money(promised) })
        };
        let most = |amount| MoneyAnswer::Most(Some(MicroUsd::new(amount)));
        assert_eq!(ask(&[], &[]), most(100));
        assert_eq!(ask(&[(Unit, 200)], &[]), most(50));
        assert_eq!(ask(&[(Unit, 200), (Day, 460)], &[]), most(40));
        assert_eq!(ask(&[(Day, 300)], &[(Day, 150)]), most(50));
        assert_eq!(ask(&[(Day, 300)], &[(Day, 200)]), MoneyAnswer::Wait, "others may spend the rest");
        let MoneyAnswer::Reached(why) = ask(&[(Unit, 250)], &[(Day, 200)]) else { panic!("it is reached") };
        assert!(why.contains("the ceiling of the unit is $0.00025"), "{why}");
        let MoneyAnswer::Reached(why) = ask(&[(Milestone, 2_000)], &[]) else { panic!("it is reached") };
        assert!(why.contains("milestone"), "{why}");
        assert_eq!(judge(&ScopeMoney::new(), &ScopeSums::default()), MoneyAnswer::Most(None));
    }
}
