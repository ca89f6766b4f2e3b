//! Certificate authorities: the system's, and those that the owner adds.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};
use rustls_platform_verifier::Verifier;

/// The largest file of certificates that is read, in bytes: a system's whole bundle has a quarter of a megabyte.
pub const MAX_PEM_BYTES: usize = 1024 * 1024;
/// The most certificates that may be added: programs in sandboxes are given them in memory.
pub const MAX_ROOTS: usize = 400;
/// The most servers with a failure in memory that was not reported yet.
const MAX_NOTED: usize = 64;

/// The reason why a file holds no certificates that can be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrustError {
    /// Nothing is in it.
    #[error("the file is empty")]
    Empty,
    /// A certificate in binary form.
    #[error("the file holds a certificate in binary form (DER), not in PEM")]
    Der,
    /// A key and no certificate.
    #[error("the file holds a key and no certificate")]
    KeyOnly,
    /// Something else.
    #[error("the file holds no certificate in PEM")]
    NoCertificate,
    /// A block in it is no certificate.
    #[error("certificate {0} in the file is damaged, or of a kind that cannot be trusted")]
    Damaged(usize),
    /// More than [`MAX_PEM_BYTES`] or [`MAX_ROOTS`].
    #[error("the file is too large")]
    TooLarge,
}

impl TrustError {
    /// A remedy, for people.
    pub const fn hint(self) -> &'static str {
        match self {
            Self::Der => "convert it: openssl x509 -inform der -in FILE -out FILE.pem",
            Self::KeyOnly => "name the authority's certificate; a private key does not belong here",
            Self::Empty | Self::NoCertificate | Self::Damaged(_) => {
                "name a file with '-----BEGIN CERTIFICATE-----' blocks"
            }
            Self::TooLarge => "name a file with the authorities that are missing, and no others",
        }
    }
}

/// Certificates that are trusted besides the system's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtraRoots(Vec<CertificateDer<'static>>);

impl ExtraRoots {
    /// Adds the certificates of a PEM text, and returns how many it has. Text between them is passed over.
    ///
    /// # Errors
    ///
    /// If there is none, or one of them cannot be trusted.
    pub fn add_pem(&mut self, bytes: &[u8]) -> Result<usize, TrustError> {
        if bytes.len() > MAX_PEM_BYTES {
            return Err(TrustError::TooLarge);
        }
        // Some editors begin a text with a byte order mark.
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        if bytes.trim_ascii().is_empty() {
            return Err(TrustError::Empty);
        }
        let mut found = Vec::new();
        for certificate in CertificateDer::pem_slice_iter(bytes) {
            let certificate = certificate.map_err(|_| TrustError::Damaged(found.len() + 1))?;
            RootCertStore::empty()
                .add(certificate.clone())
                .map_err(|_| TrustError::Damaged(found.len() + 1))?;
            found.push(certificate);
        }
        if found.is_empty() {
            return Err(diagnose_text(bytes));
        }
        if self.0.len() + found.len() > MAX_ROOTS {
            return Err(TrustError::TooLarge);
        }
        let count = found.len();
        for certificate in found {
            if !self.0.contains(&certificate) {
                self.0.push(certificate);
            }
        }
        Ok(count)
    }

    /// Adds those certificates of a PEM text that can be trusted, and passes over the rest: a system's bundle
    /// may hold some that are damaged. Adds at most [`MAX_ROOTS`].
    pub fn add_readable(&mut self, bytes: &[u8]) {
        for certificate in CertificateDer::pem_slice_iter(bytes).flatten() {
            let is_good = RootCertStore::empty().add(certificate.clone()).is_ok();
            if is_good && self.0.len() < MAX_ROOTS && !self.0.contains(&certificate) {
                self.0.push(certificate);
            }
        }
    }

    /// Removes those that stand in another list.
    pub fn remove(&mut self, others: &Self) {
        self.0.retain(|certificate| !others.0.contains(certificate));
    }

    /// Returns the number of certificates.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if none was added.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, in PEM.
    pub fn to_pem(&self) -> String {
        self.0.iter().fold(String::new(), |mut text, certificate| {
            let _infallible = write!(text, "{}", crate::authority::to_pem(certificate));
            text
        })
    }
}

/// Returns the reason why a text has no certificate.
fn diagnose_text(bytes: &[u8]) -> TrustError {
    let holds = |word: &[u8]| bytes.windows(word.len()).any(|part| part == word);
    if holds(b"PRIVATE KEY-----") || holds(b"PUBLIC KEY-----") {
        TrustError::KeyOnly
    } else if bytes.starts_with(&[0x30, 0x82]) {
        TrustError::Der
    } else if holds(b"-----BEGIN CERTIFICATE-----") {
        TrustError::Damaged(1)
    } else {
        TrustError::NoCertificate
    }
}

/// Verifies servers by the system's authorities and the added ones, and remembers why one was refused, so
/// that the error of the failed connection can name it.
#[derive(Debug)]
pub(crate) struct NotingVerifier {
    inner: Arc<dyn ServerCertVerifier>,
    noted: Mutex<BTreeMap<String, String>>,
}

impl NotingVerifier {
    pub(crate) fn new(extra: [&ExtraRoots; 2], provider: Arc<CryptoProvider>) -> Result<Self, rustls::Error> {
        let extra = extra.into_iter().flat_map(|roots| roots.0.iter().cloned());
        let inner = Verifier::new_with_extra_roots(extra, provider)?;
        Ok(Self::pem_around(Arc::new(inner)))
    }

    pub(crate) fn pem_around(inner: Arc<dyn ServerCertVerifier>) -> Self {
        Self { inner, noted: Mutex::default() }
    }

    /// Takes the reason why the certificate of a server was refused last.
    pub(crate) fn take_failure(&self, host: &str) -> Option<String> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner).remove(host)
    }

    fn note_failure(&self, name: &ServerName<'_>, why: &rustls::Error) {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.len() >= MAX_NOTED {
            noted.pop_first();
        }
        noted.insert(name.to_str().to_ascii_lowercase(), why.to_string());
    }
}

impl ServerCertVerifier for NotingVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified =
            self.inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        verified.inspect_err(|why| self.note_failure(server_name, why))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.inner.requires_raw_public_keys()
    }

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        self.inner.root_hint_subjects()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertifiedKey, generate_simple_self_signed};

    use super::*;
    use crate::authority::to_pem;

    #[test]
    fn a_bundle_with_notes_between_its_certificates_is_read_and_others_are_refused_by_kind() {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(vec!["corp.example".to_owned()]).expect("a certificate");
        let other = generate_simple_self_signed(vec!["b.example".to_owned()]).expect("a certificate").cert;
        let mut roots = ExtraRoots::default();
        let text = format!(
            "\u{feff}# Corp Root\r\n{}\r\nSome notes\n{}",
            to_pem(cert.der()).replace('\n', "\r\n"),
            to_pem(other.der())
        );
        assert_eq!(roots.add_pem(text.as_bytes()), Ok(2));
        assert_eq!(roots.add_pem(to_pem(cert.der()).as_bytes()), Ok(1), "again");
        assert_eq!(roots.len(), 2, "each stands there once");
        let mut again = ExtraRoots::default();
        assert_eq!(again.add_pem(roots.to_pem().as_bytes()), Ok(2));
        assert_eq!(again, roots);
        let key = to_pem(&signing_key.serialize_der().into()).replace("CERTIFICATE", "PRIVATE KEY");
        let mut refused = |bytes: &[u8]| roots.add_pem(bytes).expect_err("refused");
        assert_eq!(refused(b""), TrustError::Empty);
        assert_eq!(refused(b" \r\n\n"), TrustError::Empty);
        assert_eq!(refused(cert.der()), TrustError::Der);
        assert_eq!(refused(key.as_bytes()), TrustError::KeyOnly);
        assert_eq!(refused(b"hello"), TrustError::NoCertificate);
        assert_eq!(
            refused(b"-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n"),
            TrustError::Damaged(1)
        );
        assert_eq!(
            refused(format!("{}-----BEGIN CERTIFICATE-----\naGVs", to_pem(cert.der())).as_bytes()),
            TrustError::Damaged(2)
        );
        assert_eq!(refused(&vec![b' '; MAX_PEM_BYTES + 1]), TrustError::TooLarge);
    }
}
