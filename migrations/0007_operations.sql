-- 0007_operations.sql - schema version 7: what operators need. Events of all jobs in the order of
-- their commits, what executors do, options that change while processes run, and keys of
-- idempotency that belong to no tenant.

-- A number is drawn before its transaction commits: one that is lower may come to light later. Events
-- whose transaction is older than every open one are complete, and (xid, id) is an order in which
-- nothing appears before what was seen.
ALTER TABLE job_event ADD COLUMN xid xid8 NOT NULL DEFAULT pg_current_xact_id();
CREATE INDEX job_event_xid ON job_event (xid, id);
COMMENT ON COLUMN job_event.xid IS
    'transaction that wrote it; the stream of all events goes by (xid, id): api/store_event.c';

ALTER TABLE idempotency_key DROP CONSTRAINT idempotency_key_tenant_id_fkey;
COMMENT ON COLUMN idempotency_key.tenant_id IS '0: of the platform (admin keys, no tenant named)';

ALTER TABLE executor
    ADD COLUMN heard_at timestamptz NOT NULL DEFAULT now(),
    ADD COLUMN workers  integer     NOT NULL DEFAULT 0,
    ADD COLUMN status   jsonb       NOT NULL DEFAULT '{}';
COMMENT ON COLUMN executor.seen_at IS 'when state last changed';
COMMENT ON COLUMN executor.heard_at IS 'last message, some seconds late';
COMMENT ON COLUMN executor.status IS
    'what it does, of the last seconds: memory, link, runs (scheduler/report.c)';

CREATE TABLE config (
    name        text        PRIMARY KEY,
    value       text        NOT NULL,
    changed_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE config IS
    'options of shunt-api that were changed while it runs; stronger than file, environment and command line';
CREATE TABLE config_version (
    one         boolean     PRIMARY KEY DEFAULT true CHECK (one),
    row_version bigint      NOT NULL DEFAULT 1
);
COMMENT ON TABLE config_version IS 'one row: the ETag of all of config, and what changes to it queue at';
INSERT INTO config_version DEFAULT VALUES;
