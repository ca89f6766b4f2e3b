//! The guarantees of [`crate::runner::Runner`], asked of every runner that this system has. A runner that is added is
//! listed in [`RUNNERS`], and nothing else.

use std::fs;
use std::path::{Path, PathBuf};

use tokio_util::sync::CancellationToken;
use writ_types::action::{ChangeKind, Exec, ExecProfile, FileChange, ReadFile, ReadMode};
use writ_types::digest::Digest;
use writ_types::encoding::TextEncoding;
use writ_types::error::{Exit, ToReport as _};

use crate::apply::ApplyError;
use crate::config::{RunnerKind, SandboxConfig, WorkspaceConfig};
use crate::error::{RunnerError, SandboxError};
use crate::exec::{Ending, ExecOptions, Limit};
use crate::file_request::{FileReply, FileRequest};
use crate::project::beneath;
use crate::serve::ServeOptions;
use crate::status::Rung;
use crate::{Sandbox, Workspace};

/// Every kind of runner.
const RUNNERS: [RunnerKind; 2] = [RunnerKind::Native, RunnerKind::Refuse];

/// A runner with a project of one file, in a home with a secret, and a session's folder.
struct Bench {
    sandbox: Sandbox,
    runs: bool,
    dir: PathBuf,
    _temp: tempfile::TempDir,
}

impl Bench {
    async fn new(runner: RunnerKind) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        fs::create_dir_all(dir.join("home/code/project")).unwrap();
        fs::create_dir_all(dir.join("home/.ssh")).unwrap();
        // A session that is there: where nothing is run, none is begun.
        fs::create_dir_all(dir.join("data")).unwrap();
        fs::write(dir.join("home/.ssh/key"), "MARKER-KEY").unwrap();
        fs::write(dir.join("home/code/project/README.md"), "one\ntwo\n").unwrap();
        let config = SandboxConfig { runner, host_home: Some(dir.join("home")), ..SandboxConfig::default() };
        let sandbox = Sandbox::start(config).unwrap();
        let runs = sandbox.status().await.rung != Rung::Refuse;
        Self { sandbox, runs, dir, _temp: temp }
    }

    /// All of them that this system has.
    async fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for runner in RUNNERS.into_iter().filter(|runner| runner.is_available()) {
            all.push(Self::new(runner).await);
        }
        all
    }

    fn project(&self) -> PathBuf {
        self.dir.join("home/code/project")
    }

    async fn open(&self) -> Workspace {
        self.try_open(&self.project()).await.unwrap()
    }

    async fn try_open(&self, project: &Path) -> Result<Workspace, SandboxError> {
        let (data_dir, project) = (self.dir.join("data"), Some(project.to_owned()));
        self.sandbox.open(WorkspaceConfig { data_dir, project, shown: None }).await
    }

    /// The files below the session's folder and the project, with their content.
    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut found = Vec::new();
        let mut open = vec![self.dir.join("data"), self.project()];
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    open.push(path)
                } else {
                    found.push((path.clone(), fs::read(&path).unwrap()))
                }
            }
        }
        found.sort();
        found
    }

    /// A file as a program of an earlier engine has left it: made after the project's own was last changed.
    fn leave(&self, name: &str, content: &str) {
        let upper = self.dir.join("data/upper");
        fs::create_dir_all(&upper).unwrap();
        let project = fs::File::open(self.project().join("README.md")).unwrap();
        // File systems count time in ticks of some milliseconds.
        loop {
            let _ = fs::remove_file(upper.join(name));
            fs::write(upper.join(name), content).unwrap();
            let file = fs::File::open(upper.join(name)).unwrap();
            if beneath::made_at(&file).unwrap() > beneath::changed_at(&project).unwrap() {
                return;
            }
        }
    }
}

/// A program with time enough on a machine that is busy with other tests, in milliseconds.
const PATIENCE_MS: u64 = 120_000;

fn exec(argv: &[&str]) -> Exec {
    Exec {
        argv: argv.iter().map(|arg| (*arg).to_owned()).collect(),
        cwd: "/work".into(),
        env: Default::default(),
        stdin: None,
        timeout_ms: PATIENCE_MS,
        profile: ExecProfile::Task,
        hosts: Vec::new(),
    }
}

fn sh(script: &str) -> Exec {
    exec(&["sh", "-c", script])
}

fn is_refused<T>(result: &Result<T, SandboxError>) -> bool {
    matches!(result, Err(SandboxError::Refused { reasons }) if !reasons.is_empty())
}

#[tokio::test]
async fn a_runner_says_which_it_is_and_what_it_gives() {
    for runner in RUNNERS.into_iter().filter(|runner| runner.is_available()) {
        let bench = Bench::new(runner).await;
        let status = bench.sandbox.status().await;
        assert_eq!((status.runner, bench.sandbox.ready_count()), (runner, 0));
        assert_eq!(bench.sandbox.status().await, status, "it is found once");
        assert_eq!(status.rung == Rung::Refuse, runner == RunnerKind::Refuse || !status.seccomp);
        if status.rung != Rung::Full {
            assert!(!status.reduced.is_empty() && !status.hints.is_empty(), "{status:?}");
        }
        let root = bench.open().await.root_inside().await;
        assert!(if bench.runs { root.unwrap().is_absolute() } else { is_refused(&root) });
    }
}

#[tokio::test]
async fn a_runner_that_this_system_has_not_is_an_error_of_the_start() {
    for runner in RUNNERS {
        let config = SandboxConfig { runner, ..SandboxConfig::default() };
        let started = Sandbox::start(config);
        let unavailable =
            matches!(&started, Err(RunnerError::Unavailable { runner: named }) if *named == runner);
        assert_eq!(unavailable, !runner.is_available(), "{started:?}");
    }
    assert!(RunnerKind::default().is_available());
    let report = RunnerError::Unavailable { runner: RunnerKind::Native }.report();
    assert_eq!((report.exit, report.code.as_str()), (Exit::Config, "sandbox.runner"));
    assert!(report.outside.contains("'native'") && report.hint.contains("refuse"));
}

#[tokio::test]
async fn a_program_is_confined_or_refused_before_anything_happens() {
    for bench in Bench::all().await {
        let workspace = bench.open().await;
        let before = bench.files();
        let key = bench.dir.join("home/.ssh/key");
        let script = format!("echo ran > ran; cat {} || echo none; env | grep CARGO", key.display());
        let result = workspace.run_exec(sh(&script), ExecOptions::default()).await;
        if bench.runs {
            let result = result.unwrap();
            assert_eq!(result.stdout.text, "none\n", "{result:?}");
            assert_eq!(result.rung, bench.sandbox.status().await.rung);
            let changes = workspace.read_changes().await.unwrap().changes;
            assert_eq!(changes.iter().map(|change| change.path.as_str()).collect::<Vec<_>>(), ["ran"]);
        } else {
            assert!(is_refused(&result), "{result:?}");
            assert_eq!(bench.files(), before);
        }
        assert!(!bench.project().join("ran").exists());
    }
}

#[tokio::test]
async fn a_command_that_is_wrong_is_wrong_with_every_runner() {
    for bench in Bench::all().await {
        let workspace = bench.open().await;
        for wrong in [exec(&["echo", "a\0b"]), exec(&[]), Exec { cwd: "work".into(), ..sh("true") }] {
            let result = workspace.run_exec(wrong, ExecOptions::default()).await;
            assert!(matches!(result, Err(SandboxError::BadCommand { .. })), "{result:?}");
        }
    }
}

#[tokio::test]
async fn nothing_outlives_its_run_and_its_folder_is_free_then() {
    for (number, bench) in Bench::all().await.into_iter().enumerate() {
        let workspace = bench.open().await;
        let marker = format!("86400.{}{number}77", std::process::id());
        let daemon = format!("setsid sleep {marker} & echo started");
        let cancelled = CancellationToken::new();
        cancelled.cancel();
        for (script, cancel) in [(daemon, CancellationToken::new()), ("echo ran > ran".to_owned(), cancelled)]
        {
            let was_cancelled = cancel.is_cancelled();
            let options = ExecOptions { cancel, ..ExecOptions::default() };
            let result = workspace.run_exec(sh(&script), options).await;
            match (bench.runs, was_cancelled) {
                (true, false) => assert_eq!(result.unwrap().stdout.text, "started\n"),
                (true, true) => {
                    assert_eq!(result.unwrap().ending, Ending::Killed { limit: Limit::Cancelled });
                }
                (false, _) => assert!(is_refused(&result), "{result:?}"),
            }
            // The folder is waited for; once it is free, nothing of the run is left.
            assert!(workspace.read_changes().await.unwrap().is_empty());
            assert_eq!(processes(&marker), [0; 0]);
        }
    }
}

/// Processes of this machine whose command line holds a text.
fn processes(marker: &str) -> Vec<i32> {
    let ours = i32::try_from(std::process::id()).unwrap();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| *pid != ours)
        .filter(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(marker)
        })
        .collect()
}

#[tokio::test]
async fn files_are_answered_inside_or_refused() {
    for bench in Bench::all().await {
        let workspace = bench.open().await;
        let before = bench.files();
        let read = ReadFile { path: "README.md".into(), mode: ReadMode::Text { first_line: 1, lines: 10 } };
        let content = "three\n";
        let change = FileChange {
            path: "new.md".into(),
            kind: ChangeKind::Create,
            before: None,
            after: Some(Digest::of_bytes(content.as_bytes())),
            executable: false,
            bytes: 6,
        };
        let write = FileRequest::Write {
            change,
            content: Some(content.to_owned()),
            encoding: TextEncoding::default(),
        };
        let outside = FileRequest::Peek("../../etc/passwd".into());
        let read = workspace.ask_worker(FileRequest::Read(read)).await;
        let written = workspace.ask_worker(write).await;
        let outside = workspace.ask_worker(outside).await;
        let peeked = workspace.peek_file("README.md").await;
        if bench.runs {
            assert!(matches!(read, Ok(FileReply::Read(_))), "{read:?}");
            assert!(matches!(written, Ok(FileReply::Written(_))), "{written:?}");
            assert!(matches!(outside, Err(SandboxError::File(_))), "{outside:?}");
            assert_eq!(peeked.unwrap().unwrap().bytes, b"one\ntwo\n");
        } else {
            assert!([&read, &written, &outside].into_iter().all(is_refused), "{written:?}");
            assert!(is_refused(&peeked));
            assert_eq!(bench.files(), before);
        }
        assert!(!bench.project().join("new.md").exists());
    }
}

#[tokio::test]
async fn a_server_is_talked_to_or_refused() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    for bench in Bench::all().await {
        let config = WorkspaceConfig { data_dir: bench.dir.join("server"), project: None, shown: None };
        if !bench.runs {
            let opened = bench.sandbox.open(config.clone()).await;
            assert!(is_refused(&opened), "{opened:?}");
            assert!(!config.data_dir.exists(), "not even a folder is made");
            fs::create_dir(&config.data_dir).unwrap();
        }
        let workspace = bench.sandbox.open(config).await.unwrap();
        let server = Exec { profile: ExecProfile::Server, ..exec(&["cat"]) };
        let served = workspace.run_server(server, ServeOptions::default()).await;
        if !bench.runs {
            assert!(is_refused(&served), "{served:?}");
            continue;
        }
        let mut served = served.unwrap();
        served.input.write_all(b"hello").await.unwrap();
        let mut answer = [0; 5];
        served.output.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"hello");
        assert_eq!(served.ended.kill().await.unwrap().ending, Ending::Killed { limit: Limit::Cancelled });
    }
}

#[tokio::test]
async fn what_an_earlier_engine_left_is_shown_applied_and_discarded() {
    let mut shown = Vec::new();
    for bench in Bench::all().await {
        bench.leave("README.md", "one\ntwo\nthree\n");
        bench.leave("new.md", "new\n");
        let workspace = bench.open().await;
        assert!(!workspace.is_copy());
        let diff = workspace.read_diff().await.unwrap();
        assert_eq!(diff.changes, workspace.read_changes().await.unwrap());
        assert!(diff.text.contains("+three"), "{}", diff.text);
        let changes = diff.changes.changes.clone();
        shown.push(diff);
        // Only the state that was shown is applied.
        let mut other = changes.clone();
        other[0].after = Some(Digest::of_bytes(b"another"));
        let conflict = workspace.carry_changes(workspace.session_view(), other, None).await;
        assert!(matches!(conflict, Err(ApplyError::Conflict { .. })), "{conflict:?}");
        assert_eq!(fs::read(bench.project().join("README.md")).unwrap(), b"one\ntwo\n");
        let applied = workspace.carry_changes(workspace.session_view(), changes, None).await.unwrap();
        assert_eq!(applied.done, ["README.md", "new.md"]);
        assert_eq!(fs::read(bench.project().join("README.md")).unwrap(), b"one\ntwo\nthree\n");
        assert!(workspace.read_changes().await.unwrap().is_empty());
        bench.leave("rest.md", "rest\n");
        assert_eq!(workspace.read_changes().await.unwrap().changes.len(), 1);
        workspace.discard_changes().await.unwrap();
        assert!(workspace.read_changes().await.unwrap().is_empty());
    }
    // Every runner shows the same.
    assert!(shown.windows(2).all(|pair| pair[0] == pair[1]), "{shown:?}");
}

#[tokio::test]
async fn folders_with_a_home_or_our_data_are_no_project_of_any_runner() {
    for bench in Bench::all().await {
        for refused in [bench.dir.join("home"), bench.dir.clone(), bench.dir.join("home/.ssh"), "/etc".into()]
        {
            let config = WorkspaceConfig {
                data_dir: bench.dir.join("data"),
                project: Some(refused.clone()),
                shown: None,
            };
            let checked = bench.sandbox.check_project(&config);
            assert!(
                matches!(checked, Err(SandboxError::Project { .. })),
                "{}: {checked:?}",
                refused.display()
            );
            let opened = bench.try_open(&refused).await;
            assert!(matches!(opened, Err(SandboxError::Project { .. })), "{}", refused.display());
        }
        assert!(bench.try_open(&bench.project()).await.is_ok(), "twin");
    }
}
