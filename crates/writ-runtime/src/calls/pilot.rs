//! Calls about the autopilot of a project.

use serde_json::Value;
use writ_policy::principal::Authenticated;
use writ_types::error::Report;

use super::{Call, as_json};
use crate::error::EngineError;
use crate::methods as m;
use crate::services::Services;

/// Declares the calls that the autopilot answers: their pattern for the table of all calls, and the function that answers them.
macro_rules! pilot_calls {
    (($desk:ident, $who:ident, $params:ident) $($call:ident => $answer:expr;)+) => {
        macro_rules! any_call {
            () => { ($(Call::$call(_))|+) };
        }
        pub(super) use any_call;

        /// Answers a call about the autopilot.
        pub(super) async fn answer_call(
            services: &Services,
            $who: &Authenticated<()>,
            call: Call,
        ) -> Result<Value, EngineError> {
            let $desk = services.life.autopilot().clone().ok_or(EngineError::NoAutopilot)?;
            let refused = |report: Report| EngineError::Autopilot(Box::new(report));
            match call {
                $(Call::$call($params) => as_json::<m::$call>($answer.await.map_err(refused)),)+
                _ => Err(EngineError::NoMethod("pilot".to_owned())),
            }
        }
    };
}

pilot_calls! { (desk, who, params)
    PilotPlan => desk.plan_goal(params);
    PilotShow => desk.show_status(params);
    PilotUnit => desk.show_unit(params);
    PilotRun => desk.run_project(params);
    PilotPause => desk.pause_project(params);
    PilotDispatch => desk.dispatch(params);
    PilotOrder => desk.obey_order(who.principal().to_string(), params);
    PilotReportOf => desk.report(params);
    PilotLogOf => desk.show_log(params);
    PilotChangesOf => desk.show_changes(params);
    PilotRevertShow => desk.plan_revert(params);
    PilotRevertUnit => desk.revert(who.principal().to_string(), params);
    PilotResolve => desk.resolve(who.principal().to_string(), params);
    PilotReloadPlan => desk.reload(params);
    PilotDoctor => desk.check_up(params);
    PilotRateRun => desk.rate_run(params);
    PilotTry => desk.try_gates(params);
    PilotResetCircuits => desk.reset_circuits(params);
    PilotMeasure => desk.measure_models(params);
    PilotEndSession => desk.end_session(params);
    PilotStateOf => desk.show_state(params);
    PilotUnitStateOf => desk.show_unit_state(params);
    PilotRefresh => desk.refresh(params);
    PilotForensics => desk.find_spans(params);
    PilotHistoryOf => desk.list_history(params);
    PilotClean => desk.clean_up(params);
}
