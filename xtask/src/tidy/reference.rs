//! The reference says of types and interfaces what the sources say.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use syn::visit::{self, Visit};
use syn::{Fields, Visibility};

use super::Finding;
use super::docs::sections;
use crate::source::{self, is_test_file};

const MODELS: &str = "docs/reference/models.md";
const PROTOCOLS: &str = "docs/reference/protocols.md";

/// The public declarations of the crates, by file and name.
#[derive(Debug, Default)]
struct Declared {
    path: String,
    /// Structs with their fields, enums with their variants.
    types: BTreeMap<(String, String), Vec<String>>,
    traits: BTreeMap<String, String>,
}

/// Compares both documents with the crates.
pub(super) fn check(root: &Path) -> Result<Vec<Finding>> {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).with_context(|| path.to_owned());
    let declared = Declared::read(&source::texts(root)?)?;
    let mut findings = check_models(&read(MODELS)?, &declared);
    findings.extend(check_protocols(&read(PROTOCOLS)?, &declared));
    Ok(findings)
}

impl Declared {
    fn read(texts: &[(String, String)]) -> Result<Self> {
        let mut declared = Self::default();
        let shipped =
            |path: &str| path.starts_with("crates/") && path.ends_with(".rs") && !is_test_file(path);
        for (path, text) in texts.iter().filter(|(path, _)| shipped(path)) {
            path.clone_into(&mut declared.path);
            let file = syn::parse_file(text).with_context(|| format!("cannot parse {path}"))?;
            declared.visit_file(&file);
        }
        Ok(declared)
    }
}

impl<'ast> Visit<'ast> for Declared {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        if let (Visibility::Public(_), Fields::Named(fields)) = (&item.vis, &item.fields) {
            let names = fields.named.iter().filter_map(|field| Some(field.ident.as_ref()?.to_string()));
            self.types.insert((self.path.clone(), item.ident.to_string()), names.collect());
        }
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        if matches!(item.vis, Visibility::Public(_)) {
            let names = item.variants.iter().map(|variant| variant.ident.to_string());
            self.types.insert((self.path.clone(), item.ident.to_string()), names.collect());
        }
        visit::visit_item_enum(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        if matches!(item.vis, Visibility::Public(_)) {
            self.traits.insert(item.ident.to_string(), self.path.clone());
        }
        visit::visit_item_trait(self, item);
    }
}

/// The name in a section's title and the file that its text begins with: ``In `path`.``
fn place<'a>(title: &'a str, body: &'a str) -> (&'a str, &'a str) {
    let path = body.lines().find_map(|line| line.strip_prefix("In `")?.split('`').next());
    (title.trim().trim_matches('`'), path.unwrap_or_default())
}

/// Every table has the fields or variants of its type, in their order.
fn check_models(text: &str, declared: &Declared) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (title, body) in sections(text) {
        let (name, path) = place(title, body);
        let rows = body.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        let rows: Vec<&str> = rows.collect();
        let wrong = match declared.types.get(&(path.to_owned(), name.to_owned())) {
            None => format!("is no public type of `{path}`"),
            Some(members) if *members == rows => continue,
            Some(members) => format!("has {}, the table {}", members.join(", "), rows.join(", ")),
        };
        findings.push(Finding::new("models", name, wrong));
    }
    findings
}

/// Every public trait has its section, and every section its trait.
fn check_protocols(text: &str, declared: &Declared) -> Vec<Finding> {
    let listed: BTreeMap<&str, &str> =
        sections(text).into_iter().map(|(title, body)| place(title, body)).collect();
    let unlisted = declared.traits.iter().filter(|(name, _)| !listed.contains_key(name.as_str()));
    let unlisted =
        unlisted.map(|(name, path)| (name.as_str(), format!("of `{path}` has no section in {PROTOCOLS}")));
    let gone =
        listed.iter().filter(|(name, path)| declared.traits.get(**name).is_none_or(|known| known != *path));
    let gone = gone.map(|(name, path)| (*name, format!("is no public trait of `{path}`")));
    unlisted.chain(gone).map(|(name, text)| Finding::new("protocols", name, text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    fn declared(text: &str) -> Declared {
        Declared::read(&[("crates/a/src/a.rs".to_owned(), text.to_owned())]).unwrap()
    }

    fn texts(findings: Vec<Finding>) -> Vec<String> {
        findings.into_iter().map(|finding| format!("{}: {}", finding.item, finding.text)).collect()
    }

    const TABLE: &str =
        "# M\n\n## `A`\n\nIn `crates/a/src/a.rs`. It is.\n\n| field |\n| --- |\n| `x` | X |\n| `y` | Y |\n";

    #[test]
    fn a_table_that_drifted_is_found() {
        assert_eq!(check_models(TABLE, &declared("pub struct A { pub x: u8, pub y: u8 }")), []);
        assert_eq!(check_models(TABLE, &declared("pub enum A { x, y(u8) }")), []);
        for code in [
            "pub struct A { pub x: u8 }",
            "pub struct A { pub x: u8, pub z: u8 }",
            "pub struct A { pub y: u8, pub x: u8 }",
            "pub struct A { pub x: u8, pub y: u8, pub z: u8 }",
            "struct A { x: u8, y: u8 }",
            "pub struct B { pub x: u8, pub y: u8 }",
        ] {
            assert_eq!(check_models(TABLE, &declared(code)).len(), 1, "{code}");
        }
    }

    #[test]
    fn an_interface_without_its_section_is_found() {
        let text = "# P\n\n## `T`\n\nIn `crates/a/src/a.rs`. It asks.\n";
        assert_eq!(check_protocols(text, &declared("pub trait T {} trait Private {}")), []);
        let both = texts(check_protocols(text, &declared("mod m { pub trait U {} }")));
        assert_eq!(
            both,
            [
                "U: of `crates/a/src/a.rs` has no section in docs/reference/protocols.md",
                "T: is no public trait of `crates/a/src/a.rs`",
            ]
        );
    }

    /// Rows: SIL-283 SIL-284
    #[test]
    fn the_reference_is_that_of_the_crates() {
        let root = workspace::root().unwrap();
        assert_eq!(texts(check(&root).unwrap()), [""; 0]);
        let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
        assert!(sections(&read(MODELS)).len() >= 12, "the records that matter are there");
        assert!(sections(&read(PROTOCOLS)).len() >= 5);
    }
}
