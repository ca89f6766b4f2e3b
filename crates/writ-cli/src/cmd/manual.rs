//! `writ completions` and `writ man`: made from the command line itself, so that they cannot say anything else.

use std::path::Path;

use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_mangen::Man;
use writ_types::error::Exit;

use crate::args::Cli;
use crate::context::Context;
use crate::failure::Failure;

/// Prints the completions for a shell.
pub(crate) fn print_completions(context: &Context, shell: Shell) -> Result<(), Failure> {
    context.out.print_bytes(&completion_script(shell))
}

fn completion_script(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "writ", &mut script);
    script
}

/// Prints the page of `writ`, or writes the pages of all commands to a folder.
pub(crate) fn write_pages(context: &Context, folder: Option<&Path>) -> Result<(), Failure> {
    let Some(folder) = folder else {
        let mut page = Vec::new();
        Man::new(Cli::command())
            .render(&mut page)
            .map_err(|error| Failure::internal_error("writing the page", error))?;
        return context.out.print_bytes(&page);
    };
    clap_mangen::generate_to(Cli::command(), folder).map_err(|error| {
        let text = format!("the pages cannot be written to {}: {error}", folder.display());
        Failure::new(Exit::Usage, "cli.output", text, "name a folder that is there and that you may write to")
    })?;
    context.out.print_remark(format!("pages written to {}", folder.display()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::{Command, ValueEnum as _};

    use super::*;

    /// Every command with the path to it: `approvals`, `approvals list`, …
    fn commands(above: &str, command: &Command) -> Vec<String> {
        let own = command.get_subcommands().filter(|command| !command.is_hide_set());
        own.flat_map(|below| {
            let path = format!("{above} {}", below.get_name()).trim().to_owned();
            let more = commands(&path, below);
            std::iter::once(path).chain(more)
        })
        .collect()
    }

    #[test]
    fn every_shell_completes_every_command_and_every_flag() {
        let all = commands("", &Cli::command());
        assert!(all.len() > 40 && all.contains(&"approvals approve".to_owned()), "{all:?}");
        for shell in Shell::value_variants() {
            let script = String::from_utf8(completion_script(*shell)).expect("text");
            for command in &all {
                let name = command.rsplit(' ').next().expect("a name");
                assert!(script.contains(name), "{shell}: {command}");
            }
            for flag in ["idle-exit", "dry-run", "every-signature", "watch"] {
                assert!(script.contains(flag), "{shell}: --{flag}");
            }
        }
    }

    #[test]
    fn every_command_has_a_page_that_says_what_it_does() {
        let dir = tempfile::tempdir().expect("temp dir");
        clap_mangen::generate_to(Cli::command(), dir.path()).expect("written");
        for command in commands("", &Cli::command()) {
            let page = dir.path().join(format!("writ-{}.1", command.replace(' ', "-")));
            let page =
                std::fs::read_to_string(&page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
            let about = command
                .split(' ')
                .fold(Cli::command(), |above, name| above.find_subcommand(name).expect("a command").clone());
            let about = about.get_about().expect("it says what it does").to_string();
            let first: String = about.split([' ', '-']).next().expect("a word").to_owned();
            assert!(page.contains(&first), "{command}: {about}");
        }
        let page = std::fs::read_to_string(dir.path().join("writ.1")).expect("the page");
        assert!(page.contains("Exit codes"), "{page}");
    }
}
