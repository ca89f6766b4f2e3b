//! The view of a sandbox: a root in memory, system folders and toolchains read-only, the work folder, and an
//! `/etc` of its own. Nothing else of the host is there.

use std::fs;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{Mode, SFlag, fstat, mkdirat};

use super::init::INNER_ID;
use super::spec::{GitOverlay, HostFolder, SandboxBase, Setup, SetupFault, Stage, WorkMount};
use super::{nameless, own, spec, sys};
use crate::inside::{INNER_HOME, WORK};
use crate::project::beneath;
use crate::runner::FolderAccess;

/// The folder in which the new root is put together: every system has it.
const BASE: &str = "/tmp";
/// Size of the root itself: folders, links and the files of `/etc`.
const ROOT_OPTIONS: &str = "mode=0755,size=4m";
/// Size of `/dev/shm`.
const SHM_OPTIONS: &str = "mode=1777,size=64m";
/// System folders; links among them stay links.
const SYSTEM: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// The parts of the host's `/etc` that programs need and that reveal nothing: caches, links and public
/// certificates.
const ETC: [&str; 3] = ["/etc/ld.so.cache", "/etc/alternatives", "/etc/ssl/certs"];
/// Devices that reveal nothing of the host and change nothing on it.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// Files of `/proc` about the whole machine, which the sandbox of an engine that runs as root could read: memory, timers and keys of
/// all users. In the sandbox they are empty.
const HIDDEN: [&str; 8] = [
    "kcore",
    "kpagecount",
    "kpageflags",
    "kpagecgroup",
    "keys",
    "timer_list",
    "sched_debug",
    "latency_stats",
];
/// Links that programs expect below `/dev`.
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// The folder of the certificates that programs in the sandbox are to trust.
const TRUST: &str = "/etc/writ";
/// The file with the one certificate besides those of the system.
pub(crate) const TRUST_MORE: &str = "/etc/writ/authority.pem";
/// The file with the system's certificates and that one.
pub(crate) const TRUST_ALL: &str = "/etc/writ/authorities.pem";
/// The size of that folder. The certificates of a system's authorities have about a quarter of a megabyte.
const TRUST_OPTIONS: &str = "mode=0755,size=4m";
/// The files in which Linux systems have the certificates of all authorities that they trust; both are visible inside.
const SYSTEM_TRUST: [&str; 2] = ["/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/certs/ca-bundle.crt"];
/// The most bytes of such a file that are read.
const SYSTEM_TRUST_MAX: u64 = 2 * 1024 * 1024;

pub(crate) const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY;
pub(crate) const NO_SUID: u64 = libc::MOUNT_ATTR_NOSUID;
pub(crate) const NO_DEV: u64 = libc::MOUNT_ATTR_NODEV;
const QUIET: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV);

/// A file or folder of the host, ready to be attached in the sandbox.
struct MountPiece {
    tree: OwnedFd,
    at: PathBuf,
    folder: bool,
    /// True if the sandbox can do without it.
    optional: bool,
}

/// Builds the new root and moves into it. No program runs in it before [`furnish_root`] has made it read-only. Until then the host's
/// root stays mounted over it, and is reached by the returned handle alone: [`furnish_root`] takes the session's folders from it.
pub(crate) fn build_root(base: &SandboxBase) -> Result<OwnedFd, SetupFault> {
    // Later unmounts of the host take effect here too; later mounts do not become visible.
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_SLAVE, None::<&str>)
        .stage("mounts of its own")?;
    // The host's files and folders are cloned while its root can still be reached.
    let pieces = clone_seen(base)?;
    let host = open_folder(Path::new("/")).stage("the host's root")?;
    mount(Some("writ"), BASE, Some("tmpfs"), QUIET, Some(ROOT_OPTIONS)).stage("root")?;
    make_skeleton(base)?;
    let root = open_folder(Path::new(BASE)).stage("root")?;
    for piece in &pieces {
        piece.attach(&root)?;
    }
    mount_devices(base)?;
    mount(Some("proc"), &path_inside("/proc"), Some("proc"), QUIET | MsFlags::MS_NOEXEC, None::<&str>)
        .stage("/proc")?;
    for name in HIDDEN {
        let at = path_inside(Path::new("/proc").join(name));
        if at.exists() {
            mount(Some(&path_inside("/dev/null")), &at, None::<&str>, MsFlags::MS_BIND, None::<&str>)
                .stage("/proc")?;
        }
    }
    // If the engine runs as root, the sandbox's user could write the files of /proc/sys, so /proc becomes read-only.
    freeze_mount(&path_inside("/proc"), READ_ONLY)?;
    nix::unistd::chdir(BASE).stage("enter the root")?;
    nix::unistd::pivot_root(".", ".").stage("pivot")?;
    nix::unistd::chdir("/").stage("enter the root")?;
    Ok(host)
}

/// Adds the session's folders and files, and detaches the host's root.
pub(crate) fn furnish_root(base: &SandboxBase, setup: &Setup, host: OwnedFd) -> Result<(), SetupFault> {
    let mut pieces = Vec::new();
    match (&setup.home, base.empty_home) {
        (Some(home), false) => {
            let folder = open_host(&host, home)?;
            pieces.push(MountPiece::clone_of(folder, Path::new(INNER_HOME), NO_SUID | NO_DEV)?);
        }
        (None, true) => {}
        (Some(_), true) | (None, false) => {
            return Err(SetupFault::new(
                "home",
                "the session needs another kind of home than the root was built with",
            ));
        }
    }
    for (from, to) in &setup.home_binds {
        let at = Path::new(INNER_HOME).join(to);
        let folder = open_below(&host, from).stage(&format!("take {}", at.display()))?;
        let piece = MountPiece::clone_of(folder, &at, READ_ONLY | NO_SUID | NO_DEV)?;
        pieces.push(MountPiece { optional: true, ..piece });
    }
    let work = WorkSource::open(setup, &host)?;
    let git = setup.git.as_ref().map(|git| WorkSource::of_git(git, &host)).transpose()?;
    let root = open_folder(Path::new("/")).stage("root")?;
    for piece in &pieces {
        piece.attach(&root)?;
    }
    work.mount(Path::new(WORK), base)?;
    let git = git.as_ref().zip(setup.git.as_ref());
    if let Some((path, text)) = git.and_then(|(_, git)| git.dot.as_ref()) {
        let _written = own::write_beside(path, text, &root);
    }
    let places = [setup.own.as_deref(), git.map(|(_, git)| git.at.as_path())];
    let [own, at] = own::make_places(places, &root);
    if let Some(own) = own {
        // If it cannot be attached, programs start in `/work`.
        let _attached = own::attach_work(own, &root);
    }
    if let Some((at, (git, _))) = at.zip(git).filter(|(at, _)| own::is_reached(at, &root)) {
        // If no overlay can be mounted on it, git finds no repository.
        let _mounted = git.mount(at, base);
    }
    if !setup.names.is_empty() {
        let names = setup.names.join(" ");
        fs::write("/etc/hosts", format!("127.0.0.1 localhost writ {names}\n")).stage("/etc/hosts")?;
    }
    // Only now, since folders on the way to the project's own path were made above.
    freeze_mount(Path::new("/"), READ_ONLY | NO_SUID | NO_DEV)?;
    if let Some(certificate) = &setup.trust {
        lay_trust(certificate)?;
    }
    umount2("/", MntFlags::MNT_DETACH).stage("leave the host")?;
    // If a mount is still attached over the root, `/..` leads to it.
    let above = fstat(open_folder(Path::new("/..")).stage("leave the host")?).stage("leave the host")?;
    let below = fstat(&root).stage("leave the host")?;
    if (above.st_dev, above.st_ino) == (below.st_dev, below.st_ino) {
        Ok(())
    } else {
        Err(SetupFault::new("leave the host", "the host's root can still be reached"))
    }
}

/// Returns the device and inode of the root, as a process of the sandbox sees it.
pub(crate) fn root_id() -> io::Result<(u64, u64)> {
    let stat = nix::sys::stat::stat("/")?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Opens a path of the host below its root.
fn open_below(host: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let path = path.strip_prefix("/").unwrap_or(path);
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    Ok(openat2(host, path, how)?)
}

/// Opens a folder of the host. Fails if another folder is at its path now.
fn open_host(host: &OwnedFd, folder: &HostFolder) -> Result<OwnedFd, SetupFault> {
    let found = open_below(host, &folder.path).stage(SetupFault::MOVED)?;
    check_folder(&found, folder)?;
    Ok(found)
}

/// Checks that an open folder is the expected one, by its device and inode.
fn check_folder(found: &OwnedFd, folder: &HostFolder) -> Result<(), SetupFault> {
    let stat = fstat(found).stage(SetupFault::MOVED)?;
    if (stat.st_dev, stat.st_ino) == (folder.device, folder.inode) {
        Ok(())
    } else {
        Err(SetupFault::new(SetupFault::MOVED, "another folder is at this path now"))
    }
}

/// Clones the files and folders of the host that every command sees.
fn clone_seen(base: &SandboxBase) -> Result<Vec<MountPiece>, SetupFault> {
    let mut pieces = Vec::new();
    for path in seen_paths(base) {
        let Ok(found) = open(path, OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())
        else {
            // Not every machine has each of these paths.
            continue;
        };
        // Links of the system, such as `/bin` to `usr/bin`, are made anew by `make_skeleton`.
        if is_kind(&found, SFlag::S_IFLNK).stage("look")? {
            continue;
        }
        pieces.push(MountPiece::clone_of(found, path, READ_ONLY | NO_SUID | NO_DEV)?);
    }
    for device in DEVICES {
        let path = Path::new("/dev").join(device);
        let found = open(&path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty());
        pieces.push(MountPiece::clone_of(found.stage("devices")?, &path, NO_SUID)?);
    }
    Ok(pieces)
}

/// Returns the paths of the host that every command with this base sees, if they exist and are not links.
pub(crate) fn seen_paths(base: &SandboxBase) -> impl Iterator<Item = &Path> {
    SYSTEM.into_iter().chain(ETC).map(Path::new).chain(base.binds.iter().map(PathBuf::as_path))
}

fn is_kind(found: &OwnedFd, kind: SFlag) -> io::Result<bool> {
    Ok(beneath::file_kind(&fstat(found)?) == kind)
}

impl MountPiece {
    fn clone_of(found: OwnedFd, at: &Path, attributes: u64) -> Result<Self, SetupFault> {
        let tree = sys::clone_mount(found.as_fd()).stage(&format!("take {}", at.display()))?;
        sys::set_mount(tree.as_fd(), attributes, true).stage(&format!("guard {}", at.display()))?;
        let folder = is_kind(&found, SFlag::S_IFDIR).stage(&format!("look at {}", at.display()))?;
        Ok(Self { tree, at: at.to_owned(), folder, optional: false })
    }

    /// Attaches the piece below the new root. Its path may lead through a home in which an earlier program could make links.
    /// Links are not followed, and a piece behind one is not attached.
    fn attach(&self, root: &OwnedFd) -> Result<(), SetupFault> {
        let stage = format!("attach {}", self.at.display());
        let at = self.at.strip_prefix("/").unwrap_or(&self.at);
        let parent = match beneath::open_parent(root, at, true) {
            // An optional piece is left out if there is no place for it, but a full disk is an error.
            Err(why) if self.optional && !matches!(why.kind(), io::ErrorKind::StorageFull) => return Ok(()),
            other => other.stage(&stage)?,
        };
        let name = at.file_name().map(Path::new).unwrap_or(Path::new("."));
        let mut flags = OFlag::O_PATH;
        if self.folder {
            flags |= OFlag::O_DIRECTORY;
            match mkdirat(&parent, name, Mode::from_bits_truncate(0o755)) {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(why) => return Err(why).stage(&stage),
            }
        } else {
            let make = OFlag::O_WRONLY | OFlag::O_CREAT;
            beneath::open_at(&parent, name, make, Mode::from_bits_truncate(0o644)).stage(&stage)?;
        }
        match beneath::open_at(&parent, name, flags, Mode::empty()) {
            Err(_) if self.optional => Ok(()),
            on => sys::attach_mount(self.tree.as_fd(), on.stage(&stage)?.as_fd()).stage(&stage),
        }
    }
}

/// Makes the folders, the links and `/etc` of the new root, and mounts its parts that lie in memory.
fn make_skeleton(base: &SandboxBase) -> Result<(), SetupFault> {
    for path in SYSTEM {
        if let Ok(target) = fs::read_link(path) {
            std::os::unix::fs::symlink(target, path_inside(path)).stage("links")?;
        }
    }
    for path in
        ["/proc", "/dev/pts", "/dev/shm", "/etc", "/tmp", "/run", "/var", "/root", TRUST, WORK, INNER_HOME]
    {
        fs::create_dir_all(path_inside(path)).stage("folders")?;
    }
    // One folder for both, so that the limit of its size holds for both together.
    std::os::unix::fs::symlink("/tmp", path_inside("/var/tmp")).stage("links")?;
    if base.one_place {
        for folder in [INNER_HOME, "/dev/shm"] {
            fs::remove_dir(path_inside(folder)).stage("links")?;
            std::os::unix::fs::symlink("/tmp", path_inside(folder)).stage("links")?;
        }
    }
    for (name, text) in etc_files() {
        fs::write(path_inside(Path::new("/etc").join(name)), text).stage("/etc")?;
    }
    let size = format!("mode=1777,size={}", base.limits.tmp_bytes);
    mount(Some("writ"), &path_inside("/tmp"), Some("tmpfs"), QUIET, Some(size.as_str())).stage("/tmp")?;
    if base.empty_home && !base.one_place {
        let size = format!("mode=0700,size={}", base.limits.tmp_bytes);
        mount(Some("writ"), &path_inside(INNER_HOME), Some("tmpfs"), QUIET, Some(size.as_str()))
            .stage("home")?;
    }
    Ok(())
}

/// Writes the certificates that programs are to trust.
fn lay_trust(certificate: &str) -> Result<(), SetupFault> {
    mount(Some("writ"), TRUST, Some("tmpfs"), QUIET, Some(TRUST_OPTIONS)).stage("trust")?;
    let mut all = Vec::new();
    for path in SYSTEM_TRUST {
        if let Ok(file) = fs::File::open(path) {
            file.take(SYSTEM_TRUST_MAX).read_to_end(&mut all).stage("trust")?;
            break;
        }
    }
    all.extend_from_slice(b"\n");
    all.extend_from_slice(certificate.as_bytes());
    fs::write(TRUST_MORE, certificate).stage("trust")?;
    fs::write(TRUST_ALL, all).stage("trust")?;
    freeze_mount(Path::new(TRUST), READ_ONLY | NO_SUID | NO_DEV)
}

/// Returns the files of `/etc` with their texts. None is a copy of the host's.
fn etc_files() -> [(&'static str, String); 7] {
    [
        (
            "passwd",
            format!(
                "root:x:0:0::/root:/usr/sbin/nologin\nagent:x:{INNER_ID}:{INNER_ID}::{INNER_HOME}:/bin/sh\n\
                 nobody:x:65534:65534::/:/usr/sbin/nologin\n"
            ),
        ),
        ("group", format!("root:x:0:\nagent:x:{INNER_ID}:\nnogroup:x:65534:\n")),
        ("hosts", "127.0.0.1 localhost writ\n::1 localhost writ\n".into()),
        ("hostname", "writ\n".into()),
        ("resolv.conf", String::new()),
        ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n".into()),
        // The owner's git identity is in a file that the sandbox does not see, and git makes no commit without one.
        ("gitconfig", "[user]\n\tname = agent\n\temail = agent@writ.invalid\n".into()),
    ]
}

/// Mounts shared memory and terminals of the sandbox's own, and makes the links below `/dev`.
fn mount_devices(base: &SandboxBase) -> Result<(), SetupFault> {
    if !base.one_place {
        mount(Some("writ"), &path_inside("/dev/shm"), Some("tmpfs"), QUIET, Some(SHM_OPTIONS))
            .stage("/dev/shm")?;
    }
    let options = "newinstance,ptmxmode=0666,mode=0620";
    mount(Some("devpts"), &path_inside("/dev/pts"), Some("devpts"), MsFlags::MS_NOSUID, Some(options))
        .stage("/dev/pts")?;
    for (name, target) in DEVICE_LINKS {
        std::os::unix::fs::symlink(target, path_inside(Path::new("/dev").join(name))).stage("links")?;
    }
    Ok(())
}

/// The host folders of which the work folder consists, opened while the host's root can still be reached.
enum WorkSource {
    Nothing,
    Layers { project: OwnedFd, layers: OwnedFd, access: FolderAccess },
    Folder { tree: OwnedFd, path: OwnedFd, access: FolderAccess },
}

impl WorkSource {
    fn open(setup: &Setup, host: &OwnedFd) -> Result<Self, SetupFault> {
        match &setup.work {
            WorkMount::Overlay { project, layers, access } => Ok(Self::Layers {
                project: open_host(host, project)?,
                layers: open_host(host, layers)?,
                access: *access,
            }),
            WorkMount::Nothing => Ok(Self::Nothing),
            WorkMount::Folder { path, access } => {
                let path = open_host(host, path)?;
                let tree = sys::clone_mount(path.as_fd()).stage("take the work folder")?;
                Ok(Self::Folder { tree, path, access: *access })
            }
            WorkMount::Handed { path, access } => {
                let tree = sys::inherited_descriptor(spec::FOLDER_FD)
                    .ok_or_else(|| SetupFault::new("take the work folder", "it was not handed over"))?;
                check_folder(&tree, path)?;
                let path = tree.try_clone().stage("take the work folder")?;
                Ok(Self::Folder { tree, path, access: *access })
            }
        }
    }

    fn of_git(git: &GitOverlay, host: &OwnedFd) -> Result<Self, SetupFault> {
        Ok(Self::Layers {
            project: open_host(host, &git.lower)?,
            layers: open_host(host, &git.layers)?,
            access: git.access,
        })
    }

    /// Mounts the work folder at a path.
    fn mount(&self, at: &Path, base: &SandboxBase) -> Result<(), SetupFault> {
        match self {
            Self::Nothing => Ok(()),
            Self::Layers { project, layers, access } => {
                // Folders are named by their descriptors, so that those that were checked are mounted, even if they were moved since.
                let project = format!("/proc/self/fd/{}", project.as_raw_fd());
                let upper = format!("/proc/self/fd/{}/upper", layers.as_raw_fd());
                let work = format!("/proc/self/fd/{}/work", layers.as_raw_fd());
                match access {
                    FolderAccess::Write => mount_overlay(at, &project, Some((&upper, &work))),
                    FolderAccess::Read => mount_overlay(at, &format!("{upper}:{project}"), None),
                    FolderAccess::Scratch => mount_scratch(at, &format!("{upper}:{project}"), base),
                }
            }
            Self::Folder { tree, path, access } => {
                if *access == FolderAccess::Scratch {
                    return mount_scratch(at, &format!("/proc/self/fd/{}", path.as_raw_fd()), base);
                }
                // An agent need not know the folder's place; others see the project at its own path as well.
                if base.one_place && *access == FolderAccess::Read {
                    return nameless::mount_nameless(tree, at);
                }
                let read_only = if *access == FolderAccess::Read { READ_ONLY } else { 0 };
                sys::set_mount(tree.as_fd(), NO_SUID | NO_DEV | read_only, true)
                    .stage("guard the work folder")?;
                let on = open_folder(at).stage("attach the work folder")?;
                sys::attach_mount(tree.as_fd(), on.as_fd()).stage("attach the work folder")
            }
        }
    }
}

/// Mounts an overlay with its changes in memory.
fn mount_scratch(at: &Path, lower: &str, base: &SandboxBase) -> Result<(), SetupFault> {
    // The memory is mounted at the overlay's own path, and the overlay then covers it.
    let size = format!("mode=0755,size={}", base.limits.tmp_bytes);
    mount(Some("writ"), at, Some("tmpfs"), QUIET, Some(size.as_str())).stage("scratch")?;
    let layer = open_folder(at).stage("scratch")?;
    let upper = format!("/proc/self/fd/{}/upper", layer.as_raw_fd());
    let work = format!("/proc/self/fd/{}/work", layer.as_raw_fd());
    fs::create_dir(&upper).stage("scratch")?;
    fs::create_dir(&work).stage("scratch")?;
    mount_overlay(at, lower, Some((&upper, &work)))
}

/// Mounts one overlay.
pub(crate) fn mount_overlay(at: &Path, lower: &str, upper: Option<(&str, &str)>) -> Result<(), SetupFault> {
    let mut options = format!("userxattr,index=off,lowerdir={lower}");
    if let Some((upper, work)) = upper {
        options.push_str(&format!(",upperdir={upper},workdir={work}"));
    }
    mount(Some("writ"), at, Some("overlay"), QUIET, Some(options.as_str())).stage("overlay")
}

/// Adds attributes to the mount at a path.
fn freeze_mount(path: &Path, attributes: u64) -> Result<(), SetupFault> {
    let folder = open_folder(path).stage("guard")?;
    sys::set_mount(folder.as_fd(), attributes, false).stage("guard")
}

pub(crate) fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    Ok(open(path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?)
}

/// Returns the present path of a file of the new root, while that root still lies below [`BASE`].
fn path_inside(path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    Path::new(BASE).join(path.strip_prefix("/").unwrap_or(path))
}
