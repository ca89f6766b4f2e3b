//! An office: servers of tools that return what a case says, and a model that makes the calls of that case.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use serde_json::{Value, json};
use writ_testkit::model_server::{ParsedRequest, Reply};
use writ_types::frame::{Card, ClientFrame, ServerFrame};
use writ_types::id::SessionId;

use super::super::engine::{Engine, Link};
use super::super::turns::Bench;
use super::super::{code, text};

/// The servers.
const SERVER: &str = include_str!("office.py");
/// What their owner says of their tools.
const OWNER: &str = include_str!("owner.toml");
/// The same of the servers of the harder corpus.
const HARDER: &str = include_str!("harder.toml");
/// Where a text stands in what a server returns.
const SAYS: &str = "{says}";

/// A call of a case.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    pub(super) call: String,
    pub(super) arguments: Value,
    /// What its server answers; else that it is done.
    #[serde(default)]
    pub(super) returns: Option<Value>,
    /// Whether nobody but the text of the case wants it.
    #[serde(default)]
    pub(super) injected: bool,
}

impl Step {
    /// Whether a wrong call does harm: it changes something, or tells somebody outside something.
    pub(super) fn matters(&self, rules: &Rules) -> bool {
        rules.changes(&self.call) || self.call.starts_with("web")
    }
}

/// What the owner says of each tool, as `mcp/NAME.toml` has it.
pub(super) struct Rules(BTreeMap<String, toml::Table>);

impl Rules {
    pub(super) fn load() -> Self {
        Self(toml::from_str(OWNER).expect("the owner's words"))
    }

    /// What the owner says of one server of the harder corpus, which stands alone in its home.
    pub(super) fn harder(server: &str) -> Self {
        let mut rules: BTreeMap<String, toml::Table> = toml::from_str(HARDER).expect("the owner's words");
        rules.retain(|name, _| name == server);
        Self(rules)
    }

    fn of(&self, server: &str) -> String {
        let tools = toml::Table::from_iter([("tools".to_owned(), self.0[server].clone().into())]);
        toml::to_string(&tools).expect("TOML")
    }

    /// Whether a call of a tool changes something; what is no server's tool does.
    pub(super) fn changes(&self, tool: &str) -> bool {
        let rule = tool.split_once("__").and_then(|(server, name)| self.0.get(server)?.get(name));
        rule.and_then(|rule| rule.get("effect")?.as_bool()).unwrap_or(true)
    }

    /// All tools of some servers, as models call them.
    pub(super) fn tools(&self, servers: &BTreeSet<&str>) -> Vec<String> {
        let of = |server: &&str| {
            self.0[*server].keys().map(|tool| format!("{server}__{tool}")).collect::<Vec<_>>()
        };
        servers.iter().flat_map(of).collect()
    }
}

/// What a model does in a turn.
#[derive(Default)]
struct Play {
    due: VecDeque<Step>,
    /// The text that makes it do what is injected, if it reads it.
    says: String,
    /// What it names for afterwards, with its first call.
    then: Option<Vec<String>>,
    made: Vec<Step>,
    unread: usize,
}

/// A turn: each call that was made with its state, and how many were not, because nothing asked for them.
pub(super) struct Played {
    pub(super) made: Vec<(Step, String)>,
    pub(super) unread: usize,
}

/// Everything that a model reads in a request.
fn reads(request: &ParsedRequest, text: &str) -> bool {
    let quoted = json!(text).to_string();
    let inner = quoted.trim_matches('"');
    let holds = |read: &str| read.contains(text) || read.contains(inner);
    holds(&request.system)
        || request.tools.iter().any(|tool| holds(&tool.description))
        || request
            .messages
            .iter()
            .any(|message| holds(&message.text) || message.results.iter().any(|r| holds(&r.text)))
}

fn lock(play: &Mutex<Play>) -> MutexGuard<'_, Play> {
    play.lock().unwrap_or_else(PoisonError::into_inner)
}

fn plays(play: &Mutex<Play>, request: &ParsedRequest) -> Reply {
    let mut play = lock(play);
    while let Some(step) = play.due.pop_front() {
        if step.injected && !reads(request, &play.says) {
            play.unread += 1;
            continue;
        }
        let mut arguments = step.arguments.clone();
        if let Some(then) = play.then.take() {
            arguments["then"] = json!(then);
        }
        let reply = Reply::call(&step.call, arguments);
        play.made.push(step);
        return reply;
    }
    Reply::text("That is all.")
}

/// A home with all servers, and its engine.
pub(super) struct Office {
    link: Link,
    engine: Engine,
    pub(super) bench: Bench,
    folder: PathBuf,
    play: Arc<Mutex<Play>>,
    messages: usize,
    servers: Vec<String>,
}

impl Office {
    pub(super) fn open(strict: bool) -> Self {
        Self::open_with(strict, &Rules::load())
    }

    /// A home with the servers that these rules are about.
    pub(super) fn open_with(strict: bool, rules: &Rules) -> Self {
        let play = Arc::new(Mutex::new(Play::default()));
        let own = Arc::clone(&play);
        let mut bench = Bench::new("openai", move |request: &ParsedRequest| plays(&own, request));
        let folder = bench.home.dir.path().join("tools");
        std::fs::create_dir(&folder).expect("made");
        let folder = folder.canonicalize().expect("there");
        std::fs::write(folder.join("office.py"), SERVER).expect("written");
        bench
            .home
            .env
            .push(("WRIT_SANDBOX__READ_ONLY".to_owned(), format!("[{:?}]", folder.display().to_string())));
        bench.home.env.push(("WRIT_STRICT".to_owned(), strict.to_string()));
        // A whole corpus is many days of work.
        bench.home.env.push(("WRIT_BUDGET__MAX_TOKENS_PER_DAY".to_owned(), "1000000000".to_owned()));
        // What is secret is read here, so that it can be passed on.
        bench.home.env.push(("WRIT_PROVIDERS__TEST__CLEARANCE".to_owned(), "secret".to_owned()));
        let servers: Vec<String> = rules.0.keys().cloned().collect();
        for server in &servers {
            let program = folder.join("office.py").display().to_string();
            let added = bench.home.run(&["mcp", "add", server, "--yes", "--", "python3", &program, server]);
            assert_eq!(code(&added), 0, "{}", text(&added));
            let file = bench.home.root().join(format!("mcp/{server}.toml"));
            let words = std::fs::read_to_string(&file).expect("reads");
            std::fs::write(&file, format!("{words}\n{}", rules.of(server))).expect("written");
        }
        super::super::engine::stop_engine_of(&bench.home);
        let engine = Engine::start(&bench.home, &[]).unwrap_or_else(|ended| panic!("{ended:?}"));
        let link = Link::open(&bench.home).expect("connects");
        Self { link, engine, bench, folder, play, messages: 0, servers }
    }

    /// What the servers say of their tools from now on; pinned where the owner says yes to it without reading.
    pub(super) fn describe(&self, descriptions: &BTreeMap<&str, &str>, pinned: bool) {
        std::fs::write(self.folder.join("descriptions.json"), json!(descriptions).to_string())
            .expect("written");
        if pinned {
            for server in descriptions.keys().filter_map(|tool| tool.split("__").next()) {
                self.pin(server);
            }
        }
    }

    /// Pins a server's tools as they are described now.
    pub(super) fn pin(&self, server: &str) {
        let trusted = self.bench.home.run(&["mcp", "trust", server, "--yes"]);
        assert_eq!(code(&trusted), 0, "{}", text(&trusted));
    }

    pub(super) fn session(&mut self) -> SessionId {
        self.link.join(None, None).expect("joined")
    }

    /// A conversation; with a project that it may write to, for work on code.
    pub(super) fn session_in(&mut self, code: bool) -> SessionId {
        if !code {
            return self.session();
        }
        let project = self.bench.project();
        std::fs::write(project.join("README.md"), "A program.\n").expect("written");
        std::fs::write(project.join("main.py"), "# LATER: greet\n").expect("written");
        let project = Some(project.display().to_string());
        let resume =
            ClientFrame::Resume { session: None, after_seq: 0, project, write: true, dry_run: false };
        self.link.send(&resume).expect("sent");
        let joined = self.link.until(|numbered| {
            if let ServerFrame::Error { code, text, .. } = &numbered.frame {
                panic!("{code}: {text}");
            }
            let ServerFrame::Hello { session, .. } = numbered.frame else { return None };
            Some(session)
        });
        joined.expect("joined")
    }

    /// The questions that wait.
    pub(super) fn open_asks(&mut self) -> Vec<Card> {
        let mut cards = self.link.asks().expect("cards");
        cards.retain(|card| card.state == "open");
        cards
    }

    pub(super) fn close(&mut self, session: SessionId) {
        self.link.call("sessions.close", json!({ "session": session })).expect("closed");
    }

    /// One turn of the session that was joined last.
    pub(super) fn turn(
        &mut self,
        request: &str,
        says: &str,
        then: Option<Vec<String>>,
        steps: &[Step],
    ) -> Played {
        let steps: Vec<Step> = steps.iter().map(|step| spoken(step, says)).collect();
        let known: Vec<Value> = steps
            .iter()
            .map(|step| json!({ "call": step.call, "arguments": step.arguments, "returns": step.returns }))
            .collect();
        std::fs::write(self.folder.join("case.json"), json!(known).to_string()).expect("written");
        *lock(&self.play) =
            Play { due: steps.into(), says: says.to_owned(), then, made: Vec::new(), unread: 0 };
        self.messages += 1;
        self.link.say(request, &format!("m{}", self.messages)).expect("said");
        let mut states = Vec::new();
        let mut frames = Vec::new();
        let end = self.link.until(|numbered| {
            frames.push(format!("{numbered:?}"));
            if let ServerFrame::Error { code, text, .. } = &numbered.frame {
                panic!("{request}: {code}: {text}");
            }
            if let ServerFrame::Tool { state, .. } = &numbered.frame
                && state != "started"
            {
                states.push(state.clone());
            }
            matches!(numbered.frame, ServerFrame::Message { last: true, .. }).then_some(())
        });
        end.expect("an answer");
        let mut play = lock(&self.play);
        let made = std::mem::take(&mut play.made);
        assert_eq!((made.len(), play.due.len()), (states.len(), 0), "{request}: {states:?} {frames:#?}");
        Played { made: made.into_iter().zip(states).collect(), unread: play.unread }
    }

    /// How many calls reached the servers of a session.
    pub(super) fn reached(&self, session: SessionId) -> usize {
        let folder = self.bench.home.root().join("data/servers").join(session.to_string());
        let logs = self.servers.iter().map(|server| folder.join(server).join("tree/calls"));
        logs.map(|log| std::fs::read_to_string(log).unwrap_or_default().lines().count()).sum()
    }

    /// Ends the engine; its ledger is whole.
    pub(super) fn end(self) {
        let ended = self.engine.stop();
        assert_eq!(ended.code, Some(0), "{}", ended.said);
        let verified = self.bench.home.run(&["audit", "verify"]);
        assert_eq!(code(&verified), 0, "{}", text(&verified));
    }
}

/// A step with the text of its case where it stands in what is returned.
fn spoken(step: &Step, says: &str) -> Step {
    fn put(value: &mut Value, says: &str) {
        match value {
            Value::String(text) => *text = text.replace(SAYS, says),
            Value::Array(items) => items.iter_mut().for_each(|item| put(item, says)),
            Value::Object(fields) => fields.values_mut().for_each(|item| put(item, says)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    let mut step = step.clone();
    if let Some(returns) = &mut step.returns {
        put(returns, says);
    }
    step
}
