-- 0003_models.sql - schema version 3: versions that are unloaded or pinned; where versions stand and how fast they
-- run; how latency targets were met.

ALTER TABLE model_version DROP CONSTRAINT model_version_state_check;
ALTER TABLE model_version ADD CONSTRAINT model_version_state_check
    CHECK (state IN ('UPLOADING', 'REGISTERED', 'LOADING', 'READY', 'UNLOADING', 'UNLOADED',
                     'FAILED', 'DELETED'));
ALTER TABLE model_version ADD COLUMN pinned boolean NOT NULL DEFAULT false;
ALTER TABLE model_version ADD CONSTRAINT model_version_pinned_check
    CHECK (NOT pinned OR state IN ('REGISTERED', 'LOADING', 'READY', 'FAILED'));
DROP INDEX model_version_live;
CREATE INDEX model_version_live ON model_version (state)
    WHERE state IN ('REGISTERED', 'LOADING', 'READY', 'UNLOADING');
COMMENT ON TABLE model_version IS
    'UPLOADING -> REGISTERED (imported) -> LOADING -> READY (an executor holds it, every worker is warm) '
    '-> UNLOADING (asked for) -> UNLOADED (no executor holds it) -> REGISTERED (asked for); FAILED says why';
COMMENT ON COLUMN model_version.pinned IS
    'its image goes last from device memory; bounded when it is set (api/store_load.c)';

CREATE TABLE placement (
    version_id   bigint      NOT NULL REFERENCES model_version (id),
    executor     text        NOT NULL,
    state        text        NOT NULL CHECK (state IN ('LOADING', 'READY', 'UNLOADING', 'FAILED')),
    pin          text        NOT NULL DEFAULT 'none' CHECK (pin IN ('none', 'held', 'waiting')),
    device_bytes bigint      NOT NULL DEFAULT 0,
    host_bytes   bigint      NOT NULL DEFAULT 0,
    last_use_at  timestamptz,
    at           timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (version_id, executor)
);
COMMENT ON TABLE placement IS
    'a version on an executor; written by the leader, changes of a second at a time, for people to read';

CREATE TABLE measured (
    version_id   bigint      NOT NULL REFERENCES model_version (id),
    batch        integer     NOT NULL CHECK (batch BETWEEN 1 AND 1024),
    predicted_ns bigint      NOT NULL,
    source       text        NOT NULL CHECK (source IN ('runs', 'profile', 'guess')),
    runs         bigint      NOT NULL,
    recent       integer     NOT NULL,
    p50_ns       bigint,
    p99_ns       bigint,
    at           timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (version_id, batch)
);
COMMENT ON TABLE measured IS
    'how long runs of a version take by batch, and what the scheduler predicts; written by the leader';

CREATE TABLE slo_minute (
    model_id bigint      NOT NULL REFERENCES model (id),
    minute   timestamptz NOT NULL,
    api      bigint      NOT NULL,
    met      bigint      NOT NULL,
    missed   bigint      NOT NULL,
    rejected bigint      NOT NULL,
    bucket   smallint[]  NOT NULL,
    count    bigint[]    NOT NULL,
    PRIMARY KEY (model_id, minute, api)
);
CREATE INDEX slo_minute_age ON slo_minute (minute);
COMMENT ON TABLE slo_minute IS
    'requests of a model with a latency target in one minute, as one API process (api: its random number) '
    'counted them: whole rows are written anew, so that a repeated write counts nothing twice';
COMMENT ON COLUMN slo_minute.bucket IS
    'latencies of answered requests: numbers of buckets of api/slo_count.h, and how many in each';
