//! The phase review: another agent reads what a unit's branch changes, and its answer is read without trust in it.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;
use writ_autopilot::attempt::RunEnd;
use writ_autopilot::failure::FailureCode;
use writ_autopilot::machine::{ReviewVerdict, UnitEvent};
use writ_autopilot::phase::PilotPhase;
use writ_autopilot::workflow::PhaseFlow;
use writ_sandbox::git::commits::diff_text;
use writ_types::unit::{MicroUsd, Tokens};

use super::agent::{PromptKind, prompt_of};
use super::turns::{AgentTask, WorkEnd, ended_badly, run_agent};
use super::{PhaseResult, WorkClaim, fault};
use crate::error::{AutopilotError, PilotGitError};
use crate::project::OpenProject;
use crate::prompts::{PromptFinding, ReviewPass, ReviewPrompt};
use crate::review::{REVIEW_CHUNK_LINES, ReviewError, ReviewFinding, join_findings, read_review, split_diff};
use crate::unit_files::UnitFile;

/// A review while its passes are run.
struct ReviewRun<'a> {
    project: &'a Arc<OpenProject>,
    work: &'a WorkClaim,
    flow: PhaseFlow,
    folder: PathBuf,
    used: (Tokens, Tokens, MicroUsd),
}

/// An answer, or the end of the attempt.
type PassResult = Result<String, Box<PhaseResult>>;

impl ReviewRun<'_> {
    /// Runs one pass. The inner error is the end of the attempt.
    async fn run_pass(
        &mut self,
        pass: (ReviewPrompt<'_>, &[PromptFinding]),
        stop: &CancellationToken,
    ) -> Result<PassResult, AutopilotError> {
        let ended = self.ask(pass, NonZeroU32::MIN, stop).await?;
        Ok(self.settle(ended))
    }

    /// Asks an agent; `together`: as many at once share the money.
    async fn ask(
        &self,
        (review, findings): (ReviewPrompt<'_>, &[PromptFinding]),
        together: NonZeroU32,
        stop: &CancellationToken,
    ) -> Result<WorkEnd, AutopilotError> {
        let kind = PromptKind::Review(review, findings);
        let prompt = prompt_of(self.project, self.work, (&self.flow, &self.folder), kind).await?;
        let folder = self.folder.clone();
        let task = AgentTask { folder, prompt, reads_only: true, is_result: None, together };
        run_agent(self.project, self.work, task, stop).await
    }

    /// Adds what an agent has used, also where it failed: that is spent, too.
    fn settle(&mut self, ended: WorkEnd) -> PassResult {
        self.used = (
            self.used.0.saturating_add(ended.used.0),
            self.used.1.saturating_add(ended.used.1),
            self.used.2.saturating_add(ended.used.2),
        );
        if ended.end == RunEnd::Success {
            return Ok(ended.said);
        }
        Err(Box::new(PhaseResult { used: self.used, ..ended_badly(ended) }))
    }

    /// Asks about each part of a change, as many at once as the settings let review. The first that ends badly ends the others.
    async fn ask_parts(
        &mut self,
        parts: &[ReviewPrompt<'_>],
        stop: &CancellationToken,
    ) -> Result<Result<Vec<String>, Box<PhaseResult>>, AutopilotError> {
        let most = self.project.config().agents.cap_of(PilotPhase::Review);
        let mut answers = Vec::new();
        for batch in parts.chunks(usize::try_from(most).unwrap_or(usize::MAX).max(1)) {
            let together =
                u32::try_from(batch.len()).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN);
            let halt = stop.child_token();
            let bad = OnceLock::new();
            let asked = batch.iter().enumerate().map(async |(n, pass)| {
                let ended = self.ask((pass.clone(), &[]), together, &halt).await;
                if !ended.as_ref().is_ok_and(|ended| ended.end == RunEnd::Success) {
                    // What the others end with after this is its consequence.
                    let _ = bad.set(n);
                    halt.cancel();
                }
                ended
            });
            let ended = futures::future::join_all(asked).await;
            let mut failed = None;
            for (n, ended) in ended.into_iter().enumerate() {
                match self.settle(ended?) {
                    Ok(said) => answers.push(said),
                    Err(end) if bad.get() == Some(&n) => failed = Some(end),
                    Err(_) => {}
                }
            }
            if let Some(failed) = failed {
                return Ok(Err(Box::new(PhaseResult { used: self.used, ..*failed })));
            }
        }
        Ok(Ok(answers))
    }

    /// Writes the findings down. Returns the result of the phase.
    fn finish(&self, verdict: ReviewVerdict, found: &[ReviewFinding]) -> Result<PhaseResult, AutopilotError> {
        let words = list_findings(found);
        self.project.files.write_file(self.work.unit.id, UnitFile::Review, &words)?;
        let is_passed = verdict == ReviewVerdict::Pass;
        let first = words.lines().next().unwrap_or_default();
        Ok(PhaseResult {
            event: UnitEvent::Review(verdict),
            outcome: "success",
            code: None,
            reason: if is_passed { String::new() } else { first.to_owned() },
            last_error: (!is_passed).then(|| format!("The review asks for changes:\n{words}")),
            used: self.used,
        })
    }

    fn unreadable(&self, error: &ReviewError) -> PhaseResult {
        PhaseResult { used: self.used, ..fault(FailureCode::ReviewAnswer, error.next_question()) }
    }
}

/// Reviews what a unit's branch changes: a small change at once; a larger one as a whole, part by part, and joined.
///
/// # Errors
///
/// If git, the engine or the store fail.
pub(super) async fn review(
    project: &Arc<OpenProject>,
    work: &WorkClaim,
    stop: &CancellationToken,
) -> Result<PhaseResult, AutopilotError> {
    let own = project.work_of(work.unit.id).await?;
    let workspace = project.git.ensure_workspace(&own, &project.target).await?;
    let (base, tip) = (workspace.base.as_str(), workspace.tip.as_str());
    let diff = diff_text(project.git.project(), base, tip).await.map_err(PilotGitError::from)?;
    let chunks = match split_diff(&diff) {
        Ok(chunks) => chunks,
        Err(error) => return Ok(fault(FailureCode::ReviewSize, error.to_string())),
    };
    let flow = project.flow_of(&work.unit).await?;
    let used = (Tokens::ZERO, Tokens::ZERO, MicroUsd::ZERO);
    let mut run = ReviewRun { project, work, flow, folder: workspace.folder, used };
    let parts = u32::try_from(chunks.len()).unwrap_or(u32::MAX);
    let files: Vec<String> = chunks.iter().flat_map(|chunk| chunk.files.clone()).collect();
    let head: String = diff.lines().take(REVIEW_CHUNK_LINES).collect::<Vec<_>>().join("\n");
    let prompt = |pass, text| ReviewPrompt { pass, files: &files, text, summary: None, part: 1, parts };
    let mut summary = None;
    // A change that fits into one question needs no overview and no joining.
    if chunks.len() > 1 {
        match run.run_pass((prompt(ReviewPass::Overview, &head), &[]), stop).await? {
            Ok(said) => summary = Some(said),
            Err(ended) => return Ok(*ended),
        }
    }
    let mut answers = Vec::new();
    let passes: Vec<ReviewPrompt<'_>> = (1..)
        .zip(&chunks)
        .map(|(part, chunk)| {
            let (files, summary) = (&chunk.files[..], summary.as_deref());
            ReviewPrompt { part, files, summary, ..prompt(ReviewPass::Chunk, &chunk.text) }
        })
        .collect();
    let said = match run.ask_parts(&passes, stop).await? {
        Ok(said) => said,
        Err(ended) => return Ok(*ended),
    };
    for said in said {
        match read_review(&said) {
            Ok(answer) => answers.push(answer),
            Err(error) => return Ok(run.unreadable(&error)),
        }
    }
    let findings = join_findings(&answers);
    // The worst of all parts: one good part makes up for none of the others.
    let mut verdict = answers.iter().map(|answer| answer.verdict).max().unwrap_or(ReviewVerdict::Pass);
    let mut shown = findings;
    if chunks.len() > 1 {
        let found: Vec<PromptFinding> = shown.iter().map(PromptFinding::from).collect();
        let pass = ReviewPrompt { summary: summary.as_deref(), ..prompt(ReviewPass::Synthesis, "") };
        let said = match run.run_pass((pass, &found), stop).await? {
            Ok(said) => said,
            Err(ended) => return Ok(*ended),
        };
        match read_review(&said) {
            Ok(answer) => (verdict, shown) = (answer.verdict, answer.findings),
            Err(error) => return Ok(run.unreadable(&error)),
        }
    }
    run.finish(verdict, &shown)
}

fn list_findings(findings: &[ReviewFinding]) -> String {
    let line = |one: &ReviewFinding| {
        format!("- {}:{} ({}): {}\n", one.path, one.line, one.severity.name(), one.text)
    };
    findings.iter().map(line).collect()
}
