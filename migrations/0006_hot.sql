-- 0006_hot.sql - schema version 6: what has changed since the scheduler last looked, and which jobs are
-- next, each from a small table or index instead of from all live jobs (docs/decisions/0011).

CREATE TABLE hot_change (
    xid       xid8   NOT NULL DEFAULT pg_current_xact_id(),
    kind      text   NOT NULL CHECK (kind IN ('job', 'queue', 'version', 'array', 'tenant', 'model')),
    id        bigint NOT NULL,
    tenant_id bigint,
    was       text,
    now       text
);
ALTER TABLE hot_change SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX hot_change_xid ON hot_change (xid);
COMMENT ON TABLE hot_change IS
    'what the leading scheduler has to read again; written by triggers, deleted by it once every '
    'transaction that is older has ended and was read';
COMMENT ON COLUMN hot_change.xid IS
    'of the transaction that made the change: what a snapshot has seen is told by it, whenever it commits';
COMMENT ON COLUMN hot_change.id IS 'of the job, queue, version or array; 0 for tenants and models: all of them';
COMMENT ON COLUMN hot_change.was IS 'state of the job before, NULL: it is new; now: after, NULL: it is gone';

-- One statement for all rows of an INSERT: arrays and batches come in thousands.
CREATE FUNCTION hot_job_new() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO hot_change (kind, id, tenant_id, now) SELECT 'job', id, tenant_id, state FROM added
        WHERE state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'EXPIRED');
    RETURN NULL;
END $$;
CREATE FUNCTION hot_job_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO hot_change (kind, id, tenant_id, was, now)
        VALUES ('job', new.id, new.tenant_id, old.state, new.state);
    RETURN NULL;
END $$;
CREATE FUNCTION hot_job_gone() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO hot_change (kind, id, tenant_id, was) VALUES ('job', old.id, old.tenant_id, old.state);
    RETURN NULL;
END $$;
CREATE FUNCTION hot_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO hot_change (kind, id) VALUES (tg_argv[0], new.id);
    RETURN NULL;
END $$;
CREATE FUNCTION hot_table() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO hot_change (kind, id) VALUES (tg_argv[0], 0);
    RETURN NULL;
END $$;

-- Progress, losses and reasons are not what the scheduler reads: it wrote them.
CREATE TRIGGER hot_job_new AFTER INSERT ON job REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION hot_job_new();
CREATE TRIGGER hot_job_changed AFTER UPDATE ON job FOR EACH ROW
    WHEN ((old.state, old.queue_id, old.priority, old.attempt, old.max_attempts, old.executor, old.wish,
           old.save_asked, old.save_done, old.deadline, old.min_runtime_ms, old.preemptible,
           old.not_before, old.queued_at)
        IS DISTINCT FROM
          (new.state, new.queue_id, new.priority, new.attempt, new.max_attempts, new.executor, new.wish,
           new.save_asked, new.save_done, new.deadline, new.min_runtime_ms, new.preemptible,
           new.not_before, new.queued_at))
    EXECUTE FUNCTION hot_job_changed();
CREATE TRIGGER hot_job_gone AFTER DELETE ON job FOR EACH ROW
    WHEN (old.state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'EXPIRED'))
    EXECUTE FUNCTION hot_job_gone();
CREATE TRIGGER hot_queue AFTER UPDATE ON queue FOR EACH ROW EXECUTE FUNCTION hot_row('queue');
CREATE TRIGGER hot_version AFTER UPDATE ON model_version FOR EACH ROW
    WHEN (old.state IS DISTINCT FROM new.state) EXECUTE FUNCTION hot_row('version');
CREATE TRIGGER hot_array AFTER UPDATE ON job_array FOR EACH ROW
    WHEN (old.max_parallel IS DISTINCT FROM new.max_parallel) EXECUTE FUNCTION hot_row('array');
CREATE TRIGGER hot_tenant AFTER INSERT OR UPDATE OR DELETE ON tenant
    FOR EACH STATEMENT EXECUTE FUNCTION hot_table('tenant');
CREATE TRIGGER hot_quota AFTER INSERT OR UPDATE OR DELETE ON quota
    FOR EACH STATEMENT EXECUTE FUNCTION hot_table('tenant');
CREATE TRIGGER hot_model AFTER INSERT OR UPDATE OR DELETE ON model
    FOR EACH STATEMENT EXECUTE FUNCTION hot_table('model');
CREATE TRIGGER hot_model_version AFTER INSERT OR UPDATE OR DELETE ON model_version
    FOR EACH STATEMENT EXECUTE FUNCTION hot_table('model');
CREATE TRIGGER hot_slo AFTER INSERT OR UPDATE OR DELETE ON slo
    FOR EACH STATEMENT EXECUTE FUNCTION hot_table('model');

-- The waiting jobs of one line in their order. A job that failed and waits for its next attempt is
-- outside of its line: it must not stand in the way of those behind it.
CREATE INDEX job_line ON job (tenant_id, queue_id, version_id, kind, preemptible, (coalesce(array_id, 0)),
        (-priority), queued_at, id)
    WHERE state = 'QUEUED' AND not_before IS NULL;
-- What an executor has, and what waits for its next attempt.
CREATE INDEX job_busy ON job (id)
    WHERE state IN ('STARTING', 'RUNNING', 'PREEMPTED', 'COMPLETING', 'CANCELLING')
        OR (state = 'QUEUED' AND not_before IS NOT NULL);
CREATE INDEX job_deadline ON job (deadline)
    WHERE deadline IS NOT NULL AND state IN ('QUEUED', 'HELD', 'SUSPENDED');
CREATE INDEX job_deadline_left ON job (id)
    WHERE deadline IS NOT NULL AND state IN ('QUEUED', 'HELD', 'SUSPENDED') AND started_at IS NOT NULL;
-- To count them; the order that this index had is that of job_line now.
DROP INDEX job_live;
CREATE INDEX job_live ON job (tenant_id, state)
    WHERE state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'EXPIRED');
