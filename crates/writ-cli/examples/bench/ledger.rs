//! The ledger: durable appends by many at once, grouped by the writer, and verifying what they left.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use ed25519_dalek::SigningKey;
use writ_store::batch::{Batch, Op};
use writ_store::config::StoreConfig;
use writ_store::ledger::verify::{VerifyOptions, verify_file};
use writ_store::store::Store;
use writ_types::action::{Action, Exec, ExecProfile};
use writ_types::chat::ToolOutcome;
use writ_types::digest::Digest;
use writ_types::entry::{Entry, Fact};
use writ_types::id::{AttemptId, SessionId, TurnId};
use writ_types::taint::{Label, Taint};
use writ_types::unit::Timestamp;

use crate::measured::{Measured, since};

/// The time at which everything here happens.
const NOW: Timestamp = Timestamp::from_millis(1_750_000_000_000);
/// How many append at once: two full groups, so that the next one is there when a sync ends.
const WRITERS: u32 = 512;
/// How often the ledger is verified.
const VERIFICATIONS: u32 = 5;

/// Appends `rows` entries (rounded up to whole pairs per writer), each in a synced commit of its own, and
/// verifies them.
pub(crate) fn run(folder: &Path, rows: u32) -> Result<()> {
    let path = folder.join("data/writ.db");
    let signer = Arc::new(SigningKey::from_bytes(&[3; 32]));
    let keys = vec![signer.verifying_key().to_bytes()];
    let store = Store::open(&StoreConfig::new(&path), signer)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let pairs = rows.div_ceil(2 * WRITERS);
    let start = Instant::now();
    let nanos = runtime.block_on(append(&store, pairs))?;
    let took_nanos = since(start);
    let appended = u64::from(pairs * WRITERS) * 2;
    Measured { what: "append", nanos, rows: appended, took_nanos }.print()?;
    // The last store that is closed folds the log into the file.
    drop(store);
    let options = VerifyOptions { keys, ..VerifyOptions::default() };
    let mut nanos = Vec::new();
    for _ in 0..VERIFICATIONS {
        let start = Instant::now();
        let report = verify_file(&path, &options)?;
        nanos.push(since(start));
        ensure!(report.is_good() && report.rows == appended, "the ledger does not verify: {report:?}");
    }
    let took_nanos = nanos.iter().sum();
    let rows = appended * u64::from(VERIFICATIONS);
    Measured { what: "verify", nanos, rows, took_nanos }.print()
}

/// All writers at once; how long each commit took, in nanoseconds.
async fn append(store: &Store, pairs: u32) -> Result<Vec<u64>> {
    let writers = (0..WRITERS).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut nanos = Vec::new();
            for pair in 0..pairs {
                let attempt = AttemptId::from_parts(NOW, u128::from(writer * pairs + pair));
                for fact in [intent(attempt), outcome(attempt)] {
                    let batch = Batch::synced(vec![Op::Append(Box::new(entry(fact)))]);
                    let start = Instant::now();
                    store.commit(batch).await?;
                    nanos.push(since(start));
                }
            }
            anyhow::Ok(nanos)
        })
    });
    let mut nanos = Vec::new();
    for writer in writers.collect::<Vec<_>>() {
        nanos.extend(writer.await??);
    }
    Ok(nanos)
}

fn entry(fact: Fact) -> Entry {
    let (session, turn) = (Some(SessionId::from_parts(NOW, 1)), Some(TurnId::from_parts(NOW, 1)));
    Entry { at: NOW, session, turn, turn_number: 1, fact }
}

fn intent(attempt: AttemptId) -> Fact {
    let argv = ["cargo", "test", "--offline", "--quiet"].map(str::to_owned).to_vec();
    let action = Action::Exec(Exec {
        argv,
        cwd: "/work".to_owned(),
        env: BTreeMap::new(),
        stdin: None,
        timeout_ms: 120_000,
        profile: ExecProfile::Task,
        hosts: Vec::new(),
    });
    Fact::Intent {
        attempt,
        prepared: Digest::of_bytes(attempt.to_string().as_bytes()),
        action,
        call: Some("call-1".to_owned()),
        approval: None,
        idempotent: false,
        label: Label::new(Taint::Owner),
        requester: None,
    }
}

fn outcome(attempt: AttemptId) -> Fact {
    Fact::Outcome {
        attempt,
        outcome: ToolOutcome::Done,
        summary: "exit 0: 12 tests passed".to_owned(),
        result: Digest::of_bytes(b"exit 0"),
        label: Label::new(Taint::Owner),
    }
}
