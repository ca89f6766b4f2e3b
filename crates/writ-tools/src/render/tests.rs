//! Tests of what models read.

use serde_json::json;
use writ_types::chat::ToolCall;
use writ_types::encoding::{LineEnds, TextEncoding, TextForm};
use writ_types::error::Exit;
use writ_types::id::MemoryId;
use writ_types::taint::Clearance;
use writ_types::unit::Timestamp;

use super::*;
use crate::config::ToolTimeouts;
use crate::def::{AgentRole, PathState, ToolContext};
use crate::outcome::{LineWindow, Matched};
use crate::registry::{AllowList, Registry};

fn prepared(name: &str, arguments: serde_json::Value) -> Prepared {
    let registry = Registry::core_tools();
    let call = ToolCall { id: "1".into(), name: name.into(), arguments };
    let context = ToolContext {
        agent: "main",
        session: None,
        turn: None,
        turn_number: 1,
        label: &Label::new(Taint::Owner),
        config: &ToolTimeouts::default(),
        search: None,
    };
    registry
        .toolset_of(&[AgentRole::Executor], &AllowList::All)
        .prepare_call(&call, Some(&PathState::Missing), &context)
        .expect("prepared")
}

/// As the harness renders where no secret is known.
fn render(prepared: &Prepared, outcome: &PerformedOutcome) -> Rendered {
    super::render_result(prepared, &mut outcome.clone(), &Redactor::default())
}

fn ran(end: ExecEnd, stdout: &str, stderr: &str) -> Rendered {
    let outcome =
        PerformedOutcome::Exec { end, stdout: stdout.into(), stderr: stderr.into(), dropped_bytes: 0 };
    render(&prepared("shell_exec", json!({"command": "cargo test"})), &outcome)
}

fn read(outcome: &PerformedOutcome) -> Rendered {
    render(&prepared("file_read", json!({"path": "src/a.rs"})), outcome)
}

fn hit(text: &str, taint: Taint) -> RecalledMemory {
    RecalledMemory {
        id: MemoryId::from_parts(Timestamp::from_millis(5), 7),
        text: text.into(),
        kind: MemoryKind::Fact,
        trust: MemoryTrust::Working,
        taint,
        secret: false,
    }
}

/// Rows: SIL-203 (the text of the result, trimmed)
#[test]
fn the_output_of_a_good_program_is_its_result() {
    let rendered = ran(ExecEnd::Code(0), "hello\n", "");
    assert_eq!(rendered.text, "hello");
    assert_eq!(rendered.outcome, ToolOutcome::Done);
    assert_eq!(ran(ExecEnd::Code(0), "a\r\n", "").text, "a");
    assert_eq!(ran(ExecEnd::Code(0), "a\n\n", "").text, "a\n");
    assert_eq!(ran(ExecEnd::Code(0), "", "").text, "(exit code 0, no output)");
}

/// Part of SIL-107: output and exit code.
///
#[test]
fn a_failing_program_shows_its_code_and_both_streams() {
    let rendered = ran(ExecEnd::Code(101), "running 1 test\n", "error: test failed\n");
    insta::assert_snapshot!(&*rendered.text, @r"
    (exit code 101)
    standard output:
    running 1 test
    standard error:
    error: test failed
    ");
    assert_eq!(rendered.outcome, ToolOutcome::Failed);
    assert_eq!(ran(ExecEnd::TimedOut(1_500), "x", "").text, "(killed: it took longer than 2 seconds)\nx");
    assert_eq!(ran(ExecEnd::Signal(9), "", "").text, "(killed by signal 9, no output)");
    assert_eq!(ran(ExecEnd::Limit("processes"), "", "").outcome, ToolOutcome::Failed);
    assert_eq!(ran(ExecEnd::Cancelled, "", "").outcome, ToolOutcome::Cancelled);
}

/// What a program that was cut off has done elsewhere nobody knows; what it has done by itself is in its sandbox.
#[test]
fn a_program_that_is_cut_off_while_it_reaches_a_host_may_have_done_it() {
    let reaching = prepared("shell_exec", json!({"command": "git push", "hosts": ["git.example"]}));
    let ran = |end| {
        let (stdout, stderr) = (String::new(), String::new());
        render(&reaching, &PerformedOutcome::Exec { end, stdout, stderr, dropped_bytes: 0 })
    };
    let cut = [ExecEnd::Signal(9), ExecEnd::TimedOut(1_500), ExecEnd::Limit("memory"), ExecEnd::Cancelled];
    for end in cut {
        let rendered = ran(end);
        assert_eq!(rendered.outcome, ToolOutcome::Unknown, "{end:?}");
        assert!(rendered.text.contains(UNKNOWN), "{:?}", rendered.text);
    }
    assert_eq!(ran(ExecEnd::Code(1)).outcome, ToolOutcome::Failed, "it has ended by itself");
    assert_eq!(ran(ExecEnd::Code(0)).outcome, ToolOutcome::Done);
}

#[test]
fn long_output_loses_its_middle_and_says_so() {
    let long = format!("BEGIN{}END", "ü".repeat(100_000));
    let text = ran(ExecEnd::Code(0), &long, "").text;
    assert!(text.chars().count() <= MAX_RESULT_CHARS);
    assert!(text.starts_with("BEGIN") && text.ends_with("END") && text.contains("characters left out"));
    let both = ran(ExecEnd::Code(1), &long, &long).text;
    assert!(both.chars().count() <= MAX_RESULT_CHARS);
    assert_eq!(both.matches("BEGIN").count(), 2);
    assert_eq!(both.matches("END").count(), 2, "the end of both streams is kept");
    let dropped = PerformedOutcome::Exec {
        end: ExecEnd::Code(0),
        stdout: "x".into(),
        stderr: String::new(),
        dropped_bytes: 9,
    };
    assert!(read(&dropped).text.contains("9 bytes of output"));
}

#[test]
fn files_are_shown_with_line_numbers() {
    let rendered = read(&PerformedOutcome::Text {
        first_line: 9,
        text: "a\n\tb\n".into(),
        total_lines: 12,
        form: Default::default(),
    });
    insta::assert_snapshot!(&*rendered.text, @r#"
         9  a
        10  	b
    [2 more lines; go on with "first_line": 11]
    "#);
    let text = |first_line, text: &str, total_lines| {
        read(&PerformedOutcome::Text { first_line, text: text.into(), total_lines, form: Default::default() })
            .text
    };
    assert_eq!(text(1, "", 0), "(the file is empty)");
    assert_eq!(text(50, "", 12), "(the file has 12 lines; there is no line 50)");
    assert!(text(1, &"x".repeat(5_000), 1).ends_with("[... 3000 more characters]"));
    assert!(text(u64::MAX, "a\nb\n", u64::MAX).contains("18446744073709551615"));
}

#[test]
fn unusual_conventions_of_a_file_and_places_in_long_lines_are_named() {
    let form =
        TextForm { encoding: TextEncoding::Utf16Le, mark: true, ends: LineEnds::Crlf, last_end: false };
    let file = PerformedOutcome::Text { first_line: 1, text: "a\r\nb".into(), total_lines: 2, form };
    assert_eq!(
        read(&file).text,
        "     1  a\n     2  b\n[encoding UTF-16LE; begins with a byte order mark; lines end with \\r\\n; the last line \
         has no end; edits keep this]"
    );
    let window = |cut_before, cut_after| Some(LineWindow { column: 70_001, cut_before, cut_after });
    let found = |window| Matched { path: "a.min.js".into(), line: 1, text: "needle=42".into(), window };
    let matches = vec![found(window(true, true)), found(window(true, false))];
    assert_eq!(
        read(&PerformedOutcome::Matches { matches, more: false }).text,
        "a.min.js:1:70001: …needle=42…\na.min.js:1:70001: …needle=42"
    );
}

#[test]
fn folders_and_matches_are_listed_and_hostile_names_escaped() {
    let entries = vec![
        Listed { name: "a.rs".into(), kind: ListedKind::File(12) },
        Listed { name: "evil\nname\u{202e}".into(), kind: ListedKind::Link },
        Listed { name: "src".into(), kind: ListedKind::Folder },
    ];
    let rendered = read(&PerformedOutcome::Listing { entries, more: 2 });
    assert_eq!(rendered.text, "a.rs  12 bytes\nevil\\nname\\u{202e}  (link)\nsrc/\n[2 more entries]");
    let matches =
        vec![Matched { path: "src/a.rs".into(), line: 3, text: "fn main() {".into(), window: None }];
    assert_eq!(read(&PerformedOutcome::Matches { matches, more: false }).text, "src/a.rs:3: fn main() {");
    assert_eq!(read(&PerformedOutcome::Matches { matches: vec![], more: false }).text, "(no match)");
}

/// Part of SIL-104: no hit is no error.
#[test]
fn memories_carry_their_own_labels() {
    let recall = prepared("memory_search", json!({"query": "x"}));
    let none = render(&recall, &PerformedOutcome::Memories { hits: vec![], note: None });
    assert_eq!((none.outcome, none.label.taint), (ToolOutcome::Done, Taint::Owner));
    let said = Some("a search needs a letter or a digit".to_owned());
    let unsearchable = render(&recall, &PerformedOutcome::Memories { hits: vec![], note: said });
    assert_eq!(unsearchable.text, "(a search needs a letter or a digit)");
    let own = render(&recall, &PerformedOutcome::Memories { hits: vec![hit("a", Taint::Owner)], note: None });
    assert_eq!(own.label.taint, Taint::Owner);
    let hits = vec![hit("a", Taint::Owner), hit("b", Taint::External)];
    let read = Label::new(Taint::External).read_by(["zoe".to_owned()]);
    let after = Prepared { label: read, ..recall.clone() };
    let said = render(&after, &PerformedOutcome::Memories { hits: vec![hit("a", Taint::Owner)], note: None });
    assert_eq!(said.label.readers.len(), 0, "whoever has read the mail has not read this");
    let mixed = render(&recall, &PerformedOutcome::Memories { hits, note: None });
    assert_eq!(mixed.label.taint, Taint::External);
    assert!(mixed.text.contains("(fact, working, external) b"), "{}", mixed.text);
    assert_eq!(mixed.label.sources.len(), 1);
    assert!(!mixed.label.secret);
    let secret = RecalledMemory { secret: true, ..hit("c", Taint::Owner) };
    let told = render(
        &recall,
        &PerformedOutcome::Memories { hits: vec![hit("a", Taint::Owner), secret], note: None },
    );
    assert_eq!(told.label.clearance(), Clearance::Secret, "one of them is enough");
}

/// Part of SIL-005: results stay external, whoever asked.
#[test]
fn what_programs_and_files_say_is_external() {
    let exec = ran(ExecEnd::Code(0), "taint: owner", "");
    let source = exec.label.sources.first().expect("a source");
    assert_eq!(exec.label.taint, Taint::External);
    assert_eq!((source.origin.as_str(), source.detail.as_str()), ("shell_exec", "cargo"));
    let file = read(&PerformedOutcome::Text {
        first_line: 1,
        text: "x".into(),
        total_lines: 1,
        form: Default::default(),
    });
    assert_eq!(file.label.taint, Taint::External);
    assert_eq!(file.label.sources.first().map(|source| source.detail.as_str()), Some("src/a.rs"));
    let report = Report::new(Exit::Bug, "x", "no such file").with_hint("list the folder");
    let failed = read(&PerformedOutcome::Failed { report });
    assert_eq!((failed.outcome, failed.label.taint), (ToolOutcome::Failed, Taint::External));
    assert_eq!(failed.text, "failed: no such file (list the folder)");
}

#[test]
fn confirmations_are_the_harness_own_words() {
    let write = prepared("file_write", json!({"path": "a", "content": "x"}));
    let files = vec![
        ("a".to_owned(), ChangeKind::Create, 1),
        ("b".to_owned(), ChangeKind::Modify, 2),
        ("c".to_owned(), ChangeKind::Delete, 0),
    ];
    let rendered = render(&write, &PerformedOutcome::Written { files });
    assert_eq!(rendered.text, "created a (1 bytes)\nchanged b (now 2 bytes)\ndeleted c");
    assert_eq!(rendered.label.taint, Taint::Owner);
    let say = prepared("tell_user", json!({"text": "hi"}));
    assert_eq!(render(&say, &PerformedOutcome::Said).text, "the message was sent");
    let store = prepared("memory_store", json!({"text": "hi"}));
    let id = MemoryId::from_parts(Timestamp::from_millis(5), 7);
    assert_eq!(render(&store, &PerformedOutcome::Remembered { id }).text, format!("remembered as {id}"));
}

/// What a server says is for the owner alone unless they say otherwise, however far it is trusted; and no field of it holds
/// a credential, in its value or in its path.
#[test]
fn a_foreign_answer_keeps_its_readers_and_its_fields_hold_no_credential() {
    let token = format!("ghp_{}", "a1B2".repeat(9));
    let called = |taint, public| PerformedOutcome::Called {
        server: "crm".into(),
        tool: "look".into(),
        text: "so".into(),
        structured: Some(json!({ "mail": "ann@x", token.as_str(): 1, "key": token })),
        is_error: false,
        taint,
        public,
        readers: ["ann@x".to_owned(), token.clone()].into(),
        secret: false,
    };
    let request = prepared("file_read", json!({ "path": "a" }));
    for (taint, public) in [(Taint::Auth, false), (Taint::External, false), (Taint::External, true)] {
        let label = render(&request, &called(taint, public)).label;
        assert_eq!((label.taint, label.private), (taint, !public));
        assert!(label.readers.contains("ann@x") && !label.readers.contains(&token), "{:?}", label.readers);
    }
    let found = result_fields(&called(Taint::External, false), &Redactor::default());
    assert_eq!(found, [Field { path: "/mail".into(), value: "ann@x".into() }]);
}

/// A large file and a long line have lost their end: what is left there of a secret is masked, too.
#[test]
fn the_beginning_of_a_secret_at_a_cut_is_masked() {
    let redactor = Redactor::default();
    let value = "hunter2-hunter2-hunter2";
    redactor.learn_secrets(&[writ_inspect::redact::KnownSecret {
        name: "secret:a".into(),
        value: value.to_owned().into(),
    }]);
    let cut = format!("password={}", &value[..value.len() - 1]);
    let read = prepared("file_read", json!({ "path": "a" }));
    let mut text =
        PerformedOutcome::Text { first_line: 1, text: cut.clone(), total_lines: 9, form: Default::default() };
    let matches = vec![Matched { path: "a".into(), line: 1, text: cut, window: None }];
    let mut found = PerformedOutcome::Matches { matches, more: true };
    for outcome in [&mut text, &mut found] {
        let said = super::render_result(&read, outcome, &redactor).text;
        assert!(said.contains("[masked:secret:a]") && !said.contains("hunter2"), "{said}");
    }
}
