//! Where a file has operators, arms and bodies.

use std::collections::BTreeSet;
use std::ops::Range;

use anyhow::{Context as _, Result};
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};

/// An operator between two expressions.
#[derive(Debug)]
pub(crate) struct Infix {
    pub(crate) left: Range<usize>,
    pub(crate) operator: Range<usize>,
    pub(crate) right: Range<usize>,
    /// Whether it joins the conditions of an `if let`: no other operator can.
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
    /// Where its first statement begins.
    pub(crate) begin: usize,
    /// Whether it says what it returns by a trait alone: another value has another type.
    pub(crate) is_opaque: bool,
}

/// All of them, in bytes of the file; what holds others comes after them.
#[derive(Debug, Default)]
pub(crate) struct Places {
    pub(crate) infixes: Vec<Infix>,
    pub(crate) prefixes: Vec<Prefix>,
    pub(crate) arms: Vec<Arm>,
    pub(crate) literals: Vec<Literal>,
    pub(crate) bodies: Vec<Body>,
    /// What is evaluated by the compiler, where nothing can be asked.
    constants: Vec<Range<usize>>,
    /// Functions that the compiler may evaluate: they can be asked in if they are made ordinary ones.
    pub(crate) functions: Vec<Constant>,
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

    /// Whether nothing can be asked at a place. `kept` are functions that have to stay as they are.
    pub(crate) fn is_constant(&self, span: &Range<usize>, kept: &BTreeSet<String>) -> bool {
        let functions = self.functions.iter().filter(|function| kept.contains(&function.name));
        let mut all = self.constants.iter().chain(functions.map(|function| &function.body));
        all.any(|constant| constant.start <= span.start && span.end <= constant.end)
    }

    fn body(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let whole = block.span().byte_range();
        let first = block.stmts.first().map(|first| first.span().byte_range().start);
        let is_opaque = match &signature.output {
            syn::ReturnType::Default => false,
            syn::ReturnType::Type(_, returned) => Opaque::is(returned),
        };
        self.bodies.push(Body {
            begin: first.unwrap_or(whole.end.saturating_sub(1)),
            inside: whole.clone(),
            is_opaque,
        });
        if let Some(word) = &signature.constness {
            let (name, word) = (signature.ident.to_string(), word.span().byte_range());
            self.functions.push(Constant { name, word, body: whole });
        }
    }
}

/// Whether `impl` stands in a type.
#[derive(Default)]
struct Opaque(bool);

impl Opaque {
    fn is(returned: &syn::Type) -> bool {
        let mut opaque = Self::default();
        opaque.visit_type(returned);
        opaque.0
    }
}

impl Visit<'_> for Opaque {
    fn visit_type_impl_trait(&mut self, _: &syn::TypeImplTrait) {
        self.0 = true;
    }
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
        self.constants.push(constant.expr.span().byte_range());
    }

    fn visit_item_static(&mut self, constant: &'a syn::ItemStatic) {
        visit::visit_item_static(self, constant);
        self.constants.push(constant.expr.span().byte_range());
    }

    fn visit_impl_item_const(&mut self, constant: &'a syn::ImplItemConst) {
        visit::visit_impl_item_const(self, constant);
        self.constants.push(constant.expr.span().byte_range());
    }

    fn visit_type_array(&mut self, array: &'a syn::TypeArray) {
        visit::visit_type_array(self, array);
        self.constants.push(array.len.span().byte_range());
    }

    fn visit_expr_repeat(&mut self, repeat: &'a syn::ExprRepeat) {
        visit::visit_expr_repeat(self, repeat);
        self.constants.push(repeat.len.span().byte_range());
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

    // Patterns are no expressions: nothing can be asked in them.
    fn visit_pat(&mut self, _: &'a syn::Pat) {}
}
