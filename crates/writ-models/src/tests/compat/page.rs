//! The part of `docs/compatibility.md` that is made from the cases.

use std::fmt::Write as _;
use std::path::Path;

use super::{Case, Outcome, Server, Topic, servers};

/// The beginning of each printed line of the page, for `cargo xtask compatibility`.
pub(super) const PRINTED: &str = "compatibility: ";

/// The lines between which that part stands.
const MARKS: [&str; 2] = ["<!-- cases -->\n", "<!-- end of cases -->\n"];

const TOPICS: [(Topic, &str); 7] = [
    (Topic::Stream, "stream"),
    (Topic::ToolCalls, "tool calls"),
    (Topic::Reasoning, "reasoning"),
    (Topic::Usage, "usage"),
    (Topic::ContextLength, "context length"),
    (Topic::Errors, "errors"),
    (Topic::Requests, "requests"),
];

/// The overview, then one table for each server.
pub(super) fn generated(servers: &[Server]) -> String {
    let mut page = String::from("| server |");
    for (_, name) in TOPICS {
        let _ = write!(page, " {name} |");
    }
    page.push_str("\n| --- |");
    page.push_str(&" ---: |".repeat(TOPICS.len()));
    for server in servers {
        let _ = write!(page, "\n| {} |", server.server);
        for (topic, _) in TOPICS {
            let count = server.case.iter().filter(|case| case.topic == topic).count();
            let _ = if count == 0 { write!(page, " |") } else { write!(page, " {count} |") };
        }
    }
    page.push('\n');
    for server in servers {
        let _ = write!(
            page,
            "\n### {}\n\n| subject | the server | Writ | source | seen |\n| --- | --- | --- | --- | --- |\n",
            server.server
        );
        let mut cases: Vec<&Case> = server.case.iter().collect();
        cases.sort_by_key(|case| case.topic);
        for case in cases {
            let topic = TOPICS.iter().find(|(topic, _)| *topic == case.topic).map_or("", |(_, name)| name);
            let (behaviour, outcome) = (&case.behaviour, outcome(&case.expect));
            let _ = writeln!(
                page,
                "| {topic} | {behaviour} | {outcome} | {} | {} |",
                link(&case.source),
                case.seen
            );
        }
    }
    page
}

/// The outcome in words.
fn outcome(expect: &Outcome) -> String {
    if let Some(code) = &expect.failure {
        let window = expect.window.map(|window| format!(", window of {window}")).unwrap_or_default();
        let wait = expect.retry_after.map(|wait| format!(", next try after {wait} s")).unwrap_or_default();
        return format!("`model.{code}`{window}{wait}");
    }
    let calls = match expect.calls.len() {
        0 => String::new(),
        1 => "one call".to_owned(),
        more => format!("{more} calls"),
    };
    match (expect.text.is_some(), calls.is_empty()) {
        (true, true) => "the text".to_owned(),
        (true, false) => format!("the text and {calls}"),
        (false, false) => calls,
        (false, true) => "an empty reply".to_owned(),
    }
}

/// A link whose text is short: `owner/repository#N` for threads, else the host.
fn link(source: &str) -> String {
    let path = source.trim_start_matches("https://");
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        ["github.com", owner, repository, "issues" | "pull", number, ..] => {
            format!("[{owner}/{repository}#{number}]({source})")
        }
        ["github.com", owner, repository, ..] => format!("[{owner}/{repository}]({source})"),
        [host, ..] => format!("[{host}]({source})"),
        [] => source.to_owned(),
    }
}

#[test]
fn the_page_lists_every_case_as_it_is() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/compatibility.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let (_, rest) = page.split_once(MARKS[0]).expect("the page has a place for the cases");
    let (listed, _) = rest.split_once(MARKS[1]).expect("the page has an end of the cases");
    assert!(
        listed == generated(&servers()),
        "docs/compatibility.md does not list the cases as they are: run `cargo xtask compatibility`"
    );
}
