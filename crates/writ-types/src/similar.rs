//! Suggests the name that was probably meant.

/// The least similarity, of at most 1, at which a name is suggested.
const LEAST: f64 = 0.6;

/// The name that is most like a wrong one, if any is like it. For messages: nothing is done by it.
pub fn nearest_name<'a>(wrong: &str, names: &[&'a str]) -> Option<&'a str> {
    // Case and separators are the most frequent differences.
    let plain = |name: &str| name.to_lowercase().replace(['-', '.', ' '], "_");
    let wrong = plain(wrong);
    let alike =
        names.iter().map(|name| (strsim::normalized_damerau_levenshtein(&wrong, &plain(name)), *name));
    let (best, name) = alike.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    // Below the limit a suggestion would only mislead.
    (best >= LEAST).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_alike_is_suggested() {
        let names = ["file_read", "file_write", "shell_exec"];
        assert_eq!(nearest_name("read_file", &["read_files", "shell_exec"]), Some("read_files"));
        assert_eq!(nearest_name("File-Reed", &names), Some("file_read"));
        assert_eq!(
            (nearest_name("launch_missiles", &names), nearest_name("", &names), nearest_name("a", &[])),
            (None, None, None)
        );
    }
}
