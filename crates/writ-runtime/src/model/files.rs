//! The files of messages join a request just before it is sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use writ_store::reads::ResultReads as _;
use writ_types::chat::{AttachedFile, FileRef, MAX_FILES, MAX_FILES_BYTES, ModelRequest, Part, Role};
use writ_types::digest::Digest;
use writ_types::id::SessionId;

use crate::error::EngineError;
use crate::services::Services;

/// Adds the files that the person's messages name, the newest first where there are too many. A file belongs to its session:
/// the same line in another one names nothing.
///
/// # Errors
///
/// If the store cannot be read.
pub(super) async fn attach_files(
    services: &Services,
    session: SessionId,
    request: &mut ModelRequest,
) -> Result<(), EngineError> {
    let (mut count, mut bytes) = (0_usize, 0_usize);
    let mut read: BTreeMap<Digest, Option<(FileRef, Arc<str>)>> = BTreeMap::new();
    for message in request.messages.iter_mut().rev().filter(|message| message.role == Role::User) {
        let texts = message.parts.iter().filter_map(|part| match part {
            Part::Text { text } => Some(text),
            Part::Call(_) | Part::Result(_) | Part::Reasoning(_) | Part::File(_) => None,
        });
        let files: Vec<FileRef> = texts.flat_map(|text| FileRef::files_in(text)).collect();
        for file in files {
            // Older files are named by their lines alone.
            let size = usize::try_from(file.bytes).unwrap_or(usize::MAX);
            if count >= MAX_FILES || bytes.saturating_add(size) > MAX_FILES_BYTES {
                continue;
            }
            (count, bytes) = (count + 1, bytes + size);
            let stored = match read.get(&file.digest) {
                Some(stored) => stored.clone(),
                None => {
                    let stored = services.journal.store.message_file(session, file.digest).await?;
                    let stored =
                        stored.map(|stored| (stored.file, Arc::<str>::from(STANDARD.encode(stored.content))));
                    read.insert(file.digest, stored.clone());
                    stored
                }
            };
            // The file's tokens are counted from the stored file, not from the line that names it.
            let (file, content) = match stored {
                Some((stored, content)) => (FileRef { name: file.name, ..stored }, Some(content)),
                None => (file, None),
            };
            Arc::make_mut(message).parts.push(Part::File(AttachedFile { file, content }));
        }
    }
    Ok(())
}
