-- What operations of the security proxy have used of the limits of a day, by key or task.
CREATE TABLE used_limit (
    counter TEXT NOT NULL,
    day TEXT NOT NULL,
    operation TEXT NOT NULL,
    parameter TEXT NOT NULL,
    used INTEGER NOT NULL CHECK (used >= 0),
    PRIMARY KEY (counter, day, operation, parameter)
) STRICT, WITHOUT ROWID;
CREATE INDEX used_limit_day ON used_limit (day);

-- Requests that are performed once, by their names, and the sealed answers that repetitions get.
CREATE TABLE once (
    scope TEXT NOT NULL,
    name TEXT NOT NULL,
    request BLOB NOT NULL,
    attempt TEXT NOT NULL,
    at INTEGER NOT NULL,
    answer BLOB,
    PRIMARY KEY (scope, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX once_at ON once (at);
CREATE UNIQUE INDEX once_attempt ON once (attempt);

-- Cases of customers, by their tokens. The names of both are sealed.
CREATE TABLE proxy_case (
    token TEXT PRIMARY KEY,
    customer_token TEXT NOT NULL,
    tenant TEXT NOT NULL,
    sealed BLOB NOT NULL,
    opened_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The personal data behind the tokens of a case, sealed. It goes with its case.
CREATE TABLE sealed_value (
    case_token TEXT NOT NULL REFERENCES proxy_case (token) ON DELETE CASCADE,
    token TEXT NOT NULL,
    kind TEXT NOT NULL,
    sealed BLOB NOT NULL,
    PRIMARY KEY (case_token, token)
) STRICT, WITHOUT ROWID;
