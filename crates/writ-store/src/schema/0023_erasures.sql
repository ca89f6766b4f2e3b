-- Sessions that were erased before summaries, files, episodes and asks were: they are gone through once more.
UPDATE session SET metadata = json_set(json_remove(metadata, '$.erased_at'), '$.erasing_at',
                                       json_extract(metadata, '$.erased_at'))
WHERE json_extract(metadata, '$.erased_at') IS NOT NULL;
CREATE INDEX session_deleted ON session (json_extract(metadata, '$.deleted_at'))
WHERE json_extract(metadata, '$.deleted_at') IS NOT NULL;
