//! The files of operations, as they are written.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use crate::parameter::ParameterRole;
use crate::result::PersonalKind;

/// One operation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OperationSpec {
    pub(crate) name: Spanned<String>,
    #[serde(default)]
    pub(crate) description: String,
    #[serde(default)]
    pub(crate) parameters: BTreeMap<Spanned<String>, ParameterSpec>,
    pub(crate) idempotency: Option<Spanned<String>>,
    pub(crate) target: Spanned<TargetSpec>,
    #[serde(default)]
    pub(crate) personal: BTreeMap<Spanned<String>, PersonalKind>,
}

/// A file with several operations.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OperationList {
    pub(crate) operation: Vec<OperationSpec>,
}

/// A parameter: the part of JSON Schema that texts, numbers and truth values need.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ParameterSpec {
    #[serde(rename = "type")]
    pub(crate) kind: Option<KindSpec>,
    pub(crate) role: Option<ParameterRole>,
    #[serde(default)]
    pub(crate) optional: bool,
    #[serde(default)]
    pub(crate) description: String,
    pub(crate) min_bytes: Option<usize>,
    pub(crate) max_bytes: Option<usize>,
    pub(crate) minimum: Option<i64>,
    pub(crate) maximum: Option<i64>,
    #[serde(default, rename = "enum")]
    pub(crate) choices: Vec<String>,
    pub(crate) pattern: Option<String>,
}

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum KindSpec {
    String,
    Integer,
    Number,
    Boolean,
}

/// A target: one of the three.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TargetSpec {
    pub(crate) sql: Option<SqlSpec>,
    pub(crate) http: Option<HttpSpec>,
    pub(crate) mail: Option<MailSpec>,
}

/// A statement.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SqlSpec {
    pub(crate) database: String,
    pub(crate) statement: Spanned<String>,
    /// True if it is about one row that its parameters name.
    pub(crate) one_row: Option<Spanned<bool>>,
    #[serde(default)]
    pub(crate) tables: BTreeMap<Spanned<String>, TableSpec>,
}

/// The scope columns of a table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TableSpec {
    pub(crate) customer: Option<String>,
    pub(crate) case: Option<String>,
}

/// A request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HttpSpec {
    pub(crate) api: String,
    pub(crate) method: Spanned<String>,
    pub(crate) path: Spanned<String>,
    #[serde(default)]
    pub(crate) query: BTreeMap<String, Spanned<String>>,
    pub(crate) body: Option<Spanned<toml::Value>>,
    pub(crate) rows: Option<Spanned<String>>,
    #[serde(default)]
    pub(crate) result: BTreeMap<String, Spanned<String>>,
}

/// A mail.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MailSpec {
    pub(crate) server: String,
    pub(crate) templates: BTreeMap<Spanned<String>, MailTemplateSpec>,
    pub(crate) to: Spanned<RecipientSpec>,
}

/// The text of a mail.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MailTemplateSpec {
    pub(crate) subject: Spanned<String>,
    pub(crate) body: Spanned<String>,
}

/// The place of the customer's own address.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecipientSpec {
    pub(crate) database: String,
    pub(crate) table: String,
    pub(crate) customer: Option<String>,
    pub(crate) case: Option<String>,
    pub(crate) email: String,
    #[serde(default)]
    pub(crate) values: Vec<String>,
}
