//! What tests need beyond Rust. A test that needs one of these has its marker in its name or in
//! the name of a module that it lies in; where the need cannot be met it is left out by that name.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::process::{self, Program};

/// A package for Python in an environment of its own below the target folder: its folder, its version, and what is
/// imported to see whether it is there.
struct Environment {
    folder: &'static str,
    package: &'static str,
    module: &'static str,
}

/// The OpenAI client that is tested with.
const OPENAI: Environment = Environment { folder: "openai", package: "openai==3.54.0", module: "openai" };
/// What makes requests from the document of the API.
const SCHEMATHESIS: Environment =
    Environment { folder: "schemathesis", package: "schemathesis==4.32.5", module: "schemathesis" };

/// Something outside Rust.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// The `git` program.
    Git,
    /// A Python interpreter.
    Python,
    /// pip, as a module of the system's Python.
    Pip,
    /// The `node` program.
    Node,
    /// The OpenAI client for Python, in an environment of its own below the target folder.
    OpenAi,
    /// Schemathesis, in an environment of its own below the target folder.
    Schemathesis,
    /// The `promtool` program.
    Promtool,
    /// The `systemd-analyze` program.
    Systemd,
    /// The `npm` program.
    Npm,
    /// The `curl` program.
    Curl,
    /// A kernel that lets an ordinary process make namespaces.
    UserNamespaces,
}

impl Need {
    const ALL: [Self; 11] = [
        Self::Git,
        Self::Python,
        Self::Pip,
        Self::Node,
        Self::Npm,
        Self::Curl,
        Self::OpenAi,
        Self::Schemathesis,
        Self::Promtool,
        Self::Systemd,
        Self::UserNamespaces,
    ];

    /// What the names of its tests hold.
    pub(super) const fn marker(self) -> &'static str {
        match self {
            Self::Git => "needs_git",
            Self::Python => "needs_python",
            Self::Pip => "needs_pip",
            Self::Node => "needs_node",
            Self::OpenAi => "needs_openai",
            Self::Schemathesis => "needs_schemathesis",
            Self::Promtool => "needs_promtool",
            Self::Systemd => "needs_systemd",
            Self::Npm => "needs_npm",
            Self::Curl => "needs_curl",
            Self::UserNamespaces => "needs_userns",
        }
    }

    /// Why its tests are left out.
    pub(super) const fn reason(self) -> &'static str {
        match self {
            Self::Git => "git is not installed",
            Self::Python => "python3 is not installed",
            Self::Pip => "pip is not installed for the system's python3",
            Self::Node => "node is not installed",
            Self::OpenAi => "the OpenAI client for Python is not installed",
            Self::Schemathesis => "schemathesis is not installed",
            Self::Promtool => "promtool is not installed",
            Self::Systemd => "systemd-analyze is not installed",
            Self::Npm => "npm is not installed",
            Self::Curl => "curl is not installed",
            Self::UserNamespaces => "user namespaces are switched off here",
        }
    }

    /// The Debian package that meets it.
    const fn package(self) -> Option<&'static str> {
        match self {
            Self::Git => Some("git"),
            Self::Python => Some("python3"),
            Self::Pip => Some("python3-pip"),
            Self::Node => Some("nodejs"),
            Self::OpenAi | Self::Schemathesis => Some("python3-venv"),
            Self::Promtool => Some("prometheus"),
            Self::Systemd => Some("systemd"),
            Self::Npm => Some("npm"),
            Self::Curl => Some("curl"),
            Self::UserNamespaces => None,
        }
    }

    fn is_met(self, root: &Path) -> bool {
        match self {
            Self::Git => process::exists("git"),
            Self::Python => process::exists("python3"),
            Self::Pip => {
                // The sandbox has the system's interpreter, whatever stands before it on this PATH.
                let pip = Program::new("/usr/bin/python3", &["-m", "pip", "--version"]);
                pip.output().is_ok_and(|output| output.success)
            }
            Self::Node => process::exists("node"),
            Self::OpenAi => OPENAI.is_there(root),
            Self::Schemathesis => SCHEMATHESIS.is_there(root),
            Self::Promtool => process::exists("promtool"),
            Self::Systemd => process::exists("systemd-analyze"),
            Self::Npm => process::exists("npm"),
            Self::Curl => process::exists("curl"),
            Self::UserNamespaces => {
                let probe =
                    Program::new("unshare", &["--user", "--map-root-user", "--pid", "--fork", "true"]);
                probe.output().is_ok_and(|output| output.success)
            }
        }
    }
}

/// What is still missing after what can be installed was installed.
pub(super) fn missing(root: &Path, install: bool) -> Result<Vec<Need>> {
    let unmet = || Need::ALL.into_iter().filter(|need| !need.is_met(root)).collect::<Vec<_>>();
    if install && process::exists("python3") {
        install_environments(root)?;
    }
    let mut packages: Vec<&str> = unmet().into_iter().filter_map(Need::package).collect();
    packages.dedup();
    if install && !packages.is_empty() && process::exists("apt-get") {
        println!("installing {}", packages.join(", "));
        if !install_packages(&packages)? {
            println!("could not install {}", packages.join(", "));
        }
        if packages.contains(&"python3-venv") && process::exists("python3") {
            install_environments(root)?;
        }
    }
    Ok(unmet())
}

/// Installs what is missing for Python; whether that worked is seen afterwards.
fn install_environments(root: &Path) -> Result<()> {
    for environment in [OPENAI, SCHEMATHESIS] {
        if !environment.is_there(root) {
            environment.install(root)?;
        }
    }
    Ok(())
}

impl Environment {
    /// Where the tests look for it: below what cargo tells them as `CARGO_TARGET_TMPDIR`.
    fn place(&self, root: &Path) -> PathBuf {
        process::target_directory(root).join("tmp").join(self.folder)
    }

    fn is_there(&self, root: &Path) -> bool {
        let python = self.place(root).join("bin/python");
        let probe = Program::new(&python, &["-c", &format!("import {}", self.module)]).output();
        probe.is_ok_and(|output| output.success)
    }

    fn install(&self, root: &Path) -> Result<()> {
        println!("installing {}", self.package);
        let folder = self.place(root);
        let pip = folder.join("bin/pip");
        let made = Program::new("python3", &["-m", "venv", &folder.to_string_lossy()]).status()?;
        if made && pip.exists() {
            let arguments = ["install", "--quiet", "--disable-pip-version-check", self.package];
            Program::new(&pip, &arguments).status()?;
        }
        Ok(())
    }
}

/// Installs Debian packages, where that needs no password.
pub(super) fn install_packages(packages: &[&str]) -> Result<bool> {
    let is_root = Program::new("id", &["-u"]).output()?.stdout.trim() == "0";
    let apt = |arguments: &[&str]| {
        let arguments = [&["apt-get", "-q", "-y"], arguments].concat();
        match arguments.split_first() {
            Some((apt, rest)) if is_root => Program::new(apt, rest).status(),
            _ => Program::new("sudo", &[&["-n"], arguments.as_slice()].concat()).status(),
        }
    };
    if !is_root && !process::exists("sudo") {
        return Ok(false);
    }
    Ok(apt(&["update"])? && apt(&[&["install", "--no-install-recommends"], packages].concat())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_do_not_hide_each_other() {
        for one in Need::ALL {
            let hidden = Need::ALL.iter().filter(|other| other.marker().contains(one.marker())).count();
            assert_eq!(hidden, 1, "{one:?}");
        }
    }
}
