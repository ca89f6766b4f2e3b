//! Rust sources, parsed once into the facts that the checks ask for.

mod scan;

pub(crate) use scan::{doc_of, is_test_attribute, is_test_cfg};

use std::path::Path;

use anyhow::{Context as _, Result};
use ignore::WalkBuilder;

/// The facts about one source file.
#[derive(Debug, Default)]
pub(crate) struct Source {
    /// Its path, relative to the root.
    pub(crate) path: String,
    /// Lines outside tests.
    pub(crate) lines: usize,
    /// Every path that is named, with `use` resolved: `std::process::Command::new`.
    pub(crate) paths: Vec<Mention>,
    /// The path of every attribute, also of those inside `cfg_attr`.
    pub(crate) attributes: Vec<Mention>,
    /// Every use of the keyword `unsafe`.
    pub(crate) unsafes: Vec<Mention>,
    /// Every function with a body.
    pub(crate) functions: Vec<Function>,
    /// Modules of other files that only tests have.
    pub(crate) test_modules: Vec<String>,
    /// The name of every struct and enum.
    pub(crate) types: Vec<Mention>,
    /// The type of every `impl` block, with `use` resolved.
    pub(crate) impls: Vec<Mention>,
    /// Every struct.
    pub(crate) structs: Vec<Struct>,
}

/// A struct and its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Struct {
    pub(crate) name: String,
    pub(crate) fields: usize,
    /// Set if the line `// tidy: plain state` stands above it.
    pub(crate) is_plain_state: bool,
    pub(crate) in_test: bool,
}

/// Something named in a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mention {
    pub(crate) name: String,
    pub(crate) line: usize,
    /// True in test code.
    pub(crate) in_test: bool,
}

/// A function with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// With the type or module that it lies in: `Permit::open`.
    pub(crate) name: String,
    pub(crate) line: usize,
    /// Lines from the signature to the closing brace.
    pub(crate) lines: usize,
    /// True if the line `// tidy: table` stands above it.
    pub(crate) marked_table: bool,
    /// True if its body is one `match`, or some `let` and one `match`.
    pub(crate) is_table: bool,
    /// True in test code.
    pub(crate) in_test: bool,
    /// True if a test attribute makes it a test.
    pub(crate) is_test: bool,
}

impl Source {
    /// Parses one file.
    pub(crate) fn parse(path: &str, text: &str) -> Result<Self> {
        scan::scan(path, text).with_context(|| format!("cannot parse {path}"))
    }
}

/// Parses the texts of Rust files.
pub(crate) fn parse_all(texts: &[(String, String)]) -> Result<Vec<Source>> {
    texts.iter().map(|(path, text)| Source::parse(path, text)).collect()
}

/// Path and text of every Rust file of the repository.
pub(crate) fn texts(root: &Path) -> Result<Vec<(String, String)>> {
    read(root, |path| path.ends_with(".rs"))
}

/// The tests of the page: path relative to the root, and text.
pub(crate) fn page_tests(root: &Path) -> Result<Vec<(String, String)>> {
    read(root, |path| path.starts_with("web-tests/") && path.ends_with(".test.mjs"))
}

fn read(root: &Path, wanted: impl Fn(&str) -> bool) -> Result<Vec<(String, String)>> {
    let wanted = files(root)?.into_iter().filter(|path| wanted(path));
    wanted
        .map(|path| {
            let text = std::fs::read_to_string(root.join(&path)).with_context(|| path.clone())?;
            Ok((path, text))
        })
        .collect()
}

/// Every file that belongs to the repository, relative to the root, sorted: hidden ones too,
/// what git ignores not.
pub(crate) fn files(root: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    let walk = WalkBuilder::new(root).hidden(false).filter_entry(|entry| entry.file_name() != ".git").build();
    for entry in walk {
        let entry = entry?;
        if entry.file_type().is_some_and(|kind| kind.is_file()) {
            files.push(entry.path().strip_prefix(root)?.display().to_string());
        }
    }
    files.sort();
    Ok(files)
}

/// Returns true if a whole file is test code.
pub(crate) fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}
