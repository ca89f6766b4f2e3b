//! Hooks: programs of the owner that are called at events, before all gates.
//!
//! A hook is a gate with a program as its judge. Its configuration alone says which facts it gets and which
//! changes it may make. A yes of it opens nothing: keys, rules, gates, labels and approvals decide as if it
//! had not answered.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use writ_types::digest::Digest;
use writ_types::entry::{GateVerdict, HookEvent};

use super::config::{GateConfig, GateProvider, MAX_GATES, MAX_SCRIPT_BYTES, MAX_SCRIPT_MS, Point, SCRIPT_MS};
use super::judging::MAX_VALUE_BYTES;
use super::said::{GateOpinion, MAX_REASON_CHARS, MAX_SAID_BYTES, ScriptEnd, cut_text};
use super::{Gate, GateError, GateSet};

/// The most hooks of one configuration.
pub const MAX_HOOKS: usize = MAX_GATES;
/// The most that a hook may keep of a conversation, in bytes of JSON: a few numbers, or a list of names.
pub const MAX_STATE_BYTES: usize = 4 * 1024;
/// The prefix of a hook's name, beside the names of gates and rules.
pub const HOOK: &str = "hook ";
/// The version of the input of hooks.
const VERSION: u64 = 1;

/// One hook of the configuration: `[[hooks]]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HookConfig {
    /// Its name.
    pub name: String,
    /// The event.
    pub on: HookEvent,
    /// The file of its program: in `hooks` of the home, or in `.writ/hooks` of its project.
    pub run: String,
    /// The project folder that it belongs to: it is called in sessions of that project alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The digest of the program that its owner has approved. A project's hook must have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// Names of tools that it is called for; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Its permissions.
    #[serde(default = "read_permission")]
    pub permissions: Vec<Permission>,
    /// The time limit, in milliseconds. Default [`SCRIPT_MS`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// A failure stops the event. Default: where it can still be stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub critical: Option<bool>,
}

fn read_permission() -> Vec<Permission> {
    vec![Permission::Read]
}

/// A permission of a hook. None implies another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permission {
    /// See the subject of the event; without it, only the event and the tool.
    Read,
    /// Change what goes on, and keep a state of its own with the conversation.
    Write,
}

impl HookConfig {
    /// Returns true if a failure stops the event.
    pub fn is_critical(&self) -> bool {
        self.critical.unwrap_or(self.on.gate_point().is_some())
    }

    /// Returns the time limit, in milliseconds.
    pub fn time_ms(&self) -> u64 {
        self.timeout_ms.unwrap_or(SCRIPT_MS)
    }

    pub(super) fn has_permission(&self, permission: Permission) -> bool {
        self.permissions.contains(&permission)
    }
}

/// A hook with its program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// As it is configured.
    pub config: HookConfig,
    /// Its program; else why there is none that may run: it fails then whenever it is called.
    pub program: Result<Program, String>,
}

/// The program of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    text: String,
    digest: Digest,
}

impl Program {
    /// A program of this text.
    pub fn new(text: String) -> Self {
        let digest = Digest::of_bytes(text.as_bytes());
        Self { text, digest }
    }

    /// The digest of its text.
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// Builds the command: the shell, or the interpreter of its first line. The text is the one that was
    /// read, not a file that could change meanwhile.
    fn build_argv(&self) -> Vec<String> {
        // The text comes as an argument and is written inside the sandbox: nothing on the host has to hold
        // it.
        const PUT: &str = r#"printf '%s' "$1" > /tmp/hook && shift && exec "$@" /tmp/hook"#;
        let first = self.text.lines().next().unwrap_or_default();
        let interpreter = first.strip_prefix("#!").map(str::trim).unwrap_or_default();
        let (program, argument) = interpreter.split_once(char::is_whitespace).unwrap_or((interpreter, ""));
        let shell = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        // The usual case needs no file: the shell reads the text itself.
        if program.is_empty() || program == "/bin/sh" {
            return shell(&["/bin/sh", "-c", &self.text]);
        }
        // The text is a word of the command and never a part of what the shell parses.
        let mut argv = shell(&["/bin/sh", "-c", PUT, "hook", &self.text, program]);
        argv.extend(Some(argument.trim()).filter(|argument| !argument.is_empty()).map(str::to_owned));
        argv
    }
}

/// A run of a hook: its input and its time limit.
pub(super) struct Call {
    pub(super) argv: Vec<String>,
    pub(super) input: Map<String, Value>,
    pub(super) timeout_ms: u64,
}

impl Hook {
    /// Its name among gates and rules.
    pub fn title(&self) -> String {
        format!("{HOOK}{}", self.config.name)
    }

    /// The digest of its program.
    pub fn digest(&self) -> Option<Digest> {
        self.program.as_ref().ok().map(Program::digest)
    }

    /// Returns true if it is called in this project, or outside projects.
    pub(super) fn is_of(&self, project: Option<&str>) -> bool {
        self.config.project.as_deref().is_none_or(|own| Some(own) == project)
    }

    /// Builds the run, with the permitted part of `about` as input.
    pub(super) fn build_call(&self, about: Map<String, Value>) -> Result<Call, String> {
        let program = self.program.as_ref().map_err(Clone::clone)?;
        let (on, name) = (self.config.on.as_str(), self.config.name.as_str());
        let mut input = Map::from_iter([
            ("version".to_owned(), VERSION.into()),
            ("event".to_owned(), on.into()),
            ("hook".to_owned(), name.into()),
        ]);
        let reads = self.config.has_permission(Permission::Read);
        // Without the permission to read, a hook learns that something happened and with which tool.
        input.extend(about.into_iter().filter(|(key, _)| reads || key == "tool"));
        // An input that is too long is a failure: a hook that got only a part would judge only that part.
        if Value::Object(input.clone()).to_string().len() > MAX_VALUE_BYTES {
            return Err("it is too long for a hook".to_owned());
        }
        Ok(Call { argv: program.build_argv(), input, timeout_ms: self.config.time_ms() })
    }

    /// Judges a failure.
    pub(super) fn judge_failure(&self, why: &str) -> GateOpinion {
        let why = cut_text(why, MAX_REASON_CHARS);
        if self.config.is_critical() {
            GateOpinion::bare_opinion(GateVerdict::Block, format!("{} has failed: {why}", self.title()))
        } else {
            GateOpinion::bare_opinion(
                GateVerdict::Advise,
                format!("it has failed, and is not critical: {why}"),
            )
        }
    }

    /// Reads its output. A denial counts after any exit; anything else must be complete.
    pub(super) fn judge_output(&self, end: &ScriptEnd, said: &str) -> GateOpinion {
        // A program that was killed or timed out has not judged.
        let code = match end {
            ScriptEnd::Code(code) => *code,
            ScriptEnd::Broken(why) => return self.judge_failure(why),
        };
        if said.len() > MAX_SAID_BYTES {
            return self.judge_failure("its output is too long");
        }
        let fields = match (said.trim(), serde_json::from_str::<Map<String, Value>>(said)) {
            ("", _) => Map::new(),
            (_, Ok(fields)) => fields,
            (_, Err(_)) => return self.judge_failure("its output is no verdict"),
        };
        match self.read_fields(fields) {
            // A failing program cannot allow anything, but its denial counts.
            Ok(said) if code == 0 || matches!(said.verdict, GateVerdict::Block | GateVerdict::Halt) => said,
            Ok(_) => self.judge_failure(&format!("it ended with code {code}")),
            Err(why) => self.judge_failure(why),
        }
    }

    fn read_fields(&self, mut fields: Map<String, Value>) -> Result<GateOpinion, &'static str> {
        let verdict = match fields.remove("verdict") {
            None => GateVerdict::Pass,
            Some(Value::String(word)) => match word.as_str() {
                "allow" | "abstain" => GateVerdict::Pass,
                "ask" => GateVerdict::RequireApproval,
                "deny" => GateVerdict::Block,
                "halt" => GateVerdict::Halt,
                _ => return Err("it gave a verdict that there is not"),
            },
            Some(_) => return Err("it gave a verdict that there is not"),
        };
        let reason = match fields.remove("reason") {
            Some(Value::String(reason)) => cut_text(&reason, MAX_REASON_CHARS),
            Some(_) | None => String::new(),
        };
        let mut said = GateOpinion::bare_opinion(verdict, reason);
        // At each event one thing alone may change; after the event nothing.
        let changed = match self.config.on {
            HookEvent::MessageReceived => "message",
            HookEvent::ResponseGenerated => "response",
            HookEvent::BeforeToolCall => "tool_args",
            HookEvent::AfterToolCall
            | HookEvent::SessionCreated
            | HookEvent::SessionClosed
            | HookEvent::UnitStarted
            | HookEvent::UnitBlocked
            | HookEvent::UnitMerged
            | HookEvent::UnitDone => "",
        };
        for (key, value) in fields {
            // A change without the permission is left out and named, but the verdict stands.
            let writes = self.config.has_permission(Permission::Write);
            match (key.as_str(), value) {
                ("state", state) if writes && state.to_string().len() <= MAX_STATE_BYTES => {
                    said.state = Some(state);
                }
                ("state", _) if writes => return Err("its state is too long"),
                ("tool_args", args @ Value::Object(_)) if writes && changed == "tool_args" => {
                    said.arguments = Some(args);
                }
                // An empty text would erase the message, which is no change but a loss.
                (key, Value::String(text))
                    if writes && key == changed && key != "tool_args" && !text.trim().is_empty() =>
                {
                    said.text = Some(text);
                }
                // The right key with a value of another type: nothing sensible can go on.
                (key, _) if writes && key == changed => {
                    return Err("it made something else of what it was told");
                }
                _ => said.note_stripped(&key),
            }
        }
        Ok(said)
    }
}

impl GateSet {
    /// These gates, and before them hooks in their order.
    ///
    /// # Errors
    ///
    /// The first hook that cannot stand.
    pub fn with_hooks(mut self, hooks: Vec<Hook>) -> Result<Self, GateError> {
        if hooks.len() > MAX_HOOKS {
            return Err(GateError::TooMany(hooks.len()));
        }
        for (n, hook) in hooks.into_iter().enumerate() {
            // Misplaced settings are refused, since an owner would rely on them.
            if let Some((key, why)) = misplaced_setting(&hook.config) {
                return Err(GateError::Hook { name: hook.config.name, key, why });
            }
            let title = hook.title();
            if hook.config.name.is_empty() || self.gates.iter().any(|other| other.config.name == title) {
                return Err(GateError::Name(title));
            }
            let on = match hook.config.on {
                HookEvent::MessageReceived => Point::Input,
                HookEvent::ResponseGenerated => Point::Output,
                HookEvent::BeforeToolCall
                | HookEvent::AfterToolCall
                | HookEvent::SessionCreated
                | HookEvent::SessionClosed
                | HookEvent::UnitStarted
                | HookEvent::UnitBlocked
                | HookEvent::UnitMerged
                | HookEvent::UnitDone => Point::Execution,
            };
            let tools = hook.config.tools.clone();
            let config = GateConfig {
                name: title,
                on,
                provider: GateProvider::Script,
                tools,
                ..GateConfig::default()
            };
            // Before the gates: what a hook changes is then judged by them.
            self.gates.insert(n, Gate { config, checks: Vec::new(), after: None, hook: Some(hook) });
        }
        Ok(self)
    }

    /// The hooks, in their order.
    pub fn hooks(&self) -> impl Iterator<Item = &Hook> {
        self.gates.iter().filter_map(|gate| gate.hook.as_ref())
    }

    /// The hook of this name among the gates.
    pub fn hook(&self, title: &str) -> Option<&Hook> {
        self.gates.iter().find(|gate| gate.config.name == title)?.hook.as_ref()
    }
}

/// A setting and what is wrong with it.
fn misplaced_setting(config: &HookConfig) -> Option<(&'static str, &'static str)> {
    // The name of one file in one folder, so that no hook runs a program from elsewhere.
    let plain = |text: &str| !text.is_empty() && !text.starts_with('.') && !text.contains(['/', '\0']);
    let of_tools = matches!(config.on, HookEvent::BeforeToolCall | HookEvent::AfterToolCall);
    let project = config.project.as_deref();
    if !plain(&config.run) {
        return Some(("run", "is the name of a file in the folder of hooks, without a path"));
    }
    if project.is_some_and(|folder| !folder.starts_with('/')) {
        return Some(("project", "is the absolute path of a folder"));
    }
    // Anyone who can write into a project could change its hook; the digest binds it to what the owner has read.
    if project.is_some() && config.digest.is_none() {
        return Some(("digest", "must name the program that you have read: `writ hooks list` shows it"));
    }
    if !config.tools.is_empty() && !of_tools {
        return Some(("tools", "belongs to 'before_tool_call' and 'after_tool_call'"));
    }
    if config.timeout_ms.is_some_and(|ms| !(1..=MAX_SCRIPT_MS).contains(&ms)) {
        return Some(("timeout_ms", "must be from 1 to 60000"));
    }
    // At these events nothing can be stopped any more.
    if config.critical == Some(true) && config.on.is_news() {
        return Some(("critical", "has nothing to stop there"));
    }
    None
}

/// Checks the text of a hook's program.
///
/// # Errors
///
/// The reason why it cannot be run.
pub fn check_program(config: &HookConfig, text: String) -> Result<Program, String> {
    if text.len() > MAX_SCRIPT_BYTES {
        return Err(format!("'{}' is longer than {MAX_SCRIPT_BYTES} bytes", config.run));
    }
    // A zero byte would end the argument that carries the program.
    if text.trim().is_empty() || text.contains('\0') {
        return Err(format!("'{}' holds no program", config.run));
    }
    let program = Program::new(text);
    match config.digest {
        Some(approved) if approved != program.digest() => Err(format!(
            "'{}' is not the program that was approved: its digest is {}",
            config.run,
            program.digest()
        )),
        Some(_) | None => Ok(program),
    }
}

#[cfg(test)]
mod tests;
