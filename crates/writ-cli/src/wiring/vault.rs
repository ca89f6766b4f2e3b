//! A vault server, found and asked as its own command line does: `VAULT_ADDR`, `VAULT_NAMESPACE`; `VAULT_TOKEN`, else
//! `~/.vault-token`, else `VAULT_ROLE_ID` and `VAULT_SECRET_ID`, whichever works first.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use writ_egress::Egress;
use writ_egress::consult;
use writ_egress::deliver::Endpoint;
use writ_secrets::server::{Answer, Asked, Fetched, Login, Question, VaultError, VaultWay, fetch as read};
use writ_types::credential::CredentialRef;

use crate::context::Context;
use crate::failure::Failure;

/// The variable with the server's address.
pub(super) const ADDRESS: &str = "VAULT_ADDR";
/// Its namespace, where it has several.
pub(super) const NAMESPACE: &str = "VAULT_NAMESPACE";
/// The variables that say where it is and who asks.
pub(super) const VARIABLES: [&str; 5] =
    [ADDRESS, NAMESPACE, "VAULT_TOKEN", "VAULT_ROLE_ID", "VAULT_SECRET_ID"];
/// The token that `vault login` leaves, below the user's own folder.
const TOKEN_FILE: &str = ".vault-token";
/// The longest token that is read from a file, in bytes.
const MAX_TOKEN_BYTES: u64 = 16 * 1024;
/// The time limit of one request.
const LIMIT: Duration = Duration::from_secs(20);

/// Reads the secrets in `named` from a vault server.
///
/// # Errors
///
/// If a secret is named, and the server is not known, does not answer, refuses the login, or has no such
/// secret.
pub(super) async fn fetch(
    context: &Context,
    named: &BTreeSet<CredentialRef>,
    egress: &Arc<Egress>,
) -> Result<Fetched, Failure> {
    let of_vault = |key: &&CredentialRef| matches!(key, CredentialRef::Vault { .. });
    let Some(first) = named.iter().find(of_vault) else { return Ok(Fetched::default()) };
    let address = context.env.text(ADDRESS).ok_or_else(|| VaultError::NoAddress(first.clone()))?;
    let way = Way {
        egress: Arc::clone(egress),
        address: address.to_owned(),
        namespace: context.env.secret(NAMESPACE),
    };
    // Before anything secret is sent.
    way.at("/v1").map_err(VaultError::Address)?;
    Ok(read(&way, logins(context), named).await?)
}

fn logins(context: &Context) -> Vec<Login> {
    let env = &context.env;
    let mut logins = Vec::new();
    if let Some(token) = env.secret("VAULT_TOKEN") {
        logins.push(Login::Token { from: "VAULT_TOKEN", token });
    }
    if let Some(token) = env.path("HOME").and_then(|home| token_in(&home.join(TOKEN_FILE))) {
        logins.push(Login::Token { from: "~/.vault-token", token });
    }
    if let Some((role, secret)) = env.secret("VAULT_ROLE_ID").zip(env.secret("VAULT_SECRET_ID")) {
        logins.push(Login::AppRole { role, secret });
    }
    logins
}

/// The token in a file, if there is one.
fn token_in(path: &std::path::Path) -> Option<SecretString> {
    let mut text = String::new();
    std::fs::File::open(path).ok()?.take(MAX_TOKEN_BYTES).read_to_string(&mut text).ok()?;
    let token = text.trim();
    (!token.is_empty()).then(|| SecretString::from(token))
}

struct Way {
    egress: Arc<Egress>,
    address: String,
    namespace: Option<SecretString>,
}

impl Way {
    fn at(&self, path: &str) -> Result<Endpoint, &'static str> {
        let endpoint = Endpoint::below(&self.address, path);
        let endpoint = endpoint.map_err(|_| "it is no http or https address without user name and query")?;
        match endpoint.is_private() {
            true => Ok(endpoint),
            false => Err("others could read what is sent there"),
        }
    }
}

impl VaultWay for Way {
    fn ask<'a>(&'a self, path: &'a str, question: Question) -> Asked<'a> {
        Box::pin(async move {
            let endpoint = self.at(path).map_err(str::to_owned)?;
            let mut asked = consult::Question::default();
            if let Some(namespace) = &self.namespace {
                asked.headers.push(("x-vault-namespace", namespace.clone()));
            }
            match question {
                Question::Read(token) => asked.headers.push(("x-vault-token", token)),
                Question::Post(body) => asked.body = Some(body),
            }
            let answer = self.egress.consult(&endpoint, asked, LIMIT).await;
            let answer = answer.map_err(|error| error.to_string())?;
            Ok(Answer { status: answer.status, body: answer.body })
        })
    }
}
