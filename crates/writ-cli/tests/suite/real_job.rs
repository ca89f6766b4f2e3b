//! The real job: «make the failing test pass» in generated repositories, over every wire format. The model knows
//! nothing but what the tools tell it; a falsified result fails the run.

use std::path::Path;

use writ_testkit::model_server::{ParsedRequest, Reply};
use writ_testkit::repo::{Generated, Language, generate};
use writ_testkit::solver;

use super::turns::Bench;
use super::{code, text};

/// How many repositories there are (issue: 20 seeds), each worked on over the two formats that most servers speak.
const SEEDS: u64 = 20;
/// Of those, the ones that are worked on over the other formats: one of each language.
const SOME_SEEDS: std::ops::Range<u64> = 0..3;
/// What the person asks for.
const WISH: &str = "Make the failing test pass.";

fn language(seed: u64) -> Language {
    match seed % 3 {
        0 => Language::Rust,
        1 => Language::Python,
        _ => Language::JavaScript,
    }
}

fn repository(bench: &Bench, seed: u64) -> Generated {
    let dir = bench.home.dir.path().join(format!("job-{seed}"));
    let made = bench.runtime.block_on(generate(seed, language(seed), &dir)).expect("generated");
    assert!(made.files >= 50, "{} files", made.files);
    made
}

fn read(made: &Generated) -> String {
    std::fs::read_to_string(made.dir.join(&made.expected_fix.path)).expect("reads")
}

/// Runs the repository's tests as checks are run.
fn tests_pass(bench: &Bench, made: &Generated) -> bool {
    let dir = made.dir.display().to_string();
    let fixed = ["sandbox", "exec", "--verification", "--project", dir.as_str(), "--"];
    let argv: Vec<&str> = fixed.into_iter().chain(made.test_argv.iter().map(String::as_str)).collect();
    code(&bench.home.run(&argv)) == 0
}

fn chat(bench: &Bench, dir: &Path) -> std::process::Output {
    bench.home.run(&["chat", "--new", "-m", WISH, "--project", &dir.display().to_string()])
}

fn jobs(kind: &'static str, seeds: impl Iterator<Item = u64>) {
    let bench = Bench::new(kind, solver::reply);
    for seed in seeds {
        let made = repository(&bench, seed);
        let before = read(&made);
        let done = chat(&bench, &made.dir);
        assert_eq!(code(&done), 5, "seed {seed} over {kind}: {}", text(&done));
        assert_eq!(read(&made), before, "seed {seed}: nothing before the approval");
        let approved = bench.home.run(&["approvals", "approve", &bench.ask(), "--yes"]);
        assert_eq!(code(&approved), 0, "seed {seed}: {}", text(&approved));
        assert_ne!(read(&made), before, "seed {seed} over {kind}: the file with the fault is as it was");
        assert!(tests_pass(&bench, &made), "seed {seed} over {kind}: the tests fail after the change");
    }
    let status = bench.home.json(&["status"]);
    assert_eq!(status["open_intents"], serde_json::json!([]), "{status}");
    assert_eq!(
        bench.events("intent").len(),
        bench.events("outcome").len() + bench.events("model_called").len()
    );
    let verified = bench.home.run(&["audit", "verify"]);
    assert_eq!(code(&verified), 0, "{}", text(&verified));
}

/// Rows: WIN-001 (the loop, on the command line)
#[test]
fn needs_userns_needs_git_needs_python_needs_node_failing_tests_are_mended_over_anthropic_messages() {
    jobs("anthropic", 0..SEEDS);
}

/// Rows: WIN-001 (the loop, on the command line)
#[test]
fn needs_userns_needs_git_needs_python_needs_node_failing_tests_are_mended_over_openai_chat() {
    jobs("openai", 0..SEEDS);
}

/// Rows: WIN-001 (the loop, on the command line)
#[test]
fn needs_userns_needs_git_needs_python_needs_node_failing_tests_are_mended_over_the_other_formats() {
    for kind in ["openai_responses", "gemini", "ollama", "openrouter"] {
        jobs(kind, SOME_SEEDS);
    }
}

/// A model that is lied to about the tests must not come out as if it had mended them.
#[test]
fn needs_userns_needs_git_needs_python_a_falsified_result_fails_the_run() {
    let lie = |request: &ParsedRequest| -> Reply {
        let mut request = request.clone();
        for result in request.messages.iter_mut().flat_map(|message| &mut message.results) {
            result.text =
                result.text.replace("FAILED", "ok").replace("failed", "passed").replace("FAIL", "ok");
        }
        solver::reply(&request)
    };
    let bench = Bench::new("anthropic", lie);
    let made = repository(&bench, 1);
    let done = chat(&bench, &made.dir);
    assert!(text(&done).contains(solver::NOT_FIXED), "{}", text(&done));
    assert!(!tests_pass(&bench, &made), "the tests still fail");
}
