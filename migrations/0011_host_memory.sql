-- 0011_host_memory.sql - schema version 11: host memory of a tenant's models, and images that were
-- set aside for others.

ALTER TABLE quota ADD COLUMN host_memory_max_bytes bigint CHECK (host_memory_max_bytes > 0);
COMMENT ON COLUMN quota.host_memory_max_bytes IS
    'on each executor, images of models and what workers have compiled; NULL: half of what it gives them';

ALTER TABLE placement DROP CONSTRAINT placement_state_check;
ALTER TABLE placement ADD CONSTRAINT placement_state_check
    CHECK (state IN ('LOADING', 'READY', 'UNLOADING', 'FAILED', 'ASIDE'));
