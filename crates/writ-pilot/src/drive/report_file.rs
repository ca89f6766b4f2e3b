//! The report of a gate that is written to a file: it is read in the same sandbox, since nothing of it stays.

/// Runs a program and prints its report behind a line that the program does not know before. An older report is removed first: it
/// would count for a run that has written none. Its arguments are the file, the line, and the program with its own.
const READ_REPORT: &str = r#"file=$1 mark=$2; shift 2; rm -f -- "$file"
command -v -- "$1" >/dev/null 2>&1 || { echo "env: no such program: $1" >&2; exit 127; }
"$@"; code=$?
printf '\n%s\n' "$mark"
if [ -f "$file" ]; then cat -- "$file"; fi
exit $code"#;

/// Returns the program that runs a gate's program and prints its report afterwards.
pub(super) fn with_report(argv: &[String], file: &str, mark: &str) -> Vec<String> {
    let own = ["/bin/sh", "-c", READ_REPORT, "gate", file, mark].map(str::to_owned);
    own.into_iter().chain(argv.iter().cloned()).collect()
}

/// Splits the output of such a program into its own and its report; no report: there is none to be counted.
pub(super) fn split_report<'a>(stdout: &'a str, mark: &str) -> (&'a str, &'a str) {
    let line = format!("\n{mark}\n");
    stdout
        .rfind(&line)
        .and_then(|at| Some((stdout.get(..at)?, stdout.get(at + line.len()..)?)))
        .unwrap_or((stdout, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_stands_behind_the_last_mark() {
        assert_eq!(split_report("out\n\nmark\n<xml/>", "mark"), ("out\n", "<xml/>"));
        assert_eq!(split_report("mark\nout", "mark"), ("mark\nout", ""), "it was ended before");
        let argv = with_report(&["node".to_owned(), "--test".to_owned()], "out/report.xml", "m");
        assert_eq!(
            argv.get(4..).map(<[String]>::to_vec),
            Some(["out/report.xml", "m", "node", "--test"].map(str::to_owned).to_vec())
        );
    }
}
