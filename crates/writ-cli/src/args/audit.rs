//! Arguments of `writ audit`.

use std::path::PathBuf;

use clap::Subcommand;
use clap::builder::PossibleValuesParser;
use writ_types::entry::Fact;
use writ_types::id::{EntrySeq, SessionId};

use super::{PublicKey, parse_entry};

/// `writ audit …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Verify every entry, the hash tree, its signed heads, and heads that you saved
    Verify {
        /// Heads that you saved: `audit export --heads FILE` writes them
        #[arg(long, value_name = "FILE")]
        heads: Option<PathBuf>,
        /// Another database file, such as a copy
        #[arg(long, value_name = "FILE")]
        db: Option<PathBuf>,
        /// The public key that must have signed, instead of this home's
        #[arg(long, value_name = "HEX")]
        key: Vec<PublicKey>,
        /// Verify the signature of every entry, too
        #[arg(long)]
        every_signature: bool,
    },
    /// Show the newest entries
    Tail {
        /// Number of entries
        #[arg(short = 'n', long, default_value_t = 20, value_name = "N")]
        lines: usize,
    },
    /// Show the entries that contain a text, newest first
    Search {
        /// The text; upper and lower case count as the same
        #[arg(default_value = "")]
        text: String,
        /// Only this kind
        #[arg(long, value_name = "KIND", value_parser = PossibleValuesParser::new(Fact::EVENTS))]
        event: Option<String>,
        /// Only this session
        #[arg(long, value_name = "ID")]
        session: Option<SessionId>,
        /// Number of entries
        #[arg(short = 'n', long, default_value_t = 100, value_name = "N")]
        lines: usize,
    },
    /// Show an entry in full. A sealed prompt or answer is decrypted with the keys of this home
    Show {
        /// The entry's number
        #[arg(value_parser = parse_entry)]
        entry: EntrySeq,
    },
    /// Erase the content of entries; the proof that they were written stays. The engine records the erasure as an entry
    Erase {
        /// The entries' numbers
        #[arg(value_parser = parse_entry, required = true, value_name = "ENTRY")]
        entries: Vec<EntrySeq>,
        /// Reason; it stays in the ledger
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Print every entry as a line of JSON, or write the signed heads to a file
    Export {
        /// Write the heads to this file; store it on another machine, and verify against it later
        #[arg(long, value_name = "FILE")]
        heads: Option<PathBuf>,
    },
    /// Print a proof that an entry is in the ledger; it is checked with only the public key
    Proof {
        /// The entry's number
        #[arg(value_parser = parse_entry)]
        entry: EntrySeq,
    },
}
