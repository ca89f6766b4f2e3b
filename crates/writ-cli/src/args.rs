//! The commands and flags of `writ`. `--help` shows the daily commands first.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand};
use writ_types::id::{EntrySeq, KeyId, SessionId, TurnId};

mod agent;

mod approvals;

mod audit;

mod backup;

mod context;

mod keys;

mod mcp;

mod plugins;

mod jobs;

mod memory;

mod models;

mod fleet;

mod gates;

mod hooks;

mod operations;

mod paths;

mod plan;
mod policy;

mod pilot;

mod run;

mod service;
mod work;

mod sessions;

mod proxy;

pub(crate) use agent::AgentCommand;
pub(crate) use approvals::ApprovalsCommand;
pub(crate) use audit::AuditCommand;
pub(crate) use backup::{BackupArgs, BackupCommand};
pub(crate) use context::{BudgetArgs, BudgetCommand, ContextCommand, SessionChoice};
pub(crate) use fleet::{BackArgs, FleetCommand, FleetStatusArgs, MessagesArgs};
pub(crate) use gates::GatesCommand;
pub(crate) use hooks::HooksCommand;
pub(crate) use jobs::JobsCommand;
pub(crate) use keys::{
    ApproverCommand, BaseCommand, CheckArgs, KeyOut, KeysCommand, OrderCommand, RotateCommand, SignArgs,
    TaskCommand,
};
pub(crate) use mcp::{AddServer, McpCommand};
pub(crate) use memory::{ImportMode, MemoryCommand};
pub(crate) use models::{DoctorArgs, ModelsCommand};
pub(crate) use operations::{OperationsCommand, TestOperation};
pub(crate) use pilot::{
    HistoryArgs, PilotCommand, PilotLook, PilotPlace, PilotReasonArgs, PilotResumeArgs, PilotStep,
    PilotUnitArgs, RatingArg,
};
pub(crate) use plan::{ExecutionMode, PlanCommand, PlanRunArgs};
pub(crate) use plugins::PluginsCommand;
pub(crate) use policy::{PolicyCommand, TaintCommand};
pub(crate) use proxy::{ProxyArgs, ProxyCommand};
pub(crate) use run::RunArgs;
pub(crate) use service::{Manager, ServiceArgs, ServiceCommand};
pub(crate) use sessions::{ReplayArgs, SessionsCommand};
pub(crate) use work::{DomainArgs, WorkArgs, WorkCommand};

/// Runs AI agents that can only do what a signed order allows, and leaves a receipt that anyone can check.
#[derive(Clone, Debug, Parser)]
#[command(name = "writ", version, propagate_version = false, disable_help_subcommand = true)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Cli {
    /// Flags of every command.
    #[command(flatten)]
    pub(crate) global: Global,
    /// The subcommand.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The exit codes, as `--help` shows them.
const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 a bug; 2 wrong usage; 3 configuration or home not usable; 4 denied; 5 waiting for
approval; 6 budget used up; 7 model unavailable or its output invalid; 8 verification failed; 9 the ledger
does not verify; 10 blocked, needs a person; 130 interrupted";

/// Flags of every command.
#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// The home folder, instead of WRIT_HOME or ~/.writ
    #[arg(long, global = true, value_name = "DIR", display_order = 100)]
    pub(crate) home: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long, global = true, display_order = 101)]
    pub(crate) json: bool,
    /// Print results only
    #[arg(short, long, global = true, conflicts_with = "verbose", display_order = 102)]
    pub(crate) quiet: bool,
    /// Print more details; given twice, still more
    #[arg(short, long, global = true, action = ArgAction::Count, display_order = 103)]
    pub(crate) verbose: u8,
}

/// The commands, daily ones first.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// Watch an agent work, be stopped, ask and get an approval; needs no key and no network
    Demo(DemoArgs),
    /// Talk to the agent, in the current folder or another
    Chat(ChatArgs),
    /// Run the engine of this home in the foreground
    Start(StartArgs),
    /// Show what the engine is doing
    Status(StatusArgs),
    /// Show and answer the asks of the agent: actions that need your approval
    #[command(subcommand)]
    Approvals(ApprovalsCommand),
    /// Read and verify the ledger
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Check the installation, and say how to mend each problem
    Doctor(DoctorArgs),
    /// Create the home, or add what is missing in it
    Init(InitArgs),
    /// Show what the agent changed in a project's overlay
    Diff(DiffArgs),
    /// Bring the agent's changes into the project, after your approval
    Apply(ApplyArgs),
    /// Check or show the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Check the rules, explain a decision, test rules on cases of your own
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Test the gates on cases of your own
    #[command(subcommand)]
    Gates(GatesCommand),
    /// Show the hooks, and test them on cases of your own
    #[command(subcommand)]
    Hooks(HooksCommand),
    /// Show how far an entry of the ledger is trusted, and why
    #[command(subcommand)]
    Taint(TaintCommand),
    /// Show, make and revoke the keys of this home
    #[command(subcommand)]
    Keys(KeysCommand),
    /// List the models, and try one
    #[command(subcommand)]
    Models(ModelsCommand),
    /// Store secrets, by name
    #[command(subcommand)]
    Secrets(SecretsCommand),
    /// Choose the servers of tools (MCP) that the agent may use
    #[command(subcommand)]
    Mcp(McpCommand),
    /// Load and unload plugins: programs with a manifest, which offer tools
    #[command(subcommand)]
    Plugins(PluginsCommand),
    /// Search and change the agent's memories
    #[command(subcommand)]
    Memory(MemoryCommand),
    /// Show what the model sees and what it costs, and choose which messages stay in its context
    #[command(subcommand)]
    Context(ContextCommand),
    /// Show what was spent, on what, and how much is left; pause or renew a session
    Budget(BudgetArgs),
    /// Show, approve and steer items of work: plans that are run step by step and checked
    #[command(subcommand)]
    Work(WorkCommand),
    /// Run a plan of tool calls through the door, without a model, and record its results
    #[command(subcommand)]
    Plan(PlanCommand),
    /// Let agents work on a project's goals: planned, checked, reviewed and merged
    #[command(subcommand)]
    Pilot(PilotCommand),
    /// List, find, name, copy and delete conversations
    #[command(subcommand)]
    Sessions(SessionsCommand),
    /// Decide the calls of a conversation again under today's rules; nothing is performed
    Replay(ReplayArgs),
    /// List the jobs that the engine repeats
    #[command(subcommand)]
    Jobs(JobsCommand),
    /// Approve agent folders, put them into this home, and take them out
    #[command(subcommand)]
    Agent(AgentCommand),
    /// Watch the agents of a fleet and their cases, and handle the cases that wait for a person
    #[command(subcommand)]
    Fleet(FleetCommand),
    /// Run the security proxy, through which agents reach databases and servers
    Proxy(ProxyArgs),
    /// Check, list and try the operations that the security proxy performs for agents
    #[command(subcommand)]
    Operations(OperationsCommand),
    /// Look at the sandbox, or run a command in it
    #[command(subcommand)]
    Sandbox(SandboxCommand),
    /// Run any program as an agent in the sandbox: without keys, and with only two hosts to reach
    Run(RunArgs),
    /// Make, list and restore backups of the home
    Backup(BackupArgs),
    /// Show the steps of a turn in their order, and how long each took
    Trace(TraceArgs),
    /// Run the engine as a service of this machine
    #[command(subcommand)]
    Service(ServiceCommand),
    /// Print the script with which a shell completes commands
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write all pages to a folder
    Man {
        /// The folder; it must exist
        dir: Option<PathBuf>,
    },
}

/// `writ trace`.
#[derive(Clone, Debug, Args)]
pub(crate) struct TraceArgs {
    /// The turn; without it, the newest one
    pub(crate) turn: Option<TurnId>,
    /// The newest turn of this session
    #[arg(long, value_name = "ID", conflicts_with = "turn")]
    pub(crate) session: Option<SessionId>,
}

/// `writ demo`.
#[derive(Clone, Debug, Args)]
pub(crate) struct DemoArgs {
    /// Answer the demo's question with yes
    #[arg(long, conflicts_with = "fleet")]
    pub(crate) yes: bool,
    /// Show a fleet instead: untrusted agents in Python that work on the data of a shop
    #[arg(long)]
    pub(crate) fleet: bool,
    /// Show the autopilot instead: a goal becomes merged commits
    #[arg(long, conflicts_with = "fleet")]
    pub(crate) pilot: bool,
    /// Do not delete the fleet's folder at the end, so that you can look at it
    #[arg(long, requires = "fleet")]
    pub(crate) keep: bool,
}

/// `writ chat`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ChatArgs {
    /// Send this message, print the answer, and end
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) message: Option<String>,
    /// Continue this session
    #[arg(long, value_name = "ID", conflicts_with = "new")]
    pub(crate) session: Option<SessionId>,
    /// Continue the session that was used last, whatever its folder
    #[arg(long = "continue", conflicts_with_all = ["session", "new", "project", "write", "dry_run"])]
    pub(crate) go_on: bool,
    /// Choose one of the latest sessions from a list, and continue it
    #[arg(long, conflicts_with_all = ["session", "new", "go_on", "project", "write", "dry_run", "message"])]
    pub(crate) resume: bool,
    /// Begin a new session
    #[arg(long)]
    pub(crate) new: bool,
    /// The agent that answers: `agents/NAME.toml` in the home describes it
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Replay the model's answers that this cassette recorded, in a new home of its own; tools are run for real
    #[arg(long, value_name = "FILE", conflicts_with_all = ["session", "go_on", "resume", "order"])]
    pub(crate) cassette: Option<PathBuf>,
    /// Work on this folder instead of the current one
    #[arg(long, value_name = "DIR")]
    pub(crate) project: Option<PathBuf>,
    /// Write changes to the project as they are made: approves them in advance
    #[arg(long, conflicts_with_all = ["dry_run", "session"])]
    pub(crate) write: bool,
    /// Decide and log, but perform nothing; announced when the session begins
    #[arg(long, conflicts_with = "session")]
    pub(crate) dry_run: bool,
    /// Send the message under this standing order, in the order's session: for unattended work
    #[arg(long, value_name = "ID", requires = "message", conflicts_with_all = ["session", "go_on", "agent", "new", "project", "write", "dry_run"])]
    pub(crate) order: Option<KeyId>,
}

/// `writ start`.
#[derive(Clone, Debug, Args)]
pub(crate) struct StartArgs {
    /// End after this many seconds without work and without clients
    #[arg(long, value_name = "SECS")]
    pub(crate) idle_exit: Option<u64>,
    /// Serve the page and the API on this address; any but 127.0.0.1 and ::1 needs server.auth_token
    #[arg(long, value_name = "ADDR")]
    pub(crate) host: Option<IpAddr>,
    /// Serve the page and the API on this port
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// End when the process with this id ends, the one that started this command
    #[arg(long, value_name = "PID", hide = true)]
    pub(crate) parent: Option<u32>,
}

impl StartArgs {
    /// Returns the settings that the flags override.
    pub(crate) fn flag_settings(&self) -> Vec<(&'static str, toml::Value)> {
        let host = self.host.map(|host| ("server.host", toml::Value::String(host.to_string())));
        let port = self.port.map(|port| ("server.port", toml::Value::Integer(port.into())));
        host.into_iter().chain(port).collect()
    }
}

/// `writ status`.
#[derive(Clone, Debug, Args)]
pub(crate) struct StatusArgs {
    /// Print a link that opens the page; it works once, within ten minutes
    #[arg(long)]
    pub(crate) link: bool,
    /// Show the state again whenever it changes, until Ctrl-C
    #[arg(short, long, conflicts_with = "link")]
    pub(crate) watch: bool,
    /// Seconds between two checks for changes
    #[arg(long, value_name = "SECS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) every: u64,
}

/// `writ init`.
#[derive(Clone, Debug, Args)]
pub(crate) struct InitArgs {
    /// Ask nothing; without a keyring, keys and secrets go to plain files that only you can read
    #[arg(long)]
    pub(crate) yes: bool,
}

/// `writ diff`.
#[derive(Clone, Debug, Args)]
pub(crate) struct DiffArgs {
    /// The session; without it, the last one of the project
    #[arg(long, value_name = "ID", conflicts_with = "project")]
    pub(crate) session: Option<SessionId>,
    /// The project instead of the current folder
    #[arg(long, value_name = "DIR")]
    pub(crate) project: Option<PathBuf>,
}

/// `writ apply`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ApplyArgs {
    /// The session; without it, the last one of the project
    #[arg(long, value_name = "ID", conflicts_with = "project")]
    pub(crate) session: Option<SessionId>,
    /// The project instead of the current folder
    #[arg(long, value_name = "DIR")]
    pub(crate) project: Option<PathBuf>,
    /// Approve without being asked; the text is still printed
    #[arg(long)]
    pub(crate) yes: bool,
    /// Undo the last changes that were applied: without an approval for five minutes, later with one
    #[arg(long)]
    pub(crate) undo: bool,
}

/// `writ config …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the configuration, and name each mistake
    Check {
        /// With the configuration of this project
        #[arg(long, value_name = "DIR")]
        project: Option<PathBuf>,
    },
    /// Show every setting in force and where it comes from
    Show {
        /// With the configuration of this project
        #[arg(long, value_name = "DIR")]
        project: Option<PathBuf>,
    },
}

/// `writ secrets …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum SecretsCommand {
    /// Store a secret: its value is typed without echo, or read from a pipe
    Set {
        /// Its name
        name: String,
    },
    /// List the names
    List,
    /// Remove a secret
    Remove {
        /// Its name
        name: String,
    },
}

/// `writ sandbox …`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum SandboxCommand {
    /// Show how well commands are confined here
    Status,
    /// Run a command in a sandbox, and exit with its exit code
    Exec {
        /// Work on an overlay of this folder
        #[arg(long, value_name = "DIR")]
        project: Option<PathBuf>,
        /// Run it as checks are run: on a read-only snapshot, with only PATH and HOME set, without a network
        #[arg(long)]
        verification: bool,
        /// The command
        #[arg(last = true, required = true, value_name = "CMD")]
        argv: Vec<String>,
    },
}

/// An Ed25519 public key as 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PublicKey(pub(crate) [u8; 32]);

impl std::str::FromStr for PublicKey {
    type Err = writ_types::digest::InvalidDigest;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // 32 bytes in hexadecimal, exactly like a digest.
        text.parse().map(|digest: writ_types::digest::Digest| Self(*digest.as_bytes()))
    }
}

fn parse_entry(text: &str) -> Result<EntrySeq, std::num::ParseIntError> {
    text.parse().map(EntrySeq)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use clap::error::ErrorKind;

    use super::*;

    /// The commands in a document: lines of its blocks for a shell.
    fn commands(text: &str) -> Vec<String> {
        let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
        blocks.flat_map(str::lines).map(str::to_owned).filter(|line| line.starts_with("writ ")).collect()
    }

    #[test]
    fn every_command_of_the_guides_and_of_the_seeded_documents_is_one() {
        let guides = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides");
        let mut seen = 0;
        for (name, text) in crate::documents::SEEDS {
            for command in commands(text) {
                let parsed = Cli::try_parse_from(shlex::split(&command).expect("words"));
                assert!(parsed.is_ok(), "{name}: {command}: {}", parsed.expect_err("refused"));
            }
        }
        for guide in std::fs::read_dir(guides).expect("reads") {
            let path = guide.expect("an entry").path();
            let found = commands(&std::fs::read_to_string(&path).expect("reads"));
            assert!(!found.is_empty(), "{} shows no command", path.display());
            for command in found {
                let words = shlex::split(&command).expect("words");
                let parsed = Cli::try_parse_from(&words);
                assert!(parsed.is_ok(), "{}: {command}: {}", path.display(), parsed.expect_err("refused"));
                seen += 1;
            }
        }
        assert!(seen > 50, "{seen}");
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_shows_the_daily_commands_first() {
        let shown: Vec<String> = Cli::command().get_subcommands().map(|c| c.get_name().to_owned()).collect();
        assert_eq!(
            shown.get(..7).map(<[String]>::to_vec),
            Some(
                ["demo", "chat", "start", "status", "approvals", "audit", "doctor"]
                    .map(str::to_owned)
                    .to_vec()
            )
        );
    }

    #[test]
    fn wrong_usage_is_told_from_help() {
        let kind = |args: &[&str]| Cli::try_parse_from(args).expect_err("refused").kind();
        assert_eq!(kind(&["writ"]), ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand);
        assert_eq!(kind(&["writ", "--help"]), ErrorKind::DisplayHelp);
        assert_eq!(kind(&["writ", "chta"]), ErrorKind::InvalidSubcommand);
        assert_eq!(kind(&["writ", "approvals", "show", "../x"]), ErrorKind::ValueValidation);
        assert_eq!(kind(&["writ", "sandbox", "exec"]), ErrorKind::MissingRequiredArgument);
        assert_eq!(kind(&["writ", "secrets", "set", "name", "value"]), ErrorKind::UnknownArgument);
        assert_eq!(kind(&["writ", "chat", "--write", "--dry-run"]), ErrorKind::ArgumentConflict);
    }

    #[test]
    fn flags_of_every_command_may_stand_anywhere() {
        let cli = Cli::try_parse_from(["writ", "audit", "tail", "--json", "-n", "3", "--home", "/h"])
            .expect("parses");
        assert!(cli.global.json);
        assert_eq!(cli.global.home, Some(PathBuf::from("/h")));
        assert!(matches!(cli.command, Command::Audit(AuditCommand::Tail { lines: 3 })));
    }
}
