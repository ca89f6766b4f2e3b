//! Pushing a commit to a branch of another repository: over HTTPS, or to a folder of this machine.
//!
//! Git runs in our own git directory, so nothing of the repository's configuration (helpers, rewritten addresses, proxies, hooks) is
//! read but the address that a remote has. A branch is created or moved forward, and never moved back.

use std::path::Path;

use secrecy::{ExposeSecret as _, SecretString};

use super::process::{GitProcess, to_line};
use super::{BranchName, CommitId, GitFault, GitProject};

/// The longest address of a remote, in bytes.
pub const MAX_REMOTE_BYTES: usize = 2_048;
/// The program at the other end, where that is a folder of this machine: its repository's hooks do not run on the host.
const PLAIN_RECEIVER: &str = "git -c core.hooksPath=/dev/null receive-pack";

/// The address of another repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemotePlace {
    /// A URL with its scheme and host, such as `https://github.com/`, and the path below it.
    Web {
        /// The whole address.
        url: String,
        /// The host, with its port if one is named.
        authority: String,
        /// The path below the host, without `/` at its ends and without `.git`.
        path: String,
    },
    /// A folder of this machine.
    Folder {
        /// Its path.
        path: String,
    },
}

impl RemotePlace {
    /// Reads an address: `https://…`, `http://…` to this machine, or the absolute path of a folder.
    ///
    /// # Errors
    ///
    /// If it is anything else, or holds a credential.
    pub fn parse_address(text: &str) -> Result<Self, GitFault> {
        let wrong = |why| GitFault::NoRemote { name: shown(text), why };
        if text.len() > MAX_REMOTE_BYTES || text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(wrong("its address cannot be used"));
        }
        if text.starts_with('/') {
            return Ok(Self::Folder { path: text.to_owned() });
        }
        let (is_safe, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => {
                return Err(wrong("it is neither an https address nor the path of a folder"));
            }
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if authority.contains('@') {
            return Err(wrong("a credential stands in its address"));
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
        if authority.is_empty() || !authority.chars().all(is_plain) || path.contains(['?', '#', '\\']) {
            return Err(wrong("its address cannot be used"));
        }
        let path = path.trim_end_matches('/');
        let path = path.strip_suffix(".git").unwrap_or(path).to_owned();
        let place = Self::Web { url: text.to_owned(), authority: authority.to_ascii_lowercase(), path };
        if is_safe || place.is_here() {
            Ok(place)
        } else {
            Err(wrong("a token would be sent unencrypted: use https"))
        }
    }

    /// Returns its host without a port; none for a folder.
    pub fn host(&self) -> Option<&str> {
        let Self::Web { authority, .. } = self else { return None };
        let end = authority.rfind(']').map_or_else(|| authority.find(':'), |end| Some(end + 1));
        Some(end.map_or(authority.as_str(), |end| authority.get(..end).unwrap_or(authority)))
    }

    /// Returns true if it is this machine.
    pub fn is_here(&self) -> bool {
        match self.host() {
            None => true,
            Some(host) => {
                let bare = host.trim_matches(['[', ']']);
                bare == "localhost"
                    || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
            }
        }
    }

    /// Returns the address as it is written.
    pub fn address(&self) -> &str {
        match self {
            Self::Web { url, .. } => url,
            Self::Folder { path } => path,
        }
    }
}

fn shown(text: &str) -> String {
    // What stands before an `@` may be a password.
    let text = text.rsplit_once('@').map_or(text, |(_, after)| after);
    text.chars().filter(|c| !c.is_control()).take(100).collect()
}

/// Reads the address of a remote of a repository.
///
/// # Errors
///
/// If there is no such remote, its address is one that is not pushed to, or git cannot be run.
pub async fn read_remote(project: &GitProject, name: &str) -> Result<RemotePlace, GitFault> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > 100 || name.starts_with('-') || !name.chars().all(is_plain) {
        return Err(GitFault::NoRemote { name: shown(name), why: "that is no name of a remote" });
    }
    let git = GitProcess::in_repository(project, "read a remote");
    let key = format!("remote.{name}.url");
    let output = git.with_args(["config", "--local", "--get", key.as_str()]).run_to_end().await?;
    if output.code != 0 {
        return Err(GitFault::NoRemote {
            name: name.to_owned(),
            why: "the repository has none of this name",
        });
    }
    RemotePlace::parse_address(&to_line(&output.stdout))
}

/// Pushes a commit to a branch. `authorization` is the value of that header, for an address of the web alone.
///
/// # Errors
///
/// If the other side has something else in that branch, does not take the token, or cannot be reached.
pub async fn push_commit(
    project: &GitProject,
    (to, branch): (&RemotePlace, &BranchName),
    commit: &CommitId,
    authorization: Option<&SecretString>,
) -> Result<(), GitFault> {
    let mut git = GitProcess::in_own(project, "push a branch")
        .with_setting("credential.helper=")
        .with_setting("push.followTags=false")
        .with_setting("push.gpgSign=false")
        .with_setting("push.recurseSubmodules=no");
    let mut args = vec!["push", "--porcelain", "--no-verify", "--quiet"];
    match to {
        RemotePlace::Web { authority, url, .. } => {
            let scheme = if url.starts_with("https://") { "https" } else { "http" };
            git = git
                .with_setting(format!("protocol.{scheme}.allow=always"))
                .with_setting("http.followRedirects=false");
            if let Some(value) = authorization {
                // In the environment, which other users cannot read, and for this host alone.
                git = git
                    .with_variable("GIT_CONFIG_COUNT", "1")
                    .with_variable("GIT_CONFIG_KEY_0", format!("http.{scheme}://{authority}/.extraHeader"))
                    .with_variable("GIT_CONFIG_VALUE_0", format!("Authorization: {}", value.expose_secret()));
            }
        }
        RemotePlace::Folder { path } => {
            if !Path::new(path).is_dir() {
                let why = "there is no such folder";
                return Err(GitFault::NoRemote { name: shown(path), why });
            }
            args.extend(["--receive-pack", PLAIN_RECEIVER]);
        }
    }
    let refspec = format!("{commit}:{}", branch.to_ref());
    args.extend(["--", to.address(), refspec.as_str()]);
    let output = git.with_args(args).run_to_end().await?;
    if output.code == 0 {
        return Ok(());
    }
    let said = format!("{} {}", to_line(&output.stdout), output.stderr);
    let secret = authorization.map(|value| value.expose_secret().to_owned());
    let said = secret.map_or_else(|| said.clone(), |secret| said.replace(&secret, "[redacted]"));
    Err(fault_of_push(branch, output.code, &said))
}

/// The reason why a push has failed, by git's English words.
fn fault_of_push(branch: &BranchName, code: i32, said: &str) -> GitFault {
    let lower = said.to_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| lower.contains(part));
    if has(&["non-fast-forward", "fetch first", "[rejected]"]) {
        return GitFault::PushRejected { branch: branch.to_string() };
    }
    let denied =
        ["authentication failed", "could not read username", "error: 401", "error: 403", "permission to"];
    if has(&denied) || has(&["error: 404", "' not found", "repository not found"]) {
        return GitFault::RemoteRefused { said: cut(said) };
    }
    let unreachable = [
        "could not resolve",
        "failed to connect",
        "couldn't connect",
        "connection refused",
        "connection reset",
        "timed out",
        "error: 429",
        "error: 50",
        "early eof",
        "remote end hung up",
    ];
    if has(&unreachable) {
        return GitFault::RemoteUnreachable { said: cut(said) };
    }
    GitFault::from_message("push a branch", code, said)
}

fn cut(said: &str) -> String {
    said.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An address is one of the web without a credential, or a folder; its host is compared without its port.
    ///
    /// Rows: SF-518 (in part: the addresses that a branch is pushed to)
    #[test]
    fn remotes_are_https_or_folders_and_hold_no_credentials() {
        let read = |text: &str| RemotePlace::parse_address(text);
        let place = read("https://GitHub.com/o/r.git").expect("an address");
        assert_eq!(place.host(), Some("github.com"));
        assert!(matches!(&place, RemotePlace::Web { path, .. } if path == "o/r"), "{place:?}");
        assert_eq!(read("https://h.example:8443/g/s/p/").expect("reads").host(), Some("h.example"));
        assert_eq!(read("http://[::1]:80/o/r").expect("reads").host(), Some("[::1]"));
        assert!(read("http://127.0.0.1:3000/o/r").expect("reads").is_here());
        assert_eq!(read("/srv/r.git").expect("reads").host(), None);
        for bad in [
            "",
            "git@github.com:o/r.git",
            "ssh://git@h/o/r",
            "https://user:pass@h/o/r",
            "http://h.example/o/r",
            "ext::sh -c x",
            "file:///srv/r",
            "../r",
            "https:///o/r",
            "https://h/o/r?x=1",
            "https://h\n/o",
        ] {
            let fault = read(bad).expect_err(bad);
            assert!(matches!(fault, GitFault::NoRemote { .. }), "{bad}: {fault:?}");
            assert!(!fault.to_string().contains("pass"), "{fault}");
        }
    }

    /// What git says of a push becomes what can be done about it.
    ///
    /// Rows: SF-518 (in part: failures of the push are typed)
    #[test]
    fn failures_of_a_push_are_told_apart() {
        let branch = BranchName::parse_name("writ/m1").expect("a name");
        let fault = |said: &str| fault_of_push(&branch, 1, said);
        let rejected = "!\tx:refs/heads/writ/m1\t[rejected] (non-fast-forward)";
        assert!(matches!(fault(rejected), GitFault::PushRejected { .. }));
        for said in [
            "fatal: Authentication failed for 'https://h/o/r/'",
            "fatal: could not read Username for 'https://h': terminal prompts disabled",
            "fatal: unable to access 'https://h/o/r/': The requested URL returned error: 403",
            "remote: Repository not found.",
        ] {
            assert!(matches!(fault(said), GitFault::RemoteRefused { .. }), "{said}");
        }
        for said in [
            "fatal: unable to access 'https://h/': Could not resolve host: h",
            "fatal: unable to access 'https://h/': The requested URL returned error: 503",
        ] {
            assert!(matches!(fault(said), GitFault::RemoteUnreachable { .. }), "{said}");
        }
        assert!(matches!(fault("fatal: something else"), GitFault::Failed { .. }));
    }
}
