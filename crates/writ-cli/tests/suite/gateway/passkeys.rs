//! Passkeys over HTTP: leave from a terminal, enrolment in a page, and what they approve.

use writ_policy::approval::{ApprovalClaims, ApprovalToken, Approver};
use writ_testbed::passkey::{Ceremony, SoftPasskey, text_of};
use writ_types::entry::Decision;
use writ_types::frame::ClientFrame;

use super::super::engine::Link;
use super::*;

/// Remembering cannot be undone here, and is asked for.
const IRREVERSIBLE: &str = r#"@id("ask-remember") @ask("Every memory is asked for.") @risk("irreversible")
forbid (principal, action == Action::"remember", resource);"#;

/// A page with a session, and some asks that wait.
struct Page {
    web: Web,
    cookie: String,
    asks: Vec<String>,
}

impl Page {
    /// A home with this rule, in which the agent has asked to remember some things.
    fn asking(rule: &str, asks: usize) -> Self {
        let bench = Bench::new("openai", move |request: &ParsedRequest| {
            if request.messages.last().is_some_and(|message| !message.results.is_empty()) {
                return Reply::text("It waits.");
            }
            let add_call =
                |reply: Reply, n| reply.and_call("memory_store", json!({ "text": format!("item {n}") }));
            (0..asks).fold(Reply::default(), add_call)
        });
        let rules = bench.home.root().join("policies/ask.cedar");
        std::fs::write(rules, rule).expect("written");
        let web = Web::over(bench, &[]);
        let mut link = Link::open(&web.bench.home).expect("connects");
        link.join(None, None).expect("joined");
        link.ask("remember", "one").expect("answered");
        let asks: Vec<String> =
            link.asks().expect("cards").iter().map(|card| card.ask_id.to_string()).collect();
        let cookie = web.cookie();
        Self { web, cookie, asks }
    }

    fn origin(&self) -> String {
        format!("http://localhost:{}", self.web.port)
    }

    /// A request as the page's own code sends it.
    fn send(&self, method: &str, path: &str, body: &Value) -> Answer {
        let origin = self.origin();
        let headers = [
            ("Origin", origin.as_str()),
            ("Cookie", self.cookie.as_str()),
            ("Sec-Fetch-Site", "same-origin"),
            ("Content-Type", "application/json"),
        ];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.web.ask(method, path, &headers, &body)
    }

    /// Leave for one passkey, from a terminal: its code.
    fn leave(&self, name: &str) -> String {
        let given = self.web.bench.home.json(&["keys", "approver", "enrol", "--name", name]);
        let (link, code) = (given["link"].as_str().expect("a link"), given["code"].as_str().expect("a code"));
        let start = format!("http://localhost:{}/link/", self.web.port);
        assert!(link.starts_with(&start) && link.ends_with(&format!("#/review?enrol={code}")), "{link}");
        code.to_owned()
    }

    fn begin(&self, code: &str) -> Answer {
        self.send("POST", "/api/v1/passkeys/begin", &json!({ "code": code }))
    }

    /// What an authenticator is asked by an answer.
    fn ceremony(&self, asked: &Answer) -> Ceremony {
        assert_eq!(asked.status, 200, "{asked:?}");
        let challenge = asked.json()["publicKey"]["challenge"].as_str().expect("a challenge").to_owned();
        Ceremony::honest_ceremony(&challenge, &self.origin())
    }

    fn finish(&self, credential: &Value) -> Answer {
        self.send("POST", "/api/v1/passkeys/finish", &json!({ "credential": credential }))
    }

    fn enrol(&self, key: &SoftPasskey, sign_count: u32) -> Value {
        let begun = self.begin(&self.leave("phone"));
        let made = self.finish(&key.enrol_passkey(&Ceremony { sign_count, ..self.ceremony(&begun) }));
        assert_eq!(made.status, 200, "{made:?}");
        made.json()
    }

    fn challenge(&self, ask: &str) -> Answer {
        self.send("POST", &format!("/api/v1/approvals/{ask}/challenge"), &json!({}))
    }

    fn decide(&self, ask: &str, signed: &Value) -> Answer {
        let body = json!({ "decision": "approve", "signature": { "passkey": signed } });
        self.send("POST", &format!("/api/v1/approvals/{ask}"), &body)
    }

    /// Signs an ask honestly, but for what `change` does.
    fn sign(&self, key: &SoftPasskey, ask: &str, change: impl FnOnce(Ceremony) -> Ceremony) -> Answer {
        let asked = self.ceremony(&self.challenge(ask));
        self.decide(ask, &key.sign_challenge(&change(asked)))
    }

    fn keyed(&self) -> Vec<(String, String)> {
        let approver = |row: &&Value| row["payload"]["role"] == "approver";
        let text = |row: &Value, name: &str| row["payload"][name].as_str().expect("text").to_owned();
        let rows = self.web.bench.events("keyed");
        rows.iter().filter(approver).map(|row| (text(row, "change"), text(row, "grants"))).collect()
    }
}

fn refused(answer: &Answer) -> (u16, String) {
    (answer.status, answer.code())
}

fn denied(code: &str) -> (u16, String) {
    (403, code.to_owned())
}

/// Rows: SIL-326
#[test]
fn what_cannot_be_undone_is_approved_by_a_passkey_that_verifies_its_person_and_by_nothing_else() {
    let page = Page::asking(IRREVERSIBLE, 3);
    let (home, ask) = (&page.web.bench.home, page.asks[0].as_str());
    // Without one: no tap, no key of the command line, no challenge.
    let tap = page.send("POST", &format!("/api/v1/approvals/{ask}"), &json!({ "decision": "approve" }));
    assert_eq!(refused(&tap), denied("approval.invalid"));
    let by_key = home.run(&["approvals", "approve", ask, "--yes"]);
    assert_eq!(code(&by_key), 4, "{}", text(&by_key));
    assert_eq!(refused(&page.challenge(ask)), denied("passkey.none"));
    let warned = text(&home.run(&["doctor"]));
    assert!(warned.contains("what cannot be undone cannot be approved"), "{warned}");

    let key = SoftPasskey::es256(7);
    let made = page.enrol(&key, 4);
    assert_eq!((made["name"].as_str(), made["site"].as_str()), (Some("phone"), Some("localhost")));
    assert!(text(&home.run(&["doctor"])).contains("every risk can be approved in the page"));
    let unverified = page.sign(&key, ask, |asked| Ceremony { flags: 0x01, sign_count: 5, ..asked });
    assert_eq!(refused(&unverified), denied("approval.passkey"));
    assert_eq!(page.web.bench.count("remembered"), 0);
    let asked = page.challenge(ask).json();
    assert_eq!(asked["publicKey"]["userVerification"], "required");
    assert_eq!(asked["publicKey"]["allowCredentials"][0]["id"], json!(key.id()));
    let approved = page.sign(&key, ask, |asked| Ceremony { sign_count: 5, ..asked });
    assert_eq!((approved.status, &approved.json()["state"]), (200, &json!("applied")), "{approved:?}");
    assert_eq!(page.web.bench.count("remembered"), 1);
    // Its twins, over a WebSocket as the page does it, and after a restart: the passkey is kept.
    let Page { web, .. } = page;
    let Web { engine, bench, .. } = web;
    assert_eq!(engine.stop().code, Some(0));
    let web = Web::over(bench, &[]);
    let page = Page { cookie: web.cookie(), web, ..page };
    let mut socket = page.web.own_socket("/ws");
    socket.join(None, 0);
    let asked = Ceremony { sign_count: 6, ..page.ceremony(&page.challenge(&page.asks[1])) };
    let signature = json!({ "passkey": key.sign_challenge(&asked) });
    let answer = json!({
        "type": "approval_response", "ask_id": page.asks[1], "decision": "approve", "signature": signature,
    });
    socket.say(&answer);
    assert_eq!(socket.until("approval_resolved")["state"], "applied");
    assert_eq!(page.web.bench.count("remembered"), 2);
    let by: Vec<Value> = page.web.bench.events("answered");
    assert!(by.iter().all(|row| row["payload"]["by"].as_str().is_some_and(|by| by.ends_with("'phone'"))));
    // Said again, it is an answer to nothing.
    socket.say(&answer);
    assert_eq!(socket.until("error")["code"], "ask.closed");
    assert_eq!(code(&page.web.bench.home.run(&["audit", "verify"])), 0);
    assert_eq!(page.web.engine.stop().code, Some(0));
}

#[test]
fn an_answer_that_was_changed_moved_or_said_before_is_refused_and_logged() {
    let page = Page::asking(&IRREVERSIBLE.replace("irreversible", "high"), 3);
    let (key, stranger) = (SoftPasskey::ed25519(8), SoftPasskey::ed25519(9));
    page.enrol(&key, 0);
    let [one, two] = [page.asks[0].as_str(), page.asks[1].as_str()];
    let evil = |asked: Ceremony| Ceremony { origin: "http://localhost:3000".into(), ..asked };
    assert_eq!(refused(&page.sign(&key, one, evil)), denied("approval.passkey"), "another page's origin");
    let embedded = |asked: Ceremony| Ceremony { cross_origin: true, ..asked };
    assert_eq!(refused(&page.sign(&key, one, embedded)), denied("approval.passkey"));
    let absent = |asked: Ceremony| Ceremony { flags: 0x04, ..asked };
    assert_eq!(refused(&page.sign(&key, one, absent)), denied("approval.passkey"));
    let created = |asked: Ceremony| Ceremony { kind: Some("webauthn.create"), ..asked };
    assert_eq!(refused(&page.sign(&key, one, created)), denied("approval.passkey"));
    assert_eq!(
        refused(&page.sign(&stranger, one, |asked| asked)),
        denied("approval.invalid"),
        "not enrolled"
    );
    let forged = stranger.with_credential_id(&[8; 16]);
    assert_eq!(refused(&page.sign(&forged, one, |asked| asked)), denied("approval.passkey"), "another key");
    // A challenge is good for its ask, and for one answer, also a bad one.
    let asked = page.ceremony(&page.challenge(one));
    assert_eq!(refused(&page.decide(two, &key.sign_challenge(&asked))), denied("approval.invalid"));
    assert_eq!(refused(&page.decide(one, &key.sign_challenge(&asked))), denied("approval.challenge"));
    let own = Ceremony::honest_ceremony(&text_of(&[7; 32]), &page.origin());
    assert_eq!(
        refused(&page.decide(one, &key.sign_challenge(&own))),
        denied("approval.challenge"),
        "made by the page"
    );
    // Claims that the client has made itself count for nothing, even if an enrolled passkey has signed them.
    let mut link = Link::open(&page.web.bench.home).expect("connects");
    let status = link.call("status", json!({})).expect("answered");
    let card = link.asks().expect("cards").into_iter().find(|card| card.ask_id.as_str() == one);
    let card = card.expect("the card");
    let claims = ApprovalClaims {
        installation: status["installation"].as_str().expect("an id").parse().expect("an id"),
        epoch: status["epoch"].as_u64().expect("a number"),
        ask: card.ask_id,
        decision: Decision::Approve,
        prepared: card.prepared,
        shown: card.shown_hash,
        nonce: "0".repeat(32),
        issued_at: card.asked_at,
        expires_at: card.expires_at,
        approver: Approver::Passkey { origin: page.origin() },
        task: None,
        values: false,
        host: None,
    };
    let challenge = text_of(claims.challenge().expect("canonical").as_bytes());
    let answer = key.sign_challenge(&Ceremony::honest_ceremony(&challenge, &page.origin()));
    let token = ApprovalToken::by_passkey(claims, serde_json::from_value(answer).expect("an answer"));
    let body = json!({ "decision": "approve", "signature": token });
    let made = page.send("POST", &format!("/api/v1/approvals/{one}"), &body);
    assert_eq!(refused(&made), denied("approval.challenge"), "claims of its own");
    let other = format!("/api/v1/approvals/{one}/challenge");
    let elsewhere = page.send("POST", &other, &json!({ "shown_hash": "0".repeat(64) }));
    assert_eq!(refused(&elsewhere), denied("approval.invalid"), "another text was shown");
    assert_eq!(page.web.bench.count("answered"), 0);
    let refusals = page.web.bench.events("denied");
    let logged = refusals.iter().filter(|row| row["payload"]["reason"] == "approval").count();
    assert!(logged >= 9, "every signed answer leaves an entry: {logged}");
    // Its twins: the same honestly, once.
    let asked = page.ceremony(&page.challenge(one));
    let signed = key.sign_challenge(&asked);
    assert_eq!(page.decide(one, &signed).status, 200);
    assert_eq!(refused(&page.decide(one, &signed)), (409, "ask.closed".to_owned()), "said again");
    assert_eq!(refused(&page.decide(two, &signed)), denied("approval.challenge"), "said elsewhere");
    let present = page.sign(&key, two, |asked| Ceremony { flags: 0x01, ..asked });
    assert_eq!(present.status, 200, "a high risk needs a key, not a verified person");
    assert_eq!(page.web.bench.count("remembered"), 2);
    assert_eq!(page.web.engine.stop().code, Some(0));
}

#[test]
fn a_passkey_whose_counter_goes_back_and_one_that_was_removed_approve_nothing() {
    let page = Page::asking(&IRREVERSIBLE.replace("irreversible", "high"), 3);
    let (key, home) = (SoftPasskey::es256(7), &page.web.bench.home);
    let id = page.enrol(&key, 10)["id"].as_str().expect("an id").to_owned();
    let counted = |ask: &str, sign_count| page.sign(&key, ask, |asked| Ceremony { sign_count, ..asked });
    let [one, two, three] = [&page.asks[0], &page.asks[1], &page.asks[2]];
    for back in [0, 9, 10] {
        assert_eq!(refused(&counted(one, back)), denied("approval.copied"), "{back}");
    }
    assert_eq!(counted(one, 11).status, 200);
    assert_eq!(refused(&counted(two, 11)), denied("approval.copied"));
    assert_eq!(page.web.bench.count("answered"), 1, "what is refused answers nothing");
    let listed = home.json(&["keys", "approver", "list"]);
    let kinds = |listed: &Value| -> Vec<(String, bool)> {
        let rows = listed["approvers"].as_array().expect("rows").iter();
        rows.map(|row| (row["kind"].as_str().expect("a kind").to_owned(), row["removed_at"].is_null()))
            .collect()
    };
    assert_eq!(kinds(&listed), [("cli".to_owned(), true), ("passkey".to_owned(), true)]);
    // A challenge from before the removal is worth nothing after it.
    let before = Ceremony { sign_count: 12, ..page.ceremony(&page.challenge(two)) };
    let (leave, other) = (page.leave("other"), SoftPasskey::es256(8));
    let half = other.enrol_passkey(&page.ceremony(&page.begin(&leave)));
    let removed = home.run(&["keys", "approver", "remove", &id]);
    assert_eq!(code(&removed), 0, "{}", text(&removed));
    assert_eq!(refused(&page.decide(two, &key.sign_challenge(&before))), denied("approval.invalid"));
    assert_eq!(refused(&page.challenge(three)), denied("passkey.none"));
    // Nor is leave from before it, begun or not: who removes a key wants no other of the same hand.
    assert_eq!(refused(&page.finish(&half)), denied("approval.challenge"));
    assert_eq!(refused(&page.begin(&leave)), denied("passkey.not_enrolled"));
    let now = page.send("GET", "/api/v1/passkeys", &Value::Null).json();
    assert_eq!(now["passkeys"], json!([]));
    assert_eq!(code(&home.run(&["keys", "approver", "remove", &id])), 2, "once");
    // Nor does it come back by enrolling it again.
    let begun = page.begin(&page.leave("again"));
    let again = page.finish(&key.enrol_passkey(&page.ceremony(&begun)));
    assert_eq!(refused(&again), denied("passkey.not_enrolled"));
    let listed = home.json(&["keys", "approver", "list"]);
    assert_eq!(kinds(&listed), [("cli".to_owned(), true), ("passkey".to_owned(), false)]);
    // The key that gives leave stays.
    let own = listed["approvers"][0]["id"].as_str().expect("an id");
    let last = home.run(&["keys", "approver", "remove", own]);
    assert_eq!(code(&last), 4, "{}", text(&last));
    let mut changes = page.keyed();
    changes.reverse();
    let changes: Vec<(&str, bool)> =
        changes.iter().map(|(change, what)| (change.as_str(), what.contains("phone"))).collect();
    assert_eq!(changes, [("enrolled", false), ("enrolled", true), ("revoked", true)]);
    assert_eq!(page.web.engine.stop().code, Some(0));
}

/// Case 24 of the hostile ones: a cookie that was stolen enrols nobody.
#[test]
fn whoever_has_a_pages_session_cannot_make_or_remove_an_approver() {
    let page = Page::asking(&IRREVERSIBLE.replace("irreversible", "high"), 1);
    let home = &page.web.bench.home;
    for wrong in ["", "0", &"0".repeat(32)] {
        assert_eq!(refused(&page.begin(wrong)), denied("passkey.not_enrolled"), "{wrong:?}");
    }
    // Neither a page nor a program can give the leave, or remove the key that can.
    let listed = home.json(&["keys", "approver", "list"]);
    let own = listed["approvers"][0]["id"].clone();
    let mut socket = page.web.own_socket("/ws");
    let spec = json!({ "command": "true" });
    for (method, params) in [
        ("approvers.permit", json!({})),
        ("approvers.remove", json!({ "key": own })),
        // Nor can they have servers of tools started, or taken in.
        ("mcp.probe", json!({ "name": "crm", "spec": spec })),
        ("mcp.reload", json!({})),
    ] {
        socket.say(&json!({ "type": "call", "id": 1, "method": method, "params": params }));
        assert_eq!(socket.until("error")["code"], "auth.terminal_only", "{method}");
    }
    // At the terminal's socket, leave counts if an approver key has signed it.
    let mut link = Link::open(home).expect("connects");
    let forged = json!({
        "claims": {
            "installation": link.call("status", json!({})).expect("answered")["installation"],
            "epoch": 1, "code": "0".repeat(64), "name": "mine", "nonce": "0".repeat(32),
            "issued_at": 0, "expires_at": 1, "approver": "0".repeat(64),
        },
        "signature": "0".repeat(128),
    });
    let call =
        ClientFrame::Call { id: 99, method: "approvers.permit".into(), params: json!({ "grant": forged }) };
    link.send(&call).expect("sent");
    assert_eq!(link.refusal().expect("refused").0, "approval.invalid");
    // A code is good for one passkey, begun and finished in the same page.
    let (code_of_one, key, other) = (page.leave("phone"), SoftPasskey::es256(7), SoftPasskey::es256(9));
    let (first, second) = (page.begin(&code_of_one), page.begin(&code_of_one));
    let evil = Ceremony { origin: "http://localhost:3000".into(), ..page.ceremony(&first) };
    assert_eq!(refused(&page.finish(&key.enrol_passkey(&evil))), denied("passkey.invalid"));
    let good = key.enrol_passkey(&page.ceremony(&second));
    assert_eq!(page.finish(&good).status, 200);
    assert_eq!(refused(&page.finish(&good)), denied("approval.challenge"), "finished once");
    assert_eq!(refused(&page.begin(&code_of_one)), denied("passkey.not_enrolled"), "used");
    // Two that were begun with one code: one of them is taken in.
    let code_of_two = page.leave("second");
    let (first, second) = (page.begin(&code_of_two), page.begin(&code_of_two));
    assert_eq!(first.json()["publicKey"]["excludeCredentials"][0]["id"], json!(key.id()));
    assert_eq!(page.finish(&other.enrol_passkey(&page.ceremony(&first))).status, 200);
    let third = SoftPasskey::ed25519(3);
    assert_eq!(
        refused(&page.finish(&third.enrol_passkey(&page.ceremony(&second)))),
        denied("passkey.not_enrolled")
    );
    // Programs have no origin, and passkeys are bound to one.
    let by_program = page.web.api("POST", "/api/v1/passkeys/begin", &json!({ "code": code_of_two }));
    assert_eq!(by_program.status, 400, "{by_program:?}");
    let address = format!("http://127.0.0.1:{}", page.web.port);
    let headers = [
        ("Origin", address.as_str()),
        ("Cookie", page.cookie.as_str()),
        ("Content-Type", "application/json"),
    ];
    let body = json!({ "code": page.leave("address") }).to_string();
    let by_address = page.web.ask("POST", "/api/v1/passkeys/begin", &headers, &body);
    assert_eq!(refused(&by_address), denied("passkey.no_site"));
    // Names that could deceive are no names.
    let named = home.run(&["keys", "approver", "enrol", "--name", "a\u{202e}b"]);
    assert_eq!(code(&named), 4, "{}", text(&named));
    assert_eq!(page.keyed().len(), 3);
    assert_eq!(page.web.engine.stop().code, Some(0));
}

/// What two people must approve: one of them is not enough, nor is one of them twice, nor a tap; what the first has signed
/// survives a restart; and either may say no.
///
/// Rows: SIL-326
#[test]
fn what_two_people_must_approve_waits_for_both() {
    let rule = IRREVERSIBLE.replace("@risk(\"irreversible\")", "@approvers(\"2\")");
    let page = Page::asking(&rule, 2);
    let key = SoftPasskey::es256(7);
    page.enrol(&key, 1);
    let [one, two] = [page.asks[0].clone(), page.asks[1].clone()];
    let approve = |page: &Page, ask: &str| {
        let done = page.web.bench.home.run(&["approvals", "approve", ask, "--yes"]);
        (code(&done), text(&done))
    };
    let first = approve(&page, &one);
    assert!(first.0 == 5 && first.1.contains("1 of 2 people have approved"), "{first:?}");
    assert_eq!(approve(&page, &one).0, 4, "the same key again");
    let tap = page.send("POST", &format!("/api/v1/approvals/{one}"), &json!({ "decision": "approve" }));
    assert_eq!(refused(&tap), denied("approval.invalid"));
    assert_eq!(page.web.bench.count("remembered"), 0);
    // After a restart the second one completes it, and it is done once.
    let Page { web, .. } = page;
    let Web { engine, bench, .. } = web;
    assert_eq!(engine.stop().code, Some(0));
    let web = Web::over(bench, &[]);
    let page = Page { cookie: web.cookie(), web, ..page };
    let shown = text(&page.web.bench.home.run(&["approvals", "show", &one]));
    assert!(shown.contains("1 of 2 people have approved: key "), "{shown}");
    let second = page.sign(&key, &one, |asked| Ceremony { sign_count: 2, ..asked });
    assert_eq!((second.status, &second.json()["state"]), (200, &json!("applied")), "{second:?}");
    assert_eq!(page.web.bench.count("remembered"), 1);
    // The other order, and a no in between.
    let first = page.sign(&key, &two, |asked| Ceremony { sign_count: 3, ..asked });
    assert_eq!((first.status, &first.json()["state"]), (200, &json!("open")), "{first:?}");
    assert_eq!(code(&page.web.bench.home.run(&["approvals", "deny", &two])), 0);
    assert_ne!(approve(&page, &two).0, 0, "after a no");
    assert_eq!(page.web.bench.count("remembered"), 1);
    assert_eq!(code(&page.web.bench.home.run(&["audit", "verify"])), 0);
    assert_eq!(page.web.engine.stop().code, Some(0));
}

/// Two yeses at one moment, by keys that count their signatures: whoever sees both goes on for both, and what was asked is
/// done once, whichever came first.
#[test]
fn two_passkeys_at_the_same_moment_complete_what_two_must_approve() {
    let rule = IRREVERSIBLE.replace("@risk(\"irreversible\")", "@approvers(\"2\")");
    let page = Page::asking(&rule, 4);
    let keys = [SoftPasskey::es256(7), SoftPasskey::es256(8)];
    for key in &keys {
        page.enrol(key, 1);
    }
    for (n, ask) in (2_u32..).zip(&page.asks) {
        let signed = keys.each_ref().map(|key| {
            let asked = Ceremony { sign_count: n, ..page.ceremony(&page.challenge(ask)) };
            key.sign_challenge(&asked)
        });
        std::thread::scope(|scope| {
            let page = &page;
            let yeses = signed.each_ref().map(|signed| scope.spawn(move || page.decide(ask, signed)));
            yeses.map(|yes| yes.join().expect("answered"))
        });
        let card = page.web.bench.home.json(&["approvals", "show", ask]);
        assert_eq!(card["state"], "used", "{card}");
    }
    assert_eq!(page.web.bench.count("remembered"), page.asks.len());
    assert_eq!(code(&page.web.bench.home.run(&["audit", "verify"])), 0);
    assert_eq!(page.web.engine.stop().code, Some(0));
}
