-- Keys that were given out, so that they can be listed and revoked: never the keys themselves.
CREATE TABLE issued_key (
    id TEXT PRIMARY KEY,
    role TEXT NOT NULL CHECK (role IN ('base', 'task')),
    agent TEXT NOT NULL,
    about TEXT NOT NULL,
    hash TEXT NOT NULL,
    issued_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX issued_key_expires ON issued_key (expires_at);

-- Standing orders as their owner signed them. `seen_at` is the latest time at which one was looked at: it never goes back.
CREATE TABLE standing_order (
    id TEXT PRIMARY KEY,
    token TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    seen_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
