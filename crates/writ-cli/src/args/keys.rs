//! `writ keys`.

use clap::Subcommand;
use writ_types::id::KeyId;

/// `writ keys …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Show the public half of the root key, which signs what agents may do
    Root,
    /// Show the public half of the approver key, which signs your approvals; list, enrol and remove such keys
    Approver {
        /// What to do with approver keys
        #[command(subcommand)]
        command: Option<ApproverCommand>,
    },
    /// Show all keys and where they are kept
    Inspect,
    /// List the keys that agents act under now
    List,
    /// Revoke a key that agents act under: what rests on it is refused from now on, and what runs is stopped
    Revoke {
        /// Its id, as listed
        key: KeyId,
        /// Why, for the ledger
        #[arg(long, default_value = "", value_name = "TEXT")]
        reason: String,
    },
}

/// `writ keys approver …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ApproverCommand {
    /// List the keys that may approve, and those that were removed
    List,
    /// Give leave to enrol one passkey in the page: prints a link that is good once and for ten minutes
    Enrol {
        /// What the passkey is called in lists and in the ledger
        #[arg(long, default_value = "passkey", value_name = "NAME")]
        name: String,
    },
    /// Remove an approver key: from now on it approves nothing
    Remove {
        /// Its id, as listed
        key: KeyId,
    },
}
