//! The kinds of action that a session may perform, by the purpose of the session.

use std::collections::BTreeSet;

use writ_inspect::scope::{ANY, Dimension, WORK};
use writ_policy::keys::grants::Grants;
use writ_types::action::ActionKind;
use writ_types::recipient::Recipient;

/// The kinds of action that the planner may perform while it answers a question of the autopilot: those that change nothing.
pub(super) const QUESTION_KINDS: [ActionKind; 5] = [
    ActionKind::ModelCall,
    ActionKind::ReadFile,
    ActionKind::ReadResult,
    ActionKind::Recall,
    ActionKind::Search,
];

/// Returns those of a session's grants that work on a plan needs: none for memories, for further plans, or for effects that outlast
/// the plan.
pub(crate) fn work_kinds(own: Grants) -> impl Iterator<Item = (ActionKind, BTreeSet<(Dimension, String)>)> {
    let kinds = [
        ActionKind::Exec,
        ActionKind::ReadFile,
        ActionKind::WriteFile,
        ActionKind::ModelCall,
        ActionKind::Fetch,
        ActionKind::Search,
        ActionKind::Say,
    ];
    own.kinds.into_iter().filter(move |(kind, _)| kinds.contains(kind))
}

/// Returns the grants of the owner's own agent: every kind of action that it may ever perform. The task key of each session
/// limits the places.
pub(crate) fn base_grants() -> Grants {
    Grants::default()
        .allow_kind(ActionKind::Exec, [(Dimension::Profile, ANY), (Dimension::Host, ANY)])
        .allow_kind(ActionKind::Fetch, [(Dimension::Host, ANY), (Dimension::Path, WORK)])
        .allow_kind(ActionKind::Connect, [(Dimension::Host, ANY)])
        .allow_kind(ActionKind::Search, [(Dimension::Host, ANY)])
        .allow_kind(ActionKind::Plan, [])
        .allow_kind(
            ActionKind::Subscribe,
            [(Dimension::Host, ANY), (Dimension::Path, WORK), (Dimension::Name, ANY)],
        )
        .allow_kind(ActionKind::ReadFile, [(Dimension::Path, WORK)])
        .allow_kind(ActionKind::WriteFile, [(Dimension::Place, ANY), (Dimension::Path, ANY)])
        .allow_kind(ActionKind::Recall, [(Dimension::Memory, ANY)])
        .allow_kind(ActionKind::ReadResult, [(Dimension::Memory, ANY)])
        .allow_kind(ActionKind::Remember, [(Dimension::Memory, ANY)])
        .allow_kind(ActionKind::Forget, [(Dimension::Memory, ANY)])
        .allow_kind(ActionKind::Say, [(Dimension::Recipient, Recipient::Owner.as_str())])
        .allow_kind(
            ActionKind::SendFile,
            [(Dimension::Recipient, Recipient::Owner.as_str()), (Dimension::Path, WORK)],
        )
        .allow_kind(ActionKind::ModelCall, [(Dimension::Provider, ANY)])
        // Its documents, of its own files, and the list of tools, which no tool of a model writes.
        .allow_kind(
            ActionKind::ModifySelf,
            [(Dimension::Path, "/agent/docs"), (Dimension::Path, "/agent/tools.toml")],
        )
        .allow_kind(ActionKind::CallTool, [(Dimension::Name, ANY), (Dimension::Host, ANY)])
        // No tool of a model leads to it: the autopilot pushes what is merged, each time by its owner's yes.
        .allow_kind(ActionKind::Vcs, [(Dimension::Path, ANY), (Dimension::Name, ANY)])
}

/// Returns the widest grants of a session: those of a session that the owner has opened on this folder.
pub(crate) fn widest(project: Option<&str>) -> Grants {
    let mut write = vec![(Dimension::Place, "overlay"), (Dimension::Path, WORK)];
    if let Some(project) = project {
        write.extend([(Dimension::Place, "project"), (Dimension::Path, project)]);
    }
    let mut grants = base_grants();
    // No session may forget memories, and its writes are limited to its own folder.
    grants.kinds.remove(&ActionKind::Forget);
    grants.kinds.remove(&ActionKind::WriteFile);
    grants.kinds.remove(&ActionKind::Vcs);
    if let Some(project) = project {
        grants = grants.allow_kind(ActionKind::Vcs, [(Dimension::Path, project), (Dimension::Name, ANY)]);
    }
    grants.allow_kind(ActionKind::WriteFile, write)
}
