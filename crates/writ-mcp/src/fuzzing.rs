//! The readers of this crate for the targets of `fuzz/`: any bytes in, nothing out. Nothing panics, and the
//! assertions hold.

use serde_json::Value;

use crate::client::check_version;
use crate::http::Events;
use crate::listing::{MAX_PAGES, MAX_TOOLS, ToolPages as Tools};
use crate::message::{Incoming, MAX_ERROR_CHARS, RpcError, answer_request, message_line};
use crate::reading::{self, Has, Reading};
use crate::result::CallResult;

/// The tools for what else a server has.
const READINGS: [&str; 5] =
    ["prompts/list", "prompts/get", "resources/list", "resources/read", "resources/templates/list"];

/// An answer over HTTP, as JSON and as a stream of events that comes in pieces as long as the first byte says.
pub fn fuzz_http(bytes: &[u8]) {
    let Some((piece, body)) = bytes.split_first() else { return };
    read_message(body);
    let Some(whole) = split_events(body, body.len().max(1)) else { return };
    assert_eq!(
        split_events(body, usize::from(*piece).max(1)).as_ref(),
        Some(&whole),
        "pieces make no difference"
    );
    whole.iter().for_each(|event| read_message(event));
}

/// The events of a stream; `None`: it is beyond a bound.
fn split_events(stream: &[u8], piece: usize) -> Option<Vec<Vec<u8>>> {
    let (mut events, mut held, mut found) = (Events::default(), Vec::new(), Vec::new());
    for chunk in stream.chunks(piece) {
        held.extend_from_slice(chunk);
        found.extend(events.take(&mut held).ok()?);
    }
    Some(found)
}

/// Reads one message, as the answer to any request.
fn read_message(bytes: &[u8]) {
    match Incoming::parse(bytes) {
        Incoming::Answer { result: Ok(result), .. } => read_bytes(&result),
        Incoming::Answer { result: Err(RpcError { message, .. }), .. } => {
            assert!(message.chars().count() <= MAX_ERROR_CHARS);
        }
        Incoming::Request { id, method, .. } => {
            let sent = message_line(&answer_request(&id, &method));
            assert_eq!(sent.iter().filter(|byte| **byte == b'\n').count(), 1, "an answer is one line");
        }
        Incoming::Notification { .. } | Incoming::Stray => {}
    }
}

/// A result, as the answer to everything that is asked.
fn read_bytes(result: &Value) {
    // A greeting of an unknown version ends the visit; here its other fields are read nevertheless.
    let _unknown = check_version(result);
    let mut tools = Tools::default();
    // A server that gives the same page again and again comes to an end.
    let mut pages = 0;
    while tools.next_request().is_some() {
        if tools.take_page(result).is_err() {
            return other_value(result);
        }
        pages += 1;
    }
    let tools = tools.into_listing(Has::of(result)).tools;
    assert!(pages <= MAX_PAGES && tools.len() <= MAX_TOOLS + READINGS.len());
    other_value(result)
}

/// A result, as what calls and readings give.
fn other_value(result: &Value) {
    let _called = CallResult::of(result.clone());
    for reading in READINGS.into_iter().filter_map(Reading::of) {
        if !reading.lists() {
            let _read = reading.read_content(result);
            continue;
        }
        let mut list = reading::List::new(reading);
        let mut pages = 0;
        while list.next_request().is_some() {
            if list.take_page(result).is_err() {
                break;
            }
            pages += 1;
        }
        assert!(pages <= MAX_PAGES);
    }
}
