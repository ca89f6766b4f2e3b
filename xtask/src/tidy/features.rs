//! The list of features: a planned one is presented as shipped nowhere.

use super::Finding;

/// The list.
pub(super) const FEATURES: &str = "docs/features.md";

/// The states of a feature.
const SHIPPED: &str = "shipped";
const PLANNED: &str = "planned";

/// A document that presents the product, by its path.
pub(super) type Presented = (String, String);

/// Checks the list against the documents that present the product. `judge` lists the faults of the evidence in a cell.
pub(super) fn check_features(
    list: &str,
    documents: &[Presented],
    judge: impl Fn(&str) -> Vec<String>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in (1_usize..).zip(list.lines()) {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let [feature, state, words, shown_by] = cells.as_slice() else { continue };
        if shown_by.starts_with("---") || *shown_by == "shown by" {
            continue;
        }
        let words = quoted_words(words);
        let wrong = match (*state, shown_by.starts_with(super::docs::NOT_YET)) {
            (SHIPPED, false) => judge(shown_by),
            (SHIPPED, true) => vec!["is shipped, and nothing shows it".to_owned()],
            (PLANNED, true) if words.is_empty() => vec!["names no words by which it is found".to_owned()],
            (PLANNED, true) => {
                documents.iter().flat_map(|document| presented_lines(document, &words)).collect()
            }
            (PLANNED, false) => vec!["is planned, and does not say why no test shows it".to_owned()],
            (_, _) => vec![format!("is neither {SHIPPED} nor {PLANNED}")],
        };
        findings.extend(wrong.into_iter().map(|text| Finding::new("feature", *feature, text).at(number)));
    }
    findings
}

/// Returns the words between «».
fn quoted_words(cell: &str) -> Vec<String> {
    let parts = cell.split('«').skip(1).filter_map(|part| part.split_once('»'));
    parts.map(|(words, _)| words.to_lowercase()).collect()
}

/// Returns a fault for each line that presents a planned feature. A line that says «planned», «not yet» or «none yet» does not.
fn presented_lines((path, text): &Presented, words: &[String]) -> Vec<String> {
    let mut faults = Vec::new();
    for (number, line) in (1_usize..).zip(text.lines()) {
        let line = line.to_lowercase();
        let is_marked = line.contains(PLANNED) || line.contains(" yet");
        let found = words.iter().find(|words| !is_marked && line.contains(words.as_str()));
        faults.extend(found.map(|words| {
            format!("is planned, and {path} line {number} names «{words}» as if it were there")
        }));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(list: &str, document: &str) -> Vec<String> {
        let judge = |cell: &str| if cell.contains("there") { Vec::new() } else { vec!["no test".to_owned()] };
        let documents = [("README.md".to_owned(), document.to_owned())];
        let findings = check_features(list, &documents, judge);
        findings.iter().map(ToString::to_string).collect()
    }

    /// Each feature has a tag. A planned one that a document presents as if it were there is found, and so is a shipped one that no
    /// test shows.
    ///
    /// Rows: SIL-278 (in part: features are tagged, and a planned one that is presented as shipped is found)
    #[test]
    fn a_planned_feature_that_is_presented_as_shipped_is_found() {
        let head = "| feature | state | its words | shown by |\n| --- | --- | --- | --- |\n";
        let planned =
            format!("{head}| chats | planned | «Telegram», «Slack» | not yet: not built at all here |");
        assert_eq!(
            found(&planned, "Talk to it.\n| Telegram | planned |\nSlack does not yet work.\n"),
            [] as [&str; 0]
        );
        let presented = found(&planned, "Talk to it.\nAnswers by telegram.\n");
        assert!(
            presented.len() == 1 && presented[0].contains("README.md line 2 names «telegram»"),
            "{presented:?}"
        );
        for (row, fault) in [
            ("| a | shipped | | `is::there` |", None),
            ("| a | shipped | | `is::gone` |", Some("no test")),
            ("| a | shipped | | not yet: it is not built |", Some("nothing shows it")),
            ("| a | planned | «a b» | `is::there` |", Some("does not say why")),
            ("| a | planned | | not yet: it is not built |", Some("names no words")),
            ("| a | soon | | `is::there` |", Some("neither shipped nor planned")),
        ] {
            let found = found(&format!("{head}{row}"), "Text.");
            assert_eq!(found.len(), usize::from(fault.is_some()), "{row}: {found:?}");
            assert!(fault.is_none_or(|fault| found[0].contains(fault)), "{row}: {found:?}");
        }
    }
}
