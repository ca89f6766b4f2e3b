//! What memories refer to: names, and their causes.

use std::collections::{BTreeSet, VecDeque};

use unicode_normalization::UnicodeNormalization as _;
use writ_store::error::StoreError;
use writ_store::memory::{MAX_ENTITIES, MAX_ENTITY_BYTES, Memory};
use writ_store::reads::MemoryReads;
use writ_types::id::MemoryId;

/// The greatest distance in the graph of names.
pub const MAX_DEPTH: usize = 4;

/// The most names that one walk visits.
pub const MAX_VISITED: usize = 500;

/// The most names, or memories, that one walk looks up: each is a read of the database.
pub const MAX_LOOKUPS: usize = 64;

/// The memories of one name that a walk reads.
const MEMORIES_OF_NAME: usize = 50;

/// Words with a capital letter that name nothing: days, months, and pronouns.
const NO_NAMES: &[&str] = &[
    "i",
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
    "the",
    "a",
    "an",
    "my",
    "we",
    "he",
    "she",
    "it",
    "they",
    "this",
    "that",
    "in",
    "on",
    "at",
    "when",
    "if",
    "der",
    "die",
    "das",
    "ich",
    "wir",
    "er",
    "sie",
    "es",
    "montag",
    "dienstag",
    "mittwoch",
    "donnerstag",
    "freitag",
    "samstag",
    "sonntag",
    "ein",
    "eine",
];

/// Returns the names that a text refers to, in the form in which they are compared: words with a capital letter, joined
/// where they follow each other, and what contains `@`, `/` or a digit between letters.
pub fn names_in(text: &str) -> Vec<String> {
    let mut names = BTreeSet::new();
    let mut run: Vec<&str> = Vec::new();
    for word in text.split_whitespace() {
        let bare = word.trim_matches(|letter: char| !letter.is_alphanumeric());
        let bare = bare.strip_suffix("'s").or_else(|| bare.strip_suffix("’s")).unwrap_or(bare);
        let is_capital = bare.chars().next().is_some_and(char::is_uppercase)
            && !NO_NAMES.contains(&bare.to_lowercase().as_str());
        // Addresses, paths and identifiers name something even in lower case.
        let is_mark = bare.contains(['@', '/', '_']) && bare.chars().any(char::is_alphabetic);
        if is_capital {
            run.push(bare);
        }
        // The end of a clause ends a name too.
        if !is_capital || word.ends_with(['.', ',', ';', ':', '!', '?']) {
            end_name(&mut names, &mut run);
        }
        if is_mark && !is_capital {
            names.insert(fold_name(bare));
        }
    }
    end_name(&mut names, &mut run);
    names.retain(|name| !name.is_empty() && name.len() <= MAX_ENTITY_BYTES);
    names.into_iter().take(MAX_ENTITIES).collect()
}

fn end_name(names: &mut BTreeSet<String>, run: &mut Vec<&str>) {
    if !run.is_empty() {
        names.insert(fold_name(&run.join(" ")));
        // «Anna Berg» is found as «Anna» too.
        if run.len() > 1 {
            names.extend(run.iter().map(|word| fold_name(word)));
        }
        run.clear();
    }
}

/// Returns a name in the form in which it is compared.
pub fn fold_name(name: &str) -> String {
    name.nfkc().flat_map(char::to_lowercase).collect()
}

/// A name that a walk has reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReachedName {
    /// The name.
    pub name: String,
    /// Its distance from the first.
    pub depth: usize,
    /// The memory over which it was reached; `None` for the first.
    pub over: Option<MemoryId>,
}

/// Walks from names over the memories that refer to them to the other names of these, at most `depth` steps, until `most` names
/// are reached or [`MAX_LOOKUPS`] names were looked up.
///
/// # Errors
///
/// If the memories cannot be read.
pub async fn walk_names(
    reads: &impl MemoryReads,
    starts: &[String],
    depth: usize,
    most: usize,
) -> Result<Vec<ReachedName>, StoreError> {
    let (mut seen, mut reached) = (BTreeSet::new(), Vec::new());
    let most = most.min(MAX_VISITED);
    for start in starts.iter().map(|start| fold_name(start)).take(MAX_ENTITIES) {
        if seen.insert(start.clone()) {
            reached.push(ReachedName { name: start, depth: 0, over: None });
        }
    }
    let mut next = 0;
    while let Some(from) = reached.get(next).cloned().filter(|_| next < MAX_LOOKUPS && reached.len() < most) {
        next += 1;
        // Names at the last distance are listed, and not followed further.
        if from.depth >= depth.min(MAX_DEPTH) {
            continue;
        }
        for memory in reads.memories_about(&from.name, MEMORIES_OF_NAME).await? {
            for name in &memory.traits.entities {
                if reached.len() < most && seen.insert(name.clone()) {
                    let depth = from.depth + 1;
                    reached.push(ReachedName { name: name.clone(), depth, over: Some(memory.id) });
                }
            }
        }
    }
    Ok(reached)
}

/// Returns the causes of a memory, nearest first, and their causes, at most `most`; a circle ends where it began.
///
/// # Errors
///
/// If the memories cannot be read.
pub async fn causes_of(
    reads: &impl MemoryReads,
    memory: &Memory,
    most: usize,
) -> Result<Vec<Memory>, StoreError> {
    let mut seen = BTreeSet::from([memory.id]);
    let mut waiting: VecDeque<MemoryId> = memory.traits.causes.iter().copied().collect();
    let (mut chain, mut looked_up) = (Vec::new(), 0);
    while let Some(id) = waiting.pop_front() {
        if chain.len() >= most || looked_up >= MAX_LOOKUPS {
            break;
        }
        // Memories can name each other as causes.
        if !seen.insert(id) {
            continue;
        }
        looked_up += 1;
        // A cause may have been forgotten since.
        if let Some(cause) = reads.memory(id).await? {
            waiting.extend(&cause.traits.causes);
            chain.push(cause);
        }
    }
    Ok(chain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_their_form() {
        assert_eq!(names_in("Anna Berg moved to Hamburg."), ["anna", "anna berg", "berg", "hamburg"]);
        assert_eq!(names_in("I met Boris's sister on Monday"), ["boris"]);
        assert_eq!(names_in("mail anna@example.org about src/main.rs"), ["anna@example.org", "src/main.rs"]);
        assert_eq!(names_in("nothing here"), Vec::<String>::new());
        assert!(names_in(&"Name ".repeat(10_000)).len() <= MAX_ENTITIES);
        assert_eq!(names_in(&"X".repeat(10_000)), Vec::<String>::new());
    }
}
