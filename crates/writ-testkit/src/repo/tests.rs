//! Generated repositories: the same for a seed, large enough, with one failing test and no trace of the answer.

use std::collections::BTreeSet;
use std::path::Path;

use super::*;

/// As many as the real job has.
const SEEDS: u64 = 20;

fn project(seed: u64, language: Language) -> layout::GeneratedProject {
    let plan = plan::plan(seed).expect("a plan");
    layout::lay_out(&plan, language).expect("a project")
}

#[test]
fn a_seed_gives_the_same_files_and_another_seed_others() {
    for language in Language::ALL {
        let mut paths = BTreeSet::new();
        for seed in 0..SEEDS {
            let (one, two) = (project(seed, language), project(seed, language));
            assert_eq!(one.files, two.files);
            paths.insert(one.files.keys().cloned().collect::<Vec<_>>());
        }
        assert_eq!(paths.len(), usize::try_from(SEEDS).expect("few"), "each has a structure of its own");
    }
}

#[test]
fn every_repository_is_large_and_has_one_wrong_file() {
    for (seed, language) in (0..100).flat_map(|seed| Language::ALL.map(|language| (seed, language))) {
        let project = project(seed, language);
        assert!(project.files.len() >= MIN_FILES, "{seed} {language:?}: {}", project.files.len());
        assert_eq!(project.files.get(&project.fix.path), Some(&project.fix.wrong));
        assert_ne!(project.fix.wrong, project.fix.right);
        for (path, content) in &project.files {
            let content = content.to_lowercase();
            let mut words = content.split(|c: char| !c.is_alphanumeric());
            let telling = words.find(|word| ["bug", "seed", "fixme", "wrong", "mistake"].contains(word));
            assert_eq!(telling, None, "{path} of {seed}");
        }
    }
}

#[test]
fn every_family_of_bugs_occurs() {
    let families: BTreeSet<BugFamily> =
        (0..100).map(|seed| project(seed, Language::Rust).fix.family).collect();
    assert_eq!(families, BTreeSet::from(BugFamily::ALL));
}

#[expect(clippy::disallowed_types, reason = "tests run the tests of generated projects")]
fn run_tests(generated: &Generated, dir: &Path) -> (bool, String) {
    let (program, arguments) = generated.test_argv.split_first().expect("a program");
    let output = std::process::Command::new(program)
        .args(arguments)
        .current_dir(dir)
        .env_remove("CARGO_TARGET_DIR")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("starts");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[tokio::test]
async fn one_test_fails_until_the_answer_is_written() {
    for (n, language) in (0..).zip(Language::ALL) {
        for seed in [n, n + 50, n + 51] {
            let dir = tempfile::tempdir().expect("a folder");
            let generated = generate_repository(seed, language, dir.path()).await.expect("generated");
            let (passed, output) = run_tests(&generated, dir.path());
            let run = crate::solver::report::TestRun::parse(&output);
            assert!(!passed && run.failed == 1 && run.total > 15, "{seed} {language:?}: {output}");
            let log = ["log".to_owned(), "--oneline".to_owned()];
            let log = host_git(dir.path(), &log).await.expect("git runs");
            assert_eq!(String::from_utf8_lossy(&log.stdout).lines().count(), 1);
            let fix = &generated.expected_fix;
            std::fs::write(dir.path().join(&fix.path), &fix.right).expect("written");
            let (passed, output) = run_tests(&generated, dir.path());
            assert!(passed, "{seed} {language:?}: {output}");
            assert!(!output.contains("warning"), "{output}");
        }
    }
}
