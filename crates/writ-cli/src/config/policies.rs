//! The rules in force: those that are shipped, the owner's `policies/*.cedar`, and the project's.

use std::path::Path;

use writ_policy::rules::{Authorship, MAX_RULES_BYTES, MAX_SHADOWS, RuleError, RuleSet, RuleSource, Shadow};
use writ_runtime::rules::RuleFiles;
use writ_types::error::{Exit, Report, ToReport};

use crate::home::Home;

/// The project's rules, below the project; they can only forbid.
const PROJECT_POLICIES: &str = ".writ/policies";
/// Rules that are only tried, below the home.
const SHADOWS: &str = "policies/shadow";
/// The most files of rules in one folder.
const MAX_FILES: usize = 200;

/// Rules that cannot be read or cannot stand.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PolicyError {
    /// A folder or file cannot be read.
    #[error("{name} cannot be read: {source}")]
    Unreadable {
        /// Its path, relative to the home or project.
        name: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// Too many files.
    #[error("{folder} holds more than {MAX_FILES} files of rules")]
    TooMany {
        /// Its path, relative to the home or project.
        folder: &'static str,
    },
    /// Too many sets are tried.
    #[error("{SHADOWS} holds more than {MAX_SHADOWS} files: each is judged for every action")]
    TooManyTried,
    /// No such rules are tried.
    #[error("{SHADOWS} holds no '{name}.cedar'")]
    NotTried {
        /// The name.
        name: String,
    },
    /// Rules of that name are in force.
    #[error("policies/{name}.cedar is there already")]
    Taken {
        /// The name.
        name: String,
    },
    /// A rule cannot stand.
    #[error(transparent)]
    Rule(#[from] RuleError),
}

impl ToReport for PolicyError {
    fn report(&self) -> Report {
        let hint = match self {
            Self::Unreadable { .. } => "check its owner and mode",
            Self::TooMany { .. } | Self::TooManyTried => "join some of them",
            Self::Taken { .. } => "give the tried rules another name, or move those in force away",
            Self::NotTried { .. } => "`writ policy shadow` lists them",
            Self::Rule(_) => "correct the rule; nothing is performed until the rules are valid",
        };
        Report::new(Exit::Config, "config.rules", self.to_string()).with_hint(hint)
    }
}

/// The texts of all rules in force.
///
/// # Errors
///
/// If a file cannot be read.
pub(crate) fn read_sources(home: &Home, project: Option<&Path>) -> Result<Vec<RuleSource>, PolicyError> {
    let mut sources = vec![RuleSource::shipped_rules()];
    sources.extend(read_folder(&home.policies(), "policies", Authorship::Home)?);
    if let Some(project) = project {
        sources.extend(read_folder(&project.join(PROJECT_POLICIES), PROJECT_POLICIES, Authorship::Project)?);
    }
    Ok(sources)
}

/// Reads and validates all rules.
///
/// # Errors
///
/// If a file cannot be read or a rule cannot stand.
pub(crate) fn load_rules(home: &Home, project: Option<&Path>) -> Result<RuleSet, PolicyError> {
    Ok(RuleSet::load_rules(&read_sources(home, project)?)?)
}

/// A file of rules that are only tried: its name, and what it holds or what is wrong with it.
pub(crate) type Tried = (String, Result<Shadow, RuleError>);

/// The rules of the home that are only tried, each with what is in force: by name, and why one cannot be.
///
/// # Errors
///
/// If their folder or the rules in force cannot be read.
pub(crate) fn read_shadows(home: &Home) -> Result<Vec<Tried>, PolicyError> {
    let tried = read_folder(&home.policies().join("shadow"), SHADOWS, Authorship::Home)?;
    if tried.len() > MAX_SHADOWS {
        return Err(PolicyError::TooManyTried);
    }
    let in_force = read_sources(home, None)?;
    let load = |source: RuleSource| {
        let file = Path::new(&source.origin).file_stem().unwrap_or_default();
        let name = file.to_string_lossy().into_owned();
        (name.clone(), Shadow::load_shadow(name, &in_force, source))
    };
    Ok(tried.into_iter().map(load).collect())
}

/// The rules in force for an engine, with those that are tried. What is tried and cannot stand is left out, and the log says so: it
/// weakens nothing that is in force.
///
/// # Errors
///
/// If a rule in force cannot be read or cannot stand.
pub(crate) fn load_trying(home: &Home) -> Result<RuleSet, PolicyError> {
    let rules = load_rules(home, None)?;
    let tried = match read_shadows(home) {
        Ok(tried) => tried,
        Err(error) => {
            tracing::warn!(%error, "no rules are tried");
            Vec::new()
        }
    };
    let stands = |(name, shadow): (String, Result<Shadow, RuleError>)| {
        shadow.inspect_err(|error| tracing::warn!(name, %error, "these rules are not tried")).ok()
    };
    Ok(rules.with_shadows(tried.into_iter().filter_map(stands).collect()))
}

/// Puts rules that were tried in force, from the next start of an engine on.
///
/// # Errors
///
/// If there are none of this name, they cannot stand, rules in force have it, or one of the files cannot be moved.
pub(crate) fn promote_shadow(home: &Home, name: &str) -> Result<(), PolicyError> {
    let found = read_shadows(home)?.into_iter().find(|(other, _)| other == name);
    let (_, stands) = found.ok_or_else(|| PolicyError::NotTried { name: name.to_owned() })?;
    stands?;
    let file = format!("{name}.cedar");
    let (from, to) = (home.policies().join("shadow").join(&file), home.policies().join(&file));
    let unreadable = |source| PolicyError::Unreadable { name: format!("policies/{file}"), source };
    // A link is never made over a file that is there.
    std::fs::hard_link(&from, &to).map_err(|source| {
        if source.kind() == std::io::ErrorKind::AlreadyExists {
            PolicyError::Taken { name: name.to_owned() }
        } else {
            unreadable(source)
        }
    })?;
    std::fs::remove_file(&from).map_err(unreadable)
}

/// The files of projects' rules, for the engine.
#[derive(Debug)]
pub(crate) struct ProjectRuleFiles {
    /// The home; its rules hold everywhere.
    pub(crate) home: Home,
}

impl RuleFiles for ProjectRuleFiles {
    fn of_project(&self, project: &Path) -> Result<Option<Vec<RuleSource>>, Box<Report>> {
        let all = read_sources(&self.home, Some(project)).map_err(|error| Box::new(error.report()))?;
        let narrows = all.iter().any(|source| source.authorship == Authorship::Project);
        Ok(narrows.then_some(all))
    }

    fn of_home(&self) -> Result<Vec<RuleSource>, Box<Report>> {
        read_sources(&self.home, None).map_err(|error| Box::new(error.report()))
    }
}

fn read_folder(
    path: &Path,
    name: &'static str,
    authorship: Authorship,
) -> Result<Vec<RuleSource>, PolicyError> {
    let unreadable = |name: String| move |source| PolicyError::Unreadable { name, source };
    if authorship == Authorship::Project
        && std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink())
    {
        return Err(unreadable(name.into())(std::io::Error::other("it is a link")));
    }
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(unreadable(name.into())(source)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(unreadable(name.into()))?.path();
        if path.extension().is_some_and(|extension| extension == "cedar") {
            files.push(path);
        }
        if files.len() > MAX_FILES {
            return Err(PolicyError::TooMany { folder: name });
        }
    }
    files.sort();
    let read = |file: std::path::PathBuf| {
        let origin = format!("{name}/{}", file.file_name().unwrap_or_default().to_string_lossy());
        let text = read_bounded(&file, MAX_RULES_BYTES).map_err(unreadable(origin.clone()))?;
        Ok(RuleSource { origin, authorship, text })
    };
    files.into_iter().map(read).collect()
}

/// Reads a text, at most one byte more than `most`: the caller refuses longer ones. Links are not followed,
/// since a project can set them to any target.
pub(super) fn read_bounded(path: &Path, most: usize) -> std::io::Result<String> {
    use std::io::Read as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    // Without waiting for a pipe's other end.
    let file = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK | nix::libc::O_NOFOLLOW)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is no regular file"));
    }
    let mut text = String::new();
    file.take(u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1)).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Env;

    #[test]
    fn the_owners_rules_add_to_the_shipped_ones_and_a_projects_can_only_forbid() {
        let dir = tempfile::tempdir().expect("temp dir");
        let home = Home::find_home(Some(dir.path()), &Env::default()).expect("found");
        let project = dir.path().join("project");
        let shipped = load_rules(&home, Some(&project)).expect("valid").digest();
        std::fs::create_dir_all(home.policies()).expect("made");
        std::fs::create_dir_all(project.join(PROJECT_POLICIES)).expect("made");
        std::fs::write(home.policies().join("notes.txt"), "not a rule").expect("written");
        let allow = "@id(\"mine\")\npermit (principal, action, resource);\n";
        std::fs::write(home.policies().join("mine.cedar"), allow).expect("written");
        assert_ne!(load_rules(&home, None).expect("valid").digest(), shipped);
        std::fs::write(project.join(PROJECT_POLICIES).join("wide.cedar"), allow.replace("mine", "theirs"))
            .expect("written");
        let report = load_rules(&home, Some(&project)).expect_err("widens").report();
        assert_eq!(report.exit, Exit::Config);
        assert!(report.outside.contains(".writ/policies/wide.cedar"), "{}", report.outside);
    }

    #[test]
    fn rules_are_not_read_through_links() {
        let dir = tempfile::tempdir().expect("temp dir");
        let home = Home::find_home(Some(dir.path()), &Env::default()).expect("found");
        let (project, elsewhere) = (dir.path().join("project"), dir.path().join("elsewhere"));
        let own = project.join(PROJECT_POLICIES);
        std::fs::create_dir_all(&own).expect("made");
        std::fs::create_dir_all(&elsewhere).expect("made");
        let rule = "@id(\"no\")\nforbid (principal, action, resource);\n";
        std::fs::write(elsewhere.join("a.cedar"), rule).expect("written");
        assert!(load_rules(&home, Some(&project)).is_ok());
        std::os::unix::fs::symlink(elsewhere.join("a.cedar"), own.join("a.cedar")).expect("linked");
        assert!(matches!(load_rules(&home, Some(&project)), Err(PolicyError::Unreadable { .. })), "a file");
        std::fs::remove_dir_all(&own).expect("removed");
        std::os::unix::fs::symlink(&elsewhere, &own).expect("linked");
        assert!(matches!(load_rules(&home, Some(&project)), Err(PolicyError::Unreadable { .. })), "a folder");
        std::fs::remove_file(&own).expect("removed");
        std::fs::create_dir_all(&own).expect("made");
        std::fs::write(own.join("a.cedar"), rule).expect("written");
        assert!(load_rules(&home, Some(&project)).is_ok(), "twin");
    }
}
