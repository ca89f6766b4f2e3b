//! SHA-256 digests and the canonical form (RFC 8785) that they are taken over.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest, shown as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(with = "String", inline)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

/// Text that is not 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a digest has 64 hexadecimal digits")]
pub struct InvalidDigest;

/// A value that has no canonical form, such as a map with keys that are not text.
#[derive(Debug, thiserror::Error)]
#[error("value has no canonical JSON form: {0}")]
pub struct NotCanonical(#[from] serde_json::Error);

impl Digest {
    /// The digest of some bytes.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest of a value's canonical JSON form (RFC 8785).
    ///
    /// # Errors
    ///
    /// If the value cannot be written as JSON.
    pub fn of_canonical<T: Serialize>(value: &T) -> Result<Self, NotCanonical> {
        // Canonical JSON, so that the same value always has the same digest.
        Ok(Self::of_bytes(&canonical_json(value)?))
    }

    /// The digest of a value's JSON as this program writes it, for what only this program compares: faster by far
    /// than [`Self::of_canonical`], and another program may write the same value otherwise.
    ///
    /// # Errors
    ///
    /// If the value cannot be written as JSON.
    pub fn of_json<T: Serialize>(value: &T) -> Result<Self, NotCanonical> {
        // Hashed while it is written, without a copy in memory.
        let mut hasher = std::io::BufWriter::new(Hasher(Sha256::new()));
        serde_json::to_writer(&mut hasher, value)?;
        let Hasher(hasher) =
            hasher.into_inner().map_err(|error| serde_json::Error::io(error.into_error()))?;
        Ok(Self(hasher.finalize().into()))
    }

    /// Wraps 32 bytes that are a digest already.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// A hasher to write to.
struct Hasher(Sha256);

impl std::io::Write for Hasher {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Writes a value in its canonical JSON form (RFC 8785).
///
/// # Errors
///
/// If the value cannot be written as JSON.
pub fn canonical_json<T: Serialize>(value: &T) -> Result<Vec<u8>, NotCanonical> {
    // RFC 8785: sorted keys, shortest numbers.
    Ok(serde_json_canonicalizer::to_vec(value)?)
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let mut bytes = [0; 32];
        // Fails for any other length, too.
        hex::decode_to_slice(text, &mut bytes).map_err(|_| InvalidDigest)?;
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for Digest {
    type Error = InvalidDigest;

    fn try_from(text: String) -> Result<Self, InvalidDigest> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_matches_the_published_vector_and_ignores_key_order() {
        // FIPS 180-2, appendix B.1.
        assert_eq!(
            Digest::of_bytes(b"abc").to_string(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        let one: serde_json::Value = serde_json::json!({"b": 1, "a": [true]});
        let two: serde_json::Value = serde_json::json!({"a": [true], "b": 1});
        assert_eq!(Digest::of_canonical(&one).ok(), Digest::of_canonical(&two).ok());
    }

    #[test]
    fn the_digest_of_json_is_that_of_its_text_however_long() {
        let long = vec!["ü\n"; 10_000];
        let text = serde_json::to_string(&long).expect("JSON");
        assert_eq!(Digest::of_json(&long).expect("a digest"), Digest::of_bytes(text.as_bytes()));
    }
}
