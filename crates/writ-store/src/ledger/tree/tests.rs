//! The tree against RFC 6962's definition and its published vectors.

use std::collections::BTreeMap;
use std::convert::Infallible;

use ct_merkle::{InclusionProof, RootHash};
use proptest::prelude::*;
use sha2::Sha256;

use super::*;

/// The leaves of the reference tree in the Certificate Transparency project's test data.
const LEAVES: [&str; 8] =
    ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"];

/// Its roots after 1 to 8 leaves.
const ROOTS: [&str; 8] = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
];

/// All nodes of a tree that was grown, with its leaves as level 0.
#[derive(Default)]
struct Grown {
    frontier: Frontier,
    nodes: BTreeMap<(u32, u64), Hash>,
}

impl Grown {
    fn new(leaves: &[Hash]) -> Self {
        let mut grown = Self::default();
        for leaf in leaves {
            grown.nodes.insert((0, grown.frontier.size()), *leaf);
            let nodes = &mut grown.nodes;
            grown.frontier.push(*leaf, |level, index, hash| {
                assert_eq!(nodes.insert((level, index), *hash), None, "each node is completed once");
            });
        }
        grown
    }
}

impl Nodes for Grown {
    type Error = Infallible;

    fn node(&self, level: u32, index: u64) -> Result<Hash, Infallible> {
        Ok(self.nodes[&(level, index)])
    }
}

/// RFC 6962, section 2.1, word for word.
fn naive_root(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => empty_root(),
        [leaf] => *leaf,
        more => {
            let mut k = 1;
            while k * 2 < more.len() {
                k *= 2;
            }
            node_hash(&naive_root(&more[..k]), &naive_root(&more[k..]))
        }
    }
}

fn leaf(n: usize) -> Hash {
    leaf_hash(&[n.to_string().as_bytes()])
}

#[test]
fn roots_are_the_published_ones() {
    assert_eq!(hex::encode(empty_root()), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    let leaves: Vec<Hash> =
        LEAVES.iter().map(|data| leaf_hash(&[&hex::decode(data).expect("hex")])).collect();
    for (size, root) in (1..).zip(ROOTS) {
        assert_eq!(hex::encode(Grown::new(&leaves[..size]).frontier.root()), root, "{size} leaves");
    }
}

#[test]
fn a_wrong_path_proves_nothing() {
    let leaves: Vec<Hash> = (0..7).map(leaf).collect();
    let grown = Grown::new(&leaves);
    let root = grown.frontier.root();
    let Ok(path) = inclusion_path(4, 7, &grown);
    assert_eq!(root_from_path(4, 7, leaves[4], &path), Some(root));
    assert_ne!(root_from_path(5, 7, leaves[4], &path), Some(root));
    assert_ne!(root_from_path(4, 7, leaves[5], &path), Some(root));
    assert_eq!(root_from_path(4, 7, leaves[4], &path[1..]), None);
    assert_eq!(root_from_path(7, 7, leaves[4], &path), None);
    assert_eq!(inclusion_path(7, 7, &grown), Ok(Vec::new()));
}

proptest! {
    /// Growth, reloading, paths and roots agree with the definition, and the paths with another implementation.
    #[test]
    fn the_tree_is_that_of_rfc_6962(size in 1_usize..300, index in 0_usize..300) {
        let index = index % size;
        let leaves: Vec<Hash> = (0..size).map(leaf).collect();
        let grown = Grown::new(&leaves);
        let root = naive_root(&leaves);
        prop_assert_eq!(grown.frontier.root(), root);
        let count = u64::try_from(size).expect("small");
        let Ok(loaded) = Frontier::load(count, &grown);
        prop_assert_eq!(&loaded, &grown.frontier);

        let position = u64::try_from(index).expect("small");
        let Ok(path) = inclusion_path(position, count, &grown);
        prop_assert_eq!(root_from_path(position, count, leaves[index], &path), Some(root));
        let proof = InclusionProof::<Sha256>::from_bytes(path.concat());
        let other = RootHash::<Sha256>::new(root.into(), count);
        prop_assert!(other.verify_inclusion(&index.to_string().as_bytes(), position, &proof).is_ok());
    }
}
