//! The digest of the memory: what the observer's model is asked, what of its answer stands in every context, and what stays where
//! it is no profile.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use writ_agent::event::{SystemSource, SystemText};
use writ_models::ModelRole;
use writ_runtime::home_files::{HomeFileFuture, HomeFiles};
use writ_runtime::outbox::OwnerMessage;
use writ_runtime::services::EngineParts;
use writ_store::batch::{Batch, NewMemory, Op};
use writ_store::memory::{MemoryStatus, MemoryTraits};
use writ_testkit::model_server::{ParsedRequest, Reply};
use writ_types::action::{MemoryKind, MemoryTrust, Remember};
use writ_types::chat::estimate_tokens;
use writ_types::error::{Exit, Report};
use writ_types::id::MemoryId;
use writ_types::taint::{Label, Taint};
use writ_types::unit::Timestamp;

use crate::harness::{BEGIN, TestEngine};
use crate::jobs::{job, until_run};
use crate::outbox::Forwards;

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The first Sunday at four after [`BEGIN`], which is on a Sunday at 01:46:40.
const SUNDAY: Timestamp = Timestamp::from_millis(1_000_008_000_000);

/// The name of the job.
const DIGEST: &str = "memory.digest";

/// The files of a home, as they were written.
#[derive(Debug, Default)]
struct WrittenFiles(Mutex<Vec<String>>);

impl WrittenFiles {
    fn texts(&self) -> Vec<String> {
        self.0.lock().expect("no panic").clone()
    }
}

impl HomeFiles for WrittenFiles {
    fn write_profile<'a>(&'a self, text: &'a str) -> HomeFileFuture<'a, Option<String>> {
        self.0.lock().expect("no panic").push(text.to_owned());
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// A home whose disk is full.
#[derive(Debug)]
struct FullDisk;

impl HomeFiles for FullDisk {
    fn write_profile<'a>(&'a self, _: &'a str) -> HomeFileFuture<'a, Option<String>> {
        let report = Report::new(Exit::Blocked, "memory.profile_file", "there is no space");
        Box::pin(std::future::ready(Err(report)))
    }
}

/// A profile that says one thing.
fn profile(identity: &str) -> String {
    format!(
        "## Identity\n{identity}\n## Work\n- builds boats\n## Preferences\n## Active Projects\n## Communication Style\n- brief"
    )
}

fn is_digest(request: &ParsedRequest) -> bool {
    request.system.contains("You maintain the profile of the person")
}

/// The engine with what its model was asked.
struct DigestEngine {
    engine: TestEngine,
    asked: Arc<Mutex<Vec<ParsedRequest>>>,
    files: Arc<WrittenFiles>,
}

impl DigestEngine {
    /// Starts an engine whose observer gives these answers, the last one again and again.
    fn start(answers: Vec<Value>) -> Self {
        Self::start_with(answers, |_| {})
    }

    fn start_with(answers: Vec<Value>, change: impl FnOnce(&mut EngineParts)) -> Self {
        let (asked, files) = (Arc::new(Mutex::new(Vec::new())), Arc::new(WrittenFiles::default()));
        let (seen, written) = (Arc::clone(&asked), Arc::clone(&files));
        let engine = TestEngine::with_roles_and(
            &[(ModelRole::Observer, "small")],
            |parts| {
                parts.home_files = written;
                change(parts);
            },
            move |_| {
                let mut answers = answers.into_iter().peekable();
                move |request: &ParsedRequest| {
                    seen.lock().expect("no panic").push(request.clone());
                    if !is_digest(request) {
                        return Reply::text("Yes.");
                    }
                    let answer = answers.next().expect("an answer for each request");
                    Reply::text(answer.as_str().unwrap_or(&answer.to_string()))
                }
            },
        );
        Self { engine, asked, files }
    }

    async fn add(&self, text: &str) -> String {
        let added = self.engine.call("memory.add", json!({ "text": text })).await.expect("stored");
        added["id"].as_str().expect("an id").to_owned()
    }

    /// Stores a memory as it is, past what the owner's command does.
    async fn store(&self, n: u128, text: &str, change: impl FnOnce(&mut Remember, &mut MemoryTraits)) {
        let mut item = Remember {
            text: text.to_owned(),
            memory_kind: MemoryKind::Fact,
            trust: MemoryTrust::Working,
            taint: Taint::Owner,
            secret: false,
            session: None,
        };
        let mut traits = MemoryTraits::default();
        change(&mut item, &mut traits);
        let memory = NewMemory { id: MemoryId::from_parts(BEGIN, n), item, at: BEGIN, traits };
        let batch = Batch::relaxed(vec![Op::Remember(Box::new(memory))]);
        self.engine.store.commit(batch).await.expect("written");
    }

    /// The requests of digests.
    fn digests(&self) -> Vec<ParsedRequest> {
        self.asked.lock().expect("no panic").iter().filter(|request| is_digest(request)).cloned().collect()
    }

    /// What a turn's model reads before the message.
    async fn context(&self, id: &str) -> String {
        self.engine.send(None, id, "hello").await;
        let last = self.asked.lock().expect("no panic").last().cloned().expect("a request");
        assert!(!is_digest(&last) && last.model == "scripted", "{}", last.model);
        last.raw.to_string()
    }

    async fn digest(&self) -> Result<Value, Report> {
        self.engine.call(DIGEST, json!({})).await
    }

    async fn profile(&self) -> Value {
        self.engine.call("memory.profile", json!({})).await.expect("shown")
    }
}

fn answer(identity: &str) -> Value {
    json!({ "profile": profile(identity) })
}

/// On Sunday at four, and not before, the observer's model reads the active memories, the current profile and the rules, with nothing
/// that the redactor masks. The new profile is written, is below its bounds, and stands in the next context, before the
/// conversation. The main model is not asked.
///
/// Rows: WIN-328 WIN-335
#[test]
fn on_sunday_the_observer_distils_the_memories_into_the_profile_of_every_context() {
    let mut two = answer("Ann of Kiel");
    two["contradictions"] = json!([]);
    let home = DigestEngine::start(vec![answer("Ann"), two]);
    home.engine.runtime.block_on(async {
        home.add("The owner is called Ann").await;
        home.store(7, "The key is AKIAIOSFODNN7EXAMPLE", |item, _| {
            item.memory_kind = MemoryKind::Procedure;
        })
        .await;
        home.store(8, "waits for an answer", |_, traits| traits.status = MemoryStatus::Pending).await;
        home.store(9, "was put aside", |_, traits| traits.status = MemoryStatus::Archived).await;
        assert_eq!(job(&home.engine, DIGEST).await.next_run, Some(SUNDAY.to_string()));
        home.engine.clock.go_on(SUNDAY.time_since(BEGIN) - Duration::from_secs(1));
        until_run(&home.engine, "asks.expire", home.engine.clock.now()).await;
        assert_eq!(home.asked.lock().expect("no panic").len(), 0, "not before its time");
        home.engine.clock.go_on(Duration::from_secs(1));
        let row = until_run(&home.engine, DIGEST, SUNDAY).await;
        let next = SUNDAY.plus_duration(7 * DAY).to_string();
        assert_eq!((row.last_result.as_str(), row.next_run), ("ok", Some(next)));
        let asked = home.asked.lock().expect("no panic").clone();
        let [request] = &asked[..] else { panic!("one request, and none to another model") };
        for rule in [
            "At most 30 lines and well below 500 tokens",
            "Exactly these five headings in this order: ## Identity, ## Work, ## Preferences, ## Active Projects, \
             ## Communication Style.",
            "Only what is useful in every conversation",
            "Drop what is stale and what mattered only once",
            "the newer one wins; name the pair in \"contradictions\"",
        ] {
            assert!(request.system.contains(rule), "{rule}: {}", request.system);
        }
        let text = request.last_user_text();
        assert_eq!(request.model, "small");
        assert!(
            text.contains("Current profile:\n(none)") && text.contains("The owner is called Ann"),
            "{text}"
        );
        assert!(text.contains("procedure: The key is [masked") && !text.contains("AKIA"), "{text}");
        assert!(!text.contains("waits for an answer") && !text.contains("was put aside"), "{text}");
        assert_eq!(home.files.texts(), [profile("Ann")]);
        let context = home.context("one").await;
        assert!(
            context.contains("[profile of the owner]") && context.contains("## Identity\\nAnn\\n"),
            "{context}"
        );

        // The next one reads the profile, and what is new apart from the rest.
        home.add("Ann moved to Kiel").await;
        home.digest().await.expect("distilled");
        let text = home.digests().last().expect("a request").last_user_text().to_owned();
        let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
        let order = [
            place("Current profile:\n## Identity\nAnn\n"),
            place("Memories since the last digest:"),
            place("Ann moved to Kiel"),
            place("All other memories, in short:"),
            place("The owner is called Ann"),
        ];
        assert!(order.is_sorted(), "{text}");
        assert!(home.context("two").await.contains("Ann of Kiel"));
    });
    home.engine.end();
}

/// The profile stands behind the agent's own notes, within its limits. An answer that is empty, lacks a section or is too long is
/// none: the model is asked once more, then the old profile stays, in contexts and in the file. So it does where the file cannot be
/// written.
///
/// Rows: WIN-320 WIN-322 WIN-330
#[test]
fn what_is_no_profile_changes_nothing() {
    let long = profile(&"x".repeat(2_000));
    let lacking = profile("Ann").replace("## Work\n", "");
    let bad = ["".to_owned(), long, lacking].map(|text| json!({ "profile": text }));
    let twice = bad.iter().flat_map(|answer| [answer.clone(), answer.clone()]);
    let answers = std::iter::once(answer("Ann")).chain(twice).chain([json!("no JSON"), answer("Bea")]);
    let home = DigestEngine::start_with(answers.collect(), |parts| {
        let label = Label::new(Taint::Auth);
        let notes = SystemText { source: SystemSource::Notes, text: "Be brief.".to_owned(), label };
        parts.config.system.push(notes);
    });
    home.engine.runtime.block_on(async {
        home.add("The owner is called Ann").await;
        home.digest().await.expect("distilled");
        let written = home.profile().await;
        let file = home.files.texts().concat();
        assert!(estimate_tokens(&file).get() < 500 && file.lines().count() <= 30, "{file}");
        let context = home.context("first").await;
        let place = |part: &str| context.find(part).unwrap_or_else(|| panic!("{part}: {context}"));
        assert!(place("Be brief.") < place("[profile of the owner]"), "{context}");
        assert!(place("[profile of the owner]") < place("hello"), "{context}");
        let headings: Vec<&str> = home.files.0.lock().expect("no panic")[0]
            .lines()
            .filter_map(|line| line.strip_prefix("## "))
            .map(|name| {
                writ_memory::digest::SECTIONS.into_iter().find(|known| *known == name).expect("is known")
            })
            .collect();
        assert_eq!(headings, writ_memory::digest::SECTIONS);
        home.add("The owner builds boats").await;
        for (n, why) in ["is empty", "must be below", "exactly the headings"].into_iter().enumerate() {
            let refused = home.digest().await.expect_err("no profile");
            assert!(refused.code == DIGEST && refused.outside.contains(why), "{refused:?}");
            assert_eq!(home.digests().len(), 1 + 2 * (n + 1), "the model was asked once more");
            let again = home.digests().last().expect("a request").last_user_text().to_owned();
            assert!(again.contains("not of the form"), "{again}");
            assert_eq!(home.profile().await, written);
            assert_eq!(home.files.texts(), [profile("Ann")]);
        }
        assert!(home.context("one").await.contains("## Identity\\nAnn\\n"));
        home.digest().await.expect("the second answer is one");
        assert_eq!(home.files.texts(), [profile("Ann"), profile("Bea")]);
    });
    home.engine.end();
    let home = DigestEngine::start_with(vec![answer("Ann")], |parts| parts.home_files = Arc::new(FullDisk));
    home.engine.runtime.block_on(async {
        home.add("The owner is called Ann").await;
        assert_eq!(home.digest().await.expect_err("no space").code, "memory.profile_file");
        assert_eq!(home.profile().await, json!({ "profile": null, "report": null }));
        assert!(!home.context("one").await.contains("[profile of the owner]"));
    });
    home.engine.end();
}

/// Nothing that is external, secret or of one session comes into a profile, and one is trusted no more than the least trusted memory
/// that its writer has read, or the profile before it: neither is the answer of a turn that it stands in.
#[test]
fn a_profile_is_as_trusted_as_what_it_rests_on() {
    let home = DigestEngine::start(vec![answer("Ann"), answer("Ann B."), answer("Ann C.")]);
    home.engine.runtime.block_on(async {
        home.add("The owner is called Ann").await;
        home.store(7, "a page says: obey", |item, _| item.taint = Taint::External).await;
        home.store(8, "the diagnosis", |item, _| item.secret = true).await;
        assert_eq!(home.digest().await.expect("distilled")["profile"]["taint"], "owner");
        let text = home.digests()[0].last_user_text().to_owned();
        assert!(!text.contains("obey") && !text.contains("diagnosis"), "{text}");
        home.store(9, "Ann is brief, says Ben", |item, _| item.taint = Taint::Auth).await;
        assert_eq!(home.digest().await.expect("distilled")["profile"]["taint"], "auth");
        // Also when that memory is gone: the profile that was read has its words.
        let forgotten = MemoryId::from_parts(BEGIN, 9).to_string();
        home.engine.call("memory.forget", json!({ "id": forgotten })).await.expect("forgotten");
        assert_eq!(home.digest().await.expect("distilled")["profile"]["taint"], "auth");
        home.context("one").await;
        let replied = home.engine.facts("replied").pop();
        let Some(writ_types::entry::Fact::Replied { label, .. }) = replied else { panic!("{replied:?}") };
        assert_eq!(label.taint, Taint::Auth);
    });
    home.engine.end();
}

/// The same memories are not distilled twice, the same profile is not written twice, and the profile is no memory: without it all
/// of them are there, and it holds none that the model has left out.
///
/// Rows: WIN-323
#[test]
fn nothing_new_asks_no_model_and_a_cleared_profile_loses_no_memory() {
    let home = DigestEngine::start(vec![answer("Ann"), answer("Ann"), answer("Ann")]);
    home.engine.runtime.block_on(async {
        let outcome = |view: &Value| view["report"]["outcome"].as_str().expect("an outcome").to_owned();
        assert_eq!(outcome(&home.digest().await.expect("ends")), "nothing_remembered");
        for n in 0..300 {
            home.add(&format!("number {n} of many things")).await;
        }
        assert_eq!(outcome(&home.digest().await.expect("ends")), "written");
        assert_eq!(outcome(&home.digest().await.expect("ends")), "nothing_new");
        assert_eq!(home.digests().len(), 1);
        home.add("one more thing").await;
        assert_eq!(outcome(&home.digest().await.expect("ends")), "unchanged");
        assert_eq!((home.digests().len(), home.files.texts()), (2, vec![profile("Ann")]));
        let context = home.context("one").await;
        assert!(context.contains("## Identity\\nAnn\\n") && !context.contains("of many things"), "{context}");
        home.engine.call("memory.clear_profile", json!({})).await.expect("cleared");
        assert!(!home.context("two").await.contains("[profile of the owner]"));
        let stats = home.engine.call("memory.stats", json!({})).await.expect("counts");
        assert_eq!(stats["counts"][0]["count"], 301);
        assert_eq!(outcome(&home.digest().await.expect("ends")), "written");
    });
    home.engine.end();
}

/// Contradictions become questions, and suggestions a report; the owner is sent both. Nothing is deleted, and nothing is made of a
/// suggestion by itself.
///
/// Rows: WIN-333
#[test]
fn contradictions_and_suggestions_are_the_owners_to_decide() {
    let mut found = answer("Ann");
    found["contradictions"] = json!([{ "memories": [1, 2], "why": "two homes" }]);
    found["suggestions"] = json!([{ "becomes": "procedure", "memories": [3], "text": "how to release" }]);
    let (sender, mut deliveries) = mpsc::channel(16);
    let home = DigestEngine::start_with(vec![found], |parts| parts.channels.push(Arc::new(Forwards(sender))));
    home.engine.runtime.block_on(async {
        let old = home.add("Ann has her home in the city of Kiel").await;
        let new = home.add("Somewhere near Bonn is where she sleeps").await;
        let third = home.add("Releases are on Fridays after lunch").await;
        let view = home.digest().await.expect("distilled");
        assert_eq!(view["report"]["contradictions"], 1);
        let suggestion = json!({ "becomes": "procedure", "text": "how to release", "memories": [third] });
        assert_eq!(view["report"]["suggestions"], json!([suggestion]));
        let pending = home.engine.call("memory.pending", json!({})).await.expect("listed");
        let question = &pending["questions"][0];
        assert_eq!(
            (&question["id"], &question["other"]["id"], &question["reason"]),
            (&json!(new), &json!(old), &json!("two homes"))
        );
        let message = deliveries.recv().await.expect("a delivery").message;
        let OwnerMessage::Report { title, text, taint: Taint::Owner } = message else {
            panic!("{message:?}")
        };
        assert_eq!(title, "Digest of the memory");
        assert!(
            text.contains("contradict each other: 1") && text.contains("procedure: how to release"),
            "{text}"
        );
        let stats = home.engine.call("memory.stats", json!({})).await.expect("counts");
        assert_eq!(stats["counts"], json!([{ "status": "active", "kind": "fact", "count": 3 }]), "{stats}");
    });
    home.engine.end();
}

/// A digest that is switched off has a row without a next run.
#[test]
fn a_digest_that_is_off_does_not_run() {
    let off = |parts: &mut EngineParts| {
        parts.config.memory.config.digest = writ_types::calendar::Recurrence::Off;
    };
    let home = DigestEngine::start_with(Vec::new(), off);
    home.engine.runtime.block_on(async {
        home.add("The owner is called Ann").await;
        let row = job(&home.engine, DIGEST).await;
        assert_eq!((row.schedule.as_str(), row.next_run), ("off (UTC)", None));
        home.engine.clock.go_on(30 * DAY + HOUR);
        until_run(&home.engine, "asks.expire", home.engine.clock.now()).await;
        assert_eq!((home.digests().len(), job(&home.engine, DIGEST).await.last_run), (0, None));
    });
    home.engine.end();
}
