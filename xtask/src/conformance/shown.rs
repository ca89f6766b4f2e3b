//! Reads the rows that tests name, in the lines `Rows: SIL-001 SF-044` of their doc comments.
//!
//! A remark in brackets says which part of a row a test shows, `Rows: SIL-001 (its first half)`: that of every row before it, back to
//! the last bracket or to the beginning of the line.
//! Such a row is shown in part until a test claims all of it. A line of its own that begins with «In part:» would be read by
//! nothing: it is an error.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use proc_macro2::{TokenStream, TokenTree};
use serde::Serialize;
use syn::visit::{self, Visit};

use super::catalogue::is_id;
use crate::workspace::Crate;

pub(super) const MARK: &str = "Rows:";

/// The beginning of a line that would claim rows in a form that is not counted.
const UNCOUNTED: &str = "In part:";

/// A test that names a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Claim {
    /// The test: its file and name.
    pub(super) test: String,
    /// The part of the row that it shows; `None` is all of it.
    pub(super) part: Option<String>,
}

/// The claims of all tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Claims {
    /// The tests that name each row.
    pub(super) rows: BTreeMap<String, Vec<Claim>>,
    /// Claims that do not count, and why.
    pub(super) errors: Vec<String>,
}

/// Collects the claims of every source file, given as path and text.
pub(super) fn collect(crates: &[Crate], sources: &[(String, String)]) -> Result<Claims> {
    let mut claims = Claims::default();
    for (path, text) in sources.iter().filter(|(path, _)| path.ends_with(".rs")) {
        claims.errors.extend(find_uncounted(path, text));
    }
    for (path, text) in sources.iter().filter(|(path, text)| path.ends_with(".rs") && text.contains(MARK)) {
        let file = syn::parse_file(text).with_context(|| format!("cannot parse {path}"))?;
        let mut finder = Finder::default();
        finder.visit_file(&file);
        let suite = own_suite(crates, path);
        for found in finder.found {
            let runs = found.is_test
                || suite.as_ref().is_some_and(|suite| is_registered(suite, sources, &found.name));
            claims.add(&format!("{path}::{}", found.name), &found.doc, runs);
        }
    }
    Ok(claims)
}

impl Claims {
    pub(super) fn add(&mut self, test: &str, doc: &str, runs: bool) {
        for line in doc.lines().map(str::trim) {
            let Some(line) = line.strip_prefix(MARK) else {
                if names_rows(line) {
                    self.errors.push(format!("{test} names rows, but not at the beginning of a line"));
                }
                continue;
            };
            if !runs {
                self.errors.push(format!("{test} names rows, but is no test"));
            }
            let parts = parts(line);
            if parts.iter().all(|(ids, _)| ids.is_empty()) {
                self.errors.push(format!("{test} names no row after `{MARK}`"));
            }
            for (ids, part) in parts {
                for id in ids {
                    if !is_id(id) {
                        self.errors.push(format!("{test}: `{id}` is no row's id"));
                    } else if runs {
                        let claim = Claim { test: test.to_owned(), part: part.map(str::to_owned) };
                        self.rows.entry(id.to_owned()).or_default().push(claim);
                    }
                }
            }
        }
    }
}

/// Returns an error for each line of documentation that claims rows in a form that is not counted.
fn find_uncounted(path: &str, text: &str) -> Vec<String> {
    let is_uncounted = |line: &str| {
        let doc = line.trim_start().strip_prefix("///").or_else(|| line.trim_start().strip_prefix("//!"));
        doc.is_some_and(|doc| doc.trim_start().starts_with(UNCOUNTED))
    };
    let found = (1..).zip(text.lines()).filter(|(_, line)| is_uncounted(line));
    found
        .map(|(n, _)| format!("{path}:{n}: write `{MARK} ID (in part: …)` in place of `{UNCOUNTED} ID`"))
        .collect()
}

/// Returns true if the mark and a row's id stand anywhere in a line.
fn names_rows(line: &str) -> bool {
    line.split_once(MARK).is_some_and(|(_, rest)| rest.split([' ', ',', '(']).any(is_id))
}

/// Splits `SIL-001 SF-044 (a part) WIN-002` into ids and the remark behind them.
fn parts(line: &str) -> Vec<(Vec<&str>, Option<&str>)> {
    let pieces = line.split(')').map(|piece| {
        let (ids, remark) = match piece.split_once('(') {
            Some((ids, remark)) => (ids, Some(remark)),
            None => (piece, None),
        };
        (ids.split([' ', ',']).filter(|word| !word.is_empty()).collect(), remark)
    });
    pieces.collect()
}

/// The folder of the crate's tests, if `path` lies in it and the crate runs them by a harness of its own.
fn own_suite(crates: &[Crate], path: &str) -> Option<String> {
    let owner = crates.iter().find(|one| path.starts_with(&one.folder))?;
    let manifest: toml::Table = owner.manifest.parse().ok()?;
    let targets = manifest.get("test").and_then(toml::Value::as_array)?;
    let own =
        targets.iter().any(|target| target.get("harness").and_then(toml::Value::as_bool) == Some(false));
    let folder = format!("{}tests/", owner.folder);
    (own && path.starts_with(&folder)).then_some(folder)
}

/// Returns true if the suite names a function anywhere besides its definition.
fn is_registered(suite: &str, sources: &[(String, String)], name: &str) -> bool {
    let named = sources.iter().filter(|(path, _)| path.starts_with(suite)).map(|(_, text)| {
        let Ok(tokens) = text.parse::<TokenStream>() else { return 0 };
        count_ident(tokens, name)
    });
    named.sum::<usize>() > 1
}

fn count_ident(tokens: TokenStream, name: &str) -> usize {
    let counts = tokens.into_iter().map(|token| match token {
        TokenTree::Ident(ident) => usize::from(ident == name),
        TokenTree::Group(group) => count_ident(group.stream(), name),
        TokenTree::Punct(_) | TokenTree::Literal(_) => 0,
    });
    counts.sum()
}

/// A function with a doc comment that names rows.
#[derive(Debug)]
struct NamedFunction {
    name: String,
    doc: String,
    is_test: bool,
}

#[derive(Default)]
struct Finder {
    found: Vec<NamedFunction>,
}

impl Finder {
    fn note(&mut self, name: String, attributes: &[syn::Attribute]) {
        let doc = crate::source::doc_of(attributes);
        if doc.lines().any(|line| line.trim().starts_with(MARK) || names_rows(line)) {
            let is_test = attributes.iter().any(crate::source::is_test_attribute);
            self.found.push(NamedFunction { name, doc, is_test });
        }
    }

    /// Finds functions among the tokens of a macro, as in `proptest! { … }`.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut pending: Vec<syn::Attribute> = Vec::new();
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    if let Some(TokenTree::Group(group)) = tokens.peek() {
                        let stream = TokenStream::from_iter([TokenTree::Punct(punct), group.clone().into()]);
                        let parsed = syn::parse::Parser::parse2(syn::Attribute::parse_outer, stream);
                        pending.extend(parsed.unwrap_or_default());
                        tokens.next();
                    }
                }
                TokenTree::Ident(ident) if ident == "fn" => {
                    if let Some(TokenTree::Ident(name)) = tokens.next() {
                        self.note(name.to_string(), &std::mem::take(&mut pending));
                    }
                }
                TokenTree::Group(group) => {
                    pending.clear();
                    self.tokens(group.stream());
                }
                TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.note(item.sig.ident.to_string(), &item.attrs);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.note(item.sig.ident.to_string(), &item.attrs);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.tokens(item.tokens.clone());
        visit::visit_macro(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crates(manifest: &str) -> [Crate; 1] {
        [Crate {
            name: "a".to_owned(),
            layer: Some(0),
            dependencies: Vec::new(),
            folder: "crates/a/".to_owned(),
            manifest: manifest.to_owned(),
            module_layers: Vec::new(),
        }]
    }

    fn claims(path: &str, text: &str, manifest: &str) -> Claims {
        collect(&crates(manifest), &[(path.to_owned(), text.to_owned())]).unwrap()
    }

    fn rows(claims: &Claims) -> Vec<&str> {
        claims.rows.keys().map(String::as_str).collect()
    }

    #[test]
    fn only_tests_show_rows() {
        let text = "
            /// Rows: SIL-001 SF-002
            #[test] fn a() {}
            /// Text.
            ///
            /// Rows: WIN-003, SLO-004
            #[tokio::test] async fn b() {}
            /// Rows: SIL-005
            fn helper() {}
            proptest! {
                /// Rows: SCL-006
                #[test]
                fn c(x in 0..9u8) { assert!(x < 9); }
            }";
        let claims = claims("crates/a/src/a.rs", text, "");
        assert_eq!(rows(&claims), ["SCL-006", "SF-002", "SIL-001", "SLO-004", "WIN-003"]);
        assert_eq!(claims.errors, ["crates/a/src/a.rs::helper names rows, but is no test"]);
    }

    #[test]
    fn a_harness_of_its_own_counts_what_is_registered() {
        let text =
            "fn main() { run(&[a]); }\n/// Rows: SIL-001\nfn a() {}\n/// Rows: SIL-002\nfn forgotten() {}";
        let own = "[[test]]\nname = 'suite'\nharness = false\n";
        let with = claims("crates/a/tests/suite.rs", text, own);
        assert_eq!(rows(&with), ["SIL-001"]);
        assert_eq!(with.errors.len(), 1);
        assert_eq!(claims("crates/a/tests/suite.rs", text, "").errors.len(), 2);
    }

    #[test]
    fn a_remark_makes_a_claim_partial() {
        let text = "/// Rows: SIL-001 SIL-002 (the part about x, y), SIL-003\n#[test] fn a() {}";
        let claims = claims("crates/a/src/a.rs", text, "");
        let parts = claims.rows.values().flatten().map(|claim| claim.part.as_deref());
        assert_eq!(
            parts.collect::<Vec<_>>(),
            [Some("the part about x, y"), Some("the part about x, y"), None]
        );
        assert_eq!(claims.errors, [""; 0]);
    }

    #[test]
    fn a_mark_in_the_middle_of_a_line_is_an_error() {
        let text = "/// Threat 6. Rows: SIL-001\n#[test] fn a() {}\n/// The lines `Rows:` of a comment.\n#[test] fn b() {}";
        let claims = claims("crates/a/src/a.rs", text, "");
        assert_eq!((rows(&claims).len(), claims.errors.len()), (0, 1), "{:?}", claims.errors);
    }

    #[test]
    fn a_line_that_says_in_part_of_itself_is_an_error_with_its_place() {
        let text = "/// Text.\n///\n/// In part: SIL-001 (the first half)\n#[test] fn a() {}\n/// Rows: SIL-002 (in part: a)\n#[test] fn b() {}";
        let claims = claims("crates/a/src/a.rs", text, "");
        assert_eq!(rows(&claims), ["SIL-002"]);
        let [error] = claims.errors.as_slice() else { panic!("{:?}", claims.errors) };
        assert!(error.starts_with("crates/a/src/a.rs:3: "), "{error}");
    }

    #[test]
    fn a_word_that_is_no_id_is_an_error() {
        let claims = claims("crates/a/src/a.rs", "/// Rows: SIL-1 bananas\n#[test] fn a() {}", "");
        assert_eq!((rows(&claims).len(), claims.errors.len()), (0, 2));
    }
}
