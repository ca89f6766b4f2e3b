//! Commands that run others: scripts of a package, shell scripts, and runners of tests.
//!
//! A gate is as good as what its command runs in the end. Commands are followed by their words, without running anything: a word too
//! many protects one script too many, which a plan can give to an agent by name.

use std::collections::{BTreeMap, BTreeSet};

use super::launch::{base_name, is_setting, launched};

/// Programs that run scripts of a package by their names.
const PACKAGE_RUNNERS: [&str; 13] = [
    "npm",
    "pnpm",
    "yarn",
    "bun",
    "node",
    "deno",
    "corepack",
    "run-s",
    "run-p",
    "npm-run-all",
    "concurrently",
    "turbo",
    "nx",
];
/// Names of scripts with a star that are looked up; a package has a few.
const MAX_STARS: usize = 64;
/// Names that npm has for its script `test`.
const TEST_ALIASES: [&str; 3] = ["t", "tst", "it"];
/// Programs that run tests and nothing else.
const TEST_RUNNERS: [&str; 38] = [
    "pytest",
    "py.test",
    "unittest",
    "nose2",
    "jest",
    "vitest",
    "mocha",
    "ava",
    "nextest",
    "gotestsum",
    "ctest",
    "rspec",
    "phpunit",
    "bats",
    "tox",
    "nox",
    "karma",
    "cargo-nextest",
    "cargo-tarpaulin",
    "behave",
    "behat",
    "cucumber",
    "cypress",
    "ginkgo",
    "jasmine",
    "minitest",
    "pest",
    "prove",
    "qunit",
    "robot",
    "stestr",
    "tap",
    "tape",
    "testem",
    "trial",
    "uvu",
    "ward",
    "wtr",
];
/// Programs that run tests where a word behind them says so.
const TEST_LAUNCHERS: [&str; 31] = [
    "nx", "turbo", "run-s", "rails", "ng", "cargo", "go", "npm", "pnpm", "yarn", "bun", "node", "deno",
    "make", "gmake", "just", "task", "rake", "mvn", "mvnw", "gradle", "gradlew", "dotnet", "swift", "mix",
    "composer", "zig", "dune", "stack", "cabal", "bazel",
];
/// Orders that run tests and have other names, by program.
const TEST_ORDERS: [(&str, &[&str]); 10] = [
    ("cargo", &["t", "nextest", "llvm-cov", "tarpaulin", "mutants"]),
    ("npm", &["t", "tst", "it", "cit", "install-test", "install-ci-test"]),
    ("pnpm", &["t", "tst", "it"]),
    ("mvn", &["verify", "integration-test", "surefire:test"]),
    ("mvnw", &["verify", "integration-test", "surefire:test"]),
    ("gradle", &["check"]),
    ("gradlew", &["check"]),
    ("rails", &["spec"]),
    ("meson", &["test"]),
    ("playwright", &["test"]),
];
/// Programs that run recipes or scripts by names that their authors choose.
const NAMES_RECIPES: [&str; 14] = [
    "npm", "pnpm", "yarn", "bun", "deno", "make", "gmake", "just", "task", "rake", "composer", "nx", "turbo",
    "run-s",
];
/// Words of a shell before a command.
const KEYWORDS: [&str; 13] =
    ["if", "then", "else", "elif", "do", "while", "until", "!", "exec", "time", "command", "env", "{"];
pub(super) fn words_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c.is_whitespace() || ";&|()\"'`,={}".contains(c)).filter(|word| !word.is_empty())
}

/// Returns the scripts of a package that commands run, followed through scripts that run others, with those that run before and after
/// them by their names. Each script is followed once, so that circles end.
pub fn called_scripts(commands: &[String], scripts: &BTreeMap<String, String>) -> BTreeSet<String> {
    let mut stars = MAX_STARS;
    let mut open: Vec<String> = Vec::new();
    for command in commands.iter().filter(|text| runs_packages(text)) {
        open.extend(named_scripts(command, scripts, &mut stars));
    }
    let mut called = BTreeSet::new();
    while let Some(name) = open.pop() {
        if let Some(text) = scripts.get(&name)
            && called.insert(name.clone())
        {
            open.extend(named_scripts(text, scripts, &mut stars));
            open.extend(["pre", "post"].map(|hook| format!("{hook}{name}")));
        }
    }
    called
}

/// Returns true if a command or a text names a program that runs the scripts of packages.
pub(super) fn runs_packages(text: &str) -> bool {
    words_of(text).any(|word| PACKAGE_RUNNERS.contains(&base_name(word)))
}

fn named_scripts(text: &str, scripts: &BTreeMap<String, String>, stars: &mut usize) -> Vec<String> {
    let mut names = Vec::new();
    for word in words_of(text) {
        // `concurrently` writes `npm:lint`, and both know stars.
        let word =
            ["npm:", "pnpm:", "yarn:", "bun:"].iter().find_map(|way| word.strip_prefix(way)).unwrap_or(word);
        if let Some((start, _)) = word.split_once('*') {
            if !start.is_empty() {
                // Too many to be looked up: then any of them may be meant.
                let start = if *stars == 0 { "" } else { start };
                *stars = stars.saturating_sub(1);
                names.extend(scripts.keys().filter(|name| name.starts_with(start)).cloned());
            }
            continue;
        }
        let word = if TEST_ALIASES.contains(&word) { "test" } else { word };
        // The hooks of a command that is no script, such as `install`, run as well.
        let all = [word.to_owned(), format!("pre{word}"), format!("post{word}")];
        names.extend(all.into_iter().filter(|name| scripts.contains_key(name)));
    }
    names
}

/// Returns the commands of a shell's text, each as its words without quotes, keywords and settings of the environment.
pub(super) fn shell_commands(text: &str) -> Vec<Vec<&str>> {
    let strip = |word: &'_ str| -> bool { KEYWORDS.contains(&word) || is_setting(word) };
    text.split(['\n', ';', '&', '|', '(', ')', '`'])
        .map(|command| {
            let words = command.split_whitespace().map(|word| word.trim_matches(['"', '\'']));
            words.skip_while(|word| strip(word)).collect::<Vec<_>>()
        })
        .filter(|words: &Vec<&str>| words.first().is_some_and(|word| !word.starts_with('#')))
        .collect()
}

/// Returns true if a command says of itself that it runs tests: by the name of a runner, or by a word such as `test` behind a program that
/// has tests among its commands.
pub fn names_tests(argv: &[String]) -> bool {
    let words: Vec<&str> = argv.iter().map(String::as_str).collect();
    // A text behind a shell's `-c` is a row of commands.
    words_name_tests(&words)
        || words
            .windows(2)
            .filter(|pair| pair[0].starts_with('-') && !pair[0].starts_with("--") && pair[0].ends_with('c'))
            .any(|pair| shell_commands(pair[1]).iter().any(|command| words_name_tests(command)))
}

/// Returns true if one of the commands that these words run in the end runs tests.
fn words_name_tests(words: &[&str]) -> bool {
    launched(words).into_iter().any(names_tests_itself)
}

fn names_tests_itself(words: &[&str]) -> bool {
    let Some((program, rest)) = words.split_first() else { return false };
    // Behind a program that reads files, a name is the name of a file.
    let program = base_name(program);
    let is_runner = |word: &str| TEST_RUNNERS.contains(&base_name(word));
    let is_python = program.starts_with("python") || program.starts_with("pypy");
    let is_launcher = TEST_LAUNCHERS.contains(&program);
    // `cargo +nightly t`: the first word that is neither an option nor a toolchain.
    let order = rest.iter().find(|word| !word.starts_with(['-', '+'])).copied().unwrap_or_default();
    let is_own = TEST_ORDERS.iter().any(|(of, orders)| *of == program && orders.contains(&order));
    let is_test = |word: &&&str| is_test_word(word, NAMES_RECIPES.contains(&program));
    is_runner(program)
        || is_own
        || (is_launcher && rest.iter().any(|word| is_test(&word) || is_runner(word)))
        || (is_python && rest.iter().any(|word| is_runner(word) || *word == "test"))
}

/// Returns true for a word that orders tests. The names of recipes and scripts are free: there a part of the name says so.
fn is_test_word(word: &str, is_recipe: bool) -> bool {
    let is_name = |part: &str| matches!(part, "test" | "tests" | "tst" | "spec" | "specs");
    matches!(word, "test" | "tests" | "tst" | "--test")
        || word.starts_with("test:")
        || word.ends_with(":test")
        || (is_recipe && !word.starts_with('-') && word.split([':', '-', '_']).any(is_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(list: &[&str]) -> Vec<String> {
        list.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn scripts_are_followed_through_those_that_run_others() {
        let scripts: BTreeMap<String, String> = [
            ("check", "npm run lint && run-p \"types:*\" && npm run check"),
            ("lint", "eslint ."),
            ("prelint", "node tools/prepare.mjs"),
            ("types:web", "tsc"),
            ("types:node", "concurrently 'npm:deep'"),
            ("deep", "true"),
            ("build", "vite build"),
            ("test", "yarn build"),
            ("preinstall", "true"),
            ("start", "node ."),
        ]
        .map(|(name, text)| (name.to_owned(), text.to_owned()))
        .into();
        let called =
            |commands: &[&str]| called_scripts(&texts(commands), &scripts).into_iter().collect::<Vec<_>>();
        let of_check = ["check", "deep", "lint", "prelint", "types:node", "types:web"];
        for command in ["npm run check", "pnpm --dir web check", "sh -c cd web && yarn run check"] {
            assert_eq!(called(&[command]), of_check, "{command}");
        }
        assert_eq!(called(&["npm t"]), ["build", "test"]);
        assert_eq!(called(&["npm install"]), ["preinstall"]);
        assert_eq!(called(&["cargo build", "make check"]), [""; 0], "no package is meant");
    }

    #[test]
    fn a_command_of_tests_is_known_by_its_words() {
        for argv in [
            &["cargo", "test"][..],
            &["cargo", "nextest", "run"],
            &["npm", "test"],
            &["npm", "run", "test:unit"],
            &["make", "test"],
            &["node", "--test"],
            &["./gradlew", "test"],
            &["python3", "-m", "pytest", "-q"],
            &["python3", "-m", "unittest"],
            &["npx", "--no-install", "jest"],
            &["sh", "-c", "cd web && if true; then npm test; fi"],
            &["bash", "-euc", "pytest"],
            &["cargo", "t"],
            &["cargo", "+nightly", "--locked", "t", "-p", "a"],
            &["cargo", "llvm-cov", "--lcov"],
            &["npm", "t"],
            &["env", "CI=1", "npm", "test"],
            &["timeout", "60", "cargo", "test"],
            &["timeout", "-k", "5", "1m", "nice", "-n", "10", "cargo", "t"],
            &["nice", "cargo", "nextest", "run"],
            &["xvfb-run", "-a", "npm", "test"],
            &["uv", "run", "pytest"],
            &["uv", "run", "--with", "pytest-cov", "pytest"],
            &["poetry", "run", "python", "-m", "pytest"],
            &["npx", "jest"],
            &["pnpm", "exec", "vitest", "run"],
            &["bundle", "exec", "rspec"],
            &["bundle", "exec", "rake", "spec"],
            &["python", "manage.py", "test"],
            &["coverage", "run", "-m", "unittest"],
            &["make", "unit-tests"],
            &["just", "test_all"],
            &["mvn", "-q", "verify"],
            &["sh", "-c", "CI=1 timeout 60 npm t"],
        ] {
            assert!(names_tests(&texts(argv)), "{argv:?}");
        }
        for argv in [
            &["test", "-f", "a"][..],
            &["[", "-f", "test", "]"],
            &["sh", "-c", "test -f a && cargo build"],
            &["grep", "-q", "test", "a"],
            &["cargo", "clippy", "--all-targets"],
            &["npm", "run", "lint"],
            &["make"],
            &["./check.sh"],
            &["cat", "jest"],
            &["cargo", "build", "--tests"],
            &["cargo", "tree"],
            &["timeout", "60", "cargo", "clippy"],
            &["env", "CI=1", "npm", "run", "build"],
            &["npx", "eslint", "test"],
            &["uv", "run", "ruff", "check", "tests"],
            &["make", "latest"],
            &["npm", "run", "attestation"],
        ] {
            assert!(!names_tests(&texts(argv)), "{argv:?}");
        }
    }
}
