//! What a server has besides tools: tools of ours, pinned and judged as its own are.

use super::*;

/// Rows: WIN-454 (as a client: resources)
#[test]
fn needs_userns_needs_python_a_resource_is_read_as_a_tool_is_called() {
    let desk = Desk::new();
    desk.mode("library");
    let added = desk.add(&[]);
    assert_eq!(code(&added), 0, "{}", text(&added));
    let shown = text(&added);
    assert!(
        shown.contains("tool resources/read")
            && shown.contains("Reads one resource of this server, by its URI."),
        "{shown}"
    );
    desk.say(
        "[tools.\"resources/list\"]\neffect = false\n[tools.\"resources/templates/list\"]\neffect = false\n",
    );
    let listed = desk.said("crm__resources_list {}");
    assert!(listed.contains("note://1") && listed.contains("note://2"), "both pages: {listed}");
    let forms = desk.said("crm__resources_templates_list {}");
    assert!(forms.contains("note://{number}"), "{forms}");

    let message = r#"crm__resources_read {"uri": "note://1"}"#;
    let asked = desk.chat(message);
    assert_eq!(code(&asked), 5, "until its owner says otherwise: {}", text(&asked));
    assert!(desk.calls().is_empty(), "{:?}", desk.calls());
    desk.say("[tools.\"resources/read\"]\neffect = false\n");
    let said = desk.said(message);
    assert!(said.contains("[resource note://1]") && said.contains("Ann likes tea."), "{said}");
    let outcomes = desk.bench.events("outcome");
    let of_reading = |row: &&Value| row["payload"]["label"]["sources"][0]["origin"] == "crm__resources_read";
    let outcome = outcomes.iter().find(of_reading).expect("an outcome that names it");
    assert_eq!(outcome["payload"]["label"]["taint"], "external");
    let picture = desk.said(r#"crm__resources_read {"uri": "note://2"}"#);
    assert!(picture.contains("4 characters of base64: not shown"), "{picture}");
    let odd = desk.said(&format!("crm__resources_read {{\"uri\": \"{}\"}}", "x".repeat(3_000)));
    assert!(odd.contains("does not fit"), "{odd:.300}");
    // Each conversation has its own server, and its own folder for what it writes.
    let mut calls = desk.calls();
    calls.sort();
    assert_eq!(calls, ["read note://1", "read note://2"]);

    // A server that has none any more is not asked for one.
    desk.mode("");
    stop_engine_of(&desk.bench.home);
    let gone = desk.said(message);
    assert!(gone.contains("the tool is not the one that was trusted"), "{gone}");
    assert_eq!(desk.calls().len(), 2);
    desk.verify();
}

/// A prompt is the server's words, not the owner's, whoever it gives itself out for.
///
/// Rows: WIN-454 (as a client: prompts)
#[test]
fn needs_userns_needs_python_a_prompt_is_asked_for_as_a_tool_is_called_and_is_external() {
    let desk = Desk::new();
    desk.mode("library");
    let added = desk.add(&[]);
    assert_eq!(code(&added), 0, "{}", text(&added));
    assert!(text(&added).contains("tool prompts/get"), "{}", text(&added));
    let message = r#"crm__prompts_get {"name": "plan", "arguments": {"day": "Monday"}}"#;
    let asked = desk.chat(message);
    assert_eq!(code(&asked), 5, "until its owner says otherwise: {}", text(&asked));
    assert!(desk.calls().is_empty(), "{:?}", desk.calls());
    desk.say("[tools.\"prompts/list\"]\neffect = false\n[tools.\"prompts/get\"]\neffect = false\n");
    let listed = desk.said("crm__prompts_list {}");
    assert!(listed.contains("Plans a day.") && listed.contains("\"required\":true"), "{listed}");
    let said = desk.said(message);
    assert!(said.contains("Plan my Monday"), "{said}");
    let outcomes = desk.bench.events("outcome");
    let of_prompt = |row: &&Value| row["payload"]["label"]["sources"][0]["origin"] == "crm__prompts_get";
    let outcome = outcomes.iter().find(of_prompt).expect("an outcome that names it");
    assert_eq!(outcome["payload"]["label"]["taint"], "external");
    for odd in [
        r#"crm__prompts_get {"name": "plan", "arguments": {"day": 5}}"#,
        r#"crm__prompts_get {"arguments": {}}"#,
        r#"crm__prompts_get {"name": "plan", "to": "x"}"#,
    ] {
        let refused = desk.said(odd);
        assert!(refused.contains("failed: wrong arguments"), "{odd}: {refused:.300}");
    }
    assert_eq!(desk.calls(), ["prompt plan Monday"]);
    desk.verify();
}
