//! Squid, with a configuration of its own, as long as it is measured.

#![expect(clippy::disallowed_types, reason = "a build tool is a client of what it measures on loopback")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::load::HOST;
use crate::socket::free_port;
use task_process::{Program, Running};

/// The place of Debian's program; not in every user's `PATH`.
const PROGRAM: &str = "/usr/sbin/squid";
/// The time that it may take to start.
const STARTS_WITHIN: Duration = Duration::from_secs(30);
/// The pause before another try.
const AGAIN: Duration = Duration::from_millis(10);

/// Squid on a free port. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Squid {
    _process: Running,
    _folder: TempDir,
    port: u16,
}

/// Returns true if it is installed.
pub(super) fn exists() -> bool {
    task_process::exists("squid") || Path::new(PROGRAM).is_file()
}

impl Squid {
    /// Starts it, and waits until it accepts connections.
    pub(super) fn start() -> Result<Self> {
        let program =
            if task_process::exists("squid") { PathBuf::from("squid") } else { PathBuf::from(PROGRAM) };
        // Started by root, it becomes another user, who has to write here: not below a private folder.
        let folder = TempDir::with_prefix("writ-squid-")?;
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777))?;
        let port = free_port()?;
        let path = folder.path().join("squid.conf");
        std::fs::write(folder.path().join("hosts"), format!("127.0.0.1 {HOST}\n"))?;
        std::fs::write(&path, configuration(folder.path(), port))?;
        // It says that it accepts connections a moment before it does.
        let mut process = Program::new(&program, &["-N", "-f"]).argument(&path).spawn()?;
        process.pass_over();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(until_open(port)).with_context(|| {
            let log = std::fs::read_to_string(folder.path().join("cache.log")).unwrap_or_default();
            format!("squid does not start: {log}")
        })?;
        Ok(Self { _process: process, _folder: folder, port })
    }

    /// Returns its address.
    pub(super) const fn port(&self) -> u16 {
        self.port
    }
}

/// Waits until a port of loopback accepts connections.
async fn until_open(port: u16) -> Result<()> {
    let begun = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
        ensure!(begun.elapsed() < STARTS_WITHIN, "nobody accepts connections on port {port}");
        sleep(AGAIN).await;
    }
    Ok(())
}

/// Nothing is cached, everything is logged; one process, as ours is.
fn configuration(folder: &Path, port: u16) -> String {
    let folder = folder.display();
    format!(
        "http_port 127.0.0.1:{port}\n\
         visible_hostname {HOST}\n\
         hosts_file {folder}/hosts\n\
         dns_nameservers 127.0.0.1\n\
         http_access allow localhost\n\
         http_access deny all\n\
         cache deny all\n\
         access_log stdio:{folder}/access.log\n\
         cache_log {folder}/cache.log\n\
         coredump_dir {folder}\n\
         pid_filename {folder}/squid.pid\n\
         pinger_enable off\n\
         shutdown_lifetime 0 seconds\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_listens_on_loopback_and_writes_into_its_folder() {
        let text = configuration(Path::new("/tmp/q"), 3128);
        assert!(text.starts_with("http_port 127.0.0.1:3128\n"), "{text}");
        let written = text.lines().filter(|line| line.contains("/tmp/q/")).count();
        assert_eq!(written, 4, "{text}");
        assert!(text.lines().all(|line| !line.starts_with(' ')), "{text}");
    }
}
