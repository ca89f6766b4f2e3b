//! The comparison of catalogue, claims and waivers.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::catalogue::{Mark, PROFILES, Rows, Waived};
use super::shown::{Claim, Claims};

/// The numbers of one profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Profile {
    rows: usize,
    /// The rows marked `(F)` or `(X)`.
    marked: usize,
    shown: usize,
    /// Shown by tests of which each shows a part only.
    in_part: usize,
    waived: usize,
    not_shown: usize,
}

/// The rows that the tests show.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// By profile, in the order of the design.
    profiles: Vec<(&'static str, Profile)>,
    /// The tests that show each row.
    shown: BTreeMap<String, Vec<Claim>>,
    /// The reasons of waived rows.
    waived: Waived,
    /// Rows that are neither.
    pub(super) not_shown: Vec<String>,
    /// Claims and waivers that are wrong.
    pub(super) errors: Vec<String>,
}

impl Report {
    /// Compares them.
    pub(super) fn new(rows: &Rows, claims: &Claims, waived: &Waived) -> Self {
        let mut errors = claims.errors.clone();
        for (id, claims) in claims.rows.iter().filter(|(id, _)| !rows.contains_key(*id)) {
            for claim in claims {
                errors.push(format!("{} names {id}, which is not in the catalogue", claim.test));
            }
        }
        let is_whole =
            |id: &str| claims.rows.get(id).is_some_and(|all| all.iter().any(|claim| claim.part.is_none()));
        for id in waived.keys() {
            if !rows.contains_key(id) {
                errors.push(format!("{id} is waived, but is not in the catalogue"));
            }
            // A part may be shown, and the reason be that of the rest.
            if is_whole(id) {
                errors.push(format!("{id} is waived, but a test shows it"));
            }
        }
        let is_open = |id: &str| !claims.rows.contains_key(id) && !waived.contains_key(id);
        let profiles = PROFILES.map(|(prefix, _)| {
            let own: Vec<(&String, &Mark)> =
                rows.iter().filter(|(id, _)| id.split('-').next() == Some(prefix)).collect();
            let count = |test: &dyn Fn(&str) -> bool| own.iter().filter(|(id, _)| test(id)).count();
            let profile = Profile {
                rows: own.len(),
                marked: own.iter().filter(|(_, mark)| **mark != Mark::Plain).count(),
                shown: count(&is_whole),
                in_part: count(&|id| {
                    claims.rows.contains_key(id) && !is_whole(id) && !waived.contains_key(id)
                }),
                waived: count(&|id| waived.contains_key(id) && !is_whole(id)),
                not_shown: count(&is_open),
            };
            (prefix, profile)
        });
        Self {
            profiles: profiles.to_vec(),
            shown: claims.rows.clone(),
            waived: waived.clone(),
            not_shown: rows.keys().filter(|id| is_open(id)).cloned().collect(),
            errors,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<24}{:>8}{:>8}{:>9}{:>8}{:>11}",
            "profile", "rows", "shown", "in part", "waived", "not shown"
        )?;
        let mut total = Profile::default();
        for (prefix, profile) in &self.profiles {
            let name = PROFILES.iter().find(|(known, _)| known == prefix).map_or("", |(_, name)| *name);
            line(f, &format!("{prefix} {name}"), profile)?;
            total.rows += profile.rows;
            total.marked += profile.marked;
            total.shown += profile.shown;
            total.in_part += profile.in_part;
            total.waived += profile.waived;
            total.not_shown += profile.not_shown;
        }
        line(f, "all", &total)?;
        writeln!(f, "{} rows are marked (F) or (X)", total.marked)?;
        for (id, reason) in &self.waived {
            writeln!(f, "waived: {id}: {reason}")?;
        }
        for error in &self.errors {
            writeln!(f, "error: {error}")?;
        }
        Ok(())
    }
}

fn line(f: &mut fmt::Formatter<'_>, name: &str, profile: &Profile) -> fmt::Result {
    let Profile { rows, shown, in_part, waived, not_shown, .. } = profile;
    writeln!(f, "{name:<24}{rows:>8}{shown:>8}{in_part:>9}{waived:>8}{not_shown:>11}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(rows: &[&str]) -> Claims {
        let rows = rows.iter().map(|id| {
            let (id, part) = id.split_once(' ').map_or((*id, None), |(id, part)| (id, Some(part.to_owned())));
            (id.to_owned(), vec![Claim { test: "a::b".to_owned(), part }])
        });
        Claims { rows: rows.collect(), errors: Vec::new() }
    }

    #[test]
    fn rows_are_counted_by_profile() {
        let rows = ["SIL-001", "SIL-002", "SIL-003", "SF-001"].map(|id| (id.to_owned(), Mark::Plain));
        let mut rows = Rows::from(rows);
        rows.insert("SF-002".to_owned(), Mark::Future);
        rows.insert("SIL-004".to_owned(), Mark::Plain);
        // Of the second, a part is shown.
        let waived = Waived::from(["SIL-002", "SIL-004"].map(|id| (id.to_owned(), "why".to_owned())));
        let report = Report::new(&rows, &claims(&["SIL-001", "SIL-004 half", "SF-001 half"]), &waived);
        let profile = |prefix| report.profiles.iter().find(|(known, _)| *known == prefix).unwrap().1;
        assert_eq!(
            profile("SIL"),
            Profile { rows: 4, marked: 0, shown: 1, in_part: 0, waived: 2, not_shown: 1 }
        );
        assert_eq!(
            profile("SF"),
            Profile { rows: 2, marked: 1, shown: 0, in_part: 1, waived: 0, not_shown: 1 }
        );
        assert_eq!(report.not_shown, ["SF-002", "SIL-003"]);
        assert_eq!(report.errors, [""; 0]);
    }

    #[test]
    fn names_outside_the_catalogue_are_errors() {
        let rows = Rows::from([("SIL-001".to_owned(), Mark::Plain)]);
        let waived = Waived::from(["SIL-001", "SIL-900"].map(|id| (id.to_owned(), "why".to_owned())));
        let report = Report::new(&rows, &claims(&["SIL-001", "SIL-999"]), &waived);
        let expected = [
            "a::b names SIL-999, which is not in the catalogue",
            "SIL-001 is waived, but a test shows it",
            "SIL-900 is waived, but is not in the catalogue",
        ];
        assert_eq!(report.errors, expected);
    }
}
