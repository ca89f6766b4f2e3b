//! Programs: `shell_exec` and `python_exec`. They run in the session's sandbox, whose network reaches only the hosts that a call
//! names.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use writ_inspect::egress::host::HostPattern;
use writ_policy::door::MAX_HOSTS;
use writ_types::action::{Action, ActionKind, Exec, ExecProfile};
use writ_types::digest::Digest;

use super::describe_intent;
use crate::arguments::{invalid_arguments, no_nul, parse_arguments};
use crate::command;
use crate::def::{ActionDraft, AgentRole, OutputKind, PathState, ToolContext, ToolDef, needs_nothing};
use crate::error::{ToolError, shorten_name};
use crate::path::WorkPath;
use crate::schema::schema_of;

/// The most arguments of a program.
const MAX_ARGV: usize = 1_024;

/// The longest single argument, in bytes (`MAX_ARG_STRLEN` of Linux, less its end).
const MAX_ARG_BYTES: usize = 128 * 1024 - 1;

pub(super) static SHELL_EXEC: ToolDef = ToolDef {
    name: "shell_exec",
    description: "Runs a program in the sandbox and returns its output. No shell is involved: pipes, redirections, \
                  globs and variables work only with \"argv\": [\"sh\", \"-c\", \"...\"]. There is no network but \"hosts\".",
    usage: r#"{"command": "cargo test --quiet"}"#,
    sinks: &["command", "cwd", "hosts"],
    idempotent: false,
    output: OutputKind::ProcessOutput,
    actions: &[ActionKind::Exec],
    roles: &[AgentRole::Executor],
    schema: schema_of::<ShellArgs>,
    needs: needs_nothing,
    prepare: prepare_shell,
};

pub(super) static PYTHON_EXEC: ToolDef = ToolDef {
    name: "python_exec",
    description: "Runs a Python 3 script in the sandbox (python3 -I) and returns its output. There is no network but \"hosts\".",
    usage: r#"{"script": "print(6 * 7)"}"#,
    sinks: &["script", "cwd", "hosts"],
    idempotent: false,
    output: OutputKind::ProcessOutput,
    actions: &[ActionKind::Exec],
    roles: &[AgentRole::Executor],
    schema: schema_of::<PythonArgs>,
    needs: needs_nothing,
    prepare: prepare_python,
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ShellArgs {
    /// Program and arguments as one line, split at white space; quotes and backslashes as in a shell.
    command: Option<String>,
    /// Program and arguments as a list. Give this or command.
    argv: Option<Vec<String>>,
    /// Folder to run in, relative to the work folder.
    cwd: Option<String>,
    /// Time limit in seconds.
    timeout_secs: Option<u64>,
    /// Hosts that it may reach over HTTP, such as "pypi.org" or "example.org:8080".
    hosts: Option<Vec<String>>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PythonArgs {
    /// The script.
    script: String,
    /// Arguments, as in sys.argv[1:].
    args: Option<Vec<String>>,
    /// Folder to run in, relative to the work folder.
    cwd: Option<String>,
    /// Time limit in seconds.
    timeout_secs: Option<u64>,
    /// Hosts that it may reach over HTTP, such as "pypi.org" or "example.org:8080".
    hosts: Option<Vec<String>>,
}

fn prepare_shell(
    arguments: &Value,
    _: Option<&PathState>,
    context: &ToolContext<'_>,
) -> Result<ActionDraft, ToolError> {
    let args: ShellArgs = parse_arguments(&SHELL_EXEC, arguments)?;
    let argv = match (args.argv, args.command) {
        (Some(argv), None) => argv,
        (None, Some(line)) => {
            no_nul(&SHELL_EXEC, "command", &line)?;
            command::split_words(&line).map_err(|problem| invalid_arguments(&SHELL_EXEC, &problem))?
        }
        (None, None) | (Some(_), Some(_)) => {
            return Err(invalid_arguments(&SHELL_EXEC, "give either 'command' or 'argv'"));
        }
    };
    // Checked here, so that the model reads a reason and not an error number of the kernel.
    check_argv(&SHELL_EXEC, &argv)?;
    let cwd = work_directory(&SHELL_EXEC, args.cwd.as_deref())?;
    let hosts = named_hosts(&SHELL_EXEC, args.hosts)?;
    // Cannot fail: an argument without NUL can be quoted.
    let line = shlex::try_join(argv.iter().map(String::as_str)).unwrap_or_default();
    let exec = Exec {
        argv,
        cwd: cwd.clone(),
        env: BTreeMap::new(),
        stdin: None,
        timeout_ms: time_limit(&SHELL_EXEC, args.timeout_secs, context)?,
        profile: ExecProfile::Task,
        hosts: hosts.clone(),
    };
    let purpose = describe_intent("run", &line);
    Ok(with_hosts(
        ActionDraft::new_draft(Action::Exec(exec), purpose).with_sink("command", line).with_sink("cwd", cwd),
        hosts,
    ))
}

fn prepare_python(
    arguments: &Value,
    _: Option<&PathState>,
    context: &ToolContext<'_>,
) -> Result<ActionDraft, ToolError> {
    let args: PythonArgs = parse_arguments(&PYTHON_EXEC, arguments)?;
    if args.script.trim().is_empty() {
        // An empty script would succeed and mislead the model.
        return Err(invalid_arguments(&PYTHON_EXEC, "'script' is empty"));
    }
    no_nul(&PYTHON_EXEC, "script", &args.script)?;
    // `-I` keeps modules of the work folder from replacing those of the library. `-` reads the script from the input, so that the
    // length limit of arguments does not apply.
    let mut argv = vec!["python3".to_owned(), "-I".to_owned(), "-".to_owned()];
    argv.extend(args.args.unwrap_or_default());
    check_argv(&PYTHON_EXEC, &argv)?;
    let cwd = work_directory(&PYTHON_EXEC, args.cwd.as_deref())?;
    let hosts = named_hosts(&PYTHON_EXEC, args.hosts)?;
    let digest = Digest::of_bytes(args.script.as_bytes());
    let purpose =
        describe_intent("run a Python script:", args.script.trim_start().lines().next().unwrap_or_default());
    let exec = Exec {
        argv,
        cwd: cwd.clone(),
        env: BTreeMap::new(),
        stdin: Some(args.script),
        timeout_ms: time_limit(&PYTHON_EXEC, args.timeout_secs, context)?,
        profile: ExecProfile::Task,
        hosts: hosts.clone(),
    };
    let draft = ActionDraft::new_draft(Action::Exec(exec), purpose).with_binding("script", digest);
    Ok(with_hosts(draft.with_sink("script", digest.to_string()).with_sink("cwd", cwd), hosts))
}

fn check_argv(tool: &'static ToolDef, argv: &[String]) -> Result<(), ToolError> {
    if argv.first().is_none_or(String::is_empty) {
        return Err(invalid_arguments(tool, "there is no program to run"));
    }
    if argv.len() > MAX_ARGV {
        return Err(ToolError::TooLarge {
            tool: tool.name,
            what: "the number of arguments",
            limit: MAX_ARGV,
        });
    }
    for argument in argv {
        no_nul(tool, "argv", argument)?;
        if argument.len() > MAX_ARG_BYTES {
            return Err(ToolError::TooLarge {
                tool: tool.name,
                what: "the size of one argument in bytes",
                limit: MAX_ARG_BYTES,
            });
        }
    }
    Ok(())
}

fn work_directory(tool: &'static ToolDef, cwd: Option<&str>) -> Result<String, ToolError> {
    let path = WorkPath::parse_path(cwd.unwrap_or_default())
        .map_err(|problem| invalid_arguments(tool, &format!("'cwd' {problem}")))?;
    if path.is_outside() {
        return Err(invalid_arguments(tool, "'cwd' leads out of the work folder"));
    }
    Ok(path.absolute_path())
}

/// The hosts in their canonical form, each once: what is shown and hashed is what is opened.
fn named_hosts(tool: &'static ToolDef, named: Option<Vec<String>>) -> Result<Vec<String>, ToolError> {
    let named = named.unwrap_or_default();
    if named.len() > MAX_HOSTS {
        return Err(ToolError::TooLarge { tool: tool.name, what: "the number of hosts", limit: MAX_HOSTS });
    }
    let mut hosts = BTreeSet::new();
    for name in &named {
        let wrong = |problem: String| {
            invalid_arguments(tool, &format!("'hosts' '{}': {problem}", shorten_name(name)))
        };
        let host: HostPattern = name.parse().map_err(|problem| wrong(format!("{problem}")))?;
        if name.starts_with('*') {
            return Err(wrong("name each host separately".to_owned()));
        }
        hosts.insert(host.to_string());
    }
    Ok(hosts.into_iter().collect())
}

fn with_hosts(draft: ActionDraft, hosts: Vec<String>) -> ActionDraft {
    hosts.into_iter().fold(draft, |draft, host| draft.with_sink("hosts", host))
}

fn time_limit(
    tool: &'static ToolDef,
    secs: Option<u64>,
    context: &ToolContext<'_>,
) -> Result<u64, ToolError> {
    let Some(secs) = secs else { return Ok(context.config.timeout_ms(tool.name)) };
    let max = context.config.max_ms;
    match secs.checked_mul(1_000) {
        Some(ms) if (1..=max).contains(&ms) => Ok(ms),
        Some(_) | None => {
            Err(invalid_arguments(tool, &format!("'timeout_secs' must be from 1 to {}", max / 1_000)))
        }
    }
}
