//! Files of a project that commands run as programs, found in the words of commands and in the texts of scripts. Nothing is run.

use super::launch::{base_name, launched};
use super::protected::recipe_files;
use super::scripts::{shell_commands, words_of};
use super::weakened::is_test_path;

/// Shells, which run the file that they are given.
pub(super) const SHELLS: [&str; 7] = ["sh", "bash", "dash", "zsh", "ksh", "ash", "fish"];
/// Other programs that run the file which they are given first.
const INTERPRETERS: [&str; 16] = [
    "pypy", "pypy3", "node", "nodejs", "deno", "bun", "tsx", "ts-node", "ruby", "perl", "php", "lua",
    "luajit", "tclsh", "julia", "rscript",
];
/// Options of interpreters with a file behind them that is run before.
const PRELOADS: [&str; 5] = ["-r", "--require", "--import", "--loader", "--experimental-loader"];
/// Options with a value that is a text to be run, or another thing that is no file.
const TEXTS: [&str; 5] = ["-e", "--eval", "-p", "--print", "--test"];
/// Options of recipe programs with the file that holds the recipes, and with the folder that it lies in.
const RECIPES: [&str; 5] = ["-f", "--file", "--makefile", "--justfile", "--taskfile"];
const FOLDERS: [&str; 4] = ["-C", "--directory", "--working-directory", "--dir"];
/// Endings of shell scripts, which are run wherever a text names them.
const SHELL_ENDINGS: [&str; 5] = [".sh", ".bash", ".zsh", ".ksh", ".mk"];
/// Names of folders with the tools of a project.
const TOOLS: [&str; 12] =
    ["scripts", "script", "tools", "tool", "ci", "hack", "checks", "check", "qa", "dev", "build", "etc"];
/// Forms of the folder of a script in its own text.
const OWN_FOLDERS: [&str; 6] = [
    "$(dirname \"$0\")",
    "$(dirname -- \"$0\")",
    "$(dirname $0)",
    "$(dirname \"${BASH_SOURCE[0]}\")",
    "${BASH_SOURCE%/*}",
    "${0%/*}",
];
/// The most folders that a text changes to.
const MAX_FOLDERS: usize = 32;
/// The deepest nesting of commands in texts of commands (`bash -c`) that is followed.
const MAX_NESTING: usize = 16;
/// The most commands and texts that are followed from one command.
const MAX_FOLLOWED: usize = 4_096;

/// A file that a command runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CalledFile {
    /// The file of this path, from the top of the project. It may be missing.
    At(String),
    /// A file with a path that ends so: what stands before is known at run time alone.
    EndsWith(String),
    /// Every file of a folder: they are named by a pattern.
    In(String),
    /// Any file: commands are nested more deeply, or are more, than is followed.
    Unfollowed,
}

/// Returns a path without `.` and `..`; `None`: it leads out of the project, or to its top.
pub fn normal_path(path: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

/// The places that a command may be run from.
#[derive(Debug)]
struct CallPlaces {
    folders: Vec<String>,
    /// Set for the command of a gate itself: all that it runs was named by a person as what judges.
    is_direct: bool,
    /// The number of commands around the one that is followed.
    nesting: usize,
    /// The number of commands and texts that may still be followed from the outermost command.
    left: usize,
    /// True if something was not followed, because of a bound.
    is_cut: bool,
}

impl CallPlaces {
    fn new(own: &str, is_direct: bool) -> Self {
        let folders = vec![String::new()];
        let mut places = Self { folders, is_direct, nesting: 0, left: MAX_FOLLOWED, is_cut: false };
        places.add(own);
        places
    }

    fn add(&mut self, folder: &str) {
        if self.folders.len() < MAX_FOLDERS && !self.folders.iter().any(|one| one == folder) {
            self.folders.push(folder.to_owned());
        }
    }

    /// Counts a command or a text that is to be followed. False: the bound is reached, and it is not followed.
    fn take_one(&mut self) -> bool {
        let left = self.left.checked_sub(1);
        self.is_cut |= left.is_none();
        self.left = left.unwrap_or(0);
        left.is_some()
    }

    /// Returns the files that a word behind an interpreter can mean. In a text that is often the program that is tested, and so the work
    /// itself: there a file is one that judges by its name or its folder alone.
    fn resolve_program(&self, word: &str) -> Vec<CalledFile> {
        let judges = |file: &CalledFile| match file {
            CalledFile::At(path) | CalledFile::EndsWith(path) => {
                self.is_direct || is_script(path) || is_test_path(path) || lies_in_tools(path)
            }
            CalledFile::In(_) | CalledFile::Unfollowed => true,
        };
        self.resolve(word).into_iter().filter(judges).collect()
    }

    /// Adds a folder that a text changes to, from each of those before.
    fn enter(&mut self, folder: &str) {
        for from in self.folders.clone() {
            if let Some(folder) = normal_path(&format!("{from}/{folder}")) {
                self.add(&folder);
            }
        }
    }

    /// Returns the files that a word can mean.
    fn resolve(&self, word: &str) -> Vec<CalledFile> {
        let word: String = word.chars().filter(|c| !matches!(c, '"' | '\'' | '\\')).collect();
        // The value of a variable is not known: the rest of the path says which file it can be. So does a path from the root.
        if word.starts_with('/') || word.contains('$') {
            let rest = word
                .rsplit_once('$')
                .map_or(word.as_str(), |(_, last)| last.split_once('/').map_or("", |(_, rest)| rest));
            let plain: Vec<&str> = rest.split('/').filter(|part| !matches!(*part, "" | "." | "..")).collect();
            let is_known = !plain.is_empty() && !rest.contains('*');
            return is_known.then(|| CalledFile::EndsWith(plain.join("/"))).into_iter().collect();
        }
        let paths = self.folders.iter().filter_map(|folder| normal_path(&format!("{folder}/{word}")));
        match word.split_once(['*', '?', '[']) {
            None => paths.map(CalledFile::At).collect(),
            Some((start, _)) => {
                let folder = start.rsplit_once('/').map_or("", |(folder, _)| folder);
                let folders = self.folders.iter().filter_map(|from| normal_path(&format!("{from}/{folder}")));
                folders.map(CalledFile::In).collect()
            }
        }
    }
}

/// Returns the files that a gate's command runs.
pub fn files_of_command(argv: &[String]) -> Vec<CalledFile> {
    let words: Vec<&str> = argv.iter().map(String::as_str).collect();
    let (mut places, mut found) = (CallPlaces::new("", true), Vec::new());
    add_files(&words, &mut places, &mut found);
    found.extend(places.is_cut.then_some(CalledFile::Unfollowed));
    found
}

/// Returns the files that the text of a script or of recipes runs, from the folder of the text itself, from the top of the project, and
/// from each folder that it changes to.
pub fn files_of_text(text: &str, path: &str) -> Vec<CalledFile> {
    let own = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut places = CallPlaces::new(own, false);
    let mut found = Vec::new();
    if is_shell_text(text, path) {
        add_commands(text, &mut places, &mut found);
    }
    for word in words_of(text) {
        if SHELL_ENDINGS.iter().any(|ending| word.len() > ending.len() && word.ends_with(ending)) {
            found.extend(places.resolve(word));
        }
    }
    found.extend(places.is_cut.then_some(CalledFile::Unfollowed));
    found.sort();
    found.dedup();
    found
}

/// Returns true for a script of a shell, and for recipes, which are rows of such commands.
fn is_shell_text(text: &str, path: &str) -> bool {
    let first = text.lines().next().unwrap_or_default();
    if let Some(program) = first.strip_prefix("#!") {
        return program.split_whitespace().any(|word| SHELLS.contains(&base_name(word)));
    }
    let name = base_name(path);
    is_recipe(name) || !name.contains('.') || SHELL_ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Returns true for a path with a folder of tools in it.
fn lies_in_tools(path: &str) -> bool {
    path.rsplit_once('/').is_some_and(|(folders, _)| folders.split('/').any(|folder| TOOLS.contains(&folder)))
}

fn is_recipe(name: &str) -> bool {
    ["make", "just", "task", "rake"].iter().any(|program| recipe_files(program).contains(&name))
}

/// Returns true for a file that is a script in any folder: a shell's, recipes, a program without an ending, or a file with
/// the name of what runs all tests. A file of tests beside them may be added to.
pub fn is_script(path: &str) -> bool {
    let name = base_name(path);
    let stem = name.split('.').next().unwrap_or(name).to_ascii_lowercase();
    let is_runner = ["run", "runner", "all", "check", "ci", "harness", "verify"].contains(&stem.as_str())
        || ["run_", "run-", "runtest"].iter().any(|start| stem.starts_with(start));
    is_runner
        || is_recipe(name)
        || !name.contains('.')
        || SHELL_ENDINGS.iter().any(|ending| name.ends_with(ending))
}

fn add_commands(text: &str, places: &mut CallPlaces, found: &mut Vec<CalledFile>) {
    let text = OWN_FOLDERS.iter().fold(text.to_owned(), |text, own| text.replace(own, "."));
    let text = ["$(MAKE)", "${MAKE}"].iter().fold(text, |text, make| text.replace(make, "make"));
    for words in shell_commands(&text) {
        // A recipe's line may begin with signs of its own.
        let first = words.first().map(|word| word.trim_start_matches(['@', '-', '+']));
        let words: Vec<&str> = first.into_iter().chain(words.iter().skip(1).copied()).collect();
        add_files(&words, places, found);
    }
}

/// Adds the files that a command runs, also behind wrappers.
fn add_files(words: &[&str], places: &mut CallPlaces, found: &mut Vec<CalledFile>) {
    if places.nesting == 0 {
        places.left = MAX_FOLLOWED;
    } else if places.nesting > MAX_NESTING {
        places.is_cut = true;
        return;
    }
    places.nesting += 1;
    for words in launched(words) {
        if !places.take_one() {
            break;
        }
        add_program(words, places, found);
    }
    places.nesting -= 1;
}

/// Adds the files that the program of a command runs, without those of a command that it runs as a wrapper.
fn add_program(words: &[&str], places: &mut CallPlaces, found: &mut Vec<CalledFile>) {
    let Some((program, rest)) = words.split_first() else { return };
    let name = base_name(program).to_ascii_lowercase();
    if matches!(*program, "cd" | "pushd") {
        rest.first().into_iter().for_each(|folder| places.enter(folder));
        return;
    }
    if program.contains('/') {
        found.extend(places.resolve(program));
    }
    if SHELLS.contains(&name.as_str()) && words.windows(2).any(|pair| is_text_option(pair[0])) {
        for pair in words.windows(2).filter(|pair| is_text_option(pair[0])) {
            if !places.take_one() {
                break;
            }
            add_commands(pair[1], places, found);
        }
        // Where the text was split into words, its first command begins behind the option.
        let at = rest.iter().position(|word| is_text_option(word)).map_or(rest.len(), |at| at + 1);
        if let Some(rest) = rest.get(at..).filter(|rest| rest.len() > 1) {
            add_files(rest, places, found);
        }
    } else if SHELLS.contains(&name.as_str()) || matches!(name.as_str(), "." | "source" | "include") {
        let file = first_file(rest, &["-o", "-O", "+o"]);
        found.extend(file.into_iter().flat_map(|word| places.resolve(word)));
    } else if name.starts_with("python") || INTERPRETERS.contains(&name.as_str()) {
        add_interpreted(&name, rest, places, found);
    } else if !recipe_files(&name).is_empty() {
        add_recipes(&name, rest, places, found);
    }
}

/// Returns the first word that is no option, nor the value of one of these.
fn first_file<'a>(words: &[&'a str], with_value: &[&str]) -> Option<&'a str> {
    let mut is_value = false;
    words.iter().copied().find(|word| {
        let is_file = !is_value && !word.starts_with(['-', '+']);
        is_value = with_value.contains(word);
        is_file
    })
}

fn add_interpreted(name: &str, rest: &[&str], places: &CallPlaces, found: &mut Vec<CalledFile>) {
    let is_python = name.starts_with("py");
    for pair in rest.windows(2).filter(|pair| !is_python && PRELOADS.contains(&pair[0])) {
        found.extend(places.resolve_program(pair[1]));
    }
    // A module of Python is a file of its name, or a package.
    let module = rest.windows(2).find(|pair| is_python && pair[0] == "-m").map(|pair| pair[1]);
    if let Some(module) = module {
        let path = module.replace('.', "/");
        for file in [format!("{path}.py"), format!("{path}/__main__.py"), format!("{path}/__init__.py")] {
            found.extend(places.resolve_program(&file));
        }
        return;
    }
    let is_text = |word: &&str| TEXTS.contains(word) || (is_python && is_text_option(word));
    if rest.iter().any(is_text) {
        return;
    }
    let rest = match rest.first() {
        Some(&("run" | "test")) if matches!(name, "deno" | "bun") => rest.get(1..).unwrap_or_default(),
        _ => rest,
    };
    let with_value = if is_python { &["-W", "-X"][..] } else { &PRELOADS[..] };
    found.extend(first_file(rest, with_value).into_iter().flat_map(|word| places.resolve_program(word)));
}

fn add_recipes(name: &str, rest: &[&str], places: &CallPlaces, found: &mut Vec<CalledFile>) {
    let of = |options: &[&str]| -> Vec<&str> {
        let pairs = rest.windows(2).filter(|pair| options.contains(&pair[0])).map(|pair| pair[1]);
        let joined = rest.iter().filter_map(|word| {
            let (option, value) = word.split_once('=')?;
            options.contains(&option).then_some(value)
        });
        pairs.chain(joined).collect()
    };
    let folders: Vec<&str> = of(&FOLDERS).into_iter().chain([""]).collect();
    let named = of(&RECIPES);
    let files = recipe_files(name).iter().copied().chain(named);
    for file in files {
        for folder in &folders {
            found.extend(places.resolve(&format!("./{folder}/{file}")));
        }
    }
}

/// Returns true for `-c`, also among other letters: `-euc`.
pub(super) fn is_text_option(word: &str) -> bool {
    word.starts_with('-') && !word.starts_with("--") && word.ends_with('c')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(found: Vec<CalledFile>) -> Vec<String> {
        let mut all: Vec<String> = found
            .into_iter()
            .map(|file| match file {
                CalledFile::At(path) => path,
                CalledFile::EndsWith(path) => format!("…/{path}"),
                CalledFile::In(folder) => format!("{folder}/*"),
                CalledFile::Unfollowed => "?".to_owned(),
            })
            .collect();
        all.sort();
        all.dedup();
        all
    }

    fn of(argv: &[&str]) -> Vec<String> {
        show(files_of_command(&argv.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()))
    }

    #[test]
    fn what_a_command_runs_is_found_with_any_name() {
        for (argv, files) in [
            (&["./check"][..], &["check"][..]),
            (&["bin/verify", "--all"], &["bin/verify"]),
            (&["a/../b.sh"], &["b.sh"]),
            (&["../outside.sh"], &[]),
            (&["sh", "-e", "scripts/lint"], &["scripts/lint"]),
            (&["bash", "-o", "pipefail", "-eu", "tests/run.sh"], &["tests/run.sh"]),
            (&["sh", "-c", "tools/check --fast | sh ./lint; true"], &["lint", "tools/check"]),
            (&["sh", "-c", "cd web && ./run"], &["run", "web/run"]),
            (&["bash", "-euc", "./all"], &["all"]),
            (&["timeout", "60", "env", "CI=1", "bash", "x"], &["x"]),
            (&["python3", "-W", "error", "tools/all.py"], &["tools/all.py"]),
            (
                &["python3", "-m", "tools.all"],
                &["tools/all.py", "tools/all/__init__.py", "tools/all/__main__.py"],
            ),
            (&["node", "--require", "./setup.js", "run.mjs"], &["run.mjs", "setup.js"]),
            (&["node", "--test", "a.test.mjs"], &[]),
            (&["deno", "run", "ci.ts"], &["ci.ts"]),
            (
                &["make", "-C", "ci", "test"],
                &["GNUmakefile", "Makefile", "ci/GNUmakefile", "ci/Makefile", "ci/makefile", "makefile"],
            ),
            (&["just", "--justfile=ci/just"], &[".justfile", "Justfile", "ci/just", "justfile"]),
            (&["cargo", "test"], &[]),
        ] {
            assert_eq!(of(argv), files, "{argv:?}");
        }
    }

    /// `bash -c bash -c …` has an end, and the rest of it counts as any file.
    #[test]
    fn nested_shells_are_followed_to_a_bound() {
        let nested = |times: usize| [["bash", "-c"].repeat(times), vec!["./deep"]].concat();
        assert_eq!(of(&nested(10)), ["deep"], "each is followed");
        assert_eq!(of(&["sh", "-c", "bash -c 'timeout 9 sh -c ./deep'"]), ["deep"]);
        for times in [MAX_NESTING + 2, 100_000] {
            let words = nested(times);
            assert!(of(&words).contains(&"?".to_owned()), "{times}");
            let script = format!("{}\nsh lint\n", words.join(" "));
            let found = files_of_text(&script, "run.sh");
            assert!(found.contains(&CalledFile::Unfollowed), "{times}");
            assert!(found.contains(&CalledFile::At("lint".to_owned())), "the next command has its own bound");
        }
        let many = "sh -c ./a\n".repeat(MAX_FOLLOWED + 1);
        assert_eq!(show(files_of_text(&many, "run.sh")), ["a"], "a long script is followed to its end");
    }

    #[test]
    fn what_a_script_runs_is_found_in_its_text() {
        let text = "#!/bin/sh\nset -eu\n# sh ./not\nif ! sh lint --all; then exit 1; fi\n. ./env\nCI=1 bin/check && \"$(dirname \"$0\")/more\" | tee out\nbash -eu 'quoted'\n/usr/bin/true\nsh -c ./deep\npython3 run.py\n";
        let own = ["bin/check", "deep", "env", "lint", "more", "quoted", "run.py"];
        let mut expected: Vec<String> = own.iter().map(|file| (*file).to_owned()).collect();
        expected.extend(own.iter().map(|file| format!("ci/{file}")));
        expected.push("…/usr/bin/true".to_owned());
        expected.sort();
        assert_eq!(show(files_of_text(text, "ci/run")), expected);
        let cases: [(&str, &str, &[&str]); 10] = [
            ("ci/run.sh", "../tools/x.sh", &["tools/x.sh"]),
            ("run", "cd web\n./x", &["web/x", "x"]),
            ("run", "find . -name a -exec tests/deep.sh {} \\;", &["tests/deep.sh"]),
            ("run", "\"$ROOT\"/tools/x \"$HERE/../y\"", &["…/tools/x"]),
            ("run", "for f in scripts/*.sh; do sh \"$f\"; done", &["scripts/*"]),
            (
                "Makefile",
                "test:\n\t@timeout 9 python3 tools/all.py\n\t$(MAKE) -C ci\n",
                &[
                    "GNUmakefile",
                    "Makefile",
                    "ci/GNUmakefile",
                    "ci/Makefile",
                    "ci/makefile",
                    "makefile",
                    "tools/all.py",
                ],
            ),
            ("all.py", "subprocess.run([\"tests/run.sh\", 'x'])\nimport node\n", &["tests/run.sh"]),
            // The program that is tested, and not what tests it.
            ("run", "python3 main.py < in | diff - out\nnode src/server.js\npython3 -m pytest\n", &[]),
            (
                "run",
                "python3 -m tools.go\nnode tests/start.js\n",
                &["tests/start.js", "tools/go.py", "tools/go/__init__.py", "tools/go/__main__.py"],
            ),
            ("tool", "#!/usr/bin/env python3\nnode.x/y()\n", &[]),
        ];
        for (path, text, files) in cases {
            assert_eq!(show(files_of_text(text, path)), files, "{path}: {text}");
        }
    }

    #[test]
    fn scripts_are_scripts_below_tests_too() {
        for script in ["tests/run.sh", "tests/run", "tests/run_all.py", "test/Makefile", "tests/check.mjs"] {
            assert!(is_script(script), "{script}");
        }
        for source in ["tests/test_a.py", "web/a.test.mjs", "tests/sums.rs"] {
            assert!(!is_script(source), "{source}");
        }
    }
}
