//! Squid, with a configuration of its own, as long as it is measured.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use super::load::HOST;
use crate::process::{self, Program, Running};
use crate::socket::free_port;

/// Where Debian has it; no part of everybody's `PATH`.
const PROGRAM: &str = "/usr/sbin/squid";
/// What it says when clients can connect.
const ACCEPTS: &str = "Accepting HTTP Socket connections";

/// Squid on a free port. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Squid {
    _process: Running,
    _folder: TempDir,
    port: u16,
}

/// Whether it is installed.
pub(super) fn exists() -> bool {
    process::exists("squid") || Path::new(PROGRAM).is_file()
}

impl Squid {
    /// Starts it, and waits until it accepts connections.
    pub(super) fn start() -> Result<Self> {
        let program = if process::exists("squid") { PathBuf::from("squid") } else { PathBuf::from(PROGRAM) };
        // Started by root, it becomes another user, who has to write here: not below a private folder.
        let folder = TempDir::with_prefix("writ-squid-")?;
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777))?;
        let port = free_port()?;
        let path = folder.path().join("squid.conf");
        std::fs::write(folder.path().join("hosts"), format!("127.0.0.1 {HOST}\n"))?;
        std::fs::write(&path, configuration(folder.path(), port))?;
        // It says on standard error when it accepts.
        let script = r#"exec "$0" -N -d 1 -f "$1" 2>&1"#;
        let started = Program::new("sh", &["-c", script]).argument(&program).argument(&path);
        let (mut process, mut said) = (started.spawn()?, String::new());
        while !said.contains(ACCEPTS) {
            said = process.line().with_context(|| format!("squid does not start: {said}"))?;
        }
        process.pass_over();
        Ok(Self { _process: process, _folder: folder, port })
    }

    /// Where it listens.
    pub(super) const fn port(&self) -> u16 {
        self.port
    }
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
