//! `writ demo --pilot`: a goal, three tasks, one wrong try, one finding of a review, and merged commits. The agents are a
//! script; planning, approval, sandboxes, git, gates and ledger are real. Every line is true of what just happened, or the demo fails.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;
use writ_inspect::redact::Redactor;
use writ_inspect::show::escape_line;
use writ_runtime::methods::{Method, PilotPlan, PilotRun, PilotShow, PilotUnit};
use writ_testkit::model_server::ModelServer;
use writ_testkit::pilot::{GOAL, MERGED_FILE, SLICE, WRONG_TASK, pilot_repository, pilot_script};
use writ_types::api::pilot::{
    PilotGoal, PilotPlanned, PilotProject, PilotStatus, PilotUnitDetails, PilotUnitName,
};
use writ_types::entry::Decision;
use writ_types::error::Exit;

use super::{DemoFolder, TEST_COMMAND, check_cargo, not_so, print_text, with_model};
use crate::approve::{self, ApprovalChoice};
use crate::args::{DemoArgs, InitArgs};
use crate::client::EngineClient;
use crate::cmd::audit::verify_home;
use crate::cmd::{init, start};
use crate::config::Config;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::threaded_runtime;
use crate::terminal;
use crate::wiring;

/// The time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The longest reason in a line, in characters.
const MAX_REASON: usize = 110;

/// Runs `writ demo --pilot`.
///
/// # Errors
///
/// If anything differs from the demo's text.
pub(super) fn run_pilot_demo(context: &Context, args: &DemoArgs) -> Result<(), Failure> {
    let place = DemoFolder::make_place(context)?;
    let context = Context::with_home(&place.home, context)?;
    print_text(
        &context,
        "Writ demo: the autopilot. Planner, coders and reviewer are one script, served over loopback;",
    )?;
    print_text(&context, "plan, approval, sandboxes, git, gates and ledger are real. No key, no network.\n")?;
    init::init_quietly(&context, &InitArgs { yes: true })?;
    // The sandbox starts before any thread, since it forks.
    let sandbox = wiring::build_sandbox(&context.load_config(None)?)?;
    let runtime = threaded_runtime()?;
    let config = runtime.block_on(async {
        check_cargo(&sandbox.status().await)?;
        let made = pilot_repository(&place.project).await;
        made.map_err(|error| Failure::internal_error("making the repository", error))?;
        let server = ModelServer::start(pilot_script()).await;
        let server = server.map_err(|error| Failure::internal_error("serving the scripted model", error))?;
        let config = with_model(&context, context.load_config(None)?, server.base_url())?;
        let wired = wiring::build_engine(&context, &config, sandbox, None, None, Redactor::default()).await?;
        let stop = tokio_util::sync::CancellationToken::new();
        let served = tokio::spawn(start::serve_until(wired, stop.clone()));
        let story = PilotStory { context: &context, config: &config, place: &place, yes: args.yes };
        let played = story.play().await;
        // The engine is stopped before errors of the demo are reported.
        stop.cancel();
        served.await.map_err(|error| Failure::internal_error("ending the engine", error))?;
        played.map(|()| config)
    })?;
    drop(runtime);
    let verified = verify_home(&context, &config)?.rows;
    print_text(&context, format!("ledger verified: entries {verified}"))?;
    let (home, project) = (place.home.display(), place.project.display());
    print_text(&context, "\nLook around:")?;
    print_text(&context, format!("  git -C {project} log --graph --oneline    what was merged"))?;
    print_text(&context, format!("  writ --home {home} pilot show {SLICE} --project {project}"))?;
    print_text(&context, format!("  rm -r {}    when you are done", place.root.display()))
}

/// The demo as it is played.
struct PilotStory<'a> {
    context: &'a Context,
    config: &'a Config,
    place: &'a DemoFolder,
    yes: bool,
}

impl PilotStory<'_> {
    async fn play(&self) -> Result<(), Failure> {
        let mut client = EngineClient::ensure(self.context).await?;
        let project = self.place.project.display().to_string();
        print_text(self.context, format!("goal: {GOAL}"))?;
        let goal =
            PilotGoal { project: project.clone(), goal: GOAL.to_owned(), workflow: None, link_issue: None };
        let planned = client.ask::<PilotPlan>(&goal).await?;
        for unit in &planned.units {
            let depth = unit.id.matches('/').count() - 1;
            print_text(
                self.context,
                format!("  {}{}  {}", "  ".repeat(depth), unit.id, escape_line(&unit.title)),
            )?;
        }
        self.approve_plan(&mut client, &planned).await?;
        let status = self.watch_run(&mut client, &PilotProject { project }).await?;
        self.check_story(&mut client, &status).await?;
        self.run_tests(&mut client).await
    }

    async fn approve_plan(&self, client: &mut EngineClient, planned: &PilotPlanned) -> Result<(), Failure> {
        let card = approve::load_card(client, &planned.ask).await?;
        if !self.yes
            && !terminal::confirm_yes(&self.context.host.streams, "\nApprove this plan, once for all of it?")?
        {
            let hint = "run `writ demo --pilot` again, and say yes to see the rest";
            return Err(Failure::new(
                Exit::Denied,
                "demo.not_approved",
                "not approved: nothing was run",
                hint,
            ));
        }
        let once = (&card, &ApprovalChoice::Once);
        let token = approve::sign_approval(self.context, self.config, client, once).await?;
        approve::send_answer(client, &card.ask_id, Decision::Approve, Some(&token), "demo").await?;
        print_text(
            self.context,
            format!("\napproved: ask {}, signed with this home's approver key\n", card.ask_id),
        )
    }

    /// Runs the autopilot to its end, and prints each move of each unit once.
    async fn watch_run(
        &self,
        client: &mut EngineClient,
        project: &PilotProject,
    ) -> Result<PilotStatus, Failure> {
        let mut shown: BTreeMap<String, usize> = BTreeMap::new();
        let mut status = client.ask::<PilotRun>(project).await?;
        loop {
            // Read before the units, so that the last look shows the last moves.
            let is_over = status.state != "running";
            for unit in &status.units {
                let details = self.read_unit(client, &unit.id).await?;
                let seen = shown.entry(unit.id.clone()).or_default();
                for one in details.moves.iter().skip(*seen) {
                    let reason: String = one.reason.chars().take(MAX_REASON).collect();
                    let line =
                        format!("  {}: {} -> {}  ({})", unit.id, one.from, one.to, escape_line(&reason));
                    print_text(self.context, line)?;
                }
                *seen = details.moves.len();
            }
            if is_over {
                return Ok(status);
            }
            sleep(LOOK_EVERY).await;
            status = client.ask::<PilotShow>(project).await?;
        }
    }

    async fn read_unit(&self, client: &mut EngineClient, unit: &str) -> Result<PilotUnitDetails, Failure> {
        let project = self.place.project.display().to_string();
        client.ask::<PilotUnit>(&PilotUnitName { project, unit: unit.to_owned() }).await
    }

    /// Compares what happened with what the demo says.
    async fn check_story(&self, client: &mut EngineClient, status: &PilotStatus) -> Result<(), Failure> {
        if status.state != "complete" || !status.units.iter().all(|unit| unit.status == "succeeded") {
            return Err(not_so("the work did not come to its end"));
        }
        let wrong = self.read_unit(client, WRONG_TASK).await?;
        let gate = wrong.gates.iter().find(|gate| !gate.passed);
        let gate = gate.ok_or_else(|| not_so("the wrong try was not caught"))?;
        let line = gate.output.lines().find(|line| line.contains("FAILED")).unwrap_or_default();
        print_text(
            self.context,
            format!(
                "\nthe wrong try of {WRONG_TASK} was caught by the gate '{}': {}",
                gate.gate,
                escape_line(line.trim())
            ),
        )?;
        let slice = self.read_unit(client, SLICE).await?;
        let sent_back = slice.moves.iter().find(|one| one.from == "review" && one.to == "execute");
        let sent_back = sent_back.ok_or_else(|| not_so("the finding of the review changed nothing"))?;
        print_text(
            self.context,
            format!("the review sent {SLICE} back: {}", escape_line(&sent_back.reason)),
        )?;
        let merged = slice.moves.iter().find(|one| one.from == "merge" && one.to == "complete");
        let merged = merged.ok_or_else(|| not_so("the slice was not merged"))?;
        if !self.place.project.join(MERGED_FILE).is_file() {
            return Err(not_so("the merged file is not in the project"));
        }
        print_text(self.context, format!("{SLICE} is in main: {}", escape_line(&merged.reason)))
    }

    /// The tests, run on the project itself in the verification sandbox.
    async fn run_tests(&self, client: &mut EngineClient) -> Result<(), Failure> {
        let project = self.place.project.display().to_string();
        let params = json!({ "argv": TEST_COMMAND, "project": project, "verification": true });
        let result = client.call_method(Method::SandboxExec, params).await?;
        if result.get("exit_code").and_then(serde_json::Value::as_i64) != Some(0) {
            let hint = "`writ doctor` shows what this machine lacks";
            return Err(Failure::new(
                Exit::Verification,
                "demo.tests",
                "the tests fail after the merge",
                hint,
            ));
        }
        print_text(self.context, "its tests pass on main, in the verification sandbox")
    }
}
