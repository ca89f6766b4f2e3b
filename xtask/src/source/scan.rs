//! One pass over the syntax tree of a file.

use std::collections::BTreeMap;
use std::mem;

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{Attribute, Block, Expr, Item, Meta, Signature, Stmt, Token, UseTree};

use super::{Function, Mention, Source, Struct, is_test_file};

/// The line that allows a pure table the longer budget.
const TABLE_MARK: &str = "// tidy: table";
/// The line that lets a struct have many fields: configuration, wire formats, arguments.
const STATE_MARK: &str = "// tidy: plain state";

/// Parses a file and notes what it holds.
pub(super) fn scan(path: &str, text: &str) -> syn::Result<Source> {
    let file = syn::parse_file(text)?;
    let mut aliases = Aliases::default();
    aliases.visit_file(&file);
    let lines: Vec<&str> = text.lines().collect();
    let mut scanner = Scanner {
        lines: &lines,
        aliases: aliases.0,
        scope: Vec::new(),
        in_test: is_test_file(path),
        test_lines: if is_test_file(path) { lines.len() } else { 0 },
        source: Source { path: path.to_owned(), ..Source::default() },
    };
    scanner.visit_file(&file);
    let Scanner { test_lines, mut source, .. } = scanner;
    source.lines = lines.len().saturating_sub(test_lines);
    Ok(source)
}

/// The path of each `use` of the file, by the local name that it makes.
#[derive(Default)]
struct Aliases(BTreeMap<String, String>);

impl<'ast> Visit<'ast> for Aliases {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        leaves(&item.tree, String::new(), &mut |path, local, _| {
            self.0.insert(local.to_owned(), path.to_owned());
        });
    }
}

/// Calls `each` with full path, local name and position of every leaf of a `use`.
fn leaves(tree: &UseTree, prefix: String, each: &mut impl FnMut(&str, &str, Span)) {
    let join = |name: &str| if prefix.is_empty() { name.to_owned() } else { format!("{prefix}::{name}") };
    match tree {
        UseTree::Path(path) => leaves(&path.tree, join(&path.ident.to_string()), each),
        UseTree::Group(group) => {
            for tree in &group.items {
                leaves(tree, prefix.clone(), each);
            }
        }
        UseTree::Glob(glob) => each(&join("*"), "*", glob.span()),
        UseTree::Name(name) if name.ident == "self" => {
            let local = prefix.rsplit("::").next().unwrap_or(&prefix);
            each(&prefix, local, name.ident.span());
        }
        UseTree::Name(name) => {
            let local = name.ident.to_string();
            each(&join(&local), &local, name.ident.span());
        }
        UseTree::Rename(rename) => {
            let path = if rename.ident == "self" { prefix.clone() } else { join(&rename.ident.to_string()) };
            each(&path, &rename.rename.to_string(), rename.ident.span());
        }
    }
}

struct Scanner<'a> {
    lines: &'a [&'a str],
    aliases: BTreeMap<String, String>,
    scope: Vec<String>,
    in_test: bool,
    test_lines: usize,
    source: Source,
}

impl Scanner<'_> {
    fn mention(&self, name: String, span: Span) -> Mention {
        Mention { name, line: span.start().line, in_test: self.in_test }
    }

    /// Notes a path, with its first part resolved through the file's `use`.
    fn path(&mut self, parts: &[String], span: Span) {
        let Some(name) = self.resolved(parts) else { return };
        let mention = self.mention(name, span);
        self.source.paths.push(mention);
    }

    /// Resolves the first part of a path through the file's `use`.
    fn resolved(&self, parts: &[String]) -> Option<String> {
        let (first, rest) = parts.split_first()?;
        let mut name = self.aliases.get(first).cloned().unwrap_or_else(|| first.clone());
        if let Some((head, tail)) = name.split_once("::")
            && let Some(full) = self.aliases.get(head)
            && head != first
        {
            name = format!("{full}::{tail}");
        }
        for part in rest {
            name.push_str("::");
            name.push_str(part);
        }
        Some(name)
    }

    /// Notes the paths inside a macro's arguments, which are tokens, not syntax.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut parts: Vec<String> = Vec::new();
        let mut start = Span::call_site();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if ident == "unsafe" {
                        let mention = self.mention("unsafe".to_owned(), ident.span());
                        self.source.unsafes.push(mention);
                    }
                    if colons != 2 {
                        let done = mem::take(&mut parts);
                        self.path(&done, start);
                        start = ident.span();
                    }
                    parts.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Punct(_) | TokenTree::Literal(_) => {
                    let done = mem::take(&mut parts);
                    self.path(&done, start);
                    colons = 0;
                }
                TokenTree::Group(group) => {
                    let done = mem::take(&mut parts);
                    self.path(&done, start);
                    colons = 0;
                    self.tokens(group.stream());
                }
            }
        }
        self.path(&parts, start);
    }

    fn note_unsafe(&mut self, keyword: Option<&Token![unsafe]>) {
        if let Some(keyword) = keyword {
            let mention = self.mention("unsafe".to_owned(), keyword.span);
            self.source.unsafes.push(mention);
        }
    }

    fn function(&mut self, attributes: &[Attribute], signature: &Signature, block: &Block) {
        let line = signature.span().start().line;
        let end = block.brace_token.span.close().end().line;
        let mut name = self.scope.join("::");
        if !name.is_empty() {
            name.push_str("::");
        }
        name.push_str(&signature.ident.to_string());
        self.source.functions.push(Function {
            name,
            line,
            lines: end.saturating_sub(line) + 1,
            marked_table: self.is_marked(attributes, line, TABLE_MARK),
            is_table: is_table(block),
            in_test: self.in_test,
            is_test: attributes.iter().any(is_test_attribute),
        });
    }

    /// Returns true if a line `mark` stands above an item or among its attributes.
    fn is_marked(&self, attributes: &[Attribute], line: usize, mark: &str) -> bool {
        let first = attributes.iter().map(|attribute| attribute.span().start().line).min().unwrap_or(line);
        let above = self.lines.get(first.saturating_sub(2)..line).unwrap_or_default();
        above.iter().any(|line| line.trim() == mark)
    }

    /// Visits something that its attributes may turn into test code.
    fn within(&mut self, attributes: &[Attribute], span: Span, visit: impl FnOnce(&mut Self)) {
        let before = self.in_test;
        if !before && attributes.iter().any(|a| is_test_attribute(a) || is_test_cfg(a)) {
            self.in_test = true;
            self.test_lines += span.end().line.saturating_sub(span.start().line) + 1;
        }
        visit(self);
        self.in_test = before;
    }

    fn scoped(&mut self, name: String, visit: impl FnOnce(&mut Self)) {
        self.scope.push(name);
        visit(self);
        self.scope.pop();
    }
}

impl<'ast> Visit<'ast> for Scanner<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        self.within(attributes_of(item), item.span(), |this| visit::visit_item(this, item));
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if self.in_test && item.content.is_none() {
            self.source.test_modules.push(item.ident.to_string());
        }
        self.scoped(item.ident.to_string(), |this| visit::visit_item_mod(this, item));
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        self.note_unsafe(item.unsafety.as_ref());
        let mut name = "impl".to_owned();
        if let syn::Type::Path(path) = item.self_ty.as_ref()
            && let Some(last) = path.path.segments.last()
        {
            name = last.ident.to_string();
            let parts: Vec<String> = path.path.segments.iter().map(|part| part.ident.to_string()).collect();
            if let Some(full) = self.resolved(&parts) {
                let mention = self.mention(full, last.ident.span());
                self.source.impls.push(mention);
            }
        }
        self.scoped(name, |this| visit::visit_item_impl(this, item));
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        let mention = self.mention(item.ident.to_string(), item.ident.span());
        self.source.structs.push(Struct {
            name: mention.name.clone(),
            fields: item.fields.len(),
            is_plain_state: self.is_marked(&item.attrs, mention.line, STATE_MARK),
            in_test: mention.in_test,
        });
        self.source.types.push(mention);
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        let mention = self.mention(item.ident.to_string(), item.ident.span());
        self.source.types.push(mention);
        visit::visit_item_enum(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.note_unsafe(item.unsafety.as_ref());
        self.scoped(item.ident.to_string(), |this| visit::visit_item_trait(this, item));
    }

    fn visit_item_foreign_mod(&mut self, item: &'ast syn::ItemForeignMod) {
        self.note_unsafe(item.unsafety.as_ref());
        visit::visit_item_foreign_mod(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.attrs, &item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.within(&item.attrs, item.span(), |this| {
            this.function(&item.attrs, &item.sig, &item.block);
            visit::visit_impl_item_fn(this, item);
        });
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.attrs, &item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_signature(&mut self, signature: &'ast Signature) {
        self.note_unsafe(signature.unsafety.as_ref());
        visit::visit_signature(self, signature);
    }

    fn visit_expr_unsafe(&mut self, expr: &'ast syn::ExprUnsafe) {
        self.note_unsafe(Some(&expr.unsafe_token));
        visit::visit_expr_unsafe(self, expr);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        leaves(&item.tree, String::new(), &mut |path, _, span| {
            let parts: Vec<String> = path.split("::").map(str::to_owned).collect();
            self.path(&parts, span);
        });
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.path(&parts, path.span());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.tokens(item.tokens.clone());
        visit::visit_macro(self, item);
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        note_attribute(self, &attribute.meta);
        visit::visit_attribute(self, attribute);
    }
}

/// Notes an attribute and, for `cfg_attr`, those that it may add.
fn note_attribute(scanner: &mut Scanner<'_>, meta: &Meta) {
    let name = text_of(meta.path());
    if name == "unsafe" {
        let mention = scanner.mention(name.clone(), meta.span());
        scanner.source.unsafes.push(mention);
    }
    if let Meta::List(list) = meta
        && name == "cfg_attr"
        && let Ok(inner) = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
    {
        for meta in inner.iter().skip(1) {
            note_attribute(scanner, meta);
        }
    }
    let mention = scanner.mention(name, meta.span());
    scanner.source.attributes.push(mention);
}

fn text_of(path: &syn::Path) -> String {
    let parts: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
    parts.join("::")
}

/// `#[test]`, `#[tokio::test]` and their like.
pub(crate) fn is_test_attribute(attribute: &Attribute) -> bool {
    attribute.path().segments.last().is_some_and(|segment| segment.ident == "test")
}

/// `#[cfg(test)]` and `#[cfg(all(test, …))]`.
pub(crate) fn is_test_cfg(attribute: &Attribute) -> bool {
    if !attribute.path().is_ident("cfg") {
        return false;
    }
    let Ok(condition) = attribute.parse_args::<Meta>() else { return false };
    if condition.path().is_ident("test") {
        return true;
    }
    let Meta::List(list) = condition else { return false };
    list.path.is_ident("all")
        && list
            .parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
            .is_ok_and(|all| all.iter().any(|meta| meta.path().is_ident("test")))
}

/// The doc comment that the attributes hold.
pub(crate) fn doc_of(attributes: &[Attribute]) -> String {
    let mut doc = String::new();
    for attribute in attributes {
        if let Meta::NameValue(pair) = &attribute.meta
            && pair.path.is_ident("doc")
            && let Expr::Lit(literal) = &pair.value
            && let syn::Lit::Str(text) = &literal.lit
        {
            doc.push_str(text.value().trim());
            doc.push('\n');
        }
    }
    doc
}

/// Returns true if a body is one `match`, after any number of `let`.
fn is_table(block: &Block) -> bool {
    // A closing `Ok(())` is no logic, and neither are names that are brought in.
    let body = match block.stmts.split_last() {
        Some((Stmt::Expr(Expr::Call(_), None), before)) if !before.is_empty() => before,
        Some(_) | None => &block.stmts,
    };
    let Some((last, before)) = body.split_last() else { return false };
    let prelude = |stmt: &Stmt| matches!(stmt, Stmt::Local(_) | Stmt::Item(Item::Use(_)));
    matches!(last, Stmt::Expr(Expr::Match(_), _)) && before.iter().all(prelude)
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the enum is of a library, which may add to it")]
fn attributes_of(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        use std::process::{self, Command as Cmd};
        use tokio::net as n;

        fn shipped() { Cmd::new("x"); process::Command::new("y"); n::TcpStream::connect(); }

        #[cfg(test)]
        mod tests {
            #[test]
            fn tested() { assert!(std::env::var("A").is_ok()); }
        }
    "#;

    fn named<'a>(source: &'a Source, name: &str) -> Vec<&'a Mention> {
        source.paths.iter().filter(|path| path.name == name).collect()
    }

    #[test]
    fn paths_are_resolved_through_use_and_seen_in_macros() {
        let source = scan("a.rs", FILE).unwrap();
        assert_eq!(named(&source, "std::process::Command::new").len(), 2);
        assert_eq!(named(&source, "tokio::net::TcpStream::connect").len(), 1);
        let env = named(&source, "std::env::var");
        assert_eq!(env.len(), 1);
        assert!(env.iter().all(|path| path.in_test));
        assert!(!named(&source, "std::process::Command").iter().any(|path| path.in_test));
    }

    #[test]
    fn comments_and_texts_are_not_mentions() {
        let source =
            scan("a.rs", "// std::process::Command\nconst A: &str = \"std::process::Command\";").unwrap();
        assert_eq!(named(&source, "std::process::Command").len(), 0);
    }

    #[test]
    fn test_lines_do_not_count() {
        let source = scan("a.rs", "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n").unwrap();
        assert_eq!(source.lines, 1);
        let names: Vec<(&str, bool)> =
            source.functions.iter().map(|f| (f.name.as_str(), f.in_test)).collect();
        assert_eq!(names, [("a", false), ("tests::b", true)]);
    }

    #[test]
    fn a_table_is_marked_and_is_one_match() {
        let text = "/// Doc.\n// tidy: table\nfn a(b: u8) -> u8 {\n    let c = b;\n    match c { 0 => 1, _ => 2 }\n}\n\
                    // tidy: table\nfn d() { println!(); }\n";
        let source = scan("a.rs", text).unwrap();
        let tables: Vec<(bool, bool)> =
            source.functions.iter().map(|f| (f.marked_table, f.is_table)).collect();
        assert_eq!(tables, [(true, true), (true, false)]);
    }

    #[test]
    fn attributes_are_seen_through_cfg_attr() {
        let source = scan("a.rs", "#[cfg_attr(unix, allow(dead_code))]\nfn a() {}").unwrap();
        let names: Vec<&str> = source.attributes.iter().map(|a| a.name.as_str()).collect();
        assert!(names.contains(&"allow"), "{names:?}");
    }

    #[test]
    fn unsafe_is_seen_everywhere() {
        let text = "unsafe fn a() {}\nunsafe impl A for B {}\nfn c() { unsafe { d() } }\nm!(unsafe { e() });";
        assert_eq!(scan("a.rs", text).unwrap().unsafes.len(), 4);
    }
}
