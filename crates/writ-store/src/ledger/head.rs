//! Signed heads, in the form of a C2SP checkpoint in a signed note.
//!
//! ```text
//! writ/01ARZ3NDEKTSV4RRFFQ69G5FAV          origin: the installation
//! 20852                                    number of entries
//! CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=     root, base 64
//!
//! — writ/01ARZ3NDEKTSV4RRFFQ69G5FAV Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=
//! ```

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ed25519_dalek::{Signature, SigningKey, VerifyingKey};
use sha2::{Digest as _, Sha256};
use writ_types::id::InstallationId;

use super::tree::Hash;

/// The interval of heads that are never deleted, in entries; it bounds the search after a bad head.
pub const HEAD_INTERVAL: u64 = 256;

/// The longest note that is read: origin, size, root and one signature take about 300 bytes.
pub const MAX_NOTE_BYTES: usize = 4_096;

/// The signature type of Ed25519 in C2SP signed notes.
const ED25519: u8 = 1;

/// Signs heads and rows with the harness's key.
pub trait HeadSigner: Send + Sync {
    /// The public half, 32 bytes.
    fn public_key(&self) -> [u8; 32];

    /// An Ed25519 signature over `message`.
    fn sign(&self, message: &[u8]) -> [u8; 64];
}

impl HeadSigner for SigningKey {
    fn public_key(&self) -> [u8; 32] {
        self.verifying_key().to_bytes()
    }

    fn sign(&self, message: &[u8]) -> [u8; 64] {
        ed25519_dalek::Signer::sign(self, message).to_bytes()
    }
}

/// A head: the size and root of the ledger at one moment, signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The ledger's name.
    pub origin: String,
    /// The number of entries that it covers.
    pub size: u64,
    /// The root over them.
    pub root: Hash,
    /// The signed note.
    pub note: String,
}

/// The reason why a note is not a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    /// It has another form.
    #[error("the text is not a checkpoint")]
    Malformed,
    /// None of the given keys signed it.
    #[error("the checkpoint is not signed by a known key")]
    Unsigned,
}

/// The origin of an installation's ledger, which is also the name of its key in notes.
pub fn origin(installation: InstallationId) -> String {
    format!("writ/{installation}")
}

impl Checkpoint {
    /// Signs a head.
    pub fn sign(origin: &str, size: u64, root: Hash, signer: &dyn HeadSigner) -> Self {
        let body = note_body(origin, size, &root);
        let signature = signer.sign(body.as_bytes());
        let mut blob = key_id(origin, &signer.public_key()).to_vec();
        blob.extend_from_slice(&signature);
        let note = format!("{body}\n— {origin} {}\n", BASE64.encode(blob));
        Self { origin: origin.to_owned(), size, root, note }
    }

    /// Reads a note without checking its signature.
    ///
    /// # Errors
    ///
    /// If it has another form.
    pub fn parse(note: &str) -> Result<Self, NoteError> {
        if note.len() > MAX_NOTE_BYTES {
            return Err(NoteError::Malformed);
        }
        let (text, _) = note.split_once("\n\n").ok_or(NoteError::Malformed)?;
        let mut lines = text.split('\n');
        let (Some(origin), Some(size), Some(root), None) =
            (lines.next(), lines.next(), lines.next(), lines.next())
        else {
            return Err(NoteError::Malformed);
        };
        let parsed: u64 = size.parse().map_err(|_| NoteError::Malformed)?;
        let bytes = BASE64.decode(root).map_err(|_| NoteError::Malformed)?;
        let root: Hash = bytes.try_into().map_err(|_| NoteError::Malformed)?;
        if origin.is_empty()
            || parsed.to_string() != size
            || note_body(origin, parsed, &root) != format!("{text}\n")
        {
            return Err(NoteError::Malformed);
        }
        Ok(Self { origin: origin.to_owned(), size: parsed, root, note: note.to_owned() })
    }

    /// Reads a note and checks that one of `keys` signed it.
    ///
    /// # Errors
    ///
    /// If it has another form or is not signed by any of them.
    pub fn verify(note: &str, keys: &[[u8; 32]]) -> Result<Self, NoteError> {
        Self::verify_by(note, keys).map(|(checkpoint, _)| checkpoint)
    }

    /// The same, and which key signed it.
    pub(crate) fn verify_by(note: &str, keys: &[[u8; 32]]) -> Result<(Self, [u8; 32]), NoteError> {
        let checkpoint = Self::parse(note)?;
        let (_, signatures) = note.split_once("\n\n").ok_or(NoteError::Malformed)?;
        let text = note_body(&checkpoint.origin, checkpoint.size, &checkpoint.root);
        let prefix = format!("— {} ", checkpoint.origin);
        // One signature and nothing else, so that no byte of a note goes unchecked.
        let blob = signatures.strip_suffix('\n').and_then(|line| line.strip_prefix(&prefix));
        let blob = BASE64.decode(blob.ok_or(NoteError::Malformed)?).map_err(|_| NoteError::Malformed)?;
        let (id, signature) = blob.split_at_checked(4).ok_or(NoteError::Malformed)?;
        let signer = keys.iter().find(|key| {
            key_id(&checkpoint.origin, key) == id && verify_signature(key, text.as_bytes(), signature)
        });
        signer.map(|signer| (checkpoint, *signer)).ok_or(NoteError::Unsigned)
    }
}

/// Returns true if `key` signed `message`; false for malformed keys and signatures.
pub(crate) fn verify_signature(key: &[u8; 32], message: &[u8], signature: &[u8]) -> bool {
    let (Ok(key), Ok(signature)) = (VerifyingKey::from_bytes(key), Signature::from_slice(signature)) else {
        return false;
    };
    key.verify_strict(message, &signature).is_ok()
}

fn note_body(origin: &str, size: u64, root: &Hash) -> String {
    format!("{origin}\n{size}\n{}\n", BASE64.encode(root))
}

fn key_id(name: &str, key: &[u8; 32]) -> [u8; 4] {
    let mut hasher = Sha256::new();
    hasher.update(name.as_bytes());
    hasher.update([b'\n', ED25519]);
    hasher.update(key);
    let digest: [u8; 32] = hasher.finalize().into();
    let [a, b, c, d, ..] = digest;
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_round_trip_and_every_changed_byte_is_refused() {
        let key = SigningKey::from_bytes(&[7; 32]);
        let keys = [key.public_key()];
        let head = Checkpoint::sign("writ/x", 300, [9; 32], &key);
        assert_eq!(Checkpoint::verify(&head.note, &keys), Ok(head.clone()));
        assert_eq!(Checkpoint::verify(&head.note, &[[1; 32]]), Err(NoteError::Unsigned));
        let bytes = head.note.as_bytes();
        for position in 0..bytes.len() {
            let mut changed = bytes.to_vec();
            changed[position] ^= 1;
            let text = String::from_utf8_lossy(&changed);
            assert!(Checkpoint::verify(&text, &keys).is_err(), "byte {position}");
        }
        assert!(Checkpoint::verify(&format!("{}x", head.note), &keys).is_err());
    }

    /// The verifier key of the example in the C2SP signed-note specification:
    /// `PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW`.
    #[test]
    fn key_ids_are_those_of_signed_notes() {
        let encoded = BASE64.decode("ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW").expect("base 64");
        let key: [u8; 32] = encoded[1..].try_into().expect("32 bytes");
        assert_eq!(encoded[0], ED25519);
        assert_eq!(key_id("PeterNeumann", &key), [0xc7, 0x4f, 0x20, 0xa3]);
    }
}
