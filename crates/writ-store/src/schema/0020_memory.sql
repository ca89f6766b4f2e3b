-- What is so of a memory besides its text; shares in thousandths, since no column holds a broken number.
ALTER TABLE memory ADD COLUMN status TEXT NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'pending', 'archived'));
ALTER TABLE memory ADD COLUMN source TEXT NOT NULL DEFAULT 'agent' CHECK (source IN ('user', 'observer', 'agent', 'import'));
ALTER TABLE memory ADD COLUMN importance INTEGER NOT NULL DEFAULT 500 CHECK (importance BETWEEN 0 AND 1000);
ALTER TABLE memory ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0 CHECK (pinned IN (0, 1));
ALTER TABLE memory ADD COLUMN happened INTEGER;
ALTER TABLE memory ADD COLUMN uses INTEGER NOT NULL DEFAULT 0;
ALTER TABLE memory ADD COLUMN used_at INTEGER;
ALTER TABLE memory ADD COLUMN edits INTEGER NOT NULL DEFAULT 0;
ALTER TABLE memory ADD COLUMN entity_refs TEXT NOT NULL DEFAULT '[]' CHECK (json_type(entity_refs) = 'array');
ALTER TABLE memory ADD COLUMN causal_refs TEXT NOT NULL DEFAULT '[]' CHECK (json_type(causal_refs) = 'array');
CREATE INDEX memory_at ON memory (at);
CREATE INDEX memory_happened ON memory (happened) WHERE happened IS NOT NULL;
CREATE INDEX memory_waiting ON memory (status, n) WHERE status <> 'active';

-- The references of memories, by what they refer to.
CREATE TABLE memory_entity (entity TEXT NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (entity, n)) STRICT, WITHOUT ROWID;
CREATE INDEX memory_entity_n ON memory_entity (n);
CREATE TABLE memory_cause (cause TEXT NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (cause, n)) STRICT, WITHOUT ROWID;
CREATE INDEX memory_cause_n ON memory_cause (n);

-- Vectors, by model and dimension. A key is space * 2^40 + n, so that those of one space lie together and rows are found
-- without another index.
CREATE TABLE memory_space (
    id INTEGER PRIMARY KEY,
    model TEXT NOT NULL,
    dimension INTEGER NOT NULL,
    serving INTEGER NOT NULL DEFAULT 0 CHECK (serving IN (0, 1)),
    -- Every memory up to here was looked at.
    done_to INTEGER NOT NULL DEFAULT 0,
    UNIQUE (model, dimension)
) STRICT;
CREATE TABLE memory_code (key INTEGER PRIMARY KEY, code BLOB NOT NULL) STRICT;
CREATE TABLE memory_vector (key INTEGER PRIMARY KEY, vector BLOB NOT NULL) STRICT;
-- Memories that have changed since they were embedded.
CREATE TABLE memory_todo (n INTEGER PRIMARY KEY) STRICT;

-- Questions to the owner about memories.
CREATE TABLE memory_question (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('promote', 'contradiction', 'preference')),
    n INTEGER NOT NULL,
    other INTEGER NOT NULL DEFAULT 0,
    at INTEGER NOT NULL,
    reason TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'confirmed', 'dismissed')),
    UNIQUE (kind, n, other)
) STRICT;
CREATE INDEX memory_question_open ON memory_question (id) WHERE state = 'open';

-- The state before each change, so that it can be undone.
CREATE TABLE memory_change (
    id INTEGER PRIMARY KEY,
    batch TEXT NOT NULL,
    n INTEGER NOT NULL,
    at INTEGER NOT NULL,
    before TEXT NOT NULL,
    undone INTEGER NOT NULL DEFAULT 0 CHECK (undone IN (0, 1))
) STRICT;
CREATE INDEX memory_change_batch ON memory_change (batch);
CREATE INDEX memory_change_n ON memory_change (n);

DROP TRIGGER memory_insert;
DROP TRIGGER memory_delete;
DROP TRIGGER memory_update;
CREATE TRIGGER memory_insert AFTER INSERT ON memory
BEGIN
    INSERT INTO memory_fts (rowid, text) VALUES (new.n, new.text);
    INSERT INTO memory_terms (rowid, terms) VALUES (new.n, new.terms);
    INSERT OR IGNORE INTO memory_entity SELECT value, new.n FROM json_each(new.entity_refs);
    INSERT OR IGNORE INTO memory_cause SELECT value, new.n FROM json_each(new.causal_refs);
END;
CREATE TRIGGER memory_delete AFTER DELETE ON memory
BEGIN
    INSERT INTO memory_fts (memory_fts, rowid, text) VALUES ('delete', old.n, old.text);
    INSERT INTO memory_terms (memory_terms, rowid, terms) VALUES ('delete', old.n, old.terms);
    DELETE FROM memory_entity WHERE n = old.n;
    DELETE FROM memory_cause WHERE n = old.n;
    DELETE FROM memory_code WHERE key IN (SELECT id * 1099511627776 + old.n FROM memory_space);
    DELETE FROM memory_vector WHERE key IN (SELECT id * 1099511627776 + old.n FROM memory_space);
    DELETE FROM memory_todo WHERE n = old.n;
    DELETE FROM memory_question WHERE n = old.n OR other = old.n;
    DELETE FROM memory_change WHERE n = old.n;
END;
CREATE TRIGGER memory_fixed BEFORE UPDATE OF n, id, session, at, entry, secret ON memory
BEGIN SELECT RAISE(ABORT, 'this of a memory never changes'); END;
CREATE TRIGGER memory_edit AFTER UPDATE OF text, terms ON memory
BEGIN
    INSERT INTO memory_fts (memory_fts, rowid, text) VALUES ('delete', old.n, old.text);
    INSERT INTO memory_terms (memory_terms, rowid, terms) VALUES ('delete', old.n, old.terms);
    INSERT INTO memory_fts (rowid, text) VALUES (new.n, new.text);
    INSERT INTO memory_terms (rowid, terms) VALUES (new.n, new.terms);
END;
CREATE TRIGGER memory_stale AFTER UPDATE OF text, status ON memory
BEGIN
    DELETE FROM memory_code WHERE key IN (SELECT id * 1099511627776 + old.n FROM memory_space);
    DELETE FROM memory_vector WHERE key IN (SELECT id * 1099511627776 + old.n FROM memory_space);
    INSERT OR IGNORE INTO memory_todo SELECT new.n WHERE EXISTS (SELECT 1 FROM memory_space);
END;
CREATE TRIGGER memory_refer AFTER UPDATE OF entity_refs, causal_refs ON memory
BEGIN
    DELETE FROM memory_entity WHERE n = old.n;
    DELETE FROM memory_cause WHERE n = old.n;
    INSERT OR IGNORE INTO memory_entity SELECT value, new.n FROM json_each(new.entity_refs);
    INSERT OR IGNORE INTO memory_cause SELECT value, new.n FROM json_each(new.causal_refs);
END;
