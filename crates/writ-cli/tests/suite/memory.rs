//! `writ memory`, from the command to the database.

use serde_json::Value;

use super::Home;

fn add(home: &Home, text: &str) -> String {
    let added = home.json(&["memory", "add", text]);
    added["id"].as_str().expect("an id").to_owned()
}

fn found(home: &Home, query: &str) -> Vec<String> {
    let found = home.json(&["memory", "search", query]);
    let hits = found["hits"].as_array().expect("hits");
    hits.iter().map(|hit| hit["text"].as_str().expect("a text").to_owned()).collect()
}

/// Rows: WIN-200 (in part: an old wording is not found after an update)
/// Rows: WIN-205 SIL-098 SIL-280 (in part: search is by words without an embedder)
/// Rows: SIL-388 (in part: its causes and effects are shown)
#[test]
fn a_memory_is_edited_undone_and_shown_with_its_causes() {
    let home = Home::ready();
    let rain = add(&home, "It rained in Hamburg for three days");
    let flood = home.json(&["memory", "add", "The cellar of Anna Berg was flooded", "--cause", &rain]);
    let flood = flood["id"].as_str().expect("an id");
    let shown = home.json(&["memory", "show", flood]);
    assert_eq!(shown["causes"][0]["id"], rain.as_str());
    assert_eq!(shown["entities"], serde_json::json!(["anna", "anna berg", "berg"]));
    assert_eq!(
        (&shown["trust"], &shown["source"], &shown["importance"]),
        (&"verified".into(), &"user".into(), &700.into())
    );
    assert_eq!(home.json(&["memory", "show", &rain])["effects"][0]["id"], flood);
    home.json(&["memory", "edit", flood, "--text", "The garage of Anna Berg was flooded", "--pinned"]);
    assert_eq!(found(&home, "cellar"), Vec::<String>::new());
    // With its cause, which has none of the words.
    let cause = "It rained in Hamburg for three days";
    assert_eq!(found(&home, "garage"), ["The garage of Anna Berg was flooded", cause]);
    home.json(&["memory", "undo"]);
    assert_eq!(found(&home, "cellar"), ["The cellar of Anna Berg was flooded", cause]);
    assert_eq!(home.json(&["memory", "show", flood])["pinned"], false);
    let stats = home.json(&["memory", "stats"]);
    assert_eq!(stats["counts"], serde_json::json!([{ "status": "active", "kind": "fact", "count": 2 }]));
    assert_eq!(stats["embedder"], Value::Null);
}

/// Two opposing facts are flagged for the owner, as soon as the second is stored, and none of them goes before an answer.
///
/// Rows: WIN-331
#[test]
fn contradictions_are_asked_about_and_the_owners_word_decides() {
    let home = Home::ready();
    let old = add(&home, "The staging host is called heron");
    let new = add(&home, "The staging host is called egret");
    let pending = home.json(&["memory", "pending"]);
    assert_eq!(pending["questions"][0]["kind"], "contradiction");
    assert_eq!(pending["questions"][0]["id"], new.as_str());
    assert_eq!(pending["questions"][0]["other"]["id"], old.as_str());
    assert_eq!(found(&home, "staging host").len(), 2, "none is gone before the owner has answered");
    home.json(&["memory", "confirm", &new]);
    assert_eq!(found(&home, "staging host"), ["The staging host is called egret"]);
    assert_eq!(home.json(&["memory", "pending"])["questions"], serde_json::json!([]));
    home.json(&["memory", "undo"]);
    assert_eq!(found(&home, "staging host").len(), 2);
}

/// An export of the home that imported one is the same, also with texts of many kilobytes and of marks that JSON escapes.
///
/// Rows: SIL-396
#[test]
fn an_export_and_an_import_give_an_equal_set() {
    let (home, other) = (Home::ready(), Home::ready());
    let rain = add(&home, "It rained in Hamburg yesterday");
    home.json(&["memory", "add", "The cellar flooded", "--cause", &rain, "--pinned", "--importance", "900"]);
    home.json(&["memory", "add", "Anna prefers tea", "--kind", "preference"]);
    for n in 0..8 {
        add(&home, &format!("number {n} {}", "\"\\".repeat(50_000)));
    }
    let file = home.dir.path().join("memories.jsonl");
    let name = file.to_str().expect("a name");
    std::fs::write(&file, "older").expect("writes");
    home.json(&["memory", "export", name]);
    let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().expect("there").permissions());
    assert_eq!(mode & 0o777, 0o600, "also where a file was there");
    let exported = std::fs::read_to_string(&file).expect("reads");
    assert_eq!(exported.lines().count(), 12);
    assert_eq!(other.json(&["memory", "import", name])["added"], 11);
    let again = other.dir.path().join("again.jsonl");
    other.json(&["memory", "export", again.to_str().expect("a name")]);
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&std::fs::read_to_string(&again).expect("reads")), sorted(&exported));
}

/// A file that was changed makes a memory that is there no more trusted.
#[test]
fn an_import_raises_no_trust() {
    let home = Home::ready();
    let tea = add(&home, "Anna drinks tea");
    let file = home.dir.path().join("memories.jsonl");
    let name = file.to_str().expect("a name");
    home.json(&["memory", "export", name]);
    let exported = std::fs::read_to_string(&file).expect("reads");
    let external = exported.replace("\"verified\"", "\"working\"").replace("\"owner\"", "\"external\"");
    std::fs::write(&file, external).expect("writes");
    home.json(&["memory", "import", name, "--mode", "replace"]);
    std::fs::write(&file, exported).expect("writes");
    home.json(&["memory", "import", name, "--mode", "replace"]);
    let shown = home.json(&["memory", "show", &tea]);
    assert_eq!((&shown["trust"], &shown["taint"]), (&"working".into(), &"external".into()));
}

/// Rows: SIL-397
#[test]
fn a_bundle_is_exported_merged_and_replaces() {
    let home = Home::ready();
    let tea = add(&home, "Anna drinks tea");
    let file = home.dir.path().join("memories.jsonl");
    let name = file.to_str().expect("a name");
    home.json(&["memory", "export", name]);
    let external = format!(
        "{{\"id\":\"{}\",\"text\":\"a page says so\",\"kind\":\"fact\",\"trust\":\"working\",\"taint\":\"external\",\
         \"at\":\"2026-01-01T00:00:00Z\",\"status\":\"active\",\"source\":\"agent\",\"importance\":500}}\n",
        writ_types::id::MemoryId::from_parts(writ_types::unit::Timestamp::from_millis(1), 7)
    );
    let exported = std::fs::read_to_string(&file).expect("reads");
    std::fs::write(&file, format!("{exported}{external}")).expect("writes");
    home.json(&["memory", "forget", &tea]);
    let coffee = add(&home, "Boris drinks coffee");
    let merged = home.json(&["memory", "import", name]);
    assert_eq!((&merged["added"], &merged["unchanged"]), (&2.into(), &0.into()));
    assert_eq!(home.json(&["memory", "show", &tea])["trust"], "verified");
    assert_eq!(found(&home, "page"), ["a page says so"]);
    assert_eq!(home.json(&["memory", "search", "page"])["hits"][0]["taint"], "external");
    assert_eq!(home.json(&["memory", "import", name])["unchanged"], 2);
    let replaced = home.json(&["memory", "import", name, "--mode", "replace"]);
    assert_eq!((&replaced["replaced"], &replaced["forgotten"]), (&2.into(), &1.into()));
    assert!(!home.run(&["memory", "show", &coffee]).status.success());
    std::fs::write(&file, "{\"format\":\"writ-memory\",\"version\":9}\n").expect("writes");
    let refused = home.run(&["memory", "import", name, "--mode", "replace"]);
    assert!(!refused.status.success());
    assert_eq!(found(&home, "tea"), ["Anna drinks tea"], "nothing has changed");
}
