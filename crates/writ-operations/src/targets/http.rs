//! Requests to an API.

use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use writ_egress::Egress;
use writ_egress::deliver::Endpoint;
use writ_egress::target::{ApiFailure, ApiRequest};

use super::OperationRequest;
use super::config::ApiConfig;
use crate::check::{CASE, CUSTOMER};
use crate::error::PerformError;
use crate::operation::{HttpTarget, Json};
use crate::parameter::ValueType;
use crate::result::{MAX_RESULT_BYTES, OperationResult, PersonalKind, RowCollector};
use crate::template::Template;

/// The header with the idempotency key.
const IDEMPOTENCY_HEADER: &str = "idempotency-key";

/// An API.
#[derive(Debug)]
pub(crate) struct Api {
    endpoint: Endpoint,
    header: String,
    credential: Option<SecretString>,
    egress: Arc<Egress>,
}

impl Api {
    pub(crate) fn new(config: ApiConfig, egress: Arc<Egress>) -> Self {
        let ApiConfig { endpoint, header, credential } = config;
        Self { endpoint, header, credential, egress }
    }

    /// Sends the request of an operation, and reads the columns of its answer.
    pub(crate) async fn send_request(
        &self,
        target: &HttpTarget,
        columns: &[(String, Option<PersonalKind>)],
        request: OperationRequest<'_>,
        limit: Duration,
    ) -> Result<OperationResult, PerformError> {
        let fill = |template: &Template| template.fill_places(|place| request.place_text(place));
        let segments: Vec<String> = target.path.iter().map(fill).collect::<Result<_, _>>()?;
        for (segment, template) in segments.iter().zip(&target.path) {
            // An empty one, or dots, would be another place of the API.
            if !template.place_names().is_empty()
                && (segment.is_empty() || matches!(segment.as_str(), "." | ".."))
            {
                return Err(PerformError::not_performed("a value cannot be a part of the path"));
            }
        }
        let query: Result<Vec<_>, PerformError> =
            target.query.iter().map(|(name, value)| Ok((name.clone(), fill(value)?))).collect();
        let body = target.body.as_ref().map(|body| fill_json(body, request)).transpose()?;
        let mut headers = Vec::new();
        if let Some(credential) = &self.credential {
            headers.push((self.header.clone(), credential.clone()));
        }
        if let Some((_, key)) = request.idempotency {
            headers.push((IDEMPOTENCY_HEADER.to_owned(), SecretString::from(key)));
        }
        let call = ApiRequest {
            method: target.method,
            segments,
            query: query?,
            headers,
            body: body.map(|body| body.to_string().into_bytes()),
        };
        let is_read = target.method == "GET";
        let answer = self.egress.call_api(&self.endpoint, call, MAX_RESULT_BYTES, limit).await;
        let answer = answer.map_err(|why| match why {
            ApiFailure::NotSent(what) => PerformError::not_performed(what),
            ApiFailure::Unanswered(what) if is_read => PerformError::not_performed(what),
            ApiFailure::Unanswered(what) => PerformError::unknown(what),
        })?;
        let refused = format!("the API answered with status {}", answer.status);
        match answer.status {
            200..=299 => {}
            // It was asked to do nothing, or says that it did nothing.
            // With 408 the API may have begun already, so that is left to the arms below.
            400..=407 | 409..=499 => return Err(PerformError::not_performed(refused)),
            _ if is_read => return Err(PerformError::not_performed(refused)),
            _ => return Err(PerformError::unknown(refused)),
        }
        Ok(read_answer(target, columns, &answer.body, is_read))
    }
}

/// The declared columns of an answer; everything else in it is left out.
fn read_answer(
    target: &HttpTarget,
    columns: &[(String, Option<PersonalKind>)],
    body: &[u8],
    is_read: bool,
) -> OperationResult {
    let mut collector = RowCollector::new(columns);
    if !columns.is_empty() {
        // An answer that is no JSON has none of the columns. What was done was done.
        let answer: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let one = std::slice::from_ref(&answer);
        let rows = match &target.rows {
            Some(pointer) => answer.pointer(pointer).and_then(Value::as_array).map_or(&[][..], Vec::as_slice),
            None => one,
        };
        for row in rows {
            let cells =
                target.pointers.iter().map(|pointer| row.pointer(pointer).cloned().unwrap_or(Value::Null));
            if !collector.add_row(cells) {
                break;
            }
        }
    }
    collector.finish(u64::from(!is_read))
}

fn fill_json(body: &Json, request: OperationRequest<'_>) -> Result<Value, PerformError> {
    match body {
        Json::Plain(value) => Ok(value.clone()),
        Json::List(list) => list.iter().map(|item| fill_json(item, request)).collect(),
        Json::Object(fields) => {
            let mut object = Map::new();
            for (name, value) in fields {
                object.insert(name.clone(), fill_json(value, request)?);
            }
            Ok(Value::Object(object))
        }
        Json::Text(template) => match template.sole_place() {
            // Alone, a value has its own type.
            Some(place) => request.place_value(place),
            None => template.fill_places(|place| request.place_text(place)).map(Value::String),
        },
    }
}

impl OperationRequest<'_> {
    /// The text of a place in a template.
    pub(crate) fn place_text(&self, place: &str) -> Result<String, PerformError> {
        match place {
            CUSTOMER => Ok(self.scope.customer.clone()),
            CASE => Ok(self.scope.case.clone()),
            name => match self.text(name) {
                Some(text) => Ok(text.to_owned()),
                None if self.declared.0.get(name).is_some_and(|one| one.is_optional) => Ok(String::new()),
                None => Err(PerformError::not_performed(format!("the parameter '{name}' is missing"))),
            },
        }
    }

    fn place_value(&self, place: &str) -> Result<Value, PerformError> {
        let is_own = [CUSTOMER, CASE].contains(&place);
        if !is_own
            && self.text(place).is_none()
            && self.declared.0.get(place).is_some_and(|one| one.is_optional)
        {
            return Ok(Value::Null);
        }
        let text = self.place_text(place)?;
        let wrong = || PerformError::not_performed(format!("the parameter '{place}' has another type"));
        match self.declared.value_type(place) {
            ValueType::Text => Ok(Value::String(text)),
            ValueType::Integer | ValueType::Number | ValueType::Boolean => {
                serde_json::from_str(&text).map_err(|_| wrong())
            }
        }
    }
}
