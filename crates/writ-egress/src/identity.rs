//! A server's identity for one run: a certificate authority that signs one certificate, and is gone after that.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::authority::{AuthorityError, HTTP1, certificate_params, to_pem};

/// The certificate of a server for some names, and the authority that its clients are to trust.
pub struct ServerIdentity {
    acceptor: TlsAcceptor,
    authority: String,
}

impl fmt::Debug for ServerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerIdentity")
    }
}

impl ServerIdentity {
    /// Makes a new authority and the certificate of a server with these names. The authority's key is dropped here:
    /// nothing else is ever signed with it.
    ///
    /// # Errors
    ///
    /// If a certificate cannot be made.
    pub fn make(names: &[&str]) -> Result<Self, AuthorityError> {
        let mut params =
            certificate_params(Vec::new(), "Writ for one run").map_err(AuthorityError::Certificate)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().map_err(AuthorityError::Certificate)?;
        let authority = to_pem(params.self_signed(&key).map_err(AuthorityError::Certificate)?.der());
        let issuer = Issuer::new(params, key);
        let subject = names.first().copied().unwrap_or_default();
        let alternatives = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = certificate_params(alternatives, subject).map_err(AuthorityError::Certificate)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(AuthorityError::Certificate)?;
        let certificate = params.signed_by(&key, &issuer).map_err(AuthorityError::Certificate)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)?;
        config.alpn_protocols = vec![HTTP1.to_vec()];
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), authority })
    }

    /// Returns the certificate of the authority, in PEM.
    pub fn authority_pem(&self) -> &str {
        &self.authority
    }

    /// Greets a client.
    ///
    /// # Errors
    ///
    /// If it does not speak TLS, does not trust the certificate, or takes longer than `limit`.
    pub async fn greet_client<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        client: S,
        limit: Duration,
    ) -> io::Result<TlsStream<S>> {
        let greeting = tokio::time::timeout(limit, self.acceptor.accept(client));
        greeting.await.unwrap_or_else(|_elapsed| Err(io::ErrorKind::TimedOut.into()))
    }
}
