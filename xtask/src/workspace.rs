//! The workspace as cargo sees it: its crates, their layers and dependencies.

use std::path::Path;

use anyhow::{Context as _, Result};
use cargo_metadata::{DependencyKind, MetadataCommand};

pub(crate) use task_process::workspace_root as root;

/// One crate of the workspace.
#[derive(Clone, Debug)]
pub(crate) struct Crate {
    pub(crate) name: String,
    /// `package.metadata.writ.layer`.
    pub(crate) layer: Option<u64>,
    pub(crate) dependencies: Vec<Dependency>,
    /// Its folder, relative to the root, with `/` at the end.
    pub(crate) folder: String,
    /// The text of its manifest.
    pub(crate) manifest: String,
    /// `package.metadata.writ.modules.layers`: its modules, from the lowest layer to the highest.
    pub(crate) module_layers: Vec<Vec<String>>,
}

/// One dependency of a crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

/// The purpose of a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Of the crate itself or its build script.
    Shipped,
    /// Of its tests.
    Development,
}

/// Reads every crate of the workspace.
pub(crate) fn crates(root: &Path) -> Result<Vec<Crate>> {
    let metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .no_deps()
        .exec()
        .context("cargo metadata")?;
    let mut crates = Vec::new();
    for package in metadata.packages {
        let path = package.manifest_path.as_std_path();
        let folder = path.parent().and_then(|folder| folder.strip_prefix(root).ok());
        let folder = folder.with_context(|| format!("{} lies outside the workspace", package.name))?;
        let dependencies = package.dependencies.iter().map(|dependency| Dependency {
            name: dependency.name.clone(),
            kind: if dependency.kind == DependencyKind::Development {
                Kind::Development
            } else {
                Kind::Shipped
            },
        });
        crates.push(Crate {
            name: package.name.to_string(),
            layer: package.metadata.pointer("/writ/layer").and_then(serde_json::Value::as_u64),
            dependencies: dependencies.collect(),
            folder: format!("{}/", folder.display()),
            manifest: std::fs::read_to_string(path).with_context(|| path.display().to_string())?,
            module_layers: match package.metadata.pointer("/writ/modules/layers") {
                Some(layers) => serde_json::from_value(layers.clone())
                    .with_context(|| format!("{}: package.metadata.writ.modules.layers", package.name))?,
                None => Vec::new(),
            },
        });
    }
    crates.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(crates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_workspace_is_read() {
        let crates = crates(&root().unwrap()).unwrap();
        let types = crates.iter().find(|a| a.name == "writ-types").unwrap();
        assert_eq!((types.layer, types.folder.as_str()), (Some(0), "crates/writ-types/"));
        assert!(types.dependencies.iter().any(|dependency| dependency.name == "serde"));
    }
}
