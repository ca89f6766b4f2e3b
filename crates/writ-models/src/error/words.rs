//! The message of a provider's error: foreign text, shown to people as such.

use std::fmt;

use secrecy::{ExposeSecret as _, SecretString};
use writ_inspect::redact::{KnownSecret, MIN_VALUE_BYTES, Redactor};

/// The most characters of a message that are shown.
pub const MAX_WORDS_CHARS: usize = 400;

/// The most characters of a message that are looked at. What is beyond is never shown.
pub(crate) const MAX_RAW_CHARS: usize = 4096;

/// The message that came with a provider's error. Nothing of it is shown before `clean` has
/// masked the key of the call and all that has the form of a credential.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ProviderWords {
    text: String,
    is_clean: bool,
}

impl ProviderWords {
    /// A message as it came.
    pub(crate) fn raw(message: &str) -> Self {
        // Bounded when it comes in: an error body may be a whole page.
        Self { text: message.chars().take(MAX_RAW_CHARS).collect(), is_clean: false }
    }

    /// Masks the key and credentials, and makes one bounded line of plain characters of it.
    pub(crate) fn clean(&mut self, key: Option<&SecretString>) {
        let mut text = std::mem::take(&mut self.text);
        if let Some(key) = key {
            // A key as short as this would be masked in ordinary words.
            if key.expose_secret().len() < MIN_VALUE_BYTES {
                // The redactor does not look for values this short.
                if !key.expose_secret().is_empty() && text.contains(key.expose_secret()) {
                    text.clear();
                }
            } else {
                let redactor = Redactor::default();
                redactor.learn_secrets(&[KnownSecret { name: "the key".to_owned(), value: key.clone() }]);
                // The text is cut, so the beginning of a key at its end is masked as well.
                redactor.scrub_cut(&mut text);
                // The redactor knows the escapes of programs; a sender may escape every character.
                if !redactor.secrets_in(&percent_decoded(&text)).is_empty() {
                    text.clear();
                }
            }
        }
        Redactor::default().scrub_text(&mut text);
        self.text = one_line(&text);
        self.is_clean = true;
    }

    /// The message, if there is one that may be shown.
    pub fn shown(&self) -> Option<&str> {
        (self.is_clean && !self.text.is_empty()).then_some(self.text.as_str())
    }
}

impl fmt::Debug for ProviderWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It may repeat the prompt, and until it is clean the key.
        f.write_str("ProviderWords")
    }
}

/// A text with every `%XX` in it read.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let code = after.get(..2).filter(|_| byte == b'%').and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(decoded) => {
                bytes.push(decoded);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns one line of at most [`MAX_WORDS_CHARS`] characters, without any that a terminal or a page would
/// not show as they are. A text that a provider has masked still has the ends of a key: the whole word is
/// left out.
fn one_line(text: &str) -> String {
    let plain = |c: char| {
        let disturbs = c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
            || matches!(c, '\u{e0000}'..='\u{e007f}');
        if disturbs { ' ' } else { c }
    };
    let text: String = text.chars().map(plain).collect();
    let words: Vec<&str> =
        text.split_whitespace().map(|word| if word.contains("***") { "[masked]" } else { word }).collect();
    // It is shown as code, so that no link and no other markup in it is followed.
    let line = words.join(" ").replace('`', "'");
    if line.chars().count() <= MAX_WORDS_CHARS {
        return line;
    }
    let mut cut: String = line.chars().take(MAX_WORDS_CHARS.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(message: &str, key: Option<&str>) -> String {
        let mut words = ProviderWords::raw(message);
        assert_eq!(words.shown(), None, "nothing is shown before it is clean");
        words.clean(key.map(SecretString::from).as_ref());
        words.shown().unwrap_or_default().to_owned()
    }

    #[test]
    fn a_message_is_one_bounded_plain_line() {
        assert_eq!(shown("a\n\tb\u{1b}[31m \u{202e}c\u{200b}d \"e\" `f`", None), "a b [31m c d \"e\" 'f'");
        let long = shown(&"word ".repeat(10_000), None);
        assert_eq!((long.chars().count(), long.ends_with('…')), (MAX_WORDS_CHARS, true));
        assert_eq!(shown("", None), "");
        let mut words = ProviderWords::raw("the prompt");
        words.clean(None);
        assert!(!format!("{words:?}").contains("prompt"));
    }

    #[test]
    fn the_key_is_masked_in_every_encoding_and_also_where_it_was_cut() {
        use base64::Engine as _;
        let key = "hunter2-hunter2-hunter2";
        let encoded = base64::engine::general_purpose::STANDARD.encode(key);
        let hex: String = key.bytes().map(|byte| format!("{byte:02x}")).collect();
        for said in [
            format!("invalid key {key}"),
            format!("invalid key {encoded} (base64)"),
            format!("invalid key {hex} (hex)"),
            format!("{}{key}", "x".repeat(MAX_RAW_CHARS - 10)),
        ] {
            let shown = shown(&said, Some(key));
            for part in [key, "hunter2", &encoded, &hex] {
                assert!(!shown.contains(part), "{part} in {shown}");
            }
        }
        assert_eq!(shown("your key short7 is wrong", Some("short7")), "");
        let echoed = shown("Incorrect API key provided: sk-proj-abcd********wxyz. See the docs.", None);
        assert_eq!(echoed, "Incorrect API key provided: [masked] See the docs.");
    }
}
