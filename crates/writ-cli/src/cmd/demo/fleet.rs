//! `writ demo --fleet`: three agents in Python that are not trusted, one of them hostile, on the data of a shop with fifty
//! customers. There is no model, no key and no network; everything else is real. Every line that is printed is true of what
//! just happened, or the demo fails.

mod cases;

mod place;

mod processes;

mod proof;

mod record;

mod story;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use writ_testkit::fleet::{ADDRESS_AGENT, REFUND_AGENT, SENIOR_AGENT};
use writ_testkit::mail_sink::{MailFault, MailSink};
use writ_types::error::Exit;

use crate::args::{DemoArgs, InitArgs};
use crate::cmd::init;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::threaded_runtime;
use crate::wiring;

use super::print_text;
use place::FleetPlace;
use processes::FleetProcesses;

/// The folders with programs that locked agents see.
const PROGRAM_FOLDERS: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];
/// The folders below which a program is seen in a sandbox. One that is a link to elsewhere, such as to a person's own Python, is not.
const SEEN_FOLDERS: [&str; 2] = ["/usr", "/bin"];
/// The program of the agents.
const PYTHON: &str = "python3";

/// Runs `writ demo --fleet`.
///
/// # Errors
///
/// If anything differs from the demo's text.
pub(super) fn run_fleet_demo(context: &Context, args: &DemoArgs) -> Result<(), Failure> {
    // Before anything is made, so that a machine without it has nothing to clean up.
    check_python()?;
    let mut place = FleetPlace::make_place(context)?;
    let own = Context::with_home(&place.home(), context)?;
    let played = play_demo(&own, &place);
    match &played {
        Ok(()) if args.keep => {
            place.keep_folder();
            look_around(&own, &place)?;
        }
        Ok(()) => {
            // First, since the text below is true only once the folder is removed.
            place.remove_folder()?;
            let text =
                "\nNothing is left of it. `writ demo --fleet --keep` leaves its folder to look around.";
            print_text(&own, text)?;
        }
        // A person who stops it wants nothing more of it.
        Err(Failure::Interrupted) => {}
        Err(_) => {
            // The logs in it are all that says why.
            place.keep_folder();
            own.out.print_remark(format!("its folder: {}", place.root().display()));
        }
    }
    played
}

fn play_demo(context: &Context, place: &FleetPlace) -> Result<(), Failure> {
    print_text(
        context,
        "Writ demo: a fleet. Three agents in Python work for a shop with 50 customers, and no one trusts them.",
    )?;
    print_text(
        context,
        "Proxy, routers, keys, sandboxes, database, mail and ledgers are real. No model, no key, no network.\n",
    )?;
    init::init_quietly(context, &InitArgs { yes: true })?;
    // The sandbox starts before any thread, since it forks.
    let sandbox = wiring::build_sandbox(&context.load_config(None)?)?;
    // Commands block inside it, which a runtime of one thread does not allow.
    let runtime = threaded_runtime()?;
    runtime.block_on(async {
        let mut interrupts = context.host.stops.listen_interrupts()?;
        // Without them no agent would start, and only the logs would say why.
        if !sandbox.status().await.user_namespaces {
            return Err(no_namespaces());
        }
        drop(sandbox);
        let sink = MailSink::start(MailFault::None)
            .await
            .map_err(|error| Failure::internal_error("starting the mail server of the demo", error))?;
        place.write_files(context, &sink)?;
        let token = FleetPlace::make_token(context)?;
        let mut processes = FleetProcesses::start(context, place).await?;
        let told = tokio::select! {
            told = story::tell_story(context, place, (&sink, &token)) => told,
            () = interrupts.pressed() => Err(Failure::Interrupted),
        };
        // Both end before errors of the demo are reported.
        processes.stop_all(context).await;
        told
    })
}

/// The agents are programs in Python, which their sandboxes take from the system.
fn check_python() -> Result<(), Failure> {
    if PROGRAM_FOLDERS.iter().any(|folder| is_program_inside(&Path::new(folder).join(PYTHON))) {
        return Ok(());
    }
    let text = format!("the agents of this demo are programs in Python, and no {PYTHON} was found");
    let hint = format!(
        "install {PYTHON} from your system's packages, so that it is in {}; one of your own elsewhere is not seen by locked agents",
        PROGRAM_FOLDERS.join(" or ")
    );
    Err(Failure::new(Exit::Config, "demo.no_python", text, hint))
}

/// Returns true if a sandbox can run what lies there.
fn is_program_inside(path: &Path) -> bool {
    let Ok(real) = path.canonicalize() else { return false };
    let is_program =
        real.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    is_program && SEEN_FOLDERS.iter().any(|folder| real.starts_with(folder))
}

fn no_namespaces() -> Failure {
    let text = "locked agents need user namespaces, and this machine has none for you";
    Failure::new(Exit::Blocked, "demo.no_namespaces", text, "`writ doctor` says how to allow them")
}

fn look_around(context: &Context, place: &FleetPlace) -> Result<(), Failure> {
    let (home, root) = (place.home(), place.root().display());
    let home = home.display();
    print_text(context, "\nLook around:")?;
    print_text(
        context,
        format!("  writ --home {home} audit tail          what the engine did, entry by entry"),
    )?;
    for agent in [REFUND_AGENT, SENIOR_AGENT, ADDRESS_AGENT] {
        print_text(context, format!("  less {root}/agents/{agent}/agent.py"))?;
    }
    print_text(context, format!("  rm -r {root}    when you are done"))
}
