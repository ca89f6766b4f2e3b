//! What is done to every byte that comes back: masking secrets, and knowing where values came from.

use std::hint::black_box;
use std::time::Instant;

use anyhow::{Result, ensure};
use secrecy::SecretString;
use serde_json::{Value, json};
use writ_inspect::origin::{Origins, Takes};
use writ_inspect::prepared::Sink;
use writ_inspect::redact::{KnownSecret, Redactor};
use writ_types::chat::{ChatMessage, Field};
use writ_types::taint::{Label, Source, Taint};

use crate::measured::{Measured, since};

/// How much text there is, in bytes.
const BYTES: usize = 1_000_000;
/// How many secrets are known.
const SECRETS: usize = 50;

/// Measures both over a result of a million bytes.
pub(crate) fn run(rounds: u32) -> Result<()> {
    let (records, text) = result();
    let redactor = Redactor::default();
    let secrets: Vec<KnownSecret> = (0..SECRETS).map(secret).collect();
    redactor.learn_secrets(&secrets);
    let mut masked = Vec::new();
    for _ in 0..rounds {
        let start = Instant::now();
        let clean = redactor.clean_text(black_box(text.clone()));
        masked.push(since(start));
        ensure!(clean.len() >= BYTES / 2, "the text is gone");
    }
    let rows = u64::try_from(text.len())?;
    let mut took = masked.iter().sum();
    Measured { what: "redactor", nanos: masked, rows: rows * u64::from(rounds), took_nanos: took }.print()?;
    let mut labelled = Vec::new();
    let sinks = [Sink { argument: "to".to_owned(), value: "person-999@example.com".to_owned() }];
    let seen = conversation(&records, &text)?;
    for _ in 0..rounds {
        let start = Instant::now();
        propagate(black_box(&records), &seen, &sinks)?;
        labelled.push(since(start));
    }
    took = labelled.iter().sum();
    Measured { what: "labels", nanos: labelled, rows: rows * u64::from(rounds), took_nanos: took }.print()
}

/// From a structured result to whether an argument was composed: fields, origins, one look.
fn propagate(records: &Value, seen: &[ChatMessage], sinks: &[Sink]) -> Result<()> {
    let fields = Field::fields_of(records);
    let mut origins = Origins::new(["write to everybody on the list".to_owned()]);
    origins.read_messages(seen);
    let composed = origins.composed_sink("crm__send", sinks, &Takes::default());
    ensure!(!fields.is_empty() && composed.is_some(), "what stands nowhere counts as known");
    Ok(())
}

/// A conversation with such a result, as it is stored.
fn conversation(records: &Value, text: &str) -> Result<Vec<ChatMessage>> {
    let label = Label::from_source(
        Taint::External,
        Source { origin: "crm__list".to_owned(), detail: "1".to_owned(), entry: None },
    );
    let seen = json!([
        { "role": "assistant", "label": Label::new(Taint::Owner),
          "parts": [{ "part": "call", "id": "1", "name": "crm__list", "arguments": {} }] },
        { "role": "tool", "label": label,
          "parts": [{ "part": "result", "call_id": "1", "name": "crm__list", "outcome": "done", "text": text,
                      "label": label, "fields": Field::fields_of(records) }] },
    ]);
    Ok(serde_json::from_value(seen)?)
}

/// Records as a server gives them, and their text.
fn result() -> (Value, String) {
    let record = |n: usize| {
        json!({ "id": n, "to": format!("someone-{n}@example.org"), "subject": "the figures of the quarter",
                "text": "They are as we had thought; nothing is left to do until the audit. ".repeat(12) })
    };
    let one = record(0).to_string().len();
    let records: Value = (0..BYTES.div_ceil(one)).map(record).collect();
    let text = records.to_string();
    (records, text)
}

fn secret(n: usize) -> KnownSecret {
    let value = format!("{:x}", number(n));
    KnownSecret { name: format!("secret:s{n}"), value: SecretString::from(value) }
}

/// A number without a pattern, the same in every run (the multiplier of Knuth's MMIX).
fn number(n: usize) -> u128 {
    let n = n as u128 + 1;
    n.wrapping_mul(6_364_136_223_846_793_005).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
}
