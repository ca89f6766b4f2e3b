//! The operations of a folder.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use writ_types::digest::Digest;

use crate::check::{Flaws, check_operation};
use crate::declare::{OperationList, OperationSpec};
use crate::error::OperationError;
use crate::operation::Operation;

/// The largest file, in bytes.
pub const MAX_FILE_BYTES: u64 = 256 * 1024;
/// The most files of a folder.
pub const MAX_FILES: usize = 1_000;
/// The most operations.
pub const MAX_OPERATIONS: usize = 1_000;

/// The operations of a folder, by name.
#[derive(Clone, Debug, Default)]
pub struct OperationSet {
    operations: BTreeMap<String, Operation>,
    digest: Option<Digest>,
}

impl OperationSet {
    /// Reads and checks every `*.toml` of a folder. Blocks.
    ///
    /// # Errors
    ///
    /// Every mistake that was found, by file and line. A set with a mistake is none: the caller goes on with its last.
    pub fn load(folder: &Path) -> Result<Self, Vec<OperationError>> {
        let mut errors = Vec::new();
        let mut set = Self::default();
        let mut places: BTreeMap<String, (PathBuf, usize)> = BTreeMap::new();
        let mut contents = Vec::new();
        for file in list_files(folder).map_err(|error| vec![error])? {
            let text = match read_file(&file) {
                Ok(text) => text,
                Err(error) => {
                    errors.push(error);
                    continue;
                }
            };
            contents.push((
                file.file_name().map(|name| name.to_string_lossy().into_owned()),
                Digest::of_bytes(text.as_bytes()),
            ));
            for (line, operation) in read_operations(&file, &text, &mut errors) {
                let at = (file.clone(), line);
                if let Some((earlier, _)) = places.insert(operation.name.clone(), at) {
                    let what = format!(
                        "the operation '{}' is declared in {} already",
                        operation.name,
                        earlier.display()
                    );
                    errors.push(fault(&file, line, what, "give one of them another name"));
                }
                set.operations.insert(operation.name.clone(), operation);
            }
        }
        if set.operations.len() > MAX_OPERATIONS {
            errors.push(fault(folder, 1, format!("more than {MAX_OPERATIONS} operations"), "declare fewer"));
        }
        if !errors.is_empty() {
            errors.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
            return Err(errors);
        }
        set.digest = Digest::of_canonical(&contents).ok();
        Ok(set)
    }

    /// Returns an operation by its name.
    pub fn get(&self, name: &str) -> Option<&Operation> {
        self.operations.get(name)
    }

    /// All operations, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Operation> {
        self.operations.values()
    }

    /// Returns the number of operations.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// The digest of all files, for the ledger.
    pub fn digest(&self) -> Digest {
        self.digest.unwrap_or_else(|| Digest::of_bytes(b""))
    }
}

pub(crate) fn fault(
    file: &Path,
    line: usize,
    what: impl Into<String>,
    hint: impl Into<String>,
) -> OperationError {
    OperationError { file: file.to_owned(), line, what: what.into(), hint: hint.into() }
}

/// The files, in the order of their names.
fn list_files(folder: &Path) -> Result<Vec<PathBuf>, OperationError> {
    let unreadable = |why: std::io::Error| {
        fault(folder, 1, format!("the folder cannot be read: {why}"), "make it, or name another")
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !is_hidden && path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
        if files.len() > MAX_FILES {
            return Err(fault(
                folder,
                1,
                format!("more than {MAX_FILES} files"),
                "declare several operations in one",
            ));
        }
    }
    // The digest must not depend on the order in which a file system lists them.
    files.sort();
    Ok(files)
}

/// Reads a file up to its bound.
pub(crate) fn read_file(file: &Path) -> Result<String, OperationError> {
    let mut bytes = Vec::new();
    let read = std::fs::File::open(file)
        .and_then(|opened| {
            // A pipe or a device would never end.
            if opened.metadata()?.is_file() {
                Ok(opened)
            } else {
                Err(std::io::Error::other("it is no file"))
            }
        })
        .and_then(|opened| opened.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|why| fault(file, 1, format!("it cannot be read: {why}"), "check its owner and mode"))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_FILE_BYTES {
        return Err(fault(file, 1, "it is larger than 256 KiB", "split it"));
    }
    let line = |good: usize| bytes.iter().take(good).filter(|byte| **byte == b'\n').count() + 1;
    String::from_utf8(bytes.clone()).map_err(|why| {
        fault(file, line(why.utf8_error().valid_up_to()), "it is no UTF-8", "save it as UTF-8")
    })
}

/// Reads TOML, with the line of its mistake.
pub(crate) fn read_toml<T: DeserializeOwned>(file: &Path, text: &str) -> Result<T, OperationError> {
    toml::from_str(text).map_err(|why| {
        let line = why.span().map_or(1, |span| line_of(text, span.start));
        fault(file, line, why.message().trim().replace('\n', " "), "see docs/reference/operations.md")
    })
}

/// Reads a file of settings, and returns its text with what it says.
///
/// # Errors
///
/// If it cannot be read, or says something else.
pub fn read_config<T: DeserializeOwned>(file: &Path) -> Result<(String, T), OperationError> {
    let text = read_file(file)?;
    let config = read_toml(file, &text)?;
    Ok((text, config))
}

/// The line of an offset, from 1.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

fn read_operations(file: &Path, text: &str, errors: &mut Vec<OperationError>) -> Vec<(usize, Operation)> {
    let is_list = toml::from_str::<toml::Table>(text).is_ok_and(|table| table.contains_key("operation"));
    let specs = if is_list {
        read_toml::<OperationList>(file, text).map(|list| list.operation)
    } else {
        read_toml::<OperationSpec>(file, text).map(|one| vec![one])
    };
    let specs = match specs {
        Ok(specs) => specs,
        Err(error) => {
            errors.push(error);
            return Vec::new();
        }
    };
    let mut operations = Vec::new();
    for spec in specs {
        let line = line_of(text, spec.name.span().start);
        let mut faults = Flaws::default();
        let checked = check_operation(spec, &mut faults);
        let found = faults
            .0
            .into_iter()
            .map(|found| fault(file, line_of(text, found.offset), found.what, found.hint));
        errors.extend(found);
        operations.extend(checked.map(|operation| (line, operation)));
    }
    operations
}
