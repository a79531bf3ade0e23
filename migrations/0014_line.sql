-- 0014_line.sql - schema version 14: a job that has had much device time stands further back in its line
-- (scheduler/decide/lines.h, docs/decisions/0032).

ALTER TABLE job ADD COLUMN handicap_us bigint NOT NULL DEFAULT 0 CHECK (handicap_us >= 0);
COMMENT ON COLUMN job.handicap_us IS
    'it stands in its line as if it had been queued so much later; by the device time that it has had, written when it stops';

-- In UTC, as an index takes nothing that depends on a session's time zone.
DROP INDEX job_line;
CREATE INDEX job_line ON job (tenant_id, queue_id, version_id, kind, preemptible, (coalesce(array_id, 0)),
        (-priority), (queued_at AT TIME ZONE 'UTC' + handicap_us * interval '1 us'), id)
    WHERE state = 'QUEUED' AND not_before IS NULL;
-- Those that may have one: without levels none has (scheduler/database/store_job.c).
CREATE INDEX job_handicap ON job (id) WHERE handicap_us > 0 AND state IN ('QUEUED', 'HELD', 'SUSPENDED');

DROP TRIGGER hot_job_changed ON job;
CREATE TRIGGER hot_job_changed AFTER UPDATE ON job FOR EACH ROW
    WHEN ((old.state, old.queue_id, old.priority, old.attempt, old.max_attempts, old.executor, old.wish,
           old.save_asked, old.save_done, old.deadline, old.min_runtime_ms, old.preemptible,
           old.not_before, old.queued_at, old.handicap_us)
        IS DISTINCT FROM
          (new.state, new.queue_id, new.priority, new.attempt, new.max_attempts, new.executor, new.wish,
           new.save_asked, new.save_done, new.deadline, new.min_runtime_ms, new.preemptible,
           new.not_before, new.queued_at, new.handicap_us))
    EXECUTE FUNCTION hot_job_changed();
