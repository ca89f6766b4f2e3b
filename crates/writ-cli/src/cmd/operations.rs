//! `writ operations`: declared operations, checked, listed and tried. Nothing that is tried stays.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use writ_egress::Egress;
use writ_egress::upstream::ProxyRoutes;
use writ_inspect::show::escape_line;
use writ_operations::targets::config::TargetsSpec;
use writ_operations::{
    Operation, OperationError, OperationResult, OperationSet, Scope, TargetKind, Targets, TargetsConfig,
};
use writ_secrets::record::recorded_backend;
use writ_secrets::store::SecretStore;
use writ_types::error::Exit;

use crate::args::{OperationsCommand, TestOperation};
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::block_on;
use crate::keyring::ask_passphrase;

/// The part of `proxy.toml` that operations need; the rest is the proxy's.
#[derive(Default, Deserialize)]
#[serde(default)]
struct TargetsFile {
    targets: TargetsSpec,
}

/// Runs `writ operations …`.
pub(crate) fn run_operations(context: &Context, command: &OperationsCommand) -> Result<(), Failure> {
    match command {
        OperationsCommand::Check { dir } => {
            let operations = load_operations(context, dir.as_deref())?;
            let answer = json!({ "operations": operations.len(), "digest": operations.digest() });
            context
                .out
                .print_either(&answer, |_| vec![format!("{} operations, no mistake", operations.len())])
        }
        OperationsCommand::List { dir } => {
            let operations = load_operations(context, dir.as_deref())?;
            let rows: Vec<Value> = operations.iter().map(describe_operation).collect();
            context.out.print_either(&json!({ "operations": rows }), |_| {
                operations.iter().map(list_operation).collect()
            })
        }
        OperationsCommand::Test(test) => try_operation(context, test),
    }
}

fn proxy_folder(context: &Context) -> PathBuf {
    context.home.root().join("proxy")
}

fn load_operations(context: &Context, dir: Option<&Path>) -> Result<OperationSet, Failure> {
    let folder = dir.map_or_else(|| context.home.operations(), Path::to_owned);
    OperationSet::load(&folder).map_err(|errors| failure_of("operations.declaration", &errors))
}

/// One failure with every mistake, each on a line with its remedy.
fn failure_of(code: &str, errors: &[OperationError]) -> Failure {
    // Others may have written the declaration, so its words must not move the cursor.
    let line = |error: &OperationError| {
        format!("{}\n  hint: {}", escape_line(&error.to_string()), escape_line(&error.hint))
    };
    let text = errors.iter().map(line).collect::<Vec<_>>().join("\n");
    Failure::new(Exit::Config, code, text, "correct the named lines")
}

const fn kind_name(kind: TargetKind) -> &'static str {
    match kind {
        TargetKind::Sql => "sql",
        TargetKind::Http => "http",
        TargetKind::Mail => "mail",
    }
}

fn describe_operation(operation: &Operation) -> Value {
    let personal: BTreeMap<&str, Value> =
        operation.personal_columns().map(|(column, kind)| (column, json!(kind))).collect();
    json!({
        "name": operation.name(),
        "description": operation.description(),
        "target": { "kind": kind_name(operation.kind()), "name": operation.target_name() },
        "changes": !operation.is_read(),
        "parameters": operation.parameters().map(|(name, _)| name).collect::<Vec<_>>(),
        "amounts": operation.amount_parameters().collect::<Vec<_>>(),
        "columns": operation.result_columns().iter().map(|(name, _)| name).collect::<Vec<_>>(),
        "personal": personal,
    })
}

fn list_operation(operation: &Operation) -> String {
    let parameters = operation.parameters().map(|(name, _)| name).collect::<Vec<_>>().join(", ");
    let verb = if operation.is_read() { "reads" } else { "changes" };
    let target = format!("{}:{}", kind_name(operation.kind()), escape_line(operation.target_name()));
    format!("{:<24} {verb:<8} {target:<24} ({parameters})", operation.name())
}

fn try_operation(context: &Context, test: &TestOperation) -> Result<(), Failure> {
    let wrong = |text: String| {
        Failure::new(Exit::Usage, "operations.test", text, "`writ operations list` shows them")
    };
    let operations = load_operations(context, test.dir.as_deref())?;
    let operation = operations
        .get(&test.name)
        .ok_or_else(|| wrong(format!("there is no operation '{}'", escape_line(&test.name))))?;
    let mut given = Map::new();
    for parameter in &test.parameters {
        let (name, value) =
            parameter.split_once('=').ok_or_else(|| wrong("a parameter is NAME=VALUE".to_owned()))?;
        given.insert(name.to_owned(), read_value(operation, name, value));
    }
    // Checked before the targets are opened, which may ask for a passphrase.
    let parameters = operation.check_parameters(&given).map_err(|error| wrong(error.to_string()))?;
    let targets = open_targets(context, test.targets.as_deref())?;
    let scope = Scope { customer: test.customer.clone(), case: test.case.clone() };
    let tried =
        block_on(async { Ok(targets.rehearse(operation, &parameters, &scope, Duration::MAX).await) })?;
    let result = tried.map_err(|error| {
        let hint = "check the statement, the database and its settings in proxy/proxy.toml";
        Failure::new(Exit::Verification, "operations.failed", error.to_string(), hint)
    })?;
    context.out.print_either(&describe_result(&result), |_| list_result(&result))
}

/// Takes a value as its parameter wants it: a text as it is, everything else as JSON.
fn read_value(operation: &Operation, name: &str, text: &str) -> Value {
    // A text may be all digits: read as JSON it would be a number, and refused.
    let is_text = operation.parameters().any(|(own, parameter)| own == name && parameter.is_text());
    if is_text { text.into() } else { serde_json::from_str(text).unwrap_or_else(|_| text.into()) }
}

/// The targets of the proxy, with its own secrets.
fn open_targets(context: &Context, file: Option<&Path>) -> Result<Targets, Failure> {
    let path = file.map_or_else(|| proxy_folder(context).join("proxy.toml"), Path::to_owned);
    let (text, file) = writ_operations::set::read_config::<TargetsFile>(&path)
        .map_err(|error| failure_of("operations.targets", &[error]))?;
    let known = proxy_secrets(context)?;
    let find = |name: &str| known.get(name.strip_prefix("secret:").unwrap_or(name)).cloned();
    let config = TargetsConfig::resolve_spec(file.targets, &path, &text, &find)
        .map_err(|errors| failure_of("operations.targets", &errors))?;
    let home = context.load_config(None)?;
    let trusted = home.network.trusted_authorities(&context.env)?;
    let egress = Egress::new(&home.egress.limits, &std::env::temp_dir())?;
    let egress = egress.with_network(ProxyRoutes::default(), trusted.added, &trusted.system)?;
    Ok(Targets::open(config, Arc::new(egress)))
}

/// The secrets of the proxy by name; none where it has no store yet.
fn proxy_secrets(context: &Context) -> Result<BTreeMap<String, SecretString>, Failure> {
    let keys = proxy_folder(context).join("keys");
    // Where nothing is locked up, no passphrase is asked for.
    if recorded_backend(&keys)?.is_none() {
        return Ok(BTreeMap::new());
    }
    let config = context.load_config(None)?;
    let passphrase = ask_passphrase(context, "Passphrase of this home's secrets: ")?;
    let store = SecretStore::open(&keys, passphrase, &config.secrets)?;
    Ok(store.all_secrets()?.into_iter().map(|(name, value)| (name.to_string(), value)).collect())
}

fn describe_result(result: &OperationResult) -> Value {
    let mut rows = Vec::new();
    for row in &result.rows {
        let mut object = Map::new();
        for (name, value, _) in row {
            object.insert(name.clone(), value.clone());
        }
        rows.push(Value::Object(object));
    }
    json!({ "rows": rows, "changed": result.changed, "truncated": result.truncated, "taken_back": true })
}

fn list_result(result: &OperationResult) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for row in &result.rows {
        let cells = row.iter().map(|(name, value, kind)| {
            // Values that an agent gets as tokens are marked.
            let mark = kind.map(|_| "*").unwrap_or_default();
            format!("{}{mark}={}", escape_line(name), escape_line(&value.to_string()))
        });
        lines.push(cells.collect::<Vec<_>>().join("  "));
    }
    let cut = if result.truncated { ", and more that were left out" } else { "" };
    lines.push(format!(
        "{} rows{cut}; {} changed; everything was taken back",
        result.rows.len(),
        result.changed
    ));
    lines
}
