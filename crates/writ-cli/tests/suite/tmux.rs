//! A person's conversation in a real tmux: what stands on the screen, not what was written to it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::json;
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault};

use super::turns::Bench;

/// How long a screen may take to show what is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// The columns of the screen.
const COLUMNS: usize = 60;

/// A tmux of its own, with one window.
pub(super) struct Screen {
    socket: PathBuf,
    /// Each screen that was waited for, for a person to read.
    record: String,
}

impl Screen {
    /// Starts `writ` with these arguments in the project's folder.
    fn start(bench: &Bench, args: &str) -> Self {
        Self::start_in(bench, &bench.project(), args)
    }

    /// Starts `writ` with these arguments in a folder.
    pub(super) fn start_in(bench: &Bench, folder: &Path, args: &str) -> Self {
        let socket = bench.home.dir.path().join("tmux.socket");
        let screen = Self { socket, record: String::new() };
        let home = bench.home.root();
        let env = bench.home.env.iter().map(|(name, value)| format!("{name}={value}"));
        let own =
            [format!("WRIT_HOME={}", home.display()), format!("HOME={}", bench.home.dir.path().display())];
        let set: Vec<String> = env.chain(own).flat_map(|pair| ["-e".to_owned(), pair]).collect();
        let (columns, folder) = (COLUMNS.to_string(), folder.display().to_string());
        let command = format!("{} {args}; cat", env!("CARGO_BIN_EXE_writ"));
        let size = ["-f", "/dev/null", "new-session", "-d", "-x", &columns, "-y", "150", "-c", &folder];
        let args: Vec<&str> =
            size.into_iter().chain(set.iter().map(String::as_str)).chain([&*command]).collect();
        screen.tmux(&args);
        screen
    }

    pub(super) fn tmux(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    #[expect(clippy::disallowed_types, reason = "the test is a person before a terminal")]
    fn run(&self, args: &[&str]) -> std::process::Output {
        std::process::Command::new("tmux")
            .arg("-S")
            .arg(&self.socket)
            .args(args)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("TERM", "xterm-256color")
            .env("LANG", "C.UTF-8")
            .output()
            .expect("tmux starts")
    }

    pub(super) fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Waits until the screen shows a text; returns its rows, with their colours.
    pub(super) fn until(&mut self, text: &str) -> String {
        let since = Instant::now();
        loop {
            let shown = self.tmux(&["capture-pane", "-p"]);
            if shown.contains(text) {
                self.record.push_str(&format!("=== {text}\n{}\n", shown.trim_end()));
                return self.tmux(&["capture-pane", "-p", "-e"]);
            }
            assert!(since.elapsed() < PATIENCE, "{text:?} is not on the screen:\n{shown}");
            std::thread::yield_now();
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // It outlives no test, also where it has ended by itself.
        let _ended = self.run(&["kill-server"]);
    }
}

/// Text with every mark that is shown in colour, and a line that is wider than the screen.
const MARKED: &str = "# A heading\nOne **bold** word, and so many others that this line is wider than the screen of this person.\n- an item\n```\nlet a = 1;\n```\nThe end.";

fn script(request: &ParsedRequest) -> Reply {
    let asked = request.last_user_text();
    if asked.ends_with("write it") && request.results().count() == 0 {
        return Reply::call("file_write", json!({ "path": "b.txt", "content": "new\n" }));
    }
    if asked.ends_with("write it") {
        return Reply::text("All is written.");
    }
    if asked.ends_with("half of it") {
        return Reply::text("One is said. This is half of what follows, and more.")
            .with_fault(ReplyFault::SilenceAfter(8));
    }
    if asked.ends_with("marks") { Reply::text(MARKED) } else { Reply::text("Still here.") }
}

/// Rows: SCL-121 (in part: no model fails)
#[test]
fn needs_tmux_needs_userns_a_person_reads_answers_and_goes_on() {
    let bench = Bench::new("openai", script);
    let mut screen = Screen::start(&bench, "chat");
    screen.until("[y/N]");
    screen.keys(&["y", "Enter"]);
    screen.until("session ");

    // Colour and words instead of marks; no word is broken, and nothing is shown twice.
    screen.keys(&["with marks", "Enter"]);
    let shown = screen.until("The end.");
    assert!(shown.contains("\u{1b}[1mA heading") && shown.contains("\u{1b}[36m"), "{shown:?}");
    assert!(!shown.contains("**") && !shown.contains("# A"), "{shown:?}");
    let plain = screen.tmux(&["capture-pane", "-p"]);
    assert!(plain.contains("so many others that this line is\nwider than the screen"), "{plain}");
    assert!(plain.contains("• an item") && plain.contains("One bold word"), "{plain}");
    assert_eq!(plain.matches("The end.").count(), 1, "{plain}");

    // What the gates let pass is seen before its line ends; Ctrl-C stops the turn and keeps what was being typed.
    screen.keys(&["half of it", "Enter"]);
    screen.until("One is said.");
    screen.keys(&["a draft"]);
    screen.until("> a draft");
    screen.keys(&["C-c"]);
    screen.until("[cancelled]");
    screen.keys(&[" goes on", "Enter"]);
    screen.until("Still here.");
    assert!(bench.requests().concat().contains("a draft goes on"));

    // A question has a prompt of its own; what is no answer is a message; the outcome stands below.
    screen.keys(&["write it", "Enter"]);
    screen.until("Approve exactly this?");
    screen.keys(&["C-d"]);
    screen.until("writ chat --session ");
    let session =
        bench.home.json(&["approvals", "list"])["asks"][0]["session"].as_str().expect("a session").to_owned();
    drop(screen);

    // A conversation that goes on shows its open question first.
    let mut screen = Screen::start(&bench, &format!("chat --session {session}"));
    let shown = screen.until("Approve exactly this?");
    assert!(shown.contains("b.txt"), "{shown}");
    screen.keys(&["use two spaces", "Enter"]);
    screen.until("sent as a message");
    screen.until("answer>");
    screen.until("Still here.");
    assert!(!bench.project().join("b.txt").exists());
    screen.keys(&["y", "Enter"]);
    screen.until(" applied: ");
    assert_eq!(std::fs::read_to_string(bench.project().join("b.txt")).expect("applied"), "new\n");
    let record = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("tmux-session.txt");
    std::fs::write(record, &screen.record).expect("written");
}

/// A file that Tab completes is the one that is sent, and a message with too many files ends no conversation.
#[test]
fn needs_tmux_needs_userns_files_are_those_of_the_project_and_too_many_end_nothing() {
    let bench = Bench::new("openai", |request: &ParsedRequest| {
        if request.last_user_text().ends_with("without files") {
            return Reply::text("It goes on.");
        }
        let files: Vec<String> = request.files().into_iter().map(|file| file.media).collect();
        Reply::text(&format!("seen: {}.", files.join(",")))
    });
    std::fs::write(bench.project().join("photo.png"), b"\x89PNG\r\n\x1a\n....IEND\xaeB`\x82")
        .expect("written");
    let elsewhere = bench.home.dir.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).expect("made");
    let args = format!("chat --project {}", bench.project().display());
    let mut screen = Screen::start_in(&bench, &elsewhere, &args);
    screen.until("session ");
    screen.keys(&["look at @pho", "Tab"]);
    screen.until("@photo.png");
    screen.keys(&["Enter"]);
    screen.until("seen: image/png.");
    let many: String = (0..21).map(|n| format!("@{n}.png ")).collect();
    screen.keys(&["-l", &many]);
    screen.keys(&["Enter"]);
    screen.until("send them in several messages");
    screen.keys(&["without files", "Enter"]);
    screen.until("It goes on.");
}
