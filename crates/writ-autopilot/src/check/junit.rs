//! JUnit's XML, read by a scanner that knows tags, and nothing of entities or schemas.
//!
//! Cases are counted, not attributes, since many reporters write wrong sums. A suite that says that it failed, and has no
//! failed case, still counts as failed: its set-up did.

use super::counts::{ReportError, TestCounts, malformed};

/// The deepest nesting that is followed.
const MAX_DEPTH: usize = 64;
/// The most elements.
const MAX_ELEMENTS: usize = 2_000_000;

/// A tag.
struct XmlTag<'a> {
    name: &'a str,
    attributes: &'a str,
    is_end: bool,
    is_empty: bool,
}

/// The case that is open.
#[derive(Default)]
struct JunitCase {
    is_failed: bool,
    is_skipped: bool,
}

/// The counts so far.
#[derive(Default)]
struct JunitCounts<'a> {
    counts: TestCounts,
    path: Vec<&'a str>,
    case: Option<JunitCase>,
    declared_tests: u64,
    declared_failures: u64,
    suites: u64,
}

pub(super) fn count_junit(text: &str) -> Result<TestCounts, ReportError> {
    let mut read = JunitCounts::default();
    let (mut rest, mut elements) = (text, 0_usize);
    while let Some(at) = rest.find('<') {
        rest = rest.get(at..).unwrap_or_default();
        let Some((tag, after)) = next_tag(rest)? else { return Err(ReportError::Truncated) };
        rest = after;
        let Some(tag) = tag else { continue };
        elements += 1;
        if elements > MAX_ELEMENTS {
            return malformed(format!("more than {MAX_ELEMENTS} elements"));
        }
        read.take_tag(&tag)?;
    }
    read.finish(elements)
}

/// Reads the tag or the comment that a text begins with; `None` outside: it does not end. `None` inside: it is no element.
fn next_tag(text: &str) -> Result<Option<(Option<XmlTag<'_>>, &str)>, ReportError> {
    for (open, close) in [("<!--", "-->"), ("<![CDATA[", "]]>"), ("<?", "?>")] {
        if let Some(inside) = text.strip_prefix(open) {
            return Ok(inside.split_once(close).map(|(_, after)| (None, after)));
        }
    }
    if text.starts_with("<!") {
        // A document type can define entities; no runner writes one.
        return malformed("a document type");
    }
    let mut quote = None;
    let end = text.char_indices().skip(1).find(|(_, c)| match (quote, *c) {
        (None, '>') => true,
        (None, '"' | '\'') => {
            quote = Some(*c);
            false
        }
        (Some(open), c) => {
            quote = if open == c { None } else { quote };
            false
        }
        (None, _) => false,
    });
    let Some((end, _)) = end else { return Ok(None) };
    let (body, after) = (text.get(1..end).unwrap_or_default(), text.get(end + 1..).unwrap_or_default());
    let (is_end, body) = body.strip_prefix('/').map_or((false, body), |body| (true, body));
    let (is_empty, body) = body.strip_suffix('/').map_or((false, body), |body| (true, body));
    let (name, attributes) = body.split_once(|c: char| c.is_whitespace()).unwrap_or((body, ""));
    // A prefix of a name space says nothing here.
    let name = name.rsplit(':').next().unwrap_or(name);
    Ok(Some((Some(XmlTag { name, attributes, is_end, is_empty }), after)))
}

/// Returns the value of an attribute, as it is written.
fn attribute<'a>(attributes: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = attributes;
    loop {
        let (key, after) = rest.split_once('=')?;
        let after = after.trim_start();
        let quote = after.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        let (value, next) = after.get(1..)?.split_once(quote)?;
        if key.trim() == name {
            return Some(value);
        }
        rest = next;
    }
}

impl<'a> JunitCounts<'a> {
    fn take_tag(&mut self, tag: &XmlTag<'a>) -> Result<(), ReportError> {
        if tag.is_end {
            // A cut in the middle of a file that was joined from two.
            if self.path.pop() != Some(tag.name) {
                return malformed("elements that are not closed in order");
            }
            if tag.name == "testcase" {
                self.close_case();
            }
            return Ok(());
        }
        let number = |name: &str| {
            attribute(tag.attributes, name).and_then(|value| value.parse::<u64>().ok()).unwrap_or(0)
        };
        match tag.name {
            "testsuite" => {
                self.suites += 1;
                // Of nested suites the outer one has the sum.
                if !self.path.contains(&"testsuite") {
                    let failures = number("failures").saturating_add(number("errors"));
                    self.declared_failures = self.declared_failures.saturating_add(failures);
                    self.declared_tests = self.declared_tests.saturating_add(number("tests"));
                }
            }
            "testsuites" => self.suites += 1,
            "testcase" => {
                let state = |name| attribute(tag.attributes, name).unwrap_or_default();
                let is_skipped = matches!(state("status"), "notrun" | "disabled" | "skipped")
                    || matches!(state("result"), "suppressed" | "skipped");
                self.case = Some(JunitCase { is_failed: false, is_skipped });
            }
            "failure" | "error" => {
                if let Some(case) = &mut self.case {
                    case.is_failed = true;
                }
            }
            "skipped" | "disabled" => {
                if let Some(case) = &mut self.case {
                    case.is_skipped = true;
                }
            }
            _ => {}
        }
        if tag.is_empty {
            if tag.name == "testcase" {
                self.close_case();
            }
        } else if self.path.len() >= MAX_DEPTH {
            return malformed(format!("more than {MAX_DEPTH} elements inside each other"));
        } else {
            self.path.push(tag.name);
        }
        Ok(())
    }

    fn close_case(&mut self) {
        let Some(case) = self.case.take() else { return };
        if case.is_failed {
            self.counts.failed += 1;
        } else if case.is_skipped {
            self.counts.skipped += 1;
        } else {
            self.counts.passed += 1;
        }
    }

    fn finish(mut self, elements: usize) -> Result<TestCounts, ReportError> {
        if !self.path.is_empty() {
            return Err(ReportError::Truncated);
        }
        if elements == 0 || self.suites == 0 {
            return Err(ReportError::NoSummary);
        }
        // A suite can fail without a failed case: its set-up, or the end of its process.
        self.counts.failed = self.counts.failed.max(self.declared_failures);
        let found = self.counts.executed().saturating_add(self.counts.skipped);
        if found == 0 && self.declared_tests > 0 {
            return malformed(format!("{} tests declared, none listed", self.declared_tests));
        }
        Ok(self.counts)
    }
}
