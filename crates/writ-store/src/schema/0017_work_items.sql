-- Work items: what was planned and approved, and how far it has come. What a state means is the engine's affair;
-- `version` counts the changes of state.
CREATE TABLE work_item (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    title TEXT NOT NULL,
    session TEXT NOT NULL,
    origin TEXT,
    goal TEXT,
    project TEXT,
    state TEXT NOT NULL,
    is_active INTEGER NOT NULL CHECK (is_active IN (0, 1)),
    version INTEGER NOT NULL CHECK (version >= 0),
    reason TEXT NOT NULL,
    document TEXT NOT NULL,
    ask TEXT,
    round INTEGER NOT NULL CHECK (round >= 0),
    consultations INTEGER NOT NULL CHECK (consultations >= 0),
    report TEXT NOT NULL,
    max_tokens INTEGER,
    max_cost INTEGER,
    created_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX work_item_active ON work_item (created_at) WHERE is_active = 1;
CREATE INDEX work_item_session ON work_item (session);
CREATE INDEX work_item_name ON work_item (name);

-- The steps of an item, in the order of its plan.
CREATE TABLE work_step (
    item TEXT NOT NULL REFERENCES work_item (id) ON DELETE CASCADE,
    n INTEGER NOT NULL CHECK (n >= 0),
    name TEXT NOT NULL,
    title TEXT NOT NULL,
    after TEXT NOT NULL,
    has_executor INTEGER NOT NULL CHECK (has_executor IN (0, 1)),
    max_attempts INTEGER NOT NULL CHECK (max_attempts >= 1),
    advice TEXT NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (item, n)
) STRICT, WITHOUT ROWID;

-- The attempts at a step: one message of the queue, one turn, one verdict. The index of messages is the last wall: a
-- message is the work of one attempt.
CREATE TABLE work_attempt (
    item TEXT NOT NULL,
    step INTEGER NOT NULL,
    n INTEGER NOT NULL CHECK (n >= 1),
    message TEXT,
    state TEXT NOT NULL CHECK (state IN ('running', 'ended', 'judged')),
    began_at INTEGER NOT NULL,
    ended_at INTEGER,
    exit INTEGER,
    said TEXT NOT NULL,
    verdict TEXT NOT NULL,
    trace TEXT NOT NULL,
    evidence TEXT NOT NULL,
    PRIMARY KEY (item, step, n),
    FOREIGN KEY (item, step) REFERENCES work_step (item, n) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX work_attempt_message ON work_attempt (message) WHERE message IS NOT NULL;
