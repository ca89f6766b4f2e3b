//! The kinds of personal data, their tokens, and the form in which equal values are equal.

use writ_operations::PersonalKind;

use crate::fold::fold_text;

/// The number of characters after the prefix of a token: 128 bits in hexadecimal.
pub(crate) const TOKEN_DIGITS: usize = 32;

/// Every kind with its name and the prefix of its tokens.
const KINDS: [(PersonalKind, &str, &str); 10] = [
    (PersonalKind::Name, "name", "name_tk_"),
    (PersonalKind::Email, "email", "email_tk_"),
    (PersonalKind::Phone, "phone", "phone_tk_"),
    (PersonalKind::Address, "address", "addr_tk_"),
    (PersonalKind::Card, "card", "card_tk_"),
    (PersonalKind::Iban, "iban", "iban_tk_"),
    (PersonalKind::Number, "number", "num_tk_"),
    (PersonalKind::Text, "text", "text_tk_"),
    (PersonalKind::Customer, "customer", "cust_tk_"),
    (PersonalKind::Case, "case", "case_tk_"),
];

/// Returns the prefix of a kind's tokens.
pub(crate) fn prefix_of(kind: PersonalKind) -> &'static str {
    KINDS.iter().find(|row| row.0 == kind).map_or("text_tk_", |row| row.2)
}

/// Returns the name of a kind in the store.
pub(crate) fn name_of(kind: PersonalKind) -> &'static str {
    KINDS.iter().find(|row| row.0 == kind).map_or("text", |row| row.1)
}

/// Returns the kind with a name.
pub(crate) fn kind_of(name: &str) -> Option<PersonalKind> {
    KINDS.iter().find(|row| row.1 == name).map(|row| row.0)
}

/// Returns the prefixes of all tokens.
pub(crate) fn prefixes() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|row| row.2)
}

/// Returns the form of a value by which it is compared: two ways to write one number or address have one token.
pub(crate) fn normal_form(kind: PersonalKind, value: &str) -> String {
    // Names of rows are compared byte for byte, as the database does.
    if matches!(kind, PersonalKind::Customer | PersonalKind::Case) {
        return value.to_owned();
    }
    let value = &fold_text(value);
    let words = || value.split_whitespace().collect::<Vec<_>>().join(" ");
    match kind {
        PersonalKind::Email | PersonalKind::Name | PersonalKind::Address => words().to_lowercase(),
        PersonalKind::Phone | PersonalKind::Card => {
            let digits: String = value.chars().filter(char::is_ascii_digit).collect();
            // `00` and `+` begin the same international number.
            digits.strip_prefix("00").map_or_else(|| digits.clone(), ToOwned::to_owned)
        }
        PersonalKind::Iban => {
            value.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_uppercase()
        }
        PersonalKind::Number | PersonalKind::Text | PersonalKind::Customer | PersonalKind::Case => words(),
    }
}
