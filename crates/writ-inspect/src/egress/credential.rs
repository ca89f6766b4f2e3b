//! Credentials that programs use without having them: their hosts, and the requests that may carry them.
//!
//! The owner binds a secret to a host, methods and paths, and to one header. A program is given a
//! *placeholder*; where a request carries it as bound, the proxy puts the secret in its place. Anywhere else
//! a placeholder is a [`Misuse`].

use std::collections::BTreeSet;
use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use writ_types::credential::{CredentialRef, Reference};
use zeroize::Zeroizing;

use super::Pin;
use super::host::{HostPattern, Scheme, Target};
use crate::redact::MIN_VALUE_BYTES;

/// The most credentials of one home.
pub const MAX_BINDINGS: usize = 32;
/// The most methods or path patterns of one credential.
const MAX_LISTED: usize = 32;
/// The longest path pattern, header, format, user or variable of one, in bytes.
const MAX_TEXT: usize = 256;
/// The longest path that is compared with patterns, in bytes: what servers commonly take.
const MAX_PATH: usize = 8 * 1024;
/// The longest value that is put into a header, in bytes: what servers commonly take of one.
pub const MAX_VALUE: usize = 4 * 1024;
/// The place of the value in a format.
const VALUE: &str = "{}";
/// The prefix of Basic credentials (RFC 7617).
const BASIC: &str = "Basic ";
/// Headers that say how a message is framed or where it goes.
const RESERVED: [&str; 10] = [
    "host",
    "connection",
    "content-length",
    "content-type",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "via",
    "expect",
];

/// A secret, and the one place where it may be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Binding {
    /// The name in records and masks.
    pub name: Reference,
    /// The secret.
    pub secret: CredentialRef,
    /// The host, with a port where it is not that of https.
    pub host: HostPattern,
    /// The methods, in capital letters.
    pub methods: Vec<String>,
    /// The paths: `*` stands for what has no `/` in it, `**` for anything; both for nothing too.
    pub paths: Vec<String>,
    /// The variable in which programs find the placeholder.
    pub env: String,
    /// The header that it stands in. Default: `authorization`.
    #[serde(default = "authorization")]
    pub header: String,
    /// The header's value, with `{}` where the secret stands. Default: `Bearer {}`.
    #[serde(default = "bearer", skip_serializing_if = "is_bearer")]
    pub format: String,
    /// The user of a password: the header then holds both as Basic credentials, and `format` is ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// It may go over plain HTTP, to a host that is pinned to an address. Default: no.
    #[serde(default)]
    pub plain: bool,
}

fn authorization() -> String {
    "authorization".to_owned()
}

fn bearer() -> String {
    format!("Bearer {VALUE}")
}

fn is_bearer(format: &str) -> bool {
    format == bearer()
}

/// A defect of the owner's configuration of a credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the credential '{name}' is not valid: {why}")]
pub struct InvalidBinding {
    /// Its name.
    pub name: String,
    /// The defect.
    pub why: &'static str,
}

/// A request with a placeholder that is not bound so. Nothing is put in its place, and the request goes nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Misuse {
    /// It is bound to another host or port.
    Host,
    /// The request would be readable on its way.
    Plain,
    /// It is not bound to this method.
    Method,
    /// It is not bound to this path, or the path can be read in two ways.
    Path,
    /// It stands in another place than the header that it is bound to.
    Place,
    /// The header does not hold it as it is bound to.
    Form,
    /// The request asks for another protocol.
    Upgrade,
    /// A header of the request asks for another method or path than those that it is made with.
    Override,
    /// The secret is not there, or cannot be used in a header.
    Missing,
}

impl Misuse {
    /// The name used in records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Host => "credential.host",
            Self::Plain => "credential.plain",
            Self::Method => "credential.method",
            Self::Path => "credential.path",
            Self::Place => "credential.place",
            Self::Form => "credential.form",
            Self::Upgrade => "credential.upgrade",
            Self::Override => "credential.override",
            Self::Missing => "credential.missing",
        }
    }
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "it is bound to another host",
            Self::Plain => "it does not go over plain HTTP",
            Self::Method => "it is not bound to this method",
            Self::Path => "it is not bound to this path",
            Self::Place => "it may stand in its own header and nowhere else",
            Self::Form => "its header does not have the form that it is bound to",
            Self::Upgrade => "no other protocol can be changed to",
            Self::Override => "no header may ask for another method or path",
            Self::Missing => "its secret is not set, or cannot stand in a header",
        })
    }
}

/// Looks over everything that the owner has bound.
///
/// # Errors
///
/// If one cannot stand, or two have the same name or variable.
pub fn check_bindings(bindings: &[Binding], pins: &[Pin]) -> Result<(), InvalidBinding> {
    let (mut names, mut variables) = (BTreeSet::new(), BTreeSet::new());
    for (number, binding) in bindings.iter().enumerate() {
        let wrong = |why| Err(InvalidBinding { name: binding.name.to_string(), why });
        if number >= MAX_BINDINGS {
            return wrong("there are too many before it");
        }
        // The name stands in masks and records: under one name two secrets could not be distinguished there.
        if !names.insert(&binding.name) {
            return wrong("another one has this name");
        }
        // Of two secrets under one variable a program would get the placeholder of one at random.
        if !variables.insert(&binding.env) {
            return wrong("another one has this variable");
        }
        // Over plain HTTP the name alone proves nothing about the server. A pinned address at least fixes
        // where the bytes go.
        let pinned = |pin: &Pin| binding.host.covers_host(&pin.host);
        if binding.plain && !pins.iter().any(pinned) {
            return wrong("over plain HTTP its host must be pinned to an address, [[egress.pin]]");
        }
        binding.check_binding().map_err(|why| InvalidBinding { name: binding.name.to_string(), why })?;
    }
    Ok(())
}

impl Binding {
    fn check_binding(&self) -> Result<(), &'static str> {
        let token = |text: &str| !text.is_empty() && text.len() <= MAX_TEXT && text.bytes().all(is_token);
        // Printable ASCII alone: a line end in a format would add a header to the request.
        let shown = |text: &str| text.len() <= MAX_TEXT && text.bytes().all(|b| (b' '..0x7f).contains(&b));
        // The name of a variable as a POSIX shell takes it; programs find the placeholder under it.
        let first = |b: u8| b.is_ascii_alphabetic() || b == b'_';
        let variable = self.env.bytes().next().is_some_and(first)
            && self.env.bytes().all(|b| first(b) || b.is_ascii_digit());
        let bounded = |list: &[String]| !list.is_empty() && list.len() <= MAX_LISTED;
        let upper = |method: &String| token(method) && !method.bytes().any(|b| b.is_ascii_lowercase());
        let path = |path: &String| path.starts_with('/') && shown(path) && !path.contains(['?', '#', ' ']);
        let rules: [(bool, &'static str); 8] = [
            // A binding for all hosts below a name would send the secret to anyone who registers one of them.
            (!self.host.is_below(), "its host must be one name, without '*.'"),
            (bounded(&self.methods) && self.methods.iter().all(upper), "its methods are words such as GET"),
            (
                // CONNECT opens a tunnel that nothing can look into, and TRACE returns the headers to the
                // program.
                !self.methods.iter().any(|method| method == "CONNECT" || method == "TRACE"),
                "CONNECT and TRACE carry no credential",
            ),
            (bounded(&self.paths) && self.paths.iter().all(path), "its paths begin with '/'"),
            (variable && self.env.len() <= MAX_TEXT, "its variable is a name of letters, digits and '_'"),
            (
                // A header that frames the message would let its value split the request into two.
                token(&self.header) && !RESERVED.contains(&self.header.to_ascii_lowercase().as_str()),
                "its header is none that can hold a credential",
            ),
            (
                shown(&self.format) && self.format.matches(VALUE).count() == 1,
                "its format holds '{}' once, where the secret stands",
            ),
            (
                // In Basic credentials the first `:` ends the user: with another one a server would read
                // another password.
                self.user.as_deref().is_none_or(|user| shown(user) && !user.contains(':')),
                "its user is a plain word without ':'",
            ),
        ];
        // The first rule that fails is named; the order is that of the owner's file.
        rules.into_iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, why)| Err(why))
    }

    /// The port that it is bound to.
    pub fn port(&self) -> u16 {
        let scheme = if self.plain { Scheme::Http } else { Scheme::Https };
        self.host.port().unwrap_or(scheme.default_port())
    }

    /// Returns true if it is bound to this host and port.
    pub fn is_for(&self, target: &Target) -> bool {
        self.port() == target.port && self.host.covers_host(&target.host)
    }

    /// Checks that a request may carry it. `path` comes without its query.
    ///
    /// # Errors
    ///
    /// The part of the request that it is not bound to.
    pub fn admits_request(
        &self,
        target: &Target,
        secure: bool,
        method: &str,
        path: &str,
    ) -> Result<(), Misuse> {
        if !self.is_for(target) {
            return Err(Misuse::Host);
        }
        // Without TLS everyone on the way reads the secret, so the owner has to declare that.
        if !secure && !self.plain {
            return Err(Misuse::Plain);
        }
        // Methods are case-sensitive (RFC 9110, section 9.1): `get` is another one than `GET`.
        if !self.methods.iter().any(|bound| bound == method) {
            return Err(Misuse::Method);
        }
        // A path that servers read in different ways could pass a pattern here and mean another path there.
        if !is_plain(path) || !self.paths.iter().any(|pattern| matches_pattern(pattern, path)) {
            return Err(Misuse::Path);
        }
        Ok(())
    }

    /// Returns true if a header's value is the bound one, with `value` in its place.
    pub fn is_filled(&self, header: &[u8], value: &str) -> bool {
        match &self.user {
            None => header == self.fill_format(value).as_bytes(),
            Some(user) => {
                let (scheme, rest) = header.split_at_checked(BASIC.len()).unwrap_or_default();
                // The scheme's name has no case (RFC 9110, section 11.1), so `basic` is the same.
                scheme.eq_ignore_ascii_case(BASIC.as_bytes())
                    && BASE64_STANDARD
                        // Base64 has more than one spelling of the same bytes, so the decoded pair is
                        // compared.
                        .decode(rest)
                        .is_ok_and(|pair| pair == format!("{user}:{value}").into_bytes())
            }
        }
    }

    /// The header's value, with a value in its place.
    pub fn fill_format(&self, value: &str) -> Zeroizing<String> {
        match &self.user {
            None => Zeroizing::new(self.format.replacen(VALUE, value, 1)),
            Some(user) => {
                // The pair is wiped when it is dropped, as every copy of a secret.
                let pair = Zeroizing::new(format!("{user}:{value}"));
                Zeroizing::new(format!("{BASIC}{}", BASE64_STANDARD.encode(pair.as_bytes())))
            }
        }
    }
}

/// Returns true if a value can be put into a header, and be recognised in an answer.
pub fn is_usable(value: &str) -> bool {
    // A shorter value could not be found again in an answer, so an echo of it would reach the program.
    (MIN_VALUE_BYTES..=MAX_VALUE).contains(&value.len()) && value.bytes().all(|b| (b'!'..0x7f).contains(&b))
}

/// A byte of a header's name or of a method (RFC 9110, section 5.6.2).
const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'!' | b'+' | b'~')
}

/// Returns true if every server reads the same path: it has no `..` and no empty segment, which some servers
/// merge, and encodes only bytes that need it: no letter or mark that a path holds as it is, no separator, no
/// control character.
fn is_plain(path: &str) -> bool {
    let mut encoded = path.split('%').skip(1).map(|after| {
        // Two hexadecimal digits must follow each `%`: some servers pass a broken escape through, others
        // refuse it.
        let digits = after.get(..2).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        digits.and_then(|digits| u8::from_str_radix(digits, 16).ok())
    });
    path.len() <= MAX_PATH
        && path.starts_with('/')
        && !path.contains(['\\', '\0'])
        && encoded.all(|byte| byte.is_some_and(needs_encoding))
        // `//` is merged by some servers and left by others.
        && !path.contains("//")
        // `..` and its variants such as `..;` are resolved by some servers before they route.
        && !path.split('/').any(|part| part == "." || part.starts_with(".."))
}

/// Returns true if a byte stands in a path in its encoded form alone, without another meaning.
const fn needs_encoding(byte: u8) -> bool {
    !byte.is_ascii_control()
        && !byte.is_ascii_alphanumeric()
        // Characters that are never encoded (RFC 3986, section 2.3), and those at which servers split paths.
        && !matches!(byte, b'-' | b'.' | b'_' | b'~' | b'/' | b'\\' | b';' | b'%')
}

/// Returns true if a path matches a pattern. Takes time that grows with both lengths.
fn matches_pattern(pattern: &str, path: &str) -> bool {
    let path = path.as_bytes();
    // Which beginnings of the path the pattern so far can stand for.
    let mut reached = vec![false; path.len() + 1];
    if let Some(start) = reached.first_mut() {
        *start = true;
    }
    let mut rest = pattern.as_bytes();
    while let [first, after @ ..] = rest {
        // `**` crosses separators, `*` does not: one more look at the next byte tells them apart.
        let across = *first == b'*' && after.first() == Some(&b'*');
        rest = if across { after.get(1..).unwrap_or_default() } else { after };
        let mut next = Vec::with_capacity(reached.len());
        let mut before = false;
        // A table of reachable beginnings instead of backtracking: `*a*a*a*` would take exponential time
        // otherwise.
        for (at, here) in reached.iter().enumerate() {
            let byte = at.checked_sub(1).and_then(|at| path.get(at)).copied();
            // A star may stand for nothing, which keeps what was reached, or for one more byte.
            let reaches = if *first == b'*' {
                *here || (before && (across || byte != Some(b'/')))
            } else {
                byte == Some(*first) && at.checked_sub(1).and_then(|at| reached.get(at)) == Some(&true)
            };
            before = reaches;
            next.push(reaches);
        }
        reached = next;
    }
    reached.last() == Some(&true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding() -> Binding {
        Binding {
            name: "git".parse().expect("a name"),
            secret: "secret:git".parse().expect("a secret"),
            host: "api.test:8443".parse().expect("a host"),
            methods: vec!["GET".into(), "POST".into()],
            paths: vec!["/me".into(), "/repos/*/issues".into(), "/git/**".into()],
            env: "GIT_TOKEN".into(),
            header: authorization(),
            format: bearer(),
            user: None,
            plain: false,
        }
    }

    fn target(text: &str) -> Target {
        Target::from_authority(Scheme::Https, text, Some(443)).expect("a target")
    }

    /// Threat 17, where nothing is sent yet.
    #[test]
    fn a_credential_goes_to_its_host_method_and_path_and_nowhere_else() {
        let git = binding();
        let at = |host: &str, method: &str, path: &str| git.admits_request(&target(host), true, method, path);
        let longest = format!("/git/{}", "x".repeat(8_187));
        for path in
            ["/me", "/repos/one/issues", "/git/", "/git/a/b.git/info/refs", "/git/a%20b%C3%A9", &longest]
        {
            assert_eq!(at("api.test:8443", "GET", path), Ok(()), "{path}");
        }
        assert_eq!(at("api.test", "GET", "/me"), Err(Misuse::Host), "another port");
        assert_eq!(at("x.api.test:8443", "GET", "/me"), Err(Misuse::Host));
        for method in ["PUT", "get", "DELETE", ""] {
            assert_eq!(at("api.test:8443", method, "/me"), Err(Misuse::Method), "{method}");
        }
        assert_eq!(git.admits_request(&target("api.test:8443"), false, "GET", "/me"), Err(Misuse::Plain));
        for path in [
            "/you",
            "/me/",
            "/ME",
            "/repos/one/two/issues",
            "/repos//issues/x",
            "/repos//issues",
            "/git//x",
            "/%6de",
            "/git/%",
            "/git/%0a",
            "/git/%7Ex",
            "/git/a;%2e%2E",
            "/git",
            "/git/../admin",
            "/git/%2e%2e/admin",
            "/git/..;/admin",
            "/git/a%2f..%2fadmin",
            "/git/%252e/x",
            "/git\\..\\x",
            "",
            "me",
            &format!("/git/{}", "x".repeat(8_188)),
        ] {
            assert_eq!(at("api.test:8443", "GET", path), Err(Misuse::Path), "{path:.80}");
        }
    }

    #[test]
    fn a_header_holds_it_as_bound_or_not_at_all() {
        let git = binding();
        assert!(git.is_filled(b"Bearer p-1", "p-1") && !git.is_filled(b"Bearer p-1 ", "p-1"));
        assert!(!git.is_filled(b"bearer p-1", "p-1") && !git.is_filled(b"p-1", "p-1"));
        assert_eq!(git.fill_format("v").as_str(), "Bearer v");
        let basic = Binding { user: Some("me".into()), ..git };
        assert_eq!(basic.fill_format("v").as_str(), "Basic bWU6dg==");
        assert!(basic.is_filled(b"Basic bWU6dg==", "v") && basic.is_filled(b"basic bWU6dg==", "v"));
        for odd in ["Basic eW91OnY=", "Basic bWU6dg", "Basic bWU6dg== ", "Basic", "", "Bearer v"] {
            assert!(!basic.is_filled(odd.as_bytes(), "v"), "{odd}");
        }
    }

    #[test]
    fn what_cannot_stand_is_refused_with_its_name() {
        type Change = fn(&mut Binding);
        let wrong: [Change; 20] = [
            |b| b.methods.push("G ET".into()),
            |b| b.methods.push("G".repeat(MAX_TEXT + 1)),
            |b| b.paths.push(format!("/{}", "x".repeat(MAX_TEXT))),
            |b| b.paths.push("/a\u{1}".into()),
            |b| b.env = "1A".into(),
            |b| b.format = format!("{VALUE} {VALUE}"),
            |b| b.host = "*.api.test".parse().expect("a pattern"),
            |b| b.methods.clear(),
            |b| b.methods.push("get".into()),
            |b| b.methods.push("CONNECT".into()),
            |b| b.paths.clear(),
            |b| b.paths.push("me".into()),
            |b| b.paths.push("/me?x".into()),
            |b| b.env = "A=B".into(),
            |b| b.env.clear(),
            |b| b.header = "Host".into(),
            |b| b.header = "a b".into(),
            |b| b.format = "Bearer".into(),
            |b| b.user = Some("a:b".into()),
            |b| b.plain = true,
        ];
        assert_eq!(check_bindings(&[binding()], &[]), Ok(()));
        for (number, change) in wrong.into_iter().enumerate() {
            let mut one = binding();
            change(&mut one);
            let refused = check_bindings(&[one], &[]).expect_err("refused");
            assert!(refused.to_string().starts_with("the credential 'git' is not valid: "), "{number}");
        }
        let second = Binding { name: "other".parse().expect("a name"), ..binding() };
        assert!(
            check_bindings(&[binding(), binding()], &[]).is_err()
                && check_bindings(&[binding(), second], &[]).is_err()
        );
        let many: Vec<Binding> = (0..=MAX_BINDINGS)
            .map(|number| Binding {
                name: format!("n{number}").parse().expect("a name"),
                env: format!("N{number}"),
                ..binding()
            })
            .collect();
        assert!(check_bindings(&many, &[]).is_err());
        let pin = Pin { host: "api.test".parse().expect("a host"), address: [127, 0, 0, 1].into() };
        assert_eq!(check_bindings(&[Binding { plain: true, ..binding() }], &[pin]), Ok(()));
    }

    /// What the owner leaves out is the usual header and form, and is left out when it is written.
    #[test]
    fn a_bearer_token_is_what_needs_no_words() {
        let text = r#"{"name":"git","secret":"secret:git","host":"api.test","methods":["GET"],"paths":["/me"],"env":"T"}"#;
        let read: Binding = serde_json::from_str(text).expect("a binding");
        assert_eq!(
            (read.header.as_str(), read.format.as_str(), read.plain),
            ("authorization", "Bearer {}", false)
        );
        let written = serde_json::to_value(&read).expect("JSON");
        assert_eq!(written.get("format"), None);
        let other = serde_json::to_value(Binding { format: "token {}".into(), ..read }).expect("JSON");
        assert_eq!(other["format"], "token {}");
    }

    /// Records keep these names; a sentence says each.
    #[test]
    fn misuses_have_names_and_sentences() {
        let all = [
            Misuse::Host,
            Misuse::Plain,
            Misuse::Method,
            Misuse::Path,
            Misuse::Place,
            Misuse::Form,
            Misuse::Upgrade,
            Misuse::Override,
            Misuse::Missing,
        ];
        for misuse in all {
            let name = serde_json::to_value(misuse).expect("JSON");
            assert_eq!(misuse.as_str(), format!("credential.{}", name.as_str().expect("a name")));
            assert!(misuse.to_string().contains(' '), "{misuse}");
        }
        let sentences: BTreeSet<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!(sentences.len(), all.len());
    }

    #[test]
    fn values_that_could_break_a_header_or_not_be_found_again_are_not_used() {
        assert!(is_usable("s3cret-value") && is_usable(&"x".repeat(4_096)));
        for odd in
            ["short", "with space 1", "with\r\nline", "with\0zero12", "ümläutümläut", &"x".repeat(4_097)]
        {
            assert!(!is_usable(odd), "{odd:.40}");
        }
    }
}
