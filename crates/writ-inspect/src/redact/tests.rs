use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use proptest::prelude::*;

use super::*;

/// A value with everything that encodings change.
const VALUE: &str = "p\u{e4}ss/w\"rd+&Kq7 Zt\\9x=%v";
const PLAIN: &str = "hunter2-hunter2";

/// Text in which nothing may be found.
const ORDINARY: &str = include_str!("../../tests/corpus/ordinary.txt");

fn known(name: &str, value: &str) -> KnownSecret {
    KnownSecret { name: name.to_owned(), value: SecretString::from(value) }
}

fn redactor() -> Redactor {
    let redactor = Redactor::default();
    redactor.learn_secrets(&[known("secret:mail", VALUE), known("secret:plain", PLAIN)]);
    redactor
}

fn letters(count: usize) -> String {
    "aZ3kQ9".chars().cycle().take(count).collect()
}

/// The value in every encoding that is promised, by name.
fn encodings(value: &str) -> Vec<(&'static str, String)> {
    use base64::Engine as _;
    let json = serde_json::to_string(value).expect("JSON");
    let url: String = value.bytes().map(|b| format!("%{b:02X}")).collect();
    let mut all = vec![
        ("raw", value.to_owned()),
        ("JSON", json.trim_matches('"').to_owned()),
        ("hex", hex::encode(value)),
        ("HEX", hex::encode_upper(value)),
        ("reversed", value.chars().rev().collect()),
    ];
    let unreserved = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    let url_of = |b: u8| if unreserved(b) { char::from(b).to_string() } else { format!("%{b:02X}") };
    let escaped: String = value.bytes().map(url_of).collect();
    let lower = |b: u8| if unreserved(b) { char::from(b).to_string() } else { format!("%{b:02x}") };
    let small: String = value.bytes().map(lower).collect();
    all.extend([("form", escaped.replace("%20", "+")), ("form in small letters", small.replace("%20", "+"))]);
    all.extend([("URL", escaped), ("URL in small letters", small)]);
    assert!(url.len() >= value.len());
    for before in ["", "x", "xy"] {
        all.push(("base64", STANDARD.encode(format!("{before}{value}"))));
        all.push(("base64url", URL_SAFE.encode(format!("{before}{value}more"))));
    }
    all
}

/// Rows: WIN-221
#[test]
fn a_known_value_is_masked_in_every_encoding_and_text_of_its_length_stays() {
    let redactor = redactor();
    for (value, name) in [(VALUE, "secret:mail"), (PLAIN, "secret:plain")] {
        for (encoding, text) in encodings(value) {
            let masked = redactor.clean_text(format!("before {text} after"));
            assert!(masked.contains(&format!("[masked:{name}]")), "{encoding}: {masked}");
            assert!(masked.starts_with("before ") && masked.ends_with(" after"), "{encoding}: {masked}");
            assert_eq!(masked.masked_secrets().iter().collect::<Vec<_>>(), [name], "{encoding}");
            let quiet = masked.replace(&format!("[masked:{name}]"), "");
            // What base64 leaves beside the mask holds nothing of the value but the edge of a group.
            let left = quiet.len() - "before  after".len();
            assert!(left <= if encoding.starts_with("base64") { 10 } else { 0 }, "{encoding}: {masked}");
        }
        let other: String = value.chars().map(|c| if c == 'r' { 'q' } else { c }).collect();
        let text = format!("before {other} {} after", hex::encode(&other));
        assert_eq!(redactor.mask_text(&text), text, "as long, and no secret");
    }
    let json = serde_json::json!({ "stdout": VALUE, "a": [PLAIN] }).to_string();
    let masked = redactor.mask_text(&json);
    let json: Value = serde_json::from_str(&masked).expect("masked JSON is JSON");
    assert_eq!(json, serde_json::json!({ "stdout": "[masked:secret:mail]", "a": ["[masked:secret:plain]"] }));
}

/// What base64 mixes with a value's neighbours is masked with it, and nothing beyond.
#[test]
fn characters_of_base64_that_hold_bits_of_a_value_are_masked() {
    let redactor = redactor();
    let edges = ["+", "/", "-", "_", "a", "Z", "0"].map(|edge| format!(".{edge}h1bnRlcjItaHVudGVyM{edge}."));
    for (text, masked) in [
        // After none, one and two bytes of a group of three.
        ("xaHVudGVyMi1odW50ZXIyx", "x[masked:secret:plain]x"),
        ("eGh1bnRlcjItaHVudGVyMg==", "e[masked:secret:plain]=="),
        ("eHhodW50ZXIyLWh1bnRlcjI=", "eH[masked:secret:plain]="),
        ("h1bnRlcjItaHVudGVyM", "[masked:secret:plain]"),
        (" h1bnRlcjItaHVudGVyM ", " [masked:secret:plain] "),
    ]
    .into_iter()
    .chain(edges.iter().map(|text| (text.as_str(), ".[masked:secret:plain].")))
    {
        assert_eq!(redactor.mask_text(text), masked, "{text}");
    }
}

#[test]
fn line_ends_hide_nothing_and_other_characters_between_are_the_documented_limit() {
    let redactor = redactor();
    let spread = |between: &str| PLAIN.chars().map(|c| format!("{c}{between}")).collect::<String>();
    assert_eq!(redactor.mask_text(&spread("\n")), "[masked:secret:plain]\n");
    assert_eq!(redactor.mask_text(&spread("\r\n  ")), "[masked:secret:plain]\r\n  ");
    use base64::Engine as _;
    let long = STANDARD.encode(format!("{}{PLAIN}{}", letters(50), letters(50)));
    let wrapped: Vec<&str> = [long.get(..76), long.get(76..)].into_iter().flatten().collect();
    let masked = redactor.mask_text(&wrapped.join("\n")).into_owned();
    assert!(masked.contains("[masked:secret:plain]"), "{masked}");
    for between in [".", " ", "\n1 "] {
        assert_eq!(redactor.mask_text(&spread(between)), spread(between), "{between:?}");
    }
}

#[test]
fn short_values_and_parts_are_not_looked_for_and_new_values_count_from_then_on() {
    let redactor = Redactor::default();
    let shared = redactor.clone();
    redactor.learn_secrets(&[known("secret:short", "1234567"), known("secret:eight", " 12345678\n")]);
    assert_eq!(shared.mask_text("1234567 and 12345678"), "1234567 and [masked:secret:eight]");
    redactor.learn_secrets(&[known("secret:new", "something else")]);
    assert_eq!(shared.mask_text("12345678: something else"), "12345678: [masked:secret:new]");
    redactor.learn_secrets(&[]);
    assert_eq!(shared.mask_text("something else"), "something else");
}

#[test]
fn of_values_that_begin_alike_the_longest_is_masked() {
    let redactor = Redactor::default();
    let [a, b, c] = ["prefix-one", "prefix-one-two", "prefix-one-two-three"];
    redactor.learn_secrets(&[known("secret:b", b), known("secret:c", c), known("secret:a", a)]);
    assert_eq!(
        redactor.mask_text(&format!("{a}|{b}|{c}|prefix-one-tw|prefix-one-two-thre")),
        "[masked:secret:a]|[masked:secret:b]|[masked:secret:c]|[masked:secret:a]-tw|[masked:secret:b]-thre"
    );
}

/// Rows: WIN-222 WIN-223 WIN-224 WIN-225 WIN-226
#[test]
fn each_format_is_masked_and_what_only_begins_like_it_stays() {
    let redactor = Redactor::default();
    let jwt = format!("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.{}", letters(43));
    let pem = format!("-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----", letters(64));
    let encrypted = format!(
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00AA\n\n{}\n-----END RSA PRIVATE KEY-----",
        letters(64)
    );
    let samples = [
        (format!("sk-ant-api03-{}", letters(40)), "anthropic-key"),
        (format!("sk-{}", "a".repeat(32)), "api-key"),
        (format!("sk-proj-{}_{}", letters(30), letters(30)), "openai-key"),
        (format!("sk-or-v1-{}", "0a".repeat(32)), "openrouter-key"),
        (format!("ghp_{}", letters(36)), "github-token"),
        (format!("gho_{}", letters(36)), "github-token"),
        (format!("ghs_{}", letters(36)), "github-token"),
        (format!("github_pat_{}_{}", letters(22), letters(59)), "github-token"),
        (format!("glpat-{}", letters(20)), "gitlab-token"),
        (format!("xoxb-1234567890-1234567890-{}", letters(24)), "slack-token"),
        (format!("xoxp-1234567890-{}", letters(24)), "slack-token"),
        (format!("AKIA{}", "ABCDEFGH23456777"), "aws-access-key"),
        (format!("AIza{}", letters(35)), "google-key"),
        (format!("sk_live_{}", letters(24)), "stripe-key"),
        (format!("SG.{}.{}", letters(22), letters(43)), "sendgrid-key"),
        (format!("npm_{}", letters(36)), "npm-token"),
        (format!("hf_{}", letters(34)), "hugging-face-token"),
        (format!("123456789:AA{}", letters(33)), "telegram-token"),
        (jwt, "jwt"),
        (pem.clone(), "private-key"),
        (pem.replace('\n', "\\n"), "private-key"),
        (pem.replace("3k", "PD"), "private-key"),
        (encrypted.replace('\n', "\\n"), "private-key"),
        (encrypted, "private-key"),
    ];
    for (sample, name) in &samples {
        for (before, after) in [("", ""), ("key=", " rest"), ("\"", "\""), ("\\n", "\\n"), ("%20", "&b")] {
            let masked = redactor.mask_text(&format!("{before}{sample}{after}")).into_owned();
            assert_eq!(masked, format!("{before}[masked:{name}]{after}"), "{sample}");
        }
        let coloured = redactor.mask_text(&format!("\u{1b}[1;32m{sample}\u{1b}[0m")).into_owned();
        assert_eq!(coloured, format!("\u{1b}[1;32m[masked:{name}]\u{1b}[0m"));
        let (cut, _) = sample.split_at(sample.len() / 4);
        assert_eq!(redactor.mask_text(cut), cut, "a part is none");
    }
    let short = format!("sk-{}", "a".repeat(31));
    for text in
        ["sk-ant", "sk-ant-", "ghp", "glpattern", "xoxb-", &short, &format!("task-{}", "a".repeat(40))]
    {
        assert_eq!(redactor.mask_text(text), text);
    }
    let hidden = format!("-----BEGIN PRIVATE KEY-----\nrm -rf /; {}\n-----END PRIVATE KEY-----", letters(64));
    assert_eq!(redactor.mask_text(&hidden), hidden, "no other text hides in a private key");
}

/// Over-eager detectors break real work: of ordinary text nothing is masked, whatever is known.
#[test]
fn nothing_is_found_in_ordinary_text() {
    assert!(ORDINARY.lines().count() >= 200, "{}", ORDINARY.lines().count());
    for redactor in [Redactor::default(), redactor()] {
        for line in ORDINARY.lines() {
            assert_eq!(redactor.mask_text(line), line);
        }
        assert_eq!(redactor.mask_text(ORDINARY), ORDINARY, "as a whole");
    }
}

/// What is read grows with the text alone, also of texts that were made to be read often.
#[test]
fn what_follows_prefixes_in_ten_megabytes_is_read_at_most_four_times() {
    const SIZE: usize = 10_000_000;
    let jwt_like = format!("eyJ{}", letters(5)).repeat(3);
    let pieces =
        ["sk-", "eyJ", ".eyJ", "ghp_", "eyJaaaaaaaa.", "-----BEGIN PRIVATE KEY-----\n", "sk-ant-a", "x"];
    for piece in pieces.into_iter().chain([jwt_like.as_str(), ":AA", "1:AA", "SG.", "AKIA"]) {
        let text = piece.repeat(SIZE / piece.len());
        let mut read = 0;
        let found = formats::search_text(&text, &mut read);
        assert!(read <= SIZE * 4, "{piece}: {read} bytes, {} found", found.len());
    }
}

/// What was found to be no token hides none that comes after it, and is not read anew from each place within.
#[test]
fn a_broken_token_hides_no_later_one_and_is_read_once() {
    let jwt = format!("eyJ{}.eyJ{}.{}", letters(20), letters(30), letters(40));
    let text = format!("eyJ{} and {jwt}", letters(9));
    let masked = Redactor::default().mask_text(&text).into_owned();
    assert!(!masked.contains(&letters(30)) && masked.contains("[masked:jwt]"), "{masked}");
    let broken = "eyJaaaaaaa-".repeat(1_000);
    let mut read = 0;
    assert_eq!(formats::search_text(&broken, &mut read), []);
    assert!(read <= broken.len() * 4, "{read} bytes of {}", broken.len());
}

/// The bounds of what is found as a whole, and of what waits for it, to the byte.
#[test]
fn what_is_found_as_a_whole_has_bounds() {
    let redactor = Redactor::default();
    let token = format!("ghp_{}", "a".repeat(16 * 1024));
    assert_eq!(redactor.mask_text(&format!("{token}b")), "[masked:github-token]b");
    let key = format!("-----BEGIN PRIVATE KEY-----{}", "a".repeat(64 * 1024));
    assert_eq!(redactor.mask_text(&format!("{key}b")), "[masked:private-key]b");
    let mut stream = redactor.mask_stream();
    assert_eq!(stream.push_text(&"a".repeat(16 * 1024 - 1)), "");
    assert_eq!(stream.push_text("a"), "a".repeat(8 * 1024));
    let lines = |count: usize| format!("hunter2-{}", "\n".repeat(count - "hunter2-".len()));
    assert_eq!(self::redactor().mask_stream().push_text(&lines(4 * 1024)), "");
    assert_eq!(self::redactor().mask_stream().push_text(&lines(4 * 1024 + 1)), lines(4 * 1024 + 1));
}

/// What stands before the beginning of something does not wait for its end.
#[test]
fn a_stream_holds_back_nothing_before_what_may_go_on() {
    assert_eq!(redactor().mask_stream().push_text("It is hunter2-\nhun"), "It is ");
    assert_eq!(redactor().mask_stream().push_text("A key: -----BEGIN PRIVATE KEY-----\nTWFu "), "A key: ");
}

/// Only lines of base64, the headers of old keys and the last line may follow.
#[test]
fn a_private_key_goes_on_while_nothing_else_stands_in_it() {
    let body = letters(64);
    for (text, goes_on) in [
        ("", true),
        ("RSA PRIV", true),
        ("RSA key", false),
        ("RSA key of the house", false),
        ("PRIVATE KEY--", true),
        ("PRIVATE KEY-----", true),
        ("CERTIFICATE--", true),
        ("CERTIFICATE-----", false),
        ("PRIVATE KEY-----\nTWFu\r\nTWFu", true),
        ("PRIVATE KEY-----\nTWFu;", false),
        (r"PRIVATE KEY-----\nTWFu\", true),
        (r"PRIVATE KEY-----\nTWFu\r\nTWFu", true),
        (r"PRIVATE KEY-----\nTWFu\qTWFu", false),
        ("PRIVATE KEY-----\nProc-Ty", true),
        ("PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED", true),
        ("PRIVATE KEY-----\nProc-Types: 4,ENCRYPTED", false),
        ("PRIVATE KEY-----\nPDTWFu", true),
        ("PRIVATE KEY-----\nBODY\n-----E", true),
        ("PRIVATE KEY-----\nBODY\n-----END PRIV", true),
        ("PRIVATE KEY-----\nBODY\n-----END PRIVATE KEY--", true),
        ("PRIVATE KEY-----\nBODY\n-----END PRIVATE KEY-----", false),
        ("PRIVATE KEY-----\nBODY\n-----END PRIVATE KEY\n", false),
    ] {
        assert_eq!(formats::is_open_pem(text.replace("BODY", &body).as_bytes()), goes_on, "{text}");
    }
    let key = format!(r"-----BEGIN PRIVATE KEY-----\n{body}");
    assert_eq!(Redactor::default().mask_text(&format!(r"{key}\")), "[masked:private-key]", "half an escape");
    assert_eq!(Redactor::default().mask_text(&format!(r"{key}\q")), r"[masked:private-key]\q");
}

/// A stream waits for the rest of a private key, and not for what follows other headings.
#[test]
fn a_stream_waits_for_private_keys_alone() {
    let redactor = Redactor::default();
    let said = |heading: &str| {
        let mut stream = redactor.mask_stream();
        stream.push_text(&format!("-----BEGIN {heading}-----\nTWFu\nTWFu "))
    };
    assert!(said("CERTIFICATE").contains("CERTIFICATE"), "{}", said("CERTIFICATE"));
    assert!(!said("PRIVATE KEY").contains("PRIVATE"), "{}", said("PRIVATE KEY"));
}

#[test]
fn a_large_output_loses_each_secret() {
    let redactor = redactor();
    let line = format!("{} {PLAIN} {}\n", letters(80), hex::encode(VALUE));
    let text = line.repeat(10_000_000 / line.len());
    let masked = redactor.mask_text(&text);
    assert_eq!(masked.matches("[masked:secret:plain]").count(), text.lines().count());
    assert_eq!(masked.matches("[masked:secret:mail]").count(), text.lines().count());
    assert!(!masked.contains(PLAIN) && !masked.contains(&hex::encode(VALUE)));
}

#[test]
fn what_is_left_of_a_secret_where_a_text_was_cut_is_masked() {
    let redactor = redactor();
    for left in [8, 9] {
        let mut cut = format!("out: {}", PLAIN.get(..left).expect("ASCII"));
        assert_eq!(redactor.scrub_cut(&mut cut), BTreeSet::from(["secret:plain".to_owned()]), "{left}");
        assert_eq!(cut, "out: [masked:secret:plain]", "{left}");
    }
    let mut short = format!("out: {}", PLAIN.get(..7).expect("ASCII"));
    assert_eq!(
        redactor.scrub_cut(&mut short),
        BTreeSet::new(),
        "twin: too little to be told apart from words"
    );
}

#[test]
fn what_is_left_of_a_secret_where_the_beginning_of_a_text_was_cut_is_masked() {
    let redactor = redactor();
    for left in [8, PLAIN.len() - 1] {
        let mut cut = format!("{} rest", PLAIN.get(PLAIN.len() - left..).expect("ASCII"));
        assert_eq!(redactor.scrub_begun(&mut cut), BTreeSet::from(["secret:plain".to_owned()]), "{left}");
        assert_eq!(cut, "[masked:secret:plain] rest", "{left}");
    }
    let mut middle = PLAIN.get(1..PLAIN.len() - 1).expect("ASCII").to_owned();
    redactor.scrub_begun(&mut middle);
    assert_eq!(middle, "[masked:secret:plain]");
    let mut short = format!("{} rest", PLAIN.get(PLAIN.len() - 7..).expect("ASCII"));
    assert_eq!(
        redactor.scrub_begun(&mut short),
        BTreeSet::new(),
        "twin: too little to be told apart from words"
    );
}

#[test]
fn the_values_are_shown_by_nothing() {
    let redactor = redactor();
    let shown = format!("{redactor:?} {:?} {:?}", redactor.mask_stream(), redactor.clean_text(PLAIN));
    assert!(!shown.contains("hunter2"), "{shown}");
}

/// Rows: WIN-228 WIN-229
#[test]
fn more_than_half_blocks_a_message_exactly_half_is_masked_and_others_stay_as_they_are() {
    let redactor = redactor();
    let key = format!("sk-ant-{}", letters(33));
    let names = BTreeSet::from(["anthropic-key".to_owned()]);
    assert_eq!(redactor.judge_message(&key), Guarded::Blocked(names.clone()));
    assert_eq!(redactor.judge_message(&format!("\n  {key}  \n")), Guarded::Blocked(names.clone()));
    assert_eq!(
        redactor.judge_message(&format!("{key}{}", " \u{e4}".repeat(19))),
        Guarded::Blocked(names.clone())
    );
    let half = format!("{key}{}", " \u{e4}".repeat(20));
    let Guarded::Passed(text, found) = redactor.judge_message(&half) else { panic!("exactly half passes") };
    assert_eq!((text.into_string(), found), (half.replace(&key, "[masked:anthropic-key]"), names));
    assert_eq!(redactor.judge_message(PLAIN), Guarded::Blocked(BTreeSet::from(["secret:plain".to_owned()])));
    let plain = "  please look at src/main.rs\r\n\u{202e}x ";
    let Guarded::Passed(text, found) = redactor.judge_message(plain) else { panic!("it passes") };
    assert_eq!((text.into_string().as_str(), found), (plain, BTreeSet::new()));
}

#[test]
fn arguments_lose_known_values_and_keep_what_only_looks_like_a_credential() {
    let redactor = redactor();
    let fixture = format!("ghp_{}", letters(36));
    let mut arguments = serde_json::json!({ "text": format!("{PLAIN} {fixture}"), PLAIN: [1, null] });
    redactor.mask_json(&mut arguments);
    let expected = serde_json::json!({
        "text": format!("[masked:secret:plain] {fixture}"), "[masked:secret:plain]": [1, null]
    });
    assert_eq!(arguments, expected);
    assert!(has_mask("x [masked:secret:plain] y") && has_mask("[masked:vault://kv/a.b#c_d]"));
    assert!(
        !has_mask("[masked:")
            && !has_mask("[masked:]")
            && !has_mask("[masked: array]")
            && !has_mask("masked")
    );
}

fn streamed(redactor: &Redactor, text: &str, cuts: &[usize]) -> String {
    let (mut stream, mut out, mut from) = (redactor.mask_stream(), String::new(), 0);
    for cut in cuts.iter().map(|cut| text.ceil_char_boundary(*cut)).filter(|cut| *cut <= text.len()) {
        if cut > from {
            out.push_str(&stream.push_text(text.get(from..cut).expect("between characters")));
            from = cut;
        }
    }
    out.push_str(&stream.push_text(text.get(from..).expect("between characters")));
    out.push_str(&stream.end_text());
    out
}

#[test]
fn pieces_hide_nothing_and_ordinary_words_do_not_wait() {
    let redactor = redactor();
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", letters(200));
    let encrypted = format!(
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00AA\n\n{}\n-----END RSA PRIVATE KEY-----\n",
        letters(200)
    );
    for secret in [VALUE, PLAIN, &format!("ghp_{}", letters(36)), &pem, &encrypted, &hex::encode(VALUE)] {
        let whole = format!("Here it is: {secret} and that was all.");
        for cut in 0..whole.len() {
            assert_eq!(streamed(&redactor, &whole, &[cut]), redactor.mask_text(&whole), "{cut}: {secret}");
        }
        let text = format!("Here it is: {secret} and that was all.");
        let every: Vec<usize> = (0..text.len()).collect();
        assert_eq!(streamed(&redactor, &text, &every), redactor.mask_text(&text));
    }
    // Broken into lines, wherever the pieces end; also where a broken one begins before a whole one and holds it.
    let (first, rest) = VALUE.split_at(VALUE.len() / 2);
    for text in
        [format!("It is {first}\n  {rest}, so."), format!("It is {first}\n\n\n{VALUE}{first}\n{rest}")]
    {
        let every: Vec<usize> = (0..text.len()).collect();
        assert_eq!(streamed(&redactor, &text, &every), redactor.mask_text(&text), "{text}");
        for cut in 0..text.len() {
            assert_eq!(streamed(&redactor, &text, &[cut]), redactor.mask_text(&text), "{cut}: {text}");
        }
    }
    let mut stream = redactor.mask_stream();
    assert_eq!(stream.push_text("one two thr"), "one two ");
    assert_eq!(stream.push_text("ee hunter2 is no secret"), "three hunter2 is no ");
    assert_eq!(stream.end_text(), "secret");
}

/// A word without end is let out in halves: what begins late in it is seen whole.
#[test]
fn a_credential_in_a_word_without_end_is_masked() {
    let redactor = redactor();
    let token = format!("sk-ant-{}", letters(101));
    for before in [16_300, 16_384, 16_390, 24_570] {
        let text = format!("{}{token} end", "=".repeat(before));
        let cuts: Vec<usize> = (0..text.len()).step_by(7).collect();
        let out = streamed(&redactor, &text, &cuts);
        assert!(
            !out.contains(&token[..40]) && out.ends_with(" end"),
            "{before}: {}",
            &out[out.len() - 150..]
        );
        assert_eq!(out, redactor.mask_text(&text), "{before}");
    }
}

/// Libraries for JSON escape more than they must, each in its way.
#[test]
fn a_value_is_masked_as_cautious_libraries_write_it() {
    let redactor = Redactor::default();
    redactor.learn_secrets(&[known("secret:odd", "abc&def=<ghi>'+\"1\u{e4}")]);
    for written in [
        r#"abc\u0026def=\u003cghi\u003e'+\"1\u{e4}"#.replace(r"\u{e4}", "\u{e4}"),
        r#"abc\u0026def\u003d\u003cghi\u003e\u0027+\"1\u{e4}"#.replace(r"\u{e4}", "\u{e4}"),
        r"abc\u0026def=\u003Cghi\u003E\u0027\u002B\u00221\u00E4".to_owned(),
    ] {
        let text = format!("{{\"a\":\"{written}\"}}");
        assert_eq!(redactor.mask_text(&text), r#"{"a":"[masked:secret:odd]"}"#, "{text}");
    }
}

/// What a model is told, what it says and what errors say loses known secrets in every part, and says which.
#[test]
fn requests_replies_and_reports_lose_their_secrets() {
    use writ_types::chat::{
        ModelReply, ModelRequest, Role, StopReason, ToolCall, ToolOutcome, ToolResult, ToolSpecs, Usage,
    };
    use writ_types::error::Exit;
    use writ_types::taint::{Label, Taint};
    use writ_types::unit::Tokens;
    let (redactor, mask) = (redactor(), "[masked:secret:plain]");
    let named: BTreeSet<String> = ["secret:plain".to_owned()].into();
    let mut text = format!("a {PLAIN} b");
    assert_eq!((redactor.secrets_in(&text), redactor.secrets_in("a b").len()), (named.clone(), 0));
    assert_eq!((redactor.scrub_text(&mut text), text.as_str()), (named.clone(), "a [masked:secret:plain] b"));

    let call =
        || ToolCall { id: PLAIN.into(), name: PLAIN.into(), arguments: serde_json::json!({ "a": PLAIN }) };
    let (model, stop, usage) = (PLAIN.to_owned(), StopReason::EndTurn, Usage::default());
    let mut reply =
        ModelReply { text: PLAIN.into(), calls: vec![call()], stop, usage, model, reasoning: Vec::new() };
    redactor.mask_reply(&mut reply);
    let said = serde_json::to_string(&reply).expect("JSON");
    assert!(!said.contains(PLAIN) && said.matches(mask).count() == 5, "{said}");

    let message =
        |part| Arc::new(ChatMessage { role: Role::User, parts: vec![part], label: Label::new(Taint::Owner) });
    let result = ToolResult {
        call_id: "1".into(),
        name: "x".into(),
        outcome: ToolOutcome::Done,
        text: PLAIN.into(),
        label: Label::new(Taint::External),
        fields: Vec::new(),
        kept: None,
    };
    let parts = [Part::Text { text: PLAIN.into() }, Part::Call(call()), Part::Result(result)];
    let clean = message(Part::Text { text: "clean".into() });
    let mut request = ModelRequest {
        system: PLAIN.into(),
        messages: parts.into_iter().map(message).chain([Arc::clone(&clean)]).collect(),
        tools: ToolSpecs::default(),
        max_output_tokens: Tokens::new(1),
        form: None,
        effort: None,
    };
    redactor.mask_request(&mut request);
    assert_eq!(request.system, mask);
    assert_eq!(request.messages[0].parts, [Part::Text { text: mask.into() }]);
    assert!(matches!(&request.messages[1].parts[..], [Part::Call(call)] if call.arguments["a"] == mask));
    assert!(matches!(&request.messages[2].parts[..], [Part::Result(result)] if result.text == mask));
    assert!(Arc::ptr_eq(&request.messages[3], &clean), "what is clean is not copied");

    let report = redactor.mask_report(Report::new(Exit::Bug, "x", PLAIN).with_hint(PLAIN));
    assert_eq!((report.outside.as_str(), report.hint.as_str()), (mask, mask));
    let clean = redactor.clean_text(format!("a {PLAIN}"));
    assert_eq!((clean.to_string(), format!("{clean:?}")), (format!("a {mask}"), format!("\"a {mask}\"")));
    let other = "b".to_owned();
    assert!(
        clean == *format!("a {mask}").as_str()
            && clean == format!("a {mask}")
            && clean == format!("a {mask}").as_str()
            && clean != *"a"
            && clean != "b"
            && clean != other
    );
    assert_eq!((clean.masked_secrets(), format!("{redactor:?}").as_str()), (&named, "Redactor"));
}

/// JSON is masked as deep as it is parsed.
#[test]
fn json_is_masked_to_its_bound() {
    let redactor = redactor();
    let nested = |depth: usize| {
        let mut value = serde_json::json!(PLAIN);
        for _ in 0..depth {
            value = serde_json::json!([value]);
        }
        redactor.mask_json(&mut value);
        value.to_string()
    };
    for depth in [MAX_JSON_DEPTH, MAX_JSON_DEPTH + 1] {
        assert!(nested(depth).contains("[masked:secret:plain]"), "{depth}");
    }
    for depth in [MAX_JSON_DEPTH + 2, MAX_JSON_DEPTH + 9] {
        assert!(!nested(depth).contains(PLAIN) && nested(depth).contains("null"), "{depth}");
    }
}

/// A credential begins where a word does; escapes and colours before it are no part of the word.
#[test]
fn a_credential_begins_after_escapes_and_not_within_words() {
    let redactor = Redactor::default();
    let token = format!("ghp_{}", letters(36));
    for (before, found) in [
        ("", true),
        (" ", true),
        ("=", true),
        (r"\n", true),
        (r"\q", false),
        ("xn", false),
        ("%20", true),
        ("x20", false),
        ("%g0", false),
        ("%2", false),
        ("\u{1b}[1m", true),
        ("\u{1b}[1;31m", true),
        ("[1m", false),
        ("1m", false),
        ("\u{1b}[1n", false),
        ("_", false),
        ("-", false),
        ("a", false),
    ] {
        assert_eq!(redactor.mask_text(&format!("{before}{token}")).contains("[masked"), found, "{before:?}");
    }
    let key = "AKIA234567ABCDEFGHIJ";
    for (after, found) in [("", true), (" ", true), ("-", true), ("_", false), ("x", false), ("7", false)] {
        assert_eq!(redactor.mask_text(&format!("{key}{after}")).contains("[masked"), found, "{after:?}");
    }
}

/// What holds a known value is masked under its name, as a whole.
#[test]
fn a_credential_that_holds_a_known_value_has_its_name() {
    let redactor = Redactor::default();
    redactor.learn_secrets(&[known("secret:inner", "Q9aZ3kQ9aZ3k")]);
    assert_eq!(redactor.mask_text(&format!("ghp_{}", letters(36))), "[masked:secret:inner]");
}

/// Values beside each other are masked each.
#[test]
fn values_that_touch_are_two() {
    let redactor = redactor();
    redactor.learn_secrets(&[known("secret:a", "abcdefgh1234"), known("secret:b", "gh1234567890")]);
    assert_eq!(redactor.mask_text("abcdefgh1234gh1234567890"), "[masked:secret:a][masked:secret:b]");
}

proptest! {
    /// Text around a value, cut anywhere, comes out as the whole does.
    #[test]
    fn a_stream_says_what_the_whole_says(
        before in "[ -~\u{e4}]{0,30}",
        after in "[ -~\u{e4}]{0,30}",
        which in 0usize..12,
        mut cuts in prop::collection::vec(0usize..200, 0..8),
    ) {
        let redactor = redactor();
        let all: Vec<String> = [encodings(VALUE), encodings(PLAIN)].concat().into_iter().map(|(_, text)| text).collect();
        let text = format!("{before}{}{after}", all.get(which).map_or("", String::as_str));
        cuts.sort_unstable();
        prop_assert_eq!(streamed(&redactor, &text, &cuts), redactor.mask_text(&text).into_owned());
    }

    /// Masking is done once and for all, and nothing of a value is left.
    #[test]
    fn what_was_masked_is_clean(text in "[ -~\n\u{e4}]{0,60}", value in "[!-~]{8,40}") {
        let redactor = Redactor::default();
        redactor.learn_secrets(&[known("secret:v", &value)]);
        let masked = redactor.mask_text(&format!("{text}{value}{text}")).into_owned();
        prop_assert!(!masked.contains(&value) || "[masked:secret:v]".contains(&value));
    }

    #[test]
    fn no_text_is_refused_or_loses_its_form(text in "\\PC{0,200}", junk in prop::collection::vec(any::<u8>(), 0..200)) {
        let redactor = redactor();
        for text in [text, String::from_utf8_lossy(&junk).into_owned()] {
            let masked = redactor.mask_text(&text).into_owned();
            let again = redactor.mask_text(&masked).into_owned();
            prop_assert_eq!(again, masked);
        }
    }
}

/// Reasoning cannot be masked, since its provider refuses a changed one: with a secret in it, all of it is left out. A
/// signature that only looks like a key stays.
#[test]
fn reasoning_with_a_secret_is_left_out_whole() {
    use writ_types::chat::{ModelReply, Reasoning, ReasoningForm, StopReason, Usage};
    use writ_types::taint::{Label, Taint};
    let redactor = redactor();
    let piece = |form| Reasoning { provider: "p".into(), model: "m".into(), calls_before: 0, form };
    let signature = || piece(ReasoningForm::CallSignature(format!("sk-ant-api03-{}", "Ab1".repeat(30))));
    let leak = || piece(ReasoningForm::Block(serde_json::json!({ "thinking": format!("the key {PLAIN}") })));
    for (pieces, kept) in [(vec![signature()], 1), (vec![signature(), leak()], 0)] {
        let (stop, usage) = (StopReason::EndTurn, Usage::default());
        let (text, model) = (String::new(), String::new());
        let mut reply = ModelReply { text, calls: Vec::new(), stop, usage, model, reasoning: pieces.clone() };
        redactor.mask_reply(&mut reply);
        assert_eq!(reply.reasoning.len(), kept);
        let parts: Vec<Part> = pieces.into_iter().map(Part::Reasoning).collect();
        let said = ChatMessage {
            role: writ_types::chat::Role::Assistant,
            parts: parts.into_iter().chain([Part::Text { text: "so".into() }]).collect(),
            label: Label::new(Taint::Owner),
        };
        let mut request = writ_types::chat::ModelRequest {
            system: String::new(),
            messages: vec![Arc::new(said)],
            tools: writ_types::chat::ToolSpecs::default(),
            max_output_tokens: writ_types::unit::Tokens::new(1),
            form: None,
            effort: None,
        };
        redactor.mask_request(&mut request);
        assert_eq!(request.messages[0].parts.len(), kept + 1);
    }
}
