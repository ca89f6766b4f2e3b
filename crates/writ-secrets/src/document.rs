//! A document: named secrets and keys as one piece, read and written as a whole in any backend.

use std::collections::BTreeMap;
use std::fmt;

use age::{Decryptor, Encryptor, scrypt};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::io::{Read as _, Write as _};
use writ_types::credential::Reference;
use zeroize::Zeroizing;

use crate::error::SecretsError;
use crate::files::MAX_FILE_BYTES;

/// The version of the document's form.
const VERSION: u8 = 1;

/// log2 of scrypt's work: 2^17 (128 MiB, about half a second), the least that OWASP's password storage
/// cheat sheet names for scrypt.
const WORK: u8 = 17;

/// The most work accepted when a file is opened: eight times as much. A file that asks for more is not ours.
const MAX_WORK: u8 = 20;

/// Text that is not shown and is wiped when dropped.
#[derive(Clone)]
pub(crate) struct HiddenText(pub(crate) SecretString);

impl fmt::Debug for HiddenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hidden")
    }
}

impl Serialize for HiddenText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.expose_secret())
    }
}

impl<'de> Deserialize<'de> for HiddenText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(text.into()))
    }
}

/// Named secrets and keys.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SecretsDocument {
    v: u8,
    /// Keys by role: hexadecimal Ed25519 seeds.
    pub(crate) keys: BTreeMap<String, HiddenText>,
    /// Secrets by name.
    pub(crate) secrets: BTreeMap<Reference, HiddenText>,
}

impl Default for SecretsDocument {
    fn default() -> Self {
        Self { v: VERSION, keys: BTreeMap::new(), secrets: BTreeMap::new() }
    }
}

impl SecretsDocument {
    /// Reads the plain form. Errors of the parser are dropped: they may quote what they stumble over.
    pub(crate) fn parse_document(name: &str, bytes: &[u8]) -> Result<Self, SecretsError> {
        let damaged = |reason| SecretsError::Damaged { name: name.to_owned(), reason };
        let document: Self =
            serde_json::from_slice(bytes).map_err(|_| damaged("it is cut or not a document of secrets"))?;
        // A later version could hold something that this one would drop when it writes.
        if document.v == VERSION { Ok(document) } else { Err(damaged("it was written by another version")) }
    }

    /// The plain form, in memory that is wiped.
    pub(crate) fn to_bytes(&self) -> Result<Zeroizing<Vec<u8>>, SecretsError> {
        let too_large = SecretsError::TooLarge { what: "the document of secrets", limit: MAX_FILE_BYTES };
        let mut buffer = Zeroizing::new(vec![0; MAX_FILE_BYTES]);
        let mut rest: &mut [u8] = &mut buffer;
        // Written into memory of fixed size: a growing buffer would leave copies behind.
        if serde_json::to_writer(&mut rest, self).is_err() {
            return Err(too_large);
        }
        let used = MAX_FILE_BYTES - rest.len();
        buffer.truncate(used);
        Ok(buffer)
    }
}

/// Encrypts with a passphrase.
pub(crate) fn encrypt_document(
    name: &str,
    passphrase: &SecretString,
    plain: &[u8],
) -> Result<Vec<u8>, SecretsError> {
    let failed = |source| SecretsError::Io { name: name.to_owned(), action: "encrypted", source };
    let mut recipient = scrypt::Recipient::new(passphrase.clone());
    // The work is fixed and not measured: on a fast machine a measured one would lock out a slower one.
    recipient.set_work_factor(WORK);
    let encryptor = Encryptor::with_recipients(std::iter::once(&recipient as &dyn age::Recipient))
        .map_err(|error| failed(std::io::Error::other(error)))?;
    let mut sealed = Vec::with_capacity(plain.len() + 1024);
    let mut writer = encryptor.wrap_output(&mut sealed).map_err(failed)?;
    writer.write_all(plain).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(sealed)
}

/// Decrypts with a passphrase.
pub(crate) fn decrypt_document(
    name: &str,
    passphrase: &SecretString,
    sealed: &[u8],
) -> Result<Zeroizing<Vec<u8>>, SecretsError> {
    let damaged = |reason| SecretsError::Damaged { name: name.to_owned(), reason };
    let decryptor = Decryptor::new_buffered(sealed).map_err(|_| damaged("it is cut or not an age file"))?;
    let mut identity = scrypt::Identity::new(passphrase.clone());
    // The file says how much work it wants, so a forged one could keep the process busy.
    identity.set_max_work_factor(MAX_WORK);
    let reader = decryptor.decrypt(std::iter::once(&identity as &dyn age::Identity));
    let mut reader = reader.map_err(|error| match error {
        // A wrong passphrase and a damaged header have different remedies.
        age::DecryptError::DecryptionFailed
        | age::DecryptError::KeyDecryptionFailed
        | age::DecryptError::NoMatchingKeys => SecretsError::WrongPassphrase(name.to_owned()),
        age::DecryptError::ExcessiveWork { .. } => damaged("it asks for more work than Writ's own files do"),
        age::DecryptError::InvalidHeader | age::DecryptError::InvalidMac => damaged("its header was changed"),
        age::DecryptError::Io(_) => damaged("it is cut"),
        age::DecryptError::UnknownFormat => damaged("its form is unknown"),
    })?;
    // The plain text is never longer than the sealed one, so the buffer does not grow and leave copies.
    let mut plain = Zeroizing::new(Vec::with_capacity(sealed.len()));
    reader.read_to_end(&mut plain).map_err(|_| damaged("it is cut or was changed"))?;
    Ok(plain)
}
