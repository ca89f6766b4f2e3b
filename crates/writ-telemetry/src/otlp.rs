//! OTLP in JSON: a trace export request of the OpenTelemetry protocol 1.x, in protobuf's JSON mapping with ids in
//! hexadecimal, as the protocol's specification has it.

use serde::Serialize;
use serde_json::{Value as Json, json};

use crate::span::{AttributeValue, SpanKind, TraceSpan};

/// The path of the traces below an endpoint.
pub const PATH: &str = "/v1/traces";
/// The type of a body.
pub const CONTENT_TYPE: &str = "application/json";

/// The sender: the same in every request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSource {
    /// The program's version.
    pub version: &'static str,
    /// This run of the engine.
    pub run: String,
    /// The installation.
    pub installation: String,
}

/// `Span` of the protocol.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    trace_id: String,
    span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<String>,
    name: &'a str,
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Vec<Json>,
    status: Json,
}

/// The body of a request that exports these spans.
///
/// # Errors
///
/// If the values cannot be written as JSON, which no value of these types does.
pub fn build_request(resource: &TraceSource, spans: &[TraceSpan]) -> serde_json::Result<Vec<u8>> {
    let of = |name: &str, value: &str| json!({ "key": name, "value": { "stringValue": value } });
    let body = json!({
        "resourceSpans": [{
            "resource": { "attributes": [
                of("service.name", "writ"),
                of("service.version", resource.version),
                of("service.instance.id", &resource.run),
                of("writ.installation.id", &resource.installation),
            ]},
            "scopeSpans": [{
                "scope": { "name": "writ", "version": resource.version },
                "spans": spans.iter().map(wire_span).collect::<Vec<_>>(),
            }],
        }],
    });
    serde_json::to_vec(&body)
}

fn wire_span(span: &TraceSpan) -> Wire<'_> {
    Wire {
        trace_id: hex::encode(span.trace.0),
        span_id: hex::encode(span.id.0),
        parent_span_id: span.parent.map(|parent| hex::encode(parent.0)),
        name: &span.name,
        // SpanKind: 1 is INTERNAL, 3 is CLIENT.
        kind: match span.kind {
            SpanKind::Internal => 1,
            SpanKind::Client => 3,
        },
        start_time_unix_nano: span.start_nanos.to_string(),
        end_time_unix_nano: span.end_nanos.to_string(),
        attributes: span
            .attributes
            .iter()
            .map(|(name, value)| json!({ "key": name, "value": any_value(value) }))
            .collect(),
        // Status: unset, or 2, which is ERROR.
        status: if span.has_failed() { json!({ "code": 2 }) } else { json!({}) },
    }
}

/// `AnyValue` of the protocol; whole numbers of 64 bits are texts in protobuf's JSON.
fn any_value(value: &AttributeValue) -> Json {
    match value {
        AttributeValue::Text(text) => json!({ "stringValue": text }),
        AttributeValue::Int(number) => json!({ "intValue": number.to_string() }),
        AttributeValue::Texts(texts) => {
            let values: Vec<Json> = texts.iter().map(|text| json!({ "stringValue": text })).collect();
            json!({ "arrayValue": { "values": values } })
        }
    }
}
