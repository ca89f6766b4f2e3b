//! Checks targets that are mails.

use std::collections::{BTreeMap, BTreeSet};

use toml::Spanned;

use super::{CUSTOMER, Flaws, KnownPlaces};
use crate::declare::{MailSpec, OperationSpec, TableSpec};
use crate::operation::{MailTarget, MailTemplate, OperationTarget, SqlTarget};
use crate::statement::Tables;
use crate::statement::lower::parse_statement;
use crate::statement::render::quote_name;
use crate::template::Template;

/// Checks a mail.
pub(super) fn check_mail(
    mail: &MailSpec,
    spec: &OperationSpec,
    places: &KnownPlaces<'_>,
    faults: &mut Flaws,
) -> Option<(OperationTarget, Vec<String>)> {
    let mut used = BTreeSet::new();
    let values = &mail.to.get_ref().values;
    let mut read = |text: &Spanned<String>, faults: &mut Flaws| {
        let template = match Template::read_text(text.get_ref()) {
            Ok(template) => template,
            Err(what) => {
                faults.add(text, what, "correct the template");
                return Template::default();
            }
        };
        for place in template.place_names() {
            // `customer.name` is a value of the customer's own row.
            let own = place.strip_prefix(CUSTOMER).and_then(|rest| rest.strip_prefix('.'));
            let is_value = own.is_some_and(|own| values.iter().any(|value| value == own));
            if !is_value && !places.is_known(place) {
                let hint = "declare it as a parameter, or as {customer.COLUMN} with the column in 'values'";
                faults.add(text, format!("the template names '{{{place}}}', which is not declared"), hint);
            }
            used.insert(place.to_owned());
        }
        template
    };
    let mut templates = BTreeMap::new();
    for (name, declared) in &mail.templates {
        let subject = read(&declared.subject, faults);
        if declared.subject.get_ref().contains(['\r', '\n']) {
            faults.add(&declared.subject, "a subject with more than one line", "write one line");
        }
        templates
            .insert(name.get_ref().clone(), MailTemplate { subject, body: read(&declared.body, faults) });
    }
    // A mail that was handed over cannot be recognised by its server when it comes again.
    if let Some(key) = &spec.idempotency {
        faults.add(
            key,
            "a mail has no idempotency key",
            "leave it out: a mail of unknown outcome is not sent again",
        );
        used.insert(key.get_ref().clone());
    }
    let chosen_by = check_choice(mail, spec, places, &mut used, faults);
    places.check_use(&used, spec, faults);
    let to = check_recipient(&mail.to, faults)?;
    let (server, values) = (mail.server.clone(), values.clone());
    Some((OperationTarget::Mail(MailTarget { server, chosen_by, templates, to, values }), Vec::new()))
}

/// Finds the parameter that chooses the template.
fn check_choice(
    mail: &MailSpec,
    spec: &OperationSpec,
    places: &KnownPlaces<'_>,
    used: &mut BTreeSet<String>,
    faults: &mut Flaws,
) -> Option<String> {
    let role = Some(crate::parameter::ParameterRole::Template);
    let mut choosers =
        places.parameters.0.iter().filter(|(_, one)| one.role == role).map(|(name, _)| name.clone());
    let chosen_by = choosers.next();
    if choosers.next().is_some() {
        faults.add(&spec.name, "two parameters choose the template", "give one the role");
    }
    match (&chosen_by, mail.templates.len()) {
        (_, 0) => {
            faults.add(&spec.target, "the mail has no template", "declare [target.mail.templates.NAME]")
        }
        (None, 2..) => {
            let hint = "give a parameter role = \"template\"";
            faults.add(&spec.target, "nothing chooses among the templates", hint);
        }
        (Some(_), _) | (None, 1) => {}
    }
    used.extend(chosen_by.clone());
    chosen_by
}

/// The statement that reads the customer's own address. It is one of an operation like any other.
fn check_recipient(to: &Spanned<crate::declare::RecipientSpec>, faults: &mut Flaws) -> Option<SqlTarget> {
    let spec = to.get_ref();
    let table = TableSpec { customer: spec.customer.clone(), case: spec.case.clone() };
    let name = Spanned::new(to.span(), spec.table.clone());
    let scope = super::check_scope(&name, &table, faults)?;
    let tables = Tables::from([(spec.table.clone(), scope)]);
    let mut columns: Vec<String> = vec![quote_name(&spec.email)];
    columns.extend(spec.values.iter().map(|value| quote_name(value)));
    let sql = format!("SELECT {} FROM {}", columns.join(", "), quote_name(&spec.table));
    match parse_statement(&sql, &tables) {
        Ok(lowered) => {
            Some(SqlTarget { database: spec.database.clone(), lowered, tables, is_one_row: false })
        }
        Err(refused) => {
            faults.add(to, format!("the customer's address cannot be read: {}", refused.what), refused.hint);
            None
        }
    }
}
