//! Files of messages: images and PDF files that models read.

use rusqlite::{Connection, Row, params};
use writ_types::chat::{FileRef, MediaType};
use writ_types::digest::Digest;
use writ_types::id::SessionId;
use writ_types::unit::Timestamp;

use crate::codec::{self, execute, get_time, int, query_one};
use crate::error::StoreError;

/// The most files of one session; the oldest are deleted first.
pub const MAX_SESSION_FILES: u64 = 200;

/// The most bytes that they take together; the newest stays in any case.
pub const MAX_SESSION_BYTES: u64 = 64 * 1024 * 1024;

/// A file with its bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct MessageFile {
    /// The session: only its messages may name it.
    pub session: SessionId,
    /// When it came.
    pub at: Timestamp,
    /// Its description.
    pub file: FileRef,
    /// Its bytes.
    pub content: Vec<u8>,
}

impl std::fmt::Debug for MessageFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MessageFile").field("file", &self.file).finish_non_exhaustive()
    }
}

pub(crate) fn store_file(conn: &Connection, stored: &MessageFile) -> Result<(), StoreError> {
    let (session, file) = (stored.session.to_string(), &stored.file);
    // A file that comes again is as new as its last message.
    execute(
        conn,
        "INSERT INTO message_file (session, digest, at, name, media, content) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (session, digest) DO UPDATE SET at = excluded.at",
        params![
            session,
            file.digest.to_string(),
            stored.at.as_millis(),
            file.name,
            file.media.as_str(),
            stored.content
        ],
    )?;
    execute(
        conn,
        "DELETE FROM message_file WHERE session = ?1 AND digest != ?2 AND digest IN (
             SELECT digest FROM (
                 SELECT digest, row_number() OVER newer AS place, sum(length(content)) OVER newer AS total
                 FROM message_file WHERE session = ?1 WINDOW newer AS (ORDER BY at DESC, rowid DESC)
             ) WHERE place > ?3 OR total > ?4)",
        params![session, file.digest.to_string(), int(MAX_SESSION_FILES), int(MAX_SESSION_BYTES)],
    )?;
    Ok(())
}

fn decode_file(row: &Row<'_>) -> Result<MessageFile, StoreError> {
    let media: String = row.get("media")?;
    let known = MediaType::ALL.into_iter().find(|known| known.as_str() == media);
    let known = known.ok_or_else(|| StoreError::Corrupt(format!("it has a file of the type {media}")))?;
    let content: Vec<u8> = row.get("content")?;
    Ok(MessageFile {
        session: codec::parse("session id", &row.get::<_, String>("session")?)?,
        at: get_time(row, "at")?,
        file: FileRef {
            name: row.get("name")?,
            media: known,
            pages: FileRef::count_pages(known, &content),
            bytes: u64::try_from(content.len()).unwrap_or(u64::MAX),
            digest: codec::parse("digest", &row.get::<_, String>("digest")?)?,
        },
        content,
    })
}

pub(crate) fn message_file(
    conn: &Connection,
    session: SessionId,
    digest: Digest,
) -> Result<Option<MessageFile>, StoreError> {
    let sql = "SELECT * FROM message_file WHERE session = ?1 AND digest = ?2";
    query_one(conn, sql, params![session.to_string(), digest.to_string()], decode_file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Op;
    use crate::testing::*;

    fn image(of: u128, n: u8) -> MessageFile {
        let content = [b"GIF89a".as_slice(), &[n], &[0; 100], b";"].concat();
        let file = FileRef::describe_file("a.gif", &content).expect("an image");
        MessageFile { session: session(of), at: at(i64::from(n)), file, content }
    }

    fn store(file: &MessageFile) -> Op {
        Op::StoreFile(Box::new(file.clone()))
    }

    #[test]
    fn a_file_is_read_in_its_session_alone_and_the_oldest_go() {
        let home = TestHome::new().with_session(1).with_session(2);
        let first = image(1, 0);
        home.commit(vec![store(&first), store(&first)]);
        let read =
            |session, file: &MessageFile| home.store.blocking().message_file(session, file.file.digest);
        assert_eq!(read(session(1), &first), Ok(Some(first.clone())));
        assert_eq!(read(session(2), &first), Ok(None), "not of another session");
        let others: Vec<MessageFile> = (1..=200).map(|n| image(1, n)).collect();
        assert_eq!(others.len() as u64, MAX_SESSION_FILES);
        for file in &others {
            home.commit(vec![store(file)]);
        }
        assert_eq!(read(session(1), &first), Ok(None));
        for file in [&others[0], &others[199]] {
            assert_eq!(read(session(1), file), Ok(Some((*file).clone())));
        }
    }
}
