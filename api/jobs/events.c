/* events.c - the events of all jobs that a key may see: pages, or a stream. */
#include "api/jobs/events.h"

#include "api/api.h"
#include "api/handlers.h"
#include "api/jobs/watch.h"
#include "api/request/noun.h"
#include "api/store/store_event.h"
#include "common/mem.h"

#include <string.h>

#define MAX_PLACE INT64_C(999999999999999999)

bool events_wants_stream(const struct api_req *q)
{
    return q->h.accept && strstr(q->h.accept, "text/event-stream");
}

static int read_time(const struct api_req *q, const char *name, const char **out,
                     struct sh_err *err)
{
    int64_t ms;

    *out = uri_query(&q->uri, name);
    return *out ? noun_read_time(name, *out, &ms, err) : SH_OK;
}

/* "<xid>-<id>" */
static int read_place(const char *text, struct store_place *out, struct sh_err *err)
{
    size_t len = strcspn(text, "-");
    char xid[24];

    if (len < sizeof(xid) && text[len] == '-') {
        memcpy(xid, text, len);
        xid[len] = '\0';
        if (!sh_parse_i64(xid, 0, MAX_PLACE, "xid", &out->xid, NULL) &&
            !sh_parse_i64(text + len + 1, 0, MAX_PLACE, "id", &out->id, NULL))
            return SH_OK;
    }
    return SH_FAIL(err, SH_E_INVALID,
                   "Last-Event-ID must be the \"position\" of an event, such as 1234-567");
}

static int stream(struct api_req *q, const struct store_events *f, const struct store_place *last,
                  struct sh_err *err)
{
    struct store_place after = *last;
    int64_t live = 0;
    int rc =
        f->to ? SH_FAIL(err, SH_E_INVALID, "\"to\" is only for lists: a stream has no end") : SH_OK;

    if (!rc)
        rc = store_event_start(q->db, f->from, &after, &live, err);
    if (last->xid) /* what comes behind a place is new, whatever its time */
        live = 0;
    return rc ? rc : watch_open_all(q->api->watch, q, f, &after, live, err);
}

int events_list(struct api_req *q, struct sh_err *err)
{
    struct jobfilter jobs = {0};
    struct store_events f = {.tenant_id = q->tenant_id, .jobs = &jobs};
    struct store_place last = {0};
    struct req_page page;
    json_t *j = NULL;
    int rc = q->h.last_event_id ? read_place(q->h.last_event_id, &last, err) : SH_OK;

    if (!rc)
        rc = req_page(q, &page, err);
    if (!rc)
        rc = read_time(q, "from", &f.from, err);
    if (!rc)
        rc = read_time(q, "to", &f.to, err);
    if (!rc)
        rc = jobfilter_read(&q->uri, &jobs, err);
    if (!rc && events_wants_stream(q))
        rc = stream(q, &f, &last, err);
    else if (!rc)
        rc = store_event_list(q, &f, &page, &j, err);
    jobfilter_fini(&jobs);
    return rc || !j ? rc : req_reply(q, j, NULL, err);
}
