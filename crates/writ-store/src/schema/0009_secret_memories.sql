-- A memory that rests on what the owner has called secret is told to models that are cleared for secrets alone.
ALTER TABLE memory ADD COLUMN secret INTEGER NOT NULL DEFAULT 0 CHECK (secret IN (0, 1));
