//! `agent.toml`: what an agent is, what it may do, and its bounds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value, json};
use toml::Spanned;
use writ_policy::keys::document::{BaseDocument, read_base};
use writ_types::digest::Digest;
use writ_types::unit::Timestamp;

use super::error::AgentError;
use super::folder::{FolderContent, FolderPlace, read_plain};
use crate::cases::config::{MAX_ROLES, ProcessLimits};
use crate::cases::machine::HUMAN;

/// The name of the file.
pub const MANIFEST: &str = "agent.toml";
/// The largest `agent.toml`, in bytes.
pub const MAX_MANIFEST_BYTES: usize = 64 * 1024;
/// The longest name, version or role, in bytes.
pub const MAX_WORD_BYTES: usize = 64;
/// The most words of a program with its arguments.
pub const MAX_PROGRAM_WORDS: usize = 64;
/// The longest of them, in bytes.
pub const MAX_ARGUMENT_BYTES: usize = 4_096;
/// The most files with policies.
pub const MAX_POLICIES: usize = 32;
/// The largest of them, in bytes.
pub const MAX_POLICY_BYTES: u64 = 256 * 1024;
/// The most capabilities.
pub const MAX_CAPABILITIES: usize = 128;
/// The most cases that an agent may have at once.
pub const MAX_CASES: u64 = 1_000;
/// The days after which a key ends, unless the file says otherwise.
pub const EXPIRES_DAYS: u64 = 365;
/// The most days that a key is good for.
pub const MAX_EXPIRES_DAYS: u64 = 2 * 365;
/// The longest time that a process may run or compute, in seconds.
pub const MAX_SECS: u64 = 7 * 24 * 60 * 60;
/// The least and the most memory of a process, in MiB.
pub const MEMORY_MIB: [u64; 2] = [16, 1024 * 1024];
/// The fewest and the most processes at once; the sandbox's own first process is one of them.
pub const PROCESSES: [u64; 2] = [4, 32 * 1024];
/// The largest temporary folder, in MiB.
pub const MAX_TMP_MIB: u64 = 1024 * 1024;

/// A day, in seconds.
const DAY_SECS: u64 = 24 * 60 * 60;
/// The reference of the file.
const SEE: &str = "see docs/reference/agents.md";

/// An `agent.toml` that was checked.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentManifest {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its program and arguments; it begins in its folder.
    pub program: Vec<String>,
    /// Names under which it is a target of escalations, besides its own.
    pub roles: Vec<String>,
    /// Its policies: Markdown files in its folder.
    pub policies: Vec<String>,
    /// The most cases that it has at once.
    pub max_cases: usize,
    /// The days that its base key is good for.
    pub expires_days: u64,
    /// Its capabilities, as a base key has them.
    pub capabilities: Map<String, Value>,
    /// The limits of its processes.
    pub limits: ProcessLimits,
}

/// A folder with its `agent.toml`.
#[derive(Clone, Debug)]
pub struct AgentFolder {
    /// What it says of itself.
    pub manifest: AgentManifest,
    /// The content of the folder.
    pub content: FolderContent,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawManifest {
    name: Spanned<String>,
    version: Spanned<String>,
    program: Spanned<Vec<String>>,
    #[serde(default)]
    roles: Vec<Spanned<String>>,
    #[serde(default)]
    policies: Vec<Spanned<String>>,
    max_cases: Option<Spanned<u64>>,
    expires_days: Option<Spanned<u64>>,
    capabilities: Spanned<BTreeMap<Spanned<String>, toml::Value>>,
    #[serde(default)]
    limits: RawLimits,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawLimits {
    time: Option<Spanned<u64>>,
    cpu: Option<Spanned<u64>>,
    memory: Option<Spanned<u64>>,
    processes: Option<Spanned<u64>>,
    tmp: Option<Spanned<u64>>,
}

/// Returns true if a text can be an agent's name, which is part of paths.
pub fn is_agent_name(text: &str) -> bool {
    let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    plain && !text.is_empty() && text.len() <= MAX_WORD_BYTES && !text.starts_with('.')
}

impl AgentManifest {
    /// Reads the text of an `agent.toml`; `file` is for errors alone.
    ///
    /// # Errors
    ///
    /// The first mistake, by file and line.
    pub fn parse_text(file: &Path, text: &str) -> Result<Self, AgentError> {
        let place = ManifestText { file, text };
        if text.len() > MAX_MANIFEST_BYTES {
            return place.fail(0, format!("it has more than {MAX_MANIFEST_BYTES} bytes"), "shorten it");
        }
        let raw: RawManifest = toml::from_str(text).map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            place.fault(offset, error.message().trim().replace('\n', " "), SEE)
        })?;
        if raw.name.get_ref().starts_with('.') {
            return place.fail(raw.name.span().start, "its name begins with a dot", "choose another one");
        }
        let name = place.check_name("name", &raw.name)?;
        let max_cases = place.check_number("max_cases", raw.max_cases.as_ref(), [1, MAX_CASES])?.unwrap_or(1);
        let days = place.check_number("expires_days", raw.expires_days.as_ref(), [1, MAX_EXPIRES_DAYS])?;
        Ok(Self {
            capabilities: place.check_capabilities(&name, &raw.capabilities)?,
            name,
            version: place.check_word("version", &raw.version)?,
            program: place.check_program(&raw.program)?,
            roles: place.check_roles(&raw.roles)?,
            policies: place.check_policies(&raw.policies)?,
            max_cases: usize::try_from(max_cases).unwrap_or(usize::MAX),
            expires_days: days.unwrap_or(EXPIRES_DAYS),
            limits: place.check_limits(&raw.limits)?,
        })
    }

    /// Returns when a key ends that is signed now.
    pub fn ends_at(&self, now: Timestamp) -> Timestamp {
        now.plus_duration(std::time::Duration::from_secs(self.expires_days.saturating_mul(DAY_SECS)))
    }

    /// Returns the content of its base key.
    ///
    /// # Errors
    ///
    /// If it grants what no key can.
    pub fn base_document(&self, file: &Path, expires: Timestamp) -> Result<BaseDocument, AgentError> {
        let document =
            json!({ "agent": self.name, "capabilities": self.capabilities, "expires": expires.to_string() });
        read_base(document).map_err(|error| ManifestText { file, text: "" }.fault(0, error.to_string(), SEE))
    }
}

impl AgentFolder {
    /// Reads an agent's folder: its `agent.toml`, that its policies are there, and its digest. Blocks.
    ///
    /// # Errors
    ///
    /// The first mistake in it.
    pub fn read_folder(root: &Path, place: FolderPlace) -> Result<Self, AgentError> {
        let file = root.join(MANIFEST);
        let content = FolderContent::read_folder(root, place)?;
        let Some(listed) = content.find_file(MANIFEST) else {
            return Err(AgentError::folder(root, format!("there is no {MANIFEST} in it"), SEE));
        };
        let (bytes, _) = read_plain(&file)?;
        // The text that is checked is the one in the digest.
        if Digest::of_bytes(&bytes) != listed.digest {
            let hint = "try again once nothing writes to it";
            return Err(AgentError::folder(root, "it changed while it was read", hint));
        }
        let text = String::from_utf8(bytes).map_err(|_| {
            ManifestText { file: &file, text: "" }.fault(0, "it is no UTF-8", "save it as UTF-8")
        })?;
        let manifest = AgentManifest::parse_text(&file, &text)?;
        let place = ManifestText { file: &file, text: &text };
        for policy in &manifest.policies {
            // The line that names it: the names were checked, so that they stand there as they are.
            let offset = text.find(policy.as_str()).unwrap_or(0);
            place.check_policy_file(&content, root, policy, offset)?;
        }
        Ok(Self { manifest, content })
    }

    /// Returns the digest of the folder.
    pub const fn digest(&self) -> Digest {
        self.content.digest
    }
}

/// The text of a file, for the lines of its mistakes.
struct ManifestText<'a> {
    file: &'a Path,
    text: &'a str,
}

impl ManifestText<'_> {
    fn fault(&self, offset: usize, what: impl Into<String>, hint: impl Into<String>) -> AgentError {
        let line = self.text.bytes().take(offset).filter(|byte| *byte == b'\n').count().saturating_add(1);
        AgentError::Manifest { file: PathBuf::from(self.file), line, what: what.into(), hint: hint.into() }
    }

    fn fail<T>(
        &self,
        offset: usize,
        what: impl Into<String>,
        hint: impl Into<String>,
    ) -> Result<T, AgentError> {
        Err(self.fault(offset, what, hint))
    }

    /// Checks a word that stands in keys, paths and the ledger.
    fn check_word(&self, field: &str, word: &Spanned<String>) -> Result<String, AgentError> {
        let text = word.get_ref();
        // Without a slash or a space: it becomes part of paths and of lists.
        let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
        if text.is_empty() || text.len() > MAX_WORD_BYTES || !plain {
            let what = format!("{field} must be 1 to {MAX_WORD_BYTES} letters, digits, '_', '-' or '.'");
            return self.fail(word.span().start, what, "choose another one");
        }
        Ok(text.clone())
    }

    /// Checks a word under which an agent can be named as a target.
    fn check_name(&self, field: &str, word: &Spanned<String>) -> Result<String, AgentError> {
        let text = self.check_word(field, word)?;
        if text == HUMAN {
            let what = format!("{field} cannot be '{HUMAN}': that is the queue for people");
            return self.fail(word.span().start, what, "choose another one");
        }
        Ok(text)
    }

    fn check_number(
        &self,
        field: &str,
        number: Option<&Spanned<u64>>,
        [least, most]: [u64; 2],
    ) -> Result<Option<u64>, AgentError> {
        let Some(number) = number else { return Ok(None) };
        if (least..=most).contains(number.get_ref()) {
            return Ok(Some(*number.get_ref()));
        }
        let what = format!("{field} is {}; it must be {least} to {most}", number.get_ref());
        self.fail(number.span().start, what, "choose a number in between")
    }

    fn check_program(&self, program: &Spanned<Vec<String>>) -> Result<Vec<String>, AgentError> {
        let words = program.get_ref();
        let too_long = |word: &String| word.len() > MAX_ARGUMENT_BYTES || word.contains('\0');
        let nothing = words.first().is_none_or(String::is_empty);
        // Bounded, since all of it goes to the system as arguments.
        if nothing || words.len() > MAX_PROGRAM_WORDS || words.iter().any(too_long) {
            let what = format!(
                "program must be 1 to {MAX_PROGRAM_WORDS} words of at most {MAX_ARGUMENT_BYTES} bytes"
            );
            return self.fail(program.span().start, what, r#"write it as ["python3", "agent.py"]"#);
        }
        Ok(words.clone())
    }

    fn check_roles(&self, roles: &[Spanned<String>]) -> Result<Vec<String>, AgentError> {
        let mut seen = BTreeSet::new();
        for role in roles {
            let name = self.check_name("a role", role)?;
            // A role that stands twice is a slip of the pen, and another one may be missing.
            if !seen.insert(name.clone()) {
                return self.fail(role.span().start, format!("the role '{name}' stands twice"), "remove one");
            }
            if seen.len() > MAX_ROLES {
                return self.fail(role.span().start, format!("more than {MAX_ROLES} roles"), "remove some");
            }
        }
        Ok(roles.iter().map(|role| role.get_ref().clone()).collect())
    }

    fn check_policies(&self, policies: &[Spanned<String>]) -> Result<Vec<String>, AgentError> {
        for (n, policy) in policies.iter().enumerate() {
            let (path, offset) = (policy.get_ref(), policy.span().start);
            if n >= MAX_POLICIES {
                return self.fail(offset, format!("more than {MAX_POLICIES} policies"), "join some of them");
            }
            // A path from the folder on, written in one way.
            let plain = path.split('/').all(|name| !matches!(name, "" | "." | ".."));
            if !plain || !path.ends_with(".md") {
                let what = format!("the policy '{}' is no Markdown file of the folder", path.escape_debug());
                return self.fail(offset, what, "name a file such as policy.md");
            }
        }
        Ok(policies.iter().map(|policy| policy.get_ref().clone()).collect())
    }

    fn check_policy_file(
        &self,
        content: &FolderContent,
        root: &Path,
        policy: &str,
        offset: usize,
    ) -> Result<(), AgentError> {
        let shown = policy.escape_debug();
        let Some(file) = content.find_file(policy) else {
            return self.fail(offset, format!("there is no policy '{shown}' in the folder"), "write it");
        };
        if file.bytes > MAX_POLICY_BYTES {
            let what = format!("the policy '{shown}' has more than {MAX_POLICY_BYTES} bytes");
            return self.fail(offset, what, "shorten it");
        }
        let (bytes, _) = read_plain(&root.join(policy))?;
        if str::from_utf8(&bytes).is_err() {
            return self.fail(offset, format!("the policy '{shown}' is no UTF-8"), "save it as UTF-8");
        }
        Ok(())
    }

    fn check_capabilities(
        &self,
        name: &str,
        raw: &Spanned<BTreeMap<Spanned<String>, toml::Value>>,
    ) -> Result<Map<String, Value>, AgentError> {
        let (start, raw) = (raw.span().start, raw.get_ref());
        // An agent that may do nothing is not meant: it would be given no case.
        if raw.is_empty() || raw.len() > MAX_CAPABILITIES {
            let what = format!("there must be 1 to {MAX_CAPABILITIES} capabilities");
            return self.fail(start, what, "name what the agent may do");
        }
        let mut capabilities = Map::new();
        for (capability, limits) in raw {
            let limits = to_json(limits);
            let alone = json!({ capability.get_ref().as_str(): limits });
            // Each one alone first, so that the mistake has a line.
            let document = json!({ "agent": name, "capabilities": alone, "expires": SOME_TIME });
            read_base(document)
                .map_err(|error| self.fault(capability.span().start, error.to_string(), SEE))?;
            capabilities.insert(capability.get_ref().clone(), limits);
        }
        Ok(capabilities)
    }

    fn check_limits(&self, raw: &RawLimits) -> Result<ProcessLimits, AgentError> {
        Ok(ProcessLimits {
            time: self.check_number("time", raw.time.as_ref(), [1, MAX_SECS])?,
            cpu: self.check_number("cpu", raw.cpu.as_ref(), [1, MAX_SECS])?,
            memory: self.check_number("memory", raw.memory.as_ref(), MEMORY_MIB)?,
            processes: self.check_number("processes", raw.processes.as_ref(), PROCESSES)?,
            tmp: self.check_number("tmp", raw.tmp.as_ref(), [1, MAX_TMP_MIB])?,
        })
    }
}

/// A time for documents of which the capabilities alone are checked.
const SOME_TIME: &str = "2100-01-01T00:00:00Z";

fn to_json(value: &toml::Value) -> Value {
    match value {
        toml::Value::String(text) => json!(text),
        toml::Value::Integer(number) => json!(number),
        toml::Value::Float(number) => json!(number),
        toml::Value::Boolean(flag) => json!(flag),
        toml::Value::Datetime(time) => json!(time.to_string()),
        toml::Value::Array(list) => list.iter().map(to_json).collect(),
        toml::Value::Table(table) => {
            Value::Object(table.iter().map(|(key, value)| (key.clone(), to_json(value))).collect())
        }
    }
}
