//! The program `writ`: the [library](writ_cli) with the surroundings of the process.

use std::process::ExitCode;

use writ_cli::CommandHost;

fn main() -> ExitCode {
    // The same file, started again, is the sandbox's helper: that comes before everything else.
    if let Some(code) = writ_sandbox::init_main() {
        return code;
    }
    ExitCode::from(writ_cli::run_command_line(std::env::args_os(), CommandHost::of_process()))
}
