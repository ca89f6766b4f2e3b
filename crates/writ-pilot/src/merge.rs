//! Slices become part of the target branch: merged without a work tree, checked in a private one, and then moved to at once.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::PathBuf;

use writ_sandbox::git::checkouts::CheckoutHold;
use writ_sandbox::git::commits::{
    CommitLine, TreeMerge, is_ancestor, list_commits, merge_trees, write_commit,
};
use writ_sandbox::git::refs::read_ref;
use writ_sandbox::git::worktrees::{TreeHead, add_tree, forget_tree, store_tree};
use writ_sandbox::git::{BranchName, CommitId, GitFault, RefName};

use crate::error::PilotGitError;
use crate::events::GitEvent;
use crate::naming::workspace_name;
use crate::recover::{CHECK_PREFIX, CHECK_REASON};
use crate::service::{PilotGit, UnitWork};
use crate::workspace::UNIT_TRAILER;

pub use advance::Advance;
use advance::advance_target;
pub use order::{MergeOrder, MergeRequest, check_dependencies, order_requests};

pub mod order;

pub mod advance;

/// So often a merge is made and checked anew since the target has moved meanwhile.
pub const BASE_MOVES_MAX: usize = 8;
/// The most slices in one batch.
pub const BATCH_MAX: usize = 64;

/// The judgement of a check about a whole merged tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeVerdict {
    /// It is as it should be.
    Pass,
    /// Something in it is wrong.
    Fail(String),
    /// A person has to look at it.
    Block(String),
    /// Nothing was tried, which is never a pass.
    NotRun(String),
}

/// A merged tree that waits for its check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergedTree {
    /// The folder with its files: a work tree without a branch, removed afterwards.
    pub folder: PathBuf,
    /// Its commit, which the target moves to if the check passes.
    pub commit: CommitId,
    /// The commit before the change: that which the target is at, or where the branch began, if others have merged its work.
    pub base: CommitId,
    /// The last commit of the change: `commit` itself, or the tip of the branch, if others have merged its work.
    pub tip: CommitId,
    /// The units that bring new work into it.
    pub units: Vec<String>,
}

/// Checks merged trees.
pub trait TreeCheck: Sync {
    /// Checks one. It runs for as long as it likes: a target that moves meanwhile is noticed.
    fn check_tree(&self, tree: &MergedTree) -> impl Future<Output = TreeVerdict> + Send;

    /// Looks once more, when the target is locked and all else is ready, if the move is wanted still. Without that it does not happen.
    fn is_wanted(&self) -> impl Future<Output = bool> + Send {
        std::future::ready(true)
    }
}

/// The result of a unit's merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergeResult {
    /// It is in the target.
    Merged {
        /// The commit that the target moved to.
        commit: CommitId,
    },
    /// It was in the target before: by a merge of the autopilot itself, or by one of others that has passed its check now.
    AlreadyIn,
    /// It passed its check, and was stopped or given to another worker before the target moved.
    Withdrawn,
    /// Its branch is where it began: nothing was done that could be in the target.
    Unchanged,
    /// It conflicts with the target, or with a slice before it. The target is as it was.
    Conflict {
        /// The files.
        files: Vec<PathBuf>,
        /// The commit that it conflicts with.
        with: CommitId,
    },
    /// The check failed with it, and only since it is in.
    Failed {
        /// The reason.
        why: String,
    },
    /// The check asks for a person.
    Blocked {
        /// The reason.
        why: String,
    },
    /// The check did not run.
    NotRun {
        /// The reason.
        why: String,
    },
    /// It needs the code of units that are not in the target.
    Waits {
        /// The units.
        on: Vec<String>,
    },
    /// Its workspace has changes that are not committed, which a merge would leave out.
    Uncommitted {
        /// The files.
        files: Vec<PathBuf>,
    },
    /// It passed its check, and the target stays since a work tree of the user cannot move with it. The merged commit is at `at`: the
    /// user can merge that, or merging is tried again when the reason has ended.
    Held {
        /// The reference of the merged commit.
        at: RefName,
        /// The merged commit.
        commit: CommitId,
        /// The work tree.
        checkout: PathBuf,
        /// The reason.
        reason: CheckoutHold,
    },
}

/// The results by unit.
pub type MergeResults = BTreeMap<String, MergeResult>;

/// The end of one try with one group of slices.
enum GroupEnd {
    /// Every one has its result.
    Settled,
    /// The check failed.
    Failed(String),
}

/// Merges of a group upon each other.
struct MergeChain {
    base: CommitId,
    tip: CommitId,
    units: Vec<String>,
    results: MergeResults,
    /// Those that others have merged, each with the commit that its branch began at and its tip: nothing has checked that.
    unchecked: Vec<(String, CommitId, CommitId)>,
}

impl PilotGit {
    /// Merges slices into a target, in order, as one batch; if its check fails, by halves until the ones that fail are alone. One merge
    /// at a time goes on in a project. `merged`: the units that are in the target already.
    ///
    /// # Errors
    ///
    /// If the requests need each other in a circle, if the target has no commit or moves at every try, or if git or the disk fails. What
    /// was merged before stays merged, and the target is at a commit that a check has passed.
    pub async fn merge_slices(
        &self,
        target: &BranchName,
        requests: &[MergeRequest],
        merged: &BTreeSet<String>,
        check: &impl TreeCheck,
    ) -> Result<MergeResults, PilotGitError> {
        let _one_at_a_time = self.merging.lock().await;
        // Within the lock: while another merge goes on, what it brings in would count as missing.
        let order = order_requests(requests, merged)?;
        let mut results: MergeResults =
            order.waiting.into_iter().map(|(unit, on)| (unit, MergeResult::Waits { on })).collect();
        let mut ready = Vec::new();
        for request in order.ready {
            // An agent that says that it is done may have left work lying.
            match self.uncommitted_files(&request).await? {
                Some(files) => {
                    results.insert(request.unit, MergeResult::Uncommitted { files });
                }
                None => ready.push(request),
            }
        }
        self.emit_event(GitEvent::MergeReady {
            units: ready.iter().map(|request| request.unit.clone()).collect(),
        });
        // The group to try next is the last.
        let mut groups: Vec<Vec<MergeRequest>> = ready.chunks(BATCH_MAX).rev().map(<[_]>::to_vec).collect();
        while let Some(group) = groups.pop() {
            // Looked at for each group anew: one before it may have failed with code that this one needs.
            let group = hold_dependants(group, merged, &mut results);
            match self.merge_group(target, &group, check, &mut results).await? {
                GroupEnd::Settled => {}
                GroupEnd::Failed(why) => match &group[..] {
                    [one] => {
                        results.insert(one.unit.clone(), MergeResult::Failed { why });
                    }
                    // The first half is tried first: the second may need its code.
                    many => {
                        let (first, second) = many.split_at(many.len() / 2);
                        groups.extend([second.to_vec(), first.to_vec()]);
                    }
                },
            }
        }
        Ok(results)
    }

    /// The files of a request's workspace that are not committed. `None`: there are none, or there is no workspace.
    async fn uncommitted_files(&self, request: &MergeRequest) -> Result<Option<Vec<PathBuf>>, PilotGitError> {
        let work = UnitWork { unit: request.unit.clone(), branch: request.branch.clone() };
        let folder = self.root.resolve_name(&workspace_name(&request.unit)?)?;
        match self.find_entry(&folder).await? {
            Some(entry) if entry.is_there => {
                let (tree, tip) = self.open_workspace(&work).await?;
                let stored = store_tree(&self.project, &tree, &tip).await?;
                let files: Vec<PathBuf> = stored.changes.iter().map(|change| change.path.clone()).collect();
                Ok((!files.is_empty()).then_some(files))
            }
            // Without a folder there is nothing beside the commits of the branch.
            Some(_) | None => Ok(None),
        }
    }

    /// Merges a group, checks the result, and moves the target; anew from the newest base if it has moved meanwhile.
    async fn merge_group(
        &self,
        target: &BranchName,
        group: &[MergeRequest],
        check: &impl TreeCheck,
        results: &mut MergeResults,
    ) -> Result<GroupEnd, PilotGitError> {
        for _ in 0..BASE_MOVES_MAX {
            let mut chain = self.chain_group(target, group).await?;
            if !self.check_merges_of_others(target, &mut chain, check).await? {
                continue;
            }
            // All of them conflict, wait or are in: there is no new tree that a check could judge.
            if chain.units.is_empty() {
                self.report_conflicts(&chain.results);
                results.extend(chain.results);
                return Ok(GroupEnd::Settled);
            }
            let verdict = self.check_commit((&chain.base, &chain.tip), &chain.units, check).await?;
            let all =
                |result: MergeResult| chain.units.iter().map(move |unit| (unit.clone(), result.clone()));
            match verdict {
                // The results of the chain are dropped: in a half of this group they may be others.
                TreeVerdict::Fail(why) => return Ok(GroupEnd::Failed(why)),
                TreeVerdict::Block(why) => results.extend(all(MergeResult::Blocked { why })),
                TreeVerdict::NotRun(why) => results.extend(all(MergeResult::NotRun { why })),
                TreeVerdict::Pass => {
                    match advance_target(self, target, (&chain.base, &chain.tip), check).await? {
                        Advance::Moved => {
                            results.extend(all(MergeResult::Merged { commit: chain.tip.clone() }));
                        }
                        Advance::Withdrawn => results.extend(all(MergeResult::Withdrawn)),
                        // What was checked is not what would be in the target now.
                        Advance::Stale => continue,
                        Advance::Held { at, checkout, reason } => {
                            let commit = chain.tip.clone();
                            results.extend(all(MergeResult::Held { at, commit, checkout, reason }));
                        }
                    }
                }
            }
            self.report_conflicts(&chain.results);
            results.extend(chain.results);
            return Ok(GroupEnd::Settled);
        }
        Err(PilotGitError::MovesAlways { target: target.clone(), times: BASE_MOVES_MAX })
    }

    fn report_conflicts(&self, results: &MergeResults) {
        for (unit, result) in results {
            if let MergeResult::Conflict { files, .. } = result {
                let (unit, files) = (unit.clone(), files.clone());
                self.emit_event(GitEvent::MergeConflict { unit, files });
            }
        }
    }

    /// Merges the branches of a group upon each other, from where the target is now. One that conflicts is left out, with those that
    /// need it.
    async fn chain_group(
        &self,
        target: &BranchName,
        group: &[MergeRequest],
    ) -> Result<MergeChain, PilotGitError> {
        let no_commit = || GitFault::NoCommit { branch: target.to_string() };
        let base = read_ref(&self.project, &target.to_ref()).await?.ok_or_else(no_commit)?;
        // Nothing refers to these commits before the target does: where this ends early, git collects them.
        let mut chain = MergeChain {
            tip: base.clone(),
            base,
            units: Vec::new(),
            results: MergeResults::new(),
            unchecked: Vec::new(),
        };
        for request in group {
            // One before it in this group was left out.
            let on: Vec<String> = request
                .code_depends_on
                .iter()
                .filter(|on| chain.results.get(*on).is_some_and(|result| *result != MergeResult::AlreadyIn))
                .cloned()
                .collect();
            if !on.is_empty() {
                chain.results.insert(request.unit.clone(), MergeResult::Waits { on });
                continue;
            }
            let missing = || PilotGitError::BranchMissing { branch: request.branch.clone() };
            let (began, tip) = self.read_branch(&request.branch).await?.ok_or_else(missing)?;
            // An ancestor of the target as well, and yet no merge: what it was to bring is nowhere.
            if tip == began {
                chain.results.insert(request.unit.clone(), MergeResult::Unchanged);
                continue;
            }
            // Merged before, by us or by hand.
            if is_ancestor(&self.project, &tip, &chain.tip).await? {
                if self.is_merged_by_others(request, (&began, &tip), &chain.base).await? {
                    chain.unchecked.push((request.unit.clone(), began, tip));
                }
                chain.results.insert(request.unit.clone(), MergeResult::AlreadyIn);
                continue;
            }
            match merge_trees(&self.project, &chain.tip, &tip).await? {
                TreeMerge::Conflict(files) => {
                    let with = chain.tip.clone();
                    chain.results.insert(request.unit.clone(), MergeResult::Conflict { files, with });
                }
                TreeMerge::Clean(tree) => {
                    let message = merge_message(request);
                    // With both parents, so that the slice's commits are ancestors of the target.
                    let parents = [&chain.tip, &tip];
                    chain.tip =
                        write_commit(&self.project, &tree, &parents, &message, &self.committer).await?;
                    chain.units.push(request.unit.clone());
                }
            }
        }
        Ok(chain)
    }

    /// Returns true if the tip of a branch is in the target, and no merge of the autopilot has brought it there. What a person has made of
    /// one that passed and was held is its own: they move the target to the commit that was checked.
    async fn is_merged_by_others(
        &self,
        request: &MergeRequest,
        (began, tip): (&CommitId, &CommitId),
        target: &CommitId,
    ) -> Result<bool, PilotGitError> {
        // Else it comes with another branch of this group, and is checked with that.
        if !is_ancestor(&self.project, tip, target).await? {
            return Ok(false);
        }
        let line = list_commits(&self.project, Some(began), target).await?;
        let is_own = |commit: &CommitLine| {
            commit.unit.as_ref() == Some(&request.unit) && commit.parents.get(1) == Some(tip)
        };
        Ok(!line.iter().any(is_own))
    }

    /// Checks the target as it is for each unit that others have merged: what they have joined, no gate has seen. Returns false if
    /// the target has moved meanwhile.
    async fn check_merges_of_others(
        &self,
        target: &BranchName,
        chain: &mut MergeChain,
        check: &impl TreeCheck,
    ) -> Result<bool, PilotGitError> {
        for (unit, began, tip) in &chain.unchecked {
            let units = std::slice::from_ref(unit);
            let result = match self.check_change((began, tip), &chain.base, units, check).await? {
                TreeVerdict::Pass => continue,
                TreeVerdict::Fail(why) => MergeResult::Failed { why },
                TreeVerdict::Block(why) => MergeResult::Blocked { why },
                TreeVerdict::NotRun(why) => MergeResult::NotRun { why },
            };
            chain.results.insert(unit.clone(), result);
        }
        let is_same = read_ref(&self.project, &target.to_ref()).await?.as_ref() == Some(&chain.base);
        Ok(chain.unchecked.is_empty() || is_same)
    }

    /// Checks a commit upon its base in a work tree of its own.
    pub(crate) async fn check_commit(
        &self,
        (base, commit): (&CommitId, &CommitId),
        units: &[String],
        check: &impl TreeCheck,
    ) -> Result<TreeVerdict, PilotGitError> {
        self.check_change((base, commit), commit, units, check).await
    }

    /// Checks the commit that a target is at. No merge goes on meanwhile. Returns the commit.
    ///
    /// # Errors
    ///
    /// If the target has no commit, or git or the disk fails.
    pub(crate) async fn check_target(
        &self,
        target: &BranchName,
        check: &impl TreeCheck,
    ) -> Result<(CommitId, TreeVerdict), PilotGitError> {
        let _one_at_a_time = self.merging.lock().await;
        let no_commit = || GitFault::NoCommit { branch: target.to_string() };
        let commit = read_ref(&self.project, &target.to_ref()).await?.ok_or_else(no_commit)?;
        let verdict = self.check_commit((&commit, &commit), &[], check).await?;
        Ok((commit, verdict))
    }

    /// Checks a commit with a change in it in a work tree of its own.
    async fn check_change(
        &self,
        (base, tip): (&CommitId, &CommitId),
        commit: &CommitId,
        units: &[String],
        check: &impl TreeCheck,
    ) -> Result<TreeVerdict, PilotGitError> {
        // Named after the commit, so that two checks never share a folder.
        let name = format!("{CHECK_PREFIX}{}", commit.short_form());
        let folder = self.root.ensure_folder(&name)?.path;
        let head = TreeHead::Detached(commit.clone());
        // Detached: nothing that a check does can move a branch.
        add_tree(&self.project, &folder, &head, commit, CHECK_REASON).await?;
        let tree = MergedTree {
            folder: folder.clone(),
            commit: commit.clone(),
            base: base.clone(),
            tip: tip.clone(),
            units: units.to_vec(),
        };
        let verdict = check.check_tree(&tree).await;
        // The folder before the record: a record without a folder is removed at the next start, the other way round nothing would name it.
        self.root.remove_folder(&folder)?;
        forget_tree(&self.project, &folder).await?;
        Ok(verdict)
    }
}

/// Takes out of a group those that need a unit which has a result other than merged.
fn hold_dependants(
    group: Vec<MergeRequest>,
    merged: &BTreeSet<String>,
    results: &mut MergeResults,
) -> Vec<MergeRequest> {
    let mut free = Vec::new();
    for request in group {
        let is_open = |on: &&String| {
            let is_in =
                matches!(results.get(*on), Some(MergeResult::Merged { .. } | MergeResult::AlreadyIn) | None);
            // One without a result stands in this very group: the chain decides about it.
            !merged.contains(*on) && !is_in
        };
        let on: Vec<String> = request.code_depends_on.iter().filter(is_open).cloned().collect();
        if on.is_empty() {
            free.push(request);
        } else {
            results.insert(request.unit, MergeResult::Waits { on });
        }
    }
    free
}

fn merge_message(request: &MergeRequest) -> String {
    // Models write both: a line end in one could make a trailer of another unit.
    let title: String = request.title.chars().filter(|c| !c.is_control()).collect();
    let unit: String = request.unit.chars().filter(|c| !c.is_control()).collect();
    format!("Merge {}: {title}\n\n{UNIT_TRAILER}: {unit}\n", request.branch)
}
