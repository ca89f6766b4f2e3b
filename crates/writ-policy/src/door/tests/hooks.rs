//! Verdicts of hooks at the door.

use writ_types::action::{Action, ActionKind};
use writ_types::entry::{DenyReason, GateVerdict};

use crate::door::Verdicts;
use crate::fixture::{
    DoorStop, World, all_grants, exec, forbid_all, permit_all, prepared, project_write, shipped,
};

/// Plays every verdict of a hook on an action that rules and keys permit, on one that is approved in advance, on one that needs
/// an approval, and on one that a rule forbids: `deny` and `halt` are final, and `allow` permits nothing by itself.
///
/// Rows: SF-500
///
/// Rows: SF-501 (in part)
#[test]
fn a_denial_of_a_hook_is_final_and_its_consent_permits_nothing() {
    let write = || Action::WriteFile(project_write(&["b.txt"]));
    let actions = || {
        [
            ("listed", Action::Exec(exec()), permit_all(), false),
            ("listed", write(), shipped(), true),
            ("asked about", write(), shipped(), false),
            ("forbidden", Action::Exec(exec()), forbid_all(), false),
        ]
    };
    for (word, verdict) in [
        ("allow", GateVerdict::Pass),
        ("abstain", GateVerdict::Pass),
        ("ask", GateVerdict::RequireApproval),
        ("deny", GateVerdict::Block),
        ("halt", GateVerdict::Halt),
    ] {
        for (standing, action, rules, preapproved) in actions() {
            let mut world = World::new(rules);
            if preapproved {
                world.task.grants = all_grants().preapprove_kind(ActionKind::WriteFile);
            }
            world.verdicts = Verdicts { gates: vec![("hook h".into(), verdict, word.into())] };
            let found = match world.decide(prepared(action)) {
                Ok(_) => "permit",
                Err(DoorStop::Ask(_)) => "ask",
                Err(DoorStop::Deny(denial)) if denial.reason == DenyReason::Gate => "denied by the hook",
                Err(DoorStop::Deny(denial)) if denial.reason == DenyReason::Halt => "halted by the hook",
                Err(DoorStop::Deny(_)) => "denied by others",
            };
            let expected = match (word, standing) {
                ("deny", _) => "denied by the hook",
                ("halt", _) => "halted by the hook",
                (_, "forbidden") => "denied by others",
                ("ask", _) | (_, "asked about") => "ask",
                (_, _) => "permit",
            };
            assert_eq!(found, expected, "{word}, {standing}");
        }
    }
}
