-- Words keep `_` and `-`; what the tokenizer of words cannot find is in a column of search terms with an index of its own.
DROP TRIGGER memory_insert;
DROP TRIGGER memory_delete;
DROP TRIGGER memory_update;
DROP TABLE memory_fts;
ALTER TABLE memory ADD COLUMN terms TEXT NOT NULL DEFAULT '';
UPDATE memory SET terms = search_terms(text);

CREATE VIRTUAL TABLE memory_fts USING fts5 (text, content = 'memory', content_rowid = 'n',
    tokenize = "porter unicode61 tokenchars '_-'");
CREATE VIRTUAL TABLE memory_terms USING fts5 (terms, content = 'memory', content_rowid = 'n',
    tokenize = "porter unicode61 categories 'L* N* M* Co'");
INSERT INTO memory_fts (memory_fts) VALUES ('rebuild');
INSERT INTO memory_terms (memory_terms) VALUES ('rebuild');
-- What is forgotten leaves the indexes too, not only their answers.
INSERT INTO memory_fts (memory_fts, rank) VALUES ('secure-delete', 1);
INSERT INTO memory_terms (memory_terms, rank) VALUES ('secure-delete', 1);
CREATE TRIGGER memory_insert AFTER INSERT ON memory
BEGIN
    INSERT INTO memory_fts (rowid, text) VALUES (new.n, new.text);
    INSERT INTO memory_terms (rowid, terms) VALUES (new.n, new.terms);
END;
CREATE TRIGGER memory_delete AFTER DELETE ON memory
BEGIN
    INSERT INTO memory_fts (memory_fts, rowid, text) VALUES ('delete', old.n, old.text);
    INSERT INTO memory_terms (memory_terms, rowid, terms) VALUES ('delete', old.n, old.terms);
END;
CREATE TRIGGER memory_update BEFORE UPDATE ON memory
BEGIN SELECT RAISE(ABORT, 'memories are forgotten, never changed'); END;
