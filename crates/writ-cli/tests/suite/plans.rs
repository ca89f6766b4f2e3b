//! Plans: approved as a whole, and done step by step under a key of their own.

use serde_json::{Value, json};
use writ_testkit::model_server::{ParsedRequest, Reply};
use writ_types::entry::Decision;
use writ_types::error::Exit;

use super::egress::mirror::Mirror;
use super::engine::{Link, stop_engine_of};
use super::turns::Bench;
use super::{code, text};

const WAITING: i32 = 5;
const DENIED: i32 = 4;

/// Makes the call that the person names: `do shell_exec {"argv": ["true"]}`.
fn obeys(request: &ParsedRequest) -> Reply {
    let at = request.messages.iter().rposition(|message| message.text.starts_with("do "));
    let at = at.expect("somebody has said something");
    let done = request.messages.iter().skip(at).map(|message| message.results.len()).sum::<usize>();
    let mut words = request.messages[at].text.splitn(3, ' ').skip(1);
    match (done, words.next(), words.next()) {
        (0, Some(tool), Some(arguments)) => {
            Reply::call(tool, serde_json::from_str(arguments).expect("arguments"))
        }
        _ => Reply::text("Done."),
    }
}

fn call_text(tool: &str, arguments: &Value) -> String {
    format!("do {tool} {arguments}")
}

/// A program that could reach a host that nobody has listed, so it is asked about.
fn reaching(word: &str) -> Value {
    json!({ "argv": ["echo", word], "hosts": ["unlisted.example"] })
}

fn plan(steps: &Value) -> Value {
    json!({ "title": "greet the world", "steps": steps, "minutes": 20, "branch": "main" })
}

struct Desk {
    bench: Bench,
    session: String,
}

impl Desk {
    /// Proposes a plan in a new conversation.
    fn proposing(bench: Bench, steps: &Value) -> Self {
        let proposed = bench.chat(&call_text("plan_propose", &plan(steps)), &[]);
        assert_eq!(code(&proposed), WAITING, "{}", text(&proposed));
        let session = bench.home.json(&["status"])["session"]["session"].as_str().expect("one").to_owned();
        Self { bench, session }
    }

    /// The same, approved.
    fn approved(bench: Bench, steps: &Value) -> (Self, String) {
        let desk = Self::proposing(bench, steps);
        let ask = desk.bench.ask();
        let approved = desk.bench.home.run(&["approvals", "approve", &ask, "--yes"]);
        assert_eq!(code(&approved), 0, "{}", text(&approved));
        (desk, ask)
    }

    fn more(&self, tool: &str, arguments: &Value) -> i32 {
        let said = call_text(tool, arguments);
        code(&self.bench.home.run(&["chat", "-m", &said, "--session", &self.session]))
    }

    /// Is asked about a request, and denies it.
    fn asked(&self, tool: &str, arguments: &Value) {
        assert_eq!(self.more(tool, arguments), WAITING, "{arguments}");
        assert_eq!(code(&self.bench.home.run(&["approvals", "deny", &self.bench.ask()])), 0);
    }

    fn in_force(&self) -> Vec<Value> {
        self.bench.home.json(&["approvals", "list"])["in_force"].as_array().expect("a list").clone()
    }

    fn verify(&self) {
        let verified = self.bench.home.run(&["audit", "verify"]);
        assert_eq!(code(&verified), 0, "{}", text(&verified));
    }
}

fn bench() -> Bench {
    Bench::new("openai", obeys)
}

/// Propose a plan, approve it, its key is minted and verified, its steps run, each on record with the plan that it rests
/// on; what is not in it asks, and so does a step that was done as often as it says, also after a restart. The stored token
/// is refused a second time.
///
/// Rows: SIL-165 SIL-002
/// Rows: SIL-411
#[test]
fn needs_userns_a_plan_is_approved_once_and_its_steps_run_without_another_question() {
    let steps = json!([{ "tool": "shell_exec", "arguments": reaching("hello"), "times": 2 }]);
    let desk = Desk::proposing(bench(), &steps);
    let ask = desk.bench.ask();
    let shown = text(&desk.bench.home.run(&["approvals", "show", &ask]));
    for line in [
        "greet the world",
        "20 minutes from your yes",
        "1 of 1, up to 2 times: exec",
        "echo hello",
        "unlisted.example",
        "branch     main",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    assert_eq!(desk.bench.count("planned"), 1);
    let approved = desk.bench.home.run(&["approvals", "approve", &ask, "--yes"]);
    assert_eq!(code(&approved), 0, "{}", text(&approved));
    let minted = desk.bench.events("keyed");
    let of_plan =
        |row: &Value| row["payload"]["grants"].as_str().is_some_and(|grants| grants.contains("of plan"));
    assert_eq!(minted.iter().filter(|row| of_plan(row)).count(), 1, "one key");

    assert_eq!(desk.more("shell_exec", &reaching("hello")), 0, "nobody is asked");
    let intents = desk.bench.events("intent");
    let by_plan = intents.iter().filter(|intent| intent["payload"]["approval"] == ask.as_str()).count();
    assert_eq!(by_plan, 2, "the key was minted and the step was done on the one approval");
    desk.asked("shell_exec", &reaching("hello!"));
    let in_force = desk.in_force();
    assert_eq!(
        (&in_force[0]["scope"], &in_force[0]["uses_left"]),
        (&json!("plan"), &json!(1)),
        "{in_force:?}"
    );

    stop_engine_of(&desk.bench.home);
    assert_eq!(desk.more("shell_exec", &reaching("hello")), 0, "after a restart as well");
    desk.asked("shell_exec", &reaching("hello"));

    let conn = rusqlite::Connection::open(desk.bench.home.root().join("data/writ.db")).expect("opens");
    let sql = "SELECT token FROM approval WHERE ask = ?1";
    let token: String = conn.query_row(sql, [&ask], |row| row.get(0)).expect("kept");
    let mut link = Link::open(&desk.bench.home).expect("an engine");
    let token = serde_json::from_str(&token).expect("a token");
    let replayed = link.decide(&ask.parse().expect("an id"), Decision::Approve, Some(token));
    assert_eq!(replayed, Some(Err("ask.closed".to_owned())));
    desk.verify();
}

/// Another conversation, changed rules and a plan that was taken back: what it covered is asked about again, and its key
/// is revoked.
///
/// Rows: SIL-002
#[test]
fn needs_userns_a_plan_ends_with_its_rules_and_when_it_is_taken_back() {
    let steps = json!([{ "tool": "shell_exec", "arguments": reaching("hello"), "times": 9 }]);
    let (desk, ask) = Desk::approved(bench(), &steps);
    assert_eq!(desk.more("shell_exec", &reaching("hello")), 0);
    let mut link = Link::open(&desk.bench.home).expect("an engine");
    link.join(None, Some(&desk.bench.project())).expect("a new one");
    let other = link.ask(&call_text("shell_exec", &reaching("hello")), "one").expect("ends");
    assert_eq!(other.exit, Exit::Waiting, "another conversation");
    assert_eq!(code(&desk.bench.home.run(&["approvals", "deny", &desk.bench.ask()])), 0);

    let rules = desk.bench.home.root().join("policies/more.cedar");
    let more = "@id(\"no-env\") forbid (principal, action == Action::\"docker\", resource);";
    std::fs::write(&rules, more).expect("written");
    stop_engine_of(&desk.bench.home);
    desk.asked("shell_exec", &reaching("hello"));
    std::fs::remove_file(&rules).expect("removed");
    stop_engine_of(&desk.bench.home);
    assert_eq!(desk.more("shell_exec", &reaching("hello")), 0, "under its own rules it counts");

    let revoked = desk.bench.home.run(&["approvals", "revoke", &ask]);
    assert_eq!(code(&revoked), 0, "{}", text(&revoked));
    assert_eq!(desk.in_force(), [] as [Value; 0]);
    desk.asked("shell_exec", &reaching("hello"));
    assert_eq!(code(&desk.bench.home.run(&["approvals", "revoke", &ask])), 2);
    desk.verify();
}

/// Where the newest plan leaves open what is asked about beside it, an older one that says it exactly covers it.
#[test]
fn an_older_plan_covers_what_a_newer_one_leaves_open() {
    let mirror = Mirror::start();
    let [own, exact, open] = ["/own", "/exact", "/open"].map(|page| mirror.url("depot", page));
    let step = |url: &str| json!([{ "tool": "web_fetch", "arguments": { "url": url } }]);
    let (first, mut second) = (plan(&step(&exact)), plan(&step(&open)));
    second["steps"][0]["free"] = json!("page");
    let fetches = [own.clone(), exact];
    // The owner does not name what the plans name.
    let script = move |request: &ParsedRequest| {
        let is_request = |text: &str| ["first", "second", "read "].iter().any(|word| text.starts_with(word));
        let at = request.messages.iter().rposition(|message| is_request(&message.text)).expect("a request");
        let done = request.messages.iter().skip(at).map(|message| message.results.len()).sum::<usize>();
        match (&*request.messages[at].text, fetches.get(done)) {
            ("first", _) if done == 0 => Reply::call("plan_propose", first.clone()),
            ("second", _) if done == 0 => Reply::call("plan_propose", second.clone()),
            (message, Some(url)) if message.starts_with("read") => {
                Reply::call("web_fetch", json!({ "url": url }))
            }
            _ => Reply::text("Done."),
        }
    };
    let bench = Bench::new("openai", script);
    mirror.list_in(&bench);
    let asks = ["first", "second"].map(|message| {
        let proposed = bench.chat(message, &[]);
        assert_eq!(code(&proposed), WAITING, "{}", text(&proposed));
        let ask = bench.ask();
        let approved = bench.home.run(&["approvals", "approve", &ask, "--yes"]);
        assert_eq!(code(&approved), 0, "{}", text(&approved));
        ask
    });
    let read = bench.chat(&format!("read {own}"), &[]);
    assert_eq!(code(&read), 0, "nobody is asked: {}", text(&read));
    assert_eq!(mirror.asked(), ["GET /own HTTP/1.1", "GET /exact HTTP/1.1"]);
    let intents = bench.events("intent");
    let newest = intents.iter().find(|row| row["payload"]["action"]["kind"] == "fetch").expect("a fetch");
    assert_eq!(newest["payload"]["approval"], json!(asks[0]), "{newest}");
}

/// Revoking the key of a plan ends the plan and kills what runs under it.
#[test]
fn needs_userns_what_runs_under_a_plan_is_killed_with_its_key() {
    let word = super::engine::unique_word();
    let slow = json!({ "argv": ["sleep", word], "hosts": ["unlisted.example"] });
    let (desk, _) = Desk::approved(bench(), &json!([{ "tool": "shell_exec", "arguments": slow }]));
    let key = desk.in_force()[0]["key"].as_str().expect("a key").to_owned();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| desk.more("shell_exec", &slow));
        while !super::engine::runs(word) {
            assert!(!running.is_finished(), "it runs for ever");
            std::thread::yield_now();
        }
        let revoked = desk.bench.home.run(&["keys", "revoke", &key, "--reason", "enough"]);
        assert_eq!(code(&revoked), 0, "{}", text(&revoked));
        running.join().expect("ends");
    });
    assert!(!super::engine::runs(word));
    assert_eq!(desk.in_force(), [] as [Value; 0]);
    desk.verify();
}

/// The key of a plan ends with its session: whoever approved the plan has approved nothing that outlives it.
#[test]
fn needs_userns_a_plan_ends_with_its_session() {
    let steps = json!([{ "tool": "shell_exec", "arguments": reaching("hello"), "times": 2 }]);
    let (desk, _) = Desk::approved(bench(), &steps);
    let key = desk.in_force()[0]["key"].clone();
    let ended = || {
        let rows = desk.bench.events("keyed").into_iter();
        let of_plan = |row: &Value| row["payload"]["change"] == "revoked" && row["payload"]["role"] == "plan";
        rows.filter(of_plan).map(|row| row["payload"]["key"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(ended(), [] as [Value; 0]);
    let mut link = Link::open(&desk.bench.home).expect("connects");
    link.call("sessions.close", json!({ "session": desk.session })).expect("closed");
    assert_eq!((ended(), desk.in_force()), (vec![key], Vec::new()));
    assert_eq!(link.call("keys.list", json!({})).expect("answered")["tasks"], json!([]));
    desk.verify();
}

/// Where only what is planned is done: a request without a plan is refused with the way to get one; with one, it is done, and
/// a file is written with the text of the moment.
///
/// Rows: SIL-001
#[test]
fn needs_userns_planned_execution_does_what_an_approved_plan_names_and_nothing_else() {
    let mut bench = bench();
    bench.home = bench.home.with("WRIT_EXECUTION", "planned");
    let write = |path: &str, content: &str| json!({ "path": path, "content": content });
    let steps = json!([
        { "tool": "shell_exec", "arguments": { "argv": ["cat", "a.txt"] } },
        { "tool": "file_write", "arguments": write("a.txt", ""), "times": 2 },
    ]);
    let (desk, _) = Desk::approved(bench, &steps);
    assert_eq!(desk.more("file_write", &write("b.txt", "no")), DENIED);
    let denied = desk.bench.events("denied");
    assert_eq!(denied.last().expect("one")["payload"]["reason"], "plan", "{denied:?}");
    let told = desk.bench.requests().concat();
    assert!(told.contains("plan_propose"), "the model is told what to do");
    let code = desk.more("file_write", &write("a.txt", "hello\n"));
    assert_eq!(code, WAITING, "it is written; what it brings into the project is asked about");
    let run = json!({ "argv": ["cat", "a.txt"] });
    desk.more("shell_exec", &run);
    assert_eq!(desk.bench.events("denied").len(), denied.len(), "both were in the plan");
    desk.more("shell_exec", &run);
    assert_eq!(desk.bench.events("denied").len(), denied.len() + 1, "once was planned");
    desk.verify();
}

/// What is no plan, or has a step that is refused by itself, is not asked about.
#[test]
fn needs_userns_a_plan_with_a_step_that_is_refused_is_refused() {
    let bench = bench();
    let bad = [
        json!([{ "tool": "plan_propose", "arguments": plan(&json!([])) }]),
        json!([{ "tool": "shell_exec", "arguments": { "argv": ["true"] }, "free": "content" }]),
        json!([{ "tool": "no_such_tool", "arguments": {} }]),
        json!([{ "tool": "shell_exec", "arguments": { "argv": ["true"] }, "times": 0 }]),
        json!([{ "tool": "web_fetch", "arguments": { "url": "http://169.254.169.254/" } }]),
        json!([]),
    ];
    for steps in bad {
        let said = bench.chat(&call_text("plan_propose", &plan(&steps)), &[]);
        assert_ne!(code(&said), WAITING, "{steps}: {}", text(&said));
    }
    assert_eq!(bench.count("planned"), 0);
}

/// One yes to a plan is good for many requests, so the limits of a minute hold for its steps; a yes to one request by itself
/// is not refused for them.
#[test]
fn needs_userns_the_rate_of_requests_holds_for_the_steps_of_a_plan() {
    let mirror = Mirror::start();
    let post = json!({ "method": "POST", "url": mirror.url("depot", "/post"), "body": "x" });
    let bench = bench();
    mirror.list_in(&bench);
    let config = bench.home.root().join("config.toml");
    let listed = std::fs::read_to_string(&config).expect("reads");
    std::fs::write(&config, format!("{listed}\n[egress.limits]\nrequests_per_minute = 2\n"))
        .expect("written");
    let steps = json!([{ "tool": "web_request", "arguments": post, "times": 3 }]);
    let (desk, _) = Desk::approved(bench, &steps);
    for _ in 0..3 {
        desk.more("web_request", &post);
    }
    assert_eq!(mirror.asked().len(), 2, "the third came too soon");
    let said = desk.bench.requests().pop().expect("a request");
    assert!(said.contains("2 requests a minute are the limit"), "{said}");
}
