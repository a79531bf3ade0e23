-- 0021_event_check_apart.sql - schema version 21: the planner's setting for the check that an
-- event's job is there (0020_event_check.sql) is that of the statement that writes events, and no
-- longer that of the rest of the transaction.

DROP TRIGGER check_events_by_index ON job;
DROP FUNCTION check_events_by_index();

-- The checks of the rows come between the two triggers. A statement that fails ends the setting,
-- too: it goes with the transaction or its savepoint.
CREATE FUNCTION check_events_by_index() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    was text;
BEGIN
    IF TG_WHEN = 'BEFORE' THEN
        was := set_config('shunt.seqscan', current_setting('enable_seqscan'), true);
        was := set_config('enable_seqscan', 'off', true);
    ELSE
        was := set_config('enable_seqscan', current_setting('shunt.seqscan'), true);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER check_events_by_index_begin BEFORE INSERT ON job_event
    FOR EACH STATEMENT EXECUTE FUNCTION check_events_by_index();
CREATE TRIGGER check_events_by_index_end AFTER INSERT ON job_event
    FOR EACH STATEMENT EXECUTE FUNCTION check_events_by_index();
