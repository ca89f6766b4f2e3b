use proptest::prelude::*;
use writ_types::action::{Fetch, Say, SendFile};
use writ_types::taint::{Label, Taint};

use super::*;
use crate::fixture::{action_samples, exec, prepared, project_write};

fn shown(action: Action) -> String {
    ShownText::new(&prepared(action), "").expect("short enough").text().to_owned()
}

#[test]
fn what_could_deceive_is_escaped_visibly() {
    let text = "a\u{202e}b\u{1b}[2Jc\u{200b}d\u{e0041}e\r\nf\tg\rh\u{a0}i";
    let seen = "a\\u{202e}b\\u{1b}[2Jc\\u{200b}d\\u{e0041}e\\u{d}\nf\tg\\u{d}h\\u{a0}i";
    assert_eq!(escape_text(text), seen);
    assert_eq!(escape_line("a\nb\tc"), "a\\u{a}b\\u{9}c");
    // What reads like an escape is told from one.
    for (text, seen) in [
        (r"\u{202e}", r"\\u{202e}"),
        ("\\\u{202e}", r"\\\u{202e}"),
        (r"\u202e", r"\u202e"),
        (r"\x{20}", r"\x{20}"),
        ("u{202e}", "u{202e}"),
    ] {
        assert_eq!(escape_text(text), seen);
    }
    for c in ['\u{fffe}', '\u{ffff}', '\u{1fffe}', '\u{1ffff}', '\u{fdd0}', '\u{e000}'] {
        assert!(!is_plain(&String::from(c)), "{}", c.escape_unicode());
    }
    assert!(is_plain("plain\n\tü") && is_plain(""));
}

/// Threat 3. The ranges are those of Default_Ignorable_Code_Point in Unicode's DerivedCoreProperties.txt, and
/// its characters with the property Bidi_Control, which are among them.
#[test]
fn nothing_invisible_survives() {
    let ignorable = [
        (0xad, 0xad),
        (0x34f, 0x34f),
        (0x61c, 0x61c),
        (0x115f, 0x1160),
        (0x17b4, 0x17b5),
        (0x180b, 0x180f),
        (0x200b, 0x200f),
        (0x202a, 0x202e),
        (0x2060, 0x206f),
        (0x3164, 0x3164),
        (0xfe00, 0xfe0f),
        (0xfeff, 0xfeff),
        (0xffa0, 0xffa0),
        (0xfff0, 0xfff8),
        (0x1bca0, 0x1bca3),
        (0x1d173, 0x1d17a),
        (0xe0000, 0xe0fff),
    ];
    let invisible = |c: char| ignorable.iter().any(|(first, last)| (*first..=*last).contains(&u32::from(c)));
    for c in (0..=0x10_ffff).filter_map(char::from_u32) {
        let blank = c.is_control() || c.is_whitespace();
        let expected = invisible(c) || (blank && !matches!(c, ' ' | '\n' | '\t'));
        let text = String::from(c);
        assert!(
            !expected || escape_text(&text).is_ascii() && escape_text(&text) != text,
            "{}",
            c.escape_unicode()
        );
        assert!(!c.is_ascii_graphic() || escape_text(&text) == text, "{c}");
    }
    for letter in ["é", "日", "한", "ж", "ß", "🦀"] {
        assert_eq!(escape_text(letter), letter);
    }
}

#[test]
fn arguments_keep_their_borders() {
    assert_eq!(quote_argument("a b"), "'a b'");
    assert_eq!(quote_argument(""), "''");
    assert_eq!(quote_argument("it's"), "'it'\\''s'");
    assert_eq!(quote_argument("x "), "'x '");
    assert_eq!(quote_argument("--flag=1"), "--flag=1");
    assert_eq!(quote_argument("$HOME/*"), "'$HOME/*'");
    assert_eq!(quote_argument("a\\n"), "'a\\n'");
    assert_eq!(quote_argument("a\n\\'"), "$'a\\n\\\\\\''");
    assert_eq!(quote_argument("a\rb"), "$'a\\u{d}b'");
}

/// Threat 3: letters that look like others are named.
#[test]
fn letters_that_look_like_others_are_named() {
    assert_eq!(
        quote_argument("p\u{430}ypal.com"),
        "'p\u{430}ypal.com' (letters of several alphabets: $'p\\u{430}ypal.com')"
    );
    for text in ["docs.rs\u{2215}x", "\u{ff50}aypal.com", "d\u{1d5c8}cs.rs", "a\u{338}b", "docs\u{2024}rs"] {
        assert!(quote_argument(text).contains("several alphabets"), "{text}");
    }
    for text in ["caf\u{e9}.txt", "\u{62a5}\u{544a}.txt", "\u{43e}\u{442}\u{447}\u{451}\u{442}"] {
        assert!(!quote_argument(text).contains("several alphabets"), "{text}");
    }
    // In a host even one whole alphabet is named.
    assert!(quote_host("\u{430}\u{440}\u{440}\u{4cf}\u{435}.\u{440}\u{444}").contains("$'\\u{430}"));
    let fetch = Fetch {
        method: "GET".into(),
        url: "https://\u{430}.\u{440}\u{444}/".into(),
        body: None,
        content_type: None,
        save_to: None,
        large: false,
    };
    assert!(shown(Action::Fetch(fetch)).contains("host       '\u{430}.\u{440}\u{444}' (letters of several"));
    let hosts = vec!["docs.rs".into(), "\u{202e}sr.scod\n".into()];
    assert!(
        shown(Action::Exec(Exec { hosts, ..exec() })).contains("hosts      docs.rs $'\\u{202e}sr.scod\\n'")
    );
}

#[test]
fn a_program_is_shown_completely() {
    let action = Action::Exec(Exec {
        argv: vec!["sh".into(), "-c".into(), "echo \u{1b}[2J".into(), String::new()],
        stdin: Some("one\nhosts      everything\u{202e}".into()),
        ..exec()
    });
    let expected = [
        "action     exec",
        "agent      assistant",
        "tool       tool",
        "for        do it",
        "rests on   owner",
        "run        sh -c $'echo \\u{1b}[2J' ''",
        "in         /work",
        "with       LANG=C",
        "where      the session's sandbox",
        "hosts      none",
        "at most    60000 ms",
        "input      ",
        "  | one",
        "  | hosts      everything\\u{202e}",
        &format!("bound to   script {}", Digest::of_bytes(b"script")),
        "",
    ];
    assert_eq!(shown(action), expected.join("\n"));
}

#[test]
fn files_are_shown_with_their_place_and_detail() {
    let text = ShownText::new(&prepared(Action::WriteFile(project_write(&["a b", "c"]))), "+new\u{200b}");
    let text = text.expect("short enough").text().to_owned();
    assert!(text.contains(
        "where      your project /home/me/p\ncreate     'a b' (3 bytes)\ncreate     c (3 bytes)\n"
    ));
    assert!(text.ends_with("\n+new\\u{200b}"));
}

/// Nothing of an action stays unseen: every text in it, of every kind, changes what is shown.
#[test]
fn every_kind_is_shown_in_full() {
    fn texts(value: &mut serde_json::Value, change: usize, seen: &mut usize) {
        match value {
            serde_json::Value::String(text) => {
                if *seen == change {
                    text.push_str("-marked");
                }
                *seen += 1;
            }
            serde_json::Value::Array(values) => values.iter_mut().for_each(|v| texts(v, change, seen)),
            serde_json::Value::Object(fields) => fields.values_mut().for_each(|v| texts(v, change, seen)),
            serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => {}
        }
    }
    for sample in action_samples() {
        let plain = shown(sample.action.clone());
        let (mut count, mut changed) = (0, 0);
        texts(&mut serde_json::to_value(&sample.action).expect("json"), usize::MAX, &mut count);
        for n in 0..count {
            let mut value = serde_json::to_value(&sample.action).expect("json");
            texts(&mut value, n, &mut 0);
            // Digests, ids and names of enums do not take the mark.
            if let Ok(action) = serde_json::from_value::<Action>(value) {
                assert_ne!(shown(action), plain, "{:?}, text {n}", sample.action.kind());
                changed += 1;
            }
        }
        // A memory to forget is named by its id alone.
        assert!(changed > 0 || matches!(sample.action, Action::Forget(_)), "{:?}", sample.action.kind());
    }
}

#[test]
fn what_cannot_be_shown_completely_cannot_be_approved() {
    let say = |bytes: usize| {
        prepared(Action::Say(Say { to: writ_types::recipient::Recipient::Owner, text: "x".repeat(bytes) }))
    };
    assert!(
        ShownText::new(&say(64 * 1024), "").is_ok_and(|shown| shown.text().contains(&"x".repeat(64 * 1024)))
    );
    let refused = ShownText::new(&say(MAX_SHOWN_BYTES), "").expect_err("too long");
    assert!(refused.bytes > MAX_SHOWN_BYTES);
    assert!(ShownText::new(&say(1), &"x".repeat(MAX_SHOWN_BYTES)).is_err());
}

#[test]
fn the_hash_is_that_of_the_text() {
    let one = ShownText::new(&prepared(Action::Exec(exec())), "detail").expect("short enough");
    assert_eq!(one.hash(), Digest::of_bytes(one.text().as_bytes()));
    let external = Prepared { label: Label::new(Taint::External), ..prepared(Action::Exec(exec())) };
    assert!(
        ShownText::new(&external, "detail").expect("short enough").text().contains("rests on   external")
    );
}

#[test]
fn the_risk_is_that_of_the_ladder() {
    for sample in action_samples() {
        assert_eq!(risk_of(&sample.action), sample.risk, "{:?}", sample.action.kind());
    }
    assert_eq!(risk_of(&Action::Exec(Exec { hosts: vec!["docs.rs".into()], ..exec() })), Risk::Medium);
    let send = |to: &str| SendFile {
        to: to.parse().expect("a name"),
        path: "a".to_owned(),
        digest: Digest::of_bytes(b"x"),
    };
    assert_eq!(risk_of(&Action::SendFile(send("owner"))), Risk::Low);
    assert_eq!(risk_of(&Action::SendFile(send("owners"))), Risk::Irreversible);
    assert_eq!(
        risk_of(&Action::WriteFile(WriteFile { place: Place::Overlay, ..project_write(&["a"]) })),
        Risk::Low
    );
}

/// Texts made of what is dangerous: escapes, things that read like escapes, borders.
fn tricky() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("\\"),
        Just("u{202e}"),
        Just("u{"),
        Just("\u{202e}"),
        Just("\n"),
        Just("n"),
        Just("'"),
        Just("$'"),
        Just(" "),
        Just("a"),
        Just("\u{430}"),
        Just("("),
        Just("\t"),
        Just("\r"),
    ];
    proptest::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

proptest! {
    /// Two texts that differ never look alike.
    #[test]
    fn escaping_is_unambiguous(a in tricky(), b in tricky()) {
        prop_assert_eq!(a == b, escape_text(&a) == escape_text(&b));
        prop_assert_eq!(a == b, escape_line(&a) == escape_line(&b));
        prop_assert_eq!(a == b, quote_argument(&a) == quote_argument(&b));
        prop_assert!(!escape_line(&a).chars().any(|c| can_deceive(c) || c == '\n' || c == '\t'));
    }

    /// A shell that knows `'…'` and `$'…'` would read the arguments back: none runs into the next.
    #[test]
    fn argument_lists_are_unambiguous(a in proptest::collection::vec(tricky(), 0..4), b in proptest::collection::vec(tricky(), 0..4)) {
        let join = |all: &[String]| all.iter().map(|one| quote_argument(one)).collect::<Vec<_>>().join(" ");
        prop_assert_eq!(a == b, join(&a) == join(&b));
    }
}
