//! Secrets in results, recognised by the names of their fields.
//!
//! The owner can call the results of a tool secret (`readers = "secret"`), and then nothing is sent after it
//! was read without a question. From other tools, the value of a field named as a secret («password»,
//! «card_number») is passed on to no recipient. This finds the exact value, also with other characters
//! between its own; one that was written in a code is not found.

use std::collections::BTreeSet;

use serde_json::Value;
use writ_types::chat::Field;

use super::link::gather_texts;
use super::name_of;
use super::text::fold_text;

/// The most secrets of a conversation; with more, every sent text counts as one.
const MAX_SECRETS: usize = 512;
/// The fewest letters and digits of a secret that is looked for: a shorter one stands anywhere.
const MIN_SECRET_CHARS: usize = 4;
/// The longest one, in bytes: what is longer is a text.
const MAX_SECRET_BYTES: usize = 4 * 1024;
/// Names of fields, or words in them, that say that a value is a secret.
const NAMES: [&str; 24] = [
    "password",
    "passwords",
    "pwd",
    "secrets",
    "recoverycode",
    "backupcode",
    "passwd",
    "passphrase",
    "passcode",
    "secret",
    "token",
    "apikey",
    "privatekey",
    "accesskey",
    "credential",
    "credentials",
    "pin",
    "cvv",
    "cvc",
    "otp",
    "ssn",
    "passport",
    "creditcard",
    "cardnumber",
];

/// Returns true if the name of a field says that its value is a secret: `password`, `card_number`, `apiKey`,
/// `user_pin`.
fn is_secret(name: &str) -> bool {
    let mut words: Vec<String> = Vec::new();
    let mut was_small = false;
    for c in name.chars() {
        let starts = !c.is_alphanumeric() || (c.is_uppercase() && was_small);
        if starts || words.is_empty() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
        was_small = c.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    let pairs = words.windows(2).map(|pair| pair.concat());
    pairs.chain(words.iter().cloned()).any(|word| NAMES.contains(&word.as_str()))
}

/// A text as letters and digits alone.
fn bare_text(text: &str) -> String {
    fold_text(text).chars().filter(|c| c.is_alphanumeric()).collect()
}

/// The values in results that stood under the name of a secret, as letters and digits alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SecretValues(BTreeSet<String>);

impl SecretValues {
    pub(super) const fn nothing() -> Self {
        Self(BTreeSet::new())
    }

    /// Notes the secrets among the values of a result, for any requester. What the owner has written themselves is none.
    pub(super) fn add_fields(&mut self, fields: &[Field], is_owners: impl Fn(&str) -> bool) {
        for field in fields.iter().filter(|field| is_secret(name_of(&field.path))) {
            let secret = bare_text(&field.value);
            let counts = field.value.len() <= MAX_SECRET_BYTES && secret.chars().count() >= MIN_SECRET_CHARS;
            if counts && self.0.len() <= MAX_SECRETS && !is_owners(&field.value) {
                self.0.insert(secret);
            }
        }
    }

    /// Returns true if the arguments of a call contain a secret.
    pub(super) fn stand_in(&self, arguments: &Value) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let mut texts = Vec::new();
        gather_texts(arguments, &mut texts);
        let numbers = collect_numbers(arguments);
        let texts: BTreeSet<String> = texts.into_iter().map(bare_text).chain(numbers).collect();
        let has = |secret: &String| texts.iter().any(|text| text.contains(secret.as_str()));
        self.0.len() > MAX_SECRETS || self.0.iter().any(has)
    }
}

/// The numbers in a value.
fn collect_numbers(value: &Value) -> Vec<String> {
    match value {
        Value::Number(number) => vec![number.to_string()],
        Value::Array(items) => items.iter().flat_map(collect_numbers).collect(),
        Value::Object(fields) => fields.values().flat_map(collect_numbers).collect(),
        Value::Null | Value::Bool(_) | Value::String(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_say_what_is_secret() {
        for name in [
            "password",
            "Password",
            "user_pin",
            "card_number",
            "cardNumber",
            "API-Key",
            "apiKey",
            "credit_card_number",
            "passport_no",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in ["name", "pinned", "opinion", "tokens_used", "number", "card", "street", "", "_", "key"] {
            assert!(!is_secret(name), "{name}");
        }
    }

    #[test]
    fn a_secret_is_found_whatever_stands_between_its_characters() {
        let mut secrets = SecretValues::nothing();
        let profile = json!({ "name": "Pat Doe", "password": "plum-tree-9041", "pin": 482_913, "otp": "12", "token": "Oak-7741" });
        secrets.add_fields(&Field::fields_of(&profile), |value| value == "Oak-7741");
        let tells = |body: Value| secrets.stand_in(&json!({ "to": "Ann", "body": body }));
        for body in
            ["it is plum-tree-9041", "PLUM TREE 9041", "p.l.u.m.t.r.e.e.9.0.4.1", "pin 482 913", "482913"]
        {
            assert!(tells(json!(body)), "{body}");
        }
        assert!(tells(json!([{ "deep": 482_913 }])) && tells(json!({ "482913": 1 })));
        for body in ["Pat Doe", "plum-tree-904", "12", "Oak-7741"] {
            assert!(!tells(json!(body)), "{body}");
        }
    }

    #[test]
    fn of_too_many_secrets_anything_may_be_one() {
        let mut secrets = SecretValues::nothing();
        let many: Vec<Value> = (0..=MAX_SECRETS).map(|n| json!({ "token": format!("token-{n}") })).collect();
        secrets.add_fields(&Field::fields_of(&json!(many)), |_| false);
        assert!(secrets.stand_in(&json!("hello")));
    }
}
