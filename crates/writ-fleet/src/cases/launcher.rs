//! The real host of agents: `writ run` as a child with pipes. The agent itself gets no key; its launcher reads both from
//! files that only this user can read, anew with each request, and which are removed with the process.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde::Deserialize;
use writ_policy::keys::KeyToken;
use writ_sandbox::agent::FirstProcess;
use writ_sandbox::host::{OwnChild, OwnProcess, spawn_piped};
use writ_types::digest::Digest;

use super::config::ProcessLimits;
use super::ports::{AgentHost, AgentProcess, PortFault, StartOrder, StartedAgent, WaysOut};

/// The ends of the names of key files and reports.
const FILE_ENDS: [&str; 4] = ["-base.jwt", "-task.jwt", "-task.fresh", "-report.jsonl"];
/// The most of a report that is read at once, in bytes; the rest is read with the next look.
const MAX_REPORT_BYTES: u64 = 256 * 1024;
/// The most names of one look that are recorded.
const MAX_NAMES: usize = 8;
/// The reason in reports of requests that have reached their server without the headers of another agent.
const FORGED: &str = "forged_header";
/// The reasons in reports that are no attempts of the agent: a server or its key is missing.
const NOT_ITS_OWN: [&str; 3] = ["unreachable", "long_answer", "no_key"];

/// The launcher of agents as processes of this machine.
#[derive(Clone, Debug)]
pub struct LaunchedAgents {
    folder: PathBuf,
    variables: BTreeMap<String, String>,
    flags: Vec<String>,
    log: PathBuf,
}

#[derive(Debug)]
struct LaunchedProcess {
    base: PathBuf,
    task: PathBuf,
    report: ReadReport,
    /// Ends before the files are removed.
    process: Option<OwnProcess>,
}

/// A launcher's report, and how far it was read.
#[derive(Debug)]
struct ReadReport {
    path: PathBuf,
    /// The bytes that were read.
    read: u64,
    /// The first process of the agent, once it has begun.
    first: Option<FirstProcess>,
    /// The count of unreached attempts that was read last.
    unreached: u64,
}

/// A line of a report.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum ReportLine {
    Began(FirstProcess),
    Refused { reason: String, name: Option<String> },
    Ended { unreached: u64 },
}

impl ReadReport {
    const fn at(path: PathBuf) -> Self {
        Self { path, read: 0, first: None, unreached: 0 }
    }

    /// Reads the whole lines that were added since the last look.
    fn read_fresh(&mut self) -> io::Result<WaysOut> {
        let mut file = match File::open(&self.path) {
            // The launcher makes it when it has read the keys.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(WaysOut::default()),
            opened => opened?,
        };
        file.seek(SeekFrom::Start(self.read))?;
        let mut bytes = Vec::new();
        file.take(MAX_REPORT_BYTES).read_to_end(&mut bytes)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end.saturating_add(1));
        self.read = self.read.saturating_add(u64::try_from(whole).unwrap_or(u64::MAX));
        let mut tried = WaysOut::default();
        let lines = bytes.get(..whole).unwrap_or_default().split(|byte| *byte == b'\n');
        for line in lines.filter_map(|line| serde_json::from_slice(line).ok()) {
            self.add_line(line, &mut tried);
        }
        // One that is about to be killed says no last word.
        if let Some(count) = self.first.and_then(|first| first.count_unreached()) {
            self.add_unreached(count, &mut tried);
        }
        Ok(tried)
    }

    fn add_line(&mut self, line: ReportLine, tried: &mut WaysOut) {
        match line {
            ReportLine::Refused { reason, name } => {
                if NOT_ITS_OWN.contains(&reason.as_str()) {
                    return;
                }
                let is_own = reason == FORGED;
                let count = tried.refused.entry(reason).or_default();
                *count = count.saturating_add(1);
                // A request with forged headers was for one of the two names.
                let name = name.filter(|_| !is_own && tried.names.len() < MAX_NAMES);
                tried.names.extend(name.as_deref().map(plain_name));
            }
            ReportLine::Began(first) => self.first = Some(first),
            ReportLine::Ended { unreached } => self.add_unreached(unreached, tried),
        }
    }

    /// Adds what a sum over the whole run has grown by.
    fn add_unreached(&mut self, sum: u64, tried: &mut WaysOut) {
        tried.unreached = tried.unreached.saturating_add(sum.saturating_sub(self.unreached));
        self.unreached = self.unreached.max(sum);
    }
}

/// Returns a name as it may stand in the ledger: what no host can be called is an agent's own text.
fn plain_name(name: &str) -> String {
    let is_host = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte));
    if is_host && !name.is_empty() { name.to_ascii_lowercase() } else { "?".to_owned() }
}

impl Drop for LaunchedProcess {
    fn drop(&mut self) {
        // The launcher may still be about to read the files.
        self.process = None;
        for path in [&self.base, &self.task, &self.report.path] {
            if let Err(error) = remove_if_there(path) {
                tracing::warn!(%error, "a file of an agent's launcher could not be removed");
            }
        }
    }
}

impl AgentProcess for LaunchedProcess {
    fn replace_key(&mut self, task: &KeyToken) -> Result<(), PortFault> {
        // Renamed over the old one, so that a reader finds one key or the other, never half of one.
        let fresh = self.task.with_extension("fresh");
        let written = remove_if_there(&fresh)
            .and_then(|()| write_key(&fresh, task))
            .and_then(|()| fs::rename(&fresh, &self.task));
        written.map_err(|error| key_fault(&error))
    }

    fn take_ways_out(&mut self) -> WaysOut {
        self.report.read_fresh().unwrap_or_else(|error| {
            tracing::warn!(%error, "the report of an agent's launcher cannot be read");
            WaysOut::default()
        })
    }
}

impl LaunchedAgents {
    /// Makes the launcher, and removes the key files that a killed router has left behind: its agents end with it.
    ///
    /// - `folder`: for key files, of this launcher alone; made with the mode 0700.
    /// - `variables`: those of `writ run`, the home above all.
    /// - `flags`: further flags of `writ run`, sockets for instance; bounds and folder are those of each agent.
    /// - `log`: the file for its standard error.
    ///
    /// # Errors
    ///
    /// If the folder cannot be made, or a key in it cannot be removed.
    pub fn open_folder(
        folder: PathBuf,
        variables: BTreeMap<String, String>,
        flags: Vec<String>,
        log: PathBuf,
    ) -> Result<Self, PortFault> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .and_then(|()| remove_leftovers(&folder))
            .map_err(|error| key_fault(&error))?;
        Ok(Self { folder, variables, flags, log })
    }

    fn launch_agent(&self, order: &StartOrder) -> Result<StartedAgent, PortFault> {
        let mut process = self.write_keys(order)?;
        // Where it cannot be started, the end of `process` removes the key files.
        let child = spawn_piped(&self.run_args(order, &process), &self.variables, &self.log);
        let OwnChild { input, output, process: running } =
            child.map_err(|error| PortFault(error.to_string()))?;
        process.process = Some(running);
        Ok(StartedAgent { input: Box::new(input), output: Box::new(output), process: Box::new(process) })
    }

    /// Writes both keys into files that are named by the hash of the key with which the process begins: one that runs
    /// on after its case was taken never reads the key of the next holder.
    fn write_keys(&self, order: &StartOrder) -> Result<LaunchedProcess, PortFault> {
        let key = Digest::of_bytes(order.task.as_bytes());
        let file = |role: &str| self.folder.join(format!("{}-{key}-{role}.jwt", order.case));
        let (base, task) = (file("base"), file("task"));
        write_key(&base, &order.base).map_err(|error| key_fault(&error))?;
        if let Err(error) = write_key(&task, &order.task) {
            let _ = remove_if_there(&base);
            return Err(key_fault(&error));
        }
        let report = ReadReport::at(self.folder.join(format!("{}-{key}-report.jsonl", order.case)));
        Ok(LaunchedProcess { base, task, report, process: None })
    }

    fn run_args(&self, order: &StartOrder, keys: &LaunchedProcess) -> Vec<String> {
        let path = |path: &Path| path.display().to_string();
        let mut args = vec!["run".to_owned(), "--base".to_owned(), path(&keys.base)];
        args.extend(["--task".to_owned(), path(&keys.task)]);
        args.extend(["--report".to_owned(), path(&keys.report.path)]);
        // Also if this process is killed, no agent goes on without its router.
        args.extend(["--parent".to_owned(), std::process::id().to_string()]);
        args.extend(self.flags.iter().cloned());
        args.extend(limit_flags(order.limits));
        if let Some(folder) = &order.folder {
            args.extend(["--folder".to_owned(), path(folder)]);
        }
        // Everything after it is the agent's, also what looks like a flag.
        args.push("--".to_owned());
        args.extend(order.command.iter().cloned());
        args
    }
}

impl AgentHost for LaunchedAgents {
    fn start_agent(&self, order: StartOrder) -> BoxFuture<'_, Result<StartedAgent, PortFault>> {
        async move { self.launch_agent(&order) }.boxed()
    }
}

/// Returns the limits of a process as flags of `writ run`.
fn limit_flags(limits: ProcessLimits) -> impl Iterator<Item = String> {
    let ProcessLimits { time: _, cpu, memory, processes, tmp } = limits;
    let all = [
        ("--time", Some(limits.run_time().as_secs())),
        ("--cpu", cpu),
        ("--memory", memory),
        ("--processes", processes),
        ("--tmp", tmp),
    ];
    all.into_iter().filter_map(|(flag, value)| Some([flag.to_owned(), value?.to_string()])).flatten()
}

fn write_key(path: &Path, key: &KeyToken) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(String::from(key.clone()).as_bytes())
}

/// Removes the key files and reports in a folder.
fn remove_leftovers(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if FILE_ENDS.iter().any(|end| name.ends_with(end)) {
            remove_if_there(&path)?;
        }
    }
    Ok(())
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn key_fault(error: &io::Error) -> PortFault {
    PortFault(format!("the key files: {error}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use writ_types::id::SessionId;
    use writ_types::unit::Timestamp;

    use super::*;

    const CASE: &str = "2026-03-15T14:00:00Z";

    fn key(text: &str) -> KeyToken {
        KeyToken::from_bytes(text.as_bytes().to_vec())
    }

    fn order(task: &str) -> StartOrder {
        let at = Timestamp::from_rfc_3339(CASE).expect("a time");
        StartOrder {
            case: SessionId::from_parts(at, 1),
            agent: "refund-agent".into(),
            command: vec!["python3".into(), "--time".into()],
            base: key("base"),
            task: key(task),
            folder: None,
            limits: ProcessLimits::default(),
        }
    }

    fn agents(folder: &Path) -> LaunchedAgents {
        let flags = vec!["--proxy-socket".into(), "/p.sock".into()];
        LaunchedAgents::open_folder(folder.to_owned(), BTreeMap::new(), flags, folder.join("log"))
            .expect("opens")
    }

    fn read(path: &Path) -> String {
        fs::read_to_string(path).expect("reads")
    }

    /// Two holders of one case have each its own files, also while the first one's process is still about.
    #[test]
    fn key_files_are_closed_to_others_and_no_holder_reads_the_key_of_the_next() {
        let temp = tempfile::tempdir().expect("a folder");
        let folder = temp.path().join("keys");
        let agents = agents(&folder);
        assert_eq!(fs::metadata(&folder).expect("there").mode() & 0o777, 0o700);
        let mut first = agents.write_keys(&order("first")).expect("written");
        let second = agents.write_keys(&order("second")).expect("written");
        assert_eq!(read(&first.task), String::from(key("first")));
        first.replace_key(&key("renewed")).expect("replaced");
        assert_eq!(read(&first.task), String::from(key("renewed")));
        assert_eq!(read(&second.task), String::from(key("second")));
        for path in [&first.base, &first.task, &second.task] {
            assert_eq!(fs::metadata(path).expect("there").mode() & 0o777, 0o600);
        }
        // The end of an earlier holder takes nothing of the next.
        drop(first);
        assert_eq!(read(&second.task), String::from(key("second")));
        assert!(agents.write_keys(&order("second")).is_err(), "nothing is written into a file that is there");
        assert_eq!(read(&second.task), String::from(key("second")));
    }

    #[test]
    fn key_files_go_with_the_process_and_with_the_next_router_at_the_latest() {
        let temp = tempfile::tempdir().expect("a folder");
        let agents_before = agents(temp.path());
        drop(agents_before.write_keys(&order("first")).expect("written"));
        assert_eq!(fs::read_dir(temp.path()).expect("reads").count(), 0);
        // A killed router drops nothing, not even a key that it was just replacing.
        let left = agents_before.write_keys(&order("second")).expect("written");
        fs::write(left.task.with_extension("fresh"), "half").expect("written");
        fs::write(temp.path().join("log"), "a line").expect("written");
        std::mem::forget(left);
        let mut process = agents(temp.path()).write_keys(&order("third")).expect("written");
        let mut names: Vec<String> = fs::read_dir(temp.path())
            .expect("reads")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
            .collect();
        names.sort();
        assert_eq!(names.len(), 3, "{names:?}");
        assert!(names[0].ends_with("-base.jwt") && names[1].ends_with("-task.jwt") && names[2] == "log");
        // Half a replacement does not stop the next one.
        fs::write(process.task.with_extension("fresh"), "half").expect("written");
        process.replace_key(&key("renewed")).expect("replaced");
        assert_eq!(read(&process.task), String::from(key("renewed")));
    }

    /// What the launcher has written is read once, as far as its lines are whole; what is not the agent's doing is left out.
    #[test]
    fn what_an_agent_tried_past_its_servers_is_read_once() {
        let temp = tempfile::tempdir().expect("a folder");
        let mut process = agents(temp.path()).write_keys(&order("first")).expect("written");
        assert_eq!(process.take_ways_out(), WaysOut::default(), "nothing is there yet");
        let mut report =
            OpenOptions::new().append(true).create(true).open(&process.report.path).expect("opens");
        let mut write = |text: &str| report.write_all(text.as_bytes()).expect("written");
        write(
            "{\"event\":\"refused\",\"reason\":\"other_name\",\"port\":80,\"name\":\"Example.com\"}\n\
             {\"event\":\"refused\",\"reason\":\"other_name\",\"port\":80,\"name\":\"to Ann Example\"}\n\
             {\"event\":\"refused\",\"reason\":\"unreachable\",\"port\":80,\"name\":null}\n\
             no line of a report\n\
             {\"event\":\"began\",\"process\":1,\"since\":1}\n\
             {\"event\":\"refused\",\"rea",
        );
        let tried = process.take_ways_out();
        assert_eq!((tried.to_string().as_str(), tried.count()), ("2 other name; names: ? example.com", 2));
        assert_eq!(process.take_ways_out(), WaysOut::default(), "half a line waits for its end");
        write("son\":\"forged_header\",\"port\":443,\"name\":\"llm-router.silo.internal\"}\n");
        write("{\"event\":\"ended\",\"end\":\"exited\",\"unreached\":4,\"refused\":{\"other_name\":2}}\n");
        assert_eq!(
            process.take_ways_out().to_string(),
            "1 forged header, 4 at what its network does not have"
        );
        let path = process.report.path.clone();
        drop(process);
        assert!(!path.exists(), "it goes with the process");
    }

    #[test]
    fn folder_and_limits_of_an_agent_become_flags_before_its_own_words() {
        let temp = tempfile::tempdir().expect("a folder");
        let agents = agents(temp.path());
        let limits = serde_json::json!({ "memory": 64, "processes": 8, "tmp": 2, "time": 60, "cpu": 5 });
        let limits: ProcessLimits = serde_json::from_value(limits).expect("limits");
        let order = StartOrder { folder: Some("/srv/agents/refund".into()), limits, ..order("task") };
        let keys = agents.write_keys(&order).expect("written");
        let args = agents.run_args(&order, &keys).join(" ");
        let (own, words) = args.split_once(" -- ").expect("two parts");
        assert_eq!(words, "python3 --time");
        assert!(own.starts_with("run ") && own.contains("--proxy-socket /p.sock"), "{own}");
        assert!(own.contains(&format!("--parent {} ", std::process::id())), "{own}");
        assert!(
            own.ends_with(" --time 60 --cpu 5 --memory 64 --processes 8 --tmp 2 --folder /srv/agents/refund"),
            "{own}"
        );
        let plain = agents.run_args(&self::order("task"), &keys).join(" ");
        assert!(plain.ends_with("--time 86400 -- python3 --time"), "{plain}");
        let unknown = serde_json::from_value::<ProcessLimits>(serde_json::json!({ "disk": 1 }));
        assert!(unknown.is_err(), "a limit that there is not is no limit");
    }
}
