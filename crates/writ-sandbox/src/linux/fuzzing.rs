//! The messages between engine and sandbox, and the text of a diff, for [`crate::fuzzing`].

use serde::Serialize;
use serde::de::DeserializeOwned;
use writ_types::action::{ChangeKind, FileChange};
use writ_types::digest::Digest;

use super::alive::ProcessReport;
use super::spec::{self, JobOrder, SandboxBase, Setup, SetupFault};
use crate::file_request::FileReply;
use crate::name;
use crate::project::upper::text;

/// The separator between the two sides of a file.
const BETWEEN: &[u8] = b"\n%%\n";

/// A message of one side to the other; the first byte says which. What is read is what is written again.
pub fn frame(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else { return };
    match kind % 8 {
        0 => {
            let mut report = ProcessReport::of(rest.to_vec());
            while let Some(Some(said)) = report.split_message() {
                again(&said);
            }
        }
        // The worker's answer is all of its output, without a length.
        1 => {
            if let Ok(reply) = serde_json::from_slice::<FileReply>(rest) {
                again(&reply);
            }
        }
        2 => message::<SandboxBase>(rest),
        3 => message::<Setup>(rest),
        4 => message::<JobOrder>(rest),
        _ => message::<SetupFault>(rest),
    }
}

fn message<T: Serialize + DeserializeOwned>(bytes: &[u8]) {
    let mut from = bytes;
    if let Ok(read) = spec::read_message::<T>(&mut from) {
        again(&read);
    }
}

fn again<T: Serialize + DeserializeOwned>(read: &T) {
    let Ok(written) = spec::encode_message(read) else { return };
    let read = spec::read_message::<T>(&mut written.as_slice());
    let twice = read.and_then(|read| spec::encode_message(&read));
    assert!(twice.is_ok_and(|twice| twice == written), "what is read is what is written again");
}

/// A file before and after, and, in the first byte, what became of it: what a person is shown hides nothing.
pub fn changed(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else { return };
    let at = rest.windows(BETWEEN.len()).position(|part| part == BETWEEN).unwrap_or(rest.len());
    let (before, after) = rest.split_at(at);
    let after = after.get(BETWEEN.len()..).unwrap_or_default();
    let (kind, before, after) = match kind % 4 {
        0 => (ChangeKind::Create, None, Some(after)),
        1 => (ChangeKind::Delete, Some(before), None),
        _ => (ChangeKind::Modify, Some(before), Some(after)),
    };
    let change = FileChange {
        path: "src/main.rs".to_owned(),
        kind,
        before: before.map(Digest::of_bytes),
        after: after.map(Digest::of_bytes),
        executable: false,
        bytes: u64::try_from(after.unwrap_or_default().len()).unwrap_or(u64::MAX),
    };
    let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
    let small = before.len().max(after.len()) <= text::BYTES_MAX;
    let both = (Some(before.to_vec()), Some(after.to_vec()));
    let shown = text::show_change(&change, both, &mut { text::COMPARED_MAX });
    assert!(shown.is_some() || !small, "what is small is shown");
    let plain = |c: char| {
        matches!(c, '\n' | '\t') || name::showable_name(c.encode_utf8(&mut [0; 4]).as_bytes()).is_some()
    };
    assert!(shown.unwrap_or_default().chars().all(plain), "a diff hides nothing");
}
