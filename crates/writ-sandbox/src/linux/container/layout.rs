//! The names by which launcher and container know each other.

/// The argument of our own binary when it is a container's first process.
pub(crate) const MARKER: &str = "writ-container-init";
/// The folder inside with what is ours.
pub(crate) const INSIDE: &str = "/.writ";
/// The launcher's socket, inside.
pub(crate) const CONTROL: &str = "/.writ/control";
/// The certificate authority that the agent is to trust, inside.
pub(crate) const AUTHORITY: &str = "/.writ/authority.pem";
