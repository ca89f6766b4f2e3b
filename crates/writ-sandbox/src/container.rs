//! Containers for agents: the engine and the image of a person's choice, with walls that the engine makes and that are
//! looked at from outside before the program begins.

use std::path::{Path, PathBuf};

use writ_types::error::{Exit, Report, ToReport};

/// The longest name of an image: the limit of a host's name, a path and a digest together is below it.
const IMAGE_MAX: usize = 512;
/// The prefix of an engine's address on this machine.
const LOCAL: &str = "unix://";

/// A program that makes containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerEngine {
    /// Docker, which asks a daemon.
    Docker,
    /// Podman, which needs none.
    Podman,
}

impl ContainerEngine {
    /// All of them, in the order in which they are looked for.
    pub const ALL: [Self; 2] = [Self::Docker, Self::Podman];

    /// Returns the name of its program.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
        }
    }
}

/// The name or digest of an image. It cannot be read as an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageName(String);

impl ImageName {
    /// Reads a name. `None`: it begins with something else than a letter or a number, has a character that no image's
    /// name has, or is too long.
    pub fn parse_name(text: &str) -> Option<Self> {
        let first = text.bytes().next()?;
        let proper = first.is_ascii_alphanumeric()
            && text.len() <= IMAGE_MAX
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._/:@+-".contains(&byte));
        proper.then(|| Self(text.to_owned()))
    }

    /// Returns it as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The container of an agent.
#[derive(Clone, Debug)]
pub struct ContainerOrder {
    /// The image. It is never fetched: it has to be there.
    pub image: ImageName,
    /// The engine; `None`: the first that is installed.
    pub engine: Option<ContainerEngine>,
    /// The folder on the host for the socket between launcher and container; no other user may write it.
    pub folder: PathBuf,
    /// The person's home, in which Podman has its images.
    pub home: Option<PathBuf>,
    /// The person's folder of sockets, `XDG_RUNTIME_DIR`.
    pub runtime: Option<PathBuf>,
    /// The address of Docker's daemon, `DOCKER_HOST`; `None`: the system's.
    pub daemon: Option<String>,
}

impl ContainerOrder {
    /// Returns the socket of the daemon, which no agent may see.
    ///
    /// # Errors
    ///
    /// If the daemon is on another machine.
    pub fn daemon_socket(&self) -> Result<&Path, ContainerError> {
        let Some(daemon) = &self.daemon else { return Ok(Path::new("/var/run/docker.sock")) };
        let path = daemon.strip_prefix(LOCAL).map(Path::new).filter(|path| path.is_absolute());
        path.ok_or_else(|| ContainerError::Remote { daemon: daemon.clone() })
    }
}

/// The reason why an agent has no container.
#[derive(Debug, thiserror::Error)]
pub enum ContainerError {
    /// No engine is installed.
    #[error("there is no {engine} on this machine")]
    Missing {
        /// The programs that were looked for.
        engine: &'static str,
    },
    /// The daemon is on another machine: neither its limits nor its walls can be looked at.
    #[error("the container engine at {daemon} is not one of this machine")]
    Remote {
        /// Its address.
        daemon: String,
    },
    /// The engine's program cannot be started, does not end, or its daemon does not answer.
    #[error("{} does not answer: {why}", engine.as_str())]
    Engine {
        /// The engine.
        engine: ContainerEngine,
        /// Its own words, or the error of the system.
        why: String,
    },
    /// The image is not on this machine.
    #[error("{} has no image '{image}'", engine.as_str())]
    NoImage {
        /// The engine.
        engine: ContainerEngine,
        /// The image.
        image: String,
    },
    /// The image cannot be used for an agent.
    #[error("the image '{image}' cannot be used for an agent: {why}")]
    Image {
        /// The image.
        image: String,
        /// The reason.
        why: String,
    },
    /// This program cannot be shown in a container.
    #[error("{} cannot be shown in a container: {why}", program.display())]
    Program {
        /// This program's file, or one that it is loaded with.
        program: PathBuf,
        /// The reason.
        why: String,
    },
    /// The engine did not start it.
    #[error("{} did not start the container: {why}", engine.as_str())]
    Start {
        /// The engine.
        engine: ContainerEngine,
        /// Its own words.
        why: String,
    },
    /// A wall or a limit is not there: the program was not started.
    #[error("the container is not what was ordered, so the agent was not started in it: {why}")]
    Wall {
        /// The lack.
        why: String,
    },
    /// The folder for the socket cannot be used.
    #[error("the folder {} cannot be used: {source}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
}

impl ToReport for ContainerError {
    fn report(&self) -> Report {
        let text = self.to_string();
        match self {
            Self::Missing { .. } => Report::new(Exit::Blocked, "container.engine_missing", text)
                .with_hint("install docker or podman, or leave --container out: the agent is locked in without it, too"),
            Self::Remote { .. } => Report::new(Exit::Config, "container.remote", text)
                .with_hint("set DOCKER_HOST to a Unix socket of this machine, as in unix:///var/run/docker.sock"),
            Self::Engine { .. } => Report::new(Exit::Blocked, "container.engine", text).with_hint(
                "start its daemon, and look whether you may use it: `docker version` or `podman version`; DOCKER_HOST names \
                 another socket",
            ),
            Self::NoImage { .. } => Report::new(Exit::Blocked, "container.image_missing", text)
                .with_hint("images are never fetched here: `docker pull` or `podman pull` it yourself, once"),
            Self::Image { .. } => Report::new(Exit::Usage, "container.image", text)
                .with_hint("an agent writes its temporary folder alone: use an image without VOLUME"),
            Self::Program { .. } => Report::new(Exit::Blocked, "container.program", text)
                .with_hint("it becomes the container's first process: all users have to be able to read and execute it"),
            Self::Start { .. } => Report::new(Exit::Blocked, "container.start", text)
                .with_hint("the engine's own log says more: `docker events`, `journalctl -u docker`"),
            Self::Wall { .. } => Report::new(Exit::Blocked, "container.wall", text).with_hint(
                "the engine leaves something out, as rootless ones do without control groups of version 2: `docker info` \
                 lists it; without --container the agent is locked in by Writ itself",
            ),
            Self::Folder { .. } => Report::new(Exit::Blocked, "container.folder", text)
                .with_hint("look for free space and rights in the home's runtime folder"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_an_image_is_never_an_option() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        for good in ["busybox", "python:3.12-slim", "registry.example:5000/team/agent@sha256:00ff", &digest] {
            assert_eq!(ImageName::parse_name(good).as_ref().map(ImageName::as_str), Some(good));
        }
        let long = "a".repeat(IMAGE_MAX + 1);
        for bad in
            ["", "--privileged", "-v=/:/host", " a", "a b", "a\n", "a;b", "$(id)", "a\0", "ä", "/a", &long]
        {
            assert_eq!(ImageName::parse_name(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn an_engine_of_another_machine_is_refused() {
        let order = |daemon: Option<&str>| ContainerOrder {
            image: ImageName::parse_name("a").unwrap(),
            engine: None,
            folder: PathBuf::new(),
            home: None,
            runtime: None,
            daemon: daemon.map(str::to_owned),
        };
        assert_eq!(order(None).daemon_socket().unwrap(), Path::new("/var/run/docker.sock"));
        assert_eq!(order(Some("unix:///run/d.sock")).daemon_socket().unwrap(), Path::new("/run/d.sock"));
        for other in ["tcp://10.0.0.1:2375", "ssh://host", "unix://relative", "", "/run/d.sock"] {
            let error = order(Some(other)).daemon_socket().unwrap_err();
            assert_eq!(error.report().code.as_str(), "container.remote", "{other}");
        }
    }
}
