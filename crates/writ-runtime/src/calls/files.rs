//! Files for messages: checked, and stored with their session.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use writ_store::batch::{Batch, Op};
use writ_store::files::MessageFile;
use writ_types::api::file::{NewFile, StoredFile};
use writ_types::chat::{FileRef, MAX_FILE_BYTES};
use writ_types::error::{Exit, Report};

use crate::error::EngineError;
use crate::services::Services;

/// Stores a file. Nothing of it reaches a model before a message has its line.
pub(super) async fn add_file(
    services: &Services,
    NewFile { session, name, content }: NewFile,
) -> Result<StoredFile, EngineError> {
    let refused = |why: &str| {
        let shown: String = name.chars().filter(|c| !c.is_control()).take(80).collect();
        let hint = format!(
            "models read PNG, JPEG, GIF and WebP images and PDF files of up to {MAX_FILE_BYTES} bytes; other files the \
             agent reads with its tools"
        );
        let text = format!("\"{shown}\" is not taken: {why}");
        EngineError::Model(Box::new(Report::new(Exit::Usage, "file.refused", text).with_hint(hint)))
    };
    let session = services.sessions.open_one(session).await?;
    let content = STANDARD.decode(content.trim()).map_err(|_| refused("its content is no base64"))?;
    let file = FileRef::describe_file(&name, &content).map_err(|error| refused(&error.to_string()))?;
    let line = file.to_line();
    let at = services.journal.clock.now();
    let stored = MessageFile { session: session.id, at, file: file.clone(), content };
    services.journal.store.commit(Batch::synced(vec![Op::StoreFile(Box::new(stored))])).await?;
    Ok(StoredFile { file, line })
}
