//! `writ service`: a unit that starts the engine. It is written and removed here; starting and stopping is left to the
//! system's own program, because the engine starts no program but itself and git.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;
use serde_json::{Value, json};
use writ_types::error::Exit;

use crate::args::{Manager, ServiceArgs, ServiceCommand};
use crate::client::EngineClient;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::block_on;
use unit::{ServiceUnit, UnitError};

mod unit;

mod systemd;

mod launchd;

mod apparmor;

/// The largest unit that is read, in bytes.
const MAX_UNIT_BYTES: u64 = 64 * 1024;
/// Says whether this system lets unprivileged programs use user namespaces only under a profile.
const RESTRICTED: &str = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";

/// Runs `writ service …`.
pub(crate) fn run_service(context: &Context, command: &ServiceCommand) -> Result<(), Failure> {
    match command {
        ServiceCommand::Install(args) => install_unit(context, args),
        ServiceCommand::Uninstall => uninstall_unit(context),
        ServiceCommand::Status => print_status(context),
        ServiceCommand::Apparmor => {
            context.out.print_line(apparmor::write_profile(&own_executable()?)?.trim_end())
        }
    }
}

/// Returns the service manager of this system.
const fn own_manager() -> Manager {
    if cfg!(target_os = "macos") { Manager::Launchd } else { Manager::Systemd }
}

fn install_unit(context: &Context, args: &ServiceArgs) -> Result<(), Failure> {
    let manager = args.manager.unwrap_or(own_manager());
    // Every check comes before the first file is written.
    let unit = wanted_unit(context, args.run_as.as_deref())?;
    let text = render_unit(manager, &unit)?;
    if args.print {
        return context.out.print_line(text.trim_end());
    }
    if manager != own_manager() {
        let hint = "add --print, and put the text where it belongs";
        return Err(Failure::new(
            Exit::Usage,
            "service.manager",
            "this system has another service manager",
            hint,
        ));
    }
    context.load_ready_config()?;
    let places = UnitPaths::new(context, manager, unit.system)?;
    write_unit(&places.unit, &text)?;
    if let Some(wants) = &places.wants {
        link_unit(&places.unit, wants)?;
    }
    context.out.print_either(&json!({ "unit": places.unit, "enabled": places.wants.is_some() }), |_| {
        vec![format!("{} is written; it starts with {}", places.unit.display(), unit.begins_with())]
    })?;
    for line in next_steps(manager, &unit, &places.unit) {
        context.out.print_remark(line);
    }
    if restricts_namespaces() {
        context.out.print_remark(
            "this system lets programs use user namespaces only with a profile; without it the sandbox",
        );
        context.out.print_remark(
            "gives reduced guarantees. As root: writ service apparmor > /etc/apparmor.d/writ &&",
        );
        context.out.print_remark("apparmor_parser --replace /etc/apparmor.d/writ");
    }
    Ok(())
}

/// Returns the content of the unit.
fn wanted_unit(context: &Context, run_as: Option<&str>) -> Result<ServiceUnit, Failure> {
    // Root installs for the system, any other user for itself.
    let system = geteuid().is_root();
    let user = match (system, run_as) {
        (true, Some(user)) => Some(user.to_owned()),
        (true, None) => {
            let hint = "name the user who owns this home; the engine needs no root";
            return Err(Failure::new(Exit::Usage, "service.user", "a system unit needs --run-as USER", hint));
        }
        (false, None) => None,
        (false, Some(_)) => {
            let hint = "leave --run-as out, or run this as root";
            return Err(Failure::new(Exit::Usage, "service.user", "your own unit runs as you", hint));
        }
    };
    let home = context.home.root().to_owned();
    Ok(ServiceUnit { exe: own_executable()?, home, logs: context.home.logs(), system, user })
}

fn render_unit(manager: Manager, unit: &ServiceUnit) -> Result<String, Failure> {
    Ok(match manager {
        Manager::Systemd => systemd::unit_text(unit)?,
        Manager::Launchd => launchd::unit_text(unit)?,
    })
}

/// The path of the unit, and the link that makes the manager start it.
#[derive(Debug)]
struct UnitPaths {
    unit: PathBuf,
    wants: Option<PathBuf>,
}

impl UnitPaths {
    fn new(context: &Context, manager: Manager, system: bool) -> Result<Self, Failure> {
        let home = || {
            context.env.path_of("HOME").ok_or_else(|| {
                Failure::new(Exit::Config, "service.home", "your home folder is not known", "set HOME")
            })
        };
        Ok(match (manager, system) {
            (Manager::Systemd, _) => {
                let folder = match system {
                    true => PathBuf::from("/etc/systemd/system"),
                    false => {
                        // A relative path in this variable is to be ignored, by its specification.
                        let config = context.env.path_of("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
                        config
                            .map_or_else(|| home().map(|home| home.join(".config")), Ok)?
                            .join("systemd/user")
                    }
                };
                let target = if system { "multi-user.target.wants" } else { "default.target.wants" };
                let wants = folder.join(target).join(systemd::NAME);
                Self { unit: folder.join(systemd::NAME), wants: Some(wants) }
            }
            (Manager::Launchd, true) => {
                Self { unit: Path::new("/Library/LaunchDaemons").join(launchd::NAME), wants: None }
            }
            (Manager::Launchd, false) => {
                Self { unit: home()?.join("Library/LaunchAgents").join(launchd::NAME), wants: None }
            }
        })
    }
}

fn next_steps(manager: Manager, unit: &ServiceUnit, path: &Path) -> Vec<String> {
    match (manager, unit.system) {
        (Manager::Systemd, true) => {
            vec!["start it now: systemctl daemon-reload && systemctl start writ".into()]
        }
        (Manager::Systemd, false) => vec![
            "start it now: systemctl --user daemon-reload && systemctl --user start writ".into(),
            "to let it run while you are not logged in: loginctl enable-linger".into(),
        ],
        (Manager::Launchd, _) => vec![format!("start it now: launchctl load -w '{}'", path.display())],
    }
}

fn uninstall_unit(context: &Context) -> Result<(), Failure> {
    let manager = own_manager();
    let system = geteuid().is_root();
    let places = UnitPaths::new(context, manager, system)?;
    let removed = remove_unit(&places)?;
    context.out.print_either(&json!({ "removed": removed }), |_| match removed.is_empty() {
        true => vec!["there is no unit".into()],
        false => removed.iter().map(|path| format!("{path} is removed")).collect(),
    })?;
    if !removed.is_empty() {
        context
            .out
            .print_remark("an engine that it has started runs until it is stopped or the machine shuts down");
    }
    Ok(())
}

/// Removes what is there of a unit, and names it.
fn remove_unit(places: &UnitPaths) -> Result<Vec<String>, Failure> {
    // The link before the unit: a manager must not start what is half removed.
    let mut removed = Vec::new();
    for path in places.wants.iter().chain([&places.unit]) {
        match fs::remove_file(path) {
            Ok(()) => removed.push(path.display().to_string()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(write_failure(path, &error)),
        }
    }
    Ok(removed)
}

fn print_status(context: &Context) -> Result<(), Failure> {
    let manager = own_manager();
    let places = UnitPaths::new(context, manager, geteuid().is_root())?;
    let found = read_unit(&places.unit)?;
    let names = found.as_deref().map(|text| unit::names_home(text, context.home.root()));
    // A link of the manager, or, where there is none, the unit itself.
    let enabled = match &places.wants {
        Some(wants) => fs::symlink_metadata(wants).is_ok(),
        None => found.is_some(),
    };
    let running = match context.home.check_permissions() {
        Ok(()) => block_on(async { Ok(EngineClient::connect(context).await?.is_some()) })?,
        Err(_) => false,
    };
    let status = json!({
        "unit": places.unit,
        "installed": found.is_some(),
        "this_home": names,
        "enabled": enabled,
        "engine": if running { "running" } else { "not running" },
        "user_namespaces_restricted": restricts_namespaces(),
    });
    context.out.print_either(&status, describe_status)
}

fn describe_status(status: &Value) -> Vec<String> {
    let flag = |name: &str| status.get(name).and_then(Value::as_bool) == Some(true);
    let text = |name: &str| status.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let unit = match (flag("installed"), flag("this_home"), flag("enabled")) {
        (false, _, _) => "not installed".to_owned(),
        (true, false, _) => format!("{} starts another home", text("unit")),
        (true, true, true) => format!("{}, enabled", text("unit")),
        (true, true, false) => format!("{}, not enabled", text("unit")),
    };
    let mut lines = vec![format!("unit     {unit}"), format!("engine   {}", text("engine"))];
    if flag("user_namespaces_restricted") {
        lines.push("sandbox  user namespaces need a profile here: see `writ service apparmor`".into());
    }
    lines
}

/// Returns true if this system restricts user namespaces to programs with a profile.
fn restricts_namespaces() -> bool {
    fs::read_to_string(RESTRICTED).is_ok_and(|text| text.trim() == "1")
}

/// The file of this program, as a unit can name it.
fn own_executable() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| Failure::internal_error("finding this program", error))
}

fn read_unit(path: &Path) -> Result<Option<String>, Failure> {
    use std::io::Read as _;
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(read_failure(path, &error)),
    };
    let mut text = String::new();
    file.take(MAX_UNIT_BYTES).read_to_string(&mut text).map_err(|error| read_failure(path, &error))?;
    Ok(Some(text))
}

/// Writes a unit as a whole or not at all.
fn write_unit(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error: io::Error| write_failure(path, &error);
    // The folder of user units need not exist yet.
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let beside = path.with_extension("new");
    fs::write(&beside, text).and_then(|()| fs::rename(&beside, path)).map_err(failed)
}

fn link_unit(unit: &Path, wants: &Path) -> Result<(), Failure> {
    let failed = |error: io::Error| write_failure(wants, &error);
    if let Some(folder) = wants.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    match std::os::unix::fs::symlink(unit, wants) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn read_failure(path: &Path, error: &io::Error) -> Failure {
    Failure::new(
        Exit::Blocked,
        "service.unreadable",
        format!("{} cannot be read: {error}", path.display()),
        "check its owner and mode",
    )
}

fn write_failure(path: &Path, error: &io::Error) -> Failure {
    let hint = "your own unit needs no root; a system unit does";
    let text = format!("{} cannot be written: {error}", path.display());
    Failure::new(Exit::Blocked, "service.unwritable", text, hint)
}

impl From<UnitError> for Failure {
    fn from(error: UnitError) -> Self {
        let hint = "move it to a path of plain characters";
        Self::new(Exit::Usage, "service.path", error.to_string(), hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Global;
    use crate::env::Env;
    use crate::host::CommandHost;

    fn context(folder: &Path) -> Context {
        let text = folder.to_str().expect("UTF-8");
        let global = Global { home: Some(folder.join("home")), json: false, quiet: true, verbose: 0 };
        Context::new(&global, CommandHost::with_env(Env::from_pairs(&[("HOME", text)]))).expect("a context")
    }

    #[test]
    fn a_unit_is_written_linked_known_again_and_removed() {
        let dir = tempfile::tempdir().expect("temp dir");
        let context = context(dir.path());
        let places = UnitPaths::new(&context, Manager::Systemd, false).expect("places");
        assert_eq!(places.unit, dir.path().join(".config/systemd/user/writ.service"));
        let wants = places.wants.clone().expect("a link");
        assert_eq!(wants, dir.path().join(".config/systemd/user/default.target.wants/writ.service"));
        assert_eq!(read_unit(&places.unit).expect("reads"), None);
        let unit = ServiceUnit {
            exe: "/usr/bin/writ".into(),
            home: context.home.root().to_owned(),
            logs: context.home.logs(),
            system: false,
            user: None,
        };
        // A second time changes nothing and is no failure.
        for _ in 0..2 {
            write_unit(&places.unit, &render_unit(Manager::Systemd, &unit).expect("text")).expect("written");
            link_unit(&places.unit, &wants).expect("linked");
        }
        let text = read_unit(&wants).expect("reads").expect("through the link");
        assert!(unit::names_home(&text, context.home.root()));
        assert!(!unit::names_home(&text, Path::new("/another/home")));
        let list = render_unit(Manager::Launchd, &unit).expect("text");
        assert!(unit::names_home(&list, context.home.root()));
        let left: Vec<_> = fs::read_dir(places.unit.parent().expect("a folder"))
            .expect("reads")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
            .collect();
        assert_eq!(left.iter().filter(|name| name.ends_with("new")).count(), 0, "{left:?}");
        assert_eq!(remove_unit(&places).expect("removed").len(), 2);
        assert_eq!(remove_unit(&places).expect("nothing is left"), Vec::<String>::new());
        assert_eq!(read_unit(&places.unit).expect("reads"), None);
    }

    #[test]
    fn units_of_the_system_and_of_a_mac_have_their_places() {
        let dir = tempfile::tempdir().expect("temp dir");
        let context = context(dir.path());
        let place = |manager, system| UnitPaths::new(&context, manager, system).expect("places").unit;
        assert_eq!(place(Manager::Systemd, true), Path::new("/etc/systemd/system/writ.service"));
        assert_eq!(place(Manager::Launchd, true), Path::new("/Library/LaunchDaemons/writ.engine.plist"));
        assert_eq!(place(Manager::Launchd, false), dir.path().join("Library/LaunchAgents/writ.engine.plist"));
    }
}
