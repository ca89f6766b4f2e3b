use proptest::prelude::*;
use serde_json::json;

use super::*;

fn skill(front: &str) -> Result<Skill, SkillError> {
    read_skill(&format!("---\n{front}\n---\nRead first.\n"))
}

fn described(description: &str) -> String {
    skill(&format!("name: a\n{description}\nlicense: MIT")).map(|skill| skill.description).unwrap()
}

fn refused(front: &str) -> String {
    skill(front).map(|skill| format!("{skill:?}")).unwrap_err().to_string()
}

/// Rows: SIL-115 (in part: the reader; no command installs a skill yet)
#[test]
fn a_skill_has_a_name_and_a_description() {
    let read = skill("name: tables\ndescription: Lay out tables.").unwrap();
    assert_eq!((read.name.as_str(), read.description.as_str()), ("tables", "Lay out tables."));
    assert_eq!(read.instructions, "Read first.");
    for (front, key) in [
        ("description: Lay out tables.", "name"),
        ("name:\ndescription: Lay out tables.", "name"),
        ("name: ~\ndescription: Lay out tables.", "name"),
        ("name: tables", "description"),
        ("name: tables\ndescription: \"  \"", "description"),
        ("name: tables\ndescription: |\nlicense: MIT", "description"),
        ("", "name"),
    ] {
        assert_eq!(refused(front), format!("line 1: '{key}' is missing or empty"), "{front}");
    }
}

/// Rows: SIL-116 (in part: the reader; nothing of it is shown or run yet)
#[test]
fn optional_keys_are_read_and_have_defaults() {
    let read = skill(
        "name: a\ndescription: b\nlicense: Apache-2.0\nrequirements: Python 3.12\nactivation: background\n\
         script_args:\n  run: [--fast, 3]\nui:\n  icon: star\nmetadata:\n  author: us\n  tags: [x, y]",
    )
    .unwrap();
    assert_eq!(read.license.as_deref(), Some("Apache-2.0"));
    assert_eq!(read.requirements.as_deref(), Some("Python 3.12"));
    assert_eq!(read.activation, Activation::Background);
    assert_eq!(read.script_args, json!({ "run": ["--fast", 3] }));
    assert_eq!(read.ui, json!({ "icon": "star" }));
    assert_eq!(Value::Object(read.metadata), json!({ "author": "us", "tags": ["x", "y"] }));

    let bare = skill("name: a\ndescription: b").unwrap();
    assert_eq!((bare.license, bare.requirements, bare.activation), (None, None, Activation::Auto));
    assert_eq!((bare.script_args, bare.ui, bare.metadata), (Value::Null, Value::Null, Map::new()));

    assert_eq!(
        refused("name: a\ndescription: b\nactivation: sometimes"),
        "line 4: 'activation' is 'sometimes', and should be auto, manual or background"
    );
    assert!(refused("name: a\ndescription: b\nactivation: [auto]").starts_with("line 4: 'activation' is"));
}

/// A mistake in a key that decides nothing costs that key alone, and has its line.
#[test]
fn keys_that_decide_nothing_lose_no_skill() {
    for (more, remark) in [
        ("metadata: 3", "line 4: 'metadata' is 3, and should be a mapping of keys and values"),
        ("ui:\n  x: *ref", "line 5: "),
        ("script_args: {a: [1,\n  b: }", "line "),
        ("license: [MIT, Apache-2.0]", "line 4: 'license' is a list, and should be a text"),
        ("requirements:\n  - git", "line 4: 'requirements' is a list, and should be a text"),
    ] {
        let read = skill(&format!("name: a\ndescription: b\n{more}\nactivation: manual")).unwrap();
        let remarks: Vec<String> = read.remarks.iter().map(ToString::to_string).collect();
        assert!(
            remarks.len() == 1 && remarks.iter().all(|one| one.starts_with(remark)),
            "{more}: {remarks:?}"
        );
        assert_eq!(read.activation, Activation::Manual);
        assert!(read.metadata.is_empty() && read.ui.is_null() && read.script_args.is_null(), "{read:?}");
        assert!(read.license.is_none() && read.requirements.is_none(), "{read:?}");
    }
    let read = skill("name: a\ndescription: b\nmetadata: {\n  tags: [\n    x\n  ]\n}\nlicense: MIT").unwrap();
    assert_eq!(Value::Object(read.metadata), json!({ "tags": ["x"] }));
    assert_eq!((read.license.as_deref(), read.remarks), (Some("MIT"), Vec::new()));
}

/// Keys of other products: one means the same as ours, the others nothing.
#[test]
fn keys_of_other_products_do_no_harm() {
    let read = |more: &str| skill(&format!("name: a\ndescription: b\n{more}")).unwrap();
    assert_eq!(read("disable-model-invocation: true").activation, Activation::Manual);
    assert_eq!(read("disable-model-invocation: True").activation, Activation::Manual);
    assert_eq!(read("disable-model-invocation: false").activation, Activation::Auto);
    // Of two keys the stricter one counts, and no line of one key is another one's value.
    for manual in [
        "disable-model-invocation: true\nactivation:",
        "activation: auto\ndisable-model-invocation: yes",
        "activation: manual\n}x: auto",
        "activation: manual\n-x: auto",
        "activation: manual\n]y: auto",
        "disable-model-invocation: true\n}: false",
    ] {
        assert_eq!(read(manual).activation, Activation::Manual, "{manual}");
    }
    assert_eq!(read("compatibility: Needs git").requirements.as_deref(), Some("Needs git"));
    assert_eq!(read("requirements: git\ncompatibility: x").requirements.as_deref(), Some("git"));
    // What nobody reads is not judged either.
    assert_eq!(read("allowed-tools: Bash(git:*) Read\nhooks: *x\nargument-hint: [file]").name, "a");
}

/// Descriptions as they stand in files that people share: strict YAML refuses most of them, and with them the whole skill.
#[test]
fn descriptions_are_read_as_they_are_meant() {
    for (text, meant) in [
        ("description: Review along two axes: style, sense.", "Review along two axes: style, sense."),
        ("description: \"plan\" before I build. Pairs: grill", "\"plan\" before I build. Pairs: grill"),
        ("description: [WIP] sort tables", "[WIP] sort tables"),
        ("description: *fast* sorting", "*fast* sorting"),
        ("description: @team's own way", "@team's own way"),
        ("description: Sorts tables\n  of any size: fast.", "Sorts tables of any size: fast."),
        ("description:\n  Use when: tables", "Use when: tables"),
        ("description: >-\n  Sorts\n\n  tables: all.", "Sorts tables: all."),
        ("description: |\n  Sorts\n  tables.", "Sorts tables."),
        ("description: >2-\n  Sorts\n  tables.", "Sorts tables."),
        ("description: 'It''s: quick'", "It's: quick"),
        ("description: Fix it # a comment", "Fix it"),
        ("description: Trägt Größen ein ⚠️ 表", "Trägt Größen ein ⚠️ 表"),
        ("description: 42", "42"),
    ] {
        assert_eq!(described(text), meant, "{text}");
    }
    assert_eq!(
        refused("name: a\ndescription: [a, b]"),
        "line 3: 'description' is a list, and should be a text"
    );
    assert!(refused("name: a\ndescription: { b: c }").contains("is a mapping"));
}

#[test]
fn files_of_any_system_are_read() {
    let read =
        read_skill("\u{feff}---\r\nname: a\r\ndescription: b\r\n---\r\n\r\n# A\r\n---\r\ntext\r\n").unwrap();
    assert_eq!(read.instructions, "# A\n---\ntext");
    let read = read_skill("---\n\n# who\nname: a\n\ndescription: b\n---").unwrap();
    assert_eq!((read.name.as_str(), read.instructions.as_str()), ("a", ""));
}

#[test]
fn mistakes_have_their_line() {
    let fault = |text: &str| read_skill(text).unwrap_err().to_string();
    assert_eq!(fault(""), "line 1: no front matter: the file begins with a line `---`");
    assert_eq!(
        fault("# A\n---\nname: a\n---\n"),
        "line 1: no front matter: the file begins with a line `---`"
    );
    assert_eq!(
        fault("---\nname: a\ndescription: b\n"),
        "line 1: the front matter is not closed by a second line `---`"
    );
    assert_eq!(refused("name: a\nname: b\ndescription: c"), "line 3: 'name' is there twice");
    assert_eq!(refused("name: a\nwhat\ndescription: c"), "line 3: 'what' is not `key: value`");
    assert_eq!(refused("  name: a\ndescription: c"), "line 2: 'name: a' is not `key: value`");
    let long = "x".repeat(MAX_DESCRIPTION_CHARS + 1);
    assert_eq!(
        refused(&format!("name: a\ndescription: {long}")),
        "line 3: 'description' has 1025 characters; at most 1024 are read"
    );
    assert!(refused(&format!("name: {}\ndescription: b", "n".repeat(65))).contains("at most 64"));
    let keys: String = (0..MAX_KEYS).map(|n| format!("\nk{n}: v")).collect();
    assert!(refused(&format!("name: a{keys}")).ends_with("more than 64 keys"));
    assert!(fault(&format!("---\nname: a\n---\n{}", "x".repeat(MAX_SKILL_BYTES))).contains("at most 131072"));
}

/// Text that a person does not see when looking at the file.
#[test]
fn hidden_characters_are_refused_wherever_they_stand() {
    for hidden in ['\u{e0041}', '\u{202e}', '\u{200b}', '\u{1b}', '\0'] {
        let shown = format!("U+{:04X}", u32::from(hidden));
        for (text, line) in [
            (format!("---\nname: a\ndescription: b{hidden}\n---\n"), 3),
            (format!("---\nname: a\ndescription: b\n---\nDo.\nNow{hidden}.\n"), 6),
        ] {
            let error = read_skill(&text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("line {line}: ")) && error.ends_with(&shown), "{error}");
        }
    }
    // By an escape, which the file shows and a prompt would not.
    assert_eq!(refused("name: a\ndescription: \"Sort\\u202e it\""), "line 3: an invisible character U+202E");
}

proptest! {
    /// No text breaks the reader, and what it reads is within its limits and on one line.
    #[test]
    fn any_text_is_read_or_refused(front in "(?s)([a-z]{1,12}: ?[^\u{0}]{0,40}\n){0,6}", body in "(?s).{0,80}") {
        for text in [
            format!("---\n{front}---\n{body}"),
            format!("---\nname: a\ndescription: {front}\n---\n{body}"),
            body,
        ] {
            if let Ok(skill) = read_skill(&text) {
                for (line, most) in [(&skill.name, MAX_NAME_CHARS), (&skill.description, MAX_DESCRIPTION_CHARS)] {
                    prop_assert!(!line.is_empty() && line.chars().count() <= most);
                    prop_assert!(!line.chars().any(|c| c.is_control()));
                }
            }
        }
    }
}
