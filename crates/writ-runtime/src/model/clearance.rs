//! Limits a model call to models that are cleared for its content, or withholds the rest from the request.

use std::collections::BTreeSet;

use writ_inspect::withhold;
use writ_models::failover::Course;
use writ_models::{ModelRole, Models};
use writ_store::memory::Secrets;
use writ_types::chat::ModelRequest;
use writ_types::error::{Exit, Report};
use writ_types::taint::{Clearance, Label};

use crate::place::CallPlace;
use crate::services::Services;

/// Clearance result of a request: its label, the reason for the choice of models, and the withheld parts.
#[derive(Debug)]
pub(super) struct Cleared {
    /// Label of the content that is sent.
    pub(super) label: Label,
    /// Reason that models were left out; empty if none were.
    pub(super) why: String,
    /// The marks that stand for what is withheld, and may stand in the answer; none: nothing is.
    pub(super) hidden: BTreeSet<usize>,
}

/// Decides if secret memories are recalled automatically. They are not if no model that answers the owner is
/// cleared for them: they would be withheld, and all other content beside them would count as secret from
/// then on.
pub(crate) fn secrets(services: &Services) -> Secrets {
    let hears = |models: &Models| {
        let mut routes = models.routes().chain(ModelRole::Executor).all();
        routes.any(|route| route.provider.clearance >= Clearance::Secret)
    };
    if services.outside.models.get().is_some_and(hears) { Secrets::Told } else { Secrets::Kept }
}

/// Leaves in a course only the routes that are cleared for the request. If there are none, it leaves those
/// with the highest clearance and removes from the request the content that they may not receive.
///
/// # Errors
///
/// If too much would have to be removed. Then no model may be asked.
pub(super) fn clear(
    place: &CallPlace,
    (models, role): (&Models, ModelRole),
    (request, label): (&mut ModelRequest, &Label),
    course: &mut Course,
) -> Result<Cleared, Report> {
    let routes: Vec<_> = models.routes().chain(role).all().collect();
    let cleared = routes.iter().map(|route| route.provider.clearance);
    let (least, most) = (cleared.clone().min().unwrap_or_default(), cleared.max().unwrap_or_default());
    let mut label = label.clone();
    label.secret = place.session.state().secrecy.hears_secrets(label.secret);
    let mut needed = label.clearance();
    if least == Clearance::Public && needed == Clearance::Public && withhold::is_personal(request) {
        needed = Clearance::Personal;
    }
    if needed <= least {
        return Ok(Cleared { label, why: String::new(), hidden: BTreeSet::new() });
    }
    let bound = needed.min(most);
    for route in routes.into_iter().filter(|route| route.provider.clearance < bound) {
        course.skip_unfit(route, &format!("{} has a lower clearance", route.provider.name));
    }
    if needed <= most {
        let why = format!("it would receive {needed} content: models of lower clearance are left out");
        return Ok(Cleared { label, why, hidden: BTreeSet::new() });
    }
    let hidden = place.session.state().secrecy.withheld.hide_content(request, most);
    let hidden = hidden.map_err(|error| {
        Report::new(Exit::Denied, "model.clearance", error.to_string())
            .with_hint("name a model with a provider of higher clearance, or begin a new conversation")
    })?;
    label.secret = false;
    label.private &= most > Clearance::Public;
    let why =
        format!("it would receive {needed} content, and no model is cleared for that: the rest is withheld");
    Ok(Cleared { label, why, hidden })
}
