//! The digest: a model distils the memories into the curated profile of the owner, which stands in every context.
//!
//! The profile is data: its label is the join of the labels of the memories and of the profile that the model has read. The store
//! has the profile that counts; the file in the home is a copy for people, and nothing reads it.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use writ_memory::digest::{DIGEST_SYSTEM, DigestAnswer, DigestMaterial, SuggestedForm, read_profile};
use writ_models::ModelRole;
use writ_models::structured::{self, MAX_REQUESTS};
use writ_store::batch::Op;
use writ_store::memory::{Memory, MemoryOp, MemoryQuestion, QuestionKind};
use writ_store::reads::MemoryReads as _;
use writ_types::api::memory::{CuratedProfile, DigestOutcome, DigestReport, DigestSuggestion, ProfileView};
use writ_types::chat::{ChatMessage, ModelRequest, Part, Role, ToolSpecs};
use writ_types::taint::Label;
use writ_types::unit::{MicroUsd, Timestamp, Tokens};

use crate::error::EngineError;
use crate::jobs::Progress;
use crate::memories::DigestState;
use crate::place::CallPlace;
use crate::services::Services;
use crate::{budget, model};

/// Memories that one read brings.
const READ_AT_ONCE: usize = 2_000;

/// The most tokens of an answer: the profile and the lists, with room for models that think aloud.
const MAX_ANSWER: Tokens = Tokens::new(4_000);

/// The subject of the message to the owner.
const TITLE: &str = "Digest of the memory";

/// Runs the digest as a job.
///
/// # Errors
///
/// As [`digest_memories`].
pub(crate) async fn run_digest(services: &Arc<Services>) -> Result<Progress, EngineError> {
    digest_memories(services).await.map(|_| Progress::Complete)
}

/// Distils the memories into the profile. Without a memory, or with the memories of the last time, no model is asked.
///
/// # Errors
///
/// If the store or the file cannot be used, or no model gives a profile; the old profile then stays.
pub(crate) async fn digest_memories(services: &Arc<Services>) -> Result<ProfileView, EngineError> {
    let _digesting = services.memories.digesting.lock().await;
    let state = services.memories.digest_state().await?;
    let material = read_material(services, &state).await?;
    let fingerprint = material.fingerprint();
    if material.memories().is_empty() {
        return Ok(end_digest(services, state, &material, DigestOutcome::NothingRemembered));
    }
    if fingerprint == state.fingerprint {
        return Ok(end_digest(services, state, &material, DigestOutcome::NothingNew));
    }
    let label = label_of(&material, state.view.profile.as_ref());
    let cancel = services.life.draining.child_token();
    let answer = ask_observer(services, &material, (&state, &label), &cancel).await?;
    store_answer(services, state, (&material, &label), answer).await
}

/// Forgets the profile; no memory is forgotten, and the next digest writes it anew.
///
/// # Errors
///
/// If the store cannot be read or written.
pub(crate) async fn clear_profile(services: &Services) -> Result<ProfileView, EngineError> {
    let _digesting = services.memories.digesting.lock().await;
    write_file(services, "").await?;
    services.memories.store_digest(&DigestState::default(), Vec::new()).await?;
    Ok(ProfileView::default())
}

async fn read_material(services: &Services, state: &DigestState) -> Result<DigestMaterial, EngineError> {
    let (mut material, mut row) = (DigestMaterial::new(state.upto), 0);
    loop {
        let memories = services.journal.store.memories_after(row, READ_AT_ONCE).await?;
        let Some(last) = memories.last() else { return Ok(material.finish()) };
        row = last.row;
        memories.into_iter().for_each(|memory| material.add_memory(memory));
    }
}

/// Returns the label of what is written from memories and a profile.
fn label_of(material: &DigestMaterial, profile: Option<&CuratedProfile>) -> Label {
    let mut label = Label::new(material.taint());
    profile.iter().for_each(|profile| label.join(&Label::new(profile.taint)));
    label
}

fn request_of(material: &DigestMaterial, state: &DigestState, label: &Label) -> ModelRequest {
    let profile = state.view.profile.as_ref().map(|profile| profile.text.as_str());
    let parts = vec![Part::Text { text: material.request_text(profile) }];
    ModelRequest {
        system: DIGEST_SYSTEM.to_owned(),
        messages: vec![Arc::new(ChatMessage { role: Role::User, parts, label: label.clone() })],
        tools: ToolSpecs::default(),
        max_output_tokens: MAX_ANSWER,
        form: None,
        effort: None,
    }
}

/// Asks a model of the role observer, and once more where its answer has another form.
async fn ask_observer(
    services: &Arc<Services>,
    material: &DigestMaterial,
    (state, label): (&DigestState, &Label),
    cancel: &CancellationToken,
) -> Result<DigestAnswer, EngineError> {
    let place = model::engine_place(services).await?;
    let mut request = Arc::new(request_of(material, state, label));
    let (mut cost, mut why) = (MicroUsd::ZERO, String::new());
    for _ in 0..MAX_REQUESTS {
        let spent = budget::read_spent(services, &place.session, cost, &[]).await?;
        let place = CallPlace { spent, ..place.clone() };
        let asked = model::ask(&place, ModelRole::Observer, (Arc::clone(&request), label), cancel).await?;
        cost = cost.saturating_add(asked.cost);
        place.commit(asked.ops).await?;
        let reply = match asked.reply {
            Ok(reply) => reply,
            Err(why) => {
                renew_session(services, &place).await?;
                return Err(EngineError::Digest(why));
            }
        };
        match structured::read_structured(&reply.text, |answer| material.check_answer(answer)) {
            Ok(answer) => return Ok(answer),
            Err(error) => {
                request = Arc::new(structured::once_more(&request, reply.text, &error));
                why = error;
            }
        }
    }
    Err(EngineError::Digest(format!("the model's answer is none: {why}")))
}

/// Closes the engine's session if its tokens are used up: the next digest has another.
async fn renew_session(services: &Services, place: &CallPlace) -> Result<(), EngineError> {
    let session = place.session.as_ref();
    let limit = services.keys.limits_of(Some(session)).max_tokens_per_session;
    let spent = budget::read_spent(services, session, MicroUsd::ZERO, &[]).await?;
    if spent.session_tokens < limit {
        return Ok(());
    }
    model::end_session(services, session).await
}

/// Stores a checked answer: the file first, so that the store never names a profile that could not be written.
async fn store_answer(
    services: &Arc<Services>,
    mut state: DigestState,
    (material, label): (&DigestMaterial, &Label),
    answer: DigestAnswer,
) -> Result<ProfileView, EngineError> {
    // Masked first: what replaces a secret counts towards the bounds.
    let masked = services.journal.redactor.mask_text(&answer.profile);
    let profile = read_profile(&masked).map_err(|fault| EngineError::Digest(fault.to_string()))?;
    let now = services.journal.clock.now();
    let is_same =
        state.view.profile.as_ref().is_some_and(|old| old.text == profile && old.taint == label.taint);
    let mut note = None;
    if !is_same {
        note = write_file(services, &profile).await?;
        state.view.profile = Some(CuratedProfile { text: profile, taint: label.taint, at: now.to_string() });
    }
    let outcome = if is_same { DigestOutcome::Unchanged } else { DigestOutcome::Written };
    let questions = questions_of(services, &answer, material, now);
    let mut report = report_of(material, outcome, now);
    report.note = note;
    report.contradictions = questions.len();
    report.suggestions = suggestions_of(services, &answer, material);
    let message = describe_decisions(&report);
    let appended =
        message.map(|text| services.journal.outbox.append_report((TITLE, &text, label.taint), now));
    let appended = appended.unwrap_or_default();
    let has_message = !appended.is_empty();
    let ops = questions.into_iter().chain(appended).collect();
    state.view.report = Some(report);
    (state.upto, state.fingerprint) = (material.upto(), material.fingerprint());
    services.memories.store_digest(&state, ops).await?;
    if has_message {
        services.journal.outbox.call_for_delivery();
    }
    Ok(state.view)
}

/// Writes the copy of the profile for people. Returns the reason why its change is not recorded, if it is not.
async fn write_file(services: &Services, profile: &str) -> Result<Option<String>, EngineError> {
    let written = services.outside.home_files.write_profile(profile).await;
    written.map_err(|report| EngineError::HomeFile(Box::new(services.journal.redactor.mask_report(report))))
}

/// Returns the questions to the owner about contradictions. One that was asked before is not asked again.
fn questions_of(
    services: &Services,
    answer: &DigestAnswer,
    material: &DigestMaterial,
    at: Timestamp,
) -> Vec<Op> {
    let flagged = answer.flagged(material).into_iter().map(|(newer, older, why)| {
        Op::Memory(MemoryOp::Ask(MemoryQuestion {
            kind: QuestionKind::Contradiction,
            memory: newer.id,
            other: Some(older.id),
            reason: services.journal.redactor.mask_text(&why).into_owned(),
            at,
        }))
    });
    flagged.collect()
}

fn suggestions_of(
    services: &Services,
    answer: &DigestAnswer,
    material: &DigestMaterial,
) -> Vec<DigestSuggestion> {
    let suggestion = |(becomes, text, memories): (SuggestedForm, String, Vec<&Memory>)| {
        let becomes = match becomes {
            SuggestedForm::Procedure => "procedure",
            SuggestedForm::Tool => "tool",
        };
        DigestSuggestion {
            becomes: becomes.to_owned(),
            text: services.journal.redactor.mask_text(&text).into_owned(),
            memories: memories.into_iter().map(|memory| memory.id).collect(),
        }
    };
    answer.suggested(material).into_iter().map(suggestion).collect()
}

/// Describes what the owner may decide; `None`: nothing.
fn describe_decisions(report: &DigestReport) -> Option<String> {
    if report.suggestions.is_empty() && report.contradictions == 0 {
        return None;
    }
    let mut lines = Vec::new();
    if report.contradictions > 0 {
        lines.push(format!(
            "Memories that contradict each other: {} (writ memory pending)",
            report.contradictions
        ));
    }
    let suggested = |made: &DigestSuggestion| format!("Could become a {}: {}", made.becomes, made.text);
    lines.extend(report.suggestions.iter().map(suggested));
    Some(lines.join("\n"))
}

fn report_of(material: &DigestMaterial, outcome: DigestOutcome, now: Timestamp) -> DigestReport {
    DigestReport {
        at: now.to_string(),
        outcome,
        memories: material.memories().len(),
        left_out: material.left_out(),
        contradictions: 0,
        suggestions: Vec::new(),
        note: None,
    }
}

/// Ends a digest that has asked no model. Suggestions of the one before stay to be read.
fn end_digest(
    services: &Services,
    mut state: DigestState,
    material: &DigestMaterial,
    outcome: DigestOutcome,
) -> ProfileView {
    let suggestions = state.view.report.take().map(|report| report.suggestions).unwrap_or_default();
    let report = report_of(material, outcome, services.journal.clock.now());
    state.view.report = Some(DigestReport { suggestions, ..report });
    state.view
}
