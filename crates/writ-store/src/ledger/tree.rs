//! The Merkle tree of RFC 6962, section 2.1: pure functions over a source of stored nodes.
//!
//! A node `(level, index)` is the hash of the complete subtree over the leaves
//! `index << level .. (index + 1) << level`; level 0 is the leaves. Only complete subtrees are stored;
//! the right edge is computed from them.

use sha2::{Digest as _, Sha256};

/// A SHA-256 hash of the tree.
pub type Hash = [u8; 32];

/// The most levels of a tree with 64 bits of leaves.
const MAX_LEVELS: u32 = 64;

/// The hash of a leaf.
pub fn leaf_hash(data: &[&[u8]]) -> Hash {
    let mut hasher = Sha256::new();
    // The first byte tells leaves from inner nodes: otherwise an inner node could be shown as an entry (RFC 6962, section 2.1).
    hasher.update([0]);
    for piece in data {
        hasher.update(piece);
    }
    hasher.finalize().into()
}

/// The hash of an inner node.
pub fn node_hash(left: &Hash, right: &Hash) -> Hash {
    let mut hasher = Sha256::new();
    hasher.update([1]);
    hasher.update(left);
    hasher.update(right);
    hasher.finalize().into()
}

/// The root of the tree without leaves.
pub fn empty_root() -> Hash {
    Sha256::digest([]).into()
}

/// The right edge of a growing tree: the roots of its complete subtrees, largest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frontier {
    size: u64,
    roots: Vec<(u32, Hash)>,
}

impl Frontier {
    /// Loads the edge of a tree with `size` leaves from stored nodes.
    ///
    /// # Errors
    ///
    /// Those of the source.
    pub fn load<S: Nodes>(size: u64, nodes: &S) -> Result<Self, S::Error> {
        let mut roots = Vec::new();
        let mut first = 0;
        for level in (0..MAX_LEVELS).rev().filter(|level| size & (1 << level) != 0) {
            roots.push((level, nodes.node(level, first >> level)?));
            first += 1 << level;
        }
        Ok(Self { size, roots })
    }

    /// Returns the number of leaves.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Adds a leaf and tells every inner node that it completes: level, index, hash.
    pub fn push(&mut self, leaf: Hash, mut completed: impl FnMut(u32, u64, &Hash)) {
        let mut hash = leaf;
        let mut level = 0;
        while let Some((_, left)) = self.roots.pop_if(|(height, _)| *height == level) {
            hash = node_hash(&left, &hash);
            level += 1;
            completed(level, self.size >> level, &hash);
        }
        self.roots.push((level, hash));
        self.size += 1;
    }

    /// The root of the tree as it is now.
    pub fn root(&self) -> Hash {
        let mut roots = self.roots.iter().rev().map(|(_, hash)| *hash);
        let Some(last) = roots.next() else { return empty_root() };
        roots.fold(last, |right, left| node_hash(&left, &right))
    }
}

/// A source of stored nodes.
pub trait Nodes {
    /// The reason why a node cannot be read.
    type Error;

    /// The hash of a complete subtree.
    ///
    /// # Errors
    ///
    /// If it is not stored.
    fn node(&self, level: u32, index: u64) -> Result<Hash, Self::Error>;
}

/// The audit path of leaf `index` in the tree of the first `size` leaves, lowest sibling first;
/// empty if there is no such leaf.
///
/// # Errors
///
/// Those of the source.
pub fn inclusion_path<S: Nodes>(index: u64, size: u64, nodes: &S) -> Result<Vec<Hash>, S::Error> {
    let mut path = Vec::new();
    if index >= size {
        return Ok(path);
    }
    // Descends from the whole tree to the leaf, and takes the other half of each step.
    let (mut low, mut high) = (0, size);
    while high - low > 1 {
        let middle = low + split(high - low);
        if index < middle {
            path.push(subtree_root(middle, high, nodes)?);
            high = middle;
        } else {
            path.push(subtree_root(low, middle, nodes)?);
            low = middle;
        }
    }
    // Collected from the root down; a verifier goes up.
    path.reverse();
    Ok(path)
}

/// The root that a leaf and its audit path lead to; `None` if the path does not fit the position.
pub fn root_from_path(index: u64, size: u64, leaf: Hash, path: &[Hash]) -> Option<Hash> {
    if index >= size {
        return None;
    }
    // RFC 9162, section 2.1.3.2.
    let (mut node, mut last) = (index, size - 1);
    let mut hash = leaf;
    for sibling in path {
        if last == 0 {
            return None;
        }
        if node & 1 == 1 || node == last {
            hash = node_hash(sibling, &hash);
            while node & 1 == 0 && node != 0 {
                node >>= 1;
                last >>= 1;
            }
        } else {
            hash = node_hash(&hash, sibling);
        }
        node >>= 1;
        last >>= 1;
    }
    (last == 0).then_some(hash)
}

/// The root over the leaves `low..high`, where `low` is a multiple of the subtree's size.
fn subtree_root<S: Nodes>(low: u64, high: u64, nodes: &S) -> Result<Hash, S::Error> {
    let width = high - low;
    if width.is_power_of_two() {
        let level = width.trailing_zeros();
        // A whole subtree is one stored node.
        return nodes.node(level, low >> level);
    }
    let middle = low + split(width);
    Ok(node_hash(&subtree_root(low, middle, nodes)?, &subtree_root(middle, high, nodes)?))
}

/// The largest power of two below `width`, which is at least two.
fn split(width: u64) -> u64 {
    1 << (u64::BITS - 1 - (width - 1).leading_zeros())
}

#[cfg(test)]
mod tests;
