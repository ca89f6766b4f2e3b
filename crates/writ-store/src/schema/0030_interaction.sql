-- What a turn is about, and how it deals with its person.
ALTER TABLE turn ADD COLUMN interaction_register TEXT NOT NULL DEFAULT 'exploration'
    CHECK (interaction_register IN ('exploration', 'execution', 'review', 'status'));
ALTER TABLE turn ADD COLUMN interaction_mode TEXT NOT NULL DEFAULT 'default_and_offer'
    CHECK (interaction_mode IN ('default_and_offer', 'act_and_report', 'confirm_only_when_required'));
