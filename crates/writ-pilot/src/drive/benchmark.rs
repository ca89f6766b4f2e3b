//! A measurement of the models of all tiers: each plans tasks of the project that are done, and the harness reads its plans. The results are
//! rows like the ratings of runs, by which the models of a tier are ordered.

use std::collections::BTreeMap;
use std::time::Duration;

use writ_autopilot::phase::PilotPhase;
use writ_autopilot::routing::{ModelResult, RunRating, UnitReach, order_models};
use writ_autopilot::unit_id::{UnitId, UnitType};
use writ_runtime::clock::Ids;
use writ_runtime::pilot::ModelTask;
use writ_store::batch::Op;
use writ_store::reads::UnitReads as _;
use writ_store::units::{MAX_UNITS, ResultRow, UnitOp};
use writ_types::api::pilot::{PilotBenchmark, PilotBenchmarkLine, PilotBenchmarkOrder};
use writ_types::unit::MicroUsd;

use super::agent::{is_plan_of, planned_unit};
use super::allow_question;
use super::choice::read_result;
use crate::error::AutopilotError;
use crate::project::OpenProject;
use crate::prompts::{UnitPrompt, describe_issue};
use crate::standing::UnitRecord;

/// The number of tasks where none is named.
const USUAL_SAMPLES: usize = 3;
/// The most tasks of a measurement: each is paid for with every model.
const MAX_SAMPLES: usize = 10;
/// The name of the tier of the engine's own models, where no tier has any.
const ENGINE: &str = "engine";

/// The result of one task.
struct SampleResult {
    fingerprint: String,
    is_readable: bool,
    took: Duration,
    cost: MicroUsd,
}

/// Measures every model of the tiers. One that fails is reported, and the others are measured all the same.
///
/// # Errors
///
/// If no task of the project is done, the ceiling of the day is reached, or the engine or the store refuse.
pub(crate) async fn measure_models(
    project: &OpenProject,
    order: &PilotBenchmarkOrder,
) -> Result<PilotBenchmark, AutopilotError> {
    let most = if order.samples == 0 { USUAL_SAMPLES } else { order.samples.min(MAX_SAMPLES) };
    let units = choose_samples(project, most).await?;
    if units.is_empty() {
        return Err(AutopilotError::NoSample);
    }
    let config = project.config();
    let mut models: Vec<(String, String)> = Vec::new();
    for (tier, names) in &config.tiers {
        models.extend(names.iter().map(|name| (tier.name().to_owned(), name.clone())));
    }
    if models.is_empty() {
        models.extend(project.hands.executor_models().into_iter().map(|name| (ENGINE.to_owned(), name)));
    }
    let mut lines = Vec::new();
    for (tier, model) in models {
        lines.push(measure_model(project, (tier, model), &units).await?);
    }
    Ok(PilotBenchmark { lines })
}

/// Chooses the newest tasks that have succeeded.
async fn choose_samples(project: &OpenProject, most: usize) -> Result<Vec<UnitRecord>, AutopilotError> {
    let lines = project.hands.store().unit_lines(&project.name, MAX_UNITS).await?;
    let is_sample = |id: &UnitId| id.unit_type() == UnitType::Task;
    // The newest are most like what comes next.
    let done = lines.iter().rev().filter(|line| line.is_over && line.phase_status == "succeeded");
    let ids: Vec<UnitId> =
        done.filter_map(|line| line.id.parse().ok()).filter(is_sample).take(most).collect();
    let mut units = Vec::new();
    for id in ids {
        units.push(project.read_unit(id).await?);
    }
    Ok(units)
}

async fn measure_model(
    project: &OpenProject,
    (tier, model): (String, String),
    units: &[UnitRecord],
) -> Result<PilotBenchmarkLine, AutopilotError> {
    let (mut results, mut error) = (Vec::new(), String::new());
    for unit in units {
        let (max_cost, text) = (allow_question(project).await?, task_of(project, unit, &model)?);
        let task = ModelTask { model: model.clone(), text, max_cost };
        let answer = project.hands.ask_model(project.git.project().top_dir(), task).await?;
        match answer.text {
            Ok(text) => results.push(SampleResult {
                fingerprint: UnitReach::of_texts(&[&unit.row.description]).fingerprint(PilotPhase::Plan),
                is_readable: is_plan_of(&text, unit.id),
                took: answer.took,
                cost: answer.cost,
            }),
            // Its failure says nothing about its work, so it is no result.
            Err(why) => {
                error = why;
                break;
            }
        }
    }
    if error.is_empty() {
        store_results(project, &model, units, &results).await?;
    }
    let readable = results.iter().filter(|one| one.is_readable).count();
    Ok(PilotBenchmarkLine {
        tier,
        model,
        samples: results.len(),
        readable,
        took_ms: median_ms(&results),
        cost: results.iter().fold(MicroUsd::ZERO, |sum, one| sum.saturating_add(one.cost)),
        error,
    })
}

/// Writes the prompt of the phase plan for a task, as its agent has read it.
fn task_of(project: &OpenProject, unit: &UnitRecord, model: &str) -> Result<String, AutopilotError> {
    let (session, now) = (project.session().to_string(), project.hands.now().to_string());
    let input = UnitPrompt {
        unit_id: unit.id,
        phase: PilotPhase::Plan,
        session_id: &session,
        issue: describe_issue(&planned_unit(unit)),
        retry: None,
        plan: None,
        plan_path: "plan.md",
        plan_version: 1,
        notes: None,
        gates: &[],
        findings: &[],
        now: &now,
        model,
    };
    Ok(project.prompts.render_work(&input)?)
}

/// Stores one result for each class of tasks: right where most plans of the class can be read.
async fn store_results(
    project: &OpenProject,
    model: &str,
    units: &[UnitRecord],
    results: &[SampleResult],
) -> Result<(), AutopilotError> {
    let mut classes: BTreeMap<&str, Vec<(&UnitRecord, &SampleResult)>> = BTreeMap::new();
    for (unit, result) in units.iter().zip(results) {
        classes.entry(&result.fingerprint).or_default().push((unit, result));
    }
    let at = project.hands.now();
    let mut ops = Vec::new();
    for (fingerprint, of_class) in classes {
        let Some((unit, _)) = of_class.first() else { continue };
        let readable = of_class.iter().filter(|(_, one)| one.is_readable).count();
        // A class is right or not as a whole: one bad plan of three may be chance.
        let rating = if readable * 2 > of_class.len() { RunRating::Ok } else { RunRating::Under };
        let count = u64::try_from(of_class.len()).unwrap_or(u64::MAX);
        let cost = of_class.iter().fold(MicroUsd::ZERO, |sum, (_, one)| sum.saturating_add(one.cost));
        let took = of_class.iter().map(|(_, one)| one.took);
        let known = project.hands.store().model_results(&project.name, fingerprint).await?;
        let earlier: Vec<ModelResult> = known.into_iter().filter_map(read_result).collect();
        let is_barred = order_models(&[model.to_owned()], &earlier, &project.config().scores).is_empty();
        ops.push(Op::Units(UnitOp::AddResult(Box::new(ResultRow {
            key: unit.row.key.clone(),
            run: Ids.unit_run(at),
            model: model.to_owned(),
            fingerprint: fingerprint.to_owned(),
            rating: rating.name().to_owned(),
            // A barred model gets no runs, so nothing else would lift what one bad measurement has said. A person has ordered this one.
            is_human: is_barred && rating == RunRating::Ok,
            took_ms: median_of(took),
            cost: MicroUsd::new(cost.get().checked_div(count).unwrap_or(0)),
            at,
        }))));
    }
    project.hands.commit(ops).await?;
    Ok(())
}

fn median_ms(results: &[SampleResult]) -> u64 {
    median_of(results.iter().map(|one| one.took))
}

/// Returns the time in the middle, in milliseconds; of an even number the later of both.
fn median_of(times: impl Iterator<Item = Duration>) -> u64 {
    let mut millis: Vec<u64> =
        times.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)).collect();
    millis.sort_unstable();
    millis.get(millis.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_in_the_middle_is_that_of_the_samples() {
        let of = |millis: &[u64]| median_of(millis.iter().copied().map(Duration::from_millis));
        assert_eq!((of(&[]), of(&[7]), of(&[9, 1, 5]), of(&[4, 1])), (0, 7, 5, 4));
    }
}
