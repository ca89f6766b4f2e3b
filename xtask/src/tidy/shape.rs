//! Checks the layout of sources, and the things that a test may not do.

use super::Finding;
use crate::source::Source;

/// Waiting for time to pass, instead of for a condition.
const SLEEPS: &[&str] = &["std::thread::sleep", "tokio::time::sleep", "tokio::time::sleep_until"];
/// The one integration test binary of a crate.
const SUITE: &str = "tests/suite.rs";

/// Checks names of files, attributes and sleeping tests.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        if source.path.ends_with("/mod.rs") {
            findings.push(Finding::new("mod-rs", &source.path, "use `foo.rs` beside `foo/`"));
        }
        if is_second_suite(&source.path) {
            findings.push(Finding::new("suite", &source.path, format!("one test binary per crate: {SUITE}")));
        }
        for attribute in &source.attributes {
            match attribute.name.as_str() {
                "allow" => findings.push(
                    Finding::new("allow", &source.path, "use `#[expect(…, reason = \"…\")]`")
                        .at(attribute.line),
                ),
                "ignore" => findings.push(
                    Finding::new("ignore", &source.path, "a test runs or is deleted").at(attribute.line),
                ),
                _ => {}
            }
        }
        for path in source.paths.iter().filter(|path| path.in_test && SLEEPS.contains(&path.name.as_str())) {
            findings.push(
                Finding::new("sleep", &source.path, "wait for a condition, not for time").at(path.line),
            );
        }
    }
    findings
}

/// Returns true if a file is a test binary of its own besides the crate's suite.
fn is_second_suite(path: &str) -> bool {
    let Some((_, name)) = path.split_once("/tests/") else { return false };
    !path.contains("/src/") && !name.contains('/') && !path.ends_with(SUITE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks(path: &str, text: &str) -> Vec<&'static str> {
        check(&[Source::parse(path, text).unwrap()]).into_iter().map(|finding| finding.check).collect()
    }

    #[test]
    fn layout_is_checked() {
        assert_eq!(checks("crates/a/src/b/mod.rs", ""), ["mod-rs"]);
        assert_eq!(checks("crates/a/tests/other.rs", ""), ["suite"]);
        for fine in ["crates/a/tests/suite.rs", "crates/a/tests/suite/b.rs", "crates/a/src/b/tests/c.rs"] {
            assert_eq!(checks(fine, ""), [""; 0]);
        }
    }

    #[test]
    fn allowed_lints_and_ignored_tests_are_found() {
        assert_eq!(checks("a.rs", "#![allow(dead_code)]"), ["allow"]);
        assert_eq!(checks("a.rs", "#[cfg_attr(unix, allow(dead_code))] fn a() {}"), ["allow"]);
        assert_eq!(checks("a.rs", "#[cfg(test)] mod tests { #[test] #[ignore] fn a() {} }"), ["ignore"]);
        assert_eq!(checks("a.rs", "#[expect(dead_code, reason = \"b\")] fn a() {}"), [""; 0]);
    }

    #[test]
    fn a_sleeping_test_is_found() {
        let body = "fn a() { std::thread::sleep(b); }";
        assert_eq!(checks("a.rs", body), [""; 0]);
        assert_eq!(checks("a.rs", &format!("#[cfg(test)] mod tests {{ {body} }}")), ["sleep"]);
        assert_eq!(checks("a/tests.rs", "async fn a() { tokio::time::sleep(b).await; }"), ["sleep"]);
    }
}
