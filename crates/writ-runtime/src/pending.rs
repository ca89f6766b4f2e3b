//! Operations that wait for the next commit.

use writ_store::batch::{Batch, Op};

/// Operations that belong to a commit that is still to come: what a stage has done in the store's terms, and leaves to a
/// later stage to write. They are committed, handed on or returned, never dropped: an entry of the ledger may be among them.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "operations that are neither committed nor handed on are missing in the ledger"]
pub struct Pending(Vec<Op>);

impl Pending {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn push(&mut self, op: Op) {
        self.0.push(op);
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) const fn as_slice(&self) -> &[Op] {
        self.0.as_slice()
    }

    /// Takes all of them, for the commit that comes now.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Returns a batch that is on disk when its receipt comes.
    pub(crate) fn into_synced(self) -> Batch {
        Batch::synced(self.0)
    }

    /// Returns a batch that survives the end of the process when its receipt comes, not a loss of power.
    pub(crate) fn into_relaxed(self) -> Batch {
        Batch::relaxed(self.0)
    }

    /// Hands them to the store, which takes operations that come before a batch as they are.
    pub(crate) fn into_ops(self) -> Vec<Op> {
        self.0
    }
}

impl Extend<Op> for Pending {
    fn extend<T: IntoIterator<Item = Op>>(&mut self, ops: T) {
        self.0.extend(ops);
    }
}

impl FromIterator<Op> for Pending {
    fn from_iter<T: IntoIterator<Item = Op>>(ops: T) -> Self {
        Self(ops.into_iter().collect())
    }
}

impl IntoIterator for Pending {
    type Item = Op;
    type IntoIter = std::vec::IntoIter<Op>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl From<Vec<Op>> for Pending {
    fn from(ops: Vec<Op>) -> Self {
        Self(ops)
    }
}

impl<const N: usize> From<[Op; N]> for Pending {
    fn from(ops: [Op; N]) -> Self {
        Self(ops.into())
    }
}
