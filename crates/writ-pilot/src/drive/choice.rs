//! The choice of a model before an attempt: the tier by the table, raised after failures and for units that reach far, and in the tier
//! the model that has done best with units like this one.

use std::collections::BTreeSet;

use writ_autopilot::failure::FailureCode;
use writ_autopilot::routing::{ModelResult, RunRating, UnitReach, order_models};
use writ_store::batch::Op;
use writ_store::reads::UnitReads as _;
use writ_store::units::{ChoiceRow, ResultRow, UnitOp};

use writ_types::unit::MicroUsd;

use super::WorkClaim;
use crate::circuits::open_circuits;
use crate::config::PilotTier;
use crate::error::AutopilotError;
use crate::project::OpenProject;
use crate::standing::UnitRecord;
use crate::unit_files::UnitFile;

/// A choice of a model.
pub(super) struct PilotChoice {
    /// The model, as `provider/name`, `None`: that of the engine; or the reason for which there is none.
    pub(super) model: Result<Option<String>, NoModel>,
    /// Its tier.
    pub(super) tier: PilotTier,
    row: ChoiceRow,
}

/// The reason for which no model can be asked.
#[derive(Clone, Debug)]
pub(super) struct NoModel {
    /// The code of the error.
    pub(super) code: FailureCode,
    /// The reason, with what a person can do.
    pub(super) why: String,
}

impl NoModel {
    fn unavailable(why: String) -> Self {
        Self { code: FailureCode::ModelUnavailable, why }
    }

    /// The circuit of each model is open.
    fn of_circuits(models: &[&String]) -> Self {
        let names: Vec<&str> = models.iter().map(|name| name.as_str()).collect();
        let why = format!(
            "no model is asked for a day, since each has failed several times in a row: {}; `writ pilot reset-circuits` lifts that, then `writ pilot resume`",
            names.join(", ")
        );
        Self { code: FailureCode::CircuitOpen, why }
    }
}

/// Chooses the model of an attempt.
///
/// # Errors
///
/// If the store or the plan of the unit cannot be read.
pub(super) async fn choose_model(
    project: &OpenProject,
    work: &WorkClaim,
) -> Result<PilotChoice, AutopilotError> {
    let (unit, config) = (&work.unit, project.config());
    let phase = unit.stand.phase;
    let plan = project.files.read_file(unit.id, UnitFile::Plan)?;
    let reach = UnitReach::of_texts(&[&unit.row.description, &plan]);
    let (score, fingerprint) = (reach.score(), reach.fingerprint(phase));
    let failed = failed_tries(unit);
    let usual = config.models_of(phase, failed, false).0;
    let (tier, models) = config.models_of(phase, failed, score > config.complexity_threshold);
    let found = project.hands.store().model_results(&project.name, &fingerprint).await?;
    let results: Vec<ModelResult> = found.into_iter().filter_map(read_result).collect();
    let open = open_circuits(project).await?;
    let model = match order_models(models, &results, &config.scores) {
        _ if models.is_empty() => pick_of_engine(&project.hands.executor_models(), &open),
        ordered if ordered.is_empty() => Err(NoModel::unavailable(format!(
            "every model of the tier '{}' was rated as not good enough for units like this: `writ pilot rate ok` lifts that",
            tier.name()
        ))),
        ordered => pick(project, (tier, models), &ordered, &open).map(Some),
    };
    let row = ChoiceRow {
        key: unit.row.key.clone(),
        run: work.run,
        phase: phase.name().to_owned(),
        fingerprint,
        score_milli: to_milli(score),
        is_raised: tier != usual,
        tier: tier.name().to_owned(),
        model: model.clone().ok().flatten().unwrap_or_default(),
        at: project.hands.now(),
    };
    Ok(PilotChoice { model, tier, row })
}

/// Writes a choice down, for later ones.
///
/// # Errors
///
/// If the store cannot be written.
pub(super) async fn note_choice(project: &OpenProject, choice: &PilotChoice) -> Result<(), AutopilotError> {
    project.hands.commit(vec![Op::Units(UnitOp::NoteChoice(Box::new(choice.row.clone())))]).await?;
    Ok(())
}

/// Adds the rating that a run has given itself, if it has one: a missing or odd one adds none, and fails nothing.
///
/// # Errors
///
/// If the store cannot be read or written.
pub(super) async fn note_self_rating(
    project: &OpenProject,
    work: &WorkClaim,
    (said, cost): (&str, MicroUsd),
) -> Result<(), AutopilotError> {
    let Some(rating) = RunRating::find_in(said) else { return Ok(()) };
    let (store, key, at) = (project.hands.store(), &work.unit.row.key, project.hands.now());
    let choices = store.unit_choices(key.clone()).await?;
    let runs = store.unit_runs(key.clone()).await?;
    let choice = choices.into_iter().rfind(|choice| choice.run == work.run);
    let run = runs.into_iter().rfind(|run| run.id == work.run);
    let Some((choice, run)) = choice.zip(run) else { return Ok(()) };
    let row = ResultRow {
        key: choice.key,
        run: choice.run,
        model: choice.model,
        fingerprint: choice.fingerprint,
        rating: rating.name().to_owned(),
        is_human: false,
        took_ms: at.time_since(run.started_at).as_millis().try_into().unwrap_or(u64::MAX),
        cost,
        at,
    };
    project.hands.commit(vec![Op::Units(UnitOp::AddResult(Box::new(row)))]).await?;
    Ok(())
}

/// Takes the first one that answers; where none has answered, the first one is asked again.
fn pick(
    project: &OpenProject,
    (tier, models): (PilotTier, &[String]),
    ordered: &[&String],
    open: &BTreeSet<String>,
) -> Result<String, NoModel> {
    let offered: Vec<&String> =
        ordered.iter().copied().filter(|name| project.hands.offers_model(name)).collect();
    if offered.is_empty() {
        let (tier, models) = (tier.name(), models.join(", "));
        let why = format!("no model of the tier '{tier}' is configured in the engine: {models}");
        return Err(NoModel::unavailable(why));
    }
    let closed: Vec<&String> = offered.iter().copied().filter(|name| !open.contains(*name)).collect();
    let answers = closed.iter().find(|name| !project.seen.is_silent(name));
    answers.or(closed.first()).map(|name| (*name).clone()).ok_or_else(|| NoModel::of_circuits(&offered))
}

/// Takes the engine's model, or the first of those that it falls back on and that is not passed over.
fn pick_of_engine(models: &[String], open: &BTreeSet<String>) -> Result<Option<String>, NoModel> {
    match models.iter().position(|name| !open.contains(name)) {
        Some(0) => Ok(None),
        Some(place) => Ok(models.get(place).cloned()),
        // Without a model the engine says itself what is missing.
        None if models.is_empty() => Ok(None),
        None => Err(NoModel::of_circuits(&models.iter().collect::<Vec<_>>())),
    }
}

/// The number of tries of a unit that have failed, for the choice of a stronger model: attempts, rounds of a gate, and rounds of the
/// review.
fn failed_tries(unit: &UnitRecord) -> u32 {
    let counters = &unit.stand.counters;
    // Gates fail together: the one that failed most counts.
    let gates = counters.gate_failures.values().copied().max().unwrap_or(0);
    counters.failures.saturating_add(gates).saturating_add(counters.review_rounds)
}

pub(super) fn read_result(row: ResultRow) -> Option<ModelResult> {
    let rating = RunRating::ALL.into_iter().find(|rating| rating.name() == row.rating)?;
    let ResultRow { model, is_human, took_ms, cost, .. } = row;
    Some(ModelResult { model, rating, is_human, took_ms, cost: cost.get() })
}

/// A score from 0 to 1 in thousandths.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value lies between 0 and 1,000"
)]
fn to_milli(score: f64) -> u32 {
    (score.clamp(0.0, 1.0) * 1_000.0).round() as u32
}
