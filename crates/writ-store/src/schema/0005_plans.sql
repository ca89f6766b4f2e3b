-- Approved plans: the task key that the approval of one has minted, and until when it is good. The plan itself is what its
-- ask would perform; what was signed is the approval of that ask.
CREATE TABLE plan (
    ask TEXT PRIMARY KEY REFERENCES ask (id),
    session TEXT NOT NULL,
    key TEXT NOT NULL UNIQUE,
    token TEXT NOT NULL,
    begins_at INTEGER NOT NULL,
    ends_at INTEGER NOT NULL,
    cost_before INTEGER NOT NULL,
    max_cost INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX plan_session ON plan (session, ends_at);

-- How often each step was done; each use is one row's step, by compare-and-swap.
CREATE TABLE plan_step (
    ask TEXT NOT NULL REFERENCES plan (ask),
    step INTEGER NOT NULL CHECK (step >= 0),
    max_uses INTEGER NOT NULL CHECK (max_uses >= 1),
    uses INTEGER NOT NULL DEFAULT 0 CHECK (uses BETWEEN 0 AND max_uses),
    PRIMARY KEY (ask, step)
) STRICT, WITHOUT ROWID;
