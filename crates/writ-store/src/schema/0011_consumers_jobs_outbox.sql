-- Which loop takes a message. Each consumer of a session works through its own messages in order.
ALTER TABLE message ADD COLUMN consumer TEXT NOT NULL DEFAULT 'executor';
CREATE INDEX message_consumer ON message (consumer, n) WHERE state = 'ready';

-- Work that is done again and again, by name. A schedule is a text of its owner; the store does not read it.
CREATE TABLE job (
    name TEXT PRIMARY KEY,
    schedule TEXT NOT NULL,
    next_run INTEGER,
    last_run INTEGER,
    last_result TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;
CREATE INDEX job_next ON job (next_run) WHERE next_run IS NOT NULL;

-- Messages to recipients. Numbers are never used twice, so a cursor names the same place for ever.
CREATE TABLE outbox (
    n INTEGER PRIMARY KEY AUTOINCREMENT,
    recipient TEXT NOT NULL,
    session TEXT,
    at INTEGER NOT NULL,
    entry INTEGER REFERENCES ledger (seq),
    kind TEXT NOT NULL,
    body TEXT NOT NULL
) STRICT;
CREATE INDEX outbox_at ON outbox (at);

-- How far each channel has delivered.
CREATE TABLE outbox_cursor (
    channel TEXT PRIMARY KEY,
    n INTEGER NOT NULL CHECK (n >= 0),
    at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
