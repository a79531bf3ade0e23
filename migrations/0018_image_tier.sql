-- 0018_image_tier.sql - schema version 18: how much of an image is on an executor's disk alone.

ALTER TABLE placement ADD COLUMN image_disk_bytes bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN placement.image_disk_bytes IS
    'of the image, what host memory lacks: the next run reads it from disk (executor/models/tier.h)';
