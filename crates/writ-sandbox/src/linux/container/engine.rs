//! The engine's program: what it is asked, and with which flags it makes a container.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Child;
use tokio::task::JoinHandle;

use super::layout::{AUTHORITY, CONTROL, INSIDE};
use super::program::OwnProgram;
use crate::agent::AgentLimits;
use crate::container::{ContainerEngine, ContainerError, ContainerOrder, ImageName};
use crate::inside::WORK;

/// The folders in which engines are looked for.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";
/// The most that is read of an engine's answer, in bytes; the rest is not waited for.
const ANSWER_MAX: u64 = 1024 * 1024;
/// The most that is repeated of its words, in characters.
const WORDS_MAX: usize = 300;
/// The longest time for an answer: a daemon may be started by its socket.
const ANSWER_TIME: Duration = Duration::from_secs(60);
/// Processes of one user, where an engine insists on a bound of these.
const USER_PROCESSES: u64 = 32 * 1024;
/// The exit code of an engine for a container whose first process was killed: 128 and the signal.
const KILLED: i32 = 128 + libc::SIGKILL;
/// Variables of images that would change how our own program is loaded.
const LOADER_VARIABLES: [&str; 3] = ["LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT"];

/// A client of an engine, with the variables that it needs and none of the person's others.
#[derive(Clone, Debug)]
pub(crate) struct ContainerClient {
    pub(crate) engine: ContainerEngine,
    program: PathBuf,
    variables: BTreeMap<&'static str, PathBuf>,
}

/// An image that is on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundImage {
    /// Its digest: a name may come to mean another one.
    pub(crate) id: ImageName,
    /// Its variables.
    pub(crate) variables: Vec<(String, String)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ImageAnswer {
    id: String,
    config: Option<ImageConfig>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct ImageConfig {
    env: Option<Vec<String>>,
    volumes: Option<BTreeMap<String, serde_json::Value>>,
}

/// The parts of a container.
#[derive(Debug)]
pub(crate) struct ContainerParts<'a> {
    /// Its name, and that of its folder on the host.
    pub(crate) name: &'a str,
    pub(crate) image: &'a FoundImage,
    /// The user and group inside.
    pub(crate) user: u32,
    pub(crate) limits: &'a AgentLimits,
    /// The limit of processes, with our own.
    pub(crate) processes: u64,
    /// Names that lead to its own loopback address.
    pub(crate) names: &'a [String],
    /// The folder on the host with the socket and the authority.
    pub(crate) place: &'a Path,
    /// The folder at `/work`.
    pub(crate) folder: Option<&'a Path>,
    pub(crate) program: &'a OwnProgram,
}

/// The program that makes a container and waits for its removal.
#[derive(Debug)]
pub(crate) struct RunClient {
    child: Child,
    words: JoinHandle<String>,
}

impl ContainerClient {
    /// Finds the engine of an order.
    pub(crate) fn find_engine(order: &ContainerOrder, settings: &Path) -> Result<Self, ContainerError> {
        let wanted = order.engine;
        let found = ContainerEngine::ALL
            .into_iter()
            .filter(|engine| wanted.is_none_or(|wanted| wanted == *engine))
            .find_map(|engine| Some((engine, find_program(engine.as_str())?)));
        let missing = wanted.map_or("docker or podman", ContainerEngine::as_str);
        let (engine, program) = found.ok_or(ContainerError::Missing { engine: missing })?;
        let mut variables = BTreeMap::from([("PATH", PATH.into()), ("LC_ALL", "C.UTF-8".into())]);
        match engine {
            ContainerEngine::Docker => {
                let socket = order.daemon_socket()?;
                variables.insert("DOCKER_HOST", format!("unix://{}", socket.display()).into());
                // A person's own settings would put the variables of their proxies, with passwords, into the container.
                variables.insert("DOCKER_CONFIG", settings.to_owned());
            }
            ContainerEngine::Podman => {
                variables.extend(order.home.clone().map(|home| ("HOME", home)));
                variables.extend(order.runtime.clone().map(|runtime| ("XDG_RUNTIME_DIR", runtime)));
            }
        }
        Ok(Self { engine, program, variables })
    }

    #[expect(clippy::disallowed_types, reason = "this crate is the one that starts processes")]
    fn command(&self, args: &[String]) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(&self.program);
        // In a group of its own: what a terminal sends to ours is for us to pass on.
        command.args(args).env_clear().envs(&self.variables).current_dir("/").process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// Asks something. Returns the answer, or what it says against it.
    async fn ask(&self, args: &[&str]) -> Result<Result<String, String>, ContainerError> {
        let fault = |why: String| ContainerError::Engine { engine: self.engine, why };
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let mut command = self.command(&args);
        let mut child = command
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|why| fault(why.to_string()))?;
        let (answer, words) = (child.stdout.take(), child.stderr.take());
        let all = async { tokio::join!(read_text(answer), read_text(words), child.wait()) };
        let (answer, words, status) = tokio::time::timeout(ANSWER_TIME, all)
            .await
            .map_err(|_| fault(format!("not within {} seconds", ANSWER_TIME.as_secs())))?;
        let ended = status.map_err(|why| fault(why.to_string()))?;
        Ok(if ended.success() { Ok(answer) } else { Err(short_words(&words)) })
    }

    /// Looks an image up.
    pub(crate) async fn find_image(&self, image: &ImageName) -> Result<FoundImage, ContainerError> {
        let answer = match self.ask(&["image", "inspect", "--", image.as_str()]).await? {
            Ok(answer) => answer,
            Err(why) if is_no_image(&why) => {
                return Err(ContainerError::NoImage { engine: self.engine, image: image.as_str().into() });
            }
            Err(why) => return Err(ContainerError::Engine { engine: self.engine, why }),
        };
        read_image(&answer).map_err(|why| ContainerError::Image { image: image.as_str().into(), why })
    }

    /// Makes a container, and starts it.
    pub(crate) fn run_container(&self, parts: &ContainerParts<'_>) -> Result<RunClient, ContainerError> {
        let fault =
            |why: std::io::Error| ContainerError::Engine { engine: self.engine, why: why.to_string() };
        let args = container_args(self.engine, parts);
        let mut child = self.command(&args).spawn().map_err(fault)?;
        let words = tokio::spawn(read_text(child.stderr.take()));
        Ok(RunClient { child, words })
    }

    /// Returns the names of containers that were made and do not run.
    pub(crate) async fn list_ended(&self, prefix: &str) -> Vec<String> {
        let filter = format!("name={prefix}");
        let args =
            ["ps", "--all", "--filter", &filter, "--filter", "status=created", "--filter", "status=exited"];
        // An engine that does not answer this does not answer what follows either.
        let answer = self.ask(&[&args[..], &["--format", "{{.Names}}"]].concat()).await;
        let names = answer.ok().and_then(Result::ok).unwrap_or_default();
        names.lines().map(|name| name.trim().to_owned()).collect()
    }

    /// Removes a container, whether it runs or not. Returns true if none of this name is left.
    pub(crate) async fn remove_container(&self, name: &str) -> bool {
        // The engine may be removing it itself: what counts is that it is not listed.
        let _removed = self.ask(&["rm", "--force", "--volumes", name]).await;
        let filter = format!("name=^/?{name}$");
        let left = self.ask(&["ps", "--all", "--quiet", "--filter", &filter]).await;
        matches!(left, Ok(Ok(left)) if left.trim().is_empty())
    }
}

impl RunClient {
    /// Waits for its end, which is that of the container, and returns its words; `None`: it ended well.
    pub(crate) async fn wait_end(&mut self) -> Option<String> {
        let status = self.child.wait().await;
        let words = (&mut self.words).await.unwrap_or_default();
        (!status.is_ok_and(|status| status.success())).then(|| short_words(&words))
    }

    /// Returns true if it has ended and says that the container's first process was killed.
    pub(crate) fn was_killed(&mut self) -> bool {
        let status = self.child.try_wait().ok().flatten();
        status.and_then(|status| status.code()) == Some(KILLED)
    }
}

/// Returns the arguments by which a container is made: with everything taken away that can be.
fn container_args(engine: ContainerEngine, parts: &ContainerParts<'_>) -> Vec<String> {
    let limits = parts.limits;
    let mut args: Vec<String> =
        ["run", "--rm", "--pull=never", "--network=none", "--read-only", "--cap-drop=ALL"]
            .into_iter()
            .chain([
                "--security-opt=no-new-privileges",
                "--ipc=none",
                "--cgroupns=private",
                "--log-driver=none",
            ])
            .chain(["--no-healthcheck", "--restart=no", "--hostname=agent", "--workdir=/"])
            .map(str::to_owned)
            .collect();
    if engine == ContainerEngine::Podman {
        // It would pass on this process's proxies, and make more folders that can be written.
        args.extend(["--http-proxy=false", "--read-only-tmpfs=false"].map(str::to_owned));
        // Its own defaults are above what a user, or root of a container, may set. The number of processes is that of all of a
        // user's: what bounds the agent's is the limit below.
        args.push(format!("--ulimit=nofile={0}:{0}", limits.open_files));
        args.push(format!("--ulimit=nproc={0}:{0}", parts.processes.max(USER_PROCESSES)));
    }
    // The first process listens at ports that root alone may have elsewhere. Docker permits it without asking, Podman does not.
    args.push("--sysctl=net.ipv4.ip_unprivileged_port_start=0".to_owned());
    args.push(format!("--name={}", parts.name));
    args.push(format!("--user={0}:{0}", parts.user));
    args.push(format!("--memory={}", limits.memory));
    // Together with swap: as much as without.
    args.push(format!("--memory-swap={}", limits.memory));
    args.push(format!("--pids-limit={}", parts.processes));
    // A folder of the image gives it its own mode, which root alone may write in some: there the owner counts. Podman knows none.
    let owner = match engine {
        ContainerEngine::Docker => format!("uid={0},gid={0},mode=0700", parts.user),
        ContainerEngine::Podman => "notmpcopyup,mode=1777".to_owned(),
    };
    args.push(format!("--tmpfs=/tmp:rw,exec,nosuid,nodev,{owner},size={}", limits.tmp));
    args.extend(parts.names.iter().map(|name| format!("--add-host={name}:127.0.0.1")));
    // Empty is as good as not set.
    args.extend(LOADER_VARIABLES.map(|name| format!("--env={name}=")));
    let place = |name: &str| parts.place.join(name);
    args.push(bind_arg(&place("control"), CONTROL));
    args.push(bind_arg(&place("authority"), AUTHORITY));
    args.extend(parts.program.files.iter().map(|(path, name)| bind_arg(path, &format!("{INSIDE}/{name}"))));
    args.extend(parts.folder.map(|folder| bind_arg(folder, WORK)));
    let (first, rest) = parts.program.command_line();
    args.push(format!("--entrypoint={first}"));
    args.extend(["--".to_owned(), parts.image.id.as_str().to_owned()]);
    args.extend(rest);
    args
}

/// Returns the argument that shows a file or folder of this machine, read-only. It is a line of comma-separated values, in
/// which a path may hold commas.
fn bind_arg(from: &Path, to: &str) -> String {
    let from = format!("src={}", from.display()).replace('"', "\"\"");
    format!("--mount=type=bind,\"{from}\",dst={to},readonly")
}

/// Reads what an engine knows of an image.
fn read_image(answer: &str) -> Result<FoundImage, String> {
    let answers: Vec<ImageAnswer> = serde_json::from_str(answer)
        .map_err(|why| format!("the engine's answer about it cannot be read: {why}"))?;
    let found = answers.into_iter().next().ok_or("the engine says nothing about it")?;
    let id = ImageName::parse_name(&found.id).ok_or("its digest cannot be read")?;
    let config = found.config.unwrap_or_default();
    // Folders of that kind can be written, and lie on the host's disk.
    if let Some(volume) = config.volumes.unwrap_or_default().into_keys().next() {
        return Err(format!("it declares the volume '{volume}', which the agent could write"));
    }
    let variables = config.env.unwrap_or_default();
    let pairs = variables.iter().filter_map(|text| text.split_once('='));
    let variables = pairs
        .filter(|(name, value)| !name.is_empty() && !value.contains('\0'))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    Ok(FoundImage { id, variables })
}

/// Returns true for the words in which engines say that there is no such image.
fn is_no_image(words: &str) -> bool {
    let words = words.to_ascii_lowercase();
    ["no such image", "image not known", "unable to find image"].iter().any(|known| words.contains(known))
}

fn find_program(name: &str) -> Option<PathBuf> {
    PATH.split(':').map(|folder| Path::new(folder).join(name)).find(|path| path.is_file())
}

/// Reads the beginning of a stream, and the rest of it away.
async fn read_text(stream: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        let mut first = stream.take(ANSWER_MAX);
        // After an error the bytes so far are taken as the answer, which is then refused as malformed.
        let _read = first.read_to_end(&mut bytes).await;
        let _rest = tokio::io::copy(&mut first.into_inner(), &mut tokio::io::sink()).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The words of an engine, in one line.
fn short_words(words: &str) -> String {
    // Warnings come before the reason, and a hint at the help after it.
    let lines = words.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("WARNING"));
    let line = lines.filter(|line| !line.contains("--help")).collect::<Vec<_>>().join(" ");
    let plain = line.chars().map(|c| if c.is_control() { ' ' } else { c });
    let short: String = plain.take(WORDS_MAX).collect();
    if short.is_empty() { "it gives no reason".into() } else { short }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_made_without_everything_that_can_be_taken_from_it() {
        let image = FoundImage { id: ImageName::parse_name("sha256:00").unwrap(), variables: Vec::new() };
        let limits = AgentLimits { memory: 4096, tmp: 1024, ..AgentLimits::default() };
        let program =
            OwnProgram { files: vec![("/opt/a,\"b\"/writ".into(), "program".into())], loaded: false };
        let parts = ContainerParts {
            name: "writ-1",
            image: &image,
            user: 60_801,
            limits: &limits,
            processes: 8,
            names: &["a.internal".into()],
            place: Path::new("/srv/x"),
            folder: Some(Path::new("/srv/agent")),
            program: &program,
        };
        let args = container_args(ContainerEngine::Docker, &parts);
        for wanted in [
            "--rm",
            "--pull=never",
            "--network=none",
            "--read-only",
            "--cap-drop=ALL",
            "--security-opt=no-new-privileges",
            "--user=60801:60801",
            "--memory=4096",
            "--memory-swap=4096",
            "--pids-limit=8",
            "--tmpfs=/tmp:rw,exec,nosuid,nodev,uid=60801,gid=60801,mode=0700,size=1024",
            "--add-host=a.internal:127.0.0.1",
            "--mount=type=bind,\"src=/opt/a,\"\"b\"\"/writ\",dst=/.writ/program,readonly",
            "--mount=type=bind,\"src=/srv/agent\",dst=/work,readonly",
            "--entrypoint=/.writ/program",
        ] {
            assert!(args.iter().any(|arg| arg == wanted), "{wanted}: {args:?}");
        }
        // The image and what follows it cannot be options.
        let at = args.iter().position(|arg| arg == "--").unwrap();
        assert_eq!(args.get(at + 1..).unwrap(), ["sha256:00", super::super::layout::MARKER]);
        assert!(!args.iter().any(|arg| arg.contains("docker.sock") || arg.starts_with("--privileged")));
        assert!(!args.contains(&"--http-proxy=false".to_owned()));
        assert!(container_args(ContainerEngine::Podman, &parts).contains(&"--http-proxy=false".to_owned()));
    }

    #[test]
    fn what_engines_say_of_images_is_understood() {
        let docker = r#"[{"Id":"sha256:00ff","RepoTags":["a:1"],"Config":{"Env":["PATH=/opt/bin:/bin","X=a=b","bad"],"Volumes":null}}]"#;
        let image = read_image(docker).unwrap();
        assert_eq!(image.id.as_str(), "sha256:00ff");
        let expected = [("PATH", "/opt/bin:/bin"), ("X", "a=b")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(image.variables, expected);
        assert_eq!(read_image(r#"[{"Id":"00ff","Config":null}]"#).unwrap().variables, []);
        let volume = r#"[{"Id":"00","Config":{"Volumes":{"/var/lib/data":{}}}}]"#;
        assert!(read_image(volume).unwrap_err().contains("/var/lib/data"));
        for bad in ["", "[]", "{}", r#"[{"Id":"--privileged"}]"#] {
            assert!(read_image(bad).is_err(), "{bad}");
        }
        assert!(is_no_image("Error: No such image: x") && is_no_image("Error: x: image not known"));
        assert!(!is_no_image(
            "Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?"
        ));
        let words =
            "WARNING: no swap\ndocker: Error\u{1b}[31m from daemon.\n\nRun 'docker run --help' for more\n";
        assert_eq!(short_words(words), "docker: Error [31m from daemon.");
    }
}
