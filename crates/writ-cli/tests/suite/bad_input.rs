//! Full disks, changed databases, hostile repositories, and clients that break the protocol.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault, ReplyGate};
use writ_types::error::Exit;
use writ_types::frame::{ClientFrame, MAX_FRAME_BYTES, ServerFrame};

use super::engine::{Engine, Link};
use super::turns::{Bench, calls};
use super::{Home, code, text};

/// Pages that the database may still grow by: enough for a turn to begin, too few for what it reads.
const ROOM: u32 = 60;

#[test]
fn needs_userns_a_full_disk_ends_with_10_and_loses_nothing() {
    let bench = Bench::new("openai", |request: &ParsedRequest| match request.results().count() {
        n @ 0..=9 => Reply::call("file_read", json!({ "path": format!("{n}.txt") })),
        _ => Reply::text("All read."),
    })
    .in_processes();
    for n in 0..10 {
        // Text that does not repeat, so that nothing is shortened.
        let lines: Vec<String> = (0..2_000).map(|line| format!("file {n} line {line}")).collect();
        std::fs::write(bench.project().join(format!("{n}.txt")), lines.join("\n")).expect("written");
    }
    let pages: u32 = {
        let conn = rusqlite::Connection::open(bench.home.database()).expect("opens");
        conn.query_row("PRAGMA page_count", [], |row| row.get(0)).expect("counts")
    };
    let engine =
        Engine::start(&bench.home, &[("WRIT_MAX_PAGES", &(pages + ROOM).to_string())]).expect("ready");
    let full = bench.chat("read everything", &[]);
    assert_eq!(code(&full), 10, "{}", text(&full));
    assert!(text(&full).contains("disk is full"), "{}", text(&full));
    assert_eq!(bench.count("replied"), 0, "the turn has not ended");
    // What comes now is refused, not lost without a word; the engine stays.
    let refused = bench.chat("and this?", &[]);
    assert_eq!(code(&refused), 10, "{}", text(&refused));
    assert_eq!(bench.home.json(&["status"])["engine"], "running");
    assert_eq!(engine.stop().code, Some(0));
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    let listed = link.call("sessions.list", json!({})).expect("listed");
    let session = listed.pointer("/sessions/0/session").and_then(|id| id.as_str()?.parse().ok());
    link.join(session, None).expect("joined");
    let answer = link.answer().expect("the turn goes on");
    assert_eq!((answer.text.as_str(), answer.exit), ("All read.", Exit::Done));
    assert_eq!(engine.stop().code, Some(0));
    let verified = bench.home.run(&["audit", "verify"]);
    assert_eq!(code(&verified), 0, "{}", text(&verified));
}

/// A home of its own on a small disk: what is said when that is full, by an engine that runs and by one that has to start.
const FULL_DISK: &str = r#"
set -eu
mount -t tmpfs -o size=8m tmpfs "$HOME"
cd "$HOME"
"$WRIT" init --yes >/dev/null
"$WRIT" memory add 'kept before'
fill() { dd if=/dev/zero of="fill$1" bs=4k 2>/dev/null || true; dd if=/dev/zero of="rest$1" bs=512 2>/dev/null || true; }
fill 1
"$WRIT" memory add "$(head -c 60000 /dev/zero | tr '\0' x)" && exit 1 || echo "running: $?"
for process in /proc/[0-9]*; do
  [ "$(cat "$process/comm")" != writ ] || engine=${process#/proc/}
done
kill "$engine"
tail --pid="$engine" -f /dev/null & watch=$!
( sleep 60; kill "$watch" 2>/dev/null ) & limit=$!
wait "$watch" || { echo "the engine does not end"; exit 1; }
kill "$limit" 2>/dev/null || true
fill 2
"$WRIT" memory search kept && exit 1 || echo "starting: $?"
"$WRIT" start && exit 1 || echo "in the foreground: $?"
rm fill? rest?
echo "found: $("$WRIT" memory search kept)"
"$WRIT" audit verify
"#;

/// The disk is a real one: what SQLite, the log and the runtime folder say of it is the system's.
#[test]
#[expect(clippy::disallowed_types, reason = "the test makes a disk of its own")]
fn needs_userns_a_disk_that_is_really_full_is_named_by_whoever_meets_it() {
    let home = Home::new().in_processes();
    let output = std::process::Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child"])
        .args(["bash", "-c", FULL_DISK])
        .env_clear()
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .env("HOME", home.dir.path())
        .env("WRIT_HOME", home.root())
        .env("WRIT", env!("CARGO_BIN_EXE_writ"))
        .envs(home.env.iter().map(|(name, value)| (name, value)))
        .output()
        .expect("unshare starts");
    let said = text(&output);
    assert_eq!(code(&output), 0, "{said}");
    for expected in ["running: 10", "starting: 10", "in the foreground: 10", "ledger verified"] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    assert_eq!(said.matches("error: the disk is full").count(), 3, "{said}");
    let found = said.split_once("found: ").expect("searched").1;
    assert!(found.contains("kept before"), "{said}");
}

/// Who connects first finds every table, also where the database was empty; an engine whose migrations fail accepts no connection.
///
/// Rows: SIL-101
#[test]
fn tables_are_there_before_the_first_connection_and_a_failing_migration_accepts_none() {
    let home = Home::ready().in_processes();
    let (database, socket) = (home.database(), home.root().join("runtime/control.sock"));
    for end in ["-wal", "-shm"] {
        // Only there after a process that was killed.
        let _gone = std::fs::remove_file(format!("{}{end}", database.display()));
    }
    std::fs::write(&database, "").expect("emptied");
    let count_tables = |database: &Path| -> i64 {
        let conn = rusqlite::Connection::open(database).expect("opens");
        let sql = "SELECT count(*) FROM sqlite_schema WHERE type = 'table'";
        conn.query_row(sql, [], |row| row.get(0)).expect("reads")
    };
    assert_eq!(count_tables(&database), 0);
    let is_over = AtomicBool::new(false);
    let (first, engine) = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                if UnixStream::connect(&socket).is_ok() {
                    return Some(count_tables(&database));
                }
                std::thread::yield_now();
            }
            None
        });
        let engine = Engine::start(&home, &[]);
        is_over.store(engine.is_err(), Ordering::Relaxed);
        (connecting.join().expect("counts"), engine.expect("starts"))
    });
    assert!(first.is_some_and(|tables| tables > 10), "{first:?}");
    assert_eq!(first, Some(count_tables(&database)), "none is made later");
    assert_eq!(engine.stop().code, Some(0));

    let conn = rusqlite::Connection::open(&database).expect("opens");
    conn.execute("UPDATE migration SET checksum = 'another' WHERE number = 1", []).expect("changed");
    drop(conn);
    let ended = Engine::start(&home, &[]).err().expect("does not start");
    assert_eq!(ended.code, Some(3), "{}", ended.said);
    assert!(UnixStream::connect(&socket).is_err(), "no connection is accepted");
}

/// Rows: SIL-100 SIL-102
#[test]
fn a_changed_or_newer_migration_ends_with_3() {
    let changes = [
        ("UPDATE migration SET checksum = 'another' WHERE number = 1", "was changed after it was applied"),
        ("INSERT INTO migration VALUES (99, 'later', '')", "newer"),
    ];
    for (change, said) in changes {
        let home = Home::ready().in_processes();
        let conn = rusqlite::Connection::open(home.database()).expect("opens");
        conn.execute(change, []).expect("changed");
        drop(conn);
        for args in [&["approvals", "list"][..], &["start"]] {
            let output = home.run(args);
            assert_eq!(code(&output), 3, "{args:?}: {}", text(&output));
            assert!(text(&output).contains(said), "{args:?}: {}", text(&output));
        }
    }
}

/// Hostile case 22 (the part of applying), and names that could deceive.
#[test]
fn needs_userns_links_hooks_special_files_and_hostile_names_are_not_carried_out() {
    let script = r#"
        set -e
        ln -s /etc/passwd link; ln -s ../../.. up; ln -s "$PWD/plain.txt" inside
        mkfifo pipe
        mkdir -p .git/hooks sub/.git/hooks && printf '#!/bin/sh\ntouch /tmp/pwned\n' > .git/hooks/pre-commit
        cp .git/hooks/pre-commit sub/.git/hooks/post-checkout && chmod +x .git/hooks/pre-commit
        printf 'gitdir: /etc\n' > sub2.git && printf x > "$(printf 'a\nb')" && printf x > "$(printf 'c\033[2Jd')"
        printf evil > escape.txt; rm target.txt && ln -s /etc/hostname target.txt
        printf good > plain.txt
    "#;
    let bench =
        Bench::new("anthropic", calls(vec![("shell_exec", json!({"argv": ["sh", "-c", script]}))], "Done."))
            .in_processes();
    let project = bench.project();
    std::fs::create_dir_all(project.join(".git/hooks")).expect("made");
    std::fs::write(project.join(".git/config"), "[core]\n").expect("written");
    std::fs::write(project.join("target.txt"), "mine\n").expect("written");
    // A link that the project brings along leads nowhere outside either.
    let outside = bench.home.dir.path().join("outside");
    std::fs::create_dir(&outside).expect("made");
    std::fs::write(outside.join("secret.txt"), "untouched\n").expect("written");
    symlink(&outside, project.join("door")).expect("linked");
    let done = bench.chat("do your worst", &[]);
    assert_eq!(code(&done), 5, "{}", text(&done));
    let diff = text(&bench.home.run(&["diff", "--project", project.to_str().expect("UTF-8")]));
    assert!(diff.contains("plain.txt") && diff.contains("left out"), "{diff}");
    assert!(!diff.contains('\u{1b}'), "{diff:?}");
    let ask = bench.ask();
    let shown = text(&bench.home.run(&["approvals", "show", &ask]));
    assert!(!shown.contains('\u{1b}') && shown.contains("plain.txt"), "{shown:?}");
    let approved = bench.home.run(&["approvals", "approve", &ask, "--yes"]);
    assert_eq!(code(&approved), 0, "{}", text(&approved));
    assert_eq!(std::fs::read_to_string(project.join("plain.txt")).expect("applied"), "good");
    for absent in ["link", "up", "pipe", ".git/hooks/pre-commit", "sub/.git/hooks/post-checkout"] {
        assert!(project.join(absent).symlink_metadata().is_err(), "{absent} was carried out");
    }
    assert_eq!(std::fs::read_to_string(project.join(".git/config")).expect("there"), "[core]\n");
    assert!(!project.join("target.txt").is_symlink(), "no file becomes a link");
    assert_eq!(std::fs::read_to_string(outside.join("secret.txt")).expect("there"), "untouched\n");
    assert_eq!(std::fs::read_dir(&outside).expect("reads").count(), 1);
    for entry in std::fs::read_dir(&project).expect("reads") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().to_string_lossy().into_owned();
        let found = entry.path().symlink_metadata().expect("there");
        assert!(found.file_type().is_file() || found.file_type().is_dir() || name == "door", "{name:?}");
        assert_eq!(found.mode() & 0o6000, 0, "{name:?}");
    }
}

/// Rows: SF-491 (in part: a user of its own namespace, not of the system)
#[test]
fn needs_userns_a_program_can_write_nowhere_but_its_work_folder() {
    let marker = "a1b2c3-marker";
    let script = format!(
        "for d in / /etc /usr /home /root \"$HOME/..\" /proc/1/root /proc/1/root/tmp; do \
         echo x > $d/{marker} 2>/dev/null && echo wrote $d; done; \
         cat /proc/1/environ 2>/dev/null | tr '\\0' '\\n' | grep -c WRIT_; ls -A /root /home 2>/dev/null | head; echo end"
    );
    let argv = json!({"argv": ["sh", "-c", script]});
    let bench = Bench::new("openai", calls(vec![("shell_exec", argv)], "Done.")).in_processes();
    let private = bench.home.dir.path().join("private.txt");
    std::fs::write(&private, "mine").expect("written");
    std::fs::set_permissions(&private, std::fs::Permissions::from_mode(0o644)).expect("readable");
    bench.chat("look around", &["--dry-run"]);
    let done = bench.chat("look around", &["--new"]);
    assert!(text(&done).contains("Done."), "{}", text(&done));
    for folder in ["/", "/etc", "/usr", "/home", "/root", "/tmp"] {
        assert!(!std::path::Path::new(folder).join(marker).exists(), "{folder}");
    }
}

#[test]
fn frames_that_break_the_protocol_are_refused_and_the_engine_goes_on() {
    let bench = Bench::new("openai", calls(Vec::new(), "Still here.")).in_processes();
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let open = || Link::open(&bench.home).expect("connects");
    let refused = |code: &str| Some((code.to_owned(), Exit::Usage));
    let mut link = open();
    // Out of order: a message before a session.
    link.say("hello", "one").expect("sent");
    assert_eq!(link.refusal(), refused("session.none"));
    for line in [
        &b"this is no JSON\n"[..],
        b"{}\n",
        b"[]\n",
        b"\n",
        b"{\"type\":\"sudo\"}\n",
        b"{\"type\":\"message\",\"text\":5,\"client_id\":\"x\"}\n",
        b"{\"type\":\"resume\",\"session\":\"../../etc\"}\n",
        b"{\"type\":\"approval_response\",\"ask_id\":\"../..\",\"decision\":\"approve\"}\n",
        b"{\"type\":\"approval_response\",\"ask_id\":\"AAAAAAAA\",\"decision\":\"perhaps\"}\n",
    ] {
        link.bytes(line).expect("sent");
        assert_eq!(link.refusal(), refused("frame.invalid"), "{}", String::from_utf8_lossy(line));
    }
    let deep =
        format!("{{\"type\":\"call\",\"id\":1,\"method\":\"status\",\"params\":{}}}\n", "[".repeat(100_000));
    link.bytes(deep.as_bytes()).expect("sent");
    assert_eq!(link.refusal(), refused("frame.invalid"));
    link.bytes(b"{\"type\":\"approval_response\",\"ask_id\":\"AAAAAAAA\",\"decision\":\"approve\",\"signature\":7}\n")
        .expect("sent");
    assert_eq!(link.refusal(), refused("approval.malformed"));
    let unknown = json!({"type": "resume", "session": "01ARZ3NDEKTSV4RRFFQ69G5FAV"}).to_string() + "\n";
    link.bytes(unknown.as_bytes()).expect("sent");
    assert_eq!(link.refusal().map(|(_, exit)| exit), Some(Exit::Usage));
    link.send(&ClientFrame::Call { id: 9, method: "no.such".to_owned(), params: json!({}) }).expect("sent");
    assert_eq!(link.refusal(), refused("call.unknown"));
    link.send(&ClientFrame::Call { id: 10, method: "memory.add".to_owned(), params: json!({"txt": 1}) })
        .expect("sent");
    assert_eq!(link.refusal(), refused("call.params"));
    // A turn that never was cannot be stopped.
    let nowhere = "01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().expect("an id");
    link.send(&ClientFrame::Cancel { turn: nowhere }).expect("sent");
    assert_eq!(link.refusal(), refused("turn.unknown"));
    // Unfit messages.
    link.join(None, None).expect("joined");
    for (text, client_id) in [("  ", "a"), ("fine", ""), ("fine", "x\u{0}y")] {
        link.say(text, client_id).expect("sent");
        assert_eq!(link.refusal(), refused("message.invalid"), "{text:?} {client_id:?}");
    }
    // The same connection still works after all that.
    assert_eq!(link.ask("hello", "two").expect("answered").text, "Still here.");
    // The same message again is the same message.
    link.say("hello", "two").expect("sent");
    link.until(|numbered| matches!(numbered.frame, ServerFrame::Accepted { .. }).then_some(()))
        .expect("accepted");
    assert_eq!(bench.server.recorded_requests().len(), 1);
    // What ends a connection ends only that one.
    let mut binary = open();
    binary.bytes(b"\xff\xfe{}\n").expect("sent");
    assert_eq!(binary.refusal(), refused("frame.invalid"));
    assert_eq!(binary.receive(), None);
    let mut large = open();
    // The engine may stop reading before all is written.
    let _written = large.bytes(&vec![b'x'; MAX_FRAME_BYTES + 2]);
    assert_eq!(large.refusal(), refused("frame.too_large"));
    assert_eq!(large.receive(), None);
    assert_eq!(link.ask("again", "three").expect("answered").text, "Still here.");
    let ended = engine.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    assert!(!ended.said.contains("panicked"), "{}", ended.said);
}

/// What cannot be meant is told with what, where, and what to do instead, and ends with the code of wrong usage.
#[test]
fn what_cannot_be_meant_is_told_with_a_hint() {
    let bench = Bench::new("openai", calls(Vec::new(), "Hello.")).in_processes();
    let home = &bench.home;
    let told = |args: &[&str]| {
        let output = home.run(&[args, &["--json"]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let line = said.lines().find(|line| line.starts_with('{')).unwrap_or_default();
        let error: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
        let part = |name: &str| error["error"][name].as_str().unwrap_or_default().to_owned();
        (code(&output), part("code"), part("text"), part("hint"))
    };
    let engine = Engine::start(home, &[]).expect("ready");
    for (args, error, where_, hint) in [
        (
            &["audit", "verify", "--heads", "/nonexist/heads"][..],
            "cli.unreadable",
            "/nonexist/heads",
            "export",
        ),
        (&["audit", "export", "--heads", "/nonexist/x"], "cli.unwritable", "/nonexist/x", "folder"),
        (&["diff"], "project.no_session", "session", "writ chat"),
        (&["apply"], "project.no_session", "session", "writ chat"),
        (&["chat", "-m", "hi", "--project", "/"], "project.unusable", "root", "folder"),
        (&["chat", "-m", " "], "cli.empty", "empty", "writ chat -m"),
        (&["memory", "add", ""], "cli.empty", "remember", "writ memory add"),
        (&["secrets", "remove", "nothing"], "secrets.no_such_secret", "nothing", "writ secrets list"),
    ] {
        let said = told(args);
        assert_eq!((said.0, said.1.as_str()), (2, error), "{args:?}: {said:?}");
        assert!(said.2.contains(where_) && said.3.contains(hint), "{args:?}: {said:?}");
    }
    let kind = home.run(&["audit", "search", "--event", "nope"]);
    assert_eq!(code(&kind), 2);
    assert!(text(&kind).contains("model_called") && text(&kind).contains("denied"), "{}", text(&kind));
    // Who may be reached by others without a token is refused before it is asked whether an engine runs.
    let open = told(&["start", "--host", "0.0.0.0"]);
    assert_eq!((open.0, open.1.as_str()), (3, "server.no_token"), "{open:?}");
    assert!(!open.3.is_empty(), "{open:?}");
    assert_eq!(engine.stop().code, Some(0));
    std::fs::write(home.root().join("config.toml"), "agent = \"a\"\n[budget\n").expect("written");
    let broken = home.run(&["config", "check"]);
    assert_eq!(code(&broken), 3, "{}", text(&broken));
    assert!(text(&broken).contains("config.toml line 2: column 8: this is not TOML"), "{}", text(&broken));
    assert!(text(&broken).contains("hint: a setting is written"), "{}", text(&broken));
}

/// Rows: SIL-033
#[test]
fn a_client_that_vanishes_loses_no_turn_and_others_hear_only_their_own() {
    let gate = ReplyGate::new();
    let held = gate.clone();
    let bench = Bench::new("anthropic", move |_: &ParsedRequest| {
        Reply::text("Said to nobody.").with_fault(ReplyFault::SlowFirstByte(held.clone()))
    })
    .in_processes();
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    let session = link.join(None, None).expect("joined");
    let mut other = Link::open(&bench.home).expect("connects");
    other.join(None, None).expect("joined");
    link.say("are you there?", "one").expect("sent");
    link.until(|numbered| matches!(numbered.frame, ServerFrame::Accepted { .. }).then_some(()))
        .expect("accepted");
    bench.held_back();
    drop(link);
    // Another one leaves in the middle of a frame.
    let mut half = Link::open(&bench.home).expect("connects");
    half.bytes(b"{\"type\":\"mess").expect("sent");
    drop(half);
    gate.open();
    let mut back = Link::open(&bench.home).expect("connects");
    back.join(Some(session), None).expect("joined");
    assert_eq!(back.answer().expect("kept").text, "Said to nobody.");
    // Nothing of it reached the client of another session: the next thing that it hears is its own answer.
    other.send(&ClientFrame::Call { id: 77, method: "status".to_owned(), params: json!({}) }).expect("sent");
    let next = other.receive().expect("a frame").frame;
    assert!(matches!(next, ServerFrame::Answer { id: 77, .. }), "{next:?}");
    assert_eq!(engine.stop().code, Some(0));
}

/// Sets the loopback device up and goes on as the program that it is given.
pub(super) const LOOPBACK_ALONE: &str = "import fcntl, os, socket, struct, sys
request = struct.pack('16sh22x', b'lo', 0x41)
fcntl.ioctl(socket.socket(), 0x8914, request)
os.execv(sys.argv[1], sys.argv[1:])";

/// Work comes from the store of the home alone: there is no tracker to name, neither as a table nor as a kind of plugin. The demo
/// serves its own model over loopback, and runs to its end where there is no other network.
///
/// Rows: SF-575
#[test]
#[expect(clippy::disallowed_types, reason = "a namespace of its own, without a network")]
fn needs_userns_needs_git_needs_python_a_tracker_is_refused_and_work_needs_no_network_but_its_model() {
    let bench = Bench::new("openai", calls(vec![("shell_exec", json!({ "argv": ["true"] }))], "Done."));
    let config = bench.home.root().join("config.toml");
    let before = std::fs::read(&config).unwrap_or_default();
    for (tracker, key) in
        [("[tracker]\nkind = \"linear\"\n", "'tracker'"), ("[plugins.a]\nkind = \"tracker\"\n", "'plugins'")]
    {
        std::fs::write(&config, [before.as_slice(), tracker.as_bytes()].concat()).expect("written");
        let checked = bench.home.run(&["config", "check"]);
        assert_eq!(code(&checked), 3, "{}", text(&checked));
        assert!(text(&checked).contains(key), "{}", text(&checked));
    }
    std::fs::write(&config, before).expect("written");
    let done = bench.chat("run true", &[]);
    assert_eq!(code(&done), 0, "{}", text(&done));
    assert_eq!(bench.count("connected"), 0);
    let home = Home::new().in_processes();
    let demo = std::process::Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "python3", "-c", LOOPBACK_ALONE])
        .args([env!("CARGO_BIN_EXE_writ"), "demo", "--yes"])
        .env("HOME", home.dir.path())
        .env("WRIT_HOME", home.root())
        .envs(home.env.iter().map(|(name, value)| (name, value)))
        .current_dir(home.dir.path())
        .stdin(std::process::Stdio::null())
        .output()
        .expect("unshare starts");
    assert_eq!(code(&demo), 0, "{}", text(&demo));
}
