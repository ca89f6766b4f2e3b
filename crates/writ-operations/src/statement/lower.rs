//! Translates a parsed statement into the types of [`super`]. What they have no place for is refused.

use sqlparser::ast;
use sqlparser::dialect::GenericDialect;
use sqlparser::parser::Parser;

use super::expression::{lower_expression, lower_name, lower_part};
use super::render::{OWN_PREFIX, render_declared};
use super::words::{combining_words, order_words};
use super::{
    Expression, InsertSource, Item, JoinPart, Name, OrderTerm, QueryBody, Relation, Select, SelectQuery,
    Statement, Tables,
};

/// The longest statement, in bytes.
pub(crate) const MAX_STATEMENT_BYTES: usize = 16 * 1024;
/// The deepest nesting of expressions and subqueries.
const MAX_NESTING: usize = 32;

/// The reason why a statement is none that an operation may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RefusedSql {
    pub(crate) what: String,
    pub(crate) hint: &'static str,
}

impl RefusedSql {
    pub(crate) fn new(what: impl Into<String>, hint: &'static str) -> Self {
        Self { what: what.into(), hint }
    }
}

/// The state of a translation: the tables, and the names that were found.
#[derive(Debug)]
pub(crate) struct Lowering<'a> {
    tables: &'a Tables,
    /// The parameters that it names, in the order of their places.
    pub(crate) parameters: Vec<String>,
    /// The tables that it names.
    pub(crate) used: Vec<String>,
    depth: usize,
}

/// A statement with the names that it uses.
#[derive(Clone, Debug)]
pub(crate) struct Lowered {
    pub(crate) statement: Statement,
    pub(crate) parameters: Vec<String>,
    pub(crate) used: Vec<String>,
}

/// Parses one statement.
pub(crate) fn parse_statement(sql: &str, tables: &Tables) -> Result<Lowered, RefusedSql> {
    if sql.len() > MAX_STATEMENT_BYTES {
        return Err(RefusedSql::new("the statement is too long", "a statement has 16 KiB at most"));
    }
    let parsed = parse_one(sql)?;
    let shown = parsed.to_string();
    let mut lowering = Lowering { tables, parameters: Vec::new(), used: Vec::new(), depth: 0 };
    let statement = lowering.statement(parsed)?;
    // Nothing may be missing: what was understood, written and read again, must be what was declared.
    let again = parse_one(&render_declared(&statement)).map(|again| again.to_string());
    // Functions are written in lower case; nothing else differs.
    if !again.is_ok_and(|again| again.eq_ignore_ascii_case(&shown)) {
        return Err(RefusedSql::new(
            "a part of the statement is not supported",
            "write it with plain SELECT, JOIN, WHERE, GROUP BY and ORDER BY",
        ));
    }
    let names = statement.column_names();
    let mut sorted = names.clone();
    sorted.sort();
    sorted.dedup();
    if sorted.len() != names.len() {
        return Err(RefusedSql::new(
            "two columns of the result have the same name",
            "name one of them with AS",
        ));
    }
    Ok(Lowered { statement, parameters: lowering.parameters, used: lowering.used })
}

fn parse_one(sql: &str) -> Result<ast::Statement, RefusedSql> {
    let parsed = Parser::new(&GenericDialect {}).with_recursion_limit(MAX_NESTING * 2).try_with_sql(sql);
    let mut parsed = parsed.and_then(|mut parser| parser.parse_statements()).map_err(|why| {
        RefusedSql::new(format!("it is no SQL: {why}"), "a statement is one SELECT, INSERT, UPDATE or DELETE")
    })?;
    match (parsed.pop(), parsed.is_empty()) {
        (Some(one), true) => Ok(one),
        (None, _) => {
            Err(RefusedSql::new("it is empty", "a statement is one SELECT, INSERT, UPDATE or DELETE"))
        }
        (Some(_), false) => Err(RefusedSql::new(
            "it is more than one statement",
            "an operation has one; declare another operation for the other",
        )),
    }
}

impl Lowering<'_> {
    fn statement(&mut self, parsed: ast::Statement) -> Result<Statement, RefusedSql> {
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "the library's enum of all statements; the rest is refused"
        )]
        match parsed {
            ast::Statement::Query(query) => Ok(Statement::Select(self.query(*query)?)),
            ast::Statement::Update { table, assignments, from, selection, returning, or, limit } => {
                if from.is_some() || or.is_some() || limit.is_some() || !table.joins.is_empty() {
                    return Err(RefusedSql::new(
                        "an UPDATE has more than SET, WHERE and RETURNING",
                        "read other tables with a subquery in WHERE or SET",
                    ));
                }
                let table = self.target(table.relation)?;
                let mut set = Vec::new();
                for assignment in assignments {
                    set.push(self.assignment(&table, assignment)?);
                }
                let filter = self.optional(selection)?;
                Ok(Statement::Update { table, set, filter, returning: self.returning(returning)? })
            }
            ast::Statement::Delete(delete) => self.delete(delete),
            ast::Statement::Insert(insert) => self.insert(insert),
            _ => Err(RefusedSql::new(
                "it is no SELECT, INSERT, UPDATE or DELETE",
                "other statements are not possible",
            )),
        }
    }

    fn delete(&mut self, delete: ast::Delete) -> Result<Statement, RefusedSql> {
        let ast::FromTable::WithFromKeyword(mut from) = delete.from else {
            return Err(RefusedSql::new("a DELETE without FROM", "write DELETE FROM table"));
        };
        let (Some(table), true) = (from.pop(), from.is_empty()) else {
            return Err(RefusedSql::new(
                "a DELETE from more than one table",
                "declare one operation for each",
            ));
        };
        if !table.joins.is_empty() || delete.using.is_some() || !delete.tables.is_empty() {
            return Err(RefusedSql::new("a DELETE that joins", "read other tables with a subquery in WHERE"));
        }
        let table = self.target(table.relation)?;
        let filter = self.optional(delete.selection)?;
        Ok(Statement::Delete { table, filter, returning: self.returning(delete.returning)? })
    }

    fn insert(&mut self, insert: ast::Insert) -> Result<Statement, RefusedSql> {
        // Both would write over the row of another customer with the same key.
        if insert.on.is_some() || insert.or.is_some() || insert.replace_into {
            return Err(RefusedSql::new(
                "an INSERT that replaces or updates rows",
                "a row of another customer could be the one; declare an UPDATE",
            ));
        }
        let ast::TableObject::TableName(name) = insert.table else {
            return Err(RefusedSql::new("an INSERT into a function", "name a table"));
        };
        if insert.table_alias.is_some() {
            return Err(RefusedSql::new("an INSERT with an alias", "leave the alias out"));
        }
        let table = self.table_name(&name)?;
        if insert.columns.is_empty() {
            return Err(RefusedSql::new(
                "an INSERT without column names",
                "name them: INSERT INTO table (a, b) VALUES …",
            ));
        }
        let mut columns = Vec::new();
        for column in &insert.columns {
            let column = lower_name(column)?;
            self.refuse_scope_column(&table, &column)?;
            columns.push(column);
        }
        let Some(query) = insert.source else {
            return Err(RefusedSql::new("an INSERT without values", "write VALUES (…) or SELECT …"));
        };
        let width = columns.len();
        let source = self.insert_source(*query, width)?;
        Ok(Statement::Insert { table, columns, source, returning: self.returning(insert.returning)? })
    }

    fn insert_source(&mut self, query: ast::Query, width: usize) -> Result<InsertSource, RefusedSql> {
        let uneven = || {
            RefusedSql::new(
                "an INSERT whose values are not as many as its columns",
                "give each column one value",
            )
        };
        if let ast::SetExpr::Values(values) = *query.body {
            let mut rows = Vec::new();
            for row in values.rows {
                if row.len() != width {
                    return Err(uneven());
                }
                rows.push(self.expressions(row)?);
            }
            return Ok(InsertSource::Rows(rows));
        }
        let query = self.query(query)?;
        match &query.body {
            QueryBody::Select(select) if select.items.len() == width => {
                Ok(InsertSource::Select(Box::new(query)))
            }
            QueryBody::Select(_) => Err(uneven()),
            QueryBody::Combined { .. } => {
                Err(RefusedSql::new("an INSERT of combined queries", "declare one INSERT for each"))
            }
        }
    }

    fn assignment(
        &mut self,
        table: &Name,
        assignment: ast::Assignment,
    ) -> Result<(Name, Expression), RefusedSql> {
        let ast::AssignmentTarget::ColumnName(name) = assignment.target else {
            return Err(RefusedSql::new("SET of several columns at once", "set each column alone"));
        };
        let column = single_name(&name)?;
        // A row that is given to another customer would leave the scope.
        self.refuse_scope_column(table, &column)?;
        Ok((column, lower_expression(self, assignment.value)?))
    }

    fn refuse_scope_column(&self, table: &Name, column: &Name) -> Result<(), RefusedSql> {
        let Some(scope) = self.tables.get(&table.text) else { return Ok(()) };
        let is = |own: &String| own.eq_ignore_ascii_case(&column.text);
        if is(&scope.customer) || scope.case.as_ref().is_some_and(is) {
            let what = format!("it sets the scope column '{}'", column.text);
            return Err(RefusedSql::new(what, "leave it out: the proxy sets scope columns itself"));
        }
        Ok(())
    }

    fn returning(&mut self, returning: Option<Vec<ast::SelectItem>>) -> Result<Vec<Item>, RefusedSql> {
        let items = self.items(returning.unwrap_or_default())?;
        if items.iter().all(|item| matches!(item.value, Expression::Column { .. })) {
            Ok(items)
        } else {
            Err(RefusedSql::new("RETURNING of more than columns", "return columns of the table"))
        }
    }

    /// The table that a statement changes.
    fn target(&mut self, relation: ast::TableFactor) -> Result<Name, RefusedSql> {
        match self.relation(relation)? {
            Relation::Table { name, alias: None } => Ok(name),
            Relation::Table { .. } | Relation::Derived { .. } => {
                Err(RefusedSql::new("a changed table with an alias", "name the table itself"))
            }
        }
    }

    /// A declared table.
    fn table_name(&mut self, name: &ast::ObjectName) -> Result<Name, RefusedSql> {
        let name = single_name(name)?;
        if !self.tables.contains_key(&name.text) {
            return Err(RefusedSql::new(
                format!("the table '{}' has no scope column", name.text),
                "declare it, spelled as here: tables.NAME = { customer = \"COLUMN\" }",
            ));
        }
        if !self.used.contains(&name.text) {
            self.used.push(name.text.clone());
        }
        Ok(name)
    }

    /// Goes one level deeper.
    pub(crate) fn nested<T>(
        &mut self,
        lower: impl FnOnce(&mut Self) -> Result<T, RefusedSql>,
    ) -> Result<T, RefusedSql> {
        if self.depth >= MAX_NESTING {
            return Err(RefusedSql::new("it is nested too deeply", "32 levels are possible"));
        }
        self.depth += 1;
        let lowered = lower(self);
        self.depth -= 1;
        lowered
    }

    pub(crate) fn query(&mut self, query: ast::Query) -> Result<SelectQuery, RefusedSql> {
        if query.with.is_some() {
            return Err(RefusedSql::new(
                "it has a WITH",
                "a name of it could stand for a table; write a subquery in FROM",
            ));
        }
        self.nested(|own| {
            let body = own.body(*query.body)?;
            let mut order = Vec::new();
            if let Some(by) = query.order_by {
                let ast::OrderByKind::Expressions(terms) = by.kind else {
                    return Err(RefusedSql::new("ORDER BY ALL", "name the columns"));
                };
                for term in terms {
                    let words = order_words(term.options.asc, term.options.nulls_first);
                    order.push(OrderTerm { value: lower_expression(own, term.expr)?, words });
                }
            }
            let (limit, offset) = match query.limit_clause {
                None => (None, None),
                Some(ast::LimitClause::LimitOffset { limit, offset, .. }) => {
                    (own.optional(limit)?, own.optional(offset.map(|offset| offset.value))?)
                }
                Some(ast::LimitClause::OffsetCommaLimit { .. }) => {
                    return Err(RefusedSql::new("LIMIT with a comma", "write LIMIT n OFFSET m"));
                }
            };
            Ok(SelectQuery { body, order, limit, offset })
        })
    }

    fn body(&mut self, body: ast::SetExpr) -> Result<QueryBody, RefusedSql> {
        #[expect(clippy::wildcard_enum_match_arm, reason = "the library's enum; the rest is refused")]
        match body {
            ast::SetExpr::Select(select) => Ok(QueryBody::Select(Box::new(self.select(*select)?))),
            ast::SetExpr::SetOperation { op, set_quantifier, left, right } => {
                let operator = combining_words(op, set_quantifier).ok_or_else(|| {
                    RefusedSql::new("this way to combine queries", "UNION, INTERSECT and EXCEPT are possible")
                })?;
                self.nested(|own| {
                    let (left, right) = (Box::new(own.body(*left)?), Box::new(own.body(*right)?));
                    if left.first_select().items.len() != right.first_select().items.len() {
                        return Err(RefusedSql::new(
                            "combined queries of different width",
                            "name as many columns in each",
                        ));
                    }
                    Ok(QueryBody::Combined { operator, left, right })
                })
            }
            _ => Err(RefusedSql::new("a query that is no SELECT", "write a SELECT")),
        }
    }

    fn select(&mut self, select: ast::Select) -> Result<Select, RefusedSql> {
        if matches!(select.distinct, Some(ast::Distinct::On(_))) {
            return Err(RefusedSql::new("DISTINCT ON", "write DISTINCT or GROUP BY"));
        }
        let mut from = Vec::new();
        for part in select.from {
            let first = self.relation(part.relation)?;
            let mut joins = Vec::new();
            for join in part.joins {
                joins.push(self.join_part(join)?);
            }
            from.push((first, joins));
        }
        let ast::GroupByExpr::Expressions(group, _) = select.group_by else {
            return Err(RefusedSql::new("GROUP BY ALL", "name the columns"));
        };
        Ok(Select {
            is_distinct: select.distinct.is_some(),
            items: self.items(select.projection)?,
            from,
            filter: self.optional(select.selection)?,
            group: self.expressions(group)?,
            having: self.optional(select.having)?,
        })
    }

    fn items(&mut self, items: Vec<ast::SelectItem>) -> Result<Vec<Item>, RefusedSql> {
        let mut lowered = Vec::new();
        for item in items {
            let item = match item {
                ast::SelectItem::UnnamedExpr(value) => {
                    Item { value: lower_expression(self, value)?, alias: None }
                }
                ast::SelectItem::ExprWithAlias { expr, alias } => {
                    Item { value: lower_expression(self, expr)?, alias: Some(lower_alias(&alias)?) }
                }
                // A column that is added to the table later would go out with no kind of personal data declared.
                ast::SelectItem::Wildcard(_) | ast::SelectItem::QualifiedWildcard(..) => {
                    return Err(RefusedSql::new("it reads all columns with *", "name the columns"));
                }
            };
            lowered.push(item);
        }
        Ok(lowered)
    }

    fn relation(&mut self, relation: ast::TableFactor) -> Result<Relation, RefusedSql> {
        #[expect(clippy::wildcard_enum_match_arm, reason = "the library's enum; the rest is refused")]
        match relation {
            ast::TableFactor::Table { name, alias, args: None, .. } => {
                let name = self.table_name(&name)?;
                Ok(Relation::Table { name, alias: relation_alias(alias)? })
            }
            ast::TableFactor::Derived { lateral: false, subquery, alias } => {
                let alias = relation_alias(alias)?
                    .ok_or_else(|| RefusedSql::new("a subquery in FROM without a name", "name it with AS"))?;
                // A reader of the statement would take it for the table.
                if self.tables.contains_key(&alias.text) {
                    return Err(RefusedSql::new(
                        "a subquery with the name of a table",
                        "give it another name",
                    ));
                }
                let query = Box::new(self.query(*subquery)?);
                if query.body.first_select().items.iter().any(|item| item.column_name().is_empty()) {
                    return Err(RefusedSql::new(
                        "a subquery in FROM has a column without a name",
                        "name it with AS",
                    ));
                }
                Ok(Relation::Derived { query, alias })
            }
            _ => Err(RefusedSql::new(
                "FROM something that is no table or subquery",
                "functions and LATERAL are not possible",
            )),
        }
    }

    fn join_part(&mut self, join: ast::Join) -> Result<JoinPart, RefusedSql> {
        let relation = self.relation(join.relation)?;
        #[expect(clippy::wildcard_enum_match_arm, reason = "the library's enum; the rest is refused")]
        let (words, constraint) = match join.join_operator {
            ast::JoinOperator::Join(on) => ("JOIN", on),
            ast::JoinOperator::Inner(on) => ("INNER JOIN", on),
            ast::JoinOperator::Left(on) => ("LEFT JOIN", on),
            ast::JoinOperator::LeftOuter(on) => ("LEFT OUTER JOIN", on),
            ast::JoinOperator::Right(on) => ("RIGHT JOIN", on),
            ast::JoinOperator::RightOuter(on) => ("RIGHT OUTER JOIN", on),
            ast::JoinOperator::FullOuter(on) => ("FULL JOIN", on),
            ast::JoinOperator::CrossJoin(on) => ("CROSS JOIN", on),
            _ => {
                return Err(RefusedSql::new(
                    "this kind of JOIN",
                    "INNER, LEFT, RIGHT, FULL and CROSS are possible",
                ));
            }
        };
        let (on, using) = match constraint {
            ast::JoinConstraint::On(on) => (Some(lower_expression(self, on)?), Vec::new()),
            ast::JoinConstraint::Using(names) => {
                (None, names.iter().map(single_name).collect::<Result<_, _>>()?)
            }
            ast::JoinConstraint::None => (None, Vec::new()),
            ast::JoinConstraint::Natural => {
                return Err(RefusedSql::new("a NATURAL JOIN", "write ON or USING"));
            }
        };
        Ok(JoinPart { words, relation, on, using })
    }

    fn optional(&mut self, expression: Option<ast::Expr>) -> Result<Option<Expression>, RefusedSql> {
        expression.map(|expression| lower_expression(self, expression)).transpose()
    }

    pub(crate) fn expressions(&mut self, list: Vec<ast::Expr>) -> Result<Vec<Expression>, RefusedSql> {
        list.into_iter().map(|one| lower_expression(self, one)).collect()
    }
}

fn relation_alias(alias: Option<ast::TableAlias>) -> Result<Option<Name>, RefusedSql> {
    let Some(alias) = alias else { return Ok(None) };
    if !alias.columns.is_empty() {
        return Err(RefusedSql::new("an alias that names columns", "name columns in the subquery"));
    }
    lower_alias(&alias.name).map(Some)
}

/// The name of a table or column that stands alone: no schema and no database before it.
fn single_name(name: &ast::ObjectName) -> Result<Name, RefusedSql> {
    match name.0.as_slice() {
        [part] => lower_part(part),
        _ => Err(RefusedSql::new(format!("the name '{name}' has a schema"), "write the name alone")),
    }
}

fn lower_alias(alias: &ast::Ident) -> Result<Name, RefusedSql> {
    let alias = lower_name(alias)?;
    if alias.text.to_ascii_lowercase().starts_with(OWN_PREFIX) {
        return Err(RefusedSql::new(
            format!("the name '{}'", alias.text),
            "names that begin with writ_ are the proxy's own",
        ));
    }
    Ok(alias)
}
