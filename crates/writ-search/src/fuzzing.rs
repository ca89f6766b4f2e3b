//! The reader of this crate for the targets of `fuzz/`: bytes in, nothing out. On any input nothing panics,
//! and every assertion holds.

use secrecy::SecretString;

use crate::config::SearchProvider;
use crate::search::{MAX_TEXT_CHARS, MAX_TITLE_CHARS, MAX_URL_BYTES, bound_hit};

/// The key that an answer may repeat.
const KEY: &str = "BSA-planted-key-7f3a";

/// An answer, in each provider's format: hits are within their bounds, lead to pages, and hold no key.
pub fn read_answer(bytes: &[u8]) {
    let key = SecretString::from(KEY);
    for provider in SearchProvider::ALL {
        let hits = provider.wire_format().read_hits(bytes).unwrap_or_default();
        for hit in hits.into_iter().filter_map(|hit| bound_hit(hit, &key)) {
            assert!(hit.url.starts_with("http") && hit.url.len() <= MAX_URL_BYTES, "{}", hit.url);
            assert!(hit.title.chars().count() <= MAX_TITLE_CHARS);
            assert!(hit.text.chars().count() <= MAX_TEXT_CHARS);
            assert!(![&hit.title, &hit.url, &hit.text].into_iter().any(|text| text.contains(KEY)));
        }
    }
}
