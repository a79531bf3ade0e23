-- 0015_lease_options.sql - schema version 15: what the leading scheduler decides by, for what-if
-- questions (api/control/simulate.c).

ALTER TABLE lease ADD COLUMN options jsonb NOT NULL DEFAULT '{}';
COMMENT ON COLUMN lease.options IS
    'options of its holder that decisions about jobs rest on (scheduler/leader.c); {}: nobody has led yet';
