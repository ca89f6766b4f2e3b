//! A raw synced commit: the cost of the disk alone. Durable turns are compared with it.

use std::fs::File;
use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::Bench;
use super::row::Row;
use super::stats::Sample;

/// One page of the database, as a small transaction appends it to its log.
const PAGE_BYTES: usize = 4096;

/// A file that pages are appended to, on the disk of the scratch folder.
#[derive(Debug)]
pub(super) struct Raw(File);

/// Measures appending a page and syncing it.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    Ok(vec![Row::base("raw synced commit", sample(bench)?)])
}

/// Durations of raw synced commits.
pub(super) fn sample(bench: &Bench) -> Result<Sample> {
    let mut raw = Raw::open(bench)?;
    raw.commit()?;
    Sample::new((0..bench.rounds).map(|_| raw.commit()).collect::<Result<_>>()?)
}

impl Raw {
    pub(super) fn open(bench: &Bench) -> Result<Self> {
        let path = bench.scratch.path().join("commits");
        Ok(Self(File::create(&path).with_context(|| path.display().to_string())?))
    }

    /// Appends a page and syncs it; how long that took.
    pub(super) fn commit(&mut self) -> Result<Duration> {
        let start = Instant::now();
        self.0.write_all(&[7_u8; PAGE_BYTES])?;
        self.0.sync_data()?;
        Ok(start.elapsed())
    }
}
