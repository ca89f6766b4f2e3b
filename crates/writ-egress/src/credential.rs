//! Credentials behind placeholders, and the handling of requests that hold one.

use std::borrow::Cow;
use std::sync::Arc;

use hyper::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, IF_RANGE, RANGE,
};
use hyper::http;
use secrecy::{ExposeSecret as _, SecretString};
use writ_inspect::egress::credential::{Binding, Misuse, is_usable};
use writ_inspect::egress::host::Target;
use writ_inspect::redact::{KnownSecret, SecretWatch};

/// One credential of a session.
#[derive(Clone, Debug)]
pub struct BoundCredential {
    /// The place where it may be used.
    pub binding: Binding,
    /// The text that programs have in its place.
    pub placeholder: String,
    /// Its value; `None`: there is none now.
    pub value: Option<SecretString>,
}

/// The credentials of a session. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Credentials(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    held: Vec<BoundCredential>,
    placeholders: SecretWatch,
    values: SecretWatch,
}

/// A placeholder that stands where it is not bound to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the placeholder of the credential '{name}' was not used: {why}")]
pub struct MisuseError {
    /// The credential's name.
    pub name: String,
    /// The mistake.
    pub why: Misuse,
}

/// A secret on its way into a request.
#[derive(Debug)]
pub(crate) struct Swap<'a> {
    held: &'a BoundCredential,
    value: HeaderValue,
}

impl Credentials {
    /// These.
    pub fn new(held: Vec<BoundCredential>) -> Self {
        if held.is_empty() {
            return Self::default();
        }
        let known = |name: String, value: SecretString| KnownSecret { name, value };
        let placeholders: Vec<KnownSecret> = held
            .iter()
            .map(|one| known(one.binding.name.to_string(), one.placeholder.clone().into()))
            .collect();
        let values: Vec<KnownSecret> = held
            .iter()
            .filter_map(|one| Some(known(one.binding.secret.to_string(), one.value.clone()?)))
            .collect();
        let (placeholders, values) = (SecretWatch::new(&placeholders), SecretWatch::new(&values));
        Self(Some(Arc::new(Inner { held, placeholders, values })))
    }

    /// The variables of programs: what stands for each.
    pub fn program_variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.placeholders_in().map(|one| (one.binding.env.as_str(), one.placeholder.as_str()))
    }

    /// The one of this name.
    pub fn named(&self, name: &str) -> Option<&BoundCredential> {
        self.placeholders_in().find(|one| one.binding.name.as_str() == name)
    }

    fn placeholders_in(&self) -> impl Iterator<Item = &BoundCredential> {
        self.0.iter().flat_map(|inner| &inner.held)
    }

    /// Returns true if connections to a target are opened, because a credential is bound to it that goes over
    /// TLS.
    pub(crate) fn opens_target(&self, target: &Target) -> bool {
        self.placeholders_in().any(|one| !one.binding.plain && one.binding.is_for(target))
    }

    /// The name of one that is bound to a target.
    pub(crate) fn bound_to(&self, target: &Target) -> Option<String> {
        self.placeholders_in().find(|one| one.binding.is_for(target)).map(|one| one.binding.name.to_string())
    }

    /// Returns the values to search for in answers of a target; `None`: no credential is bound to it.
    pub(crate) fn values_for(&self, target: &Target) -> Option<SecretWatch> {
        let inner = self.0.as_ref()?;
        inner.held.iter().any(|one| one.binding.is_for(target)).then(|| inner.values.clone())
    }

    /// Returns the texts to search for in requests; `None`: there are no placeholders.
    pub(crate) fn placeholder_watch(&self) -> Option<SecretWatch> {
        self.0.as_ref().map(|inner| inner.placeholders.clone())
    }

    /// Refuses placeholders that stand in another part of a request than a header.
    pub(crate) fn forbid_placeholders(&self, target: &Target, text: &[u8]) -> Result<(), MisuseError> {
        let names = self.0.as_ref().map(|inner| inner.placeholders.names_in(text)).unwrap_or_default();
        let first = names.first().and_then(|name| self.named(name));
        first.map_or(Ok(()), |held| Err(held.misplaced_use(target)))
    }

    /// Looks for placeholders in a request's head, and says which secret is to be put into which header.
    ///
    /// # Errors
    ///
    /// If one stands where it is not bound to; then the request goes nowhere.
    pub(crate) fn judge_use(
        &self,
        head: &http::request::Parts,
        target: &Target,
        secure: bool,
    ) -> Result<Option<Swap<'_>>, MisuseError> {
        let Some(inner) = &self.0 else { return Ok(None) };
        // URLs are logged by servers and proxies: no secret belongs there.
        self.forbid_placeholders(target, head.uri.to_string().as_bytes())?;
        let mut swap = None;
        for (name, value) in &head.headers {
            // A placeholder as the name of a header is put in by mistake or to probe.
            self.forbid_placeholders(target, name.as_str().as_bytes())?;
            let names = inner.placeholders.names_in(value.as_bytes());
            let Some(held) = names.first().and_then(|name| self.named(name)) else { continue };
            // One credential in a request, on its own host, in its own header.
            if swap.is_some() || !held.binding.is_for(target) || !held.binding.is_in(name) {
                return Err(held.misplaced_use(target));
            }
            let path = head.uri.path();
            let admitted = held.binding.admits_request(target, secure, head.method.as_str(), path);
            admitted.map_err(|why| held.misuse_of(why))?;
            // The whole value must have the configured form: text around the secret could be
            // sent back by the server.
            if names.len() > 1 || !held.binding.is_filled(value.as_bytes(), &held.placeholder) {
                return Err(held.misuse_of(Misuse::Form));
            }
            swap = Some(held.swap_header()?);
        }
        // Such headers make a server see another method or path than the one that was admitted.
        let is_override = OVERRIDES.iter().any(|name| head.headers.contains_key(*name));
        match swap {
            Some(swap) if is_override => Err(swap.held.misuse_of(Misuse::Override)),
            swap => Ok(swap),
        }
    }
}

/// Headers by which servers and their frameworks take another method or path than the request's own.
const OVERRIDES: [&str; 5] =
    ["x-http-method-override", "x-http-method", "x-method-override", "x-original-url", "x-rewrite-url"];

/// The configured description of a header.
trait Place {
    fn is_in(&self, name: &HeaderName) -> bool;
}

impl Place for Binding {
    fn is_in(&self, name: &HeaderName) -> bool {
        self.header.eq_ignore_ascii_case(name.as_str())
    }
}

impl BoundCredential {
    fn misuse_of(&self, why: Misuse) -> MisuseError {
        MisuseError { name: self.binding.name.to_string(), why }
    }

    fn misplaced_use(&self, target: &Target) -> MisuseError {
        self.misuse_of(if self.binding.is_for(target) { Misuse::Place } else { Misuse::Host })
    }

    /// The secret in its header's form.
    pub(crate) fn swap_header(&self) -> Result<Swap<'_>, MisuseError> {
        let missing = || self.misuse_of(Misuse::Missing);
        let value = self.value.as_ref().map(|value| value.expose_secret().trim());
        let value = value.filter(|value| is_usable(value)).ok_or_else(missing)?;
        let mut value = HeaderValue::from_str(&self.binding.fill_format(value)).map_err(|_| missing())?;
        value.set_sensitive(true);
        Ok(Swap { held: self, value })
    }
}

impl Swap<'_> {
    /// The credential's name.
    pub(crate) fn name(&self) -> &str {
        self.held.binding.name.as_str()
    }

    /// Puts it into a request.
    pub(crate) fn apply_credential(self, headers: &mut HeaderMap) {
        if let Ok(name) = HeaderName::try_from(&self.held.binding.header) {
            headers.insert(name, self.value);
        }
    }
}

/// Asks for an answer in which a value can be found: as a whole, since of parts each could hold a part of it.
pub(crate) fn ask_plain(headers: &mut HeaderMap) {
    // A part of a value at the border of a range could not be found.
    headers.remove(RANGE);
    headers.remove(IF_RANGE);
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
}

/// Returns true if values can be found in an answer's body.
pub(crate) fn is_plain(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_ENCODING).iter().all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// Masks values in an answer's headers.
pub(crate) fn mask_headers(headers: &mut HeaderMap, values: &SecretWatch) {
    // Masking changes the length.
    headers.remove(CONTENT_LENGTH);
    let odd: Vec<HeaderName> = headers
        .keys()
        .filter(|name| !values.names_in(name.as_str().as_bytes()).is_empty())
        .cloned()
        .collect();
    for name in odd {
        headers.remove(name);
    }
    // Headers with odd names are removed above; in the others the value is masked.
    for value in headers.values_mut() {
        if let Cow::Owned(masked) = values.mask_bytes(value.as_bytes()) {
            *value = HeaderValue::from_bytes(&masked).unwrap_or(HeaderValue::from_static("[masked]"));
        }
    }
}
