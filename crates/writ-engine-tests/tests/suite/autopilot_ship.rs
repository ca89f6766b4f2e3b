//! Merged work of the autopilot at a forge: a branch is pushed to a real repository, and a request is opened at a scripted forge, each time
//! by a person's yes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use secrecy::SecretString;
use writ_inspect::redact::KnownSecret;
use writ_pilot::pilots::OwnerFiles;
use writ_runtime::secret::SecretSource;
use writ_testbed::forge_server::{ForgeEntry, ForgeFault, ForgeServer};
use writ_testbed::raw_server::{RawAnswer, RawRequest, RawServer};
use writ_testkit::model_server::{ParsedRequest, Reply};
use writ_types::action::{Action, ForgeKind};
use writ_types::api::pilot::{PilotReport, PilotShip, PilotShipState};
use writ_types::credential::CredentialRef;
use writ_types::entry::Fact;
use writ_types::error::Report;
use writ_types::id::AskId;

use crate::autopilot::{PATIENCE, Scene, git};
use crate::autopilot_limits::{GATE, ONE_TASK, SHORT, coder, done, first_run, project, writes};
use crate::harness::{OWNER, TestEngine};
use crate::set_back::signed;

const TOKEN: &str = "tok-7f3a9c1e5b";
const MILESTONE: &str = "milestone/m1";
const BRANCH: &str = "writ/m1-a-library-of-sums";
const REPOSITORY: &str = "team/sums";

/// A home with one token.
#[derive(Debug)]
struct OneToken;

impl SecretSource for OneToken {
    fn known(&self) -> Result<Vec<KnownSecret>, Report> {
        Ok(vec![KnownSecret { name: "secret:forge".to_owned(), value: SecretString::from(TOKEN) }])
    }

    fn value(&self, secret: &CredentialRef) -> Result<Option<SecretString>, Report> {
        Ok((secret.to_string() == "secret:forge").then(|| SecretString::from(TOKEN)))
    }
}

/// A project with a remote in a folder of this machine, and a forge.
struct ShipScene {
    scene: Scene,
    forge: ForgeServer,
    remote: PathBuf,
    dir: tempfile::TempDir,
    _home: tempfile::TempDir,
}

fn right() -> impl FnMut(&ParsedRequest) -> Reply + Send + 'static {
    coder(ONE_TASK, |_, asked| if asked.has_results { done() } else { writes("add", "a + b") })
}

impl ShipScene {
    /// `more` are settings of the project's own.
    fn new(kind: ForgeKind, more: &str) -> Self {
        let dir = project("", &format!("{more}{GATE}"), SHORT);
        let home = tempfile::tempdir().expect("temp dir");
        let remote = home.path().join("sums.git");
        git(home.path(), &["init", "-q", "--bare", "-b", "main", "sums.git"]);
        // A hook of the other repository must not run on this machine.
        let hook = remote.join("hooks/pre-receive");
        std::fs::create_dir_all(hook.parent().expect("a parent")).expect("made");
        std::fs::write(&hook, "#!/bin/sh\ntouch hook-has-run\nexit 1\n").expect("written");
        make_executable(&hook);
        git(dir.path(), &["remote", "add", "origin", &remote.to_string_lossy()]);
        let engine = TestEngine::with(|parts| parts.secrets = Arc::new(OneToken), |_| right());
        let forge = engine.runtime.block_on(ForgeServer::start(kind, REPOSITORY, TOKEN)).expect("starts");
        let settings = home.path().join("pilot.toml");
        let text = format!(
            "[pilot.ship]\nforge = \"{}\"\napi = \"{}\"\ntoken = \"secret:forge\"\nrepository = \"{REPOSITORY}\"\n",
            kind.name(),
            forge.api()
        );
        std::fs::write(&settings, text).expect("written");
        let owner = OwnerFiles { settings: Some(settings), hidden_tests: None };
        let path = std::fs::canonicalize(dir.path()).expect("is there");
        let scene = Scene::with_owner_files(engine, path, owner);
        Self { scene, forge, remote, dir, _home: home }
    }

    async fn merge(&self) {
        let status = first_run(&self.scene).await;
        assert_eq!(status.state, "complete", "{status:#?}");
    }

    /// Waits until the request of a unit is in another state than these.
    async fn request_after(&self, unit: &str, states: &[PilotShipState]) -> PilotShip {
        let until = Instant::now() + PATIENCE;
        loop {
            let ship = self.scene.unit(unit).await.ship;
            if let Some(ship) = &ship
                && !states.contains(&ship.state)
            {
                return ship.clone();
            }
            assert!(Instant::now() < until, "{ship:?}");
            self.scene.engine.clock.wait_until_moved(self.scene.engine.clock.now()).await;
        }
    }

    async fn asked(&self, unit: &str) -> AskId {
        let ship = self.request_after(unit, &[PilotShipState::Pending]).await;
        assert_eq!(ship.state, PilotShipState::Asked, "{ship:?}");
        ship.ask.expect("a question")
    }

    async fn approve(&self, ask: &AskId) -> PilotShip {
        let engine = &self.scene.engine;
        let shown = engine.call("approvals.show", serde_json::json!({ "ask": ask })).await.expect("shown");
        let card = serde_json::from_value(shown).expect("a card");
        // What leaves the machine in its owner's name needs the approver's key.
        let yes = signed(engine, &card, engine.clock.now());
        engine.engine.answer(OWNER, ask.clone(), yes).await.expect("approved");
        self.request_after(MILESTONE, &[PilotShipState::Pending, PilotShipState::Asked]).await
    }

    fn pushed(&self) -> Option<String> {
        let heads =
            git(&self.remote, &["for-each-ref", "--format=%(refname:short) %(objectname)", "refs/heads"]);
        heads.lines().find_map(|line| Some(line.strip_prefix(BRANCH)?.trim().to_owned()))
    }

    fn tip(&self) -> String {
        git(self.dir.path(), &["rev-parse", "main"]).trim().to_owned()
    }

    /// Ends the scene; no call was wrong, and the token is in no record.
    fn end(self) {
        assert_eq!(self.forge.complaints(), Vec::<String>::new());
        let facts = ["intent", "asked", "outcome"].map(|event| self.scene.engine.facts(event));
        let written = serde_json::to_string(&facts).expect("JSON");
        assert!(written.contains(REPOSITORY) && !written.contains(TOKEN), "the token stands in the ledger");
        assert!(!self.remote.join("hook-has-run").exists(), "a hook of the other repository has run");
        self.scene.end();
    }
}

fn make_executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("changed");
}

/// Once a milestone is merged, a person is asked; by their yes the branch is pushed, and a request is opened, whose address the unit and the report
/// show. Before it nothing leaves the machine. Another order opens no second one.
///
/// Rows: SF-518 (in part: the errors, which have tests of their own)
/// Rows: SF-071 (in part: the merge pushes and opens a request)
#[test]
fn needs_userns_needs_git_each_forge_gets_one_request_for_what_is_merged() {
    for kind in ForgeKind::ALL {
        let shipping = ShipScene::new(kind, "");
        shipping.scene.engine.runtime.block_on(async {
            shipping.merge().await;
            let ask = shipping.asked(MILESTONE).await;
            assert_eq!((shipping.forge.calls(), shipping.pushed()), (Vec::new(), None), "{kind:?}");
            shipping.forge.set_branch(BRANCH, &shipping.tip());
            let opened = shipping.approve(&ask).await;
            assert_eq!(opened.state, PilotShipState::Opened, "{kind:?}: {opened:?}");
            assert_eq!(opened.url, shipping.forge.url_of(1));
            let [entry]: [ForgeEntry; 1] = shipping.forge.entries().try_into().expect("one request");
            assert_eq!((entry.branch.as_str(), entry.base.as_str()), (BRANCH, "main"));
            assert_eq!(entry.title, "A library of sums");
            assert!(entry.text.contains("slice/m1/s1: Sums"), "{}", entry.text);
            assert_eq!(shipping.pushed().as_deref(), Some(&*shipping.tip()));
            let again = shipping.scene.order(MILESTONE, "ship", "").await.ship.expect("shown");
            assert_eq!(again.url, opened.url);
            assert_eq!(shipping.forge.entries().len(), 1);
            let report: PilotReport = shipping.scene.ask("pilot.report", serde_json::json!({})).await;
            assert!(report.units.iter().any(|unit| unit.id == MILESTONE && unit.request == opened.url));
        });
        let facts = shipping.scene.engine.facts("intent").into_iter();
        let intents = facts.filter(
            |fact| matches!(fact, Fact::Intent { action: Action::Vcs(vcs), .. } if vcs.request.is_some()),
        );
        assert_eq!(intents.count(), 1, "the ledger has the push and the request");
        shipping.end();
    }
}

/// Over HTTP git is given the token, and nothing of the repository's own settings: no helper, no proxy, no rewritten address and no hook is used.
///
/// Rows: SF-518 (in part: the push over HTTP)
#[test]
fn needs_userns_needs_git_a_branch_is_pushed_over_http_with_the_token_alone() {
    let shipping = ShipScene::new(ForgeKind::Gitea, "");
    let (dir, url) = (shipping.dir.path(), shipping.forge.serve_repository(&shipping.remote));
    git(dir, &["remote", "set-url", "origin", &url]);
    git(dir, &["config", "credential.helper", "!touch helper-has-run; false"]);
    git(dir, &["config", "url.http://127.0.0.1:1/.pushInsteadOf", "http://127.0.0.1"]);
    git(dir, &["config", "http.proxy", "http://127.0.0.1:1"]);
    let hook = dir.join(".git/hooks/pre-push");
    std::fs::create_dir_all(hook.parent().expect("a parent")).expect("made");
    std::fs::write(&hook, "#!/bin/sh\ntouch hook-has-run\nexit 1\n").expect("written");
    make_executable(&hook);
    shipping.scene.engine.runtime.block_on(async {
        shipping.merge().await;
        let ask = shipping.asked(MILESTONE).await;
        let opened = shipping.approve(&ask).await;
        assert_eq!(opened.state, PilotShipState::Opened, "{opened:?}");
    });
    assert_eq!(shipping.pushed().as_deref(), Some(&*shipping.tip()));
    for trace in ["helper-has-run", "hook-has-run", ".git/helper-has-run", ".git/writ/git/helper-has-run"] {
        assert!(!dir.join(trace).exists(), "{trace}");
    }
    shipping.end();
}

/// Each refusal is an error with a code of its own; the work stays merged, and an order of a person asks about it again.
///
/// Rows: SF-518 (in part: an API failure is a typed error)
#[test]
fn needs_userns_needs_git_a_refusal_of_the_forge_is_a_typed_error() {
    let shipping = ShipScene::new(ForgeKind::Github, "");
    let status = |code, said: &str| ForgeFault::Status(code, said.to_owned(), None);
    let faults = [
        (status(401, "Bad credentials"), "forge.token"),
        (status(404, "Not Found"), "forge.no_project"),
        (status(422, "base invalid"), "forge.invalid"),
        (ForgeFault::Page, "forge.format"),
        (ForgeFault::Redirect("http://127.0.0.1:1/elsewhere".to_owned()), "forge.moved"),
    ];
    shipping.scene.engine.runtime.block_on(async {
        shipping.merge().await;
        let mut ask = shipping.asked(MILESTONE).await;
        for (fault, code) in faults {
            shipping.forge.break_next([fault]);
            let failed = shipping.approve(&ask).await;
            assert_eq!((failed.state, failed.code.as_str()), (PilotShipState::Failed, code), "{failed:?}");
            assert!(!failed.hint.is_empty() && failed.url.is_empty(), "{failed:?}");
            let unit = shipping.scene.order(MILESTONE, "ship", "").await;
            assert!(unit.unit.is_over && unit.unit.status == "succeeded", "{unit:?}");
            let ship = unit.ship.expect("shown");
            assert_eq!(ship.state, PilotShipState::Asked, "{ship:?}");
            ask = ship.ask.expect("a question");
        }
        let opened = shipping.approve(&ask).await;
        assert_eq!(opened.state, PilotShipState::Opened, "{opened:?}");
        assert_eq!(shipping.forge.entries().len(), 1);
    });
    shipping.end();
}

/// Where another try may help, it is made after a pause. A request whose answer was lost is found by it, and is not opened twice; one that
/// a person has merged meanwhile is not opened again either.
///
/// Rows: SF-518 (in part: one request, also after lost answers)
#[test]
fn needs_userns_needs_git_a_lost_answer_opens_no_second_request() {
    for kind in [ForgeKind::Github, ForgeKind::Gitlab, ForgeKind::Gitea] {
        let shipping = ShipScene::new(kind, "");
        shipping.scene.engine.runtime.block_on(async {
            shipping.merge().await;
            let ask = shipping.asked(MILESTONE).await;
            shipping.forge.set_branch(BRANCH, &shipping.tip());
            let limit = ForgeFault::Status(429, "slow down".to_owned(), Some(1));
            shipping.forge.break_next([limit, ForgeFault::LostAnswer]);
            let hurried = async {
                let mut seen = 0;
                let mut steps = tokio::time::interval(Duration::from_millis(20));
                while shipping.forge.calls().len() < 4 {
                    steps.tick().await;
                    if shipping.forge.calls().len() > seen {
                        seen = shipping.forge.calls().len();
                        shipping.scene.engine.clock.go_on(Duration::from_secs(5));
                    }
                }
            };
            let (opened, ()) = tokio::join!(shipping.approve(&ask), hurried);
            assert_eq!(opened.state, PilotShipState::Opened, "{kind:?}: {opened:?}");
            assert_eq!(opened.url, shipping.forge.url_of(1));
            assert_eq!(shipping.forge.entries().len(), 1, "{:?}", shipping.forge.calls());
        });
        shipping.end();
    }
}

/// A branch with other commits at the other side is not overwritten, and nothing is opened for it. A project may say that nothing of it is
/// shipped.
///
/// Rows: SF-518 (in part: a branch that is not overwritten)
#[test]
fn needs_userns_needs_git_a_branch_of_others_is_not_overwritten() {
    let shipping = ShipScene::new(ForgeKind::Github, "");
    // The work of another person in a branch of that name.
    git(shipping.dir.path(), &["checkout", "-q", "-b", "other"]);
    git(shipping.dir.path(), &["commit", "-q", "--allow-empty", "-m", "of others"]);
    let refspec = format!("other:refs/heads/{BRANCH}");
    git(
        shipping.dir.path(),
        &[
            "-c",
            "core.hooksPath=/dev/null",
            "push",
            "-q",
            "--receive-pack",
            "git -c core.hooksPath=/dev/null receive-pack",
            "origin",
            &refspec,
        ],
    );
    git(shipping.dir.path(), &["checkout", "-q", "main"]);
    let theirs = shipping.pushed();
    shipping.scene.engine.runtime.block_on(async {
        shipping.merge().await;
        let ask = shipping.asked(MILESTONE).await;
        let failed = shipping.approve(&ask).await;
        assert_eq!((failed.state, failed.code.as_str()), (PilotShipState::Failed, "git.push_rejected"));
    });
    assert_eq!((shipping.pushed(), shipping.forge.calls()), (theirs, Vec::new()));
    shipping.end();

    let quiet = ShipScene::new(ForgeKind::Github, "[pilot.ship]\nat = \"never\"\n");
    quiet.scene.engine.runtime.block_on(async {
        quiet.merge().await;
        assert_eq!(quiet.scene.unit(MILESTONE).await.ship, None);
    });
    assert_eq!((quiet.pushed(), quiet.forge.calls()), (None, Vec::new()));
    quiet.scene.end();
}

/// Runs the recipe for comments on issues with an object, and returns its exit code and the calls of a `gh` that only writes them down.
fn comment(object: &serde_json::Value) -> (Option<i32>, String) {
    use std::io::Write as _;
    let dir = tempfile::tempdir().expect("temp dir");
    let gh = dir.path().join("gh");
    std::fs::write(&gh, format!("#!/bin/sh\nprintf '%s|' \"$@\" >> {}/calls\n", dir.path().display()))
        .expect("written");
    make_executable(&gh);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/issue-comments/post-unit-gh.sh");
    #[expect(clippy::disallowed_types, reason = "the recipe is a program of the user's")]
    let mut child = std::process::Command::new(script)
        .env("GH", &gh)
        .stdin(std::process::Stdio::piped())
        .spawn()
        .expect("starts");
    child.stdin.take().expect("a pipe").write_all(object.to_string().as_bytes()).expect("written");
    let ended = child.wait().expect("ends");
    (ended.code(), std::fs::read_to_string(dir.path().join("calls")).unwrap_or_default())
}

/// The recipe posts one comment with phase and verdict on the linked issue; without one it ends well and calls nothing.
///
/// Rows: SF-211
#[test]
fn needs_python_the_recipe_comments_on_a_linked_issue_alone() {
    let object = |metadata: serde_json::Value, verdict: serde_json::Value| serde_json::json!({ "unit": { "metadata": metadata }, "phase": "verify", "verdict": verdict });
    let linked = || serde_json::json!({ "gh_issue": 42 });
    assert_eq!(
        comment(&object(linked(), "success".into())),
        (Some(0), "issue|comment|42|--body|writ verify: success|".to_owned())
    );
    assert_eq!(comment(&object(serde_json::json!({}), "success".into())), (Some(0), String::new()));
    assert_eq!(comment(&object(linked(), serde_json::Value::Null)), (Some(0), String::new()));
    let hostile = serde_json::json!({ "gh_issue": "1; touch /tmp/x" });
    assert_eq!(comment(&object(hostile, "success".into())), (Some(1), String::new()));
    let words = object(linked(), "$(touch x) `y`".into());
    assert_eq!(comment(&words).1, "issue|comment|42|--body|writ verify: $(touch x) `y`|");
}

/// A home whose secrets are addresses.
#[derive(Debug)]
struct Addresses(Vec<(&'static str, String)>);

impl SecretSource for Addresses {
    fn known(&self) -> Result<Vec<KnownSecret>, Report> {
        Ok(Vec::new())
    }

    fn value(&self, secret: &CredentialRef) -> Result<Option<SecretString>, Report> {
        let named = self.0.iter().find(|(name, _)| secret.to_string() == format!("secret:{name}"));
        Ok(named.map(|(_, url)| SecretString::from(url.as_str())))
    }
}

/// Each receiver gets a notice of what has ended, in the form of its kind. One that is down, and one whose address is missing, hold nothing up: the goal
/// is merged all the same.
///
/// Rows: SF-521 (in part: the line in the log)
#[test]
fn needs_userns_needs_git_receivers_get_notices_and_one_that_is_down_holds_nothing_up() {
    let waiting = tokio::runtime::Runtime::new().expect("a runtime");
    let good = || RawAnswer { status: 200, headers: Vec::new(), body: b"ok".to_vec(), chunk: 64, cut: false };
    let start = || waiting.block_on(RawServer::start(good())).expect("starts");
    let servers = [start(), start(), start()];
    let closed = waiting.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        listener.local_addr().expect("an address")
    });
    let names = ["slack", "discord", "webhook"];
    let mut addresses: Vec<(&'static str, String)> = names
        .into_iter()
        .zip(&servers)
        .map(|(name, server)| (name, format!("http://{}/hooks/{name}", server.address())))
        .collect();
    addresses.push(("down", format!("http://{closed}/hooks")));
    let home = tempfile::tempdir().expect("temp dir");
    let settings = home.path().join("pilot.toml");
    let entry = |kind: &str, name: &str| {
        format!(
            "[[pilot.notify]]\nkind = \"{kind}\"\nurl = \"secret:{name}\"\non = [\"unit_done\", \"unit_merged\"]\n"
        )
    };
    let mut text: String = names.iter().map(|name| entry(name, name)).collect();
    text.push_str(&entry("slack", "down"));
    text.push_str(&entry("webhook", "missing"));
    std::fs::write(&settings, text).expect("written");
    let dir = project("", GATE, SHORT);
    let engine = TestEngine::with(|parts| parts.secrets = Arc::new(Addresses(addresses)), |_| right());
    let owner = OwnerFiles { settings: Some(settings), hidden_tests: None };
    let path = std::fs::canonicalize(dir.path()).expect("is there");
    let scene = Scene::with_owner_files(engine, path, owner);
    scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        assert_eq!(status.state, "complete", "{status:#?}");
        let until = Instant::now() + PATIENCE;
        // Each gets four: of the task, of the slice (merged, and over) and of the milestone.
        while servers.iter().any(|server| server.requests().len() < 4) {
            assert!(Instant::now() < until, "notices are missing");
            scene.engine.clock.wait_until_moved(scene.engine.clock.now()).await;
        }
    });
    let [slack, discord, webhook] = servers.each_ref().map(RawServer::requests);
    let has = |requests: &[RawRequest], key: &str, words: &str| {
        requests.iter().any(|request| request.body[key].as_str().is_some_and(|text| text.contains(words)))
    };
    assert!(has(&slack, "text", "slice/m1/s1 Sums (complete), succeeded"), "{slack:?}");
    assert!(slack.iter().all(|request| request.path == "/hooks/slack"));
    assert!(has(&discord, "content", "milestone/m1 A library of sums (complete), succeeded"), "{discord:?}");
    let quiet = serde_json::json!({ "parse": [] });
    assert!(discord.iter().all(|request| request.body["allowed_mentions"] == quiet), "{discord:?}");
    assert!(has(&webhook, "event", "unit_merged"), "{webhook:?}");
    let of_task = webhook.iter().find(|request| request.body["unit"]["id"] == "task/m1/s1/t1");
    let of_task = &of_task.expect("the task").body;
    assert_eq!((of_task["verdict"].as_str(), of_task["phase"].as_str()), (Some("success"), Some("complete")));
    scene.end();
}
