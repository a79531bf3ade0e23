/* slo.c - a model's latency target. */
#include "api/api.h"
#include "api/handlers.h"
#include "api/link.h"
#include "api/noun.h"
#include "api/store.h"
#include "common/mem.h"

int slo_get(struct api_req *q, struct sh_err *err)
{
    json_t *j = NULL;
    int rc = SH_OK;

    if (noun_is_name(q->params[0]))
        rc = store_slo_get(q, q->params[0], &j, err);
    if (!rc && !j)
        rc = noun_missing("latency target of model", q->params[0], err);
    return rc ? rc : req_reply(q, j, NULL, err);
}

int slo_put(struct api_req *q, struct sh_err *err)
{
    static const char *const ON_MISS[] = {"reject", "delay", "best-effort", NULL};
    struct store_slo s = {.percentile = 99, .on_miss = "best-effort"};
    const char *match;
    char buf[24];
    struct sh_json_field f[] = {
        {"latency_ms", SH_JSON_F64, &s.latency_ms, .required = true, .min = 0.001, .max = 3.6e6},
        {"percentile", SH_JSON_F64, &s.percentile, .min = 0.001, .max = 99.999},
        {"priority", SH_JSON_INT, &s.priority, .min = 0, .max = 100},
        {"on_miss", SH_JSON_STR, &s.on_miss, .required = false},
    };
    json_t *j = NULL, *now = NULL;
    int rc = noun_is_name(q->params[0]) ? SH_OK : noun_missing("model", q->params[0], err);

    if (!rc)
        rc = noun_read(q, "", f, SH_ARRAY_LEN(f), err);
    if (!rc)
        rc = noun_check_choice("on_miss", s.on_miss, ON_MISS, err);
    if (!rc)
        rc = req_if_match(q, buf, &match, err);
    if (!rc)
        rc = store_slo_put(q, q->params[0], match, &s, &j, err);
    if (!rc && !j) {
        rc = store_slo_get(q, q->params[0], &now, err);
        if (!rc && !now)
            rc = match ? SH_FAIL(err, SH_E_PRECONDITION, "the model has no latency target yet")
                       : noun_missing("model of your own", q->params[0], err);
        if (!rc)
            rc = noun_refused(now, match, "latency target", q->params[0],
                              "the model belongs to another tenant", err);
        json_decref(now);
    }
    if (rc)
        return rc;
    link_hint(q->api->link, "models");
    return req_reply(q, j, NULL, err);
}

int slo_delete(struct api_req *q, struct sh_err *err)
{
    const char *match;
    char buf[24];
    json_t *j = NULL, *now = NULL;
    int rc = noun_is_name(q->params[0]) ? SH_OK : noun_missing("model", q->params[0], err);

    if (!rc)
        rc = req_if_match(q, buf, &match, err);
    if (!rc)
        rc = store_slo_delete(q, q->params[0], match, &j, err);
    if (!rc && !j) {
        rc = store_slo_get(q, q->params[0], &now, err);
        if (!rc)
            rc = noun_refused(now, match, "latency target of model", q->params[0],
                              "the model belongs to another tenant", err);
    }
    if (!rc)
        link_hint(q->api->link, "models");
    json_decref(now);
    json_decref(j);
    return rc;
}
