//! Advice for the owner about a valid configuration.

use std::net::IpAddr;

use writ_models::config::ModelRole;
use writ_models::provider::Routes;

use crate::config::Config;

/// Returns the reason that the model of the main loop is not recommended, if it is not: one that runs on this
/// machine or in the network around it is usually small, and small models are easily manipulated.
pub(crate) fn main_model(config: &Config) -> Option<String> {
    let routes = Routes::new(&config.models).ok()?;
    let route = routes.route(ModelRole::Executor);
    is_local(&route.provider.host).then(|| {
        format!(
            "{}/{} is a local model: not recommended for the main loop, since small models follow orders that \
             are hidden in what they read more easily",
            route.provider.name, route.model
        )
    })
}

/// Returns true if a `host:port` is this machine or one of the network around it.
fn is_local(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    match name.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => address.is_loopback() || address.is_private() || address.is_link_local(),
        Ok(IpAddr::V6(address)) => {
            address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local()
        }
        // A name without a dot is one of the network around.
        Err(_) => !name.contains('.') || name.ends_with(".local"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_around_are_told_from_hosts_far_away() {
        for local in
            ["127.0.0.1:11434", "localhost:8080", "[::1]:80", "192.168.1.5:1", "10.0.0.9:80", "box.local:80"]
        {
            assert!(is_local(local), "{local}");
        }
        for far in ["api.anthropic.com:443", "8.8.8.8:443", "[2001:db8::1]:443", "localhost.example.com:443"]
        {
            assert!(!is_local(far), "{far}");
        }
    }
}
