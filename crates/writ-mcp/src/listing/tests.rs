use serde_json::json;

use super::*;
use crate::definition::{MAX_DESCRIPTION_BYTES, MAX_NAME_BYTES, MAX_SCHEMA_BYTES};

fn tool(name: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"}})
}

/// What comes of these pages, asked for one by one.
fn listed(pages: impl IntoIterator<Item = Value>) -> Result<Listing, McpError> {
    let (mut list, mut pages) = (ToolPages::default(), pages.into_iter());
    while list.next_request().is_some() {
        match pages.next() {
            Some(page) => list.take_page(&page)?,
            None => list.fail(McpError::Timeout { method: "tools/list", secs: 30 }, Has::default())?,
        }
    }
    Ok(list.into_listing(Has::default()))
}

fn names(listing: &Listing) -> Vec<&str> {
    listing.tools.iter().map(|tool| tool.name.as_str()).collect()
}

/// What servers of others send: Go, PHP and C# ones, and such as are made of whole web APIs.
#[test]
fn one_wrong_tool_is_left_out_and_the_others_stay() {
    let long = "x".repeat(MAX_NAME_BYTES + 1);
    for wrong in [
        json!(7),
        json!({}),
        json!({"name": 7, "inputSchema": {}}),
        json!({"name": "", "inputSchema": {}}),
        json!({"name": long, "inputSchema": {}}),
        json!({"name": "b", "inputSchema": "object"}),
        json!({"name": "b", "inputSchema": true}),
        json!({"name": "b", "inputSchema": [1]}),
        json!({"name": "b", "inputSchema": {}, "description": 5}),
        json!({"name": "b", "inputSchema": {}, "description": "x".repeat(MAX_DESCRIPTION_BYTES + 1)}),
        json!({"name": "b", "inputSchema": {"x": "y".repeat(MAX_SCHEMA_BYTES)}}),
    ] {
        let listing = listed([json!({"tools": [tool("a"), wrong, tool("c")]})]).expect("a list");
        assert_eq!((names(&listing), listing.left_out.len()), (vec!["a", "c"], 1), "{wrong:.80}");
    }
    for bare in [
        json!({"name": "b"}),
        json!({"name": "b", "inputSchema": null}),
        json!({"name": "b", "inputSchema": []}),
    ] {
        let listing = listed([json!({"tools": [bare]})]).expect("a list");
        assert_eq!((names(&listing), listing.left_out.len()), (vec!["b"], 0), "{bare}");
        assert_eq!(listing.tools[0].schema, json!({}), "it takes anything");
    }
    for lie in [json!({}), json!({"tools": {}}), json!(null)] {
        assert!(matches!(listed([lie]), Err(McpError::Wrong { method: "tools/list", .. })));
    }
}

#[test]
fn a_name_that_is_listed_twice_takes_nothing_else_with_it() {
    let same = listed([json!({"tools": [tool("a"), tool("b"), tool("a")]})]).expect("a list");
    assert_eq!(names(&same), ["a", "b"]);
    assert_eq!(same.left_out, ["'a' is listed twice in the same words; one of them is used"]);
    let mut other = tool("a");
    other["description"] = json!("Sends everything.");
    let differ = listed([json!({"tools": [tool("a"), tool("b"), other, tool("a")]})]).expect("a list");
    assert_eq!(names(&differ), ["b"], "nobody could tell which one is called");
    assert_eq!(differ.left_out, ["'a' is listed twice in different words: both are left out"]);
}

#[test]
fn what_is_beyond_a_bound_is_left_out_and_said() {
    let many: Vec<Value> = (0..MAX_TOOLS + 40).map(|n| tool(&format!("t{n:04}"))).collect();
    let listing = listed([json!({"tools": many})]).expect("a list");
    assert_eq!((listing.tools.len(), listing.left_out.len()), (MAX_TOOLS, MAX_REMARKS + 1));
    assert_eq!(listing.left_out[0], "'t0512' is left out: 512 tools of one server are used");
    assert_eq!(listing.left_out[MAX_REMARKS], "8 more are left out");
    let big = json!({"description": "z".repeat(MAX_SCHEMA_BYTES - 100)});
    let large: Vec<Value> =
        (0..30).map(|n| json!({"name": format!("t{n:02}"), "inputSchema": big})).collect();
    let listing = listed([json!({"tools": large})]).expect("a list");
    let bytes: usize = listing.tools.iter().map(|tool| tool.schema.to_string().len()).sum();
    assert!(bytes <= MAX_LIST_BYTES && listing.tools.len() >= 20, "{bytes}");
    assert!(listing.left_out[0].contains("all tools of a server take"), "{:?}", listing.left_out);
}

#[test]
fn an_endless_list_ends_with_its_reason_and_keeps_what_came() {
    let page = |name: &str, cursor: Value| json!({"tools": [tool(name)], "nextCursor": cursor});
    let circle = listed(["1", "2", "1", "2"].map(|cursor| page("a", json!(cursor)))).expect("a list");
    assert_eq!(circle.left_out, ["its list leads back to an earlier page, and was ended there"]);
    let same = listed([page("a", json!("end")), page("a", json!("end"))]).expect("a list");
    assert_eq!((names(&same), same.left_out.len()), (vec!["a"], 1));
    let endless = listed((0..).map(|n| page(&format!("t{n:03}"), json!(format!("{n}"))))).expect("a list");
    assert_eq!(endless.tools.len(), MAX_PAGES);
    assert_eq!(endless.left_out, [format!("its list has more than {MAX_PAGES} pages; the rest is left out")]);
    let odd = listed([page("a", json!(5))]).expect("a list");
    assert_eq!(odd.left_out, ["the cursor of its list is no short text; the rest is left out"]);
    let broken = listed([page("a", json!("2"))]).expect("a list");
    assert_eq!(names(&broken), ["a"]);
    assert!(
        broken.left_out[0].contains("did not answer 'tools/list' within 30 seconds"),
        "{:?}",
        broken.left_out
    );
    let lie = listed([page("a", json!("2")), json!({"tools": 5})]).expect("a list");
    assert!(lie.left_out[0].contains("it lists no tools"), "{:?}", lie.left_out);
}

/// Java and C# servers send an empty cursor at the end; by the protocol it is one like any other.
#[test]
fn an_empty_cursor_is_tried_once_and_no_fault() {
    let page = |name: &str| json!({"tools": [tool(name)], "nextCursor": ""});
    let again = listed([page("a"), page("a")]).expect("a list");
    assert_eq!((names(&again), again.left_out.len()), (vec!["a"], 0));
    let more = listed([page("a"), json!({"tools": [tool("b")]})]).expect("a list");
    assert_eq!((names(&more), more.left_out.len()), (vec!["a", "b"], 0));
    let refused = listed([page("a")]).expect("a list");
    assert_eq!((names(&refused), refused.left_out.len()), (vec!["a"], 0));
}

#[test]
fn a_server_without_tools_may_not_know_how_to_list_them() {
    let refused = || McpError::Refused { method: METHOD, code: METHOD_NOT_FOUND, message: String::new() };
    let has = Has::of(&json!({"capabilities": {"prompts": {}}}));
    let mut list = ToolPages::default();
    assert!(
        list.next_request().is_some() && list.fail(refused(), has).is_ok() && list.next_request().is_none()
    );
    assert_eq!(names(&list.into_listing(has)), ["prompts/get", "prompts/list"]);
    assert_eq!(ToolPages::default().fail(refused(), Has::default()), Err(refused()));
    assert_eq!(ToolPages::default().fail(McpError::Gone, has), Err(McpError::Gone));
}
