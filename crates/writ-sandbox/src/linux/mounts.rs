//! What a sandbox sees: a root in memory, system folders and toolchains read-only, the work folder, and an `/etc` of
//! its own. Nothing else of the host is there.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{Mode, mkdirat};

use super::init::{INNER_HOME, INNER_ID, WORK};
use super::spec::{Access, Fault, Spec, Stage, Work};
use super::{beneath, sys};

/// Where the new root is put together: every system has this folder.
const BASE: &str = "/tmp";
/// Size of the root itself: folders, links and the files of `/etc`.
const ROOT_OPTIONS: &str = "mode=0755,size=4m";
/// Size of `/dev/shm`.
const SHM_OPTIONS: &str = "mode=1777,size=64m";
/// System folders; links among them stay links.
const SYSTEM: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// What programs need of the host's `/etc` and what tells nothing: caches, links and public certificates.
const ETC: [&str; 3] = ["/etc/ld.so.cache", "/etc/alternatives", "/etc/ssl/certs"];
/// Devices that give and take nothing of the host's.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// Links that programs expect below `/dev`.
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY;
const NO_SUID: u64 = libc::MOUNT_ATTR_NOSUID;
const NO_DEV: u64 = libc::MOUNT_ATTR_NODEV;
const QUIET: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV);

/// A piece of the host, ready to be attached inside.
struct Piece {
    tree: OwnedFd,
    at: PathBuf,
    folder: bool,
    /// Whether the sandbox is as good without it.
    optional: bool,
}

/// Builds the root and moves into it.
pub(crate) fn build(spec: &Spec) -> Result<(), Fault> {
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
        .stage("private mounts")?;
    // Everything of the host is taken while its root is still in sight.
    let pieces = take(spec)?;
    let work = Source::open(spec)?;
    mount(Some("writ"), BASE, Some("tmpfs"), QUIET, Some(ROOT_OPTIONS)).stage("root")?;
    skeleton(spec)?;
    let root = open_folder(Path::new(BASE)).stage("root")?;
    for piece in &pieces {
        piece.attach(&root)?;
    }
    devices()?;
    work.mount(spec)?;
    mount(Some("proc"), &inside("/proc"), Some("proc"), QUIET | MsFlags::MS_NOEXEC, None::<&str>)
        .stage("/proc")?;
    // The host's root may own the files of /proc/sys: nobody inside writes below /proc.
    freeze(&inside("/proc"), READ_ONLY)?;
    nix::unistd::chdir(BASE).stage("enter the root")?;
    nix::unistd::pivot_root(".", ".").stage("pivot")?;
    umount2(".", MntFlags::MNT_DETACH).stage("leave the host")?;
    nix::unistd::chdir("/").stage("enter the root")?;
    freeze(Path::new("/"), READ_ONLY | NO_SUID | NO_DEV)
}

/// Clones every piece of the host that is seen inside.
fn take(spec: &Spec) -> Result<Vec<Piece>, Fault> {
    let mut pieces = Vec::new();
    for path in SYSTEM.into_iter().chain(ETC).map(Path::new).chain(spec.binds.iter().map(PathBuf::as_path)) {
        if fs::symlink_metadata(path).is_ok_and(|meta| !meta.is_symlink()) {
            pieces.push(Piece::take(path, path, READ_ONLY | NO_SUID | NO_DEV)?);
        }
    }
    for device in DEVICES {
        let path = Path::new("/dev").join(device);
        pieces.push(Piece::take(&path, &path, NO_SUID)?);
    }
    if let Some(home) = &spec.home {
        pieces.push(Piece::take(home, Path::new(INNER_HOME), NO_SUID | NO_DEV)?);
    }
    for (from, to) in &spec.home_binds {
        let piece = Piece::take(from, &Path::new(INNER_HOME).join(to), READ_ONLY | NO_SUID | NO_DEV)?;
        pieces.push(Piece { optional: true, ..piece });
    }
    Ok(pieces)
}

impl Piece {
    fn take(from: &Path, at: &Path, attributes: u64) -> Result<Self, Fault> {
        let tree = sys::clone_mount(&c_path(from)?).stage(&format!("take {}", at.display()))?;
        sys::set_mount(tree.as_fd(), attributes, true).stage(&format!("guard {}", at.display()))?;
        let folder = fs::metadata(from).stage(&format!("look at {}", at.display()))?.is_dir();
        Ok(Self { tree, at: at.to_owned(), folder, optional: false })
    }

    /// Attaches it below the new root. The way there may lie in a home that an earlier program could write: links on
    /// it are not followed, and what belongs behind one is not attached.
    fn attach(&self, root: &OwnedFd) -> Result<(), Fault> {
        let stage = format!("attach {}", self.at.display());
        let at = self.at.strip_prefix("/").unwrap_or(&self.at);
        let parent = match beneath::parent(root, at, true) {
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

/// Folders, links, `/etc`, and the parts that lie in memory.
fn skeleton(spec: &Spec) -> Result<(), Fault> {
    for path in SYSTEM {
        if let Ok(target) = fs::read_link(path) {
            std::os::unix::fs::symlink(target, inside(path)).stage("links")?;
        }
    }
    for path in ["/proc", "/dev/pts", "/dev/shm", "/etc", "/tmp", "/run", "/var", "/root", WORK, INNER_HOME] {
        fs::create_dir_all(inside(path)).stage("folders")?;
    }
    std::os::unix::fs::symlink("/tmp", inside("/var/tmp")).stage("links")?;
    for (name, text) in etc() {
        fs::write(inside(Path::new("/etc").join(name)), text).stage("/etc")?;
    }
    let size = format!("mode=1777,size={}", spec.limits.tmp_bytes);
    mount(Some("writ"), &inside("/tmp"), Some("tmpfs"), QUIET, Some(size.as_str())).stage("/tmp")?;
    if spec.home.is_none() {
        let size = format!("mode=0700,size={}", spec.limits.tmp_bytes);
        mount(Some("writ"), &inside(INNER_HOME), Some("tmpfs"), QUIET, Some(size.as_str())).stage("home")?;
    }
    Ok(())
}

/// The files of `/etc`: never the host's.
fn etc() -> [(&'static str, String); 6] {
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
    ]
}

/// Shared memory, terminals of its own, and links.
fn devices() -> Result<(), Fault> {
    mount(Some("writ"), &inside("/dev/shm"), Some("tmpfs"), QUIET, Some(SHM_OPTIONS)).stage("/dev/shm")?;
    let options = "newinstance,ptmxmode=0666,mode=0620";
    mount(Some("devpts"), &inside("/dev/pts"), Some("devpts"), MsFlags::MS_NOSUID, Some(options))
        .stage("/dev/pts")?;
    for (name, target) in DEVICE_LINKS {
        std::os::unix::fs::symlink(target, inside(Path::new("/dev").join(name))).stage("links")?;
    }
    Ok(())
}

/// The work folder's parts on the host, opened before the new root hides them.
enum Source {
    Layers { project: OwnedFd, layers: OwnedFd, access: Access },
    Folder { tree: OwnedFd, path: OwnedFd, access: Access },
}

impl Source {
    fn open(spec: &Spec) -> Result<Self, Fault> {
        match &spec.work {
            Work::Overlay { project, layers, access } => Ok(Self::Layers {
                project: open_folder(project).stage("open the project")?,
                layers: open_folder(layers).stage("open the overlay")?,
                access: *access,
            }),
            Work::Folder { path, access } => Ok(Self::Folder {
                tree: sys::clone_mount(&c_path(path)?).stage("take the work folder")?,
                path: open_folder(path).stage("open the work folder")?,
                access: *access,
            }),
        }
    }

    /// Mounts it at `/work`.
    fn mount(&self, spec: &Spec) -> Result<(), Fault> {
        let at = inside(WORK);
        match self {
            Self::Layers { project, layers, access } => {
                let project = format!("/proc/self/fd/{}", project.as_raw_fd());
                let upper = format!("/proc/self/fd/{}/upper", layers.as_raw_fd());
                let work = format!("/proc/self/fd/{}/work", layers.as_raw_fd());
                match access {
                    Access::Write => overlay(&at, &project, Some((&upper, &work))),
                    Access::Read => overlay(&at, &format!("{upper}:{project}"), None),
                    Access::Scratch => scratch(&at, &format!("{upper}:{project}"), spec),
                }
            }
            Self::Folder { tree, path, access } => {
                if *access == Access::Scratch {
                    return scratch(&at, &format!("/proc/self/fd/{}", path.as_raw_fd()), spec);
                }
                let read_only = if *access == Access::Read { READ_ONLY } else { 0 };
                sys::set_mount(tree.as_fd(), NO_SUID | NO_DEV | read_only, true)
                    .stage("guard the work folder")?;
                let on = open_folder(&at).stage("attach the work folder")?;
                sys::attach_mount(tree.as_fd(), on.as_fd()).stage("attach the work folder")
            }
        }
    }
}

/// Mounts an overlay whose changes lie in memory.
fn scratch(at: &Path, lower: &str, spec: &Spec) -> Result<(), Fault> {
    // Made below the work folder's own place, which the overlay then covers.
    let size = format!("mode=0755,size={}", spec.limits.tmp_bytes);
    mount(Some("writ"), at, Some("tmpfs"), QUIET, Some(size.as_str())).stage("scratch")?;
    let layer = open_folder(at).stage("scratch")?;
    let upper = format!("/proc/self/fd/{}/upper", layer.as_raw_fd());
    let work = format!("/proc/self/fd/{}/work", layer.as_raw_fd());
    fs::create_dir(&upper).stage("scratch")?;
    fs::create_dir(&work).stage("scratch")?;
    overlay(at, lower, Some((&upper, &work)))
}

/// Mounts one overlay.
fn overlay(at: &Path, lower: &str, upper: Option<(&str, &str)>) -> Result<(), Fault> {
    let mut options = format!("userxattr,index=off,lowerdir={lower}");
    if let Some((upper, work)) = upper {
        options.push_str(&format!(",upperdir={upper},workdir={work}"));
    }
    mount(Some("writ"), at, Some("overlay"), QUIET, Some(options.as_str())).stage("overlay")
}

/// Adds attributes to the mount at a path.
fn freeze(path: &Path, attributes: u64) -> Result<(), Fault> {
    let folder = open_folder(path).stage("guard")?;
    sys::set_mount(folder.as_fd(), attributes, false).stage("guard")
}

fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    Ok(open(path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?)
}

/// A path inside, while the new root still lies below [`BASE`].
fn inside(path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    Path::new(BASE).join(path.strip_prefix("/").unwrap_or(path))
}

fn c_path(path: &Path) -> Result<CString, Fault> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Fault::new("paths", "one holds a zero byte"))
}
