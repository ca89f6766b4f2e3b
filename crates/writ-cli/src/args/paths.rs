//! The arguments that are paths. Relative ones are resolved against the folder in which the command was started.

use std::path::{Path, PathBuf};

use super::agent::AgentCommand;
use super::audit::AuditCommand;
use super::gates::GatesCommand;
use super::hooks::HooksCommand;
use super::keys::{BaseCommand, KeysCommand, OrderCommand, TaskCommand};
use super::mcp::McpCommand;
use super::operations::OperationsCommand;
use super::plan::PlanCommand;
use super::plugins::PluginsCommand;
use super::policy::PolicyCommand;
use super::sessions::SessionsCommand;
use super::{Cli, Command, ConfigCommand, RunArgs, SandboxCommand, WorkCommand};

impl Cli {
    /// Resolves relative paths against a folder; an empty folder changes nothing.
    pub(crate) fn locate_paths(&mut self, folder: &Path) {
        for path in self.global.home.iter_mut().chain(self.command.paths()) {
            *path = folder.join(&*path);
        }
    }
}

impl Command {
    fn paths(&mut self) -> Vec<&mut PathBuf> {
        match self {
            Self::Chat(args) => args.project.iter_mut().chain(&mut args.cassette).collect(),
            Self::Sessions(SessionsCommand::Export { out, .. }) => out.iter_mut().collect(),
            Self::Diff(args) => args.project.iter_mut().collect(),
            Self::Apply(args) => args.project.iter_mut().collect(),
            Self::Run(args) => args.paths(),
            Self::Proxy(args) => args.socket.iter_mut().collect(),
            Self::Man { dir } => dir.iter_mut().collect(),
            Self::Config(ConfigCommand::Check { project } | ConfigCommand::Show { project })
            | Self::Sandbox(SandboxCommand::Exec { project, .. })
            | Self::Policy(PolicyCommand::Check { project }) => project.iter_mut().collect(),
            Self::Policy(PolicyCommand::Test { file, project }) => project.iter_mut().chain([file]).collect(),
            Self::Gates(GatesCommand::Test { file }) | Self::Hooks(HooksCommand::Test { file }) => vec![file],
            Self::Audit(AuditCommand::Verify { heads, db, .. }) => heads.iter_mut().chain(db).collect(),
            Self::Audit(AuditCommand::Export { heads }) => heads.iter_mut().collect(),
            Self::Plugins(PluginsCommand::Load { folder, .. }) => vec![folder],
            Self::Mcp(McpCommand::Serve { project }) => vec![project],
            Self::Agent(AgentCommand::Bless { dir, .. } | AgentCommand::Deploy { dir, .. }) => vec![dir],
            Self::Keys(command) => command.paths(),
            Self::Operations(OperationsCommand::Check { dir } | OperationsCommand::List { dir }) => {
                dir.iter_mut().collect()
            }
            Self::Operations(OperationsCommand::Test(test)) => {
                test.dir.iter_mut().chain(&mut test.targets).collect()
            }
            Self::Work(WorkCommand::Propose { file, project }) => project.iter_mut().chain([file]).collect(),
            Self::Plan(PlanCommand::Run(args)) => {
                let folders = [&mut args.record, &mut args.replay, &mut args.project];
                folders.into_iter().flatten().chain([&mut args.file]).collect()
            }
            Self::Pilot(command) => command.place().project.iter_mut().collect(),
            Self::Demo(_)
            | Self::Start(_)
            | Self::Status(_)
            | Self::Agent(_)
            | Self::Approvals(_)
            | Self::Audit(_)
            | Self::Policy(_)
            | Self::Gates(_)
            | Self::Hooks(_)
            | Self::Taint(_)
            | Self::Doctor(_)
            | Self::Init(_)
            | Self::Models(_)
            | Self::Secrets(_)
            | Self::Mcp(_)
            | Self::Plugins(_)
            | Self::Memory(_)
            | Self::Context(_)
            | Self::Budget(_)
            | Self::Jobs(_)
            | Self::Work(_)
            | Self::Sessions(_)
            | Self::Replay(_)
            | Self::Fleet(_)
            | Self::Backup(_)
            | Self::Trace(_)
            | Self::Service(_)
            | Self::Completions { .. }
            | Self::Sandbox(_) => Vec::new(),
        }
    }
}

impl RunArgs {
    fn paths(&mut self) -> Vec<&mut PathBuf> {
        let others = [&mut self.proxy_socket, &mut self.router_socket, &mut self.folder, &mut self.report];
        [&mut self.base, &mut self.task].into_iter().chain(others.into_iter().flatten()).collect()
    }
}

impl KeysCommand {
    fn paths(&mut self) -> Vec<&mut PathBuf> {
        match self {
            Self::Inspect { file, base } => file.iter_mut().chain(base).collect(),
            Self::Base(BaseCommand::Issue { file, out }) | Self::Seal { file, out } => {
                out.out.iter_mut().chain([file]).collect()
            }
            Self::Task(TaskCommand::Mint { file, base, out }) => {
                out.out.iter_mut().chain([file, base]).collect()
            }
            Self::Task(TaskCommand::Attenuate { key, file, base, out }) => {
                out.out.iter_mut().chain([key, file, base]).collect()
            }
            Self::Task(TaskCommand::Renew { key, base, out }) => {
                out.out.iter_mut().chain([key, base]).collect()
            }
            Self::Order(OrderCommand::Issue { file, .. }) => vec![file],
            Self::Check(args) => vec![&mut args.base, &mut args.task],
            Self::Root { .. }
            | Self::Harness { .. }
            | Self::Approver { .. }
            | Self::Order(_)
            | Self::Sign(_)
            | Self::List
            | Self::Revoke { .. } => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn relative_paths_begin_at_the_folder_and_absolute_ones_stay() {
        let located = |args: &[&str], folder: &str| {
            let mut cli = Cli::try_parse_from([&["writ"], args].concat()).expect("parses");
            cli.locate_paths(Path::new(folder));
            let found: Vec<PathBuf> = cli.command.paths().into_iter().map(|path| path.clone()).collect();
            (cli.global.home, found)
        };
        let args = ["keys", "task", "mint", "t.json", "--base", "/b", "--out", "o", "--home", "h"];
        let found = |folder: &str| located(&args, folder);
        assert_eq!(found("/f"), (Some("/f/h".into()), vec!["/f/o".into(), "/f/t.json".into(), "/b".into()]));
        assert_eq!(found(""), (Some("h".into()), vec!["o".into(), "t.json".into(), "/b".into()]));
        let (_, plan) = located(&["plan", "run", "p.json", "--record", "r", "--project", "/p"], "/f");
        assert_eq!(plan, ["/f/r", "/p", "/f/p.json"].map(PathBuf::from));
    }
}
