//! The arguments of `writ operations`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `writ operations …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum OperationsCommand {
    /// Check every declaration, and name each mistake with its file and line
    Check {
        /// The folder with the declarations, instead of proxy/operations in the home
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// List the declared operations: their parameters, targets and personal columns
    List {
        /// The folder with the declarations, instead of proxy/operations in the home
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// Run the statement of an operation at its database in a transaction that is rolled back
    Test(TestOperation),
}

/// `writ operations test`.
#[derive(Clone, Debug, Args)]
pub(crate) struct TestOperation {
    /// The operation
    pub(crate) name: String,
    /// A parameter: NAME=VALUE, with the value as JSON or as text
    #[arg(short, long = "parameter", value_name = "NAME=VALUE")]
    pub(crate) parameters: Vec<String>,
    /// The customer's real id
    #[arg(long, value_name = "ID")]
    pub(crate) customer: String,
    /// The case's real id
    #[arg(long, value_name = "ID", default_value = "test")]
    pub(crate) case: String,
    /// The folder with the declarations, instead of proxy/operations in the home
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// The file with the table `targets`, instead of proxy/proxy.toml in the home
    #[arg(long, value_name = "FILE")]
    pub(crate) targets: Option<PathBuf>,
}
