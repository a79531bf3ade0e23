-- 0008_hosts.sql - schema version 8: a key for executors on other hosts; results count as
-- stored bytes.

ALTER TABLE api_key DROP CONSTRAINT api_key_role_check;
ALTER TABLE api_key ADD CONSTRAINT api_key_role_check
    CHECK (role IN ('admin', 'tenant-admin', 'submit', 'infer', 'read', 'executor'));
ALTER TABLE api_key DROP CONSTRAINT api_key_check;
ALTER TABLE api_key ADD CONSTRAINT api_key_check
    CHECK ((role IN ('admin', 'executor')) = (tenant_id IS NULL));

-- What a job left on disk counts as stored by its tenant, unless it is a version's, which counts itself.
ALTER TABLE job ADD COLUMN result_bytes bigint
    GENERATED ALWAYS AS (coalesce((result ->> 'bytes')::bigint, 0)) STORED;
COMMENT ON COLUMN job.result_bytes IS 'of the file that it left; 0 when it was removed';
CREATE INDEX job_stored ON job (tenant_id) INCLUDE (result_bytes)
    WHERE state = 'SUCCEEDED' AND result_version_id IS NULL AND result_bytes > 0;

COMMENT ON COLUMN quota.gpu_memory_min_bytes IS
    'of each device: images of others and their pins do not take it; kept by executors';
COMMENT ON COLUMN quota.gpu_memory_share IS
    'weight of its part of what no minimum takes: images of who holds more go first';
COMMENT ON COLUMN quota.gpu_memory_max_bytes IS
    'of each device: images, runs and training; NULL: all of it, and for pins a quarter';
