//! Paths that decide how work is checked: the harness's own files, those of CI, the configuration of test runners, and what gates
//! run. A change there is a finding, unless the plan that a person has approved names the path.

use std::collections::{BTreeMap, BTreeSet};

use super::scripts::called_scripts;
use super::weakened::is_test_path;

/// The largest manifest that is read, in bytes.
pub const MAX_MANIFEST_BYTES: usize = 1024 * 1024;

/// The reason why a path is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protection {
    /// It is the harness's own. No plan can give it to an agent.
    Harness,
    /// The plan or the settings name it as one to be left alone.
    Named,
    /// A gate runs it.
    Gate,
    /// It belongs to CI.
    Ci,
    /// It configures a test runner, or takes the place of one.
    Runner,
    /// It is a skill, which later attempts read as guidance.
    Skill,
}

impl Protection {
    /// Returns the reason in words.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Harness => "the autopilot's own files",
            Self::Named => "to be left alone by plan or settings",
            Self::Gate => "run by a gate",
            Self::Ci => "a file of CI",
            Self::Runner => "the configuration of a test runner",
            Self::Skill => "a skill that agents are guided by",
        }
    }
}

/// The paths that plan and settings name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathRules {
    /// Paths that stay as they are: files, or folders with everything in them.
    pub kept: Vec<String>,
    /// Files that gates run.
    pub of_gates: Vec<String>,
    /// The commands of gates, and the texts of the scripts that they run: what they call in a package is protected, too.
    pub commands: Vec<String>,
    /// Paths that the plan gives to the agent.
    pub allowed: Vec<String>,
}

impl PathRules {
    /// Returns the protection of a path by its name; `None`: an agent may change it.
    pub fn protection_of(&self, path: &str) -> Option<Protection> {
        // Some file systems know no difference of case.
        let low = path.to_ascii_lowercase();
        if HARNESS.into_iter().any(|folder| lies_in(&low, folder)) {
            return Some(Protection::Harness);
        }
        if is_listed(&self.kept, path) {
            return Some(Protection::Named);
        }
        if self.is_allowed(path) {
            return None;
        }
        if is_listed(&self.of_gates, path) {
            return Some(Protection::Gate);
        }
        if CI_FOLDERS.into_iter().any(|folder| lies_in(&low, folder)) || CI_FILES.contains(&low.as_str()) {
            return Some(Protection::Ci);
        }
        if SKILL_FOLDERS.into_iter().any(|folder| lies_in(&low, folder)) {
            return Some(Protection::Skill);
        }
        is_runner(&low).then_some(Protection::Runner)
    }

    /// Returns true if the plan gives a path to the agent.
    pub fn is_allowed(&self, path: &str) -> bool {
        is_listed(&self.allowed, path)
    }

    /// Returns true if the plan gives any tests to the agent: then their number may change.
    pub fn allows_tests(&self) -> bool {
        self.allowed
            .iter()
            .any(|path| is_test_path(path) || is_test_path(&format!("{}/x", path.trim_end_matches('/'))))
    }
}

/// The folders of a project in which skills lie: that of the open standard first, which counts where both have one of a name.
pub const SKILL_FOLDERS: [&str; 2] = [".agents/skills", ".claude/skills"];
/// Folders of the harness.
const HARNESS: [&str; 1] = [".writ"];
/// Folders of CI, from the manuals of the services.
const CI_FOLDERS: [&str; 10] = [
    ".github",
    ".gitlab",
    ".ci",
    ".circleci",
    ".buildkite",
    ".woodpecker",
    ".forgejo",
    ".gitea",
    ".azure-pipelines",
    ".teamcity",
];
/// Files of CI, in small letters.
const CI_FILES: [&str; 16] = [
    ".gitlab-ci.yml",
    ".gitlab-ci.yaml",
    ".travis.yml",
    ".drone.yml",
    ".drone.yaml",
    ".woodpecker.yml",
    ".woodpecker.yaml",
    ".cirrus.yml",
    ".cirrus.star",
    "azure-pipelines.yml",
    "azure-pipelines.yaml",
    "bitbucket-pipelines.yml",
    "appveyor.yml",
    ".appveyor.yml",
    "jenkinsfile",
    "cloudbuild.yaml",
];
/// Files that configure runners, in any folder.
const RUNNER_FILES: [&str; 15] = [
    "conftest.py",
    "pytest.ini",
    ".pytest.ini",
    "tox.ini",
    "noxfile.py",
    "sitecustomize.py",
    "usercustomize.py",
    "nextest.toml",
    ".mocharc",
    ".taprc",
    ".npmrc",
    ".yarnrc.yml",
    "rust-toolchain",
    "rust-toolchain.toml",
    "go.work",
];
/// Beginnings of such files: what follows is the ending of a language.
const RUNNER_STARTS: [&str; 12] = [
    "vite.config.",
    "jest.config.",
    "jest.setup.",
    "vitest.config.",
    "vitest.workspace.",
    "vitest.setup.",
    ".mocharc.",
    "ava.config.",
    "karma.conf.",
    "playwright.config.",
    "cypress.config.",
    "wdio.conf.",
];
/// Modules that Python's runners import: a file of that name, where they look first, would be imported in their place.
const RUNNER_MODULES: [&str; 29] = [
    "unittest",
    "pytest",
    "_pytest",
    "pluggy",
    "argparse",
    "ast",
    "asyncio",
    "collections",
    "contextlib",
    "copy",
    "difflib",
    "fnmatch",
    "functools",
    "importlib",
    "inspect",
    "io",
    "json",
    "logging",
    "os",
    "pprint",
    "re",
    "runpy",
    "signal",
    "tempfile",
    "time",
    "traceback",
    "types",
    "warnings",
    "weakref",
];
/// Folders in which they look.
const MODULE_FOLDERS: [&str; 4] = ["", "test/", "tests/", "src/"];
/// Folders of installed packages, which hold the runners themselves.
const PACKAGE_FOLDERS: [&str; 3] = ["node_modules", "site-packages", ".cargo"];

fn is_runner(low: &str) -> bool {
    let name = low.rsplit('/').next().unwrap_or(low);
    let is_module = || {
        MODULE_FOLDERS.into_iter().filter_map(|folder| low.strip_prefix(folder)).any(|rest| {
            let module = rest.split('/').next().unwrap_or(rest);
            let is_package = rest.contains('/') && rest.ends_with(".py");
            let module = if is_package { Some(module) } else { module.strip_suffix(".py") };
            module.is_some_and(|module| RUNNER_MODULES.contains(&module))
        })
    };
    RUNNER_FILES.contains(&name)
        || RUNNER_STARTS.into_iter().any(|start| name.starts_with(start))
        || low.split('/').any(|part| PACKAGE_FOLDERS.contains(&part))
        || is_module()
}

/// Returns true if a path lies in one that is listed, or is it.
fn is_listed(list: &[String], path: &str) -> bool {
    list.iter().any(|one| lies_in(path, one.trim_start_matches("./").trim_end_matches('/')))
}

fn lies_in(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| !folder.is_empty() && (rest.is_empty() || rest.starts_with('/')))
}

/// Files that a gate's command reads its orders from, for programs that look for them by name.
pub fn recipe_files(program: &str) -> &'static [&'static str] {
    match program.rsplit('/').next().unwrap_or(program) {
        "make" | "gmake" => &["Makefile", "makefile", "GNUmakefile"],
        "just" => &["justfile", ".justfile", "Justfile"],
        "task" => &["Taskfile.yml", "Taskfile.yaml", "Taskfile.dist.yml", "taskfile.yml"],
        "rake" => &["Rakefile", "rakefile", "Rakefile.rb"],
        _ => &[],
    }
}

/// Returns true for a manifest in which only some parts configure a test runner.
pub fn is_manifest(path: &str) -> bool {
    matches!(path.rsplit('/').next(), Some("package.json" | "pyproject.toml" | "Cargo.toml" | "setup.cfg"))
}

/// Returns the part of a manifest that configures a test runner, or that `commands` of gates run, and differs; `None`: there is no such
/// difference. A manifest that cannot be read differs.
pub fn changed_part(
    path: &str,
    (before, after): (Option<&str>, Option<&str>),
    commands: &[String],
) -> Option<String> {
    let name = path.rsplit('/').next().unwrap_or(path);
    // Those of both sides: a script that comes to be called, or a hook before it, decides as well.
    let mut called = BTreeSet::new();
    if name == "package.json" {
        let texts = [before, after].into_iter().flatten().filter(|text| text.len() <= MAX_MANIFEST_BYTES);
        let sides: Vec<BTreeMap<String, String>> = texts.filter_map(scripts_of).collect();
        sides.iter().for_each(|scripts| called.extend(called_scripts(commands, scripts)));
    }
    let read = |text: Option<&str>| match text {
        None => Some(BTreeMap::new()),
        Some(text) if text.len() > MAX_MANIFEST_BYTES => None,
        Some(text) => runner_parts(name, text, &called),
    };
    let (Some(mut old), Some(new)) = (read(before), read(after)) else {
        return Some("it cannot be read".to_owned());
    };
    if before.is_none() {
        // A new package has to say how it is tested, and no gate has relied on it.
        let own = |key: &&String| key.starts_with("scripts.") || name == "Cargo.toml";
        let added: Vec<String> = new.keys().filter(own).cloned().collect();
        old.extend(
            added.into_iter().filter_map(|key| new.get(&key).map(|value| (key.clone(), value.clone()))),
        );
    }
    old.keys().chain(new.keys()).find(|key| old.get(*key) != new.get(*key)).cloned()
}

/// Reads the scripts of a package; `None`: it is none.
pub(super) fn scripts_of(text: &str) -> Option<BTreeMap<String, String>> {
    let all: serde_json::Value = serde_json::from_str(text).ok()?;
    let scripts = all.get("scripts").and_then(serde_json::Value::as_object).into_iter().flatten();
    Some(scripts.map(|(name, text)| (name.clone(), text.as_str().unwrap_or_default().to_owned())).collect())
}

/// Reads the parts of a manifest that are about tests, and the scripts that are called, as text by their keys.
fn runner_parts(name: &str, text: &str, called: &BTreeSet<String>) -> Option<BTreeMap<String, String>> {
    let mut parts = BTreeMap::new();
    match name {
        "package.json" => {
            let all: serde_json::Value = serde_json::from_str(text).ok()?;
            for key in ["jest", "vitest", "mocha", "ava", "tap", "c8", "nyc"] {
                parts.extend(all.get(key).map(|value| (key.to_owned(), value.to_string())));
            }
            for (key, value) in
                all.get("scripts").and_then(serde_json::Value::as_object).into_iter().flatten()
            {
                if key.to_ascii_lowercase().contains("test") || called.contains(key) {
                    parts.insert(format!("scripts.{key}"), value.to_string());
                }
            }
        }
        "setup.cfg" => {
            let mut section = String::new();
            for line in text.lines() {
                if line.starts_with('[') {
                    section = line.trim().to_owned();
                } else if section.contains("pytest")
                    || section.contains("unittest")
                    || section.contains("tox")
                {
                    let part = parts.entry(section.clone()).or_insert_with(String::new);
                    part.push_str(line);
                    part.push('\n');
                }
            }
        }
        _ => {
            let all: toml::Table = text.parse().ok()?;
            let paths: &[&[&str]] = if name == "pyproject.toml" {
                &[&["tool", "pytest"], &["tool", "tox"], &["tool", "nox"], &["tool", "unittest"]]
            } else {
                &[
                    &["test"],
                    &["lib", "test"],
                    &["lib", "harness"],
                    &["lib", "doctest"],
                    &["package", "autotests"],
                ]
            };
            for path in paths {
                let found =
                    path.iter().skip(1).fold(all.get(path[0]), |at, key| at.and_then(|at| at.get(key)));
                parts.extend(found.map(|value| (path.join("."), value.to_string())));
            }
        }
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_decides_about_checks_is_protected_by_its_name() {
        let rules = PathRules::default();
        for (path, protection) in [
            (".writ/pilot.toml", Protection::Harness),
            (".WRIT/prompts/execute.md", Protection::Harness),
            (".github/workflows/ci.yml", Protection::Ci),
            (".gitlab-ci.yml", Protection::Ci),
            (".ci/run.sh", Protection::Ci),
            ("Jenkinsfile", Protection::Ci),
            ("conftest.py", Protection::Runner),
            ("sub/tests/conftest.py", Protection::Runner),
            ("pytest.ini", Protection::Runner),
            ("jest.config.ts", Protection::Runner),
            ("web/vitest.config.mjs", Protection::Runner),
            (".cargo/config.toml", Protection::Runner),
            (".config/nextest.toml", Protection::Runner),
            ("node_modules/jest/index.js", Protection::Runner),
            ("unittest.py", Protection::Runner),
            ("unittest/__init__.py", Protection::Runner),
            ("tests/traceback.py", Protection::Runner),
            (".agents/skills/tables/SKILL.md", Protection::Skill),
            (".Claude/skills/tables/scripts/run.py", Protection::Skill),
        ] {
            assert_eq!(rules.protection_of(path), Some(protection), "{path}");
        }
        for path in [
            "src/lib.rs",
            "tests/test_a.py",
            "github/ci.yml",
            ".writer/a",
            "src/app/time.py",
            "io.rs",
            "re/a.md",
        ] {
            assert_eq!(rules.protection_of(path), None, "{path}");
        }
    }

    #[test]
    fn a_plan_gives_paths_to_an_agent_and_keeps_others() {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let rules = PathRules {
            kept: texts(&["tests/test_leap.py", "golden/"]),
            of_gates: texts(&["./run.sh"]),
            commands: Vec::new(),
            allowed: texts(&[".github/workflows/", "conftest.py", ".writ/pilot.toml", "tests/test_leap.py"]),
        };
        assert_eq!(rules.protection_of("tests/test_leap.py"), Some(Protection::Named), "both: it is kept");
        assert_eq!(rules.protection_of("golden/a/b.txt"), Some(Protection::Named));
        assert_eq!(rules.protection_of("golden.txt"), None);
        assert_eq!(rules.protection_of("run.sh"), Some(Protection::Gate));
        assert_eq!(rules.protection_of(".github/workflows/ci.yml"), None);
        assert_eq!(rules.protection_of(".github/dependabot.yml"), Some(Protection::Ci));
        assert_eq!(rules.protection_of("conftest.py"), None);
        assert_eq!(rules.protection_of("sub/conftest.py"), Some(Protection::Runner));
        assert_eq!(rules.protection_of(".writ/pilot.toml"), Some(Protection::Harness), "no plan can");
        assert!(rules.allows_tests());
        assert!(PathRules { allowed: texts(&["tests/"]), ..PathRules::default() }.allows_tests());
        assert!(!PathRules { allowed: texts(&["src/"]), ..PathRules::default() }.allows_tests());
    }

    #[test]
    fn only_the_parts_of_a_manifest_that_are_about_tests_count() {
        let package = r#"{"scripts": {"test": "node --test", "build": "x"}, "dependencies": {}}"#;
        let part =
            |path: &str, before: &str, after: &str| changed_part(path, (Some(before), Some(after)), &[]);
        assert_eq!(part("package.json", package, &package.replace("\"x\"", "\"y\"")), None);
        assert_eq!(
            part("a/package.json", package, &package.replace("node --test", "exit 0")).as_deref(),
            Some("scripts.test")
        );
        assert_eq!(
            part("package.json", package, &package.replace("\"dependencies\"", "\"jest\"")).as_deref(),
            Some("jest")
        );
        assert_eq!(part("package.json", package, "{").as_deref(), Some("it cannot be read"));
        let python = "[project]\nname = \"a\"\n[tool.pytest.ini_options]\naddopts = \"-q\"\n";
        assert_eq!(part("pyproject.toml", python, &python.replace("\"a\"", "\"b\"")), None);
        assert_eq!(
            part("pyproject.toml", python, &python.replace("-q", "-k none")).as_deref(),
            Some("tool.pytest")
        );
        let rust = "[package]\nname = \"a\"\n[lib]\npath = \"l.rs\"\n";
        assert_eq!(part("Cargo.toml", rust, &format!("{rust}[dependencies]\n")), None);
        assert_eq!(part("Cargo.toml", rust, &format!("{rust}test = false\n")).as_deref(), Some("lib.test"));
        assert_eq!(
            part("Cargo.toml", rust, &format!("{rust}[[test]]\nname = \"t\"\nharness = false\n")).as_deref(),
            Some("test")
        );
        assert_eq!(
            part("setup.cfg", "[metadata]\n", "[metadata]\n[tool:pytest]\naddopts = -k x\n").as_deref(),
            Some("[tool:pytest]")
        );
        // A new one.
        assert_eq!(changed_part("package.json", (None, Some(package)), &[]), None);
        assert_eq!(
            changed_part("package.json", (None, Some("{\"jest\": {}}")), &[]).as_deref(),
            Some("jest")
        );
        assert_eq!(changed_part("package.json", (Some(package), None), &[]).as_deref(), Some("scripts.test"));
    }
    /// A script that no name betrays is protected as soon as a gate runs it, also through others; one that no gate runs is work.
    #[test]
    fn the_scripts_that_gates_run_are_protected_in_a_package() {
        let package = r#"{"scripts": {"check": "npm run lint", "lint": "eslint .", "build": "vite build", "start": "node ."}}"#;
        let part = |command: &str, from: &str, to: &str| {
            assert!(package.contains(from));
            let after = package.replace(from, to);
            changed_part("web/package.json", (Some(package), Some(&after)), &[command.to_owned()])
        };
        let lint = ("\"eslint .\"", "\"true\"");
        for command in ["npm run lint", "npm run check", "pnpm check", "sh -c cd web && yarn run check"] {
            assert_eq!(part(command, lint.0, lint.1).as_deref(), Some("scripts.lint"), "{command}");
        }
        assert_eq!(part("npm run build", lint.0, lint.1), None);
        assert_eq!(part("npm run check", "\"node .\"", "\"node x\""), None);
        let hook = part("npm run check", "\"build\"", "\"prelint\": \"rm -r src\", \"build\"");
        assert_eq!(hook.as_deref(), Some("scripts.prelint"), "it would run before");
    }
}
