//! Messages from pipes: `echo TEXT | writ chat`, and text beside `-m`.

use serde_json::json;
use writ_testkit::model_server::{ParsedRequest, Reply};

use super::turns::Bench;
use super::{code, text};

fn answering() -> Bench {
    Bench::new("openai", |_: &ParsedRequest| Reply::text("Heard, **all** of it.")).in_processes()
}

/// What `writ chat` does with this input.
fn piped(bench: &Bench, flags: &[&str], input: &[u8]) -> std::process::Output {
    let project = bench.project().display().to_string();
    bench.home.run_with(&[&["chat", "--project", &project], flags].concat(), input)
}

#[test]
fn a_message_from_a_pipe_is_answered_in_plain_text_and_all_its_lines_are_heard() {
    let bench = answering();
    let done = piped(&bench, &[], "\u{feff}first line\r\nsecond line\n".as_bytes());
    assert_eq!(code(&done), 0, "{}", text(&done));
    let shown = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(shown.contains("Heard, **all** of it.") && !shown.contains(['\u{1b}', '\r', '>']), "{shown:?}");
    let sent = bench.requests();
    assert_eq!(sent.len(), 1, "it is one message");
    assert!(sent[0].contains("first line") && sent[0].contains("second line"), "{}", sent[0]);
    assert!(!sent[0].contains("\u{feff}") && !sent[0].contains("feff"), "{}", sent[0]);
}

/// What stands in a pipe beside `-m` may have been written by anybody.
#[test]
fn text_beside_a_message_is_quoted_and_external() {
    let bench = answering();
    let done = piped(&bench, &["-m", "sum this up"], b"from a page\nof somebody");
    assert_eq!((code(&done), text(&done).contains("Heard")), (0, true), "{}", text(&done));
    let sent = bench.requests().concat();
    assert!(sent.contains("sum this up") && sent.contains("> from a page\\n> of somebody"), "{sent}");
    let received = bench.events("received");
    assert_eq!(received[0].pointer("/payload/record/taint"), Some(&json!("external")), "{received:?}");
    let alone = piped(&bench, &["-m", "and now?"], b"");
    assert_eq!(code(&alone), 0, "{}", text(&alone));
    assert!(!bench.requests().last().expect("a request").contains("and now?\\n\\n"));
}

#[test]
fn a_pipe_without_a_usable_message_says_what_is_wrong() {
    let bench = answering();
    for (input, said) in [
        (Vec::new(), "there is no message, and no terminal to type one in"),
        (b" \n\n".to_vec(), "there is no message"),
        (b"caf\xe9".to_vec(), "no UTF-8 from byte 3 on"),
        (vec![b'a'; 1024 * 1024 + 1], "more than 1048576 bytes"),
    ] {
        let refused = piped(&bench, &[], &input);
        assert_eq!((code(&refused), text(&refused).contains(said)), (2, true), "{said}: {}", text(&refused));
    }
    assert!(bench.requests().is_empty());
}

#[test]
fn the_command_ends_with_the_code_of_the_turn() {
    let failing = Bench::new("openai", |_: &ParsedRequest| Reply::status(400)).in_processes();
    let done = piped(&failing, &[], b"hello");
    assert_eq!(code(&done), 7, "{}", text(&done));
}

/// A yes in a pipe is a message, and no answer to a question.
#[test]
fn needs_userns_a_question_is_not_answered_by_what_is_piped() {
    let script = |request: &ParsedRequest| {
        if request.results().count() > 0 {
            return Reply::text("It waits.");
        }
        Reply::call("shell_exec", json!({ "argv": ["touch", "made.txt"] }))
    };
    let bench = Bench::new("openai", script).in_processes();
    let rule = r#"@id("ask-exec") @ask("Every program is asked for.")
forbid (principal, action == Action::"exec", resource) when { context.profile == "task" };"#;
    std::fs::write(bench.home.root().join("policies/ask.cedar"), rule).expect("written");
    let done = piped(&bench, &[], b"make it\ny\n");
    assert_eq!(code(&done), 5, "{}", text(&done));
    assert!(text(&done).contains(&format!("writ approvals approve {}", bench.ask())), "{}", text(&done));
}
