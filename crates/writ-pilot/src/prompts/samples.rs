//! Values with which each template is rendered once before it is used: the fewest and the most that its callers can pass.

use writ_autopilot::phase::PilotPhase;
use writ_autopilot::unit_id::UnitId;
use writ_autopilot::units::PilotUnit;

use super::input::{
    ContinuePrompt, DocumentsPrompt, GoalPrompt, PromptFinding, ReassessPrompt, RetryNote, ReviewPass,
    ReviewPrompt, UnitPrompt, Variables, describe_issue,
};
use super::{PromptName, input};

/// Returns the samples of a prompt.
pub(super) fn samples_of(prompt: PromptName) -> Vec<Variables> {
    let words = ["sample".to_owned()];
    let finding = PromptFinding {
        path: "a".to_owned(),
        line: 1,
        severity: "low".to_owned(),
        text: "sample".to_owned(),
    };
    let few = unit_of(prompt, &[], &[], None);
    let findings = [finding];
    let many = unit_of(prompt, &words, &findings, Some("sample"));
    match prompt {
        PromptName::Research | PromptName::Plan | PromptName::Execute | PromptName::Tdd => {
            vec![few.variables(), many.variables()]
        }
        // A field that one pass alone uses is found by that pass.
        PromptName::Review => [ReviewPass::Overview, ReviewPass::Chunk, ReviewPass::Synthesis]
            .into_iter()
            .flat_map(|pass| {
                let part = |summary| ReviewPrompt {
                    pass,
                    files: &words,
                    text: "sample",
                    summary,
                    part: 1,
                    parts: 1,
                };
                [part(None).variables(&few), part(Some("sample")).variables(&many)]
            })
            .collect(),
        PromptName::Reassess => vec![
            reassess_of(&[], 0, None).variables(&few),
            reassess_of(&words, 1, Some("sample")).variables(&many),
        ],
        PromptName::Goal => vec![goal_of(&[], None).variables(), goal_of(&words, Some("sample")).variables()],
        PromptName::Continue => {
            let turn = ContinuePrompt {
                unit_id: UnitId::Task(1, 1, 1),
                phase: PilotPhase::Execute,
                session_id: "sample",
                turn: 2,
                max_turns: 50,
            };
            vec![turn.variables()]
        }
        PromptName::Documents => {
            let input = DocumentsPrompt {
                unit_id: UnitId::Slice(1, 1),
                session_id: "sample",
                title: "sample",
                documents: &words,
                diff: "sample",
            };
            vec![input.variables()]
        }
    }
}

fn unit_of<'a>(
    prompt: PromptName,
    gates: &'a [String],
    findings: &'a [PromptFinding],
    text: Option<&'a str>,
) -> input::UnitPrompt<'a> {
    let phase = PilotPhase::ALL.into_iter().find(|phase| PromptName::of_phase(*phase) == Some(prompt));
    let unit_id = UnitId::Task(1, 1, 1);
    let unit = PilotUnit {
        id: unit_id,
        title: "sample".to_owned(),
        description: text.unwrap_or_default().to_owned(),
        priority: None,
        workflow: None,
        blocked_by: std::collections::BTreeSet::new(),
        code_depends_on: std::collections::BTreeSet::new(),
        archived_at: None,
    };
    UnitPrompt {
        unit_id,
        phase: phase.unwrap_or(PilotPhase::Execute),
        session_id: "sample",
        issue: describe_issue(&unit),
        retry: text.map(|error| RetryNote { failures: 1, error, path: "sample" }),
        plan: text,
        plan_path: "plan.md",
        plan_version: 1,
        notes: text,
        gates,
        findings,
        now: "2026-01-01T00:00:00Z",
        model: "sample",
    }
}

const fn reassess_of<'a>(list: &'a [String], replans_left: u32, tool: Option<&'a str>) -> ReassessPrompt<'a> {
    ReassessPrompt { failures: list, commits: list, replans_left, decision_tool: tool }
}

const fn goal_of<'a>(gates: &'a [String], text: Option<&'a str>) -> GoalPrompt<'a> {
    GoalPrompt {
        session_id: "sample",
        goal: "sample",
        repo_map: "sample",
        project_plan: text,
        gates,
        max_units: 1,
        previous_error: text,
    }
}
