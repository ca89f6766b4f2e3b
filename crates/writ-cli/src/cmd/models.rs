//! `writ models`: the configured models and prices, and trials of what turns need.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use writ_inspect::show::escape_line;
use writ_runtime::methods::{Method, ModelsPrices};
use writ_types::api::NoParams;
use writ_types::api::model::{ConfiguredModel, ListedPrice, ModelState, PriceList, TokenPrice};
use writ_types::error::Exit;
use writ_types::unit::MicroUsd;

use crate::args::ModelsCommand;
use crate::client::EngineClient;
use crate::cmd::sessions::dollars;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::block_on;

/// Runs `writ models …`.
pub(crate) fn run_models(context: &Context, command: &ModelsCommand) -> Result<(), Failure> {
    context.load_ready_config()?;
    match command {
        ModelsCommand::List => list_models(context),
        ModelsCommand::Test { model } => test_model(context, model.as_deref()),
        ModelsCommand::Prices { model } => list_prices(context, model.as_deref()),
    }
}

fn list_models(context: &Context) -> Result<(), Failure> {
    let listed = call_engine(context, Method::ModelsList, json!({}))?;
    context.out.print_either(&listed, describe_models)
}

fn list_prices(context: &Context, wanted: Option<&str>) -> Result<(), Failure> {
    let mut listed: PriceList =
        block_on(async { EngineClient::ensure(context).await?.ask::<ModelsPrices>(&NoParams {}).await })?;
    listed.prices.retain(|priced| wanted.is_none_or(|wanted| priced.model.contains(wanted)));
    context.out.print_either(&listed, |listed| {
        let mut lines: Vec<String> = listed.prices.iter().map(describe_listed).collect();
        if lines.is_empty() {
            lines.push("No price is known of such a model.".to_owned());
        }
        lines.push(
            "In dollars per million tokens. Your own go into config.toml: [models.prices.\"PROVIDER/NAME\"] with input and \
             output, in millionths of a dollar."
                .to_owned(),
        );
        lines
    })
}

fn describe_listed(priced: &ListedPrice) -> String {
    let mark = if priced.configured { "*" } else { " " };
    // The day is enough.
    let since = priced.since.map(|since| since.to_string().chars().take(10).collect::<String>());
    let since = since.map(|since| format!(" since {since}")).unwrap_or_default();
    format!(
        "{mark} {:<44} {}; {}{since}",
        escape_line(&priced.model),
        describe_price(&priced.price),
        escape_line(&priced.source)
    )
}

fn describe_price(price: &TokenPrice) -> String {
    let TokenPrice { input, output, cache_read, cache_write } = price;
    let amount = |micro: &u64| dollars(MicroUsd::new(*micro));
    format!(
        "{} in, {} out, {} read from and {} written to its cache",
        amount(input),
        amount(output),
        amount(cache_read),
        amount(cache_write)
    )
}

/// The models as lines, each with its role.
pub(crate) fn describe_models(listed: &Value) -> Vec<String> {
    let models = listed.get("models").cloned().unwrap_or_default();
    // An engine of another version may list them in another form.
    let models: Vec<ConfiguredModel> = serde_json::from_value(models).unwrap_or_default();
    let mut lines: Vec<String> = models.iter().flat_map(describe_model).collect();
    lines.push("`writ models test MODEL` says what works with one of them.".to_owned());
    lines
}

fn describe_model(model: &ConfiguredModel) -> Vec<String> {
    let mut known = Vec::new();
    match model.window {
        Some(window) => known.push(format!("takes {window} tokens")),
        None => known.push("its window is not known".to_owned()),
    }
    if !model.tools {
        known.push("calls no tools".to_owned());
    }
    if !model.priced {
        known.push("its price is not known".to_owned());
    }
    let (role, key) =
        (if model.fallback { "  or" } else { model.role.as_str() }, model.key.as_deref().unwrap_or("no key"));
    let mut lines = vec![format!(
        "{role:<10} {} at {} ({key}; {})",
        escape_line(&model.model),
        escape_line(&model.host),
        known.join(", ")
    )];
    let mut more = vec![format!("clearance {}", model.clearance)];
    more.extend(model.tier.as_ref().map(|tier| format!("tier {tier}")));
    more.extend(model.effort.map(|effort| format!("effort {effort}")));
    more.extend(model.price.as_ref().map(describe_price));
    lines.push(format!("{:<10}   {}", "", more.join("; ")));
    lines.extend(describe_state(&model.state).map(|text| format!("{:<10}   {text}", "")));
    lines
}

/// Describes the experience with a model; `None`: there is nothing to say.
fn describe_state(state: &ModelState) -> Option<String> {
    let ModelState { failures, open_until, held_until, limits } = state;
    let mut said = Vec::new();
    match (open_until, failures) {
        (Some(until), failures) => said.push(format!("failed {failures} times: asked last until {until}")),
        (None, 0) => {}
        (None, failures) => said.push(format!("failed {failures} times in a row")),
    }
    said.extend(held_until.map(|until| format!("its provider takes no request before {until}")));
    said.extend(
        limits.as_ref().map(|limits| format!("its provider {}", escape_line(&limits.describe_line()))),
    );
    (!said.is_empty()).then(|| said.join("; "))
}

/// The results of trial requests to a model, as the engine reports them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ModelTrial {
    /// The model, as `provider/name`.
    pub(crate) model: String,
    /// Host and port.
    pub(crate) host: String,
    /// One for each kind of request that was sent.
    pub(crate) checks: Vec<TrialCheck>,
    /// Tokens that were sent, by the provider's count.
    pub(crate) input_tokens: u64,
    /// Tokens of the answers.
    pub(crate) output_tokens: u64,
    /// Their cost; `None`: the price is unknown.
    pub(crate) cost_micro_usd: Option<u64>,
}

/// The result of one kind of request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TrialCheck {
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

fn describe_check(check: &TrialCheck) -> Vec<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A cheap model's price has more digits than cents.
    #[test]
    fn a_price_below_a_cent_is_said_whole() {
        let price = TokenPrice { input: 2_800, output: 3_000_000, cache_read: 0, cache_write: 12_345 };
        assert_eq!(
            describe_price(&price),
            "$0.002800 in, $3.00 out, $0.00 read from and $0.012345 written to its cache"
        );
    }
}
