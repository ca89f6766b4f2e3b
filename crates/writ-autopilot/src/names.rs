//! Names of the branches and folders of units: readable, valid for git and every file system, and different for each unit.

use std::collections::BTreeSet;

use crate::unit_id::UnitId;

/// The longest part of a name that comes from a title, in characters: worktrees lie deep, and paths have limits.
const MAX_SLUG_CHARS: usize = 40;
/// The most numbers that are tried until a name is free.
const MAX_TRIES: u32 = 1_000;

/// Returns a title as a part of a name: lower-case ASCII letters and digits, with single hyphens between.
///
/// Other letters become hyphens: file systems encode them in different ways, and some ignore their case.
pub fn slug_of(title: &str) -> String {
    let mut slug = String::new();
    for c in title.chars() {
        // The slug is ASCII, so its length in bytes is that in characters.
        if slug.len() >= MAX_SLUG_CHARS {
            break;
        }
        if c.is_ascii_alphanumeric() {
            slug.push(c.to_ascii_lowercase());
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    slug.trim_end_matches('-').to_owned()
}

/// Returns the name of a unit's branch, such as `writ/m1-s2-sign-in`.
pub fn branch_name(id: UnitId, title: &str) -> String {
    let numbers = match id {
        UnitId::Milestone(milestone) => format!("m{milestone}"),
        UnitId::Slice(milestone, slice) => format!("m{milestone}-s{slice}"),
        UnitId::Task(milestone, slice, task) => format!("m{milestone}-s{slice}-t{task}"),
    };
    let slug = slug_of(title);
    // The numbers alone are different for each unit; a title without letters adds nothing.
    if slug.is_empty() { format!("writ/{numbers}") } else { format!("writ/{numbers}-{slug}") }
}

/// No name is free.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' and {MAX_TRIES} names like it are taken")]
pub struct NoFreeName(pub String);

/// Returns the name if it is free; otherwise the name with the first number behind it that makes it free.
///
/// Upper and lower case count as the same, as on some file systems. `a` also counts as taken if `a/b` is, and `a/b` if `a` is, since
/// git stores a branch as a file, which cannot be a folder too.
///
/// # Errors
///
/// If the name and all numbers up to `MAX_TRIES` are taken.
pub fn free_name(name: &str, taken: &BTreeSet<String>) -> Result<String, NoFreeName> {
    let taken: BTreeSet<String> = taken.iter().map(|other| other.to_lowercase()).collect();
    let is_free = |name: &str| {
        let name = name.to_lowercase();
        let below = format!("{name}/");
        // In sorted order, the first name from `name/` on is one below it, if there is any.
        let has_below = taken.range(below.clone()..).next().is_some_and(|other| other.starts_with(&below));
        let is_below =
            name.match_indices('/').any(|(at, _)| taken.contains(name.get(..at).unwrap_or_default()));
        !taken.contains(&name) && !has_below && !is_below
    };
    let numbered = (2..=MAX_TRIES).map(|number| format!("{name}-{number}"));
    std::iter::once(name.to_owned())
        .chain(numbered)
        .find(|name| is_free(name))
        .ok_or_else(|| NoFreeName(name.to_owned()))
}

/// Returns the git reference that archives the commits of a branch, if it is not proven that they are merged into the target.
pub fn archive_ref(id: UnitId, run: &str) -> String {
    // The name of a run is a ULID. Any other characters are dropped, since they could be invalid in a reference.
    let run: String = run.chars().filter(char::is_ascii_alphanumeric).take(64).collect();
    format!("refs/writ/archive/{}/{run}", id.folder_name())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Rows: SF-230 (the name; the branch needs the shell)
    #[test]
    fn a_branch_has_the_numbers_and_the_title_of_its_unit() {
        assert_eq!(branch_name(UnitId::Slice(1, 2), "Sign in with OAuth!"), "writ/m1-s2-sign-in-with-oauth");
        assert_eq!(branch_name(UnitId::Milestone(3), "../../etc"), "writ/m3-etc");
        assert_eq!(branch_name(UnitId::of_ad_hoc(4), "日本語"), "writ/m0-s0-t4");
        let long = branch_name(UnitId::Slice(1, 2), &"word ".repeat(30));
        assert_eq!(long, "writ/m1-s2-word-word-word-word-word-word-word-word");
        assert_eq!(slug_of("a.lock~^:?*[\\"), "a-lock");
        assert_eq!(archive_ref(UnitId::Slice(1, 2), "01ABC/../x"), "refs/writ/archive/slice_m1_s2/01ABCx");
    }

    #[test]
    fn a_taken_name_gets_a_number() {
        let free = |name: &str, taken: &[&str]| {
            free_name(name, &taken.iter().map(|text| (*text).to_owned()).collect()).unwrap()
        };
        assert_eq!(free("writ/a", &[]), "writ/a");
        assert_eq!(free("writ/a", &["writ/A"]), "writ/a-2");
        assert_eq!(free("writ/a", &["writ/a", "writ/a-2", "writ/b"]), "writ/a-3");
        assert_eq!(free("writ/a", &["writ/a/b"]), "writ/a-2", "a folder of branches");
        assert_eq!(free("writ/a", &["writ/a-b", "writ/ab"]), "writ/a");
        let all: BTreeSet<String> =
            (2..=MAX_TRIES).map(|n| format!("x-{n}")).chain(["x".to_owned()]).collect();
        assert_eq!(free_name("x", &all), Err(NoFreeName("x".to_owned())));
        // A user's branch `writ` leaves no name for ours: this is an error, and the branch is not overwritten.
        assert!(free_name("writ/a", &BTreeSet::from(["writ".to_owned()])).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        /// Two units never have the same branch, and git and file systems accept every name.
        #[test]
        fn branches_never_collide(
            a in (1..20_u32, 1..20_u32), b in (1..20_u32, 1..20_u32),
            one in "\\PC{0,50}", other in "\\PC{0,50}|[0-9ts \\-]{0,8}",
        ) {
            let (first, second) = (UnitId::Slice(a.0, a.1), UnitId::Slice(b.0, b.1));
            let names = [branch_name(first, &one), branch_name(second, &other)];
            prop_assert!(first == second || names[0] != names[1]);
            for name in names {
                let rest = name.strip_prefix("writ/").unwrap();
                prop_assert!(rest.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'));
                prop_assert!(!rest.starts_with('-') && !rest.ends_with('-') && rest.len() <= 64);
            }
        }
    }
}
