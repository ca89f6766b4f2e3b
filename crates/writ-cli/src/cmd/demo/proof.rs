//! The demo's last act: one changed byte is found, and the ledger itself verifies.

use std::fs;

use writ_store::ledger::row::{LedgerQuery, LedgerRow};
use writ_store::ledger::verify::{VerifyOptions, VerifyReport, verify_file};
use writ_types::entry::Fact;

use crate::config::Config;
use crate::context::Context;
use crate::failure::Failure;
use crate::keyring::{KeyRole, public_keys};
use crate::ledger::open_to_read;

use super::{DemoFolder, not_so, print_text};

/// Changes one byte in a copy of the ledger, shows that it is found, and verifies the original.
///
/// # Errors
///
/// If the change is not found, or the original does not verify.
pub(super) fn tamper_copy(context: &Context, place: &DemoFolder) -> Result<(), Failure> {
    let failed = |doing: &'static str| move |error: std::io::Error| Failure::internal_error(doing, error);
    let config = context.load_config(None)?;
    let keys = public_keys(&context.home, KeyRole::Harness)?;
    let options = VerifyOptions {
        keys: keys.iter().map(|key| *key.as_bytes()).collect(),
        held: Vec::new(),
        // Every signature is checked, so that the changed byte is found wherever it is.
        every_signature: true,
    };
    // The engine has ended, so the database is complete in one file.
    let copy = place.root.join("tampered.db");
    let mut bytes = fs::read(config.database()).map_err(failed("reading the database"))?;
    let known = signature_of_message(context, &config)?;
    let at =
        place_of(&bytes, known.as_bytes()).ok_or_else(|| not_so("the ledger does not hold the message"))?;
    if let Some(byte) = bytes.get_mut(at) {
        // One bit of the signature, so that the entry itself stays readable.
        *byte ^= 0x01;
    }
    fs::write(&copy, bytes).map_err(failed("writing the copy"))?;
    let found = verify_file(&copy, &options)?;
    let Some(problem) = &found.problem else { return Err(not_so("the changed byte was not found")) };
    print_text(
        context,
        format!("\none byte changed in a copy of the ledger: FOUND, first bad leaf {}", problem.leaf),
    )?;
    let report = verify_file(&config.database(), &options)?;
    print_verified(context, &report)
}

fn print_verified(context: &Context, report: &VerifyReport) -> Result<(), Failure> {
    if let Some(problem) = &report.problem {
        return Err(not_so(&format!("the ledger does not verify: {}", problem.text)));
    }
    print_text(
        context,
        format!("the ledger itself: verified, {} entries, {} signed heads", report.rows, report.heads),
    )
}

/// A text that only the ledger holds: the harness's signature over the person's message.
fn signature_of_message(context: &Context, config: &Config) -> Result<String, Failure> {
    let store = open_to_read(context, config)?;
    let query = LedgerQuery { event: Some("received".to_owned()), limit: 1, ..LedgerQuery::default() };
    let rows = store.blocking().ledger_search(&query)?;
    match rows.first().and_then(LedgerRow::entry).map(|entry| entry.fact) {
        Some(Fact::Received { signature, .. }) => Ok(signature),
        _ => Err(not_so("the ledger does not hold the message")),
    }
}

fn place_of(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    // The signature's text occurs once in the file.
    haystack.windows(needle.len()).position(|window| window == needle)
}
