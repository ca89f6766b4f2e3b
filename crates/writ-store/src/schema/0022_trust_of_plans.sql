-- The trust of what the plan of a work item rests on, in the engine's words. Plans of then were labelled as external where an
-- agent had written them.
ALTER TABLE work_item ADD COLUMN taint TEXT NOT NULL DEFAULT 'external';
UPDATE work_item SET taint = 'owner' WHERE origin IS NULL;
