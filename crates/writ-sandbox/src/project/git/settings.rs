//! Single settings of a git configuration file. Files that it includes are not read.

/// The largest configuration file that is read, in bytes.
pub(crate) const BYTES_MAX: u64 = 256 * 1024;

/// The last value of `section.key`, for a section without a subsection. `None`: it is not set, or has no value that can be read.
pub(crate) fn last_value(text: &[u8], section: &str, key: &str) -> Option<Vec<u8>> {
    let mut within = false;
    let mut found = None;
    for line in text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii) {
        let mut line = line;
        if let Some(rest) = line.strip_prefix(b"[") {
            let Some(end) = rest.iter().position(|byte| *byte == b']') else {
                within = false;
                continue;
            };
            let (name, after) = rest.split_at(end);
            within = name.trim_ascii().eq_ignore_ascii_case(section.as_bytes());
            line = after.get(1..).unwrap_or_default().trim_ascii();
        }
        let Some(equals) = line.iter().position(|byte| *byte == b'=').filter(|_| within) else { continue };
        let (name, text) = line.split_at(equals);
        if name.trim_ascii().eq_ignore_ascii_case(key.as_bytes()) {
            found = parse_value(text.get(1..).unwrap_or_default().trim_ascii());
        }
    }
    found
}

/// True if a setting's value means yes to git.
pub(crate) fn is_on(value: &[u8]) -> bool {
    [&b"true"[..], b"yes", b"on", b"1"].iter().any(|yes| value.eq_ignore_ascii_case(yes))
}

/// A value without its quotes, escapes and comment. `None`: it goes on in the next line, or is not well formed.
fn parse_value(text: &[u8]) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    // The length without blanks at the end that stand in no quotes.
    let mut end = 0;
    let mut quoted = false;
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => {
                quoted = !quoted;
                end = value.len();
            }
            b'#' | b';' if !quoted => break,
            b'\\' => {
                value.push(match bytes.next()? {
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'b' => 8,
                    byte @ (b'"' | b'\\') => byte,
                    _ => return None,
                });
                end = value.len();
            }
            _ => {
                value.push(byte);
                if quoted || !byte.is_ascii_whitespace() {
                    end = value.len();
                }
            }
        }
    }
    value.truncate(end);
    (!quoted).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_as_git_reads_it() {
        for (text, read) in [
            ("[core]\n\tworktree = ../a\n", Some("../a")),
            ("[core]\nWorkTree=../a b # note\n", Some("../a b")),
            ("[CORE] worktree = \"../a #b \" ; note\r\n", Some("../a #b ")),
            ("[core]\nworktree = a\\\\b\\\"c\n", Some("a\\b\"c")),
            ("[core]\nworktree = one\n[user]\nworktree = two\n[core]\nworktree = three\n", Some("three")),
            ("[core \"sub\"]\nworktree = a\n", None),
            ("[include]\npath = other\n", None),
            ("[core]\nworktree\n", None),
            ("[core]\nworktree = a\\\nb\n", None),
            ("[core]\nworktree = \"a\n", None),
            ("[core\nworktree = a\n", None),
            ("", None),
        ] {
            let found = last_value(text.as_bytes(), "core", "worktree");
            assert_eq!(found.as_deref(), read.map(str::as_bytes), "{text}");
        }
        assert!(is_on(b"True") && is_on(b"1") && !is_on(b"false") && !is_on(b""));
    }
}
