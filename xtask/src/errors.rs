//! The reference of stable error codes, made from the sources: every code that a report can carry.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use clap::Parser;
use syn::visit::{self, Visit};
use syn::{Expr, ExprCall, ExprLit, ExprMethodCall, ExprTuple, ImplItemFn, ItemFn, ItemMod, Lit};

use crate::source::{self, is_test_file};
use crate::workspace;

mod bare;

/// The reference, relative to the root.
pub(crate) const PAGE: &str = "docs/reference/errors.md";
/// Functions in which a text of the form of a code counts as a code.
const TELLING: [&str; 4] = ["report", "code", "fault_code", "refusal_code"];
/// Parts of the repository whose errors end no command.
const LEFT_OUT: [&str; 3] = ["crates/writ-testkit/", "crates/writ-testbed/", "crates/writ-testdoor/"];

#[derive(Clone, Copy, Debug, Parser)]
pub(crate) struct Options {
    /// Write it, instead of checking it
    #[arg(long)]
    write: bool,
}

/// Checks the reference, or writes it; whether it is in step.
pub(crate) fn run(options: Options) -> Result<bool> {
    let root = workspace::root()?;
    let page = page(&source::texts(&root)?)?;
    let place = root.join(PAGE);
    if options.write {
        std::fs::write(&place, page).with_context(|| PAGE.to_owned())?;
        println!("{PAGE} is written");
        return Ok(true);
    }
    let in_step = std::fs::read_to_string(&place).unwrap_or_default() == page;
    println!("{PAGE} {}", if in_step { "is in step" } else { "is not what the sources say: --write" });
    Ok(in_step)
}

/// Returns true if the page matches the sources.
pub(crate) fn is_in_step(root: &Path) -> Result<bool> {
    let page = page(&source::texts(root)?)?;
    Ok(std::fs::read_to_string(root.join(PAGE)).unwrap_or_default() == page)
}

#[derive(Debug, Default, PartialEq, Eq)]
struct CodeFacts {
    exits: BTreeSet<u8>,
    hints: BTreeSet<String>,
    parts: BTreeSet<String>,
}

/// Returns true if errors of a file reach a person.
fn is_shipped(path: &str) -> bool {
    path.starts_with("crates/") && !is_test_file(path) && !LEFT_OUT.iter().any(|out| path.starts_with(out))
}

/// Texts that a model reads as the result of its request: no hint is added. People read the advice of the
/// exit code (`Report::advice`).
const TOLD_TO_MODELS: [&str; 12] = [
    "crates/writ-agent/",
    "crates/writ-egress/",
    "crates/writ-mcp/",
    "crates/writ-models/",
    "crates/writ-sandbox/",
    "crates/writ-search/",
    "crates/writ-tools/",
    "crates/writ-runtime/src/model.rs",
    "crates/writ-runtime/src/perform",
    "crates/writ-runtime/src/plans.rs",
    "crates/writ-runtime/src/servers/",
    "crates/writ-runtime/src/subscriptions.rs",
];

/// Lists the places, by file and line, that make an error for people without a hint.
pub(crate) fn without_hint(root: &Path) -> Result<Vec<(String, usize)>> {
    let mut found = Vec::new();
    for (path, text) in source::texts(root)?.into_iter().filter(|(path, _)| is_shipped(path)) {
        if TOLD_TO_MODELS.iter().any(|told| path.starts_with(told)) {
            continue;
        }
        let file = syn::parse_file(&text).with_context(|| format!("cannot parse {path}"))?;
        found.extend(bare::lines(&file).into_iter().map(|line| (path.clone(), line)));
    }
    Ok(found)
}

fn page(texts: &[(String, String)]) -> Result<String> {
    let mut codes: BTreeMap<String, CodeFacts> = BTreeMap::new();
    for (path, text) in texts.iter().filter(|(path, _)| is_shipped(path)) {
        let file = syn::parse_file(text).with_context(|| format!("cannot parse {path}"))?;
        let part = path.split('/').nth(1).unwrap_or_default();
        let mut finder = Finder { part, codes: &mut codes, exits: BTreeSet::new(), telling: false };
        finder.visit_file(&file);
    }
    Ok(written(&codes))
}

fn written(codes: &BTreeMap<String, CodeFacts>) -> String {
    let mut page = String::from(HEAD);
    let mut group = "";
    for (code, known) in codes {
        let of = code.split('.').next().unwrap_or_default();
        if of != group {
            group = of;
            // Writing to a string does not fail.
            let _ = write!(
                page,
                "\n## `{of}`\n\n| code | ends with | told by | what to do |\n| --- | --- | --- | --- |\n"
            );
        }
        let exits: Vec<String> = known.exits.iter().map(u8::to_string).collect();
        let parts: Vec<&str> = known.parts.iter().map(String::as_str).collect();
        let hints: Vec<&str> = known.hints.iter().map(String::as_str).collect();
        let hint = hints.join("; or: ").replace('|', "\\|");
        let hint = if hint.is_empty() { "what the message says".to_owned() } else { hint };
        let _ = writeln!(page, "| `{code}` | {} | {} | {hint} |", exits.join(", "), parts.join(", "));
    }
    page
}

const HEAD: &str = "\
# Error codes

Every error has a stable code. With `--json` a command tells it on standard error as `{\"error\": {\"exit\", \"code\", \"text\",
\"hint\"}}`; the page, the WebSocket and the API carry the same code. Codes keep their meaning between versions. The number that a
command ends with is explained in [exit codes](../exit-codes.md); where several are named, the case decides.

This page is made from the sources by `cargo xtask errors --write`, and `cargo xtask tidy` holds it to them.
";

/// Finds codes in one file.
struct Finder<'a> {
    part: &'a str,
    codes: &'a mut BTreeMap<String, CodeFacts>,
    /// The exits that the function around names.
    exits: BTreeSet<u8>,
    /// True in a function that reports errors and does nothing else.
    telling: bool,
}

impl Finder<'_> {
    fn know(&mut self, code: &str, exit: Option<u8>, hint: Option<String>) {
        let known = self.codes.entry(code.to_owned()).or_default();
        known.parts.insert(self.part.to_owned());
        match exit {
            Some(exit) => known.exits.extend([exit]),
            None => known.exits.extend(&self.exits),
        }
        known.hints.extend(hint.filter(|hint| !hint.is_empty()));
    }

    fn function(
        &mut self,
        name: &str,
        attributes: &[syn::Attribute],
        visit: impl FnOnce(&mut Self),
        exits: BTreeSet<u8>,
    ) {
        if is_test(attributes) {
            return;
        }
        let before = (std::mem::replace(&mut self.exits, exits), self.telling);
        self.telling = TELLING.contains(&name);
        visit(self);
        (self.exits, self.telling) = before;
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let text = match &attribute.meta {
            syn::Meta::List(list) => list.tokens.to_string(),
            syn::Meta::Path(_) | syn::Meta::NameValue(_) => String::new(),
        };
        attribute.path().is_ident("test") || (attribute.path().is_ident("cfg") && text == "test")
    })
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        let exits = exits_in(|all| all.visit_block(&item.block));
        self.function(&item.sig.ident.to_string(), &item.attrs, |own| visit::visit_item_fn(own, item), exits);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        let exits = exits_in(|all| all.visit_block(&item.block));
        self.function(
            &item.sig.ident.to_string(),
            &item.attrs,
            |own| visit::visit_impl_item_fn(own, item),
            exits,
        );
    }

    /// `Report::new(Exit::X, "code", …)`, and every other call with an exit and a code.
    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        let arguments: Vec<&Expr> = call.args.iter().collect();
        if let [first, second, rest @ ..] = arguments.as_slice()
            && let (Some(exit), Some(code)) = (exit(first), text(second).filter(|text| is_code(text)))
        {
            // The last of four is the hint; of three, if it is no literal text.
            let own = matches!(call.func.as_ref(), Expr::Path(path) if path.path.segments.len() == 1);
            let hint = if rest.len() == if own { 1 } else { 2 } {
                rest.last().and_then(|hint| text(hint))
            } else {
                None
            };
            self.know(&code, Some(exit), hint);
        }
        visit::visit_expr_call(self, call);
    }

    /// `Report::new(…).with_hint("…")`, with anything between.
    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        if call.method == "with_hint"
            && let Some(hint) = call.args.first().and_then(text)
            && let Some((exit, code)) = made(&call.receiver)
        {
            self.know(&code, Some(exit), Some(hint));
        }
        visit::visit_expr_method_call(self, call);
    }

    /// `(Exit::X, "code")` and `("code", "hint")`.
    fn visit_expr_tuple(&mut self, tuple: &'ast ExprTuple) {
        let items: Vec<&Expr> = tuple.elems.iter().collect();
        for (n, item) in items.iter().enumerate() {
            let Some(code) = text(item).filter(|text| is_code(text)) else { continue };
            let exit = items.iter().take(n).find_map(|item| exit(item));
            if exit.is_some() || self.telling {
                let hint = items.get(n + 1).and_then(|hint| text(hint)).filter(|hint| hint.contains(' '));
                self.know(&code, exit, hint);
            }
        }
        visit::visit_expr_tuple(self, tuple);
    }

    fn visit_expr_lit(&mut self, literal: &'ast ExprLit) {
        if let Lit::Str(text) = &literal.lit
            && self.telling
            && is_code(&text.value())
            && !self.codes.contains_key(&text.value())
        {
            self.know(&text.value(), None, None);
        }
    }
}

/// The exit and code of the call at the beginning of a chain.
fn made(receiver: &Expr) -> Option<(u8, String)> {
    if let Expr::MethodCall(call) = receiver {
        return made(&call.receiver);
    }
    let Expr::Call(call) = receiver else { return None };
    let mut arguments = call.args.iter();
    let exit = exit(arguments.next()?)?;
    Some((exit, text(arguments.next()?).filter(|text| is_code(text))?))
}

/// `Exit::X`.
fn exit(expression: &Expr) -> Option<u8> {
    let Expr::Path(path) = expression else { return None };
    let names: Vec<String> = path.path.segments.iter().map(|part| part.ident.to_string()).collect();
    let [.., owner, name] = names.as_slice() else { return None };
    (owner == "Exit").then(|| number(name)).flatten()
}

/// The number of an exit by its name in `writ_types::error::Exit`.
fn number(name: &str) -> Option<u8> {
    Some(match name {
        "Done" => 0,
        "Bug" => 1,
        "Usage" => 2,
        "Config" => 3,
        "Denied" => 4,
        "Waiting" => 5,
        "Budget" => 6,
        "Model" => 7,
        "Verification" => 8,
        "Ledger" => 9,
        "Blocked" => 10,
        "Interrupted" => 130,
        _ => return None,
    })
}

fn text(expression: &Expr) -> Option<String> {
    let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = expression else { return None };
    Some(text.value())
}

/// Two words of small letters with a dot between them.
fn is_code(text: &str) -> bool {
    let word =
        |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    text.split_once('.').is_some_and(|(group, name)| word(group) && word(name))
}

/// Every exit that an expression names.
fn exits_in(visit: impl FnOnce(&mut Exits)) -> BTreeSet<u8> {
    let mut exits = Exits(BTreeSet::new());
    visit(&mut exits);
    exits.0
}

struct Exits(BTreeSet<u8>);

impl<'ast> Visit<'ast> for Exits {
    fn visit_expr(&mut self, expression: &'ast Expr) {
        self.0.extend(exit(expression));
        visit::visit_expr(self, expression);
    }
}

#[cfg(test)]
mod tests {
    use writ_types::error::Exit;

    use super::*;

    #[test]
    fn codes_are_found_with_their_exits_and_hints_and_tests_are_left_out() {
        let code = r#"
            fn a() { Report::new(Exit::Denied, "a.call", text).with_inside(x).with_hint("Do this.") }
            fn b() { Failure::new(Exit::Usage, "b.call", "text", "do that") }
            impl ToReport for X { fn report(&self) -> Report {
                let (code, hint) = match self { X::A => ("c.tuple", "Wait a while."), X::B => ("c.other", "") };
                Report::new(Exit::Model, code, "")
            } }
            fn other() { file("not.code"); ("not.this", "either here") }
            #[cfg(test)] mod tests { fn c() { Report::new(Exit::Bug, "d.test", "") } }
        "#;
        let page = page(&[("crates/writ-x/src/a.rs".to_owned(), code.to_owned())]).expect("parses");
        for row in [
            "| `a.call` | 4 | writ-x | Do this. |",
            "| `b.call` | 2 | writ-x | do that |",
            "| `c.tuple` | 7 | writ-x | Wait a while. |",
            "| `c.other` | 7 | writ-x | what the message says |",
        ] {
            assert!(page.contains(row), "{row} is not in\n{page}");
        }
        assert!(!page.contains("not.") && !page.contains("d.test"), "{page}");
    }

    #[test]
    fn the_numbers_are_those_of_the_exits() {
        for exit in Exit::ALL {
            assert_eq!(number(&format!("{exit:?}")), Some(exit.code()));
        }
    }
}
