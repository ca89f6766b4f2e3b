//! The unit file for systemd, either for a user's service manager or for the system's.

use std::path::Path;

use super::unit::{ServiceUnit, UnitError, plain_path};

/// The name of the unit's file.
pub(super) const NAME: &str = "writ.service";

/// Settings of both kinds of units. None of them may forbid what the sandbox needs: user namespaces, mounts of
/// its own, a new `/proc` (the kernel allows it only if no part of the outer `/proc` is masked), and
/// programs that generate machine code at run time.
const HARDENED: &str = "\
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native
UMask=0077
LimitCORE=0
";

/// Settings that only the system's manager supports.
const HARDENED_SYSTEM: &str = "\
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=full
ProtectKernelModules=yes
ProtectClock=yes
";

/// Returns a path as one quoted argument, with the characters escaped that systemd would expand.
pub(super) fn quote_path(path: &Path) -> Result<String, UnitError> {
    let text = plain_path(path)?;
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '%' => quoted.push_str("%%"),
            '$' => quoted.push_str("$$"),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    Ok(quoted)
}

/// Returns the text of the unit file.
///
/// # Errors
///
/// If a path or the user's name cannot be written in a unit file.
pub(super) fn unit_text(unit: &ServiceUnit) -> Result<String, UnitError> {
    let (exe, home) = (quote_path(&unit.exe)?, quote_path(&unit.home)?);
    let user = unit.user_name()?.map(|user| format!("User={user}\n")).unwrap_or_default();
    let after = if unit.system { "Wants=network-online.target\nAfter=network-online.target\n" } else { "" };
    let more = if unit.system { HARDENED_SYSTEM } else { "" };
    let target = if unit.system { "multi-user.target" } else { "default.target" };
    Ok(format!(
        "\
# Written by `writ service install`, which overwrites this file each time.
[Unit]
Description=Writ, the engine of one home
Documentation=man:writ(1)
{after}
[Service]
Type=exec
ExecStart={exe} start --home {home}
{user}Restart=on-failure
RestartSec=5
# Exit codes 2, 3 and 10: wrong usage, or a configuration or machine that a person must repair first.
RestartPreventExitStatus=2 3 10
# The engine gives turns 20 seconds to finish, then 10 to stop.
TimeoutStopSec=45
KillMode=mixed
# Lets the engine limit the memory and processes of each command by control groups.
Delegate=memory pids
# If the home has a passphrase, hand it over as a credential:
#LoadCredentialEncrypted=writ-passphrase
{HARDENED}{more}
[Install]
WantedBy={target}
"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(system: bool) -> ServiceUnit {
        ServiceUnit {
            exe: "/usr/local/bin/writ".into(),
            home: "/home/ann/a b%h/$HOME\"/.writ".into(),
            logs: "/home/ann/.writ/logs".into(),
            system,
            user: system.then(|| "ann".to_owned()),
        }
    }

    #[test]
    fn a_unit_starts_this_home_hardened_and_leaves_the_sandbox_what_it_needs() {
        let (own, system) = (unit_text(&unit(false)).expect("text"), unit_text(&unit(true)).expect("text"));
        let start = "ExecStart=\"/usr/local/bin/writ\" start --home \"/home/ann/a b%%h/$$HOME\\\"/.writ\"\n";
        for text in [&own, &system] {
            assert!(text.contains(start), "{text}");
            assert!(text.contains("\nNoNewPrivileges=yes\n") && text.contains("\nUMask=0077\n"), "{text}");
            for closes in [
                "RestrictNamespaces",
                "ProtectProc",
                "ProtectKernelTunables",
                "ProtectKernelLogs",
                "ProtectHostname",
                "MemoryDenyWriteExecute",
                "SystemCallFilter",
                "PrivateUsers",
            ] {
                assert!(!text.contains(closes), "{closes} would forbid what the sandbox needs");
            }
        }
        assert!(!own.contains("User=") && own.ends_with("WantedBy=default.target\n"), "{own}");
        assert!(system.contains("\nUser=ann\n") && system.contains("\nCapabilityBoundingSet=\n"), "{system}");
        assert!(system.ends_with("WantedBy=multi-user.target\n"), "{system}");
    }

    #[test]
    fn what_could_end_a_line_or_become_an_option_is_refused() {
        for path in ["/a\nExecStartPre=/bin/sh", "relative", "/a\u{1b}[2J"] {
            let unit = ServiceUnit { home: path.into(), ..unit(false) };
            assert_eq!(unit_text(&unit), Err(UnitError::Path(path.into())), "{path:?}");
        }
        for user in ["", "ann\nUser=root", "-ann", "a b"] {
            let unit = ServiceUnit { user: Some(user.to_owned()), ..unit(true) };
            assert_eq!(unit_text(&unit), Err(UnitError::User(user.to_owned())));
        }
    }
}
