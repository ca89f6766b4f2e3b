//! Reads the rows that the page's tests name, in the comment before a test: `/** Rows: SIL-236 */`.

use super::shown::{Claims, MARK};

/// Adds the claims of the page's tests, given as path and text.
pub(super) fn collect(sources: &[(String, String)], claims: &mut Claims) {
    for (path, text) in sources {
        let mut doc = String::new();
        for line in text.lines().map(str::trim) {
            if let Some(comment) = comment(line) {
                doc.push_str(comment);
                doc.push('\n');
                continue;
            }
            let name = line.strip_prefix("test(\"").and_then(|rest| rest.split_once("\","));
            // Options come before the function: `{ skip: true }`.
            let name =
                name.filter(|(_, rest)| !["skip", "todo"].iter().any(|left_out| rest.contains(left_out)));
            let name = name.map(|(name, _)| name);
            if doc.contains(MARK) {
                claims.add(&format!("{path}: {}", name.unwrap_or(line)), &doc, name.is_some());
            }
            doc.clear();
        }
    }
}

/// Returns the text of a line of a comment.
fn comment(line: &str) -> Option<&str> {
    let inside = ["/**", "*/", "* ", "//"].iter().find_map(|start| line.strip_prefix(start));
    let inside = inside.or_else(|| (line == "*").then_some(""))?;
    Some(inside.trim_end_matches("*/").trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_before_a_test_of_the_page_is_its_claim() {
        let text = "/** Rows: SIL-236 SIL-237 */\ntest(\"it, works\", async () => {\n});\n\n\
                    /**\n * Long.\n *\n * Rows: SIL-318 (a part)\n */\ntest(\"it looks\", () => {\n\
                    // Rows: SIL-001\nconst a = 1;\n/** Rows: SIL-002 */\ntest(\"left out\", { skip: true }, () => {\ntest(\"nothing\", () => {";
        let mut claims = Claims::default();
        collect(&[("web-tests/a.test.mjs".to_owned(), text.to_owned())], &mut claims);
        let found: Vec<_> = claims
            .rows
            .iter()
            .map(|(id, all)| (id.as_str(), all[0].test.as_str(), all[0].part.is_some()))
            .collect();
        let works = "web-tests/a.test.mjs: it, works";
        let looks = "web-tests/a.test.mjs: it looks";
        assert_eq!(found, [("SIL-236", works, false), ("SIL-237", works, false), ("SIL-318", looks, true)]);
        let skipped =
            "web-tests/a.test.mjs: test(\"left out\", { skip: true }, () => { names rows, but is no test";
        assert_eq!(claims.errors, ["web-tests/a.test.mjs: const a = 1; names rows, but is no test", skipped]);
    }
}
