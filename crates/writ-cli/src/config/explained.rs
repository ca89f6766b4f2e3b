//! The explanation of each setting: the comment above it in the example configuration.

use std::collections::BTreeMap;

use super::EXAMPLE;

/// Returns the explanation of each key of the example, by its dotted path.
pub(crate) fn explain_settings() -> BTreeMap<String, String> {
    let (mut found, mut table, mut about) = (BTreeMap::new(), String::new(), Vec::<&str>::new());
    for line in EXAMPLE.lines() {
        if let Some(prose) = line.strip_prefix("# ") {
            about.push(prose.trim());
            continue;
        }
        // A setting without a default is commented out, without a space: `#key = value`.
        let setting = line.strip_prefix('#').unwrap_or(line);
        if let Some(name) = setting.strip_prefix('[') {
            table = name.trim_start_matches('[').trim_end_matches(']').to_owned();
        } else if let Some((key, _)) = setting.split_once(" = ").filter(|_| !about.is_empty()) {
            let path = if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") };
            found.entry(path).or_insert_with(|| about.join(" "));
        }
        // A comment belongs to what stands directly below it.
        about.clear();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_explained_by_the_comment_above_them() {
        let found = explain_settings();
        assert_eq!(found["agent"], "The agent's name.");
        assert_eq!(
            found["budget.max_tokens_per_session"],
            "Tokens of one session, until your next message renews them."
        );
        assert_eq!(found["models.max_tries"], "Tries of one call, the first included.");
        assert!(found["models.default"].starts_with("The model for everything that has no entry below."));
        assert!(
            found["models.detect"].ends_with("then for a model server on the usual ports of this machine.")
        );
    }
}
