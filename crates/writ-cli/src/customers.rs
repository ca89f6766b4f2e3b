//! What the owner has written about customers: `NAME.toml` in `customer_context_dir`, a table of texts.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use writ_types::error::{Exit, Report, ToReport};

/// The largest file about a customer, in bytes: it stands in each context of their session.
const MAX_CUSTOMER_BYTES: u64 = 16 * 1024;

/// The longest name of a customer, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// The reason that nothing is known of a customer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CustomerError {
    /// The name could lead out of the folder.
    #[error("a customer's name has 1 to {MAX_NAME_BYTES} characters out of a-z, 0-9, '_' and '-'")]
    Name,
    /// There is no file.
    #[error("there is no customer of this name")]
    Unknown,
    /// The file is too large or no table of texts.
    #[error("the file of the customer cannot be used: {0}")]
    Wrong(String),
    /// The system refused it.
    #[error("the file of the customer cannot be read: {0}")]
    Io(#[source] io::Error),
}

impl ToReport for CustomerError {
    fn report(&self) -> Report {
        let (exit, code, hint) = match self {
            Self::Name => {
                (Exit::Usage, "customer.name", "name a file of customer_context_dir without its .toml")
            }
            Self::Unknown => (Exit::Usage, "customer.unknown", "write customer_context_dir/NAME.toml first"),
            Self::Wrong(_) => {
                (Exit::Config, "customer.file", "write lines such as name = \"Ada\", at most 16 KiB")
            }
            Self::Io(_) => (Exit::Blocked, "customer.io", "check the owner and the mode of the file"),
        };
        Report::new(exit, code, self.to_string()).with_hint(hint)
    }
}

/// Reads what is known of a customer.
///
/// # Errors
///
/// If the name is none, or the file is not there or cannot be used.
pub(crate) fn read_customer(folder: &Path, name: &str) -> Result<BTreeMap<String, String>, CustomerError> {
    let is_allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'_' | b'-');
    if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(is_allowed) {
        return Err(CustomerError::Name);
    }
    // A link could lead to a file of another kind, and a pipe would be waited for.
    let flags = nix::libc::O_NONBLOCK | nix::libc::O_NOFOLLOW;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(folder.join(format!("{name}.toml")));
    let file = match file {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(CustomerError::Unknown),
        Err(error) => return Err(CustomerError::Io(error)),
    };
    if !file.metadata().map_err(CustomerError::Io)?.is_file() {
        return Err(CustomerError::Wrong("it is not a file".to_owned()));
    }
    let mut text = String::new();
    file.take(MAX_CUSTOMER_BYTES + 1).read_to_string(&mut text).map_err(CustomerError::Io)?;
    if u64::try_from(text.len()).unwrap_or(u64::MAX) > MAX_CUSTOMER_BYTES {
        return Err(CustomerError::Wrong(format!("it has more than {MAX_CUSTOMER_BYTES} bytes")));
    }
    // The values are the customer's own data: the error repeats none of them.
    toml::from_str(&text).map_err(|error| {
        let line = error
            .span()
            .and_then(|span| text.get(..span.start))
            .map_or(1, |before| before.matches('\n').count() + 1);
        CustomerError::Wrong(format!("line {line} is no text with a name"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_customer_is_a_table_of_texts_in_the_folder_and_nothing_outside_of_it() {
        let dir = tempfile::tempdir().expect("temp dir");
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("written");
        write("ada.toml", "name = \"Ada\"\nsince = \"2020\"\n");
        let known = read_customer(dir.path(), "ada").expect("reads");
        assert_eq!(known, BTreeMap::from([("name".into(), "Ada".into()), ("since".into(), "2020".into())]));
        write("wrong.toml", "name = \"Ada\"\nsecret = 7411\n");
        let error = read_customer(dir.path(), "wrong").expect_err("a number").to_string();
        assert!(error.contains("line 2") && !error.contains("7411"), "{error}");
        write("large.toml", &format!("name = \"{}\"\n", "a".repeat(17_000)));
        assert!(matches!(read_customer(dir.path(), "large"), Err(CustomerError::Wrong(_))));
        std::os::unix::fs::symlink(dir.path().join("ada.toml"), dir.path().join("link.toml"))
            .expect("a link");
        assert!(matches!(read_customer(dir.path(), "link"), Err(CustomerError::Io(_))));
        assert!(matches!(read_customer(dir.path(), "nobody"), Err(CustomerError::Unknown)));
        for name in ["", "../ada", "Ada", "a/b", ".", &"a".repeat(65)] {
            assert!(matches!(read_customer(dir.path(), name), Err(CustomerError::Name)), "{name}");
        }
    }
}
