//! The property list for launchd. It has not been run on a Mac.

use std::path::Path;

use super::unit::{ServiceUnit, UnitError, plain_path};

/// The name of its file.
pub(super) const NAME: &str = "writ.engine.plist";

/// A path as text of XML.
pub(super) fn quote_path(path: &Path) -> Result<String, UnitError> {
    Ok(plain_path(path)?.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;"))
}

/// The text of the list.
///
/// # Errors
///
/// If a path or the user cannot be named in it.
pub(super) fn unit_text(unit: &ServiceUnit) -> Result<String, UnitError> {
    let (exe, home) = (quote_path(&unit.exe)?, quote_path(&unit.home)?);
    let errors = quote_path(&unit.logs.join("service.log"))?;
    let user = unit.user_name()?.map(|user| format!("  <key>UserName</key>\n  <string>{user}</string>\n"));
    let user = user.unwrap_or_default();
    Ok(format!(
        "\
<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">
<plist version=\"1.0\">
<dict>
  <key>Label</key>
  <string>writ.engine</string>
  <key>ProgramArguments</key>
  <array>
    <string>{exe}</string>
    <string>start</string>
    <string>--quiet</string>
    <string>--home</string>
    <string>{home}</string>
  </array>
{user}  <key>RunAtLoad</key>
  <true/>
  <key>KeepAlive</key>
  <dict>
    <key>SuccessfulExit</key>
    <false/>
  </dict>
  <key>ThrottleInterval</key>
  <integer>10</integer>
  <key>ExitTimeOut</key>
  <integer>45</integer>
  <key>ProcessType</key>
  <string>Background</string>
  <key>Umask</key>
  <integer>63</integer>
  <key>StandardErrorPath</key>
  <string>{errors}</string>
</dict>
</plist>
"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_starts_this_home_and_keeps_its_files_closed() {
        let unit = ServiceUnit {
            exe: "/opt/writ".into(),
            home: "/Users/ann & <co>/.writ".into(),
            logs: "/Users/ann/.writ/logs".into(),
            system: true,
            user: Some("ann".to_owned()),
        };
        let list = unit_text(&unit).expect("text");
        assert!(list.contains("<string>/opt/writ</string>\n    <string>start</string>\n"), "{list}");
        assert!(list.contains("<string>/Users/ann &amp; &lt;co&gt;/.writ</string>"), "{list}");
        assert!(list.contains("<key>UserName</key>\n  <string>ann</string>"), "{list}");
        // 63 is 0077.
        assert!(list.contains("<key>Umask</key>\n  <integer>63</integer>"), "{list}");
        let own = ServiceUnit { system: false, user: None, ..unit.clone() };
        assert!(!unit_text(&own).expect("text").contains("UserName"));
        assert!(unit_text(&ServiceUnit { home: "/a\n".into(), ..unit }).is_err());
    }
}
