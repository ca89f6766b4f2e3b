//! Checks targets that are requests to an API.

use std::collections::BTreeSet;

use toml::Spanned;

use super::{CASE, CUSTOMER, Flaws, KnownPlaces};
use crate::declare::{HttpSpec, OperationSpec};
use crate::operation::{HttpTarget, Json, OperationTarget};
use crate::template::Template;

/// The deepest nesting of a body.
const MAX_DEPTH: usize = 16;

/// A reader of templates, with the places that were found in them.
struct TemplateReader<'a> {
    places: &'a KnownPlaces<'a>,
    used: BTreeSet<String>,
    faults: &'a mut Flaws,
}

/// Checks a request.
pub(super) fn check_http(
    http: &HttpSpec,
    spec: &OperationSpec,
    places: &KnownPlaces<'_>,
    faults: &mut Flaws,
) -> Option<(OperationTarget, Vec<String>)> {
    let method =
        ["GET", "POST", "PUT", "PATCH", "DELETE"].into_iter().find(|known| known == http.method.get_ref());
    if method.is_none() {
        faults.add(&http.method, "this method is not possible", "GET, POST, PUT, PATCH and DELETE are");
    }
    let mut reader = TemplateReader { places, used: BTreeSet::new(), faults };
    let path = reader.read_path(&http.path);
    let mut query = Vec::new();
    for (name, text) in &http.query {
        query.push((name.clone(), reader.read_template(text, text.get_ref())));
    }
    let body = http.body.as_ref().map(|body| reader.read_body(body, body.get_ref(), 0));
    let TemplateReader { used, .. } = reader;
    if body.is_some() && method == Some("GET") {
        faults.add(&http.method, "a GET with a body", "use the query, or POST");
    }
    // The proxy cannot look into the API, so the API has to be asked about this customer.
    if !used.contains(CUSTOMER) {
        let hint =
            "put the customer's id where the API limits the request to it: {customer} in path, query or body";
        faults.add(&http.path, "the request does not say which customer it is for", hint);
    }
    for pointer in http.result.values().chain(&http.rows) {
        if !pointer.get_ref().is_empty() && !pointer.get_ref().starts_with('/') {
            faults.add(pointer, "this is no JSON pointer", "write /field/field");
        }
    }
    places.check_use(&used, spec, faults);
    let (names, pointers) = http.result.iter().map(|(name, at)| (name.clone(), at.get_ref().clone())).unzip();
    let rows = http.rows.as_ref().map(|rows| rows.get_ref().clone());
    let target = HttpTarget { api: http.api.clone(), method: method?, path, query, body, rows, pointers };
    Some((OperationTarget::Http(target), names))
}

impl TemplateReader<'_> {
    fn read_template<T>(&mut self, at: &Spanned<T>, text: &str) -> Template {
        let template = match Template::read_text(text) {
            Ok(template) => template,
            Err(what) => {
                self.faults.add(at, what, "correct the template");
                return Template::default();
            }
        };
        for place in template.place_names() {
            let is_scope = [CUSTOMER, CASE].contains(&place);
            if !is_scope && !self.places.is_known(place) {
                let hint = format!("declare [parameters.{place}]");
                self.faults.add(at, format!("the template names '{{{place}}}', which is not declared"), hint);
            }
            self.used.insert(place.to_owned());
        }
        template
    }

    /// Reads a path, segment by segment: a value never becomes two of them.
    fn read_path(&mut self, path: &Spanned<String>) -> Vec<Template> {
        let text = path.get_ref();
        let Some(rest) = text.strip_prefix('/') else {
            self.faults.add(
                path,
                "the path does not begin with '/'",
                "the address of the API is in the configuration",
            );
            return Vec::new();
        };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:@{}/".contains(c);
        if !text.chars().all(is_plain) || text.split('/').any(|segment| [".", ".."].contains(&segment)) {
            self.faults.add(
                path,
                "the path has characters that none has",
                "declare a query with [target.http.query]",
            );
        }
        let segments: Vec<Template> =
            rest.split('/').map(|segment| self.read_template(path, segment)).collect();
        let places = segments.iter().flat_map(Template::place_names);
        if let Some(optional) = places.into_iter().find(|place| self.places.is_optional(place)) {
            let what = format!("the optional parameter '{optional}' is in the path");
            self.faults.add(path, what, "leave 'optional' out");
        }
        segments
    }

    fn read_body(&mut self, at: &Spanned<toml::Value>, value: &toml::Value, depth: usize) -> Json {
        if depth > MAX_DEPTH {
            self.faults.add(at, "the body is nested too deeply", "16 levels are possible");
            return Json::Plain(serde_json::Value::Null);
        }
        match value {
            toml::Value::String(text) => Json::Text(self.read_template(at, text)),
            toml::Value::Integer(number) => Json::Plain((*number).into()),
            toml::Value::Float(number) => Json::Plain((*number).into()),
            toml::Value::Boolean(flag) => Json::Plain((*flag).into()),
            toml::Value::Datetime(time) => Json::Plain(time.to_string().into()),
            toml::Value::Array(list) => {
                Json::List(list.iter().map(|item| self.read_body(at, item, depth + 1)).collect())
            }
            toml::Value::Table(table) => {
                let field = |(name, value): (&String, &toml::Value)| {
                    (name.clone(), self.read_body(at, value, depth + 1))
                };
                Json::Object(table.iter().map(field).collect())
            }
        }
    }
}
