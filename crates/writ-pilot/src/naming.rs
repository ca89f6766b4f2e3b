//! Names of branches and workspaces.

use writ_sandbox::git::{BranchName, GitFault};

/// The longest slug of a title, in characters.
pub const SLUG_CHARS_MAX: usize = 40;
/// The slug of a title that has no letter or digit of ASCII.
const SLUG_OF_NOTHING: &str = "work";
/// The folder of all branches of the autopilot.
const BRANCHES: &str = "writ";

/// Returns a title as part of a name: small letters and digits, with single dashes for all else, 40 characters at most.
pub fn make_slug(title: &str) -> String {
    let mut slug = String::new();
    for c in title.chars() {
        // Only ASCII is pushed: bytes are characters.
        if slug.len() >= SLUG_CHARS_MAX {
            break;
        }
        if c.is_ascii_alphanumeric() {
            slug.push(c.to_ascii_lowercase());
        // None at the beginning: programs take such a name for an option.
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() { SLUG_OF_NOTHING.to_owned() } else { slug.to_owned() }
}

/// Returns the branch of a slice, `writ/m{n}-s{n}-{slug}`.
///
/// # Errors
///
/// Never for numbers and a slug; the rules of git are asked nevertheless.
pub fn slice_branch(milestone: u32, slice: u32, title: &str) -> Result<BranchName, GitFault> {
    BranchName::parse_name(&format!("{BRANCHES}/m{milestone}-s{slice}-{}", make_slug(title)))
}

/// Returns the branch of a milestone that has one workspace for its slices, `writ/m{n}-{slug}`.
///
/// # Errors
///
/// As [`slice_branch`].
pub fn milestone_branch(milestone: u32, title: &str) -> Result<BranchName, GitFault> {
    BranchName::parse_name(&format!("{BRANCHES}/m{milestone}-{}", make_slug(title)))
}

/// Returns the folder name of a unit: every character but letters and digits of ASCII, `.`, `_` and `-` becomes `_`.
///
/// # Errors
///
/// If the result is empty, `.` or `..`.
pub fn workspace_name(unit: &str) -> Result<String, GitFault> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let name: String = unit.chars().map(|c| if plain(c) { c } else { '_' }).collect();
    // The replacement leaves dots, and two of them name the folder above.
    match name.as_str() {
        "" | "." | ".." => Err(GitFault::BadName { name, why: "it names no folder of its own" }),
        _ => Ok(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A unit's folder has the unit's name, without what folders cannot have.
    ///
    /// Rows: SF-220
    #[test]
    fn a_unit_s_folder_is_named_after_it() {
        assert_eq!(workspace_name("task/m1/s2/t3").unwrap(), "task_m1_s2_t3");
        assert_eq!(workspace_name("a\0b c/d").unwrap(), "a_b_c_d");
        assert_eq!(workspace_name("ä.-Z9").unwrap(), "_.-Z9");
        for bad in ["", ".", ".."] {
            assert!(matches!(workspace_name(bad), Err(GitFault::BadName { .. })), "{bad}");
        }
    }

    #[test]
    fn a_branch_is_named_after_milestone_slice_and_title() {
        let name = |title| slice_branch(1, 2, title).unwrap().to_string();
        assert_eq!(name("Add OAuth 2.0 (PKCE)!"), "writ/m1-s2-add-oauth-2-0-pkce");
        assert_eq!(name("../../HEAD.lock"), "writ/m1-s2-head-lock");
        assert_eq!(name("数据库"), "writ/m1-s2-work");
        let long = name(&"word ".repeat(30));
        assert_eq!(long, format!("writ/m1-s2-{}", "word-".repeat(8).trim_end_matches('-')));
        assert_eq!(milestone_branch(3, "Ship it").unwrap().as_str(), "writ/m3-ship-it");
    }
}
