//! One program for all targets: under which name it is started says which one is fuzzed.

#![no_main]

#[path = "../targets.rs"]
mod targets;

use std::sync::OnceLock;

static TARGET: OnceLock<targets::Reader> = OnceLock::new();

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let target = TARGET.get_or_init(|| {
        let program = std::env::args().next().unwrap_or_default();
        let name = program.rsplit('/').next().unwrap_or_default();
        let found = targets::TARGETS.iter().find(|(known, _)| *known == name);
        found.expect("the program has the name of a target").1
    });
    target(bytes);
});
