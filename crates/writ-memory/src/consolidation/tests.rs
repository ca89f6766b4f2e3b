//! What a plan changes, and what it leaves alone.

use writ_store::memory::MemoryTraits;
use writ_types::action::Remember;

use super::*;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const NOW: Timestamp = Timestamp::from_millis(1_795_694_400_000);

fn memory(n: u128, text: &str) -> Memory {
    Memory {
        id: MemoryId::from_parts(NOW, n),
        item: Remember {
            text: text.to_owned(),
            memory_kind: MemoryKind::Fact,
            trust: MemoryTrust::Working,
            taint: Taint::Owner,
            secret: false,
            session: None,
        },
        at: NOW,
        entry: None,
        traits: MemoryTraits::default(),
        row: i64::try_from(n).expect("small"),
    }
}

fn plan_with(settled: SettledRows, memories: &[Memory]) -> ConsolidationPlan {
    let limits = PlanLimits { stale_after: 60 * DAY, promote_uses: 5 };
    let mut planner = Planner::new(limits, settled, NOW);
    memories.iter().for_each(|memory| planner.add(memory));
    planner.finish()
}

fn plan(memories: &[Memory]) -> ConsolidationPlan {
    plan_with(SettledRows::default(), memories)
}

/// Rows: SIL-391 (in part: two equal memories become one with the least trusted label)
#[test]
fn equal_memories_become_one_with_the_least_trusted_label() {
    let mut read = memory(2, "the staging  host is called HERON");
    read.item.taint = Taint::External;
    read.traits.uses = 3;
    let plan = plan(&[memory(1, "The staging host is called heron."), read.clone()]);
    let first = memory(1, "").id;
    assert_eq!(plan.merges, [Merge { into: first, from: vec![(read.id, 3)], taint: Some(Taint::External) }]);
    assert_eq!(plan.archived_rows, [2]);
}

/// One run does both: what is used often enough and not yet trusted is picked, and what is equal becomes one.
///
/// Rows: SIL-391
#[test]
fn a_run_picks_what_is_often_used_and_merges_what_is_equal() {
    let used = |n, text: &str, uses| {
        let mut memory = memory(n, text);
        memory.traits.uses = uses;
        memory
    };
    let (seldom, often) = (used(1, "the door is green", 4), used(2, "the fence is red", 5));
    let mut trusted = used(3, "the gate is blue", 50);
    trusted.item.trust = MemoryTrust::Verified;
    let (first, mut second) =
        (used(4, "The host is called heron", 0), used(5, "the host is called  Heron.", 0));
    second.item.taint = Taint::Auth;
    let plan = plan(&[seldom, often.clone(), trusted, first.clone(), second.clone()]);
    assert_eq!(plan.promote, [(often.id, 5)]);
    let merge = Merge { into: first.id, from: vec![(second.id, 0)], taint: Some(Taint::Auth) };
    assert_eq!((plan.merges, plan.archived_rows), (vec![merge], vec![5]));
}

#[test]
fn what_the_owner_has_confirmed_takes_no_label_of_others() {
    let mut confirmed = memory(1, "The host is called heron");
    confirmed.item.trust = MemoryTrust::Verified;
    let mut read = memory(2, "The host is called heron");
    read.item.taint = Taint::External;
    let plan = plan(&[confirmed, read]);
    assert_eq!((plan.merges.len(), plan.merges[0].taint), (1, None));
}

#[test]
fn what_is_not_equal_is_not_merged() {
    let words = [memory(1, "Anna flew from Berlin to Rome"), memory(2, "Anna flew to Berlin from Rome")];
    assert_eq!(plan(&words).merges, []);
    let mut episodes = [memory(1, "Anna was ill"), memory(2, "Anna was ill")];
    episodes.iter_mut().for_each(|memory| memory.item.memory_kind = MemoryKind::Episode);
    assert_eq!(plan(&episodes).merges, [], "she was ill twice");
    let mut dated = [memory(1, "The rent was paid"), memory(2, "The rent was paid")];
    dated[0].traits.happened = Some(NOW);
    assert_eq!(plan(&dated).merges, [], "at two times");
    for pinned in [0, 1] {
        let mut equal = [memory(1, "Anna is ill"), memory(2, "Anna is ill")];
        equal[pinned].traits.pinned = true;
        assert_eq!(plan(&equal).merges, [], "{pinned}");
    }
    for text in ["", "  ", "…", "."] {
        assert_eq!(plan(&[memory(1, text), memory(2, text)]).merges, [], "{text:?}");
    }
}

/// Rows: SIL-393 (in part: old unused rows go, recent ones stay)
/// Rows: WIN-332
#[test]
fn old_memories_without_use_are_put_aside() {
    let aged = |n, text: &str, days: u32| {
        let at = NOW.minus_duration(days * DAY);
        Memory { at, ..memory(n, text) }
    };
    let (old, recent) = (aged(1, "old", 61), aged(2, "recent", 59));
    let mut used = aged(3, "used", 400);
    used.traits.used_at = Some(NOW.minus_duration(DAY));
    let mut pinned = aged(4, "pinned", 400);
    pinned.traits.pinned = true;
    let mut owners = aged(5, "the owner's", 400);
    owners.traits.source = MemorySource::User;
    let mut important = aged(6, "important", 400);
    important.traits.importance = IMPORTANT;
    let undone = aged(7, "undone", 400);
    let linked = aged(8, "The forecast comes from desk__weather.", 61);
    let mut named = aged(9, "The forecast", 61);
    named.traits.entities = vec!["desk__weather".to_owned()];
    let gone = aged(10, "The letters were sorted by desk__mail", 61);
    let settled = SettledRows {
        undone: BTreeSet::from([7]),
        tools: BTreeSet::from(["desk__weather".to_owned()]),
        ..SettledRows::default()
    };
    let all = [old.clone(), recent, used, pinned, owners, important, undone, linked, named, gone.clone()];
    let plan = plan_with(settled, &all);
    assert_eq!((plan.stale, plan.archived_rows), (vec![old.id, gone.id], vec![1, 10]));
}

/// What the owner has taken back is not done again, neither as the one that stays nor as the one that goes.
#[test]
fn a_merge_that_was_undone_is_not_made_again() {
    let equal = [memory(1, "Anna is ill"), memory(2, "Anna is ill")];
    for row in [1, 2] {
        let settled = SettledRows { undone: BTreeSet::from([row]), ..SettledRows::default() };
        assert_eq!(plan_with(settled, &equal), ConsolidationPlan { seen: 2, ..ConsolidationPlan::default() });
    }
}

/// Rows: SIL-391 (in part: a memory above the threshold of use is found)
#[test]
fn the_most_used_are_asked_about_and_each_once() {
    let used: Vec<Memory> = (1..=50)
        .map(|n| {
            let mut memory = memory(n, &format!("fact {n}"));
            memory.traits.uses = u64::try_from(n).expect("small");
            memory
        })
        .collect();
    let first = plan(&used);
    let uses = |plan: &ConsolidationPlan| plan.promote.iter().map(|(_, uses)| *uses).collect::<Vec<_>>();
    assert_eq!(uses(&first), (31..=50).rev().collect::<Vec<_>>());
    let settled = SettledRows { asked: (31..=50).collect(), open_questions: 20, ..SettledRows::default() };
    let second = plan_with(settled, &used);
    assert_eq!(uses(&second), (11..=30).rev().collect::<Vec<_>>(), "twenty without an answer hide no other");
    let full = SettledRows { open_questions: MAX_OPEN_QUESTIONS - 3, ..SettledRows::default() };
    assert_eq!(uses(&plan_with(full, &used)), [50, 49, 48]);
    let mut external = used[49].clone();
    external.item.taint = Taint::External;
    let mut secret = used[48].clone();
    secret.item.secret = true;
    assert_eq!(uses(&plan(&[external, secret, used[3].clone()])), Vec::<u64>::new());
}
