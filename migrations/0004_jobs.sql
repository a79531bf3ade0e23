-- 0004_jobs.sql - schema version 4: control of jobs. What a client asks of a job that an executor
-- has, labels, deadlines, protection from other jobs, back-off that outlives a scheduler, and the
-- answers that Idempotency-Key repeats.

ALTER TABLE job
    ADD COLUMN wish           text        NOT NULL DEFAULT '' CHECK (wish IN ('', 'SUSPEND', 'REQUEUE')),
    ADD COLUMN save_asked     bigint      NOT NULL DEFAULT 0,
    ADD COLUMN save_done      bigint      NOT NULL DEFAULT 0,
    ADD COLUMN labels         jsonb       NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(labels) = 'object'),
    ADD COLUMN deadline       timestamptz,
    ADD COLUMN min_runtime_ms bigint      NOT NULL DEFAULT 0 CHECK (min_runtime_ms >= 0),
    ADD COLUMN preemptible    boolean     NOT NULL DEFAULT true,
    ADD COLUMN not_before     timestamptz,
    ADD COLUMN queued_at      timestamptz NOT NULL DEFAULT now();
UPDATE job SET queued_at = created_at;
COMMENT ON COLUMN job.wish IS
    'what the executor that has the job shall be told; no executor has it any more: always empty';
COMMENT ON COLUMN job.save_asked IS
    'checkpoints asked for so far (API); save_done: those of them that are answered (scheduler)';
COMMENT ON COLUMN job.min_runtime_ms IS '0: the scheduler''s --min-run-ms';
COMMENT ON COLUMN job.not_before IS 'while QUEUED after a failure: end of the back-off';
COMMENT ON COLUMN job.queued_at IS 'place among equals of the queue; a requeued job goes to the end';
CREATE INDEX job_labels ON job USING gin (labels jsonb_path_ops);

-- Whoever writes and whatever was read before: what has ended stays as it ended.
CREATE FUNCTION job_final_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'job % is % and cannot become %', old.id, old.state, new.state
        USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER job_final_stays BEFORE UPDATE OF state ON job FOR EACH ROW
    WHEN (old.state IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'EXPIRED') AND new.state <> old.state)
    EXECUTE FUNCTION job_final_stays();

CREATE TABLE idempotency_key (
    tenant_id   bigint      NOT NULL REFERENCES tenant (id),
    key         text        NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
    fingerprint text        NOT NULL CHECK (fingerprint ~ '^[0-9a-f]{64}$'),
    response    jsonb       NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    expires_at  timestamptz NOT NULL DEFAULT now() + interval '24 hours',
    PRIMARY KEY (tenant_id, key)
);
CREATE INDEX idempotency_key_expiry ON idempotency_key (expires_at);
COMMENT ON TABLE idempotency_key IS
    'the first answer to a request with this Idempotency-Key; written with what the request made';
COMMENT ON COLUMN idempotency_key.fingerprint IS 'SHA-256 of method, path and body';
