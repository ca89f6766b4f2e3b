//! Takes every right from the job's process, permanently, and checks that the process really has none left.

use std::path::Path;

use caps::CapSet;
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, Scope,
};

use super::seccomp::Filters;
use super::spec::{JobOrder, SandboxBase, SetupFault, Stage, Walls};
use crate::inside::{INNER_HOME, WORK};

/// The newest Landlock interface that is used; older kernels give what they have.
const LANDLOCK: ABI = ABI::V6;
/// The paths that a program may read on the second rung, where the host's whole tree is in sight.
const READABLE: [&str; 14] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/etc/ssl/certs",
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/proc",
    "/dev",
];
/// The devices that a program may write on the second rung, besides its own folders.
const WRITABLE_DEVICES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// Takes what can be taken before anything is known of the job: capabilities, new privileges, system calls.
pub(crate) fn begin_lockdown(base: &SandboxBase, filters: &Filters) -> Result<(), SetupFault> {
    drop_capabilities()?;
    nix::sys::prctl::set_no_new_privs().stage("no new privileges")?;
    filters.install_filters(base.walls, base.only_pairs)
}

/// Restricts files, which are in their places now, and looks whether the process is really locked down.
pub(crate) fn finish_lockdown(base: &SandboxBase, order: &JobOrder) -> Result<(), SetupFault> {
    restrict_paths(base, order).map_err(|why| SetupFault::new("landlock", why.to_string()))?;
    verify_rights(&std::fs::read_to_string("/proc/self/status").stage("read own status")?, base.walls)
}

/// Empties all five sets. The bounding set first: emptying it needs a capability.
fn drop_capabilities() -> Result<(), SetupFault> {
    let fault = |why: caps::errors::CapsError| SetupFault::new("capabilities", why.to_string());
    // Without this capability none is held, and none can be gained later, because `no_new_privs` is set next.
    if caps::has_cap(None, CapSet::Effective, caps::Capability::CAP_SETPCAP).map_err(fault)? {
        for capability in caps::runtime::thread_all_supported() {
            caps::drop(None, CapSet::Bounding, capability).map_err(fault)?;
        }
    }
    for set in [CapSet::Ambient, CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        caps::clear(None, set).map_err(fault)?;
    }
    Ok(())
}

/// Restricts the file system and, on the second rung, the network and signals.
fn restrict_paths(base: &SandboxBase, order: &JobOrder) -> Result<(), landlock::RulesetError> {
    let everything = AccessFs::from_all(LANDLOCK);
    let mut ruleset =
        Ruleset::default().set_compatibility(CompatLevel::BestEffort).handle_access(everything)?;
    let mut writable: Vec<&Path> = Vec::new();
    let mut readable: Vec<&Path> = Vec::new();
    if base.walls == Walls::Full {
        readable.push(Path::new("/"));
        // Paths below `/` that are read-only stay so, because their mounts are read-only.
        writable.extend(["/tmp", INNER_HOME, "/dev"].map(Path::new));
        // But a read-only mount lets pipes and devices be written.
        writable.extend((!base.one_place).then_some(Path::new(WORK)));
        writable.extend(order.writable.iter().map(|path| path.as_path()));
    } else {
        ruleset = ruleset.handle_access(AccessNet::from_all(LANDLOCK))?;
        ruleset = ruleset.scope(Scope::Signal)?.scope(Scope::AbstractUnixSocket)?;
        readable.extend(READABLE.map(Path::new));
        readable.extend(order.readable.iter().map(|path| path.as_path()));
        writable.extend(order.writable.iter().map(|path| path.as_path()));
        writable.extend(WRITABLE_DEVICES.map(Path::new));
    }
    let mut created = ruleset.create()?;
    for (paths, access) in [(readable, AccessFs::from_read(LANDLOCK)), (writable, everything)] {
        for path in paths {
            // A path that does not exist needs no rule.
            let Ok(fd) = PathFd::new(path) else { continue };
            let access = if path.is_dir() { access } else { access & AccessFs::from_file(LANDLOCK) };
            created = created.add_rule(PathBeneath::new(fd, access))?;
        }
    }
    created.restrict_self().map(drop)
}

/// Looks into the kernel's own record of this process: no capability in any set, no way back, filters on.
fn verify_rights(status: &str, walls: Walls) -> Result<(), SetupFault> {
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(str::trim)
            .unwrap_or_default()
    };
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        if u64::from_str_radix(field(set), 16) != Ok(0) {
            return Err(SetupFault::new("verify", format!("{set} is not empty")));
        }
    }
    for (name, wanted) in [("NoNewPrivs", "1"), ("Seccomp", "2")] {
        if field(name) != wanted {
            return Err(SetupFault::new("verify", format!("{name} is not {wanted}")));
        }
    }
    // Without a user namespace an ordinary user cannot empty this set, and cannot use it either.
    if walls == Walls::Full && u64::from_str_radix(field("CapBnd"), 16) != Ok(0) {
        return Err(SetupFault::new("verify", "CapBnd is not empty"));
    }
    Ok(())
}
