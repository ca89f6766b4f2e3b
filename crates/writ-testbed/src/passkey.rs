//! An authenticator in software: makes passkeys and signs with them as a browser would send it, honestly or,
//! if a test asks for it, with exactly one thing wrong and everything signed.

#![expect(clippy::panic, reason = "a test that prepares nonsense is to fail at once")]

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::Signer as _;
use serde_json::{Value, json};
use writ_types::digest::Digest;

/// A person was there and was verified.
pub const PRESENT_AND_VERIFIED: u8 = 0x05;
/// A new key follows.
const KEY_FOLLOWS: u8 = 0x40;

/// The algorithm of a passkey, with its key.
#[derive(Clone, Debug)]
enum Key {
    Es256(p256::ecdsa::SigningKey),
    Ed25519(ed25519_dalek::SigningKey),
}

/// A passkey with its secret half.
#[derive(Clone, Debug)]
pub struct SoftPasskey {
    key: Key,
    id: Vec<u8>,
}

/// The question, and the claims of the authenticator and the browser about it.
#[derive(Clone, Debug)]
pub struct Ceremony {
    /// The challenge, as base64url.
    pub challenge: String,
    /// The page's origin.
    pub origin: String,
    /// The site that the authenticator has bound the key to.
    pub site: String,
    /// The type that the browser claims; `None`: the true one.
    pub kind: Option<&'static str>,
    /// True if another page has embedded this one.
    pub cross_origin: bool,
    /// Flags, without the one for a new key.
    pub flags: u8,
    /// The counter of signatures.
    pub sign_count: u32,
    /// Bytes after the authenticator's data.
    pub trailing: Vec<u8>,
}

impl Ceremony {
    /// An honest ceremony in the page of a server on this machine.
    pub fn honest_ceremony(challenge: &str, origin: &str) -> Self {
        Self {
            challenge: challenge.to_owned(),
            origin: origin.to_owned(),
            site: "localhost".to_owned(),
            kind: None,
            cross_origin: false,
            flags: PRESENT_AND_VERIFIED,
            sign_count: 0,
            trailing: Vec::new(),
        }
    }

    fn client_data(&self, kind: &str) -> Vec<u8> {
        let said = json!({
            "type": self.kind.unwrap_or(kind), "challenge": self.challenge, "origin": self.origin,
            "crossOrigin": self.cross_origin,
        });
        said.to_string().into_bytes()
    }

    fn fixed(&self, flags: u8) -> Vec<u8> {
        let site = Digest::of_bytes(self.site.as_bytes());
        [site.as_bytes().as_slice(), &[flags], &self.sign_count.to_be_bytes()].concat()
    }
}

/// The beginning of a string of bytes in CBOR, in its shortest form.
fn head(length: usize) -> Vec<u8> {
    match u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes() {
        [0, low @ 0..24] => vec![0x40 | low],
        [0, low] => vec![0x58, low],
        [high, low] => vec![0x59, high, low],
    }
}

/// An attestation object with this format and statement, both as CBOR.
pub fn encode_attestation(format: &[u8], statement: &[u8], data: &[u8]) -> Vec<u8> {
    [b"\xa3\x63fmt", format, b"\x67attStmt", statement, b"\x68authData", &head(data.len()), data].concat()
}

/// Bytes as browsers write them.
pub fn text_of(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl SoftPasskey {
    /// A passkey that signs with ECDSA over P-256.
    ///
    /// # Panics
    ///
    /// If the seed is zero: that is no key.
    pub fn es256(seed: u8) -> Self {
        let key = p256::ecdsa::SigningKey::from_slice(&[seed; 32]);
        Self { key: Key::Es256(key.unwrap_or_else(|_| panic!("seed {seed} is no key"))), id: vec![seed; 20] }
    }

    /// A passkey that signs with Ed25519.
    pub fn ed25519(seed: u8) -> Self {
        Self { key: Key::Ed25519(ed25519_dalek::SigningKey::from_bytes(&[seed; 32])), id: vec![seed; 16] }
    }

    /// The same key under another credential's id.
    pub fn with_credential_id(&self, id: &[u8]) -> Self {
        Self { key: self.key.clone(), id: id.to_vec() }
    }

    /// The credential's id, as browsers write it.
    pub fn id(&self) -> String {
        text_of(&self.id)
    }

    /// The public key in the form of COSE.
    pub fn cose(&self) -> Vec<u8> {
        match &self.key {
            Key::Es256(key) => {
                let point = key.verifying_key().to_encoded_point(false);
                let (x, y) = point.as_bytes().split_at(33);
                // {1: 2, 3: -7, -1: 1, -2: x, -3: y}
                [&[0xa5, 1, 2, 3, 0x26, 0x20, 1, 0x21, 0x58, 32][..], &x[1..], &[0x22, 0x58, 32], y].concat()
            }
            Key::Ed25519(key) => {
                // {1: 1, 3: -8, -1: 6, -2: x}
                let x = key.verifying_key();
                [&[0xa4, 1, 1, 3, 0x27, 0x20, 6, 0x21, 0x58, 32][..], x.as_bytes()].concat()
            }
        }
    }

    /// The authenticator's data with a new key.
    pub fn new_key(&self, ceremony: &Ceremony, cose: &[u8]) -> Vec<u8> {
        let length = u16::try_from(self.id.len()).unwrap_or(u16::MAX).to_be_bytes();
        [
            &ceremony.fixed(ceremony.flags | KEY_FOLLOWS),
            &[0; 16][..],
            &length,
            &self.id,
            cose,
            &ceremony.trailing,
        ]
        .concat()
    }

    /// Makes the page's message about a new passkey.
    pub fn enrol_passkey(&self, ceremony: &Ceremony) -> Value {
        let data = self.new_key(ceremony, &self.cose());
        self.enrolment(ceremony, &encode_attestation(b"\x64none", b"\xa0", &data))
    }

    /// Makes the page's message about a new passkey with a key that signs its own attestation, with this
    /// algorithm's number as one byte of CBOR.
    pub fn enrol_signed(&self, ceremony: &Ceremony, algorithm: u8) -> Value {
        let data = self.new_key(ceremony, &self.cose());
        let client = Digest::of_bytes(&ceremony.client_data("webauthn.create"));
        let signature = self.signature(&[&data, client.as_bytes().as_slice()].concat());
        // {"alg": …, "sig": …}
        let statement =
            [b"\xa2\x63alg", &[algorithm][..], b"\x63sig", &head(signature.len()), &signature].concat();
        let object = encode_attestation(b"\x66packed", &statement, &data);
        self.enrolment(ceremony, &object)
    }

    /// Makes the page's message about a new passkey with this attestation object.
    pub fn enrolment(&self, ceremony: &Ceremony, object: &[u8]) -> Value {
        json!({
            "id": self.id(), "rawId": self.id(), "type": "public-key",
            "response": {
                "clientDataJSON": text_of(&ceremony.client_data("webauthn.create")),
                "attestationObject": text_of(object),
                "transports": ["internal"],
            },
        })
    }

    /// Makes the page's message with a signature.
    pub fn sign_challenge(&self, ceremony: &Ceremony) -> Value {
        let client = ceremony.client_data("webauthn.get");
        let data = [ceremony.fixed(ceremony.flags), ceremony.trailing.clone()].concat();
        let signature = self.signature(&[&data, Digest::of_bytes(&client).as_bytes().as_slice()].concat());
        json!({
            "id": self.id(), "rawId": self.id(), "type": "public-key",
            "response": {
                "clientDataJSON": text_of(&client),
                "authenticatorData": text_of(&data),
                "signature": text_of(&signature),
                "userHandle": null,
            },
        })
    }

    fn signature(&self, message: &[u8]) -> Vec<u8> {
        match &self.key {
            Key::Es256(key) => {
                let signature: p256::ecdsa::Signature = key.sign(message);
                signature.to_der().as_bytes().to_vec()
            }
            Key::Ed25519(key) => {
                let signature: ed25519_dalek::Signature = key.sign(message);
                signature.to_bytes().to_vec()
            }
        }
    }
}
