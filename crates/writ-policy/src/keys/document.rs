//! Keys as a person or a router writes them down, before they are signed.
//!
//! A base key: `{"agent": "refund-agent", "capabilities": {"refund": {"max_amount": 500}}, "expires": "…"}`. Each
//! capability is an operation of the security proxy, but for `escalate_to`, which lists who may be asked. In a
//! capability, `max_NAME`, `min_NAME`, `daily_NAME` and `total_NAME` bound the parameter NAME, and a list under `NAMEs` has its only values.
//!
//! A task key: `{"task_id": "…", "customer_token": "…", "case_token": "…", "granted_by": "router", "expires": "…"}`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use writ_types::action::ActionKind;
use writ_types::unit::Timestamp;

use super::grants::Grants;
use super::limits::{AmountLimit, OperationLimits};
use super::{Case, ROUTER};
use writ_inspect::scope::{ANY, Dimension};

/// The longest name of an agent, operation, parameter, customer or case, in bytes.
pub const MAX_NAME_BYTES: usize = 128;
/// The capability that lists the recipients of escalations.
const ESCALATE: &str = "escalate_to";
/// The capability to ask models, which a base key has unless it names it: `{"max_tokens": 100000}` is a quota for each task.
const MODEL_CALL: &str = "model_call";

/// A defect of a document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DocumentError(pub String);

/// The content of a base key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseDocument {
    /// The agent.
    pub agent: String,
    /// The grants.
    pub grants: Grants,
    /// When it ends.
    pub expires: Timestamp,
}

/// The content of a task key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskDocument {
    /// The case.
    pub case: Case,
    /// When it ends.
    pub expires: Timestamp,
}

/// The restrictions of a copy of a task key; omitted fields stay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NarrowDocument {
    /// The grants.
    pub grants: Option<Grants>,
    /// When it ends.
    pub expires: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBase {
    agent: String,
    capabilities: BTreeMap<String, Value>,
    expires: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTask {
    task_id: String,
    customer_token: String,
    case_token: String,
    granted_by: String,
    expires: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNarrow {
    capabilities: Option<BTreeMap<String, Value>>,
    expires: Option<String>,
}

/// Reads the document of a base key.
///
/// # Errors
///
/// What is missing, unknown or malformed in it.
pub fn read_base(document: Value) -> Result<BaseDocument, DocumentError> {
    let RawBase { agent, capabilities, expires } = read_document(document)?;
    let agent = checked_name("agent", agent)?;
    let mut grants = read_grants(&capabilities)?;
    // An agent may ask models as it likes, unless its key sets a quota: what it asks is recorded, and reaches nothing else.
    if !capabilities.contains_key(MODEL_CALL) {
        grants = grants.allow_kind(ActionKind::ModelCall, [(Dimension::Provider, ANY)]);
    }
    Ok(BaseDocument { agent, grants, expires: parse_time(&expires)? })
}

/// Reads the document of a task key.
///
/// # Errors
///
/// What is missing, unknown or malformed in it, or that no known router grants it.
pub fn read_task(document: Value) -> Result<TaskDocument, DocumentError> {
    let raw: RawTask = read_document(document)?;
    // Another router would grant keys that this installation cannot verify.
    if raw.granted_by != ROUTER {
        return Err(DocumentError(format!("granted_by is no known router; the only one is '{ROUTER}'")));
    }
    let case = Case {
        task: checked_name("task_id", raw.task_id)?,
        customer: checked_name("customer_token", raw.customer_token)?,
        case: checked_name("case_token", raw.case_token)?,
        granted_by: raw.granted_by,
    };
    Ok(TaskDocument { case, expires: parse_time(&raw.expires)? })
}

/// Reads what a copy is narrowed to.
///
/// # Errors
///
/// What is unknown or malformed in it.
pub fn read_narrow(document: Value) -> Result<NarrowDocument, DocumentError> {
    let RawNarrow { capabilities, expires } = read_document(document)?;
    let grants = capabilities.map(|named| read_grants(&named)).transpose()?;
    Ok(NarrowDocument { grants, expires: expires.as_deref().map(parse_time).transpose()? })
}

fn parse_time(text: &str) -> Result<Timestamp, DocumentError> {
    let wrong = || DocumentError("expires must be a time such as 2026-12-31T00:00:00Z".to_owned());
    Timestamp::from_rfc_3339(text).ok_or_else(wrong)
}

fn read_document<T: serde::de::DeserializeOwned>(document: Value) -> Result<T, DocumentError> {
    serde_json::from_value(document).map_err(|error| DocumentError(error.to_string()))
}

/// Checks a name. Names appear in tokens, the ledger and lists, so only plain ones are accepted, which keeps out a customer's raw
/// address or number.
fn checked_name(what: &str, name: String) -> Result<String, DocumentError> {
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    if name.is_empty() || name.len() > MAX_NAME_BYTES || !plain {
        let text = format!("{what} must be 1 to {MAX_NAME_BYTES} letters, digits, '_', '-' or '.'");
        return Err(DocumentError(text));
    }
    Ok(name)
}

fn read_grants(capabilities: &BTreeMap<String, Value>) -> Result<Grants, DocumentError> {
    let mut grants = Grants::default();
    for (operation, limits) in capabilities {
        let operation = checked_name("the name of a capability", operation.clone())?;
        // The one capability with recipients as values, and not limits.
        if operation == ESCALATE {
            let targets = read_texts(ESCALATE, limits)?;
            let targets = targets.iter().map(|to| (Dimension::Recipient, to.as_str()));
            grants = grants.allow_kind(ActionKind::Escalate, targets);
            continue;
        }
        grants = match operation.as_str() {
            MODEL_CALL => grants.allow_kind(ActionKind::ModelCall, [(Dimension::Provider, ANY)]),
            operation => grants.allow_kind(ActionKind::Operate, [(Dimension::Name, operation)]),
        };
        let limits = limits_of(&operation, limits)?;
        // Without an entry an operation is not limited, as the document says with `{}`.
        if !limits.is_empty() {
            grants.limits.insert(operation, limits);
        }
    }
    Ok(grants)
}

fn limits_of(operation: &str, limits: &Value) -> Result<OperationLimits, DocumentError> {
    let wrong = |text: &str| DocumentError(format!("capability '{operation}': {text}"));
    let object = limits.as_object().ok_or_else(|| wrong("its limits must be an object; without any, {}"))?;
    let mut bounds: BTreeMap<String, [Option<i64>; 4]> = BTreeMap::new();
    let mut read = OperationLimits::default();
    for (key, value) in object {
        // The prefix says which bound it is, and the rest is the parameter.
        if let Some((n, name)) = ["min_", "max_", "daily_", "total_"]
            .iter()
            .enumerate()
            .find_map(|(n, prefix)| key.strip_prefix(prefix).map(|name| (n, name)))
        {
            let name = checked_name("the name of a parameter", name.to_owned())?;
            let value = value.as_i64().ok_or_else(|| wrong(&format!("'{key}' must be a whole number")))?;
            if let Some(bound) = bounds.entry(name).or_default().get_mut(n) {
                *bound = Some(value);
            }
        } else if let Some(name) = key.strip_suffix('s') {
            let name = checked_name("the name of a parameter", name.to_owned())?;
            read.values.insert(name, read_texts(key, value)?.into_iter().collect());
        } else {
            let text = format!(
                "'{key}' is no limit; use max_NAME, min_NAME, daily_NAME, total_NAME, or NAMEs with a list"
            );
            return Err(wrong(&text));
        }
    }
    for (name, [min, max, daily, total]) in bounds {
        // Calls of models are counted only by the day; a total that is never counted would limit nothing.
        if operation == MODEL_CALL && total.is_some() {
            return Err(wrong("models have no total; use daily_NAME"));
        }
        // A lower bound alone would leave the amount open upwards.
        let max = max.or(daily).or(total).ok_or_else(|| wrong(&format!("'{name}' has no upper bound")))?;
        // Zero and negative amounts are allowed only where the document names them.
        let min = min.unwrap_or(1);
        if min > max || [daily, total].into_iter().flatten().any(|most| most < min) {
            return Err(wrong(&format!("no value of '{name}' lies within its bounds")));
        }
        read.totals.extend(total.map(|total| (name.clone(), total)));
        read.amounts.insert(name, AmountLimit { min, max, daily });
    }
    Ok(read)
}

fn read_texts(what: &str, value: &Value) -> Result<Vec<String>, DocumentError> {
    let wrong = || DocumentError(format!("'{what}' must be a list of names"));
    // An empty list would allow no value, which is written by leaving the operation out.
    let list = value.as_array().filter(|list| !list.is_empty()).ok_or_else(wrong)?;
    list.iter().map(|text| checked_name(what, text.as_str().ok_or_else(wrong)?.to_owned())).collect()
}

#[cfg(test)]
mod tests;
