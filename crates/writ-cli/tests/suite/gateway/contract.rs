//! The document of the API against what the server does: cases are made from it, valid and hostile, and no answer
//! may be a failure of the server, of a status that is not documented, or of another form.

use std::collections::BTreeSet;

use super::*;

/// Values that do not belong where they are put.
fn hostile() -> Vec<Value> {
    let deep = (0..200).fold(json!(0), |inner, _| json!([inner]));
    vec![
        Value::Null,
        json!(true),
        json!(-1),
        json!(0),
        json!(1e300),
        json!(18_446_744_073_709_551_615_u64),
        json!(""),
        json!("\u{0}"),
        json!("ä\u{202e}\u{1f600}"),
        json!("x".repeat(2_000)),
        json!("../../etc/passwd"),
        json!("' OR 1=1 --"),
        json!([]),
        json!([[], {}, "x", null]),
        json!({}),
        json!({ "passkey": {} }),
        json!({ "claims": null }),
        deep,
    ]
}

/// Parts of a path, encoded as a client would.
const SEGMENTS: [&str; 14] = [
    "x",
    "0",
    "-1",
    "00000000",
    "18446744073709551616",
    "%00",
    "%2e%2e",
    "..%2f..%2fetc",
    "%ff",
    "%C3%A4",
    "01ARZ3NDEKTSV4RRFFQ69G5FAV",
    "Ab3dEf9Z",
    "null",
    "a%20b",
];

/// A case: what is asked, and what stands for it in the document.
struct Case<'a> {
    method: String,
    path: String,
    kind: &'a str,
    body: String,
}

/// A server, its document, and what it has been asked.
struct Contract {
    web: Web,
    document: Value,
    session: String,
    asked: usize,
    seen: BTreeSet<(String, u16)>,
}

impl Contract {
    fn new() -> Self {
        let env = [("WRIT_SERVER__REQUESTS_PER_SEC", "100000"), ("WRIT_SERVER__BURST", "100000")];
        let web = Web::with(calls(Vec::new(), "Yes."), &env);
        let document = web.ask("GET", "/openapi.json", &[], "").json();
        let mut contract = Self { web, document, session: String::new(), asked: 0, seen: BTreeSet::new() };
        contract.renew();
        contract
    }

    /// Another session: cases may have closed the one before.
    fn renew(&mut self) {
        let made = self.web.api("POST", "/api/v1/sessions", &Value::Null).json();
        self.session = made["session"].as_str().expect("an id").to_owned();
    }

    /// The path with its parameters, the first of them being this segment.
    fn fill(&self, path: &str, segment: &str) -> String {
        path.replace("{id}", segment)
            .replace("{seq}", segment)
            .replace("{ref}", segment)
            .replace("{name}", segment)
            .replace("{attempt}", segment)
            .replace("{unit}", segment)
    }

    fn good_segment(&self, path: &str) -> String {
        match path {
            "/v1/models/{id}" => "writ".to_owned(),
            path if path.contains("/approvals/") => "Ab3dEf9Z".to_owned(),
            path if path.contains("{seq}") => "0".to_owned(),
            path if path.contains("{ref}") => "contract".to_owned(),
            path if path.contains("{name}") => "client-frame.json".to_owned(),
            _ => self.session.clone(),
        }
    }

    /// A body that fits the schema, as far as the document says it.
    fn good_body(&self, schema: &Value) -> Value {
        let example = |kind: &Value| match kind.as_str() {
            Some("boolean") => json!(false),
            Some("array") => json!([{ "role": "user", "content": "hello" }]),
            Some("object") => json!({}),
            Some(_) | None => json!("hello"),
        };
        let properties = schema["properties"].as_object().expect("properties");
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        let needed = properties.iter().filter(|(name, _)| required.contains(&json!(name)));
        needed
            .map(|(name, schema)| {
                let first = schema["enum"].get(0).cloned();
                let first = first.or_else(|| (name == "model").then(|| json!("writ")));
                (name.clone(), first.unwrap_or_else(|| example(&schema["type"])))
            })
            .collect::<serde_json::Map<_, _>>()
            .into()
    }

    /// Bodies for a schema: one that fits, and each way of not fitting.
    fn bodies(&self, schema: &Value) -> Vec<String> {
        let good = self.good_body(schema);
        let mut bodies =
            vec![good.to_string(), String::new(), "{".into(), "null".into(), "[]".into(), "\u{0}".into()];
        bodies.push(hostile().pop().unwrap_or_default().to_string());
        let with = |name: &str, value: Value| {
            let mut body = good.clone();
            body[name] = value;
            body.to_string()
        };
        bodies.push(with("surprise", json!(1)));
        for name in schema["properties"].as_object().expect("properties").keys() {
            bodies.extend(hostile().into_iter().map(|value| with(name, value)));
            let mut missing = good.clone();
            missing.as_object_mut().expect("an object").remove(name);
            bodies.push(missing.to_string());
        }
        bodies
    }

    fn cases(&self, path: &str, method: &str, operation: &Value) -> Vec<Case<'static>> {
        let method = method.to_uppercase();
        let good = self.good_segment(path);
        let mut cases = Vec::new();
        let mut add = |path: String, kind, body: String| {
            cases.push(Case { method: method.clone(), path, kind, body });
        };
        let content = &operation["requestBody"]["content"];
        let (kind, bodies) = match content["application/json"]["schema"]["$ref"].as_str() {
            Some(name) => {
                let name = name.rsplit('/').next().unwrap_or_default();
                ("application/json", self.bodies(&self.document["components"]["schemas"][name]))
            }
            None if content.is_object() => {
                ("text/plain", vec!["value".to_owned(), String::new(), "\u{0}".into()])
            }
            None => ("application/json", vec![String::new()]),
        };
        for body in &bodies {
            add(self.fill(path, &good), kind, body.clone());
        }
        add(self.fill(path, &good), "application/xml", bodies[0].clone());
        if path.contains('{') {
            for segment in SEGMENTS {
                add(self.fill(path, segment), kind, bodies[0].clone());
            }
        }
        let parameters = operation["parameters"].as_array().expect("parameters").iter();
        let query = parameters.filter(|parameter| parameter["in"] == "query");
        let names: Vec<&str> = query.map(|parameter| parameter["name"].as_str().expect("a name")).collect();
        for name in names.into_iter().chain(["surprise"]) {
            for value in
                SEGMENTS.into_iter().chain(["", "true", "1", "500", "99999999999", "asked", "%22%27%3B"])
            {
                add(format!("{}?{name}={value}", self.fill(path, &good)), kind, bodies[0].clone());
            }
        }
        cases
    }

    /// Asks, and holds the answer against the document.
    fn check(&mut self, path: &str, operation: &Value, case: &Case<'_>, bearer: &str) {
        let headers = [("Authorization", bearer), ("Content-Type", case.kind)];
        let answer = self.web.ask(&case.method, &case.path, &headers, &case.body);
        let shown = format!("{} {} {:.200}: {answer:?}", case.method, case.path, case.body);
        self.asked += 1;
        self.seen.insert((format!("{} {path}", case.method), answer.status));
        assert!(answer.status != 0 && answer.status < 500, "{shown}");
        let responses = operation["responses"].as_object().expect("responses");
        // Each status by its number: a family of them would document what nobody has thought of.
        assert!(responses.keys().all(|status| status.parse::<u16>().is_ok()), "{responses:?}");
        let documented = responses.get(&answer.status.to_string());
        let documented = documented.unwrap_or_else(|| panic!("not documented: {shown}"));
        let content = documented["content"].as_object();
        let kind = answer.header("content-type").unwrap_or_default().split(';').next().unwrap_or_default();
        match content.and_then(|content| content.keys().next()) {
            None => assert!(answer.body.is_empty(), "a body that is not documented: {shown}"),
            // A stream is asked for in the body; the document names the plain form.
            Some(_) if kind == "text/event-stream" => {}
            Some(documented) => assert_eq!(kind, documented, "{shown}"),
        }
        if kind == "application/json" {
            let body: Value =
                serde_json::from_str(&answer.body).unwrap_or_else(|_| panic!("no JSON: {shown}"));
            if answer.status >= 400 {
                let text = |name: &str| body["error"][name].is_string();
                let openai = body["error"]["message"].is_string() && body["error"]["type"].is_string();
                assert!(openai || (text("code") && text("text") && text("hint")), "{shown}");
            }
        }
    }
}

#[test]
fn no_case_made_from_the_document_is_a_failure_or_an_undocumented_answer() {
    let mut contract = Contract::new();
    let paths = contract.document["paths"].as_object().expect("paths").clone();
    for (path, methods) in &paths {
        // Links answer with pages; a closed page is another test's.
        if path.starts_with("/link") {
            continue;
        }
        for (method, operation) in methods.as_object().expect("methods") {
            let path = contract.fill(path, &contract.good_segment(path));
            let (method, kind, body) = (method.to_uppercase(), "application/json", String::new());
            contract.check(
                &path,
                operation,
                &Case { method, path: path.clone(), kind, body },
                "Bearer wrong",
            );
        }
        // Sockets are no requests with an answer.
        if path.starts_with("/ws") {
            continue;
        }
        for (method, operation) in methods.as_object().expect("methods") {
            contract.renew();
            let bearer = contract.web.bearer();
            for case in contract.cases(path, method, operation) {
                contract.check(path, operation, &case, &bearer);
            }
        }
        // What is not documented for a path is refused as such.
        let filled = contract.fill(path, &contract.good_segment(path));
        for method in ["PUT", "PATCH", "TRACE"] {
            let bearer = contract.web.bearer();
            let answer = contract.web.ask(method, &filled, &[("Authorization", bearer.as_str())], "");
            assert!(matches!(answer.status, 400 | 405), "{method} {path}: {answer:?}");
        }
    }
    assert!(contract.asked > 1_000, "{}", contract.asked);
    // The cases reach what they are about: every route was also served.
    for (path, methods) in &paths {
        for (method, operation) in methods.as_object().expect("methods") {
            let name = format!("{} {path}", method.to_uppercase());
            let served = operation["responses"].as_object().expect("responses").keys().any(|status| {
                // A refusal serves nothing.
                status
                    .parse()
                    .is_ok_and(|status| status < 400 && contract.seen.contains(&(name.clone(), status)))
            });
            // What needs an ask, a passkey, a project or a case router that is there is served in other tests. What needs a work
            // item, a memory or a home without a model, or names a session or a message in its body, is only refused here: no
            // case of this test can be served there.
            let elsewhere = [
                "/ws",
                "/link",
                "/fleet",
                "/approvals/{id}",
                "/undo/",
                "/passkeys/",
                "/diff",
                "/files",
                "/work/",
                "/context/pin",
                "/context/unpin",
                "/memory/confirm",
                "/memory/edit",
                "/memory/set-aside",
                "/pilot",
                "/models/setup",
                "/sessions/agent",
                "/sessions/delete",
                "/sessions/fork",
                "/sessions/history",
                "/sessions/rename",
                "/sessions/restore",
            ];
            assert!(
                served || elsewhere.iter().any(|part| path.contains(part)),
                "{name}: {:?}",
                contract.seen
            );
        }
    }
    assert_eq!(contract.web.api("GET", "/api/v1/state", &Value::Null).status, 200, "it goes on");
    assert_eq!(contract.web.engine.stop().code, Some(0));
}

/// The same by a tool that knows nothing of Writ: valid and hostile requests from the document, the same each time.
#[test]
#[expect(clippy::disallowed_types, reason = "the test starts the client of the server that it tests")]
fn needs_schemathesis_a_foreign_tool_finds_no_failure_and_no_undocumented_answer() {
    let env = [("WRIT_SERVER__REQUESTS_PER_SEC", "100000"), ("WRIT_SERVER__BURST", "100000")];
    let web = Web::with(calls(Vec::new(), "Yes. I do."), &env);
    let tool = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("schemathesis/bin/schemathesis");
    let folder = tempfile::tempdir().expect("a folder");
    let output = std::process::Command::new(tool)
        .current_dir(folder.path())
        .env_clear()
        .env("HOME", folder.path())
        .env("PATH", "/usr/bin:/bin")
        .args(["run", &format!("http://localhost:{}/openapi.json", web.port)])
        .args(["--header", &format!("Authorization: {}", web.bearer())])
        // A socket and a link are no requests with an answer.
        .args(["--exclude-path-regex", "^/(ws|link)"])
        .args(["--checks", "not_a_server_error,status_code_conformance,content_type_conformance"])
        // Deterministic means: from the document alone, the same cases each time, as many as fit the time.
        .args(["--phases", "coverage,fuzzing", "--max-examples", "8", "--max-time", "45"])
        .arg("--generation-deterministic")
        .args(["--request-timeout", "20", "--suppress-health-check", "all", "--no-color"])
        .output()
        .expect("the tool starts");
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    // It has asked, and what it asked was answered.
    let tested = said.lines().find(|line| line.contains("Tested:")).unwrap_or_else(|| panic!("{said}"));
    let number = tested.split_whitespace().find_map(|word| word.parse::<u32>().ok());
    assert!(number.is_some_and(|number| number >= 25), "{said}");
    assert_eq!(web.api("GET", "/api/v1/state", &Value::Null).status, 200, "it goes on");
    assert_eq!(web.engine.stop().code, Some(0));
}
