use std::collections::BTreeSet;

use writ_inspect::gate::{GateSet, Lane};
use writ_types::digest::Digest;
use writ_types::unit::Tokens;

use super::layer::SettingOrigin;
use super::schema::{KEYS, dotted_path, key_segments};
use super::*;

/// A home and a project with these files; empty text: no file.
struct Fixture {
    dir: tempfile::TempDir,
    home: Home,
}

impl Fixture {
    fn new(home: &str, project: &str) -> Self {
        let dir = tempfile::tempdir().expect("temp dir");
        let root = dir.path().join("home");
        let writ = dir.path().join("project/.writ");
        std::fs::create_dir_all(&root).expect("made");
        std::fs::create_dir_all(&writ).expect("made");
        for (folder, text) in [(&root, home), (&writ, project)] {
            if !text.is_empty() {
                std::fs::write(folder.join("config.toml"), text).expect("written");
            }
        }
        let home = Home::find_home(Some(&root), &Env::default()).expect("found");
        Self { dir, home }
    }

    fn load(&self, env: &[(&str, &str)]) -> Result<Config, Vec<String>> {
        self.load_with(env, &[])
    }

    fn load_with(&self, env: &[(&str, &str)], flags: &[(&str, Value)]) -> Result<Config, Vec<String>> {
        let project = self.dir.path().join("project");
        let sources =
            ConfigSources { home: &self.home, project: Some(&project), env: &Env::from_pairs(env), flags };
        load_config(&sources).map_err(|error| error.findings.iter().map(ToString::to_string).collect())
    }
}

fn loaded(home: &str) -> Config {
    Fixture::new(home, "").load(&[]).expect("valid")
}

fn findings(home: &str) -> Vec<String> {
    Fixture::new(home, "").load(&[]).expect_err("refused")
}

/// The lines of the example as `init` and people would uncomment them.
fn uncommented() -> String {
    let setting = |line: &str| {
        line.strip_prefix('#')
            .filter(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase() || c == '['))
            .map(str::to_owned)
    };
    EXAMPLE.lines().map(|line| setting(line).unwrap_or_else(|| line.to_owned()) + "\n").collect()
}

/// Rows: WIN-052 SIL-256 SIL-257 WIN-036 WIN-037
/// Rows: SIL-259 (in part: the default of the folder of verification)
#[test]
fn the_example_is_the_defaults() {
    let (example, none) = (loaded(EXAMPLE), loaded(""));
    let values = |config: &Config| -> Vec<(KeyPath, Value)> {
        config.effective.iter().map(|(path, in_force)| (path.clone(), in_force.value.clone())).collect()
    };
    assert_eq!(values(&example), values(&none));
    assert_eq!(none.general.owner_id, "owner");
    assert_eq!(none.database(), none.home.join("data/writ.db"));
    assert_eq!(none.verify_dir(), none.home.join("data/verify"));
    assert_eq!(none.turn.context.total_tokens, Tokens::new(180_000));
    assert_eq!(none.turn.context.eviction_threshold(), Tokens::new(144_000));
    assert_eq!(none.budget.max_tokens_per_session, Tokens::new(500_000));
    assert_eq!(none.budget.max_tokens_per_day, Tokens::new(5_000_000));
    assert_eq!(none.general.approval_ttl_secs, 24 * 60 * 60);
    assert_eq!(none.models.models.default, None);
    assert_eq!(none.backend, None);
}

/// A worker of the kind `acp` is the owner's alone to name: an agent could write the project's file.
#[test]
fn a_coding_agent_is_named_by_the_owner_with_its_command() {
    let guide = include_str!("../../../../docs/guides/pilot.md");
    let shown = guide.split("```toml\n").find(|block| block.starts_with("[worker]")).expect("is shown");
    let named = loaded(&shown[..shown.find("```").expect("ends")]);
    assert_eq!((named.worker.kind, named.worker.command.len()), (worker::WorkerKind::Acp, 2));
    assert_eq!(loaded("").worker.kind, worker::WorkerKind::Builtin);
    for wrong in [
        "kind = \"acp\"",
        "kind = \"ssh\"",
        "kind = \"acp\"\ncommand = [\"\"]",
        "variables = { \"a=b\" = \"c\" }",
        "start_secs = 0",
    ] {
        assert_eq!(findings(&format!("[worker]\n{wrong}\n")).len(), 1, "{wrong}");
    }
    // Its command is written to the ledger.
    let key = format!("sk-ant-api03-{}", "Ab1".repeat(14));
    for (place, wrong) in [
        ("variables.LICENCE", format!("variables = {{ LICENCE = \"{key}\" }}")),
        ("command", format!("kind = \"acp\"\ncommand = [\"agent\", \"--key={key}\"]")),
    ] {
        let found = format!("{:?}", findings(&format!("[worker]\n{wrong}\n")));
        assert!(
            found.contains(&format!("{place} looks like a credential")) && !found.contains(&key),
            "{found}"
        );
    }
    for path in ["worker.kind", "worker.command", "worker.variables.A", "worker.login", "worker.start_secs"] {
        let path: KeyPath = path.split('.').map(str::to_owned).collect();
        let schema::SchemaEntry::Key(key) = schema::place_of(&path) else { panic!("{path:?} is a key") };
        assert!(matches!(key.in_project, schema::InProject::Never), "{path:?}");
    }
}

/// Rows: SIL-255
#[test]
fn owner_and_data_folder_have_defaults_and_can_be_others() {
    let (none, moved) = (loaded(""), loaded("data_dir = \"/srv/writ\"\n"));
    assert_eq!((none.general.owner_id.as_str(), none.database()), ("owner", none.home.join("data/writ.db")));
    assert_eq!(moved.database(), Path::new("/srv/writ/writ.db"));
    assert_eq!(loaded("owner_id = \"ann\"\n").general.owner_id, "ann");
    assert_eq!(findings("owner_id = \"\"\n").len(), 1);
}

/// Rows: WIN-052
#[test]
fn the_example_names_every_key_and_each_commented_one_is_valid() {
    let config = loaded(&uncommented());
    let set: BTreeSet<&str> = config
        .effective
        .iter()
        .filter(|(_, in_force)| in_force.origin != SettingOrigin::Default)
        .filter_map(|(path, _)| match schema::place_of(path) {
            schema::SchemaEntry::Key(key) => Some(key.path),
            schema::SchemaEntry::Section | schema::SchemaEntry::List | schema::SchemaEntry::Nothing => None,
        })
        .collect();
    let all: BTreeSet<&str> = KEYS.iter().map(|key| key.path).collect();
    assert_eq!(set, all);
}

#[test]
fn the_list_of_keys_is_that_of_the_crates() {
    let unknown: Vec<String> = default_values()
        .keys()
        .filter(|path| !matches!(schema::place_of(path), schema::SchemaEntry::Key(_)))
        .map(|path| dotted_path(path))
        .collect();
    assert_eq!(unknown, Vec::<String>::new());
    assert!(default_values().len() > 40, "no crate's settings are lost");
    let gate = table_of(&GateConfig {
        lane: Some(Lane::Policy),
        contains: vec!["x".into()],
        pattern: Some("x".into()),
        min: Some(0.0),
        max: Some(1.0),
        below: vec!["/".into()],
        extensions: vec!["md".into()],
        max_bytes: Some(1),
        field: Some("argv".into()),
        tools: vec!["shell_exec".into()],
        checks: vec!["detect_pii".into()],
        script: Some("exit 0".into()),
        timeout_ms: Some(1),
        prompt: Some("polite?".into()),
        on_block: Some("report".into()),
        ..GateSet::shipped_gate()
    });
    let listed =
        KEYS.iter().filter(|key| key.path.starts_with("gates.")).filter_map(|key| key_segments(key).pop());
    assert_eq!(listed.collect::<BTreeSet<_>>(), gate.keys().map(String::as_str).collect());
    let hook = table_of(&HookConfig {
        project: Some("/p".into()),
        digest: Some(Digest::of_bytes(b"")),
        tools: vec!["shell_exec".into()],
        timeout_ms: Some(1),
        critical: Some(true),
        ..HookConfig::default()
    });
    let listed =
        KEYS.iter().filter(|key| key.path.starts_with("hooks.")).filter_map(|key| key_segments(key).pop());
    assert_eq!(listed.collect::<BTreeSet<_>>(), hook.keys().map(String::as_str).collect());
}

/// Rows: SF-301
#[test]
fn later_sources_win_key_by_key_and_each_value_has_its_origin() {
    let home =
        "agent = \"one\"\n[limits]\nmax_turn_secs = 100\nmax_output_tokens = 100\nmax_result_chars = 100\n";
    let project = "[limits]\nmax_output_tokens = 50\nmax_result_chars = 50\n";
    let env = [("WRIT_LIMITS__MAX_RESULT_CHARS", "70"), ("WRIT_LOG__LEVEL", "warn")];
    let flags = [("log.level", Value::String("debug".into()))];
    let config = Fixture::new(home, project).load_with(&env, &flags).expect("valid");
    let limits = &config.turn.limits;
    assert_eq!(
        (limits.max_turn_secs, limits.max_output_tokens.get(), limits.max_result_chars),
        (100, 50, 70)
    );
    assert_eq!(config.log.level, "debug");
    let origins: Vec<String> = config
        .effective
        .iter()
        .filter(|(_, in_force)| in_force.origin != SettingOrigin::Default)
        .map(|(path, in_force)| format!("{}: {}", dotted_path(path), in_force.origin))
        .collect();
    assert_eq!(
        origins,
        [
            "agent: config.toml line 1",
            "limits.max_output_tokens: .writ/config.toml line 2",
            "limits.max_result_chars: WRIT_LIMITS__MAX_RESULT_CHARS",
            "limits.max_turn_secs: config.toml line 3",
            "log.level: command line",
        ]
    );
}

/// A log without a file, or with a size below that of a few lines, is refused.
///
/// Rows: SF-312 (in part: what is refused)
#[test]
fn a_log_has_a_file_of_some_size() {
    for text in ["keep = 0", "keep = -1", "max_bytes = -1", "max_bytes = 0", "stderr = \"no\""] {
        let refused = Fixture::new(&format!("[log]\n{text}\n"), "").load(&[]).expect_err("refused");
        let key = text.split(' ').next().unwrap_or_default();
        let [line] = refused.as_slice() else { panic!("one mistake: {refused:?}") };
        assert!(line.starts_with(&format!("config.toml line 2: 'log.{key}'")), "{line}");
    }
    let log = Fixture::new("", "").load(&[]).expect("valid").log;
    assert_eq!((log.max_bytes, log.keep, log.stderr), (10 * 1024 * 1024, 5, true));
}

/// Rows: SIL-253 SCL-151
#[test]
fn the_environment_wins_over_the_file_and_its_errors_name_the_variable() {
    let fixture = Fixture::new("[budget]\nmax_tokens_per_day = 5\n", "");
    let config = fixture.load(&[("WRIT_BUDGET__MAX_TOKENS_PER_DAY", "7")]).expect("valid");
    assert_eq!(config.budget.max_tokens_per_day, Tokens::new(7));
    assert_eq!(
        fixture.load(&[("WRIT_BUDGET__MAX_TOKENS_PER_DAY", "lots")]).expect_err("refused"),
        ["WRIT_BUDGET__MAX_TOKENS_PER_DAY: 'budget.max_tokens_per_day' must be a whole number of at least 1"]
    );
    let fixture = Fixture::new("[timeouts]\ndefault_ms = 60000\n", "");
    let config = fixture.load(&[("WRIT_TIMEOUTS__DEFAULT_MS", "5000")]).expect("valid");
    assert_eq!(config.timeouts.default_ms, 5_000);
    let refused = fixture.load(&[("WRIT_TIMEOUTS__DEFAULT_MS", "abc")]).expect_err("refused");
    assert!(refused[0].starts_with("WRIT_TIMEOUTS__DEFAULT_MS: "), "{refused:?}");
}

/// The number of turns that run at once is a setting, which the environment overrides; nothing runs with none.
///
/// Rows: SCL-152
#[test]
fn the_number_of_turns_at_once_is_set_by_the_file_and_the_environment() {
    let of = |text: &str, env: &[(&str, &str)]| Fixture::new(text, "").load(env);
    let set = |text: &str, env: &[(&str, &str)]| of(text, env).expect("valid").general.max_parallel;
    assert_eq!(set("", &[]), writ_runtime::config::MAX_RUNNING_TURNS);
    assert_eq!(set("max_parallel = 4\n", &[]), 4);
    assert_eq!(set("max_parallel = 4\n", &[("WRIT_MAX_PARALLEL", "2")]), 2);
    for (text, value) in [("", "0"), ("", "65"), ("max_parallel = 4\n", "many")] {
        let refused = of(text, &[("WRIT_MAX_PARALLEL", value)]).expect_err("refused");
        let [line] = refused.as_slice() else { panic!("one mistake: {refused:?}") };
        assert!(
            line.starts_with("WRIT_MAX_PARALLEL: 'max_parallel' must be a whole number from 1 to 64"),
            "{line}"
        );
    }
    let refused = of("max_parallel = 0\n", &[]).expect_err("refused");
    assert!(
        refused.len() == 1 && refused[0].starts_with("config.toml line 1: 'max_parallel'"),
        "{refused:?}"
    );
}

/// Rows: SIL-281 (in part: a runner that is not there is refused with those that are)
#[test]
fn the_runner_of_programs_is_one_of_those_that_there_are() {
    let load = |text: &str| Fixture::new(text, "").load(&[]);
    let config = load("[sandbox]\nrunner = \"refuse\"\n").expect("valid");
    assert_eq!(config.sandbox.runner, writ_sandbox::config::RunnerKind::Refuse);
    assert_eq!(load("").expect("valid").sandbox.runner, writ_sandbox::config::RunnerKind::default());
    assert_eq!(
        load("[sandbox]\nrunner = \"docker\"\n").expect_err("refused"),
        ["config.toml line 2: 'sandbox.runner' must be one of \"native\", \"refuse\""]
    );
}

#[test]
fn a_project_can_only_narrow() {
    let project = "\
[budget]
max_tokens_per_day = 1
[models]
default = \"evil/model\"
[providers.anthropic]
base_url = \"http://evil.example/\"
[sandbox]
read_only = [\"/\"]
[limits]
max_turn_secs = 7200
max_output_tokens = 100
[context]
default_profile = \"coding\"
[[gates]]
name = \"drop-table\"
on = \"input\"
provider = \"predicate\"
contains = [\"nothing\"]
[[gates]]
name = \"rewrite\"
on = \"input\"
provider = \"predicate\"
contains = [\"a\"]
action = \"replace\"
[[egress.credentials]]
name = \"mine\"
";
    let found = Fixture::new("", project).load(&[]).expect_err("refused");
    let keys: Vec<&str> = found.iter().filter_map(|text| text.split('\'').nth(1)).collect();
    assert_eq!(
        keys,
        [
            "budget.max_tokens_per_day",
            "models.default",
            "providers.anthropic.base_url",
            "sandbox.read_only",
            "limits.max_turn_secs",
            "gates.000.name",
            "gates.001.action",
            "egress.credentials.000.name",
        ]
    );
}

#[test]
fn a_project_adds_gates_after_the_homes() {
    let gate = |name: &str| {
        format!(
            "[[gates]]\nname = \"{name}\"\non = \"input\"\nprovider = \"predicate\"\ncontains = [\"{name}\"]\n"
        )
    };
    let fixture =
        Fixture::new(&gate("mine"), &(gate("theirs") + "[context]\ndefault_profile = \"coding\"\n"));
    let config = fixture.load(&[]).expect("valid");
    let names: Vec<&str> = config.gates.iter().map(|gate| gate.name.as_str()).collect();
    assert_eq!(names, ["drop-table", "mine", "theirs"]);
    assert_eq!(config.turn.context.default_profile, "coding");
    let narrow = "[[gates]]\nname = \"files\"\non = \"execution\"\nprovider = \"regex\"\npattern = \"x\"\n";
    assert_eq!(Fixture::new("", narrow).load(&[]).expect("valid").gates.len(), 2);
    for more in [
        "script = \"exit 0\"",
        "timeout_ms = 5",
        "prompt = \"fine?\"",
        "promote_to_policy = true",
        "on_block = \"report\"",
        "[access]\npublic = [\"shell_exec\"]",
        "[escalations.report]\naction = \"respond\"",
    ] {
        let refused = Fixture::new("", &format!("{narrow}{more}\n")).load(&[]).expect_err("refused");
        assert!(refused.iter().any(|text| text.contains("a project may not set")), "{more}: {refused:?}");
    }
    let taken = Fixture::new(&gate("mine"), &gate("mine")).load(&[]).expect_err("refused");
    assert!(taken.iter().any(|text| text.starts_with(".writ/config.toml line 2")), "{taken:?}");
}

/// Rows: SIL-260
#[test]
fn gates_replace_the_shipped_one_by_name_and_need_a_provider() {
    let gate =
        "[[gates]]\nname = \"drop-table\"\non = \"output\"\nprovider = \"predicate\"\ncontains = [\"x\"]\n";
    let config = loaded(gate);
    assert_eq!(config.gates.len(), 1);
    assert_eq!(config.gates.first().map(|gate| gate.contains.clone()), Some(vec!["x".to_owned()]));
    assert!(loaded("gates_shipped = false\n").gates.is_empty());
    let found = findings("[[gates]]\nname = \"a\"\non = \"input\"\ncontains = [\"x\"]\n");
    assert_eq!(found.len(), 1);
    assert!(found.iter().all(|text| text.contains("line 2") && text.contains("provider")), "{found:?}");
    let found =
        findings("\n[[gates]]\nname = \"a\"\non = \"input\"\nprovider = \"oracle\"\ncontains = [\"x\"]\n");
    assert!(
        found.iter().any(|t| t == "config.toml line 5: 'gates.000.provider' must be one of \"predicate\", \"regex\", \"guard\", \"guardrails_ai\", \"script\", \"llm\""),
        "{found:?}"
    );
    let found = findings(&gate.replace("[\"x\"]", "[\" \"]"));
    assert!(found.iter().all(|text| text.starts_with("config.toml line 2")), "{found:?}");
}

/// Rows: SIL-258 SIL-262
#[test]
fn what_no_single_key_shows_is_found_and_blamed_on_its_line() {
    let profile = |share: &str| {
        format!("[context.profiles.mine]\nchronicle_pct = {share}\nmemory_pct = 0.3\nworkspace_pct = 0.2\n")
    };
    assert_eq!(loaded(&profile("0.3")).turn.validate_config(), Ok(()));
    let found = findings(&profile("0.31"));
    assert_eq!(found.len(), 1);
    assert!(
        found.iter().all(|text| text.starts_with("config.toml line 2: ") && text.contains("0.80")),
        "{found:?}"
    );
    assert!(findings(&profile("-0.1")).iter().all(|text| text.contains("from 0.0 to 1.0")));
    let found = findings("agent = \"a\"\n[context]\ndefault_profile = \"none\"\n");
    assert_eq!(found.len(), 1);
    assert!(found.iter().all(|text| text.starts_with("config.toml line 3: ")), "{found:?}");
    let found = findings("[context.profiles.half]\nchronicle_pct = 0.1\n");
    assert!(found.iter().all(|text| text.contains("line 2") && text.contains("memory_pct")), "{found:?}");
}

/// Rows: SIL-261
#[test]
fn verification_and_customers_are_two_folders_however_they_are_written() {
    let fixture = Fixture::new("", "");
    std::fs::create_dir_all(fixture.home.root().join("data/verify")).expect("made");
    std::os::unix::fs::symlink("data/verify", fixture.home.root().join("link")).expect("linked");
    for other in ["data/verify", "./data/./verify", "data/x/../verify", "link"] {
        let found = fixture.load(&[("WRIT_CUSTOMER_CONTEXT_DIR", other)]).expect_err(other);
        assert_eq!(found.len(), 1);
        assert!(found.iter().all(|text| text.contains("the same folder")), "{found:?}");
    }
    fixture.load(&[("WRIT_CUSTOMER_CONTEXT_DIR", "link/below")]).expect("another folder");
    assert!(findings("owner_id = \"\"\n").iter().all(|text| text.contains("not empty")));
}

/// Rows: WIN-038
#[test]
fn one_key_bounds_the_tool_calls_everywhere() {
    assert_eq!(loaded("").budget.max_tool_calls_per_turn, 20);
    let config = loaded("[budget]\nmax_tool_calls_per_turn = 7\n");
    assert_eq!(config.budget.max_tool_calls_per_turn, 7);
    assert_eq!(config.turn.limits.max_tool_calls_per_turn, 7);
}

#[test]
fn providers_have_their_own_addresses_and_keys() {
    let config = loaded(
        "[models]\ndefault = \"a/x\"\n[models.roles]\nplanner = \"b/y\"\n\
         [providers.a]\nkind = \"openai\"\nbase_url = \"https://a.example/v1/\"\napi_key = \"secret:a\"\n\
         [providers.b]\nkind = \"openai\"\nbase_url = \"https://b.example/v1/\"\napi_key = \"env:B\"\n\
         [budget]\nday_starts_at_minute = 300\n",
    );
    let urls: Vec<_> =
        config.models.providers.values().filter_map(|table| table.base_url.as_deref()).collect();
    assert_eq!(urls, ["https://a.example/v1/", "https://b.example/v1/"]);
    assert_eq!(config.budget.day_starts_at_minute, 300);
    let secret = findings("[providers.a]\napi_key = \"sk-live-123456\"\n");
    assert!(
        secret.iter().all(|text| !text.contains("sk-live") && text.contains("secret:NAME")),
        "{secret:?}"
    );
}

#[test]
fn every_finding_is_told_at_once_and_the_first_is_the_error() {
    let fixture = Fixture::new("agent = 3\nbudgt = 1\n", "");
    let sources = ConfigSources { home: &fixture.home, project: None, env: &Env::default(), flags: &[] };
    let report = load_config(&sources).expect_err("refused").report();
    assert_eq!(report.exit, Exit::Config);
    assert_eq!(report.outside, "config.toml line 1: 'agent' must be a text that is not empty");
    assert_eq!(report.hint, "1 more; `writ config check` shows all");
}

#[test]
fn marks_line_ends_and_the_home_folder_of_real_files_are_read() {
    let text = "\u{feff}agent = \"main\"\r\ndata_dir = \"~/data\"\r\n[sandbox]\r\nread_only = [\"~/tools\", \"/opt\"]\r\n";
    let config = Fixture::new(text, "").load(&[("HOME", "/home/ann")]).expect("valid");
    assert_eq!(config.sandbox.read_only, [Path::new("/home/ann/tools"), Path::new("/opt")]);
    let wrong = Fixture::new("data_dir = \"~bob/data\"\n", "").load(&[("HOME", "/home/ann")]);
    let wrong = wrong.expect_err("refused");
    assert!(wrong[0].contains("config.toml line 1: 'data_dir' begins with '~' and a name"), "{wrong:?}");
    let nowhere = Fixture::new("data_dir = \"~/data\"\n", "").load(&[]).expect_err("refused");
    assert!(nowhere[0].contains("HOME is not set"), "{nowhere:?}");
}

#[test]
fn a_file_in_utf_16_says_so() {
    let fixture = Fixture::new("", "");
    std::fs::write(fixture.home.config_file(), b"\xff\xfea\x00").expect("written");
    let refused = fixture.load(&[]).expect_err("refused");
    assert!(refused[0].contains("is UTF-16: save it as UTF-8"), "{refused:?}");
}
