-- The domains of work items, as a list in JSON.
ALTER TABLE work_item ADD COLUMN domains TEXT NOT NULL DEFAULT '[]';
