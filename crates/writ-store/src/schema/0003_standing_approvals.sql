-- A standing approval bounds the sum of what its uses count, in millionths; it outlives its session.
ALTER TABLE approval ADD COLUMN standing INTEGER NOT NULL DEFAULT 0 CHECK (standing IN (0, 1));
ALTER TABLE approval ADD COLUMN total_max INTEGER CHECK (total_max IS NULL OR (total_max > 0 AND standing = 1));
ALTER TABLE approval ADD COLUMN total_used INTEGER NOT NULL DEFAULT 0
    CHECK (total_used >= 0 AND total_used <= coalesce(total_max, 0));

-- Where several people must approve: what each has signed.
CREATE TABLE approval_part (
    ask TEXT NOT NULL REFERENCES ask (id),
    approver TEXT NOT NULL,
    token TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (ask, approver)
) STRICT, WITHOUT ROWID;
