/* traced.c - see traced.h. */
#include "api/infer/traced.h"

#include "api/api.h"
#include "api/infer/link.h"
#include "api/infer/trace_shares.h"
#include "common/clock.h"
#include "common/hash.h"
#include "common/metrics.h"
#include "common/trace.h"

#include <string.h>

#define STAGE_ANSWER 1 /* of a request: body, answer, reply */

void traced_begin(const struct api_req *q, struct infer *i)
{
    if (sh_trace_is_wishing())
        req_read_trace(q->h.traceparent, &i->trace);
}

static bool came_late(const struct infer *i, int rc, int64_t ns)
{
    if (rc)
        return rc == SH_E_TIMEOUT;
    return (i->v->has_slo && (double)ns > i->v->slo_ms * 1e6) ||
           (i->plan.timeout_us > 0 && ns > SH_US(i->plan.timeout_us));
}

static bool is_wanted(const struct infer *i, int rc, int64_t ns)
{
    const int64_t slow_ms = SH_CONF_NOW(i->api->conf->otlp_slow_ms);

    return i->trace.is_sampled || (slow_ms > 0 && (ns > SH_MS(slow_ms) || came_late(i, rc, ns)));
}

/* Whatever a client asks for: one tenant's traces must not crowd out the others', nor flood the
 * collector. */
static bool take_share(const struct infer *i)
{
    const int64_t most = SH_CONF_NOW(i->api->conf->otlp_max_per_s);
    const bool has_one = most == 0 || trace_shares_take(i->api->trace_shares, i->tenant_id,
                                                        (double)most, sh_clock_ns());

    sh_metric_add(M_shunt_otlp_requests_total,
                  SH_LABELS(i->tenant, has_one ? "sampled" : "dropped"), 1);
    if (!has_one)
        sh_metric_add(M_shunt_otlp_dropped_spans_total, SH_LABELS("share"), 1);
    return has_one;
}

/* The client's trace; else one of the request's own, which has the request's id if that is of this
 * form, as those that we make are. */
static int find_trace_id(const struct infer *i, uint8_t out[static SH_TRACE_ID_BYTES])
{
    static const uint8_t NONE[SH_TRACE_ID_BYTES];
    const char *id = i->trace.id[0] ? i->trace.id : i->id;

    if (strlen(id) == 2 * sizeof(NONE) && sh_unhex(id, out, sizeof(NONE), NULL) == SH_OK &&
        memcmp(out, NONE, sizeof(NONE)) != 0)
        return SH_OK;
    return sh_random(out, sizeof(NONE), NULL);
}

void traced_end(const struct infer *i, int rc, int64_t ns, bool was_answered)
{
    struct sh_trace_wish w = {
        .api = link_api_id(i->api->link), .rid = i->rid, .parent = i->trace.parent};
    struct msg_span_wish others = {.rid = i->rid};

    if (!sh_trace_is_wishing() || !is_wanted(i, rc, ns) || !take_share(i))
        return;
    if (find_trace_id(i, w.trace) || sh_random(&w.self, sizeof(w.self), NULL))
        return;
    w.self = w.self ? w.self : 1;
    others.parent = was_answered ? sh_trace_stage_id(w.self, STAGE_ANSWER) : w.self;
    memcpy(others.trace, w.trace, sizeof(others.trace));
    if (sh_trace_wish(&w))
        link_want_spans(i->api->link, &others);
}
