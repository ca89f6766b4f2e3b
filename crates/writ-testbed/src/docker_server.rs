//! A private daemon of Docker in a temporary folder, with its own Unix socket, no network and no registry.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// The longest time until the daemon answers, and until it has ended.
const LONGEST: Duration = Duration::from_secs(60);
/// The time between two looks.
const EVERY: Duration = Duration::from_millis(100);
/// A static shell with the usual programs.
const BUSYBOX: &str = "/bin/busybox";
/// The programs of an image.
const PROGRAMS: [&str; 22] = [
    "sh", "cat", "sleep", "mount", "id", "ls", "wget", "echo", "true", "env", "nc", "touch", "head", "dd",
    "grep", "kill", "mkdir", "chown", "ps", "hostname", "tr", "sort",
];

/// A running daemon. Dropping it ends it.
#[derive(Debug)]
pub struct DockerServer {
    folder: TempDir,
    daemon: Child,
}

impl DockerServer {
    /// Starts a daemon, and waits until it answers.
    ///
    /// # Errors
    ///
    /// If Docker is not installed, or does not start; the message has the end of its log.
    pub fn start() -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("docker-").tempdir()?;
        let daemon = start_daemon(folder.path())?;
        let mut server = Self { folder, daemon };
        let began = Instant::now();
        while !server.docker(&["version"])?.status.success() {
            if server.daemon.try_wait()?.is_some() || began.elapsed() > LONGEST {
                let log = fs::read_to_string(server.folder.path().join("log")).unwrap_or_default();
                let end: Vec<&str> = log.lines().rev().take(3).collect();
                return Err(io::Error::other(format!("dockerd does not start: {}", end.join("; "))));
            }
            wait_between_looks();
        }
        Ok(server)
    }

    /// The address of the daemon, for `DOCKER_HOST`.
    pub fn address(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// The socket of the daemon.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("docker.sock")
    }

    /// Runs `docker` with these arguments.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn docker(&self, args: &[&str]) -> io::Result<Output> {
        let mut command = command("docker");
        command.args(["--host", &self.address()]).args(args).env("DOCKER_CONFIG", self.folder.path());
        command.output()
    }

    /// Makes an image of a static shell and these programs of this machine, with the libraries that they need. `changes`:
    /// lines as in a Dockerfile.
    ///
    /// # Errors
    ///
    /// If a program is not there, or the image is refused.
    pub fn make_image(&self, name: &str, programs: &[&str], changes: &[&str]) -> io::Result<()> {
        let root = self.folder.path().join("image");
        fs::create_dir_all(root.join("bin"))?;
        // Not every image has one that all may write.
        fs::create_dir_all(root.join("tmp"))?;
        fs::copy(BUSYBOX, root.join("bin/busybox"))?;
        for program in PROGRAMS {
            std::os::unix::fs::symlink("busybox", root.join("bin").join(program))?;
        }
        for program in programs {
            let listed = command("ldd").arg(program).output()?;
            let libraries = String::from_utf8_lossy(&listed.stdout).into_owned();
            // Each line has one path; the kernel's own library has none.
            for path in libraries.split_whitespace().chain([*program]).filter(|word| word.starts_with('/')) {
                let to = root.join(path.trim_start_matches('/'));
                fs::create_dir_all(to.parent().unwrap_or(&root))?;
                fs::copy(path, to)?;
            }
        }
        let archive = self.folder.path().join("image.tar");
        let packed = command("tar").arg("-C").arg(&root).arg("-cf").arg(&archive).arg(".").status()?;
        fs::remove_dir_all(&root)?;
        let file = archive.display().to_string();
        let changes: Vec<&str> = changes.iter().flat_map(|change| ["--change", change]).collect();
        let made = self.docker(&[&["import"], &changes[..], &[&file, name]].concat())?;
        fs::remove_file(archive)?;
        if packed.success() && made.status.success() {
            return Ok(());
        }
        Err(io::Error::other(String::from_utf8_lossy(&made.stderr).into_owned()))
    }

    /// Returns the names of all containers, whether they run or not.
    ///
    /// # Errors
    ///
    /// If the daemon does not answer.
    pub fn containers(&self) -> io::Result<Vec<String>> {
        let listed = self.docker(&["ps", "--all", "--format", "{{.Names}}"])?;
        Ok(String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).collect())
    }

    /// Waits until there is no container. Returns those that are left after the longest time.
    ///
    /// # Errors
    ///
    /// If the daemon does not answer.
    pub fn wait_empty(&self) -> io::Result<Vec<String>> {
        let began = Instant::now();
        loop {
            let left = self.containers()?;
            if left.is_empty() || began.elapsed() > LONGEST {
                return Ok(left);
            }
            wait_between_looks();
        }
    }
}

impl Drop for DockerServer {
    fn drop(&mut self) {
        // It ends what runs in it, and its own helper.
        let _asked =
            kill(Pid::from_raw(i32::try_from(self.daemon.id()).unwrap_or(i32::MAX)), Signal::SIGTERM);
        let began = Instant::now();
        while matches!(self.daemon.try_wait(), Ok(None)) {
            if began.elapsed() > LONGEST {
                let _killed = self.daemon.kill();
            }
            wait_between_looks();
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a daemon that starts or ends is asked again; it reports nothing"
)]
fn wait_between_looks() {
    std::thread::sleep(EVERY);
}

/// Starts the daemon: files are copied, since not every file system can be laid over another, and there is no network.
fn start_daemon(folder: &Path) -> io::Result<Child> {
    let log = File::create(folder.join("log"))?;
    let path = |name: &str| folder.join(name).display().to_string();
    let mut command = command("dockerd");
    command.arg(format!("--host=unix://{}", path("docker.sock")));
    command.arg(format!("--data-root={}", path("data"))).arg(format!("--exec-root={}", path("exec")));
    // The machine's own settings are not those of a test.
    fs::write(folder.join("daemon.json"), "{}")?;
    command.arg(format!("--pidfile={}", path("pid"))).arg(format!("--config-file={}", path("daemon.json")));
    command.args(["--storage-driver=vfs", "--iptables=false", "--ip6tables=false", "--bridge=none"]);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()
}

#[expect(
    clippy::disallowed_types,
    reason = "tests need a real engine of containers, and nothing ships this crate"
)]
fn command(program: &str) -> std::process::Command {
    let mut command = std::process::Command::new(program);
    command.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    command
}
