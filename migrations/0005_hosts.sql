-- 0005_hosts.sql - schema version 5: a key for executors on other hosts.

ALTER TABLE api_key DROP CONSTRAINT api_key_role_check;
ALTER TABLE api_key ADD CONSTRAINT api_key_role_check
    CHECK (role IN ('admin', 'tenant-admin', 'submit', 'infer', 'read', 'executor'));
ALTER TABLE api_key DROP CONSTRAINT api_key_check;
ALTER TABLE api_key ADD CONSTRAINT api_key_check
    CHECK ((role IN ('admin', 'executor')) = (tenant_id IS NULL));
