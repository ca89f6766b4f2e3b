//! The monthly review of the tools of servers: its time, its findings, and the message to the owner.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use writ_runtime::engine::Answer;
use writ_runtime::home_files::{HomeFileFuture, HomeFiles, ToolListText};
use writ_runtime::outbox::{Delivery, OwnerMessage};
use writ_runtime::servers::{Server, ServerSource};
use writ_runtime::services::EngineParts;
use writ_store::batch::{Batch, Op};
use writ_store::tools::ToolOp;
use writ_testkit::model_server::{ParsedRequest, Reply};
use writ_types::credential::Reference;
use writ_types::entry::Decision;
use writ_types::error::{Exit, Report};
use writ_types::id::AskId;
use writ_types::taint::Taint;
use writ_types::unit::Timestamp;

use crate::harness::{BEGIN, OWNER, TestEngine};
use crate::jobs::{job, until_run};
use crate::outbox::Forwards;
use crate::work::approve;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The name of the job.
const REVIEW: &str = "tools.review";

/// 1 October 2001 at four: the first review after [`BEGIN`], which is on 9 September.
const OCTOBER: Timestamp = Timestamp::from_millis(1_001_908_800_000);

/// A home with one server.
#[derive(Debug)]
pub(crate) struct OneServer(pub(crate) Vec<(&'static str, &'static str)>);

impl ServerSource for OneServer {
    fn load(&self) -> Result<Vec<Server>, Report> {
        let spec = json!({ "command": "never-started" });
        let mut server = Server {
            name: "desk".parse().expect("a name"),
            spec: serde_json::from_value(spec).expect("settings"),
            pins: Default::default(),
        };
        for (name, description) in &self.0 {
            let tool = json!({ "name": name, "description": description, "schema": { "type": "object" } });
            server.pins.tools.insert((*name).to_owned(), serde_json::from_value(tool).expect("a tool"));
        }
        Ok(vec![server])
    }

    fn secret(&self, name: &Reference) -> Result<SecretString, Report> {
        Err(Report::new(Exit::Config, "mcp.secret", format!("there is no secret '{name}'")))
    }
}

fn engine(tools: Vec<(&'static str, &'static str)>) -> (TestEngine, mpsc::Receiver<Delivery>) {
    let (sender, deliveries) = mpsc::channel(16);
    let engine = TestEngine::with(
        |parts| {
            parts.channels.push(Arc::new(Forwards(sender)));
            if !tools.is_empty() {
                parts.servers = Arc::new(OneServer(tools));
            }
        },
        |_| |_: &ParsedRequest| Reply::text("Yes."),
    );
    (engine, deliveries)
}

fn ran(tool: &str, at: Timestamp, took_ms: u64, failed: bool) -> Op {
    Op::Tools(ToolOp::Ran { tool: tool.to_owned(), at, took_ms, failed })
}

/// The text of the next report.
async fn report(deliveries: &mut mpsc::Receiver<Delivery>) -> String {
    loop {
        let message = deliveries.recv().await.expect("a delivery").message;
        if let OwnerMessage::Report { title, text, taint } = message {
            assert_eq!((title.as_str(), taint), ("Review of tools", Taint::External));
            return text;
        }
        // What was found is asked about, too.
        assert!(matches!(message, OwnerMessage::ApprovalRequest { .. }), "{message:?}");
    }
}

/// On the first of the month at four, and not before, all tools of servers are reviewed by their counters, and the owner is sent every
/// group. Nothing changes without an answer: all tools are offered as before.
///
/// Rows: WIN-336 (in part: on the first of the month, over all tools that other programs offer)
#[test]
fn on_the_first_of_the_month_the_tools_are_reviewed_and_the_owner_reads_each_group() {
    let (engine, mut deliveries) = engine(vec![
        ("weather", "Fetch the weather forecast of a city."),
        ("forecast", "Fetch the weather forecast for a city"),
        ("mail", "Sorts letters by their sender."),
        ("old", "Counts the pigeons on the roof."),
    ]);
    engine.runtime.block_on(async {
        assert_eq!(job(&engine, REVIEW).await.next_run, Some(OCTOBER.to_string()));
        let recent = OCTOBER.minus_duration(DAY);
        let runs = [
            ran("desk__old", OCTOBER.minus_duration(31 * DAY), 5, false),
            ran("desk__weather", recent, 10_001, false),
            ran("desk__forecast", recent, 10_000, false),
            ran("desk__mail", recent, 5, true),
            ran("removed__tool", recent, 5, true),
        ];
        engine.store.commit(Batch::relaxed(runs.to_vec())).await.expect("written");
        engine.clock.go_on(OCTOBER.time_since(BEGIN) - Duration::from_secs(1));
        until_run(&engine, "asks.expire", engine.clock.now()).await;
        assert_eq!(job(&engine, REVIEW).await.last_run, None, "not before its time");
        engine.clock.go_on(Duration::from_secs(1));
        assert_eq!(until_run(&engine, REVIEW, OCTOBER).await.last_result, "ok");
        let expected = [
            "Unused for 30 days: desk__old",
            "Failing (fewer than 70 % of the runs succeed): desk__mail",
            "Slow (more than 10 s on average): desk__weather",
            "Alike: desk__forecast and desk__weather",
        ];
        let text = report(&mut deliveries).await;
        assert_eq!(text.lines().take(4).collect::<Vec<_>>(), expected);
        let november = "2001-11-01T04:00:00.000Z";
        assert_eq!(job(&engine, REVIEW).await.next_run.as_deref(), Some(november));
        let review = engine.call(REVIEW, json!({})).await.expect("reviewed");
        let names: Vec<&Value> =
            review["tools"].as_array().expect("a list").iter().map(|tool| &tool["tool"]).collect();
        assert_eq!(names, ["desk__forecast", "desk__mail", "desk__old", "desk__weather"], "all are there");
    });
    engine.end();
}

/// The list of the tools that are not offered, as a file would have it.
#[derive(Clone, Debug, Default)]
struct ListFile(Arc<Mutex<(String, Vec<String>)>>);

impl HomeFiles for ListFile {
    fn write_profile<'a>(&'a self, _: &'a str) -> HomeFileFuture<'a, Option<String>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn write_tool_list<'a>(&'a self, list: ToolListText<'a>) -> HomeFileFuture<'a, Option<String>> {
        let mut file = self.0.lock().expect("whole");
        file.0 = list.text.to_owned();
        file.1.push(list.subject.to_owned());
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// One server, with the list of the tools that are set aside.
#[derive(Debug)]
struct WithList(OneServer, ListFile);

impl ServerSource for WithList {
    fn load(&self) -> Result<Vec<Server>, Report> {
        self.0.load()
    }

    fn secret(&self, name: &Reference) -> Result<SecretString, Report> {
        self.0.secret(name)
    }

    fn set_aside(&self) -> Result<BTreeSet<String>, Report> {
        let file = self.1.0.lock().expect("whole");
        let quoted = file.0.lines().filter_map(|line| line.trim().strip_prefix('"')?.strip_suffix("\","));
        Ok(quoted.map(str::to_owned).collect())
    }
}

/// The names of all tools of servers that a review sees.
async fn reviewed(engine: &TestEngine) -> Vec<String> {
    let review = engine.call(REVIEW, json!({})).await.expect("reviewed");
    let tools = review["tools"].as_array().expect("a list").iter();
    tools.map(|tool| tool["tool"].as_str().expect("a name").to_owned()).collect()
}

/// Unused and failing tools are asked about in a session of its own. While nobody answers, after a no, and after a yes that is not signed
/// well enough for a change of the agent itself, nothing changes.
///
/// Rows: WIN-342 (in part: what is asked, and that nothing changes without a signed yes)
#[test]
fn a_clean_up_is_asked_about_in_a_session_of_its_own_and_changes_nothing_by_itself() {
    let all = ["desk__mail", "desk__old", "desk__weather"];
    for answer in [None, Some(Decision::Deny), Some(Decision::Approve)] {
        let (file, (sender, mut deliveries)) = (ListFile::default(), mpsc::channel(16));
        let (source, files) = (file.clone(), file.clone());
        let change = move |parts: &mut EngineParts| {
            let tools = vec![
                ("weather", "Fetch the weather forecast of a city."),
                ("mail", "Sorts letters by their sender."),
                ("old", "Counts the pigeons on the roof."),
            ];
            parts.channels.push(Arc::new(Forwards(sender)));
            parts.servers = Arc::new(WithList(OneServer(tools), source));
            parts.home_files = Arc::new(files);
        };
        let engine = TestEngine::with(change, |_| |_: &ParsedRequest| Reply::text("Yes."));
        engine.runtime.block_on(async {
            let recent = OCTOBER.minus_duration(DAY);
            let runs = [
                ran("desk__old", OCTOBER.minus_duration(31 * DAY), 5, false),
                ran("desk__weather", recent, 5, false),
                ran("desk__mail", recent, 5, true),
            ];
            engine.store.commit(Batch::relaxed(runs.to_vec())).await.expect("written");
            assert_eq!(engine.say(None, "hello").await.0, Exit::Done);
            engine.clock.go_on(OCTOBER.time_since(BEGIN));
            until_run(&engine, REVIEW, OCTOBER).await;
            let (mut text, mut asks) = (String::new(), Vec::new());
            while text.is_empty() {
                let message = deliveries.recv().await.expect("a delivery").message;
                if let OwnerMessage::Report { text: report, .. } = message {
                    text = report;
                } else if let OwnerMessage::ApprovalRequest { ask, .. } = message {
                    asks.push(ask);
                }
            }
            let listed = engine.call("approvals.list", json!({})).await.expect("a list");
            let [card] = listed["asks"].as_array().expect("asks").as_slice() else { panic!("{listed}") };
            let ask: AskId = card["ask_id"].as_str().expect("an id").parse().expect("an id");
            assert!(text.contains("2 of them can be set aside") && text.contains(ask.as_str()), "{text}");
            assert!(asks.iter().all(|sent| *sent == ask), "{asks:?}");
            let shown = card["shown"].as_str().expect("a text");
            assert!(shown.contains("desk__mail") && shown.contains("desk__old"), "{shown}");
            assert!(!shown.contains("desk__weather"), "{shown}");
            assert!(card["session"].as_str().is_some());
            let sessions = engine.call("sessions.list", json!({})).await.expect("sessions");
            assert!(sessions["sessions"].as_array().is_some_and(|all| all.len() == 2), "its own: {sessions}");
            assert_eq!(reviewed(&engine).await, all, "an open question changes nothing");
            match answer {
                None => engine.clock.go_on(2 * DAY),
                Some(decision) => {
                    let answer = Answer { decision, ..approve() };
                    let answered = engine.engine.answer(OWNER, ask.clone(), answer).await;
                    let code = answered.err().map(|report| report.code);
                    let refused = (decision == Decision::Approve).then(|| "approval.invalid".to_owned());
                    assert_eq!(code, refused, "{decision:?}");
                }
            }
            assert_eq!(reviewed(&engine).await, all);
            assert_eq!(file.0.lock().expect("whole").clone(), Default::default());
        });
        engine.end();
    }
}

/// Rows: WIN-341 (in part: by the outbox, to a channel of the test)
#[test]
fn the_owner_is_sent_the_review_also_where_there_are_no_tools() {
    let (engine, mut deliveries) = engine(Vec::new());
    engine.runtime.block_on(async {
        engine.clock.go_on(OCTOBER.time_since(BEGIN));
        until_run(&engine, REVIEW, OCTOBER).await;
        assert_eq!(report(&mut deliveries).await, "There are no tools of servers to review.");
    });
    engine.end();
    let (engine, mut deliveries) = self::engine(vec![("weather", "Fetch the weather forecast of a city.")]);
    engine.runtime.block_on(async {
        engine.clock.go_on(OCTOBER.time_since(BEGIN));
        until_run(&engine, REVIEW, OCTOBER).await;
        let text = report(&mut deliveries).await;
        for group in ["Unused", "Failing", "Slow", "Alike"] {
            assert!(text.contains(group), "{group}: {text}");
        }
    });
    engine.end();
}
