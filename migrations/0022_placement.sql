-- The number of a job's start, larger than that of each start before it. It goes with JOB_START and
-- BATCH_START, and says whose the job's folder is (executor/files/claim.h): an executor that was
-- stopped meanwhile must not replace what a later start has published. In microseconds of the
-- database's clock, so that it grows even behind a backup that was put back.

ALTER TABLE job ADD COLUMN placement bigint NOT NULL DEFAULT 0;
