//! From a command line to an argument list, by one fixed rule.
//!
//! The line is split into words as a POSIX shell splits it: at white space, with single quotes, double
//! quotes and backslashes; nothing is expanded, substituted, redirected or piped, and no shell is started.
//! `echo $(touch x) *` has the three arguments `$(touch`, `x)` and `*`. A word that is exactly a shell
//! operator is refused, because the line then means something that would not happen.

/// Words that only a shell understands.
const OPERATORS: [&str; 15] =
    ["|", "||", "&", "&&", ";", ";;", "<", "<<", "<<<", ">", ">>", "2>", "2>>", "2>&1", "|&"];

/// Splits a command line.
///
/// # Errors
///
/// What is wrong with the line, in words.
pub(crate) fn split_words(line: &str) -> Result<Vec<String>, String> {
    // The rule would take an unquoted `#` for the begin of a comment and drop what follows.
    let words = shlex::split(line).ok_or("'command' has an open quote or ends with a backslash")?;
    if has_comment(line, &words) {
        return Err("'command' has a word that begins with '#'; quote it".to_owned());
    }
    if let Some(operator) = words.iter().find(|word| OPERATORS.contains(&word.as_str())) {
        return Err(format!(
            "'command' has '{operator}', but no shell runs it; use \"argv\": [\"sh\", \"-c\", \"...\"], or \"argv\" for a literal '{operator}'"
        ));
    }
    Ok(words)
}

/// Returns true if the splitter dropped a comment: then the words of the line with every `#` escaped differ.
fn has_comment(line: &str, words: &[String]) -> bool {
    // Without a `#` there is no comment, and the second split is saved.
    if !line.contains('#') {
        return false;
    }
    let marked = line.replace('#', "\u{e000}");
    let unmarked = shlex::split(&marked).unwrap_or_default();
    unmarked.iter().map(|word| word.replace('\u{e000}', "#")).ne(words.iter().cloned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fixed rule for command lines.
    ///
    /// Rows: SIL-195
    #[test]
    fn words_are_split_and_nothing_is_expanded() {
        for (line, expected) in [
            ("echo hello", &["echo", "hello"][..]),
            ("  cargo   test --  -q ", &["cargo", "test", "--", "-q"]),
            ("echo $(touch x) `id` $HOME ~ *", &["echo", "$(touch", "x)", "`id`", "$HOME", "~", "*"]),
            ("grep 'a b' \"c \\\" d\" e\\ f", &["grep", "a b", "c \" d", "e f"]),
            ("echo a;b|c>d", &["echo", "a;b|c>d"]),
            ("echo ''", &["echo", ""]),
            ("echo a#b '#c'", &["echo", "a#b", "#c"]),
            ("printf 'a\nb'", &["printf", "a\nb"]),
        ] {
            assert_eq!(split_words(line).expect("splits"), expected, "{line}");
        }
        assert_eq!(split_words("").expect("splits"), Vec::<String>::new());
    }

    #[test]
    fn lines_that_mean_something_else_are_refused() {
        for line in ["ls | wc -l", "a && b", "make > log", "sleep 9 &", "a ; b", "cmd 2>&1"] {
            assert!(split_words(line).expect_err(line).contains("sh"), "{line}");
        }
        for line in ["echo 'a", "echo \"a", "echo a\\"] {
            assert!(split_words(line).is_err(), "{line}");
        }
        assert!(split_words("rm -r build # clean").expect_err("comment").contains('#'));
    }
}
