//! `writ chat` as a person uses it: the real binary on a real pseudo-terminal, key by key.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;
use serde_json::json;
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault};

use super::turns::Bench;

/// Longer than anything here may take: a test that hangs fails instead.
const PATIENCE: Duration = Duration::from_secs(120);

const CTRL_C: &str = "\u{3}";
const CTRL_D: &str = "\u{4}";
const ENTER: &str = "\r";

/// A terminal with `writ chat` in it, and the person before it.
struct Terminal {
    pid: Pid,
    master: OwnedFd,
    keys: File,
    output: Receiver<Vec<u8>>,
    ended: Receiver<ExitStatus>,
    /// Everything that came, and how much of it was looked at, escapes taken away.
    came: Vec<u8>,
    looked_at: usize,
}

impl Terminal {
    /// Starts `writ chat` in the project's folder.
    fn chat(bench: &Bench) -> Self {
        Self::run(bench, &["chat"])
    }

    #[expect(clippy::disallowed_types, reason = "the test starts the binary that it tests")]
    fn run(bench: &Bench, args: &[&str]) -> Self {
        // Wide enough that no line of a test is broken.
        let size = Winsize { ws_row: 50, ws_col: 250, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(&size, None).expect("a terminal");
        let slave = || Stdio::from(pty.slave.try_clone().expect("cloned"));
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_writ"))
            .args(args)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("TERM", "xterm")
            .env("HOME", bench.home.dir.path())
            .env("WRIT_HOME", bench.home.root())
            .envs(bench.home.env.iter().map(|(name, value)| (name, value)))
            .current_dir(bench.project())
            .stdin(slave())
            .stdout(slave())
            .stderr(slave())
            .spawn()
            .expect("the binary starts");
        drop(pty.slave);
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("a process id"));
        let keys = File::from(pty.master.try_clone().expect("cloned"));
        let mut screen = File::from(pty.master.try_clone().expect("cloned"));
        let (sender, output) = sync_channel(1_024);
        std::thread::spawn(move || {
            let mut bytes = [0; 4_096];
            // A terminal that nobody has open any more ends with an error.
            while let Ok(read @ 1..) = screen.read(&mut bytes) {
                if sender.send(bytes[..read].to_vec()).is_err() {
                    break;
                }
            }
        });
        let (done, ended) = sync_channel(1);
        std::thread::spawn(move || {
            let _heard = done.send(child.wait().expect("waits"));
        });
        Self { pid, master: pty.master, keys, output, ended, came: Vec::new(), looked_at: 0 }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("pressed");
    }

    /// Waits until a text appears after everything that was looked at; returns what came before it.
    fn until(&mut self, text: &str) -> String {
        loop {
            let seen = without_escapes(&self.came);
            let rest = seen.get(self.looked_at..).unwrap_or_default();
            if let Some(found) = rest.windows(text.len()).position(|window| window == text.as_bytes()) {
                self.looked_at += found + text.len();
                return String::from_utf8_lossy(&rest[..found]).into_owned();
            }
            let Ok(bytes) = self.output.recv_timeout(PATIENCE) else {
                panic!("{text:?} does not come after: {}", String::from_utf8_lossy(rest));
            };
            self.came.extend(bytes);
        }
    }

    /// Waits until the line editor reads keys itself, so that Ctrl-C is a key.
    fn until_typing(&self) {
        let since = Instant::now();
        while self.flags().contains(LocalFlags::ICANON) {
            assert!(since.elapsed() < PATIENCE, "nobody reads what is typed");
            std::thread::yield_now();
        }
    }

    fn flags(&self) -> LocalFlags {
        tcgetattr(&self.master).expect("a terminal").local_flags
    }

    /// How the command ended.
    fn code(&mut self) -> Option<i32> {
        self.ended.recv_timeout(PATIENCE).expect("it ends").code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // One that has ended is gone.
        let _gone = kill(self.pid, Signal::SIGKILL);
    }
}

/// What a person reads: control sequences and carriage returns left out.
fn without_escapes(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    let mut rest = bytes.iter().copied();
    while let Some(byte) = rest.next() {
        match byte {
            0x1b => {
                if rest.next() == Some(b'[') {
                    rest.by_ref().find(|end| (0x40..=0x7e).contains(end));
                }
            }
            b'\r' => {}
            _ => text.push(byte),
        }
    }
    text
}

/// Answers by what was asked; the last words of a message say what.
fn script(request: &ParsedRequest) -> Reply {
    let asked = request.last_user_text();
    if asked.ends_with("second line") {
        return match request.results().count() {
            0 => Reply::call("file_write", json!({"path": "b.txt", "content": "new\n"})),
            _ => Reply::text("All is written.\n"),
        };
    }
    if asked.ends_with("fail") {
        return Reply::status(400);
    }
    if asked.ends_with("for ever") {
        return Reply::text("One is here.\nTwo is here.\nThree is here.\n")
            .with_fault(ReplyFault::SilenceAfter(6));
    }
    Reply::text("Still here.\n")
}

/// The prompt is `>` and not a name; a line without words is no message.
///
/// Rows: SCL-121 SCL-167
/// Rows: SCL-163 (in part: its prompt is another one)
#[test]
fn needs_userns_a_person_types_reads_approves_cancels_and_leaves() {
    let bench = Bench::new("openai", script);
    let mut terminal = Terminal::chat(&bench);
    terminal.until("[y/N]");
    terminal.press("y\r");
    terminal.until("session ");
    terminal.until_typing();

    // A backslash goes on with the next line; a tool step and the answer are seen; the question is answered inline.
    terminal.press("first line\\");
    terminal.press(ENTER);
    terminal.press("second line");
    terminal.press(ENTER);
    terminal.until("file_write done");
    let card = terminal.until("Approve exactly this?");
    assert!(card.contains("b.txt") && card.contains("| Approve: "), "the card is shown: {card}");
    assert!(!bench.project().join("b.txt").exists(), "nothing before the approval");
    terminal.until_typing();
    terminal.press("y\r");
    terminal.until(" applied: ");
    assert_eq!(std::fs::read_to_string(bench.project().join("b.txt")).expect("applied"), "new\n");

    // Text is seen while it comes; Ctrl-C stops the turn and not the conversation.
    terminal.until_typing();
    terminal.press("talk for ever\r");
    let before = terminal.until("One is here.");
    assert!(!before.contains("cancelled"), "{before}");
    terminal.until_typing();
    terminal.press(CTRL_C);
    terminal.until("[cancelled]");
    terminal.until_typing();
    terminal.press("hello\r");
    terminal.until("Still here.");
    // A model that fails ends its turn, and the next message is answered.
    terminal.until_typing();
    terminal.press("now fail\r");
    terminal.until("the request is not accepted");
    terminal.until_typing();
    terminal.press("  \r");
    terminal.until_typing();
    terminal.press("exit now\r");
    terminal.until("Still here.");

    // The end of the input and one word end it, and what was said stays.
    terminal.until_typing();
    terminal.press("exit\r");
    let words = terminal.until(" continues this conversation");
    let session = words.rsplit(' ').next().expect("an id").to_owned();
    assert_eq!(terminal.code(), Some(0));
    let mut terminal = Terminal::run(&bench, &["chat", "--session", &session]);
    terminal.until("session ");
    terminal.until_typing();
    terminal.press("hello again\r");
    terminal.until("Still here.");
    let last = bench.requests().pop().expect("a request");
    assert!(last.contains("exit now") && last.contains("hello again"), "{last}");
    terminal.until_typing();
    terminal.press(CTRL_D);
    assert_eq!(terminal.code(), Some(0));
    assert!(terminal.flags().contains(LocalFlags::ICANON | LocalFlags::ECHO), "the terminal is as it was");
    let first = bench.requests().first().cloned().expect("a request");
    assert!(first.contains("first line\\nsecond line"), "one message of two lines: {first}");
    assert_eq!(bench.count("received"), 6);
}

/// Without a turn to stop, Ctrl-C ends the conversation as it ends every command; pasted lines are one message.
#[test]
fn without_a_turn_ctrl_c_ends_with_130_and_a_paste_is_one_message() {
    let bench = Bench::new("openai", script);
    let mut terminal = Terminal::chat(&bench);
    terminal.until("[y/N]");
    terminal.press("n\r");
    terminal.until("session ");
    terminal.until_typing();
    terminal.press("\u{1b}[200~pasted one\npasted two\u{1b}[201~\r");
    terminal.until("Still here.");
    // Only what a turn ends with is sure to come after it: before, Ctrl-C stops the turn.
    terminal.until_typing();
    terminal.press("talk for ever\r");
    terminal.until("One is here.");
    terminal.until_typing();
    terminal.press(CTRL_C);
    terminal.until("[cancelled]");
    terminal.until_typing();
    terminal.press(CTRL_C);
    assert_eq!(terminal.code(), Some(130));
    let first = bench.requests().first().cloned().expect("a request");
    assert!(first.contains("pasted one\\npasted two"), "{first}");
}

/// Words typed while a question is open are a message; commands are no messages; a draft outlives Ctrl-C, and the end names how
/// to go on.
#[test]
fn needs_userns_messages_commands_and_drafts_are_told_apart() {
    let bench = Bench::new("openai", script);
    let mut terminal = Terminal::chat(&bench);
    terminal.until("[y/N]");
    terminal.press("y\r");
    terminal.until("session ");
    terminal.until_typing();

    for (typed, shown) in [
        ("/help\r", "send a line that begins with /"),
        ("/model\r", "test/scripted"),
        ("/model test/scripted\r", "test/scripted is asked first from the next message on"),
        ("/model test/other\r", "the chosen model test/other is not in the configuration"),
        ("/pilot --help\r", "force-clear"),
        ("/pilot lunch\r", "unrecognized subcommand 'lunch'"),
        ("/pilot status\r", "nothing is planned in"),
        ("/model usual\r", "the agent's own model is asked first from the next message on"),
        ("/cost\r", "tokens"),
        ("/diff\r", "nothing is changed"),
        ("/undo\r", "nothing was applied here"),
        ("/sessions\r", "(this one)"),
        ("/stop\r", "nothing runs"),
        ("/etc/hosts is wrong\r", "/etc/hosts is not a command, and was not sent"),
    ] {
        terminal.until_typing();
        terminal.press(typed);
        terminal.until(shown);
    }
    assert!(bench.requests().is_empty(), "none of it is a message");
    terminal.until_typing();
    terminal.press("//etc/hosts is wrong\r");
    terminal.until("Still here.");
    assert!(bench.requests().concat().contains("/etc/hosts is wrong"));

    terminal.until_typing();
    terminal.press("first line, second line\r");
    terminal.until("Approve exactly this?");
    terminal.until_typing();
    terminal.press("use two spaces\r");
    terminal.until("sent as a message; the question is still open");
    terminal.until("Approve exactly this?");
    terminal.until("Still here.");
    assert!(!bench.project().join("b.txt").exists(), "it was no answer");
    terminal.until_typing();
    terminal.press("y\r");
    terminal.until(" applied: ");

    terminal.until_typing();
    terminal.press("talk for ever\r");
    terminal.until("One is here.");
    terminal.until_typing();
    terminal.press("a draft of mine");
    terminal.until("a draft of mine");
    terminal.press(CTRL_C);
    terminal.until("[cancelled]");
    terminal.until("a draft of mine");
    terminal.until_typing();
    terminal.press("\r");
    terminal.until("Still here.");
    assert!(bench.requests().last().is_some_and(|request| request.contains("a draft of mine")));
    terminal.until_typing();
    terminal.press(CTRL_D);
    terminal.until("writ chat --session ");
    assert_eq!(terminal.code(), Some(0));
}
