//! The part of the template language that prompts may use: values, conditions, loops over lists, and a few filters.
//!
//! A template may come with a foreign repository. Everything by which a short text could make a huge one is refused here, before
//! anything is compiled: assignments, arithmetic, joining, calls.

/// Statements that a prompt may have.
const STATEMENTS: [&str; 6] = ["if", "elif", "else", "endif", "for", "endfor"];
/// Signs that an expression may have outside of text in quotes.
const SIGNS: &str = "_.[]|=!<>,-";

/// A tag of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tag<'a> {
    /// Its line, counted from one.
    pub(super) line: usize,
    /// Its content, without text in quotes.
    pub(super) content: String,
    /// Its source.
    pub(super) source: &'a str,
}

/// A tag that a prompt may not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RefusedTag {
    pub(super) line: usize,
    pub(super) problem: String,
}

/// Reads the tags of a template in order. Tags without an end are left to the compiler, which refuses them.
pub(super) fn read_tags(text: &str) -> Result<Vec<Tag<'_>>, RefusedTag> {
    let (mut tags, mut at, mut line) = (Vec::new(), 0, 1);
    while let Some(rest) = text.get(at..) {
        let Some(found) = find_opening(rest) else { break };
        line += count_lines(rest.get(..found).unwrap_or_default());
        let body = rest.get(found..).unwrap_or_default();
        let closing = match body.get(..2) {
            Some("{#") => "#}",
            Some("{%") => "%}",
            Some(_) | None => "}}",
        };
        let (content, length) = read_content(body.get(2..).unwrap_or_default(), closing);
        let source = body.get(..2 + length).unwrap_or(body);
        if closing != "#}" {
            check_content(&content, closing == "%}").map_err(|problem| RefusedTag { line, problem })?;
            tags.push(Tag { line, content, source });
        }
        line += count_lines(source);
        at += found + source.len();
    }
    Ok(tags)
}

fn find_opening(text: &str) -> Option<usize> {
    ["{{", "{%", "{#"].into_iter().filter_map(|opening| text.find(opening)).min()
}

fn count_lines(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b'\n').count()
}

/// Returns the content of a tag without text in quotes, and its length with the closing sign.
fn read_content(body: &str, closing: &str) -> (String, usize) {
    let (mut content, mut quote, mut is_escaped) = (String::new(), None, false);
    for (at, c) in body.char_indices() {
        if let Some(sign) = quote {
            // A quotation mark behind a backslash is text.
            if is_escaped {
                is_escaped = false;
            } else if c == '\\' {
                is_escaped = true;
            } else if c == sign {
                quote = None;
            }
        } else if body.get(at..).is_some_and(|rest| rest.starts_with(closing)) {
            return (content, at + closing.len());
        } else if closing != "#}" && matches!(c, '"' | '\'') {
            quote = Some(c);
        } else {
            content.push(c);
        }
    }
    (content, body.len())
}

fn check_content(content: &str, is_statement: bool) -> Result<(), String> {
    // Signs at the edges control white space.
    let inner = content.trim_matches(['-', '+']).trim();
    if is_statement {
        let word = inner.split_whitespace().next().unwrap_or_default();
        if !STATEMENTS.contains(&word) {
            let shown: String = word.chars().take(40).collect();
            return Err(format!("the statement '{shown}' is not available"));
        }
    }
    let refused =
        inner.chars().find(|c| !c.is_ascii_alphanumeric() && !c.is_whitespace() && !SIGNS.contains(*c));
    match refused {
        Some(sign) => Err(format!("the sign '{}' is not available", sign.escape_default())),
        // A loop that calls itself.
        None if inner.split_whitespace().any(|word| word == "recursive") => {
            Err("'recursive' is not available".to_owned())
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_found_with_their_lines_and_text_in_quotes_is_skipped() {
        let tags =
            read_tags("a\n{# {{ x }} \n #}{{ b }}\n{% if a.b == \"}} ~ %}\" %}x{%- endif -%}").unwrap();
        let seen: Vec<(usize, &str)> = tags.iter().map(|tag| (tag.line, tag.content.trim())).collect();
        assert_eq!(seen, [(3, "b"), (4, "if a.b =="), (4, "- endif -")]);
        assert_eq!(tags[1].source, "{% if a.b == \"}} ~ %}\" %}");
        assert_eq!(read_tags("{{ open").unwrap().len(), 1);
        assert_eq!(read_tags("").unwrap(), []);
    }

    #[test]
    fn what_could_make_a_huge_text_is_refused() {
        for (text, problem) in [
            ("\n{% set x = plan %}", "the statement 'set' is not available"),
            ("\n{% include \"a\" %}", "the statement 'include' is not available"),
            ("\n{%- macro m %}", "the statement 'macro' is not available"),
            ("\n{% for x in y recursive %}", "'recursive' is not available"),
            ("\n{{ plan ~ plan }}", "the sign '~' is not available"),
            ("\n{{ plan * 9 }}", "the sign '*' is not available"),
            ("\n{{ plan + plan }}", "the sign '+' is not available"),
            ("\n{{ range(9) }}", "the sign '(' is not available"),
            ("\n{{ {1: 2} }}", "the sign '{' is not available"),
        ] {
            assert_eq!(read_tags(text), Err(RefusedTag { line: 2, problem: problem.to_owned() }), "{text}");
        }
    }
}
