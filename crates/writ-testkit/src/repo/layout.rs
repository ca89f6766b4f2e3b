//! A planned project as files.

use std::collections::{BTreeMap, BTreeSet};

use super::code::{Constant, Type, Unit, Value};
use super::plan::{Area, Module, RepoPlan, Tested};
use super::render::capital;
use super::{ExpectedFix, Language, MIN_FILES};

/// Rows of a data file.
const ROWS: usize = 8;

/// Files by path.
type Files = BTreeMap<String, String>;

pub(super) struct GeneratedProject {
    pub(super) files: Files,
    pub(super) fix: ExpectedFix,
}

/// The two forms of a unit.
#[derive(Clone, Copy)]
enum Form {
    Right,
    Is,
}

fn form(tested: &Tested, form: Form) -> &Unit {
    match form {
        Form::Right => &tested.right,
        Form::Is => &tested.is,
    }
}

/// Writes a project. `None` where right and wrong do not differ in one file.
pub(super) fn lay_out(plan: &RepoPlan, language: Language) -> Option<GeneratedProject> {
    let right = sources(plan, language, Form::Right);
    let is = sources(plan, language, Form::Is);
    let mut wrong = is.iter().filter(|(path, content)| right.get(*path) != Some(*content));
    let (path, content) = wrong.next()?;
    if wrong.next().is_some() {
        return None;
    }
    let fix = ExpectedFix {
        family: plan.family,
        path: path.clone(),
        wrong: content.clone(),
        right: right.get(path)?.clone(),
    };
    let mut files = is;
    tests(plan, language, &mut files);
    manifests(plan, language, &mut files);
    docs(plan, language, &mut files);
    data(plan, &mut files);
    Some(GeneratedProject { files, fix })
}

fn module_title(area: &Area, module: &Module) -> String {
    format!("{}: {}", capital(area.name), module.name)
}

// === sources ===

/// The folder of the sources.
fn root(plan: &RepoPlan, language: Language) -> &'static str {
    match language {
        Language::Rust => "src",
        Language::Python => plan.name,
        Language::JavaScript if plan.nested_tests => "lib",
        Language::JavaScript => "src",
    }
}

fn sources(plan: &RepoPlan, language: Language, which: Form) -> Files {
    let mut files = Files::new();
    let (root, end) = (root(plan, language), extension(language));
    for area in &plan.areas {
        let mut constants: Vec<&Constant> = Vec::new();
        for module in &area.modules {
            let path = format!("{root}/{}/{}.{end}", area.name, module.name);
            files.insert(path, source(plan, language, area, module, which));
            constants.extend(module.units.iter().flat_map(|tested| &form(tested, which).constants));
        }
        if plan.shared_constants && !constants.is_empty() {
            let title = comment(language, &format!("{}: constants", capital(area.name)));
            let all: Vec<String> = constants.iter().map(|constant| language.constant(constant)).collect();
            files.insert(
                format!("{root}/{}/constants.{end}", area.name),
                format!("{title}\n{}", all.join("\n")),
            );
        }
    }
    indexes(plan, language, &mut files);
    files
}

/// The files that only name others.
fn indexes(plan: &RepoPlan, language: Language, files: &mut Files) {
    let root = root(plan, language);
    let areas = plan.areas.iter();
    match language {
        Language::Rust => {
            for area in areas.clone() {
                let folder = format!("{root}/{}/", area.name);
                let own = files.keys().filter_map(|path| path.strip_prefix(&folder)?.strip_suffix(".rs"));
                let modules: String = own.map(|name| format!("pub mod {name};\n")).collect();
                let title = capital(area.name);
                files.insert(format!("{root}/{}.rs", area.name), format!("//! {title}.\n\n{modules}"));
            }
            let names: BTreeSet<&str> = areas.map(|area| area.name).collect();
            let modules: String = names.iter().map(|name| format!("pub mod {name};\n")).collect();
            let title = capital(plan.name);
            files.insert(format!("{root}/lib.rs"), format!("//! {title}: small computations.\n\n{modules}"));
        }
        Language::Python => {
            files.insert(
                format!("{root}/__init__.py"),
                format!("\"\"\"{}: small computations.\"\"\"\n", capital(plan.name)),
            );
            for area in areas {
                let title = capital(area.name);
                files.insert(format!("{root}/{}/__init__.py", area.name), format!("\"\"\"{title}.\"\"\"\n"));
            }
        }
        Language::JavaScript => {
            let lines =
                areas.flat_map(|area| area.modules.iter().map(move |module| (area.name, module.name)));
            let lines: String = lines
                .map(|(area, module)| {
                    format!("export * as {area}{} from \"./{area}/{module}.js\";\n", capital(module))
                })
                .collect();
            files.insert(format!("{root}/index.js"), lines);
        }
    }
}

const fn extension(language: Language) -> &'static str {
    match language {
        Language::Rust => "rs",
        Language::Python => "py",
        Language::JavaScript => "js",
    }
}

fn comment(language: Language, text: &str) -> String {
    match language {
        Language::Rust => format!("//! {text}.\n"),
        Language::Python => format!("\"\"\"{text}.\"\"\"\n"),
        Language::JavaScript => format!("// {text}.\n"),
    }
}

fn source(plan: &RepoPlan, language: Language, area: &Area, module: &Module, which: Form) -> String {
    let units: Vec<&Unit> = module.units.iter().map(|tested| form(tested, which)).collect();
    let mut imports = String::new();
    if language == Language::Rust && units.iter().any(|unit| takes(unit, Type::Record)) {
        imports.push_str("use std::collections::BTreeMap;\n");
    }
    let mut parts = vec![comment(language, &module_title(area, module))];
    // A wrong form may name one constant fewer; the import stays as it was.
    let names: BTreeSet<&str> = module.units.iter().flat_map(|tested| used(&tested.is)).collect();
    if plan.shared_constants && !names.is_empty() {
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        imports.push_str(&match language {
            Language::Rust => format!("use super::constants::{{{names}}};\n"),
            Language::Python => format!("from {}.{}.constants import {names}\n", plan.name, area.name),
            Language::JavaScript => format!("import {{ {names} }} from \"./constants.js\";\n"),
        });
    }
    if !imports.is_empty() {
        parts.push(imports);
    }
    if !plan.shared_constants {
        parts.extend(
            units.iter().flat_map(|unit| &unit.constants).map(|constant| language.constant(constant)),
        );
    }
    for unit in units {
        for (n, function) in unit.functions.iter().enumerate() {
            parts.push(language.function(function, n == 0));
        }
    }
    let between = if language == Language::Python { "\n\n" } else { "\n" };
    parts.join(between)
}

fn takes(unit: &Unit, kind: Type) -> bool {
    unit.functions.iter().any(|function| function.params.iter().any(|(_, of)| *of == kind))
}

/// The constants of a unit, all of which its functions name.
fn used(unit: &Unit) -> impl Iterator<Item = &str> {
    unit.constants.iter().map(|constant| constant.name.as_str())
}

// === tests ===

fn tests(plan: &RepoPlan, language: Language, files: &mut Files) {
    match language {
        Language::Rust => {
            let mut modules = Vec::new();
            for (area, module) in modules_of(plan) {
                let name = format!("{}_{}", area.name, module.name);
                files.insert(format!("tests/suite/{name}.rs"), rust_test(plan, area, module));
                modules.push(format!("mod {name};\n"));
            }
            modules.sort();
            files
                .insert("tests/suite/main.rs".to_owned(), format!("//! Every test.\n\n{}", modules.concat()));
        }
        Language::Python => {
            for (area, module) in modules_of(plan) {
                let path = format!("tests/test_{}_{}.py", area.name, module.name);
                files.insert(path, python_test(plan, area, module));
            }
            files.insert("tests/__init__.py".to_owned(), String::new());
        }
        // One file for each area: Node starts a process for each file.
        Language::JavaScript => {
            for area in &plan.areas {
                let path = match plan.nested_tests {
                    true => format!("test/{0}/{0}.test.js", area.name),
                    false => format!("test/{}.test.js", area.name),
                };
                files.insert(path, javascript_test(plan, area));
            }
        }
    }
}

fn modules_of(plan: &RepoPlan) -> impl Iterator<Item = (&Area, &Module)> {
    plan.areas.iter().flat_map(|area| area.modules.iter().map(move |module| (area, module)))
}

/// The names of a module's tested functions.
fn tested_names(language: Language, module: &Module) -> Vec<String> {
    let functions = module.units.iter().filter_map(|tested| tested.right.tested());
    functions.map(|function| language.name(&function.name)).collect()
}

fn rust_test(plan: &RepoPlan, area: &Area, module: &Module) -> String {
    let names = tested_names(Language::Rust, module);
    let records = module.units.iter().any(|tested| takes(&tested.right, Type::Record));
    let map = if records { "use std::collections::BTreeMap;\n\n" } else { "" };
    let list = names.join(", ");
    let list = if names.len() == 1 { list } else { format!("{{{list}}}") };
    let mut text = format!("{map}use {}::{}::{}::{list};\n", plan.name, area.name, module.name);
    for (tested, name) in module.units.iter().zip(&names) {
        let lines = assertions(Language::Rust, tested, "    ");
        text.push_str(&format!("\n#[test]\nfn {name}_gives_what_it_says() {{\n{lines}}}\n"));
    }
    text
}

fn python_test(plan: &RepoPlan, area: &Area, module: &Module) -> String {
    let names = tested_names(Language::Python, module);
    let (project, area, module_name, list) = (plan.name, area.name, module.name, names.join(", "));
    let class = format!("{}{}Test", capital(area), capital(module_name));
    let cases: Vec<String> = module
        .units
        .iter()
        .zip(&names)
        .map(|(tested, name)| {
            let lines = assertions(Language::Python, tested, "        ");
            format!("    def test_{name}(self):\n{lines}")
        })
        .collect();
    let cases = cases.join("\n");
    format!(
        "import unittest\n\nfrom {project}.{area}.{module_name} import {list}\n\n\nclass {class}(unittest.TestCase):\n{cases}"
    )
}

fn javascript_test(plan: &RepoPlan, area: &Area) -> String {
    let up = if plan.nested_tests { "../.." } else { ".." };
    let (root, area_name) = (root(plan, Language::JavaScript), area.name);
    let mut text =
        "import assert from \"node:assert/strict\";\nimport test from \"node:test\";\n\n".to_owned();
    let mut cases = String::new();
    for module in &area.modules {
        let (names, module_name) = (tested_names(Language::JavaScript, module), module.name);
        let list = names.join(", ");
        text.push_str(&format!("import {{ {list} }} from \"{up}/{root}/{area_name}/{module_name}.js\";\n"));
        for (tested, name) in module.units.iter().zip(&names) {
            let lines = assertions(Language::JavaScript, tested, "  ");
            cases.push_str(&format!("\ntest(\"{name} gives what it says\", () => {{\n{lines}}});\n"));
        }
    }
    text + &cases
}

fn assertions(language: Language, tested: &Tested, pad: &str) -> String {
    let name = tested.right.tested().map_or("", |function| function.name.as_str());
    let line = |(arguments, expected): &(Vec<Value>, i64)| {
        format!("{pad}{}\n", language.assertion(name, arguments, *expected))
    };
    tested.asks.iter().map(line).collect()
}

// === everything else ===

fn manifests(plan: &RepoPlan, language: Language, files: &mut Files) {
    let name = plan.name;
    let ignored = match language {
        Language::Rust => {
            files.insert("Cargo.toml".to_owned(), format!(
                "[package]\nname = \"{name}\"\nversion = \"0.3.0\"\nedition = \"2021\"\n\n[lib]\ntest = false\ndoctest = false\n\n[profile.dev]\ndebug = false\n"
            ));
            files.insert("Cargo.lock".to_owned(), format!(
                "# This file is automatically @generated by Cargo.\n# It is not intended for manual editing.\nversion = 3\n\n[[package]]\nname = \"{name}\"\nversion = \"0.3.0\"\n"
            ));
            "/target/\n"
        }
        Language::Python => {
            files.insert("pyproject.toml".to_owned(), format!(
                "[project]\nname = \"{name}\"\nversion = \"0.3.0\"\nrequires-python = \">=3.8\"\ndependencies = []\n"
            ));
            "__pycache__/\n"
        }
        Language::JavaScript => {
            files.insert("package.json".to_owned(), format!(
                "{{\n  \"name\": \"{name}\",\n  \"version\": \"0.3.0\",\n  \"private\": true,\n  \"type\": \"module\",\n  \"scripts\": {{\n    \"test\": \"node --test\"\n  }}\n}}\n"
            ));
            "node_modules/\n"
        }
    };
    files.insert(".gitignore".to_owned(), ignored.to_owned());
    let command = language.test_argv().join(" ");
    let areas: String = plan.areas.iter().map(|area| format!("* {}\n", capital(area.name))).collect();
    files.insert(
        "README.md".to_owned(),
        format!(
            "# {}\n\nSmall computations for these areas:\n\n{areas}\nRun the tests with `{command}`.\n",
            capital(name)
        ),
    );
    files.insert(
        "CHANGELOG.md".to_owned(),
        "# Changes\n\n## 0.3.0\n\nThe areas have folders of their own.\n\n## 0.2.0\n\nMore tests.\n"
            .to_owned(),
    );
    files.insert(
        "CONTRIBUTING.md".to_owned(),
        format!(
            "# How to contribute\n\nKeep functions small, and run `{command}` before you send a change.\n"
        ),
    );
}

fn docs(plan: &RepoPlan, language: Language, files: &mut Files) {
    for area in &plan.areas {
        for module in &area.modules {
            let mut text = format!("# {}\n", module_title(area, module));
            for tested in &module.units {
                for function in &tested.right.functions {
                    text.push_str(&format!("\n## {}\n\n{}\n", language.name(&function.name), function.doc));
                }
                if !tested.right.constants.is_empty() {
                    text.push_str("\n| name | value | meaning |\n| --- | --- | --- |\n");
                }
                for Constant { name, value, doc } in &tested.right.constants {
                    text.push_str(&format!("| {name} | {value} | {doc} |\n"));
                }
            }
            files.insert(format!("{}/{}/{}.md", plan.docs, area.name, module.name), text);
        }
    }
}

/// Data files until there are enough files, one for each area at least.
fn data(plan: &RepoPlan, files: &mut Files) {
    let mut rng = plan.rng.clone();
    let mut year = 2015;
    loop {
        for area in &plan.areas {
            let rows = (1..=ROWS).map(|n| format!("{n},{},{}\n", rng.range(10, 900), rng.range(1, 60)));
            let text = format!("id,amount,items\n{}", rows.collect::<String>());
            files.insert(format!("{}/{}/{year}.csv", plan.data, area.name), text);
        }
        year += 1;
        if files.len() > MIN_FILES {
            return;
        }
    }
}
