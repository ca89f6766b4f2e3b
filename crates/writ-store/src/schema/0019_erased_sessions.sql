-- The history of a session is append-only until its owner has deleted the session.
DROP TRIGGER chronicle_no_delete;
CREATE TRIGGER chronicle_no_delete BEFORE DELETE ON chronicle
WHEN NOT EXISTS (SELECT 1 FROM session WHERE id = old.session
                 AND json_extract(metadata, '$.deleted_at') IS NOT NULL)
BEGIN SELECT RAISE(ABORT, 'the chronicle is append-only'); END;
