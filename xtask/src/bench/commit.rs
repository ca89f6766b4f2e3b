//! A raw synced commit: what the disk takes, whoever asks. Durable turns are compared with it.

use std::fs::File;
use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::stats::Sample;
use super::{Bench, Row};

/// One page of the database, as a small transaction appends it to its log.
const PAGE_BYTES: usize = 4096;

/// Measures appending a page and syncing it.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    Ok(vec![Row::base("raw synced commit", raw(bench)?)])
}

/// Durations of raw synced commits on the disk of the scratch folder.
pub(super) fn raw(bench: &Bench) -> Result<Sample> {
    let mut file = File::create(bench.scratch.path().join("commits"))?;
    let page = [7_u8; PAGE_BYTES];
    let mut commit = || -> Result<Duration> {
        let start = Instant::now();
        file.write_all(&page)?;
        file.sync_data()?;
        Ok(start.elapsed())
    };
    commit()?;
    Sample::new((0..bench.rounds).map(|_| commit()).collect::<Result<_>>()?)
}
