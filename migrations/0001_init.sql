-- 0001_init.sql - schema version 1: tenants, keys, quotas, models, SLOs, datasets, queues, jobs,
-- events, checkpoints, usage, audit, the leader's lease.
--
-- Applied by common/db_migrate.c in one transaction under an advisory lock, which also
-- records the number and the file's SHA-256. Forward only; never edit a file that has run anywhere.
-- Every table that a client may change has row_version (its ETag), raised by the writer.

CREATE TABLE tenant (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text        NOT NULL UNIQUE CHECK (name ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    state       text        NOT NULL DEFAULT 'ACTIVE' CHECK (state IN ('ACTIVE', 'SUSPENDED', 'DELETED')),
    created_at  timestamptz NOT NULL DEFAULT now(),
    row_version bigint      NOT NULL DEFAULT 1
);
COMMENT ON TABLE tenant IS 'who owns models, jobs, keys and a quota';

CREATE TABLE quota (
    tenant_id               bigint PRIMARY KEY REFERENCES tenant (id),
    guaranteed_gpus         double precision NOT NULL DEFAULT 0 CHECK (guaranteed_gpus >= 0),
    max_gpus                double precision CHECK (max_gpus >= 0),
    over_quota_weight       double precision NOT NULL DEFAULT 1 CHECK (over_quota_weight >= 0),
    borrowing_limit         double precision CHECK (borrowing_limit >= 0),
    lending_limit           double precision CHECK (lending_limit >= 0),
    gpu_memory_min_bytes    bigint NOT NULL DEFAULT 0 CHECK (gpu_memory_min_bytes >= 0),
    gpu_memory_share        double precision NOT NULL DEFAULT 1 CHECK (gpu_memory_share >= 0),
    gpu_memory_max_bytes    bigint CHECK (gpu_memory_max_bytes > 0),
    max_running_jobs        integer NOT NULL DEFAULT 16 CHECK (max_running_jobs >= 0),
    max_queued_jobs         integer NOT NULL DEFAULT 1000 CHECK (max_queued_jobs >= 0),
    max_concurrent_requests integer NOT NULL DEFAULT 256 CHECK (max_concurrent_requests >= 0),
    requests_per_second     double precision CHECK (requests_per_second > 0),
    burst                   integer CHECK (burst > 0),
    max_storage_bytes       bigint NOT NULL DEFAULT 107374182400 CHECK (max_storage_bytes >= 0),
    row_version             bigint NOT NULL DEFAULT 1
);
COMMENT ON TABLE quota IS 'limits of a tenant; NULL means unlimited; one row per tenant';

CREATE TABLE api_key (
    id         text PRIMARY KEY CHECK (id ~ '^[a-z0-9]{12}$'),
    tenant_id  bigint REFERENCES tenant (id),
    name       text        NOT NULL CHECK (length(name) BETWEEN 1 AND 64),
    role       text        NOT NULL CHECK (role IN ('admin', 'tenant-admin', 'submit', 'infer', 'read')),
    hash       bytea       NOT NULL CHECK (length(hash) = 32),
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    revoked_at timestamptz,
    CHECK ((role = 'admin') = (tenant_id IS NULL))
);
COMMENT ON TABLE api_key IS 'a key is shunt_<id>_<secret>; only the SHA-256 of the secret is stored';
CREATE INDEX api_key_tenant ON api_key (tenant_id);

CREATE TABLE model (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id   bigint      NOT NULL REFERENCES tenant (id),
    name        text        NOT NULL CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$'),
    visibility  text        NOT NULL DEFAULT 'private' CHECK (visibility IN ('private', 'shared')),
    created_at  timestamptz NOT NULL DEFAULT now(),
    deleted_at  timestamptz,
    row_version bigint      NOT NULL DEFAULT 1
);
CREATE UNIQUE INDEX model_name ON model (tenant_id, name) WHERE deleted_at IS NULL;
COMMENT ON TABLE model IS 'a name for versions';

CREATE TABLE model_version (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    model_id    bigint      NOT NULL REFERENCES model (id),
    version     integer     NOT NULL CHECK (version > 0),
    state       text        NOT NULL DEFAULT 'UPLOADING'
        CHECK (state IN ('UPLOADING', 'REGISTERED', 'LOADING', 'READY', 'FAILED', 'DELETED')),
    reason_code text,
    reason      text,
    digest      text CHECK (digest ~ '^[0-9a-f]{64}$'),
    bytes       bigint,
    package     text,
    inputs      jsonb       NOT NULL DEFAULT '[]',
    outputs     jsonb       NOT NULL DEFAULT '[]',
    meta        jsonb       NOT NULL DEFAULT '{}',
    max_batch   integer     NOT NULL DEFAULT 8 CHECK (max_batch BETWEEN 1 AND 1024),
    precision   text        NOT NULL DEFAULT 'fp32' CHECK (precision IN ('fp32', 'tf32', 'fp16', 'bf16')),
    image_bytes bigint,
    profile     jsonb       NOT NULL DEFAULT '[]',
    source_job  bigint,
    created_at  timestamptz NOT NULL DEFAULT now(),
    ready_at    timestamptz,
    row_version bigint      NOT NULL DEFAULT 1,
    UNIQUE (model_id, version),
    CHECK (state IN ('UPLOADING', 'FAILED', 'DELETED') OR (digest IS NOT NULL AND package IS NOT NULL))
);
CREATE INDEX model_version_live ON model_version (state) WHERE state IN ('REGISTERED', 'LOADING', 'READY');
COMMENT ON TABLE model_version IS
    'UPLOADING -> REGISTERED (imported) -> LOADING -> READY (an executor holds it, every worker is warm); FAILED says why';
COMMENT ON COLUMN model_version.package IS 'folder relative to the blob root: packages/<digest>';

CREATE TABLE slo (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    model_id    bigint           NOT NULL UNIQUE REFERENCES model (id),
    latency_ms  double precision NOT NULL CHECK (latency_ms > 0),
    percentile  double precision NOT NULL DEFAULT 99 CHECK (percentile > 0 AND percentile < 100),
    priority    integer          NOT NULL DEFAULT 0 CHECK (priority BETWEEN 0 AND 100),
    on_miss     text             NOT NULL DEFAULT 'best-effort' CHECK (on_miss IN ('reject', 'delay', 'best-effort')),
    created_at  timestamptz      NOT NULL DEFAULT now(),
    row_version bigint           NOT NULL DEFAULT 1
);
COMMENT ON TABLE slo IS 'latency target of a model and what to do when it cannot be met';

CREATE TABLE dataset (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id   bigint      NOT NULL REFERENCES tenant (id),
    name        text        NOT NULL CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$'),
    state       text        NOT NULL DEFAULT 'UPLOADING' CHECK (state IN ('UPLOADING', 'READY', 'DELETED')),
    digest      text CHECK (digest ~ '^[0-9a-f]{64}$'),
    bytes       bigint,
    path        text,
    tensors     jsonb       NOT NULL DEFAULT '[]',
    n_samples   bigint,
    created_at  timestamptz NOT NULL DEFAULT now(),
    row_version bigint      NOT NULL DEFAULT 1,
    CHECK (state <> 'READY' OR (digest IS NOT NULL AND path IS NOT NULL AND n_samples > 0))
);
CREATE UNIQUE INDEX dataset_name ON dataset (tenant_id, name) WHERE state <> 'DELETED';
COMMENT ON TABLE dataset IS 'a safetensors file whose tensors share axis 0, the samples';

CREATE TABLE queue (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id   bigint REFERENCES tenant (id),
    name        text    NOT NULL CHECK (name ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    state       text    NOT NULL DEFAULT 'OPEN' CHECK (state IN ('OPEN', 'HELD', 'DRAINING')),
    priority    integer NOT NULL DEFAULT 0,
    row_version bigint  NOT NULL DEFAULT 1
);
CREATE UNIQUE INDEX queue_name ON queue (coalesce(tenant_id, 0), name);
COMMENT ON TABLE queue IS 'tenant_id NULL: open to every tenant';
INSERT INTO queue (name) VALUES ('default');

CREATE TABLE job (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id       bigint      NOT NULL REFERENCES tenant (id),
    queue_id        bigint      NOT NULL REFERENCES queue (id),
    kind            text        NOT NULL CHECK (kind IN ('training', 'batch_inference')),
    name            text        NOT NULL DEFAULT '' CHECK (length(name) <= 128),
    state           text        NOT NULL DEFAULT 'QUEUED'
        CHECK (state IN ('QUEUED', 'HELD', 'STARTING', 'RUNNING', 'PREEMPTED', 'SUSPENDED', 'COMPLETING',
                         'CANCELLING', 'SUCCEEDED', 'FAILED', 'CANCELLED', 'EXPIRED')),
    reason          text        NOT NULL DEFAULT '',
    priority        integer     NOT NULL DEFAULT 0 CHECK (priority BETWEEN -1000 AND 1000),
    version_id      bigint      NOT NULL REFERENCES model_version (id),
    dataset_id      bigint      NOT NULL REFERENCES dataset (id),
    eval_dataset_id bigint REFERENCES dataset (id),
    spec            jsonb       NOT NULL,
    client_token    text CHECK (length(client_token) BETWEEN 1 AND 255),
    attempt         integer     NOT NULL DEFAULT 0,
    max_attempts    integer     NOT NULL DEFAULT 5 CHECK (max_attempts BETWEEN 1 AND 100),
    executor        text,
    epoch           bigint      NOT NULL DEFAULT 0,
    step            bigint      NOT NULL DEFAULT 0,
    steps           bigint      NOT NULL DEFAULT 0,
    loss            double precision,
    samples_per_s   double precision,
    steps_redone    bigint      NOT NULL DEFAULT 0,
    preemptions     bigint      NOT NULL DEFAULT 0,
    busy_ns         bigint      NOT NULL DEFAULT 0,
    base_redone      bigint     NOT NULL DEFAULT 0,
    base_preemptions bigint     NOT NULL DEFAULT 0,
    base_busy_ns     bigint     NOT NULL DEFAULT 0,
    result          jsonb,
    result_version_id bigint REFERENCES model_version (id),
    error_code      text,
    error           text,
    created_at      timestamptz NOT NULL DEFAULT now(),
    started_at      timestamptz,
    finished_at     timestamptz,
    row_version     bigint      NOT NULL DEFAULT 1,
    CHECK ((finished_at IS NOT NULL) = (state IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'EXPIRED')))
);
CREATE UNIQUE INDEX job_token ON job (tenant_id, client_token) WHERE client_token IS NOT NULL;
CREATE INDEX job_live ON job (state, priority DESC, id)
    WHERE state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'EXPIRED');
CREATE INDEX job_tenant ON job (tenant_id, id DESC);
COMMENT ON TABLE job IS 'durable work; every change of state is one job_event in the same transaction';
COMMENT ON COLUMN job.epoch IS 'lease epoch of the scheduler that last wrote; older ones are refused';
COMMENT ON COLUMN job.base_busy_ns IS
    'base_*: totals when the present start began; an executor counts from its JOB_START';
COMMENT ON COLUMN job.reason IS 'reason code: why it waits, or why it ended';

CREATE TABLE job_event (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id     bigint      NOT NULL REFERENCES job (id),
    at         timestamptz NOT NULL DEFAULT now(),
    from_state text,
    to_state   text        NOT NULL,
    reason     text        NOT NULL DEFAULT '',
    detail     jsonb       NOT NULL DEFAULT '{}'
);
CREATE INDEX job_event_job ON job_event (job_id, id);
COMMENT ON TABLE job_event IS 'append only';

CREATE TABLE checkpoint (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id     bigint      NOT NULL REFERENCES job (id),
    attempt    integer     NOT NULL,
    step       bigint      NOT NULL,
    path       text        NOT NULL,
    digest     text        NOT NULL,
    bytes      bigint      NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (job_id, attempt, step)
);
COMMENT ON TABLE checkpoint IS 'complete checkpoints on disk (safetensors), newest step wins';

CREATE TABLE usage (
    tenant_id bigint      NOT NULL REFERENCES tenant (id),
    model_id  bigint      NOT NULL REFERENCES model (id),
    class     text        NOT NULL CHECK (class IN ('inference', 'training')),
    minute    timestamptz NOT NULL,
    gpu_ns    bigint      NOT NULL DEFAULT 0,
    requests  bigint      NOT NULL DEFAULT 0,
    samples   bigint      NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, model_id, class, minute)
);
COMMENT ON TABLE usage IS 'device time by tenant, model and class; added to in batches';

CREATE TABLE audit (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT now(),
    key_id     text,
    tenant_id  bigint,
    request_id text        NOT NULL,
    action     text        NOT NULL,
    resource   text        NOT NULL,
    before     jsonb,
    after      jsonb
);
COMMENT ON TABLE audit IS 'append only: who changed what; no secrets';

CREATE TABLE lease (
    name       text PRIMARY KEY,
    holder     text        NOT NULL,
    epoch      bigint      NOT NULL,
    expires_at timestamptz NOT NULL,
    usage_seq  bigint      NOT NULL DEFAULT 0
);
COMMENT ON COLUMN lease.usage_seq IS
    'number of the last usage flush of this epoch: one repeated after a lost COMMIT adds nothing';
COMMENT ON TABLE lease IS 'row ''scheduler'': its holder leads; epoch grows with every change of holder';

CREATE TABLE executor (
    name       text PRIMARY KEY,
    host_id    text        NOT NULL,
    device     text        NOT NULL,
    pool_bytes bigint      NOT NULL,
    data_addr  text        NOT NULL,
    state      text        NOT NULL CHECK (state IN ('UP', 'DOWN')),
    epoch      bigint      NOT NULL,
    seen_at    timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE executor IS 'written by the leader, for people to read';
