//! The requests for review that are opened at a forge.

use writ_runtime::forge::{MAX_PROJECT_BYTES, is_project};
use writ_sandbox::git::BranchName;
use writ_sandbox::git::push::RemotePlace;
use writ_types::action::ForgeKind;
use writ_types::credential::CredentialRef;

use super::section::{FoundSetting, Section, cut_word};
use super::{CONFIG_FILE, PilotConfigError};

/// The longest address of an API, in bytes.
const MAX_API_BYTES: usize = 512;
/// The longest name of a remote, in bytes.
const MAX_REMOTE_BYTES: usize = 100;

/// The units for which requests are opened, once they are merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShipMoment {
    /// Milestones, and tasks that were asked for directly.
    #[default]
    Milestone,
    /// Slices, and tasks that were asked for directly.
    Slice,
    /// None.
    Never,
}

impl ShipMoment {
    /// Every moment.
    const ALL: [Self; 3] = [Self::Milestone, Self::Slice, Self::Never];

    /// Returns its name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Milestone => "milestone",
            Self::Slice => "slice",
            Self::Never => "never",
        }
    }
}

/// The settings of requests at a forge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShipConfig {
    /// The units for which they are opened.
    pub at: ShipMoment,
    /// The kind of the forge.
    pub forge: ForgeKind,
    /// The address of its API.
    pub api: String,
    /// Its token, by reference.
    pub token: CredentialRef,
    /// The repository there; none: the one that the remote names.
    pub repository: Option<String>,
    /// The remote that branches are pushed to.
    pub remote: String,
    /// The branch there that requests are to be merged into; none: the name of the target.
    pub base: Option<String>,
}

/// Reads the section of requests at a forge.
pub(super) fn read_ship(
    place: &FoundSetting<'_>,
    mut section: Section<'_>,
) -> Result<Option<ShipConfig>, PilotConfigError> {
    let moments = ShipMoment::ALL.map(|moment| (moment.name(), moment));
    let at = section.read_choice("at", &moments)?.unwrap_or_default();
    // A project may come from anywhere: it must not say where a token of the owner's is sent.
    for key in ["forge", "api", "token"] {
        if let Some(setting) = section.find_all(key).into_iter().find(|one| one.origin().0 == CONFIG_FILE) {
            return Err(setting.fault(
                "stands only in the owner's own file",
                "write it into `pilot.toml` in the home, beside `config.toml`",
            ));
        }
    }
    let forge = section.read_choice("forge", &ForgeKind::ALL.map(|kind| (kind.name(), kind)))?;
    let forge = forge.unwrap_or(ForgeKind::Github);
    let api = read_api(section.find_setting("api"))?.unwrap_or_else(|| forge.public_api().to_owned());
    let token = match section.find_setting("token") {
        // The text is not repeated: it may be the token itself.
        Some(setting) => {
            Some(read_secret_name(&setting, "write \"secret:NAME\"; `writ secrets set NAME` stores it")?)
        }
        None => None,
    };
    let repository = read_word(
        section.find_setting("repository"),
        |name| is_project(forge, name),
        ("names no repository", "write \"owner/name\""),
    )?;
    let is_remote = |name: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        !name.starts_with('-') && name.len() <= MAX_REMOTE_BYTES && name.chars().all(is_plain)
    };
    let remote = read_word(
        section.find_setting("remote"),
        is_remote,
        ("names no remote", "write a name that `git remote` lists"),
    )?;
    let is_branch = |name: &str| BranchName::parse_name(name).is_ok();
    let base = read_word(
        section.find_setting("base"),
        is_branch,
        ("names no branch", "write a name such as \"main\""),
    )?;
    section.end_section()?;
    let remote = remote.unwrap_or_else(|| "origin".to_owned());
    match token {
        Some(token) => Ok(Some(ShipConfig { at, forge, api, token, repository, remote, base })),
        // A project says what it would ship; its owner has to say that it is shipped.
        None if at == ShipMoment::Never || place.origin().0 == CONFIG_FILE => Ok(None),
        None => {
            Err(place
                .fault("has no `token`", "write token = \"secret:NAME\"; `writ secrets set NAME` stores it"))
        }
    }
}

/// Reads the name of a secret of the home. Variables and vault servers are not read here, since the engine knows at its start alone which of
/// their values to mask. The text is not repeated: it may be the secret itself.
pub(super) fn read_secret_name(
    setting: &FoundSetting<'_>,
    hint: &str,
) -> Result<CredentialRef, PilotConfigError> {
    match setting.read_text()?.parse::<CredentialRef>() {
        Ok(reference @ CredentialRef::Secret(_)) => Ok(reference),
        Ok(_) => Err(setting.fault("names no secret of the home", hint)),
        Err(error) => Err(setting.fault(&format!("is no reference: {error}"), hint)),
    }
}

fn read_api(setting: Option<FoundSetting<'_>>) -> Result<Option<String>, PilotConfigError> {
    let Some(setting) = setting else { return Ok(None) };
    let text = setting.read_text()?;
    // The same rules as for the address of a remote: encrypted, or not beyond this machine.
    let is_address = matches!(RemotePlace::parse_address(text), Ok(RemotePlace::Web { .. }));
    if text.len() > MAX_API_BYTES || !is_address {
        return Err(setting.fault(
            "is no https address without a credential",
            "write the address of the API, such as \"https://git.example.org/api/v1\"",
        ));
    }
    Ok(Some(text.trim_end_matches('/').to_owned()))
}

fn read_word(
    setting: Option<FoundSetting<'_>>,
    fits: impl Fn(&str) -> bool,
    (problem, hint): (&str, &str),
) -> Result<Option<String>, PilotConfigError> {
    let Some(setting) = setting else { return Ok(None) };
    let word = setting.read_text()?;
    if word.is_empty() || word.len() > MAX_PROJECT_BYTES || !fits(word) {
        return Err(setting.fault(&format!("{problem}: '{}'", cut_word(word)), hint));
    }
    Ok(Some(word.to_owned()))
}
