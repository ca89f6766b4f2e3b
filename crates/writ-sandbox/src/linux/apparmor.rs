//! An AppArmor profile of the owner's for an agent: the program is executed under it, besides every other wall.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};

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

/// Checks a profile before anything is started. Returns the lack, if the agent is started without it.
pub(crate) fn check_profile(order: &ProfileOrder) -> Result<Option<String>, AgentError> {
    let name = &order.profile;
    let proper =
        !name.is_empty() && name.len() <= NAME_MAX && name.bytes().all(|byte| byte.is_ascii_graphic());
    if !proper {
        return Err(AgentError::Profile {
            profile: name.clone(),
            why: "this is no name of a profile".into(),
        });
    }
    let why = if !is_enabled() {
        "the kernel has no AppArmor"
    } else if is_missing(name) {
        "the profile is not loaded"
    } else {
        return Ok(None);
    };
    if order.required {
        return Err(AgentError::Profile { profile: name.clone(), why: why.to_owned() });
    }
    Ok(Some(format!("without the AppArmor profile '{name}': {why}")))
}

fn is_enabled() -> bool {
    fs::read_to_string(ENABLED).is_ok_and(|text| text.trim() == "Y")
}

/// Returns true if the list of profiles can be read and has no such name.
fn is_missing(name: &str) -> bool {
    let mut text = String::new();
    let read = File::open(LOADED).and_then(|file| file.take(LOADED_MAX).read_to_string(&mut text));
    // Each line is a name with its mode in brackets.
    read.is_ok() && !text.lines().any(|line| line.rsplit_once(" (").is_some_and(|(found, _)| found == name))
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
