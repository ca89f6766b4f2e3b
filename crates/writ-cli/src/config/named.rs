//! The named agents: files `agents/NAME.toml` of the home, each with a model, tools, rules and folders.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use writ_policy::rules::{Authorship, RuleSet, RuleSource};
use writ_runtime::profile::{MAX_NAMED, NamedAgent};
use writ_types::error::{Exit, Report, ToReport};

use crate::config::policies::{self, read_bounded};
use crate::home::Home;

/// The largest file of an agent, in bytes.
const MAX_AGENT_BYTES: usize = 256 * 1024;
/// The longest name of an agent, in characters.
const MAX_NAME_CHARS: usize = 64;

/// A file of a named agent that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("agents/{file}: {why}")]
pub(crate) struct NamedAgentError {
    /// The file's name.
    file: String,
    /// The reason.
    why: String,
}

impl ToReport for NamedAgentError {
    fn report(&self) -> Report {
        let hint = "correct the file, or move it away; docs/guides/agents.md shows one";
        Report::new(Exit::Config, "config.agent", self.to_string()).with_hint(hint)
    }
}

/// A file as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AgentFile {
    /// Its purpose, in one line.
    about: String,
    /// Text for the model.
    instructions: String,
    /// The model that is asked first, as `provider/name`.
    model: Option<String>,
    /// Names of tools; none: all.
    tools: Vec<String>,
    /// Folders that it works on; none: any.
    folders: Vec<PathBuf>,
    /// Rules in Cedar that only forbid.
    rules: Option<String>,
}

/// Reads the named agents of a home.
///
/// # Errors
///
/// If a file cannot be read or cannot stand.
pub(crate) fn read_named(home: &Home) -> Result<Vec<NamedAgent>, NamedAgentError> {
    let wrong = |file: &str, why: String| NamedAgentError { file: file.to_owned(), why };
    let entries = match std::fs::read_dir(home.agents()) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(wrong("", error.to_string())),
    };
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| wrong("", error.to_string()))?.path();
        // Folders beside them are agents of a fleet.
        if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
        if files.len() > MAX_NAMED {
            return Err(wrong("", format!("there are more than {MAX_NAMED} agents")));
        }
    }
    files.sort();
    files.iter().map(|path| read_agent(home, path)).collect()
}

fn read_agent(home: &Home, path: &Path) -> Result<NamedAgent, NamedAgentError> {
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let wrong = |why: String| NamedAgentError { file: file.clone(), why };
    let name = file.strip_suffix(".toml").unwrap_or_default().to_owned();
    let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    if name.is_empty() || name.chars().count() > MAX_NAME_CHARS || !is_plain {
        return Err(wrong(format!(
            "its name has 1 to {MAX_NAME_CHARS} letters, digits, '-' or '_' before '.toml'"
        )));
    }
    let text = read_bounded(path, MAX_AGENT_BYTES).map_err(|error| wrong(error.to_string()))?;
    if text.len() > MAX_AGENT_BYTES {
        return Err(wrong(format!("it has more than {MAX_AGENT_BYTES} bytes")));
    }
    let described: AgentFile = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let rules = described.rules.map(|text| RuleSource {
        origin: format!("agents/{file}"),
        // As a project's: they can only forbid.
        authorship: Authorship::Project,
        text,
    });
    if let Some(rules) = &rules {
        let mut sources = policies::read_sources(home, None).map_err(|error| wrong(error.to_string()))?;
        sources.push(rules.clone());
        RuleSet::load_rules(&sources).map_err(|error| wrong(error.to_string()))?;
    }
    let mut folders = Vec::with_capacity(described.folders.len());
    for folder in described.folders {
        // As sessions name their projects.
        let found = std::fs::canonicalize(&folder);
        folders.push(found.map_err(|error| wrong(format!("the folder {}: {error}", folder.display())))?);
    }
    let about = described.about.lines().next().unwrap_or_default().trim().to_owned();
    let (instructions, model, tools) = (described.instructions, described.model, described.tools);
    Ok(NamedAgent { name, about, instructions, model, tools, folders, rules })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Env;

    fn read(name: &str, text: &str) -> Result<Vec<NamedAgent>, String> {
        let dir = tempfile::tempdir().expect("temp dir");
        let home = Home::find_home(Some(dir.path()), &Env::default()).expect("found");
        std::fs::create_dir_all(home.agents().join("of-a-fleet")).expect("made");
        std::fs::write(home.agents().join(name), text.replace("HERE", &dir.path().display().to_string()))
            .expect("written");
        read_named(&home).map_err(|error| error.report().outside)
    }

    #[test]
    fn an_agent_is_a_file_and_what_is_wrong_with_it_is_said() {
        let text = "about = \"Reads only\"\nmodel = \"local/small\"\ntools = [\"file_read\"]\nfolders = [\"HERE\"]\n\
                    instructions = \"Be brief.\"\nrules = '''\n@id(\"no-exec\")\nforbid (principal, action, resource);\n'''\n";
        let agents = read("reader.toml", text).expect("reads");
        assert_eq!(agents.len(), 1, "folders are agents of a fleet");
        let agent = &agents[0];
        assert_eq!((agent.name.as_str(), agent.about.as_str()), ("reader", "Reads only"));
        assert_eq!((agent.tools.as_slice(), agent.folders.len()), (["file_read".to_owned()].as_slice(), 1));
        assert!(agent.works_on(None) && !agent.works_on(Some(Path::new("/elsewhere"))));
        assert!(agent.works_on(Some(&agent.folders[0].join("below"))));
        let widens = "rules = '''\n@id(\"all\")\npermit (principal, action, resource);\n'''";
        for (name, text, wanted) in [
            ("a b.toml", "", "letters, digits"),
            ("x.toml", "modell = \"a/b\"", "modell"),
            ("x.toml", "folders = [\"/not/there\"]", "/not/there"),
            ("x.toml", widens, "agents/x.toml"),
            ("x.toml", "rules = \"nonsense\"", "agents/x.toml"),
        ] {
            let told = read(name, text).expect_err("refused");
            assert!(told.contains(wanted), "{name}: {told}");
        }
    }
}
