//! The names under which models call foreign tools.

use std::collections::{BTreeMap, BTreeSet};

use writ_types::digest::Digest;

/// The longest name under which a model calls a tool, in bytes: the least that providers take (Gemini's first versions).
pub const MAX_CALLED_NAME: usize = 63;
/// The hexadecimal digits of a digest that tell shortened names apart.
const DIGITS: usize = 8;

/// The name under which models call a tool, where no other tool of its server needs the same one: `SERVER__TOOL` in the
/// letters that every provider takes. What is too long is cut, and ends with a digest of the whole.
pub fn call_name(server: &str, tool: &str) -> String {
    let name = plain_name(server, tool);
    if name.len() > MAX_CALLED_NAME { marked_name(server, tool) } else { name }
}

/// Returns the names under which models call the tools of a server, by the tools' own names. Where two names
/// would be equal, the tool with exactly that name keeps it, and the others end with a digest of theirs.
pub fn called_all<'a>(server: &str, tools: impl IntoIterator<Item = &'a str>) -> BTreeMap<&'a str, String> {
    let tools: BTreeSet<&str> = tools.into_iter().collect();
    let mut uses: BTreeMap<String, usize> = BTreeMap::new();
    for tool in &tools {
        // Names that occur more than once are made distinct below.
        *uses.entry(call_name(server, tool)).or_default() += 1;
    }
    let name = |tool: &str| {
        let name = call_name(server, tool);
        let is_shared = uses.get(&name).is_some_and(|uses| *uses > 1);
        let is_own = name.ends_with(&format!("__{tool}"));
        if is_shared && !is_own { marked_name(server, tool) } else { name }
    };
    tools.iter().map(|tool| (*tool, name(tool))).collect()
}

/// The name in plain letters; one that would begin with a digit begins with `_`.
fn plain_name(server: &str, tool: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let name = format!("{server}__{}", tool.chars().map(plain).collect::<String>());
    // Providers refuse names that begin with a digit.
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name }
}

/// The name, cut where it is too long, with a digest of what it stands for.
fn marked_name(server: &str, tool: &str) -> String {
    let digest = Digest::of_bytes(format!("{server}\0{tool}").as_bytes()).to_string();
    // The last digits of the digest, which is hexadecimal.
    let digits: String = digest.chars().rev().filter(char::is_ascii_hexdigit).take(DIGITS).collect();
    let kept: String = plain_name(server, tool).chars().take(MAX_CALLED_NAME - DIGITS - 1).collect();
    format!("{kept}_{digits}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of real servers: with dots and slashes, and of 80 characters and more, as made of web APIs.
    #[test]
    fn names_are_plain_short_and_all_different() {
        assert_eq!(call_name("crm", "admin.tools/list"), "crm__admin_tools_list");
        assert_eq!(call_name("0crm", "look"), "_0crm__look", "a name begins with a letter or an underscore");
        let long = format!("{}_by_drug_name", "get_info_on_conditions_for_doctor_consultation".repeat(2));
        let other = format!("{}_by_drug_code", "get_info_on_conditions_for_doctor_consultation".repeat(2));
        let tools = ["a.b", "a_b", "a/b", "c", &long, &other, "\u{fc}ber", "a b"];
        let names = called_all("crm", tools);
        assert_eq!((names["a_b"].as_str(), names["c"].as_str()), ("crm__a_b", "crm__c"));
        let different: BTreeSet<&String> = names.values().collect();
        assert_eq!(different.len(), tools.len(), "{names:?}");
        for (tool, name) in &names {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            assert!(name.len() <= MAX_CALLED_NAME && name.chars().all(is_plain), "{name}");
            assert!(name.starts_with("crm__"), "{name}");
            assert_eq!(called_all("crm", tools)[tool], *name, "the same each time");
        }
        assert_eq!(called_all("crm", ["a.b"])["a.b"], "crm__a_b", "alone it needs no mark");
    }
}
