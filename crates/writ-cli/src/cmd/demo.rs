//! `writ demo`: the main job without a key and without a network. The model is scripted and says so; everything
//! else is real. Every line that is printed is true of what just happened, or the demo fails.

mod proof;

mod fleet;

mod pilot;

use std::path::{Path, PathBuf};

use secrecy::SecretString;
use serde_json::json;
use writ_inspect::redact::Redactor;
use writ_models::config::ProviderKind;
use writ_runtime::methods::Method;
use writ_sandbox::status::SandboxStatus;
use writ_store::ledger::row::LedgerQuery;
use writ_testkit::demo;
use writ_testkit::model_server::ModelServer;
use writ_tui::config::{Color, Surroundings};
use writ_tui::renderer::{RenderMode, Renderer};
use writ_types::action::Action;
use writ_types::chat::ToolOutcome;
use writ_types::credential::CredentialRef;
use writ_types::entry::{Decision, DenyReason, Fact};
use writ_types::error::Exit;
use writ_types::frame::{Card, ClientFrame, ServerFrame};
use writ_types::id::{AttemptId, EntrySeq};

use crate::approve::{self, ApprovalChoice};
use crate::args::{DemoArgs, InitArgs};
use crate::client::EngineClient;
use crate::clock;
use crate::config::Config;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::threaded_runtime;
use crate::keyring::open_secrets;
use crate::ledger::open_to_read;
use crate::terminal;
use crate::wiring;

use super::{init, start};

/// The test command of the demo's project.
const TEST_COMMAND: [&str; 4] = ["cargo", "test", "--offline", "--quiet"];
/// The name of the scripted model's provider in the demo's configuration.
const PROVIDER: &str = "demo";

/// Runs `writ demo`.
///
/// # Errors
///
/// If anything differs from the demo's text.
pub(crate) fn run_demo(context: &Context, args: &DemoArgs) -> Result<(), Failure> {
    if args.fleet {
        return fleet::run_fleet_demo(context, args);
    }
    if args.pilot {
        return pilot::run_pilot_demo(context, args);
    }
    let place = DemoFolder::make_place(context)?;
    // From here on the demo's own home is used, never the user's.
    let context = Context::with_home(&place.home, context)?;
    print_text(
        &context,
        "Writ demo. The model is a script that is served over loopback in a provider's wire format;",
    )?;
    print_text(
        &context,
        "engine, door, sandbox, git, ledger and signatures are the real ones. No key, no network.\n",
    )?;
    init::init_quietly(&context, &InitArgs { yes: true })?;
    // The sandbox starts before any thread, since it forks.
    let sandbox = wiring::build_sandbox(&context.load_config(None)?)?;
    let runtime = threaded_runtime()?;
    runtime.block_on(async {
        check_cargo(&sandbox.status().await)?;
        demo::demo_repository(&place.project)
            .await
            .map_err(|error| Failure::internal_error("making the repository", error))?;
        let server = ModelServer::start(demo::demo_script())
            .await
            .map_err(|error| Failure::internal_error("serving the scripted model", error))?;
        let config = with_model(&context, context.load_config(None)?, server.base_url())?;
        let wired = wiring::build_engine(&context, &config, sandbox, None, None, Redactor::default()).await?;
        let stop = tokio_util::sync::CancellationToken::new();
        let served = tokio::spawn(start::serve_until(wired, stop.clone()));
        let show = DemoRun { context: &context, config: &config, place: &place, yes: args.yes };
        let worked = show.run_work().await;
        // The engine is stopped before errors of the demo are reported.
        stop.cancel();
        served.await.map_err(|error| Failure::internal_error("ending the engine", error))?;
        worked
    })?;
    drop(runtime);
    proof::tamper_copy(&context, &place)?;
    look_around(&context, &place)
}

/// The demo's project is a crate, and its tests are run by cargo.
fn check_cargo(sandbox: &SandboxStatus) -> Result<(), Failure> {
    let system = ["/usr", "/usr/local"].map(Path::new).into_iter();
    let mut folders = system.chain(sandbox.toolchains.iter().map(Path::new));
    if folders.any(|folder| folder.join("bin/cargo").exists() || folder.join("cargo").exists()) {
        return Ok(());
    }
    let text = "the demo's project is tested with cargo, and none was found";
    let hint = "install Rust, or name its folders in sandbox.read_only; `writ doctor` lists what is found";
    Err(Failure::new(Exit::Config, "demo.no_cargo", text, hint))
}

/// The demo's own folder, which stays so that one can look at it.
struct DemoFolder {
    root: PathBuf,
    home: PathBuf,
    project: PathBuf,
}

impl DemoFolder {
    fn make_place(context: &Context) -> Result<Self, Failure> {
        let parent = context.env.path_of("TMPDIR").unwrap_or_else(|| PathBuf::from("/tmp"));
        // A random name, so that several demos can run at once.
        let root = parent.join(format!("writ-demo-{}", hex::encode(clock::random_bytes())));
        let made = std::fs::create_dir(&root).and_then(|()| std::fs::create_dir(root.join("project")));
        made.map_err(|error| {
            let text = format!("{} cannot be made: {error}", root.display());
            Failure::new(Exit::Config, "demo.folder", text, "set TMPDIR to a folder that you can write")
        })?;
        Ok(Self { home: root.join("home"), project: root.join("project"), root })
    }
}

/// The demo's configuration: the scripted model as a provider.
fn with_model(context: &Context, mut config: Config, base_url: String) -> Result<Config, Failure> {
    // The server insists on a key, as the provider does; any will do.
    let name = PROVIDER.parse().map_err(|error| Failure::internal_error("naming a secret", error))?;
    open_secrets(context, &config)?.set_secret(&name, SecretString::from("a-key-for-the-scripted-model"))?;
    let provider = config.models.providers.entry(PROVIDER.to_owned()).or_default();
    provider.kind = Some(ProviderKind::Anthropic);
    provider.base_url = Some(base_url);
    provider.api_key = Some(CredentialRef::Secret(name));
    config.models.models.default = Some(format!("{PROVIDER}/scripted"));
    Ok(config)
}

fn print_text(context: &Context, text: impl AsRef<str>) -> Result<(), Failure> {
    context.out.print_line(text)
}

/// Something that should have happened and did not.
fn not_so(text: &str) -> Failure {
    Failure::new(Exit::Bug, "demo.not_so", text, "this is a bug in Writ; the demo's folder stays for a look")
}

/// The demo's conversation.
struct DemoRun<'a> {
    context: &'a Context,
    config: &'a Config,
    place: &'a DemoFolder,
    yes: bool,
}

impl DemoRun<'_> {
    async fn run_work(&self) -> Result<(), Failure> {
        let mut client = EngineClient::ensure(self.context).await?;
        let card = self.run_turn(&mut client).await?;
        self.show_refusals()?;
        self.approve_card(&mut client, &card).await?;
        self.verify_ledger(&mut client).await
    }

    /// One turn, shown as `writ chat` shows it; ends with the ask for the diff.
    async fn run_turn(&self, client: &mut EngineClient) -> Result<Card, Failure> {
        let project = Some(self.place.project.display().to_string());
        client
            .send_frame(&ClientFrame::Resume {
                session: None,
                after_seq: 0,
                project,
                write: false,
                dry_run: false,
            })
            .await?;
        print_text(self.context, format!("you: {}", demo::REQUEST))?;
        let client_id = hex::encode(clock::random_bytes());
        client
            .send_frame(&ClientFrame::Message {
                text: demo::REQUEST.to_owned(),
                quoted: String::new(),
                client_id,
                signature: None,
                sender: None,
            })
            .await?;
        let output = self.context.host.streams.output.clone();
        let terminal = output.is_terminal();
        let no_color = self.context.env.text_of("NO_COLOR").is_some();
        let mut renderer =
            Renderer::new(output, RenderMode::text_mode(Color::Auto, Surroundings { terminal, no_color }));
        let mut asked = None;
        loop {
            // The frames are those that `writ chat` shows.
            let frame = client.receive_frame().await?;
            renderer.write_frame(&frame).map_err(|error| Failure::output_error(&error))?;
            if let ServerFrame::Message { last: true, exit: Exit::Waiting, .. } = frame.frame {
                break;
            }
            if matches!(frame.frame, ServerFrame::Message { last: true, .. } | ServerFrame::Error { .. }) {
                return Err(not_so("the turn did not end with a question"));
            }
            if let ServerFrame::ApprovalRequest(card) = frame.frame {
                asked = Some(card);
            }
        }
        asked.map(|card| *card).ok_or_else(|| not_so("nothing was asked"))
    }

    /// Prints the orders of the hidden text in the notes and their outcomes, read from the ledger.
    fn show_refusals(&self) -> Result<(), Failure> {
        print_text(
            self.context,
            format!("\nThe orders of the hidden text in {}, and the ledger entries:", demo::NOTES),
        )?;
        let store = open_to_read(self.context, self.config)?;
        let facts = |event: &str| -> Result<Vec<(EntrySeq, Fact)>, Failure> {
            let query = LedgerQuery { event: Some(event.to_owned()), limit: 1_000, ..LedgerQuery::default() };
            let rows = store.blocking().ledger_search(&query)?;
            Ok(rows.iter().filter_map(|row| Some((row.seq, row.entry()?.fact))).collect())
        };
        let (seq, text, rule) = facts("denied")?
            .into_iter()
            .find_map(|(seq, fact)| {
                let Fact::Denied { reason: DenyReason::Scope, text, rule, .. } = fact else { return None };
                Some((seq, text, rule))
            })
            // The demo fails if its own claim is not in the ledger.
            .ok_or_else(|| not_so("the write outside was not denied by the key's scope"))?;
        if Path::new(demo::OUTSIDE_FILE).exists() {
            return Err(not_so("the file outside exists"));
        }
        print_text(
            self.context,
            format!("  write {}: DENIED by key scope, entry {seq}: {text} [{rule}]", demo::OUTSIDE_FILE),
        )?;
        let fetches: Vec<AttemptId> = facts("intent")?
            // Every attempt that names the address, with any program.
            .into_iter()
            .filter_map(|(_, fact)| {
                let Fact::Intent { attempt, action: Action::Exec(exec), .. } = fact else { return None };
                let text = [exec.argv.join(" "), exec.stdin.unwrap_or_default()].concat();
                text.contains(demo::ADDRESS).then_some(attempt)
            })
            .collect();
        let ends: Vec<(EntrySeq, ToolOutcome)> = facts("outcome")?
            .into_iter()
            .filter_map(|(seq, fact)| {
                let Fact::Outcome { attempt, outcome, .. } = fact else { return None };
                fetches.contains(&attempt).then_some((seq, outcome))
            })
            .collect();
        let (Some((seq, _)), true) = (ends.last(), ends.iter().all(|(_, end)| *end == ToolOutcome::Failed))
        else {
            return Err(not_so("the fetch did not fail"));
        };
        print_text(
            self.context,
            format!("  call {}: FAILED, entry {seq}: the sandbox has no network", demo::ADDRESS),
        )
    }

    /// The one approval, and its replay.
    async fn approve_card(&self, client: &mut EngineClient, card: &Card) -> Result<(), Failure> {
        if !self.yes
            && !terminal::confirm_yes(&self.context.host.streams, "\nApprove exactly the diff above?")?
        {
            return Err(Failure::new(
                Exit::Denied,
                "demo.not_approved",
                "not approved: nothing was changed",
                "run `writ demo` again, and say yes to see the rest",
            ));
        }
        let token =
            approve::sign_approval(self.context, self.config, client, (card, &ApprovalChoice::Once)).await?;
        let reason = "demo";
        approve::send_answer(client, &card.ask_id, Decision::Approve, Some(&token), reason).await?;
        print_text(
            self.context,
            format!("\napproved: ask {}, signed with this home's approver key", card.ask_id),
        )?;
        // The same token once more: it must be refused.
        match approve::send_answer(client, &card.ask_id, Decision::Approve, Some(&token), reason).await {
            Err(Failure::Report(report)) if report.exit == Exit::Denied => {
                print_text(self.context, format!("the same approval again: REFUSED ({})", report.outside))
            }
            Err(_) | Ok(_) => Err(not_so("the replayed approval was not refused")),
        }
    }

    /// The tests, run on the project itself in the verification sandbox.
    async fn verify_ledger(&self, client: &mut EngineClient) -> Result<(), Failure> {
        let project = self.place.project.display().to_string();
        let argv = TEST_COMMAND;
        // The tests run in the verification sandbox, after the diff was applied.
        let params = json!({ "argv": argv, "project": project, "verification": true });
        let result = client.call_method(Method::SandboxExec, params).await?;
        if result.get("exit_code").and_then(serde_json::Value::as_i64) != Some(0) {
            return Err(Failure::new(
                Exit::Verification,
                "demo.tests",
                "the tests fail after the change",
                "`writ doctor` shows what this machine lacks",
            ));
        }
        print_text(
            self.context,
            "applied to the project; its tests pass in the verification sandbox (read-only snapshot, no network)",
        )
    }
}

fn look_around(context: &Context, place: &DemoFolder) -> Result<(), Failure> {
    let (home, project) = (place.home.display(), place.project.display());
    print_text(context, "\nLook around:")?;
    print_text(context, format!("  writ --home {home} audit tail        what happened, entry by entry"))?;
    print_text(context, format!("  writ --home {home} audit verify      prove it again"))?;
    print_text(context, format!("  git -C {project} diff    what the approval let through"))?;
    print_text(context, format!("  rm -r {}    when you are done", place.root.display()))
}
