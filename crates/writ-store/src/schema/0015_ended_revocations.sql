-- Revocations of short-lived keys are deleted some time after the keys have ended: each case leaves one for every half hour.
CREATE INDEX revocation_end ON revocation (expires_at) WHERE expires_at IS NOT NULL;
