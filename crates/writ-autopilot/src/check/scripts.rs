//! Commands that run others: scripts of a package, shell scripts, and runners of tests.
//!
//! A gate is as good as what its command runs in the end. Commands are followed by their words, without running anything: a word too
//! many protects one script too many, which a plan can give to an agent by name.

use std::collections::{BTreeMap, BTreeSet};

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
const TEST_RUNNERS: [&str; 16] = [
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
    "karma",
];
/// Programs that run tests where a word behind them says so.
const TEST_LAUNCHERS: [&str; 26] = [
    "cargo", "go", "npm", "pnpm", "yarn", "bun", "node", "deno", "make", "gmake", "just", "task", "rake",
    "mvn", "mvnw", "gradle", "gradlew", "dotnet", "swift", "mix", "composer", "zig", "dune", "stack",
    "cabal", "bazel",
];
/// Shells, which run the file that they are given.
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "zsh", "ksh", "ash"];
/// Words of a shell before a command.
const KEYWORDS: [&str; 13] =
    ["if", "then", "else", "elif", "do", "while", "until", "!", "exec", "time", "command", "env", "{"];
/// Forms of the folder of a script in its own text.
const OWN_FOLDERS: [&str; 5] = [
    "$(dirname \"$0\")",
    "$(dirname -- \"$0\")",
    "$(dirname $0)",
    "$(dirname \"${BASH_SOURCE[0]}\")",
    "${0%/*}",
];

fn base_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

fn words_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c.is_whitespace() || ";&|()\"'`,={}".contains(c)).filter(|word| !word.is_empty())
}

/// Returns the scripts of a package that commands run, followed through scripts that run others, with those that run before and after
/// them by their names. Each script is followed once, so that circles end.
pub fn called_scripts(commands: &[String], scripts: &BTreeMap<String, String>) -> BTreeSet<String> {
    let mut stars = MAX_STARS;
    let runs_packages =
        |text: &&String| words_of(text).any(|word| PACKAGE_RUNNERS.contains(&base_name(word)));
    let mut open: Vec<String> = Vec::new();
    for command in commands.iter().filter(runs_packages) {
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

fn named_scripts(text: &str, scripts: &BTreeMap<String, String>, stars: &mut usize) -> Vec<String> {
    let mut names = Vec::new();
    for word in words_of(text) {
        // `concurrently` writes `npm:lint`, and both know stars.
        let word =
            ["npm:", "pnpm:", "yarn:", "bun:"].iter().find_map(|way| word.strip_prefix(way)).unwrap_or(word);
        if let Some((start, _)) = word.split_once('*') {
            if *stars > 0 && !start.is_empty() {
                *stars -= 1;
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
fn shell_commands(text: &str) -> Vec<Vec<&str>> {
    let strip = |word: &'_ str| -> bool { KEYWORDS.contains(&word) || is_setting(word) };
    text.split(['\n', ';', '&', '|', '(', ')', '`'])
        .map(|command| {
            let words = command.split_whitespace().map(|word| word.trim_matches(['"', '\'']));
            words.skip_while(|word| strip(word)).collect::<Vec<_>>()
        })
        .filter(|words: &Vec<&str>| words.first().is_some_and(|word| !word.starts_with('#')))
        .collect()
}

fn is_setting(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

/// Returns the files that the commands of a shell script run as scripts: programs with a path, files behind a shell, and those that are
/// read in. They are paths as the text has them, from the folder that the script runs in or from its own.
pub fn called_files(text: &str) -> Vec<String> {
    let text = OWN_FOLDERS.iter().fold(text.to_owned(), |text, own| text.replace(own, "."));
    let mut files = Vec::new();
    for words in shell_commands(&text) {
        let program = words.first().copied().unwrap_or_default();
        let file = if SHELLS.contains(&base_name(program)) || matches!(program, "." | "source") {
            words.iter().skip(1).copied().find(|word| !word.starts_with('-'))
        } else {
            Some(program).filter(|program| program.contains('/'))
        };
        files.extend(
            file.filter(|file| !file.starts_with('/')).map(|file| file.trim_start_matches("./").to_owned()),
        );
    }
    files
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

fn words_name_tests(words: &[&str]) -> bool {
    let is_word = |word: &&str| {
        matches!(*word, "test" | "tests" | "--test" | "tst")
            || word.starts_with("test:")
            || word.ends_with(":test")
    };
    let is_runner = |word: &&str| TEST_RUNNERS.contains(&base_name(word));
    // Behind a program that reads files, a name is the name of a file.
    let program = words.first().map_or("", |word| base_name(word));
    let is_launcher = TEST_LAUNCHERS.contains(&program);
    let is_python = program.starts_with("python") || matches!(program, "uv" | "poetry" | "pdm" | "hatch");
    let is_executor = matches!(program, "npx" | "bunx" | "pnpx" | "bundle" | "xvfb-run" | "timeout" | "nice");
    let rest = words.get(1..).unwrap_or_default();
    is_runner(&program)
        || (is_launcher && rest.iter().any(is_word))
        || ((is_launcher || is_python || is_executor) && rest.iter().any(is_runner))
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
    fn files_are_found_in_the_text_of_a_script() {
        let text = "#!/bin/sh\nset -eu\n# sh ./not.sh\nif ! sh tools/lint.sh --all; then exit 1; fi\n. ./env.sh\nCI=1 bin/check && \"$(dirname \"$0\")/more.sh\" | tee out\nbash -eu 'quoted.sh'\n/usr/bin/true\nsh -c true\npython3 work.py\n";
        assert_eq!(
            called_files(text),
            ["tools/lint.sh", "env.sh", "bin/check", "more.sh", "quoted.sh", "true"]
        );
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
        ] {
            assert!(!names_tests(&texts(argv)), "{argv:?}");
        }
    }
}
