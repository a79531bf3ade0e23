-- 0010_usage.sql - schema version 10: usage comes in numbered batches of those who counted it.

CREATE TABLE usage_source (
    source text        PRIMARY KEY CHECK (source ~ '^[0-9a-f]{1,32}$'),
    number bigint      NOT NULL,
    at     timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE usage_source IS
    'ledgers of executors (executor/ledger.h): the newest batch that was counted; one said again changes nothing';

-- No reference: it would wait for who has the row of the job.
CREATE TABLE usage_job (
    job_id bigint PRIMARY KEY,
    step   bigint NOT NULL
);
COMMENT ON TABLE usage_job IS 'steps of a job whose samples are counted in usage; goes with the job';

ALTER TABLE lease DROP COLUMN usage_seq;
