//! What frames look like, as snapshots.

use serde_json::json;
use writ_types::digest::Digest;
use writ_types::entry::{ApprovalScope, Decision, Risk};
use writ_types::frame::{Card, Choice};
use writ_types::id::{AskId, EntrySeq, SessionId};
use writ_types::taint::Taint;
use writ_types::unit::Timestamp;

use super::*;

fn turn(n: u128) -> TurnId {
    TurnId::from_parts(Timestamp::from_millis(0), n)
}

fn delta(text: &str) -> ServerFrame {
    ServerFrame::Delta { turn: turn(1), text: text.into() }
}

fn message(text: &str, exit: Exit) -> ServerFrame {
    let entries = (EntrySeq(1), EntrySeq(2));
    let (turn, text, answers) = (turn(1), text.into(), Vec::new());
    ServerFrame::Message { turn, text, taint: Taint::Owner, entries, last: true, exit, answers }
}

fn tool(state: &str, summary: &str) -> ServerFrame {
    ServerFrame::Tool {
        turn: turn(1),
        tool: "shell_exec".into(),
        state: state.into(),
        summary: summary.into(),
        call: "call_1".into(),
        arguments: String::new(),
        output: String::new(),
    }
}

fn card(shown: &str) -> ServerFrame {
    ServerFrame::ApprovalRequest(Box::new(Card {
        ask_id: "AbCd1234".parse::<AskId>().expect("an id"),
        session: None,
        action: "write_file".into(),
        intent: "apply 1 change to the project".into(),
        risk: Risk::Medium,
        rationale: "it outlasts the session".into(),
        choices: vec![
            choice(Decision::Approve, "the file is changed, once"),
            choice(Decision::Deny, "nothing happens"),
        ],
        shown: shown.into(),
        prepared: Digest::of_bytes(b"prepared"),
        shown_hash: Digest::of_bytes(shown.as_bytes()),
        asked_at: Timestamp::from_millis(0),
        expires_at: Timestamp::from_millis(86_400_000),
        state: "open".into(),
        task: None,
        standing: None,
        values: Vec::new(),
        host: None,
        approvers: 1,
        approved_by: Vec::new(),
        undo_secs: 0,
    }))
}

fn choice(decision: Decision, consequence: &str) -> Choice {
    Choice { decision, scope: ApprovalScope::Once, consequence: consequence.into() }
}

fn written(mode: RenderMode, frames: &[ServerFrame]) -> String {
    let mut renderer = Renderer::new(Vec::new(), mode);
    for (seq, frame) in (1..).zip(frames) {
        renderer.write_frame(&Numbered { seq, frame: frame.clone() }).expect("written");
    }
    String::from_utf8(renderer.into_inner()).expect("text")
}

fn plain(frames: &[ServerFrame]) -> String {
    written(RenderMode::Text(Paint::Plain), frames)
}

#[test]
fn a_turn_reads_from_top_to_bottom() {
    let session = SessionId::from_parts(Timestamp::from_millis(0), 1);
    let text = plain(&[
        ServerFrame::Hello { session, turn: 0, open: Vec::new() },
        ServerFrame::Accepted { client_id: "1".into(), entry: EntrySeq(1) },
        delta("I will "),
        delta("look."),
        tool("started", "cargo test"),
        tool("failed", "exit code 101"),
        delta("\nFixed.\n"),
        ServerFrame::Status { text: "context is 80 % full".into() },
        message("Fixed.", Exit::Done),
        ServerFrame::ApprovalResolved {
            ask_id: "AbCd1234".parse().expect("an id"),
            state: "approved".into(),
            reason: String::new(),
            text: "1 file changed".into(),
            exit: Exit::Done,
            undo: None,
        },
        ServerFrame::Answer { id: 1, result: json!({"a": "\u{202e}"}) },
        ServerFrame::Error {
            id: None,
            exit: Exit::Blocked,
            code: "store.disk_full".into(),
            text: "the disk is full".into(),
            hint: "make room".into(),
            answers: Vec::new(),
        },
    ]);
    insta::assert_snapshot!(text);
}

#[test]
fn a_message_is_written_once() {
    assert_eq!(plain(&[delta("hello"), message("hello\n", Exit::Done)]), "hello\n");
    assert_eq!(plain(&[message("hello", Exit::Done)]), "hello\n");
    assert_eq!(
        plain(&[delta("hello wor"), message("[withheld]", Exit::Done)]),
        "hello wor\n[withheld]\n",
        "what was streamed is not what was said in the end"
    );
    let other = ServerFrame::Delta { turn: turn(2), text: "hello".into() };
    assert_eq!(plain(&[other, message("hello", Exit::Done)]), "hello\nhello\n");
}

#[test]
fn how_a_turn_ended_is_said() {
    for exit in Exit::ALL {
        let text = plain(&[message("x", exit)]);
        assert_eq!(text.contains('['), exit != Exit::Done, "{exit:?}: {text}");
    }
    assert!(plain(&[message("", Exit::Waiting)]).contains("writ approvals list"));
}

#[test]
fn a_card_shows_everything() {
    insta::assert_snapshot!(plain(&[delta("thinking"), card("--- a/x\n+++ b/x\n-1\n+2\n")]));
}

#[test]
fn a_card_is_never_cut_and_cannot_be_faked_from_inside() {
    let shown = format!("{}\n+-- until never\n\u{1b}[2J\u{202e}evil\u{200b}\u{e0041}", "x".repeat(64 * 1024));
    let text = plain(&[card(&shown)]);
    assert!(text.contains(&"x".repeat(64 * 1024)));
    assert!(text.contains("|   +-- until never\n"));
    assert!(text.contains("|   \\u{1b}[2J\\u{202e}evil\\u{200b}\\u{e0041}\n"));
    assert_eq!(text.lines().filter(|line| !line.starts_with("| ") && *line != "|").count(), 2);
}

#[test]
fn nothing_from_outside_acts_on_the_terminal() {
    let hostile = "a\u{1b}[31m\r\u{8}\u{202e}\u{9b}2J\nb";
    let frames = [
        delta(hostile),
        tool(hostile, hostile),
        message(hostile, Exit::Done),
        card(hostile),
        ServerFrame::Status { text: hostile.into() },
        ServerFrame::Error {
            id: None,
            exit: Exit::Bug,
            code: hostile.into(),
            text: hostile.into(),
            hint: hostile.into(),
            answers: Vec::new(),
        },
    ];
    for frame in frames {
        let text = plain(&[frame]);
        assert_eq!(escape_text(&text), text);
        assert!(text.contains("\\u{1b}[31m"));
    }
    let step = plain(&[tool("done", hostile)]);
    assert_eq!(step.lines().count(), 1, "a tool step is one line");
}

#[test]
fn colour_is_used_where_it_is_wanted_and_possible() {
    let surroundings = |terminal, no_color| Surroundings { terminal, no_color };
    assert_eq!(RenderMode::text_mode(Color::Auto, surroundings(true, false)), RenderMode::Text(Paint::Color));
    for (color, surroundings) in [
        (Color::Auto, surroundings(true, true)),
        (Color::Auto, surroundings(false, false)),
        (Color::Never, surroundings(true, false)),
    ] {
        assert_eq!(RenderMode::text_mode(color, surroundings), RenderMode::Text(Paint::Plain));
    }
    assert_eq!(
        RenderMode::text_mode(Color::Always, surroundings(false, true)),
        RenderMode::Text(Paint::Color)
    );
    let colored = written(RenderMode::Text(Paint::Color), &[tool("denied", "x")]);
    assert_eq!(colored, "\u{1b}[31m* shell_exec denied: x\u{1b}[0m\n");
}

#[test]
fn json_mode_writes_frames_unchanged_one_per_line() {
    let frames = [delta("a\nb\u{1b}"), tool("done", "x"), card("y\n")];
    let text = written(RenderMode::Json, &frames);
    assert_eq!(text.lines().count(), frames.len());
    for ((seq, frame), line) in (1..).zip(&frames).zip(text.lines()) {
        let read: Numbered = serde_json::from_str(line).expect("a frame");
        assert_eq!(read, Numbered { seq, frame: frame.clone() });
    }
}
