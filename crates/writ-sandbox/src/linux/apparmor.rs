//! An AppArmor profile of the owner's for an agent: the program is executed under it, besides every other wall.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};

use super::spec::{ProfileOrder, SetupFault};
use crate::agent::AgentError;

/// The files by which a process says under which profile it executes the next program; older kernels have the second.
const SWITCHES: [&str; 2] = ["/proc/thread-self/attr/apparmor/exec", "/proc/thread-self/attr/exec"];
/// The kernel's word on whether it has AppArmor.
const ENABLED: &str = "/sys/module/apparmor/parameters/enabled";
/// The profiles that are loaded, for root to read.
const LOADED: &str = "/sys/kernel/security/apparmor/profiles";
/// The most of that list that is read, in bytes.
const LOADED_MAX: u64 = 1024 * 1024;
/// The longest name of a profile.
const NAME_MAX: usize = 256;
/// The step's name in reports.
const STAGE: &str = "apparmor";

/// A profile that was checked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CheckedProfile {
    /// The profile to switch to; `None`: it cannot be had.
    pub(crate) order: Option<ProfileOrder>,
    /// The lack with which the agent is started.
    pub(crate) lack: Option<String>,
}

/// Checks a profile before anything is started.
pub(crate) fn check_profile(order: ProfileOrder) -> Result<CheckedProfile, AgentError> {
    let enabled = fs::read_to_string(ENABLED).is_ok_and(|text| text.trim() == "Y");
    let read_list = || {
        let mut text = String::new();
        File::open(LOADED).and_then(|file| file.take(LOADED_MAX).read_to_string(&mut text)).map(|_| text)
    };
    judge_profile(order, enabled, read_list)
}

/// Judges a profile by the kernel's words.
fn judge_profile(
    order: ProfileOrder,
    enabled: bool,
    read_list: impl FnOnce() -> io::Result<String>,
) -> Result<CheckedProfile, AgentError> {
    let name = order.profile.clone();
    let fault = |why: String| AgentError::Profile { profile: name.clone(), why };
    let proper =
        !name.is_empty() && name.len() <= NAME_MAX && name.bytes().all(|byte| byte.is_ascii_graphic());
    if !proper {
        return Err(fault("this is no name of a profile".into()));
    }
    let without = |why: &str| CheckedProfile {
        order: None,
        lack: Some(format!("without the AppArmor profile '{name}': {why}")),
    };
    let checked = if enabled {
        match read_list() {
            Ok(list) if is_listed(&list, &name) => {
                return Ok(CheckedProfile { order: Some(order), lack: None });
            }
            Ok(_) => without("the profile is not loaded"),
            // The kernel may have it: it is tried, and nothing is promised.
            Err(why) => CheckedProfile {
                order: Some(order.clone()),
                lack: Some(format!(
                    "perhaps without the AppArmor profile '{name}': the list of profiles cannot be read: {why}"
                )),
            },
        }
    } else {
        without("the kernel has no AppArmor")
    };
    match &checked.lack {
        Some(lack) if order.required => Err(fault(lack.clone())),
        Some(_) | None => Ok(checked),
    }
}

/// Returns true if the list of profiles has such a name.
fn is_listed(list: &str, name: &str) -> bool {
    // Each line is a name with its mode in brackets.
    list.lines().any(|line| line.rsplit_once(" (").is_some_and(|(found, _)| found == name))
}

/// Opens the switch of this process, where the kernel has one.
pub(crate) fn open_switch() -> Option<File> {
    SWITCHES.iter().find_map(|path| OpenOptions::new().write(true).open(path).ok())
}

/// Has the next program of this process executed under a profile.
pub(crate) fn switch_at_exec(switch: Option<File>, order: &ProfileOrder) -> Result<(), SetupFault> {
    let missing = || SetupFault::new(STAGE, "the kernel has no AppArmor");
    let switched = switch.ok_or_else(missing).and_then(|mut switch| {
        // One write: the kernel reads a whole command from each.
        let command = format!("exec {}", order.profile);
        switch.write_all(command.as_bytes()).map_err(|why| SetupFault::new(STAGE, why.to_string()))
    });
    switched.or_else(|fault| if order.required { Err(fault) } else { Ok(()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "docker-default (enforce)\nwrit-agent (complain)\n";

    fn judge(
        name: &str,
        required: bool,
        enabled: bool,
        list: io::Result<&str>,
    ) -> Result<CheckedProfile, String> {
        let order = ProfileOrder { profile: name.into(), required };
        judge_profile(order, enabled, || list.map(str::to_owned)).map_err(|why| why.to_string())
    }

    /// Rows: SLO-036 (in part: a profile that is not there)
    #[test]
    fn a_profile_that_cannot_be_seen_is_an_error_where_it_is_required_and_named_where_it_is_wanted() {
        let unreadable = || Err(io::ErrorKind::PermissionDenied.into());
        for required in [true, false] {
            let found = judge("writ-agent", required, true, Ok(LIST)).unwrap();
            assert!(found.order.is_some() && found.lack.is_none());
        }
        for (enabled, list) in [(false, Ok(LIST)), (true, Ok("")), (true, unreadable())] {
            let tried = list.is_err();
            let why = judge("writ-agent", true, enabled, list).unwrap_err();
            assert!(why.contains("cannot be used"), "{why}");
            let list = if tried { unreadable() } else { Ok("other (enforce)\n") };
            let wanted = judge("writ-agent", false, enabled, list).unwrap();
            assert_eq!(wanted.order.is_some(), tried);
            assert!(wanted.lack.unwrap().contains("without the AppArmor profile 'writ-agent'"));
        }
        // Part of a name is no name, and neither is what would be another command.
        assert!(judge("writ", true, true, Ok(LIST)).is_err());
        assert!(judge("a b", false, true, Ok(LIST)).is_err());
    }
}
