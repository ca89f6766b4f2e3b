//! The secret of the proxy, and what is derived from it: the keys of tokens and of sealed values.

use chacha20poly1305::XChaCha20Poly1305;
use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use hmac::{Hmac, Mac as _};
use rand::TryRngCore as _;
use rand::rngs::OsRng;
use sha2::Sha256;
use writ_operations::PersonalKind;
use zeroize::Zeroizing;

use crate::kind::{TOKEN_DIGITS, normal_form, prefix_of};

/// The length of the secret, in bytes.
pub const SECRET_BYTES: usize = 32;
/// The length of a nonce, in bytes. Random ones of this length do not repeat.
const NONCE_BYTES: usize = 24;

/// The secret from which all tokens and seals of a proxy come. Without it no token can be made, compared or put back.
pub struct ProxySecret(Zeroizing<[u8; SECRET_BYTES]>);

impl std::fmt::Debug for ProxySecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProxySecret")
    }
}

/// The reason why a value cannot be sealed or opened. It names no part of the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The system gives no random bytes.
    #[error("the system gives no random bytes")]
    NoRandomness,
    /// The value is damaged, or was sealed by another proxy or for another place.
    #[error("a sealed value was changed, or belongs to another proxy")]
    Damaged,
}

impl ProxySecret {
    /// Wraps bytes that were chosen at random.
    pub fn from_bytes(bytes: [u8; SECRET_BYTES]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Returns the token of a value: the same for equal values of one case, and another one in every other case.
    pub(crate) fn token(&self, tenant: &str, kind: PersonalKind, case: &str, value: &str) -> String {
        let prefix = prefix_of(kind);
        // Each tenant has a key of its own, so that nothing is comparable between tenants either.
        let key = self.derive_key(&["tenant", tenant]);
        let digest = compute_mac(key.as_ref(), &[prefix, case, &normal_form(kind, value)]);
        let hexadecimal = hex::encode(digest.as_ref());
        let digits = hexadecimal.get(..TOKEN_DIGITS).unwrap_or_default();
        format!("{prefix}{digits}")
    }

    /// Returns a hash of a customer that is the same in all cases. It is for the router alone: an agent could link cases.
    pub(crate) fn customer_fingerprint(&self, tenant: &str, customer: &str) -> String {
        let digest = compute_mac(self.derive_key(&["customer"]).as_ref(), &[tenant, customer]);
        let hexadecimal = hex::encode(digest.as_ref());
        hexadecimal.get(..TOKEN_DIGITS).unwrap_or_default().to_owned()
    }

    /// Returns a hash that only this proxy can compute, by which equal requests are found.
    pub(crate) fn fingerprint(&self, parts: &[&str]) -> [u8; SECRET_BYTES] {
        *compute_mac(self.derive_key(&["request"]).as_ref(), parts)
    }

    /// Seals a value for one place: it opens nowhere else.
    pub(crate) fn seal(&self, place: &str, plain: &[u8]) -> Result<Vec<u8>, SealError> {
        let mut nonce = [0; NONCE_BYTES];
        OsRng.try_fill_bytes(&mut nonce).map_err(|_| SealError::NoRandomness)?;
        let payload = Payload { msg: plain, aad: place.as_bytes() };
        let sealed = self.cipher().encrypt(&nonce.into(), payload);
        Ok([nonce.as_slice(), &sealed.map_err(|_| SealError::Damaged)?].concat())
    }

    /// Opens a sealed value.
    pub(crate) fn open(&self, place: &str, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let (nonce, body) = sealed.split_first_chunk::<NONCE_BYTES>().ok_or(SealError::Damaged)?;
        let payload = Payload { msg: body, aad: place.as_bytes() };
        let plain = self.cipher().decrypt(nonce.into(), payload);
        plain.map(Zeroizing::new).map_err(|_| SealError::Damaged)
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new((&*self.derive_key(&["seal"])).into())
    }

    fn derive_key(&self, parts: &[&str]) -> Zeroizing<[u8; SECRET_BYTES]> {
        compute_mac(self.0.as_ref(), parts)
    }
}

/// Computes HMAC-SHA-256 over parts, each with its length before it, so that no two lists are the same text.
fn compute_mac(key: &[u8], parts: &[&str]) -> Zeroizing<[u8; SECRET_BYTES]> {
    // HMAC takes keys of any length, so there is no error to report.
    let Ok(mut mac) = <Hmac<Sha256> as hmac::Mac>::new_from_slice(key) else {
        return Zeroizing::new([0; SECRET_BYTES]);
    };
    for part in parts {
        mac.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        mac.update(part.as_bytes());
    }
    Zeroizing::new(mac.finalize().into_bytes().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(n: u8) -> ProxySecret {
        ProxySecret::from_bytes([n; SECRET_BYTES])
    }

    /// A value has one token in its case however it is written, and another one for every other case, kind, tenant and proxy.
    ///
    /// Rows: SLO-028 (in part: tokens)
    #[test]
    fn tokens_are_stable_in_a_case_and_unlinkable_between_cases() {
        let token = |n, tenant, kind, case, value| secret(n).token(tenant, kind, case, value);
        let first = token(1, "shop", PersonalKind::Email, "1", "Ann@Example.com");
        assert_eq!(first, token(1, "shop", PersonalKind::Email, "1", "ann@example.com"));
        assert!(first.starts_with("email_tk_") && !first.contains("example"), "{first}");
        for other in [
            token(2, "shop", PersonalKind::Email, "1", "ann@example.com"),
            token(1, "bank", PersonalKind::Email, "1", "ann@example.com"),
            token(1, "shop", PersonalKind::Text, "1", "ann@example.com"),
            token(1, "shop", PersonalKind::Email, "2", "ann@example.com"),
            token(1, "shop", PersonalKind::Email, "1", "bob@example.com"),
        ] {
            assert_ne!(first, other);
        }
        let phone = |text| token(1, "shop", PersonalKind::Phone, "1", text);
        assert_eq!(phone("+44 20 7946 0958"), phone("0044 (20) 7946-0958"));
        let customer = |case| token(1, "shop", PersonalKind::Customer, case, "17");
        assert_ne!(customer("1"), customer("2"), "the same customer in two cases");
    }

    /// A sealed value opens for its own proxy and place alone.
    #[test]
    fn a_sealed_value_opens_in_its_place_alone() {
        let sealed = secret(1).seal("case 1", b"Ann Example").expect("seals");
        assert!(!sealed.windows(3).any(|window| window == b"Ann"));
        assert_eq!(secret(1).open("case 1", &sealed).expect("opens").as_slice(), b"Ann Example");
        assert_ne!(sealed, secret(1).seal("case 1", b"Ann Example").expect("seals"), "a nonce each time");
        let mut changed = sealed.clone();
        *changed.last_mut().expect("not empty") ^= 1;
        let cut = sealed.get(..20).expect("long enough");
        for (n, place, bytes) in [
            (2, "case 1", sealed.as_slice()),
            (1, "case 2", &sealed),
            (1, "case 1", &changed),
            (1, "case 1", cut),
        ] {
            assert_eq!(secret(n).open(place, bytes), Err(SealError::Damaged));
        }
    }
}
