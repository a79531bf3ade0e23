-- 0009_partitions.sql - schema version 9: events, usage and audit in partitions by time, so that what
-- is old goes as a whole (docs/decisions/0015). What there is becomes the first partition of its
-- table as it stands: no row is copied.

-- Numbers go on where they were, also when the newest rows are gone.
SELECT set_config('shunt.event_next', nextval('job_event_id_seq')::text, true),
    set_config('shunt.audit_next', nextval('audit_id_seq')::text, true);

ALTER TABLE job_event RENAME TO job_event_first;
ALTER TABLE job_event_first DROP CONSTRAINT job_event_pkey, ADD PRIMARY KEY (id, at);
ALTER INDEX job_event_job RENAME TO job_event_first_job;
ALTER INDEX job_event_at RENAME TO job_event_first_at;
ALTER INDEX job_event_xid RENAME TO job_event_first_xid;
ALTER TABLE job_event_first ALTER id DROP IDENTITY;
CREATE TABLE job_event (
    id         bigint GENERATED ALWAYS AS IDENTITY,
    job_id     bigint      NOT NULL CONSTRAINT job_event_job_id_fkey REFERENCES job (id),
    at         timestamptz NOT NULL DEFAULT now(),
    from_state text,
    to_state   text        NOT NULL,
    reason     text        NOT NULL DEFAULT '',
    detail     jsonb       NOT NULL DEFAULT '{}',
    xid        xid8        NOT NULL DEFAULT pg_current_xact_id(),
    PRIMARY KEY (id, at)
) PARTITION BY RANGE (at);
CREATE INDEX job_event_job ON job_event (job_id, id);
CREATE INDEX job_event_at ON job_event (at);
CREATE INDEX job_event_xid ON job_event (xid, id);
COMMENT ON TABLE job_event IS 'append only; id grows over all partitions';
COMMENT ON COLUMN job_event.xid IS
    'transaction that wrote it; the stream of all events goes by (xid, id): api/store_event.c';

ALTER TABLE audit RENAME TO audit_first;
ALTER TABLE audit_first DROP CONSTRAINT audit_pkey, ADD PRIMARY KEY (id, at);
ALTER INDEX audit_tenant RENAME TO audit_first_tenant;
ALTER INDEX audit_key RENAME TO audit_first_key;
ALTER INDEX audit_at RENAME TO audit_first_at;
ALTER TABLE audit_first ALTER id DROP IDENTITY;
CREATE TABLE audit (
    id         bigint GENERATED ALWAYS AS IDENTITY,
    at         timestamptz NOT NULL DEFAULT now(),
    key_id     text,
    tenant_id  bigint,
    request_id text        NOT NULL,
    action     text        NOT NULL,
    resource   text        NOT NULL,
    before     jsonb,
    after      jsonb,
    PRIMARY KEY (id, at)
) PARTITION BY RANGE (at);
CREATE INDEX audit_tenant ON audit (tenant_id, id);
CREATE INDEX audit_key ON audit (key_id, id);
CREATE INDEX audit_at ON audit (at);
COMMENT ON TABLE audit IS 'append only: who changed what; no secrets';

ALTER TABLE usage RENAME TO usage_first;
ALTER INDEX usage_pkey RENAME TO usage_first_pkey;
ALTER INDEX usage_minute RENAME TO usage_first_minute;
ALTER INDEX usage_minutes RENAME TO usage_first_minutes;
ALTER INDEX usage_tenant RENAME TO usage_first_tenant;
CREATE TABLE usage (
    tenant_id bigint      NOT NULL CONSTRAINT usage_tenant_id_fkey REFERENCES tenant (id),
    model_id  bigint      NOT NULL CONSTRAINT usage_model_id_fkey REFERENCES model (id),
    class     text        NOT NULL,
    minute    timestamptz NOT NULL,
    gpu_ns    bigint      NOT NULL DEFAULT 0,
    requests  bigint      NOT NULL DEFAULT 0,
    samples   bigint      NOT NULL DEFAULT 0,
    CONSTRAINT usage_class_check CHECK (class IN ('inference', 'training')),
    PRIMARY KEY (tenant_id, model_id, class, minute)
) PARTITION BY RANGE (minute);
CREATE INDEX usage_minute ON usage (minute);
CREATE INDEX usage_minutes ON usage (minute)
    WHERE extract(epoch FROM minute - timestamptz '1970-01-01 00:00:00+00')::bigint % 3600 <> 0;
CREATE INDEX usage_tenant ON usage (tenant_id, minute);
COMMENT ON TABLE usage IS 'device time by tenant, model and class; added to in batches';

-- A write finds its place whatever partitions there are.
CREATE TABLE job_event_default PARTITION OF job_event DEFAULT;
CREATE TABLE audit_default PARTITION OF audit DEFAULT;
CREATE TABLE usage_default PARTITION OF usage DEFAULT;

-- The first partition ends when the leader has long made those that follow.
DO $$
DECLARE
    x record;
BEGIN
    FOR x IN SELECT name, col, (date_trunc(unit, now() AT TIME ZONE 'UTC') + 2 * ('1 ' || unit)::interval)
            AT TIME ZONE 'UTC' AS till
        FROM (VALUES ('job_event', 'at', 'week'), ('audit', 'at', 'month'), ('usage', 'minute', 'month'))
            v (name, col, unit)
    LOOP
        EXECUTE format('WITH d AS (DELETE FROM %I WHERE %I >= %L RETURNING *) INSERT INTO %I OVERRIDING SYSTEM VALUE SELECT * '
            'FROM d',
            x.name || '_first', x.col, x.till, x.name || '_default');
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (MINVALUE) TO (%L)', x.name,
            x.name || '_first', x.till);
    END LOOP;
    PERFORM setval('job_event_id_seq', current_setting('shunt.event_next')::bigint, false),
        setval('audit_id_seq', current_setting('shunt.audit_next')::bigint, false);
END $$;

CREATE VIEW history_partition AS
    SELECT p.relname::text AS parent, c.relname::text AS name, b.bound = 'DEFAULT' AS is_default,
        coalesce(substring(b.bound from 'FROM \(''([^'']+)''\)')::timestamptz, '-infinity') AS lo,
        coalesce(substring(b.bound from 'TO \(''([^'']+)''\)')::timestamptz, 'infinity') AS hi
    FROM pg_inherits i JOIN pg_class p ON p.oid = i.inhparent JOIN pg_class c ON c.oid = i.inhrelid
        CROSS JOIN LATERAL (SELECT pg_get_expr(c.relpartbound, c.oid) AS bound) b
    WHERE p.oid IN ('job_event'::regclass, 'audit'::regclass, 'usage'::regclass);
COMMENT ON VIEW history_partition IS
    'partitions of events, audit and usage: rows with lo <= time < hi; what none of them takes is in the default';

-- Makes the next partition that is missing, of this unit of time and the n_ahead that follow. One
-- for whose time the default has rows already is not made: those rows stay there, and go one by one.
CREATE FUNCTION history_make(parent_ text, unit text, n_ahead integer) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    col      text := CASE parent_ WHEN 'usage' THEN 'minute' ELSE 'at' END;
    step     interval := ('1 ' || unit)::interval;
    name_    text;
    from_    timestamptz;
    till     timestamptz;
    is_taken boolean;
BEGIN
    FOR k IN 0 .. n_ahead LOOP
        from_ := (date_trunc(unit, now() AT TIME ZONE 'UTC') + k * step) AT TIME ZONE 'UTC';
        till := (date_trunc(unit, now() AT TIME ZONE 'UTC') + (k + 1) * step) AT TIME ZONE 'UTC';
        SELECT greatest(from_, max(h.hi)) INTO from_ FROM history_partition h
            WHERE h.parent = parent_ AND NOT h.is_default AND h.lo < till AND h.hi > from_;
        CONTINUE WHEN from_ >= till;
        EXECUTE format('SELECT EXISTS (SELECT FROM %I WHERE %I >= $1 AND %I < $2)', parent_ || '_default',
            col, col) INTO is_taken USING from_, till;
        CONTINUE WHEN is_taken;
        name_ := parent_ || to_char(from_ AT TIME ZONE 'UTC', '_YYYYMMDD');
        -- Attached, not created as a partition: that would wait for all who write.
        EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES)',
            name_, parent_);
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent_, name_,
            from_, till);
        RETURN name_;
    END LOOP;
    RETURN NULL;
END $$;

-- Drops the oldest partition whose time is over since before_. Events of jobs that live on move to
-- the default; a partition that has more of them than most_kept stays.
CREATE FUNCTION history_drop(parent_ text, before_ timestamptz, most_kept integer) RETURNS text
    LANGUAGE plpgsql AS $$
DECLARE
    x    record;
    kept job_event[];
BEGIN
    FOR x IN SELECT h.name, h.hi FROM history_partition h
        WHERE h.parent = parent_ AND NOT h.is_default AND h.hi <= before_ ORDER BY h.hi
    LOOP
        -- Found before the lock is taken: no event comes to this time any more, and no job comes back
        -- to life. The day is for a clock that was set back.
        IF parent_ = 'job_event' THEN
            EXECUTE format('SELECT array_agg(y.e) FROM (SELECT e::job_event AS e FROM job j JOIN %I e ON '
                'e.job_id = j.id WHERE j.created_at < $1 AND j.state NOT IN (''SUCCEEDED'', ''FAILED'', '
                '''CANCELLED'', ''EXPIRED'') LIMIT $2 + 1) y', x.name)
                INTO kept USING x.hi + interval '1 day', most_kept;
            CONTINUE WHEN cardinality(kept) > most_kept;
        END IF;
        EXECUTE format('DROP TABLE %I', x.name);
        INSERT INTO job_event OVERRIDING SYSTEM VALUE SELECT (unnest(kept)).*;
        RETURN x.name;
    END LOOP;
    RETURN NULL;
END $$;

-- One step, in one statement: a leader that stops in the middle of it leaves no lock behind. did:
-- made, dropped, busy (somebody has a lock; nothing was done) or done; no row: the lease is not theirs.
CREATE FUNCTION history_step(holder_ text, epoch_ bigint, parent_ text, unit text, n_ahead integer,
        days bigint, most_kept integer, OUT did text, OUT name text, OUT ahead_s bigint) RETURNS SETOF record
    LANGUAGE plpgsql SET lock_timeout = '50ms' AS $$
BEGIN
    PERFORM FROM lease l WHERE l.name = 'scheduler' AND l.holder = holder_ AND l.epoch = epoch_ FOR SHARE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    BEGIN
        name := history_make(parent_, unit, n_ahead);
        did := CASE WHEN name IS NOT NULL THEN 'made' END;
        IF name IS NULL AND days > 0 THEN
            name := history_drop(parent_, now() - days * interval '24 hours', most_kept);
            did := CASE WHEN name IS NOT NULL THEN 'dropped' END;
        END IF;
        did := coalesce(did, 'done');
    EXCEPTION WHEN lock_not_available OR check_violation THEN -- a row came to the default meanwhile
        did := 'busy';
        name := NULL;
    END;
    SELECT extract(epoch FROM max(h.hi) - now())::bigint INTO ahead_s FROM history_partition h
        WHERE h.parent = parent_ AND NOT h.is_default;
    RETURN NEXT;
END $$;
