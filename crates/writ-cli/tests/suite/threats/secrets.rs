//! Case 18, secret in output: what a program or file says of this home's secrets reaches no model, no record, no log and
//! no screen.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use writ_testkit::model_server::{ParsedRequest, Reply};

use crate::engine::{Engine, Link};
use crate::turns::{Bench, calls};
use crate::{Home, code, text};

/// A value that the home knows.
const SECRET: &str = "kq7Zt-planted/secret+9351 x";
/// As long, and not known.
const OTHER: &str = "kq7Zt-ordinary/words+9351 x";
/// What stands in the place of the secret.
const MASK: &str = "[masked:secret:planted]";

/// A value in every form that is promised, but for base64.
fn plain_forms(value: &str) -> Vec<String> {
    let url: String = value
        .bytes()
        .map(|b| match b {
            b if b.is_ascii_alphanumeric() || b == b'-' => char::from(b).to_string(),
            b => format!("%{b:02X}"),
        })
        .collect();
    vec![value.to_owned(), url, hex::encode(value), hex::encode_upper(value), value.chars().rev().collect()]
}

/// A value in base64, at each of three offsets and in both alphabets.
fn base64_forms(value: &str) -> Vec<(usize, String)> {
    let one = |before: &str| {
        let text = format!("{before}{value}");
        [STANDARD.encode(&text), URL_SAFE_NO_PAD.encode(&text)].map(|form| (before.len(), form))
    };
    ["", "a", "ab"].into_iter().flat_map(one).collect()
}

/// What is looked for: each form, of base64 what the value alone decides.
fn forms(value: &str) -> Vec<String> {
    let mut forms = plain_forms(value);
    forms.extend(base64_forms(value).into_iter().map(|(before, form)| {
        let skipped = (before * 8).div_ceil(6);
        form.get(skipped..skipped + 24).expect("ASCII").to_owned()
    }));
    forms
}

/// What a program prints: the value in every form, inside longer lines of base64, too, in JSON, and one character a line.
fn printed(value: &str) -> String {
    let mut lines = plain_forms(value);
    lines.extend(base64_forms(value).into_iter().map(|(_, form)| form));
    lines.extend(["", "a", "ab"].map(|before| STANDARD.encode(format!("{before}{value} and more"))));
    lines.push(json!({ "key": value }).to_string());
    lines.push(value.chars().map(|c| format!("{c}\n")).collect());
    lines.join("\n")
}

/// The files of a home that hold a form of a value, keys aside.
fn holding(home: &Home, value: &str) -> Vec<PathBuf> {
    let forms = forms(value);
    let holds = |path: &Path| {
        let bytes = std::fs::read(path).expect("reads");
        forms.iter().any(|form| bytes.windows(form.len()).any(|window| window == form.as_bytes()))
    };
    let (mut folders, mut found) = (vec![home.root()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("reads") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true if path.ends_with("keys") => {}
                true => folders.push(path),
                false if path.is_file() && holds(&path) => found.push(path),
                false => {}
            }
        }
    }
    found
}

fn clean(what: &str, text: &str) {
    for form in forms(SECRET) {
        assert!(!text.contains(&form), "{what} holds {form}");
    }
}

/// A bench in whose project a file holds a value in every form.
fn planted(value: &str, script: impl FnMut(&ParsedRequest) -> Reply + Send + 'static) -> Bench {
    let bench = Bench::new("anthropic", script);
    std::fs::write(bench.project().join("dump.txt"), printed(value)).expect("written");
    std::fs::write(bench.project().join("raw.txt"), value).expect("written");
    bench
}

/// Whatever prints them. The last is a model that says what it was never told.
fn work(value: &'static str) -> Vec<(&'static str, Value)> {
    vec![
        ("shell_exec", json!({ "argv": ["cat", "dump.txt"] })),
        (
            "shell_exec",
            json!({ "argv": ["sh", "-c", "head -c 9 raw.txt; sync; tail -c +10 raw.txt; cat raw.txt >&2; exit 3"] }),
        ),
        ("file_read", json!({ "path": "dump.txt" })),
        ("search", json!({ "pattern": "planted|ordinary" })),
        ("memory_store", json!({ "text": format!("the key is {value}"), "kind": "fact" })),
        ("shell_exec", json!({ "argv": ["echo", value] })),
    ]
}

/// Rows: WIN-220 WIN-424
#[test]
fn needs_userns_what_a_program_says_of_a_secret_reaches_no_model_record_log_or_screen() {
    let said = format!("It is {SECRET}, or {}.", hex::encode(SECRET));
    let said: &'static str = Box::leak(said.into_boxed_str());
    let bench = planted(SECRET, calls(work(SECRET), said));
    let set = bench.home.run_with(&["secrets", "set", "planted"], SECRET.as_bytes());
    assert_eq!(code(&set), 0, "{}", text(&set));
    let engine = Engine::start(&bench.home, &[]).expect("starts");
    let mut link = Link::open(&bench.home).expect("connects");
    let session = link.join(None, Some(&bench.project())).expect("joined");
    let mut frames = Vec::new();
    link.say("look at the files", "one").expect("sent");
    link.until(|numbered| {
        frames.push(serde_json::to_string(&numbered.frame).expect("JSON"));
        matches!(numbered.frame, writ_types::frame::ServerFrame::Message { last: true, .. }).then_some(())
    })
    .expect("answered");
    for frame in &frames {
        clean("a frame", frame);
    }
    let told = frames.iter().find(|frame| frame.contains("\"status\"") && frame.contains("change it"));
    assert!(told.is_some_and(|told| told.contains("secret:planted")), "its owner is told: {frames:?}");
    let reply = frames.last().expect("one");
    assert_eq!(reply.matches(MASK).count(), 2, "{reply}");
    let requests = bench.requests();
    assert_eq!(requests.len(), 7);
    for request in &requests {
        clean("a request", request);
    }
    let last = requests.last().expect("one");
    // Eleven forms, three longer lines of base64, JSON, and one character a line; twice, and what else there was.
    assert!(last.matches(MASK).count() >= 2 * 16 + 4, "{last}");
    let gated: Vec<String> = bench.events("gated").iter().map(|row| row["payload"].to_string()).collect();
    let by_redactor: Vec<&String> = gated.iter().filter(|row| row.contains("\"redactor\"")).collect();
    assert!(
        by_redactor.iter().all(|row| row.contains("secret:planted")) && by_redactor.len() == 4,
        "{gated:?}"
    );
    let count = forms(SECRET).len();
    println!("THREAT 18 attempts={count} refused={count} entries={} entry=gated twins=1", by_redactor.len());
    let replayed = text(&bench.home.run(&["audit", "tail", "-n", "1000", "--json"]));
    clean("the ledger", &replayed);
    let found = text(&bench.home.run(&["memory", "search", "key", "--json"]));
    assert!(found.contains(MASK), "{found}");
    drop(link);
    let ended = engine.stop();
    clean("standard error", &ended.said);
    assert_eq!(holding(&bench.home, SECRET), Vec::<PathBuf>::new());
    let shown = bench.home.run(&["chat", "--session", &session.to_string(), "-m", "again"]);
    clean("the terminal", &text(&shown));
}

/// The twin: as much of a text that is no secret arrives as it was said.
#[test]
fn needs_userns_text_that_is_no_secret_arrives_as_it_was_said() {
    let bench = planted(OTHER, calls(work(OTHER), OTHER));
    let set = bench.home.run_with(&["secrets", "set", "planted"], SECRET.as_bytes());
    assert_eq!(code(&set), 0, "{}", text(&set));
    let done = bench.chat("look at the files", &["--new"]);
    assert!(text(&done).contains(OTHER), "{}", text(&done));
    let request = bench.requests().pop().expect("one");
    for form in forms(OTHER) {
        assert!(request.contains(&form), "{form} is in {request}");
    }
    assert!(!request.contains("[masked"), "{request}");
    assert!(!holding(&bench.home, OTHER).is_empty(), "the search of files finds what is there");
}

/// What is masked is not known to the model, so it cannot write it back over what it stands for.
#[test]
fn needs_userns_a_mask_is_not_written_over_what_it_stands_for() {
    let write = |text: String| ("file_write", json!({ "path": "raw.txt", "content": text }));
    let bench =
        planted(SECRET, calls(vec![write(format!("key = {MASK}\n")), write("key = none\n".into())], "Done."));
    let set = bench.home.run_with(&["secrets", "set", "planted"], SECRET.as_bytes());
    assert_eq!(code(&set), 0, "{}", text(&set));
    let done = bench.chat("tidy up", &["--new", "--write"]);
    assert_eq!(code(&done), 0, "{}", text(&done));
    let requests = bench.requests();
    assert!(
        requests.get(1).expect("a second").contains("not written: the text holds a mask"),
        "{requests:?}"
    );
    assert_eq!(
        std::fs::read_to_string(bench.project().join("raw.txt")).expect("reads").trim_end(),
        "key = none",
        "twin; the file keeps its last line as it ended"
    );
}

/// The documented limit: a value that was changed otherwise is not recognised.
#[test]
fn needs_userns_the_limit_is_a_value_with_other_characters_between_its_own() {
    let spread = SECRET.chars().map(|c| format!("{c}.")).collect::<String>();
    let bench =
        planted(SECRET, calls(vec![("shell_exec", json!({ "argv": ["cat", "spread.txt"] }))], "Done."));
    std::fs::write(bench.project().join("spread.txt"), &spread).expect("written");
    let set = bench.home.run_with(&["secrets", "set", "planted"], SECRET.as_bytes());
    assert_eq!(code(&set), 0, "{}", text(&set));
    let done = bench.chat("look", &["--new"]);
    assert_eq!(code(&done), 0, "{}", text(&done));
    assert!(bench.requests().pop().expect("one").contains(&spread), "as docs/known-limitations.md says");
}

/// Programs have neither the secrets of the home nor the variables that hold some: they look for them wherever they can.
///
/// Rows: WIN-411
/// Rows: WIN-210 (secrets; a file of the work folder is the twin)
/// Rows: WIN-155 (in part: no secret)
#[test]
fn needs_userns_no_secret_is_where_a_program_can_look() {
    // In two pieces, as a value in an argument would be masked.
    let look = "p=kq7Zt-plan; grep -rlsF \"${p}ted/secret\" /proc/self/environ /proc/1/environ /proc/*/environ \
                /etc /home /root /tmp /run /work \"$HOME\" || echo found nothing";
    let mut bench =
        planted(OTHER, calls(vec![("shell_exec", json!({ "argv": ["sh", "-c", look] }))], "Done."));
    bench.home = bench.home.with("SCRIPTED_KEY", SECRET).with("PLANTED", SECRET);
    let set = bench.home.run_with(&["secrets", "set", "planted"], SECRET.as_bytes());
    assert_eq!(code(&set), 0, "{}", text(&set));
    let done = bench.chat("look around", &["--new"]);
    assert_eq!(code(&done), 0, "{}", text(&done));
    let told = bench.requests().pop().expect("one");
    assert!(told.contains("found nothing"), "{told}");
    std::fs::write(bench.project().join("raw.txt"), SECRET).expect("written");
    let done = bench.chat("look again", &["--new"]);
    assert!(bench.requests().pop().expect("one").contains("/work/raw.txt"), "twin: {}", text(&done));
}
