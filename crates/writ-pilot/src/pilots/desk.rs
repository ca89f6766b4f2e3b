//! The desk of the autopilot, at which the engine asks: each request is run to its end.

use writ_runtime::fleet::DeskAnswer;
use writ_runtime::pilot_desk::{BranchPush, PilotDesk, UnitChangeOrder};
use writ_types::api::pilot::{
    PilotBenchmark, PilotBenchmarkOrder, PilotChanges, PilotCheckup, PilotCircuitsReset, PilotCleaned,
    PilotCleaning, PilotDispatchOrder, PilotDispatched, PilotFindings, PilotGoal, PilotHistory,
    PilotHistoryQuery, PilotLog, PilotLogQuery, PilotPlanned, PilotProject, PilotRate, PilotRated,
    PilotRefreshed, PilotReload, PilotReloaded, PilotReport, PilotResolved, PilotRevert, PilotRevertPlan,
    PilotReverted, PilotScope, PilotSessionEnded, PilotSessionQuery, PilotState, PilotStatus, PilotTrace,
    PilotTraceQuery, PilotTrials, PilotUnitDetails, PilotUnitName, PilotUnitOrder, PilotUnitQuery,
    PilotUnitState,
};

use super::Pilots;

impl PilotDesk for Pilots {
    fn plan_goal(&self, goal: PilotGoal) -> DeskAnswer<'_, PilotPlanned> {
        self.answer(|own| async move { own.plan(goal).await })
    }

    fn show_status(&self, project: PilotProject) -> DeskAnswer<'_, PilotStatus> {
        self.answer(|own| async move { own.status(project).await })
    }

    fn show_unit(&self, unit: PilotUnitName) -> DeskAnswer<'_, PilotUnitDetails> {
        self.answer(|own| async move { own.unit(unit).await })
    }

    fn run_project(&self, project: PilotProject) -> DeskAnswer<'_, PilotStatus> {
        self.answer(|own| async move { own.run(project).await })
    }

    fn pause_project(&self, project: PilotProject) -> DeskAnswer<'_, PilotStatus> {
        self.answer(|own| async move { own.pause(project).await })
    }

    fn dispatch(&self, order: PilotDispatchOrder) -> DeskAnswer<'_, PilotDispatched> {
        self.answer(|own| async move { own.hand_out(order).await })
    }

    fn obey_order(&self, person: String, order: PilotUnitOrder) -> DeskAnswer<'_, PilotUnitDetails> {
        self.answer(|own| async move { own.obey(&person, order).await })
    }

    fn report(&self, scope: PilotScope) -> DeskAnswer<'_, PilotReport> {
        self.answer(|own| async move { own.report(scope).await })
    }

    fn show_log(&self, query: PilotLogQuery) -> DeskAnswer<'_, PilotLog> {
        self.answer(|own| async move { own.log(query).await })
    }

    fn show_changes(&self, unit: PilotUnitName) -> DeskAnswer<'_, PilotChanges> {
        self.answer(|own| async move { own.changes(unit).await })
    }

    fn plan_revert(&self, unit: PilotUnitName) -> DeskAnswer<'_, PilotRevertPlan> {
        self.answer(|own| async move { own.revert_plan(unit).await })
    }

    fn revert(&self, person: String, order: PilotRevert) -> DeskAnswer<'_, PilotReverted> {
        self.answer(|own| async move {
            tracing::info!(person, unit = order.unit, "a unit is undone");
            own.undo(order).await
        })
    }

    fn resolve(&self, person: String, unit: PilotUnitName) -> DeskAnswer<'_, PilotResolved> {
        self.answer(|own| async move { own.resolve_conflict(&person, unit).await })
    }

    fn reload(&self, order: PilotReload) -> DeskAnswer<'_, PilotReloaded> {
        self.answer(|own| async move { own.read_plan(order).await })
    }

    fn check_up(&self, order: PilotCheckup) -> DeskAnswer<'_, PilotFindings> {
        self.answer(|own| async move { own.look_for_faults(order).await })
    }

    fn rate_run(&self, order: PilotRate) -> DeskAnswer<'_, PilotRated> {
        self.answer(|own| async move { own.rate(order).await })
    }

    fn reset_circuits(&self, project: PilotProject) -> DeskAnswer<'_, PilotCircuitsReset> {
        self.answer(|own| async move { own.reset_circuits(project).await })
    }

    fn measure_models(&self, order: PilotBenchmarkOrder) -> DeskAnswer<'_, PilotBenchmark> {
        self.answer(|own| async move { own.measure(order).await })
    }

    fn end_session(&self, project: PilotProject) -> DeskAnswer<'_, PilotSessionEnded> {
        self.answer(|own| async move { own.end_session(project).await })
    }

    fn show_state(&self, query: PilotSessionQuery) -> DeskAnswer<'_, PilotState> {
        self.answer(|own| async move { own.state(query).await })
    }

    fn show_unit_state(&self, query: PilotUnitQuery) -> DeskAnswer<'_, PilotUnitState> {
        self.answer(|own| async move { own.unit_state(query).await })
    }

    fn refresh(&self, query: PilotSessionQuery) -> DeskAnswer<'_, PilotRefreshed> {
        self.answer(|own| async move { own.refresh_loops(query).await })
    }

    fn find_spans(&self, query: PilotTraceQuery) -> DeskAnswer<'_, PilotTrace> {
        self.answer(|own| async move { own.spans(query).await })
    }

    fn list_history(&self, query: PilotHistoryQuery) -> DeskAnswer<'_, PilotHistory> {
        self.answer(|own| async move { own.history(query).await })
    }

    fn clean_up(&self, order: PilotCleaning) -> DeskAnswer<'_, PilotCleaned> {
        self.answer(|own| async move { own.clean(order).await })
    }

    fn change_units(&self, order: UnitChangeOrder) -> DeskAnswer<'_, String> {
        self.answer(|own| async move { own.change_units_of(order).await })
    }

    fn push_branch(&self, push: BranchPush) -> DeskAnswer<'_, ()> {
        self.answer(|own| async move { own.push(push).await })
    }

    fn try_gates(&self, project: PilotProject) -> DeskAnswer<'_, PilotTrials> {
        self.answer(|own| async move { own.trials(project).await })
    }
}
