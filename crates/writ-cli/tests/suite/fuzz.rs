//! What the fuzzer has found worth keeping, replayed: see `fuzz/`.

use std::collections::BTreeSet;
use std::path::Path;

#[path = "../../../../fuzz/targets.rs"]
mod targets;

/// Each target of the fuzzer holds what it asserts on its corpus, and each has one.
#[test]
fn the_corpora_of_the_fuzzer_hold() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let mut names = BTreeSet::new();
    for folder in std::fs::read_dir(&corpus).expect("the corpora").flatten() {
        let name = folder.file_name().to_string_lossy().into_owned();
        let (_, target) = targets::TARGETS.iter().find(|(known, _)| *known == name).expect("a target");
        let mut files = 0;
        for file in std::fs::read_dir(folder.path()).expect("a corpus").flatten() {
            target(&std::fs::read(file.path()).expect("reads"));
            files += 1;
        }
        assert!(files > 0, "{name}");
        names.insert(name);
    }
    assert_eq!(names.len(), targets::TARGETS.len(), "each target has a corpus: {names:?}");
}
