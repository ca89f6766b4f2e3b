use std::sync::Arc;

use super::*;
use crate::batch::Op;
use crate::testing::*;

fn source(detail: &str, entry: Option<u64>) -> Source {
    Source { origin: "file_read".to_owned(), detail: detail.to_owned(), entry: entry.map(EntrySeq) }
}

/// An intent whose label names these entries.
fn intended(n: u128, entries: impl IntoIterator<Item = u64>) -> Op {
    let mut entry = intent(n);
    if let Fact::Intent { label, .. } = &mut entry.fact {
        label.sources = Arc::new(entries.into_iter().map(|at| source("a.txt", Some(at))).collect());
    }
    Op::Append(Box::new(entry))
}

fn entries(found: &RestsOn) -> Vec<Option<u64>> {
    found.steps.iter().map(|step| step.entry.map(|seq| seq.0)).collect()
}

/// Also where entries name each other, themselves, or one that is not there.
#[test]
fn an_ask_and_an_entry_are_followed_to_what_they_rest_on_each_once() {
    let home = TestHome::new().with_session(1);
    home.commit(receive(1, 1, "a"));
    home.commit(vec![intended(1, [0, 1, 2])]);
    home.commit(vec![intended(2, [1, 0, 7_000])]);
    let mut asked = ask(1, "x");
    asked.prepared.label.sources = Arc::new([source("b.txt", Some(2)), source("c", None)].into());
    home.commit(vec![Op::OpenAsk(Box::new(asked))]);
    let found = home.store.blocking().ask_rests_on(&ask_id(1)).expect("reads").expect("there");
    assert_eq!(entries(&found), [None, Some(2), Some(0), Some(1)]);
    assert_eq!((found.steps[0].event, found.steps[0].sources.len(), found.more), ("asked", 2, false));
    // Its entry says the same, and one without a label says nothing.
    assert_eq!(
        entries(&home.store.blocking().entry_rests_on(EntrySeq(3)).expect("reads"))[1..],
        entries(&found)[1..]
    );
    home.append(1);
    for seq in [4, 99] {
        assert_eq!(home.store.blocking().entry_rests_on(EntrySeq(seq)).expect("reads"), RestsOn::default());
    }
    assert_eq!(home.store.blocking().ask_rests_on(&ask_id(9)).expect("reads"), None);
}

#[test]
fn a_long_chain_is_cut_and_says_so() {
    let home = TestHome::new().with_session(1);
    let most = u64::try_from(MAX_FOLLOWED).expect("fits");
    home.commit((0..=most).map(|n| intended(n.into(), n.checked_sub(1))).collect());
    let walk = |from: u64| home.store.blocking().entry_rests_on(EntrySeq(from)).expect("reads");
    assert_eq!((walk(most - 1).steps.len(), walk(most - 1).more), (MAX_FOLLOWED, false));
    assert_eq!((walk(most).steps.len(), walk(most).more), (MAX_FOLLOWED, true));
}
