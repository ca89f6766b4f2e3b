//! Databases, APIs and mail servers, and the one function that performs operations at them.

pub mod config;

mod http;

mod mail;

mod postgres;

mod sqlite;

mod starttls;

mod wire;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use writ_egress::Egress;
use writ_policy::permit::Permit;
use writ_types::action::Action;
use writ_types::unit::Timestamp;

use crate::error::PerformError;
use crate::operation::{Operation, OperationTarget, SqlTarget};
use crate::parameter::{Parameters, ValueType};
use crate::result::{OperationResult, PersonalKind};
use crate::set::OperationSet;
use crate::statement::render::{Bind, RenderedSql, SqlDialect, render_statement};
use config::{DatabaseConfig, TargetsConfig};
use http::Api;
use mail::MailServer;
use postgres::PostgresDatabase;
use sqlite::SqliteDatabase;

/// The longest that an operation may take, where the configuration says nothing else.
pub const TIME_LIMIT: Duration = Duration::from_secs(10);
/// The longest id of a customer or a case, in bytes.
const MAX_ID_BYTES: usize = 256;

/// The customer and the case that an operation is for: their real ids.
#[derive(Clone, PartialEq, Eq)]
pub struct Scope {
    /// The customer's id.
    pub customer: String,
    /// The case's id.
    pub case: String,
}

// Real ids are personal data.
impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").finish_non_exhaustive()
    }
}

/// The places that operations are performed at.
#[derive(Debug)]
pub struct Targets {
    databases: BTreeMap<String, Database>,
    apis: BTreeMap<String, Api>,
    mail: BTreeMap<String, MailServer>,
    limit: Duration,
}

/// Returns what is performed for a parameter, by its name and its text in the permit: there, tokens and masks may stand in
/// place of values. `None`: it holds a token of another case.
pub type Restore<'a> = &'a (dyn Fn(&str, &str) -> Option<String> + Sync);

/// A database.
#[derive(Debug)]
enum Database {
    Sqlite(SqliteDatabase),
    Postgres(PostgresDatabase),
}

/// A value of a placeholder.
#[derive(Clone, PartialEq)]
pub(crate) enum Bound {
    Null,
    Text(String),
    Integer(i64),
    Number(f64),
    Boolean(bool),
}

/// A statement with its values.
pub(crate) struct PreparedStatement {
    pub(crate) rendered: RenderedSql,
    pub(crate) values: Vec<Bound>,
    pub(crate) columns: Vec<(String, Option<PersonalKind>)>,
    /// Everything is undone at the end.
    pub(crate) is_rehearsal: bool,
}

/// The values of one request.
#[derive(Clone, Copy)]
pub(crate) struct OperationRequest<'a> {
    pub(crate) declared: &'a Parameters,
    pub(crate) parameters: &'a BTreeMap<String, String>,
    pub(crate) scope: &'a Scope,
    /// The place of the idempotency key, and the key.
    pub(crate) idempotency: Option<(&'a str, &'a str)>,
    pub(crate) key: &'a str,
}

impl Targets {
    /// Takes the places of a configuration. Nothing is connected to before it is needed.
    pub fn open(config: TargetsConfig, egress: Arc<Egress>) -> Self {
        let TargetsConfig { databases, apis, mail, time_limit } = config;
        let way = || Arc::clone(&egress);
        let open = |database| match database {
            DatabaseConfig::Sqlite { path } => Database::Sqlite(SqliteDatabase::new(path)),
            DatabaseConfig::Postgres(config) => Database::Postgres(PostgresDatabase::new(config, way())),
        };
        Self {
            databases: databases.into_iter().map(|(name, one)| (name, open(one))).collect(),
            apis: apis.into_iter().map(|(name, one)| (name, Api::new(one, way()))).collect(),
            mail: mail.into_iter().map(|(name, one)| (name, MailServer::new(one, way()))).collect(),
            limit: time_limit,
        }
    }

    /// The operations without a configured target, each with the name that is missing.
    pub fn find_missing<'a>(&self, operations: &'a OperationSet) -> Vec<(&'a str, &'a str)> {
        let is_there = |operation: &Operation| match &operation.target {
            OperationTarget::Sql(sql) => self.databases.contains_key(&sql.database),
            OperationTarget::Http(http) => self.apis.contains_key(&http.api),
            OperationTarget::Mail(mail) => {
                self.mail.contains_key(&mail.server) && self.databases.contains_key(&mail.to.database)
            }
        };
        operations
            .iter()
            .filter(|operation| !is_there(operation))
            .map(|operation| (operation.name(), operation.target_name()))
            .collect()
    }

    /// Consumes a permit for an operation and performs it with the parameters that the permit names, for one
    /// customer and case. `idempotency_key` reaches the target where the operation declares a place for it;
    /// `restore` puts values in place of the tokens of a parameter, and has none for a token of another case. What it
    /// returns is checked against the declaration again.
    ///
    /// # Errors
    ///
    /// If it was not performed, or if its outcome is unknown.
    pub async fn perform(
        &self,
        permit: Permit,
        now: Timestamp,
        operation: &Operation,
        scope: &Scope,
        idempotency_key: &str,
        restore: Restore<'_>,
    ) -> Result<OperationResult, PerformError> {
        let opened = permit.open(now).map_err(PerformError::not_performed)?;
        let Action::Operate(operate) = &opened.prepared.action else {
            return Err(PerformError::not_performed("the permit is for no operation"));
        };
        if operate.operation != operation.name() {
            return Err(PerformError::not_performed("the permit is for another operation"));
        }
        let foreign = || PerformError::not_performed("a parameter holds a token of another case");
        let mut parameters = BTreeMap::new();
        for (name, value) in &operate.parameters {
            let restored = restore(name, value).ok_or_else(foreign)?;
            // Checked as it is performed: a token may stand for a value that the declaration refuses.
            if !operation.parameters.allows_text(name, &restored) {
                let what = format!("the parameter '{name}' is outside its declaration");
                return Err(PerformError::not_performed(what));
            }
            parameters.insert(name.clone(), restored);
        }
        self.run_operation(operation, &parameters, scope, idempotency_key, None).await
    }

    /// Performs a statement within `limit` and takes everything back, to try an operation. It needs no permit, because
    /// nothing of it stays.
    ///
    /// # Errors
    ///
    /// If the operation is no statement, or it fails.
    pub async fn rehearse(
        &self,
        operation: &Operation,
        parameters: &BTreeMap<String, String>,
        scope: &Scope,
        limit: Duration,
    ) -> Result<OperationResult, PerformError> {
        self.run_operation(operation, parameters, scope, "rehearsal", Some(limit)).await
    }

    async fn run_operation(
        &self,
        operation: &Operation,
        parameters: &BTreeMap<String, String>,
        scope: &Scope,
        idempotency_key: &str,
        rehearsal: Option<Duration>,
    ) -> Result<OperationResult, PerformError> {
        for id in [&scope.customer, &scope.case] {
            // An empty id could be that of rows which belong to no customer.
            if id.is_empty() || id.len() > MAX_ID_BYTES || id.contains('\0') {
                return Err(PerformError::not_performed("the scope has no usable ids"));
            }
        }
        let idempotency = operation.idempotency.as_deref().map(|place| (place, idempotency_key));
        let request = OperationRequest {
            declared: &operation.parameters,
            parameters,
            scope,
            idempotency,
            key: idempotency_key,
        };
        match &operation.target {
            OperationTarget::Sql(sql) => {
                self.run_statement(sql, &operation.columns, request, rehearsal).await
            }
            OperationTarget::Http(_) | OperationTarget::Mail(_) if rehearsal.is_some() => {
                Err(PerformError::not_performed(
                    "only statements can be tried: a request or a mail cannot be taken back",
                ))
            }
            OperationTarget::Http(http) => {
                let api = self.apis.get(&http.api).ok_or_else(|| missing("API", &http.api))?;
                api.send_request(http, &operation.columns, request, self.limit).await
            }
            OperationTarget::Mail(mail) => {
                let server =
                    self.mail.get(&mail.server).ok_or_else(|| missing("mail server", &mail.server))?;
                let names = mail.to.lowered.statement.column_names();
                // The row only fills the mail, and is in no answer.
                let columns: Vec<_> = names.into_iter().map(|name| (name, None)).collect();
                let customer = self.run_statement(&mail.to, &columns, request, None).await?;
                server.send_mail(mail, request, customer, self.limit).await
            }
        }
    }

    async fn run_statement(
        &self,
        sql: &SqlTarget,
        columns: &[(String, Option<PersonalKind>)],
        request: OperationRequest<'_>,
        rehearsal: Option<Duration>,
    ) -> Result<OperationResult, PerformError> {
        let database = self.databases.get(&sql.database);
        let database = database.ok_or_else(|| missing("database", &sql.database))?;
        let dialect = match database {
            Database::Sqlite(_) => SqlDialect::Sqlite,
            Database::Postgres(_) => SqlDialect::Postgres,
        };
        let rendered = render_statement(&sql.lowered.statement, dialect, &sql.tables, request.declared);
        let values = rendered.binds.iter().map(|bind| request.bind_value(bind)).collect::<Result<_, _>>()?;
        let is_rehearsal = rehearsal.is_some();
        let prepared = PreparedStatement { rendered, values, columns: columns.to_vec(), is_rehearsal };
        let limit = rehearsal.map_or(self.limit, |limit| limit.min(self.limit));
        match database {
            Database::Sqlite(database) => database.run_prepared(prepared, limit).await,
            Database::Postgres(database) => database.run_prepared(prepared, limit).await,
        }
    }
}

fn missing(what: &str, name: &str) -> PerformError {
    PerformError::not_performed(format!("no {what} '{name}' is configured"))
}

impl OperationRequest<'_> {
    /// The text of a name: a parameter, the idempotency key, or a part of the scope.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        match self.idempotency {
            Some((place, key)) if place == name => Some(key),
            Some(_) | None => self.parameters.get(name).map(String::as_str),
        }
    }

    fn bind_value(&self, bind: &Bind) -> Result<Bound, PerformError> {
        let name = match bind {
            Bind::Customer => return Ok(Bound::Text(self.scope.customer.clone())),
            Bind::Case => return Ok(Bound::Text(self.scope.case.clone())),
            Bind::Parameter(name) => name,
        };
        let Some(text) = self.text(name) else {
            let is_optional = self.declared.0.get(name).is_some_and(|parameter| parameter.is_optional);
            let lacking = || PerformError::not_performed(format!("the parameter '{name}' is missing"));
            return if is_optional { Ok(Bound::Null) } else { Err(lacking()) };
        };
        // The door has seen texts; what is no value of the declared type is not made one here.
        let wrong = || PerformError::not_performed(format!("the parameter '{name}' has another type"));
        match self.declared.value_type(name) {
            ValueType::Text if text.contains('\0') => Err(wrong()),
            ValueType::Text => Ok(Bound::Text(text.to_owned())),
            ValueType::Integer => text.parse().map(Bound::Integer).map_err(|_| wrong()),
            ValueType::Number => text
                .parse()
                .ok()
                .filter(|number: &f64| number.is_finite())
                .map(Bound::Number)
                .ok_or_else(wrong),
            ValueType::Boolean => text.parse().map(Bound::Boolean).map_err(|_| wrong()),
        }
    }
}
