//! Writes a statement, with the scope of the request added to every table.
//!
//! Values are never part of the text: each becomes a numbered placeholder of its own.

use std::fmt::Write as _;

use super::expression::is_plain_name;
use super::{
    CallArguments, Expression, InsertSource, Item, JoinPart, Name, OrderTerm, QueryBody, Relation,
    ScopeColumns, Select, SelectQuery, Statement, Tables,
};
use crate::parameter::{Parameters, ValueType};

/// The prefix of the names that are made here; statements may not use it.
pub(crate) const OWN_PREFIX: &str = "writ_";

/// The value of a placeholder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Bind {
    Parameter(String),
    Customer,
    Case,
}

/// The way a statement is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SqlDialect {
    /// As it was declared, to compare it with what was read.
    Declared,
    Sqlite,
    Postgres,
}

/// A statement that can run.
#[derive(Clone, Debug)]
pub(crate) struct RenderedSql {
    pub(crate) sql: String,
    /// The value of placeholder 1, 2 and so on.
    pub(crate) binds: Vec<Bind>,
    pub(crate) is_read: bool,
}

/// Writes statements.
#[derive(Debug)]
struct SqlRenderer<'a> {
    dialect: SqlDialect,
    tables: &'a Tables,
    parameters: &'a Parameters,
    out: String,
    binds: Vec<Bind>,
    aliases: usize,
}

/// Writes a statement as it was declared, without scope.
pub(crate) fn render_declared(statement: &Statement) -> String {
    let (tables, parameters) = (Tables::new(), Parameters::default());
    render_statement(statement, SqlDialect::Declared, &tables, &parameters).sql
}

/// Writes a statement for a database. Every table must be in `tables`, which lowering has checked.
pub(crate) fn render_statement(
    statement: &Statement,
    dialect: SqlDialect,
    tables: &Tables,
    parameters: &Parameters,
) -> RenderedSql {
    let (out, binds) = (String::new(), Vec::new());
    let mut renderer = SqlRenderer { dialect, tables, parameters, out, binds, aliases: 0 };
    renderer.write_statement(statement);
    RenderedSql { sql: renderer.out, binds: renderer.binds, is_read: statement.is_read() }
}

/// Writes an identifier so that the database takes it as it is spelled.
pub(crate) fn quote_name(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

impl SqlRenderer<'_> {
    fn word(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn name(&mut self, name: &Name) {
        if name.is_quoted || !is_plain_name(&name.text) {
            let quoted = quote_name(&name.text);
            self.word(&quoted);
        } else {
            self.word(&name.text);
        }
    }

    fn bind(&mut self, bind: Bind) {
        if self.dialect == SqlDialect::Declared {
            if let Bind::Parameter(name) = bind {
                let _infallible = write!(self.out, ":{name}");
            }
            return;
        }
        // Each place has a number of its own: PostgreSQL gives a placeholder one type, and two columns that are
        // compared with one value can have different ones.
        let kind = match &bind {
            Bind::Parameter(name) => self.parameters.value_type(name),
            Bind::Customer | Bind::Case => ValueType::Text,
        };
        self.binds.push(bind);
        let number = self.binds.len();
        let _infallible = match (self.dialect, kind) {
            (SqlDialect::Sqlite | SqlDialect::Declared, _) => write!(self.out, "?{number}"),
            (SqlDialect::Postgres, ValueType::Text) => write!(self.out, "${number}"),
            (SqlDialect::Postgres, ValueType::Integer) => write!(self.out, "${number}::bigint"),
            (SqlDialect::Postgres, ValueType::Number) => write!(self.out, "${number}::numeric"),
            (SqlDialect::Postgres, ValueType::Boolean) => write!(self.out, "${number}::boolean"),
        };
    }

    fn list<T>(&mut self, items: &[T], mut write: impl FnMut(&mut Self, &T)) {
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.word(", ");
            }
            write(self, item);
        }
    }

    fn write_statement(&mut self, statement: &Statement) {
        match statement {
            Statement::Select(query) => self.query(query),
            Statement::Update { table, set, filter, returning } => {
                self.word(if self.dialect == SqlDialect::Sqlite { "UPDATE OR ABORT " } else { "UPDATE " });
                self.name(table);
                self.word(" SET ");
                self.list(set, |own, (column, value)| {
                    own.name(column);
                    own.word(" = ");
                    own.expression(value);
                });
                self.scoped_filter(table, filter.as_ref());
                self.returning(returning);
            }
            Statement::Delete { table, filter, returning } => {
                self.word("DELETE FROM ");
                self.name(table);
                self.scoped_filter(table, filter.as_ref());
                self.returning(returning);
            }
            Statement::Insert { table, columns, source, returning } => {
                self.insert(table, columns, source);
                self.returning(returning);
            }
        }
    }

    /// The scope columns of a table. A table without any reads nothing: lowering has refused it before.
    fn scope_of(&self, table: &Name) -> Option<ScopeColumns> {
        if self.dialect == SqlDialect::Declared { None } else { self.tables.get(&table.text).cloned() }
    }

    /// `relation.customer = ? [AND relation.case = ?]`. Qualified, so that a missing column is an error and not one of
    /// an outer query, which is always that of the scope.
    fn scope_predicate(&mut self, relation: &str, scope: &ScopeColumns) {
        let columns = [(Some(&scope.customer), Bind::Customer), (scope.case.as_ref(), Bind::Case)];
        let mut is_first = true;
        for (column, bind) in columns {
            let Some(column) = column else { continue };
            if !is_first {
                self.word(" AND ");
            }
            is_first = false;
            let _infallible = write!(self.out, "{relation}.{} = ", quote_name(column));
            self.bind(bind);
            if self.dialect == SqlDialect::Sqlite {
                // A column that ignores case would make one customer of two.
                self.word(" COLLATE BINARY");
            }
        }
    }

    fn scoped_filter(&mut self, table: &Name, filter: Option<&Expression>) {
        let scope = self.scope_of(table);
        match (filter, scope.is_some()) {
            (None, false) => return,
            (Some(filter), false) => {
                self.word(" WHERE ");
                self.expression(filter);
            }
            (Some(filter), true) => {
                // In parentheses: an OR in it would go around the scope.
                self.word(" WHERE (");
                self.expression(filter);
                self.word(") AND ");
            }
            (None, true) => self.word(" WHERE "),
        }
        if let Some(scope) = scope {
            let relation = if table.is_quoted { quote_name(&table.text) } else { table.text.clone() };
            self.scope_predicate(&relation, &scope);
        }
    }

    fn insert(&mut self, table: &Name, columns: &[Name], source: &InsertSource) {
        let scope = self.scope_of(table);
        let own = scope.map(|scope| {
            let mut own = vec![(scope.customer, Bind::Customer)];
            own.extend(scope.case.map(|case| (case, Bind::Case)));
            own
        });
        let own = own.unwrap_or_default();
        // A clause of the table's own, such as `UNIQUE … ON CONFLICT REPLACE`, would put it in place of another customer's row.
        self.word(if self.dialect == SqlDialect::Sqlite { "INSERT OR ABORT INTO " } else { "INSERT INTO " });
        self.name(table);
        self.word(" (");
        self.list(columns, Self::name);
        for (column, _) in &own {
            let _infallible = write!(self.out, ", {}", quote_name(column));
        }
        self.word(") ");
        let add_own = |renderer: &mut Self| {
            for (_, bind) in &own {
                renderer.word(", ");
                renderer.bind(bind.clone());
            }
        };
        match source {
            InsertSource::Rows(rows) => {
                self.word("VALUES ");
                self.list(rows, |renderer, row| {
                    renderer.word("(");
                    renderer.list(row, Self::expression);
                    add_own(renderer);
                    renderer.word(")");
                });
            }
            InsertSource::Select(query) => match &query.body {
                // Lowering lets nothing else pass here.
                QueryBody::Select(select) => {
                    self.select(select, add_own);
                    self.tail(query);
                }
                QueryBody::Combined { .. } => {}
            },
        }
    }

    fn returning(&mut self, returning: &[Item]) {
        if !returning.is_empty() {
            self.word(" RETURNING ");
            let is_postgres = self.dialect == SqlDialect::Postgres;
            self.list(returning, |own, item| {
                if is_postgres {
                    own.word("to_json(");
                    own.expression(&item.value);
                    own.word(")::text");
                } else {
                    own.item(item);
                }
            });
        }
    }

    fn query(&mut self, query: &SelectQuery) {
        self.body(&query.body);
        self.tail(query);
    }

    fn tail(&mut self, query: &SelectQuery) {
        if !query.order.is_empty() {
            self.word(" ORDER BY ");
            self.list(&query.order, |own, OrderTerm { value, words }| {
                own.expression(value);
                own.word(words);
            });
        }
        for (words, value) in [(" LIMIT ", &query.limit), (" OFFSET ", &query.offset)] {
            if let Some(value) = value {
                self.word(words);
                self.expression(value);
            }
        }
    }

    fn body(&mut self, body: &QueryBody) {
        match body {
            QueryBody::Select(select) => self.select(select, |_| {}),
            QueryBody::Combined { operator, left, right } => {
                self.body(left);
                let _infallible = write!(self.out, " {operator} ");
                self.body(right);
            }
        }
    }

    fn item(&mut self, item: &Item) {
        self.expression(&item.value);
        if let Some(alias) = &item.alias {
            self.word(" AS ");
            self.name(alias);
        }
    }

    fn select(&mut self, select: &Select, add_own: impl FnOnce(&mut Self)) {
        self.word(if select.is_distinct { "SELECT DISTINCT " } else { "SELECT " });
        self.list(&select.items, Self::item);
        add_own(self);
        if !select.from.is_empty() {
            self.word(" FROM ");
            self.list(&select.from, |own, (first, joins)| {
                own.relation(first);
                for join in joins {
                    own.join_part(join);
                }
            });
        }
        if let Some(filter) = &select.filter {
            self.word(" WHERE ");
            self.expression(filter);
        }
        if !select.group.is_empty() {
            self.word(" GROUP BY ");
            self.list(&select.group, Self::expression);
        }
        if let Some(having) = &select.having {
            self.word(" HAVING ");
            self.expression(having);
        }
    }

    fn join_part(&mut self, join: &JoinPart) {
        let _infallible = write!(self.out, " {} ", join.words);
        self.relation(&join.relation);
        if let Some(on) = &join.on {
            self.word(" ON ");
            self.expression(on);
        }
        if !join.using.is_empty() {
            self.word(if self.dialect == SqlDialect::Declared { " USING(" } else { " USING (" });
            self.list(&join.using, Self::name);
            self.word(")");
        }
    }

    fn relation(&mut self, relation: &Relation) {
        match relation {
            Relation::Table { name, alias } => {
                let Some(scope) = self.scope_of(name) else {
                    self.name(name);
                    if let Some(alias) = alias {
                        self.word(" AS ");
                        self.name(alias);
                    }
                    return;
                };
                self.aliases += 1;
                let own = format!("{OWN_PREFIX}{}", self.aliases);
                let _infallible = write!(self.out, "(SELECT {own}.* FROM ");
                self.name(name);
                let _infallible = write!(self.out, " AS {own} WHERE ");
                self.scope_predicate(&own, &scope);
                self.word(") AS ");
                self.name(alias.as_ref().unwrap_or(name));
            }
            Relation::Derived { query, alias } => {
                self.word("(");
                self.query(query);
                self.word(") AS ");
                self.name(alias);
            }
        }
    }

    fn subquery(&mut self, query: &SelectQuery) {
        self.word("(");
        self.query(query);
        self.word(")");
    }

    // tidy: table
    fn expression(&mut self, expression: &Expression) {
        match expression {
            Expression::Column { table, column } => {
                if let Some(table) = table {
                    self.name(table);
                    self.word(".");
                }
                self.name(column);
            }
            Expression::Number(text) => self.word(text),
            Expression::Text(text) => {
                let _infallible = write!(self.out, "'{}'", text.replace('\'', "''"));
            }
            Expression::Word(word) => self.word(word),
            Expression::Parameter(name) => self.bind(Bind::Parameter(name.clone())),
            Expression::Unary { operator, operand } => {
                self.word(operator);
                // Two minus signs without a space would begin a comment, and the scope would be in it.
                self.word(" ");
                self.expression(operand);
            }
            Expression::Binary { left, operator, right } => {
                self.expression(left);
                let _infallible = write!(self.out, " {operator} ");
                self.expression(right);
            }
            Expression::Nested(inner) => {
                self.word("(");
                self.expression(inner);
                self.word(")");
            }
            Expression::IsNull { operand, words } => {
                // PostgreSQL finds no type for a bare placeholder here.
                let is_bare = matches!(operand.as_ref(), Expression::Parameter(name)
                    if self.parameters.value_type(name) == ValueType::Text);
                self.expression(operand);
                if is_bare && self.dialect == SqlDialect::Postgres {
                    self.word("::text");
                }
                self.word(words);
            }
            Expression::Between { operand, words, low, high } => {
                self.expression(operand);
                self.word(words);
                self.expression(low);
                self.word(" AND ");
                self.expression(high);
            }
            Expression::InList { operand, words, list } => {
                self.expression(operand);
                self.word(words);
                self.word("(");
                self.list(list, Self::expression);
                self.word(")");
            }
            Expression::InQuery { operand, words, query } => {
                self.expression(operand);
                self.word(words);
                self.subquery(query);
            }
            Expression::Exists { words, query } => {
                self.word(words);
                self.subquery(query);
            }
            Expression::Subquery(query) => self.subquery(query),
            Expression::Case { operand, branches, otherwise } => {
                self.case_branches(operand.as_deref(), branches, otherwise.as_deref());
            }
            Expression::Cast { operand, kind } => {
                self.word("CAST(");
                self.expression(operand);
                let _infallible = write!(self.out, " AS {kind})");
            }
            Expression::Call { function, is_distinct, arguments } => {
                self.word(function);
                self.word(if *is_distinct { "(DISTINCT " } else { "(" });
                match arguments {
                    CallArguments::Star => self.word("*"),
                    CallArguments::List(list) => self.list(list, Self::expression),
                }
                self.word(")");
            }
        }
    }

    fn case_branches(
        &mut self,
        operand: Option<&Expression>,
        branches: &[(Expression, Expression)],
        otherwise: Option<&Expression>,
    ) {
        self.word("CASE");
        if let Some(operand) = operand {
            self.word(" ");
            self.expression(operand);
        }
        for (condition, value) in branches {
            self.word(" WHEN ");
            self.expression(condition);
            self.word(" THEN ");
            self.expression(value);
        }
        if let Some(otherwise) = otherwise {
            self.word(" ELSE ");
            self.expression(otherwise);
        }
        self.word(" END");
    }
}
