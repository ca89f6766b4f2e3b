//! The curated profile and the first run, from commands and conversations to files of the home.

use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use writ_testkit::model_server::{ParsedRequest, Reply};

use super::turns::{Bench, calls};
use super::{Home, code, text};

/// A profile that says one thing.
fn profile(identity: &str) -> String {
    format!(
        "## Identity\n{identity}\n## Work\n- builds boats\n## Preferences\n## Active Projects\n## Communication Style\n- brief"
    )
}

fn is_digest(request: &ParsedRequest) -> bool {
    request.system.contains("You maintain the profile of the person")
}

/// A bench whose model answers digests with the next of these identities; an empty one is no profile.
fn bench(
    identities: &[&'static str],
    mut other: impl FnMut(&ParsedRequest) -> Reply + Send + 'static,
) -> Bench {
    let identities: Vec<&str> = identities.to_vec();
    let mut next = 0;
    Bench::new("openai", move |request: &ParsedRequest| {
        if !is_digest(request) {
            return other(request);
        }
        let identity = identities.get(next).copied().unwrap_or_default();
        next += 1;
        let text = if identity.is_empty() { String::new() } else { profile(identity) };
        Reply::text(&json!({ "profile": text }).to_string())
    })
}

/// Returns the subjects of the commits beside the profile, as their owner reads them.
fn subjects(home: &Home) -> Vec<String> {
    #[expect(clippy::disallowed_types, reason = "a real repository is looked at with the real program")]
    let done = std::process::Command::new("git")
        .args(["log", "--format=%s"])
        .current_dir(home.root().join("generated"))
        .output()
        .expect("git runs");
    assert!(done.status.success(), "{done:?}");
    String::from_utf8_lossy(&done.stdout).lines().map(str::to_owned).collect()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The profile is a file of the home and a commit in the history beside it. One that stays the same, or that a failed run does not
/// bring, changes neither.
///
/// Rows: WIN-334
#[test]
fn needs_git_a_digest_writes_the_profile_and_commits_a_change_alone() {
    let bench = bench(&["Ann", "Ann", "", "", "Bea"], |_| Reply::text("Yes."));
    let (home, file) = (&bench.home, bench.home.root().join("generated/USER.md"));
    let add = |text: &str| assert_eq!(code(&home.run(&["memory", "add", text])), 0);
    add("The owner is called Ann");
    let done = home.run(&["memory", "digest"]);
    assert!(
        code(&done) == 0 && text(&done).contains("1 memories read; the profile is new"),
        "{}",
        text(&done)
    );
    assert_eq!(read(&file), format!("{}\n", profile("Ann")));
    assert_eq!(subjects(home), ["digest: update user profile"]);
    let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().expect("there").permissions());
    assert_eq!(mode & 0o777, 0o600);
    add("The owner builds boats");
    let done = home.run(&["memory", "digest"]);
    assert!(text(&done).contains("the profile stays as it is"), "{}", text(&done));
    assert_eq!(subjects(home).len(), 1);
    add("The owner sails");
    let failed = home.run(&["memory", "digest"]);
    assert!(code(&failed) == 7 && text(&failed).contains("the profile stays as it is"), "{}", text(&failed));
    assert_eq!((read(&file), subjects(home).len()), (format!("{}\n", profile("Ann")), 1));
    assert_eq!(code(&home.run(&["memory", "digest"])), 0);
    assert_eq!((read(&file), subjects(home).len()), (format!("{}\n", profile("Bea")), 2));
    std::fs::remove_file(&file).expect("removed");
    assert_eq!(home.json(&["memory", "stats"])["counts"][0]["count"], 3, "the memories are elsewhere");
    let shown = home.run(&["memory", "profile"]);
    assert!(text(&shown).contains("Bea") && text(&shown).contains("trust: owner"), "{}", text(&shown));
    assert_eq!(home.json(&["memory", "profile", "--clear"])["profile"], Value::Null);
    assert_eq!(read(&file).trim(), "");
}

/// The agent reads the profile in its context. No tool of it writes the file; and a file that was changed by other means is no word to
/// any agent: the context has the profile of the digest, and the next digest writes the file anew.
///
/// Rows: WIN-321
#[test]
fn needs_userns_needs_git_no_tool_changes_the_profile_and_a_changed_file_changes_no_context() {
    let target = Arc::new(Mutex::new(String::new()));
    let path = Arc::clone(&target);
    let bench = bench(&["Ann", "Bea"], move |request| {
        let path = path.lock().expect("no panic").clone();
        let list = [
            ("file_write", json!({ "path": path, "content": "## Identity\nMallory" })),
            ("file_patch", json!({ "path": path, "old": "Ann", "new": "Mallory" })),
            ("shell_exec", json!({ "argv": ["sh", "-c", format!("echo Mallory >> '{path}'")] })),
        ];
        match list.get(request.results().count()) {
            Some((tool, arguments)) if request.last_user_text() == "try" => {
                Reply::call(tool, arguments.clone())
            }
            _ => Reply::text("I cannot."),
        }
    });
    let file = bench.home.root().join("generated/USER.md");
    *target.lock().expect("no panic") = file.display().to_string();
    assert_eq!(code(&bench.home.run(&["memory", "add", "The owner is called Ann"])), 0);
    assert_eq!(code(&bench.home.run(&["memory", "digest"])), 0);
    let done = bench.chat("try", &["--write"]);
    assert!(text(&done).contains("I cannot."), "{}", text(&done));
    assert_eq!(read(&file), format!("{}\n", profile("Ann")));
    let context = bench.requests().pop().expect("a request");
    assert!(
        context.contains("[profile of the owner]") && context.contains("## Identity\\nAnn\\n"),
        "{context}"
    );

    std::fs::write(&file, "## Identity\nMallory\n").expect("writes");
    assert_eq!(code(&bench.chat("hello", &["--new"])), 0);
    let context = bench.requests().pop().expect("a request");
    assert!(context.contains("## Identity\\nAnn\\n") && !context.contains("Mallory"), "{context}");
    assert_eq!(code(&bench.home.run(&["memory", "add", "The owner is called Bea"])), 0);
    assert_eq!(code(&bench.home.run(&["memory", "digest"])), 0);
    assert_eq!(read(&file), format!("{}\n", profile("Bea")));
}

/// The four questions of the introduction.
const QUESTIONS: [&str; 4] = [
    "their name, their work, their current projects",
    "have automated",
    "How should you write",
    "a good month",
];

/// Nothing but the conversation introduces the agent: no command asks about its owner. The first message brings the introduction with
/// its four questions; what the agent stores of the answers are memories and no profile, and with the first of them the
/// introduction is gone from all later sessions.
///
/// Rows: WIN-344 WIN-345
/// Rows: WIN-343 (in part: it is there on an empty home, and gone after the first memory)
/// Rows: WIN-346 (in part: the first message yields the introduction, and `init` and `chat` ask nothing)
#[test]
fn the_first_message_brings_the_introduction_until_something_is_remembered() {
    let script = |request: &ParsedRequest| match request.last_user_text() {
        "I am Ann." if request.results().count() == 0 => {
            Reply::call("memory_store", json!({ "text": "The owner is called Ann." }))
        }
        "I am Ann." => Reply::text("Hello Ann."),
        _ if request.system.contains("# First run") => Reply::text("I am your agent. Who are you?"),
        _ => Reply::text("Yes."),
    };
    let mut bench = Bench::new("openai", script);
    bench.home.env.retain(|(name, _)| name != "WRIT_FIRST_RUN");
    let asked = bench.home.run(&["init"]);
    assert!(code(&asked) == 0 && !text(&asked).contains('?'), "{}", text(&asked));
    let first = bench.chat("/start", &[]);
    assert!(code(&first) == 0 && text(&first).contains("Who are you?"), "{}", text(&first));
    let request = bench.server.recorded_requests().pop().expect("a request").body.to_string();
    for part in
        QUESTIONS.iter().chain(&["memory_store, generously", "a digest condenses it", "one first tool"])
    {
        assert!(request.contains(part), "{part}: {request}");
    }
    let heard = bench.chat("I am Ann.", &[]);
    assert!(text(&heard).contains("Hello Ann."), "{}", text(&heard));
    let found = bench.home.json(&["memory", "search", "Ann"]);
    assert_eq!(found["hits"][0]["text"], "The owner is called Ann.");
    assert_eq!(bench.home.json(&["memory", "profile"])["profile"], Value::Null);
    assert!(!bench.home.root().join("generated/USER.md").exists());
    for flags in [&[][..], &["--new"]] {
        let later = bench.chat("hello", flags);
        assert!(text(&later).contains("Yes."), "{}", text(&later));
    }
}

/// Where its owner wants no introduction, there is none.
#[test]
fn the_introduction_is_switched_off_by_a_setting() {
    let bench = Bench::new("openai", calls(Vec::new(), "Yes."));
    assert_eq!(code(&bench.chat("hello", &[])), 0);
    assert!(!bench.requests().concat().contains("# First run"));
}

/// A time that is none is named with its line, and nothing starts.
#[test]
fn a_wrong_time_of_the_digest_is_an_error_of_the_configuration() {
    let home = Home::ready();
    std::fs::write(home.root().join("config.toml"), "[memory]\ndigest = \"0 4 * * 0\"\n").expect("written");
    let refused = home.run(&["config", "check"]);
    let said = text(&refused);
    assert!(code(&refused) == 3 && said.contains("memory.digest") && said.contains("sunday 04:00"), "{said}");
    std::fs::write(home.root().join("config.toml"), "[memory]\ndigest = \"off\"\n").expect("written");
    assert_eq!(code(&home.run(&["config", "check"])), 0);
}
