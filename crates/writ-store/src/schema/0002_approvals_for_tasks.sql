-- An approval may cover what is alike, some times; each use is still one row's step, by compare-and-swap.
ALTER TABLE approval RENAME TO approval_once;
CREATE TABLE approval (
    ask TEXT PRIMARY KEY REFERENCES ask (id),
    prepared_hash TEXT NOT NULL,
    nonce TEXT NOT NULL UNIQUE,
    token TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    pattern TEXT,
    max_uses INTEGER NOT NULL DEFAULT 1 CHECK (max_uses >= 1 AND (max_uses = 1 OR pattern IS NOT NULL)),
    executions_used INTEGER NOT NULL DEFAULT 0 CHECK (executions_used BETWEEN 0 AND max_uses),
    revoked INTEGER NOT NULL DEFAULT 0 CHECK (revoked IN (0, 1))
) STRICT, WITHOUT ROWID;
INSERT INTO approval (ask, prepared_hash, nonce, token, expires_at, executions_used, revoked)
    SELECT ask, prepared_hash, nonce, token, expires_at, executions_used, revoked FROM approval_once;
DROP TABLE approval_once;
CREATE INDEX approval_pattern ON approval (pattern, expires_at) WHERE pattern IS NOT NULL;

-- What can be taken back: the way back, until when one tap is enough, and whether it was gone.
CREATE TABLE undo (
    attempt TEXT PRIMARY KEY,
    session TEXT NOT NULL REFERENCES session (id),
    at INTEGER NOT NULL,
    until INTEGER NOT NULL,
    way TEXT NOT NULL,
    undone_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX undo_session ON undo (session, at);
CREATE INDEX undo_at ON undo (at);
