use writ_types::error::ToReport as _;

use super::*;

fn request(forge: ForgeKind) -> ForgeRequest {
    ForgeRequest {
        forge,
        api: "https://forge.example".to_owned(),
        project: "o/r".to_owned(),
        token: "secret:forge".parse().expect("a reference"),
        unit: "milestone/m1".to_owned(),
        commit: "a".repeat(40),
        branch: "writ/m1-sums".to_owned(),
        base: "main".to_owned(),
        title: "Sums".to_owned(),
        text: "They add.".to_owned(),
    }
}

fn answer(status: u16, body: &[u8]) -> ForgeAnswer<'_> {
    ForgeAnswer { status, body, wait_secs: None }
}

fn pull(state: &str, commit: &str, project: &str) -> Value {
    json!({
        "html_url": "https://forge.example/o/r/pull/7",
        "state": state,
        "head": { "ref": "writ/m1-sums", "sha": commit, "repo": { "full_name": project } },
        "base": { "ref": "main" },
    })
}

/// Each forge is called at its own path with its own names, and the token stands in its own header.
///
/// Rows: SF-518 (in part: the calls of each forge)
#[test]
fn each_forge_has_its_own_calls() {
    let path = |forge| open_request(&request(forge)).segments.join("|");
    assert_eq!(path(ForgeKind::Github), "repos|o|r|pulls");
    assert_eq!(path(ForgeKind::Gitea), "repos|o|r|pulls");
    assert_eq!(path(ForgeKind::Gitlab), "projects|o/r|merge_requests");
    let body = |forge| open_request(&request(forge)).body.unwrap_or_default();
    assert_eq!(
        body(ForgeKind::Gitlab),
        json!({ "title": "Sums", "description": "They add.", "source_branch": "writ/m1-sums", "target_branch": "main" })
    );
    assert_eq!(
        body(ForgeKind::Forgejo),
        json!({ "title": "Sums", "body": "They add.", "head": "writ/m1-sums", "base": "main" })
    );
    let query = |forge| {
        let pairs = list_requests(&request(forge), 2).query;
        pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
    };
    assert_eq!(query(ForgeKind::Github), "head=o:writ/m1-sums&base=main&state=all&per_page=30&page=2");
    assert_eq!(
        query(ForgeKind::Gitlab),
        "source_branch=writ/m1-sums&target_branch=main&state=all&per_page=30&page=2"
    );
    assert_eq!(query(ForgeKind::Gitea), "state=all&limit=50&page=2");
    assert_eq!(token_header(ForgeKind::Github, "t"), ("authorization", "Bearer t".to_owned()));
    assert_eq!(token_header(ForgeKind::Gitlab, "t"), ("private-token", "t".to_owned()));
    assert_eq!(token_header(ForgeKind::Forgejo, "t"), ("authorization", "token t".to_owned()));
}

/// Only GitLab has groups; no name leads elsewhere.
///
/// Rows: SF-518 (in part: names of repositories)
#[test]
fn a_repository_has_an_owner_and_a_name() {
    for kind in ForgeKind::ALL {
        assert!(is_project(kind, "some-owner/a.b_c"), "{kind:?}");
        assert_eq!(is_project(kind, "group/sub/name"), kind == ForgeKind::Gitlab);
        for bad in ["", "o", "/r", "o/", "o/..", "./r", "o/r?x", "o/r#x", "o r/x", "o/r\n"] {
            assert!(!is_project(kind, bad), "{kind:?} {bad:?}");
        }
    }
}

/// A request of the branch is found if it is open, or has this commit; one of a fork, of another branch, or of earlier work is none.
///
/// Rows: SF-518 (in part: no second request for the same work)
#[test]
fn the_request_of_the_branch_is_found_and_no_other() {
    let github = request(ForgeKind::Github);
    let found = FoundRequest::Found("https://forge.example/o/r/pull/7".to_owned());
    let commit = "a".repeat(40);
    let read = |rows: Value| read_page(&github, answer(200, rows.to_string().as_bytes()));
    assert_eq!(read(json!([])), Ok(FoundRequest::Missing));
    assert_eq!(read(json!([pull("open", "other", "O/R")])), Ok(found.clone()));
    assert_eq!(read(json!([pull("closed", &commit, "o/r")])), Ok(found.clone()));
    assert_eq!(read(json!([pull("closed", "other", "o/r")])), Ok(FoundRequest::Missing));
    assert_eq!(read(json!([pull("open", &commit, "fork/r")])), Ok(FoundRequest::Missing));
    assert_eq!(read(json!([{ "html_url": "x", "head": null }])), Ok(FoundRequest::Missing));
    let mut other = pull("open", &commit, "o/r");
    other["head"]["ref"] = json!("writ/m2");
    assert_eq!(read(json!([other])), Ok(FoundRequest::Missing));
    // Gitea lists all requests, so there may be more on the next page.
    let gitea = request(ForgeKind::Gitea);
    let page = |rows: Value| read_page(&gitea, answer(200, rows.to_string().as_bytes()));
    assert_eq!(page(json!([pull("closed", "other", "o/r")])), Ok(FoundRequest::NextPage));
    assert_eq!(page(json!([])), Ok(FoundRequest::Missing));
    let merge = json!([{
        "web_url": "https://forge.example/o/r/-/merge_requests/7",
        "state": "opened",
        "sha": commit,
        "source_branch": "writ/m1-sums",
        "target_branch": "main",
        "source_project_id": 1,
        "target_project_id": 1,
    }]);
    assert_eq!(
        read_page(&request(ForgeKind::Gitlab), answer(200, merge.to_string().as_bytes())),
        Ok(FoundRequest::Found("https://forge.example/o/r/-/merge_requests/7".to_owned()))
    );
}

/// Every refusal is an error of its own with a hint, and says if another try can help.
///
/// Rows: SF-518 (in part: refusals are typed)
#[test]
fn every_refusal_has_its_own_error() {
    let exists = r#"{"message":"Validation Failed","errors":[{"resource":"PullRequest","code":"custom","message":"A pull request already exists for o:writ/m1-sums."}]}"#;
    let nothing = r#"{"message":"Validation Failed","errors":[{"message":"No commits between main and writ/m1-sums"}]}"#;
    let gitlab = r#"{"message":["Another open merge request already exists for this source branch: !5"]}"#;
    let nested = r#"{"message":{"base":["must be there","and good"]}}"#;
    let limited = r#"{"message":"You have exceeded a secondary rate limit."}"#;
    for (status, body, code, can_pass) in [
        (401, r#"{"message":"Bad credentials"}"#, "forge.token", false),
        (403, r#"{"message":"Resource not accessible"}"#, "forge.forbidden", false),
        (403, limited, "forge.limited", true),
        (404, "{}", "forge.no_project", false),
        (409, gitlab, "forge.exists", false),
        (422, exists, "forge.exists", false),
        (422, nothing, "forge.nothing_new", false),
        (400, nested, "forge.invalid", false),
        (429, "", "forge.limited", true),
        (500, "<html>", "forge.down", true),
        (503, "{}", "forge.down", true),
        (301, "", "forge.moved", false),
        (302, "", "forge.moved", false),
        (202, "{}", "forge.format", false),
    ] {
        let error = read_opened(&request(ForgeKind::Github), answer(status, body.as_bytes()));
        let error = error.expect_err("refused");
        let report = error.report();
        assert_eq!((report.code.as_str(), error.can_pass()), (code, can_pass), "{status} {body}");
        assert!(!report.hint.is_empty() && report.outside.len() < 1_000, "{report:?}");
    }
    let error =
        read_opened(&request(ForgeKind::Gitlab), answer(400, nested.as_bytes())).expect_err("refused");
    assert!(error.to_string().ends_with("must be there; and good"), "{error}");
    let waits = ForgeAnswer { status: 403, body: b"{}", wait_secs: Some(30) };
    let error = read_opened(&request(ForgeKind::Github), waits).expect_err("refused");
    assert_eq!(error.wait_secs(), Some(30));
}

/// A page of a browser, an answer without an address, and an address that could deceive are no success.
///
/// Rows: SF-518 (in part: answers that are none)
#[test]
fn an_answer_without_a_plain_address_is_no_success() {
    let github = request(ForgeKind::Github);
    let open = |body: &str| read_opened(&github, answer(201, body.as_bytes()));
    assert_eq!(open(r#"{"html_url":"https://h/o/r/pull/1"}"#).as_deref(), Ok("https://h/o/r/pull/1"));
    for bad in [
        "<!doctype html>",
        "",
        "null",
        "[]",
        "{}",
        r#"{"html_url":7}"#,
        r#"{"html_url":"javascript:alert(1)"}"#,
        r#"{"html_url":"https://h/\u202eo"}"#,
        r#"{"html_url":"https://h/a b"}"#,
    ] {
        assert_eq!(open(bad), Err(ForgeError::Format), "{bad}");
    }
    let long = format!(r#"{{"html_url":"https://h/{}"}}"#, "a".repeat(MAX_URL_BYTES));
    assert_eq!(open(&long), Err(ForgeError::Format));
    assert_eq!(read_page(&github, answer(200, b"{\"message\":\"x\"}")), Err(ForgeError::Format));
    // Messages are bounded, however large and deep.
    let deep = format!("{{\"message\":{}\"x\"{}}}", "[".repeat(60), "]".repeat(60));
    let flood = json!({ "message": "x".repeat(100_000), "errors": vec!["y"; 1_000] }).to_string();
    for body in [deep, flood] {
        let error = read_opened(&github, answer(422, body.as_bytes())).expect_err("refused");
        assert!(error.to_string().len() < 500, "{error}");
    }
}
