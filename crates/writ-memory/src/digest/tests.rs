//! The material of a digest, its request, and the texts that are a profile.

use writ_store::memory::MemoryTraits;
use writ_types::action::{MemoryKind, MemoryTrust, Remember};
use writ_types::id::{MemoryId, SessionId};
use writ_types::unit::Timestamp;

use super::*;

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

fn material(since: i64, memories: impl IntoIterator<Item = Memory>) -> DigestMaterial {
    let mut material = DigestMaterial::new(since);
    memories.into_iter().for_each(|memory| material.add_memory(memory));
    material.finish()
}

fn profile(lines: &[&str]) -> String {
    let mut text = String::new();
    for (n, name) in SECTIONS.iter().enumerate() {
        text.push_str(&format!("## {name}\n"));
        lines.get(n).into_iter().for_each(|line| text.push_str(&format!("{line}\n")));
    }
    text
}

/// Active facts, procedures and episodes of the owner are read. What waits or was put aside, is external or secret, or is of one
/// session is in no request.
///
/// Rows: WIN-329 (in part: active memories of all kinds are read, and none that waits or was put aside)
#[test]
fn a_profile_rests_on_active_memories_that_every_session_may_read() {
    let mut procedure = memory(2, "release on Fridays");
    procedure.item.memory_kind = MemoryKind::Procedure;
    let mut episode = memory(3, "moved to Kiel");
    episode.item.memory_kind = MemoryKind::Episode;
    let mut others: Vec<Memory> = ["waits", "is put aside", "is external", "is secret", "is of a session"]
        .map(|text| memory(9, text))
        .into();
    others[0].traits.status = MemoryStatus::Pending;
    others[1].traits.status = MemoryStatus::Archived;
    others[2].item.taint = Taint::External;
    others[3].item.secret = true;
    others[4].item.session = Some(SessionId::from_parts(NOW, 1));
    let material = material(0, [vec![memory(1, "is called Ann"), procedure, episode], others].concat());
    let text = material.request_text(None);
    for line in ["fact: is called Ann", "procedure: release on Fridays", "episode: moved to Kiel"] {
        assert!(text.contains(line), "{text}");
    }
    assert_eq!((material.memories().len(), material.upto()), (3, 9));
    for line in ["waits", "put aside", "external", "secret", "of a session"] {
        assert!(!text.contains(line), "{line}: {text}");
    }
}

/// A profile is trusted like the least trusted memory that its writer has read.
#[test]
fn the_trust_in_the_material_is_that_in_its_least_trusted_memory() {
    let mut hearsay = memory(2, "likes tea, says Ben");
    assert_eq!(material(0, [memory(1, "a")]).taint(), Taint::Owner);
    hearsay.item.taint = Taint::Auth;
    assert_eq!(material(0, [memory(1, "a"), hearsay]).taint(), Taint::Auth);
}

/// What is new is there in full, the rest is shortened, and the current profile stands before both.
#[test]
fn a_request_has_the_current_profile_what_is_new_and_the_rest_in_short() {
    let long = "x".repeat(400);
    let material = material(5, [memory(1, &format!("old {long}")), memory(6, &format!("new {long}"))]);
    let text = material.request_text(Some("## Identity\nAnn"));
    let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
    let order = [
        place("Current profile:\n## Identity\nAnn"),
        place("Memories since the last digest:"),
        place("[1] 2026-11-26 fact: new "),
        place("All other memories, in short:"),
        place("[2] 2026-11-26 fact: old "),
    ];
    assert!(order.is_sorted(), "{text}");
    assert!(text.contains(&format!("new {long}\n")) && !text.contains(&format!("old {long}\n")), "{text}");
    assert!(DigestMaterial::new(0).request_text(None).starts_with("Current profile:\n(none)\n"));
}

/// The rules that the model gets.
#[test]
fn the_model_is_given_the_limits_the_sections_and_the_rules() {
    for part in SECTIONS.map(|name| format!("## {name}")).iter().map(String::as_str).chain([
        "At most 30 lines",
        "useful in every conversation",
        "Drop what is stale and what mattered only once",
        "the newer one wins; name the pair",
        "never a list of all memories",
    ]) {
        assert!(DIGEST_SYSTEM.contains(part), "{part}");
    }
}

#[test]
fn of_too_many_memories_the_least_important_leave_and_the_pinned_stay() {
    let many = (1..=u128::try_from(2 * MAX_DIGEST_MEMORIES).expect("fits") + 5).map(|n| {
        let mut memory = memory(n, &format!("number {n}"));
        memory.traits.pinned = n == 1;
        memory.traits.importance = if n == 2 { 0 } else { 500 };
        memory
    });
    let material = material(0, many);
    assert_eq!(
        (material.memories().len(), material.left_out()),
        (MAX_DIGEST_MEMORIES, MAX_DIGEST_MEMORIES + 5)
    );
    let rows: Vec<i64> = material.memories().iter().map(|memory| memory.row).collect();
    assert!(rows.contains(&1) && !rows.contains(&2) && rows.is_sorted());
}

#[test]
fn the_fingerprint_follows_the_memories_and_their_wording_alone() {
    let mut edited = memory(1, "b");
    edited.traits.edits = 1;
    let of = |since, memory: &Memory| material(since, [memory.clone()]).fingerprint();
    let mut used = memory(1, "a");
    used.traits.uses = 9;
    assert_eq!(of(0, &memory(1, "a")), of(7, &used));
    assert_ne!(of(0, &memory(1, "a")), of(0, &edited));
}

/// Rows: WIN-322 (in part: a profile has these five headings, and an answer without one of them is none)
/// Rows: WIN-320 (in part: what is longer is refused)
#[test]
fn a_profile_has_five_sections_and_two_bounds() {
    let whole = profile(&["Ann", "- builds boats", "", "", "- short answers"]);
    let read = "## Identity\nAnn\n## Work\n- builds boats\n## Preferences\n## Active Projects\n## Communication Style\n\
                - short answers";
    assert_eq!(read_profile(&whole).as_deref(), Ok(read));
    assert_eq!(
        read_profile(&whole.replace("## ", "\n### ")).as_deref(),
        Ok(read),
        "another depth is no fault"
    );
    let hidden = whole.replace("Ann", "A\u{202e}nn\u{1b}[31m");
    assert!(read_profile(&hidden).is_ok_and(|text| text.contains("Ann[31m")));
    let lines = "- a line\n".repeat(26);
    for (text, fault) in [
        (" \n\n".to_owned(), ProfileFault::Empty),
        (profile(&[]), ProfileFault::Bare),
        (format!("Here it is:\n{whole}"), ProfileFault::Preamble),
        (whole.replace("## Work\n", ""), ProfileFault::Sections),
        (whole.replace("## Work\n", "## Hobbies\n"), ProfileFault::Sections),
        (format!("{whole}## Work\nagain\n"), ProfileFault::Sections),
        (profile(&["Ann", "b", "c", "d", lines.trim_end()]), ProfileFault::Lines(35)),
        (profile(&[&"x".repeat(2_000)]), ProfileFault::Tokens(Tokens::new(520))),
    ] {
        assert_eq!(read_profile(&text), Err(fault), "{text}");
    }
}

#[test]
fn an_answer_names_memories_of_the_request_alone() {
    let material = material(0, [memory(1, "the host is heron"), memory(2, "the host is egret")]);
    let answer = |pairs: &[[usize; 2]], made: &[usize]| DigestAnswer {
        profile: profile(&["Ann"]),
        contradictions: pairs
            .iter()
            .map(|pair| FlaggedPair { memories: *pair, why: "two\nhosts".to_owned() })
            .collect(),
        suggestions: vec![FormSuggestion {
            becomes: SuggestedForm::Procedure,
            memories: made.to_vec(),
            text: " how to  reach the host ".to_owned(),
        }],
    };
    let good = answer(&[[1, 2], [2, 2]], &[1]);
    assert_eq!(material.check_answer(&good), Ok(()));
    let flagged = good.flagged(&material);
    let rows: Vec<_> = flagged.iter().map(|(one, other, why)| (one.row, other.row, why.as_str())).collect();
    assert_eq!(rows, [(2, 1, "two hosts")], "the newer one first, and none contradicts itself");
    let suggested = good.suggested(&material);
    assert_eq!(
        (suggested[0].0, suggested[0].1.as_str()),
        (SuggestedForm::Procedure, "how to reach the host")
    );
    for wrong in [answer(&[[0, 1]], &[]), answer(&[[1, 3]], &[]), answer(&[], &[9])] {
        assert!(material.check_answer(&wrong).is_err_and(|why| why.contains("there is no memory")));
    }
}
