//! Finds the operators, arms and bodies of a file.

use std::collections::BTreeSet;
use std::ops::Range;

use anyhow::{Context as _, Result};
use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};

/// An operator between two expressions.
#[derive(Debug)]
pub(crate) struct Infix {
    pub(crate) left: Range<usize>,
    pub(crate) operator: Range<usize>,
    pub(crate) right: Range<usize>,
    /// True if it joins the conditions of an `if let`: no other operator can.
    pub(crate) has_let: bool,
}

/// An operator before an expression.
#[derive(Debug)]
pub(crate) struct Prefix {
    pub(crate) operator: Range<usize>,
    pub(crate) operand: Range<usize>,
}

/// An arm of a `match`.
#[derive(Debug)]
pub(crate) struct Arm {
    pub(crate) whole: Range<usize>,
    pub(crate) pattern_end: usize,
    pub(crate) guard: Option<Range<usize>>,
}

/// A structure that takes what it does not name from another one.
#[derive(Debug)]
pub(crate) struct Literal {
    pub(crate) whole: Range<usize>,
    /// Each with the comma behind it.
    pub(crate) fields: Vec<Range<usize>>,
}

/// A body of a function.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) inside: Range<usize>,
    /// The beginning of its first statement.
    pub(crate) begin: usize,
    pub(crate) returned: Returned,
}

/// The return type of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Returned {
    Type,
    /// It is an iterator, whichever.
    Iterator,
    /// Another trait: another value would have another type.
    Trait,
}

/// A constant outside an `impl`.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) name: String,
    pub(crate) whole: Range<usize>,
    pub(crate) visible: Range<usize>,
    pub(crate) of: Range<usize>,
    pub(crate) value: Range<usize>,
}

/// A name that may be one of a constant, where its value is used.
#[derive(Debug)]
pub(crate) struct Use {
    pub(crate) name: String,
    pub(crate) path: Range<usize>,
}

/// All of them, in bytes of the file; what holds others comes after them.
#[derive(Debug, Default)]
pub(crate) struct Places {
    pub(crate) infixes: Vec<Infix>,
    pub(crate) prefixes: Vec<Prefix>,
    pub(crate) arms: Vec<Arm>,
    pub(crate) literals: Vec<Literal>,
    pub(crate) bodies: Vec<Body>,
    /// Code that the compiler evaluates, where nothing can be asked.
    constants: Vec<Range<usize>>,
    /// Functions that the compiler may evaluate: they can be asked in if they are made ordinary ones.
    pub(crate) functions: Vec<Constant>,
    pub(crate) items: Vec<Item>,
    pub(crate) uses: Vec<Use>,
    /// Names that stand where the compiler has to know the value.
    pub(crate) fixed: BTreeSet<String>,
}

/// A function that the compiler may evaluate.
#[derive(Debug)]
pub(crate) struct Constant {
    pub(crate) name: String,
    /// The word that says so.
    pub(crate) word: Range<usize>,
    pub(crate) body: Range<usize>,
}

impl Places {
    /// Those of a file.
    ///
    /// # Errors
    ///
    /// If it is no Rust.
    pub(crate) fn of(text: &str) -> Result<Self> {
        let file = syn::parse_file(text).context("it is no Rust")?;
        let mut places = Self::default();
        places.visit_file(&file);
        Ok(places)
    }

    /// Returns true if nothing can be asked at a place. `unchanged` are functions that have to stay as they are.
    pub(crate) fn is_constant(&self, span: &Range<usize>, unchanged: &BTreeSet<String>) -> bool {
        let functions = self.functions.iter().filter(|function| unchanged.contains(&function.name));
        let mut all = self.constants.iter().chain(functions.map(|function| &function.body));
        all.any(|constant| constant.start <= span.start && span.end <= constant.end)
    }

    /// An expression that the compiler evaluates.
    fn evaluated(&mut self, expression: &syn::Expr) {
        self.constants.push(expression.span().byte_range());
        Fixed(&mut self.fixed).visit_expr(expression);
    }

    fn used(&mut self, name: &Ident, path: Range<usize>) {
        let name = name.to_string();
        if is_constant_name(&name) {
            self.uses.push(Use { name, path });
        }
    }

    fn body(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let whole = block.span().byte_range();
        let first = block.stmts.first().map(|first| first.span().byte_range().start);
        let returned = match &signature.output {
            syn::ReturnType::Default => Returned::Type,
            syn::ReturnType::Type(_, returned) => Returned::of(returned),
        };
        self.bodies.push(Body {
            begin: first.unwrap_or(whole.end.saturating_sub(1)),
            inside: whole.clone(),
            returned,
        });
        if let Some(word) = &signature.constness {
            let (name, word) = (signature.ident.to_string(), word.span().byte_range());
            self.functions.push(Constant { name, word, body: whole });
        }
    }
}

impl Returned {
    fn of(returned: &syn::Type) -> Self {
        let mut traits = Traits::default();
        traits.visit_type(returned);
        let iterator = |bound: &syn::TypeParamBound| {
            matches!(bound, syn::TypeParamBound::Trait(one)
                if one.path.segments.last().is_some_and(|last| last.ident == "Iterator"))
        };
        if matches!(returned, syn::Type::ImplTrait(one) if one.bounds.iter().any(iterator)) {
            Self::Iterator
        } else if traits.0 {
            Self::Trait
        } else {
            Self::Type
        }
    }
}

/// True if `impl` stands in a type.
#[derive(Default)]
struct Traits(bool);

impl Visit<'_> for Traits {
    fn visit_type_impl_trait(&mut self, _: &syn::TypeImplTrait) {
        self.0 = true;
    }
}

/// All names in what the compiler has to know.
struct Fixed<'a>(&'a mut BTreeSet<String>);

impl Visit<'_> for Fixed<'_> {
    fn visit_ident(&mut self, name: &Ident) {
        self.0.insert(name.to_string());
    }

    fn visit_macro(&mut self, called: &syn::Macro) {
        self.0.extend(names(called.tokens.clone()).iter().map(Ident::to_string));
    }
}

/// The names in what a macro is called with.
fn names(tokens: TokenStream) -> Vec<Ident> {
    let mut found = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Ident(name) => found.push(name),
            TokenTree::Group(group) => found.extend(names(group.stream())),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
    found
}

/// Returns true if a name is written as those of constants are.
fn is_constant_name(name: &str) -> bool {
    name.len() > 1 && name.chars().all(|one| one.is_ascii_uppercase() || one.is_ascii_digit() || one == '_')
}

fn has_let(expression: &syn::Expr) -> bool {
    if let syn::Expr::Binary(binary) = expression {
        return has_let(&binary.left) || has_let(&binary.right);
    }
    matches!(expression, syn::Expr::Let(_))
}

impl<'a> Visit<'a> for Places {
    fn visit_item_fn(&mut self, function: &'a syn::ItemFn) {
        visit::visit_item_fn(self, function);
        self.body(&function.sig, &function.block);
    }

    fn visit_impl_item_fn(&mut self, function: &'a syn::ImplItemFn) {
        visit::visit_impl_item_fn(self, function);
        self.body(&function.sig, &function.block);
    }

    fn visit_trait_item_fn(&mut self, function: &'a syn::TraitItemFn) {
        visit::visit_trait_item_fn(self, function);
        if let Some(block) = &function.default {
            self.body(&function.sig, block);
        }
    }

    fn visit_item_const(&mut self, constant: &'a syn::ItemConst) {
        visit::visit_item_const(self, constant);
        self.items.push(Item {
            name: constant.ident.to_string(),
            whole: constant.span().byte_range(),
            visible: constant.vis.span().byte_range(),
            of: constant.ty.span().byte_range(),
            value: constant.expr.span().byte_range(),
        });
        self.evaluated(&constant.expr);
    }

    fn visit_item_static(&mut self, constant: &'a syn::ItemStatic) {
        visit::visit_item_static(self, constant);
        self.evaluated(&constant.expr);
    }

    fn visit_impl_item_const(&mut self, constant: &'a syn::ImplItemConst) {
        visit::visit_impl_item_const(self, constant);
        self.evaluated(&constant.expr);
    }

    fn visit_type_array(&mut self, array: &'a syn::TypeArray) {
        visit::visit_type_array(self, array);
        self.evaluated(&array.len);
    }

    fn visit_expr_repeat(&mut self, repeat: &'a syn::ExprRepeat) {
        visit::visit_expr_repeat(self, repeat);
        self.evaluated(&repeat.len);
    }

    fn visit_expr_binary(&mut self, binary: &'a syn::ExprBinary) {
        visit::visit_expr_binary(self, binary);
        self.infixes.push(Infix {
            left: binary.left.span().byte_range(),
            operator: binary.op.span().byte_range(),
            right: binary.right.span().byte_range(),
            has_let: has_let(&binary.left) || has_let(&binary.right),
        });
    }

    fn visit_expr_unary(&mut self, unary: &'a syn::ExprUnary) {
        visit::visit_expr_unary(self, unary);
        let operand = unary.expr.span().byte_range();
        self.prefixes.push(Prefix { operator: unary.op.span().byte_range(), operand });
    }

    fn visit_expr_struct(&mut self, literal: &'a syn::ExprStruct) {
        visit::visit_expr_struct(self, literal);
        if literal.rest.is_some() {
            let fields = literal.fields.pairs().map(|field| field.span().byte_range());
            self.literals.push(Literal { whole: literal.span().byte_range(), fields: fields.collect() });
        }
    }

    fn visit_arm(&mut self, arm: &'a syn::Arm) {
        visit::visit_arm(self, arm);
        self.arms.push(Arm {
            whole: arm.span().byte_range(),
            pattern_end: arm.pat.span().byte_range().end,
            guard: arm.guard.as_ref().map(|(_, guard)| guard.span().byte_range()),
        });
    }

    fn visit_expr_const(&mut self, block: &'a syn::ExprConst) {
        visit::visit_expr_const(self, block);
        self.constants.push(block.span().byte_range());
        Fixed(&mut self.fixed).visit_expr_const(block);
    }

    fn visit_variant(&mut self, variant: &'a syn::Variant) {
        visit::visit_variant(self, variant);
        if let Some((_, value)) = &variant.discriminant {
            self.evaluated(value);
        }
    }

    fn visit_generic_argument(&mut self, argument: &'a syn::GenericArgument) {
        visit::visit_generic_argument(self, argument);
        Fixed(&mut self.fixed).visit_generic_argument(argument);
    }

    fn visit_expr_path(&mut self, path: &'a syn::ExprPath) {
        visit::visit_expr_path(self, path);
        let first_is_type = path.path.segments.first().is_some_and(|first| first.ident == "Self");
        if let Some(last) = path.path.segments.last()
            && !first_is_type
        {
            self.used(&last.ident, path.span().byte_range());
        }
    }

    fn visit_macro(&mut self, called: &'a syn::Macro) {
        for name in names(called.tokens.clone()) {
            self.used(&name, name.span().byte_range());
        }
    }

    // Patterns are no expressions: nothing can be asked in them.
    fn visit_pat(&mut self, pattern: &'a syn::Pat) {
        Fixed(&mut self.fixed).visit_pat(pattern);
    }
}
