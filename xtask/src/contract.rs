//! The contract of a release: the columns of the store, the phases of a unit, what hooks read, and the keys of settings.
//!
//! `docs/contract.txt` has the contract of the last release; before the first one it is empty. A release that lacks one of its lines has
//! a higher major version; one that has more has at least a higher minor version. Versions below 1.0.0 promise nothing (SemVer 2.0.0,
//! item 4).

mod schema;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use regex::Regex;

use crate::{source, workspace};

/// The contract of the last release, relative to the root.
const PAGE: &str = "docs/contract.txt";
/// The folder of the migrations.
const MIGRATIONS: &str = "crates/writ-store/src/schema/";
/// The sources of what a hook of the autopilot reads, and a gate of what it judges.
const PAYLOADS: [&str; 3] = [
    "crates/writ-pilot/src/drive/hooks/payload.rs",
    "crates/writ-pilot/src/standing.rs",
    "crates/writ-pilot/src/drive/gate_input.rs",
];
/// The field of such an object, as the source writes it.
const PAYLOAD_FIELD: &str = r#"about\["(\w+)"\]|"(\w+)":"#;
/// The tables of keys: the source, the form of a key in it, and what stands before it in a file.
const SETTINGS: [(&str, &str, &str); 3] = [
    ("crates/writ-cli/src/config/schema.rs", r#"_key\(\s*"([a-z0-9_.*]+)""#, ""),
    (
        "crates/writ-pilot/src/config/listing.rs",
        r#"\n        \("([a-z_.]+)", (?:word|config|input|conflict|limits|parts|scores|time|supervisor)"#,
        "pilot.",
    ),
    ("crates/writ-pilot/src/config/listing.rs", r#"format!\("((?:pilot|routing|tiers)\.[a-z_.]+)"#, ""),
];
/// The least lines of each kind: fewer mean that a source is written in another form than is read here.
const LEAST: [(&str, usize); 4] = [("column ", 200), ("phase ", 10), ("hook ", 20), ("setting ", 100)];

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Write the contract of this version down, as a release does, instead of comparing it
    #[arg(long)]
    write: bool,
}

/// Compares the contract with that of the last release; returns true if the step of the version allows the difference.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let root = workspace::root()?;
    if let Some(refused) = check(&root)? {
        println!("{refused}");
        return Ok(false);
    }
    if options.write {
        let text = Contract { version: version_of(&root)?, lines: collect(&root)? }.to_text();
        std::fs::write(root.join(PAGE), text).context(PAGE)?;
        println!("{PAGE} is written");
    } else {
        println!("contract: version and differences fit");
    }
    Ok(true)
}

/// Returns the reason for which the version of the sources cannot be released; `None` if it can.
pub(crate) fn check(root: &Path) -> Result<Option<String>> {
    let recorded = Contract::parse(&std::fs::read_to_string(root.join(PAGE)).context(PAGE)?)?;
    let current = Contract { version: version_of(root)?, lines: collect(root)? };
    Ok(refuse_step(&recorded, &current))
}

/// The contract of one version.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Contract {
    version: Version,
    lines: BTreeSet<String>,
}

impl Contract {
    fn parse(text: &str) -> Result<Self> {
        let (first, rest) = text.split_once('\n').unwrap_or_default();
        let version = first.strip_prefix("version ").context("the first line names no version")?;
        Ok(Self { version: Version::parse(version)?, lines: rest.lines().map(str::to_owned).collect() })
    }

    fn to_text(&self) -> String {
        let Version { major, minor, patch } = self.version;
        let mut text = format!("version {major}.{minor}.{patch}\n");
        for line in &self.lines {
            let _ = writeln!(text, "{line}");
        }
        text
    }
}

/// A version of SemVer, without what follows a hyphen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    major: u64,
    minor: u64,
    patch: u64,
}

impl Version {
    fn parse(text: &str) -> Result<Self> {
        let plain = text.trim().split(['-', '+']).next().unwrap_or_default();
        let parts: Vec<u64> = plain.split('.').map(str::parse).collect::<Result<_, _>>()?;
        let [major, minor, patch] = parts[..] else { anyhow::bail!("'{text}' is no version") };
        Ok(Self { major, minor, patch })
    }
}

/// Returns the reason for which a version cannot follow another with this difference of their contracts.
fn refuse_step(recorded: &Contract, current: &Contract) -> Option<String> {
    let (before, after) = (recorded.version, current.version);
    if after < before {
        return Some(format!("{PAGE} is of a later version than the sources: {before:?}, {after:?}"));
    }
    // Nothing is promised yet.
    if before.major == 0 {
        return None;
    }
    let gone: Vec<&str> = recorded.lines.difference(&current.lines).map(String::as_str).collect();
    if !gone.is_empty() && after.major == before.major {
        return Some(format!("the major version has to rise, since this is gone: {}", gone.join(", ")));
    }
    let new: Vec<&str> = current.lines.difference(&recorded.lines).map(String::as_str).collect();
    if !new.is_empty() && (after.major, after.minor) == (before.major, before.minor) {
        return Some(format!("the minor version has to rise, since this is new: {}", new.join(", ")));
    }
    None
}

/// Reads the version of the sources.
fn version_of(root: &Path) -> Result<Version> {
    let manifest: toml::Value = toml::from_str(&std::fs::read_to_string(root.join("Cargo.toml"))?)?;
    let version = manifest.get("workspace").and_then(|part| part.get("package")?.get("version")?.as_str());
    Version::parse(version.context("the workspace has no version")?)
}

/// Collects the lines of the contract from the sources.
fn collect(root: &Path) -> Result<BTreeSet<String>> {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).with_context(|| path.to_owned());
    let is_migration = |path: &String| path.starts_with(MIGRATIONS) && path.ends_with(".sql");
    let mut migrations = String::new();
    // In the order of their numbers, in which the store performs them.
    for path in source::files(root)?.into_iter().filter(is_migration) {
        migrations.push_str(&read(&path)?);
    }
    let mut lines = schema::lines_of(&migrations);
    for path in PAYLOADS {
        let fields = find_all(&read(path)?, PAYLOAD_FIELD)?;
        lines.extend(fields.into_iter().map(|field| format!("hook {field}")));
    }
    for (path, form, before) in SETTINGS {
        let keys = find_all(&read(path)?, form)?;
        lines.extend(keys.into_iter().map(|key| format!("setting {before}{key}")));
    }
    for (kind, least) in LEAST {
        let count = lines.iter().filter(|line| line.starts_with(kind)).count();
        ensure!(count >= least, "{count} lines of the kind '{}' were found", kind.trim());
    }
    Ok(lines)
}

/// Returns the first group of every match, outside of tests.
fn find_all(text: &str, form: &str) -> Result<BTreeSet<String>> {
    let product = text.split("#[cfg(test)]").next().unwrap_or_default();
    let form = Regex::new(form)?;
    let found = form.captures_iter(product);
    Ok(found.filter_map(|one| Some(one.iter().skip(1).flatten().next()?.as_str().to_owned())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contract(version: &str, lines: &BTreeSet<String>) -> Contract {
        Contract { version: Version::parse(version).unwrap(), lines: lines.clone() }
    }

    /// A release is refused if its contract has lost a line that the last one had and its major version is the same, or has more and
    /// the minor version is the same. A difference that is no part of the contract allows every step.
    ///
    /// Rows: SF-008 SF-009 SF-571
    #[test]
    fn a_change_of_the_contract_needs_its_step_of_the_version() {
        let lines = collect(&workspace::root().unwrap()).unwrap();
        for line in [
            "column unit.phase_status",
            "column unit_run.cost_micro_usd",
            "phase research",
            "phase uat",
            "hook session_id",
            "hook cost_usd",
            "hook metadata",
            "hook gate_retry",
            "setting pilot.poll_interval",
            "setting models.max_tries",
        ] {
            assert!(lines.contains(line), "{line}");
        }
        assert_eq!(lines.iter().filter(|line| line.starts_with("phase ")).count(), 10);
        let last = contract("1.4.2", &lines);
        assert_eq!(Contract::parse(&last.to_text()).unwrap(), last);
        assert_eq!(refuse_step(&last, &contract("1.4.3", &lines)), None, "a clarification");
        let refused = |version: &str, lines: &BTreeSet<String>| refuse_step(&last, &contract(version, lines));
        // A column, a phase, a field of hooks and a key of the settings, each without and each under another name.
        for kind in ["column ", "phase ", "hook ", "setting "] {
            let gone = lines.iter().find(|line| line.starts_with(kind)).unwrap();
            let mut fewer = lines.clone();
            fewer.remove(gone);
            let mut renamed = fewer.clone();
            renamed.insert(format!("{gone}_once_more"));
            for changed in [&fewer, &renamed] {
                for version in ["1.4.2", "1.4.3", "1.5.0"] {
                    let why = refused(version, changed).unwrap();
                    assert!(why.contains("major") && why.contains(gone.as_str()), "{version}: {why}");
                }
                assert_eq!(refused("2.0.0", changed), None);
            }
            let mut more = lines.clone();
            more.insert(format!("{kind}of_its_own"));
            for version in ["1.4.2", "1.4.3"] {
                assert!(refused(version, &more).unwrap().contains("minor"), "{version}");
            }
            assert_eq!(refused("1.5.0", &more), None);
        }
        assert!(refused("1.4.1", &lines).is_some(), "an earlier version");
        let early = contract("0.9.0", &lines);
        assert_eq!(
            refuse_step(&early, &contract("0.9.1", &BTreeSet::new())),
            None,
            "nothing is promised yet"
        );
    }

    #[test]
    fn the_contract_of_the_last_release_is_there_and_the_sources_may_follow_it() {
        assert_eq!(check(&workspace::root().unwrap()).unwrap(), None);
    }
}
