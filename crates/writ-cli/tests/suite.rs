//! The real binary, run as people run it, with homes of its own and nothing of the machine's configuration.
//!
//! Here are the commands alone; `suite/` has whole turns.

#![expect(clippy::expect_used, clippy::panic, reason = "a test that cannot go on ends")]

#[path = "suite/engine.rs"]
mod engine;

#[path = "suite/within.rs"]
mod within;

#[path = "suite/shown.rs"]
mod shown;

#[path = "suite/answers.rs"]
mod answers;

#[path = "suite/chance.rs"]
mod chance;

#[path = "suite/turns.rs"]
mod turns;

#[path = "suite/real_job.rs"]
mod real_job;

#[path = "suite/threats.rs"]
mod threats;

#[path = "suite/crash.rs"]
mod crash;

#[path = "suite/crash_work.rs"]
mod crash_work;

#[path = "suite/races.rs"]
mod races;

#[path = "suite/model_faults.rs"]
mod model_faults;

#[path = "suite/long.rs"]
mod long;

#[path = "suite/schemas.rs"]
mod schemas;

#[path = "suite/trial.rs"]
mod trial;

#[path = "suite/operations.rs"]
mod operations;

#[path = "suite/pipes.rs"]
mod pipes;

#[path = "suite/tmux.rs"]
mod tmux;

#[path = "suite/setting.rs"]
mod setting;

#[path = "suite/repositories.rs"]
mod repositories;

#[path = "suite/reasoning.rs"]
mod reasoning;

#[path = "suite/bad_input.rs"]
mod bad_input;

#[path = "suite/backup.rs"]
mod backup;

#[path = "suite/limits.rs"]
mod limits;

#[path = "suite/spending.rs"]
mod spending;

#[path = "suite/sessions.rs"]
mod sessions;

#[path = "suite/daily.rs"]
mod daily;

#[path = "suite/interrupted.rs"]
mod interrupted;

#[path = "suite/closing.rs"]
mod closing;

#[path = "suite/terminal.rs"]
mod terminal;

#[path = "suite/egress.rs"]
mod egress;

#[path = "suite/shared.rs"]
mod shared;

#[path = "suite/gateway.rs"]
mod gateway;

#[path = "suite/soak.rs"]
mod soak;

#[path = "suite/rows_win.rs"]
mod rows_win;

#[path = "suite/rows_scl.rs"]
mod rows_scl;

#[path = "suite/rows_sil.rs"]
mod rows_sil;

#[path = "suite/mcp.rs"]
mod mcp;

#[path = "suite/pilot.rs"]
mod pilot;

#[path = "suite/proofs.rs"]
mod proofs;

#[path = "suite/proxy.rs"]
mod proxy;

#[path = "suite/fuzz.rs"]
mod fuzz;

#[path = "suite/tasks.rs"]
mod tasks;

#[path = "suite/plans.rs"]
mod plans;

#[path = "suite/write.rs"]
mod write;

#[path = "suite/observe.rs"]
mod observe;

#[path = "suite/verifier.rs"]
mod verifier;

#[path = "suite/policy.rs"]
mod policy;

#[path = "suite/gates.rs"]
mod gates;

#[path = "suite/hooks.rs"]
mod hooks;

#[cfg(feature = "tiny-model")]
#[path = "suite/tiny.rs"]
mod tiny;

#[path = "suite/memory.rs"]
mod memory;

#[path = "suite/profile.rs"]
mod profile;

#[path = "suite/documents.rs"]
mod documents;

#[path = "suite/vault.rs"]
mod vault;

#[path = "suite/agents.rs"]
mod agents;

#[path = "suite/fleet.rs"]
mod fleet;

#[path = "suite/cases_needs_python.rs"]
mod cases_needs_python;

#[path = "suite/keys.rs"]
mod keys;

#[path = "suite/run.rs"]
mod run;

#[path = "suite/containers_needs_docker.rs"]
mod containers_needs_docker;

#[path = "suite/sealed.rs"]
mod sealed;

#[path = "suite/seen.rs"]
mod seen;

use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;

use serde_json::Value;
use within::StartedEngines;

/// A home in a temporary folder, and what is in its environment. Its commands and engines run in the process of the test, unless
/// the test needs [processes](Home::in_processes).
struct Home {
    dir: tempfile::TempDir,
    env: Vec<(String, String)>,
    /// The engines that commands have started in this process; `None`: commands and engines are processes.
    within: Option<Arc<StartedEngines>>,
}

/// Ends the engine that a command has started.
impl Drop for Home {
    fn drop(&mut self) {
        engine::stop_engine_of(self);
    }
}

impl Home {
    /// A place for a home; nothing is there yet.
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("temp dir");
        // Never the keyring of whoever runs the tests.
        let mut env = vec![("WRIT_SECRETS__BACKEND".to_owned(), "plain".to_owned())];
        // Engines of tests run side by side.
        env.push(("WRIT_SERVER__PORT".to_owned(), "0".to_owned()));
        // Nor a model server that runs on this machine.
        env.push(("WRIT_MODELS__DETECT".to_owned(), "false".to_owned()));
        // Most tests are about a conversation that has begun.
        env.push(("WRIT_FIRST_RUN".to_owned(), "false".to_owned()));
        // A test says itself when an answer begins a turn: its model follows a script of requests.
        env.push(("WRIT_CONTINUE_AFTER_ANSWER".to_owned(), "false".to_owned()));
        Self { dir, env, within: Some(Arc::default()) }
    }

    /// Runs commands and engines as processes from now on: for tests of what only a process has, such as signals, its arguments,
    /// what it inherits, or its end at a moment of the test's choice.
    fn in_processes(mut self) -> Self {
        self.within = None;
        self
    }

    /// The home as it is shipped: a turn goes on once its requests are answered.
    fn goes_on(&mut self) {
        self.env.retain(|(name, _)| name != "WRIT_CONTINUE_AFTER_ANSWER");
    }

    /// A home that was set up.
    fn ready() -> Self {
        let home = Self::new();
        let done = home.run(&["init", "--yes"]);
        assert_eq!(code(&done), 0, "{}", text(&done));
        home
    }

    fn with(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    fn database(&self) -> PathBuf {
        self.root().join("data/writ.db")
    }

    /// The variables of commands and engines: these alone.
    fn variables(&self, more: &[(&str, &str)]) -> Vec<(String, String)> {
        let path = |path: &Path| path.to_str().expect("UTF-8").to_owned();
        let mut all = vec![
            ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned()),
            ("HOME".to_owned(), path(self.dir.path())),
            ("WRIT_HOME".to_owned(), path(&self.root())),
        ];
        if self.within.is_some() {
            // The program of the tests cannot be the sandbox's helper.
            all.push(("WRIT_SANDBOX__EXE".to_owned(), env!("CARGO_BIN_EXE_writ").to_owned()));
        }
        all.extend(self.env.iter().cloned());
        all.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        all
    }

    fn run_with(&self, args: &[&str], input: &[u8]) -> Output {
        match &self.within {
            Some(engines) => within::run(self, engines, args, input),
            None => self.run_process(args, input),
        }
    }

    #[expect(clippy::disallowed_types, reason = "the test starts the binary that it tests")]
    fn run_process(&self, args: &[&str], input: &[u8]) -> Output {
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_writ"))
            .args(args)
            .env_clear()
            .envs(self.variables(&[]))
            .current_dir(self.dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        // A command that reads nothing closes the pipe early.
        let _written = stdin.write_all(input);
        drop(stdin);
        child.wait_with_output().expect("it ends")
    }

    fn run(&self, args: &[&str]) -> Output {
        self.run_with(args, b"")
    }

    fn json(&self, args: &[&str]) -> Value {
        let output = self.run(&[args, &["--json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{args:?}: {}", text(&output)))
    }

    /// Every file of the home with its content, for comparing.
    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files = Vec::new();
        let mut folders = vec![self.root()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("reads") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                } else if !path.to_string_lossy().contains("writ.db") && !path.ends_with("runtime/lock") {
                    files.push((path.clone(), std::fs::read(&path).expect("reads")));
                }
            }
        }
        files.sort();
        files
    }
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

fn mode(path: &Path) -> u32 {
    path.metadata().expect("there").mode() & 0o777
}

#[test]
fn help_and_version_end_with_0_and_wrong_usage_with_2() {
    let home = Home::new().in_processes();
    for (args, expected) in [
        (&["--help"][..], 0),
        (&["--version"], 0),
        (&["audit", "--help"], 0),
        (&[], 2),
        (&["chta"], 2),
        (&["audit", "proof", "minus-one"], 2),
        (&["secrets", "set", "name", "value"], 2),
        (&["approvals", "approve", "../../etc"], 2),
    ] {
        let output = home.run(args);
        assert_eq!(code(&output), expected, "{args:?}: {}", text(&output));
    }
    assert!(!home.root().exists(), "nothing is made by asking");
    let help = text(&home.run(&["--help"]));
    let places: Vec<Option<usize>> =
        ["demo", "chat", "start", "status", "approvals", "audit", "doctor", "init"]
            .iter()
            .map(|name| help.find(&format!("\n  {name} ")))
            .collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{help}");
}

#[test]
fn without_init_every_command_says_so_and_ends_with_3() {
    let home = Home::new().in_processes();
    for args in [
        &["status"][..],
        &["start"],
        &["chat", "-m", "hello"],
        &["approvals", "list"],
        &["audit", "verify"],
        &["audit", "tail"],
        &["keys", "inspect"],
        &["secrets", "list"],
        &["memory", "search", "x"],
        &["diff"],
        &["apply"],
        &["sandbox", "exec", "--", "true"],
    ] {
        let output = home.run(args);
        assert_eq!(code(&output), 3, "{args:?}: {}", text(&output));
        assert!(text(&output).contains("writ init"), "{args:?}: {}", text(&output));
    }
    let output = home.run(&["status", "--json"]);
    let told: Value = serde_json::from_slice(&output.stderr).expect("JSON on standard error");
    assert_eq!(told.pointer("/error/code").and_then(Value::as_str), Some("home.not_set_up"));
    assert_eq!(told.pointer("/error/exit").and_then(Value::as_u64), Some(3));
    assert!(!home.root().exists());
}

/// Rows: SIL-265 SIL-266
/// Rows: SCL-130 (in part: nothing is overwritten)
#[test]
fn init_makes_everything_once_and_a_second_run_changes_nothing() {
    let home = Home::new().in_processes();
    let first = home.json(&["init", "--yes"]);
    assert_eq!(first.get("backend").and_then(Value::as_str), Some("plain"));
    let root = home.root();
    for name in [
        "RULES.md",
        "config.toml",
        "policies",
        "agent",
        "generated",
        "workspace/inbox",
        "data/writ.db",
        "data/verify",
        "keys/root.pub",
        "runtime",
        "backups",
        "logs",
    ] {
        assert!(root.join(name).exists(), "{name}");
    }
    for folder in ["", "data", "keys", "runtime", "agent", "logs"] {
        assert_eq!(mode(&root.join(folder)), 0o700, "{folder}");
    }
    for file in
        ["config.toml", "data/writ.db", "keys/approver.pub", "keys/secrets.json", "keys/approver.json"]
    {
        assert_eq!(mode(&root.join(file)), 0o600, "{file}");
    }
    let config = std::fs::read_to_string(root.join("config.toml")).expect("reads");
    assert!(config.lines().all(|line| line.is_empty() || line.starts_with('#')));
    let before = home.files();
    let second = home.json(&["init", "--yes"]);
    assert_eq!(second.get("made"), Some(&Value::Array(Vec::new())));
    assert_eq!(second.get("installation"), first.get("installation"));
    assert!(home.files() == before, "a second run changes no file");
    let entries = home.run(&["audit", "tail", "--json"]);
    assert_eq!(String::from_utf8_lossy(&entries.stdout).lines().count(), 1, "one entry: the enrolled key");
    assert!(text(&home.run(&["init"])).contains("nothing was changed"));
}

/// Rows: SIL-265 SIL-266
#[test]
fn init_names_what_is_in_its_way() {
    let home = Home::new().in_processes();
    std::fs::write(home.root(), "").expect("written");
    let output = home.run(&["init", "--yes"]);
    assert_eq!(code(&output), 3, "{}", text(&output));
    assert!(text(&output).contains("is not a folder"));
    for (variable, name) in [("WRIT_VERIFY_DIR", "verify"), ("WRIT_DATA_DIR", "elsewhere")] {
        let home = Home::new().in_processes().with(variable, name);
        std::fs::create_dir(home.root()).expect("made");
        std::fs::set_permissions(home.root(), std::fs::Permissions::from_mode(0o700)).expect("closed");
        std::fs::write(home.root().join(name), "").expect("written");
        let output = home.run(&["init", "--yes"]);
        assert_eq!(code(&output), 3, "{variable}: {}", text(&output));
        assert!(text(&output).contains("is not a folder"), "{variable}: {}", text(&output));
    }
    // Another data folder moves the database.
    let home = Home::new().in_processes().with("WRIT_DATA_DIR", "elsewhere");
    assert_eq!(code(&home.run(&["init", "--yes"])), 0);
    assert!(home.root().join("elsewhere/writ.db").exists() && !home.database().exists());
}

#[test]
fn a_home_that_others_can_read_is_refused() {
    let home = Home::ready().in_processes();
    std::fs::set_permissions(home.root(), std::fs::Permissions::from_mode(0o755)).expect("opened");
    let output = home.run(&["status"]);
    assert_eq!(code(&output), 3);
    assert!(text(&output).contains("hint: chmod 0700"), "{}", text(&output));
}

/// A date is a value that no setting takes: each that the first configuration names is an error with its line and key.
///
/// Rows: SIL-253 SIL-254 SCL-155
#[test]
fn a_broken_configuration_ends_with_3_and_names_file_line_and_key() {
    let home = Home::ready().in_processes();
    let written = std::fs::read_to_string(home.root().join("config.toml")).expect("reads");
    let settings = |line: &str| line.starts_with(|first: char| first.is_ascii_lowercase() || first == '[');
    let bad: Vec<String> = written
        .lines()
        .filter_map(|line| line.strip_prefix('#').filter(|line| settings(line)))
        .map(|line| line.split_once(" = ").map_or(line.to_owned(), |(key, _)| format!("{key} = 1979-05-27")))
        .collect();
    std::fs::write(home.root().join("config.toml"), bad.join("\n")).expect("written");
    let found = text(&home.run(&["config", "check"]));
    let of_keys = (1..).zip(&bad).filter_map(|(line, text)| Some((line, text.split_once(" = ")?.0)));
    let unnamed: Vec<(usize, &str)> = of_keys
        .filter(|(line, key)| {
            let place = format!("config.toml line {line}:");
            !found.lines().any(|finding| finding.contains(&place) && finding.contains(&format!("{key}'")))
        })
        .collect();
    assert!(unnamed.is_empty() && bad.len() > 200, "{unnamed:?} of {}: {found}", bad.len());
    std::fs::write(
        home.root().join("config.toml"),
        "[budget]\nmax_token_per_day = 1\nday_starts_at_minute = \"x\"\n",
    )
    .expect("written");
    for args in [
        &["config", "check"][..],
        &["status"],
        &["config", "show"],
        &["start"],
        &["chat", "-m", "hello"],
        &["memory", "search", "x"],
        &["secrets", "list"],
    ] {
        let output = home.run(args);
        assert_eq!(code(&output), 3, "{args:?}");
        assert!(
            text(&output).contains("config.toml line 2: unknown key 'budget.max_token_per_day'"),
            "{}",
            text(&output)
        );
    }
    let found = home.json(&["config", "check"]);
    assert_eq!(found.get("findings").and_then(Value::as_array).map(Vec::len), Some(2));
    assert!(text(&home.run(&["config", "check"])).contains("did you mean 'budget.max_tokens_per_day'?"));
    std::fs::write(home.root().join("config.toml"), "").expect("written");
    assert_eq!(code(&home.run(&["config", "check"])), 0);
    std::fs::write(home.root().join("policies/bad.cedar"), "permit everything").expect("written");
    let output = home.run(&["config", "check"]);
    assert_eq!(code(&output), 3);
    assert!(text(&output).contains("policies/bad.cedar"), "{}", text(&output));
}

/// The first configuration names the version that has written it, and shows every setting with its default, those of security
/// among them. As it is written and with all settings uncommented it is valid, and `init` never writes over it.
///
/// Rows: SCL-130
#[test]
fn the_first_configuration_is_valid_secure_and_never_overwritten() {
    let home = Home::new().in_processes();
    assert_eq!(code(&home.run(&["init", "--yes"])), 0);
    let file = home.root().join("config.toml");
    let written = std::fs::read_to_string(&file).expect("reads");
    assert!(
        written.starts_with(concat!("# Written by writ ", env!("CARGO_PKG_VERSION"), ".\n")),
        "{written}"
    );
    assert_eq!(code(&home.run(&["config", "check"])), 0);
    let in_force = home.json(&["config", "show"]);
    // Prose has a blank behind its sign.
    let settings: Vec<&str> = written
        .lines()
        .filter_map(|line| line.strip_prefix('#'))
        .filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase() || first == '['))
        .collect();
    for secure in [
        "blocked = []",
        "always_ask = []",
        "host = \"127.0.0.1\"",
        "max_tokens_per_day = 5000000",
        "approval_ttl_secs = 86400",
    ] {
        assert!(settings.contains(&secure), "{secure}");
    }
    let table: toml::Table = settings.join("\n").parse().expect("TOML");
    assert!(table["egress"]["blocked"].is_array() && table["server"]["host"].is_str());
    std::fs::write(&file, settings.join("\n")).expect("written");
    assert_eq!(code(&home.run(&["config", "check"])), 0, "{}", text(&home.run(&["config", "check"])));
    std::fs::write(&file, "approval_ttl_secs = 60\n").expect("written");
    assert_eq!(code(&home.run(&["init", "--yes"])), 0);
    assert_eq!(std::fs::read_to_string(&file).expect("reads"), "approval_ttl_secs = 60\n", "the owner's");
    assert_eq!(code(&home.run(&["init", "--yes", "--force"])), 2, "nothing writes over it");
    std::fs::write(&file, written).expect("written");
    assert_eq!(home.json(&["config", "show"]), in_force);
}

/// Rows: SF-326
/// Rows: SF-325 (in part: no work waits for the engine that does not start)
#[test]
fn a_start_names_each_unknown_key_and_bad_value_by_its_path() {
    let home = Home::ready();
    for (config, path) in [
        ("limit = 1\n", "limit"),
        ("[limits]\nmax_turn_sec = 2\n", "limits.max_turn_sec"),
        ("[models.roles]\nexecutee = \"openai/x\"\n", "models.roles.executee"),
        ("[egress.limits]\nconnect_timout_ms = 5\n", "egress.limits.connect_timout_ms"),
        ("[timeouts.tools]\nshell_exce = 1\n", "timeouts.tools.shell_exce"),
        ("[server]\nport = \"many\"\n", "server.port"),
        ("[secrets]\nbackend = \"drawer\"\n", "secrets.backend"),
    ] {
        std::fs::write(home.root().join("config.toml"), config).expect("written");
        let refused = home.run(&["start"]);
        let said = text(&refused);
        assert!(code(&refused) == 3 && said.contains("config.toml") && said.contains(path), "{path}: {said}");
    }
    std::fs::write(home.root().join("config.toml"), "").expect("written");
    assert_eq!(code(&home.run(&["config", "check"])), 0, "twin");
}

/// Rows: SCL-137
#[test]
fn the_data_folder_may_begin_with_a_tilde_holds_sessions_and_ledger_and_must_be_usable() {
    let bench = turns::Bench::new("openai", turns::calls(Vec::new(), "Yes."));
    let mut home = Home::new().with("WRIT_DATA_DIR", "~/elsewhere");
    home.env.extend(
        bench.home.env.iter().filter(|(name, _)| name.contains("__") || name == "SCRIPTED_KEY").cloned(),
    );
    assert_eq!(code(&home.run(&["init", "--yes"])), 0);
    let done = home.run(&["chat", "-m", "hello"]);
    assert_eq!(code(&done), 0, "{}", text(&done));
    let data = home.dir.path().join("elsewhere/writ.db");
    let count = |table: &str| -> i64 {
        let conn = rusqlite::Connection::open(&data).expect("opens");
        conn.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).expect("counts")
    };
    assert_eq!(count("session"), 1);
    assert!(count("ledger") > 3 && !home.database().exists());
    engine::stop_engine_of(&home);
    // Not even root makes a folder there.
    home.env.push(("WRIT_DATA_DIR".to_owned(), "/proc/elsewhere".to_owned()));
    let refused = home.run(&["start"]);
    assert_eq!(code(&refused), 3, "{}", text(&refused));
}

/// A key of a provider that stands in the configuration itself ends the start and fails the doctor's check; it is shown nowhere, and
/// not written anywhere. A reference to it passes.
///
/// Rows: SF-327
#[test]
fn a_plain_key_of_a_provider_ends_the_start_and_is_never_shown() {
    let home = Home::ready().in_processes();
    let config = home.root().join("config.toml");
    let provider = |key: &str| format!("[providers.anthropic]\napi_key = \"{key}\"\n");
    std::fs::write(&config, provider("sk-test123")).expect("written");
    for command in [&["start"][..], &["start", "--json"], &["config", "check"], &["doctor"], &["status"]] {
        let ended = home.run(command);
        assert!(!text(&ended).contains("sk-test123"), "{command:?}: {}", text(&ended));
        if command[0] == "start" {
            assert_eq!(code(&ended), 3, "{}", text(&ended));
            assert!(text(&ended).contains("providers.anthropic.api_key"), "{}", text(&ended));
        }
    }
    let mut folders = vec![home.root().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("reads").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.is_file() && path != config {
                let bytes = std::fs::read(&path).expect("reads");
                assert!(!bytes.windows(10).any(|part| part == b"sk-test123"), "{}", path.display());
            }
        }
    }
    for reference in ["vault://secret/writ#anthropic_api_key", "secret:anthropic", "env:ANTHROPIC_KEY"] {
        std::fs::write(&config, provider(reference)).expect("written");
        let checked = home.run(&["config", "check"]);
        assert_eq!(code(&checked), 0, "{reference}: {}", text(&checked));
    }
}

/// Rows: SF-329
#[test]
fn doctor_says_of_a_configuration_what_the_start_says() {
    let home = Home::ready().in_processes();
    let config = home.root().join("config.toml");
    let verdict = || {
        let report = home.json(&["doctor"]);
        let checks = report["checks"].as_array().expect("checks").clone();
        checks.into_iter().find(|check| check["name"] == "config").expect("it checks it")
    };
    assert_eq!(verdict()["verdict"], "good");
    for wrong in ["[budget]\nmax_token_per_day = 1\n", "[limits]\nmax_turn_secs = \"x\"\n"] {
        std::fs::write(&config, wrong).expect("written");
        let started = home.run(&["start", "--json"]);
        assert_eq!(code(&started), 3, "{}", text(&started));
        let error: Value = serde_json::from_slice(&started.stderr).expect("JSON on standard error");
        let told = error.pointer("/error/text").and_then(Value::as_str).expect("a text");
        let found = verdict();
        assert_eq!(found["verdict"], "bad");
        assert!(found.to_string().contains(told), "{told}: {found}");
    }
}

/// Rows: SIL-253
#[test]
fn the_effective_configuration_is_shown_with_origins() {
    let home = Home::ready().in_processes().with("WRIT_BUDGET__MAX_TOKENS_PER_DAY", "7");
    std::fs::write(home.root().join("config.toml"), "agent = \"ada\"\n[budget]\nmax_tokens_per_day = 5\n")
        .expect("written");
    let shown = home.json(&["config", "show"]);
    let value = |key: &str| shown.get(key).map(|entry| (entry["value"].clone(), entry["origin"].clone()));
    assert_eq!(value("agent"), Some(("ada".into(), "config.toml line 1".into())));
    assert_eq!(
        value("budget.max_tokens_per_day"),
        Some((7.into(), "WRIT_BUDGET__MAX_TOKENS_PER_DAY".into()))
    );
    assert_eq!(value("owner_id"), Some(("owner".into(), "default".into())));
}

#[test]
fn a_fresh_ledger_verifies_exports_and_proves_its_entries() {
    let home = Home::ready().in_processes();
    let verified = home.json(&["audit", "verify", "--every-signature"]);
    assert_eq!((verified["rows"].as_u64(), &verified["problem"]), (Some(1), &Value::Null));
    let heads = home.dir.path().join("heads.jsonl");
    let heads = heads.to_str().expect("UTF-8");
    assert_eq!(code(&home.run(&["audit", "export", "--heads", heads])), 0);
    assert_eq!(
        code(&home.run(&["audit", "export", "--heads", heads])),
        2,
        "held heads are never overwritten"
    );
    assert_eq!(home.json(&["audit", "verify", "--heads", heads])["held"], 1);
    let blank = home.dir.path().join("blank");
    std::fs::write(&blank, "\n").expect("written");
    for none in ["/dev/null", blank.to_str().expect("UTF-8")] {
        let output = home.run(&["audit", "verify", "--heads", none]);
        assert_eq!(code(&output), 2, "nothing was compared: {}", text(&output));
        assert!(
            text(&output).contains("hint: ") && !text(&output).contains("verified:"),
            "{}",
            text(&output)
        );
    }
    let copy = home.dir.path().join("copy.db");
    std::fs::copy(home.database(), &copy).expect("copied");
    let copy = copy.to_str().expect("UTF-8");
    assert_eq!(code(&home.run(&["audit", "verify", "--db", copy, "--heads", heads])), 0);
    let other = "ab".repeat(32);
    assert_eq!(code(&home.run(&["audit", "verify", "--db", copy, "--key", &other])), 9);
    let proof = home.json(&["audit", "proof", "0"]);
    assert_eq!(proof["event"], "keyed");
    assert_eq!(code(&home.run(&["audit", "proof", "1"])), 2);
    let exported = home.run(&["audit", "export"]);
    assert_eq!(String::from_utf8_lossy(&exported.stdout).lines().count(), 1);
    assert_eq!(code(&home.run(&["audit", "search", "ENROLLED"])), 0);
    assert!(text(&home.run(&["audit", "search", "enrolled"])).contains("keyed"));
    assert_eq!(text(&home.run(&["audit", "search", "nothing of the kind"])), "");
}

/// The same mistake ends with the same code, whatever it is that is not there.
#[test]
fn what_is_not_there_is_wrong_usage() {
    let home = Home::ready().in_processes();
    for args in [
        &["audit", "proof", "99"][..],
        &["approvals", "show", "AAAAAAAA"],
        &["approvals", "approve", "AAAAAAAA", "--yes"],
        &["approvals", "deny", "AAAAAAAA"],
        &["diff", "--session", "01ARZ3NDEKTSV4RRFFQ69G5FAV"],
    ] {
        let output = home.run(args);
        assert_eq!(code(&output), 2, "{args:?}: {}", text(&output));
    }
}

#[test]
fn one_changed_byte_ends_with_9_and_names_the_leaf() {
    let home = Home::ready().in_processes();
    // Whatever lies in the write-ahead log goes into the file, where a byte can be changed.
    let conn = rusqlite::Connection::open(home.database()).expect("opens");
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("written back");
    drop(conn);
    let mut bytes = std::fs::read(home.database()).expect("reads");
    let payload = b"\"role\":\"approver\"";
    let at =
        bytes.windows(payload.len()).position(|found| found == payload).expect("the payload is in the file");
    bytes[at + 10] ^= 1;
    std::fs::write(home.database(), bytes).expect("written");
    let output = home.run(&["audit", "verify"]);
    assert_eq!(code(&output), 9, "{}", text(&output));
    assert!(text(&output).contains("first bad leaf: 0"), "{}", text(&output));
    let report = home.json(&["audit", "verify"]);
    assert_eq!(
        (report["problem"]["leaf"].as_u64(), report["problem"]["kind"].as_str()),
        (Some(0), Some("payload"))
    );
}

#[test]
fn a_missing_or_foreign_database_ends_with_3() {
    let home = Home::ready().in_processes();
    for file in std::fs::read_dir(home.root().join("data"))
        .expect("reads")
        .map(|entry| entry.expect("an entry").path())
    {
        if file.is_file() {
            std::fs::remove_file(file).expect("removed");
        }
    }
    for args in [&["audit", "verify"][..], &["audit", "tail"]] {
        let output = home.run(args);
        assert_eq!(code(&output), 3, "{args:?}: {}", text(&output));
        assert!(!home.database().exists(), "reading makes no database");
    }
    std::fs::write(home.database(), "this is not a database, whatever its name says").expect("written");
    assert_eq!(code(&home.run(&["audit", "verify"])), 3);
}

#[test]
fn secrets_go_in_by_pipe_and_never_come_out() {
    let home = Home::ready().in_processes();
    let value = "correct-horse-battery-staple";
    let set = home.run_with(&["secrets", "set", "openai"], format!("{value}\n").as_bytes());
    assert_eq!(code(&set), 0, "{}", text(&set));
    std::fs::write(
        home.root().join("config.toml"),
        "[models]\ndefault = \"local/x\"\n[providers.local]\nkind = \"openai\"\nbase_url = \"http://127.0.0.1:9/v1/\"\napi_key = \"secret:openai\"\n",
    )
    .expect("written");
    let mut said = text(&set);
    for args in [
        &["secrets", "list"][..],
        &["secrets", "list", "--json"],
        &["config", "show"],
        &["config", "show", "--json"],
        &["keys", "inspect", "--json", "-v"],
        &["audit", "export"],
        &["doctor", "--json"],
    ] {
        said += &text(&home.run(args));
    }
    assert!(said.contains("openai"));
    assert!(!said.contains(value), "{said}");
    let seeds = std::fs::read_to_string(home.root().join("keys/secrets.json")).expect("reads");
    let seeds: Value = serde_json::from_str(&seeds).expect("JSON");
    for seed in seeds["keys"].as_object().expect("keys").values().filter_map(Value::as_str) {
        assert!(!said.contains(seed), "a private key was printed");
    }
    assert_eq!(code(&home.run(&["secrets", "remove", "openai"])), 0);
    assert_eq!(home.json(&["secrets", "list"])["secrets"], Value::Array(Vec::new()));
    for (args, input, expected) in [
        (&["secrets", "set", "../x"][..], "v", 2),
        (&["secrets", "set", "empty"], "", 2),
        (&["secrets", "remove", "openai"], "", 2),
    ] {
        let output = home.run_with(args, input.as_bytes());
        assert_eq!(code(&output), expected, "{args:?}: {}", text(&output));
    }
    assert_eq!(code(&home.run_with(&["secrets", "set", "binary"], &[0xff, 0xfe])), 2);
}

#[test]
fn an_encrypted_home_without_a_passphrase_ends_with_10() {
    let mut home = Home::new().in_processes();
    home.env = vec![("WRIT_SECRETS__BACKEND".into(), "age".into())];
    let output = home.run(&["init"]);
    assert_eq!(code(&output), 10, "{}", text(&output));
    let credentials = home.dir.path().join("credentials");
    std::fs::create_dir(&credentials).expect("made");
    std::fs::write(credentials.join("writ-passphrase"), "a long passphrase\n").expect("written");
    let mut home = home.with("CREDENTIALS_DIRECTORY", credentials.to_str().expect("UTF-8"));
    assert_eq!(code(&home.run(&["init"])), 0);
    let set = home.run_with(&["secrets", "set", "a"], b"v");
    assert_eq!(code(&set), 0, "{}", text(&set));
    std::fs::write(credentials.join("writ-passphrase"), "another passphrase").expect("written");
    assert_eq!(code(&home.run(&["secrets", "list"])), 10);
    home.env.truncate(1);
    let output = home.run(&["secrets", "list"]);
    assert_eq!(code(&output), 10, "{}", text(&output));
    // What needs public keys alone works without it.
    assert_eq!(code(&home.run(&["audit", "verify"])), 0);
    assert_eq!(code(&home.run(&["keys", "root"])), 0);
    // An engine has nobody to ask, and says so through the command that wanted it.
    let output = home.run(&["approvals", "list"]);
    assert_eq!(code(&output), 10, "{}", text(&output));
    assert!(text(&output).contains("no passphrase was given"), "{}", text(&output));
}

#[test]
fn doctor_ends_with_0_or_1_and_names_what_is_wrong() {
    let home = Home::ready().in_processes();
    let output = home.run(&["doctor", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let checks = report["checks"].as_array().expect("checks");
    let verdict =
        |name: &str| checks.iter().find(|check| check["name"] == name).map(|check| check["verdict"].clone());
    for name in ["clock", "home", "config", "rules", "folders", "database", "approver", "engine"] {
        assert_eq!(verdict(name), Some("good".into()), "{name}: {report}");
    }
    assert_eq!(verdict("secrets"), Some("warn".into()), "plain files are warned about");
    assert_eq!(verdict("model"), Some("warn".into()));
    assert!(verdict("sandbox").is_some());
    let healthy = checks.iter().all(|check| check["verdict"] != "bad");
    assert_eq!((report["healthy"].as_bool(), code(&output)), (Some(healthy), i32::from(!healthy)));
    std::fs::set_permissions(home.root().join("data"), std::fs::Permissions::from_mode(0o755))
        .expect("opened");
    std::fs::remove_file(home.root().join("keys/approver.pub")).expect("removed");
    let output = home.run(&["doctor"]);
    assert_eq!(code(&output), 1);
    assert!(
        text(&output).contains("mode 0755") && text(&output).contains("approver.pub is missing"),
        "{}",
        text(&output)
    );
}

#[test]
fn keys_are_shown_by_their_public_halves() {
    let home = Home::ready().in_processes();
    let root = home.json(&["keys", "root"]);
    let key = root["public_key"].as_str().expect("a key").to_owned();
    assert_eq!(key.len(), 64);
    assert_eq!(text(&home.run(&["keys", "root"])).trim(), key);
    let all = home.json(&["keys", "inspect"]);
    let roles: Vec<&str> =
        all["keys"].as_array().expect("keys").iter().filter_map(|key| key["role"].as_str()).collect();
    assert_eq!(roles, ["root", "harness", "approver"]);
}

#[test]
fn status_says_that_no_engine_runs_and_starts_none() {
    let home = Home::ready().in_processes();
    assert_eq!(home.json(&["status"])["engine"], "not running");
    assert!(!home.root().join("runtime/control.sock").exists());
}

#[test]
fn commands_that_begin_together_share_one_engine() {
    let home = Home::ready().in_processes();
    assert_eq!(code(&home.run(&["memory", "add", "the sky is blue"])), 0);
    std::thread::scope(|scope| {
        let searches: Vec<_> =
            (0..4).map(|_| scope.spawn(|| home.json(&["memory", "search", "sky"]))).collect();
        for search in searches {
            let found = search.join().expect("it ends");
            assert_eq!(found["hits"].as_array().map(Vec::len), Some(1), "{found}");
        }
    });
    assert_eq!(home.json(&["status"])["engine"], "running");
    let second = home.run(&["start"]);
    assert_eq!(code(&second), 10, "{}", text(&second));
    assert_eq!(home.json(&["audit", "verify"])["problem"], Value::Null, "also while the engine runs");
    let left: Vec<String> = std::fs::read_dir(home.root().join("runtime"))
        .expect("reads")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("start."))
        .collect();
    assert_eq!(left, Vec::<String>::new(), "the output of starts is not kept");
}

#[test]
fn jobs_are_listed_with_their_next_run_and_doctor_counts_them() {
    let home = Home::ready();
    let listed = home.json(&["jobs", "list"]);
    let jobs = listed["jobs"].as_array().expect("a list");
    let names: Vec<&str> = jobs.iter().filter_map(|job| job["name"].as_str()).collect();
    assert_eq!(
        names,
        [
            "asks.expire",
            "ledger.copy_heads",
            "ledger.erase",
            "memory.consolidate",
            "memory.digest",
            "outbox.prune",
            "sessions.erase",
            "tools.review",
            "undo.end"
        ]
    );
    assert!(jobs.iter().all(|job| job["next_run"].is_string()), "{listed}");
    let output = home.run(&["jobs", "list"]);
    let lines: Vec<String> = text(&output).lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), names.len(), "{lines:?}");
    assert!(lines[2].starts_with("ledger.erase         every 1 h    next 2"), "{lines:?}");
    let report = home.run(&["doctor", "--json"]);
    let report: Value = serde_json::from_slice(&report.stdout).expect("JSON");
    let checks = report["checks"].as_array().expect("checks");
    let check = checks.iter().find(|check| check["name"] == "jobs").expect("a check of jobs");
    assert_eq!((check["verdict"].as_str(), check["text"].as_str()), (Some("good"), Some("9 of the engine")));
}

#[test]
fn an_engine_that_cannot_start_tells_why_through_the_command() {
    let home = Home::ready().in_processes();
    std::fs::remove_file(home.root().join("keys/secrets.json")).expect("removed");
    let output = home.run(&["memory", "search", "x", "--json"]);
    let told: Value = serde_json::from_slice(&output.stderr).expect("JSON on standard error");
    assert!(
        told.pointer("/error/code").and_then(Value::as_str).is_some_and(|code| code.starts_with("secrets.")),
        "{told}"
    );
    assert_eq!(told.pointer("/error/exit").and_then(Value::as_i64), Some(code(&output).into()));
}

#[test]
fn needs_userns_a_command_in_the_sandbox_ends_as_it_ended() {
    let home = Home::ready().in_processes();
    let output = home.run(&["sandbox", "exec", "--", "sh", "-c", "echo out; echo err >&2; exit 41"]);
    let said = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert_eq!((code(&output), said), (41, ("out\n".into(), "err\n".into())));
}

#[test]
fn a_reader_that_has_enough_is_no_error() {
    let home = Home::ready().in_processes();
    #[expect(clippy::disallowed_types, reason = "the test starts the binary that it tests")]
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_writ"))
        .args(["config", "show"])
        .env_clear()
        .env("HOME", home.dir.path())
        .env("WRIT_HOME", home.root())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // Closed before anything is written, or while it is: either way the command ends quietly.
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((code(&output), text(&output).contains("panic")), (0, false), "{}", text(&output));
}
