//! The key of contents that are sealed in the ledger, and their seals.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::XChaCha20Poly1305;
use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use rand::TryRngCore as _;
use rand::rngs::OsRng;
use secrecy::{ExposeSecret as _, SecretString};
use writ_types::entry::SealedText;
use zeroize::Zeroizing;

use crate::error::SecretsError;

/// The length of the key, in bytes.
pub const CONTENT_KEY_BYTES: usize = 32;
/// The length of a nonce, in bytes. Random ones of this length do not repeat.
const NONCE_BYTES: usize = 24;

/// The place of a prompt: JSON with the request that was `sent` and, where marks stand in it, what was `withheld`.
pub const SEALED_PROMPT: &str = "writ-prompt-v1";
/// The place of an answer: JSON of a reply.
pub const SEALED_REPLY: &str = "writ-reply-v1";

/// Seals what programs outside say to models and are answered, and opens it for the owner. It is never exchanged: older
/// contents would not open any more.
pub struct ContentKey(Zeroizing<[u8; CONTENT_KEY_BYTES]>);

impl std::fmt::Debug for ContentKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ContentKey")
    }
}

/// The reason why a content cannot be sealed or opened. It names no part of the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentSealError {
    /// The system gives no random bytes.
    #[error("the system gives no random bytes")]
    NoRandomness,
    /// The content is longer than can be sealed.
    #[error("it is too long to be sealed")]
    TooLong,
    /// The content was changed, or sealed with another key or for another place.
    #[error("it was sealed with another key, or changed")]
    Unopened,
}

impl ContentKey {
    /// Wraps bytes that were chosen at random.
    pub fn from_bytes(bytes: [u8; CONTENT_KEY_BYTES]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Makes the stored form of a new key.
    pub(crate) fn generate_text() -> Result<SecretString, SecretsError> {
        let mut bytes = Zeroizing::new([0; CONTENT_KEY_BYTES]);
        OsRng.try_fill_bytes(bytes.as_mut()).map_err(|_| SecretsError::NoRandomness)?;
        Ok(hex::encode(bytes.as_ref()).into())
    }

    /// Reads the stored form.
    pub(crate) fn from_text(text: &SecretString) -> Result<Self, SecretsError> {
        let mut bytes = Zeroizing::new([0; CONTENT_KEY_BYTES]);
        hex::decode_to_slice(text.expose_secret(), bytes.as_mut()).map_err(|_| SecretsError::Damaged {
            name: "the key of contents".to_owned(),
            reason: "it has a wrong form",
        })?;
        Ok(Self(bytes))
    }

    /// Seals a content for one place, such as `prompt`: it opens for no other.
    ///
    /// # Errors
    ///
    /// If the system gives no random bytes, or the content is too long.
    pub fn seal_content(&self, place: &str, plain: &[u8]) -> Result<SealedText, ContentSealError> {
        let mut nonce = [0; NONCE_BYTES];
        OsRng.try_fill_bytes(&mut nonce).map_err(|_| ContentSealError::NoRandomness)?;
        let payload = Payload { msg: plain, aad: place.as_bytes() };
        let sealed = self.cipher().encrypt(&nonce.into(), payload).map_err(|_| ContentSealError::TooLong)?;
        Ok(SealedText(STANDARD.encode([nonce.as_slice(), &sealed].concat())))
    }

    /// Opens a sealed content.
    ///
    /// # Errors
    ///
    /// If it was changed, or sealed with another key or for another place.
    pub fn open_content(
        &self,
        place: &str,
        sealed: &SealedText,
    ) -> Result<Zeroizing<Vec<u8>>, ContentSealError> {
        let bytes = STANDARD.decode(&sealed.0).map_err(|_| ContentSealError::Unopened)?;
        let (nonce, body) = bytes.split_first_chunk::<NONCE_BYTES>().ok_or(ContentSealError::Unopened)?;
        let payload = Payload { msg: body, aad: place.as_bytes() };
        let plain = self.cipher().decrypt(nonce.into(), payload);
        plain.map(Zeroizing::new).map_err(|_| ContentSealError::Unopened)
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new((&*self.0).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> ContentKey {
        ContentKey::from_bytes([n; CONTENT_KEY_BYTES])
    }

    /// A sealed content opens with its own key and for its own place alone, and shows nothing of what it holds.
    #[test]
    fn a_content_opens_with_its_key_for_its_place_alone() {
        let sealed = key(1).seal_content("prompt", b"Ann Example").expect("seals");
        assert_eq!(key(1).open_content("prompt", &sealed).expect("opens").as_slice(), b"Ann Example");
        assert_ne!(
            sealed,
            key(1).seal_content("prompt", b"Ann Example").expect("seals"),
            "a nonce each time"
        );
        let bytes = STANDARD.decode(&sealed.0).expect("base 64");
        assert!(!bytes.windows(3).any(|window| window == b"Ann"));
        let mut changed = bytes.clone();
        *changed.last_mut().expect("not empty") ^= 1;
        let changed = SealedText(STANDARD.encode(changed));
        let cut = SealedText(STANDARD.encode(&bytes[..20]));
        for (n, place, sealed) in
            [(2, "prompt", &sealed), (1, "reply", &sealed), (1, "prompt", &changed), (1, "prompt", &cut)]
        {
            assert_eq!(key(n).open_content(place, sealed), Err(ContentSealError::Unopened));
        }
        assert!(!format!("{:?} {sealed:?}", key(1)).contains(&sealed.0), "neither is shown");
    }
}
