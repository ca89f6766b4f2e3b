//! Rotation of the harness's key: the old key signs for the new one.
//!
//! ```text
//! statement = "writ-rotated-v1" LF hex(old key) LF hex(new key) LF       signed by the old key
//! text      = hex(old key) " " hex(new key) " " hex(signature)
//! ```
//!
//! The text is stored in a `keyed` entry of the ledger. Its signature is its proof, so the new key can write the entry
//! again if a restore has dropped it.

use std::fmt;
use std::str::FromStr;

use rusqlite::{Connection, params};
use writ_types::entry::{Entry, Fact};
use writ_types::id::KeyId;
use writ_types::unit::Timestamp;

use super::head::{HeadSigner, verify_signature};
use crate::codec;
use crate::error::StoreError;

/// The most rotations that are read: enough for one a day over 27 years.
pub const MAX_ROTATIONS: usize = 10_000;
/// The role of the harness's key in entries.
const ROLE: &str = "harness";
/// The value of `change` in the entry of a rotation.
const CHANGE: &str = "rotated";

/// A statement that one key replaces another. Its signature was verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    from: [u8; 32],
    to: [u8; 32],
    signature: [u8; 64],
}

/// Text that is no rotation, or has a bad signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not a rotation that the old key has signed")]
pub struct InvalidRotation;

fn rotation_statement(from: &[u8; 32], to: &[u8; 32]) -> String {
    format!("writ-rotated-v1\n{}\n{}\n", hex::encode(from), hex::encode(to))
}

impl Rotation {
    /// Makes the statement that `to` replaces the old key, signed by the old key.
    pub fn sign(old: &dyn HeadSigner, to: [u8; 32]) -> Self {
        let from = old.public_key();
        Self { from, to, signature: old.sign(rotation_statement(&from, &to).as_bytes()) }
    }

    /// Returns the new key.
    pub const fn to(&self) -> &[u8; 32] {
        &self.to
    }

    /// Returns the ledger entry that records the rotation.
    pub fn entry(&self, id: KeyId, at: Timestamp) -> Entry {
        let (role, change) = (ROLE.to_owned(), CHANGE.to_owned());
        let fact = Fact::Keyed { key: id, role, change, grants: self.to_string() };
        Entry { at, session: None, turn: None, turn_number: 0, fact }
    }

    /// Returns the rotation that the payload of an entry records, if it records one.
    pub(crate) fn of_payload(payload: &[u8]) -> Option<Self> {
        // Skips parsing if these bytes are missing: canonical JSON writes this field in exactly one way.
        let mark = br#""change":"rotated""#;
        payload.windows(mark.len()).any(|bytes| bytes == mark).then_some(())?;
        let Ok(Fact::Keyed { role, change, grants, .. }) = serde_json::from_slice(payload) else {
            return None;
        };
        if role == ROLE && change == CHANGE { grants.parse().ok() } else { None }
    }
}

impl fmt::Display for Rotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", hex::encode(self.from), hex::encode(self.to), hex::encode(self.signature))
    }
}

impl FromStr for Rotation {
    type Err = InvalidRotation;

    fn from_str(text: &str) -> Result<Self, InvalidRotation> {
        let mut words = text.trim().split(' ');
        let (Some(from), Some(to), Some(signature), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(InvalidRotation);
        };
        let mut rotation = Self { from: [0; 32], to: [0; 32], signature: [0; 64] };
        hex::decode_to_slice(from, &mut rotation.from).map_err(|_| InvalidRotation)?;
        hex::decode_to_slice(to, &mut rotation.to).map_err(|_| InvalidRotation)?;
        hex::decode_to_slice(signature, &mut rotation.signature).map_err(|_| InvalidRotation)?;
        let text = rotation_statement(&rotation.from, &rotation.to);
        let good = rotation.from != rotation.to
            && verify_signature(&rotation.from, text.as_bytes(), &rotation.signature);
        if good { Ok(rotation) } else { Err(InvalidRotation) }
    }
}

/// Returns the rotations that lead from one key to another, in order; `None` if the known ones do not lead there.
pub(crate) fn rotation_path(from: &[u8; 32], to: &[u8; 32], known: &[Rotation]) -> Option<Vec<Rotation>> {
    let (mut at, mut steps) = (*from, Vec::new());
    while at != *to {
        // If a key was replaced several times, the last replacement that was not followed yet counts.
        let next = known.iter().rev().find(|step| step.from == at && !steps.contains(*step))?;
        steps.push(*next);
        at = next.to;
    }
    Some(steps)
}

/// Returns the rotations that the ledger records, in order.
pub(crate) fn recorded_rotations(conn: &Connection) -> Result<Vec<Rotation>, StoreError> {
    let sql = "SELECT p.payload FROM ledger l JOIN ledger_payload p ON p.seq = l.seq
               WHERE l.event = 'keyed' AND p.payload LIKE '%\"change\":\"rotated\"%' ORDER BY l.seq LIMIT ?1";
    let found = codec::query(conn, sql, params![codec::limit(MAX_ROTATIONS)], |row| {
        Ok(Rotation::of_payload(row.get::<_, String>(0)?.as_bytes()))
    })?;
    Ok(found.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::SigningKey;

    use super::*;

    fn key(n: u8) -> SigningKey {
        SigningKey::from_bytes(&[n; 32])
    }

    #[test]
    fn a_rotation_proves_itself_and_nothing_else() {
        let rotation = Rotation::sign(&key(1), key(2).public_key());
        assert_eq!(rotation.to_string().parse(), Ok(rotation));
        let text = rotation.to_string();
        for at in (0..text.len()).step_by(7) {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
            let changed = String::from_utf8(changed).expect("ASCII");
            assert_eq!(changed.parse::<Rotation>(), Err(InvalidRotation), "{at}");
        }
        // The new key cannot sign its own succession.
        let [from, to] = [key(1), key(2)].map(|key| hex::encode(key.public_key()));
        let own = Rotation::sign(&key(2), key(2).public_key());
        let forged = format!("{from} {to} {}", hex::encode(own.signature));
        assert_eq!(forged.parse::<Rotation>(), Err(InvalidRotation));
        assert_eq!(own.to_string().parse::<Rotation>(), Err(InvalidRotation), "nor can a key replace itself");
    }

    #[test]
    fn rotations_lead_from_key_to_key() {
        let step = |from, to| Rotation::sign(&key(from), key(to).public_key());
        let known = [step(1, 2), step(2, 3), step(3, 1), step(1, 4)];
        let to = |from: u8, to: u8| rotation_path(&key(from).public_key(), &key(to).public_key(), &known);
        assert_eq!(to(1, 1), Some(Vec::new()));
        assert_eq!(to(2, 4), Some(vec![step(2, 3), step(3, 1), step(1, 4)]));
        assert_eq!(to(4, 1), None);
        assert_eq!(to(1, 9), None);
    }
}
