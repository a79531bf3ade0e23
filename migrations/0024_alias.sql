-- 0024_alias.sql - schema version 24: names that stand for versions of a model, with weights
-- (docs/decisions/0049), and how their requests went.

CREATE TABLE model_alias (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    model_id    bigint      NOT NULL REFERENCES model (id) ON DELETE CASCADE,
    name        text        NOT NULL CHECK (name ~ '^[a-z][a-z0-9-]{0,62}$'),
    targets     jsonb       NOT NULL CHECK (jsonb_array_length(targets) BETWEEN 1 AND 8),
    previous    jsonb       CHECK (jsonb_array_length(previous) BETWEEN 1 AND 8),
    generation  integer     NOT NULL DEFAULT 1,
    sticky      boolean     NOT NULL DEFAULT false,
    policy      jsonb,
    rolled_back jsonb,
    changed_by  text,
    changed_at  timestamptz NOT NULL DEFAULT now(),
    created_at  timestamptz NOT NULL DEFAULT now(),
    row_version bigint      NOT NULL DEFAULT 1,
    UNIQUE (model_id, name)
);
COMMENT ON TABLE model_alias IS 'a name that stands for versions of a model; requests may use it as a version';
COMMENT ON COLUMN model_alias.targets IS '[{"version": 1, "weight": 9}, ...], by version: numbers of versions of the model';
COMMENT ON COLUMN model_alias.previous IS 'what targets was before, for a rollback; NULL: nothing';
COMMENT ON COLUMN model_alias.generation IS 'grows with each change of targets: requests are counted under it';
COMMENT ON COLUMN model_alias.policy IS
    'when it is rolled back by itself: window_s, min_requests, error_percent, burn_rate; NULL: never';
COMMENT ON COLUMN model_alias.rolled_back IS
    'the last change was a rollback by itself: at, reason_code, reason, from (targets); else NULL';
COMMENT ON COLUMN model_alias.changed_by IS 'key of the last change; NULL: nobody''s: a training job, or by itself';

CREATE TABLE alias_count (
    alias_id   bigint      NOT NULL REFERENCES model_alias (id) ON DELETE CASCADE,
    generation integer     NOT NULL,
    version    integer     NOT NULL,
    slice      timestamptz NOT NULL,
    api        bigint      NOT NULL,
    answered   bigint      NOT NULL,
    failed     bigint      NOT NULL,
    met        bigint      NOT NULL,
    missed     bigint      NOT NULL,
    PRIMARY KEY (alias_id, slice, generation, version, api)
);
CREATE INDEX alias_count_age ON alias_count (slice);
COMMENT ON TABLE alias_count IS
    'requests of an alias with a policy, by the version that served them, in ten seconds, as one API process '
    '(api: its random number) counted them: whole rows are written anew, as in slo_minute';

-- Whoever deletes a version must not leave an alias without what it serves. That is looked at once more
-- here, where the other transaction has ended: SH002, common/db.c passes the message on as SH_E_CONFLICT.
CREATE FUNCTION alias_keeps_version() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    named text;
BEGIN
    SELECT a.name INTO named FROM model_alias a JOIN model m ON m.id = a.model_id
        JOIN tenant t ON t.id = m.tenant_id
        WHERE a.model_id = new.model_id AND m.deleted_at IS NULL AND t.state <> 'DELETED'
        AND a.targets @> jsonb_build_array(jsonb_build_object('version', new.version)) ORDER BY a.name LIMIT 1;
    IF named IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'SH002', MESSAGE = format('the alias "%s" names version %s; give it '
            'another version first, or delete the alias', named, new.version);
    END IF;
    -- There is nothing to go back to any more.
    UPDATE model_alias SET previous = NULL, row_version = row_version + 1 WHERE model_id = new.model_id
        AND previous @> jsonb_build_array(jsonb_build_object('version', new.version));
    RETURN new;
END $$;
CREATE TRIGGER alias_keeps_version BEFORE UPDATE OF state ON model_version FOR EACH ROW
    WHEN (new.state = 'DELETED' AND old.state <> 'DELETED') EXECUTE FUNCTION alias_keeps_version();
