/* store_event.h - SQL for the events of all jobs. A position is "<xid>-<id>": see job_event.xid in
 * migrations/. */
#ifndef SH_API_STORE_STORE_EVENT_H
#define SH_API_STORE_STORE_EVENT_H

#include "api/spec/jobfilter.h"
#include "api/store/store_job.h"

struct store_events {
    int64_t tenant_id; /* 0: all tenants */
    const struct jobfilter *jobs;
    const char *from, *to; /* RFC 3339; NULL: any */
};
struct store_place {
    int64_t xid, id;
};
int store_event_list(struct api_req *q, const struct store_events *f, const struct req_page *page,
                     json_t **out, struct sh_err *err); /* newest first */
/* Where a stream begins: after *at, if that is set; if it is {0, 0}, with the events since `from`,
 * or with those from now on. A place beyond the newest becomes now. *live: events written by this
 * or a later transaction came after the stream was opened, and their time is not checked; none if
 * `from` is in the future. */
int store_event_start(struct db *db, const char *from, struct store_place *at, int64_t *live,
                      struct sh_err *err);
/* asks: JSON array of {"place", "xid", "id", and what store_event_ask() returns}. Rows: place, xid,
 * id, JSON in one line (NULL: the filter excludes it), in order; at most STORE_WATCH_EVENTS for
 * each are examined. *out: OWNED, db_res_free(). */
json_t *store_event_ask(const struct store_events *f, int64_t live); /* OWNED; NULL: no memory */
int store_event_watch(struct db *db, const json_t *asks, struct db_res **out, struct sh_err *err);

#endif
