-- Images and PDF files of messages, by their session and the SHA-256 of their bytes.
CREATE TABLE message_file (
    session TEXT NOT NULL REFERENCES session (id),
    digest TEXT NOT NULL,
    at INTEGER NOT NULL,
    name TEXT NOT NULL,
    media TEXT NOT NULL,
    content BLOB NOT NULL,
    PRIMARY KEY (session, digest)
) STRICT;
