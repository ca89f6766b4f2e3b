//! Every crate inherits the lint floor of the workspace.

use anyhow::{Context as _, Result};
use toml::{Table, Value};

use super::Finding;
use crate::workspace::Crate;

/// The crate that may use `unsafe`, and so has a table of its own.
const OWN_TABLE: &str = "writ-sandbox";
/// The one lint in which that table may differ.
const MAY_DIFFER: &str = "unsafe_code";
/// The levels of a lint, the laxest first.
const LEVELS: [&str; 4] = ["allow", "warn", "deny", "forbid"];

/// Checks the `[lints]` of each manifest against those of the workspace.
pub(super) fn check(root_manifest: &str, crates: &[Crate]) -> Result<Vec<Finding>> {
    let root: Table = root_manifest.parse().context("Cargo.toml")?;
    let floor = root.get("workspace").and_then(|workspace| workspace.get("lints")).and_then(Value::as_table);
    let floor = floor.context("Cargo.toml has no [workspace.lints]")?;
    let mut findings = Vec::new();
    for one in crates {
        let manifest: Table = one.manifest.parse().with_context(|| format!("manifest of {}", one.name))?;
        let lints = manifest.get("lints").and_then(Value::as_table);
        if lints.and_then(|lints| lints.get("workspace")).and_then(Value::as_bool) == Some(true) {
            continue;
        }
        match lints {
            Some(lints) if one.name == OWN_TABLE => {
                for missing in missing(floor, lints) {
                    findings.push(Finding::new(
                        "lints",
                        &one.name,
                        format!("lacks `{missing}` of the workspace"),
                    ));
                }
            }
            Some(_) | None => {
                findings.push(Finding::new("lints", &one.name, "lacks `[lints] workspace = true`"))
            }
        }
    }
    Ok(findings)
}

/// The lints of `floor` that `own` does not set at least as strictly.
fn missing(floor: &Table, own: &Table) -> Vec<String> {
    let mut missing = Vec::new();
    for (tool, lints) in floor {
        for (lint, level) in lints.as_table().into_iter().flatten() {
            let own_level = own.get(tool).and_then(|own| own.get(lint));
            if lint != MAY_DIFFER && own_level.map_or(0, strictness) < strictness(level) {
                missing.push(format!("{tool}::{lint}"));
            }
        }
    }
    missing
}

/// Returns the strictness of a lint's setting, `"warn"` or `{ level = "warn", … }`.
fn strictness(setting: &Value) -> usize {
    let level = setting.get("level").unwrap_or(setting).as_str();
    LEVELS.iter().position(|known| Some(*known) == level).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "[workspace.lints.rust]\nunsafe_code = 'deny'\nmissing_docs = 'warn'\n\
                        [workspace.lints.clippy]\npanic = 'warn'\n";

    fn texts(name: &str, manifest: &str) -> Vec<String> {
        let one = Crate {
            name: name.to_owned(),
            layer: Some(0),
            dependencies: Vec::new(),
            folder: String::new(),
            manifest: manifest.to_owned(),
            module_layers: Vec::new(),
        };
        check(ROOT, &[one]).unwrap().into_iter().map(|finding| finding.text).collect()
    }

    /// Rows: SF-572 (in part: no crate of ours is without the lint about documentation)
    #[test]
    fn a_crate_without_the_floor_is_found() {
        let lacks = ["lacks `[lints] workspace = true`"];
        assert_eq!(texts("a", ""), lacks);
        assert_eq!(texts("a", "[lints.rust]\nmissing_docs = 'warn'\n"), lacks);
        assert_eq!(texts("a", "[lints]\nworkspace = true\n"), [""; 0]);
    }

    #[test]
    fn the_own_table_keeps_the_floor() {
        let whole = "[lints.rust]\nmissing_docs = 'warn'\n[lints.clippy]\npanic = 'warn'\n";
        assert_eq!(texts(OWN_TABLE, whole), [""; 0]);
        let stricter = "[lints.rust]\nmissing_docs = { level = 'deny' }\n[lints.clippy]\npanic = 'forbid'\n";
        assert_eq!(texts(OWN_TABLE, stricter), [""; 0]);
        let weaker = "[lints.rust]\nmissing_docs = 'allow'\n";
        let lacks = ["lacks `clippy::panic` of the workspace", "lacks `rust::missing_docs` of the workspace"];
        assert_eq!(texts(OWN_TABLE, weaker), lacks);
    }
}
