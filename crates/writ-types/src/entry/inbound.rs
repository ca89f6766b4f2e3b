//! Records of inbound messages.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::id::{MessageId, SessionId};
use crate::taint::Taint;
use crate::unit::Timestamp;

/// A record of an inbound message, signed by the harness together with taint and turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboundRecord {
    /// The message.
    pub message: MessageId,
    /// Its session.
    pub session: SessionId,
    /// The number of the turn that it opens or joins.
    pub turn_number: u64,
    /// The sender, as in the directory: `owner`, `member:NAME`, …
    pub principal: String,
    /// Its trust level.
    pub taint: Taint,
    /// Digest of its text.
    pub text: Digest,
    /// When it came.
    pub at: Timestamp,
}
