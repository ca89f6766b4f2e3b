-- Compactions of conversations: what stands for the history up to a row. The history itself is never changed.
CREATE TABLE compaction (
    session TEXT NOT NULL REFERENCES session (id),
    number INTEGER NOT NULL,
    at INTEGER NOT NULL,
    upto INTEGER NOT NULL,
    summary TEXT NOT NULL,
    label TEXT NOT NULL,
    written_by TEXT NOT NULL,
    kept TEXT NOT NULL,
    messages INTEGER NOT NULL,
    tokens_before INTEGER NOT NULL,
    tokens_after INTEGER NOT NULL,
    remembered INTEGER NOT NULL,
    reason TEXT NOT NULL,
    entry INTEGER REFERENCES ledger (seq),
    PRIMARY KEY (session, number)
) STRICT, WITHOUT ROWID;
-- Whether the model may read it: it was only too long to be shown whole.
ALTER TABLE kept_result ADD COLUMN readable INTEGER NOT NULL DEFAULT 0;
-- The totals of the months so far.
INSERT INTO usage (kind, key, input, output, cache_read, cache_write, cost, tool_calls, model_calls)
SELECT 'month', substr(key, 1, 7), sum(input), sum(output), sum(cache_read), sum(cache_write), sum(cost),
       sum(tool_calls), sum(model_calls)
FROM usage WHERE kind = 'day' GROUP BY substr(key, 1, 7);
