//! `writ run`: any program as an agent that holds no key and reaches two names.
//!
//! [`writ_sandbox::agent`] locks the program in and hands its listeners out; here is what accepts on them. A request for
//! one of the two [names] is given the keys of the agent and is passed on to the server behind that name, over its Unix
//! socket; every other request is refused, counted and reported.
//!
//! Read in this order: [`names`] lists what can be reached, `keys` reads the keys, `head` rewrites a request, `forward`
//! serves a listener, [`refusals`] counts, `folder` looks for keys, [`launch`] joins it all.

pub mod names;

pub mod keys;

mod head;

pub mod forward;

pub mod refusals;

mod folder;

pub mod launch;
