//! Units that a person hands out one by one, without the loop.

use std::time::Instant;

use serde_json::json;
use writ_testkit::model_server::{ReplyFault, ReplyGate};
use writ_types::api::pilot::{PilotDispatched, PilotUnitDetails};

use crate::autopilot::{PATIENCE, Scene};
use crate::autopilot_limits::{SHORT, TASK, coder, done, project, scene, writes};
use crate::harness::TestEngine;

const OTHER: &str = "task/m1/s2/t1";
/// Two slices, of which the second waits for the first.
const BLOCKED: &str = "\
- [ ] A library of sums <!-- milestone/m1 -->
  - [ ] Sums <!-- slice/m1/s1 -->
    Acceptance:
    * add adds
    - [ ] add <!-- task/m1/s1/t1 -->
      Write add in add.mjs.
  - [ ] Products <!-- slice/m1/s2 blocked_by=slice/m1/s1 priority=4 -->
    Acceptance:
    * mul multiplies
    - [ ] mul <!-- task/m1/s2/t1 blocked_by=slice/m1/s1 priority=4 -->
      Write mul in mul.mjs.
";
/// A gate that passes on every tree.
const THERE: &str = "\n[[gate]]\nname = \"there\"\nrun = [\"test\", \"-f\", \"package.json\"]\n";

async fn dispatch(scene: &Scene, unit: &str) -> PilotDispatched {
    scene.ask("pilot.dispatch", json!({ "unit": unit })).await
}

async fn refused(scene: &Scene, unit: &str) -> (String, String) {
    let params = json!({ "project": scene.project, "unit": unit });
    let refused = scene.engine.call("pilot.dispatch", params).await.expect_err("refused");
    (refused.code, refused.outside)
}

/// Waits until no worker has a unit.
async fn after_run(scene: &Scene, unit: &str) -> PilotUnitDetails {
    let until = Instant::now() + PATIENCE;
    loop {
        let details = scene.unit(unit).await;
        if !details.unit.is_running {
            return details;
        }
        assert!(Instant::now() < until, "it does not end: {details:#?}");
        scene.engine.clock.wait_until_moved(scene.engine.clock.now()).await;
    }
}

fn runs(details: &PilotUnitDetails) -> Vec<String> {
    let run = |run: &writ_types::api::pilot::PilotRunLine| {
        format!("{} {}", run.phase, run.outcome.as_deref().unwrap_or("runs"))
    };
    details.runs.iter().map(run).collect()
}

/// One call hands out one unit and no other, and nothing where nothing is approved or the loop does it. A unit that is named begins past
/// the order and past what it waits for, with a warning that says so; one that is over, is not there, or has open parts is refused.
///
/// Rows: SF-535 (in part: a call is one run of a phase, of which a unit has several; the print: the commands' test)
/// Rows: SF-536
#[test]
fn needs_userns_needs_git_one_unit_is_handed_out_at_a_time() {
    let held = ReplyGate::new();
    let gate = held.clone();
    let dir = project("", THERE, SHORT);
    let script = coder(BLOCKED, move |_, asked| match (asked.has_results, asked.name.as_str()) {
        (true, "mul") => done().with_fault(ReplyFault::SlowFirstByte(gate.clone())),
        (true, _) => done(),
        (false, name) => writes(name, "a + b"),
    });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        let none = dispatch(&scene, "").await;
        assert_eq!((none.unit, none.note.as_str()), (None, "no unit is ready"), "it is not approved");
        let (code, why) = refused(&scene, OTHER).await;
        assert!(code == "pilot.not_ready" && why.contains("is not approved"), "{code}: {why}");
        scene.approve(&planned.ask).await;

        let first = dispatch(&scene, "").await;
        assert_eq!((first.unit.as_deref(), first.warnings), (Some(TASK), Vec::new()));
        let ended = after_run(&scene, TASK).await;
        assert_eq!((runs(&ended), ended.unit.phase.as_str()), (vec!["execute success".to_owned()], "verify"));
        assert_eq!(runs(&scene.unit(OTHER).await), Vec::<String>::new(), "it is left where it was");

        for (unit, code) in [("slice/m1/s2", "pilot.not_ready"), ("task/m7/s1/t1", "pilot.no_unit")] {
            assert_eq!(refused(&scene, unit).await.0, code, "{unit}");
        }
        let forced = dispatch(&scene, OTHER).await;
        let warning = format!("{OTHER} waits for slice/m1/s1, which is not over");
        assert_eq!((forced.unit.as_deref(), forced.warnings), (Some(OTHER), vec![warning]));
        assert_eq!(refused(&scene, OTHER).await.0, "pilot.busy", "a worker has it");

        // Its worker waits for the model, so the loop cannot have ended.
        scene.engine.call("pilot.run", scene.params()).await.expect("runs");
        assert_eq!(refused(&scene, "").await.0, "pilot.loop_runs");
        held.open();
        let status = scene.end_of_loop().await;
        assert_eq!(status.state, "complete", "{status:#?}");
        assert_eq!(scene.unit(OTHER).await.runs.iter().filter(|run| run.phase == "execute").count(), 1);
        let (code, why) = refused(&scene, TASK).await;
        assert!(code == "pilot.not_ready" && why.contains("it is over"), "{code}: {why}");
        assert_eq!(dispatch(&scene, "").await.unit, None);
    });
    scene.end();
}
