//! The models that a call may reach, and what of its prompt they may read.

use std::collections::BTreeSet;

use writ_inspect::withhold::{self, Withheld};
use writ_models::failover::Course;
use writ_models::provider::Route;
use writ_models::{ModelRole, Models};
use writ_types::chat::ModelRequest;
use writ_types::entry::DenyReason;
use writ_types::taint::{Clearance, Label, Taint};

use super::asking::ClearedRoutes;
use super::{MAIN_MODEL, RoutingError, route_name};

/// Returns the course of a call to the named model, and the routes that it may take. Only the main model has others to fall
/// back on: a program that names a model gets that one.
pub(super) fn find_course(models: &Models, name: &str) -> Result<(Course, Vec<Route>), RoutingError> {
    let chain_of = |role| models.routes().chain(role).all().cloned().collect::<Vec<Route>>();
    if name == MAIN_MODEL {
        return Ok((models.start_course(ModelRole::Executor), chain_of(ModelRole::Executor)));
    }
    let is_named = |route: &&Route| route_name(route) == name || route.model == name;
    for role in ModelRole::ALL {
        let chain = chain_of(role);
        let Some(wanted) = chain.iter().find(is_named).cloned() else { continue };
        let mut course = models.start_course(role);
        for other in chain.iter().filter(|other| **other != wanted) {
            course.skip_unfit(other, "another model was named");
        }
        return Ok((course, vec![wanted]));
    }
    Err(RoutingError::UnknownModel(name.to_owned()))
}

/// Withholds what names persons where one of the providers may read public content alone.
pub(super) fn clear(routes: &[Route], request: &mut ModelRequest) -> Result<ClearedRoutes, RoutingError> {
    let mut withheld = Withheld::default();
    let least = routes.iter().map(|route| route.provider.clearance).min().unwrap_or_default();
    // The proxy has put tokens in place of a customer's data, so text counts as private only where it may be read as such.
    let label = Label { private: least > Clearance::Public, ..Label::new(Taint::External) };
    if least > Clearance::Public || !withhold::is_personal(request) {
        return Ok(ClearedRoutes { label, withheld, hidden: BTreeSet::new() });
    }
    let hidden = withheld
        .hide_content(request, Clearance::Public)
        .map_err(|error| RoutingError::Refused { reason: DenyReason::Shape, text: error.to_string() })?;
    Ok(ClearedRoutes { label, withheld, hidden })
}
