//! Tier 1 of eviction, pins, and the compaction of a history.

use std::sync::Arc;

use serde_json::json;
use writ_agent::config::{AgentConfig, BUILT_IN_PROFILES, ContextConfig, Profile, Share};
use writ_agent::context::compact::{
    CompactionReason, describe_groups, describe_message, exchanges, messages_of_exchanges, note_of_messages,
    pinned_tokens, plan_compaction, quote_message,
};
use writ_agent::context::{Assembled, ContextError, Zone, assemble_context};
use writ_agent::event::{CarriedItem, ContextSeed, WorkspaceItem};
use writ_types::chat::{ChatMessage, FileRef, Part, Role, ToolCall, ToolOutcome};
use writ_types::error::{Exit, ToReport};
use writ_types::taint::{Label, Taint};
use writ_types::unit::Tokens;

use crate::fixture::{assert_paired, memory, result, said, seed, texts_of};

const OUTPUT: Tokens = Tokens::new(1_000);

fn tokens(n: u64) -> String {
    "abcd".repeat(usize::try_from(n).expect("small"))
}

fn config(total: u64) -> ContextConfig {
    ContextConfig {
        total_tokens: Tokens::new(total),
        system_max: Tokens::new(total / 4),
        ..ContextConfig::default()
    }
}

/// A turn of the history: a request, a call with its result of as many tokens, an answer.
fn turn(n: u64, size: u64) -> Vec<ChatMessage> {
    let id = format!("c{n}");
    let call = ToolCall { id: id.clone(), name: "file_read".to_owned(), arguments: json!({}) };
    let result =
        result(&id, "file_read", ToolOutcome::Done, Taint::External, &format!("result {n} {}", tokens(size)));
    let message = |role, part, taint| ChatMessage { role, parts: vec![part], label: Label::new(taint) };
    vec![
        said(Role::User, &format!("request {n}")),
        message(Role::Assistant, Part::Call(call), Taint::Owner),
        message(Role::Tool, Part::Result(result), Taint::External),
        said(Role::Assistant, &format!("answer {n}")),
    ]
}

fn history(turns: u64, size: u64) -> Vec<Arc<ChatMessage>> {
    (1..=turns).flat_map(|n| turn(n, size)).map(Arc::new).collect()
}

fn carried(source: &str, text: &str, pinned: bool) -> CarriedItem {
    let (source, text) = (source.to_owned(), text.to_owned());
    CarriedItem { source, text, label: Label::new(Taint::Owner), pinned }
}

/// The turn before the one that begins has the age 1, so a result of the sixth turn back is masked and that of the fourth is
/// whole.
///
/// Rows: SIL-075
#[test]
fn results_of_turns_that_are_older_than_the_limit_are_masked_first() {
    let seed = ContextSeed { history: history(6, 200), ..seed() };
    let now = [said(Role::User, "now")];
    let masked = |config: &ContextConfig| {
        let made = assemble_context(config, &seed, &[], &now, OUTPUT).expect("fits");
        assert_paired(&made.request.messages);
        assert_eq!(made.evicted, 0);
        let texts = texts_of(&made.request);
        (1..=6).filter(|n| !texts.contains(&format!("result {n} "))).collect::<Vec<u64>>()
    };
    assert_eq!(masked(&config(10_000)), Vec::<u64>::new(), "there is room");
    // Six results of about 200 tokens do not fit, five do.
    let tight = config(1_828);
    assert_eq!(masked(&tight), [1], "only the sixth turn back");
    assert_eq!(masked(&ContextConfig { observation_mask_after_turns: 2, ..tight }), [1, 2, 3, 4]);
}

/// Rows: SIL-076
#[test]
fn what_only_acknowledges_is_dropped_where_room_is_scarce() {
    let nineteen = format!("the key is {}", "x".repeat(64));
    let thanks = ["thanks"; 20].join(" ");
    let twenty = ["ok"; 26].join(" ") + " ok";
    assert_eq!(twenty.chars().count().div_ceil(4), 20);
    let mut said_before = vec![
        said(Role::User, "ok"),
        said(Role::User, "OK, thanks!"),
        said(Role::User, &nineteen),
        said(Role::User, &thanks),
        said(Role::User, &twenty),
        said(Role::User, "yes"),
    ];
    said_before.extend(turn(1, 800));
    let seed = ContextSeed { history: said_before.into_iter().map(Arc::new).collect(), ..seed() };
    let now = [said(Role::User, "ok")];
    let lines = |config: &ContextConfig| {
        let made = assemble_context(config, &seed, &[], &now, OUTPUT).expect("fits");
        texts_of(&made.request).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let all = lines(&config(10_000));
    assert_eq!(all.iter().filter(|line| *line == "ok").count(), 2);
    let some = lines(&config(1_000));
    assert_eq!(some.iter().filter(|line| *line == "ok").count(), 1, "the message of this turn stays");
    assert!(!some.iter().any(|line| line == "OK, thanks!"));
    for kept in [&nineteen, &thanks, &twenty, &"yes".to_owned()] {
        assert!(some.contains(kept), "{kept}");
    }
}

/// Rows: SIL-070
/// Rows: SIL-078 (in part: what is completed leaves the workspace first, and nothing more)
#[test]
fn what_is_done_leaves_the_workspace_first() {
    let item = |id: &str, done| WorkspaceItem {
        id: id.to_owned(),
        title: format!("plan {id}"),
        text: tokens(270),
        label: Label::new(Taint::Owner),
        done,
    };
    let workspace = vec![item("a", false), item("b", true), item("c", false), item("d", false)];
    let seed = ContextSeed { workspace, ..seed() };
    let made =
        assemble_context(&config(1_200), &seed, &[], &[said(Role::User, "now")], OUTPUT).expect("fits");
    let texts = texts_of(&made.request);
    assert_eq!(made.evicted, 1);
    assert!(texts.contains("plan a") && texts.contains("plan d") && !texts.contains("plan b"), "{texts}");
}

/// After old results, each zone lets go of its own: the oldest of the history, the least relevant memory, what is done in the
/// workspace. Where masked results are enough, nothing of them goes.
///
/// Rows: SIL-078
#[test]
fn each_zone_lets_go_in_its_own_order_and_only_after_old_results() {
    let now = [said(Role::User, "now")];
    let shown = |made: &Assembled, names: &[String]| -> Vec<String> {
        let texts = texts_of(&made.request);
        names.iter().filter(|name| texts.contains(name.as_str())).cloned().collect()
    };
    let names = |zone: &str| (0..12).map(|n| format!("{zone}{n:02}")).collect::<Vec<String>>();
    let (old, hits, plans) = (names("h"), names("m"), names("plan "));
    let seed_of = |results: u64| {
        let mut history = history(results, 250);
        history.extend(old.iter().map(|name| Arc::new(said(Role::User, &format!("{name} {}", tokens(95))))));
        let workspace = plans.iter().enumerate().map(|(n, name)| WorkspaceItem {
            id: name.clone(),
            title: name.clone(),
            text: tokens(95),
            label: Label::new(Taint::Owner),
            done: n % 3 == 1,
        });
        ContextSeed { history, workspace: workspace.collect(), ..seed() }
    };
    let memories: Vec<_> = (0_u128..)
        .zip(&hits)
        .map(|(n, name)| memory(n, &format!("{name} {}", tokens(90)), Taint::Owner))
        .collect();
    let assembled = |total, seed: &ContextSeed| {
        assemble_context(&config(total), seed, &memories, &now, OUTPUT).expect("fits")
    };

    // Enough for all of it, once old results are masked.
    let seed = seed_of(10);
    let masked = assembled(8_000, &seed);
    assert!(texts_of(&masked.request).contains("was left out"), "results were masked");
    assert_eq!(masked.evicted, 0);
    for all in [&old, &hits, &plans] {
        assert_eq!(shown(&masked, all), *all);
    }

    // Not enough: each zone is within its share, and what went is what goes first there.
    let tight = assembled(3_000, &seed_of(0));
    assert!(tight.evicted > 0 && tight.total_tokens() <= config(3_000).eviction_threshold());
    let (left, found) = (shown(&tight, &old), shown(&tight, &hits));
    assert!((1..12).contains(&left.len()) && (1..12).contains(&found.len()), "{left:?} {found:?}");
    assert_eq!(left, old[12 - left.len()..], "the newest of the history stay");
    assert_eq!(found, hits[..found.len()], "the most relevant memories stay");
    // The workspace alone, where it has to give way too.
    let alone = ContextSeed { history: Vec::new(), ..seed_of(0) };
    let made = assemble_context(&config(1_200), &alone, &[], &now, OUTPUT).expect("fits");
    let gone: Vec<usize> = (0..12).filter(|n| !shown(&made, &plans).contains(&plans[*n])).collect();
    assert!(!gone.is_empty() && gone.len() < 12, "{gone:?}");
    let done = [1, 4, 7, 10];
    let (only_done, all_done) =
        (gone.iter().all(|n| done.contains(n)), done.iter().all(|n| gone.contains(n)));
    assert!(only_done || all_done, "nothing that is open goes before what is done: {gone:?}");
}

/// A tenth of the window and more is left by every profile: what a model counts, up to a fifth above the estimate, fits in it.
///
/// Rows: SIL-073
#[test]
fn every_profile_leaves_room_for_counts_a_fifth_above_the_estimate() {
    let history: Vec<Arc<ChatMessage>> =
        (0..400).map(|n| Arc::new(said(Role::User, &format!("{n} {}", tokens(100))))).collect();
    let memories: Vec<_> = (0..200).map(|n| memory(n, &tokens(100), Taint::Owner)).collect();
    let workspace: Vec<WorkspaceItem> = (0..200)
        .map(|n| WorkspaceItem {
            id: n.to_string(),
            title: n.to_string(),
            text: tokens(100),
            label: Label::new(Taint::Owner),
            done: false,
        })
        .collect();
    for (name, profile) in BUILT_IN_PROFILES {
        let shares = [profile.chronicle_pct, profile.memory_pct, profile.workspace_pct];
        let total = config(20_000).total_tokens;
        let sum: u64 = shares.iter().map(|share| share.share_of(total).get()).sum();
        assert!(sum * 10 <= total.get() * 8, "{name}: {sum}");
        let seed = ContextSeed {
            history: history.clone(),
            workspace: workspace.clone(),
            profile: name.to_owned(),
            ..seed()
        };
        let made = assemble_context(&config(20_000), &seed, &memories, &[said(Role::User, "now")], OUTPUT);
        let used = made.expect("fits").total_tokens().get();
        assert!(used * 10 > total.get() * 6, "{name}: the window is filled: {used}");
        assert!(used * 12 <= total.get() * 10, "{name}: {used}");
    }
    // More than four fifths for the zones are refused.
    let mut greedy = config(20_000);
    greedy.profiles.insert("greedy".to_owned(), Profile::of_percent(41, 20, 20));
    assert!(greedy.validate_context().is_err());
}

/// Rows: SIL-080 (in part: what is pinned stays)
#[test]
fn what_is_carried_over_and_pinned_survives_any_pressure() {
    let carried = vec![
        carried("summary of 9 earlier messages, by harness", "They chose blue.", true),
        carried("earlier message 3", &tokens(500), false),
        carried("pinned message 7", "Never call before nine.", true),
    ];
    let mut history: Vec<ChatMessage> =
        (0..100).map(|n| said(Role::User, &format!("{n} {}", tokens(100)))).collect();
    history[10] = said(Role::User, "The gate code is in the blue book.");
    let history = history.into_iter().map(Arc::new).collect();
    let seed = ContextSeed { carried, history, pinned_places: vec![10], ..seed() };
    let hits = [memory(2, &tokens(300), Taint::Owner)];
    let made =
        assemble_context(&config(2_000), &seed, &hits, &[said(Role::User, "now")], OUTPUT).expect("fits");
    let texts = texts_of(&made.request);
    for text in ["They chose blue.", "Never call before nine.", "The gate code is in the blue book."] {
        assert!(texts.contains(text), "{texts}");
    }
    assert!(made.total_tokens() <= config(2_000).eviction_threshold());
    let pinned = made.items.iter().filter(|item| item.zone == Zone::Chronicle && item.pinned).count();
    assert_eq!(pinned, 3);
    let place = made.items.iter().find_map(|item| item.place.filter(|_| item.pinned));
    assert_eq!(place, Some(10));
}

#[test]
fn a_pinned_part_that_is_larger_than_the_window_is_an_error_that_names_it() {
    let seed = ContextSeed {
        carried: vec![carried("pinned message 17", &format!("The whole manual {}", tokens(5_000)), true)],
        ..seed()
    };
    let error = assemble_context(&config(2_000), &seed, &[], &[said(Role::User, "now")], OUTPUT)
        .expect_err("too large");
    assert!(matches!(error, ContextError::DoesNotFit { .. }), "{error:?}");
    let report = error.report();
    assert_eq!(report.exit, Exit::Budget);
    assert!(
        report.outside.contains("pinned message 17 («[pinned message 17] The whole manual"),
        "{}",
        report.outside
    );
    assert!(report.hint.contains("writ context unpin"), "{}", report.hint);
}

/// Above 60 per cent of the window, and not below, the older part makes room: the next request has the summary that stands for it, the
/// newest messages as they were, the system's text and the tools. A call and its result are never parted.
///
/// Rows: WIN-351
#[test]
fn a_history_is_compacted_above_sixty_per_cent_and_not_at_it() {
    let seed = seed();
    let total = 10_000;
    let planned =
        |history: &[Arc<ChatMessage>], most| plan_compaction(&config(total), &seed, history, (most, None));
    // Each turn is 4 messages; the first ones are masked by age in the reckoning.
    let few = history(5, 1_000);
    assert_eq!(planned(&few, 100), None, "5,000 of 10,000 tokens");
    let more = history(7, 1_400);
    let plan = planned(&more, 100).expect("over 60 %");
    assert_eq!(plan.reason, CompactionReason::Tokens);
    assert!(plan.before > Tokens::new(6_000), "{plan:?}");
    assert_eq!(plan.messages % 4, 0, "whole turns: {plan:?}");
    assert!(plan.messages > 0 && plan.messages < more.len());
    let stays: Vec<ChatMessage> = more[plan.messages..].iter().map(|message| (**message).clone()).collect();
    assert_paired(&stays);
    let filled = |per_cent: u64| {
        let total = plan.before.get() * 100 / per_cent;
        plan_compaction(&config(total), &seed, &more, (100, None)).is_some()
    };
    assert_eq!([59, 61].map(filled), [false, true]);
    let summary = carried("summary of earlier messages, by scripted", "They read some files.", true);
    let newest = more[plan.messages..].to_vec();
    let after = ContextSeed { carried: vec![summary], history: newest, ..seed.clone() };
    let now = [said(Role::User, "now")];
    let made = assemble_context(&config(total), &after, &[], &now, OUTPUT).expect("fits");
    assert_paired(&made.request.messages);
    let texts = texts_of(&made.request);
    assert!(texts.contains("They read some files.") && !texts.contains("request 1"));
    for n in u64::try_from(plan.messages / 4).expect("few") + 1..=7 {
        for whole in [format!("request {n}"), format!("result {n} {}", tokens(1_400)), format!("answer {n}")]
        {
            assert!(texts.contains(&whole), "of turn {n}");
        }
    }
    let before = assemble_context(&config(100_000), &seed, &[], &now, OUTPUT).expect("fits").request;
    assert_eq!((&made.request.system, &made.request.tools), (&before.system, &before.tools));
    let at_sixty = ContextConfig { compact_at_pct: Share::of_percent(100), ..config(total) };
    assert_eq!(plan_compaction(&at_sixty, &seed, &more, (100, None)), None);
    let many = history(30, 1);
    assert_eq!(planned(&many, 120), None);
    let plan = planned(&many, 50).expect("too many messages");
    assert_eq!((plan.reason, many.len() - plan.messages), (CompactionReason::Messages, 24));
    let asked = plan_compaction(&config(total), &seed, &few, (100, Some(CompactionReason::Asked)))
        .expect("asked for");
    assert_eq!((asked.reason, asked.messages), (CompactionReason::Asked, 16), "all but the newest turn");
    assert_eq!(plan_compaction(&config(total), &seed, &[], (100, Some(CompactionReason::Asked))), None);
}

#[test]
fn a_turn_that_is_larger_than_what_stays_is_cut_between_its_steps() {
    let mut one = vec![said(Role::User, "do it all")];
    for n in 0..40 {
        one.extend(turn(n, 300).into_iter().skip(1).take(2));
    }
    let one: Vec<Arc<ChatMessage>> = one.into_iter().map(Arc::new).collect();
    let plan = plan_compaction(&config(10_000), &seed(), &one, (1_000, None)).expect("over");
    let stays: Vec<ChatMessage> = one[plan.messages..].iter().map(|message| (**message).clone()).collect();
    assert!(!stays.is_empty());
    assert_paired(&stays);
}

#[test]
fn groups_exchanges_and_notes_say_what_left() {
    let old = history(3, 50);
    let groups = describe_groups(&old, 100_000);
    assert_eq!(groups.len(), 9, "a request, a step and an answer each");
    assert_eq!(groups.iter().map(|group| group.place).collect::<Vec<_>>(), [0, 1, 3, 4, 5, 7, 8, 9, 11]);
    assert!(
        groups[1].text.starts_with("agent: calls file_read {}\nresult: file_read: result 1 "),
        "{}",
        groups[1].text
    );
    assert_eq!(groups[1].label.taint, Taint::External);
    let short = describe_groups(&old, 500);
    assert!(short.iter().map(|group| group.text.chars().count()).sum::<usize>() <= 500 + 9, "{short:?}");
    let exchanges = exchanges(&old);
    assert_eq!(exchanges.len(), 3);
    assert_eq!(exchanges[0].text, "The person: request 1\nThe agent: answer 1");
    let (note, label) = note_of_messages(&old, Tokens::new(1_000));
    assert!(note.contains("12 earlier messages") && note.contains("- request 3"), "{note}");
    assert_eq!(label.taint, Taint::Owner);
}

/// A scorer reads short messages whole, whatever long ones stand beside them.
#[test]
fn a_long_group_takes_no_room_from_short_ones() {
    let mut old = history(3, 50);
    old.push(Arc::new(said(Role::User, &"long ".repeat(1_000))));
    let groups = describe_groups(&old, 3_000);
    let sizes: Vec<usize> = groups.iter().map(|group| group.text.chars().count()).collect();
    assert!(sizes.iter().sum::<usize>() <= 3_000, "{sizes:?}");
    assert!(sizes[..9].iter().sum::<usize>() > 800 && sizes[9] > 1_500, "{sizes:?}");
    assert!(groups[..9].iter().all(|group| !group.text.contains("left out")), "{groups:?}");
    let many = describe_groups(&history(200, 50), 1_000);
    assert!(many.iter().map(|group| group.text.chars().count()).sum::<usize>() <= 1_700);
    assert_eq!((many[0].text.as_str(), many.len()), ("…", 600), "every group has its number");
}

/// What is remembered of an exchange is all of what was said, in as many parts as it takes.
#[test]
fn a_long_exchange_is_remembered_in_parts() {
    let mut answer = said(Role::Assistant, &"alpha beta gamma ".repeat(200));
    answer.parts.push(Part::Text { text: format!("and {} omega", "delta ".repeat(50)) });
    let old: Vec<Arc<ChatMessage>> = [said(Role::User, "tell me"), answer].map(Arc::new).into();
    let parts = exchanges(&old);
    assert!(parts.len() >= 2 && parts.iter().all(|part| part.text.chars().count() <= 1_800));
    let all = parts.iter().map(|part| part.text.as_str()).collect::<Vec<_>>().join(" ");
    assert_eq!(all.matches("gamma").count(), 200);
    assert!(all.starts_with("The person: tell me") && all.ends_with("omega"), "{all}");
    let many = history(100, 1);
    assert_eq!(messages_of_exchanges(&many, 64), 64 * 4, "whole exchanges");
    assert_eq!(messages_of_exchanges(&many, 100), many.len());
    assert_eq!(messages_of_exchanges(&old, 1), old.len(), "one at least");
}

/// The owner pins a row, and a row may be one result of several.
#[test]
fn pinning_a_result_pins_its_call() {
    let mut seed = seed();
    seed.history = history(12, 100);
    // The third message of the second turn: its result.
    seed.pinned_places = vec![4 + 2];
    let assembled = assemble_context(&config(2_000), &seed, &[], &[], OUTPUT).expect("fits");
    let texts = texts_of(&assembled.request);
    assert!(texts.contains("result 2 abcd") && !texts.contains("result 3 abcd"), "{texts}");
    let pinned = pinned_tokens(&seed.history, &[4 + 2]).get();
    assert!((100..150).contains(&pinned), "{pinned}");
    assert_eq!(pinned, pinned_tokens(&seed.history, &[4 + 1, 4 + 2]).get(), "once");
}

/// A message is measured, and carried, as long as it is; only for a list it is cut.
#[test]
fn a_quoted_message_is_whole() {
    let long = said(Role::User, &"x".repeat(100_000));
    assert_eq!(quote_message(&long), format!("person: {}", "x".repeat(100_000)));
    assert!(describe_message(&long).chars().count() < 7_000);
    assert!(pinned_tokens(&[Arc::new(long)], &[0]) >= Tokens::new(25_000));
}

/// The files of a message join its request later, and are counted from the start.
#[test]
fn the_files_of_a_message_are_counted_with_it() {
    let pages = "<</Type/Page>>".repeat(20);
    let bytes = format!("%PDF-1.4\n{pages}startxref\n9\n%%EOF\n");
    let file = FileRef::describe_file("a.pdf", bytes.as_bytes()).expect("a PDF file");
    let message = |role| Arc::new(said(role, &file.to_line()));
    let sent = pinned_tokens(&[message(Role::User)], &[0]).get();
    assert!(sent > file.estimated_tokens() && sent < file.estimated_tokens() + 100, "{sent}");
    assert!(pinned_tokens(&[message(Role::Assistant)], &[0]).get() < 100, "files come from people");
}

/// Rows: SIL-073 (in part: real counts that are above the estimate fit the budget)
#[test]
fn budgets_shrink_where_a_model_counts_more_than_is_estimated() {
    let config = AgentConfig::default();
    assert_eq!(config.correct_estimates(1_000).context.total_tokens, Tokens::new(180_000));
    assert_eq!(config.correct_estimates(1_500).context.total_tokens, Tokens::new(120_000));
    assert_eq!(config.correct_estimates(100_000).context.total_tokens, Tokens::new(45_000));
    let narrow = config.narrow_to(Tokens::new(2_048)).correct_estimates(4_000);
    assert!(narrow.context.validate_context().is_ok(), "{narrow:?}");
}

/// Rows: SIL-072
#[test]
fn the_shares_of_every_profile_are_those_that_are_documented() {
    let config = ContextConfig::default();
    let shares = |name: &str| {
        let profile = config.profile_named(name);
        [profile.chronicle_pct, profile.memory_pct, profile.workspace_pct]
            .map(|share| share.share_of(config.total_tokens).get())
    };
    let expected = [
        ("conversation", [81_000, 36_000, 27_000]),
        ("coding", [36_000, 36_000, 72_000]),
        ("research", [36_000, 72_000, 36_000]),
        ("support", [72_000, 45_000, 27_000]),
        ("planning", [27_000, 45_000, 63_000]),
    ];
    for (name, zones) in expected {
        assert_eq!(shares(name), zones, "{name}");
    }
    for missing in ["chronicle_pct", "memory_pct", "workspace_pct"] {
        let mut own = json!({ "chronicle_pct": 0.4, "memory_pct": 0.2, "workspace_pct": 0.2 });
        assert!(serde_json::from_value::<Profile>(own.clone()).is_ok());
        own.as_object_mut().expect("a table").remove(missing);
        assert!(serde_json::from_value::<Profile>(own).is_err(), "{missing}");
    }
}
