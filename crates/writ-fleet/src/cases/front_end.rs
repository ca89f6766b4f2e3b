//! The token of the trusted front end. The front end has the token; the home has only a digest of it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use writ_types::digest::Digest;
use writ_types::error::{Exit, Report, ToReport};

/// The most bytes of the file with the digest that are read.
const MAX_FILE_BYTES: u64 = 256;

/// The digest of the front end's token. Only the front end has the token itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontEndToken(Digest);

impl FrontEndToken {
    /// Computes the digest of the token that the front end was given.
    pub fn of_text(token: &str) -> Self {
        Self(Digest::of_bytes(token.as_bytes()))
    }

    /// Returns true if a request has the token, as `Authorization: Bearer …`.
    pub fn is_shown_in(&self, authorization: Option<&str>) -> bool {
        let token = authorization.and_then(|header| header.strip_prefix("Bearer "));
        // Digests are compared, so the time of the comparison reveals nothing about the token.
        token.is_some_and(|token| Digest::of_bytes(token.as_bytes()) == self.0)
    }
}

/// The reason why a token was not stored.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// A token is stored already.
    #[error("the front end has a token already, and only its digest is stored here")]
    Exists,
    /// The file cannot be written.
    #[error("{} cannot be written: {source}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl ToReport for TokenError {
    fn report(&self) -> Report {
        match self {
            Self::Exists => Report::new(Exit::Usage, "fleet.token_exists", self.to_string())
                .with_hint("`writ fleet token --new` makes another one; the old one is refused from then on"),
            Self::Unwritable { .. } => {
                Report::new(Exit::Config, "fleet.token", "the token cannot be stored".to_owned())
                    .with_inside(self.to_string())
                    .with_hint("check the owner and mode of the home's folder 'keys'")
            }
        }
    }
}

/// The file with the digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenFile(pub PathBuf);

impl TokenFile {
    /// Reads the digest; `None` if no token was given out, or the file is damaged. Every request is refused then.
    pub fn read_token(&self) -> Option<FrontEndToken> {
        let mut text = String::new();
        File::open(&self.0).ok()?.take(MAX_FILE_BYTES).read_to_string(&mut text).ok()?;
        text.trim().parse().ok().map(FrontEndToken)
    }

    /// Stores the digest of a token. A digest that is stored already is replaced only if `replaces` is true.
    ///
    /// # Errors
    ///
    /// If a digest is stored and must not be replaced, or the file cannot be written.
    pub fn write_token(&self, token: &str, replaces: bool) -> Result<(), TokenError> {
        let failed = |source| TokenError::Unwritable { path: self.0.clone(), source };
        if !replaces && self.0.exists() {
            return Err(TokenError::Exists);
        }
        let FrontEndToken(digest) = FrontEndToken::of_text(token);
        // The new file is renamed over the old one, so that a reader always finds a whole digest.
        let fresh = self.0.with_extension("new");
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh);
        let mut file = file.map_err(failed)?;
        file.write_all(digest.to_string().as_bytes()).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        fs::rename(&fresh, &self.0).map_err(failed)
    }
}
