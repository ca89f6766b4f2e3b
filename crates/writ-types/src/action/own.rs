//! A change of the agent's own files.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;

/// The folder of the documents, relative to the agent's folder.
pub const DOCUMENTS: &str = "docs";

/// The largest document that an agent writes, in bytes: what can be shown completely on a card.
pub const MAX_DOCUMENT_BYTES: usize = 64 * 1024;

/// The longest name of a document, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// The index of the documents, which is made from them.
pub const DOCUMENT_INDEX: &str = "README.md";

/// The list of the tools of servers that are not offered, relative to the agent's folder.
pub const TOOL_LIST: &str = "tools.toml";

/// A change of the agent's own files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModifySelf {
    /// The file, relative to the agent's folder.
    pub path: String,
    /// Digest of the new content.
    pub digest: Digest,
    /// The new content of a document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
}

impl ModifySelf {
    /// Returns true if this writes the list of the tools that are not offered.
    pub fn is_tool_list(&self) -> bool {
        self.path == TOOL_LIST
    }

    /// Returns the name of the document that this writes; `None`: it changes another file.
    pub fn document(&self) -> Option<&str> {
        let name = self.path.strip_prefix(DOCUMENTS)?.strip_prefix('/')?;
        is_document_name(name).then_some(name)
    }
}

/// Returns true if a document of the agent's may have this name: lower case, without a folder, and not that of the index, also
/// where a file system does not tell upper from lower case.
pub fn is_document_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.len() <= MAX_NAME_BYTES
        && name.starts_with(is_plain)
        && name.strip_suffix(".md").is_some_and(|stem| !stem.is_empty())
        && name.chars().all(|c| is_plain(c) || matches!(c, '-' | '_' | '.'))
        && !name.eq_ignore_ascii_case(DOCUMENT_INDEX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_a_plain_name_in_the_folder_of_documents() {
        let change = |path: &str| ModifySelf {
            path: path.to_owned(),
            digest: Digest::of_bytes(b""),
            content: Some(String::new()),
        };
        assert_eq!(change("docs/boats-2.md").document(), Some("boats-2.md"));
        let long = format!("docs/{}.md", "a".repeat(MAX_NAME_BYTES));
        for other in [
            "docs/../AGENTS.md",
            "docs/a/b.md",
            "docs//a.md",
            "docs/.md",
            "docs/.hidden.md",
            "docs/a.txt",
            "docs/Boats.md",
            "docs/README.md",
            "docs/readme.md",
            "docs/a\u{0}.md",
            "docs/",
            "docs",
            "/docs/a.md",
            "docsa.md",
            "AGENTS.md",
            &long,
        ] {
            assert_eq!(change(other).document(), None, "{other}");
        }
    }
}
