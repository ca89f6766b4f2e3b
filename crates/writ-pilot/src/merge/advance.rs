//! The move of the target, with the work trees of the user that have it checked out.

use std::path::PathBuf;

use writ_sandbox::git::checkouts::{
    CheckoutHold, MovedCheckout, find_checkouts, judge_checkout, move_checkout,
};
use writ_sandbox::git::refs::{RefChange, RefTransaction, change_refs, read_ref};
use writ_sandbox::git::{BranchName, CommitId, GitFault, RefName};

use crate::error::PilotGitError;
use crate::events::GitEvent;
use crate::recover::{forget_move, is_ours, note_move};
use crate::service::PilotGit;

/// The result of moving a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advance {
    /// It has moved.
    Moved,
    /// It is not where it was when the work began.
    Stale,
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

impl PilotGit {
    /// Moves a target from one commit to another, if it is still at the first, together with the user's work trees.
    pub(crate) async fn advance_target(
        &self,
        target: &BranchName,
        old: &CommitId,
        new: &CommitId,
    ) -> Result<Advance, PilotGitError> {
        let checkouts = find_checkouts(&self.project, target, |entry| is_ours(&self.root, entry)).await?;
        for checkout in &checkouts {
            if let Some(reason) = judge_checkout(&self.project, checkout, old, new).await? {
                return self.hold_commit(target, new, checkout.top.clone(), reason).await;
            }
        }
        // Before the locks: a note without a lock is harmless, a lock without a note could be any git's.
        note_move(&self.project, target, old, new)?;
        let changes = [RefChange::Move { name: target.to_ref(), from: old.clone(), to: new.clone() }];
        let locked = RefTransaction::prepare(&self.project, &changes, "writ: merge of checked work").await;
        let transaction = match locked {
            Err(GitFault::Moved { .. }) => {
                forget_move(&self.project)?;
                return Ok(Advance::Stale);
            }
            other => other?,
        };
        let mut moved: Vec<MovedCheckout> = Vec::new();
        for checkout in &checkouts {
            match move_checkout(&self.project, checkout, old, new).await? {
                Ok(one) => moved.push(one),
                Err(reason) => {
                    drop(transaction);
                    self.move_all_back(moved).await?;
                    return self.hold_commit(target, new, checkout.top.clone(), reason).await;
                }
            }
        }
        if let Err(fault) = transaction.commit().await {
            self.move_all_back(moved).await?;
            return Err(fault.into());
        }
        for one in moved {
            one.finish_move()?;
        }
        forget_move(&self.project)?;
        self.emit_event(GitEvent::TargetMoved { target: target.clone(), to: new.clone() });
        Ok(Advance::Moved)
    }

    async fn move_all_back(&self, moved: Vec<MovedCheckout>) -> Result<(), PilotGitError> {
        for one in moved {
            one.move_back(&self.project).await?;
        }
        forget_move(&self.project)
    }

    /// Makes a reference to a commit that was checked and could not become the target.
    async fn hold_commit(
        &self,
        target: &BranchName,
        commit: &CommitId,
        checkout: PathBuf,
        reason: CheckoutHold,
    ) -> Result<Advance, PilotGitError> {
        let at = RefName::make_own("held", &format!("{target}-{}", commit.short_form()))?;
        if read_ref(&self.project, &at).await?.is_none() {
            let create = RefChange::Create { name: at.clone(), to: commit.clone() };
            change_refs(&self.project, &[create], "writ: held").await?;
        }
        Ok(Advance::Held { at, checkout, reason })
    }
}
