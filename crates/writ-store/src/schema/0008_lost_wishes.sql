-- What was begun, and nobody knows whether it was done: the same wish of the same session is asked about.
CREATE TABLE lost (
    session TEXT NOT NULL,
    wish BLOB NOT NULL,
    entry INTEGER NOT NULL REFERENCES ledger (seq),
    PRIMARY KEY (session, wish)
) STRICT, WITHOUT ROWID;
