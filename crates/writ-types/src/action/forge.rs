//! A pull or merge request at a forge, as it is approved and opened.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::credential::CredentialRef;

/// The kind of a forge: the wire format of its API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ForgeKind {
    /// GitHub, or GitHub Enterprise Server.
    Github,
    /// GitLab.
    Gitlab,
    /// Gitea.
    Gitea,
    /// Forgejo, such as Codeberg.
    Forgejo,
}

impl ForgeKind {
    /// Every kind, the usual one first.
    pub const ALL: [Self; 4] = [Self::Github, Self::Gitlab, Self::Gitea, Self::Forgejo];

    /// Returns its name in settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Github => "github",
            Self::Gitlab => "gitlab",
            Self::Gitea => "gitea",
            Self::Forgejo => "forgejo",
        }
    }

    /// Returns the address of the API of its best-known server.
    pub const fn public_api(self) -> &'static str {
        match self {
            Self::Github => "https://api.github.com",
            Self::Gitlab => "https://gitlab.com/api/v4",
            Self::Gitea => "https://gitea.com/api/v1",
            Self::Forgejo => "https://codeberg.org/api/v1",
        }
    }

    /// Returns the user name under which git sends a token of this forge as a password.
    pub const fn git_user(self) -> &'static str {
        match self {
            // GitHub takes any name but none; this is the one in its documents.
            Self::Github => "x-access-token",
            Self::Gitlab | Self::Gitea | Self::Forgejo => "oauth2",
        }
    }
}

/// A request for review: a branch that is pushed, and the pull or merge request that is opened for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgeRequest {
    /// The kind of the forge.
    pub forge: ForgeKind,
    /// The address of its API.
    pub api: String,
    /// The repository there: `owner/name`, at GitLab also with groups in between.
    pub project: String,
    /// The token, by reference. Its value is in no action and no record.
    pub token: CredentialRef,
    /// The unit of the autopilot that it is about.
    pub unit: String,
    /// The commit that is pushed.
    pub commit: String,
    /// The branch that it is pushed to.
    pub branch: String,
    /// The branch that it is to be merged into.
    pub base: String,
    /// Its title.
    pub title: String,
    /// Its text.
    pub text: String,
}
