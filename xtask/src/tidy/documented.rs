//! Finds public functions and types of the product that no comment describes, by a walk over the syntax tree.
//!
//! The check is about Writ itself. It is a task of this repository and no part of the binary, so neither a gate nor `writ pilot doctor`
//! can run it in a project of a user.

use anyhow::{Context as _, Result};
use proc_macro2::Span;
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{Attribute, Visibility};

use super::Finding;
use crate::source::{doc_of, is_test_cfg, is_test_file};

/// The check, as findings name it.
const CHECK: &str = "undocumented";

/// Checks the sources of the crates.
pub(super) fn check(texts: &[(String, String)]) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for (path, text) in texts {
        if path.starts_with("crates/") && path.contains("/src/") && !is_test_file(path) {
            findings.extend(check_text(path, text)?);
        }
    }
    Ok(findings)
}

fn check_text(path: &str, text: &str) -> Result<Vec<Finding>> {
    let file = syn::parse_file(text).with_context(|| format!("cannot parse {path}"))?;
    let mut walk = DocWalk { path, owner: String::new(), findings: Vec::new() };
    walk.visit_file(&file);
    Ok(walk.findings)
}

/// The walk over one file.
struct DocWalk<'a> {
    path: &'a str,
    /// The type or trait whose functions are visited; empty at the level of a module.
    owner: String,
    findings: Vec<Finding>,
}

impl DocWalk<'_> {
    /// Notes an item that is public and has no comment.
    fn judge(&mut self, visibility: &Visibility, attributes: &[Attribute], (name, span): (String, Span)) {
        if matches!(visibility, Visibility::Public(_)) {
            self.judge_public(attributes, (name, span));
        }
    }

    fn judge_public(&mut self, attributes: &[Attribute], (name, span): (String, Span)) {
        if doc_of(attributes).trim().is_empty() {
            let item = if self.owner.is_empty() { name } else { format!("{}::{name}", self.owner) };
            let text = format!("`{item}` is public and has no doc comment");
            self.findings.push(Finding::new(CHECK, self.path, text).at(span.start().line));
        }
    }

    fn visit_below(&mut self, owner: String, visit: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.owner, owner);
        visit(self);
        self.owner = outer;
    }
}

impl<'ast> Visit<'ast> for DocWalk<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !item.attrs.iter().any(is_test_cfg) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        // What a body holds is no one's to call.
        if !item.attrs.iter().any(is_test_cfg) {
            self.judge(&item.vis, &item.attrs, (item.sig.ident.to_string(), item.sig.span()));
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.judge(&item.vis, &item.attrs, (item.ident.to_string(), item.ident.span()));
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.judge(&item.vis, &item.attrs, (item.ident.to_string(), item.ident.span()));
    }

    fn visit_item_union(&mut self, item: &'ast syn::ItemUnion) {
        self.judge(&item.vis, &item.attrs, (item.ident.to_string(), item.ident.span()));
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.judge(&item.vis, &item.attrs, (item.ident.to_string(), item.ident.span()));
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.judge(&item.vis, &item.attrs, (item.ident.to_string(), item.ident.span()));
        if !matches!(item.vis, Visibility::Public(_)) {
            return;
        }
        self.visit_below(item.ident.to_string(), |walk| {
            for one in &item.items {
                if let syn::TraitItem::Fn(method) = one {
                    walk.judge_public(&method.attrs, (method.sig.ident.to_string(), method.sig.span()));
                }
            }
        });
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        // A trait describes its functions once, for all who have it.
        if item.trait_.is_some() || item.attrs.iter().any(is_test_cfg) {
            return;
        }
        let mut owner = None;
        if let syn::Type::Path(path) = item.self_ty.as_ref() {
            owner = path.path.segments.last().map(|last| last.ident.to_string());
        }
        self.visit_below(owner.unwrap_or_default(), |walk| {
            for one in &item.items {
                if let syn::ImplItem::Fn(method) = one {
                    walk.judge(&method.vis, &method.attrs, (method.sig.ident.to_string(), method.sig.span()));
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENTED: &str = "/// A door.\npub struct Door;\n\nimpl Door {\n    /// Opens it.\n    pub fn open(&self) {}\n\n    fn own(&self) {}\n}\n\n/// Opens doors.\npub trait Opener {\n    /// Opens one.\n    fn open_one(&self);\n}\n\nimpl Opener for Door {\n    fn open_one(&self) {}\n}\n\n/// A kind of door.\npub enum Kind {\n    /// Of wood.\n    Wood,\n}\n\n/// Makes a door.\npub fn make() -> Door {\n    Door\n}\n\n/// Doors.\npub type Doors = Vec<Door>;\n\nfn own() {}\n\npub(crate) fn inner() {}\n\n#[cfg(test)]\nmod tests {\n    pub fn shown() {}\n}\n";

    fn texts(text: &str) -> Vec<String> {
        let path = "crates/a/src/lib.rs".to_owned();
        let found = check(&[(path, text.to_owned())]).unwrap();
        found.into_iter().map(|finding| finding.text).collect()
    }

    /// Each comment is missed when it is removed, and the finding, with which the task fails, names its item. Private items, tests,
    /// the functions of a trait's `impl` and files that are no part of a crate need none.
    ///
    /// Rows: SF-018 SF-572
    #[test]
    fn a_public_item_without_a_comment_is_found_by_its_name() {
        assert_eq!(texts(DOCUMENTED), [""; 0]);
        for (comment, item) in [
            ("/// A door.\n", "Door"),
            ("    /// Opens it.\n", "Door::open"),
            ("/// Opens doors.\n", "Opener"),
            ("    /// Opens one.\n", "Opener::open_one"),
            ("/// A kind of door.\n", "Kind"),
            ("/// Makes a door.\n", "make"),
            ("/// Doors.\n", "Doors"),
        ] {
            let without = DOCUMENTED.replacen(comment, "", 1);
            assert_eq!(texts(&without), [format!("`{item}` is public and has no doc comment")]);
        }
        let bare = "pub fn bare() {}\n".to_owned();
        for elsewhere in ["crates/a/tests/suite.rs", "xtask/src/main.rs", "crates/a/src/tests.rs"] {
            assert_eq!(check(&[(elsewhere.to_owned(), bare.clone())]).unwrap(), []);
        }
        // The program that users have knows no such check.
        let root = crate::workspace::root().unwrap();
        let manifest = std::fs::read_to_string(root.join("crates/writ-cli/Cargo.toml")).unwrap();
        assert!(manifest.contains("writ-pilot") && !manifest.contains("xtask"), "{manifest}");
    }
}
