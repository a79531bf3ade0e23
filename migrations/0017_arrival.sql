-- 0017_arrival.sql - schema version 17: what a what-if question about requests rests on: which came
-- when, and what the scheduler has learnt of runs (docs/simulate.md).

CREATE TABLE arrival (
    at       timestamptz      PRIMARY KEY,
    seconds  double precision NOT NULL,
    requests bigint           NOT NULL,
    rows     json             NOT NULL
);
COMMENT ON TABLE arrival IS
    'requests that came in some ten seconds from at on (scheduler/peers/arrivals.h): of 24 hours, and 256 MiB '
    'at most; written by the leader';

ALTER TABLE measured ADD COLUMN learnt jsonb NOT NULL DEFAULT '{}';
COMMENT ON COLUMN measured.learnt IS
    'times: of recent runs, ns, the fastest first; with the batch of 1 also cold: by how much runs that waited for '
    'weights took longer than they should have, and factors of the scheduler/decide/predict.h of that version';
