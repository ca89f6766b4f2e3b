//! The content of a project, before it is written in a language.

use std::collections::BTreeSet;

use super::BugFamily;
use super::bugs;
use super::code::{Unit, Value};
use super::rng::Rng;
use super::templates::TEMPLATES;

/// Names of projects, areas and modules.
const PROJECTS: &[&str] = &["tidewater", "oakfield", "northgate", "millbrook", "sunridge", "eastquay"];
const AREAS: &[&str] =
    &["billing", "transport", "library", "kitchen", "harbour", "clinic", "garden", "cinema"];
const MODULES: &[&str] = &[
    "rates", "totals", "schedule", "capacity", "intake", "balance", "forecast", "quota", "planning",
    "metrics", "stock", "routing", "season", "survey", "audit", "roster", "archive", "returns",
];

/// The most assertions of one test.
const ASSERTIONS: usize = 3;

/// The number of further names that are tried for a unit with a name that is taken.
const TRIES: usize = 6;

#[derive(Clone, Debug)]
pub(super) struct RepoPlan {
    pub(super) name: &'static str,
    pub(super) areas: Vec<Area>,
    /// True if the constants of an area lie in a module of their own.
    pub(super) shared_constants: bool,
    /// True if tests lie in folders like those of the sources, where the language allows it.
    pub(super) nested_tests: bool,
    pub(super) docs: &'static str,
    pub(super) data: &'static str,
    pub(super) family: BugFamily,
    /// More numbers for data files.
    pub(super) rng: Rng,
}

#[derive(Clone, Debug)]
pub(super) struct Area {
    pub(super) name: &'static str,
    pub(super) modules: Vec<Module>,
}

#[derive(Clone, Debug)]
pub(super) struct Module {
    pub(super) name: &'static str,
    pub(super) units: Vec<Tested>,
}

/// A unit as it should be, as it is, and what its test asks.
#[derive(Clone, Debug)]
pub(super) struct Tested {
    pub(super) right: Unit,
    pub(super) is: Unit,
    /// Arguments and the right results.
    pub(super) asks: Vec<(Vec<Value>, i64)>,
}

/// Plans a project. `None` where no bug is shown by a test.
pub(super) fn plan(seed: u64) -> Option<RepoPlan> {
    let mut rng = Rng::new(seed);
    let mut units = units(&mut rng);
    let family = place_bug(&mut units, &mut rng)?;
    let mut units = rng.shuffled(units);
    let mut areas_left = AREAS.to_vec();
    let mut modules_left = MODULES.to_vec();
    let mut areas: Vec<Area> = Vec::new();
    let per_area = 3 + rng.below(3);
    while !units.is_empty() {
        let module_name = rng.take(&mut modules_left)?;
        let count =
            (1 + rng.below(2)).max(units.len().saturating_sub(modules_left.len() * 2)).min(units.len());
        let module = Module { name: module_name, units: units.split_off(units.len() - count) };
        match areas.last_mut() {
            Some(area) if area.modules.len() < per_area => area.modules.push(module),
            Some(_) | None => areas.push(Area { name: rng.take(&mut areas_left)?, modules: vec![module] }),
        }
    }
    Some(RepoPlan {
        name: rng.word(PROJECTS),
        areas,
        shared_constants: rng.chance(50),
        nested_tests: rng.chance(50),
        docs: rng.word(&["docs", "doc", "handbook"]),
        data: rng.word(&["data", "fixtures", "samples"]),
        family,
        rng,
    })
}

/// Two units of each template where names allow it, all right.
fn units(rng: &mut Rng) -> Vec<Tested> {
    let mut taken: BTreeSet<String> = BTreeSet::new();
    let mut out = Vec::new();
    for template in TEMPLATES.iter().chain(&TEMPLATES) {
        for _ in 0..TRIES {
            let unit = template(rng);
            let names: Vec<String> = unit
                .functions
                .iter()
                .map(|function| function.name.clone())
                .chain(unit.constants.iter().map(|constant| constant.name.clone()))
                .collect();
            if names.iter().any(|name| taken.contains(name)) {
                continue;
            }
            taken.extend(names);
            let asks = asks(&unit, rng);
            out.push(Tested { is: unit.clone(), right: unit, asks });
            break;
        }
    }
    out
}

/// Makes the assertions of the test of a right unit.
fn asks(unit: &Unit, rng: &mut Rng) -> Vec<(Vec<Value>, i64)> {
    let mut asks: Vec<(Vec<Value>, i64)> = Vec::new();
    for sample in rng.shuffled(unit.samples.clone()) {
        let known = asks.iter().any(|(arguments, _)| *arguments == sample);
        if let Some(result) = unit.result(&sample)
            && result >= 0
            && !known
        {
            asks.push((sample, result));
        }
    }
    asks
}

/// Replaces one unit by one with a bug that its test shows, and cuts every test to a few assertions.
fn place_bug(units: &mut [Tested], rng: &mut Rng) -> Option<BugFamily> {
    let families = rng.shuffled(BugFamily::ALL.to_vec());
    let placed = families.into_iter().find_map(|family| {
        let mut possible: Vec<(usize, Unit)> = Vec::new();
        for (n, unit) in units.iter().enumerate() {
            let variants = bugs::variants(&unit.right).into_iter().filter(|(of, _)| *of == family);
            possible
                .extend(variants.map(|(_, wrong)| (n, wrong)).filter(|(_, wrong)| shows(&unit.asks, wrong)));
        }
        rng.take(&mut possible).map(|(n, wrong)| (family, n, wrong))
    });
    let (family, place, wrong) = placed?;
    for (n, unit) in units.iter_mut().enumerate() {
        if n == place {
            // What shows the bug comes first when the test is cut.
            unit.asks.sort_by_key(|(arguments, expected)| wrong.result(arguments) == Some(*expected));
            unit.is = wrong.clone();
        }
        unit.asks.truncate(ASSERTIONS);
        unit.asks = rng.shuffled(std::mem::take(&mut unit.asks));
    }
    Some(family)
}

/// Returns true if some assertion fails and none ends otherwise.
fn shows(asks: &[(Vec<Value>, i64)], wrong: &Unit) -> bool {
    let results: Vec<(Option<i64>, i64)> =
        asks.iter().map(|(arguments, expected)| (wrong.result(arguments), *expected)).collect();
    results.iter().all(|(result, _)| result.is_some())
        && results.iter().any(|(result, expected)| *result != Some(*expected))
}
