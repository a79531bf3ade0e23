-- 0016_gpus.sql - schema version 16: how many GPUs a job has at once (scheduler/decide/decide.h).

ALTER TABLE job ADD COLUMN gpus int NOT NULL DEFAULT 1 CHECK (gpus >= 1);
COMMENT ON COLUMN job.gpus IS 'GPUs that it has at once: it starts when all are there, and is stopped as one';

-- It may hold back a job of its line and not those that ask for fewer.
DROP INDEX job_line;
CREATE INDEX job_line ON job (tenant_id, queue_id, version_id, kind, preemptible, gpus, (coalesce(array_id, 0)),
        (-priority), (queued_at AT TIME ZONE 'UTC' + handicap_us * interval '1 us'), id)
    WHERE state = 'QUEUED' AND not_before IS NULL;
