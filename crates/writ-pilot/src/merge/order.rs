//! The order of merges. Nothing here looks at a repository.

use std::collections::{BTreeMap, BTreeSet};

use writ_sandbox::git::BranchName;

use crate::error::PilotGitError;

/// A slice that is ready to be merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeRequest {
    /// The id of the unit.
    pub unit: String,
    /// Its branch.
    pub branch: BranchName,
    /// Its title, for the message of the merge.
    pub title: String,
    /// The units with the code that it needs: they are merged before it.
    pub code_depends_on: Vec<String>,
    /// The time at which it was planned, in milliseconds since 1970.
    pub created_at: i64,
}

/// Requests in the order of their merge, and those that have to wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergeOrder {
    /// Those that can be merged, in order.
    pub ready: Vec<MergeRequest>,
    /// Those that need others which are neither merged nor ready, by unit.
    pub waiting: BTreeMap<String, Vec<String>>,
}

/// Checks the dependencies of all units of a plan: `(unit, code_depends_on)`.
///
/// # Errors
///
/// If one depends on a unit that does not exist, or units depend on each other in a circle.
pub fn check_dependencies(units: &BTreeMap<String, Vec<String>>) -> Result<(), PilotGitError> {
    for (unit, needs) in units {
        if let Some(on) = needs.iter().find(|on| !units.contains_key(*on)) {
            let on = format!("'{on}', which does not exist");
            return Err(PilotGitError::Dependency { unit: unit.clone(), on });
        }
    }
    let mut open: BTreeSet<&String> = units.keys().collect();
    // Units with their needs met are taken away, until none is left or the rest is a circle.
    while !open.is_empty() {
        let met =
            |unit: &&String| units.get(*unit).is_none_or(|needs| needs.iter().all(|on| !open.contains(on)));
        let next: Vec<&String> = open.iter().copied().filter(met).collect();
        if next.is_empty() {
            let circle: Vec<&str> = open.iter().map(|unit| unit.as_str()).collect();
            let unit = circle.first().copied().unwrap_or_default().to_owned();
            return Err(PilotGitError::Dependency { unit, on: format!("a circle: {}", circle.join(", ")) });
        }
        for unit in next {
            open.remove(unit);
        }
    }
    Ok(())
}

/// Puts requests in order: what others need first, else by the time at which they were planned. `merged`: units that are in the target.
///
/// # Errors
///
/// If requests depend on each other in a circle.
pub fn order_requests(
    requests: &[MergeRequest],
    merged: &BTreeSet<String>,
) -> Result<MergeOrder, PilotGitError> {
    let asked: BTreeMap<String, Vec<String>> = requests
        .iter()
        .map(|request| {
            let needs = request.code_depends_on.iter();
            // Others are in the target, or waited for below: a circle can only be among these.
            let among = needs.filter(|on| requests.iter().any(|other| other.unit == **on));
            (request.unit.clone(), among.cloned().collect())
        })
        .collect();
    check_dependencies(&asked)?;
    let mut open: Vec<&MergeRequest> = requests.iter().collect();
    // The id decides between those of one moment, so that every run has the same order.
    open.sort_by(|a, b| (a.created_at, &a.unit).cmp(&(b.created_at, &b.unit)));
    let mut order = MergeOrder::default();
    let mut done: BTreeSet<&str> = merged.iter().map(String::as_str).collect();
    // The oldest with its needs met is next, again and again.
    while let Some(at) = open.iter().position(|request| is_met(request, &done)) {
        let request = open.remove(at);
        done.insert(&request.unit);
        order.ready.push(request.clone());
    }
    for request in open {
        let needs = request.code_depends_on.iter().filter(|on| !done.contains(on.as_str()));
        order.waiting.insert(request.unit.clone(), needs.cloned().collect());
    }
    Ok(order)
}

fn is_met(request: &MergeRequest, done: &BTreeSet<&str>) -> bool {
    request.code_depends_on.iter().all(|on| done.contains(on.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(unit: &str, created_at: i64, needs: &[&str]) -> MergeRequest {
        MergeRequest {
            unit: unit.to_owned(),
            branch: BranchName::parse_name(&format!("writ/{}", unit.replace('/', "-"))).unwrap(),
            title: unit.to_owned(),
            code_depends_on: needs.iter().map(|on| (*on).to_owned()).collect(),
            created_at,
        }
    }

    fn ordered(requests: &[MergeRequest], merged: &[&str]) -> (Vec<String>, BTreeMap<String, Vec<String>>) {
        let merged = merged.iter().map(|unit| (*unit).to_owned()).collect();
        let order = order_requests(requests, &merged).unwrap();
        (order.ready.into_iter().map(|request| request.unit).collect(), order.waiting)
    }

    /// Slices that are ready are merged in the order in which they were planned; one that is not ready holds none that does not need it.
    ///
    /// Rows: SF-237
    #[test]
    fn ready_slices_are_merged_in_the_order_of_the_plan() {
        let young_first = [request("m1/s3", 30, &[]), request("m1/s1", 10, &[])];
        assert_eq!(ordered(&young_first, &[]).0, ["m1/s1", "m1/s3"]);
        // m1/s2, planned at 20, is not among the requests: it is not finished.
        assert!(ordered(&young_first, &[]).1.is_empty());
    }

    #[test]
    fn what_others_need_comes_first_and_what_is_not_there_is_waited_for() {
        let requests = [
            request("m1/s1", 10, &["m1/s4"]),
            request("m1/s2", 20, &["m1/s9"]),
            request("m1/s3", 30, &["m1/s2"]),
            request("m1/s4", 40, &["m1/s0"]),
        ];
        let (ready, waiting) = ordered(&requests, &["m1/s0"]);
        assert_eq!(ready, ["m1/s4", "m1/s1"]);
        let wanted = [("m1/s2", "m1/s9"), ("m1/s3", "m1/s2")];
        assert_eq!(waiting, wanted.map(|(unit, on)| (unit.to_owned(), vec![on.to_owned()])).into());
    }

    #[test]
    fn a_dependency_on_nothing_or_in_a_circle_is_refused() {
        let plan = |rows: &[(&str, &[&str])]| {
            let rows = rows
                .iter()
                .map(|(unit, needs)| ((*unit).to_owned(), needs.iter().map(|on| (*on).to_owned()).collect()));
            check_dependencies(&rows.collect())
        };
        assert!(plan(&[("a", &[]), ("b", &["a"]), ("c", &["a", "b"])]).is_ok());
        for bad in
            [&[("a", &["x"][..])][..], &[("a", &["a"])], &[("a", &["b"]), ("b", &["c"]), ("c", &["a"])]]
        {
            assert!(matches!(plan(bad), Err(PilotGitError::Dependency { .. })), "{bad:?}");
        }
    }
}
