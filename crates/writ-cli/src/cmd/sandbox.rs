//! `writ sandbox`: how commands are confined here, and running one.

use std::io::Write as _;

use serde_json::{Value, json};
use writ_inspect::show::escape_text;
use writ_runtime::methods::Method;
use writ_runtime::methods::Status;
use writ_sandbox::Sandbox;
use writ_sandbox::config::SandboxConfig;
use writ_sandbox::status::{Rung, SandboxStatus};
use writ_types::api::NoParams;
use writ_types::error::Exit;

use crate::args::SandboxCommand;
use crate::client::EngineClient;
use crate::cmd::project::project_path;
use crate::context::Context;
use crate::failure::Failure;
use crate::host::OutputStream;
use crate::interrupt::block_on;

/// Runs `writ sandbox …`.
pub(crate) fn run_sandbox(context: &Context, command: &SandboxCommand) -> Result<(), Failure> {
    match command {
        SandboxCommand::Status => {
            // The home need not be set up: this is about the machine.
            // Probed without an engine, since the answer is about the machine.
            let status = probe_sandbox(context.load_config(None)?.sandbox)?;
            let ready = ready_count(context);
            if context.out.json {
                context.out.print_json(&with_ready(&status, ready)?)?;
            } else {
                context.out.print_line(describe_status(&status, ready).join("\n"))?;
            }
            if status.rung == Rung::Refuse { Err(Failure::Code(Exit::Blocked.code())) } else { Ok(()) }
        }
        SandboxCommand::Exec { project, verification, argv } => {
            context.load_ready_config()?;
            let project = project.as_deref().map(|path| project_path(context, path)).transpose()?;
            let mut params = json!({ "argv": argv, "verification": verification });
            if let (Some(project), Value::Object(params)) = (project, &mut params) {
                params.insert("project".into(), project.into());
            }
            // The engine runs it, so that it passes the door like any other program.
            let result = block_on(async {
                EngineClient::ensure(context).await?.call_method(Method::SandboxExec, params).await
            })?;
            finish_with(context, &result)
        }
    }
}

/// Finds out what this machine gives, by running a program in a sandbox.
pub(crate) fn probe_sandbox(config: SandboxConfig) -> Result<SandboxStatus, Failure> {
    let sandbox = Sandbox::start(config)?;
    block_on(async { Ok(sandbox.status().await) })
}

/// Returns the number of sandboxes that the engine has ready; `None`: no engine runs, or it does not report
/// it.
pub(crate) fn ready_count(context: &Context) -> Option<u64> {
    let asked = block_on(async {
        let Some(mut client) = EngineClient::connect(context).await? else { return Ok(None) };
        client.ask::<Status>(&NoParams {}).await.map(Some)
    });
    // Any failure of the engine means that none is ready.
    u64::try_from(asked.ok().flatten()?.sandboxes_ready).ok()
}

fn with_ready(status: &SandboxStatus, ready: Option<u64>) -> Result<Value, Failure> {
    let mut shown =
        serde_json::to_value(status).map_err(|error| Failure::internal_error("showing the status", error))?;
    if let Value::Object(fields) = &mut shown {
        fields.insert("ready".into(), ready.into());
    }
    Ok(shown)
}

fn describe_status(status: &SandboxStatus, ready: Option<u64>) -> Vec<String> {
    let yes = |flag: bool| if flag { "yes" } else { "no" };
    let meaning = match status.rung {
        Rung::Full => "full: namespaces, Landlock, seccomp",
        Rung::Reduced => "reduced: no user namespaces; Landlock and seccomp alone",
        Rung::Refuse => "refuse: nothing is run here",
    };
    let mut lines = vec![
        format!("runner           {}", status.runner.as_str()),
        format!("rung             {meaning}"),
        format!("user namespaces  {}", yes(status.user_namespaces)),
        format!("overlay          {}", if status.overlay { "yes" } else { "no: projects are copied" }),
        format!(
            "landlock         {}",
            if status.landlock_abi == 0 { "no".into() } else { format!("interface {}", status.landlock_abi) }
        ),
        format!("seccomp          {}", yes(status.seccomp)),
        format!("limits by        {:?}", status.cgroup).to_lowercase(),
        format!(
            "toolchains       {}",
            if status.toolchains.is_empty() { "none".into() } else { status.toolchains.join(", ") }
        ),
    ];
    lines.push(match ready {
        Some(ready) => format!("ready            {ready}, each for one use"),
        None => "ready            none: no engine runs".to_owned(),
    });
    lines.extend(status.reduced.iter().map(|text| format!("weaker: {text}")));
    lines.extend(status.hints.iter().map(|text| format!("hint: {text}")));
    lines
}

/// Prints output of the sandbox; on a terminal without what could deceive or command it.
fn print_output(out: &mut OutputStream, text: &str) -> Result<(), Failure> {
    // On a terminal the output is escaped; in a pipe it is passed on byte for byte.
    let written = if out.is_terminal() {
        out.write_all(escape_text(text).as_bytes())
    } else {
        out.write_all(text.as_bytes())
    };
    written.map_err(|error| Failure::output_error(&error))
}

/// Prints what the command wrote and ends as it did.
fn finish_with(context: &Context, result: &Value) -> Result<(), Failure> {
    let text = |name: &str| result.get(name).and_then(Value::as_str).unwrap_or_default();
    if context.out.json {
        context.out.print_json(result)?;
    } else {
        print_output(&mut context.host.streams.output.clone(), text("stdout"))?;
        print_output(&mut context.host.streams.errors.clone(), text("stderr"))?;
        match text("ended") {
            "" | "exited" => {}
            ended => context.out.print_remark(format!("ended by: {ended}")),
        }
    }
    match result.get("exit_code").and_then(Value::as_i64) {
        Some(0) | None => Ok(()),
        Some(code) => Err(Failure::Code(u8::try_from(code).unwrap_or(u8::MAX))),
    }
}
