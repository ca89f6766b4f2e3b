//! `docs/guides/fleet.md`, played as it stands: its blocks in three terminals, in their order, with what the guide says comes out.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use rusqlite::Connection;

use crate::Home;

/// The line with which a terminal says that a block has ended, and how.
const ENDED: &str = "##ended";

/// A block of commands, and the heading that it stands under.
struct Block {
    heading: String,
    commands: String,
}

/// The blocks of commands of the guide, in their order.
fn read_blocks(guide: &str) -> Vec<Block> {
    let (mut blocks, mut heading, mut open) = (Vec::new(), String::new(), None::<String>);
    for line in guide.lines() {
        open = match (open, line) {
            (None, "```sh") => Some(String::new()),
            (None, _) => {
                if let Some(title) = line.strip_prefix("## ") {
                    title.clone_into(&mut heading);
                }
                None
            }
            (Some(commands), "```") => {
                blocks.push(Block { heading: heading.clone(), commands });
                None
            }
            (Some(commands), line) => Some(commands + line + "\n"),
        };
    }
    assert!(open.is_none(), "a block has no end");
    blocks
}

/// A shell that reads commands as a person types them, with nothing but a home and the system's programs.
struct Terminal {
    shell: Child,
    input: ChildStdin,
    lines: BufReader<ChildStdout>,
}

/// Ends everything that was begun in it.
impl Drop for Terminal {
    fn drop(&mut self) {
        let _killed = killpg(pid_of(self.shell.id()), Signal::SIGKILL);
        let _ended = self.shell.wait();
    }
}

fn pid_of(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).expect("a process id"))
}

impl Terminal {
    #[expect(clippy::disallowed_types, reason = "the test is the person who types")]
    fn open(home: &Home) -> Self {
        let programs = home.dir.path().join("bin");
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", programs.display());
        let mut variables = home.variables(&[("PATH", &path)]);
        // The guide names its home itself.
        variables.retain(|(name, _)| name != "WRIT_HOME");
        let mut shell = std::process::Command::new("bash")
            .env_clear()
            .envs(variables)
            .current_dir(home.dir.path())
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("bash starts");
        let (input, lines) = (shell.stdin.take(), shell.stdout.take());
        let lines = BufReader::new(lines.expect("a pipe"));
        let mut terminal = Self { shell, input: input.expect("a pipe"), lines };
        // One that ends at an error says so as well.
        let begun = format!("exec 2>&1\ntrap 'echo \"{ENDED} $?\"' EXIT\n");
        terminal.input.write_all(begun.as_bytes()).expect("typed");
        terminal
    }

    /// Types commands, and does not wait for them. They are read as a whole, so that none reads what follows it.
    fn begin(&mut self, commands: &str, after: &str) {
        let commands = commands.replace('\'', "'\\''");
        let typed = format!("eval '{commands}' </dev/null{after}\n");
        self.input.write_all(typed.as_bytes()).expect("typed");
    }

    /// Types commands, waits for their end, and returns what came out and their code.
    fn try_play(&mut self, commands: &str) -> (String, i32) {
        self.begin(&format!("set -e\n{commands}"), &format!("; echo \"{ENDED} $?\"; set +e"));
        self.read_end()
    }

    /// The same; they must succeed.
    fn play(&mut self, commands: &str) -> String {
        let (said, code) = self.try_play(commands);
        assert_eq!(code, 0, "{commands}\n{said}");
        said
    }

    /// Reads to the end of what was begun.
    fn read_end(&mut self) -> (String, i32) {
        let mut said = String::new();
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).expect("reads") > 0, "the shell has ended: {said}");
            if let Some((before, code)) = line.split_once(ENDED) {
                said.push_str(before);
                return (said, code.trim().parse().expect("a code"));
            }
            said.push_str(&line);
        }
    }

    /// Plays a block whose last command stays, until it says that it is ready.
    fn play_server(&mut self, commands: &str, ready: &str) {
        self.begin(commands, &format!("; echo \"{ENDED} $?\""));
        let mut said = String::new();
        while !said.contains(ready) {
            assert!(self.lines.read_line(&mut said).expect("reads") > 0, "{said}");
            assert!(!said.contains(ENDED), "it has ended: {said}");
        }
    }

    /// Plays a command again and again until something comes out, as a person who waits for an answer does.
    fn play_until(&mut self, command: &str, wanted: &str) -> String {
        for _ in 0..2_000 {
            let said = self.play(command);
            if said.contains(wanted) {
                return said;
            }
        }
        panic!("'{wanted}' never came out of {command}: {}", self.play(command));
    }
}

/// A guide that is being played.
struct PlayedGuide {
    home: Home,
    guide: String,
    blocks: std::vec::IntoIter<Block>,
}

impl PlayedGuide {
    fn open() -> Self {
        let home = Home::new().in_processes();
        let programs = home.dir.path().join("bin");
        fs::create_dir(&programs).expect("a folder");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_writ"), programs.join("writ")).expect("a link");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/fleet.md");
        let guide = fs::read_to_string(path).expect("is there");
        let blocks = read_blocks(&guide).into_iter();
        Self { home, guide, blocks }
    }

    fn root(&self) -> PathBuf {
        self.home.dir.path().join("fleet")
    }

    /// The next block, which must stand under this heading.
    fn next(&mut self, heading: &str) -> String {
        let block = self.blocks.next().expect("a block is left");
        assert_eq!(block.heading, heading, "{}", block.commands);
        block.commands
    }

    /// The next block with what a person would answer or fill in, which the guide must name.
    fn next_with(&mut self, heading: &str, (shown, filled): (&str, &str)) -> String {
        let block = self.next(heading);
        assert_eq!(block.matches(shown).count(), 1, "{shown} in {block}");
        block.replace(shown, filled)
    }

    /// The guide says this, in a sentence of any line breaks.
    fn says(&self, sentence: &str) {
        let guide = self.guide.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(guide.contains(sentence), "the guide does not say: {sentence}");
    }

    /// The commands in the table of what is on record.
    fn verifying(&self) -> Vec<String> {
        let (_, record) = self.guide.split_once("## 11. What is on record").expect("is there");
        let quoted = record.split('`').skip(1).step_by(2);
        quoted.filter(|text| text.starts_with("writ audit ")).map(str::to_owned).collect()
    }

    fn refunded(&self, order: &str) -> i64 {
        let shop = Connection::open(self.root().join("proxy/shop.db")).expect("opens");
        shop.query_row("SELECT refunded FROM orders WHERE id = ?1", [order], |row| row.get(0))
            .expect("is there")
    }

    /// Asks a process that holds a lock to end, as Ctrl-C does.
    fn interrupt(&self, lock: &str) {
        let pid = fs::read_to_string(self.root().join(lock)).expect("it runs");
        kill(pid_of(pid.trim().parse().expect("a process id")), Signal::SIGINT).expect("it is there");
    }
}

/// A new user with nothing but the guide gets from nothing to a fleet that refunds, refuses, asks a person, and says who had
/// access.
#[test]
fn needs_userns_needs_python_the_guide_to_a_fleet_works_as_it_is_written() {
    let mut guide = PlayedGuide::open();
    let mut proxy = Terminal::open(&guide.home);
    // Without a keyring and a terminal no passphrase can be typed; the guide names the way without one.
    guide.says("`writ init --yes` sets up a home without one");
    proxy.play(&guide.next_with("1. A home", ("writ init\n", "writ init --yes\n")));
    proxy.play(&guide.next("2. A shop"));
    proxy.play(&guide.next("3. Operations"));
    guide.says("It says `proxy ready`, and stays in this terminal");
    proxy.play_server(&guide.next("4. The proxy"), "proxy ready");

    guide.says("a second one, again with `export WRIT_HOME=~/fleet`");
    let mut engine = Terminal::open(&guide.home);
    engine.play("export WRIT_HOME=~/fleet");
    engine.play(&guide.next("5. An agent"));
    guide.says("It says `engine ready`");
    engine.play_server(&guide.next("6. Start the fleet"), "engine ready");

    guide.says("The other commands are for a third terminal");
    let mut person = Terminal::open(&guide.home);
    person.play("export WRIT_HOME=~/fleet");
    guide.says("`bless` prints what the agent may do, and asks; `--yes` answers");
    let bless = ("writ agent bless ~/agents/refund-agent", "writ agent bless ~/agents/refund-agent --yes");
    let said = person.play(&guide.next_with("7. Bless and deploy", bless));
    for part in ["may refund: amount 1 to 500 each time", "may give a case to: human", "refund-agent"] {
        assert!(said.contains(part), "{part} in {said}");
    }
    play_case(&mut guide, &mut person);
    play_people(&mut guide, &mut person);
    let said = person.play(&guide.next("10. An agent by hand, and in a container"));
    guide.says(r#"It prints `{"reply": "20 are refunded."}`"#);
    assert!(said.contains(r#"{"reply": "20 are refunded."}"#), "{said}");
    assert_eq!(guide.refunded("O2"), 20);
    let own = "writ run --base $BASE --task task.jwt --folder ~/agents/refund-agent -- python3 agent.py || echo code $?";
    let refused = person.play(own);
    guide.says("so `writ run` refuses to show it");
    assert!(refused.contains("would show the agent") && refused.contains("code 2"), "{refused}");
    // Image and engine may be missing, and the guide says that they are needed.
    guide.says("Image and engine have to be there");
    let verifying = guide.verifying();
    assert_eq!(verifying.len(), 3, "{verifying:?}");
    for command in verifying {
        person.play(&command);
    }
    assert!(guide.blocks.next().is_none(), "every block was played");
    guide.says("Both end with Ctrl-C, or with SIGTERM");
    for (lock, terminal) in [("runtime/lock", &mut engine), ("proxy/lock", &mut proxy)] {
        guide.interrupt(lock);
        let (said, code) = terminal.read_end();
        assert!([0, 130].contains(&code), "{code}: {said}");
    }
    assert!(UnixStream::connect(guide.root().join("runtime/cases.sock")).is_err(), "nothing serves any more");
}

/// A customer's case: what the key allows is done, and more is given up.
fn play_case(guide: &mut PlayedGuide, person: &mut Terminal) {
    let opened = person.play(&guide.next("8. A case"));
    let (_, id) = opened.split_once("{\"id\":\"").expect("the answer is the id of the case");
    let id = id.split('"').next().expect("an id").to_owned();
    let block = guide.next_with("8. A case", ("CASE=01…\n", &format!("CASE={id}\n")));
    let lines: Vec<&str> = block.lines().collect();
    let [named, look, write, look_again] = lines.as_slice() else { panic!("four lines: {block}") };
    guide.says("The agent answers a moment later");
    person.play(named);
    person.play_until(look, "500 are refunded.");
    person.play(write);
    person.play_until("writ fleet status", "queued");
    let conversation = person.play(look_again);
    assert!(conversation.contains("refund 501"), "{conversation}");
    assert_eq!((guide.refunded("O1"), guide.refunded("O2")), (500, 0));
}

/// The case in the hands of people, and the record of all that.
fn play_people(guide: &mut PlayedGuide, person: &mut Terminal) {
    let said = person.play(&guide.next("9. People"));
    for part in [
        // From `status`, `messages` and `access`.
        "queued",
        "500 are refunded.",
        "refund-agent, key sha256",
        "conversation read by owner, entry ",
        "ledger verified: entries",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert_eq!(said.matches("refund-agent, key sha256").count(), 2, "before and after the person: {said}");
    assert_eq!(guide.refunded("O1"), 500);
}
