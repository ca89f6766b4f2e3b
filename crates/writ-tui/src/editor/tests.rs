//! Tests of the editor's rules; keys on a real terminal are its library's.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;

fn typed(text: &str, continued: &[&str]) -> String {
    let continued: Vec<_> = continued.iter().map(|start| (*start).to_owned()).collect();
    join_lines(text.to_owned(), &continued)
}

#[test]
fn only_backslashes_that_continued_a_line_are_taken_away() {
    assert_eq!(typed("a\\\nb\\\nc", &["a\\", "a\\\nb\\"]), "a\nb\nc");
    // Pasted: nobody pressed Enter after these backslashes.
    assert_eq!(typed("make \\\n  -j2", &[]), "make \\\n  -j2");
    assert_eq!(typed("make \\\n  -j2\\\nthen this", &["make \\\n  -j2\\"]), "make \\\n  -j2\nthen this");
    // The beginning was edited afterwards.
    assert_eq!(typed("b\\\nc", &["a\\"]), "b\\\nc");
    assert_eq!(typed("a\\", &["a\\"]), "a\\");
    assert_eq!(typed("ä\\\nb", &["ä\\", "ä\\"]), "ä\nb");
}

fn editor() -> Editor<Continuation, DefaultHistory> {
    let settings =
        rustyline::Config::builder().max_history_size(3).expect("a size").auto_add_history(false).build();
    Editor::with_config(settings).expect("an editor")
}

fn lines(editor: &Editor<Continuation, DefaultHistory>) -> Vec<String> {
    editor.history().iter().cloned().collect()
}

#[test]
fn the_history_is_private_bounded_and_shared_between_chats() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("history");
    let mut one = editor();
    let history = History::load_history(&mut one, Some(file.clone()));
    assert_eq!(fs::metadata(&file).expect("there").permissions().mode() & 0o777, 0o600);
    for line in ["a", "  ", "b\nc", &"x".repeat(20_000), "d", "e"] {
        history.add_line(&mut one, line);
    }
    assert_eq!(lines(&one), ["b\nc", "d", "e"]);
    let mut two = editor();
    History::load_history(&mut two, Some(file.clone()));
    assert_eq!(lines(&two), ["b\nc", "d", "e"]);
    assert_eq!(fs::metadata(&file).expect("there").permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_history_that_cannot_be_used_is_left_alone() {
    let dir = tempfile::tempdir().expect("a folder");
    let elsewhere = dir.path().join("elsewhere");
    fs::write(&elsewhere, "precious").expect("written");
    let link = dir.path().join("link");
    symlink(&elsewhere, &link).expect("linked");
    let large = dir.path().join("large");
    fs::write(&large, vec![b'x'; 5 * 1024 * 1024]).expect("written");
    for file in [link, large.clone(), dir.path().to_owned(), dir.path().join("no/such/folder")] {
        let mut editor = editor();
        let history = History::load_history(&mut editor, Some(file));
        history.add_line(&mut editor, "typed");
        assert_eq!(lines(&editor), ["typed"], "the chat has a history of its own");
    }
    assert_eq!(fs::read_to_string(&elsewhere).expect("read"), "precious");
    assert_eq!(fs::metadata(&large).expect("there").len(), 5 * 1024 * 1024);
}

/// Collects what a terminal would print.
struct Screen(mpsc::SyncSender<String>);

impl ExternalPrinter for Screen {
    fn print(&mut self, text: String) -> rustyline::Result<()> {
        self.0.send(text).map_err(|error| ReadlineError::Io(io::Error::other(error)))
    }
}

#[test]
fn above_a_line_that_is_typed_text_appears_line_by_line() {
    let (sender, screen) = mpsc::sync_channel(16);
    let above = Above::start_printer(Screen(sender)).expect("a thread");
    let mut printer = Printer { terminal: Some(above), held: Vec::new() };
    for piece in ["hel", "lo\nwor", "ld", "\n"] {
        printer.write_all(piece.as_bytes()).expect("written");
        printer.flush().expect("flushed");
    }
    printer.write_all("x".repeat(MAX_HELD_BYTES + 1).as_bytes()).expect("written");
    drop(printer);
    let printed: Vec<String> = screen.iter().collect();
    assert_eq!(printed.get(..2), Some(&["hello\n".to_owned(), "world\n".to_owned()][..]));
    assert_eq!(printed.get(2).map(String::len), Some(MAX_HELD_BYTES + 1));
}

#[test]
fn a_read_that_was_cancelled_goes_on_with_the_same_line() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let (prompts, requests) = mpsc::sync_channel(1);
    let (sender, inputs) = tokio::sync::mpsc::channel(1);
    let (keys, typed) = mpsc::sync_channel::<Input>(1);
    spawn_reader(requests, sender, move |_| typed.recv().map_err(|_| EditorError::Ended)).expect("started");
    let mut editor = LineEditor { prompts, inputs, pending: false, _mode: None };
    runtime.block_on(async {
        tokio::select! {
            biased;
            _ = editor.read_input("> ") => panic!("nothing was typed yet"),
            () = tokio::task::yield_now() => {}
        }
        keys.send(Input::Line("one".into())).expect("typed");
        assert_eq!(editor.read_input("> ").await.expect("read"), Input::Line("one".into()));
        keys.send(Input::Interrupted).expect("typed");
        assert_eq!(editor.read_input("> ").await.expect("read"), Input::Interrupted);
        drop(keys);
        assert!(matches!(editor.read_input("> ").await, Err(EditorError::Ended)));
    });
}

/// A terminal that takes a text when it is told to.
struct Slow {
    taken: mpsc::SyncSender<String>,
    go_on: mpsc::Receiver<()>,
}

impl ExternalPrinter for Slow {
    fn print(&mut self, text: String) -> rustyline::Result<()> {
        self.go_on.recv().map_err(|_| ReadlineError::Eof)?;
        self.taken.send(text).map_err(|_| ReadlineError::Eof)
    }
}

/// The editor takes no text between two lines: who gives it the next prompt must not wait for that.
#[test]
fn texts_that_the_terminal_does_not_take_hold_nobody_up_and_keep_their_order() {
    let (taken, texts) = mpsc::sync_channel(16);
    let (next, go_on) = mpsc::sync_channel(16);
    let above = Above::start_printer(Slow { taken, go_on }).expect("a thread");
    let mut printer = Printer { terminal: Some(above), held: Vec::new() };
    printer.write_all(b"one\ntwo").expect("not waited for");
    printer.write_all(b" more\nthree\n").expect("not waited for");
    for text in ["one\n", "two more\nthree\n"] {
        next.send(()).expect("it waits");
        assert_eq!(texts.recv().expect("printed"), text);
    }
    // The terminal is gone: who prints hears of it.
    drop(next);
    while printer.write_all(b"five\n").is_ok() {
        thread::yield_now();
    }
}
