//! The git processes themselves: where they run, and what they are handed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::AsyncWriteExt as _;

use super::{GitFault, GitProject};
use crate::host::{self, GitOutput, HostError};

/// Settings for our own git directory, beside those of [`host`]. Commits and references reach the disk before they count; links are
/// content of the project, and the host follows none.
const OWN_SETTINGS: [&str; 6] = [
    "core.symlinks=true",
    "core.fsync=objects,reference",
    "core.fsyncMethod=batch",
    "core.quotePath=false",
    "advice.detachedHead=false",
    "submodule.recurse=false",
];

/// One git process.
#[derive(Debug)]
pub(crate) struct GitProcess<'a> {
    project: &'a GitProject,
    doing: &'static str,
    folder: PathBuf,
    variables: Vec<(&'static str, OsString)>,
    settings: Vec<String>,
    arguments: Vec<OsString>,
    input: Option<Vec<u8>>,
}

impl<'a> GitProcess<'a> {
    /// In our own git directory: content.
    pub(crate) fn in_own(project: &'a GitProject, doing: &'static str) -> Self {
        let mut variables: Vec<(&'static str, OsString)> = vec![
            ("GIT_DIR", project.own_dir().into()),
            ("GIT_OBJECT_DIRECTORY", project.common_dir().join("objects").into()),
            ("GIT_NO_LAZY_FETCH", "1".into()),
        ];
        if project.is_shallow() {
            variables.push(("GIT_SHALLOW_FILE", project.common_dir().join("shallow").into()));
        }
        let settings = project.content_settings();
        let folder = project.own_dir();
        Self { project, doing, folder, variables, settings, arguments: Vec::new(), input: None }
    }

    /// In the repository itself: names alone.
    pub(crate) fn in_repository(project: &'a GitProject, doing: &'static str) -> Self {
        let folder = project.common_dir().to_owned();
        let variables = vec![("GIT_DIR", folder.clone().into())];
        Self { project, doing, folder, variables, settings: Vec::new(), arguments: Vec::new(), input: None }
    }

    /// With a work tree, and an index that is not that of our git directory.
    pub(crate) fn with_tree(mut self, top: &Path, index: &Path) -> Self {
        self.variables.push(("GIT_WORK_TREE", top.into()));
        self.variables.push(("GIT_INDEX_FILE", index.into()));
        self.folder = top.to_owned();
        self
    }

    /// With a variable.
    pub(crate) fn with_variable(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    /// With a setting.
    pub(crate) fn with_setting(mut self, setting: impl Into<String>) -> Self {
        self.settings.push(setting.into());
        self
    }

    /// With arguments.
    pub(crate) fn with_args<S: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// With text on its standard input.
    pub(crate) fn with_input(mut self, input: Vec<u8>) -> Self {
        self.input = Some(input);
        self
    }

    /// Runs it to its end, well or badly.
    pub(crate) async fn run_to_end(mut self) -> Result<GitOutput, GitFault> {
        let start = |source| HostError::Start { program: "git", source };
        let input = self.input.take();
        let mut command = self.into_command();
        command.kill_on_drop(true);
        let mut child = command.spawn().map_err(start)?;
        let stdin = child.stdin.take();
        // Beside the reading: a git that writes before it has read all would wait for us.
        let feed = async {
            if let (Some(mut stdin), Some(input)) = (stdin, input) {
                // A git that ends early closes its end; its exit code says why.
                let _ = stdin.write_all(&input).await;
            }
        };
        let (output, ()) = tokio::join!(host::collect_output(child), feed);
        Ok(output?)
    }

    /// Runs it, and takes every exit code but 0 for an error.
    pub(crate) async fn run_well(self) -> Result<Vec<u8>, GitFault> {
        let doing = self.doing;
        let output = self.run_to_end().await?;
        match output.code {
            0 => Ok(output.stdout),
            code => Err(GitFault::from_message(doing, code, &output.stderr)),
        }
    }

    /// The command, with three pipes. As long as it runs it holds the project's lock, also if this process is killed.
    #[expect(clippy::disallowed_types, reason = "this crate is the one that starts processes")]
    pub(crate) fn into_command(self) -> tokio::process::Command {
        let mut command = tokio::process::Command::new("git");
        host::harden_git(&mut command);
        command
            .args(OWN_SETTINGS.iter().flat_map(|setting| ["-c", setting]))
            .args(self.settings.iter().flat_map(|setting| ["-c", setting]))
            .args(["--no-pager", "--literal-pathspecs", "--no-replace-objects"])
            .args(&self.arguments)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        self.project.lend_lock(&mut command);
        command
    }
}

/// Splits output at its NULs.
pub(crate) fn split_nul(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    bytes.split(|byte| *byte == 0).filter(|part| !part.is_empty())
}

/// The path that git's bytes name: any bytes but NUL.
pub(crate) fn to_path(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt as _;
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}

/// Output as text, without the line end.
pub(crate) fn to_line(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches(['\n', '\0']).to_owned()
}
