//! The owner's lists of hosts: the section `[egress]`.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use writ_egress::EgressConfig;
use writ_egress::proxy::ProxyConfig;
use writ_inspect::egress::credential::Binding;
use writ_inspect::egress::host::HostPattern;
use writ_inspect::egress::{EgressScope, Pin, Registry};
use writ_models::config::ModelsConfig;
use writ_models::provider::Routes;

/// The hosts that may be reached, as the owner lists them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct EgressLists {
    /// Hosts that may be reached without a question. Default: none.
    pub(crate) allowed: Vec<HostPattern>,
    /// Hosts that are refused, also after an approval. Default: none.
    pub(crate) blocked: Vec<HostPattern>,
    /// Hosts that are asked about for each piece of work, even where allowed. Default: none.
    pub(crate) always_ask: Vec<HostPattern>,
    /// Package registries that are open. Default: [`Registry::DEFAULT`].
    pub(crate) registries: BTreeSet<Registry>,
    /// Hosts to which a tunnel may carry what is not TLS. Default: none.
    pub(crate) opaque: Vec<HostPattern>,
    /// Hosts with a fixed address. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) pin: Vec<Pin>,
    /// Secrets that programs use and never have. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) credentials: Vec<Binding>,
    /// Limits of what the engine itself fetches and sends.
    pub(crate) limits: EgressConfig,
    /// Limits of programs in sandboxes.
    pub(crate) proxy: ProxyConfig,
}

impl Default for EgressLists {
    fn default() -> Self {
        Self {
            allowed: Vec::new(),
            blocked: Vec::new(),
            always_ask: Vec::new(),
            registries: Registry::DEFAULT.into(),
            opaque: Vec::new(),
            pin: Vec::new(),
            credentials: Vec::new(),
            limits: EgressConfig::default(),
            proxy: ProxyConfig::default(),
        }
    }
}

impl EgressLists {
    /// Returns the hosts that every session may reach, before any approval.
    pub(crate) fn egress_scope(&self, models: &ModelsConfig) -> EgressScope {
        EgressScope {
            allowed: self.allowed.clone(),
            blocked: self.blocked.clone(),
            always_ask: self.always_ask.clone(),
            registries: self.registries.clone(),
            opaque: self.opaque.clone(),
            bound: self
                .credentials
                .iter()
                .filter(|one| allows_changes(one))
                .map(|one| one.host.clone())
                .collect(),
            pins: self.pin.clone(),
            providers: provider_hosts(models),
            own_addresses: own_addresses(),
            ..EgressScope::default()
        }
    }
}

/// Returns true if the secret's binding allows changes at its host.
fn allows_changes(binding: &Binding) -> bool {
    binding.methods.iter().any(|method| !matches!(method.as_str(), "GET" | "HEAD"))
}

/// The hosts of the models that are configured.
fn provider_hosts(models: &ModelsConfig) -> Vec<HostPattern> {
    let Ok(routes) = Routes::new(models) else { return Vec::new() };
    let hosts: BTreeSet<&str> = routes.named().map(|route| route.provider.host.as_str()).collect();
    hosts.into_iter().filter_map(|host| host.parse().ok()).collect()
}

/// The addresses of this machine's interfaces now: an engine that outlives a change of network knows the old ones.
fn own_addresses() -> BTreeSet<IpAddr> {
    let Ok(interfaces) = nix::ifaddrs::getifaddrs() else { return BTreeSet::new() };
    interfaces
        .filter_map(|interface| interface.address)
        .filter_map(|address| {
            let v4 = address.as_sockaddr_in().map(|v4| IpAddr::from(v4.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::from(v6.ip())))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_among_the_machines_own_addresses() {
        assert!(own_addresses().contains(&IpAddr::from([127, 0, 0, 1])));
    }

    #[test]
    fn the_scope_is_what_the_lists_say() {
        let lists =
            EgressLists { blocked: vec!["*.evil.example".parse().expect("a pattern")], ..Default::default() };
        let scope = lists.egress_scope(&ModelsConfig::default());
        assert_eq!(scope.blocked, lists.blocked);
        assert_eq!(scope.registries, Registry::DEFAULT.into());
        assert!(scope.allowed.is_empty() && scope.granted.is_empty() && scope.providers.is_empty());
    }
}
