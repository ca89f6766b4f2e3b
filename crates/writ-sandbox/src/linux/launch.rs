//! The translation of a run from the port's terms into the messages for a sandbox of Linux.

use std::path::PathBuf;

use super::places::{Places, shown_folder};
use super::run::{JobResult, Launch};
use super::spec::{Environment, GitOverlay, JobEnd, SandboxJob as SpecJob, Spec, Walls, WorkMount};
use super::toolchain::REGISTRY;
use super::{NativeRunner, env, folder};
use crate::blocking::run_blocking;
use crate::error::SandboxError;
use crate::exec::{Ending, PROXY_PORT, WayOut};
use crate::project::copy;
use crate::project::view::{FOLDERS, Layout};
use crate::runner::{FolderAccess, Folders, GitMount, RunJob, RunRequest, RunResult};

/// Returns the launch of a run. The second rung has no layers: for a run without lasting changes the work
/// is copied first.
pub(super) async fn launch_of(
    native: &NativeRunner,
    walls: Walls,
    mut request: RunRequest,
) -> Result<Launch, SandboxError> {
    let config = &native.config;
    let session = request.folders.session.clone();
    let scratch = request.access == FolderAccess::Scratch;
    if scratch && walls == Walls::Reduced {
        let (tree, fresh) = (session.join("tree"), session.join("verify"));
        run_blocking("copy the work", move || copy::refresh_copy(&tree, &fresh)).await?;
    }
    let places = Places::of(&session, walls, scratch);
    let work = work_of(&request.folders, request.access, &places)?;
    // Taken out, since the rest of the request is still read below.
    let job = std::mem::replace(&mut request.job, RunJob::Program(Vec::new()));
    let spec = match job {
        RunJob::Program(argv) => {
            program_spec(native, native.spec(walls, SpecJob::Exec(argv), work), &request, &places)?
        }
        RunJob::File(file) => {
            let mut spec = native.spec(walls, SpecJob::Worker(file), work);
            // The worker is our own binary and needs no toolchain.
            spec.base.binds.clear();
            spec.setup.home_binds.clear();
            if walls == Walls::Reduced {
                places.open_up(request.access, &mut spec);
            }
            spec.order.cwd = places.resolve_path(walls, &request.cwd);
            spec
        }
    };
    let disk: Vec<PathBuf> = FOLDERS.map(|name| session.join(name)).into();
    Ok(Launch {
        spec,
        stdin: request.stdin,
        time: request.limits.time,
        memory: config.memory_max,
        keep: request.limits.keep,
        kill_above: request.limits.kill_above,
        disk: request.limits.disk.then_some((disk, config.overlay_max)),
        options: request.options,
        again: request.expect_more,
        hold: request.hold,
        talk: request.talk,
    })
}

/// Adds what a program gets besides: its home, its place, its git directory, its way out and its variables.
fn program_spec(
    native: &NativeRunner,
    mut spec: Spec,
    request: &RunRequest,
    places: &Places,
) -> Result<Spec, SandboxError> {
    let walls = spec.base.walls;
    let scratch = request.access == FolderAccess::Scratch;
    spec.base.empty_home = scratch;
    spec.order.cwd = places.resolve_path(walls, &request.cwd);
    if walls == Walls::Full {
        spec.setup.home = (!scratch).then(|| folder(&places.home)).transpose()?;
        spec.setup.own = request.folders.own_place();
        spec.order.own.clone_from(&spec.setup.own);
        let git = request.folders.git.as_ref().and_then(|git| git_overlay(git, request.access));
        spec.order.writable.extend(git.as_ref().map(|git| git.at.clone()));
        spec.setup.git = git;
    } else {
        places.open_up(request.access, &mut spec);
        spec.order.writable.push(places.home.clone());
    }
    if let Some(shown) = shown_folder(request) {
        // A folder of that name that an earlier program has made is covered.
        let bind = (shown.path.clone(), shown.kind.folder_name().to_owned());
        match walls {
            Walls::Full => spec.setup.home_binds.push(bind),
            Walls::Reduced => spec.order.readable.push(shown.path.clone()),
        }
    }
    spec.setup.ports = request.network.then_some(PROXY_PORT).into_iter().collect();
    let WayOut { certificate, variables } = &request.options.way_out;
    if request.network {
        spec.setup.trust.clone_from(certificate);
    }
    let mut env = env::program_variables(native, &spec, places, request);
    if request.network {
        for (name, value) in variables {
            env.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
    spec.order.env = Environment(env.into_iter().collect());
    if request.network || env::has_entries(&places.home.join(REGISTRY)) {
        // Downloads lie in the session's home, and the host's copy would hide them.
        spec.setup.home_binds.retain(|(_, at)| at != REGISTRY);
    }
    Ok(spec)
}

/// Returns the overlay of a git directory. A run without it is better than none: git finds no repository then.
fn git_overlay(git: &GitMount, access: FolderAccess) -> Option<GitOverlay> {
    let lower = folder(&git.lower).and_then(|lower| Ok((lower, folder(&git.layers)?)));
    match lower {
        Ok((lower, layers)) => {
            let GitMount { at, top, dot, .. } = git.clone();
            Some(GitOverlay { at, top, dot, lower, layers, access })
        }
        Err(why) => {
            tracing::warn!(%why, "git finds no repository in the sandbox");
            None
        }
    }
}

/// Returns what is seen at `/work`.
fn work_of(folders: &Folders, access: FolderAccess, places: &Places) -> Result<WorkMount, SandboxError> {
    Ok(match (folders.layout, &folders.project) {
        (Layout::Overlay, Some(project)) => {
            WorkMount::Overlay { project: folder(project)?, layers: folder(&folders.session)?, access }
        }
        (Layout::Overlay | Layout::Copy | Layout::Empty, _) => {
            // Without mounts there is no scratch layer: the folder is a fresh copy instead.
            let access = if places.fresh { FolderAccess::Write } else { access };
            WorkMount::Folder { path: folder(&places.work)?, access }
        }
    })
}

/// Returns the end of a run in the words of the port.
pub(super) fn run_result(done: JobResult, is_program: bool) -> Result<RunResult, SandboxError> {
    let ending = match (done.limit, done.event) {
        (Some(limit), _) => Ending::Killed { limit },
        (None, JobEnd::Exited(code)) => Ending::Exited { code },
        (None, JobEnd::Signalled(signal)) => Ending::Signalled { signal },
        (None, JobEnd::ExecFailed(libc::ENOENT | libc::ENOTDIR)) => Ending::NotFound,
        (None, JobEnd::ExecFailed(_)) => Ending::NotExecutable,
        // The model chose the working directory, so it can mend the call; any other stage is a fault of the machine.
        (None, JobEnd::SetupFailed(fault)) if is_program && fault.stage == "working directory" => {
            return Err(SandboxError::BadCommand { why: format!("working directory: {}", fault.why) });
        }
        (None, JobEnd::SetupFailed(fault)) => {
            return Err(SandboxError::Setup { stage: fault.stage, why: fault.why });
        }
    };
    Ok(RunResult { ending, stdout: done.stdout, stderr: done.stderr, duration: done.duration })
}
