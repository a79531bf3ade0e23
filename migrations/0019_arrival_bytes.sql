-- 0019_arrival_bytes.sql - schema version 19: a snapshot says how much of the arrivals it takes
-- without reading all of them.

ALTER TABLE arrival ADD COLUMN bytes bigint NOT NULL DEFAULT 0;
UPDATE arrival SET bytes = octet_length(rows::text);
COMMENT ON COLUMN arrival.bytes IS 'of rows, as text';
