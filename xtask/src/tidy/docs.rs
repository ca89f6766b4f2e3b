//! Documents say what is there, and name what shows it.

use std::path::Path;

use anyhow::{Context as _, Result};

use super::Finding;
use super::features::{FEATURES, Presented, check_features};
use crate::source::{self, Source};
use crate::workspace::Crate;

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const SECURITY_MODEL: &str = "docs/security-model.md";
const GAPS: &str = "docs/capability-gaps.md";
const LESSONS: &str = "docs/autopilot-lessons.md";
const LIMITATIONS: &str = "docs/known-limitations.md";
const DECISIONS: &str = "docs/decisions.md";
const VERIFICATION: &str = "docs/verification.md";
/// The fewest words that can say why no test shows something.
const MIN_REASON_WORDS: usize = 4;
/// The beginning of the last cell of a gap without a complete test: the reason follows, and tests of the
/// finished part.
pub(super) const NOT_YET: &str = "not yet: ";
/// The number of complaints about autopilots that the lessons answer.
const COMPLAINTS: usize = 28;
/// The rows of the gaps.
const CAPABILITIES: [&str; 10] = [
    "Multi-channel",
    "Skills",
    "Persistent memory",
    "Shell and file execution",
    "Proactive cron",
    "Self-improving",
    "Context",
    "Multi-model",
    "Local-first",
    "Guardrails",
];
const STATUSES: [&str; 4] = ["accepted", "proposed", "superseded", "rejected"];

/// Checks the documents that are bound to sources.
pub(super) fn check(root: &Path, crates: &[Crate], sources: &[Source]) -> Result<Vec<Finding>> {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).with_context(|| path.to_owned());
    let tests = Tests { crates, sources };
    let mut findings = check_architecture(&read(ARCHITECTURE)?, crates);
    findings.extend(check_security_model(&read(SECURITY_MODEL)?, &tests));
    findings.extend(check_gaps(&read(GAPS)?, &tests));
    findings.extend(check_lessons(&read(LESSONS)?, &tests));
    findings.extend(check_limitations(&read(LIMITATIONS)?, &tests));
    findings.extend(check_decisions(&read(DECISIONS)?));
    findings.extend(check_features(&read(FEATURES)?, &presented(root)?, |cell| tests.judge(cell)));
    findings.extend(check_items(&read(VERIFICATION)?, &tests));
    for path in source::files(root)?.into_iter().filter(|path| path.ends_with(".md")) {
        let folder = root.join(&path);
        let folder = folder.parent().unwrap_or(root);
        findings.extend(check_links(&path, &read(&path)?, |target| folder.join(target).exists()));
    }
    Ok(findings)
}

/// Reads the documents that present the product to its users.
fn presented(root: &Path) -> Result<Vec<Presented>> {
    let paths = source::files(root)?.into_iter();
    let paths = paths.filter(|path| path == "README.md" || path.starts_with("docs/guides/"));
    paths
        .map(|path| {
            let text = std::fs::read_to_string(root.join(&path)).with_context(|| path.clone())?;
            Ok((path, text))
        })
        .collect()
}

/// The tests that a document may name.
struct Tests<'a> {
    crates: &'a [Crate],
    sources: &'a [Source],
}

impl Tests<'_> {
    /// Returns true if `crate::module::name` is a test of that crate.
    fn has(&self, path: &str) -> bool {
        let Some((owner, wanted)) = path.split_once("::") else { return false };
        let Some(owner) = self.crates.iter().find(|one| one.name == owner) else { return false };
        self.sources.iter().any(|source| {
            let Some(file) = source.path.strip_prefix(&owner.folder) else { return false };
            let within = match module_of(file) {
                module if module.is_empty() => Some(wanted),
                module => wanted.strip_prefix(&module).and_then(|rest| rest.strip_prefix("::")),
            };
            source.functions.iter().any(|f| f.is_test && within == Some(f.name.as_str()))
        })
    }

    /// Lists the faults of the tests that a text names in backquotes; at least one must be named.
    fn judge(&self, text: &str) -> Vec<String> {
        let named: Vec<&str> =
            text.split('`').skip(1).step_by(2).filter(|name| name.contains("::")).collect();
        if named.is_empty() {
            return vec!["names no test".to_owned()];
        }
        let missing = named.into_iter().filter(|name| !self.has(name));
        missing.map(|name| format!("names `{name}`, which is no test")).collect()
    }
}

/// The module of a file of a crate, as tests are named: `src/a/b.rs` is `a::b`, `tests/suite/a.rs` is `suite::a`.
pub(crate) fn module_of(file: &str) -> String {
    let file = ["src/", "tests/"].iter().find_map(|folder| file.strip_prefix(folder)).unwrap_or(file);
    let file = file.strip_suffix(".rs").unwrap_or(file);
    let file = if ["lib", "main"].contains(&file) { "" } else { file };
    file.replace('/', "::")
}

/// Every crate has its place on the map.
fn check_architecture(text: &str, crates: &[Crate]) -> Vec<Finding> {
    let missing = crates.iter().filter(|one| !text.contains(&format!("`{}`", one.name)));
    missing
        .map(|one| Finding::new("architecture", &one.name, format!("is not named in {ARCHITECTURE}")))
        .collect()
}

/// The rows below the heads of a document's tables: the number of the line, the first cell and the last one.
fn table_rows(text: &str) -> Vec<(usize, &str, &str)> {
    let rows = text.lines().enumerate().filter_map(|(number, line)| {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let (first, last) = (*cells.first()?, *cells.last()?);
        let is_row = line.starts_with('|') && !first.starts_with("---") && last != "shown by";
        is_row.then_some((number + 1, first, last))
    });
    rows.collect()
}

/// Every row of the table names a test in its last cell.
fn check_security_model(text: &str, tests: &Tests<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, first, last) in table_rows(text) {
        let wrong = tests.judge(last).into_iter();
        findings.extend(wrong.map(|text| Finding::new("security-model", first, text).at(line)));
    }
    findings
}

/// Every capability has a row that names a test in its last cell, or says why none shows it yet.
fn check_gaps(text: &str, tests: &Tests<'_>) -> Vec<Finding> {
    let rows = table_rows(text);
    let gone = CAPABILITIES.into_iter().filter(|name| !rows.iter().any(|(_, first, _)| first == name));
    let mut findings: Vec<Finding> =
        gone.map(|name| Finding::new("gap", name, format!("has no row in {GAPS}"))).collect();
    for (line, first, last) in rows {
        let wrong = judge_evidence(last, tests);
        findings.extend(wrong.into_iter().map(|text| Finding::new("gap", first, text).at(line)));
    }
    findings
}

/// Every complaint has a row that names a test in its last cell, or says what is missing.
fn check_lessons(text: &str, tests: &Tests<'_>) -> Vec<Finding> {
    let rows = table_rows(text);
    let is_there = |number: &usize| rows.iter().any(|(_, first, _)| *first == number.to_string());
    let gone = (1..=COMPLAINTS).filter(|number| !is_there(number));
    let mut findings: Vec<Finding> = gone
        .map(|number| Finding::new("lesson", number.to_string(), format!("has no row in {LESSONS}")))
        .collect();
    for (line, first, last) in rows {
        let wrong = judge_evidence(last, tests);
        findings.extend(wrong.into_iter().map(|text| Finding::new("lesson", first, text).at(line)));
    }
    findings
}

/// Lists the faults of a cell that names tests, or begins with what is missing.
fn judge_evidence(cell: &str, tests: &Tests<'_>) -> Vec<String> {
    match cell.strip_prefix(NOT_YET) {
        None => tests.judge(cell),
        Some(why) if words_of(why) < MIN_REASON_WORDS => {
            vec!["does not say why no test shows it yet".to_owned()]
        }
        Some(why) if why.contains("::") => tests.judge(why),
        Some(_) => Vec::new(),
    }
}

/// Counts the words of a text besides the tests that it names.
fn words_of(text: &str) -> usize {
    text.split('`').step_by(2).flat_map(str::split_whitespace).filter(|word| *word != ",").count()
}

/// Every limitation names a test that shows it, the issue that will end it, or why no test here can show it.
fn check_limitations(text: &str, tests: &Tests<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (title, body) in sections(text) {
        let shown = body.lines().find_map(|line| line.strip_prefix("Shown by: "));
        let issue = body.lines().find_map(|line| line.strip_prefix("Issue: "));
        let reason = body.lines().find_map(|line| line.strip_prefix("Not shown: "));
        let not_shown = reason.is_some_and(|why| why.split_whitespace().count() >= MIN_REASON_WORDS);
        let wrong = match (shown, issue) {
            (Some(shown), _) => tests.judge(shown),
            (None, Some(issue)) if issue.starts_with(|c: char| c.is_ascii_digit()) => Vec::new(),
            (None, None) if not_shown => Vec::new(),
            (None, _) => vec!["names neither a test nor an issue, nor why no test shows it".to_owned()],
        };
        findings.extend(wrong.into_iter().map(|text| Finding::new("limitation", title, text)));
    }
    findings
}

/// Each acceptance item names tests that are there. `verify` runs them, and would find a renamed one only then.
fn check_items(text: &str, tests: &Tests<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        // Those that name the page's tests alone are checked where these are run.
        let [rows, _what, shown_by, _result] = cells.as_slice() else { continue };
        if shown_by.contains("::") {
            findings.extend(tests.judge(shown_by).into_iter().map(|text| Finding::new("item", *rows, text)));
        }
    }
    findings
}

/// Every decision has a status.
fn check_decisions(text: &str) -> Vec<Finding> {
    let has_status = |body: &str| {
        let status = body.lines().find_map(|line| line.strip_prefix("Status: "));
        status.is_some_and(|status| STATUSES.iter().any(|known| status.starts_with(known)))
    };
    let without = sections(text).into_iter().filter(|(_, body)| !has_status(body));
    without.map(|(title, _)| Finding::new("decision", title, "has no status")).collect()
}

/// Every link to a file of the repository leads somewhere.
fn check_links(path: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for (at, marker) in line.match_indices("](") {
            let rest = line.get(at + marker.len()..).unwrap_or_default();
            let target = rest.split([')', '#']).next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") && !exists(target) {
                findings.push(Finding::new("link", path, format!("`{target}` is not there")).at(number + 1));
            }
        }
    }
    findings
}

/// The sections under headings of the second level: title and body.
pub(super) fn sections(text: &str) -> Vec<(&str, &str)> {
    let parts = text.split("\n## ").skip(1);
    parts.map(|part| part.split_once('\n').unwrap_or((part, ""))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;
    use writ_types::error::Exit;

    fn fixture() -> (Vec<Crate>, Vec<Source>) {
        let one = Crate {
            name: "writ-a".to_owned(),
            layer: Some(0),
            dependencies: Vec::new(),
            folder: "crates/writ-a/".to_owned(),
            manifest: String::new(),
            module_layers: Vec::new(),
        };
        let text = "mod tests { #[test] fn shown() {} fn helper() {} }";
        (vec![one], vec![Source::parse("crates/writ-a/src/a.rs", text).unwrap()])
    }

    fn texts(findings: Vec<Finding>) -> Vec<String> {
        findings.into_iter().map(|finding| format!("{}: {}", finding.item, finding.text)).collect()
    }

    #[test]
    fn a_crate_without_its_place_is_found() {
        let (crates, _) = fixture();
        assert_eq!(
            texts(check_architecture("`writ-b`", &crates)),
            ["writ-a: is not named in ARCHITECTURE.md"]
        );
        assert_eq!(check_architecture("| 0 | `writ-a` |", &crates), []);
    }

    #[test]
    fn a_security_row_names_a_test_that_exists() {
        let (crates, sources) = fixture();
        let tests = Tests { crates: &crates, sources: &sources };
        let table = "| threat | shown by |\n|---|---|\n| one | `writ-a::a::tests::shown` |\n| two | `writ-a::a::tests::helper`, `writ-a::b::tests::shown` |\n\
                     | three | later |\n";
        let expected = [
            "two: names `writ-a::a::tests::helper`, which is no test",
            "two: names `writ-a::b::tests::shown`, which is no test",
            "three: names no test",
        ];
        assert_eq!(texts(check_security_model(table, &tests)), expected);
    }

    #[test]
    fn a_capability_has_a_row_with_a_test_or_a_reason() {
        let (crates, sources) = fixture();
        let tests = Tests { crates: &crates, sources: &sources };
        let lines = CAPABILITIES.map(|name| format!("| {name} | `writ-a::a::tests::shown` |\n"));
        assert_eq!(check_gaps(&lines.concat(), &tests), []);
        let last = |cell: &str| format!("{}| Guardrails | {cell} |\n", lines[..9].concat());
        let reason = "not yet: nobody has made them; `writ-a::a::tests::shown`";
        assert_eq!(check_gaps(&last(reason), &tests), []);
        assert_eq!(check_gaps(&last("not yet: nobody has made them"), &tests), []);
        for (cell, wrong) in [
            ("later", "names no test"),
            ("not yet", "names no test"),
            ("not yet: none", "does not say why no test shows it yet"),
            (
                "not yet: `writ-a::a::tests::shown`, `writ-a::a::tests::shown`, `writ-a::a::tests::shown`",
                "does not say why no test shows it yet",
            ),
            (
                "not yet: nobody has made them; `writ-a::a::tests::helper`",
                "names `writ-a::a::tests::helper`, which is no test",
            ),
        ] {
            assert_eq!(texts(check_gaps(&last(cell), &tests)), [format!("Guardrails: {wrong}")], "{cell}");
        }
        let gone = check_gaps(&lines[..9].concat(), &tests);
        assert_eq!(texts(gone), ["Guardrails: has no row in docs/capability-gaps.md"]);
    }

    #[test]
    fn a_complaint_has_a_row_with_a_test_or_with_what_is_missing() {
        let (crates, sources) = fixture();
        let tests = Tests { crates: &crates, sources: &sources };
        let lines: Vec<String> =
            (1..=COMPLAINTS).map(|number| format!("| {number} | `writ-a::a::tests::shown` |\n")).collect();
        assert_eq!(check_lessons(&lines.concat(), &tests), []);
        let without_last = lines[..COMPLAINTS - 1].concat();
        let last = |cell: &str| check_lessons(&format!("{without_last}| 28 | {cell} |\n"), &tests);
        assert_eq!(last("not yet: no worker runs elsewhere; `writ-a::a::tests::shown`"), []);
        assert_eq!(texts(last("later")), ["28: names no test"]);
        assert_eq!(
            texts(last("not yet: no worker runs elsewhere; `writ-a::a::tests::helper`")),
            ["28: names `writ-a::a::tests::helper`, which is no test"]
        );
        let gone = check_lessons(&without_last, &tests);
        assert_eq!(texts(gone), ["28: has no row in docs/autopilot-lessons.md"]);
    }

    #[test]
    fn a_limitation_names_a_test_or_an_issue() {
        let (crates, sources) = fixture();
        let tests = Tests { crates: &crates, sources: &sources };
        let text = "# T\n\n## One\nShown by: `writ-a::a::tests::shown`\n\n## Two\nIssue: 12\n\n## Three\nIssue: none\n\n## Four\nA.\n\n\
                    ## Five\nNot shown: it takes a Mac.\n\n## Six\nNot shown: so so\n\n## Seven\nIssue: none\nNot shown: it takes a Mac.\n";
        let expected = ["Three", "Four", "Six", "Seven"]
            .map(|title| format!("{title}: names neither a test nor an issue, nor why no test shows it"));
        assert_eq!(texts(check_limitations(text, &tests)), expected);
    }

    #[test]
    fn an_item_names_tests_that_are_there() {
        let (crates, sources) = fixture();
        let tests = Tests { crates: &crates, sources: &sources };
        let text = "| rows | what | shown by | result |\n| --- | --- | --- | --- |\n\
                    | SIL-1 | It works. | `writ-a::a::tests::shown` | pass |\n\
                    | SIL-2 | So does this. | `web-tests/a.test.mjs: it does` | pass |\n\
                    | SIL-3 | And this. | `writ-a::a::tests::renamed` | pass |\n";
        assert_eq!(
            texts(check_items(text, &tests)),
            ["SIL-3: names `writ-a::a::tests::renamed`, which is no test"]
        );
    }

    #[test]
    fn a_decision_has_a_status() {
        let text = "# T\n\n## One\nStatus: accepted\n\n## Two\nStatus: maybe\n\n## Three\nText.\n";
        assert_eq!(texts(check_decisions(text)), ["Two: has no status", "Three: has no status"]);
    }

    #[test]
    fn a_broken_link_is_found() {
        let text = "[a](a.md) [b](https://example.org) [c](#here) [d](gone.md#part)";
        assert_eq!(
            texts(check_links("x.md", text, |target| target == "a.md")),
            ["x.md: `gone.md` is not there"]
        );
    }

    fn committed(path: &str) -> String {
        std::fs::read_to_string(workspace::root().unwrap().join(path)).unwrap()
    }

    /// The security model names, for each of its rows, a test that exists; a row without one is a fault. It lies in `docs/`, where this
    /// repository has what the row's design calls `specs/`.
    ///
    /// Rows: SIL-286
    /// Rows: SCL-181 (that the document says where it is stricter)
    #[test]
    fn the_security_model_is_shown_by_tests() {
        let root = workspace::root().unwrap();
        let (crates, sources) =
            (workspace::crates(&root).unwrap(), source::parse_all(&source::texts(&root).unwrap()).unwrap());
        let text = committed(SECURITY_MODEL);
        assert_eq!(check_security_model(&text, &Tests { crates: &crates, sources: &sources }), []);
        let rows = text.lines().filter(|line| line.starts_with('|')).count();
        assert!(rows > 2, "the table has rows below its head");
        let (promise, rest) = text.split_once("`writ-policy::").unwrap();
        let (named, rest) = rest.split_once('`').unwrap();
        for other in ["`writ-policy::there::is_no_such_test`", "it is so"] {
            let changed = format!("{promise}{other}{rest}");
            let found = check_security_model(&changed, &Tests { crates: &crates, sources: &sources });
            assert_eq!(found.len(), 1, "{named} as {other}");
        }
        let stricter = sections(&text).into_iter().find(|(title, _)| *title == "What is not trusted");
        let stricter = stricter.map(|(_, body)| body).unwrap();
        for trusted_elsewhere in ["Plans", "Tools", "The local machine", "What a client sends"] {
            assert!(stricter.contains(&format!("| {trusted_elsewhere} |")), "{trusted_elsewhere}");
        }
    }

    /// Of the ten capabilities, those that no test shows whole are these.
    ///
    /// Rows: SIL-414 (in part: two of the ten rows name what is missing)
    #[test]
    fn the_capabilities_are_shown_by_tests_or_said_to_be_missing() {
        let root = workspace::root().unwrap();
        let (crates, sources) =
            (workspace::crates(&root).unwrap(), source::parse_all(&source::texts(&root).unwrap()).unwrap());
        let text = committed(GAPS);
        assert_eq!(check_gaps(&text, &Tests { crates: &crates, sources: &sources }), []);
        let rows = table_rows(&text);
        assert_eq!(rows.iter().map(|(_, first, _)| *first).collect::<Vec<_>>(), CAPABILITIES);
        let missing = rows.iter().filter(|(_, _, last)| last.starts_with(NOT_YET));
        let missing: Vec<&str> = missing.map(|(_, first, _)| *first).collect();
        assert_eq!(missing, ["Skills", "Self-improving"]);
    }

    /// The chapters of the design language, and its tokens as the page has them. It lies in `docs/`, where this repository has what
    /// the row's design calls `specs/`.
    ///
    /// Rows: SIL-412
    #[test]
    fn the_design_language_is_that_of_the_page() {
        let root = workspace::root().unwrap();
        let text = std::fs::read_to_string(root.join("docs/design-language.md")).unwrap();
        let style = std::fs::read_to_string(root.join("crates/writ-gateway/web/style.css")).unwrap();
        assert!(text.starts_with("# Design language: Quiet\n"));
        assert!(text.contains("Human Interface Guidelines"), "it says what it draws on");
        let lacks = |text: &str| -> Vec<&str> {
            let titles: Vec<&str> = sections(text).into_iter().map(|(title, _)| title).collect();
            let chapters = ["Type", "Colour", "Space", "Motion", "Anatomy of a card"];
            chapters.into_iter().filter(|chapter| !titles.contains(chapter)).collect()
        };
        assert_eq!(lacks(&text), [""; 0]);
        assert_eq!(lacks(&text.replace("## Motion\n", "\n")), ["Motion"], "a removed chapter is missed");
        let tokens: Vec<&str> =
            text.split('`').skip(1).step_by(2).filter(|token| token.starts_with("--")).collect();
        assert!(!tokens.is_empty());
        for token in tokens {
            assert!(style.contains(&format!("{token}:")), "{token} is not in the page");
        }
    }

    /// The key choices are those of the design's chapters, each with the decision about it.
    ///
    /// Rows: SIL-287
    #[test]
    fn every_key_choice_is_a_decision_with_a_status() {
        let text = committed(DECISIONS);
        assert_eq!(check_decisions(&text), []);
        let titles: Vec<&str> = sections(&text).into_iter().map(|(title, _)| title).collect();
        for (choice, title) in [
            ("the door", "One door with pure stages"),
            ("permits", "The permit is a value, and its maker and type share a crate"),
            ("turns", "The turn machine is pure"),
            ("processes", "One engine per home, commands are clients"),
            ("keys and rules", "Rules are Cedar policies, keys are Biscuit tokens"),
            ("approvals", "Approvals are our own signed structure"),
            ("approvers", "The approver key is outside the engine's reach"),
            ("taint", "Labels are on values, computed by the harness"),
            ("the ledger", "The ledger is a Merkle tree with signed heads"),
            ("the store", "SQLite, one database per home"),
            ("the sandbox", "The native sandbox is our own, without a daemon and without setuid"),
            ("projects", "Projects are worked on in an overlay"),
            (
                "egress",
                "After external content a composed URL asks, and a program's hosts are the owner's or registries",
            ),
            ("models", "Provider clients come from a library, over a connection that we lend"),
            ("memory", "Memory is searched by words and by meaning, in the one database"),
            ("the page", "The page is plain HTML, CSS and modules, without a framework"),
        ] {
            assert!(titles.contains(&title), "{choice}: {titles:?}");
        }
        let without_one = text.replacen("Status: accepted", "", 1);
        assert_eq!(check_decisions(&without_one).len(), 1, "a decision without a status is found");
    }

    /// The list of limitations names a test or an issue for each.
    ///
    /// Rows: SCL-191
    ///
    /// Rows: SIL-278 (in part: what is not there yet is listed, with the issue that will bring it)
    #[test]
    fn limitations_name_a_test_or_an_issue() {
        let root = workspace::root().unwrap();
        let (crates, sources) =
            (workspace::crates(&root).unwrap(), source::parse_all(&source::texts(&root).unwrap()).unwrap());
        let text = committed(LIMITATIONS);
        assert_eq!(check_limitations(&text, &Tests { crates: &crates, sources: &sources }), []);
        assert!(!sections(&text).is_empty(), "no product is without limits");
    }

    #[test]
    fn every_exit_code_is_documented() {
        let text = committed("docs/exit-codes.md");
        let documented: Vec<u8> = text
            .lines()
            .filter_map(|line| line.strip_prefix("| ")?.split(' ').next()?.parse().ok())
            .collect();
        assert_eq!(documented, Exit::ALL.map(Exit::code));
    }
}
