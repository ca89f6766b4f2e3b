//! Calls that cannot be undone, and calls of which nobody knows whether they were done.

use nix::sys::signal::Signal;

use super::super::engine::Engine;
use super::super::{code, text};
use super::Desk;

/// What an owner says of a tool that changes something, as it is told by the letter.
const DECLARED: &str =
    "[tools.behave]\nsinks = [\"how\"]\n[tools.send]\nsinks = [\"to\"]\nfree = [\"text\"]\n";

impl Desk {
    /// Says something in the session that was used last.
    fn again(&self, message: &str) -> std::process::Output {
        let session = self.session();
        self.bench.home.run(&["chat", "-m", message, "--session", &session])
    }
}

/// However well the owner has said what its arguments are, what cannot be undone is asked about, each time; the twin, of which
/// the owner says that a wrong one does much harm, is within the owner's own words.
#[test]
fn needs_userns_needs_python_what_cannot_be_undone_asks_however_well_it_is_declared() {
    let message = r#"crm__send {"to": "ann@example.org", "text": "hi"}"#;
    let desk = Desk::with(&format!("{DECLARED}risk = \"irreversible\"\n"));
    for _ in 0..2 {
        let asked = desk.chat(message);
        assert_eq!(code(&asked), 5, "{}", text(&asked));
    }
    let asks = desk.bench.home.json(&["approvals", "list"])["asks"].as_array().expect("asks").clone();
    assert_eq!(asks.len(), 2, "each session has its own: {asks:?}");
    for ask in &asks {
        assert_eq!(
            (&ask["risk"], &ask["rationale"]),
            (&"irreversible".into(), &"It cannot be undone.".into())
        );
        // The key of the terminal does not say that its person was there.
        let id = ask["ask_id"].as_str().expect("an id");
        let refused = desk.bench.home.run(&["approvals", "approve", id, "--yes"]);
        assert_ne!(code(&refused), 0, "{}", text(&refused));
    }
    assert!(desk.calls().is_empty(), "{:?}", desk.calls());
    let desk = Desk::with(&format!("{DECLARED}risk = \"high\"\n"));
    assert!(desk.said(message).contains("sent to ann@example.org"));
    desk.verify();
}

/// A server that dies over a call may have done it: the same call asks before it is made again, whatever would let it pass
/// otherwise, and a yes makes it once. Twin: what the owner says may be repeated is repeated.
#[test]
fn needs_userns_needs_python_a_call_that_may_have_been_done_asks_before_it_is_made_again() {
    let message = r#"crm__behave {"how": "die"}"#;
    let desk = Desk::with(DECLARED);
    let said = desk.said(message);
    assert!(said.contains("whether it was done is not known"), "{said}");
    let called = desk.calls().len();
    let asked = desk.again(message);
    assert_eq!(code(&asked), 5, "{}", text(&asked));
    let shown = desk.bench.home.json(&["approvals", "show", &desk.bench.ask()]);
    assert!(shown["rationale"].as_str().is_some_and(|why| why.contains("outcome is unknown")), "{shown}");
    assert_eq!(desk.calls().len(), called, "not before somebody has said yes");
    let again = desk.bench.home.run(&["approvals", "approve", &desk.bench.ask(), "--yes"]);
    assert_ne!(code(&again), 0, "it dies again: {}", text(&again));
    assert_eq!(desk.calls().len(), called + 1);
    assert_eq!(code(&desk.again(message)), 5, "and that is not known either");
    assert_eq!(code(&desk.again(r#"crm__behave {"how": "well"}"#)), 0, "another call is none of this");

    let desk = Desk::with("[tools.behave]\nsinks = [\"how\"]\nidempotent = true\n");
    desk.said(message);
    let called = desk.calls().len();
    let again = desk.again(message);
    assert_eq!((code(&again), desk.calls().len()), (0, called + 1), "{}", text(&again));
    desk.verify();
}

/// An engine that is killed over a call knows it afterwards, and asks.
#[test]
fn needs_userns_needs_python_a_call_that_a_kill_cuts_off_asks_before_it_is_made_again() {
    let message = r#"crm__behave {"how": "hang"}"#;
    let desk = Desk::with(DECLARED);
    let desk = desk.in_processes();
    let mut engine = Engine::start(&desk.bench.home, &[]).expect("ready");
    std::thread::scope(|scope| {
        let cut = scope.spawn(|| desk.chat(message));
        while desk.calls().is_empty() && !cut.is_finished() {
            std::thread::yield_now();
        }
        engine.signal(Signal::SIGKILL);
        engine.wait();
        assert_ne!(code(&cut.join().expect("ends")), 0, "its engine is gone");
    });
    assert_eq!(desk.calls(), [r#"behave {"how": "hang"}"#]);
    let engine = Engine::start(&desk.bench.home, &[]).expect("ready again");
    let asked = desk.again(message);
    assert_eq!(code(&asked), 5, "{}", text(&asked));
    assert_eq!(desk.calls().len(), 1);
    let intents = desk.bench.events("intent");
    let begun = intents.iter().filter(|row| row["payload"]["action"]["tool"] == "behave").count();
    assert_eq!(begun, 1, "{intents:?}");
    engine.stop();
    desk.verify();
}
