-- 0002_tenancy.sql - schema version 2: keys whose secret changes, queues that end, what the scheduler
-- makes of quotas, and indexes for reading and ending histories.

ALTER TABLE api_key
    ADD COLUMN old_hash     bytea CHECK (length(old_hash) = 32),
    ADD COLUMN old_until    timestamptz,
    ADD COLUMN rotated_at   timestamptz,
    ADD COLUMN last_used_at timestamptz,
    ADD CHECK ((old_hash IS NULL) = (old_until IS NULL));
COMMENT ON COLUMN api_key.old_hash IS 'of the secret before the last rotation; counts until old_until';
COMMENT ON COLUMN api_key.last_used_at IS 'written now and then, by every API process; some seconds late';

ALTER TABLE queue
    ADD COLUMN created_at timestamptz NOT NULL DEFAULT now(),
    ADD COLUMN deleted_at timestamptz,
    ADD CHECK (deleted_at IS NULL OR state = 'DRAINING');
DROP INDEX queue_name;
CREATE UNIQUE INDEX queue_name ON queue (coalesce(tenant_id, 0), name) WHERE deleted_at IS NULL;
COMMENT ON COLUMN queue.deleted_at IS 'the row stays for the jobs that were in it';
CREATE INDEX job_queue ON job (queue_id)
    WHERE state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'EXPIRED');

CREATE TABLE tenant_share (
    tenant_id        bigint PRIMARY KEY REFERENCES tenant (id),
    at               timestamptz      NOT NULL DEFAULT now(),
    epoch            bigint           NOT NULL,
    guaranteed_gpus  double precision NOT NULL,
    max_gpus         double precision,
    weight           double precision NOT NULL,
    running_gpus     double precision NOT NULL,
    waiting_gpus     double precision NOT NULL,
    fair_gpus        double precision NOT NULL,
    reserved_gpus    double precision NOT NULL,
    usage_ns         double precision NOT NULL,
    half_life_s      double precision NOT NULL
);
COMMENT ON TABLE tenant_share IS
    'what the leading scheduler last decided by, for tenants that have or had work; written by it, for people';

-- Filters of the audit's list, and the ends of histories (scheduler/sweep.h).
CREATE INDEX audit_tenant ON audit (tenant_id, id);
CREATE INDEX audit_key ON audit (key_id, id);
CREATE INDEX audit_at ON audit (at);
CREATE INDEX usage_minute ON usage (minute);
-- What is not added up to hours yet: rows of another minute than an hour's first.
CREATE INDEX usage_minutes ON usage (minute)
    WHERE extract(epoch FROM minute - timestamptz '1970-01-01 00:00:00+00')::bigint % 3600 <> 0;
CREATE INDEX usage_tenant ON usage (tenant_id, minute);
CREATE INDEX job_event_at ON job_event (at);
CREATE INDEX job_finished ON job (finished_at) WHERE finished_at IS NOT NULL;
