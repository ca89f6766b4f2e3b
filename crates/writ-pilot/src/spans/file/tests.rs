use std::os::unix::fs::symlink;

use serde_json::{Map, Value};
use writ_types::api::pilot::SpanOperation;

use super::*;

const DAY: &str = "2026-01-31";

fn now() -> Timestamp {
    Timestamp::from_millis(1_769_860_800_000)
}

fn span(n: u32) -> PilotSpan {
    PilotSpan {
        trace_id: "t".to_owned(),
        span_id: format!("s{n}"),
        parent_span_id: Some("r".to_owned()),
        run_id: "r".to_owned(),
        operation: SpanOperation::ToolCall,
        started_at: now(),
        duration_ms: u64::from(n),
        attrs: Map::from_iter([("call".to_owned(), "write «ä»\nb".into())]),
        error: (n % 2 == 1).then(|| "it failed".to_owned()),
    }
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("reads");
    text.lines().map(|line| serde_json::from_str(line).expect("one object a line")).collect()
}

/// A span is one line with all of its fields, and each line is found by its first byte alone. The first line of a file says its version
/// once, however often spans are added; the next day has a file of its own, and a day without spans none.
///
/// Rows: SF-455
/// Rows: SF-453 (in part: a file for each day, and none without a span)
#[test]
fn a_file_of_a_day_begins_with_its_version_and_has_a_span_a_line() {
    let top = tempfile::tempdir().expect("a folder");
    let files = TraceFiles::of_project(top.path());
    assert!(files.list(TRACE).expect("lists").is_empty());
    let (file, mut offsets) = files.append((DAY, now()), &[span(1), span(2)]).expect("writes");
    // As another process does after a restart.
    let (again, more) = TraceFiles::of_project(top.path()).append((DAY, now()), &[span(3)]).expect("writes");
    assert_eq!((file.as_str(), &again), (".writ/trace/trace-2026-01-31.jsonl", &file));
    offsets.extend(more);
    for (n, offset) in (1..).zip(&offsets) {
        assert_eq!(files.read_at(&file, *offset).span.expect("reads"), span(n));
    }
    let all = lines(&top.path().join(&file));
    assert_eq!(all.len(), 4);
    let header = all[0].as_object().expect("an object");
    assert_eq!((&header["_meta"], &header["trace_schema_version"]), (&Value::Bool(true), &1.into()));
    assert!(header["writ_version"] == env!("CARGO_PKG_VERSION") && !header["created_at"].is_null());
    assert_eq!(header.len(), 4);
    assert!(all[1..].iter().all(|line| line.get("_meta").is_none()));
    assert_eq!(all[1]["attrs"]["call"], "write «ä»\nb");
    assert_eq!((&all[1]["error"], &all[2]["error"]), (&"it failed".into(), &Value::Null));
    let (next, _) = files.append(("2026-02-02", now()), &[span(4)]).expect("writes");
    assert_eq!(files.list(TRACE).expect("lists"), [file, next]);
}

/// A record with an unknown operation or without a field is no span, and none is written: the writer's type has no such operation.
///
/// Rows: SF-451
#[test]
fn a_record_is_of_its_form_alone() {
    let good = serde_json::to_value(span(1)).expect("writes");
    let fields: Vec<&str> = good.as_object().expect("an object").keys().map(String::as_str).collect();
    let expected = [
        "attrs",
        "duration_ms",
        "error",
        "operation",
        "parent_span_id",
        "run_id",
        "span_id",
        "started_at",
        "trace_id",
    ];
    assert_eq!(fields.into_iter().collect::<std::collections::BTreeSet<_>>(), expected.into());
    let read = |record: &Value| serde_json::from_value::<PilotSpan>(record.clone());
    for operation in ["tool_call", "phase_transition", "model_request", "hook", "run", "gate"] {
        let mut record = good.clone();
        record["operation"] = operation.into();
        let span = read(&record).expect("known");
        assert_eq!(span.operation.name(), operation);
    }
    let mut odd = good.clone();
    odd["operation"] = "thought".into();
    assert!(read(&odd).is_err());
    for name in ["trace_id", "span_id", "run_id", "operation", "started_at", "duration_ms", "attrs"] {
        let mut without = good.clone();
        without.as_object_mut().expect("an object").remove(name);
        assert!(read(&without).is_err(), "{name}");
    }
}

/// A reader takes a file of its own version, and says of another that it is not supported; no byte of a file changes by reading or by
/// writing the list, which has the version and every file.
///
/// Rows: SF-456 (in part: the reader and the list; no upgrade of the program)
#[test]
fn a_reader_goes_by_the_version_of_the_file() {
    let top = tempfile::tempdir().expect("a folder");
    let files = TraceFiles::of_project(top.path());
    let (file, offsets) = files.append((DAY, now()), &[span(1)]).expect("writes");
    let newer = ".writ/trace/trace-2026-02-01.jsonl";
    let text = fs::read_to_string(top.path().join(&file)).expect("reads");
    let text = text.replacen("\"trace_schema_version\":1", "\"trace_schema_version\":99", 1);
    fs::write(top.path().join(newer), &text).expect("written");
    assert!(files.read_at(&file, offsets[0]).span.is_ok());
    let refused = files.read_at(newer, offsets[0] + 1).span.expect_err("another version");
    assert!(refused.contains("version 99 of the trace is not supported"), "{refused}");
    assert!(files.read_after(newer, None).is_err());
    let none = files.read_at(".writ/trace/trace-2026-03-01.jsonl", 0).span;
    assert!(none.expect_err("there is none").contains("2026-03-01"));
    files.write_list().expect("writes");
    assert_eq!(fs::read_to_string(top.path().join(newer)).expect("reads"), text);
    let list = &lines(&top.path().join(".writ/trace/_meta.json"))[0];
    assert_eq!(list["trace_schema_version"], 1);
    assert_eq!(list["files"], serde_json::json!([file, newer]));
}

/// A line that a crash has cut off stays, the next span has a line of its own, and the spans behind a known one are found.
#[test]
fn a_line_that_was_cut_off_costs_no_span() {
    let top = tempfile::tempdir().expect("a folder");
    let files = TraceFiles::of_project(top.path());
    let (file, offsets) = files.append((DAY, now()), &[span(1), span(2)]).expect("writes");
    let path = top.path().join(&file);
    let mut text = fs::read(&path).expect("reads");
    text.truncate(text.len() - 20);
    fs::write(&path, &text).expect("written");
    let (_, more) = files.append((DAY, now()), &[span(3)]).expect("writes");
    assert_eq!(files.read_at(&file, more[0]).span.expect("reads"), span(3));
    assert!(files.read_at(&file, offsets[1]).span.is_err());
    let ids = |after| -> Vec<(String, u64)> {
        let found = files.read_after(&file, after).expect("reads");
        found.into_iter().map(|one| (one.span.span_id, one.offset)).collect()
    };
    let all = [("s1".to_owned(), offsets[0]), ("s3".to_owned(), more[0])];
    assert_eq!(ids(None), all);
    assert_eq!(ids(Some(offsets[0])), all[1..]);
    assert!(ids(Some(more[0])).is_empty());
}

/// A file of any length is read in parts, each behind the one before.
#[test]
fn a_long_file_is_read_in_parts() {
    let top = tempfile::tempdir().expect("a folder");
    let files = TraceFiles::of_project(top.path());
    let spans: Vec<PilotSpan> = (0..2_001).map(span).collect();
    let (file, offsets) = files.append((DAY, now()), &spans).expect("writes");
    let (mut after, mut parts, mut found) = (None, Vec::new(), Vec::new());
    loop {
        let part = files.read_after(&file, after).expect("reads");
        let Some(last) = part.last() else { break };
        after = Some(last.offset);
        parts.push(part.len());
        found.extend(part.into_iter().map(|one| one.offset));
    }
    assert_eq!((parts, found), (vec![MAX_READ_SPANS, MAX_READ_SPANS, 1], offsets));
}

/// A link in the place of a file is neither followed nor written to.
#[test]
fn a_link_is_no_trace_file() {
    let (top, elsewhere) = (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("another"));
    let files = TraceFiles::of_project(top.path());
    let (file, offsets) = files.append((DAY, now()), &[span(1)]).expect("writes");
    let (path, other) = (top.path().join(&file), elsewhere.path().join("other"));
    fs::rename(&path, &other).expect("moved");
    let before = fs::read(&other).expect("reads");
    symlink(&other, &path).expect("links");
    assert!(files.append((DAY, now()), &[span(2)]).is_err());
    assert!(files.read_at(&file, offsets[0]).span.is_err());
    assert_eq!(fs::read(&other).expect("reads"), before);
}

/// A link in the place of a folder is not followed, also where it stays in the project: nothing is read, moved or made behind it.
#[test]
fn a_linked_folder_has_no_trace_files() {
    let top = tempfile::tempdir().expect("a folder");
    let files = TraceFiles::of_project(top.path());
    let (file, offsets) = files.append((DAY, now()), &[span(1)]).expect("writes");
    let other = top.path().join("other");
    fs::rename(top.path().join(TRACE), &other).expect("moved");
    symlink(&other, top.path().join(TRACE)).expect("links");
    symlink(&other, top.path().join(".writ/archive")).expect("links");
    let before = fs::read_dir(&other).expect("reads").count();
    assert!(files.list(TRACE).is_err() && files.list(ARCHIVE).is_err());
    assert!(files.read_at(&file, offsets[0]).span.is_err() && files.read_after(&file, None).is_err());
    assert!(files.append((DAY, now()), &[span(2)]).is_err() && files.archive(&file).is_err());
    assert!(files.append(("2026-02-01", now()), &[span(2)]).is_err());
    assert_eq!(fs::read_dir(&other).expect("reads").count(), before);
    // The source is plain, and the archive alone is a link.
    fs::remove_file(top.path().join(TRACE)).expect("removed");
    fs::rename(&other, top.path().join(TRACE)).expect("moved");
    symlink(top.path(), &other).expect("links");
    assert!(files.archive(&file).is_err());
    assert!(files.read_at(&file, offsets[0]).span.is_ok());
}

/// What agents have done is read by the owner alone.
#[test]
fn files_and_folders_are_for_the_owner_alone() {
    let top = tempfile::tempdir().expect("a folder");
    let files = TraceFiles::of_project(top.path());
    let (file, _) = files.append((DAY, now()), &[span(1)]).expect("writes");
    let mode = |below: &str| {
        let meta = fs::metadata(top.path().join(below)).expect("is there");
        meta.permissions().mode() & 0o777
    };
    assert_eq!((mode(&file), mode(TRACE), mode(".writ/trace/_meta.json")), (0o600, 0o700, 0o600));
    let archived = files.archive(&file).expect("moves");
    assert_eq!((mode(&archived), mode(ARCHIVE)), (0o600, 0o700));
}

#[test]
fn a_file_is_named_by_its_day() {
    assert_eq!(day_of("trace-2026-01-31.jsonl"), Some("2026-01-31"));
    for name in ["trace-2026-1-31.jsonl", "trace-.jsonl", "_meta.json", "trace-2026-01-31.jsonl.new", "x"] {
        assert_eq!(day_of(name), None, "{name}");
    }
}
