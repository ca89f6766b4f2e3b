-- The keyed hash of the customer, the same in all of its cases; empty: the security proxy has named none.
ALTER TABLE fleet_case ADD COLUMN fingerprint TEXT NOT NULL DEFAULT '';
-- The security proxy still has the case. A case may end here while the proxy is away, and is closed there later.
ALTER TABLE fleet_case ADD COLUMN at_proxy INTEGER NOT NULL DEFAULT 1 CHECK (at_proxy IN (0, 1));
CREATE INDEX fleet_case_at_proxy ON fleet_case (changed_at) WHERE is_open = 0 AND at_proxy = 1;
