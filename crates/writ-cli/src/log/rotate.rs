//! A log file of bounded size: when it is full it is set aside as `NAME.1`, and the oldest is dropped.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// A file that never grows above its bound, and those set aside before it.
#[derive(Debug)]
pub(crate) struct Rotating {
    path: PathBuf,
    file: File,
    written: u64,
    max_bytes: u64,
    keep: u32,
}

impl Rotating {
    /// Opens the file for appending (mode 0600). `keep` counts it too.
    pub(crate) fn open_log(folder: &Path, name: &str, max_bytes: u64, keep: u32) -> io::Result<Self> {
        let path = folder.join(name);
        let file = open_append(&path)?;
        let written = file.metadata()?.len();
        Ok(Self { path, file, written, max_bytes, keep })
    }

    fn numbered_path(&self, n: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{n}"));
        name.into()
    }

    fn rotate_files(&mut self) -> io::Result<()> {
        for n in (1..self.keep.saturating_sub(1)).rev() {
            move_file(&self.numbered_path(n), &self.numbered_path(n + 1))?;
        }
        if self.keep > 1 {
            move_file(&self.path, &self.numbered_path(1))?;
        } else {
            fs::remove_file(&self.path)?;
        }
        self.file = open_append(&self.path)?;
        self.written = 0;
        Ok(())
    }
}

fn open_append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// Renames a file, over the one that is there; a missing one is none to move.
fn move_file(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

impl Write for Rotating {
    /// Writes one line as a whole: lines are never cut between two files.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let length = u64::try_from(line.len()).unwrap_or(u64::MAX);
        if self.written > 0 && self.written.saturating_add(length) > self.max_bytes {
            self.rotate_files()?;
        }
        self.file.write_all(line)?;
        self.written = self.written.saturating_add(length);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn no_file_grows_above_its_bound_and_no_more_than_wanted_are_kept() {
        let dir = tempfile::tempdir().expect("temp dir");
        let mut log = Rotating::open_log(dir.path(), "a.log", 20, 3).expect("opens");
        for n in 0..10 {
            log.write_all(format!("line {n:04}\n").as_bytes()).expect("writes");
        }
        drop(log);
        let mut log = Rotating::open_log(dir.path(), "a.log", 20, 3).expect("opens again");
        log.write_all(b"line last\n").expect("writes");
        let text = |name: &str| fs::read_to_string(dir.path().join(name)).expect("there");
        assert_eq!(text("a.log"), "line last\n");
        assert_eq!(text("a.log.1"), "line 0008\nline 0009\n");
        assert_eq!(text("a.log.2"), "line 0006\nline 0007\n");
        assert_eq!(fs::read_dir(dir.path()).expect("reads").count(), 3);
        assert_eq!(dir.path().join("a.log").metadata().expect("there").mode() & 0o777, 0o600);
    }

    #[test]
    fn one_file_alone_begins_anew() {
        let dir = tempfile::tempdir().expect("temp dir");
        let mut log = Rotating::open_log(dir.path(), "a.log", 4, 1).expect("opens");
        for line in ["one\n", "two\n"] {
            log.write_all(line.as_bytes()).expect("writes");
        }
        assert_eq!(fs::read_dir(dir.path()).expect("reads").count(), 1);
        assert_eq!(fs::read_to_string(dir.path().join("a.log")).expect("there"), "two\n");
    }

    /// Rows: SF-448
    #[test]
    fn by_default_five_files_of_ten_mebibytes_are_kept() {
        let config = crate::config::LogConfig::default();
        assert_eq!((config.max_bytes, config.keep), (10 * 1024 * 1024, 5));
        let line = [[b'x'; 1023].as_slice(), b"\n"].concat();
        for (max_bytes, written) in [(config.max_bytes, 70 * 1024), (1_000, 20)] {
            let dir = tempfile::tempdir().expect("temp dir");
            let line = &line[line.len() - line.len().min(usize::try_from(max_bytes).expect("fits") / 4)..];
            let mut log = Rotating::open_log(dir.path(), "a.log", max_bytes, config.keep).expect("opens");
            for _ in 0..written {
                log.write_all(line).expect("writes");
            }
            let sizes: Vec<u64> = fs::read_dir(dir.path())
                .expect("reads")
                .map(|entry| entry.expect("an entry").metadata().expect("there").len())
                .collect();
            assert_eq!(sizes.len(), 5, "{sizes:?}");
            assert!(sizes.iter().all(|size| *size <= max_bytes), "{sizes:?}");
            assert!(sizes.iter().filter(|size| **size == max_bytes).count() >= 4, "the older ones are full");
        }
    }
}
