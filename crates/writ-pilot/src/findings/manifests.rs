//! Dependencies and declared programs of manifests.

use serde_json::Value as Json;
use toml::{Table, Value as Toml};

use crate::files::name_of;

/// The contents of a manifest that are reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ManifestFindings {
    /// The names of dependencies, in their order, each once.
    pub(super) dependencies: Vec<String>,
    /// The programs that it declares.
    pub(super) programs: Vec<String>,
}

/// Reads a manifest by the name of its file; one of another kind has neither dependencies nor programs.
pub(super) fn read_manifest(path: &str, text: &str) -> Result<ManifestFindings, String> {
    let name = String::from_utf8_lossy(name_of(path.as_bytes())).to_ascii_lowercase();
    let mut found = match name.as_str() {
        "cargo.toml" => read_cargo(&parse_toml(text)?),
        "pyproject.toml" => read_pyproject(&parse_toml(text)?),
        "package.json" => read_package(&serde_json::from_str(text).map_err(|error| error.to_string())?),
        "requirements.txt" | "requirements-dev.txt" => read_requirements(text),
        "go.mod" => read_go(text),
        _ => ManifestFindings::default(),
    };
    let mut seen = std::collections::BTreeSet::new();
    found.dependencies.retain(|name| seen.insert(name.clone()));
    Ok(found)
}

fn parse_toml(text: &str) -> Result<Table, String> {
    // The first line says what and where; the rest draws the place.
    text.parse::<Table>().map_err(|error| error.to_string().lines().next().unwrap_or_default().to_owned())
}

/// Returns a table within a table, by its keys.
fn find_table<'a>(of: &'a Table, keys: &[&str]) -> Option<&'a Table> {
    keys.iter().try_fold(of, |table, key| table.get(*key)?.as_table())
}

fn names_of(table: Option<&Table>) -> impl Iterator<Item = String> + '_ {
    table.into_iter().flat_map(|table| table.keys().cloned())
}

fn read_cargo(manifest: &Table) -> ManifestFindings {
    let mut found = ManifestFindings::default();
    for keys in [
        &["dependencies"][..],
        &["dev-dependencies"],
        &["build-dependencies"],
        &["workspace", "dependencies"],
    ] {
        found.dependencies.extend(names_of(find_table(manifest, keys)));
    }
    let bins = manifest.get("bin").and_then(Toml::as_array).map(Vec::as_slice).unwrap_or_default();
    let names = bins.iter().filter_map(|bin| bin.get("name")?.as_str());
    found.programs.extend(names.map(|name| format!("program {name}")));
    found
}

fn read_pyproject(manifest: &Table) -> ManifestFindings {
    let mut found = ManifestFindings::default();
    let project = find_table(manifest, &["project"]);
    let listed = project.and_then(|project| project.get("dependencies")?.as_array());
    let listed = listed.map(Vec::as_slice).unwrap_or_default();
    found.dependencies.extend(listed.iter().filter_map(|one| requirement_name(one.as_str()?)));
    found.dependencies.extend(names_of(find_table(manifest, &["tool", "poetry", "dependencies"])));
    for keys in [&["project", "scripts"][..], &["tool", "poetry", "scripts"]] {
        found.programs.extend(names_of(find_table(manifest, keys)).map(|name| format!("program {name}")));
    }
    found
}

fn read_package(manifest: &Json) -> ManifestFindings {
    let mut found = ManifestFindings::default();
    for key in ["dependencies", "devDependencies", "peerDependencies"] {
        let names = manifest.get(key).and_then(Json::as_object).into_iter().flat_map(|names| names.keys());
        found.dependencies.extend(names.cloned());
    }
    found.programs.extend(manifest.get("main").and_then(Json::as_str).map(|file| format!("main {file}")));
    match manifest.get("bin") {
        Some(Json::String(file)) => found.programs.push(format!("program {file}")),
        Some(Json::Object(bins)) => found.programs.extend(bins.keys().map(|name| format!("program {name}"))),
        _ => {}
    }
    found
}

fn read_requirements(text: &str) -> ManifestFindings {
    ManifestFindings {
        dependencies: text.lines().filter_map(requirement_name).collect(),
        programs: Vec::new(),
    }
}

/// Returns the name of a requirement of Python; options and comments have none.
fn requirement_name(line: &str) -> Option<String> {
    let line = line.trim();
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let end = line.find(|c| !is_part(c)).unwrap_or(line.len());
    let name = line.get(..end)?;
    name.starts_with(|c: char| c.is_ascii_alphanumeric()).then(|| name.to_owned())
}

fn read_go(text: &str) -> ManifestFindings {
    let mut found = ManifestFindings::default();
    let mut in_block = false;
    for line in text.lines().map(str::trim) {
        let own = line.strip_prefix("require ").map(str::trim);
        if own == Some("(") || line == "require(" {
            in_block = true;
        } else if line.starts_with(')') {
            in_block = false;
        } else if let Some(required) = own.or(in_block.then_some(line)) {
            let module = required.split_whitespace().next().filter(|word| !word.starts_with("//"));
            found.dependencies.extend(module.map(str::to_owned));
        }
    }
    found
}
