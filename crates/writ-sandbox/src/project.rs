//! The host's side of a session's work: what differs from the project, and how it gets there. Nothing is run here.

pub(crate) mod view;

pub(crate) mod beneath;

pub(crate) mod private;

pub(crate) mod base;

pub(crate) mod copy;

pub(crate) mod upper;

pub(crate) mod carry;

pub(crate) mod git;
