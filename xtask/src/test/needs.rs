//! Requirements of tests beyond Rust. A test that needs one of these has its marker in its name or in the
//! name of its module; where the need cannot be met it is left out by that name.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use task_process::Program;

/// A package for Python in an environment of its own below the target folder: its folder, its version, and what is
/// imported to see whether it is there.
struct Environment {
    folder: &'static str,
    packages: &'static [&'static str],
    module: &'static str,
}

/// The OpenAI client that is tested with.
const OPENAI: Environment = Environment { folder: "openai", packages: &["openai==3.54.0"], module: "openai" };
/// The clients of two vendors, with which agents ask the model router.
const CLIENTS: Environment = Environment {
    folder: "clients",
    packages: &["openai==3.57.0", "anthropic==2.14.0"],
    module: "openai, anthropic",
};
/// The frameworks that speak to the agent as to a model.
const LANGCHAIN: Environment = Environment {
    folder: "langchain",
    packages: &["langchain-openai==1.7.4", "litellm==1.110.2"],
    module: "langchain_openai, litellm",
};
/// The OpenAI client for Node, and its folder below the target folder.
const OPENAI_JS: (&str, &str) = ("openai@7.57.0", "openai-js");
/// The tool that makes requests from the document of the API.
const SCHEMATHESIS: Environment =
    Environment { folder: "schemathesis", packages: &["schemathesis==4.32.5"], module: "schemathesis" };

/// The number of times that a daemon that was started is asked whether it is there, and the time before each.
const PROBES: usize = 150;
const PROBE_EVERY: Duration = Duration::from_millis(200);

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
    /// The `go` program.
    Go,
    /// The OpenAI client for Python, in an environment of its own below the target folder.
    OpenAi,
    /// The clients of OpenAI and Anthropic for Python, in an environment of their own below the target folder.
    ModelClients,
    /// The OpenAI client for Node, in a folder of its own below the target folder.
    OpenAiJs,
    /// LangChain and LiteLLM, in an environment of their own below the target folder.
    LangChain,
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
    /// The `squid` program.
    Squid,
    /// The `nginx` program.
    Nginx,
    /// A PostgreSQL server.
    Postgres,
    /// The `tmux` program.
    Tmux,
    /// Docker's daemon, which root has to start, and a static program to make an image of.
    Docker,
    /// A kernel that lets an ordinary process make namespaces.
    UserNamespaces,
}

impl Need {
    const ALL: [Self; 20] = [
        Self::Git,
        Self::Python,
        Self::Pip,
        Self::Node,
        Self::Go,
        Self::Npm,
        Self::Curl,
        Self::Squid,
        Self::Nginx,
        Self::Postgres,
        Self::Tmux,
        Self::Docker,
        Self::OpenAi,
        Self::ModelClients,
        Self::OpenAiJs,
        Self::LangChain,
        Self::Schemathesis,
        Self::Promtool,
        Self::Systemd,
        Self::UserNamespaces,
    ];

    /// Returns the word in the names of its tests.
    pub(super) const fn marker(self) -> &'static str {
        match self {
            Self::Git => "needs_git",
            Self::Python => "needs_python",
            Self::Pip => "needs_pip",
            Self::Node => "needs_node",
            Self::Go => "needs_go",
            Self::OpenAi => "needs_openai",
            Self::ModelClients => "needs_clients",
            Self::OpenAiJs => "needs_jsopenai",
            Self::LangChain => "needs_langchain",
            Self::Schemathesis => "needs_schemathesis",
            Self::Promtool => "needs_promtool",
            Self::Systemd => "needs_systemd",
            Self::Npm => "needs_npm",
            Self::Curl => "needs_curl",
            Self::Squid => "needs_squid",
            Self::Nginx => "needs_nginx",
            Self::Postgres => "needs_postgres",
            Self::Tmux => "needs_tmux",
            Self::Docker => "needs_docker",
            Self::UserNamespaces => "needs_userns",
        }
    }

    /// Returns the reason for leaving its tests out.
    pub(super) const fn reason(self) -> &'static str {
        match self {
            Self::Git => "git is not installed",
            Self::Python => "python3 is not installed",
            Self::Pip => "pip is not installed for the system's python3",
            Self::Node => "node is not installed",
            Self::Go => "go is not installed",
            Self::OpenAi => "the OpenAI client for Python is not installed",
            Self::ModelClients => "the clients of OpenAI and Anthropic for Python are not installed",
            Self::OpenAiJs => "the OpenAI client for Node is not installed",
            Self::LangChain => "LangChain and LiteLLM are not installed",
            Self::Schemathesis => "schemathesis is not installed",
            Self::Promtool => "promtool is not installed",
            Self::Systemd => "systemd-analyze is not installed",
            Self::Npm => "npm is not installed",
            Self::Curl => "curl is not installed",
            Self::Squid => "squid is not installed",
            Self::Nginx => "nginx is not installed",
            Self::Postgres => "PostgreSQL is not installed",
            Self::Tmux => "tmux is not installed",
            Self::Docker => "docker.io or busybox-static is not installed, or dockerd cannot start here",
            Self::UserNamespaces => "user namespaces are switched off here",
        }
    }

    /// The Debian packages that meet it.
    const fn packages(self) -> &'static [&'static str] {
        match self {
            Self::Git => &["git"],
            Self::Python => &["python3"],
            Self::Pip => &["python3-pip"],
            Self::Node => &["nodejs"],
            Self::Go => &["golang-go"],
            Self::OpenAi | Self::ModelClients | Self::LangChain | Self::Schemathesis => &["python3-venv"],
            Self::Promtool => &["prometheus"],
            Self::Systemd => &["systemd"],
            Self::Npm | Self::OpenAiJs => &["npm"],
            Self::Curl => &["curl"],
            Self::Squid => &["squid"],
            Self::Nginx => &["nginx-light"],
            Self::Postgres => &["postgresql"],
            Self::Tmux => &["tmux"],
            Self::Docker => &["docker.io", "busybox-static"],
            Self::UserNamespaces => &[],
        }
    }

    fn is_met(self, root: &Path) -> bool {
        match self {
            Self::Git => task_process::exists("git"),
            Self::Python => task_process::exists("python3"),
            Self::Pip => {
                // The sandbox has the system's interpreter, even if this PATH has another one first.
                let pip = Program::new("/usr/bin/python3", &["-m", "pip", "--version"]);
                pip.output().is_ok_and(|output| output.success)
            }
            Self::Node => task_process::exists("node"),
            Self::Go => task_process::exists("go"),
            Self::OpenAi => OPENAI.is_there(root),
            Self::ModelClients => CLIENTS.is_there(root),
            Self::OpenAiJs => {
                task_process::exists("node") && client_for_node(root).join("package.json").exists()
            }
            Self::LangChain => LANGCHAIN.is_there(root),
            Self::Schemathesis => SCHEMATHESIS.is_there(root),
            Self::Promtool => task_process::exists("promtool"),
            Self::Systemd => task_process::exists("systemd-analyze"),
            Self::Npm => task_process::exists("npm"),
            Self::Curl => task_process::exists("curl"),
            // It lies outside the search path of ordinary users.
            Self::Squid => ["/usr/sbin/squid", "/usr/bin/squid"].iter().any(|path| Path::new(path).exists()),
            Self::Nginx => ["/usr/sbin/nginx", "/usr/bin/nginx"].iter().any(|path| Path::new(path).exists()),
            // Its programs lie below a folder of their version.
            Self::Postgres => std::fs::read_dir("/usr/lib/postgresql")
                .is_ok_and(|versions| versions.flatten().any(|one| one.path().join("bin/initdb").exists())),
            Self::Tmux => task_process::exists("tmux"),
            Self::Docker => can_start_docker(root),
            Self::UserNamespaces => {
                let probe =
                    Program::new("unshare", &["--user", "--map-root-user", "--pid", "--fork", "true"]);
                probe.output().is_ok_and(|output| output.success)
            }
        }
    }
}

/// Returns true if a daemon of Docker starts here and answers, and there is a program to make an image of. The way it is started
/// is that of the tests.
#[expect(clippy::disallowed_methods, reason = "the daemon does not say when it is ready")]
fn can_start_docker(root: &Path) -> bool {
    if !Path::new("/usr/sbin/dockerd").exists() || !Path::new("/bin/busybox").exists() {
        return false;
    }
    let folder = task_process::target_directory(root).join("tmp").join("docker-probe");
    // Left by a probe that was ended.
    let _removed = std::fs::remove_dir_all(&folder);
    if std::fs::create_dir_all(&folder).is_err() {
        return false;
    }
    // A folder of the build may have a longer path than a socket can have.
    let start = "cd \"$1\" && echo {} >daemon.json && exec dockerd --host=unix:///run/writ-docker-probe.sock --data-root=\"$1/data\" \
        --exec-root=/run/writ-docker-probe --pidfile=\"$1/pid\" --config-file=\"$1/daemon.json\" --storage-driver=vfs \
        --iptables=false --ip6tables=false --bridge=none >log 2>&1";
    let answers = || {
        let host = ["--host", "unix:///run/writ-docker-probe.sock", "version"];
        Program::new("docker", &host).output().is_ok_and(|output| output.success)
    };
    let daemon = Program::new("sh", &["-c", start, "sh", &folder.to_string_lossy()]).spawn();
    let found = daemon.is_ok_and(|daemon| {
        let runs = || {
            Program::new("kill", &["-0", &daemon.pid().to_string()]).output().is_ok_and(|alive| alive.success)
        };
        (0..PROBES).any(|_| {
            std::thread::sleep(PROBE_EVERY);
            answers()
        }) && runs()
    });
    let _removed = std::fs::remove_dir_all(&folder);
    found
}

/// Returns the needs that are still unmet after the installation.
pub(super) fn missing(root: &Path, install: bool) -> Result<Vec<Need>> {
    let unmet = || Need::ALL.into_iter().filter(|need| !need.is_met(root)).collect::<Vec<_>>();
    if install && task_process::exists("python3") {
        install_environments(root)?;
    }
    let mut packages: Vec<&str> = unmet().into_iter().flat_map(Need::packages).copied().collect();
    packages.sort_unstable();
    packages.dedup();
    // A node of another source brings npm along, and Debian's package of it conflicts with that.
    packages.retain(|package| *package != "npm" || !task_process::exists("npm"));
    if install && !packages.is_empty() && task_process::exists("apt-get") {
        // One by one: a package that cannot be installed takes no other one with it.
        for package in &packages {
            println!("installing {package}");
            if !install_packages(&[package])? {
                println!("could not install {package}");
            }
        }
        if packages.contains(&"python3-venv") && task_process::exists("python3") {
            install_environments(root)?;
        }
    }
    if install && task_process::exists("npm") {
        install_client_for_node(root)?;
    }
    Ok(unmet())
}

/// The folder of the OpenAI client for Node.
fn client_for_node(root: &Path) -> PathBuf {
    task_process::target_directory(root).join("tmp").join(OPENAI_JS.1).join("node_modules/openai")
}

/// Installs the OpenAI client for Node if it is missing; none of its scripts runs.
fn install_client_for_node(root: &Path) -> Result<()> {
    if client_for_node(root).join("package.json").exists() {
        return Ok(());
    }
    let (package, folder) = OPENAI_JS;
    println!("installing {package}");
    let folder = task_process::target_directory(root).join("tmp").join(folder);
    std::fs::create_dir_all(&folder)?;
    let folder = folder.to_string_lossy();
    let arguments =
        ["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", &folder, package];
    Program::new("npm", &arguments).status()?;
    Ok(())
}

/// Installs what is missing for Python; whether that worked is seen afterwards.
fn install_environments(root: &Path) -> Result<()> {
    for environment in [OPENAI, CLIENTS, LANGCHAIN, SCHEMATHESIS] {
        if !environment.is_there(root) {
            environment.install(root)?;
        }
    }
    Ok(())
}

impl Environment {
    /// Returns the folder of the environment: below what cargo gives the tests as `CARGO_TARGET_TMPDIR`.
    fn place(&self, root: &Path) -> PathBuf {
        task_process::target_directory(root).join("tmp").join(self.folder)
    }

    fn is_there(&self, root: &Path) -> bool {
        let python = self.place(root).join("bin/python");
        let probe = Program::new(&python, &["-c", &format!("import {}", self.module)]).output();
        probe.is_ok_and(|output| output.success)
    }

    fn install(&self, root: &Path) -> Result<()> {
        println!("installing {}", self.packages.join(", "));
        let folder = self.place(root);
        let pip = folder.join("bin/pip");
        let made = Program::new("python3", &["-m", "venv", &folder.to_string_lossy()]).status()?;
        if made && pip.exists() {
            let arguments = ["install", "--quiet", "--disable-pip-version-check"];
            Program::new(&pip, &[&arguments, self.packages].concat()).status()?;
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
    if !is_root && !task_process::exists("sudo") {
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
