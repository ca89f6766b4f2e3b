//! A home without servers of tools.

use secrecy::SecretString;
use writ_types::credential::Reference;
use writ_types::error::{Exit, Report};

use super::{Server, ServerSource};

/// The owner's servers: none, for engines without any.
#[derive(Debug)]
pub struct NoServers;

impl ServerSource for NoServers {
    fn load(&self) -> Result<Vec<Server>, Report> {
        Ok(Vec::new())
    }

    fn secret(&self, name: &Reference) -> Result<SecretString, Report> {
        Err(Report::new(Exit::Config, "mcp.secret", format!("there is no secret '{name}'")))
    }
}
