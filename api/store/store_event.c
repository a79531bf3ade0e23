/* store_event.c - SQL for the events of all jobs.
 *
 * Ids of events are drawn before their transactions commit, so among all jobs a lower id may appear
 * after a higher one was seen. Therefore a stream follows (xid, id), and only as far as every
 * transaction has ended: nothing can appear below that. An open transaction that has written holds
 * it back; our statements end after two seconds.
 *
 * Clocks can be set, so times decide only where `from` begins. A stream therefore looks into every
 * partition; streams that are up to date are at the same place, and share that look.
 */
#include "api/store/store_event.h"

#include "api/store/store_sql.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define SQL_OF_ALL(e, j)                                                                  \
    SQL_EVENT(e)                                                                          \
    " || jsonb_build_object('position', " e ".xid || '-' || " e ".id, 'tenant', (SELECT " \
    "t.name FROM tenant t WHERE t.id = " j ".tenant_id), 'job', " j ".id, 'name', " j     \
    ".name, 'kind', " j ".kind, 'queue', (SELECT qu.name FROM queue qu WHERE qu.id = " j  \
    ".queue_id))"

/* clang-format off */
static const struct db_stmt EVENT_LIST = {
    "event_list",
    "SELECT e.id, " SQL_OF_ALL("e", "j") " FROM job_event e JOIN job j ON j.id = e.job_id WHERE "
    "($1::bigint = 0 OR j.tenant_id = $1::bigint) AND ($2::text[] IS NULL OR e.to_state = ANY "
    "($2::text[])) AND ($3::text IS NULL OR j.queue_id IN (SELECT id FROM queue WHERE name = "
    "$3::text)) AND ($4::jsonb IS NULL OR j.labels @> $4::jsonb) AND e.at >= coalesce("
    "$5::timestamptz, coalesce($6::timestamptz, now()) - interval '1 day') AND ($6::timestamptz "
    "IS NULL OR e.at < $6::timestamptz) AND ($7::bigint IS NULL OR e.id < $7::bigint) ORDER BY "
    "e.id DESC LIMIT $8::bigint + 1",
    8,
};

/* The first events since a time need not be of the oldest transaction among them, so some more are
 * looked at; one that overlaps ten thousand others is not ours. */
static const struct db_stmt EVENT_START = {
    "event_start",
    "SELECT least(CASE WHEN $2::bigint > 0 THEN $2::text::xid8 ELSE (SELECT xid FROM (SELECT xid "
    "FROM job_event WHERE at >= $1::timestamptz ORDER BY at LIMIT 10000) e ORDER BY xid LIMIT 1) "
    "END, pg_snapshot_xmin(pg_current_snapshot()))::text, "
    "CASE WHEN $1::timestamptz > clock_timestamp() THEN '9223372036854775807' ELSE "
    "pg_snapshot_xmin(pg_current_snapshot())::text END",
    2,
};

static const struct db_stmt EVENT_WATCH = {
    "event_watch",
    "WITH w AS MATERIALIZED (SELECT * FROM jsonb_to_recordset($1::jsonb) AS w (place bigint, "
    "tenant bigint, states text, queue text, labels text, since text, live text, xid text, id "
    "bigint)) SELECT w.place, e.xid::text, e.id, CASE WHEN (w.tenant = 0 OR j.tenant_id = "
    "w.tenant) AND (w.states IS NULL OR e.to_state = ANY (w.states::text[])) AND (w.queue IS NULL "
    "OR j.queue_id IN (SELECT id FROM queue WHERE name = w.queue)) AND (w.labels IS NULL OR "
    "j.labels @> w.labels::jsonb) AND (w.since IS NULL OR e.at >= w.since::timestamptz OR e.xid >= "
    "w.live::xid8) THEN (" SQL_OF_ALL("e", "j") ")::text END FROM (SELECT DISTINCT xid, id FROM w) "
    "p CROSS JOIN LATERAL (SELECT * FROM job_event y WHERE (y.xid, y.id) > (p.xid::xid8, p.id) AND "
    "y.xid < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY y.xid, y.id LIMIT $2::bigint) e JOIN "
    "w ON w.xid = p.xid AND w.id = p.id JOIN job j ON j.id = e.job_id ORDER BY w.place, e.xid, "
    "e.id",
    2,
};
/* clang-format on */

int store_event_list(struct api_req *q, const struct store_events *f, const struct req_page *page,
                     json_t **out, struct sh_err *err)
{
    const char *p[] = {STORE_TEXT(f->tenant_id),
                       f->jobs->states,
                       f->jobs->queue,
                       f->jobs->labels,
                       f->from,
                       f->to,
                       page->cursor,
                       page->limit_text};

    return store_page(q->db, &EVENT_LIST, p, page, out, err);
}

int store_event_start(struct db *db, const char *from, struct store_place *at, int64_t *live,
                      struct sh_err *err)
{
    const char *p[] = {from, STORE_TEXT(at->xid)};
    struct db_res *res = NULL;
    int64_t xid;
    int rc = db_exec(db, &EVENT_START, p, &res, err);
    if (rc)
        return rc;
    xid = db_i64(res, 0, 0, 0);
    *live = db_i64(res, 0, 1, 0);
    if (xid != at->xid)
        *at = (struct store_place){.xid = xid};
    db_res_free(res);
    return SH_OK;
}

json_t *store_event_ask(const struct store_events *f, int64_t live)
{
    char xid[24];

    snprintf(xid, sizeof(xid), "%" PRId64, live);
    return json_pack("{s:I, s:s?, s:s?, s:s?, s:s?, s:s}", "tenant", (json_int_t)f->tenant_id,
                     "states", f->jobs->states, "queue", f->jobs->queue, "labels", f->jobs->labels,
                     "since", f->from, "live", xid);
}

int store_event_watch(struct db *db, const json_t *asks, struct db_res **out, struct sh_err *err)
{
    char *text = NULL;
    int rc = sh_json_dump(asks, &text, err);

    *out = NULL;
    if (!rc)
        rc = db_exec(db, &EVENT_WATCH, (const char *[]){text, STORE_TEXT(STORE_WATCH_EVENTS)}, out,
                     err);
    free(text);
    return rc;
}
