//! «Refactor function X so that its tests pass», said in a conversation about a real repository: the agent has it planned, the plan is
//! approved once, done in the sandbox, checked outside of it with the real test runner of its language, and reported back.

use std::path::Path;

use serde_json::json;
use writ_runtime::engine::{Join, Joined};
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault, ReplyGate};
use writ_types::action::{Action, ExecProfile};
use writ_types::api::work::{WorkDetails, WorkState};
use writ_types::entry::Fact;
use writ_types::error::Exit;
use writ_types::frame::ServerFrame;
use writ_types::id::{AskId, SessionId};

use crate::harness::{OWNER, TestEngine};
use crate::work::{C, Language, NODE, PATIENCE, PYTHON, approve, failed_before, read, repository, show};

/// The person's second message, when the work has ended.
const AFTERWARDS: &str = "How did it end?";

/// The behaviour of a scripted executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Story {
    /// Writes what is right at once, runs the tests, and says that it has failed.
    Good,
    /// Writes something wrong twice, then what is right.
    WrongTwice,
    /// Writes the same wrong thing again and again.
    Stuck,
    /// Says that it is done; changes the tests first, then deletes them.
    Lying,
    /// Uses more tokens than the item has.
    OverBudget,
}

impl Story {
    const fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::WrongTwice => "wrong_twice",
            Self::Stuck => "stuck",
            Self::Lying => "lying",
            Self::OverBudget => "over_budget",
        }
    }

    /// The limits that its planner gives the work.
    const fn budget(self) -> &'static str {
        match self {
            Self::OverBudget => "{max_tokens: 4000}",
            Self::Good | Self::WrongTwice | Self::Stuck | Self::Lying => "{max_tokens: 400000}",
        }
    }

    const fn end(self) -> WorkState {
        match self {
            Self::Good | Self::WrongTwice => WorkState::Done,
            Self::Stuck | Self::Lying => WorkState::Stuck,
            Self::OverBudget => WorkState::OverBudget,
        }
    }
}

fn request(language: &Language) -> String {
    format!("Refactor add in {} so that its tests pass.", language.file)
}

/// The planner's answer.
fn plan(language: &Language, budget: &str) -> String {
    format!(
        "---\nid: mend-add\ntype: task\ntitle: Refactor add so that its tests pass\nbudget: {budget}\nverify:\n  - name: tests_pass\n    run: {}\n    expect: {{ exit_code: 0 }}\non_stuck: ask_person\n---\n\n# What to do\n\nRefactor `add` in `{}` so that its tests pass.\n",
        language.check, language.file
    )
}

/// The answers of the three agents: the planner is known by its instructions, the agent of the conversation by the tool that an
/// executor of a step does not have. The planner waits until the agent has ended its turn, so that every run says things in one order.
fn script(language: &Language, story: Story, gate: &ReplyGate, request: &ParsedRequest) -> Reply {
    if request.system.contains("You are the planner") {
        let planned = Reply::text(&plan(language, story.budget()));
        planned.with_fault(ReplyFault::SlowFirstByte(gate.clone()))
    } else if request.offers_tool("plan") {
        answer_person(request)
    } else {
        execute(language, story, request)
    }
}

/// The agent of the conversation has the work planned, and says at last what it knows of its end.
fn answer_person(request: &ParsedRequest) -> Reply {
    if request.messages.iter().any(|message| message.text.contains(AFTERWARDS)) {
        let noted = request.messages.iter().flat_map(|message| message.text.lines());
        let note = noted.filter_map(|line| line.strip_prefix("[SYSTEM] The work item ")).next_back();
        return Reply::text(
            &note.map_or("I do not know.".to_owned(), |note| format!("I read: the work item {note}")),
        );
    }
    match request.results().next() {
        None => {
            let (asked, why) = (request.last_user_text(), "it changes a repository");
            Reply::call("plan", json!({ "request": asked, "reason": why }))
        }
        Some(_) => Reply::text("A plan is being made."),
    }
}

/// The command by which an executor runs the tests itself. Nothing is left beside the sources.
fn own_run(language: &Language) -> String {
    format!("env PYTHONDONTWRITEBYTECODE=1 {}", language.check)
}

/// How the executor's own runs of the tests have ended, in the words of the ledger.
fn own_runs(engine: &TestEngine, language: &Language) -> Vec<String> {
    let command = own_run(language);
    let intents = engine.facts("intent").into_iter();
    let attempts: Vec<_> = intents
        .filter_map(|fact| {
            let Fact::Intent { attempt, action: Action::Exec(exec), .. } = fact else { return None };
            let is_own = exec.profile == ExecProfile::Task && exec.argv.join(" ").contains(&command);
            is_own.then_some(attempt)
        })
        .collect();
    let outcomes = engine.facts("outcome").into_iter();
    let ends = outcomes.filter_map(|fact| {
        let Fact::Outcome { attempt, summary, .. } = fact else { return None };
        attempts.contains(&attempt).then_some(summary)
    });
    ends.collect()
}

fn execute(language: &Language, story: Story, request: &ParsedRequest) -> Reply {
    let write =
        |path: &str, content: &str| Reply::call("file_write", json!({ "path": path, "content": content }));
    let attempt = failed_before(request);
    let reply = match (request.results().next(), story) {
        (None, Story::Good) => write(language.file, language.right),
        (Some(_), Story::Good) if request.results().count() == 1 => {
            Reply::call("shell_exec", json!({ "command": own_run(language) }))
        }
        (Some(_), Story::Good) => Reply::text("I failed: nothing of it works."),
        // Each try is wrong in another way, so that it is not stuck before its tokens are used up.
        (None, Story::OverBudget) => write(language.file, &format!("broken({attempt}")),
        (None, Story::WrongTwice) => {
            // The second try is another text, so that it is no repetition of the first.
            let tries = [language.other, "broken(", language.right];
            write(language.file, tries.get(attempt).copied().unwrap_or(language.right))
        }
        (None, Story::Stuck) => write(language.file, language.other),
        (None, Story::Lying) if attempt == 0 => write(language.tests, "# nothing to see\n"),
        (None, Story::Lying) => {
            Reply::call("shell_exec", json!({ "command": format!("rm -f {}", language.tests) }))
        }
        (Some(_), _) => Reply::text("Done, all tests pass."),
    };
    match story {
        Story::OverBudget => reply.with_usage(900, 200),
        Story::Good | Story::WrongTwice | Story::Stuck | Story::Lying => reply,
    }
}

/// A story as it is being told.
struct Told<'a> {
    engine: &'a TestEngine,
    project: &'a Path,
    lines: Vec<String>,
}

impl Told<'_> {
    /// Adds what people see of a session after a frame. Returns the last one's number.
    async fn add_frames(&mut self, session: SessionId, mut after: u64) -> u64 {
        loop {
            let frames = self.engine.engine.frames_after(session, after).await.expect("reads");
            let Some(last) = frames.last() else { return after };
            after = last.seq;
            self.lines.extend(frames.iter().filter_map(|numbered| describe(&numbered.frame)));
        }
    }

    /// The whole of it, without what differs from run to run.
    fn finish(self, shown: &WorkDetails) -> String {
        let summary = &shown.summary;
        let ask = summary.ask.as_ref().expect("it was asked about").to_string();
        let text = self.lines.join("\n").replace(self.project.to_str().expect("plain"), "PROJECT");
        let text = text.replace(&summary.session.to_string(), "SESSION").replace(&ask, "ASK");
        let text = text.replace(&summary.item.to_string(), "ITEM");
        // What the executor's turns cost in tokens is counted elsewhere.
        let lines = text.lines().map(|line| if line.starts_with("Used: ") { "Used: SPENT" } else { line });
        lines.collect::<Vec<_>>().join("\n")
    }
}

fn describe(frame: &ServerFrame) -> Option<String> {
    if let ServerFrame::Message { text, exit, last: true, .. } = frame {
        return Some(format!("agent (exit {}): {text}", exit.code()));
    }
    if let ServerFrame::Tool { tool, state, .. } = frame {
        return Some(format!("  tool {tool}: {state}"));
    }
    if let ServerFrame::ApprovalRequest(card) = frame {
        return Some(format!("card: {} ({})", card.intent, card.rationale));
    }
    let ServerFrame::Work(news) = frame else { return None };
    let step = if news.step.is_empty() { "whole" } else { &news.step };
    let (state, done, steps) = (news.state.name(), news.steps_done, news.steps);
    Some(format!("[{state} {done}/{steps}] {step}: {}", news.text))
}

/// Waits for a frame of a conversation.
async fn until<T>(joined: &mut Joined, what: &str, mut wanted: impl FnMut(&ServerFrame) -> Option<T>) -> T {
    let found = async {
        loop {
            let numbered = joined.live.recv().await.expect("a frame");
            if let ServerFrame::Error { code, text, .. } = &numbered.frame {
                panic!("{code}: {text}");
            }
            if let Some(found) = wanted(&numbered.frame) {
                return found;
            }
        }
    };
    tokio::time::timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("never: {what}"))
}

/// The one question that was asked.
fn ask_of(engine: &TestEngine) -> AskId {
    let asked = engine.facts("asked");
    let [Fact::Asked { ask, action: Action::Plan(_), .. }] = asked.as_slice() else {
        panic!("one card: {asked:?}")
    };
    ask.clone()
}

/// Tells a story in a language: the person asks, approves, and asks how it has ended.
async fn tell(
    engine: &TestEngine,
    gate: &ReplyGate,
    language: &Language,
    project: &Path,
) -> (WorkDetails, String) {
    let mut told = Told { engine, project, lines: Vec::new() };
    let join = Join { project: Some(project.to_str().expect("plain").to_owned()), ..Join::default() };
    let mut joined = engine.engine.join(OWNER, join).await.expect("joined");
    let session = joined.session;
    told.lines.push(format!("person: {}", request(language)));
    let (exit, text) = engine.send_in(&mut joined, "one", &request(language)).await;
    assert_eq!(exit, Exit::Done, "{text}");
    gate.open();
    let planned = |frame: &ServerFrame| {
        let ServerFrame::Message { exit, text, last: true, .. } = frame else { return None };
        Some((*exit, text.clone()))
    };
    let (exit, text) = until(&mut joined, "its plan is asked about", planned).await;
    assert_eq!(exit, Exit::Waiting, "{text}");
    assert_eq!(read(project, language.file), language.wrong, "nothing before the approval");
    let after = told.add_frames(session, 0).await;
    told.lines.push("person: approves".to_owned());
    let answered = engine.engine.answer(OWNER, ask_of(engine), approve()).await.expect("counts");
    assert_eq!((answered.state.as_str(), answered.exit), ("applied", Exit::Done), "{answered:?}");
    let ended = |frame: &ServerFrame| {
        let ServerFrame::Work(news) = frame else { return None };
        (news.state.is_at_rest() && news.state != WorkState::Proposed).then_some(news.item)
    };
    let item = until(&mut joined, "the work ends", ended).await;
    let after = told.add_frames(session, after).await;
    told.lines.push(format!("person: {AFTERWARDS}"));
    engine.send_in(&mut joined, "two", AFTERWARDS).await;
    told.add_frames(session, after).await;
    let shown = show(engine, &item.to_string()).await;
    told.lines.push("\nIn the session of the work:".to_owned());
    told.add_frames(shown.summary.session, 0).await;
    let text = told.finish(&shown);
    (shown, text)
}

/// Plays a story and compares it with its golden transcript.
fn play(language: &'static Language, story: Story) {
    let (gate, repository) = (ReplyGate::new(), repository(language));
    let held = gate.clone();
    let engine =
        TestEngine::new("", |_| move |request: &ParsedRequest| script(language, story, &held, request));
    let (shown, text) = engine.runtime.block_on(tell(&engine, &gate, language, repository.path()));
    insta::assert_snapshot!(format!("{}_{}", story.name(), language.name), text);
    assert_eq!(shown.summary.state, story.end(), "{text}");
    // Approved once, and nothing else was asked.
    ask_of(&engine);
    let attempts = &shown.steps[0].attempts;
    // Every check ran, in the sandbox of the harness that is none of the executor's.
    let verified = engine.facts("intent").into_iter().filter(|fact| {
        matches!(fact, Fact::Intent { action: Action::Exec(exec), .. } if exec.profile == ExecProfile::Verification)
    });
    let judged = attempts.iter().filter(|attempt| !attempt.checks.is_empty()).count();
    assert_eq!(verified.count(), judged, "{text}");
    let runs = own_runs(&engine, language);
    assert_eq!(runs.len(), usize::from(story == Story::Good), "the executor's own run: {runs:?}");
    // The other runners write something, whose first line stands there.
    assert!(language.name != PYTHON.name || runs.iter().all(|run| run == "(exit code 0)"), "{runs:?}");
    let (is_done, file) = (story.end() == WorkState::Done, read(repository.path(), language.file));
    assert_eq!(
        file,
        if is_done { language.right } else { language.wrong },
        "what is verified is in the project"
    );
    assert_eq!(read(repository.path(), language.tests), language.test_text, "its tests stay as they are");
    assert!(shown.report.contains("attempt 1"), "{}", shown.report);
    let last = text.split("person: How did it end?").nth(1).expect("an answer");
    assert!(
        last.contains(&format!("of this conversation is {}.", story.end().name())),
        "the agent knows: {last}"
    );
    engine.end();
}

/// In Python: by a good model that says that it has failed, by one that is wrong twice, and by one that changes the tests and says
/// that they pass. The checks alone decide.
///
/// Rows: SIL-003 SIL-128 SIL-193
/// Rows: SIL-178 (in part: what the agent says of tests that fail decides nothing)
/// Rows: SIL-065 (in part: routed to the planner by a call of the tool `plan`, planned, approved and run)
/// Rows: SIL-175 (in part: an attempt is run, checked, and the next one knows why it failed)
#[test]
fn needs_userns_needs_git_needs_python_good_and_wrong_models_mend_a_function() {
    play(&PYTHON, Story::Good);
    play(&PYTHON, Story::WrongTwice);
    play(&PYTHON, Story::Lying);
}

/// Rows: SIL-177
/// Rows: SIL-174 (in part: tokens beyond its budget stop further attempts)
/// Rows: SIL-292 (in part: an attempt that fails is stored as failed)
#[test]
fn needs_userns_needs_git_needs_python_stuck_and_spent_models_end_with_a_report() {
    play(&PYTHON, Story::Stuck);
    play(&PYTHON, Story::OverBudget);
}

#[test]
fn needs_userns_needs_git_needs_node_every_story_ends_the_same_in_node() {
    for story in [Story::Good, Story::WrongTwice, Story::Stuck, Story::Lying, Story::OverBudget] {
        play(&NODE, story);
    }
}

#[test]
fn needs_userns_needs_git_every_story_ends_the_same_in_c() {
    for story in [Story::Good, Story::WrongTwice, Story::Stuck, Story::Lying, Story::OverBudget] {
        play(&C, story);
    }
}
