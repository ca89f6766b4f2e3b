-- The ledger. Triggers guard against our own mistakes; the tree and its signatures guard against others.
CREATE TABLE ledger (
    seq INTEGER PRIMARY KEY CHECK (seq >= 0),
    leaf BLOB NOT NULL,
    at INTEGER NOT NULL,
    session TEXT,
    turn TEXT,
    turn_number INTEGER NOT NULL,
    event TEXT NOT NULL,
    commitment BLOB NOT NULL,
    signature BLOB NOT NULL
) STRICT;
CREATE INDEX ledger_session ON ledger (session, seq) WHERE session IS NOT NULL;
CREATE INDEX ledger_turn ON ledger (turn, seq) WHERE turn IS NOT NULL;
CREATE INDEX ledger_event ON ledger (event, seq);

CREATE TABLE ledger_payload (
    seq INTEGER PRIMARY KEY REFERENCES ledger (seq),
    salt BLOB NOT NULL,
    payload TEXT NOT NULL
) STRICT;

CREATE TABLE ledger_erasure (
    seq INTEGER PRIMARY KEY REFERENCES ledger (seq),
    at INTEGER NOT NULL,
    signature BLOB NOT NULL
) STRICT;

CREATE TABLE ledger_node (
    level INTEGER NOT NULL CHECK (level > 0),
    idx INTEGER NOT NULL CHECK (idx >= 0),
    hash BLOB NOT NULL,
    PRIMARY KEY (level, idx)
) STRICT, WITHOUT ROWID;

CREATE TABLE ledger_head (
    size INTEGER PRIMARY KEY CHECK (size > 0),
    root BLOB NOT NULL,
    note TEXT NOT NULL
) STRICT;

CREATE TABLE ledger_key (
    public_key BLOB PRIMARY KEY,
    from_size INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TRIGGER ledger_no_update BEFORE UPDATE ON ledger
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER ledger_no_delete BEFORE DELETE ON ledger
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER ledger_payload_no_update BEFORE UPDATE ON ledger_payload
BEGIN SELECT RAISE(ABORT, 'payloads are erased, never changed'); END;

-- Attempts that were begun, and what came of them.
CREATE TABLE intent (
    attempt TEXT PRIMARY KEY,
    entry INTEGER NOT NULL REFERENCES ledger (seq),
    closed_by INTEGER REFERENCES ledger (seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX intent_open ON intent (entry) WHERE closed_by IS NULL;

CREATE TABLE reservation (
    attempt TEXT PRIMARY KEY REFERENCES intent (attempt),
    session TEXT,
    day TEXT NOT NULL,
    tokens INTEGER NOT NULL,
    cost INTEGER NOT NULL,
    tool_calls INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Sessions and their projections.
CREATE TABLE session (
    id TEXT PRIMARY KEY,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    project TEXT,
    metadata TEXT NOT NULL,
    turn_number INTEGER NOT NULL DEFAULT 0,
    frame_seq INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE INDEX session_updated ON session (updated_at);

CREATE TABLE turn (
    id TEXT PRIMARY KEY,
    session TEXT NOT NULL REFERENCES session (id),
    number INTEGER NOT NULL,
    message TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at INTEGER,
    state TEXT NOT NULL,
    events INTEGER NOT NULL DEFAULT 0,
    UNIQUE (session, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX turn_open ON turn (started_at) WHERE ended_at IS NULL;

CREATE TABLE turn_event (
    turn TEXT NOT NULL REFERENCES turn (id),
    n INTEGER NOT NULL,
    event TEXT NOT NULL,
    PRIMARY KEY (turn, n)
) STRICT, WITHOUT ROWID;

CREATE TABLE frame (
    session TEXT NOT NULL REFERENCES session (id),
    seq INTEGER NOT NULL,
    frame TEXT NOT NULL,
    PRIMARY KEY (session, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE chronicle (
    n INTEGER PRIMARY KEY,
    session TEXT NOT NULL REFERENCES session (id),
    turn TEXT,
    turn_number INTEGER NOT NULL,
    at INTEGER NOT NULL,
    entry INTEGER REFERENCES ledger (seq),
    message TEXT NOT NULL
) STRICT;
CREATE INDEX chronicle_session ON chronicle (session, n);
CREATE TRIGGER chronicle_no_update BEFORE UPDATE ON chronicle
BEGIN SELECT RAISE(ABORT, 'the chronicle is append-only'); END;
CREATE TRIGGER chronicle_no_delete BEFORE DELETE ON chronicle
BEGIN SELECT RAISE(ABORT, 'the chronicle is append-only'); END;

-- Totals: kind is 'session' with its id, or 'day' with its UTC date.
CREATE TABLE usage (
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    input INTEGER NOT NULL DEFAULT 0,
    output INTEGER NOT NULL DEFAULT 0,
    cache_read INTEGER NOT NULL DEFAULT 0,
    cache_write INTEGER NOT NULL DEFAULT 0,
    cost INTEGER NOT NULL DEFAULT 0,
    tool_calls INTEGER NOT NULL DEFAULT 0,
    model_calls INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (kind, key)
) STRICT, WITHOUT ROWID;

-- The queue.
CREATE TABLE message (
    n INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    session TEXT NOT NULL REFERENCES session (id),
    client_id TEXT NOT NULL,
    entry INTEGER NOT NULL REFERENCES ledger (seq),
    record TEXT NOT NULL,
    text TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('ready', 'leased', 'acked', 'dead')),
    not_before INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    fence INTEGER NOT NULL DEFAULT 0,
    owner TEXT NOT NULL DEFAULT '',
    lease_until INTEGER NOT NULL DEFAULT 0,
    absorbed_by TEXT,
    error TEXT NOT NULL DEFAULT '',
    UNIQUE (session, client_id)
) STRICT;
CREATE INDEX message_live ON message (session, n) WHERE state IN ('ready', 'leased');
CREATE INDEX message_ready ON message (n) WHERE state = 'ready';
CREATE INDEX message_leased ON message (lease_until) WHERE state = 'leased';
CREATE INDEX message_dead ON message (n) WHERE state = 'dead';

-- Asks, approvals and what guards them.
CREATE TABLE ask (
    id TEXT PRIMARY KEY,
    session TEXT,
    prepared_hash TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('open', 'approved', 'denied', 'expired', 'used')),
    card TEXT NOT NULL,
    prepared TEXT NOT NULL,
    asked_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    resolved_at INTEGER,
    resolved_by TEXT NOT NULL DEFAULT '',
    reason TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE UNIQUE INDEX ask_open ON ask (prepared_hash) WHERE state = 'open';
CREATE INDEX ask_state ON ask (state, asked_at);

CREATE TABLE approval (
    ask TEXT PRIMARY KEY REFERENCES ask (id),
    prepared_hash TEXT NOT NULL,
    nonce TEXT NOT NULL UNIQUE,
    token TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    executions_used INTEGER NOT NULL DEFAULT 0 CHECK (executions_used IN (0, 1)),
    revoked INTEGER NOT NULL DEFAULT 0 CHECK (revoked IN (0, 1))
) STRICT, WITHOUT ROWID;

CREATE TABLE nonce (
    namespace TEXT NOT NULL,
    nonce TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (namespace, nonce)
) STRICT, WITHOUT ROWID;
CREATE INDEX nonce_expiry ON nonce (expires_at);

CREATE TABLE counter (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE revocation (
    id TEXT PRIMARY KEY,
    at INTEGER NOT NULL,
    expires_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE approver_key (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    label TEXT NOT NULL,
    public_key BLOB NOT NULL UNIQUE,
    enrolled_at INTEGER NOT NULL,
    revoked_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE setting (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Memory.
CREATE TABLE memory (
    n INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    session TEXT,
    kind TEXT NOT NULL,
    trust TEXT NOT NULL,
    taint TEXT NOT NULL,
    at INTEGER NOT NULL,
    entry INTEGER REFERENCES ledger (seq),
    text TEXT NOT NULL,
    CHECK (taint <> 'external' OR trust = 'working')
) STRICT;
CREATE INDEX memory_kind ON memory (kind, n);

CREATE VIRTUAL TABLE memory_fts USING fts5 (text, content = 'memory', content_rowid = 'n', tokenize = 'porter unicode61');
-- What is forgotten leaves the index too, not only its answers.
INSERT INTO memory_fts (memory_fts, rank) VALUES ('secure-delete', 1);
CREATE TRIGGER memory_insert AFTER INSERT ON memory
BEGIN INSERT INTO memory_fts (rowid, text) VALUES (new.n, new.text); END;
CREATE TRIGGER memory_delete AFTER DELETE ON memory
BEGIN INSERT INTO memory_fts (memory_fts, rowid, text) VALUES ('delete', old.n, old.text); END;
CREATE TRIGGER memory_update BEFORE UPDATE ON memory
BEGIN SELECT RAISE(ABORT, 'memories are forgotten, never changed'); END;
