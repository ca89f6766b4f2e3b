//! Every way to make one small mistake in a unit.

use super::BugFamily;
use super::code::{BinaryOp, Cmp, Expr, Extreme, Stmt, Unit};

/// Wrong keys that are easily written for right ones.
const NEAR_KEYS: &[(&str, &str)] = &[
    ("width", "breadth"),
    ("height", "length"),
    ("depth", "deep"),
    ("price", "cost"),
    ("quantity", "count"),
    ("deposit", "refund"),
    ("adults", "guests"),
    ("children", "kids"),
];

/// The units that differ from this one in one mistake.
pub(super) fn variants(unit: &Unit) -> Vec<(BugFamily, Unit)> {
    let mut out = Vec::new();
    for (n, function) in unit.functions.iter().enumerate() {
        for (family, body) in in_body(&function.body) {
            let mut wrong = unit.clone();
            if let Some(function) = wrong.functions.get_mut(n) {
                function.body = body;
            }
            out.push((family, wrong));
        }
    }
    for n in 0..unit.constants.len() {
        let mut wrong = unit.clone();
        if let Some(constant) = wrong.constants.get_mut(n) {
            constant.value += (constant.value / 10).max(1);
        }
        out.push((BugFamily::WrongConstant, wrong));
    }
    out
}

fn in_body(body: &[Stmt]) -> Vec<(BugFamily, Vec<Stmt>)> {
    let mut out = Vec::new();
    for (n, stmt) in body.iter().enumerate() {
        for (family, replacement) in in_stmt(stmt) {
            let (before, after) = (body.iter().take(n), body.iter().skip(n + 1));
            out.push((family, before.cloned().chain(replacement).chain(after.cloned()).collect()));
        }
    }
    out
}

/// A statement's wrong forms; none at all where it was forgotten.
fn in_stmt(stmt: &Stmt) -> Vec<(BugFamily, Option<Stmt>)> {
    let mut out = Vec::new();
    let mut with = |variants: Vec<(BugFamily, Stmt)>| {
        out.extend(variants.into_iter().map(|(family, stmt)| (family, Some(stmt))));
    };
    match stmt {
        Stmt::Start(name, expr) => with(in_expr(expr, |expr| Stmt::Start(name, expr))),
        Stmt::Let(name, expr) => with(in_expr(expr, |expr| Stmt::Let(name, expr))),
        Stmt::Add(name, expr) => with(in_expr(expr, |expr| Stmt::Add(name, expr))),
        Stmt::Return(expr) => with(in_expr(expr, Stmt::Return)),
        Stmt::Each { var, list, body } => {
            let wrap = |body| Stmt::Each { var, list, body };
            with(in_body(body).into_iter().map(|(family, body)| (family, wrap(body))).collect());
        }
        Stmt::Count { var, to, inclusive, body } => {
            let count = |inclusive, body| Stmt::Count { var, to: to.clone(), inclusive, body };
            with(vec![(BugFamily::OffByOne, count(!inclusive, body.clone()))]);
            with(in_body(body).into_iter().map(|(family, body)| (family, count(*inclusive, body))).collect());
        }
        Stmt::If(cond, then) => {
            let wrong = match cond.cmp {
                Cmp::Less => Some(Cmp::AtMost),
                Cmp::AtMost => Some(Cmp::Less),
                Cmp::More => Some(Cmp::AtLeast),
                Cmp::AtLeast => Some(Cmp::More),
                Cmp::Equal => None,
            };
            if let Some(cmp) = wrong {
                let mut cond = cond.clone();
                cond.cmp = cmp;
                with(vec![(BugFamily::OffByOne, Stmt::If(cond, then.clone()))]);
            }
            if let [Stmt::Return(Expr::Int(value))] = then.as_slice()
                && *value > 0
            {
                let wrong = vec![Stmt::Return(Expr::Int(value + 7))];
                with(vec![(BugFamily::WrongConstant, Stmt::If(cond.clone(), wrong))]);
            }
            with(
                in_body(then)
                    .into_iter()
                    .map(|(family, then)| (family, Stmt::If(cond.clone(), then)))
                    .collect(),
            );
            if matches!(cond.right, Expr::Text(_)) {
                out.push((BugFamily::MissingBranch, None));
            }
        }
    }
    out
}

fn in_expr<T>(expr: &Expr, wrap: impl Fn(Expr) -> T) -> Vec<(BugFamily, T)> {
    expressions(expr).into_iter().map(|(family, expr)| (family, wrap(expr))).collect()
}

fn expressions(expr: &Expr) -> Vec<(BugFamily, Expr)> {
    let mut out = Vec::new();
    match expr {
        Expr::Int(_) | Expr::Text(_) | Expr::Var(_) | Expr::Const(_) | Expr::Len(_) => {}
        Expr::Key(record, key) => {
            if let Some((_, wrong)) = NEAR_KEYS.iter().find(|(right, _)| right == key) {
                out.push((BugFamily::WrongKey, Expr::Key(record, wrong)));
            }
        }
        Expr::Bin(op, left, right) => {
            let wrong = match op {
                BinaryOp::Add => Some(BinaryOp::Sub),
                BinaryOp::Sub | BinaryOp::Mul => Some(BinaryOp::Add),
                BinaryOp::Div => None,
            };
            out.extend(
                wrong.map(|op| (BugFamily::WrongOperator, Expr::Bin(op, left.clone(), right.clone()))),
            );
            out.extend(in_expr(left, |left| Expr::Bin(*op, Box::new(left), right.clone())));
            out.extend(in_expr(right, |right| Expr::Bin(*op, left.clone(), Box::new(right))));
        }
        Expr::Pick(extreme, left, right) => {
            let wrong = match extreme {
                Extreme::Least => Extreme::Greatest,
                Extreme::Greatest => Extreme::Least,
            };
            out.push((BugFamily::WrongOperator, Expr::Pick(wrong, left.clone(), right.clone())));
            out.extend(in_expr(left, |left| Expr::Pick(*extreme, Box::new(left), right.clone())));
            out.extend(in_expr(right, |right| Expr::Pick(*extreme, left.clone(), Box::new(right))));
        }
        Expr::Call(name, arguments) => {
            if let [first, second] = arguments.as_slice() {
                let swapped = vec![second.clone(), first.clone()];
                out.push((BugFamily::SwappedArguments, Expr::Call(name.clone(), swapped)));
            }
        }
    }
    out
}
