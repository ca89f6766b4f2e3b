//! Opening and finding sessions.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use writ_policy::access::AccessState;
use writ_policy::order::StandingOrder;
use writ_store::batch::{Batch, Op};
use writ_types::entry::HookEvent;
use writ_types::id::SessionId;

use crate::error::EngineError;
use crate::interface::Join;
use crate::orders::session_of;
use crate::services::Services;
use crate::session::{
    ACCESS, CONVERSATION, Ordered, QuestionTerms, SURFACE, Session, SessionTerms, Surface, WorkTerms,
};

fn project_folder(path: &str) -> Result<PathBuf, EngineError> {
    let unusable = |why: String| EngineError::Project(why);
    let path = std::fs::canonicalize(path).map_err(|e| unusable(e.to_string()))?;
    if !path.is_dir() {
        return Err(unusable("it is not a folder".to_owned()));
    }
    if path.to_str().is_none_or(|text| text.chars().any(char::is_control)) {
        return Err(unusable("its path has characters that cannot be shown".to_owned()));
    }
    if path.parent().is_none() {
        return Err(unusable("it is the root of the file system".to_owned()));
    }
    Ok(path)
}

/// The session for a client that names none.
pub(crate) async fn find_or_open(services: &Services, join: &Join) -> Result<Arc<Session>, EngineError> {
    let shared = join.conversation.is_some() || (join.surface == Surface::Page && join.project.is_none());
    let _opening = if shared { Some(services.sessions.opening.lock().await) } else { None };
    let known = match (&join.conversation, join.surface) {
        (Some(name), _) => services.sessions.newest_with(CONVERSATION, name).await?,
        (None, Surface::Page) if join.project.is_none() => {
            services.sessions.newest_with(SURFACE, Surface::Page.as_str()).await?
        }
        (None, Surface::Page | Surface::Local | Surface::Api | Surface::Work | Surface::Engine) => None,
    };
    if let Some(id) = known {
        return services.sessions.get(id).await;
    }
    let project = join.project.as_deref();
    let session = open_session(services, project, join.write, join.dry_run, join.surface).await?;
    if let Some(name) = &join.conversation {
        let (key, value) = (CONVERSATION.to_owned(), Some(Value::from(name.as_str())));
        let op = Op::SetSessionMetadata { session: session.id, key, value };
        services.journal.store.commit(Batch::relaxed(vec![op])).await?;
    }
    Ok(session)
}

/// Opens a session.
///
/// # Errors
///
/// If the project's folder cannot be used, or the store cannot be written.
pub(crate) async fn open_session(
    services: &Services,
    project: Option<&str>,
    write: bool,
    dry_run: bool,
    surface: Surface,
) -> Result<Arc<Session>, EngineError> {
    let project = project.map(project_folder).transpose()?;
    let terms = SessionTerms { project, write, dry_run, ..SessionTerms::default() };
    create(services, services.journal.ids.session(services.journal.clock.now()), terms, surface).await
}

/// Opens the session of a standing order.
///
/// # Errors
///
/// As [`open_session`].
pub(crate) async fn open_under(
    services: &Services,
    order: &StandingOrder,
) -> Result<Arc<Session>, EngineError> {
    let claims = order.claims();
    let project = claims.project.as_deref().map(project_folder).transpose()?;
    let ordered = Ordered { id: claims.order, claims: Some(Arc::new(claims.clone())) };
    let terms = SessionTerms { project, order: Some(ordered), ..SessionTerms::default() };
    create(services, session_of(claims.order)?, terms, Surface::Local).await
}

/// Opens a session in which others speak: nothing is approved in advance in it. The owner's records about the customer, if one is
/// named, are in its state of access, and so in its context.
///
/// # Errors
///
/// As [`open_session`].
pub(crate) async fn open_relayed(
    services: &Services,
    (project, customer): (Option<&str>, Option<&str>),
    dry_run: bool,
    surface: Surface,
) -> Result<Arc<Session>, EngineError> {
    let project = project.map(project_folder).transpose()?;
    // Read first, so that a name that is wrong leaves no session behind.
    let known = match customer {
        Some(name) => services
            .outside
            .home_files
            .customer_context(name)
            .await
            .map_err(|report| EngineError::HomeFile(Box::new(report)))?,
        None => BTreeMap::new(),
    };
    let terms = SessionTerms { project, dry_run, relayed: true, ..SessionTerms::default() };
    let id = services.journal.ids.session(services.journal.clock.now());
    let session = create(services, id, terms, surface).await?;
    if !known.is_empty() {
        let access = AccessState::default().with_context(known);
        let value = serde_json::to_value(&access).ok();
        session.state().gates.access = access;
        let op = Op::SetSessionMetadata { session: session.id, key: ACCESS.to_owned(), value };
        services.journal.store.commit(Batch::relaxed(vec![op])).await?;
    }
    Ok(session)
}

/// Opens the session in which the steps of a work item run.
///
/// # Errors
///
/// As [`open_session`].
pub(crate) async fn open_for_work(
    services: &Services,
    project: Option<&str>,
    work: WorkTerms,
) -> Result<Arc<Session>, EngineError> {
    let project = project.map(project_folder).transpose()?;
    let terms = SessionTerms { project, work: Some(work), ..SessionTerms::default() };
    create(services, services.journal.ids.session(services.journal.clock.now()), terms, Surface::Work).await
}

/// Opens the session in which the planner answers a question of the autopilot.
///
/// # Errors
///
/// As [`open_session`].
pub(crate) async fn open_for_question(
    services: &Services,
    project: &str,
    question: QuestionTerms,
) -> Result<Arc<Session>, EngineError> {
    let project = Some(project_folder(project)?);
    let terms = SessionTerms { project, question: Some(question), ..SessionTerms::default() };
    create(services, services.journal.ids.session(services.journal.clock.now()), terms, Surface::Work).await
}

/// Creates a session and calls the hooks that wait for it.
async fn create(
    services: &Services,
    id: SessionId,
    terms: SessionTerms,
    surface: Surface,
) -> Result<Arc<Session>, EngineError> {
    let session = services.sessions.create(id, terms, surface).await?;
    services.gates.tell_of_session(&session, HookEvent::SessionCreated).await?;
    Ok(session)
}
