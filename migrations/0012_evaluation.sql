-- 0012_evaluation.sql - schema version 12: what the evaluations between a training job's steps said.

ALTER TABLE job ADD COLUMN evaluation jsonb;
COMMENT ON COLUMN job.evaluation IS
    'the newest evaluation between two steps, and which was best; NULL: there was none';
