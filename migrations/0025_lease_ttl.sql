-- 0025_lease_ttl.sql - schema version 25: for how long the lease was taken or renewed. One that ends
-- later than that from now was renewed before the server's clock was stepped back.

ALTER TABLE lease ADD COLUMN ttl_ms bigint NOT NULL DEFAULT 600000;
COMMENT ON COLUMN lease.ttl_ms IS 'for how long its holder last took or renewed it';
