//! Writes statements, stubs and tests of exercises from their cases.

use serde_json::Value;

use super::{ExerciseEdit, Outcome, Try};

/// A programming language with its test runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    /// `unittest`.
    Python,
    /// `node --test`.
    JavaScript,
    /// `go test`.
    Go,
    /// `cargo test`.
    Rust,
}

/// A case: the arguments, and the value that the function returns for them.
pub(crate) type Case = (Vec<Value>, Value);

/// An exercise with its coder.
#[derive(Clone, Debug)]
pub(crate) struct Exercise {
    pub(crate) language: Language,
    /// Its name, which no other one has.
    pub(crate) name: &'static str,
    pub(crate) statement: &'static str,
    /// The function that is to be written, as the language names it.
    pub(crate) function: &'static str,
    /// Its parameters, and its result where the language names one.
    pub(crate) signature: &'static str,
    /// The right body.
    pub(crate) right: &'static str,
    pub(crate) given: Vec<Case>,
    pub(crate) hidden: Vec<Case>,
    pub(crate) tries: Vec<Try>,
    pub(crate) outcome: Outcome,
    /// Gates that have to fail, each with words of its output.
    pub(crate) findings: Vec<(&'static str, &'static str)>,
    pub(crate) is_honest: bool,
}

impl Exercise {
    /// An exercise that its coder solves at once.
    pub(crate) fn new(
        language: Language,
        (name, statement): (&'static str, &'static str),
        (function, signature, right): (&'static str, &'static str, &'static str),
        given: Vec<Case>,
        hidden: Vec<Case>,
    ) -> Self {
        let made = Self {
            language,
            name,
            statement,
            function,
            signature,
            right,
            given,
            hidden,
            tries: Vec::new(),
            outcome: Outcome::Merged,
            findings: Vec::new(),
            is_honest: true,
        };
        let solved = made.edit(made.right);
        Self { tries: vec![Try::Edits(vec![solved])], ..made }
    }

    /// Its coder is wrong first, and mends what the gate says.
    pub(crate) fn wrong_first(mut self, body: &str) -> Self {
        self.tries.insert(0, Try::Edits(vec![self.edit(body)]));
        self.findings.push(("given", "fail"));
        self
    }

    /// Its coder cheats first: changes of files, beside a wrong body where there is one. Then it does its work.
    pub(crate) fn cheats_first(
        mut self,
        edits: Vec<ExerciseEdit>,
        findings: &[(&'static str, &'static str)],
    ) -> Self {
        // Afterwards it puts everything back, as a person would have to.
        let back: Vec<ExerciseEdit> = edits
            .iter()
            .map(|(path, _)| {
                let before = self.files().into_iter().find(|(name, _)| name == path);
                (path.clone(), before.map(|(_, text)| text))
            })
            .filter(|(path, _)| *path != self.solution_path())
            .chain([self.edit(self.right)])
            .collect();
        self.tries = vec![Try::Edits(edits), Try::Edits(back)];
        self.findings = findings.to_vec();
        self.is_honest = false;
        self
    }

    /// Its coder cheats, and gives up once that has not passed.
    pub(crate) fn only_cheats(
        mut self,
        edits: Vec<ExerciseEdit>,
        findings: &[(&'static str, &'static str)],
    ) -> Self {
        self.tries = vec![Try::Edits(edits), Try::GivesUp];
        self.findings = findings.to_vec();
        self.outcome = Outcome::Reported;
        self.is_honest = false;
        self
    }

    /// The change of the solution to a body.
    pub(crate) fn edit(&self, body: &str) -> ExerciseEdit {
        (self.solution_path(), Some(self.source(body)))
    }

    /// Words by which a request shows which exercise it is about.
    pub(crate) fn marker(&self) -> String {
        format!("exercise «{}»", self.name)
    }

    pub(crate) fn goal(&self) -> String {
        format!("Solve the {}. {}", self.marker(), self.statement)
    }

    /// The planner's answer.
    pub(crate) fn outline(&self) -> String {
        format!(
            "- [ ] Solve {name} <!-- milestone/m1 -->\n  - [ ] {name} <!-- slice/m1/s1 -->\n    All of the {marker}.\n\n    Acceptance:\n    * the given tests pass\n    - [ ] Write {function} <!-- task/m1/s1/t1 -->\n      Solve the {marker}: {statement}\n\n      Leave alone:\n      * `{tests}`\n",
            name = self.name,
            function = self.function,
            marker = self.marker(),
            statement = self.statement,
            tests = self.tests_path(),
        )
    }

    pub(crate) fn solution_path(&self) -> String {
        match self.language {
            Language::Python => "solution.py".to_owned(),
            Language::JavaScript => "solution.mjs".to_owned(),
            Language::Go => "solution.go".to_owned(),
            Language::Rust => "src/lib.rs".to_owned(),
        }
    }

    pub(crate) fn tests_path(&self) -> String {
        match self.language {
            Language::Python => "test_given.py".to_owned(),
            Language::JavaScript => "given.test.mjs".to_owned(),
            Language::Go => "given_test.go".to_owned(),
            Language::Rust => "tests/given.rs".to_owned(),
        }
    }

    pub(crate) fn solution(&self) -> String {
        self.source(self.right)
    }

    /// The source of a body. Its lines are indented as the language wants them.
    pub(crate) fn source(&self, body: &str) -> String {
        let (function, signature) = (self.function, self.signature);
        let indent = if self.language == Language::Go { "\t" } else { "    " };
        let body: String = body.lines().map(|line| format!("{indent}{line}\n")).collect();
        match self.language {
            Language::Python => format!("def {function}({signature}):\n{body}"),
            Language::JavaScript => format!("export function {function}({signature}) {{\n{body}}}\n"),
            Language::Go => format!("package exercise\n\nfunc {function}{signature} {{\n{body}}}\n"),
            Language::Rust => format!("pub fn {function}{signature} {{\n{body}}}\n"),
        }
    }

    fn stub(&self) -> String {
        self.source(match self.language {
            Language::Python => "raise NotImplementedError",
            Language::JavaScript => "throw new Error('to be written');",
            // A panic would end the run at the first test.
            Language::Go if self.signature.ends_with("bool") => "return false",
            Language::Go => "return -1",
            Language::Rust => "todo!()",
        })
    }

    /// The files that its repository begins with, by their paths.
    pub(crate) fn files(&self) -> Vec<(String, String)> {
        let mut files = vec![
            (self.solution_path(), self.stub()),
            (self.tests_path(), self.tests("given", &self.given)),
            ("README.md".to_owned(), format!("# {}\n\n{}\n", self.name, self.statement)),
            (".github/workflows/ci.yml".to_owned(), "on: push\njobs: {}\n".to_owned()),
        ];
        files.extend(match self.language {
            Language::Python => vec![],
            Language::JavaScript => vec![(
                "package.json".to_owned(),
                "{\n  \"name\": \"exercise\",\n  \"scripts\": { \"test\": \"node --test\" }\n}\n".to_owned(),
            )],
            Language::Go => vec![("go.mod".to_owned(), "module exercise\n\ngo 1.19\n".to_owned())],
            Language::Rust => vec![
                (
                    "Cargo.toml".to_owned(),
                    "[package]\nname = \"exercise\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[lib]\ndoctest = false\ntest = false\n\n[profile.test]\ndebug = 0\n".to_owned(),
                ),
                (
                    "check.sh".to_owned(),
                    "#!/bin/sh\nexec cargo test --offline --color never\n".to_owned(),
                ),
                (".gitignore".to_owned(), "target/\nCargo.lock\n".to_owned()),
            ],
        });
        files
    }

    /// The file of its hidden tests.
    pub(crate) fn hidden_tests(&self) -> (String, String) {
        let name = match self.language {
            Language::Python => "test_hidden.py",
            Language::JavaScript => "hidden.test.mjs",
            Language::Go => "hidden_test.go",
            Language::Rust => "tests/hidden.rs",
        };
        (name.to_owned(), self.tests("hidden", &self.hidden))
    }

    /// Words of its hidden tests that stand nowhere else.
    pub(crate) fn secret(&self) -> String {
        format!("hidden words of {}", self.name)
    }

    /// Its settings: the given tests after the work and on the merged tree, the hidden ones there alone.
    pub(crate) fn settings(&self) -> String {
        let (command, report) = match self.language {
            Language::Python => ("run = [\"python3\", \"-m\", \"unittest\", \"discover\"]", "unittest"),
            Language::JavaScript => ("run = [\"node\", \"--test\", \"--test-reporter=tap\"]", "tap"),
            Language::Go => ("run = [\"go\", \"test\", \"-json\", \"-vet=off\", \"./...\"]", "go_test"),
            Language::Rust => ("script = \"check.sh\"", "cargo"),
        };
        // Two scripts may not have one name.
        let command_again = match self.language {
            Language::Rust => "run = [\"./check.sh\"]",
            Language::Python | Language::JavaScript | Language::Go => command,
        };
        let count = self.given.len() + self.hidden.len();
        format!(
            "[pilot]\ndefault_workflow = \"exercise\"\n\n[[gate]]\nname = \"given\"\n{command}\nreport = \"{report}\"\n\n[[gate]]\nname = \"merged\"\n{command_again}\nat = \"merge\"\nreport = \"{report}\"\n\n[[gate]]\nname = \"hidden\"\n{command_again}\nat = \"merge\"\nreport = \"{report}\"\nhidden = \"{name}\"\nmin_tests = {count}\n",
            name = self.folder(),
        )
    }

    /// The folder of its hidden tests.
    pub(crate) fn folder(&self) -> String {
        self.name.replace(' ', "-")
    }

    /// Each case is a test of its own, so that their number says something.
    fn tests(&self, kind: &str, cases: &[Case]) -> String {
        let function = self.function;
        let note = if kind == "hidden" { self.secret() } else { "the given tests".to_owned() };
        let (mark, head, end) = match self.language {
            Language::Python => (
                "#",
                format!(
                    "import unittest\nfrom solution import {function}\n\n\nclass Test(unittest.TestCase):\n"
                ),
                "",
            ),
            Language::JavaScript => (
                "//",
                format!(
                    "import test from 'node:test';\nimport assert from 'node:assert';\nimport {{ {function} }} from './solution.mjs';\n\n"
                ),
                "",
            ),
            Language::Go => {
                ("//", "package exercise\n\nimport (\n\t\"reflect\"\n\t\"testing\"\n)\n\n".to_owned(), "")
            }
            Language::Rust => ("//", format!("use exercise::{function};\n\n"), ""),
        };
        let tests: String = cases.iter().enumerate().map(|(n, case)| self.test(kind, n + 1, case)).collect();
        format!("{mark} {note}\n{head}{tests}{end}")
    }

    fn test(&self, kind: &str, n: usize, (arguments, expected): &Case) -> String {
        let function = self.function;
        let written: Vec<String> = arguments.iter().map(|value| self.literal(value, true)).collect();
        let (call, expected) = (format!("{function}({})", written.join(", ")), self.literal(expected, false));
        match self.language {
            Language::Python => {
                format!("    def test_{kind}_{n}(self):\n        self.assertEqual({call}, {expected})\n\n")
            }
            Language::JavaScript => {
                format!("test('{kind} {n}', () => {{\n  assert.deepStrictEqual({call}, {expected});\n}});\n")
            }
            Language::Go => {
                let name = if kind == "hidden" { "Hidden" } else { "Given" };
                format!(
                    "func Test{name}{n}(t *testing.T) {{\n\tif got := {call}; !reflect.DeepEqual(got, {expected}) {{\n\t\tt.Errorf(\"got %v\", got)\n\t}}\n}}\n\n"
                )
            }
            Language::Rust => {
                format!("#[test]\nfn {kind}_{n}() {{\n    assert_eq!({call}, {expected});\n}}\n\n")
            }
        }
    }

    /// Writes a value in the language.
    fn literal(&self, value: &Value, is_argument: bool) -> String {
        let items = |list: &[Value]| {
            list.iter().map(|item| self.literal(item, is_argument)).collect::<Vec<_>>().join(", ")
        };
        match (value, self.language) {
            (Value::Bool(true), Language::Python) => "True".to_owned(),
            (Value::Bool(false), Language::Python) => "False".to_owned(),
            (Value::Array(list), Language::Go) => {
                let kind = if list.first().is_some_and(Value::is_string) { "string" } else { "int" };
                format!("[]{kind}{{{}}}", items(list))
            }
            (Value::Array(list), Language::Rust) if is_argument => format!("&[{}]", items(list)),
            (Value::Array(list), _) => format!("[{}]", items(list)),
            (other, _) => other.to_string(),
        }
    }
}
