use writ_plan::check::check_plan;

use super::*;

const PLAN: &str = "---\nid: a\ntype: task\ntitle: T\n---\n# What to do\nx\n";

/// Rows: SIL-206 (in part: kind and trace of a message; an unknown kind is none)
#[test]
fn kinds_and_traces_are_read_from_ids() {
    for kind in PlannerMessage::ALL {
        let id = kind.write_id("turn/call");
        assert_eq!(PlannerMessage::read_id(&id), Some((kind, "turn/call")));
    }
    for other in ["", "plan_request", "user_message/x", "PLAN_REQUEST/x"] {
        assert_eq!(PlannerMessage::read_id(other), None, "{other}");
    }
}

/// Rows: SIL-063 SIL-064 (in part: of the planner)
#[test]
fn a_wrong_plan_is_asked_for_once_more_and_then_the_fallback_counts() {
    let judge = |id: &str, text: &str, tries| judge_answer(id, ("mend it", text), tries, &|_| Ok(()));
    assert_eq!(judge("plan_request/t", PLAN, 0), TextVerdict::Pass);
    let TextVerdict::Again { note: Some(note), attempts: 1, .. } = judge("plan_request/t", "Sure!", 0) else {
        panic!("it is asked for once more");
    };
    assert!(note.contains("no front matter") && note.contains("line 1"), "{note}");
    assert_eq!(judge("replan_request/t", "Sure!", 1), TextVerdict::Pass, "a person decides then");
    let TextVerdict::Transform { text } = judge("plan_request/t", "Sure!", 1) else { panic!("the fallback") };
    assert_eq!(read_plan(&text).expect("a plan"), fallback_plan("mend it"));
    assert_eq!(judge("plan_request/t", "Sure!", 1), TextVerdict::Transform { text }, "the same each time");
    let refused = judge_answer("plan_request/t", ("mend it", PLAN), 0, &|_| Err("no tool 'x'".to_owned()));
    assert!(matches!(refused, TextVerdict::Again { note: Some(note), .. } if note.contains("no tool 'x'")));
    assert_eq!(judge("consult_planner/t", "Look at the log.", 0), TextVerdict::Pass, "guidance is no plan");
}

/// Whatever is asked for, the fallback is a plan that is read again.
#[test]
fn the_fallback_is_always_a_plan() {
    for request in [
        "",
        "mend it",
        "a\n# What to do\nb",
        "```\nopen",
        "---\nid: x",
        "tab\there",
        "old\rlines\r\rof text\r\n",
        "bell\u{7} \u{85} \u{2028}",
        "\u{0}\u{202e}x",
        &"é ".repeat(4_000),
    ] {
        let plan = fallback_plan(request);
        assert_eq!(check_plan(&plan), Ok(()), "{request:?}");
        assert_eq!(read_plan(&write_plan(&plan)), Ok(plan), "{request:?}");
    }
}
