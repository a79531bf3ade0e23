-- 0005_submit.sql - schema version 5: how many jobs of a tenant wait, kept with every change of
-- them, and arrays of jobs.

CREATE TABLE job_waiting (
    tenant_id bigint PRIMARY KEY REFERENCES tenant (id),
    n         bigint NOT NULL DEFAULT 0 CHECK (n >= 0)
) WITH (fillfactor = 50);
COMMENT ON TABLE job_waiting IS
    'jobs of a tenant that are QUEUED, HELD or SUSPENDED, but for what job_waiting_change adds; written by '
    'triggers and by the leader. Submissions of a tenant take turns by its row';
CREATE TABLE job_waiting_change (
    tenant_id bigint NOT NULL REFERENCES tenant (id),
    n         bigint NOT NULL
);
CREATE INDEX job_waiting_change_tenant ON job_waiting_change (tenant_id);
COMMENT ON TABLE job_waiting_change IS
    'jobs that began or ceased to wait otherwise than by a submission: rows of their own, so that a start '
    'never waits for a submission that is not yet committed; the next one, or the leader, adds them up';
INSERT INTO job_waiting (tenant_id, n) SELECT t.id, (SELECT count(*) FROM job j WHERE j.tenant_id = t.id
    AND j.state IN ('QUEUED', 'HELD', 'SUSPENDED')) FROM tenant t;

CREATE FUNCTION job_waiting_begin() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO job_waiting (tenant_id) VALUES (new.id);
    RETURN NULL;
END $$;
CREATE TRIGGER job_waiting_begin AFTER INSERT ON tenant FOR EACH ROW EXECUTE FUNCTION job_waiting_begin();

-- Counted once a statement, whatever the number of its rows. A quota limits what is submitted, not
-- what comes back to the queue. SH001: common/db.c passes the message on as SH_E_QUOTA.
CREATE FUNCTION job_waiting_add() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    x record;
BEGIN
    PERFORM FROM job_waiting WHERE tenant_id IN (SELECT tenant_id FROM fresh) ORDER BY tenant_id FOR UPDATE;
    FOR x IN WITH f AS (SELECT tenant_id, count(*) AS added FROM fresh
            WHERE state IN ('QUEUED', 'HELD', 'SUSPENDED') GROUP BY tenant_id),
        d AS (DELETE FROM job_waiting_change c USING f WHERE c.tenant_id = f.tenant_id RETURNING c.*)
        UPDATE job_waiting w SET n = w.n + f.added + (SELECT coalesce(sum(d.n), 0) FROM d
            WHERE d.tenant_id = f.tenant_id) FROM f
        LEFT JOIN quota q ON q.tenant_id = f.tenant_id WHERE w.tenant_id = f.tenant_id
        RETURNING w.n, f.added, q.max_queued_jobs AS most
    LOOP
        IF x.n > x.most THEN
            RAISE EXCEPTION USING ERRCODE = 'SH001', MESSAGE = format('%s jobs are queued, the tenant''s '
                'max_queued_jobs is %s, and %s more would be; wait for one to start or ask for a higher '
                'quota', x.n - x.added, x.most, x.added);
        END IF;
    END LOOP;
    RETURN NULL;
END $$;
CREATE TRIGGER job_waiting_add AFTER INSERT ON job REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION job_waiting_add();

CREATE FUNCTION job_waiting_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO job_waiting_change SELECT tenant_id, sum(d) FROM
        (SELECT tenant_id, 1 AS d FROM fresh WHERE state IN ('QUEUED', 'HELD', 'SUSPENDED')
         UNION ALL
         SELECT tenant_id, -1 FROM stale WHERE state IN ('QUEUED', 'HELD', 'SUSPENDED')) y
        GROUP BY tenant_id HAVING sum(d) <> 0;
    RETURN NULL;
END $$;
CREATE TRIGGER job_waiting_change AFTER UPDATE ON job REFERENCING OLD TABLE AS stale NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION job_waiting_change();

CREATE FUNCTION job_waiting_remove() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO job_waiting_change SELECT tenant_id, -count(*) FROM stale
        WHERE state IN ('QUEUED', 'HELD', 'SUSPENDED') GROUP BY tenant_id;
    RETURN NULL;
END $$;
CREATE TRIGGER job_waiting_remove AFTER DELETE ON job REFERENCING OLD TABLE AS stale
    FOR EACH STATEMENT EXECUTE FUNCTION job_waiting_remove();

CREATE FUNCTION job_waiting_clear() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM job_waiting_change;
    UPDATE job_waiting SET n = 0;
    RETURN NULL;
END $$;
CREATE TRIGGER job_waiting_clear AFTER TRUNCATE ON job
    FOR EACH STATEMENT EXECUTE FUNCTION job_waiting_clear();

CREATE TABLE job_array (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id    bigint      NOT NULL REFERENCES tenant (id),
    indices      text        NOT NULL,
    n_jobs       integer     NOT NULL CHECK (n_jobs > 0),
    max_parallel integer CHECK (max_parallel > 0),
    template     jsonb       NOT NULL,
    client_token text CHECK (length(client_token) BETWEEN 1 AND 255),
    created_at   timestamptz NOT NULL DEFAULT now(),
    row_version  bigint      NOT NULL DEFAULT 1
);
CREATE INDEX job_array_tenant ON job_array (tenant_id, id DESC);
CREATE UNIQUE INDEX job_array_token ON job_array (tenant_id, client_token) WHERE client_token IS NOT NULL;
COMMENT ON TABLE job_array IS 'jobs that were submitted as one, with an index each; goes with the last of them';
COMMENT ON COLUMN job_array.template IS 'the job as it was submitted, before the index was put in';
COMMENT ON COLUMN job_array.max_parallel IS 'so many of them have an executor at once; NULL: no limit';

ALTER TABLE job
    ADD COLUMN array_id    bigint REFERENCES job_array (id),
    ADD COLUMN array_index integer CHECK (array_index >= 0),
    ADD CHECK ((array_id IS NULL) = (array_index IS NULL));
CREATE UNIQUE INDEX job_array_index ON job (array_id, array_index) WHERE array_id IS NOT NULL;
