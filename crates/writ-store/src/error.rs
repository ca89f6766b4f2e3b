//! The errors of the store.

use rusqlite::ErrorCode;
use writ_policy::budget::Exhausted;
use writ_types::error::{Exit, Report, ToReport};
use writ_types::id::{AskId, AttemptId, EntrySeq, KeyId, MessageId, SessionId, TurnId};

/// The reason why the store refused or failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// A file or folder of the store cannot be used.
    #[error("{path}: {message}")]
    Path {
        /// The path, for the log.
        path: String,
        /// The reason.
        message: String,
    },
    /// The database lies on a network file system, where SQLite's locks do not hold.
    #[error("{path} lies on a network file system ({kind})")]
    NetworkFilesystem {
        /// The path, for the log.
        path: String,
        /// The file system.
        kind: &'static str,
    },
    /// The database was written by a newer version.
    #[error("the database has schema {found}, this version knows {known}")]
    NewerSchema {
        /// The newest migration in the database.
        found: u32,
        /// The newest migration that this version has.
        known: u32,
    },
    /// A migration that was applied is not the one that this version has.
    #[error("migration {number} ({name}) was changed after it was applied")]
    ChangedMigration {
        /// Its number.
        number: u32,
        /// Its name.
        name: String,
    },
    /// The disk, or the configured size, is full.
    #[error("the disk is full")]
    DiskFull,
    /// The file is damaged or not a database.
    #[error("the database is damaged: {0}")]
    Corrupt(String),
    /// Another process holds the database.
    #[error("the database is locked by another process")]
    Locked,
    /// The database cannot be written.
    #[error("the database is read-only")]
    ReadOnly,
    /// The signer has not signed in this ledger before.
    #[error("the ledger was signed with another key")]
    KeyMismatch,
    /// The end of the ledger does not fit its last signed head, so nothing is appended to it.
    #[error("the ledger does not fit its last signed head: {0}")]
    LedgerDamaged(String),
    /// Something is larger than its bound.
    #[error("{what} is larger than {limit}")]
    TooLarge {
        /// The thing that it concerns.
        what: &'static str,
        /// The bound.
        limit: usize,
    },
    /// A queue is full.
    #[error("the queue of {what} is full ({limit} messages)")]
    QueueFull {
        /// `the session` or `the store`.
        what: &'static str,
        /// The bound.
        limit: u64,
    },
    /// A condition of the batch did not hold; nothing of it was written.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// External content may not be held as verified or constitutional.
    #[error("external content cannot be remembered as verified or constitutional")]
    TaintedTrust,
    /// A value has no stored form.
    #[error("{what} cannot be stored: {message}")]
    Encode {
        /// The thing that it concerns.
        what: &'static str,
        /// The reason.
        message: String,
    },
    /// A stored value cannot be read.
    #[error("a stored {what} cannot be read: {message}")]
    Decode {
        /// The thing that it concerns.
        what: &'static str,
        /// The reason.
        message: String,
    },
    /// A read ended in a panic; the store goes on.
    #[error("a read ended in a panic")]
    ReadPanicked,
    /// The writer has ended.
    #[error("the store is closed")]
    Closed,
    /// Any other error of SQLite.
    #[error("the database refused: {0}")]
    Sqlite(String),
}

/// A condition that did not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// The lease is no longer the caller's: it ran out, was requeued, or the message is done.
    #[error("the lease of message {0} is no longer held")]
    Fence(MessageId),
    /// The session has a message with this client id already.
    #[error("this message is stored already as entry {entry}")]
    DuplicateMessage {
        /// The entry that recorded the first.
        entry: EntrySeq,
    },
    /// The approval is used, revoked, expired, absent, or made for something else.
    #[error("approval {0} is used up or not valid for this action")]
    ApprovalSpent(AskId),
    /// The key was revoked.
    #[error("key {0} was revoked")]
    Revoked(String),
    /// Session or day have nothing left of this.
    #[error("{}", .0.reason_text())]
    Exhausted(Exhausted),
    /// As many executors of work items work as may at a time.
    #[error("{0} executors work already")]
    Executors(u64),
    /// The day's limit of a key has not enough left for this parameter.
    #[error("the day's limit of '{0}' is used up")]
    UsedUp(String),
    /// A request with this name was begun before.
    #[error("a request with the name '{0}' was begun before")]
    Repeated(String),
    /// The nonce was seen before.
    #[error("a nonce of {namespace} was seen before")]
    NonceSeen {
        /// The namespace.
        namespace: String,
    },
    /// The passkey's counter of signatures did not grow: there may be a copy of it.
    #[error("the counter of passkey {0} has not grown")]
    Counter(KeyId),
    /// The turn's number is not the next one of its session.
    #[error("the next turn of session {session} is {expected}")]
    TurnNumber {
        /// The session.
        session: SessionId,
        /// The number that is next.
        expected: u64,
    },
    /// The event's number is not the next one of its turn.
    #[error("the next event of turn {turn} is {expected}")]
    TurnEvent {
        /// The turn.
        turn: TurnId,
        /// The number that is next.
        expected: u64,
    },
    /// The turn is closed or unknown.
    #[error("turn {0} is not open")]
    TurnClosed(TurnId),
    /// The attempt has an outcome already.
    #[error("attempt {0} has an outcome already")]
    IntentClosed(AttemptId),
    /// The ask is not in the state that the change needs.
    #[error("ask {0} is not open")]
    AskNotOpen(AskId),
    /// The session was not deleted and closed before its content is erased.
    #[error("session {0} is not deleted")]
    NotDeleted(SessionId),
    /// A turn of the session is not over.
    #[error("a turn of session {0} is not over")]
    TurnOpen(SessionId),
    /// Something of the session's content can or must go first.
    #[error("some content of session {0} is not erased yet")]
    ContentLeft(SessionId),
    /// The content of the session was erased, or is being erased.
    #[error("the content of session {0} was erased")]
    Erased(SessionId),
    /// Something rests on the payload of the entry.
    #[error("the payload of entry {entry} is needed: {why}")]
    Needed {
        /// The entry.
        entry: EntrySeq,
        /// The reason why it is needed.
        why: &'static str,
        /// The step that must come first.
        hint: &'static str,
    },
    /// The batch is not well-formed.
    #[error("{0}")]
    Order(&'static str),
    /// There is no such thing.
    #[error("there is no {what} {id}")]
    Missing {
        /// The thing that it concerns.
        what: &'static str,
        /// Its id.
        id: String,
    },
    /// There is one already.
    #[error("{what} {id} is there already")]
    Exists {
        /// The thing that it concerns.
        what: &'static str,
        /// Its id.
        id: String,
    },
}

impl StoreError {
    /// Names the path in an I/O error.
    pub(crate) fn io(path: &std::path::Path, error: &std::io::Error) -> Self {
        Self::Path { path: path.display().to_string(), message: error.to_string() }
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        let message = error.to_string();
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::DiskFull,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Corrupt(message),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Locked,
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Self::ReadOnly,
            Some(ErrorCode::CannotOpen) => Self::Path { path: "database".to_owned(), message },
            _ => Self::Sqlite(message),
        }
    }
}

impl ToReport for StoreError {
    fn report(&self) -> Report {
        let (exit, code, outside, hint) = self.parts();
        Report::new(exit, code, outside).with_hint(hint).with_inside(self.to_string())
    }
}

impl StoreError {
    fn parts(&self) -> (Exit, &'static str, String, &'static str) {
        let text = self.to_string();
        match self {
            Self::Path { message, .. } => (
                Exit::Config,
                "store.path",
                format!("the store's folder or file cannot be used: {message}"),
                "check the owner and mode of the home's data folder",
            ),
            Self::NetworkFilesystem { kind, .. } => (
                Exit::Config,
                "store.network_filesystem",
                format!("the database lies on a network file system ({kind})"),
                "move the home to a local disk",
            ),
            Self::NewerSchema { .. } => {
                (Exit::Config, "store.newer_schema", text, "use a newer version of writ")
            }
            Self::ChangedMigration { .. } => (
                Exit::Config,
                "store.changed_migration",
                text,
                "use the version of writ that made this database, or restore a backup",
            ),
            Self::DiskFull => {
                (Exit::Blocked, "store.disk_full", text, "free some space; nothing is performed until then")
            }
            Self::Corrupt(_) => (
                Exit::Config,
                "store.corrupt",
                "the database is damaged".to_owned(),
                "keep a copy of data/, then `writ backup restore`",
            ),
            Self::Locked => {
                (Exit::Blocked, "store.locked", text, "stop the other process that uses this home")
            }
            Self::ReadOnly => {
                (Exit::Config, "store.read_only", text, "make the home's data folder writable by its owner")
            }
            Self::KeyMismatch => (
                Exit::Config,
                "store.key_mismatch",
                text,
                "use the key that this home was made with, or rotate the key",
            ),
            Self::LedgerDamaged(_) => (Exit::Ledger, "store.ledger_damaged", text, "run `writ audit verify`"),
            Self::TooLarge { .. } => (Exit::Usage, "store.too_large", text, "make it smaller, or divide it"),
            Self::QueueFull { .. } => {
                (Exit::Blocked, "store.queue_full", text, "wait until earlier messages are answered")
            }
            Self::Conflict(Conflict::Needed { hint, .. }) => (Exit::Denied, "ledger.needed", text, *hint),
            Self::Conflict(_) => {
                (Exit::Denied, "store.conflict", text, "look at what is there now, then try again")
            }
            Self::TaintedTrust => (Exit::Denied, "store.tainted_trust", text, "remember it as `working`"),
            Self::Encode { .. } => (Exit::Usage, "store.encode", text, "correct what is named"),
            Self::Decode { what, .. } => (
                Exit::Config,
                "store.decode",
                format!("a stored {what} cannot be read"),
                "run `writ audit verify`",
            ),
            Self::Closed => (Exit::Blocked, "store.closed", text, "start the engine again"),
            Self::ReadPanicked => (Exit::Bug, "store.read", text, Exit::Bug.advice()),
            Self::Sqlite(_) => {
                (Exit::Bug, "store.sqlite", "the database refused".to_owned(), Exit::Bug.advice())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_hold_no_host_paths() {
        let error =
            StoreError::Path { path: "/home/ann/.writ/data".into(), message: "permission denied".into() };
        let report = error.report();
        assert_eq!(report.exit, Exit::Config);
        assert!(!report.outside.contains("/home"));
        assert!(report.inside.contains("/home"));
        assert_eq!(StoreError::DiskFull.report().exit, Exit::Blocked);
        assert!(!StoreError::DiskFull.report().hint.is_empty());
    }
}
