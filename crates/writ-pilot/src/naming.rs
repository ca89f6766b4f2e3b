//! Names of workspaces; those of branches are made in `writ-autopilot`.

use writ_sandbox::git::GitFault;

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
}
