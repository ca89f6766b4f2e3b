//! The pinned texts of every prompt, read from the home.

use std::path::Path;

use writ_agent::event::{SystemSource, SystemText};
use writ_types::taint::{Label, Taint};

use crate::context::Context;
use crate::home;

/// The description of the agent and its work for the model.
const CONSTITUTION: &str = include_str!("../constitution.md");
/// The introduction of a home that knows nothing of its owner yet.
const FIRST_RUN: &str = include_str!("../first_run.md");
/// The largest `RULES.md` or `AGENTS.md` that is read, in bytes.
const MAX_NOTES_BYTES: u64 = 256 * 1024;

/// Returns the introduction, if it is wanted.
pub(super) fn first_run_text(is_wanted: bool) -> String {
    if is_wanted { FIRST_RUN.trim().to_owned() } else { String::new() }
}

/// The pinned texts: what the agent is, the owner's rules, the agent's own notes. Files that say what `init` has written say
/// nothing.
pub(super) fn system_texts(context: &Context) -> Vec<SystemText> {
    let owner = Label::new(Taint::Owner);
    let mut texts = vec![SystemText {
        source: SystemSource::Constitution,
        text: CONSTITUTION.trim().to_owned(),
        label: owner.clone(),
    }];
    // The texts that `init` wrote say nothing yet, so they take no room in the prompt.
    let said = |path: &Path, at_first: &str| load_notes(path).filter(|text| text != at_first.trim());
    if let Some(rules) = said(&context.home.rules_file(), home::RULES) {
        texts.push(SystemText { source: SystemSource::Rules, text: rules, label: owner.clone() });
    }
    // The agent may write its notes itself, so they are not its owner's word; they are not foreign either.
    if let Some(own) = said(&context.home.agent().join("AGENTS.md"), home::NOTES) {
        texts.push(SystemText { source: SystemSource::Notes, text: own, label: Label::new(Taint::Auth) });
    }
    texts
}

/// The reason that a text is not among the pinned ones.
#[derive(Debug, thiserror::Error)]
enum NotesError {
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] std::io::Error),
    #[error("it is not a file")]
    NotAFile,
}

/// The text of a file, if there is one. What cannot be read is left out, and the log says so.
fn load_notes(path: &Path) -> Option<String> {
    match read_notes(path) {
        Ok(text) => (!text.trim().is_empty()).then(|| text.trim().to_owned()),
        Err(NotesError::Unreadable(error)) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => {
            // The engine starts without the text: a missing rule in the prompt weakens no enforced one.
            tracing::warn!(path = %path.display(), %error, "this text is left out of every prompt");
            None
        }
    }
}

fn read_notes(path: &Path) -> Result<String, NotesError> {
    use std::io::Read as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    // Without waiting for a pipe's other end.
    let file = std::fs::OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(NotesError::NotAFile);
    }
    let mut text = String::new();
    file.take(MAX_NOTES_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long reading may take before it counts as hanging.
    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);

    #[test]
    fn a_pipe_in_place_of_a_text_is_left_out_and_nobody_waits_for_it() {
        let dir = tempfile::tempdir().expect("temp dir");
        let (pipe, file) = (dir.path().join("RULES.md"), dir.path().join("AGENTS.md"));
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("made");
        std::fs::write(&file, " Be brief.\n").expect("written");
        let (sent, read) = std::sync::mpsc::sync_channel(1);
        let path = pipe.clone();
        std::thread::spawn(move || sent.send(load_notes(&path)));
        assert_eq!(read.recv_timeout(PATIENCE), Ok(None), "reading it ends");
        assert!(matches!(read_notes(&pipe), Err(NotesError::NotAFile)));
        assert!(matches!(read_notes(dir.path()), Err(NotesError::NotAFile)));
        assert_eq!(load_notes(&file).as_deref(), Some("Be brief."));
        assert_eq!(load_notes(&dir.path().join("none")), None);
    }
}
