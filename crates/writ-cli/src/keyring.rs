//! Opening the keys folder: asking for its passphrase where it has one, and its public halves.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use ed25519_dalek::VerifyingKey;
use secrecy::SecretString;
use writ_secrets::approver::{ApproverStore, open_approver};
use writ_secrets::backend::Backend;
use writ_secrets::error::SecretsError;
use writ_secrets::record::recorded_backend;
use writ_secrets::store::SecretStore;
use writ_store::ledger::rotation::Rotation;
use writ_types::digest::Digest;
use writ_types::error::{Exit, Report, ToReport};

use crate::config::Config;
use crate::context::Context;
use crate::failure::Failure;
use crate::home::Home;
use crate::terminal;

/// The credential that systemd hands over with `LoadCredential=writ-passphrase:…`.
const CREDENTIAL: &str = "writ-passphrase";
/// The longest passphrase that is read from a credential, in bytes.
const MAX_PASSPHRASE_BYTES: u64 = 4096;
/// The most keys of one role: the present one and those before it.
const MAX_KEYS: usize = 1_000;

/// The role of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyRole {
    /// Signs base keys.
    Root,
    /// Signs the ledger, inbound records and task keys.
    Harness,
    /// Signs the person's approvals.
    Approver,
}

impl KeyRole {
    /// Every role.
    pub(crate) const ALL: [Self; 3] = [Self::Root, Self::Harness, Self::Approver];

    /// The name in files and on screens.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Harness => "harness",
            Self::Approver => "approver",
        }
    }
}

/// A file of public keys that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PublicKeyError {
    /// It cannot be read or written.
    #[error("keys/{role}.pub cannot be used: {source}")]
    Io {
        /// The key's role.
        role: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// It holds something else.
    #[error("keys/{role}.pub or keys/{role}.rotated does not hold what Writ has written there")]
    Malformed {
        /// The key's role.
        role: &'static str,
    },
    /// There is none.
    #[error("keys/{role}.pub is missing")]
    Missing {
        /// The key's role.
        role: &'static str,
    },
}

impl ToReport for PublicKeyError {
    fn report(&self) -> Report {
        let hint = match self {
            Self::Io { .. } => "check its owner and mode",
            Self::Malformed { .. } => "move the file away, then run `writ init`: it writes what is missing",
            Self::Missing { .. } => "run `writ init`: it writes what is missing",
        };
        Report::new(Exit::Config, "keys.public", self.to_string()).with_hint(hint)
    }
}

fn public_file(home: &Home, role: KeyRole) -> PathBuf {
    home.keys().join(format!("{}.pub", role.as_str()))
}

/// The public keys of a role, the newest first. Reading them needs no passphrase.
///
/// # Errors
///
/// If the file is missing, cannot be read, or holds something else.
pub(crate) fn public_keys(home: &Home, role: KeyRole) -> Result<Vec<VerifyingKey>, PublicKeyError> {
    let role_name = role.as_str();
    let text = match fs::read_to_string(public_file(home, role)) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(PublicKeyError::Missing { role: role_name });
        }
        Err(source) => return Err(PublicKeyError::Io { role: role_name, source }),
    };
    let key = |line: &str| {
        let bytes: Digest = line.trim().parse().ok()?;
        VerifyingKey::from_bytes(bytes.as_bytes()).ok()
    };
    // Bounded, since the file is read before anything is verified.
    let keys: Option<Vec<VerifyingKey>> = text.lines().take(MAX_KEYS).map(key).collect();
    keys.filter(|keys| !keys.is_empty()).ok_or(PublicKeyError::Malformed { role: role_name })
}

/// Records a public key, newest first; `false`: it is there already.
///
/// # Errors
///
/// If the file cannot be written or holds something else.
pub(crate) fn record_public(home: &Home, role: KeyRole, key: &VerifyingKey) -> Result<bool, PublicKeyError> {
    let mut keys = match public_keys(home, role) {
        Ok(keys) => keys,
        Err(PublicKeyError::Missing { .. }) => Vec::new(),
        Err(error @ (PublicKeyError::Io { .. } | PublicKeyError::Malformed { .. })) => return Err(error),
    };
    // Recording is repeatable, so that an interrupted `init` can run again.
    if keys.contains(key) {
        return Ok(false);
    }
    keys.insert(0, *key);
    let text: String = keys.iter().map(|key| hex::encode(key.as_bytes()) + "\n").collect();
    let path = public_file(home, role);
    let new = path.with_extension("pub.new");
    let written = write_private(&new, text.as_bytes()).and_then(|()| fs::rename(&new, &path));
    written.map(|()| true).map_err(|source| PublicKeyError::Io { role: role.as_str(), source })
}

fn rotations_file(home: &Home) -> PathBuf {
    home.keys().join("harness.rotated")
}

/// Reads the rotations of the harness key: statements signed by the old keys.
///
/// # Errors
///
/// If the file cannot be read, or holds something else.
pub(crate) fn read_rotations(home: &Home) -> Result<Vec<Rotation>, PublicKeyError> {
    let role = KeyRole::Harness.as_str();
    let text = match fs::read_to_string(rotations_file(home)) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(PublicKeyError::Io { role, source }),
    };
    let read: Result<Vec<Rotation>, _> = text.lines().take(MAX_KEYS).map(str::parse).collect();
    read.map_err(|_| PublicKeyError::Malformed { role })
}

/// Keeps a statement beside the database: a backup that is put back does not know of it.
///
/// # Errors
///
/// If the file cannot be written or holds something else.
pub(crate) fn record_rotation(home: &Home, rotation: &Rotation) -> Result<(), PublicKeyError> {
    let mut all = read_rotations(home)?;
    if all.contains(rotation) {
        return Ok(());
    }
    all.push(*rotation);
    let text: String = all.iter().map(|rotation| format!("{rotation}\n")).collect();
    let path = rotations_file(home);
    let new = path.with_extension("rotated.new");
    let written = write_private(&new, text.as_bytes()).and_then(|()| fs::rename(&new, &path));
    written.map_err(|source| PublicKeyError::Io { role: KeyRole::Harness.as_str(), source })
}

/// Writes a file that only its owner may read, over one that is there.
fn write_private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    // Readable by the owner alone from the moment it exists.
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Opens secrets, root and harness key.
///
/// # Errors
///
/// If there are none, they are locked, or the passphrase is missing or wrong.
pub(crate) fn open_secrets(context: &Context, config: &Config) -> Result<SecretStore, Failure> {
    let passphrase = ask_passphrase(context, "Passphrase of this home's secrets: ")?;
    Ok(SecretStore::open(&context.home.keys(), passphrase, &config.secrets)?)
}

/// Opens the approver key. Only commands that a person runs call this, never the engine.
///
/// # Errors
///
/// As [`open_secrets`].
pub(crate) fn open_approver_key(context: &Context, config: &Config) -> Result<ApproverStore, Failure> {
    let passphrase = ask_passphrase(context, "Passphrase of this home's approver key: ")?;
    Ok(open_approver(&context.home.keys(), passphrase, &config.secrets)?)
}

/// Returns the passphrase of the keys folder; `None` if it has none.
///
/// # Errors
///
/// If the folder cannot be read, or no person can be asked.
pub(crate) fn ask_passphrase(context: &Context, prompt: &str) -> Result<Option<SecretString>, Failure> {
    // The file of the backend says which kind of store this is; only one kind has a passphrase.
    match recorded_backend(&context.home.keys())? {
        Some(Backend::Keyring | Backend::Plain) | None => Ok(None),
        Some(Backend::Age) => match passphrase_credential(context) {
            // A service manager hands the passphrase over; a person is asked only at a terminal.
            Some(passphrase) => Ok(Some(passphrase)),
            None if context.host.streams.is_interactive() => terminal::prompt_hidden(prompt).map(Some),
            None => Err(SecretsError::PassphraseNeeded.into()),
        },
    }
}

/// A passphrase that systemd hands over.
pub(crate) fn passphrase_credential(context: &Context) -> Option<SecretString> {
    use std::io::Read as _;
    let path = context.env.path_of("CREDENTIALS_DIRECTORY")?.join(CREDENTIAL);
    let file = fs::File::open(path).ok()?;
    let mut text = zeroize::Zeroizing::new(String::new());
    // A line end is a habit of editors, not a part of the passphrase.
    file.take(MAX_PASSPHRASE_BYTES).read_to_string(&mut text).ok()?;
    Some(SecretString::from(text.trim_end_matches(['\n', '\r'])))
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::SigningKey;

    use super::*;
    use crate::env::Env;

    #[test]
    fn public_keys_are_kept_newest_first_and_once() {
        let dir = tempfile::tempdir().expect("temp dir");
        let home = Home::find_home(Some(dir.path()), &Env::default()).expect("found");
        fs::create_dir(home.keys()).expect("made");
        assert!(matches!(public_keys(&home, KeyRole::Root), Err(PublicKeyError::Missing { role: "root" })));
        let [old, new] = [1, 2].map(|seed| SigningKey::from_bytes(&[seed; 32]).verifying_key());
        for (key, added) in [(old, true), (old, false), (new, true)] {
            assert_eq!(record_public(&home, KeyRole::Root, &key).expect("written"), added);
        }
        assert_eq!(public_keys(&home, KeyRole::Root).expect("reads"), [new, old]);
        fs::write(public_file(&home, KeyRole::Root), "nonsense\n").expect("written");
        assert!(matches!(public_keys(&home, KeyRole::Root), Err(PublicKeyError::Malformed { .. })));
        assert!(
            record_public(&home, KeyRole::Root, &old).is_err(),
            "what is not understood is not overwritten"
        );
    }
}
