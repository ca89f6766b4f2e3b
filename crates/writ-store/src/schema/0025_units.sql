-- The autopilot's sessions, units, runs and what holds them up. Every row belongs to a project, named by its folder.

CREATE TABLE pilot_session (
    id TEXT PRIMARY KEY,
    project TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('idle', 'running', 'paused', 'interrupted', 'complete', 'failed')),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX pilot_session_project ON pilot_session (project, updated_at);

-- The texts of workflows that units were begun with, by the SHA-256 of the text.
CREATE TABLE workflow_pin (
    hash TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    content TEXT NOT NULL,
    pinned_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- A unit is never deleted. `fence` grows with each claim, so that a worker whose claim has ended writes nothing more.
-- `open_blockers` counts the units that are not over and that this one waits for: the ready set is read by an index.
CREATE TABLE unit (
    project TEXT NOT NULL,
    id TEXT NOT NULL,
    session TEXT NOT NULL REFERENCES pilot_session (id),
    parent TEXT,
    kind TEXT NOT NULL CHECK (kind IN ('milestone', 'slice', 'task')),
    title TEXT NOT NULL,
    description TEXT NOT NULL,
    metadata TEXT NOT NULL,
    workflow TEXT NOT NULL,
    workflow_hash TEXT NOT NULL,
    phase TEXT NOT NULL CHECK (phase IN ('research', 'plan', 'execute', 'tdd', 'verify', 'review', 'merge', 'complete',
                                         'reassess', 'uat')),
    phase_status TEXT NOT NULL CHECK (phase_status IN ('pending', 'running', 'succeeded', 'failed', 'canceled', 'interrupted')),
    attempt INTEGER NOT NULL DEFAULT 1 CHECK (attempt >= 1),
    is_over INTEGER NOT NULL DEFAULT 0 CHECK (is_over IN (0, 1)),
    open_blockers INTEGER NOT NULL DEFAULT 0 CHECK (open_blockers >= 0),
    fence INTEGER NOT NULL DEFAULT 0 CHECK (fence >= 0),
    claim_holder TEXT,
    claim_until INTEGER,
    not_before INTEGER NOT NULL DEFAULT 0,
    priority INTEGER CHECK (priority BETWEEN 1 AND 4),
    worker_host TEXT NOT NULL DEFAULT 'local',
    workspace TEXT,
    archived_at INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (project, id),
    FOREIGN KEY (project, parent) REFERENCES unit (project, id),
    CHECK ((claim_holder IS NULL) = (claim_until IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX unit_parent ON unit (project, parent);
CREATE INDEX unit_ready ON unit (project, coalesce(priority, 5), created_at, id)
    WHERE is_over = 0 AND open_blockers = 0 AND claim_holder IS NULL AND archived_at IS NULL;
CREATE INDEX unit_claimed ON unit (claim_until) WHERE claim_holder IS NOT NULL;

CREATE TABLE unit_blocker (
    project TEXT NOT NULL,
    unit TEXT NOT NULL,
    blocked_by TEXT NOT NULL,
    PRIMARY KEY (project, unit, blocked_by),
    FOREIGN KEY (project, unit) REFERENCES unit (project, id) ON DELETE CASCADE,
    FOREIGN KEY (project, blocked_by) REFERENCES unit (project, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
CREATE INDEX unit_blocker_by ON unit_blocker (project, blocked_by);

CREATE TABLE unit_transition (
    n INTEGER PRIMARY KEY,
    project TEXT NOT NULL,
    unit TEXT NOT NULL,
    from_phase TEXT NOT NULL,
    to_phase TEXT NOT NULL,
    reason TEXT NOT NULL,
    at INTEGER NOT NULL,
    FOREIGN KEY (project, unit) REFERENCES unit (project, id)
) STRICT;
CREATE INDEX unit_transition_unit ON unit_transition (project, unit, n);

-- One row for each execution by a worker. `unit_snap` and `agent_snap` say whose it was, also when the row of the unit is
-- gone: `unit` is empty then.
CREATE TABLE unit_run (
    id TEXT PRIMARY KEY,
    project TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('unit_attempt', 'agent_run')),
    unit TEXT,
    unit_snap TEXT,
    agent_snap TEXT,
    attempt INTEGER CHECK (attempt >= 1),
    phase TEXT NOT NULL,
    worker_host TEXT NOT NULL,
    workspace TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at INTEGER,
    outcome TEXT CHECK (outcome IN ('success', 'failure', 'abandoned', 'canceled', 'interrupted', 'unit_timeout', 'turn_timeout',
                                    'stalled')),
    error_code TEXT NOT NULL DEFAULT '',
    input_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    cost_micro_usd INTEGER NOT NULL DEFAULT 0,
    CHECK ((outcome IS NULL) = (ended_at IS NULL)),
    CHECK (CASE kind
        WHEN 'unit_attempt' THEN unit_snap IS NOT NULL AND attempt IS NOT NULL AND agent_snap IS NULL
        ELSE agent_snap IS NOT NULL AND unit_snap IS NULL AND unit IS NULL AND attempt IS NULL END)
) STRICT, WITHOUT ROWID;
CREATE INDEX unit_run_unit ON unit_run (project, unit_snap, attempt);
CREATE INDEX unit_run_open ON unit_run (project, unit_snap) WHERE ended_at IS NULL;
-- Units are deleted by hand alone. The runs stay.
CREATE TRIGGER unit_run_outlives BEFORE DELETE ON unit BEGIN
    UPDATE unit_run SET unit = NULL WHERE project = old.project AND unit = old.id;
END;

CREATE TABLE unit_gate (
    n INTEGER PRIMARY KEY,
    project TEXT NOT NULL,
    unit TEXT NOT NULL,
    gate TEXT NOT NULL,
    passed INTEGER NOT NULL CHECK (passed IN (0, 1)),
    attempt INTEGER NOT NULL,
    max_retries INTEGER NOT NULL,
    output TEXT NOT NULL,
    duration_ms INTEGER NOT NULL,
    at INTEGER NOT NULL,
    FOREIGN KEY (project, unit) REFERENCES unit (project, id)
) STRICT;
CREATE INDEX unit_gate_unit ON unit_gate (project, unit, n);

CREATE TABLE unit_counter (
    project TEXT NOT NULL,
    unit TEXT NOT NULL,
    name TEXT NOT NULL,
    value INTEGER NOT NULL CHECK (value >= 0),
    PRIMARY KEY (project, unit, name),
    FOREIGN KEY (project, unit) REFERENCES unit (project, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- What holds a session up until a person or the engine acts.
CREATE TABLE pilot_blocker (
    id TEXT PRIMARY KEY,
    session TEXT NOT NULL REFERENCES pilot_session (id),
    event TEXT NOT NULL CHECK (event IN ('GateBlocked', 'MergeConflict', 'Paused', 'UATPending')),
    unit TEXT NOT NULL,
    detail TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    resolved_at INTEGER,
    resolved_by TEXT,
    CHECK ((resolved_at IS NULL) = (resolved_by IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX pilot_blocker_open ON pilot_blocker (session) WHERE resolved_at IS NULL;
