//! `writ models`: what is configured, and whether a model does what turns need.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use writ_inspect::show::escape_line;
use writ_runtime::methods::Method;
use writ_types::error::Exit;

use crate::args::ModelsCommand;
use crate::client::EngineClient;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::block_on;

/// Runs `writ models …`.
pub(crate) fn run_models(context: &Context, command: &ModelsCommand) -> Result<(), Failure> {
    context.load_ready_config()?;
    match command {
        ModelsCommand::List => list_models(context),
        ModelsCommand::Test { model } => test_model(context, model.as_deref()),
    }
}

fn list_models(context: &Context) -> Result<(), Failure> {
    let listed = call_engine(context, Method::ModelsList, json!({}))?;
    context.out.print_either(&listed, describe_models)
}

/// The models as lines, each with its role.
pub(crate) fn describe_models(listed: &Value) -> Vec<String> {
    let models = listed.get("models").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut lines: Vec<String> = models.iter().map(describe_model).collect();
    lines.push("`writ models test MODEL` says what works with one of them.".to_owned());
    lines
}

fn describe_model(model: &Value) -> String {
    let text = |key: &str| model.get(key).and_then(Value::as_str).unwrap_or_default();
    // A missing field means an engine that does not know it.
    let is = |key: &str| model.get(key) == Some(&json!(true));
    let mut known = Vec::new();
    match model.get("window").and_then(Value::as_u64) {
        Some(window) => known.push(format!("takes {window} tokens")),
        None => known.push("its window is not known".to_owned()),
    }
    if !is("tools") {
        known.push("calls no tools".to_owned());
    }
    if !is("priced") {
        known.push("its price is not known".to_owned());
    }
    let key = if text("key").is_empty() { "no key" } else { text("key") };
    format!(
        "{:<10} {} at {} ({key}; {})",
        text("role"),
        escape_line(text("model")),
        escape_line(text("host")),
        known.join(", ")
    )
}

/// The results of trial requests to a model, as the engine reports them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ModelTrial {
    /// The model, as `provider/name`.
    pub(crate) model: String,
    /// Host and port.
    pub(crate) host: String,
    /// One for each kind of request that was sent.
    pub(crate) checks: Vec<ModelCheck>,
    /// Tokens that were sent, by the provider's count.
    pub(crate) input_tokens: u64,
    /// Tokens of the answers.
    pub(crate) output_tokens: u64,
    /// Their cost; `None`: the price is unknown.
    pub(crate) cost_micro_usd: Option<u64>,
}

/// The result of one kind of request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ModelCheck {
    /// The kind.
    pub(crate) check: String,
    /// `works`, `limited` or `fails`.
    pub(crate) verdict: String,
    /// The finding.
    pub(crate) text: String,
    /// A hint for the reader; may be empty.
    #[serde(default)]
    pub(crate) hint: String,
    /// The exit code that the command ends with because of it.
    pub(crate) exit: Exit,
}

/// Tries a model through the engine.
///
/// # Errors
///
/// If the engine cannot be asked, no model is configured, or there is no such model.
pub(crate) fn try_model(context: &Context, model: Option<&str>) -> Result<ModelTrial, Failure> {
    let tried = call_engine(context, Method::ModelsTest, json!({ "model": model }))?;
    serde_json::from_value(tried)
        .map_err(|error| Failure::internal_error("reading the results of the test", error))
}

fn test_model(context: &Context, model: Option<&str>) -> Result<(), Failure> {
    context.out.print_remark("sending up to five small requests; a provider bills them like any other");
    let tried = try_model(context, model)?;
    // The first failure decides the exit code.
    let exit = tried.checks.iter().map(|check| check.exit).find(|exit| *exit != Exit::Done);
    context.out.print_either(&tried, |tried| {
        let mut lines = vec![format!("{} at {}", escape_line(&tried.model), escape_line(&tried.host))];
        lines.extend(tried.checks.iter().flat_map(describe_check));
        lines.push(describe_usage(tried));
        lines
    })?;
    exit.map_or(Ok(()), |exit| Err(Failure::Code(exit.code())))
}

fn describe_check(check: &ModelCheck) -> Vec<String> {
    let mark = match check.verdict.as_str() {
        "works" => "ok  ",
        "limited" => "warn",
        _fails => "BAD ",
    };
    let mut lines = vec![format!("{mark}  {:<10} {}", check.check, escape_line(&check.text))];
    if !check.hint.is_empty() {
        lines.push(format!("      {:<10} hint: {}", "", escape_line(&check.hint)));
    }
    lines
}

/// Returns the tokens and the cost of the requests.
pub(crate) fn describe_usage(tried: &ModelTrial) -> String {
    let ModelTrial { checks, input_tokens, output_tokens, cost_micro_usd, .. } = tried;
    let cost = match cost_micro_usd {
        Some(cost) => format!("{cost} millionths of a dollar"),
        None => "at a price that is not known".to_owned(),
    };
    let requests = match checks.len() {
        1 => "1 request".to_owned(),
        more => format!("{more} requests"),
    };
    format!("{requests}: {input_tokens} tokens sent, {output_tokens} received, {cost}")
}

fn call_engine(context: &Context, method: Method, params: Value) -> Result<Value, Failure> {
    block_on(async { EngineClient::ensure(context).await?.call_method(method, params).await })
}
