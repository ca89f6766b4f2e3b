//! The real job: «make the failing test pass» in generated repositories, over every wire format. The model knows
//! nothing but what the tools tell it; a falsified result fails the run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use writ_testkit::model_server::{ParsedRequest, Reply};
use writ_testkit::repo::{Generated, Language, generate_repository};
use writ_testkit::solver;

use super::turns::Bench;
use super::{code, text};

/// How many repositories there are (issue: 20 seeds), each worked on over the two formats that most servers speak.
const SEEDS: u64 = 20;
/// Of those, the ones that are worked on over the other formats: one of each language.
const SOME_SEEDS: std::ops::Range<u64> = 0..3;
/// How a run ends whose change does not mend the fault.
const TESTS_FAIL: &str = "the tests fail after the change";
/// What the person asks for.
const MESSAGE: &str = "Make the failing test pass.";

fn language(seed: u64) -> Language {
    match seed % 3 {
        0 => Language::Rust,
        1 => Language::Python,
        _ => Language::JavaScript,
    }
}

fn repository(bench: &Bench, seed: u64) -> Generated {
    let dir = bench.home.dir.path().join(format!("job-{seed}"));
    let made = bench.runtime.block_on(generate_repository(seed, language(seed), &dir)).expect("generated");
    assert!(made.files >= 50, "{} files", made.files);
    made
}

/// Runs the repository's tests as checks are run.
fn tests_pass(bench: &Bench, made: &Generated) -> bool {
    let dir = made.dir.display().to_string();
    let fixed = ["sandbox", "exec", "--verification", "--project", dir.as_str(), "--"];
    let argv: Vec<&str> = fixed.into_iter().chain(made.test_argv.iter().map(String::as_str)).collect();
    code(&bench.home.run(&argv)) == 0
}

fn chat(bench: &Bench, dir: &Path) -> std::process::Output {
    bench.home.run(&["chat", "--new", "-m", MESSAGE, "--project", &dir.display().to_string()])
}

/// Every file of a repository with its content, but what git keeps.
fn files(made: &Generated) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![made.dir.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("reads") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && path.file_name() != Some(".git".as_ref()) {
                folders.push(path);
            } else if path.is_file() {
                files.insert(path.clone(), std::fs::read(path).expect("reads"));
            }
        }
    }
    files
}

/// One run of the job: the request, the approval of the change, and the tests after it. What went wrong, if anything did;
/// until the approval nothing of the repository has changed.
fn run(bench: &Bench, made: &Generated) -> Result<(), String> {
    let before = files(made);
    let done = chat(bench, &made.dir);
    assert!(files(made) == before, "something changed before the approval: {}", text(&done));
    let said = text(&done);
    if said.contains(solver::NOT_FIXED) || !said.contains(solver::FIXED) {
        return Err(said);
    }
    if code(&done) != 5 {
        return Err(format!("nothing waits for an approval: {said}"));
    }
    let approved = bench.home.run(&["approvals", "approve", &bench.ask(), "--yes"]);
    if code(&approved) != 0 {
        return Err(text(&approved));
    }
    let after = files(made);
    let changed: Vec<&PathBuf> = after
        .iter()
        .filter(|(path, content)| before.get(*path) != Some(content))
        .map(|(path, _)| path)
        .collect();
    assert_eq!(changed, [&made.dir.join(&made.expected_fix.path)], "only the file with the fault");
    if tests_pass(bench, made) { Ok(()) } else { Err(TESTS_FAIL.to_owned()) }
}

fn jobs(kind: &'static str, seeds: impl Iterator<Item = u64>) {
    let bench = Bench::new(kind, solver::solve_next_step);
    for seed in seeds {
        let made = repository(&bench, seed);
        run(&bench, &made).unwrap_or_else(|why| panic!("seed {seed} over {kind}: {why}"));
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

/// Rows: WIN-001 (in part: the loop, on the command line)
#[test]
fn needs_userns_needs_git_needs_python_needs_node_failing_tests_are_mended_over_anthropic_messages() {
    jobs("anthropic", 0..SEEDS);
}

/// Rows: WIN-001 (in part: the loop, on the command line)
#[test]
fn needs_userns_needs_git_needs_python_needs_node_failing_tests_are_mended_over_openai_chat() {
    jobs("openai", 0..SEEDS);
}

/// Rows: WIN-001 (in part: the loop, on the command line)
#[test]
fn needs_userns_needs_git_needs_python_needs_node_failing_tests_are_mended_over_the_other_formats() {
    for kind in ["openai_responses", "gemini", "ollama", "openrouter"] {
        jobs(kind, SOME_SEEDS);
    }
}

/// What a model is told instead of what a tool has said.
struct Lie {
    tool: &'static str,
    /// Which results of the tool are falsified, counted from 0.
    from: usize,
    to: usize,
    tell: fn(&str) -> String,
    /// What the run then ends with.
    ends: &'static str,
    /// A seed over Anthropic Messages, and one over OpenAI Chat.
    seeds: [u64; 2],
}

/// Each kind of result that the solver works with: a listing, a run of the tests before and after its edit, a search, a
/// file, and an edit.
static LIES: [Lie; 9] = [
    Lie {
        tool: "file_read",
        from: 0,
        to: 1,
        tell: |text| text.replace(".toml", ".txt").replace("package.json", "package.txt"),
        ends: "the folder has no Cargo.toml, package.json or pyproject.toml",
        seeds: [0, 5],
    },
    Lie {
        tool: "shell_exec",
        from: 0,
        to: 1,
        tell: |_| "Ran 20 tests in 0.1s\n\nOK".to_owned(),
        ends: "shows no failing assertion",
        seeds: [3, 4],
    },
    Lie {
        tool: "shell_exec",
        from: 0,
        to: 1,
        tell: |text| text.replace(" != ", " != 7").replace("\n right: ", "\n right: 7"),
        ends: "the test's output and its source disagree",
        seeds: [6, 7],
    },
    Lie {
        tool: "search",
        from: 0,
        to: 1,
        tell: |text| text.replace("fn ", "const fn ").replace("function ", "async function "),
        ends: "search and file_read disagree",
        seeds: [8, 9],
    },
    Lie {
        tool: "search",
        from: 0,
        to: 1,
        tell: |_| "nothing found".to_owned(),
        ends: "is defined in 0 places",
        seeds: [10, 12],
    },
    Lie {
        tool: "file_read",
        from: 1,
        to: usize::MAX,
        // The source alone: a test has no function that is handed out.
        tell: |text| match text.contains("export function") {
            true => text.replace(";\n", "; // checked\n"),
            false => text.to_owned(),
        },
        ends: "could not be changed: file_patch: the old text is not in",
        seeds: [11, 14],
    },
    Lie {
        tool: "shell_exec",
        from: 1,
        to: usize::MAX,
        tell: |_| "Ran 3 tests in 0.1s\n\nOK".to_owned(),
        ends: "the tests pass, but there are 3 of them",
        seeds: [13, 15],
    },
    Lie {
        tool: "shell_exec",
        from: 1,
        to: usize::MAX,
        tell: |text| format!("(exit code 1)\n{text}"),
        ends: "that I know makes",
        seeds: [18, 19],
    },
    Lie {
        tool: "file_patch",
        from: 0,
        to: 1,
        tell: |_| "denied: a rule forbids it".to_owned(),
        ends: "could not be changed: denied: a rule forbids it",
        seeds: [16, 17],
    },
];

/// Every run of the tests after an edit is a good one.
static DECEIT: Lie = Lie {
    tool: "shell_exec",
    from: 1,
    to: usize::MAX,
    tell: |text| {
        let ran = text.lines().find(|line| line.starts_with("Ran ")).unwrap_or_default();
        format!("{ran}\n\nOK")
    },
    ends: TESTS_FAIL,
    // In Python; the first edit of this seed is a wrong one.
    seeds: [13, 13],
};

/// The solver, which is lied to.
fn lied_to(lie: &Lie, request: &ParsedRequest) -> Reply {
    let mut request = request.clone();
    let results = request.messages.iter_mut().flat_map(|message| &mut message.results);
    let of_the_tool = results.filter(|result| result.name == lie.tool);
    for result in of_the_tool.take(lie.to).skip(lie.from) {
        result.text = (lie.tell)(&result.text);
    }
    solver::solve_next_step(&request)
}

/// Each kind of result, falsified, ends the run as failed and leaves the repository as it was, over both formats. The
/// twins are the same seeds above, with nobody lying.
#[test]
fn needs_userns_needs_git_needs_python_needs_node_a_falsified_result_of_each_kind_fails_the_run() {
    for lie in &LIES {
        for (kind, seed) in ["anthropic", "openai"].into_iter().zip(lie.seeds) {
            let bench = Bench::new(kind, move |request: &ParsedRequest| lied_to(lie, request));
            let made = repository(&bench, seed);
            let before = files(&made);
            let why = run(&bench, &made).expect_err("a run that was lied to");
            let about = format!("{} {} over {kind}, seed {seed}: {why}", lie.tool, lie.from);
            assert!(why.contains(solver::NOT_FIXED) && why.contains(lie.ends), "{about}");
            assert!(files(&made) == before && !tests_pass(&bench, &made), "{about}");
        }
    }
}

/// A wrong edit that is called good by a falsified run of the tests: the model is deceived, the run is not.
#[test]
fn needs_userns_needs_git_needs_python_tests_that_only_seem_to_pass_fail_the_run() {
    for (kind, seed) in ["anthropic", "openai"].into_iter().zip(DECEIT.seeds) {
        let bench = Bench::new(kind, |request: &ParsedRequest| lied_to(&DECEIT, request));
        let made = repository(&bench, seed);
        assert_eq!(run(&bench, &made), Err(DECEIT.ends.to_owned()), "seed {seed} over {kind}");
    }
}
