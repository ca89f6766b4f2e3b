//! The environment: read once, here and nowhere else.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use secrecy::SecretString;

/// The variables of the process as they were when it began.
#[derive(Clone, Default)]
pub struct Env {
    variables: BTreeMap<OsString, OsString>,
}

/// Names only: values may be secrets.
impl std::fmt::Debug for Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.variables.keys()).finish()
    }
}

impl Env {
    /// Reads the environment.
    pub fn read_process() -> Self {
        Self { variables: std::env::vars_os().collect() }
    }

    /// An environment of these variables alone.
    pub fn from_pairs(variables: &[(&str, &str)]) -> Self {
        Self { variables: variables.iter().map(|(name, value)| (name.into(), value.into())).collect() }
    }

    /// A variable that is set and not empty, as a path.
    pub(crate) fn path_of(&self, name: &str) -> Option<PathBuf> {
        // An empty variable counts as unset, as in most programs.
        self.variables.get(&OsString::from(name)).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    /// A variable that is set and not empty; one that is not UTF-8 counts as not set.
    pub(crate) fn text_of(&self, name: &str) -> Option<&str> {
        self.variables.get(&OsString::from(name))?.to_str().filter(|value| !value.is_empty())
    }

    /// A variable that holds a credential, without blanks and line ends around it: no credential has any there, and
    /// none can be sent in a header.
    pub(crate) fn secret_of(&self, name: &str) -> Option<SecretString> {
        // Keys are often pasted with a line end.
        self.text_of(name).map(str::trim).filter(|value| !value.is_empty()).map(SecretString::from)
    }

    /// Names and values that begin with a prefix; values that are not UTF-8 are `None`.
    pub(crate) fn with_prefix(&self, prefix: &str) -> Vec<(&str, Option<&str>)> {
        let named = self.variables.iter().filter_map(|(name, value)| Some((name.to_str()?, value.to_str())));
        named.filter(|(name, _)| name.starts_with(prefix)).collect()
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn a_credential_has_no_line_end() {
        let env = Env::from_pairs(&[("A", "sk-1\n"), ("B", " sk-2\r\n"), ("C", "\n"), ("D", "sk 3")]);
        let value = |name: &str| env.secret_of(name).map(|value| value.expose_secret().to_owned());
        assert_eq!(value("A").as_deref(), Some("sk-1"));
        assert_eq!(value("B").as_deref(), Some("sk-2"));
        assert_eq!(value("C"), None);
        assert_eq!(value("D").as_deref(), Some("sk 3"));
    }
}
