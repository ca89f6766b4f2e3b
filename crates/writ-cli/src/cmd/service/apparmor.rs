//! The AppArmor profile that lets this program, and it alone, use user namespaces, where the system restricts them.

use std::path::Path;

use super::unit::{UnitError, plain_path};

/// The profile of a program at this path.
///
/// # Errors
///
/// If the path cannot be named in it.
pub(super) fn write_profile(exe: &Path) -> Result<String, UnitError> {
    let text = plain_path(exe)?;
    // In a profile these would be a pattern, a variable or the end of the name.
    if text.contains(['"', '\\', '*', '?', '[', ']', '{', '}', '^', '@', ',']) {
        return Err(UnitError::Path(exe.to_owned()));
    }
    Ok(format!(
        "\
# Lets Writ use user namespaces, of which its sandbox is made. It allows nothing else that is not allowed without it.
abi <abi/4.0>,
include <tunables/global>

profile writ \"{text}\" flags=(unconfined) {{
  userns,

  include if exists <local/writ>
}}
"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_names_one_program() {
        let text = write_profile(Path::new("/usr/local/my bin/writ")).expect("text");
        assert!(
            text.contains("profile writ \"/usr/local/my bin/writ\" flags=(unconfined) {\n  userns,\n"),
            "{text}"
        );
        for path in ["/opt/**", "/opt/{a,b}", "/opt/@{HOME}", "/opt/\"x", "writ", "/a\n"] {
            assert!(write_profile(Path::new(path)).is_err(), "{path}");
        }
    }
}
