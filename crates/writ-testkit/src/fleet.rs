//! A small fleet for the demo and for tests: a shop with 50 customers in SQLite, declared operations, and three agents in
//! Python, one of them hostile.

use std::fs;
use std::io;
use std::path::Path;

pub mod shop;

pub mod front;

/// The agent that refunds small amounts.
pub const REFUND_AGENT: &str = "refund-agent";
/// The agent that refunds more; escalations to a manager go to it.
pub const SENIOR_AGENT: &str = "senior-agent";
/// The hostile agent.
pub const ADDRESS_AGENT: &str = "address-agent";
/// The operation that the hostile agent was blessed for.
pub const CHANGE_ADDRESS: &str = "change_address";
/// The line with which the hostile agent says that it has tried everything.
pub const READY: &str = "ready";
/// The word with which it says that a way was open.
pub const OPEN: &str = "OPEN";
/// The rule that catches the hostile agent.
pub const RULE: &str = "refused > 5 in 60 s then revoke";

/// The declared operations.
const OPERATIONS: &str = include_str!("fleet/files/operations/shop.toml");
/// The program of both agents that refund.
const PROGRAM: &str = include_str!("fleet/files/refund-agent/agent.py");
/// Their policy.
const POLICY: &str = include_str!("fleet/files/refund-agent/policy.md");

/// The places that the hostile agent knows.
#[derive(Clone, Copy, Debug)]
pub struct KnownPlaces<'a> {
    /// The file of the shop's database.
    pub shop: &'a Path,
    /// The ledgers.
    pub ledgers: [&'a Path; 2],
    /// The file with another agent's key.
    pub key: &'a Path,
    /// The mail server, as `HOST:PORT`.
    pub mail: &'a str,
}

/// Writes the declared operations into a folder, which is made if needed.
///
/// # Errors
///
/// If a file cannot be written.
pub fn write_operations(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("shop.toml"), OPERATIONS)
}

/// Writes the folders of the three agents below a folder, which is made if needed.
///
/// # Errors
///
/// If a file cannot be written.
pub fn write_agents(folder: &Path, known: &KnownPlaces<'_>) -> io::Result<()> {
    let refunds = [
        (REFUND_AGENT, include_str!("fleet/files/refund-agent/agent.toml")),
        (SENIOR_AGENT, include_str!("fleet/files/senior-agent/agent.toml")),
    ];
    for (name, declared) in refunds {
        write_agent(&folder.join(name), declared, PROGRAM, POLICY)?;
    }
    let program = include_str!("fleet/files/address-agent/agent.py");
    let policy = include_str!("fleet/files/address-agent/policy.md");
    write_agent(&folder.join(ADDRESS_AGENT), &declare_hostile(known), program, policy)
}

fn write_agent(folder: &Path, declared: &str, program: &str, policy: &str) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("agent.toml"), declared)?;
    fs::write(folder.join("agent.py"), program)?;
    fs::write(folder.join("policy.md"), policy)
}

/// The declaration of the hostile agent, with the places that it looks for as arguments of its program.
fn declare_hostile(known: &KnownPlaces<'_>) -> String {
    let [one, other] = known.ledgers.map(|path| path.display().to_string());
    let arguments = [
        "python3".to_owned(),
        "agent.py".to_owned(),
        known.shop.display().to_string(),
        format!("{one},{other}"),
        known.key.display().to_string(),
        known.mail.to_owned(),
    ];
    // A text of JSON is one of TOML as well, as far as paths go.
    let arguments = serde_json::json!(arguments);
    format!(
        "name = \"{ADDRESS_AGENT}\"\nversion = \"1\"\nprogram = {arguments}\npolicies = [\"policy.md\"]\nmax_cases = 4\n\
         expires_days = 30\n\n[capabilities]\nread_orders = {{}}\n{CHANGE_ADDRESS} = {{}}\nescalate_to = [\"human\"]\n"
    )
}
