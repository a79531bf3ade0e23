-- 0023_shut.sql - schema version 23: which models an executor does not let in for now.

ALTER TABLE placement ADD COLUMN is_shut boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN placement.is_shut IS
    'its weights would push out those of others: requests with a deadline are refused there unless '
    'all of its weights are, others wait (scheduler/decide/thrash.h)';
