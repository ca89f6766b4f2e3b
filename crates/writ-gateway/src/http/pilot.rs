//! The autopilots over HTTP, where a route needs more than one method: the id of a unit has slashes, and a refresh is only queued.

use serde_json::{Map, Value};
use writ_runtime::methods::{PilotRefresh, PilotUnitStateOf};
use writ_types::api::pilot::{PilotRefreshed, PilotSessionQuery, PilotUnitQuery, PilotUnitState};
use writ_types::id::PilotId;

use super::query::QueryField;
use super::reply::Refusal;
use super::route::{ApiRequest, NoBody, call_method};

/// The field of the query that names a session.
const SESSION: &str = "session";

/// Returns the fields of a query that may name a session.
pub(super) fn session_fields() -> Vec<QueryField> {
    vec![QueryField::text_field(SESSION)]
}

fn read_session(query: &Map<String, Value>) -> Result<Option<PilotId>, Refusal> {
    let session = query.get(SESSION).and_then(Value::as_str).map(str::parse::<PilotId>).transpose();
    session.map_err(|_| Refusal::malformed("this is not the id of a session of an autopilot"))
}

/// `GET /api/v1/pilot/units/{unit}`
pub(super) async fn show_unit(request: ApiRequest<NoBody>) -> Result<PilotUnitState, Refusal> {
    let session = read_session(&request.read_query(&session_fields())?)?;
    let query = PilotUnitQuery { unit: request.segment("unit").to_owned(), session };
    call_method::<PilotUnitStateOf>(&request.shared, request.evidence(), &query).await
}

/// `POST /api/v1/pilot/refresh`
pub(super) async fn refresh(request: ApiRequest<NoBody>) -> Result<PilotRefreshed, Refusal> {
    let session = read_session(&request.read_query(&session_fields())?)?;
    call_method::<PilotRefresh>(&request.shared, request.evidence(), &PilotSessionQuery { session }).await
}
