//! Images and PDF files of a message: `@PATH` in its text brings one along.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use writ_inspect::show::escape_line;
use writ_runtime::methods::FilesAdd;
use writ_types::api::file::NewFile;
use writ_types::chat::{MAX_FILE_BYTES, MAX_FILES};
use writ_types::error::Exit;

use super::talk::Conversation;
use crate::failure::Failure;

/// Endings of names that mean a file that models read as it is. Any other `@PATH` stays text, which the agent's tools read.
const ENDINGS: [&str; 6] = ["png", "jpg", "jpeg", "gif", "webp", "pdf"];

/// Codes of failures that concern the files of one message: the conversation goes on.
const REFUSALS: [&str; 3] = ["cli.file", "cli.files", "file.refused"];

impl Conversation<'_> {
    /// Stores the files that a text names, and returns the text with their lines.
    ///
    /// # Errors
    ///
    /// If one cannot be read, is too large or of another type than its name says.
    pub(super) async fn attach_files(&mut self, text: &str) -> Result<String, Failure> {
        let named = named_files(text);
        if named.len() > MAX_FILES {
            let text = format!("the message names {} files; the limit is {MAX_FILES}", named.len());
            return Err(Failure::new(Exit::Usage, "cli.files", text, "send them in several messages"));
        }
        let mut text = text.to_owned();
        for path in named {
            let content = STANDARD.encode(read_file(&self.locate_file(&path))?);
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let stored =
                self.client.ask::<FilesAdd>(&NewFile { session: self.session, name, content }).await?;
            text.push('\n');
            text.push_str(&stored.line);
        }
        Ok(text)
    }

    /// Finds the file that a text names: in the project, whose files Tab completes, else in the folder of the command.
    fn locate_file(&self, path: &Path) -> PathBuf {
        let in_project = self.project.as_ref().map(|project| project.join(path));
        in_project.filter(|path| path.exists()).unwrap_or_else(|| self.context.locate_path(path))
    }

    /// Sends a message. A file that is not taken is shown, and the conversation goes on without the message.
    ///
    /// # Errors
    ///
    /// If the engine has ended.
    pub(super) async fn send_typed(&mut self, line: &str) -> Result<(), Failure> {
        match self.send_message(line, String::new()).await {
            Err(failure) if REFUSALS.iter().any(|code| failure.has_code(code)) => {
                self.context.out.print_failure(&failure);
                Ok(())
            }
            sent => sent.map(drop),
        }
    }
}

/// Returns the files that a text names: `@PATH`, or `@"PATH"` for one with spaces, at the beginning of a word.
fn named_files(text: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('@') {
        let begins_word =
            rest.get(..at).is_none_or(|before| before.chars().next_back().is_none_or(char::is_whitespace));
        rest = rest.get(at + 1..).unwrap_or_default();
        let name = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split('"').next().unwrap_or_default(),
            // A full stop or a comma after a name belongs to the sentence.
            None => rest
                .split_whitespace()
                .next()
                .unwrap_or_default()
                .trim_end_matches(['.', ',', ';', ':', '?', '!', ')']),
        };
        let path = Path::new(name);
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
        let is_file = ending.is_some_and(|ending| ENDINGS.contains(&ending.as_str()));
        if begins_word && is_file && found.iter().all(|other| other != path) {
            found.push(path.to_owned());
        }
    }
    found
}

fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    let shown = escape_line(&path.to_string_lossy());
    let failure = |why: String| {
        let hint = "an @PATH that ends like an image or a PDF file brings that file along; write it without @ to mean the name";
        Failure::new(Exit::Usage, "cli.file", format!("{shown}: {why}"), hint)
    };
    let file = std::fs::File::open(path).map_err(|error| failure(error.to_string()))?;
    if !file.metadata().is_ok_and(|data| data.is_file()) {
        return Err(failure("it is no file".to_owned()));
    }
    let mut content = Vec::new();
    // One byte more than the limit shows that the file is too large.
    let most = u64::try_from(MAX_FILE_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    file.take(most).read_to_end(&mut content).map_err(|error| failure(error.to_string()))?;
    if content.len() > MAX_FILE_BYTES {
        return Err(failure(format!("it has more than {MAX_FILE_BYTES} bytes")));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_at_the_beginning_of_a_word() {
        let named = |text| {
            named_files(text).iter().map(|path| path.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(named("look at @a.png and @dir/b.PDF."), ["a.png", "dir/b.PDF"]);
        assert_eq!(named("@\"my photo.jpg\" twice @\"my photo.jpg\""), ["my photo.jpg"]);
        for text in ["mail me@home.png", "@src/main.rs", "@", "@\"", "a @ b", "@owner", "no.png"] {
            assert_eq!(named(text), [""; 0], "{text}");
        }
    }
}
