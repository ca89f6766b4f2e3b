//! The words of SQL that a parsed statement stands for.

use sqlparser::ast;

/// The words of a term of `ORDER BY`.
pub(super) const fn order_words(ascending: Option<bool>, nulls_first: Option<bool>) -> &'static str {
    match (ascending, nulls_first) {
        (None, None) => "",
        (None, Some(true)) => " NULLS FIRST",
        (None, Some(false)) => " NULLS LAST",
        (Some(true), None) => " ASC",
        (Some(true), Some(true)) => " ASC NULLS FIRST",
        (Some(true), Some(false)) => " ASC NULLS LAST",
        (Some(false), None) => " DESC",
        (Some(false), Some(true)) => " DESC NULLS FIRST",
        (Some(false), Some(false)) => " DESC NULLS LAST",
    }
}

/// The words that combine two queries; `None`: this way is not possible.
pub(super) const fn combining_words(
    operator: ast::SetOperator,
    quantifier: ast::SetQuantifier,
) -> Option<&'static str> {
    use ast::{SetOperator as Op, SetQuantifier as All};
    match (operator, quantifier) {
        (Op::Union, All::None) => Some("UNION"),
        (Op::Union, All::All) => Some("UNION ALL"),
        (Op::Intersect, All::None) => Some("INTERSECT"),
        (Op::Except, All::None) => Some("EXCEPT"),
        (Op::Union | Op::Intersect | Op::Except | Op::Minus, _) => None,
    }
}
