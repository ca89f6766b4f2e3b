-- Cases of the fleet's router. What a state means is the router's affair; `version` counts its changes.
CREATE TABLE fleet_case (
    id TEXT PRIMARY KEY,
    case_token TEXT NOT NULL,
    customer_token TEXT NOT NULL,
    capability TEXT NOT NULL,
    is_open INTEGER NOT NULL CHECK (is_open IN (0, 1)),
    version INTEGER NOT NULL CHECK (version >= 0),
    state TEXT NOT NULL,
    opened_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX fleet_case_open ON fleet_case (case_token) WHERE is_open = 1;
CREATE INDEX fleet_case_changed ON fleet_case (changed_at) WHERE is_open = 0;

-- Who held a case from when until when. The index is the last wall: a case cannot have two holders.
CREATE TABLE fleet_holder (
    case_id TEXT NOT NULL REFERENCES fleet_case (id) ON DELETE CASCADE,
    n INTEGER NOT NULL,
    holder TEXT NOT NULL,
    key TEXT,
    key_ends INTEGER,
    base_hash TEXT,
    task_hash TEXT,
    since INTEGER NOT NULL,
    until INTEGER,
    PRIMARY KEY (case_id, n)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX fleet_holder_one ON fleet_holder (case_id) WHERE until IS NULL;

-- The conversation of a case.
CREATE TABLE fleet_message (
    case_id TEXT NOT NULL REFERENCES fleet_case (id) ON DELETE CASCADE,
    n INTEGER NOT NULL,
    sender TEXT NOT NULL,
    text TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (case_id, n)
) STRICT, WITHOUT ROWID;
