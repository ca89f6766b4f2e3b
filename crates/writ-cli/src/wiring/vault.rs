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
use writ_secrets::server::{
    Fetched, Login, PendingAnswer, VaultAnswer, VaultError, VaultQuestion, VaultWay, fetch_secrets as read,
};
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
pub(super) async fn fetch_secrets(
    context: &Context,
    named: &BTreeSet<CredentialRef>,
    egress: &Arc<Egress>,
) -> Result<Fetched, Failure> {
    let of_vault = |key: &&CredentialRef| matches!(key, CredentialRef::Vault { .. });
    let Some(first) = named.iter().find(of_vault) else { return Ok(Fetched::default()) };
    let address = context.env.text_of(ADDRESS).ok_or_else(|| VaultError::NoAddress(first.clone()))?;
    let way = VaultConnection {
        egress: Arc::clone(egress),
        address: address.to_owned(),
        namespace: context.env.secret_of(NAMESPACE),
    };
    // Before anything secret is sent.
    way.endpoint_at("/v1").map_err(VaultError::Address)?;
    Ok(read(&way, possible_logins(context), named).await?)
}

fn possible_logins(context: &Context) -> Vec<Login> {
    let env = &context.env;
    let mut logins = Vec::new();
    if let Some(token) = env.secret_of("VAULT_TOKEN") {
        logins.push(Login::Token { from: "VAULT_TOKEN", token });
    }
    if let Some(token) = env.path_of("HOME").and_then(|home| token_in(&home.join(TOKEN_FILE))) {
        logins.push(Login::Token { from: "~/.vault-token", token });
    }
    if let Some((role, secret)) = env.secret_of("VAULT_ROLE_ID").zip(env.secret_of("VAULT_SECRET_ID")) {
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

struct VaultConnection {
    egress: Arc<Egress>,
    address: String,
    namespace: Option<SecretString>,
}

impl VaultConnection {
    fn endpoint_at(&self, path: &str) -> Result<Endpoint, &'static str> {
        let endpoint = Endpoint::path_below(&self.address, path);
        let endpoint = endpoint.map_err(|_| "it is no http or https address without user name and query")?;
        match endpoint.is_private() {
            true => Ok(endpoint),
            false => Err("others could read what is sent there"),
        }
    }
}

impl VaultWay for VaultConnection {
    fn ask<'a>(&'a self, path: &'a str, question: VaultQuestion) -> PendingAnswer<'a> {
        Box::pin(async move {
            let endpoint = self.endpoint_at(path).map_err(str::to_owned)?;
            let mut asked = consult::EngineRequest::default();
            if let Some(namespace) = &self.namespace {
                asked.headers.push(("x-vault-namespace", namespace.clone()));
            }
            match question {
                VaultQuestion::Read(token) => asked.headers.push(("x-vault-token", token)),
                VaultQuestion::Post(body) => asked.body = Some(body),
            }
            let answer = self.egress.send_question(&endpoint, asked, LIMIT).await;
            let answer = answer.map_err(|error| error.to_string())?;
            Ok(VaultAnswer { status: answer.status, body: answer.body })
        })
    }
}
