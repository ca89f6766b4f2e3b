//! Compares the rows of the requirements with the tests that show them and the rows that are waived.

mod catalogue;

mod shown;

mod page;

mod report;

use std::path::PathBuf;

use anyhow::Result;

use crate::{source, workspace};
use report::Report;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The folder that holds the tables of requirements.
    #[arg(long, value_name = "DIR")]
    catalogue: PathBuf,
    /// Print every row that is not shown.
    #[arg(long)]
    missing: bool,
    /// Print everything as JSON.
    #[arg(long)]
    json: bool,
}

/// Compares the catalogue with what tests name; whether every name is right.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let root = workspace::root()?;
    let rows = catalogue::read(&options.catalogue)?;
    let crates = workspace::crates(&root)?;
    let mut claims = shown::collect(&crates, &source::texts(&root)?)?;
    page::collect(&source::page_tests(&root)?, &mut claims);
    let waived = catalogue::read_waived(&root)?;
    let report = Report::new(&rows, &claims, &waived);
    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{report}");
        if options.missing {
            for row in &report.not_shown {
                println!("{row}");
            }
        }
    }
    Ok(report.errors.is_empty())
}
