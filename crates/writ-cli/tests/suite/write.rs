//! What `--write` brings into a project, and what it says of the rest.

use serde_json::json;

use super::turns::{Bench, calls};
use super::{code, text};

/// More files than two diffs list.
const MANY: usize = 4_500;

fn script(script: &str) -> Bench {
    let argv = json!({"argv": ["sh", "-c", script]});
    Bench::new("openai", calls(vec![("shell_exec", argv)], "Done."))
}

/// More than one diff lists is brought out all the same, and what cannot be is named.
#[test]
fn needs_userns_everything_that_can_be_is_applied_and_the_rest_is_named() {
    let bench = script(&format!(
        "mkdir many && cd many && seq -f f%g {MANY} | xargs touch && cd .. && ln -s many link && \
         touch odd && chmod u+s odd && mkdir taken && touch \"$(printf 'a\\nb')\""
    ));
    let done = bench.chat("make them", &["--write"]);
    let said = text(&done);
    assert_eq!(code(&done), 0, "{said}");
    assert_eq!(std::fs::read_dir(bench.project().join("many")).expect("reads").count(), MANY, "{said}");
    for left in ["link: symbolic link", "odd: set-user-id", "{a}b: name that cannot be shown"] {
        assert!(said.contains("Left out:") && said.contains(left), "{left}: {said}");
    }
}

/// Work that a bound keeps back is no work that is done.
#[test]
fn needs_userns_a_file_beyond_the_bound_is_named_and_the_turn_is_not_done() {
    let bench = script("truncate -s 65M large && echo small > small");
    let done = bench.chat("make them", &["--write"]);
    assert_eq!(code(&done), 10, "{}", text(&done));
    assert!(text(&done).contains("Left out: large: too large"), "{}", text(&done));
    assert!(bench.project().join("small").exists() && !bench.project().join("large").exists());
}

/// Files that other programs obey are named, since nobody is asked about them.
#[test]
fn needs_userns_files_that_other_programs_obey_are_named() {
    let obeyed = [".envrc", ".vscode/tasks.json", ".github/workflows/ci.yml", ".gitattributes", "Makefile"];
    let bench = script(&format!(
        "mkdir -p .vscode .github/workflows && for f in {} plain.txt; do echo x > $f; done",
        obeyed.join(" ")
    ));
    let done = bench.chat("make them", &["--write"]);
    let said = text(&done);
    assert_eq!(code(&done), 0, "{said}");
    for name in obeyed {
        assert!(bench.project().join(name).exists(), "{name}");
        assert!(said.contains(&format!("{name} (")), "{name}: {said}");
    }
    assert!(said.contains("Other programs obey") && !said.contains("plain.txt"), "{said}");
}
