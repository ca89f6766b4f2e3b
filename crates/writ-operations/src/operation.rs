//! A checked operation.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::error::ParameterError;
use crate::parameter::{Parameter, ParameterRole, Parameters};
use crate::result::PersonalKind;
use crate::statement::Tables;
use crate::statement::lower::Lowered;
use crate::template::Template;

/// The kind of an operation's target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetKind {
    /// A statement for a database.
    Sql,
    /// A request to an API.
    Http,
    /// A mail from a template.
    Mail,
}

/// A declared operation.
#[derive(Clone, Debug)]
pub struct Operation {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) parameters: Parameters,
    /// The place of the idempotency key in a statement or a template.
    pub(crate) idempotency: Option<String>,
    pub(crate) target: OperationTarget,
    /// The columns of the result, with what is personal in them.
    pub(crate) columns: Vec<(String, Option<PersonalKind>)>,
}

/// The thing that an operation does.
#[derive(Clone, Debug)]
pub(crate) enum OperationTarget {
    Sql(SqlTarget),
    Http(HttpTarget),
    Mail(MailTarget),
}

/// A statement.
#[derive(Clone, Debug)]
pub(crate) struct SqlTarget {
    pub(crate) database: String,
    pub(crate) lowered: Lowered,
    pub(crate) tables: Tables,
    /// It is about one row that its parameters name.
    pub(crate) is_one_row: bool,
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct HttpTarget {
    pub(crate) api: String,
    pub(crate) method: &'static str,
    /// Each is one segment of the path.
    pub(crate) path: Vec<Template>,
    pub(crate) query: Vec<(String, Template)>,
    pub(crate) body: Option<Json>,
    /// The pointer to the list of rows; `None`: the answer is one row.
    pub(crate) rows: Option<String>,
    /// The pointer of each column, in their order.
    pub(crate) pointers: Vec<String>,
}

/// A JSON value with places.
#[derive(Clone, Debug)]
pub(crate) enum Json {
    Plain(Value),
    Text(Template),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

/// A mail.
#[derive(Clone, Debug)]
pub(crate) struct MailTarget {
    pub(crate) server: String,
    /// The parameter that chooses the template; `None`: there is one.
    pub(crate) chosen_by: Option<String>,
    pub(crate) templates: BTreeMap<String, MailTemplate>,
    /// The statement that reads the customer's address, and after it the values of templates.
    pub(crate) to: SqlTarget,
    /// The names of these values.
    pub(crate) values: Vec<String>,
}

/// The text of a mail.
#[derive(Clone, Debug)]
pub(crate) struct MailTemplate {
    pub(crate) subject: Template,
    pub(crate) body: Template,
}

impl Operation {
    /// The operation's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A text for the agent's author.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The kind of its target.
    pub const fn kind(&self) -> TargetKind {
        match self.target {
            OperationTarget::Sql(_) => TargetKind::Sql,
            OperationTarget::Http(_) => TargetKind::Http,
            OperationTarget::Mail(_) => TargetKind::Mail,
        }
    }

    /// The name of the database, API or mail server in the configuration.
    pub fn target_name(&self) -> &str {
        match &self.target {
            OperationTarget::Sql(sql) => &sql.database,
            OperationTarget::Http(http) => &http.api,
            OperationTarget::Mail(mail) => &mail.server,
        }
    }

    /// Returns true if it changes nothing.
    pub fn is_read(&self) -> bool {
        match &self.target {
            OperationTarget::Sql(sql) => sql.lowered.statement.is_read(),
            OperationTarget::Http(http) => http.method == "GET",
            OperationTarget::Mail(_) => false,
        }
    }

    /// Returns true if it is declared to be about one row that its parameters name: where there is none, it is refused.
    pub const fn needs_row(&self) -> bool {
        matches!(&self.target, OperationTarget::Sql(SqlTarget { is_one_row: true, .. }))
    }

    /// Returns true if its target is handed an idempotency key, so that the same key does nothing twice.
    pub const fn is_idempotent(&self) -> bool {
        self.idempotency.is_some()
    }

    /// Checks the parameters of a request, and returns each in its one canonical form, as an action names them. The two
    /// tokens of the case pass through; the caller checks that they are those of the key.
    ///
    /// # Errors
    ///
    /// If one is unknown, missing, of another type or out of its bounds.
    pub fn check_parameters(
        &self,
        given: &Map<String, Value>,
    ) -> Result<BTreeMap<String, String>, ParameterError> {
        self.parameters.check_values(given)
    }

    /// The parameters, by name.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, &Parameter)> {
        self.parameters.0.iter().map(|(name, parameter)| (name.as_str(), parameter))
    }

    /// The parameters that are amounts.
    pub fn amount_parameters(&self) -> impl Iterator<Item = &str> {
        self.parameters_with(ParameterRole::Amount)
    }

    fn parameters_with(&self, role: ParameterRole) -> impl Iterator<Item = &str> {
        self.parameters().filter(move |(_, one)| one.role == Some(role)).map(|(name, _)| name)
    }

    /// The columns of its result, each with the personal data that it is declared to hold.
    pub fn result_columns(&self) -> &[(String, Option<PersonalKind>)] {
        &self.columns
    }

    /// The columns with personal data.
    pub fn personal_columns(&self) -> impl Iterator<Item = (&str, PersonalKind)> {
        self.columns.iter().filter_map(|(name, kind)| Some((name.as_str(), (*kind)?)))
    }
}
