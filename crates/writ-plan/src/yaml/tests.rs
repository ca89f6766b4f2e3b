use serde_json::json;

use super::*;

fn json_of(text: &str) -> Value {
    read_yaml(text, 1).unwrap_or_else(|error| panic!("{error} in:\n{text}")).to_json()
}

#[test]
fn mappings_lists_and_texts_are_read() {
    let cases = [
        ("a: 1\nb: two # note\n", json!({"a": 1, "b": "two"})),
        ("a:\n  b:\n    c: ~\n", json!({"a": {"b": {"c": null}}})),
        ("a:\n- 1\n- x y\n", json!({"a": [1, "x y"]})),
        (
            "a:\n  - b: 1\n    c: [x, \"y, z\", {d: 2.5}]\n  - b: 2\n",
            json!({"a": [{"b": 1, "c": ["x", "y, z", {"d": 2.5}]}, {"b": 2}]}),
        ),
        ("a: |\n  one\n    two\n\n  three\nb: 1\n", json!({"a": "one\n  two\n\nthree", "b": 1})),
        ("a: >-\n  one\n  two\n", json!({"a": "one two"})),
        ("a: \"q \\\"w\\\" \\u00e9\"\nb: 'it''s'\n", json!({"a": "q \"w\" é", "b": "it's"})),
        ("a: {\n  b: 1,\n  c: [2, 3],\n}\n", json!({"a": {"b": 1, "c": [2, 3]}})),
        ("# only\n\n", json!({})),
        ("a: Fix: the bug\n", json!({"a": "Fix: the bug"})),
        ("a: http://h/p#x\n", json!({"a": "http://h/p#x"})),
        ("a:\n  - - 1\n    - 2\n  - 3\n", json!({"a": [[1, 2], 3]})),
        ("a:\n  - \"k y\": 1\n    b: 2\n  - \"x: y\"\n", json!({"a": [{"k y": 1, "b": 2}, "x: y"]})),
        ("a:\nb: true\n", json!({"a": null, "b": true})),
    ];
    for (text, expected) in cases {
        assert_eq!(json_of(text), expected, "{text}");
    }
}

#[test]
fn mistakes_are_reported_with_their_line() {
    let deep = (0..40_usize).map(|n| format!("{}a:\n", " ".repeat(n))).collect::<String>();
    let cases = [
        ("a: 1\n\tb: 2\n", 2),
        ("a: 1\nnonsense\n", 2),
        ("a: 1\na: 2\n", 2),
        ("a: &x 1\n", 1),
        ("a: *x\n", 1),
        ("a: [1, 2\n", 1),
        ("a: {b: 1, b: 2}\n", 1),
        ("a: \"open\n", 1),
        ("a: 'x' y\n", 1),
        ("a: 1\n  b: 2\n", 1),
        ("a: |x\n", 1),
        ("a: {b}\n", 1),
        (deep.as_str(), 14),
    ];
    for (text, line) in cases {
        let error = read_yaml(text, 1).expect_err(text);
        assert_eq!(error.line, Some(line), "{error} in:\n{text}");
    }
}

#[test]
fn a_path_leads_to_the_deepest_node_there_is() {
    let node = read_yaml("a:\n  - b: 1\n  - c:\n      d: 2\n", 1).expect("is read");
    let line = |path| node.find_deepest(path).line;
    assert_eq!((line("a.1.c.d"), line("a.0.zz"), line("q")), (4, 2, 1));
}

proptest::proptest! {
    /// No text makes the reader panic or run on.
    #[test]
    fn any_text_is_read_or_refused(text in "[-a-c:#\\[\\]{}\"' \n|>&,\\\\]{0,80}") {
        let _ = read_yaml(&text, 1).map(|node| node.to_json());
    }
}
