//! The second step of a call: one attempt, for one permit.

mod attempt;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use writ_egress::Egress;
use writ_policy::permit::Permit;
use writ_types::api::model::{ProviderLimits, StatedLimits};
use writ_types::chat::{ModelReply, ModelRequest, Usage};
use writ_types::credential::CredentialRef;
use writ_types::digest::Digest;
use writ_types::unit::{MicroUsd, Timestamp, Tokens};

use crate::catalogue::{Catalogue, ModelInfo, Price, PricedModel};
use crate::config::{ModelRole, ModelsConfig};
use crate::credential::{CredentialError, CredentialSource};
use crate::error::{ContextSizes, Failure, ModelError};
use crate::failover::{Course, NextAttempt, RouteExperience, RouteHealth, StoredHealth};
use crate::plan::{PlanError, PlannedCall};
use crate::provider::{ModelsConfigError, Provider, Route, Routes};
use crate::rate::RateBoard;
use crate::retry::Backoff;
use crate::support::RefusedParts;
use crate::window::LearnedWindows;

pub(crate) use attempt::Attempt;

/// More of an answer, as it comes. Not final: the answer is what [`Models::call`] returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta {
    /// More text.
    Text(String),
    /// A tool call has begun; its arguments are still coming.
    Call {
        /// The provider's id of the call.
        id: String,
        /// The tool's name.
        name: String,
    },
}

/// The models that are configured.
pub struct Models {
    routes: Routes,
    catalogue: Catalogue,
    credentials: Arc<dyn CredentialSource>,
    egress: Arc<Egress>,
    limits: CallLimits,
    backoff: Backoff,
    health: Mutex<RouteExperience>,
    windows: Mutex<LearnedWindows>,
    refused: Mutex<RefusedParts>,
    rates: RateBoard,
    found: Option<String>,
}

/// The time limits of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallLimits {
    pub(crate) request: Duration,
    pub(crate) answer: Duration,
}

impl std::fmt::Debug for Models {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Models").field("routes", &self.routes).finish_non_exhaustive()
    }
}

impl Models {
    /// Resolves the configuration. Keys are resolved with each call, so that a changed key counts at once.
    ///
    /// # Errors
    ///
    /// If the configuration is incomplete or names what is not there.
    pub fn new(
        config: &ModelsConfig,
        credentials: Arc<dyn CredentialSource>,
        egress: Arc<Egress>,
    ) -> Result<Self, ModelsConfigError> {
        let limits = CallLimits {
            request: Duration::from_millis(config.models.request_timeout_ms),
            answer: Duration::from_millis(config.models.answer_timeout_ms),
        };
        let (routes, catalogue) = (Routes::new(config)?, Catalogue::with_own(&config.models.prices)?);
        let named = |route: &Route| (route.provider.name.clone(), route.model.clone());
        let unknown = routes.named().map(named);
        let unknown = unknown.filter(|(provider, model)| !catalogue.model_info(provider, model).known);
        // One warning for each model, also where several roles use it.
        for (provider, model) in unknown.collect::<BTreeSet<_>>() {
            tracing::warn!(provider, model, "unknown model: cautious limits, price unknown");
        }
        Ok(Self {
            routes,
            catalogue,
            credentials,
            egress,
            limits,
            backoff: Backoff::new(&config.models),
            health: Mutex::default(),
            windows: Mutex::default(),
            refused: Mutex::default(),
            rates: RateBoard::default(),
            found: None,
        })
    }

    /// The same, with a word on how its model was found where none was configured.
    #[must_use]
    pub fn with_found(mut self, found: Option<String>) -> Self {
        self.found = found;
        self
    }

    /// Returns the model that detection found, and its place; `None`: it was configured.
    pub fn detected_model(&self) -> Option<&str> {
        self.found.as_deref()
    }

    /// Returns the routes of each role.
    pub const fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Returns the rules for trying again after a failure. Each try needs a permit of its own.
    pub const fn backoff(&self) -> Backoff {
        self.backoff
    }

    /// A call that is about to begin along the routes of a role. Each attempt needs a permit of its own: ask
    /// [`Models::next`] over which route, plan it there, and say with [`Models::failed`] or [`Models::answered`]
    /// what came of it.
    pub fn start_course(&self, role: ModelRole) -> Course {
        self.start_course_for(None, role)
    }

    /// The same for a call of a skill, which may have a model of its own.
    pub fn start_course_for(&self, skill: Option<&str>, role: ModelRole) -> Course {
        Course::new(self.routes.chain_for(skill, role), self.backoff)
    }

    /// Returns true if a role has a model of its own, other than the default one.
    pub fn has_own_route(&self, role: ModelRole) -> bool {
        self.routes.has_own(role)
    }

    /// A call that is about to begin with a route of the caller's choice, then along the routes of a role.
    pub fn start_course_with(&self, first: Route, role: ModelRole) -> Course {
        Course::new(&self.routes.chain(role).with_first(first), self.backoff)
    }

    /// The next attempt of a call; `None`: it is over.
    pub fn next(&self, course: &Course, now: Timestamp) -> Option<NextAttempt> {
        course.next_step(&self.route_health(), now)
    }

    /// Notes that an attempt over `route` failed.
    pub fn failed(&self, course: &mut Course, route: &Route, error: &ModelError, now: Timestamp) {
        if let Failure::Unsupported { feature, .. } = &error.failure {
            self.refused_parts().learn_refusal(route, *feature, now);
        }
        course.record_failure(route, error, now);
        self.route_health().record_failure(route, error, now);
        if let Some(next) = self.next(course, now).filter(|next| next.route != *route) {
            let (failed, next) = (route.model_name(), next.route.model_name());
            tracing::warn!(failed, next, code = error.failure.code(), "another model is asked");
        }
    }

    /// Returns the experience with a route: failures, waits, limits.
    pub fn health_of(&self, route: &Route) -> RouteHealth {
        self.route_health().health_of(route)
    }

    /// Shows the limits of its rate that each provider has stated last, since the engine began. They are for people: no decision about a
    /// call reads them.
    pub fn show_rate_limits(&self) -> Vec<ProviderLimits> {
        self.rates.show_all()
    }

    /// Shows those of the provider of a route.
    pub fn show_rate_limits_of(&self, route: &Route) -> Option<StatedLimits> {
        self.rates.show_provider(&route.provider.name)
    }

    /// Returns true if a route comes last now because it failed too often.
    pub fn is_open(&self, route: &Route, now: Timestamp) -> bool {
        self.route_health().is_open(route, now)
    }

    /// Returns the experience with all routes, to be stored, if it is another one than at change `seen`.
    pub fn changed_experience(&self, seen: u64) -> Option<(u64, Vec<StoredHealth>)> {
        let health = self.route_health();
        (health.changes() != seen).then(|| (health.changes(), health.to_stored()))
    }

    /// Begins with the experience that was stored.
    pub fn restore_experience(&self, stored: Vec<StoredHealth>, now: Timestamp) {
        *self.route_health() = RouteExperience::from_stored(stored, now);
    }

    /// Returns the price of the model of a route; `None`: it is not known.
    pub fn price_over(&self, route: &Route, now: Timestamp) -> Option<&Price> {
        self.catalogue.price_at(&route.provider.name, &route.model, now)
    }

    /// Returns every price that counts at `now`.
    pub fn prices_at(&self, now: Timestamp) -> Vec<PricedModel<'_>> {
        self.catalogue.prices_at(now)
    }

    /// Notes that an attempt over `route` succeeded.
    pub fn answered(&self, route: &Route) {
        self.route_health().record_answer(route);
    }

    /// Returns the tokens that the model of a route takes, request and answer together, estimated: from the
    /// catalogue, or from its recent refusals. `None`: nothing is known of it.
    pub fn context_room(&self, route: &Route, now: Timestamp) -> Option<Tokens> {
        let (provider, model) = (&route.provider.name, &route.model);
        let info = self.catalogue.model_info(provider, model);
        let known = info.known.then_some(info.context_window);
        let learned = self.learned_windows().learned_window(provider, model, now);
        // Both are limits: the smaller one is the one that a request runs into.
        match (known, learned) {
            (Some(known), Some(learned)) => Some(known.min(learned)),
            (known, learned) => known.or(learned),
        }
    }

    fn refused_parts(&self) -> MutexGuard<'_, RefusedParts> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn learned_windows(&self) -> MutexGuard<'_, LearnedWindows> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn route_health(&self) -> MutexGuard<'_, RouteExperience> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says what a call over a route would be, for the door to judge. `now` decides which price counts. Parts of the
    /// request that the route has refused are left out where it means the same without them.
    ///
    /// # Errors
    ///
    /// As [`Models::plan`].
    pub fn plan_over(
        &self,
        route: &Route,
        request: Arc<ModelRequest>,
        now: Timestamp,
    ) -> Result<PlannedCall, PlanError> {
        let request = self.refused_parts().fit_request(route, request, now);
        PlannedCall::new(route, request, &self.catalogue, now)
    }

    /// Says what a call over a role's first route would be, for the door to judge. `now` decides which price counts.
    ///
    /// # Errors
    ///
    /// If the request cannot be digested, or offers tools to a model that has none.
    pub fn plan(
        &self,
        role: ModelRole,
        request: Arc<ModelRequest>,
        now: Timestamp,
    ) -> Result<PlannedCall, PlanError> {
        self.plan_over(self.routes.route(role), request, now)
    }

    /// Returns the cost of a call; `None`: the price is not known.
    pub fn call_cost(&self, planned: &PlannedCall, usage: &Usage, now: Timestamp) -> Option<MicroUsd> {
        let call = planned.model_call();
        self.catalogue.price_at(&call.provider, &call.model, now).map(|price| price.cost_of(usage))
    }

    /// Returns the properties of the model of a route.
    pub fn model_info(&self, route: &Route) -> ModelInfo {
        self.catalogue.model_info(&route.provider.name, &route.model)
    }

    /// Returns the cost of this usage over a route; `None`: the price is not known.
    pub fn cost_over(&self, route: &Route, usage: &Usage, now: Timestamp) -> Option<MicroUsd> {
        self.catalogue.price_at(&route.provider.name, &route.model, now).map(|price| price.cost_of(usage))
    }

    /// Makes one attempt at a planned call. Text goes to `deltas` as it comes; a slow receiver slows the
    /// stream down, a closed one is ignored. Dropping the future or cancelling closes the connection.
    ///
    /// # Errors
    ///
    /// If the permit is for another action or has expired, or the model did not give a whole answer. Then
    /// nothing of the answer is final, even if deltas were sent.
    pub async fn call(
        &self,
        permit: Permit,
        planned: &PlannedCall,
        deltas: mpsc::Sender<Delta>,
        cancel: CancellationToken,
        now: Timestamp,
    ) -> Result<ModelReply, ModelError> {
        let number = permit.attempt().to_string();
        let called = self.check_permit(permit, planned, deltas, cancel, now).await;
        called.inspect_err(|error| log_call(error, &number))
    }

    async fn check_permit(
        &self,
        permit: Permit,
        planned: &PlannedCall,
        deltas: mpsc::Sender<Delta>,
        cancel: CancellationToken,
        now: Timestamp,
    ) -> Result<ModelReply, ModelError> {
        // A permit for one request must not carry another one.
        if *permit.action() != planned.action() {
            return Err(failed(planned, Failure::OtherPermit));
        }
        let key = self.resolve_key(planned).await?;
        let identity = connection_identity(planned, key.as_ref());
        let rates = &self.rates;
        let attempt = Attempt { planned, key: key.clone(), limits: self.limits, deltas, cancel, rates };
        let answer = match self.egress.perform_as(identity, permit, now, |lent| attempt.run(lent)).await {
            Ok(answer) => answer,
            Err(error) => Err(failed(planned, Failure::Egress(error))),
        };
        // The provider may repeat the key in its message, so the message is cleaned with the key at hand.
        let answer = answer.map_err(|mut error| {
            error.failure.clean_words(key.as_ref());
            error
        });
        // A cut request is noticed by its count of tokens; a refused one names sizes itself.
        let sizes = match &answer {
            Ok(reply) => planned.cut_to(&reply.usage).map(|read| ContextSizes {
                window: Some(read.saturating_add(reply.usage.output)),
                sent: None,
            }),
            Err(ModelError { failure: Failure::ContextLength { sizes, .. }, .. }) => Some(*sizes),
            Err(_) => None,
        };
        if let Some(sizes) = sizes {
            self.learned_windows().learn_window(planned, sizes, now);
        }
        answer
    }

    pub(crate) async fn resolve_credential(
        &self,
        key: &CredentialRef,
    ) -> Result<SecretString, CredentialError> {
        self.credentials.resolve(key).await
    }

    /// Returns the time limit of the first byte of an answer.
    pub(crate) const fn request_limit(&self) -> Duration {
        self.limits.request
    }

    pub(crate) const fn rates(&self) -> &RateBoard {
        &self.rates
    }

    pub(crate) fn egress(&self) -> &Egress {
        &self.egress
    }

    async fn resolve_key(&self, planned: &PlannedCall) -> Result<Option<SecretString>, ModelError> {
        let Some(key) = &planned.provider().key else { return Ok(None) };
        let resolved = self.credentials.resolve(key).await;
        resolved.map(Some).map_err(|cause| failed(planned, Failure::NoCredential { key: key.clone(), cause }))
    }
}

/// Returns the identity that a connection is reused for: one provider with one key.
fn connection_identity(planned: &PlannedCall, key: Option<&SecretString>) -> Digest {
    let Provider { name, base_url, .. } = planned.provider();
    // Only a digest of the key: the identity is stored beside the connection.
    let key = key.map(|key| Digest::of_bytes(key.expose_secret().as_bytes()).to_string()).unwrap_or_default();
    Digest::of_bytes(format!("{name}\n{base_url}\n{key}").as_bytes())
}

/// Returns the error of a call that failed before any text came.
pub(crate) fn failed(planned: &PlannedCall, failure: Failure) -> ModelError {
    let call = planned.model_call();
    ModelError {
        provider: call.provider.clone(),
        model: call.model.clone(),
        failure,
        usage: Usage::default(),
        begun: false,
    }
}

/// Says in the log that an attempt failed: who, what, which; never prompt or key.
pub(crate) fn log_call(error: &ModelError, attempt: &str) {
    let ModelError { provider, model, failure, .. } = error;
    tracing::warn!(provider, model, attempt, code = failure.code(), "model call failed: {failure}");
}
