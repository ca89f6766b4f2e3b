-- Hosts are trusted by approvals that say so: few among many, and looked for at each connection.
CREATE INDEX approval_host ON approval (ask) WHERE revoked = 0 AND json_extract(token, '$.claims.host') IS NOT NULL;
