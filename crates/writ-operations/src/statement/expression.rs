//! The expressions of statements: an allowlist of operators, types and functions.

use sqlparser::ast;

use super::lower::{Lowering, RefusedSql};
use super::{CallArguments, Expression, Name};

/// The functions that a statement may call: none reads a file, waits, or sees another row than those it is given.
const FUNCTIONS: [&str; 26] = [
    "abs",
    "avg",
    "coalesce",
    "count",
    "current_date",
    "current_timestamp",
    "date",
    "date_trunc",
    "datetime",
    "instr",
    "julianday",
    "length",
    "lower",
    "ltrim",
    "max",
    "min",
    "mod",
    "now",
    "nullif",
    "round",
    "rtrim",
    "strftime",
    "sum",
    "to_char",
    "total",
    "upper",
];

/// The types that a statement may cast to.
const TYPES: [&str; 10] = [
    "BIGINT",
    "BOOLEAN",
    "DATE",
    "DOUBLE PRECISION",
    "INT",
    "INTEGER",
    "NUMERIC",
    "REAL",
    "TEXT",
    "TIMESTAMP",
];

/// The longest name, in bytes: PostgreSQL cuts longer ones, and two could become one.
const MAX_NAME_BYTES: usize = 63;

/// Returns true for a name that means the same with and without quotes in no database: plain letters, digits and `_`.
pub(crate) fn is_plain_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Takes an identifier as it is written, bare or in double quotes.
pub(crate) fn lower_name(name: &ast::Ident) -> Result<Name, RefusedSql> {
    let is_quoted = match name.quote_style {
        None => false,
        Some('"') => true,
        Some(_) => return Err(RefusedSql::new(format!("the name {name}"), "quote names with double quotes")),
    };
    let fits = !name.value.is_empty() && name.value.len() <= MAX_NAME_BYTES && !name.value.contains('\0');
    if !fits || (!is_quoted && !is_plain_name(&name.value)) {
        return Err(RefusedSql::new(
            format!("the name '{}'", name.value),
            "a name has letters, digits and _, or is quoted",
        ));
    }
    Ok(Name { text: name.value.clone(), is_quoted })
}

/// Takes a part of a dotted name.
pub(crate) fn lower_part(part: &ast::ObjectNamePart) -> Result<Name, RefusedSql> {
    match part {
        ast::ObjectNamePart::Identifier(name) => lower_name(name),
        ast::ObjectNamePart::Function(_) => Err(RefusedSql::new("a function as a name", "write the name")),
    }
}

/// Translates an expression.
pub(crate) fn lower_expression(
    lowering: &mut Lowering<'_>,
    expression: ast::Expr,
) -> Result<Expression, RefusedSql> {
    lowering.nested(|own| lower_inner(own, expression))
}

const fn choose_words(is_negated: bool, no: &'static str, yes: &'static str) -> &'static str {
    if is_negated { no } else { yes }
}

fn lower_box(own: &mut Lowering<'_>, expression: ast::Expr) -> Result<Box<Expression>, RefusedSql> {
    lower_expression(own, expression).map(Box::new)
}

// tidy: table
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the library's enum of all expressions; the rest is refused"
)]
fn lower_inner(own: &mut Lowering<'_>, expression: ast::Expr) -> Result<Expression, RefusedSql> {
    match expression {
        ast::Expr::Identifier(name) => Ok(Expression::Column { table: None, column: lower_name(&name)? }),
        ast::Expr::CompoundIdentifier(names) => match names.as_slice() {
            [table, column] => {
                Ok(Expression::Column { table: Some(lower_name(table)?), column: lower_name(column)? })
            }
            _ => Err(RefusedSql::new("a column with a schema", "write table.column")),
        },
        ast::Expr::Value(value) => lower_value(own, value.value),
        ast::Expr::Nested(inner) => Ok(Expression::Nested(lower_box(own, *inner)?)),
        ast::Expr::UnaryOp { op, expr } => {
            let operator = unary_operator(op)?;
            Ok(Expression::Unary { operator, operand: lower_box(own, *expr)? })
        }
        ast::Expr::BinaryOp { left, op, right } => {
            let operator = binary_operator(&op)?;
            Ok(Expression::Binary { left: lower_box(own, *left)?, operator, right: lower_box(own, *right)? })
        }
        ast::Expr::IsNull(operand) => {
            Ok(Expression::IsNull { operand: lower_box(own, *operand)?, words: " IS NULL" })
        }
        ast::Expr::IsNotNull(operand) => {
            Ok(Expression::IsNull { operand: lower_box(own, *operand)?, words: " IS NOT NULL" })
        }
        ast::Expr::Between { expr, negated, low, high } => {
            let (operand, low, high) =
                (lower_box(own, *expr)?, lower_box(own, *low)?, lower_box(own, *high)?);
            Ok(Expression::Between {
                operand,
                words: choose_words(negated, " NOT BETWEEN ", " BETWEEN "),
                low,
                high,
            })
        }
        ast::Expr::Like { negated, any: false, expr, pattern, escape_char: None } => {
            let (left, right) = (lower_box(own, *expr)?, lower_box(own, *pattern)?);
            Ok(Expression::Binary { left, operator: choose_words(negated, "NOT LIKE", "LIKE"), right })
        }
        ast::Expr::InList { expr, list, negated } => {
            let (operand, list) = (lower_box(own, *expr)?, own.expressions(list)?);
            Ok(Expression::InList { operand, words: choose_words(negated, " NOT IN ", " IN "), list })
        }
        ast::Expr::InSubquery { expr, subquery, negated } => {
            let (operand, query) = (lower_box(own, *expr)?, Box::new(own.query(*subquery)?));
            Ok(Expression::InQuery { operand, words: choose_words(negated, " NOT IN ", " IN "), query })
        }
        ast::Expr::Exists { subquery, negated } => {
            let query = Box::new(own.query(*subquery)?);
            Ok(Expression::Exists { words: choose_words(negated, "NOT EXISTS ", "EXISTS "), query })
        }
        ast::Expr::Subquery(query) => Ok(Expression::Subquery(Box::new(own.query(*query)?))),
        ast::Expr::Case { operand, conditions, else_result, .. } => {
            let operand = operand.map(|operand| lower_box(own, *operand)).transpose()?;
            let mut branches = Vec::new();
            for branch in conditions {
                branches
                    .push((lower_expression(own, branch.condition)?, lower_expression(own, branch.result)?));
            }
            let otherwise = else_result.map(|otherwise| lower_box(own, *otherwise)).transpose()?;
            Ok(Expression::Case { operand, branches, otherwise })
        }
        ast::Expr::Cast { kind: ast::CastKind::Cast, expr, data_type, format: None } => {
            let shown = data_type.to_string();
            let kind = TYPES.into_iter().find(|kind| *kind == shown);
            let kind = kind.ok_or_else(|| {
                RefusedSql::new(
                    format!("CAST to {shown}"),
                    "INTEGER, BIGINT, NUMERIC, REAL, TEXT, BOOLEAN, DATE and TIMESTAMP are possible",
                )
            })?;
            Ok(Expression::Cast { operand: lower_box(own, *expr)?, kind })
        }
        ast::Expr::Function(function) => lower_call(own, function),
        _ => Err(RefusedSql::new(
            "an expression that operations cannot have",
            "use columns, values, operators, CASE, CAST and simple functions",
        )),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the library's enum; the rest is refused")]
fn lower_value(own: &mut Lowering<'_>, value: ast::Value) -> Result<Expression, RefusedSql> {
    match value {
        ast::Value::Number(text, false) => {
            let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
            if is_plain {
                Ok(Expression::Number(text))
            } else {
                Err(RefusedSql::new("this number", "write digits"))
            }
        }
        // Where a database takes it for an escape, a backslash moves the end of the text.
        ast::Value::SingleQuotedString(text) if !text.contains(['\\', '\0']) => Ok(Expression::Text(text)),
        ast::Value::Boolean(true) => Ok(Expression::Word("TRUE")),
        ast::Value::Boolean(false) => Ok(Expression::Word("FALSE")),
        ast::Value::Null => Ok(Expression::Word("NULL")),
        ast::Value::Placeholder(text) => match text.strip_prefix(':') {
            Some(name) if is_plain_name(name) => {
                own.parameters.push(name.to_owned());
                Ok(Expression::Parameter(name.to_owned()))
            }
            _ => Err(RefusedSql::new(format!("the placeholder '{text}'"), "name a parameter: :NAME")),
        },
        _ => Err(RefusedSql::new(
            "this kind of value",
            "write numbers, and text in single quotes without backslashes",
        )),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the library's enum; the rest is refused")]
fn unary_operator(operator: ast::UnaryOperator) -> Result<&'static str, RefusedSql> {
    match operator {
        ast::UnaryOperator::Plus => Ok("+"),
        ast::UnaryOperator::Minus => Ok("-"),
        ast::UnaryOperator::Not => Ok("NOT"),
        other => Err(RefusedSql::new(format!("the operator {other}"), "it is not possible here")),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the library's enum; the rest is refused")]
fn binary_operator(operator: &ast::BinaryOperator) -> Result<&'static str, RefusedSql> {
    use ast::BinaryOperator as Op;
    match operator {
        Op::Plus => Ok("+"),
        Op::Minus => Ok("-"),
        Op::Multiply => Ok("*"),
        Op::Divide => Ok("/"),
        Op::Modulo => Ok("%"),
        Op::StringConcat => Ok("||"),
        Op::Gt => Ok(">"),
        Op::Lt => Ok("<"),
        Op::GtEq => Ok(">="),
        Op::LtEq => Ok("<="),
        Op::Eq => Ok("="),
        Op::NotEq => Ok("<>"),
        Op::And => Ok("AND"),
        Op::Or => Ok("OR"),
        other => Err(RefusedSql::new(format!("the operator {other}"), "it is not possible here")),
    }
}

fn lower_call(own: &mut Lowering<'_>, function: ast::Function) -> Result<Expression, RefusedSql> {
    let shown = function.name.to_string();
    let refused = || {
        RefusedSql::new(
            format!("the function '{shown}'"),
            "only simple functions of values are possible, such as lower, coalesce, count and sum",
        )
    };
    let lower = shown.to_ascii_lowercase();
    let known = FUNCTIONS.into_iter().find(|known| *known == lower).ok_or_else(refused)?;
    if function.over.is_some() || function.filter.is_some() || !function.within_group.is_empty() {
        return Err(RefusedSql::new("a window or a filter of a function", "it is not possible here"));
    }
    match function.args {
        ast::FunctionArguments::None => match known {
            "current_date" => Ok(Expression::Word("CURRENT_DATE")),
            "current_timestamp" => Ok(Expression::Word("CURRENT_TIMESTAMP")),
            _ => Err(refused()),
        },
        ast::FunctionArguments::Subquery(_) => Err(refused()),
        ast::FunctionArguments::List(list) => {
            let is_distinct = matches!(list.duplicate_treatment, Some(ast::DuplicateTreatment::Distinct));
            let mut arguments = Vec::new();
            for argument in list.args {
                match argument {
                    ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(value)) => {
                        arguments.push(lower_expression(own, value)?);
                    }
                    ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Wildcard) if known == "count" => {
                        return Ok(Expression::Call {
                            function: known,
                            is_distinct,
                            arguments: CallArguments::Star,
                        });
                    }
                    ast::FunctionArg::Unnamed(_)
                    | ast::FunctionArg::Named { .. }
                    | ast::FunctionArg::ExprNamed { .. } => return Err(refused()),
                }
            }
            Ok(Expression::Call { function: known, is_distinct, arguments: CallArguments::List(arguments) })
        }
    }
}
