//! The arguments of `writ keys`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use writ_types::id::{KeyId, SessionId};

/// `writ keys …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Show the public half of the root key, which signs what agents may do
    Root {
        /// Operation
        #[command(subcommand)]
        command: Option<RotateCommand>,
    },
    /// Show the public half of the harness key, which signs the ledger and task keys
    Harness {
        /// Operation
        #[command(subcommand)]
        command: Option<RotateCommand>,
    },
    /// Show the public half of the approver key, which signs your approvals; list, enrol and remove such keys
    Approver {
        /// Operation on approver keys
        #[command(subcommand)]
        command: Option<ApproverCommand>,
    },
    /// Show all keys and where each is stored, or the content of a key in a file
    Inspect {
        /// A file with a base key or a task key
        file: Option<PathBuf>,
        /// The base key that a task key must belong to
        #[arg(long, value_name = "FILE", requires = "file")]
        base: Option<PathBuf>,
    },
    /// Make base keys: the outer limit of what an agent of your own may do
    #[command(subcommand)]
    Base(BaseCommand),
    /// Make task keys: they narrow one base key to one case
    #[command(subcommand)]
    Task(TaskCommand),
    /// Sign standing orders: permission for unattended work
    #[command(subcommand)]
    Order(OrderCommand),
    /// Sign a message with your approver key, to send it through an untrusted channel; the printed frame is valid once, for five minutes
    Sign(SignArgs),
    /// Make a sealed copy of a key: its holder can pass it on, but cannot narrow it further
    Seal {
        /// The file with the key
        file: PathBuf,
        /// Output
        #[command(flatten)]
        out: KeyOut,
    },
    /// Check if a base key and a task key grant an operation, without performing it
    Check(CheckArgs),
    /// List the keys that agents use at present
    List,
    /// Revoke a key of an agent: requests under it and under keys made from it are refused, and running actions stopped
    Revoke {
        /// Its id, as listed
        key: KeyId,
        /// Reason, for the ledger
        #[arg(long, default_value = "", value_name = "TEXT")]
        reason: String,
    },
}

/// `writ keys root …`, `writ keys harness …`.
#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum RotateCommand {
    /// Replace the key, while no engine runs. Signatures of the old key stay verifiable; keys that it signed become void
    Rotate,
}

/// `writ keys approver …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ApproverCommand {
    /// List the keys that may approve, and those that were removed
    List,
    /// Allow one passkey to be enrolled in the page: prints a link that is valid once, for ten minutes
    Enrol {
        /// Name of the passkey in lists and in the ledger
        #[arg(long, default_value = "passkey", value_name = "NAME")]
        name: String,
    },
    /// Replace this home's key, while no engine runs. Approvals and standing orders of the old key become void
    Rotate,
    /// Remove an approver key: its approvals are refused from now on
    Remove {
        /// Its id, as listed
        key: KeyId,
    },
}

/// The output of a new key.
#[derive(Clone, Debug, Args)]
pub(crate) struct KeyOut {
    /// Write the key to this new file, which only you can read, instead of printing it
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

/// `writ keys base …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum BaseCommand {
    /// Sign a base key with the root key
    Issue {
        /// Its content, as JSON or TOML: agent, capabilities, expires
        file: PathBuf,
        /// Output
        #[command(flatten)]
        out: KeyOut,
    },
}

/// `writ keys task …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// Let the router sign a task key
    Mint {
        /// Its content, as JSON or TOML: task_id, customer_token, case_token, granted_by, expires
        file: PathBuf,
        /// The file with the base key
        #[arg(long, value_name = "FILE")]
        base: PathBuf,
        /// Output
        #[command(flatten)]
        out: KeyOut,
    },
    /// Let the router sign a copy that grants less or ends sooner, for a sub-agent
    Attenuate {
        /// The file with the task key
        key: PathBuf,
        /// The narrower content of the copy, as JSON or TOML: capabilities, expires, or one of them
        file: PathBuf,
        /// The file with the base key
        #[arg(long, value_name = "FILE")]
        base: PathBuf,
        /// Output
        #[command(flatten)]
        out: KeyOut,
    },
    /// Let the router sign a copy with the same content and a new period of the same length
    Renew {
        /// The file with the task key
        key: PathBuf,
        /// The file with the base key
        #[arg(long, value_name = "FILE")]
        base: PathBuf,
        /// Output
        #[command(flatten)]
        out: KeyOut,
    },
}

/// `writ keys order …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum OrderCommand {
    /// Sign a standing order with your approver key
    Issue {
        /// Its content, as JSON or TOML: name, capabilities, max_turns, max_tokens, expires; optional:
        /// project, max_cost
        file: PathBuf,
        /// Sign without being asked; the text is still printed
        #[arg(long)]
        yes: bool,
    },
    /// List the standing orders and whether they are in force
    List,
    /// Revoke a standing order: actions that run under it are stopped
    Revoke {
        /// Its id, as listed
        order: KeyId,
        /// Reason, for the ledger
        #[arg(long, default_value = "", value_name = "TEXT")]
        reason: String,
    },
}

/// `writ keys sign`.
#[derive(Clone, Debug, Args)]
pub(crate) struct SignArgs {
    /// The session that the message is for
    #[arg(long, value_name = "ID")]
    pub(crate) session: SessionId,
    /// The text of the message; without it, standard input is read
    #[arg(long, value_name = "TEXT")]
    pub(crate) text: Option<String>,
    /// The client's id for the message; without it, a random one
    #[arg(long, value_name = "ID")]
    pub(crate) client_id: Option<String>,
}

/// `writ keys check`.
#[derive(Clone, Debug, Args)]
pub(crate) struct CheckArgs {
    /// The operation; `escalate_to` with `--set to=RECIPIENT` asks a person or an oracle
    pub(crate) operation: String,
    /// The file with the base key
    #[arg(long, value_name = "FILE")]
    pub(crate) base: PathBuf,
    /// The file with the task key
    #[arg(long, value_name = "FILE")]
    pub(crate) task: PathBuf,
    /// A parameter of the operation
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub(crate) set: Vec<(String, String)>,
    /// How much of a parameter's daily limit was used today; 0 if not given
    #[arg(long, value_name = "NAME=N", value_parser = parse_count)]
    pub(crate) used: Vec<(String, i64)>,
}

fn parse_pair(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) =
        text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn parse_count(text: &str) -> Result<(String, i64), &'static str> {
    let (name, value) = parse_pair(text)?;
    Ok((name, value.parse().map_err(|_| "write NAME=N with a whole number")?))
}
