//! Names of files, as people are shown them and as git understands them.

/// The longest escaped path that is shown, in characters.
const SHOWN_MAX: usize = 400;

/// Returns true if a character could make a name look like another, or do something when printed.
fn is_hostile(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Soft hyphen, Arabic letter mark, Hangul fillers, Mongolian separators.
            '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' | '\u{180b}'..='\u{180f}'
            // Zero-width characters, direction marks, line separators, invisible operators.
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            // Variation selectors, byte order mark, interlinear marks, replacement character, tags.
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffd}' | '\u{e0000}'..='\u{e0fff}')
}

/// The name as text, when it can be shown as it is.
pub(crate) fn showable_name(name: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(name).ok()?;
    (!text.is_empty() && !text.chars().any(is_hostile)).then_some(text)
}

/// A path in a form that can always be shown: hostile characters and invalid bytes become escapes.
pub(crate) fn escape_path(path: &[u8]) -> String {
    let mut shown = String::new();
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            if is_hostile(c) || c == '\\' {
                shown.extend(c.escape_unicode());
            } else {
                shown.push(c);
            }
        }
        for byte in chunk.invalid() {
            shown.push_str(&format!("\\x{byte:02x}"));
        }
        if shown.chars().count() > SHOWN_MAX {
            shown = shown.chars().take(SHOWN_MAX).collect();
            shown.push('…');
            break;
        }
    }
    shown
}

/// Returns true if some file system would take this name for `.git`: any case, trailing dots and blanks,
/// NTFS's short name and streams.
pub(crate) fn is_git(name: &str) -> bool {
    let name = name.split(':').next().unwrap_or_default().trim_end_matches(['.', ' ']).to_ascii_lowercase();
    matches!(name.as_str(), ".git" | "git~1")
}

/// Returns the programs that execute or obey a file unasked, when the project is opened, built or entered.
pub(crate) fn obeyed_by(path: &str) -> Option<&'static str> {
    let path = path.to_ascii_lowercase();
    let last = path.rsplit('/').next().unwrap_or_default();
    let below =
        |folder: &str| path.starts_with(&format!("{folder}/")) || path.contains(&format!("/{folder}/"));
    if below(".vscode")
        || below(".idea")
        || below(".devcontainer")
        || below(".fleet")
        || last.ends_with(".code-workspace")
    {
        return Some("editors run tasks and settings from it");
    }
    if below(".husky")
        || below(".githooks")
        || matches!(last, ".gitattributes" | ".gitmodules" | "lefthook.yml" | ".pre-commit-config.yaml")
    {
        return Some("git and its hook managers obey it");
    }
    if below(".github/workflows")
        || below(".github/actions")
        || below(".circleci")
        || last == ".gitlab-ci.yml"
        || last == "jenkinsfile"
    {
        return Some("continuous integration runs it");
    }
    match last {
        ".envrc" => Some("direnv runs it when the folder is entered"),
        "pyvenv.cfg" | "sitecustomize.py" | "usercustomize.py" | "conftest.py" => {
            Some("python and pytest load it")
        }
        "build.rs" | "makefile" | "justfile" | "setup.py" | ".cargo/config.toml" => Some("builds run it"),
        ".npmrc" | ".yarnrc" | ".yarnrc.yml" | ".pnp.cjs" => Some("package managers obey it"),
        "claude.md" | "agents.md" | ".cursorrules" | ".mcp.json" => Some("other agents obey it"),
        _ if below(".cargo") => Some("builds run it"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_git_directory_is_seen() {
        for name in [".git", ".GIT", ".Git ", ".git.", "GIT~1", ".git::$INDEX_ALLOCATION"] {
            assert!(is_git(name), "{name}");
        }
        for name in [".gitignore", "git", ".github", "a.git"] {
            assert!(!is_git(name), "{name}");
        }
    }

    #[test]
    fn hostile_names_are_escaped_and_others_left() {
        assert_eq!(showable_name("naïve.rs".as_bytes()), Some("naïve.rs"));
        assert_eq!(showable_name(b"a\nb"), None);
        assert_eq!(showable_name("a\u{202e}b".as_bytes()), None);
        assert_eq!(showable_name(b"\xff"), None);
        assert_eq!(escape_path(b"a\nb\xff\\"), "a\\u{a}b\\xff\\u{5c}");
        assert!(escape_path(&[b'a'; 10_000]).chars().count() <= SHOWN_MAX + 1);
    }

    #[test]
    fn files_that_others_obey_are_named() {
        assert!(obeyed_by(".envrc").is_some());
        assert!(obeyed_by("web/.vscode/tasks.json").is_some());
        assert!(obeyed_by("tests/conftest.py").is_some());
        assert_eq!(obeyed_by("src/main.rs"), None);
    }
}
