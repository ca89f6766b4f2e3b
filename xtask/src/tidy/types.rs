//! Measures the files over which a type is spread, and the fields of a struct.

use std::collections::{BTreeMap, BTreeSet};

use super::ratchet::{Figure, Measure};
use crate::source::Source;
use crate::workspace::Crate;

/// The most files of a crate that may hold `impl` blocks of one type.
const MOST_FILES: usize = 3;
/// The most fields of a struct that is not marked as plain state.
const MOST_FIELDS: usize = 15;

/// The figures of every crate.
pub(super) fn measure(crates: &[Crate], sources: &[Source]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for one in crates {
        let own: Vec<&Source> =
            sources.iter().filter(|source| source.path.starts_with(&one.folder)).collect();
        let spread = impl_files(&own).into_iter().map(|(name, files)| (files.len(), name));
        figures.push(excess(&one.name, Measure::ImplFiles, spread, MOST_FILES));
        let structs = own.iter().flat_map(|source| &source.structs);
        let judged = structs.filter(|one| !one.in_test && !one.is_plain_state);
        figures.push(excess(
            &one.name,
            Measure::Fields,
            judged.map(|one| (one.fields, one.name.as_str())),
            MOST_FIELDS,
        ));
    }
    figures
}

/// Sums what is beyond `most`, and names it.
fn excess<'a>(
    owner: &str,
    measure: Measure,
    counts: impl Iterator<Item = (usize, &'a str)>,
    most: usize,
) -> Figure {
    let mut beyond: Vec<(usize, &str)> = counts.filter(|(count, _)| *count > most).collect();
    beyond.sort_by(|a, b| b.cmp(a));
    let sum = beyond.iter().map(|(count, _)| count.saturating_sub(most)).sum();
    let names = beyond.iter().map(|(count, name)| format!("{name} has {count}")).collect();
    Figure::count(owner, measure, sum, names)
}

/// Returns the files with `impl` blocks of each type that the crate defines. Types of one name are told apart
/// by the file that defines them, where an `impl` stands beside its type; else by the path that the file
/// imports.
fn impl_files<'a>(sources: &[&'a Source]) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let mut defined: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for source in sources {
        for name in source.types.iter().filter(|name| !name.in_test) {
            defined.entry(name.name.as_str()).or_default().insert(&source.path);
        }
    }
    let mut spread: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for source in sources {
        for block in source.impls.iter().filter(|block| !block.in_test) {
            let name = block.name.rsplit("::").next().unwrap_or(&block.name);
            let Some(files) = defined.get(name) else { continue };
            let place = match files.first() {
                Some(only) if files.len() == 1 => *only,
                Some(_) if files.contains(source.path.as_str()) => source.path.as_str(),
                Some(_) | None => block.name.as_str(),
            };
            spread.entry((name, place)).or_default().insert(&source.path);
        }
    }
    // The widest of those of one name stands for the name.
    let mut widest: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for ((name, _), files) in spread {
        let known = widest.entry(name).or_default();
        if files.len() > known.len() {
            *known = files;
        }
    }
    widest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(files: &[(&str, &str)], measure_of: Measure) -> f64 {
        let one = Crate {
            name: "writ-a".to_owned(),
            layer: Some(1),
            dependencies: Vec::new(),
            folder: "crates/writ-a/".to_owned(),
            manifest: String::new(),
            module_layers: Vec::new(),
        };
        let parse =
            |(path, text): &(&str, &str)| Source::parse(&format!("crates/writ-a/src/{path}"), text).unwrap();
        let sources: Vec<Source> = files.iter().map(parse).collect();
        let figures = measure(&[one], &sources);
        figures.into_iter().find(|figure| figure.measure == measure_of).unwrap().value
    }

    #[test]
    fn impl_blocks_in_a_fourth_file_are_found() {
        let files = [
            ("a.rs", "struct A;\nimpl A {}\nimpl Clone for A {}"),
            ("b.rs", "use crate::a::A;\nimpl A {}"),
            ("c.rs", "impl crate::a::A {}\nimpl From<crate::a::A> for B {}"),
            ("d.rs", "impl<T> super::A<T> {}"),
        ];
        assert!((figure(&files, Measure::ImplFiles) - 1.0).abs() < 0.001);
        assert!(figure(&files[..3], Measure::ImplFiles) < 0.001);
        let foreign =
            [("a.rs", "impl X for u8 {}"), ("b.rs", "impl Y for u8 {}"), ("c.rs", "impl Z for u8 {}")];
        assert!(figure(&foreign, Measure::ImplFiles) < 0.001);
    }

    #[test]
    fn types_of_one_name_and_tests_are_not_added_up() {
        let one = "struct A;\nimpl A {}\n#[cfg(test)]\nmod tests { impl super::A {} }";
        let files = [("a.rs", one), ("b.rs", one), ("c.rs", one), ("d.rs", one)];
        assert!(figure(&files, Measure::ImplFiles) < 0.001);
    }

    #[test]
    fn a_sixteenth_field_is_found_but_not_in_plain_state() {
        let with = |fields: usize, above: &str| {
            let fields: String = (0..fields).map(|n| format!("    f{n}: u8,\n")).collect();
            format!("{above}/// Doc.\n#[derive(Debug)]\nstruct A {{\n{fields}}}\n")
        };
        let fields = |text: &str| figure(&[("a.rs", text)], Measure::Fields);
        assert!(fields(&with(15, "")) < 0.001);
        assert!((fields(&with(17, "")) - 2.0).abs() < 0.001);
        assert!(fields(&with(17, "// tidy: plain state\n")) < 0.001);
        let below = with(17, "").replace("#[derive", "// tidy: plain state\n#[derive");
        assert!(fields(&below) < 0.001);
    }
}
