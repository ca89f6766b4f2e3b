-- An attempt of which the turn has ended while a person or a limit is waited for: it is gone on with, and counts as one.
ALTER TABLE work_attempt ADD COLUMN is_held INTEGER NOT NULL DEFAULT 0 CHECK (is_held IN (0, 1));
ALTER TABLE work_attempt ADD COLUMN holds INTEGER NOT NULL DEFAULT 0 CHECK (holds >= 0);
-- How many executors work, over all items.
CREATE INDEX work_attempt_running ON work_attempt (item) WHERE state = 'running';
CREATE INDEX work_item_goal ON work_item (goal) WHERE goal IS NOT NULL AND is_active = 1;
