//! The proxy and the certificate authorities of the owner's network, and a connection by them.

use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use writ_egress::Egress;
use writ_egress::deliver::{DeliverError, Endpoint};
use writ_egress::upstream::{ProxyRoutes, Upstream};
use writ_models::provider::Routes as ModelRoutes;
use writ_secrets::backend::Backend;
use writ_secrets::record::recorded_backend;
use writ_types::credential::CredentialRef;
use writ_types::error::{Report, ToReport as _};

use super::DoctorCheck;
use crate::config::Config;
use crate::context::Context;
use crate::interrupt::block_on;
use crate::keyring::open_secrets;
use crate::wiring::credentials::proxy_password;

/// The time limit of the trial connection.
const TRY_LIMIT: Duration = Duration::from_secs(15);

/// Checks the network settings; none if it has neither a proxy nor an authority of its own.
pub(super) fn run_network_checks(context: &Context, config: &Config) -> Vec<DoctorCheck> {
    let network = &config.network;
    let password = |reference: &CredentialRef| -> Result<SecretString, String> {
        // A check asks no questions.
        if let (CredentialRef::Secret(_), Ok(Some(Backend::Age))) =
            (reference, recorded_backend(&context.home.keys()))
        {
            return Ok(SecretString::default());
        }
        let secrets =
            open_secrets(context, config).map_err(|failure| failure.as_json()["text"].to_string())?;
        proxy_password(reference, &secrets, &context.env)
    };
    let routes = match network.build_routes(&context.env, password) {
        Ok(routes) => routes,
        Err(error) => return vec![DoctorCheck::check_of_failure("proxy", error.into())],
    };
    let trusted = match network.trusted_authorities(&context.env) {
        Ok(trusted) => trusted,
        Err(error) => return vec![DoctorCheck::check_of_failure("ca", error.into())],
    };
    let mut checks = check_proxies(&routes);
    if !trusted.added.is_empty() {
        let text =
            format!("{} certificate authorities are trusted besides the system's", trusted.added.len());
        checks.push(DoctorCheck::passed_check("ca", text));
    }
    if checks.is_empty() {
        return checks;
    }
    let egress = Egress::new(&config.egress.limits, &context.home.runtime())
        .and_then(|egress| egress.with_network(routes, trusted.added, &trusted.system));
    match egress {
        Ok(egress) => checks.extend(check_connection(&egress, config)),
        Err(error) => checks.push(DoctorCheck::check_of_failure("network", error.into())),
    }
    checks
}

fn check_proxies(routes: &ProxyRoutes) -> Vec<DoctorCheck> {
    let named = |what: &str, proxy: &Arc<Upstream>| {
        let login = if proxy.has_login() { ", with user name and password ****" } else { "" };
        DoctorCheck::passed_check("proxy", format!("{what}: {proxy}{login}"))
    };
    match (&routes.secure, &routes.plain) {
        // One proxy for both kinds of connections is one line.
        (Some(one), Some(other)) if one.to_string() == other.to_string() => vec![named("all", one)],
        (secure, plain) => {
            let secure = secure.as_ref().map(|proxy| named("https", proxy));
            secure.into_iter().chain(plain.as_ref().map(|proxy| named("http", proxy))).collect()
        }
    }
}

/// Tries the way to the host of the main model.
fn check_connection(egress: &Egress, config: &Config) -> Vec<DoctorCheck> {
    let Ok(routes) = ModelRoutes::new(&config.models) else { return Vec::new() };
    let Some((_, route)) = routes.all().next() else { return Vec::new() };
    let Ok(endpoint) = Endpoint::path_below(&route.provider.base_url, "/") else { return Vec::new() };
    // A bare connection to the model's host, without a request that costs anything.
    let tried = block_on(async { Ok(egress.probe_endpoint(&endpoint, TRY_LIMIT).await) });
    vec![match tried {
        Ok(Ok(status)) => {
            DoctorCheck::passed_check("network", format!("{} answers ({status})", endpoint.host()))
        }
        Ok(Err(error)) => {
            let Report { outside, hint, .. } = match error {
                DeliverError::Way(error) => error.report(),
                other @ (DeliverError::Request(_) | DeliverError::Timeout(_) | DeliverError::Credential) => {
                    let text = format!("{} cannot be asked: {other}", endpoint.host());
                    Report::new(writ_types::error::Exit::Model, "doctor.network", text)
                        .with_hint("check the network, network.proxy and network.ca_file")
                }
            };
            DoctorCheck::failed_check("network", outside, hint)
        }
        Err(failure) => DoctorCheck::check_of_failure("network", failure),
    }]
}
