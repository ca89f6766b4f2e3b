//! The move of the target, with the work trees of the user that have it checked out.

use std::path::PathBuf;

use writ_sandbox::git::checkouts::{
    CheckoutHold, MovedCheckout, find_checkouts, judge_checkout, move_checkout,
};
use writ_sandbox::git::refs::{RefChange, RefTransaction, change_refs, read_ref};
use writ_sandbox::git::{BranchName, CommitId, GitFault, RefName};

use crate::error::PilotGitError;
use crate::events::GitEvent;
use crate::merge::TreeCheck;
use crate::recover::{forget_move, is_ours, note_move};
use crate::service::PilotGit;

/// The result of moving a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advance {
    /// It has moved.
    Moved,
    /// It is not where it was when the work began.
    Stale,
    /// It stays: the move was not wanted any longer.
    Withdrawn,
    /// It stays: a work tree of the user cannot move with it.
    Held {
        /// The reference of the commit that it would have moved to.
        at: RefName,
        /// The work tree.
        checkout: PathBuf,
        /// The reason.
        reason: CheckoutHold,
    },
}

/// Moves a target from one commit to another, if it is still at the first and the move is wanted still, together with the user's work
/// trees.
pub(crate) async fn advance_target(
    service: &PilotGit,
    target: &BranchName,
    (old, new): (&CommitId, &CommitId),
    check: &impl TreeCheck,
) -> Result<Advance, PilotGitError> {
    let checkouts = find_checkouts(&service.project, target, |entry| is_ours(&service.root, entry)).await?;
    // Judged before anything is locked: to look is slow, and most reasons are found here.
    for checkout in &checkouts {
        if let Some(reason) = judge_checkout(&service.project, checkout, old, new).await? {
            return hold_commit(service, target, new, checkout.top.clone(), reason).await;
        }
    }
    // Before the locks: a note without a lock is harmless, a lock without a note could be any git's.
    note_move(&service.project, target, old, new)?;
    // Prepared and not committed: the lock keeps other gits out, and giving it up changes nothing.
    let changes = [RefChange::Move { name: target.to_ref(), from: old.clone(), to: new.clone() }];
    let locked = RefTransaction::prepare(&service.project, &changes, "writ: merge of checked work").await;
    let transaction = match locked {
        Err(GitFault::Moved { .. }) => {
            forget_move(&service.project)?;
            return Ok(Advance::Stale);
        }
        other => other?,
    };
    // The branch is locked from here on: no other git can move it while the files are written.
    let mut moved: Vec<MovedCheckout> = Vec::new();
    for checkout in &checkouts {
        match move_checkout(&service.project, checkout, old, new).await {
            Ok(Ok(one)) => moved.push(one),
            Err(fault) => {
                drop(transaction);
                for one in moved {
                    one.move_back(&service.project).await?;
                }
                // The note stays: the next start looks at that work tree again.
                return Err(fault.into());
            }
            Ok(Err(reason)) => {
                // At the end of its input git unlocks the branch, unmoved.
                drop(transaction);
                move_all_back(service, moved).await?;
                return hold_commit(service, target, new, checkout.top.clone(), reason).await;
            }
        }
    }
    // Last: to look, to lock and to write files has taken its time, in which the work may have been stopped or given to another.
    if !check.is_wanted().await {
        drop(transaction);
        move_all_back(service, moved).await?;
        return Ok(Advance::Withdrawn);
    }
    // The branch decides: where it has not moved, files and index must not have either.
    if let Err(fault) = transaction.commit().await {
        move_all_back(service, moved).await?;
        return Err(fault.into());
    }
    // Files, index and branch agree: git may work there again.
    for one in moved {
        one.finish_move()?;
    }
    forget_move(&service.project)?;
    service.emit_event(GitEvent::TargetMoved { target: target.clone(), to: new.clone() });
    Ok(Advance::Moved)
}

async fn move_all_back(service: &PilotGit, moved: Vec<MovedCheckout>) -> Result<(), PilotGitError> {
    for one in moved {
        one.move_back(&service.project).await?;
    }
    forget_move(&service.project)
}

/// Makes a reference to a commit that was checked and could not become the target.
async fn hold_commit(
    service: &PilotGit,
    target: &BranchName,
    commit: &CommitId,
    checkout: PathBuf,
    reason: CheckoutHold,
) -> Result<Advance, PilotGitError> {
    let at = RefName::make_own("held", &format!("{target}-{}", commit.short_form()))?;
    // Another try with the same commit finds the reference of the first.
    if read_ref(&service.project, &at).await?.is_none() {
        let create = RefChange::Create { name: at.clone(), to: commit.clone() };
        change_refs(&service.project, &[create], "writ: held").await?;
    }
    Ok(Advance::Held { at, checkout, reason })
}
