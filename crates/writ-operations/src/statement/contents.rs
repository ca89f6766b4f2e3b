//! The columns of a result that hold ids of the scope: of its customer or its case.

use super::{
    CallArguments, Expression, Item, Name, QueryBody, Relation, ScopeColumns, Select, SelectQuery, Statement,
    Tables,
};
use crate::result::PersonalKind;

/// What a column holds of the scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScopeContent {
    /// Nothing.
    None,
    /// An id, as it is.
    Id(PersonalKind),
    /// A value that is made of an id, and may show it.
    Made,
}

impl ScopeContent {
    /// Joins the contents of two values, of which a column has one or the other.
    fn or(self, other: Self) -> Self {
        if self == other { self } else { Self::Made }
    }

    /// Returns the content of a value that is made of this one.
    const fn made(self) -> Self {
        match self {
            Self::None => Self::None,
            Self::Id(_) | Self::Made => Self::Made,
        }
    }
}

/// A relation by its name in a query.
struct Named<'a> {
    name: &'a str,
    columns: Columns<'a>,
}

enum Columns<'a> {
    Table(&'a ScopeColumns),
    Derived(Vec<(String, ScopeContent)>),
}

/// The relations of a query, and those around it.
struct Sight<'a> {
    relations: Vec<Named<'a>>,
    outer: Option<&'a Sight<'a>>,
}

/// Returns what each column of a result holds, in their order.
pub(crate) fn result_contents(statement: &Statement, tables: &Tables) -> Vec<ScopeContent> {
    match statement {
        Statement::Select(query) => body_contents(&query.body, tables, None),
        Statement::Update { table, returning, .. }
        | Statement::Delete { table, returning, .. }
        | Statement::Insert { table, returning, .. } => {
            let sight = Sight {
                relations: table_columns(table, &table.text, tables).into_iter().collect(),
                outer: None,
            };
            item_contents(returning, &sight, tables)
        }
    }
}

fn body_contents(body: &QueryBody, tables: &Tables, outer: Option<&Sight<'_>>) -> Vec<ScopeContent> {
    match body {
        QueryBody::Select(select) => select_contents(select, tables, outer),
        QueryBody::Combined { left, right, .. } => {
            let right = body_contents(right, tables, outer);
            let left = body_contents(left, tables, outer);
            left.into_iter().zip(right).map(|(left, right)| left.or(right)).collect()
        }
    }
}

fn select_contents(select: &Select, tables: &Tables, outer: Option<&Sight<'_>>) -> Vec<ScopeContent> {
    let relations = select
        .from
        .iter()
        .flat_map(|(first, joins)| std::iter::once(first).chain(joins.iter().map(|join| &join.relation)));
    let named = relations.filter_map(|relation| match relation {
        Relation::Table { name, alias } => {
            let shown = alias.as_ref().unwrap_or(name);
            table_columns(name, &shown.text, tables)
        }
        Relation::Derived { query, alias } => Some(Named {
            name: &alias.text,
            columns: Columns::Derived(derived_columns(query, tables, outer)),
        }),
    });
    let sight = Sight { relations: named.collect(), outer };
    item_contents(&select.items, &sight, tables)
}

fn table_columns<'a>(table: &Name, shown: &'a str, tables: &'a Tables) -> Option<Named<'a>> {
    tables.get(&table.text).map(|scope| Named { name: shown, columns: Columns::Table(scope) })
}

fn derived_columns(
    query: &SelectQuery,
    tables: &Tables,
    outer: Option<&Sight<'_>>,
) -> Vec<(String, ScopeContent)> {
    let names = query.body.first_select().items.iter().map(Item::column_name);
    names.zip(body_contents(&query.body, tables, outer)).collect()
}

fn item_contents(items: &[Item], sight: &Sight<'_>, tables: &Tables) -> Vec<ScopeContent> {
    items.iter().map(|item| sight.content_of(&item.value, tables)).collect()
}

impl Sight<'_> {
    fn content_of(&self, value: &Expression, tables: &Tables) -> ScopeContent {
        let of = |value: &Expression| self.content_of(value, tables);
        match value {
            Expression::Column { table, column } => self.find_column(table.as_ref(), &column.text),
            Expression::Nested(inner) => of(inner),
            Expression::Cast { operand, .. } => of(operand),
            Expression::Subquery(query) => {
                body_contents(&query.body, tables, Some(self)).first().copied().unwrap_or(ScopeContent::None)
            }
            Expression::Case { branches, otherwise, .. } => {
                let values = branches.iter().map(|(_, value)| value).chain(otherwise.as_deref());
                values.map(of).reduce(ScopeContent::or).unwrap_or(ScopeContent::None)
            }
            Expression::Unary { operand, .. } => of(operand).made(),
            // Whether it is so is no id.
            Expression::Binary { operator, .. } if !["+", "-", "*", "/", "%", "||"].contains(operator) => {
                ScopeContent::None
            }
            Expression::Binary { left, right, .. } => of(left).or(of(right)).made(),
            Expression::Call { function: "count", .. } => ScopeContent::None,
            Expression::Call { arguments: CallArguments::List(list), .. } => list
                .iter()
                .map(of)
                .fold(ScopeContent::None, |all, one| if one == all { all } else { ScopeContent::Made }),
            Expression::Call { arguments: CallArguments::Star, .. }
            | Expression::Number(_)
            | Expression::Text(_)
            | Expression::Word(_)
            | Expression::Parameter(_)
            | Expression::IsNull { .. }
            | Expression::Between { .. }
            | Expression::InList { .. }
            | Expression::InQuery { .. }
            | Expression::Exists { .. } => ScopeContent::None,
        }
    }

    /// Finds a column in the nearest relation that has it. What a table has beside its scope columns is not known here.
    fn find_column(&self, table: Option<&Name>, column: &str) -> ScopeContent {
        let seen = self
            .relations
            .iter()
            .filter(|one| table.is_none_or(|table| table.text.eq_ignore_ascii_case(one.name)));
        for one in seen {
            let content = match &one.columns {
                Columns::Table(scope) => table_content(scope, column),
                Columns::Derived(columns) => columns
                    .iter()
                    .find(|(name, _)| name.eq_ignore_ascii_case(column))
                    .map_or(ScopeContent::None, |(_, content)| *content),
            };
            if content != ScopeContent::None {
                return content;
            }
        }
        self.outer.map_or(ScopeContent::None, |outer| outer.find_column(table, column))
    }
}

fn table_content(scope: &ScopeColumns, column: &str) -> ScopeContent {
    if scope.customer.eq_ignore_ascii_case(column) {
        ScopeContent::Id(PersonalKind::Customer)
    } else if scope.case.as_ref().is_some_and(|case| case.eq_ignore_ascii_case(column)) {
        ScopeContent::Id(PersonalKind::Case)
    } else {
        ScopeContent::None
    }
}
