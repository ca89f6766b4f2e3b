//! An engine that is killed, alone or with everything that it has started.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::Home;
use crate::engine::{PATIENCE, READY};

/// An engine in a process group of its own.
pub(super) struct PilotVictim {
    child: Child,
    ready: Receiver<()>,
    said: Arc<Mutex<String>>,
}

impl PilotVictim {
    /// Starts one, and waits for nothing.
    #[expect(clippy::disallowed_types, reason = "the test starts the binary that it tests")]
    pub(super) fn start(home: &Home) -> Self {
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_writ"))
            .arg("start")
            .env_clear()
            .envs(home.variables(&[]))
            .current_dir(home.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("the binary starts");
        let lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let (sender, ready) = sync_channel(1);
        let said = Arc::new(Mutex::new(String::new()));
        let own = Arc::clone(&said);
        std::thread::spawn(move || {
            // What is no text is of no interest here.
            for line in lines.map_while(Result::ok) {
                if line.contains(READY) {
                    // One that is killed early is not waited for.
                    let _sent = sender.try_send(());
                }
                own.lock().expect("locks").extend([line.as_str(), "\n"]);
            }
        });
        Self { child, ready, said }
    }

    /// Waits until it is ready, but not for longer than this. Returns false if it is not.
    pub(super) fn is_ready_within(&self, most: Duration) -> bool {
        self.ready.recv_timeout(most).is_ok()
    }

    /// Waits until it is ready.
    pub(super) fn until_ready(self) -> Self {
        assert!(self.is_ready_within(PATIENCE), "the engine is not ready: {}", self.said());
        self
    }

    pub(super) fn said(&self) -> String {
        self.said.lock().expect("locks").clone()
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a process id")
    }

    /// Kills it, and with `all` whatever it has started in the same moment.
    pub(super) fn kill(mut self, all: bool) {
        let below = if all { find_below(self.pid()) } else { Vec::new() };
        kill(Pid::from_raw(self.pid()), Signal::SIGKILL).expect("it is there");
        for pid in below {
            // It may have ended by itself, or with its parent.
            let _gone = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        self.child.wait().expect("waits");
        assert!(!self.said().contains("panicked"), "{}", self.said());
    }

    /// Ends it in good order.
    pub(super) fn stop(mut self) {
        kill(Pid::from_raw(self.pid()), Signal::SIGTERM).expect("it is there");
        let status = self.child.wait().expect("waits");
        assert_eq!(status.code(), Some(0), "{}", self.said());
        assert!(!self.said().contains("panicked"), "{}", self.said());
    }
}

/// Every process with its parent.
fn find_parents() -> Vec<(i32, i32)> {
    let numbers = std::fs::read_dir("/proc").expect("reads").flatten().filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name before it may hold anything.
        let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        Some((pid, parent))
    });
    numbers.collect()
}

/// The processes that a process has started, and those that they have.
fn find_below(pid: i32) -> Vec<i32> {
    let parents = find_parents();
    let mut below = vec![pid];
    let mut at = 0;
    while let Some(parent) = below.get(at).copied() {
        below.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    below.split_off(1)
}

/// The processes that have a folder in their arguments, environment or as their own, besides this one.
pub(super) fn find_processes_of(folder: &Path) -> Vec<String> {
    let name = folder.to_str().expect("UTF-8").as_bytes();
    let has = |bytes: &[u8]| bytes.windows(name.len()).any(|window| window == name);
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("reads").flatten() {
        let pid = entry.file_name().to_string_lossy().parse::<u32>();
        if pid.is_err() || pid == Ok(std::process::id()) {
            continue;
        }
        let read = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
        let place = std::fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        let line = read("cmdline");
        if has(&line) || has(&read("environ")) || place.starts_with(folder) {
            found.push(format!("{:?} {}", entry.path(), String::from_utf8_lossy(&line)));
        }
    }
    found
}
