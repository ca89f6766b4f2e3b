//! An engine of a test's own, and a client that speaks frames with it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use writ_types::entry::{ApprovalScope, Decision};
use writ_types::error::Exit;
use writ_types::frame::{Card, ClientFrame, Numbered, ServerFrame};
use writ_types::id::{AskId, SessionId, TurnId};

use super::Home;
use super::within::WithinEngine;

/// The line that an engine prints when it is ready.
pub(super) const READY: &str = "engine ready";
/// Longer than anything here may take: a test that hangs fails instead.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// An engine in the foreground. It is ended when it is dropped.
pub(super) enum Engine {
    /// In the test's own process.
    Within(WithinEngine),
    /// In one of its own.
    Process(EngineProcess),
}

/// How an engine ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) code: Option<i32>,
    pub(super) signal: Option<i32>,
    pub(super) said: String,
}

impl Engine {
    /// Starts an engine and waits until it is ready; if it ends before, how it did.
    pub(super) fn start(home: &Home, more: &[(&str, &str)]) -> Result<Self, Ended> {
        match &home.within {
            Some(engines) => WithinEngine::start(home, engines, more).map(Self::Within),
            None => EngineProcess::start(home, more).map(Self::Process),
        }
    }

    pub(super) fn pid(&self) -> u32 {
        match self {
            Self::Within(_) => panic!("this engine is no process: the test needs `in_processes`"),
            Self::Process(engine) => engine.child.id(),
        }
    }

    pub(super) fn signal(&self, signal: Signal) {
        match self {
            Self::Within(_) => panic!("this engine is no process: the test needs `in_processes`"),
            Self::Process(engine) => engine.signal(signal),
        }
    }

    /// Waits for its end.
    pub(super) fn wait(&mut self) -> Ended {
        match self {
            Self::Within(engine) => engine.wait(),
            Self::Process(engine) => engine.wait(),
        }
    }

    /// Tells it to end, and waits for it.
    pub(super) fn stop(mut self) -> Ended {
        match &self {
            Self::Within(engine) => engine.stop(),
            Self::Process(engine) => engine.signal(Signal::SIGTERM),
        }
        self.wait()
    }
}

/// An engine in a process of its own.
pub(super) struct EngineProcess {
    child: Child,
    said: Option<std::thread::JoinHandle<String>>,
    ended: Option<ExitStatus>,
}

impl EngineProcess {
    #[expect(clippy::disallowed_types, reason = "the test starts the binary that it tests")]
    fn start(home: &Home, more: &[(&str, &str)]) -> Result<Self, Ended> {
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_writ"))
            .arg("start")
            .env_clear()
            .envs(home.variables(more))
            .current_dir(home.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut said = String::new();
        while !said.contains(READY) && lines.read_line(&mut said).expect("reads") > 0 {}
        let ready = said.contains(READY);
        let rest = std::thread::spawn(move || {
            // What is no text is of no interest here.
            let _read = lines.read_to_string(&mut said);
            said
        });
        let mut engine = Self { child, said: Some(rest), ended: None };
        if ready { Ok(engine) } else { Err(engine.wait()) }
    }

    fn signal(&self, signal: Signal) {
        if self.ended.is_none() {
            let pid = i32::try_from(self.child.id()).expect("a process id");
            kill(Pid::from_raw(pid), signal).expect("it is there");
        }
    }

    fn wait(&mut self) -> Ended {
        let status = match self.ended {
            Some(status) => status,
            None => self.child.wait().expect("waits"),
        };
        self.ended = Some(status);
        let said = self.said.take().map(|said| said.join().expect("reads")).unwrap_or_default();
        Ended { code: status.code(), signal: status.signal(), said }
    }
}

impl Drop for EngineProcess {
    fn drop(&mut self) {
        if self.ended.is_some() {
            return;
        }
        self.signal(Signal::SIGTERM);
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a process id"));
        let (ended, end) = sync_channel::<()>(1);
        // An engine that does not end would keep the test from ending.
        let watch = std::thread::spawn(move || {
            if end.recv_timeout(PATIENCE).is_err() {
                let _gone = kill(pid, Signal::SIGKILL);
            }
        });
        let _status = self.child.wait();
        let _sent = ended.send(());
        let _joined = watch.join();
    }
}

/// Ends the engine that a command has started in this home, if one runs, and waits for its end.
pub(super) fn stop_engine_of(home: &Home) {
    if let Some(engines) = &home.within {
        engines.stop_all();
    }
    let lock = home.root().join("runtime/lock");
    if !lock.exists() || takes_lock(&lock, &["--nonblock"]) {
        return;
    }
    let pid = std::fs::read_to_string(home.root().join("runtime/lock")).unwrap_or_default();
    if let Ok(pid) = pid.trim().parse::<i32>() {
        // An engine of this process is ended by who started it.
        assert_ne!(u32::try_from(pid), Ok(std::process::id()), "an engine of this process still runs");
        let _gone = kill(Pid::from_raw(pid), Signal::SIGTERM);
        // The system gives the lock away when the process has ended.
        assert!(takes_lock(&lock, &[]), "the lock is free");
    }
}

/// Takes a lock and gives it back, in a process of its own: a child that another test forks meanwhile would inherit a lock of this
/// process, and hold it for as long as it takes to start a program.
#[expect(clippy::disallowed_types, reason = "no lock may be held in this process")]
fn takes_lock(lock: &Path, options: &[&str]) -> bool {
    let taken = std::process::Command::new("flock").args(options).arg(lock).arg("true").status();
    taken.expect("flock of util-linux starts").success()
}

/// A number of seconds for `sleep` by which one test finds its program and no other: tests run at once, also those of another run of
/// this suite.
pub(super) fn unique_word() -> &'static str {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("86400.{:010}{count:04}", std::process::id()).leak()
}

/// Whether a process runs that has this word among its arguments.
pub(super) fn runs(word: &str) -> bool {
    std::fs::read_dir("/proc").expect("reads").flatten().any(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())
    })
}

/// A client of an engine. Everything that it does gives `None` when the engine is gone.
pub(super) struct Link {
    out: UnixStream,
    lines: BufReader<UnixStream>,
    calls: u64,
}

/// How a turn ended for its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) turn: Option<TurnId>,
    pub(super) text: String,
    pub(super) exit: Exit,
    pub(super) taint: Option<writ_types::taint::Taint>,
}

impl Link {
    pub(super) fn open(home: &Home) -> Option<Self> {
        let out = UnixStream::connect(home.root().join("runtime/control.sock")).ok()?;
        out.set_read_timeout(Some(PATIENCE)).expect("set");
        let lines = BufReader::new(out.try_clone().expect("cloned"));
        Some(Self { out, lines, calls: 0 })
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Option<()> {
        self.out.write_all(bytes).ok()
    }

    pub(super) fn send(&mut self, frame: &ClientFrame) -> Option<()> {
        let mut line = serde_json::to_vec(frame).expect("JSON");
        line.push(b'\n');
        self.bytes(&line)
    }

    pub(super) fn receive(&mut self) -> Option<Numbered> {
        let mut line = String::new();
        match self.lines.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => Some(serde_json::from_str(&line).expect("a frame")),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("the engine says nothing"),
            Err(_) => None,
        }
    }

    /// Receives until a frame is the one that is looked for.
    pub(super) fn until<T>(&mut self, mut wanted: impl FnMut(Numbered) -> Option<T>) -> Option<T> {
        loop {
            if let Some(found) = wanted(self.receive()?) {
                return Some(found);
            }
        }
    }

    /// The next refusal: its code and exit code.
    pub(super) fn refusal(&mut self) -> Option<(String, Exit)> {
        self.until(|numbered| {
            let ServerFrame::Error { code, exit, hint, .. } = numbered.frame else { return None };
            assert!(!hint.is_empty(), "{code} says nothing of what to do");
            Some((code, exit))
        })
    }

    pub(super) fn call(&mut self, method: &str, params: Value) -> Option<Value> {
        self.calls += 1;
        let id = self.calls;
        self.send(&ClientFrame::Call { id, method: method.to_owned(), params })?;
        self.until(|numbered| {
            if let ServerFrame::Error { id: failed, code, text, .. } = &numbered.frame {
                assert_ne!(*failed, Some(id), "{method}: {code}: {text}");
            }
            let ServerFrame::Answer { id: answered, result } = numbered.frame else { return None };
            (answered == id).then_some(result)
        })
    }

    /// Joins a session and hears everything that was kept of it; without one, opens a new one.
    pub(super) fn join(
        &mut self,
        session: Option<SessionId>,
        project: Option<&std::path::Path>,
    ) -> Option<SessionId> {
        let project = project.filter(|_| session.is_none()).map(|path| path.display().to_string());
        self.send(&ClientFrame::Resume { session, after_seq: 0, project, write: false, dry_run: false })?;
        self.until(|numbered| {
            if let ServerFrame::Error { code, text, .. } = &numbered.frame {
                panic!("{code}: {text}");
            }
            let ServerFrame::Hello { session, .. } = numbered.frame else { return None };
            Some(session)
        })
    }

    pub(super) fn say(&mut self, text: &str, client_id: &str) -> Option<()> {
        self.send(&ClientFrame::Message {
            text: text.to_owned(),
            quoted: String::new(),
            client_id: client_id.to_owned(),
            signature: None,
            sender: None,
        })
    }

    /// Waits for the end of a turn.
    pub(super) fn answer(&mut self) -> Option<Answer> {
        self.until(|numbered| {
            if let ServerFrame::Message { turn, text, exit, taint, last: true, .. } = numbered.frame {
                return Some(Answer { turn: Some(turn), text, exit, taint: Some(taint) });
            }
            let ServerFrame::Error { exit, text, .. } = numbered.frame else { return None };
            Some(Answer { turn: None, text, exit, taint: None })
        })
    }

    /// Says something and waits for the answer.
    pub(super) fn ask(&mut self, text: &str, client_id: &str) -> Option<Answer> {
        self.say(text, client_id)?;
        self.answer()
    }

    /// Answers an ask: what came of it, or the code of the refusal.
    pub(super) fn decide(
        &mut self,
        ask: &AskId,
        decision: Decision,
        signature: Option<Value>,
    ) -> Option<Result<String, String>> {
        let reason = String::new();
        let scope = ApprovalScope::Once;
        self.send(&ClientFrame::ApprovalResponse {
            ask_id: ask.clone(),
            decision,
            scope,
            signature,
            shown_hash: None,
            reason,
        })?;
        self.until(|numbered| match (numbered.seq, numbered.frame) {
            (0, ServerFrame::ApprovalResolved { ask_id, state, .. }) if ask_id == *ask => Some(Ok(state)),
            (0, ServerFrame::Error { code, .. }) => Some(Err(code)),
            _ => None,
        })
    }

    pub(super) fn asks(&mut self) -> Option<Vec<Card>> {
        let listed = self.call("approvals.list", serde_json::json!({ "all": true }))?;
        Some(serde_json::from_value(listed["asks"].clone()).expect("cards"))
    }
}
