-- The circuits of models that have failed in a row, and the runs of a project's hooks.

CREATE TABLE circuit_breaker (
    project TEXT NOT NULL,
    model TEXT NOT NULL,
    tier TEXT NOT NULL,
    tripped_at INTEGER,
    resets_at INTEGER CHECK ((resets_at IS NULL) = (tripped_at IS NULL)),
    failed_at INTEGER NOT NULL,
    fail_count INTEGER NOT NULL DEFAULT 3 CHECK (fail_count > 0),
    reason TEXT NOT NULL,
    PRIMARY KEY (project, model)
) STRICT;

CREATE TABLE unit_hook_run (
    n INTEGER PRIMARY KEY,
    project TEXT NOT NULL,
    unit TEXT NOT NULL,
    attempt INTEGER NOT NULL CHECK (attempt >= 0),
    hook TEXT NOT NULL,
    script TEXT NOT NULL,
    outcome TEXT NOT NULL CHECK (outcome IN ('passed', 'blocked', 'failed', 'timed_out', 'not_run')),
    reason TEXT NOT NULL,
    output TEXT NOT NULL,
    began_at INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    FOREIGN KEY (project, unit) REFERENCES unit (project, id)
) STRICT;
CREATE INDEX unit_hook_run_unit ON unit_hook_run (project, unit, n);
