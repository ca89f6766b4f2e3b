-- The number of a forgotten memory is used again, so a new memory can lie below what was looked at already.
DROP TRIGGER memory_insert;
CREATE TRIGGER memory_insert AFTER INSERT ON memory
BEGIN
    INSERT INTO memory_fts (rowid, text) VALUES (new.n, new.text);
    INSERT INTO memory_terms (rowid, terms) VALUES (new.n, new.terms);
    INSERT OR IGNORE INTO memory_entity SELECT value, new.n FROM json_each(new.entity_refs);
    INSERT OR IGNORE INTO memory_cause SELECT value, new.n FROM json_each(new.causal_refs);
    INSERT OR IGNORE INTO memory_todo SELECT new.n WHERE EXISTS (SELECT 1 FROM memory_space WHERE done_to >= new.n);
END;
-- Memories that were passed over for that reason are looked at again.
INSERT OR IGNORE INTO memory_todo
SELECT m.n FROM memory m JOIN memory_space s ON m.n <= s.done_to
WHERE m.status = 'active' AND NOT EXISTS (SELECT 1 FROM memory_code WHERE key = s.id * 1099511627776 + m.n);
CREATE INDEX memory_change_undone ON memory_change (n) WHERE undone = 1;
