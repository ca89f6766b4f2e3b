//! A crate depends on strictly lower layers only; dependencies of tests are exempt.

use std::collections::BTreeSet;

use super::Finding;
use crate::workspace::{Crate, Kind};

/// The crate that only the binary may ship, for its demo.
const DEMO_ONLY: &str = "writ-testkit";
const BINARY: &str = "writ-cli";
/// The crates of tests, which nothing ships.
const TESTS_ONLY: [&str; 3] = ["writ-testbed", "writ-testdoor", "writ-engine-tests"];
/// The folders of the tasks, which belong to no layer: nothing of the product depends on them.
const TASKS: [&str; 2] = ["xtask/", "tools/"];

/// Checks every dependency between crates of the workspace.
pub(super) fn check(crates: &[Crate]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_task = |one: &Crate| TASKS.iter().any(|folder| one.folder.starts_with(folder));
    for one in crates.iter().filter(|one| !is_task(one)) {
        let Some(layer) = one.layer else {
            findings.push(Finding::new("layer", &one.name, "has no `package.metadata.writ.layer`"));
            continue;
        };
        for dependency in one.dependencies.iter().filter(|dependency| dependency.kind == Kind::Shipped) {
            let Some(other) = crates.iter().find(|other| other.name == dependency.name) else { continue };
            let item = format!("{} -> {}", one.name, other.name);
            if is_task(other) {
                findings.push(Finding::new("layer", item, "nothing of the product depends on a task"));
                continue;
            }
            if other.layer.is_none_or(|lower| lower >= layer) {
                let text = format!("layer {layer} depends on layer {:?}", other.layer);
                findings.push(Finding::new("layer", item.clone(), text));
            }
            if TESTS_ONLY.contains(&other.name.as_str()) {
                findings.push(Finding::new("layer", item.clone(), "only tests may depend on it"));
            }
            if other.name == DEMO_ONLY && one.name != BINARY {
                findings.push(Finding::new("layer", item, format!("only {BINARY} may ship {DEMO_ONLY}")));
            }
        }
    }
    findings
}

/// Checks that no crate needs itself for its own tests, through others: it would be compiled twice, and a change of it would
/// compile everything between anew.
pub(super) fn check_circles(crates: &[Crate]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for one in crates {
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut open = vec![one];
        while let Some(next) = open.pop() {
            for dependency in &next.dependencies {
                let Some(other) = crates.iter().find(|other| other.name == dependency.name) else { continue };
                if seen.insert(&other.name) {
                    open.push(other);
                }
            }
        }
        if seen.contains(one.name.as_str()) {
            let text = "depends on itself, through dependencies of tests";
            findings.push(Finding::new("dependency-circle", &one.name, text));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    fn fixture(name: &str, layer: Option<u64>, dependencies: &[(&str, Kind)]) -> Crate {
        let dependencies =
            dependencies.iter().map(|(name, kind)| Dependency { name: (*name).to_owned(), kind: *kind });
        Crate {
            name: name.to_owned(),
            layer,
            dependencies: dependencies.collect(),
            folder: format!("crates/{name}/"),
            manifest: String::new(),
            module_layers: Vec::new(),
        }
    }

    /// A dependency on the same layer, a higher one, or of a crate without a layer is found.
    #[test]
    fn wrong_directions_are_found() {
        let crates = [
            fixture("a", Some(0), &[("b", Kind::Shipped)]),
            fixture("b", Some(1), &[("c", Kind::Shipped)]),
            fixture("c", Some(1), &[("a", Kind::Shipped), ("serde", Kind::Shipped)]),
            fixture("d", None, &[]),
            fixture("writ-testkit", Some(2), &[]),
            fixture("e", Some(3), &[("writ-testkit", Kind::Shipped)]),
        ];
        let items: Vec<String> = check(&crates).into_iter().map(|finding| finding.item).collect();
        assert_eq!(items, ["a -> b", "b -> c", "d", "e -> writ-testkit"]);
    }

    /// The layers as they are: models, turn machine, tools, runtime, surfaces, binary; each below the next.
    ///
    /// Rows: SCL-005 (hooks and plugins are not there yet)
    #[test]
    fn every_crate_lies_above_what_it_uses() {
        let crates = crate::workspace::crates(&crate::workspace::root().unwrap()).unwrap();
        assert_eq!(check(&crates), []);
        let layer = |name: &str| {
            let found = crates.iter().find(|one| one.name == name);
            found.and_then(|one| one.layer).unwrap_or_else(|| panic!("{name} has no layer"))
        };
        let order = ["writ-agent", "writ-models", "writ-tools", "writ-runtime", "writ-gateway", "writ-cli"];
        assert!(order.map(layer).is_sorted_by(|lower, upper| lower < upper));
        let runtime = crates.iter().find(|one| one.name == "writ-runtime").unwrap();
        let uses = |name: &str| runtime.dependencies.iter().any(|other| other.name == name);
        assert!(!["writ-gateway", "writ-tui", "writ-cli"].into_iter().any(uses), "no surface");
    }

    /// The autopilot sits on the one turn machine and the one client of models, and has none of its own: what plans and what works in
    /// repositories uses neither, and nothing below the autopilot uses it.
    ///
    /// Rows: SF-002 SF-026
    #[test]
    fn the_autopilot_has_no_agent_and_no_client_of_models_of_its_own() {
        let crates = crate::workspace::crates(&crate::workspace::root().unwrap()).unwrap();
        let users = |used: &str| -> Vec<String> {
            let is_used = |other: &Dependency| other.kind == Kind::Shipped && other.name == used;
            let found = crates.iter().filter(|one| one.dependencies.iter().any(is_used));
            found.map(|one| one.name.clone()).filter(|name| !name.starts_with("xtask")).collect()
        };
        assert_eq!(users("writ-autopilot"), ["writ-pilot"]);
        assert_eq!(users("writ-pilot"), ["writ-cli"]);
        assert_eq!(users("genai"), ["writ-models"]);
        for core in ["writ-agent", "writ-models"] {
            let found = users(core);
            assert!(found.contains(&"writ-runtime".to_owned()), "{core}: {found:?}");
            for part in ["writ-autopilot", "writ-pilot", "writ-plan", "writ-sandbox", "writ-tui"] {
                assert!(!found.contains(&part.to_owned()), "{part} uses {core}");
            }
        }
    }

    /// The supervisor of the autopilot gets a snapshot and gives signals back: its crate reaches no store, no engine, no agent and no task
    /// of a runtime, and a dependency on one of them is found.
    ///
    /// Rows: SF-177
    #[test]
    fn the_supervisor_reaches_neither_a_store_nor_an_agent() {
        let crates = crate::workspace::crates(&crate::workspace::root().unwrap()).unwrap();
        let own = crates.iter().position(|one| one.name == "writ-autopilot").unwrap();
        let shipped = crates[own].dependencies.iter().filter(|other| other.kind == Kind::Shipped);
        let names: BTreeSet<&str> = shipped.map(|other| other.name.as_str()).collect();
        assert_eq!(names, BTreeSet::from(["serde", "serde_json", "thiserror", "toml", "writ-types"]));
        for handle in ["writ-store", "writ-agent", "writ-runtime"] {
            let mut changed = crates.clone();
            changed[own].dependencies.push(Dependency { name: handle.to_owned(), kind: Kind::Shipped });
            let items: Vec<String> = check(&changed).into_iter().map(|finding| finding.item).collect();
            assert_eq!(items, [format!("writ-autopilot -> {handle}")]);
        }
    }

    #[test]
    fn tests_the_binary_and_the_tasks_are_exempt() {
        let crates = [
            fixture("a", Some(0), &[("writ-testkit", Kind::Development)]),
            fixture("writ-testkit", Some(7), &[("a", Kind::Shipped)]),
            fixture("writ-cli", Some(8), &[("writ-testkit", Kind::Shipped)]),
            Crate { folder: "xtask/".to_owned(), ..fixture("xtask", None, &[("a", Kind::Shipped)]) },
        ];
        assert_eq!(check(&crates), []);
    }

    #[test]
    fn a_circle_through_tests_and_a_shipped_testbed_are_found() {
        let crates = [
            fixture("a", Some(0), &[("b", Kind::Development)]),
            fixture("b", Some(1), &[("c", Kind::Shipped)]),
            fixture("c", Some(0), &[]),
        ];
        assert_eq!(check_circles(&crates), []);
        let mut closed = crates.to_vec();
        closed[2] = fixture("c", Some(0), &[("a", Kind::Shipped)]);
        let items: Vec<String> = check_circles(&closed).into_iter().map(|finding| finding.item).collect();
        assert_eq!(items, ["a", "b", "c"]);
        let shipped = [
            fixture("writ-testbed", Some(1), &[]),
            fixture("d", Some(2), &[("writ-testbed", Kind::Shipped)]),
        ];
        let items: Vec<String> = check(&shipped).into_iter().map(|finding| finding.item).collect();
        assert_eq!(items, ["d -> writ-testbed"]);
    }

    #[test]
    fn a_task_below_the_product_is_found() {
        let task = Crate { folder: "tools/a/".to_owned(), ..fixture("task-a", Some(9), &[]) };
        let crates = [task, fixture("b", Some(10), &[("task-a", Kind::Shipped)])];
        let items: Vec<String> = check(&crates).into_iter().map(|finding| finding.item).collect();
        assert_eq!(items, ["b -> task-a"]);
    }
}
