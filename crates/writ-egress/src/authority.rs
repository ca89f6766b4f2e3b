//! The certificate authority of an installation: it opens the connections to hosts that a credential is bound to, and no
//! others.
//!
//! Its key lies with the home's other keys, and no sandbox sees it; sandboxes are given the certificate. What it signs
//! lives as long as the engine, in memory.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, ServerConfig};
use secrecy::{ExposeSecret as _, SecretString};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use writ_inspect::egress::host::Host;
use writ_types::digest::Digest;
use writ_types::error::{Exit, Report, ToReport};
use zeroize::Zeroizing;

/// The one protocol that is spoken in opened connections, both ways.
pub(crate) const HTTP1: &[u8] = b"http/1.1";
/// The largest number of hosts with a certificate in memory; a home has fewer credentials.
const MAX_HOSTS: usize = 64;
/// Characters of a line of PEM (RFC 7468).
const PEM_LINE: usize = 64;
/// The first and the last year of our certificates: a clock that is wrong by days is no reason to trust less,
/// and their keys end with the engine.
const VALID_YEARS: [i32; 2] = [2020, 2120];
/// The beginning of every placeholder.
pub const PLACEHOLDER: &str = "writ_placeholder_";
/// Hexadecimal digits of a placeholder: 128 bits, which cannot be guessed.
const PLACEHOLDER_DIGITS: usize = 32;

/// The reason why there is no authority.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The stored key is not a key.
    #[error("the key of the proxy's certificate authority is damaged")]
    Key,
    /// A certificate could not be made.
    #[error("a certificate could not be made: {0}")]
    Certificate(#[source] rcgen::Error),
    /// TLS cannot be set up with it.
    #[error("TLS could not be set up: {0}")]
    Tls(#[from] rustls::Error),
}

impl ToReport for AuthorityError {
    fn report(&self) -> Report {
        let (exit, code) = match self {
            Self::Key => (Exit::Config, "authority.key"),
            Self::Certificate(_) => (Exit::Bug, "authority.certificate"),
            Self::Tls(_) => (Exit::Bug, "authority.tls"),
        };
        Report::new(exit, code, self.to_string()).with_hint(match self {
            Self::Key => "Restore the folder of keys, or take [[egress.credentials]] out.",
            Self::Certificate(_) | Self::Tls(_) => "Take [[egress.credentials]] out, and report it.",
        })
    }
}

/// Writes a certificate in PEM.
pub(crate) fn to_pem(certificate: &CertificateDer<'_>) -> String {
    let text = BASE64_STANDARD.encode(certificate);
    let lines: Vec<&str> =
        text.as_bytes().chunks(PEM_LINE).filter_map(|line| str::from_utf8(line).ok()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

/// The authority.
pub struct CertificateAuthority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    /// The key of every certificate that it signs; it is made anew at each start.
    leaf: KeyPair,
    servers: Mutex<BTreeMap<Host, TlsAcceptor>>,
    upstream: TlsConnector,
    /// The secret that placeholders are derived from.
    seed: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authority")
    }
}

impl CertificateAuthority {
    /// Generates the key of a new authority, as hexadecimal PKCS#8.
    ///
    /// # Errors
    ///
    /// If none could be made.
    pub fn generate_key() -> Result<SecretString, AuthorityError> {
        let key = KeyPair::generate().map_err(AuthorityError::Certificate)?;
        let der = Zeroizing::new(key.serialize_der());
        Ok(hex::encode(der.as_slice()).into())
    }

    /// Makes the authority of a stored key, which verifies hosts as `client` does.
    pub(crate) fn new(key: &SecretString, client: &ClientConfig) -> Result<Self, AuthorityError> {
        let der = Zeroizing::new(hex::decode(key.expose_secret()).map_err(|_| AuthorityError::Key)?);
        let key = KeyPair::try_from(der.as_slice()).map_err(|_| AuthorityError::Key)?;
        let mut params =
            certificate_params(Vec::new(), "Writ of this machine").map_err(AuthorityError::Certificate)?;
        // It can sign servers and no further authorities.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let certificate = params.self_signed(&key).map_err(AuthorityError::Certificate)?.der().clone();
        let mut client = client.clone();
        // Heads are read and rewritten as HTTP/1.1, so no other protocol is offered.
        client.alpn_protocols = vec![HTTP1.to_vec()];
        Ok(Self {
            issuer: Issuer::new(params, key),
            certificate,
            leaf: KeyPair::generate().map_err(AuthorityError::Certificate)?,
            servers: Mutex::default(),
            upstream: TlsConnector::from(Arc::new(client)),
            seed: der,
        })
    }

    /// Its certificate, which sandboxes are to trust, in PEM.
    pub fn certificate_pem(&self) -> String {
        to_pem(&self.certificate)
    }

    /// Returns the placeholder of a credential in one session: the same after each start, so that a program's
    /// settings stay valid, and different from that of every other session.
    pub fn placeholder_of(&self, session: &str, name: &str) -> String {
        // The zero bytes keep session and name apart: no two pairs give the same bytes.
        let parts: [&[u8]; 5] =
            [b"writ placeholder\0", &self.seed, session.as_bytes(), b"\0", name.as_bytes()];
        let digest = Digest::of_bytes(&Zeroizing::new(parts.concat())).to_string();
        let digits: String = digest.chars().take(PLACEHOLDER_DIGITS).collect();
        format!("{PLACEHOLDER}{name}_{digits}")
    }

    /// Speaks as a host to a program.
    pub(crate) fn acceptor_for(&self, host: &Host) -> Result<TlsAcceptor, AuthorityError> {
        // One certificate for each host, signed when a program first connects to it.
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = servers.get(host) {
            return Ok(server.clone());
        }
        let name = host.to_resolvable();
        let mut params =
            certificate_params(vec![name.clone()], &name).map_err(AuthorityError::Certificate)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&self.leaf, &self.issuer).map_err(AuthorityError::Certificate)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.leaf.serialize_der()));
        let mut config =
            ServerConfig::builder_with_provider(Arc::clone(self.upstream.config().crypto_provider()))
                .with_safe_default_protocol_versions()?
                .with_no_client_auth()
                .with_single_cert(vec![certificate.der().clone()], key)?;
        config.alpn_protocols = vec![HTTP1.to_vec()];
        let server = TlsAcceptor::from(Arc::new(config));
        // Beyond the bound certificates are made anew each time, which is slower and not wrong.
        if servers.len() < MAX_HOSTS {
            servers.insert(host.clone(), server.clone());
        }
        Ok(server)
    }

    /// Returns the connector to the host itself, which must have a valid certificate of its own.
    pub(crate) const fn upstream_connector(&self) -> &TlsConnector {
        &self.upstream
    }
}

/// Returns the parameters that all our certificates share.
pub(crate) fn certificate_params(
    names: Vec<String>,
    subject: &str,
) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    // A common name has at most 64 characters.
    params.distinguished_name.push(DnType::CommonName, subject.chars().take(64).collect::<String>());
    let [from, until] = VALID_YEARS;
    params.not_before = date_time_ymd(from, 1, 1);
    params.not_after = date_time_ymd(until, 1, 1);
    Ok(params)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> ClientConfig {
        ClientConfig::builder_with_provider(crate::testing::provider())
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth()
    }

    #[test]
    fn a_placeholder_is_of_one_session_and_the_same_after_each_start() {
        let key = CertificateAuthority::generate_key().expect("a key");
        let start = || CertificateAuthority::new(&key, &client()).expect("an authority");
        let one = start().placeholder_of("session-1", "git");
        assert_eq!(one, start().placeholder_of("session-1", "git"));
        assert!(one.starts_with("writ_placeholder_git_") && one.len() == 53, "{one}");
        let other =
            CertificateAuthority::new(&CertificateAuthority::generate_key().expect("a key"), &client())
                .expect("another");
        for else_one in [
            start().placeholder_of("session-2", "git"),
            start().placeholder_of("session-1", "api"),
            other.placeholder_of("session-1", "git"),
        ] {
            assert_ne!(one, else_one);
        }
    }

    #[test]
    fn what_is_no_key_is_refused_and_not_repeated() {
        for odd in ["", "00", "zz", &"0".repeat(400)] {
            let refused = CertificateAuthority::new(&odd.to_owned().into(), &client()).expect_err("refused");
            assert_eq!(refused.to_string(), "the key of the proxy's certificate authority is damaged");
        }
    }
}
