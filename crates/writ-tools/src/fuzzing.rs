//! The reader of this crate for the targets of `fuzz/`: bytes in, nothing out. On any input nothing panics,
//! and every assertion holds.

use crate::render::{MAX_FETCHED_BYTES, html, web};

/// A web page: its text is within bounds, and holds nothing that moves a cursor.
pub fn read_page(bytes: &[u8]) {
    let page = String::from_utf8_lossy(bytes);
    let text = html::text_of(&page);
    assert!(text.len() <= 3 * page.len() + 16, "{} of {}", text.len(), page.len());
    assert!(!text.contains("\n\n\n") && !text.contains(|c: char| c.is_control() && c != '\n' && c != '\t'));
    for media in ["text/html", "text/plain", ""] {
        let read = web::render_fetched(200, "https://a.example/", media, bytes, false);
        assert!(read.len() <= MAX_FETCHED_BYTES && read.starts_with("HTTP 200 from https://a.example/"));
    }
}
