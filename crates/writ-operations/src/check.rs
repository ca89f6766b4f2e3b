//! Makes operations of what files declare, and finds the mistakes.

mod http;

mod mail;

use std::collections::BTreeSet;

use regex::RegexBuilder;
use toml::Spanned;
use writ_policy::keys::limits;

use crate::declare::{KindSpec, OperationSpec, ParameterSpec, SqlSpec, TableSpec, TargetSpec};
use crate::operation::{Operation, OperationTarget, SqlTarget};
use crate::parameter::{
    DEFAULT_MAX_BYTES, MAX_PARAMETERS, MAX_TEXT_BYTES, Parameter, ParameterRole, Parameters, ValueType,
};
use crate::result::PersonalKind;
use crate::statement::contents::{ScopeContent, result_contents};
use crate::statement::expression::is_plain_name;
use crate::statement::lower::parse_statement;
use crate::statement::{ScopeColumns, Tables};

/// The longest name of an operation or a parameter, in bytes.
const MAX_NAME_BYTES: usize = 64;
/// The largest program of a pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 256 * 1024;
/// The places of the scope's real ids in templates.
pub(crate) const CUSTOMER: &str = "customer";
/// The place of the case's real id.
pub(crate) const CASE: &str = "case";

/// The columns of a result, with what is personal in them.
type ResultColumns = Vec<(String, Option<PersonalKind>)>;

/// One mistake.
#[derive(Debug)]
pub(crate) struct DeclarationFlaw {
    pub(crate) offset: usize,
    pub(crate) what: String,
    pub(crate) hint: String,
}

/// The mistakes of an operation.
#[derive(Debug, Default)]
pub(crate) struct Flaws(pub(crate) Vec<DeclarationFlaw>);

impl Flaws {
    pub(crate) fn add<T>(&mut self, at: &Spanned<T>, what: impl Into<String>, hint: impl Into<String>) {
        self.0.push(DeclarationFlaw { offset: at.span().start, what: what.into(), hint: hint.into() });
    }
}

/// The names that statements and templates of an operation may use.
#[derive(Debug)]
pub(crate) struct KnownPlaces<'a> {
    pub(crate) parameters: &'a Parameters,
    pub(crate) idempotency: Option<&'a str>,
}

impl KnownPlaces<'_> {
    pub(crate) fn is_known(&self, name: &str) -> bool {
        self.parameters.0.contains_key(name) || self.idempotency == Some(name)
    }

    pub(crate) fn is_optional(&self, name: &str) -> bool {
        self.parameters.0.get(name).is_some_and(|parameter| parameter.is_optional)
    }

    /// Reports parameters that nothing uses, and an idempotency key that does not reach the target.
    pub(crate) fn check_use(&self, used: &BTreeSet<String>, spec: &OperationSpec, faults: &mut Flaws) {
        for name in spec.parameters.keys() {
            if !used.contains(name.get_ref()) {
                faults.add(
                    name,
                    format!("the parameter '{}' is not used", name.get_ref()),
                    "use it, or leave it out",
                );
            }
        }
        if let Some(key) = &spec.idempotency
            && !used.contains(key.get_ref())
        {
            let hint = format!("use it in the statement or the template, as :{0} or {{{0}}}", key.get_ref());
            faults.add(key, "the idempotency key does not reach the target", hint);
        }
    }
}

/// Checks one declaration.
pub(crate) fn check_operation(spec: OperationSpec, faults: &mut Flaws) -> Option<Operation> {
    let before = faults.0.len();
    if !is_good_name(spec.name.get_ref()) {
        faults.add(&spec.name, "this is no name for an operation", "use at most 64 letters, digits and _");
    }
    let parameters = check_parameters(&spec, faults);
    let places = KnownPlaces {
        parameters: &parameters,
        idempotency: spec.idempotency.as_ref().map(|key| key.get_ref().as_str()),
    };
    let (target, columns) = check_target(&spec, &places, faults)?;
    let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
    for column in spec.personal.keys() {
        if !names.contains(&column.get_ref().as_str()) {
            let what = format!("the result has no column '{}'", column.get_ref());
            faults.add(column, what, format!("it has: {}", names.join(", ")));
        }
    }
    if faults.0.len() > before {
        return None;
    }
    Some(Operation {
        name: spec.name.into_inner(),
        description: spec.description,
        idempotency: spec.idempotency.map(Spanned::into_inner),
        parameters,
        target,
        columns,
    })
}

pub(crate) fn is_good_name(name: &str) -> bool {
    is_plain_name(name) && name.len() <= MAX_NAME_BYTES
}

fn check_parameters(spec: &OperationSpec, faults: &mut Flaws) -> Parameters {
    let mut parameters = Parameters::default();
    if spec.parameters.len() > MAX_PARAMETERS {
        faults.add(&spec.name, format!("more than {MAX_PARAMETERS} parameters"), "declare fewer");
    }
    let names = spec.parameters.keys().chain(&spec.idempotency);
    for name in names {
        let text = name.get_ref().as_str();
        if [limits::CUSTOMER, limits::CASE, limits::REQUEST_NAME, CUSTOMER, CASE].contains(&text) {
            faults.add(
                name,
                format!("'{text}' is the proxy's own"),
                "leave it out: every operation has its scope",
            );
        } else if !is_good_name(text) {
            faults.add(name, "this is no name for a parameter", "use at most 64 letters, digits and _");
        }
    }
    if let Some(key) = spec.idempotency.as_ref().filter(|key| spec.parameters.contains_key(*key)) {
        faults.add(
            key,
            "the idempotency key has the name of a parameter",
            "the proxy sets it; name it otherwise",
        );
    }
    for (name, declared) in &spec.parameters {
        match check_parameter(declared) {
            Ok(parameter) => {
                parameters.0.insert(name.get_ref().clone(), parameter);
            }
            Err((what, hint)) => faults.add(name, format!("the parameter '{}' {what}", name.get_ref()), hint),
        }
    }
    parameters
}

fn check_parameter(declared: &ParameterSpec) -> Result<Parameter, (String, &'static str)> {
    let default =
        if declared.role == Some(ParameterRole::Amount) { KindSpec::Integer } else { KindSpec::String };
    let kind = match declared.kind.unwrap_or(default) {
        KindSpec::String => ValueType::Text,
        KindSpec::Integer => ValueType::Integer,
        KindSpec::Number => ValueType::Number,
        KindSpec::Boolean => ValueType::Boolean,
    };
    let is_text = kind == ValueType::Text;
    let wrong = |what: &str, hint| Err((what.to_owned(), hint));
    match declared.role {
        // A key counts whole numbers: 0.1 has more than one way to be written.
        Some(ParameterRole::Amount) if kind != ValueType::Integer => {
            return wrong("is an amount and no integer", "count in the smallest unit, such as cents");
        }
        // A limit on a missing amount would refuse every request, or none.
        Some(ParameterRole::Amount | ParameterRole::Template) if declared.optional => {
            return wrong("has a role and is optional", "leave 'optional' out");
        }
        Some(ParameterRole::Template) if !is_text => {
            return wrong("chooses a template and is no string", "make it a string");
        }
        Some(ParameterRole::Amount | ParameterRole::Template | ParameterRole::Value) | None => {}
    }
    if !is_text
        && (declared.min_bytes.is_some() || declared.max_bytes.is_some() || declared.pattern.is_some())
    {
        return wrong("has bounds of a text", "bytes and patterns are for strings");
    }
    if matches!(kind, ValueType::Text | ValueType::Boolean)
        && (declared.minimum.is_some() || declared.maximum.is_some())
    {
        return wrong("has bounds of a number", "minimum and maximum are for numbers");
    }
    let (min_bytes, max_bytes) =
        (declared.min_bytes.unwrap_or(0), declared.max_bytes.unwrap_or(DEFAULT_MAX_BYTES));
    if max_bytes > MAX_TEXT_BYTES || min_bytes > max_bytes {
        return wrong("has impossible bounds", "max_bytes is at most 65536, and at least min_bytes");
    }
    if let (Some(least), Some(most)) = (declared.minimum, declared.maximum)
        && least > most
    {
        return wrong("has impossible bounds", "minimum is at most maximum");
    }
    let compile = |pattern: &String| {
        // Anchored: a pattern that matches a part would let anything stand around it.
        RegexBuilder::new(&format!("^(?:{pattern})$")).size_limit(MAX_PATTERN_BYTES).build()
    };
    let pattern = declared.pattern.as_ref().map(compile).transpose();
    Ok(Parameter {
        kind,
        role: declared.role,
        is_optional: declared.optional,
        description: declared.description.clone(),
        min_bytes,
        max_bytes,
        minimum: declared.minimum,
        maximum: declared.maximum,
        choices: declared.choices.iter().cloned().collect(),
        pattern: pattern
            .map_err(|_| ("has a pattern that is no regular expression".to_owned(), "correct it"))?,
    })
}

fn check_target(
    spec: &OperationSpec,
    places: &KnownPlaces<'_>,
    faults: &mut Flaws,
) -> Option<(OperationTarget, ResultColumns)> {
    let TargetSpec { sql, http, mail } = spec.target.get_ref();
    let declared = |(target, names): (OperationTarget, Vec<String>)| {
        let columns = names.into_iter().map(|name| {
            let kind = spec.personal.get(name.as_str()).copied();
            (name, kind)
        });
        (target, columns.collect())
    };
    match (sql, http, mail) {
        (Some(sql), None, None) => check_sql(sql, spec, places, faults),
        (None, Some(http), None) => http::check_http(http, spec, places, faults).map(declared),
        (None, None, Some(mail)) => mail::check_mail(mail, spec, places, faults).map(declared),
        (None, None, None) => {
            faults.add(
                &spec.target,
                "the operation has no target",
                "declare [target.sql], [target.http] or [target.mail]",
            );
            None
        }
        (Some(_), Some(_), _) | (Some(_), _, Some(_)) | (_, Some(_), Some(_)) => {
            faults.add(
                &spec.target,
                "the operation has more than one target",
                "declare one operation for each",
            );
            None
        }
    }
}

fn check_sql(
    sql: &SqlSpec,
    spec: &OperationSpec,
    places: &KnownPlaces<'_>,
    faults: &mut Flaws,
) -> Option<(OperationTarget, ResultColumns)> {
    let mut tables = Tables::new();
    for (name, declared) in &sql.tables {
        if let Some(scope) = check_scope(name, declared, faults) {
            tables.insert(name.get_ref().clone(), scope);
        }
    }
    let lowered = match parse_statement(sql.statement.get_ref(), &tables) {
        Ok(lowered) => lowered,
        Err(refused) => {
            faults.add(&sql.statement, format!("the statement is refused: {}", refused.what), refused.hint);
            return None;
        }
    };
    for name in lowered.parameters.iter().filter(|name| !places.is_known(name)) {
        let hint = format!("declare [parameters.{name}]");
        faults.add(&sql.statement, format!("the statement names ':{name}', which is not declared"), hint);
    }
    for name in sql.tables.keys().filter(|name| !lowered.used.contains(name.get_ref())) {
        faults.add(
            name,
            format!("the statement does not name the table '{}'", name.get_ref()),
            "leave it out",
        );
    }
    let names = lowered.statement.column_names();
    if let Some(place) = names.iter().position(String::is_empty) {
        faults.add(
            &sql.statement,
            format!("column {} of the result has no name", place + 1),
            "name it with AS",
        );
    }
    let used = lowered.parameters.iter().cloned().collect();
    places.check_use(&used, spec, faults);
    let contents = result_contents(&lowered.statement, &tables);
    let columns = names.into_iter().zip(contents).map(|(name, content)| {
        let kind = column_kind(&name, content, (sql, spec), faults);
        (name, kind)
    });
    let columns = columns.collect();
    let is_one_row = sql.one_row.as_ref().is_some_and(|wanted| *wanted.get_ref());
    if let Some(wanted) = sql.one_row.as_ref().filter(|_| is_one_row && spec.parameters.is_empty()) {
        faults.add(
            wanted,
            "one_row without a parameter that names the row",
            "declare one, or leave one_row out",
        );
    }
    let target = SqlTarget { database: sql.database.clone(), lowered, tables, is_one_row };
    Some((OperationTarget::Sql(target), columns))
}

/// Returns the kind of a column: an id of the scope is personal also where it is not declared, however short it is.
fn column_kind(
    name: &str,
    content: ScopeContent,
    (sql, spec): (&SqlSpec, &OperationSpec),
    faults: &mut Flaws,
) -> Option<PersonalKind> {
    let declared = spec.personal.get(name).copied();
    match (content, declared) {
        (ScopeContent::Id(kind), None | Some(PersonalKind::Text)) => return Some(kind),
        (ScopeContent::Made, None | Some(PersonalKind::Text)) => {
            let what = format!("the column '{name}' is made of the id of the customer or the case");
            let hint = format!("declare it: personal.{name} = \"customer\", or leave the id out");
            faults.add(&sql.statement, what, hint);
        }
        (ScopeContent::None | ScopeContent::Id(_) | ScopeContent::Made, _) => {}
    }
    declared
}

/// A table without a column that names its customer would show the rows of all.
fn check_scope(name: &Spanned<String>, declared: &TableSpec, faults: &mut Flaws) -> Option<ScopeColumns> {
    let Some(customer) = declared.customer.clone().filter(|column| !column.is_empty()) else {
        let what = format!("the table '{}' has no scope column", name.get_ref());
        faults.add(name, what, "name the column with the customer's id: customer = \"…\"");
        return None;
    };
    if declared.case.as_ref().is_some_and(|case| case.is_empty() || case.eq_ignore_ascii_case(&customer)) {
        faults.add(
            name,
            "the column of the case is none, or that of the customer",
            "name another, or leave it out",
        );
        return None;
    }
    Some(ScopeColumns { customer, case: declared.case.clone() })
}
