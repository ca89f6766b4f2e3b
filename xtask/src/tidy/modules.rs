//! The modules of a crate: what imports what, the circles among them, and the layers that a crate declares.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::ratchet::{Figure, Measure};
use crate::source::Source;
use crate::workspace::Crate;

/// Files that are the crate itself, not a module of it.
const ROOTS: [&str; 2] = ["lib.rs", "main.rs"];

/// For each module right below the root of a crate, the others that it imports from, each with a file and line.
type Imports<'a> = BTreeMap<&'a str, BTreeMap<&'a str, (&'a str, usize)>>;

/// The largest circle of modules of every crate.
pub(super) fn measure(crates: &[Crate], sources: &[Source]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for one in crates {
        let imports = imports(one, sources);
        let largest = largest_circle(&imports);
        let names = largest.iter().map(|name| (*name).to_owned()).collect();
        figures.push(Figure::count(&one.name, Measure::Circle, largest.len(), names));
    }
    figures
}

/// Checks the layers that crates declare in `package.metadata.writ.modules.layers`, lowest first: a module may import from its
/// own layer and from those below.
pub(super) fn check(crates: &[Crate], sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for one in crates.iter().filter(|one| !one.module_layers.is_empty()) {
        let imports = imports(one, sources);
        let mut layers: BTreeMap<&str, usize> = BTreeMap::new();
        for (layer, modules) in one.module_layers.iter().enumerate() {
            for module in modules {
                let item = format!("{}::{module}", one.name);
                if !imports.contains_key(module.as_str()) {
                    findings.push(Finding::new(
                        "module-layer",
                        item,
                        "is declared, but there is no such module",
                    ));
                } else if layers.insert(module, layer).is_some() {
                    findings.push(Finding::new("module-layer", item, "is declared twice"));
                }
            }
        }
        for (module, others) in &imports {
            let item = format!("{}::{module}", one.name);
            let Some(layer) = layers.get(module) else {
                findings.push(Finding::new("module-layer", item, "has no layer in the crate's manifest"));
                continue;
            };
            for (other, (path, line)) in others {
                let Some(above) = layers.get(other).filter(|other| *other > layer) else { continue };
                let item = format!("{item} -> {other}");
                let text = format!("layer {layer} imports from layer {above}, in {path}");
                findings.push(Finding::new("module-layer", item, text).at(*line));
            }
        }
    }
    findings
}

/// Every module of a crate, with what it imports outside tests.
fn imports<'a>(one: &Crate, sources: &'a [Source]) -> Imports<'a> {
    let folder = format!("{}src/", one.folder);
    let root = |source: &&Source| ROOTS.iter().any(|root| source.path.strip_prefix(&folder) == Some(root));
    let in_tests: BTreeSet<&str> =
        sources.iter().filter(root).flat_map(|source| &source.test_modules).map(String::as_str).collect();
    let files: Vec<(Vec<&str>, &Source)> = sources
        .iter()
        .filter(|source| !crate::source::is_test_file(&source.path))
        .filter_map(|source| {
            let path = source.path.strip_prefix(&folder)?;
            let module = path.strip_suffix(".rs").filter(|_| !ROOTS.contains(&path))?;
            Some((module.split('/').collect(), source))
        })
        .filter(|(module, _): &(Vec<&str>, _)| !module.iter().take(1).any(|top| in_tests.contains(top)))
        .collect();
    let mut imports: Imports<'a> =
        files.iter().filter_map(|(module, _)| Some((*module.first()?, BTreeMap::new()))).collect();
    let names: BTreeSet<&str> = imports.keys().copied().collect();
    for (module, source) in &files {
        let Some(own) = module.first() else { continue };
        for mention in source.paths.iter().filter(|mention| !mention.in_test) {
            let Some(other) = top_of(&mention.name, module.len()).and_then(|other| names.get(other)) else {
                continue;
            };
            if other != own
                && let Some(others) = imports.get_mut(own)
            {
                others.entry(other).or_insert((&source.path, mention.line));
            }
        }
    }
    imports
}

/// The module right below the root that a path names, seen from a file that lies so deep: `crate::a::b`, or
/// `super::super::a` in a file of the second level.
fn top_of(path: &str, depth: usize) -> Option<&str> {
    let mut parts = path.split("::").peekable();
    if parts.peek() == Some(&"crate") {
        return parts.nth(1);
    }
    let mut up = 0;
    while parts.peek() == Some(&"super") {
        parts.next();
        up += 1;
    }
    if up > 0 && up == depth { parts.next() } else { None }
}

/// The largest set of modules each of which reaches every other; empty if there is no circle.
fn largest_circle<'a>(imports: &Imports<'a>) -> BTreeSet<&'a str> {
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        imports.keys().map(|module| (*module, reachable(imports, module))).collect();
    let mut largest = BTreeSet::new();
    for (module, others) in &reach {
        let circle: BTreeSet<&str> = others
            .iter()
            .filter(|other| reach.get(*other).is_some_and(|back| back.contains(module)))
            .copied()
            .collect();
        if circle.len() > largest.len() {
            largest = circle;
        }
    }
    largest
}

/// All modules that a module imports from, directly or through others.
fn reachable<'a>(imports: &Imports<'a>, from: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&str> = vec![from];
    while let Some(module) = open.pop() {
        for other in imports.get(module).into_iter().flat_map(BTreeMap::keys) {
            if found.insert(*other) {
                open.push(other);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crate_with(layers: &[&[&str]]) -> Crate {
        let layers = layers.iter().map(|layer| layer.iter().map(|&name| name.to_owned()).collect());
        Crate {
            name: "writ-a".to_owned(),
            layer: Some(1),
            dependencies: Vec::new(),
            folder: "crates/writ-a/".to_owned(),
            manifest: String::new(),
            module_layers: layers.collect(),
        }
    }

    fn tree(files: &[(&str, &str)]) -> Vec<Source> {
        let parse =
            |(path, text): &(&str, &str)| Source::parse(&format!("crates/writ-a/src/{path}"), text).unwrap();
        files.iter().map(parse).collect()
    }

    fn circle(files: &[(&str, &str)]) -> f64 {
        measure(&[crate_with(&[])], &tree(files))[0].value
    }

    /// A ring of so many modules.
    fn ring(count: usize) -> Vec<(String, String)> {
        let next = |number| (number + 1) % count;
        (0..count).map(|n| (format!("m{n}.rs"), format!("use crate::m{};\n", next(n)))).collect()
    }

    #[test]
    fn a_circle_is_as_large_as_its_modules() {
        let ring = ring(7);
        let files: Vec<(&str, &str)> =
            ring.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        assert!((circle(&files) - 7.0).abs() < 0.001);
        assert!(circle(&files[1..]) < 0.001, "one is not there: no way back");
    }

    #[test]
    fn inner_files_belong_to_their_module_and_tests_and_comments_to_none() {
        let inner =
            [("a/b.rs", "use super::super::c::D;"), ("a.rs", "mod b;"), ("c.rs", "fn f() { crate::a::g() }")];
        assert!((circle(&inner) - 2.0).abs() < 0.001);
        let tests = [("a.rs", "use crate::c;"), ("c.rs", "#[cfg(test)]\nmod tests { use crate::a; }")];
        assert!(circle(&tests) < 0.001);
        let declared = [
            ("lib.rs", "mod a;\n#[cfg(test)]\nmod c;"),
            ("a.rs", "use crate::c;"),
            ("c.rs", "use crate::a;"),
        ];
        assert!(circle(&declared) < 0.001);
        let comment = [("a.rs", "use crate::c;"), ("c.rs", "/// See [`crate::a`].\nfn f() {}")];
        assert!(circle(&comment) < 0.001);
    }

    #[test]
    fn an_import_from_a_higher_layer_is_found() {
        let files = tree(&[("a.rs", "use crate::b;"), ("b.rs", "use crate::{a, c};"), ("c.rs", "")]);
        let items = |layers: &[&[&str]]| {
            check(&[crate_with(layers)], &files).into_iter().map(|found| found.item).collect::<Vec<_>>()
        };
        assert_eq!(items(&[]), [""; 0], "nothing declared, nothing checked");
        assert_eq!(items(&[&["c"], &["a", "b"]]), [""; 0]);
        assert_eq!(items(&[&["a"], &["b"], &["c"]]), ["writ-a::a -> b", "writ-a::b -> c"]);
        assert_eq!(items(&[&["c", "d"], &["a"]]), ["writ-a::d", "writ-a::b"]);
        assert_eq!(items(&[&["c", "a", "b"], &["a"]]), ["writ-a::a", "writ-a::b -> a"]);
    }
}
