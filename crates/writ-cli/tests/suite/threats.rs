//! Hostile cases against the whole product; the crates' own tests hold the rest: replay and races (`races`),
//! content swap and display (`writ-policy`), sandbox and planted execution (`writ-sandbox`), tampering
//! (`writ-store`).

use serde_json::json;

use super::turns::{Bench, calls};
use super::{code, text};

/// Case 4, parser gap: nothing parses a command line but the kernel. Every trick that hides a second program in
/// an argument is judged and recorded as the argv that it is, and stays in the sandbox. Its twin is a plain command.
#[test]
fn needs_userns_needs_git_hidden_programs_are_recorded_as_argv_and_stay_inside() {
    let marker = std::env::temp_dir().join(format!("writ-parser-gap-{}", std::process::id()));
    let touch = format!("touch {}", marker.display());
    let tricks: Vec<Vec<String>> = vec![
        vec!["env".into(), "-S".into(), touch.clone()],
        vec!["sh".into(), "-c".into(), touch.clone()],
        vec![
            "tar".into(),
            "-cf".into(),
            "x.tar".into(),
            format!("--use-compress-prog={touch}"),
            "a.txt".into(),
        ],
        vec!["git".into(), "-c".into(), format!("core.pager={touch}"), "-p".into(), "version".into()],
        vec!["echo".into(), "$(touch x)".into(), "`touch x`".into(), "$HOME/*".into(), ";".into()],
    ];
    let list = tricks.iter().map(|argv| ("shell_exec", json!({ "argv": argv }))).collect();
    let bench = Bench::new("anthropic", calls(list, "Done."));
    std::fs::write(bench.project().join("a.txt"), "a\n").expect("written");
    let done = bench.chat("try", &["--new"]);
    assert!([0, 5].contains(&code(&done)), "{}", text(&done));
    assert!(!marker.exists(), "a hidden program reached the host");
    assert!(!bench.project().join("x").exists());
    // The newest comes first.
    let recorded: Vec<Vec<String>> = bench
        .events("intent")
        .iter()
        .rev()
        .filter_map(|row| serde_json::from_value(row["payload"]["action"]["argv"].clone()).ok())
        .collect();
    assert_eq!(recorded, tricks, "what the ledger says is what was run");
    // The twin: arguments that look like orders are text to a plain command.
    let echoed = bench
        .server
        .recorded()
        .iter()
        .any(|request| request.body.to_string().contains("$(touch x) `touch x` $HOME/* ;"));
    assert!(echoed, "the arguments arrived as they were");
}
