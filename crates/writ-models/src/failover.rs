//! The choice of the next route. Each attempt needs a permit of its own, so this decides and does not call.
//!
//! A [`Course`] follows one call along the routes of its role. A failure that may pass (a 429, a 5xx, a
//! broken connection) moves the call on to the next route at once; when every route has failed so, the one
//! that may be asked soonest is asked again after its wait. After any other failure the call does not use
//! that route again.
//!
//! [`RouteExperience`] is shared by calls: the time until which a provider must not be asked, and the routes that
//! failed so often, other than in passing, that they come last for a while. A breaker chooses between routes;
//! it never leaves a person without one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use writ_types::error::{Report, ToReport as _};
use writ_types::unit::Timestamp;

use crate::error::{Failure, Feature, ModelError};
use crate::provider::{Chain, Route};
use crate::retry::{Backoff, MAX_WAIT};

/// Failures in a row, other than passing ones, after which a route comes last (design 3.10).
pub const BREAKER_FAILURES: u32 = 3;

/// For how long it does (SIL-081). After that, one more failure is enough.
pub const BREAKER_COOLDOWN: Duration = Duration::from_secs(5 * 60);

/// The most routes that are remembered; the configuration names a handful.
const MAX_ROUTES: usize = 256;

/// The experience of earlier calls with the routes. A part of it is stored, so that it holds over a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteExperience {
    routes: BTreeMap<(String, String), RouteHealth>,
    /// Raised with each change.
    changes: u64,
}

/// The experience with one route.
///
/// An earlier version stored the limits of providers as well: fields that are not known are passed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteHealth {
    /// Failures in a row.
    #[serde(default)]
    pub failures: u32,
    /// Until when it comes last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_until: Option<Timestamp>,
    /// Before when its provider does not want to be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_until: Option<Timestamp>,
}

/// The stored form of the experience with one route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredHealth {
    /// The provider.
    pub provider: String,
    /// The model.
    pub model: String,
    /// The experience.
    pub health: RouteHealth,
}

fn route_key(route: &Route) -> (String, String) {
    (route.provider.name.clone(), route.model.clone())
}

impl RouteExperience {
    /// A route has answered.
    pub fn record_answer(&mut self, route: &Route) {
        if self.routes.remove(&route_key(route)).is_some() {
            self.changes = self.changes.saturating_add(1);
        }
    }

    /// Returns a number that is another one after each change.
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the experience with a route.
    pub fn health_of(&self, route: &Route) -> RouteHealth {
        self.routes.get(&route_key(route)).copied().unwrap_or_default()
    }

    /// Returns what is stored.
    pub fn to_stored(&self) -> Vec<StoredHealth> {
        let stored = |((provider, model), health): (&(String, String), &RouteHealth)| StoredHealth {
            provider: provider.clone(),
            model: model.clone(),
            health: *health,
        };
        self.routes.iter().map(stored).collect()
    }

    /// Makes the experience of what was stored. Waits from before are bounded, since clocks may have been set back.
    pub fn from_stored(stored: Vec<StoredHealth>, now: Timestamp) -> Self {
        let bounded = |until: Option<Timestamp>, longest: Duration| {
            until.filter(|until| *until > now).map(|until| until.min(now.plus_duration(longest)))
        };
        let routes = stored.into_iter().take(MAX_ROUTES).map(|StoredHealth { provider, model, health }| {
            let health = RouteHealth {
                open_until: bounded(health.open_until, BREAKER_COOLDOWN),
                held_until: bounded(health.held_until, MAX_WAIT),
                ..health
            };
            ((provider, model), health)
        });
        Self { routes: routes.collect(), changes: 0 }
    }

    /// A route has failed.
    pub fn record_failure(&mut self, route: &Route, error: &ModelError, now: Timestamp) {
        let key = route_key(route);
        // The map is bounded, since the model's name comes from the configuration of each home.
        if !error.failure.is_of_the_route()
            || (self.routes.len() >= MAX_ROUTES && !self.routes.contains_key(&key))
        {
            return;
        }
        let before = self.routes.get(&key).copied().unwrap_or_default();
        let mut known = before;
        // A wait that the provider asks for applies to all of its models.
        if let Some(wait) = error.failure.retry_after() {
            known.held_until = Some(now.plus_duration(wait));
        }
        // A request that is too long or has what the model does not take says nothing of how the route would do with another.
        if !error.failure.is_transient() && !error.failure.is_of_the_request() {
            known.failures = known.failures.saturating_add(1);
            if known.failures >= BREAKER_FAILURES {
                known.open_until = Some(now.plus_duration(BREAKER_COOLDOWN));
            }
        }
        if known != before {
            self.routes.insert(key, known);
            self.changes = self.changes.saturating_add(1);
        }
    }

    /// Returns true if a route comes last now.
    pub fn is_open(&self, route: &Route, now: Timestamp) -> bool {
        self.routes.get(&route_key(route)).and_then(|known| known.open_until).is_some_and(|until| now < until)
    }

    /// Returns the time before which a route's provider must not be asked, for any model.
    fn held_until(&self, route: &Route) -> Option<Timestamp> {
        let same = self.routes.iter().filter(|((provider, _), _)| *provider == route.provider.name);
        same.filter_map(|(_, known)| known.held_until).max()
    }
}

/// The next attempt: over which route, and how long to wait before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextAttempt {
    /// The route.
    pub route: Route,
    /// The wait.
    pub wait: Duration,
}

/// One call on its way along the routes of its role.
#[derive(Debug)]
pub struct Course {
    stations: Vec<Station>,
    backoff: Backoff,
}

/// A route, and how this call fared there.
#[derive(Debug)]
struct Station {
    route: Route,
    tries: u32,
    /// Before when it is not asked again.
    not_before: Option<Timestamp>,
    /// It is not asked again.
    out: bool,
    /// The parts of the request that it has refused, and that it is now asked without.
    left_out: BTreeSet<Feature>,
    /// The last failure: for people, and without the provider's own message.
    cause: Option<(String, String)>,
}

impl Course {
    /// A call that is about to begin.
    pub fn new(chain: &Chain, backoff: Backoff) -> Self {
        let station = |route: &Route| Station {
            route: route.clone(),
            tries: 0,
            not_before: None,
            out: false,
            left_out: BTreeSet::new(),
            cause: None,
        };
        Self { stations: chain.all().map(station).collect(), backoff }
    }

    /// Returns the next attempt; `None`: every route has failed.
    pub fn next_step(&self, health: &RouteExperience, now: Timestamp) -> Option<NextAttempt> {
        let possible = self.stations.iter().filter(|station| !station.out).map(|station| {
            let until = station.not_before.max(health.held_until(&station.route));
            let wait = until.map_or(Duration::ZERO, |until| until.time_since(now));
            (health.is_open(&station.route, now), wait, station)
        });
        // Of equals, the first in the configured order.
        // An open breaker comes last, but it is still asked when nothing else is left.
        let (_, wait, station) = possible.min_by_key(|(open, wait, _)| (*open, *wait))?;
        Some(NextAttempt { route: station.route.clone(), wait })
    }

    /// Records a failed attempt. [`Course::next_step`] returns the next step.
    pub fn record_failure(&mut self, route: &Route, error: &ModelError, now: Timestamp) {
        // Text that was shown is not repeated by another model; a failure that is not the route's happens
        // everywhere.
        // Text that was shown cannot be taken back, so no other route may answer again.
        let over = error.begun || !error.failure.is_of_the_route();
        let backoff = self.backoff;
        for station in &mut self.stations {
            station.out |= over;
            if station.route == *route {
                station.tries = station.tries.saturating_add(1);
                station.cause = Some((error.text_for_people(), error.to_string()));
                // The next request goes without the part that was refused, so it is another one: at once, and once for each part.
                if let Failure::Unsupported { feature, .. } = &error.failure
                    && feature.may_be_left_out()
                    && !over
                    && station.left_out.insert(*feature)
                {
                    continue;
                }
                match backoff.wait_before(error, station.tries) {
                    Some(wait) => station.not_before = Some(now.plus_duration(wait)),
                    None => station.out = true,
                }
            }
        }
    }

    /// A route cannot be asked for this at all.
    pub fn skip_unfit(&mut self, route: &Route, why: &str) {
        for station in self.stations.iter_mut().filter(|station| station.route == *route) {
            station.out = true;
            station.cause = Some((why.to_owned(), why.to_owned()));
        }
    }

    /// Returns true if the report has a message in a provider's own words.
    pub fn quotes_providers(&self) -> bool {
        self.stations.iter().filter_map(|station| station.cause.as_ref()).any(|(told, plain)| told != plain)
    }

    /// Returns the report of the end: the last error, and with several routes the causes of all. Its inside
    /// text leaves out the providers' own messages.
    pub fn final_report(&self, last: &ModelError) -> Report {
        let report = last.report();
        let causes: Vec<&(String, String)> =
            self.stations.iter().filter_map(|station| station.cause.as_ref()).collect();
        // With one route there is nothing to compare.
        if causes.len() < 2 {
            return report;
        }
        let all = |texts: Vec<&str>| format!("no model could answer. {}", texts.join("; "));
        let told = all(causes.iter().map(|(told, _)| told.as_str()).collect());
        let plain = all(causes.iter().map(|(_, plain)| plain.as_str()).collect());
        Report::new(report.exit, &report.code, told).with_inside(plain).with_hint(report.hint)
    }
}

#[cfg(test)]
mod tests;
