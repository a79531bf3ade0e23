-- 0020_event_check.sql - schema version 20: that an event's job is there is looked up by the index of
-- jobs, whatever their number was when a connection first wrote an event.

-- PostgreSQL keeps the plan of a foreign key's check as long as the connection. One that was made while
-- job was nearly empty reads the whole table for each event, until its statistics are gathered again: of
-- 1,000 jobs that come at once, each read all jobs. Events follow a change of their job in the same
-- transaction. This comes after the checks of the job's own references, whose tables stay small.
CREATE FUNCTION check_events_by_index() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    was text;
BEGIN
    was := set_config('enable_seqscan', 'off', true);
    RETURN NULL;
END $$;
CREATE TRIGGER check_events_by_index AFTER INSERT OR UPDATE ON job
    FOR EACH STATEMENT EXECUTE FUNCTION check_events_by_index();
