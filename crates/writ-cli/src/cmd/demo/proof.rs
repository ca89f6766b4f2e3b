//! The demo's last act: one changed byte is found, and the ledger itself verifies.

use std::fs;

use writ_store::ledger::verify::{VerifyOptions, VerifyReport, verify_file};

use crate::context::Context;
use crate::failure::Failure;
use crate::keyring::{Role, public_keys};

use super::{Place, not_so, say};

/// Changes one byte in a copy of the ledger, shows that it is found, and verifies the original.
///
/// # Errors
///
/// If the change is not found, or the original does not verify.
pub(super) fn tamper(context: &Context, place: &Place, known: &str) -> Result<(), Failure> {
    let failed = |doing: &'static str| move |error: std::io::Error| Failure::bug(doing, error);
    let config = context.config(None)?;
    let keys = public_keys(&context.home, Role::Harness)?;
    let options = VerifyOptions {
        keys: keys.iter().map(|key| *key.as_bytes()).collect(),
        held: Vec::new(),
        every_signature: true,
    };
    // The engine has ended, so the database is complete in one file.
    let copy = place.root.join("tampered.db");
    let mut bytes = fs::read(config.database()).map_err(failed("reading the database"))?;
    let at = last_place_of(&bytes, known.as_bytes())
        .ok_or_else(|| not_so("the ledger does not hold the message"))?;
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 0x01;
    }
    fs::write(&copy, bytes).map_err(failed("writing the copy"))?;
    let found = verify_file(&copy, &options)?;
    let Some(problem) = &found.problem else { return Err(not_so("the changed byte was not found")) };
    say(
        context,
        format!("\none byte changed in a copy of the ledger: FOUND, first bad leaf {}", problem.leaf),
    )?;
    let report = verify_file(&config.database(), &options)?;
    verified(context, &report)
}

fn verified(context: &Context, report: &VerifyReport) -> Result<(), Failure> {
    if let Some(problem) = &report.problem {
        return Err(not_so(&format!("the ledger does not verify: {}", problem.text)));
    }
    say(
        context,
        format!("the ledger itself: verified, {} entries, {} signed heads", report.rows, report.heads),
    )
}

/// Where a text begins that the ledger holds: its payload is the last table that was written with it.
fn last_place_of(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).rposition(|window| window == needle)
}
