-- The runs of tools that other programs offer: how often, how well and how long, for the review of tools.

CREATE TABLE tool_runs (
    tool TEXT PRIMARY KEY,
    first_seen INTEGER NOT NULL,
    last_run INTEGER,
    runs INTEGER NOT NULL DEFAULT 0 CHECK (runs >= 0),
    failures INTEGER NOT NULL DEFAULT 0 CHECK (failures BETWEEN 0 AND runs),
    total_ms INTEGER NOT NULL DEFAULT 0 CHECK (total_ms >= 0)
) STRICT;
