//! Approvals for the task, and what is undone.

use std::path::PathBuf;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use writ_testkit::model_server::{ParsedRequest, Reply};
use writ_types::error::Exit;

use super::engine::{Engine, Link, runs, unique_word};
use super::turns::Bench;
use super::{code, text};

/// Five minutes, in milliseconds: for so long one tap undoes.
const WINDOW_MS: i64 = 5 * 60 * 1_000;

/// What the person has said last, and how many calls were worked on since.
fn last(request: &ParsedRequest) -> (&str, usize) {
    let said = |text: &str| text.starts_with("cut") || (text.contains(".txt=") && !text.contains(' '));
    let at = request
        .messages
        .iter()
        .rposition(|message| said(&message.text))
        .expect("somebody has said something");
    let results = request.messages.iter().skip(at).map(|message| message.results.len()).sum();
    (request.messages[at].text.as_str(), results)
}

/// Writes what the person names, and then says so: `a.txt=one`.
fn writes(request: &ParsedRequest) -> Reply {
    let (said, results) = last(request);
    match (results, said.split_once('=')) {
        (0, Some((path, content))) => Reply::call("file_write", json!({"path": path, "content": content})),
        (_, _) => Reply::text("Done."),
    }
}

fn bench() -> Bench {
    Bench::new("openai", writes)
}

impl Bench {
    pub(super) fn session(&self) -> String {
        self.home.json(&["status"])["session"]["session"].as_str().expect("a session").to_owned()
    }

    /// Says something more in a session; how the command ends.
    fn more(&self, session: &str, message: &str) -> i32 {
        code(&self.home.run(&["chat", "-m", message, "--session", session]))
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.project().join(name)
    }

    pub(super) fn content(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).unwrap_or_default()
    }

    /// The open ask about this kind of action.
    fn asks_for(&self, action: &str) -> String {
        let asks = self.home.json(&["approvals", "list"]);
        let asks = asks["asks"].as_array().expect("a list").iter();
        let mut ask =
            asks.filter(|ask| ask["action"] == action).map(|ask| ask["ask_id"].as_str().expect("an id"));
        ask.next_back().expect("one is open").to_owned()
    }

    fn in_force(&self) -> Vec<Value> {
        self.home.json(&["approvals", "list"])["in_force"].as_array().expect("a list").clone()
    }

    pub(super) fn verify(&self) {
        let verified = self.home.run(&["audit", "verify"]);
        assert_eq!(code(&verified), 0, "{}", text(&verified));
    }
}

/// «For the task»: what is alike is done without a question in the same session, is on record with its approval, and is
/// asked about again in another session and as soon as the approval is taken back.
#[test]
fn needs_userns_an_approval_for_the_task_is_not_asked_for_again_until_it_is_taken_back() {
    let bench = bench();
    assert_eq!(code(&bench.chat("a.txt=one", &[])), 5);
    let (session, ask) = (bench.session(), bench.ask());
    let shown = text(&bench.home.run(&["approvals", "show", &ask]));
    let folder = bench.project().canonicalize().expect("there").display().to_string();
    assert!(
        shown.contains("Also approve later changes to this folder, unseen (20 times, 60 minutes) (--task): ")
            && shown.contains(&folder),
        "{shown}"
    );
    assert!(shown.contains("20 times in all, for 60 minutes"), "{shown}");
    let approved = bench.home.run(&["approvals", "approve", &ask, "--task", "--yes"]);
    assert_eq!(code(&approved), 0, "{}", text(&approved));
    assert_eq!(bench.content("a.txt"), "one");

    assert_eq!(bench.more(&session, "b.txt=two"), 0, "nobody is asked");
    assert_eq!(bench.content("b.txt"), "two");
    let intents = bench.events("intent");
    let by_ask = intents.iter().filter(|intent| intent["payload"]["approval"] == ask.as_str()).count();
    assert_eq!(by_ask, 2, "both rest on the one approval");
    let in_force = bench.in_force();
    assert_eq!((in_force.len(), &in_force[0]["uses_left"]), (1, &json!(18)), "{in_force:?}");

    // Another session is another task.
    let mut link = Link::open(&bench.home).expect("an engine");
    link.join(None, Some(&bench.project())).expect("a new one");
    assert_eq!(link.ask("c.txt=three", "one").expect("ends").exit, Exit::Waiting);
    assert!(!bench.file("c.txt").exists());
    let other = bench.ask();
    assert_eq!(code(&bench.home.run(&["approvals", "deny", &other])), 0);

    let revoked = bench.home.run(&["approvals", "revoke", &ask]);
    assert_eq!(code(&revoked), 0, "{}", text(&revoked));
    assert_eq!(bench.in_force(), [] as [Value; 0]);
    assert_eq!(bench.more(&session, "d.txt=four"), 5, "asked again");
    assert!(!bench.file("d.txt").exists());
    assert_eq!(code(&bench.home.run(&["approvals", "revoke", &ask])), 2, "there is none any more");
    bench.verify();
}

/// What one approval for the task would cover is never covered by an approval of that one thing, and what offers no
/// such approval cannot be given one.
#[test]
fn needs_userns_an_approval_of_one_thing_covers_nothing_else_and_a_restart_keeps_one_for_the_task() {
    let bench = bench();
    assert_eq!(code(&bench.chat("a.txt=one", &[])), 5);
    let session = bench.session();
    assert_eq!(code(&bench.home.run(&["approvals", "approve", &bench.ask(), "--yes"])), 0);
    assert_eq!(bench.more(&session, "b.txt=two"), 5);
    let ask = bench.ask();
    assert_eq!(code(&bench.home.run(&["approvals", "approve", &ask, "--task", "--yes"])), 0);
    super::engine::stop_engine_of(&bench.home);
    assert_eq!(bench.more(&session, "c.txt=three"), 0);
    assert_eq!(bench.content("c.txt"), "three");

    // Twenty in all: what was shown, one more, and eighteen that follow.
    for n in 0..18 {
        assert_eq!(bench.more(&session, &format!("n.txt={n}")), 0, "{n}");
    }
    assert_eq!(bench.more(&session, "n.txt=over"), 5, "it is used up");
    assert_eq!(bench.content("n.txt"), "17");
    bench.verify();
}

/// What an interrupted turn has left behind is shown before it is applied, whatever was approved for the task, and
/// what a person has refused is not applied with what comes next.
#[test]
fn needs_userns_what_an_interrupted_turn_has_left_is_asked_about_all_the_same() {
    let script = |request: &ParsedRequest| match last(request) {
        ("cut", 0) => Reply::call("file_write", json!({"path": "half.txt", "content": "half"})),
        ("cut", _) => Reply::status(400),
        (_, _) => writes(request),
    };
    let bench = Bench::new("openai", script);
    assert_eq!(code(&bench.chat("a.txt=one", &[])), 5);
    let (session, ask) = (bench.session(), bench.ask());
    assert_eq!(code(&bench.home.run(&["approvals", "approve", &ask, "--task", "--yes"])), 0);
    assert_eq!(bench.more(&session, "cut"), 7, "the model fails");
    assert!(!bench.file("half.txt").exists());
    let asked = bench.home.json(&["approvals", "show", &bench.ask()]);
    assert!(asked["shown"].as_str().expect("a text").contains("half.txt"), "{asked}");
    assert_eq!(code(&bench.home.run(&["approvals", "deny", &bench.ask()])), 0);
    assert_eq!(bench.more(&session, "b.txt=two"), 5, "asked, with all that it would bring out");
    assert!(!bench.file("half.txt").exists() && !bench.file("b.txt").exists());
    let asked = bench.home.json(&["approvals", "show", &bench.ask()]);
    let shown = asked["shown"].as_str().expect("a text");
    assert!(shown.contains("half.txt") && shown.contains("b.txt"), "{asked}");
    assert_eq!(code(&bench.home.run(&["approvals", "approve", &bench.ask(), "--yes"])), 0);
    // All of it was seen: the approval for the task covers what follows.
    assert_eq!(bench.more(&session, "c.txt=three"), 0);
    assert_eq!(bench.content("c.txt"), "three");
}

/// A command that an approval for the task has covered and that a crash cuts off is not run again: the model is told that
/// nobody knows, and what was shown and done before is not called into question.
#[test]
fn needs_userns_a_covered_command_that_a_crash_cuts_off_is_not_repeated() {
    // It ends the first time, and the second time it does not.
    let word = unique_word();
    let script = format!("echo x >> ran; test -e once && exec sleep {word}; touch once");
    let run = move || json!({"argv": ["sh", "-c", script], "hosts": ["unlisted.example"]});
    let bench = Bench::new("openai", move |request: &ParsedRequest| {
        let (said, results) = last(request);
        if said == "cut" && results == 0 { Reply::call("shell_exec", run()) } else { Reply::text("Done.") }
    });
    let bench = bench.in_processes();
    let mut engine = Engine::start(&bench.home, &[]).expect("ready");
    assert_eq!(code(&bench.chat("cut", &[])), 5, "its host is not listed");
    let (session, ask) = (bench.session(), bench.asks_for("exec"));
    assert_eq!(code(&bench.home.run(&["approvals", "approve", &ask, "--task", "--yes"])), 0);
    let before = bench.count("answered");
    std::thread::scope(|scope| {
        let cut = scope.spawn(|| bench.more(&session, "cut"));
        while !runs(word) && !cut.is_finished() {
            std::thread::yield_now();
        }
        assert!(runs(word), "nobody is asked a second time");
        engine.signal(Signal::SIGKILL);
        engine.wait();
        assert_ne!(cut.join().expect("ends"), 0, "its engine is gone");
    });
    let mut engine = Engine::start(&bench.home, &[]).expect("ready again");
    // The turn is resumed and ends; the next one finds it over.
    assert_eq!(bench.more(&session, "hello.txt=now"), 0);
    let told = bench.requests().iter().filter(|request| request.contains("not known whether")).count();
    assert!(told >= 1, "the model is told: {:?}", bench.requests().last());
    let diff = text(&bench.home.run(&["diff", "--session", &session]));
    assert_eq!(diff.matches("+x").count(), 2, "it ran twice, not three times: {diff}");
    assert_eq!(bench.count("answered"), before, "nobody is told anything of the first one again");
    engine.signal(Signal::SIGTERM);
    engine.wait();
    bench.verify();
}

/// One tap takes an applied change back, on record; a second one does nothing.
///
/// Rows: SIL-328
#[test]
fn needs_userns_what_was_applied_is_undone_once_and_on_record() {
    let bench = bench();
    std::fs::write(bench.file("a.txt"), "before\n").expect("written");
    assert_eq!(code(&bench.chat("a.txt=after", &[])), 5);
    let approved = bench.home.run(&["approvals", "approve", &bench.ask(), "--yes"]);
    assert_eq!((code(&approved), bench.content("a.txt").as_str()), (0, "after\n"));
    let project = bench.project().display().to_string();
    let undo = || bench.home.run(&["apply", "--undo", "--project", &project]);

    let undone = undo();
    assert_eq!((code(&undone), bench.content("a.txt").as_str()), (0, "before\n"), "{}", text(&undone));
    assert_eq!(bench.count("applied"), 2, "both ways are on record");
    assert_eq!(bench.count("answered"), 2, "the tap is an answer");
    let again = undo();
    assert_eq!((code(&again), bench.content("a.txt").as_str()), (2, "before\n"), "{}", text(&again));
    bench.verify();
}

/// Two taps at once, as two tabs would do it: one undoes, the other does nothing.
#[test]
fn needs_userns_two_taps_at_once_undo_once() {
    let bench = bench();
    std::fs::write(bench.file("a.txt"), "before\n").expect("written");
    assert_eq!(code(&bench.chat("a.txt=after", &[])), 5);
    assert_eq!(code(&bench.home.run(&["approvals", "approve", &bench.ask(), "--yes"])), 0);
    let project = bench.project().display().to_string();
    let undo = || code(&bench.home.run(&["apply", "--undo", "--project", &project]));
    let codes = std::thread::scope(|scope| {
        let taps = [scope.spawn(undo), scope.spawn(undo)];
        taps.map(|tap| tap.join().expect("ends"))
    });
    assert_eq!(codes.iter().filter(|code| **code == 0).count(), 1, "{codes:?}");
    assert_eq!((bench.content("a.txt").as_str(), bench.count("applied")), ("before\n", 2));
    bench.verify();
}

/// After five minutes nothing is undone without leave: a person is asked, and the card shows the way back.
///
/// Rows: SIL-328 SIL-329
#[test]
fn needs_userns_after_its_time_an_undo_is_asked_about() {
    let bench = bench();
    assert_eq!(code(&bench.chat("a.txt=after", &[])), 5);
    assert_eq!(code(&bench.home.run(&["approvals", "approve", &bench.ask(), "--yes"])), 0);
    move_back(&bench);
    late_undo(&bench);
}

/// Leave that was given beforehand does not cover a late undo either.
///
/// Rows: SIL-329
#[test]
fn needs_userns_after_its_time_an_undo_is_asked_about_also_where_changes_need_no_leave() {
    let bench = bench();
    assert_eq!(code(&bench.chat("a.txt=after", &["--write"])), 0);
    move_back(&bench);
    late_undo(&bench);
}

/// Lets the five minutes of what was applied pass.
fn move_back(bench: &Bench) {
    super::engine::stop_engine_of(&bench.home);
    let conn = rusqlite::Connection::open(bench.home.root().join("data/writ.db")).expect("opens");
    let (at, until): (i64, i64) = conn
        .query_row("SELECT at, until FROM undo", [], |row| Ok((row.get(0)?, row.get(1)?)))
        .expect("one row");
    assert_eq!(until - at, WINDOW_MS);
    let moved = format!("UPDATE undo SET at = at - {WINDOW_MS}, until = until - {WINDOW_MS} - 1");
    assert_eq!(conn.execute(&moved, []).expect("moved"), 1);
    drop(conn);
}

fn late_undo(bench: &Bench) {
    let project = bench.project().display().to_string();
    let late = bench.home.run(&["apply", "--undo", "--project", &project]);
    assert_eq!((code(&late), bench.content("a.txt").as_str()), (5, "after"), "{}", text(&late));
    let card = bench.home.json(&["approvals", "show", &bench.ask()]);
    let shown = card["shown"].as_str().expect("a text");
    assert!(shown.contains("--- a/a.txt") && shown.contains("-after"), "{shown}");
    assert_eq!(card["task"], Value::Null, "each undo is approved by itself");
    assert_eq!(code(&bench.home.run(&["approvals", "approve", &bench.ask(), "--yes"])), 0);
    assert!(!bench.file("a.txt").exists(), "the file was new");
    bench.verify();
}

/// What its owner has changed since is not lost to an undo, and what is older goes only with what is newer gone.
#[test]
fn needs_userns_an_undo_never_touches_what_was_changed_since() {
    let bench = bench();
    assert_eq!(code(&bench.chat("a.txt=one", &["--write"])), 0);
    assert_eq!(bench.more(&bench.session(), "b.txt=two"), 0);
    std::fs::write(bench.file("b.txt"), "the owner's\n").expect("written");
    let project = bench.project().display().to_string();
    let undo = || bench.home.run(&["apply", "--undo", "--project", &project]);
    let refused = undo();
    assert_eq!((code(&refused), bench.content("b.txt").as_str()), (8, "the owner's\n"), "{}", text(&refused));
    assert!(text(&refused).contains("b.txt"), "{}", text(&refused));
    std::fs::write(bench.file("b.txt"), "two").expect("written");
    // With leave given beforehand for the folder, an undo needs none either.
    assert_eq!((code(&undo()), code(&undo())), (0, 0));
    assert!(!bench.file("a.txt").exists() && !bench.file("b.txt").exists());
    assert_eq!(bench.count("asked"), 0);
    bench.verify();
}
