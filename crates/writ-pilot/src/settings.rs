//! The settings of an open project, read anew when their files have changed.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use writ_types::api::pilot::PilotSettingLine;
use writ_types::digest::Digest;

use crate::config::{PilotConfig, PilotConfigError, SettingsTexts, list_settings, parse_texts, read_texts};

/// The settings of an open project.
#[derive(Debug)]
pub(crate) struct LiveSettings {
    /// The owner's own file, for all projects.
    owner: Option<PathBuf>,
    project: PathBuf,
    state: Mutex<SettingsState>,
}

/// The settings in force, and the files that they come from.
#[derive(Debug)]
struct SettingsState {
    config: Arc<PilotConfig>,
    texts: SettingsTexts,
    /// The digest of the texts that were read last, also of those that were refused.
    stamp: Digest,
    /// Settings of the files that need a restart: name, value in use, value of the files.
    drift: Vec<(&'static str, String, String)>,
    /// The mistake of files that are not in force.
    fault: Option<String>,
}

/// The state of the settings, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SettingsView {
    /// The settings in force.
    pub(crate) lines: Vec<PilotSettingLine>,
    /// Those that need a restart, each as a line.
    pub(crate) drift: Vec<String>,
    /// The mistake of files that are not in force.
    pub(crate) fault: Option<String>,
}

/// A change of the files that is not in force.
#[derive(Debug)]
enum SettingsWarning {
    /// Name, value in use, value of the files.
    NeedsRestart((&'static str, String, String)),
    Unreadable(PilotConfigError),
}

impl SettingsWarning {
    fn log(&self) {
        match self {
            Self::NeedsRestart((name, old, new)) => {
                tracing::warn!(name, old, new, "a setting of the autopilot needs a restart");
            }
            Self::Unreadable(error) => {
                tracing::warn!(%error, "the settings of the autopilot cannot be read anew; the earlier ones hold");
            }
        }
    }
}

impl LiveSettings {
    /// Reads the settings of a project for the first time.
    ///
    /// # Errors
    ///
    /// The first mistake: a project does not begin with half of its settings.
    pub(crate) fn open(owner: Option<PathBuf>, project: &Path) -> Result<Self, PilotConfigError> {
        let texts = read_texts(owner.as_deref(), project)?;
        let config = Arc::new(parse_texts(&texts, project)?);
        let stamp = stamp_of(&Ok(texts.clone()));
        let state = SettingsState { config, texts, stamp, drift: Vec::new(), fault: None };
        Ok(Self { owner, project: project.to_owned(), state: Mutex::new(state) })
    }

    /// Returns the settings in force.
    pub(crate) fn config(&self) -> Arc<PilotConfig> {
        Arc::clone(&self.lock().config)
    }

    /// Takes over what has changed in the files, and logs what could not be. Files with a mistake change nothing.
    pub(crate) fn refresh(&self) {
        for warning in self.read_anew() {
            warning.log();
        }
    }

    /// Takes over what has changed in the files, and returns what could not be, each change once.
    fn read_anew(&self) -> Vec<SettingsWarning> {
        let read = read_texts(self.owner.as_deref(), &self.project);
        // Of the contents: a file may be changed without another size or time.
        let stamp = stamp_of(&read);
        let mut state = self.lock();
        if stamp == state.stamp {
            return Vec::new();
        }
        // Also that of a broken text, so that its mistake is reported once.
        state.stamp = stamp;
        match read.and_then(|texts| parse_texts(&texts, &self.project).map(|config| (texts, config))) {
            Ok((texts, newer)) => {
                let drift = state.config.list_drift(&newer);
                let warnings = drift.iter().cloned().map(SettingsWarning::NeedsRestart).collect();
                state.config = Arc::new(state.config.take_live(newer));
                (state.texts, state.drift, state.fault) = (texts, drift, None);
                warnings
            }
            Err(error) => {
                state.fault = Some(error.to_string());
                vec![SettingsWarning::Unreadable(error)]
            }
        }
    }

    /// Shows the settings.
    pub(crate) fn view(&self) -> SettingsView {
        let state = self.lock();
        let files: Vec<(&str, &str)> =
            state.texts.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        let line =
            |(name, old, new): &(&str, String, String)| format!("{name}: {old} in use, {new} in the file");
        SettingsView {
            lines: list_settings(&state.config, &files),
            drift: state.drift.iter().map(line).collect(),
            fault: state.fault.clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, SettingsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stamp_of(read: &Result<SettingsTexts, PilotConfigError>) -> Digest {
    let text = match read {
        Ok(texts) => texts.iter().map(|(name, text)| format!("{name}\0{text}\0")).collect::<String>(),
        Err(error) => format!("fault\0{error}"),
    };
    Digest::of_bytes(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, text: &str) {
        std::fs::create_dir_all(dir.join(".writ")).expect("made");
        std::fs::write(dir.join(".writ/pilot.toml"), text).expect("written");
    }

    /// What changes in a file is in force at the next look, a mistake changes nothing, and what needs a restart is named.
    ///
    /// Rows: SF-301 (in part: the two files and the defaults) SF-321 (in part: the earlier settings hold, and a mended file applies)
    /// Rows: SF-323 (in part: the field and both values)
    #[test]
    fn changed_files_are_taken_over_and_broken_ones_are_not() {
        let (home, project) =
            (tempfile::tempdir().expect("temp dir"), tempfile::tempdir().expect("temp dir"));
        let owner = home.path().join("pilot.toml");
        std::fs::write(&owner, "[pilot]\nunit_timeout = \"1m\"\nmax_attempts = 3\n").expect("written");
        write(project.path(), "[pilot]\nmax_attempts = 4\n");
        let settings = LiveSettings::open(Some(owner.clone()), project.path()).expect("reads");
        let source = |key: &str| {
            let lines = settings.view().lines;
            let line = lines.into_iter().find(|line| line.key == key).expect("is listed");
            (line.value, line.source)
        };
        let of_owner = format!("{}:2", owner.display());
        assert_eq!(source("pilot.max_attempts"), ("4".to_owned(), ".writ/pilot.toml:2".to_owned()));
        assert_eq!(source("pilot.unit_timeout"), ("1m".to_owned(), of_owner));
        assert_eq!(source("pilot.turn_timeout"), ("5m".to_owned(), "default".to_owned()));
        write(project.path(), "[pilot]\nmax_attempts = 5\n");
        settings.refresh();
        assert_eq!(settings.config().limits.max_attempts, 5);
        for broken in ["[pilot", "[pilot]\nmax_atempts = 9\n"] {
            write(project.path(), broken);
            settings.refresh();
            assert_eq!(settings.config().limits.max_attempts, 5);
            assert!(settings.view().fault.is_some_and(|fault| fault.contains(".writ/pilot.toml")));
        }
        write(project.path(), "[pilot]\nmax_attempts = 7\nworktree_mode = \"milestone-per-worktree\"\n");
        settings.refresh();
        let view = settings.view();
        assert_eq!((settings.config().limits.max_attempts, view.fault), (7, None));
        let expected = "worktree_mode: branch-per-slice in use, milestone-per-worktree in the file";
        assert_eq!(view.drift, [expected]);
        write(project.path(), "[pilot]\nmax_attempts = 7\n");
        settings.refresh();
        assert_eq!(settings.view().drift, Vec::<String>::new());
    }

    fn warned_in_three_looks(settings: &LiveSettings) -> Vec<SettingsWarning> {
        (0..3).flat_map(|_| settings.read_anew()).collect()
    }

    /// Every look compares the contents: an edit is noticed that leaves size and time of the file as they were, and nothing is read
    /// anew without one. Each mistake is one warning to be logged, also over many looks; the last good settings hold until the file is mended. What
    /// needs a restart is one line with its name and both values, while everything else of the same file applies.
    ///
    /// Rows: SF-321 (in part: one warning for each mistake, the earlier settings hold; not that the warning is in the log)
    /// Rows: SF-323 (in part: one warning with name and both values; not that it is in the log)
    /// Rows: SF-319 (in part: the contents alone are compared)
    #[test]
    fn each_change_is_noticed_and_warned_about_once() {
        let project = tempfile::tempdir().expect("temp dir");
        write(project.path(), "[pilot]\nmax_attempts = 4\n");
        let file = project.path().join(".writ/pilot.toml");
        let settings = LiveSettings::open(None, project.path()).expect("reads");
        let first = settings.config();
        assert!((0..10).all(|_| settings.read_anew().is_empty()));
        assert!(Arc::ptr_eq(&first, &settings.config()), "nothing was read anew");
        let before = std::fs::metadata(&file).expect("is there");
        std::fs::write(&file, "[pilot]\nmax_attempts = 5\n").expect("written");
        let opened = std::fs::File::options().write(true).open(&file).expect("opens");
        opened.set_modified(before.modified().expect("a time")).expect("set");
        let after = std::fs::metadata(&file).expect("is there");
        assert_eq!((after.len(), after.modified().ok()), (before.len(), before.modified().ok()));
        assert!(settings.read_anew().is_empty());
        assert_eq!(settings.config().limits.max_attempts, 5);
        for broken in ["[pilot", "[pilot]\nmax_atempts = 9\n"] {
            write(project.path(), broken);
            let warned = warned_in_three_looks(&settings);
            let [SettingsWarning::Unreadable(error)] = warned.as_slice() else { panic!("{warned:?}") };
            assert!(error.to_string().contains(".writ/pilot.toml, line "), "{error}");
            assert_eq!(settings.config().limits.max_attempts, 5, "the last good ones hold");
        }
        write(project.path(), "[pilot]\nmax_attempts = 7\nworktree_mode = \"milestone-per-worktree\"\n");
        let warned = warned_in_three_looks(&settings);
        let [SettingsWarning::NeedsRestart((name, old, new))] = warned.as_slice() else {
            panic!("{warned:?}")
        };
        let expected = ("worktree_mode", "branch-per-slice", "milestone-per-worktree");
        assert_eq!((*name, old.as_str(), new.as_str()), expected);
        assert_eq!(settings.config().limits.max_attempts, 7, "the mended file applies");
        assert_eq!(settings.config().worktree_mode, crate::config::WorktreeMode::BranchPerSlice);
    }

    /// Of two ceilings the lower one is in force, and it is the one that is named.
    #[test]
    fn a_project_raises_no_ceiling_of_its_owner() {
        let (home, project) =
            (tempfile::tempdir().expect("temp dir"), tempfile::tempdir().expect("temp dir"));
        let owner = home.path().join("pilot.toml");
        std::fs::write(&owner, "[pilot.ceilings]\nday_micro_usd = 5_000\nrun_micro_usd = 90\n")
            .expect("written");
        write(project.path(), "[pilot.ceilings]\nday_micro_usd = 9_000\nrun_micro_usd = 80\n");
        let lines = LiveSettings::open(Some(owner.clone()), project.path()).expect("reads").view().lines;
        let of = |key: &str| lines.iter().find(|line| line.key == key).expect("is listed").clone();
        let day = of("pilot.ceilings.day_micro_usd");
        assert_eq!((day.value.as_str(), day.source), ("5000", format!("{}:2", owner.display())));
        let run = of("pilot.ceilings.run_micro_usd");
        assert_eq!((run.value.as_str(), run.source.as_str()), ("80", ".writ/pilot.toml:3"));
    }
}
