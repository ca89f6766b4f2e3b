use std::collections::BTreeMap;

use super::*;
use crate::config::{GateCommand, GateMoment, read_config};

fn propose(paths: &[&str], texts: &[(&str, &str)]) -> Vec<String> {
    let all =
        paths.iter().chain(texts.iter().map(|(path, _)| path)).map(|path| path.as_bytes().to_vec()).collect();
    let texts: BTreeMap<String, String> =
        texts.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
    let shown = |gate: ProposedGate| {
        format!("{}: {} [{}]", gate.name, gate.run.join(" "), gate.report.map_or("-", report_name))
    };
    propose_gates(&ProjectFiles::of_parts(all, texts)).into_iter().map(shown).collect()
}

/// Paths, texts by path, and the proposals.
type Case = (&'static [&'static str], &'static [(&'static str, &'static str)], &'static [&'static str]);

#[test]
fn commands_of_each_language_are_found_with_their_reports() {
    let cases: [Case; 17] = [
        (
            &[],
            &[("Cargo.toml", "[package]\nname = \"a\"\n")],
            &[
                "rust-test: cargo test [cargo]",
                "rust-lint: cargo clippy --all-targets -- -D warnings [-]",
                "rust-format: cargo fmt --all --check [-]",
            ],
        ),
        (
            &[".config/nextest.toml"],
            &[("Cargo.toml", "[workspace]\n")],
            &[
                "rust-test: cargo nextest run --workspace [nextest]",
                "rust-lint: cargo clippy --workspace --all-targets -- -D warnings [-]",
                "rust-format: cargo fmt --all --check [-]",
            ],
        ),
        (
            &[],
            &[("pyproject.toml", "[tool.pytest.ini_options]\n[tool.ruff]\n[tool.mypy]\n")],
            &[
                "python-test: python3 -m pytest [pytest]",
                "python-lint: ruff check . [-]",
                "python-types: mypy . [-]",
            ],
        ),
        (&["pytest.ini"], &[], &["python-test: python3 -m pytest [pytest]"]),
        (&["tests/conftest.py", "setup.py"], &[], &["python-test: python3 -m pytest [pytest]"]),
        (
            &["tests/test_a.py"],
            &[],
            &[
                "python-test: python3 -m pytest [pytest]",
                "python-unittest: python3 -m unittest discover [unittest]",
            ],
        ),
        (&["a.py"], &[("requirements.txt", "flask\n")], &[]),
        (
            &[],
            &[("package.json", r#"{"devDependencies": {"vitest": "1"}, "scripts": {"lint": "eslint ."}}"#)],
            &["js-test: npx --no-install vitest run [vitest]", "js-lint: npm run lint [-]"],
        ),
        (
            &["pnpm-lock.yaml"],
            &[("package.json", r#"{"scripts": {"test": "jest --watch", "build": "tsc"}}"#)],
            &["js-test: pnpm exec jest --ci [jest]", "js-build: pnpm run build [-]"],
        ),
        (
            &["yarn.lock"],
            &[("package.json", r#"{"devDependencies": {"mocha": "1"}}"#)],
            &["js-test: yarn run mocha --reporter tap [tap]"],
        ),
        (
            &[],
            &[("package.json", r#"{"scripts": {"test": "node --test"}}"#)],
            &["js-test: node --test --test-reporter=tap [tap]"],
        ),
        (
            &["tsconfig.json"],
            &[("package.json", r#"{"scripts": {"test": "ava"}}"#)],
            &["js-test: npm test [-]", "js-typecheck: npx --no-install tsc --noEmit [-]"],
        ),
        (
            &[],
            &[("package.json", r#"{"scripts": {"test": "echo \"Error: no test specified\" && exit 1"}}"#)],
            &[],
        ),
        (
            &[],
            &[("go.mod", "module a\n")],
            &[
                "go-test: go test -json ./... [go_test]",
                "go-lint: go vet ./... [-]",
                "go-build: go build ./... [-]",
            ],
        ),
        (
            &[],
            &[("Makefile", "CHECK := 1\ntest: build\n\tx\nbuild:\n\tlint: x\n")],
            &["make-test: make test [-]", "make-build: make build [-]"],
        ),
        (
            &[],
            &[("Justfile", "test := \"a\"\n@check arg=\"1\":\n  x\nlint arg:\n  x\n")],
            &["just-lint: just lint [-]"],
        ),
        (&["README.md"], &[("package.json", "not json"), ("web/Cargo.toml", "")], &[]),
    ];
    for (paths, texts, expected) in cases {
        assert_eq!(propose(paths, texts), expected, "{paths:?} {texts:?}");
    }
    // Of two languages both; make's targets stand in only for what is not found.
    let both = propose(&[], &[("go.mod", ""), ("Cargo.toml", ""), ("Makefile", "test:\n")]);
    assert_eq!(both.len(), 6);
}

/// Rows: SF-400 (in part: the gates and the check of the written file; workflows and hints of models are not in it)
#[test]
fn the_written_settings_are_read_and_what_did_not_pass_is_switched_off() {
    let gate = |name: &str, run: &[&str], report| ProposedGate::new(name, run, report, "a test");
    let gates = [
        TriedGate { gate: gate("rust-test", &["cargo", "test"], Some(ReportFormat::Cargo)), problem: None },
        TriedGate { gate: gate("odd", &["a \"b\"\\\n", "é\u{7}"], None), problem: None },
        TriedGate {
            gate: gate("js-test", &["npm", "test"], None),
            problem: Some("exit status 1\n[[gate]]".to_owned()),
        },
    ];
    let text = write_config(Some("main"), &gates);
    let config = read_config(&[(CONFIG_FILE, &text)]).unwrap();
    assert_eq!(config.target_branch.as_deref(), Some("main"));
    let read: Vec<(&str, &GateCommand, bool)> =
        config.gates.iter().map(|gate| (gate.name.as_str(), &gate.command, gate.runs_tests)).collect();
    let run = |words: &[&str]| GateCommand::Run(words.iter().map(|word| (*word).to_owned()).collect());
    assert_eq!(
        read,
        [("rust-test", &run(&["cargo", "test"]), true), ("odd", &run(&["a \"b\"\\\n", "é\u{7}"]), false)]
    );
    assert!(config.gates.iter().all(|gate| gate.at == GateMoment::Slice));
    assert!(
        text.contains("# It is switched off: exit status 1 [[gate]]\n# [[gate]]\n# name = \"js-test\"\n")
    );
    // Tests without a format are no proof, also where they pass: the written settings would be refused.
    let uncounted = TriedGate::new(gate("make-test", &["make", "test"], None), None);
    let text = write_config(None, &[uncounted, TriedGate::new(gate("make-build", &["make"], None), None)]);
    let config = read_config(&[(CONFIG_FILE, &text)]).unwrap();
    assert_eq!(config.gates.iter().map(|gate| gate.name.as_str()).collect::<Vec<_>>(), ["make-build"]);
    assert!(text.contains("# It is switched off: its tests cannot be counted"), "{text}");
    // Every format has a name that is read again.
    for format in [
        ReportFormat::Cargo,
        ReportFormat::Nextest,
        ReportFormat::Pytest,
        ReportFormat::Jest,
        ReportFormat::Vitest,
        ReportFormat::GoTest,
        ReportFormat::JunitXml,
        ReportFormat::Tap,
    ] {
        let one = [TriedGate { gate: gate("g", &["x"], Some(format)), problem: None }];
        let config = read_config(&[(CONFIG_FILE, &write_config(None, &one))]).unwrap();
        assert_eq!((config.gates[0].report, config.target_branch.as_deref()), (Some(format), None));
    }
}

#[test]
fn settings_that_are_there_stay() {
    let folder = tempfile::tempdir().unwrap();
    assert!(save_config(folder.path(), "[pilot]\n").unwrap());
    assert!(!save_config(folder.path(), "other").unwrap());
    let path = folder.path().join(CONFIG_FILE);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "[pilot]\n");
    // Not through links, neither of the file nor of its folder.
    let outside = tempfile::tempdir().unwrap();
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(outside.path().join("new.toml"), &path).unwrap();
    assert!(!save_config(folder.path(), "x").unwrap());
    std::fs::remove_dir_all(folder.path().join(".writ")).unwrap();
    std::os::unix::fs::symlink(outside.path(), folder.path().join(".writ")).unwrap();
    assert!(save_config(folder.path(), "x").is_err());
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
}
