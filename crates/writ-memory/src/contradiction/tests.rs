//! The rule, and that the pattern leaves out nothing that it would find.

use std::sync::Arc;

use ed25519_dalek::SigningKey;
use writ_store::batch::{Batch, NewMemory, Op};
use writ_store::config::StoreConfig;
use writ_store::memory::MemoryTraits;
use writ_store::reads::MemoryReads as _;
use writ_store::store::Store;
use writ_types::action::{MemoryTrust, Remember};
use writ_types::id::MemoryId;
use writ_types::taint::Taint;
use writ_types::unit::Timestamp;

use super::*;

/// Rows: WIN-331 (in part: two opposing facts are noticed)
#[test]
fn different_values_of_one_subject_and_negations_are_noticed() {
    for (older, newer) in [
        ("The staging host is called heron", "The staging host is called egret."),
        ("Anna lives in Berlin", "Anna lives in Hamburg"),
        ("The weekly meeting is at 10:00", "The weekly meeting is at 11:30"),
        ("Anna likes green tea", "Anna does not like green tea"),
        ("Der Server heißt Reiher", "Der Server heißt Storch"),
    ] {
        assert!(compare_texts(older, newer).is_some(), "{older} / {newer}");
    }
    let values = compare_texts("Anna lives in Berlin", "Anna lives in Hamburg");
    assert_eq!(
        values,
        Some(Contradiction::Values { older: "Berlin".to_owned(), newer: "Hamburg".to_owned() })
    );
}

#[test]
fn statements_about_different_things_contradict_nothing() {
    for (older, newer) in [
        ("Anna lives in Berlin", "Boris lives in Hamburg"),
        ("The staging host is called heron", "The production host is called egret"),
        ("Anna likes green tea", "Anna likes green tea"),
        ("Anna likes tea", "Anna likes tea and works at the bakery near the station"),
        ("", ""),
        ("Anna lives in Berlin", "Anna has a red bicycle"),
    ] {
        assert_eq!(compare_texts(older, newer), None, "{older} / {newer}");
    }
}

const NOW: Timestamp = Timestamp::from_millis(1_795_694_400_000);

fn memory(n: usize, text: &str) -> NewMemory {
    let item = Remember {
        text: text.to_owned(),
        memory_kind: MemoryKind::Fact,
        trust: MemoryTrust::Working,
        taint: Taint::Owner,
        secret: false,
        session: None,
    };
    NewMemory { id: MemoryId::from_parts(NOW, n as u128), item, at: NOW, traits: MemoryTraits::default() }
}

fn read(new: &NewMemory) -> Memory {
    let NewMemory { id, item, at, traits } = new.clone();
    Memory { id, item, at, traits, entry: None, row: 0 }
}

/// Statements of few subjects and values, in several forms of the same words, some of them negated.
fn statements() -> Vec<String> {
    let mut texts = Vec::new();
    for subject in
        ["Anna", "The staging host of the team", "ＢＯＲＩＳ", "example.org", "Die Rechnungen von heute", ""]
    {
        for verb in
            ["is called", "likes", "does not like", "hopped to", "wohnt in", "isn't named:", "never runs at"]
        {
            for value in ["heron", "Egret.", "10:00", "green tea", "the big blue house there", ""] {
                texts.push(format!("{subject} {verb} {value}"));
            }
        }
    }
    for text in [
        "Anna liked heron",
        "Anna is liking the heron",
        "Anna hopping heron",
        "Die Rechnung von heute liked heron",
    ] {
        texts.push(text.to_owned());
    }
    texts
}

/// All pairs are compared with what the pattern finds in a real index; and it leaves out nearly all of the others.
#[test]
fn the_pattern_leaves_out_no_contradiction() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = StoreConfig::new(folder.path().join("writ.db"));
    let store = Store::open(&config, Arc::new(SigningKey::from_bytes(&[7; 32]))).expect("opens");
    let memories: Vec<NewMemory> = statements().iter().enumerate().map(|(n, text)| memory(n, text)).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let (mut contradictions, mut read_rows) = (0, 0);
    runtime.block_on(async {
        let ops = memories.iter().map(|memory| Op::Remember(Box::new(memory.clone())));
        store.commit(Batch::relaxed(ops.collect())).await.expect("commits");
        for new in &memories {
            let new = read(new);
            let found = match contradiction_pattern(&new) {
                Some(pattern) => store.memories_fitting(&pattern, None, 1_000).await.expect("reads"),
                None => Vec::new(),
            };
            read_rows += found.len();
            for older in memories.iter().map(read) {
                if contradiction_of(&older, &new).is_some() {
                    contradictions += 1;
                    let texts = (&older.item.text, &new.item.text);
                    assert!(found.iter().any(|memory| memory.id == older.id), "{texts:?}");
                }
            }
        }
    });
    assert!(contradictions > 500, "{contradictions}");
    assert!(read_rows < memories.len() * memories.len() / 4, "{read_rows} rows of {}", memories.len());
}

#[test]
fn what_cannot_contradict_is_not_looked_for() {
    let pattern = |kind, text: &str| {
        let mut new = read(&memory(1, text));
        new.item.memory_kind = kind;
        contradiction_pattern(&new)
    };
    assert_eq!(pattern(MemoryKind::Episode, "Anna lives in Berlin"), None);
    assert_eq!(pattern(MemoryKind::Fact, "Berlin"), None);
    assert_eq!(pattern(MemoryKind::Fact, "\"( OR *"), None);
    assert!(pattern(MemoryKind::Fact, "Anna lives in Berlin").is_some());
}
