//! Secrets of a vault server, by reference: `vault://mount/path#field`, version 2 of its key-value engine.
//!
//! Each is read once, when the engine starts, and stays in memory. The connection is the caller's
//! ([`VaultWay`]): this crate opens no sockets.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::pin::Pin;

use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::Value;
use writ_types::credential::CredentialRef;
use writ_types::error::{Exit, Report, ToReport};
use zeroize::Zeroizing;

use crate::store::MAX_VALUE_BYTES;

/// The most secrets that are read from a server: as many as a home may hold.
pub const MAX_FETCHED: usize = 1_000;

/// A question to a server.
#[derive(Debug)]
pub enum VaultQuestion {
    /// The content of the path, for the bearer of a token.
    Read(SecretString),
    /// A login.
    Post(Zeroizing<Vec<u8>>),
}

/// The answer of a server.
pub struct VaultAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for VaultAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VaultAnswer").field("status", &self.status).finish_non_exhaustive()
    }
}

/// The pending answer to a question, or the error.
pub type PendingAnswer<'a> = Pin<Box<dyn Future<Output = Result<VaultAnswer, String>> + Send + 'a>>;

/// The connection to a server, implemented by a crate that may open sockets.
pub trait VaultWay: Send + Sync {
    /// Asks at a path below the server's address.
    fn ask<'a>(&'a self, path: &'a str, question: VaultQuestion) -> PendingAnswer<'a>;
}

/// The proof of identity for a server.
#[derive(Debug)]
pub enum Login {
    /// A token, and where it is from.
    Token {
        /// The origin of its token.
        from: &'static str,
        /// The token.
        token: SecretString,
    },
    /// A role and its secret.
    AppRole {
        /// The role's id.
        role: SecretString,
        /// Its secret's id.
        secret: SecretString,
    },
}

/// The reason why secrets could not be read from a server. No variant holds a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VaultError {
    /// Nothing says where the server is.
    #[error("{0} is named, and nothing says where the vault server is")]
    NoAddress(CredentialRef),
    /// The address cannot be used.
    #[error("the address of the vault server cannot be used: {0}")]
    Address(&'static str),
    /// There is nothing to log in with.
    #[error("there is nothing to log in to the vault server with")]
    NoLogin,
    /// None of the logins works.
    #[error("the vault server takes none of these: {}", .0.join(", "))]
    NoneWorks(Vec<&'static str>),
    /// It cannot be reached.
    #[error("the vault server does not answer: {0}")]
    Unreachable(String),
    /// It is sealed, or not ready otherwise.
    #[error("the vault server is not ready (status {0})")]
    NotReady(u16),
    /// There is no such secret.
    #[error("{0}: the vault server has nothing at this path")]
    NotFound(CredentialRef),
    /// The secret has no such field.
    #[error("{0}: the secret at this path has no such field")]
    NoField(CredentialRef),
    /// The field is no text, empty or too long.
    #[error("{0}: the field is not a text of 1 to {MAX_VALUE_BYTES} bytes")]
    NotText(CredentialRef),
    /// The login may not read it.
    #[error("{0}: the vault server does not let this login read it")]
    Forbidden(CredentialRef),
    /// The answer cannot be understood.
    #[error("the vault server's answer is not understood (status {0})")]
    Malformed(u16),
    /// Too many are named.
    #[error("more than {MAX_FETCHED} secrets of the vault server are named")]
    TooMany,
}

impl ToReport for VaultError {
    fn report(&self) -> Report {
        let (exit, code, hint) = match self {
            Self::NoAddress(_) => (Exit::Config, "vault.no_address", "set VAULT_ADDR"),
            Self::Address(_) => {
                (Exit::Config, "vault.address", "give VAULT_ADDR an https address, or one of this machine")
            }
            Self::NoLogin => (
                Exit::Config,
                "vault.no_login",
                "set VAULT_TOKEN, log in with `vault login`, or set VAULT_ROLE_ID and VAULT_SECRET_ID",
            ),
            Self::NoneWorks(_) => (Exit::Denied, "vault.login", "log in anew: tokens expire"),
            Self::Unreachable(_) => (Exit::Blocked, "vault.unreachable", "check VAULT_ADDR and the network"),
            Self::NotReady(_) => (Exit::Blocked, "vault.not_ready", "unseal it, or wait for it"),
            Self::NotFound(_) | Self::NoField(_) => (
                Exit::Config,
                "vault.missing",
                "check mount, path and field; the engine must be KV version 2",
            ),
            Self::NotText(_) => (Exit::Config, "vault.not_text", "store the secret as a text"),
            Self::Forbidden(_) => (Exit::Denied, "vault.forbidden", "give its policy `read` on this path"),
            Self::Malformed(_) => {
                (Exit::Config, "vault.malformed", "check that VAULT_ADDR names a vault server")
            }
            Self::TooMany => {
                (Exit::Config, "vault.too_many", "name fewer secrets of the server in the configuration")
            }
        };
        Report::new(exit, code, self.to_string()).with_hint(hint)
    }
}

/// The secrets read from a server, until the engine ends.
#[derive(Clone, Default)]
pub struct Fetched {
    values: BTreeMap<CredentialRef, SecretString>,
}

impl fmt::Debug for Fetched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.values.keys()).finish()
    }
}

impl Fetched {
    /// The value that a reference stands for, if it was read.
    pub fn get_secret(&self, reference: &CredentialRef) -> Option<SecretString> {
        self.values.get(reference).cloned()
    }

    /// Everything that was read.
    pub fn all_secrets(&self) -> impl Iterator<Item = (&CredentialRef, &SecretString)> {
        self.values.iter()
    }
}

/// Reads what `wanted` names, each path once, with the first login that works. References to other places are left out.
///
/// # Errors
///
/// If no login works, or one of the secrets cannot be read.
pub async fn fetch_secrets(
    way: &dyn VaultWay,
    logins: Vec<Login>,
    wanted: &BTreeSet<CredentialRef>,
) -> Result<Fetched, VaultError> {
    // Several fields of one path are read with one request.
    let mut paths: BTreeMap<(&str, &str), Vec<(&str, &CredentialRef)>> = BTreeMap::new();
    for reference in wanted {
        if let CredentialRef::Vault { mount, path, field } = reference {
            paths.entry((mount, path)).or_default().push((field, reference));
        }
    }
    // Counted are references and not paths, since each becomes a value in memory.
    if wanted.len() > MAX_FETCHED {
        return Err(VaultError::TooMany);
    }
    if paths.is_empty() {
        return Ok(Fetched::default());
    }
    // The login happens only if something is to be read.
    let token = log_in(way, logins).await?;
    let mut fetched = Fetched::default();
    for ((mount, path), fields) in paths {
        let Some((_, first)) = fields.first() else { continue };
        let answer =
            ask(way, &format!("/v1/{mount}/data/{path}"), VaultQuestion::Read(token.clone())).await?;
        // 404 is also the answer for a version that was deleted.
        let secret = match answer.status {
            200 => read_secret(&answer)?,
            403 => return Err(VaultError::Forbidden((*first).clone())),
            404 => return Err(VaultError::NotFound((*first).clone())),
            other => return Err(VaultError::Malformed(other)),
        };
        for (field, reference) in fields {
            let value = match secret.data.data.get(field) {
                None => return Err(VaultError::NoField(reference.clone())),
                Some(Hidden::Text(value)) => value,
                Some(Hidden::Other(_)) => return Err(VaultError::NotText(reference.clone())),
            };
            // An empty value would be masked everywhere, and a long one fits nowhere.
            if value.expose_secret().is_empty() || value.expose_secret().len() > MAX_VALUE_BYTES {
                return Err(VaultError::NotText(reference.clone()));
            }
            fetched.values.insert(reference.clone(), value.clone());
        }
    }
    Ok(fetched)
}

/// The token of the first login that the server takes.
async fn log_in(way: &dyn VaultWay, logins: Vec<Login>) -> Result<SecretString, VaultError> {
    let mut tried = Vec::new();
    for login in logins {
        match login {
            Login::Token { from, token } => {
                let question = VaultQuestion::Read(token.clone());
                match ask(way, "/v1/auth/token/lookup-self", question).await?.status {
                    200 => return Ok(token),
                    // These are the answers to a login that is not valid; any other one is a fault of the
                    // server.
                    400 | 401 | 403 => tried.push(from),
                    other => return Err(VaultError::Malformed(other)),
                }
            }
            Login::AppRole { role, secret } => {
                let body = serde_json::json!({
                    "role_id": role.expose_secret(), "secret_id": secret.expose_secret(),
                });
                // The body is wiped after it was sent, as it holds the secret.
                let body = Zeroizing::new(body.to_string().into_bytes());
                let answer = ask(way, "/v1/auth/approle/login", VaultQuestion::Post(body)).await?;
                match answer.status {
                    200 => return Ok(read_answer::<LoggedIn>(&answer)?.auth.client_token.into()),
                    400 | 401 | 403 => tried.push("AppRole"),
                    other => return Err(VaultError::Malformed(other)),
                }
            }
        }
    }
    if tried.is_empty() { Err(VaultError::NoLogin) } else { Err(VaultError::NoneWorks(tried)) }
}

async fn ask(way: &dyn VaultWay, path: &str, question: VaultQuestion) -> Result<VaultAnswer, VaultError> {
    let answer = way.ask(path, question).await.map_err(VaultError::Unreachable)?;
    // 429 and 47x are what a standby says; 5xx what a sealed or broken one does.
    match answer.status {
        status @ (429 | 472 | 473 | 500..=599) => Err(VaultError::NotReady(status)),
        _ => Ok(answer),
    }
}

#[derive(Deserialize)]
struct LoggedIn {
    auth: Auth,
}

#[derive(Deserialize)]
struct Auth {
    client_token: String,
}

#[derive(Deserialize)]
struct Secret {
    data: Versioned,
}

#[derive(Deserialize)]
struct Versioned {
    data: BTreeMap<String, Hidden>,
}

/// The value of a field, which nothing shows.
enum Hidden {
    Text(SecretString),
    Other(()),
}

impl<'de> Deserialize<'de> for Hidden {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match Value::deserialize(deserializer)? {
            Value::String(text) => Self::Text(text.into()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                Self::Other(())
            }
        })
    }
}

/// A secret with its fields; a version that was deleted has none.
fn read_secret(answer: &VaultAnswer) -> Result<Secret, VaultError> {
    read_answer(answer)
}

/// Reads an answer. What the parser stumbles over is dropped: it may quote a value.
fn read_answer<T: serde::de::DeserializeOwned>(answer: &VaultAnswer) -> Result<T, VaultError> {
    serde_json::from_slice(&answer.body).map_err(|_| VaultError::Malformed(answer.status))
}
