//! Errors that are made without a word of what to do about them.

use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{Expr, ExprCall, ExprClosure, ExprMethodCall, ExprTuple, ImplItemFn, ItemFn, ItemMod};

use super::{exit, is_code, is_test, text};

/// The functions that make errors, with the number of arguments at which the last is the hint; a `Report` has
/// none of its own.
const MAKERS: [(&str, usize); 3] = [("Report", usize::MAX), ("Failure", 4), ("Refusal", 4)];
/// The same for closures that take an exit and a code.
const CLOSURE: usize = 3;

/// The lines of a file on which an error is made without a hint.
pub(super) fn lines(file: &syn::File) -> Vec<usize> {
    let mut bare = Bare(Vec::new());
    bare.visit_file(file);
    bare.0
}

struct Bare(Vec<usize>);

impl Bare {
    fn find(&mut self, at: proc_macro2::Span) {
        self.0.push(at.start().line);
    }

    /// An error with a hint added is in order; only its parts are checked.
    fn hinted(&mut self, receiver: &Expr) {
        if let Expr::MethodCall(call) = receiver {
            call.args.iter().for_each(|argument| self.visit_expr(argument));
            self.hinted(&call.receiver);
        } else if let Expr::Call(call) = receiver {
            call.args.iter().for_each(|argument| self.visit_expr(argument));
        } else {
            self.visit_expr(receiver);
        }
    }
}

/// Returns the number of arguments with which this call makes an error with a hint, if it makes one.
fn maker(call: &ExprCall) -> Option<usize> {
    if let Expr::Path(path) = call.func.as_ref() {
        let names: Vec<String> = path.path.segments.iter().map(|part| part.ident.to_string()).collect();
        if let [.., owner, name] = names.as_slice()
            && name == "new"
        {
            return MAKERS.iter().find(|(maker, _)| maker == owner).map(|(_, hinted)| *hinted);
        }
    }
    let mut arguments = call.args.iter();
    let told =
        exit(arguments.next()?).is_some() && text(arguments.next()?).is_some_and(|text| is_code(&text));
    told.then_some(CLOSURE)
}

fn is_empty(expression: &Expr) -> bool {
    text(expression).is_some_and(|text| text.is_empty())
}

impl<'ast> Visit<'ast> for Bare {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    /// A closure that makes errors is looked at where it is called.
    fn visit_expr_closure(&mut self, closure: &'ast ExprClosure) {
        let passed_on = matches!(closure.body.as_ref(), Expr::Call(call)
            if maker(call).is_some() && call.args.first().is_none_or(|first| exit(first).is_none()));
        if !passed_on {
            self.visit_expr(&closure.body);
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        if call.method != "with_hint" {
            return visit::visit_expr_method_call(self, call);
        }
        if call.args.iter().any(is_empty) {
            self.find(call.method.span());
        }
        call.args.iter().for_each(|argument| self.visit_expr(argument));
        self.hinted(&call.receiver);
    }

    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        if let Some(hinted) = maker(call)
            && (call.args.len() < hinted || call.args.last().is_some_and(is_empty))
        {
            self.find(call.span());
        }
        visit::visit_expr_call(self, call);
    }

    /// `(Exit::X, "code", "hint")`, in any order.
    fn visit_expr_tuple(&mut self, tuple: &'ast ExprTuple) {
        let code = tuple.elems.iter().any(|item| text(item).is_some_and(|text| is_code(&text)));
        if code && tuple.elems.iter().any(is_empty) {
            self.find(tuple.span());
        }
        visit::visit_expr_tuple(self, tuple);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_without_a_hint_is_found_and_one_with_a_hint_is_not() {
        let code = r#"
            fn a() { Report::new(Exit::Denied, "a.call", text).with_inside(x).with_hint("Do this.") }
            fn b() { Failure::new(Exit::Usage, "b.call", "text", "do that") }
            fn c() { let plain = |exit, code| Report::new(exit, code, "text"); plain(Exit::Usage, "c.call").with_hint(h) }
            fn d() { Report::new(Exit::Denied, "d.call", text) }
            fn e() { Failure::new(Exit::Usage, "e.call", "text", "") }
            fn f() { let plain = |exit, code| Report::new(exit, code, "text"); plain(Exit::Usage, "f.call") }
            fn g() { Report::new(Exit::Denied, "g.call", text).with_hint("") }
            fn h() { (Exit::Bug, "h.call", "") }
            fn k() { told(Exit::Usage, "k.call", "do that") }
            fn l() { told(Exit::Usage, "l.call", "") }
            fn i() { Refusal::new(StatusCode::FORBIDDEN, "i.call", text) }
            #[test] fn j() { Report::new(Exit::Bug, "j.test", "") }
        "#;
        let file = syn::parse_file(code).expect("parses");
        assert_eq!(lines(&file), [5, 6, 7, 8, 9, 11, 12]);
    }
}
