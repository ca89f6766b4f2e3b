use super::*;
use crate::phase::{MoveCause, check_move};
use PilotPhase as Is;

const SMALL: &str = r#"phases = ["plan", "execute", "complete"]"#;

fn mistake(text: &str) -> (usize, String, String) {
    let error = parse_workflow("mine", text).unwrap_err();
    assert_eq!(error.report().exit, Exit::Config);
    (error.line, error.problem, error.hint)
}

fn built_in(name: &str) -> PhaseFlow {
    built_in_workflows().unwrap().into_iter().map(|(flow, _)| flow).find(|flow| flow.name == name).unwrap()
}

/// Rows: SF-089
/// Rows: SF-090 SF-091 (in part: the phases; the halt and the run: the suite's tests)
#[test]
fn five_workflows_are_built_in() {
    let all = built_in_workflows().unwrap();
    let names: Vec<&str> = all.iter().map(|(flow, _)| flow.name.as_str()).collect();
    assert_eq!(names, ["feature", "bugfix", "release", "spike", "docs"]);
    let feature = built_in("feature");
    assert_eq!(
        feature.phases,
        [Is::Research, Is::Plan, Is::Execute, Is::Tdd, Is::Verify, Is::Review, Is::Merge, Is::Complete]
    );
    assert!(feature.require_tdd && feature.require_review && !feature.require_uat);
    assert_eq!((feature.max_retries, feature.max_reassess), (3, 2));
    for (from, cause) in Is::ALL.into_iter().flat_map(|from| MoveCause::ALL.map(|cause| (from, cause))) {
        assert!(check_move(&feature.phases, from, Is::Uat, cause).is_err(), "{from} {cause:?}");
    }
    let release = built_in("release");
    assert_eq!(
        release.phases,
        [
            Is::Research,
            Is::Plan,
            Is::Execute,
            Is::Tdd,
            Is::Verify,
            Is::Review,
            Is::Uat,
            Is::Merge,
            Is::Complete
        ]
    );
    assert!(release.require_tdd && release.require_review && release.require_uat);
    assert_eq!(release.max_retries, 3);
    let spike = built_in("spike");
    assert_eq!(spike.phases, [Is::Research, Is::Plan, Is::Execute, Is::Complete]);
    assert!(!spike.require_tdd && !spike.require_review && !spike.require_uat);
    assert_eq!(spike.max_retries, 0);
    let at = |phase: Is| built_in("bugfix").phases.iter().position(|other| *other == phase);
    assert!(at(Is::Tdd) < at(Is::Execute), "the failing test comes first");
}

/// Rows: SF-087 (in part: what is read)
#[test]
fn a_workflow_has_all_its_fields() {
    let text = "name = \"mine\"\nphases = [\"plan\", \"execute\", \"tdd\", \"review\", \"uat\", \"complete\"]\n\
                require_tdd = true\nrequire_review = true\nrequire_uat = true\nmax_retries = 5\nmax_reassess = 1\n";
    let flow = parse_workflow("mine", text).unwrap();
    assert_eq!(flow.phases, [Is::Plan, Is::Execute, Is::Tdd, Is::Review, Is::Uat, Is::Complete]);
    assert!(flow.require_tdd && flow.require_review && flow.require_uat);
    assert_eq!((flow.max_retries, flow.max_reassess), (5, 1));
    let defaults = parse_workflow("mine", SMALL).unwrap();
    assert_eq!((defaults.max_retries, defaults.max_reassess), (DEFAULT_RETRIES, DEFAULT_REASSESS));
}

/// Each broken file: the line, the mistake, the hint.
///
/// Rows: SF-088 SF-093 (in part: what is refused)
#[test]
fn a_broken_workflow_is_refused_with_its_line_and_a_hint() {
    let (line, problem, hint) = mistake(&format!("{SMALL}\n\nmax_retry = 3\n"));
    assert_eq!((line, hint.as_str()), (3, "'max_retries' is probably meant"));
    assert!(problem.contains("unknown field `max_retry`"), "{problem}");
    let phases = |list: &str| format!("# mine\nphases = [\n{list}\n]\n");
    for (text, line, problem, hint) in [
        (phases("\"plan\",\n\"exceute\", \"complete\""), 4, "'exceute' is no phase", "'execute' is probably"),
        (
            phases("\"execute\", \"uat\", \"complete\""),
            3,
            "uat without `require_uat = true`",
            "add `require_uat",
        ),
        (phases("\"execute\", \"plan\", \"complete\""), 3, "plan cannot follow execute", "order"),
        (phases("\"execute\", \"execute\", \"complete\""), 3, "execute is there twice", "once"),
        (
            phases("\"execute\", \"reassess\", \"complete\""),
            3,
            "reassess is no step of a workflow",
            "leave it out",
        ),
        (phases("\"plan\", \"execute\""), 2, "the last phase is not complete", "end the list"),
        (phases("\"plan\", \"complete\""), 2, "no phase does the work", "execute"),
        (phases(""), 2, "the last phase is not complete", "end the list"),
        (format!("{SMALL}\nrequire_tdd = true"), 2, "`require_tdd` without the phase tdd", "add \"tdd\""),
        (format!("{SMALL}\nrequire_review = true"), 2, "`require_review` without the phase review", "add"),
        (format!("{SMALL}\nmax_retries = 21"), 2, "`max_retries` is above 20", "fewer"),
        (
            "phases = [\"execute\", \"complete\"]\nmax_reassess = 1".to_owned(),
            2,
            "a new plan needs the phase plan",
            "add `plan`",
        ),
        (
            format!("name = \"other\"\n{SMALL}"),
            1,
            "its name is 'other', but its file is 'mine.toml'",
            "same name",
        ),
    ] {
        let (found_line, found, found_hint) = mistake(&text);
        assert_eq!((found_line, found.as_str()), (line, problem), "{text}");
        assert!(found_hint.contains(hint), "{found_hint}");
    }
    for (text, line, part) in [
        ("phases = 3", 1, "`phases`: invalid type"),
        ("\nphases = [\"plan\"\nmax", 3, ""),
        ("", 1, "missing field `phases`"),
        (&format!("{SMALL}\nrequire_uat = \"yes\""), 2, "`require_uat`: invalid type"),
        (&format!("{SMALL}\nmax_retries = -1"), 2, "`max_retries`: invalid value"),
    ] {
        let (found_line, problem, _) = mistake(text);
        assert_eq!(found_line, line, "{text}: {problem}");
        assert!(problem.contains(part), "{problem}");
    }
    let long = format!("{SMALL}\n#{}", "x".repeat(MAX_WORKFLOW_BYTES));
    assert_eq!(mistake(&long).1, "it has more than 16384 bytes");
}

/// The fourth resolution: acceptance comes before the merge, else before the end.
#[test]
fn acceptance_that_is_required_and_not_listed_gets_its_place() {
    let flow = |phases: &str| {
        parse_workflow("mine", &format!("phases = [{phases}, \"complete\"]\nrequire_uat = true"))
            .unwrap()
            .phases
    };
    assert_eq!(flow(r#""execute", "merge""#), [Is::Execute, Is::Uat, Is::Merge, Is::Complete]);
    assert_eq!(flow(r#""execute""#), [Is::Execute, Is::Uat, Is::Complete]);
    assert_eq!(flow(r#""execute", "merge", "uat""#), [Is::Execute, Is::Merge, Is::Uat, Is::Complete]);
}

/// Rows: SF-096
#[test]
fn the_workflow_is_that_of_the_unit_then_of_the_project_then_feature_then_the_first() {
    let all = ["zeta", "feature", "docs"];
    assert_eq!(choose_workflow(Some("docs"), Some("zeta"), &all), Ok("docs"));
    assert_eq!(choose_workflow(None, Some("zeta"), &all), Ok("zeta"));
    assert_eq!(choose_workflow(None, None, &all), Ok("feature"));
    assert_eq!(choose_workflow(None, None, &["zeta", "docs"]), Ok("docs"));
    let missing = choose_workflow(Some("gone"), Some("zeta"), &all).unwrap_err();
    assert_eq!(missing.report().code, "pilot.missing_workflow_file");
    assert_eq!(missing, MissingWorkflow("gone".to_owned()));
    assert!(choose_workflow(None, None, &[]).is_err());
}

/// Rows: SF-098 (the digest; the pinned text needs the store)
#[test]
fn the_digest_is_that_of_the_bytes() {
    let flow = parse_workflow("mine", SMALL).unwrap();
    assert_eq!(flow.digest, Digest::of_bytes(SMALL.as_bytes()));
    assert_ne!(parse_workflow("mine", &format!("{SMALL} ")).unwrap().digest, flow.digest);
}
