//! Statements at a PostgreSQL server.
//!
//! Values go as text, and the server reads each as the type of its place; results come as JSON, so that every type of
//! the server has a form here.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::TryStreamExt as _;
use secrecy::ExposeSecret as _;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config, NoTls, Statement};
use writ_egress::Egress;
use writ_egress::target::{IncomingBytes, TargetPlace};

use super::config::{DatabasePlace, PostgresConfig};
use super::wire::{PostgresTls, TextValue};
use super::{Bound, PreparedStatement};
use crate::error::PerformError;
use crate::result::{MAX_RESULT_BYTES, MAX_ROWS, OperationResult, RowCollector};

/// The most connections to one server.
const MAX_CONNECTIONS: usize = 8;
/// The most statements that a connection holds prepared.
const MAX_STATEMENTS: usize = 64;
/// The most bytes that one operation may bring in: a result with room for what the protocol adds.
const MAX_INCOMING_BYTES: u64 = 16 * 1024 * 1024;
/// The state of a key that another row has (PostgreSQL manual, appendix A).
const UNIQUE_VIOLATION: &str = "23505";

/// A server, and the connections to it that rest.
#[derive(Debug)]
pub(crate) struct PostgresDatabase {
    config: PostgresConfig,
    egress: Arc<Egress>,
    resting: Mutex<Vec<PostgresLine>>,
    places: Semaphore,
}

/// An open connection.
struct PostgresLine {
    client: Client,
    running: JoinHandle<()>,
    incoming: IncomingBytes,
    statements: BTreeMap<String, Statement>,
}

impl std::fmt::Debug for PostgresLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresLine").finish_non_exhaustive()
    }
}

impl Drop for PostgresLine {
    fn drop(&mut self) {
        // The server rolls back what was not committed.
        self.running.abort();
    }
}

impl PostgresDatabase {
    pub(crate) fn new(config: PostgresConfig, egress: Arc<Egress>) -> Self {
        Self { config, egress, resting: Mutex::new(Vec::new()), places: Semaphore::new(MAX_CONNECTIONS) }
    }

    /// Runs a statement in a transaction of its own.
    pub(crate) async fn run_prepared(
        &self,
        prepared: PreparedStatement,
        limit: Duration,
    ) -> Result<OperationResult, PerformError> {
        let deadline = Instant::now() + limit;
        let before = async {
            let place = self.places.acquire().await.map_err(PerformError::not_performed)?;
            let mut line = self.begin_transaction(&prepared, limit).await?;
            let result = line.perform_statement(&prepared).await?;
            Ok((place, line, result))
        };
        // Until COMMIT is sent nothing can stay, so that its end in between is known.
        let (_place, line, result) = timeout_at(deadline, before)
            .await
            .unwrap_or_else(|_| Err(PerformError::not_performed("the database did not answer in time")))?;
        let end = if prepared.is_rehearsal { "ROLLBACK" } else { "COMMIT" };
        match timeout_at(deadline, line.client.batch_execute(end)).await {
            Ok(Ok(())) => {
                self.put_resting(line);
                Ok(result)
            }
            // Taken back or read only: nothing is unknown.
            Ok(Err(_)) | Err(_) if prepared.is_rehearsal || prepared.rendered.is_read => {
                Err(PerformError::not_performed("the database did not end the transaction"))
            }
            Ok(Err(why)) if why.code().is_some_and(|code| is_rollback(code.code())) => {
                Err(classify_error("the transaction did not commit", &why))
            }
            Ok(Err(_)) => {
                Err(PerformError::unknown("the connection broke while the transaction was committed"))
            }
            Err(_) => Err(PerformError::unknown("the database did not say in time that it committed")),
        }
    }

    /// A connection with an open transaction. A resting one that has broken meanwhile is passed over: nothing was asked of it.
    async fn begin_transaction(
        &self,
        prepared: &PreparedStatement,
        limit: Duration,
    ) -> Result<PostgresLine, PerformError> {
        let mode = if prepared.rendered.is_read { " READ ONLY" } else { "" };
        // The server itself ends a statement that its caller no longer waits for.
        let begin = format!("BEGIN{mode}; SET LOCAL statement_timeout = {}", limit.as_millis());
        while let Some(line) = self.take_resting() {
            line.incoming.allow_bytes(MAX_INCOMING_BYTES);
            if line.client.batch_execute(&begin).await.is_ok() {
                return Ok(line);
            }
        }
        let line = self.connect_server(limit).await?;
        line.incoming.allow_bytes(MAX_INCOMING_BYTES);
        let failing = |why| classify_error("no transaction could begin", &why);
        line.client.batch_execute(&begin).await.map_err(failing)?;
        Ok(line)
    }

    fn take_resting(&self) -> Option<PostgresLine> {
        let mut resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
        // A connection without its server is of no use.
        std::iter::from_fn(|| resting.pop()).find(|line| !line.client.is_closed())
    }

    fn put_resting(&self, line: PostgresLine) {
        let mut resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
        if resting.len() < MAX_CONNECTIONS {
            resting.push(line);
        }
    }

    async fn connect_server(&self, limit: Duration) -> Result<PostgresLine, PerformError> {
        let PostgresConfig { place, database, user, password, schema } = &self.config;
        let mut config = Config::new();
        config.user(user).dbname(database).application_name("writ");
        if let Some(password) = password {
            config.password(password.expose_secret());
        }
        let target = match place {
            DatabasePlace::Host { host, .. } => TargetPlace::Host(host.clone()),
            DatabasePlace::Socket(path) => TargetPlace::Socket(path.clone()),
        };
        let unreachable = |why| PerformError::not_performed(format!("the database cannot be reached: {why}"));
        let stream = self.egress.connect_target(&target, limit).await.map_err(unreachable)?;
        let incoming = stream.incoming_bytes();
        let refused = |why: tokio_postgres::Error| classify_error("the database takes no connection", &why);
        let (client, running, incoming) = match place {
            DatabasePlace::Host { host, tls: true } => {
                // A server without TLS is refused: the password would go out in the clear.
                config.ssl_mode(SslMode::Require);
                let tls = PostgresTls::new(Arc::clone(&self.egress), host.host().to_owned(), limit);
                let secure = tls.incoming_slot();
                let (client, connection) = config.connect_raw(stream, tls).await.map_err(refused)?;
                let incoming = secure.get().cloned().unwrap_or(incoming);
                (client, spawn_connection(connection), incoming)
            }
            DatabasePlace::Host { tls: false, .. } | DatabasePlace::Socket(_) => {
                config.ssl_mode(SslMode::Disable);
                let (client, connection) = config.connect_raw(stream, NoTls).await.map_err(refused)?;
                (client, spawn_connection(connection), incoming)
            }
        };
        let line = PostgresLine { client, running, incoming, statements: BTreeMap::new() };
        // Names mean the tables of this schema alone, and a backslash in a text is a backslash.
        let setup = format!("SET search_path = \"{schema}\"; SET standard_conforming_strings = on");
        line.client.batch_execute(&setup).await.map_err(refused)?;
        Ok(line)
    }
}

fn spawn_connection<T>(connection: T) -> JoinHandle<()>
where
    T: Future<Output = Result<(), tokio_postgres::Error>> + Send + 'static,
{
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(code = error.code().map(|code| code.code()), "a connection to a database ended");
        }
    })
}

impl PostgresLine {
    /// Runs a statement up to its commit. An error leaves the connection to be dropped.
    async fn perform_statement(
        &mut self,
        prepared: &PreparedStatement,
    ) -> Result<OperationResult, PerformError> {
        let statement = self.prepare_statement(prepared).await?;
        let values: Vec<TextValue> = prepared.values.iter().map(as_text).collect();
        let failing = |why: tokio_postgres::Error| classify_error("the statement failed", &why);
        let rows = self.client.query_raw(&statement, values).await.map_err(failing)?;
        let mut rows = std::pin::pin!(rows);
        let mut collector = RowCollector::new(&prepared.columns);
        while let Some(row) = rows.try_next().await.map_err(failing)? {
            let cells: Vec<Option<&str>> = (0..row.len())
                .map(|index| row.try_get(index))
                .collect::<Result<_, _>>()
                .map_err(|why| classify_error("a row could not be read", &why))?;
            let fits = cells.iter().flatten().map(|cell| cell.len()).fold(0, usize::saturating_add)
                <= MAX_RESULT_BYTES;
            if fits {
                collector.add_row(cells.into_iter().map(|cell| cell.map_or(Value::Null, read_json)));
            } else {
                collector.overflow();
            }
        }
        let changed = if prepared.rendered.is_read { None } else { rows.rows_affected() };
        Ok(collector.finish(changed.unwrap_or(0)))
    }

    async fn prepare_statement(&mut self, prepared: &PreparedStatement) -> Result<Statement, PerformError> {
        let sql = wrap_query(prepared);
        if let Some(statement) = self.statements.get(&sql) {
            return Ok(statement.clone());
        }
        let statement = self
            .client
            .prepare(&sql)
            .await
            .map_err(|why| classify_error("the database refuses the statement", &why))?;
        if self.statements.len() >= MAX_STATEMENTS {
            self.statements.pop_first();
        }
        self.statements.insert(sql, statement.clone());
        Ok(statement)
    }
}

/// A query with each column as JSON, and one row above the bound of a result. RETURNING is written so already.
fn wrap_query(prepared: &PreparedStatement) -> String {
    let sql = &prepared.rendered.sql;
    if !prepared.rendered.is_read {
        return sql.clone();
    }
    let places = || 0..prepared.columns.len();
    let columns =
        places().map(|index| format!("to_json(writ_q.c{index})::text")).collect::<Vec<_>>().join(", ");
    let names = places().map(|index| format!("c{index}")).collect::<Vec<_>>().join(", ");
    format!("SELECT {columns} FROM ({sql}) AS writ_q({names}) LIMIT {}", MAX_ROWS + 1)
}

fn as_text(value: &Bound) -> TextValue {
    TextValue(match value {
        Bound::Null => None,
        Bound::Text(text) => Some(text.clone()),
        Bound::Integer(number) => Some(number.to_string()),
        Bound::Number(number) => Some(number.to_string()),
        Bound::Boolean(flag) => Some(flag.to_string()),
    })
}

/// A value of the server. A number that would be rounded stays a text.
fn read_json(text: &str) -> Value {
    let is_number = text.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    let is_exact = || {
        let shown = text.parse::<f64>().map(|number| number.to_string()).unwrap_or_default();
        let plain = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text };
        text.parse::<i64>().is_ok() || text.contains('e') || shown == plain
    };
    if is_number && !is_exact() {
        return text.into();
    }
    // Not JSON is not expected; as a text it shows.
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

/// The kind of an error. Messages repeat values in some classes; those about the statement cannot, since no value is in it.
fn classify_error(what: &str, why: &tokio_postgres::Error) -> PerformError {
    let Some(error) = why.as_db_error() else {
        return PerformError::not_performed(format!("{what}: the connection broke"));
    };
    let code = error.code().code();
    let detail = match code.get(..2) {
        _ if code == "57014" => "it took too long".to_owned(),
        Some("22") => "a value does not fit its column".to_owned(),
        Some("23") => format!("the constraint '{}' forbids it", error.constraint().unwrap_or("of a column")),
        Some("28") => "the user or the password is refused".to_owned(),
        Some("42") => error.message().to_owned(),
        Some(_) | None => String::new(),
    };
    let separator = if detail.is_empty() { "" } else { ": " };
    let what = format!("{what}{separator}{detail} (SQLSTATE {code})");
    // Other constraints say nothing of a row that is not the case's.
    if code == UNIQUE_VIOLATION {
        return PerformError::Taken { what };
    }
    PerformError::not_performed(what)
}

/// Returns true if a state with which `COMMIT` failed says that nothing was written: an integrity constraint (class 23), an
/// invalid transaction state (25), a rollback (40), a check option (44) or a cancelled statement. With any other, such as
/// that of a pooler that lost its server (08), it may have been (PostgreSQL manual, appendix A).
fn is_rollback(state: &str) -> bool {
    state == "57014" || ["23", "25", "40", "44"].iter().any(|class| state.starts_with(class))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_number_that_would_be_rounded_stays_a_text() {
        for (text, expected) in [
            ("7", json!(7)),
            ("-12.50", json!(-12.5)),
            ("100.000", json!(100.0)),
            ("9223372036854775807", json!(i64::MAX)),
            ("9223372036854775808", json!("9223372036854775808")),
            ("0.1234567890123456789", json!("0.1234567890123456789")),
            ("1e+300", json!(1e300)),
            ("\"NaN\"", json!("NaN")),
            ("true", json!(true)),
            ("{\"a\": null}", json!({ "a": null })),
            ("not json", json!("not json")),
        ] {
            assert_eq!(read_json(text), expected, "{text}");
        }
    }
}
