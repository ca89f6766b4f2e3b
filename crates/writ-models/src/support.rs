//! The parts of requests that routes do not take, learned from their refusals.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use writ_types::chat::ModelRequest;
use writ_types::unit::Timestamp;

use crate::error::Feature;
use crate::provider::Route;

/// For how long a refusal counts. A server may be updated, or its model changed.
pub const LEARNED_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// The most routes and parts that are remembered; the configuration names a handful.
const MAX_LEARNED: usize = 512;

/// Parts that routes refused, by provider, model and part, with the time until which each counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct RefusedParts(BTreeMap<(String, String, Feature), Timestamp>);

impl RefusedParts {
    /// Learns from a refusal.
    pub(crate) fn learn_refusal(&mut self, route: &Route, feature: Feature, now: Timestamp) {
        let key = (route.provider.name.clone(), route.model.clone(), feature);
        if self.0.len() < MAX_LEARNED || self.0.contains_key(&key) {
            self.0.insert(key, now.plus_duration(LEARNED_FOR));
        }
    }

    fn is_refused(&self, route: &Route, feature: Feature, now: Timestamp) -> bool {
        let key = (route.provider.name.clone(), route.model.clone(), feature);
        self.0.get(&key).is_some_and(|until| now < *until)
    }

    /// Returns the request without the parts that the route refused and that may be left out.
    pub(crate) fn fit_request(
        &self,
        route: &Route,
        request: Arc<ModelRequest>,
        now: Timestamp,
    ) -> Arc<ModelRequest> {
        let without_form = request.form.is_some() && self.is_refused(route, Feature::Form, now);
        let without_effort = request.effort.is_some() && self.is_refused(route, Feature::Effort, now);
        if !without_form && !without_effort {
            return request;
        }
        let mut request = Arc::unwrap_or_clone(request);
        request.form = request.form.filter(|_| !without_form);
        request.effort = request.effort.filter(|_| !without_effort);
        Arc::new(request)
    }
}
