//! Agents as folders: what one may do is written in its `agent.toml`, approved by a person, and signed into a base key that is
//! good for this folder alone.
//!
//! - [`manifest`] reads `agent.toml`, [`words`] says in plain words what it asks for.
//! - [`folder`] takes the digest of a folder, and copies one.
//! - [`key_file`] reads and writes the base key beside it.
//! - [`deployed`] reads the agents of a home, [`place`] puts one there and takes one out.

pub mod deployed;
pub mod error;
pub mod folder;
pub mod key_file;
pub mod manifest;
pub mod place;
pub mod words;

pub use deployed::{DeployStamp, DeployedAgent, DeployedAgents, read_deployed, stamp};

#[cfg(test)]
mod tests;
