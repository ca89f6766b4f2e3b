//! Compares the rows of the requirements with the tests that show them and the rows that are waived.

mod catalogue;

mod shown;

mod page;

mod report;

mod items;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

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
    /// Compare the page of the autopilot's items instead
    #[arg(long, conflicts_with_all = ["missing", "json"])]
    items: bool,
    /// Write that page, instead of comparing it
    #[arg(long, requires = "items")]
    write: bool,
}

/// Compares the catalogue with what tests name; whether every name is right.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let root = workspace::root()?;
    let texts = catalogue::read_texts(&options.catalogue)?;
    let rows = catalogue::read(&texts)?;
    let crates = workspace::crates(&root)?;
    let sources = source::texts(&root)?;
    let mut claims = shown::collect(&crates, &sources)?;
    page::collect(&source::page_tests(&root)?, &mut claims);
    if options.items {
        let mut items = items::Items::new();
        for (_, text) in &texts {
            items::collect(text, &mut items);
        }
        let names = items::TestNames::new(&crates, &source::parse_all(&sources)?);
        return put_page(&root, &items::page(&items, &claims, &names), options.write);
    }
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

/// Writes the page of the items, or compares it; whether it is in step.
fn put_page(root: &Path, page: &str, write: bool) -> Result<bool> {
    let place = root.join(items::PAGE);
    if write {
        std::fs::write(place, page).context(items::PAGE)?;
        println!("{} is written", items::PAGE);
        return Ok(true);
    }
    let in_step = std::fs::read_to_string(&place).unwrap_or_default() == page;
    println!(
        "{} {}",
        items::PAGE,
        if in_step { "is in step" } else { "is not what tests and catalogue say: --write" }
    );
    Ok(in_step)
}
