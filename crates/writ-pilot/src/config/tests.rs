use std::os::unix::fs::PermissionsExt as _;

use writ_autopilot::attempt::RunEnd;
use writ_autopilot::ceiling::CeilingScope;
use writ_autopilot::check::counts::ReportFormat;
use writ_autopilot::hook::HookKind;
use writ_autopilot::machine::{AttemptReport, UnitEvent, apply_event};
use writ_autopilot::schedule::next_try_at;
use writ_autopilot::stand::UnitStand;
use writ_autopilot::workflow::{PhaseFlow, parse_workflow};
use writ_types::unit::{MicroUsd, Timestamp};

use super::*;

fn read(text: &str) -> Result<PilotConfig, PilotConfigError> {
    read_config(&[(CONFIG_FILE, text)])
}

/// The line, the key and the message of a mistake; its exit code is that of a configuration.
fn mistake(text: &str) -> (usize, String, String) {
    let error = read(text).unwrap_err();
    assert_eq!(error.report().exit, Exit::Config, "{text}");
    assert!(!error.hint.is_empty(), "{text}");
    assert!(error.to_string().starts_with(&format!("{CONFIG_FILE}, line {}: ", error.line)));
    (error.line, error.key.clone(), format!("{}; {}", error.problem, error.hint))
}

/// The file of the owner, beside the home's configuration.
const OWN: &str = "/home/me/pilot.toml";
const SECOND: Duration = Duration::from_secs(1);

fn small_flow() -> PhaseFlow {
    parse_workflow("mine", "phases = [\"execute\", \"complete\"]").unwrap()
}

/// Rows: SF-135 SF-139 SF-302
#[test]
fn an_empty_file_gives_the_defaults() {
    let config = read("").unwrap();
    assert_eq!(config, PilotConfig::default());
    assert_eq!(read_config(&[]).unwrap(), config);
    let times = &config.times;
    assert_eq!((times.unit, times.turn), (600 * SECOND, 300 * SECOND));
    assert_eq!(config.supervisor.stall_timeout, 120 * SECOND);
    assert_eq!((times.abort.grace, times.abort.kill), (5 * SECOND, 3 * SECOND));
    assert_eq!((times.supervisor_interval, times.max_backoff), (10 * SECOND, 300 * SECOND));
    assert_eq!(times.poll_interval, SECOND);
    assert_eq!((config.limits.max_attempts, config.max_turns), (6, 50));
    // The sixth failure in a row ends the tries; the longest pause bounds each.
    let (mut stand, flow) = (UnitStand::at_start(&[PilotPhase::Execute]), small_flow());
    let failed = AttemptReport { end: RunEnd::Failure, marker: None, has_progress: false, is_met: false };
    let mut pauses = Vec::new();
    for _ in 0..6 {
        stand = apply_event(&flow, &config.limits, &stand, &UnitEvent::Dispatch).unwrap().stand;
        let made = apply_event(&flow, &config.limits, &stand, &UnitEvent::End(failed)).unwrap();
        let next = next_try_at(made.next, 30 * SECOND, None, Timestamp::from_millis(0));
        pauses.push((made.stand.phase.name(), next.map(|at| at.as_millis() / 1_000)));
        stand = made.stand;
    }
    let tries = [20, 30, 30, 30, 30].map(|seconds| ("execute", Some(seconds)));
    assert_eq!((&pauses[..5], pauses[5].0), (&tries[..], "reassess"));
    let set = read("[pilot]\nmax_retry_backoff = \"30s\"\nmax_attempts = 2").unwrap();
    assert_eq!((set.times.max_backoff, set.limits.max_attempts), (30 * SECOND, 2));
    let caps: Vec<(&str, u32)> =
        config.agents.by_phase.iter().map(|(phase, cap)| (phase.name(), *cap)).collect();
    assert_eq!(caps, [("execute", 4), ("tdd", 4), ("verify", 10), ("review", 4), ("merge", 1)]);
    assert_eq!(config.agents.max_agents, 10);
    assert!(config.ceilings.is_empty() && config.gates.is_empty() && config.tiers.is_empty());
    let (line, key, text) = mistake("[pilot]\n\nturn_timeout = \"soon\"\n");
    assert_eq!((line, key.as_str()), (3, "pilot.turn_timeout"));
    assert!(text.contains("is not a time: 'soon'; write a number with its unit"), "{text}");
    for text in ["max_agents = 0", "max_agents = -1", "max_agents_by_phase.execute = 0"] {
        assert_eq!(mistake(&format!("[pilot.concurrency]\n{text}")).0, 2, "{text}");
    }
}

/// Rows: SF-305 (in part: the values; the ends at these times are the supervisor's)
#[test]
fn phases_have_their_own_times() {
    let times = PilotTimes::default();
    let minutes: Vec<Option<u64>> = PilotPhase::ALL
        .iter()
        .map(|phase| times.unit_timeout(*phase).map(|time| time.as_secs() / 60))
        .collect();
    // Research, plan, execute, tdd, verify, review, merge, complete, reassess, uat.
    let all = [30, 20, 15, 10, 10, 15, 5, 10, 20].map(Some);
    assert_eq!(minutes, [&all[..], &[None]].concat());
    let config = read("[pilot.unit_timeout_by_phase]\nexecute = \"90s\"\nuat = \"2d\"").unwrap();
    assert_eq!(config.times.unit_timeout(PilotPhase::Execute), Some(90 * SECOND));
    assert_eq!(config.times.unit_timeout(PilotPhase::Uat), Some(172_800 * SECOND));
    assert_eq!(
        read("[pilot.unit_timeout_by_phase]\nuat = \"0\"").unwrap().times.unit_timeout(PilotPhase::Uat),
        None
    );
    assert!(mistake("[pilot.unit_timeout_by_phase]\nexecute = \"0\"").2.contains("is not from"));
}

/// Rows: SF-303 (in part: the values, without the hot cache; the cut after turn 50 needs the worker)
#[test]
fn limits_are_read_and_parts_are_parts() {
    let config = read("").unwrap();
    assert!((config.supervisor.compact_at - 0.80).abs() < 1e-9);
    assert!((config.context_hard_limit - 0.95).abs() < 1e-9);
    let text = "[pilot]\nmax_attempts = 3\nmax_idle_ends = 2\nmax_dispatches = 20\nmax_base_moves = 4\nmax_turns_per_attempt = 9\n\
        context_compact_at = 0.5\n[pilot.supervisor]\nfruitless_turns = 7\nsilent_turns = 4\nrepeats = 5\nidle_turns = 6";
    let config = read(text).unwrap();
    let limits = UnitLimits {
        max_attempts: 3,
        max_idle_ends: 2,
        max_dispatches: 20,
        max_base_moves: 4,
        reassess_conflicts: false,
    };
    assert_eq!((config.limits, config.max_turns), (limits, 9));
    let seen = config.supervisor;
    assert_eq!((seen.fruitless_turns, seen.silent_turns, seen.repeats, seen.idle_turns), (7, 4, 5, 6));
    assert!(mistake("[pilot]\ncontext_compact_at = 1.5").2.contains("is not between 0 and 1"));
    assert!(mistake("[pilot]\ncontext_compact_at = nan").2.contains("is not between 0 and 1"));
    assert!(mistake("[pilot]\ncontext_compact_at = 0.96").2.contains("leaves no room"));
    assert!(mistake("[pilot]\ncontext_hard_limit = 0.8").2.contains("leaves no room"));
}

/// Rows: SF-229
/// Rows: SF-304
/// Rows: SF-219 (in part: off by default)
/// Rows: SF-166 (in part: an invalid setting; the limits of each mode need the worker)
#[test]
fn switches_have_few_values() {
    for (text, mode) in [
        ("branch-per-slice", WorktreeMode::BranchPerSlice),
        ("milestone-per-worktree", WorktreeMode::MilestonePerWorktree),
    ] {
        assert_eq!(read(&format!("[pilot]\nworktree_mode = \"{text}\"")).unwrap().worktree_mode, mode);
    }
    for (text, answer) in
        [("soft", InputRequired::Soft), ("hard", InputRequired::Hard), ("ask", InputRequired::Ask)]
    {
        assert_eq!(
            read(&format!("[pilot]\nturn_input_required = \"{text}\"")).unwrap().input_required,
            answer
        );
    }
    let config = read("").unwrap();
    assert_eq!(
        (config.worktree_mode, config.input_required),
        (WorktreeMode::BranchPerSlice, InputRequired::Soft)
    );
    for (text, sync) in [
        ("", DocSync::Asked),
        ("doc_sync = true", DocSync::Asked),
        ("doc_sync = false", DocSync::Off),
        ("doc_sync_auto_approve = true", DocSync::Unasked),
        ("doc_sync = false\ndoc_sync_auto_approve = true", DocSync::Off),
    ] {
        assert_eq!(read(&format!("[pilot]\n{text}")).unwrap().doc_sync, sync, "{text}");
    }
    assert!(read("[pilot]\nmerge_conflict = \"reassess\"").unwrap().limits.reassess_conflicts);
    let (line, key, text) = mistake("[pilot]\nturn_input_required = \"maybe\"");
    assert_eq!((line, key.as_str()), (2, "pilot.turn_input_required"));
    assert!(
        text.contains("`pilot.turn_input_required` has no value 'maybe'; one of soft, hard, ask"),
        "{text}"
    );
    assert!(
        mistake("[pilot]\nworktree_mode = \"branch_per_slice\"")
            .2
            .contains("'branch-per-slice' is probably meant")
    );
    assert!(mistake("[pilot]\ndoc_sync = \"yes\"").2.contains("is of type string, not true or false"));
}

/// Rows: SF-318 (in part: a misspelled key; not all five keys are here)
/// Rows: SF-326 (in part: unknown keys and bad values, but for those of hooks)
#[test]
fn unknown_keys_are_refused_at_every_level_with_the_nearest_name() {
    for (text, path, near) in [
        ("[pilot]\nmax_attempt = 2", "pilot.max_attempt", "'max_attempts' is probably meant"),
        ("[routing]\nexecutee = \"fast\"", "routing.executee", "'execute' is probably meant"),
        ("[routing]\nuat = \"fast\"", "routing.uat", "here are possible: research, plan"),
        ("[tiers.ultra]\nmodels = [\"a\"]", "tiers.ultra", "here are possible: fast, standard, reasoning"),
        ("[tiers.fast]\nmodel = [\"a\"]", "tiers.fast.model", "'models' is probably meant"),
        (
            "[pilot.concurrency.max_agents_by_phase]\nmerg = 1",
            "pilot.concurrency.max_agents_by_phase.merg",
            "'merge'",
        ),
        ("[pilot.ceilings]\nday_usd = 1", "pilot.ceilings.day_usd", "here are possible: run_micro_usd"),
        ("[pilots]\nx = 1", "pilots", "'pilot' is probably meant"),
        ("[[gate]]\nname = \"a\"\nrun = [\"true\"]\ntimeout = 3", "gate.timeout", "'timeout_secs'"),
        ("[[gate]]\nname = \"a\"\nrun = [\"true\"]\n\"a\\u0007\" = 3", "gate.a ", "here are possible"),
    ] {
        let (_, key, message) = mistake(text);
        assert_eq!(key, path, "{text}");
        assert!(message.contains(&format!("unknown key `{path}`")) && message.contains(near), "{message}");
    }
}

/// Rows: SF-325 (in part: the error; nothing is started before it, which needs the command)
#[test]
fn bad_values_name_file_line_and_key() {
    for (text, line, part) in [
        ("[pilot]\nunit_timeout = -1", 2, "`pilot.unit_timeout` is not a time in quotes"),
        ("[pilot]\nunit_timeout = \"-1s\"", 2, "is not a time"),
        ("[pilot]\nunit_timeout = \"99999999999999999999d\"", 2, "is not a time"),
        ("[pilot]\nunit_timeout = \"9999999999999999d\"", 2, "is not a time"),
        ("[pilot]\nunit_timeout = \"8d\"", 2, "is not from 1000 ms to 604800 s"),
        ("[pilot]\npoll_interval = \"0\"", 2, "is not from 100 ms"),
        ("\n\n[pilot\n", 3, "this is not TOML"),
        ("[pilot]\nmax_attempts = 1\nmax_attempts = 2", 3, "this is not TOML"),
        ("pilot = 3", 1, "is of type integer, not a section"),
        ("[pilot]\nmax_attempts = 99999999999999999999", 2, "is not from 1 to 10000"),
        ("[pilot]\nmax_attempts = 1.5", 2, "is of type float, not a whole number"),
        ("[pilot]\ntarget_branch = \"a..b\"", 2, "names no branch"),
        ("[pilot]\ndefault_workflow = \"../x\"", 2, "names no workflow"),
        ("[pilot]\nworkspace_root = \"../x\"", 2, "is no folder below the project"),
        ("[pilot]\nworkspace_root = \"/tmp\"", 2, "is no folder below the project"),
        ("[pilot]\nworkspace_root = \".GIT/x\"", 2, "is no folder below the project"),
        ("[pilot.concurrency.max_agents_by_phase]\nmerge = 2", 2, "at most one merge runs at a time"),
        ("[routing]\nplan = \"ultra\"", 2, "has no value 'ultra'"),
        ("[tiers.fast]\nmodels = []", 2, "has not 1 to 16 names"),
        ("[tiers.fast]\nmodels = [\"a\\n\"]", 2, "no name of a model"),
        ("[tiers.fast]\nmodels = [1]", 2, "not a list of text"),
        ("gate = 3", 1, "not a list of sections `[[gate]]`"),
        ("gate = [3]", 1, "not a list of sections"),
    ] {
        let (seen, _, message) = mistake(text);
        assert_eq!(seen, line, "{text}: {message}");
        assert!(message.contains(part), "{text}: {message}");
    }
    assert!(mistake(&"#".repeat(MAX_CONFIG_BYTES + 1)).2.contains("more than 262144 bytes"));
}

/// Rows: SF-301 (in part: all keys but ceilings of money, of which the lower holds)
#[test]
fn a_key_of_the_project_beats_the_same_key_of_the_owner_but_for_ceilings() {
    let owner = "[pilot]\nunit_timeout = \"1m\"\nmax_attempts = 3\n[pilot.concurrency]\nmax_agents = 3\n\
        [pilot.ceilings]\nday_micro_usd = 500\nrun_micro_usd = 9\n[routing]\nverify = \"standard\"\n[[gate]]\nname = \"a\"\nrun = [\"a\"]";
    let project = "[pilot]\nmax_attempts = 4\n[pilot.concurrency.max_agents_by_phase]\nverify = 2\n\
        [pilot.ceilings]\nday_micro_usd = 9_000\nrun_micro_usd = 4\nunit_micro_usd = 77";
    let config = read_config(&[("owner", owner), (CONFIG_FILE, project)]).unwrap();
    assert_eq!((config.times.unit, config.limits.max_attempts), (60 * SECOND, 4));
    assert_eq!((config.agents.max_agents, config.agents.by_phase[&PilotPhase::Verify]), (3, 2));
    assert_eq!(config.routing[&PilotPhase::Verify], PilotTier::Standard);
    let gates: Vec<&str> = config.gates.iter().map(|gate| gate.name.as_str()).collect();
    assert_eq!(gates, ["a"]);
    let ceilings: Vec<(CeilingScope, u64)> =
        config.ceilings.iter().map(|(scope, money)| (*scope, money.get())).collect();
    assert_eq!(ceilings, [(CeilingScope::Run, 4), (CeilingScope::Unit, 77), (CeilingScope::Day, 500)]);
    // A mistake is that of its own file.
    let error = read_config(&[("owner", "[pilot]\nx = 1"), (CONFIG_FILE, project)]).unwrap_err();
    assert_eq!((error.file.as_str(), error.line), ("owner", 2));
}

/// Rows: SF-316 (in part: the table; the dispatch needs the worker)
/// Rows: SF-342
#[test]
fn phases_have_tiers_and_tiers_have_models() {
    let tier_of = |config: &PilotConfig| -> Vec<(&str, &str)> {
        config.routing.iter().map(|(phase, tier)| (phase.name(), tier.name())).collect()
    };
    let default = [
        ("research", "reasoning"),
        ("plan", "reasoning"),
        ("execute", "standard"),
        ("tdd", "standard"),
        ("verify", "fast"),
        ("review", "standard"),
        ("merge", "fast"),
        ("complete", "fast"),
        ("reassess", "reasoning"),
    ];
    assert_eq!(tier_of(&read("").unwrap()), default);
    let config =
        read("[routing]\nverify = \"standard\"\n[tiers.standard]\nmodels = [\"m1\", \"m2\"]").unwrap();
    let mut expected = default;
    expected[4].1 = "standard";
    assert_eq!(tier_of(&config), expected);
    assert_eq!(config.models_of(PilotPhase::Verify, 0, false).1, ["m1", "m2"]);
    assert_eq!(config.models_of(PilotPhase::Plan, 0, false).1, [""; 0]);
    assert_eq!(PilotTier::ALL.map(PilotTier::name), ["fast", "standard", "reasoning"]);
    assert_eq!(mistake("[routing]\nplan = \"ultra\"").1, "routing.plan");
    assert_eq!(mistake("[tiers.ultra]\nmodels = [\"m1\"]").1, "tiers.ultra");
}

const GATES: &str = r#"
[[gate]]
name = "test"
run = ["cargo", "test", ""]
at = "task"
report = "cargo"
timeout_secs = 60
max_retries = 1

[[gate]]
name = "lint"
script = ".writ/gates/lint.sh"
required = false

[[gate]]
name = "whole"
run = ["make"]
at = "merge"
report = "junit_xml"
report_file = "out/report.xml"
"#;

/// Rows: SF-311 SF-240 SF-244 SF-252 (in part: the lists, the numbers and their defaults; the runs need the worker)
#[test]
fn gates_are_read_with_their_moment_and_their_report() {
    let config = read(GATES).unwrap();
    let [test, lint, whole] = &config.gates[..] else { panic!("three gates") };
    assert_eq!(test.command, GateCommand::Run(["cargo", "test", ""].map(str::to_owned).to_vec()));
    assert_eq!((test.at, test.runs_tests, test.report), (GateMoment::Task, true, Some(ReportFormat::Cargo)));
    assert_eq!((test.timeout, test.required, test.max_retries), (60 * SECOND, true, Some(1)));
    assert_eq!(lint.command, GateCommand::Script(".writ/gates/lint.sh".to_owned()));
    assert_eq!(
        (lint.at, lint.runs_tests, lint.report, lint.timeout),
        (GateMoment::Slice, false, None, 300 * SECOND)
    );
    assert_eq!((lint.required, lint.max_retries), (false, None));
    assert_eq!((whole.at, whole.report_file.as_deref()), (GateMoment::Merge, Some("out/report.xml")));
    assert_eq!((whole.origin.0.as_str(), whole.origin.1), (CONFIG_FILE, 15));
    let at_slice: Vec<&str> = config.gates_at(GateMoment::Slice).map(|gate| gate.name.as_str()).collect();
    assert_eq!(at_slice, ["lint"]);
}

/// A person may say that what looks like tests runs none; then it shows nothing about tests.
#[test]
fn a_gate_without_a_report_counts_as_tests_by_its_words_alone() {
    let config =
        read("[[gate]]\nname = \"a\"\nrun = [\"cargo\", \"test\", \"--no-run\"]\nruns_tests = false")
            .unwrap();
    assert!(!config.gates[0].runs_tests);
    assert!(!read("[[gate]]\nname = \"a\"\nrun = [\"cargo\", \"build\"]").unwrap().gates[0].runs_tests);
}

/// Rows: SF-249 (in part: what the file alone shows)
#[test]
fn gates_that_could_not_run_or_never_pass_are_refused() {
    let all = |lines: &str| format!("# gates\n[[gate]]\n{lines}");
    for (lines, part) in [
        ("run = [\"a\"]", "has no name that can be used"),
        ("name = \"a/b\"\nrun = [\"a\"]", "has no name that can be used"),
        ("name = \"a\"", "has neither `run` nor `script`"),
        ("name = \"a\"\nrun = [\"a\"]\nscript = \"b\"", "has both `run` and `script`"),
        ("name = \"a\"\nrun = []", "is no command of 1 to 64 words"),
        ("name = \"a\"\nrun = [\" \"]", "is no command"),
        ("name = \"a\"\nrun = \"cargo test\"", "not a list of text"),
        ("name = \"a\"\nscript = \"../b\"", "is no path in the project"),
        ("name = \"a\"\nscript = \"/b\"", "is no path in the project"),
        ("name = \"a\"\nrun = [\"a\"]\nat = \"never\"", "has no value 'never'"),
        ("name = \"a\"\nrun = [\"a\"]\nreport = \"gotest\"", "'go_test' is probably meant"),
        ("name = \"a\"\nrun = [\"a\"]\nreport_file = \"x\"", "without `report`"),
        ("name = \"a\"\nrun = [\"a\"]\nruns_tests = true", "runs tests, but has no `report`"),
        ("name = \"a\"\nrun = [\"cargo\", \"test\"]", "names tests, but has no `report` to count them by"),
        ("name = \"a\"\nrun = [\"sh\", \"-c\", \"npm test\"]", "names tests, but has no `report`"),
        ("name = \"a\"\nrun = [\"a\"]\nreport = \"tap\"\nreport_file = \"/x\"", "is no path in the project"),
        ("name = \"a\"\nrun = [\"a\"]\ntimeout_secs = 0", "is not from 1 to 86400"),
        ("name = \"a\"\nrun = [\"a\"]\nmax_retries = 21", "is not from 0 to 20"),
        ("name = \"a\"\nrun = [\"a\"]\n[[gate]]\nname = \"A\"\nrun = [\"b\"]", "'A' is there twice"),
    ] {
        let (line, _, message) = mistake(&all(lines));
        assert!(message.contains(part), "{lines}: {message}");
        assert!(line >= 2, "{lines}");
    }
    let many: String =
        (0..=MAX_GATES).map(|n| format!("[[gate]]\nname = \"g{n}\"\nrun = [\"a\"]\n")).collect();
    assert!(mistake(&many).2.contains("more than 32 times"));
}

/// Rows: SF-249 (in part: the check; the start needs the command)
#[test]
fn scripts_of_gates_are_looked_at_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(path(".writ/gates/b")).unwrap();
    let write = |text: &str| std::fs::write(path(CONFIG_FILE), text).unwrap();
    let script = |name: &str, mode: u32| {
        std::fs::write(path(name), "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let problem = || load_config(None, folder.path()).unwrap_err();
    let one = "[[gate]]\nname = \"lint\"\nscript = \".writ/gates/lint.sh\"\n";
    write(one);
    assert_eq!(
        problem().to_string(),
        ".writ/pilot.toml, line 1: gate 'lint': the script '.writ/gates/lint.sh' is no file of the project"
    );
    script(".writ/gates/lint.sh", 0o644);
    assert!(problem().to_string().contains("cannot be run"));
    script(".writ/gates/lint.sh", 0o755);
    assert_eq!(load_config(None, folder.path()).unwrap().gates.len(), 1);
    script(".writ/gates/b/Lint.py", 0o755);
    write(&format!("{one}[[gate]]\nname = \"other\"\nscript = \".writ/gates/b/Lint.py\"\n"));
    assert_eq!(problem().line, 4);
    assert!(problem().to_string().contains("another script has the base name"));
    std::os::unix::fs::symlink("/bin/true", path(".writ/gates/link")).unwrap();
    write("[[gate]]\nname = \"link\"\nscript = \".writ/gates/link\"\n");
    assert!(problem().to_string().contains("is no file of the project"));
}

#[test]
fn files_that_are_no_text_are_refused_and_missing_ones_say_nothing() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(
        load_config(Some(&folder.path().join("none")), folder.path()).unwrap(),
        PilotConfig::default()
    );
    let owner = folder.path().join("owner.toml");
    std::fs::write(&owner, "\u{feff}[pilot]\nmax_attempts = 2\n").unwrap();
    assert_eq!(load_config(Some(&owner), folder.path()).unwrap().limits.max_attempts, 2);
    std::fs::create_dir_all(folder.path().join(CONFIG_FILE)).unwrap();
    let problem = || load_config(Some(&owner), folder.path()).unwrap_err();
    assert_eq!((problem().file.as_str(), problem().problem.as_str()), (CONFIG_FILE, "it is no file"));
    std::fs::remove_dir(folder.path().join(CONFIG_FILE)).unwrap();
    std::fs::write(folder.path().join(CONFIG_FILE), b"\xff\xfe").unwrap();
    assert_eq!(problem().problem, "it is not UTF-8 text");
}

/// Rows: SF-322 SF-323 (in part: the choice; the warning and the running session need the loop)
#[test]
fn a_session_takes_over_all_but_what_is_fixed_for_it() {
    let old = read("[pilot]\nmax_attempts = 2").unwrap();
    let text = "[pilot]\nmax_attempts = 9\nworktree_mode = \"milestone-per-worktree\"\ncontext_compact_at = 0.5\ncontext_hard_limit = 0.9\n\
        [pilot.supervisor]\nrepeats = 2\n[pilot.ceilings]\nrun_micro_usd = 3";
    let new = read(text).unwrap();
    let live = old.take_live(new.clone());
    assert_eq!((live.limits.max_attempts, live.supervisor.repeats), (9, 2));
    assert_eq!(live.ceilings[&CeilingScope::Run], MicroUsd::new(3));
    assert_eq!(
        (live.worktree_mode, live.context_hard_limit.to_string()),
        (WorktreeMode::BranchPerSlice, "0.95".to_owned())
    );
    assert!((live.supervisor.compact_at - 0.8).abs() < 1e-9);
    let drift: Vec<String> =
        old.list_drift(&new).iter().map(|(name, old, new)| format!("{name} {old} {new}")).collect();
    let expected = [
        "worktree_mode branch-per-slice milestone-per-worktree",
        "context_compact_at 0.8 0.5",
        "context_hard_limit 0.95 0.9",
    ];
    assert_eq!(drift, expected);
    assert_eq!(live.list_drift(&new).len(), 3, "as long as the file differs");
    assert!(new.list_drift(&new).is_empty());
}

/// The times of a tool that is ended, and both shares of the context, are terms of each attempt.
#[test]
fn an_attempt_has_the_settings_of_its_tools_and_its_context() {
    let text = "[pilot]\ntool_abort_grace = \"2s\"\ntool_abort_kill = \"500ms\"\ncontext_compact_at = 0.5\ncontext_hard_limit = 0.9";
    let terms = |text: &str| read(text).unwrap().attempt_terms(PilotPhase::Execute, PilotTier::Standard);
    let (usual, set) = (terms(""), terms(text));
    let times = |grace_ms, kill_ms| Some(ToolEndTimes { grace_ms, kill_ms });
    assert_eq!((usual.tool_end, set.tool_end), (times(5_000, 3_000), times(2_000, 500)));
    let share = |of: f64| Share::try_from(of).ok();
    assert_eq!((usual.evict_above, usual.end_above), (share(0.8), share(0.95)));
    assert_eq!((set.evict_above, set.end_above), (share(0.5), share(0.9)));
}

/// The settings and the workflow that the guide shows are read as they stand there, and say what is the default.
#[test]
fn the_examples_of_the_guide_are_read() {
    let guide = include_str!("../../../../docs/guides/pilot.md");
    let examples: Vec<&str> = guide
        .split("```toml\n")
        .skip(1)
        .filter_map(|rest| rest.split_once("```").map(|(text, _)| text))
        .collect();
    let [settings, hidden, hooks, workflow, own_ship, ship, notify, worker] = examples[..] else {
        panic!("{examples:?}")
    };
    let gate = read_config(&[(CONFIG_FILE, hidden)]).unwrap().gates.remove(0);
    assert_eq!((gate.hidden.as_deref(), gate.min_tests), (Some("leap-year"), 12));
    let hooks = read_config(&[(CONFIG_FILE, hooks)]).unwrap().hooks;
    assert_eq!(hooks.time_limit(HookKind::PostUnit), 120 * SECOND);
    assert!(
        hooks.has(HookKind::PreDispatch) && hooks.has(HookKind::BeforeRun) && hooks.has(HookKind::PostUnit)
    );
    let config = read_config(&[(CONFIG_FILE, settings)]).unwrap();
    let defaults = PilotConfig::default();
    assert_eq!(config.limits, defaults.limits);
    assert_eq!(config.times, defaults.times);
    assert_eq!(config.agents, defaults.agents);
    assert_eq!(
        config.gates.iter().map(|gate| gate.at).collect::<Vec<_>>(),
        [GateMoment::Task, GateMoment::Merge]
    );
    writ_autopilot::workflow::parse_workflow("own", workflow).unwrap();
    let shipped = read_config(&[(OWN, own_ship), (CONFIG_FILE, ship)]).unwrap().ship.unwrap();
    assert_eq!((shipped.at, shipped.token.to_string().as_str()), (ShipMoment::Milestone, "secret:forge"));
    assert!(!read_config(&[(OWN, notify)]).unwrap().notify.is_empty());
    // It belongs into the home's own configuration, which a project's file cannot write.
    assert!(worker.starts_with("[worker]"), "{worker}");
    read_config(&[(CONFIG_FILE, worker)]).expect_err("no setting of a project");
}

/// After some failed tries a stronger tier is asked: the next one that has models, and never a weaker one.
#[test]
fn failed_tries_raise_the_tier() {
    let text = "[pilot]\nescalate_after = 2\n[tiers.fast]\nmodels = [\"f\"]\n[tiers.standard]\nmodels = [\"s\"]\n[tiers.reasoning]\nmodels = [\"r\"]\n";
    let config = read_config(&[("f", text)]).expect("reads");
    let asked = |phase, failed| config.models_of(phase, failed, false).1.join(",");
    let tries = |phase| (0..=5).map(|failed| asked(phase, failed)).collect::<Vec<_>>().join("");
    assert_eq!(tries(PilotPhase::Execute), "ssrrrr");
    assert_eq!(tries(PilotPhase::Verify), "ffssrr");
    assert_eq!(tries(PilotPhase::Plan), "rrrrrr");
    let part = read_config(&[("f", "[tiers.fast]\nmodels = [\"f\"]\n[tiers.reasoning]\nmodels = [\"r\"]\n")]);
    let part = part.expect("reads");
    assert_eq!(
        part.models_of(PilotPhase::Execute, 0, false),
        (PilotTier::Standard, &[][..]),
        "the engine's own"
    );
    assert_eq!(part.models_of(PilotPhase::Execute, 2, false), (PilotTier::Reasoning, &["r".to_owned()][..]));
    assert_eq!(
        part.models_of(PilotPhase::Verify, 2, false).0,
        PilotTier::Fast,
        "a tier without models is none"
    );
}

#[test]
fn hidden_tests_have_a_name_and_a_number_and_are_run_at_the_merge() {
    let gate = |more: &str| format!("[[gate]]\nname = \"h\"\nrun = [\"t\"]\n{more}\n");
    let merge = "at = \"merge\"\nreport = \"unittest\"\n";
    let read_one = |more: &str| read(&gate(more)).unwrap().gates.remove(0);
    let hidden = read_one(&format!("{merge}hidden = \"leap-year\"\nmin_tests = 5"));
    assert_eq!((hidden.hidden.as_deref(), hidden.min_tests), (Some("leap-year"), 5));
    assert_eq!((hidden.report, hidden.runs_tests), (Some(ReportFormat::Unittest), true));
    assert_eq!((read_one(merge).hidden, read_one(merge).min_tests), (None, 0));
    for name in ["", "../x", "/etc", "a/b", "a b"] {
        let (line, key, text) = mistake(&gate(&format!("{merge}hidden = \"{name}\"")));
        assert_eq!((line, key.as_str()), (6, "gate.hidden"), "{name}");
        assert!(text.contains("names no folder of hidden tests"), "{text}");
    }
    for early in ["report = \"tap\"\nhidden = \"h\"", "at = \"merge\"\nhidden = \"h\""] {
        assert!(mistake(&gate(early)).2.contains("is not one of tests at the merge"), "{early}");
    }
    assert!(mistake(&gate("min_tests = 3")).2.contains("runs no tests"));
    assert_eq!(mistake(&gate(&format!("{merge}min_tests = 0"))).1, "gate.min_tests");
}

#[test]
fn protected_paths_lie_in_the_project() {
    let config = read("[pilot]\nprotected_paths = [\"golden\", \"tests/acceptance/\"]\n").unwrap();
    assert_eq!(config.protected_paths, ["golden", "tests/acceptance/"]);
    for path in ["../x", "/etc", "", ".git/config"] {
        let (line, key, _) = mistake(&format!("[pilot]\nprotected_paths = [\"{path}\"]\n"));
        assert_eq!((line, key.as_str()), (2, "pilot.protected_paths"), "{path}");
    }
}

/// A complex unit has the next higher tier, and only that; the weights of the choice are parts of a hundred.
#[test]
fn complexity_raises_the_tier_by_one() {
    let text = "[pilot]\ncomplexity_threshold = 0.4\n[pilot.model_scores]\nquality = 0\nlatency = 0\ncost = 100\nhuman = 1\n\
        [tiers.fast]\nmodels = [\"f\"]\n[tiers.standard]\nmodels = [\"s\"]\n[tiers.reasoning]\nmodels = [\"r\"]\n";
    let config = read(text).unwrap();
    let tiers = [PilotPhase::Verify, PilotPhase::Execute, PilotPhase::Plan]
        .map(|phase| [false, true].map(|is_complex| config.models_of(phase, 0, is_complex).0));
    use PilotTier::{Fast, Reasoning, Standard};
    assert_eq!(tiers, [[Fast, Standard], [Standard, Reasoning], [Reasoning, Reasoning]]);
    let scores = config.scores;
    assert_eq!(
        [config.complexity_threshold, scores.quality, scores.latency, scores.cost, scores.human]
            .map(|one| one.to_string()),
        ["0.4", "0", "0", "1", "1"]
    );
    let usual = read("").unwrap();
    assert_eq!(
        (usual.complexity_threshold.to_string(), usual.scores),
        ("0.6".to_owned(), Default::default())
    );
    assert!(mistake("[pilot.model_scores]\nquality = 101").2.contains("is not from 0 to 100"));
    assert!(mistake("[pilot.model_scores]\nqality = 1").2.contains("'quality' is probably meant"));
}

/// The scripts of hooks are read in their order, with the times of their kinds; an unknown kind and an odd time are refused.
///
/// Rows: SF-309 (in part: the times that are read; there is no doc sync)
#[test]
fn hooks_have_scripts_and_times() {
    let config = read("").unwrap();
    assert!(HookKind::ALL.into_iter().all(|kind| !config.hooks.has(kind)));
    let text = "[pilot.hooks]\npost_unit = [\"./tools/a.sh\", \"tools/b.sh\"]\n[pilot.hooks.timeouts]\npost_unit = \"2s\"";
    let hooks = read(text).unwrap().hooks;
    assert_eq!(hooks.scripts(HookKind::PostUnit), ["tools/a.sh", "tools/b.sh"]);
    assert_eq!(hooks.time_limit(HookKind::PostUnit), 2 * SECOND);
    assert_eq!(hooks.time_limit(HookKind::BeforeRun), 120 * SECOND, "the limit of another kind");
    assert!(mistake("[pilot.hooks]\npost_units = []").2.contains("unknown key `pilot.hooks.post_units`"));
    assert!(mistake("[pilot.hooks.timeouts]\npost_units = \"2s\"").2.contains("unknown key"));
    assert!(mistake("[pilot.hooks.timeouts]\npost_unit = \"soon\"").2.contains("is not a time"));
    for odd in ["\"../a.sh\"", "\"/a.sh\"", "\"\"", "\".git/hooks/a\""] {
        assert!(
            mistake(&format!("[pilot.hooks]\nbefore_run = [{odd}]")).2.contains("is no list of"),
            "{odd}"
        );
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join(".writ")).unwrap();
    std::fs::write(folder.path().join(CONFIG_FILE), "[pilot.hooks]\nbefore_run = [\"a.sh\"]").unwrap();
    let problem = || load_config(None, folder.path()).unwrap_err();
    assert_eq!((problem().line, problem().key.as_str()), (2, "pilot.hooks.before_run"));
    assert!(problem().problem.contains("is no file of the project"), "{}", problem().problem);
    std::fs::write(folder.path().join("a.sh"), "exit 0").unwrap();
    assert!(problem().problem.contains("cannot be run"), "{}", problem().problem);
    std::fs::remove_file(folder.path().join("a.sh")).unwrap();
    std::os::unix::fs::symlink("/bin/sh", folder.path().join("a.sh")).unwrap();
    assert!(problem().problem.contains("is no file of the project"), "a link may lead anywhere");
}

/// The forge of a token, its address and the token are the owner's to say, since a project may come from anywhere; the rest is a
/// project's, too.
///
/// Rows: SF-518 (in part: the settings)
#[test]
fn only_the_owner_says_where_a_token_goes() {
    const OWNER: &str = "[pilot.ship]\ntoken = \"secret:forge\"\n";
    let both =
        |owner: &str, project: &str| read_config(&[("/home/me/pilot.toml", owner), (CONFIG_FILE, project)]);
    assert_eq!(both("", "").unwrap().ship, None);
    assert_eq!(read("[pilot.ship]\nbase = \"dev\"\n").unwrap().ship, None, "a project alone ships nothing");
    let ship =
        both(OWNER, "[pilot.ship]\nbase = \"dev\"\nremote = \"up\"\nat = \"slice\"\nrepository = \"o/r\"\n");
    let ship = ship.unwrap().ship.unwrap();
    assert_eq!((ship.forge.name(), ship.api.as_str()), ("github", "https://api.github.com"));
    assert_eq!((ship.at, ship.remote.as_str()), (ShipMoment::Slice, "up"));
    assert_eq!((ship.base.as_deref(), ship.repository.as_deref()), (Some("dev"), Some("o/r")));
    let own = both(&format!("{OWNER}forge = \"gitlab\"\n"), "").unwrap().ship.unwrap();
    assert_eq!((own.api.as_str(), own.remote.as_str()), ("https://gitlab.com/api/v4", "origin"));
    for key in ["token = \"secret:forge\"", "api = \"https://h.example\"", "forge = \"gitlab\""] {
        let error = both(OWNER, &format!("[pilot.ship]\n{key}\n")).unwrap_err();
        assert!(error.problem.contains("stands only in the owner's own file"), "{key}: {error}");
        assert_eq!((error.file.as_str(), error.line), (CONFIG_FILE, 2));
    }
    for (line, part) in [
        ("api = \"http://h.example/api\"", "is no https address"),
        ("api = \"http://localhost.h.example\"", "is no https address"),
        ("api = \"https://user:pass@h.example\"", "is no https address"),
        ("token = \"ghp_0123456789abcdef\"", "is no reference"),
        ("forge = \"bitbucket\"", "has no value"),
        ("repository = \"../x\"", "names no repository"),
        ("remote = \"--upload-pack=x\"", "names no remote"),
        ("base = \"a..b\"", "names no branch"),
        ("at = \"task\"", "has no value"),
        ("when = \"x\"", "unknown key"),
    ] {
        let text = if line.starts_with("token") {
            format!("[pilot.ship]\n{line}\n")
        } else {
            format!("{OWNER}{line}\n")
        };
        let error = both(&text, "").unwrap_err();
        assert!(error.problem.contains(part) && !error.hint.is_empty(), "{line}: {error}");
        assert!(!error.to_string().contains("ghp_") && !error.hint.contains("ghp_"), "{error}");
    }
    let error = both("[pilot.ship]\nremote = \"up\"\n", "").unwrap_err();
    assert!(error.problem.contains("has no `token`"), "{error}");
}

/// Receivers of notices are the owner's to name, by references alone.
///
/// Rows: SF-521 (in part: the settings)
#[test]
fn only_the_owner_names_receivers_of_notices() {
    let owner = |text: &str| read_config(&[("/home/me/pilot.toml", text)]);
    let entry = "[[pilot.notify]]\nkind = \"slack\"\nurl = \"secret:chat\"\n";
    let config = owner(&format!("{entry}{entry}on = [\"unit_merged\", \"unit_merged\"]\n")).unwrap();
    let on: Vec<Vec<&str>> =
        config.notify.iter().map(|one| one.on.iter().map(|event| event.as_str()).collect()).collect();
    assert_eq!(on, [vec!["unit_blocked", "unit_done"], vec!["unit_merged"]]);
    assert!(read(entry).unwrap_err().problem.contains("stands only in the owner's own file"));
    assert!(owner(&entry.repeat(9)).unwrap_err().problem.contains("more than 8"));
    for (text, part) in [
        ("kind = \"irc\"\nurl = \"secret:chat\"", "has no value"),
        ("url = \"secret:chat\"", "has no `kind`"),
        ("kind = \"slack\"", "has no `url`"),
        ("kind = \"slack\"\nurl = \"https://hooks.slack.com/services/T/B/tok-secret\"", "is no reference"),
        ("kind = \"slack\"\nurl = \"secret:chat\"\non = [\"unit_gone\"]", "names an event"),
        ("kind = \"slack\"\nurl = \"secret:chat\"\nchannel = \"x\"", "unknown key"),
    ] {
        let error = owner(&format!("[[pilot.notify]]\n{text}\n")).unwrap_err();
        assert!(error.problem.contains(part) && !error.hint.is_empty(), "{text}: {error}");
        assert!(!format!("{error} {}", error.hint).contains("tok-secret"), "{error}");
    }
}
