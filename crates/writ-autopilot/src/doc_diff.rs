//! A unified diff that an agent proposes for documents: read with bounds, and applied to their texts without a guess.
//!
//! Nothing of it is run or given to a program. What is not exactly of the form, names another file than those that it may change, or does
//! not fit a text at one place alone is refused as a whole.

use std::collections::BTreeMap;

use crate::attempt::TurnMarker;

/// The largest diff, in bytes.
pub const MAX_DIFF_BYTES: usize = 64 * 1024;
/// The most hunks of a diff.
const MAX_HUNKS: usize = 200;
/// The longest quotation in a message, in characters.
const MAX_SHOWN_CHARS: usize = 60;

/// A diff that is not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocDiffError {
    /// The reply is too long.
    #[error("the diff has {0} bytes, more than {MAX_DIFF_BYTES}")]
    TooLarge(usize),
    /// A line is not of the form.
    #[error("line {line} of the diff: {why}")]
    Form {
        /// The line, counted from one.
        line: usize,
        /// The mistake.
        why: String,
    },
    /// A part does not fit the text of its document.
    #[error("line {line} of the diff does not fit {path}: {why}")]
    Misfit {
        /// The line of the hunk, counted from one.
        line: usize,
        /// The document.
        path: String,
        /// The mistake.
        why: String,
    },
}

/// One part of a diff: lines that are replaced, with those around them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DocHunk {
    /// Its line in the diff.
    line: usize,
    /// The line of the document at which it begins, counted from one.
    at: usize,
    /// The lines before the change.
    before: Vec<String>,
    /// The lines after it.
    after: Vec<String>,
}

/// A diff of documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocDiff {
    text: String,
    files: BTreeMap<String, Vec<DocHunk>>,
}

impl DocDiff {
    /// Returns its text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the names of the documents that it changes.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// Applies it to the texts of documents. Returns those that are different afterwards.
    ///
    /// # Errors
    ///
    /// If one of its parts fits no place of a text, or several; then nothing of it counts.
    pub fn apply_to(
        &self,
        documents: &BTreeMap<String, String>,
    ) -> Result<BTreeMap<String, String>, DocDiffError> {
        let mut changed = BTreeMap::new();
        for (path, hunks) in &self.files {
            let text = documents.get(path).map_or("", String::as_str);
            let new = apply_hunks(path, hunks, text)?;
            if new != text {
                changed.insert(path.clone(), new);
            }
        }
        Ok(changed)
    }
}

/// Reads the diff of a reply; `None` if the reply changes nothing. It may change those documents alone.
///
/// # Errors
///
/// If it is too long, not of the form, or about another file.
pub fn read_doc_diff(reply: &str, documents: &[&str]) -> Result<Option<DocDiff>, DocDiffError> {
    if reply.len() > MAX_DIFF_BYTES {
        return Err(DocDiffError::TooLarge(reply.len()));
    }
    let text = diff_of(reply);
    if text.trim().is_empty() {
        return Ok(None);
    }
    let mut reader = DiffReader { lines: text.split('\n').collect(), at: 0, documents };
    let (mut files, mut count) = (BTreeMap::new(), 0);
    while let Some((path, hunks)) = reader.read_file()? {
        count += hunks.len();
        if count > MAX_HUNKS {
            return Err(reader.fault(format!("it has more than {MAX_HUNKS} parts")));
        }
        if files.contains_key(&path) {
            return Err(reader.fault(format!("{path} is named twice")));
        }
        files.insert(path, hunks);
    }
    // As it is: the last line may be an empty one of context.
    Ok(Some(DocDiff { text, files }))
}

/// Returns the part of a reply that is the diff: the one block in a fence, or all of it without a line that ends a turn.
fn diff_of(reply: &str) -> String {
    let is_marker = |line: &str| line.starts_with('<') && TurnMarker::find_in(line).is_some();
    let lines: Vec<&str> = reply.split('\n').filter(|line| !is_marker(line)).collect();
    // Lines of a diff begin with a sign of their own, so a fence is none of them.
    let fences: Vec<usize> =
        (0..).zip(&lines).filter(|(_, line)| line.starts_with("```")).map(|(n, _)| n).collect();
    match fences[..] {
        [first, last] => lines.get(first + 1..last).unwrap_or_default().join("\n"),
        _ => lines.join("\n"),
    }
}

/// Reads the lines of a diff in their order.
struct DiffReader<'a> {
    lines: Vec<&'a str>,
    at: usize,
    documents: &'a [&'a str],
}

impl<'a> DiffReader<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.lines.get(self.at).copied()
    }

    fn next_line(&mut self) -> Option<&'a str> {
        let line = self.peek()?;
        self.at += 1;
        Some(line)
    }

    /// Makes the error of the line that was read last.
    fn fault(&self, why: impl Into<String>) -> DocDiffError {
        DocDiffError::Form { line: self.at.max(1), why: why.into() }
    }

    /// Reads the part of one file; `None` at the end.
    fn read_file(&mut self) -> Result<Option<(String, Vec<DocHunk>)>, DocDiffError> {
        while self.peek().is_some_and(|line| line.trim().is_empty()) {
            self.at += 1;
        }
        // Git's own lines say nothing more, but for those of new, deleted and renamed files, which are refused below.
        while self.peek().is_some_and(|line| line.starts_with("diff --git ") || line.starts_with("index ")) {
            self.at += 1;
        }
        let Some(line) = self.next_line() else { return Ok(None) };
        let old = line.strip_prefix("--- ").ok_or_else(|| self.fault(no_header(line)))?;
        let old = self.read_path(old, "a/")?;
        let line = self.next_line().unwrap_or_default();
        let new = line.strip_prefix("+++ ").ok_or_else(|| self.fault(no_header(line)))?;
        if self.read_path(new, "b/")? != old {
            return Err(self.fault("a document keeps its name"));
        }
        let mut hunks = Vec::new();
        while self.peek().is_some_and(|line| line.starts_with("@@ ")) {
            hunks.push(self.read_hunk()?);
            if hunks.len() > MAX_HUNKS {
                return Err(self.fault(format!("it has more than {MAX_HUNKS} parts")));
            }
        }
        if hunks.is_empty() {
            return Err(self.fault("a part begins with a line `@@ -LINE,COUNT +LINE,COUNT @@`"));
        }
        Ok(Some((old, hunks)))
    }

    fn read_path(&self, text: &str, prefix: &str) -> Result<String, DocDiffError> {
        let path = text.split('\t').next().unwrap_or_default().trim_end();
        let path = path.strip_prefix(prefix).unwrap_or(path);
        if self.documents.contains(&path) {
            return Ok(path.to_owned());
        }
        let why = format!("{} is none of {}", show_line(path), self.documents.join(", "));
        Err(self.fault(why))
    }

    fn read_hunk(&mut self) -> Result<DocHunk, DocDiffError> {
        let header = self.next_line().unwrap_or_default();
        let line = self.at;
        let range = read_ranges(header);
        let (at, mut removed, mut added) =
            range.ok_or_else(|| self.fault("a part begins with a line `@@ -LINE,COUNT +LINE,COUNT @@`"))?;
        let (mut before, mut after) = (Vec::new(), Vec::new());
        while removed > 0 || added > 0 {
            let Some(line) = self.next_line() else {
                return Err(self.fault("it ends before the lines that its part announces"));
            };
            // An empty line of context whose blank was cut off.
            let (sign, rest) = line.split_at_checked(1).unwrap_or((" ", ""));
            let (takes, gives) = match sign {
                " " => (1, 1),
                "-" => (1, 0),
                "+" => (0, 1),
                _ => return Err(self.fault("a line of a part begins with a blank, `-` or `+`")),
            };
            let counts = removed.checked_sub(takes).zip(added.checked_sub(gives));
            (removed, added) = counts.ok_or_else(|| self.fault("its part announces fewer lines"))?;
            before.extend((takes == 1).then(|| rest.to_owned()));
            after.extend((gives == 1).then(|| rest.to_owned()));
        }
        if before.is_empty() {
            return Err(DocDiffError::Form { line, why: "a part has a line of the document".to_owned() });
        }
        Ok(DocHunk { line, at, before, after })
    }
}

fn no_header(line: &str) -> String {
    format!("'{}' is no line of a diff that changes a document", show_line(line))
}

fn show_line(line: &str) -> String {
    line.chars().take(MAX_SHOWN_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Reads `@@ -LINE,COUNT +LINE,COUNT @@`: the line, and both counts.
fn read_ranges(header: &str) -> Option<(usize, usize, usize)> {
    let (ranges, _) = header.strip_prefix("@@ ")?.split_once(" @@")?;
    let (old, new) = ranges.split_once(' ')?;
    let range = |text: &str, sign: char| -> Option<(usize, usize)> {
        let text = text.strip_prefix(sign)?;
        let (line, count) = text.split_once(',').unwrap_or((text, "1"));
        let number = |text: &str| text.parse::<u32>().ok().and_then(|number| usize::try_from(number).ok());
        // No document has more lines than its diff may have bytes.
        Some((number(line)?, number(count).filter(|count| *count <= MAX_DIFF_BYTES)?))
    };
    let ((at, removed), (_, added)) = (range(old, '-')?, range(new, '+')?);
    Some((at, removed, added))
}

fn apply_hunks(path: &str, hunks: &[DocHunk], text: &str) -> Result<String, DocDiffError> {
    let lines: Vec<&str> = text.split('\n').collect();
    let (mut out, mut done): (Vec<&str>, usize) = (Vec::new(), 0);
    for hunk in hunks {
        let misfit =
            |why: &str| DocDiffError::Misfit { line: hunk.line, path: path.to_owned(), why: why.to_owned() };
        let fits = |at: usize| {
            let there = lines.get(at..at.saturating_add(hunk.before.len()));
            at >= done && there.is_some_and(|there| there.iter().eq(hunk.before.iter()))
        };
        let stated = hunk.at.saturating_sub(1);
        // Models count lines badly: where the stated place does not fit, one other place may.
        let at = if fits(stated) {
            stated
        } else {
            let mut places = (done..lines.len()).filter(|at| fits(*at));
            match (places.next(), places.next()) {
                (Some(at), None) => at,
                (None, _) => return Err(misfit("its lines are not there")),
                (Some(_), Some(_)) => return Err(misfit("its lines are there more than once")),
            }
        };
        out.extend(lines.get(done..at).unwrap_or_default());
        out.extend(hunk.after.iter().map(String::as_str));
        done = at + hunk.before.len();
    }
    out.extend(lines.get(done..).unwrap_or_default());
    Ok(out.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENTS: [&str; 2] = ["ARCHITECTURE.md", "STACK.md"];
    const DIFF: &str =
        "--- a/ARCHITECTURE.md\n+++ b/ARCHITECTURE.md\n@@ -2,2 +2,3 @@\n two\n-three\n+drei\n+vier\n";

    fn texts() -> BTreeMap<String, String> {
        BTreeMap::from([
            ("ARCHITECTURE.md".to_owned(), "one\ntwo\nthree\nfour\n".to_owned()),
            ("STACK.md".to_owned(), "same\nx\nsame\n".to_owned()),
        ])
    }

    fn read(reply: &str) -> Result<Option<DocDiff>, DocDiffError> {
        read_doc_diff(reply, &DOCUMENTS)
    }

    /// Rows: SF-217 (in part: what counts as empty; that nothing follows from it: the engine's tests)
    #[test]
    fn a_reply_without_lines_changes_nothing() {
        for reply in ["", " \n\t\n", "```diff\n```", "```\n\n```\n<turn_status>complete</turn_status>"] {
            assert_eq!(read(reply), Ok(None), "{reply:?}");
        }
    }

    #[test]
    fn a_diff_is_applied_where_its_lines_are() {
        let applied = |diff: &str| read(diff).expect("reads").expect("changes").apply_to(&texts());
        let changed =
            BTreeMap::from([("ARCHITECTURE.md".to_owned(), "one\ntwo\ndrei\nvier\nfour\n".to_owned())]);
        // As a whole, in a fence, with the lines of git, and with a wrong number of a line.
        let git = format!("diff --git a/ARCHITECTURE.md b/ARCHITECTURE.md\nindex 1..2 100644\n{DIFF}");
        for diff in [DIFF, &format!("Here:\n```diff\n{DIFF}```\nDone."), &git, &DIFF.replace("-2,2", "-7,2")]
        {
            assert_eq!(applied(diff), Ok(changed.clone()), "{diff}");
        }
        // What is stored is read again when a person has answered: an empty line of context at its end counts, with or without its blank.
        for end in [" \n", "\n"] {
            let diff = format!(
                "--- a/STACK.md\n+++ b/STACK.md\n@@ -1,2 +1,2 @@\n-same\n+new\n x\n@@ -3,2 +3,2 @@\n-same\n+other\n{end}"
            );
            let stored = read(&diff).expect("reads").expect("changes").text().to_owned();
            assert_eq!(applied(&stored).expect("fits")["STACK.md"], "new\nx\nother\n", "{stored:?}");
        }
        let same = "--- a/STACK.md\n+++ b/STACK.md\n@@ -3 +3 @@\n-same\n+other\n";
        assert_eq!(applied(same).expect("at its line")["STACK.md"], "same\nx\nother\n");
        let nothing = "--- a/STACK.md\n+++ b/STACK.md\n@@ -2 +2 @@\n-x\n+x\n";
        assert_eq!(applied(nothing), Ok(BTreeMap::new()), "the text is as it was");
    }

    #[test]
    fn what_fits_no_place_or_several_is_refused_as_a_whole() {
        let refused = |diff: &str| {
            let read = read(diff).expect("reads").expect("changes");
            read.apply_to(&texts()).expect_err("does not fit").to_string()
        };
        let twice = format!("{DIFF}--- a/STACK.md\n+++ b/STACK.md\n@@ -9 +9 @@\n-same\n+other\n");
        assert_eq!(
            refused(&twice),
            "line 10 of the diff does not fit STACK.md: its lines are there more than once"
        );
        let none = DIFF.replace(" two", " zwei");
        assert_eq!(
            refused(&none),
            "line 3 of the diff does not fit ARCHITECTURE.md: its lines are not there"
        );
        // Backwards: the second part would change what the first has passed.
        let back =
            "--- a/ARCHITECTURE.md\n+++ b/ARCHITECTURE.md\n@@ -3 +3 @@\n-three\n+3\n@@ -1 +1 @@\n-one\n+1\n";
        assert!(refused(back).contains("its lines are not there"));
    }

    #[test]
    fn what_is_not_of_the_form_is_refused_with_its_line() {
        let many = "@@ -1 +1 @@\n-one\n+1\n".repeat(MAX_HUNKS + 1);
        for (diff, why) in [
            (
                "I would change nothing.".to_owned(),
                "line 1 of the diff: 'I would change nothing.' is no line",
            ),
            (DIFF.replace("ARCHITECTURE.md", "README.md"), "README.md is none of ARCHITECTURE.md, STACK.md"),
            (DIFF.replace("b/ARCH", "b/../ARCH"), "../ARCHITECTURE.md is none of"),
            (
                DIFF.replace("b/ARCHITECTURE.md", "b/STACK.md"),
                "line 2 of the diff: a document keeps its name",
            ),
            (DIFF.replace("a/ARCHITECTURE.md", "/dev/null"), "/dev/null is none of"),
            (format!("deleted file mode 100644\n{DIFF}"), "'deleted file mode 100644' is no line"),
            (DIFF.replace("@@ -2,2 +2,3 @@", "@@ -2,2 @@"), "line 3 of the diff: a part begins with"),
            (DIFF.replace("-2,2", "-2,1"), "its part announces fewer lines"),
            (DIFF.trim_end().replace("+2,3", "+2,5"), "it ends before"),
            (DIFF.replace("-three", "three"), "begins with a blank"),
            (
                "--- a/STACK.md\n+++ b/STACK.md\n@@ -0,0 +1 @@\n+x\n".to_owned(),
                "line 3 of the diff: a part has a line",
            ),
            (format!("{DIFF}{DIFF}"), "ARCHITECTURE.md is named twice"),
            (format!("{DIFF}\nThat is all."), "'That is all.' is no line"),
            (format!("--- a/ARCHITECTURE.md\n+++ b/ARCHITECTURE.md\n{many}"), "more than 200 parts"),
            ("x".repeat(MAX_DIFF_BYTES + 1), "more than 65536"),
        ] {
            let said = read(&diff).expect_err(why).to_string();
            assert!(said.contains(why), "{said} for {why}");
        }
    }
}
