//! What tests need beyond Rust. A test that needs one of these has its marker in its name or in
//! the name of a module that it lies in; where the need cannot be met it is left out by that name.

use anyhow::Result;

use crate::process::{self, Program};

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
    /// The `npm` program.
    Npm,
    /// The `curl` program.
    Curl,
    /// A kernel that lets an ordinary process make namespaces.
    UserNamespaces,
}

impl Need {
    const ALL: [Self; 7] =
        [Self::Git, Self::Python, Self::Pip, Self::Node, Self::Npm, Self::Curl, Self::UserNamespaces];

    /// What the names of its tests hold.
    pub(super) const fn marker(self) -> &'static str {
        match self {
            Self::Git => "needs_git",
            Self::Python => "needs_python",
            Self::Pip => "needs_pip",
            Self::Node => "needs_node",
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
            Self::Npm => Some("npm"),
            Self::Curl => Some("curl"),
            Self::UserNamespaces => None,
        }
    }

    fn is_met(self) -> bool {
        match self {
            Self::Git => process::exists("git"),
            Self::Python => process::exists("python3"),
            Self::Pip => {
                // The sandbox has the system's interpreter, whatever stands before it on this PATH.
                let pip = Program::new("/usr/bin/python3", &["-m", "pip", "--version"]);
                pip.output().is_ok_and(|output| output.success)
            }
            Self::Node => process::exists("node"),
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
pub(super) fn missing(install: bool) -> Result<Vec<Need>> {
    let unmet = || Need::ALL.into_iter().filter(|need| !need.is_met()).collect::<Vec<_>>();
    let packages: Vec<&str> = unmet().into_iter().filter_map(Need::package).collect();
    if install && !packages.is_empty() && process::exists("apt-get") {
        println!("installing {}", packages.join(", "));
        if !install_packages(&packages)? {
            println!("could not install {}", packages.join(", "));
        }
    }
    Ok(unmet())
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
