-- 0013_deleted.sql - schema version 13: when versions and datasets were deleted, and indexes by which
-- a sweep finds those that nothing refers to any more (scheduler/database/store_sweep.c).

ALTER TABLE model_version ADD COLUMN deleted_at timestamptz;
ALTER TABLE dataset ADD COLUMN deleted_at timestamptz;
COMMENT ON COLUMN model_version.deleted_at IS 'set by a trigger; some time later the row goes';
COMMENT ON COLUMN dataset.deleted_at IS 'set by a trigger; some time later the row goes';

-- Nobody knows when these were: their time begins now.
UPDATE model_version SET deleted_at = now() WHERE state = 'DELETED';
UPDATE dataset SET deleted_at = now() WHERE state = 'DELETED';

CREATE FUNCTION note_deletion() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    new.deleted_at := now();
    RETURN new;
END $$;
CREATE TRIGGER version_deleted BEFORE UPDATE OF state ON model_version FOR EACH ROW
    WHEN (new.state = 'DELETED' AND old.state <> 'DELETED') EXECUTE FUNCTION note_deletion();
CREATE TRIGGER dataset_deleted BEFORE UPDATE OF state ON dataset FOR EACH ROW
    WHEN (new.state = 'DELETED' AND old.state <> 'DELETED') EXECUTE FUNCTION note_deletion();

CREATE INDEX model_version_deleted ON model_version (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE INDEX dataset_deleted ON dataset (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE INDEX model_deleted ON model (deleted_at) WHERE deleted_at IS NOT NULL;

-- Who refers to a row that is about to go; without them each foreign key reads all jobs or all usage.
CREATE INDEX job_version ON job (version_id);
CREATE INDEX job_dataset ON job (dataset_id);
CREATE INDEX job_eval_dataset ON job (eval_dataset_id) WHERE eval_dataset_id IS NOT NULL;
CREATE INDEX job_result_version ON job (result_version_id) WHERE result_version_id IS NOT NULL;
CREATE INDEX usage_model ON usage (model_id);
