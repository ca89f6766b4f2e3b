-- Results that models do not read, by their number in their session. They end with it.
CREATE TABLE kept_result (
    session TEXT NOT NULL REFERENCES session (id),
    number INTEGER NOT NULL,
    at INTEGER NOT NULL,
    tool TEXT NOT NULL,
    text TEXT NOT NULL,
    fields TEXT NOT NULL,
    label TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (session, number)
) STRICT, WITHOUT ROWID;
