//! The static release binary, with its checksum and what an installation wants beside it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use sha2::{Digest as _, Sha256};

use crate::{contract, workspace};
use task_process::{Program, target_directory};

/// The platform: glibc, because the allocator of musl halves the speed, linked into the binary.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The largest binary, in bytes (design 5).
const MAX_BYTES: u64 = 40 * 1024 * 1024;

#[derive(Clone, Debug, Parser)]
pub(crate) struct Options {
    /// The folder that takes the files
    #[arg(long, default_value = "dist")]
    to: PathBuf,
    /// Check a binary that is there instead of building one
    #[arg(long, value_name = "FILE")]
    check: Option<PathBuf>,
}

/// Builds, checks and gathers; whether all is well.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let root = workspace::root()?;
    if let Some(file) = &options.check {
        println!("{}", is_fit(file)?);
        return Ok(true);
    }
    // Before the long build: a version that promises less than the last one is not released.
    if let Some(refused) = contract::check(&root)? {
        bail!("{refused}");
    }
    let built =
        Program::cargo(&["build", "--release", "--locked", "--package", "writ-cli", "--target", TARGET])
            .env("RUSTFLAGS", "-C target-feature=+crt-static")
            .directory(&root)
            .status()?;
    ensure!(built, "the build failed");
    let binary = target_directory(&root).join(TARGET).join("release/writ");
    println!("{}", is_fit(&binary)?);
    let to = root.join(&options.to);
    let files = gather(&root, &binary, &to)?;
    for (name, sum) in &files {
        println!("{sum}  {name}");
    }
    println!("{} files in {}", files.len() + 1, to.display());
    Ok(true)
}

/// Puts the files together: the binary, its pages, what shells want, the licences and the Dockerfile; with the sums of
/// all of them in `SHA256SUMS`, which `sha256sum --check` reads.
fn gather(root: &Path, binary: &Path, to: &Path) -> Result<Vec<(String, String)>> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    fs::create_dir_all(to.join("man"))?;
    fs::create_dir_all(to.join("completions"))?;
    let writ = to.join("writ");
    fs::copy(binary, &writ)?;
    for file in ["LICENSE-MIT", "LICENSE-APACHE", "README.md", "CHANGELOG.md", "Dockerfile"] {
        fs::copy(root.join(file), to.join(file)).with_context(|| file.to_owned())?;
    }
    let home = tempfile::tempdir()?;
    let ask = |arguments: &[&str]| -> Result<String> {
        let output = Program::new(&writ, arguments).clean().env("HOME", home.path()).output()?;
        ensure!(output.success, "writ {}: {}", arguments.join(" "), output.stderr);
        Ok(output.stdout)
    };
    ask(&["man", &to.join("man").display().to_string()])?;
    for (shell, file) in [("bash", "writ.bash"), ("zsh", "_writ"), ("fish", "writ.fish")] {
        fs::write(to.join("completions").join(file), ask(&["completions", shell])?)?;
    }
    let mut sums = Vec::new();
    for path in files_below(to)? {
        let name = path.strip_prefix(to)?.display().to_string();
        sums.push((name, hex(&Sha256::digest(fs::read(&path)?))));
    }
    let text: String = sums.iter().map(|(name, sum)| format!("{sum}  {name}\n")).collect();
    fs::write(to.join("SHA256SUMS"), text)?;
    Ok(sums)
}

fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(files_below(&path)?);
        } else {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Describes a binary in words.
///
/// # Errors
///
/// If it needs anything of the machine besides its kernel, or is too large.
fn is_fit(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| path.display().to_string())?;
    let size = u64::try_from(bytes.len())?;
    ensure!(size <= MAX_BYTES, "{} has {size} bytes, more than {MAX_BYTES}", path.display());
    match needs(&bytes)? {
        Needs { interpreter: None, libraries: 0 } => {
            Ok(format!("{}: static, {:.1} MiB", path.display(), size as f64 / (1024.0 * 1024.0)))
        }
        Needs { interpreter, libraries } => {
            bail!("{} is not static: interpreter {interpreter:?}, {libraries} libraries", path.display())
        }
    }
}

/// The things an ELF file asks the system for before it runs.
#[derive(Debug, PartialEq, Eq)]
struct Needs {
    /// The program that loads it.
    interpreter: Option<String>,
    libraries: usize,
}

/// Reads the program headers of a 64-bit little-endian ELF file.
fn needs(file: &[u8]) -> Result<Needs> {
    /// `PT_DYNAMIC`, `PT_INTERP` and `DT_NEEDED` of the format.
    const DYNAMIC: u64 = 2;
    const INTERPRETER: u64 = 3;
    const NEEDED: u64 = 1;
    let number = |at: usize, bytes: usize| -> Result<u64> {
        let slice = file.get(at..at + bytes).context("the file is cut off")?;
        Ok(slice.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    };
    ensure!(file.starts_with(b"\x7fELF\x02\x01"), "this is no 64-bit little-endian ELF file");
    let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    let mut needs = Needs { interpreter: None, libraries: 0 };
    for n in 0..count {
        let header = usize::try_from(table + n * size)?;
        let kind = number(header, 4)?;
        let (offset, length) =
            (usize::try_from(number(header + 8, 8)?)?, usize::try_from(number(header + 32, 8)?)?);
        if kind == INTERPRETER {
            let name = file.get(offset..offset + length).context("the file is cut off")?;
            needs.interpreter = Some(String::from_utf8_lossy(name).trim_end_matches('\0').to_owned());
        }
        if kind == DYNAMIC {
            for entry in (offset..offset + length).step_by(16) {
                needs.libraries += usize::from(number(entry, 8)? == NEEDED);
            }
        }
    }
    Ok(needs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_binary_needs_is_read_from_it() {
        // This test itself is linked to the system's libraries.
        let own = fs::read(std::env::current_exe().expect("known")).expect("reads");
        let found = needs(&own).expect("ELF");
        assert!(found.interpreter.is_some_and(|name| name.contains("ld-")) && found.libraries > 0);
        assert!(needs(b"#!/bin/sh\n").is_err() && needs(b"\x7fELF\x02\x01").is_err());
        // A file without program headers needs nothing.
        let mut bare = b"\x7fELF\x02\x01".to_vec();
        bare.resize(64, 0);
        assert_eq!(needs(&bare).expect("ELF"), Needs { interpreter: None, libraries: 0 });
    }

    #[test]
    fn sums_are_those_of_sha256sum() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(hex(&Sha256::digest(b"")), empty);
    }
}
