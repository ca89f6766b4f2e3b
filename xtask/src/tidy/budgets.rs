//! Functions and files have a size at which a reader can still hold them.

use super::Finding;
use crate::source::Source;

/// Lines of a function, from its signature to its closing brace.
const FUNCTION_LINES: usize = 70;
/// Lines of a function that is one `match` and marked `// tidy: table`.
const TABLE_LINES: usize = 120;
/// Lines of a file without its tests.
const FILE_LINES: usize = 500;
/// The number of printed entries.
const WORST: usize = 10;

/// Checks every function and file outside tests.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        if source.lines > FILE_LINES {
            let text = format!("{} lines outside tests, {FILE_LINES} at most", source.lines);
            findings.push(Finding::new("file-length", &source.path, text));
        }
        for function in source.functions.iter().filter(|function| !function.in_test) {
            let item = format!("{}::{}", source.path, function.name);
            if function.marked_table && !function.is_table {
                let text = "is marked as a table, but is not one `match`";
                findings.push(Finding::new("table", item.clone(), text).at(function.line));
            }
            let limit = if function.marked_table { TABLE_LINES } else { FUNCTION_LINES };
            if function.lines > limit {
                let text = format!("{} lines, {limit} at most", function.lines);
                findings.push(Finding::new("function-length", item, text).at(function.line));
            }
        }
    }
    findings
}

/// The longest functions outside tests.
pub(super) fn longest_functions(sources: &[Source]) -> Vec<(usize, String)> {
    let functions = sources.iter().flat_map(|source| {
        let shipped = source.functions.iter().filter(|function| !function.in_test);
        shipped.map(|function| (function.lines, format!("{}::{}", source.path, function.name)))
    });
    worst(functions.collect())
}

/// The longest files, without their tests.
pub(super) fn longest_files(sources: &[Source]) -> Vec<(usize, String)> {
    worst(sources.iter().map(|source| (source.lines, source.path.clone())).collect())
}

fn worst(mut all: Vec<(usize, String)>) -> Vec<(usize, String)> {
    all.sort_by(|a, b| b.cmp(a));
    all.truncate(WORST);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(head: &str, body_lines: usize) -> String {
        format!("{head} {{\n{}}}\n", "    x();\n".repeat(body_lines))
    }

    fn items(text: &str) -> Vec<(&'static str, String)> {
        let source = Source::parse("a.rs", text).unwrap();
        check(&[source]).into_iter().map(|finding| (finding.check, finding.item)).collect()
    }

    #[test]
    fn a_long_function_is_found() {
        assert_eq!(items(&function("fn a()", 68)), []);
        assert_eq!(items(&function("fn a()", 69)), [("function-length", "a.rs::a".to_owned())]);
    }

    #[test]
    fn a_table_may_be_longer_but_must_be_one() {
        let arms = |count: usize| (0..count).map(|n| format!("        {n} => {n},\n")).collect::<String>();
        let table =
            |count| format!("// tidy: table\nfn a(n: u8) {{\n    match n {{\n{}    }}\n}}\n", arms(count));
        assert_eq!(items(&table(116)), []);
        assert_eq!(items(&table(117)), [("function-length", "a.rs::a".to_owned())]);
        let code = format!("// tidy: table\n{}", function("fn a()", 80));
        assert_eq!(items(&code), [("table", "a.rs::a".to_owned())]);
    }

    #[test]
    fn a_long_file_is_found_without_its_tests() {
        let lines = "const A: u8 = 0;\n";
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", lines.repeat(300));
        assert_eq!(items(&format!("{}{tests}", lines.repeat(500))), []);
        assert_eq!(items(&lines.repeat(501)), [("file-length", "a.rs".to_owned())]);
    }
}
