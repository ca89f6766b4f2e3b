//! The words that stand in any text, as one text: a table of references to each of them would be relocated, and so occupy memory of
//! its own, in every process.

use std::collections::BTreeSet;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let languages = stop_words::available_languages().iter();
    let words: BTreeSet<&str> = languages.filter_map(stop_words::lookup).flatten().copied().collect();
    let words: Vec<&str> = words.into_iter().collect();
    #[expect(clippy::disallowed_methods, reason = "cargo tells build scripts so where they may write")]
    let folder = std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    std::fs::write(Path::new(&folder).join("common-words.txt"), words.join("\n"))?;
    println!("cargo:rerun-if-changed=build.rs");
    Ok(())
}
