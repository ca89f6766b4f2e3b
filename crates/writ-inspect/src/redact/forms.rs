//! The encodings in which a value is looked for.

use std::fmt::Write as _;

use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use zeroize::Zeroizing;

/// Six bits of a character of base64 that a value shares with what stands beside it.
const BITS: usize = 6;

/// A value in one encoding.
pub(super) struct SecretForm {
    pub(super) bytes: Zeroizing<Vec<u8>>,
    /// The characters of base64 beside it hold some of its bits, too.
    pub(super) ragged: bool,
}

/// Every encoding of a value: as it is, escaped for JSON, for URLs, in base64 at each of three offsets and in both
/// alphabets, in hexadecimal digits of both cases, and reversed. None is shorter than the value; some may be the same.
pub(super) fn all_forms(value: &str) -> Vec<SecretForm> {
    let mut forms: Vec<SecretForm> = Vec::new();
    let mut add =
        |text: String, ragged| forms.push(SecretForm { bytes: Zeroizing::new(text.into_bytes()), ragged });
    add(value.to_owned(), false);
    for text in json_forms(value) {
        add(text, false);
    }
    for text in url_forms(value) {
        add(text, false);
    }
    // Programs print bytes in either case, and a search must not depend on it.
    let digits = hex::encode(value);
    add(digits.to_ascii_uppercase(), false);
    add(digits, false);
    add(value.chars().rev().collect(), false);
    // The place of a value in a longer text decides how its bytes fall into groups of three.
    for offset in 0..3 {
        for alphabet in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            let (text, ragged) = base64_at(value, offset, alphabet);
            add(text, ragged);
        }
    }
    forms
}

/// As JSON strings hold it: as most programs write it, with every character beyond ASCII escaped, and with `\/`.
fn json_forms(value: &str) -> Vec<String> {
    let inner = |text: &str| -> Option<String> {
        // The library's own escaping is taken, so that it is the same as that of the programs that use it.
        let quoted = serde_json::to_string(text).ok()?;
        Some(quoted.strip_prefix('"')?.strip_suffix('"')?.to_owned())
    };
    // A text always has a JSON form; if the library refused it, there would be none to look for.
    let Some(plain) = inner(value) else { return Vec::new() };
    let mut ascii = String::new();
    let mut units = [0; 2];
    for c in plain.chars() {
        if c.is_ascii() {
            ascii.push(c);
            continue;
        }
        // JSON escapes a character beyond the basic plane as two units.
        for unit in c.encode_utf16(&mut units) {
            // Writing to a string cannot fail.
            let _written = write!(ascii, "\\u{unit:04x}");
        }
    }
    let slashed = |text: &str| text.replace('/', "\\/");
    let mut forms = vec![slashed(&plain), slashed(&ascii), ascii, plain];
    forms.extend(CAUTIOUS_JSON.iter().filter_map(|(escaped, upper)| cautious_form(value, escaped, *upper)));
    forms
}

/// The optional escapes of JSON libraries, and if they are in capitals: Go's `encoding/json`, Gson, .NET's
/// `System.Text.Json`.
const CAUTIOUS_JSON: [(&str, bool); 3] = [("<>&", false), ("<>&='", false), ("\"&'+<>`", true)];

/// A text as a library writes it that escapes these characters, too; `None` where it has none of them.
fn cautious_form(value: &str, escaped: &str, upper: bool) -> Option<String> {
    let is_meant = |c: char| escaped.contains(c) || (upper && !c.is_ascii());
    // Without such a character the form is the plain one, which is searched already.
    if !value.contains(is_meant) {
        return None;
    }
    let (mut out, mut units) = (String::new(), [0; 2]);
    for c in value.chars() {
        if is_meant(c) {
            for unit in c.encode_utf16(&mut units) {
                // Writing to a string cannot fail.
                let _written =
                    if upper { write!(out, "\\u{unit:04X}") } else { write!(out, "\\u{unit:04x}") };
            }
            continue;
        }
        let quoted = serde_json::to_string(c.encode_utf8(&mut [0; 4])).ok()?;
        out.push_str(quoted.strip_prefix('"')?.strip_suffix('"')?);
    }
    Some(out)
}

/// As URLs and forms hold it: what the common libraries leave as it is differs.
fn url_forms(value: &str) -> Vec<String> {
    let mut out = Vec::new();
    // The unreserved characters of RFC 3986, of JavaScript, of path encoders, of forms, and of whole URLs.
    for kept in ["-._~", "-._~!*'()", "-._~/", "-._*", "-._~!$&'()*+,;=:@/?"] {
        for (upper, plus) in [(true, false), (false, false), (true, true), (false, true)] {
            let mut text = String::new();
            for byte in value.bytes() {
                let c = char::from(byte);
                // Writing to a string cannot fail.
                let _written = match byte {
                    b' ' if plus => write!(text, "+"),
                    _ if byte.is_ascii_alphanumeric() || kept.contains(c) && byte.is_ascii() => {
                        write!(text, "{c}")
                    }
                    _ if upper => write!(text, "%{byte:02X}"),
                    _ => write!(text, "%{byte:02x}"),
                };
            }
            if !out.contains(&text) {
                out.push(text);
            }
        }
    }
    out
}

/// The characters of base64 that a value determines alone, if `offset` bytes stand before it in its group of three.
fn base64_at(value: &str, offset: usize, alphabet: &impl base64::Engine) -> (String, bool) {
    let mut bytes = Zeroizing::new(vec![0; offset]);
    bytes.extend_from_slice(value.as_bytes());
    let text = alphabet.encode(bytes.as_slice());
    // Only characters with all six bits from the value: the bits of its neighbours change the others.
    let (first, last) = ((offset * 8).div_ceil(BITS), bytes.len() * 8 / BITS);
    let ragged = !(offset * 8).is_multiple_of(BITS) || !(bytes.len() * 8).is_multiple_of(BITS);
    (text.get(first..last).unwrap_or_default().to_owned(), ragged)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups of three bytes and of four characters end together; between them a character is shared.
    #[test]
    fn base64_is_ragged_where_a_character_is_shared() {
        for (value, offset, text, ragged) in [
            ("hunter2hu", 0, "aHVudGVyMmh1", false),
            ("hunter2h", 1, "h1bnRlcjJo", true),
            ("hunter2", 2, "odW50ZXIy", true),
            ("hunter2h", 0, "aHVudGVyMm", true),
        ] {
            let form = base64_at(value, offset, &STANDARD_NO_PAD);
            assert_eq!(form, (text.to_owned(), ragged), "{value} {offset}");
        }
    }

    #[test]
    fn no_form_is_shorter_than_its_value_and_none_of_base64_is_the_longest() {
        for length in crate::redact::MIN_VALUE_BYTES..40 {
            let forms = all_forms(&"q".repeat(length));
            assert!(forms.iter().all(|form| (length..=length * 2).contains(&form.bytes.len())), "{length}");
            // Characters beside a base64 form are masked too, so they are held back with it (`Values::settled`).
            assert!(
                forms.iter().filter(|form| form.ragged).all(|form| form.bytes.len() + 2 <= length * 2),
                "{length}"
            );
        }
    }
}
