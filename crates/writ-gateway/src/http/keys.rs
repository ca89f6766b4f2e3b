//! The secrets that clients present: the API's token and the sessions of the page. Memory holds only their
//! hashes, and the disk only hashes of sessions.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::Rng as _;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use writ_policy::principal::{BearerHash, BearerProof, prove_bearer};
use writ_types::digest::Digest;
use writ_types::unit::Timestamp;

use super::config::{HttpError, MIN_TOKEN_BYTES};

/// The API's token, below the runtime folder.
pub const TOKEN_FILE: &str = "api.token";
/// The sessions of the page, below the runtime folder.
const SESSIONS_FILE: &str = "page-sessions.json";
/// The most sessions of the page; one more ends the oldest.
pub const MAX_PAGE_SESSIONS: usize = 64;
/// The lifetime of a session of the page.
pub const PAGE_SESSION_TTL: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// The largest of these files that is read, in bytes.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// A stored session of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PageSession {
    /// Hash of its secret.
    hash: Digest,
    /// When it ends.
    expires_at: Timestamp,
}

/// The secrets that count.
#[derive(Debug)]
pub(crate) struct GatewayKeys {
    token: BearerHash,
    file: PathBuf,
    sessions: Mutex<Vec<PageSession>>,
}

impl GatewayKeys {
    /// Reads the secrets of the runtime folder. A token that is configured counts alone; without one, that of
    /// the folder, which is made if it is missing.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or written, or the configured token is too short.
    pub(crate) fn open(runtime: &Path, configured: Option<&SecretString>) -> Result<Self, HttpError> {
        // A configured token replaces the one of the folder, so that it can be revoked there.
        let token = match configured {
            Some(token) if token.expose_secret().len() < MIN_TOKEN_BYTES => {
                return Err(HttpError::WeakToken(token.expose_secret().len()));
            }
            Some(token) => BearerHash::hash_secret(token.expose_secret()),
            None => BearerHash::hash_secret(&own_token(&runtime.join(TOKEN_FILE))?),
        };
        let file = runtime.join(SESSIONS_FILE);
        let failed = |source| HttpError::File { path: file.clone(), source };
        let kept = read_sessions(&file).map_err(failed)?;
        // Sessions that cannot be read are over: a new link opens a new one.
        // The file is this server's own; damaged, it costs the sessions and nothing else.
        let sessions = kept.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        Ok(Self { token, file, sessions: Mutex::new(sessions) })
    }

    /// Returns a proof if this is the API's token.
    pub(crate) fn check_token(&self, shown: &str) -> Option<BearerProof> {
        prove_bearer(shown, [&self.token])
    }

    /// Returns a proof if this is the secret of a session of the page.
    pub(crate) fn check_session(&self, shown: &str, now: Timestamp) -> Option<BearerProof> {
        // All hashes are compared, so that time does not tell which one is close.
        let live: Vec<BearerHash> = self
            .lock_sessions()
            .iter()
            .filter(|session| session.expires_at > now)
            .map(|session| BearerHash::from_digest(session.hash))
            .collect();
        prove_bearer(shown, &live)
    }

    /// Begins a session of the page and returns its secret.
    ///
    /// # Errors
    ///
    /// If it cannot be stored.
    pub(crate) fn begin_session(&self, now: Timestamp) -> io::Result<String> {
        let secret = random_secret();
        let mut sessions = self.lock_sessions();
        let mut next: Vec<PageSession> =
            sessions.iter().filter(|session| session.expires_at > now).copied().collect();
        // The sessions that end first make room.
        next.sort_by_key(|session| session.expires_at);
        let excess = (next.len() + 1).saturating_sub(MAX_PAGE_SESSIONS);
        next.drain(..excess);
        next.push(PageSession {
            hash: BearerHash::hash_secret(&secret).digest(),
            expires_at: now.plus_duration(PAGE_SESSION_TTL),
        });
        // Written before it counts, so that a restart forgets no session in use.
        self.write_sessions(&next)?;
        *sessions = next;
        Ok(secret)
    }

    /// Ends a session of the page.
    ///
    /// # Errors
    ///
    /// If that cannot be stored.
    pub(crate) fn end_session(&self, shown: &str) -> io::Result<()> {
        let hash = BearerHash::hash_secret(shown).digest();
        let mut sessions = self.lock_sessions();
        let next: Vec<PageSession> =
            sessions.iter().filter(|session| session.hash != hash).copied().collect();
        // Written before it counts: a session that was ended must not return with a restart.
        self.write_sessions(&next)?;
        *sessions = next;
        Ok(())
    }

    fn write_sessions(&self, sessions: &[PageSession]) -> io::Result<()> {
        write_private(&self.file, &serde_json::to_string(sessions).map_err(io::Error::other)?)
    }

    /// Every holder leaves the list whole, so poison is ignored.
    fn lock_sessions(&self) -> MutexGuard<'_, Vec<PageSession>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// 256 random bits, hexadecimal.
pub(crate) fn random_secret() -> String {
    hex::encode(rand::rng().random::<[u8; 32]>())
}

fn own_token(path: &Path) -> Result<String, HttpError> {
    let failed = |source| HttpError::File { path: path.to_owned(), source };
    if let Some(token) = read_sessions(path).map_err(failed)?
        // A token that was shortened by hand could be guessed, and is made anew.
        && token.trim().len() >= MIN_TOKEN_BYTES
    {
        return Ok(token.trim().to_owned());
    }
    let token = random_secret();
    write_private(path, &token).map_err(failed)?;
    Ok(token)
}

fn read_sessions(path: &Path) -> io::Result<Option<String>> {
    use std::io::Read as _;
    let mut text = String::new();
    match fs::File::open(path) {
        Ok(file) => file.take(MAX_FILE_BYTES).read_to_string(&mut text).map(|_| Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a file that only its owner may read, completely or not at all.
pub(crate) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    // A random name, so that two writers never share the temporary file.
    let beside = path.with_extension(format!("{:08x}.new", rand::rng().random::<u32>()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    // The rename puts the whole file in its place at once.
    let written = file.write_all(text.as_bytes()).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    /// Rows: SF-468 (its length, its mode, and that a restart keeps it)
    #[test]
    fn a_token_is_made_once_and_only_its_owner_reads_it() {
        let dir = tempfile::tempdir().expect("temp dir");
        let keys = GatewayKeys::open(dir.path(), None).expect("opened");
        let file = dir.path().join(TOKEN_FILE);
        let token = fs::read_to_string(&file).expect("reads");
        assert_eq!(token.len(), 64);
        assert_eq!(file.metadata().expect("there").permissions().mode() & 0o777, 0o600);
        assert!(keys.check_token(&token).is_some() && keys.check_token("").is_none());
        let again = GatewayKeys::open(dir.path(), None).expect("opened");
        assert!(again.check_token(&token).is_some(), "it outlives a restart");
        let configured = SecretString::from("a configured token".to_owned());
        let keys = GatewayKeys::open(dir.path(), Some(&configured)).expect("opened");
        assert!(keys.check_token("a configured token").is_some());
        assert!(keys.check_token(&token).is_none(), "a configured token counts alone");
        let weak = SecretString::from("short".to_owned());
        assert!(matches!(GatewayKeys::open(dir.path(), Some(&weak)), Err(HttpError::WeakToken(5))));
    }

    #[test]
    fn sessions_outlive_a_restart_end_in_time_and_are_bounded() {
        let dir = tempfile::tempdir().expect("temp dir");
        let keys = GatewayKeys::open(dir.path(), None).expect("opened");
        let first = keys.begin_session(NOW).expect("begun");
        let later = NOW.plus_duration(Duration::from_secs(1));
        let kept = fs::read_to_string(dir.path().join(SESSIONS_FILE)).expect("reads");
        assert!(!kept.contains(&first), "only its hash is kept");
        let again = GatewayKeys::open(dir.path(), None).expect("opened");
        assert!(again.check_session(&first, later).is_some());
        assert!(again.check_session(&first, NOW.plus_duration(PAGE_SESSION_TTL)).is_none());
        assert!(again.check_token(&first).is_none(), "a session is no token");
        let mut secrets: Vec<String> =
            (0..MAX_PAGE_SESSIONS).map(|_| again.begin_session(later).expect("begun")).collect();
        assert!(again.check_session(&first, later).is_none(), "the oldest is over");
        assert!(secrets.iter().all(|secret| again.check_session(secret, later).is_some()));
        let last = secrets.pop().expect("one");
        again.end_session(&last).expect("ended");
        assert!(again.check_session(&last, later).is_none());
    }
}
