//! The part of SQL that operations may use.
//!
//! A statement is parsed, translated into the types below, and written again from them: what has no type here
//! cannot be in a statement that runs. [`lower`] translates, [`render`] writes, with the scope of the request
//! added to every table.

pub(crate) mod contents;

pub(crate) mod expression;

pub(crate) mod lower;

pub(crate) mod render;

mod words;

use std::collections::BTreeMap;

/// The columns of a table that name the customer and the case of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScopeColumns {
    pub(crate) customer: String,
    pub(crate) case: Option<String>,
}

/// The scope columns of the tables that a statement may name.
pub(crate) type Tables = BTreeMap<String, ScopeColumns>;

/// An identifier, as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) text: String,
    pub(crate) is_quoted: bool,
}

/// One statement.
#[derive(Clone, Debug)]
pub(crate) enum Statement {
    Select(SelectQuery),
    Update { table: Name, set: Vec<(Name, Expression)>, filter: Option<Expression>, returning: Vec<Item> },
    Delete { table: Name, filter: Option<Expression>, returning: Vec<Item> },
    Insert { table: Name, columns: Vec<Name>, source: InsertSource, returning: Vec<Item> },
}

/// The rows that are inserted.
#[derive(Clone, Debug)]
pub(crate) enum InsertSource {
    Rows(Vec<Vec<Expression>>),
    Select(Box<SelectQuery>),
}

/// A query with its order and bounds.
#[derive(Clone, Debug)]
pub(crate) struct SelectQuery {
    pub(crate) body: QueryBody,
    pub(crate) order: Vec<OrderTerm>,
    pub(crate) limit: Option<Expression>,
    pub(crate) offset: Option<Expression>,
}

/// A `SELECT`, or two that are combined.
#[derive(Clone, Debug)]
pub(crate) enum QueryBody {
    Select(Box<Select>),
    Combined { operator: &'static str, left: Box<Self>, right: Box<Self> },
}

/// One `SELECT`.
#[derive(Clone, Debug)]
pub(crate) struct Select {
    pub(crate) is_distinct: bool,
    pub(crate) items: Vec<Item>,
    pub(crate) from: Vec<(Relation, Vec<JoinPart>)>,
    pub(crate) filter: Option<Expression>,
    pub(crate) group: Vec<Expression>,
    pub(crate) having: Option<Expression>,
}

/// A column of a result.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) value: Expression,
    pub(crate) alias: Option<Name>,
}

/// A table or a subquery that rows come from.
#[derive(Clone, Debug)]
pub(crate) enum Relation {
    Table { name: Name, alias: Option<Name> },
    Derived { query: Box<SelectQuery>, alias: Name },
}

/// A relation that is joined.
#[derive(Clone, Debug)]
pub(crate) struct JoinPart {
    pub(crate) words: &'static str,
    pub(crate) relation: Relation,
    pub(crate) on: Option<Expression>,
    pub(crate) using: Vec<Name>,
}

/// A term of `ORDER BY`.
#[derive(Clone, Debug)]
pub(crate) struct OrderTerm {
    pub(crate) value: Expression,
    pub(crate) words: &'static str,
}

/// An expression.
#[derive(Clone, Debug)]
pub(crate) enum Expression {
    Column {
        table: Option<Name>,
        column: Name,
    },
    Number(String),
    Text(String),
    /// `TRUE`, `FALSE`, `NULL`, `CURRENT_TIMESTAMP` and the like.
    Word(&'static str),
    Parameter(String),
    Unary {
        operator: &'static str,
        operand: Box<Self>,
    },
    Binary {
        left: Box<Self>,
        operator: &'static str,
        right: Box<Self>,
    },
    Nested(Box<Self>),
    IsNull {
        operand: Box<Self>,
        words: &'static str,
    },
    Between {
        operand: Box<Self>,
        words: &'static str,
        low: Box<Self>,
        high: Box<Self>,
    },
    InList {
        operand: Box<Self>,
        words: &'static str,
        list: Vec<Self>,
    },
    InQuery {
        operand: Box<Self>,
        words: &'static str,
        query: Box<SelectQuery>,
    },
    Exists {
        words: &'static str,
        query: Box<SelectQuery>,
    },
    Subquery(Box<SelectQuery>),
    Case {
        operand: Option<Box<Self>>,
        branches: Vec<(Self, Self)>,
        otherwise: Option<Box<Self>>,
    },
    Cast {
        operand: Box<Self>,
        kind: &'static str,
    },
    Call {
        function: &'static str,
        is_distinct: bool,
        arguments: CallArguments,
    },
}

/// The arguments of a function.
#[derive(Clone, Debug)]
pub(crate) enum CallArguments {
    /// `count(*)`.
    Star,
    List(Vec<Expression>),
}

impl Statement {
    /// The names of the result's columns, in their order.
    pub(crate) fn column_names(&self) -> Vec<String> {
        match self {
            Self::Select(query) => query.body.first_select().items.iter().map(Item::column_name).collect(),
            Self::Update { returning, .. }
            | Self::Delete { returning, .. }
            | Self::Insert { returning, .. } => returning.iter().map(Item::column_name).collect(),
        }
    }

    /// Returns true if it changes nothing.
    pub(crate) const fn is_read(&self) -> bool {
        matches!(self, Self::Select(_))
    }
}

impl QueryBody {
    /// The `SELECT` that names the columns of the result.
    pub(crate) fn first_select(&self) -> &Select {
        match self {
            Self::Select(select) => select,
            Self::Combined { left, .. } => left.first_select(),
        }
    }
}

impl Item {
    /// The name in the result. Lowering refuses items without one.
    pub(crate) fn column_name(&self) -> String {
        match (&self.alias, &self.value) {
            (Some(alias), _) => alias.text.clone(),
            (None, Expression::Column { column, .. }) => column.text.clone(),
            (None, _) => String::new(),
        }
    }
}
