//! The hooks of a project: scripts that run around the attempts at its units.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use writ_autopilot::hook::HookKind;

use super::PilotConfigError;
use super::read::{WORK_TIME, is_below_project};
use super::section::{Section, cut_word};

/// The most scripts of one kind.
const MAX_SCRIPTS: usize = 16;

/// The scripts of hooks, with their time limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PilotHooks {
    scripts: BTreeMap<HookKind, HookScripts>,
    times: BTreeMap<HookKind, Duration>,
}

/// The scripts of one kind, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HookScripts {
    paths: Vec<String>,
    /// The file and the line that name them.
    origin: (String, usize),
}

impl PilotHooks {
    /// Returns the scripts of a kind, in their order, by their paths in the project.
    pub fn scripts(&self, kind: HookKind) -> &[String] {
        self.scripts.get(&kind).map_or(&[], |scripts| scripts.paths.as_slice())
    }

    /// Returns true if a kind has scripts.
    pub fn has(&self, kind: HookKind) -> bool {
        !self.scripts(kind).is_empty()
    }

    /// Returns the time limit of each script of a kind.
    pub fn time_limit(&self, kind: HookKind) -> Duration {
        self.times.get(&kind).copied().unwrap_or_else(|| kind.default_time())
    }

    /// Returns the paths of all scripts.
    pub fn all_scripts(&self) -> impl Iterator<Item = &String> {
        self.scripts.values().flat_map(|scripts| &scripts.paths)
    }
}

/// Reads the section of hooks.
pub(super) fn read_hooks(mut section: Section<'_>) -> Result<PilotHooks, PilotConfigError> {
    let mut hooks = PilotHooks::default();
    for kind in HookKind::ALL {
        let Some(setting) = section.find_setting(kind.name()) else { continue };
        let paths = setting.read_texts()?;
        // A file may write `./` before a path, as a shell does.
        let paths: Vec<&str> =
            paths.into_iter().map(|path| path.strip_prefix("./").unwrap_or(path)).collect();
        if paths.len() > MAX_SCRIPTS || !paths.iter().all(|path| is_below_project(path)) {
            return Err(setting.fault(
                &format!("is no list of at most {MAX_SCRIPTS} scripts of the project"),
                "write relative paths without `..`, such as [\".writ/hooks/notify.sh\"]",
            ));
        }
        let paths = paths.into_iter().map(str::to_owned).collect();
        hooks.scripts.insert(kind, HookScripts { paths, origin: setting.origin() });
    }
    let mut times = section.open_section("timeouts")?;
    for kind in HookKind::ALL {
        if let Some(time) = times.read_duration(kind.name(), WORK_TIME)? {
            hooks.times.insert(kind, time);
        }
    }
    times.end_section()?;
    section.end_section()?;
    Ok(hooks)
}

/// Checks that each script is a file of the project that can be run.
pub(super) fn check_hooks(hooks: &PilotHooks, project: &Path) -> Result<(), PilotConfigError> {
    for (kind, scripts) in &hooks.scripts {
        for script in &scripts.paths {
            let fail = |problem: &str, hint: &str| PilotConfigError {
                file: scripts.origin.0.clone(),
                line: scripts.origin.1,
                key: format!("pilot.hooks.{}", kind.name()),
                problem: format!("hook '{}': the script '{}' {problem}", kind.name(), cut_word(script)),
                hint: hint.to_owned(),
            };
            // A link could lead out of the project.
            let found = std::fs::symlink_metadata(project.join(script)).ok();
            let Some(found) = found.filter(std::fs::Metadata::is_file) else {
                return Err(fail("is no file of the project", "add the script, or correct its path"));
            };
            if found.permissions().mode() & 0o111 == 0 {
                return Err(fail("cannot be run", "`chmod +x` makes it executable"));
            }
        }
    }
    Ok(())
}
