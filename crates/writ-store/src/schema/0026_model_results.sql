-- The choice of a model before each attempt of an agent at a unit, and how the attempt was rated afterwards.

CREATE TABLE unit_choice (
    n INTEGER PRIMARY KEY,
    project TEXT NOT NULL,
    unit TEXT NOT NULL,
    run TEXT NOT NULL,
    phase TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    score_milli INTEGER NOT NULL CHECK (score_milli BETWEEN 0 AND 1000),
    is_raised INTEGER NOT NULL CHECK (is_raised IN (0, 1)),
    tier TEXT NOT NULL,
    model TEXT NOT NULL,
    at INTEGER NOT NULL,
    FOREIGN KEY (project, unit) REFERENCES unit (project, id)
) STRICT;
CREATE INDEX unit_choice_unit ON unit_choice (project, unit, n);
CREATE INDEX unit_choice_run ON unit_choice (run);

CREATE TABLE model_result (
    n INTEGER PRIMARY KEY,
    project TEXT NOT NULL,
    unit TEXT NOT NULL,
    run TEXT NOT NULL,
    model TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    rating TEXT NOT NULL CHECK (rating IN ('over', 'ok', 'under')),
    is_human INTEGER NOT NULL CHECK (is_human IN (0, 1)),
    took_ms INTEGER NOT NULL CHECK (took_ms >= 0),
    cost_micro_usd INTEGER NOT NULL CHECK (cost_micro_usd >= 0),
    at INTEGER NOT NULL
) STRICT;
CREATE INDEX model_result_class ON model_result (project, fingerprint, n);
