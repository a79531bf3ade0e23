/* usage.c - tenants' usage, and the shares that the scheduler derives from it. */
#include "api/handlers.h"
#include "api/request/noun.h"
#include "api/store/store.h"
#include "common/clock.h"
#include "common/mem.h"

#include <inttypes.h>
#include <string.h>

#define DAY_MS INT64_C(86400000)

/* The longest range of each: what a statement can add up within its time limit. */
static const int64_t MAX_DAYS[USAGE_N_BY] = {[USAGE_BY_CLASS] = 400,
                                             [USAGE_BY_MODEL] = 400,
                                             [USAGE_BY_MINUTE] = 7,
                                             [USAGE_BY_HOUR] = 100,
                                             [USAGE_BY_DAY] = 400};

static int read_by(const struct api_req *q, enum usage_by *out, struct sh_err *err)
{
    const char *by = uri_query(&q->uri, "by");
    unsigned i = USAGE_BY_CLASS;
    int rc = by ? sh_field_word("by", by, SH_USAGE_BY(SH_USAGE_WORD, ","), &i, err) : SH_OK;

    *out = (enum usage_by)i;
    return rc;
}

static int read_usage_range(const struct api_req *q, struct store_usage *u, struct sh_err *err)
{
    const char *from = uri_query(&q->uri, "from"), *to = uri_query(&q->uri, "to");
    const char *by = uri_query(&q->uri, "by");
    int rc = SH_OK;

    u->to_ms = sh_clock_wall_ms();
    if (to)
        rc = noun_read_time("to", to, &u->to_ms, err);
    u->from_ms = u->to_ms - DAY_MS;
    if (!rc && from)
        rc = noun_read_time("from", from, &u->from_ms, err);
    if (!rc && u->from_ms >= u->to_ms)
        rc = SH_FAIL(err, SH_E_INVALID, "\"from\" must be before \"to\"");
    if (!rc && u->to_ms - u->from_ms > MAX_DAYS[u->by] * DAY_MS)
        rc = SH_FAIL(err, SH_E_INVALID, "usage by %s can be asked for at most %" PRId64 " days",
                     by ? by : "class", MAX_DAYS[u->by]);
    return rc;
}

int usage_get(struct api_req *q, struct sh_err *err)
{
    struct store_usage u = {.tenant = q->params[0],
                            .class = uri_query(&q->uri, "class"),
                            .model = uri_query(&q->uri, "model")};
    struct req_page page;
    json_t *j = NULL;
    int64_t id;
    int rc = noun_path_tenant(q, q->params[0], err);

    if (!rc)
        rc = req_page(q, &page, err);
    if (!rc)
        rc = read_by(q, &u.by, err);
    if (!rc && u.class)
        rc = noun_check_choice("class", u.class, SH_USAGE_CLASSES, err);
    if (!rc && u.model)
        rc = noun_check_name("model", u.model, err);
    if (!rc)
        rc = read_usage_range(q, &u, err);
    if (!rc)
        rc = store_tenant_id(q->db, q->params[0], &id, err);
    if (!rc)
        rc = store_usage(q, &u, &page, &j, err);
    return noun_page_reply(q, rc, j, err);
}

int shares_get(struct api_req *q, struct sh_err *err)
{
    json_t *j = NULL;
    int rc = noun_path_tenant(q, q->params[0], err);

    if (!rc)
        rc = store_share_get(q, q->params[0], &j, err);
    return noun_reply(q, rc, j, "tenant", q->params[0], err);
}

int shares_list(struct api_req *q, struct sh_err *err)
{
    struct req_page page;
    json_t *j = NULL;
    int rc = req_page(q, &page, err);

    if (!rc)
        rc = store_share_list(q, &page, &j, err);
    return noun_page_reply(q, rc, j, err);
}
