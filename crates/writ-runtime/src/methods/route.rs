//! The route of a method over HTTP.

use schemars::{Schema, SchemaGenerator};

/// The verb of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// `GET`
    Get,
    /// `POST`
    Post,
    /// `DELETE`
    Delete,
}

/// The thing that a route's path names. It becomes a parameter of the method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathSubject {
    /// `{id}` is a session.
    Session,
    /// `{id}` is an ask.
    Ask,
    /// `{attempt}` is an attempt.
    Attempt,
    /// `{seq}` is an entry of the ledger.
    Entry,
    /// `{id}` is a work item, or its name.
    Item,
}

impl PathSubject {
    /// The name of the parameter.
    pub const fn field(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Ask => "ask",
            Self::Attempt => "attempt",
            Self::Entry => "seq",
            Self::Item => "item",
        }
    }
}

/// The route of a method over HTTP. Its answer has status 200. A path that names a subject takes no query; any other route
/// takes the fields of the parameters as its query, or, with `POST`, the parameters as its body.
#[derive(Clone, Copy, Debug)]
pub struct MethodRoute {
    /// The verb.
    pub verb: Verb,
    /// The paths: the first is the one of the API, others are older names.
    pub paths: &'static [&'static str],
    /// The thing that the path names.
    pub subject: Option<PathSubject>,
    /// Statuses of refusals besides those that every method may answer with.
    pub refusals: &'static [u16],
    /// Writes the schema of the parameters.
    pub params: fn(&mut SchemaGenerator) -> Schema,
    /// Writes the schema of the answer.
    pub answer: fn(&mut SchemaGenerator) -> Schema,
}
